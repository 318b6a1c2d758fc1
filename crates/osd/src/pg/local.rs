//! One OSD's state of a placement group, in memory and in its store. Every change of the state in
//! memory comes with the store operations that make the store follow, in one transaction with the
//! objects concerned.
//!
//! ```text
//!  metadata object   attr "info"   PgMeta: activated, tail, head, backfill cursor, pg_num, totals at the tail
//!                    omap l…       log entries by version            m…   objects that the log has and the store lacks
//!                         d…       dedup records older than the log  c…   clients' marks
//!                         x…       objects whose replica here has lost data
//!                         u…       missing objects whose replica here contains undone updates
//! ```
//! The byte formats are in `docs/formats/osd.md`. Log entries are set and soon removed again; the
//! store's memtable absorbs most of that.
//!
//! Invariants ([`Local::check`]): those of the log; a missing object's needed version is not newer
//! than the head; missing objects are before the backfill cursor.

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
use nacre_wire::{Malformed, Record, RecordView, Wire};
use std::collections::BTreeSet;

/// The state of a PG at one OSD.
#[derive(Clone, Debug)]
pub struct Local {
    pg: PgId,
    pub(super) meta_key: ObjectKey,
    /// The log.
    pub log: PgLog,
    /// Objects whose logged version the store lacks.
    pub missing: ByObject<Missing>,
    /// Replicas here that have lost data, and their versions (`lost.rs`).
    pub lost: ByObject<Version>,
    /// Missing objects whose needed version is in the store, with undone updates on top
    /// (`undone.rs`).
    pub undone: ByObject<Undone>,
    /// When the lost replicas were last reported.
    pub(super) lost_told: Time,
    /// The next of them to report.
    pub(super) lost_turn: usize,
    /// Memory of operations.
    pub dedup: DedupTable,
    /// The interval whose log was last adopted.
    pub activated: Epoch,
    /// Objects before this position are here; `None`: all are.
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
    /// An empty PG.
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

    /// Restores the state from the metadata object's attribute and omap.
    ///
    /// # Errors
    /// [`Malformed`] when they are not in the format that this version writes.
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
            let log = PgLog::restore(meta.tail, meta.head, &entries);
            let dedup = DedupTable::restore(old, entries, now);
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

    /// The PG.
    #[must_use]
    pub const fn pg(&self) -> PgId {
        self.pg
    }

    /// The current totals of the PG.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let newest = self.log.newest();
        newest.map_or(self.base_totals, |entry| entry.totals())
    }
    /// The totals at the log's tail.
    #[must_use]
    pub const fn base_totals(&self) -> Totals {
        self.base_totals
    }

    /// The summary for peering.
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

    /// Whether an object is before the backfill cursor, where this member should have everything.
    #[must_use]
    pub fn inside_cursor(&self, object: &ObjectId) -> bool {
        key::is_before(object, self.backfill.as_ref())
    }

    /// Writes the fixed part of the metadata.
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

    /// Appends an update to the log, received now.
    pub fn append(&mut self, entry: Record, now: Time, ops: &mut Ops) {
        if !self.exists {
            self.save_meta(ops);
        }
        self.set(ops, vec![(log_key(entry.version()), stored(&entry))]);
        self.remember(&entry, now, ops);
        self.lost_on_entry(&entry, ops);
        self.log.append(&entry);
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

    /// Trims log entries up to `version`; those that their clients have not confirmed are kept as
    /// records.
    pub fn trim(&mut self, version: Version, ops: &mut Ops) {
        let tail = self.log.tail();
        if version <= tail || self.log.trimmed_by(version).len() == 0 {
            return;
        }
        let (mut kept, mut clients) = (Vec::new(), BTreeSet::new());
        for entry in self.log.trimmed_by(version) {
            self.base_totals = entry.totals();
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
            // The client may have been forgotten before its entry.
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
        self.log.trim(version);
        self.set(ops, kept);
        // One range, adjacent to the previous one: so the log takes little space in the store's
        // memtable.
        let after = |version| Bytes::from([&log_key(version)[..], &[0]].concat());
        let (object, from, to) = (self.meta_key.clone(), after(tail), after(self.log.tail()));
        ops.push(Op::OmapRemoveRange {
            object,
            from,
            to: Some(to),
        });
        self.save_meta(ops);
    }

    /// Forgets the oldest clients and records beyond the limits. Called after every change of the
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

    /// Notes that the object must be recovered to `need`.
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

    /// Notes that the store has the object, complete.
    pub fn found(&mut self, object: &ObjectId, ops: &mut Ops) {
        self.not_lost(object, ops);
        self.not_missing(object, ops);
    }

    /// Notes that the store's version of the object is accepted.
    pub(super) fn not_missing(&mut self, object: &ObjectId, ops: &mut Ops) {
        if self.missing.swap_remove(object).is_some() {
            self.unset(ops, vec![missing_key(object)]);
            self.forget_undone(object, false, ops);
        }
    }

    /// Removes an object that turned out to be deleted or never to have existed.
    pub(super) fn drop_object(&mut self, object: &ObjectId, ops: &mut Ops) {
        self.clone_is_needed(object, ops);
        self.found(object, ops);
        ops.push(Op::Remove(key::store_key(self.pg, object)));
    }

    /// Makes the log end at `from` and continue with `entries` (CEPH-52): those of the
    /// authoritative log, as the primary merges it, or those of the primary's log, as a replica
    /// adopts it. Objects change accordingly: they are deleted, or missing until they are
    /// recovered.
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
        // The first divergent update of an object names the version to return to.
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

    /// Restores trimmed updates: `entries` are the authoritative log's from its `tail` to ours, and
    /// `totals` those of the PG before them. The objects contain them already. [`Self::adopt`] must
    /// follow: it restores the memory of requests.
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

    /// Starts over as a backfill target: the log begins at the primary's tail, no object is valid.
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

    /// Adopts the authoritative memory: a member that has every answered update knows every
    /// relevant client. Usually ours is equal. It contains records of everything that we may have
    /// trimmed, and more: entries that our log still has are remembered there.
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
        let log = self.log.entries().map(RecordView::to_record);
        self.dedup = DedupTable::restore(dedup.clone(), log, now);
    }

    /// Moves the backfill cursor.
    pub fn set_cursor(&mut self, cursor: Option<Bytes>, ops: &mut Ops) {
        self.backfill = cursor;
        self.save_meta(ops);
    }

    /// Removes replicas known to be damaged together with the notes on them: backfill compares
    /// versions only, and would consider them good.
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

    /// Notes durably that no object here is valid: they are about to be erased, one page after the
    /// other.
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

    /// Removes the metadata object; the caller removes the objects.
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

/// The operations as one transaction.
#[must_use]
pub fn transaction(ops: Ops) -> Transaction {
    Transaction { ops }
}
