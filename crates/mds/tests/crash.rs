//! Servers that die at any moment, and clients that resend what was not safe.

use crate::following::Standby;
use crate::objects::{Objects, config, small};
use crate::rig::{Dice, make_call};
use nacre_history::posix::{Kind, Model};
use nacre_mds::mds::{Mds, MdsConfig, Say, first_objects};
use nacre_types::{ClientId, Ino, Instance, Name, PoolId, Time};
use nacre_wire::fs::{FileKind, Stamp, data_name, name_hash};
use nacre_wire::msg::fs::{
    FsAgain, FsAnswer, FsCall, FsChanges, FsForgot, FsPlace, FsReply, FsRequest, rename_flag,
};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A client's next step, in terms of the model.
#[derive(Clone, Copy, Debug)]
enum Step {
    Make(usize, usize, Kind),
    Link(usize, usize, usize),
    Unlink(usize, usize),
    Rmdir(usize, usize),
    Rename(usize, usize, usize, usize, u8),
    Resize(usize, u64),
}
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// A client in a directory of its own: one request after another, each as soon as the previous one
/// was answered.
struct Client {
    id: ClientId,
    instance: Instance,
    model: Model,
    /// By number in the model.
    inos: Vec<Ino>,
    steps: Vec<Step>,
    /// Requests that were answered and are not safe.
    early: BTreeMap<u64, FsRequest>,
    /// The unanswered request.
    asked: Option<(FsRequest, Option<usize>)>,
    answers: BTreeMap<u64, FsAnswer>,
    /// Files that have just grown: their data is written now.
    grown: Vec<(Ino, u64)>,
    next: u64,
    welcome: bool,
    dead: bool,
}

impl Client {
    fn new(n: u64) -> Self {
        Self {
            id: ClientId(n),
            instance: Instance(1),
            model: Model::new(),
            inos: Vec::new(),
            steps: Vec::new(),
            early: BTreeMap::new(),
            asked: None,
            answers: BTreeMap::new(),
            grown: Vec::new(),
            next: 1,
            welcome: false,
            dead: false,
        }
    }
    fn safe_below(&self) -> u64 {
        let first = self.early.keys().next().copied();
        first
            .or(self.asked.as_ref().map(|(request, _)| request.number))
            .unwrap_or(self.next)
    }
    fn call(&self, step: Step) -> FsCall {
        let name = |n: usize| Name::from(NAMES[n]);
        match step {
            Step::Make(dir, n, kind) => {
                let kind = match kind {
                    Kind::File => FileKind::File {},
                    Kind::Directory => FileKind::Directory {},
                    Kind::Symlink => FileKind::Symlink {},
                };
                make_call(self.inos[dir], NAMES[n], kind, 0o755)
            }
            Step::Link(id, dir, n) => FsCall::Link {
                ino: self.inos[id],
                dir: self.inos[dir],
                name: name(n),
            },
            Step::Unlink(dir, n) => FsCall::Unlink {
                dir: self.inos[dir],
                name: name(n),
                directory: false,
            },
            Step::Rmdir(dir, n) => FsCall::Unlink {
                dir: self.inos[dir],
                name: name(n),
                directory: true,
            },
            Step::Rename(dir, n, to, m, flags) => FsCall::Rename {
                dir: self.inos[dir],
                name: name(n),
                to_dir: self.inos[to],
                to_name: name(m),
                flags,
            },
            // With data.
            Step::Resize(id, size)
                if self.model.nodes[id].size < size && self.model.nodes[id].kind == Kind::File =>
            {
                FsCall::Wrote {
                    ino: self.inos[id],
                    size,
                    mtime: Stamp(1),
                }
            }
            Step::Resize(id, size) => {
                let changes = FsChanges {
                    size: Some(size),
                    ..FsChanges::default()
                };
                FsCall::Set {
                    ino: self.inos[id],
                    changes,
                }
            }
        }
    }
    fn begin(&mut self, dice: &mut Dice) -> FsRequest {
        // The first step creates the directory for all others.
        let step = if self.inos.is_empty() {
            None
        } else {
            Some(self.choose(dice))
        };
        let call = match step {
            Some(step) => self.call(step),
            None => make_call(
                Ino::ROOT,
                &format!("client{}", self.id.0),
                FileKind::Directory {},
                0o755,
            ),
        };
        self.steps.extend(step);
        let place = step.and_then(|step| self.place(step));
        let request = FsRequest {
            number: self.next,
            safe_below: self.safe_below(),
            again: None,
            foretold: None,
            place,
            call,
        };
        self.next += 1;
        self.asked = Some((request.clone(), step.map(|_| self.steps.len() - 1)));
        request
    }
    /// The place of the file that a step names by number.
    fn place(&self, step: Step) -> Option<FsPlace> {
        let (Step::Link(id, ..) | Step::Resize(id, _)) = step else {
            return None;
        };
        let dirs = self
            .model
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| !node.gone);
        let mut names = dirs
            .flat_map(|(dir, node)| node.entries.iter().map(move |(name, id)| (dir, name, *id)));
        let (dir, name, _) = names.find(|(_, _, other)| *other == id)?;
        Some(FsPlace {
            dir: self.inos[dir],
            name: Name::from(&**name),
        })
    }
    fn choose(&self, dice: &mut Dice) -> Step {
        let mut node = |kind: Option<Kind>| loop {
            let id = dice.below(self.model.nodes.len());
            let node = &self.model.nodes[id];
            if !node.gone && node.names > 0 && kind.is_none_or(|kind| node.kind == kind) {
                return (id, dice.below(NAMES.len()), dice.below(100));
            }
        };
        let (dir, n, what) = node(Some(Kind::Directory));
        let (to, m, _) = node(Some(Kind::Directory));
        let (any, _, size) = node(None);
        match what {
            0..20 => Step::Make(dir, n, Kind::File),
            20..35 => Step::Make(dir, n, Kind::Directory),
            35..40 => Step::Make(dir, n, Kind::Symlink),
            40..50 => Step::Link(any, to, m),
            50..62 => Step::Unlink(dir, n),
            62..70 => Step::Rmdir(dir, n),
            70..85 => Step::Rename(dir, n, to, m, [0, 0, rename_flag::EXCHANGE][size % 3]),
            _ => Step::Resize(any, [0, 5_000, 20_000][size % 3]),
        }
    }
    /// Executes a step in a model; returns the expected answer.
    fn perform(model: &mut Model, step: Step) -> Result<Option<usize>, u16> {
        match step {
            Step::Make(dir, n, kind) => model.make(dir, NAMES[n], kind).map(Some),
            Step::Link(id, dir, n) => model.link(id, dir, NAMES[n]).map(|()| None),
            Step::Unlink(dir, n) => model.unlink(dir, NAMES[n]).map(|()| None),
            Step::Rmdir(dir, n) => model.rmdir(dir, NAMES[n]).map(|()| None),
            Step::Rename(dir, n, to, m, flags) => {
                let exchange = flags == rename_flag::EXCHANGE;
                model
                    .rename((dir, NAMES[n]), (to, NAMES[m]), false, exchange)
                    .map(|()| None)
            }
            Step::Resize(id, size) => model.resize(id, size).map(|()| None),
        }
    }
    fn on_reply(&mut self, reply: FsReply) {
        let FsReply {
            number,
            safe,
            stamp,
            place,
            answer,
            ..
        } = reply;
        if let Some(before) = self.answers.get(&number) {
            // Programs do not see remains of truncated data.
            let seen = |answer: &FsAnswer| {
                let mut answer = answer.clone();
                if let FsAnswer::Node { node, .. } = &mut answer {
                    node.inode.rare = None;
                }
                answer
            };
            assert_eq!(
                seen(&answer),
                seen(before),
                "client {}: request {number} ends twice, and otherwise",
                self.id.0
            );
        } else {
            let (request, step) = self.asked.take().expect("an answer to what was asked");
            assert_eq!(request.number, number);
            let made = match &answer {
                FsAnswer::Node { node, made: true } => Some(node.inode.ino),
                _ => None,
            };
            match step {
                None => self.inos.push(made.expect("its directory is made")),
                Some(step) => {
                    let step = self.steps[step];
                    let expected = Self::perform(&mut self.model, step);
                    if let (Step::Resize(id, size), Ok(_)) = (step, &expected) {
                        self.grown.push((self.inos[id], size));
                    }
                    let found = match &answer {
                        FsAnswer::Failed { errno } => Err(*errno),
                        _ => Ok(()),
                    };
                    assert_eq!(
                        found,
                        expected.map(|_| ()),
                        "client {}: {step:?} ({number})",
                        self.id.0
                    );
                    if expected.is_ok_and(|made| made.is_some()) {
                        self.inos.push(made.expect("a number"));
                    }
                }
            }
            self.answers.insert(number, answer);
            if !safe {
                let made = made.unwrap_or(Ino::TOP);
                self.early.insert(
                    number,
                    FsRequest {
                        again: Some(FsAgain { stamp, made }),
                        place: place.or(request.place.clone()),
                        ..request
                    },
                );
            }
        }
        if safe {
            self.early.remove(&number);
        }
    }
}

pub struct World {
    pub objects: Objects,
    config: MdsConfig,
    mds: Mds,
    now: Time,
    clients: Vec<Client>,
    dice: Dice,
    crashes: u32,
    /// Whether the first client dies with its server.
    dies_too: bool,
    /// Data objects that clients have written.
    written: u64,
    /// It follows the journal, and takes over.
    pub standby: Option<Standby>,
    /// Takeovers by a standby that held something, and the bytes it held.
    followed: (u32, u64),
}

fn data_key(ino: Ino, number: u64) -> (PoolId, nacre_types::ObjectId) {
    let name = Name::from(&*data_name(ino, number));
    (
        PoolId(2),
        nacre_types::ObjectId {
            name,
            namespace: Name::from("fs"),
            ..Default::default()
        },
    )
}

impl World {
    fn new(seed: u64, clients: u64) -> Self {
        Self::with(seed, clients, config())
    }
    pub fn with(seed: u64, clients: u64, config: MdsConfig) -> Self {
        let mut objects = Objects::new();
        first_objects(&config, Stamp(1))
            .iter()
            .for_each(|operation| objects.run(operation));
        let mds = Mds::open(config.clone());
        let clients = (1..=clients).map(Client::new).collect();
        let (dice, standby) = (Dice(seed), None);
        let (crashes, dies_too, written, followed) = (0, false, 0, (0, 0));
        Self {
            objects,
            config,
            mds,
            now: Time(1),
            clients,
            dice,
            crashes,
            dies_too,
            written,
            standby,
            followed,
        }
    }
    fn turn(&mut self) {
        self.now = self.now + Duration::from_millis(1);
        let mut out = Vec::new();
        self.mds.on_turn(self.now, &mut self.objects, &mut out);
        assert_eq!(self.mds.ended(), None);
        if let Some(standby) = &mut self.standby {
            standby.turn(self.now, &mut self.objects.memory);
        }
        for (client, say) in out {
            let Some(client) = self
                .clients
                .iter_mut()
                .find(|other| other.id == client && !other.dead)
            else {
                continue;
            };
            match say {
                Say::Welcome { .. } => client.welcome = true,
                Say::Reply(reply) => client.on_reply(reply),
                Say::Evicted(evicted) => panic!("{evicted:?}"),
                Say::Locked(locked) => panic!("{locked:?}"),
                Say::Caps(caps) => panic!("{caps:?}"),
                Say::Safe(safe) => safe
                    .numbers
                    .iter()
                    .for_each(|number| drop(client.early.remove(number))),
                Say::Forget(forget) => self.mds.on_forgot(
                    client.id,
                    FsForgot {
                        number: forget.number,
                    },
                ),
            }
        }
        for (ino, size) in self
            .clients
            .iter_mut()
            .flat_map(|client| std::mem::take(&mut client.grown))
        {
            for number in 0..size.div_ceil(4096) {
                let data = vec![7; 4096.min(size - number * 4096) as usize];
                self.objects.memory.all.insert(
                    data_key(ino, number),
                    nacre_conformance::memory::Object {
                        data,
                        ..Default::default()
                    },
                );
                self.written += 1;
            }
        }
    }
    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..20_000 {
            if is_so(self) {
                return;
            }
            self.turn();
            let n = self.dice.below(4);
            self.objects.work(n);
            if self.objects.is_crash_due() {
                self.crash_after(0);
            }
        }
        let waits: Vec<_> = self
            .clients
            .iter()
            .map(|client| (&client.asked, client.early.len()))
            .collect();
        panic!("never: {what}; {waits:?}; {:?}", self.mds);
    }
    /// The server dies, and another one takes over. Some of its operations on objects were
    /// executed.
    fn crash(&mut self) {
        let n = self.dice.below(9);
        self.crash_after(n);
    }
    /// The same, when this many of the operations in flight were executed.
    fn crash_after(&mut self, n: usize) {
        self.crashes += 1;
        self.clients[0].dead |= self.dies_too;
        self.objects.crash(n);
        let followed = self.standby.as_mut().map(Standby::take).unwrap_or_default();
        self.followed.0 += u32::from(!followed.is_empty());
        self.followed.1 += followed.bytes();
        self.mds = Mds::open_after(self.config.clone(), followed);
        self.until("it reads its journal", |world| world.mds.is_live());
        for at in 0..self.clients.len() {
            let client = &mut self.clients[at];
            if client.dead {
                continue;
            }
            client.welcome = false;
            let (id, instance) = (client.id, client.instance);
            self.mds.on_session(id, instance, (false, 0), &[]);
        }
        self.until("it knows its clients", |world| {
            world
                .clients
                .iter()
                .all(|client| client.welcome || client.dead)
        });
        // What is not safe is resent, in order, all at once.
        for client in self.clients.iter().filter(|client| !client.dead) {
            let again = |request: &FsRequest| FsRequest {
                safe_below: client.safe_below(),
                ..request.clone()
            };
            client
                .early
                .values()
                .for_each(|request| self.mds.on_request(client.id, again(request)));
            self.mds.on_caught_up(client.id);
            if let Some((request, _)) = &client.asked {
                self.mds.on_request(client.id, again(request));
            }
        }
    }
    fn go(&mut self, steps: usize, crash_one_in: usize) {
        for client in &self.clients {
            self.mds
                .on_session(client.id, client.instance, (false, 0), &[]);
        }
        self.until("live", |world| world.mds.is_live());
        for client in &self.clients {
            self.mds
                .on_session(client.id, client.instance, (false, 0), &[]);
        }
        for _ in 0..steps {
            for client in self
                .clients
                .iter_mut()
                .filter(|client| client.welcome && !client.dead && client.asked.is_none())
            {
                if self.dice.below(3) > 0 {
                    let request = client.begin(&mut self.dice);
                    self.mds.on_request(client.id, request);
                }
            }
            self.turn();
            let n = self.dice.below(3);
            self.objects.work(n);
            if self.objects.is_crash_due() {
                self.crash_after(0);
            }
            if self.dice.below(crash_one_in) == 0 {
                self.crash();
            }
        }
    }
    /// Without waiting for the end: operations are in flight.
    pub fn run_unfinished(&mut self, steps: usize) {
        self.go(steps, 1_000_000);
    }
    pub fn run(&mut self, steps: usize, crash_one_in: usize) {
        self.go(steps, crash_one_in);
        self.until("all is answered", |world| {
            world
                .clients
                .iter()
                .all(|client| client.asked.is_none() || client.dead)
        });
        self.until("all is safe", |world| {
            world.mds.is_idle()
                && world.objects.is_idle()
                && world
                    .clients
                    .iter()
                    .all(|client| client.early.is_empty() || client.dead)
        });
        self.mds.tree().check();
    }

    /// Everything below a directory, as the server shows it: paths, kinds, names, sizes.
    fn dump(&mut self, dir: Ino, path: &str, into: &mut Vec<(String, u32, u64)>) {
        let reader = ClientId(999);
        if !self.clients.iter().any(|client| client.id == reader) {
            let mut client = Client::new(reader.0);
            client.welcome = false;
            self.clients.push(client);
            self.mds.on_session(reader, Instance(1), (false, 0), &[]);
            self.until("a reader", |world| {
                world.clients.last().expect("it").welcome
            });
        }
        let mut after = 0;
        loop {
            let reader = self.clients.last_mut().expect("it");
            let number = reader.next;
            reader.next += 1;
            let request = FsRequest {
                number,
                safe_below: number,
                again: None,
                foretold: None,
                place: None,
                call: FsCall::List {
                    dir,
                    after,
                    bytes_max: 500,
                },
            };
            reader.asked = Some((request.clone(), None));
            // It requests nothing that the model knows of.
            reader.inos.clear();
            let id = reader.id;
            self.mds.on_request(id, request);
            let mut answer = None;
            let mut out = Vec::new();
            for _ in 0..10_000 {
                self.now = self.now + Duration::from_millis(1);
                self.mds.on_turn(self.now, &mut self.objects, &mut out);
                self.objects.work(8);
                answer = out.drain(..).find_map(|(_, say)| match say {
                    Say::Reply(reply) if reply.number == number => Some(reply.answer),
                    _ => None,
                });
                if answer.is_some() {
                    break;
                }
            }
            self.clients.last_mut().expect("it").asked = None;
            let Some(FsAnswer::Listed { entries, end }) = answer else {
                panic!("{path}: {answer:?}")
            };
            for listed in entries {
                after = after.max(name_hash(&listed.name));
                let inode = &listed.node.inode;
                let path = format!("{path}/{}", listed.name);
                if inode.is_directory() {
                    into.push((format!("{path}/"), 0, 0));
                    self.dump(inode.ino, &path, into);
                } else {
                    into.push((path, inode.links, inode.size));
                }
            }
            if end {
                return;
            }
        }
    }
}

impl World {
    /// Asserts that a client's directory equals its model.
    fn assert_kept(&mut self, at: usize, what: &str) {
        let (mut expected, mut found) = (Vec::new(), Vec::new());
        dump_model(&self.clients[at].model, 0, "", &mut expected);
        self.dump(self.clients[at].inos[0], "", &mut found);
        assert_eq!(sorted(found), sorted(expected), "{what}, client {at}");
    }
    /// Whether the first client, which died with its server, has lost something.
    ///
    /// # Panics
    /// If it lost more than the last of its early answers, or half of a change.
    fn lost(&mut self, what: &str) -> bool {
        let client = &self.clients[0];
        let Some(dir) = client.inos.first().copied() else {
            return false;
        };
        // Number 1 created its directory, so the step with number n has the index before it.
        let sure = (client.safe_below() as usize).saturating_sub(2);
        if client.early.contains_key(&1) {
            // Even that was not safe.
            return true;
        }
        let mut model = Model::new();
        let mut states = Vec::new();
        for (n, step) in client.steps.iter().enumerate() {
            if n >= sure {
                states.push(model.nodes.clone());
            }
            let _ = Client::perform(&mut model, *step);
        }
        states.push(model.nodes);
        let mut found = Vec::new();
        self.dump(dir, "", &mut found);
        let found = sorted(found);
        let matches = |nodes: &Vec<nacre_history::posix::Node>| {
            let mut expected = Vec::new();
            dump_model(
                &Model {
                    nodes: nodes.clone(),
                },
                0,
                "",
                &mut expected,
            );
            sorted(expected) == found
        };
        assert!(states.iter().any(matches), "{what}: {found:?}");
        !matches(states.last().expect("one"))
    }
}

/// The same for a model.
fn dump_model(model: &Model, dir: usize, path: &str, into: &mut Vec<(String, u32, u64)>) {
    for (name, id) in &model.nodes[dir].entries {
        let node = &model.nodes[*id];
        let path = format!("{path}/{name}");
        if node.kind == Kind::Directory {
            into.push((format!("{path}/"), 0, 0));
            dump_model(model, *id, &path, into);
        } else {
            into.push((path, node.names, node.size));
        }
    }
}
fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort();
    list
}

/// Nothing that was answered is lost while its client is alive, and nothing is executed twice.
#[test]
fn a_server_that_dies_loses_nothing_that_a_client_was_told() {
    let mut crashes = 0;
    for seed in 0..60 {
        let mut world = World::new(seed, 3);
        world.run(400, [25, 60, 200][seed as usize % 3]);
        crashes += world.crashes;
        (0..3).for_each(|at| world.assert_kept(at, &format!("seed {seed}")));
    }
    assert!(crashes > 200, "{crashes}");
}

/// The same where the journal is trimmed all the time, and hardly anything fits into memory: the
/// rest is read from directories' objects.
#[test]
fn a_server_with_little_memory_and_a_short_journal_loses_nothing() {
    let (mut crashes, mut longest) = (0, 0);
    for seed in 0..90 {
        let mut world = World::with(seed, 3, small(seed));
        world.run(400, [15, 60, 200][seed as usize % 3]);
        crashes += world.crashes;
        let objects = world
            .objects
            .memory
            .all
            .keys()
            .filter(|(_, id)| id.name.to_string().starts_with("journal.0."));
        longest = longest.max(objects.count() as u64);
        (0..3).for_each(|at| world.assert_kept(at, &format!("seed {seed}")));
    }
    assert!(crashes > 300, "{crashes}");
    assert!(
        longest < 30,
        "the journal is not cut off: {longest} objects"
    );
}

/// Number of histories with a crash after each of their operations: `NACRE_HISTORIES`, for more
/// than fit into the tests.
#[allow(
    clippy::disallowed_methods,
    reason = "how long a test runs is no one's configuration"
)]
fn histories() -> u64 {
    std::env::var("NACRE_HISTORIES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(12)
}

/// The moments are not random: each history is run again for each of its operations on an object,
/// and its server dies when that was executed but not reported; once alone, and once together with
/// a client. In one of two histories directories are written and the journal is trimmed all the
/// time.
#[test]
fn a_server_that_dies_between_any_two_of_its_writes_loses_nothing() {
    const STEPS: usize = 40;
    let (mut crashes, mut lost, mut followed) = (0, 0, 0);
    for seed in 0..histories() {
        let config = if seed % 2 == 0 {
            config()
        } else {
            small(seed / 2)
        };
        let mut whole = World::with(seed, 2, config.clone());
        let first = whole.objects.count;
        whole.run(STEPS, usize::MAX);
        for (at, dies_too) in (first..whole.objects.count).flat_map(|at| [(at, false), (at, true)])
        {
            let mut world = World::with(seed, 2, config.clone());
            (world.objects.crash_at, world.dies_too) = (Some(at), dies_too);
            // Every second one is taken over by a standby that has followed.
            world.standby = (at % 2 == 0).then(|| Standby::new(&config, at));
            world.run(STEPS, usize::MAX);
            assert_eq!(world.crashes, 1, "seed {seed}, operation {at}");
            crashes += 1;
            followed += world.followed.0;
            if dies_too {
                lost += u32::from(world.lost(&format!("seed {seed}, operation {at}")));
            }
            for client in usize::from(dies_too)..2 {
                // A client without any request yet has no directory.
                if !world.clients[client].inos.is_empty() {
                    world.assert_kept(client, &format!("seed {seed}, operation {at}"));
                }
            }
        }
    }
    assert!(
        crashes > 40 * histories() && lost > 0 && u64::from(followed) > 5 * histories(),
        "{crashes} crashes in {} histories, {lost} with losses, {followed} followed",
        histories()
    );
}

/// A client that dies with its server may lose its last early answers, but nothing that is safe.
#[test]
fn a_client_that_dies_with_its_server_loses_no_more_than_what_was_early() {
    let mut lost = 0;
    for seed in 0..80 {
        let mut world = World::new(seed, 2);
        world.run(60, 1_000_000);
        for _ in 0..world.dice.below(30) + 5 {
            for client in &mut world.clients {
                if client.asked.is_none() {
                    let request = client.begin(&mut world.dice);
                    world.mds.on_request(client.id, request);
                }
            }
            world.turn();
            let n = world.dice.below(2);
            world.objects.work(n);
        }
        world.clients[0].dead = true;
        world.crash();
        world.until("all is safe", |world| {
            world.mds.is_idle()
                && world.clients.iter().all(|client| {
                    client.dead || (client.early.is_empty() && client.asked.is_none())
                })
        });
        lost += u32::from(world.lost(&format!("seed {seed}")));
    }
    assert!(lost > 0, "nothing was ever lost: this tests nothing");
}

/// A file's data is removed with its last name, and a truncated file's data beyond its end; also if
/// the server dies in between.
#[test]
fn data_that_belongs_to_nothing_is_removed() {
    let mut written = 0;
    for seed in 0..80 {
        let mut config = if seed % 2 == 0 {
            config()
        } else {
            small(seed / 2)
        };
        config.limits.write_after = config.limits.write_after.min(Duration::from_secs(1));
        let mut world = World::with(seed, 1, config);
        world.run(300, [20, 50, 1_000][seed as usize % 3]);
        // A new holder knows what is to be removed once it has read the directory: for its first
        // round, after a second.
        for _ in 0..1_200 {
            world.turn();
            world.objects.work(4);
        }
        // Data as a client would have written it.
        let model = &world.clients[0].model;
        let files: Vec<(Ino, u64, bool)> = model
            .nodes
            .iter()
            .zip(&world.clients[0].inos)
            .filter(|(node, _)| node.kind == Kind::File)
            .map(|(node, ino)| (*ino, node.size, node.names == 0))
            .collect();
        written += world.written;
        for (ino, size, gone) in files {
            for number in 0..8 {
                let left = world
                    .objects
                    .memory
                    .all
                    .get(&data_key(ino, number))
                    .map_or(0, |object| object.data.len() as u64);
                let expected = if gone {
                    0
                } else {
                    size.saturating_sub(number * 4096).min(4096)
                };
                assert_eq!(left, expected, "seed {seed}: {ino} {number}, gone: {gone}");
            }
        }
    }
    assert!(written > 1_000, "{written}");
    // A single file, truncated and extended: what comes back is zeros, not old data.
    let mut world = World::new(1, 1);
    world.run(20, 1_000_000);
    let dir = world.clients[0].inos[0];
    let mut queue = VecDeque::new();
    let make = make_call(dir, "cut", FileKind::File {}, 0o644);
    let mut ask = |world: &mut World, call: FsCall| {
        let number = world.clients[0].next;
        world.clients[0].next += 1;
        let id = world.clients[0].id;
        world.mds.on_request(
            id,
            FsRequest {
                number,
                safe_below: number,
                again: None,
                foretold: None,
                place: None,
                call,
            },
        );
        for _ in 0..1_000 {
            let mut out = Vec::new();
            world.now = world.now + Duration::from_millis(1);
            world.mds.on_turn(world.now, &mut world.objects, &mut out);
            world.objects.work(8);
            queue.extend(out);
            while let Some((_, say)) = queue.pop_front() {
                if let Say::Reply(reply) = say
                    && reply.number == number
                {
                    return reply.answer;
                }
            }
        }
        panic!("no answer")
    };
    let FsAnswer::Node { node, .. } = ask(&mut world, make) else {
        panic!("made")
    };
    let ino = node.inode.ino;
    let size = |size| FsCall::Set {
        ino,
        changes: FsChanges {
            size: Some(size),
            ..FsChanges::default()
        },
    };
    ask(
        &mut world,
        FsCall::Wrote {
            ino,
            size: 12_288,
            mtime: Stamp(1),
        },
    );
    let key = |number| data_key(ino, number);
    for number in 0..3 {
        let object = nacre_conformance::memory::Object {
            data: vec![7; 4096],
            ..Default::default()
        };
        world.objects.memory.all.insert(key(number), object);
    }
    ask(&mut world, size(5_000));
    ask(&mut world, size(12_288));
    let left: Vec<Option<usize>> = (0..3)
        .map(|n| {
            world
                .objects
                .memory
                .all
                .get(&key(n))
                .map(|object| object.data.len())
        })
        .collect();
    assert_eq!(
        left,
        [Some(4096), Some(904), None],
        "it grows when what was cut off is gone"
    );
}
