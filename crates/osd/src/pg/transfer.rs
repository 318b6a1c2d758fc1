//! Transfers of whole objects between members, in parts: the sender. The receiver is in
//! `receive.rs`.
//!
//! ```text
//!  sender    Stat ─▶ (data, omap) ─▶ Push 0 ─▶ … wait … ─▶ (data, omap) ─▶ Push 1 (last)
//!  receiver          part 0 of several: into the incoming area; the last one renames it into place
//!            ◀─ PushAck n ─ when part n is durable
//! ```
//! One part is in flight per object and receiver; an unacknowledged part is resent, a duplicate is
//! acknowledged again. A receiver that has the complete object does not remember the transfer: if
//! the last acknowledgements are lost, the object is sent from the beginning. The object does not
//! change meanwhile: at a primary it is held; if another member sends it, the primary blocks writes
//! to objects that it misses. Parts of two transfers need not have the same boundaries: options
//! change, and omaps are read in pages whose length depends on the store's layout. So a transfer
//! has a number, and a receiver that is sent an object from the beginning starts from the
//! beginning. Attributes are stored with the first part; the last part makes the complete object
//! visible and removes its note as missing, atomically.
//!
//! [`Sending`] is independent of roles: it returns to the role which transfers have ended, and
//! whether a queue held the object.

use super::Interval;
use crate::key;
use crate::purpose::{Purpose, PushRead};
use crate::shared::Shared;
use bytes::Bytes;
use nacre_store::{ObjectStat, Read, ReadError, ReadReply};
use nacre_types::{Name, ObjectId, OsdId, Time, Version};
use nacre_wire::msg::replication::{Push, PushAck};
use nacre_wire::{Message, Payload};
use std::collections::BTreeMap;

/// The bytes of omap in one part.
const OMAP_BYTES: usize = 1 << 20;

/// A part that was resent this often without an answer may be one that its receiver no longer
/// remembers, or of an outdated version: an update in progress when the transfer began has been
/// ordered since, and its receiver knows what it misses now.
const REPEATS_MAX: u32 = 2;
/// See [`Outgoing::patience`]: half a minute.
const PATIENCE_MAX: u32 = 64;

/// An object being sent.
#[derive(Debug)]
struct Outgoing {
    /// Its number: larger than all earlier ones of this sender, including those of earlier
    /// instances.
    transfer: u64,
    version: Version,
    stat: Option<ObjectStat>,
    part: u32,
    offset: u64,
    data: Option<Payload>,
    omap_after: Option<Bytes>,
    omap: Option<(Vec<(Bytes, Bytes)>, bool)>,
    omap_done: bool,
    sent: Option<(Push, Payload)>,
    retry_at: Time,
    /// How often the part in flight was resent.
    repeats: u32,
    /// How often it may be resent before the transfer restarts: doubled each time, because
    /// otherwise a store that takes longer for a part would never get a complete object.
    patience: u32,
    /// Whether our own queue holds the object for this transfer.
    holds: bool,
}

impl Outgoing {
    const fn new(transfer: u64, version: Version, holds: bool) -> Self {
        Self {
            transfer,
            version,
            stat: None,
            part: 0,
            offset: 0,
            data: None,
            omap_after: None,
            omap: None,
            omap_done: false,
            sent: None,
            retry_at: Time::MAX,
            repeats: 0,
            patience: REPEATS_MAX,
            holds,
        }
    }
}

/// An object that the receiver has, or whose transfer was ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) version: Version,
    /// The primary's queue held the object, and must release it.
    pub(super) holds: bool,
}

/// An object that cannot be sent.
#[derive(Debug)]
pub(super) struct Unsent {
    pub(super) ended: Ended,
    /// The object is here and cannot be read; otherwise it is not here at that version.
    pub(super) damaged: bool,
}

/// Objects being sent.
#[derive(Debug, Default)]
pub struct Sending {
    outgoing: BTreeMap<(OsdId, ObjectId), Outgoing>,
    begun: u64,
}

impl Sending {
    /// Whether something must be resent if it is not acknowledged.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.outgoing.is_empty()
    }
    /// Whether the object is being sent to the member.
    #[must_use]
    pub fn is_outgoing(&self, to: OsdId, object: &ObjectId) -> bool {
        self.outgoing.contains_key(&(to, object.clone()))
    }
    /// The number of a transfer that begins now.
    pub(super) fn number(&mut self, now: Time) -> u64 {
        self.begun = now.0.max(self.begun + 1);
        self.begun
    }
    /// The number of parts that the member has of objects in transfer.
    pub(super) fn parts_out(&self, to: OsdId) -> u64 {
        self.outgoing
            .iter()
            .filter(|((member, _), _)| *member == to)
            .map(|(_, it)| u64::from(it.part))
            .sum()
    }
    /// The number of transfers that hold their object.
    pub(super) fn holds(&self) -> usize {
        self.outgoing
            .values()
            .filter(|outgoing| outgoing.holds)
            .count()
    }
    /// The receivers of the object's transfers.
    pub(super) fn receivers_of(&self, object: &ObjectId) -> Vec<OsdId> {
        self.outgoing
            .keys()
            .filter(|(_, of)| of == object)
            .map(|(to, _)| *to)
            .collect()
    }
    /// The number of transfers to members with this property.
    pub fn outgoing_to(&self, is_so: impl Fn(OsdId) -> bool) -> usize {
        self.outgoing.keys().filter(|(to, _)| is_so(*to)).count()
    }
    /// Whether anything is being sent to the member.
    pub(super) fn sends_to(&self, to: OsdId) -> bool {
        self.outgoing_to(|osd| osd == to) > 0
    }
    /// The objects being sent to the member.
    pub(super) fn objects_to(&self, to: OsdId) -> Vec<ObjectId> {
        let all = self.outgoing.keys().filter(|(osd, _)| *osd == to);
        all.map(|(_, object)| object.clone()).collect()
    }

    /// Begins to send an object at a version, unless it is being sent already; returns whether it
    /// did. The caller has checked that the object is here, and states whether its queue holds it
    /// meanwhile.
    pub(super) fn push_object(
        &mut self,
        to: OsdId,
        object: &ObjectId,
        (version, holds): (Version, bool),
        at: &Interval,
        sh: &mut Shared,
    ) -> bool {
        if self.is_outgoing(to, object) {
            return false;
        }
        let transfer = self.begin(to, object, version, holds, sh.now).transfer;
        read_stat(to, object, transfer, at, sh);
        true
    }

    /// Reports to a member that an object does not exist, as [`Self::push_object`]; its queue
    /// holds it meanwhile.
    pub(super) fn push_absence(
        &mut self,
        to: OsdId,
        object: &ObjectId,
        version: Version,
        at: &Interval,
        sh: &mut Shared,
    ) -> bool {
        if self.is_outgoing(to, object) {
            return false;
        }
        let mut push = part(object, version, 0, at);
        push.absent = true;
        push.last = true;
        let retry_at = sh.after(1);
        let outgoing = self.begin(to, object, version, true, sh.now);
        push.transfer = outgoing.transfer;
        sh.send(to, Message::Push(push.clone(), Payload::new()));
        outgoing.omap_done = true;
        outgoing.sent = Some((push, Payload::new()));
        outgoing.retry_at = retry_at;
        true
    }

    fn begin(
        &mut self,
        to: OsdId,
        object: &ObjectId,
        version: Version,
        holds: bool,
        now: Time,
    ) -> &mut Outgoing {
        let outgoing = Outgoing::new(self.number(now), version, holds);
        self.outgoing
            .entry((to, object.clone()))
            .or_insert(outgoing)
    }

    fn read_part(&self, to: OsdId, object: &ObjectId, at: &Interval, sh: &mut Shared) {
        let Some(outgoing) = self.outgoing.get(&(to, object.clone())) else {
            return;
        };
        let store_key = key::store_key(at.pg, object);
        let transfer = outgoing.transfer;
        let purpose = |what| Purpose::PushRead {
            to,
            object: object.clone(),
            transfer,
            what,
        };
        if outgoing.data.is_none() {
            let length = sh.config.limits.push_bytes;
            let read = Read::Data {
                object: store_key.clone(),
                offset: outgoing.offset,
                length,
            };
            at.read(sh, read, purpose(PushRead::Data));
        }
        if outgoing.omap.is_none() {
            let from = outgoing
                .omap_after
                .clone()
                .map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
            let (limit_entries, limit_bytes) = (sh.config.limits.push_entries, OMAP_BYTES);
            let read = Read::Omap {
                object: store_key,
                from,
                to: None,
                limit_entries,
                limit_bytes,
            };
            at.read(sh, read, purpose(PushRead::Omap));
        }
    }

    /// Data of an object in transfer was read. Returns the object if it cannot be sent.
    pub(super) fn on_push_read(
        &mut self,
        to: OsdId,
        object: &ObjectId,
        (transfer, what): (u64, PushRead),
        reply: Result<ReadReply, ReadError>,
        at: &Interval,
        sh: &mut Shared,
    ) -> Option<Unsent> {
        let key = (to, object.clone());
        // A reply may belong to an ended transfer of the object, and so to an earlier state of it.
        let of_this = |outgoing: &&mut Outgoing| outgoing.transfer == transfer;
        let outgoing = self.outgoing.get_mut(&key).filter(of_this)?;
        let version = outgoing.version;
        match (what, reply) {
            (PushRead::Stat, Ok(ReadReply::Stat(Some(stat))))
                if nacre_object::Context::of(Some(stat.clone())).version == version =>
            {
                // Data known to be empty is not read.
                if stat.size == 0 {
                    outgoing.data = Some(Payload::new());
                }
                outgoing.stat = Some(stat);
                self.read_part(to, object, at, sh);
                return None;
            }
            (PushRead::Data, Ok(ReadReply::Data(data)))
                if nacre_wire::msg::payload_len(&data) > 0 =>
            {
                outgoing.data = Some(data);
            }
            (PushRead::Omap, Ok(ReadReply::Omap { entries, more })) => {
                outgoing.omap = Some((entries, more))
            }
            (_, reply) => {
                let damaged = !matches!(reply, Ok(_) | Err(ReadError::NotFound));
                let ended = self.end(to, object)?;
                return Some(Unsent { ended, damaged });
            }
        }
        self.send_part(to, object, at, sh);
        None
    }

    fn send_part(&mut self, to: OsdId, object: &ObjectId, at: &Interval, sh: &mut Shared) {
        let key = (to, object.clone());
        let Some(outgoing) = self.outgoing.get(&key) else {
            return;
        };
        let (Some(data), Some((omap, more)), Some(stat)) =
            (&outgoing.data, &outgoing.omap, &outgoing.stat)
        else {
            return;
        };
        let mut push = part(object, outgoing.version, outgoing.part, at);
        push.transfer = outgoing.transfer;
        let data = data.clone();
        let end = outgoing.offset + nacre_wire::msg::payload_len(&data) as u64;
        push.size = stat.size;
        push.offset = outgoing.offset;
        push.omap.clone_from(omap);
        push.last = end >= stat.size && !more;
        sh.counters.borders.push_data_parts += u64::from(end < stat.size);
        sh.counters.borders.push_omap_parts += u64::from(*more);
        if outgoing.part == 0 {
            push.attrs = stat
                .attrs
                .iter()
                .map(|(name, value)| (Name::copy(name), value.clone()))
                .collect();
        }
        let (more, last_key) = (*more, omap.last().map(|(key, _)| key.clone()));
        let outgoing = self.outgoing.get_mut(&key).expect("just seen");
        outgoing.offset = end;
        outgoing.omap_done = !more;
        outgoing.omap_after = last_key.or(outgoing.omap_after.take());
        outgoing.retry_at = sh.after(1);
        sh.send(to, Message::Push(push.clone(), data.clone()));
        outgoing.sent = Some((push, data));
        sh.counters.pushed += 1;
    }

    /// A part is durable at the receiver. Returns the object when it is complete there.
    pub(super) fn on_push_ack(
        &mut self,
        from: OsdId,
        message: &PushAck,
        at: &Interval,
        sh: &mut Shared,
    ) -> Option<Ended> {
        let key = (from, message.object.clone());
        let outgoing = self.outgoing.get_mut(&key)?;
        let (push, _) = outgoing.sent.as_ref()?;
        // An older program does not state to which transfer the part belongs.
        let other = message.transfer != push.transfer && message.transfer != 0;
        if other || message.part != push.part || message.version != push.version {
            return None;
        }
        if push.last {
            return self.end(from, &message.object);
        }
        outgoing.part += 1;
        outgoing.repeats = 0;
        outgoing.sent = None;
        outgoing.retry_at = Time::MAX;
        let size = outgoing.stat.as_ref().map_or(0, |stat| stat.size);
        outgoing.data = (outgoing.offset >= size).then(Payload::new);
        outgoing.omap = outgoing.omap_done.then(|| (Vec::new(), false));
        let (object, ready) = (
            message.object.clone(),
            outgoing.data.is_some() && outgoing.omap.is_some(),
        );
        if ready {
            self.send_part(from, &object, at, sh);
        } else {
            self.read_part(from, &object, at, sh);
        }
        None
    }

    /// Ends all transfers.
    pub(super) fn end_all(&mut self) {
        *self = Self::default();
    }
    /// The object changes: ends all transfers of its old state.
    pub(super) fn end_all_of(&mut self, object: &ObjectId) {
        self.outgoing.retain(|(_, of), _| of != object);
    }
    /// Ends the object's transfer to the member.
    pub(super) fn end(&mut self, to: OsdId, object: &ObjectId) -> Option<Ended> {
        let Outgoing { version, holds, .. } = self.outgoing.remove(&(to, object.clone()))?;
        Some(Ended { version, holds })
    }

    /// Resends unacknowledged parts.
    pub(super) fn retry(&mut self, at: &Interval, sh: &mut Shared) {
        let (now, after) = (sh.now, sh.config.timing.retry_interval);
        let mut again = Vec::new();
        for ((to, object), outgoing) in &mut self.outgoing {
            if outgoing.retry_at <= now
                && let Some((push, payload)) = &outgoing.sent
            {
                outgoing.repeats += 1;
                if outgoing.repeats > outgoing.patience && !push.absent {
                    again.push((*to, object.clone()));
                    continue;
                }
                outgoing.retry_at = now + after;
                sh.send(*to, Message::Push(push.clone(), payload.clone()));
            }
        }
        for (to, object) in again {
            self.begin_again(to, &object, at, sh);
        }
    }

    /// Restarts a transfer; the object stays held.
    fn begin_again(&mut self, to: OsdId, object: &ObjectId, at: &Interval, sh: &mut Shared) {
        let transfer = self.number(sh.now);
        let Some(outgoing) = self.outgoing.get_mut(&(to, object.clone())) else {
            return;
        };
        let patience = (outgoing.patience * 2).min(PATIENCE_MAX);
        *outgoing = Outgoing {
            patience,
            ..Outgoing::new(transfer, outgoing.version, outgoing.holds)
        };
        read_stat(to, object, transfer, at, sh);
    }
}

fn part(object: &ObjectId, version: Version, part: u32, at: &Interval) -> Push {
    Push {
        pg: at.pg,
        interval: at.since,
        object: object.clone(),
        version,
        absent: false,
        part,
        last: false,
        size: 0,
        offset: 0,
        attrs: Vec::new(),
        omap: Vec::new(),
        transfer: 0,
    }
}

/// A transfer begins with the object's state.
fn read_stat(to: OsdId, object: &ObjectId, transfer: u64, at: &Interval, sh: &mut Shared) {
    let read = Read::Stat(key::store_key(at.pg, object));
    let purpose = Purpose::PushRead {
        to,
        object: object.clone(),
        transfer,
        what: PushRead::Stat,
    };
    at.read(sh, read, purpose);
}

/// The version in an object's attributes.
pub(super) fn version_of(stat: &ObjectStat) -> Version {
    stat.attrs
        .get(nacre_object::VERSION_ATTR)
        .map(|bytes| nacre_object::version_of(bytes).0)
        .unwrap_or_default()
}
