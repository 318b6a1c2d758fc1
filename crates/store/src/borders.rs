//! How often a store reached each of its limits, so that tests and the simulator can report which
//! of them they crossed.
//!
//! Every limit of [`crate::OpenOptions`] separates two paths through the code; a limit that is
//! never crossed is code that is never tested. All of these events are rare: the cost of counting
//! is negligible.

nacre_types::borders! {
    /// Transactions with blocks for fresh units.
    beside_writes,
    /// Runs of fresh units that were cut at `beside_run_blocks`.
    beside_runs_cut,
    /// Transactions that may change more than `deferred_transaction_max` bytes of blocks.
    beside_transactions,
    /// Transactions that took the short way of a plain overwrite.
    plain_overwrites,
    /// Transactions for which the log is too small.
    past_log,
    /// Groups that were one operation of the device, not larger than `commit_bytes_max`.
    small_groups,
    /// Groups of the log that continue at the ring's beginning.
    log_wraps,
    /// Transactions that waited because the log was full.
    log_full,
    /// Checkpoints begun because half of the log was used.
    half_log,
    /// Records for which `cache_bytes` had no space.
    cache_evictions,
    /// Checkpoints begun at `memtable_bytes`.
    memtable_bytes,
    /// Checkpoints begun at `memtable_records`.
    memtable_records,
    /// Times that applying waited for a checkpoint or a write-back, at twice a limit.
    stalls,
    /// Write-backs begun at `deferred_bytes`.
    deferred_bytes,
    /// Runs of blocks being written back that were cut at `write_back_run_blocks`.
    write_back_runs_cut,
    /// Times that a run waited because of `write_back_depth`.
    write_back_waits,
    /// Times that a run waited for a read of the old content.
    write_back_after_read,
    /// Blocks replaced or freed while a checkpoint waited to write them back.
    replaced_in_cycle,
    /// Freed units that waited for a read.
    freed_after_read,
    /// Freed units that waited for a write to their old place.
    freed_after_write,
    /// Transactions of the index that a checkpoint needed beyond its first, at `index_batch_max`.
    index_batches,
    /// Checkpoints that left ranges to be removed, at `removals_max`.
    removals_left,
    /// Chunks of the index in more than one piece.
    scattered_chunks,
    /// Slices of omaps of more than `clone_slice_bytes`.
    clone_slices,
    /// Transactions refused as busy, at `queue_bytes_max`.
    queue_full,
    /// Transactions refused as larger than `transaction_bytes_max`, or than the log accepts.
    too_large,
    /// Transactions refused for lack of space.
    full,
    /// Pieces of free space that were discarded.
    discards,
    /// Pieces cut at `discard_bytes_max`.
    discards_cut,
    /// Pieces of less than `discard_bytes_min`, which were not discarded.
    discards_short,
}
