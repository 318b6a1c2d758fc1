//! Every planted bug of a client is detected by its story. Run by `./x mutants` with the feature
//! `mutants`; one at a time, since there is one switch per process.
#![allow(
    missing_docs,
    dead_code,
    reason = "tests; of what the tests share only a part is used here"
)]

mod meta;
mod requests;
mod rig;
mod spanning;
mod watches;

use nacre_client::{Mutant, set_mutant};

fn main() -> std::process::ExitCode {
    let stories: [(Mutant, fn()); Mutant::ALL.len()] = [
        (Mutant::ResetForgotten, requests::what_is_sent_again_goes_in_order_to_whoever_serves_now),
        (Mutant::OlderMapTaken, requests::maps_go_forward_only_and_of_one_history),
        (Mutant::RefusedByAnyone, requests::a_monitors_refusal_ends_the_client_an_osds_does_not),
        (Mutant::NewerEpochIgnored, requests::maps_go_forward_only_and_of_one_history),
        (Mutant::OtherHistoryIgnored, requests::maps_go_forward_only_and_of_one_history),
        (Mutant::IntervalUnseen, requests::what_is_sent_again_goes_in_order_to_whoever_serves_now),
        (Mutant::ResentOutOfOrder, requests::what_is_sent_again_goes_in_order_to_whoever_serves_now),
        (Mutant::RemovedPoolAwaited, requests::a_removed_pool_ends_its_operations),
        (Mutant::FirstTargetKept, requests::what_is_sent_again_goes_in_order_to_whoever_serves_now),
        (Mutant::MarkBeyondUnanswered, requests::the_mark_is_the_first_operation_without_an_answer),
        (Mutant::MarkForgotten, requests::the_mark_is_the_first_operation_without_an_answer),
        (Mutant::AttemptsAlike, requests::a_failure_counts_for_the_last_attempt_only_and_success_for_any),
        (Mutant::ResentUnderNewNumber, requests::a_failure_counts_for_the_last_attempt_only_and_success_for_any),
        (Mutant::FenceUnsaid, requests::what_is_sent_after_a_grant_carries_its_fence),
        (Mutant::FenceLowered, requests::what_is_sent_after_a_grant_carries_its_fence),
        (Mutant::DateOfResending, requests::an_osd_that_asks_is_told_when_it_was_first_asked_never_later),
        (Mutant::OldReadingUsed, requests::an_osd_that_asks_is_told_when_it_was_first_asked_never_later),
        (Mutant::DriftIgnored, requests::an_osd_that_asks_is_told_when_it_was_first_asked_never_later),
        (Mutant::AnswerOfAnother, requests::an_answer_for_another_client_or_instance_is_not_ours),
        (Mutant::OldFailureTaken, requests::a_failure_counts_for_the_last_attempt_only_and_success_for_any),
        (Mutant::OvertakenAnswerTaken, requests::what_was_there_before_an_earlier_operation_is_no_answer),
        (Mutant::OvertakenReadTaken, requests::what_a_read_found_before_an_earlier_operation_is_no_answer),
        (
            Mutant::WrongTargetFinal,
            requests::an_osd_that_does_not_serve_it_ends_nothing_and_makes_the_client_ask_for_the_map,
        ),
        (Mutant::RefusedSentAlone, requests::what_a_group_refuses_goes_to_it_again_with_all_that_went_after_it),
        (Mutant::UndatedFinal, requests::an_osd_that_asks_is_told_when_it_was_first_asked_never_later),
        (Mutant::AppliedIsDone, requests::an_early_answer_is_told_once_and_ends_nothing),
        (Mutant::AppliedTwice, requests::an_early_answer_is_told_once_and_ends_nothing),
        (Mutant::AppliedAfterDone, requests::an_early_answer_is_told_once_and_ends_nothing),
        (Mutant::BytesKept, requests::what_is_in_flight_is_bounded_and_the_largest_goes_alone),
        (Mutant::NeverSentAgain, requests::a_failure_counts_for_the_last_attempt_only_and_success_for_any),
        (Mutant::NoDeadline, requests::the_host_is_asked_to_come_back_while_something_is_in_flight),
        (Mutant::OpsUnbounded, requests::what_is_in_flight_is_bounded_and_the_largest_goes_alone),
        (Mutant::LargestRefused, requests::what_is_in_flight_is_bounded_and_the_largest_goes_alone),
        (Mutant::PayloadUnchecked, requests::lengths_that_do_not_fit_the_data_end_it_at_once),
        (Mutant::UnsendableTaken, requests::what_no_osd_could_read_is_refused_before_it_is_sent),
        (Mutant::PingedTooLate, watches::a_watch_is_kept_alive_by_pings_and_says_until_when_it_is_known),
        (Mutant::MovedWatchUnpinged, watches::a_new_primary_is_pinged_at_once_and_a_broken_connection_too),
        (Mutant::FencedGoesOn, watches::a_fence_and_a_removed_pool_end_watches),
        (Mutant::LostSinceLastPing, watches::a_lost_watch_says_until_when_it_was_certainly_there),
        (Mutant::LostSilently, watches::a_watch_is_kept_alive_by_pings_and_says_until_when_it_is_known),
        (Mutant::OldPongConfirms, watches::a_lost_watch_says_until_when_it_was_certainly_there),
        (
            Mutant::LostBeforeRegistered,
            watches::a_registration_that_fails_leaves_no_watch_and_one_under_way_is_not_lost,
        ),
        (Mutant::NotifiesUnbounded, watches::notifies_that_are_not_acknowledged_are_bounded),
        (Mutant::NotifyToldTwice, watches::a_repeated_notify_is_told_once_and_acknowledged_as_often_as_it_comes),
        (Mutant::AcknowledgedForgotten, watches::a_repeated_notify_is_told_once_and_acknowledged_as_often_as_it_comes),
        (Mutant::LockedBackwards, spanning::locks_in_order_then_writes_all_at_once_and_gives_the_locks_back_with_them),
        (Mutant::DeletedIsUnlocked, spanning::want_of_room_is_no_failure_and_a_deleted_object_takes_its_lock_along),
        (Mutant::WrittenUnguarded, spanning::locks_in_order_then_writes_all_at_once_and_gives_the_locks_back_with_them),
        (
            Mutant::PerhapsLockedKept,
            spanning::what_may_have_happened_is_named_and_its_lock_given_back_if_it_is_still_ours,
        ),
        (Mutant::AnothersUnlocked, spanning::a_lock_taken_over_in_between_says_what_was_written_and_frees_the_rest),
        (Mutant::SupersededIsNothing, spanning::what_nobody_remembers_may_have_happened),
        (Mutant::WrittenForgotten, spanning::a_lock_taken_over_in_between_says_what_was_written_and_frees_the_rest),
        (Mutant::MetaUnbounded, meta::the_window_bounds_what_is_in_flight),
        (Mutant::MetaMarkBeyondUnanswered, meta::the_mark_is_the_first_request_without_an_answer),
        (Mutant::MetaAgainUnsaid, meta::a_new_session_hears_what_is_open_and_nothing_is_sent_without_one),
        (Mutant::MetaWatchedFromStart, meta::a_watch_goes_on_after_the_last_revision_seen_and_takes_nothing_twice),
        (Mutant::MetaWatchedFromLast, meta::a_watch_goes_on_after_the_last_revision_seen_and_takes_nothing_twice),
        (Mutant::MetaSessionForgets, meta::a_new_session_hears_what_is_open_and_nothing_is_sent_without_one),
        (Mutant::MetaAnswerOfAnother, meta::an_answer_for_another_instance_is_not_ours),
        (Mutant::MetaOwnWritesForgotten, meta::a_request_says_what_its_client_has_seen),
        (Mutant::MetaUnavailableFinal, meta::no_majority_is_not_an_answer),
        (Mutant::MetaGapTaken, meta::a_watch_goes_on_after_the_last_revision_seen_and_takes_nothing_twice),
        (Mutant::MetaNotBeforeIgnored, meta::not_now_is_tried_again_and_an_answer_is_final),
        (Mutant::MetaToldTwice, meta::a_watch_goes_on_after_the_last_revision_seen_and_takes_nothing_twice),
        (Mutant::MetaUnsendableTaken, meta::what_no_monitor_could_read_is_refused_before_it_is_sent),
    ];
    nacre_types::planted::prove(Mutant::ALL, &stories, set_mutant)
}
