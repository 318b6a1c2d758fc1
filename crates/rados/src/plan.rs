//! How an operation is carried out on Ceph, which has reads or writes in one operation, but not
//! both, and other ideas of guards.
//!
//! ```text
//!  only reads, guards        one read ── judged here (judge.rs) ──▶ answer
//!  only writes that Ceph     one write ───────────────────────────▶ answer
//!    means as we do            └─ refused: why? ─┐
//!  everything else           read what matters ◀─┘ ── judged here ──▶ write, if the object is still of that version
//!                                 ▲                                       └─ it is not ─┐
//!                                 └─────────────────────────────────────────────────────┘
//! ```
//!
//! *Invariants.* An operation that fails had no effect: what Ceph refuses it does not apply, and
//! what is judged here has not been sent. The third way is the reference; the second is only
//! quicker where it succeeds. Nothing here waits or sends.

use bytes::Bytes;
use nacre_types::{Name, ObjectId};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, SubOp};
use nacre_wire::msg::lock::LockOwner;

/// What is sent to an OSD as a part of an operation that writes.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Guard: the object exists.
    AssertExists,
    /// Guard: it has this version.
    AssertVersion(u64),
    /// Guard: the attribute has this value.
    CompareAttr(Name, Bytes),
    /// Makes it exist; whether it must not exist yet.
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
    /// Calls a method: which part it is, class, method, input.
    Call(usize, Name, Name, Bytes),
}

/// What has to be read for a part.
#[derive(Clone, Debug, PartialEq)]
pub enum Need {
    /// Nothing but whether the object exists, its size and version.
    Nothing,
    /// All attributes.
    Attrs,
    /// Data.
    Range(u64, u64),
    /// A checksum.
    Checksum(u64, u64),
    /// Values of keys.
    Keys(Vec<Bytes>),
    /// Entries after a key.
    Entries(Bytes, u32),
    /// That a lock is held: method and input of the class `lock`.
    Held(&'static str, Bytes),
}

/// Which way an operation goes; see the module head.
#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    /// One read; what each part needs of it.
    Read(Vec<Need>),
    /// One write.
    Write(Vec<Step>),
    /// Read first; what each part needs.
    Staged(Vec<Need>),
    /// A call and nothing else, which returns what it returns: part, class, method, input.
    Call(Name, Name, Bytes),
    /// A page of a listing.
    List(Bytes, u32),
    /// Tells watchers: timeout in milliseconds, what.
    Notify(u32, Bytes),
    /// All locks.
    Locks,
    /// Takes a lock away.
    Break(Name, LockOwner),
    /// Who watches.
    Watchers,
}

/// Most entries in one page of an omap; what OSDs of Ceph return at most is less.
const PAGE_MAX: u32 = 10_000;

/// The part's bytes of the payload, and the rest.
pub struct Input {
    bytes: Bytes,
}
impl Input {
    /// Of an operation.
    #[must_use]
    pub fn new(payload: &Payload) -> Self {
        let bytes = match &payload[..] {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => many.concat().into(),
        };
        Self { bytes }
    }
    /// The next so many.
    pub fn take(&mut self, length: u64) -> Bytes {
        self.bytes.split_to(usize::try_from(length).expect("validated"))
    }
}

/// A capability that this cluster has not, as an error.
pub(crate) fn lacks(what: &str, instead: &str) -> OpFailure {
    OpFailure::Invalid { why: format!("a Ceph cluster cannot do that (capability `{what}`); {instead}") }
}

fn no_zero(bytes: &[u8], what: &str) -> Result<(), OpFailure> {
    if bytes.contains(&0) {
        return Err(lacks(
            "zero_bytes",
            &format!("{what} has a byte 0 in it, which librados cannot take; choose another"),
        ));
    }
    Ok(())
}

/// What an operation makes its object: the source of a copy, or the object itself at a snapshot.
#[must_use]
pub fn source(ops: &[SubOp], object: &ObjectId) -> Option<ObjectId> {
    ops.iter().find_map(|op| match op {
        SubOp::CopyFrom { source } => Some(source.clone()),
        SubOp::Rollback { snap } => Some(ObjectId { snapshot: *snap, ..object.clone() }),
        _ => None,
    })
}

/// Chooses the way. `shared`: how locks are held that may be held either way.
///
/// # Errors
/// It cannot be done at all.
pub fn way(ops: &[SubOp], payload: &Payload, shared: bool) -> Result<Way, OpFailure> {
    for op in ops {
        match op {
            SubOp::GetAttr { name }
            | SubOp::SetAttr { name, .. }
            | SubOp::RemoveAttr { name }
            | SubOp::CompareAttr { name, .. } => {
                no_zero(name.as_bytes(), "the attribute's name")?;
                if name.is_empty() {
                    return Err(OpFailure::Invalid {
                        why: "an attribute's name is not empty on a Ceph cluster".to_owned(),
                    });
                }
            }
            SubOp::OmapSet { entries } => entries.iter().try_for_each(|(key, _)| no_zero(key, "the key"))?,
            SubOp::OmapList { after, .. } => no_zero(after, "the key to go on after")?,
            _ => {}
        }
    }
    let mut input = Input::new(payload);
    if let [op] = ops {
        match op {
            SubOp::ListObjects { after, limit } => return Ok(Way::List(after.clone(), *limit)),
            SubOp::Notify { timeout_ms, length } => return Ok(Way::Notify(*timeout_ms, input.take(*length))),
            SubOp::ListLocks {} => return Ok(Way::Locks),
            SubOp::BreakLock { name, owner } => return Ok(Way::Break(name.clone(), *owner)),
            SubOp::ListWatchers {} => return Ok(Way::Watchers),
            SubOp::Call { class, method, length } => {
                return Ok(Way::Call(class.clone(), method.clone(), input.take(*length)));
            }
            SubOp::Eval { script, handler, input: length } => {
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
    let calls = |op: &SubOp| matches!(op, SubOp::Call { .. } | SubOp::Eval { .. });
    if let Some(first) = ops.iter().position(SubOp::is_write)
        && ops[first + 1..].iter().any(calls)
    {
        let instead = "a method there sees the object as it was before the operation: call it alone, or first";
        return Err(lacks("exec_reads_own_writes", instead));
    }
    if ops.iter().any(SubOp::is_write) {
        let locks = |op: &&SubOp| matches!(op, SubOp::Lock { .. } | SubOp::Unlock { .. });
        if ops.iter().filter(locks).count() > 1 {
            return Err(lacks("exec_reads_own_writes", "one lock is taken or given back in an operation there"));
        }
        if let Some(steps) = direct(ops, &mut input, shared) {
            return Ok(Way::Write(steps));
        }
        return Ok(Way::Staged(needs(ops, shared)?));
    }
    Ok(Way::Read(needs(ops, shared)?))
}

pub(crate) fn needs(ops: &[SubOp], shared: bool) -> Result<Vec<Need>, OpFailure> {
    ops.iter()
        .map(|op| {
            Ok(match op {
                SubOp::Read { offset, length } | SubOp::CompareData { offset, length } => Need::Range(*offset, *length),
                SubOp::Checksum { offset, length } => Need::Checksum(*offset, *length),
                SubOp::GetAttr { .. }
                | SubOp::ListAttrs {}
                | SubOp::CompareAttr { .. }
                | SubOp::RemoveAttr { .. }
                | SubOp::CopyFrom { .. }
                | SubOp::Rollback { .. } => Need::Attrs,
                SubOp::AssertLock { .. } => {
                    let (method, input) = crate::lock::request(op, shared).expect("it is about a lock");
                    Need::Held(method, input)
                }
                SubOp::OmapGet { keys } => Need::Keys(keys.clone()),
                SubOp::OmapList { after, limit } => Need::Entries(after.clone(), (*limit).clamp(1, PAGE_MAX)),
                SubOp::ListSnaps {} => {
                    return Err(lacks("list_snaps", "`rados listsnaps` says which clones an object has"));
                }
                SubOp::ReadWhole {} => return Err(lacks("read_whole", "read data, attributes and map one by one")),
                SubOp::Watch { .. } | SubOp::Unwatch { .. } => {
                    return Err(lacks("watch_parts", "register and end watches by themselves"));
                }
                SubOp::ListObjects { .. }
                | SubOp::Notify { .. }
                | SubOp::ListWatchers {}
                | SubOp::BreakLock { .. }
                | SubOp::ListLocks {} => {
                    let instead =
                        "listings, notifies, lists of watchers and locks, and breaking a lock stand alone there";
                    return Err(lacks("compound", instead));
                }
                _ => Need::Nothing,
            })
        })
        .collect()
}

/// An operation whose parts mean to Ceph what they mean to us, if that is so.
fn direct(ops: &[SubOp], input: &mut Input, shared: bool) -> Option<Vec<Step>> {
    let mut steps = Vec::with_capacity(ops.len());
    let mut wrote = false;
    for (index, op) in ops.iter().enumerate() {
        // A guard after a write would be held against what that left behind here, and against what was before there.
        let guard = matches!(op, SubOp::AssertExists { .. } | SubOp::AssertVersion { .. } | SubOp::CompareAttr { .. });
        if guard && wrote {
            return None;
        }
        wrote |= op.is_write();
        match op {
            SubOp::AssertExists { exists: true } => steps.push(Step::AssertExists),
            SubOp::AssertExists { exists: false } => steps.push(Step::Create(true)),
            // Nothing has this version, and Ceph takes it for a mistake.
            SubOp::AssertVersion { version } if version.number == 0 => return None,
            SubOp::AssertVersion { version } => steps.push(Step::AssertVersion(version.number)),
            // An absent attribute equals the empty value; of that, and of objects that are not
            // there, Ceph has opinions of its own.
            SubOp::CompareAttr { name, value } if !value.is_empty() => {
                steps.push(Step::CompareAttr(name.clone(), value.clone()))
            }
            SubOp::Lock { .. } | SubOp::Unlock { .. } | SubOp::AssertLock { .. } => {
                steps.push(lock_step(index, op, shared))
            }
            op => write_step(op, input, &mut steps)?,
        }
    }
    Some(steps)
}

/// The call that does a part about a lock.
pub(crate) fn lock_step(index: usize, op: &SubOp, shared: bool) -> Step {
    let (method, input) = crate::lock::request(op, shared).expect("it is about a lock");
    Step::Call(index, crate::lock::CLASS.into(), method.into(), input)
}

/// The steps of a writing part that needs to know nothing of the object.
pub(crate) fn write_step(op: &SubOp, input: &mut Input, steps: &mut Vec<Step>) -> Option<()> {
    match op {
        // An empty write extends the object there; here it only makes it exist.
        SubOp::Write { length: 0, .. } | SubOp::Append { length: 0 } => steps.push(Step::Create(false)),
        SubOp::Write { offset, length } => steps.push(Step::Write(*offset, input.take(*length))),
        SubOp::WriteFull { length } => steps.push(Step::WriteFull(input.take(*length))),
        SubOp::Append { length } => steps.push(Step::Append(input.take(*length))),
        // Of an object that is not there, Ceph does not set the size.
        SubOp::Truncate { size } => steps.extend([Step::Create(false), Step::Truncate(*size)]),
        SubOp::Create { exclusive } => steps.push(Step::Create(*exclusive)),
        SubOp::Delete {} => steps.push(Step::Remove),
        SubOp::SetAttr { name, value } => steps.push(Step::SetAttr(name.clone(), value.clone())),
        SubOp::OmapSet { entries } => steps.push(Step::OmapSet(entries.clone())),
        SubOp::OmapRemove { keys } => steps.push(Step::OmapRemove(keys.clone())),
        SubOp::OmapClear {} => steps.push(Step::OmapClear),
        _ => return None,
    }
    Some(())
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
            SubOp::Write { offset: 3, length: 2 },
            SubOp::Append { length: 1 },
        ];
        let steps =
            vec![Step::AssertExists, Step::Write(3, Bytes::from_static(b"ab")), Step::Append(Bytes::from_static(b"c"))];
        assert_eq!(chosen(ops, b"abc"), Way::Write(steps));
        let ops = vec![SubOp::Truncate { size: 9 }];
        assert_eq!(chosen(ops, b""), Way::Write(vec![Step::Create(false), Step::Truncate(9)]));
    }

    #[test]
    fn what_it_does_not_is_read_first() {
        for ops in [
            vec![SubOp::Zero { offset: 0, length: 1 }],
            vec![SubOp::RemoveAttr { name: "a".into() }],
            vec![SubOp::CompareAttr { name: "a".into(), value: Bytes::new() }, SubOp::Create { exclusive: false }],
            vec![SubOp::Create { exclusive: false }, SubOp::AssertExists { exists: true }],
            vec![SubOp::Stat {}, SubOp::Create { exclusive: false }],
        ] {
            assert!(matches!(chosen(ops.clone(), b""), Way::Staged(_)), "{ops:?}");
        }
        assert_eq!(
            chosen(vec![SubOp::Stat {}, SubOp::Read { offset: 0, length: 5 }], b""),
            Way::Read(vec![Need::Nothing, Need::Range(0, 5)])
        );
    }

    #[test]
    fn what_it_cannot_says_which_capability_it_lacks() {
        let call = || SubOp::Call { class: "c".into(), method: "m".into(), length: 0 };
        let refused = |ops: Vec<SubOp>| way(&ops, &Payload::new(), false).expect_err("impossible").to_string();
        assert!(refused(vec![SubOp::Create { exclusive: false }, call()]).contains("exec_reads_own_writes"));
        assert!(refused(vec![call(), call()]).contains("exec_reads_own_writes"));
        assert!(
            refused(vec![SubOp::OmapSet { entries: vec![(Bytes::from_static(b"a\0b"), Bytes::new())] }])
                .contains("zero_bytes")
        );
        assert!(way(&[call()], &Payload::new(), false).is_ok());
    }
}
