//! Operations about locks: the holder after a refusal, lists, breaking.

use super::calls::method_failed;
use super::{Ceph, Stage};
use crate::compound::{Found, Out, ReadOp};
use crate::error;
use crate::general::version;
use crate::lock::{self, Holder};
use crate::plan::Step;
use bytes::Bytes;
use nacre_client::{Done, Failure};
use nacre_types::{Epoch, Name};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use nacre_wire::msg::lock::{LockEntry, LockOwner};

/// Another client holds it.
const EBUSY: i32 = 16;

type Next = Option<Result<Done, Failure>>;

/// A query about locks.
pub enum Asking {
    /// The holder of a lock that a part could not take.
    Holder,
    /// The object's locks.
    Names,
    /// Their holders.
    Holders(Vec<Bytes>),
    /// The holder of the lock to break.
    ToBreak(Name, LockOwner),
}

impl Ceph {
    /// The result of a part that is a call.
    pub(super) fn reply_of(op: &SubOp, out: Out, number: u64) -> SubReply {
        let status = match out.found() {
            Ok(Found::Called(status, _)) => status.unsigned_abs(),
            _ => 0,
        };
        if op.is_call() {
            return SubReply::Called {
                activation: 0,
                status,
                output: Bytes::new(),
            };
        }
        let is_grant = matches!(op, SubOp::Lock { .. });
        if is_grant {
            SubReply::Locked {
                token: version(number),
                fence: Epoch(0),
            }
        } else {
            SubReply::Done {}
        }
    }

    /// A part that is a call failed.
    pub(super) fn call_failed(&mut self, id: u64, index: usize, result: i32) -> Next {
        let running = self.running.get_mut(&id).expect("it runs");
        let guard = OpFailure::Guard {
            index: u32::try_from(index).expect("few parts"),
        };
        let refused = |why| Some(Err(Failure::Refused(why)));
        match &running.operation.ops[index] {
            SubOp::Lock { name, .. } if -result == EBUSY => {
                let name = name.clone();
                self.ask(
                    id,
                    &[Bytes::copy_from_slice(name.as_bytes())],
                    Asking::Holder,
                )
            }
            SubOp::Unlock { .. } if -result == error::ENOENT => refused(guard),
            SubOp::BreakLock { .. } if -result == error::ENOENT => refused(OpFailure::NotFound {}),
            SubOp::AssertLock { .. } if matches!(-result, EBUSY | error::ENOENT) => {
                let either = running.operation.ops.iter().any(|op| {
                    matches!(
                        op,
                        SubOp::AssertLock {
                            shared_ok: true,
                            ..
                        }
                    )
                });
                if either && !running.shared {
                    // Ceph's guard accepts only one mode of lock; nothing has been executed yet.
                    running.shared = true;
                    return self.try_start(id).err().map(Err);
                }
                refused(guard)
            }
            op if op.is_call() => Some(Err(method_failed(running, index, result, None))),
            // For any other call, the error number tells the rest.
            _ => Some(Err(error::failure(result))),
        }
    }

    /// Queries the names of an object's locks, or their holders.
    pub(super) fn ask(&mut self, id: u64, names: &[Bytes], asking: Asking) -> Next {
        let mut op = ReadOp::new(self.rados.functions());
        // Distinguishes an object without locks from a missing one.
        op.stat();
        if matches!(asking, Asking::Names) {
            op.call(c"lock", c"list_locks", &[]);
        }
        for name in names {
            let (_, input) = lock::info_request(name);
            op.call(c"lock", c"get_info", &input);
        }
        self.send_read(id, op, Stage::Asking(asking), 0)
            .err()
            .map(Err)
    }

    pub(super) fn asked(
        &mut self,
        id: u64,
        asking: Asking,
        result: i32,
        number: u64,
        outs: Vec<Out>,
    ) -> Next {
        if result < 0 {
            return Some(Err(error::failure(result)));
        }
        let answers = outs.into_iter().skip(1).map(Out::found);
        let answers: Vec<Bytes> = answers
            .filter_map(|found| {
                if let Ok(Found::Called(_, bytes)) = found {
                    Some(bytes)
                } else {
                    None
                }
            })
            .collect();
        let unreadable = || Failure::Foreign {
            code: error::EIO,
            why: "the class `lock` answered something unreadable".to_owned(),
        };
        let done = |results| {
            Some(Ok(Done {
                version: version(number),
                results,
                payload: Payload::new(),
            }))
        };
        let infos = || {
            answers
                .iter()
                .map(|answer| lock::info(answer).ok_or_else(unreadable))
                .collect::<Result<Vec<(bool, Vec<Holder>)>, Failure>>()
        };
        match asking {
            Asking::Names => match answers.first().and_then(|answer| lock::names(answer)) {
                None => Some(Err(unreadable())),
                Some(names) if names.is_empty() => {
                    done(vec![SubReply::Locks { locks: Vec::new() }])
                }
                Some(names) => self.ask(id, &names, Asking::Holders(names.clone())),
            },
            Asking::Holders(names) => match infos() {
                Err(failed) => Some(Err(failed)),
                Ok(infos) => {
                    let entry = |(name, (shared, holders)): (&Bytes, (bool, Vec<Holder>))| {
                        lock::entry(name, shared, &holders)
                    };
                    let locks: Vec<LockEntry> = names.iter().zip(infos).map(entry).collect();
                    let locks = locks
                        .into_iter()
                        .filter(|entry| !entry.record.holders.is_empty())
                        .collect();
                    done(vec![SubReply::Locks { locks }])
                }
            },
            Asking::Holder => match infos() {
                Err(failed) => Some(Err(failed)),
                Ok(infos) => match infos.into_iter().flat_map(|(_, holders)| holders).next() {
                    Some(holder) => Some(Err(Failure::Refused(OpFailure::LockHeld {
                        owner: holder.owner(),
                        description: holder.description,
                    }))),
                    // Released meanwhile.
                    None => self.again(id),
                },
            },
            Asking::ToBreak(name, owner) => match infos() {
                Err(failed) => Some(Err(failed)),
                Ok(infos) => {
                    let holder = infos
                        .into_iter()
                        .flat_map(|(_, holders)| holders)
                        .find(|holder| holder.owner() == owner);
                    let Some(holder) = holder else {
                        return Some(Err(Failure::Refused(OpFailure::NotFound {})));
                    };
                    let (method, input) = lock::break_request(&name, &holder);
                    let step = Step::Call(0, lock::CLASS.into(), method.into(), input);
                    self.send_write(id, &[step], Stage::Write(vec![0]))
                        .err()
                        .map(Err)
                }
            },
        }
    }

    /// Restarts an operation that has had no effect.
    pub(super) fn again(&mut self, id: u64) -> Next {
        let running = self.running.get_mut(&id).expect("it runs");
        running.attempts += 1;
        if running.attempts > super::ATTEMPTS_MAX {
            return Some(Err(Failure::Refused(OpFailure::Expired {})));
        }
        self.try_start(id).err().map(Err)
    }
}
