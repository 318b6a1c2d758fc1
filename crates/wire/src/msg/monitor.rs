//! Messages to and from monitors, and the handshake that opens every connection.

use crate::map::{Address, Digest};
use crate::{wire_enum, wire_fields, wire_record};
use bytes::Bytes;
use nacre_types::{ClusterId, Entity, Epoch, Instance, MonId, Name, OsdId, PgId};

/// The first frame that each side sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The sender's cluster; 0 for a client that does not know it yet.
    pub cluster: ClusterId,
    /// The sender.
    pub from: Entity,
    /// The sender's instance.
    pub instance: Instance,
    /// The receiver that the sender expects; an address may have been reused.
    pub to: Option<Entity>,
    /// Features that the sender supports.
    pub supported: u64,
    /// Features that the sender requires.
    pub required: u64,
    /// Where the sender listens, if it does.
    pub address: Option<Address>,
    /// Proof of identity; empty until authentication exists.
    pub auth: Bytes,
    /// The client's name, which the rights in metadata namespaces refer to; empty: none. Unverified
    /// until authentication exists.
    pub name: Name,
}
wire_record!(Hello version 2 compat 1 { cluster, from, instance, to, supported, required, address, auth } since 2 { name });

/// Refuses a connection or a boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Human-readable: what is wrong and what to do.
    pub why: String,
    /// The process whose boot is refused, because the answer may arrive late, at its successor. 0:
    /// any process.
    pub process: u64,
}
wire_record!(Refused version 2 compat 1 { why } since 2 { process });

/// Requests the map from here on, now and whenever it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe {
    /// The epoch that the sender has.
    pub have: Epoch,
    /// Its digest.
    pub digest: Digest,
    /// Whether to send it only once.
    pub once: bool,
}
wire_record!(Subscribe version 1 compat 1 { have, digest, once });

/// A full map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapFull {
    /// An encoded [`crate::map::ClusterMap`].
    pub map: Bytes,
}
wire_fields!(MapFull { map });

/// Consecutive changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapDeltas {
    /// Encoded [`crate::map::MapDelta`]s, ascending without gaps.
    pub deltas: Vec<Bytes>,
    /// Newest epoch that the sender knows.
    pub newest: Epoch,
    /// For deltas that receivers pass on: the first receiver. (How: `osd::spread`.)
    pub root: Option<OsdId>,
}
wire_fields!(MapDeltas {
    deltas,
    newest,
    root
});

/// The sender has this map. Daemons tell the monitor they subscribe to, so that old epochs can be
/// dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapAck {
    /// The epoch.
    pub epoch: Epoch,
}
wire_fields!(MapAck { epoch });

/// Tells subscribed OSDs which monitor leads: a new leader knows nothing of their PGs and gets a
/// complete report with the next beacon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Led {
    /// The leader.
    pub leader: MonId,
    /// Its term: a re-elected leader has forgotten what it knew.
    pub term: u64,
}
wire_record!(Led version 1 compat 1 { leader, term });

/// A ping, sent by a client or daemon that has heard nothing from its monitor for a while: a hung
/// process keeps its connections open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionPing {
    /// Counts the pings of one session.
    pub number: u64,
}
wire_record!(SessionPing version 1 compat 1 { number });

/// The answer to a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionPong {
    /// The ping's number.
    pub number: u64,
    /// Whether the monitor knows a leader; without one it can neither execute requests nor report
    /// new maps.
    pub led: bool,
}
wire_record!(SessionPong version 1 compat 1 { number, led });

/// An OSD asks to be marked up. Repeated until the map shows this process as up.
///
/// It asks for an instance instead of choosing one: the monitors grant the next number to this
/// process. A number that a daemon counts itself can be used twice (it continues under a new number
/// in memory, is killed, and counts to the same number again); it would then be up at once in an
/// interval that it knows nothing of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    /// The OSD.
    pub osd: OsdId,
    /// The newest instance of this OSD named by its store or by a map that it has seen; 0 for a new
    /// store.
    pub instance: Instance,
    /// Where it listens.
    pub address: Address,
    /// Identity of its store.
    pub store: u128,
    /// Bits of the features it supports.
    pub features: u64,
    /// Device class for CRUSH, if the OSD is not in the hierarchy yet.
    pub class: String,
    /// Capacity in bytes: its initial CRUSH weight is the capacity in TiB.
    pub capacity: u64,
    /// Host bucket for CRUSH, if the OSD is not in the hierarchy yet.
    pub host: String,
    /// A random number of the requesting process, never 0: the instance is granted to that process
    /// alone.
    pub process: u64,
}
wire_record!(Boot version 2 compat 2 { osd, instance, address, store, features, class, capacity, host } since 2 { process });

/// An OSD does not answer another (CEPH-47). Repeated while that lasts; sent once with `alive` when
/// it answers again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureReport {
    /// The silent OSD.
    pub target: OsdId,
    /// Its instance.
    pub instance: Instance,
    /// The reporting OSD.
    pub reporter: OsdId,
    /// For how many milliseconds, minus the delays of the reporter's own wake-ups.
    pub silent_ms: u64,
    /// Withdraws earlier reports.
    pub alive: bool,
    /// Its connection was refused: the process is gone.
    pub refused: bool,
    /// The target reports itself: it is shutting down, or its disk failed.
    pub itself: bool,
    /// With `itself`: the OSD continues, but its disk does not respond. With `alive`: the disk
    /// responds again.
    pub stalled: bool,
}
wire_record!(FailureReport version 2 compat 1 { target, instance, reporter, silent_ms, alive, refused, itself } since 2 { stalled });

/// A primary has peered and asks the monitors to commit the activation of the interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgActivateRequest {
    /// The PG.
    pub pg: PgId,
    /// The interval.
    pub interval: Epoch,
    /// Its complete members.
    pub members: Vec<OsdId>,
}
wire_fields!(PgActivateRequest {
    pg,
    interval,
    members
});

/// A primary requests a temporary acting set, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgTemporaryRequest {
    /// The PG.
    pub pg: PgId,
    /// The primary's current interval.
    pub interval: Epoch,
    /// The requested acting set; empty: the one chosen by CRUSH.
    pub acting: Vec<OsdId>,
}
wire_fields!(PgTemporaryRequest {
    pg,
    interval,
    acting
});

/// A PG's state as seen by its primary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgReport {
    /// The PG.
    pub pg: PgId,
    /// The interval.
    pub interval: Epoch,
    /// Bits of [`pg_state`].
    pub state: u32,
    /// Number of objects.
    pub objects: u64,
    /// Bytes of data.
    pub bytes: u64,
    /// Replicas of objects that are missing or outdated.
    pub degraded: u64,
    /// Replicas of objects that are complete but not where CRUSH places them.
    pub misplaced: u64,
    /// Objects whose newest version no live member has.
    pub unfound: u64,
    /// OSDs that peering waits for.
    pub waits_for: Vec<OsdId>,
}
wire_record!(PgReport version 1 compat 1 {
    pg, interval, state, objects, bytes, degraded, misplaced, unfound, waits_for,
});

/// Bits of [`PgReport::state`].
pub mod pg_state {
    /// Collecting what the members have.
    pub const PEERING: u32 = 1;
    /// Serves.
    pub const ACTIVE: u32 = 2;
    /// As many complete members as the pool wants, where CRUSH places them.
    pub const CLEAN: u32 = 4;
    /// Fewer members than the pool wants, or some lack objects.
    pub const DEGRADED: u32 = 8;
    /// Bringing members up to date by log.
    pub const RECOVERING: u32 = 16;
    /// Bringing members up to date by comparing contents.
    pub const BACKFILLING: u32 = 32;
    /// The members are not those that CRUSH chose.
    pub const REMAPPED: u32 = 64;
    /// Cannot continue without a member that is down.
    pub const DOWN: u32 = 128;
    /// Fewer complete members than `min_size`.
    pub const UNDERSIZED: u32 = 256;
}

/// An OSD's statistics, sent every few seconds and after changes; kept by the leader, not
/// replicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beacon {
    /// The OSD.
    pub osd: OsdId,
    /// Its instance.
    pub instance: Instance,
    /// Capacity in bytes.
    pub total: u64,
    /// Bytes used.
    pub used: u64,
    /// PGs whose primary it is; only those changed since the last beacon unless `all`.
    pub pgs: Vec<PgReport>,
    /// Whether `pgs` is complete.
    pub all: bool,
    /// Operations that have waited for long, human-readable.
    pub slow: Vec<String>,
    /// What is wrong with the device, human-readable: it is slow or hangs. Empty: nothing.
    pub device: String,
    /// What keeps the store from using all of its space, human-readable: its host's file system has
    /// less. Empty: nothing.
    pub space: String,
    /// Whether it recently lacked space for recovery or backfill; `false` before version 3.
    pub no_room: bool,
}
wire_record!(Beacon version 3 compat 1 { osd, instance, total, used, pgs, all, slow } since 2 { device, space } since 3 { no_room });

/// A command line's request, as JSON: `{"command": "osd out", …}`. `docs/formats/commands.md` lists
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Chosen by the sender, returned in the reply.
    pub token: u64,
    /// JSON.
    pub request: String,
}
wire_record!(Command version 1 compat 1 { token, request });

/// The answer, as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandReply {
    /// Copied from the request.
    pub token: u64,
    /// One human-readable line: what is wrong and what to do. `None` is success.
    pub error: Option<String>,
    /// JSON.
    pub reply: String,
}
wire_record!(CommandReply version 1 compat 1 { token, error, reply });

/// A message of the consensus protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaftStep {
    /// Encoded by the consensus library.
    pub message: Bytes,
}
wire_fields!(RaftStep { message });

/// Severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Useful when investigating something else.
    Debug {},
    /// Normal.
    Info {},
    /// An operator should look at it.
    Warn {},
    /// Something failed.
    Error {},
}
wire_enum!(Severity { 1 => Debug {}, 2 => Info {}, 3 => Warn {}, 4 => Error {} });

/// A line for the cluster log; the monitors drop repetitions by sender, instance and number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The sender.
    pub from: Entity,
    /// The sender's instance.
    pub instance: Instance,
    /// Consecutive within the instance.
    pub number: u64,
    /// Its severity.
    pub severity: Severity,
    /// The line.
    pub text: String,
    /// Deduplication key: many daemons may report the same fault of a program, each with other data
    /// in its text. The cluster log keeps only the first line with a key. Empty: every line is
    /// kept.
    pub once: String,
}
// A monitor that kept lines which others drop would number them differently: it must stop instead.
wire_record!(LogLine version 2 compat 2 { from, instance, number, severity, text } since 2 { once });

/// Lines for the cluster log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterLog {
    /// In order.
    pub lines: Vec<LogLine>,
}
wire_fields!(ClusterLog { lines });

/// A monitor that is not the leader forwards a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The sender of the request.
    pub from: Entity,
    /// The monitor that has the connection.
    pub via: MonId,
    /// The forwarding monitor's number for the request.
    pub token: u64,
    /// Type number of the request.
    pub kind: u16,
    /// Its compat version.
    pub compat: u8,
    /// Its meta section.
    pub meta: Bytes,
    /// The client's name.
    pub name: Name,
}
wire_record!(Forward version 2 compat 1 { from, via, token, kind, compat, meta } since 2 { name });

/// The leader's answer to a forwarded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardReply {
    /// Copied from the request.
    pub token: u64,
    /// Type number of the answer.
    pub kind: u16,
    /// Its compat version.
    pub compat: u8,
    /// Its meta section.
    pub meta: Bytes,
}
wire_record!(ForwardReply version 1 compat 1 { token, kind, compat, meta });
