//! A test cluster: several whole daemons on RAM stores with a lossless network, monitors that
//! accept everything, and one client. For tests that need more than one daemon. Time advances under
//! the test's control.

use super::rig::{Host, MON, Monitors, PG, process, weighted};
use crate::key;
use bytes::Bytes;
use nacre_types::{ClientId, Entity, Epoch, Instance, ObjectId, OsdId, PgId, Version};
use nacre_wire::map::{Change, Weight};
use nacre_wire::msg::client::{
    OpApplied, OpFailure, OpReply, OpRequest, RequestId, SubOp, SubReply,
};
use nacre_wire::msg::monitor::PgReport;
use nacre_wire::{Message, Payload};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const CLIENT: ClientId = ClientId(9);

/// A primary's knowledge of objects matches its store: after a failover, or when the primary has
/// dropped an object's context, only the store's state is known.
fn nothing_is_known_wrongly(host: &Host) {
    for (pg, primary) in host.osd.pgs().filter_map(|pg| Some((pg, pg.as_primary()?))) {
        for (object, known) in primary.objects.contexts() {
            let stat = match host
                .store
                .peek(&nacre_store::Read::Stat(key::store_key(pg.id(), object)))
            {
                Ok(nacre_store::ReadReply::Stat(stat)) => stat,
                Ok(other) => panic!("{other:?}"),
                Err(_) => None,
            };
            let stored = nacre_object::Context::of(stat);
            if known.is_stored() || stored.is_stored() {
                assert_eq!(
                    *known,
                    stored,
                    "{} {object}: what is known, and what is stored",
                    host.osd.id()
                );
            }
        }
    }
}

/// The cluster; see the module head.
pub(super) struct Company {
    pub(super) monitors: Monitors,
    /// The running daemons.
    pub(super) hosts: BTreeMap<u32, Host>,
    /// The answers that the client received.
    pub(super) replies: Vec<(OpReply, Payload)>,
    /// The early messages that the client received before its answers; each with the number of
    /// answers by then.
    pub(super) early: Vec<(OpApplied, usize)>,
    /// Messages to watchers that they have not taken yet.
    pub(super) told: Vec<(ClientId, Message)>,
    /// Lines for the cluster log.
    pub(super) log: Vec<String>,
    /// The keys of which the log has its one line.
    log_keys: BTreeSet<String>,
    /// The last reports of primaries on their PGs.
    pub(super) reports: BTreeMap<nacre_types::PgId, PgReport>,
    /// The OSDs that last reported no space for recovery.
    pub(super) without_room: BTreeSet<u32>,
    /// Messages between OSDs with this property are lost.
    pub(super) lose: fn(&Message) -> bool,
    /// OSDs' requests to the monitors are lost.
    pub(super) unheard: bool,
    sequence: u64,
}

impl Company {
    /// A cluster of `osds` OSDs, all up, and one pool of one PG; settled.
    pub(super) fn new(osds: u32, min_size: u8, size: u8) -> Self {
        let mut company = Self::without_pool(osds);
        let before = company.monitors.map.epoch;
        company.monitors.pool_that_needs(min_size, size);
        company.tell_map(before);
        company.wait(1500);
        company
    }
    /// A cluster of `osds` OSDs, all up.
    pub(super) fn without_pool(osds: u32) -> Self {
        let hosts: BTreeMap<u32, Host> = (0..osds).map(|osd| (osd, Host::new(osd))).collect();
        let monitors = Monitors::all_up(osds);
        let mut company = Self {
            monitors,
            hosts,
            replies: Vec::new(),
            early: Vec::new(),
            told: Vec::new(),
            log: Vec::new(),
            log_keys: BTreeSet::new(),
            reports: BTreeMap::new(),
            without_room: BTreeSet::new(),
            lose: |_| false,
            unheard: false,
            sequence: 0,
        };
        company.tell_map(Epoch::NONE);
        company
    }

    /// Distributes the changes since an epoch to all.
    pub(super) fn tell_map(&mut self, since: Epoch) {
        let epoch = self.monitors.map.epoch;
        for host in self.hosts.values_mut() {
            let known = host.osd.map().is_some();
            let message = if known {
                self.monitors.since(since)
            } else {
                self.monitors.full()
            };
            host.tell(MON, epoch, message);
        }
        self.settle();
    }
    /// The monitors commit changes.
    pub(super) fn commit(&mut self, changes: Vec<Change>) {
        let before = self.monitors.map.epoch;
        self.monitors.commit(changes);
        self.tell_map(before);
    }
    /// The monitors set an option.
    pub(super) fn set(&mut self, key: &str, value: &str) {
        self.commit(vec![Change::Config {
            key: key.into(),
            value: Some(value.to_owned()),
        }]);
    }
    /// The monitors set these flags, and clear all others.
    pub(super) fn flags(&mut self, flags: u64) {
        self.commit(vec![Change::Flags { flags }]);
    }
    /// An operator changes an OSD's weight.
    pub(super) fn weigh(&mut self, osd: u32, weight: Weight) {
        self.commit(vec![weighted(osd, weight)]);
    }
    /// A daemon dies, and all others are informed.
    pub(super) fn kill(&mut self, osd: u32) -> Host {
        let host = self.hosts.remove(&osd).expect("it runs");
        self.commit(vec![Change::OsdDown {
            osd: OsdId(osd),
            instance: host.osd.instance(),
        }]);
        host
    }
    /// Another instance of it starts, on the durable state.
    pub(super) fn revive(&mut self, host: Host, starts: u64) {
        let (id, now) = (
            host.osd.id().0,
            self.hosts
                .values()
                .map(|host| host.now)
                .max()
                .unwrap_or(host.now),
        );
        let mut host = host.restart(starts);
        host.now = host.now.max(now);
        let before = self.monitors.map.epoch;
        self.monitors.up(id, process(id, starts));
        self.hosts.insert(id, host);
        self.tell_map(before);
    }

    /// Delivers messages until none is left.
    pub(super) fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 10_000, "they talk without an end");
            let mut under_way = Vec::new();
            let mut requests = Vec::new();
            for (id, host) in &mut self.hosts {
                let (from, epoch) = (Entity::Osd(OsdId(*id)), host.osd.epoch());
                under_way.extend(
                    std::mem::take(&mut host.sent)
                        .into_iter()
                        .map(|(to, message)| (from, to, epoch, message)),
                );
                requests.append(&mut host.to_mon);
            }
            if under_way.is_empty() && requests.is_empty() {
                // A store that answers at once has answered everything: one answer that is never
                // taken keeps the entries of all later ones.
                let quiet = self
                    .hosts
                    .values()
                    .filter(|host| host.commits && host.held.is_none());
                quiet.for_each(|host| {
                    assert_eq!(
                        host.osd.pending_events(),
                        0,
                        "{} waits for what has come",
                        host.osd.id()
                    )
                });
                for host in self.hosts.values() {
                    host.osd.check();
                    nothing_is_known_wrongly(host);
                }
                return;
            }
            for (from, to, epoch, message) in under_way {
                assert_ne!(from, to, "an OSD has nothing to say to itself: {message:?}");
                match (to, message) {
                    (Entity::Osd(osd), message) if !(self.lose)(&message) => {
                        if let Some(host) = self.hosts.get_mut(&osd.0) {
                            host.tell(from, epoch, message);
                        }
                    }
                    (Entity::Client(_), Message::OpReply(reply, payload)) => {
                        self.replies.push((reply, payload))
                    }
                    (
                        Entity::Client(client),
                        message @ (Message::WatchNotify(..) | Message::WatchPong(_)),
                    ) => {
                        self.told.push((client, message));
                    }
                    (Entity::Client(_), Message::OpApplied(applied)) => {
                        self.early.push((applied, self.replies.len()))
                    }
                    _ => {}
                }
            }
            if self.unheard {
                requests.clear();
            }
            for request in requests {
                self.on_request(request);
            }
        }
    }

    fn on_request(&mut self, request: Message) {
        let since =
            |company: &Self, pg| company.monitors.map.pgs.get(&pg).map(|record| record.since);
        match request {
            Message::PgActivateRequest(m)
                if since(self, m.pg) == Some(m.interval)
                    && self.monitors.map.pgs[&m.pg].activated.interval != m.interval =>
            {
                self.commit(vec![Change::PgActivate {
                    pg: m.pg,
                    interval: m.interval,
                    members: m.members,
                }]);
            }
            Message::PgTemporaryRequest(m)
                if since(self, m.pg) == Some(m.interval)
                    && m.acting
                        .iter()
                        .all(|osd| self.monitors.map.up_osd(*osd).is_some()) =>
            {
                self.commit(vec![Change::PgTemporary {
                    pg: m.pg,
                    interval: m.interval,
                    acting: m.acting,
                }]);
            }
            Message::ClusterLog(m) => {
                // Like the monitors.
                let keys = &mut self.log_keys;
                let new = m
                    .lines
                    .into_iter()
                    .filter(|line| line.once.is_empty() || keys.insert(line.once.clone()));
                self.log.extend(new.map(|line| line.text));
            }
            Message::Beacon(m) => {
                if m.no_room {
                    self.without_room.insert(m.osd.0);
                } else {
                    self.without_room.remove(&m.osd.0);
                }
                self.reports
                    .extend(m.pgs.into_iter().map(|report| (report.pg, report)));
            }
            _ => {}
        }
    }

    /// Time advances for all, in steps.
    pub(super) fn wait(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(50) {
            for host in self.hosts.values_mut() {
                host.wait(50);
            }
            self.settle();
        }
    }

    /// The acting set of the PG.
    pub(super) fn acting(&self) -> Vec<u32> {
        self.monitors.map.pgs[&PG]
            .acting
            .iter()
            .map(|osd| osd.0)
            .collect()
    }
    /// The daemon.
    pub(super) fn host(&mut self, osd: u32) -> &mut Host {
        self.hosts.get_mut(&osd).expect("it runs")
    }
    /// Sends an operation to the primary; returns its request.
    pub(super) fn send(
        &mut self,
        object: &str,
        ops: Vec<SubOp>,
        data: &[u8],
        flags: u32,
    ) -> OpRequest {
        let request = self.request(CLIENT, object, ops, flags);
        self.resend(&request, data);
        request
    }
    /// The next operation of a client, not sent yet.
    pub(super) fn request(
        &mut self,
        client: ClientId,
        object: &str,
        ops: Vec<SubOp>,
        flags: u32,
    ) -> OpRequest {
        self.sequence += 1;
        OpRequest {
            request: RequestId {
                client,
                instance: Instance(1),
                sequence: self.sequence,
            },
            answered_below: self.sequence,
            pg: self.group(object),
            object: ObjectId::named(object),
            ops,
            flags,
            attempt: 1,
            ..OpRequest::default()
        }
    }
    /// A client sends a message to the primary of an object.
    pub(super) fn say(&mut self, client: ClientId, object: &str, message: Message) {
        let pg = self.group(object);
        let (primary, epoch) = (
            self.monitors.map.pgs[&pg].acting[0].0,
            self.monitors.map.epoch,
        );
        self.host(primary)
            .tell(Entity::Client(client), epoch, message);
    }
    /// The PG of an object.
    pub(super) fn group(&self, object: &str) -> PgId {
        let pg_num = self.monitors.map.pools[&PG.pool].pg_num;
        PgId {
            seed: key::seed(key::hash(&ObjectId::named(object)), pg_num),
            ..PG
        }
    }
    /// Resends it to the current primary.
    pub(super) fn resend(&mut self, request: &OpRequest, data: &[u8]) {
        let (primary, epoch) = (
            self.monitors.map.pgs[&request.pg].acting[0].0,
            self.monitors.map.epoch,
        );
        let payload = if data.is_empty() {
            Payload::new()
        } else {
            vec![Bytes::copy_from_slice(data)]
        };
        self.host(primary).tell(
            Entity::Client(request.request.client),
            epoch,
            Message::OpRequest(request.clone(), payload),
        );
    }
    /// The answer to an operation, if there is one.
    pub(super) fn answer(
        &mut self,
        request: &OpRequest,
    ) -> Option<Result<(Version, Vec<u8>), OpFailure>> {
        let (reply, payload) = self
            .replies
            .iter()
            .find(|(reply, _)| reply.request == request.request)?;
        Some(match &reply.failure {
            None => Ok((reply.version, payload.iter().flatten().copied().collect())),
            Some(failure) => Err(failure.clone()),
        })
    }
    /// Executes an operation and returns its answer, within a few seconds.
    pub(super) fn op(
        &mut self,
        object: &str,
        ops: Vec<SubOp>,
        data: &[u8],
    ) -> Result<Vec<u8>, OpFailure> {
        let request = self.send(object, ops, data, 0);
        self.await_answer(&request).map(|(_, data)| data)
    }
    /// The answer to a sent operation, within a few seconds.
    pub(super) fn await_answer(
        &mut self,
        request: &OpRequest,
    ) -> Result<(Version, Vec<u8>), OpFailure> {
        self.settle();
        for _ in 0..100 {
            if let Some(answer) = self.answer(request) {
                return answer;
            }
            self.wait(50);
        }
        panic!("no answer to {request:?}; {:?}", self.reports);
    }
    /// The results of the parts of an answered operation.
    pub(super) fn results(&self, request: &OpRequest) -> Vec<SubReply> {
        let (reply, _) = self
            .replies
            .iter()
            .rev()
            .find(|(reply, _)| reply.request == request.request)
            .expect("answered");
        reply.results.clone()
    }
    pub(super) fn write(&mut self, object: &str, data: &[u8]) -> Result<(), OpFailure> {
        self.op(
            object,
            vec![SubOp::WriteFull {
                length: data.len() as u64,
            }],
            data,
        )
        .map(|_| ())
    }
    /// The client overwrites a part of the object.
    pub(super) fn patch(
        &mut self,
        object: &str,
        offset: u64,
        data: &[u8],
    ) -> Result<Vec<u8>, OpFailure> {
        let length = data.len() as u64;
        self.op(object, vec![SubOp::Write { offset, length }], data)
    }
    pub(super) fn read(&mut self, object: &str) -> Result<Vec<u8>, OpFailure> {
        self.op(
            object,
            vec![SubOp::Read {
                offset: 0,
                length: 1 << 16,
            }],
            &[],
        )
    }

    /// Corrupts the object's first block at a member.
    pub(super) fn rot(&mut self, osd: u32, object: &str) {
        let place = key::store_key(PG, &ObjectId::named(object));
        assert!(
            self.host(osd).store.corrupt(&place, 0),
            "it has such a block"
        );
    }
    /// Whether the member's store can read the object.
    pub(super) fn can_read(&mut self, osd: u32, object: &str) -> bool {
        use nacre_store::ObjectStore;
        let object = key::store_key(PG, &ObjectId::named(object));
        let host = self.host(osd);
        host.store.read(
            nacre_store::Read::Data {
                object,
                offset: 0,
                length: 1 << 16,
            },
            nacre_store::Token(u64::MAX),
        );
        let mut events = Vec::new();
        host.store.poll(&mut events);
        matches!(events[..], [nacre_store::Event::Read(_, Ok(_))])
    }
    /// The object's data in the member's store.
    pub(super) fn data_at(&mut self, osd: u32, object: &ObjectId) -> Vec<u8> {
        let object = key::store_key(PG, object);
        match self.host(osd).store.peek(&nacre_store::Read::Data {
            object,
            offset: 0,
            length: 1 << 16,
        }) {
            Ok(nacre_store::ReadReply::Data(data)) => data.concat(),
            other => panic!("osd.{osd}: {other:?}"),
        }
    }
    /// Whether the member's store has the object.
    pub(super) fn has(&mut self, osd: u32, object: &str) -> bool {
        let object = key::store_key(self.group(object), &ObjectId::named(object));
        matches!(
            self.host(osd).store.peek(&nacre_store::Read::Stat(object)),
            Ok(nacre_store::ReadReply::Stat(Some(_)))
        )
    }
    /// Sets other limits for all daemons.
    pub(super) fn limit(&mut self, limits: crate::Limits) {
        for host in self.hosts.values_mut() {
            host.osd.set_limits(limits);
        }
    }
    /// The data of an object and the version of its last update.
    pub(super) fn answer_of(&mut self, object: &str) -> (Version, Vec<u8>) {
        let request = self.send(
            object,
            vec![SubOp::Read {
                offset: 0,
                length: 1 << 16,
            }],
            &[],
            0,
        );
        self.await_answer(&request).expect("it is there")
    }
    /// Whether the cluster log contains the text.
    pub(super) fn was_said(&self, text: &str) -> bool {
        self.log.iter().any(|line| line.contains(text))
    }
}
