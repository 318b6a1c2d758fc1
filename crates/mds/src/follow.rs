//! A standby follows the journals of ranks, so that little is left to read at a takeover (CEPH-23).
//!
//! ```text
//!            ┌── an object is missing, or the former beginning may have been deleted
//!            ▼                     it grew ─┐
//!  Paused ─▶ Head ─▶ Last: from where reading stopped ─▶ Next: the following object ─── it exists: and the next
//!    ▲        nothing is held: ─────────────────────────▲ │
//!    └── a second; doubled each time nothing new is found, up to 8 s ◀─┘ it is missing
//! ```
//! One read is in flight at a time, over all ranks, lowest first. The memory held is bounded: at
//! the bound nothing more is read, so what is held is the journal's beginning, and the rest is left
//! to the takeover.
//!
//! What was read is still valid at a takeover. A journal's objects only grow, by whole batches, and
//! only its rank's holder writes to them. Everything held was read under a single holder of the
//! rank: [`Source::taken`] was known before the first read, and each claim of the rank, however
//! short, changes it; the server that takes over compares it ([`Follow::take`]). Operations in
//! flight of the former holder were fenced before. In addition, the takeover reads the checksum of
//! each held part of an object ([`crate::mds`], opening), so later damage is detected, too.
//!
//! Invariants: nothing is read while there is nothing to follow; data that is damaged or does not
//! continue the journal is not held.

use crate::followed::Followed;
use crate::journal::{self, JournalHead, READ_MAX};
use nacre_client::{Completion, Failure, ObjectCluster, OpId, Operation};
use nacre_types::{Name, ObjectId, PoolId, Rank, Time};
use nacre_wire::Wire as _;
use nacre_wire::msg::client::{OpFailure, SubOp};
use std::collections::BTreeMap;
use std::time::Duration;

/// Most bytes held of all journals, plus one object.
pub const BYTES_MAX: u64 = 64 << 20;
/// Pause between two looks at a growing journal; minimum for others.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// Interval between two reads of the head, which tell what to drop at the journal's beginning.
const HEAD_AFTER: Duration = Duration::from_secs(10);

/// A journal that can be followed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// The file system.
    pub file_system: Name,
    /// The rank.
    pub rank: Rank,
    /// The namespace of its objects.
    pub namespace: Name,
    /// The pool of its objects.
    pub pool: PoolId,
    /// The registry's revision that recorded the rank's last claim; not 0.
    pub taken: u64,
}

/// The next read of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// None before then.
    Paused(Time),
    Head,
    /// The growth of the last object; `again`: the next object does not continue what was read.
    Last {
        again: bool,
    },
    /// This object, which begins with this batch; `again`: the previous one has been read to its
    /// end.
    Next {
        number: u64,
        sequence: u64,
        again: bool,
    },
}

#[derive(Debug)]
struct Journal {
    followed: Followed,
    step: Step,
    pause: Duration,
    /// Whether this look found something new.
    grew: bool,
    /// Whether the last object was missing in this look.
    missed: bool,
    head_at: Time,
}

impl Journal {
    fn new() -> Self {
        let (followed, step) = (Followed::default(), Step::Paused(Time::ZERO));
        Self {
            followed,
            step,
            pause: PAUSE,
            grew: false,
            missed: false,
            head_at: Time::ZERO,
        }
    }
    fn begin(&mut self, now: Time, is_full: bool) {
        (self.grew, self.missed) = (false, false);
        let may_be_cut_off = self.followed.len() > 1 && (is_full || self.head_at <= now);
        self.step = if self.followed.is_empty() || may_be_cut_off {
            Step::Head
        } else {
            Step::Last { again: false }
        };
    }
    fn end(&mut self, now: Time) {
        self.pause = if self.grew {
            PAUSE
        } else {
            PAUSE_MAX.min(self.pause * 2)
        };
        self.step = Step::Paused(now + self.pause);
    }
    /// Drops everything; read again from the beginning, much later.
    fn give_up(&mut self, now: Time) {
        self.followed = Followed::default();
        self.pause = PAUSE_MAX;
        self.step = Step::Paused(now + self.pause);
    }
    fn next_object(&self, again: bool) -> Step {
        let (last, _, sequence) = self.followed.last().expect("something is held");
        Step::Next {
            number: last + 1,
            sequence,
            again,
        }
    }

    /// Handles a read's result, or a missing object.
    fn on_read(&mut self, now: Time, bytes: Option<&[u8]>) {
        match (self.step, bytes) {
            (Step::Head, bytes) => {
                let head =
                    bytes.map_or_else(|| Ok(JournalHead::default()), JournalHead::from_bytes);
                let Ok(head) = head else {
                    return self.give_up(now);
                };
                self.head_at = now + HEAD_AFTER;
                self.followed.cut_off(head.first, head.sequence);
                self.step = match self.followed.is_empty() {
                    true => Step::Next {
                        number: head.first,
                        sequence: head.sequence,
                        again: true,
                    },
                    false => Step::Last { again: false },
                };
            }
            (Step::Last { again }, Some(bytes)) => {
                self.grew |= !bytes.is_empty();
                if !self.followed.extend_last(bytes) {
                    return self.give_up(now);
                }
                self.step = self.next_object(again && bytes.is_empty());
            }
            // The journal begins later now; its head says where.
            (Step::Last { .. }, None) if !std::mem::replace(&mut self.missed, true) => {
                self.step = Step::Head
            }
            (Step::Last { .. }, None) => self.give_up(now),
            (
                Step::Next {
                    number,
                    sequence,
                    again,
                },
                Some(bytes),
            ) => {
                if self.followed.push(number, sequence, bytes) {
                    self.grew = true;
                    self.step = self.next_object(false);
                } else if again || self.followed.is_empty() {
                    self.give_up(now);
                } else {
                    // The previous object grew after it was read.
                    self.step = Step::Last { again: true };
                }
            }
            (Step::Next { .. }, None) => self.end(now),
            (Step::Paused(_), _) => {}
        }
    }
}

/// See the module head.
#[derive(Debug)]
pub struct Follow {
    bytes_max: u64,
    all: BTreeMap<Source, Journal>,
    under_way: Option<(Source, OpId)>,
}

impl Follow {
    /// Follows nothing yet.
    #[must_use]
    pub const fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            all: BTreeMap::new(),
            under_way: None,
        }
    }
    /// Sets the journals to follow.
    pub fn set(&mut self, sources: &[Source]) {
        self.all.retain(|source, _| sources.contains(source));
        for source in sources {
            self.all.entry(source.clone()).or_insert_with(Journal::new);
        }
        self.under_way
            .take_if(|(source, _)| !self.all.contains_key(source));
    }
    /// Bytes of journals held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.all
            .values()
            .map(|journal| journal.followed.bytes())
            .sum()
    }
    /// What it holds of exactly this source, if anything.
    pub fn take(&mut self, source: &Source) -> Option<Followed> {
        self.all.remove(source).map(|journal| journal.followed)
    }

    /// Handles the end of a read, if it is one of these.
    pub fn on_completion(&mut self, now: Time, completion: &Completion) {
        let Some((source, _)) = self.under_way.take_if(|(_, id)| *id == completion.id) else {
            return;
        };
        let Some(journal) = self.all.get_mut(&source) else {
            return;
        };
        match &completion.result {
            Ok(done) => journal.on_read(now, Some(&done.payload.concat())),
            Err(Failure::Refused(OpFailure::NotFound {} | OpFailure::Guard { .. })) => {
                journal.on_read(now, None)
            }
            // The store has problems: do not add more load than necessary.
            Err(_) => journal.step = Step::Paused(now + PAUSE_MAX),
        }
    }
    /// Starts reads that are due.
    pub fn on_turn(&mut self, now: Time, objects: &mut dyn ObjectCluster) {
        while self.under_way.is_none() {
            let is_full = self.bytes() >= self.bytes_max;
            let is_due =
                |journal: &Journal| !matches!(journal.step, Step::Paused(until) if now < until);
            let Some((source, journal)) = self.all.iter_mut().find(|(_, journal)| is_due(journal))
            else {
                return;
            };
            if matches!(journal.step, Step::Paused(_)) {
                journal.begin(now, is_full);
            }
            let number = match journal.step {
                Step::Head => None,
                _ if is_full => {
                    journal.end(now);
                    continue;
                }
                Step::Next { number, .. } => Some((number, 0)),
                _ => journal
                    .followed
                    .last()
                    .map(|(number, length, _)| (number, length)),
            };
            let (name, offset) = match number {
                None => (journal::head_name(source.rank), 0),
                Some((number, offset)) => (journal::object_name(source.rank, number), offset),
            };
            let object = ObjectId {
                name: Name::from(&*name),
                namespace: source.namespace.clone(),
                ..ObjectId::default()
            };
            let ops = vec![
                SubOp::AssertExists { exists: true },
                SubOp::Read {
                    offset,
                    length: READ_MAX,
                },
            ];
            let read = Operation {
                pool: source.pool,
                object,
                ops,
                ..Operation::default()
            };
            match objects.submit(now, read) {
                Ok(id) => self.under_way = Some((source.clone(), id)),
                Err(_) => journal.step = Step::Paused(now + PAUSE),
            }
        }
    }
    /// When it wants a turn, if nothing arrives before.
    #[must_use]
    pub fn next_deadline(&self) -> Time {
        let due = |journal: &Journal| {
            if let Step::Paused(until) = journal.step {
                until
            } else {
                Time::ZERO
            }
        };
        match self.under_way {
            Some(_) => Time::MAX,
            None => self.all.values().map(due).min().unwrap_or(Time::MAX),
        }
    }
}
