//! The device's free space as two users share it: the store's thread takes and gives units of data,
//! and the job that merges a memtable takes chunks for the index when it needs them.
//!
//! The index is not given a share beforehand: what a checkpoint needs cannot be known before redb
//! has done it (pages are powers of two, split and merge), and a share that is too small is a store
//! that stops with nine tenths of its space free.

use crate::alloc::Allocator;
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Clone, Debug)]
pub(crate) struct Space(Arc<Mutex<Allocator>>);

impl Space {
    pub(crate) fn new(allocator: Allocator) -> Self {
        Self(Arc::new(Mutex::new(allocator)))
    }
    /// Held for one transaction's attempt at most: no device is waited for meanwhile.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Allocator> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    pub(crate) fn free(&self) -> u64 {
        self.lock().free()
    }
}
