//! Data that is written later: when there is much of it, when it is old, when a caller or the
//! server wants it written.
//!
//! ```text
//!  write ─▶ cache, dirty ─▶ flush: objects ─▶ written ─▶ Wrote: how large, and when
//!                 │ an object full, a second old, too much of all files, Sync, the last close a moment ago, FsCaps
//! ```
//! Data goes to objects first and the size to the server then, as with each write of a file that
//! several have open; where data from before a truncation may lie, the size first.
//!
//! Once the journal has it that this client is writing a file, a caller that synchronizes it waits
//! for its objects only: if the client dies, the server looks at these (`mds/probing.rs`). How
//! large the file is goes to the journal with what comes next.
//!
//! A caller that propagates (`lazy`) waits for objects and the server's answer, and not for the
//! journal.
//!
//! Invariants: what a caller synchronizes is written, and known to be, before it is told so; what
//! cannot be written is an error of the next call that asks.

#[cfg(test)]
#[path = "flushing_test.rs"]
mod tests;

use super::*;
use crate::cache::RunId;
use crate::file::Made;
use crate::session::Moment;

/// Writes to a file that found no room fail at once for so long.
const FULL: Duration = Duration::from_secs(2);
/// What is dirty is written after so long.
pub(super) const AFTER: Duration = Duration::from_secs(1);
/// The last close of a file waits so long, or for so many files, before what is dirty of it is
/// written: of many small files all are written together.
const LINGER: Duration = Duration::from_millis(100);
const CLOSED_MAX: usize = 256;
/// Bytes of a file in one flush.
const AT_ONCE: usize = 16 << 20;

/// Adjacent bytes of a file on their way to objects.
#[derive(Debug)]
pub(super) struct Flush {
    ino: Ino,
    run: RunId,
    /// First byte, and the one behind the last.
    range: (u64, u64),
    left: usize,
    failed: Option<u16>,
}

/// A call that waits until what is dirty is written.
#[derive(Debug)]
pub(super) struct Syncing {
    call: CallId,
    /// Of one file, or of all.
    ino: Option<Ino>,
    /// Where what was to be written to each ended, when it was begun.
    files: BTreeMap<Ino, u64>,
    /// Flushes up to this.
    up_to: u64,
    /// What was being written already when it came may have been written over since: that is
    /// flushed then.
    again: bool,
    until: Until,
}

/// What a call waits for whose data is in objects.
#[derive(Clone, Debug)]
pub(super) enum Until {
    /// All that was done by then is safe.
    Safe,
    /// The server knows how large the file is. What is kept of these bytes is forgotten then.
    Told(Ino, Option<Range<u64>>),
}

/// A call whose data is in objects, and waits until what was done by then is safe.
#[derive(Debug)]
pub(super) struct Unsafe {
    call: CallId,
    ino: Option<Ino>,
    moment: Moment,
    /// Also those that say what was written: the journal does not have it yet that the file is.
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

    /// Takes data that is written later.
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

    /// Keeps what is written; how large the file's objects are.
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

    /// Begins to write what is dirty of a file.
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
    /// The server is to know where it ends before it is written.
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
    /// Tells the server where what is in objects ends, if it is time.
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
    /// The server has taken what it was told, or has not: what waited for that is written.
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
    /// Whether what is dirty of a file that is being closed is written a little later, with others.
    /// It stays open until then, so that others who want it are told of it.
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
    /// Files that were closed a moment ago are written.
    fn write_closed(&mut self, out: &mut Vec<Output>) {
        if self.now >= self.closed_at {
            self.closed_at = Time::MAX;
            for ino in std::mem::take(&mut self.closed) {
                if self.sessions.is_open(rank_of(ino)) {
                    // The close goes on when that is done.
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
    /// The server knows how large it will be, or does not want it.
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
    /// An object has been written, or cannot be.
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
        // In another session how it ends is of no interest.
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
                    // What comes before it may still be on its way.
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
    /// Some of a file cannot be written: that is lost, and reads as zeros, or what was there
    /// before; the rest goes on, and the file is as large as it was made. So all that lies in
    /// objects lies within its size, and goes with it.
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
    /// The server does not take what a file is to become: all that is not on its way to objects is
    /// lost, and its size is what the server says.
    pub(super) fn give_up(&mut self, ino: Ino, errno: u16) {
        let Some(file) = self.files.get_mut(&ino) else {
            return;
        };
        self.losses.failed(ino, errno);
        // What is on its way is waited for: after its close the file may be removed, and objects
        // that are made later would stay.
        let flushes = std::mem::take(&mut file.flushes);
        file.abandon();
        file.flushes = flushes;
        self.cache.forget(ino);
        // Its size is another one now.
        self.lent.take_back(self.now, ino);
    }
    /// Writes that waited until less is dirty.
    pub(super) fn let_write(&mut self) {
        if self.cache.dirty() < self.config.dirty_max as u64 {
            while let Some((call, write)) = self.throttled.pop_back() {
                self.put_back(call, write);
            }
        }
    }
    /// Whether nothing of a file is dirty, and the server knows what it was told of it: it may do
    /// what is asked next before that. If there is something, it is being written from now on.
    pub(super) fn is_written(&mut self, ino: Ino, out: &mut Vec<Output>) -> bool {
        self.flush(ino, out);
        let is_told = |file: &File| file.flushes.is_empty() && !file.growing && !file.is_telling();
        self.cache.dirty_of(ino) == 0 && self.files.get(&ino).is_none_or(is_told)
    }

    /// Tells the server how large a file is and when it was written, if it does not know. All up to
    /// `end` is in objects.
    pub(super) fn tell_time(&mut self, ino: Ino, end: u64, out: &mut Vec<Output>) {
        let up_to = (self.cache.dirty_of(ino) > 0).then_some(end);
        if let Some(file) = self.files.get_mut(&ino)
            && let Some((size, mtime)) = file.tell(up_to)
        {
            file.begin_telling();
            self.request(FsCall::Wrote { ino, size, mtime }, Purpose::Told(ino), out);
        }
    }

    /// What is old is written, and what is written told.
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
    /// Begins to write what is dirty of a file, or of all, for a call.
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
    /// Begins to write what is dirty of a file; where that ends.
    fn flush_to(&mut self, ino: Ino, out: &mut Vec<Output>) -> u64 {
        self.flush(ino, out);
        self.files.get(&ino).map_or(0, File::written_to)
    }
    /// Calls whose data is written go on.
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
                // What waits until the file may grow has no number yet.
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
                // Of a file that is known to be written the server is told within a second, or when
                // it is larger: that may be refused.
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
        // What was answered is safe now, or lost.
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
