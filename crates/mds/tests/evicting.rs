//! Clients that were waited for long enough, on a cluster that can fence them.

use crate::locks::{DONE, WAITS, wanted};
use crate::rig::{and_open, make_call};
use crate::sharing::{ANNA, BERT, Two};
use nacre_mds::mds::{Greeted, Say};
use nacre_types::{ClientId, Ino, Instance, Name, ObjectId};
use nacre_wire::fs::{FileKind, FsLockWait, data_name};
use nacre_wire::msg::client::SubOp;
use nacre_wire::msg::fs::{FsAnswer, FsCall, FsEvicted, FsLocked};
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
        self.objects.fences.iter().map(|(_, client, instance)| (*client, *instance)).collect()
    }
    fn greets(&mut self, instance: Instance, known: bool) -> Greeted {
        let greeted = self.mds.on_session(ANNA, instance, (known, 0), &[]);
        self.settle();
        greeted
    }
    fn is_told(&self, say: &Say) -> bool {
        self.said.iter().any(|(who, said)| *who == ANNA && said == say)
    }
    fn pass(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        self.settle();
    }
}
fn evicted(instance: Instance) -> Say {
    Say::Evicted(FsEvicted { instance })
}
const WELCOME: Say = Say::Welcome { again: false, greeting: 0 };

/// What it sends to OSDs may be executed until then.
#[test]
fn what_an_evicted_client_has_is_its_own_until_it_is_fenced() {
    let mut two = two();
    two.mds.evict(ANNA);
    two.settle();
    two.mds.evict(ANNA);
    two.settle();
    assert_eq!((two.fences(), two.locked()), (vec![(ANNA, FIRST)], vec![]));
    assert_eq!(two.answer(ANNA, 2, FsCall::Lookup { dir: Ino::ROOT, name: "x".into() }), None);
    for known in [true, false] {
        assert_eq!(two.greets(FIRST, known), Greeted::NotYet);
    }
    two.mds.on_leave(ANNA);
    two.settle();
    assert!(two.said.is_empty(), "{:?}", two.said);
    two.objects.end_fence(true);
    two.settle();
    assert!(two.is_told(&evicted(FIRST)) && two.locked() == [(BERT, 1)], "{:?}", two.said);
    // One that was not welcomed does not know that there was a session.
    for known in [true, false] {
        two.said.clear();
        assert_eq!(two.greets(FIRST, known), Greeted::Taken);
        assert!(two.is_told(&evicted(FIRST)) && !two.is_told(&WELCOME), "{:?}", two.said);
    }
    assert_eq!(two.greets(SECOND, false), Greeted::Taken);
    assert!(two.is_told(&WELCOME) && two.fences().is_empty(), "{:?}", two.said);
}

/// Its next writes would make the objects again.
#[test]
fn a_file_that_it_has_open_is_there_until_it_is_fenced() {
    let mut two = two();
    let call = and_open(make_call(Ino::ROOT, "x", FileKind::File {}, 0o644));
    let Some(FsAnswer::Node { node, .. }) = two.answer(ANNA, 2, call) else { panic!("{:?}", two.said) };
    let ino = node.inode.ino;
    assert!(two.answer(ANNA, 3, FsCall::Wrote { ino, size: 5, mtime: node.inode.mtime }).is_some());
    let name = Name::from(&*data_name(ino, 0));
    let object = ObjectId { name, namespace: "fs".into(), ..ObjectId::default() };
    let pool = node.inode.layout.expect("a file").pool;
    let operation = |op, payload| nacre_client::Operation {
        pool,
        object: object.clone(),
        ops: vec![op],
        payload,
        ..nacre_client::Operation::default()
    };
    two.objects.run(&operation(SubOp::Write { offset: 0, length: 5 }, vec![bytes::Bytes::from_static(b"hello")]));
    two.settle();
    two.ask(BERT, 2, FsCall::Unlink { dir: Ino::ROOT, name: "x".into(), directory: false });
    two.mds.evict(ANNA);
    two.settle();
    let is_there = |two: &mut Two| two.objects.memory.perform(&operation(SubOp::Stat {}, Vec::new())).is_ok();
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

/// Those who did not come in time do not know that there is another holder, and act.
#[test]
fn the_next_holder_does_nothing_new_before_those_who_did_not_come_are_fenced() {
    let mut two = two();
    two.take_over();
    two.greet(BERT, &[], &[FsLockWait { number: 1, lock: crate::locks::lock(1) }]);
    two.now = two.mds.next_deadline();
    two.settle();
    assert_eq!((two.fences(), two.locked()), (vec![(ANNA, FIRST)], vec![]));
    assert!(two.mds.next_deadline() > two.now, "nothing is to be done until then");
    assert_eq!(two.answer(BERT, 2, make_call(Ino::ROOT, "x", FileKind::File {}, 0o644)), None);
    // It is too late for that.
    two.mds.on_caught_up(ANNA);
    assert_eq!(two.greets(FIRST, true), Greeted::NotYet);
    assert_eq!((two.locked(), two.reply(BERT, 2)), (vec![], None));
    two.objects.end_fence(true);
    two.settle();
    assert_eq!(two.locked(), [(BERT, 1)]);
    assert!(two.is_told(&evicted(FIRST)) && two.reply(BERT, 2).is_some(), "{:?}", two.said);
}

/// It was told by an OSD before this holder knew, or by a former holder.
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
    assert!(two.fences().is_empty(), "a greeting from before changes nothing");
    two.said.clear();
    assert_eq!(two.answer(ANNA, 9, wanted(9, false)), Some(FsAnswer::Failed { errno: 11 }), "it has its session");
    assert!(!two.said.iter().any(|(_, say)| matches!(say, Say::Locked(FsLocked { .. }))));
}
