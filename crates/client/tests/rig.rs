//! A client's role with a test that plays the OSDs and monitors.

use bytes::Bytes;
#[cfg(not(feature = "mutants"))]
use nacre_client::Client;
#[cfg(feature = "mutants")]
use nacre_client::broken::Client;
use nacre_client::{ClientConfig, Completion, ObjectCluster, OpId, Operation, WatchEvent, WatchId};
use nacre_role::Output;
use nacre_types::{
    ClientId, ClusterId, Entity, Instance, MonId, ObjectId, OsdId, PgId, PoolId, Time, Version,
};
use nacre_wire::map::{Address, Change, CrushSection, Pool};
use nacre_wire::msg::client::{OpFailure, OpReply, OpRequest, RequestId, SubOp, SubReply};
use nacre_wire::msg::monitor::{Command, CommandReply, MapFull};
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
pub const ME: ClientId = ClientId(7);
pub const TIMEOUT: Duration = Duration::from_secs(4);

/// A role, and the monitors' map.
pub struct Rig {
    pub role: Client,
    pub map: ClusterMap,
    pub now: Time,
}

pub fn config() -> ClientConfig {
    ClientConfig::new(ME)
}

impl Rig {
    pub fn new() -> Self {
        Self::with(config())
    }
    pub fn with(config: ClientConfig) -> Self {
        let mut map = ClusterMap::empty(
            ClusterId(1),
            CrushSection::parse(HIERARCHY).expect("well-formed"),
        );
        let mut changes = Vec::new();
        for osd in 0..2 {
            let (id, store, address) =
                (OsdId(osd), u128::from(osd) + 1, Address(format!("o{osd}")));
            changes.push(Change::OsdNew { osd: id, store });
            changes.push(Change::OsdUp {
                osd: id,
                instance: Instance(1),
                address,
                store,
                features: 0,
                process: 1,
            });
        }
        changes.push(Change::PoolSet {
            pool: PoolId(1),
            settings: Pool::replicated("data".into(), 2, 1, 1),
        });
        map.apply(&map.delta(changes)).expect("the next delta");
        let now = Time(1_000_000_000);
        let mut rig = Self {
            role: Client::new(config, now),
            map,
            now,
        };
        rig.tell_map();
        rig.sent();
        rig
    }
    pub fn tell_map(&mut self) {
        let message = Message::MapFull(MapFull {
            map: self.map.to_bytes().into(),
        });
        self.role
            .on_message(self.now, Entity::Mon(MonId(0)), self.map.epoch, message);
    }
    /// Commands for the monitors since the last call.
    pub fn commands(&mut self) -> Vec<Command> {
        let mut out = Vec::new();
        self.role.take_outputs(&mut out);
        let command = |output| match output {
            Output::SendMon {
                message: Message::Command(command),
            } => Some(command),
            _ => None,
        };
        out.into_iter().filter_map(command).collect()
    }
    /// A monitor's answer to one of them.
    pub fn reply(&mut self, token: u64, error: Option<&str>, reply: &str) {
        let reply = CommandReply {
            token,
            error: error.map(str::to_owned),
            reply: reply.to_owned(),
        };
        self.role.on_message(
            self.now,
            Entity::Mon(MonId(0)),
            self.map.epoch,
            Message::CommandReply(reply),
        );
    }
    pub fn commit(&mut self, change: Change) {
        self.map
            .apply(&self.map.delta(vec![change]))
            .expect("the next delta");
        self.tell_map();
    }
    pub fn primary(&self) -> OsdId {
        self.map.pgs[&PgId::replicated(PoolId(1), 0)]
            .primary()
            .expect("somebody is up")
    }
    pub fn tell(&mut self, message: Message) {
        self.role.on_message(
            self.now,
            Entity::Osd(self.primary()),
            self.map.epoch,
            message,
        );
    }
    /// Messages for OSDs.
    pub fn sent(&mut self) -> Vec<(OsdId, Message)> {
        let mut out = Vec::new();
        self.role.take_outputs(&mut out);
        let to_osd = |output| match output {
            Output::Send {
                to: Entity::Osd(to),
                message,
                ..
            } => Some((to, message)),
            _ => None,
        };
        out.into_iter().filter_map(to_osd).collect()
    }
    /// The only message for OSDs.
    pub fn request(&mut self) -> OpRequest {
        match &self.sent()[..] {
            [(_, Message::OpRequest(request, _))] => request.clone(),
            other => panic!("{other:?}"),
        }
    }
    /// Lets time pass; returns what is resent then.
    pub fn request_after(&mut self, wait: Duration) -> OpRequest {
        self.now = self.now + wait;
        self.role.on_tick(self.now);
        self.request()
    }
    /// All requests to OSDs: the OSD and the operation.
    pub fn requests(&mut self) -> Vec<(OsdId, u64)> {
        let of = |(to, message)| match message {
            Message::OpRequest(request, _) => (to, request.request.sequence),
            other => panic!("{other:?}"),
        };
        self.sent().into_iter().map(of).collect()
    }
    pub fn operation(&self, ops: Vec<SubOp>) -> Operation {
        Operation {
            pool: PoolId(1),
            object: ObjectId::named("a"),
            ops,
            ..Operation::default()
        }
    }
    pub fn submit(&mut self) -> OpId {
        let operation = self.operation(vec![SubOp::Stat {}]);
        self.role.submit(self.now, operation).expect("taken")
    }
    /// Submits an operation on an object; returns how it was sent.
    pub fn submit_to(&mut self, object: &str, op: SubOp) -> (OpId, OpRequest) {
        let operation = Operation {
            object: ObjectId::named(object),
            ..self.operation(vec![op])
        };
        let id = self.role.submit(self.now, operation).expect("taken");
        (id, self.request())
    }
    /// Lets time pass until everything sent counts as unanswered.
    pub fn wait_for_retry(&mut self) {
        self.now = self.now + config().retry_interval;
        self.role.on_tick(self.now);
    }
    pub fn completions(&mut self) -> Vec<Completion> {
        let mut all = Vec::new();
        self.role.completions(&mut all);
        all
    }
    /// How operations have ended.
    pub fn ended(&mut self) -> Vec<(OpId, bool)> {
        self.completions()
            .into_iter()
            .map(|one| (one.id, one.result.is_ok()))
            .collect()
    }
    /// Outputs other than messages to OSDs: "map" for a request of the map.
    pub fn others(&mut self) -> Vec<String> {
        let mut out = Vec::new();
        self.role.take_outputs(&mut out);
        let of = |output| match output {
            Output::SendMon {
                message: Message::Subscribe(_),
            } => Some("map".to_owned()),
            Output::SendMon { message } => Some(message.name().to_owned()),
            Output::Halt { why } => Some(why),
            _ => None,
        };
        out.into_iter().filter_map(of).collect()
    }
    pub fn answer(
        &mut self,
        request: &OpRequest,
        failure: Option<OpFailure>,
        results: Vec<SubReply>,
    ) {
        let reply = OpReply {
            request: request.request,
            failure,
            version: Version::NONE,
            results,
            attempt: request.attempt,
        };
        self.tell(Message::OpReply(reply, Vec::new()));
    }
    pub fn begin(&mut self) -> (WatchId, OpRequest) {
        let watch = self
            .role
            .watch(self.now, PoolId(1), ObjectId::named("a"), TIMEOUT)
            .expect("taken");
        let request = self.request();
        assert_eq!(
            request.ops,
            [SubOp::Watch {
                cookie: watch.0,
                timeout_ms: 4000
            }]
        );
        (watch, request)
    }
    /// A watch whose registration was answered, with its first ping taken.
    pub fn watching() -> (Self, WatchId) {
        let mut rig = Self::new();
        let (watch, request) = rig.begin();
        rig.answer(&request, None, vec![SubReply::Done {}]);
        assert_eq!(rig.pings(), [rig.primary()]);
        (rig, watch)
    }
    /// The OSDs that pings are sent to.
    pub fn pings(&mut self) -> Vec<OsdId> {
        let ping =
            |(to, message)| matches!(message, Message::WatchPing(WatchPing { .. })).then_some(to);
        self.sent().into_iter().filter_map(ping).collect()
    }
    pub fn events(&mut self) -> Vec<WatchEvent> {
        let mut events = Vec::new();
        self.role.watch_events(&mut events);
        events
    }
    pub fn pong(&mut self, watch: WatchId, stamp: u64, alive: bool) {
        let watcher = WatcherId {
            client: ME,
            instance: Instance(1),
            cookie: watch.0,
        };
        self.tell(Message::WatchPong(WatchPong {
            watcher,
            stamp,
            alive,
        }));
    }
    pub fn notify(&mut self, watch: WatchId, number: u64) -> RequestId {
        let notify = RequestId {
            client: ClientId(9),
            instance: Instance(1),
            sequence: number,
        };
        let watcher = WatcherId {
            client: ME,
            instance: Instance(1),
            cookie: watch.0,
        };
        let pg = PgId::replicated(PoolId(1), 0);
        let message = WatchNotify {
            pg,
            object: ObjectId::named("a"),
            watcher,
            notify,
        };
        self.tell(Message::WatchNotify(
            message,
            vec![Bytes::from_static(b"new")],
        ));
        notify
    }
}
