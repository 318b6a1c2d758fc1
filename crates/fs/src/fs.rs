//! The client as a service of the cluster: callers' calls become requests to the ranks' servers and
//! operations on objects.
//!
//! ```text
//!  begin ─▶ queue ─▶ Names ──────────────────▶ Session ─▶ answered: ended
//!                ├─▶ Read  ─▶ cached? ─▶ objects ───────▶ all read: ended
//!                ├─▶ Write ─▶ cached, or objects ─▶ larger? Wrote ─▶ Session ─▶ ended
//!                └─▶ Sync  ─▶ unwritten data ─▶ unreported changes ─▶ Session ─▶ all safe: ended
//! ```
//! Each rank has its queue and its session ([`crate::sessions`]). Cached names and attributes are
//! answered without a request ([`crate::names`]); capabilities determine which data may be cached.
//!
//! * `data`: reads and writes; `flushing`: delayed writes; `capabilities`: what the server grants
//!   and recalls;
//! * `growing`: files below quotas; `fullness`: the cluster's free space;
//! * `zeroing`: zeroing ranges, and extending files without data; `holes`: finding data and holes;
//! * `lazy`: files that several clients write with lazy I/O;
//! * `copying`: copying ranges between files;
//! * `exclusive`: writes of shared files that exclude other clients; `locking`: advisory locks;
//! * `foretelling`: attribute changes that are answered here; `delegated`: names created and
//!   removed here;
//! * `lending`: attributes that the kernel caches;
//! * `looking_ahead`: names that will be looked up next;
//! * `leaving`: its end;
//! * `across`: calls that more than one rank has to answer.
//!
//! Invariants: every call ends once; a rank without a server delays only the calls to itself.

mod across;
mod at_once;
mod capabilities;
mod copying;
mod data;
mod delegated;
mod evicted;
mod exclusive;
mod flushing;
mod foretelling;
mod fullness;
mod growing;
mod holes;
mod lazy;
mod leaving;
mod lending;
mod locking;
mod looking_ahead;
#[cfg(test)]
mod ranks_test;
#[cfg(test)]
mod stat_lite_test;
#[cfg(test)]
pub(crate) mod testing;
mod zeroing;

use self::across::{Led, Parts};
use self::copying::{Copies, CopyingObjects};
use self::data::{Fetch, Reader};
use self::delegated::Delegated;
use self::flushing::{Flush, Syncing, Unsafe};
use self::foretelling::Unsent;
use self::holes::Seeking;
use self::leaving::Leaving;
use self::locking::{LockPurpose, Locking};
use self::zeroing::Zeroing;
use crate::ahead::LookAhead;
use crate::ask::{Ask, CallId, Given, Outcome};
use crate::cache::Cache;
use crate::file::{File, Foretold, Tells};
use crate::lent::Lent;
use crate::losses::Losses;
use crate::names::Names;
use crate::pieces::{Gathering, Piece};
use crate::places::Places;
use crate::queue::Queue;
use crate::routes::{FIRST, rank_of, rank_of_call};
use crate::seek::Seek;
use crate::session::{Answered, Asked, Holds};
use crate::sessions::Sessions;
use bytes::Bytes;
use nacre_client::{Completion, Done, Failure, Metadata, ObjectCluster, OpId, Operation, Service};
use nacre_role::{Input, Output};
use nacre_types::{Entity, Ino, Instance, Name, ObjectId, Rank, Time};
use nacre_wire::Message;
use nacre_wire::fs::{Layout, Stamp, data_name};
use nacre_wire::msg::client::{OpFailure, SubOp};
use nacre_wire::msg::fs::{FS_LARGER_ONLY, FsAgain, FsAnswer, FsCall, FsCap, FsNode, FsStale};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

#[cfg(feature = "mutants")]
#[path = "mutants/fs.rs"]
mod planted;

/// Linux' numbers for POSIX errors.
pub(crate) mod errno {
    pub const EIO: u16 = 5;
    pub const EBADF: u16 = 9;
    pub const EACCES: u16 = 13;
    pub const ENODEV: u16 = 19;
    pub const EINVAL: u16 = 22;
    pub const ENOENT: u16 = 2;
    pub const ESTALE: u16 = 116;
    pub const EFBIG: u16 = 27;
    pub const ENOSPC: u16 = 28;
    pub const EDQUOT: u16 = 122;
}
use errno::*;

/// How long after losing a server the registry is read again.
const SEEK_AGAIN: Duration = Duration::from_millis(100);

/// A call whose caller has already been answered.
const ANSWERED: CallId = CallId(0);

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct FsConfig {
    /// The file system.
    pub file_system: Name,
    /// Human-readable description of this client: its place and purpose.
    pub about: Name,
    /// The instance of the client that it begins as; the same as its object client's.
    pub instance: Instance,
    /// The wall clock at [`Time::ZERO`], in milliseconds since 1970.
    pub unix_ms_at_zero: u64,
    /// Most cached names and attributes: some 400 bytes each. 0: none.
    pub names_max: usize,
    /// Parameters of listing directories ahead.
    pub ahead: LookAhead,
    /// Most cached data of open files in bytes. 0: none.
    pub data_max: usize,
    /// Most unwritten data in bytes: beyond that, writing calls wait.
    pub dirty_max: usize,
    /// Writes of more bytes than this, to several objects of a file that others also have open, are
    /// answered before they are written.
    pub early_above: usize,
}

/// The state of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The monitors have not answered.
    Unknown,
    /// There is no such file system.
    Missing,
    /// Its first rank has no server, or none that answers.
    NoServer,
    /// It has a session with that server.
    Connected,
}

/// The purpose of a request.
enum Purpose {
    /// A caller's request.
    Call(CallId),
    /// A caller's request that opens something.
    Opened(CallId),
    /// One of several requests of a caller: its index.
    Part(CallId, usize),
    /// A caller's request that closes a file; whether for writing.
    Closed(CallId, Ino, bool),
    /// A caller's request that changes a file's size.
    Resized(CallId, Ino),
    /// A caller's request that extends a file.
    Extended(CallId, Ino),
    /// Data was written: reports the file's size.
    Written(CallId, Ino),
    /// Data is to be written there: first the file must have that size, without stale data in the
    /// way.
    Grown(CallId, Ino, u64, Bytes),
    /// A request about locks.
    Lock(LockPurpose),
    /// A caller reads or writes: asks for the file's size. The number identifies the client's grant
    /// when it asked.
    Sized(CallId, Ask, u64),
    /// A caller writes: asks whether the file may become this large.
    Room(CallId, Ask),
    /// A caller copies: the file gets the size after the copy.
    CopyGrown(CallId),
    /// Exclusive access for writing.
    Alone(Ino),
    /// The future size of a file whose data is to be written.
    Growing(Ino),
    /// A file's size and time of writing that nothing waits for.
    Told(Ino),
    /// The same with a waiting caller: the range whose cached data is dropped then.
    Propagated(CallId, Ino, Option<Range<u64>>),
    /// The same for other clients that look.
    Said,
    /// Listing ahead: names of this directory.
    Ahead(Ino),
    /// An attribute change whose caller was already answered: the file and the change's number.
    Foretold(Ino, u64),
    /// A name that was created or removed here: the directory and the created file.
    Here { dir: Ino, made: Option<Ino> },
    /// Inode numbers of this rank.
    Numbers(Rank),
}

/// The purpose of an operation on an object.
#[derive(Clone, Copy, Debug)]
enum For {
    /// A call, and the index of the piece; for a call that seeks, the object's number.
    Call(CallId, usize),
    /// Data written from the cache.
    Flush(u64),
    /// Data read into the cache, and the index of the piece.
    Fetch(u64, usize),
}

/// A call whose data is being transferred.
enum Transfer {
    Read {
        ino: Ino,
        data: Gathering,
        /// Other clients may not write before it has ended.
        spans: bool,
    },
    Write {
        ino: Ino,
        end: u64,
        left: usize,
        failed: Option<u16>,
    },
    Zero(Zeroing),
    Copy(CopyingObjects),
    Seek(Seeking),
}

/// See the module head.
pub struct Fs {
    config: FsConfig,
    now: Time,
    seek: Seek,
    sessions: Sessions,
    next_call: u64,
    /// Calls that have not begun.
    queue: Queue,
    /// Those of them that have just got their file's size.
    sized: BTreeSet<CallId>,
    /// Closes that were answered but have not begun.
    closes: Vec<(Ino, bool)>,
    /// Changes that were answered here and not sent, and when to send them.
    foretold: Vec<Unsent>,
    send_at: Time,
    delegated: Delegated,
    purposes: BTreeMap<u64, Purpose>,
    /// Requests that follow a reference to another rank.
    led: BTreeMap<u64, Led>,
    /// Calls that wait for several answers.
    parts: BTreeMap<CallId, Parts>,
    files: BTreeMap<Ino, File>,
    places: Places,
    names: Names,
    lent: Lent,
    /// Confirmations for servers, to be sent when nothing of them is owed any more.
    forgets: Vec<(Rank, u64)>,
    /// Calls of others than the cache above.
    beside: BTreeSet<CallId>,
    locking: Locking,
    transfers: BTreeMap<CallId, Transfer>,
    copies: Copies,
    cache: Cache,
    fetches: BTreeMap<u64, Fetch>,
    readers: BTreeMap<CallId, Reader>,
    flushes: BTreeMap<u64, Flush>,
    /// The last number assigned.
    last_number: u64,
    /// When dirty data is written.
    flush_at: Time,
    /// Files that are closed once their dirty data is written, and when that begins.
    closed: BTreeSet<Ino>,
    closed_at: Time,
    /// Writes that wait until there is less dirty data.
    throttled: VecDeque<(CallId, Ask)>,
    /// Operations to submit, and those in flight.
    operations: VecDeque<(Operation, For)>,
    under_way: BTreeMap<OpId, For>,
    syncing: Vec<Syncing>,
    /// Calls that end when requests are safe.
    syncs: Vec<Unsafe>,
    /// Requests that were answered and are not safe: the file, and what they report about it.
    tells: BTreeMap<u64, (Ino, Tells)>,
    ended: Vec<(CallId, Outcome)>,
    losses: Losses,
    evictions: u64,
    fencing: evicted::Fencing,
    fullness: fullness::Fullness,
    leaving: Leaving,
}

impl Fs {
    /// A client that has not looked for its server yet.
    #[must_use]
    pub fn new(config: FsConfig) -> Self {
        let (names_max, data_max) = (config.names_max, config.data_max);
        Self {
            now: Time::ZERO,
            seek: Seek::new(config.file_system.clone()),
            sessions: Sessions::new(config.file_system.clone(), config.instance),
            config,
            next_call: 1,
            queue: Queue::default(),
            sized: BTreeSet::new(),
            closes: Vec::new(),
            foretold: Vec::new(),
            send_at: Time::MAX,
            delegated: Delegated::default(),
            purposes: BTreeMap::new(),
            led: BTreeMap::new(),
            parts: BTreeMap::new(),
            files: BTreeMap::new(),
            places: Places::default(),
            names: Names::new(names_max),
            lent: Lent::default(),
            forgets: Vec::new(),
            beside: BTreeSet::new(),
            locking: Locking::default(),
            transfers: BTreeMap::new(),
            copies: Copies::default(),
            cache: Cache::new(data_max),
            fetches: BTreeMap::new(),
            readers: BTreeMap::new(),
            flushes: BTreeMap::new(),
            last_number: 0,
            flush_at: Time::MAX,
            closed: BTreeSet::new(),
            closed_at: Time::MAX,
            throttled: VecDeque::new(),
            operations: VecDeque::new(),
            under_way: BTreeMap::new(),
            syncing: Vec::new(),
            syncs: Vec::new(),
            tells: BTreeMap::new(),
            ended: Vec::new(),
            losses: Losses::default(),
            evictions: 0,
            fencing: evicted::Fencing::default(),
            fullness: fullness::Fullness::default(),
            leaving: Leaving::No,
        }
    }

    /// Begins a call: it continues with the next turn.
    pub fn begin(&mut self, ask: Ask) -> CallId {
        let call = CallId(self.next_call);
        self.next_call += 1;
        match ask {
            Ask::CancelLock { wait } if self.cancel_queued(wait) => self.end(call, Ok(Given::Done)),
            ask => self.queue.push_back(self.rank_of_ask(&ask), call, ask),
        }
        call
    }
    /// The rank that handles a call.
    fn rank_of_ask(&self, ask: &Ask) -> Rank {
        let of_wait = || match ask {
            Ask::CancelLock { wait } => self.lock_of(*wait).map(|(_, ino)| rank_of(ino)),
            _ => None,
        };
        ask.rank().or_else(of_wait).unwrap_or(FIRST)
    }
    /// Puts a begun call back to the front of the queue.
    fn put_back(&mut self, call: CallId, ask: Ask) {
        self.queue.push_front(self.rank_of_ask(&ask), call, ask);
    }
    /// Takes the calls that have ended since the last call, in order.
    pub fn ended(&mut self, into: &mut Vec<(CallId, Outcome)>) {
        into.append(&mut self.ended);
    }
    /// The state of the connection.
    #[must_use]
    pub fn state(&self) -> State {
        match self.seek.found() {
            None => State::Unknown,
            Some(found) if found.settings.is_none() => State::Missing,
            Some(_) if self.sessions.is_open(FIRST) => State::Connected,
            Some(_) => State::NoServer,
        }
    }

    fn end(&mut self, call: CallId, outcome: Outcome) {
        self.beside.remove(&call);
        if self.copies.is_part(call) {
            self.copies.part_ended(call, outcome);
        } else if call != ANSWERED {
            self.ended.push((call, outcome));
        }
    }
    fn stamp(&self) -> Stamp {
        Stamp::at(self.config.unix_ms_at_zero, self.now)
    }

    // ── the servers ─────────────────────────────────────────────────────────────────────

    fn on_input(&mut self, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Message {
                from: Entity::Client(server),
                message,
                epoch,
            } => {
                if let Some(rank) = self.sessions.with(server) {
                    self.fencing.heard(epoch);
                    self.on_message(rank, message, out);
                }
            }
            Input::Gone(Entity::Client(server)) | Input::Absent(Entity::Client(server)) => {
                // Changes that it gives up with the session are reported first in the next one.
                self.send_foretold(out);
                if let Some(rank) = self.sessions.with(server) {
                    self.lose_server(rank);
                }
            }
            Input::Tick => {
                let mut last = None;
                while let Some(rank) = self.sessions.following(last) {
                    last = Some(rank);
                    let greets = self.sessions.of(rank).greets_again(self.now);
                    if greets {
                        self.send_foretold(out);
                    }
                    let holds = greets.then(|| self.holds(rank));
                    let greets = holds.is_some();
                    self.sessions.of(rank).on_tick(self.now, holds, out);
                    if greets {
                        // Its greeting gave all shares back. Loans end with the lease.
                        self.forget_names(rank);
                    }
                }
            }
            Input::Stopping => {
                self.send_foretold(out);
                self.begin_closes();
                self.begin_leaving();
            }
            _ => {}
        }
    }
    fn lose_server(&mut self, rank: Rank) {
        self.leave_server(rank);
        self.seek.forget_holder(rank, self.now + SEEK_AGAIN);
    }
    fn leave_server(&mut self, rank: Rank) {
        self.forget_names(rank);
        self.sized.clear();
        self.sessions.of(rank).on_away();
    }

    fn on_message(&mut self, rank: Rank, message: Message, out: &mut Vec<Output>) {
        match message {
            Message::FsWelcome(welcome) => {
                self.send_foretold(out);
                self.sessions
                    .of(rank)
                    .on_welcome(self.now, welcome.greeting, out);
                self.settle_all(rank, out);
            }
            Message::FsAway(_) => {
                self.send_foretold(out);
                self.lose_server(rank);
            }
            Message::FsReply(reply) => {
                let (number, is_safe) = (reply.number, reply.safe);
                if let Some(answered) = self.sessions.on_reply(self.now, rank, reply, out) {
                    let Answered {
                        number,
                        call,
                        answer,
                        mut keep,
                        shares,
                        delegated,
                        changed,
                        caps,
                        foretold,
                        safe,
                    } = answered;
                    let tells = tells_of(&call, &answer);
                    if self.config.names_max > 0 {
                        self.names.share(&shares);
                        self.note_delegated(rank, &delegated);
                    }
                    let crosses = is_across(rank, &call, &answer, &changed);
                    if crosses {
                        // Another rank's answer about it may be older or newer.
                        keep = false;
                        self.sessions.doubt_others(rank);
                    }
                    if foretold {
                        // What is known there is at least as new as the server's answer.
                    } else if !crosses && self.is_known_above(number, &call) {
                        self.names
                            .learn_own(self.now, (&call, &changed), &answer, keep);
                        self.take_back_foretold(number);
                    } else {
                        self.names.on_changed(&changed);
                        self.names.learn(self.now, &call, &answer, keep);
                    }
                    if let FsCall::Lookup { dir, .. } = &call {
                        self.look_ahead(*dir, out);
                    }
                    self.note_tells(
                        number,
                        tells.filter(|(_, tells)| *tells != Tells::Opening),
                        safe,
                    );
                    self.on_answer(number, &call, answer, out);
                    self.note_tells(
                        number,
                        tells.filter(|(_, tells)| *tells == Tells::Opening),
                        safe,
                    );
                    self.on_grants(&caps, keep, out);
                    if safe {
                        self.on_safe(number, out);
                    }
                } else if is_safe {
                    self.on_safe(number, out);
                }
            }
            Message::FsCaps(caps) => {
                self.begin_closes();
                self.on_caps(rank, caps, out);
            }
            Message::FsForget(forget) => {
                forget.items.iter().for_each(|item| self.forget_name(item));
                self.forgets.push((rank, forget.number));
                self.take_back();
                self.say_forgotten(out);
            }
            Message::FsPong(pong) => {
                let had = self.sessions.has_lease(rank, self.now);
                self.sessions.of(rank).on_pong(pong.number);
                if !had {
                    self.settle_all(rank, out);
                }
            }
            Message::FsSafe(safe) => {
                self.sessions.of(rank).on_safe(self.now, &safe.numbers, out);
                safe.numbers
                    .iter()
                    .for_each(|number| self.on_safe(*number, out));
            }
            Message::FsEvicted(evicted) => self.on_evicted(evicted.instance, out),
            Message::FsLocked(locked) => self.on_locked(locked),
            _ => {}
        }
    }

    /// The registry has the holders of ranks.
    fn greet_holders(&mut self, out: &mut Vec<Output>) {
        let mut last = None;
        while let Some(rank) = self.sessions.following(last) {
            last = Some(rank);
            self.greet_holder(rank, out);
        }
    }
    /// Greets a rank's server, if it is another one. That gives all shares back: nothing may be
    /// cached above by then.
    fn greet_holder(&mut self, rank: Rank, out: &mut Vec<Output>) {
        if self.leaving != Leaving::Gone
            && let Some(holder) = self.seek.holder(rank)
            && !self.sessions.of(rank).is_with(holder.client())
        {
            let holder = holder.clone();
            self.send_foretold(out);
            if !self.sessions.of(rank).is_away() {
                self.leave_server(rank);
            }
            if let Some(former) = self.sessions.with(holder.client()) {
                // An earlier instance of it had that rank.
                self.lose_server(former);
            }
            if !self.lent.owes(self.now) {
                let holds = self.holds(rank);
                self.sessions.on_holder(self.now, rank, &holder, holds, out);
            }
        }
    }
    /// A rank is asked something, possibly for the first time.
    fn reach(&mut self, rank: Rank, out: &mut Vec<Output>) {
        if !self.sessions.has(rank) {
            self.sessions.of(rank);
            self.greet_holder(rank, out);
            if self.seek.holder(rank).is_none() {
                self.seek.look_again(self.now);
            }
        }
    }
    /// How often it was evicted.
    #[must_use]
    pub const fn evictions(&self) -> u64 {
        self.evictions
    }

    fn on_answer(&mut self, number: u64, asked: &FsCall, answer: FsAnswer, out: &mut Vec<Output>) {
        for (ino, place) in self.places.learn(asked, &answer) {
            if let Some(file) = self.files.get_mut(&ino) {
                file.place = Some(place);
            }
        }
        if let FsAnswer::ListedPartly { .. } = &answer {
            // The state of files must not be older than the cached attributes.
            self.learn(&answer);
        }
        let purpose = self.purposes.remove(&number);
        if let Some(Purpose::Ahead(dir)) = purpose {
            self.names.listed_ahead(dir, &answer);
        }
        let (mut answer, purpose) = match self.on_led(number, asked, answer, purpose, out) {
            Some(goes_on) => goes_on,
            // Its call continues at another rank.
            None => return,
        };
        if let Some(
            Purpose::Told(ino) | Purpose::Propagated(_, ino, _) | Purpose::Closed(_, ino, _),
        ) = &purpose
            && let Some(file) = self.files.get_mut(ino)
        {
            file.end_telling();
        }
        // `statlite` may return older values than the file's writers know.
        if !matches!(asked, FsCall::StatLite { .. }) {
            self.learn(&answer);
        }
        if let (Some(Purpose::Resized(_, ino)), FsAnswer::Node { .. }) = (&purpose, &answer)
            && let Some(file) = self.files.get_mut(ino)
        {
            file.resized();
        }
        self.show(&mut answer);
        let given = match answer {
            FsAnswer::Failed { errno } => Err(errno),
            answer => Ok(answer),
        };
        match purpose {
            Some(Purpose::Call(call)) => self.end(call, given.map(Given::Answer)),
            Some(Purpose::Opened(call)) => {
                if let Ok(FsAnswer::Node { node, .. }) = &given
                    && let Some(new) = File::new(&node.inode)
                {
                    let place = self.places.get(node.inode.ino);
                    let write = matches!(
                        asked,
                        FsCall::Open { write: true, .. } | FsCall::Make { write: true, .. }
                    );
                    let file = self.files.entry(node.inode.ino).or_insert(new);
                    file.opens[usize::from(write)] += 1;
                    file.place = place.or_else(|| file.place.take());
                }
                self.end(call, given.map(Given::Answer));
            }
            Some(Purpose::Part(call, part)) => self.on_part(call, part, given, out),
            Some(Purpose::Closed(call, ino, write)) => {
                self.end(call, given.map(Given::Answer));
                if let Some(file) = self.files.get_mut(&ino) {
                    for count in [&mut file.opens, &mut file.closing] {
                        count[usize::from(write)] = count[usize::from(write)].saturating_sub(1);
                    }
                    if file.opens[1] == 0 {
                        file.lower(FsCap::Cache {});
                    }
                    self.settle(ino, out);
                }
            }
            Some(purpose @ (Purpose::Resized(call, ino) | Purpose::Extended(call, ino))) => {
                if let Some(file) = self.files.get_mut(&ino) {
                    file.resizing = false;
                    if given.is_ok() {
                        self.cache.truncate(ino, file.size);
                    }
                    self.settle(ino, out);
                }
                let is_named = matches!(purpose, Purpose::Resized(..));
                self.end(
                    call,
                    given.map(|answer| {
                        if is_named {
                            Given::Answer(answer)
                        } else {
                            Given::Done
                        }
                    }),
                );
            }
            Some(Purpose::Written(call, ino)) => {
                self.end(call, given.map(|_| Given::Done));
                self.write_ended(ino, out);
            }
            Some(Purpose::Grown(call, ino, offset, data)) => match given {
                Ok(_) => self.grown_for(call, ino, offset, data, out),
                Err(errno) => {
                    self.end(call, Err(errno));
                    self.write_ended(ino, out);
                }
            },
            Some(Purpose::Sized(call, ask, grant)) => match given {
                Ok(_) => self.sized(call, ask, grant),
                Err(errno) => self.not_sized(call, &ask, errno, out),
            },
            Some(Purpose::Room(call, ask)) => self.on_room(call, ask, given, out),
            Some(Purpose::CopyGrown(call)) => self.copy_grown(call, given.err(), out),
            Some(Purpose::Alone(ino)) => self.alone(ino, given, out),
            Some(Purpose::Growing(ino)) => self.grown(ino, given, out),
            Some(Purpose::Lock(purpose)) => self.lock_answered(number, purpose, given),
            Some(Purpose::Told(ino)) => {
                self.told(ino, given, out);
            }
            Some(Purpose::Propagated(call, ino, forgets)) => {
                self.told(ino, given, out);
                self.propagated(call, ino, forgets);
            }
            Some(Purpose::Foretold(ino, number)) => self.foretold(ino, number, given),
            Some(Purpose::Here { dir, made }) => self.done_here(dir, made, given, out),
            Some(Purpose::Numbers(rank)) => self.delegated.on_numbers(rank, given.ok()),
            Some(Purpose::Said | Purpose::Ahead(_)) | None => {}
        }
    }

    /// A request that reports something about an open file's data was answered.
    fn note_tells(&mut self, number: u64, tells: Option<(Ino, Tells)>, safe: bool) {
        let Some((ino, tells)) = tells else { return };
        if let Some(file) = self.files.get_mut(&ino) {
            self.tells.insert(number, (ino, tells));
            if !safe {
                file.answered_early(number, tells);
            }
        }
    }
    /// An answered request is in the journal.
    fn on_safe(&mut self, number: u64, out: &mut Vec<Output>) {
        let Some((ino, tells)) = self.tells.remove(&number) else {
            return;
        };
        let Some(file) = self.files.get_mut(&ino) else {
            return;
        };
        file.answer_safe(number, tells);
        if file.waits_to_tell {
            self.flush(ino, out);
        }
        self.settle(ino, out);
    }
    /// Something waits until the answers about a file are safe.
    fn hurry(&mut self, ino: Ino, out: &mut Vec<Output>) {
        if let Some(number) = self.files.get(&ino).and_then(File::unsafe_by) {
            self.sessions.of(rank_of(ino)).hurry(number, out);
        }
    }

    /// Takes over the server's report about open files.
    fn learn(&mut self, answer: &FsAnswer) {
        for FsNode { inode, .. } in answer.nodes() {
            if let Some(file) = self.files.get_mut(&inode.ino) {
                file.learn(inode);
            }
        }
    }
    /// Adds to an answer for callers what the server does not know yet.
    fn show(&self, answer: &mut FsAnswer) {
        for node in answer.nodes_mut() {
            if let Some(file) = self.files.get(&node.inode.ino) {
                file.show(node);
            }
        }
    }

    fn request(&mut self, call: FsCall, purpose: Purpose, out: &mut Vec<Output>) {
        let rank = rank_of_call(&call).unwrap_or(FIRST);
        self.request_at(rank, call, purpose, out);
    }
    fn request_at(&mut self, rank: Rank, call: FsCall, purpose: Purpose, out: &mut Vec<Output>) {
        self.request_with(rank, call, None, purpose, out);
    }
    fn request_with(
        &mut self,
        rank: Rank,
        call: FsCall,
        foretold: Option<FsAgain>,
        purpose: Purpose,
        out: &mut Vec<Output>,
    ) {
        // Changes made here in this turn precede everything that may depend on them.
        self.send_foretold(out);
        self.reach(rank, out);
        let place = call.ino().and_then(|ino| {
            let file = self.files.get(&ino).and_then(|file| file.place.clone());
            file.or_else(|| self.places.get(ino))
        });
        let number = self.sessions.request(
            self.now,
            rank,
            Asked {
                call,
                place,
                foretold,
            },
            out,
        );
        self.purposes.insert(number, purpose);
    }

    // ── calls ───────────────────────────────────────────────────────────────────────────

    fn start(&mut self, call: CallId, ask: Ask, out: &mut Vec<Output>) {
        match ask {
            Ask::Read { .. }
            | Ask::Write { .. }
            | Ask::Append { .. }
            | Ask::Zero { .. }
            | Ask::Extend { .. }
            | Ask::Seek { .. } => self.data(call, ask, out),
            Ask::Copy {
                from,
                offset,
                to,
                at,
                length,
            } => self.copy(call, (from, offset), (to, at), length, out),
            Ask::Failed { ino } => {
                let outcome = self.failed(ino);
                self.end(call, outcome);
            }
            Ask::Lock { lock, wait } => self.lock(call, lock, wait, out),
            Ask::Unlock { lock } => self.unlock(Some(call), lock, out),
            Ask::UnlockAll { ino, owner } => self.unlock_all(call, ino, owner, out),
            Ask::CancelLock { wait } => self.cancel(call, wait, out),
            Ask::Names(names) => self.names(call, names, out),
            Ask::Sync { ino } => self.sync(call, ino, out),
            Ask::Lazy { ino, lazy } => self.set_lazy(call, ino, lazy),
            Ask::Propagate { ino, .. } => self.propagate(call, ino, None, out),
            Ask::Synchronize {
                ino,
                offset,
                length,
            } => {
                self.propagate(call, ino, Some(offset..offset.saturating_add(length)), out);
            }
            Ask::Room => self.wait_for_news_of_room(call),
        }
    }

    /// Whether data of a file could not be written, and that was not reported.
    fn failed(&mut self, ino: Ino) -> Outcome {
        self.losses.tell_closer(ino).map_or(Ok(Given::Done), Err)
    }
    /// A call waits for something of an open file.
    fn put_off(&mut self, ino: Ino, call: CallId, ask: Ask) {
        let file = self.files.get_mut(&ino).expect("it is open");
        file.waiting.push_back((call, ask));
    }

    fn names(&mut self, call: CallId, names: FsCall, out: &mut Vec<Output>) {
        if let Some(outcome) = self.names_at_once(&names) {
            return self.end(call, outcome);
        }
        if self.goes_elsewhere(call, &names, out) {
            return;
        }
        let Some(mut names) = self.done_or_put_off(call, names, out) else {
            return;
        };
        let mut purpose = Purpose::Call(call);
        match &mut names {
            FsCall::Open { .. } | FsCall::Make { open: true, .. } => {
                purpose = Purpose::Opened(call)
            }
            FsCall::Close {
                ino,
                write,
                size,
                mtime,
            } => {
                let (of, way) = (*ino, usize::from(*write));
                let is_last = self
                    .files
                    .get(&of)
                    .is_some_and(|file| file.opens[1] == file.closing[1] + 1);
                // The source or target of a copy must not change until then.
                if self.files.get(&of).is_some_and(|file| file.copies > 0) {
                    return self.put_off(of, call, Ask::Names(names));
                }
                if *write && is_last && (self.lingers(of) || !self.is_written(of, out)) {
                    return self.put_off(of, call, Ask::Names(names));
                }
                if *write
                    && is_last
                    && let Some(file) = self.files.get_mut(&of)
                {
                    file.closes(self.sessions.next());
                }
                purpose = Purpose::Closed(call, of, *write);
                // Unwritten data is reported when it is written.
                let is_dirty = self.cache.dirty_of(of) > 0;
                if let Some(file) = self.files.get_mut(&of) {
                    file.closing[way] += 1;
                    file.begin_telling();
                    let tells = !is_dirty && file.flushes.is_empty() && !file.growing;
                    (*size, *mtime) =
                        if tells { file.tell(None) } else { None }.unwrap_or_default();
                }
            }
            FsCall::Set { ino, changes }
                if changes.size.is_some() && self.files.contains_key(ino) =>
            {
                let ino = *ino;
                let file = &self.files[&ino];
                // Data beyond the end known to the server would not be removed.
                let waits =
                    file.writes > 0 || file.copies > 0 || file.resizing || file.recall.is_some();
                let is_written = !waits && self.is_written(ino, out);
                if is_written {
                    self.tell_time(ino, u64::MAX, out);
                }
                if !is_written || self.files[&ino].is_telling() {
                    return self.put_off(ino, call, Ask::Names(names));
                }
                self.files.get_mut(&ino).expect("just seen").resizing = true;
                purpose = Purpose::Resized(call, ino);
            }
            FsCall::Set { ino, changes } if changes.mtime.is_some() => {
                if let Some(file) = self.files.get_mut(ino) {
                    // An older time that is being reported would arrive after it.
                    if file.is_telling() || file.growing {
                        return file.waiting.push_back((call, Ask::Names(names)));
                    }
                    file.times_set(self.sessions.next());
                }
            }
            _ => {}
        }
        self.request(names, purpose, out);
    }

    /// Whether the known state of a file is the server's: it would have announced a change.
    fn knows(&self, ino: Ino) -> bool {
        self.names.has(&self.lasting(), ino)
    }
    /// Inodes whose cached state may be used: the lease of their rank is valid.
    fn lasting(&self) -> impl Fn(Ino) -> bool {
        |ino| self.sessions.has_lease(rank_of(ino), self.now)
    }

    // ── data ────────────────────────────────────────────────────────────────────────────

    fn on_completion(&mut self, completion: Completion, out: &mut Vec<Output>) {
        let Some(whom) = self.under_way.remove(&completion.id) else {
            return;
        };
        self.fencing.look(&completion);
        self.piece_ended(whom, completion.result, out);
    }

    fn piece_ended(&mut self, whom: For, result: Result<Done, Failure>, out: &mut Vec<Output>) {
        let (call, index) = match whom {
            For::Call(call, index) => (call, index),
            For::Flush(number) => {
                return self.on_flushed(
                    number,
                    result.map(drop).map_err(|why| errno_of(&why)),
                    out,
                );
            }
            For::Fetch(number, index) => {
                return self.on_fetched(number, index, read_of(result), out);
            }
        };
        let Some(transfer) = self.transfers.get_mut(&call) else {
            return;
        };
        match transfer {
            Transfer::Read { ino, data, spans } => {
                let Some(data) = read_of(result)
                    .map(|read| data.take(index, read))
                    .transpose()
                else {
                    return;
                };
                let (ino, spans) = (*ino, *spans);
                self.transfers.remove(&call);
                self.end(call, data.map(Given::Data));
                if spans {
                    self.read_ended(ino, out);
                }
            }
            Transfer::Write {
                ino,
                end,
                left,
                failed,
            } => {
                if let Err(why) = &result {
                    failed.get_or_insert_with(|| errno_of(why));
                }
                *left -= 1;
                if *left == 0 {
                    let (ino, end, failed) = (*ino, *end, *failed);
                    self.transfers.remove(&call);
                    self.written(call, ino, end, failed, out);
                }
            }
            Transfer::Copy(_) => self.on_copied(call, index, result, out),
            Transfer::Zero(_) => self.on_zeroed(call, result, out),
            Transfer::Seek(_) => self.on_sought(call, index, result),
        }
    }

    /// Calls that waited for a file may be possible now.
    fn go_on(&mut self, ino: Ino) {
        self.let_go(ino);
        let Some(file) = self.files.get(&ino) else {
            return;
        };
        if file.opens == [0; 2] && !file.is_busy() {
            self.files.remove(&ino);
            self.losses.closed(ino);
            self.cache.forget(ino);
            self.locking.take_lost(ino);
        }
    }

    /// Calls that waited for a file become unbegun calls again.
    fn let_go(&mut self, ino: Ino) {
        let Some(file) = self.files.get_mut(&ino) else {
            return;
        };
        // At the front, in order: they came before calls that have not begun.
        while let Some((call, ask)) = file.waiting.pop_back() {
            self.queue.push_front(rank_of(ino), call, ask);
        }
    }

    // ── turns ───────────────────────────────────────────────────────────────────────────

    /// Begins the calls that can begin.
    fn start_calls(&mut self, out: &mut Vec<Output>) {
        let Some(found) = self.seek.found() else {
            return;
        };
        let ranks = found.settings.as_ref().map(|settings| settings.ranks);
        let mut last = None;
        while let Some(rank) = self.queue.following(last) {
            last = Some(rank);
            // The first rank exists in each file system.
            let errno = if ranks.is_none() { ENODEV } else { ESTALE };
            if ranks.is_none_or(|ranks| rank.0 >= ranks.max(1)) {
                for (call, _) in self.queue.take(rank) {
                    self.end(call, Err(errno));
                }
            } else if !self.queue.is_empty(rank) {
                self.reach(rank, out);
            }
        }
        // Calls that wait for a file come back to the queue.
        let mut goes_on = true;
        while std::mem::take(&mut goes_on) {
            self.go_on_by_hand(out);
            let mut last = None;
            while let Some(rank) = self.sessions.following(last) {
                last = Some(rank);
                while self.sessions.is_free(rank)
                    && let Some((call, ask)) = self.queue.pop(rank)
                {
                    self.start(call, ask, out);
                    goes_on = true;
                }
            }
        }
    }

    fn submit(&mut self, objects: &mut dyn ObjectCluster) {
        while let Some((operation, whom)) = self.operations.pop_front() {
            // A failed read does not need the rest any more.
            let is_wanted = match whom {
                For::Call(call, _) => self.transfers.contains_key(&call),
                For::Flush(number) => self.flushes.contains_key(&number),
                For::Fetch(number, _) => self.fetches.contains_key(&number),
            };
            if !is_wanted {
                continue;
            }
            match objects.submit(self.now, operation.clone()) {
                Ok(id) => drop(self.under_way.insert(id, whom)),
                // Retried in the next turn.
                Err(_) => {
                    self.operations.push_front((operation, whom));
                    return;
                }
            }
        }
    }
}

impl Fs {
    /// Another client has changed something that is cached here.
    #[nacre_types::planted]
    fn forget_name(&mut self, item: &FsStale) {
        self.names.forget(item);
    }
}

impl Service for Fs {
    fn on_turn(
        &mut self,
        now: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        objects: &mut dyn ObjectCluster,
        metadata: &mut dyn Metadata,
        out: &mut Vec<Output>,
    ) {
        self.now = now;
        if self.send_at <= now {
            self.send_foretold(out);
            self.begin_closes();
        } else if self.queue.len() > 0 {
            // Later calls may concern the same files.
            self.begin_closes();
        }
        for input in inputs {
            self.on_input(input, out);
        }
        self.seek.on_turn(now, self.sessions.is_settled(), metadata);
        self.say_forgotten(out);
        self.greet_holders(out);
        let mut done = Vec::new();
        objects.completions(&mut done);
        for completion in done {
            self.on_completion(completion, out);
        }
        if self.fencing.is_fenced() {
            self.on_evicted(self.acts_as(), out);
        }
        self.let_write();
        self.go_on_delegated(out);
        self.close_for_leaving();
        self.start_calls(out);
        self.write_back(out);
        self.go_on_syncing(out);
        self.take_back();
        objects.rest_on(self.fencing.epoch());
        self.say_room(objects);
        self.submit(objects);
        self.leave(out);
    }

    fn next_deadline(&self) -> Time {
        let flush = self.flush_at.min(self.closed_at);
        let flush = if self.sessions.is_any_open() {
            flush
        } else {
            Time::MAX
        };
        let flush = flush.min(self.send_at);
        let others = flush
            .min(self.lent.over_at())
            .min(self.fullness.next_deadline())
            .min(self.leaves_by());
        self.seek
            .next_deadline()
            .min(self.sessions.next_deadline())
            .min(others)
    }
    fn is_leaving(&self) -> bool {
        self.leaves_by() < Time::MAX
    }
    fn instance(&self) -> Option<Instance> {
        Some(self.acts_as())
    }
}

/// Shows what it is waiting for, for debugging.
impl std::fmt::Debug for Fs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waits = |file: &File| {
            !file.waiting.is_empty() || !file.flushes.is_empty() || file.recall.is_some()
        };
        f.debug_struct("Fs")
            .field("state", &self.state())
            .field(
                "files",
                &self
                    .files
                    .iter()
                    .filter(|(_, file)| waits(file) || file.growing)
                    .collect::<Vec<_>>(),
            )
            .field("queue", &self.queue.len())
            .field("across", &(&self.led, &self.parts))
            .field(
                "safe_below",
                &(
                    self.sessions.safe_below().collect::<Vec<_>>(),
                    self.sessions.next(),
                ),
            )
            .field("syncing", &self.syncing)
            .field("syncs", &self.syncs)
            .field("flushes", &self.flushes)
            .field("operations", &(self.operations.len(), self.under_way.len()))
            .field("throttled", &self.throttled.len())
            .finish_non_exhaustive()
    }
}

/// Whether a rank's answer changed something that another rank has.
fn is_across(rank: Rank, call: &FsCall, answer: &FsAnswer, changed: &[Ino]) -> bool {
    let is_other = |ino: Ino| rank_of(ino) != rank;
    call.is_change()
        && (call.inos().any(is_other)
            || changed.iter().copied().any(is_other)
            || answer.nodes().any(|node| is_other(node.inode.ino)))
}

/// What an answered request reports about an open file's data. A file that it created has no data
/// that could be lost.
fn tells_of(call: &FsCall, answer: &FsAnswer) -> Option<(Ino, Tells)> {
    let FsAnswer::Node { node, made } = answer else {
        return None;
    };
    let tells = match call {
        FsCall::Open { write: true, .. } => Tells::Opening,
        FsCall::Make {
            open: true,
            write: true,
            ..
        } if !made => Tells::Opening,
        FsCall::Wrote {
            mtime: FS_LARGER_ONLY,
            ..
        } => Tells::Larger,
        FsCall::Wrote { .. } | FsCall::Comply { written: true, .. } => Tells::Written,
        FsCall::Close { .. } => Tells::Closed,
        _ => return None,
    };
    Some((node.inode.ino, tells))
}

/// The data read from an object.
fn read_of(result: Result<Done, Failure>) -> Result<Vec<Bytes>, u16> {
    match result {
        Ok(done) => Ok(done.payload),
        // A hole.
        Err(Failure::Refused(OpFailure::NotFound {})) => Ok(Vec::new()),
        Err(why) => Err(errno_of(&why)),
    }
}

/// The corresponding POSIX error.
fn errno_of(why: &Failure) -> u16 {
    match why {
        Failure::Refused(OpFailure::Full {}) | Failure::Doubtful(OpFailure::Full {}) => ENOSPC,
        Failure::Refused(OpFailure::Denied { .. }) => EACCES,
        Failure::Refused(OpFailure::TooLarge {}) => EFBIG,
        _ => EIO,
    }
}
