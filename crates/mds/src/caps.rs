//! Which clients have a file open, and their capabilities for its data (CEPH-03, -08, -15).
//!
//! ```text
//!  open by                          capability of each
//!  one client, also for writing     Buffer   it may delay writes, and it knows the file's size
//!  only for reading                 Cache
//!  several, some for writing        Sync     reads and writes at once
//!  another client truncates it      Nothing  for a moment
//!  below a quota of bytes           Bounded instead of Buffer, and Asks instead of Sync
//!
//!  too large a capability: FsCaps 6 ─▶ the client writes what it buffers ─▶ Comply 6
//!  a larger one is possible, and no other client has a conflicting one: granted, with an answer or with FsCaps
//!  another client looks at a file that one may be writing: FsCaps 7, the same capability ─▶ Comply 7 has the size
//! ```
//! Invariants: capabilities that were granted to two clients and not given back never conflict; a
//! grant comes after everything sent to the client before it; if all clients comply, each gets the
//! largest capability possible.

use crate::rooms::Rooms;
use nacre_types::{ClientId, Ino};
use nacre_wire::fs::Stamp;
use nacre_wire::msg::fs::{FsCap, FsCapNews, FsOpens};
use std::collections::{BTreeMap, BTreeSet};

/// An open file of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holding {
    reads: u32,
    writes: u32,
    /// Granted and not given back.
    cap: FsCap,
    /// The pending recall: the first number that requested it, and the capability to reduce to.
    /// Later numbers only ask for the file's size.
    asked: Option<(u64, FsCap)>,
    /// What it claimed to have when it greeted before answering that.
    claim: Option<FsCap>,
    /// The last number sent to it.
    last: u64,
    /// The last number it has answered.
    answered: u64,
    /// The size it has given the file, and when, without having written that.
    told: Option<(u64, Stamp)>,
}

impl Default for Holding {
    fn default() -> Self {
        Self {
            reads: 0,
            writes: 0,
            cap: FsCap::Nothing {},
            asked: None,
            claim: None,
            last: 0,
            answered: 0,
            told: None,
        }
    }
}

impl Holding {
    /// Its capability once it has answered; it may already have it.
    fn least(&self) -> FsCap {
        self.asked
            .map_or(self.cap, |(_, asked)| self.cap.min(asked))
    }
}

/// Whether two clients may have these capabilities at once.
fn go_together(one: FsCap, other: FsCap) -> bool {
    let (less, more) = (one.min(other), one.max(other));
    match more {
        FsCap::Nothing {} | FsCap::Asks {} | FsCap::Sync {} => true,
        FsCap::Cache {} => !less.is_shared(),
        FsCap::Bounded { .. } | FsCap::Buffer {} => less == FsCap::Nothing {},
    }
}

/// The number of a client's exclusion that lasts until the client ends it.
pub(crate) const ALONE: u64 = 0;

/// See the module head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caps {
    files: BTreeMap<Ino, BTreeMap<ClientId, Holding>>,
    clients: BTreeMap<ClientId, BTreeSet<Ino>>,
    /// Requests that exclude all other clients from a file, from one client at a time.
    stops: BTreeMap<Ino, (ClientId, BTreeSet<u64>)>,
    /// Files that are or may be below a quota of bytes, and how large clients may make them.
    bounded: BTreeSet<Ino>,
    rooms: Rooms,
    /// Clients that have not answered, with the number of files concerned.
    owing: BTreeMap<ClientId, usize>,
    /// The last number used; numbers are never reused.
    last: u64,
    /// Messages to send, in order.
    news: Vec<(ClientId, FsCapNews)>,
    /// Whether clients still have to report their grants: until then nothing is granted.
    paused: bool,
}

impl Caps {
    /// For a takeover: clients of the rank's last holder report their grants one after the other,
    /// and nothing is granted before [`Self::begin`].
    pub fn paused() -> Self {
        Self {
            paused: true,
            ..Self::default()
        }
    }
    /// Starts numbering after `number`, so that an answer to an earlier holder cannot match a
    /// number of this one.
    pub const fn number_from(&mut self, number: u64) {
        self.last = number;
    }
    /// All clients have reported what they have, or are gone.
    pub fn begin(&mut self) {
        if std::mem::take(&mut self.paused) {
            let all: Vec<Ino> = self.files.keys().copied().collect();
            all.into_iter().for_each(|ino| self.settle(ino));
        }
    }

    // ── what is known ───────────────────────────────────────────────────────────────────

    fn held(&self, client: ClientId, ino: Ino) -> Option<&Holding> {
        self.files.get(&ino)?.get(&client)
    }
    /// Whether any client has it open.
    pub fn is_open(&self, ino: Ino) -> bool {
        self.files.contains_key(&ino)
    }
    /// Number of files that a client has open, and how many of them for writing.
    pub fn count(&self, client: ClientId) -> (u32, u32) {
        let files = self.clients.get(&client).into_iter().flatten();
        files.fold((0, 0), |(open, writing), ino| {
            (open + 1, writing + u32::from(self.writes(client, *ino)))
        })
    }
    /// Whether a client may delay writes of a file, alone.
    pub fn buffers(&self, client: ClientId, ino: Ino) -> bool {
        self.held(client, ino)
            .is_some_and(|held| held.cap.buffers())
    }
    /// Whether no other client may be writing a file, so that data beyond its end is this client's.
    pub fn writes_alone(&self, ino: Ino, client: ClientId) -> bool {
        let all = self.files.get(&ino).into_iter().flatten();
        let others = all.filter(|(other, held)| **other != client && held.writes > 0);
        others
            .into_iter()
            .all(|(_, held)| held.cap == FsCap::Nothing {})
    }
    /// Whether a client has it open for writing.
    pub fn writes(&self, client: ClientId, ino: Ino) -> bool {
        self.held(client, ino).is_some_and(|held| held.writes > 0)
    }
    /// The client other than `but` that may be writing a file without telling the server.
    pub fn writer(&self, ino: Ino, but: ClientId) -> Option<ClientId> {
        let all = self.files.get(&ino)?;
        let writes = |(client, held): &(&ClientId, &Holding)| **client != but && held.cap.buffers();
        all.iter().find(writes).map(|(client, _)| *client)
    }
    /// What a client other than `but` reported about a file that it may be writing: size and time.
    pub fn told(&self, ino: Ino, but: ClientId) -> Option<(u64, Stamp)> {
        let writer = self.writer(ino, but)?;
        self.files[&ino][&writer].told
    }
    /// The file is truncated: earlier reports are void.
    pub fn forget_told(&mut self, ino: Ino) {
        self.files
            .get_mut(&ino)
            .into_iter()
            .flatten()
            .for_each(|(_, held)| held.told = None);
    }
    /// The capability of a client for a file, as it may be reported to the client.
    pub fn given(&self, client: ClientId, ino: Ino) -> FsCap {
        self.held(client, ino)
            .map_or(FsCap::Nothing {}, Holding::least)
    }
    /// The capability to report as granted. A client with direct I/O is told of a grant even if it
    /// must already give it back, because requests waiting for it start first.
    pub fn granted(&self, client: ClientId, ino: Ino) -> FsCap {
        let told = |held: &Holding| {
            if held.cap.is_shared() {
                held.cap
            } else {
                held.least()
            }
        };
        self.held(client, ino).map_or(FsCap::Nothing {}, told)
    }
    /// Clients that have not answered.
    pub fn owing(&self) -> impl Iterator<Item = ClientId> {
        self.owing.keys().copied()
    }
    /// Clients that exclude others from a file until they end it.
    pub fn stopping(&self) -> impl Iterator<Item = ClientId> {
        let others = |ino| self.files.get(ino).map_or(0, BTreeMap::len) > 1;
        let lasting = self
            .stops
            .iter()
            .filter(move |(ino, (_, numbers))| numbers.contains(&ALONE) && others(ino));
        lasting.map(|(_, (client, _))| *client)
    }
    /// Takes the messages to send, in order.
    pub fn take(&mut self, into: &mut Vec<(ClientId, FsCapNews)>) {
        into.append(&mut self.news);
    }

    // ── who has what open ───────────────────────────────────────────────────────────────

    /// A client has opened a file: the answer reports its [capability](Self::given).
    pub fn open(&mut self, client: ClientId, ino: Ino, write: bool) {
        // Messages from when it had the file open before were answered by the close.
        let new = Holding {
            answered: self.last,
            ..Holding::default()
        };
        let held = self
            .files
            .entry(ino)
            .or_default()
            .entry(client)
            .or_insert(new);
        *(if write {
            &mut held.writes
        } else {
            &mut held.reads
        }) += 1;
        self.clients.entry(client).or_default().insert(ino);
        let before = self.news.len();
        self.settle(ino);
        let mut at = 0;
        self.news.retain(|(who, news)| {
            at += 1;
            at <= before || *who != client || news.number > 0
        });
    }
    /// A client has closed the file. What it buffered is written.
    pub fn close(&mut self, client: ClientId, ino: Ino, write: bool) {
        let Some(held) = self
            .files
            .get_mut(&ino)
            .and_then(|all| all.get_mut(&client))
        else {
            return;
        };
        let times = if write {
            &mut held.writes
        } else {
            &mut held.reads
        };
        *times = times.saturating_sub(1);
        if held.reads == 0 && held.writes == 0 {
            self.drop_holding(client, ino);
        } else if held.writes == 0 {
            held.cap = held.cap.min(FsCap::Cache {});
        }
        self.note_room(ino);
        self.settle(ino);
    }
    /// A client reports what it has open; returns whether for the first time to this holder of the
    /// rank. If not, grants that it does not know of are void, and messages are sent again.
    pub fn greet(&mut self, client: ClientId, opens: &[FsOpens], is_first: bool) {
        if is_first {
            self.end(client);
            for open in opens
                .iter()
                .filter(|open| open.reads > 0 || open.writes > 0)
            {
                let &FsOpens {
                    reads, writes, cap, ..
                } = open;
                let held = Holding {
                    reads,
                    writes,
                    cap,
                    answered: self.last,
                    ..Holding::default()
                };
                self.files.entry(open.ino).or_default().insert(client, held);
                if open.alone {
                    self.stops
                        .entry(open.ino)
                        .or_insert_with(|| (client, BTreeSet::from([ALONE])));
                }
                self.clients.entry(client).or_default().insert(open.ino);
            }
        }
        let claims: BTreeMap<Ino, FsCap> = opens.iter().map(|open| (open.ino, open.cap)).collect();
        for ino in self.clients.get(&client).cloned().unwrap_or_default() {
            let held = self
                .files
                .get_mut(&ino)
                .and_then(|all| all.get_mut(&client))
                .expect("both say that it is open");
            let claim = claims.get(&ino).copied().unwrap_or(FsCap::Nothing {});
            let asked = held.asked.map(|(_, cap)| (held.last, cap));
            if asked.is_some() {
                // It may have given it back: its report about the file, sent with that, is still in
                // flight.
                held.claim = Some(held.claim.map_or(claim, |before| before.min(claim)));
            } else {
                held.cap = held.cap.min(claim);
            }
            self.note_room(ino);
            if let Some((number, cap)) = asked {
                self.news.push((client, FsCapNews { ino, cap, number }));
            }
            self.settle(ino);
        }
    }
    /// A client is gone and can do nothing any more.
    pub fn end(&mut self, client: ClientId) {
        self.news.retain(|(who, _)| *who != client);
        for ino in self.clients.get(&client).cloned().unwrap_or_default() {
            self.drop_holding(client, ino);
            self.settle(ino);
        }
        let stopped: Vec<Ino> = self
            .stops
            .iter()
            .filter(|(_, (by, _))| *by == client)
            .map(|(ino, _)| *ino)
            .collect();
        for ino in stopped {
            self.stops.remove(&ino);
            self.settle(ino);
        }
    }
    fn drop_holding(&mut self, client: ClientId, ino: Ino) {
        let Some(all) = self.files.get_mut(&ino) else {
            return;
        };
        let held = all.remove(&client);
        if all.is_empty() {
            self.files.remove(&ino);
            self.bounded.remove(&ino);
        }
        self.note_room(ino);
        if held.is_some_and(|held| held.asked.is_some()) {
            self.pay(client);
        }
        if let Some(of_client) = self.clients.get_mut(&client) {
            of_client.remove(&ino);
            if of_client.is_empty() {
                self.clients.remove(&client);
            }
        }
    }
    /// A client owes one answer less.
    fn pay(&mut self, client: ClientId) {
        if let Some(owed) = self.owing.get_mut(&client) {
            *owed -= 1;
            if *owed == 0 {
                self.owing.remove(&client);
            }
        }
    }

    // ── below quotas ────────────────────────────────────────────────────────────────────

    /// Files that a client has open for writing.
    pub fn written(&self) -> impl Iterator<Item = Ino> {
        self.files
            .iter()
            .filter(|(_, all)| all.values().any(|held| held.writes > 0))
            .map(|(ino, _)| *ino)
    }
    /// Those that are or may be below a quota.
    pub const fn bounded(&self) -> &BTreeSet<Ino> {
        &self.bounded
    }
    /// Records whether a file is below a quota.
    pub fn bound(&mut self, ino: Ino, is_bounded: bool) {
        let changed = if is_bounded {
            self.bounded.insert(ino)
        } else {
            self.bounded.remove(&ino)
        };
        if changed {
            self.settle(ino);
        }
    }
    /// Whether a client may make a file larger without any limit.
    pub fn is_boundless(&self, ino: Ino) -> bool {
        let mut all = self.files.get(&ino).into_iter().flatten();
        all.any(|(_, held)| {
            held.writes > 0 && matches!(held.cap, FsCap::Sync {} | FsCap::Buffer {})
        })
    }
    /// How large clients may make files.
    pub const fn rooms(&self) -> &Rooms {
        &self.rooms
    }
    /// How large this client may make a file, and how large it may already have made it, if it
    /// reports that.
    pub fn room(&self, client: ClientId, ino: Ino) -> (u64, u64) {
        match self.held(client, ino).map(|held| held.cap) {
            Some(FsCap::Bounded { room }) => (room, room),
            Some(FsCap::Asks {}) => (0, 0),
            _ => (0, u64::MAX),
        }
    }
    /// Allows a client to make a file this large. A client with a pending recall is given nothing.
    pub fn give_room(&mut self, client: ClientId, ino: Ino, room: u64) {
        let Some(held) = self
            .files
            .get_mut(&ino)
            .and_then(|all| all.get_mut(&client))
        else {
            return;
        };
        if held.asked.is_none()
            && let FsCap::Bounded { room: has } = &mut held.cap
        {
            *has = room.max(*has);
            self.note_room(ino);
        }
    }
    /// Recalls the unused space of a file; returns whether the answer is pending.
    pub fn take_back_room(&mut self, ino: Ino) -> bool {
        let all = self.files.get(&ino).into_iter().flatten();
        let mut rooms =
            all.filter(|(_, held)| matches!(held.cap, FsCap::Bounded { room } if room > 0));
        let Some((client, held)) = rooms.next().map(|(client, held)| (*client, *held)) else {
            return false;
        };
        if held.asked.is_none() {
            self.tell(client, ino, FsCap::Bounded { room: 0 });
        }
        true
    }
    fn note_room(&mut self, ino: Ino) {
        let room = |held: &Holding| {
            if let FsCap::Bounded { room } = held.cap {
                Some(room)
            } else {
                None
            }
        };
        let room = self
            .files
            .get(&ino)
            .and_then(|all| all.values().filter_map(room).max());
        self.rooms.set(ino, room.filter(|room| *room > 0));
    }

    // ── what is told and answered ───────────────────────────────────────────────────────

    /// A client has complied with this number and all earlier ones. `told`: the size it has given
    /// the file, and when, if that is not written yet.
    pub fn comply(&mut self, client: ClientId, ino: Ino, number: u64, told: Option<(u64, Stamp)>) {
        let Some(held) = self
            .files
            .get_mut(&ino)
            .and_then(|all| all.get_mut(&client))
        else {
            return;
        };
        held.told = told;
        held.answered = held.answered.max(number);
        if let Some((_, cap)) = held.asked.take_if(|(first, _)| *first <= number) {
            held.cap = held.cap.min(cap).min(held.claim.take().unwrap_or(cap));
            if number < held.last {
                held.asked = Some((held.last, held.cap));
            } else {
                self.pay(client);
            }
        }
        self.note_room(ino);
        self.settle(ino);
    }
    /// Asks the client that may be writing a file for its size, on behalf of another client;
    /// returns the client and the number of the question.
    pub fn ask(&mut self, ino: Ino, looker: ClientId) -> Option<(ClientId, u64)> {
        let writer = self.writer(ino, looker)?;
        let held = self.files[&ino][&writer];
        let cap = held.asked.map_or(held.cap, |(_, cap)| cap);
        // An unsent message will be answered after now.
        let waits = self
            .news
            .iter()
            .find(|(who, news)| *who == writer && news.ino == ino && news.number > 0);
        let number = waits.map(|(_, news)| news.number);
        Some((
            writer,
            number.unwrap_or_else(|| self.tell(writer, ino, cap)),
        ))
    }
    /// Whether the question was answered, or is void.
    pub fn is_answered(&self, ino: Ino, writer: ClientId, number: u64) -> bool {
        self.held(writer, ino)
            .is_none_or(|held| held.answered >= number)
    }
    /// Whether another client may delay writes of it, and answer attribute changes itself.
    pub fn has_another_alone(&self, ino: Ino, than: ClientId) -> bool {
        let mut all = self.files.get(&ino).into_iter().flatten();
        all.any(|(client, held)| *client != than && held.cap.buffers())
    }
    /// A request excludes all other clients from a file until [`Self::go_on`]; returns whether they
    /// are excluded now.
    pub fn stop(&mut self, ino: Ino, by: ClientId, number: u64) -> bool {
        let (client, numbers) = self
            .stops
            .entry(ino)
            .or_insert_with(|| (by, BTreeSet::new()));
        if *client != by {
            return false;
        }
        numbers.insert(number);
        self.settle(ino);
        let others = self
            .files
            .get(&ino)
            .into_iter()
            .flatten()
            .filter(|(client, _)| **client != by);
        let mut others = others.map(|(_, held)| held.cap);
        others.all(|cap| cap == FsCap::Nothing {})
    }
    /// Ends this request's exclusion.
    pub fn go_on(&mut self, ino: Ino, by: ClientId, number: u64) {
        let Some((_, numbers)) = self.stops.get_mut(&ino).filter(|(client, _)| *client == by)
        else {
            return;
        };
        numbers.remove(&number);
        if numbers.is_empty() {
            self.stops.remove(&ino);
            self.settle(ino);
        }
    }

    fn tell(&mut self, client: ClientId, ino: Ino, cap: FsCap) -> u64 {
        self.last += 1;
        let number = self.last;
        let held = self
            .files
            .get_mut(&ino)
            .and_then(|all| all.get_mut(&client))
            .expect("it is open there");
        held.last = number;
        match &mut held.asked {
            None => {
                held.asked = Some((number, cap));
                *self.owing.entry(client).or_default() += 1;
            }
            Some(asked) if asked.1 != cap => *asked = (number, cap),
            Some(_) => {}
        }
        self.news.push((client, FsCapNews { ino, cap, number }));
        number
    }

    /// The capability of each client if none is excluded.
    fn target(all: &BTreeMap<ClientId, Holding>, is_bounded: bool) -> FsCap {
        if all.values().all(|held| held.writes == 0) {
            return FsCap::Cache {};
        }
        match (all.len(), is_bounded) {
            (1, false) => FsCap::Buffer {},
            (1, true) => FsCap::Bounded { room: 0 },
            (_, false) => FsCap::Sync {},
            (_, true) => FsCap::Asks {},
        }
    }
    /// Recalls what conflicts, and grants what is possible.
    fn settle(&mut self, ino: Ino) {
        let Some(all) = self.files.get(&ino).filter(|_| !self.paused) else {
            return;
        };
        let is_bounded = self.bounded.contains(&ino);
        let target = Self::target(all, is_bounded);
        let stop = self.stops.get(&ino).map(|(by, _)| *by);
        let may = |client| {
            if stop.is_none_or(|by| by == client) {
                target
            } else {
                FsCap::Nothing {}
            }
        };
        // Space that a client was given is recalled only when others need it (`take_back_room`).
        let with_room = |held: &Holding, cap| match (held.least(), cap) {
            (least @ FsCap::Bounded { .. }, FsCap::Bounded { .. }) => least,
            _ => cap,
        };
        let each = all
            .iter()
            .map(|(client, held)| (*client, with_room(held, may(*client))));
        let clients: Vec<(ClientId, FsCap)> = each.collect();
        // A grant to one client may allow a larger one for another.
        while clients.iter().fold(false, |changed, (client, target)| {
            self.settle_one(*client, ino, *target) | changed
        }) {}
    }
    /// The same for one client; returns whether it got a grant.
    fn settle_one(&mut self, client: ClientId, ino: Ino, target: FsCap) -> bool {
        let held = self.files[&ino][&client];
        let others = self.files[&ino]
            .iter()
            .filter(|(other, _)| **other != client);
        let fits = others
            .into_iter()
            .all(|(_, other)| go_together(other.cap, target) && go_together(other.least(), target));
        if held.least() > target {
            // If one client writes before another has dropped what it read, the other would not see
            // the write.
            self.tell(client, ino, if fits { target } else { FsCap::Nothing {} });
        } else if held.asked.is_none() && held.cap < target && fits {
            let all = self.files.get_mut(&ino).expect("just seen");
            all.get_mut(&client).expect("just seen").cap = target;
            self.news.push((
                client,
                FsCapNews {
                    ino,
                    cap: target,
                    number: 0,
                },
            ));
            return true;
        } else if held.asked.is_none() && held.cap < target && !go_together(held.cap, target) {
            // All have direct I/O, and none may begin to cache before all have stopped writing.
            self.tell(client, ino, FsCap::Nothing {});
        }
        false
    }
}

#[cfg(test)]
#[path = "caps_test.rs"]
mod tests;
