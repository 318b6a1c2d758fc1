//! This client's state of an open file.

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

/// Whether other clients are excluded from a file while this one writes what must not interleave
/// with their I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alone {
    No,
    /// The server was asked.
    Asked,
    Yes,
}

/// Whether the server knows a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    Known,
    /// It was created here, and the server has not confirmed that: none of its objects is written
    /// before.
    Here,
    /// The same, and data waits to be written.
    Wanted,
}

/// What a request tells about an open file's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tells {
    /// This client may write it.
    Opening,
    /// It is larger.
    Larger,
    /// This client has written it, and may do so later.
    Written,
    /// The same, for the last time.
    Closed,
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct File {
    /// How often it is open for reading and for writing: the number of closes to come.
    pub opens: [u32; 2],
    /// Closes of each in progress.
    pub closing: [u32; 2],
    pub made: Made,
    pub layout: Layout,
    /// Size in bytes: as last reported by the server, or as this client has made it.
    pub size: u64,
    /// As last reported by the server: its size, and the end of its data.
    told: u64,
    data_told: u64,
    /// Up to where data may remain beyond that from before a truncation.
    stale_to: u64,
    /// The end of data according to the journal, and the last answer about data that is not in the
    /// journal.
    data_safe: u64,
    unsafe_by: Option<u64>,
    /// The request that opened it for writing, while that is not in the journal.
    opening: Option<u64>,
    /// The journal records that it is being written; requests from this one on report it.
    is_known: bool,
    known_from: u64,
    /// The change counter in that report.
    change: u64,
    /// Where it was last seen.
    pub place: Option<FsPlace>,
    /// When it was written, if the server has not been told.
    pub dirty: Option<Stamp>,
    /// The end of the last hole between what the server knew and what was written.
    hole_to: u64,
    /// The end of what was written since the server was last told, and of its part that is in
    /// objects.
    written_to: u64,
    flushed_to: u64,
    /// Some of the dirty data is so far beyond what the server knows that it waits for a report.
    pub waits_to_tell: bool,
    /// Reports of sizes and times in flight: their number, the last time, and the largest end.
    telling: u32,
    telling_time: Stamp,
    telling_to: u64,
    /// The capability granted to this client and not given back.
    pub cap: FsCap,
    /// The size is current since the grant, or since the client has the file alone: until both end,
    /// no other client changes it.
    pub is_fresh: bool,
    /// Its size was reported since the last grant: it has not become shorter since.
    pub is_sized: bool,
    /// Number of its lazy opens.
    pub lazy: u32,
    /// Data may be cached or dirty for lazy opens that other opens must not use (`fs/lazy.rs`).
    pub keeps_lazily: bool,
    /// Number of grants.
    pub grants: u64,
    /// The server's recall: its number, and the capability to reduce to.
    pub recall: Option<(u64, FsCap)>,
    /// Writes in progress that callers wait for, and reads that need more than one operation.
    pub writes: usize,
    pub reads: usize,
    /// Copies in progress from or to it, by OSDs (`fs/copying.rs`).
    pub copies: usize,
    /// The server was asked whether it may become larger.
    pub asks_room: bool,
    /// A change of its size is in progress: writes wait.
    pub resizing: bool,
    /// The progress of getting exclusive access (`fs/exclusive.rs`).
    pub alone: Alone,
    /// Writes that wait for that, and the number begun since access was granted.
    pub exclusive: VecDeque<(CallId, Ask)>,
    pub in_a_row: u32,
    /// Calls that wait for that, for the writes, or for a capability.
    pub waiting: VecDeque<(CallId, Ask)>,
    /// Calls that waited when it was granted: they begin before it is given back.
    pub first: BTreeSet<CallId>,
    /// Flushes in progress from the cache, by number.
    pub flushes: BTreeSet<u64>,
    /// The server is being told a size before data is written where other data was truncated.
    pub growing: bool,
    /// The cluster was full for some of it recently: until then no more is accepted.
    pub full_until: Time,
    /// Its sequential reader.
    pub stream: Stream,
    /// How much was read ahead, and up to where.
    pub ahead_to: u64,
    pub ahead: u64,
    /// Attribute changes whose callers have been answered but which the server has not confirmed,
    /// in order.
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
    /// Applies the effect that the server will compute, in its `evaluate.rs`.
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
    /// A file that the server has just opened.
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
    /// Takes over a report of the server. Answers may arrive in another order than the changes were
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
    /// Unwritten data, or changes that the server did not accept, are lost: the server's next
    /// report replaces the state.
    pub fn abandon(&mut self) {
        (self.dirty, self.change, self.is_fresh, self.is_sized) = (None, 0, false, false);
        (self.written_to, self.flushed_to, self.waits_to_tell) = (0, 0, false);
        self.made = Made::Known;
        self.flushes.clear();
    }
    /// Whether data waits until the server knows of it, or of the file.
    pub fn waits_to_write(&self) -> bool {
        self.growing || self.waits_to_tell || self.made == Made::Wanted
    }
    /// Whether the cluster was full for it recently.
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
    /// The request is in the journal.
    pub fn answer_safe(&mut self, number: u64, tells: Tells) {
        self.opening.take_if(|opening| *opening <= number);
        if self.unsafe_by.take_if(|last| *last <= number).is_some() {
            self.data_safe = self.data_told;
        }
        self.is_known |=
            tells == Tells::Written && number >= self.known_from && self.opens[1] > self.closing[1];
    }
    /// The request with this number closes it for writing, or sets its times: the journal no longer
    /// records that this client is writing it.
    pub const fn closes(&mut self, number: u64) {
        (self.is_known, self.known_from) = (false, number);
    }
    /// Its session has ended; the next session's requests begin here.
    pub fn session_ended(&mut self, next: u64) {
        (self.data_safe, self.unsafe_by, self.opening) = (0, None, None);
        self.closes(next);
    }
    /// Whether the journal records that this client is writing the file: if the client dies, the
    /// file's objects determine its size, as far as there is no hole.
    pub const fn is_known(&self) -> bool {
        self.is_known && self.cap.buffers() && (self.hole_to == 0 || self.hole_to < self.data_safe)
    }
    /// The last request that has to be safe before more may be written.
    pub fn unsafe_by(&self) -> Option<u64> {
        self.opening.max(self.unsafe_by)
    }
    /// Whether a write may go there as soon as the server's answers are safe.
    pub fn awaits_safe(&self, end: u64) -> bool {
        let is_told = end > self.reach() && end <= self.data_told;
        (self.opening.is_some() && end > self.data_told) || (is_told && self.unsafe_by.is_some())
    }
    /// The same, even if its end were reported first.
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
    /// Its minimum size according to this client's own writes: if another client had truncated it
    /// since, this one would have been told.
    fn own_size(&self) -> u64 {
        if self.knows_more() || self.telling > 0 {
            self.size
        } else {
            self.written_to
        }
    }
    /// Whether it may have been written without the server knowing.
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
    /// It is being written up to there.
    pub const fn writes_to(&mut self, end: u64) {
        if end > self.written_to {
            self.written_to = end;
        }
    }
    /// What to report to the server: the end of what was written and the time, if the server does
    /// not know them. Not the file's size: that would undo a truncation by another client. `up_to`:
    /// more remains to be written to objects, but nothing before that: if this client dies, no
    /// bytes may have been reported that are in no object.
    pub fn tell(&mut self, up_to: Option<u64>) -> Option<(u64, Stamp)> {
        let (mtime, end) = (self.dirty, self.written_to.min(up_to.unwrap_or(u64::MAX)));
        if up_to.is_none() {
            (self.dirty, self.written_to, self.flushed_to) = (None, 0, 0);
        }
        let mtime = mtime?;
        (self.telling_time, self.telling_to) = (mtime, self.telling_to.max(end));
        Some((end, mtime))
    }
    /// A report is being sent.
    pub const fn begin_telling(&mut self) {
        self.telling += 1;
    }
    /// The server has accepted it, or not.
    pub const fn end_telling(&mut self) {
        self.telling = self.telling.saturating_sub(1);
        if self.telling == 0 {
            self.telling_to = 0;
        }
    }
    pub const fn is_telling(&self) -> bool {
        self.telling > 0
    }
    /// The same report once more, if the server does not know it.
    pub fn say(&self) -> Option<(u64, Stamp)> {
        self.dirty
            .or(self.being_told())
            .map(|mtime| (self.written_to.max(self.telling_to), mtime))
    }
    /// The end of the data to be written to objects.
    pub const fn written_to(&self) -> u64 {
        self.written_to
    }
    /// How far may be written to objects: data beyond that would not be found if this client and
    /// the server died. Without its opening in the journal, no data would be found.
    pub fn reach(&self) -> u64 {
        if self.opening.is_some() {
            self.data_told
        } else {
            self.data_safe + self.layout.reach()
        }
    }
    /// Whether the server must know the end of a write first.
    pub fn is_far(&self, end: u64) -> bool {
        self.is_stale_at(end) || end > self.reach()
    }
    /// Whether it may become this large only if the server has room.
    pub fn lacks_room(&self, end: u64) -> bool {
        end > self.room_to()
    }
    /// How large it may become without asking the server for room.
    pub fn room_to(&self) -> u64 {
        if let FsCap::Bounded { room } = self.cap {
            room.max(self.size)
        } else {
            u64::MAX
        }
    }
    /// Whether the server must know a write's end before it is written, because there may be no
    /// room.
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
    /// Whether data written there now would be removed together with truncated data.
    pub const fn is_stale_at(&self, end: u64) -> bool {
        end > self.told && self.has_stale()
    }
    /// Whether objects may have data beyond the file's end known to the server, from before a
    /// truncation.
    pub const fn has_stale(&self) -> bool {
        self.stale_to > self.told
    }
    /// Whether it is larger than the server knows.
    pub const fn is_beyond(&self, end: u64) -> bool {
        end > self.told
    }
    /// Whether the server does not know of data up to there.
    pub const fn is_news(&self, end: u64) -> bool {
        end > self.data_told
    }
    /// Everything up to there is in objects.
    pub const fn flushed(&mut self, end: u64) {
        if end > self.flushed_to {
            self.flushed_to = end;
        }
    }
    /// The end of what is in objects, if the server should know it soon: later data waits for that
    /// report, or will have to.
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
    /// Up to where there may be data, as far as known.
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
    /// The time of writing that is being reported.
    fn being_told(&self) -> Option<Stamp> {
        (self.telling > 0).then_some(self.telling_time)
    }
    /// The end of a read: at most the file's end.
    pub fn end_of_read(&self, offset: u64, length: u32) -> u64 {
        offset.saturating_add(u64::from(length)).min(self.size)
    }
    /// Writes that wait for exclusive access, and have not begun, become ordinary calls again.
    pub fn put_back_exclusive(&mut self, ino: Ino, queue: &mut Queue) {
        while let Some((call, ask)) = self.exclusive.pop_back() {
            queue.push_front(rank_of(ino), call, ask);
        }
    }
    /// Whether it is cached and written with delay although others write it, too: all its opens
    /// here are lazy.
    pub fn is_lazy(&self) -> bool {
        let opens: u32 = [0, 1]
            .iter()
            .map(|way| self.opens[*way].saturating_sub(self.closing[*way]))
            .sum();
        let may = self.cap == FsCap::Sync {} && self.alone != Alone::Yes;
        may && self.lazy > 0 && self.lazy >= opens
    }
    /// Whether the known size is sufficient for a call: a read notices later growth when it gets
    /// there.
    pub fn suffices_lazily(&self, ask: &Ask) -> bool {
        let is_within = match ask {
            Ask::Read { offset, length, .. } => {
                offset.saturating_add(u64::from(*length)) <= self.size
            }
            ask => matches!(ask, Ask::Write { .. }),
        };
        self.is_sized && is_within
    }
    /// Whether something of it is in progress, or its server has not been told everything.
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
    /// The backpointer that its first object gets with its first data.
    pub fn parent(&self) -> Option<SubOp> {
        // A file without a name has no place where its name could be recreated.
        let is_named = |place: &FsPlace| self.told == 0 && !place.dir.is_hidden();
        let FsPlace { dir, name } = self.place.clone().filter(is_named)?;
        let value = Backpointer { dir, name }.to_bytes().into();
        Some(SubOp::SetAttr {
            name: Backpointer::ATTR.into(),
            value,
        })
    }
    /// Up to where objects match the file: beyond that there may be truncated data.
    pub const fn in_objects(&self) -> u64 {
        if self.stale_to > self.told && self.told < self.size {
            self.told
        } else {
            self.size
        }
    }
    /// An inode as callers must see it: with what the server has not been told.
    pub fn show(&self, node: &mut FsNode) {
        self.foretold
            .iter()
            .for_each(|foretold| foretold.show(&mut node.inode));
        // The known attributes may be older than what is being reported.
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
    /// A caller sets its times, with the request of this number: earlier writes do not affect them
    /// any more, and the server does not consider it written since.
    pub const fn times_set(&mut self, number: u64) {
        self.closes(number);
        if self.dirty.is_some() {
            self.dirty = Some(FS_LARGER_ONLY);
        }
        self.telling_time = FS_LARGER_ONLY;
    }

    /// The server grants a capability; `fresh`: the file's state in the same message is current.
    /// Returns whether the capability is larger than before.
    pub fn grant(&mut self, cap: FsCap, fresh: bool, next: u64) -> bool {
        if self.recall.is_some() || cap <= self.cap {
            return false;
        }
        if self.cap.buffers() {
            // The same capability with more room.
            self.cap = cap;
        } else {
            // From here on it reports as a client with delayed writes.
            self.closes(next);
            self.cap = cap;
            // A client that has it alone knows its state.
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
    /// Reduces the capability.
    pub fn lower(&mut self, cap: FsCap) {
        if cap < self.cap {
            self.cap = cap;
            self.is_fresh &= cap >= FsCap::Cache {} || self.alone == Alone::Yes;
            self.flushed_to = 0;
            self.is_sized = false;
        }
    }
    /// What to report about it to a server; from then on it has no more than that.
    pub fn claim(&mut self, ino: Ino) -> FsOpens {
        let [reads, writes] = [0, 1].map(|way| self.opens[way] - self.closing[way]);
        // What is being closed is not used any more.
        let most = match (reads, writes) {
            (0, 0) => FsCap::Nothing {},
            (_, 0) => FsCap::Cache {},
            _ => FsCap::Buffer {},
        };
        self.lower(most);
        // The rank's holder will repeat recalls.
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
