//! Oracle: no hollow replica at any moment (not only after everything has healed).
//!
//! ```text
//!  primary's store ──┐ every object that neither of the two lists as missing,
//!                    ├─ that is within both backfill cursors,
//!  member's store ───┘ and whose last update is in the member's log: the same version on both
//! ```
//! A client's reads go to primaries, and recovery, restarts and backfill repair a wrong member
//! before it is read alone. So each member that follows the primary's log is compared with the
//! primary while the faults continue. Only RAM stores can be inspected without disturbing them.

use crate::world::World;
use bytes::Bytes;
use nacre_object::version_of;
use nacre_osd::key;
use nacre_osd::pg::{Pg, Role};
use nacre_store::{ObjectKey, Read, ReadReply};
use nacre_types::{Entity, ObjectId, OsdId, PgId, Version};
use std::collections::{BTreeMap, BTreeSet};

impl World {
    /// Compares members with primaries. See the module head.
    ///
    /// # Panics
    /// When a member is hollow: that is the finding.
    pub(crate) fn survey(&mut self) {
        let Some(map) = self.ledger.map() else { return };
        let all: Vec<PgId> = map.pgs.keys().copied().collect();
        for pg in all {
            let Some(primary) = self.osds().into_iter().find(|osd| self.leads(*osd, pg)) else {
                continue;
            };
            let since = self.group(primary, pg).expect("it leads it").interval.since;
            for osd in self.osds() {
                let follows = self.group(osd, pg).is_some_and(|group| {
                    group.interval.since == since
                        && matches!(&group.role, Role::Member(m) if m.adopted.is_some())
                });
                if follows {
                    self.compare(pg, primary, osd);
                    self.surveyed += 1;
                }
            }
        }
    }

    pub(crate) fn group(&self, osd: OsdId, pg: PgId) -> Option<&Pg> {
        let role = self
            .processes
            .get(&Entity::Osd(osd))?
            .osd()
            .filter(|role| role.is_live())?;
        role.pgs().find(|group| group.id() == pg)
    }

    fn leads(&self, osd: OsdId, pg: PgId) -> bool {
        self.group(osd, pg).is_some_and(|group| {
            group
                .as_primary()
                .is_some_and(|primary| primary.is_peered())
        })
    }

    /// Versions of a PG's objects in an OSD's store, except those that it knows it lacks.
    fn versions(&self, osd: OsdId, pg: PgId) -> Option<BTreeMap<ObjectId, Version>> {
        let group = self.group(osd, pg).expect("asked for");
        let disk = &self.processes[&Entity::Osd(osd)].disk;
        let (from, to) = key::range(pg.seed, group.local.pg_num);
        let collection = key::collection(pg.pool, pg.shard);
        let keys: Vec<Bytes> = match disk.peek(&Read::List {
            collection,
            from,
            to,
            limit: usize::MAX,
        })? {
            Ok(ReadReply::List { keys, .. }) => keys,
            _ => Vec::new(),
        };
        let mut found = BTreeMap::new();
        for position in keys {
            let Some(object) = key::object_at(&position) else {
                continue;
            };
            if group.local.missing.contains_key(&object) || !group.local.inside_cursor(&object) {
                continue;
            }
            let Some(Ok(ReadReply::Stat(Some(stat)))) =
                disk.peek(&Read::Stat(ObjectKey::new(collection, position)))
            else {
                continue;
            };
            let version = stat
                .attrs
                .get(nacre_object::VERSION_ATTR)
                .map(|value| version_of(value).0);
            found.insert(object, version.unwrap_or_default());
        }
        Some(found)
    }

    fn compare(&self, pg: PgId, primary: OsdId, member: OsdId) {
        let (Some(ours), Some(theirs)) = (self.versions(primary, pg), self.versions(member, pg))
        else {
            return;
        };
        let (first, second) = (
            self.group(primary, pg).expect("it leads"),
            self.group(member, pg).expect("it follows"),
        );
        let head = second.local.log.head();
        let under_way: BTreeSet<ObjectId> = first
            .local
            .log
            .after(head)
            .map(|entry| entry.to_record().object().clone())
            .collect();
        // A clone made by undone updates stays with them until their object is recovered (seed
        // 4213).
        let is_undone = |group: &Pg, object: &ObjectId| {
            group
                .local
                .undone
                .values()
                .any(|undone| undone.entries.iter().any(|entry| entry.object() == object))
        };
        let known = |group: &Pg, object: &ObjectId| {
            !group.local.missing.contains_key(object)
                && group.local.inside_cursor(object)
                && !is_undone(group, object)
        };
        let names: BTreeSet<&ObjectId> = ours.keys().chain(theirs.keys()).collect();
        for object in names {
            if under_way.contains(object) || !known(first, object) || !known(second, object) {
                continue;
            }
            let (a, b) = (ours.get(object), theirs.get(object));
            // The log entry may be trimmed here before a backfill target has it.
            let newer = a.is_some_and(|version| *version > head);
            if newer || (a.is_none() && first.local.log.tail() > head) {
                continue;
            }
            assert!(
                a == b,
                "{pg} (interval {}): {member} counts as having {object} at {a:?}, as {primary} does, and has {b:?}; up {:?} acting {:?}; \
                 its log ends at {head}, its cursor is {:?}; to the primary it is {:?}",
                first.interval.since,
                first.interval.up,
                first.interval.acting,
                second.local.backfill,
                first
                    .as_primary()
                    .and_then(|state| state.peers.get(&member)),
            );
        }
    }
}
