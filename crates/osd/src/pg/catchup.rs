//! Receivers outside the acting set that have lost an update (F32).
//!
//! ```text
//!  target's log ──── acked │ lost │ dropped, since there is a gap │ head
//!  primary, when there was no progress for a while:
//!    its log reaches back to there ─▶ all entries after it, without effects: the objects are missing there, and recovered
//!    it does not                   ─▶ the target starts over
//! ```
//! No update waits for such receivers, so an update is forgotten as soon as the acting set has it.
//! A target that missed one did not accept later ones either: the gap stayed for the rest of the
//! interval, and a busy PG never became clean.
//!
//! The objects that the target misses are noted at once, so that no later update relies on them;
//! they are pushed when the target has the entries.

use super::local::Local;
use super::logs::send_adopt;
use super::primary::{PeerState, Primary};
use super::range::PAUSE;
use super::update::InFlight;
use super::{Interval, Lead};
use crate::key;
use crate::shared::Shared;
use nacre_types::{OsdId, Time, Version};
use nacre_wire::msg::replication::ReplicaUpdate;
use nacre_wire::{Payload, RecordView};
use std::collections::BTreeMap;

/// The number of entries resent at one time.
const ENTRIES_MAX: usize = 4096;

impl Lead<'_> {
    /// Looks for receivers that have stopped making progress.
    pub(super) fn catch_up_tick(&mut self, sh: &mut Shared) {
        let (now, patience) = (sh.now, sh.config.timing.retry_interval * 2);
        let (head, tail) = (self.local.log.head(), self.local.log.tail());
        let Self {
            primary, interval, ..
        } = self;
        if !primary.is_peered() {
            return;
        }
        let lagging = |(osd, peer): &(&OsdId, &PeerState)| {
            peer.acked < primary.committed
                && now.since(peer.moved) >= patience
                && !interval.acting.contains(osd)
        };
        let late: Vec<OsdId> = primary
            .peers
            .iter()
            .filter(lagging)
            .map(|(osd, _)| *osd)
            .collect();
        for osd in late {
            let peer = self.primary.peers.get_mut(&osd).expect("just listed");
            peer.moved = now;
            if peer.acked >= tail {
                sh.counters.borders.caught_up += 1;
                peer.catching = Some(head);
                self.primary
                    .send_entries(osd, self.local, self.interval, sh);
            } else {
                self.start_over(osd, sh);
            }
        }
    }

    /// The log begins after the target's head: the target starts over.
    fn start_over(&mut self, osd: OsdId, sh: &mut Shared) {
        if self.primary.backfill.fills(osd) {
            self.abandon_range(PAUSE, sh);
        }
        let (first, _) = key::range(self.id().seed, self.local.pg_num);
        let head = self.local.log.head();
        let peer = self.primary.peers.get_mut(&osd).expect("just listed");
        peer.missing.clear();
        peer.backfill = Some(first);
        peer.catching = Some(head);
        send_adopt(osd, None, self.local, self.interval, sh);
        // Pushes to it would hold their objects for as long as it is full, and abandoning a range
        // would not release them.
        self.stop_sending_to(osd, sh);
    }
}

impl Primary {
    /// Sends the log's entries after the target's head, and notes the objects that it then misses.
    fn send_entries(&mut self, to: OsdId, local: &Local, at: &Interval, sh: &mut Shared) {
        let trim = local.log.tail();
        let (committed, acked) = (self.committed, self.peers[&to].acked);
        let entries: Vec<_> = local.log.after(acked).map(RecordView::to_record).collect();
        let peer = self.peers.get_mut(&to).expect("just seen");
        entries
            .iter()
            .for_each(|entry| peer.gets_without_data(entry));
        for entry in entries.into_iter().take(ENTRIES_MAX) {
            let update = ReplicaUpdate {
                pg: at.pg,
                interval: at.since,
                entry,
                effects: Vec::new(),
                entry_only: true,
                payload: 0,
                committed,
                trim,
                tell_applied: false,
                takes: 0,
            };
            sh.update_later(to, update, Payload::new());
        }
    }
}

impl PeerState {
    /// The target has received more of the log.
    pub(super) fn note_progress(&mut self, version: Version, now: Time) {
        if version > self.acked {
            self.acked = version;
            self.moved = now;
        }
        if self.catching.is_some_and(|head| self.acked >= head) {
            self.catching = None;
        }
    }
}

/// An update was still reading when its object was noted as missing on a receiver. It has been
/// ordered since, or it was ordered without waiting for a full member (`cover.rs`): the missing
/// version is now the update's. (Otherwise updates of such objects wait.)
pub(super) fn miss_newer(
    peers: &mut BTreeMap<OsdId, PeerState>,
    update: &InFlight,
    acting: &[OsdId],
) {
    for (osd, peer) in peers {
        if update.entry.deleted() || update.is_anew_at(*osd, acting) {
            peer.missing.swap_remove(&update.object);
        } else if let Some(missing) = peer.missing.get_mut(&update.object) {
            missing.need = update.version;
        }
    }
}

/// A receiver that lacks a clone's origin lacks the clone.
pub(super) fn miss_clone(peers: &mut BTreeMap<OsdId, PeerState>, update: &InFlight) {
    let Some(source) = update.clone_source() else {
        return;
    };
    for peer in peers.values_mut() {
        if peer.missing.contains_key(&source) {
            peer.gets_without_data(&update.entry);
        }
    }
}
