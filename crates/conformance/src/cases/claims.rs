//! Watches, locks and copies.

use super::always;
use crate::bench::{WAIT_MAX, pattern};
use crate::{Bench, Case};
use bytes::Bytes;
use nacre_client::{Capabilities, WatchEvent, WatchId};
use nacre_types::{Name, ObjectId};
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use nacre_wire::msg::lock::LockHolder;
use std::time::{Duration, Instant};

const fn watch(can: &Capabilities) -> bool {
    can.watch
}

pub const CASES: &[Case] = &[
    Case {
        name: "watchers hear notifies, the notifier who has them",
        needs: watch,
        with: heard,
        without: None,
    },
    Case {
        name: "who does not acknowledge is said to have missed it",
        needs: watch,
        with: missed,
        without: None,
    },
    Case {
        name: "an ended watch hears nothing, a deleted object ends it",
        needs: watch,
        with: ended,
        without: None,
    },
    always(
        "a lock has one holder, and guards what it is for",
        exclusive,
    ),
    always("a shared lock has several", shared),
    always("locks are listed and broken", broken),
    always(
        "locks stand among parts that look at the object",
        lock_among_others,
    ),
    always("a copy is all of its source", copied),
    always("all of an object is read at once", whole),
];

/// Begins a watch.
fn begin(bench: &mut Bench<'_>, object: &ObjectId) -> WatchId {
    let begun = Instant::now();
    loop {
        let (now, pool) = (bench.driven().now(), bench.pool);
        match bench
            .driven()
            .objects()
            .watch(now, pool, object.clone(), Duration::from_secs(20))
        {
            Ok(watch) => {
                bench.end(nacre_client::OpId(watch.0)).expect("registered");
                return watch;
            }
            Err(why) => assert!(begun.elapsed() < WAIT_MAX, "{why:?}"),
        }
        bench.turn();
    }
}

/// The next event of a watcher.
fn next(bench: &mut Bench<'_>) -> WatchEvent {
    let begun = Instant::now();
    let mut events = Vec::new();
    loop {
        bench.driven().watch_events(&mut events);
        assert!(events.len() <= 1, "several: {events:?}");
        if let Some(event) = events.pop() {
            return event;
        }
        assert!(begun.elapsed() < WAIT_MAX, "nothing is heard");
        bench.turn();
    }
}

fn acknowledge(bench: &mut Bench<'_>, expected: &[u8], reply: &'static str) {
    match next(bench) {
        WatchEvent::Notify {
            watch,
            notify,
            payload,
        } => {
            assert_eq!(payload.concat(), expected);
            let now = bench.driven().now();
            bench
                .driven()
                .objects()
                .ack_notify(now, watch, notify, reply.into())
                .expect("acknowledged");
            bench.turn();
        }
        other => panic!("{other:?} is no notify"),
    }
}

fn notify(
    bench: &mut Bench<'_>,
    object: &ObjectId,
    data: &[u8],
    timeout_ms: u32,
) -> nacre_client::OpId {
    bench.begin(
        object,
        vec![SubOp::Notify {
            timeout_ms,
            length: data.len() as u64,
        }],
        data,
    )
}

/// The replies of the watchers that acknowledged, in order of bytes, and the number of those that
/// missed it.
fn told(bench: &mut Bench<'_>, id: nacre_client::OpId) -> (Vec<Vec<u8>>, usize) {
    let done = bench.end(id).expect("told");
    let [SubReply::Notified { acked, missed, .. }] = &done.results[..] else {
        panic!("{done:?}")
    };
    let all = done.payload.concat();
    let mut at = 0;
    let mut replies: Vec<Vec<u8>> = acked
        .iter()
        .map(|acked| {
            at += acked.length as usize;
            all[at - acked.length as usize..at].to_vec()
        })
        .collect();
    replies.sort();
    (replies, missed.len())
}

fn heard(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    let none = bench.object("none");
    assert_eq!(
        bench.refused(
            &none,
            vec![SubOp::Notify {
                timeout_ms: 5000,
                length: 0
            }],
            b""
        ),
        OpFailure::NotFound {}
    );
    bench.put(&object, b"x");
    let id = notify(bench, &object, b"anybody?", 5000);
    assert_eq!(told(bench, id), (vec![], 0));
    let (mut first, mut second) = (bench.another(), bench.another());
    let watch = begin(&mut first, &object);
    assert!(first.driven().objects().watch_confirmed(watch).is_some());
    begin(&mut second, &object);
    let listed = bench.ok(&object, vec![SubOp::ListWatchers {}], b"");
    assert!(
        matches!(&listed.results[..], [SubReply::Watchers { watchers }] if watchers.len() == 2),
        "{listed:?}"
    );
    for (text, one, two) in [("hello", "first", "second"), ("again", "", "x")] {
        let id = notify(bench, &object, text.as_bytes(), 20_000);
        bench.turn();
        acknowledge(&mut first, text.as_bytes(), one);
        acknowledge(&mut second, text.as_bytes(), two);
        assert_eq!(
            told(bench, id),
            (vec![one.as_bytes().to_vec(), two.as_bytes().to_vec()], 0)
        );
    }
}

fn missed(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.put(&object, b"x");
    begin(bench, &object);
    let id = notify(bench, &object, b"hello", 2000);
    assert!(matches!(next(bench), WatchEvent::Notify { .. }));
    assert_eq!(told(bench, id), (vec![], 1));
    // A client may watch and notify.
    let other = bench.object("p");
    bench.put(&other, b"x");
    begin(bench, &other);
    let id = notify(bench, &other, b"again", 20_000);
    loop {
        // The loss of the first watch may be reported in between.
        match next(bench) {
            WatchEvent::Notify {
                watch,
                notify,
                payload,
            } => {
                assert_eq!(payload.concat(), b"again");
                let now = bench.driven().now();
                bench
                    .driven()
                    .objects()
                    .ack_notify(now, watch, notify, Bytes::from_static(b"yes"))
                    .expect("acknowledged");
                break;
            }
            WatchEvent::Lost { .. } => {}
        }
    }
    assert_eq!(told(bench, id), (vec![b"yes".to_vec()], 0));
}

fn ended(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.put(&object, b"x");
    let watch = begin(bench, &object);
    let now = bench.driven().now();
    let id = bench
        .driven()
        .objects()
        .unwatch(now, watch)
        .expect("taken")
        .expect("it was there");
    bench.end(id).expect("ended");
    assert!(bench.driven().objects().watch_confirmed(watch).is_none());
    let id = notify(bench, &object, b"x", 5000);
    assert_eq!(told(bench, id), (vec![], 0));
    let now = bench.driven().now();
    assert_eq!(bench.driven().objects().unwatch(now, watch), Ok(None));
    let watch = begin(bench, &object);
    bench.ok(&object, vec![SubOp::Delete {}], b"");
    match next(bench) {
        WatchEvent::Lost { watch: lost, .. } => assert_eq!(lost, watch),
        other => panic!("{other:?}"),
    }
}

fn lock(name: &'static str, cookie: u64, shared: bool) -> SubOp {
    SubOp::Lock {
        name: name.into(),
        cookie,
        shared,
        lease_ms: 0,
        description: format!("of {cookie}"),
    }
}
fn unlock(name: &'static str, cookie: u64) -> SubOp {
    SubOp::Unlock {
        name: name.into(),
        cookie,
    }
}
fn held(name: &'static str, cookie: u64, shared_ok: bool) -> SubOp {
    SubOp::AssertLock {
        name: name.into(),
        cookie,
        shared_ok,
    }
}
const GUARD: OpFailure = OpFailure::Guard { index: 0 };

fn exclusive(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    let write = || SubOp::Append { length: 1 };
    assert_eq!(
        bench.refused(&object, vec![held("L", 1, false), write()], b"x"),
        GUARD
    );
    let done = bench.ok(&object, vec![lock("L", 1, false)], b"");
    let [SubReply::Locked { token: first, .. }] = done.results[..] else {
        panic!("{done:?}")
    };
    match bench.refused(&object, vec![lock("L", 2, false)], b"") {
        OpFailure::LockHeld { owner, description } => {
            assert_eq!((owner.cookie, &description[..]), (1, "of 1"))
        }
        other => panic!("{other:?}"),
    }
    bench.ok(&object, vec![held("L", 1, false), write()], b"a");
    assert_eq!(
        bench.refused(&object, vec![held("L", 2, false), write()], b"x"),
        GUARD
    );
    assert_eq!(
        bench.refused(&object, vec![held("L", 2, true), SubOp::Stat {}], b""),
        GUARD
    );
    bench.ok(&object, vec![held("L", 1, true), SubOp::Stat {}], b"");
    // Another lock is independent.
    bench.ok(&object, vec![lock("M", 2, false)], b"");
    bench.ok(&object, vec![lock("L", 1, false)], b"");
    assert_eq!(bench.refused(&object, vec![unlock("L", 2)], b""), GUARD);
    bench.ok(&object, vec![unlock("L", 1)], b"");
    assert_eq!(
        bench.refused(&object, vec![held("L", 1, false), write()], b"x"),
        GUARD
    );
    let done = bench.ok(&object, vec![lock("L", 2, false)], b"");
    let [SubReply::Locked { token: second, .. }] = done.results[..] else {
        panic!("{done:?}")
    };
    assert!(
        second > first,
        "tokens grow from holder to holder: {second} after {first}"
    );
    assert_eq!(bench.get(&object).as_deref(), Some(&b"a"[..]));
}

fn shared(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.ok(&object, vec![lock("L", 1, true)], b"");
    bench.ok(&object, vec![lock("L", 2, true)], b"");
    assert!(matches!(
        bench.refused(&object, vec![lock("L", 3, false)], b""),
        OpFailure::LockHeld { .. }
    ));
    bench.ok(
        &object,
        vec![held("L", 2, true), SubOp::Append { length: 1 }],
        b"x",
    );
    assert_eq!(
        bench.refused(
            &object,
            vec![held("L", 2, false), SubOp::Append { length: 1 }],
            b"x"
        ),
        GUARD
    );
    bench.ok(&object, vec![unlock("L", 1)], b"");
    bench.ok(&object, vec![unlock("L", 2)], b"");
    bench.ok(&object, vec![lock("L", 3, false)], b"");
}

/// A removal of an attribute must read it first.
fn lock_among_others(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    let (set, remove) = (
        || SubOp::SetAttr {
            name: "a".into(),
            value: "1".into(),
        },
        || SubOp::RemoveAttr { name: "a".into() },
    );
    bench.ok(&object, vec![set()], b"");
    let done = bench.ok(
        &object,
        vec![remove(), lock("L", 1, false), SubOp::Append { length: 1 }],
        b"x",
    );
    assert!(
        matches!(done.results[..], [_, SubReply::Locked { .. }, _]),
        "{done:?}"
    );
    bench.ok(&object, vec![set(), held("L", 1, false)], b"");
    let late = OpFailure::Guard { index: 1 };
    assert_eq!(
        bench.refused(&object, vec![remove(), held("L", 2, false)], b""),
        late
    );
    assert!(matches!(
        bench.refused(&object, vec![remove(), lock("L", 2, false)], b""),
        OpFailure::LockHeld { .. }
    ));
    assert_eq!(bench.attrs(&object)[&b"a"[..]], "1");
    let done = bench.ok(
        &object,
        vec![
            held("L", 1, false),
            remove(),
            SubOp::Stat {},
            unlock("L", 1),
        ],
        b"",
    );
    assert!(
        matches!(done.results[2], SubReply::Stat { size: 1, .. }),
        "{done:?}"
    );
    assert!(!bench.attrs(&object).contains_key(&b"a"[..]) && holders(bench, &object).is_empty());
}

fn holders(bench: &mut Bench<'_>, object: &ObjectId) -> Vec<(Name, bool, LockHolder)> {
    let done = bench.ok(object, vec![SubOp::ListLocks {}], b"");
    let [SubReply::Locks { locks }] = &done.results[..] else {
        panic!("{done:?}")
    };
    let all = locks.iter().flat_map(|entry| {
        entry
            .record
            .holders
            .iter()
            .map(|holder| (entry.name.clone(), entry.record.shared, holder.clone()))
    });
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(name, _, holder)| (name.clone(), holder.owner.cookie));
    all
}

fn broken(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    assert_eq!(
        bench.refused(&object, vec![SubOp::ListLocks {}], b""),
        OpFailure::NotFound {}
    );
    bench.put(&object, b"x");
    assert!(holders(bench, &object).is_empty());
    for op in [lock("a", 1, false), lock("b", 2, true), lock("b", 3, true)] {
        bench.ok(&object, vec![op], b"");
    }
    let all = holders(bench, &object);
    let seen: Vec<_> = all
        .iter()
        .map(|(name, shared, holder)| {
            (
                name.to_string(),
                *shared,
                holder.owner.cookie,
                holder.description.clone(),
            )
        })
        .collect();
    let expected = [
        ("a".to_owned(), false, 1, "of 1".to_owned()),
        ("b".to_owned(), true, 2, "of 2".to_owned()),
        ("b".to_owned(), true, 3, "of 3".to_owned()),
    ];
    assert_eq!(seen, expected);
    let breaks = |name: &Name, holder: &LockHolder| {
        vec![SubOp::BreakLock {
            name: name.clone(),
            owner: holder.owner,
        }]
    };
    let mut other = bench.another();
    other.ok(&object, breaks(&all[0].0, &all[0].2), b"");
    assert_eq!(
        other.refused(&object, breaks(&all[0].0, &all[0].2), b""),
        OpFailure::NotFound {}
    );
    assert_eq!(
        other.refused(
            &object,
            vec![held("a", 1, false), SubOp::Append { length: 1 }],
            b"x"
        ),
        GUARD
    );
    other.ok(&object, vec![lock("a", 9, false)], b"");
    assert_eq!(holders(&mut other, &object).len(), 3);
}

fn copied(bench: &mut Bench<'_>) {
    let (source, copy) = (bench.object("source"), bench.object("copy"));
    let from = || SubOp::CopyFrom {
        source: source.clone(),
    };
    assert_eq!(
        bench.refused(&copy, vec![from()], b""),
        OpFailure::NotFound {}
    );
    let data = pattern(1, 300_000);
    bench.put(&source, &data);
    let entries: Vec<(Bytes, Bytes)> = (0..1500)
        .map(|n| (format!("{n:05}").into(), format!("value {n}").into()))
        .collect();
    bench.ok(
        &source,
        vec![
            SubOp::SetAttr {
                name: "a".into(),
                value: "1".into(),
            },
            SubOp::OmapSet {
                entries: entries.clone(),
            },
        ],
        b"",
    );
    let old = vec![(Bytes::from_static(b"old"), Bytes::from_static(b"map"))];
    bench.ok(
        &copy,
        vec![
            SubOp::Append { length: 3 },
            SubOp::SetAttr {
                name: "old".into(),
                value: "x".into(),
            },
            SubOp::OmapSet { entries: old },
        ],
        b"old",
    );
    let guard = |value: &'static str| SubOp::CompareAttr {
        name: "old".into(),
        value: value.into(),
    };
    assert_eq!(bench.refused(&copy, vec![guard("y"), from()], b""), GUARD);
    assert_eq!(bench.get(&copy).as_deref(), Some(&b"old"[..]));
    bench.ok(&copy, vec![guard("x"), from()], b"");
    for object in [&source, &copy] {
        assert!(bench.get(object).as_deref() == Some(&data[..]));
        assert!(bench.omap(object, 1000) == entries);
        assert_eq!(
            bench.attrs(object).into_iter().collect::<Vec<_>>(),
            [("a".into(), "1".into())]
        );
    }
    // A copy is independent of its source afterwards.
    bench.ok(&source, vec![SubOp::Append { length: 1 }], b"x");
    assert!(bench.get(&copy) == Some(data));
}

fn whole(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    assert_eq!(
        bench.refused(&object, vec![SubOp::ReadWhole {}], b""),
        OpFailure::NotFound {}
    );
    let data = pattern(2, 70_000);
    bench.put(&object, &data);
    // More than an OSD of Ceph returns at once.
    let entries: Vec<(Bytes, Bytes)> = (0..2500)
        .map(|n| (format!("{n:05}").into(), format!("{n}").into()))
        .collect();
    let set = SubOp::SetAttr {
        name: "a".into(),
        value: "1".into(),
    };
    let version = bench
        .ok(
            &object,
            vec![
                set,
                SubOp::OmapSet {
                    entries: entries.clone(),
                },
            ],
            b"",
        )
        .version;
    let done = bench.ok(&object, vec![SubOp::ReadWhole {}], b"");
    let [SubReply::Whole { object: found }] = &done.results[..] else {
        panic!("{done:?}")
    };
    assert_eq!(
        (found.size, found.version, done.version),
        (70_000, version, version)
    );
    assert_eq!(found.attrs, [("a".into(), Bytes::from_static(b"1"))]);
    assert!(found.omap == entries && done.payload.concat() == data);
    bench.refused(&object, vec![SubOp::ReadWhole {}, SubOp::Stat {}], b"");
}
