//! The meaning of a seed: the cluster, its load and its faults, before the run.

use crate::rng::Rng;

/// Nanoseconds per millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds per second.
pub const SECOND: u64 = 1_000 * MS;

/// The kind of store that daemons use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disks {
    /// The RAM store: a crash keeps a prefix of the uncommitted transactions.
    Ram,
    /// The real store on a test device: a crash keeps any part of the unflushed data, torn at
    /// sectors.
    Real,
}

/// See the module head.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of all random decisions.
    pub seed: u64,
    /// Number of monitors.
    pub mons: u32,
    /// Number of OSDs.
    pub osds: u32,
    /// The kind of their stores.
    pub disks: Disks,
    /// Number of replicas.
    pub size: u8,
    /// Replicas needed to serve.
    pub min_size: u8,
    /// Initial number of PGs.
    pub pg_num: u32,
    /// Number of registers.
    pub keys: u64,
    /// Number of clients.
    pub clients: u64,
    /// How long faults continue.
    pub faults_ns: u64,
    /// Mean time between faults.
    pub fault_every_ns: u64,
    /// Few, targeted faults, aimed at what protects reads and acknowledgements, on a cluster that
    /// is healthy in between.
    pub aimed: bool,
    /// Messages are lost, duplicated, reordered and delayed.
    pub bad_network: bool,
    /// Inputs that reach an OSD within this many nanoseconds may share a turn; 0: each input is a
    /// turn.
    pub gather_ns: u64,
    /// Log entries kept when clean, and the maximum.
    pub log: (usize, usize),
    /// How often PGs may split.
    pub splits: u32,
    /// Whether they split while a member is being backfilled.
    pub split_filling: bool,
    /// How long an OSD may be silent, in milliseconds.
    pub grace_ms: u64,
    /// How long an OSD may be down before its data moves elsewhere, in seconds.
    pub down_out_s: u64,
    /// Entries of the monitors' log between snapshots.
    pub compact_entries: u64,
    /// Writes in place of up to this many bytes go through the real store's log.
    pub deferred_write_max: usize,
    /// Bytes that the real store accepts before it is busy; further transactions then wait in
    /// order.
    pub queue_bytes_max: usize,
    /// See `nacre_store::OpenOptions`.
    pub commit_bytes_max: usize,
    /// See `nacre_store::OpenOptions`.
    pub plain: bool,
    /// Capacity reported by every store, independent of its disk: with a small one, few updates may
    /// be in flight at a time.
    pub capacity: u64,
    /// OSDs' devices are really small, and clients fill them.
    pub small_disks: bool,
    /// OSDs are absent for a while and find their devices full when they come back, filled by
    /// something else.
    pub returns_full: bool,
    /// Two OSDs no longer hear each other, or only in one direction. Other OSDs hear both.
    pub pairs: bool,
    /// Operators set cluster flags and forget them for a while.
    pub flags: bool,
    /// Disks hang until their OSDs are marked down, or longer, until the OSDs end.
    pub hangs: bool,
    /// Blocks of the first OSD's disk may become corrupt or unreadable. Only one disk, because with
    /// two damaged replicas there would be nothing to repair from.
    pub rot: bool,
    /// Index pages of the first OSD's store may become corrupt while it is running.
    pub index_rot: bool,
    /// The interval of OSDs' beacons, and how long without one until they are down, in
    /// milliseconds: often so short that faults alone mark them down.
    pub beacons_ms: (u64, u64),
    /// Clients watch, notify and lock in addition to registers.
    pub claims: bool,
    /// Whether clients call methods of a class.
    pub programs: bool,
    /// Whether clients call random classes.
    pub randoms: bool,
    /// Whether clients use classes of the library.
    pub library: bool,
    /// Whether clients write several objects atomically, under locks.
    pub spans: bool,
    /// Snapshots of the pool are created and removed, and clients read them, roll back and copy.
    pub snaps: bool,
    /// Operations that a client keeps in flight on one object; 0: none.
    pub depth: usize,
    /// Most operations that a client has in flight.
    pub client_ops: usize,
    /// Registers take a few recurring values: a guard that failed may hold later.
    pub recur: bool,
    /// Clients collide: many of them use one or two registers with recurring values, most of their
    /// guards fail, and every second request is duplicated while the client already waits for the
    /// next one.
    pub contend: bool,
    /// PGs lose power between early answers and durability, possibly all but one member, and the
    /// writers are cut off for a while.
    pub early: bool,
    /// An additional client is repeatedly fenced, goes on, and restarts as a new instance.
    pub fences: bool,
    /// Its fences are lifted, and the fenced instances continue.
    pub lifts: bool,
    /// Disks are lost permanently, and replaced under the same id or another.
    pub replace: bool,
    /// Monitors are removed and added again with new stores.
    pub moves: bool,
    /// Kinds of faults that are excluded, one bit each ([`crate::shrink`]).
    pub without: u64,
    /// The OSDs' page sizes and bounds.
    pub pages: Pages,
    /// Every second client ends after an operation or two, and restarts as a new instance.
    pub lives: bool,
}

/// Page sizes and bounds. In half of the seeds they are so small that pages end within the few
/// objects of a simulated PG, and faults happen between pages.
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

/// The capacity that a store reports.
pub const CAPACITY: u64 = 1 << 40;
/// The capacity per OSD reported by a small store.
const SMALL: u64 = 1 << 20;
/// Size of a really small device in bytes. OSDs reserve an eighth of it, which is more than their
/// stores reserve.
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
        // Detecting a failure and recovering from it takes seconds: with more frequent faults the
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
            // A third of the plans has a few hot registers and many clients, to test ordering.
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
            plain: true,
            commit_bytes_max: [256 << 10, 12 << 10, 0][seed as usize / 3 % 3],
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

    /// See [`Self::pairs`]: faults last four times the grace, and others are rare.
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
        // Blocks become corrupt only while the other replicas have everything: they catch up
        // between the faults.
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
        // All of them fill up, with updates that are not too large for any of them.
        self.pages.0.client_bytes = nacre_osd::Limits::default().client_bytes;
        (self.osds, self.clients) = (self.osds.min(4), self.clients.max(4));
        if self.seed.is_multiple_of(2) {
            // An OSD that was absent is backfilled instead of recovered by log.
            self.log = (2, 8);
        }
        self
    }
    /// Size of an OSD's device in bytes.
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

    /// PGs remember only a few clients, logs and messages are short, and every second client is
    /// short-lived.
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

    /// A cluster on RAM stores, without faults and without load.
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
