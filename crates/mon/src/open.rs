//! Starting from the store: its identity, the snapshot, the log after it.
//!
//! ```text
//!  identity ──ours?──▶ snapshot ──decodes?──▶ raft omap, page by page ──dense?──▶ Live
//!      └─ no: halt         └─ no: halt              └─ no: halt
//! ```
//! Consensus replays the log itself: it delivers again what is committed after the snapshot.

use bytes::Bytes;
use nacre_role::Output;
use nacre_store::{Event, Read, ReadError, ReadReply, Token};
use nacre_wire::codec::Wire;
use raft::eraftpb::{Entry, HardState};
use std::ops::Bound;

use crate::mon::MonConfig;
use crate::raft::Recovered;
use crate::raft::member::{Member, STORES};
use crate::raft::record::{
    EntryRecord, HARD_KEY, HardRecord, Identity, SnapshotRecord, WHO_KEY, identity_object,
    raft_object, snapshot_object,
};
use crate::state::State;

const IDENTITY: Token = Token(1);
const SNAPSHOT: Token = Token(2);
const LOG: Token = Token(3);
const PAGE_ENTRIES: usize = 1_000;
const PAGE_BYTES: usize = 4 << 20;

/// Progress of the start.
pub enum Progress {
    /// Waits for the store.
    Reading,
    /// Everything is read. `None` as state: this monitor waits to join a cluster.
    Done(Box<Option<State>>, Box<Recovered>),
    /// It cannot start; the sentence is for the operator.
    Failed(String),
}

/// A monitor that is reading its store.
pub struct Opening {
    config: MonConfig,
    store: u64,
    snapshot: Option<SnapshotRecord>,
    hard: HardState,
    entries: Vec<Entry>,
}

impl Opening {
    pub fn begin(config: MonConfig, out: &mut Vec<Output>) -> Self {
        let keys = vec![Bytes::from_static(WHO_KEY)];
        out.push(Output::Read {
            read: Read::OmapGet {
                object: identity_object(),
                keys,
            },
            token: IDENTITY,
        });
        Self {
            config,
            store: 0,
            snapshot: None,
            hard: HardState::default(),
            entries: Vec::new(),
        }
    }

    pub fn on_store(&mut self, event: Event, out: &mut Vec<Output>) -> Progress {
        let Event::Read(token, answer) = event else {
            return Progress::Reading;
        };
        self.step(token, answer, out)
            .unwrap_or_else(Progress::Failed)
    }

    fn step(
        &mut self,
        token: Token,
        answer: Result<ReadReply, ReadError>,
        out: &mut Vec<Output>,
    ) -> Result<Progress, String> {
        let damaged = |what: &str| {
            format!(
                "the monitor's {what} is damaged: remove this monitor, wipe its store and add it again"
            )
        };
        match (token, answer) {
            (IDENTITY, Err(ReadError::NotFound)) => {
                Err("there is no monitor in this store: was it created with `cluster init` or `mon add`?".to_owned())
            }
            (IDENTITY, Ok(ReadReply::Omap { entries, .. })) => {
                let who = entries.first().and_then(|(_, value)| Identity::from_bytes(value).ok());
                let who = who.ok_or_else(|| damaged("identity"))?;
                if who.cluster != self.config.cluster || who.mon != self.config.id {
                    return Err(format!(
                        "this store belongs to {} of cluster {}, not to {} of cluster {}: was the directory moved?",
                        who.mon, who.cluster, self.config.id, self.config.cluster
                    ));
                }
                if who.store >= STORES {
                    return Err(damaged("identity"));
                }
                self.store = who.store;
                let read = Read::Data { object: snapshot_object(), offset: 0, length: u64::MAX };
                out.push(Output::Read { read, token: SNAPSHOT });
                Ok(Progress::Reading)
            }
            (SNAPSHOT, Ok(ReadReply::Data(segments))) => {
                let record = SnapshotRecord::from_bytes(&segments.concat())
                    .map_err(|why| format!("{}: {why}", damaged("snapshot")))?;
                self.snapshot = Some(record);
                self.read_page(Bound::Unbounded, out);
                Ok(Progress::Reading)
            }
            // A monitor that waits to join has no log yet.
            (LOG, Err(ReadError::NotFound)) => self.finish(),
            (LOG, Ok(ReadReply::Omap { entries, more })) => {
                let last = entries.last().map(|(key, _)| key.clone());
                for (key, value) in entries {
                    self.take(&key, &value).map_err(|why| format!("{}: {why}", damaged("log")))?;
                }
                match last {
                    Some(last) if more => {
                        self.read_page(Bound::Excluded(last), out);
                        Ok(Progress::Reading)
                    }
                    _ => self.finish(),
                }
            }
            (_, Ok(_)) => Ok(Progress::Reading),
            (_, Err(why)) => Err(format!("{} ({why:?})", damaged("store"))),
        }
    }

    fn read_page(&self, from: Bound<Bytes>, out: &mut Vec<Output>) {
        let read = Read::Omap {
            object: raft_object(),
            from,
            to: None,
            limit_entries: PAGE_ENTRIES,
            limit_bytes: PAGE_BYTES,
        };
        out.push(Output::Read { read, token: LOG });
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        match key.first() {
            Some(b'h') if key == HARD_KEY => {
                self.hard = HardRecord::from_bytes(value)
                    .map_err(|why| why.to_string())?
                    .into();
            }
            Some(b'e') => {
                let record = EntryRecord::from_bytes(value).map_err(|why| why.to_string())?;
                self.entries.push(record.into());
            }
            _ => return Err("an unknown key: a newer version wrote it".to_owned()),
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Progress, String> {
        let mut snapshot = self
            .snapshot
            .take()
            .expect("the snapshot is read before the log");
        let entries = std::mem::take(&mut self.entries);
        let mut expected = snapshot.trimmed_index;
        for entry in &entries {
            expected += 1;
            if entry.index != expected {
                return Err(format!(
                    "the monitor's log has a hole at {expected}: wipe its store and add it again"
                ));
            }
        }
        let image = std::mem::take(&mut snapshot.state);
        let state = if image.is_empty() {
            None
        } else {
            Some(
                State::from_image(&image)
                    .map_err(|why| format!("the monitor's snapshot cannot be read: {why}"))?,
            )
        };
        let member = Member {
            mon: self.config.id,
            store: self.store,
        };
        let recovered = Recovered {
            member,
            hard: self.hard.clone(),
            snapshot,
            entries,
        };
        Ok(Progress::Done(Box::new(state), Box::new(recovered)))
    }
}
