//! An object as an operation sees it during evaluation: the old object with the operation's own
//! changes on top (DESIGN §4).
//!
//! ```text
//!  read ──▶ written by this operation? ──no──▶ read from the store already? ──no──▶ Stop::Wait, and the want is noted
//!  write ─▶ an effect for the log and the replicas, and a patch for later reads of this operation
//! ```
//! Plain parts of operations and class methods, in Lua or Rust, use the same functions. So each of
//! them reads what earlier ones wrote, and effects are replicated, never programs.

use crate::attributes::stored_attr;
use crate::context::Context;
use crate::fetched::{FETCHED_BYTES_MAX, Fetched, KEYS_AT_ONCE, PAGE_BYTES_MAX, Want};
use crate::patches::{Patch, Patches};
use crate::snaps::Then;
use bytes::{Bytes, BytesMut};
use nacre_policy::DERIVED;
use nacre_types::{Name, SnapId};
use nacre_wire::Payload;
use nacre_wire::msg::client::{
    ATTR_BYTES_MAX, ATTR_NAME_MAX, OBJECT_BYTES_MAX, OMAP_KEY_MAX, OMAP_VALUE_MAX, OP_BYTES_MAX,
    OpFailure,
};
use nacre_wire::msg::payload_len;
use nacre_wire::msg::replication::Effect;
use nacre_wire::msg::snap::{COPY_SMALL_BYTES_MAX, Whole};
use std::collections::BTreeMap;

/// Most effects of one operation.
pub const EFFECTS_MAX: usize = 10_000;
/// Most omap entries of an object that is copied.
pub const COPY_ENTRIES_MAX: usize = 50_000;
/// Most bytes in one listing, keys and values together.
const LIST_BYTES_MAX: usize = 4 << 20;
/// Every store accepts what is ordered.
const _: () = assert!(OBJECT_BYTES_MAX <= nacre_store::api::OBJECT_SIZE_MAX);

/// Why an evaluation ends early.
#[derive(Debug, PartialEq)]
pub enum Stop {
    /// The operation fails.
    Fail(OpFailure),
    /// It needs something that has not been read yet.
    Wait,
    /// A method takes longer than is allowed on this thread: another thread must evaluate the
    /// operation.
    Heavy,
    /// A method calls a class whose source is being fetched. The number is the moment
    /// ([`crate::methods::Facts`]) of the evaluation.
    Program(u64),
}

impl From<OpFailure> for Stop {
    fn from(failure: OpFailure) -> Self {
        Self::Fail(failure)
    }
}

/// See the module head.
#[derive(Debug, Default)]
pub struct View {
    /// The object after the parts so far; the version is still the old one.
    pub context: Context,
    /// Effects so far, in order.
    pub effects: Vec<Effect>,
    /// Payload of the effects.
    pub written: Payload,
    /// Whether an effect may need more space.
    pub grows: bool,
    /// What was read for the operation.
    pub fetched: Fetched,
    /// What it must have to continue, or will soon want.
    pub wanted: Vec<Want>,
    /// The object's states at the snapshots that methods want to roll back to; `None`: the pool has
    /// no such snapshot.
    pub brought: Vec<(SnapId, Option<Then>)>,
    /// A method wants to roll back to this snapshot.
    pub back: Option<SnapId>,
    /// It has become a copy of a clone: its data and omap are not known here.
    pub(crate) copied: bool,
    /// How many bytes of the old data are still visible.
    old_size: u64,
    /// Nothing of the old omap is visible.
    omap_is_new: bool,
    patches: Patches,
    omap: BTreeMap<Bytes, Option<Bytes>>,
}

impl View {
    /// A view of the current object.
    #[must_use]
    pub fn new(context: Context, fetched: Fetched) -> Self {
        let (old_size, omap_is_new) = (context.size, !context.exists);
        Self {
            context,
            fetched,
            old_size,
            omap_is_new,
            ..Self::default()
        }
    }

    /// Fails if the object does not exist.
    ///
    /// # Errors
    /// [`OpFailure::NotFound`].
    pub const fn exists(&self) -> Result<(), Stop> {
        if self.context.exists {
            Ok(())
        } else {
            Err(Stop::Fail(OpFailure::NotFound {}))
        }
    }

    fn want<T>(&mut self, want: Want) -> Result<T, Stop> {
        if !self.wanted.contains(&want) {
            self.wanted.push(want);
        }
        Err(Stop::Wait)
    }

    /// Whether the wanted reads have reached the limit of one operation.
    pub fn wants_enough(&self) -> bool {
        let bytes = |want: &Want| match want {
            Want::Data { length, .. } => *length,
            Want::Keys(_) | Want::Page { .. } => PAGE_BYTES_MAX as u64,
            Want::Clone(_) => 0,
        };
        self.wanted.iter().map(bytes).sum::<u64>() >= FETCHED_BYTES_MAX / 2
    }

    fn effect(&mut self, effect: Effect) -> Result<(), Stop> {
        if self.effects.len() >= EFFECTS_MAX {
            return Err(Stop::Fail(OpFailure::TooLarge {}));
        }
        self.effects.push(effect);
        Ok(())
    }

    fn touched(&mut self) {
        self.context.exists = true;
        self.grows = true;
    }

    /// Called before the data changes: removes attributes that describe the data
    /// (`nacre_policy::DERIVED`).
    fn data_changes(&mut self) -> Result<(), Stop> {
        if self.context.attrs.is_empty() {
            return Ok(());
        }
        let first = Name::copy(&[DERIVED]);
        let describes = |name: &&Name| name.as_bytes().first() == Some(&DERIVED);
        let gone: Vec<Name> = self
            .context
            .attrs
            .range(first..)
            .map(|(name, _)| name)
            .take_while(describes)
            .cloned()
            .collect();
        gone.iter().try_for_each(|name| self.remove_attr(name))
    }

    // ── data ────────────────────────────────────────────────────────────────────────────

    /// Reads a range, short at the object's end.
    ///
    /// # Errors
    /// The object does not exist, the range is larger than one operation may read, or it has to be
    /// read from the store first.
    pub fn read(&mut self, offset: u64, length: u64) -> Result<Vec<Bytes>, Stop> {
        self.exists()?;
        self.is_known()?;
        if length > OP_BYTES_MAX {
            return Err(Stop::Fail(OpFailure::TooLarge {}));
        }
        let end = offset.saturating_add(length).min(self.context.size);
        if offset >= end {
            return Ok(Vec::new());
        }
        let mut out = Vec::new();
        let mut waits = false;
        for part in self.patches.parts(offset, end) {
            match part.patch {
                Some(Patch::Data(pieces)) => out.extend(pieces),
                Some(Patch::Zeros) => out.push(zeros(part.end - part.offset)),
                None => {
                    let old_end = part.end.min(self.old_size).max(part.offset);
                    if part.offset < old_end {
                        match self.fetched.data(part.offset, old_end) {
                            Some(pieces) => {
                                let got = payload_len(&pieces) as u64;
                                out.extend(pieces);
                                // The store returns less than the context says only for damaged
                                // data; clients never get other bytes instead.
                                if got < old_end - part.offset {
                                    return Ok(out);
                                }
                            }
                            None => {
                                let want = self.fetched.want(part.offset, old_end, self.old_size);
                                let _: Result<(), Stop> = self.want(want);
                                waits = true;
                            }
                        }
                    }
                    if part.end > old_end {
                        out.push(zeros(part.end - old_end));
                    }
                }
            }
        }
        if waits { Err(Stop::Wait) } else { Ok(out) }
    }

    /// After a rollback, data and omap can only be read in another operation.
    pub(crate) fn is_known(&self) -> Result<(), Stop> {
        if !self.copied {
            return Ok(());
        }
        let why = "what an operation has rolled back is read in another one".to_owned();
        Err(Stop::Fail(OpFailure::Invalid { why }))
    }

    /// Writes a range.
    ///
    /// # Errors
    /// The object would be too large.
    pub fn write(&mut self, offset: u64, data: Payload) -> Result<(), Stop> {
        let length = payload_len(&data) as u64;
        // Checked before any change: a method may catch the error and continue.
        let end = offset
            .checked_add(length)
            .filter(|end| *end <= OBJECT_BYTES_MAX)
            .ok_or(OpFailure::TooLarge {})?;
        self.data_changes()?;
        if length == 0 {
            self.effect(Effect::Touch {})?;
        } else {
            self.effect(Effect::Write { offset, length })?;
            self.written.extend(data.iter().cloned());
            self.patches.put(offset, end, Patch::Data(data));
            self.context.size = self.context.size.max(end);
        }
        self.touched();
        Ok(())
    }

    /// Replaces all data.
    ///
    /// # Errors
    /// The object would be too large.
    pub fn write_full(&mut self, data: Payload) -> Result<(), Stop> {
        let (size, length) = (self.context.size, payload_len(&data) as u64);
        if self.context.damaged {
            // Otherwise the rest of the last block would stay unreadable, because it is unknown
            // whether anything of it is left.
            self.effect(Effect::Truncate { size: 0 })?;
        }
        self.forget_data_from(0);
        self.context.size = 0;
        self.write(0, data)?;
        if length < size {
            self.effect(Effect::Truncate { size: length })?;
        }
        Ok(())
    }

    /// Makes the existing part of a range read as zeros. The size does not change.
    ///
    /// # Errors
    /// Too many effects.
    pub fn zero(&mut self, offset: u64, length: u64) -> Result<(), Stop> {
        self.data_changes()?;
        let end = offset.saturating_add(length).min(self.context.size);
        self.effect(Effect::Touch {})?;
        if offset < end {
            self.effect(Effect::Zero {
                offset,
                length: end - offset,
            })?;
            self.patches.put(offset, end, Patch::Zeros);
        }
        self.touched();
        Ok(())
    }

    /// Sets the size.
    ///
    /// # Errors
    /// The object would be too large.
    pub fn truncate(&mut self, size: u64) -> Result<(), Stop> {
        if size > OBJECT_BYTES_MAX {
            return Err(Stop::Fail(OpFailure::TooLarge {}));
        }
        self.data_changes()?;
        self.effect(Effect::Truncate { size })?;
        let shrinks = size <= self.context.size && self.context.exists;
        if size < self.context.size {
            self.forget_data_from(size);
        }
        self.context.size = size;
        self.context.exists = true;
        self.grows |= !shrinks;
        Ok(())
    }

    fn forget_data_from(&mut self, size: u64) {
        self.patches.cut(size, u64::MAX);
        self.old_size = self.old_size.min(size);
    }

    /// CRC32C of a range, and its length: short at the object's end.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn checksum(&mut self, offset: u64, length: u64) -> Result<(u32, u64), Stop> {
        let pieces = self.read(offset, length)?;
        Ok((nacre_wire::checksum(&pieces), payload_len(&pieces) as u64))
    }

    // ── the object ──────────────────────────────────────────────────────────────────────

    /// Creates the object.
    ///
    /// # Errors
    /// It exists and must not.
    pub fn create(&mut self, exclusive: bool) -> Result<(), Stop> {
        if exclusive && self.context.exists {
            return Err(Stop::Fail(OpFailure::AlreadyExists {}));
        }
        self.effect(Effect::Touch {})?;
        self.touched();
        Ok(())
    }

    /// Removes the object with its attributes and omap.
    ///
    /// # Errors
    /// It does not exist.
    pub fn remove(&mut self) -> Result<(), Stop> {
        self.exists()?;
        self.replace(Effect::Remove {})?;
        let (version, snaps) = (self.context.version, self.context.snaps.clone());
        self.context = Context {
            version,
            snaps,
            ..Context::default()
        };
        Ok(())
    }

    /// Adds one effect that supersedes all earlier ones.
    pub(crate) fn replace(&mut self, effect: Effect) -> Result<(), Stop> {
        self.effects.clear();
        self.written.clear();
        self.effect(effect)?;
        self.forget_data_from(0);
        self.omap.clear();
        self.omap_is_new = true;
        self.copied = false;
        Ok(())
    }

    /// Replaces everything except claims with another object's state.
    ///
    /// # Errors
    /// Too many effects.
    pub fn copy(&mut self, source: &Whole, data: Payload) -> Result<(), Stop> {
        self.write_full(data)?;
        let kept = |name: &Name| source.attrs.iter().any(|(other, _)| other == name);
        let gone: Vec<Name> = self
            .context
            .attrs
            .keys()
            .filter(|name| !kept(name))
            .cloned()
            .collect();
        for name in gone {
            self.remove_attr(&name)?;
        }
        for (name, value) in &source.attrs {
            self.set_attr(name, value.clone())?;
        }
        if self.context.header != source.header {
            self.set_header(source.header.clone())?;
        }
        self.omap_clear()?;
        if !source.omap.is_empty() {
            self.omap_set(source.omap.clone())?;
        }
        Ok(())
    }

    /// The complete object and its data.
    ///
    /// # Errors
    /// It does not exist, is too large to be copied at once, or has to be read from the store
    /// first.
    pub fn whole(&mut self) -> Result<(Whole, Vec<Bytes>), Stop> {
        let Context { version, size, .. } = self.context;
        if size > OP_BYTES_MAX {
            let why = format!("it has {size} bytes; at most {OP_BYTES_MAX} are copied at once");
            return Err(Stop::Fail(OpFailure::Invalid { why }));
        }
        let data = self.read(0, size)?;
        let (omap, more) = self.omap_list(None, COPY_ENTRIES_MAX)?;
        let attrs: Vec<(Name, Bytes)> = self
            .context
            .attrs
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let small = attrs
            .iter()
            .map(|(name, value)| name.as_bytes().len() + value.len())
            .sum::<usize>()
            + omap
                .iter()
                .map(|(key, value)| key.len() + value.len())
                .sum::<usize>();
        if more || small > COPY_SMALL_BYTES_MAX {
            let why = format!(
                "its attributes and omap are more than {COPY_SMALL_BYTES_MAX} bytes or {COPY_ENTRIES_MAX} entries: more than is copied at once"
            );
            return Err(Stop::Fail(OpFailure::Invalid { why }));
        }
        Ok((
            Whole {
                version,
                size,
                attrs,
                header: self.context.header.clone(),
                omap,
            },
            data,
        ))
    }

    // ── attributes ──────────────────────────────────────────────────────────────────────

    /// An attribute's value.
    ///
    /// # Errors
    /// There is no such attribute, or no object.
    pub fn attr(&self, name: &Name) -> Result<Bytes, Stop> {
        self.exists()?;
        Ok(self
            .context
            .attrs
            .get(name)
            .cloned()
            .ok_or(OpFailure::NotFound {})?)
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// Too long.
    pub fn set_attr(&mut self, name: &Name, value: Bytes) -> Result<(), Stop> {
        if name.as_bytes().len() > ATTR_NAME_MAX || value.len() > ATTR_BYTES_MAX {
            return Err(Stop::Fail(OpFailure::TooLarge {}));
        }
        self.effect(Effect::SetAttr {
            name: stored_attr(name),
            value: value.clone(),
        })?;
        self.context.attrs.insert(name.clone(), value);
        self.touched();
        Ok(())
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// There is no such attribute, or no object.
    pub fn remove_attr(&mut self, name: &Name) -> Result<(), Stop> {
        self.exists()?;
        self.context
            .attrs
            .remove(name)
            .ok_or(OpFailure::NotFound {})?;
        self.effect(Effect::RemoveAttr {
            name: stored_attr(name),
        })
    }

    /// Sets the methods' header.
    ///
    /// # Errors
    /// Too long.
    pub fn set_header(&mut self, header: Bytes) -> Result<(), Stop> {
        if header.len() > ATTR_BYTES_MAX {
            return Err(Stop::Fail(OpFailure::TooLarge {}));
        }
        self.effect(crate::methods::header_effect(&header))?;
        self.context.header = header;
        self.touched();
        Ok(())
    }

    // ── omap ────────────────────────────────────────────────────────────────────────────

    /// The value of an omap key.
    ///
    /// # Errors
    /// There is no object, or the value has to be read from the store first.
    pub fn omap_get(&mut self, key: &Bytes) -> Result<Option<Bytes>, Stop> {
        self.exists()?;
        self.is_known()?;
        if let Some(changed) = self.omap.get(key) {
            return Ok(changed.clone());
        }
        if self.omap_is_new {
            return Ok(None);
        }
        match self.fetched.key(key) {
            Some(value) => Ok(value),
            // A method that asks for single keys repeatedly is likely to ask for their neighbours.
            None if self.fetched.rounds() >= 4 => {
                let (before, entries) = (just_before(key), self.fetched.widened_entries(1));
                self.want(Want::Page {
                    after: before,
                    entries,
                })
            }
            None => self.want(Want::Keys(vec![key.clone()])),
        }
    }

    /// The values of those of the keys that exist, by key.
    ///
    /// # Errors
    /// As [`Self::omap_get`].
    pub fn omap_get_many(&mut self, keys: &[Bytes]) -> Result<Vec<(Bytes, Bytes)>, Stop> {
        self.exists()?;
        self.is_known()?;
        let unknown =
            |key: &&Bytes| !self.omap.contains_key(*key) && self.fetched.key(key).is_none();
        // A value may have one MiB: what is requested at once is bounded, and what has arrived is
        // counted before more is requested.
        let unknown: Vec<Bytes> = keys
            .iter()
            .filter(unknown)
            .take(KEYS_AT_ONCE.max(keys.len() / 32))
            .cloned()
            .collect();
        if !unknown.is_empty() && !self.omap_is_new {
            return self.want(Want::Keys(unknown));
        }
        let mut out = BTreeMap::new();
        for key in keys {
            if let Some(value) = self.omap_get(key)? {
                out.insert(key.clone(), value);
            }
        }
        Ok(out.into_iter().collect())
    }

    /// Omap entries after a key (`None`: from the first), in order, at most `limit` of them and a
    /// few megabytes; and whether more follow.
    ///
    /// # Errors
    /// As [`Self::omap_get`].
    pub fn omap_list(
        &mut self,
        after: Option<&Bytes>,
        limit: usize,
    ) -> Result<(Vec<(Bytes, Bytes)>, bool), Stop> {
        self.exists()?;
        self.is_known()?;
        let mut out: Vec<(Bytes, Bytes)> = Vec::new();
        let (mut at, mut bytes) = (after.cloned(), 0);
        loop {
            let Some((key, value)) = self.omap_next(
                at.as_ref(),
                limit.saturating_add(1).saturating_sub(out.len()),
            )?
            else {
                return Ok((out, false));
            };
            let size = key.len() + value.len();
            if out.len() >= limit || (bytes + size > LIST_BYTES_MAX && !out.is_empty()) {
                return Ok((out, true));
            }
            bytes += size;
            at = Some(key.clone());
            out.push((key, value));
        }
    }

    /// The first entry after a key. If the old omap must be read, `entries` of its entries are.
    fn omap_next(
        &mut self,
        after: Option<&Bytes>,
        entries: usize,
    ) -> Result<Option<(Bytes, Bytes)>, Stop> {
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let mut changed = self
            .omap
            .range::<Bytes, _>((from, std::ops::Bound::Unbounded))
            .peekable();
        let mut at = after.cloned();
        loop {
            let old = if self.omap_is_new {
                None
            } else {
                let Some(page) = self.fetched.page(at.as_deref()) else {
                    let entries = self.fetched.widened_entries(entries);
                    return self.want(Want::Page { after: at, entries });
                };
                match (page.after(at.as_deref()).first(), page.last()) {
                    (Some(entry), _) => Some(entry.clone()),
                    (None, Some(last)) => {
                        at = Some(last.clone());
                        continue;
                    }
                    (None, None) => None,
                }
            };
            let old_key = old.as_ref().map(|(key, _)| key);
            match changed.peek() {
                Some((key, value)) if old_key.is_none_or(|old| *key <= old) => {
                    if old_key == Some(*key) {
                        at = Some((*key).clone());
                    }
                    if let Some(value) = value {
                        return Ok(Some(((*key).clone(), value.clone())));
                    }
                    changed.next();
                }
                _ => return Ok(old),
            }
        }
    }

    /// Sets omap keys.
    ///
    /// # Errors
    /// Too long.
    pub fn omap_set(&mut self, entries: Vec<(Bytes, Bytes)>) -> Result<(), Stop> {
        if entries
            .iter()
            .any(|(key, value)| key.len() > OMAP_KEY_MAX || value.len() > OMAP_VALUE_MAX)
        {
            return Err(Stop::Fail(OpFailure::TooLarge {}));
        }
        self.omap.extend(
            entries
                .iter()
                .map(|(key, value)| (key.clone(), Some(value.clone()))),
        );
        self.effect(Effect::OmapSet { entries })?;
        self.touched();
        Ok(())
    }

    /// Removes omap keys.
    ///
    /// # Errors
    /// There is no object.
    pub fn omap_remove(&mut self, keys: Vec<Bytes>) -> Result<(), Stop> {
        self.exists()?;
        self.omap.extend(keys.iter().map(|key| (key.clone(), None)));
        self.effect(Effect::OmapRemove { keys })
    }

    /// Removes all omap keys.
    ///
    /// # Errors
    /// There is no object.
    pub fn omap_clear(&mut self) -> Result<(), Stop> {
        self.exists()?;
        self.omap.clear();
        self.omap_is_new = true;
        self.effect(Effect::OmapClear {})
    }
}

fn zeros(length: u64) -> Bytes {
    BytesMut::zeroed(usize::try_from(length).expect("within an operation's bounds")).freeze()
}

/// A key with nothing between it and `key`, or a close approximation: byte strings have no
/// immediate predecessor.
fn just_before(key: &Bytes) -> Option<Bytes> {
    let (last, front) = key.split_last()?;
    match last {
        0 => Some(Bytes::copy_from_slice(front)),
        last => Some([front, &[last - 1], &[0xff; 8]].concat().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Object;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, Vec<u8>),
        Full(Vec<u8>),
        Zero(u64, u64),
        Truncate(u64),
        Remove,
        Set(u8, u8),
        Unset(u8),
        Clear,
        Read(u64, u64),
        Get(u8),
        Many(u8, u8),
        List(Option<u8>, usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let data = proptest::collection::vec(1..255_u8, 0..9);
        let step = prop_oneof![
            (0..30_u64, data.clone()).prop_map(|(offset, data)| Step::Write(offset, data)),
            data.prop_map(Step::Full),
            (0..30_u64, 0..12_u64).prop_map(|(offset, length)| Step::Zero(offset, length)),
            (0..40_u64).prop_map(Step::Truncate),
            Just(Step::Remove),
            (0..20_u8, any::<u8>()).prop_map(|(key, value)| Step::Set(key, value)),
            (0..20_u8, any::<u8>()).prop_map(|(key, value)| Step::Set(key, value)),
            (0..20_u8).prop_map(Step::Unset),
            Just(Step::Clear),
            (0..40_u64, 0..40_u64).prop_map(|(offset, length)| Step::Read(offset, length)),
            (0..20_u8).prop_map(Step::Get),
            (0..20_u8, 0..20_u8).prop_map(|(a, b)| Step::Many(a, b)),
            (proptest::option::of(0..20_u8), 0..8_usize)
                .prop_map(|(after, limit)| Step::List(after, limit)),
        ];
        proptest::collection::vec(step, 0..25)
    }

    fn key(n: u8) -> Bytes {
        vec![b'a' + n / 5, n].into()
    }

    type Seen = Vec<String>;

    /// The results of the steps; `Err` when something has to be read first.
    fn run(view: &mut View, steps: &[Step]) -> Result<Seen, Stop> {
        let mut seen = Vec::new();
        for step in steps {
            let saw = match step {
                Step::Write(offset, data) => view
                    .write(*offset, vec![data.clone().into()])
                    .map(|()| String::new()),
                Step::Full(data) => view
                    .write_full(vec![data.clone().into()])
                    .map(|()| String::new()),
                Step::Zero(offset, length) => view.zero(*offset, *length).map(|()| String::new()),
                Step::Truncate(size) => view.truncate(*size).map(|()| String::new()),
                Step::Remove => view.remove().map(|()| String::new()),
                Step::Set(k, v) => view
                    .omap_set(vec![(key(*k), vec![*v].into())])
                    .map(|()| String::new()),
                Step::Unset(k) => view.omap_remove(vec![key(*k)]).map(|()| String::new()),
                Step::Clear => view.omap_clear().map(|()| String::new()),
                Step::Read(offset, length) => view
                    .read(*offset, *length)
                    .map(|data| format!("{:?}", data.concat())),
                Step::Get(k) => view.omap_get(&key(*k)).map(|value| format!("{value:?}")),
                Step::Many(a, b) => view
                    .omap_get_many(&[key(*a), key(*b)])
                    .map(|entries| format!("{entries:?}")),
                Step::List(after, limit) => view
                    .omap_list(after.map(key).as_ref(), *limit)
                    .map(|found| format!("{found:?}")),
            };
            match saw {
                Ok(text) => seen.push(text),
                Err(stop @ (Stop::Wait | Stop::Heavy | Stop::Program(_))) => return Err(stop),
                Err(Stop::Fail(failure)) => seen.push(failure.to_string()),
            }
        }
        Ok(seen)
    }

    /// The same on a plain object that the steps change directly.
    fn model(old: &Object, steps: &[Step]) -> (Seen, Option<Object>) {
        let mut now = Some(old.clone());
        let none = OpFailure::NotFound {}.to_string();
        let mut seen = Vec::new();
        for step in steps {
            let fresh = now.clone().unwrap_or_default();
            let mut text = String::new();
            let mut changed = fresh;
            match (step, &now) {
                (Step::Write(offset, data), _) => {
                    let end = *offset as usize + data.len();
                    if !data.is_empty() {
                        changed.data.resize(changed.data.len().max(end), 0);
                        changed.data[*offset as usize..end].copy_from_slice(data);
                    }
                    now = Some(changed);
                }
                (Step::Full(data), _) => {
                    now = Some(Object {
                        data: data.clone(),
                        ..changed
                    })
                }
                (Step::Zero(offset, length), _) => {
                    let end = ((offset + length) as usize).min(changed.data.len());
                    if (*offset as usize) < end {
                        changed.data[*offset as usize..end].fill(0);
                    }
                    now = Some(changed);
                }
                (Step::Truncate(size), _) => {
                    changed.data.resize(*size as usize, 0);
                    now = Some(changed);
                }
                (Step::Set(k, v), _) => {
                    changed.omap.insert(key(*k), vec![*v].into());
                    now = Some(changed);
                }
                (_, None) => text = none.clone(),
                (Step::Remove, _) => now = None,
                (Step::Unset(k), _) => {
                    changed.omap.remove(&key(*k));
                    now = Some(changed);
                }
                (Step::Clear, _) => {
                    now = Some(Object {
                        omap: BTreeMap::new(),
                        ..changed
                    })
                }
                (Step::Read(offset, length), _) => {
                    let end = ((offset + length) as usize).min(changed.data.len());
                    text = format!(
                        "{:?}",
                        changed.data.get(*offset as usize..end).unwrap_or(&[])
                    );
                }
                (Step::Get(k), _) => text = format!("{:?}", changed.omap.get(&key(*k)).cloned()),
                (Step::Many(a, b), _) => {
                    let found: BTreeMap<Bytes, Bytes> = [key(*a), key(*b)]
                        .into_iter()
                        .filter_map(|key| Some((key.clone(), changed.omap.get(&key)?.clone())))
                        .collect();
                    text = format!("{:?}", found.into_iter().collect::<Vec<_>>());
                }
                (Step::List(after, limit), _) => {
                    let after = after.map(key);
                    let all: Vec<(Bytes, Bytes)> = changed
                        .omap
                        .into_iter()
                        .filter(|(key, _)| after.as_ref().is_none_or(|after| key > after))
                        .collect();
                    text = format!(
                        "{:?}",
                        (all[..all.len().min(*limit)].to_vec(), all.len() > *limit)
                    );
                }
            }
            seen.push(text);
        }
        (seen, now)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

        /// Whatever has to be read first, and however often the evaluation restarts, an operation
        /// sees the object as its own earlier parts left it, and its effects give that state.
        #[test]
        fn an_operation_sees_what_it_did(
            data in proptest::collection::vec(1..255_u8, 0..30),
            keys in proptest::collection::btree_map(0..20_u8, any::<u8>(), 0..15),
            steps in steps(),
        ) {
            let omap = keys.into_iter().map(|(k, v)| (key(k), Bytes::from(vec![v]))).collect();
            let old = Object { data, omap, ..Object::default() };
            let context = Context { exists: true, size: old.data.len() as u64, ..Context::default() };
            let mut fetched = Fetched::default();
            let (seen, effects, written) = loop {
                let mut view = View::new(context.clone(), fetched);
                match run(&mut view, &steps) {
                    Ok(seen) => break (seen, view.effects, view.written),
                    Err(_) => {
                        prop_assert!(!view.wanted.is_empty(), "it waits for nothing");
                        fetched = view.fetched;
                        prop_assert!(!fetched.is_exhausted(), "rounds without end");
                        for want in view.wanted {
                            let reply = old.read(&want);
                            fetched.take(want, Some(reply));
                        }
                        fetched.end_round();
                    }
                }
            };
            let mut now = Some(old.clone());
            Object::apply(&mut now, effects, written);
            prop_assert_eq!((seen, now), model(&old, &steps));
        }
    }

    type Change = fn(&mut View);

    /// Attributes that describe the data are removed with it, on replicas too; others stay.
    #[test]
    fn attributes_that_describe_the_data_go_when_it_changes() {
        let name = |text: &str| Name::copy(text.as_bytes());
        let changes: [(&str, Change); 7] = [
            ("write", |view| {
                view.write(1, vec![Bytes::from_static(b"x")])
                    .expect("written")
            }),
            ("write_full", |view| {
                view.write_full(vec![Bytes::from_static(b"x")])
                    .expect("written")
            }),
            ("zero", |view| view.zero(0, 1).expect("zeroed")),
            ("truncate", |view| view.truncate(1).expect("cut")),
            ("lengthen", |view| view.truncate(9).expect("made longer")),
            ("set_attr", |view| {
                view.set_attr(&Name::copy(b"z"), Bytes::new()).expect("set")
            }),
            ("omap_set", |view| {
                view.omap_set(vec![(Bytes::from_static(b"~k"), Bytes::new())])
                    .expect("set")
            }),
        ];
        for (what, change) in changes {
            let attrs =
                ["}", "~a", "~b", "\u{7f}"].map(|text| (name(text), Bytes::from_static(b"v")));
            let context = Context {
                exists: true,
                size: 3,
                attrs: attrs.into(),
                ..Context::default()
            };
            let mut view = View::new(context, Fetched::default());
            change(&mut view);
            let kept: Vec<bool> = ["}", "~a", "~b", "\u{7f}"]
                .map(|text| view.context.attrs.contains_key(&name(text)))
                .into();
            let gone = !["set_attr", "omap_set"].contains(&what);
            assert_eq!(kept, [true, !gone, !gone, true], "{what}");
            let removals = view
                .effects
                .iter()
                .filter(|effect| matches!(effect, Effect::RemoveAttr { .. }))
                .count();
            assert_eq!(removals, if gone { 2 } else { 0 }, "{what}");
            // Set again after the change in the same operation, so it stays.
            view.set_attr(&name("~a"), Bytes::new()).expect("set");
            assert!(view.context.attrs.contains_key(&name("~a")));
        }
    }

    /// A method that walks through a large omap key by key restarts a few times, not once per key.
    #[test]
    fn reading_key_by_key_takes_few_rounds() {
        let omap: BTreeMap<Bytes, Bytes> = (0..2000_u32)
            .map(|n| (Bytes::from(format!("{n:06}")), Bytes::from_static(b"v")))
            .collect();
        let old = Object {
            omap: omap.clone(),
            ..Object::default()
        };
        let mut fetched = Fetched::default();
        loop {
            let mut view = View::new(
                Context {
                    exists: true,
                    ..Context::default()
                },
                fetched,
            );
            let all = omap
                .keys()
                .try_for_each(|key| view.omap_get(key).map(|value| assert!(value.is_some())));
            fetched = view.fetched;
            if all.is_ok() {
                break;
            }
            for want in view.wanted {
                let reply = old.read(&want);
                fetched.take(want, Some(reply));
            }
            fetched.end_round();
        }
        assert!(fetched.rounds() < 16, "{} rounds", fetched.rounds());
    }

    /// (Planted by a reviewer.) A copy has its source's header, or none.
    #[test]
    fn a_copy_takes_the_header_along() {
        for (before, after) in [("", "h"), ("mine", "h"), ("mine", "")] {
            let context = Context {
                header: before.into(),
                ..Context::default()
            };
            let mut view = View::new(context, Fetched::default());
            let source = Whole {
                header: after.into(),
                ..Whole::default()
            };
            view.copy(&source, Payload::new()).expect("few steps");
            assert_eq!(view.context.header, after.as_bytes());
            let said = view
                .effects
                .contains(&crate::methods::header_effect(&after.into()));
            assert!(said, "{:?}", view.effects);
        }
    }
}
