//! What only the primary of an interval has: a part for each machine, and what it knows of the
//! other members. A new interval begins with nothing of it.

use super::answered::Answers;
use super::local::Local;
use super::object::Objects;
use super::peering::{Peering, Phase};
use super::update::InFlight;
use super::{ByObject, Interval};
use crate::shared::Shared;
use crate::{Mutant, key, mutant};
use bytes::Bytes;
use nacre_types::{OsdId, Time, Version};
use nacre_wire::Record;
use nacre_wire::msg::replication::{Missing, Undone};
use std::collections::{BTreeMap, VecDeque};

/// What the primary knows of another member that gets updates.
#[derive(Clone, Debug, Default)]
pub struct PeerState {
    /// What its log has and its store has not.
    pub missing: ByObject<Missing>,
    /// Copies of these that have undone updates on them.
    pub undone: ByObject<Undone>,
    /// Its cursor, if it is being backfilled.
    pub backfill: Option<Bytes>,
    /// Its log is durable up to here.
    pub acked: Version,
    /// It said that it has applied everything up to here; it says so only when asked.
    pub applied: Version,
    /// When `acked` last moved, or something was done about it.
    pub moved: Time,
    /// It is being sent again what it has lost, up to here; nothing is pushed before it has that.
    pub catching: Option<Version>,
}

impl PeerState {
    /// It is sent an entry of the log without data: recovery brings the object, backfill what lies
    /// beyond the cursor.
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
    /// What is found out about the members before the interval serves.
    pub peering: Peering,
    /// Members that get updates.
    pub peers: BTreeMap<OsdId, PeerState>,
    /// Updates not yet durable everywhere.
    pub in_flight: VecDeque<InFlight>,
    /// Our own log is durable up to here.
    pub logged: Version,
    /// Our own log is applied in memory up to here.
    pub applied: Version,
    /// Everything up to here is durable on the whole acting set.
    pub committed: Version,
    /// Objects with operations in hand, and a cache of others.
    pub objects: Objects,
    /// What recovery is doing.
    pub recovery: super::recovery::Recovery,
    /// How much the group holds, if its log only estimates that.
    pub counting: super::count::Counting,
    /// Copies that cannot be read.
    pub damage: super::repair::Damage,
    /// What backfill is doing.
    pub backfill: super::backfill::Backfill,
    /// Operations that changed nothing in this interval, in case they arrive twice.
    pub answered: Answers,
    /// Clones that go.
    pub trimming: super::trim::Trimming,
    /// Watchers, and notifies that wait for them.
    pub watching: super::watch::Watching,
    /// Operations that found no room here.
    pub turned_away: crate::turned_away::TurnedAway,
}

impl Primary {
    /// Begins.
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

    /// Throws away what is in hand: the interval is over, clients will send again.
    pub(super) fn drop_operations(&mut self, at: &Interval, sh: &mut Shared) {
        // Who has not acknowledged what was ordered will not.
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

    /// Whether something waits for an answer, or for time to pass.
    pub(super) fn has_work(&self) -> bool {
        let idle = matches!(self.peering.phase, Phase::Active | Phase::Peered)
            && self.in_flight.is_empty();
        !idle
            || !self.objects.is_idle()
            || self.recovery.is_busy()
            || self.backfill.is_busy()
            // Backfill may have been stopped by the map's flag, and go on when that is gone.
            || self.peers.values().any(|peer| peer.backfill.is_some() || peer.acked < self.committed)
            || self.watching.has_work()
            || self.trimming.pending
    }

    /// Whether there is something to count, now or later.
    pub(super) fn wants_count(&self, local: &Local) -> bool {
        self.is_active() && self.counting.wants_more(local)
    }

    /// Whether some member has every object; a quick look before a long one.
    pub(super) fn somebody_has_all(&self) -> bool {
        self.is_peered()
            && self.recovery.nobody_refused()
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
            // Backfill looks after those who do not serve yet only. (The mutant lets the others in;
            // its harm is to be seen.)
            let complete = peer.backfill.is_none() || mutant(Mutant::BackfillTargetComplete);
            assert!(
                !acting || complete,
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
