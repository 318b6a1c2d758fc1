//! A range of objects that a backfill target lists for its primary (`backfill.rs`).

use super::Interval;
use super::local::Local;
use super::range::{range_read, whole_names};
use super::transfer::version_of;
use crate::key;
use crate::purpose::Purpose;
use crate::shared::Shared;
use bytes::Bytes;
use nacre_store::{ObjectKey, Read, ReadError, ReadReply};
use nacre_types::{ObjectId, OsdId, Version};
use nacre_wire::Message;
use nacre_wire::msg::replication::ScanReply;

/// The progress of a scan by the store's answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Listed {
    /// None: the primary asks again.
    Failed,
    /// The listing continues.
    Again,
    /// The versions of the listed objects are read.
    Done,
}

/// The scan of one range; see the module head.
#[derive(Debug)]
pub(super) struct TargetScan {
    to: OsdId,
    round: u64,
    from: Bytes,
    end: Option<Bytes>,
    objects: Vec<(ObjectId, Option<Version>)>,
    waiting: usize,
}

impl TargetScan {
    /// Begins to list `limit` objects.
    pub(super) fn begin(
        to: OsdId,
        (round, from): (u64, Bytes),
        limit: usize,
        local: &Local,
        at: &Interval,
        sh: &mut Shared,
    ) -> Self {
        let read = range_read(from.clone(), limit, local);
        at.read(sh, read, Purpose::ScanList { round, limit });
        Self {
            to,
            round,
            from,
            end: None,
            objects: Vec::new(),
            waiting: 0,
        }
    }

    /// Whether it belongs to this comparison.
    pub(super) fn is_of(&self, round: u64) -> bool {
        self.round == round
    }
    /// Whether the store has not listed anything yet.
    pub(super) fn waits_for_list(&self) -> bool {
        self.objects.is_empty()
    }

    /// The store has listed the range.
    pub(super) fn on_list(
        &mut self,
        limit: usize,
        reply: Result<ReadReply, ReadError>,
        local: &Local,
        at: &Interval,
        sh: &mut Shared,
    ) -> Listed {
        let Ok(ReadReply::List { keys, more }) = reply else {
            return Listed::Failed;
        };
        let round = self.round;
        let (keys, end) = match whole_names(keys, more, limit) {
            Ok(whole) => whole,
            Err(limit) => {
                let read = range_read(self.from.clone(), limit, local);
                at.read(sh, read, Purpose::ScanList { round, limit });
                return Listed::Again;
            }
        };
        self.end = end;
        self.objects = keys
            .iter()
            .filter_map(|key| key::object_at(key))
            .map(|object| (object, None))
            .collect();
        self.waiting = self.objects.len();
        let collection = key::collection(at.pg.pool, at.pg.shard);
        for (index, key) in keys.into_iter().enumerate() {
            let read = Read::Stat(ObjectKey::new(collection, key));
            at.read(sh, read, Purpose::ScanStat { round, index });
        }
        Listed::Done
    }

    /// The version of one of the objects was read. Returns whether all are known.
    pub(super) fn on_stat(&mut self, index: usize, reply: Result<ReadReply, ReadError>) -> bool {
        let entry = self.objects.get_mut(index);
        let Some((_, version)) = entry.filter(|(_, version)| version.is_none()) else {
            return false;
        };
        *version = Some(match reply {
            Ok(ReadReply::Stat(Some(stat))) => version_of(&stat),
            _ => Version::NONE,
        });
        self.waiting -= 1;
        self.is_done()
    }

    /// Whether all versions are known.
    pub(super) fn is_done(&self) -> bool {
        self.waiting == 0
    }

    /// Sends the result to the primary.
    pub(super) fn reply(self, at: &Interval, sh: &mut Shared) {
        let objects = self.objects.into_iter();
        let message = ScanReply {
            pg: at.pg,
            interval: at.since,
            from: self.from,
            to: self.end,
            objects: objects
                .map(|(object, version)| (object, version.unwrap_or_default()))
                .collect(),
            round: self.round,
        };
        sh.send(self.to, Message::ScanReply(message));
    }
}
