//! Reads journals from their first object to their last, past damaged parts.

use super::*;
use crate::change::Change;
use crate::journal::{self, Batch, READ_MAX};
use nacre_wire::Wire as _;
use nacre_wire::frame::crc32c;

/// The next batch of an object, and the bytes after it; `None` if it is incomplete.
fn next_batch(bytes: &[u8]) -> Option<(Batch, &[u8])> {
    let (head, rest) = bytes.split_at_checked(8)?;
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let (body, rest) = rest.split_at_checked(word(0) as usize)?;
    if crc32c(body) != word(4) {
        return None;
    }
    Some((Batch::from_bytes(body).ok()?, rest))
}

impl Check {
    pub(super) fn read_journals(&mut self) {
        for rank in (0..self.config.ranks).map(Rank) {
            self.journals.insert(rank, Journaled::new(rank));
            let ops = vec![
                SubOp::Stat {},
                SubOp::Read {
                    offset: 0,
                    length: READ_MAX,
                },
            ];
            let pool = self.config.pool;
            self.push(
                Purpose::JournalHead(rank),
                pool,
                &journal::head_name(rank),
                ops,
            );
        }
    }
    pub(super) fn on_journal_head(&mut self, rank: Rank, result: Result<Done, Trouble>) {
        let name = journal::head_name(rank);
        let head = match result {
            Ok(done) => JournalHead::from_bytes(&done.payload.concat()).ok(),
            Err(Trouble::NotFound) => Some(JournalHead {
                serial: Ino::SERIAL_MIN,
                ..JournalHead::default()
            }),
            Err(Trouble::Other(why)) => {
                return self.find(Kind::Unreadable, name, format!("it cannot be read: {why}"));
            }
        };
        let journal = self.journal(rank);
        match head {
            Some(head) => {
                (journal.next, journal.serial) = (head.sequence, head.serial);
                let first = head.first;
                head.writers
                    .iter()
                    .for_each(|writer| journal.writers.apply(writer.clone(), 0));
                for progress in head.transactions.iter().cloned() {
                    journal.transactions.inherit(progress, 0);
                }
                journal.head = head;
                self.read_journal(rank, first);
            }
            None => {
                (journal.damaged, journal.is_headless) = (true, true);
                let what = "it cannot be decoded: where the journal begins is not known";
                let finding = Finding::new(Kind::JournalHead, name, what.to_owned());
                let repair = "it is written again; all batches that there are are applied";
                self.findings.push(finding.repaired(repair, Vec::new()));
            }
        }
    }
    /// Reads journals without a head, from the first existing object; returns whether there are
    /// any.
    pub(super) fn read_headless(&mut self) -> bool {
        let mut found = Vec::new();
        for (rank, journal) in self
            .journals
            .iter_mut()
            .filter(|(_, journal)| journal.is_headless)
        {
            if let Some(lowest) = journal.lowest.take() {
                (journal.head.first, journal.head.gone_below) = (lowest, lowest);
                found.push((*rank, lowest));
            }
        }
        found
            .iter()
            .for_each(|(rank, lowest)| self.read_journal(*rank, *lowest));
        !found.is_empty()
    }
    fn read_journal(&mut self, rank: Rank, number: u64) {
        let ops = vec![
            SubOp::Stat {},
            SubOp::Read {
                offset: 0,
                length: READ_MAX,
            },
        ];
        let (pool, name) = (self.config.pool, journal::object_name(rank, number));
        self.push(Purpose::Journal(rank, number), pool, &name, ops);
    }

    pub(super) fn on_journal(&mut self, rank: Rank, number: u64, result: Result<Done, Trouble>) {
        let name = journal::object_name(rank, number);
        let bytes = match result {
            Ok(done) => done.payload.concat(),
            // It ends with the previous object.
            Err(Trouble::NotFound) => return,
            Err(Trouble::Other(why)) => {
                self.find(Kind::Unreadable, name, format!("it cannot be read: {why}"));
                return;
            }
        };
        let (mut rest, mut damage) = (&bytes[..], bytes.is_empty().then_some(0));
        while !rest.is_empty() {
            let at = bytes.len() - rest.len();
            let Some((batch, behind)) = next_batch(rest) else {
                damage = Some(at);
                break;
            };
            rest = behind;
            let journal = self.journal(rank);
            if journal.is_headless && journal.next == 0 {
                journal.next = batch.sequence;
            }
            let next = journal.next;
            if batch.sequence != next {
                damage.get_or_insert(at);
            }
            // Older batches were there before.
            if batch.sequence >= next {
                self.apply_batch(rank, batch);
            }
        }
        if let Some(at) = damage {
            let journal = self.journal(rank);
            journal.damaged = true;
            let what = format!(
                "from byte {at} on it is not whole, or out of sequence, at batch {}",
                journal.next
            );
            let repair = "what is whole is applied, and the journal begins behind it";
            let finding = Finding::new(Kind::JournalDamaged, name, what);
            self.findings.push(finding.repaired(repair, Vec::new()));
        }
        self.read_journal(rank, number + 1);
    }

    /// What is known about a rank's journal.
    fn journal(&mut self, rank: Rank) -> &mut Journaled {
        self.journals
            .entry(rank)
            .or_insert_with(|| Journaled::new(rank))
    }
    fn apply_batch(&mut self, rank: Rank, batch: Batch) {
        self.counts.batches += 1;
        let journal = self.journal(rank);
        journal.next = batch.sequence + 1;
        journal.serial = journal.serial.max(batch.serial);
        journal.writers.read(&batch);
        for progress in batch.transactions {
            journal.transactions.inherit(progress, batch.sequence);
        }
        if !self.config.journals {
            return;
        }
        for change in batch.changes {
            match &change {
                Change::End { dir } => drop(self.ended.insert(*dir)),
                Change::Begin { dir } => drop(self.ended.remove(dir)),
                _ => {}
            }
            self.overlay.apply(change);
        }
    }

    /// An object of the metadata pool.
    pub(super) fn on_metadata_object(&mut self, name: &str) {
        if let Some(fragment) = parse_fragment(name) {
            // The journal says that it is removed: its object will be deleted.
            if !self.ended.contains(&fragment.0) {
                self.fragments.insert(fragment);
            }
            return;
        }
        let of_journal = name.strip_prefix("journal.").and_then(|rest| {
            let (rank, number) = rest
                .split_once('.')
                .map_or((rest, None), |(rank, n)| (rank, Some(n)));
            let rank = Rank(u16::from_str_radix(rank, 16).ok()?);
            let number = number
                .map(|number| u64::from_str_radix(number, 16))
                .transpose()
                .ok()?;
            self.journals.contains_key(&rank).then_some((rank, number))
        });
        match of_journal {
            Some((rank, Some(number))) => {
                let journal = self.journal(rank);
                journal.last = journal.last.max(Some(number));
                journal.lowest = Some(journal.lowest.map_or(number, |lowest| lowest.min(number)));
            }
            Some((_, None)) => {}
            // It is handled with the other data.
            None if self.data_pools.contains(&self.config.pool) && parse_data(name).is_some() => {}
            None => self.find(
                Kind::Unknown,
                name,
                "no part of a file system has this name",
            ),
        }
    }
}
