//! Transfers of whole objects between members, in parts: the receiver ([`super::transfer`] is the
//! sender).
//!
//! ```text
//!  Push n ─▶ wanted? ─▶ next of its transfer? ─▶ space? ─▶ one of several: incoming area
//!              └ a duplicate: acknowledged again          the last one: renamed into its place
//! ```
//! The roles differ in what they accept besides missing objects: a primary the parts of a replica
//! with undone updates, a member a replacement of a replica that it reported damaged. They state it
//! ([`Expects`]).

use super::local::{Local, Ops};
use super::{ByObject, Interval};
use crate::key;
use crate::purpose::Purpose;
use crate::room::UPDATE_BESIDE;
use crate::shared::Shared;
use bytes::Bytes;
use nacre_store::{ObjectKey, Op};
use nacre_types::{ObjectId, OsdId, Version};
use nacre_wire::msg::replication::{Push, PushAck};
use nacre_wire::{Message, Payload};
use std::collections::BTreeSet;

/// An object being received.
#[derive(Debug)]
struct Incoming {
    from: OsdId,
    transfer: u64,
    version: Version,
    /// The next part to receive.
    next: u32,
    /// Parts durable here.
    durable: u32,
}

impl Incoming {
    fn is_of(&self, from: OsdId, push: &Push) -> bool {
        (self.from, self.transfer, self.version) == (from, push.transfer, push.version)
    }
}

/// What a role accepts of an arriving part, besides objects that are missing here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Expects {
    /// The part belongs to a replica with undone updates (`redo.rs`).
    pub(super) undone: bool,
    /// A part of an earlier transfer than this belongs to an ended comparison.
    pub(super) round: u64,
    /// The member reported its replica damaged at this version.
    pub(super) damaged: Option<Version>,
}

/// A part that is to be accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    undone: bool,
    /// It replaces a damaged replica.
    pub(super) damaged: bool,
}

/// Objects being received.
#[derive(Debug, Default)]
pub struct Receiving {
    incoming: ByObject<Incoming>,
    /// Objects with parts in the incoming area.
    staged: BTreeSet<ObjectId>,
}

impl Receiving {
    /// The parts of the object received here are useless now, or have been moved into its place.
    pub(super) fn unstage(&mut self, object: &ObjectId) -> bool {
        self.incoming.swap_remove(object);
        self.staged.remove(object)
    }

    /// Ends all transfers. Their received parts must free their space: otherwise it would be freed
    /// only at the daemon's next start.
    pub(super) fn end_all(&mut self, at: &Interval, sh: &mut Shared) {
        let staged = std::mem::take(self).staged;
        if !staged.is_empty() {
            let ops = staged
                .iter()
                .map(|object| Op::Remove(key::incoming_key(at.pg, object)))
                .collect();
            at.submit(sh, ops, Purpose::Nothing);
        }
    }

    /// Removes an object that turned out to be deleted or never to have existed, and its received
    /// parts.
    pub(super) fn drop_object(&mut self, object: &ObjectId, local: &mut Local, ops: &mut Ops) {
        if self.unstage(object) {
            ops.push(Op::Remove(key::incoming_key(local.pg(), object)));
        }
        local.drop_object(object, ops);
    }

    /// Accepts a wanted part, if it is the next one and there is space. Returns whether it was
    /// accepted.
    pub(super) fn take(
        &mut self,
        from: OsdId,
        (push, payload): (Push, Payload),
        Wanted { undone, damaged }: Wanted,
        local: &mut Local,
        at: &Interval,
        sh: &mut Shared,
    ) -> bool {
        let Push {
            version, transfer, ..
        } = push;
        if push.part == 0
            && self
                .incoming
                .get(&push.object)
                .is_none_or(|had| !had.is_of(from, &push))
        {
            // Even if its number is lower: its sender's machine may have restarted. A late one
            // costs a restart of the transfer.
            let incoming = Incoming {
                from,
                transfer,
                version,
                next: 0,
                durable: 0,
            };
            self.incoming.insert(push.object.clone(), incoming);
        }
        let Some(incoming) = self.incoming.get_mut(&push.object) else {
            return false;
        };
        if !incoming.is_of(from, &push) {
            return false;
        }
        if push.part != incoming.next {
            if push.part < incoming.durable {
                acknowledge(from, &push.object, version, (transfer, push.part), at, sh);
            }
            return false;
        }
        let small: usize = push
            .omap
            .iter()
            .map(|(key, value)| key.len() + value.len() + 8)
            .sum();
        let bytes = (nacre_wire::msg::payload_len(&payload) + small) as u64 + UPDATE_BESIDE;
        if !push.absent && !sh.take_part(bytes) {
            // As if it had been lost: it is resent, and accepted if there is space then. A store
            // that is completely full cannot even delete.
            return false;
        }
        incoming.next += 1;
        let mut ops = Ops::new();
        if damaged && !push.last {
            local.miss(&push.object, push.version, push.version, &mut ops);
        }
        self.store_part(&push, payload, undone, local, &mut ops);
        let Push {
            object, part, last, ..
        } = push;
        let purpose = Purpose::PartStored {
            from,
            object,
            version,
            part: (transfer, part),
            last,
        };
        at.submit(sh, ops, purpose);
        true
    }

    /// `undone`: the part belongs to a replica with undone updates (`redo.rs`).
    fn store_part(
        &mut self,
        push: &Push,
        payload: Payload,
        undone: bool,
        local: &mut Local,
        ops: &mut Ops,
    ) {
        let place = key::store_key(local.pg(), &push.object);
        if push.absent {
            self.drop_object(&push.object, local, ops);
            return;
        }
        // An object of one part is written directly into its place; otherwise it is invisible until
        // it is complete. A replica with undone updates is moved into place when all its parts are
        // here, with its note: without that, its clones would be orphans.
        let single = push.part == 0 && push.last && !undone;
        let staging = key::incoming_key(local.pg(), &push.object);
        if !single {
            self.staged.insert(push.object.clone());
        } else if self.staged.remove(&push.object) {
            ops.push(Op::Remove(staging.clone()));
        }
        let target: ObjectKey = if single { place.clone() } else { staging };
        if push.part == 0 {
            ops.push(Op::Remove(target.clone()));
            ops.push(Op::Touch(target.clone()));
            for (name, value) in &push.attrs {
                let name = Bytes::copy_from_slice(name.as_bytes());
                ops.push(Op::SetAttr {
                    object: target.clone(),
                    name,
                    value: value.clone(),
                });
            }
        }
        if !payload.is_empty() {
            ops.push(Op::Write {
                object: target.clone(),
                offset: push.offset,
                data: payload,
            });
        }
        if !push.omap.is_empty() {
            ops.push(Op::OmapSet {
                object: target.clone(),
                entries: push.omap.clone(),
            });
        }
        if push.last {
            ops.push(Op::Truncate {
                object: target.clone(),
                size: push.size,
            });
            if !undone {
                if !single {
                    self.staged.remove(&push.object);
                    ops.push(Op::Rename {
                        from: target,
                        to: place,
                    });
                }
                local.found(&push.object, ops);
            }
        }
    }

    /// A part is durable here. Returns whether the object is complete now.
    pub(super) fn on_part_stored(
        &mut self,
        from: OsdId,
        object: &ObjectId,
        version: Version,
        (part, last): ((u64, u32), bool),
        at: &Interval,
        sh: &mut Shared,
    ) {
        if let Some(incoming) = self.incoming.get_mut(object)
            && (incoming.from, incoming.transfer) == (from, part.0)
        {
            incoming.durable = incoming.durable.max(part.1 + 1);
        }
        acknowledge(from, object, version, part, at, sh);
        if last {
            self.incoming.swap_remove(object);
            sh.counters.recovered += 1;
        }
    }
}

impl Expects {
    /// Whether the part is to be accepted. Duplicates are acknowledged again.
    pub(super) fn judge(
        self,
        from: OsdId,
        push: &Push,
        local: &Local,
        at: &Interval,
        sh: &mut Shared,
    ) -> Option<Wanted> {
        let undone = self.undone;
        let need = local.missing.get(&push.object).map(|missing| missing.need);
        let need = if undone { Some(push.version) } else { need };
        let backfilled = local.backfill.is_some() && !local.inside_cursor(&push.object);
        if need.is_none() && backfilled && push.transfer < self.round && push.transfer > 0 {
            // Late, of an earlier comparison: the object in its place may be newer, and relied on.
            return None;
        }
        // A replacement of a replica that we reported damaged is accepted although our log says
        // that the object is here; later duplicates of this message are not.
        let damaged = need.is_none()
            && push.part == 0
            && (local.lost.get(&push.object) == Some(&push.version)
                || self.damaged == Some(push.version));
        match need {
            Some(need) if need == push.version => Some(Wanted { undone, damaged }),
            None if backfilled || damaged => Some(Wanted { undone, damaged }),
            // It is a duplicate whose acknowledgement was lost, or it is useless here. Every part
            // is acknowledged: the sender does not know that the last would suffice. A version
            // newer than our log has not been received: its entry, which says that it is missing,
            // was lost or overtaken.
            None if push.version <= local.log.head() => {
                let part = (push.transfer, push.part);
                acknowledge(from, &push.object, push.version, part, at, sh);
                None
            }
            _ => None,
        }
    }
}

/// The object to be sent is not here at that version; or it is damaged, which a member also reports
/// unasked.
pub(super) fn cannot_send(
    to: OsdId,
    object: ObjectId,
    version: Version,
    damaged: bool,
    at: &Interval,
    sh: &mut Shared,
) {
    let ack = PushAck {
        pg: at.pg,
        interval: at.since,
        object,
        version,
        part: u32::MAX,
        have: false,
        damaged,
        transfer: 0,
    };
    sh.send(to, Message::PushAck(ack));
}

/// `part`: the transfer and the part.
fn acknowledge(
    to: OsdId,
    object: &ObjectId,
    version: Version,
    (transfer, part): (u64, u32),
    at: &Interval,
    sh: &mut Shared,
) {
    let ack = PushAck {
        pg: at.pg,
        interval: at.since,
        object: object.clone(),
        version,
        part,
        have: true,
        damaged: false,
        transfer,
    };
    sh.send(to, Message::PushAck(ack));
}
