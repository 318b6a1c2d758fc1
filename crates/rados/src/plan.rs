//! How an operation is executed on Ceph, where an operation has either reads or writes, but not
//! both, and guards have other semantics.
//!
//! ```text
//!  only data is read         one read ────────────────────────────▶ answer
//!  only writes that Ceph     one write ───────────────────────────▶ answer
//!    defines as Nacre does     └─ refused: why? ─┐
//!  everything else           read what matters ◀─┘ ── decided (general.rs) ─┬─▶ answer
//!                                 ▲                                          └─▶ write, if the object still has that version
//!                                 └──────────────────────────────────────────────────┘ it does not
//! ```
//!
//! *Invariants.* A failed operation had no effect: Ceph does not apply what it refuses, and what
//! fails here was not sent. The last path is the reference, and the path of everything without
//! another one; the others are only faster when they succeed. Nothing here waits or sends.

use bytes::Bytes;
use nacre_types::{Epoch, Name};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, SubOp};
use nacre_wire::msg::lock::LockOwner;
use nacre_wire::msg::part::Kind;

/// A part of a writing operation sent to an OSD.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Guard: the object exists.
    AssertExists,
    /// Guard: it has this version.
    AssertVersion(u64),
    /// Guard: the attribute has this value.
    CompareAttr(Name, Bytes),
    /// Creates it; whether it must not exist yet.
    Create(bool),
    /// Writes a range.
    Write(u64, Bytes),
    /// Replaces all data.
    WriteFull(Bytes),
    /// Writes at the end.
    Append(Bytes),
    /// Zeroes a range that ends before the object does.
    Zero(u64, u64),
    /// Sets the size.
    Truncate(u64),
    /// Removes the object.
    Remove,
    /// Sets an attribute.
    SetAttr(Name, Bytes),
    /// Removes an attribute.
    RemoveAttr(Name),
    /// Sets omap keys.
    OmapSet(Vec<(Bytes, Bytes)>),
    /// Removes omap keys.
    OmapRemove(Vec<Bytes>),
    /// Removes all omap keys.
    OmapClear,
    /// Calls a method: the part's index, class, method, input.
    Call(usize, Name, Name, Bytes),
}

/// The path of an operation; see the module head.
#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    /// Only reads data: first byte and length.
    Data(u64, u64),
    /// One write.
    Write(Vec<Step>),
    /// Reads first (`general.rs`).
    General,
    /// A single call, whose result is returned unchanged: class, method, input.
    Call(Name, Name, Bytes),
    /// A page of a listing.
    List(Bytes, u32),
    /// Notifies watchers: timeout in milliseconds, payload.
    Notify(u32, Bytes),
    /// All locks.
    Locks,
    /// Breaks a lock.
    Break(Name, LockOwner),
    /// Lists the watchers.
    Watchers,
}

/// Splits the payload into the parts' data.
pub struct Input {
    bytes: Bytes,
}
impl Input {
    /// For an operation.
    #[must_use]
    pub fn new(payload: &Payload) -> Self {
        Self {
            bytes: joined(payload),
        }
    }
    /// The next bytes.
    pub fn take(&mut self, length: u64) -> Bytes {
        self.bytes
            .split_to(usize::try_from(length).expect("validated"))
    }
}

/// In one piece, as librados needs it.
pub(crate) fn joined(payload: &Payload) -> Bytes {
    match &payload[..] {
        [] => Bytes::new(),
        [one] => one.clone(),
        many => many.concat().into(),
    }
}

/// The error for a capability that this cluster lacks.
pub(crate) fn lacks(what: &str, instead: &str) -> OpFailure {
    OpFailure::Invalid {
        why: format!("a Ceph cluster cannot do that (capability `{what}`); {instead}"),
    }
}

/// The error for a name or key that librados cannot represent.
pub(crate) fn zero_byte(what: &str) -> OpFailure {
    lacks(
        "zero_bytes",
        &format!("{what} has a byte 0 in it; choose another"),
    )
}

/// Chooses the path. `shared`: the mode of locks for which both modes are acceptable.
///
/// # Errors
/// The operation is impossible.
pub fn way(ops: &[SubOp], payload: &Payload, shared: bool) -> Result<Way, OpFailure> {
    for op in ops {
        if let Some(name) = op.facts().attr {
            if name.as_bytes().contains(&0) {
                return Err(zero_byte("the attribute's name"));
            }
            if name.is_empty() {
                return Err(OpFailure::Invalid {
                    why: "an attribute's name is not empty on a Ceph cluster".to_owned(),
                });
            }
        }
        if let SubOp::OmapSet { entries } = op
            && entries.iter().any(|(key, _)| key.contains(&0))
        {
            return Err(zero_byte("the key"));
        }
        if let Some((capability, instead)) = lacking(op, ops.len() == 1) {
            return Err(lacks(capability, instead));
        }
    }
    let mut input = Input::new(payload);
    if let [op] = ops {
        match op {
            // To Ceph, zero bytes would mean all bytes.
            SubOp::Read {
                offset,
                length: length @ 1..,
            } => return Ok(Way::Data(*offset, *length)),
            SubOp::ListObjects { after, limit } => return Ok(Way::List(after.clone(), *limit)),
            SubOp::Notify { timeout_ms, length } => {
                return Ok(Way::Notify(*timeout_ms, input.take(*length)));
            }
            SubOp::ListLocks {} => return Ok(Way::Locks),
            SubOp::BreakLock { name, owner } => return Ok(Way::Break(name.clone(), *owner)),
            SubOp::ListWatchers {} => return Ok(Way::Watchers),
            SubOp::Call {
                class,
                method,
                length,
            } => {
                return Ok(Way::Call(
                    class.clone(),
                    method.clone(),
                    input.take(*length),
                ));
            }
            SubOp::Eval {
                script,
                handler,
                input: length,
            } => {
                let (script, data) = (input.take(*script), input.take(*length));
                return Ok(Way::Call(
                    "lua".into(),
                    "eval_bufferlist".into(),
                    crate::lua::input(&script, handler.as_bytes(), &data),
                ));
            }
            _ => {}
        }
    }
    if let Some(first) = ops.iter().position(SubOp::is_write)
        && ops[first + 1..].iter().any(SubOp::is_call)
    {
        let instead = "a method there sees the object as it was before the operation: call it alone, or first";
        return Err(lacks("exec_reads_own_writes", instead));
    }
    if ops.iter().any(SubOp::is_write) {
        let locks = |op: &&SubOp| matches!(op, SubOp::Lock { .. } | SubOp::Unlock { .. });
        if ops.iter().filter(locks).count() > 1 {
            return Err(lacks(
                "exec_reads_own_writes",
                "one lock is taken or given back in an operation there",
            ));
        }
        if let Some(steps) = direct(ops, &mut input, shared) {
            return Ok(Way::Write(steps));
        }
    }
    Ok(Way::General)
}

/// What a part needs that is impossible on Ceph, or impossible together with other parts: the
/// capability, and the alternative.
fn lacking(op: &SubOp, alone: bool) -> Option<(&'static str, &'static str)> {
    match op {
        SubOp::ListSnaps {} => Some((
            "list_snaps",
            "`rados listsnaps` says which clones an object has",
        )),
        SubOp::Watch { .. } | SubOp::Unwatch { .. } => {
            Some(("watch_parts", "register and end watches by themselves"))
        }
        SubOp::ListWatchers {} | SubOp::BreakLock { .. } | SubOp::ListLocks {} if !alone => Some((
            "compound",
            "lists of watchers and locks, and breaking a lock, stand alone there",
        )),
        // All others have their own path (`way`), or use the general one.
        _ => None,
    }
}

/// An operation whose parts have the same semantics on Ceph: it takes one round trip. Everything
/// else uses the general path, so nothing is forgotten.
fn direct(ops: &[SubOp], input: &mut Input, shared: bool) -> Option<Vec<Step>> {
    let mut steps = Vec::with_capacity(ops.len());
    let mut wrote = false;
    for (index, op) in ops.iter().enumerate() {
        // A guard after a write checks the state after the write here, but the state before it on
        // Ceph.
        if wrote && op.facts().kind == Kind::Guards {
            return None;
        }
        wrote |= op.is_write();
        match op {
            SubOp::AssertExists { exists: true } => steps.push(Step::AssertExists),
            SubOp::AssertExists { exists: false } => steps.push(Step::Create(true)),
            // These versions never exist, and Ceph refuses 0.
            SubOp::AssertVersion { version }
                if version.number == 0 || version.interval != Epoch(0) =>
            {
                return None;
            }
            SubOp::AssertVersion { version } => steps.push(Step::AssertVersion(version.number)),
            // An absent attribute equals the empty value; Ceph treats that, and missing objects,
            // differently.
            SubOp::CompareAttr { name, value } if !value.is_empty() => {
                steps.push(Step::CompareAttr(name.clone(), value.clone()))
            }
            SubOp::Lock { .. } | SubOp::Unlock { .. } | SubOp::AssertLock { .. } => {
                steps.push(lock_step(index, op, shared))
            }
            // An empty write extends the object on Ceph; here it only creates it.
            SubOp::Write { length: 0, .. } | SubOp::Append { length: 0 } => {
                steps.push(Step::Create(false))
            }
            SubOp::Write { offset, length } => {
                steps.push(Step::Write(*offset, input.take(*length)))
            }
            SubOp::WriteFull { length } => steps.push(Step::WriteFull(input.take(*length))),
            SubOp::Append { length } => steps.push(Step::Append(input.take(*length))),
            // Ceph does not set the size of a missing object.
            SubOp::Truncate { size } => steps.extend([Step::Create(false), Step::Truncate(*size)]),
            SubOp::Create { exclusive } => steps.push(Step::Create(*exclusive)),
            SubOp::Delete {} => steps.push(Step::Remove),
            SubOp::SetAttr { name, value } => {
                steps.push(Step::SetAttr(name.clone(), value.clone()))
            }
            SubOp::OmapSet { entries } => steps.push(Step::OmapSet(entries.clone())),
            SubOp::OmapRemove { keys } => steps.push(Step::OmapRemove(keys.clone())),
            SubOp::OmapClear {} => steps.push(Step::OmapClear),
            _ => return None,
        }
    }
    Some(steps)
}

/// The call for a part about a lock.
pub(crate) fn lock_step(index: usize, op: &SubOp, shared: bool) -> Step {
    let (method, input) = crate::lock::request(op, shared).expect("it is about a lock");
    Step::Call(index, crate::lock::CLASS.into(), method.into(), input)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(ops: Vec<SubOp>, data: &'static [u8]) -> Way {
        way(&ops, &vec![Bytes::from_static(data)], false).expect("possible")
    }

    #[test]
    fn what_ceph_means_as_we_do_is_sent_at_once() {
        let ops = vec![
            SubOp::AssertExists { exists: true },
            SubOp::Write {
                offset: 3,
                length: 2,
            },
            SubOp::Append { length: 1 },
        ];
        let steps = vec![
            Step::AssertExists,
            Step::Write(3, Bytes::from_static(b"ab")),
            Step::Append(Bytes::from_static(b"c")),
        ];
        assert_eq!(chosen(ops, b"abc"), Way::Write(steps));
        let ops = vec![SubOp::Truncate { size: 9 }];
        assert_eq!(
            chosen(ops, b""),
            Way::Write(vec![Step::Create(false), Step::Truncate(9)])
        );
    }

    #[test]
    fn what_it_does_not_is_read_first() {
        for ops in [
            vec![SubOp::Zero {
                offset: 0,
                length: 1,
            }],
            vec![SubOp::RemoveAttr { name: "a".into() }],
            vec![
                SubOp::CompareAttr {
                    name: "a".into(),
                    value: Bytes::new(),
                },
                SubOp::Create { exclusive: false },
            ],
            vec![
                SubOp::Create { exclusive: false },
                SubOp::AssertExists { exists: true },
            ],
            vec![SubOp::Stat {}, SubOp::Create { exclusive: false }],
        ] {
            assert_eq!(chosen(ops.clone(), b""), Way::General, "{ops:?}");
        }
        assert_eq!(
            chosen(
                vec![SubOp::Read {
                    offset: 1,
                    length: 5
                }],
                b""
            ),
            Way::Data(1, 5)
        );
    }

    #[test]
    fn what_it_cannot_says_which_capability_it_lacks() {
        let call = || SubOp::Call {
            class: "c".into(),
            method: "m".into(),
            length: 0,
        };
        let refused = |ops: Vec<SubOp>| {
            way(&ops, &Payload::new(), false)
                .expect_err("impossible")
                .to_string()
        };
        assert!(
            refused(vec![SubOp::Create { exclusive: false }, call()])
                .contains("exec_reads_own_writes")
        );
        assert!(refused(vec![call(), call()]).contains("exec_reads_own_writes"));
        assert!(
            refused(vec![SubOp::OmapSet {
                entries: vec![(Bytes::from_static(b"a\0b"), Bytes::new())]
            }])
            .contains("zero_bytes")
        );
        assert!(way(&[call()], &Payload::new(), false).is_ok());
    }
}
