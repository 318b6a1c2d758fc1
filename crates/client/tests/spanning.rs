//! Writes that span objects, over a cluster whose answers the test gives.

#[cfg(not(feature = "mutants"))]
use nacre_client::SpanningWrite;
#[cfg(feature = "mutants")]
use nacre_client::broken::SpanningWrite;
use nacre_client::{
    Capabilities, Completion, Done, Failure, LockTerms, ObjectCluster, OpId, Operation, Part,
    Refused, SpanningFailure,
};
use nacre_types::{Epoch, ObjectId, PoolId, Time, Version};
use nacre_wire::msg::client::{OpFailure, SubOp};
use nacre_wire::msg::lock::LockOwner;
use std::collections::BTreeMap;

#[derive(Default)]
struct Cluster {
    asked: Vec<(OpId, Operation)>,
    next: u64,
    room: Option<usize>,
    removed: bool,
}
impl ObjectCluster for Cluster {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }
    fn submit(&mut self, _: Time, operation: Operation) -> Result<OpId, Refused> {
        if self.removed {
            return Err(Refused::NoSuchPool);
        }
        if self.room.is_some_and(|room| self.asked.len() >= room) {
            return Err(Refused::Busy);
        }
        self.next += 1;
        self.asked.push((OpId(self.next), operation));
        Ok(OpId(self.next))
    }
    fn completions(&mut self, _: &mut Vec<Completion>) {}
}

struct Rig {
    cluster: Cluster,
    write: SpanningWrite,
    ended: Option<Result<BTreeMap<ObjectId, Version>, SpanningFailure>>,
}

fn append() -> Vec<SubOp> {
    vec![SubOp::SetAttr {
        name: "a".into(),
        value: bytes::Bytes::from_static(b"1"),
    }]
}
fn object(name: &str) -> ObjectId {
    ObjectId::named(name)
}

impl Rig {
    fn new(parts: &[(&str, Vec<SubOp>)]) -> Self {
        let part = |(name, ops): &(&str, Vec<SubOp>)| Part {
            object: object(name),
            ops: ops.clone(),
            payload: vec![],
        };
        let terms = LockTerms {
            name: "l".into(),
            cookie: 7,
            lease_ms: 100,
            description: "d".to_owned(),
        };
        let write = SpanningWrite::new(PoolId(1), terms, parts.iter().map(part).collect());
        let mut rig = Self {
            cluster: Cluster::default(),
            write,
            ended: None,
        };
        rig.advance();
        rig
    }
    fn abc() -> Self {
        Self::new(&[("b", append()), ("c", append()), ("a", append())])
    }
    fn advance(&mut self) {
        if let Some(ended) = self.write.advance(Time::ZERO, &mut self.cluster) {
            assert!(self.ended.replace(ended).is_none(), "it ends once");
        }
    }
    /// Operations in flight: the object, and the operation's first and last part.
    fn flying(&self) -> Vec<(String, &'static str)> {
        let kind = |ops: &[SubOp]| match ops {
            [SubOp::Lock { .. }] => "lock",
            [SubOp::Unlock { .. }] => "unlock",
            [
                SubOp::AssertLock {
                    shared_ok: false, ..
                },
                ..,
                SubOp::Unlock { .. },
            ] => "write and unlock",
            [
                SubOp::AssertLock {
                    shared_ok: false, ..
                },
                ..,
            ] => "write",
            other => panic!("{other:?}"),
        };
        self.cluster
            .asked
            .iter()
            .map(|(_, op)| (op.object.name.to_string(), kind(&op.ops)))
            .collect()
    }
    fn answer(&mut self, name: &str, result: Result<u64, Failure>) {
        let at = self
            .cluster
            .asked
            .iter()
            .position(|(_, op)| op.object == object(name))
            .expect("it was asked");
        let (id, _) = self.cluster.asked.remove(at);
        let version = |number| Version {
            interval: Epoch(1),
            number,
        };
        let result = result.map(|number| Done {
            version: version(number),
            results: vec![],
            payload: vec![],
        });
        assert!(self.write.on_completion(&Completion { id, result }));
        self.advance();
    }
    fn lock_all(&mut self) {
        for name in ["a", "b", "c"] {
            assert_eq!(
                self.flying(),
                [(name.to_owned(), "lock")],
                "one after the other, in order"
            );
            self.answer(name, Ok(1));
        }
    }
    fn failure(&mut self) -> SpanningFailure {
        self.ended
            .take()
            .expect("it has ended")
            .expect_err("it failed")
    }
}

pub fn locks_in_order_then_writes_all_at_once_and_gives_the_locks_back_with_them() {
    let mut rig = Rig::abc();
    rig.lock_all();
    let all = ["a", "b", "c"].map(|name| (name.to_owned(), "write and unlock"));
    assert_eq!(rig.flying(), all);
    for (name, version) in [("b", 5), ("c", 6), ("a", 7)] {
        assert!(rig.ended.is_none());
        rig.answer(name, Ok(version));
    }
    let versions = rig.ended.take().expect("it has ended").expect("written");
    assert_eq!(
        versions
            .into_values()
            .map(|version| version.number)
            .collect::<Vec<_>>(),
        [7, 5, 6]
    );
    rig.advance();
    assert!(rig.ended.is_none() && rig.flying().is_empty());
}

pub fn a_lock_that_somebody_holds_ends_it_before_anything_is_written() {
    let mut rig = Rig::abc();
    rig.answer("a", Ok(1));
    let held = OpFailure::LockHeld {
        owner: LockOwner::default(),
        description: "another".to_owned(),
    };
    rig.answer("b", Err(Failure::Refused(held.clone())));
    assert_eq!(
        rig.flying(),
        [("a".to_owned(), "unlock")],
        "what it holds goes back"
    );
    rig.answer("a", Ok(2));
    let failure = rig.failure();
    assert_eq!(
        (failure.object.clone(), failure.why.clone()),
        (object("b"), Failure::Refused(held))
    );
    assert!(
        failure.to_string().contains("nothing was written"),
        "{failure}"
    );
}

pub fn a_lock_taken_over_in_between_says_what_was_written_and_frees_the_rest() {
    let mut rig = Rig::abc();
    rig.lock_all();
    rig.answer("b", Err(Failure::Refused(OpFailure::Guard { index: 0 })));
    rig.answer("a", Ok(5));
    rig.answer("c", Err(Failure::Refused(OpFailure::Full {})));
    assert_eq!(
        rig.flying(),
        [("c".to_owned(), "unlock")],
        "b is somebody else's, a was given back with the write"
    );
    rig.answer("c", Err(Failure::Refused(OpFailure::Guard { index: 0 })));
    let failure = rig.failure();
    assert_eq!(
        (failure.object, failure.written, failure.unknown),
        (object("b"), vec![object("a")], vec![])
    );
}

pub fn what_may_have_happened_is_named_and_its_lock_given_back_if_it_is_still_ours() {
    let mut rig = Rig::abc();
    rig.lock_all();
    rig.answer("a", Ok(5));
    rig.answer("b", Err(Failure::Unknown));
    rig.answer("c", Ok(6));
    assert_eq!(rig.flying(), [("b".to_owned(), "unlock")]);
    rig.answer("b", Ok(7));
    let failure = rig.failure();
    assert_eq!(
        (failure.written, failure.unknown),
        (vec![object("a"), object("c")], vec![object("b")])
    );
    let mut rig = Rig::abc();
    rig.answer("a", Err(Failure::Unknown));
    assert_eq!(
        rig.flying(),
        [("a".to_owned(), "unlock")],
        "it may be locked"
    );
}

pub fn want_of_room_is_no_failure_and_a_deleted_object_takes_its_lock_along() {
    let mut rig = Rig::new(&[("a", vec![SubOp::Delete {}]), ("b", append())]);
    rig.cluster.room = Some(1);
    rig.answer("a", Ok(1));
    rig.answer("b", Ok(1));
    assert_eq!(rig.flying(), [("a".to_owned(), "write")]);
    rig.answer("a", Ok(2));
    assert_eq!(rig.flying(), [("b".to_owned(), "write and unlock")]);
    rig.answer("b", Ok(3));
    assert!(rig.ended.take().expect("it has ended").is_ok());
}

/// An operation whose outcome was forgotten may have been executed.
pub fn what_nobody_remembers_may_have_happened() {
    let mut rig = Rig::abc();
    rig.lock_all();
    rig.answer("a", Ok(5));
    rig.answer("b", Err(Failure::Refused(OpFailure::Superseded {})));
    rig.answer("c", Err(Failure::Refused(OpFailure::Full {})));
    assert_eq!(
        rig.flying(),
        ["c", "b"].map(|name| (name.to_owned(), "unlock"))
    );
    rig.answer("b", Ok(6));
    rig.answer("c", Ok(6));
    let failure = rig.failure();
    assert_eq!(
        (failure.written, failure.unknown),
        (vec![object("a")], vec![object("b")])
    );
}

/// Corruption found when an operation is resent does not tell what happened to the first sending;
/// it used to be reported as no effect.
pub fn what_met_damage_may_have_happened() {
    let corrupt = || Err(Failure::Refused(OpFailure::Corrupt { offset: 0 }));
    let mut rig = Rig::abc();
    rig.lock_all();
    rig.answer("a", Ok(5));
    rig.answer("b", corrupt());
    rig.answer("c", Ok(6));
    rig.answer("b", Ok(6));
    let failure = rig.failure();
    assert_eq!(
        (failure.written, failure.unknown),
        (vec![object("a"), object("c")], vec![object("b")])
    );
    let mut rig = Rig::abc();
    rig.answer("a", corrupt());
    assert_eq!(
        rig.flying(),
        [("a".to_owned(), "unlock")],
        "it may be locked"
    );
}

/// Only the first failed part could be reported with unknown outcome: the write then claimed that
/// nothing had been written, although another part may have been.
pub fn every_part_that_may_have_happened_is_named() {
    let mut rig = Rig::abc();
    rig.lock_all();
    rig.answer("b", Err(Failure::Refused(OpFailure::Full {})));
    rig.answer("a", Err(Failure::Unknown));
    rig.answer("c", Err(Failure::Unknown));
    for name in ["a", "b", "c"] {
        rig.answer(name, Ok(6));
    }
    let failure = rig.failure();
    assert_eq!(
        (failure.object, &failure.unknown[..]),
        (object("b"), &[object("a"), object("c")][..])
    );
}

/// The caller's own guards fail too. Only the first guard is the lock's: after another one fails
/// the lock is still held, and without a lease only a fence would free it.
pub fn a_guard_of_the_caller_that_fails_leaves_no_lock_behind() {
    let mut rig = Rig::abc();
    rig.lock_all();
    rig.answer("a", Err(Failure::Refused(OpFailure::Guard { index: 1 })));
    rig.answer("b", Ok(5));
    rig.answer("c", Ok(5));
    assert_eq!(rig.flying(), [("a".to_owned(), "unlock")]);
    rig.answer("a", Ok(6));
    // The lock's guard came before the caller's own parts.
    assert_eq!(
        rig.failure().why,
        Failure::Refused(OpFailure::Guard { index: 0 })
    );
}

/// Parts not sent when another part fails are not sent any more.
pub fn nothing_more_is_written_after_a_failure() {
    let mut rig = Rig::abc();
    rig.answer("a", Ok(1));
    rig.answer("b", Ok(1));
    rig.cluster.room = Some(1);
    rig.answer("c", Ok(1));
    assert_eq!(rig.flying(), [("a".to_owned(), "write and unlock")]);
    rig.answer("a", Err(Failure::Refused(OpFailure::Full {})));
    for name in ["a", "b", "c"] {
        assert_eq!(rig.flying().len(), 1);
        let next = rig.cluster.asked[0].1.object.clone();
        assert!(
            matches!(rig.cluster.asked[0].1.ops[..], [SubOp::Unlock { .. }]),
            "{next} after {name}"
        );
        rig.answer(
            std::str::from_utf8(next.name.as_bytes()).expect("a name"),
            Ok(2),
        );
    }
    let failure = rig.failure();
    assert_eq!(
        (failure.object, failure.written, failure.unknown),
        (object("a"), vec![], vec![])
    );
    rig.advance();
    assert!(
        rig.ended.is_none() && rig.flying().is_empty(),
        "it has ended"
    );
}

/// Removing a pool ends the write, because no OSD is left to answer.
pub fn a_removed_pool_ends_it() {
    let mut rig = Rig::abc();
    rig.answer("a", Ok(1));
    rig.cluster.removed = true;
    rig.answer("b", Ok(1));
    assert_eq!(rig.failure().why, Failure::NoSuchPool);
}

/// (Planted by a reviewer.) If a part may have been written, the write does not claim that nothing
/// was.
pub fn what_may_have_happened_is_not_nothing() {
    let mut rig = Rig::abc();
    rig.lock_all();
    rig.answer("a", Err(Failure::Unknown));
    for name in ["b", "c"] {
        rig.answer(name, Err(Failure::Refused(OpFailure::Full {})));
    }
    for name in ["a", "b", "c"] {
        rig.answer(name, Ok(6));
    }
    let failure = rig.failure();
    assert_eq!(
        (&failure.written[..], &failure.unknown[..]),
        (&[][..], &[object("a")][..])
    );
    assert!(
        !failure.to_string().contains("nothing was written"),
        "{failure}"
    );
}

/// (Planted by a reviewer: it failed as if there were no such pool.) A write begun before there is
/// a map waits for one.
pub fn without_a_map_it_waits() {
    let mut fresh = nacre_client::Client::new(
        nacre_client::ClientConfig::new(nacre_types::ClientId(7)),
        Time::ZERO,
    );
    let part = Part {
        object: object("a"),
        ops: append(),
        payload: vec![],
    };
    let terms = LockTerms {
        name: "l".into(),
        cookie: 7,
        lease_ms: 100,
        description: "d".to_owned(),
    };
    let mut write = SpanningWrite::new(PoolId(1), terms, vec![part]);
    for _ in 0..2 {
        assert!(write.advance(Time::ZERO, &mut fresh).is_none());
    }
}
