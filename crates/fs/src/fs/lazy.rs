//! Files that several clients write and whose programs decide themselves when to see what the
//! others wrote: `O_LAZY`, `lazyio_propagate`, `lazyio_synchronize` (Weil et al., OSDI 2006, §3.2
//! Client Synchronization; CEPH-11).
//!
//! ```text
//!  Sync, all opens here are lazy ─▶ read: cached? ─▶ missing data: objects, then cached
//!                                └▶ write: cached as dirty data, written later as with Buffer
//!  Propagate   ─▶ dirty data: objects ─▶ Wrote: size and time ─▶ ended
//!  Synchronize ─▶ the same ─▶ clean data of the range is dropped ─▶ ended
//!  a call of an open that is not lazy ─▶ dirty data: objects ─▶ clean data is dropped
//!                                     ─▶ it continues
//! ```
//! The server does not know about it: a client with direct I/O merely performs it later. Several
//! clients may write the same block at a time: each writes exactly the bytes that its callers
//! wrote. Below quotas (`Asks`), while others are excluded, and when the client has the file alone,
//! lazy I/O is off. A lazy write to several objects does not get exclusive access either: readers
//! that look only when told to cannot ask for more. Appends do.
//!
//! A read that ends within the known size of the file does not ask the server: a file does not
//! become shorter while its client may write it. A read that would end beyond asks.
//!
//! Invariants: dirty data is written before the capability falls below `Sync`, and clean data is
//! then dropped; data read before a `Synchronize` ended is not cached after it.

#[cfg(test)]
#[path = "lazy_test.rs"]
mod tests;

use super::flushing::Until;
use super::*;

impl Fs {
    /// Switches lazy I/O on or off for one open of a file.
    pub(super) fn set_lazy(&mut self, call: CallId, ino: Ino, lazy: bool) {
        let Some(file) = self.files.get_mut(&ino) else {
            return self.end(call, Err(EBADF));
        };
        file.lazy = if lazy {
            file.lazy + 1
        } else {
            file.lazy.saturating_sub(1)
        };
        self.end(call, Ok(Given::Done));
    }

    /// Not all of a file's opens are lazy any more: data cached for lazy opens is written and
    /// dropped; returns whether that is done.
    pub(super) fn ends_lazily(&mut self, ino: Ino, out: &mut Vec<Output>) -> bool {
        if !self.is_written(ino, out) {
            return false;
        }
        self.cache.drop_clean(ino);
        if let Some(file) = self.files.get_mut(&ino) {
            file.keeps_lazily = false;
        }
        true
    }

    /// Begins to write dirty data for a caller that waits until others can see it.
    pub(super) fn propagate(
        &mut self,
        call: CallId,
        ino: Ino,
        forgets: Option<Range<u64>>,
        out: &mut Vec<Output>,
    ) {
        if !self.files.contains_key(&ino) {
            return self.end(call, Err(EBADF));
        }
        self.sync_until(call, Some(ino), Until::Told(ino, forgets), out);
    }
    /// The data is in objects, up to `end`: tells the server.
    pub(super) fn tell_propagated(
        &mut self,
        call: CallId,
        ino: Ino,
        (end, forgets): (u64, Option<Range<u64>>),
        out: &mut Vec<Output>,
    ) {
        let up_to = (self.cache.dirty_of(ino) > 0).then_some(end);
        let Some((size, mtime)) = self.files.get_mut(&ino).and_then(|file| file.tell(up_to)) else {
            return self.propagated(call, ino, forgets);
        };
        self.files.get_mut(&ino).expect("just seen").begin_telling();
        self.request(
            FsCall::Wrote { ino, size, mtime },
            Purpose::Propagated(call, ino, forgets),
            out,
        );
    }
    /// Data that others may have written since is read again; what they cannot have written is
    /// current.
    #[nacre_types::planted]
    fn drop_shared(&mut self, ino: Ino, range: &Range<u64>) {
        let is_shared = |file: &File| file.cap.is_shared();
        if self.files.get(&ino).is_some_and(is_shared) {
            self.cache.drop_clean_of(ino, range.clone());
        }
    }
    /// The server knows it, or refuses it.
    pub(super) fn propagated(&mut self, call: CallId, ino: Ino, forgets: Option<Range<u64>>) {
        let is_synchronized = forgets.is_some();
        if let Some(range) = forgets {
            self.drop_shared(ino, &range);
        }
        // The caller that synchronizes may be another program than the writer, which is told, too.
        let errno = if is_synchronized {
            self.losses.of_writing(ino)
        } else {
            self.losses.take(Some(ino))
        };
        self.end(call, errno.map_or(Ok(Given::Done), Err));
    }
}
