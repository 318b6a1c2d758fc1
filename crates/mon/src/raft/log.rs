//! The log as read by the consensus library: all in memory, mirrored in the store by
//! [`super::Consensus`].
//!
//! ```text
//!   trimmed │ first … … snapshot … … applied … committed … last
//!   (term   │ └ kept so that a follower that lags a little needs no snapshot
//!    known) │
//! ```
//! Invariant (checked by [`LogMemory::check`]): entries are dense from `trimmed + 1`, their terms
//! never fall.

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};
use std::cell::Cell;
use std::collections::VecDeque;

/// See the module head.
pub(super) struct LogMemory {
    /// For [`Storage::initial_state`] only.
    start: RaftState,
    /// Index and term of the entry before the first.
    trimmed: (u64, u64),
    entries: VecDeque<Entry>,
    bytes: usize,
    /// A snapshot to be sent; made on request.
    offer: Option<Snapshot>,
    wanted: Cell<bool>,
}

fn size(entry: &Entry) -> usize {
    entry.data.len() + entry.context.len() + 32
}

impl LogMemory {
    pub fn new(
        hard: HardState,
        conf: ConfState,
        trimmed: (u64, u64),
        entries: VecDeque<Entry>,
    ) -> Self {
        let bytes = entries.iter().map(size).sum();
        let start = RaftState::new(hard, conf);
        Self {
            start,
            trimmed,
            entries,
            bytes,
            offer: None,
            wanted: Cell::new(false),
        }
    }
    pub fn first(&self) -> u64 {
        self.trimmed.0 + 1
    }
    pub fn last(&self) -> u64 {
        self.trimmed.0 + self.entries.len() as u64
    }
    pub fn trimmed(&self) -> (u64, u64) {
        self.trimmed
    }
    /// Bytes of all entries.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    pub fn term_at(&self, index: u64) -> Option<u64> {
        if index == self.trimmed.0 {
            return Some(self.trimmed.1);
        }
        let at = index.checked_sub(self.first())?;
        self.entries
            .get(usize::try_from(at).ok()?)
            .map(|entry| entry.term)
    }

    /// Replaces everything from the first entry's index on.
    pub fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        assert!(
            first.index >= self.first(),
            "the log is never rewritten below its start"
        );
        assert!(first.index <= self.last() + 1, "the log has no holes");
        while self.last() >= first.index {
            let gone = self.entries.pop_back().expect("last() counts the entries");
            self.bytes -= size(&gone);
        }
        for entry in entries {
            self.bytes += size(entry);
            self.entries.push_back(entry.clone());
        }
    }

    /// The index up to which entries may be trimmed so that of those up to `index` at most this
    /// many, and this many bytes, are kept.
    pub fn margin(&self, index: u64, entries_max: u64, bytes_max: usize) -> u64 {
        let upto = usize::try_from(index.saturating_sub(self.trimmed.0))
            .unwrap_or(usize::MAX)
            .min(self.entries.len());
        let (mut kept, mut bytes) = (0, 0);
        for entry in self.entries.range(..upto).rev() {
            bytes += size(entry);
            if kept == entries_max || bytes > bytes_max {
                break;
            }
            kept += 1;
        }
        index.saturating_sub(kept)
    }

    /// Trims the entries up to and including `index`.
    pub fn trim(&mut self, index: u64) {
        while self.trimmed.0 < index {
            let Some(gone) = self.entries.pop_front() else {
                return;
            };
            self.trimmed = (gone.index, gone.term);
            self.bytes -= size(&gone);
        }
        if self
            .offer
            .as_ref()
            .is_some_and(|offer| offer.get_metadata().index < self.trimmed.0)
        {
            self.offer = None;
        }
    }

    /// Starts again after a snapshot from the leader.
    pub fn restart(&mut self, index: u64, term: u64) {
        self.entries.clear();
        self.bytes = 0;
        self.trimmed = (index, term);
        self.offer = None;
    }

    /// Whether a snapshot was requested and none was suitable.
    pub fn wants_snapshot(&self) -> bool {
        self.wanted.get()
    }
    pub fn offer(&mut self, snapshot: Snapshot) {
        self.wanted.set(false);
        self.offer = Some(snapshot);
    }
    /// Frees the memory of the offered snapshot.
    pub fn withdraw_offer(&mut self) {
        self.offer = None;
    }

    pub fn check(&self) {
        let (mut index, mut term) = self.trimmed;
        for entry in &self.entries {
            assert_eq!(entry.index, index + 1, "the log is dense");
            assert!(entry.term >= term, "terms never fall along the log");
            (index, term) = (entry.index, entry.term);
        }
    }
}

fn is_member(snapshot: &Snapshot, id: u64) -> bool {
    let conf = snapshot.get_metadata().get_conf_state();
    conf.voters.contains(&id) || conf.learners.contains(&id)
}

impl Storage for LogMemory {
    fn initial_state(&self) -> Result<RaftState> {
        Ok(self.start.clone())
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        if low < self.first() {
            return Err(Error::Store(StorageError::Compacted));
        }
        assert!(
            high <= self.last() + 1,
            "nobody asks for entries that were never appended"
        );
        let max = max.into().unwrap_or(u64::MAX);
        let mut total = 0;
        let at =
            |index: u64| usize::try_from(index - self.first()).expect("the log fits in memory");
        let mut entries = Vec::new();
        for entry in self.entries.range(at(low)..at(high)) {
            total += size(entry) as u64;
            if total > max && !entries.is_empty() {
                break;
            }
            entries.push(entry.clone());
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> Result<u64> {
        if index < self.trimmed.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        self.term_at(index)
            .ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.first())
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, to: u64) -> Result<Snapshot> {
        match &self.offer {
            // `to` would ignore a snapshot made before it became a member.
            Some(offer) if offer.get_metadata().index >= request_index && is_member(offer, to) => {
                Ok(offer.clone())
            }
            _ => {
                // The state machine is not here: its owner makes a snapshot, and the library asks
                // again at the next heartbeat.
                self.wanted.set(true);
                Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
            }
        }
    }
}
