//! A client that is fenced while it writes, does not hear of it and goes on; and what must be true of that.
//!
//! ```text
//!  victim ──writes 1, 2, 3 … without waiting──▶ its object       operator ──fence add──▶ monitors
//!     │  goes on for a while, then comes again as a new instance, with another object
//!     ▼
//!  refused                       witnesses, whose map has the fence, read the object ─▶ always the same
//! ```
//! A primary that answers a witness has the witness's map or a newer one. So whatever the victim sent, and whenever it arrives (late, doubled, sent again to
//! another primary): from the first answer to a witness on the object does not change any more, and what the victim was answered before is there. The lock
//! that it took with its first write is free.

use crate::plan::{MS, SECOND};
use crate::rng::Rng;
use bytes::Bytes;
use nacre_client::{Client, Completion, Failure, ObjectCluster, OpId, Operation};
use nacre_types::{ClientId, Entity, Instance, ObjectId, PoolId, Time};
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Writes that the victim has in flight.
const DEPTH: usize = 6;
/// How long an operation may take before its client gives up.
const PATIENCE: u64 = 12 * SECOND;
const POOL: PoolId = PoolId(1);

/// How much there was of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instances that were fenced.
    pub fenced: usize,
    /// Operations that were refused for it.
    pub refused: usize,
    /// Reads that had to find what an earlier one had found.
    pub reads: usize,
    /// Locks of theirs that others got.
    pub locks: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fenced, refused, reads, locks } = self;
        write!(f, "{fenced} fenced ({refused} operations refused, {reads} reads and {locks} locks after it)")
    }
}

/// One instance of the victim.
#[derive(Debug)]
struct Case {
    object: ObjectId,
    client: ClientId,
    instance: Instance,
    /// The last number that was written, and the last that was answered.
    sent: u64,
    answered: u64,
    /// It is to be fenced; and the operator knows.
    wanted: bool,
    ordered: bool,
    /// What the first witness found whose map has the fence.
    found: Option<u64>,
    /// A witness has the lock that was the victim's.
    locked: bool,
}

/// The lock of an object, without a lease: whoever lives keeps it.
fn lock() -> SubOp {
    SubOp::Lock { name: "l".into(), cookie: 1, shared: false, lease_ms: 0, description: String::new() }
}

/// What victims and witnesses know.
#[derive(Debug, Default)]
pub struct Fencing {
    cases: Vec<Case>,
    /// What there was.
    pub counts: Counts,
}

impl Fencing {
    /// Who is to be fenced and was not ordered to be yet.
    pub fn orders(&mut self) -> Vec<(ClientId, Instance)> {
        let due = self.cases.iter_mut().filter(|case| case.wanted && !case.ordered);
        let order = |case: &mut Case| {
            case.ordered = true;
            (case.client, case.instance)
        };
        due.map(order).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Nobody,
    Victim,
    Witness,
}

#[derive(Debug)]
struct Flight {
    case: usize,
    /// The number that is written; what a witness must find.
    number: u64,
    expected: Option<u64>,
    begun: u64,
}

/// What one client does.
#[derive(Debug)]
pub struct Fencer {
    part: Part,
    case: Option<usize>,
    flying: BTreeMap<OpId, Flight>,
    forgotten: BTreeSet<OpId>,
    next_at: u64,
    /// When it has itself fenced, and when it notices.
    fence_at: u64,
    ends_at: u64,
}

impl Fencer {
    /// The client of an index: among the first two are witnesses, the one after the last is the victim.
    #[must_use]
    pub const fn new(enabled: bool, index: u64, clients: u64) -> Self {
        let part = match index {
            _ if !enabled => Part::Nobody,
            0 | 1 => Part::Witness,
            index if index == clients => Part::Victim,
            _ => Part::Nobody,
        };
        Self {
            part,
            case: None,
            flying: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            next_at: 0,
            fence_at: u64::MAX,
            ends_at: u64::MAX,
        }
    }
    /// Whether it does nothing else.
    #[must_use]
    pub fn is_victim(&self) -> bool {
        self.part == Part::Victim
    }
    /// Whether nothing is under way.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.flying.is_empty()
    }
    /// When it next has something to do, in virtual nanoseconds.
    #[must_use]
    pub fn next_at(&self, finished: bool) -> u64 {
        let give_up = self.flying.values().map(|flight| flight.begun + PATIENCE).min().unwrap_or(u64::MAX);
        let next = if finished || self.part == Part::Nobody { u64::MAX } else { self.next_at };
        give_up.min(next)
    }

    /// Does what is due. Whether the client ends here and comes again as a new instance.
    pub fn advance(
        &mut self,
        now: u64,
        local: Time,
        finished: bool,
        role: &mut Client,
        all: &mut Fencing,
        rng: &mut Rng,
    ) -> bool {
        let late: Vec<OpId> =
            self.flying.iter().filter(|(_, flight)| flight.begun + PATIENCE <= now).map(|(id, _)| *id).collect();
        for id in late {
            self.flying.remove(&id);
            self.forgotten.insert(id);
            role.abandon(id);
        }
        if finished || self.next_at > now {
            return false;
        }
        match self.part {
            Part::Nobody => {}
            Part::Witness => {
                self.next_at = now + rng.between(10 * MS, 300 * MS);
                self.look(now, local, role, all);
            }
            Part::Victim => {
                self.next_at = now + rng.between(MS, 60 * MS);
                return self.write(now, local, role, all, rng);
            }
        }
        false
    }

    fn write(&mut self, now: u64, local: Time, role: &mut Client, all: &mut Fencing, rng: &mut Rng) -> bool {
        if now >= self.ends_at {
            (self.case, self.fence_at, self.ends_at) = (None, u64::MAX, u64::MAX);
            self.flying.clear();
            self.forgotten.clear();
            return true;
        }
        let at = *self.case.get_or_insert_with(|| {
            self.fence_at = now + rng.between(SECOND / 2, 4 * SECOND);
            let (client, instance) = (role.id(), role.instance());
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
                locked: false,
            });
            all.cases.len() - 1
        });
        let case = &mut all.cases[at];
        case.wanted |= now >= self.fence_at;
        if case.found.is_some() && self.ends_at == u64::MAX {
            self.ends_at = now + rng.between(SECOND / 5, 3 * SECOND);
        }
        while self.flying.len() < DEPTH {
            let number = case.sent + 1;
            let data = Bytes::copy_from_slice(&number.to_le_bytes());
            let mut ops = vec![SubOp::WriteFull { length: 8 }];
            if number == 1 {
                ops.insert(0, lock());
            }
            let payload = vec![data];
            let operation = Operation { pool: POOL, object: case.object.clone(), ops, payload, ..Operation::default() };
            let Ok(id) = role.submit(local, operation) else { break };
            case.sent = number;
            self.flying.insert(id, Flight { case: at, number, expected: None, begun: now });
            if rng.one_in(2) {
                break;
            }
        }
        false
    }

    fn look(&mut self, now: u64, local: Time, role: &mut Client, all: &Fencing) {
        for (at, case) in all.cases.iter().enumerate().rev().take(2) {
            let knows = role.map().is_some_and(|map| map.is_fenced(Entity::Client(case.client), case.instance));
            if !knows || self.flying.values().any(|flight| flight.case == at) {
                continue;
            }
            // The lock of who may not act any more is free; of two witnesses one gets it.
            let locks = case.found.is_some_and(|found| found > 0) && !case.locked;
            let ops = vec![if locks { lock() } else { SubOp::Read { offset: 0, length: 64 } }];
            let operation = Operation { pool: POOL, object: case.object.clone(), ops, ..Operation::default() };
            if let Ok(id) = role.submit(local, operation) {
                let flight = Flight { case: at, number: case.answered, expected: case.found, begun: now };
                self.flying.insert(id, flight);
            }
        }
    }

    /// An operation has ended. Whether it was one of these.
    pub fn on_completion(&mut self, done: &Completion, all: &mut Fencing) -> bool {
        let Some(flight) = self.flying.remove(&done.id) else { return self.forgotten.remove(&done.id) };
        let case = &mut all.cases[flight.case];
        if self.part == Part::Victim {
            match &done.result {
                Ok(_) => case.answered = case.answered.max(flight.number),
                Err(Failure::Refused(OpFailure::Fenced {})) => {
                    assert!(case.wanted, "{} {} is refused as fenced, and is not", case.client, case.instance);
                    all.counts.refused += 1;
                }
                Err(_) => {}
            }
            return true;
        }
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
                assert!(owner.client != case.client, "{} is still locked by {owner:?}, who is fenced", case.object);
                return true;
            }
            Err(_) => return true,
        };
        let name = &case.object;
        assert!(found >= flight.number, "{name} is {found}; {} was answered before", flight.number);
        assert!(found <= case.sent, "{name} is {found}, {} was the last that was sent", case.sent);
        if let Some(expected) = flight.expected {
            assert_eq!(found, expected, "{name} changes although {} {} is fenced", case.client, case.instance);
            all.counts.reads += 1;
        } else if case.found.is_none() {
            all.counts.fenced += 1;
            case.found = Some(found);
        }
        true
    }
}
