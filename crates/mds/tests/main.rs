//! The namespace of a rank, against a model of POSIX.

mod across;
mod capabilities;
mod checking;
mod crash;
mod delegating;
mod evicting;
mod following;
mod full;
mod locks;
mod objects;
mod posix;
mod quotas;
mod rig;
mod rights;
mod sharing;
mod takeover;
