//! The store on in-memory objects, with a clock that only waiting advances: the test controls
//! races, faults and time.

use super::cursor::Cursor;
use super::decide::KEYS_MAX;
use super::fake::{Fake, Here, Shared, Store, world};
use super::layout;
use super::object::Object;
use super::record::Head;
use super::store::MetaStore;
use bytes::Bytes;
use nacre_client::{MetaFailure, WatchEvent, WatchNews};
use nacre_types::Time;
use nacre_wire::Wire;
use nacre_wire::msg::meta::{
    MetaAnswer, MetaCall, MetaCompare, MetaError, MetaEvent, MetaOp, MetaRelation, MetaResult,
    MetaSpan, MetaTarget,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

fn client(world: &Shared, who: &str) -> Store {
    MetaStore::new(Fake::new(world), Here(world.clone()), who)
}

fn put(key: &str, value: &str, lease: u64) -> MetaOp {
    MetaOp::Put {
        key: key.into(),
        value: Bytes::copy_from_slice(value.as_bytes()),
        lease,
    }
}
fn transact(compares: Vec<MetaCompare>, then: Vec<MetaOp>) -> MetaCall {
    MetaCall::Transact {
        compares,
        then,
        otherwise: vec![],
    }
}
fn set(store: &mut Store, key: &str, value: &str) -> u64 {
    store
        .call(&transact(vec![], vec![put(key, value, 0)]))
        .expect("set")
        .0
}
fn prefix(prefix: &str) -> MetaSpan {
    MetaSpan::Prefix {
        prefix: prefix.into(),
    }
}
fn names(store: &mut Store, of: &str) -> Vec<String> {
    store
        .list(&prefix(of))
        .expect("listed")
        .0
        .iter()
        .map(|pair| pair.key.to_string())
        .collect()
}
fn get(store: &mut Store, key: &str) -> Option<String> {
    let (pairs, _) = store
        .list(&MetaSpan::Key { key: key.into() })
        .expect("read");
    pairs
        .first()
        .map(|pair| String::from_utf8_lossy(&pair.value).into_owned())
}
fn refused(store: &mut Store, call: &MetaCall) -> MetaError {
    match store.call(call) {
        Err(MetaFailure::Refused(error)) => error,
        other => panic!("{other:?}"),
    }
}
/// Compares the object's head with the sums of its entries.
fn check(world: &Shared) {
    let world = world.borrow();
    let Some(omap) = world.object.as_ref().map(|there| &there.omap) else {
        return;
    };
    let mut state = super::state::State::default();
    omap.iter()
        .for_each(|(entry, value)| state.take(entry, value).expect("ours"));
    let head = &state.head;
    assert_eq!(head.keys, state.pairs.len() as u64);
    let bytes: usize = state
        .pairs
        .values()
        .map(|pair| pair.key.as_bytes().len() + pair.value.len())
        .sum();
    assert_eq!(head.bytes, bytes as u64);
    assert_eq!(head.leases, state.leases.len() as u64);
    let kept: Vec<u64> = state.log.keys().copied().collect();
    assert_eq!(kept, (head.oldest()..=head.revision).collect::<Vec<_>>());
    for (lease, keys) in &state.held {
        assert!(state.leases.contains_key(lease), "lease {lease} holds keys");
        for (key, held) in keys {
            let pair = &state.pairs[key];
            assert_eq!(
                (pair.lease, held.bytes),
                (*lease, (key.as_bytes().len() + pair.value.len()) as u64)
            );
        }
    }
    let held: usize = state.held.values().map(BTreeMap::len).sum();
    assert_eq!(
        held,
        state.pairs.values().filter(|pair| pair.lease != 0).count()
    );
}

#[test]
fn keys_are_kept_and_nothing_is_made_for_readers() {
    let world = world();
    let mut store = client(&world, "admin");
    assert_eq!(get(&mut store, "a/k"), None);
    assert!(!world.borrow().made, "reading makes nothing");
    assert_eq!(set(&mut store, "a/k", "1"), 1);
    assert_eq!(set(&mut store, "a/k", "2"), 2);
    assert_eq!(set(&mut store, "b/\0", "3"), 3);
    let pair = store.list(&prefix("a/")).expect("listed").0.remove(0);
    assert_eq!((pair.created, pair.modified, pair.version), (1, 2, 2));
    let gone = transact(
        vec![],
        vec![
            MetaOp::Delete { span: prefix("a/") },
            MetaOp::Delete { span: prefix("b/") },
        ],
    );
    let (revision, result) = store.call(&gone).expect("deleted");
    let answers = vec![
        MetaAnswer::Deleted { keys: 1 },
        MetaAnswer::Deleted { keys: 1 },
    ];
    assert_eq!(
        (revision, result),
        (
            4,
            MetaResult::Transacted {
                succeeded: true,
                answers
            }
        )
    );
    check(&world);
    assert_eq!(names(&mut store, ""), [] as [&str; 0]);
}

// Fails when a lost race is answered as if it had been won, and when the guard is left out.
#[test]
fn a_change_that_comes_between_is_seen() {
    let world = world();
    let mut store = client(&world, "admin");
    set(&mut store, "a/n", "0");
    let add = |store: &mut Store| loop {
        let old = get(store, "a/n").expect("there");
        let equal = MetaCompare {
            key: "a/n".into(),
            target: MetaTarget::Value {
                value: old.clone().into(),
            },
            relation: MetaRelation::Equal {},
        };
        let new = (old.parse::<u64>().expect("a number") + 1).to_string();
        let (_, result) = store
            .call(&transact(vec![equal], vec![put("a/n", &new, 0)]))
            .expect("carried out");
        if matches!(
            result,
            MetaResult::Transacted {
                succeeded: true,
                ..
            }
        ) {
            return;
        }
    };
    // Before every fifth operation, another client adds something: also between a transaction's
    // read and its write.
    let at = world.borrow().operations;
    for number in (at..at + 150).step_by(5) {
        world.borrow_mut().meanwhile.insert(
            number,
            Box::new(move |world: &Shared| {
                let kept = std::mem::take(&mut world.borrow_mut().meanwhile);
                let before = world.borrow().operations;
                let mut other = client(world, "admin");
                let old: u64 = get(&mut other, "a/n")
                    .expect("there")
                    .parse()
                    .expect("a number");
                set(&mut other, "a/n", &(old + 100).to_string());
                // Planned actions keep their operation numbers.
                let mut world = world.borrow_mut();
                world.operations = before;
                world.meanwhile = kept;
            }),
        );
    }
    (0..10).for_each(|_| add(&mut store));
    let found = get(&mut store, "a/n");
    let others = 30 - world.borrow().meanwhile.len() as u64;
    assert!(others >= 10, "{others}");
    assert_eq!(found, Some((10 + others * 100).to_string()));
    check(&world);
}

// Fails when no client waits, and when all wait equally long.
#[test]
fn who_lost_a_race_waits_a_little_and_not_everybody_as_long() {
    let world = world();
    let mut object = Object::new(Fake::new(&world), Here(world.clone()));
    for lost in 1..10 {
        let mut waits = BTreeSet::new();
        for start in 0..20 {
            let begun = Time(start * 1_000_003);
            world.borrow_mut().now = begun;
            object.make_way(lost);
            let waited = world.borrow().now.since(begun);
            assert!(
                waited < Duration::from_millis(2 << lost.min(5)),
                "{waited:?}"
            );
            waits.insert(waited.as_micros());
        }
        let (least, most) = (waits.first().expect("some"), waits.last().expect("some"));
        assert!(
            waits.len() > 15 && most - least > u128::from(1_000_u32 << lost.min(5)),
            "{waits:?}"
        );
    }
}

#[test]
fn a_list_in_pages_is_of_one_version_in_a_transaction() {
    let world = world();
    let mut store = client(&world, "admin");
    let many: Vec<MetaOp> = (0..40).map(|n| put(&format!("a/{n:02}"), "x", 0)).collect();
    store.call(&transact(vec![], many)).expect("set");
    set(&mut store, "b/k", "x");
    world.borrow_mut().page = 7;
    assert_eq!(names(&mut store, "a/").len(), 40);
    // Between the pages of a deletion, one key is added before the current position and one after
    // it.
    let at = world.borrow().operations;
    world.borrow_mut().meanwhile.insert(
        at + 2,
        Box::new(|world: &Shared| {
            let mut other = client(world, "admin");
            set(&mut other, "a/001", "x");
            set(&mut other, "a/99", "x");
        }),
    );
    let gone = transact(vec![], vec![MetaOp::Delete { span: prefix("a/") }]);
    let (_, result) = store.call(&gone).expect("deleted");
    assert_eq!(
        result,
        MetaResult::Transacted {
            succeeded: true,
            answers: vec![MetaAnswer::Deleted { keys: 42 }]
        }
    );
    assert_eq!(names(&mut store, ""), ["b/k"]);
    check(&world);
}

#[test]
fn what_does_not_come_back_may_have_happened_and_a_read_says_so_plainly() {
    let world = world();
    let mut store = client(&world, "admin");
    set(&mut store, "a/k", "1");
    for happens in [true, false] {
        // The read is answered, the write is not.
        let at = world.borrow().operations;
        let fail = move |world: &Shared| world.borrow_mut().silent.push_back(happens);
        world.borrow_mut().meanwhile.insert(at + 1, Box::new(fail));
        let ended = store.call(&transact(
            vec![],
            vec![put("a/k", if happens { "2" } else { "3" }, 0)],
        ));
        assert!(
            matches!(ended, Err(MetaFailure::Unknown(Some(_)))),
            "{ended:?}"
        );
        assert_eq!(get(&mut store, "a/k").as_deref(), Some("2"));
    }
    world.borrow_mut().silent.push_back(false);
    let silent = refused(&mut store, &MetaCall::Leases {});
    assert!(matches!(silent, MetaError::Unavailable { .. }));
}

/// All reports of a watch until there are no more.
fn told(store: &mut Store, cursor: &mut Cursor) -> Vec<u64> {
    let mut revisions = Vec::new();
    while let Some(news) = store.news(cursor, Duration::ZERO).expect("readable") {
        match news {
            WatchNews::Events { events, .. } => {
                revisions.extend(events.iter().map(MetaEvent::revision))
            }
            WatchNews::Ended(error) => panic!("{error}"),
        }
    }
    revisions
}

#[test]
fn a_watch_tells_every_revision_once_also_after_a_new_beginning() {
    let world = world();
    let (mut writer, mut reader) = (client(&world, "admin"), client(&world, "eve"));
    let mut cursor = Cursor::new(prefix("a/"), 0);
    assert_eq!(told(&mut reader, &mut cursor), [] as [u64; 0]);
    for n in 1..=100 {
        set(
            &mut writer,
            if n % 2 == 0 { "a/k" } else { "b/k" },
            &n.to_string(),
        );
    }
    let evens: Vec<u64> = (1..=50).map(|n| n * 2).collect();
    assert_eq!(told(&mut reader, &mut cursor), evens);
    let mut again = Cursor::new(prefix("a/"), 51);
    assert_eq!(told(&mut client(&world, "eve"), &mut again), evens[25..]);
}

/// How many milliseconds after a change another client's watch reports it.
fn told_after(world: &Shared) -> u64 {
    let mut reader = client(world, "eve");
    let mut cursor = Cursor::new(prefix("a/"), 0);
    told(&mut reader, &mut cursor);
    let at = world.borrow().now + Duration::from_millis(2_777);
    let change = |world: &Shared| {
        set(&mut client(world, "admin"), "a/k", "new");
    };
    world.borrow_mut().later.insert(at, Box::new(change));
    let news = reader
        .news(&mut cursor, Duration::from_secs(5))
        .expect("readable");
    let Some(WatchNews::Events { events, .. }) = news else {
        panic!("{news:?}")
    };
    assert_eq!(events.len(), 1);
    world.borrow().now.since(at).as_millis() as u64
}

// Fails without `Hints::listen`, without `Hints::send`, and when a lost watch is not registered
// again.
#[test]
fn a_hint_lets_watches_look_at_once_and_without_one_they_look_by_themselves() {
    let plain = world();
    set(&mut client(&plain, "admin"), "a/k", "old");
    let alone = told_after(&plain);
    assert!((10..=210).contains(&alone), "{alone} ms");
    let hinted = world();
    hinted.borrow_mut().watchable = true;
    set(&mut client(&hinted, "admin"), "a/k", "old");
    let soon = told_after(&hinted);
    assert!(soon < 10, "{soon} ms");
    // The watch is lost while it waits: it learns of the loss and registers again.
    let lose = |world: &Shared| {
        let (since, mut world) = (Time::ZERO, world.borrow_mut());
        for (watch, (there, events)) in world.watchers.iter_mut().filter(|(_, (there, _))| *there) {
            *there = false;
            events.push_back(WatchEvent::Lost {
                watch: *watch,
                since,
            });
        }
    };
    let at = hinted.borrow().now + Duration::from_millis(500);
    hinted.borrow_mut().later.insert(at, Box::new(lose));
    let before = hinted.borrow().watchers.len();
    assert!(told_after(&hinted) < 10);
    assert_eq!(
        hinted.borrow().watchers.len(),
        before + 2,
        "one for the reader, one after the loss"
    );
}

// Fails when a hint in flight is ignored, and when leases cause hints.
#[test]
fn while_a_hint_is_under_way_all_changes_become_one_more() {
    let world = world();
    world.borrow_mut().watchable = true;
    let mut store = client(&world, "admin");
    store
        .call(&MetaCall::Grant { ttl_ms: 5_000 })
        .expect("granted");
    assert_eq!(world.borrow().notified, 0, "no key has changed");
    world.borrow_mut().hold = true;
    for n in 0..100 {
        set(&mut store, "a/k", &n.to_string());
    }
    assert_eq!(world.borrow().notified, 1);
    world.borrow_mut().hold = false;
    assert!(get(&mut store, "a/k").is_some());
    drop(store);
    assert_eq!(world.borrow().notified, 2);
}

#[test]
fn what_is_compacted_is_told_and_the_object_stays_small() {
    let world = world();
    let mut store = client(&world, "admin");
    for n in 0..4_400 {
        set(&mut store, "a/k", &n.to_string());
    }
    check(&world);
    let entries = world.borrow().object.as_ref().expect("there").omap.len();
    assert!(entries < 4_300, "{entries} entries");
    let news = store
        .news(&mut Cursor::new(prefix("a/"), 5), Duration::ZERO)
        .expect("readable");
    let Some(WatchNews::Ended(MetaError::Compacted { oldest })) = news else {
        panic!("{news:?}")
    };
    assert_eq!(
        told(&mut store, &mut Cursor::new(prefix("a/"), oldest)).len() as u64,
        4_400 + 1 - oldest
    );
}

// Fails when renewals are ignored.
#[test]
fn a_lease_goes_with_its_silent_owner_and_never_before() {
    let world = world();
    let (mut owner, mut other) = (client(&world, "alice"), client(&world, "bob"));
    let grant = |store: &mut Store| match store
        .call(&MetaCall::Grant { ttl_ms: 5_000 })
        .expect("granted")
        .1
    {
        MetaResult::Granted {
            lease,
            ttl_ms: 5_000,
        } => lease,
        other => panic!("{other:?}"),
    };
    let lease = grant(&mut owner);
    let both = vec![put("a/leader", "alice", lease), put("a/other", "x", 0)];
    owner.call(&transact(vec![], both)).expect("set");
    let denied = refused(
        &mut other,
        &transact(vec![], vec![put("a/mine", "bob", lease)]),
    );
    assert!(matches!(denied, MetaError::Denied { .. }));
    assert!(matches!(
        refused(&mut other, &MetaCall::KeepAlive { lease }),
        MetaError::Denied { .. }
    ));

    let mut cursor = Cursor::new(prefix("a/"), 0);
    let mut watch = |other: &mut Store, for_ms: u64| {
        let until = world.borrow().now + Duration::from_millis(for_ms);
        let mut gone = Vec::new();
        while world.borrow().now < until {
            let left = until.since(world.borrow().now);
            if let Some(WatchNews::Events { events, .. }) =
                other.news(&mut cursor, left).expect("readable")
            {
                gone.extend(events.iter().map(|event| event.key().to_string()));
            }
        }
        gone
    };
    // Its owner renews every three seconds: it stays as long as that continues.
    for _ in 0..5 {
        assert_eq!(watch(&mut other, 3_000), [] as [&str; 0]);
        owner.call(&MetaCall::KeepAlive { lease }).expect("alive");
    }
    assert_eq!(watch(&mut other, 4_900), [] as [&str; 0]);
    assert_eq!(watch(&mut other, 2_000), ["a/leader"]);
    assert_eq!(
        refused(&mut owner, &MetaCall::KeepAlive { lease }),
        MetaError::NoSuchLease { lease }
    );
    assert_eq!(names(&mut owner, ""), ["a/other"]);
    check(&world);
}

// Fails when the number of renewals is not checked again, and when the guard is left out.
#[test]
fn a_renewal_at_the_last_moment_is_in_time() {
    // Before the lease to end is read, and between that and its end.
    for before in [1, 2] {
        let world = world();
        let (mut owner, mut other) = (client(&world, "alice"), client(&world, "bob"));
        owner
            .call(&MetaCall::Grant { ttl_ms: 5_000 })
            .expect("granted");
        owner
            .call(&transact(vec![], vec![put("a/k", "x", 1)]))
            .expect("set");
        other.tend();
        let late = world.borrow().now + Duration::from_secs(6);
        world.borrow_mut().now = late;
        let at = world.borrow().operations;
        let renew = |world: &Shared| {
            let mut owner = client(world, "alice");
            owner
                .call(&MetaCall::KeepAlive { lease: 1 })
                .expect("in time");
        };
        world
            .borrow_mut()
            .meanwhile
            .insert(at + before, Box::new(renew));
        other.tend();
        assert!(world.borrow().meanwhile.is_empty() && world.borrow().operations > at + 3);
        assert_eq!(get(&mut owner, "a/k").as_deref(), Some("x"));
        check(&world);
    }
}

#[test]
fn keys_leave_a_lease_that_they_are_set_without_and_go_with_one_that_is_revoked() {
    let world = world();
    let mut store = client(&world, "admin");
    let mut grant = || match store
        .call(&MetaCall::Grant { ttl_ms: 5_000 })
        .expect("granted")
        .1
    {
        MetaResult::Granted { lease, .. } => lease,
        other => panic!("{other:?}"),
    };
    let (one, two) = (grant(), grant());
    for (key, lease) in [("a/1", one), ("a/2", one), ("a/3", one), ("a/4", two)] {
        store
            .call(&transact(vec![], vec![put(key, "x", lease)]))
            .expect("set");
    }
    store
        .call(&transact(
            vec![],
            vec![put("a/2", "y", 0), put("a/3", "y", two)],
        ))
        .expect("set");
    check(&world);
    let MetaResult::Leases { leases } = store.call(&MetaCall::Leases {}).expect("listed").1 else {
        panic!("leases")
    };
    assert_eq!(
        leases
            .iter()
            .map(|lease| (lease.lease, lease.keys))
            .collect::<Vec<_>>(),
        [(one, 1), (two, 2)]
    );
    let (revision, result) = store
        .call(&MetaCall::Revoke { lease: two })
        .expect("revoked");
    assert_eq!((revision, result), (6, MetaResult::Revoked { keys: 2 }));
    assert_eq!(names(&mut store, ""), ["a/1", "a/2"]);
    check(&world);
    let none = refused(&mut store, &transact(vec![], vec![put("a/5", "x", two)]));
    assert_eq!(none, MetaError::NoSuchLease { lease: two });
}

#[test]
fn what_this_engine_has_not_is_refused_by_its_name() {
    let world = world();
    let mut store = client(&world, "admin");
    let mut why = |key: &str, value: &str| {
        refused(&mut store, &transact(vec![], vec![put(key, value, 0)])).to_string()
    };
    assert!(why("nacre/program/p", "function validate() end").contains("`meta_programs`"));
    assert!(why("nacre/namespace/a", r#"{"validator": "p"}"#).contains("`meta_programs`"));
    assert!(
        why(
            "nacre/namespace/a",
            r#"{"triggers": [{"name": "t", "log": "x"}]}"#
        )
        .contains("`meta_programs`")
    );
    assert!(why("nacre/namespace/a", r#"{"writers": ["alice"]}"#).contains("`meta_access`"));
    assert!(why("nacre/namespace/a", r#"{"keys_max": 3}"#).contains("`meta_quotas`"));
    assert!(why("nacre/namespace/a", r#"{"writer": ["alice"]}"#).contains("`writer`"));
    assert!(why("nokey", "x").contains("NAMESPACE/NAME"));
    assert!(why("a/k", &"x".repeat((64 << 10) + 1)).contains("65536"));
    assert_eq!(world.borrow().operations, 0, "nothing was read for it");
    set(&mut store, "nacre/namespace/a", r#"{"readers": ["*"]}"#);
    let denied = refused(
        &mut client(&world, "eve"),
        &transact(vec![], vec![put("nacre/x", "1", 0)]),
    );
    assert!(matches!(denied, MetaError::Denied { .. }));
}

#[test]
fn what_is_full_takes_no_more_but_may_be_emptied() {
    let world = world();
    let mut store = client(&world, "admin");
    set(&mut store, "a/k", "1");
    let head = |keys| {
        let mut world = world.borrow_mut();
        let omap = &mut world.object.as_mut().expect("there").omap;
        let head = Head::from_bytes(&omap[layout::HEAD]).expect("a head");
        omap.insert(
            Bytes::from_static(layout::HEAD),
            Head { keys, ..head }.to_bytes().into(),
        );
    };
    head(KEYS_MAX);
    let full = refused(&mut store, &transact(vec![], vec![put("a/l", "1", 0)]));
    assert!(
        matches!(
            full,
            MetaError::QuotaExceeded {
                limit: KEYS_MAX,
                ..
            }
        ),
        "{full:?}"
    );
    set(&mut store, "a/k", "2");
    head(KEYS_MAX + 5);
    let gone = transact(vec![], vec![MetaOp::Delete { span: prefix("a/") }]);
    store.call(&gone).expect("less is always possible");
}
