//! Other OSDs: whether they are alive, and the read leases between us (CEPH-47; DESIGN §3, Read
//! leases).
//!
//! ```text
//!  P (primary of some PGs)                          R (replica in them)
//!  stamp = P's clock ── Ping ──▶ grants until R's clock + lease × (1 + drift)
//!  may read until stamp + lease ◀── Pong ──
//! ```
//! P counts from when it *sent*, R from when it *received*, and R adds the drift bound: P's right
//! always ends first. A lease is for a pair of OSDs, not for a PG. R reports its remaining time to
//! an OSD that peers a PG of which P was primary ([`Peers::lease_left`]). P uses a lease only if R
//! knew no newer map than P does now ([`Peers::on_pong`]); a restarted R assumes that it had just
//! granted one to every OSD.
//!
//! Liveness: any message counts. A daemon that woke late subtracts its own lateness before it
//! reports others.

use crate::config::Timing;
use nacre_types::{Epoch, Instance, OsdId, Time};
use std::collections::BTreeMap;
use std::time::Duration;

#[cfg(feature = "mutants")]
#[path = "mutants/heartbeat.rs"]
mod planted;

#[derive(Clone, Debug)]
struct Peer {
    instance: Instance,
    /// Since when we know this instance.
    since: Time,
    heard: Time,
    pinged: Time,
    lease_until: Time,
    refused: bool,
    reported: Option<Time>,
    nearly_full: bool,
    no_room: bool,
}

/// All other OSDs that we share PGs with.
#[derive(Clone, Debug)]
pub struct Peers {
    timing: Timing,
    /// The longest lease that any instance of ours grants: options shorten it.
    lease_max: Duration,
    peers: BTreeMap<OsdId, Peer>,
    granted: BTreeMap<OsdId, Time>,
    /// The latest end of leases that an earlier instance of ours may have granted.
    inherited_until: Time,
}

/// A report on a peer for the monitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accusation {
    /// The peer.
    pub target: OsdId,
    /// Its instance.
    pub instance: Instance,
    /// The duration of its silence.
    pub silent: Duration,
    /// It answers again.
    pub alive: bool,
    /// Its port refuses connections.
    pub refused: bool,
}

impl Peers {
    /// No peers yet.
    #[must_use]
    pub fn new(timing: Timing) -> Self {
        Self {
            timing,
            lease_max: timing.lease,
            peers: BTreeMap::new(),
            granted: BTreeMap::new(),
            inherited_until: Time::ZERO,
        }
    }

    /// The daemon starts: leases granted by an earlier instance may still be valid.
    #[nacre_types::planted]
    pub fn start(&mut self, now: Time) {
        self.inherited_until = now + self.granted_for(self.lease_max);
    }

    /// Sets new timing. Leases already granted are unchanged.
    ///
    /// # Panics
    /// When it has a longer lease than [`Self::new`] got: a restart assumes that one.
    pub fn set_timing(&mut self, timing: Timing) {
        assert!(
            timing.lease <= self.lease_max,
            "options never make leases longer"
        );
        self.timing = timing;
    }

    fn granted_for(&self, lease: Duration) -> Duration {
        lease + lease * self.timing.drift_ppm / 1_000_000 * 2
    }

    /// Sets the watched peers.
    pub fn watch(&mut self, now: Time, peers: impl Iterator<Item = (OsdId, Instance)>) {
        let mut old = std::mem::take(&mut self.peers);
        for (osd, instance) in peers {
            let fresh = Peer {
                instance,
                since: now,
                heard: now,
                pinged: Time::ZERO,
                lease_until: Time::ZERO,
                refused: false,
                reported: None,
                nearly_full: false,
                no_room: false,
            };
            let peer = old
                .remove(&osd)
                .filter(|peer| peer.instance == instance)
                .unwrap_or(fresh);
            self.peers.insert(osd, peer);
        }
    }

    /// The watched peers.
    pub fn watched(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.peers.keys().copied()
    }

    /// The watched peers, with their instances.
    pub fn instances(&self) -> impl Iterator<Item = (OsdId, Instance)> + '_ {
        self.peers.iter().map(|(osd, peer)| (*osd, peer.instance))
    }

    /// A message arrived.
    pub fn heard(&mut self, now: Time, from: OsdId) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.heard = now;
            peer.refused = false;
        }
    }

    /// The peer reports whether its store has space.
    pub fn says_full(&mut self, osd: OsdId, nearly: bool) {
        if let Some(peer) = self.peers.get_mut(&osd) {
            peer.nearly_full = nearly;
        }
    }
    /// Whether the peer last reported that its store is nearly full.
    #[must_use]
    pub fn is_nearly_full(&self, osd: OsdId) -> bool {
        self.peers.get(&osd).is_some_and(|peer| peer.nearly_full)
    }

    /// The peer reports whether it has recently had no space for recovery.
    pub fn says_no_room(&mut self, osd: OsdId, none: bool) {
        if let Some(peer) = self.peers.get_mut(&osd) {
            peer.no_room = none;
        }
    }
    /// Whether the peer last reported that it has no space for recovery.
    #[must_use]
    pub fn has_no_room(&self, osd: OsdId) -> bool {
        self.peers.get(&osd).is_some_and(|peer| peer.no_room)
    }

    /// Its port refuses connections: the process is gone. For an instance that we have just heard
    /// of, this may be an old report on the previous one, which would mark it down once more: if
    /// the report is true, it is repeated at the next ping.
    pub fn refused(&mut self, now: Time, osd: OsdId) {
        if let Some(peer) = self.peers.get_mut(&osd)
            && now.since(peer.since) >= self.timing.ping_interval * 2
        {
            peer.refused = true;
        }
    }

    /// Grants `from` a lease; returns its length.
    pub fn on_ping(&mut self, now: Time, from: OsdId) -> Duration {
        let until = now + self.granted_for(self.timing.lease);
        let granted = self.granted.entry(from).or_insert(until);
        *granted = (*granted).max(until);
        self.timing.lease
    }

    /// Accepts a lease. `theirs` is the epoch that the granting OSD knew, `ours` the one that we
    /// know: if theirs is newer, the grant might come from an interval that has already taken a PG
    /// from us.
    pub fn on_pong(
        &mut self,
        from: OsdId,
        stamp: Time,
        lease: Duration,
        theirs: Epoch,
        ours: Epoch,
    ) {
        if theirs > ours {
            return;
        }
        if let Some(peer) = self.peers.get_mut(&from) {
            let until = stamp + lease.min(self.timing.lease);
            peer.lease_until = peer.lease_until.max(until);
        }
    }

    /// Leases do not outlive the map that they were granted under: when a newer map ends an
    /// interval, the remaining lease serves only the PGs whose interval continues. (The pair's
    /// lease itself stays.)
    #[must_use]
    #[nacre_types::planted]
    pub fn lease_until(&self, osd: OsdId) -> Time {
        self.peers
            .get(&osd)
            .map_or(Time::ZERO, |peer| peer.lease_until)
    }

    /// How long a former primary may still answer reads under our lease.
    #[must_use]
    pub fn lease_left(&self, now: Time, primary: OsdId) -> Duration {
        let granted = self.granted.get(&primary).copied().unwrap_or(Time::ZERO);
        granted.max(self.inherited_until).since(now)
    }

    /// The peers to ping now.
    pub fn due_pings(&mut self, now: Time) -> Vec<OsdId> {
        let interval = self.timing.ping_interval;
        let due = |peer: &Peer| now.since(peer.pinged) >= interval;
        let mut pings = Vec::new();
        for (osd, peer) in self.peers.iter_mut().filter(|(_, peer)| due(peer)) {
            peer.pinged = now;
            pings.push(*osd);
        }
        pings
    }

    /// We woke late by this time: silence during it was our own fault.
    pub fn discount(&mut self, late: Duration, now: Time) {
        for peer in self.peers.values_mut() {
            peer.heard = (peer.heard + late).min(now);
        }
    }

    /// The peers to report as silent, and the reports to withdraw. Repeated at most once per ping
    /// interval and peer.
    pub fn accusations(&mut self, now: Time) -> Vec<Accusation> {
        let (grace, every) = (self.timing.grace, self.timing.ping_interval * 2);
        let mut all = Vec::new();
        for (target, peer) in &mut self.peers {
            let silent = now.since(peer.heard);
            let guilty = peer.refused || silent >= grace;
            let accusation = Accusation {
                target: *target,
                instance: peer.instance,
                silent,
                alive: !guilty,
                refused: peer.refused,
            };
            match (guilty, peer.reported) {
                (true, Some(at)) if now.since(at) < every => {}
                (true, _) => {
                    peer.reported = Some(now);
                    all.push(accusation);
                }
                (false, Some(_)) => {
                    peer.reported = None;
                    all.push(accusation);
                }
                (false, None) => {}
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Peers, Peers) {
        let mut p = Peers::new(Timing::default());
        p.watch(Time(0), [(OsdId(2), Instance(1))].into_iter());
        (p, Peers::new(Timing::default()))
    }
    const fn ms(n: u64) -> Time {
        Time(n * 1_000_000)
    }

    #[test]
    fn the_holders_right_ends_before_the_granters_promise_however_late_the_messages_are() {
        for (sent, received) in [(0, 0), (0, 3), (0, 499), (10, 900)] {
            let (mut p, mut r) = pair();
            let lease = r.on_ping(ms(received), OsdId(1));
            p.on_pong(OsdId(2), ms(sent), lease, Epoch(3), Epoch(3));
            assert!(p.lease_until(OsdId(2)) < ms(received) + r.lease_left(ms(received), OsdId(1)));
        }
    }

    #[test]
    fn a_lease_granted_under_a_newer_map_is_not_taken() {
        let (mut p, _) = pair();
        p.on_pong(
            OsdId(2),
            ms(5),
            Duration::from_millis(500),
            Epoch(4),
            Epoch(3),
        );
        assert_eq!(p.lease_until(OsdId(2)), Time::ZERO);
    }

    #[test]
    fn a_restarted_granter_assumes_that_it_had_granted_a_full_lease() {
        let (_, mut r) = pair();
        r.start(ms(100));
        assert!(r.lease_left(ms(100), OsdId(1)) >= Duration::from_millis(500));
        assert_eq!(r.lease_left(ms(5000), OsdId(1)), Duration::ZERO);
    }

    /// A connection refused by the previous process, reported after the map had the next one: that
    /// one was marked down, with all its PGs (F29).
    #[test]
    fn a_refusal_says_nothing_of_an_instance_that_is_just_known() {
        let (mut p, _) = pair();
        p.refused(ms(0), OsdId(2));
        assert_eq!(p.accusations(ms(1)), []);
        p.refused(ms(300), OsdId(2));
        assert!(p.accusations(ms(301))[0].refused);
    }

    #[test]
    fn a_late_riser_accuses_nobody_of_its_own_sleep() {
        let (mut p, _) = pair();
        p.heard(ms(100), OsdId(2));
        p.discount(Duration::from_secs(30), ms(30_100));
        assert_eq!(p.accusations(ms(30_100)), []);
        let accused = p.accusations(ms(32_200));
        assert_eq!((accused[0].target, accused[0].alive), (OsdId(2), false));
        p.heard(ms(32_300), OsdId(2));
        assert!(p.accusations(ms(32_300))[0].alive);
    }
}
