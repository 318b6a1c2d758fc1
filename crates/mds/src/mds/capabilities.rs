//! Capabilities of files' data: who is told what, and which requests wait for it (see
//! [`crate::caps`]).
//!
//! ```text
//!  Open ─▶ answered with what there is; the rest comes with FsCaps, when others have given it back
//!  Stat of a file that another client may be writing ─▶ waits until that has said how large it is
//!  StatLite of one ─▶ answered with what that has said before
//!  Set of a size or time ─▶ waits until no other client does anything with the file
//!  Alone ─▶ the same, until its end: a client that appends, or writes to several objects at once
//! ```
//! A client that has not answered, and from which nothing else comes, is evicted, so that others go
//! on.

use super::*;
use crate::caps::ALONE;
use crate::shares::Wait;
use nacre_wire::msg::fs::{FsCapNews, FsGrant, FsNode, FsStale};
use std::time::Duration;

/// A client that has not answered, and was not heard for so long, is evicted. Until others go on
/// its fence has to be in force, and what it had written to be found: 10 s in all (docs/files.md).
const DEAF: Duration = Duration::from_secs(9);
/// Others wait so long for what clients tell again of files after a takeover. What one tells may
/// have to wait for names that another one is to give back, and a kernel gives back none of a
/// directory into which a look is under way.
const TOLD_MAX: Duration = Duration::from_secs(1);
/// One that is heard, and has not answered: it may have much to write.
const SLOW: Duration = Duration::from_secs(60);

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Capabilities {
    /// Questions that requests wait for: asked of whom, under which number.
    looks: BTreeMap<(ClientId, u64), (ClientId, u64)>,
    /// Not told yet, in order, and what others have to forget before.
    news: Vec<(ClientId, FsCapNews, Option<Vec<Wait>>)>,
    /// Since when clients have owed an answer.
    owing: BTreeMap<ClientId, Time>,
    /// Requests that have been put before all others after a takeover, and are not done.
    first: BTreeSet<(ClientId, u64)>,
    /// Until when all others wait for those.
    first_until: Time,
}

impl Mds {
    /// Whether a request has to wait for what other clients say or do.
    pub(super) fn waits_for_caps(
        &mut self,
        client: ClientId,
        request: &FsRequest,
        outcome: &mut Outcome,
    ) -> bool {
        // What was done once waits for nothing.
        if request.again.is_some() {
            return false;
        }
        if !matches!(outcome.answer, FsAnswer::Failed { .. })
            && self.waits_for_boundless(client, request)
        {
            return true;
        }
        match (&request.call, &mut outcome.answer) {
            (FsCall::Set { ino, changes }, FsAnswer::Node { .. }) => {
                // Changes that another client has foretold may still be on their way, also from
                // behind a cut: those come first.
                let is_open = if changes.is_of_data() {
                    changes.foretold.is_none() && self.caps.is_open(*ino)
                } else {
                    self.caps.has_another_alone(*ino, client)
                };
                // What an evicted client has written there is not known yet.
                (is_open && !self.caps.stop(*ino, client, request.number))
                    || (changes.size.is_some() && self.probing.has(*ino))
            }
            (FsCall::Alone { ino, ends: false }, FsAnswer::Node { .. }) => {
                !self.caps.stop(*ino, client, ALONE)
            }
            (FsCall::Stat { ino }, answer) => {
                let waits = self.waits_for_writer(client, request.number, *ino);
                self.show_told(client, answer);
                waits
            }
            // What writers said last is shown, and none of them is asked.
            (FsCall::StatLite { .. }, answer) => {
                self.show_told(client, answer);
                false
            }
            // These are not for how large a file is, which a kernel asks for when it wants that:
            // who waited here would hold up all that makes names in the directory
            // meanwhile.
            (
                FsCall::Lookup { .. }
                | FsCall::List { .. }
                | FsCall::Open { .. }
                | FsCall::Make { .. },
                answer,
            ) => {
                self.show_told(client, answer);
                false
            }
            _ => false,
        }
    }
    /// Whether another client has not said yet how large a file is.
    fn waits_for_writer(&mut self, client: ClientId, number: u64, ino: Ino) -> bool {
        if mutant(Mutant::WriterNotAsked) {
            return false;
        }
        match self.capabilities.looks.get(&(client, number)).copied() {
            Some((writer, number)) => !self.caps.is_answered(ino, writer, number),
            None => {
                let asked = self.caps.ask(ino, client);
                self.capabilities
                    .looks
                    .extend(asked.map(|asked| ((client, number), asked)));
                asked.is_some()
            }
        }
    }
    /// What others have said is shown.
    fn show_told(&self, client: ClientId, answer: &mut FsAnswer) {
        for FsNode { inode, .. } in answer.nodes_mut() {
            if let Some((size, mtime)) = self.caps.told(inode.ino, client) {
                inode.size = inode.size.max(size);
                inode.mtime = inode.mtime.max(mtime);
                inode.ctime = inode.ctime.max(mtime);
            }
        }
    }

    /// A request is done.
    pub(super) fn caps_concluded(&mut self, client: ClientId, request: &FsRequest, failed: bool) {
        self.capabilities.looks.remove(&(client, request.number));
        match &request.call {
            FsCall::Set { ino, changes } => {
                if changes.is_of_data() {
                    self.caps.forget_told(*ino);
                }
                self.caps.go_on(*ino, client, request.number);
            }
            FsCall::Alone { ino, ends } if *ends || failed => self.caps.go_on(*ino, client, ALONE),
            FsCall::Comply {
                ino,
                number,
                size,
                mtime,
                written,
            } => {
                let told = Some((*size, *mtime)).filter(|_| !written && *mtime != Stamp::default());
                self.caps.comply(client, *ino, *number, told);
                self.delegations.comply(client, *ino, *number);
                // It answers: its time begins again.
                self.capabilities.owing.remove(&client);
            }
            _ => return,
        }
        self.try_again = true;
    }

    /// What clients have given back they do not name to the next holder of the rank; how large they
    /// had made a file it learns from what they say again, and that before another client uses
    /// it. What only looks has time (simulated seed 488: one client's look came before what it
    /// said later, and before what another one said; seed 3166 of 593a465c: what one said had
    /// to wait for its directory, and another one was shown the file without it).
    pub(super) fn put_tells_first(&mut self) {
        let tells = self
            .waiting
            .iter()
            .filter(|(_, request)| request.call.tells());
        let mut last = BTreeMap::new();
        for (client, request) in tells {
            let number: &mut u64 = last.entry(*client).or_default();
            *number = request.number.max(*number);
        }
        let is_later = |(client, request): &(ClientId, FsRequest)| {
            !request.call.is_change() || last.get(client).is_none_or(|last| request.number > *last)
        };
        self.waiting.make_contiguous().sort_by_key(is_later);
        let first = self.waiting.iter().take_while(|one| !is_later(one));
        self.capabilities.first = first
            .map(|(client, request)| (*client, request.number))
            .collect();
        self.capabilities.first_until = self.now + TOLD_MAX;
    }
    /// Whether some of that is still to be done, for no longer than `TOLD_MAX`, and this is none of
    /// it: it may have to wait for a directory to be read, or taken back. What others may be
    /// waiting for meanwhile does not: what is given back, and what was done before.
    pub(super) fn waits_for_told(&mut self, client: ClientId, request: &FsRequest) -> bool {
        let (first, asked) = (&mut self.capabilities.first, &self.asked);
        if !first.is_empty() {
            first.retain(|one| asked.contains(one));
        }
        let gives_back = matches!(
            request.call,
            FsCall::Comply { .. }
                | FsCall::Close { .. }
                | FsCall::Wrote { .. }
                | FsCall::Alone { ends: true, .. }
                | FsCall::Grow { .. }
                | FsCall::Numbers {}
        );
        let is_done =
            request.again.is_some() || request.foretold.is_some() || request.call.is_foretold();
        !first.is_empty() && !gives_back && !is_done && !first.contains(&(client, request.number))
    }

    /// A client has opened a file or closed it.
    pub(super) fn note_opened(&mut self, client: ClientId, opened: Option<Opened>) {
        let Some(Opened { ino, write, closed }) =
            opened.filter(|_| self.sessions.contains_key(&client))
        else {
            return;
        };
        if closed {
            self.caps.close(client, ino, write);
            // What waited for its size, or until it is not open any more.
            self.try_again = true;
        } else {
            if write {
                self.bound_before_opening(ino);
            }
            self.caps.open(client, ino, write);
        }
        self.record(client, ino);
    }
    /// What another client keeps of a file's attributes is old as soon as this one may write
    /// unseen.
    pub(super) fn forget_before_writing(
        &mut self,
        client: ClientId,
        file: Option<Ino>,
        after: &mut sharing::After,
    ) {
        if let Some(ino) = file
            && self.caps.given(client, ino).buffers()
        {
            after.waits.extend(self.others_forget(client, ino));
        }
    }
    fn others_forget(&mut self, client: ClientId, ino: Ino) -> Vec<Wait> {
        let mut waits = Vec::new();
        if let Some(home) = self.home(ino) {
            self.shares
                .tell(Some(client), home, &FsStale::Node { ino }, &mut waits);
        }
        waits
    }
    /// An answer says what its client may do with what it has opened.
    pub(super) fn give_caps(&self, client: ClientId, file: Option<Ino>, reply: &mut FsReply) {
        let file = file.filter(|_| !matches!(reply.answer, FsAnswer::Failed { .. }));
        reply.caps = file
            .map(|ino| FsGrant {
                ino,
                cap: self.caps.given(client, ino),
            })
            .into_iter()
            .collect();
    }

    /// Tells clients what they are to forget, and then what they may do from now on.
    pub(super) fn tell_caps(&mut self) {
        if !self.is_quiet() {
            self.caps.begin();
        }
        let mut new = Vec::new();
        self.caps.take(&mut new);
        new.extend(self.delegations.take());
        self.capabilities
            .news
            .extend(new.into_iter().map(|(client, news)| (client, news, None)));
        let safe = self.journal.safe();
        let mut told: BTreeMap<ClientId, FsCaps> = BTreeMap::new();
        for (client, mut news, waits) in std::mem::take(&mut self.capabilities.news) {
            let Some(session) = self.sessions.get(&client) else {
                continue;
            };
            // Before it is welcome it takes nothing.
            if session.since >= safe {
                self.capabilities.news.push((client, news, waits));
                continue;
            }
            if news.number == 0 {
                news.cap = self.caps.granted(client, news.ino);
                if news.cap.buffers() {
                    let waits = waits.unwrap_or_else(|| self.others_forget(client, news.ino));
                    if waits.iter().any(|wait| !self.shares.is_met(wait)) {
                        self.capabilities.news.push((client, news, Some(waits)));
                        continue;
                    }
                }
            }
            told.entry(client)
                .or_insert_with(|| FsCaps { items: Vec::new() })
                .items
                .push(news);
        }
        let mut forget = Vec::new();
        self.shares.take(&mut forget);
        self.out.extend(
            forget
                .into_iter()
                .map(|(client, forget)| (client, Say::Forget(forget))),
        );
        self.out.extend(
            told.into_iter()
                .map(|(client, caps)| (client, Say::Caps(caps))),
        );
        let owing: BTreeSet<ClientId> = self.caps.owing().collect();
        self.capabilities
            .owing
            .retain(|client, _| owing.contains(client));
        for client in owing {
            self.capabilities.owing.entry(client).or_insert(self.now);
        }
    }

    fn heard(&self, client: ClientId) -> Time {
        self.sessions
            .get(&client)
            .map_or(Time::ZERO, |session| session.heard)
    }
    /// Until when one that was asked is waited for.
    fn waits_until(&self, client: ClientId, since: Time) -> Time {
        (self.heard(client).max(since) + DEAF).min(since + SLOW)
    }
    /// Clients that others wait for, each with when that has been long enough.
    fn waited_for(&self) -> impl Iterator<Item = (ClientId, Time)> {
        let owing = self.capabilities.owing.iter();
        let owing = owing.map(|(client, since)| (*client, self.waits_until(*client, *since)));
        // One that has a file alone has not been asked for anything, and may be dead.
        let stopping = self
            .caps
            .stopping()
            .filter(|client| !self.evicting.has(*client));
        let delegated = self
            .delegations
            .owing()
            .filter(|(client, _)| !self.evicting.has(*client));
        let delegated = delegated.map(|(client, since)| (client, self.waits_until(client, since)));
        owing
            .chain(delegated)
            .chain(stopping.map(|client| (client, self.heard(client) + DEAF)))
    }
    /// Clients that do not answer, or not in time: others go on without them.
    pub(super) fn evict_deaf(&mut self) {
        let deaf: Vec<ClientId> = self
            .waited_for()
            .filter(|(_, until)| *until <= self.now)
            .map(|(client, _)| client)
            .collect();
        for client in deaf {
            self.capabilities.owing.remove(&client);
            self.evict(client);
            self.try_again = true;
        }
        if !self.capabilities.first.is_empty() && self.now >= self.capabilities.first_until {
            self.capabilities.first.clear();
            self.try_again = true;
        }
    }
    /// When that is due.
    pub(super) fn caps_at(&self) -> Time {
        let told = (!self.capabilities.first.is_empty()).then_some(self.capabilities.first_until);
        self.waited_for()
            .map(|(_, until)| until)
            .chain(told)
            .min()
            .unwrap_or(Time::MAX)
    }
    /// A client is gone.
    pub(super) fn end_caps(&mut self, client: ClientId) {
        self.caps.end(client);
        self.capabilities.looks.retain(|(who, _), _| *who != client);
        self.capabilities.news.retain(|(who, ..)| *who != client);
        self.capabilities.owing.remove(&client);
        self.try_again = true;
    }
}
