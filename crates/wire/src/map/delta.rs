//! Changes of the cluster map: what the monitors commit and everybody applies.
//!
//! A delta names its epoch and the digest of the map it applies to, so it cannot be applied to
//! another history. Its changes are applied in order, then placement is derived again (see the
//! module head of [`super`]). [`ClusterMap::apply`] is total: a change that no longer fits (an
//! activation of a past interval, a removed pool) does nothing, the same nothing everywhere.

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
        /// Which.
        mon: MonId,
        /// Where it listens.
        info: MonInfo,
    },
    /// A monitor leaves.
    MonRemove {
        /// Which.
        mon: MonId,
    },
    /// An OSD id comes into being; it is down and in.
    OsdNew {
        /// Which.
        osd: OsdId,
        /// Identity of its store.
        store: u128,
    },
    /// An instance of an OSD starts to serve.
    OsdUp {
        /// Which.
        osd: OsdId,
        /// Which instance: larger than any before.
        instance: Instance,
        /// Where it listens.
        address: Address,
        /// Identity of its store.
        store: u128,
        /// What it speaks.
        features: u64,
        /// The process that the instance is granted to.
        process: u64,
    },
    /// An OSD no longer serves. Names the life that ended, so that a late report cannot hit its
    /// successor.
    OsdDown {
        /// Which.
        osd: OsdId,
        /// Which life.
        instance: Instance,
    },
    /// An OSD takes more or less data.
    OsdWeight {
        /// Which.
        osd: OsdId,
        /// Its new share.
        weight: Weight,
        /// Whether the monitors did it because it was down for long: it is undone when it boots.
        automatic: bool,
    },
    /// An OSD is gone for good.
    OsdRemove {
        /// Which.
        osd: OsdId,
    },
    /// A pool is made or changed. A larger `pg_num` splits groups; a smaller one is ignored.
    PoolSet {
        /// Which.
        pool: PoolId,
        /// Its whole new entry.
        settings: Pool,
    },
    /// A pool is gone for good.
    PoolRemove {
        /// Which.
        pool: PoolId,
    },
    /// A new hierarchy, in text form.
    Crush {
        /// As the CRUSH text form; the monitors parsed it before they proposed it.
        text: String,
    },
    /// What changes of the hierarchy's text.
    CrushPatch {
        /// In order; see `patch.rs`.
        hunks: Vec<CrushHunk>,
    },
    /// Placement exceptions of a group; none removes the entry.
    Upmap {
        /// Which group.
        pg: PgId,
        /// First OSD replaced by the second.
        items: Vec<(OsdId, OsdId)>,
    },
    /// An interval of a group may accept writes.
    PgActivate {
        /// Which group.
        pg: PgId,
        /// The interval; ignored if it is over.
        interval: Epoch,
        /// Its complete members, at least `min_size`.
        members: Vec<OsdId>,
    },
    /// A temporary acting set for a group; empty ends it.
    PgTemporary {
        /// Which group.
        pg: PgId,
        /// The interval in which it was asked for; ignored if it is over.
        interval: Epoch,
        /// Who acts.
        acting: Vec<OsdId>,
    },
    /// Ends all lives of an entity up to this one.
    Fence {
        /// Whose.
        entity: Entity,
        /// The last one.
        instance: Instance,
    },
    /// Lifts a fence: these lives may act again. Names the fence's last life, so that a late wish
    /// cannot lift a later fence. For operators who know that nobody relies on the fence any more;
    /// what is remembered of a client's operations must outlive its fence because of this.
    FenceLift {
        /// Whose.
        entity: Entity,
        /// The fence's last life; ignored if another fence stands by now.
        instance: Instance,
    },
    /// Sets or removes an option.
    Config {
        /// Which.
        key: Name,
        /// To what.
        value: Option<String>,
    },
    /// Replaces the operators' flags.
    Flags {
        /// Bits of [`super::flag`].
        flags: u64,
    },
    /// Raises what everybody must speak.
    RequireFeatures {
        /// All bits.
        features: u64,
    },
    /// A program's source is in its place: a new version, or an old one again. Too many programs:
    /// ignored.
    ProgramInstall {
        /// What for.
        kind: ProgramKind,
        /// Its name.
        name: Name,
        /// The source; its number is given here.
        version: ProgramVersion,
        /// Whether it is active from now on.
        activate: bool,
    },
    /// Another version of a program is active from now on; ignored if there is no such version.
    ProgramActivate {
        /// What for.
        kind: ProgramKind,
        /// Its name.
        name: Name,
        /// Which version; 0 for none.
        number: u32,
    },
    /// A program is gone, with its past. Its sources stay where they are.
    ProgramRemove {
        /// What for.
        kind: ProgramKind,
        /// Its name.
        name: Name,
    },
    /// What a named client may do from now on.
    ClientSet {
        /// Its name.
        name: Name,
        /// All it may.
        capabilities: Vec<Capability>,
    },
    /// A client is one of the unknown again.
    ClientRemove {
        /// Its name.
        name: Name,
    },
    /// A pool gets a snapshot; ignored if the id is not its next one, or if the snapshot does not
    /// fit to those that are there.
    SnapCreate {
        /// Which pool.
        pool: PoolId,
        /// Its id.
        snap: SnapId,
        /// Its name; empty for one of a client's own.
        name: Name,
    },
    /// A snapshot is gone for good: what only it preserves is trimmed.
    SnapRemove {
        /// Of which pool.
        pool: PoolId,
        /// Which.
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
    // 4 was it, without `process`.
    26 => OsdUp { osd, instance, address, store, features, process },
    27 => CrushPatch { hunks },
});

/// One committed step of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapDelta {
    /// The epoch it makes.
    pub epoch: Epoch,
    /// Digest of the map it applies to.
    pub previous: Digest,
    /// In order.
    pub changes: Vec<Change>,
}
wire_record!(MapDelta version 1 compat 1 { epoch, previous, changes });

/// Why a delta does not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// Deltas between are missing: ask for them.
    Gap {
        /// What the map is at.
        have: Epoch,
        /// What the delta makes.
        delta: Epoch,
    },
    /// The delta continues another history: a restored monitor or a copied directory. Stop, change
    /// nothing.
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
    /// The delta that would make the next epoch from this map.
    #[must_use]
    pub fn delta(&self, changes: Vec<Change>) -> MapDelta {
        MapDelta {
            epoch: self.epoch.next(),
            previous: self.digest,
            changes,
        }
    }

    /// Advances to the delta's epoch. A delta that was applied already is accepted and does
    /// nothing.
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
                // The monitors parsed it before proposing; a text that a later version could not
                // parse changes nothing.
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
                // `before` decides: the interval must also survive the changes of this very delta
                // to stay current.
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

    /// Makes or changes a pool. New groups of a new pool start empty; new groups of a grown pool
    /// are split off their parents, whose activation they inherit: the parent's members have their
    /// objects.
    fn set_pool(&mut self, id: PoolId, settings: &Pool, before: &mut super::placement::Before) {
        let mut settings = settings.clone();
        let old = self.pools.get(&id).map(|pool| (pool.pg_num, pool.created));
        // Snapshots have changes of their own: who changes a pool's settings may have looked at it
        // before.
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
                // The child starts in a new interval; its past is its parent's.
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
