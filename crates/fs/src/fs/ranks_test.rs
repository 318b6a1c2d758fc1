//! A client with sessions with two ranks: what belongs to one of them, and what to both.

use super::testing::{Client, LAYOUT, make_open, reply_to};
use super::*;
use nacre_wire::fs::{FileKind, Inode};
use nacre_wire::msg::fs::{
    FS_LEASE_MS, FS_WINDOW, FsChanges, FsEvicted, FsForget, FsPing, FsPong, FsReply, FsSafe,
    FsSession, FsStale, FsSync,
};

/// A file of each rank, and a directory of rank 1.
const FILES: [Ino; 2] = [Ino(1 << 20), Ino(1 << 48 | 1 << 20)];
const DIR: Ino = Ino(1 << 48 | 2 << 20);

fn node(ino: Ino, home: Ino) -> FsAnswer {
    let mut inode = Inode::new(ino, FileKind::File {}, 0o644, (1, 1), Stamp(1));
    inode.layout = Some(LAYOUT);
    FsAnswer::Node {
        node: FsNode {
            inode,
            head: None,
            home: Some(home),
        },
        made: false,
    }
}
fn stat(rank: usize) -> Ask {
    Ask::Names(FsCall::Stat { ino: FILES[rank] })
}
fn set(rank: usize) -> Ask {
    Ask::Names(FsCall::Set {
        ino: FILES[rank],
        changes: FsChanges {
            mode: Some(0o600),
            ..FsChanges::default()
        },
    })
}
fn lookup(dir: Ino, name: &str) -> Ask {
    Ask::Names(FsCall::Lookup {
        dir,
        name: name.into(),
    })
}
/// With a session with each.
fn client() -> Client {
    let mut client = Client::with_ranks(2, 100);
    let (call, _) = client.ask(stat(1));
    client.welcome(1).expect("it greets");
    client.turn(None);
    client.reply_at(
        1,
        reply_to(Some(client.asks(1)[0].number), node(FILES[1], DIR)),
    );
    assert_eq!(
        client.ended(),
        [(call, Ok(Given::Answer(node(FILES[1], DIR))))]
    );
    client
}
/// Looks up a name, which is then cached under a share of the rank.
fn learn(client: &mut Client, rank: u16, dir: Ino, name: &str, ino: Ino) {
    client.ask(lookup(dir, name));
    let number = client.asks(rank)[0].number;
    client.reply_at(rank, kept(number, dir, node(ino, dir)));
    assert_eq!(client.ended().len(), 1);
    assert!(knows(client, dir, name));
}
fn kept(number: u64, share: Ino, answer: FsAnswer) -> FsReply {
    FsReply {
        keep: true,
        shares: vec![share],
        ..reply_to(Some(number), answer)
    }
}
fn knows(client: &mut Client, dir: Ino, name: &str) -> bool {
    client.fs.at_once(client.now, lookup(dir, name)).is_ok()
}
fn greetings(client: &Client) -> Vec<FsSession> {
    let greeting = |message: &Message| match message {
        Message::FsSession(session) => Some(session.clone()),
        _ => None,
    };
    client.said.iter().filter_map(greeting).collect()
}

/// Its server is away. Calls to others continue; its own calls wait, in order.
#[test]
fn a_rank_that_is_away_holds_up_only_its_own_calls() {
    let mut client = client();
    client.lose_rank(1);
    let (first, none) = client.ask(stat(1));
    let (second, _) = client.ask(set(1));
    assert_eq!((none, client.asks(1)), (None, vec![]));
    for _ in 0..3 {
        let (call, number) = client.ask(stat(0));
        client.answer(number, node(FILES[0], Ino::ROOT));
        assert_eq!(
            client.ended(),
            [(call, Ok(Given::Answer(node(FILES[0], Ino::ROOT))))]
        );
    }
    assert_eq!(
        client.fs.state(),
        State::Connected,
        "that is the first rank's"
    );
    client.find_rank(1);
    client.turn(None);
    let numbers: Vec<u64> = client
        .asks(1)
        .iter()
        .map(|request| request.number)
        .collect();
    assert_eq!(numbers.len(), 2, "{:?}", client.said_to);
    for number in numbers {
        client.reply_at(1, reply_to(Some(number), node(FILES[1], DIR)));
    }
    let ended: Vec<CallId> = client.ended().into_iter().map(|(call, _)| call).collect();
    assert_eq!(ended, [first, second]);
}

/// A rank that does not answer gets half a window of requests, and then calls wait: others are
/// still asked.
#[test]
fn a_rank_that_does_not_answer_is_asked_no_more_than_it_takes() {
    let mut client = client();
    let (waits, _) = client.ask(stat(1));
    let first = client.asks(1)[0].number;
    for _ in 0..3000 {
        let (_, number) = client.ask(stat(0));
        client.answer(number, node(FILES[0], Ino::ROOT));
    }
    assert_eq!(client.ended().len(), 3000);
    for _ in 0..3000 {
        client.ask(stat(1));
        let number = client.asks(1).last().map(|request| request.number);
        if let Some(number) = number.filter(|number| *number != first) {
            client.forget_said();
            client.reply_at(1, reply_to(Some(number), node(FILES[1], DIR)));
        }
    }
    assert_eq!(
        client.ended().len() as u64,
        FS_WINDOW / 2 - 1,
        "its oldest one is too old"
    );
    client.forget_said();
    client.reply_at(1, reply_to(Some(first), node(FILES[1], DIR)));
    assert_eq!(client.ended()[0].0, waits);
    assert!(!client.asks(1).is_empty());
}

/// It is one client for all ranks: the rank that evicts it fences all that it does.
#[test]
fn an_eviction_by_one_rank_is_one_for_all() {
    let mut client = client();
    client.ask(set(0));
    let number = client.asks(0)[0].number;
    client.reply_at(
        0,
        FsReply {
            safe: false,
            ..reply_to(Some(number), node(FILES[0], Ino::ROOT))
        },
    );
    let (begun, _) = client.ask(set(0));
    client.ended();
    client.forget_said();
    client.hears(
        1,
        Message::FsEvicted(FsEvicted {
            instance: Instance(5),
        }),
    );
    assert_eq!(
        (client.fs.instance(), client.fs.evictions()),
        (Some(Instance(6)), 1)
    );
    assert_eq!(
        client.ended(),
        [(begun, Err(EIO))],
        "rank 0 may have done it"
    );
    client.forget_said();
    client.find_rank(0);
    let named: Vec<_> = greetings(&client)
        .iter()
        .map(|it| (it.rank, it.instance, it.known))
        .collect();
    assert_eq!(named, [(0, Instance(6), false), (1, Instance(6), false)]);
    client.hears(
        0,
        Message::FsEvicted(FsEvicted {
            instance: Instance(5),
        }),
    );
    assert_eq!(client.fs.evictions(), 1, "it knows");
    let (sync, _) = client.ask(Ask::Sync {
        ino: Some(FILES[0]),
    });
    assert_eq!(
        client.ended(),
        [(sync, Err(EIO))],
        "what was answered and is lost is said"
    );
}

/// What a caller synchronizes may depend on what it did at another rank.
#[test]
fn a_sync_waits_for_all_ranks() {
    let mut client = client();
    let numbers = [0, 1].map(|rank| {
        client.ask(set(usize::from(rank)));
        let number = client.asks(rank)[0].number;
        let answer = node(FILES[usize::from(rank)], Ino::ROOT);
        client.reply_at(
            rank,
            FsReply {
                safe: false,
                ..reply_to(Some(number), answer)
            },
        );
        number
    });
    client.ended();
    let (sync, _) = client.ask(Ask::Sync {
        ino: Some(FILES[0]),
    });
    let syncs =
        |(_, message): &&(Entity, Message)| matches!(message, Message::FsSync(FsSync { .. }));
    assert_eq!(
        client.said_to.iter().filter(syncs).count(),
        2,
        "each is told that it is waited for"
    );
    for (rank, number) in (0..).zip(numbers) {
        assert_eq!(client.ended(), []);
        client.hears(
            rank,
            Message::FsSafe(FsSafe {
                numbers: vec![number],
            }),
        );
    }
    assert_eq!(client.ended(), [(sync, Ok(Given::Done))]);
}

/// A file moves from rank 1's directory to rank 0's, which answers. Rank 1's answers about its
/// directory are not ordered with that: neither name stays cached, and nothing of rank 1's earlier
/// answers is cached.
#[test]
fn a_rename_across_forgets_what_was_kept_of_both_names() {
    let mut client = client();
    learn(&mut client, 0, Ino::ROOT, "a", FILES[0]);
    learn(&mut client, 1, DIR, "b", FILES[1]);
    learn(&mut client, 1, DIR, "c", Ino(FILES[1].0 + 1));
    client.ask(lookup(DIR, "d"));
    let before = client.asks(1)[0].number;
    let rename = FsCall::Rename {
        dir: DIR,
        name: "b".into(),
        to_dir: Ino::ROOT,
        to_name: "a".into(),
        flags: 0,
    };
    client.ask(Ask::Names(rename));
    assert_eq!(client.asks(1), [], "it goes to the new name's rank");
    let number = client.asks(0)[0].number;
    client.reply_at(
        0,
        FsReply {
            changed: vec![FILES[0]],
            ..kept(number, Ino::ROOT, FsAnswer::Done {})
        },
    );
    assert!(!knows(&mut client, Ino::ROOT, "a") && !knows(&mut client, DIR, "b"));
    assert!(
        knows(&mut client, DIR, "c"),
        "that has nothing to do with it"
    );
    assert!(
        client.fs.at_once(client.now, stat(1)).is_err(),
        "its time of change is another one"
    );
    client.reply_at(1, kept(before, DIR, node(Ino(FILES[1].0 + 2), DIR)));
    assert!(
        !knows(&mut client, DIR, "d"),
        "that may have been said before the rename"
    );
    client.ended();
    learn(&mut client, 1, DIR, "d", Ino(FILES[1].0 + 2));
    let place = client.fs.places.get(FILES[1]).expect("it was seen");
    assert_eq!(
        (place.dir, place.name),
        (Ino::links(Rank(1)), FILES[1].to_string().as_str().into())
    );
}

/// Rank 1 does not answer pings: what is cached under its shares is not used after its lease ends,
/// although rank 0's lease is valid. Then rank 1 is greeted, and rank 0 is not.
#[test]
fn what_is_kept_is_shown_as_long_as_its_own_ranks_lease_lasts() {
    let mut client = client();
    learn(&mut client, 0, Ino::ROOT, "a", FILES[0]);
    learn(&mut client, 1, DIR, "b", FILES[1]);
    // A name in rank 0's directory for a file of rank 1.
    client.ask(lookup(Ino::ROOT, "x"));
    let number = client.asks(0)[0].number;
    let led = FsAnswer::Elsewhere {
        ino: FILES[1],
        kind: FileKind::File {},
    };
    client.reply_at(0, kept(number, Ino::ROOT, led));
    let number = client.asks(1)[0].number;
    client.reply_at(1, kept(number, DIR, node(FILES[1], DIR)));
    assert!(knows(&mut client, Ino::ROOT, "x"));
    let half = Duration::from_millis(FS_LEASE_MS / 2);
    client.forget_said();
    client.tick(half);
    let pinged = |message: &Message| match message {
        Message::FsPing(FsPing { number }) => Some(*number),
        _ => None,
    };
    let pings: Vec<u64> = client.said.iter().filter_map(pinged).collect();
    assert_eq!(pings.len(), 2, "each is pinged");
    client.hears(0, Message::FsPong(FsPong { number: pings[0] }));
    client.now = client.now + half;
    assert!(knows(&mut client, Ino::ROOT, "a"));
    assert!(!knows(&mut client, DIR, "b") && !knows(&mut client, Ino::ROOT, "x"));
    client.forget_said();
    client.tick(Duration::ZERO);
    assert_eq!(
        greetings(&client)
            .iter()
            .map(|it| it.rank)
            .collect::<Vec<_>>(),
        [1]
    );
    assert!(knows(&mut client, Ino::ROOT, "a"));
    client.welcome(1).expect("it greets");
    assert!(!knows(&mut client, DIR, "b"), "the greeting gave it back");
}

/// Each rank numbers its own invalidations.
#[test]
fn who_asked_to_forget_is_told() {
    let mut client = client();
    learn(&mut client, 1, DIR, "b", FILES[1]);
    client.forget_said();
    client.hears(
        1,
        Message::FsForget(FsForget {
            number: 7,
            items: vec![FsStale::Node { ino: FILES[1] }],
        }),
    );
    let [(to, Message::FsForgot(forgot))] = &client.said_to[..] else {
        panic!("{:?}", client.said_to)
    };
    assert_eq!(
        (*to, forgot.number),
        (Entity::Client(super::testing::server(1)), 7)
    );
}

/// Servers of two ranks that answer anything, in any order, come and go, and evict: every call
/// ends, and ends once; each request is sent to its rank, in order.
mod all_at_random {
    use super::*;
    use nacre_types::SplitMix64;
    use nacre_wire::fs::name_hash;
    use nacre_wire::msg::fs::{FsElsewhere, FsListed, FsRequest};

    fn name(number: u64) -> Name {
        Name::from(&*number.to_string())
    }
    fn elsewhere(number: u64) -> Ino {
        Ino(FILES[1].0 + number)
    }
    fn make(number: u64) -> FsCall {
        make_open(name(number), number == 0)
    }
    fn ask(random: &mut SplitMix64) -> Ask {
        let number = random.below(4);
        let (rank, dir) = [(0, Ino::ROOT), (1, DIR)][usize::from(random.below(2) == 0)];
        Ask::Names(match random.below(9) {
            0 | 1 => FsCall::Lookup {
                dir,
                name: name(number),
            },
            2 => return stat(rank),
            3 => return set(rank),
            4 => make(number),
            5 => FsCall::List {
                dir: Ino::ROOT,
                after: 0,
                bytes_max: 1000,
            },
            6 => FsCall::StatFs {},
            7 => FsCall::Rename {
                dir,
                name: name(number),
                to_dir: [Ino::ROOT, DIR][rank],
                to_name: name(9),
                flags: 0,
            },
            _ => return Ask::Sync { ino: None },
        })
    }
    fn answer(random: &mut SplitMix64, call: &FsCall) -> FsAnswer {
        let errno = [ENOENT, ESTALE][usize::from(random.below(2) == 0)];
        match call {
            FsCall::List { .. } => {
                let mut elsewhere: Vec<_> = (0..random.below(4))
                    .map(|number| FsElsewhere {
                        name: name(number),
                        ino: elsewhere(number),
                        kind: FileKind::File {},
                    })
                    .collect();
                elsewhere.sort_by_key(|other| name_hash(&other.name));
                let entries: Vec<FsListed> = Vec::new();
                let end = random.below(4) > 0;
                if elsewhere.is_empty() {
                    FsAnswer::Listed { entries, end }
                } else {
                    FsAnswer::ListedPartly {
                        entries,
                        elsewhere,
                        end,
                    }
                }
            }
            FsCall::StatFs {} => FsAnswer::Room { bytes: 1, files: 1 },
            FsCall::Rename { .. } => FsAnswer::Done {},
            _ if random.below(3) == 0 => FsAnswer::Failed { errno },
            FsCall::Lookup { .. } | FsCall::Make { .. } if random.below(2) == 0 => {
                let ino = elsewhere(random.below(4));
                FsAnswer::Elsewhere {
                    ino,
                    kind: FileKind::File {},
                }
            }
            FsCall::Lookup { dir, .. } => node(FILES[usize::from(dir.rank().0)], *dir),
            FsCall::Make { .. } => node(FILES[0], Ino::ROOT),
            call => {
                let ino = call.ino().expect("all others are of an inode");
                node(ino, [Ino::ROOT, DIR][usize::from(ino.rank().0)])
            }
        }
    }

    struct World {
        client: Client,
        random: SplitMix64,
        here: [bool; 2],
        asked: [BTreeMap<u64, FsRequest>; 2],
        told: [BTreeSet<u64>; 2],
        calls: BTreeSet<CallId>,
    }
    impl World {
        /// Servers receive what they were sent.
        fn hear(&mut self) {
            for rank in [0, 1] {
                let mut last = 0;
                for request in self.client.asks(rank) {
                    let is_new = !self.asked[usize::from(rank)].contains_key(&request.number);
                    assert!(request.safe_below <= request.number);
                    if is_new && request.again.is_none() {
                        assert!(last < request.number, "in order");
                        last = request.number;
                    }
                    assert_eq!(
                        request.call.rank().unwrap_or(Rank(rank)),
                        Rank(rank),
                        "{request:?}"
                    );
                    self.asked[usize::from(rank)].insert(request.number, request);
                }
            }
            self.client.forget_said();
            for (call, _) in self.client.ended() {
                assert!(self.calls.remove(&call), "{call:?} ends once");
            }
            self.client.fs.names.check();
        }
        fn welcome(&mut self, rank: u16) {
            if self.here[usize::from(rank)] {
                self.client.welcome(rank);
            }
        }
        fn reply(&mut self, rank: u16, safe: bool) {
            let at = usize::from(rank);
            let count = self.asked[at].len() as u64;
            if !self.here[at] || count == 0 {
                return;
            }
            let which = self.random.below(count) as usize;
            let request = self.asked[at]
                .values()
                .nth(which)
                .expect("one of them")
                .clone();
            self.asked[at].remove(&request.number);
            let answer = answer(&mut self.random, &request.call);
            let safe =
                safe || !request.call.is_change() || matches!(answer, FsAnswer::Failed { .. });
            if !safe {
                self.told[at].insert(request.number);
            }
            let share = [Ino::ROOT, DIR][at];
            let mut reply = kept(request.number, share, answer);
            (reply.safe, reply.keep) = (safe, self.random.below(4) > 0);
            self.client.reply_at(rank, reply);
        }
        fn step(&mut self) {
            let rank = self.random.below(2) as u16;
            let at = usize::from(rank);
            match self.random.below(40) {
                0 if self.here[at] => {
                    self.client.lose_rank(rank);
                    self.here[at] = false;
                    self.asked[at].clear();
                }
                1 => self.come(rank),
                2 => {
                    let instance = self.client.fs.acts_as();
                    self.client
                        .hears(rank, Message::FsEvicted(FsEvicted { instance }));
                    if self.client.fs.acts_as() != instance {
                        self.asked.iter_mut().for_each(BTreeMap::clear);
                        self.told.iter_mut().for_each(BTreeSet::clear);
                    }
                }
                3..10 => {
                    let numbers = std::mem::take(&mut self.told[at]).into_iter().collect();
                    self.client.hears(rank, Message::FsSafe(FsSafe { numbers }));
                }
                10..22 => {
                    let ask = ask(&mut self.random);
                    let call = self.client.fs.begin(ask);
                    self.calls.insert(call);
                    self.client.turn(None);
                }
                22..24 => {
                    let items = vec![FsStale::Name {
                        dir: [Ino::ROOT, DIR][at],
                        name: name(1),
                    }];
                    self.client
                        .hears(rank, Message::FsForget(FsForget { number: 1, items }));
                }
                24 => self
                    .client
                    .tick(Duration::from_millis(self.random.0 % 2000)),
                _ => self.reply(rank, false),
            }
            self.welcome(0);
            self.welcome(1);
            self.hear();
        }
        fn come(&mut self, rank: u16) {
            if !self.here[usize::from(rank)] {
                self.client.restore_rank(rank);
                self.here[usize::from(rank)] = true;
            }
        }
        /// Both answer everything that they are asked.
        fn settle_some(&mut self) {
            self.client.tick(SEEK_AGAIN);
            self.welcome(0);
            self.welcome(1);
            self.hear();
            for rank in [0, 1] {
                while !self.asked[usize::from(rank)].is_empty() {
                    self.reply(rank, true);
                    self.hear();
                }
                let numbers = std::mem::take(&mut self.told[usize::from(rank)])
                    .into_iter()
                    .collect();
                self.client.hears(rank, Message::FsSafe(FsSafe { numbers }));
                self.hear();
            }
        }
    }

    #[test]
    fn every_call_ends_once() {
        for seed in 0..100 {
            let mut world = World {
                client: Client::with_ranks(2, 30),
                random: SplitMix64(seed),
                here: [true; 2],
                asked: Default::default(),
                told: Default::default(),
                calls: BTreeSet::new(),
            };
            for _ in 0..400 {
                world.step();
            }
            world.come(0);
            world.come(1);
            for _ in 0..40 {
                world.settle_some();
            }
            assert!(
                world.calls.is_empty(),
                "{seed}: {:?} {:?}",
                world.calls,
                world.client.fs
            );
            let Fs {
                led,
                parts,
                purposes,
                ..
            } = &world.client.fs;
            assert!(
                led.is_empty() && parts.is_empty() && purposes.is_empty(),
                "{seed}: {led:?} {parts:?}"
            );
        }
    }
}
