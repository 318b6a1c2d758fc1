//! What clients may cache, and which answers wait until other clients have dropped it (see
//! [`crate::shares`]).

use super::*;
use crate::shares::Wait;
use nacre_wire::msg::fs::{FS_LEASE_MS, FsForgot};
use std::time::Duration;

/// A client silent for this long no longer uses its cache: its lease, which it counts from earlier
/// on, plus a margin for clocks that run at different speeds.
pub(super) const VOID: Duration = Duration::from_millis(FS_LEASE_MS + FS_LEASE_MS / 5);

/// A change that is not safe yet, or whose old state not all clients have dropped.
#[derive(Debug)]
pub(super) struct Fresh {
    /// The client that made it; `None`: several did.
    who: Option<ClientId>,
    batch: u64,
    waits: Vec<Wait>,
}

/// What must have happened before an answer is given.
#[derive(Clone, Debug, Default)]
pub(super) struct After {
    /// This batch must be safe.
    pub batch: Option<u64>,
    /// All of this must be dropped.
    pub waits: Vec<Wait>,
}

impl After {
    pub const fn is_nothing(&self) -> bool {
        self.batch.is_none() && self.waits.is_empty()
    }
    /// Whether it has happened; batches below `safe` are safe.
    pub fn is_over(&self, safe: u64, shares: &Shares) -> bool {
        self.batch.is_none_or(|batch| batch < safe)
            && self.waits.iter().all(|wait| shares.is_met(wait))
    }
}

/// An answer that waits.
#[derive(Debug)]
pub(super) struct Held {
    pub after: After,
    pub client: ClientId,
    pub reply: FsReply,
    pub batch: Option<u64>,
    /// The file that was opened.
    pub file: Option<Ino>,
}

impl Mds {
    /// A message from a client has arrived.
    pub fn on_heard(&mut self, now: Time, client: ClientId) {
        if let Some(session) = self.sessions.get_mut(&client) {
            session.heard = session.heard.max(now);
        }
    }
    /// A client has dropped what it was told to.
    pub fn on_forgot(&mut self, client: ClientId, forgot: FsForgot) {
        self.shares.on_forgot(client, forgot.number);
        self.release = true;
    }
    /// A client starts with an empty cache.
    pub(super) fn void_shares(&mut self, client: ClientId) {
        self.shares.void(client);
        self.release = true;
    }

    /// Handles silent clients: others continue without waiting for their caches.
    pub(super) fn void_silent(&mut self) {
        let now = self.now;
        let heard = |client: &ClientId| {
            self.sessions
                .get(client)
                .map_or(Time::ZERO, |session| session.heard)
        };
        let silent: Vec<ClientId> = self
            .shares
            .owing()
            .filter(|client| now.since(heard(client)) >= VOID)
            .collect();
        silent
            .into_iter()
            .for_each(|client| self.void_shares(client));
    }
    /// When the next client will have been silent for too long.
    pub(super) fn void_at(&self) -> Time {
        let heard = |client: ClientId| {
            self.sessions
                .get(&client)
                .map_or(Time::ZERO, |session| session.heard)
        };
        self.shares
            .owing()
            .map(|client| heard(client) + VOID)
            .min()
            .unwrap_or(Time::MAX)
    }

    /// What an answer depends on: another client's change must be safe, and all clients must have
    /// dropped the old state of any change.
    pub(super) fn rests_on(
        &self,
        client: ClientId,
        call: &FsCall,
        answer: &FsAnswer,
        changes: &[Change],
    ) -> After {
        let mut inos: BTreeSet<Ino> = call.inos().collect();
        inos.extend(answer.nodes().map(|node| node.inode.ino));
        for change in changes {
            if let Change::Set { dir, entry, .. } = change {
                inos.extend([*dir, entry.ino()]);
            }
        }
        // Whether a directory may move depends on the places of all directories above its new
        // place.
        let moves = |dir, name| matches!(self.tree.find(dir, name), Found::Entry(entry) if entry.is_directory());
        if let FsCall::Rename {
            dir,
            name,
            to_dir,
            to_name,
            ..
        } = call
            && (moves(*dir, name) || moves(*to_dir, to_name))
        {
            let above = [*dir, *to_dir].map(|dir| self.tree.ancestors(dir));
            inos.extend(above.into_iter().flatten().map(|(dir, _)| dir));
        }
        self.rests_on_inos(Some(client), &inos)
    }
    /// The same for what depends on these inodes.
    pub(super) fn rests_on_inos(&self, client: Option<ClientId>, inos: &BTreeSet<Ino>) -> After {
        let mut after = After::default();
        for fresh in inos.iter().filter_map(|ino| self.fresh.get(ino)) {
            if client.is_none() || fresh.who != client {
                after.batch = after.batch.max(Some(fresh.batch));
            }
            after
                .waits
                .extend(fresh.waits.iter().filter(|wait| !self.shares.is_met(wait)));
        }
        after.waits.sort_unstable();
        after.waits.dedup();
        after
    }

    pub(super) fn note_fresh(
        &mut self,
        client: Option<ClientId>,
        batch: u64,
        change: &Change,
        waits: &[Wait],
    ) {
        match change {
            Change::Set { dir, entry, .. } => {
                self.note_fresh_ino(client, batch, *dir, waits);
                self.note_fresh_ino(client, batch, entry.ino(), waits);
            }
            Change::Remove { dir, .. } | Change::Begin { dir } | Change::End { dir } => {
                self.note_fresh_ino(client, batch, *dir, waits);
            }
            // Sums above are shown as they are: they reveal nothing about a single name.
            Change::Head { .. } => {}
        }
    }
    /// The same for one inode.
    pub(super) fn note_fresh_ino(
        &mut self,
        client: Option<ClientId>,
        batch: u64,
        ino: Ino,
        waits: &[Wait],
    ) {
        let before = self.fresh.remove(&ino);
        let is_own = before.as_ref().is_none_or(|before| before.who == client);
        let mut all: Vec<Wait> = before.map(|before| before.waits).unwrap_or_default();
        all.extend_from_slice(waits);
        all.retain(|wait| !self.shares.is_met(wait));
        all.sort_unstable();
        all.dedup();
        self.fresh.insert(
            ino,
            Fresh {
                who: client.filter(|_| is_own),
                batch,
                waits: all,
            },
        );
    }

    /// Gives the waiting answers that may be given now.
    pub(super) fn release_held(&mut self) {
        if !std::mem::take(&mut self.release) {
            return;
        }
        let (shares, safe) = (&self.shares, self.journal.safe());
        self.fresh.retain(|_, fresh| {
            fresh.batch >= safe || fresh.waits.iter().any(|wait| !shares.is_met(wait))
        });
        self.release_ready();
        let safe = self.journal.safe();
        for held in std::mem::take(&mut self.held) {
            if held.after.is_over(safe, &self.shares) {
                let safe = held.batch.is_none_or(|batch| batch < safe);
                let mut reply = FsReply { safe, ..held.reply };
                self.give_caps(held.client, held.file, &mut reply);
                self.out.push((held.client, Say::Reply(reply)));
            } else {
                self.held.push(held);
            }
        }
    }

    /// What the client may cache of an answer that it is given now, and the directories that it has
    /// a share of from now on.
    pub(super) fn grant(&mut self, client: ClientId, call: &FsCall, reply: &mut FsReply) {
        if let FsCall::StatLite { .. } = call {
            // A file may be larger than that without its server knowing.
            return;
        }
        reply.keep = true;
        let dir = match call {
            FsCall::Lookup { dir, .. }
            | FsCall::List { dir, .. }
            | FsCall::Make { dir, .. }
            | FsCall::Link { dir, .. } => Some(*dir),
            _ => None,
        };
        let failed = matches!(reply.answer, FsAnswer::Failed { .. });
        let shown = match &reply.answer {
            FsAnswer::Node { node, .. } => [
                node.home,
                Some(node.inode.ino).filter(|_| node.inode.is_directory()),
            ],
            _ => [None, None],
        };
        // A failed look-up concerns its directory, if that is one.
        let dir = dir.filter(|dir| !failed || self.tree.head(*dir, Frag::WHOLE).is_some());
        for dir in dir.into_iter().chain(shown.into_iter().flatten()) {
            if self.shares.grant(client, dir) {
                reply.shares.push(dir);
            }
        }
    }

    /// Inodes whose attributes or names these changes affect.
    pub(super) fn inos_of(&self, changes: &[Change]) -> Vec<Ino> {
        let mut inos = Vec::new();
        for change in changes {
            let (dir, name) = match change {
                Change::Set {
                    dir, name, entry, ..
                } => {
                    inos.push(entry.ino());
                    (*dir, name)
                }
                Change::Remove { dir, name, .. } => (*dir, name),
                Change::Head { .. } | Change::Begin { .. } | Change::End { .. } => continue,
            };
            if let Found::Entry(before) = self.tree.find(dir, name) {
                inos.push(before.ino());
            }
        }
        inos.sort_unstable();
        inos.dedup();
        inos
    }

    /// The directory whose shares cover an inode's attributes. None for an inode without a name:
    /// otherwise every removal would be sent to all clients with such a file open.
    pub(super) fn home(&self, ino: Ino) -> Option<Ino> {
        self.tree
            .place(ino)
            .map(|(dir, _)| dir)
            .filter(|dir| *dir != Ino::strays(self.config.rank))
    }

    /// Adds to an answer the current place of what it shows.
    pub(super) fn note_home(&self, client: ClientId, answer: &mut FsAnswer) {
        // A file that another client may be writing changes without notification.
        let home = |ino| {
            self.home(ino)
                .filter(|_| self.caps.writer(ino, client).is_none())
        };
        answer
            .nodes_mut()
            .for_each(|node| node.home = home(node.inode.ino));
    }
}
