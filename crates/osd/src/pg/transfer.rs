//! Whole objects from one member to another, in parts.
//!
//! ```text
//!  sender    Stat ─▶ (data, omap) ─▶ Push 0 ─▶ … wait … ─▶ (data, omap) ─▶ Push 1 (last)
//!  receiver          part 0 of several: into the incoming area; the last one renames it into place
//!            ◀─ PushAck n ─ when part n is durable
//! ```
//! One part is under way per object and receiver; a part that is not acknowledged is sent again, a
//! part that came already is acknowledged again. A receiver that has the whole object does not
//! remember how it came: if the last acknowledgements are lost, it is sent from the beginning. The
//! object does not change meanwhile: at a primary it is held, at another member the primary lets
//! nobody write what it misses. Parts of two transfers need not be cut at the same places: options
//! change, and omaps are read in pages whose length depends on what the store holds where. So a
//! transfer has a number, and a receiver that is sent an object from the beginning takes it from
//! the beginning. Attributes are taken with the first part; the last part makes the object appear,
//! whole, together with the note that it is no longer missing.

use super::local::Ops;
use super::{Awaited, ByObject, Pg};
use crate::key;
use crate::room::UPDATE_BESIDE;
use crate::shared::Shared;
use bytes::Bytes;
use nacre_store::{ObjectKey, ObjectStat, Op, Read, ReadError, ReadReply};
use nacre_types::{Name, ObjectId, OsdId, Time, Version};
use nacre_wire::msg::replication::{Pull, Push, PushAck};
use nacre_wire::{Message, Payload};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of omap of one part.
const OMAP_BYTES: usize = 1 << 20;

/// A part that was sent again so often without an answer may be one that its receiver no longer
/// remembers, or of a version that is over: an update that was under way when the transfer began
/// has been ordered since, and its receiver knows what it misses now.
const REPEATS_MAX: u32 = 2;
/// See [`Outgoing::patience`]: half a minute.
const PATIENCE_MAX: u32 = 64;

/// Which of a part's reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushRead {
    /// Attributes and size.
    Stat,
    /// Data.
    Data,
    /// Omap.
    Omap,
}

/// An object on its way out.
#[derive(Debug)]
struct Outgoing {
    /// Its number: larger than those that this sender has begun before, in earlier lives too.
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
    /// How often the part under way was sent again.
    repeats: u32,
    /// How often it may be, before the object is sent from the beginning: each time twice as
    /// often, or a store that takes longer for a part than that would never have a whole
    /// object.
    patience: u32,
    /// Whether our own queue holds the object for this.
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

/// An object on its way in.
#[derive(Debug)]
struct Incoming {
    from: OsdId,
    transfer: u64,
    version: Version,
    /// The part that is to come next.
    next: u32,
    /// Parts durable here.
    durable: u32,
}

impl Incoming {
    fn is_of(&self, from: OsdId, push: &Push) -> bool {
        (self.from, self.transfer, self.version) == (from, push.transfer, push.version)
    }
}

/// All objects on their way.
#[derive(Debug, Default)]
pub struct Transfers {
    outgoing: BTreeMap<(OsdId, ObjectId), Outgoing>,
    incoming: ByObject<Incoming>,
    /// Of these the incoming area has something.
    staged: BTreeSet<ObjectId>,
    begun: u64,
}

impl Transfers {
    /// Whether something has to be sent again if it is not acknowledged.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.outgoing.is_empty()
    }
    /// Whether the object is on its way to the member.
    #[must_use]
    pub fn is_outgoing(&self, to: OsdId, object: &ObjectId) -> bool {
        self.outgoing.contains_key(&(to, object.clone()))
    }
    /// The number of a transfer that begins now.
    pub(super) fn number(&mut self, now: Time) -> u64 {
        self.begun = now.0.max(self.begun + 1);
        self.begun
    }
    /// Parts that the member has of what is on its way to it.
    pub(super) fn parts_out(&self, to: OsdId) -> u64 {
        self.outgoing
            .iter()
            .filter(|((member, _), _)| *member == to)
            .map(|(_, it)| u64::from(it.part))
            .sum()
    }
    /// How many hold their object.
    pub(super) fn holds(&self) -> usize {
        self.outgoing
            .values()
            .filter(|outgoing| outgoing.holds)
            .count()
    }
    /// What of the object came here in parts is of no use any more, or has been put into its place.
    pub(super) fn unstage(&mut self, object: &ObjectId) -> bool {
        self.incoming.swap_remove(object);
        self.staged.remove(object)
    }
    /// Who is being sent the object.
    fn receivers_of(&self, object: &ObjectId) -> Vec<OsdId> {
        self.outgoing
            .keys()
            .filter(|(_, of)| of == object)
            .map(|(to, _)| *to)
            .collect()
    }
    /// How many are on their way to members of whom this is so.
    pub fn outgoing_to(&self, is_so: impl Fn(OsdId) -> bool) -> usize {
        self.outgoing.keys().filter(|(to, _)| is_so(*to)).count()
    }
    /// Whether anything is on its way to the member.
    pub(super) fn sends_to(&self, to: OsdId) -> bool {
        self.outgoing_to(|osd| osd == to) > 0
    }
}

impl Pg {
    /// Nothing of what is on its way arrives any more. What came of it takes no room for longer:
    /// nobody would take it away before the daemon's next start.
    pub(super) fn end_transfers(&mut self, sh: &mut Shared) {
        let staged = std::mem::take(&mut self.transfers).staged;
        if !staged.is_empty() {
            let pg = self.id();
            let ops = staged
                .iter()
                .map(|object| Op::Remove(key::incoming_key(pg, object)))
                .collect();
            sh.submit(pg, self.interval.since, ops, Awaited::Nothing);
        }
    }

    /// The object changes: whoever is sent it from here no longer needs it as it was, or asks
    /// again. (Its receiver had it from somebody else, and it was written anew, shorter: parts
    /// without data followed each other for ever, as fast as they were acknowledged. Simulator,
    /// seed 2227.)
    pub(super) fn end_outdated(&mut self, object: &ObjectId, sh: &mut Shared) {
        for to in self.transfers.receivers_of(object) {
            self.end_outgoing(to, object, sh);
        }
    }

    /// Nothing is sent to the member any more.
    pub(super) fn stop_sending_to(&mut self, to: OsdId, sh: &mut Shared) {
        let all = self.transfers.outgoing.keys().filter(|(osd, _)| *osd == to);
        let objects: Vec<ObjectId> = all.map(|(_, object)| object.clone()).collect();
        for object in objects {
            self.end_outgoing(to, &object, sh);
        }
    }

    /// Members that lack the object are no longer sent it, since it is about to change: all of them
    /// if it is to be deleted, otherwise those that nobody waits for.
    pub(super) fn stop_pushing(&mut self, object: &ObjectId, all: bool, sh: &mut Shared) {
        for to in self.transfers.receivers_of(object) {
            if self.lacks(to, object) && (all || !self.is_waited_for(to, sh)) {
                self.end_outgoing(to, object, sh);
            }
        }
    }

    /// Begins to send an object at a version. The caller knows that it is here.
    pub(super) fn push_object(
        &mut self,
        to: OsdId,
        object: &ObjectId,
        version: Version,
        sh: &mut Shared,
    ) {
        if self.transfers.is_outgoing(to, object) {
            return;
        }
        let transfer = self.begin_outgoing(to, object, version, sh.now).transfer;
        self.read_stat(to, object, transfer, sh);
    }

    /// Tells a member that an object does not exist.
    pub(super) fn push_absence(
        &mut self,
        to: OsdId,
        object: &ObjectId,
        version: Version,
        sh: &mut Shared,
    ) {
        if self.transfers.is_outgoing(to, object) {
            return;
        }
        let mut push = self.part(object, version, 0);
        push.absent = true;
        push.last = true;
        let retry_at = sh.now + sh.config.timing.retry_interval;
        let outgoing = self.begin_outgoing(to, object, version, sh.now);
        push.transfer = outgoing.transfer;
        sh.send(to, Message::Push(push.clone(), Payload::new()));
        outgoing.omap_done = true;
        outgoing.sent = Some((push, Payload::new()));
        outgoing.retry_at = retry_at;
    }

    /// Notes an object as on its way; a primary's own queue holds it meanwhile.
    fn begin_outgoing(
        &mut self,
        to: OsdId,
        object: &ObjectId,
        version: Version,
        now: Time,
    ) -> &mut Outgoing {
        let holds = self.primary().is_some_and(|primary| {
            primary.objects.get(object).held += 1;
            true
        });
        let outgoing = Outgoing::new(self.transfers.number(now), version, holds);
        self.transfers
            .outgoing
            .entry((to, object.clone()))
            .or_insert(outgoing)
    }

    fn part(&self, object: &ObjectId, version: Version, part: u32) -> Push {
        Push {
            pg: self.id(),
            interval: self.interval.since,
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

    /// A transfer begins with what the object is.
    fn read_stat(&self, to: OsdId, object: &ObjectId, transfer: u64, sh: &mut Shared) {
        let read = Read::Stat(key::store_key(self.id(), object));
        let awaited = Awaited::PushRead {
            to,
            object: object.clone(),
            transfer,
            what: PushRead::Stat,
        };
        sh.read(self.id(), self.interval.since, read, awaited);
    }

    fn read_part(&self, to: OsdId, object: &ObjectId, sh: &mut Shared) {
        let Some(outgoing) = self.transfers.outgoing.get(&(to, object.clone())) else {
            return;
        };
        let store_key = key::store_key(self.id(), object);
        let transfer = outgoing.transfer;
        let awaited = |what| Awaited::PushRead {
            to,
            object: object.clone(),
            transfer,
            what,
        };
        let (id, since) = (self.id(), self.interval.since);
        if outgoing.data.is_none() {
            let length = sh.config.limits.push_bytes;
            let read = Read::Data {
                object: store_key.clone(),
                offset: outgoing.offset,
                length,
            };
            sh.read(id, since, read, awaited(PushRead::Data));
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
            sh.read(id, since, read, awaited(PushRead::Omap));
        }
    }

    pub(super) fn on_push_read(
        &mut self,
        to: OsdId,
        object: &ObjectId,
        (transfer, what): (u64, PushRead),
        reply: Result<ReadReply, ReadError>,
        sh: &mut Shared,
    ) {
        let (pg, interval) = (self.id(), self.interval.since);
        let key = (to, object.clone());
        // An answer may be of another transfer of the object, that ended: of what it was then.
        let of_this = |outgoing: &&mut Outgoing| outgoing.transfer == transfer;
        let Some(outgoing) = self.transfers.outgoing.get_mut(&key).filter(of_this) else {
            return;
        };
        let version = outgoing.version;
        match (what, reply) {
            (PushRead::Stat, Ok(ReadReply::Stat(Some(stat))))
                if nacre_object::Context::of(Some(stat.clone())).version == version =>
            {
                // What is known to be empty is not read.
                if stat.size == 0 {
                    outgoing.data = Some(Payload::new());
                }
                outgoing.stat = Some(stat);
                self.read_part(to, object, sh);
                return;
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
                // Not here at that version, or damaged: somebody else must have it.
                let damaged = !matches!(reply, Ok(_) | Err(ReadError::NotFound));
                self.end_outgoing(to, object, sh);
                if self.as_primary().is_some() {
                    self.on_push_failed(to, object, version, damaged, sh);
                    return;
                }
                if damaged && let Some(member) = self.member() {
                    member.damaged.insert(object.clone(), version);
                }
                let (part, object) = (u32::MAX, object.clone());
                let ack = PushAck {
                    pg,
                    interval,
                    object,
                    version,
                    part,
                    have: false,
                    damaged,
                    transfer: 0,
                };
                sh.send(to, Message::PushAck(ack));
                return;
            }
        }
        self.send_part(to, object, sh);
    }

    fn send_part(&mut self, to: OsdId, object: &ObjectId, sh: &mut Shared) {
        let key = (to, object.clone());
        let Some(outgoing) = self.transfers.outgoing.get(&key) else {
            return;
        };
        let (Some(data), Some((omap, more)), Some(stat)) =
            (&outgoing.data, &outgoing.omap, &outgoing.stat)
        else {
            return;
        };
        let mut push = self.part(object, outgoing.version, outgoing.part);
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
        let outgoing = self.transfers.outgoing.get_mut(&key).expect("just seen");
        outgoing.offset = end;
        outgoing.omap_done = !more;
        outgoing.omap_after = last_key.or(outgoing.omap_after.take());
        outgoing.retry_at = sh.now + sh.config.timing.retry_interval;
        sh.send(to, Message::Push(push.clone(), data.clone()));
        outgoing.sent = Some((push, data));
        sh.counters.pushed += 1;
    }

    /// A part is durable at the receiver, or a member cannot send what we asked for.
    pub fn on_push_ack(&mut self, from: OsdId, message: &PushAck, sh: &mut Shared) {
        if !self.is_current(message.interval) {
            return;
        }
        if !message.have {
            if self.as_primary().is_some() {
                self.on_pull_failed(from, message, sh);
            }
            return;
        }
        let key = (from, message.object.clone());
        let Some(outgoing) = self.transfers.outgoing.get_mut(&key) else {
            return;
        };
        let Some((push, _)) = &outgoing.sent else {
            return;
        };
        // An older program does not say of which transfer it has the part.
        let other = message.transfer != push.transfer && message.transfer != 0;
        if other || message.part != push.part || message.version != push.version {
            return;
        }
        if push.last {
            let version = outgoing.version;
            self.end_outgoing(from, &message.object, sh);
            if self.as_primary().is_some() {
                self.on_pushed(from, &message.object, version, sh);
            }
            return;
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
            self.send_part(from, &object, sh);
        } else {
            self.read_part(from, &object, sh);
        }
    }

    pub(super) fn end_outgoing(&mut self, to: OsdId, object: &ObjectId, sh: &mut Shared) {
        let Some(outgoing) = self.transfers.outgoing.remove(&(to, object.clone())) else {
            return;
        };
        if outgoing.holds {
            self.release_object(object, sh);
        }
    }

    /// Somebody misses an object that we have.
    pub fn on_pull(&mut self, from: OsdId, message: &Pull, sh: &mut Shared) {
        if self.is_current(message.interval) && self.interval.acting.first() == Some(&from) {
            self.push_object(from, &message.object, message.version, sh);
        }
    }

    /// A part of an object arrived.
    pub fn on_push(&mut self, from: OsdId, push: Push, payload: Payload, sh: &mut Shared) {
        let me = sh.me();
        let allowed = self.interval.acting.first() == Some(&from)
            || self.interval.acting.first() == Some(&me);
        if !self.is_current(push.interval) || !allowed {
            return;
        }
        if let Some(member) = self.member()
            && member.adopted.is_none()
        {
            return;
        }
        let round = self.member().map_or(0, |member| member.round);
        let undone = self.awaits_undone(&push.object, push.version);
        if undone && push.absent {
            self.on_undone_failed(from, &push.object, sh);
            return;
        }
        let wanted = self
            .local
            .missing
            .get(&push.object)
            .map(|missing| missing.need);
        let wanted = if undone { Some(push.version) } else { wanted };
        let backfilled = self.local.backfill.is_some() && !self.local.inside_cursor(&push.object);
        if wanted.is_none() && backfilled && push.transfer < round && push.transfer > 0 {
            // Late, of an earlier comparison: what is in its place may be newer, and counted on.
            return;
        }
        // What we said is damaged is taken although our log says that it is here; later copies of
        // this message are not.
        let damaged = wanted.is_none()
            && push.part == 0
            && (self.local.lost.get(&push.object) == Some(&push.version)
                || self
                    .member()
                    .is_some_and(|member| member.damaged.get(&push.object) == Some(&push.version)));
        if wanted.is_some_and(|need| need != push.version)
            || (wanted.is_none() && !backfilled && !damaged)
        {
            // It came already, and the acknowledgement was lost; or it is of no use here. Every
            // part is acknowledged: who sends does not know that the last would do. What is newer
            // than our log has not come: its entry, which says that it is missing, was
            // lost or overtaken.
            if wanted.is_none() && push.version <= self.local.log.head() {
                self.send_push_ack(
                    from,
                    &push.object,
                    push.version,
                    (push.transfer, push.part),
                    sh,
                );
            }
            return;
        }
        if self.delete_by_first_part(&push, undone, sh) {
            return;
        }
        let Push {
            version, transfer, ..
        } = push;
        if push.part == 0
            && self
                .transfers
                .incoming
                .get(&push.object)
                .is_none_or(|had| !had.is_of(from, &push))
        {
            // Also if its number is lower: its sender's machine may have started anew. A late one
            // costs a beginning.
            let incoming = Incoming {
                from,
                transfer,
                version,
                next: 0,
                durable: 0,
            };
            self.transfers
                .incoming
                .insert(push.object.clone(), incoming);
        }
        let Some(incoming) = self.transfers.incoming.get_mut(&push.object) else {
            return;
        };
        if !incoming.is_of(from, &push) {
            return;
        }
        if push.part != incoming.next {
            if push.part < incoming.durable {
                self.send_push_ack(from, &push.object, version, (transfer, push.part), sh);
            }
            return;
        }
        let small: usize = push
            .omap
            .iter()
            .map(|(key, value)| key.len() + value.len() + 8)
            .sum();
        let bytes = (nacre_wire::msg::payload_len(&payload) + small) as u64 + UPDATE_BESIDE;
        if !push.absent && !sh.take_part(bytes) {
            // As if it had been lost: it comes again, and finds room or does not. A store that is
            // filled to its end cannot even delete.
            return;
        }
        incoming.next += 1;
        if damaged && let Some(member) = self.member() {
            // Not before it is taken: without this note the next copy of this message would be
            // acknowledged as one that came already.
            member.damaged.swap_remove(&push.object);
        }
        let mut ops = Ops::new();
        if damaged && !push.last {
            self.local
                .miss(&push.object, push.version, push.version, &mut ops);
        }
        self.store_part(&push, payload, undone, &mut ops);
        let Push {
            object, part, last, ..
        } = push;
        let awaited = Awaited::PartStored {
            from,
            object,
            version,
            part: (transfer, part),
            last,
        };
        sh.submit(self.id(), self.interval.since, ops, awaited);
    }

    /// `undone`: it is a part of a replica with undone updates (`redo.rs`).
    fn store_part(&mut self, push: &Push, payload: Payload, undone: bool, ops: &mut Ops) {
        let place = key::store_key(self.id(), &push.object);
        if push.absent {
            self.drop_object(&push.object, ops);
            return;
        }
        // What fits into one part goes straight into its place; otherwise it is not seen before it
        // is whole. A replica with undone updates takes its place when all its parts are here, with
        // its note: without that, its clones would be orphans.
        let single = push.part == 0 && push.last && !undone;
        let staging = key::incoming_key(self.id(), &push.object);
        if !single {
            self.transfers.staged.insert(push.object.clone());
        } else if self.transfers.staged.remove(&push.object) {
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
                    self.transfers.staged.remove(&push.object);
                    ops.push(Op::Rename {
                        from: target,
                        to: place,
                    });
                }
                self.local.found(&push.object, ops);
            }
        }
    }

    pub(super) fn on_part_stored(
        &mut self,
        from: OsdId,
        object: &ObjectId,
        version: Version,
        part: (u64, u32),
        last: bool,
        sh: &mut Shared,
    ) {
        if let Some(incoming) = self.transfers.incoming.get_mut(object)
            && (incoming.from, incoming.transfer) == (from, part.0)
        {
            incoming.durable = incoming.durable.max(part.1 + 1);
        }
        self.send_push_ack(from, object, version, part, sh);
        if last {
            self.transfers.incoming.swap_remove(object);
            sh.counters.recovered += 1;
            if self.as_primary().is_some() && !self.on_undone_fetched(object, version, sh) {
                self.on_recovered_here(object, sh);
            }
        }
    }

    /// `part`: of which transfer, and which.
    fn send_push_ack(
        &self,
        to: OsdId,
        object: &ObjectId,
        version: Version,
        part: (u64, u32),
        sh: &mut Shared,
    ) {
        let (pg, interval, object) = (self.id(), self.interval.since, object.clone());
        let (transfer, part) = part;
        let ack = PushAck {
            pg,
            interval,
            object,
            version,
            part,
            have: true,
            damaged: false,
            transfer,
        };
        sh.send(to, Message::PushAck(ack));
    }

    pub(super) fn retry_transfers(&mut self, sh: &mut Shared) {
        let (now, after) = (sh.now, sh.config.timing.retry_interval);
        let mut again = Vec::new();
        for ((to, object), outgoing) in &mut self.transfers.outgoing {
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
            self.begin_again(to, &object, sh);
        }
    }

    /// Sends an object from its beginning; it stays held meanwhile.
    fn begin_again(&mut self, to: OsdId, object: &ObjectId, sh: &mut Shared) {
        let transfer = self.transfers.number(sh.now);
        let Some(outgoing) = self.transfers.outgoing.get_mut(&(to, object.clone())) else {
            return;
        };
        let patience = (outgoing.patience * 2).min(PATIENCE_MAX);
        *outgoing = Outgoing {
            patience,
            ..Outgoing::new(transfer, outgoing.version, outgoing.holds)
        };
        self.read_stat(to, object, transfer, sh);
    }
}

/// The version in an object's attributes.
pub(super) fn version_of(stat: &ObjectStat) -> Version {
    stat.attrs
        .get(nacre_object::VERSION_ATTR)
        .map(|bytes| nacre_object::version_of(bytes).0)
        .unwrap_or_default()
}
