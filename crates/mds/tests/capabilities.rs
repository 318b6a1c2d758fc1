//! The capabilities of two clients for a file's data, as the server grants them.

use crate::rig::{and_open, make_call};
use crate::sharing::{ANNA, BERT, Two};
use nacre_mds::mds::Say;
use nacre_types::{ClientId, Ino, Instance, Name};
use nacre_wire::fs::{FileKind, Inode, Stamp};
use nacre_wire::msg::fs::{
    FsAgain, FsAnswer, FsCall, FsCap, FsCapNews, FsChanges, FsOpens, FsRequest,
};
use std::time::Duration;

const BUFFER: FsCap = FsCap::Buffer {};
const SYNC: FsCap = FsCap::Sync {};

impl Two {
    fn make_open(&mut self, client: ClientId, number: u64) -> (Ino, FsCap) {
        let make = and_open(make_call(Ino::ROOT, "file", FileKind::File {}, 0o644));
        self.ask(client, number, make);
        self.settle();
        let reply = self.reply(client, number).expect("answered");
        (reply.caps[0].ino, reply.caps[0].cap)
    }
    pub fn told(&mut self, client: ClientId) -> Vec<FsCapNews> {
        let caps = |(who, say): &mut (ClientId, Say)| match say {
            Say::Caps(caps) if *who == client => Some(std::mem::take(&mut caps.items)),
            _ => None,
        };
        self.said.iter_mut().filter_map(caps).flatten().collect()
    }
    pub fn comply(
        &mut self,
        client: ClientId,
        number: u64,
        news: FsCapNews,
        size: u64,
        written: bool,
    ) {
        let FsCapNews {
            ino, number: of, ..
        } = news;
        self.ask(
            client,
            number,
            FsCall::Comply {
                ino,
                number: of,
                size,
                mtime: Stamp(5),
                written,
            },
        );
    }
    fn inode(&self, client: ClientId, number: u64) -> Option<Inode> {
        self.reply(client, number).map(|reply| match &reply.answer {
            FsAnswer::Node { node, .. } => node.inode.clone(),
            other => panic!("{other:?}"),
        })
    }
}

/// Data that a client has not written is visible to clients that look, but not to a later holder:
/// it would be lost with that client, and the file would have zeros that no client wrote.
#[test]
fn who_looks_is_told_of_what_is_not_written_and_the_journal_is_not() {
    let mut two = Two::new();
    let (ino, cap) = two.make_open(ANNA, 1);
    assert_eq!(cap, BUFFER);
    two.ask(BERT, 1, FsCall::Stat { ino });
    two.settle();
    assert_eq!(two.inode(BERT, 1), None, "its writer has not answered");
    let [news] = two.told(ANNA)[..] else {
        panic!("one question")
    };
    assert_eq!((news.ino, news.cap), (ino, BUFFER), "it goes on");
    two.comply(ANNA, 2, news, 777, false);
    let seen = two.inode(BERT, 1).expect("told");
    assert_eq!((seen.size, seen.mtime >= Stamp(5)), (777, true));
    two.settle();
    two.take_over();
    two.mds.on_session(BERT, Instance(1), (true, 0), &[]);
    let open = FsOpens {
        ino,
        reads: 0,
        writes: 1,
        cap: SYNC,
        alone: false,
        place: None,
    };
    two.mds.on_session(ANNA, Instance(1), (true, 0), &[open]);
    [ANNA, BERT]
        .into_iter()
        .for_each(|client| two.mds.on_caught_up(client));
    two.settle();
    two.said.retain(|(_, say)| !matches!(say, Say::Reply(_)));
    two.ask(ANNA, 3, FsCall::Stat { ino });
    two.settle();
    assert_eq!(two.inode(ANNA, 3).map(|inode| inode.size), Some(0));
}

#[test]
fn who_opens_it_too_may_do_something_when_the_other_one_has_written() {
    let mut two = Two::new();
    let (ino, _) = two.make_open(ANNA, 1);
    two.ask(BERT, 1, FsCall::Open { ino, write: false });
    two.settle();
    assert_eq!(
        two.reply(BERT, 1).expect("answered").caps[0].cap,
        FsCap::Nothing {}
    );
    let [recall] = two.told(ANNA)[..] else {
        panic!("no more")
    };
    assert_eq!(recall.cap, SYNC);
    two.settle();
    assert_eq!(two.told(BERT), []);
    two.comply(ANNA, 3, recall, 10, true);
    two.settle();
    let granted = FsCapNews {
        ino,
        cap: SYNC,
        number: 0,
    };
    assert_eq!(two.told(BERT), [granted]);
    // A client that only reads does not block itself.
    two.ask(
        ANNA,
        4,
        FsCall::Close {
            ino,
            write: true,
            size: 0,
            mtime: Stamp(0),
        },
    );
    two.settle();
    assert_eq!(
        two.told(BERT),
        [FsCapNews {
            cap: FsCap::Cache {},
            ..granted
        }]
    );
}

/// A mount died with unwritten data. A program on another one looked its file up, and thereby
/// blocked every creation of files in that directory there for 10 s: kernels look up and create
/// names under one lock. They ask for the file's size separately.
#[test]
fn a_name_is_looked_up_without_its_writer() {
    let mut two = Two::new();
    let (ino, _) = two.make_open(ANNA, 1);
    two.ask(
        BERT,
        1,
        FsCall::Lookup {
            dir: Ino::ROOT,
            name: Name::from("file"),
        },
    );
    two.settle();
    assert_eq!(
        (two.inode(BERT, 1).map(|inode| inode.ino), two.told(ANNA)),
        (Some(ino), vec![])
    );
    let is_kept = two.reply(BERT, 1).is_some_and(|reply| match &reply.answer {
        FsAnswer::Node { node, .. } => node.home.is_some(),
        other => panic!("{other:?}"),
    });
    assert!(!is_kept, "it may be larger");
}

/// `statlite`: a writer that does not answer used to delay each look at its file by 10 s. Such a
/// look gets the writer's last report, and may not cache it.
#[test]
fn who_wants_no_exact_size_is_told_without_its_writer() {
    let mut two = Two::new();
    let (ino, _) = two.make_open(ANNA, 1);
    two.settle();
    let lite = |two: &mut Two, number| {
        two.ask(BERT, number, FsCall::StatLite { ino });
        two.settle();
        let size = two.inode(BERT, number).expect("it waits for no one").size;
        let reply = two.reply(BERT, number).expect("answered");
        let home = reply.answer.nodes().next().expect("a node").home;
        assert_eq!(
            (reply.keep, &reply.shares, home),
            (false, &vec![], None),
            "it may be larger"
        );
        size
    };
    assert_eq!((lite(&mut two, 1), two.told(ANNA)), (0, vec![]));
    two.ask(BERT, 2, FsCall::Stat { ino });
    two.settle();
    let [news] = two.told(ANNA)[..] else {
        panic!("one question")
    };
    two.comply(ANNA, 2, news, 777, false);
    two.settle();
    assert_eq!(
        (lite(&mut two, 3), two.told(ANNA)),
        (777, vec![]),
        "as she told last"
    );
    two.ask(
        ANNA,
        3,
        FsCall::Wrote {
            ino,
            size: 888,
            mtime: Stamp(6),
        },
    );
    two.settle();
    assert_eq!(lite(&mut two, 4), 888);
}

/// What another client writes while a file is truncated would be removed with it.
#[test]
fn a_file_is_cut_off_while_others_do_nothing_with_it() {
    let mut two = Two::new();
    let (ino, _) = two.make_open(ANNA, 1);
    let changes = FsChanges {
        size: Some(0),
        ..FsChanges::default()
    };
    two.ask(BERT, 1, FsCall::Set { ino, changes });
    two.settle();
    assert_eq!(two.inode(BERT, 1), None);
    let [recall] = two.told(ANNA)[..] else {
        panic!("no more")
    };
    assert_eq!(recall.cap, FsCap::Nothing {});
    two.comply(ANNA, 2, recall, 5000, true);
    two.settle();
    assert_eq!(two.inode(BERT, 1).map(|inode| inode.size), Some(0));
    assert_eq!(
        two.told(ANNA),
        [FsCapNews {
            ino,
            cap: BUFFER,
            number: 0
        }]
    );
}

/// Its writer may have answered a `chmod` of its own that is still in flight: that came first. A
/// client that only reads keeps its capability.
#[test]
fn a_file_is_another_owners_when_its_writer_has_said_what_it_foretold() {
    let mut two = Two::new();
    let (ino, _) = two.make_open(ANNA, 1);
    let changes = FsChanges {
        uid: Some(7),
        ..FsChanges::default()
    };
    two.ask(BERT, 1, FsCall::Set { ino, changes });
    two.settle();
    assert_eq!(two.inode(BERT, 1), None);
    let [recall] = two.told(ANNA)[..] else {
        panic!("no more")
    };
    let foretold = FsChanges {
        uid: Some(3),
        mode: Some(0o600),
        foretold: Some(Stamp(i64::MAX)),
        ..changes
    };
    two.ask(
        ANNA,
        2,
        FsCall::Set {
            ino,
            changes: foretold,
        },
    );
    two.settle();
    let done = two.inode(ANNA, 2).expect("it waits for no one");
    assert_eq!(
        (done.uid, done.ctime),
        (3, Stamp(i64::MAX)),
        "it happened when its client says"
    );
    assert_eq!(two.inode(BERT, 1), None);
    two.comply(ANNA, 3, recall, 5000, true);
    two.settle();
    assert_eq!(
        two.inode(BERT, 1).map(|inode| (inode.uid, inode.mode)),
        Some((7, 0o600))
    );

    let mut two = Two::new();
    let (ino, _) = two.make_open(ANNA, 1);
    two.ask(ANNA, 2, FsCall::Open { ino, write: false });
    two.ask(
        ANNA,
        3,
        FsCall::Close {
            ino,
            write: true,
            size: 0,
            mtime: Stamp::default(),
        },
    );
    two.settle();
    two.told(ANNA);
    two.ask(BERT, 1, FsCall::Set { ino, changes });
    two.settle();
    assert_eq!(
        two.inode(BERT, 1).map(|inode| inode.uid),
        Some(7),
        "a reader is not in the way"
    );
}

/// Two clients that want exclusion wait for each other's end, not for each other.
#[test]
fn one_at_a_time_has_a_file_alone() {
    let mut two = Two::new();
    let (ino, _) = two.make_open(ANNA, 1);
    two.ask(BERT, 1, FsCall::Open { ino, write: true });
    let mut numbers = [10, 10];
    let mut all_comply = |two: &mut Two| {
        for _ in 0..4 {
            for (at, client) in [ANNA, BERT].into_iter().enumerate() {
                for news in two.told(client).into_iter().filter(|news| news.number > 0) {
                    numbers[at] += 1;
                    two.comply(client, numbers[at], news, 0, true);
                }
            }
            two.settle();
        }
    };
    all_comply(&mut two);
    two.ask(ANNA, 2, FsCall::Alone { ino, ends: false });
    two.ask(BERT, 2, FsCall::Alone { ino, ends: false });
    all_comply(&mut two);
    assert!(two.inode(ANNA, 2).is_some() && two.inode(BERT, 2).is_none());
    // Its own client may truncate it: that used to wait for an end that waited for it.
    let changes = FsChanges {
        size: Some(0),
        ..FsChanges::default()
    };
    two.ask(ANNA, 3, FsCall::Set { ino, changes });
    all_comply(&mut two);
    assert!(two.inode(ANNA, 3).is_some() && two.inode(BERT, 2).is_none());
    two.ask(ANNA, 4, FsCall::Alone { ino, ends: true });
    all_comply(&mut two);
    assert!(two.inode(BERT, 2).is_some());
}

/// A client that had a file alone died. It had not been asked for anything, so it owed nothing, and
/// all that appended to that file waited as long as its connection seemed to exist. (Simulated.)
#[test]
fn one_that_has_a_file_alone_and_is_not_heard_of_is_evicted() {
    for others in [false, true] {
        let mut two = Two::new();
        let (ino, _) = two.make_open(ANNA, 1);
        if others {
            two.ask(BERT, 1, FsCall::Open { ino, write: true });
            for (number, news) in (10..).zip(two.told(ANNA)) {
                two.comply(ANNA, number, news, 0, true);
            }
        }
        two.ask(ANNA, 2, FsCall::Alone { ino, ends: false });
        for (number, news) in (10..).zip(two.told(BERT)) {
            two.comply(BERT, number, news, 0, true);
        }
        two.settle();
        assert!(two.inode(ANNA, 2).is_some(), "she has it");
        for seconds in 1..=20 {
            two.now = two.now + Duration::from_secs(1);
            two.mds.on_heard(two.now, BERT);
            if seconds < 10 {
                two.mds.on_heard(two.now, ANNA);
            }
            two.settle();
            let is_evicted = two
                .said
                .iter()
                .any(|(who, said)| *who == ANNA && matches!(said, Say::Evicted(_)));
            let is_due = others && seconds >= 20;
            assert!(
                is_evicted == is_due || others && seconds > 17,
                "after {seconds} s, of which she was heard for 9"
            );
        }
    }
}

/// A close was answered, and lost with the server. Its client reported its open files without it,
/// and resent it: the next holder counted it twice, and gave the file to another client while it
/// was still being written.
#[test]
fn a_close_that_is_done_again_was_named_before() {
    let mut two = Two::new();
    let (ino, _) = two.make_open(ANNA, 1);
    two.ask(ANNA, 2, FsCall::Open { ino, write: true });
    two.settle();
    let close = FsCall::Close {
        ino,
        write: true,
        size: 5,
        mtime: Stamp(7),
    };
    two.ask(ANNA, 3, close.clone());
    let stamp = two.reply(ANNA, 3).expect("early").stamp;
    two.take_over();
    let open = FsOpens {
        ino,
        reads: 0,
        writes: 1,
        cap: BUFFER,
        alone: false,
        place: None,
    };
    two.mds.on_session(ANNA, Instance(1), (true, 0), &[open]);
    two.mds.on_session(BERT, Instance(1), (true, 0), &[]);
    two.settle();
    let again = Some(FsAgain {
        stamp,
        made: Ino::TOP,
    });
    two.mds.on_request(
        ANNA,
        FsRequest {
            number: 3,
            safe_below: 1,
            again,
            foretold: None,
            place: None,
            call: close,
        },
    );
    [ANNA, BERT]
        .into_iter()
        .for_each(|client| two.mds.on_caught_up(client));
    two.settle();
    two.ask(BERT, 1, FsCall::Open { ino, write: true });
    two.settle();
    assert_eq!(two.told(ANNA).len(), 1, "it may have written");
}

/// A client had appended to a file and given the capability back, and its server died before it
/// knew the file's size. The next one let another client append before it knew: over existing data.
#[test]
fn what_a_client_tells_again_comes_before_what_others_want() {
    let mut two = Two::new();
    let (ino, _) = two.make_open(ANNA, 1);
    two.settle();
    two.take_over();
    let open = FsOpens {
        ino,
        reads: 0,
        writes: 1,
        cap: FsCap::Nothing {},
        alone: false,
        place: None,
    };
    two.mds
        .on_session(BERT, Instance(1), (true, 0), std::slice::from_ref(&open));
    // It has the file in memory.
    let call = FsCall::Wrote {
        ino,
        size: 5,
        mtime: Stamp(5),
    };
    let again = Some(FsAgain {
        stamp: Stamp(5),
        made: Ino::TOP,
    });
    two.mds.on_request(
        BERT,
        FsRequest {
            number: 1,
            safe_below: 1,
            again,
            foretold: None,
            place: None,
            call,
        },
    );
    two.settle();
    two.ask(BERT, 2, FsCall::Alone { ino, ends: false });
    two.mds.on_session(ANNA, Instance(1), (true, 0), &[open]);
    two.ask(
        ANNA,
        2,
        FsCall::Comply {
            ino,
            number: 9,
            size: 777,
            mtime: Stamp(7),
            written: true,
        },
    );
    [ANNA, BERT]
        .into_iter()
        .for_each(|client| two.mds.on_caught_up(client));
    two.settle();
    assert_eq!(two.inode(BERT, 2).map(|inode| inode.size), Some(777));
}
