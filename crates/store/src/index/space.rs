//! The device's free space, shared by two users: the store's thread takes and frees units of data,
//! and the job that merges a memtable takes chunks for the index when it needs them.
//!
//! The index has no fixed share: the space that a checkpoint needs cannot be known before redb has
//! done it (pages are powers of two, split and merge), and with a share that is too small a store
//! stops with nine tenths of its space free.

use crate::alloc::Allocator;
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Clone, Debug)]
pub(crate) struct Space(Arc<Mutex<Allocator>>);

impl Space {
    pub(crate) fn new(allocator: Allocator) -> Self {
        Self(Arc::new(Mutex::new(allocator)))
    }
    /// Held for one transaction's attempt at most: the holder never waits for the device.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Allocator> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    pub(crate) fn free(&self) -> u64 {
        self.lock().free()
    }
}
