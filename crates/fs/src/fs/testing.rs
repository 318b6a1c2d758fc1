//! For tests: a client with a server, objects and a registry that say what each test wants.

use super::*;
use nacre_client::{Capabilities, MetaDone, MetaId, MetaWatchId, Refused, WatchNews};
use nacre_types::{ClientId, Epoch, PoolId, Rank};
use nacre_wire::Wire as _;
use nacre_wire::fs::{FileKind, FsHolder, FsKey, FsSettings, Inode};
use nacre_wire::map::Address;
use nacre_wire::msg::fs::{FsGrant, FsReply, FsSafe, FsSession, FsWelcome};
use nacre_wire::msg::meta::{MetaCall, MetaPair, MetaResult, MetaSpan};

/// The file that tests use, in objects of 4 KiB.
pub const INO: Ino = Ino(1 << 20);
pub const LAYOUT: Layout = Layout { pool: PoolId(1), unit: 4096, count: 1, object: 4096 };

/// What a server says of it.
pub fn node(size: u64) -> FsAnswer {
    let mut inode = Inode::new(INO, FileKind::File {}, 0o644, (1, 1), Stamp(1));
    (inode.size, inode.layout) = (size, Some(LAYOUT));
    FsAnswer::Node { node: FsNode { inode, head: None, home: None }, made: false }
}

const SERVER: ClientId = ClientId(9);

/// An answer that is safe, and that may not be kept.
pub fn reply_to(number: Option<u64>, answer: FsAnswer) -> FsReply {
    FsReply {
        number: number.expect("it was asked"),
        safe: true,
        stamp: Stamp(1),
        place: None,
        keep: false,
        shares: Vec::new(),
        changed: Vec::new(),
        caps: Vec::new(),
        answer,
    }
}

/// Takes so many operations, and ends them when a test does.
#[derive(Default)]
pub struct Objects {
    pub room: usize,
    next: u64,
    pub taken: Vec<(OpId, Operation)>,
    pub ended: Vec<Completion>,
    pub rests_on: Epoch,
}
impl Objects {
    /// The first of them has been done.
    pub fn end_well(&mut self) {
        self.end(Ok(Done { version: Default::default(), results: Vec::new(), payload: Vec::new() }));
    }
    /// The first of them ends so.
    pub fn end(&mut self, result: Result<Done, Failure>) {
        let (id, _) = self.taken.remove(0);
        self.ended.push(Completion { id, result });
    }
}
impl ObjectCluster for Objects {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }
    fn submit(&mut self, _: Time, operation: Operation) -> Result<OpId, Refused> {
        if self.taken.len() >= self.room {
            return Err(Refused::Busy);
        }
        self.next += 1;
        self.taken.push((OpId(self.next), operation));
        Ok(OpId(self.next))
    }
    fn completions(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.ended);
    }
    fn rest_on(&mut self, epoch: Epoch) {
        self.rests_on = epoch;
    }
}

/// Says that the server has the rank.
#[derive(Default)]
struct Registry(Option<MetaId>);
impl Metadata for Registry {
    fn submit(&mut self, _: Time, _: MetaCall) -> Option<MetaId> {
        self.0 = Some(MetaId(1));
        self.0
    }
    fn abandon(&mut self, _: MetaId) {}
    fn done(&mut self, into: &mut Vec<MetaDone>) {
        let settings = FsSettings { namespace: "n".into(), pool: PoolId(1), layout: LAYOUT, ranks: 1 };
        let address = Address("a".into());
        let holder = FsHolder { client: SERVER.0, instance: Instance(1), address, name: "mds".into() };
        let pair = |key: FsKey, value: Vec<u8>| MetaPair {
            key: key.of(&"home".into()),
            value: value.into(),
            created: 1,
            modified: 1,
            version: 1,
            lease: 0,
            epoch: Epoch::default(),
        };
        let pairs = vec![pair(FsKey::Settings, settings.to_bytes()), pair(FsKey::Rank(Rank(0)), holder.to_bytes())];
        if let Some(id) = self.0.take() {
            into.push(MetaDone { id, revision: 1, result: Ok(MetaResult::Ranged { pairs, more: false }) });
        }
    }
    fn watch(&mut self, _: MetaSpan, _: u64) -> MetaWatchId {
        MetaWatchId(1)
    }
    fn cancel(&mut self, _: MetaWatchId) {}
    fn news(&mut self, _: &mut Vec<(MetaWatchId, WatchNews)>) {}
}

pub struct Client {
    pub fs: Fs,
    pub objects: Objects,
    registry: Registry,
    pub now: Time,
    pub said: Vec<Message>,
}
impl Client {
    pub fn new() -> Self {
        Self::keeping(0)
    }
    /// One that keeps so many names and attributes.
    pub fn keeping(names_max: usize) -> Self {
        let config = FsConfig {
            file_system: "home".into(),
            about: "a test".into(),
            instance: Instance(5),
            unix_ms_at_zero: 0,
            names_max,
            data_max: 0,
            dirty_max: 1,
        };
        let (fs, objects, registry) = (Fs::new(config), Objects::default(), Registry::default());
        let mut client = Self { fs, objects, registry, now: Time(1), said: Vec::new() };
        client.come();
        client
    }
    pub fn turn(&mut self, message: Option<Message>) {
        let (from, epoch) = (Entity::Client(SERVER), Epoch(self.now.0 / 1_000_000 + 1));
        self.input(message.map(|message| Input::Message { from, epoch, message }));
    }
    /// The connection to the server has broken.
    pub fn lose(&mut self) {
        self.input(Some(Input::Gone(Entity::Client(SERVER))));
    }
    fn input(&mut self, input: Option<Input>) {
        self.now = self.now + Duration::from_millis(1);
        let mut out = Vec::new();
        self.fs.on_turn(self.now, &mut input.into_iter(), &mut self.objects, &mut self.registry, &mut out);
        self.hear(out);
    }
    /// What it has said.
    pub fn hear(&mut self, out: Vec<Output>) {
        self.said.extend(out.into_iter().filter_map(|output| match output {
            Output::Send { message, .. } => Some(message),
            _ => None,
        }));
    }
    /// Finds the server and greets it: what it says of itself.
    pub fn come(&mut self) -> FsSession {
        self.said.clear();
        for _ in 0..4 {
            self.now = self.now + SEEK_AGAIN;
            self.turn(None);
        }
        let session = self.said.iter().rev().find_map(|message| match message {
            Message::FsSession(session) => Some(session.clone()),
            _ => None,
        });
        let session = session.expect("it greets");
        let welcome = FsWelcome { again: false, greeting: session.greeting };
        self.turn(Some(Message::FsWelcome(welcome)));
        session
    }
    /// Asks; the number of the request, if there is one.
    pub fn ask(&mut self, ask: Ask) -> (CallId, Option<u64>) {
        self.said.clear();
        let call = self.fs.begin(ask);
        self.turn(None);
        (call, self.asked(|_| true))
    }
    /// The first request of that kind that it has made since.
    pub fn asked(&self, is_it: impl Fn(&FsCall) -> bool) -> Option<u64> {
        self.said.iter().find_map(|message| match message {
            Message::FsRequest(request) => is_it(&request.call).then_some(request.number),
            _ => None,
        })
    }
    pub fn answer(&mut self, number: Option<u64>, answer: FsAnswer) {
        self.answer_with(number, answer, true);
    }
    /// `safe`: it is in the journal.
    pub fn answer_with(&mut self, number: Option<u64>, answer: FsAnswer, safe: bool) {
        // What is open others have open, too.
        let caps = match &answer {
            FsAnswer::Node { node, .. } => vec![FsGrant { ino: node.inode.ino, cap: FsCap::Sync {} }],
            _ => Vec::new(),
        };
        self.reply(FsReply { safe, caps, ..reply_to(number, answer) });
    }
    /// An answer that may be kept, under a share of the root.
    pub fn answer_shared(&mut self, number: Option<u64>, mut answer: FsAnswer) {
        answer.nodes_mut().for_each(|node| node.home = Some(Ino::ROOT));
        self.reply(FsReply { keep: true, shares: vec![Ino::ROOT], ..reply_to(number, answer) });
    }
    pub fn reply(&mut self, reply: FsReply) {
        self.turn(Some(Message::FsReply(reply)));
    }
    /// All operations under way have been done.
    pub fn all_done(&mut self) {
        while !self.objects.taken.is_empty() {
            self.objects.end_well();
        }
        self.turn(None);
    }
    /// Its server knows that this is in the journal.
    pub fn is_safe(&mut self, number: Option<u64>) {
        let numbers = number.into_iter().collect();
        self.turn(Some(Message::FsSafe(FsSafe { numbers })));
    }
    pub fn ended(&mut self) -> Vec<(CallId, Outcome)> {
        let mut ended = Vec::new();
        self.fs.ended(&mut ended);
        ended
    }
}
