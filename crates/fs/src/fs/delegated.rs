//! Names of files in directories delegated to this client: created and removed here, and sent a
//! moment later (beyond the paper; ADR 0006, "Delegated directories").
//!
//! ```text
//!  Make, Unlink ─▶ delegated, and everything relevant known? ─▶ done here, answered ─▶ sent, with number and time
//!                   │ no                      │ yes, but the server still has to answer a request about the directory
//!                   ▼                         ▼
//!                 the server is asked       it waits for that, once
//!  FsCaps, a greeting ─▶ everything is sent ─▶ Comply, FsCaughtUp
//! ```
//! A program that unpacks an archive creates thousands of files in directories that no other client
//! knows, and used to wait for the server with each of them.
//!
//! Invariants: the server will get the same result for everything done here: the directory's
//! permissions, owner and head are known, the name is known not to exist, or to be a file's only
//! name, and no other request about the directory is in flight. Nothing done here depends on
//! unanswered requests of this client. No object of a file created here is written before the
//! server knows the file. A caller that synchronizes waits until the change is safe; if the server
//! refuses it, that is an error there.

#[cfg(test)]
#[path = "delegated_test.rs"]
mod tests;

use super::foretelling::UNSENT_MAX;
use super::*;
use crate::file::Made;
use nacre_wire::fs::inode::{ACL_DEFAULT, S_ISGID};
use nacre_wire::fs::{FileKind, Inode};

/// With fewer numbers than this, more are requested.
const NUMBERS_LOW: u64 = 512;

/// A rank's numbers that are assigned to this client.
#[derive(Debug, Default)]
struct Numbers {
    /// First number and count.
    ranges: VecDeque<(Ino, u64)>,
    asked: bool,
    wanted: bool,
}

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Delegated {
    numbers: BTreeMap<Rank, Numbers>,
    /// Calls that wait until nothing about their directory is in flight, and those that have
    /// waited.
    calls: BTreeMap<Ino, Vec<(CallId, FsCall)>>,
    waited: BTreeSet<CallId>,
}

impl Delegated {
    pub fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }
    /// The next instance may be a client of another file system.
    pub fn on_evicted(&mut self) {
        self.numbers
            .values_mut()
            .for_each(|numbers| numbers.ranges.clear());
    }
    /// A rank has assigned some, or not.
    pub fn on_numbers(&mut self, rank: Rank, given: Option<FsAnswer>) {
        let numbers = self.numbers.entry(rank).or_default();
        numbers.asked = false;
        if let Some(FsAnswer::Numbers { first, count }) = given {
            numbers.ranges.push_back((first, u64::from(count)));
        }
    }
    fn take_number(&mut self, rank: Rank) -> Option<Ino> {
        let numbers = self.numbers.entry(rank).or_default();
        numbers.wanted = numbers.ranges.iter().map(|(_, count)| count).sum::<u64>() <= NUMBERS_LOW;
        let (first, count) = numbers.ranges.front_mut()?;
        let number = *first;
        (*first, *count) = (Ino(number.0 + 1), *count - 1);
        if *count == 0 {
            numbers.ranges.pop_front();
        }
        Some(number)
    }
}

/// Why a call is not executed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotHere {
    /// A pending request about the directory must be answered first.
    Busy(Ino),
    /// The server must be asked.
    No,
}

impl Fs {
    /// Executes a call here, if that is possible now.
    pub(super) fn do_here(&mut self, call: &FsCall) -> Result<Outcome, NotHere> {
        let (FsCall::Make { dir, name, .. } | FsCall::Unlink { dir, name, .. }) = call else {
            return Err(NotHere::No);
        };
        let (dir, rank) = (*dir, rank_of(*dir));
        let is_possible =
            !self.is_stopping() && self.sessions.is_free(rank) && self.foretold.len() < UNSENT_MAX;
        let parent = self
            .names
            .delegated(&self.lasting(), dir)
            .filter(|_| is_possible)
            .ok_or(NotHere::No)?;
        match call {
            FsCall::Make {
                kind: FileKind::File {},
                mode,
                umask,
                uid,
                gid,
                open,
                write,
                ..
            } => {
                let rights = parent
                    .rare
                    .as_ref()
                    .and_then(|rare| rare.xattrs.get(&Name::copy(ACL_DEFAULT)));
                if rights.is_some() || !self.names.is_free(dir, name) {
                    return Err(NotHere::No);
                }
                let gid = if parent.mode & S_ISGID == 0 {
                    *gid
                } else {
                    parent.gid
                };
                if self.is_busy(dir) {
                    return Err(NotHere::Busy(dir));
                }
                let layout = self.seek.layout().ok_or(NotHere::No)?;
                let ino = self.delegated.take_number(rank).ok_or(NotHere::No)?;
                let mode = mode & 0o7777 & !(umask & 0o777);
                let new = Inode::new(ino, FileKind::File {}, mode, (*uid, gid), self.stamp());
                let inode = Inode {
                    layout: Some(layout),
                    ..new
                };
                Ok(self.make_here(call, &inode, open.then_some(*write)))
            }
            FsCall::Unlink {
                directory: false, ..
            } => {
                let file = self
                    .names
                    .file_at(&self.lasting(), dir, name)
                    .cloned()
                    .ok_or(NotHere::No)?;
                if self.files.contains_key(&file.ino) || self.sessions.is_busy(file.ino) {
                    return Err(NotHere::No);
                }
                if self.is_busy(dir) {
                    return Err(NotHere::Busy(dir));
                }
                Ok(self.remove_here(call, (dir, name), file))
            }
            _ => Err(NotHere::No),
        }
    }
    fn make_here(&mut self, call: &FsCall, inode: &Inode, open: Option<bool>) -> Outcome {
        let FsCall::Make { dir, name, .. } = call else {
            unreachable!("a file is made")
        };
        self.names.made_here(*dir, name, inode);
        let node = FsNode {
            inode: inode.clone(),
            head: None,
            home: Some(*dir),
        };
        let answer = FsAnswer::Node { node, made: true };
        self.places.learn(call, &answer);
        if let (Some(write), Some(mut file)) = (open, File::new(inode)) {
            let cap = if write {
                FsCap::Buffer {}
            } else {
                FsCap::Cache {}
            };
            file.opens[usize::from(write)] += 1;
            file.made = Made::Here;
            file.place = self.places.get(inode.ino);
            file.grant(cap, true, self.sessions.next());
            self.files.insert(inode.ino, file);
        }
        self.note_here(call, inode.ctime, inode.ino);
        Ok(Given::Answer(answer))
    }
    fn remove_here(
        &mut self,
        call: &FsCall,
        (dir, name): (Ino, &Name),
        mut inode: Inode,
    ) -> Outcome {
        let now = self.stamp();
        self.names.removed_here(dir, name, inode.ino, now);
        (inode.links, inode.ctime) = (0, inode.ctime.max(now));
        self.note_here(call, now, Ino::TOP);
        let node = FsNode {
            inode,
            head: None,
            home: None,
        };
        Ok(Given::Answer(FsAnswer::Node { node, made: false }))
    }
    fn note_here(&mut self, call: &FsCall, stamp: Stamp, made: Ino) {
        self.note_unsent(Unsent::Name(call.clone(), FsAgain { stamp, made }));
    }

    /// Whether a server still has to answer something that decides what may be done in a directory:
    /// about it, or about its parent, from which it may be removed.
    fn is_busy(&self, dir: Ino) -> bool {
        let home = self.names.home(dir);
        [Some(dir), home]
            .into_iter()
            .flatten()
            .any(|ino| self.sessions.is_busy(ino))
    }

    /// A call that can be executed here, or wait until it can, needs no request; any other call is
    /// returned.
    pub(super) fn done_or_put_off(
        &mut self,
        id: CallId,
        call: FsCall,
        out: &mut Vec<Output>,
    ) -> Option<FsCall> {
        let has_waited = self.delegated.waited.remove(&id);
        if self.foretold.len() >= UNSENT_MAX {
            self.send_foretold(out);
        }
        if self.beside.contains(&id) {
            return Some(call);
        }
        match self.do_here(&call) {
            Ok(outcome) => {
                self.end(id, outcome);
                None
            }
            Err(NotHere::Busy(dir)) if !has_waited => {
                self.delegated
                    .calls
                    .entry(dir)
                    .or_default()
                    .push((id, call));
                None
            }
            Err(_) => Some(call),
        }
    }
    /// Continues waiting calls, and prepares for later ones.
    pub(super) fn go_on_delegated(&mut self, out: &mut Vec<Output>) {
        // If it was returned meanwhile, it is no reason to wait.
        let busy =
            |dir: &Ino| self.is_busy(*dir) && self.names.delegated(&self.lasting(), *dir).is_some();
        let over: Vec<Ino> = self
            .delegated
            .calls
            .keys()
            .copied()
            .filter(|dir| !busy(dir))
            .collect();
        for dir in over {
            for (id, call) in self
                .delegated
                .calls
                .remove(&dir)
                .unwrap_or_default()
                .into_iter()
                .rev()
            {
                self.delegated.waited.insert(id);
                self.put_back(id, Ask::Names(call));
            }
        }
        let wants = |(_, numbers): &(&Rank, &mut Numbers)| numbers.wanted && !numbers.asked;
        let mut ranks = Vec::new();
        for (rank, numbers) in self.delegated.numbers.iter_mut().filter(wants) {
            if self.sessions.is_free(*rank) {
                (numbers.wanted, numbers.asked) = (false, true);
                ranks.push(*rank);
            }
        }
        for rank in ranks {
            self.request_at(rank, FsCall::Numbers {}, Purpose::Numbers(rank), out);
        }
    }
    /// Directories are delegated to this client.
    pub(super) fn note_delegated(&mut self, rank: Rank, dirs: &[Ino]) {
        self.names.delegate(dirs);
        if !dirs.is_empty() {
            let numbers = self.delegated.numbers.entry(rank).or_default();
            numbers.wanted |= numbers.ranges.is_empty();
        }
    }

    /// Sends a change that was made here.
    pub(super) fn send_done_here(&mut self, call: FsCall, done: FsAgain, out: &mut Vec<Output>) {
        let (FsCall::Make { dir, .. } | FsCall::Unlink { dir, .. }) = &call else {
            unreachable!("names are made and removed here")
        };
        let (rank, made) = (
            rank_of(*dir),
            Some(done.made).filter(|made| *made != Ino::TOP),
        );
        let purpose = Purpose::Here { dir: *dir, made };
        self.request_with(rank, call, Some(done), purpose, out);
    }
    /// The server has made the same change, or has refused it.
    pub(super) fn done_here(
        &mut self,
        dir: Ino,
        made: Option<Ino>,
        given: Result<FsAnswer, u16>,
        out: &mut Vec<Output>,
    ) {
        if given.is_err() {
            self.names.doubt(dir);
            self.take_back();
            self.losses.lost(dir);
        }
        let Some(made) = made else { return };
        let Some(file) = self.files.get_mut(&made) else {
            if given.is_err() {
                self.losses.lost(made);
            }
            return;
        };
        let waits = std::mem::replace(&mut file.made, Made::Known) == Made::Wanted;
        match given {
            Ok(_) if waits => self.flush(made, out),
            Ok(_) => {}
            Err(errno) => self.give_up(made, errno),
        }
        self.settle(made, out);
    }
}
