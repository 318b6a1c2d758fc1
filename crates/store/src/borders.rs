//! How often a store came to each of its limits, so that tests and the simulator can say which of
//! them they crossed.
//!
//! Every limit of [`crate::OpenOptions`] is a border between two ways through the code; a border
//! that nothing crosses is code that nothing tests. All of these are rare: counting costs nothing
//! that matters.

nacre_types::borders! {
    /// Transactions with blocks for fresh units.
    beside_writes,
    /// Runs of fresh units that were cut at `beside_run_blocks`.
    beside_runs_cut,
    /// Transactions that may change more than `deferred_transaction_max` bytes of blocks.
    beside_transactions,
    /// Transactions that the log is too small for.
    past_log,
    /// Groups of the log that go on at the ring's beginning.
    log_wraps,
    /// Transactions that waited because the log was full.
    log_full,
    /// Checkpoints begun because half of the log was used.
    half_log,
    /// Records that `cache_bytes` had no room for.
    cache_evictions,
    /// Checkpoints begun at `memtable_bytes`.
    memtable_bytes,
    /// Checkpoints begun at `memtable_records`.
    memtable_records,
    /// Times that applying waited for a checkpoint or a write-back, at twice a limit.
    stalls,
    /// Write-backs begun at `deferred_bytes`.
    deferred_bytes,
    /// Runs of blocks on their way to their place that were cut at `write_back_run_blocks`.
    write_back_runs_cut,
    /// Times that a run waited for one of `write_back_depth`.
    write_back_waits,
    /// Times that a run waited for a read of the old content.
    write_back_after_read,
    /// Blocks replaced or freed while a checkpoint waited to write them to their place.
    replaced_in_cycle,
    /// Freed units that waited for a read.
    freed_after_read,
    /// Freed units that waited for a write to their old place.
    freed_after_write,
    /// Transactions of the index that a checkpoint took beyond its first, at `index_batch_max`.
    index_batches,
    /// Checkpoints that left ranges to be removed, at `removals_max`.
    removals_left,
    /// Chunks of the index in more than one piece.
    scattered_chunks,
    /// Slices of omaps of more than `clone_slice_bytes`.
    clone_slices,
    /// Transactions refused as busy, at `queue_bytes_max`.
    queue_full,
    /// Transactions refused as larger than `transaction_bytes_max`, or than what the log takes.
    too_large,
    /// Transactions refused because there is no room.
    full,
    /// Pieces of free space that were given back to the host.
    discards,
    /// Pieces cut at `discard_bytes_max`.
    discards_cut,
    /// Pieces of less than `discard_bytes_min`, which were not given back.
    discards_short,
}
