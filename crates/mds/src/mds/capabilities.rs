//! Capabilities for files' data: messages to clients, and the requests that wait for them (see
//! [`crate::caps`]).
//!
//! ```text
//!  Open ─▶ answered with what is available; the rest follows with FsCaps when others have given it back
//!  Stat of a file that another client may be writing ─▶ waits until that client has reported the size
//!  StatLite of one ─▶ answered with what that client reported before
//!  Set of a size or time ─▶ waits until no other client uses the file
//!  Alone ─▶ the same, until it is ended: a client that appends, or writes to several objects at once
//! ```
//! A client that has not answered, and from which nothing else arrives, is evicted, so that others
//! can continue.

use super::*;
use crate::caps::ALONE;
use crate::shares::Wait;
use nacre_wire::msg::fs::{FsCapNews, FsGrant, FsNode, FsStale};
use std::time::Duration;

/// A client that has not answered, and was silent for this long, is evicted. Before others
/// continue, its fence has to be in force and what it had written must be found: 10 s in all
/// (docs/files.md).
const DEAF: Duration = Duration::from_secs(9);
/// How long other requests wait for clients' repeated reports about files after a takeover. A
/// report may have to wait for names that another client must give back, and a kernel does not give
/// back names of a directory while a look-up in it is in flight.
const TOLD_MAX: Duration = Duration::from_secs(1);
/// The same for a client that is heard but has not answered: it may have much to write.
const SLOW: Duration = Duration::from_secs(60);

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Capabilities {
    /// Questions that requests wait for: the client asked, and the question's number.
    looks: BTreeMap<(ClientId, u64), (ClientId, u64)>,
    /// Messages not sent yet, in order, and what others have to drop before.
    news: Vec<(ClientId, FsCapNews, Option<Vec<Wait>>)>,
    /// Since when clients have owed an answer.
    owing: BTreeMap<ClientId, Time>,
    /// Requests that come before all others after a takeover, and are not complete.
    first: BTreeSet<(ClientId, u64)>,
    /// Until when all others wait for those.
    first_until: Time,
}

impl Mds {
    /// Whether a request has to wait for what other clients report or do.
    pub(super) fn waits_for_caps(
        &mut self,
        client: ClientId,
        request: &FsRequest,
        outcome: &mut Outcome,
    ) -> bool {
        // What was executed once waits for nothing.
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
                // Changes that another client has foretold may still be in flight, even from behind
                // a network cut: those come first.
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
            // The writers' last reports are shown, and none of them is asked.
            (FsCall::StatLite { .. }, answer) => {
                self.show_told(client, answer);
                false
            }
            // Look-ups do not need the exact size, which a kernel asks for separately: waiting here
            // would block every creation of names in the directory meanwhile.
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
    /// Whether another client has not reported a file's size yet.
    #[nacre_types::planted]
    fn waits_for_writer(&mut self, client: ClientId, number: u64, ino: Ino) -> bool {
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
    /// Adds what other clients have reported.
    fn show_told(&self, client: ClientId, answer: &mut FsAnswer) {
        for FsNode { inode, .. } in answer.nodes_mut() {
            if let Some((size, mtime)) = self.caps.told(inode.ino, client) {
                inode.size = inode.size.max(size);
                inode.mtime = inode.mtime.max(mtime);
                inode.ctime = inode.ctime.max(mtime);
            }
        }
    }

    /// A request is complete.
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
                // It answers: its timeout restarts.
                self.capabilities.owing.remove(&client);
            }
            _ => return,
        }
        self.try_again = true;
    }

    /// Clients do not report to the next holder of the rank what they have given back. It learns
    /// how large they had made a file from their repeated reports, which must come before another
    /// client uses the file. Pure reads can wait (simulated seed 488: one client's read came before
    /// its own later report, and before another client's; seed 3166 of 593a465c: one client's
    /// report had to wait for its directory, and another client was shown the file without it).
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
    /// Whether some of those reports are still to be executed, for at most `TOLD_MAX`, and this
    /// request is none of them: a report may have to wait for a directory to be read or returned.
    /// What others may be waiting for meanwhile does not wait: capabilities given back, and
    /// requests executed before.
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

    /// A client has opened or closed a file.
    pub(super) fn note_opened(&mut self, client: ClientId, opened: Option<Opened>) {
        let Some(Opened { ino, write, closed }) =
            opened.filter(|_| self.sessions.contains_key(&client))
        else {
            return;
        };
        if closed {
            self.caps.close(client, ino, write);
            // Requests that waited for its size, or until it is closed.
            self.try_again = true;
        } else {
            if write {
                self.bound_before_opening(ino);
            }
            self.caps.open(client, ino, write);
        }
        self.record(client, ino);
    }
    /// Another client's cached attributes of the file become outdated as soon as this one may write
    /// without telling the server.
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
    /// Adds to an answer the client's capability for the file it has opened.
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

    /// Tells clients what to drop, and then their new capabilities.
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
            // Before it is welcome it accepts nothing.
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
    /// Until when a client that was asked is waited for.
    fn waits_until(&self, client: ClientId, since: Time) -> Time {
        (self.heard(client).max(since) + DEAF).min(since + SLOW)
    }
    /// Clients that others wait for, each with its timeout.
    fn waited_for(&self) -> impl Iterator<Item = (ClientId, Time)> {
        let owing = self.capabilities.owing.iter();
        let owing = owing.map(|(client, since)| (*client, self.waits_until(*client, *since)));
        // A client that has a file alone has not been asked for anything, and may be dead.
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
    /// Evicts clients that do not answer in time: others continue without them.
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
    /// When the next eviction is due.
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
