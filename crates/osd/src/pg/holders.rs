//! Who of those that hold the group has what, as its primary knows it.

use super::local::Local;
use super::pending::Pending;
use super::primary::{PeerState, Primary};
use super::update::room_of;
use super::{ByObject, Interval};
use crate::shared::Shared;
use nacre_object::evaluate::Update;
use nacre_types::{ObjectId, OsdId};
use nacre_wire::msg::replication::Missing;
use std::collections::BTreeMap;

/// See the module head. It only looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holders<'a> {
    /// What we miss ourselves.
    pub(super) missing: &'a ByObject<Missing>,
    pub(super) interval: &'a Interval,
    pub(super) peers: &'a BTreeMap<OsdId, PeerState>,
}

impl<'a> Holders<'a> {
    /// What a member should have and has not; of ourselves and those that get no updates, what we
    /// miss.
    pub(super) fn missing_at(&self, osd: OsdId) -> &'a ByObject<Missing> {
        self.peers
            .get(&osd)
            .map_or(self.missing, |peer| &peer.missing)
    }

    /// Whether a member should have the object and has not.
    pub(super) fn lacks(&self, osd: OsdId, object: &ObjectId) -> bool {
        self.missing_at(osd).contains_key(object)
    }

    /// Whether the member should have anything that it has not.
    pub(super) fn lacks_any(&self, osd: OsdId) -> bool {
        !self.missing_at(osd).is_empty()
    }

    /// Whether somebody who gets updates of the object has to get the object first.
    pub(super) fn is_lacking(&self, object: &ObjectId, sh: &Shared) -> bool {
        self.is_lacking_but(object, |_| false, sh)
    }

    fn is_lacking_but(
        &self,
        object: &ObjectId,
        spared: impl Fn(OsdId) -> bool,
        sh: &Shared,
    ) -> bool {
        let lacks =
            |osd| self.lacks(osd, object) && self.interval.is_waited_for(osd, sh) && !spared(osd);
        self.missing.contains_key(object) || self.interval.receivers().any(lacks)
    }

    /// Whether the operation has to wait for a copy of the object, its own or a clone of that. A
    /// deletion waits for no member that has to act though it has no room; but where a member
    /// is away that may have the object: there would be fewer copies of what is left of it than
    /// there are.
    pub(super) fn keeps_waiting(&self, object: &ObjectId, op: &Pending, sh: &Shared) -> bool {
        let (acting, size) = (&self.interval.acting, self.interval.size);
        let having = || {
            acting
                .iter()
                .filter(|osd| !self.lacks(**osd, object))
                .count()
        };
        let spares =
            op.only_deletes() && (acting.len() >= size || having() >= self.interval.min_size);
        self.is_lacking_but(object, |osd| spares && self.goes_without(osd, sh), sh)
    }

    /// Whether the member has to act though it has no room for what it lacks. Deletions go without
    /// it: what was there is removed, and what they leave, a clone, is lacking there.
    pub(super) fn goes_without(&self, osd: OsdId, sh: &Shared) -> bool {
        let acting = &self.interval.acting;
        let stays = || {
            self.interval
                .without_full(acting, |osd| self.lacks_any(osd), sh)
                .len()
                == acting.len()
        };
        sh.has_no_room_at(osd) && acting.contains(&osd) && stays()
    }

    /// A member that lacks the object and has no room for it.
    pub(super) fn without_room(&self, object: &ObjectId, sh: &Shared) -> Option<OsdId> {
        let here = self.missing.contains_key(object).then_some(sh.config.id);
        let others = self
            .interval
            .receivers()
            .filter(|osd| self.lacks(*osd, object) && self.interval.is_waited_for(*osd, sh));
        here.into_iter()
            .chain(others)
            .find(|osd| sh.has_no_room_at(*osd))
    }

    /// Whether the members could bear the update beside as large ones of other primaries. One that
    /// is not larger than what a primary may always have under way was looked at before; what an
    /// operator does to make room (`FULL_OK`) is let through. A clone takes room whatever makes it,
    /// a deletion too: as long as there is enough.
    pub(super) fn fits_rooms(&self, op: &Pending, update: &Update, sh: &Shared) -> bool {
        let bytes = room_of(&update.effects, &update.payload) + op.clone_bytes.unwrap_or(0);
        let acting = &self.interval.acting;
        // Who goes without takes nothing that counts.
        let takes = |osd: &OsdId| !op.only_deletes() || !self.goes_without(*osd, sh);
        let too_much = |osd: &OsdId| takes(osd) && sh.under_way.is_too_much(&[*osd], bytes);
        let fits = !sh.under_way.is_too_much(acting, bytes) || !acting.iter().any(too_much);
        if op.clone_bytes.is_some() {
            return fits && sh.room.bears(bytes);
        }
        fits || op.request.flags & nacre_wire::msg::client::op_flag::FULL_OK != 0
    }
}

impl Primary {
    /// Who has what.
    pub(super) fn holders<'a>(&'a self, local: &'a Local, at: &'a Interval) -> Holders<'a> {
        Holders {
            missing: &local.missing,
            interval: at,
            peers: &self.peers,
        }
    }
}
