//! Every planted bug of a store is caught by its story. Run by `./x mutants`, with the feature
//! `mutants`; one at a time, since the switch is global.
#![allow(
    missing_docs,
    dead_code,
    unused_imports,
    reason = "tests; of what the tests share only a part is used here"
)]

mod crash;
mod planted;
mod rig;

use nacre_store::{Mutant, set_mutant};

/// The power cut at every step of a workload, without and with groups in one operation.
fn power_cuts() {
    for seed in [0, 1, 6] {
        crash::cut_everywhere(seed, 120, 1);
    }
}

fn earlier_life() {
    crash::an_earlier_life();
}

fn main() -> std::process::ExitCode {
    let stories: [(Mutant, fn()); Mutant::ALL.len()] = [
        (Mutant::LossUntold, planted::what_an_overwrite_loses_is_told),
        (
            Mutant::WriteBackUnderReader,
            planted::a_read_under_way_keeps_its_blocks,
        ),
        (
            Mutant::LooksAtFirstPart,
            planted::a_read_under_way_keeps_its_blocks,
        ),
        (
            Mutant::FreedUnderReader,
            planted::a_read_under_way_keeps_its_blocks,
        ),
        (
            Mutant::NewestReaderCounts,
            planted::a_read_under_way_keeps_its_blocks,
        ),
        (
            Mutant::LastReaderUncounted,
            planted::a_read_under_way_keeps_its_blocks,
        ),
        (
            Mutant::DirtyGroupsOfFirst,
            planted::runs_go_over_the_borders_of_allocation_groups,
        ),
        (
            Mutant::NearForgetsFirst,
            planted::runs_go_over_the_borders_of_allocation_groups,
        ),
        (
            Mutant::ReplayGroupsOfFirst,
            planted::runs_go_over_the_borders_of_allocation_groups,
        ),
        (
            Mutant::CancelForgotten,
            planted::what_was_freed_is_not_written_back,
        ),
        (
            Mutant::StallIgnored,
            planted::a_checkpoint_that_lasts_bounds_what_is_in_memory,
        ),
        (
            Mutant::QueueUnbounded,
            planted::a_checkpoint_that_lasts_bounds_what_is_in_memory,
        ),
        (
            Mutant::WeightsKept,
            planted::a_clone_without_room_is_refused,
        ),
        (
            Mutant::CloneWeighsNothing,
            planted::a_clone_without_room_is_refused,
        ),
        (
            Mutant::LookBeyondEndsAtWrap,
            planted::damage_just_before_the_wrap_is_no_end_of_the_log,
        ),
        (
            Mutant::LookBeyondShort,
            planted::damage_of_a_long_group_is_no_end_of_the_log,
        ),
        (Mutant::CommitBeforeFlush, power_cuts),
        (Mutant::BesideNotAwaited, power_cuts),
        (
            Mutant::EarlyUnflushed,
            planted::blocks_written_before_their_group_are_flushed_with_it,
        ),
        (Mutant::BesideUnverified, power_cuts),
        (Mutant::GivenBackVerified, power_cuts),
        (
            Mutant::EndUnmarked,
            planted::damage_at_the_end_of_a_log_at_rest_is_damage,
        ),
        (Mutant::NeedsIgnored, power_cuts),
        (Mutant::WaitingTakenInCheckpoint, power_cuts),
        (Mutant::DiscardTakenInCheckpoint, power_cuts),
        (Mutant::SettledNewer, power_cuts),
        (Mutant::TornGroupTrusted, power_cuts),
        (Mutant::EpochStays, earlier_life),
        (Mutant::OldHeadFirst, power_cuts),
        (Mutant::LeavingNotAsked, power_cuts),
        (Mutant::ReferencedFreed, power_cuts),
        (Mutant::SharedWrittenInPlace, power_cuts),
        (Mutant::ListNeverMore, power_cuts),
        (Mutant::SliceSkipsOne, power_cuts),
        (Mutant::CopyNotOverlaid, power_cuts),
    ];
    nacre_types::planted::prove(Mutant::ALL, &stories, set_mutant)
}
