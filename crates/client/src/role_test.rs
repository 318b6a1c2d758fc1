//! The role's watches, told by the test what OSDs and monitors would say.

use crate::{Client, ClientConfig, ObjectCluster, OpId, Operation, Output, WatchError, WatchEvent, WatchId};
use bytes::Bytes;
use nacre_types::{ClientId, ClusterId, Entity, Epoch, Instance, ObjectId, OsdId, PgId, PoolId, SnapId, Time, Version};
use nacre_wire::map::{Address, Change, CrushSection, Pool};
use nacre_wire::msg::client::{OpFailure, OpReply, OpRequest, RequestId, SnapContext, SubOp, SubReply};
use nacre_wire::msg::monitor::MapFull;
use nacre_wire::msg::watch::{WatchNotify, WatchPing, WatchPong, WatcherId};
use nacre_wire::{ClusterMap, Message, Wire};
use std::time::Duration;

const HIERARCHY: &str = "\
device 0 osd.0
device 1 osd.1
type 0 osd
type 1 root
root default { id -1 alg straw2 item osd.0 weight 1 item osd.1 weight 1 }
rule replicated { id 0 type replicated min_size 1 max_size 10 step take default step choose firstn 0 type osd step emit }
";
const ME: ClientId = ClientId(7);
const TIMEOUT: Duration = Duration::from_secs(4);

/// A role, and the map as the monitors have it.
struct Rig {
    role: Client,
    map: ClusterMap,
    now: Time,
}

impl Rig {
    fn new() -> Self {
        let mut map = ClusterMap::empty(ClusterId(1), CrushSection::parse(HIERARCHY).expect("well-formed"));
        let mut changes = Vec::new();
        for osd in 0..2 {
            let (id, store, address) = (OsdId(osd), u128::from(osd) + 1, Address(format!("o{osd}")));
            changes.push(Change::OsdNew { osd: id, store });
            changes.push(Change::OsdUp { osd: id, instance: Instance(1), address, store, features: 0, process: 1 });
        }
        changes.push(Change::PoolSet { pool: PoolId(1), settings: Pool::replicated("data".into(), 2, 1, 1) });
        map.apply(&map.delta(changes)).expect("the next delta");
        let now = Time(1_000_000_000);
        let mut rig = Self { role: Client::new(ClientConfig::new(ME), now), map, now };
        rig.tell_map();
        rig.sent();
        rig
    }
    fn tell_map(&mut self) {
        let message = Message::MapFull(MapFull { map: self.map.to_bytes().into() });
        self.role.on_message(self.now, Entity::Mon(nacre_types::MonId(0)), self.map.epoch, message);
    }
    fn commit(&mut self, change: Change) {
        self.map.apply(&self.map.delta(vec![change])).expect("the next delta");
        self.tell_map();
    }
    fn primary(&self) -> OsdId {
        self.map.pgs[&PgId::replicated(PoolId(1), 0)].primary().expect("somebody is up")
    }
    fn tell(&mut self, message: Message) {
        self.role.on_message(self.now, Entity::Osd(self.primary()), self.map.epoch, message);
    }
    /// What is sent to OSDs.
    fn sent(&mut self) -> Vec<(OsdId, Message)> {
        let mut out = Vec::new();
        self.role.take_outputs(&mut out);
        let to_osd = |output| match output {
            Output::Send { to, message } => Some((to, message)),
            _ => None,
        };
        out.into_iter().filter_map(to_osd).collect()
    }
    fn request(&mut self) -> OpRequest {
        match &self.sent()[..] {
            [(_, Message::OpRequest(request, _))] => request.clone(),
            other => panic!("{other:?}"),
        }
    }
    fn answer(&mut self, request: &OpRequest, failure: Option<OpFailure>, results: Vec<SubReply>) {
        let reply =
            OpReply { request: request.request, failure, version: Version::NONE, results, attempt: request.attempt };
        self.tell(Message::OpReply(reply, Vec::new()));
    }
    fn begin(&mut self) -> (WatchId, OpRequest) {
        let watch = self.role.watch(self.now, PoolId(1), ObjectId::named("a"), TIMEOUT).expect("taken");
        let request = self.request();
        assert_eq!(request.ops, [SubOp::Watch { cookie: watch.0, timeout_ms: 4000 }]);
        (watch, request)
    }
    /// A watch whose registration was answered; with its first ping taken.
    fn watching() -> (Self, WatchId) {
        let mut rig = Self::new();
        let (watch, request) = rig.begin();
        rig.answer(&request, None, vec![SubReply::Done {}]);
        assert_eq!(rig.pings(), [rig.primary()]);
        (rig, watch)
    }
    /// To whom pings go.
    fn pings(&mut self) -> Vec<OsdId> {
        let ping = |(to, message)| matches!(message, Message::WatchPing(WatchPing { .. })).then_some(to);
        self.sent().into_iter().filter_map(ping).collect()
    }
    fn events(&mut self) -> Vec<WatchEvent> {
        let mut events = Vec::new();
        self.role.watch_events(&mut events);
        events
    }
    fn pong(&mut self, watch: WatchId, stamp: u64, alive: bool) {
        let watcher = WatcherId { client: ME, instance: Instance(1), cookie: watch.0 };
        self.tell(Message::WatchPong(WatchPong { watcher, stamp, alive }));
    }
    fn notify(&mut self, watch: WatchId, number: u64) -> RequestId {
        let notify = RequestId { client: ClientId(9), instance: Instance(1), sequence: number };
        let watcher = WatcherId { client: ME, instance: Instance(1), cookie: watch.0 };
        let pg = PgId::replicated(PoolId(1), 0);
        let message = WatchNotify { pg, object: ObjectId::named("a"), watcher, notify };
        self.tell(Message::WatchNotify(message, vec![Bytes::from_static(b"new")]));
        notify
    }
}

#[test]
fn a_watch_is_kept_alive_by_pings_and_says_until_when_it_is_known() {
    let (mut rig, watch) = Rig::watching();
    assert_eq!(rig.role.watch_confirmed(watch), Some(rig.now));
    let due = rig.role.next_deadline();
    assert_eq!(due.since(rig.now), TIMEOUT / 4);
    let before = rig.now;
    rig.now = due;
    rig.role.on_tick(due);
    assert_eq!(rig.pings().len(), 1);
    assert_eq!(rig.role.watch_confirmed(watch), Some(before), "not answered yet");
    rig.pong(watch, due.0, true);
    rig.pong(watch, before.0, true);
    assert_eq!(rig.role.watch_confirmed(watch), Some(due), "and an old answer takes nothing back");
    rig.pong(watch, 0, false);
    assert_eq!(rig.events(), [WatchEvent::Lost { watch, since: due }]);
    assert_eq!(rig.role.watch_confirmed(watch), None);
    rig.pong(watch, 0, false);
    assert!(rig.events().is_empty(), "once");
}

#[test]
fn a_registration_that_fails_leaves_no_watch_and_one_under_way_is_not_lost() {
    let mut rig = Rig::new();
    let (watch, request) = rig.begin();
    rig.pong(watch, 0, false);
    assert!(rig.events().is_empty(), "its answer is still to come");
    rig.answer(&request, Some(OpFailure::NotFound {}), vec![]);
    let mut ended = Vec::new();
    rig.role.completions(&mut ended);
    assert_eq!((ended[0].id, ended[0].result.is_err()), (OpId(watch.0), true));
    rig.notify(watch, 1);
    assert!(rig.events().is_empty() && rig.role.unwatch(rig.now, watch) == Ok(None));
}

/// The primary repeats a notify until it is acknowledged; acknowledgements are lost, and a new primary asks anew.
#[test]
fn a_repeated_notify_is_told_once_and_acknowledged_as_often_as_it_comes() {
    let (mut rig, watch) = Rig::watching();
    let notify = rig.notify(watch, 1);
    rig.notify(watch, 1);
    let told = WatchEvent::Notify { watch, notify, payload: vec![Bytes::from_static(b"new")] };
    assert_eq!(rig.events(), [told]);
    assert!(rig.sent().is_empty(), "the service has not acknowledged it");
    let long = Bytes::from(vec![0; 4097]);
    assert_eq!(rig.role.ack_notify(rig.now, watch, notify, long), Err(WatchError::ReplyTooLarge));
    rig.role.ack_notify(rig.now, watch, notify, Bytes::from_static(b"ok")).expect("it was told");
    let first = rig.sent();
    assert!(matches!(&first[..], [(_, Message::NotifyAck(ack, _))] if ack.notify == notify), "{first:?}");
    rig.notify(watch, 1);
    assert!(rig.events().is_empty());
    assert_eq!(rig.sent(), first, "the same again");
    assert_eq!(rig.role.ack_notify(rig.now, watch, notify, Bytes::new()), Err(WatchError::NoSuchNotify));
    rig.notify(watch, 2);
    assert_eq!(rig.events().len(), 1, "another one");
}

#[test]
fn a_new_primary_is_pinged_at_once_and_a_broken_connection_too() {
    let (mut rig, _) = Rig::watching();
    let before = rig.primary();
    rig.role.on_peer_reset(rig.now, before);
    assert_eq!(rig.pings(), [before]);
    rig.commit(Change::OsdDown { osd: before, instance: Instance(1) });
    assert_ne!(rig.primary(), before);
    assert_eq!(rig.pings(), [rig.primary()]);
    rig.commit(Change::Flags { flags: 1 });
    assert!(rig.pings().is_empty(), "nothing moved");
}

#[test]
fn a_fence_and_a_removed_pool_end_watches() {
    let (mut rig, watch) = Rig::watching();
    rig.commit(Change::Fence { entity: Entity::Client(ME), instance: Instance(1) });
    assert!(matches!(rig.events()[..], [WatchEvent::Lost { watch: lost, .. }] if lost == watch));
    let (mut rig, watch) = Rig::watching();
    rig.commit(Change::PoolRemove { pool: PoolId(1) });
    assert!(matches!(rig.events()[..], [WatchEvent::Lost { watch: lost, .. }] if lost == watch));
}

#[test]
fn an_ended_watch_says_nothing_more() {
    let (mut rig, watch) = Rig::watching();
    assert!(rig.role.unwatch(rig.now, watch).expect("taken").is_some());
    assert_eq!(rig.request().ops, [SubOp::Unwatch { cookie: watch.0 }]);
    rig.pong(watch, 0, false);
    rig.notify(watch, 1);
    assert!(rig.events().is_empty());
}

/// An OSD that has not heard of the fence must wait for it before it acts for the new holder.
#[test]
fn what_is_sent_after_a_grant_carries_its_fence() {
    let mut rig = Rig::new();
    let op = |ops| Operation { pool: PoolId(1), object: ObjectId::named("a"), ops, ..Operation::default() };
    rig.role.submit(rig.now, op(vec![SubOp::Stat {}])).expect("taken");
    let before = rig.request();
    assert_eq!(before.fence, Epoch::NONE);
    rig.answer(&before, None, vec![SubReply::Locked { token: Version::NONE, fence: Epoch(40) }]);
    rig.role.submit(rig.now, op(vec![SubOp::Stat {}])).expect("taken");
    let after = rig.request();
    assert_eq!(after.fence, Epoch(40));
    rig.answer(&after, None, vec![SubReply::Locked { token: Version::NONE, fence: Epoch(30) }]);
    rig.role.submit(rig.now, op(vec![SubOp::Stat {}])).expect("taken");
    assert_eq!(rig.request().fence, Epoch(40), "never less");
}

/// Every attempt says the same: what an operation preserves is decided when it is submitted, not when it is sent.
#[test]
fn an_operation_carries_its_own_snapshot_context_with_every_attempt() {
    let mut rig = Rig::new();
    let snaps = SnapContext { sequence: 7, snapshots: vec![SnapId(7), SnapId(4)] };
    let operation = Operation {
        pool: PoolId(1),
        object: ObjectId::named("a"),
        ops: vec![SubOp::WriteFull { length: 0 }],
        snaps: snaps.clone(),
        ..Operation::default()
    };
    rig.role.submit(rig.now, operation).expect("taken");
    let first = rig.request();
    assert_eq!(first.snaps, snaps);
    rig.now = rig.now + Duration::from_secs(60);
    rig.role.on_tick(rig.now);
    let second = rig.request();
    assert_eq!((second.request, &second.snaps), (first.request, &snaps));
    assert!(second.attempt > first.attempt);
    let plain = Operation { pool: PoolId(1), object: ObjectId::named("a"), ..Operation::default() };
    rig.role.submit(rig.now, plain).expect("taken");
    assert_eq!(rig.request().snaps, SnapContext::default());
}
