//! Stories of whole daemons: most are the shortest trace of something that the simulator or a
//! review found, and their heads tell it.
//!
//! ```text
//!  aside          full members that stand aside
//!  answers        what clients hear and when
//!  backfills      who is filled, and who is not waited for
//!  classes        calls of classes
//!  class_sources  sources, versions and rights of classes
//!  class_time     long calls, and repeated ones
//!  clone_room     clones where space is short
//!  company        the rig of several daemons
//!  copies         copies of objects
//!  hollow         replicas that lack what they declare
//!  instances      maps and instances that a daemon accepts
//!  leases         reads and leases
//!  locks          locks
//!  memory         what is remembered of clients (F18)
//!  peering        which log is the measure
//!  recovery       recovery and backfill beside writes
//!  repair         bit rot and repair
//!  reserve        space and memory, and refusals
//!  rig            the rig of one daemon
//!  rollbacks      rollbacks, and locks with snapshots
//!  room           full members
//!  scenes         situations from which stories begin
//!  shares         operations that wait for one object
//!  single         the role in a cluster of one
//!  snapshots      snapshots
//!  transfers      objects and ranges, given and taken
//!  trimming       removed snapshots
//!  undone         updates that were undone
//!  watches        watches and notifies
//! ```
//! They look at private state, so they are unit tests of the crate (`src/lib.rs` names this file);
//! cargo does not compile folders of `tests/` by itself.

mod answers;
mod aside;
mod backfills;
mod class_sources;
mod class_time;
mod classes;
mod clone_room;
mod company;
mod copies;
mod hollow;
mod instances;
mod leases;
mod locks;
mod memory;
mod peering;
mod recovery;
mod repair;
mod reserve;
mod rig;
mod rollbacks;
mod room;
mod scenes;
mod shares;
mod single;
mod snapshots;
mod transfers;
mod trimming;
mod undone;
mod watches;
