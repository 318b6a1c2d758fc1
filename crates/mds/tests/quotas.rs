//! Delayed writes of clients below a quota, as granted by the server.

use crate::rig::{and_open, make_call};
use crate::sharing::{ANNA, BERT, Two};
use nacre_types::{ClientId, Ino, Instance, Name};
use nacre_wire::fs::{FileKind, Stamp};
use nacre_wire::msg::fs::{FsAnswer, FsCall, FsCap, FsOpens};

const EDQUOT: FsAnswer = FsAnswer::Failed { errno: 122 };

fn set(dir: Ino, max: u64) -> FsCall {
    let (name, value) = (Name::from("nacre.quota.max_bytes"), max.to_string().into());
    FsCall::SetXattr {
        ino: dir,
        name,
        value,
        fresh: None,
        drop_sgid: false,
    }
}

impl Two {
    /// A client's final answer and its capability then; `None`: it waits.
    fn did(
        &mut self,
        client: ClientId,
        number: u64,
        call: FsCall,
    ) -> Option<(FsAnswer, Option<FsCap>)> {
        self.ask(client, number, call);
        self.settle();
        self.done(client, number)
    }
    fn done(&self, client: ClientId, number: u64) -> Option<(FsAnswer, Option<FsCap>)> {
        let reply = self.reply(client, number)?;
        Some((
            reply.answer.clone(),
            reply.caps.first().map(|grant| grant.cap),
        ))
    }
    fn made(&mut self, client: ClientId, number: u64, call: FsCall) -> (Ino, Option<FsCap>) {
        match self.did(client, number, call) {
            Some((FsAnswer::Node { node, .. }, cap)) => (node.inode.ino, cap),
            other => panic!("{other:?}"),
        }
    }
    /// A directory with a quota of a thousand bytes.
    fn bounded(&mut self) -> Ino {
        let (dir, _) = self.made(
            ANNA,
            80,
            make_call(Ino::ROOT, "d", FileKind::Directory {}, 0o755),
        );
        self.made(ANNA, 81, set(dir, 1000));
        dir
    }
    fn open(&mut self, client: ClientId, number: u64, dir: Ino, name: &str) -> (Ino, FsCap) {
        let (ino, cap) = self.made(
            client,
            number,
            and_open(make_call(dir, name, FileKind::File {}, 0o644)),
        );
        (ino, cap.expect("it is open"))
    }
}

fn grow(ino: Ino, size: u64) -> FsCall {
    FsCall::Grow { ino, size }
}
const fn done(room: u64) -> Option<(FsAnswer, Option<FsCap>)> {
    Some((FsAnswer::Done {}, Some(FsCap::Bounded { room })))
}

/// Files elsewhere are unaffected.
#[test]
fn only_below_a_quota_a_client_asks_for_room() {
    let mut two = Two::new();
    let dir = two.bounded();
    assert_eq!(two.open(ANNA, 1, Ino::ROOT, "free").1, FsCap::Buffer {});
    let (ino, cap) = two.open(ANNA, 2, dir, "file");
    assert_eq!(cap, FsCap::Bounded { room: 0 });
    // More than requested: a share of what is left.
    assert_eq!(two.did(ANNA, 3, grow(ino, 200)), done(300));
    assert_eq!(
        two.did(ANNA, 4, grow(ino, 1001)).map(|(answer, _)| answer),
        Some(EDQUOT)
    );
    assert_eq!(two.did(ANNA, 5, grow(ino, 1000)), done(1000));
    assert!(matches!(
        two.did(
            ANNA,
            6,
            FsCall::Wrote {
                ino,
                size: 1000,
                mtime: Stamp(5)
            }
        ),
        Some((FsAnswer::Node { .. }, _))
    ));
}

/// Space that was given and not used is not lost, and does not block others for long.
#[test]
fn what_is_spare_is_given_back_when_another_wants_it() {
    let mut two = Two::new();
    let dir = two.bounded();
    let ((a, _), (b, _)) = (two.open(ANNA, 1, dir, "a"), two.open(BERT, 1, dir, "b"));
    assert_eq!(two.did(ANNA, 2, grow(a, 600)), done(650));
    assert_eq!(
        two.did(BERT, 2, grow(b, 400)),
        None,
        "it is not refused yet"
    );
    let [recall] = two.told(ANNA)[..] else {
        panic!("one question")
    };
    assert_eq!((recall.ino, recall.cap), (a, FsCap::Bounded { room: 0 }));
    // What it has written within its room is accepted, like all its reports when it gives something
    // back.
    two.comply(ANNA, 3, recall, 600, true);
    two.settle();
    assert_eq!(two.done(BERT, 2), done(400));
    assert_eq!(two.did(ANNA, 4, grow(a, 601)), None);
    let [recall] = two.told(BERT)[..] else {
        panic!("one question")
    };
    two.comply(BERT, 3, recall, 400, true);
    two.settle();
    assert_eq!(
        two.done(ANNA, 4).map(|(answer, _)| answer),
        Some(EDQUOT),
        "now it is"
    );
}

/// A client that writes a file without limit could make it larger than the quota before it heard of
/// it.
#[test]
fn a_quota_is_set_when_no_one_writes_below_it_without_bound() {
    let mut two = Two::new();
    let (dir, _) = two.made(
        ANNA,
        80,
        make_call(Ino::ROOT, "d", FileKind::Directory {}, 0o755),
    );
    let (ino, cap) = two.open(ANNA, 1, dir, "file");
    assert_eq!(cap, FsCap::Buffer {});
    assert_eq!(two.did(BERT, 1, set(dir, 1000)), None);
    let [recall] = two.told(ANNA)[..] else {
        panic!("one question")
    };
    assert_eq!(recall.cap, FsCap::Bounded { room: 0 });
    two.comply(ANNA, 2, recall, 5000, true);
    two.settle();
    assert!(two.done(BERT, 1).is_some());
    assert_eq!(
        two.did(ANNA, 3, grow(ino, 5001)).map(|(answer, _)| answer),
        Some(EDQUOT),
        "what is there stays"
    );
    two.made(BERT, 2, set(dir, 0));
    assert_eq!(
        two.told(ANNA)
            .iter()
            .map(|news| news.cap)
            .collect::<Vec<_>>(),
        [FsCap::Buffer {}]
    );
}

/// The same for a file that is moved below a quota, and for its writers' space.
#[test]
fn what_is_written_comes_below_a_quota_with_its_room() {
    let mut two = Two::new();
    let dir = two.bounded();
    let (ino, _) = two.open(ANNA, 1, Ino::ROOT, "file");
    let rename = |from, to| FsCall::Rename {
        dir: from,
        name: "file".into(),
        to_dir: to,
        to_name: "file".into(),
        flags: 0,
    };
    assert_eq!(two.did(BERT, 1, rename(Ino::ROOT, dir)), None);
    let [recall] = two.told(ANNA)[..] else {
        panic!("one question")
    };
    two.comply(ANNA, 2, recall, 1001, true);
    two.settle();
    assert_eq!(
        two.done(BERT, 1).map(|(answer, _)| answer),
        Some(EDQUOT),
        "it had written more than there is room for"
    );
    let changes = nacre_wire::msg::fs::FsChanges {
        size: Some(900),
        ..Default::default()
    };
    two.did(ANNA, 3, FsCall::Set { ino, changes });
    let again = two.did(BERT, 2, rename(Ino::ROOT, dir));
    assert_eq!(again, None, "it writes without bound again: {again:?}");
    let news = two.told(ANNA);
    let recall = *news.last().expect("told");
    two.comply(ANNA, 4, recall, 900, true);
    two.settle();
    assert_eq!(
        two.done(BERT, 2).map(|(answer, _)| answer),
        Some(FsAnswer::Done {})
    );
    assert_eq!(
        two.did(ANNA, 5, grow(ino, 1001)).map(|(answer, _)| answer),
        Some(EDQUOT)
    );
}

/// The next holder of the rank knows what its clients report, and gives it to no other.
#[test]
fn a_takeover_leaves_a_client_what_it_was_given() {
    let mut two = Two::new();
    let dir = two.bounded();
    let ((a, _), (b, _)) = (two.open(ANNA, 1, dir, "a"), two.open(BERT, 1, dir, "b"));
    assert_eq!(two.did(ANNA, 2, grow(a, 600)), done(650));
    two.take_over();
    let opens = |ino, cap| FsOpens {
        ino,
        reads: 0,
        writes: 1,
        cap,
        alone: false,
        place: None,
    };
    two.mds.on_session(
        ANNA,
        Instance(1),
        (true, 0),
        &[opens(a, FsCap::Bounded { room: 650 })],
    );
    two.mds.on_session(
        BERT,
        Instance(1),
        (true, 0),
        &[opens(b, FsCap::Bounded { room: 0 })],
    );
    [ANNA, BERT]
        .into_iter()
        .for_each(|client| two.mds.on_caught_up(client));
    two.settle();
    assert_eq!(two.did(BERT, 3, grow(b, 400)), None);
    let [recall] = two.told(ANNA)[..] else {
        panic!("one question")
    };
    assert_eq!(recall.cap, FsCap::Bounded { room: 0 });
    two.comply(ANNA, 4, recall, 650, true);
    two.settle();
    assert_eq!(two.done(BERT, 3).map(|(answer, _)| answer), Some(EDQUOT));
    assert_eq!(two.did(BERT, 5, grow(b, 350)), done(350));
}

/// Files that several write: the server is asked first, and refuses.
#[test]
fn who_writes_with_others_asks_first() {
    let mut two = Two::new();
    let dir = two.bounded();
    let (ino, _) = two.open(ANNA, 1, dir, "a");
    two.ask(BERT, 1, FsCall::Open { ino, write: true });
    two.settle();
    let [recall] = two.told(ANNA)[..] else {
        panic!("one question")
    };
    two.comply(ANNA, 2, recall, 0, true);
    two.settle();
    assert_eq!(
        two.told(BERT)
            .iter()
            .map(|news| news.cap)
            .collect::<Vec<_>>(),
        [FsCap::Asks {}]
    );
    let wrote = |size| FsCall::Wrote {
        ino,
        size,
        mtime: Stamp(5),
    };
    assert_eq!(
        two.did(BERT, 2, wrote(1001)).map(|(answer, _)| answer),
        Some(EDQUOT)
    );
    assert!(matches!(
        two.did(BERT, 3, wrote(1000)),
        Some((FsAnswer::Node { .. }, _))
    ));
}
