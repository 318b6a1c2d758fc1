//! The settings of an OSD at its start, and the limits and times that options of the map may
//! change.

use nacre_types::OsdId;
use nacre_wire::map::Address;
use std::time::Duration;

/// Settings of one OSD. Those that the cluster's configuration database may override are read from
/// the map when it changes.
#[derive(Clone, Debug)]
pub struct OsdConfig {
    /// The OSD's id.
    pub id: OsdId,
    /// A random number of this process, never 0: the monitors grant an instance to it
    /// ([`nacre_wire::msg::monitor::Boot`]).
    pub process: u64,
    /// Identity of the store.
    pub store: u128,
    /// The address that this instance listens on.
    pub address: Address,
    /// Device class for CRUSH.
    pub class: String,
    /// Host bucket for CRUSH.
    pub host: String,
    /// Capacity in bytes.
    pub capacity: u64,
    /// Protocol timing.
    pub timing: Timing,
    /// Sizes.
    pub limits: Limits,
}

/// Protocol timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The time between two pings of a peer.
    pub ping_interval: Duration,
    /// The duration of a granted read lease; at most 500 ms (DESIGN §3).
    pub lease: Duration,
    /// A peer silent for longer is reported.
    pub grace: Duration,
    /// Unanswered protocol messages are repeated after this time.
    pub retry_interval: Duration,
    /// The time between two beacons.
    pub beacon_interval: Duration,
    /// The client of an operation that waits longer is informed of the reason.
    pub complain_after: Duration,
    /// A call of the store's device that takes longer is reported.
    pub device_slow: Duration,
    /// After this time the OSD requests to be marked down: others serve meanwhile. It returns when
    /// its device answers.
    pub device_stall: Duration,
    /// After this time the host ends the daemon.
    pub device_hung: Duration,
    /// The maximum difference between two hosts' clock *rates*, in parts per million: leases are
    /// granted longer than they are used by that factor.
    pub drift_ppm: u32,
}
impl Default for Timing {
    fn default() -> Self {
        Self {
            ping_interval: Duration::from_millis(150),
            lease: Duration::from_millis(500),
            grace: Duration::from_millis(1800),
            retry_interval: Duration::from_millis(400),
            beacon_interval: Duration::from_secs(2),
            complain_after: Duration::from_secs(2),
            device_slow: Duration::from_secs(1),
            device_stall: Duration::from_secs(2),
            device_hung: Duration::from_secs(10),
            drift_ppm: 2000,
        }
    }
}

/// Limits of sizes and numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Log entries kept of a clean placement group: from this number to twice as many. They are not
    /// needed while all members are present (when one is missing, the log grows), and those that
    /// are still there at a checkpoint of the store cost its index an insertion and a removal each.
    pub log_entries_min: usize,
    /// Log entries kept while a member is away, so that it can return by log.
    pub log_entries_max: usize,
    /// Objects that one PG recovers at a time.
    pub recovery_objects: usize,
    /// Objects that all PGs recover at a time.
    pub recovery_objects_total: usize,
    /// PGs that compare and push a range for backfill at a time: clients' updates of a range wait
    /// meanwhile.
    pub backfill_groups: usize,
    /// Bytes of one push.
    pub push_bytes: u64,
    /// Objects that backfill compares at a time.
    pub scan_objects: u32,
    /// Object contexts cached per PG: some 400 bytes each, a kilobyte with attributes; a smaller
    /// cache costs a read of the store per update of a cold object.
    pub contexts: usize,
    /// Client operations in flight; more are not received from the connections (see
    /// [`crate::Osd::wants_client_work`]).
    pub client_ops: usize,
    /// Bytes of client operations in flight.
    pub client_bytes: u64,
    /// Objects erased in one step, of a PG that is no longer ours.
    pub erase_objects: usize,
    /// Objects that trimming and counting read in one step.
    pub page_objects: usize,
    /// The maximum number of objects in one answer to a listing.
    pub list_objects: usize,
    /// Omap entries in one part of an object that is pushed.
    pub push_entries: usize,
    /// Entries of a PG's metadata that are read at a time when the daemon starts.
    pub boot_entries: usize,
    /// Bytes of a PG's log, results of methods included; older entries are trimmed, even if a
    /// member is away.
    pub log_bytes: usize,
    /// Bytes of a message between OSDs about a PG's log, memory or objects; longer ones are sent in
    /// parts.
    pub message_bytes: usize,
    /// Bytes of operations that a PG remembers whose log entry is trimmed and whose client has not
    /// confirmed the answer.
    pub records_bytes: usize,
    /// Client instances that one PG remembers, and an eighth more: some 200 bytes each, in memory
    /// and in the store. An unanswered operation that a forgotten client sent before it was
    /// forgotten is refused as of unknown outcome (`pg/dedup.rs`).
    pub clients_remembered: usize,
    /// Bytes of answers that one PG remembers of operations that changed nothing.
    pub answered_bytes: usize,
    /// Messages that wait for a newer map.
    pub held_messages: usize,
    /// Map changes kept for peers that are behind.
    pub deltas_kept: usize,
}
impl Default for Limits {
    fn default() -> Self {
        Self {
            log_entries_min: 32,
            log_entries_max: 10_000,
            recovery_objects: 16,
            recovery_objects_total: 32,
            backfill_groups: 3,
            push_bytes: 1 << 20,
            scan_objects: 64,
            contexts: 1024,
            client_ops: 4096,
            client_bytes: 64 << 20,
            erase_objects: 64,
            page_objects: 256,
            list_objects: 1000,
            push_entries: 1000,
            boot_entries: 2000,
            log_bytes: 16 << 20,
            message_bytes: 1 << 20,
            records_bytes: 4 << 20,
            clients_remembered: 4096,
            answered_bytes: 4 << 20,
            held_messages: 10_000,
            deltas_kept: 500,
        }
    }
}
