//! Clients that fill really small devices ([`Plan::small_disks`](crate::Plan::small_disks)), and
//! checks of the results (DESIGN §3, full).
//!
//! ```text
//!  writes of up to 400 KB, occasionally a deletion ─▶ Full ─▶ retried … faults end ─▶ everything is deleted ─▶ the cluster heals
//! ```
//! 1. a store accepts what its OSD orders: the OSD's account of space (`osd/src/room.rs`) refuses
//!    before the store would (`disk.rs` panics when the store refuses);
//! 2. a deletion is never refused for lack of space, and is answered;
//! 3. an object whose write was answered exists and can be deleted.

use crate::borders::Borders;
use crate::plan::{MS, Plan, SECOND};
use crate::workload::{Place, Turn, Workload, operation};
use bytes::Bytes;
use nacre_client::{Client, Completion, Failure, OpId};
use nacre_types::ObjectId;
use nacre_wire::msg::client::{OpFailure, SubOp};
use std::collections::{BTreeMap, BTreeSet};

/// Objects of all clients together: more than fits.
const OBJECTS: u64 = 600;
/// Operations that one client has in flight.
const DEPTH: usize = 4;
/// How long an operation may take before its client gives up.
const PATIENCE: u64 = 12 * SECOND;

#[derive(Debug)]
struct Flight {
    number: u64,
    removes: bool,
    /// The object existed.
    is_known: bool,
    begun: u64,
}

/// What one client does.
#[derive(Debug)]
pub struct Filler {
    client: u64,
    objects: u64,
    /// Objects that may exist, and whether they certainly do.
    there: BTreeMap<u64, bool>,
    flying: BTreeMap<OpId, Flight>,
    forgotten: BTreeSet<OpId>,
    next_at: u64,
}

impl Filler {
    fn object(&self, number: u64) -> ObjectId {
        ObjectId::named(&format!("fill-{}-{number}", self.client))
    }
}

impl Workload for Filler {
    type Records = Borders;
    type Counts = &'static str;

    fn new(plan: &Plan, place: &Place) -> Option<Self> {
        place.does(plan.small_disks).then(|| Self {
            client: place.index,
            objects: OBJECTS / plan.clients + 1,
            there: BTreeMap::new(),
            flying: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            next_at: 0,
        })
    }
    /// Everything is deleted.
    fn is_settled(&self, _: &Client, _: &Borders) -> bool {
        self.flying.is_empty() && self.there.is_empty()
    }
    fn waits_for(&self, _: &Borders) -> Vec<(ObjectId, u64)> {
        let flying = self.flying.values();
        flying
            .map(|flight| (self.object(flight.number), flight.begun))
            .collect()
    }
    fn next_at(&self, finished: bool) -> u64 {
        let idle = finished && self.there.is_empty();
        let next = if idle { u64::MAX } else { self.next_at };
        let flying = self.flying.values();
        flying
            .map(|flight| flight.begun + PATIENCE)
            .fold(next, u64::min)
    }

    fn advance(&mut self, turn: &mut Turn<'_>, _: &mut Borders) {
        let now = turn.now;
        let late = |_: &OpId, flight: &mut Flight| flight.begun + PATIENCE <= now;
        for (id, flight) in self.flying.extract_if(.., late) {
            self.there.insert(flight.number, false);
            self.forgotten.insert(id);
            turn.role.abandon(id);
        }
        if self.next_at > now {
            return;
        }
        self.next_at = now + turn.rng.between(MS, 10 * MS);
        // In the end nothing more is written, and everything is deleted.
        let ends = turn.calm || turn.finished;
        while self.flying.len() < DEPTH {
            let busy = |number: &u64| self.flying.values().any(|flight| flight.number == *number);
            let removes = ends || turn.rng.one_in(16);
            let number = match removes {
                true => self.there.keys().copied().find(|number| !busy(number)),
                false => Some(turn.rng.below(self.objects)).filter(|number| !busy(number)),
            };
            let Some(number) = number else { break };
            let is_known = self.there.get(&number).copied().unwrap_or_default();
            let (op, data) = if removes {
                (SubOp::Delete {}, Bytes::new())
            } else {
                let length = turn.rng.between(64 << 10, 400 << 10);
                (
                    SubOp::WriteFull { length },
                    Bytes::from(vec![number as u8 | 1; length as usize]),
                )
            };
            let payload = if removes { vec![] } else { vec![data] };
            let operation = operation(self.object(number), vec![op], payload);
            let Some(id) = turn.submit(operation) else {
                break;
            };
            self.flying.insert(
                id,
                Flight {
                    number,
                    removes,
                    is_known,
                    begun: now,
                },
            );
        }
    }

    fn on_completion(
        &mut self,
        done: &Completion,
        _: &mut Turn<'_>,
        borders: &mut Borders,
    ) -> bool {
        let Some(flight) = self.flying.remove(&done.id) else {
            return self.forgotten.remove(&done.id);
        };
        let Flight {
            number,
            removes,
            is_known,
            ..
        } = flight;
        let is_full = matches!(
            done.result,
            Err(Failure::Refused(OpFailure::Full {}) | Failure::Doubtful(OpFailure::Full {}))
        );
        assert!(
            !removes || !is_full,
            "{} cannot be deleted for want of room",
            self.object(number)
        );
        match &done.result {
            Ok(_) if removes => {
                borders.deleted_when_full += u64::from(borders.refused_when_full > 0);
                self.there.remove(&number);
            }
            Err(Failure::Refused(OpFailure::NotFound {})) if removes => {
                assert!(
                    !is_known,
                    "{} was written, and is not there",
                    self.object(number)
                );
                self.there.remove(&number);
            }
            Ok(_) => {
                self.there.insert(number, true);
            }
            // It had no effect.
            Err(Failure::Refused(OpFailure::Full {})) => borders.refused_when_full += 1,
            Err(failure) => {
                let what = self.object(number);
                assert!(
                    failure.may_have_happened(),
                    "{what} is not written or deleted: {failure}"
                );
                borders.refused_when_full += u64::from(is_full);
                let known = is_known && !removes;
                self.there.insert(number, known);
            }
        }
        true
    }
    fn counts(_: &Borders) -> &'static str {
        ""
    }
    fn rare(borders: &Borders) -> Borders {
        *borders
    }
}
