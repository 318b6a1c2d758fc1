//! The limits and rare paths of an OSD, counted ([`nacre_types::borders`]).

nacre_types::borders! {
    /// Pages of a stray that were erased with more to come.
    erase_pages,
    /// Pages of a count of a PG's objects with more to come.
    count_pages,
    /// Pages of a pass that trims clones with more to come.
    trim_pages,
    /// Listings that end before their PG does.
    list_pages,
    /// Parts of objects that were pushed with more data to follow.
    push_data_parts,
    /// Parts of objects that were pushed with more of their omap to follow.
    push_omap_parts,
    /// Ranges that backfill compared and that ended before the PG.
    scan_pages,
    /// Pages of a PG's metadata read at a start, after its first.
    boot_pages,
    /// Times that a PG had to wait for the recovery limit.
    recovery_waits,
    /// Times that a PG had to wait for the backfill limit.
    backfill_waits,
    /// Messages held for a newer map.
    held,
    /// Operations of clients refused because of the limit on held messages, or after such a one.
    held_refused,
    /// Operations of clients refused because of the share of a PG that does not serve.
    share_refused,
    /// Operations of clients refused because of the share of an object that is held up.
    object_refused,
    /// Operations of clients that waited for such an object, and were sent back when the daemon's memory was full.
    object_sent_back,
    /// Operations whose clients first had to state when they sent them.
    undated,
    /// Operations refused because their client may have been forgotten since they were first sent.
    before_horizon,
    /// Full maps sent to peers that are too old for the kept changes.
    full_maps_sent,
    /// Times that the log was trimmed to its minimum length.
    log_short,
    /// Times that the log was at its maximum length while a member was away.
    log_long,
    /// Members and targets that continue by the log.
    recovered_by_log,
    /// Members and targets whose log does not reach back far enough: they start over by backfill.
    started_over,
    /// Divergent updates that were undone.
    divergent,
    /// Temporary acting sets requested.
    temporary,
    /// Activations that waited for the old interval's read leases.
    waited_for_leases,
    /// PGs that split.
    splits,
    /// Of these, while a cursor of backfill was inside.
    splits_in_backfill,
    /// Receivers outside the acting set that were resent the log.
    caught_up,
    /// Unknown operations refused because later ones of their client have been executed.
    overtaken,
    /// Operations refused because it is no longer known whether they were executed.
    superseded,
    /// Operations answered from memory.
    answered_again,
    /// Operations that were resent while their data was read or they were evaluated.
    came_while_under_way,
    /// Updates that waited until members had acknowledged others, for lack of space.
    room_waits,
    /// Parts of objects refused for lack of space.
    parts_without_room,
    /// Objects deleted that members lacked, without recovering them.
    deleted_lacking,
    /// Objects deleted that the primary lacked, using the first part of a transfer.
    deleted_unseen,
    /// Writes refused because a member has no space for an object that must be recovered first.
    no_room_refused,
    /// Acting sets requested without a member that had no space for what it lacked.
    stood_aside,
    /// Objects removed from targets of backfill without space.
    swept,
    /// Replicas found damaged.
    damaged,
    /// Replicas that lost data because a block was partly overwritten whose rest could not be read.
    lost_parts,
    /// Objects requested from members that are not known to have them.
    last_resorts,
}
