//! Real clusters in real directories. No test depends on timing; waits are bounded.
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
