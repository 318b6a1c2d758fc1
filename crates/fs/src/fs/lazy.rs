//! Files that several clients write and whose programs say themselves when they want to see what
//! the others wrote: `O_LAZY`, `lazyio_propagate`, `lazyio_synchronize` (Weil et al., OSDI 2006,
//! §3.2 Client Synchronization; CEPH-11).
//!
//! ```text
//!  Sync, all opens here are lazy ─▶ read: kept? ─▶ what is missing: objects, kept
//!                                └▶ write: kept as dirty data, written later as with Buffer
//!  Propagate   ─▶ what is dirty: objects ─▶ Wrote: how large, and when ─▶ ended
//!  Synchronize ─▶ the same ─▶ what is clean of the range is forgotten ─▶ ended
//!  a call of an open that is not lazy ─▶ what is dirty: objects ─▶ what is clean is forgotten
//!                                     ─▶ it goes on
//! ```
//! The server knows nothing of it: a client that may read and write at once, as others do, does so
//! later. More than one of them may write the same block at a time: each writes the bytes that its
//! callers wrote, and no others. Below quotas (`Asks`), while others do nothing with the file, and
//! when the client has it alone, nothing is lazy. A write to several objects does not have the file
//! alone either: who looks only when told to cannot ask for more. What is appended does.
//!
//! A read that ends within what is known of the file's size does not ask the server: a file becomes
//! no shorter while its client may write it. One that would end beyond asks.
//!
//! Invariants: what is dirty is written before less than `Sync` is left, and what is clean is gone
//! then; what was read before a `Synchronize` ended is not kept after it.

#[cfg(test)]
#[path = "lazy_test.rs"]
mod tests;

use super::flushing::Until;
use super::*;

impl Fs {
    /// One open of a file is lazy from now on, or is not any more.
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

    /// Not all of a file's opens are lazy any more: what was kept for those that were is written,
    /// and forgotten; whether that is done.
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

    /// Begins to write what is dirty, for a caller that waits until others can see it.
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
    /// It is in objects, up to `end`: the server is told.
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
    /// It knows, or does not take it.
    pub(super) fn propagated(&mut self, call: CallId, ino: Ino, forgets: Option<Range<u64>>) {
        let is_synchronized = forgets.is_some();
        let is_shared = self
            .files
            .get(&ino)
            .is_some_and(|file| file.cap.is_shared());
        // What others cannot have written is as it is.
        if let Some(range) = forgets.filter(|_| is_shared && !mutant(Mutant::SynchronizedKept)) {
            self.cache.drop_clean_of(ino, range);
        }
        // Who synchronizes may be another program than the one that wrote: that one is told, too.
        let errno = if is_synchronized {
            self.losses.of_writing(ino)
        } else {
            self.losses.take(Some(ino))
        };
        self.end(call, errno.map_or(Ok(Given::Done), Err));
    }
}
