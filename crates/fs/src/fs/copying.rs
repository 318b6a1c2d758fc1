//! Copying a range of one file into another, like `copy_file_range`: OSDs copy whole objects among
//! themselves, and the data does not pass through this client.
//!
//! ```text
//!  Copy ─▶ what comes next? ─┬─ whole objects ─▶ both written ─▶ far? Wrote ─▶ CopyFrom, 4 at a time
//!              ▲             │                            target's clean data   │     └ hole: Delete
//!              │             │                            is dropped ◀──────────┘
//!              │             └─ by hand ─▶ Read ─▶ Write ─┐   │
//!              └──────────────────────────────────────────┴───┘
//! ```
//! Objects match one to one if both files have the same layout and both offsets have the same
//! position in it. They are copied in sets: one object each of those that are filled in turn (a
//! single one if files are not striped). A set that the range covers only partly is copied by hand,
//! unless the source ends there and the target not later: then nothing of the target's objects is
//! lost. The first set of either file is also copied by hand, because the first object has the
//! file's backpointer, and a copy gets all attributes of its source.
//!
//! Objects are copied only while this client may cache the source (`Cache` or more) and delay
//! writes of the target, below a quota as far as it has room. Everything else is copied by hand,
//! through the same reads and writes that callers make: those wait for capabilities, room and
//! servers, and get the errors of a write.
//!
//! Orders that matter:
//! * Dirty data of the source is written to objects first, or older data would be copied; dirty
//!   data of the target too, or it would overwrite the copy later.
//! * The server is told the target's future size before an object is created where it would not be
//!   found if this client and the server died ([`File::is_far`]), or where the server still removes
//!   truncated data.
//! * The size known to this client grows even after an error, as far as objects were begun: all
//!   data in objects lies within its file's size, and is removed with the file.
//!
//! Invariants: while objects are copied neither file is given back, closed or truncated, and
//! nothing reads or writes the target; no object is begun under a capability that has ended
//! meanwhile; every byte reported to a caller was copied.

#[cfg(test)]
#[path = "copying_test.rs"]
mod tests;

use super::*;
use crate::file::{Alone, Made};

/// Objects of a call that are copied at a time: each one takes memory of an OSD, and waits there
/// for one of the eight slots for sources (`osd/src/pg/copy.rs`).
const AT_ONCE: usize = 4;
/// Most bytes copied by one call: callers request the rest. Recalls of both files wait for it: a
/// cluster that copies 64 MiB/s makes another client wait for a second, a typical one for a tenth
/// of that. With objects of 4 MiB these are 15 or 16 objects, enough to amortise the request that
/// reports the file's future size to the server.
const CALL_MAX: u64 = 64 << 20;
/// Bytes that are read and written by hand at a time: they are in this client's memory.
const BY_HAND: u64 = 4 << 20;
/// Longest wait for a file that keeps getting dirty: then the next piece is copied by hand, which
/// includes dirty data.
const PATIENCE: Duration = Duration::from_secs(2);

/// The rest of a range to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    from: Ino,
    offset: u64,
    to: Ino,
    at: u64,
    left: u64,
}

/// A call that copies.
#[derive(Debug)]
struct Copying {
    range: Span,
    copied: u64,
    /// Since when it has waited for dirty data to be written.
    waits_since: Option<Time>,
    /// Bytes being read or written by hand, and whether the source ends with them.
    by_hand: u64,
    is_last: bool,
}

/// Copying calls, and their reads and writes.
#[derive(Debug, Default)]
pub(super) struct Copies {
    calls: BTreeMap<CallId, Copying>,
    /// The call that each belongs to, and whether the data after it is read as well.
    parts: BTreeMap<CallId, (CallId, bool)>,
    ended: VecDeque<(CallId, Outcome)>,
}

impl Copies {
    pub fn is_part(&self, call: CallId) -> bool {
        self.parts.contains_key(&call)
    }
    /// Whether it is a read after which objects are copied.
    pub fn goes_on_inside(&self, call: CallId) -> bool {
        self.parts.get(&call).is_some_and(|(_, goes_on)| !goes_on)
    }
    /// A read or write by hand has ended: its copy continues in this turn.
    pub fn part_ended(&mut self, part: CallId, outcome: Outcome) {
        if let Some((call, _)) = self.parts.remove(&part) {
            self.ended.push_back((call, outcome));
        }
    }
}

/// Objects of a call that are being copied.
#[derive(Debug)]
pub(super) struct CopyingObjects {
    range: Span,
    layout: Layout,
    /// Length of the range in bytes.
    length: u64,
    /// The next object, counted from the range's first one; and the number of objects.
    next: u64,
    count: u64,
    /// Operations in flight.
    left: usize,
    /// Objects for which the source has a hole.
    holes: BTreeSet<u64>,
    /// The first object that could not be copied, and why.
    failed: Option<(u64, u16)>,
    /// The grants of source and target with which it began.
    grants: [u64; 2],
}

impl CopyingObjects {
    /// Whether the source has a hole there: then its copy is deleted.
    #[nacre_types::planted]
    fn is_hole(&self, index: u64) -> bool {
        self.holes.contains(&index)
    }
    /// Numbers of an object of the source, and of its copy.
    fn numbers(&self, index: u64) -> (u64, u64) {
        let first = |place| self.layout.place(place).0;
        (
            first(self.range.offset) + index,
            first(self.range.at) + index,
        )
    }
    /// Bytes of the range up to the end of the set that contains an object; or, excluding the set,
    /// up to its beginning.
    fn bytes(&self, index: u64, with: bool) -> u64 {
        let sets = index / u64::from(self.layout.count) + u64::from(with);
        (sets * period(&self.layout)).min(self.length)
    }
}

/// The next step.
#[derive(Debug)]
enum Next {
    End(Result<(), u16>),
    /// Wait for an event of that file.
    Wait(Ino),
    /// First tell the server the target's future size.
    Grow(u64),
    Objects(u64),
    /// Copy this much by hand; whether more may follow in the same way.
    ByHand(u64, bool),
}

/// Bytes of a file per set of objects.
fn period(layout: &Layout) -> u64 {
    u64::from(layout.object) * u64::from(layout.count)
}

/// How much of a range, from its beginning, consists of whole objects. `source_end`: up to where
/// objects match the source, and whether it ends there; `size`: the target's.
fn whole(layout: &Layout, range: &Span, (source_end, is_end): (u64, bool), size: u64) -> u64 {
    let period = period(layout);
    let begins = |place: u64| place.is_multiple_of(period) && place > 0;
    if !begins(range.offset) || !begins(range.at) {
        return 0;
    }
    let length = range.left.min(source_end.saturating_sub(range.offset));
    let is_tail = is_end && range.offset + length == source_end && range.at + length >= size;
    if is_tail {
        length
    } else {
        length - length % period
    }
}

/// How much is copied by hand before objects can follow: up to the end of a set.
fn head(layout: &Layout, range: &Span) -> u64 {
    range
        .left
        .min(BY_HAND)
        .min(period(layout) - range.offset % period(layout))
}

/// How much can be written at an offset without room that the server may not have: what lies beyond
/// is refused separately. A write is all or nothing, and the target may already be larger, if the
/// server was told so before its objects could not be copied after all (simulated seed 713 of
/// e4226904: the answer was 122, and the file had grown).
fn in_room(target: &File, at: u64, length: u64) -> u64 {
    match target.unasked_to().saturating_sub(at) {
        0 => length,
        room => length.min(room),
    }
}

/// Whether objects of two files match one to one.
fn matches(source: &Layout, target: &Layout, range: &Span) -> bool {
    source == target && range.offset % period(source) == range.at % period(source)
}

/// How much of a range one call copies: it ends with a set, so that the next call begins with
/// objects.
fn bounded(range: &Span, layout: Option<&Layout>) -> u64 {
    if range.left <= CALL_MAX {
        return range.left;
    }
    let rest = layout.map_or(0, |layout| (range.offset + CALL_MAX) % period(layout));
    if rest < CALL_MAX {
        CALL_MAX - rest
    } else {
        CALL_MAX
    }
}

impl Fs {
    /// Begins a copying call, or continues one that waited.
    pub(super) fn copy(
        &mut self,
        call: CallId,
        (from, offset): (Ino, u64),
        (to, at): (Ino, u64),
        length: u64,
        out: &mut Vec<Output>,
    ) {
        for ino in [from, to] {
            if self
                .files
                .get_mut(&ino)
                .is_some_and(|file| file.first.remove(&call))
            {
                self.first_begun(ino, out);
            }
        }
        let is_sized = self.sized.remove(&call);
        if !self.copies.calls.contains_key(&call) {
            if from == to && !is_sized && !self.knows_size(from) {
                // The copy ends where the source ends now: it may grow because of its own copy.
                let Some(grant) = self.files.get(&from).map(|file| file.grants) else {
                    return self.end(call, Err(EBADF));
                };
                let sized = Purpose::Sized(
                    call,
                    Ask::Copy {
                        from,
                        offset,
                        to,
                        at,
                        length,
                    },
                    grant,
                );
                return self.request(FsCall::Stat { ino: from }, sized, out);
            }
            let range = Span {
                from,
                offset,
                to,
                at,
                left: length,
            };
            let left = match self.length_of_copy(range) {
                Ok(left) => left,
                Err(errno) => return self.end(call, Err(errno)),
            };
            let range = Span { left, ..range };
            let copying = Copying {
                range,
                copied: 0,
                waits_since: None,
                by_hand: 0,
                is_last: false,
            };
            self.copies.calls.insert(call, copying);
        }
        self.go_on_copying(call, out);
    }
    /// Whether a file's size is known.
    fn knows_size(&self, ino: Ino) -> bool {
        let keeps = self
            .files
            .get(&ino)
            .is_some_and(|file| file.cap >= FsCap::Cache {} && file.is_fresh);
        keeps || self.knows(ino)
    }
    /// How much of a range a call copies.
    fn length_of_copy(&self, range: Span) -> Result<u64, u16> {
        let (Some(source), Some(target)) = (self.files.get(&range.from), self.files.get(&range.to))
        else {
            return Err(EBADF);
        };
        // No file reaches that far.
        let left = range.left.min(u64::MAX - range.offset.max(range.at));
        let range = Span { left, ..range };
        if range.from == range.to {
            let length = left.min(source.size.saturating_sub(range.offset));
            if range.offset < range.at + length && range.at < range.offset + length {
                return Err(EINVAL);
            }
            return Ok(bounded(
                &Span {
                    left: length,
                    ..range
                },
                Some(&source.layout),
            ));
        }
        let layout = matches(&source.layout, &target.layout, &range).then_some(&source.layout);
        Ok(bounded(&range, layout))
    }

    fn go_on_copying(&mut self, call: CallId, out: &mut Vec<Output>) {
        let Some(Copying { range, .. }) = self.copies.calls.get(&call) else {
            return;
        };
        let range = *range;
        match self.next_of_copy(call, out) {
            Next::End(result) => self.end_copy(call, result.err()),
            Next::Wait(ino) => {
                let Span {
                    from,
                    offset,
                    to,
                    at,
                    left,
                } = range;
                self.put_off(
                    ino,
                    call,
                    Ask::Copy {
                        from,
                        offset,
                        to,
                        at,
                        length: left,
                    },
                );
            }
            Next::Grow(size) => {
                self.begin_objects(&range);
                let wrote = FsCall::Wrote {
                    ino: range.to,
                    size,
                    mtime: self.stamp(),
                };
                self.request(wrote, Purpose::CopyGrown(call), out);
            }
            Next::Objects(length) => self.copy_objects(call, length, out),
            Next::ByHand(length, goes_on) => {
                let length = self
                    .files
                    .get(&range.to)
                    .map_or(length, |target| in_room(target, range.at, length));
                let length = u32::try_from(length).expect("at most BY_HAND");
                let read = Ask::Read {
                    ino: range.from,
                    offset: range.offset,
                    length,
                };
                self.begin_part(call, u64::from(length), read, goes_on);
            }
        }
    }
    fn next_of_copy(&mut self, call: CallId, out: &mut Vec<Output>) -> Next {
        let range = self.copies.calls[&call].range;
        if range.left == 0 {
            return Next::End(Ok(()));
        }
        let (Some(source), Some(target)) = (self.files.get(&range.from), self.files.get(&range.to))
        else {
            return Next::End(Err(EBADF));
        };
        let by_hand = Next::ByHand(range.left.min(BY_HAND), true);
        if !matches(&source.layout, &target.layout, &range) || !self.may_copy_objects(&range) {
            return by_hand;
        }
        if source.resizing || target.resizing {
            return Next::Wait(if source.resizing {
                range.from
            } else {
                range.to
            });
        }
        if target.writes > 0 {
            return Next::Wait(range.to);
        }
        let layout = source.layout;
        let length = self.whole_objects(&range);
        if length == 0 {
            return Next::ByHand(head(&layout, &range), false);
        }
        if let Some(ino) = self.unwritten_of(range.from, range.to, out) {
            let now = self.now;
            let copying = self.copies.calls.get_mut(&call).expect("just seen");
            if now.since(*copying.waits_since.get_or_insert(now)) < PATIENCE {
                return Next::Wait(ino);
            }
            copying.waits_since = None;
            return by_hand;
        }
        if [range.from, range.to]
            .iter()
            .any(|ino| self.files[ino].made != Made::Known)
        {
            return by_hand;
        }
        // After the write the source may have become shorter in objects, according to its server.
        let length = length.min(self.whole_objects(&range));
        let (target, end) = (&self.files[&range.to], range.at + length);
        match length {
            0 => by_hand,
            _ if target.awaits_safe(end) => {
                self.hurry(range.to, out);
                Next::Wait(range.to)
            }
            _ if target.is_far(end) => Next::Grow(end),
            _ => Next::Objects(length),
        }
    }
    /// Whether this client may have objects copied now: no other client changes the source, or
    /// reads the target.
    fn may_copy_objects(&self, Span { from, to, .. }: &Span) -> bool {
        let is_free = |ino: &Ino, needs: fn(&FsCap) -> bool| {
            let file = &self.files[ino];
            needs(&file.cap)
                && file.is_fresh
                && file.recall.is_none()
                && file.alone == Alone::No
                && !self.locking.has_lost(*ino)
                && self.sessions.has_lease(rank_of(*ino), self.now)
        };
        is_free(from, |cap| *cap >= FsCap::Cache {})
            && is_free(to, |cap| cap.buffers())
            && !self.files[to].has_no_room(self.now)
    }
    /// How much of a range, from its beginning, may be copied as objects.
    fn whole_objects(&self, range: &Span) -> u64 {
        let (source, target) = (&self.files[&range.from], &self.files[&range.to]);
        // Truncated data may remain in objects, beyond what the server knows.
        let end = (source.in_objects(), !source.has_stale());
        let room = target.room_to().min(target.layout.data_max());
        let length = whole(&source.layout, range, end, target.size);
        if range.at.saturating_add(length) <= room {
            return length;
        }
        let left = room.saturating_sub(range.at);
        whole(
            &source.layout,
            &Span { left, ..*range },
            (end.0, false),
            target.size,
        )
    }

    /// Ends a call with the number of bytes copied, if any.
    fn end_copy(&mut self, call: CallId, errno: Option<u16>) {
        let Some(Copying { copied, .. }) = self.copies.calls.remove(&call) else {
            return;
        };
        self.end(
            call,
            errno
                .filter(|_| copied == 0)
                .map_or(Ok(Given::Copied(copied)), Err),
        );
    }
    /// This many more bytes are copied.
    fn advance(&mut self, call: CallId, length: u64) {
        let Some(Copying { range, copied, .. }) = self.copies.calls.get_mut(&call) else {
            return;
        };
        *copied += length;
        (range.offset, range.at, range.left) = (
            range.offset + length,
            range.at + length,
            range.left - length,
        );
    }

    // ── by hand ─────────────────────────────────────────────────────────────────────────

    fn begin_part(&mut self, call: CallId, length: u64, ask: Ask, goes_on: bool) {
        let part = CallId(self.next_call);
        self.next_call += 1;
        self.copies.parts.insert(part, (call, goes_on));
        self.copies
            .calls
            .get_mut(&call)
            .expect("it goes on")
            .by_hand = length;
        self.put_back(part, ask);
    }
    /// Continues copies whose reads or writes have ended.
    pub(super) fn go_on_by_hand(&mut self, out: &mut Vec<Output>) {
        while let Some((call, outcome)) = self.copies.ended.pop_front() {
            let Some(Copying {
                range,
                by_hand,
                is_last,
                ..
            }) = self.copies.calls.get_mut(&call)
            else {
                continue;
            };
            let (ino, offset, length) = (range.to, range.at, *by_hand);
            match outcome {
                Ok(Given::Data(data)) => {
                    let data = if let [one] = &data[..] {
                        one.clone()
                    } else {
                        Bytes::from(data.concat())
                    };
                    let length = data.len() as u64;
                    *is_last = length < *by_hand;
                    if length == 0 {
                        self.end_copy(call, None);
                    } else {
                        self.begin_part(call, length, Ask::Write { ino, offset, data }, true);
                    }
                }
                Ok(_) => {
                    let is_last = *is_last;
                    self.advance(call, length);
                    if is_last {
                        self.end_copy(call, None);
                    } else {
                        self.go_on_copying(call, out);
                    }
                }
                // The room became smaller since the data was read: as much as there is room for now
                // is read again.
                Err(EDQUOT) if self.has_room_for_less(ino, offset, length) => {
                    self.go_on_copying(call, out)
                }
                Err(errno) => self.end_copy(call, Some(errno)),
            }
        }
    }
    /// Whether there is room for some of what is to be written at an offset, but not for all.
    fn has_room_for_less(&self, ino: Ino, at: u64, length: u64) -> bool {
        self.files
            .get(&ino)
            .is_some_and(|target| in_room(target, at, length) < length)
    }

    // ── objects ─────────────────────────────────────────────────────────────────────────

    /// Both files stay unchanged, except for the objects.
    fn begin_objects(&mut self, range: &Span) {
        for ino in [range.from, range.to] {
            self.files.get_mut(&ino).expect("just seen").copies += 1;
        }
        self.files.get_mut(&range.to).expect("just seen").resizing = true;
    }
    fn end_objects(&mut self, range: &Span) {
        for ino in [range.from, range.to] {
            self.files
                .get_mut(&ino)
                .expect("files that are copied are kept")
                .copies -= 1;
        }
        self.files
            .get_mut(&range.to)
            .expect("files that are copied are kept")
            .resizing = false;
    }
    /// Calls that waited for that continue; the copying call first, or in turn with other copies of
    /// the same files.
    fn settle_copied(&mut self, range: &Span, out: &mut Vec<Output>) {
        self.settle(range.from, out);
        if range.to != range.from {
            self.settle(range.to, out);
        }
    }

    /// The server knows the target's future size, or refuses it.
    pub(super) fn copy_grown(&mut self, call: CallId, errno: Option<u16>, out: &mut Vec<Output>) {
        let Some(Copying { range, .. }) = self.copies.calls.get(&call) else {
            return;
        };
        let range = *range;
        self.end_objects(&range);
        match errno {
            None => self.go_on_copying(call, out),
            errno => self.end_copy(call, errno),
        }
        self.settle_copied(&range, out);
    }

    fn copy_objects(&mut self, call: CallId, length: u64, out: &mut Vec<Output>) {
        let copying = self.copies.calls.get_mut(&call).expect("it goes on");
        copying.waits_since = None;
        let range = copying.range;
        self.begin_objects(&range);
        let layout = self.files[&range.from].layout;
        let count = layout.objects(range.offset + length) - layout.place(range.offset).0;
        let (holes, grants) = (BTreeSet::new(), self.grants_of(&range));
        let objects = CopyingObjects {
            range,
            layout,
            length,
            next: 0,
            count,
            left: 0,
            holes,
            failed: None,
            grants,
        };
        self.transfers.insert(call, Transfer::Copy(objects));
        self.go_on_objects(call, out);
    }
    fn grants_of(&self, range: &Span) -> [u64; 2] {
        [range.from, range.to].map(|ino| self.files.get(&ino).map_or(0, |file| file.grants))
    }
    /// Whether this client still has both files with the grants at the beginning of the copy.
    fn is_still_granted(&self, objects: &CopyingObjects) -> bool {
        let has = |ino, needs: fn(&FsCap) -> bool| {
            self.files.get(&ino).is_some_and(|file| needs(&file.cap))
        };
        self.grants_of(&objects.range) == objects.grants
            && has(objects.range.from, |cap| *cap >= FsCap::Cache {})
            && has(objects.range.to, |cap| cap.buffers())
    }

    /// Begins to copy the next objects; after the last one the call continues.
    fn go_on_objects(&mut self, call: CallId, out: &mut Vec<Output>) {
        let Some(Transfer::Copy(mut objects)) = self.transfers.remove(&call) else {
            return;
        };
        if !self.is_still_granted(&objects) && objects.next < objects.count {
            objects.fail(objects.next, EIO);
        }
        let Span { from, to, .. } = objects.range;
        while objects.failed.is_none() && objects.left < AT_ONCE && objects.next < objects.count {
            let index = objects.next;
            objects.next += 1;
            let (source, target) = objects.numbers(index);
            // The last set has objects without data.
            if objects
                .layout
                .length_of(source, objects.range.offset + objects.length)
                > 0
            {
                let source = self.operation(from, source, Vec::new(), Vec::new()).object;
                let operation =
                    self.operation(to, target, vec![SubOp::CopyFrom { source }], Vec::new());
                let index = usize::try_from(index).expect("of one call's");
                self.operations
                    .push_back((operation, For::Call(call, index)));
                objects.left += 1;
            }
        }
        if objects.left == 0 {
            return self.objects_copied(call, &objects, out);
        }
        self.transfers.insert(call, Transfer::Copy(objects));
    }
    /// The first of two files of which something is not in objects yet.
    #[nacre_types::planted]
    fn unwritten_of(&mut self, from: Ino, to: Ino, out: &mut Vec<Output>) -> Option<Ino> {
        let mut both = [from, to].into_iter();
        both.find(|ino| !self.is_written(*ino, out))
    }
    /// An object has been copied, or deleted for a hole, or failed.
    pub(super) fn on_copied(
        &mut self,
        call: CallId,
        index: usize,
        result: Result<Done, Failure>,
        out: &mut Vec<Output>,
    ) {
        let index = index as u64;
        let Some(Transfer::Copy(objects)) = self.transfers.get(&call) else {
            return;
        };
        let (is_hole, granted) = (objects.is_hole(index), self.is_still_granted(objects));
        let (to, (_, target)) = (objects.range.to, objects.numbers(index));
        let delete = self.operation(to, target, vec![SubOp::Delete {}], Vec::new());
        let Some(Transfer::Copy(objects)) = self.transfers.get_mut(&call) else {
            return;
        };
        match result {
            Ok(_) => {}
            Err(Failure::Refused(OpFailure::NotFound {})) if is_hole => {}
            // Another client may have the target now.
            Err(Failure::Refused(OpFailure::NotFound {})) if granted => {
                objects.holes.insert(index);
                self.operations.push_back((
                    delete,
                    For::Call(call, usize::try_from(index).expect("it was one")),
                ));
                return;
            }
            Err(why) => objects.fail(index, errno_of(&why)),
        }
        objects.left -= 1;
        self.go_on_objects(call, out);
    }

    /// All objects of a call are copied, or some failed.
    fn objects_copied(&mut self, call: CallId, objects: &CopyingObjects, out: &mut Vec<Output>) {
        let (range, granted) = (objects.range, self.is_still_granted(objects));
        let touched = objects
            .next
            .checked_sub(1)
            .map_or(0, |last| objects.bytes(last, true));
        self.end_objects(&range);
        // Reads that began before may return the old data.
        self.cache.drop_clean(range.to);
        if granted && touched > 0 {
            let (stamp, end) = (self.stamp(), range.at + touched);
            let file = self.files.get_mut(&range.to).expect("it is open");
            // The source may have holes: then objects do not determine the file's size.
            file.leaves_hole(end);
            file.size = file.size.max(end);
            file.writes_to(end);
            self.dirtied(range.to, stamp);
        }
        // If the client was evicted meanwhile, only what it has reported counts.
        match if granted {
            objects.failed
        } else {
            Some((0, EIO))
        } {
            None => {
                self.advance(call, objects.length);
                self.go_on_copying(call, out);
            }
            Some((first, errno)) => {
                self.advance(call, objects.bytes(first, false));
                self.end_copy(call, Some(errno));
            }
        }
        self.settle_copied(&range, out);
    }
}

impl CopyingObjects {
    /// Everything before that object is copied.
    fn fail(&mut self, index: u64, errno: u16) {
        if self.failed.is_none_or(|(first, _)| index < first) {
            self.failed = Some((index, errno));
        }
    }
}
