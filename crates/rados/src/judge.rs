//! What an operation would do to an object whose state was read: results, the first part that
//! fails, and what is to be written.
//!
//! It is `crates/osd`'s evaluation in small, without what Ceph cannot do. What it decides on is one
//! version of the object; whoever writes afterwards sees to it that the object is still of that
//! version.

use crate::compound::Found;
use crate::plan::{Input, Step, lacks, lock_step, write_step};
use bytes::Bytes;
use nacre_types::{Name, Version};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use std::collections::BTreeMap;

/// What is known of an object: of one version.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Whether there is one.
    pub exists: bool,
    /// Bytes of data.
    pub size: u64,
    /// Ceph's number of its last change.
    pub version: Version,
    /// When that was, in seconds since 1970.
    pub modified_s: i64,
    /// All attributes, if any part needs them.
    pub attrs: BTreeMap<Name, Bytes>,
    /// What was read for each part.
    pub found: Vec<Option<Found>>,
    /// What a copy or rollback makes it, if that is there.
    pub source: Option<Whole>,
}

/// All of an object, of one version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Whole {
    /// Its data.
    pub data: Bytes,
    /// Its attributes, locks among them.
    pub attrs: BTreeMap<Name, Bytes>,
    /// Its map.
    pub omap: Vec<(Bytes, Bytes)>,
}

/// What the class `lock` keeps beside the user's attributes.
fn is_lock(name: &Name) -> bool {
    name.as_bytes().starts_with(b"lock.")
}

/// What came of it.
#[derive(Debug, PartialEq)]
pub struct Judged {
    /// One for each part; of calls what is known before they ran.
    pub results: Vec<SubReply>,
    /// Data.
    pub payload: Payload,
    /// What is to be written.
    pub steps: Vec<Step>,
}

struct Run<'a> {
    state: State,
    input: Input,
    wrote_data: bool,
    /// Changes of the omap by this operation; `None` is removed.
    omap: BTreeMap<Bytes, Option<Bytes>>,
    omap_is_new: bool,
    out: Judged,
    ops: &'a [SubOp],
}

/// Judges an operation.
///
/// # Errors
/// It fails, and has no effect.
pub fn judge(ops: &[SubOp], payload: &Payload, state: State) -> Result<Judged, OpFailure> {
    let out = Judged { results: Vec::new(), payload: Payload::new(), steps: Vec::new() };
    let input = Input::new(payload);
    let mut run = Run { state, input, wrote_data: false, omap: BTreeMap::new(), omap_is_new: false, out, ops };
    for index in 0..ops.len() {
        let result = run.part(index)?;
        run.out.results.push(result);
    }
    Ok(run.out)
}

impl Run<'_> {
    fn exists(&self) -> Result<(), OpFailure> {
        if self.state.exists { Ok(()) } else { Err(OpFailure::NotFound {}) }
    }
    fn data_is_as_read(&self) -> Result<(), OpFailure> {
        if self.wrote_data {
            return Err(lacks("own_writes", "an operation there cannot read data that it has changed: use two"));
        }
        Ok(())
    }
    fn range(&mut self, index: usize) -> Result<Bytes, OpFailure> {
        self.exists()?;
        self.data_is_as_read()?;
        match self.state.found.get_mut(index).and_then(Option::take) {
            Some(Found::Data(data)) => Ok(data),
            other => unreachable!("a range was read as {other:?}"),
        }
    }

    fn part(&mut self, index: usize) -> Result<SubReply, OpFailure> {
        let guard = OpFailure::Guard { index: u32::try_from(index).expect("few parts") };
        let op = &self.ops[index];
        match op {
            SubOp::Read { .. } => {
                let data = self.range(index)?;
                let length = data.len() as u64;
                if length > 0 {
                    self.out.payload.push(data);
                }
                return Ok(SubReply::Data { length });
            }
            SubOp::Checksum { offset, length } => {
                self.exists()?;
                self.data_is_as_read()?;
                let length = self.state.size.saturating_sub(*offset).min(*length);
                let crc = match self.state.found.get(index) {
                    _ if length == 0 => 0,
                    // Ceph leaves out the last inversion.
                    Some(Some(Found::Checksum(crc))) => !crc,
                    other => unreachable!("a checksum was read as {other:?}"),
                };
                return Ok(SubReply::Checksum { crc, length });
            }
            SubOp::Stat {} => {
                self.exists()?;
                let State { size, version, modified_s, .. } = self.state;
                return Ok(SubReply::Stat {
                    size,
                    version,
                    modified_ms: u64::try_from(modified_s).unwrap_or(0) * 1000,
                });
            }
            SubOp::GetAttr { name } => {
                self.exists()?;
                return Ok(SubReply::Value {
                    value: self.state.attrs.get(name).cloned().ok_or(OpFailure::NotFound {})?,
                });
            }
            SubOp::ListAttrs {} => {
                self.exists()?;
                let entry = |(name, value): (&Name, &Bytes)| (Bytes::copy_from_slice(name.as_bytes()), value.clone());
                return Ok(SubReply::Entries { entries: self.state.attrs.iter().map(entry).collect(), more: false });
            }
            SubOp::OmapGet { keys } => return self.omap_get(index, keys),
            SubOp::OmapList { .. } => {
                self.exists()?;
                if self.omap_is_new || !self.omap.is_empty() {
                    return Err(lacks(
                        "own_writes",
                        "an operation there cannot list a map that it has changed: use two",
                    ));
                }
                return match self.state.found.get_mut(index).and_then(Option::take) {
                    Some(Found::Entries(entries, more)) => Ok(SubReply::Entries { entries, more }),
                    other => unreachable!("entries were read as {other:?}"),
                };
            }
            SubOp::AssertExists { exists } if self.state.exists != *exists => return Err(guard),
            SubOp::AssertVersion { version } if !self.state.exists || self.state.version.number != version.number => {
                return Err(guard);
            }
            SubOp::AssertExists { .. } | SubOp::AssertVersion { .. } => {}
            SubOp::CompareData { length, .. } => {
                let wanted = self.input.take(*length);
                let found = if self.state.exists { self.range(index)? } else { Bytes::new() };
                if wanted != found {
                    return Err(guard);
                }
            }
            SubOp::CompareAttr { name, value } => {
                if self.state.attrs.get(name).map_or(&[][..], |value| &value[..]) != &value[..] {
                    return Err(guard);
                }
            }
            SubOp::Call { class, method, length } => {
                let input = self.input.take(*length);
                self.out.steps.push(Step::Call(index, class.clone(), method.clone(), input));
                return Ok(SubReply::Called { activation: 0, status: 0, output: Bytes::new() });
            }
            SubOp::Eval { script, handler, input } => {
                let (script, data) = (self.input.take(*script), self.input.take(*input));
                let input = crate::lua::input(&script, handler.as_bytes(), &data);
                self.out.steps.push(Step::Call(index, "lua".into(), "eval_bufferlist".into(), input));
                return Ok(SubReply::Called { activation: 0, status: 0, output: Bytes::new() });
            }
            // Whether it is held was read with the object, or is a call on the way.
            SubOp::AssertLock { .. } if !self.state.exists => return Err(guard),
            SubOp::AssertLock { .. } => {}
            SubOp::Lock { .. } | SubOp::Unlock { .. } => {
                self.out.steps.push(lock_step(index, op, false));
                self.state.exists = true;
            }
            SubOp::CopyFrom { .. } => {
                let source = self.state.source.take().ok_or(OpFailure::NotFound {})?;
                self.become_copy(source);
            }
            SubOp::Rollback { .. } => match self.state.source.take() {
                Some(source) => self.become_copy(source),
                None => self.write(&SubOp::Delete {})?,
            },
            op => self.write(op)?,
        }
        Ok(SubReply::Done {})
    }

    /// Data, attributes and map become those of the source; locks stay.
    fn become_copy(&mut self, source: Whole) {
        let Whole { data, attrs, omap } = source;
        self.state.size = data.len() as u64;
        (self.state.exists, self.wrote_data, self.omap_is_new) = (true, true, true);
        let steps = &mut self.out.steps;
        steps.push(Step::WriteFull(data));
        for name in self.state.attrs.keys().filter(|name| !is_lock(name) && !attrs.contains_key(*name)) {
            steps.push(Step::RemoveAttr(name.clone()));
        }
        self.state.attrs.retain(|name, _| is_lock(name));
        for (name, value) in attrs.into_iter().filter(|(name, _)| !is_lock(name)) {
            steps.push(Step::SetAttr(name.clone(), value.clone()));
            self.state.attrs.insert(name, value);
        }
        steps.push(Step::OmapClear);
        if !omap.is_empty() {
            steps.push(Step::OmapSet(omap.clone()));
        }
        self.omap = omap.into_iter().map(|(key, value)| (key, Some(value))).collect();
    }

    fn omap_get(&mut self, index: usize, keys: &[Bytes]) -> Result<SubReply, OpFailure> {
        self.exists()?;
        let mut values = BTreeMap::new();
        if !self.omap_is_new {
            match self.state.found.get_mut(index).and_then(Option::take) {
                Some(Found::Entries(entries, _)) => values.extend(entries),
                // There was no object when it was read, and there is one now: an empty one.
                None => {}
                other => unreachable!("values were read as {other:?}"),
            }
        }
        for key in keys {
            match self.omap.get(key) {
                Some(Some(value)) => drop(values.insert(key.clone(), value.clone())),
                Some(None) => drop(values.remove(key)),
                None => {}
            }
        }
        Ok(SubReply::Entries { entries: values.into_iter().collect(), more: false })
    }

    /// A part that writes: what it leaves behind for the parts after it, and what is sent.
    fn write(&mut self, op: &SubOp) -> Result<(), OpFailure> {
        let State { exists, size, attrs, .. } = &mut self.state;
        match op {
            SubOp::Write { length: 0, .. } | SubOp::Append { length: 0 } => {}
            SubOp::Write { offset, length } => (*size, self.wrote_data) = ((*size).max(offset + length), true),
            SubOp::WriteFull { length } => (*size, self.wrote_data) = (*length, true),
            SubOp::Append { length } => (*size, self.wrote_data) = (*size + length, true),
            SubOp::Truncate { size: new } => (*size, self.wrote_data) = (*new, true),
            SubOp::Zero { offset, length } => {
                self.wrote_data = true;
                let end = offset.saturating_add(*length).min(*size);
                self.out.steps.push(Step::Create(false));
                if *offset < end {
                    self.out.steps.push(Step::Zero(*offset, end - offset));
                    if end == *size {
                        // Ceph takes zeroes up to the end as a request to cut them off.
                        self.out.steps.push(Step::Truncate(*size));
                    }
                }
                *exists = true;
                return Ok(());
            }
            SubOp::Create { exclusive: true } if *exists => return Err(OpFailure::AlreadyExists {}),
            SubOp::Create { .. } => {}
            SubOp::SetAttr { name, value } => drop(attrs.insert(name.clone(), value.clone())),
            SubOp::RemoveAttr { name } => {
                self.exists()?;
                self.state.attrs.remove(name).ok_or(OpFailure::NotFound {})?;
                self.out.steps.push(Step::RemoveAttr(name.clone()));
                return Ok(());
            }
            SubOp::OmapSet { entries } => {
                self.omap.extend(entries.iter().map(|(key, value)| (key.clone(), Some(value.clone()))));
            }
            SubOp::OmapRemove { .. } | SubOp::OmapClear {} | SubOp::Delete {} if !*exists => {
                return Err(OpFailure::NotFound {});
            }
            SubOp::OmapRemove { keys } => self.omap.extend(keys.iter().map(|key| (key.clone(), None))),
            SubOp::OmapClear {} => {
                self.omap.clear();
                self.omap_is_new = true;
            }
            SubOp::Delete {} => {
                self.state = State {
                    version: self.state.version,
                    found: std::mem::take(&mut self.state.found),
                    ..State::default()
                };
                self.omap.clear();
                (self.omap_is_new, self.wrote_data) = (true, true);
                self.out.steps.push(Step::Remove);
                return Ok(());
            }
            other => return Err(lacks("compound", &format!("{other:?} stands alone there"))),
        }
        write_step(op, &mut self.input, &mut self.out.steps).expect("what needs the object's state is above");
        self.state.exists = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::Epoch;

    fn object(size: u64) -> State {
        let attrs = BTreeMap::from([(Name::from("a"), Bytes::from_static(b"1"))]);
        State { exists: true, size, version: Version { interval: Epoch(0), number: 7 }, attrs, ..State::default() }
    }

    #[test]
    fn zeroes_up_to_the_end_leave_the_size() {
        let zero = |offset, length| {
            judge(&[SubOp::Zero { offset, length }], &Payload::new(), object(10)).expect("possible").steps
        };
        assert_eq!(zero(2, 3), [Step::Create(false), Step::Zero(2, 3)]);
        assert_eq!(zero(2, 8), [Step::Create(false), Step::Zero(2, 8), Step::Truncate(10)]);
        assert_eq!(zero(2, 80), [Step::Create(false), Step::Zero(2, 8), Step::Truncate(10)]);
        assert_eq!(zero(10, 1), [Step::Create(false)]);
    }

    #[test]
    fn the_first_guard_that_does_not_hold_is_named() {
        let compare = |value: &'static [u8]| SubOp::CompareAttr { name: "a".into(), value: Bytes::from_static(value) };
        let ops = [compare(b"1"), compare(b"2"), compare(b"3")];
        assert_eq!(judge(&ops, &Payload::new(), object(0)), Err(OpFailure::Guard { index: 1 }));
        let version = Version { interval: Epoch(0), number: 6 };
        assert_eq!(
            judge(&[SubOp::AssertVersion { version }], &Payload::new(), object(0)),
            Err(OpFailure::Guard { index: 0 })
        );
    }

    #[test]
    fn parts_see_what_parts_before_them_left() {
        let ops = [
            SubOp::SetAttr { name: "b".into(), value: Bytes::from_static(b"2") },
            SubOp::Append { length: 5 },
            SubOp::Stat {},
            SubOp::GetAttr { name: "b".into() },
            SubOp::Delete {},
            SubOp::AssertExists { exists: false },
        ];
        let judged = judge(&ops, &vec![Bytes::from_static(b"hello")], object(10)).expect("possible");
        assert!(matches!(judged.results[2], SubReply::Stat { size: 15, .. }), "{judged:?}");
        assert_eq!(judged.results[3], SubReply::Value { value: Bytes::from_static(b"2") });
        assert_eq!(judged.steps.len(), 3);
        let refused = judge(
            &[SubOp::Append { length: 1 }, SubOp::Read { offset: 0, length: 1 }],
            &vec![Bytes::from_static(b"x")],
            object(1),
        );
        assert!(refused.expect_err("it wrote").to_string().contains("own_writes"));
    }
}
