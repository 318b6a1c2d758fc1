//! What a seed means: the cluster, its load and its faults, before anything happens.

use crate::rng::Rng;

/// Nanoseconds of a millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000 * MS;

/// What daemons keep their data in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disks {
    /// The RAM store: a crash keeps a prefix of what was not committed.
    Ram,
    /// The real store on a test device: a crash keeps any part of what was not flushed, torn by
    /// sectors.
    Real,
}

/// See the module head.
#[derive(Clone, Debug)]
pub struct Plan {
    /// For everything that happens.
    pub seed: u64,
    /// How many monitors.
    pub mons: u32,
    /// How many OSDs.
    pub osds: u32,
    /// What they store on.
    pub disks: Disks,
    /// Copies.
    pub size: u8,
    /// Copies needed.
    pub min_size: u8,
    /// Groups at the beginning.
    pub pg_num: u32,
    /// Registers.
    pub keys: u64,
    /// Clients.
    pub clients: u64,
    /// How long faults last.
    pub faults_ns: u64,
    /// Mean time between faults.
    pub fault_every_ns: u64,
    /// Few faults, aimed at what protects reads and acknowledgements, on a cluster that is well in
    /// between.
    pub aimed: bool,
    /// Messages are lost, doubled, reordered and late.
    pub bad_network: bool,
    /// What reaches an OSD within so many nanoseconds may be one turn of it; 0: each input is a
    /// turn.
    pub gather_ns: u64,
    /// Log entries kept when clean, and at most.
    pub log: (usize, usize),
    /// How often groups may split.
    pub splits: u32,
    /// They split while a member is being backfilled.
    pub split_filling: bool,
    /// How long an OSD may be silent, in milliseconds.
    pub grace_ms: u64,
    /// How long an OSD may be down before its data goes elsewhere, in seconds.
    pub down_out_s: u64,
    /// Entries of the monitors' log between snapshots.
    pub compact_entries: u64,
    /// Bytes up to which the real store writes in place through its log.
    pub deferred_write_max: usize,
    /// Bytes that the real store takes before it is busy, and what comes then has to wait in
    /// order.
    pub queue_bytes_max: usize,
    /// Bytes that every store says it has, whatever its disk has: of little, few updates may be
    /// under way at one time.
    pub capacity: u64,
    /// OSDs' devices are really small, and clients fill them.
    pub small_disks: bool,
    /// OSDs go away for a while and find their devices full, by somebody else, when they come
    /// back.
    pub returns_full: bool,
    /// Two OSDs no longer hear each other, or only one of them the other. Others hear both.
    pub pairs: bool,
    /// Operators set flags of the cluster, and forget them for a while.
    pub flags: bool,
    /// Disks hang, until their OSDs are marked down, or longer, until these end.
    pub hangs: bool,
    /// Blocks of one OSD's disk may rot or become unreadable: of the first one's. With two damaged
    /// copies there would be nothing to heal from.
    pub rot: bool,
    /// Pages of the index of one OSD's store may rot while it is at work: of the first one's.
    pub index_rot: bool,
    /// How often OSDs send beacons, and after how long without one they are down, in milliseconds:
    /// often so short that faults alone do it.
    pub beacons_ms: (u64, u64),
    /// Clients watch, notify and lock beside their registers.
    pub claims: bool,
    /// Whether clients call methods of a class, too.
    pub programs: bool,
    /// Whether clients call random classes.
    pub randoms: bool,
    /// Whether clients use classes of the library.
    pub library: bool,
    /// Whether clients write several objects as one, under locks.
    pub spans: bool,
    /// Snapshots of the pool come and go, and clients read at them, roll back and copy.
    pub snaps: bool,
    /// Operations that a client keeps in flight on one object; 0: none does.
    pub depth: usize,
    /// Operations that a client has in flight at most.
    pub client_ops: usize,
    /// Registers take one of a few values, again and again: a guard that failed may hold later.
    pub recur: bool,
    /// Clients collide: many of them on one or two registers of recurring values, most of their
    /// guards fail, and every other of their requests comes once more, while they wait with the
    /// next.
    pub contend: bool,
    /// Groups lose power between early answers and durability, but for one member or not, and the
    /// writers are away for a while.
    pub early: bool,
    /// One more client is fenced, goes on, and comes again as a new instance, again and again.
    pub fences: bool,
    /// Its fences are lifted, and the instances that they shut out go on.
    pub lifts: bool,
    /// Disks are lost for good, and replaced under the same id or another.
    pub replace: bool,
    /// Monitors are removed and let in again with new stores.
    pub moves: bool,
    /// Kinds of faults that do not happen, a bit each ([`crate::shrink`]).
    pub without: u64,
    /// Page sizes and bounds of the OSDs.
    pub pages: Pages,
    /// Every other client ends after an operation or two, and comes again as a new instance.
    pub lives: bool,
}

/// Page sizes and bounds: so small in half of the seeds that pages end within the few objects of a
/// simulated group, and faults fall between them.
#[derive(Clone, Copy, Debug)]
pub struct Pages(pub nacre_osd::Limits);

impl Pages {
    fn any(rng: &mut Rng) -> Self {
        let all = nacre_osd::Limits::default();
        if rng.one_in(2) {
            return Self(all);
        }
        Self(nacre_osd::Limits {
            erase_objects: rng.between(1, 4) as usize,
            page_objects: rng.between(1, 8) as usize,
            list_objects: rng.between(1, 8) as usize,
            push_entries: rng.between(1, 8) as usize,
            boot_entries: rng.between(1, 16) as usize,
            answered_bytes: rng.between(300, 4000) as usize,
            held_messages: rng.between(4, 64) as usize,
            deltas_kept: rng.between(1, 16) as usize,
            scan_objects: rng.between(1, 8) as u32,
            recovery_objects_total: rng.between(1, 6) as usize,
            backfill_groups: rng.between(1, 2) as usize,
            client_ops: rng.between(8, 128) as usize,
            client_bytes: rng.between(32 << 10, 4 << 20),
            ..all
        })
    }
}

/// What a store says it has.
pub const CAPACITY: u64 = 1 << 40;
/// What a small one says for each OSD.
const SMALL: u64 = 1 << 20;
/// Bytes of a device that is really small. What OSDs keep back is an eighth of it, and more than
/// their stores do.
const SMALL_DEVICE: u64 = 48 << 20;

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x6e61_6372_6521);
        let osds = rng.between(3, 6) as u32;
        let log = rng.between(3, 60) as usize;
        let min_size = if rng.one_in(8) { 1 } else { 2 };
        let aimed = rng.one_in(4);
        // Detecting a failure and recovering from it takes seconds: where faults come faster, the
        // cluster hardly ever serves.
        let fault_every_ms = match rng.below(3) {
            _ if aimed => rng.between(1500, 4000),
            0 => rng.between(150, 1000),
            _ => rng.between(500, 4000),
        };
        let disks = if rng.one_in(3) {
            Disks::Real
        } else {
            Disks::Ram
        };
        let plan = Self {
            seed,
            mons: *rng.pick(&[1, 1, 1, 3, 3, 3, 3, 5]),
            osds,
            disks,
            size: if rng.one_in(5) { 2 } else { 3 },
            min_size,
            pg_num: rng.between(1, 6) as u32,
            // A third of the plans has a few hot registers and many clients: order shows there.
            keys: if rng.one_in(3) {
                rng.between(1, 2)
            } else {
                rng.between(2, 24)
            },
            clients: rng.between(2, 8),
            faults_ns: if aimed {
                rng.between(12, 20)
            } else {
                rng.between(4, 16)
            } * SECOND,
            fault_every_ns: fault_every_ms * MS,
            aimed,
            bad_network: !rng.one_in(4),
            gather_ns: [0, 0, 50_000, 500_000, 5 * MS][seed as usize % 5],
            log: (log, log + rng.between(1, 80) as usize),
            splits: rng.below(3) as u32,
            split_filling: false,
            grace_ms: rng.between(300, 2000),
            down_out_s: *rng.pick(&[1, 3, 600, 600]),
            compact_entries: *rng.pick(&[16, 30, 1000]),
            deferred_write_max: *rng.pick(&[2 << 10, 12 << 10]),
            queue_bytes_max: [8 << 10, 64 << 10, 512 << 10][seed as usize % 3],
            rot: disks == Disks::Real && min_size > 1 && rng.one_in(2),
            index_rot: false,
            small_disks: false,
            returns_full: seed % 10 == 7,
            hangs: seed % 8 == 6,
            flags: seed % 7 == 5,
            pairs: seed % 9 == 1,
            beacons_ms: *rng.pick(&[(2000, 30_000), (2000, 30_000), (200, 1000), (300, 2500)]),
            claims: rng.one_in(2),
            programs: rng.one_in(2),
            snaps: rng.one_in(3),
            randoms: rng.one_in(3),
            library: rng.one_in(4),
            spans: rng.one_in(3),
            depth: if rng.one_in(2) {
                rng.between(2, 12) as usize
            } else {
                0
            },
            client_ops: if rng.one_in(4) {
                rng.between(2, 8) as usize
            } else {
                1024
            },
            recur: seed % 4 == 1,
            contend: false,
            early: false,
            fences: seed % 4 == 2,
            lifts: seed % 12 == 10,
            replace: false,
            moves: seed % 6 == 1,
            without: 0,
            pages: Pages::any(&mut rng),
            lives: false,
            capacity: if seed % 5 == 2 {
                u64::from(osds) * SMALL
            } else {
                CAPACITY
            },
        };
        let plan = Self {
            replace: seed.is_multiple_of(4) && !plan.rot,
            ..plan
        };
        let plan = if plan.pairs { plan.parts() } else { plan };
        let plan = if seed % 7 == 3 {
            plan.split_filling()
        } else {
            plan
        };
        let plan = if seed % 9 == 6 { plan.rots() } else { plan };
        let plan = if seed % 11 == 9 {
            plan.index_rots()
        } else {
            plan
        };
        let plan = if matches!(seed % 13, 4 | 8) {
            plan.really_small()
        } else {
            plan
        };
        match seed % 8 {
            3 | 7 => plan.forgetful(),
            5 => plan.contended(),
            2 => plan.answered_early(),
            _ => plan,
        }
    }

    /// See [`Self::contend`].
    #[must_use]
    pub fn contended(mut self) -> Self {
        (self.contend, self.recur, self.bad_network) = (true, true, true);
        (self.keys, self.clients) = (self.keys.min(2), self.clients.max(8));
        self
    }

    /// See [`Self::pairs`]: four times the grace pass while the faults last, and others are few.
    #[must_use]
    pub fn parts(mut self) -> Self {
        (self.pairs, self.grace_ms) = (true, self.grace_ms.min(500));
        self.osds = self.osds.max(4);
        self.fault_every_ns = self.fault_every_ns.max(800 * MS);
        self
    }

    /// See [`Self::rot`].
    #[must_use]
    pub fn rots(mut self) -> Self {
        (self.rot, self.replace) = (true, false);
        (self.disks, self.size, self.min_size) = (Disks::Real, 3, 2);
        // Blocks rot only while the others have everything: they get there between the faults.
        self.fault_every_ns = self.fault_every_ns.max(1500 * MS);
        self
    }

    /// See [`Self::index_rot`].
    #[must_use]
    pub fn index_rots(mut self) -> Self {
        (self.index_rot, self.rot, self.replace) = (true, false, false);
        (self.disks, self.min_size) = (Disks::Real, 2);
        self
    }

    /// See [`Self::small_disks`].
    #[must_use]
    pub fn really_small(mut self) -> Self {
        (self.small_disks, self.disks, self.capacity) = (true, Disks::Real, CAPACITY);
        (self.rot, self.index_rot, self.replace) = (false, false, false);
        // All of them get full, by updates that are not too large for anybody.
        self.pages.0.client_bytes = nacre_osd::Limits::default().client_bytes;
        (self.osds, self.clients) = (self.osds.min(4), self.clients.max(4));
        if self.seed.is_multiple_of(2) {
            // Who was away is filled, not told what changed.
            self.log = (2, 8);
        }
        self
    }
    /// Bytes of an OSD's device.
    #[must_use]
    pub const fn device_length(&self) -> u64 {
        if self.small_disks {
            SMALL_DEVICE
        } else {
            crate::disk::DEVICE_LENGTH
        }
    }

    /// See [`Self::split_filling`].
    #[must_use]
    pub fn split_filling(mut self) -> Self {
        (self.split_filling, self.splits) = (true, self.splits.max(2));
        self
    }

    /// See [`Self::early`].
    #[must_use]
    pub fn answered_early(mut self) -> Self {
        self.early = true;
        self.depth = self.depth.max(4);
        self
    }

    /// Groups remember a handful of clients, logs and messages are short, and every other client
    /// lives briefly.
    #[must_use]
    pub fn forgetful(mut self) -> Self {
        let mut rng = Rng::new(self.seed ^ 0x666f_7267_6574);
        self.lives = true;
        self.pages.0 = nacre_osd::Limits {
            clients_remembered: rng.between(2, 8) as usize,
            message_bytes: rng.between(100, 2000) as usize,
            log_bytes: rng.between(2000, 20_000) as usize,
            records_bytes: rng.between(300, 4000) as usize,
            ..self.pages.0
        };
        self
    }

    /// A cluster on RAM stores, on which nothing goes wrong and nobody works.
    #[must_use]
    pub fn quiet(seed: u64) -> Self {
        Self {
            disks: Disks::Ram,
            size: 3,
            min_size: 2,
            pg_num: 64,
            keys: 1,
            clients: 1,
            bad_network: false,
            gather_ns: 0,
            splits: 0,
            split_filling: false,
            grace_ms: 2000,
            down_out_s: 600,
            compact_entries: 1000,
            rot: false,
            index_rot: false,
            small_disks: false,
            returns_full: false,
            hangs: false,
            flags: false,
            pairs: false,
            beacons_ms: (2000, 30_000),
            claims: false,
            programs: false,
            snaps: false,
            randoms: false,
            library: false,
            spans: false,
            depth: 0,
            capacity: CAPACITY,
            contend: false,
            early: false,
            fences: false,
            lifts: false,
            replace: false,
            moves: false,
            lives: false,
            ..Self::of(seed)
        }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            digest,
            events,
            operations,
            unknown,
            epochs,
            crashes,
            disks,
            mons,
            ..
        } = self;
        write!(
            f,
            "{digest:032x} {events} events, {operations} operations ({unknown} unknown), {epochs} epochs, {crashes} crashes, {disks} disks lost, {mons} monitors moved; "
        )?;
        write!(f, "{}; {}; {}; ", self.claims, self.programs, self.randoms)?;
        write!(
            f,
            "{}; {}; {}; {}; {}",
            self.library, self.spans, self.snaps, self.streams, self.fencing
        )?;
        self.rare
            .counts()
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .try_for_each(|(name, count)| write!(f, "; {name} {count}"))
    }
}

/// What a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Over every event in order.
    pub digest: u128,
    /// How many events.
    pub events: u64,
    /// How many operations were invoked.
    pub operations: usize,
    /// Of these, of unknown outcome.
    pub unknown: usize,
    /// The last epoch.
    pub epochs: u64,
    /// How often a daemon crashed.
    pub crashes: u64,
    /// How many disks were lost for good.
    pub disks: u32,
    /// 1 if an object waits for an operator's word in the end, for the only copy of what was never
    /// answered has rotted.
    pub reverts: u32,
    /// How many monitors came back with a new store.
    pub mons: u32,
    /// What happened to watches and locks.
    pub claims: crate::claims::Counts,
    /// Calls of methods.
    pub programs: crate::programs::Counts,
    /// Calls of random classes.
    pub randoms: crate::programs::random::Counts,
    /// Calls of the library's classes.
    pub library: crate::programs::library::Counts,
    /// Writes of several objects.
    pub spans: crate::spanning::Counts,
    /// What happened at snapshots.
    pub snaps: crate::snapshots::SnapCounts,
    /// What happened to streams.
    pub streams: crate::streams::Counts,
    /// What happened to clients that were fenced.
    pub fencing: crate::fencing::Counts,
    /// Limits and rare paths of the OSDs.
    pub borders: nacre_osd::borders::Borders,
    /// Rare paths of the simulator's own.
    pub rare: crate::borders::Borders,
    /// Virtual nanoseconds that it lasted.
    pub simulated_ns: u64,
    /// Comparisons of a member with its primary while faults went on.
    pub surveyed: u64,
}
