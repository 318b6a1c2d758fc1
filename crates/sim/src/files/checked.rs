//! Runs `fs check` on the final state.

use super::world::{METADATA, NAMESPACE, layout};
use nacre_conformance::memory::Memory;
use nacre_mds::check::{Check, CheckConfig, Kind, Report};
use nacre_types::{Name, ObjectId, PoolId};
use nacre_wire::fs::Stamp;

/// Asserts that directories, inodes and journal are consistent, with the journal applied on top of
/// the objects.
pub fn check(memory: &mut Memory, ranks: u16) {
    let report = look(memory, Check::new(config(ranks)));
    assert_eq!(faults_of(&report), [""; 0], "what is left fits together");
}

/// The configuration of a check for a file system with this many ranks.
pub fn config(ranks: u16) -> CheckConfig {
    CheckConfig {
        namespace: Name::from(NAMESPACE),
        pool: METADATA,
        layout: layout(),
        ranks,
        quick: false,
        journals: true,
        rebuild: false,
        dump: false,
        now: Stamp(1),
    }
}
/// Runs a check.
pub fn look(memory: &mut Memory, check: Check) -> Report {
    let all: Vec<(PoolId, ObjectId)> = memory.all.keys().cloned().collect();
    let list = |pool| {
        all.iter()
            .filter(|(of, _)| *of == pool)
            .map(|(_, object)| object.clone())
            .collect()
    };
    check.run(|operation| memory.perform(operation), list)
}
/// The faults found. Clients that died or were evicted may have left data of files that no server
/// has created.
pub fn faults_of(report: &Report) -> Vec<String> {
    let faults = report
        .faults()
        .filter(|fault| fault.kind != Kind::DataOrphan);
    faults
        .map(|fault| format!("{}: {}: {}", fault.kind.name(), fault.place, fault.what))
        .collect()
}
