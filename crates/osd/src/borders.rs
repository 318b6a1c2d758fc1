//! The limits and rare paths of an OSD, counted ([`nacre_types::borders`]).

nacre_types::borders! {
    /// Pages of a stray that were erased with more to come.
    erase_pages,
    /// Pages of a count of a group's objects with more to come.
    count_pages,
    /// Pages of a pass that trims clones with more to come.
    trim_pages,
    /// Listings that end before their group does.
    list_pages,
    /// Parts of objects that were pushed with more data to come.
    push_data_parts,
    /// Parts of objects that were pushed with more of their omap to come.
    push_omap_parts,
    /// Ranges that backfill compared and that ended before the group.
    scan_pages,
    /// Pages of a group's metadata read at a start, after its first.
    boot_pages,
    /// Times that a group found no room to recover more objects.
    recovery_waits,
    /// Times that a group found no room to compare a range.
    backfill_waits,
    /// Messages held for a newer map.
    held,
    /// Operations of clients that found no room among what is held, or came after one.
    held_refused,
    /// Operations of clients that found no room in a group that does not serve.
    share_refused,
    /// Operations of clients that found no room behind others on an object that is held up.
    object_refused,
    /// Operations of clients that waited for such an object, and were sent back when the daemon's room was full.
    object_sent_back,
    /// Operations whose clients had to say first when they asked.
    undated,
    /// Operations refused because their client may have been forgotten since they were first sent.
    before_horizon,
    /// Full maps sent to somebody whom the kept changes do not help.
    full_maps_sent,
    /// Times that the log was shortened to its least length.
    log_short,
    /// Times that the log was at its greatest length while a member was away.
    log_long,
    /// Members and targets that go on by the log.
    recovered_by_log,
    /// Members and targets whose log does not reach: they start over by backfill.
    started_over,
    /// Divergent updates that were undone.
    divergent,
    /// Temporary acting sets asked for.
    temporary,
    /// Activations that waited for the old interval's read leases.
    waited_for_leases,
    /// Groups that split.
    splits,
    /// Of these, while a cursor of backfill was inside.
    splits_in_backfill,
    /// Receivers outside the acting set that were sent the log again.
    caught_up,
    /// Unknown operations refused because later ones of their client have been executed.
    overtaken,
    /// Operations refused because nobody knows any more whether they were executed.
    superseded,
    /// Operations answered from memory.
    answered_again,
    /// Operations that came again while they were read for or evaluated.
    came_while_under_way,
    /// Updates that waited until members had acknowledged others, for want of room.
    room_waits,
    /// Parts of objects that found no room.
    parts_without_room,
    /// Objects deleted that members lacked, without a copy of them.
    deleted_lacking,
    /// Objects deleted that the primary lacked, by what the first part of a copy said of them.
    deleted_unseen,
    /// Writes refused because an object has to come first for which a member has no room.
    no_room_refused,
    /// Acting sets asked for without a member that had no room for what it lacked.
    stood_aside,
    /// Objects removed from targets of backfill that have no room.
    swept,
    /// Copies found damaged.
    damaged,
    /// Copies that lost data because a part of a block was overwritten whose rest could not be read.
    lost_parts,
    /// Objects looked for on members that are not known to have them.
    last_resorts,
}
