//! What this client knows of a file that is open.

use crate::ask::{Ask, CallId};
use crate::queue::Queue;
use crate::routes::rank_of;
use crate::stream::Stream;
use nacre_types::{Ino, Time};
use nacre_wire::Wire as _;
use nacre_wire::fs::{Backpointer, Inode, Layout, Stamp};
use nacre_wire::msg::client::SubOp;
use nacre_wire::msg::fs::{FS_LARGER_ONLY, FsCap, FsChanges, FsNode, FsOpens, FsPlace};
use std::collections::{BTreeSet, VecDeque};

/// Whether other clients do nothing with a file as long as this one writes what must not meet
/// theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alone {
    No,
    /// The server was asked.
    Asked,
    Yes,
}

/// Whether the server knows of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    Known,
    /// It was made here, and the server has not answered that: no object of it is written before.
    Here,
    /// The same, and something is to be written.
    Wanted,
}

/// What a request says of an open file's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tells {
    /// That this client may write it.
    Opening,
    /// That it is larger.
    Larger,
    /// That this client has written it, and may do so later.
    Written,
    /// The same, for the last time.
    Closed,
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct File {
    /// How often it is open, for reading and for writing: as many closes have to come.
    pub opens: [u32; 2],
    /// Closes of each that are under way.
    pub closing: [u32; 2],
    pub made: Made,
    pub layout: Layout,
    /// Bytes: as the server said last, or as this client has made it.
    pub size: u64,
    /// As the server said last: how large it is, and up to where it knows of data.
    told: u64,
    data_told: u64,
    /// Up to where data beyond that may still be there, from before it was truncated.
    stale_to: u64,
    /// Up to where the journal has it that there is data, and the last answer about data that it
    /// has not.
    data_safe: u64,
    unsafe_by: Option<u64>,
    /// The request that opened it for writing, as long as the journal has not that.
    opening: Option<u64>,
    /// The journal has that it is being written; requests from this one on say so.
    is_known: bool,
    known_from: u64,
    /// Which of the server's answers that was.
    change: u64,
    /// Where it was seen last.
    pub place: Option<FsPlace>,
    /// It was written then, and the server has not been told.
    pub dirty: Option<Stamp>,
    /// Where the last hole ends that was left between what the server knew and what was written.
    hole_to: u64,
    /// Where what was written since it was told last ends, and where what of it is in objects.
    written_to: u64,
    flushed_to: u64,
    /// Some of what is to be written lies so far behind what the server knows of that it waits
    /// until that is told.
    pub waits_to_tell: bool,
    /// What the server is being told of sizes and times: how often, the last time, and the largest
    /// end.
    telling: u32,
    telling_time: Stamp,
    telling_to: u64,
    /// What this client was granted, and has not given back.
    pub cap: FsCap,
    /// The size is known since that, or since it has the file alone: until the end of both no
    /// other client changes it.
    pub is_fresh: bool,
    /// Its size was told since the last grant: it has not become shorter since.
    pub is_sized: bool,
    /// So many of its opens are lazy.
    pub lazy: u32,
    /// Something may be kept, or dirty, for lazy opens that is not for others (`fs/lazy.rs`).
    pub keeps_lazily: bool,
    /// Counts grants.
    pub grants: u64,
    /// The server wants it back down to this, and an answer to that number.
    pub recall: Option<(u64, FsCap)>,
    /// Writes under way that callers wait for, and reads that need more than one operation.
    pub writes: usize,
    pub reads: usize,
    /// Copies under way from it or into it whose objects others copy (`fs/copying.rs`).
    pub copies: usize,
    /// The server was asked whether it may become larger.
    pub asks_room: bool,
    /// A change of its size is under way: what writes waits.
    pub resizing: bool,
    /// How far it has come with having the file alone (`fs/exclusive.rs`).
    pub alone: Alone,
    /// Writes that wait for that, and how many were begun since the file was had alone.
    pub exclusive: VecDeque<(CallId, Ask)>,
    pub in_a_row: u32,
    /// What waits for that, for the writes, or for a capability.
    pub waiting: VecDeque<(CallId, Ask)>,
    /// Calls that waited when it was granted: they begin before it is given back.
    pub first: BTreeSet<CallId>,
    /// Data that is being written from the cache, by number.
    pub flushes: BTreeSet<u64>,
    /// The server is being told a size, before data is written to where other data was cut off.
    pub growing: bool,
    /// There was no room for some of it a moment ago: until then no more is taken.
    pub full_until: Time,
    /// How it is read in order.
    pub stream: Stream,
    /// How far was read ahead, and how far to.
    pub ahead_to: u64,
    pub ahead: u64,
    /// Changes of its attributes that their callers have been answered, and the server has not, in
    /// order.
    pub foretold: Vec<Foretold>,
}

/// A change of a file's attributes that this client has answered itself.
#[derive(Clone, Debug)]
pub(crate) struct Foretold {
    pub number: u64,
    pub changes: FsChanges,
    /// When it happened.
    pub at: Stamp,
}

impl Foretold {
    /// What the server will make of it: `evaluate.rs` there.
    fn show(&self, inode: &mut Inode) {
        let FsChanges {
            mode,
            uid,
            gid,
            atime,
            mtime,
            ..
        } = self.changes;
        inode.mode = mode.map_or(inode.mode, |mode| mode & 0o7777);
        inode.uid = uid.unwrap_or(inode.uid);
        inode.gid = gid.unwrap_or(inode.gid);
        inode.atime = atime.map_or(inode.atime, |stamp| stamp.unwrap_or(self.at));
        inode.mtime = mtime.map_or(inode.mtime, |stamp| stamp.unwrap_or(self.at));
        inode.ctime = inode.ctime.max(self.at);
    }
}

impl File {
    /// One that the server has just opened.
    pub fn new(inode: &Inode) -> Option<Self> {
        let layout = inode.layout?;
        let mut file = Self {
            opens: [0; 2],
            made: Made::Known,
            closing: [0; 2],
            layout,
            size: 0,
            told: 0,
            data_told: 0,
            stale_to: 0,
            data_safe: 0,
            unsafe_by: None,
            opening: None,
            is_known: false,
            known_from: 0,
            change: 0,
            place: None,
            dirty: None,
            hole_to: 0,
            written_to: 0,
            flushed_to: 0,
            waits_to_tell: false,
            telling: 0,
            telling_time: FS_LARGER_ONLY,
            telling_to: 0,
            cap: FsCap::Nothing {},
            is_fresh: false,
            is_sized: false,
            lazy: 0,
            keeps_lazily: false,
            grants: 0,
            recall: None,
            writes: 0,
            reads: 0,
            copies: 0,
            asks_room: false,
            resizing: false,
            alone: Alone::No,
            exclusive: VecDeque::new(),
            in_a_row: 0,
            waiting: VecDeque::new(),
            first: BTreeSet::new(),
            flushes: BTreeSet::new(),
            growing: false,
            full_until: Time::ZERO,
            stream: Stream::default(),
            ahead_to: 0,
            ahead: 0,
            foretold: Vec::new(),
        };
        file.learn(inode);
        Some(file)
    }
    /// The server has said what it is like. Answers may come in another order than the changes were
    /// made.
    pub fn learn(&mut self, inode: &Inode) {
        if inode.change >= self.change {
            self.change = inode.change;
            self.told = inode.size;
            self.data_told = inode.data_to();
            self.stale_to = inode.stale_to();
            self.data_safe = if self.unsafe_by.is_some() {
                self.data_safe.min(self.data_told)
            } else {
                self.data_told
            };
            self.size = self.own_size().max(inode.size);
        }
    }
    /// What was not written, or what the server had not taken, is lost: what is known of it is what
    /// the server says next.
    pub fn abandon(&mut self) {
        (self.dirty, self.change, self.is_fresh, self.is_sized) = (None, 0, false, false);
        (self.written_to, self.flushed_to, self.waits_to_tell) = (0, 0, false);
        self.made = Made::Known;
        self.flushes.clear();
    }
    /// Whether something is to be written that waits until the server knows of it, or of the file.
    pub fn waits_to_write(&self) -> bool {
        self.growing || self.waits_to_tell || self.made == Made::Wanted
    }
    /// Whether there was no room for it a moment ago.
    pub fn has_no_room(&self, now: Time) -> bool {
        now < self.full_until
    }
    /// A request about it was answered early.
    pub fn answered_early(&mut self, number: u64, tells: Tells) {
        match tells {
            Tells::Opening => self.opening = self.opening.max(Some(number)),
            Tells::Larger | Tells::Written | Tells::Closed => {
                self.unsafe_by = self.unsafe_by.max(Some(number))
            }
        }
    }
    /// It is in the journal.
    pub fn answer_safe(&mut self, number: u64, tells: Tells) {
        self.opening.take_if(|opening| *opening <= number);
        if self.unsafe_by.take_if(|last| *last <= number).is_some() {
            self.data_safe = self.data_told;
        }
        self.is_known |=
            tells == Tells::Written && number >= self.known_from && self.opens[1] > self.closing[1];
    }
    /// The request with this number closes it for writing, or sets its times: the journal has no
    /// more that this client is writing it.
    pub const fn closes(&mut self, number: u64) {
        (self.is_known, self.known_from) = (false, number);
    }
    /// Its session has ended; the next one's requests begin here.
    pub fn session_ended(&mut self, next: u64) {
        (self.data_safe, self.unsafe_by, self.opening) = (0, None, None);
        self.closes(next);
    }
    /// Whether the journal has it that this client is writing the file: if it dies, its objects say
    /// how large the file is, as far as there is no hole in it.
    pub const fn is_known(&self) -> bool {
        self.is_known && self.cap.buffers() && (self.hole_to == 0 || self.hole_to < self.data_safe)
    }
    /// The last request that has to be safe before more may be written.
    pub fn unsafe_by(&self) -> Option<u64> {
        self.opening.max(self.unsafe_by)
    }
    /// Whether a write may go there as soon as what the server has answered is safe.
    pub fn awaits_safe(&self, end: u64) -> bool {
        let is_told = end > self.reach() && end <= self.data_told;
        (self.opening.is_some() && end > self.data_told) || (is_told && self.unsafe_by.is_some())
    }
    /// The same, also if its end were told first.
    pub fn may_wait(&self, end: u64) -> bool {
        self.awaits_safe(end) || (self.unsafe_by().is_some() && self.is_far(end))
    }
    /// Whether it has become larger than the server knows.
    pub const fn is_longer(&self) -> bool {
        self.written_to > self.told
    }
    /// The server has changed its size for this client.
    pub const fn resized(&mut self) {
        (self.size, self.written_to, self.flushed_to) = (self.told, 0, 0);
    }
    /// How large it is at least, by what this client has written: had another one cut it off since,
    /// this one would have been told.
    fn own_size(&self) -> u64 {
        if self.knows_more() || self.telling > 0 {
            self.size
        } else {
            self.written_to
        }
    }
    /// Whether it may have been written without the server's knowing.
    pub fn knows_more(&self) -> bool {
        (self.cap.buffers() || self.alone == Alone::Yes) && self.is_fresh
    }
    /// It is being written from there on: that may leave a hole.
    pub const fn writes_from(&mut self, offset: u64) {
        if offset > self.size {
            self.leaves_hole(offset);
        }
    }
    /// There may be a hole before that.
    pub const fn leaves_hole(&mut self, end: u64) {
        if end > self.hole_to {
            self.hole_to = end;
        }
    }
    /// It is being written: where that ends.
    pub const fn writes_to(&mut self, end: u64) {
        if end > self.written_to {
            self.written_to = end;
        }
    }
    /// What to tell the server: where what was written ends, and when that was, if it does not
    /// know. Not how large the file is: that would undo a truncation by another client.
    /// `up_to`: more is still to be written to objects, but nothing up to there: if this client
    /// dies, no bytes are told that no object has.
    pub fn tell(&mut self, up_to: Option<u64>) -> Option<(u64, Stamp)> {
        let (mtime, end) = (self.dirty, self.written_to.min(up_to.unwrap_or(u64::MAX)));
        if up_to.is_none() {
            (self.dirty, self.written_to, self.flushed_to) = (None, 0, 0);
        }
        let mtime = mtime?;
        (self.telling_time, self.telling_to) = (mtime, self.telling_to.max(end));
        Some((end, mtime))
    }
    /// The server is told something.
    pub const fn begin_telling(&mut self) {
        self.telling += 1;
    }
    /// And has taken it, or not.
    pub const fn end_telling(&mut self) {
        self.telling = self.telling.saturating_sub(1);
        if self.telling == 0 {
            self.telling_to = 0;
        }
    }
    pub const fn is_telling(&self) -> bool {
        self.telling > 0
    }
    /// The same, again, if the server does not know.
    pub fn say(&self) -> Option<(u64, Stamp)> {
        self.dirty
            .or(self.being_told())
            .map(|mtime| (self.written_to.max(self.telling_to), mtime))
    }
    /// Where what is to be written to objects ends.
    pub const fn written_to(&self) -> u64 {
        self.written_to
    }
    /// How far may be written to objects: what lies further would not be found if this client and
    /// the server died. Without its opening in the journal nothing would.
    pub fn reach(&self) -> u64 {
        if self.opening.is_some() {
            self.data_told
        } else {
            self.data_safe + self.layout.reach()
        }
    }
    /// Whether the server is to know the end of a write first.
    pub fn is_far(&self, end: u64) -> bool {
        self.is_stale_at(end) || end > self.reach()
    }
    /// Whether it may become so large only if the server has room for that.
    pub fn lacks_room(&self, end: u64) -> bool {
        end > self.room_to()
    }
    /// How large it may become without asking its server for room.
    pub fn room_to(&self) -> u64 {
        if let FsCap::Bounded { room } = self.cap {
            room.max(self.size)
        } else {
            u64::MAX
        }
    }
    /// Whether the server is to know a write's end before it is written, since there may be no room
    /// for it.
    pub fn asks_first(&self, end: u64) -> bool {
        matches!(self.cap, FsCap::Asks {}) && end > self.size
    }
    /// How large a write may make it without either.
    pub fn unasked_to(&self) -> u64 {
        if let FsCap::Asks {} = self.cap {
            self.size
        } else {
            self.room_to()
        }
    }
    /// Whether data that is written there now would be removed with what was cut off.
    pub const fn is_stale_at(&self, end: u64) -> bool {
        end > self.told && self.has_stale()
    }
    /// Whether objects may have data beyond the file's end as the server knows it, from before it
    /// was cut off.
    pub const fn has_stale(&self) -> bool {
        self.stale_to > self.told
    }
    /// Whether the server does not know that it is so large.
    pub const fn is_beyond(&self, end: u64) -> bool {
        end > self.told
    }
    /// Whether the server does not know of data up to there.
    pub const fn is_news(&self, end: u64) -> bool {
        end > self.data_told
    }
    /// All up to there is in objects.
    pub const fn flushed(&mut self, end: u64) {
        if end > self.flushed_to {
            self.flushed_to = end;
        }
    }
    /// Where what is in objects ends, if the server is to hear that soon: what comes next waits for
    /// it, or will have to.
    pub fn tell_flushed(&mut self) -> Option<u64> {
        let end = self.flushed_to;
        let soon = if self.waits_to_tell {
            self.data_told
        } else {
            self.data_told + self.layout.reach() / 2
        };
        if self.telling > 0 || self.growing || end <= soon {
            return None;
        }
        self.begin_telling();
        self.telling_to = end;
        Some(end)
    }
    /// Up to where there may be data, as far as is known.
    pub fn data_to(&self) -> u64 {
        let knows = self.cap >= FsCap::Cache {} && self.is_fresh;
        if knows {
            self.data_told
                .max(self.written_to)
                .max(self.telling_to)
                .min(self.size)
        } else {
            self.size
        }
    }
    /// When it was written, as the server is being told.
    fn being_told(&self) -> Option<Stamp> {
        (self.telling > 0).then_some(self.telling_time)
    }
    /// Where a read ends: no later than the file.
    pub fn end_of_read(&self, offset: u64, length: u32) -> u64 {
        offset.saturating_add(u64::from(length)).min(self.size)
    }
    /// Writes that wait to have it alone, and have not begun, are calls like all that have not.
    pub fn put_back_exclusive(&mut self, ino: Ino, queue: &mut Queue) {
        while let Some((call, ask)) = self.exclusive.pop_back() {
            queue.push_front(rank_of(ino), call, ask);
        }
    }
    /// Whether it is kept and written later, though others write it as well: all who have it open
    /// here want that.
    pub fn is_lazy(&self) -> bool {
        let opens: u32 = [0, 1]
            .iter()
            .map(|way| self.opens[*way].saturating_sub(self.closing[*way]))
            .sum();
        let may = self.cap == FsCap::Sync {} && self.alone != Alone::Yes;
        may && self.lazy > 0 && self.lazy >= opens
    }
    /// Whether what is known of its size is enough for that: what it has grown by since, a read
    /// finds when it comes there.
    pub fn suffices_lazily(&self, ask: &Ask) -> bool {
        let is_within = match ask {
            Ask::Read { offset, length, .. } => {
                offset.saturating_add(u64::from(*length)) <= self.size
            }
            ask => matches!(ask, Ask::Write { .. }),
        };
        self.is_sized && is_within
    }
    /// Whether something of it is under way, or its server has not been told all.
    pub fn is_busy(&self) -> bool {
        self.writes > 0
            || self.reads > 0
            || self.copies > 0
            || !self.exclusive.is_empty()
            || self.alone != Alone::No
            || !self.flushes.is_empty()
            || self.growing
            || self.recall.is_some()
            || self.dirty.is_some()
    }
    /// What its first object is to say with its first data: where the file is.
    pub fn parent(&self) -> Option<SubOp> {
        // One without a name is nowhere that a name could be made again for it.
        let is_named = |place: &FsPlace| self.told == 0 && !place.dir.is_hidden();
        let FsPlace { dir, name } = self.place.clone().filter(is_named)?;
        let value = Backpointer { dir, name }.to_bytes().into();
        Some(SubOp::SetAttr {
            name: Backpointer::ATTR.into(),
            value,
        })
    }
    /// Up to where objects have what is in the file: beyond that may be what was cut off.
    pub const fn in_objects(&self) -> u64 {
        if self.stale_to > self.told && self.told < self.size {
            self.told
        } else {
            self.size
        }
    }
    /// An inode as callers are to see it: with what the server has not been told.
    pub fn show(&self, node: &mut FsNode) {
        self.foretold
            .iter()
            .for_each(|foretold| foretold.show(&mut node.inode));
        // What is known of names may be older than what the server is being told.
        for time in self.being_told().into_iter().chain(self.dirty) {
            node.inode.mtime = node.inode.mtime.max(time);
            node.inode.ctime = node.inode.ctime.max(time);
        }
        if self.knows_more() {
            node.inode.size = self.size;
        } else {
            node.inode.size = node.inode.size.max(self.own_size());
        }
    }
    /// Its times are set by a caller, with the request that has this number: what was written
    /// before says nothing of them any more, and the server does not take it for written since.
    pub const fn times_set(&mut self, number: u64) {
        self.closes(number);
        if self.dirty.is_some() {
            self.dirty = Some(FS_LARGER_ONLY);
        }
        self.telling_time = FS_LARGER_ONLY;
    }

    /// The server grants more; `fresh`: what was said with it is how the file is now. Whether
    /// that is more than it had.
    pub fn grant(&mut self, cap: FsCap, fresh: bool, next: u64) -> bool {
        if self.recall.is_some() || cap <= self.cap {
            return false;
        }
        if self.cap.buffers() {
            // The same, with more room.
            self.cap = cap;
        } else {
            // What it says from here on it says as one that writes later.
            self.closes(next);
            self.cap = cap;
            // Who has it alone knows what it is like.
            self.is_fresh = fresh || (self.is_fresh && self.alone == Alone::Yes);
            self.grants += 1;
            self.is_sized = false;
            if cap.is_shared() {
                let waiting = self
                    .waiting
                    .iter()
                    .filter(|(_, ask)| ask.of_data().is_some());
                self.first = waiting.map(|(call, _)| *call).collect();
            }
        }
        true
    }
    /// It keeps no more than that.
    pub fn lower(&mut self, cap: FsCap) {
        if cap < self.cap {
            self.cap = cap;
            self.is_fresh &= cap >= FsCap::Cache {} || self.alone == Alone::Yes;
            self.flushed_to = 0;
            self.is_sized = false;
        }
    }
    /// What to say of it to a server; it has no more than that from then on.
    pub fn claim(&mut self, ino: Ino) -> FsOpens {
        let [reads, writes] = [0, 1].map(|way| self.opens[way] - self.closing[way]);
        // With what is being closed it does nothing any more.
        let most = match (reads, writes) {
            (0, 0) => FsCap::Nothing {},
            (_, 0) => FsCap::Cache {},
            _ => FsCap::Buffer {},
        };
        self.lower(most);
        // Who has the rank says again what is to be given back.
        self.recall = None;
        let [reads, writes] = self.opens;
        FsOpens {
            ino,
            reads,
            writes,
            cap: self.cap,
            alone: self.alone == Alone::Yes,
            place: self.place.clone(),
        }
    }
}
