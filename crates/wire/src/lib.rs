//! The protocol between Nacre's daemons and clients, to the byte.
//!
//! * [`codec`]: values as bytes and back; versioned records;
//! * [`measure`]: the encoded length of a value, and whether a reader accepts it;
//! * [`frame`]: messages on a byte stream, with checksums, without copying payloads;
//! * [`record`]: an update of an object, as replicas, their logs and resends hold it;
//! * [`msg`]: the messages;
//! * [`fs`]: the parts of a file system;
//! * [`map`]: the cluster map, its deltas, and the placement derived from them;
//! * [`meta`]: the semantics of transactions on service metadata.
//!
//! Invariants: decoding is total and trusts no length; every message and record carries its
//! version, and an older or newer program either reads it or reports that it cannot
//! (`tests/golden/` keeps the bytes of every version); the same map and delta give the same next
//! map everywhere. `docs/formats/wire.md` describes the bytes.
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
pub use record::{Record, RecordFields, RecordView};
