//! The namespace of one rank, against a model of POSIX.

mod capabilities;
mod checking;
mod crash;
mod evicting;
mod locks;
mod objects;
mod posix;
mod rig;
mod rights;
mod sharing;
