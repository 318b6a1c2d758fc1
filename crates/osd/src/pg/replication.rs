//! Updates from the primary to everyone who holds the group (CEPH-45).
//!
//! ```text
//!  client ─op▶ primary ──Replicate──▶ members, backfill targets
//!                 │ submit                 │ submit
//!                 ▼ Logged                 ▼ Logged
//!  client ◀reply── once logged here and acknowledged by every acting member ◀──ReplicateAcks──
//! ```
//! One log write carries entry and data. Updates flow without waiting for each other; they commit
//! in order. Backfill targets get every entry, and the data of objects inside their cursor; nobody
//! waits for them. What is not acknowledged is sent again by timer: a member takes entries only in
//! order, so a gap shows.
//!
//! What belongs together (a clone and the write that wants it) is ordered one after the other and
//! goes into one transaction here; members take it one by one.
//!
//! A client may ask to hear when its update is applied in memory everywhere (CEPH-46): members then
//! say so (`ReplicateApplied`) as soon as their stores do, before the log's flush, and the primary
//! passes it on (`OpApplied`). The answer proper comes when it is durable.

use super::local::Ops;
use super::object::Pending;
use super::peering::Primary;
use super::{Awaited, ByObject, Pg, Role};
use crate::room::UPDATE_BESIDE;
use crate::shared::Shared;
use crate::{Mutant, key, mutant};
use nacre_object::evaluate::Update;
use nacre_object::{Context, VERSION_ATTR, version_value};
use nacre_role::Output;
use nacre_store::{ObjectKey, Op};
use nacre_types::{Entity, ObjectId, OsdId, PgId, Time, Version};
use nacre_wire::msg::PayloadCursor;
use nacre_wire::msg::client::{OpApplied, OpReply, OpRequest, RequestId, SubReply, op_flag};
use nacre_wire::msg::replication::{
    Effect, Logged, ReplicaUpdate, ReplicateAcks, ReplicateApplied,
};
use nacre_wire::{Message, Payload, Record, RecordFields};

/// A reply, ready to go.
#[derive(Debug)]
pub struct Answer {
    /// To whom.
    pub to: Entity,
    /// It.
    pub reply: OpReply,
    /// Its data.
    pub payload: Payload,
    /// The operation, still counted as in hand.
    pub op: Option<Pending>,
}

impl Answer {
    /// Whether the other one answers the same operation of a client.
    fn is_for(&self, other: &Self) -> bool {
        self.reply.request == other.reply.request && self.reply.request.sequence != 0
    }
}

/// An update that is not committed yet.
#[derive(Debug)]
pub struct InFlight {
    /// Its version.
    pub version: Version,
    /// Its object.
    pub object: ObjectId,
    /// What goes out when it is.
    pub answers: Vec<Answer>,
    /// For sending it again.
    pub entry: Record,
    /// For sending it again.
    pub effects: Vec<Effect>,
    /// Everyone else gets the entry only.
    pub entry_only: bool,
    /// For sending it again.
    pub payload: Payload,
    /// Members that get it without data: they lacked the object when it was ordered. It is sent
    /// again as it was sent first, whatever they have by then.
    pub without: Vec<OsdId>,
    /// When it was last sent.
    pub sent: Time,
    /// Its client wants to hear when it is applied in memory everywhere, and has not yet.
    pub early: bool,
    /// What it takes of members' room, in bytes ([`crate::room`]).
    pub room: u64,
}

/// The state of a member that is not primary.
#[derive(Debug, Default)]
pub struct Member {
    /// Whether the primary's log is ours: not yet, in memory, durably.
    pub adopted: Option<bool>,
    /// Our log is durable up to here.
    pub logged: Version,
    /// The primary wants to hear when we have applied what it sent, up to here.
    tell_applied: Version,
    /// The newest comparison of a range that we were asked for. After we have started over, none
    /// that began before counts.
    pub(super) round: u64,
    /// Copies at these versions that we could not read and that the primary may replace.
    pub(super) damaged: ByObject<Version>,
}

/// A change of an object that has no place in the log yet.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) object: ObjectId,
    pub(super) before: Context,
    /// The object afterwards, but for its version.
    pub(super) context: Context,
    /// In order, without the version attribute.
    pub(super) effects: Vec<Effect>,
    pub(super) payload: Payload,
    pub(super) request: RequestId,
    pub(super) answered_below: u64,
    pub(super) results: Vec<SubReply>,
}

/// A change that has its place in the log.
#[derive(Debug)]
pub(super) struct Ordered {
    pub(super) update: InFlight,
    context: Context,
    watch_change: super::watch::Change,
}

impl Ordered {
    /// An update whose outcome is here already, and comes to the others by recovery.
    pub(super) fn without_data(update: InFlight, context: &Context) -> Self {
        let version = if update.entry.deleted() {
            Version::NONE
        } else {
            update.version
        };
        Self {
            update,
            context: Context {
                version,
                ..context.clone()
            },
            watch_change: Default::default(),
        }
    }
}

impl InFlight {
    /// An update that nobody waits for yet.
    pub(super) fn new(entry: Record, effects: Vec<Effect>, payload: Payload, now: Time) -> Self {
        Self {
            version: entry.version(),
            object: entry.object().clone(),
            answers: Vec::new(),
            room: room_of(&effects, &payload),
            entry_only: entry.deleted() && effects.is_empty(),
            entry,
            effects,
            payload,
            without: Vec::new(),
            sent: now,
            early: false,
        }
    }

    /// One whose outcome is here, and which brings nobody anything but the entry.
    pub(super) fn without_data(entry: Record, now: Time) -> Self {
        Self {
            entry_only: true,
            ..Self::new(entry, Vec::new(), Payload::new(), now)
        }
    }

    /// Whether the member has the object as it should be with this update, also if it lacked it.
    /// (Others than those that act are brought it.)
    pub(super) fn is_anew_at(&self, osd: OsdId, acting: &[OsdId]) -> bool {
        wipes(&self.effects) && acting.contains(&osd)
    }

    /// What it is a clone of.
    pub(super) fn clone_source(&self) -> Option<ObjectId> {
        clone_source(&self.object, &self.effects)
    }
}

/// The object that these effects on another of its name clone.
fn clone_source(object: &ObjectId, effects: &[Effect]) -> Option<ObjectId> {
    let clone = |effect: &Effect| {
        if let Effect::CloneFrom { snapshot } = effect {
            Some(*snapshot)
        } else {
            None
        }
    };
    effects
        .iter()
        .find_map(clone)
        .map(|snapshot| nacre_object::snaps::at(object, snapshot))
}

/// Whether these effects make an object anew, whatever there is: who lacks it needs nothing else.
fn wipes(effects: &[Effect]) -> bool {
    let clones = |effect: &Effect| matches!(effect, Effect::CloneFrom { .. });
    matches!(effects.first(), Some(Effect::Remove {})) && !effects.iter().any(clones)
}

/// Bytes that an update takes of a store, about: no less than what the store counts for the usual
/// ones. Attributes and entries of omaps are records of its index, of which a byte takes more than
/// one.
pub(super) fn room_of(effects: &[Effect], payload: &Payload) -> u64 {
    let records = nacre_store::INDEX_COST * nacre_object::evaluate::small_bytes(effects) as u64;
    nacre_wire::msg::payload_len(payload) as u64 + records + UPDATE_BESIDE
}

/// What gives an object the version of its last update, and says when that was.
pub(super) fn version_attr(object: ObjectKey, entry: &Record) -> Op {
    let value = version_value(entry.version(), entry.modified_ms());
    Op::SetAttr {
        object,
        name: bytes::Bytes::from_static(VERSION_ATTR),
        value,
    }
}

/// An update as store operations.
fn apply_update(
    pg: PgId,
    entry: &Record,
    effects: &[Effect],
    payload: Payload,
    ops: &mut Ops,
) -> Option<()> {
    let mut data = PayloadCursor::new(payload);
    // Made once: it takes the hash of a name.
    let key = key::store_key(pg, entry.object());
    let object = || key.clone();
    for effect in effects {
        ops.push(match effect {
            Effect::Touch {} => Op::Touch(object()),
            Effect::Write { offset, length } => Op::Write {
                object: object(),
                offset: *offset,
                data: data.take(usize::try_from(*length).ok()?).ok()?,
            },
            Effect::Zero { offset, length } => Op::Zero {
                object: object(),
                offset: *offset,
                length: *length,
            },
            Effect::Truncate { size } => Op::Truncate {
                object: object(),
                size: *size,
            },
            Effect::Remove {} => Op::Remove(object()),
            Effect::SetAttr { name, value } => {
                let name = bytes::Bytes::copy_from_slice(name.as_bytes());
                Op::SetAttr {
                    object: object(),
                    name,
                    value: value.clone(),
                }
            }
            Effect::RemoveAttr { name } => Op::RemoveAttr {
                object: object(),
                name: bytes::Bytes::copy_from_slice(name.as_bytes()),
            },
            Effect::OmapSet { entries } => Op::OmapSet {
                object: object(),
                entries: entries.clone(),
            },
            Effect::OmapRemove { keys } => Op::OmapRemove {
                object: object(),
                keys: keys.clone(),
            },
            Effect::OmapClear {} => Op::OmapClear(object()),
            Effect::CloneFrom { snapshot } => Op::Clone {
                from: key::store_key(pg, &nacre_object::snaps::at(entry.object(), *snapshot)),
                to: object(),
            },
        });
    }
    if !entry.deleted() {
        ops.push(version_attr(key, entry));
    }
    Some(())
}

impl Pg {
    pub(super) fn member(&mut self) -> Option<&mut Member> {
        match &mut self.role {
            Role::Member(member) => Some(member),
            _ => None,
        }
    }

    /// Our log is durable up to here.
    const fn logged(&self) -> Version {
        match &self.role {
            Role::Member(member) => member.logged,
            Role::Primary(primary) => primary.logged,
            Role::Stray { .. } => Version::NONE,
        }
    }

    /// Orders an operation's update and sends it everywhere; a clone of the object as it was goes
    /// before it, if a snapshot wants one.
    pub(super) fn begin_update(
        &mut self,
        op: Pending,
        before: Context,
        update: Update,
        sh: &mut Shared,
    ) {
        let Update {
            mut effects,
            payload,
            mut context,
            results,
        } = update;
        let mut ops = Ops::new();
        let clone_bytes = op.clone_bytes.unwrap_or(0);
        let clone = self.preserve(&op, &before, &mut context, &mut effects, sh);
        let mut clone =
            clone.map(|clone| self.order_clone(&op.request.object, &clone, &before, &mut ops, sh));
        if clone.is_none() && !context.is_stored() && self.is_lacking(&op.request.object, sh) {
            // Nobody needs more than the entry to remove what it has, and who lacks the object can
            // take no more (`unseen.rs`).
            effects.clear();
            sh.counters.borders.deleted_lacking += 1;
        }
        if context.is_stored() {
            // What the primary does by itself changes nothing that people would call the object.
            let by_client = op.is_clients() && op.own.is_none() && op.request.unix_ms > 0;
            context.modified_ms = if by_client {
                op.request.unix_ms
            } else {
                before.modified_ms
            };
        }
        let OpRequest {
            request,
            answered_below,
            flags,
            attempt,
            ref object,
            ..
        } = op.request;
        let object = object.clone();
        let early = flags & op_flag::ACK != 0;
        let reply = OpReply {
            request,
            failure: None,
            version: Version::NONE,
            results: results.clone(),
            attempt,
        };
        let change = Change {
            object,
            before,
            context,
            effects,
            payload,
            request,
            answered_below,
            results,
        };
        let mut ordered = self.order(change, &mut ops, sh);
        if self.local.dedup.forgot() && op.request.dated.process == sh.config.process {
            self.local
                .dedup
                .dated(&request, Time(op.request.dated.reading));
        }
        let reply = OpReply {
            version: ordered.update.version,
            ..reply
        };
        let answer = Answer {
            to: op.from,
            reply,
            payload: Payload::new(),
            op: Some(op),
        };
        (ordered.update.answers, ordered.update.early) = (vec![answer], early);
        // What is cloned is taken with the first of the two updates.
        let first = clone.as_mut().unwrap_or(&mut ordered);
        first.update.room += clone_bytes;
        let all: Vec<Ordered> = clone.into_iter().chain([ordered]).collect();
        self.launch(all, ops, sh);
        sh.counters.writes += 1;
        let answered = &mut self.primary().expect("only primaries update").answered;
        answered.executed(&request);
        answered.confirm(&request, answered_below);
    }

    /// Gives a change its place in the log, here: [`Self::launch`] is to follow, with all that was
    /// ordered, in order.
    pub(super) fn order(&mut self, change: Change, ops: &mut Ops, sh: &Shared) -> Ordered {
        let Change {
            object,
            before,
            mut context,
            effects,
            payload,
            request,
            answered_below,
            results,
        } = change;
        let version = self.local.log.head().next_in(self.interval.since);
        let totals = self.totals_after(&object, before.stored_size(), context.stored_size());
        let deleted = !context.is_stored();
        context.damaged = false;
        context.version = if deleted { Version::NONE } else { version };
        let watch_change = super::watch::Change::between(&before.claims, &context.claims);
        let modified_ms = if deleted { 0 } else { context.modified_ms };
        let prior = before.version;
        let fields = RecordFields {
            version,
            prior,
            deleted,
            object,
            request,
            answered_below,
            results,
            totals,
            modified_ms,
        };
        let entry = Record::new(fields);
        apply_update(self.id(), &entry, &effects, payload.clone(), ops)
            .expect("our own effects fit their payload");
        if deleted && effects.is_empty() {
            self.drop_object(entry.object(), ops);
        }
        self.local.append(entry.clone(), sh.now, ops);
        self.local.lost_by_clone(&entry, &effects, ops);
        Ordered {
            update: InFlight::new(entry, effects, payload, sh.now),
            context,
            watch_change,
        }
    }

    /// Makes what was ordered durable here, in one transaction, and sends it everywhere.
    pub(super) fn launch(&mut self, mut ordered: Vec<Ordered>, mut ops: Ops, sh: &mut Shared) {
        let last = ordered
            .last()
            .expect("something was ordered")
            .update
            .version;
        let trim = self.trim_point(sh);
        if trim > self.local.log.tail() {
            let here = self.interval.acting.len() >= self.interval.size;
            sh.counters.borders.log_short += u64::from(here);
            sh.counters.borders.log_long += u64::from(!here);
        }
        self.local.trim(trim, &mut ops);
        self.local.forget(&sh.config.limits, &mut ops);
        let me = sh.me();
        let receivers: Vec<OsdId> = self.interval.receivers().filter(|osd| *osd != me).collect();
        for Ordered { update, .. } in &mut ordered {
            self.miss_clone(update);
            let acting = &self.interval.acting;
            let lacks = |osd: &&OsdId| {
                self.lacks(**osd, &update.object) && !update.is_anew_at(**osd, acting)
            };
            update.without = receivers.iter().filter(lacks).copied().collect();
            for osd in &receivers {
                self.send_update(*osd, update, trim, sh);
            }
        }
        for Ordered { update, .. } in &ordered {
            self.miss_newer(update);
            if update.entry.deleted() && update.effects.is_empty() {
                self.nobody_lacks(&update.object);
            }
            sh.under_way.begin(&self.interval.acting, update.room);
        }
        // Commits come in order: the last one's stands for all.
        sh.submit(self.id(), self.interval.since, ops, Awaited::Logged(last));
        let primary = self.primary().expect("only primaries update");
        for Ordered {
            update,
            context,
            watch_change,
        } in ordered
        {
            let object = &update.object;
            // It may have been written anew from end to end.
            primary.damage.may_be_whole(object);
            primary.recovery.may_have(object);
            primary.backfill.note(object);
            let state = primary.objects.get(object);
            state.context = Some(context);
            state.updates += 1;
            primary
                .watching
                .note(object, watch_change, update.version, sh.now);
            primary.in_flight.push_back(update);
        }
    }

    fn send_update(&self, to: OsdId, update: &InFlight, trim: Version, sh: &mut Shared) {
        let primary = self.as_primary().expect("only primaries send updates");
        let peer = primary.peers.get(&to);
        let cursor = peer.and_then(|peer| peer.backfill.as_ref());
        // Backfill brings what lies beyond the target's cursor, recovery what it lacks, or has lost
        // since.
        let lost = || !self.interval.acting.contains(&to) && self.lacks(to, &update.object);
        let lacks = update.without.contains(&to) || lost();
        let has = key::is_before(&update.object, cursor) && !lacks && !update.entry_only;
        let payload = if has {
            update.payload.clone()
        } else {
            Payload::new()
        };
        let message = ReplicaUpdate {
            pg: self.id(),
            interval: self.interval.since,
            entry: update.entry.clone(),
            effects: if has {
                update.effects.clone()
            } else {
                Vec::new()
            },
            entry_only: !has,
            payload: nacre_wire::msg::payload_len(&payload) as u64,
            committed: primary.committed,
            trim,
            tell_applied: update.early,
            takes: update.room,
        };
        sh.update_later(to, message, payload);
    }

    /// Up to where the log may be forgotten: enough stays for members that are away, at most so
    /// much altogether.
    fn trim_point(&self, sh: &Shared) -> Version {
        let limits = &sh.config.limits;
        let all_here = self.interval.acting.len() >= self.interval.size && self.is_clean();
        let keep = if all_here {
            limits.log_entries_min
        } else {
            limits.log_entries_max
        };
        let entries = self.local.log.entries();
        // In batches: the fixed part is rewritten at every trim.
        let slack = if all_here { keep } else { keep / 4 }.max(1);
        let long = self.local.log.bytes() > limits.log_bytes;
        if entries.len() < keep + slack && !long {
            return self.local.log.tail();
        }
        let by_count = entries
            .len()
            .checked_sub(keep + 1)
            .map_or(self.local.log.tail(), |last| entries[last].version());
        let candidate = if long {
            by_count.max(self.local.log.beyond(limits.log_bytes / 4 * 3))
        } else {
            by_count
        };
        candidate
            .min(
                self.as_primary()
                    .map_or(Version::NONE, |primary| primary.committed),
            )
            .max(self.local.log.tail())
    }

    /// An update arrived from the primary.
    pub fn on_replicate(
        &mut self,
        from: OsdId,
        message: ReplicaUpdate,
        payload: Payload,
        sh: &mut Shared,
    ) {
        let ours = self.is_current(message.interval) && self.interval.acting.first() == Some(&from);
        if !ours {
            let (pg, interval, version) = (message.pg, message.interval, message.entry.version());
            if mutant(Mutant::AckIntervalUnchecked) && self.logged().number >= version.number {
                let logged = vec![Logged {
                    pg,
                    interval,
                    version,
                }];
                sh.send(
                    from,
                    Message::ReplicateAcks(ReplicateAcks {
                        logged,
                        nearly_full: false,
                    }),
                );
            }
            return;
        }
        let head = self.local.log.head();
        let Some(member) = self.member().filter(|member| member.adopted.is_some()) else {
            return;
        };
        let ReplicaUpdate {
            entry,
            effects,
            entry_only,
            trim,
            interval,
            tell_applied,
            takes,
            ..
        } = message;
        if entry.version() <= head {
            // Again: if it is durable, the acknowledgement was lost.
            if member.logged >= entry.version() {
                sh.ack_later(self.id());
            }
            return;
        }
        if entry.version().number != head.number + 1 {
            return;
        }
        let mut ops = Ops::new();
        let object = entry.object().clone();
        self.end_outdated(&object, sh);
        let source = clone_source(&object, &effects);
        let lacks = |object: &ObjectId| {
            self.local.missing.contains_key(object) || !self.local.inside_cursor(object)
        };
        let acts = self.interval.acting.contains(&sh.config.id);
        let rewritten = acts && wipes(&effects);
        let needs = !entry_only && !rewritten;
        let absent = (needs && self.local.missing.contains_key(&object)).then_some(&object);
        let absent = absent.or(source.as_ref().filter(|source| lacks(source)));
        // The entry only: recovery brings the object (`redo.rs`). So it does where, outside of the
        // acting set, something was lost before (`catchup.rs`).
        if !acts && !entry_only && !entry.deleted() && !sh.take_part(takes) {
            // As if it had been lost: it is noted as missing (`catchup.rs`), and is brought when
            // there is room.
            return;
        }
        let lost = (entry_only && self.local.inside_cursor(&object)) || (!acts && absent.is_some());
        if lost {
            self.append_lost(&entry, &mut ops);
        } else if let Some(absent) = absent {
            sh.out.push(Output::Halt {
                why: format!(
                    "{}: update of {object} needs {absent}, which is missing here: a bug",
                    self.id()
                ),
            });
            return;
        }
        if rewritten && self.local.missing.contains_key(&object) {
            self.drop_object(&object, &mut ops);
        }
        if !lost
            && !entry_only
            && apply_update(self.id(), &entry, &effects, payload, &mut ops).is_none()
        {
            return;
        }
        let version = entry.version();
        let member = self.member().expect("still");
        if tell_applied {
            member.tell_applied = version;
        }
        // What could not be read is not whole because a part of it was written.
        if entry.deleted() {
            member.damaged.swap_remove(&object);
        } else if let Some(at) = member.damaged.get_mut(&object) {
            *at = version;
        }
        self.local.append(entry.clone(), sh.now, &mut ops);
        self.local.lost_by_clone(&entry, &effects, &mut ops);
        self.local.trim(trim, &mut ops);
        self.local.forget(&sh.config.limits, &mut ops);
        sh.submit(self.id(), interval, ops, Awaited::Logged(version));
        if mutant(Mutant::AckBeforeFlush) {
            self.on_logged(version, sh);
        }
    }

    /// The object of an entry is to be brought by recovery, or gone.
    fn append_lost(&mut self, entry: &Record, ops: &mut Ops) {
        if entry.deleted() {
            self.drop_object(entry.object(), ops);
        } else {
            self.local
                .miss(entry.object(), entry.version(), Version::NONE, ops);
        }
    }

    /// An update is durable here. Commits come in order, so it stands for all before it.
    pub(super) fn on_logged(&mut self, version: Version, sh: &mut Shared) {
        if let Some(member) = self.member() {
            member.logged = member.logged.max(version);
            sh.ack_later(self.id());
        } else if let Some(primary) = self.primary() {
            let before = primary.logged;
            primary.logged = before.max(version);
            self.has_taken(sh.me(), before, version, sh);
            self.advance_committed(sh);
        }
    }

    /// A member has acknowledged the updates after one version up to another.
    fn has_taken(&self, member: OsdId, after: Version, up_to: Version, sh: &mut Shared) {
        let Some(primary) = self
            .as_primary()
            .filter(|_| self.interval.acting.contains(&member))
        else {
            return;
        };
        let known = primary
            .in_flight
            .partition_point(|update| update.version <= after);
        let taken = primary
            .in_flight
            .range(known..)
            .take_while(|update| update.version <= up_to);
        sh.under_way
            .end(member, taken.map(|update| update.room).sum());
    }

    /// The interval is over: whoever has not acknowledged what was ordered will not.
    pub(super) fn forget_under_way(&self, sh: &mut Shared) {
        for (member, bytes) in self.under_way(sh.me()) {
            sh.under_way.end(member, bytes);
        }
    }

    /// Bytes of updates that each acting member has not acknowledged.
    pub(crate) fn under_way(&self, me: OsdId) -> Vec<(OsdId, u64)> {
        let Some(primary) = self.as_primary() else {
            return Vec::new();
        };
        let missing = |member: &OsdId| {
            let acked = primary
                .peers
                .get(member)
                .map_or(Version::NONE, |peer| peer.acked);
            let acked = if *member == me { primary.logged } else { acked };
            let left = primary
                .in_flight
                .iter()
                .filter(|update| update.version > acked);
            (*member, left.map(|update| update.room).sum())
        };
        self.interval.acting.iter().map(missing).collect()
    }

    /// An update is applied in memory here. Updates are applied in order, so it stands for all
    /// before it.
    pub(crate) fn on_applied(&mut self, version: Version, sh: &mut Shared) {
        let (pg, interval) = (self.id(), self.interval.since);
        let primary = self.interval.acting.first().copied();
        if let (Some(member), Some(primary)) = (self.member(), primary) {
            if version <= member.tell_applied {
                sh.send(
                    primary,
                    Message::ReplicateApplied(ReplicateApplied {
                        pg,
                        interval,
                        version,
                    }),
                );
            }
        } else if let Some(primary) = self.primary() {
            primary.applied = version;
            self.tell_applied(sh);
        }
    }

    /// A member has applied everything up to some version.
    pub fn on_replicate_applied(
        &mut self,
        from: OsdId,
        message: &ReplicateApplied,
        sh: &mut Shared,
    ) {
        if !self.is_current(message.interval) {
            return;
        }
        let Some(peer) = self
            .primary()
            .and_then(|primary| primary.peers.get_mut(&from))
        else {
            return;
        };
        peer.applied = peer.applied.max(message.version);
        self.tell_applied(sh);
    }

    /// Tells clients that asked what is applied on the whole acting set.
    fn tell_applied(&mut self, sh: &mut Shared) {
        let me = sh.me();
        let Role::Primary(primary) = &mut self.role else {
            return;
        };
        // Hardly anybody asks, and every update comes by here.
        if !primary.in_flight.iter().any(|update| update.early) {
            return;
        }
        let applied = |osd: &OsdId| match primary.peers.get(osd) {
            _ if *osd == me || mutant(Mutant::AppliedHereTold) => primary.applied,
            Some(peer) => peer.applied.max(peer.acked),
            None => Version::NONE,
        };
        let everywhere = self
            .interval
            .acting
            .iter()
            .map(applied)
            .min()
            .unwrap_or(Version::NONE);
        for update in primary
            .in_flight
            .iter_mut()
            .take_while(|update| update.version <= everywhere)
        {
            if std::mem::take(&mut update.early) {
                let Answer { to, reply, .. } = update
                    .answers
                    .first()
                    .expect("an update answers its client first");
                let applied = OpApplied {
                    request: reply.request,
                    version: reply.version,
                    attempt: reply.attempt,
                };
                sh.reply(*to, Message::OpApplied(applied), None);
            }
        }
    }

    /// As a member: what is durable here, and who is to hear of it.
    pub(crate) fn logged_for_primary(&self) -> Option<(OsdId, Logged)> {
        let Role::Member(member) = &self.role else {
            return None;
        };
        let primary = self.interval.acting.first().copied()?;
        Some((
            primary,
            Logged {
                pg: self.id(),
                interval: self.interval.since,
                version: member.logged,
            },
        ))
    }

    /// A member has everything up to some version.
    pub fn on_member_logged(&mut self, from: OsdId, message: &Logged, sh: &mut Shared) {
        let head = self.local.log.head();
        if !self.is_current(message.interval) {
            return;
        }
        let Some(primary) = self.primary() else {
            return;
        };
        let Some(peer) = primary.peers.get_mut(&from) else {
            return;
        };
        let (catching, before) = (peer.catching.is_some(), peer.acked);
        Self::note_progress(peer, message.version.min(head), sh);
        let acked = peer.acked;
        self.has_taken(from, before, acked, sh);
        let peer = self
            .primary()
            .and_then(|primary| primary.peers.get(&from))
            .expect("still");
        if catching && peer.catching.is_none() {
            self.start_recovery(sh);
        }
        self.advance_committed(sh);
    }

    fn advance_committed(&mut self, sh: &mut Shared) {
        let me = sh.me();
        let Role::Primary(primary) = &mut self.role else {
            return;
        };
        if !primary.is_peered() {
            return;
        }
        let acked = |osd: &OsdId, primary: &Primary| {
            if *osd == me {
                primary.logged
            } else {
                primary
                    .peers
                    .get(osd)
                    .map_or(Version::NONE, |peer| peer.acked)
            }
        };
        let committed = self
            .interval
            .acting
            .iter()
            .map(|osd| acked(osd, primary))
            .min()
            .unwrap_or(Version::NONE);
        if committed <= primary.committed {
            return;
        }
        primary.committed = committed;
        let any_suspect = primary.damage.has_suspects();
        let mut done = Vec::new();
        while primary
            .in_flight
            .front()
            .is_some_and(|update| update.version <= committed)
        {
            done.push(primary.in_flight.pop_front().expect("just seen"));
        }
        let mut objects = Vec::new();
        for update in done {
            let state = self.primary().expect("still").objects.get(&update.object);
            state.updates -= 1;
            if state.updates == 0
                && (state.has_queue()
                    || any_suspect
                    || nacre_object::snaps::is_clone(&update.object))
            {
                objects.push(update.object);
            }
            for answer in update.answers {
                self.answer(answer, None, sh);
            }
        }
        self.tell_gone_watchers(committed, sh);
        self.trim_go_on(sh);
        for object in objects {
            self.process_object(&object, sh);
        }
    }

    /// Sends an answer when everything up to `version` is committed.
    pub(super) fn answer_when_committed(
        &mut self,
        version: Version,
        answer: Answer,
        sh: &mut Shared,
    ) {
        let primary = self.primary().expect("only primaries answer");
        match primary
            .in_flight
            .iter_mut()
            .find(|update| update.version >= version)
        {
            Some(update) => match update
                .answers
                .iter_mut()
                .find(|waits| waits.is_for(&answer))
            {
                // A client asks again every two seconds: each copy would keep its data until then
                // (F17).
                Some(waits) => {
                    if answer.reply.attempt > waits.reply.attempt {
                        (waits.to, waits.reply.attempt) = (answer.to, answer.reply.attempt);
                    }
                    if let Some(op) = answer.op {
                        Self::release(&op, sh);
                    }
                }
                None => update.answers.push(answer),
            },
            None => self.answer(answer, None, sh),
        }
    }

    /// Sends again what members have not acknowledged for a while.
    pub(super) fn resend_updates(&mut self, sh: &mut Shared) {
        let (now, after) = (sh.now, sh.config.timing.retry_interval);
        let trim = self.local.log.tail();
        let Some(primary) = self.primary() else {
            return;
        };
        let mut updates = std::mem::take(&mut primary.in_flight);
        let peers: Vec<(OsdId, Version)> = primary
            .peers
            .iter()
            .map(|(osd, peer)| (*osd, peer.acked))
            .collect();
        for update in updates
            .iter_mut()
            .filter(|update| now.since(update.sent) >= after)
        {
            update.sent = now;
            for (osd, acked) in &peers {
                if *acked < update.version {
                    self.send_update(*osd, update, trim, sh);
                }
            }
        }
        self.primary().expect("still").in_flight = updates;
    }
}
