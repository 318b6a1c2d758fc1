//! For tests: a client with a server, objects and a registry that each test controls.

use super::*;
use nacre_client::{Capabilities, MetaDone, MetaId, MetaWatchId, Refused, Room, WatchNews};
use nacre_types::{ClientId, Epoch, PoolId, Rank};
use nacre_wire::Wire as _;
use nacre_wire::fs::{FileKind, FsHolder, FsKey, FsSettings, Inode};
use nacre_wire::map::Address;
use nacre_wire::msg::fs::{
    FsCapNews, FsCaps, FsGrant, FsReply, FsRequest, FsSafe, FsSession, FsWelcome,
};
use nacre_wire::msg::meta::{MetaCall, MetaPair, MetaResult, MetaSpan};

/// The file that tests use, in objects of 4 KiB.
pub const INO: Ino = Ino(1 << 20);
pub const LAYOUT: Layout = Layout {
    pool: PoolId(1),
    unit: 4096,
    count: 1,
    object: 4096,
};

/// A server's description of it.
pub fn node(size: u64) -> FsAnswer {
    let mut inode = Inode::new(INO, FileKind::File {}, 0o644, (1, 1), Stamp(1));
    (inode.size, inode.layout) = (size, Some(LAYOUT));
    FsAnswer::Node {
        node: FsNode {
            inode,
            head: None,
            home: None,
        },
        made: false,
    }
}

/// Opens a file of the root, and creates it if it does not exist.
pub fn make_open(name: Name, write: bool) -> FsCall {
    FsCall::Make {
        dir: Ino::ROOT,
        name,
        kind: FileKind::File {},
        mode: 0o644,
        umask: 0,
        uid: 1,
        gid: 1,
        target: Bytes::new(),
        device: 0,
        exclusive: false,
        open: true,
        write,
    }
}
/// The server of a rank.
pub const fn server(rank: u16) -> ClientId {
    ClientId(9 + rank as u64)
}
const SERVER: ClientId = server(0);

/// A safe answer that may not be cached.
pub fn reply_to(number: Option<u64>, answer: FsAnswer) -> FsReply {
    FsReply {
        number: number.expect("it was asked"),
        safe: true,
        stamp: Stamp(1),
        place: None,
        keep: false,
        shares: Vec::new(),
        delegated: Vec::new(),
        changed: Vec::new(),
        caps: Vec::new(),
        answer,
    }
}

/// Accepts this many operations, and ends them when a test does.
#[derive(Default)]
pub struct Objects {
    pub room: usize,
    next: u64,
    pub taken: Vec<(OpId, Operation)>,
    pub ended: Vec<Completion>,
    pub rests_on: Epoch,
    /// The cluster's free space, and which pool was asked for.
    pub fullness: Option<Room>,
    pub looked_at: Option<PoolId>,
}
impl Objects {
    /// The first operation has succeeded.
    pub fn end_well(&mut self) {
        self.end(Ok(Done {
            version: Default::default(),
            results: Vec::new(),
            payload: Vec::new(),
        }));
    }
    /// The first operation ends with this result.
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
    fn room(&mut self, _: Time, pool: PoolId) -> Room {
        self.looked_at = Some(pool);
        self.fullness.unwrap_or(Room::UNKNOWN)
    }
}

/// Reports that servers hold their ranks.
#[derive(Default)]
pub struct Registry {
    question: Option<MetaId>,
    ranks: u16,
    /// Ranks without a server.
    without: BTreeSet<u16>,
    is_removed: bool,
}
impl Metadata for Registry {
    fn submit(&mut self, _: Time, _: MetaCall) -> Option<MetaId> {
        self.question = Some(MetaId(1));
        self.question
    }
    fn abandon(&mut self, _: MetaId) {}
    fn done(&mut self, into: &mut Vec<MetaDone>) {
        let settings = FsSettings {
            namespace: "n".into(),
            pool: PoolId(1),
            layout: LAYOUT,
            ranks: self.ranks,
        };
        let holder = |rank| {
            let address = Address("a".into());
            FsHolder {
                client: server(rank).0,
                instance: Instance(1),
                address,
                name: "mds".into(),
            }
        };
        let pair = |key: FsKey, value: Vec<u8>| MetaPair {
            key: key.of(&"home".into()),
            value: value.into(),
            created: 1,
            modified: 1,
            version: 1,
            lease: 0,
            epoch: Epoch::default(),
        };
        let mut pairs = vec![pair(FsKey::Settings, settings.to_bytes())];
        for rank in (0..self.ranks).filter(|rank| !self.without.contains(rank)) {
            pairs.push(pair(FsKey::Rank(Rank(rank)), holder(rank).to_bytes()));
        }
        if self.is_removed {
            pairs.clear();
        }
        if let Some(id) = self.question.take() {
            into.push(MetaDone {
                id,
                revision: 1,
                result: Ok(MetaResult::Ranged { pairs, more: false }),
            });
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
    /// The same, with the receiver.
    pub said_to: Vec<(Entity, Message)>,
}
impl Client {
    pub fn new() -> Self {
        Self::keeping(0)
    }
    /// A client that caches this many names and attributes.
    pub fn keeping(names_max: usize) -> Self {
        Self::with_ranks(1, names_max)
    }
    /// The same, of a file system with this many ranks.
    pub fn with_ranks(ranks: u16, names_max: usize) -> Self {
        let config = FsConfig {
            file_system: "home".into(),
            about: "a test".into(),
            instance: Instance(5),
            unix_ms_at_zero: 0,
            names_max,
            ahead: LookAhead::default(),
            data_max: 0,
            dirty_max: 1,
            early_above: usize::MAX,
        };
        let (fs, objects) = (Fs::new(config), Objects::default());
        let registry = Registry {
            ranks,
            ..Registry::default()
        };
        let (said, said_to) = (Vec::new(), Vec::new());
        let mut client = Self {
            fs,
            objects,
            registry,
            now: Time(1),
            said,
            said_to,
        };
        client.come();
        client
    }
    pub fn turn(&mut self, message: Option<Message>) {
        match message {
            Some(message) => self.hears(0, message),
            None => self.input(None),
        }
    }
    /// A message from a rank's server.
    pub fn hears(&mut self, rank: u16, message: Message) {
        let (from, epoch) = (
            Entity::Client(server(rank)),
            Epoch(self.now.0 / 1_000_000 + 1),
        );
        self.input(Some(Input::Message {
            from,
            epoch,
            message,
        }));
    }
    /// Time passes.
    pub fn tick(&mut self, time: Duration) {
        self.now = self.now + time;
        self.input(Some(Input::Tick));
    }
    /// Its host stops it.
    pub fn stop(&mut self) {
        self.forget_said();
        self.input(Some(Input::Stopping));
    }
    /// The connection to the server has broken.
    pub fn lose(&mut self) {
        self.input(Some(Input::Gone(Entity::Client(SERVER))));
    }
    /// A rank loses its server.
    pub fn lose_rank(&mut self, rank: u16) {
        self.registry.without.insert(rank);
        self.input(Some(Input::Gone(Entity::Client(server(rank)))));
    }
    /// It has one again, which this client finds and greets; returns the greeting.
    pub fn find_rank(&mut self, rank: u16) -> FsSession {
        self.restore_rank(rank);
        self.forget_said();
        for _ in 0..4 {
            self.now = self.now + SEEK_AGAIN;
            self.turn(None);
        }
        self.welcome(rank).expect("it greets")
    }
    /// The registry no longer has the file system.
    pub fn remove_file_system(&mut self) {
        self.registry.is_removed = true;
        self.fs.seek.look_again(Time::ZERO);
        (0..3).for_each(|_| self.turn(None));
    }
    /// It has a server again.
    pub fn restore_rank(&mut self, rank: u16) {
        self.registry.without.remove(&rank);
    }
    /// A rank's server welcomes the client, if it was greeted.
    pub fn welcome(&mut self, rank: u16) -> Option<FsSession> {
        let greeting = self
            .said_to
            .iter()
            .rev()
            .find_map(|(to, message)| match message {
                Message::FsSession(session) if *to == Entity::Client(server(rank)) => {
                    Some(session.clone())
                }
                _ => None,
            })?;
        assert_eq!(greeting.rank, rank);
        let welcome = FsWelcome {
            again: false,
            greeting: greeting.greeting,
        };
        self.hears(rank, Message::FsWelcome(welcome));
        Some(greeting)
    }
    /// Opens the file, with this size, for writing; its objects accept this many operations at a
    /// time.
    pub fn writing(size: u64, room: usize) -> Self {
        let mut client = Self::new();
        let (_, number) = client.ask(Ask::Names(FsCall::Open {
            ino: INO,
            write: true,
        }));
        client.answer(number, node(size));
        assert_eq!(client.ended().len(), 1);
        client.objects.room = room;
        client
    }
    pub fn forget_said(&mut self) {
        self.said.clear();
        self.said_to.clear();
    }
    fn input(&mut self, input: Option<Input>) {
        self.now = self.now + Duration::from_millis(1);
        let mut out = Vec::new();
        self.fs.on_turn(
            self.now,
            &mut input.into_iter(),
            &mut self.objects,
            &mut self.registry,
            &mut out,
        );
        self.hear(out);
    }
    /// Records its messages.
    pub fn hear(&mut self, out: Vec<Output>) {
        for output in out {
            if let Output::Send { to, message, .. } = output {
                self.said.push(message.clone());
                self.said_to.push((to, message));
            }
        }
    }
    /// Finds the server and greets it; returns the greeting.
    pub fn come(&mut self) -> FsSession {
        self.forget_said();
        for _ in 0..4 {
            self.now = self.now + SEEK_AGAIN;
            self.turn(None);
        }
        let session = self.said.iter().rev().find_map(|message| match message {
            Message::FsSession(session) => Some(session.clone()),
            _ => None,
        });
        let session = session.expect("it greets");
        let welcome = FsWelcome {
            again: false,
            greeting: session.greeting,
        };
        self.turn(Some(Message::FsWelcome(welcome)));
        session
    }
    /// Begins a call; returns the request's number, if there is one.
    pub fn ask(&mut self, ask: Ask) -> (CallId, Option<u64>) {
        self.forget_said();
        let call = self.fs.begin(ask);
        self.turn(None);
        (call, self.asked(|_| true))
    }
    /// The first such request since.
    pub fn asked(&self, is_it: impl Fn(&FsCall) -> bool) -> Option<u64> {
        self.said.iter().find_map(|message| match message {
            Message::FsRequest(request) => is_it(&request.call).then_some(request.number),
            _ => None,
        })
    }
    /// Its requests to a rank since.
    pub fn asks(&self, rank: u16) -> Vec<FsRequest> {
        let of_rank = |(to, message): &(Entity, Message)| match message {
            Message::FsRequest(request) if *to == Entity::Client(server(rank)) => {
                Some(request.clone())
            }
            _ => None,
        };
        self.said_to.iter().filter_map(of_rank).collect()
    }
    /// A rank answers.
    pub fn reply_at(&mut self, rank: u16, reply: FsReply) {
        self.hears(rank, Message::FsReply(reply));
    }
    pub fn answer(&mut self, number: Option<u64>, answer: FsAnswer) {
        self.answer_with(number, answer, true);
    }
    /// `safe`: it is in the journal.
    pub fn answer_with(&mut self, number: Option<u64>, answer: FsAnswer, safe: bool) {
        // Others have open files open, too.
        let caps = match &answer {
            FsAnswer::Node { node, .. } => vec![FsGrant {
                ino: node.inode.ino,
                cap: FsCap::Sync {},
            }],
            _ => Vec::new(),
        };
        self.reply(FsReply {
            safe,
            caps,
            ..reply_to(number, answer)
        });
    }
    /// An answer that may be cached, under a share of the root.
    pub fn answer_shared(&mut self, number: Option<u64>, mut answer: FsAnswer) {
        answer
            .nodes_mut()
            .for_each(|node| node.home = Some(Ino::ROOT));
        self.reply(FsReply {
            keep: true,
            shares: vec![Ino::ROOT],
            ..reply_to(number, answer)
        });
    }
    pub fn reply(&mut self, reply: FsReply) {
        self.turn(Some(Message::FsReply(reply)));
    }
    /// All operations in flight have succeeded.
    pub fn all_done(&mut self) {
        while !self.objects.taken.is_empty() {
            self.objects.end_well();
        }
        self.turn(None);
    }
    /// Its server reports that this is in the journal.
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

/// A client that has the file open for writing, alone; `safe`: its opening is in the journal.
pub fn buffering(safe: bool) -> (Client, Option<u64>) {
    let mut client = Client::new();
    client.fs.config.dirty_max = 1 << 20;
    client.objects.room = 99;
    let (_, opening) = client.ask(Ask::Names(FsCall::Open {
        ino: INO,
        write: true,
    }));
    client.answer_with(opening, node(0), safe);
    let news = FsCapNews {
        ino: INO,
        cap: FsCap::Buffer {},
        number: 0,
    };
    client.turn(Some(Message::FsCaps(FsCaps { items: vec![news] })));
    // The size.
    let (_, number) = client.ask(Ask::Read {
        ino: INO,
        offset: 0,
        length: 1,
    });
    client.answer(number, node(0));
    client.ended();
    (client, opening)
}
