//! Every planted bug of monitors is detected by its story. Run by `./x mutants` with the feature
//! `mutants`; one at a time, since the switch is global.
#![allow(
    missing_docs,
    dead_code,
    unused_imports,
    reason = "tests; of the harness only a part is used here"
)]

mod harness;
mod meta;
mod planted;

use nacre_mon::{Mutant, set_mutant};

fn main() -> std::process::ExitCode {
    let stories: [(Mutant, fn()); Mutant::ALL.len()] = [
        (
            Mutant::LeaseNumberReused,
            planted::numbers_of_leases_never_come_again,
        ),
        (
            Mutant::FenceLostInSnapshot,
            planted::a_snapshot_has_everything,
        ),
        (
            Mutant::LeaseLostInSnapshot,
            planted::a_snapshot_has_everything,
        ),
        (
            Mutant::CommandsLostInSnapshot,
            planted::a_snapshot_has_everything,
        ),
        (Mutant::StaleLeaderRead, planted::no_read_is_stale),
        (Mutant::WatchGap, planted::watches_have_no_gaps),
    ];
    nacre_types::planted::prove(Mutant::ALL, &stories, set_mutant)
}
