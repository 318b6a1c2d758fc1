//! Loading: what a daemon reads from its store when it starts.
//!
//! ```text
//!  daemon record ─▶ list of PGs ─▶ each PG's attribute and omap ─▶ loaded
//! ```
//! The objects themselves are not read: the cost of a start depends on PGs and log entries, not on
//! objects.

use crate::key::{self, META};
use crate::pg::local::Local;
use crate::record::DaemonRecord;
use bytes::Bytes;
use nacre_store::{Event, Op, Read, ReadReply, Token, Transaction};
use nacre_types::{ClusterId, Instance, OsdId, PgId, Time};
use std::collections::BTreeMap;

/// The transaction that makes an empty store an OSD's.
#[must_use]
pub fn format(cluster: ClusterId, osd: OsdId) -> Transaction {
    let mut transaction = Transaction::new()
        .create_collection(META)
        .create_collection(key::INCOMING);
    transaction.ops.extend(
        DaemonRecord {
            cluster,
            osd,
            instance: Instance(0),
        }
        .save()
        .ops,
    );
    transaction
}

/// The reading of the store.
#[derive(Debug, Default)]
pub struct Loading {
    /// Pages read after the first ones of PGs.
    pub pages: u64,
    record: Option<DaemonRecord>,
    groups: BTreeMap<PgId, Group>,
    pending: BTreeMap<Token, Step>,
    next: u64,
    /// The number of entries in one read of a PG's omap.
    page: usize,
}

#[derive(Debug)]
enum Step {
    Record,
    Groups,
    Incoming,
    Stat(PgId),
    Omap(PgId),
}

#[derive(Debug, Default)]
struct Group {
    info: Option<Bytes>,
    omap: Vec<(Bytes, Bytes)>,
}

/// The progress of loading.
#[derive(Debug)]
pub enum Progress {
    /// Wait for more store events.
    Reading,
    /// The owner of the store, and all PGs.
    Done(DaemonRecord, Vec<Local>),
    /// The store cannot be used.
    Broken(String),
}

impl Loading {
    /// Tokens of this phase; the daemon's own begin above.
    const TOKENS: u64 = 1 << 62;

    /// Begins to read.
    pub fn start(&mut self, boot_entries: usize, reads: &mut Vec<(Read, Token)>) {
        self.page = boot_entries;
        let list = |collection, limit| Read::List {
            collection,
            from: Bytes::new(),
            to: None,
            limit,
        };
        self.read(DaemonRecord::read(), Step::Record, reads);
        self.read(list(META, usize::MAX), Step::Groups, reads);
        self.read(list(key::INCOMING, usize::MAX), Step::Incoming, reads);
    }

    fn read(&mut self, read: Read, step: Step, reads: &mut Vec<(Read, Token)>) {
        let token = Token(Self::TOKENS + self.next);
        self.next += 1;
        self.pending.insert(token, step);
        reads.push((read, token));
    }

    fn read_omap(&mut self, pg: PgId, after: Option<Bytes>, reads: &mut Vec<(Read, Token)>) {
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let object = key::meta_key(pg);
        let read = Read::Omap {
            object,
            from,
            to: None,
            limit_entries: self.page,
            limit_bytes: 4 << 20,
        };
        self.read(read, Step::Omap(pg), reads);
    }

    /// Takes a reply; `cleanup` collects the operations to be submitted.
    pub fn on_event(
        &mut self,
        now: Time,
        event: Event,
        reads: &mut Vec<(Read, Token)>,
        cleanup: &mut Vec<Op>,
    ) -> Progress {
        let (token, reply) = match event {
            Event::Read(token, Ok(reply)) => (token, reply),
            Event::Read(_, Err(error)) => {
                return Progress::Broken(format!("the store's metadata cannot be read: {error:?}"));
            }
            Event::Failed(failure) => {
                return Progress::Broken(format!("the store failed: {failure}"));
            }
            Event::Applied(_) | Event::Lost(..) | Event::Committed(_) => return Progress::Reading,
        };
        let Some(step) = self.pending.remove(&token) else {
            return Progress::Reading;
        };
        match (step, reply) {
            (Step::Record, ReadReply::Stat(stat)) => {
                self.record = DaemonRecord::from_stat(stat.as_ref())
            }
            (Step::Groups, ReadReply::List { keys, .. }) => {
                for pg in keys.iter().filter_map(|key| key::pg_of_meta_key(key)) {
                    self.groups.insert(pg, Group::default());
                    self.read(Read::Stat(key::meta_key(pg)), Step::Stat(pg), reads);
                    self.read_omap(pg, None, reads);
                }
            }
            // Objects in transfer when the daemon stopped: they will be resent.
            (Step::Incoming, ReadReply::List { keys, .. }) => {
                cleanup.extend(
                    keys.into_iter()
                        .map(|key| Op::Remove(nacre_store::ObjectKey::new(key::INCOMING, key))),
                );
            }
            (Step::Stat(pg), ReadReply::Stat(stat)) => {
                let info = stat.and_then(|stat| stat.attrs.get(&b"info"[..]).cloned());
                self.groups.get_mut(&pg).expect("asked for").info = info;
            }
            (Step::Omap(pg), ReadReply::Omap { entries, more }) => {
                let group = self.groups.get_mut(&pg).expect("asked for");
                group.omap.extend(entries);
                let last = group.omap.last().map(|(key, _)| key.clone());
                if more {
                    self.pages += 1;
                    self.read_omap(pg, last, reads);
                }
            }
            (step, reply) => panic!("{step:?} answered with {reply:?}"),
        }
        if self.pending.is_empty() {
            self.finish(now)
        } else {
            Progress::Reading
        }
    }

    fn finish(&mut self, now: Time) -> Progress {
        let Some(record) = self.record.take() else {
            return Progress::Broken(
                "the record of whose store this is is missing or damaged; run `nacre store check`"
                    .to_owned(),
            );
        };
        let mut locals = Vec::new();
        for (pg, group) in std::mem::take(&mut self.groups) {
            let Some(info) = group.info else { continue };
            match Local::restore(pg, &info, &group.omap, now) {
                Ok(local) => locals.push(local),
                Err(why) => {
                    return Progress::Broken(format!(
                        "the metadata of placement group {pg} is damaged: {why}; run `nacre store check`"
                    ));
                }
            }
        }
        Progress::Done(record, locals)
    }
}
