//! Calls that two ranks answer; each test plays the servers.

use super::super::testing::{Client, LAYOUT, make_open, reply_to};
use super::*;
use nacre_wire::fs::{FileKind, Head, Inode};
use nacre_wire::msg::fs::{FsForget, FsGrant, FsPlace, FsReply, FsStale};

/// Rank 1's: a file with a name in the root, which rank 0 has.
const FILE: Ino = Ino(1 << 48 | 1 << 20);
const LINKS: Ino = Ino::links(Rank(1));

fn node_of(ino: Ino, home: Ino) -> FsNode {
    let mut inode = Inode::new(ino, FileKind::File {}, 0o644, (1, 1), Stamp(1));
    inode.layout = Some(LAYOUT);
    FsNode {
        inode,
        head: None,
        home: Some(home),
    }
}
fn answer(ino: Ino, home: Ino) -> FsAnswer {
    FsAnswer::Node {
        node: node_of(ino, home),
        made: false,
    }
}
fn led_to(ino: Ino) -> FsAnswer {
    FsAnswer::Elsewhere {
        ino,
        kind: FileKind::File {},
    }
}
/// An answer that may be cached under a share of this directory.
fn kept(number: u64, share: Ino, answer: FsAnswer) -> FsReply {
    FsReply {
        keep: true,
        shares: vec![share],
        ..reply_to(Some(number), answer)
    }
}
fn lookup(name: &str) -> FsCall {
    FsCall::Lookup {
        dir: Ino::ROOT,
        name: name.into(),
    }
}
fn make(write: bool) -> FsCall {
    make_open("x".into(), write)
}
/// The only request to a rank since.
fn asked(client: &Client, rank: u16) -> (u64, FsCall) {
    let [request] = &client.asks(rank)[..] else {
        panic!("{:?}", client.said_to)
    };
    (request.number, request.call.clone())
}
/// A client of two ranks that asks the first one, is referred to the second one, and has a session
/// with that.
fn led(call: FsCall) -> (Client, CallId) {
    let mut client = Client::with_ranks(2, 100);
    let (call, number) = client.ask(Ask::Names(call));
    client.reply_at(
        0,
        kept(number.expect("it is asked"), Ino::ROOT, led_to(FILE)),
    );
    assert_eq!(client.asks(1), [], "it greets first");
    client.welcome(1).expect("it greets");
    assert_eq!(client.ended(), []);
    (client, call)
}

/// A name refers to another rank's inode. Its caller does not see that; the next call is answered
/// from memory, and after a change at the other rank only that rank is asked.
#[test]
fn a_name_leads_to_another_rank() {
    let (mut client, call) = led(lookup("x"));
    assert_eq!(asked(&client, 1).1, FsCall::Stat { ino: FILE });
    let place = FsPlace {
        dir: LINKS,
        name: FILE.to_string().as_str().into(),
    };
    assert_eq!(
        client.asks(1)[0].place,
        Some(place),
        "where rank 1 knows it"
    );
    client.reply_at(1, kept(asked(&client, 1).0, LINKS, answer(FILE, LINKS)));
    let shown = Ok(Given::Answer(answer(FILE, LINKS)));
    assert_eq!(client.ended(), [(call, shown.clone())]);
    let now = client.now;
    assert_eq!(
        client.fs.at_once(now, Ask::Names(lookup("x"))),
        Ok((shown.clone(), false))
    );

    client.hears(
        1,
        Message::FsForget(FsForget {
            number: 1,
            items: vec![FsStale::Node { ino: FILE }],
        }),
    );
    let (call, _) = client.ask(Ask::Names(lookup("x")));
    assert_eq!(
        (client.asks(0), asked(&client, 1).1),
        (vec![], FsCall::Stat { ino: FILE })
    );
    client.reply_at(1, kept(asked(&client, 1).0, LINKS, answer(FILE, LINKS)));
    assert_eq!(client.ended(), [(call, shown)]);
}

/// The name was reassigned between two answers: it is looked up again, but not for ever.
#[test]
fn what_is_gone_where_a_name_leads_is_looked_up_again() {
    let (mut client, call) = led(lookup("x"));
    for _ in 1..TRIES {
        let (number, _) = asked(&client, 1);
        client.forget_said();
        client.reply_at(
            1,
            reply_to(Some(number), FsAnswer::Failed { errno: ESTALE }),
        );
        assert_eq!((client.ended(), asked(&client, 0).1), (vec![], lookup("x")));
        client.reply_at(0, kept(asked(&client, 0).0, Ino::ROOT, led_to(FILE)));
    }
    client.reply_at(
        1,
        reply_to(
            Some(asked(&client, 1).0),
            FsAnswer::Failed { errno: ESTALE },
        ),
    );
    assert_eq!(client.ended(), [(call, Err(ESTALE))]);
    let is_ahead = |purpose: &Purpose| matches!(purpose, Purpose::Ahead(_));
    assert!(client.fs.led.is_empty() && client.fs.purposes.values().all(is_ahead));

    // The second time it does not exist.
    let (mut client, call) = led(lookup("x"));
    let (number, _) = asked(&client, 1);
    client.forget_said();
    client.reply_at(
        1,
        reply_to(Some(number), FsAnswer::Failed { errno: ESTALE }),
    );
    client.reply_at(
        0,
        kept(
            asked(&client, 0).0,
            Ino::ROOT,
            FsAnswer::Failed { errno: ENOENT },
        ),
    );
    assert_eq!(client.ended(), [(call, Err(ENOENT))]);
}

/// A file is opened by its name, which refers to another rank: it is open like any other file of
/// that rank.
#[test]
fn a_file_that_is_opened_elsewhere_is_open() {
    for write in [false, true] {
        let (mut client, call) = led(make(write));
        assert_eq!(asked(&client, 1).1, FsCall::Open { ino: FILE, write });
        let caps = vec![FsGrant {
            ino: FILE,
            cap: FsCap::Sync {},
        }];
        let number = asked(&client, 1).0;
        client.reply_at(
            1,
            FsReply {
                safe: false,
                caps,
                ..kept(number, LINKS, answer(FILE, LINKS))
            },
        );
        assert_eq!(
            client.ended(),
            [(call, Ok(Given::Answer(answer(FILE, LINKS))))]
        );
        assert_eq!(
            client.fs.files[&FILE].opens,
            [u32::from(!write), u32::from(write)]
        );
        assert_eq!(
            client.fs.files[&FILE].unsafe_by(),
            write.then_some(number),
            "it is not in the journal"
        );

        client.lose_rank(1);
        let session = client.find_rank(1);
        let opens: Vec<_> = session
            .opens
            .iter()
            .map(|open| (open.ino, open.reads, open.writes))
            .collect();
        assert_eq!(opens, [(FILE, u32::from(!write), u32::from(write))]);
        client.lose_rank(0);
        assert_eq!(
            client.find_rank(0).opens,
            [],
            "that one has nothing to do with it"
        );
    }
}

/// The file is removed before it is opened: a new one is created then.
#[test]
fn a_file_that_is_gone_before_it_is_opened_is_made() {
    let (mut client, call) = led(make(true));
    let (number, _) = asked(&client, 1);
    client.forget_said();
    client.reply_at(
        1,
        reply_to(Some(number), FsAnswer::Failed { errno: ENOENT }),
    );
    let (number, again) = asked(&client, 0);
    assert_eq!(again, make(true));
    let new = Ino(1 << 20);
    let made = FsAnswer::Node {
        node: node_of(new, Ino::ROOT),
        made: true,
    };
    client.reply_at(0, reply_to(Some(number), made.clone()));
    assert_eq!(client.ended(), [(call, Ok(Given::Answer(made)))]);
    assert_eq!(client.fs.files.keys().copied().collect::<Vec<_>>(), [new]);
}

fn listed(name: &str, ino: Ino, home: Ino) -> FsListed {
    FsListed {
        name: name.into(),
        node: node_of(ino, home),
    }
}
fn other(name: &str, number: u64) -> FsElsewhere {
    FsElsewhere {
        name: name.into(),
        ino: Ino(FILE.0 + number),
        kind: FileKind::File {},
    }
}
const LIST: FsCall = FsCall::List {
    dir: Ino::ROOT,
    after: 0,
    bytes_max: 1000,
};

/// Another rank has some inodes of a directory: its caller gets one listing, in order, without
/// those removed meanwhile.
#[test]
fn a_listing_in_parts_is_put_together_in_order() {
    let mut client = Client::with_ranks(2, 100);
    let (call, number) = client.ask(Ask::Names(LIST));
    let mut entries: Vec<FsListed> = ["a", "b", "c"]
        .iter()
        .zip(1 << 20..)
        .map(|(name, ino)| listed(name, Ino(ino), Ino::ROOT))
        .collect();
    entries.sort_by_key(|listed| name_hash(&listed.name));
    let elsewhere = vec![other("x", 0), other("y", 1), other("z", 2)];
    let partly = FsAnswer::ListedPartly {
        entries: entries.clone(),
        elsewhere: elsewhere.clone(),
        end: true,
    };
    client.reply_at(0, kept(number.expect("it is asked"), Ino::ROOT, partly));
    client.welcome(1).expect("it greets");
    let requests = client.asks(1);
    assert_eq!(requests.len(), 3, "all at once");
    for request in requests.into_iter().rev() {
        let FsCall::Stat { ino } = request.call else {
            panic!("{request:?}")
        };
        let answer = if ino == elsewhere[1].ino {
            FsAnswer::Failed { errno: ESTALE }
        } else {
            answer(ino, LINKS)
        };
        assert_eq!(client.ended(), []);
        client.reply_at(1, kept(request.number, LINKS, answer));
    }
    entries.extend([0, 2].map(|at| listed(["x", "y", "z"][at], elsewhere[at].ino, LINKS)));
    entries.sort_by_key(|listed| (name_hash(&listed.name), listed.name.clone()));
    assert_eq!(
        client.ended(),
        [(
            call,
            Ok(Given::Answer(FsAnswer::Listed { entries, end: true }))
        )]
    );

    let (now, absent) = (client.now, Ask::Names(lookup("w")));
    assert_eq!(
        client.fs.at_once(now, absent.clone()),
        Err(absent),
        "it is not known to be all"
    );
    assert!(
        client.fs.at_once(now, Ask::Names(lookup("x"))).is_ok(),
        "what it named is"
    );
    assert!(client.fs.at_once(now, Ask::Names(lookup("y"))).is_err());

    // What is known of the others is not requested.
    let (_, number) = client.ask(Ask::Names(LIST));
    let partly = FsAnswer::ListedPartly {
        entries: vec![],
        elsewhere: vec![other("x", 0), other("z", 2)],
        end: true,
    };
    client.reply_at(0, kept(number.expect("it is asked"), Ino::ROOT, partly));
    assert_eq!((client.asks(1), client.ended().len()), (vec![], 1));
}

/// All inodes of a page are gone: an empty page would mean that nothing follows.
#[test]
fn a_page_of_which_nothing_is_left_is_passed_over() {
    let mut client = Client::with_ranks(2, 0);
    let (call, number) = client.ask(Ask::Names(LIST));
    let partly = FsAnswer::ListedPartly {
        entries: vec![],
        elsewhere: vec![other("x", 0)],
        end: false,
    };
    client.reply_at(0, reply_to(number, partly));
    client.welcome(1).expect("it greets");
    let (number, _) = asked(&client, 1);
    client.forget_said();
    client.reply_at(
        1,
        reply_to(Some(number), FsAnswer::Failed { errno: ESTALE }),
    );
    let (number, next) = asked(&client, 0);
    assert_eq!(
        next,
        FsCall::List {
            dir: Ino::ROOT,
            after: name_hash(&"x".into()),
            bytes_max: 1000
        }
    );
    let last = FsAnswer::Listed {
        entries: vec![],
        end: true,
    };
    client.reply_at(0, reply_to(Some(number), last.clone()));
    assert_eq!(client.ended(), [(call, Ok(Given::Answer(last)))]);
}

/// Usage is the sum over all ranks; a flush goes to all of them, or one reports why not.
#[test]
fn all_ranks_are_asked_for_what_is_of_all() {
    let mut client = Client::with_ranks(3, 0);
    let (call, _) = client.ask(Ask::Names(FsCall::StatFs {}));
    client.welcome(1).expect("it greets");
    client.welcome(2).expect("it greets");
    for rank in [2, 0, 1] {
        assert_eq!(client.ended(), []);
        let (number, _) = asked(&client, rank);
        client.reply_at(
            rank,
            reply_to(
                Some(number),
                FsAnswer::Room {
                    bytes: 10 << rank,
                    files: 1,
                },
            ),
        );
    }
    assert_eq!(
        client.ended(),
        [(
            call,
            Ok(Given::Answer(FsAnswer::Room {
                bytes: 70,
                files: 3
            }))
        )]
    );

    let (call, _) = client.ask(Ask::Names(FsCall::Flush {}));
    for (rank, answer) in [
        (1, FsAnswer::Failed { errno: 30 }),
        (0, FsAnswer::Failed { errno: 31 }),
        (2, FsAnswer::Done {}),
    ] {
        assert_eq!(client.ended(), []);
        let (number, _) = asked(&client, rank);
        client.reply_at(rank, reply_to(Some(number), answer));
    }
    assert_eq!(client.ended(), [(call, Err(30))], "the first error");
}

/// A handle from elsewhere, or one without an inode.
#[test]
fn what_is_of_a_rank_that_is_not_there_is_stale() {
    let mut client = Client::with_ranks(2, 0);
    let ino = Ino::given(Rank(2), 1 << 20);
    let (call, number) = client.ask(Ask::Names(FsCall::Stat { ino }));
    assert_eq!((number, client.ended()), (None, vec![(call, Err(ESTALE))]));
    let (call, number) = client.ask(Ask::Names(lookup("x")));
    client.reply_at(0, reply_to(number, led_to(ino)));
    assert_eq!(client.ended(), [(call, Err(ESTALE))]);
}

/// A pinned directory: its head is known as soon as its rank has reported it.
#[test]
fn a_directory_elsewhere_is_shown_with_what_is_in_it() {
    let (mut client, call) = led(lookup("d"));
    let inode = Inode::new(FILE, FileKind::Directory {}, 0o755, (1, 1), Stamp(1));
    let node = FsNode {
        inode,
        head: Some(Head::default()),
        home: Some(LINKS),
    };
    let shown = FsAnswer::Node { node, made: false };
    let reply = kept(asked(&client, 1).0, LINKS, shown.clone());
    client.reply_at(
        1,
        FsReply {
            shares: vec![LINKS, FILE],
            ..reply
        },
    );
    assert_eq!(client.ended(), [(call, Ok(Given::Answer(shown.clone())))]);
    let now = client.now;
    assert_eq!(
        client.fs.at_once(now, Ask::Names(lookup("d"))),
        Ok((Ok(Given::Answer(shown)), false))
    );
}
