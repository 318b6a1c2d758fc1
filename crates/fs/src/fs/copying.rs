//! Copying a range of one file into another, as `copy_file_range` does: whole objects are copied by
//! the OSDs that have them, and their data does not pass this client.
//!
//! ```text
//!  Copy ─▶ what comes next? ─┬─ whole objects ─▶ both written ─▶ far? Wrote ─▶ CopyFrom, 4 at a time
//!              ▲             │                            target's clean data   │     └ hole: Delete
//!              │             │                            is forgotten ◀────────┘
//!              │             └─ by hand ─▶ Read ─▶ Write ─┐   │
//!              └──────────────────────────────────────────┴───┘
//! ```
//! Objects match one to one if both files have the same layout and both places lie equally in it.
//! They are copied in sets: as many as take turns (one, if files are not striped). A set that the
//! range has only a part of is copied by hand, unless the source ends there and the target not
//! later: then nothing of the target's objects is lost. So is the first set of either file, since
//! the first object says where its file is, and a copy has all attributes of its source.
//!
//! Objects are copied only while this client keeps the source (`Cache` or more) and buffers the
//! target, below a quota as far as it has room. Everything else goes by hand, through the same
//! reads and writes that callers make: those wait for capabilities, room and servers, and are
//! refused what a write is refused.
//!
//! Orders that matter:
//! * What is dirty of the source is in objects first, or older data would be copied; what is dirty
//!   of the target too, or it would be written over the copy later.
//! * The server is told how large the target becomes before an object is made where no one would
//!   look for it if this client and the server died ([`File::is_far`]), or where it still removes
//!   what was cut off.
//! * The size that this client knows grows with an error, too, as far as objects were begun: all
//!   that lies in objects lies within its file's size, and goes with it.
//!
//! Invariants: while objects are copied neither file is given back, closed or cut off, and nothing
//! reads or writes the target; no object is begun under a capability that has ended meanwhile; a
//! caller is told of no byte that was not copied.

#[cfg(test)]
#[path = "copying_test.rs"]
mod tests;

use super::*;
use crate::file::{Alone, Made};

/// Objects of a call that are copied at a time: each is an object in the memory of an OSD, and
/// waits there for one of the eight places for sources (`osd/src/pg/copy.rs`).
const AT_ONCE: usize = 4;
/// Bytes that one call copies at most: callers ask for the rest. Recalls of both files wait for it:
/// a cluster that copies 64 MiB/s lets another client wait for a second, a usual one for a tenth of
/// that. In objects of 4 MiB it is 15 or 16 of them, which pay for the request to the server that
/// tells how large the file becomes.
const CALL_MAX: u64 = 64 << 20;
/// Bytes that are read and written by hand at a time: they are in this client's memory.
const BY_HAND: u64 = 4 << 20;
/// A file that is always dirty again is not waited for longer than this: the next piece goes by
/// hand, which sees what is dirty.
const PATIENCE: Duration = Duration::from_secs(2);

/// A range that is copied, as far as it is still to be.
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
    /// Since when it has waited for what is dirty.
    waits_since: Option<Time>,
    /// Bytes that are being read or written by hand, and whether the source ends with them.
    by_hand: u64,
    is_last: bool,
}

/// Calls that copy, and their reads and writes.
#[derive(Debug, Default)]
pub(super) struct Copies {
    calls: BTreeMap<CallId, Copying>,
    /// Of which of them each is, and whether what comes after it is read as well.
    parts: BTreeMap<CallId, (CallId, bool)>,
    ended: VecDeque<(CallId, Outcome)>,
}

impl Copies {
    pub fn is_part(&self, call: CallId) -> bool {
        self.parts.contains_key(&call)
    }
    /// Whether it is a read behind which objects are copied.
    pub fn goes_on_inside(&self, call: CallId) -> bool {
        self.parts.get(&call).is_some_and(|(_, goes_on)| !goes_on)
    }
    /// A read or write by hand has ended: its copy goes on in this turn.
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
    /// Bytes of the range.
    length: u64,
    /// The next object, counted from the range's first one; how many there are.
    next: u64,
    count: u64,
    /// Operations under way.
    left: usize,
    /// Of which the source has a hole.
    holes: BTreeSet<u64>,
    /// The first object that could not be copied, and why.
    failed: Option<(u64, u16)>,
    /// Which grants of the source and the target it began with.
    grants: [u64; 2],
}

impl CopyingObjects {
    /// Numbers of an object of the source, and of the one that it becomes.
    fn numbers(&self, index: u64) -> (u64, u64) {
        let first = |place| self.layout.place(place).0;
        (
            first(self.range.offset) + index,
            first(self.range.at) + index,
        )
    }
    /// Bytes of the range up to the end of the set that an object is in; to its beginning: without
    /// that set.
    fn bytes(&self, index: u64, with: bool) -> u64 {
        let sets = index / u64::from(self.layout.count) + u64::from(with);
        (sets * period(&self.layout)).min(self.length)
    }
}

/// What to do next.
#[derive(Debug)]
enum Next {
    End(Result<(), u16>),
    /// As soon as something has happened to that file.
    Wait(Ino),
    /// The server is to know first how large the target becomes.
    Grow(u64),
    Objects(u64),
    /// So much, and whether more may come in the same way.
    ByHand(u64, bool),
}

/// Bytes of a file after which its objects begin again with another set.
fn period(layout: &Layout) -> u64 {
    u64::from(layout.object) * u64::from(layout.count)
}

/// How much of a range, from its beginning on, are whole objects. `source_end`: up to there objects
/// have what the source has, and whether it ends there; `size`: the target's.
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

/// How much is copied by hand before objects may come: up to the end of a set.
fn head(layout: &Layout, range: &Span) -> u64 {
    range
        .left
        .min(BY_HAND)
        .min(period(layout) - range.offset % period(layout))
}

/// As much as can be written at a place without room that the server may not have: what lies behind
/// that is refused by itself. A write is done as a whole, or not at all, and the target may be
/// larger already, if the server was told so before its objects could not be copied after all
/// (simulated seed 713 of e4226904: 122 was the answer, and the file had grown).
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

/// As much of a range as one call copies: it ends with a set, so that the next one begins with
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
    /// Begins a call that copies, or goes on with one that waited.
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
                // What is copied ends where the file does now: it may grow by its own copy.
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
    /// Whether it is known how large a file is.
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
        // No file reaches so far.
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
        for ino in [range.from, range.to] {
            let skips = ino == range.from && mutant(Mutant::CopiedUnwritten);
            if !self.is_written(ino, out) && !skips {
                let now = self.now;
                let copying = self.copies.calls.get_mut(&call).expect("just seen");
                if now.since(*copying.waits_since.get_or_insert(now)) < PATIENCE {
                    return Next::Wait(ino);
                }
                copying.waits_since = None;
                return by_hand;
            }
        }
        if [range.from, range.to]
            .iter()
            .any(|ino| self.files[ino].made != Made::Known)
        {
            return by_hand;
        }
        // With what was written the source may have become shorter in objects, says its server.
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
    /// Whether this client may have objects copied now: no other one changes the source, or looks
    /// at the target.
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
    /// How much of a range, from its beginning on, may be copied as objects.
    fn whole_objects(&self, range: &Span) -> u64 {
        let (source, target) = (&self.files[&range.from], &self.files[&range.to]);
        // What was cut off may still be in objects, behind what the server knows.
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

    /// A call has ended: with as much as was copied, if it was anything.
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
    /// So much more is copied.
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
    /// Copies whose reads or writes have ended go on.
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
                // The room became smaller since it was read: as much as there is room for now is
                // read again.
                Err(EDQUOT) if self.has_room_for_less(ino, offset, length) => {
                    self.go_on_copying(call, out)
                }
                Err(errno) => self.end_copy(call, Some(errno)),
            }
        }
    }
    /// Whether a place has room for some of what is to be written there, and not for all.
    fn has_room_for_less(&self, ino: Ino, at: u64, length: u64) -> bool {
        self.files
            .get(&ino)
            .is_some_and(|target| in_room(target, at, length) < length)
    }

    // ── objects ─────────────────────────────────────────────────────────────────────────

    /// Both files stay as they are, but for the objects.
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
    /// What waited for that goes on; the call does so first, or in turn with other copies of the
    /// same files.
    fn settle_copied(&mut self, range: &Span, out: &mut Vec<Output>) {
        self.settle(range.from, out);
        if range.to != range.from {
            self.settle(range.to, out);
        }
    }

    /// The server knows how large the target becomes, or does not want it.
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
    /// Whether both files are still this client's as they were when the objects were begun.
    fn is_still_granted(&self, objects: &CopyingObjects) -> bool {
        let has = |ino, needs: fn(&FsCap) -> bool| {
            self.files.get(&ino).is_some_and(|file| needs(&file.cap))
        };
        self.grants_of(&objects.range) == objects.grants
            && has(objects.range.from, |cap| *cap >= FsCap::Cache {})
            && has(objects.range.to, |cap| cap.buffers())
    }

    /// Begins to copy the next objects; after the last one the call goes on.
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
    /// An object has been copied, or removed for a hole, or cannot be.
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
        let (is_hole, granted) = (
            objects.holes.contains(&index),
            self.is_still_granted(objects),
        );
        let (to, (_, target)) = (objects.range.to, objects.numbers(index));
        let delete = self.operation(to, target, vec![SubOp::Delete {}], Vec::new());
        let Some(Transfer::Copy(objects)) = self.transfers.get_mut(&call) else {
            return;
        };
        match result {
            Ok(_) => {}
            Err(Failure::Refused(OpFailure::NotFound {}))
                if is_hole || mutant(Mutant::HoleNotCopied) => {}
            // Another client may have what the target has now.
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

    /// All objects of a call are copied, or some of them cannot be.
    fn objects_copied(&mut self, call: CallId, objects: &CopyingObjects, out: &mut Vec<Output>) {
        let (range, granted) = (objects.range, self.is_still_granted(objects));
        let touched = objects
            .next
            .checked_sub(1)
            .map_or(0, |last| objects.bytes(last, true));
        self.end_objects(&range);
        // Reads that began before may bring what was there.
        self.cache.drop_clean(range.to);
        if granted && touched > 0 {
            let (stamp, end) = (self.stamp(), range.at + touched);
            let file = self.files.get_mut(&range.to).expect("it is open");
            // The source may have holes: objects do not say then how large the file is.
            file.leaves_hole(end);
            file.size = file.size.max(end);
            file.writes_to(end);
            self.dirtied(range.to, stamp);
        }
        // Of a client that was evicted meanwhile nothing that is not told counts.
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
    /// What comes before that object is copied.
    fn fail(&mut self, index: u64, errno: u16) {
        if self.failed.is_none_or(|(first, _)| index < first) {
            self.failed = Some((index, errno));
        }
    }
}
