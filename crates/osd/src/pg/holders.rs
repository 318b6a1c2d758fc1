//! Which holders of the PG have which objects, as its primary knows it.

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

/// See the module head. Read-only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holders<'a> {
    /// The objects that we miss.
    pub(super) missing: &'a ByObject<Missing>,
    pub(super) interval: &'a Interval,
    pub(super) peers: &'a BTreeMap<OsdId, PeerState>,
}

impl<'a> Holders<'a> {
    /// The objects that a member should have but lacks; for ourselves, and for members that get no
    /// updates, those that we miss.
    pub(super) fn missing_at(&self, osd: OsdId) -> &'a ByObject<Missing> {
        self.peers
            .get(&osd)
            .map_or(self.missing, |peer| &peer.missing)
    }

    /// Whether a member should have the object but lacks it.
    pub(super) fn lacks(&self, osd: OsdId, object: &ObjectId) -> bool {
        self.missing_at(osd).contains_key(object)
    }

    /// Whether the member lacks any object that it should have.
    pub(super) fn lacks_any(&self, osd: OsdId) -> bool {
        !self.missing_at(osd).is_empty()
    }

    /// Whether a receiver of the object's updates must get the object first.
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

    /// Whether the operation must wait for the recovery of the object or of a clone of it. A
    /// deletion does not wait for a member that must act although it has no space, provided that no
    /// wanted member is away or at least `min_size` acting members have the object: an absent
    /// member may have it, too, and the remaining clone would have fewer replicas than there are
    /// now.
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

    /// Whether the member must act although it has no space for what it lacks. Deletions do not
    /// wait for it: its old version is removed, and a clone that a deletion leaves behind is
    /// missing there.
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

    /// A member that lacks the object and has no space for it.
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

    /// Whether the members have space for the update in addition to equally large ones of other
    /// primaries. An update no larger than what a primary may always have in flight was checked
    /// earlier; operations with which an operator frees space (`FULL_OK`) are let through. A clone
    /// takes space even if a deletion makes it, so it needs enough space in any case.
    pub(super) fn fits_rooms(&self, op: &Pending, update: &Update, sh: &Shared) -> bool {
        let bytes = room_of(&update.effects, &update.payload) + op.clone_bytes.unwrap_or(0);
        let acting = &self.interval.acting;
        // Members that a deletion does not wait for take no significant space.
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
    /// The holders and what they have.
    pub(super) fn holders<'a>(&'a self, local: &'a Local, at: &'a Interval) -> Holders<'a> {
        Holders {
            missing: &local.missing,
            interval: at,
            peers: &self.peers,
        }
    }
}
