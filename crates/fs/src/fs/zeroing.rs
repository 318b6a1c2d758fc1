//! Zeroes ranges of a file, and extends a file without data.
//!
//! ```text
//!  Zero ─▶ nothing is dirty, no write is in progress ─▶ objects, some at a time ─▶ clean data is dropped ─▶ ended
//!             └─ until then it waits like a truncation             └─ all reads and writes of the file wait
//!  Extend ─▶ large enough: ended; else the same wait ─▶ Wrote ─▶ ended
//! ```
//! An object without other data is deleted, except for the first, which has the file's backpointer.
//! In other objects the range is zeroed, if they exist: a hole stays a hole. A client that has the
//! file alone may delete an object if the range covers it up to the file's end; where others may
//! extend the file at the same time, their data there is not in the range, so that object is
//! zeroed.
//!
//! Invariants: nothing is zeroed beyond the end known to the client, and no object is created;
//! nothing is begun if the client's session has ended meanwhile.

#[cfg(test)]
#[path = "zeroing_test.rs"]
mod tests;

use super::*;
use nacre_wire::msg::fs::FsChanges;

/// Objects of a call that are changed at a time.
const AT_ONCE: usize = 16;

/// A call whose objects are being changed.
#[derive(Debug)]
pub(super) struct Zeroing {
    ino: Ino,
    /// First byte, and the end, excluded.
    range: (u64, u64),
    /// The file's end, if no other client can move it.
    end: Option<u64>,
    /// The next object.
    next: u64,
    /// Operations in flight.
    left: usize,
    failed: Option<u16>,
    /// The grant under which it was begun.
    grant: u64,
}

impl Zeroing {
    /// The operation on an object; `None`: it has nothing of the range.
    fn ops(&self, layout: &Layout, number: u64) -> Option<Vec<SubOp>> {
        let [from, to] = [self.range.0, self.range.1].map(|at| layout.length_of(number, at));
        let whole = self.end.map_or(u64::from(layout.object), |end| {
            layout.length_of(number, end)
        });
        let is_there = SubOp::AssertExists { exists: true };
        match (number, from == 0 && to == whole) {
            _ if from == to => None,
            (0, true) => Some(vec![is_there, SubOp::Truncate { size: 0 }]),
            (_, true) => Some(vec![SubOp::Delete {}]),
            (_, false) => Some(vec![
                is_there,
                SubOp::Zero {
                    offset: from,
                    length: to - from,
                },
            ]),
        }
    }
}

impl Fs {
    /// Zeroes a range, once everything written before is in objects.
    pub(super) fn zero(
        &mut self,
        call: CallId,
        ino: Ino,
        (offset, length): (u64, u64),
        out: &mut Vec<Output>,
    ) {
        let file = &self.files[&ino];
        let (size, is_alone, layout) = (file.size, file.cap.buffers(), file.layout);
        let end = offset.saturating_add(length).min(size);
        if offset >= end {
            return self.end(call, Ok(Given::Done));
        }
        if file.writes > 0 || !self.is_written(ino, out) {
            return self.put_off(
                ino,
                call,
                Ask::Zero {
                    ino,
                    offset,
                    length,
                },
            );
        }
        let file = self.files.get_mut(&ino).expect("just seen");
        file.resizing = true;
        file.writes += 1;
        file.leaves_hole(end);
        let grant = file.grants;
        let first = layout.place(offset).0;
        let next = first - first % u64::from(layout.count);
        let end_of_file = is_alone.then_some(size);
        let zeroing = Zeroing {
            ino,
            range: (offset, end),
            end: end_of_file,
            next,
            left: 0,
            failed: None,
            grant,
        };
        self.transfers.insert(call, Transfer::Zero(zeroing));
        self.go_on_zeroing(call, out);
    }

    /// Begins operations on the next objects; after the last one the call ends.
    fn go_on_zeroing(&mut self, call: CallId, out: &mut Vec<Output>) {
        let Some(Transfer::Zero(zeroing)) = self.transfers.get_mut(&call) else {
            return;
        };
        let ino = zeroing.ino;
        let file = &self.files[&ino];
        let layout = file.layout;
        if zeroing.next < layout.objects(zeroing.range.1)
            && (file.cap == (FsCap::Nothing {}) || file.grants != zeroing.grant)
        {
            // Its session has ended meanwhile: others may have the file.
            zeroing.failed.get_or_insert(EIO);
        }
        let mut begun = Vec::new();
        while zeroing.failed.is_none()
            && zeroing.left < AT_ONCE
            && zeroing.next < layout.objects(zeroing.range.1)
        {
            if let Some(ops) = zeroing.ops(&layout, zeroing.next) {
                begun.push((zeroing.next, ops));
                zeroing.left += 1;
            }
            zeroing.next += 1;
        }
        let (is_over, failed) = (zeroing.left == 0, zeroing.failed);
        for (number, ops) in begun {
            let operation = self.operation(ino, number, ops, Vec::new());
            self.operations.push_back((operation, For::Call(call, 0)));
        }
        if !is_over {
            return;
        }
        self.transfers.remove(&call);
        // Also after an error: some of it may have been executed.
        self.cache.drop_clean(ino);
        let stamp = self.stamp();
        self.dirtied(ino, stamp);
        let file = self
            .files
            .get_mut(&ino)
            .expect("files with writes under way are kept");
        file.resizing = false;
        self.end(call, failed.map_or(Ok(Given::Done), Err));
        self.write_ended(ino, out);
    }
    /// An object has been changed, or failed.
    pub(super) fn on_zeroed(
        &mut self,
        call: CallId,
        result: Result<Done, Failure>,
        out: &mut Vec<Output>,
    ) {
        let Some(Transfer::Zero(zeroing)) = self.transfers.get_mut(&call) else {
            return;
        };
        zeroing.left -= 1;
        match result {
            // A hole.
            Ok(_) | Err(Failure::Refused(OpFailure::NotFound {} | OpFailure::Guard { .. })) => {}
            Err(why) => _ = zeroing.failed.get_or_insert_with(|| errno_of(&why)),
        }
        self.go_on_zeroing(call, out);
    }

    /// Makes a file at least this large.
    pub(super) fn extend(&mut self, call: CallId, ino: Ino, size: u64, out: &mut Vec<Output>) {
        let file = &self.files[&ino];
        if size > file.layout.data_max() {
            return self.end(call, Err(EFBIG));
        }
        if size <= file.size {
            return self.end(call, Ok(Given::Done));
        }
        if file.writes > 0 || !self.is_written(ino, out) {
            return self.put_off(ino, call, Ask::Extend { ino, size });
        }
        self.tell_time(ino, u64::MAX, out);
        self.files.get_mut(&ino).expect("just seen").resizing = true;
        // A file that others write, too, may be larger by then, and must not become smaller.
        let grows = if self.files[&ino].cap.buffers() {
            FsCall::Set {
                ino,
                changes: FsChanges {
                    size: Some(size),
                    ..FsChanges::default()
                },
            }
        } else {
            FsCall::Wrote {
                ino,
                size,
                mtime: self.stamp(),
            }
        };
        self.request(grows, Purpose::Extended(call, ino), out);
    }
}
