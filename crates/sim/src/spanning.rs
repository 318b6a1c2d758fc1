//! Clients that write three objects together under locks, and clients that read them under locks
//! (CHECKLIST CEPH-09).
//!
//! A write ([`SpanningWrite`]) puts one number into all objects. It may lose its locks to a
//! contender when it is silent for longer than its lease, and end with only some objects written,
//! which it then reports. A reader takes the locks shared, in order, and reads each object in one
//! operation with the guard. Checked: a reader that held all locks sees one number everywhere, or
//! numbers of a write that failed (its writer gave up or lost a lock). An acknowledged write is
//! never seen torn.

use crate::ledger::Ledger;
use crate::plan::{MS, Plan};
use crate::rng::Rng;
use crate::workload::{POOL, Place, Turn, Workload, operation};
use bytes::Bytes;
use nacre_client::{Client, Completion, Failure, OpId, Operation};
use nacre_client::{LockTerms, Part, SpanningWrite};
use nacre_types::ObjectId;
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, SubOp};
use std::collections::BTreeSet;
use std::fmt;

const OBJECTS: u64 = 3;

/// Counters of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Writes that succeeded.
    pub writes: usize,
    /// Writes that left, or may have left, only some objects written.
    pub torn: usize,
    /// Reads of all objects under all locks.
    pub reads: usize,
    /// Of these, with more than one number.
    pub mixed: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            writes,
            torn,
            reads,
            mixed,
        } = self;
        write!(
            f,
            "{writes} spanning writes ({torn} torn), {reads} reads under all locks ({mixed} mixed)"
        )
    }
}

/// What all clients record.
#[derive(Debug, Default)]
pub struct Span {
    numbers: u64,
    well: BTreeSet<u64>,
    torn: usize,
    reads: usize,
    mixed: Vec<Vec<u64>>,
}

impl Span {
    /// The counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            writes: self.well.len(),
            torn: self.torn,
            reads: self.reads,
            mixed: self.mixed.len(),
        }
    }

    /// See the module head.
    ///
    /// # Panics
    /// When a check fails: that is the finding.
    pub fn check(&self) {
        for seen in &self.mixed {
            let all_well = seen
                .iter()
                .all(|number| *number == 0 || self.well.contains(number));
            assert!(
                !all_well,
                "{seen:?} was read under all locks, and every one of these writes ended well"
            );
        }
    }
}

fn object(number: u64) -> ObjectId {
    ObjectId::named(&format!("spanned-{number}"))
}
fn lock_name() -> nacre_types::Name {
    "span".into()
}

#[derive(Debug)]
enum Step {
    Lock,
    Read,
    Unlock,
}

/// A reader's steps: lock one object after the other, read one after the other, unlock.
#[derive(Debug)]
struct Reader {
    asked: Option<OpId>,
    step: Step,
    at: u64,
    cookie: u64,
    seen: Vec<u64>,
    /// Locks that it may hold.
    locked: u64,
}

#[derive(Debug)]
enum Doing {
    Write(Box<SpanningWrite>, u64),
    Read(Reader),
}

/// One client's part.
#[derive(Debug, Default)]
pub struct Spanner {
    doing: Option<Doing>,
    next_at: u64,
    /// Whether to retry something that could not be sent.
    stuck: bool,
}

impl Workload for Spanner {
    type Records = Span;
    type Counts = Counts;

    fn new(plan: &Plan, place: &Place) -> Option<Self> {
        place.does(plan.spans).then(Self::default)
    }
    fn next_at(&self, finished: bool) -> u64 {
        match &self.doing {
            Some(_) if self.stuck => self.next_at,
            Some(_) => u64::MAX,
            None if finished => u64::MAX,
            None => self.next_at,
        }
    }
    fn is_settled(&self, _: &Client, _: &Span) -> bool {
        self.doing.is_none()
    }
    fn counts(span: &Span) -> Counts {
        span.counts()
    }
    fn check(span: &Span, _: &Ledger) {
        span.check();
    }

    fn advance(&mut self, turn: &mut Turn<'_>, span: &mut Span) {
        let now = turn.now;
        if self.doing.is_none() {
            if turn.finished || self.next_at > now {
                return;
            }
            self.next_at = now + turn.rng.between(5 * MS, 400 * MS);
            if turn.role.map().is_none() {
                return;
            }
            span.numbers += 1;
            let number = span.numbers;
            self.doing = Some(if turn.rng.one_in(2) {
                write(number, turn.rng)
            } else {
                read(number)
            });
        }
        self.stuck = false;
        let over = match self.doing.as_mut().expect("just looked") {
            Doing::Write(write, number) => match write.advance(turn.local, turn.role) {
                None => {
                    self.stuck = turn.role.in_flight() == 0;
                    false
                }
                Some(Ok(_)) => span.well.insert(*number),
                Some(Err(failure)) => {
                    span.torn +=
                        usize::from(!failure.written.is_empty() || !failure.unknown.is_empty());
                    true
                }
            },
            Doing::Read(reader) => {
                if reader.asked.is_none() {
                    reader.asked = turn.submit(reader.operation());
                    self.stuck = reader.asked.is_none();
                }
                false
            }
        };
        if over {
            self.doing = None;
        }
        if over || self.stuck {
            // Contenders meet and give up because of each other; then each does something else for
            // a while.
            self.next_at = now + turn.rng.between(5 * MS, 400 * MS);
        }
    }

    fn on_completion(&mut self, ended: &Completion, _: &mut Turn<'_>, span: &mut Span) -> bool {
        let reader = match &mut self.doing {
            Some(Doing::Write(write, _)) => return write.on_completion(ended),
            Some(Doing::Read(reader)) if reader.asked == Some(ended.id) => reader,
            _ => return false,
        };
        reader.asked = None;
        if reader.on_end(ended, span) {
            self.doing = None;
        }
        true
    }
}

fn write(number: u64, rng: &mut Rng) -> Doing {
    let part = |at| Part {
        object: object(at),
        ops: vec![SubOp::WriteFull { length: 8 }],
        payload: vec![Bytes::copy_from_slice(&number.to_le_bytes())],
    };
    let lease_ms = u32::try_from(rng.between(100, 1500)).expect("short");
    let terms = LockTerms {
        name: lock_name(),
        cookie: number,
        lease_ms,
        description: "a write".to_owned(),
    };
    Doing::Write(
        Box::new(SpanningWrite::new(
            POOL,
            terms,
            (0..OBJECTS).map(part).collect(),
        )),
        number,
    )
}

const fn read(number: u64) -> Doing {
    Doing::Read(Reader {
        asked: None,
        step: Step::Lock,
        at: 0,
        cookie: number,
        seen: Vec::new(),
        locked: 0,
    })
}

impl Reader {
    fn operation(&self) -> Operation {
        let (name, cookie) = (lock_name(), self.cookie);
        let ops = match self.step {
            Step::Lock => {
                vec![SubOp::Lock {
                    name,
                    cookie,
                    shared: true,
                    lease_ms: 800,
                    description: "a read".to_owned(),
                }]
            }
            Step::Read => {
                let guard = SubOp::AssertLock {
                    name,
                    cookie,
                    shared_ok: true,
                };
                vec![
                    guard,
                    SubOp::Read {
                        offset: 0,
                        length: 16,
                    },
                ]
            }
            Step::Unlock => vec![SubOp::Unlock { name, cookie }],
        };
        operation(object(self.at), ops, Payload::new())
    }

    /// Handles the end of an operation; returns whether all have ended.
    fn on_end(&mut self, ended: &Completion, span: &mut Span) -> bool {
        match (&self.step, &ended.result) {
            (Step::Lock, Ok(_)) => self.locked = self.at + 1,
            (Step::Read, Ok(done)) => {
                let bytes = done.payload.concat();
                // Locking creates an object that has not been written.
                let number = if bytes.is_empty() {
                    [0; 8]
                } else {
                    bytes[..].try_into().expect("a number was written")
                };
                self.seen.push(u64::from_le_bytes(number));
            }
            (Step::Unlock, _) => {}
            (_, Err(failure)) => {
                let refused = matches!(
                    failure,
                    Failure::Refused(
                        OpFailure::LockHeld { .. }
                            | OpFailure::Guard { .. }
                            | OpFailure::NotFound {}
                            | OpFailure::Full {}
                    )
                );
                assert!(
                    refused || failure.may_have_happened(),
                    "a read under locks: {failure}"
                );
                // Unlocking a lock that is not held is refused without harm.
                self.locked = self.locked.max(self.at + 1);
                (self.step, self.at) = (Step::Unlock, 0);
                return false;
            }
        }
        self.at += 1;
        match self.step {
            Step::Lock if self.at == OBJECTS => (self.step, self.at) = (Step::Read, 0),
            Step::Read if self.at == OBJECTS => {
                (self.step, self.at) = (Step::Unlock, 0);
                span.reads += 1;
                if self.seen.iter().any(|number| *number != self.seen[0]) {
                    span.mixed.push(std::mem::take(&mut self.seen));
                }
            }
            Step::Unlock if self.at >= self.locked => return true,
            _ => {}
        }
        false
    }
}
