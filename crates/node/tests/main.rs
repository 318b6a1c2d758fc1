//! Real clusters in real folders. No test depends on how fast anything is; waits are bounded.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests of a host"
)]

mod classes;
mod conformance;
mod damage;
mod embedded;
mod files;
mod folder;
mod full;
mod network;
mod options;
