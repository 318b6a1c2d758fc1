//! The cases, by class.

mod checksum;
mod lock;
mod log;
mod matrix;
mod numops;
mod queue;
mod refcount;
mod version;
mod zlog;

use crate::{Case, Host};

/// A case of a module's class: its guarantee, and the test of it.
type Promise = (&'static str, fn(&mut dyn Host));

pub fn all() -> Vec<Case> {
    let of = |class: &'static str, promises: &'static [Promise]| {
        promises.iter().map(move |(name, run)| Case {
            class,
            name,
            run: *run,
        })
    };
    of("checksum", checksum::CASES)
        .chain(of("lock", lock::CASES))
        .chain(of("log", log::CASES))
        .chain(of("matrix", matrix::CASES))
        .chain(of("numops", numops::CASES))
        .chain(of("queue", queue::CASES))
        .chain(of("refcount", refcount::CASES))
        .chain(of("version", version::CASES))
        .chain(of("zlog", zlog::CASES))
        .collect()
}
