//! Identifiers and quantities that every Nacre crate shares.
//!
//! Each number that crosses a crate border has a type of its own, with only the operations that are
//! meaningful for it: an [`Epoch`] has a successor, two [`Time`]s have a distance, an [`OsdId`] has
//! neither.
//!
//! * [`borders`]: counters of limits and rare paths;
//! * [`file`]: inodes, ranks, fragments of directories;
//! * [`id`]: identities (daemons, instances, pools, placement groups);
//! * [`name`]: object names;
//! * [`mod@planted`]: switches for bugs that tests must detect;
//! * [`random`]: numbers drawn from a seed;
//! * [`time`]: the host's clock as plain values;
//! * [`version`]: positions in the cluster's and a placement group's history.
#![forbid(unsafe_code)]

pub mod borders;
pub mod byte_queue;
pub mod file;
pub mod id;
pub mod name;
pub mod planted;
pub mod random;
pub mod time;
pub mod version;

pub use byte_queue::ByteQueue;
pub use file::{Frag, Ino, Rank};
pub use id::{ClientId, ClusterId, Entity, Instance, MonId, OsdId, PgId, PoolId, Shard};
pub use nacre_planted::planted;
pub use name::{Generation, Name, ObjectId, SnapId};
pub use random::SplitMix64;
pub use time::Time;
pub use version::{Epoch, Version};
