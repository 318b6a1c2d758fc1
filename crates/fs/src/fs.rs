//! The client as a service of the cluster: callers' calls become requests to the server and operations on
//! objects.
//!
//! ```text
//!  begin ─▶ queue ─▶ Names ──────────────────▶ Session ─▶ answered: ended
//!                ├─▶ Read  ─▶ pieces ─▶ objects ─────────▶ all read: ended
//!                ├─▶ Write ─▶ pieces ─▶ objects ─▶ larger? Wrote ─▶ Session ─▶ ended
//!                └─▶ Sync  ─▶ what the server has not been told ─▶ Session ─▶ all safe: ended
//! ```
//! Data goes to objects first and the size to the server then, so that what is read is what was
//! written; where data from before a truncation may lie, the size first.
//!
//! What is known of names and attributes is answered without a request ([`crate::names`]).
//!
//! Not yet: capabilities of data. Every read and write goes to objects.
//!
//! Invariant: every call ends once.

mod evicted;
mod locking;

use self::locking::{LockPurpose, Locking};
use crate::ask::{Ask, CallId, Given, Outcome};
use crate::file::File;
use crate::names::Names;
use crate::pieces::{Piece, fill, pieces, writes};
use crate::places::Places;
use crate::seek::Seek;
use crate::session::{Answered, Holds, Session};
use bytes::Bytes;
use nacre_client::{Completion, Done, Failure, Metadata, ObjectCluster, OpId, Operation, Service};
use nacre_role::{Input, Output};
use nacre_types::{Entity, Ino, Instance, Name, ObjectId, Time};
use nacre_wire::Message;
use nacre_wire::fs::inode::SIZE_MAX;
use nacre_wire::fs::{Stamp, data_name};
use nacre_wire::msg::client::{OpFailure, SubOp};
use nacre_wire::msg::fs::{FsAnswer, FsCall, FsNode, FsOpens};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Linux' numbers for what POSIX calls these.
mod errno {
    pub const EIO: u16 = 5;
    pub const EBADF: u16 = 9;
    pub const EACCES: u16 = 13;
    pub const ENODEV: u16 = 19;
    pub const EFBIG: u16 = 27;
    pub const ENOSPC: u16 = 28;
}
use errno::*;

/// The registry is looked at again so long after a server went.
const SEEK_AGAIN: Duration = Duration::from_millis(100);

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct FsConfig {
    /// Which file system.
    pub file_system: Name,
    /// Which instance of the client it begins as: the one of its objects' client.
    pub instance: Instance,
    /// The wall clock at [`Time::ZERO`], in milliseconds since 1970.
    pub unix_ms_at_zero: u64,
    /// Names and attributes that are kept, at most: some 400 bytes each. 0: none are.
    pub names_max: usize,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The monitors have not answered.
    Unknown,
    /// There is no such file system.
    Missing,
    /// No server has it, or none that answers.
    NoServer,
    /// It has a session.
    Connected,
}

/// What the answer to a request is for.
enum Purpose {
    /// A caller.
    Call(CallId),
    /// A caller: what it is answered is open.
    Opened(CallId),
    /// A caller: this is open once less.
    Closed(CallId, Ino),
    /// A caller: this has another size.
    Resized(CallId, Ino),
    /// Data that was written: its file is as large now.
    Written(CallId, Ino),
    /// Data that is to be written there: the file is as large, and nothing stale is in the way.
    Grown(CallId, Ino, u64, Bytes),
    /// About locks.
    Lock(LockPurpose),
    /// A caller that reads or writes: how large the file is now.
    Sized(CallId, Ask),
    /// A time that no one waits for.
    Told,
}

/// A call whose data is on its way.
enum Transfer {
    Read { pieces: Vec<(u64, Option<Vec<Bytes>>)>, left: usize },
    Write { ino: Ino, end: u64, left: usize, failed: Option<u16> },
}

/// See the module head.
pub struct Fs {
    config: FsConfig,
    now: Time,
    seek: Seek,
    session: Session,
    next_call: u64,
    /// Calls that have not begun.
    queue: VecDeque<(CallId, Ask)>,
    /// Those of them that have just asked how large their file is.
    sized: BTreeSet<CallId>,
    purposes: BTreeMap<u64, Purpose>,
    files: BTreeMap<Ino, File>,
    places: Places,
    names: Names,
    locking: Locking,
    transfers: BTreeMap<CallId, Transfer>,
    /// Operations to be submitted, and those under way: of which call, and which of its pieces.
    operations: VecDeque<(Operation, CallId, usize)>,
    under_way: BTreeMap<OpId, (CallId, usize)>,
    /// Calls that end when all requests below a number are safe.
    syncs: Vec<(CallId, u64)>,
    ended: Vec<(CallId, Outcome)>,
    /// What was changed, answered and lost, and was not told yet.
    lost: BTreeSet<Ino>,
    evictions: u64,
    fencing: evicted::Fencing,
    leaving: bool,
}

impl Fs {
    /// A client that has not looked for its server yet.
    #[must_use]
    pub fn new(config: FsConfig) -> Self {
        let names_max = config.names_max;
        Self {
            now: Time::ZERO,
            seek: Seek::new(config.file_system.clone()),
            session: Session::new(config.file_system.clone(), config.instance),
            config,
            next_call: 1,
            queue: VecDeque::new(),
            sized: BTreeSet::new(),
            purposes: BTreeMap::new(),
            files: BTreeMap::new(),
            places: Places::default(),
            names: Names::new(names_max),
            locking: Locking::default(),
            transfers: BTreeMap::new(),
            operations: VecDeque::new(),
            under_way: BTreeMap::new(),
            syncs: Vec::new(),
            ended: Vec::new(),
            lost: BTreeSet::new(),
            evictions: 0,
            fencing: evicted::Fencing::default(),
            leaving: false,
        }
    }

    /// Begins a call: it goes on with the next turn.
    pub fn begin(&mut self, ask: Ask) -> CallId {
        let call = CallId(self.next_call);
        self.next_call += 1;
        match ask {
            Ask::CancelLock { wait } if self.cancel_queued(wait) => self.end(call, Ok(Given::Done)),
            ask => self.queue.push_back((call, ask)),
        }
        call
    }
    /// Takes what has ended since the last call, in the order in which it ended.
    pub fn ended(&mut self, into: &mut Vec<(CallId, Outcome)>) {
        into.append(&mut self.ended);
    }
    /// How far it has come.
    #[must_use]
    pub fn state(&self) -> State {
        match self.seek.found() {
            None => State::Unknown,
            Some(found) if found.settings.is_none() => State::Missing,
            Some(_) if self.session.is_open() => State::Connected,
            Some(_) => State::NoServer,
        }
    }

    fn end(&mut self, call: CallId, outcome: Outcome) {
        self.ended.push((call, outcome));
    }
    fn stamp(&self) -> Stamp {
        Stamp::at(self.config.unix_ms_at_zero, self.now)
    }

    // ── the server ────────────────────────────────────────────────────────────────────────────────────────────────────

    fn on_input(&mut self, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Message { from: Entity::Client(server), message, epoch } if self.session.is_with(server) => {
                self.fencing.heard(epoch);
                self.on_message(message, out);
            }
            Input::Gone(Entity::Client(server)) | Input::Absent(Entity::Client(server))
                if self.session.is_with(server) =>
            {
                self.lose_server();
            }
            Input::Tick => {
                let holds = self.session.greets_again(self.now).then(|| self.holds());
                let greets = holds.is_some();
                self.session.on_tick(self.now, holds, out);
                if greets {
                    // Its greeting gave all shares back.
                    self.names.clear();
                }
            }
            Input::Stopping => self.leaving = true,
            _ => {}
        }
    }
    fn lose_server(&mut self) {
        self.names.clear();
        self.sized.clear();
        self.session.on_away();
        self.seek.forget_holder(self.now + SEEK_AGAIN);
    }

    fn on_message(&mut self, message: Message, out: &mut Vec<Output>) {
        match message {
            Message::FsWelcome(welcome) => self.session.on_welcome(self.now, welcome.greeting, out),
            Message::FsAway(_) => self.lose_server(),
            Message::FsReply(reply) => {
                if let Some(answered) = self.session.on_reply(reply) {
                    let Answered { number, call, answer, keep, shares, changed } = answered;
                    if self.config.names_max > 0 {
                        self.names.share(&shares);
                    }
                    self.names.on_changed(&changed);
                    self.names.learn(self.now, &call, &answer, keep);
                    self.on_answer(number, &call, answer);
                }
            }
            Message::FsForget(forget) => {
                forget.items.iter().for_each(|item| self.names.forget(item));
                self.session.forgot(forget.number, out);
            }
            Message::FsPong(pong) => self.session.on_pong(pong.number),
            Message::FsSafe(safe) => self.session.on_safe(&safe.numbers),
            Message::FsEvicted(evicted) => self.on_evicted(evicted.instance, out),
            Message::FsLocked(locked) => self.on_locked(locked),
            _ => {}
        }
    }

    /// How often it was evicted.
    #[must_use]
    pub const fn evictions(&self) -> u64 {
        self.evictions
    }

    fn on_answer(&mut self, number: u64, asked: &FsCall, mut answer: FsAnswer) {
        for (ino, place) in self.places.learn(asked, &answer) {
            if let Some(file) = self.files.get_mut(&ino) {
                file.place = Some(place);
            }
        }
        self.show(&mut answer);
        let given = match answer {
            FsAnswer::Failed { errno } => Err(errno),
            answer => Ok(answer),
        };
        match self.purposes.remove(&number) {
            Some(Purpose::Call(call)) => self.end(call, given.map(Given::Answer)),
            Some(Purpose::Opened(call)) => {
                if let Ok(FsAnswer::Node { node, .. }) = &given
                    && let Some(new) = File::new(&node.inode)
                {
                    let place = self.places.get(node.inode.ino);
                    let file = self.files.entry(node.inode.ino).or_insert(new);
                    file.opens += 1;
                    file.place = place.or_else(|| file.place.take());
                }
                self.end(call, given.map(Given::Answer));
            }
            Some(Purpose::Closed(call, ino)) => {
                self.end(call, given.map(Given::Answer));
                if let Some(file) = self.files.get_mut(&ino) {
                    file.opens = file.opens.saturating_sub(1);
                    self.go_on(ino);
                }
            }
            Some(Purpose::Resized(call, ino)) => {
                self.end(call, given.map(Given::Answer));
                if let Some(file) = self.files.get_mut(&ino) {
                    file.resizing = false;
                    self.go_on(ino);
                }
            }
            Some(Purpose::Written(call, ino)) => {
                self.end(call, given.map(|_| Given::Done));
                self.write_ended(ino);
            }
            Some(Purpose::Grown(call, ino, offset, data)) => match given {
                Ok(_) => self.write(call, ino, offset, &data),
                Err(errno) => {
                    self.end(call, Err(errno));
                    self.write_ended(ino);
                }
            },
            Some(Purpose::Sized(call, ask)) => match given {
                // What came after it has not begun, or is another caller's.
                Ok(_) => {
                    self.sized.insert(call);
                    self.queue.push_front((call, ask));
                }
                Err(errno) => self.end(call, Err(errno)),
            },
            Some(Purpose::Lock(purpose)) => self.lock_answered(number, purpose, given),
            Some(Purpose::Told) | None => {}
        }
    }

    fn show(&mut self, answer: &mut FsAnswer) {
        match answer {
            FsAnswer::Node { node, .. } => self.look(node),
            FsAnswer::Listed { entries, .. } => entries.iter_mut().for_each(|listed| self.look(&mut listed.node)),
            _ => {}
        }
    }
    /// An inode as the server knows it, on its way to callers.
    fn look(&mut self, node: &mut FsNode) {
        if let Some(file) = self.files.get_mut(&node.inode.ino) {
            file.learn(&node.inode);
            file.show(node);
        }
    }

    fn request(&mut self, call: FsCall, purpose: Purpose, out: &mut Vec<Output>) {
        let place = call.ino().and_then(|ino| {
            let file = self.files.get(&ino).and_then(|file| file.place.clone());
            file.or_else(|| self.places.get(ino))
        });
        let number = self.session.request(self.now, call, place, out);
        self.purposes.insert(number, purpose);
    }

    // ── calls ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    fn start(&mut self, call: CallId, ask: Ask, out: &mut Vec<Output>) {
        match ask {
            // It did not know that another one may have had the lock meanwhile.
            Ask::Read { ino, .. } | Ask::Write { ino, .. } if self.locking.take_lost(ino) => self.end(call, Err(EIO)),
            // Another client may have made it larger, or shorter.
            Ask::Read { ino, .. } | Ask::Write { ino, .. }
                if self.files.contains_key(&ino) && !self.sized.remove(&call) && !self.knows(ino) =>
            {
                self.request(FsCall::Stat { ino }, Purpose::Sized(call, ask), out);
            }
            Ask::Lock { lock, wait } => self.lock(call, lock, wait, out),
            Ask::Unlock { lock } => self.unlock(Some(call), lock, out),
            Ask::UnlockAll { ino, owner } => self.unlock_all(call, ino, owner, out),
            Ask::CancelLock { wait } => self.cancel(call, wait, out),
            Ask::Names(names) => self.names(call, names, out),
            Ask::Read { ino, offset, length } => self.read(call, ino, offset, length),
            Ask::Write { ino, offset, data } => {
                let stamp = self.stamp();
                let Some(file) = self.files.get_mut(&ino) else { return self.end(call, Err(EBADF)) };
                let end = offset.saturating_add(data.len() as u64);
                if end > SIZE_MAX {
                    return self.end(call, Err(EFBIG));
                }
                if data.is_empty() {
                    return self.end(call, Ok(Given::Done));
                }
                if file.resizing {
                    return file.waiting.push_back((call, Ask::Write { ino, offset, data }));
                }
                file.writes += 1;
                if file.is_stale_at(end) {
                    let wrote = FsCall::Wrote { ino, size: end, mtime: stamp };
                    return self.request(wrote, Purpose::Grown(call, ino, offset, data), out);
                }
                self.write(call, ino, offset, &data);
            }
            Ask::Sync { ino } => {
                let lost = match ino {
                    Some(ino) => self.lost.remove(&ino),
                    None => !std::mem::take(&mut self.lost).is_empty(),
                };
                // Said once.
                if lost {
                    return self.end(call, Err(EIO));
                }
                let all: Vec<Ino> = match ino {
                    Some(ino) => vec![ino],
                    None => self.files.keys().copied().collect(),
                };
                for ino in all {
                    self.tell_time(ino, out);
                }
                self.syncs.push((call, self.session.next()));
            }
        }
    }

    fn names(&mut self, call: CallId, mut names: FsCall, out: &mut Vec<Output>) {
        if self.session.has_lease(self.now)
            && let Some(mut answer) = self.names.answer(self.now, &names)
        {
            self.show(&mut answer);
            let given = match answer {
                FsAnswer::Failed { errno } => Err(errno),
                answer => Ok(Given::Answer(answer)),
            };
            return self.end(call, given);
        }
        let mut purpose = Purpose::Call(call);
        match &mut names {
            FsCall::Open { .. } | FsCall::Make { open: true, .. } => purpose = Purpose::Opened(call),
            FsCall::Close { ino, size, mtime } => {
                purpose = Purpose::Closed(call, *ino);
                (*size, *mtime) = (0, Stamp::default());
                // Its size was told with each write: said again, it would undo a truncation that is under way.
                if let Some(dirty) = self.files.get_mut(ino).and_then(|file| file.dirty.take()) {
                    *mtime = dirty;
                }
            }
            FsCall::Set { ino, changes } => {
                if let Some(file) = self.files.get_mut(ino) {
                    if changes.size.is_some() {
                        if file.writes > 0 || file.resizing {
                            return file.waiting.push_back((call, Ask::Names(names)));
                        }
                        file.resizing = true;
                        purpose = Purpose::Resized(call, *ino);
                    }
                    if changes.mtime.is_some() {
                        file.dirty = None;
                    }
                }
            }
            _ => {}
        }
        self.request(names, purpose, out);
    }

    /// Whether what is known of a file is what the server knows: it would have said otherwise.
    fn knows(&self, ino: Ino) -> bool {
        self.session.has_lease(self.now) && self.names.has(ino)
    }

    /// The server has not been told when a file was written.
    fn tell_time(&mut self, ino: Ino, out: &mut Vec<Output>) {
        if let Some(file) = self.files.get_mut(&ino)
            && let Some(mtime) = file.dirty.take()
        {
            let wrote = FsCall::Wrote { ino, size: 0, mtime };
            self.request(wrote, Purpose::Told, out);
        }
    }

    // ── data ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    fn operation(&self, ino: Ino, number: u64, ops: Vec<SubOp>, payload: Vec<Bytes>) -> Operation {
        let settings = self.seek.found().and_then(|found| found.settings.as_ref());
        let namespace = settings.map(|settings| settings.namespace.clone()).unwrap_or_default();
        let name = Name::from(&*data_name(ino, number));
        let object = ObjectId { name, namespace, ..ObjectId::default() };
        let pool = self.files[&ino].layout.pool;
        Operation { pool, object, ops, payload, ..Operation::default() }
    }

    fn read(&mut self, call: CallId, ino: Ino, offset: u64, length: u32) {
        let Some(file) = self.files.get(&ino) else { return self.end(call, Err(EBADF)) };
        let end = offset.saturating_add(u64::from(length)).min(file.size);
        if offset >= end {
            return self.end(call, Ok(Given::Data(Vec::new())));
        }
        let all = pieces(&file.layout, offset, end - offset);
        for (index, Piece { number, offset, length }) in all.iter().copied().enumerate() {
            let ops = vec![SubOp::Read { offset, length }];
            let operation = self.operation(ino, number, ops, Vec::new());
            self.operations.push_back((operation, call, index));
        }
        let left = all.len();
        let pieces = all.into_iter().map(|piece| (piece.length, None)).collect();
        self.transfers.insert(call, Transfer::Read { pieces, left });
    }

    fn write(&mut self, call: CallId, ino: Ino, offset: u64, data: &Bytes) {
        let all = writes(&self.files[&ino].layout, offset, data);
        let end = offset + data.len() as u64;
        self.transfers.insert(call, Transfer::Write { ino, end, left: all.len(), failed: None });
        for (number, (mut ops, payload)) in all {
            if number == 0 {
                ops.extend(self.files[&ino].parent());
            }
            let operation = self.operation(ino, number, ops, payload);
            self.operations.push_back((operation, call, 0));
        }
    }

    fn on_completion(&mut self, completion: Completion, out: &mut Vec<Output>) {
        let Some((call, index)) = self.under_way.remove(&completion.id) else { return };
        self.fencing.look(&completion);
        self.piece_ended(call, index, completion.result, out);
    }

    fn piece_ended(&mut self, call: CallId, index: usize, result: Result<Done, Failure>, out: &mut Vec<Output>) {
        let Some(transfer) = self.transfers.get_mut(&call) else { return };
        match transfer {
            Transfer::Read { pieces, left } => {
                let read = match result {
                    Ok(done) => done.payload,
                    // A hole.
                    Err(Failure::Refused(OpFailure::NotFound {})) => Vec::new(),
                    Err(why) => {
                        self.transfers.remove(&call);
                        return self.end(call, Err(errno_of(&why)));
                    }
                };
                let (length, place) = &mut pieces[index];
                *place = Some(fill(read, *length));
                *left -= 1;
                if *left == 0 {
                    let parts = pieces.drain(..).filter_map(|(_, read)| read).flatten().collect();
                    self.transfers.remove(&call);
                    self.end(call, Ok(Given::Data(parts)));
                }
            }
            Transfer::Write { ino, end, left, failed } => {
                if let Err(why) = &result {
                    failed.get_or_insert_with(|| errno_of(why));
                }
                *left -= 1;
                if *left == 0 {
                    let (ino, end, failed) = (*ino, *end, *failed);
                    self.transfers.remove(&call);
                    self.written(call, ino, end, failed, out);
                }
            }
        }
    }

    /// All of a call's data is written, or some of it cannot be.
    fn written(&mut self, call: CallId, ino: Ino, end: u64, failed: Option<u16>, out: &mut Vec<Output>) {
        let stamp = self.stamp();
        let file = self.files.get_mut(&ino).expect("files with writes under way are kept");
        if let Some(errno) = failed {
            self.end(call, Err(errno));
            return self.write_ended(ino);
        }
        let is_larger = end > file.size;
        // It may have been cut off meanwhile.
        if is_larger || !self.knows(ino) {
            let wrote = FsCall::Wrote { ino, size: end, mtime: stamp };
            return self.request(wrote, Purpose::Written(call, ino), out);
        }
        let file = self.files.get_mut(&ino).expect("just seen");
        file.dirty = Some(stamp);
        self.end(call, Ok(Given::Done));
        self.write_ended(ino);
    }

    fn write_ended(&mut self, ino: Ino) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        file.writes -= 1;
        if file.writes == 0 {
            self.go_on(ino);
        }
    }

    /// What waited for a file may be possible now.
    fn go_on(&mut self, ino: Ino) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        // In front, in their order: they came before what has not begun.
        while let Some(waiting) = file.waiting.pop_back() {
            self.queue.push_front(waiting);
        }
        if file.opens == 0 && file.writes == 0 && file.dirty.is_none() {
            self.files.remove(&ino);
            self.locking.take_lost(ino);
        }
    }

    // ── turns ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Begins what can be begun.
    fn start_calls(&mut self, out: &mut Vec<Output>) {
        if self.state() == State::Missing {
            for (call, _) in std::mem::take(&mut self.queue) {
                self.end(call, Err(ENODEV));
            }
        }
        // What waits for a file comes back to the queue.
        while self.session.has_room() && self.state() == State::Connected {
            let Some((call, ask)) = self.queue.pop_front() else { break };
            self.start(call, ask, out);
        }
    }

    fn submit(&mut self, objects: &mut dyn ObjectCluster) {
        while let Some((operation, call, index)) = self.operations.pop_front() {
            // A read that has failed needs the rest no more.
            if !self.transfers.contains_key(&call) {
                continue;
            }
            match objects.submit(self.now, operation.clone()) {
                Ok(id) => drop(self.under_way.insert(id, (call, index))),
                // Again with the next turn.
                Err(_) => {
                    self.operations.push_front((operation, call, index));
                    return;
                }
            }
        }
    }
}

impl Service for Fs {
    fn on_turn(
        &mut self,
        now: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        objects: &mut dyn ObjectCluster,
        metadata: &mut dyn Metadata,
        out: &mut Vec<Output>,
    ) {
        self.now = now;
        for input in inputs {
            self.on_input(input, out);
        }
        self.seek.on_turn(now, !self.session.is_away(), metadata);
        if !self.leaving
            && let Some(holder) = self.seek.found().and_then(|found| found.holder.as_ref())
            && !self.session.is_with(holder.client())
        {
            let (holder, holds) = (holder.clone(), self.holds());
            self.names.clear();
            self.session.on_holder(now, &holder, holds, out);
        }
        let mut done = Vec::new();
        objects.completions(&mut done);
        for completion in done {
            self.on_completion(completion, out);
        }
        if self.fencing.is_fenced() {
            self.on_evicted(self.acts_as(), out);
        }
        self.start_calls(out);
        objects.rest_on(self.fencing.epoch());
        self.submit(objects);
        let safe = self.session.safe_below();
        for (call, _) in self.syncs.extract_if(.., |(_, below)| *below <= safe) {
            self.ended.push((call, Ok(Given::Done)));
        }
        if self.leaving {
            self.session.leave(out);
        }
    }

    fn next_deadline(&self) -> Time {
        self.seek.next_deadline().min(self.session.next_deadline())
    }
    fn instance(&self) -> Option<Instance> {
        Some(self.acts_as())
    }
}

/// What is open.
fn opens(files: &BTreeMap<Ino, File>) -> Vec<FsOpens> {
    let open = files.iter().filter(|(_, file)| file.opens > 0);
    open.map(|(ino, file)| FsOpens { ino: *ino, times: file.opens }).collect()
}

/// What POSIX calls it.
fn errno_of(why: &Failure) -> u16 {
    match why {
        Failure::Refused(OpFailure::Full {}) | Failure::Doubtful(OpFailure::Full {}) => ENOSPC,
        Failure::Refused(OpFailure::Denied { .. }) => EACCES,
        Failure::Refused(OpFailure::TooLarge {}) => EFBIG,
        _ => EIO,
    }
}
