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

use crate::Case;

pub fn all() -> Vec<Case> {
    let parts: [&[(&str, fn(&mut dyn crate::Host))]; 9] = [
        checksum::CASES,
        lock::CASES,
        log::CASES,
        matrix::CASES,
        numops::CASES,
        queue::CASES,
        refcount::CASES,
        version::CASES,
        zlog::CASES,
    ];
    let classes = ["checksum", "lock", "log", "matrix", "numops", "queue", "refcount", "version", "zlog"];
    let of = |(class, part): (&'static str, &'static [(&'static str, fn(&mut dyn crate::Host))])| {
        part.iter().map(move |(name, run)| Case { class, name, run: *run })
    };
    classes.into_iter().zip(parts).flat_map(of).collect()
}
