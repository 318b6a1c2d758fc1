//! What one OSD has of a placement group, in memory and in its store; every change of the first
//! comes with the store operations that make the second follow, in one transaction with the objects
//! it is about.
//!
//! ```text
//!  metadata object   attr "info"   PgMeta: activated, tail, head, backfill cursor, pg_num, totals at the tail
//!                    omap l…       log entries by version            m…   objects the log has and the store has not
//!                         d…       dedup records older than the log  c…   clients' marks
//!                         x…       objects whose copy here has lost data
//!                         u…       missing objects whose copy here has undone updates on it
//! ```
//! `docs/formats/osd.md` has the bytes. Log entries are set and soon removed again; the store's
//! memtable absorbs most of that.
//!
//! Invariants ([`Local::check`]): those of the log; a missing object's needed version is not newer
//! than the head; what is missing lies inside the backfill cursor.

use super::ByObject;
use super::dedup::DedupTable;
use super::log::PgLog;
use super::stored::{
    INFO_ATTR, dedup_entries, dedup_key, log_key, lost_key, missing_key, stored, undone_key,
};
pub use super::stored::{PgMeta, StoredMark};
use crate::{Limits, Mutant, key, mutant};
use bytes::Bytes;
use nacre_object::snaps;
use nacre_store::{ObjectKey, Op, Transaction};
use nacre_types::{Epoch, ObjectId, PgId, Time, Version};
use nacre_wire::msg::client::RequestId;
use nacre_wire::msg::replication::{ClientMark, Dedup, Missing, PgInfo, Totals, Undone};
use nacre_wire::{Malformed, Record, Wire};
use std::collections::BTreeSet;

/// A group's state at one OSD.
#[derive(Clone, Debug)]
pub struct Local {
    pg: PgId,
    pub(super) meta_key: ObjectKey,
    /// The log.
    pub log: PgLog,
    /// What the log has and the store does not.
    pub missing: ByObject<Missing>,
    /// Copies here that have lost data, and their versions (`lost.rs`).
    pub lost: ByObject<Version>,
    /// Missing objects of which the store has what is needed, and undone updates on it
    /// (`undone.rs`).
    pub undone: ByObject<Undone>,
    /// When the lost copies were last told.
    pub(super) lost_told: Time,
    /// Which of them is told next.
    pub(super) lost_turn: usize,
    /// Memory of operations.
    pub dedup: DedupTable,
    /// The interval whose log was last adopted.
    pub activated: Epoch,
    /// Objects before this position are here; none: all are.
    pub backfill: Option<Bytes>,
    /// See [`PgMeta::pg_num`].
    pub pg_num: u32,
    /// See [`PgMeta::clones_known`].
    pub clones_known: bool,
    pub(super) base_totals: Totals,
    /// Whether the store has the metadata object.
    pub exists: bool,
}

/// A transaction under construction.
pub type Ops = Vec<Op>;

impl Local {
    /// Nothing yet.
    #[must_use]
    pub fn new(pg: PgId, pg_num: u32) -> Self {
        Self {
            pg,
            meta_key: key::meta_key(pg),
            log: PgLog::default(),
            missing: ByObject::default(),
            lost: ByObject::default(),
            undone: ByObject::default(),
            lost_told: Time::ZERO,
            lost_turn: 0,
            dedup: DedupTable::default(),
            activated: Epoch::NONE,
            backfill: None,
            pg_num,
            clones_known: true,
            base_totals: Totals::default(),
            exists: false,
        }
    }

    /// From the metadata object's attribute and omap.
    ///
    /// # Errors
    /// [`Malformed`] when they are not what this version writes.
    pub fn restore(
        pg: PgId,
        info: &[u8],
        omap: &[(Bytes, Bytes)],
        now: Time,
    ) -> Result<Self, Malformed> {
        let meta = PgMeta::from_bytes(info)?;
        let (mut entries, mut missing) = (Vec::<Record>::new(), ByObject::default());
        let (mut lost, mut undone) = (ByObject::default(), ByObject::default());
        let mut old = Dedup {
            forgot: meta.forgot,
            ..Dedup::default()
        };
        for (key, value) in omap {
            match key.first() {
                Some(b'l') => entries.push(Record::parse(value)?),
                Some(b'm') => {
                    let what = Missing::from_bytes(value)?;
                    missing.insert(what.object.clone(), what);
                }
                Some(b'x') => {
                    let Missing { object, need, .. } = Missing::from_bytes(value)?;
                    lost.insert(object, need);
                }
                Some(b'u') => {
                    let what = Undone::from_bytes(value)?;
                    undone.insert(what.object.clone(), what);
                }
                Some(b'd') => old.records.push(Record::parse(value)?),
                Some(b'c') => {
                    let (mark, last) = StoredMark::read(value)?;
                    old.marks.push(mark);
                    old.last.push(last);
                }
                _ => return Err(Malformed::Value("placement group metadata key")),
            }
        }
        if entries.is_sorted_by_key(|entry| entry.version())
            && entries.first().is_none_or(|e| e.version() > meta.tail)
        {
            let log = PgLog::restore(meta.tail, meta.head, entries);
            let dedup = DedupTable::restore(old, log.entries().iter(), now);
            let mut local = Self::new(pg, meta.pg_num);
            (local.log, local.missing, local.lost, local.dedup) = (log, missing, lost, dedup);
            (local.undone, local.clones_known) = (undone, meta.clones_known);
            (local.activated, local.backfill, local.base_totals) =
                (meta.activated, meta.backfill, meta.totals);
            local.exists = true;
            Ok(local)
        } else {
            Err(Malformed::Value("placement group log (out of order)"))
        }
    }

    /// Which group.
    #[must_use]
    pub const fn pg(&self) -> PgId {
        self.pg
    }

    /// What the group holds now.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.log
            .entries()
            .back()
            .map_or(self.base_totals, Record::totals)
    }
    /// What it held at the log's tail.
    #[must_use]
    pub const fn base_totals(&self) -> Totals {
        self.base_totals
    }

    /// For peering.
    #[must_use]
    pub fn info(&self, committed: Version) -> PgInfo {
        PgInfo {
            exists: self.exists,
            activated: self.activated,
            head: self.log.head(),
            tail: self.log.tail(),
            spans: self.log.spans(),
            committed,
            backfill: self.backfill.clone(),
            missing: self.missing.values().cloned().collect(),
        }
    }

    /// Whether an object lies where this member has, or should have, everything.
    #[must_use]
    pub fn inside_cursor(&self, object: &ObjectId) -> bool {
        key::is_before(object, self.backfill.as_ref())
    }

    /// Writes the fixed part.
    pub fn save_meta(&mut self, ops: &mut Ops) {
        self.exists = true;
        let meta = PgMeta {
            activated: self.activated,
            tail: self.log.tail(),
            head: self.log.head(),
            backfill: self.backfill.clone(),
            pg_num: self.pg_num,
            totals: self.base_totals,
            forgot: self.dedup.forgot(),
            clones_known: self.clones_known,
        };
        let (name, value) = (Bytes::from_static(INFO_ATTR), meta.to_bytes().into());
        ops.push(Op::SetAttr {
            object: self.meta_key.clone(),
            name,
            value,
        });
    }

    pub(super) fn set(&self, ops: &mut Ops, entries: Vec<(Bytes, Bytes)>) {
        if !entries.is_empty() {
            ops.push(Op::OmapSet {
                object: self.meta_key.clone(),
                entries,
            });
        }
    }
    pub(super) fn unset(&self, ops: &mut Ops, keys: Vec<Bytes>) {
        if !keys.is_empty() {
            ops.push(Op::OmapRemove {
                object: self.meta_key.clone(),
                keys,
            });
        }
    }

    /// Adds an update to the log that came here now.
    pub fn append(&mut self, entry: Record, now: Time, ops: &mut Ops) {
        if !self.exists {
            self.save_meta(ops);
        }
        self.set(ops, vec![(log_key(entry.version()), stored(&entry))]);
        self.remember(&entry, now, ops);
        self.lost_on_entry(&entry, ops);
        self.log.append(entry);
    }

    fn remember(&mut self, entry: &Record, now: Time, ops: &mut Ops) {
        let gone = self.dedup.on_entry(entry, now);
        let key = |sequence| {
            dedup_key(
                b'd',
                &RequestId {
                    sequence,
                    ..entry.request()
                },
                true,
            )
        };
        self.unset(ops, gone.into_iter().map(key).collect());
    }

    /// Forgets log entries up to `version`; what their clients have not confirmed is kept as
    /// records.
    pub fn trim(&mut self, version: Version, ops: &mut Ops) {
        let tail = self.log.tail();
        let gone = self.log.trim(version);
        let Some(last) = gone.last() else { return };
        self.base_totals = last.totals();
        let (mut kept, mut clients) = (Vec::new(), BTreeSet::new());
        for entry in &gone {
            let request = entry.request();
            if let super::dedup::Seen::Done(done) = self.dedup.seen(&request)
                && done.version() == entry.version()
            {
                kept.push((dedup_key(b'd', &request, true), stored(done.record())));
                self.dedup.mark_stored(&request);
            }
            if request.sequence > 0 {
                clients.insert((request.client, request.instance));
            }
        }
        for (client, instance) in clients {
            let request = RequestId {
                client,
                instance,
                sequence: 0,
            };
            // It may have been forgotten before its entry.
            if let Some((sequence, last)) = self.dedup.mark(&request) {
                let mark = ClientMark {
                    below: RequestId {
                        sequence,
                        ..request
                    },
                };
                kept.push((
                    dedup_key(b'c', &request, false),
                    StoredMark { mark, last }.to_bytes().into(),
                ));
            }
        }
        self.set(ops, kept);
        // One range that joins the one before: what the store's memtable holds of the log stays
        // small.
        let after = |version| Bytes::from([&log_key(version)[..], &[0]].concat());
        let (object, from, to) = (self.meta_key.clone(), after(tail), after(self.log.tail()));
        ops.push(Op::OmapRemoveRange {
            object,
            from,
            to: Some(to),
        });
        self.save_meta(ops);
    }

    /// Forgets the oldest of too many clients, and of too many records. After every change of the
    /// log.
    pub fn forget(&mut self, limits: &Limits, ops: &mut Ops) {
        let mut keys = Vec::new();
        for (record, (sequence, last)) in self.dedup.forget_records(limits.records_bytes) {
            keys.push(dedup_key(b'd', &record, true));
            let mark = ClientMark {
                below: RequestId { sequence, ..record },
            };
            let value = StoredMark { mark, last }.to_bytes().into();
            self.set(ops, vec![(dedup_key(b'c', &record, false), value)]);
        }
        for forgotten in self.dedup.forget_oldest(limits.clients_remembered) {
            let who = RequestId {
                client: forgotten.client,
                instance: forgotten.instance,
                sequence: 0,
            };
            keys.push(dedup_key(b'c', &who, false));
            keys.extend(forgotten.stored.iter().map(|n| {
                dedup_key(
                    b'd',
                    &RequestId {
                        sequence: *n,
                        ..who
                    },
                    true,
                )
            }));
        }
        if !keys.is_empty() {
            self.unset(ops, keys);
            self.save_meta(ops);
        }
    }

    /// Notes that the store has to be brought to `need`.
    pub(super) fn miss(&mut self, object: &ObjectId, need: Version, have: Version, ops: &mut Ops) {
        if self
            .undone
            .get(object)
            .is_some_and(|undone| undone.base != need)
        {
            self.forget_undone(object, false, ops);
        }
        self.clone_is_needed(object, ops);
        let missing = Missing {
            object: object.clone(),
            need,
            have,
        };
        self.set(ops, vec![(missing_key(object), missing.to_bytes().into())]);
        self.missing.insert(object.clone(), missing);
    }

    /// Notes that the store has what it should have, from end to end.
    pub fn found(&mut self, object: &ObjectId, ops: &mut Ops) {
        self.not_lost(object, ops);
        self.not_missing(object, ops);
    }

    /// Notes that what the store has of the object is to do.
    pub(super) fn not_missing(&mut self, object: &ObjectId, ops: &mut Ops) {
        if self.missing.swap_remove(object).is_some() {
            self.unset(ops, vec![missing_key(object)]);
            self.forget_undone(object, false, ops);
        }
    }

    /// Removes an object that, as it turns out, is gone or never was.
    pub(super) fn drop_object(&mut self, object: &ObjectId, ops: &mut Ops) {
        self.clone_is_needed(object, ops);
        self.found(object, ops);
        ops.push(Op::Remove(key::store_key(self.pg, object)));
    }

    /// Makes the log end at `from` and go on with `entries` (CEPH-52): the authoritative log's, as
    /// the primary merges it, or the primary's, as a replica adopts it. Objects change accordingly:
    /// they are gone, or missing until recovery brings them.
    ///
    /// # Panics
    /// When `from` is not a position of both logs; the caller found it with [`super::log::common`].
    pub fn adopt(
        &mut self,
        from: Version,
        entries: Vec<Record>,
        head: Version,
        dedup: &Dedup,
        (interval, now): (Epoch, Time),
        ops: &mut Ops,
    ) {
        assert!(
            from >= self.log.tail() && from <= self.log.head(),
            "{}: adopting from {from}",
            self.pg
        );
        let divergent = self.log.rewind(from);
        self.unset(
            ops,
            divergent
                .iter()
                .map(|entry| log_key(entry.version()))
                .collect(),
        );
        // The first divergent update of an object knows the version to go back to.
        let mut undone: ByObject<Version> = ByObject::default();
        let mut by_name: ByObject<Vec<Record>> = ByObject::default();
        for entry in divergent {
            self.dedup.forget(&entry);
            undone
                .entry(entry.object().clone())
                .or_insert(entry.prior());
            by_name
                .entry(snaps::live(entry.object()))
                .or_default()
                .push(entry);
        }
        let mut last: ByObject<(Version, bool)> = ByObject::default();
        for entry in &entries {
            last.insert(entry.object().clone(), (entry.version(), entry.deleted()));
        }
        undone.retain(|object, _| !last.contains_key(object) && self.inside_cursor(object));
        let copy = |(object, base): (&ObjectId, &Version)| {
            let entries = by_name.swap_remove(object)?;
            Some((
                object.clone(),
                self.copy_with_undone(object, *base, entries)?,
            ))
        };
        let copies: ByObject<Undone> = undone.iter().filter_map(copy).collect();
        for (object, prior) in &undone {
            if mutant(Mutant::DivergentKept) {
                break;
            }
            if *prior != Version::NONE {
                self.miss(object, *prior, Version::NONE, ops);
                if let Some(copy) = copies.get(object) {
                    self.note_undone(copy.clone(), ops);
                }
            } else if !copies.contains_key(&snaps::live(object)) {
                self.drop_object(object, ops);
            }
        }
        for (object, (version, deleted)) in &last {
            if !self.inside_cursor(object) {
                continue;
            }
            if *deleted {
                self.drop_object(object, ops);
            } else {
                let have = self
                    .missing
                    .get(object)
                    .map_or(Version::NONE, |missing| missing.have);
                self.miss(object, *version, have, ops);
            }
        }
        for entry in entries {
            self.append(entry, now, ops);
        }
        self.log.advance_head(head);
        self.adopt_dedup(dedup, now, ops);
        self.activated = interval;
        self.save_meta(ops);
    }

    /// Remembers updates again that were forgotten here: `entries` are the authoritative log's from
    /// its `tail` to ours, and `totals` what the group held before them. Objects have them already.
    /// [`Self::adopt`] is to follow: it says who asked for what.
    pub fn reach_back(
        &mut self,
        tail: Version,
        totals: Totals,
        entries: Vec<Record>,
        ops: &mut Ops,
    ) {
        self.set(
            ops,
            entries
                .iter()
                .map(|entry| (log_key(entry.version()), stored(entry)))
                .collect(),
        );
        self.log.reach_back(tail, entries);
        self.base_totals = totals;
        self.save_meta(ops);
    }

    /// Starts over, to be backfilled: the log begins at the primary's tail, no object counts.
    #[allow(clippy::too_many_arguments, reason = "the fields of one message")]
    pub fn restart(
        &mut self,
        tail: Version,
        totals: Totals,
        entries: Vec<Record>,
        head: Version,
        dedup: &Dedup,
        (interval, now): (Epoch, Time),
        ops: &mut Ops,
    ) {
        self.drop_damaged(ops);
        ops.push(Op::OmapClear(self.meta_key.clone()));
        self.log.restart(tail);
        self.base_totals = totals;
        self.missing.clear();
        self.lost.clear();
        self.undone.clear();
        self.dedup = DedupTable::default();
        self.backfill = Some(key::range(self.pg.seed, self.pg_num).0);
        for entry in entries {
            self.append(entry, now, ops);
        }
        self.log.advance_head(head);
        self.adopt_dedup(dedup, now, ops);
        self.activated = interval;
        self.save_meta(ops);
    }

    /// Takes over the authoritative memory: whoever has every answered update knows everybody who
    /// matters. Usually ours is the same. It has records of all that we may have trimmed, and more:
    /// what our log still has is remembered there.
    fn adopt_dedup(&mut self, dedup: &Dedup, now: Time, ops: &mut Ops) {
        let mut dedup = dedup.clone();
        dedup
            .records
            .retain(|record| record.version() <= self.log.tail());
        let dedup = &dedup;
        if self.dedup.beyond(self.log.tail()) == *dedup {
            self.dedup.adopted_as_it_is(now);
            return;
        }
        let (ours, theirs) = (
            dedup_entries(&self.dedup.beyond(self.log.tail())),
            dedup_entries(dedup),
        );
        let kept: BTreeSet<&Bytes> = theirs.iter().map(|(key, _)| key).collect();
        self.unset(
            ops,
            ours.into_iter()
                .map(|(key, _)| key)
                .filter(|key| !kept.contains(key))
                .collect(),
        );
        self.set(ops, theirs);
        self.dedup = DedupTable::restore(dedup.clone(), self.log.entries().iter(), now);
    }

    /// Moves the backfill cursor.
    pub fn set_cursor(&mut self, cursor: Option<Bytes>, ops: &mut Ops) {
        self.backfill = cursor;
        self.save_meta(ops);
    }

    /// Copies known to be damaged go with the notes that say so: a backfill compares versions only,
    /// and would take them for good ones.
    fn drop_damaged(&self, ops: &mut Ops) {
        let unreadable = self
            .missing
            .iter()
            .filter(|(_, missing)| missing.have == missing.need)
            .map(|(object, _)| object);
        for object in unreadable.chain(self.lost.keys()) {
            ops.push(Op::Remove(key::store_key(self.pg, object)));
        }
    }

    /// Notes durably that no object here counts: they are about to go, one page after the other.
    pub fn mark_worthless(&mut self, ops: &mut Ops) {
        self.drop_damaged(ops);
        let notes = self.missing.keys().map(missing_key);
        let notes = notes
            .chain(self.lost.keys().map(lost_key))
            .chain(self.undone.keys().map(undone_key));
        self.unset(ops, notes.collect());
        self.missing.clear();
        self.lost.clear();
        self.undone.clear();
        self.backfill = Some(key::range(self.pg.seed, self.pg_num).0);
        self.save_meta(ops);
    }

    /// Removes the metadata object; the objects are the caller's business.
    pub fn erase(&mut self, ops: &mut Ops) {
        ops.push(Op::Remove(self.meta_key.clone()));
        *self = Self::new(self.pg, self.pg_num);
    }

    /// Asserts the invariants of the module head.
    pub fn check(&self) {
        self.log.check();
        for missing in self.missing.values() {
            assert!(
                missing.need <= self.log.head(),
                "{}: {} needs {}",
                self.pg,
                missing.object,
                missing.need
            );
            assert!(
                self.inside_cursor(&missing.object),
                "{}: {} is missing beyond the cursor",
                self.pg,
                missing.object
            );
        }
        for undone in self.undone.values() {
            let need = self.missing.get(&undone.object).map(|missing| missing.need);
            assert_eq!(
                need,
                Some(undone.base),
                "{}: {} has undone updates",
                self.pg,
                undone.object
            );
        }
        for (object, noted) in self
            .lost
            .iter()
            .filter(|(object, _)| !self.missing.contains_key(*object))
        {
            let last = self
                .log
                .last_of(object)
                .map(|last| (last.deleted(), last.version()));
            let fits = last.is_none_or(|last| last == (false, *noted));
            assert!(
                fits,
                "{}: {object} is noted as damaged at {noted}, and the log has {last:?}",
                self.pg
            );
        }
    }
}

/// The operations as a transaction.
#[must_use]
pub fn transaction(ops: Ops) -> Transaction {
    Transaction { ops }
}
