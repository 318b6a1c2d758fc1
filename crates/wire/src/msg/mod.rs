//! Messages between daemons and clients.
//!
//! Each message has a type number, a version and a compat version in its frame's header. Its fields
//! are the frame's *meta* section; bulk data is the frame's *payload*, which is never re-encoded
//! between socket and disk. The meta section has the lengths of the payload's pieces.
//!
//! * [`client`]: operations on objects, clients ⇄ OSDs; [`check`]: whether they are valid;
//!   [`watch`], [`lock`]: watches of and locks on objects;
//! * [`replication`]: updates, heartbeats and leases, peering, recovery, OSDs ⇄ OSDs;
//! * [`fs`]: file systems, clients ⇄ the servers of their ranks;
//! * [`meta`]: service metadata, clients ⇄ monitors;
//! * [`monitor`]: maps, boots, failure reports, commands, daemons and clients ⇄ monitors.

pub mod check;
pub mod client;
pub mod fs;
pub mod lock;
pub mod meta;
pub mod monitor;
pub mod part;
pub mod replication;
pub mod snap;
pub mod transaction;
pub mod watch;

use crate::codec::{Malformed, Reader, Wire};
use bytes::Bytes;

/// Bulk data in the pieces in which it arrived or was read. Cloning shares the bytes.
pub type Payload = Vec<Bytes>;

/// Total length of all pieces.
#[must_use]
pub fn payload_len(payload: &[Bytes]) -> usize {
    payload.iter().map(Bytes::len).sum()
}

/// Splits a payload into parts of given lengths, sharing the bytes.
pub struct PayloadCursor {
    pieces: std::collections::VecDeque<Bytes>,
}

impl PayloadCursor {
    /// Starts at the first byte.
    #[must_use]
    pub fn new(payload: Payload) -> Self {
        Self {
            pieces: payload.into(),
        }
    }
    /// The next `length` bytes.
    ///
    /// # Errors
    /// [`Malformed::Length`] when the payload is shorter than its meta section announces.
    pub fn take(&mut self, length: usize) -> Result<Payload, Malformed> {
        if length > 0 && self.pieces.len() == 1 && self.pieces[0].len() == length {
            // Nearly always: the list is handed on as it is.
            return Ok(std::mem::take(&mut self.pieces).into());
        }
        let mut taken = Payload::with_capacity(usize::from(length > 0));
        let mut missing = length;
        while missing > 0 {
            let Some(mut piece) = self.pieces.pop_front() else {
                return Err(Malformed::Length("payload"));
            };
            if piece.len() > missing {
                self.pieces.push_front(piece.split_off(missing));
            }
            missing -= piece.len();
            if !piece.is_empty() {
                taken.push(piece);
            }
        }
        Ok(taken)
    }
}

macro_rules! messages {
    ($( $(#[$doc:meta])* $number:literal v $version:literal compat $compat:literal $name:ident($module:ident::$body:ident) $($payload:ident)?; )*) => {
        /// Any message.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each variant's body type is documented")]
        pub enum Message {
            $( $(#[$doc])* $name($module::$body $(, messages!(@type $payload))?), )*
        }

        impl Message {
            /// Type number, version, compat version.
            #[must_use]
            pub const fn kind(&self) -> (u16, u8, u8) {
                match self { $( Self::$name(..) => ($number, $version, $compat), )* }
            }
            /// Its name, for logs and counters.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self { $( Self::$name(..) => stringify!($name), )* }
            }
            /// Appends the meta section.
            pub fn put_meta(&self, out: &mut Vec<u8>) {
                match self { $( Self::$name(body, ..) => body.put(out), )* }
            }
            /// Length of the meta section in bytes.
            #[must_use]
            pub fn meta_len(&self) -> u64 {
                let mut measure = $crate::Measure::default();
                match self { $( Self::$name(body, ..) => body.measure(&mut measure), )* }
                measure.length()
            }
            /// The bulk data.
            #[must_use]
            pub fn payload(&self) -> &[Bytes] {
                match self { $( messages!(@pattern $name payload $($payload)?) => messages!(@payload payload $($payload)?), )* }
            }
            /// Decodes a message from a frame's parts.
            ///
            /// # Errors
            /// [`Malformed`].
            pub fn decode(kind: u16, compat: u8, meta: &[u8], payload: Payload) -> Result<Self, Malformed> {
                match kind {
                    $( $number => {
                        if compat > $version {
                            return Err(Malformed::TooNew { what: stringify!($name), needs: compat, knows: $version });
                        }
                        let mut reader = Reader::new(meta);
                        let body = <$module::$body as Wire>::get(&mut reader)?;
                        reader.finish(stringify!($name))?;
                        messages!(@build $name body payload $($payload)?)
                    } )*
                    _ => Err(Malformed::Tag("message", u32::from(kind))),
                }
            }
            /// Every type number with its name, version and compat version, for golden tests and
            /// documents.
            pub const KINDS: &'static [(u16, &'static str, u8, u8)] = &[$( ($number, stringify!($name), $version, $compat), )*];
        }
    };
    (@type payload) => { Payload };
    (@pattern $name:ident $p:ident payload) => { Self::$name(_, $p) };
    (@pattern $name:ident $p:ident) => { Self::$name(_) };
    (@payload $p:ident payload) => { $p };
    (@payload $p:ident) => { &[] };
    (@build $name:ident $body:ident $p:ident payload) => { Ok(Self::$name($body, $p)) };
    (@build $name:ident $body:ident $p:ident) => {
        if payload_len(&$p) == 0 { Ok(Self::$name($body)) } else { Err(Malformed::Trailing(stringify!($name))) }
    };
}

messages! {
    1 v 2 compat 1 Hello(monitor::Hello);
    2 v 2 compat 1 Refused(monitor::Refused);

    10 v 2 compat 1 OpRequest(client::OpRequest) payload;
    11 v 1 compat 1 OpReply(client::OpReply) payload;
    12 v 1 compat 1 OpBlocked(client::OpBlocked);
    13 v 1 compat 1 OpApplied(client::OpApplied);
    14 v 1 compat 1 WatchNotify(watch::WatchNotify) payload;
    15 v 1 compat 1 NotifyAck(watch::NotifyAck) payload;
    16 v 1 compat 1 WatchPing(watch::WatchPing);
    17 v 1 compat 1 WatchPong(watch::WatchPong);

    // 20, 21, 27 to 29 were used before records existed (`record.rs`).
    22 v 1 compat 1 Ping(replication::Ping);
    23 v 2 compat 1 Pong(replication::Pong);
    24 v 1 compat 1 PeerQuery(replication::PeerQuery);
    25 v 2 compat 1 PeerInfo(replication::PeerInfo);
    26 v 1 compat 1 LogQuery(replication::LogQuery);
    30 v 1 compat 1 Pull(replication::Pull);
    31 v 2 compat 1 Push(replication::Push) payload;
    32 v 2 compat 1 PushAck(replication::PushAck);
    33 v 1 compat 1 ScanQuery(replication::ScanQuery);
    34 v 1 compat 1 ScanReply(replication::ScanReply);
    35 v 1 compat 1 Progress(replication::Progress);
    36 v 1 compat 1 ProgressAck(replication::ProgressAck);
    37 v 1 compat 1 Discard(replication::Discard);
    38 v 1 compat 1 ReplicateApplied(replication::ReplicateApplied);
    39 v 1 compat 1 Part(replication::Part);
    40 v 1 compat 1 ReplicateAcks(replication::ReplicateAcks);
    41 v 1 compat 1 Replicate(replication::Replicate) payload;
    42 v 1 compat 1 LogReply(replication::LogReply);
    43 v 1 compat 1 Adopt(replication::Adopt);
    44 v 1 compat 1 AdoptAck(replication::AdoptAck);

    50 v 1 compat 1 Subscribe(monitor::Subscribe);
    51 v 1 compat 1 MapFull(monitor::MapFull);
    52 v 1 compat 1 MapDeltas(monitor::MapDeltas);
    53 v 1 compat 1 Boot(monitor::Boot);
    54 v 1 compat 1 FailureReport(monitor::FailureReport);
    55 v 1 compat 1 PgActivateRequest(monitor::PgActivateRequest);
    56 v 1 compat 1 PgTemporaryRequest(monitor::PgTemporaryRequest);
    57 v 1 compat 1 Beacon(monitor::Beacon);
    58 v 1 compat 1 Command(monitor::Command);
    59 v 1 compat 1 CommandReply(monitor::CommandReply);
    60 v 1 compat 1 Raft(monitor::RaftStep);
    61 v 1 compat 1 ClusterLog(monitor::ClusterLog);
    62 v 2 compat 1 Forward(monitor::Forward);
    63 v 1 compat 1 ForwardReply(monitor::ForwardReply);
    64 v 1 compat 1 MapAck(monitor::MapAck);
    65 v 1 compat 1 Led(monitor::Led);
    66 v 1 compat 1 SessionPing(monitor::SessionPing);
    67 v 1 compat 1 SessionPong(monitor::SessionPong);

    70 v 1 compat 1 MetaRequest(meta::MetaRequest);
    71 v 1 compat 1 MetaReply(meta::MetaReply);
    72 v 1 compat 1 MetaWatch(meta::MetaWatch);
    73 v 1 compat 1 MetaCancel(meta::MetaCancel);
    74 v 1 compat 1 MetaEvents(meta::MetaEvents) payload;
    75 v 1 compat 1 MetaWatchEnded(meta::MetaWatchEnded);

    80 v 1 compat 1 FsSession(fs::FsSession);
    81 v 1 compat 1 FsWelcome(fs::FsWelcome);
    82 v 1 compat 1 FsAway(fs::FsAway);
    83 v 1 compat 1 FsCaughtUp(fs::FsCaughtUp);
    84 v 1 compat 1 FsLeave(fs::FsLeave);
    85 v 1 compat 1 FsRequest(fs::FsRequest);
    86 v 1 compat 1 FsReply(fs::FsReply);
    87 v 1 compat 1 FsSafe(fs::FsSafe);
    88 v 1 compat 1 FsEvicted(fs::FsEvicted);
    89 v 1 compat 1 FsLocked(fs::FsLocked);
    90 v 1 compat 1 FsForget(fs::FsForget);
    91 v 1 compat 1 FsForgot(fs::FsForgot);
    92 v 1 compat 1 FsPing(fs::FsPing);
    93 v 1 compat 1 FsPong(fs::FsPong);
    94 v 1 compat 1 FsCaps(fs::FsCaps);
    95 v 1 compat 1 FsSync(fs::FsSync);
    96 v 1 compat 1 FsTransaction(transaction::FsTransaction);
    97 v 1 compat 1 FsInquire(fs::FsInquire);
    98 v 1 compat 1 FsFigures(fs::FsFigures);
}
