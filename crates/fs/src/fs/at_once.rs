//! Calls that need only cached state: answered on the caller's thread, between two turns.
//!
//! ```text
//!  caller's thread ──Ask──▶ cached? ─▶ answered
//!                            └ no: begun, and answered after a turn
//! ```
//! A file without dirty data is also closed this way: the server is told a moment later, together
//! with others, and at the latest with the next request, or when it wants the file for another
//! client.
//!
//! Invariant: such an answer equals what a turn at that time would have answered.

use super::*;

impl Fs {
    /// The outcome of a call that can be answered now, or the call. `true`: a turn is needed,
    /// because there is a new [deadline](Service::next_deadline), or objects to read. A change of
    /// attributes or names belongs to the cache above, if there is one.
    ///
    /// # Errors
    /// The call, to be [begun](Self::begin).
    #[allow(clippy::result_large_err, reason = "it is passed on")]
    pub fn at_once(&mut self, now: Time, ask: Ask) -> Result<(Outcome, bool), Ask> {
        let Some(rank) = ask.rank() else {
            return Err(ask);
        };
        // Calls begun earlier come first.
        if !self.queue.is_empty(rank) || self.is_stopping() || !self.sessions.has_lease(rank, now) {
            return Err(ask);
        }
        let (before, waited) = (self.flush_at.min(self.send_at), !self.operations.is_empty());
        self.now = self.now.max(now);
        let outcome = match &ask {
            Ask::Names(FsCall::Close { ino, write, .. }) => self.close_at_once(*ino, *write),
            Ask::Names(FsCall::Set { ino, changes }) => self.foretell(*ino, changes),
            Ask::Names(call @ (FsCall::Make { .. } | FsCall::Unlink { .. })) => {
                self.do_here(call).ok()
            }
            Ask::Names(names) => self.names_at_once(names),
            Ask::Read {
                ino,
                offset,
                length,
            } => self.read_at_once(*ino, *offset, *length, &ask),
            Ask::Write { ino, offset, data } => self.write_at_once(*ino, *offset, data, &ask),
            Ask::Append { ino, data } => {
                let size = self.files.get(ino).map_or(0, |file| file.size);
                self.write_at_once(*ino, size, data, &ask)
            }
            Ask::Failed { ino } => Some(self.failed(*ino)),
            _ => None,
        };
        let reads_ahead = !waited && !self.operations.is_empty();
        match outcome {
            Some(outcome) => Ok((
                outcome,
                self.flush_at.min(self.send_at) < before || reads_ahead,
            )),
            None => Err(ask),
        }
    }

    pub(super) fn names_at_once(&mut self, names: &FsCall) -> Option<Outcome> {
        let (sessions, now) = (&self.sessions, self.now);
        let mut answer =
            self.names
                .answer(&|ino| sessions.has_lease(rank_of(ino), now), now, names)?;
        self.show(&mut answer);
        Some(match answer {
            FsAnswer::Failed { errno } => Err(errno),
            answer => Ok(Given::Answer(answer)),
        })
    }

    fn close_at_once(&mut self, ino: Ino, write: bool) -> Option<Outcome> {
        let file = self.files.get(&ino)?;
        let is_clean = file.dirty.is_none()
            && file.flushes.is_empty()
            && !file.growing
            && self.losses.of_writing(ino).is_none();
        if !is_clean || file.copies > 0 || !file.waiting.is_empty() || self.cache.dirty_of(ino) > 0
        {
            return None;
        }
        self.closes.push((ino, write));
        self.send_later(self.closes.len());
        Some(Ok(Given::Answer(FsAnswer::Done {})))
    }
    /// Closes answered this way become ordinary calls: before all calls begun since.
    pub(super) fn begin_closes(&mut self) {
        for (ino, write) in std::mem::take(&mut self.closes).into_iter().rev() {
            let close = FsCall::Close {
                ino,
                write,
                size: 0,
                mtime: Stamp::default(),
            };
            self.queue
                .push_front(rank_of(ino), ANSWERED, Ask::Names(close));
        }
    }

    /// A file with this capability that nothing blocks.
    pub(super) fn kept(&self, ino: Ino, cap: FsCap) -> Option<&File> {
        self.files
            .get(&ino)
            .filter(|file| file.cap >= cap && file.is_fresh && self.is_free(ino, file))
    }
    fn is_free(&self, ino: Ino, file: &File) -> bool {
        !file.resizing
            && file.recall.is_none()
            && file.waiting.is_empty()
            && !self.locking.has_lost(ino)
    }
    /// The same for a file that is or may be cached for lazy opens, as far as its size matters for
    /// that.
    fn kept_lazily(&mut self, ino: Ino, ask: &Ask) -> bool {
        let is_it =
            |file: &File| file.is_lazy() && file.exclusive.is_empty() && file.suffices_lazily(ask);
        let is_kept = self
            .files
            .get(&ino)
            .is_some_and(|file| is_it(file) && self.is_free(ino, file));
        if is_kept && let Some(file) = self.files.get_mut(&ino) {
            file.keeps_lazily = true;
        }
        is_kept
    }
    fn read_at_once(&mut self, ino: Ino, offset: u64, length: u32, ask: &Ask) -> Option<Outcome> {
        if self.kept(ino, FsCap::Cache {}).is_none() && !self.kept_lazily(ino, ask) {
            return None;
        }
        let file = self.files.get(&ino)?;
        let end = file.end_of_read(offset, length);
        if offset >= end {
            return Some(Ok(Given::Data(Vec::new())));
        }
        let data = data::whole(self.cache.read(ino, offset, end - offset))?;
        self.go_on_reading(ino, offset..end);
        Some(Ok(Given::Data(data)))
    }
    fn write_at_once(&mut self, ino: Ino, offset: u64, data: &Bytes, ask: &Ask) -> Option<Outcome> {
        if self.kept(ino, FsCap::Bounded { room: 0 }).is_none() && !self.kept_lazily(ino, ask) {
            return None;
        }
        let file = self.files.get(&ino).filter(|file| !file.asks_room)?;
        let end = offset.saturating_add(data.len() as u64);
        let fills = self.cache.untaken_of(ino) + data.len() as u64 >= u64::from(file.layout.object);
        let room = self.cache.dirty() < self.config.dirty_max as u64 && self.throttled.is_empty();
        if fills
            || !room
            || file.lacks_room(end)
            || file.has_no_room(self.now)
            || data.is_empty()
            || end > file.layout.data_max()
        {
            return None;
        }
        self.keep_written(ino, offset, end, data);
        Some(Ok(Given::Done))
    }
}
