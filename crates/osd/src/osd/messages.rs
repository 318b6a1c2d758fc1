//! Messages: the PG that each is dispatched to, and the answers if there is none.

use super::{Osd, Phase};
use crate::copies::Copies;
use crate::key;
use crate::pg::{Lead, Pg};
use nacre_types::{Entity, Epoch, Name, OsdId, PgId, Time};
use nacre_wire::msg::PayloadCursor;
use nacre_wire::msg::client::{OpFailure, RequestId};
use nacre_wire::msg::monitor::Led;
use nacre_wire::msg::replication::{Ping, Pong, ReplicaUpdate, Replicate};
use nacre_wire::{ClusterMap, Message, Payload};
use std::time::Duration;

#[cfg(feature = "mutants")]
#[path = "../mutants/messages.rs"]
mod planted;

impl Osd {
    /// A new leader has none of our reports.
    pub(super) fn on_led(&mut self, led: Led) {
        if self.led.replace(led) != Some(led) {
            self.reported.clear();
            self.beacon_at = self.sh.now;
            self.sh.wake_at(self.sh.now);
        }
    }

    pub(super) fn receive(&mut self, from: Entity, epoch: Epoch, message: Message) {
        let (to_mon, from_client) = (
            matches!(from, Entity::Mon(_)),
            matches!(from, Entity::Client(_)),
        );
        match &message {
            // Clients do not distribute maps, and only a monitor may stop an OSD.
            Message::MapFull(full) if !from_client => {
                self.on_full_map(&full.map);
                return;
            }
            Message::MapDeltas(deltas) if !from_client => {
                self.on_deltas(deltas);
                return;
            }
            Message::Refused(refused) if to_mon => {
                // Not a refusal of an earlier process (simulator, seed 1464: the first boot of a
                // store that was replaced was late, and its refusal stopped the new one).
                if refused.process == 0 || refused.process == self.sh.config.process {
                    self.halt(refused.why.clone());
                }
                return;
            }
            Message::Led(led) if to_mon => {
                self.on_led(*led);
                return;
            }
            _ => {}
        }
        if let Phase::Loading(_) = self.phase {
            return;
        }
        let needed = needed(epoch, &message);
        if needed > self.epoch() && !to_mon {
            // Its sender will see our epoch and send us the changes; ask the monitors too, in case
            // that fails.
            self.hold(needed, epoch, from, message);
            if self.sh.now.since(self.map_asked) >= self.sh.config.timing.ping_interval {
                self.subscribe();
                if let Entity::Osd(osd) = from {
                    self.sh.send(
                        osd,
                        Message::Ping(Ping {
                            stamp: self.sh.now.0,
                        }),
                    );
                }
            }
            return;
        }
        if let Phase::Taking { .. } = self.phase {
            self.hold(epoch, epoch, from, message);
            return;
        }
        if !to_mon {
            self.bring_up_to_date(from, epoch);
        }
        if !self.is_live() {
            return;
        }
        match (from, message) {
            // OSDs read, too: sources of classes and copies.
            (Entity::Client(_) | Entity::Osd(_), Message::OpRequest(request, payload)) => {
                self.on_request(from, epoch, request, payload);
            }
            (Entity::Osd(_), Message::OpReply(reply, payload))
                if Copies::is_ours(reply.request.sequence) =>
            {
                self.on_copied(reply, payload);
            }
            (Entity::Osd(_), Message::OpReply(reply, payload)) => self.on_source(&reply, &payload),
            (Entity::Client(_), message) => self.on_watcher(from, epoch, message),
            (Entity::Osd(osd), message) => self.on_peer_message(osd, epoch, message),
            _ => {}
        }
    }

    /// Messages of watchers: pings, and acknowledgements of notifies.
    pub(super) fn on_watcher(&mut self, from: Entity, epoch: Epoch, message: Message) {
        let (id, object) = match &message {
            Message::WatchPing(m) => (m.pg, &m.object),
            Message::NotifyAck(m, _) => (m.pg, &m.object),
            _ => return,
        };
        let Some(pg) = self.pgs.get_mut(&id) else {
            return;
        };
        // A sender that does not know this interval repeats the message when it does.
        if pg.interval.since > epoch || key::seed(key::hash(object), pg.local.pg_num) != id.seed {
            return;
        }
        match (message, pg.lead()) {
            (Message::WatchPing(m), Some(mut lead)) => lead.on_watch_ping(from, m, &mut self.sh),
            (Message::NotifyAck(m, payload), Some(mut lead)) => {
                lead.on_notify_ack(&m, payload, &mut self.sh);
            }
            _ => {}
        }
        pg.count(&mut self.busy, &mut self.sh);
    }

    pub(super) fn on_request(
        &mut self,
        from: Entity,
        epoch: Epoch,
        request: nacre_wire::msg::client::OpRequest,
        payload: Payload,
    ) {
        let map = self.sh.map.as_ref().expect("live");
        let id = request.request;
        let client = matches!(from, Entity::Client(_));
        let nobody = Name::default();
        let name = self.names.get(&from).unwrap_or(&nobody);
        let failure = if client && is_fenced(map, &id) {
            OpFailure::Fenced {}
        } else if !client
            && request
                .ops
                .iter()
                .any(nacre_wire::msg::client::SubOp::is_write)
        {
            OpFailure::Invalid {
                why: "daemons only read".to_owned(),
            }
        } else if let Some(why) = denied(map, name, &request) {
            OpFailure::Denied { why }
        } else {
            // A duplicate from before this interval is never accepted: it does not reflect refusals
            // since then.
            let current = self
                .pgs
                .get(&request.pg)
                .is_some_and(|pg| epoch >= pg.interval.since);
            let mut behind = false;
            if let Some(away) = self
                .turned_away
                .get_mut(&request.pg)
                .filter(|_| client && current)
            {
                behind = !away.admit(self.sh.now, &request, true);
                if away.is_empty() {
                    self.turned_away.remove(&request.pg);
                }
            }
            match self.pgs.get_mut(&request.pg) {
                Some(pg) if !behind && right_group(&request, pg.local.pg_num) => {
                    pg.on_request(from, name, epoch, request, payload, &mut self.sh);
                    pg.count(&mut self.busy, &mut self.sh);
                    return;
                }
                _ => OpFailure::WrongTarget {},
            }
        };
        self.sh.refuse(from, id, request.attempt, failure);
    }

    pub(super) fn on_peer_message(&mut self, from: OsdId, epoch: Epoch, message: Message) {
        if let Message::Part(part) = message {
            let current = |pg: &Pg| pg.interval.since == part.interval;
            if self.pgs.get(&part.pg).is_some_and(current)
                && let Some(message) = self.parts.take(from, part)
            {
                self.on_peer_message(from, epoch, message);
            }
            return;
        }
        if let Message::Replicate(Replicate { updates }, payload) = message {
            return self.on_updates(from, updates, payload);
        }
        let sh = &mut self.sh;
        let (id, interval) = match &message {
            Message::Ping(ping) => {
                let lease = sh.peers.on_ping(sh.now, from);
                let lease_ns = u64::try_from(lease.as_nanos()).expect("a lease is short");
                let (nearly_full, share, most) =
                    (sh.room.is_nearly_full(), sh.room.share(), sh.room.most());
                let no_room = sh.has_no_room();
                let pong = Pong {
                    stamp: ping.stamp,
                    lease_ns,
                    nearly_full,
                    share,
                    most,
                    no_room,
                };
                sh.send(from, Message::Pong(pong));
                return;
            }
            Message::Pong(pong) => {
                let ours = sh.map.as_ref().map_or(Epoch::NONE, |map| map.epoch);
                sh.peers.says_full(from, pong.nearly_full);
                sh.peers.says_no_room(from, pong.no_room);
                if pong.share > 0 {
                    sh.under_way.says(from, pong.share, pong.most);
                }
                sh.peers.on_pong(
                    from,
                    Time(pong.stamp),
                    Duration::from_nanos(pong.lease_ns),
                    epoch,
                    ours,
                );
                for pg in self.pgs.values_mut().filter(|pg| pg.is_busy()) {
                    if let Some(mut lead) = pg.lead().filter(Lead::waits_for_lease) {
                        lead.process_all_objects(&mut self.sh);
                    }
                }
                self.find_busy();
                return;
            }
            Message::ReplicateAcks(acks) => {
                sh.peers.says_full(from, acks.nearly_full);
                for logged in &acks.logged {
                    if let Some(pg) = self.pgs.get_mut(&logged.pg) {
                        pg.on_member_logged(from, logged, sh);
                        pg.count(&mut self.busy, sh);
                    }
                }
                return;
            }
            Message::ReplicateApplied(m) => (m.pg, m.interval),
            Message::PeerQuery(m) => (m.pg, m.interval),
            Message::PeerInfo(m) => (m.pg, m.interval),
            Message::LogQuery(m) => (m.pg, m.interval),
            Message::LogReply(m) => (m.pg, m.interval),
            Message::Adopt(m) => (m.pg, m.interval),
            Message::AdoptAck(m) => (m.pg, m.interval),
            Message::Pull(m) => (m.pg, m.interval),
            Message::Push(m, _) => (m.pg, m.interval),
            Message::PushAck(m) => (m.pg, m.interval),
            Message::ScanQuery(m) => (m.pg, m.interval),
            Message::ScanReply(m) => (m.pg, m.interval),
            Message::Progress(m) => (m.pg, m.interval),
            Message::ProgressAck(m) => (m.pg, m.interval),
            Message::Discard(m) => (m.pg, m.interval),
            _ => return,
        };
        if let (Message::PeerQuery(query), None) = (&message, self.pgs.get(&id)) {
            // Queried as a member of an old interval whose data is gone: say so.
            self.answer_without_group(from, query.pg, query.interval);
            return;
        }
        let Some(pg) = self.pgs.get_mut(&id) else {
            return;
        };
        pg.on_message(from, interval, message, sh);
        pg.count(&mut self.busy, sh);
    }

    /// The updates that a primary ordered in one turn.
    fn on_updates(&mut self, from: OsdId, updates: Vec<ReplicaUpdate>, payload: Payload) {
        let mut payload = PayloadCursor::new(payload);
        for update in updates {
            // If the lengths do not match, the rest of the message is not used; the sender repeats
            // it.
            let Ok(data) = payload.take(usize::try_from(update.payload).unwrap_or(usize::MAX))
            else {
                return;
            };
            let Some(pg) = self.pgs.get_mut(&update.pg) else {
                continue;
            };
            pg.on_replicate(from, update, data, &mut self.sh);
            pg.count(&mut self.busy, &mut self.sh);
        }
    }

    pub(super) fn answer_without_group(&mut self, to: OsdId, pg: PgId, interval: Epoch) {
        let record = self
            .sh
            .map
            .as_ref()
            .and_then(|map| map.pgs.get(&pg))
            .filter(|record| record.since == interval);
        let Some(record) = record else { return };
        let left = record
            .activated
            .members
            .first()
            .map_or(Duration::ZERO, |osd| {
                self.sh.peers.lease_left(self.sh.now, *osd)
            });
        let lease_left_ns = u64::try_from(left.as_nanos()).expect("a lease is short");
        let info = nacre_wire::msg::replication::PgInfo::default();
        let message = nacre_wire::msg::replication::PeerInfo {
            pg,
            interval,
            info,
            lease_left_ns,
            logged_max: self.sh.logged_max,
        };
        self.sh.send(to, Message::PeerInfo(message));
    }
}

/// The map that must be known here before a message is handled. The holder of a lock that was taken
/// over from a fenced client names the epoch that contains the fence.
#[nacre_types::planted]
fn needed(epoch: Epoch, message: &Message) -> Epoch {
    match message {
        Message::OpRequest(request, _) => epoch.max(request.fence),
        _ => epoch,
    }
}

/// Whether the client's requests are not executed any more.
#[nacre_types::planted]
fn is_fenced(map: &ClusterMap, id: &RequestId) -> bool {
    map.is_fenced(Entity::Client(id.client), id.instance)
}

/// Why the client may not do that, if it may not. Only calls are checked: rights to read and write
/// will come with authentication.
fn denied(
    map: &ClusterMap,
    name: &Name,
    request: &nacre_wire::msg::client::OpRequest,
) -> Option<String> {
    use nacre_wire::msg::client::SubOp;
    let mut calls = request.ops.iter().filter(|op| op.is_call()).peekable();
    calls.peek()?;
    let pool = &map.pools.get(&request.pg.pool)?.name;
    let who = if name.as_bytes().is_empty() {
        "a client without a name".to_owned()
    } else {
        format!("client {name}")
    };
    calls.find_map(|op| {
        if let SubOp::Call { class, method, .. } = op {
            let denied = || format!("{who} may not call {class}.{method} in pool {pool}");
            return (!map.may_call(name, pool, class, method)).then(denied);
        }
        (!map.may_eval(name, pool))
            .then(|| format!("{who} may not run scripts of its own in pool {pool}"))
    })
}

/// Whether the client sent the object's operation to the right PG; listings go to any.
fn right_group(request: &nacre_wire::msg::client::OpRequest, pg_num: u32) -> bool {
    let listing = matches!(
        request.ops[..],
        [nacre_wire::msg::client::SubOp::ListObjects { .. }]
    );
    listing || key::seed(key::hash(&request.object), pg_num) == request.pg.seed
}
