//! A client that is fenced while it writes and goes on without knowing; and checks of the results.
//!
//! ```text
//!  victim ──writes 1, 2, 3 … without waiting──▶ its object       operator ──fence add──▶ monitors
//!     │  goes on for a while, then restarts as a new instance, with another object
//!     ▼
//!  refused                       witnesses, whose map has the fence, read the object ─▶ always the same
//! ```
//! A primary that answers a witness has the witness's map or a newer one. So whatever the victim
//! sent, and whenever it arrives (late, duplicated, resent to another primary): from the first
//! answer to a witness on, the object does not change any more, and it contains what was
//! acknowledged to the victim before. The lock that the victim took with its first write is free.
//!
//! ```text
//!  operator ──fence rm──▶ monitors     the same instance goes on: its later requests succeed
//!     └──fence add── occasionally, once more
//! ```
//! Where fences are lifted ([`Plan::lifts`](crate::Plan::lifts)): a request under a map without the
//! fence is not refused because of it; the object takes its values in the order in which they were
//! written; a permanently refused write is never executed, however late a duplicate arrives; and a
//! write that depends on a lock that a witness took over meanwhile is refused.

use crate::borders::Borders;
use crate::plan::{MS, Plan, SECOND};
use crate::workload::{Duty, Place, Turn, Workload, operation};
use bytes::Bytes;
use nacre_client::{Client, Completion, Failure, OpId};
use nacre_types::{ClientId, Entity, Epoch, Instance, ObjectId};
use nacre_wire::Payload;
use nacre_wire::map::Fences;
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Writes that the victim has in flight.
const DEPTH: usize = 6;
/// How long an operation may take before its client gives up.
const PATIENCE: u64 = 12 * SECOND;

/// Counters of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instances that were fenced.
    pub fenced: usize,
    /// Operations refused because of a fence.
    pub refused: usize,
    /// Reads that had to return what an earlier one returned.
    pub reads: usize,
    /// Locks of fenced instances that others got.
    pub locks: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            fenced,
            refused,
            reads,
            locks,
        } = self;
        write!(
            f,
            "{fenced} fenced ({refused} operations refused, {reads} reads and {locks} locks after it)"
        )
    }
}

/// One instance of the victim.
#[derive(Debug)]
struct Case {
    object: ObjectId,
    client: ClientId,
    instance: Instance,
    /// The last number written, and the last one acknowledged.
    sent: u64,
    answered: u64,
    /// Whether it is to be fenced, and whether the operator has been told.
    wanted: bool,
    ordered: bool,
    /// Since when it has been fenced continuously, and what the first witness found whose map has
    /// the fence.
    found: Option<(Epoch, u64)>,
    /// The last number found by any witness.
    seen: u64,
    /// Numbers permanently refused to it; numbers found by witnesses.
    refused: BTreeSet<u64>,
    shown: BTreeSet<u64>,
    /// A witness holds the lock that was the victim's.
    locked: bool,
}

/// What the operator does with an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `fence add`.
    Add,
    /// `fence rm`.
    Lift,
}

/// An object's lock without a lease: its holder keeps it while it is alive.
fn lock() -> SubOp {
    SubOp::Lock {
        name: "l".into(),
        cookie: 1,
        shared: false,
        lease_ms: 0,
        description: String::new(),
    }
}

/// What victims and witnesses know.
#[derive(Debug, Default)]
pub struct Fencing {
    cases: Vec<Case>,
    counts: Counts,
    borders: Borders,
    /// Whether fences are lifted.
    lifts: bool,
    /// The fences from each epoch on that changed them.
    fences: BTreeMap<Epoch, Fences>,
    /// Requests that the network duplicated: the answer to one copy need not be true of the other.
    doubled: BTreeSet<(ClientId, u64)>,
}

impl Fencing {
    /// Instances to be fenced or unfenced that were not ordered yet.
    pub fn orders(&mut self) -> Vec<(ClientId, Instance, Order)> {
        let due = self
            .cases
            .iter_mut()
            .filter(|case| case.wanted != case.ordered);
        let order = |case: &mut Case| {
            case.ordered = case.wanted;
            (
                case.client,
                case.instance,
                if case.wanted { Order::Add } else { Order::Lift },
            )
        };
        due.map(order).collect()
    }
    /// Records changes of fences by these maps.
    pub fn see(&mut self, fences: Vec<(Epoch, Fences)>) {
        for (epoch, fences) in fences {
            let before = self.fences.last_key_value().map(|(_, fences)| fences);
            let lifted = |case: &&Case| {
                before.is_some_and(|before| case.is_in(before)) && !case.is_in(&fences)
            };
            self.borders.fences_lifted += u64::from(self.cases.last().filter(lifted).is_some());
            self.fences.insert(epoch, fences);
        }
    }
    /// Records that a request was duplicated.
    pub fn doubled(&mut self, client: ClientId, sequence: u64) {
        self.doubled.insert((client, sequence));
    }

    /// Whether an instance is fenced by an epoch or a later one.
    fn was_fenced_since(&self, case: &Case, epoch: Epoch) -> bool {
        let at = self.fences.range(..=epoch).next_back();
        at.into_iter()
            .chain(self.fences.range(epoch..))
            .any(|(_, fences)| case.is_in(fences))
    }
    /// Whether it may act again at an epoch, after a fence.
    fn is_lifted(&self, case: &Case, epoch: Epoch) -> bool {
        let mut until = self
            .fences
            .range(..=epoch)
            .map(|(_, fences)| case.is_in(fences));
        until.next_back() == Some(false) && until.any(|fenced| fenced)
    }
    /// Since when it has been fenced continuously until now, if it was fenced at that epoch.
    fn fenced_since(&self, case: &Case, epoch: Epoch) -> Option<Epoch> {
        let mut begun = None;
        for (at, fences) in &self.fences {
            match (case.is_in(fences), begun) {
                (true, None) => begun = Some(*at),
                (false, _) => begun = None,
                _ => {}
            }
        }
        begun.filter(|begun| *begun <= epoch)
    }
}

impl Case {
    fn is_in(&self, fences: &Fences) -> bool {
        fences
            .get(&Entity::Client(self.client))
            .is_some_and(|last| self.instance <= *last)
    }
    /// Checks a number that a client found.
    fn check_shown(&self) {
        let belied = self.refused.intersection(&self.shown).next();
        let (name, client, instance) = (&self.object, self.client, self.instance);
        assert!(
            belied.is_none(),
            "{name} was {belied:?}, which {client} {instance} was told is not written"
        );
    }
}

#[derive(Debug)]
struct Flight {
    case: usize,
    /// The number written, or the least number that a witness must find.
    number: u64,
    /// What it must find, and since when the victim is fenced.
    expected: Option<(Epoch, u64)>,
    /// The map's epoch when it was sent.
    epoch: Epoch,
    /// The victim's map no longer had the fence.
    resumes: bool,
    /// A witness already held the lock that it depends on.
    late: bool,
    begun: u64,
}

/// What one client does: the victim, or a witness.
#[derive(Debug)]
pub struct Fencer {
    is_victim: bool,
    case: Option<usize>,
    flying: BTreeMap<OpId, Flight>,
    forgotten: BTreeSet<OpId>,
    next_at: u64,
    /// When it asks to be fenced, when the fence is lifted, and when it notices.
    fence_at: u64,
    lift_at: u64,
    ends_at: u64,
}

impl Workload for Fencer {
    type Records = Fencing;
    type Counts = Counts;

    fn new(plan: &Plan, place: &Place) -> Option<Self> {
        let is_victim = place.duty == Duty::Fenced;
        let is_witness = place.does(plan.fences) && place.index < 2;
        (is_victim || is_witness).then_some(Self {
            is_victim,
            case: None,
            flying: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            next_at: 0,
            fence_at: u64::MAX,
            lift_at: u64::MAX,
            ends_at: u64::MAX,
        })
    }
    fn records(plan: &Plan) -> Fencing {
        Fencing {
            lifts: plan.lifts,
            ..Fencing::default()
        }
    }
    fn waits_for(&self, all: &Fencing) -> Vec<(ObjectId, u64)> {
        let flying = self.flying.values();
        flying
            .map(|flight| (all.cases[flight.case].object.clone(), flight.begun))
            .collect()
    }
    fn is_settled(&self, _: &Client, _: &Fencing) -> bool {
        self.flying.is_empty()
    }
    fn next_at(&self, finished: bool) -> u64 {
        let next = if finished { u64::MAX } else { self.next_at };
        let flying = self.flying.values();
        flying
            .map(|flight| flight.begun + PATIENCE)
            .fold(next, u64::min)
    }
    fn counts(all: &Fencing) -> Counts {
        all.counts
    }
    fn rare(all: &Fencing) -> Borders {
        all.borders
    }

    fn advance(&mut self, turn: &mut Turn<'_>, all: &mut Fencing) {
        let now = turn.now;
        let late = |_: &OpId, flight: &mut Flight| flight.begun + PATIENCE <= now;
        for (id, _) in self.flying.extract_if(.., late) {
            self.forgotten.insert(id);
            turn.role.abandon(id);
        }
        if turn.finished || self.next_at > now {
            return;
        }
        if self.is_victim {
            self.next_at = now + turn.rng.between(MS, 60 * MS);
            self.write(turn, all);
        } else {
            self.next_at = now + turn.rng.between(10 * MS, 300 * MS);
            self.look(turn, all);
        }
    }

    fn on_completion(&mut self, done: &Completion, _: &mut Turn<'_>, all: &mut Fencing) -> bool {
        let Some(flight) = self.flying.remove(&done.id) else {
            return self.forgotten.remove(&done.id);
        };
        if self.is_victim {
            Self::on_written(&flight, done, all);
            return true;
        }
        let since = all.fenced_since(&all.cases[flight.case], flight.epoch);
        let case = &mut all.cases[flight.case];
        let found = match &done.result {
            Ok(done) if matches!(done.results[..], [SubReply::Locked { .. }]) => {
                case.locked = true;
                all.counts.locks += 1;
                return true;
            }
            Ok(done) => {
                let data = done.payload.concat();
                u64::from_le_bytes(data.try_into().expect("a number has eight bytes"))
            }
            Err(Failure::Refused(OpFailure::NotFound {})) => 0,
            Err(Failure::Refused(OpFailure::LockHeld { owner, .. })) => {
                let fenced = since.is_some() && owner.client == case.client;
                assert!(
                    !fenced,
                    "{} is still locked by {owner:?}, who is fenced",
                    case.object
                );
                return true;
            }
            Err(_) => return true,
        };
        let name = &case.object;
        assert!(
            found >= flight.number,
            "{name} is {found}; {} was answered or read before",
            flight.number
        );
        assert!(
            found <= case.sent,
            "{name} is {found}, {} was the last that was sent",
            case.sent
        );
        case.seen = case.seen.max(found);
        case.shown.insert(found);
        case.check_shown();
        // The answering primary may have had a map without the fence, if the fence did not last
        // until now.
        let Some(since) = since else { return true };
        match (flight.expected, case.found) {
            (Some((then, expected)), _) if then == since => {
                assert_eq!(
                    found, expected,
                    "{name} changes although {} {} is fenced",
                    case.client, case.instance
                );
                all.counts.reads += 1;
            }
            (_, Some((then, _))) if then == since => {}
            _ => {
                all.counts.fenced += 1;
                case.found = Some((since, found));
            }
        }
        true
    }
}

impl Fencer {
    fn write(&mut self, turn: &mut Turn<'_>, all: &mut Fencing) {
        let now = turn.now;
        if now >= self.ends_at {
            (self.case, self.fence_at, self.lift_at, self.ends_at) =
                (None, u64::MAX, u64::MAX, u64::MAX);
            self.flying.clear();
            self.forgotten.clear();
            turn.restart();
            return;
        }
        let at = *self.case.get_or_insert_with(|| {
            self.fence_at = now + turn.rng.between(SECOND / 2, 4 * SECOND);
            let (client, instance) = (turn.role.id(), turn.role.instance());
            let object = ObjectId::named(&format!("fenced-{}", all.cases.len()));
            all.cases.push(Case {
                object,
                client,
                instance,
                sent: 0,
                answered: 0,
                wanted: false,
                ordered: false,
                found: None,
                seen: 0,
                refused: BTreeSet::new(),
                shown: BTreeSet::new(),
                locked: false,
            });
            all.cases.len() - 1
        });
        let (resumes, lifts) = (all.is_lifted(&all.cases[at], turn.role.epoch()), all.lifts);
        let case = &mut all.cases[at];
        if now >= self.fence_at {
            (case.wanted, self.fence_at) = (true, u64::MAX);
        }
        if case.found.is_some()
            && case.wanted
            && self.ends_at == u64::MAX
            && self.lift_at == u64::MAX
        {
            if lifts && !turn.rng.one_in(4) {
                self.lift_at = now + turn.rng.between(MS, 2 * SECOND);
            } else {
                self.ends_at = now + turn.rng.between(SECOND / 5, 3 * SECOND);
            }
        }
        if now >= self.lift_at && self.ends_at == u64::MAX {
            (case.wanted, self.lift_at) = (false, u64::MAX);
            // It goes on for a while, and then ends or is fenced once more.
            if turn.rng.one_in(2) {
                self.ends_at = now + turn.rng.between(SECOND, 6 * SECOND);
            } else {
                self.fence_at = now + turn.rng.between(SECOND, 6 * SECOND);
            }
            case.found = None;
        }
        while self.flying.len() < DEPTH {
            let number = case.sent + 1;
            let data = Bytes::copy_from_slice(&number.to_le_bytes());
            let mut ops = vec![SubOp::WriteFull { length: 8 }];
            if number == 1 {
                ops.insert(0, lock());
            }
            // A write that depends on the lock is not executed once another client has it.
            let guarded = resumes && turn.rng.one_in(3);
            if guarded {
                ops.insert(
                    0,
                    SubOp::AssertLock {
                        name: "l".into(),
                        cookie: 1,
                        shared_ok: false,
                    },
                );
            }
            let operation = operation(case.object.clone(), ops, vec![data]);
            let Some(id) = turn.submit(operation) else {
                break;
            };
            case.sent = number;
            let (epoch, late) = (turn.role.epoch(), guarded && case.locked);
            self.flying.insert(
                id,
                Flight {
                    case: at,
                    number,
                    expected: None,
                    epoch,
                    resumes,
                    late,
                    begun: now,
                },
            );
            if turn.rng.one_in(2) {
                break;
            }
        }
    }

    fn look(&mut self, turn: &mut Turn<'_>, all: &Fencing) {
        for (at, case) in all.cases.iter().enumerate().rev().take(2) {
            let knows = turn
                .role
                .map()
                .is_some_and(|map| map.is_fenced(Entity::Client(case.client), case.instance));
            let was = all.lifts && !case.shown.is_empty();
            if !(knows || was) || self.flying.values().any(|flight| flight.case == at) {
                continue;
            }
            // The lock of a fenced instance is free; one of two witnesses gets it.
            let locks = knows && case.found.is_some_and(|(_, found)| found > 0) && !case.locked;
            let ops = vec![if locks {
                lock()
            } else {
                SubOp::Read {
                    offset: 0,
                    length: 64,
                }
            }];
            let operation = operation(case.object.clone(), ops, Payload::new());
            if let Some(id) = turn.submit(operation) {
                let (number, epoch) = (case.answered.max(case.seen), turn.role.epoch());
                let expected = case.found;
                let flight = Flight {
                    case: at,
                    number,
                    expected,
                    epoch,
                    resumes: false,
                    late: false,
                    begun: turn.now,
                };
                self.flying.insert(id, flight);
            }
        }
    }

    /// Handles the end of a victim's write.
    fn on_written(flight: &Flight, done: &Completion, all: &mut Fencing) {
        let was_fenced = all.was_fenced_since(&all.cases[flight.case], flight.epoch);
        let case = &mut all.cases[flight.case];
        // Of a duplicated request, the other copy may have been executed, or may be executed later.
        let once = !all.doubled.contains(&(case.client, done.id.0));
        let (name, client, instance) = (&case.object, case.client, case.instance);
        match &done.result {
            Ok(_) => {
                case.answered = case.answered.max(flight.number);
                assert!(
                    !flight.late,
                    "{name} takes {} of {client}, who has lost its lock",
                    flight.number
                );
                all.borders.resumed += u64::from(flight.resumes);
            }
            Err(Failure::Refused(OpFailure::Fenced {})) => {
                assert!(
                    was_fenced,
                    "{client} {instance} is refused as fenced, and is not since {}",
                    flight.epoch
                );
                all.counts.refused += 1;
                if once {
                    case.refused.insert(flight.number);
                }
            }
            Err(Failure::Doubtful(OpFailure::Fenced {})) => {
                assert!(
                    was_fenced,
                    "{client} {instance} is refused as fenced, and is not since {}",
                    flight.epoch
                );
                all.counts.refused += 1;
                all.borders.fenced_in_doubt += 1;
            }
            Err(Failure::Refused(OpFailure::Guard { .. })) => {
                all.borders.locks_lost += u64::from(flight.late);
                if once {
                    case.refused.insert(flight.number);
                }
            }
            Err(_) => {}
        }
        case.check_shown();
    }
}
