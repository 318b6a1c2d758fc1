//! Target selection, resending, throttling.

use crate::cluster::{
    Blocked, Capabilities, Completion, Done, Failure, ObjectCluster, OpId, Operation, Refused,
    WatchError, WatchEvent, WatchId,
};
use crate::fencing::Fencing;
use crate::heard::Heard;
use crate::rooms::{Room, Rooms};
use crate::watch::{Target, Watches};
use bytes::Bytes;
use nacre_role::{Input, Output, Role};
use nacre_types::{
    ClientId, Entity, Epoch, Instance, ObjectId, OsdId, PgId, PoolId, Time, Version,
};
use nacre_wire::map::{ApplyError, MapDelta};
use nacre_wire::msg::check::{check_payload, check_sendable};
use nacre_wire::msg::client::{
    OpApplied, OpFailure, OpReply, OpRequest, RequestId, SubOp, SubReply,
};
use nacre_wire::msg::monitor::{Command, MapDeltas, Subscribe};
use nacre_wire::{ClusterMap, Message, Payload, Wire};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[cfg(feature = "mutants")]
#[path = "mutants/role.rs"]
pub(crate) mod planted;

/// Settings.
#[derive(Clone, Copy, Debug)]
pub struct ClientConfig {
    /// The client's id, unique within the cluster for ever; hosts draw it at random.
    pub id: ClientId,
    /// The client's instance.
    pub instance: Instance,
    /// Most operations in flight.
    pub ops_max: usize,
    /// Most bytes in flight.
    pub bytes_max: u64,
    /// An unanswered operation is resent after this.
    pub retry_interval: Duration,
    /// The wall clock's reading at [`Time::ZERO`], in milliseconds since 1970; 0 if unknown.
    pub unix_ms_at_zero: u64,
}

impl ClientConfig {
    /// The usual limits.
    #[must_use]
    pub const fn new(id: ClientId) -> Self {
        Self {
            id,
            instance: Instance(1),
            ops_max: 1024,
            bytes_max: 128 << 20,
            retry_interval: Duration::from_secs(2),
            unix_ms_at_zero: 0,
        }
    }
}

/// Delay before temporarily refused operations are resent; it doubles each time.
const AGAIN_FIRST: Duration = Duration::from_millis(200);

#[derive(Debug)]
struct InFlight {
    operation: Operation,
    /// Where it was last sent: PG, interval, OSD.
    target: Option<(PgId, Epoch, OsdId)>,
    attempt: u32,
    begun: Time,
    sent: Time,
    /// The position of its last sending among all of the client's sendings.
    place: u64,
    /// For reads: results of attempts up to this one may predate an earlier operation on the
    /// object.
    doubted: u32,
    bytes: u64,
    blocked: Option<String>,
    acked: bool,
    /// Its OSD refused it for now and asked to have it resent later.
    refused: bool,
}

impl InFlight {
    fn group(&self) -> Option<PgId> {
        self.target.map(|(pg, ..)| pg)
    }
    fn is_write(&self) -> bool {
        self.operation.ops.iter().any(SubOp::is_write)
    }
    /// Whether both concern the same object.
    fn is_beside(&self, other: &Self) -> bool {
        self.operation.object == other.operation.object
            && self.operation.pool == other.operation.pool
    }
}

/// See the crate's head.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    map: Option<ClusterMap>,
    in_flight: BTreeMap<u64, InFlight>,
    bytes: u64,
    next: u64,
    /// Number of sendings so far.
    sendings: u64,
    done: Vec<Completion>,
    acks: Vec<OpId>,
    out: Vec<Output>,
    asked: Time,
    ticked: Time,
    /// When operations refused by these PGs are resent.
    retries: BTreeMap<PgId, Time>,
    watches: Watches,
    heard: Heard,
    /// Our writes may depend on these fences: locks were granted to us under them.
    fence: Epoch,
    /// Fences of other clients in progress.
    fencing: Fencing,
    rooms: Rooms,
    /// The number of the open question about free space.
    room_asked: Option<u64>,
}

impl Client {
    /// All capabilities.
    pub const CAPABILITIES: Capabilities = Capabilities {
        ack: true,
        watch: true,
        exec: true,
        exec_reads_own_writes: true,
        exec_writes_return: true,
        fence: true,
        list_snaps: true,
        zero_bytes: true,
    };

    /// Creates the client, which asks for the map.
    #[must_use]
    pub fn new(config: ClientConfig, now: Time) -> Self {
        let mut client = Self {
            config,
            map: None,
            in_flight: BTreeMap::new(),
            bytes: 0,
            next: 1,
            sendings: 0,
            done: Vec::new(),
            acks: Vec::new(),
            out: Vec::new(),
            asked: now,
            ticked: now,
            retries: BTreeMap::new(),
            watches: Watches::new(config.id, config.instance),
            heard: Heard::default(),
            fence: Epoch::NONE,
            fencing: Fencing::default(),
            rooms: Rooms::default(),
            room_asked: None,
        };
        client.subscribe(now);
        client
    }

    /// The newest map.
    #[must_use]
    pub const fn map(&self) -> Option<&ClusterMap> {
        self.map.as_ref()
    }
    /// The map's epoch, for outgoing frames.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.map.as_ref().map_or(Epoch::NONE, |map| map.epoch)
    }
    /// Number of operations in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
    /// The client's id.
    #[must_use]
    pub const fn id(&self) -> ClientId {
        self.config.id
    }
    /// The client's instance.
    #[must_use]
    pub const fn instance(&self) -> Instance {
        self.config.instance
    }
    /// Takes the outputs for the host.
    pub fn take_outputs(&mut self, into: &mut Vec<Output>) {
        into.append(&mut self.out);
    }

    /// Whether completions are waiting to be taken.
    #[must_use]
    pub fn has_more(&self) -> bool {
        !self.done.is_empty()
    }

    /// Operations in flight for longer than `than`, and why.
    #[must_use]
    pub fn blocked(&self, now: Time, than: Duration) -> Vec<Blocked> {
        let late = self
            .in_flight
            .iter()
            .filter(|(_, op)| now.since(op.begun) >= than);
        late.map(|(id, op)| {
            let reason = match (&op.blocked, op.target) {
                (Some(reason), Some((_, _, osd))) => format!("{reason} (says {osd})"),
                (None, Some((pg, _, osd))) => {
                    format!("{osd} has not answered for placement group {pg}")
                }
                _ => "no OSD serves its placement group".to_owned(),
            };
            Blocked {
                id: OpId(*id),
                reason,
                since: op.begun,
            }
        })
        .collect()
    }

    /// Abandons an operation: it completes as [`Failure::Unknown`], and may still be executed.
    pub fn abandon(&mut self, id: OpId) {
        if self.in_flight.contains_key(&id.0) {
            self.finish(id.0, Err(Failure::Unknown));
        }
        if self.fencing.abandon(id.0) {
            self.done.push(Completion {
                id,
                result: Err(Failure::Unknown),
            });
        }
    }

    /// Continues as a later instance: operations in flight of the former one end as
    /// [`Failure::Unknown`], its watches are lost, and its unsent messages are dropped. The
    /// numbering of operations and the map are kept.
    pub(crate) fn begin_again(&mut self, now: Time, instance: Instance) {
        assert!(instance > self.config.instance, "instances grow");
        self.out
            .retain(|output| matches!(output, Output::Halt { .. }));
        let under_way: Vec<u64> = self
            .in_flight
            .keys()
            .copied()
            .chain(self.fencing.open())
            .collect();
        under_way.into_iter().for_each(|id| self.abandon(OpId(id)));
        self.retries.clear();
        self.config.instance = instance;
        self.watches.begin_again(instance);
        self.subscribe(now);
    }

    fn subscribe(&mut self, now: Time) {
        self.asked = now;
        let (have, digest) = self
            .map
            .as_ref()
            .map_or_else(Default::default, |map| (map.epoch, map.digest));
        self.out.push(Output::SendMon {
            message: Message::Subscribe(Subscribe {
                have,
                digest,
                once: false,
            }),
        });
    }

    /// A new connection to the monitors.
    pub fn on_mon_session(&mut self, now: Time) {
        self.subscribe(now);
        self.fence_again(now, Duration::ZERO);
    }

    /// Resends fences that have waited this long.
    fn fence_again(&mut self, now: Time, waited: Duration) {
        let again = self.fencing.again(now, waited).into_iter();
        self.out.extend(again.map(|command| Output::SendMon {
            message: Message::Command(command),
        }));
    }

    /// The connection to an OSD broke: operations that it has not answered are resent.
    pub fn on_peer_reset(&mut self, now: Time, osd: OsdId) {
        let lost = |op: &InFlight| op.target.is_some_and(|(_, _, at)| at == osd);
        let again: Vec<u64> = self
            .in_flight
            .iter()
            .filter(|(_, op)| lost(op))
            .map(|(id, _)| *id)
            .collect();
        for id in again {
            self.send(now, id);
        }
        self.watches.on_peer_reset(osd);
        self.look_at_watches(now);
    }

    /// Handles a frame.
    pub fn on_message(&mut self, now: Time, from: Entity, epoch: Epoch, message: Message) {
        match message {
            Message::MapFull(full) => {
                if let Ok(map) = ClusterMap::from_bytes(&full.map)
                    && map.epoch > self.epoch()
                {
                    self.map = Some(map);
                    self.after_map(now);
                }
            }
            Message::MapDeltas(deltas) => self.on_deltas(now, &deltas),
            Message::OpReply(reply, payload) => self.on_reply(now, from, epoch, reply, payload),
            Message::OpApplied(applied) => self.on_applied(&applied),
            Message::WatchNotify(notify, payload) => {
                // Acknowledged before: repeat the acknowledgement to the OSD that asks again.
                if let (Some(message), Entity::Osd(to)) =
                    (self.watches.on_notify(notify, payload), from)
                {
                    self.out.push(Output::send(Entity::Osd(to), message));
                }
            }
            Message::WatchPong(pong) => self.watches.on_pong(&pong),
            Message::CommandReply(reply)
                if matches!(from, Entity::Mon(_)) && self.room_asked == Some(reply.token) =>
            {
                self.room_asked = None;
                let df = serde_json::from_str(&reply.reply)
                    .ok()
                    .filter(|_| reply.error.is_none());
                self.rooms.on_said(df.as_ref().and_then(Rooms::of_df));
            }
            Message::CommandReply(reply) if matches!(from, Entity::Mon(_)) => {
                if let Some((id, why)) = self.fencing.on_reply(&reply) {
                    let result = Err(Failure::Refused(OpFailure::Denied { why }));
                    self.done.push(Completion {
                        id: OpId(id),
                        result,
                    });
                }
            }
            Message::OpBlocked(blocked) => {
                if let Some(op) = self.in_flight.get_mut(&blocked.request.sequence) {
                    op.blocked = Some(blocked.reason);
                }
            }
            Message::Refused(refused) if matches!(from, Entity::Mon(_)) => {
                self.out.push(Output::Halt { why: refused.why })
            }
            _ => {}
        }
        if epoch > self.epoch() && now.since(self.asked) >= Duration::from_millis(50) {
            self.subscribe(now);
        }
    }

    fn on_deltas(&mut self, now: Time, message: &MapDeltas) {
        let Some(map) = &mut self.map else { return };
        let before = map.epoch;
        for bytes in &message.deltas {
            let Ok(delta) = MapDelta::from_bytes(bytes) else {
                break;
            };
            match map.apply(&delta) {
                Ok(()) => {}
                Err(ApplyError::Gap { .. }) => break,
                Err(error @ ApplyError::OtherHistory { .. }) => {
                    self.out.push(Output::Halt {
                        why: error.to_string(),
                    });
                    break;
                }
            }
        }
        if map.epoch > before {
            self.after_map(now);
        }
    }

    /// Resends what was sent to an interval that is over.
    fn after_map(&mut self, now: Time) {
        let moved = |op: &InFlight| op.target.is_none() || self.target(&op.operation) != op.target;
        let again: Vec<u64> = self
            .in_flight
            .iter()
            .filter(|(_, op)| moved(op))
            .map(|(id, _)| *id)
            .collect();
        for id in again {
            self.send(now, id);
        }
        self.look_at_watches(now);
        self.end_fencing();
    }

    /// Completes the fences in the new map: what is sent from now on carries that map's epoch.
    fn end_fencing(&mut self) {
        let Some(map) = &self.map else { return };
        for id in self.fencing.on_map(map) {
            self.fence = self.fence.max(map.epoch);
            let done = Done {
                version: Version::NONE,
                results: Vec::new(),
                payload: Vec::new(),
            };
            self.done.push(Completion {
                id: OpId(id),
                result: Ok(done),
            });
        }
    }

    /// Pings the watches that have moved or are due.
    fn look_at_watches(&mut self, now: Time) {
        let Some(map) = &self.map else { return };
        let fenced = map.is_fenced(Entity::Client(self.config.id), self.config.instance);
        let mut out = Vec::new();
        self.watches.look(
            now,
            fenced,
            |pool, object| place(map, pool, object),
            &mut out,
        );
        self.out.extend(
            out.into_iter()
                .map(|(to, message)| Output::send(Entity::Osd(to), message)),
        );
    }

    /// The PG of an operation.
    fn group(&self, operation: &Operation) -> Option<PgId> {
        let map = self.map.as_ref()?;
        match operation.group {
            Some(seed) => map
                .pools
                .get(&operation.pool)
                .map(|_| PgId::replicated(operation.pool, seed)),
            None => group_of(map, operation.pool, &operation.object),
        }
    }
    fn target(&self, operation: &Operation) -> Option<Target> {
        serves(self.map.as_ref()?, self.group(operation)?)
    }

    fn send(&mut self, now: Time, id: u64) {
        let op = &self.in_flight[&id];
        if self.group(&op.operation).is_none() {
            self.finish(id, Err(Failure::NoSuchPool));
            return;
        }
        let target = self.target(&op.operation);
        let first = self.in_flight.first_key_value();
        let (&answered_below, _) = first.expect("at least this one");
        let op = self.in_flight.get_mut(&id).expect("just seen");
        if op.target != target {
            // The former primary's reason no longer applies.
            op.blocked = None;
        }
        op.target = target;
        op.sent = now;
        op.refused = false;
        let Some((pg, _, osd)) = target else { return };
        op.attempt += 1;
        self.sendings += 1;
        op.place = self.sendings;
        let request = OpRequest {
            request: RequestId {
                client: self.config.id,
                instance: self.config.instance,
                sequence: id,
            },
            answered_below,
            pg,
            object: op.operation.object.clone(),
            ops: op.operation.ops.clone(),
            flags: op.operation.flags,
            fence: self.fence,
            snaps: op.operation.snaps.clone(),
            trace: 0,
            tenant: 0,
            deadline_ms: 0,
            attempt: op.attempt,
            unix_ms: self.config.unix_ms_at_zero + now.0 / 1_000_000,
            dated: self.heard.date(osd, op.begun, now),
        };
        let message = Message::OpRequest(request, op.operation.payload.clone());
        self.out.push(Output::send(Entity::Osd(osd), message));
    }

    fn on_reply(
        &mut self,
        now: Time,
        from: Entity,
        epoch: Epoch,
        reply: OpReply,
        payload: Payload,
    ) {
        let id = reply.request.sequence;
        if let (Some(OpFailure::Undated { now: reading }), Entity::Osd(osd)) =
            (&reply.failure, from)
        {
            self.heard.hear(osd, *reading, now);
        }
        let ours = (reply.request.client, reply.request.instance)
            == (self.config.id, self.config.instance);
        if !ours {
            return;
        }
        let Some(op) = self.in_flight.get(&id) else {
            return;
        };
        match reply.failure {
            None if reply.attempt <= op.doubted => {
                if reply.attempt == op.attempt {
                    self.send(now, id);
                }
            }
            None => {
                for result in &reply.results {
                    if let SubReply::Locked { fence, .. } = result {
                        self.fence = self.fence.max(*fence);
                    }
                }
                let done = Done {
                    version: reply.version,
                    results: reply.results,
                    payload,
                };
                self.finish(id, Ok(done));
                // Sets a newly registered watch's target and ping time.
                self.look_at_watches(now);
            }
            // A failure of an earlier attempt: the later attempt may succeed, and only its answer
            // counts.
            Some(failure) if reply.attempt != op.attempt => {
                if !matches!(
                    failure,
                    OpFailure::WrongTarget {} | OpFailure::Undated { .. }
                ) {
                    self.doubt_reads_behind(id);
                }
            }
            Some(OpFailure::WrongTarget {}) => {
                // The client or the OSD had an old map: the newer map will cause a resend, or else
                // the timer.
                if epoch > self.epoch() {
                    self.subscribe(now);
                }
                self.come_again(now, id);
            }
            // The OSD asks when the operation was first sent, and its clock is now known.
            Some(OpFailure::Undated { .. }) => self.send(now, id),
            Some(_) if self.is_overtaken(id) => self.send(now, id),
            // Other refusals depend on the object: an earlier attempt that is executed later meets
            // the same object.
            Some(failure) if op.attempt > 1 && op.is_write() && depends_on_the_moment(&failure) => {
                self.finish(id, Err(Failure::Doubtful(failure)));
            }
            Some(failure) => self.finish(id, Err(Failure::Refused(failure))),
        }
    }

    /// The OSD has no space for it, or does not serve its PG although both have the same map. It is
    /// resent soon, with increasing delays.
    fn come_again(&mut self, now: Time, id: u64) {
        let op = self.in_flight.get_mut(&id).expect("the caller has seen it");
        op.refused = true;
        let Some(pg) = op.group() else { return };
        let pause = AGAIN_FIRST * (1 << op.attempt.saturating_sub(1).min(8));
        let at = op.sent + pause.min(self.config.retry_interval);
        self.retries.entry(pg).or_insert(at.max(now));
    }

    /// Resends, in order, what a PG refused and everything sent after the first refused operation:
    /// each of those is or will be refused as long as an earlier one is missing. Resent one by one,
    /// each would find another one missing, for ever.
    fn refused(&mut self, now: Time) -> BTreeSet<u64> {
        let due: Vec<PgId> = self
            .retries
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(pg, _)| *pg)
            .collect();
        if !due.is_empty() && now.since(self.asked) >= self.config.retry_interval {
            self.subscribe(now);
        }
        let mut again = BTreeSet::new();
        for pg in due {
            self.retries.remove(&pg);
            let of_group = self
                .in_flight
                .iter()
                .filter(|(_, op)| op.group() == Some(pg));
            let first = of_group.skip_while(|(_, op)| !op.refused);
            again.extend(first.map(|(id, _)| *id));
        }
        again
    }

    /// Whether a failure is premature: an earlier operation on the object has been resent since,
    /// and will be executed after the failed one. (Simulator, seed 118: a creation was refused for
    /// lack of space; the refusal arrived after it had been resent, and it was executed. Meanwhile
    /// a removal after it had been answered that the object does not exist.)
    fn is_overtaken(&self, id: u64) -> bool {
        let op = &self.in_flight[&id];
        let later = |earlier: &InFlight| earlier.attempt > 1 && earlier.place > op.place;
        self.in_flight
            .range(..id)
            .any(|(_, earlier)| later(earlier) && earlier.is_write() && earlier.is_beside(op))
    }

    /// A write was refused permanently after it had been resent. Reads after it were answered as if
    /// the write had failed, but its later attempt may still succeed. Only refusals count:
    /// distrusting reads after every resent write starved clients that send many operations at once
    /// (simulator, seed 5306).
    fn doubt_reads_behind(&mut self, id: u64) {
        let mut behind = self.in_flight.range_mut(id..);
        let (_, op) = behind.next().expect("the caller has seen it");
        if !op.is_write() {
            return;
        }
        for (_, read) in behind.filter(|(_, read)| !read.is_write() && read.is_beside(op)) {
            read.doubted = read.attempt - u32::from(read.place > op.place);
        }
    }

    fn on_applied(&mut self, applied: &OpApplied) {
        let request = applied.request;
        let ours = (request.client, request.instance) == (self.config.id, self.config.instance);
        let new = |op: &&mut InFlight| ours && !op.acked;
        if let Some(op) = self.in_flight.get_mut(&request.sequence).filter(new) {
            op.acked = true;
            self.acks.push(OpId(request.sequence));
        }
    }

    fn finish(&mut self, id: u64, result: Result<Done, Failure>) {
        if let Some(op) = self.in_flight.remove(&id) {
            self.bytes -= op.bytes;
            self.watches.on_finished(OpId(id), result.is_ok());
            self.done.push(Completion {
                id: OpId(id),
                result,
            });
        }
    }

    /// Completes an operation that was never sent.
    fn refuse(&mut self, why: OpFailure) -> OpId {
        let id = OpId(self.next);
        self.next += 1;
        // It may have been the registration of a watch.
        self.watches.on_finished(id, false);
        self.done.push(Completion {
            id,
            result: Err(Failure::Refused(why)),
        });
        id
    }

    /// Handles the passing of time. To be called at or after [`Role::next_deadline`].
    pub fn on_tick(&mut self, now: Time) {
        self.ticked = now;
        let mut again = self.refused(now);
        let late = |op: &InFlight| now.since(op.sent) >= self.config.retry_interval;
        let before = again.len();
        again.extend(
            self.in_flight
                .iter()
                .filter(|(_, op)| late(op))
                .map(|(id, _)| *id),
        );
        if again.len() > before || self.map.is_none() {
            self.subscribe(now);
        }
        for id in again {
            self.send(now, id);
        }
        self.fence_again(now, self.config.retry_interval);
        self.look_at_watches(now);
    }
}

/// Completions go to the service that began the operations ([`crate::ObjectCluster::completions`]);
/// messages are the role's outputs.
impl Role for Client {
    fn on_turn(
        &mut self,
        now: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        out: &mut Vec<Output>,
    ) {
        for input in inputs {
            match input {
                Input::Message {
                    from,
                    epoch,
                    message,
                } => self.on_message(now, from, epoch, message),
                Input::Tick => self.on_tick(now),
                Input::Gone(Entity::Osd(osd)) => self.on_peer_reset(now, osd),
                Input::MonSession => self.on_mon_session(now),
                Input::Gone(_)
                | Input::Absent(_)
                | Input::Named(..)
                | Input::Store(_)
                | Input::Device(_)
                | Input::Done(_)
                | Input::Stopping => {}
            }
        }
        self.take_outputs(out);
    }
    fn next_deadline(&self) -> Time {
        let pings = self.watches.next_deadline();
        let idle = self.in_flight.is_empty() && self.fencing.is_empty();
        if idle && self.map.is_some() {
            return pings;
        }
        let first = self.retries.values().copied().fold(pings, Time::min);
        first.min(self.ticked + self.config.retry_interval / 4)
    }
    fn map(&self) -> Option<&ClusterMap> {
        self.map.as_ref()
    }
}

/// Whether a refusal is independent of the object: space, time, the fence and the client's rights
/// may have been different when the operation was first sent.
const fn depends_on_the_moment(failure: &OpFailure) -> bool {
    matches!(
        failure,
        OpFailure::Full {}
            | OpFailure::Expired {}
            | OpFailure::Fenced {}
            | OpFailure::Denied { .. }
    )
}

fn group_of(map: &ClusterMap, pool: PoolId, object: &ObjectId) -> Option<PgId> {
    let pg_num = map.pools.get(&pool)?.pg_num;
    let hash = nacre_crush::object::object_hash(
        object.namespace.as_bytes(),
        object.key.as_bytes(),
        object.name.as_bytes(),
    );
    Some(PgId::replicated(
        pool,
        nacre_crush::object::pg_seed(hash, pg_num),
    ))
}

fn serves(map: &ClusterMap, pg: PgId) -> Option<Target> {
    let record = map.pgs.get(&pg)?;
    Some((pg, record.since, record.primary()?))
}

/// The server of an object: `None` if there is no such pool, `Some(None)` if the PG has no primary
/// at the moment.
fn place(map: &ClusterMap, pool: PoolId, object: &ObjectId) -> Option<Option<Target>> {
    Some(serves(map, group_of(map, pool, object)?))
}

impl ObjectCluster for Client {
    fn capabilities(&self) -> Capabilities {
        Self::CAPABILITIES
    }

    fn submit(&mut self, now: Time, operation: Operation) -> Result<OpId, Refused> {
        let Operation {
            object,
            ops,
            payload,
            snaps,
            ..
        } = &operation;
        // The client slept: resend earlier operations first. An OSD waits for operations that it
        // turned away, but not for ever.
        if now.since(self.ticked) > self.config.retry_interval * 2 && !self.in_flight.is_empty() {
            self.on_tick(now);
        }
        // Checked before it may wait for space: an operation that is let through alone would wait
        // for ever.
        if let Err(why) = check_sendable(object, ops, snaps, payload) {
            return Ok(self.refuse(OpFailure::Invalid {
                why: why.to_string(),
            }));
        }
        let bytes = operation.bytes();
        let map = self.map.as_ref().ok_or(Refused::NotConnected)?;
        if !map.pools.contains_key(&operation.pool) {
            return Err(Refused::NoSuchPool);
        }
        if !self.has_room(bytes) {
            return Err(Refused::Busy);
        }
        if let Err(why) = check_payload(&operation.ops, &operation.payload) {
            // An OSD could not assign the bytes to the parts. A daemon's own client must not stop
            // the daemon because of a caller's mistake.
            return Ok(self.refuse(why));
        }
        let id = self.next;
        self.next += 1;
        self.bytes += bytes;
        let op = InFlight {
            operation,
            target: None,
            attempt: 0,
            begun: now,
            sent: now,
            place: 0,
            doubted: 0,
            bytes,
            blocked: None,
            acked: false,
            refused: false,
        };
        self.in_flight.insert(id, op);
        self.send(now, id);
        Ok(OpId(id))
    }

    fn has_room(&self, bytes: u64) -> bool {
        // One operation is always let through, so that the largest is possible.
        let few = self.in_flight.len() < self.config.ops_max;
        let room = few && self.bytes + bytes <= self.config.bytes_max;
        room || self.in_flight.is_empty()
    }

    fn completions(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.done);
        // Early answers of completed operations are dropped.
        self.acks.retain(|id| self.in_flight.contains_key(&id.0));
    }
    fn acks(&mut self, into: &mut Vec<OpId>) {
        self.acks.retain(|id| self.in_flight.contains_key(&id.0));
        into.append(&mut self.acks);
    }

    fn fence(&mut self, now: Time, client: ClientId, instance: Instance) -> Result<OpId, Refused> {
        if !self.fencing.has_room() {
            return Err(Refused::Busy);
        }
        let id = self.next;
        self.next += 1;
        let command = self.fencing.begin(now, id, client, instance);
        self.out.push(Output::SendMon {
            message: Message::Command(command),
        });
        // The fence may already exist: a client that died before the answer requested the same.
        self.end_fencing();
        Ok(OpId(id))
    }
    fn rest_on(&mut self, epoch: Epoch) {
        self.fence = self.fence.max(epoch);
    }
    fn room(&mut self, now: Time, pool: PoolId) -> Room {
        let (room, asks) = self.rooms.look(now, pool);
        if asks {
            let command = Command {
                token: self.next,
                request: r#"{"command": "df"}"#.to_owned(),
            };
            self.room_asked = Some(command.token);
            self.next += 1;
            self.out.push(Output::SendMon {
                message: Message::Command(command),
            });
        }
        room
    }
    fn watch(
        &mut self,
        now: Time,
        pool: PoolId,
        object: ObjectId,
        timeout: Duration,
    ) -> Result<WatchId, Refused> {
        // The registering operation's number is the cookie: unique within a client instance.
        let cookie = self.next;
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        let ops = vec![SubOp::Watch { cookie, timeout_ms }];
        // Recorded before it is sent, so that the answer cannot arrive first.
        self.watches
            .begin(now, cookie, pool, object.clone(), timeout);
        let begun = self.submit(
            now,
            Operation {
                pool,
                object,
                ops,
                ..Operation::default()
            },
        );
        if begun.is_err() {
            self.watches.end(WatchId(cookie));
        }
        begun.map(|id| WatchId(id.0))
    }
    fn unwatch(&mut self, now: Time, watch: WatchId) -> Result<Option<OpId>, Refused> {
        let Some((pool, object)) = self.watches.place(watch) else {
            return Ok(None);
        };
        let ops = vec![SubOp::Unwatch { cookie: watch.0 }];
        let id = self.submit(
            now,
            Operation {
                pool,
                object,
                ops,
                ..Operation::default()
            },
        )?;
        self.watches.end(watch);
        Ok(Some(id))
    }
    fn watch_events(&mut self, into: &mut Vec<WatchEvent>) {
        self.watches.take_events(into);
    }
    fn ack_notify(
        &mut self,
        _: Time,
        watch: WatchId,
        notify: RequestId,
        reply: Bytes,
    ) -> Result<(), WatchError> {
        let map = self.map.as_ref().ok_or(WatchError::NoSuchWatch)?;
        let ack = self.watches.ack(watch, notify, reply, |pool, object| {
            place(map, pool, object)
        })?;
        self.out
            .extend(ack.map(|(to, message)| Output::send(Entity::Osd(to), message)));
        Ok(())
    }
    fn watch_confirmed(&self, watch: WatchId) -> Option<Time> {
        self.watches.confirmed(watch)
    }
}
