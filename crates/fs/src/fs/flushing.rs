//! Delayed writes: data is written when there is much of it, when it is old, or when a caller or
//! the server wants it written.
//!
//! ```text
//!  write ─▶ cache, dirty ─▶ flush: objects ─▶ written ─▶ Wrote: how large, and when
//!                 │ a full object, a second old, too much over all files, Sync, shortly after the last close, FsCaps
//! ```
//! First data is written to objects, then the size is reported to the server, as for each write of
//! a shared file; where old data from before a truncation may remain, the size is reported first.
//!
//! Once the journal records that this client is writing a file, a caller that synchronizes it waits
//! for its objects only: if the client dies, the server examines these (`mds/probing.rs`). The
//! file's size goes to the journal with the next report.
//!
//! A caller that propagates (`lazy`) waits for objects and the server's answer, but not for the
//! journal.
//!
//! Invariants: what a caller synchronizes is written, and known to be, before the caller is told
//! so; a failed write is an error of the next call that asks.

#[cfg(test)]
#[path = "flushing_test.rs"]
mod tests;

use super::*;
use crate::cache::RunId;
use crate::file::Made;
use crate::session::Moment;

/// How long writes to a file fail at once after the cluster was full.
const FULL: Duration = Duration::from_secs(2);
/// Age at which dirty data is written.
pub(super) const AFTER: Duration = Duration::from_secs(1);
/// How long, or for how many files, writing dirty data is delayed after the last close: many small
/// files are written together.
const LINGER: Duration = Duration::from_millis(100);
const CLOSED_MAX: usize = 256;
/// Most bytes of a file in one flush.
const AT_ONCE: usize = 16 << 20;

/// Adjacent bytes of a file being written to objects.
#[derive(Debug)]
pub(super) struct Flush {
    ino: Ino,
    run: RunId,
    /// First byte, and the end, excluded.
    range: (u64, u64),
    left: usize,
    failed: Option<u16>,
}

/// A call that waits until dirty data is written.
#[derive(Debug)]
pub(super) struct Syncing {
    call: CallId,
    /// For one file, or for all.
    ino: Option<Ino>,
    /// For each file, the end of its dirty data when the call began.
    files: BTreeMap<Ino, u64>,
    /// Flushes up to this one.
    up_to: u64,
    /// Data that was already being written when the call began may have been overwritten since: it
    /// is flushed again.
    again: bool,
    until: Until,
}

/// What a call waits for after its data is in objects.
#[derive(Clone, Debug)]
pub(super) enum Until {
    /// Everything done by then is safe.
    Safe,
    /// The server knows the file's size. The cached data of this range is dropped then.
    Told(Ino, Option<Range<u64>>),
}

/// A call whose data is in objects, and that waits until everything done by then is safe.
#[derive(Debug)]
pub(super) struct Unsafe {
    call: CallId,
    ino: Option<Ino>,
    moment: Moment,
    /// Includes reports of writes, because the journal does not yet record that the file is being
    /// written.
    all: bool,
}

impl Fs {
    pub(super) const fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
    /// A file was written, and its server has not been told.
    pub(super) fn dirtied(&mut self, ino: Ino, stamp: Stamp) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.dirty = Some(stamp);
            self.flush_at = self.flush_at.min(self.now + AFTER);
        }
    }

    /// Accepts data that is written later.
    pub(super) fn buffer(
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
        if self.files[&ino].has_no_room(self.now) {
            return self.end(call, Err(ENOSPC));
        }
        let object = self.keep_written(ino, offset, end, &data);
        self.end(call, Ok(Given::Done));
        if self.cache.untaken_of(ino) >= object {
            self.flush(ino, out);
        }
    }

    /// Caches written data; returns the size of the file's objects.
    pub(super) fn keep_written(&mut self, ino: Ino, offset: u64, end: u64, data: &Bytes) -> u64 {
        let stamp = self.stamp();
        self.cache.write(ino, offset, data);
        let file = self.files.get_mut(&ino).expect("it is open");
        file.writes_from(offset);
        file.size = file.size.max(end);
        file.writes_to(end);
        let object = u64::from(file.layout.object);
        self.dirtied(ino, stamp);
        object
    }

    /// Begins to write dirty data of a file.
    pub(super) fn flush(&mut self, ino: Ino, out: &mut Vec<Output>) {
        let Some(file) = self.files.get_mut(&ino) else {
            return;
        };
        if file.growing {
            return;
        }
        if self.cache.untaken_of(ino) == 0 {
            file.waits_to_tell = false;
            return;
        }
        if file.made != Made::Known {
            file.made = Made::Wanted;
            return;
        }
        if file.is_stale_at(file.written_to()) {
            return self.tell_first(ino, out);
        }
        let reach = file.reach();
        loop {
            let runs = self.cache.take_dirty(ino, 0..reach, AT_ONCE);
            if runs.is_empty() {
                break;
            }
            for run in runs {
                let number = self.next_number();
                let length: usize = run.parts.iter().map(Bytes::len).sum();
                let range = (run.offset, run.offset + length as u64);
                let left = self.write_objects(ino, run.offset, &run.parts, || For::Flush(number));
                self.flushes.insert(
                    number,
                    Flush {
                        ino,
                        run: run.id,
                        range,
                        left,
                        failed: None,
                    },
                );
                self.files
                    .get_mut(&ino)
                    .expect("just seen")
                    .flushes
                    .insert(number);
            }
        }
        let is_left = self.cache.untaken_of(ino) > 0;
        let file = self.files.get_mut(&ino).expect("just seen");
        file.waits_to_tell = is_left;
        if is_left && !self.tell_flushed(ino, out) {
            let file = &self.files[&ino];
            if file.unsafe_by().is_some() {
                self.hurry(ino, out);
            } else if file.flushes.is_empty() && !file.is_telling() {
                // It begins beyond that.
                self.tell_first(ino, out);
            }
        }
    }
    /// The server must know the file's end before it is written.
    fn tell_first(&mut self, ino: Ino, out: &mut Vec<Output>) {
        let file = self.files.get_mut(&ino).expect("just seen");
        file.growing = true;
        let wrote = FsCall::Wrote {
            ino,
            size: file.written_to(),
            mtime: file.dirty.unwrap_or(FS_LARGER_ONLY),
        };
        self.request(wrote, Purpose::Growing(ino), out);
    }
    /// Reports to the server the end of what is in objects, if it is time.
    fn tell_flushed(&mut self, ino: Ino, out: &mut Vec<Output>) -> bool {
        let Some(size) = self.files.get_mut(&ino).and_then(File::tell_flushed) else {
            return false;
        };
        self.request(
            FsCall::Wrote {
                ino,
                size,
                mtime: FS_LARGER_ONLY,
            },
            Purpose::Told(ino),
            out,
        );
        true
    }
    /// The server has accepted a report, or refused it: data that waited for that is written.
    pub(super) fn told(&mut self, ino: Ino, given: Result<FsAnswer, u16>, out: &mut Vec<Output>) {
        let Some(file) = self.files.get_mut(&ino) else {
            return;
        };
        match given {
            Err(errno) if file.waits_to_tell => self.give_up(ino, errno),
            Err(errno) => {
                self.losses.failed(ino, errno);
                self.lent.take_back(self.now, ino);
            }
            Ok(_) if file.waits_to_tell => self.flush(ino, out),
            Ok(_) => {}
        }
        self.settle(ino, out);
    }
    /// Whether dirty data of a file being closed is written a little later, with others. The file
    /// stays open until then, so that other clients that want it cause a recall.
    pub(super) fn lingers(&mut self, ino: Ino) -> bool {
        let dirty = self.cache.dirty_of(ino);
        let Some(file) = self.files.get(&ino) else {
            return false;
        };
        let is_free =
            file.recall.is_none() && file.flushes.is_empty() && !file.growing && !file.resizing;
        let lingers = dirty > 0 && dirty < u64::from(file.layout.object) && is_free;
        if !lingers
            || self.is_stopping()
            || self.closed.contains(&ino) && self.now >= self.closed_at
        {
            return false;
        }
        self.closed.insert(ino);
        let at = if self.closed.len() < CLOSED_MAX {
            self.now + LINGER
        } else {
            self.now
        };
        self.closed_at = self.closed_at.min(at);
        true
    }
    /// Writes files that were closed a moment ago.
    fn write_closed(&mut self, out: &mut Vec<Output>) {
        if self.now >= self.closed_at {
            self.closed_at = Time::MAX;
            for ino in std::mem::take(&mut self.closed) {
                if self.sessions.is_open(rank_of(ino)) {
                    // The close continues when that is done.
                    self.flush(ino, out);
                } else {
                    self.closed.insert(ino);
                    self.closed_at = self.now + LINGER;
                }
            }
        }
    }
    pub(super) fn flush_all(&mut self, out: &mut Vec<Output>) {
        let is_open = |ino: &Ino| self.sessions.is_open(rank_of(*ino));
        let all: Vec<Ino> = self.cache.dirty_files().filter(is_open).collect();
        all.into_iter().for_each(|ino| self.flush(ino, out));
    }
    /// The server knows the future size, or refuses it.
    pub(super) fn grown(&mut self, ino: Ino, given: Result<FsAnswer, u16>, out: &mut Vec<Output>) {
        let Some(file) = self.files.get_mut(&ino) else {
            return;
        };
        file.growing = false;
        match given {
            Ok(_) => self.flush(ino, out),
            Err(errno) => self.give_up(ino, errno),
        }
        self.settle(ino, out);
    }
    /// An object has been written, or failed.
    pub(super) fn on_flushed(
        &mut self,
        number: u64,
        result: Result<(), u16>,
        out: &mut Vec<Output>,
    ) {
        let Some(flush) = self.flushes.get_mut(&number) else {
            return;
        };
        flush.left -= 1;
        flush.failed = flush.failed.or(result.err());
        if flush.left > 0 {
            return;
        }
        let Flush {
            ino,
            run,
            range,
            failed,
            ..
        } = self.flushes.remove(&number).expect("just seen");
        match failed {
            Some(_) => self.cache.failed(ino, run),
            None => self.cache.written(ino, run),
        }
        // In another session its result does not matter.
        if self
            .files
            .get_mut(&ino)
            .is_some_and(|file| file.flushes.remove(&number))
        {
            if let Some(errno) = failed {
                self.unwritten(ino, errno);
            }
            if let Some(file) = self.files.get_mut(&ino) {
                if file.is_news(range.1) {
                    // Earlier data may still be in flight.
                    let others = file
                        .flushes
                        .iter()
                        .map(|number| self.flushes[number].range.0);
                    file.flushed(others.min().map_or(range.1, |begin| begin.min(range.1)));
                }
                if !self.tell_flushed(ino, out) && self.files[&ino].waits_to_tell {
                    self.flush(ino, out);
                }
            }
            self.settle(ino, out);
        }
    }
    /// Some of a file cannot be written: that data is lost, and reads as zeros or as old data; the
    /// rest continues, and the file keeps its size. So all data in objects lies within the file's
    /// size, and is removed with it.
    fn unwritten(&mut self, ino: Ino, errno: u16) {
        let Some(file) = self.files.get_mut(&ino) else {
            return;
        };
        self.losses.failed(ino, errno);
        if errno == ENOSPC {
            file.full_until = self.now + FULL;
        }
        self.lent.take_back(self.now, ino);
    }
    /// The server refuses a file's future state: everything not being written to objects is lost,
    /// and its size is the server's.
    pub(super) fn give_up(&mut self, ino: Ino, errno: u16) {
        let Some(file) = self.files.get_mut(&ino) else {
            return;
        };
        self.losses.failed(ino, errno);
        // What is in flight is waited for: after its close the file may be removed, and objects
        // created later would remain.
        let flushes = std::mem::take(&mut file.flushes);
        file.abandon();
        file.flushes = flushes;
        self.cache.forget(ino);
        // Its size has changed.
        self.lent.take_back(self.now, ino);
    }
    /// Continues writes that waited for less dirty data.
    pub(super) fn let_write(&mut self) {
        if self.cache.dirty() < self.config.dirty_max as u64 {
            while let Some((call, write)) = self.throttled.pop_back() {
                self.put_back(call, write);
            }
        }
    }
    /// Whether nothing of a file is dirty, and the server has confirmed all reports: otherwise it
    /// might execute the next request first. If there is dirty data, it is now being written.
    pub(super) fn is_written(&mut self, ino: Ino, out: &mut Vec<Output>) -> bool {
        self.flush(ino, out);
        let is_told = |file: &File| file.flushes.is_empty() && !file.growing && !file.is_telling();
        self.cache.dirty_of(ino) == 0 && self.files.get(&ino).is_none_or(is_told)
    }

    /// Reports to the server the size of a file and when it was written, if it does not know.
    /// Everything up to `end` is in objects.
    pub(super) fn tell_time(&mut self, ino: Ino, end: u64, out: &mut Vec<Output>) {
        let up_to = (self.cache.dirty_of(ino) > 0).then_some(end);
        if let Some(file) = self.files.get_mut(&ino)
            && let Some((size, mtime)) = file.tell(up_to)
        {
            file.begin_telling();
            self.request(FsCall::Wrote { ino, size, mtime }, Purpose::Told(ino), out);
        }
    }

    /// Writes old dirty data, and reports what is written.
    pub(super) fn write_back(&mut self, out: &mut Vec<Output>) {
        if !self.sessions.is_any_open() {
            return;
        }
        self.write_closed(out);
        if self.now < self.flush_at {
            return;
        }
        self.flush_all(out);
        let untold = |(ino, file): (&Ino, &File)| {
            let is_free = file.recall.is_none() && file.flushes.is_empty() && !file.resizing;
            (file.dirty.is_some() && is_free && self.sessions.is_open(rank_of(*ino)))
                .then_some(*ino)
        };
        let untold: Vec<Ino> = self.files.iter().filter_map(untold).collect();
        for ino in untold {
            if self.cache.dirty_of(ino) == 0 {
                self.tell_time(ino, u64::MAX, out);
            }
        }
        let left = self.cache.dirty() > 0 || self.files.values().any(|file| file.dirty.is_some());
        self.flush_at = if left { self.now + AFTER } else { Time::MAX };
    }

    // ── callers that wait for it ────────────────────────────────────────────────────────

    pub(super) fn sync(&mut self, call: CallId, ino: Option<Ino>, out: &mut Vec<Output>) {
        self.send_foretold(out);
        self.sync_until(call, ino, Until::Safe, out);
    }
    /// Begins to write the dirty data of a file, or of all files, for a call.
    pub(super) fn sync_until(
        &mut self,
        call: CallId,
        ino: Option<Ino>,
        until: Until,
        out: &mut Vec<Output>,
    ) {
        let files: Vec<Ino> = match ino {
            Some(ino) => vec![ino],
            None => self.files.keys().copied().collect(),
        };
        let files = files
            .into_iter()
            .map(|ino| (ino, self.flush_to(ino, out)))
            .collect();
        self.syncing.push(Syncing {
            call,
            ino,
            files,
            up_to: self.last_number,
            again: true,
            until,
        });
    }
    /// Begins to write the dirty data of a file; returns its end.
    fn flush_to(&mut self, ino: Ino, out: &mut Vec<Output>) -> u64 {
        self.flush(ino, out);
        self.files.get(&ino).map_or(0, File::written_to)
    }
    /// Continues calls whose data is written.
    pub(super) fn go_on_syncing(&mut self, out: &mut Vec<Output>) {
        let all = std::mem::take(&mut self.syncing);
        for mut syncing in all {
            if !self.is_synced(&syncing) {
                self.syncing.push(syncing);
                continue;
            }
            if std::mem::take(&mut syncing.again) {
                for (ino, end) in &mut syncing.files {
                    *end = self.flush_to(*ino, out);
                }
                syncing.up_to = self.last_number;
                // Data that waits until the file may grow has no flush number yet.
                let waits = |ino: &Ino| self.files.get(ino).is_some_and(File::waits_to_write);
                syncing.again = syncing.files.keys().any(waits);
                if !self.is_synced(&syncing) {
                    self.syncing.push(syncing);
                    continue;
                }
            }
            if let Until::Told(ino, _) = &syncing.until
                && self.files.get(ino).is_some_and(File::is_telling)
            {
                self.syncing.push(syncing);
                continue;
            }
            let Syncing {
                call,
                ino,
                files,
                until,
                ..
            } = syncing;
            if let Until::Told(ino, forgets) = until {
                self.tell_propagated(call, ino, (files[&ino], forgets), out);
                continue;
            }
            if let Some(errno) = self.losses.take(ino) {
                self.end(call, Err(errno));
                continue;
            }
            let mut all = ino.is_none();
            for (ino, end) in files {
                let file = self.files.get(&ino);
                let is_known = file.is_some_and(File::is_known);
                all |= !is_known;
                // For a file recorded as being written the server is told within a second, or when
                // it is larger, which may be refused.
                if !is_known || file.is_some_and(File::is_longer) {
                    self.tell_time(ino, end, out);
                }
            }
            let moment = self.sessions.moment(ino);
            if !self.sessions.is_safe_at(&moment, !all) {
                self.sessions.sync(out);
            }
            self.syncs.push(Unsafe {
                call,
                ino,
                moment,
                all,
            });
        }
        // Answered requests are safe now, or lost.
        let sessions = &self.sessions;
        let is_over = |sync: &mut Unsafe| sessions.is_safe_at(&sync.moment, !sync.all);
        let over: Vec<Unsafe> = self.syncs.extract_if(.., is_over).collect();
        for Unsafe { call, ino, .. } in over {
            let outcome = self.losses.take(ino).map_or(Ok(Given::Done), Err);
            self.end(call, outcome);
        }
    }
    fn is_synced(&self, syncing: &Syncing) -> bool {
        let is_written = |file: &File| {
            !file.waits_to_write() && file.flushes.range(..=syncing.up_to).next().is_none()
        };
        syncing
            .files
            .keys()
            .all(|ino| self.files.get(ino).is_none_or(is_written))
    }
}
