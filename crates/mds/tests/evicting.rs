//! Clients whose timeout has expired, on a cluster that can fence them.

use crate::locks::{DONE, WAITS, wanted};
use crate::rig::{and_open, make_call};
use crate::sharing::{ANNA, BERT, Two};
use nacre_mds::mds::{Greeted, HEAD_ATTR, Say, fragment_name};
use nacre_types::{ClientId, Frag, Ino, Instance, Name, ObjectId};
use nacre_wire::fs::{FileKind, FsLockWait, Inode, Stamp, data_name};
use nacre_wire::msg::client::SubOp;
use nacre_wire::msg::fs::{
    FS_LARGER_ONLY, FsAnswer, FsCall, FsCap, FsChanges, FsEvicted, FsLocked, FsOpens, FsPlace,
};
use std::time::Duration;

const FIRST: Instance = Instance(1);
const SECOND: Instance = Instance(2);

/// ANNA has a lock that BERT waits for.
fn two() -> Two {
    let mut two = Two::new();
    two.objects.fences_refused = Some(0);
    assert_eq!(two.answer(ANNA, 1, wanted(1, false)), DONE);
    assert_eq!(two.answer(BERT, 1, wanted(1, true)), WAITS);
    two
}

impl Two {
    fn fences(&self) -> Vec<(ClientId, Instance)> {
        self.objects
            .fences
            .iter()
            .map(|(_, client, instance)| (*client, *instance))
            .collect()
    }
    fn greets(&mut self, instance: Instance, known: bool) -> Greeted {
        let greeted = self.mds.on_session(ANNA, instance, (known, 0), &[]);
        self.settle();
        greeted
    }
    fn is_told(&self, say: &Say) -> bool {
        self.said
            .iter()
            .any(|(who, said)| *who == ANNA && said == say)
    }
    /// ANNA's timeout expires at the next holder of the rank.
    fn take_over_without_anna(&mut self) {
        self.take_over();
        self.greet(BERT, &[], &[]);
        self.now = self.mds.next_deadline();
        self.settle();
    }
    fn pass(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        self.settle();
    }
}
fn evicted(instance: Instance) -> Say {
    Say::Evicted(FsEvicted { instance })
}
const WELCOME: Say = Say::Welcome {
    again: false,
    greeting: 0,
};

/// What it sends to OSDs may be executed until then.
#[test]
fn what_an_evicted_client_has_is_its_own_until_it_is_fenced() {
    let mut two = two();
    two.mds.evict(ANNA);
    two.settle();
    two.mds.evict(ANNA);
    two.settle();
    assert_eq!((two.fences(), two.locked()), (vec![(ANNA, FIRST)], vec![]));
    assert_eq!(
        two.answer(
            ANNA,
            2,
            FsCall::Lookup {
                dir: Ino::ROOT,
                name: "x".into()
            }
        ),
        None
    );
    for known in [true, false] {
        assert_eq!(two.greets(FIRST, known), Greeted::NotYet);
    }
    two.mds.on_leave(ANNA);
    two.settle();
    assert!(two.said.is_empty(), "{:?}", two.said);
    two.objects.end_fence(true);
    two.settle();
    assert!(
        two.is_told(&evicted(FIRST)) && two.locked() == [(BERT, 1)],
        "{:?}",
        two.said
    );
    // A client that was not welcomed does not know that there was a session.
    for known in [true, false] {
        two.said.clear();
        assert_eq!(two.greets(FIRST, known), Greeted::Taken);
        assert!(
            two.is_told(&evicted(FIRST)) && !two.is_told(&WELCOME),
            "{:?}",
            two.said
        );
    }
    assert_eq!(two.greets(SECOND, false), Greeted::Taken);
    assert!(
        two.is_told(&WELCOME) && two.fences().is_empty(),
        "{:?}",
        two.said
    );
}

/// Its next writes would recreate the objects.
#[test]
fn a_file_that_it_has_open_is_there_until_it_is_fenced() {
    let mut two = two();
    let call = and_open(make_call(Ino::ROOT, "x", FileKind::File {}, 0o644));
    let Some(FsAnswer::Node { node, .. }) = two.answer(ANNA, 2, call) else {
        panic!("{:?}", two.said)
    };
    let ino = node.inode.ino;
    assert!(
        two.answer(
            ANNA,
            3,
            FsCall::Wrote {
                ino,
                size: 5,
                mtime: node.inode.mtime
            }
        )
        .is_some()
    );
    let name = Name::from(&*data_name(ino, 0));
    let object = ObjectId {
        name,
        namespace: "fs".into(),
        ..ObjectId::default()
    };
    let pool = node.inode.layout.expect("a file").pool;
    let operation = |op, payload| nacre_client::Operation {
        pool,
        object: object.clone(),
        ops: vec![op],
        payload,
        ..nacre_client::Operation::default()
    };
    two.objects.run(&operation(
        SubOp::Write {
            offset: 0,
            length: 5,
        },
        vec![bytes::Bytes::from_static(b"hello")],
    ));
    two.settle();
    two.ask(
        BERT,
        2,
        FsCall::Unlink {
            dir: Ino::ROOT,
            name: "x".into(),
            directory: false,
        },
    );
    two.mds.evict(ANNA);
    two.settle();
    let is_there = |two: &mut Two| {
        two.objects
            .memory
            .perform(&operation(SubOp::Stat {}, Vec::new()))
            .is_ok()
    };
    assert!(is_there(&mut two));
    two.objects.end_fence(true);
    two.settle();
    assert!(!is_there(&mut two));
}

#[test]
fn a_fence_that_is_refused_or_fails_is_asked_for_again() {
    let mut two = two();
    two.objects.fences_refused = Some(2);
    two.mds.evict(ANNA);
    two.settle();
    for _ in 0..2 {
        assert_eq!(two.fences(), []);
        two.pass(1000);
    }
    assert_eq!(two.fences(), [(ANNA, FIRST)]);
    two.objects.end_fence(false);
    two.settle();
    assert_eq!((two.fences(), two.locked()), (vec![], vec![]));
    two.pass(1000);
    assert_eq!(two.fences(), [(ANNA, FIRST)]);
    two.objects.end_fence(true);
    two.settle();
    assert_eq!(two.locked(), [(BERT, 1)]);
}

/// Clients that did not come in time do not know that there is another holder, and act.
#[test]
fn the_next_holder_does_nothing_new_before_those_who_did_not_come_are_fenced() {
    let mut two = two();
    two.take_over();
    two.greet(
        BERT,
        &[],
        &[FsLockWait {
            number: 1,
            lock: crate::locks::lock(1),
        }],
    );
    two.now = two.mds.next_deadline();
    two.settle();
    assert_eq!((two.fences(), two.locked()), (vec![(ANNA, FIRST)], vec![]));
    assert!(
        two.mds.next_deadline() > two.now,
        "nothing is to be done until then"
    );
    assert_eq!(
        two.answer(BERT, 2, make_call(Ino::ROOT, "x", FileKind::File {}, 0o644)),
        None
    );
    // It is too late for that.
    two.mds.on_caught_up(ANNA);
    assert_eq!(two.greets(FIRST, true), Greeted::NotYet);
    assert_eq!((two.locked(), two.reply(BERT, 2)), (vec![], None));
    two.objects.end_fence(true);
    two.settle();
    assert_eq!(two.locked(), [(BERT, 1)]);
    assert!(
        two.is_told(&evicted(FIRST)) && two.reply(BERT, 2).is_some(),
        "{:?}",
        two.said
    );
}

/// An OSD told it before this holder knew, or a former holder did.
#[test]
fn a_later_instance_is_welcomed_when_the_former_one_is_fenced() {
    let mut two = two();
    two.said.clear();
    assert_eq!(two.greets(SECOND, false), Greeted::NotYet);
    assert_eq!((two.fences(), two.locked()), (vec![(ANNA, FIRST)], vec![]));
    assert!(!two.is_told(&WELCOME));
    two.objects.end_fence(true);
    two.settle();
    assert_eq!(two.locked(), [(BERT, 1)]);
    assert_eq!(two.greets(SECOND, false), Greeted::Taken);
    assert!(two.is_told(&WELCOME));
    assert_eq!(two.greets(FIRST, false), Greeted::Taken);
    assert!(
        two.fences().is_empty(),
        "a greeting from before changes nothing"
    );
    two.said.clear();
    assert_eq!(
        two.answer(ANNA, 9, wanted(9, false)),
        Some(FsAnswer::Failed { errno: 11 }),
        "it has its session"
    );
    assert!(
        !two.said
            .iter()
            .any(|(_, say)| matches!(say, Say::Locked(FsLocked { .. })))
    );
}

// ── what an evicted client had written ──────────────────────────────────────────────────

/// The answer to a request, however long it takes.
fn ends(two: &mut Two, client: ClientId, number: u64, call: FsCall) -> FsAnswer {
    two.ask(client, number, call);
    two.settle();
    two.reply(client, number)
        .unwrap_or_else(|| panic!("{:?}", two.said))
        .answer
        .clone()
}
/// ANNA creates a file, has it open, and has reported that it has written 5 bytes.
fn writing(two: &mut Two) -> Inode {
    let call = and_open(make_call(Ino::ROOT, "x", FileKind::File {}, 0o644));
    let Some(FsAnswer::Node { node, .. }) = two.answer(ANNA, 2, call) else {
        panic!("{:?}", two.said)
    };
    let inode = node.inode;
    write(two, &inode, 0, 5);
    assert!(
        two.answer(
            ANNA,
            3,
            FsCall::Wrote {
                ino: inode.ino,
                size: 5,
                mtime: inode.mtime
            }
        )
        .is_some()
    );
    two.settle();
    inode
}
/// Sets the length of a file's object.
fn write(two: &mut Two, inode: &Inode, number: u64, length: u32) {
    let name = Name::from(&*data_name(inode.ino, number));
    let object = ObjectId {
        name,
        namespace: "fs".into(),
        ..ObjectId::default()
    };
    let pool = inode.layout.expect("a file").pool;
    let ops = vec![SubOp::Write {
        offset: 0,
        length: u64::from(length),
    }];
    let payload = vec![bytes::Bytes::from(vec![1; length as usize])];
    two.objects.run(&nacre_client::Operation {
        pool,
        object,
        ops,
        payload,
        ..Default::default()
    });
}
/// The file's size for BERT, and its modification time.
fn seen(two: &mut Two, number: u64, name: &str) -> (u64, Stamp) {
    let call = FsCall::Lookup {
        dir: Ino::ROOT,
        name: name.into(),
    };
    let FsAnswer::Node { node, .. } = ends(two, BERT, number, call) else {
        panic!("{:?}", two.said)
    };
    (node.inode.size, node.inode.mtime)
}

/// It had synchronized that: it was in objects, and the server would have been told a moment later.
#[test]
fn what_it_had_written_is_found() {
    let mut two = two();
    let inode = writing(&mut two);
    for (number, length) in [(0, 4096), (1, 4096), (2, 100)] {
        write(&mut two, &inode, number, length);
    }
    // It was still writing that, and something before it. 8 objects of 4 KiB are examined.
    write(&mut two, &inode, 4, 100);
    two.mds.evict(ANNA);
    two.settle();
    assert!(!two.is_told(&evicted(FIRST)), "{:?}", two.said);
    two.objects.end_fence(true);
    two.settle();
    assert!(two.is_told(&evicted(FIRST)), "{:?}", two.said);
    let (size, mtime) = seen(&mut two, 2, "x");
    assert_eq!((size, mtime > inode.mtime), (2 * 4096 + 100, true));
    let there = |number| Name::from(&*data_name(inode.ino, number));
    let has = |number| {
        two.objects
            .memory
            .all
            .keys()
            .any(|(_, object)| object.name == there(number))
    };
    assert_eq!([0, 1, 2, 4].map(has), [true, true, true, false]);
}

/// The server dies with its client, and was not told everything: the next holder of the rank finds
/// it, whether the writer is recorded in the journal or in its head, and wherever the file is by
/// then.
#[test]
fn what_it_had_written_is_found_by_the_next_holder() {
    for written in [false, true] {
        let mut two = two();
        let inode = writing(&mut two);
        let (dir, to_dir, flags) = (Ino::ROOT, Ino::ROOT, 0);
        let renames = FsCall::Rename {
            dir,
            name: "x".into(),
            to_dir,
            to_name: "y".into(),
            flags,
        };
        assert_eq!(ends(&mut two, BERT, 2, renames), FsAnswer::Done {});
        if written {
            assert_eq!(ends(&mut two, BERT, 3, FsCall::Flush {}), FsAnswer::Done {});
        }
        write(&mut two, &inode, 0, 4096);
        write(&mut two, &inode, 1, 10);
        two.take_over_without_anna();
        assert_eq!(two.fences(), [(ANNA, FIRST)]);
        two.objects.end_fence(true);
        two.settle();
        assert_eq!(seen(&mut two, 4, "y").0, 4096 + 10, "{written}");
    }
}

/// A holder had fenced a client and removed what was after a hole, and died before the session had
/// ended. The next one accepted the client, which reported its file's size as written: it had
/// synchronized that data, and it was gone. (Simulated seed 535.)
#[test]
fn a_client_that_was_being_evicted_is_not_taken_by_the_next_holder() {
    let mut two = two();
    let inode = writing(&mut two);
    write(&mut two, &inode, 4, 100);
    two.mds.evict(ANNA);
    two.settle();
    two.objects.end_fence(true);
    let has = |two: &Two| {
        let name = Name::from(&*data_name(inode.ino, 4));
        two.objects
            .memory
            .all
            .keys()
            .any(|(_, object)| object.name == name)
    };
    for _ in 0..100 {
        if !has(&two) {
            break;
        }
        two.turn();
        two.objects.work(1);
    }
    assert!(
        !has(&two) && !two.is_told(&evicted(FIRST)),
        "it is cut off, and its client has not heard: {:?}",
        two.said
    );
    two.take_over();
    two.greet(BERT, &[], &[]);
    assert_eq!(two.greets(FIRST, true), Greeted::NotYet);
    assert_eq!(two.fences(), [(ANNA, FIRST)], "once more");
    two.objects.end_fence(true);
    two.settle();
    assert!(
        two.is_told(&evicted(FIRST)) && !two.is_told(&WELCOME),
        "{:?}",
        two.said
    );
    assert_eq!(seen(&mut two, 4, "x").0, 5);
}

/// A program wrote a file, set its times, and synchronized both, as `rsync` does; then its client
/// died. The file got the time of the eviction.
#[test]
fn times_that_were_set_stay_when_the_client_is_evicted() {
    for (written_again, grows) in [(false, false), (false, true), (true, false)] {
        let mut two = two();
        let inode = writing(&mut two);
        let set = |mtime| FsCall::Set {
            ino: inode.ino,
            changes: FsChanges {
                mtime: Some(Some(mtime)),
                ..FsChanges::default()
            },
        };
        assert!(
            matches!(
                ends(&mut two, ANNA, 4, set(Stamp(77))),
                FsAnswer::Node { .. }
            ),
            "{:?}",
            two.said
        );
        let wrote = |size, mtime| FsCall::Wrote {
            ino: inode.ino,
            size,
            mtime,
        };
        if grows {
            // What was buffered when they were set.
            write(&mut two, &inode, 0, 50);
            let wrote = wrote(50, FS_LARGER_ONLY);
            assert!(
                matches!(ends(&mut two, ANNA, 5, wrote), FsAnswer::Node { .. }),
                "{:?}",
                two.said
            );
        }
        if written_again {
            let wrote = wrote(5, Stamp(78));
            assert!(
                matches!(ends(&mut two, ANNA, 5, wrote), FsAnswer::Node { .. }),
                "{:?}",
                two.said
            );
        }
        two.mds.evict(ANNA);
        two.settle();
        two.objects.end_fence(true);
        two.settle();
        let (size, mtime) = seen(&mut two, 4, "x");
        assert_eq!(
            (size, mtime == Stamp(77)),
            (if grows { 50 } else { 5 }, !written_again),
            "{mtime:?}"
        );
    }
}

/// Its directory could not be read when its client was evicted. The next holder that can read it
/// examines the file, and must know that synchronized data counts, reported or not: it forgot that,
/// and truncated the file.
#[test]
fn what_it_had_written_is_found_when_its_directory_can_be_read_again() {
    let mut two = two();
    let dir = ends(
        &mut two,
        ANNA,
        2,
        make_call(Ino::ROOT, "dir", FileKind::Directory {}, 0o755),
    );
    let dir = dir.nodes().next().expect("it is made").inode.ino;
    let file = ends(
        &mut two,
        ANNA,
        3,
        and_open(make_call(dir, "x", FileKind::File {}, 0o644)),
    );
    let inode = file.nodes().next().expect("it is made").inode.clone();
    let wrote = FsCall::Wrote {
        ino: inode.ino,
        size: 5,
        mtime: inode.mtime,
    };
    assert!(
        matches!(ends(&mut two, ANNA, 4, wrote), FsAnswer::Node { .. }),
        "{:?}",
        two.said
    );
    // Enough that the journal begins after all that.
    for number in 10..90 {
        let (name, value) = ("user.much".into(), bytes::Bytes::from(vec![number; 60_000]));
        let much = FsCall::SetXattr {
            ino: Ino::ROOT,
            name,
            value,
            fresh: None,
            drop_sgid: false,
        };
        assert!(
            matches!(
                ends(&mut two, BERT, number.into(), much),
                FsAnswer::Node { .. }
            ),
            "{:?}",
            two.said
        );
        two.said.clear();
    }
    assert_eq!(
        ends(&mut two, BERT, 90, FsCall::Flush {}),
        FsAnswer::Done {}
    );
    write(&mut two, &inode, 0, 4096);
    write(&mut two, &inode, 1, 10);
    let name = Name::from(&*fragment_name(dir, Frag::WHOLE));
    let mut all = two.objects.memory.all.iter_mut();
    let (key, fragment) = all
        .find(|((_, object), _)| object.name == name)
        .expect("a fragment");
    let (key, whole) = (key.clone(), fragment.clone());
    fragment
        .attrs
        .insert(HEAD_ATTR.into(), bytes::Bytes::from_static(b"damaged"));
    two.take_over_without_anna();
    two.objects.end_fence(true);
    two.settle();
    assert!(two.is_told(&evicted(FIRST)), "{:?}", two.said);
    two.objects.memory.all.insert(key, whole);
    two.take_over();
    two.greet(BERT, &[], &[]);
    two.settle();
    let look = ends(
        &mut two,
        BERT,
        91,
        FsCall::Lookup {
            dir,
            name: "x".into(),
        },
    );
    assert_eq!(
        look.nodes().next().map(|node| node.inode.size),
        Some(4096 + 10),
        "{look:?}"
    );
}

/// A file that was created without a name is found like others, once it has one, and is removed
/// with its client as long as it has none.
#[test]
fn what_it_had_written_to_a_file_without_a_name_goes_or_is_found() {
    for (named, written) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut two = two();
        let call = and_open(make_call(Ino::ROOT, "", FileKind::File {}, 0o644));
        let FsAnswer::Node { node, .. } = ends(&mut two, ANNA, 2, call) else {
            panic!("{:?}", two.said)
        };
        let inode = node.inode;
        if written {
            assert_eq!(ends(&mut two, BERT, 2, FsCall::Flush {}), FsAnswer::Done {});
        }
        if named {
            let link = FsCall::Link {
                ino: inode.ino,
                dir: Ino::ROOT,
                name: "x".into(),
            };
            assert!(
                matches!(ends(&mut two, ANNA, 3, link), FsAnswer::Node { .. }),
                "{:?}",
                two.said
            );
        }
        let wrote = FsCall::Wrote {
            ino: inode.ino,
            size: 5,
            mtime: inode.mtime,
        };
        assert!(
            matches!(ends(&mut two, ANNA, 4, wrote), FsAnswer::Node { .. }),
            "{:?}",
            two.said
        );
        two.settle();
        write(&mut two, &inode, 0, 4096);
        write(&mut two, &inode, 1, 10);
        two.take_over_without_anna();
        two.objects.end_fence(true);
        two.settle();
        if named {
            assert_eq!(seen(&mut two, 4, "x").0, 4096 + 10, "{written}");
        } else {
            assert_eq!(
                ends(&mut two, BERT, 4, FsCall::Stat { ino: inode.ino }),
                FsAnswer::Failed { errno: 116 }
            );
            let is_left = two
                .objects
                .memory
                .all
                .keys()
                .any(|(_, object)| is_data_of(inode.ino, object));
            assert!(!is_left, "{written}");
        }
    }
}
fn is_data_of(ino: Ino, object: &ObjectId) -> bool {
    (0..8).any(|number| object.name == Name::from(&*data_name(ino, number)))
}

/// A client that has closed what it wrote has reported all of it: nothing is looked for.
#[test]
fn what_was_closed_is_not_looked_at() {
    let mut two = two();
    let inode = writing(&mut two);
    let close = FsCall::Close {
        ino: inode.ino,
        write: true,
        size: 0,
        mtime: Stamp::default(),
    };
    assert_eq!(ends(&mut two, ANNA, 4, close), FsAnswer::Done {});
    two.settle();
    write(&mut two, &inode, 1, 10);
    two.take_over_without_anna();
    two.objects.end_fence(true);
    two.settle();
    assert_eq!(seen(&mut two, 4, "x"), (5, inode.mtime));
}

/// It reports the opening, and the answer is safe when the journal has it: before that, a client
/// may not write what would not be looked for.
#[test]
fn an_opening_is_safe_when_it_is_in_the_journal() {
    let mut two = two();
    ends(
        &mut two,
        BERT,
        2,
        make_call(Ino::ROOT, "x", FileKind::File {}, 0o644),
    );
    let look = FsCall::Lookup {
        dir: Ino::ROOT,
        name: "x".into(),
    };
    let FsAnswer::Node { node, .. } = ends(&mut two, ANNA, 2, look) else {
        panic!("{:?}", two.said)
    };
    for (number, write) in [(3, false), (4, true)] {
        two.ask(
            ANNA,
            number,
            FsCall::Open {
                ino: node.inode.ino,
                write,
            },
        );
        assert_eq!(
            two.reply(ANNA, number).map(|reply| reply.safe),
            Some(!write)
        );
    }
    two.settle();
    let safe = |(who, say): &(ClientId, Say)| {
        *who == ANNA && matches!(say, Say::Safe(safe) if safe.numbers == [4])
    };
    assert!(two.said.iter().any(safe), "{:?}", two.said);
}

/// A client that leaves with files open for writing may have left data there.
#[test]
fn one_that_leaves_without_closing_is_looked_at() {
    let mut two = two();
    let inode = writing(&mut two);
    write(&mut two, &inode, 0, 77);
    two.mds.on_leave(ANNA);
    two.settle();
    two.objects.end_fence(true);
    two.settle();
    assert_eq!(seen(&mut two, 2, "x").0, 77);
}

/// A repair ends sessions, and does not treat what such a client had written as damage.
#[test]
fn what_it_had_written_outlives_a_repair() {
    let mut two = two();
    let inode = writing(&mut two);
    write(&mut two, &inode, 0, 4096);
    write(&mut two, &inode, 1, 10);
    // Data of no file: there is something to repair.
    write(
        &mut two,
        &Inode {
            ino: Ino(inode.ino.0 + 1000),
            ..inode.clone()
        },
        0,
        5,
    );
    two.objects.crash(0);
    let report = crate::checking::repair(&mut two.objects.memory);
    assert_eq!(report.faults().count(), 0, "{:?}", report.findings);
    two.take_over();
    assert_eq!(
        two.mds.on_session(BERT, SECOND, (false, 0), &[]),
        Greeted::Taken
    );
    two.settle();
    assert_eq!(
        (two.fences(), seen(&mut two, 1, "x").0),
        (vec![], 4096 + 10)
    );
}

/// An operator sees the clients, and ends the session of one that does not answer.
#[test]
fn a_client_is_shown_and_evicted_when_that_is_asked_for() {
    let mut two = two();
    let inode = writing(&mut two);
    two.mds.on_about(ANNA, &"/mnt on anna".into());
    assert!(
        two.answer(
            ANNA,
            4,
            FsCall::Open {
                ino: inode.ino,
                write: false
            }
        )
        .is_some()
    );
    let FsAnswer::Clients { clients, end: true } =
        ends(&mut two, BERT, 2, FsCall::Clients { after: 0 })
    else {
        panic!("{:?}", two.said)
    };
    let shown: Vec<_> = clients
        .iter()
        .map(|one| (one.client, one.open, one.writing, one.evicting))
        .collect();
    assert_eq!(shown, [(ANNA, 1, 1, false), (BERT, 0, 0, false)]);
    assert_eq!(clients[0].about, Name::from("/mnt on anna"));
    let FsAnswer::Clients { clients, .. } =
        ends(&mut two, BERT, 3, FsCall::Clients { after: ANNA.0 })
    else {
        panic!("{:?}", two.said)
    };
    assert_eq!(clients.len(), 1);
    assert_eq!(
        ends(
            &mut two,
            BERT,
            4,
            FsCall::Evict {
                client: ClientId(99)
            }
        ),
        FsAnswer::Failed { errno: 3 }
    );
    assert_eq!(
        ends(&mut two, BERT, 5, FsCall::Evict { client: ANNA }),
        FsAnswer::Done {}
    );
    assert_eq!(two.fences(), [(ANNA, FIRST)]);
    two.objects.end_fence(true);
    two.settle();
    assert!(two.is_told(&evicted(FIRST)), "{:?}", two.said);
}

/// Seed 665: two clients had a file open to append to it; the one that was writing had died, the
/// other one was paused, and both were evicted. What the first had begun was removed for the one,
/// but counted for the other, which had not been alone: the file ended with zeros.
#[test]
fn what_two_evicted_clients_left_is_looked_at_once_for_each() {
    for anna_first in [true, false] {
        let mut two = two();
        let inode = writing(&mut two);
        let ino = inode.ino;
        assert!(matches!(
            ends(&mut two, BERT, 2, FsCall::Open { ino, write: true }),
            FsAnswer::Node { .. }
        ));
        two.settle();
        let asked = two.said.iter().find_map(|(who, say)| match say {
            Say::Caps(caps) if *who == ANNA => caps
                .items
                .iter()
                .find(|news| news.ino == ino && news.number > 0),
            _ => None,
        });
        let number = asked.expect("she is not alone any more").number;
        let comply = FsCall::Comply {
            ino,
            number,
            size: 0,
            mtime: Stamp::default(),
            written: true,
        };
        assert_eq!(ends(&mut two, ANNA, 4, comply), FsAnswer::Done {});
        two.settle();
        // ANNA appends, which is not reported yet.
        write(&mut two, &inode, 0, 4096);
        write(&mut two, &inode, 1, 7);
        two.take_over();
        let open = |alone| FsOpens {
            ino,
            reads: 0,
            writes: 1,
            cap: if alone {
                FsCap::Sync {}
            } else {
                FsCap::Nothing {}
            },
            alone,
            place: Some(FsPlace {
                dir: Ino::ROOT,
                name: "x".into(),
            }),
        };
        for (client, alone) in [(ANNA, true), (BERT, false)] {
            two.mds.on_session(client, FIRST, (true, 0), &[open(alone)]);
        }
        two.settle();
        for client in if anna_first {
            [ANNA, BERT]
        } else {
            [BERT, ANNA]
        } {
            two.mds.evict(client);
            two.settle();
        }
        two.objects.end_fence(true);
        two.objects.end_fence(true);
        two.settle();
        two.mds.on_session(BERT, SECOND, (false, 0), &[]);
        two.settle();
        two.said.clear();
        assert_eq!(seen(&mut two, 4, "x").0, 5, "{anna_first}");
        let length = |number| {
            let name = Name::from(&*data_name(ino, number));
            let object = two
                .objects
                .memory
                .all
                .iter()
                .find(|((_, object), _)| object.name == name);
            object.map(|(_, object)| object.data.len())
        };
        assert_eq!([0, 1].map(length), [Some(5), None], "{anna_first}");
    }
}
