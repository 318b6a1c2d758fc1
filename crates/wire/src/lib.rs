//! What Nacre's daemons and clients say to each other, to the byte.
//!
//! * [`codec`]: values as bytes and back; versioned records;
//! * [`measure`]: how long a value's bytes are, and whether a reader takes them;
//! * [`frame`]: messages on a byte stream, checksummed, payload uncopied;
//! * [`record`]: an update of an object, as members, their logs and resends have it;
//! * [`msg`]: the messages;
//! * [`fs`]: what a file system consists of;
//! * [`map`]: the cluster map, its deltas, and the placement derived from them;
//! * [`meta`]: what transactions on service metadata mean.
//!
//! Invariants: decoding is total and trusts no length; every message and record carries its version
//! and an older or newer program reads it or says that it cannot (`tests/golden/` keeps the bytes
//! of every version); the same map and delta give the same next map everywhere.
//! `docs/formats/wire.md` describes the bytes.
#![forbid(unsafe_code)]

pub mod codec;
pub mod frame;
pub mod fs;
pub mod map;
pub mod measure;
pub mod meta;
pub mod msg;
pub mod record;

pub use codec::{Malformed, Wire};
pub use frame::{Frame, FrameError, FrameReader, META_LEN_MAX, PAYLOAD_LEN_MAX, checksum};
pub use map::{ClusterMap, MapDelta};
pub use measure::Measure;
pub use msg::{Message, Payload};
pub use record::{Record, RecordFields};
