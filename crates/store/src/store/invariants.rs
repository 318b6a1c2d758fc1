//! Invariants between any two steps; when the store is idle, no state of completed work may be
//! left.
//!
//! ```text
//!  tail ≤ head ≤ tail + ring        committed ≤ applied ≤ submitted        idle: no queue, no read, no lookup, no waiting unit
//! ```
//! A record of completed work is leaked memory, or a caller that waits for ever.

use super::Store;
use crate::device::Device;

impl<D: Device> Store<D> {
    /// For tests and simulation: to be called between any two calls of the store.
    ///
    /// # Panics
    /// An invariant does not hold.
    #[doc(hidden)]
    pub fn check(&self) {
        if self.failed {
            return;
        }
        assert!(
            self.tail <= self.head && self.head - self.tail <= self.layout.wal_length,
            "the log is longer than its ring"
        );
        assert!(self.committed <= self.applied && self.applied <= self.submitted);
        assert_eq!(
            self.submitted - self.applied,
            self.queue.len() as u64,
            "what is submitted and not applied is queued"
        );
        assert_eq!(
            self.queue_bytes,
            self.queue.iter().map(|queued| queued.size).sum(),
            "bytes of the queue"
        );
        let promised = self.queue.iter().fold((0, 0), |(units, index), queued| {
            (units + queued.promise.units, index + queued.promise.index)
        });
        assert_eq!(
            (self.promised.units, self.promised.index),
            promised,
            "what the queue may need"
        );
        let deferred = self
            .pending
            .by_unit
            .values()
            .filter(|pending| !pending.beside)
            .count();
        assert_eq!(
            self.pending.deferred, deferred,
            "blocks that wait for their place"
        );
    }

    /// Like [`Self::check`], when [`Self::is_busy`] is false and no job is running.
    ///
    /// # Panics
    /// An invariant does not hold.
    #[doc(hidden)]
    pub fn check_at_rest(&self) {
        if self.failed {
            return;
        }
        self.check();
        assert!(!self.is_busy(), "something is under way");
        assert_eq!(self.committed, self.submitted, "all is committed");
        assert!(
            self.waiting.is_empty(),
            "units that were freed and are kept for nobody: {:?}",
            self.waiting
        );
        assert!(self.discards.is_idle(), "units that are being given back");
        assert!(self.old_blocks.is_empty(), "blocks read for nobody");
        assert!(self.omaps.is_empty(), "omaps looked up for nobody");
        assert!(
            self.filled.is_empty() && self.filling.is_none(),
            "a clone in slices that nobody ends"
        );
        assert!(
            self.weighing || self.tables.staged.is_empty(),
            "records looked up for nobody"
        );
        self.reads.check_at_rest();
        self.lookups.check_at_rest();
        self.tables.check();
        self.allocator.lock().check();
    }

    /// The number of units with objects' data, according to memory: in an idle store the same as
    /// after it is opened again.
    #[doc(hidden)]
    #[must_use]
    pub fn data_units(&self) -> u64 {
        let index: u64 = self
            .index
            .backend()
            .units()
            .iter()
            .map(|&(_, count)| u64::from(count))
            .sum();
        self.layout.units()
            - self.layout.first_unit()
            - self.allocator.free()
            - index
            - u64::from(self.discards.units())
    }
}
