//! Targeting, resending, throttling.

use crate::cluster::{Blocked, Capabilities, Completion, Done, Failure, ObjectCluster, OpId, Operation, Refused};
use nacre_types::{ClientId, Entity, Epoch, Instance, OsdId, PgId, Time};
use nacre_wire::map::{ApplyError, MapDelta};
use nacre_wire::msg::client::{OpApplied, OpFailure, OpReply, OpRequest, RequestId, SubOp};
use nacre_wire::msg::monitor::{MapDeltas, Subscribe};
use nacre_wire::msg::payload_len;
use nacre_wire::{ClusterMap, Message, Payload, Wire};
use std::collections::BTreeMap;
use std::time::Duration;

/// Settings.
#[derive(Clone, Copy, Debug)]
pub struct ClientConfig {
    /// Who we are: unique for the life of the cluster; hosts draw it at random.
    pub id: ClientId,
    /// Which life.
    pub instance: Instance,
    /// Most operations in flight.
    pub ops_max: usize,
    /// Most bytes in flight.
    pub bytes_max: u64,
    /// An operation without an answer is sent again after this.
    pub retry_interval: Duration,
    /// What the wall clock said at [`Time::ZERO`], in milliseconds since 1970; 0 if nobody knows.
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

/// What the host is to do.
#[derive(Clone, Debug)]
pub enum Output {
    /// Send to an OSD; its address is in the map.
    Send {
        /// Whom.
        to: OsdId,
        /// What.
        message: Message,
    },
    /// Send to any monitor.
    SendMon {
        /// What.
        message: Message,
    },
    /// The cluster's history is not the one we knew: stop.
    Halt {
        /// For people.
        why: String,
    },
}

#[derive(Debug)]
struct InFlight {
    operation: Operation,
    /// Where it was last sent: group, interval, OSD.
    target: Option<(PgId, Epoch, OsdId)>,
    attempt: u32,
    begun: Time,
    sent: Time,
    bytes: u64,
    blocked: Option<String>,
    acked: bool,
}

/// See the crate's head.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    map: Option<ClusterMap>,
    in_flight: BTreeMap<u64, InFlight>,
    bytes: u64,
    next: u64,
    done: Vec<Completion>,
    acks: Vec<OpId>,
    out: Vec<Output>,
    asked: Time,
    ticked: Time,
}

impl Client {
    /// Asks for the map.
    #[must_use]
    pub fn new(config: ClientConfig, now: Time) -> Self {
        let mut client = Self {
            config,
            map: None,
            in_flight: BTreeMap::new(),
            bytes: 0,
            next: 1,
            done: Vec::new(),
            acks: Vec::new(),
            out: Vec::new(),
            asked: now,
            ticked: now,
        };
        client.subscribe(now);
        client
    }

    /// The newest map.
    #[must_use]
    pub const fn map(&self) -> Option<&ClusterMap> {
        self.map.as_ref()
    }
    /// Its epoch, for outgoing frames.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.map.as_ref().map_or(Epoch::NONE, |map| map.epoch)
    }
    /// How many operations are in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
    /// Who we are.
    #[must_use]
    pub const fn id(&self) -> ClientId {
        self.config.id
    }
    /// What the host is to do now.
    pub fn take_outputs(&mut self, into: &mut Vec<Output>) {
        into.append(&mut self.out);
    }

    /// Operations in flight for longer than `than`, and why.
    #[must_use]
    pub fn blocked(&self, now: Time, than: Duration) -> Vec<Blocked> {
        let late = self.in_flight.iter().filter(|(_, op)| now.since(op.begun) >= than);
        late.map(|(id, op)| {
            let reason = match (&op.blocked, op.target) {
                (Some(reason), Some((_, _, osd))) => format!("{reason} (says {osd})"),
                (None, Some((pg, _, osd))) => format!("{osd} has not answered for placement group {pg}"),
                _ => "no OSD serves its placement group".to_owned(),
            };
            Blocked { id: OpId(*id), reason, since: op.begun }
        })
        .collect()
    }

    /// Gives up on an operation: it completes as [`Failure::Unknown`]. It may still happen.
    pub fn abandon(&mut self, id: OpId) {
        if self.in_flight.contains_key(&id.0) {
            self.finish(id.0, Err(Failure::Unknown));
        }
    }

    fn subscribe(&mut self, now: Time) {
        self.asked = now;
        let (have, digest) = self.map.as_ref().map_or_else(Default::default, |map| (map.epoch, map.digest));
        self.out.push(Output::SendMon { message: Message::Subscribe(Subscribe { have, digest, once: false }) });
    }

    /// The connection to the monitors is new.
    pub fn on_mon_session(&mut self, now: Time) {
        self.subscribe(now);
    }

    /// The connection to an OSD broke: what it has not answered is sent again.
    pub fn on_peer_reset(&mut self, now: Time, osd: OsdId) {
        let lost = |op: &InFlight| op.target.is_some_and(|(_, _, at)| at == osd);
        let again: Vec<u64> = self.in_flight.iter().filter(|(_, op)| lost(op)).map(|(id, _)| *id).collect();
        for id in again {
            self.send(now, id);
        }
    }

    /// A frame arrived.
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
            Message::OpReply(reply, payload) => self.on_reply(now, epoch, reply, payload),
            Message::OpApplied(applied) => self.on_applied(&applied),
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
            let Ok(delta) = MapDelta::from_bytes(bytes) else { break };
            match map.apply(&delta) {
                Ok(()) => {}
                Err(ApplyError::Gap { .. }) => break,
                Err(error @ ApplyError::OtherHistory { .. }) => {
                    self.out.push(Output::Halt { why: error.to_string() });
                    break;
                }
            }
        }
        if map.epoch > before {
            self.after_map(now);
        }
    }

    /// Sends again what was sent to an interval that is over.
    fn after_map(&mut self, now: Time) {
        let moved = |op: &InFlight| op.target.is_none() || self.target(&op.operation) != op.target;
        let again: Vec<u64> = self.in_flight.iter().filter(|(_, op)| moved(op)).map(|(id, _)| *id).collect();
        for id in again {
            self.send(now, id);
        }
    }

    /// The group of an operation and, if somebody serves it, its interval and primary.
    fn group(&self, operation: &Operation) -> Option<PgId> {
        let pool = self.map.as_ref()?.pools.get(&operation.pool)?;
        let seed = operation.group.unwrap_or_else(|| {
            let object = &operation.object;
            let hash = nacre_crush::object::object_hash(
                object.namespace.as_bytes(),
                object.key.as_bytes(),
                object.name.as_bytes(),
            );
            nacre_crush::object::pg_seed(hash, pool.pg_num)
        });
        Some(PgId::replicated(operation.pool, seed))
    }
    fn target(&self, operation: &Operation) -> Option<(PgId, Epoch, OsdId)> {
        let pg = self.group(operation)?;
        let record = self.map.as_ref()?.pgs.get(&pg)?;
        Some((pg, record.since, record.primary()?))
    }

    fn send(&mut self, now: Time, id: u64) {
        let op = &self.in_flight[&id];
        if self.group(&op.operation).is_none() {
            self.finish(id, Err(Failure::NoSuchPool));
            return;
        }
        let target = self.target(&op.operation);
        let answered_below = *self.in_flight.first_key_value().expect("at least this one").0;
        let op = self.in_flight.get_mut(&id).expect("just seen");
        op.target = target;
        op.sent = now;
        op.blocked = None;
        let Some((pg, _, osd)) = target else { return };
        op.attempt += 1;
        let request = OpRequest {
            request: RequestId { client: self.config.id, instance: self.config.instance, sequence: id },
            answered_below,
            pg,
            object: op.operation.object.clone(),
            ops: op.operation.ops.clone(),
            flags: op.operation.flags,
            fence: Epoch::NONE,
            snaps: nacre_wire::msg::client::SnapContext::default(),
            trace: 0,
            tenant: 0,
            deadline_ms: 0,
            attempt: op.attempt,
            unix_ms: self.config.unix_ms_at_zero + now.0 / 1_000_000,
        };
        let message = Message::OpRequest(request, op.operation.payload.clone());
        self.out.push(Output::Send { to: osd, message });
    }

    fn on_reply(&mut self, now: Time, epoch: Epoch, reply: OpReply, payload: Payload) {
        let id = reply.request.sequence;
        if reply.request.client != self.config.id || reply.request.instance != self.config.instance {
            return;
        }
        let Some(op) = self.in_flight.get(&id) else { return };
        match reply.failure {
            None => {
                let done = Done { version: reply.version, results: reply.results, payload };
                self.finish(id, Ok(done));
            }
            // An earlier attempt's failure: the later attempt may succeed, and only its answer counts.
            Some(_) if reply.attempt != op.attempt => {}
            Some(OpFailure::WrongTarget {}) => {
                // It was sent with an old map, or to one: the newer map will send it again; the timer if there is none.
                if epoch > self.epoch() {
                    self.subscribe(now);
                }
            }
            Some(failure) => self.finish(id, Err(Failure::Refused(failure))),
        }
    }

    fn on_applied(&mut self, applied: &OpApplied) {
        let request = applied.request;
        let ours = (request.client, request.instance) == (self.config.id, self.config.instance);
        if let Some(op) = self.in_flight.get_mut(&request.sequence).filter(|op| ours && !op.acked) {
            op.acked = true;
            self.acks.push(OpId(request.sequence));
        }
    }

    fn finish(&mut self, id: u64, result: Result<Done, Failure>) {
        if let Some(op) = self.in_flight.remove(&id) {
            self.bytes -= op.bytes;
            self.done.push(Completion { id: OpId(id), result });
        }
    }

    /// Time passed. To be called at or after [`Self::next_deadline`].
    pub fn on_tick(&mut self, now: Time) {
        self.ticked = now;
        let late = |op: &InFlight| now.since(op.sent) >= self.config.retry_interval;
        let again: Vec<u64> = self.in_flight.iter().filter(|(_, op)| late(op)).map(|(id, _)| *id).collect();
        if !again.is_empty() || self.map.is_none() {
            self.subscribe(now);
        }
        for id in again {
            self.send(now, id);
        }
    }

    /// When the role next wants [`Self::on_tick`].
    #[must_use]
    pub fn next_deadline(&self) -> Time {
        if self.in_flight.is_empty() && self.map.is_some() {
            Time::MAX
        } else {
            self.ticked + self.config.retry_interval / 4
        }
    }
}

impl ObjectCluster for Client {
    fn capabilities(&self) -> Capabilities {
        Capabilities { ack: true, exec: true, exec_reads_own_writes: true, ..Capabilities::default() }
    }

    fn submit(&mut self, now: Time, operation: Operation) -> Result<OpId, Refused> {
        let bytes = payload_len(&operation.payload) as u64;
        let map = self.map.as_ref().ok_or(Refused::NotConnected)?;
        if !map.pools.contains_key(&operation.pool) {
            return Err(Refused::NoSuchPool);
        }
        // One operation is always let through: the largest must be possible.
        let room = self.in_flight.len() < self.config.ops_max && self.bytes + bytes <= self.config.bytes_max;
        if !room && !self.in_flight.is_empty() {
            return Err(Refused::Busy);
        }
        let id = self.next;
        self.next += 1;
        self.bytes += bytes;
        debug_assert!(operation.ops.iter().map(SubOp::payload_len).sum::<u64>() == bytes, "payload and parts agree");
        let op =
            InFlight { operation, target: None, attempt: 0, begun: now, sent: now, bytes, blocked: None, acked: false };
        self.in_flight.insert(id, op);
        self.send(now, id);
        Ok(OpId(id))
    }

    fn completions(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.done);
        // What has ended needs no earlier word any more.
        self.acks.retain(|id| self.in_flight.contains_key(&id.0));
    }
    fn acks(&mut self, into: &mut Vec<OpId>) {
        self.acks.retain(|id| self.in_flight.contains_key(&id.0));
        into.append(&mut self.acks);
    }
}
