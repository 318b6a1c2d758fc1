//! What operators are told about the next takeover.

use crate::checking::{check_ranks, repair_ranks};
use crate::objects::config;
use crate::rig::{and_open, make_call};
use crate::sharing::{ANNA, BERT, Two};
use nacre_client::Operation;
use nacre_mds::journal::object_name;
use nacre_mds::mds::{Greeted, HEAD_ATTR, Say, fragment_name};
use nacre_types::{Frag, Ino, Instance, Name, ObjectId};
use nacre_wire::Wire as _;
use nacre_wire::fs::{FileKind, Head};
use nacre_wire::msg::client::{SubOp, SubReply};
use nacre_wire::msg::fs::{FsAnswer, FsCall, FsFigures};

/// Objects and bytes of the stored journal, from this object on.
fn stored(two: &mut Two, first: u64) -> (u32, u64) {
    let config = config();
    let mut sizes = Vec::new();
    for number in first..first + 100 {
        let name = Name::from(&*object_name(config.rank, number));
        let object = ObjectId {
            name,
            namespace: config.namespace.clone(),
            ..ObjectId::default()
        };
        let ops = vec![SubOp::Stat {}];
        let stat = Operation {
            pool: config.pool,
            object,
            ops,
            ..Operation::default()
        };
        match two.objects.memory.perform(&stat).map(|done| done.results) {
            Ok(results) => match results[..] {
                [SubReply::Stat { size, .. }] => sizes.push(size),
                ref other => panic!("{other:?}"),
            },
            Err(_) => break,
        }
    }
    (sizes.len() as u32, sizes.iter().sum())
}

#[test]
fn an_operator_is_told_how_long_the_journal_is_and_who_has_sessions() {
    let mut two = Two::new();
    let told = |two: &Two| {
        let FsFigures {
            objects,
            bytes,
            sessions,
            opens,
            ..
        } = two.mds.figures();
        ((objects, bytes), sessions, opens)
    };
    let first = (1..9).find(|first| stored(&mut two, *first).0 > 0);
    for n in 0..20_u64 {
        let call = make_call(Ino::ROOT, &format!("{n}"), FileKind::File {}, 0o644);
        let call = if n < 3 { and_open(call) } else { call };
        assert!(two.answer(ANNA, n + 1, call).is_some());
    }
    two.mds.hurry();
    two.settle();
    let there = stored(&mut two, first.unwrap_or(0));
    assert!(there.1 > 1_000, "{there:?}");
    assert_eq!(told(&two), (there, 2, 3));
    // The next holder has read it, and reports so before it has written anything.
    two.take_over();
    two.greet(ANNA, &[], &[]);
    two.greet(BERT, &[], &[]);
    let (read, sessions, _) = told(&two);
    assert!(
        read.0 >= there.0 && read.1 >= there.1 && sessions == 2,
        "{read:?} after {there:?}"
    );
}

/// A repair claims the file system, and writes the journal's head. It does not know the clients'
/// answers, so all of them must be in the head, with nothing after it: clients continue afterwards.
#[test]
fn a_rank_that_is_given_back_to_a_repair_keeps_its_clients() {
    let mut two = Two::new();
    let make = |name: &str| make_call(Ino::ROOT, name, FileKind::File {}, 0o644);
    for n in 0..20_u64 {
        assert!(
            two.answer(ANNA, n + 1, and_open(make(&n.to_string())))
                .is_some()
        );
    }
    // What waits for another client is requested from the next holder.
    two.ask(BERT, 1, FsCall::Flush {});
    two.mds.retire();
    two.settle();
    assert!(two.mds.is_retired(), "{:?}", two.mds);
    let report = check_ranks(&two.objects.memory, 1);
    assert_eq!((report.counts.batches, report.faults().count()), (0, 0));
    let root = ObjectId {
        name: Name::from(&*fragment_name(Ino::ROOT, Frag::WHOLE)),
        namespace: config().namespace,
        ..ObjectId::default()
    };
    let root = two
        .objects
        .memory
        .all
        .get_mut(&(config().pool, root))
        .expect("it is there");
    let head = root
        .attrs
        .get_mut(HEAD_ATTR.as_bytes())
        .expect("it has one");
    let wrong = Head {
        entries: 77,
        ..Head::from_bytes(head).expect("a whole one")
    };
    *head = wrong.to_bytes().into();
    assert!(check_ranks(&two.objects.memory, 1).faults().count() > 0);
    assert_eq!(repair_ranks(&mut two.objects.memory, 1).faults().count(), 0);
    let told = two.reply(ANNA, 20).expect("above").answer.clone();
    two.take_over();
    for client in [ANNA, BERT] {
        let known = (true, 1);
        assert_eq!(
            two.mds.on_session(client, Instance(1), known, &[]),
            Greeted::Taken
        );
        two.mds.on_caught_up(client);
    }
    two.settle();
    assert!(
        !two.said
            .iter()
            .any(|(_, say)| matches!(say, Say::Evicted(_))),
        "{:?}",
        two.said
    );
    two.ask(ANNA, 20, and_open(make("19")));
    assert_eq!(
        two.reply(ANNA, 20).expect("it was answered before").answer,
        told
    );
}

/// What is below a directory counts for it and for all above; a missing name counts for its
/// directory. Directories are shown by their paths.
#[test]
fn an_operator_is_told_what_is_asked_for() {
    let mut two = Two::new();
    let mut number = 0;
    let mut ask = |two: &mut Two, call: FsCall| {
        number += 1;
        two.answer(ANNA, number, call).expect("answered")
    };
    let directory = |dir, name| make_call(dir, name, FileKind::Directory {}, 0o755);
    let mut made = |two: &mut Two, call| match ask(two, call) {
        FsAnswer::Node { node, .. } => node.inode.ino,
        other => panic!("{other:?}"),
    };
    let (a, c) = (
        made(&mut two, directory(Ino::ROOT, "a")),
        made(&mut two, directory(Ino::ROOT, "c")),
    );
    let b = made(&mut two, directory(a, "b"));
    let file = made(&mut two, make_call(b, "file", FileKind::File {}, 0o644));
    for _ in 0..20 {
        ask(&mut two, FsCall::Stat { ino: file });
        ask(
            &mut two,
            FsCall::Lookup {
                dir: c,
                name: Name::from("nothing"),
            },
        );
        ask(
            &mut two,
            FsCall::Lookup {
                dir: a,
                name: Name::from("b"),
            },
        );
    }
    let popular = two.mds.figures().popular;
    let told: Vec<(Ino, &[u8])> = popular.iter().map(|one| (one.ino, &*one.path)).collect();
    assert_eq!(
        told,
        [(Ino::ROOT, &b"/"[..]), (a, b"/a"), (b, b"/a/b"), (c, b"/c")]
    );
    let rates: Vec<u64> = popular.iter().map(|one| one.rate).collect();
    // 64 requests and the look of `Two`, 43 below a, 42 below b, 21 below c: each request adds the
    // same.
    assert!(
        rates[0] > rates[1] && rates[1] > rates[2] && rates[2].abs_diff(2 * rates[3]) < 200,
        "{rates:?}"
    );
}
