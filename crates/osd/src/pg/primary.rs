//! The state that only the primary of an interval has: a part for each machine, and its knowledge
//! of the other members. A new interval begins with none of it.

use super::answered::Answers;
use super::local::Local;
use super::object::Objects;
use super::peering::{Peering, Phase};
use super::update::InFlight;
use super::{ByObject, Interval};
use crate::key;
use crate::shared::Shared;
use bytes::Bytes;
use nacre_types::{OsdId, Time, Version};
use nacre_wire::Record;
use nacre_wire::msg::replication::{Missing, Undone};
use std::collections::{BTreeMap, VecDeque};

#[cfg(feature = "mutants")]
#[path = "../mutants/primary.rs"]
mod planted;

/// The primary's knowledge of another member that gets updates.
#[derive(Clone, Debug, Default)]
pub struct PeerState {
    /// Objects whose logged version the member's store lacks.
    pub missing: ByObject<Missing>,
    /// Objects of which the member has replicas with undone updates.
    pub undone: ByObject<Undone>,
    /// Its backfill cursor, if it is being backfilled.
    pub backfill: Option<Bytes>,
    /// Its log is durable up to this version.
    pub acked: Version,
    /// It has reported that everything up to this version is applied; it reports that only on
    /// request.
    pub applied: Version,
    /// When `acked` last advanced, or action was taken about it.
    pub moved: Time,
    /// Lost entries up to this version are being resent to it; nothing is pushed before it has
    /// them.
    pub catching: Option<Version>,
}

impl PeerState {
    /// Whether the member is not being backfilled.
    #[nacre_types::planted]
    fn may_serve(&self) -> bool {
        self.backfill.is_none()
    }
    /// The member is sent a log entry without data: recovery brings the object, or backfill if it
    /// is beyond the cursor.
    pub(super) fn gets_without_data(&mut self, entry: &Record) {
        let object = entry.object().clone();
        if entry.deleted() || !key::is_before(&object, self.backfill.as_ref()) {
            self.missing.swap_remove(&object);
        } else {
            let missing = Missing {
                object: object.clone(),
                need: entry.version(),
                have: Version::NONE,
            };
            self.missing.insert(object, missing);
        }
    }
}

/// The state of an interval's primary.
#[derive(Debug)]
pub struct Primary {
    /// Peering, before the interval serves.
    pub peering: Peering,
    /// Members that get updates.
    pub peers: BTreeMap<OsdId, PeerState>,
    /// Updates not yet durable everywhere.
    pub in_flight: VecDeque<InFlight>,
    /// Our own log is durable up to this version.
    pub logged: Version,
    /// Our own log is applied in memory up to this version.
    pub applied: Version,
    /// Everything up to this version is durable on the whole acting set.
    pub committed: Version,
    /// Objects with operations in flight, and a cache of others.
    pub objects: Objects,
    /// The state of recovery.
    pub recovery: super::recovery::Recovery,
    /// The count of the PG's contents, if its log has only estimates.
    pub counting: super::count::Counting,
    /// Replicas that cannot be read.
    pub damage: super::repair::Damage,
    /// The state of backfill.
    pub backfill: super::backfill::Backfill,
    /// Operations that changed nothing in this interval, to detect duplicates.
    pub answered: Answers,
    /// The removal of clones.
    pub trimming: super::trim::Trimming,
    /// Watchers, and notifies that wait for them.
    pub watching: super::watch::Watching,
    /// Operations that were refused for lack of memory.
    pub turned_away: crate::turned_away::TurnedAway,
}

impl Primary {
    /// A primary that begins to peer.
    #[must_use]
    pub fn new(now: Time) -> Self {
        Self {
            peering: Peering::new(now),
            peers: BTreeMap::new(),
            in_flight: VecDeque::new(),
            logged: Version::NONE,
            applied: Version::NONE,
            committed: Version::NONE,
            objects: Objects::default(),
            recovery: super::recovery::Recovery::default(),
            counting: super::count::Counting::default(),
            damage: super::repair::Damage::default(),
            backfill: super::backfill::Backfill::default(),
            answered: Answers::default(),
            trimming: super::trim::Trimming::default(),
            watching: super::watch::Watching::default(),
            turned_away: Default::default(),
        }
    }

    /// Whether the monitors have committed the activation.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.peering.is_active()
    }
    /// Whether the members agree on the log, so that objects can be recovered.
    #[must_use]
    pub fn is_peered(&self) -> bool {
        self.peering.is_peered()
    }
    /// Whether clients are served now.
    pub(super) fn serves(&self, now: Time) -> bool {
        self.peering.serves(now)
    }

    /// Discards the operations in flight: the interval has ended, clients will resend.
    pub(super) fn drop_operations(&mut self, at: &Interval, sh: &mut Shared) {
        // Members that have not acknowledged ordered updates will not do so any more.
        for (member, bytes) in self.under_way(sh.me(), at) {
            sh.under_way.end(member, bytes);
        }
        let mut gone = self.objects.drain();
        let notifies = self.watching.drain();
        notifies.iter().for_each(|op| op.take_back(sh));
        gone.extend(notifies);
        let answers = self.in_flight.drain(..).flat_map(|update| update.answers);
        gone.extend(answers.filter_map(|answer| answer.op));
        for op in gone {
            op.release(sh);
        }
    }

    /// Whether something waits for an answer or for a time.
    pub(super) fn has_work(&self) -> bool {
        let idle = matches!(self.peering.phase, Phase::Active | Phase::Peered)
            && self.in_flight.is_empty();
        !idle
            || !self.objects.is_idle()
            || self.recovery.is_busy()
            || self.backfill.is_busy()
            // Backfill may have been stopped by the map's flag, and continues when that is removed.
            || self.peers.values().any(|peer| peer.backfill.is_some() || peer.acked < self.committed)
            || self.watching.has_work()
            || self.trimming.pending
    }

    /// Whether there is something to count, now or later.
    pub(super) fn wants_count(&self, local: &Local) -> bool {
        self.is_active() && self.counting.wants_more(local)
    }

    /// Whether some member has every object; a quick check before a long one.
    pub(super) fn is_complete_somewhere(&self) -> bool {
        self.is_peered()
            && self.recovery.all_have_room()
            && self
                .peers
                .values()
                .any(|peer| peer.missing.is_empty() && peer.backfill.is_none())
    }

    pub(super) fn check(&self, local: &Local, at: &Interval) {
        self.objects.check();
        let head = local.log.head();
        assert!(
            self.committed <= head,
            "{}: committed {} beyond {head}",
            at.pg,
            self.committed
        );
        for (osd, peer) in &self.peers {
            assert!(
                peer.acked <= head,
                "{}: {osd} acknowledged {} beyond {head}",
                at.pg,
                peer.acked
            );
            let acting = at.acting.contains(osd);
            // Backfill handles only members that do not serve yet.
            assert!(
                !acting || peer.may_serve(),
                "{}: {osd} serves, and is to be backfilled",
                at.pg
            );
            assert!(
                !acting || !self.is_active() || self.committed <= peer.acked,
                "{}: committed beyond {osd}",
                at.pg
            );
        }
    }
}
