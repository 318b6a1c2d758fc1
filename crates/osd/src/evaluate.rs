//! What an operation does to an object: conditions in, effects out. No state, no I/O.
//!
//! Parts are evaluated in order against the object as the parts before left it, except that data and omap are read as they were before
//! the operation; an operation that would read its own data is refused rather than answered wrongly. The first condition that does not hold ends
//! it without effects.

use crate::claims::{self, Scene};
use crate::pg::local::VERSION_ATTR;
use crate::pg::object::Context;
use bytes::Bytes;
use nacre_store::{Read, ReadReply};
use nacre_types::{Name, PgId, Version};
use nacre_wire::msg::PayloadCursor;
use nacre_wire::msg::client::{
    ATTR_BYTES_MAX, ATTR_NAME_MAX, OBJECT_BYTES_MAX, OP_BYTES_MAX, OUTPUT_BYTES_MAX, OpFailure, OpRequest, SUB_OPS_MAX,
    SubOp, SubReply,
};
use nacre_wire::msg::replication::Effect;
use nacre_wire::{Payload, Wire};
use std::collections::BTreeMap;

/// Clients' attributes are stored behind this prefix.
pub const USER_ATTR: &[u8] = b"u";
/// Longest omap key and value.
const OMAP_KEY_MAX: usize = 4096;
const OMAP_VALUE_MAX: usize = 1 << 20;

/// What an operation does.
#[derive(Debug)]
pub enum Outcome {
    /// It changes the object.
    Update(Update),
    /// It does not: it failed, or only reads.
    Answer {
        /// Why it failed.
        failure: Option<OpFailure>,
        /// One for each part.
        results: Vec<SubReply>,
        /// Data of the reads.
        payload: Payload,
    },
}

/// A change of an object.
#[derive(Debug)]
pub struct Update {
    /// In order; the version attribute is added when the version is known.
    pub effects: Vec<Effect>,
    /// Data of the effects.
    pub payload: Payload,
    /// The object afterwards, but for its version.
    pub context: Context,
    /// One for each part.
    pub results: Vec<SubReply>,
}

/// Whether the operation is one at all: counts, lengths and names within bounds.
///
/// # Errors
/// What every OSD would answer, whatever the object.
pub fn validate(request: &OpRequest, payload: &[Bytes]) -> Result<(), OpFailure> {
    let invalid = |why: &str| Err(OpFailure::Invalid { why: why.to_owned() });
    if request.ops.is_empty() || request.ops.len() > SUB_OPS_MAX {
        return invalid("an operation has between 1 and 64 parts");
    }
    if request.request.sequence == 0 {
        return invalid("sequence numbers begin at 1");
    }
    let announced: u64 = request.ops.iter().fold(0, |sum, op| sum.saturating_add(op.payload_len()));
    if announced > OP_BYTES_MAX {
        return Err(OpFailure::TooLarge {});
    }
    if announced != nacre_wire::msg::payload_len(payload) as u64 {
        return invalid("the data is longer or shorter than its parts say");
    }
    let range = |offset: u64, length: u64| match offset.checked_add(length) {
        Some(end) if end <= OBJECT_BYTES_MAX => Ok(()),
        _ => Err(OpFailure::TooLarge {}),
    };
    let mut data_changed = false;
    let writes = request.ops.iter().any(SubOp::is_write);
    for op in &request.ops {
        match op {
            SubOp::Read { length, .. } if *length > OP_BYTES_MAX => return Err(OpFailure::TooLarge {}),
            SubOp::Read { .. } | SubOp::OmapGet { .. } | SubOp::OmapList { .. } | SubOp::CompareData { .. }
                if data_changed =>
            {
                return invalid("data or omap cannot be read after the same operation changed it");
            }
            SubOp::Read { .. } if writes => {
                return invalid("an operation that writes cannot return data; read it in another");
            }
            SubOp::Write { offset, length }
            | SubOp::Zero { offset, length }
            | SubOp::CompareData { offset, length } => {
                range(*offset, *length)?;
            }
            SubOp::Truncate { size } => range(0, *size)?,
            SubOp::GetAttr { name } | SubOp::RemoveAttr { name } if name.as_bytes().len() > ATTR_NAME_MAX => {
                return Err(OpFailure::TooLarge {});
            }
            SubOp::SetAttr { name, value } | SubOp::CompareAttr { name, value }
                if name.as_bytes().len() > ATTR_NAME_MAX || value.len() > ATTR_BYTES_MAX =>
            {
                return Err(OpFailure::TooLarge {});
            }
            SubOp::OmapSet { entries } => {
                let long = |(key, value): &(Bytes, Bytes)| key.len() > OMAP_KEY_MAX || value.len() > OMAP_VALUE_MAX;
                if entries.iter().any(long) {
                    return Err(OpFailure::TooLarge {});
                }
            }
            SubOp::ListObjects { .. } if request.ops.len() > 1 => return invalid("a listing stands alone"),
            _ => {
                claims::watch::validate(op, request.ops.len() == 1)?;
                claims::lock::validate(op)?;
            }
        }
        data_changed |= op.is_write() && !changes_only_attributes(op);
    }
    Ok(())
}

const fn changes_only_attributes(op: &SubOp) -> bool {
    matches!(
        op,
        SubOp::SetAttr { .. }
            | SubOp::RemoveAttr { .. }
            | SubOp::Watch { .. }
            | SubOp::Unwatch { .. }
            | SubOp::Lock { .. }
            | SubOp::Unlock { .. }
            | SubOp::BreakLock { .. }
    )
}

/// What has to be read before the operation can be evaluated, by index of the part.
#[must_use]
pub fn needed_reads(request: &OpRequest, pg: PgId) -> Vec<(usize, Read)> {
    let object = || crate::key::store_key(pg, &request.object);
    let read = |(index, op): (usize, &SubOp)| {
        let read = match op {
            SubOp::Read { offset, length } | SubOp::CompareData { offset, length } => {
                Read::Data { object: object(), offset: *offset, length: *length }
            }
            SubOp::OmapGet { keys } => Read::OmapGet { object: object(), keys: keys.clone() },
            SubOp::OmapList { after, limit } => Read::Omap {
                object: object(),
                from: if after.is_empty() {
                    std::ops::Bound::Unbounded
                } else {
                    std::ops::Bound::Excluded(after.clone())
                },
                to: None,
                limit_entries: (*limit as usize).clamp(1, 10_000),
                limit_bytes: 4 << 20,
            },
            _ => return None,
        };
        Some((index, read))
    };
    request.ops.iter().enumerate().filter_map(read).collect()
}

/// Evaluates the operation on the object. `data` has what [`needed_reads`] asked for; a part without a reply found no object.
#[must_use]
pub fn evaluate(
    request: &OpRequest,
    payload: &Payload,
    context: &Context,
    data: &BTreeMap<usize, ReadReply>,
    full: bool,
    scene: &Scene,
) -> Outcome {
    let mut run = Run {
        scene,
        context: context.clone(),
        effects: Vec::new(),
        written: Payload::new(),
        results: Vec::new(),
        returned: Payload::new(),
        input: PayloadCursor::new(payload.clone()),
        grows: false,
    };
    for (index, op) in request.ops.iter().enumerate() {
        if let Err(failure) = run.part(index, op, data.get(&index)) {
            return Outcome::Answer { failure: Some(failure), results: Vec::new(), payload: Payload::new() };
        }
    }
    if !request.ops.iter().any(SubOp::is_write) {
        return Outcome::Answer { failure: None, results: run.results, payload: run.returned };
    }
    let attrs: usize = run.context.attrs.iter().map(|(name, value)| name.as_bytes().len() + value.len()).sum();
    let attrs = attrs + run.context.claims.bytes();
    let failure = if full && run.grows && request.flags & nacre_wire::msg::client::op_flag::FULL_OK == 0 {
        Some(OpFailure::Full {})
    } else if attrs > ATTR_BYTES_MAX || run.results.to_bytes().len() > OUTPUT_BYTES_MAX {
        Some(OpFailure::TooLarge {})
    } else {
        None
    };
    match failure {
        Some(_) => Outcome::Answer { failure, results: Vec::new(), payload: Payload::new() },
        None => {
            let Run { context, effects, written, results, .. } = run;
            Outcome::Update(Update { effects, payload: written, context, results })
        }
    }
}

struct Run<'a> {
    scene: &'a Scene,
    context: Context,
    effects: Vec<Effect>,
    written: Payload,
    results: Vec<SubReply>,
    returned: Payload,
    input: PayloadCursor,
    grows: bool,
}

impl Run<'_> {
    fn take(&mut self, length: u64) -> Payload {
        self.input.take(length as usize).expect("the payload is as long as its parts say: validated")
    }

    fn exists(&self) -> Result<(), OpFailure> {
        if self.context.exists { Ok(()) } else { Err(OpFailure::NotFound {}) }
    }

    fn write(&mut self, offset: u64, length: u64) -> Result<(), OpFailure> {
        let end = offset.checked_add(length).filter(|end| *end <= OBJECT_BYTES_MAX).ok_or(OpFailure::TooLarge {})?;
        let data = self.take(length);
        self.written.extend(data);
        if length == 0 {
            self.effects.push(Effect::Touch {});
        } else {
            self.effects.push(Effect::Write { offset, length });
            self.context.size = self.context.size.max(end);
        }
        self.touch();
        Ok(())
    }

    fn touch(&mut self) {
        self.context.exists = true;
        self.grows = true;
    }

    fn part(&mut self, index: usize, op: &SubOp, data: Option<&ReadReply>) -> Result<(), OpFailure> {
        let guard = OpFailure::Guard { index: u32::try_from(index).expect("few parts") };
        let mut result = SubReply::Done {};
        match op {
            SubOp::Read { .. } => {
                self.exists()?;
                let Some(ReadReply::Data(pieces)) = data else { return Err(OpFailure::NotFound {}) };
                result = SubReply::Data { length: nacre_wire::msg::payload_len(pieces) as u64 };
                self.returned.extend(pieces.iter().cloned());
            }
            SubOp::Stat {} => {
                self.exists()?;
                result = SubReply::Stat { size: self.context.size, version: self.context.version };
            }
            SubOp::Write { offset, length } => self.write(*offset, *length)?,
            SubOp::WriteFull { length } => {
                let size = self.context.size;
                if self.context.damaged {
                    // Otherwise the rest of the last block, of which nobody knows that nothing of it is left, would stay unreadable.
                    self.effects.push(Effect::Truncate { size: 0 });
                }
                self.context.size = 0;
                self.write(0, *length)?;
                if *length < size {
                    self.effects.push(Effect::Truncate { size: *length });
                }
            }
            SubOp::Append { length } => self.write(self.context.size, *length)?,
            SubOp::Zero { offset, length } => {
                // Only what exists: the size does not change.
                let end = (offset + length).min(self.context.size);
                self.effects.push(Effect::Touch {});
                if *offset < end {
                    self.effects.push(Effect::Zero { offset: *offset, length: end - offset });
                }
                self.touch();
            }
            SubOp::Truncate { size } => {
                self.effects.push(Effect::Truncate { size: *size });
                let shrinks = *size <= self.context.size && self.context.exists;
                self.context.size = *size;
                self.context.exists = true;
                self.grows |= !shrinks;
            }
            SubOp::Create { exclusive } => {
                if *exclusive && self.context.exists {
                    return Err(OpFailure::AlreadyExists {});
                }
                self.effects.push(Effect::Touch {});
                self.touch();
            }
            SubOp::Delete {} => {
                self.exists()?;
                self.effects.clear();
                self.written.clear();
                self.effects.push(Effect::Remove {});
                self.context = Context { version: self.context.version, ..Context::default() };
            }
            SubOp::GetAttr { name } => {
                self.exists()?;
                let value = self.context.attrs.get(name).cloned().ok_or(OpFailure::NotFound {})?;
                result = SubReply::Value { value };
            }
            SubOp::ListAttrs {} => {
                self.exists()?;
                let entry = |(name, value): (&Name, &Bytes)| (Bytes::copy_from_slice(name.as_bytes()), value.clone());
                result = SubReply::Entries { entries: self.context.attrs.iter().map(entry).collect(), more: false };
            }
            SubOp::SetAttr { name, value } => {
                self.effects.push(Effect::SetAttr { name: stored_attr(name), value: value.clone() });
                self.context.attrs.insert(name.clone(), value.clone());
                self.touch();
            }
            SubOp::RemoveAttr { name } => {
                self.exists()?;
                self.context.attrs.remove(name).ok_or(OpFailure::NotFound {})?;
                self.effects.push(Effect::RemoveAttr { name: stored_attr(name) });
            }
            SubOp::OmapGet { .. } | SubOp::OmapList { .. } => {
                self.exists()?;
                let Some(ReadReply::Omap { entries, more }) = data else { return Err(OpFailure::NotFound {}) };
                result = SubReply::Entries { entries: entries.clone(), more: *more };
            }
            SubOp::OmapSet { entries } => {
                self.effects.push(Effect::OmapSet { entries: entries.clone() });
                self.touch();
            }
            SubOp::OmapRemove { keys } => {
                self.exists()?;
                self.effects.push(Effect::OmapRemove { keys: keys.clone() });
            }
            SubOp::OmapClear {} => {
                self.exists()?;
                self.effects.push(Effect::OmapClear {});
            }
            SubOp::AssertExists { exists } => {
                if self.context.exists != *exists {
                    return Err(guard);
                }
            }
            SubOp::AssertVersion { version } => {
                if !self.context.exists || self.context.version != *version {
                    return Err(guard);
                }
            }
            SubOp::CompareData { length, .. } => {
                let wanted = self.take(*length);
                let found: &[Bytes] = match data {
                    Some(ReadReply::Data(pieces)) => pieces,
                    _ => &[],
                };
                if !wanted.iter().flatten().eq(found.iter().flatten()) {
                    return Err(guard);
                }
            }
            SubOp::CompareAttr { name, value } => {
                if self.context.attrs.get(name).map_or(&[][..], |value| &value[..]) != &value[..] {
                    return Err(guard);
                }
            }
            SubOp::ListObjects { .. } => unreachable!("listings are not evaluated on an object"),
            SubOp::Watch { .. } | SubOp::Unwatch { .. } | SubOp::ListWatchers {} => {
                result = claims::watch::part(op, self.scene, &mut self.context, &mut self.effects)?;
            }
            SubOp::Notify { .. } => unreachable!("a notify is not evaluated: it tells the object's watchers"),
            SubOp::Lock { .. }
            | SubOp::Unlock { .. }
            | SubOp::BreakLock { .. }
            | SubOp::AssertLock { .. }
            | SubOp::ListLocks {} => {
                result = claims::lock::part(op, guard, self.scene, &mut self.context, &mut self.effects)?;
            }
        }
        self.results.push(result);
        Ok(())
    }
}

fn stored_attr(name: &Name) -> Name {
    Name::copy(&[USER_ATTR, name.as_bytes()].concat())
}

/// The effect that gives the object its version.
#[must_use]
pub fn version_effect(version: Version) -> Effect {
    Effect::SetAttr { name: Name::copy(VERSION_ATTR), value: version.to_bytes().into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::ObjectId;
    use nacre_wire::msg::client::RequestId;

    fn request(ops: Vec<SubOp>) -> OpRequest {
        OpRequest {
            request: RequestId { sequence: 1, ..RequestId::default() },
            answered_below: 1,
            pg: PgId::default(),
            object: ObjectId::named("o"),
            ops,
            flags: 0,
            fence: nacre_types::Epoch(0),
            snaps: Default::default(),
            trace: 0,
            tenant: 0,
            deadline_ms: 0,
            attempt: 0,
        }
    }
    fn existing(size: u64) -> Context {
        Context { exists: true, size, ..Context::default() }
    }
    fn run(ops: Vec<SubOp>, payload: &[u8], context: &Context) -> Outcome {
        let payload = if payload.is_empty() { vec![] } else { vec![Bytes::copy_from_slice(payload)] };
        let request = request(ops);
        validate(&request, &payload).expect("valid");
        evaluate(&request, &payload, context, &BTreeMap::new(), false, &Scene::default())
    }
    fn update(outcome: Outcome) -> Update {
        match outcome {
            Outcome::Update(update) => update,
            Outcome::Answer { failure, .. } => panic!("{failure:?}"),
        }
    }

    #[test]
    fn replacing_data_with_less_cuts_the_rest_off() {
        let update = update(run(vec![SubOp::WriteFull { length: 3 }], b"abc", &existing(10)));
        assert_eq!(update.effects, [Effect::Write { offset: 0, length: 3 }, Effect::Truncate { size: 3 }]);
        assert_eq!(update.context.size, 3);
    }

    #[test]
    fn a_failed_guard_leaves_no_effects_of_earlier_parts() {
        let ops =
            vec![SubOp::Append { length: 1 }, SubOp::CompareAttr { name: "a".into(), value: Bytes::from_static(b"x") }];
        let outcome = run(ops, b"z", &existing(10));
        assert!(matches!(outcome, Outcome::Answer { failure: Some(OpFailure::Guard { index: 1 }), .. }), "{outcome:?}");
    }

    #[test]
    fn deleting_forgets_what_the_same_operation_wrote_before() {
        let ops = vec![SubOp::Append { length: 1 }, SubOp::Delete {}, SubOp::Create { exclusive: true }];
        let update = update(run(ops, b"z", &existing(10)));
        assert_eq!(update.effects, [Effect::Remove {}, Effect::Touch {}]);
        assert!(update.payload.is_empty() && update.context.exists && update.context.size == 0);
    }

    #[test]
    fn nonsense_is_refused_before_it_reaches_an_object() {
        let refused =
            |ops: Vec<SubOp>, data: &'static [u8]| validate(&request(ops), &[Bytes::from_static(data)]).is_err();
        assert!(refused(vec![], b""));
        assert!(refused(vec![SubOp::Write { offset: u64::MAX, length: 1 }], b"x"));
        assert!(refused(vec![SubOp::Write { offset: 0, length: u64::MAX }, SubOp::Append { length: 2 }], b"x"));
        assert!(refused(vec![SubOp::Write { offset: 0, length: 2 }], b"x"));
        assert!(refused(vec![SubOp::Append { length: 1 }, SubOp::Read { offset: 0, length: 1 }], b"x"));
        assert!(refused(vec![SubOp::ListObjects { after: Bytes::new(), limit: 1 }, SubOp::Stat {}], b""));
    }

    #[test]
    fn a_full_cluster_still_shrinks() {
        let full = |ops: Vec<SubOp>, payload: Payload| {
            evaluate(&request(ops), &payload, &existing(10), &BTreeMap::new(), true, &Scene::default())
        };
        assert!(matches!(full(vec![SubOp::Delete {}], vec![]), Outcome::Update(_)));
        assert!(matches!(full(vec![SubOp::Truncate { size: 1 }], vec![]), Outcome::Update(_)));
        let grown = full(vec![SubOp::Append { length: 1 }], vec![Bytes::from_static(b"x")]);
        assert!(matches!(grown, Outcome::Answer { failure: Some(OpFailure::Full {}), .. }));
    }

    /// The store's bound is on all attributes of an object together.
    #[test]
    fn claims_count_towards_the_size_of_the_attributes() {
        let mut context = existing(0);
        let value = Bytes::from(vec![0; ATTR_BYTES_MAX - 100]);
        context.attrs.insert("a".into(), value);
        let lock = |description: String| {
            vec![SubOp::Lock { name: "n".into(), cookie: 1, shared: false, lease_ms: 0, description }]
        };
        assert!(matches!(run(lock(String::new()), b"", &context), Outcome::Update(_)));
        let outcome = run(lock("x".repeat(40)), b"", &context);
        assert!(matches!(outcome, Outcome::Answer { failure: Some(OpFailure::TooLarge {}), .. }), "{outcome:?}");
    }
}
