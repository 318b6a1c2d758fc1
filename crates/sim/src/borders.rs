//! Rare paths that are the simulator's own, counted as those of the roles are
//! ([`nacre_types::borders`], `docs/faults.md`).

nacre_types::borders! {
    /// Turns of OSDs with more than one input.
    turns_of_many,
    /// Fences that operators lifted while the instance that they had shut out went on.
    fences_lifted,
    /// Updates of such an instance that were answered after that.
    resumed,
    /// Of its updates, those that came too late: its lock had been taken over while it was fenced.
    locks_lost,
    /// Updates refused for a fence that may have happened before it, for they had been sent before.
    fenced_in_doubt,
    /// Writes of those who fill really small devices that were refused for want of room.
    refused_when_full,
    /// Deletions that were answered after the first of these.
    deleted_when_full,
    /// Pages of a running store's index that were damaged.
    index_pages_damaged,
    /// Daemons that ended, or did not start again, because their store's index had rotted.
    index_rot_ended,
    /// Disks that were replaced for it.
    index_rot_replaced,
    /// OSDs that the monitors kept down because one that was up did not hear them.
    kept_down,
    /// OSDs that were marked down while their disk did not answer.
    hung_went_down,
    /// Of these, those that came back without a restart when it answered again.
    hung_came_back,
    /// OSDs that ended for it.
    hung_ended,
}
