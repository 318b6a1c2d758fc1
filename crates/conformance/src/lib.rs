//! One suite for every implementation of [`ObjectCluster`](nacre_client::ObjectCluster): in this
//! process, over the network, on Ceph (DESIGN §9).
//!
//! ```text
//!  crates/node/tests   embedded, network ─┐
//!                                         ├─▶ run(make, pool) ─▶ every case, each with objects of its own
//!  crates/rados/tests  Ceph ──────────────┘
//! ```
//!
//! A case says which capabilities it needs. Where an implementation has not got them, the case's
//! other half runs: it must refuse, with a word on why, and nothing may have happened. Cases wait
//! no longer than [`bench::WAIT_MAX`] for anything, and judge no times.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "waits are bounded by the clock")]

pub mod bench;
mod cases;
pub mod memory;

pub use bench::Bench;

use nacre_client::{Capabilities, Driven};
use nacre_types::PoolId;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One thing that every implementation must do, or say that it cannot.
pub struct Case {
    /// In words.
    pub name: &'static str,
    /// What it takes.
    pub needs: fn(&Capabilities) -> bool,
    /// With that.
    pub with: fn(&mut Bench<'_>),
    /// Without.
    pub without: Option<fn(&mut Bench<'_>)>,
}

/// All cases, in an order that begins with the simple.
#[must_use]
pub fn cases() -> Vec<Case> {
    cases::all()
}

/// Runs all cases on a pool whose objects are theirs.
///
/// # Panics
/// When one fails, after all have run; with the names of those that did.
pub fn run(make: &dyn Fn() -> Box<dyn Driven>, pool: PoolId) {
    let wanted = std::env::var("NACRE_CONFORMANCE").unwrap_or_default();
    let mut failed = Vec::new();
    for case in cases()
        .into_iter()
        .filter(|case| case.name.contains(&wanted))
    {
        let mut driven = make();
        let capable = (case.needs)(&driven.objects().capabilities());
        let chosen = if capable {
            Some(case.with)
        } else {
            case.without
        };
        let Some(run) = chosen else {
            println!("  -       {} (not among its capabilities)", case.name);
            continue;
        };
        let mut bench = Bench::new(driven, make, pool, case.name);
        let result = catch_unwind(AssertUnwindSafe(|| run(&mut bench)));
        let how = if capable {
            ""
        } else {
            " (refused, as it should be)"
        };
        println!(
            "  {}  {}{how}",
            if result.is_ok() { "ok    " } else { "FAILED" },
            case.name
        );
        if result.is_err() {
            failed.push(case.name);
        }
    }
    assert!(
        failed.is_empty(),
        "{} cases failed: {}",
        failed.len(),
        failed.join("; ")
    );
}
