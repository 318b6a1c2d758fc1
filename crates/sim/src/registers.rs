//! Clients that read, write, delete, compare and set registers, one operation at a time each, and
//! record what they saw.
//!
//! A register is an object; its value is repeated through the object's data, whose length follows
//! from the value, so that a torn or mixed object cannot be mistaken for a value. A client that has
//! waited too long abandons its operation and continues under another name. Checked at the end:
//! every register's history is linearizable.

use crate::ledger::Ledger;
use crate::plan::{MS, Plan};
use crate::workload::{Duty, Place, Turn, Workload, operation};
use bytes::Bytes;
use nacre_client::{Client, Completion, Done, Failure, ObjectCluster, OpId};
use nacre_history::record::Outcome;
use nacre_history::{Kind, Record};
use nacre_types::ObjectId;
use nacre_wire::msg::client::{OpFailure, SubOp};
use std::collections::BTreeSet;

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

/// What all clients record.
#[derive(Debug, Default)]
pub struct Registers {
    /// The operations.
    pub history: Vec<Record>,
    /// Operations that were refused because their outcome cannot be known: such an answer still
    /// counts as an answer.
    pub refused: BTreeSet<usize>,
    recur: bool,
    contend: bool,
    keys: u64,
    next_value: u64,
    next_name: u64,
    /// Values seen last, so that some compare-and-set operations succeed.
    seen: Vec<Option<u64>>,
}

/// One client's operations on registers.
#[derive(Debug)]
pub struct RegisterWork {
    name: u64,
    current: Option<(OpId, Record, u64)>,
    next_at: u64,
    think_ns: u64,
    is_short_lived: bool,
    /// Whether its client ends after this operation.
    ends: bool,
    /// Its temporary task.
    pub aim: Option<Aim>,
}

impl Workload for RegisterWork {
    type Records = Registers;
    type Counts = &'static str;

    fn new(_: &Plan, place: &Place) -> Option<Self> {
        (place.duty != Duty::Fenced).then_some(Self {
            name: place.index + 1,
            current: None,
            next_at: 0,
            think_ns: place.think_ns,
            is_short_lived: place.is_short_lived,
            ends: false,
            aim: None,
        })
    }

    fn records(plan: &Plan) -> Registers {
        Registers {
            recur: plan.recur,
            contend: plan.contend,
            keys: plan.keys,
            // The clients' first names are their numbers.
            next_name: plan.clients + u64::from(plan.fences),
            seen: vec![None; plan.keys as usize],
            ..Registers::default()
        }
    }

    fn next_at(&self, finished: bool) -> u64 {
        match &self.current {
            Some((_, _, give_up)) => *give_up,
            None if finished => u64::MAX,
            None => self.next_at,
        }
    }

    fn is_settled(&self, _: &Client, _: &Registers) -> bool {
        self.current.is_none()
    }

    fn waits_for(&self, _: &Registers) -> Vec<(ObjectId, u64)> {
        let key = |record: &Record| register(record.key.parse().expect("keys are numbers"));
        let current = self.current.iter();
        current
            .map(|(_, record, _)| (key(record), record.invoke_ns))
            .collect()
    }

    fn on_completion(
        &mut self,
        ended: &Completion,
        turn: &mut Turn<'_>,
        work: &mut Registers,
    ) -> bool {
        let current = self.current.take_if(|(current, ..)| *current == ended.id);
        let own = current.is_some();
        if let Some((_, record, _)) = current {
            self.end(record, &ended.result, turn, work);
        }
        own
    }

    fn advance(&mut self, turn: &mut Turn<'_>, work: &mut Registers) {
        if let Some((id, mut record, _)) = self.current.take_if(|(.., at)| *at <= turn.now) {
            turn.role.abandon(id);
            record.unknown = true;
            work.history.push(record);
            let mut gone = Vec::new();
            turn.role.completions(&mut gone);
            work.next_name += 1;
            self.name = work.next_name;
            self.next_at = turn.now;
            self.ends = self.is_short_lived;
        }
        if self.current.is_none() && std::mem::take(&mut self.ends) {
            turn.restart();
        }
        if self.current.is_none() && !turn.finished && self.next_at <= turn.now {
            self.begin(turn, work);
        }
    }

    fn counts(_: &Registers) -> &'static str {
        ""
    }

    fn check(work: &Registers, _: &Ledger) {
        if let Err(violations) = nacre_history::check(&work.history) {
            panic!("{}", violations[0]);
        }
    }
}

impl RegisterWork {
    fn begin(&mut self, turn: &mut Turn<'_>, work: &mut Registers) {
        let (now, rng) = (turn.now, &mut *turn.rng);
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
        let mut operation = operation(register(key), vec![], vec![]);
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
        match turn.submit(operation) {
            Some(id) => {
                let give_up = now + turn.rng.between(2000 * MS, 12_000 * MS);
                self.current = Some((id, record, give_up));
            }
            None => self.next_at = now + 10 * MS,
        }
    }

    fn end(
        &mut self,
        mut record: Record,
        result: &Result<Done, Failure>,
        turn: &mut Turn<'_>,
        work: &mut Registers,
    ) {
        let think = self.aim.map_or(self.think_ns, |aim| aim.think_ns);
        // Frequent operations find nothing more.
        let think = if turn.calm { think * 30 } else { think };
        self.next_at = turn.now + turn.rng.below(think) + 1;
        self.ends = self.is_short_lived && !turn.rng.one_in(3);
        record.return_ns = Some(turn.now);
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
