//! Which clients have a file open, and what each may do with its data (CEPH-03, -08, -15).
//!
//! ```text
//!  who has it open                  each may
//!  one client, also for writing     Buffer   it writes later, and knows how large the file is
//!  only for reading                 Cache
//!  several, some for writing        Sync     reads and writes at once
//!  another client cuts it off       Nothing  for a moment
//!  below a quota of bytes           Bounded in place of Buffer, and Asks in place of Sync
//!
//!  more than it may: FsCaps 6 ─▶ the client writes what it buffers ─▶ Comply 6
//!  less than it may, and no other client has more than goes with that: granted, with an answer or with FsCaps
//!  another client looks at a file that one may be writing: FsCaps 7, the same capability ─▶ Comply 7 says how large it is
//! ```
//! Invariants: what two clients were granted, and have not given back, goes together; what a client
//! is granted comes after what it was told before; if all comply, each is granted what it may.

use crate::rooms::Rooms;
use nacre_types::{ClientId, Ino};
use nacre_wire::fs::Stamp;
use nacre_wire::msg::fs::{FsCap, FsCapNews, FsOpens};
use std::collections::{BTreeMap, BTreeSet};

/// A file that a client has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holding {
    reads: u32,
    writes: u32,
    /// What it was granted and has not given back.
    cap: FsCap,
    /// What it is to have no more than, and the first number that said so, if that is not
    /// answered. Later ones ask how large the file is only.
    asked: Option<(u64, FsCap)>,
    /// What it said to have left when it greeted without having answered that.
    claim: Option<FsCap>,
    /// The last number that it was told.
    last: u64,
    /// The last number that it has answered.
    answered: u64,
    /// How large it has made the file, and when, without having written that.
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
    /// What it has when it has answered; it may have by now.
    fn least(&self) -> FsCap {
        self.asked
            .map_or(self.cap, |(_, asked)| self.cap.min(asked))
    }
}

/// Whether two clients may have these at a time.
fn go_together(one: FsCap, other: FsCap) -> bool {
    let (less, more) = (one.min(other), one.max(other));
    match more {
        FsCap::Nothing {} | FsCap::Asks {} | FsCap::Sync {} => true,
        FsCap::Cache {} => !less.is_shared(),
        FsCap::Bounded { .. } | FsCap::Buffer {} => less == FsCap::Nothing {},
    }
}

/// Of a client's stops, the one that lasts until its end is said.
pub(crate) const ALONE: u64 = 0;

/// See the module head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caps {
    files: BTreeMap<Ino, BTreeMap<ClientId, Holding>>,
    clients: BTreeMap<ClientId, BTreeSet<Ino>>,
    /// Requests that want all but their own client to do nothing with a file: of one client at a
    /// time.
    stops: BTreeMap<Ino, (ClientId, BTreeSet<u64>)>,
    /// Files that are below a quota of bytes, or may be, and how large clients may make them.
    bounded: BTreeSet<Ino>,
    rooms: Rooms,
    /// Those who have been told something and have not answered, and of how many files.
    owing: BTreeMap<ClientId, usize>,
    /// The last number that was given: never one twice.
    last: u64,
    /// To be told, in order.
    news: Vec<(ClientId, FsCapNews)>,
    /// Not all have said what they have been granted: nothing is granted.
    paused: bool,
}

impl Caps {
    /// What clients of the rank's last holder have been granted they say one after the other:
    /// nothing is granted before [`Self::begin`].
    pub fn paused() -> Self {
        Self {
            paused: true,
            ..Self::default()
        }
    }
    /// Numbers begin behind this: what was asked by an earlier holder is answered by no number of
    /// this one.
    pub const fn number_from(&mut self, number: u64) {
        self.last = number;
    }
    /// All have said what they have, or are clients no more.
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
    /// Whether a client has it open.
    pub fn is_open(&self, ino: Ino) -> bool {
        self.files.contains_key(&ino)
    }
    /// How many files a client has open, and how many of them for writing.
    pub fn count(&self, client: ClientId) -> (u32, u32) {
        let files = self.clients.get(&client).into_iter().flatten();
        files.fold((0, 0), |(open, writing), ino| {
            (open + 1, writing + u32::from(self.writes(client, *ino)))
        })
    }
    /// Whether a client writes a file later, alone.
    pub fn buffers(&self, client: ClientId, ino: Ino) -> bool {
        self.held(client, ino)
            .is_some_and(|held| held.cap.buffers())
    }
    /// Whether no other client may be writing a file: what lies beyond its end is this client's.
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
    /// The client that may be writing a file unseen, if it is not this one.
    pub fn writer(&self, ino: Ino, but: ClientId) -> Option<ClientId> {
        let all = self.files.get(&ino)?;
        let writes = |(client, held): &(&ClientId, &Holding)| **client != but && held.cap.buffers();
        all.iter().find(writes).map(|(client, _)| *client)
    }
    /// What another client has said of a file that it may be writing: size and time.
    pub fn told(&self, ino: Ino, but: ClientId) -> Option<(u64, Stamp)> {
        let writer = self.writer(ino, but)?;
        self.files[&ino][&writer].told
    }
    /// The file is cut off: what was said before counts no more.
    pub fn forget_told(&mut self, ino: Ino) {
        self.files
            .get_mut(&ino)
            .into_iter()
            .flatten()
            .for_each(|(_, held)| held.told = None);
    }
    /// What a client may do with a file, and may be told so.
    pub fn given(&self, client: ClientId, ino: Ino) -> FsCap {
        self.held(client, ino)
            .map_or(FsCap::Nothing {}, Holding::least)
    }
    /// What a client is told that it was granted. One that reads and writes at once hears of that
    /// also if it is to give it back already: what waited there begins first.
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
    /// Clients for which others do nothing with a file until they say that they are done with it.
    pub fn stopping(&self) -> impl Iterator<Item = ClientId> {
        let others = |ino| self.files.get(ino).map_or(0, BTreeMap::len) > 1;
        let lasting = self
            .stops
            .iter()
            .filter(move |(ino, (_, numbers))| numbers.contains(&ALONE) && others(ino));
        lasting.map(|(_, (client, _))| *client)
    }
    /// Takes what is to be told, in order.
    pub fn take(&mut self, into: &mut Vec<(ClientId, FsCapNews)>) {
        into.append(&mut self.news);
    }

    // ── who has what open ───────────────────────────────────────────────────────────────

    /// A client has opened a file: what it [may do](Self::given) it is told with the answer.
    pub fn open(&mut self, client: ClientId, ino: Ino, write: bool) {
        // What was asked when it had it open before has been answered with the close.
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
    /// It has closed it. What it buffered is written.
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
    /// A client says what it has open; whether that is the first time to this holder of the rank.
    /// If it is not, what it has been granted and does not know of is lost, and what it was told is
    /// told again.
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
                // It may have given it back: what it says of the file with that is still on its
                // way.
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
    /// A client is gone, and can do nothing any more.
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
    /// Those that are below a quota, or may be.
    pub const fn bounded(&self) -> &BTreeSet<Ino> {
        &self.bounded
    }
    /// A file is below a quota, or not any more.
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
    /// Whether a client may make a file larger than any quota.
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
    /// How large this client may make a file, and how large it may have made it by now, if it tells
    /// that.
    pub fn room(&self, client: ClientId, ino: Ino) -> (u64, u64) {
        match self.held(client, ino).map(|held| held.cap) {
            Some(FsCap::Bounded { room }) => (room, room),
            Some(FsCap::Asks {}) => (0, 0),
            _ => (0, u64::MAX),
        }
    }
    /// A client may make a file so large. Who is to give something back is given nothing.
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
    /// What a client may still make of a file is wanted back; whether it has not answered.
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

    /// A client has done what it was told with this number, and with those before it.
    /// `told`: how large it has made the file, and when, if that is not written.
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
    /// Asks the client that may be writing a file how large it is, for another one: whom, and the
    /// number that it answers.
    pub fn ask(&mut self, ino: Ino, looker: ClientId) -> Option<(ClientId, u64)> {
        let writer = self.writer(ino, looker)?;
        let held = self.files[&ino][&writer];
        let cap = held.asked.map_or(held.cap, |(_, cap)| cap);
        // What is to be told yet is answered later than now.
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
    /// Whether it has been answered, or need not be any more.
    pub fn is_answered(&self, ino: Ino, writer: ClientId, number: u64) -> bool {
        self.held(writer, ino)
            .is_none_or(|held| held.answered >= number)
    }
    /// Whether another client may write it later, and answer changes of its attributes itself.
    pub fn has_another_alone(&self, ino: Ino, than: ClientId) -> bool {
        let mut all = self.files.get(&ino).into_iter().flatten();
        all.any(|(client, held)| *client != than && held.cap.buffers())
    }
    /// A request wants all others to do nothing with a file, until [`Self::go_on`]; whether that is
    /// so.
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
    /// What the client wanted others to wait for is done, as far as it is this request.
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

    /// What each client may do if none is stopped, all being as it is.
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
    /// Takes back what is too much, and grants what is possible.
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
        // What one was given is taken back only when others want it (`take_back_room`).
        let with_room = |held: &Holding, cap| match (held.least(), cap) {
            (least @ FsCap::Bounded { .. }, FsCap::Bounded { .. }) => least,
            _ => cap,
        };
        let each = all
            .iter()
            .map(|(client, held)| (*client, with_room(held, may(*client))));
        let clients: Vec<(ClientId, FsCap)> = each.collect();
        // What one is granted may let another one have more.
        while clients.iter().fold(false, |changed, (client, target)| {
            self.settle_one(*client, ino, *target) | changed
        }) {}
    }
    /// The same for one client; whether it was granted something.
    fn settle_one(&mut self, client: ClientId, ino: Ino, target: FsCap) -> bool {
        let held = self.files[&ino][&client];
        let others = self.files[&ino]
            .iter()
            .filter(|(other, _)| **other != client);
        let fits = others
            .into_iter()
            .all(|(_, other)| go_together(other.cap, target) && go_together(other.least(), target));
        if held.least() > target {
            // One that writes before another one has forgotten what it read would not be seen by
            // that.
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
            // All read and write at once, and none may begin to keep what it reads before none
            // writes.
            self.tell(client, ino, FsCap::Nothing {});
        }
        false
    }
}

#[cfg(test)]
#[path = "caps_test.rs"]
mod tests;
