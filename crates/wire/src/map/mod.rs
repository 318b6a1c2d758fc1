//! The cluster map: the state that all daemons and clients must agree on (CEPH-41, -44; DESIGN §3).
//!
//! One map, one epoch. The monitors commit [`MapDelta`]s; every daemon and client applies them in
//! order and gets the same map, bit for bit, *including* what is derived: each placement group's up
//! set, acting set and the epoch in which its current interval began ([`PgRecord`]). Deriving is
//! part of applying (`placement.rs`), so two daemons cannot disagree on an interval, and a daemon
//! that starts from a full map needs no older ones.
//!
//! ```text
//!  committed                        derived by apply()
//!  ─────────                        ──────────────────
//!  osds, pools, crush, upmaps ────▶ raw ──(up only)──▶ up ──(or temporary)──▶ acting ──▶ since
//!  temporary sets, activations ───────────────────────────────┘
//! ```
//!
//! Invariants, checked by [`ClusterMap::check`] and when a map is decoded: every pool has exactly
//! the records of its `pg_num` PGs; `since ≤ epoch`; an activation is never of a later interval
//! than the current one; the up set is the part of `raw` that is up; the acting set is the part of
//! the temporary set that is up, or else the up set.

mod delta;
pub mod patch;
mod placement;
pub mod programs;
pub mod snaps;

pub use delta::{ApplyError, Change, MapDelta};
pub use patch::CrushHunk;
pub use programs::{Capability, Program, ProgramKind, ProgramVersion, SourceDigest};
pub use snaps::{PoolSnaps, SnapInfo, SnapMode};

use crate::codec::{Malformed, Reader, Wire};
use crate::measure::Measure;
use crate::{wire_enum, wire_fields, wire_record};
use nacre_crush::CrushMap;
use nacre_types::{ClusterId, Entity, Epoch, Instance, MonId, Name, OsdId, PgId, PoolId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Where a daemon listens, as `host:port`. Only hosts interpret it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address(pub String);

impl Wire for Address {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self(Wire::get(from)?))
    }
    fn measure(&self, into: &mut Measure) {
        self.0.measure(into);
    }
}
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// 16.16 fixed point: the share of its CRUSH weight that an OSD takes. [`Weight::IN`] is the whole
/// weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(pub u32);

impl Weight {
    /// Takes no data ("out").
    pub const OUT: Self = Self(0);
    /// Takes its whole share ("in").
    pub const IN: Self = Self(0x1_0000);
}
impl Wire for Weight {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self(Wire::get(from)?))
    }
    fn measure(&self, into: &mut Measure) {
        self.0.measure(into);
    }
}

/// A digest that chains every epoch to its predecessors. Two maps of one epoch with different
/// digests come from different histories (a restored monitor, a copied directory); a daemon that
/// detects this stops.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest(pub u128);

impl Digest {
    /// The digest after appending `bytes` (one encoded delta) to the history.
    #[must_use]
    pub fn chain(self, bytes: &[u8]) -> Self {
        let mut hasher = xxhash_rust::xxh3::Xxh3::with_seed(0);
        hasher.update(&self.0.to_le_bytes());
        hasher.update(bytes);
        Self(hasher.digest128())
    }
}
impl Wire for Digest {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self(Wire::get(from)?))
    }
    fn measure(&self, into: &mut Measure) {
        self.0.measure(into);
    }
}
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonInfo {
    /// Where it listens.
    pub address: Address,
    /// Identity of its store; 0 for a founding monitor. Raft votes and acknowledgements were made
    /// by this store and by no later one.
    pub store: u64,
    /// Removed, but still part of consensus: it may be needed to commit the removal itself.
    pub leaving: bool,
}
wire_record!(MonInfo version 2 compat 2 { address } since 2 { store, leaving });

/// An OSD. *Down* concerns the process, *out* ([`Weight::OUT`]) the data: a down OSD stays in for a
/// while, so that a short absence moves no data (CEPH-48).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsdInfo {
    /// Whether its current instance serves.
    pub up: bool,
    /// Its share of its CRUSH weight.
    pub weight: Weight,
    /// The weight it had when the monitors took it out automatically; restored when it boots.
    /// `None`: an operator took it out, or it is in.
    pub weight_before_auto_out: Option<Weight>,
    /// Its latest instance, granted by the monitors; increases with every boot.
    pub instance: Instance,
    /// Where that instance listens.
    pub address: Address,
    /// Epoch in which it last came up.
    pub up_from: Epoch,
    /// Epoch in which it last went down.
    pub down_at: Epoch,
    /// Identity of its store: a second directory with the same OSD id is refused.
    pub store: u128,
    /// Bits of the features it supports.
    pub features: u64,
    /// The process that was granted that instance (`Boot::process`); 0 before the first.
    pub process: u64,
}
wire_record!(OsdInfo version 2 compat 2 { up, weight, weight_before_auto_out, instance, address, up_from, down_at, store, features } since 2 { process });

/// How a pool replicates (DESIGN §3, two write protocols).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// Primary-copy with a PG log; many writers.
    Log {},
    /// One lease holder, per-chunk versions; later.
    Chunk {},
}
wire_enum!(Protocol { 1 => Log {}, 2 => Chunk {} });

/// A pool's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Unique among pools.
    pub name: Name,
    /// Its replication protocol.
    pub protocol: Protocol,
    /// Number of replicas.
    pub size: u8,
    /// Replicas needed to accept reads and writes.
    pub min_size: u8,
    /// Number of placement groups; grows by splitting.
    pub pg_num: u32,
    /// Number of placement groups used for placement; follows `pg_num`, and data moves as it does.
    pub pgp_num: u32,
    /// CRUSH rule id.
    pub rule: u32,
    /// Epoch that created it.
    pub created: Epoch,
    /// Bits of [`pool_flag`].
    pub flags: u64,
    /// Erasure-code profile; empty for replicated pools.
    pub erasure: String,
    /// Limit on its bytes; 0 is no limit.
    pub quota_bytes: u64,
    /// Limit on its objects; 0 is no limit.
    pub quota_objects: u64,
    /// Its snapshots.
    pub snaps: PoolSnaps,
}
wire_record!(Pool version 2 compat 1 {
    name, protocol, size, min_size, pg_num, pgp_num, rule, created, flags, erasure, quota_bytes, quota_objects,
} since 2 { snaps } verify fault);

/// Most placement groups of a pool.
pub const PG_NUM_MAX: u32 = 65_536;

impl Pool {
    /// A pool with log replication, placed by rule 0, without limits, that has existed since the
    /// first epoch.
    #[must_use]
    pub fn replicated(name: Name, size: u8, min_size: u8, pg_num: u32) -> Self {
        Self {
            name,
            protocol: Protocol::Log {},
            size,
            min_size,
            pg_num,
            pgp_num: pg_num,
            rule: 0,
            created: Epoch::NONE,
            flags: 0,
            erasure: String::new(),
            quota_bytes: 0,
            quota_objects: 0,
            snaps: PoolSnaps::default(),
        }
    }

    /// What is wrong with the settings, if anything. A map has a record for each PG, so an
    /// unchecked `pg_num` would let a peer decide how much memory every daemon needs.
    fn fault(&self) -> Option<String> {
        let fits = (1..=PG_NUM_MAX).contains(&self.pg_num);
        (!fits).then(|| {
            format!(
                "pool {} has {} groups, not 1 to {PG_NUM_MAX}",
                self.name, self.pg_num
            )
        })
    }
}

/// Bits of [`Pool::flags`].
pub mod pool_flag {
    /// Removing the pool is refused.
    pub const NO_DELETE: u64 = 1;
    /// Set by the monitors when a quota is exceeded or an OSD is full: writes that need space are
    /// refused, deletes are not.
    pub const FULL: u64 = 2;
}

/// Bits of [`ClusterMap::flags`], set by operators.
pub mod flag {
    /// Down OSDs are not taken out.
    pub const NO_OUT: u64 = 1;
    /// OSDs are not marked down on their peers' reports.
    pub const NO_DOWN: u64 = 2;
    /// No backfill starts.
    pub const NO_BACKFILL: u64 = 4;
    /// No recovery starts (objects that clients ask for are still recovered).
    pub const NO_RECOVER: u64 = 8;
}

/// Permission for an interval to accept writes: committed by the monitors before the first write
/// (DESIGN §3, Peering).
///
/// A write is acknowledged once it is durable on every acting member of an activated interval. So
/// each one of `members` alone has every acknowledged write up to the end of that interval, and the
/// last activation names the members to ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activation {
    /// First epoch of the interval; [`Epoch::NONE`] when the PG never accepted a write.
    pub interval: Epoch,
    /// The complete members of its acting set.
    pub members: Vec<OsdId>,
    /// The instance each member had, in the same order.
    pub instances: Vec<Instance>,
}
wire_fields!(Activation {
    interval,
    members,
    instances
});

/// What the map records about a placement group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgRecord {
    /// CRUSH's choice, exceptions included, whether up or not. Derived.
    pub raw: Vec<OsdId>,
    /// Those of `raw` that are up. Derived.
    pub up: Vec<OsdId>,
    /// The acting set, the primary first: the up members of `temporary` if there are any, otherwise
    /// `up`. Derived.
    pub acting: Vec<OsdId>,
    /// First epoch of the current interval. Derived, but not from the current map alone: full maps
    /// carry it.
    pub since: Epoch,
    /// A temporary acting set that covers a backfill; empty when there is none.
    pub temporary: Vec<OsdId>,
    /// The last interval that was activated.
    pub activated: Activation,
}
wire_record!(PgRecord version 1 compat 1 { since, temporary, activated, raw, up, acting });

impl PgRecord {
    /// The acting set's first member, which orders updates.
    #[must_use]
    pub fn primary(&self) -> Option<OsdId> {
        self.acting.first().copied()
    }
    /// Whether the current interval may accept writes.
    #[must_use]
    pub fn is_activated(&self) -> bool {
        self.activated.interval == self.since && self.since != Epoch::NONE
    }
    /// Up members that do not serve yet because they are being backfilled.
    pub fn backfill_targets(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.up
            .iter()
            .copied()
            .filter(|osd| !self.acting.contains(osd))
    }
}

/// The instances of an entity that may no longer act: all up to and including the given one.
pub type Fences = BTreeMap<Entity, Instance>;

/// The hierarchy and rules, with their text form; only the text is transmitted.
#[derive(Clone)]
pub struct CrushSection {
    /// The text form that `crushtool` reads.
    pub text: Arc<str>,
    /// The parsed map.
    pub map: Arc<CrushMap>,
}

impl CrushSection {
    /// Parses the text form.
    ///
    /// # Errors
    /// The parser's message.
    pub fn parse(text: &str) -> Result<Self, String> {
        let map = placement::parse(text)?;
        Ok(Self {
            text: text.into(),
            map: Arc::new(map),
        })
    }
}
impl PartialEq for CrushSection {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}
impl Eq for CrushSection {}
impl fmt::Debug for CrushSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CrushSection({} bytes)", self.text.len())
    }
}
impl Wire for CrushSection {
    fn put(&self, out: &mut Vec<u8>) {
        self.text.to_string().put(out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::parse(&String::get(from)?).map_err(|_| Malformed::Value("CRUSH map"))
    }
    fn measure(&self, into: &mut Measure) {
        into.add(4 + self.text.len());
    }
}

/// The cluster map. See the module head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMap {
    /// Which cluster.
    pub cluster: ClusterId,
    /// Which version of the map.
    pub epoch: Epoch,
    /// Chained over all deltas since the first.
    pub digest: Digest,
    /// Features that all daemons and clients of the cluster must support.
    pub required_features: u64,
    /// Bits of [`flag`].
    pub flags: u64,
    /// Monitors.
    pub mons: BTreeMap<MonId, MonInfo>,
    /// OSDs.
    pub osds: BTreeMap<OsdId, OsdInfo>,
    /// Hierarchy and rules.
    pub crush: CrushSection,
    /// Pools.
    pub pools: BTreeMap<PoolId, Pool>,
    /// Highest pool id ever used.
    pub pool_last: PoolId,
    /// Placement groups.
    pub pgs: BTreeMap<PgId, PgRecord>,
    /// Placement exceptions: the first OSD of a pair is replaced by the second.
    pub upmaps: BTreeMap<PgId, Vec<(OsdId, OsdId)>>,
    /// Which instances may no longer act.
    pub fences: Fences,
    /// Options set for the cluster, by name; `nacre config help` lists them.
    pub config: BTreeMap<Name, String>,
    /// Programs by kind and name.
    pub programs: BTreeMap<(ProgramKind, Name), Program>,
    /// Highest activation number assigned so far.
    pub program_last: u64,
    /// Capabilities of named clients; see [`ClusterMap::capabilities_of`].
    pub clients: BTreeMap<Name, Vec<Capability>>,
}
wire_record!(ClusterMap version 2 compat 1 {
    cluster, epoch, digest, required_features, flags, mons, osds, crush, pools, pool_last, pgs, upmaps, fences, config,
} since 2 { programs, program_last, clients } verify fault);

impl ClusterMap {
    /// The map before the first change: only the cluster id and the hierarchy.
    #[must_use]
    pub fn empty(cluster: ClusterId, crush: CrushSection) -> Self {
        Self {
            cluster,
            epoch: Epoch::NONE,
            digest: Digest::default(),
            required_features: 0,
            flags: 0,
            mons: BTreeMap::new(),
            osds: BTreeMap::new(),
            crush,
            pools: BTreeMap::new(),
            pool_last: PoolId(0),
            pgs: BTreeMap::new(),
            upmaps: BTreeMap::new(),
            fences: Fences::new(),
            config: BTreeMap::new(),
            programs: BTreeMap::new(),
            program_last: 0,
            clients: BTreeMap::new(),
        }
    }

    /// The OSD's entry if its current instance serves.
    #[must_use]
    pub fn up_osd(&self, osd: OsdId) -> Option<&OsdInfo> {
        self.osds.get(&osd).filter(|info| info.up)
    }

    /// The pool of that name.
    #[must_use]
    pub fn pool_named(&self, name: &Name) -> Option<(PoolId, &Pool)> {
        self.pools
            .iter()
            .find(|(_, pool)| pool.name == *name)
            .map(|(id, pool)| (*id, pool))
    }

    /// Whether this instance of `entity` is fenced.
    #[must_use]
    pub fn is_fenced(&self, entity: Entity, instance: Instance) -> bool {
        self.fences
            .get(&entity)
            .is_some_and(|last| instance <= *last)
    }

    /// Asserts the invariants of the module head.
    pub fn check(&self) {
        if let Some(fault) = self.fault() {
            panic!("the map contradicts itself: {fault}");
        }
    }

    /// Which invariant of the module head is violated, if any. A map that contradicts itself is
    /// refused when decoded: everything else here relies on the invariants.
    fn fault(&self) -> Option<String> {
        let expected: u64 = self.pools.values().map(|pool| u64::from(pool.pg_num)).sum();
        if self.pgs.len() as u64 != expected {
            return Some(format!(
                "{} records of {expected} placement groups",
                self.pgs.len()
            ));
        }
        for (id, pool) in &self.pools {
            if pool.pgp_num == 0 || pool.pgp_num > pool.pg_num {
                return Some(format!(
                    "pool {}: {} of {} groups are placed",
                    pool.name, pool.pgp_num, pool.pg_num
                ));
            }
            // Together with the count above: exactly these records exist.
            let missing = (0..pool.pg_num)
                .map(|seed| PgId::replicated(*id, seed))
                .find(|pg| !self.pgs.contains_key(pg));
            if let Some(pg) = missing {
                return Some(format!("{pg} has no record"));
            }
        }
        self.pgs.iter().find_map(|(pg, record)| {
            if record.since > self.epoch || record.since == Epoch::NONE {
                return Some(format!("{pg}: since {} at {}", record.since, self.epoch));
            }
            let activated = &record.activated;
            if activated.interval > record.since
                || activated.members.len() != activated.instances.len()
            {
                return Some(format!(
                    "{pg}: activated {}, since {}",
                    activated.interval, record.since
                ));
            }
            // A delta skips PGs that it cannot affect, so their sets have to equal what it would
            // derive.
            let is_up = |osd: &&OsdId| self.up_osd(**osd).is_some();
            if !record.up.iter().eq(record.raw.iter().filter(is_up)) {
                return Some(format!(
                    "{pg}: {:?} cannot be what is up of {:?}",
                    record.up, record.raw
                ));
            }
            let temporary = || record.temporary.iter().filter(is_up);
            let as_derived = match temporary().next() {
                Some(_) => record.acting.iter().eq(temporary()),
                None => record.acting == record.up,
            };
            (!as_derived).then(|| {
                format!(
                    "{pg}: {:?} act, of {:?} or {:?}",
                    record.acting, record.temporary, record.up
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIERARCHY: &str = "device 0 osd.0\ntype 0 osd\ntype 1 root\nroot default { id -1\nalg straw2\nhash 0\nitem osd.0 weight 1.000\n}\n\
        rule data { id 0\ntype replicated\nmin_size 1\nmax_size 10\nstep take default\nstep choose firstn 0 type osd\nstep emit\n}\n";

    fn map() -> ClusterMap {
        let mut map = ClusterMap::empty(
            ClusterId(1),
            CrushSection::parse(HIERARCHY).expect("well-formed"),
        );
        let settings = Pool::replicated("p".into(), 1, 1, 3);
        map.apply(&map.delta(vec![Change::PoolSet {
            pool: PoolId(1),
            settings,
        }]))
        .expect("the next delta");
        map
    }

    /// Found by fuzzing: a map with intervals in the future, or with PG records that did not match
    /// its pools, decoded, and the next change made the daemon panic.
    #[test]
    fn a_map_that_contradicts_itself_does_not_decode() {
        let mut good = map();
        let (osd, instance, address) = (OsdId(0), Instance(1), Address("o".into()));
        let up = Change::OsdUp {
            osd,
            instance,
            address,
            store: 1,
            features: 0,
            process: 1,
        };
        good.apply(&good.delta(vec![Change::OsdNew { osd, store: 1 }, up]))
            .expect("the next delta");
        assert_eq!(good.pgs[&PgId::replicated(PoolId(1), 1)].acting, [osd]);
        assert_eq!(ClusterMap::from_bytes(&good.to_bytes()), Ok(good.clone()));
        let pg = PgId::replicated(PoolId(1), 1);
        type Spoil = fn(&mut ClusterMap, PgId);
        let spoils: [(&str, Spoil); 9] = [
            ("an interval of the future", |map, pg| {
                map.pgs.get_mut(&pg).expect("there").since = Epoch(9)
            }),
            ("an interval that never began", |map, pg| {
                map.pgs.get_mut(&pg).expect("there").since = Epoch::NONE
            }),
            ("an activation of the future", |map, pg| {
                map.pgs.get_mut(&pg).expect("there").activated.interval = Epoch(9);
            }),
            ("members without instances", |map, pg| {
                map.pgs
                    .get_mut(&pg)
                    .expect("there")
                    .activated
                    .members
                    .push(OsdId(0));
            }),
            ("an OSD that acts and is not there", |map, pg| {
                map.pgs.get_mut(&pg).expect("there").acting.push(OsdId(7));
            }),
            // These two were found later, when deltas began to skip unaffected PGs: an OSD that
            // CRUSH had not chosen went down and stayed in the acting set.
            ("an up set of others than CRUSH chose", |map, pg| {
                map.pgs.get_mut(&pg).expect("there").raw.clear()
            }),
            ("an acting set of fewer than are up", |map, pg| {
                map.pgs.get_mut(&pg).expect("there").acting.clear()
            }),
            ("a group without a record", |map, pg| {
                let record = map.pgs.remove(&pg).expect("there");
                map.pgs.insert(PgId::replicated(PoolId(1), 7), record);
            }),
            ("no group is placed", |map, _| {
                map.pools.get_mut(&PoolId(1)).expect("there").pgp_num = 0
            }),
        ];
        for (what, spoil) in spoils {
            let mut map = good.clone();
            spoil(&mut map, pg);
            assert_eq!(
                ClusterMap::from_bytes(&map.to_bytes()),
                Err(Malformed::Value("ClusterMap")),
                "{what}"
            );
        }
    }

    /// Found by reading what fuzzing had to exclude: a pool of four billion PGs would have needed a
    /// record of 150 bytes each in every daemon, and a pool of none caused a division by zero.
    #[test]
    fn a_pool_of_too_many_groups_does_not_decode() {
        let pool = map().pools[&PoolId(1)].clone();
        for pg_num in [0, PG_NUM_MAX + 1, u32::MAX] {
            let pool = Pool {
                pg_num,
                ..pool.clone()
            };
            assert_eq!(
                Pool::from_bytes(&pool.to_bytes()),
                Err(Malformed::Value("Pool")),
                "{pg_num}"
            );
        }
    }

    /// An operator lifts the fence that was displayed; a fence added since then stays.
    #[test]
    fn lifting_a_fence_names_the_fence() {
        let (entity, mut map) = (Entity::Osd(OsdId(3)), map());
        let mut apply = |changes| {
            map.apply(&map.delta(changes)).expect("the next delta");
            map.fences.get(&entity).copied()
        };
        let lift = |instance| Change::FenceLift {
            entity,
            instance: Instance(instance),
        };
        assert_eq!(apply(vec![lift(4)]), None, "there is none");
        assert_eq!(
            apply(vec![Change::Fence {
                entity,
                instance: Instance(4)
            }]),
            Some(Instance(4))
        );
        assert_eq!(apply(vec![lift(3)]), Some(Instance(4)));
        assert_eq!(
            apply(vec![
                Change::Fence {
                    entity,
                    instance: Instance(9)
                },
                lift(4)
            ]),
            Some(Instance(9))
        );
        assert_eq!(apply(vec![lift(9)]), None);
    }
}
