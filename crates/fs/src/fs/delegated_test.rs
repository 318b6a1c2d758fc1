//! Names that a client creates and removes itself.

use super::super::testing::{Client, LAYOUT, make_open, reply_to};
use super::*;
use nacre_wire::fs::Head;
use nacre_wire::msg::fs::{FsCapNews, FsCaps, FsListed, FsReply, FsRequest};

const FIRST_NUMBER: Ino = Ino(0x20_0000);

fn root() -> FsNode {
    let inode = Inode::new(Ino::ROOT, FileKind::Directory {}, 0o755, (0, 0), Stamp(1));
    FsNode {
        inode,
        head: Some(Head {
            entries: 1,
            files_below: 1,
            ..Head::default()
        }),
        home: Some(Ino::TOP),
    }
}
fn file(ino: Ino) -> FsNode {
    let mut inode = Inode::new(ino, FileKind::File {}, 0o644, (1, 1), Stamp(1));
    inode.layout = Some(LAYOUT);
    FsNode {
        inode,
        head: None,
        home: Some(Ino::ROOT),
    }
}
/// A client that knows the whole root directory, which contains `old`, and to which it is
/// delegated.
fn delegated() -> Client {
    let mut client = Client::keeping(100);
    client.fs.config.dirty_max = 1 << 20;
    client.objects.room = 99;
    know_root(&mut client);
    let numbers = client.asked(|call| *call == FsCall::Numbers {});
    client.reply(reply_to(
        numbers,
        FsAnswer::Numbers {
            first: FIRST_NUMBER,
            count: 1024,
        },
    ));
    client.ended();
    client.forget_said();
    client
}
fn know_root(client: &mut Client) {
    let shares = vec![Ino::TOP, Ino::ROOT];
    let (_, stat) = client.ask(Ask::Names(FsCall::Stat { ino: Ino::ROOT }));
    let shown = FsAnswer::Node {
        node: root(),
        made: false,
    };
    client.reply(FsReply {
        keep: true,
        shares,
        ..reply_to(stat, shown)
    });
    let (_, list) = client.ask(Ask::Names(FsCall::List {
        dir: Ino::ROOT,
        after: 0,
        bytes_max: 1000,
    }));
    let entries = vec![FsListed {
        name: "old".into(),
        node: file(Ino(0x10_0099)),
    }];
    let listed = FsAnswer::Listed { entries, end: true };
    client.reply(FsReply {
        keep: true,
        delegated: vec![Ino::ROOT],
        ..reply_to(list, listed)
    });
    client.turn(None);
}
fn at_once(client: &mut Client, call: FsCall) -> Option<Outcome> {
    client
        .fs
        .at_once(client.now, Ask::Names(call))
        .ok()
        .map(|(outcome, _)| outcome)
}
fn made(client: &mut Client, name: &str) -> Option<Inode> {
    match at_once(client, make_open(name.into(), true)) {
        Some(Ok(Given::Answer(FsAnswer::Node { node, made: true }))) => Some(node.inode),
        Some(other) => panic!("{other:?}"),
        None => None,
    }
}
fn unlink(name: &str) -> FsCall {
    FsCall::Unlink {
        dir: Ino::ROOT,
        name: name.into(),
        directory: false,
    }
}
fn lookup(name: &str) -> FsCall {
    FsCall::Lookup {
        dir: Ino::ROOT,
        name: name.into(),
    }
}
fn entries(client: &mut Client) -> u64 {
    match at_once(client, FsCall::Stat { ino: Ino::ROOT }) {
        Some(Ok(Given::Answer(FsAnswer::Node { node, .. }))) => {
            node.head.expect("of a directory").entries
        }
        other => panic!("{other:?}"),
    }
}
/// Requests sent for changes made here, and all others.
fn sent(client: &Client) -> (Vec<FsRequest>, Vec<FsRequest>) {
    client
        .asks(0)
        .into_iter()
        .partition(|request| request.foretold.is_some())
}
/// The server's answer to a change made here.
fn taken(request: &FsRequest) -> FsAnswer {
    let mut node = file(request.foretold.expect("it was done here").made);
    node.inode.ctime = request.foretold.expect("see above").stamp;
    FsAnswer::Node {
        node,
        made: matches!(request.call, FsCall::Make { .. }),
    }
}

/// A program that unpacks an archive waited for the server with each file that it created.
#[test]
fn names_come_and_go_without_waiting_for_the_server() {
    let mut client = delegated();
    let first = made(&mut client, "a").expect("answered where it was asked");
    let second = made(&mut client, "b").expect("this, too");
    assert_eq!(
        (first.ino, second.ino),
        (FIRST_NUMBER, Ino(FIRST_NUMBER.0 + 1))
    );
    assert_eq!(
        (first.mode, first.layout, first.links),
        (0o644, Some(LAYOUT), 1)
    );
    assert!(matches!(at_once(&mut client, lookup("a")), Some(Ok(_))) && entries(&mut client) == 3);
    assert!(matches!(at_once(&mut client, unlink("old")), Some(Ok(_))));
    assert_eq!(
        (at_once(&mut client, lookup("old")), entries(&mut client)),
        (Some(Err(ENOENT)), 2)
    );
    client.turn(None);
    assert_eq!(client.asks(0), [], "others may be sent with it");
    client.tick(Duration::from_millis(100));
    let (here, rest) = sent(&client);
    let done: Vec<Ino> = here
        .iter()
        .map(|request| request.foretold.expect("see above").made)
        .collect();
    assert_eq!(
        (done, rest.len()),
        (vec![first.ino, second.ino, Ino::TOP], 0),
        "in the order in which they were done"
    );
    // The server's answer is not news then: a name removed meanwhile stays removed.
    client.reply(FsReply {
        keep: true,
        changed: vec![first.ino],
        ..reply_to(Some(here[0].number), taken(&here[0]))
    });
    assert_eq!(entries(&mut client), 2);
}

/// A directory is shown to other clients after everything done in it was reported.
#[test]
fn what_was_done_is_said_before_the_directory_is_given_back() {
    let mut client = delegated();
    made(&mut client, "a").expect("answered");
    let news = FsCapNews {
        ino: Ino::ROOT,
        cap: FsCap::Nothing {},
        number: 5,
    };
    client.turn(Some(Message::FsCaps(FsCaps { items: vec![news] })));
    let calls: Vec<FsCall> = client
        .asks(0)
        .into_iter()
        .map(|request| request.call)
        .collect();
    assert!(
        matches!(
            calls[..],
            [
                FsCall::Make { .. },
                FsCall::Comply {
                    ino: Ino::ROOT,
                    number: 5,
                    ..
                }
            ]
        ),
        "{calls:?}"
    );
    assert!(
        made(&mut client, "b").is_none(),
        "it is not its own any more"
    );
}
/// Also over a new connection: the client has caught up after it has reported that.
#[test]
fn who_greets_again_says_first_what_was_done() {
    let mut client = delegated();
    made(&mut client, "a").expect("answered");
    client.lose();
    assert!(made(&mut client, "b").is_none());
    client.come();
    let said = client.said.iter().filter_map(|message| match message {
        Message::FsRequest(request) => Some(request.foretold.is_some()),
        Message::FsCaughtUp(_) => Some(false),
        _ => None,
    });
    assert_eq!(said.collect::<Vec<_>>(), [true, false]);
    assert!(
        made(&mut client, "b").is_none(),
        "it has to be given it again"
    );
}

/// A request in flight could be answered from before or after a change made here: the client could
/// not tell which.
#[test]
fn nothing_is_done_while_the_server_has_yet_to_answer_about_the_directory() {
    let mut client = delegated();
    let set = FsCall::Set {
        ino: Ino::ROOT,
        changes: nacre_wire::msg::fs::FsChanges::default(),
    };
    let (_, set) = client.ask(Ask::Names(set));
    assert!(made(&mut client, "a").is_none());
    // It waits for that answer, and needs no request of its own.
    let (call, asked) = client.ask(Ask::Names(make_open("a".into(), true)));
    assert_eq!((asked, client.ended()), (None, vec![]));
    let answer = FsAnswer::Node {
        node: root(),
        made: false,
    };
    client.reply(FsReply {
        keep: true,
        ..reply_to(set, answer)
    });
    let ended = client.ended();
    assert!(
        ended
            .iter()
            .any(|(id, outcome)| *id == call && outcome.is_ok()),
        "{ended:?}"
    );
}

#[test]
fn what_is_not_certain_the_server_is_asked() {
    let mut client = delegated();
    assert!(made(&mut client, "old").is_none(), "it is there");
    for name in ["", ".", "..", "a/b", &"n".repeat(256)] {
        assert!(
            made(&mut client, name).is_none(),
            "{name} cannot be a name, and the server says why"
        );
    }
    assert!(at_once(&mut client, unlink("nothing")).is_none());
    client.now = client.now + Duration::from_mins(1);
    assert!(made(&mut client, "a").is_none(), "others may have gone on");
}

/// Its first object would belong to no file if the server refused its creation.
#[test]
fn no_object_is_written_before_the_server_knows_the_file() {
    let mut client = delegated();
    let ino = made(&mut client, "a").expect("answered").ino;
    let data = Bytes::from_static(b"data");
    client.ask(Ask::Write {
        ino,
        offset: 0,
        data,
    });
    client.tick(Duration::from_millis(100));
    let (here, _) = sent(&client);
    let (sync, _) = client.ask(Ask::Sync { ino: Some(ino) });
    assert!(client.objects.taken.is_empty() && client.ended().iter().all(|(id, _)| *id != sync));
    client.reply(reply_to(Some(here[0].number), taken(&here[0])));
    assert_eq!(client.objects.taken.len(), 1);
    client.all_done();
    let wrote = client.asked(|call| matches!(call, FsCall::Wrote { .. }));
    client.reply(reply_to(
        wrote,
        FsAnswer::Node {
            node: file(ino),
            made: false,
        },
    ));
    assert!(client.ended().contains(&(sync, Ok(Given::Done))));
}

#[test]
fn what_is_not_safe_is_waited_for_and_what_was_not_taken_is_an_error_of_who_synchronizes() {
    let mut client = delegated();
    made(&mut client, "a").expect("answered");
    made(&mut client, "b").expect("answered");
    let (sync, _) = client.ask(Ask::Sync {
        ino: Some(Ino::ROOT),
    });
    let (here, _) = sent(&client);
    client.reply(FsReply {
        safe: false,
        ..reply_to(Some(here[0].number), taken(&here[0]))
    });
    client.reply(reply_to(
        Some(here[1].number),
        FsAnswer::Failed { errno: ENOSPC },
    ));
    assert!(client.ended().is_empty(), "the first is not safe");
    client.is_safe(Some(here[0].number));
    assert_eq!(client.ended(), [(sync, Err(EIO))]);
    let ino = here[1].foretold.expect("it was done here").made;
    let (sync, _) = client.ask(Ask::Sync { ino: Some(ino) });
    assert_eq!(client.ended(), [(sync, Err(ENOSPC))], "and of its file");
    assert_eq!(
        at_once(&mut client, lookup("b")),
        None,
        "what is there is asked for"
    );
}

/// Each was sent separately: a turn was requested to check when they are due, and sent what there
/// was.
#[test]
fn many_are_sent_together() {
    let mut client = delegated();
    client.fs.names = crate::names::Names::new(2000);
    know_root(&mut client);
    for n in 0..UNSENT_MAX {
        let ask = Ask::Names(make_open(n.to_string().as_str().into(), false));
        let (_, wakes) = client.fs.at_once(client.now, ask).expect("answered");
        assert_eq!(wakes, n == 0 || n + 1 == UNSENT_MAX / 2, "{n}");
    }
    assert!(made(&mut client, "more").is_none());
    let (call, _) = client.ask(Ask::Names(make_open("more".into(), false)));
    assert!(
        client
            .ended()
            .iter()
            .any(|(id, outcome)| *id == call && outcome.is_ok())
    );
    assert_eq!(sent(&client).0.len(), UNSENT_MAX);
}

/// Each close was reported with the next turn, and its answer caused the next turn: so names were
/// sent one by one, too.
#[test]
fn closes_are_told_with_the_names() {
    let mut client = delegated();
    let ino = made(&mut client, "a").expect("answered").ino;
    let close = FsCall::Close {
        ino,
        write: true,
        size: 0,
        mtime: Stamp::default(),
    };
    assert!(matches!(at_once(&mut client, close), Some(Ok(_))));
    client.turn(None);
    assert_eq!(client.asks(0), []);
    client.tick(Duration::from_millis(100));
    let calls: Vec<FsCall> = client
        .asks(0)
        .into_iter()
        .map(|request| request.call)
        .collect();
    assert!(
        matches!(calls[..], [FsCall::Make { .. }, FsCall::Close { .. }]),
        "{calls:?}"
    );
}
