//! What `fs check` says of what is left.

use super::world::{METADATA, layout};
use nacre_conformance::memory::Memory;
use nacre_mds::check::{Check, CheckConfig, Kind};
use nacre_types::{Name, ObjectId, PoolId};
use nacre_wire::fs::Stamp;

/// Asserts that directories, inodes and journal fit together, with the journal put over what
/// objects have. Clients that died, or were evicted, may have left data of files that no server has
/// made.
pub fn check(memory: &mut Memory, namespace: Name, ranks: u16) {
    let all: Vec<(PoolId, ObjectId)> = memory.all.keys().cloned().collect();
    let config = CheckConfig {
        namespace,
        pool: METADATA,
        layout: layout(),
        ranks,
        quick: false,
        journals: true,
        rebuild: false,
        dump: false,
        now: Stamp(1),
    };
    let list = |pool| all.iter().filter(|(of, _)| *of == pool).map(|(_, object)| object.clone()).collect();
    let report = Check::new(config).run(|operation| memory.perform(operation), list);
    let faults: Vec<String> = report
        .faults()
        .filter(|fault| fault.kind != Kind::DataOrphan)
        .map(|fault| format!("{}: {}: {}", fault.kind.name(), fault.place, fault.what))
        .collect();
    assert!(faults.is_empty(), "what is left does not fit together: {faults:#?}");
}
