//! Several ranks that share a tree: name changes across them, while they die and their messages are
//! lost.
//!
//! One client works in a directory of its own that has subtrees of all ranks, and is compared with
//! a POSIX model; two others work against each other in a second one. At the end every file has as
//! many names as its link count says.

use crate::checking::{check_ranks, repair_ranks, shown};
use crate::objects::{Objects, config, small};
use crate::rig::{Dice, make_call};
use nacre_conformance::memory::Memory;
use nacre_history::posix::{Kind, Model};
use nacre_mds::check::Kind as Fault;
use nacre_mds::mds::{Mds, MdsConfig, Say, first_objects, fragment_name};
use nacre_types::{ClientId, Frag, Ino, Instance, Name, ObjectId, PoolId, Rank, Time};
use nacre_wire::Wire as _;
use nacre_wire::fs::entry::entry_key;
use nacre_wire::fs::{Entry, FileKind, Stamp, name_hash};
use nacre_wire::msg::fs::{FsAgain, FsAnswer, FsCall, FsForgot, FsPlace, FsRequest};
use nacre_wire::msg::transaction::FsStep;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const EXDEV: u16 = 18;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

struct Pending {
    rank: usize,
    request: FsRequest,
    answer: Option<FsAnswer>,
    safe: bool,
}

struct Client {
    id: ClientId,
    welcome: Vec<bool>,
    next: Vec<u64>,
    pending: Option<Pending>,
}

struct World {
    configs: Vec<MdsConfig>,
    ranks: Vec<Mds>,
    stores: Vec<Objects>,
    bus: VecDeque<(usize, usize, Ino, FsStep)>,
    clients: Vec<Client>,
    now: Time,
    dice: Dice,
    crash_one_in: usize,
    lossy: bool,
    crashes: u32,
    /// Messages between ranks.
    words: u64,
}

impl World {
    fn new(seed: u64, ranks: u16, clients: u64, base: &MdsConfig) -> Self {
        let configs: Vec<MdsConfig> = (0..ranks)
            .map(|rank| MdsConfig {
                rank: Rank(rank),
                ..base.clone()
            })
            .collect();
        let store = |config: &MdsConfig| {
            let mut objects = Objects::new();
            first_objects(config, Stamp(1))
                .iter()
                .for_each(|operation| objects.run(operation));
            objects
        };
        let client = |n| Client {
            id: ClientId(n),
            welcome: vec![false; usize::from(ranks)],
            next: vec![1; usize::from(ranks)],
            pending: None,
        };
        Self {
            stores: configs.iter().map(store).collect(),
            ranks: configs
                .iter()
                .map(|config| Mds::open(config.clone()))
                .collect(),
            configs,
            bus: VecDeque::new(),
            clients: (1..=clients).map(client).collect(),
            now: Time(1),
            dice: Dice(seed),
            crash_one_in: usize::MAX,
            lossy: false,
            crashes: 0,
            words: 0,
        }
    }

    fn turn(&mut self) {
        self.now = self.now + Duration::from_millis(1);
        for _ in 0..self.bus.len() {
            let (from, to, transaction, step) = self.bus.pop_front().expect("counted");
            match self.dice.below(if self.lossy { 10 } else { 1_000_000 }) {
                0 => {}
                1 => {
                    self.ranks[to].on_transaction(Rank(from as u16), transaction, step.clone());
                    self.bus.push_back((from, to, transaction, step));
                }
                2 | 3 => self.bus.push_back((from, to, transaction, step)),
                _ => self.ranks[to].on_transaction(Rank(from as u16), transaction, step),
            }
        }
        for rank in 0..self.ranks.len() {
            let mut out = Vec::new();
            self.ranks[rank].on_turn(self.now, &mut self.stores[rank], &mut out);
            assert_eq!(self.ranks[rank].ended(), None);
            for (client, say) in out {
                self.on_say(rank, client, say);
            }
            for (to, transaction, step) in self.ranks[rank].take_transactions() {
                self.words += 1;
                self.bus
                    .push_back((rank, usize::from(to.0), transaction, step));
            }
            let n = self.dice.below(4);
            self.stores[rank].work(n);
            for client in &mut self.clients {
                // Resent, in case the server was not live, or its predecessor had it.
                if !client.welcome[rank] && self.ranks[rank].is_live() {
                    self.ranks[rank].on_session(client.id, Instance(1), (false, 0), &[]);
                }
            }
        }
        if self.dice.below(self.crash_one_in) == 0 {
            let rank = self.dice.below(self.ranks.len());
            self.crash(rank);
        }
    }
    fn crash(&mut self, rank: usize) {
        self.crashes += 1;
        let n = self.dice.below(9);
        self.stores[rank].crash(n);
        self.ranks[rank] = Mds::open(self.configs[rank].clone());
        self.clients
            .iter_mut()
            .for_each(|client| client.welcome[rank] = false);
        // Connections break: nothing in flight arrives.
        self.bus
            .retain(|(from, to, ..)| *from != rank && *to != rank);
    }
    fn on_say(&mut self, rank: usize, client: ClientId, say: Say) {
        let client = self
            .clients
            .iter_mut()
            .find(|other| other.id == client)
            .expect("it came");
        match say {
            Say::Welcome { .. } => {
                client.welcome[rank] = true;
                if let Some(pending) = client
                    .pending
                    .as_ref()
                    .filter(|pending| pending.rank == rank)
                {
                    let again = pending.request.again.is_some();
                    if again {
                        self.ranks[rank].on_request(client.id, pending.request.clone());
                    }
                    self.ranks[rank].on_caught_up(client.id);
                    if !again {
                        self.ranks[rank].on_request(client.id, pending.request.clone());
                    }
                } else {
                    self.ranks[rank].on_caught_up(client.id);
                }
            }
            Say::Reply(reply) => {
                let pending = client
                    .pending
                    .as_mut()
                    .filter(|pending| pending.rank == rank);
                let Some(pending) =
                    pending.filter(|pending| pending.request.number == reply.number)
                else {
                    return;
                };
                let made = match &reply.answer {
                    FsAnswer::Node { node, made: true } => node.inode.ino,
                    _ => Ino::TOP,
                };
                if pending.answer.is_none() {
                    pending.request.again = Some(FsAgain {
                        stamp: reply.stamp,
                        made,
                    })
                    .filter(|_| !reply.safe);
                    pending.answer = Some(reply.answer);
                }
                pending.safe |= reply.safe;
            }
            Say::Safe(safe) => {
                if let Some(pending) = client
                    .pending
                    .as_mut()
                    .filter(|pending| pending.rank == rank)
                {
                    pending.safe |=
                        pending.answer.is_some() && safe.numbers.contains(&pending.request.number);
                }
            }
            Say::Forget(forget) => self.ranks[rank].on_forgot(
                client.id,
                FsForgot {
                    number: forget.number,
                },
            ),
            other => panic!("{other:?}"),
        }
    }
    fn begin(&mut self, client: usize, call: FsCall) {
        self.begin_at(client, call, None);
    }
    fn begin_at(&mut self, client: usize, call: FsCall, place: Option<FsPlace>) {
        let rank = usize::from(call.rank().expect("of one rank").0);
        let client = &mut self.clients[client];
        assert!(client.pending.is_none());
        let number = client.next[rank];
        client.next[rank] += 1;
        let request = FsRequest {
            number,
            safe_below: number,
            again: None,
            foretold: None,
            place,
            call,
        };
        if client.welcome[rank] {
            self.ranks[rank].on_request(client.id, request.clone());
        }
        client.pending = Some(Pending {
            rank,
            request,
            answer: None,
            safe: false,
        });
    }
    /// A client's answer, if it is safe.
    fn take(&mut self, client: usize) -> Option<FsAnswer> {
        let pending = self.clients[client]
            .pending
            .take_if(|pending| pending.safe)?;
        pending.answer
    }
    fn ask(&mut self, client: usize, call: FsCall) -> FsAnswer {
        self.begin(client, call.clone());
        for _ in 0..60_000 {
            if let Some(answer) = self.take(client) {
                return answer;
            }
            self.turn();
        }
        panic!("never answered: {call:?}; {:?}", self.ranks);
    }
    fn made(&mut self, client: usize, call: FsCall) -> Ino {
        match self.ask(client, call) {
            FsAnswer::Node { node, .. } => node.inode.ino,
            other => panic!("{other:?}"),
        }
    }
    /// A directory with one subdirectory of each rank.
    fn playground(&mut self, name: &str) -> Vec<Ino> {
        let top = self.made(0, make_call(Ino::ROOT, name, FileKind::Directory {}, 0o755));
        let mut dirs = vec![top];
        for rank in 1..self.ranks.len() {
            let name = format!("p{rank}");
            self.made(0, make_call(top, &name, FileKind::Directory {}, 0o750));
            let pin = FsCall::Pin {
                dir: top,
                name: Name::from(&*name),
                rank: rank as u16,
            };
            dirs.push(self.made(0, pin));
        }
        dirs
    }

    /// Everything below a directory: path, number, kind, links.
    fn dump(&mut self, dir: Ino, path: &str, into: &mut Vec<(String, Ino, bool, u32)>) {
        let (mut after, mut here) = (0, Vec::new());
        loop {
            let (entries, elsewhere, end) = match self.ask(
                0,
                FsCall::List {
                    dir,
                    after,
                    bytes_max: 500,
                },
            ) {
                FsAnswer::Listed { entries, end } => (entries, Vec::new(), end),
                FsAnswer::ListedPartly {
                    entries,
                    elsewhere,
                    end,
                } => (entries, elsewhere, end),
                other => panic!("{path}: {other:?}"),
            };
            for listed in entries {
                after = after.max(name_hash(&listed.name));
                here.push((listed.name, listed.node.inode));
            }
            for listed in elsewhere {
                after = after.max(name_hash(&listed.name));
                match self.ask(0, FsCall::Stat { ino: listed.ino }) {
                    FsAnswer::Node { node, .. } => here.push((listed.name, node.inode)),
                    other => panic!("{path}/{}: {other:?}", listed.name),
                }
            }
            if end {
                break;
            }
        }
        for (name, inode) in here {
            let path = format!("{path}/{name}");
            into.push((path.clone(), inode.ino, inode.is_directory(), inode.links));
            if inode.is_directory() {
                self.dump(inode.ino, &path, into);
            }
        }
    }
    fn heal(&mut self) {
        (self.crash_one_in, self.lossy) = (usize::MAX, false);
        for _ in 0..60_000 {
            self.turn();
            let is_idle = |rank: usize| self.ranks[rank].is_idle() && self.stores[rank].is_idle();
            if self.bus.is_empty() && (0..self.ranks.len()).all(is_idle) {
                return;
            }
        }
        panic!("never idle: {:?}", self.ranks);
    }
    /// After healing: each file has as many names as its link count says, and none is missing.
    fn check(&mut self) -> Vec<(String, Ino, bool, u32)> {
        let mut all = Vec::new();
        self.dump(Ino::ROOT, "", &mut all);
        let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
        all.iter()
            .for_each(|(_, ino, ..)| *names.entry(*ino).or_default() += 1);
        for (path, ino, is_directory, links) in &all {
            let expected = if *is_directory { 1 } else { *links };
            assert_eq!(
                names[ino], expected,
                "{path} ({ino}) has another number of names"
            );
        }
        for (rank, mds) in (0..).zip(&self.ranks) {
            mds.tree().check();
            let homes = mds.tree().list(Ino::links(Rank(rank)), Frag::WHOLE, 0);
            for (_, name, entry) in homes.into_iter().flat_map(|(homes, _)| homes) {
                assert!(
                    names.contains_key(&entry.ino()),
                    "rank {rank}: no name leads to {name}"
                );
            }
        }
        let report = check_ranks(&self.memory(), self.ranks.len() as u16);
        assert_eq!(shown(&report), Vec::<String>::new());
        all
    }
    /// The objects of all ranks.
    fn memory(&self) -> Memory {
        let mut memory = self.stores[0].memory.clone();
        self.stores[1..]
            .iter()
            .for_each(|store| memory.all.extend(store.memory.all.clone()));
        memory
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Make(usize, usize, Kind),
    Link(usize, usize, usize),
    Unlink(usize, usize),
    Rmdir(usize, usize),
    Rename(usize, usize, usize, usize),
}
impl Step {
    fn call(self, inos: &[Ino]) -> FsCall {
        let name = |n: usize| Name::from(NAMES[n]);
        match self {
            Self::Make(dir, n, kind) => {
                let kind = if kind == Kind::File {
                    FileKind::File {}
                } else {
                    FileKind::Directory {}
                };
                make_call(inos[dir], NAMES[n], kind, 0o755)
            }
            Self::Link(id, dir, n) => FsCall::Link {
                ino: inos[id],
                dir: inos[dir],
                name: name(n),
            },
            Self::Unlink(dir, n) => FsCall::Unlink {
                dir: inos[dir],
                name: name(n),
                directory: false,
            },
            Self::Rmdir(dir, n) => FsCall::Unlink {
                dir: inos[dir],
                name: name(n),
                directory: true,
            },
            Self::Rename(dir, n, to, m) => FsCall::Rename {
                dir: inos[dir],
                name: name(n),
                to_dir: inos[to],
                to_name: name(m),
                flags: 0,
            },
        }
    }
    fn perform(self, model: &mut Model) -> Result<Option<usize>, u16> {
        match self {
            Self::Make(dir, n, kind) => model.make(dir, NAMES[n], kind).map(Some),
            Self::Link(id, dir, n) => model.link(id, dir, NAMES[n]).map(|()| None),
            Self::Unlink(dir, n) => model.unlink(dir, NAMES[n]).map(|()| None),
            Self::Rmdir(dir, n) => model.rmdir(dir, NAMES[n]).map(|()| None),
            Self::Rename(dir, n, to, m) => model
                .rename((dir, NAMES[n]), (to, NAMES[m]), false, false)
                .map(|()| None),
        }
    }
}

/// The client that is compared with a model, and its place.
struct Modelled {
    model: Model,
    inos: Vec<Ino>,
    step: Option<Step>,
    renames_across: u32,
}

impl Modelled {
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
        let (any, ..) = node(None);
        match what {
            0..25 => Step::Make(dir, n, Kind::File),
            25..35 => Step::Make(dir, n, Kind::Directory),
            35..50 => Step::Link(any, to, m),
            50..60 => Step::Unlink(dir, n),
            60..65 => Step::Rmdir(dir, n),
            _ => Step::Rename(dir, n, to, m),
        }
    }
    /// The place of the file that a step names by number, if its rank knows it.
    fn place(&self, step: Step) -> Option<FsPlace> {
        let Step::Link(id, ..) = step else {
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
        let of_its_rank = |dir: usize| self.inos[dir].rank() == self.inos[id].rank();
        let (dir, name, _) = names.find(|(dir, _, other)| *other == id && of_its_rank(*dir))?;
        Some(FsPlace {
            dir: self.inos[dir],
            name: Name::from(&**name),
        })
    }
    fn answered(&mut self, answer: &FsAnswer) {
        let step = self.step.take().expect("it asked");
        let failed = match answer {
            FsAnswer::Failed { errno } => Some(*errno),
            _ => None,
        };
        let mut after = self.model.clone();
        let expected = step.perform(&mut after);
        if let Step::Rename(dir, n, to, m) = step {
            let across = self.inos[dir].rank() != self.inos[to].rank();
            let is_directory = |dir, n: usize| {
                let found = self.model.lookup(dir, NAMES[n]);
                found.is_ok_and(|id| self.model.nodes[id].kind == Kind::Directory)
            };
            if failed == Some(EXDEV) && (is_directory(dir, n) || is_directory(to, m)) {
                return;
            }
            self.renames_across += u32::from(across && failed.is_none());
        }
        // If there are two reasons, either may be returned.
        assert_eq!(
            failed.is_some(),
            expected.is_err(),
            "{step:?}: {answer:?}, not {expected:?}; {:?}",
            self.inos
        );
        if let Ok(made) = &expected {
            if made.is_some() {
                let FsAnswer::Node { node, .. } = answer else {
                    panic!("{answer:?}")
                };
                self.inos.push(node.inode.ino);
            }
            self.model = after;
        }
    }
    fn dump(&self, dir: usize, path: &str, into: &mut Vec<(String, Ino, bool, u32)>) {
        for (name, id) in &self.model.nodes[dir].entries {
            let (node, path) = (&self.model.nodes[*id], format!("{path}/{name}"));
            let is_directory = node.kind == Kind::Directory;
            into.push((path.clone(), self.inos[*id], is_directory, node.names));
            if is_directory {
                self.dump(*id, &path, into);
            }
        }
    }
}

/// A history that stops anywhere.
fn begin(seed: u64, steps: usize, crash_one_in: usize, base: &MdsConfig) -> (World, Modelled) {
    let ranks = 2 + (seed % 2) as u16;
    let mut world = World::new(seed, ranks, 3, base);
    let mine = world.playground("mine");
    let shared = world.playground("shared");
    let mut model = Model::new();
    for rank in 1..mine.len() {
        model
            .make(0, &format!("p{rank}"), Kind::Directory)
            .expect("it is new");
    }
    let mut modelled = Modelled {
        model,
        inos: mine,
        step: None,
        renames_across: 0,
    };
    // What the others have seen.
    let mut files: Vec<Ino> = Vec::new();
    (world.crash_one_in, world.lossy) = (crash_one_in, true);
    for _ in 0..steps {
        if let Some(answer) = world.take(0) {
            modelled.answered(&answer);
        }
        if world.clients[0].pending.is_none() {
            let step = modelled.choose(&mut world.dice);
            modelled.step = Some(step);
            world.begin_at(0, step.call(&modelled.inos), modelled.place(step));
        }
        for client in 1..3 {
            if let Some(FsAnswer::Node { node, made: true }) = world.take(client)
                && node.inode.is_file()
            {
                files.push(node.inode.ino);
            }
            if world.clients[client].pending.is_none() {
                let dice = &mut world.dice;
                let (dir, to) = (
                    shared[dice.below(shared.len())],
                    shared[dice.below(shared.len())],
                );
                let name = |dice: &mut Dice| Name::from(NAMES[dice.below(3)]);
                let call = match dice.below(10) {
                    0..3 => make_call(dir, NAMES[dice.below(3)], FileKind::File {}, 0o644),
                    3 => FsCall::Unlink {
                        dir,
                        name: name(dice),
                        directory: false,
                    },
                    4 | 5 if !files.is_empty() => FsCall::Link {
                        ino: files[files.len() - 1 - dice.below(files.len().min(4))],
                        dir,
                        name: name(dice),
                    },
                    _ => FsCall::Rename {
                        dir,
                        name: name(dice),
                        to_dir: to,
                        to_name: name(dice),
                        flags: 0,
                    },
                };
                world.begin(client, call);
            }
        }
        world.turn();
    }
    (world, modelled)
}

/// The same to its end: everything is answered, and the final state is correct.
fn history(seed: u64, steps: usize, crash_one_in: usize, base: &MdsConfig) -> (World, u32) {
    let (mut world, mut modelled) = begin(seed, steps, crash_one_in, base);
    (world.crash_one_in, world.lossy) = (usize::MAX, false);
    for client in 0..3 {
        for _ in 0..60_000 {
            if let Some(answer) = world.take(client) {
                if client == 0 {
                    modelled.answered(&answer);
                }
                break;
            }
            world.turn();
        }
        let pending = world.clients[client].pending.as_ref();
        let pending = pending.map(|pending| (&pending.request, &pending.answer));
        assert!(
            pending.is_none(),
            "client {client} waits for ever: {pending:?}; {:?}",
            world.ranks
        );
    }
    world.heal();
    let all = world.check();
    let mut expected = Vec::new();
    modelled.dump(0, "/mine", &mut expected);
    let mut found: Vec<_> = all
        .into_iter()
        .filter(|(path, ..)| path.starts_with("/mine/"))
        .collect();
    for list in [&mut expected, &mut found] {
        list.iter_mut()
            .filter(|(_, _, is_directory, _)| *is_directory)
            .for_each(|(.., links)| *links = 1);
        list.sort();
    }
    assert_eq!(found, expected, "seed {seed}");
    (world, modelled.renames_across)
}

#[test]
fn ranks_share_a_tree() {
    let (mut renames, mut words) = (0, 0);
    for seed in 0..10 {
        let (world, across) = history(seed, 4_000, usize::MAX, &config());
        (renames, words) = (renames + across, words + world.words);
    }
    assert!(
        renames > 30 && words > 1_000,
        "{renames} renames across ranks, {words} words"
    );
}

#[test]
fn what_was_answered_survives_the_death_of_each_rank() {
    let (mut renames, mut crashes) = (0, 0);
    for seed in 0..60 {
        let (world, across) = history(seed, 4_000, [100, 30, 300][seed as usize % 3], &small(seed));
        (renames, crashes) = (renames + across, crashes + world.crashes);
    }
    assert!(
        renames > 50 && crashes > 300,
        "{renames} renames across ranks, {crashes} crashes"
    );
}

/// All servers die at once: the objects are consistent, or a change is decided and known to be
/// unfinished.
#[test]
fn what_is_left_of_all_ranks_is_right_or_known_to_be_unfinished() {
    let mut unfinished = 0;
    for seed in 0..60 {
        let (mut world, _) = begin(seed, 200 + seed as usize * 40, 200, &small(seed));
        for store in &mut world.stores {
            store.crash(seed as usize % 9);
        }
        let ranks = world.ranks.len() as u16;
        let mut memory = world.memory();
        let report = check_ranks(&memory, ranks);
        assert!(
            report.faults().all(|fault| fault.kind == Fault::Unfinished),
            "seed {seed}: {:#?}",
            shown(&report)
        );
        if report.is_clean() {
            assert!(repair_ranks(&mut memory, ranks).is_clean(), "seed {seed}");
        } else {
            assert!(
                report.plan().is_none() && report.why_not().is_some(),
                "seed {seed}"
            );
            unfinished += 1;
        }
    }
    assert!(unfinished > 3, "{unfinished}");
}

/// Damage that only file systems with several ranks can have.
#[test]
fn what_leads_to_no_rank_is_found_and_repaired() {
    let (world, _) = history(0, 2_000, usize::MAX, &small(0));
    let healthy = world.memory();
    let object = |dir: Ino| {
        let name = Name::from(&*fragment_name(dir, Frag::WHOLE));
        (
            PoolId(1),
            ObjectId {
                name,
                namespace: Name::from("fs"),
                ..ObjectId::default()
            },
        )
    };
    let key = |name: &str| bytes::Bytes::copy_from_slice(entry_key(&Name::from(name)).as_bytes());
    let mine = healthy.all[&object(Ino::ROOT)].omap[&key("mine")].clone();
    let mine = Entry::from_bytes(&mine).expect("an entry").ino();
    let faults = |memory: &Memory| -> Vec<Fault> {
        check_ranks(memory, 2)
            .faults()
            .map(|fault| fault.kind)
            .collect()
    };
    // A directory of another rank without a name: it gets one, with everything in it.
    let mut memory = healthy.clone();
    let gone = memory
        .all
        .get_mut(&object(mine))
        .expect("it is there")
        .omap
        .remove(&key("p1"))
        .expect("it is there");
    let gone = Entry::from_bytes(&gone).expect("an entry").ino();
    let found = faults(&memory);
    assert!(found.contains(&Fault::Unreferenced), "{found:?}");
    let left = repair_ranks(&mut memory, 2);
    assert!(left.is_clean(), "{:#?}", shown(&left));
    assert!(
        memory.all[&object(Ino::links(Rank(1)))]
            .omap
            .contains_key(&key(&gone.to_string())),
        "it stays with its rank"
    );
    assert!(memory.all.contains_key(&object(gone)));
    // An inode in a directory of another rank: its server would report that it does not exist.
    let mut memory = healthy.clone();
    let home = memory
        .all
        .get_mut(&object(Ino::links(Rank(1))))
        .expect("it is there");
    let top = home
        .omap
        .remove(&key(&gone.to_string()))
        .expect("it is there");
    memory
        .all
        .get_mut(&object(mine))
        .expect("it is there")
        .omap
        .insert(key("p1"), top);
    let found = faults(&memory);
    assert!(found.contains(&Fault::OtherRank), "{found:?}");
    let left = repair_ranks(&mut memory, 2);
    assert!(left.is_clean(), "{:#?}", shown(&left));
    assert_eq!(
        memory.all[&object(mine)].omap,
        healthy.all[&object(mine)].omap
    );
}

/// A rank has no server. A name locked by a request that waits for that rank is free again after
/// some seconds, and the request continues when there is a server.
#[test]
fn a_rank_without_a_server_holds_up_no_other_names_for_long() {
    let mut world = World::new(1, 2, 2, &config());
    let dirs = world.playground("here");
    let file = world.made(0, make_call(dirs[1], "a", FileKind::File {}, 0o644));
    let is_deaf = |world: &mut World, turns: usize| {
        for _ in 0..turns {
            world.turn();
            world.bus.retain(|(_, to, ..)| *to != 1);
        }
    };
    let name = || Name::from("b");
    world.begin(
        0,
        FsCall::Rename {
            dir: dirs[1],
            name: "a".into(),
            to_dir: dirs[0],
            to_name: name(),
            flags: 0,
        },
    );
    is_deaf(&mut world, 100);
    world.begin(1, make_call(dirs[0], "b", FileKind::File {}, 0o644));
    is_deaf(&mut world, 1_000);
    assert!(world.take(1).is_none(), "it may be about to be taken");
    is_deaf(&mut world, 4_000);
    assert!(matches!(
        world.take(1),
        Some(FsAnswer::Node { made: true, .. })
    ));
    assert!(world.take(0).is_none());
    for _ in 0..5_000 {
        world.turn();
    }
    assert_eq!(
        world.take(0),
        Some(FsAnswer::Done {}),
        "over what is there now"
    );
    let FsAnswer::Elsewhere { ino, .. } = world.ask(
        1,
        FsCall::Lookup {
            dir: dirs[0],
            name: name(),
        },
    ) else {
        panic!()
    };
    assert_eq!(ino, file);
    world.heal();
    world.check();
}
