//! To and from monitors; and the handshake that opens every connection.

use crate::map::{Address, Digest};
use crate::{wire_enum, wire_fields, wire_record};
use bytes::Bytes;
use nacre_types::{ClusterId, Entity, Epoch, Instance, MonId, Name, OsdId, PgId};

/// First frame of either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The cluster it belongs to; 0 for a client that does not know yet.
    pub cluster: ClusterId,
    /// Who speaks.
    pub from: Entity,
    /// Which life of it.
    pub instance: Instance,
    /// To whom it believes to speak; an address may have been reused.
    pub to: Option<Entity>,
    /// Features it can speak.
    pub supported: u64,
    /// Features it insists on.
    pub required: u64,
    /// Where it listens, if it does.
    pub address: Option<Address>,
    /// Proof of identity; empty until authentication exists.
    pub auth: Bytes,
    /// The client's name, for the rights that namespaces of metadata give; empty: it has none.
    /// Taken at its word until authentication exists.
    pub name: Name,
}
wire_record!(Hello version 2 compat 1 { cluster, from, instance, to, supported, required, address, auth } since 2 { name });

/// Ends a connection that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// For people: what is wrong and what to do.
    pub why: String,
    /// The process whose boot is refused: an answer may come late, to its successor. 0: whoever
    /// hears it.
    pub process: u64,
}
wire_record!(Refused version 2 compat 1 { why } since 2 { process });

/// Send me the map from here on, now and whenever it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe {
    /// What I have.
    pub have: Epoch,
    /// Its digest.
    pub digest: Digest,
    /// Once only.
    pub once: bool,
}
wire_record!(Subscribe version 1 compat 1 { have, digest, once });

/// A whole map.
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
    /// Newest epoch the sender knows.
    pub newest: Epoch,
    /// News that everybody who is told passes on: who was told first. (How: `osd::spread`.)
    pub root: Option<OsdId>,
}
wire_fields!(MapDeltas {
    deltas,
    newest,
    root
});

/// I have this map. Daemons tell the monitor they subscribe to, so that old epochs can go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapAck {
    /// Which.
    pub epoch: Epoch,
}
wire_fields!(MapAck { epoch });

/// Who leads the monitors, told to subscribed OSDs: a new leader knows nothing of their groups, and
/// gets everything with the next beacon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Led {
    /// The leader.
    pub leader: MonId,
    /// Its term: a leader that was elected again has forgotten what it knew.
    pub term: u64,
}
wire_record!(Led version 1 compat 1 { leader, term });

/// Are you there? From whoever has a session with a monitor and has heard nothing for a while: a
/// process that hangs keeps its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionPing {
    /// Counts the questions of one session.
    pub number: u64,
}
wire_record!(SessionPing version 1 compat 1 { number });

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionPong {
    /// The question's.
    pub number: u64,
    /// Whether it knows who leads the monitors; one that does not can neither carry anything out
    /// nor tell of a new map.
    pub led: bool,
}
wire_record!(SessionPong version 1 compat 1 { number, led });

/// An OSD asks to be let up. Repeated until the map says that this process is up.
///
/// It asks for an instance and does not bring one: the monitors grant the next number to this
/// process. A number that a daemon counts for itself can be taken twice (it goes on under a new one
/// in memory, is killed, and counts to the same one again), and then it is up at once in an
/// interval that it knows nothing of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    /// Which.
    pub osd: OsdId,
    /// The newest instance of this OSD that its store or the map it has seen names; 0 for a fresh
    /// store.
    pub instance: Instance,
    /// Where it listens.
    pub address: Address,
    /// Identity of its store.
    pub store: u128,
    /// What it speaks.
    pub features: u64,
    /// Device class for CRUSH, when it is not in the hierarchy yet.
    pub class: String,
    /// Capacity in bytes: its first CRUSH weight is that in TiB.
    pub capacity: u64,
    /// Host bucket for CRUSH, when it is not in the hierarchy yet.
    pub host: String,
    /// A random number of the process that asks, never 0: the instance is granted to it alone.
    pub process: u64,
}
wire_record!(Boot version 2 compat 2 { osd, instance, address, store, features, class, capacity, host } since 2 { process });

/// An OSD does not answer another (CEPH-47). Sent again while it lasts, and once with `alive` when
/// it does answer again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureReport {
    /// Who is silent.
    pub target: OsdId,
    /// Which life of it.
    pub instance: Instance,
    /// Who says so.
    pub reporter: OsdId,
    /// For how long, in milliseconds; the reporter's own late wake-ups are taken off.
    pub silent_ms: u64,
    /// Withdraws earlier reports.
    pub alive: bool,
    /// Its connection was refused: the process is gone.
    pub refused: bool,
    /// The target says so itself: it is shutting down, or its disk failed.
    pub itself: bool,
    /// With `itself`: it goes on, but its disk does not answer. With `alive`: the disk answers
    /// again.
    pub stalled: bool,
}
wire_record!(FailureReport version 2 compat 1 { target, instance, reporter, silent_ms, alive, refused, itself } since 2 { stalled });

/// A primary has peered: commit the activation of the interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgActivateRequest {
    /// Which group.
    pub pg: PgId,
    /// Which interval.
    pub interval: Epoch,
    /// Its complete members.
    pub members: Vec<OsdId>,
}
wire_fields!(PgActivateRequest {
    pg,
    interval,
    members
});

/// A primary asks for a temporary acting set, or for its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgTemporaryRequest {
    /// Which group.
    pub pg: PgId,
    /// The interval it sees.
    pub interval: Epoch,
    /// Who should act; empty: those that CRUSH says.
    pub acting: Vec<OsdId>,
}
wire_fields!(PgTemporaryRequest {
    pg,
    interval,
    acting
});

/// A group's state as its primary sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgReport {
    /// Which group.
    pub pg: PgId,
    /// The interval.
    pub interval: Epoch,
    /// Bits of [`pg_state`].
    pub state: u32,
    /// Objects.
    pub objects: u64,
    /// Bytes of data.
    pub bytes: u64,
    /// Copies that are missing or old.
    pub degraded: u64,
    /// Copies that are complete but in the wrong place.
    pub misplaced: u64,
    /// Objects of which no live member has the newest version.
    pub unfound: u64,
    /// Whom peering waits for.
    pub waits_for: Vec<OsdId>,
}
wire_record!(PgReport version 1 compat 1 {
    pg, interval, state, objects, bytes, degraded, misplaced, unfound, waits_for,
});

/// Bits of [`PgReport::state`].
pub mod pg_state {
    /// Finding out what the members have.
    pub const PEERING: u32 = 1;
    /// Serves.
    pub const ACTIVE: u32 = 2;
    /// Has as many complete members as the pool wants, in their places.
    pub const CLEAN: u32 = 4;
    /// Fewer members than the pool wants, or some miss objects.
    pub const DEGRADED: u32 = 8;
    /// Bringing members up to date by log.
    pub const RECOVERING: u32 = 16;
    /// Bringing members up to date by comparing contents.
    pub const BACKFILLING: u32 = 32;
    /// Members are not those that CRUSH says.
    pub const REMAPPED: u32 = 64;
    /// Cannot go on without a member that is down.
    pub const DOWN: u32 = 128;
    /// Fewer complete members than `min_size`.
    pub const UNDERSIZED: u32 = 256;
}

/// An OSD's figures, sent every few seconds and after changes; kept by the leader, not replicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beacon {
    /// Whose.
    pub osd: OsdId,
    /// Which life.
    pub instance: Instance,
    /// Capacity in bytes.
    pub total: u64,
    /// Of which used.
    pub used: u64,
    /// Groups it is primary of; only those that changed since the last beacon unless `all`.
    pub pgs: Vec<PgReport>,
    /// Whether `pgs` is complete.
    pub all: bool,
    /// Operations that have waited for long, for people.
    pub slow: Vec<String>,
    /// What is wrong with the device, for people: it is slow or hangs. Empty: nothing.
    pub device: String,
    /// What keeps the store from using all of its space, for people: its host's file system has
    /// less. Empty: nothing.
    pub space: String,
    /// It has lately had no room for what recovery or backfill brings; `false` before version 3.
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
    /// From the request.
    pub token: u64,
    /// One line for people: what is wrong and what to do. None is success.
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

/// How bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Of interest when looking for something else.
    Debug {},
    /// Normal.
    Info {},
    /// Somebody should look.
    Warn {},
    /// Something failed.
    Error {},
}
wire_enum!(Severity { 1 => Debug {}, 2 => Info {}, 3 => Warn {}, 4 => Error {} });

/// A line for the cluster log; the monitors drop repetitions by sender, instance and number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Who says it.
    pub from: Entity,
    /// Which life.
    pub instance: Instance,
    /// Dense per life.
    pub number: u64,
    /// How bad.
    pub severity: Severity,
    /// What.
    pub text: String,
    /// What it is about, if whoever else says so says nothing new: many daemons meet one fault of
    /// a program, each with other data in its text. The cluster log keeps the first line of a
    /// key only. Empty: every line counts.
    pub once: String,
}
// A monitor that kept what the others drop would number the lines otherwise: it must stop instead.
wire_record!(LogLine version 2 compat 2 { from, instance, number, severity, text } since 2 { once });

/// Lines for the cluster log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterLog {
    /// In order.
    pub lines: Vec<LogLine>,
}
wire_fields!(ClusterLog { lines });

/// A monitor that does not lead passes a request on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Who asked.
    pub from: Entity,
    /// Which monitor has the connection.
    pub via: MonId,
    /// The forwarding monitor's number for it.
    pub token: u64,
    /// Type number of the request.
    pub kind: u16,
    /// Its compat version.
    pub compat: u8,
    /// Its meta section.
    pub meta: Bytes,
    /// The name that the client gave.
    pub name: Name,
}
wire_record!(Forward version 2 compat 1 { from, via, token, kind, compat, meta } since 2 { name });

/// The leader's answer to a forwarded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardReply {
    /// From the request.
    pub token: u64,
    /// Type number of the answer.
    pub kind: u16,
    /// Its compat version.
    pub compat: u8,
    /// Its meta section.
    pub meta: Bytes,
}
wire_record!(ForwardReply version 1 compat 1 { token, kind, compat, meta });
