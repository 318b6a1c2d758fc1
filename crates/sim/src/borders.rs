//! Rare paths of the simulator itself, counted like those of the roles ([`nacre_types::borders`],
//! `docs/faults.md`).

nacre_types::borders! {
    /// Turns of OSDs with more than one input.
    turns_of_many,
    /// Fences that operators lifted while the fenced instance was still running.
    fences_lifted,
    /// Updates of such an instance that were answered afterwards.
    resumed,
    /// Of its updates, those that came too late: its lock had been taken over while it was fenced.
    locks_lost,
    /// Updates refused because of a fence that may have been executed before it, because they had
    /// been sent before.
    fenced_in_doubt,
    /// Writes refused for lack of space on really small devices.
    refused_when_full,
    /// Deletions that were answered after the first such refusal.
    deleted_when_full,
    /// Pages of a running store's index that were damaged.
    index_pages_damaged,
    /// Daemons that ended, or did not start again, because their store's index was corrupt.
    index_rot_ended,
    /// Disks that were replaced because of that.
    index_rot_replaced,
    /// OSDs that the monitors kept down because an up OSD could not hear them.
    kept_down,
    /// OSDs that were marked down while their disk did not respond.
    hung_went_down,
    /// Of these, those that came back without a restart when the disk responded again.
    hung_came_back,
    /// OSDs that ended because of that.
    hung_ended,
}
