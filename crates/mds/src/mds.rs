//! The server as a state machine: requests in, answers and operations on objects out.
//!
//! ```text
//!  open ─▶ journal read, object by object ─▶ live
//!  request ─▶ known? answered as before
//!          └▶ evaluate ─▶ lacks a fragment: read it, then evaluate again
//!                      └▶ done: applied, journaled; answered at once, and reported when it is safe
//! ```
//! Changes that are not safe yet are shown only to the client that made them: an answer to another
//! client that depends on them waits (`held`). A client sees its own changes at once.
//!
//! * `appending`: when the journal is appended to; `room`: behaviour when the cluster is full;
//! * `opening`: reading the journal; `loading`: what is in memory; `writing`: writing directories,
//!   so that the journal can be trimmed;
//! * `sharing`: what clients may cache of names and attributes, and which answers wait until they
//!   have dropped it;
//! * `delegating`: names that clients create and remove themselves;
//! * `capabilities`: what clients may do with the data of files; `quotas`: how large they may make
//!   them;
//! * `data`: removing data that no name refers to; `locking`: advisory locks; `clients`: for
//!   operators;
//! * `evicting`: sessions of clients whose timeout has expired; `recording`: which files they had
//!   open for writing; `probing`: what they had written to these;
//! * `across`: name changes across ranks; `popular`: which parts of the tree are busy.
//!
//! Invariants: a change is answered only if it is in the journal or will be; changes are in the
//! journal in the order in which they were made.

mod across;
mod appending;
mod capabilities;
mod clients;
mod data;
mod delegating;
mod evicting;
mod flushing;
mod loading;
mod locking;
mod opening;
mod popular;
mod probing;
mod quotas;
mod recording;
mod room;
mod sharing;
mod takeover;
mod writing;

pub use self::evicting::Greeted;
use crate::caps::Caps;
use crate::change::Change;
use crate::delegations::Delegations;
use crate::dirty::Dirty;
use crate::evaluate::errno::{EDQUOT, EIO, ESTALE};
use crate::evaluate::{
    Missing, Opened, Outcome, Setting, Verdict, Written, evaluate, evaluate_found,
};
use crate::followed::Followed;
use crate::journal::{self, Answered, Batch, Journal, Known};
use crate::locks::Locks;
use crate::overlay::Overlay;
use crate::popularity::Popularity;
use crate::removing::Removing;
use crate::shares::Shares;
use crate::transactions::Transactions;
use crate::tree::{Found, Tree};
use crate::writers::Writers;
use bytes::Bytes;
use nacre_client::{Completion, Done, Failure, ObjectCluster, OpId, Operation};
use nacre_types::{ClientId, Frag, Ino, Instance, Name, ObjectId, PoolId, Rank, Time};
use nacre_wire::Wire as _;
use nacre_wire::fs::entry::{entry_key, entry_name};
use nacre_wire::fs::{Entry, FsLock, FsLockWait, Head, Inode, Layout, Stamp, data_name, name_hash};
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply, op_flag};
use nacre_wire::msg::fs::{
    FS_WINDOW, FsAnswer, FsCall, FsCaps, FsEvicted, FsForget, FsLocked, FsOpens, FsPlace, FsReply,
    FsRequest, FsSafe,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[cfg(feature = "mutants")]
#[path = "mutants/mds.rs"]
mod planted;

/// The attribute of a fragment's object with its head.
pub const HEAD_ATTR: &str = "head";
/// How long clients of the rank's last holder have to report what they have open and to resend what
/// is not safe. A client that does not come by then no longer uses what it cached before.
const GRACE: std::time::Duration = sharing::VOID;
/// More inode numbers than a holder of the rank can have told clients before they were in the
/// journal: a batch has no room for that many, and fewer are given to clients (`delegating`) in two
/// batches.
const EARLY_MAX: u64 = 1 << 19;
/// Fragments that are read at a time for a round of writing.
const LOADS_AT_ONCE: usize = 16;
/// The attribute of a directory's object with its backpointer.
pub const PARENT_ATTR: &str = nacre_wire::fs::Backpointer::ATTR;

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct MdsLimits {
    /// Size at which an object of the journal is full, in bytes.
    pub journal_object_bytes: u64,
    /// Most objects of the journal: beyond that, requests wait until directories are written.
    pub journal_objects_max: u64,
    /// Longest time between two rounds of writing directories.
    pub write_after: std::time::Duration,
    /// Entries in memory, besides unwritten ones; each takes some 520 bytes.
    pub entries_max: usize,
    /// Entries of a directory that are read at once, and that are loaded and evicted together.
    pub page: u32,
    /// Changes that nothing waits for wait this long for others, to share an append to the journal.
    pub linger: std::time::Duration,
}
impl Default for MdsLimits {
    fn default() -> Self {
        Self {
            journal_object_bytes: journal::OBJECT_BYTES,
            journal_objects_max: 64,
            write_after: std::time::Duration::from_secs(10),
            entries_max: 500_000,
            page: 1000,
            linger: std::time::Duration::from_millis(50),
        }
    }
}

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct MdsConfig {
    /// The rank that it serves.
    pub rank: Rank,
    /// The namespace of the file system's objects.
    pub namespace: Name,
    /// The pool of directories and journals.
    pub pool: PoolId,
    /// Layout of new files.
    pub layout: Layout,
    /// The wall clock at [`Time::ZERO`], in milliseconds since 1970.
    pub unix_ms_at_zero: u64,
    /// Its limits.
    pub limits: MdsLimits,
}

/// A message for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "nearly all are replies")]
pub enum Say {
    /// Every later holder of the rank will know the session: the client may send requests.
    Welcome {
        /// First resend what an earlier holder did not report as safe.
        again: bool,
        /// The client's last greeting.
        greeting: u64,
    },
    /// An answer.
    Reply(FsReply),
    /// Requests that are safe now.
    Safe(FsSafe),
    /// The session has ended: others did not wait for it.
    Evicted(FsEvicted),
    /// Cached items to drop.
    Forget(FsForget),
    /// A lock that the client waited for.
    Locked(FsLocked),
    /// Capabilities for open files.
    Caps(FsCaps),
}

#[derive(Debug, Default)]
struct Session {
    instance: Instance,
    /// Human-readable description.
    about: Name,
    /// Whether it creates names itself where it may.
    delegable: bool,
    /// The batch that records this session.
    since: u64,
    safe_below: u64,
    /// Answers to changes that may be requested again.
    answers: BTreeMap<u64, Kept>,
    /// Changes with early answers: batch and number.
    early: VecDeque<(u64, u64)>,
    /// Whether its open files are known: it has reported them, or this holder has counted since it
    /// came.
    counted: bool,
    /// When a message from it last arrived.
    heard: Time,
    /// Its last greeting.
    greeting: u64,
    /// Requests accepted from it, and those of them that are not complete.
    requests: u64,
    open: u64,
    /// Of those: changes that it made itself.
    foretold: u64,
}

/// An answer that was given or waits to be given.
#[derive(Debug)]
struct Kept {
    reply: FsReply,
    /// The batch with its changes, if any.
    batch: Option<u64>,
    /// What must have happened before it is given.
    after: sharing::After,
    /// An earlier holder gave it, or would have: what it opened or closed was not counted here.
    inherited: bool,
}

enum Phase {
    /// The journal is being read.
    Reading(opening::Reading),
    Live,
    /// Its store failed, or it is fenced.
    Ended(String),
}

/// The purpose of an operation on objects.
#[derive(Debug)]
enum Purpose {
    ReadHead,
    Journal(u64),
    Parent(Ino),
    Write,
    Delete,
    Head,
    /// To be retried if there is no space for it.
    Append(Operation),
    Page(loading::Page),
    Remove(Ino),
    Fence(ClientId),
    /// The length of a file's object that an evicted client may have written.
    Probe {
        client: ClientId,
        ino: Ino,
        number: u64,
    },
}

/// See the module head.
pub struct Mds {
    config: MdsConfig,
    now: Time,
    phase: Phase,
    tree: Tree,
    overlay: Overlay,
    journal: Journal,
    appending: appending::Appending,
    room: room::Room,
    sessions: BTreeMap<ClientId, Session>,
    caps: Caps,
    capabilities: capabilities::Capabilities,
    quotas: quotas::Quotas,
    delegations: Delegations,
    delegating: delegating::Delegating,
    locks: Locks,
    /// Waits reported by clients that have not been checked yet.
    locks_unsettled: bool,
    /// Requests that lack something, in order of arrival, and their numbers.
    waiting: VecDeque<(ClientId, FsRequest)>,
    asked: BTreeSet<(ClientId, u64)>,
    /// Something has arrived that they may have waited for.
    try_again: bool,
    loading: BTreeSet<(Ino, Frag)>,
    places: loading::Places,
    /// Directories to read although no request needs them, and from which hash on.
    wanted: BTreeMap<Ino, u64>,
    dirty: Dirty,
    writing: writing::Writing,
    flushing: flushing::Flushing,
    /// The journal's first object, and its head as read.
    first: u64,
    head: journal::JournalHead,
    lengths: takeover::Lengths,
    /// There is too much in memory, and only writing can free some.
    wants_room: bool,
    /// The amount in memory at which freeing is tried again.
    room_at: usize,
    turns: u64,
    /// Fragments that could not be read.
    lost: BTreeSet<(Ino, Frag)>,
    removing: Removing,
    /// Files whose truncated data is removed, with the batch that records that, until it is safe.
    settling: BTreeMap<Ino, u64>,
    /// Clients of the rank's last holder that have not resent everything that was not safe, and how
    /// long to wait for them.
    expected: BTreeSet<ClientId>,
    quiet_until: Time,
    /// Their reports about data must be executed before anything new.
    tells_first: bool,
    /// Requests that the last holder executed but may not have answered, because other clients had
    /// to drop something first; resent before those clients have come.
    asked_early: BTreeMap<(ClientId, u64), FsRequest>,
    evicting: evicting::Evicting,
    /// Files open for writing by client, and where evicted clients may have written.
    writers: Writers,
    probing: probing::Probing,
    /// The batch that records this holder of the rank: nothing is answered before it is safe.
    since: u64,
    /// Who changed a directory or inode, until that is safe and all clients have dropped the old
    /// state.
    fresh: BTreeMap<Ino, sharing::Fresh>,
    /// Answers that wait for that, in the order of evaluation.
    held: Vec<sharing::Held>,
    /// Some of them may no longer have to wait.
    release: bool,
    shares: Shares,
    transactions: Transactions,
    across: across::Across,
    popularity: Popularity,
    /// Operations to submit, in order, that the cluster had no space for.
    queue: VecDeque<(Operation, Purpose)>,
    under_way: BTreeMap<OpId, Purpose>,
    out: Vec<(ClientId, Say)>,
}

impl Mds {
    /// Starts: reads the journal from its first object on.
    #[must_use]
    pub fn open(config: MdsConfig) -> Self {
        Self::open_after(config, Followed::default())
    }
    /// The same after a standby has followed the journal under the holder that this server
    /// replaces: of what it holds only as much is read again as proves that it is still correct.
    #[must_use]
    pub fn open_after(config: MdsConfig, followed: Followed) -> Self {
        let MdsLimits {
            journal_object_bytes: object_bytes,
            page,
            ..
        } = config.limits;
        let transactions = Transactions::new(config.rank);
        let mut mds = Self {
            config,
            now: Time::ZERO,
            phase: Phase::Reading(opening::Reading::after(followed)),
            tree: Tree::with_slices(2 * page as usize),
            overlay: Overlay::default(),
            journal: Journal::behind(0, 0, Ino::SERIAL_MIN, object_bytes),
            appending: appending::Appending::default(),
            room: room::Room::default(),
            sessions: BTreeMap::new(),
            caps: Caps::paused(),
            capabilities: capabilities::Capabilities::default(),
            quotas: quotas::Quotas::default(),
            delegations: Delegations::default(),
            delegating: delegating::Delegating::default(),
            locks: Locks::default(),
            locks_unsettled: false,
            waiting: VecDeque::new(),
            asked: BTreeSet::new(),
            try_again: false,
            loading: BTreeSet::new(),
            places: loading::Places::default(),
            wanted: BTreeMap::new(),
            dirty: Dirty::default(),
            writing: writing::Writing::default(),
            flushing: flushing::Flushing::default(),
            first: 0,
            lengths: takeover::Lengths::default(),
            head: journal::JournalHead::default(),
            wants_room: false,
            room_at: 0,
            turns: 0,
            lost: BTreeSet::new(),
            removing: Removing::default(),
            settling: BTreeMap::new(),
            expected: BTreeSet::new(),
            quiet_until: Time::ZERO,
            tells_first: false,
            asked_early: BTreeMap::new(),
            evicting: evicting::Evicting::default(),
            writers: Writers::default(),
            probing: probing::Probing::default(),
            since: 0,
            fresh: BTreeMap::new(),
            held: Vec::new(),
            release: false,
            shares: Shares::default(),
            transactions,
            across: across::Across::default(),
            popularity: Popularity::default(),
            queue: VecDeque::new(),
            under_way: BTreeMap::new(),
            out: Vec::new(),
        };
        mds.read_head();
        mds
    }

    /// Whether it accepts requests.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Live)
    }
    /// Why it has ended, if it has.
    #[must_use]
    pub const fn ended(&self) -> Option<&String> {
        match &self.phase {
            Phase::Ended(why) => Some(why),
            _ => None,
        }
    }
    /// When it wants a turn, if nothing arrives before.
    #[must_use]
    pub fn next_deadline(&self) -> Time {
        let quiet = if self.is_quiet() && self.now < self.quiet_until {
            self.quiet_until
        } else {
            Time::MAX
        };
        let evicting = self.evicting.next_deadline();
        let transactions = self
            .transactions
            .next_deadline(self.now, self.journal.safe());
        let transactions = if self.is_live() {
            transactions
        } else {
            Time::MAX
        };
        let deadline = quiet
            .min(self.write_at())
            .min(self.void_at())
            .min(self.caps_at())
            .min(evicting);
        deadline.min(self.append_at()).min(transactions)
    }
    /// Whether nothing is in flight and everything is safe.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.is_live()
            && self.journal.is_idle()
            && self.under_way.is_empty()
            && self.queue.is_empty()
            && self.writing.is_idle()
            && self.transactions.is_idle()
    }
    /// The tree in memory.
    #[must_use]
    pub const fn tree(&self) -> &Tree {
        &self.tree
    }

    /// A client's connection or the client itself is new; `opens` is what it has open. A client
    /// that is `known` is not accepted as a new one: its session may have ended.
    pub fn on_session(
        &mut self,
        client: ClientId,
        instance: Instance,
        known: (bool, u64),
        opens: &[FsOpens],
    ) -> Greeted {
        self.on_session_with(client, instance, known, opens, (&[], &[]))
    }
    /// The same, with its locks and waits.
    pub fn on_session_with(
        &mut self,
        client: ClientId,
        instance: Instance,
        (known, greeting): (bool, u64),
        opens: &[FsOpens],
        (locks, waits): (&[FsLock], &[FsLockWait]),
    ) -> Greeted {
        if !self.is_live() {
            return Greeted::NotYet;
        }
        if let Some(greeted) = self.judge_greeting(client, instance, known) {
            return greeted;
        }
        // Over a new connection it starts with nothing cached.
        self.void_shares(client);
        self.delegations.greet(client);
        let session = self.sessions.entry(client).or_default();
        let is_new = session.instance != instance || !session.counted;
        if session.instance != instance {
            let since = self.journal.push_client(Known {
                client,
                instance,
                here: true,
            });
            self.appending.hurry(&self.journal);
            *session = Session {
                instance,
                since,
                heard: session.heard,
                ..Session::default()
            };
        } else if session.since < self.journal.safe() {
            let again = self.expected.contains(&client);
            self.out.push((client, Say::Welcome { again, greeting }));
        }
        session.greeting = greeting;
        // Over a second connection it reports the state it knows of; this holder knows what it has
        // done since.
        let is_first = !std::mem::replace(&mut session.counted, true);
        self.bound_before_greeting(opens);
        self.caps.greet(client, opens, is_first);
        if is_first {
            self.record_opens(client, opens);
        }
        if is_new {
            self.release_locks(client);
        }
        self.inherit_locks(client, is_new, locks, waits);
        Greeted::Taken
    }
    /// The client has resent everything that was not safe.
    pub fn on_caught_up(&mut self, client: ClientId) {
        if !self.evicting.has(client) {
            self.expected.remove(&client);
            self.forget_closed(client);
            self.delegations.caught_up(client);
            self.try_again = true;
        }
    }
    /// A client leaves for good.
    pub fn on_leave(&mut self, client: ClientId) {
        if !self.writers.of(client).is_empty() {
            // It has not closed everything that it may have written.
            self.evict(client);
        } else if !self.evicting.has(client) {
            self.end_session(client);
        }
    }
    fn forget_requests(&mut self, client: ClientId) {
        self.waiting.retain(|(who, _)| *who != client);
        self.asked.retain(|(who, _)| *who != client);
        self.asked_early.retain(|(who, _), _| *who != client);
        if let Some(session) = self.sessions.get_mut(&client) {
            (session.open, session.foretold) = (0, 0);
        }
        self.transactions.give_up_all(client);
        self.end_all_coming(client);
        self.end_delegating(client, None);
    }
    fn end_session(&mut self, client: ClientId) {
        if let Some(session) = self.sessions.remove(&client) {
            let batch = self.journal.push_client(Known {
                client,
                instance: session.instance,
                here: false,
            });
            self.writers.end(client, batch);
            self.expected.remove(&client);
            self.forget_requests(client);
            self.void_shares(client);
            self.end_caps(client);
            self.release_locks(client);
            self.delegations.end(client);
        }
    }
    /// Whether clients may still resend what was not safe, or act without having come: until then
    /// nothing new is executed.
    fn is_quiet(&self) -> bool {
        !self.expected.is_empty() || self.probing.has_forgotten()
    }

    /// Whether something that the last holder answered must still be executed again.
    fn has_again(&self) -> bool {
        self.waiting
            .iter()
            .any(|(_, request)| request.again.is_some())
    }

    /// Handles a request.
    pub fn on_request(&mut self, client: ClientId, request: FsRequest) {
        let (safe, quiet) = (self.journal.safe(), self.is_quiet());
        let shares = &self.shares;
        let may_ask = |session: &&mut Session| session.since < safe && !self.evicting.has(client);
        let Some(session) = self.sessions.get_mut(&client).filter(may_ask) else {
            return;
        };
        session.safe_below = session.safe_below.max(request.safe_below);
        session.answers = session.answers.split_off(&session.safe_below);
        if request.number < session.safe_below {
            return;
        }
        if let Some(kept) = session.answers.get_mut(&request.number) {
            let opened = opened_by(&request.call, &kept.reply.answer);
            let file = opened.and_then(Opened::file);
            // Clients that have not come may still use old cached state.
            let early = quiet && kept.inherited;
            let opened =
                opened.filter(|_| std::mem::take(&mut kept.inherited) && !is_counted(&request));
            // Held answers are given when they may be.
            if early {
                self.note_opened(client, opened);
                self.asked_early.insert((client, request.number), request);
            } else if kept.after.is_over(safe, shares) {
                let is_safe = kept.batch.is_none_or(|batch| batch < safe);
                let mut reply = FsReply {
                    safe: is_safe,
                    ..kept.reply.clone()
                };
                self.note_opened(client, opened);
                if let Some(batch) = self.unsafe_opening(client, opened) {
                    reply.safe = false;
                    self.sessions
                        .get_mut(&client)
                        .expect("just seen")
                        .early
                        .push_back((batch, request.number));
                }
                self.give_caps(client, file, &mut reply);
                self.out.push((client, Say::Reply(reply)));
            } else {
                self.note_opened(client, opened);
            }
            return;
        }
        // Numbers have gaps, because other ranks get requests, too.
        let has_room = session.answers.len() as u64 + session.open < FS_WINDOW;
        if has_room && self.asked.insert((client, request.number)) {
            session.requests += 1;
            session.open += 1;
            session.foretold += u64::from(request.foretold.is_some());
            self.waiting.push_back((client, request));
            self.try_again = true;
        }
    }

    /// Does what can be done, and returns the messages for clients.
    pub fn on_turn(
        &mut self,
        now: Time,
        objects: &mut dyn ObjectCluster,
        out: &mut Vec<(ClientId, Say)>,
    ) {
        self.now = now;
        self.turns += 1;
        let mut done = Vec::new();
        objects.completions(&mut done);
        for completion in done {
            self.on_completion(completion);
        }
        self.release_held();
        if self.is_live() {
            self.evict_deaf();
            if self.is_quiet() && self.now >= self.quiet_until {
                // They did not come: others have waited long enough.
                self.expected
                    .clone()
                    .into_iter()
                    .for_each(|client| self.evict(client));
            }
            self.fence_evicted(objects);
            self.look_at_fenced();
            self.probe();
            self.transactions.on_turn(now, self.journal.safe());
            self.try_again |= self.transactions.has_put_off() || self.transactions.was_unlocked();
            loop {
                while std::mem::take(&mut self.try_again) {
                    self.serve();
                    // A change across ranks has failed; requests behind it can continue.
                    self.try_again |= self.transactions.was_unlocked();
                }
                // Once for everything served: it examines every file that waits for its removal.
                self.remove_data();
                if !self.try_again {
                    break;
                }
            }
            self.void_silent();
            self.release_held();
            self.tell_caps();
            self.write_directories();
            self.make_room();
            if let Some((object, bytes)) = self.next_append() {
                let length = bytes.len() as u64;
                let name = journal::object_name(self.config.rank, object);
                let operation =
                    self.operation(&name, vec![SubOp::Append { length }], vec![bytes.into()]);
                self.append(operation);
            }
        }
        while let Some((operation, purpose)) = self.queue.pop_front() {
            match objects.submit(now, operation.clone()) {
                Ok(id) => drop(self.under_way.insert(id, purpose)),
                Err(_) => {
                    self.queue.push_front((operation, purpose));
                    break;
                }
            }
        }
        out.append(&mut self.out);
    }

    fn operation(&self, name: &str, ops: Vec<SubOp>, payload: Vec<Bytes>) -> Operation {
        let object = ObjectId {
            name: Name::from(name),
            namespace: self.config.namespace.clone(),
            ..ObjectId::default()
        };
        // Removals are recorded even if there is no space.
        Operation {
            pool: self.config.pool,
            object,
            ops,
            payload,
            flags: op_flag::FULL_OK,
            ..Operation::default()
        }
    }
    /// An operation on a data object, if the object exists.
    fn of_data(&self, pool: PoolId, ino: Ino, number: u64, op: SubOp) -> Operation {
        let ops = vec![SubOp::AssertExists { exists: true }, op];
        Operation {
            pool,
            ..self.operation(&data_name(ino, number), ops, Vec::new())
        }
    }
    fn stamp(&self) -> Stamp {
        Stamp::at(self.config.unix_ms_at_zero, self.now)
    }

    // ── requests ────────────────────────────────────────────────────────────────────────

    fn serve(&mut self) {
        if self.journal.safe() <= self.since {
            return;
        }
        self.settle_locks();
        self.end_delegations();
        self.look_through();
        self.look_for_unsure();
        if !self.is_quiet() {
            // What the last holder had executed is answered now.
            for ((client, _), request) in std::mem::take(&mut self.asked_early) {
                self.on_request(client, request);
            }
        }
        if !self.is_quiet() && std::mem::take(&mut self.tells_first) {
            self.put_tells_first();
            self.put_foretold_first();
        }
        self.take_part();
        // Clients that wait for a request that must be executed before all later ones.
        let mut in_order = BTreeSet::new();
        // A request that was answered once and lacks something must still be executed before
        // anything new.
        let quiet = self.is_quiet() || self.has_again();
        for (client, mut request) in std::mem::take(&mut self.waiting) {
            if self.evicting.has(client) {
                // An earlier request of this turn has ended its session.
                continue;
            }
            if self.journal.is_full()
                || self.is_journal_long()
                || in_order.contains(&client)
                || (quiet && request.again.is_none())
                || self.waits_for_foretold(client, &request)
                || self.waits_for_told(client, &request)
            {
                self.waiting.push_back((client, request));
                continue;
            }
            // Its client's later requests must come after it, because the client applies it on top
            // of all answers. (Simulated: below a quota, a foretold change of an owner waited for
            // its parent directories, and the client's next one did not.)
            let is_foretold = request.foretold.is_some() || request.call.is_foretold();
            let is_ordered = request.again.is_some() || is_foretold;
            if request.call.is_lock() {
                self.lock_request(client, &request);
                continue;
            }
            if request.call == (FsCall::Flush {}) && !self.is_flushed(client, request.number) {
                self.waiting.push_back((client, request));
                continue;
            }
            if let Some(answer) = self.about_clients(&request.call) {
                let stamp = self.stamp();
                self.conclude(client, &request, stamp, Outcome::only(answer));
                continue;
            }
            if request.call == (FsCall::Numbers {}) {
                match self.give_numbers() {
                    Some(outcome) => self.conclude(client, &request, self.stamp(), outcome),
                    None => self.waiting.push_back((client, request)),
                }
                continue;
            }
            if self.waits_for_quota(&request.call)
                || self.waits_for_delegations(client, &request, None)
            {
                in_order.extend(is_ordered.then_some(client));
                self.waiting.push_back((client, request));
                continue;
            }
            if self.waits_for_transaction(client, &request) {
                in_order.extend(is_ordered.then_some(client));
                self.waiting.push_back((client, request));
                continue;
            }
            let own = self.transactions.of((client, request.number));
            let Ok(facts) = self.transactions.facts((client, request.number)) else {
                in_order.extend(is_ordered.then_some(client));
                self.waiting.push_back((client, request));
                continue;
            };
            self.note_hint(&request.call, request.place.as_ref());
            self.touch(&request.call);
            let is_open = |ino| self.caps.is_open(ino);
            // Results reported by the rank's last holder must be repeated exactly.
            let told = request.again.or(request.foretold);
            let given = Ino::given(self.config.rank, self.journal.serial());
            let setting = Setting {
                rank: self.config.rank,
                now: told
                    .map(|told| told.stamp)
                    .or(own.map(|(_, stamp)| stamp))
                    .unwrap_or_else(|| self.stamp()),
                ino: told
                    .map(|told| told.made)
                    .filter(|made| *made != Ino::TOP)
                    .unwrap_or(given),
                layout: self.config.layout,
                is_open: &is_open,
                again: request.again.is_some(),
                is_settling: &|ino| self.settling.contains_key(&ino),
                facts: &facts,
                rooms: self.caps.rooms(),
                room: request
                    .call
                    .ino()
                    .map_or((0, 0), |ino| self.caps.room(client, ino)),
            };
            let (stamp, is_given) = (setting.now, setting.ino == given);
            let verdict = match self.refuse_wrong_number(&request) {
                Some(outcome) => Verdict::Done(outcome),
                None => evaluate(&self.tree, &request.call, &setting),
            };
            match verdict {
                Verdict::Done(mut outcome) => {
                    if self.waits_for_delegations(client, &request, Some(&outcome)) {
                        in_order.extend(is_ordered.then_some(client));
                        self.waiting.push_back((client, request));
                        continue;
                    }
                    if self.rests_on_transaction(client, &request, &outcome) {
                        in_order.extend(is_ordered.then_some(client));
                        self.waiting.push_back((client, request));
                        continue;
                    }
                    if told.is_none() {
                        self.refuse_without_room(&request.call, &mut outcome);
                    }
                    // Others were told that it happens when its client hears of it.
                    outcome.when_safe |= own.is_some() && !outcome.changes.is_empty();
                    if self.waits_for_caps(client, &request, &mut outcome) {
                        in_order.extend(is_ordered.then_some(client));
                        self.waiting.push_back((client, request));
                        continue;
                    }
                    if outcome.took_ino && is_given {
                        self.journal.take_serial();
                    }
                    self.conclude(client, &request, stamp, outcome);
                }
                Verdict::Across(rank, part) => {
                    self.lead(client, &request, stamp, rank, part);
                    // It was answered without another rank before, so it is answered when it is
                    // safe.
                    request.again = None;
                    in_order.extend(is_foretold.then_some(client));
                    self.waiting.push_back((client, request));
                }
                Verdict::Crowded(dir, moved) => {
                    if self.take_back_rooms(dir, moved, request.call.ino()) {
                        in_order.extend(is_ordered.then_some(client));
                        self.waiting.push_back((client, request));
                    } else {
                        let failed = Outcome::only(FsAnswer::Failed { errno: EDQUOT });
                        self.conclude(client, &request, stamp, failed);
                    }
                }
                Verdict::Busy(_) => {
                    in_order.extend(is_ordered.then_some(client));
                    self.waiting.push_back((client, request));
                }
                Verdict::Wants(missing) => match self.seek(missing) {
                    Ok(()) => {
                        in_order.extend(is_ordered.then_some(client));
                        self.waiting.push_back((client, request));
                    }
                    Err(errno) => {
                        let failed = Outcome::only(FsAnswer::Failed { errno });
                        self.conclude(client, &request, stamp, failed);
                    }
                },
            }
        }
        if quiet && !self.is_quiet() && !self.has_again() {
            self.try_again = true;
        }
        if self.waiting.is_empty() {
            self.forget_hints();
        }
    }

    /// Marks what a call concerns as used in this turn.
    fn touch(&mut self, call: &FsCall) {
        let places = call
            .ino()
            .and_then(|ino| self.tree.place(ino))
            .map(|(dir, name)| (dir, name_hash(name)));
        let names = call.names().map(|(dir, name)| (dir, name_hash(name)));
        let listed = if let FsCall::List { dir, after, .. } = *call {
            Some((dir, after + 1))
        } else {
            None
        };
        for (dir, hash) in places.into_iter().chain(names).chain(listed) {
            self.tree.touch(dir, hash, self.turns);
        }
    }
    /// Applies a change that is in the journal.
    fn apply(&mut self, change: Change) {
        self.removing.see(&change, self.config.rank);
        self.writers.see(&change);
        self.dirty.note(&change);
        if let Change::End { dir } = &change {
            self.popularity.gone(*dir);
            // Its journaled state would be searched for in vain and keep the journal from being
            // trimmed.
            self.overlay.end(*dir);
            self.delegations.gone(*dir);
        }
        self.tree.apply(change);
    }

    /// Makes changes that no client has requested; returns their batch. `waits`: clients that must
    /// drop something first.
    fn change_unasked(&mut self, changes: Vec<Change>, waits: &[crate::shares::Wait]) -> u64 {
        let batch = self.journal.push(&changes, None);
        for change in changes {
            self.note_fresh(None, batch, &change, waits);
            self.apply(change);
        }
        self.try_again = true;
        batch
    }

    /// A request is complete: nothing waits for it any more.
    fn end_request(&mut self, client: ClientId, number: u64) {
        if self.asked.remove(&(client, number))
            && let Some(session) = self.sessions.get_mut(&client)
        {
            session.open = session.open.saturating_sub(1);
        }
    }

    fn conclude(&mut self, client: ClientId, request: &FsRequest, stamp: Stamp, outcome: Outcome) {
        self.end_request(client, request.number);
        self.count_popular(&request.call);
        if request.foretold.is_some() {
            self.end_foretold(client);
        }
        self.end_delegating(client, Some(request.number));
        let Outcome {
            answer,
            changes,
            opened,
            when_safe,
            room,
            ..
        } = outcome;
        let number = request.number;
        let changed = !changes.is_empty();
        self.transactions.end_request((client, number));
        if !changed {
            self.transactions.give_up((client, number));
        }
        let mut after = self.rests_on(client, &request.call, &answer, &changes);
        if when_safe {
            after.batch = after.batch.max(Some(self.journal.number()));
        }
        let place = request
            .call
            .ino()
            .filter(|_| changed)
            .and_then(|ino| self.tree.place(ino));
        let place = place.map(|(dir, name)| FsPlace {
            dir,
            name: name.clone(),
        });
        if !self.sessions.contains_key(&client) {
            return;
        }
        // What others cache of what changes now.
        for change in &changes {
            self.shares
                .on_change(Some(client), change, &self.tree, &mut after.waits);
        }
        let inos_changed = self.inos_of(&changes);
        for change in &changes {
            self.apply(change.clone());
        }
        let mut reply = FsReply {
            number,
            safe: is_safe_at_once(changed),
            stamp,
            place,
            keep: false,
            shares: Vec::new(),
            delegated: Vec::new(),
            changed: inos_changed,
            caps: Vec::new(),
            answer,
        };
        if changed {
            self.bound_after(&request.call);
        }
        self.end_coming(client, number);
        let written = opened;
        let opened = opened.filter(|_| !is_counted(request));
        self.note_opened(client, opened);
        self.note_written(
            client,
            &request.call,
            matches!(reply.answer, FsAnswer::Failed { .. }),
        );
        after.batch = after.batch.max(self.before_alone(client, &request.call));
        let opening = self.unsafe_opening(client, written);
        reply.safe &= opening.is_none();
        let mut file = opened.and_then(Opened::file);
        if let (Some(room), Some(ino)) = (room, request.call.ino()) {
            self.caps.give_room(client, ino, room);
            file = Some(ino);
        }
        self.forget_before_writing(client, file, &mut after);
        self.caps_concluded(
            client,
            request,
            matches!(reply.answer, FsAnswer::Failed { .. }),
        );
        if !matches!(
            request.call,
            FsCall::Unlink { .. } | FsCall::StatLite { .. }
        ) {
            self.note_home(client, &mut reply.answer);
        }
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        let mut batch = None;
        // Failures, too: a resend must not succeed later.
        if changed || request.call.is_change() {
            if changed {
                let safe_below = session.safe_below;
                let kept = FsReply {
                    safe: true,
                    ..reply.clone()
                };
                let answered = Answered {
                    client,
                    instance: session.instance,
                    safe_below,
                    reply: kept,
                };
                let pushed = self.journal.push(&changes, Some(answered));
                batch = Some(pushed);
                if let Some(progress) = self.transactions.commit((client, number), pushed) {
                    self.journal.push_progress(progress);
                }
            } else if opening.is_some() {
                batch = opening;
            }
            session.early.extend(batch.map(|batch| (batch, number)));
            let kept = Kept {
                reply: reply.clone(),
                batch,
                after: after.clone(),
                inherited: false,
            };
            session.answers.insert(number, kept);
        }
        if let Some(batch) = batch {
            for change in &changes {
                // It is not shown what its own request depends on before that is answered.
                let who = Some(client).filter(|_| after.batch.is_none());
                self.note_fresh(who, batch, change, &after.waits);
            }
            if let FsCall::Make { dir, .. } = request.call
                && request.call.is_unnamed()
            {
                // When it is executed again, it must find its directory unchanged: others' changes
                // of that come later.
                let who = Some(client).filter(|_| after.batch.is_none());
                self.note_fresh_ino(who, batch, dir, &after.waits);
            }
        }
        if after.is_nothing() {
            self.grant(client, &request.call, &mut reply);
            self.delegate(client, &request.call, &mut reply);
            self.give_caps(client, file, &mut reply);
            self.out.push((client, Say::Reply(reply)));
        } else {
            self.held.push(sharing::Held {
                after,
                client,
                reply,
                batch,
                file,
            });
        }
    }

    // ── objects ─────────────────────────────────────────────────────────────────────────

    fn on_completion(&mut self, completion: Completion) {
        let Some(purpose) = self.under_way.remove(&completion.id) else {
            return;
        };
        let not_there = matches!(
            completion.result,
            Err(Failure::Refused(
                OpFailure::NotFound {} | OpFailure::Guard { .. }
            ))
        );
        match (purpose, completion.result) {
            (Purpose::Journal(object), Ok(done)) => self.on_journal(object, Some(done)),
            (Purpose::Journal(object), Err(_)) if not_there => self.on_journal(object, None),
            (Purpose::ReadHead, Ok(done)) => {
                self.on_head(Some(&done.payload.concat()));
            }
            (Purpose::ReadHead, Err(_)) if not_there => self.on_head(None),
            (Purpose::Parent(dir), Ok(done)) => self.on_parent(dir, Some(&done.results)),
            (Purpose::Parent(dir), Err(_)) => self.on_parent(dir, None),
            (Purpose::Write | Purpose::Delete, Ok(_)) => self.on_written(),
            (Purpose::Delete, Err(_)) if not_there => self.on_written(),
            (Purpose::Head, Ok(_)) => self.on_head_written(),
            (Purpose::Append(_), Ok(_)) => self.on_appended(),
            (Purpose::Append(operation), Err(Failure::Refused(OpFailure::Full {})))
                if !room::is_urgent(&operation) =>
            {
                self.on_full(operation);
            }
            (Purpose::Page(page), Ok(done)) => self.on_page(page, &done.results),
            (Purpose::Page(page), Err(_)) => {
                let (dir, frag) = page.of();
                self.lose(dir, frag);
            }
            (Purpose::Remove(ino), Err(_)) if not_there => self.part_removed(ino),
            (Purpose::Remove(ino), Ok(_)) => self.part_removed(ino),
            (Purpose::Fence(client), ended) => self.on_fenced(client, ended.is_ok()),
            (
                Purpose::Probe {
                    client,
                    ino,
                    number,
                },
                ended,
            ) => {
                self.on_probed(client, ino, number, ended.ok().as_ref());
            }
            (
                Purpose::ReadHead
                | Purpose::Journal(_)
                | Purpose::Append(_)
                | Purpose::Write
                | Purpose::Delete
                | Purpose::Head
                | Purpose::Remove(_),
                Err(why),
            ) => {
                // The state of the journal is unknown: the next holder of the rank reads it.
                self.phase = Phase::Ended(format!("its objects: {why}"));
            }
        }
    }

    fn part_removed(&mut self, ino: Ino) {
        self.removing.part_gone(ino);
        self.remove_parts(ino);
    }

    fn on_appended(&mut self) {
        let before = self.journal.safe();
        self.journal.on_appended();
        self.lengths
            .note(self.journal.object(), self.journal.length());
        let safe = self.journal.safe();
        self.release = true;
        self.settling.retain(|_, batch| *batch >= safe);
        self.writers.on_safe(safe);
        for (client, session) in &mut self.sessions {
            if before <= session.since && session.since < safe {
                let again = self.expected.contains(client);
                self.out.push((
                    *client,
                    Say::Welcome {
                        again,
                        greeting: session.greeting,
                    },
                ));
            }
            let mut numbers = Vec::new();
            while let Some((_, number)) = session.early.pop_front_if(|(batch, _)| *batch < safe) {
                numbers.push(number);
            }
            if !numbers.is_empty() {
                self.out.push((*client, Say::Safe(FsSafe { numbers })));
            }
        }
        // A request that waited for room in the batch.
        self.try_again = true;
    }
}

/// Shows what it is waiting for, for debugging.
impl std::fmt::Debug for Mds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting: Vec<_> = self
            .waiting
            .iter()
            .map(|(client, request)| (client, request.number, &request.call))
            .collect();
        f.debug_struct("Mds")
            .field("live", &self.is_live())
            .field("quiet", &self.is_quiet())
            .field("evicting", self.evicting.open())
            .field("probing", &self.probing)
            .field("waiting", &waiting)
            .field("loading", &self.loading)
            .field("lost", &self.lost)
            .field("unread", &self.overlay.parts())
            .field("round", &self.writing)
            .field(
                "journal",
                &(
                    self.first,
                    self.journal.object(),
                    self.journal.safe(),
                    self.journal.end(),
                ),
            )
            .field("under_way", &self.under_way.values())
            .field("queue", &self.queue.len())
            .field("capabilities", &self.capabilities)
            .field("caps", &self.caps)
            .field("delegations", &(&self.delegations, &self.delegating))
            .field("transactions", &(&self.transactions, &self.across))
            .field("removing", &self.removing)
            .finish_non_exhaustive()
    }
}

/// The initial objects of a file system: the hidden directories of a rank, and for the first rank
/// the root.
#[must_use]
pub fn first_objects(config: &MdsConfig, now: Stamp) -> Vec<Operation> {
    first_objects_owned(config, now, (0, 0))
}

/// The same with a root that belongs to a user and a group: otherwise a user who creates a file
/// system and may not change owners could write nothing in it.
#[must_use]
pub fn first_objects_owned(
    config: &MdsConfig,
    now: Stamp,
    (uid, gid): (u32, u32),
) -> Vec<Operation> {
    let empty = Head {
        mtime: now,
        ..Head::default()
    };
    let hidden =
        [Ino::links(config.rank), Ino::strays(config.rank)].map(|dir| (dir, empty, Vec::new()));
    let mut objects = Vec::new();
    if config.rank == Ino::ROOT.rank() {
        let top = Head {
            entries: 1,
            directories: 1,
            directories_below: 1,
            ..empty
        };
        let inode = Inode {
            uid,
            gid,
            ..Inode::root(now)
        };
        let (key, entry) = (
            entry_key(&Name::from("root")),
            Entry::Inode {
                inode,
                head: Some(Box::new(empty)),
            },
        );
        let key = Bytes::copy_from_slice(key.as_bytes());
        objects.push((Ino::TOP, top, vec![(key, entry.to_bytes().into())]));
        objects.push((Ino::ROOT, empty, Vec::new()));
    }
    objects.extend(hidden);
    let make = |(dir, head, entries): (Ino, Head, Vec<(Bytes, Bytes)>)| {
        let mut ops = vec![
            SubOp::Create { exclusive: true },
            SubOp::SetAttr {
                name: HEAD_ATTR.into(),
                value: head.to_bytes().into(),
            },
        ];
        if !entries.is_empty() {
            ops.push(SubOp::OmapSet { entries });
        }
        let name = Name::from(&*fragment_name(dir, Frag::WHOLE));
        let object = ObjectId {
            name,
            namespace: config.namespace.clone(),
            ..ObjectId::default()
        };
        Operation {
            pool: config.pool,
            object,
            ops,
            ..Operation::default()
        }
    };
    objects.into_iter().map(make).collect()
}

/// The name of a fragment's object.
#[must_use]
pub fn fragment_name(dir: Ino, frag: Frag) -> String {
    format!("dir.{dir}.{frag}")
}

/// What changes nothing is safe at once; a change is when the journal has it.
#[nacre_types::planted]
fn is_safe_at_once(changed: bool) -> bool {
    !changed
}

/// Whether the effect of a request on open files is known: a client that was answered once has
/// included it in what it reported as open.
fn is_counted(request: &FsRequest) -> bool {
    request
        .again
        .is_some_and(|again| again.stamp != Stamp::default())
}
/// The file that a request opened or closed, according to its answer.
fn opened_by(call: &FsCall, answer: &FsAnswer) -> Option<Opened> {
    match (call, answer) {
        (
            FsCall::Make {
                open: true, write, ..
            }
            | FsCall::Open { write, .. },
            FsAnswer::Node { node, .. },
        ) if node.inode.is_file() => Some(Opened {
            ino: node.inode.ino,
            write: *write,
            closed: false,
        }),
        (FsCall::Close { ino, write, .. }, FsAnswer::Done {} | FsAnswer::Node { .. }) => {
            Some(Opened {
                ino: *ino,
                write: *write,
                closed: true,
            })
        }
        _ => None,
    }
}
