//! Clients that read, write, delete, compare and set registers, one operation at a time each, and
//! record what they saw.
//!
//! A register is an object; its value is repeated through the object's data, whose length follows
//! from the value, so that a torn or mixed object cannot be mistaken for a value. A client that has
//! waited too long abandons its operation and continues under another name.

use crate::claims::{Chores, Notices};
use crate::fencing::{Fencer, Fencing};
use crate::filling::Filler;
use crate::programs::library::{Patron, Shelf};
use crate::programs::random::caller::Caller;
use crate::programs::random::diary::Diary;
use crate::programs::{Book, Calls};
use crate::rng::Rng;
use crate::snapshots::{Album, Snapper};
use crate::spanning::{Span, Spanner};
use crate::streams::{Streamer, Streams};
use bytes::Bytes;
use nacre_client::{
    Client, ClientConfig, Completion, Done, Failure, ObjectCluster, OpId, Operation,
};
use nacre_history::record::Outcome;
use nacre_history::{Kind, Record};
use nacre_types::{ClientId, Instance, ObjectId, PoolId, Time};
use nacre_wire::msg::client::{OpFailure, SubOp};
use std::collections::BTreeSet;
use std::time::Duration;

const MS: u64 = crate::plan::MS;
/// Recurring values of registers are 1 to this.
const VALUES: u64 = 3;

/// The object of a register.
#[must_use]
pub fn register(key: u64) -> ObjectId {
    ObjectId::named(&format!("register-{key}"))
}

/// The data of an object whose register has this value.
#[must_use]
pub fn content(value: u64) -> Bytes {
    // Half of them are one block, as most of what clients write: stores have a short way for it.
    let words = match value % 2 {
        0 => 512,
        _ => 1 + (value % 7) * (value % 7) * (value % 31),
    };
    value.to_le_bytes().repeat(words as usize).into()
}

/// The value in an object's data.
///
/// # Errors
/// What is wrong with the data.
pub fn value_of(data: &[u8]) -> Result<u64, String> {
    let first: [u8; 8] = data
        .get(..8)
        .and_then(|head| head.try_into().ok())
        .ok_or("shorter than a value")?;
    let value = u64::from_le_bytes(first);
    if content(value)[..] == *data {
        Ok(value)
    } else {
        Err(format!(
            "{} bytes that are not those of {value}",
            data.len()
        ))
    }
}

/// A temporary task of a client, instead of its usual operations on random registers.
#[derive(Clone, Copy, Debug)]
pub struct Aim {
    /// The register.
    pub key: u64,
    /// Whether it only reads; otherwise it only updates.
    pub reads: bool,
    /// Longest pause between two operations, in nanoseconds.
    pub think_ns: u64,
    /// When it ends, in virtual nanoseconds.
    pub until: u64,
}

/// One client.
#[derive(Debug)]
pub struct SimClient {
    /// The role.
    pub role: Client,
    /// Set if it ends occasionally and restarts as the next instance.
    lives: Option<ClientConfig>,
    ends: bool,
    name: u64,
    current: Option<(OpId, Record, u64)>,
    chores: Chores,
    calls: Calls,
    caller: Caller,
    patron: Patron,
    spanner: Spanner,
    snapper: Snapper,
    streamer: Streamer,
    fencer: Fencer,
    filler: Filler,
    next_at: u64,
    think_ns: u64,
    /// Whether to begin no new operations.
    pub finished: bool,
    /// Its temporary task.
    pub aim: Option<Aim>,
}

/// State shared by all clients.
#[derive(Debug)]
pub struct Workload {
    /// The operations.
    pub history: Vec<Record>,
    /// Operations that were refused because their outcome cannot be known: such an answer still
    /// counts as an answer.
    pub refused: BTreeSet<usize>,
    /// Results of watches and locks.
    pub notices: Notices,
    /// Results of method calls.
    pub book: Book,
    /// Results of calls of random classes.
    pub diary: Diary,
    /// What is known about the library's objects.
    pub shelf: Shelf,
    /// Results of writes of several objects.
    pub span: Span,
    /// Results of snapshots.
    pub album: Album,
    /// Results of streams.
    pub streams: Streams,
    /// Results of fenced clients.
    pub fencing: Fencing,
    /// Rare paths of full devices.
    pub filling: crate::borders::Borders,
    fills: bool,
    claims: bool,
    programs: bool,
    randoms: bool,
    library: bool,
    spans: bool,
    snaps: bool,
    depth: usize,
    client_ops: usize,
    recur: bool,
    contend: bool,
    fences: bool,
    clients: u64,
    lives: bool,
    /// Clients that ended and restarted as a new instance.
    pub reborn: u64,
    /// All faults have ended.
    pub calm: bool,
    keys: u64,
    next_value: u64,
    next_name: u64,
    /// Values seen last, so that some compare-and-set operations succeed.
    seen: Vec<Option<u64>>,
}

impl Workload {
    /// Creates this many registers and, according to the plan, watches and locks, method calls, and
    /// snapshots.
    #[must_use]
    pub fn new(plan: &crate::Plan) -> Self {
        let crate::Plan {
            seed,
            keys,
            claims,
            programs,
            randoms,
            library,
            spans,
            snaps,
            lives,
            depth,
            client_ops,
            recur,
            contend,
            fences,
            clients,
            ..
        } = *plan;
        Self {
            history: Vec::new(),
            refused: BTreeSet::new(),
            notices: Notices::default(),
            book: Book::default(),
            diary: Diary::new(seed),
            shelf: Shelf::default(),
            span: Span::default(),
            album: Album::default(),
            streams: Streams::default(),
            filling: crate::borders::Borders::default(),
            fills: plan.small_disks,
            fencing: Fencing::new(plan.lifts),
            claims,
            programs,
            randoms,
            library,
            spans,
            snaps,
            depth,
            client_ops,
            recur,
            contend,
            fences,
            clients,
            lives,
            reborn: 0,
            calm: false,
            keys,
            next_value: 0,
            next_name: 0,
            seen: vec![None; keys as usize],
        }
    }

    /// Whether clients are short-lived, in PGs that forget them.
    #[must_use]
    pub const fn is_forgetful(&self) -> bool {
        self.lives
    }

    /// A new client.
    pub fn client(&mut self, index: u64, rng: &mut Rng, now: Time) -> SimClient {
        let mut config = ClientConfig::new(ClientId(1000 + index));
        config.retry_interval = Duration::from_millis(rng.between(300, 1500));
        config.ops_max = self.client_ops;
        self.next_name += 1;
        // A client with other tasks has only one instance, because locks and watches belong to an
        // instance.
        let lives = self.lives && index % 2 == 1;
        // A slow client reports for a long time that nothing newer was answered, so a late
        // duplicate cannot be distinguished from a first request by that.
        let slow = self.contend && !index.is_multiple_of(4);
        let fencer = Fencer::new(self.fences, index, self.clients);
        let only = lives || slow || fencer.is_victim();
        SimClient {
            role: Client::new(config, now),
            lives: (lives || fencer.is_victim()).then_some(config),
            ends: false,
            name: self.next_name,
            current: None,
            chores: Chores::new(self.claims && !only),
            calls: Calls::new(self.programs && !only, index),
            caller: Caller::new(self.randoms && !only, index),
            patron: Patron::new(self.library && !only),
            spanner: Spanner::new(self.spans && !only),
            snapper: Snapper::new(self.snaps && !only),
            streamer: Streamer::new(self.depth > 0 && !only, self.depth),
            fencer,
            filler: Filler::new(self.fills && !only, index, self.clients),
            next_at: 0,
            think_ns: if slow {
                rng.between(MS * 100, MS * 1000)
            } else {
                rng.between(MS / 10, MS * 20)
            },
            finished: false,
            aim: None,
        }
    }
}

impl SimClient {
    /// When it next has something to do, in virtual nanoseconds.
    #[must_use]
    pub fn next_at(&self) -> u64 {
        let own = match &self.current {
            Some((_, _, give_up)) => *give_up,
            None if self.finished => u64::MAX,
            None => self.next_at,
        };
        let chores = self
            .chores
            .next_at(self.finished)
            .min(self.snapper.next_at(self.finished));
        let calls = self
            .calls
            .next_at(self.finished)
            .min(self.caller.next_at(self.finished));
        let others = self
            .patron
            .next_at(self.finished)
            .min(self.spanner.next_at(self.finished));
        let last = self
            .streamer
            .next_at(self.finished)
            .min(self.fencer.next_at(self.finished));
        let last = last.min(self.filler.next_at(self.finished));
        let own = if self.fencer.is_victim() {
            u64::MAX
        } else {
            own
        };
        own.min(chores).min(calls).min(others).min(last)
    }

    /// Whether an operation is in flight.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    /// Objects it is waiting for, and since when: registers, streams and those of fenced clients.
    #[must_use]
    pub fn waits_for(&self, work: &Workload) -> Vec<(ObjectId, u64)> {
        let key = |record: &Record| register(record.key.parse().expect("keys are numbers"));
        let own = self
            .current
            .iter()
            .map(|(_, record, _)| (key(record), record.invoke_ns));
        own.chain(self.streamer.waits_for())
            .chain(self.fencer.waits_for(&work.fencing))
            .chain(self.filler.waits_for())
            .collect()
    }

    /// Whether its watches and locks are idle.
    #[must_use]
    pub fn is_settled(&self, work: &Workload) -> bool {
        self.chores.is_settled(&self.role, &work.notices)
            && self.calls.is_settled()
            && self.caller.is_settled()
            && self.patron.is_settled()
            && self.spanner.is_settled()
            && self.snapper.is_settled()
            && self.streamer.is_settled()
            && self.fencer.is_settled()
            && self.filler.is_settled()
    }

    /// Takes results; abandons what takes too long; begins something new. `now` is virtual, `local`
    /// the client's clock.
    pub fn advance(&mut self, now: u64, local: Time, work: &mut Workload, rng: &mut Rng) {
        let mut ended = Vec::new();
        self.role.completions(&mut ended);
        for Completion { id, result } in ended {
            if let Some((_, record, _)) = self.current.take_if(|(current, ..)| *current == id) {
                self.end(record, result, now, work, rng);
                continue;
            }
            let ended = Completion { id, result };
            if self.calls.on_completion(&ended, now, &mut work.book)
                || self.caller.on_completion(&ended, now, &mut work.diary)
                || self.patron.on_completion(&ended, now, &mut work.shelf)
                || self.spanner.on_completion(&ended, &mut work.span)
                || self
                    .streamer
                    .on_completion(&ended, &self.role, &mut work.streams)
                || self.fencer.on_completion(&ended, &mut work.fencing)
                || self.filler.on_completion(&ended, &mut work.filling)
            {
                continue;
            }
            if let Some(other) = self.snapper.on_completion(ended, now, &mut work.album) {
                self.chores
                    .on_completion(other, now, &self.role, &mut work.notices);
            }
        }
        self.snapper.advance(
            now,
            local,
            self.finished,
            &mut self.role,
            &mut work.album,
            rng,
        );
        self.chores.advance(
            now,
            local,
            self.finished,
            &mut self.role,
            &mut work.notices,
            rng,
        );
        self.calls.advance(
            now,
            local,
            self.finished,
            &mut self.role,
            &mut work.book,
            rng,
        );
        self.caller.advance(
            now,
            local,
            self.finished,
            &mut self.role,
            &mut work.diary,
            rng,
        );
        self.patron.advance(
            now,
            local,
            self.finished,
            &mut self.role,
            &mut work.shelf,
            rng,
        );
        self.spanner.advance(
            now,
            local,
            self.finished,
            &mut self.role,
            &mut work.span,
            rng,
        );
        self.streamer.advance(
            now,
            local,
            self.finished,
            &mut self.role,
            &mut work.streams,
            rng,
        );
        self.filler
            .advance(now, local, work.calm || self.finished, &mut self.role, rng);
        let ends = self.fencer.advance(
            now,
            local,
            self.finished,
            &mut self.role,
            &mut work.fencing,
            rng,
        );
        self.ends |= ends;
        if let Some((id, _, give_up)) = &self.current
            && *give_up <= now
        {
            self.role.abandon(*id);
            let (_, mut record, _) = self.current.take().expect("just seen");
            record.unknown = true;
            work.history.push(record);
            let mut gone = Vec::new();
            self.role.completions(&mut gone);
            work.next_name += 1;
            self.name = work.next_name;
            self.next_at = now;
            self.ends = self.lives.is_some();
        }
        if self.current.is_none()
            && std::mem::take(&mut self.ends)
            && let Some(config) = &mut self.lives
        {
            config.instance = Instance(config.instance.0 + 1);
            self.role = Client::new(*config, local);
            work.reborn += 1;
        }
        if self.current.is_none()
            && !self.finished
            && self.next_at <= now
            && !self.fencer.is_victim()
        {
            self.begin(now, local, work, rng);
        }
    }

    fn begin(&mut self, now: u64, local: Time, work: &mut Workload, rng: &mut Rng) {
        self.aim.take_if(|aim| aim.until <= now);
        let (key, kind) = match self.aim {
            Some(Aim {
                key, reads: true, ..
            }) => (key, Kind::Read),
            Some(Aim { key, .. }) => (key, *rng.pick(&[Kind::Write, Kind::Cas])),
            None if work.contend => (
                rng.below(work.keys),
                *rng.pick(&[Kind::Read, Kind::Write, Kind::Cas, Kind::Cas, Kind::Cas]),
            ),
            None => (
                rng.below(work.keys),
                *rng.pick(&[Kind::Read, Kind::Read, Kind::Write, Kind::Write, Kind::Cas]),
            ),
        };
        let object = register(key);
        let mut record = Record {
            client: self.name,
            op: kind,
            key: key.to_string(),
            value: None,
            expect: None,
            invoke_ns: now,
            return_ns: None,
            result: None,
            unknown: false,
            fail: false,
        };
        let mut operation = Operation {
            pool: PoolId(1),
            object,
            ..Operation::default()
        };
        let deletes = kind == Kind::Write && rng.one_in(4);
        if kind != Kind::Read && !deletes {
            work.next_value += 1;
            record.value = Some(if work.recur {
                1 + rng.below(VALUES)
            } else {
                work.next_value
            });
        }
        let whole = SubOp::Read {
            offset: 0,
            length: 1 << 20,
        };
        match (kind, record.value) {
            (Kind::Read, _) => operation.ops = vec![whole],
            (Kind::Write, None) => {
                operation.ops = vec![SubOp::Create { exclusive: false }, SubOp::Delete {}]
            }
            (_, value) => {
                let data = content(value.expect("it has one"));
                if kind == Kind::Cas {
                    record.expect = work.seen[key as usize];
                    if work.contend && (self.think_ns > 20 * MS || rng.one_in(2)) {
                        // A guard that fails now and may hold soon.
                        record.expect = Some(rng.between(0, VALUES)).filter(|value| *value > 0);
                    }
                    match record.expect {
                        None => operation.ops.push(SubOp::AssertExists { exists: false }),
                        Some(expected) => {
                            let expected = content(expected);
                            operation.ops.push(SubOp::AssertExists { exists: true });
                            // One byte more than expected, to detect a longer object.
                            operation.ops.push(SubOp::CompareData {
                                offset: 0,
                                length: expected.len() as u64,
                            });
                            operation.payload.push(expected);
                        }
                    }
                }
                operation.ops.push(SubOp::WriteFull {
                    length: data.len() as u64,
                });
                operation.payload.push(data);
            }
        }
        match self.role.submit(local, operation) {
            Ok(id) => {
                self.current = Some((id, record, now + rng.between(2_000_000_000, 12_000_000_000)))
            }
            Err(_) => self.next_at = now + 10_000_000,
        }
    }

    fn end(
        &mut self,
        mut record: Record,
        result: Result<Done, Failure>,
        now: u64,
        work: &mut Workload,
        rng: &mut Rng,
    ) {
        let think = self.aim.map_or(self.think_ns, |aim| aim.think_ns);
        // Frequent operations find nothing more.
        let think = if work.calm { think * 30 } else { think };
        self.next_at = now + rng.below(think) + 1;
        self.ends = self.lives.is_some() && !rng.one_in(3);
        record.return_ns = Some(now);
        let key: usize = record.key.parse().expect("keys are numbers");
        match (record.op, result) {
            (Kind::Read, Ok(done)) => {
                let data: Vec<u8> = done.payload.iter().flatten().copied().collect();
                let value =
                    value_of(&data).unwrap_or_else(|why| panic!("register {key} reads as {why}"));
                work.seen[key] = Some(value);
                record.result = Some(Outcome::Value(Some(value)));
            }
            (Kind::Read, Err(Failure::Refused(OpFailure::NotFound {}))) => {
                work.seen[key] = None;
                record.result = Some(Outcome::Value(None));
            }
            (Kind::Write, Ok(_)) => work.seen[key] = record.value,
            (Kind::Cas, Ok(_)) => {
                work.seen[key] = record.value;
                record.result = Some(Outcome::Swapped(true));
            }
            (Kind::Cas, Err(Failure::Refused(OpFailure::Guard { .. }))) => {
                record.result = Some(Outcome::Swapped(false))
            }
            // A resend that arrived when its result was no longer known: it may have been executed.
            (_, Err(Failure::Refused(OpFailure::Superseded {}) | Failure::Unknown)) => {
                work.refused.insert(work.history.len());
                record.return_ns = None;
                record.unknown = true;
            }
            // Damaged, and the OSDs with other replicas were down.
            (Kind::Read, Err(Failure::Refused(OpFailure::Corrupt { .. }))) => record.fail = true,
            // The first sending may have been executed, or may be executed later.
            (_, Err(Failure::Refused(OpFailure::Corrupt { .. }) | Failure::Doubtful(_))) => {
                record.return_ns = None;
                record.unknown = true;
            }
            (_, Err(Failure::Refused(OpFailure::Full {} | OpFailure::Expired {}))) => {
                record.fail = true
            }
            (kind, Err(failure)) => panic!("a {kind:?} of register {key} failed: {failure}"),
        }
        work.history.push(record);
    }
}
