//! Finds unreported writes of an evicted client in the files' objects (CEPH-03, -23).
//!
//! ```text
//!  its fence is in force ─▶ each file that it had open for writing ─▶ the lengths of the file's objects, up to
//!  Layout::reach beyond what is known ─▶ the file's size, with the current time as its modification time ─▶ its session ends
//! ```
//! So what it had synchronized is in the file, even if no surviving server had been told; and no
//! data is left beyond the known end, to show up in a hole later.
//!
//! A file with delayed writes, which the client had alone, gets the size up to which its data
//! continues without a hole: data after a hole was still being written when the client died, and a
//! log with zeros in it is worse than a shorter one. (A client that leaves a hole waits for the
//! journal before it reports that it has synchronized.) A file that it appended to together with
//! others keeps its reported size, because half a record would be wrong. Data beyond that is
//! removed, unless others write at the same time: then it may be theirs, and stays.
//!
//! Until its session ends the client keeps its open files. Another client's truncation of such a
//! file waits for this, and so does the removal of its data. Clients evicted in a repair, which
//! knows no sessions, are handled by the next holder of the rank before it serves.
//!
//! A file that several had open for writing is examined once for each, one after another: first for
//! the client that had it alone, and not before all that may be writing it have come, or are
//! evicted, too.
//!
//! Invariant: a file that is being examined is not truncated.

use super::*;
use crate::removing::cut;
use crate::writers::Writer;

/// Files examined at a time.
const AT_ONCE: usize = 16;
/// Objects of each file examined at a time.
const PARTS_AT_ONCE: usize = 16;

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Probing {
    /// The remaining files of each client.
    clients: BTreeMap<ClientId, BTreeSet<Ino>>,
    files: BTreeMap<(ClientId, Ino), Probe>,
    /// Clients among them without a session.
    forgotten: BTreeSet<ClientId>,
    /// Files whose directories cannot be read: for the next holder of the rank.
    unread: BTreeSet<(ClientId, Ino)>,
}

/// A file being examined.
#[derive(Debug)]
struct Probe {
    layout: Layout,
    /// The next object, and the end of the range, excluded.
    next: u64,
    last: u64,
    under_way: usize,
    /// The objects' lengths.
    lengths: BTreeMap<u64, u64>,
    /// Offset up to which data counts.
    until: u64,
    /// Data beyond this offset, the file's end, is being removed, so that later writers find
    /// nothing there.
    cut_to: Option<u64>,
}

impl Probe {
    fn of(inode: &Inode) -> Option<Self> {
        let layout = inode.layout?;
        let data_to = inode.data_to();
        // Beyond its end is only truncated data: its clients wait until that is removed.
        let until = if inode.stale_to() > inode.size {
            inode.size
        } else {
            data_to + layout.reach()
        };
        let until = until.min(layout.data_max());
        let set = u64::from(layout.object) * u64::from(layout.count);
        let first = data_to / set * u64::from(layout.count);
        let last = if until > data_to {
            layout.objects(until)
        } else {
            first
        };
        Some(Self {
            layout,
            next: first,
            last,
            under_way: 0,
            lengths: BTreeMap::new(),
            until,
            cut_to: None,
        })
    }
    const fn is_done(&self) -> bool {
        self.under_way == 0 && self.next >= self.last
    }
    /// Where the data found ends.
    fn end(&self) -> u64 {
        let ends = self
            .lengths
            .iter()
            .map(|(number, length)| self.layout.end_of(*number, *length));
        ends.max().unwrap_or(0).min(self.until)
    }
    /// How far it continues from there without a hole.
    fn whole_from(&self, from: u64) -> u64 {
        let mut at = from;
        while at < self.until {
            let (number, offset, left) = self.layout.place(at);
            let length = self.lengths.get(&number).copied().unwrap_or(0);
            let there = length.saturating_sub(offset).min(left);
            at += there;
            if there < left {
                break;
            }
        }
        at.min(self.until)
    }
}

impl Probing {
    /// Whether it is not known yet how far a file is written.
    pub fn has(&self, ino: Ino) -> bool {
        self.clients.values().any(|files| files.contains(&ino))
    }
    /// Whether that is so for files whose writers have no session any more.
    pub fn has_forgotten(&self) -> bool {
        !self.forgotten.is_empty()
    }
    fn drop_file(&mut self, client: ClientId, ino: Ino) {
        self.files.remove(&(client, ino));
        if let Some(files) = self.clients.get_mut(&client) {
            files.remove(&ino);
        }
    }
}

impl Mds {
    /// A client executes nothing any more: examines what it had open for writing.
    pub(super) fn begin_probing(&mut self, client: ClientId) {
        let files = self.written_by(client);
        self.probing.clients.insert(client, files);
    }
    #[nacre_types::planted]
    fn written_by(&self, client: ClientId) -> BTreeSet<Ino> {
        self.writers.of(client).into_iter().collect()
    }
    /// The same for all clients with open files whose sessions were ended by a repair.
    pub(super) fn probe_forgotten(&mut self) {
        let gone: Vec<ClientId> = self
            .writers
            .clients()
            .filter(|client| !self.sessions.contains_key(client))
            .collect();
        for client in gone {
            self.probing.forgotten.insert(client);
            self.begin_probing(client);
        }
    }

    /// Continues with all files being examined.
    pub(super) fn probe(&mut self) {
        let some = |(client, files): (&ClientId, &BTreeSet<Ino>)| {
            let (client, next) = (*client, |ino: &&Ino| self.is_next(*client, **ino));
            files
                .iter()
                .filter(next)
                .take(AT_ONCE)
                .map(move |ino| (client, *ino))
                .collect::<Vec<_>>()
        };
        let files: Vec<(ClientId, Ino)> = self.probing.clients.iter().flat_map(some).collect();
        for (client, ino) in files {
            self.probe_file(client, ino);
        }
        let over =
            |(client, files): (&ClientId, &BTreeSet<Ino>)| files.is_empty().then_some(*client);
        let over: Vec<ClientId> = self.probing.clients.iter().filter_map(over).collect();
        for client in over {
            self.probing.clients.remove(&client);
            self.probed(client);
        }
    }

    /// Whether a file is to be examined for this client now, and not for another one first.
    fn is_next(&self, client: ClientId, ino: Ino) -> bool {
        let may_come = |other: &ClientId| {
            self.expected.contains(other) && !self.probing.clients.contains_key(other)
        };
        if self
            .writers
            .who(ino)
            .any(|other| other != client && may_come(&other))
        {
            return false;
        }
        let all = || {
            self.probing
                .clients
                .iter()
                .filter(|(_, files)| files.contains(&ino))
                .map(|(client, _)| *client)
        };
        let first = all()
            .find(|client| self.caps.writes_alone(ino, *client))
            .or_else(|| all().next());
        first == Some(client)
    }

    fn probe_file(&mut self, client: ClientId, ino: Ino) {
        if !self.probing.files.contains_key(&(client, ino)) {
            let Some(inode) = self.tree.inode(ino) else {
                return self.find_written(client, ino);
            };
            match Probe::of(inode) {
                Some(probe) => drop(self.probing.files.insert((client, ino), probe)),
                None => return self.probing.drop_file(client, ino),
            }
        }
        let probe = self
            .probing
            .files
            .get_mut(&(client, ino))
            .expect("it was just put there");
        let mut numbers = Vec::new();
        while probe.under_way < PARTS_AT_ONCE && probe.next < probe.last {
            numbers.push(probe.next);
            probe.next += 1;
            probe.under_way += 1;
        }
        let (pool, is_done) = (probe.layout.pool, probe.is_done());
        for number in numbers {
            let operation = self.of_data(pool, ino, number, SubOp::Stat {});
            self.queue.push_back((
                operation,
                Purpose::Probe {
                    client,
                    ino,
                    number,
                },
            ));
        }
        if is_done {
            self.found_written(client, ino);
        }
    }

    /// Reads the inode of such a file.
    fn find_written(&mut self, client: ClientId, ino: Ino) {
        if let Some(place) = self.writers.place(ino) {
            self.places.hint(ino, place.clone());
        }
        if let Err(errno) = self.seek(Missing::Inode(ino)) {
            if errno == EIO {
                self.probing.unread.insert((client, ino));
            }
            self.probing.drop_file(client, ino);
        }
    }

    /// The length of an object; `None`: it does not exist, or cannot be determined.
    pub(super) fn on_probed(
        &mut self,
        client: ClientId,
        ino: Ino,
        number: u64,
        done: Option<&nacre_client::Done>,
    ) {
        let Some(probe) = self.probing.files.get_mut(&(client, ino)) else {
            return;
        };
        probe.under_way -= 1;
        let results = done.map(|done| &done.results[..]).unwrap_or_default();
        for reply in results.iter().filter(|_| probe.cut_to.is_none()) {
            if let SubReply::Stat { size, .. } = reply {
                probe.lengths.insert(number, *size);
            }
        }
    }

    /// All objects of a file have been examined.
    fn found_written(&mut self, client: ClientId, ino: Ino) {
        let Some(inode) = self.tree.inode(ino) else {
            return self.find_written(client, ino);
        };
        let (probe, data_to) = (&self.probing.files[&(client, ino)], inode.data_to());
        let end = probe.end();
        let wrote = self
            .writers
            .get(client, ino)
            .is_some_and(|writer| writer.wrote);
        let found = || match (wrote, self.caps.writes_alone(ino, client)) {
            (true, true) => probe.whole_from(inode.size),
            (false, true) => inode.size,
            (_, false) => end,
        };
        // What was decided when the removal began is kept.
        let whole = probe.cut_to.unwrap_or_else(found);
        let now = wrote || whole > inode.size;
        let size = inode.size.max(whole);
        if end > size && probe.cut_to.is_none() {
            return self.cut_off(client, ino, size);
        }
        let end = end.min(size);
        let found = Written {
            size,
            end: end.max(data_to),
            now,
        };
        if end <= data_to && !now {
            return self.probing.drop_file(client, ino);
        }
        let setting = Setting {
            rank: self.config.rank,
            now: self.stamp(),
            ino,
            layout: self.config.layout,
            is_open: &|ino| self.caps.is_open(ino),
            // It may have no name any more.
            again: true,
            is_settling: &|ino| self.settling.contains_key(&ino),
            facts: &[],
            rooms: self.caps.rooms(),
            room: (0, 0),
        };
        match evaluate_found(&self.tree, ino, found, &setting) {
            Verdict::Done(outcome) => {
                let mut waits = Vec::new();
                for change in &outcome.changes {
                    self.shares.on_change(None, change, &self.tree, &mut waits);
                }
                self.change_unasked(outcome.changes, &waits);
                self.probing.drop_file(client, ino);
            }
            // Retried in the next turn.
            Verdict::Busy(_) | Verdict::Crowded(..) | Verdict::Across(..) => {}
            Verdict::Wants(missing) => {
                if self.seek(missing).is_err() {
                    self.probing.drop_file(client, ino);
                }
            }
        }
    }
    /// Removes data found beyond a file's end. If the next holder repeats it, the result is the
    /// same.
    fn cut_off(&mut self, client: ClientId, ino: Ino, size: u64) {
        let probe = self
            .probing
            .files
            .get_mut(&(client, ino))
            .expect("it is looked at");
        probe.cut_to = Some(size);
        let (layout, mut cuts) = (probe.layout, Vec::new());
        for (number, length) in probe.lengths.iter().filter(|(_, length)| **length > 0) {
            cuts.extend(cut(&layout, *number, size, *length).map(|op| (*number, op)));
        }
        probe.under_way += cuts.len();
        for (number, op) in cuts {
            let operation = self.of_data(layout.pool, ino, number, op);
            self.queue.push_back((
                operation,
                Purpose::Probe {
                    client,
                    ino,
                    number,
                },
            ));
        }
    }
    /// All files that a client had open for writing are known.
    fn probed(&mut self, client: ClientId) {
        if self.probing.forgotten.remove(&client) {
            self.end_forgotten(client);
        } else {
            let unread = self.unread_of(client);
            let unread: Vec<Writer> = unread
                .into_iter()
                .filter_map(|ino| self.writers.get(client, ino))
                .collect();
            self.end_evicted(client);
            // They were removed with its session.
            let batch = self.journal.number();
            for writer in unread {
                self.writers.apply(writer.clone(), batch);
                self.journal.push_writer(writer, batch);
            }
        }
        self.try_again = true;
    }
    fn end_forgotten(&mut self, client: ClientId) {
        let unread = self.unread_of(client);
        for ino in self
            .writers
            .of(client)
            .into_iter()
            .filter(|ino| !unread.contains(ino))
        {
            self.record_close(client, ino);
        }
    }
    /// Files that could not be examined because their directory cannot be read.
    fn unread_of(&mut self, client: ClientId) -> BTreeSet<Ino> {
        self.probing
            .unread
            .extract_if(.., |(who, _)| *who == client)
            .map(|(_, ino)| ino)
            .collect()
    }
}
