//! Every planted bug of monitors is caught by its story. Run by `./x mutants`, with the feature `mutants`; one at a time, since the switch is one for all.
#![allow(missing_docs, dead_code, unused_imports, reason = "tests; of the harness only a part is used here")]

mod harness;
mod meta;
mod planted;

use nacre_mon::{Mutant, set_mutant};

fn main() -> std::process::ExitCode {
    let stories: [(Mutant, fn()); Mutant::ALL.len()] = [
        (Mutant::LeaseNumberReused, planted::numbers_of_leases_never_come_again),
        (Mutant::FenceLostInSnapshot, planted::a_snapshot_has_everything),
        (Mutant::LeaseLostInSnapshot, planted::a_snapshot_has_everything),
        (Mutant::CommandsLostInSnapshot, planted::a_snapshot_has_everything),
        (Mutant::StaleLeaderRead, planted::no_read_is_stale),
        (Mutant::WatchGap, planted::watches_have_no_gaps),
    ];
    assert!(Mutant::ALL.iter().all(|mutant| stories.iter().any(|(at, _)| at == mutant)), "each has a story");
    std::panic::set_hook(Box::new(|_| {}));
    let mut survived = Vec::new();
    for (mutant, story) in stories {
        set_mutant(None);
        assert!(std::panic::catch_unwind(story).is_ok(), "the story of {mutant:?} fails without it");
        set_mutant(Some(mutant));
        let caught = std::panic::catch_unwind(story).is_err();
        println!("{mutant:?}: {}", if caught { "caught" } else { "SURVIVED" });
        if !caught {
            survived.push(mutant);
        }
    }
    if survived.is_empty() {
        return std::process::ExitCode::SUCCESS;
    }
    println!("not caught: {survived:?}");
    std::process::ExitCode::FAILURE
}
