//! Operations on the general path (`general.rs`): reading what they depend on, and writing the
//! result if the object has not changed.
//!
//! ```text
//!  [source of a copy] ─▶ object ─▶ more of it ─▶ decided ─▶ guarded write ─▶ end
//!          ▲────┘          ▲──────────┘ changed                │
//!                          └──────────────── it has changed ◀──┘
//! ```

use super::{Ceph, Stage, calls_of, failed_call, name};
use crate::compound::{Found, Out, ReadOp};
use crate::context::Scope;
use crate::error::{self, failure};
use crate::general::{Ask, Next as Decided, Seen, asks, decide, is_lock, version};
use crate::plan::Step;
use nacre_client::{Done, Failure, Operation};
use nacre_object::{Source, Want};
use nacre_types::ObjectId;
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, SnapContext, SubOp, SubReply};
use std::ffi::CString;
use std::sync::Arc;

type Next = Option<Result<Done, Failure>>;

/// A read of an object in flight.
#[derive(Debug)]
pub struct Looking {
    /// For the source of a copy instead of the operation's own object.
    source: bool,
    asks: Vec<Ask>,
    /// What earlier reads found.
    seen: Option<Box<Seen>>,
}

/// A write in flight that results from what was read.
pub struct Guarded {
    results: Vec<SubReply>,
    calls: Vec<usize>,
    /// The object did not exist.
    absent: bool,
}

/// The query for the source of a copy.
const WHOLE: &[SubOp] = &[SubOp::ReadWhole {}];

/// The source object of an operation: for a copy, or for a rollback the object itself at a
/// snapshot.
fn source(operation: &Operation) -> Option<ObjectId> {
    operation.ops.iter().find_map(|op| match op {
        SubOp::Rollback { snap } => Some(ObjectId {
            snapshot: *snap,
            ..operation.object.clone()
        }),
        op => op.source().cloned(),
    })
}

impl Ceph {
    /// Begins to read what an operation depends on: first the source of a copy.
    pub(super) fn look(&mut self, id: u64) -> Next {
        let running = &self.running[&id];
        let copies = running.source.is_none() && source(&running.operation).is_some();
        self.look_at(id, copies)
    }

    fn look_at(&mut self, id: u64, source: bool) -> Next {
        let running = self.running.get_mut(&id).expect("it runs");
        running.attempts += 1;
        if running.attempts > super::ATTEMPTS_MAX {
            return Some(Err(Failure::Refused(OpFailure::Expired {})));
        }
        let ops = if source {
            WHOLE
        } else {
            &running.operation.ops
        };
        let asks = asks(ops, running.shared);
        self.read(
            id,
            Looking {
                source,
                asks,
                seen: None,
            },
        )
        .err()
        .map(Err)
    }

    fn read(&mut self, id: u64, looking: Looking) -> Result<(), Failure> {
        let mut op = ReadOp::new(self.rados.functions());
        op.stat();
        for ask in &looking.asks {
            ask_into(&mut op, ask).map_err(Failure::Refused)?;
        }
        let source = if looking.source {
            source(&self.running[&id].operation)
        } else {
            None
        };
        let Some(source) = source else {
            return self.send_read(id, op, Stage::Looking(looking), 0);
        };
        let scope = Scope::of(
            self.running[&id].operation.pool,
            &source,
            &SnapContext::default(),
        );
        let object = name(source.name.as_bytes(), "the source's name").map_err(Failure::Refused)?;
        let context = self.contexts.get(scope).map_err(|error| Failure::Foreign {
            code: error.code,
            why: error.why,
        })?;
        self.send(
            id,
            context,
            Stage::Looking(looking),
            |context, completion| op.send(context, completion, &object, 0),
        )
    }

    /// A read has ended.
    pub(super) fn looked(
        &mut self,
        id: u64,
        looking: Looking,
        result: i32,
        number: u64,
        outs: Vec<Out>,
    ) -> Next {
        let Looking { source, asks, seen } = looking;
        if result < 0
            && let Some(part) = lock_failed(&asks, &outs)
        {
            return self.call_failed(id, part, result);
        }
        let is_there = match -result {
            error::ENOENT => false,
            _ if result < 0 => return Some(Err(failure(result))),
            _ => true,
        };
        if seen
            .as_ref()
            .is_some_and(|seen| !is_there || seen.context.version != version(number))
        {
            // The object changed between two reads.
            return self.look_at(id, source);
        }
        let mut seen = seen.map_or_else(Seen::default, |seen| *seen);
        seen.context.version = version(number);
        if is_there {
            let found: Result<Vec<Found>, i32> = outs.into_iter().map(Out::found).collect();
            let mut found = match found {
                Ok(found) => found.into_iter(),
                Err(result) => return Some(Err(failure(result))),
            };
            let Some(Found::Stat(size, modified_s)) = found.next() else {
                unreachable!("it is asked first")
            };
            seen.is_there(size, modified_s);
            seen.take(asks.into_iter().zip(found));
        }
        if source {
            self.source_seen(id, seen)
        } else {
            self.seen(id, seen, number)
        }
    }

    /// The source of a copy is known, as far as it was read.
    fn source_seen(&mut self, id: u64, seen: Seen) -> Next {
        match decide(WHOLE, &Payload::new(), seen, None, false) {
            Ok(Decided::Read(asks, seen)) => self
                .read(
                    id,
                    Looking {
                        source: true,
                        asks,
                        seen: Some(seen),
                    },
                )
                .err()
                .map(Err),
            Ok(Decided::Answer(results, data)) => {
                let Some(SubReply::Whole { mut object }) = results.into_iter().next() else {
                    unreachable!("it was asked for all of it")
                };
                object.attrs.retain(|(name, _)| !is_lock(name));
                self.running.get_mut(&id).expect("it runs").source =
                    Some(Arc::new(Source { object, data }));
                self.look_at(id, false)
            }
            Ok(Decided::Write(..)) => unreachable!("reading writes nothing"),
            // What did not exist at the snapshot is removed.
            Err(OpFailure::NotFound {}) if self.rolls_back(id) => self.look_at(id, false),
            Err(failed) => Some(Err(Failure::Refused(failed))),
        }
    }

    fn rolls_back(&self, id: u64) -> bool {
        self.running[&id]
            .operation
            .ops
            .iter()
            .any(|op| matches!(op, SubOp::Rollback { .. }))
    }

    /// The object is known, as far as it was read: sends the result, guarded by the object's
    /// version.
    fn seen(&mut self, id: u64, seen: Seen, number: u64) -> Next {
        let running = &self.running[&id];
        let Operation { ops, payload, .. } = &running.operation;
        let exists = seen.context.exists;
        match decide(ops, payload, seen, running.source.clone(), running.shared) {
            Err(failed) => Some(Err(Failure::Refused(failed))),
            Ok(Decided::Answer(results, payload)) => Some(Ok(Done {
                version: version(number),
                results,
                payload,
            })),
            Ok(Decided::Read(asks, seen)) => {
                // Later operations on the object could be executed in between.
                self.hold(id);
                self.read(
                    id,
                    Looking {
                        source: false,
                        asks,
                        seen: Some(seen),
                    },
                )
                .err()
                .map(Err)
            }
            Ok(Decided::Write(results, steps)) => {
                let guard = if exists {
                    Step::AssertVersion(number)
                } else {
                    Step::Create(true)
                };
                let calls = calls_of(&steps);
                let steps: Vec<Step> = std::iter::once(guard).chain(steps).collect();
                self.send_write(
                    id,
                    &steps,
                    Stage::Guarded(Guarded {
                        results,
                        calls,
                        absent: !exists,
                    }),
                )
                .err()
                .map(Err)
            }
        }
    }

    /// A guarded write has ended.
    pub(super) fn written(
        &mut self,
        id: u64,
        guarded: Guarded,
        result: i32,
        number: u64,
        outs: Vec<Out>,
    ) -> Next {
        let Guarded {
            mut results,
            calls,
            absent,
        } = guarded;
        let raced = match -result {
            error::EEXIST => absent,
            error::ERANGE | error::EOVERFLOW | error::ENOENT => !absent,
            _ => false,
        };
        if result < 0 {
            if let Some(index) = failed_call(&outs, &calls) {
                return self.call_failed(id, index, result);
            }
            if raced {
                return self.look_at(id, false);
            }
            return match calls.first() {
                Some(index) => self.call_failed(id, *index, result),
                None => Some(Err(failure(result))),
            };
        }
        for (out, index) in outs.into_iter().zip(calls) {
            results[index] = Self::reply_of(&self.running[&id].operation.ops[index], out, number);
        }
        Some(Ok(Done {
            version: version(number),
            results,
            payload: Payload::new(),
        }))
    }
}

/// The part whose lock is not held, if that is why a read failed.
fn lock_failed(asks: &[Ask], outs: &[Out]) -> Option<usize> {
    outs.iter().find_map(Out::failed)?;
    asks.iter().find_map(|ask| {
        if let Ask::Held(part, ..) = ask {
            Some(*part)
        } else {
            None
        }
    })
}

fn ask_into(op: &mut ReadOp, ask: &Ask) -> Result<(), OpFailure> {
    let key = |key: &[u8]| name(key, "the key to go on after");
    let length = |length: &u64| usize::try_from(*length).expect("bounded");
    match ask {
        Ask::Attrs => op.attrs(),
        Ask::Want(Want::Data {
            offset,
            length: bytes,
        }) => op.read(*offset, length(bytes)),
        Ask::Want(Want::Keys(keys)) => op.keys(keys),
        Ask::Want(Want::Page { after, entries }) => {
            op.list(&key(after.as_deref().unwrap_or_default())?, *entries as u64);
        }
        Ask::Want(Want::Clone(_)) => unreachable!("clones are Ceph's own"),
        Ask::Checksum(_, offset, bytes) => op.checksum(*offset, length(bytes)),
        Ask::Entries(_, after, limit) => op.list(&key(after)?, u64::from(*limit)),
        Ask::Held(_, method, input) => {
            op.call(c"lock", &CString::new(*method).expect("a word"), input);
        }
    }
    Ok(())
}
