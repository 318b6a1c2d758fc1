//! The general path, possible for every operation on Ceph: what it needs is read, `nacre_object`
//! evaluates it, and the result is written if the object's version has not changed.
//!
//! ```text
//!  asks ─▶ one read ─▶ Seen ─▶ decide ─┬─▶ asks: another read of the same version ─▶ decide again
//!                                      ├─▶ an answer
//!                                      └─▶ steps: one write
//! ```
//! So an operation unknown to this crate works as well. What Ceph does itself is left to it: calls
//! of methods and locks become steps, checksums and pages of an omap are answered by the read.
//! Pure: nothing here sends or waits.

use crate::compound::Found;
use crate::lock;
use crate::plan::{Step, joined, lock_step};
use bytes::Bytes;
use nacre_object::claims::Scene;
use nacre_object::evaluate::{Brought, Called, Methods, Outcome, Setting, Update, evaluate};
use nacre_object::{COPY_ENTRIES_MAX, Context, Fetched, Source, Stop, View, Want, user_attr};
use nacre_store::ReadReply;
use nacre_types::{Epoch, Name, Version};
use nacre_wire::Payload;
use nacre_wire::msg::PayloadCursor;
use nacre_wire::msg::client::{OP_BYTES_MAX, OpFailure, OpRequest, SubOp, SubReply};
use nacre_wire::msg::part::Looks;
use nacre_wire::msg::replication::Effect;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most entries in one page of an omap; Ceph's OSDs return fewer.
const PAGE_MAX: u32 = 10_000;

/// Something to read of an object in addition to size and time.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// All attributes.
    Attrs,
    /// Data or entries.
    Want(Want),
    /// A checksum, which answers a part.
    Checksum(usize, u64, u64),
    /// Entries after a key, which answer a part.
    Entries(usize, Bytes, u32),
    /// Whether a lock is held, as a part requires: method and input of the class `lock`.
    Held(usize, &'static str, Bytes),
}

/// What the parts of an operation need of their object, as far as is known before the evaluation.
/// `shared`: the mode of locks for which both modes are acceptable.
pub fn asks(ops: &[SubOp], shared: bool) -> Vec<Ask> {
    let (mut asks, mut attrs, mut wrote) = (Vec::new(), false, false);
    for (part, op) in ops.iter().enumerate() {
        let looks = op.facts().looks;
        attrs |= matches!(looks, Looks::Attrs | Looks::All);
        match looks {
            // To Ceph, zero bytes would mean all bytes.
            Looks::Nothing | Looks::Attrs | Looks::Data(_, 0) => {}
            // The data itself is not needed, unless the operation wrote before.
            Looks::Data(offset, length) if matches!(op, SubOp::Checksum { .. }) && !wrote => {
                asks.push(Ask::Checksum(part, offset, length));
            }
            Looks::Entries(after, limit) if !wrote => {
                asks.push(Ask::Entries(part, after.clone(), limit.clamp(1, PAGE_MAX)));
            }
            Looks::Data(offset, length) => asks.push(Ask::Want(Want::Data { offset, length })),
            Looks::Keys(keys) => asks.push(Ask::Want(Want::Keys(keys.to_vec()))),
            Looks::Entries(after, limit) => {
                let after = Some(after.clone()).filter(|after| !after.is_empty());
                asks.push(Ask::Want(Want::Page {
                    after,
                    entries: limit as usize + 1,
                }));
            }
            Looks::All => {
                asks.push(Ask::Want(Want::Data {
                    offset: 0,
                    length: OP_BYTES_MAX,
                }));
                asks.push(Ask::Want(Want::Page {
                    after: None,
                    entries: COPY_ENTRIES_MAX,
                }));
            }
        }
        if let SubOp::AssertLock { .. } = op {
            let (method, input) = lock::request(op, shared).expect("it is about a lock");
            asks.push(Ask::Held(part, method, input));
        }
        wrote |= op.is_write();
    }
    if attrs {
        asks.insert(0, Ask::Attrs);
    }
    asks
}

/// What is known about an object, all of one version.
#[derive(Debug, Default)]
pub struct Seen {
    /// The object without data and omap; with attributes only if they were requested.
    pub context: Context,
    fetched: Fetched,
    /// Parts that the read has answered.
    given: BTreeMap<usize, SubReply>,
}

impl Seen {
    /// The object exists.
    pub fn is_there(&mut self, size: u64, modified_s: i64) {
        let modified_ms = u64::try_from(modified_s).unwrap_or(0) * 1000;
        (
            self.context.exists,
            self.context.size,
            self.context.modified_ms,
        ) = (true, size, modified_ms);
    }

    /// Stores what was read.
    pub fn take(&mut self, found: impl Iterator<Item = (Ask, Found)>) {
        let mut is_whole = true;
        for (ask, found) in found {
            match (ask, found) {
                (Ask::Attrs, Found::Attrs(attrs)) => self.context.attrs = attrs,
                (Ask::Want(want), Found::Data(data)) => {
                    self.fetched.take(want, Some(ReadReply::Data(vec![data])))
                }
                (Ask::Want(want), Found::Entries(entries, more)) => {
                    // Ceph's OSDs return less than a page at once: that does not count as a round.
                    is_whole &= !more
                        || entries.is_empty()
                        || matches!(&want, Want::Page { entries: asked, .. } if entries.len() >= *asked);
                    let more = more && matches!(want, Want::Page { .. });
                    self.fetched
                        .take(want, Some(ReadReply::Omap { entries, more }));
                }
                (Ask::Checksum(part, offset, length), Found::Checksum(crc)) => {
                    let length = self.context.size.saturating_sub(offset).min(length);
                    // Ceph omits the final inversion.
                    let crc = if length == 0 { 0 } else { !crc };
                    self.given.insert(part, SubReply::Checksum { crc, length });
                }
                (Ask::Entries(part, ..), Found::Entries(entries, more)) => {
                    self.given.insert(part, SubReply::Entries { entries, more });
                }
                (Ask::Held(..), Found::Called(..)) => {}
                (ask, found) => unreachable!("{ask:?} was answered by {found:?}"),
            }
        }
        if is_whole {
            self.fetched.end_round();
        }
    }
}

/// The next step after a read.
#[derive(Debug)]
pub enum Next {
    /// This must be read, too.
    Read(Vec<Ask>, Box<Seen>),
    /// The answer.
    Answer(Vec<SubReply>, Payload),
    /// This must be written; the results are those of parts that are no calls.
    Write(Vec<SubReply>, Vec<Step>),
}

/// Decides on an operation. `source` is the source of a copy or rollback; without one, the object
/// is removed.
///
/// # Errors
/// The operation fails, and has no effect.
pub fn decide(
    ops: &[SubOp],
    payload: &Payload,
    seen: Seen,
    source: Option<Arc<Source>>,
    shared: bool,
) -> Result<Next, OpFailure> {
    let Seen {
        mut context,
        fetched,
        given,
    } = seen;
    let is_copied = source.is_some();
    if is_copied {
        // They do not change.
        context.attrs.retain(|name, _| !is_lock(name));
    }
    let part = |(index, op): (usize, &SubOp)| match op {
        _ if given.contains_key(&index) => SubOp::Stat {},
        SubOp::Rollback { .. } if is_copied => SubOp::CopyFrom {
            source: Default::default(),
        },
        SubOp::Rollback { .. } => SubOp::Delete {},
        // Whether it is held was read with the object.
        SubOp::AssertLock { .. } => SubOp::AssertExists { exists: true },
        SubOp::Lock { .. } | SubOp::Unlock { .. } => SubOp::Call {
            class: lock::CLASS.into(),
            method: Name::default(),
            length: 0,
        },
        // Everything that Ceph has no equivalent for.
        op => op.clone(),
    };
    let request = OpRequest {
        ops: ops.iter().enumerate().map(part).collect(),
        ..OpRequest::default()
    };
    let brought = Brought {
        source,
        ..Brought::default()
    };
    let may_write = ops.iter().any(SubOp::is_write);
    let setting = Setting {
        full: false,
        may_write,
        scene: &Scene::default(),
        brought: &brought,
    };
    let mut calls = Calls {
        ops,
        shared,
        steps: Vec::new(),
    };
    match evaluate(&request, payload, &context, fetched, &setting, &mut calls) {
        Outcome::Read { wants, fetched } => {
            let asks = wants.into_iter().map(Ask::Want).collect();
            Ok(Next::Read(
                asks,
                Box::new(Seen {
                    context,
                    fetched,
                    given,
                }),
            ))
        }
        Outcome::Answer {
            failure: Some(failure),
            ..
        } => Err(failure),
        Outcome::Answer {
            failure: None,
            mut results,
            payload,
        } => {
            given
                .into_iter()
                .for_each(|(index, reply)| results[index] = reply);
            if calls.steps.is_empty() {
                return Ok(Next::Answer(results, payload));
            }
            Ok(Next::Write(
                results,
                calls.steps.into_iter().map(|(_, step)| step).collect(),
            ))
        }
        Outcome::Update(Update {
            effects,
            payload,
            mut results,
            ..
        }) => {
            given
                .into_iter()
                .for_each(|(index, reply)| results[index] = reply);
            Ok(Next::Write(
                results,
                steps(effects, payload, context.size, calls.steps),
            ))
        }
        Outcome::Back { .. } | Outcome::Heavy { .. } | Outcome::Program { .. } => {
            unreachable!("no method runs here")
        }
    }
}

/// Attributes of the class `lock`, stored beside the user's.
pub fn is_lock(name: &Name) -> bool {
    name.as_bytes().starts_with(b"lock.")
}

/// Calls, which Ceph runs when the rest is written: after how many effects each comes.
struct Calls<'a> {
    ops: &'a [SubOp],
    shared: bool,
    steps: Vec<(usize, Step)>,
}

impl Calls<'_> {
    fn later(&mut self, index: usize, step: Step, view: &View) -> Called {
        // A later removal discards all earlier effects, but no call.
        let is_removed = self.ops[index..].contains(&SubOp::Delete {});
        self.steps
            .push((if is_removed { 0 } else { view.effects.len() }, step));
        Called::default()
    }
}

impl Methods for Calls<'_> {
    fn call(
        &mut self,
        index: u32,
        class: &Name,
        method: &Name,
        input: Bytes,
        mut view: View,
    ) -> (View, Result<Called, Stop>) {
        let index = index as usize;
        let step = match &self.ops[index] {
            op @ (SubOp::Lock { .. } | SubOp::Unlock { .. }) => {
                view.context.exists = true;
                lock_step(index, op, self.shared)
            }
            _ => Step::Call(index, class.clone(), method.clone(), input),
        };
        let called = self.later(index, step, &view);
        (view, Ok(called))
    }
    fn eval(
        &mut self,
        index: u32,
        script: &[u8],
        handler: &Name,
        input: Bytes,
        view: View,
    ) -> (View, Result<Called, Stop>) {
        let (class, method) = ("lua".into(), "eval_bufferlist".into());
        self.call(
            index,
            &class,
            &method,
            crate::lua::input(script, handler.as_bytes(), &input),
            view,
        )
    }
}

/// The effects on an object of `size` bytes, with calls between them, as Ceph's operations.
fn steps(
    effects: Vec<Effect>,
    payload: Payload,
    mut size: u64,
    calls: Vec<(usize, Step)>,
) -> Vec<Step> {
    let mut steps = Vec::with_capacity(effects.len() + calls.len());
    let mut data = PayloadCursor::new(payload);
    let (mut effects, mut calls) = (
        effects.into_iter().enumerate().peekable(),
        calls.into_iter().peekable(),
    );
    while let Some((at, effect)) = effects.next() {
        steps.extend(
            std::iter::from_fn(|| calls.next_if(|(after, _)| *after <= at)).map(|(_, step)| step),
        );
        match effect {
            Effect::Touch {} => steps.push(Step::Create(false)),
            Effect::Write { offset, length } => {
                let data = joined(
                    &data
                        .take(length as usize)
                        .expect("the payload is as long as its effects"),
                );
                let end = offset + length;
                let cut = effects.next_if(|(_, next)| *next == Effect::Truncate { size: end });
                match (offset, cut.is_some()) {
                    (0, true) => steps.push(Step::WriteFull(data)),
                    (0, false) if end >= size => steps.push(Step::WriteFull(data)),
                    (_, true) => steps.extend([Step::Write(offset, data), Step::Truncate(end)]),
                    (_, false) => steps.push(Step::Write(offset, data)),
                }
                size = if cut.is_some() { end } else { size.max(end) };
            }
            Effect::Zero { offset, length } => {
                steps.push(Step::Zero(offset, length));
                if offset + length >= size {
                    // Ceph treats zeroing up to the end as a truncation.
                    steps.push(Step::Truncate(size));
                }
            }
            Effect::Truncate { size: to } => {
                // Ceph does not set the size of a missing object.
                steps.extend([Step::Create(false), Step::Truncate(to)]);
                size = to;
            }
            Effect::Remove {} => {
                steps.push(Step::Remove);
                size = 0;
            }
            Effect::SetAttr { name, value } => steps.push(Step::SetAttr(own_attr(&name), value)),
            Effect::RemoveAttr { name } => steps.push(Step::RemoveAttr(own_attr(&name))),
            Effect::OmapSet { entries } => steps.push(Step::OmapSet(entries)),
            Effect::OmapRemove { keys } => steps.push(Step::OmapRemove(keys)),
            Effect::OmapClear {} => steps.push(Step::OmapClear),
            Effect::CloneFrom { .. } => unreachable!("rollbacks are copies here"),
        }
    }
    steps.extend(calls.map(|(_, step)| step));
    steps
}

fn own_attr(stored: &Name) -> Name {
    user_attr(stored.as_bytes())
        .expect("claims and headers are the class `lock`'s and the methods'")
}

/// Ceph numbers an object's changes with a single number.
#[must_use]
pub const fn version(number: u64) -> Version {
    Version {
        interval: Epoch(0),
        number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(size: u64) -> Seen {
        let mut seen = Seen::default();
        seen.context.version = version(7);
        seen.is_there(size, 3);
        seen.context
            .attrs
            .insert("a".into(), Bytes::from_static(b"1"));
        seen
    }
    fn decided(ops: &[SubOp], data: &'static [u8], seen: Seen) -> Result<Next, OpFailure> {
        decide(ops, &vec![Bytes::from_static(data)], seen, None, false)
    }
    fn written(ops: &[SubOp], data: &'static [u8], seen: Seen) -> (Vec<SubReply>, Vec<Step>) {
        match decided(ops, data, seen) {
            Ok(Next::Write(results, steps)) => (results, steps),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn zeroes_up_to_the_end_leave_the_size() {
        let zero = |offset, length| written(&[SubOp::Zero { offset, length }], b"", object(10)).1;
        assert_eq!(zero(2, 3), [Step::Create(false), Step::Zero(2, 3)]);
        assert_eq!(
            zero(2, 8),
            [Step::Create(false), Step::Zero(2, 8), Step::Truncate(10)]
        );
        assert_eq!(
            zero(2, 80),
            [Step::Create(false), Step::Zero(2, 8), Step::Truncate(10)]
        );
        assert_eq!(zero(10, 1), [Step::Create(false)]);
    }

    #[test]
    fn data_that_is_replaced_is_replaced_at_once() {
        let ops = [SubOp::Stat {}, SubOp::WriteFull { length: 2 }];
        for size in [0, 1, 2, 9] {
            assert_eq!(
                written(&ops, b"ab", object(size)).1,
                [Step::WriteFull(Bytes::from_static(b"ab"))],
                "{size}"
            );
        }
        let ops = [
            SubOp::Stat {},
            SubOp::Write {
                offset: 1,
                length: 2,
            },
            SubOp::Truncate { size: 3 },
        ];
        assert_eq!(
            written(&ops, b"ab", object(9)).1,
            [Step::Write(1, Bytes::from_static(b"ab")), Step::Truncate(3)]
        );
    }

    #[test]
    fn the_first_guard_that_does_not_hold_is_named() {
        let compare = |value: &'static [u8]| SubOp::CompareAttr {
            name: "a".into(),
            value: Bytes::from_static(value),
        };
        let failed = |ops: &[SubOp]| decided(ops, b"", object(0)).expect_err("a guard");
        assert_eq!(
            failed(&[compare(b"1"), compare(b"2"), compare(b"3")]),
            OpFailure::Guard { index: 1 }
        );
        assert_eq!(
            failed(&[SubOp::AssertVersion {
                version: version(6)
            }]),
            OpFailure::Guard { index: 0 }
        );
    }

    #[test]
    fn parts_see_what_parts_before_them_left() {
        let ops = [
            SubOp::SetAttr {
                name: "b".into(),
                value: Bytes::from_static(b"2"),
            },
            SubOp::Append { length: 5 },
            SubOp::Stat {},
            SubOp::GetAttr { name: "b".into() },
            SubOp::CompareData {
                offset: 10,
                length: 5,
            },
            SubOp::Delete {},
            SubOp::AssertExists { exists: false },
        ];
        let (results, steps) = written(&ops, b"hellohello", object(10));
        assert!(
            matches!(results[2], SubReply::Stat { size: 15, .. }),
            "{results:?}"
        );
        assert_eq!(
            results[3],
            SubReply::Value {
                value: Bytes::from_static(b"2")
            }
        );
        assert_eq!(steps, [Step::Remove]);
    }

    /// What was not requested at first is requested then.
    #[test]
    fn what_an_evaluation_wants_is_read_and_looked_at() {
        let ops = [
            SubOp::Append { length: 1 },
            SubOp::Checksum {
                offset: 0,
                length: 3,
            },
        ];
        let wants = vec![Ask::Want(Want::Data {
            offset: 0,
            length: 3,
        })];
        assert_eq!(asks(&ops, false), wants);
        let Ok(Next::Read(more, mut seen)) = decided(&ops, b"c", object(2)) else {
            panic!("it has to look")
        };
        assert_eq!(
            more,
            [Ask::Want(Want::Data {
                offset: 0,
                length: 2
            })]
        );
        seen.take(
            more.into_iter()
                .zip([Found::Data(Bytes::from_static(b"ab"))]),
        );
        let (results, _) = written(&ops, b"c", *seen);
        assert_eq!(
            results[1],
            SubReply::Checksum {
                crc: nacre_wire::checksum(&[Bytes::from_static(b"abc")]),
                length: 3
            }
        );
    }

    /// A lock keeps its position among the writes, and precedes a removal of the object.
    #[test]
    fn locks_are_calls_between_the_effects() {
        let lock = SubOp::Unlock {
            name: "l".into(),
            cookie: 1,
        };
        let touch = SubOp::SetAttr {
            name: "b".into(),
            value: Bytes::new(),
        };
        let kinds = |ops: &[SubOp]| -> Vec<&str> {
            let name = |step: &Step| match step {
                Step::Call(..) => "call",
                Step::Remove => "remove",
                Step::SetAttr(..) => "set",
                other => panic!("{other:?}"),
            };
            written(ops, b"", object(1)).1.iter().map(name).collect()
        };
        assert_eq!(
            kinds(&[touch.clone(), lock.clone(), touch.clone()]),
            ["set", "call", "set"]
        );
        assert_eq!(
            kinds(&[touch, lock.clone(), SubOp::Delete {}]),
            ["call", "remove"]
        );
        assert_eq!(kinds(&[SubOp::Delete {}, lock]), ["remove", "call"]);
    }
}
