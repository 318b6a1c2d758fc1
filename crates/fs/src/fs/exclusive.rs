//! Writes of files that other clients have open as well and that must not meet theirs: one client
//! at a time has such a file alone (CEPH-08, -09).
//!
//! ```text
//!  Append, or a Write into several objects ─▶ queued ─▶ Alone: all others are excluded from the file
//!     ─▶ one after another: to objects ─▶ answered
//!                          or large ─▶ larger? Wrote ─▶ cached as dirty data ─▶ answered ─▶ to objects
//!     ─▶ none left, or others' turn: everything is in objects and reported ─▶ Alone has ended
//! ```
//! A client with `Buffer` does not need this, and neither does a write into one object, which is
//! atomic there. Several objects each take their part when it arrives, so others would see one half
//! of a write, and of two writes each could win in one object. Appends go to the file's end, which
//! only one client at a time knows.
//!
//! A client that is excluded first ends its writes, and the reads that need more than one
//! operation: such a read would find one object before and the next one after a write. Other calls
//! of the client that has the file alone wait like those of others.
//!
//! Data that is answered before it is written is lost with its client, or is an error of `fsync`,
//! like all dirty data. A client that dies leaves a partial write, and so does a full cluster. Each
//! call is one write: a kernel splits a write that is larger than its limit.
//!
//! Invariants: others are excluded from the first byte of such a write until all of it is in
//! objects, and reported if the file has become larger; such writes never overlap in time.

#[cfg(test)]
#[path = "exclusive_test.rs"]
mod tests;

use super::*;
use crate::file::Alone;
use crate::pieces::spans;

/// Most such writes in a row: then it is others' turn.
const IN_A_ROW: u32 = 32;

impl Fs {
    /// Whether a call writes to several objects of a file that others may also have open.
    #[nacre_types::planted]
    pub(super) fn is_exclusive(&self, ino: Ino, ask: &Ask) -> bool {
        let (Some(file), Ask::Write { offset, data, .. }) = (self.files.get(&ino), ask) else {
            return false;
        };
        let end = offset.saturating_add(data.len() as u64);
        // Delayed writes are not atomic anyway.
        !file.is_lazy() && file.cap < (FsCap::Cache {}) && spans(&file.layout, *offset, end)
    }

    /// Queues a write that needs exclusive access.
    pub(super) fn queue_exclusive(
        &mut self,
        call: CallId,
        ino: Ino,
        ask: Ask,
        out: &mut Vec<Output>,
    ) {
        let Some(file) = self.files.get_mut(&ino) else {
            return self.end(call, Err(EBADF));
        };
        file.exclusive.push_back((call, ask));
        self.go_on_exclusive(ino, out);
    }

    /// Performs the steps that are possible now.
    pub(super) fn go_on_exclusive(&mut self, ino: Ino, out: &mut Vec<Output>) {
        while self.exclusive_step(ino, out) {}
    }
    /// One step; returns whether more may be possible.
    fn exclusive_step(&mut self, ino: Ino, out: &mut Vec<Output>) -> bool {
        let Some(file) = self.files.get_mut(&ino) else {
            return false;
        };
        if file.cap.buffers() {
            // The others have closed it.
            file.put_back_exclusive(ino, &mut self.queue);
        }
        if file.resizing || file.recall.is_some() {
            return false;
        }
        // I/O in progress when others begin to wait ends first, like theirs.
        let is_busy = file.writes > 0 || file.reads > 0;
        match file.alone {
            Alone::No if !file.exclusive.is_empty() => {
                file.alone = Alone::Asked;
                file.in_a_row = 0;
                self.request(FsCall::Alone { ino, ends: false }, Purpose::Alone(ino), out);
                false
            }
            Alone::Yes if is_busy => false,
            // Its size is not known any more: it is in the answer for the next turn.
            Alone::Yes
                if file.exclusive.is_empty() || file.in_a_row >= IN_A_ROW || !file.is_fresh =>
            {
                self.end_turn(ino, out)
            }
            Alone::Yes if file.cap.is_shared() => self.next_exclusive(ino, out),
            Alone::No | Alone::Asked | Alone::Yes => false,
        }
    }

    /// Begins the next write; returns whether another one may begin.
    fn next_exclusive(&mut self, ino: Ino, out: &mut Vec<Output>) -> bool {
        let file = &self.files[&ino];
        let (offset, data, appends) = match file.exclusive.front() {
            Some((_, Ask::Append { data, .. })) => (file.size, data.clone(), true),
            Some((_, Ask::Write { offset, data, .. })) => (*offset, data.clone(), false),
            _ => return false,
        };
        if file.may_wait(offset.saturating_add(data.len() as u64)) {
            // If it were deferred with its offset, it would be written there during others' turn.
            self.hurry(ino, out);
            return false;
        }
        // The server is told first how large such a write makes the file. For an append this would
        // be wrong: if its client died then, a log would have zeros where a record was to be.
        let is_early = !appends
            && self.is_answered_early(ino, offset, &data)
            && !self.files[&ino].has_no_room(self.now)
            && self.cache.dirty() < self.config.dirty_max as u64;
        // Earlier answered writes may concern the same bytes.
        if !is_early && !self.is_all_written(ino) {
            self.flush(ino, out);
            return false;
        }
        let file = self.files.get_mut(&ino).expect("just seen");
        let Some((call, _)) = file.exclusive.pop_front() else {
            return false;
        };
        file.in_a_row += 1;
        if is_early {
            self.write_early(call, ino, offset, data, out);
        } else {
            self.write_now(call, ino, offset, data, out);
        }
        true
    }
    /// Whether nothing of a file is dirty.
    fn is_all_written(&self, ino: Ino) -> bool {
        let is_idle = |file: &File| file.flushes.is_empty() && !file.growing;
        self.cache.dirty_of(ino) == 0 && self.files.get(&ino).is_none_or(is_idle)
    }

    /// Ends the turn once everything written is in objects and the file's size is reported; returns
    /// whether that is so.
    fn end_turn(&mut self, ino: Ino, out: &mut Vec<Output>) -> bool {
        let keeps = self.files[&ino].cap >= FsCap::Cache {};
        if !keeps && !self.is_with_others(ino, out) {
            return false;
        }
        let file = self.files.get_mut(&ino).expect("just seen");
        file.alone = Alone::No;
        if !keeps {
            file.is_fresh = false;
            self.cache.drop_clean(ino);
        }
        self.request(FsCall::Alone { ino, ends: true }, Purpose::Said, out);
        self.let_go(ino);
        true
    }

    /// Whether everything written is in objects and the file's size is reported; sees to it.
    #[nacre_types::planted]
    fn is_with_others(&mut self, ino: Ino, out: &mut Vec<Output>) -> bool {
        if !self.is_written(ino, out) {
            return false;
        }
        if self.files[&ino].is_longer() {
            self.tell_time(ino, u64::MAX, out);
        }
        !self.files[&ino].is_telling()
    }

    // ── answered before it is written ───────────────────────────────────────────────────

    /// Whether this client has the file alone for a write so large that its caller need not wait
    /// for it.
    pub(super) fn is_answered_early(&self, ino: Ino, offset: u64, data: &Bytes) -> bool {
        let is_large = data.len() > self.config.early_above;
        let is_alone = |file: &File| {
            file.alone == Alone::Yes
                && spans(
                    &file.layout,
                    offset,
                    offset.saturating_add(data.len() as u64),
                )
        };
        is_large && self.files.get(&ino).is_some_and(is_alone)
    }
    /// Begins a write that its caller does not wait for.
    fn write_early(
        &mut self,
        call: CallId,
        ino: Ino,
        offset: u64,
        data: Bytes,
        out: &mut Vec<Output>,
    ) {
        let Some(end) = self.end_of(call, ino, offset, &data) else {
            return;
        };
        let stamp = self.stamp();
        let file = self.files.get_mut(&ino).expect("just seen");
        if !file.is_beyond(end) {
            return self.keep_early(call, ino, offset, &data, out);
        }
        // The server must have room for it, and must not mistake it for data left by an evicted
        // client.
        file.writes += 1;
        file.writes_from(offset);
        let wrote = FsCall::Wrote {
            ino,
            size: end,
            mtime: stamp,
        };
        self.request(wrote, Purpose::Grown(call, ino, offset, data), out);
    }
    /// Answers, and begins to write.
    pub(super) fn keep_early(
        &mut self,
        call: CallId,
        ino: Ino,
        offset: u64,
        data: &Bytes,
        out: &mut Vec<Output>,
    ) {
        self.keep_written(ino, offset, offset + data.len() as u64, data);
        self.end(call, Ok(Given::Done));
        self.flush(ino, out);
    }

    // ── what the server says ────────────────────────────────────────────────────────────

    /// The server has answered that others are excluded, or why not.
    pub(super) fn alone(&mut self, ino: Ino, given: Result<FsAnswer, u16>, out: &mut Vec<Output>) {
        let Some(file) = self.files.get_mut(&ino) else {
            return;
        };
        match given {
            Ok(_) => (file.alone, file.is_fresh) = (Alone::Yes, true),
            Err(errno) => {
                file.alone = Alone::No;
                for (call, _) in std::mem::take(&mut file.exclusive) {
                    self.end(call, Err(errno));
                }
            }
        }
        self.settle(ino, out);
    }
}
