//! Read repair: a replica that cannot be read is recovered from a member that can read its own
//! (DESIGN §3, Scrub: the good replica is the one whose checksum is valid).
//!
//! ```text
//!  read fails ─▶ suspect ──no operation on it──▶ missing, durably ──recovery: Pull or Push──▶ read again
//!                   ▲                                     │ no member can send it
//!  a source cannot  │                                     ▼
//!  read a request   ┘                       lost: served as far as readable, `Corrupt` beyond
//! ```
//! Only the primary decides. A member that cannot read a requested object reports that
//! (`PushAck::damaged`) and remembers the version: a push of just that version replaces its
//! replica. A damaged replica is a missing object whose store has the needed version
//! (`have == need`): it stays in place until a good one is here, so that its readable parts are not given up
//! while no good one exists.
//!
//! Invariants: an object becomes missing here or at a member because of damage only while no update
//! of it is in progress; a lost object is not missing because of damage.

use super::local::{Local, Ops};
use super::primary::Primary;
use super::{Interval, Lead};
use crate::purpose::Purpose;
use crate::shared::Shared;
use nacre_types::{ObjectId, OsdId, PgId, Version};
use nacre_wire::msg::monitor::Severity;
use nacre_wire::msg::replication::Missing;
use std::collections::{BTreeMap, BTreeSet};

/// Replicas known to be damaged, and their repair.
#[derive(Debug, Default)]
pub struct Damage {
    /// The members whose replicas, at which version, were found damaged: to be marked missing as
    /// soon as no operation on the object is in progress.
    suspects: BTreeMap<ObjectId, BTreeMap<OsdId, Version>>,
    /// The members whose replicas are marked missing because of damage.
    marked: BTreeMap<ObjectId, BTreeSet<OsdId>>,
    /// Objects without a good replica at any reachable member: the version, and the members with
    /// damaged replicas.
    lost: BTreeMap<ObjectId, (Version, BTreeSet<OsdId>)>,
}

impl Damage {
    /// Whether a replica is to be marked.
    pub(super) fn is_suspect(&self, object: &ObjectId) -> bool {
        self.suspects.contains_key(object)
    }
    /// Whether any replica is to be marked.
    pub(super) fn has_suspects(&self) -> bool {
        !self.suspects.is_empty()
    }
    /// Whether no reachable member has a readable replica of the object.
    pub(super) fn is_lost(&self, object: &ObjectId) -> bool {
        self.lost.contains_key(object)
    }
    /// The number of objects without a good replica at any reachable member, as far as members were
    /// asked.
    pub(super) fn lost_count(&self) -> usize {
        self.lost.len()
    }
    /// The object was written.
    pub(super) fn may_be_whole(&mut self, object: &ObjectId) {
        self.lost.remove(object);
    }

    /// A replica of the object at `version` cannot be read: it is to be marked.
    fn suspect(
        &mut self,
        whose: OsdId,
        object: &ObjectId,
        version: Version,
        pg: PgId,
        sh: &mut Shared,
    ) {
        let suspects = self.suspects.entry(object.clone()).or_default();
        if suspects.insert(whose, version).is_none() {
            sh.counters.borders.damaged += 1;
            let text = format!(
                "{pg}: {whose} cannot read its copy of {object}; another copy is to replace it"
            );
            sh.say(Severity::Error {}, text);
        }
    }

    /// The replica is marked missing.
    fn mark(&mut self, whose: OsdId, object: &ObjectId) {
        let marked = self.marked.entry(object.clone()).or_default();
        marked.insert(whose);
    }

    /// No reachable member has a good replica.
    fn lose(
        &mut self,
        object: &ObjectId,
        version: Version,
        damaged: BTreeSet<OsdId>,
        pg: PgId,
        sh: &mut Shared,
    ) {
        let before = self.lost.insert(object.clone(), (version, damaged));
        if before.is_none() {
            let text = format!(
                "{pg}: no member that is here has a copy of {object} that can be read from end to end"
            );
            sh.say(Severity::Error {}, text);
        }
    }

    /// A member, or this OSD, has the object again.
    pub(super) fn note_repaired(
        &mut self,
        whose: OsdId,
        object: &ObjectId,
        pg: PgId,
        sh: &mut Shared,
    ) {
        self.lost.remove(object);
        let Some(marked) = self.marked.get_mut(object) else {
            return;
        };
        if marked.remove(&whose) {
            sh.counters.repaired += 1;
            sh.say(
                Severity::Info {},
                format!("{pg}: {whose} has a good copy of {object} again"),
            );
        }
        if marked.is_empty() {
            self.marked.remove(object);
        }
    }
}

impl Primary {
    /// Marks our replica missing, durably. Returns whether it is lost instead: then no member is
    /// left to ask, and nothing is stored.
    fn mark_here(
        &mut self,
        object: &ObjectId,
        need: Version,
        local: &mut Local,
        at: &Interval,
        sh: &mut Shared,
    ) -> bool {
        if local.missing.contains_key(object) {
            return false;
        }
        let (mut ops, me) = (Ops::new(), sh.me());
        local.miss(object, need, need, &mut ops);
        let lost = self.sources(object, local).next().is_none();
        if lost {
            local.not_missing(object, &mut Ops::new());
        } else {
            self.damage.mark(me, object);
            at.submit(sh, ops, Purpose::Nothing);
        }
        lost
    }
}

impl Lead<'_> {
    /// A replica of the object at `version` cannot be read. The caller continues with the object's
    /// queue.
    pub(super) fn suspect(
        &mut self,
        whose: OsdId,
        object: &ObjectId,
        version: Version,
        sh: &mut Shared,
    ) {
        let pg = self.id();
        self.primary.damage.suspect(whose, object, version, pg, sh);
        self.repair_if_quiet(object, sh);
    }

    /// Marks suspected replicas missing, if no operation on the object is in progress.
    pub(super) fn repair_if_quiet(&mut self, object: &ObjectId, sh: &mut Shared) {
        let me = sh.me();
        let primary = &mut *self.primary;
        if !primary.damage.is_suspect(object) {
            return;
        }
        // Members must not be sent updates of objects that they miss, and an update that still
        // reads was let through already.
        let state = primary.objects.existing(object);
        if state
            .as_ref()
            .is_some_and(|state| state.updates > 0 || state.exclusive)
        {
            return;
        }
        let context = state.and_then(|state| state.context.clone());
        let suspects = primary.damage.suspects.remove(object).expect("just seen");
        if context.as_ref().is_some_and(|context| !context.is_stored()) {
            return;
        }
        for (osd, found) in suspects {
            // A member may report an older version than it has by now; its report follows the
            // updates that it receives.
            let last = self.local.log.last_of(object);
            let need = match &context {
                Some(context) => context.version,
                None if last.is_some_and(|last| last.deleted()) => continue,
                None => last.map_or(found, |last| last.version().max(found)),
            };
            if osd == me {
                let (local, at) = (&mut *self.local, self.interval);
                if self.primary.mark_here(object, need, local, at, sh) {
                    self.lose(object, need, BTreeSet::from([me]), sh);
                }
            } else if let Some(peer) = self.primary.peers.get_mut(&osd)
                && found <= need
                && !peer.missing.contains_key(object)
            {
                peer.missing.insert(
                    object.clone(),
                    Missing {
                        object: object.clone(),
                        need,
                        have: need,
                    },
                );
                self.primary.damage.mark(osd, object);
            }
        }
        self.recover_now(object, sh);
    }

    fn lose(
        &mut self,
        object: &ObjectId,
        version: Version,
        damaged: BTreeSet<OsdId>,
        sh: &mut Shared,
    ) {
        let pg = self.id();
        self.primary.damage.lose(object, version, damaged, pg, sh);
        self.abandon_range_of(object, sh);
    }

    /// No member can send an object that we miss. Our replica, if it is at the needed version, is
    /// better than none.
    pub(super) fn on_no_source(&mut self, object: &ObjectId, sh: &mut Shared) {
        let Some(missing) = self.local.missing.get(object) else {
            return;
        };
        let version = missing.need;
        if missing.have != missing.need {
            if self.redo(object, sh) {
                return;
            }
            // Absent members may have it: clients wait, unless the reachable ones have it and
            // cannot read it.
            let damaged = self.primary.damage.marked.contains_key(object);
            if damaged {
                self.lose(object, version, BTreeSet::new(), sh);
                self.process_object(object, sh);
            }
            return;
        }
        let mut ops = Ops::new();
        self.local.not_missing(object, &mut ops);
        self.interval.submit(sh, ops, Purpose::Nothing);
        let me = sh.me();
        let primary = &mut *self.primary;
        let mut damaged = primary.damage.marked.remove(object).unwrap_or_default();
        for osd in &damaged {
            if let Some(peer) = primary.peers.get_mut(osd) {
                peer.missing.swap_remove(object);
            }
        }
        damaged.insert(me);
        self.lose(object, version, damaged, sh);
        self.process_object(object, sh);
    }

    /// An OSD is here that was not asked for objects that no other could read: it is asked at once.
    /// If a client had to read the object first, the OSD might have erased it before.
    pub(super) fn look_again(&mut self, sh: &mut Shared) {
        let primary = &mut *self.primary;
        for (object, (version, damaged)) in std::mem::take(&mut primary.damage.lost) {
            for osd in damaged {
                self.suspect(osd, &object, version, sh);
            }
            self.recover_now(&object, sh);
        }
    }
}
