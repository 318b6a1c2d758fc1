//! One suite for every implementation of [`ObjectCluster`](nacre_client::ObjectCluster): in this
//! process, over the network, on Ceph (DESIGN §9).
//!
//! ```text
//!  crates/node/tests   embedded, network ─┐
//!                                         ├─▶ run(make, pool) ─▶ every case, each with objects of its own
//!  crates/rados/tests  Ceph ──────────────┘
//! ```
//!
//! A case declares the capabilities it needs. If an implementation lacks them, the other half of
//! the case runs: the implementation must refuse with a reason, and nothing may have changed. Cases
//! wait at most [`bench::WAIT_MAX`] for anything, and do not judge times.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "waits are bounded by the clock")]

pub mod bench;
mod cases;
pub mod memory;

pub use bench::Bench;

use nacre_client::{Capabilities, Driven};
use nacre_types::PoolId;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One behaviour that every implementation must have, or refuse.
pub struct Case {
    /// Description.
    pub name: &'static str,
    /// Whether the capabilities suffice.
    pub needs: fn(&Capabilities) -> bool,
    /// Runs with them.
    pub with: fn(&mut Bench<'_>),
    /// Runs without them.
    pub without: Option<fn(&mut Bench<'_>)>,
}

/// All cases, simple ones first.
#[must_use]
pub fn cases() -> Vec<Case> {
    cases::all()
}

/// Runs all cases on a pool reserved for them.
///
/// # Panics
/// When a case fails, after all have run; with the names of the failed ones.
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
