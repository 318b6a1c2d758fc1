//! OSDs that cover for missing members: they have all data, but the map does not name them, because
//! they are out or because another OSD is to be backfilled.
//!
//! ```text
//!  peering    chooses among OSDs that are up       (peering.rs)
//!  later      an OSD comes up, and reports its state    ─▶ too few act, and it follows by our log: it is requested
//!  full       a member lacks something, and has no space for it  ─▶ the others act without it, until it has everything
//!  complete   all that the map names are complete     ─▶ they act, with others if too few
//! ```
//! A member without space for what it lacks stands aside, if enough others are left: it still gets
//! every update, like a target of backfill, but nothing waits for what it lacks. Otherwise the
//! deletions and the trimming that would free space waited for recovery, which waited for space
//! (simulator, small devices, seed 3761: old versions filled the member that the others had left
//! behind while it was down, and every name lacked something there). If too few would be left, the
//! member acts, and only deletions do not wait for what it lacks (`goes_without`): they remove its
//! old versions.
//!
//! The next interval's peering judges its members again. Looking at the log here only avoids
//! useless requests.

use super::Interval;
use super::backfill::Backfill;
use super::holders::Holders;
use super::local::Local;
use super::log::follows_from;
use super::peering::{Peering, Phase};
use super::primary::{PeerState, Primary};
use crate::shared::Shared;
use nacre_types::OsdId;
use nacre_wire::msg::replication::PgInfo;

impl Primary {
    /// A member blocks clients or trimming because it lacks something and has no space for it:
    /// requests an acting set without it.
    pub(super) fn stand_aside(&mut self, local: &Local, at: &Interval, sh: &mut Shared) {
        let holders = self.holders(local, at);
        let lacks_any = |osd| holders.lacks_any(osd);
        let acting = &at.acting;
        if !acting
            .iter()
            .any(|osd| sh.has_no_room_at(*osd) && lacks_any(*osd))
        {
            return;
        }
        let mut rest = at.without_full(acting, lacks_any, sh);
        full_last(&mut rest, lacks_any, sh);
        if rest == *acting {
            return;
        }
        let leaves = rest.len() < acting.len();
        if !self.is_active()
            || self.backfill.ask_at > sh.now
            || !(self.trimming.lacks() || self.gate(local, at).someone_waits_for_a_copy(sh))
        {
            return;
        }
        let again = sh.after(2);
        self.backfill.ask_at = again;
        sh.counters.borders.stood_aside += u64::from(leaves);
        at.request_acting(rest, sh);
    }
}

impl Backfill {
    /// An OSD reported its state. If too few OSDs act to serve, the OSD is requested, provided it
    /// was a member of the last activated interval and can follow by log. (Simulator, seed 3301:
    /// all but one were out, and that one peered before the others were up again.)
    pub(super) fn cover_with(
        &mut self,
        from: OsdId,
        peering: &Peering,
        local: &Local,
        at: &Interval,
        sh: &mut Shared,
    ) {
        if peering.phase != Phase::Peered
            || at.acting.len() >= at.min_size
            || at.acting.contains(&from)
            || self.ask_at > sh.now
        {
            return;
        }
        let complete = |info: &&PgInfo| info.exists && info.backfill.is_none();
        let Some(info) = peering.infos.get(&from).filter(complete) else {
            return;
        };
        let follows = follows_from(info, &local.log.spans(), local.log.tail()).is_some();
        if follows && at.activated.members.contains(&from) {
            self.ask_at = sh.after(2);
            at.request_acting(at.acting.iter().copied().chain([from]).collect(), sh);
        }
    }

    /// All members of `up` that do not stand aside are complete, and they are enough, alone or
    /// together with the acting ones: they should act. (Simulator, seed 3732: where the map gave
    /// one member and two were needed, a member that was out acted alone, and never accepted the
    /// one that it had filled.)
    pub(super) fn ask_for_the_complete(&mut self, holders: Holders<'_>, sh: &mut Shared) {
        let at = holders.interval;
        let (up, min_size) = (at.up.clone(), at.min_size);
        let given = at.without_full(&up, |osd| holders.lacks_any(osd), sh);
        // A full member leaves here only if another replaces it (otherwise: `stand_aside`).
        if given.len() < up.len() && given.iter().all(|osd| at.acting.contains(osd)) {
            return;
        }
        let mut wanted = given.clone();
        if up.len() < min_size {
            // As in peering: members that are out cover.
            let mut others: Vec<OsdId> = at
                .acting
                .iter()
                .filter(|osd| !up.contains(osd))
                .copied()
                .collect();
            others.sort_unstable();
            wanted.extend(others.into_iter().take(min_size - up.len()));
        }
        if up.is_empty() || wanted.len() < min_size || wanted == at.acting {
            return;
        }
        let follows = |osd: &OsdId| {
            let complete = |peer: &PeerState| {
                peer.catching.is_none() && peer.backfill.is_none() && peer.missing.is_empty()
            };
            holders.peers.get(osd).is_some_and(complete)
        };
        let complete = given.iter().all(|osd| *osd == sh.config.id || follows(osd));
        if complete && self.ask_at <= sh.now {
            let again = sh.after(2);
            self.ask_at = again;
            self.asked = true;
            sh.wake_at(again);
            at.request_acting(if wanted == up { Vec::new() } else { wanted }, sh);
        }
    }
}

impl Interval {
    /// The subset of these members that acts: all except those that lack something and have only
    /// their reserve left. All of them act if fewer than `min_size` would be left, or only one:
    /// updates that it acknowledged would have no other replica while the others are full.
    pub(super) fn without_full(
        &self,
        members: &[OsdId],
        lacks: impl Fn(OsdId) -> bool,
        sh: &Shared,
    ) -> Vec<OsdId> {
        let acts = |osd: &OsdId| !full_and_lacking(*osd, &lacks, sh);
        let left: Vec<OsdId> = members.iter().copied().filter(acts).collect();
        if left.len() < self.min_size.max(2) {
            members.to_vec()
        } else {
            left
        }
    }

    /// Whether updates wait for what the receiver lacks. They do not if it stands aside.
    pub(super) fn is_waited_for(&self, osd: OsdId, sh: &Shared) -> bool {
        self.acting.contains(&osd) || !sh.is_nearly_full_at(osd)
    }
}

/// Whether the member lacks something and has only its reserve left.
fn full_and_lacking(osd: OsdId, lacks: impl Fn(OsdId) -> bool, sh: &Shared) -> bool {
    sh.is_nearly_full_at(osd) && lacks(osd)
}

/// Full members that lack something and must act do not lead: a primary fills no target while it
/// lacks something itself.
pub(super) fn full_last(members: &mut [OsdId], lacks: impl Fn(OsdId) -> bool, sh: &Shared) {
    members.sort_by_key(|osd| full_and_lacking(*osd, &lacks, sh));
}
