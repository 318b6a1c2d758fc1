//! Changes of the cluster map: committed by the monitors, applied by every daemon and client.
//!
//! A delta names its epoch and the digest of the map it applies to, so it cannot be applied to
//! another history. Its changes are applied in order, then placement is derived again (see the
//! module head of [`super`]). [`ClusterMap::apply`] is total: a change that no longer fits (an
//! activation of a past interval, a removed pool) has no effect, on every node alike.

use super::{
    Activation, Address, Capability, ClusterMap, CrushHunk, CrushSection, Digest, MonInfo, OsdInfo,
    PgRecord, Pool, ProgramKind, ProgramVersion, Weight,
};
use crate::codec::Wire;
use crate::{wire_enum, wire_record};
use nacre_types::{Entity, Epoch, Instance, MonId, Name, OsdId, PgId, PoolId, SnapId};
use std::collections::btree_map::Entry;
use std::fmt;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A monitor joins or moves.
    MonSet {
        /// The monitor.
        mon: MonId,
        /// Where it listens.
        info: MonInfo,
    },
    /// A monitor leaves.
    MonRemove {
        /// The monitor.
        mon: MonId,
    },
    /// A new OSD id; it starts down and in.
    OsdNew {
        /// The OSD.
        osd: OsdId,
        /// Identity of its store.
        store: u128,
    },
    /// An instance of an OSD starts to serve.
    OsdUp {
        /// The OSD.
        osd: OsdId,
        /// Its instance, larger than any before.
        instance: Instance,
        /// Where it listens.
        address: Address,
        /// Identity of its store.
        store: u128,
        /// Bits of the features it supports.
        features: u64,
        /// The process that the instance is granted to.
        process: u64,
    },
    /// An OSD stops serving. Names the instance that ended, so that a late report cannot affect its
    /// successor.
    OsdDown {
        /// The OSD.
        osd: OsdId,
        /// The instance that ended.
        instance: Instance,
    },
    /// Changes an OSD's share of data.
    OsdWeight {
        /// The OSD.
        osd: OsdId,
        /// Its new share.
        weight: Weight,
        /// Whether the monitors did it because the OSD was down for long; undone when it boots.
        automatic: bool,
    },
    /// An OSD is removed permanently.
    OsdRemove {
        /// The OSD.
        osd: OsdId,
    },
    /// A pool is created or changed. A larger `pg_num` splits PGs; a smaller one is ignored.
    PoolSet {
        /// The pool.
        pool: PoolId,
        /// Its complete new settings.
        settings: Pool,
    },
    /// A pool is removed permanently.
    PoolRemove {
        /// The pool.
        pool: PoolId,
    },
    /// A new hierarchy, in text form.
    Crush {
        /// As the CRUSH text form; the monitors parsed it before they proposed it.
        text: String,
    },
    /// A change of the hierarchy's text.
    CrushPatch {
        /// Applied in order; see `patch.rs`.
        hunks: Vec<CrushHunk>,
    },
    /// Placement exceptions of a PG; an empty list removes the entry.
    Upmap {
        /// The PG.
        pg: PgId,
        /// First OSD replaced by the second.
        items: Vec<(OsdId, OsdId)>,
    },
    /// An interval of a PG may accept writes.
    PgActivate {
        /// The PG.
        pg: PgId,
        /// The interval; ignored if it is over.
        interval: Epoch,
        /// Its complete members, at least `min_size`.
        members: Vec<OsdId>,
    },
    /// A temporary acting set for a PG; an empty one ends it.
    PgTemporary {
        /// The PG.
        pg: PgId,
        /// The interval in which it was requested; ignored if it is over.
        interval: Epoch,
        /// The temporary acting set.
        acting: Vec<OsdId>,
    },
    /// Fences all instances of an entity up to this one.
    Fence {
        /// The entity.
        entity: Entity,
        /// The last fenced instance.
        instance: Instance,
    },
    /// Lifts a fence: the instances may act again. Names the last fenced instance, so that a late
    /// request cannot lift a later fence. For operators who know that nothing relies on the fence
    /// any more. Because fences can be lifted, the memory of a client's operations must outlive its
    /// fence.
    FenceLift {
        /// The entity.
        entity: Entity,
        /// The last fenced instance; ignored if it has changed since.
        instance: Instance,
    },
    /// Sets or removes an option.
    Config {
        /// The option.
        key: Name,
        /// Its value; `None` removes it.
        value: Option<String>,
    },
    /// Replaces the operators' flags.
    Flags {
        /// Bits of [`super::flag`].
        flags: u64,
    },
    /// Raises the features that every daemon and client must support.
    RequireFeatures {
        /// All required bits.
        features: u64,
    },
    /// A program's source is stored: a new version, or an earlier one again. Ignored when there are
    /// too many programs.
    ProgramInstall {
        /// Kind of the program.
        kind: ProgramKind,
        /// Its name.
        name: Name,
        /// The source; its version number is assigned when the change is applied.
        version: ProgramVersion,
        /// Whether it becomes active at once.
        activate: bool,
    },
    /// Another version of a program becomes active; ignored if there is no such version.
    ProgramActivate {
        /// Kind of the program.
        kind: ProgramKind,
        /// Its name.
        name: Name,
        /// The version; 0 for none.
        number: u32,
    },
    /// A program is removed with its history. Its sources stay stored.
    ProgramRemove {
        /// Kind of the program.
        kind: ProgramKind,
        /// Its name.
        name: Name,
    },
    /// Sets a named client's capabilities.
    ClientSet {
        /// Its name.
        name: Name,
        /// All its capabilities.
        capabilities: Vec<Capability>,
    },
    /// A client is removed from the map; default capabilities apply to it.
    ClientRemove {
        /// Its name.
        name: Name,
    },
    /// Creates a snapshot of a pool; ignored if the id is not the pool's next one, or if the pool's
    /// existing snapshots exclude it.
    SnapCreate {
        /// The pool.
        pool: PoolId,
        /// The snapshot's id.
        snap: SnapId,
        /// Its name; empty for a snapshot managed by a client.
        name: Name,
    },
    /// A snapshot is removed permanently: data that only it preserves is trimmed.
    SnapRemove {
        /// The pool.
        pool: PoolId,
        /// The snapshot.
        snap: SnapId,
    },
}
wire_enum!(Change {
    1 => MonSet { mon, info },
    2 => MonRemove { mon },
    3 => OsdNew { osd, store },
    5 => OsdDown { osd, instance },
    6 => OsdWeight { osd, weight, automatic },
    7 => OsdRemove { osd },
    8 => PoolSet { pool, settings },
    9 => PoolRemove { pool },
    10 => Crush { text },
    11 => Upmap { pg, items },
    12 => PgActivate { pg, interval, members },
    13 => PgTemporary { pg, interval, acting },
    14 => Fence { entity, instance },
    15 => Config { key, value },
    16 => Flags { flags },
    17 => RequireFeatures { features },
    18 => FenceLift { entity, instance },
    19 => ProgramInstall { kind, name, version, activate },
    20 => ProgramActivate { kind, name, number },
    21 => ProgramRemove { kind, name },
    22 => ClientSet { name, capabilities },
    23 => ClientRemove { name },
    24 => SnapCreate { pool, snap, name },
    25 => SnapRemove { pool, snap },
    // 4 was this change without `process`.
    26 => OsdUp { osd, instance, address, store, features, process },
    27 => CrushPatch { hunks },
});

/// One committed step of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapDelta {
    /// The epoch that it creates.
    pub epoch: Epoch,
    /// Digest of the map it applies to.
    pub previous: Digest,
    /// The changes, in order.
    pub changes: Vec<Change>,
}
wire_record!(MapDelta version 1 compat 1 { epoch, previous, changes });

/// Why a delta does not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// Deltas in between are missing: request them.
    Gap {
        /// The map's epoch.
        have: Epoch,
        /// The delta's epoch.
        delta: Epoch,
    },
    /// The delta belongs to another history: a restored monitor or a copied directory. Stop and
    /// change nothing.
    OtherHistory {
        /// The epoch at which they differ.
        epoch: Epoch,
    },
}
impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gap { have, delta } => write!(f, "map change {delta} does not follow {have}"),
            Self::OtherHistory { epoch } => write!(
                f,
                "the cluster's history differs from ours at {epoch}: a monitor was restored from a copy, or this directory was copied"
            ),
        }
    }
}
impl std::error::Error for ApplyError {}

impl ClusterMap {
    /// The delta that would create the next epoch from this map.
    #[must_use]
    pub fn delta(&self, changes: Vec<Change>) -> MapDelta {
        MapDelta {
            epoch: self.epoch.next(),
            previous: self.digest,
            changes,
        }
    }

    /// Advances to the delta's epoch. A delta that was already applied is accepted and has no
    /// effect.
    ///
    /// # Errors
    /// [`ApplyError`]; the map is unchanged.
    pub fn apply(&mut self, delta: &MapDelta) -> Result<(), ApplyError> {
        if delta.epoch <= self.epoch {
            return Ok(());
        }
        if delta.epoch != self.epoch.next() {
            return Err(ApplyError::Gap {
                have: self.epoch,
                delta: delta.epoch,
            });
        }
        if delta.previous != self.digest {
            return Err(ApplyError::OtherHistory { epoch: self.epoch });
        }
        self.epoch = delta.epoch;
        self.digest = self.digest.chain(&delta.to_bytes());
        let mut placement = super::placement::Before::of(self);
        for change in &delta.changes {
            self.apply_change(change, &mut placement);
        }
        self.derive_placement(&placement);
        Ok(())
    }

    pub(super) fn apply_change(&mut self, change: &Change, before: &mut super::placement::Before) {
        match change {
            Change::MonSet { mon, info } => {
                self.mons.insert(*mon, info.clone());
            }
            Change::MonRemove { mon } => {
                self.mons.remove(mon);
            }
            Change::OsdNew { osd, store } => {
                if let Entry::Vacant(place) = self.osds.entry(*osd) {
                    place.insert(OsdInfo {
                        weight: Weight::IN,
                        store: *store,
                        ..OsdInfo::default()
                    });
                    // The hierarchy may name an OSD before it exists: until now, nothing was placed
                    // there.
                    before.crush_changed = true;
                }
            }
            Change::OsdUp {
                osd,
                instance,
                address,
                store,
                features,
                process,
            } => {
                let epoch = self.epoch;
                let Some(info) = self.osds.get_mut(osd) else {
                    return;
                };
                if *instance <= info.instance {
                    return;
                }
                info.up = true;
                info.instance = *instance;
                info.address = address.clone();
                info.store = *store;
                info.features = *features;
                info.process = *process;
                info.up_from = epoch;
                if let Some(weight) = info.weight_before_auto_out.take() {
                    info.weight = weight;
                    before.crush_changed = true;
                }
            }
            Change::OsdDown { osd, instance } => {
                let epoch = self.epoch;
                if let Some(info) = self
                    .osds
                    .get_mut(osd)
                    .filter(|info| info.up && info.instance == *instance)
                {
                    info.up = false;
                    info.down_at = epoch;
                }
            }
            Change::OsdWeight {
                osd,
                weight,
                automatic,
            } => {
                if let Some(info) = self.osds.get_mut(osd) {
                    info.weight_before_auto_out = automatic.then_some(info.weight);
                    info.weight = *weight;
                    before.crush_changed = true;
                }
            }
            Change::OsdRemove { osd } => {
                self.osds.remove(osd);
                before.crush_changed = true;
            }
            Change::PoolSet { pool, settings } => self.set_pool(*pool, settings, before),
            Change::PoolRemove { pool } => {
                self.pools.remove(pool);
                self.pgs.retain(|pg, _| pg.pool != *pool);
                self.upmaps.retain(|pg, _| pg.pool != *pool);
            }
            Change::Crush { text } => {
                // The monitors parsed it before proposing; a text that a later version cannot parse
                // changes nothing.
                if let Ok(section) = CrushSection::parse(text) {
                    self.crush = section;
                    before.crush_changed = true;
                }
            }
            Change::CrushPatch { hunks } => {
                let text = super::patch::patched(&self.crush.text, hunks);
                if let Some(Ok(section)) = text.map(|text| CrushSection::parse(&text)) {
                    self.crush = section;
                    before.crush_changed = true;
                }
            }
            Change::Upmap { pg, items } => {
                if !self.pgs.contains_key(pg) {
                    return;
                }
                if items.is_empty() {
                    self.upmaps.remove(pg);
                } else {
                    self.upmaps.insert(*pg, items.clone());
                }
                before.crush_changed = true;
            }
            Change::PgActivate {
                pg,
                interval,
                members,
            } => {
                let instances = members
                    .iter()
                    .map(|osd| self.osds.get(osd).map_or(Instance(0), |info| info.instance));
                let instances = instances.collect();
                // `before` decides: to be current, the interval must also survive this delta's own
                // changes.
                if let Some(record) = self
                    .pgs
                    .get_mut(pg)
                    .filter(|record| record.since == *interval)
                {
                    record.activated = Activation {
                        interval: *interval,
                        members: members.clone(),
                        instances,
                    };
                }
            }
            Change::PgTemporary {
                pg,
                interval,
                acting,
            } => {
                if let Some(record) = self
                    .pgs
                    .get_mut(pg)
                    .filter(|record| record.since == *interval)
                {
                    record.temporary.clone_from(acting);
                }
            }
            Change::Fence { entity, instance } => {
                let last = self.fences.entry(*entity).or_insert(*instance);
                *last = (*last).max(*instance);
            }
            Change::FenceLift { entity, instance } => {
                if self.fences.get(entity) == Some(instance) {
                    self.fences.remove(entity);
                }
            }
            Change::Config { key, value } => match value {
                Some(value) => {
                    self.config.insert(key.clone(), value.clone());
                }
                None => {
                    self.config.remove(key);
                }
            },
            Change::Flags { flags } => self.flags = *flags,
            Change::RequireFeatures { features } => self.required_features |= features,
            Change::ProgramInstall {
                kind,
                name,
                version,
                activate,
            } => self.install(*kind, name, version, *activate),
            Change::ProgramActivate { kind, name, number } => self.activate(*kind, name, *number),
            Change::ProgramRemove { kind, name } => {
                self.programs.remove(&(*kind, name.clone()));
            }
            Change::ClientSet { name, capabilities } => {
                self.clients.insert(name.clone(), capabilities.clone());
            }
            Change::ClientRemove { name } => {
                self.clients.remove(name);
            }
            Change::SnapCreate { pool, snap, name } => {
                let epoch = self.epoch;
                if let Some(pool) = self.pools.get_mut(pool) {
                    pool.snaps.create(*snap, name, epoch);
                }
            }
            Change::SnapRemove { pool, snap } => {
                if let Some(pool) = self.pools.get_mut(pool) {
                    pool.snaps.remove(*snap);
                }
            }
        }
    }

    /// Creates or changes a pool. New PGs of a new pool start empty. New PGs of a grown pool are
    /// split off their parents and inherit the parents' activation, because the parents' members
    /// have their objects.
    fn set_pool(&mut self, id: PoolId, settings: &Pool, before: &mut super::placement::Before) {
        let mut settings = settings.clone();
        let old = self.pools.get(&id).map(|pool| (pool.pg_num, pool.created));
        // Snapshots have their own changes: a request to change a pool's settings may be based on
        // an older list of snapshots.
        settings.snaps = self
            .pools
            .get(&id)
            .map(|pool| pool.snaps.clone())
            .unwrap_or_default();
        match old {
            Some((pg_num, created)) => {
                settings.pg_num = settings.pg_num.max(pg_num);
                settings.created = created;
            }
            None => settings.created = self.epoch,
        }
        settings.pgp_num = settings.pgp_num.clamp(1, settings.pg_num);
        let had = old.map_or(0, |(pg_num, _)| pg_num);
        for seed in had..settings.pg_num {
            let record = if had == 0 {
                PgRecord::default()
            } else {
                let parent = PgId::replicated(id, nacre_crush::object::pg_seed(seed, had));
                before.split.insert(parent);
                let parent = &self.pgs[&parent];
                // The child starts in a new interval; its history is its parent's.
                PgRecord {
                    activated: parent.activated.clone(),
                    temporary: parent.temporary.clone(),
                    ..PgRecord::default()
                }
            };
            self.pgs.insert(PgId::replicated(id, seed), record);
        }
        self.pool_last = self.pool_last.max(id);
        self.pools.insert(id, settings);
        before.crush_changed = true;
    }
}
