//! Tests of the client's role; the tests play its peers. One binary; a module per part.
#![allow(missing_docs, reason = "tests")]

mod beside;
mod fences;
mod meta;
mod requests;
mod rig;
mod rooms;
mod services;
mod spanning;
mod watches;

/// Stories are functions, because `mutants.rs` also runs them without the test harness.
macro_rules! tests {
    ($($part:ident: $($story:ident),+;)+) => {
        $($(#[test] fn $story() { $part::$story(); })+)+
    };
}

tests! {
    beside:
        what_an_engine_says_is_there_in_the_turn_for_which_it_wakes,
        what_ends_as_it_is_begun_beside_has_a_turn_of_its_own,
        an_engine_goes_on_as_a_later_instance;
    fences:
        a_fence_ends_with_the_map_that_has_it,
        a_fence_is_asked_for_until_it_is_there_or_refused,
        fences_under_way_are_bounded,
        what_rests_on_a_map_says_so;
    rooms:
        what_still_fits_is_what_the_monitors_said_last;
    meta:
        a_watch_goes_on_after_the_last_revision_seen_and_takes_nothing_twice,
        a_watch_from_a_revision_tells_that_revision,
        what_no_monitor_could_read_is_refused_before_it_is_sent,
        a_lost_session_is_sent_nothing,
        each_request_is_sent_again_when_it_may_be,
        not_now_is_tried_again_and_an_answer_is_final,
        the_window_bounds_what_is_in_flight,
        the_mark_is_the_first_request_without_an_answer,
        a_request_says_what_its_client_has_seen,
        what_is_sent_again_says_what_was_known_when_it_was_first_asked,
        a_new_session_hears_what_is_open_and_nothing_is_sent_without_one,
        an_answer_for_another_instance_is_not_ours,
        no_majority_is_not_an_answer,
        who_gives_up_hears_what_was_said_last,
        a_watch_goes_on_behind_what_it_was_told_of_nothing,
        a_watch_that_ends_says_so_once_and_one_that_is_cancelled_says_nothing;
    requests:
        a_failure_counts_for_the_last_attempt_only_and_success_for_any,
        an_answer_for_another_client_or_instance_is_not_ours,
        what_is_sent_again_goes_in_order_to_whoever_serves_now,
        what_was_there_before_an_earlier_operation_is_no_answer,
        what_a_read_found_before_an_earlier_operation_is_no_answer,
        a_refusal_for_want_of_room_says_nothing_of_what_was_sent_before,
        what_nobody_serves_waits_for_the_map,
        a_removed_pool_ends_its_operations,
        the_mark_is_the_first_operation_without_an_answer,
        an_osd_that_does_not_serve_it_ends_nothing_and_makes_the_client_ask_for_the_map,
        what_a_group_refuses_goes_to_it_again_with_all_that_went_after_it,
        who_slept_sends_what_was_before_first,
        an_osd_that_asks_is_told_when_it_was_first_asked_never_later,
        an_osd_that_was_started_again_is_told_by_its_new_clock,
        an_early_answer_is_told_once_and_ends_nothing,
        what_held_an_operation_up_elsewhere_is_not_why_it_waits_now,
        what_is_in_flight_is_bounded_and_the_largest_goes_alone,
        what_is_carried_beside_data_is_bounded_too,
        lengths_that_do_not_fit_the_data_end_it_at_once,
        what_no_osd_could_read_is_refused_before_it_is_sent,
        what_ends_at_once_takes_no_room,
        the_host_is_asked_to_come_back_while_something_is_in_flight,
        a_client_without_a_map_asks_again,
        a_change_of_the_map_moves_what_is_under_way,
        the_map_is_asked_for_when_there_is_reason_to,
        a_failure_waits_only_for_writes_that_were_sent_again,
        maps_go_forward_only_and_of_one_history,
        a_monitors_refusal_ends_the_client_an_osds_does_not,
        who_gives_up_hears_that_nobody_knows,
        what_is_sent_after_a_grant_carries_its_fence,
        what_waits_has_waited_since_it_was_submitted,
        a_request_says_what_time_it_is,
        an_operation_carries_its_own_snapshot_context_with_every_attempt;
    services:
        a_service_hears_its_peers_and_nothing_of_the_substrate,
        what_objects_and_metadata_say_is_there_in_the_turn_in_which_it_came,
        what_is_refused_for_want_of_a_map_begins_when_there_is_one,
        what_ends_as_it_is_begun_is_told_in_a_turn_of_its_own,
        the_services_deadlines_are_no_ones_else,
        a_service_goes_on_as_a_later_instance,
        fences_of_a_former_instance_end;
    spanning:
        locks_in_order_then_writes_all_at_once_and_gives_the_locks_back_with_them,
        a_lock_that_somebody_holds_ends_it_before_anything_is_written,
        a_lock_taken_over_in_between_says_what_was_written_and_frees_the_rest,
        what_may_have_happened_is_named_and_its_lock_given_back_if_it_is_still_ours,
        want_of_room_is_no_failure_and_a_deleted_object_takes_its_lock_along,
        what_nobody_remembers_may_have_happened,
        what_met_damage_may_have_happened,
        every_part_that_may_have_happened_is_named,
        a_guard_of_the_caller_that_fails_leaves_no_lock_behind,
        nothing_more_is_written_after_a_failure,
        what_may_have_happened_is_not_nothing,
        without_a_map_it_waits,
        a_removed_pool_ends_it;
    watches:
        a_watch_is_kept_alive_by_pings_and_says_until_when_it_is_known,
        a_registration_that_fails_leaves_no_watch_and_one_under_way_is_not_lost,
        a_watch_that_no_osd_could_read_is_refused_and_leaves_nothing,
        a_repeated_notify_is_told_once_and_acknowledged_as_often_as_it_comes,
        a_new_primary_is_pinged_at_once_and_a_broken_connection_too,
        a_fence_and_a_removed_pool_end_watches,
        an_ended_watch_says_nothing_more,
        the_first_of_several_pings_says_when,
        a_watch_whose_removal_is_refused_goes_on,
        a_lost_watch_says_until_when_it_was_certainly_there,
        notifies_that_are_not_acknowledged_are_bounded,
        a_registration_that_is_given_up_leaves_no_watch,
        of_what_was_acknowledged_the_newest_is_remembered,
        what_is_acknowledged_while_nobody_serves_is_not_told_again,
        a_notify_and_a_pong_for_another_instance_are_not_heard;
}
