//! Service metadata on a real cluster: races, watches, leases, histories. Each test has an object
//! of its own; one uses the cluster's.

use crate::OwnPool;
use crate::outage::Stopped;
use nacre_client::{MetaFailure, WatchNews};
use nacre_history::record::{Kind, Outcome, Record};
use nacre_rados::meta::{Cursor, Locate, MetaStore, decide, place};
use nacre_rados::{Bounds, Ceph, Rados, RadosError, To};
use nacre_types::{Name, ObjectId, PoolId};
use nacre_wire::msg::meta::{
    MetaCall, MetaCompare, MetaError, MetaEvent, MetaOp, MetaPair, MetaRelation, MetaResult,
    MetaSpan, MetaTarget,
};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::RwLockReadGuard;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Limit of every wait of a test.
const PATIENCE: Duration = Duration::from_secs(120);

fn connect(conf: &Path) -> Rados {
    Rados::connect(conf, "admin", &Bounds::default()).expect("connects")
}

/// A test's own pool, with the metadata in the object `meta`.
struct Site {
    conf: PathBuf,
    pool: OwnPool,
    _shared: RwLockReadGuard<'static, ()>,
}

/// A location independent of the cluster's pointer.
struct There(PoolId, ObjectId);
impl Locate for There {
    fn find(&mut self) -> Result<Option<(PoolId, ObjectId)>, RadosError> {
        Ok(Some((self.0, self.1.clone())))
    }
    fn make(&mut self) -> Result<(PoolId, ObjectId), RadosError> {
        Ok((self.0, self.1.clone()))
    }
}

type Store = MetaStore<Ceph, There>;

impl Site {
    fn new(test: &str) -> Option<Self> {
        let (conf, _shared) = crate::ceph(&format!("service metadata on Ceph: {test}"))?;
        let pool = OwnPool::make(&conf, &format!("meta-{test}"));
        Some(Self {
            conf,
            pool,
            _shared,
        })
    }
    /// A client with a connection of its own.
    fn client(&self) -> Store {
        self.named("admin")
    }
    fn named(&self, who: &str) -> Store {
        let locate = There(self.pool.id, ObjectId::named(place::OBJECT));
        MetaStore::new(Ceph::new(connect(&self.conf)), locate, who)
    }
}
fn put(key: &str, value: &str, lease: u64) -> MetaOp {
    MetaOp::Put {
        key: key.into(),
        value: value.to_owned().into(),
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
fn modified(key: &str, number: u64) -> MetaCompare {
    MetaCompare {
        key: key.into(),
        target: MetaTarget::Modified { number },
        relation: MetaRelation::Equal {},
    }
}
fn set(store: &mut Store, key: &str, value: &str) -> u64 {
    store
        .call(&transact(vec![], vec![put(key, value, 0)]))
        .expect("set")
        .0
}
fn get(store: &mut Store, key: &str) -> Option<MetaPair> {
    store
        .list(&MetaSpan::Key { key: key.into() })
        .expect("read")
        .0
        .pop()
}
fn number(pair: &MetaPair) -> u64 {
    std::str::from_utf8(&pair.value)
        .expect("text")
        .parse()
        .expect("a number")
}
fn prefix(prefix: &str) -> MetaSpan {
    MetaSpan::Prefix {
        prefix: prefix.into(),
    }
}
/// Sets a key if a given revision changed it last; returns whether it was set.
fn swap(store: &mut Store, key: &str, at: u64, value: &str) -> bool {
    match store
        .call(&transact(vec![modified(key, at)], vec![put(key, value, 0)]))
        .expect("carried out")
    {
        (_, MetaResult::Transacted { succeeded, .. }) => succeeded,
        other => panic!("{other:?}"),
    }
}
/// The revisions reported by a watch, up to one.
fn told(store: &mut Store, cursor: &mut Cursor, last: u64) -> Vec<u64> {
    let (mut revisions, begun) = (Vec::new(), Instant::now());
    while revisions.last() != Some(&last) {
        assert!(
            begun.elapsed() < PATIENCE,
            "revision {last} is not told; so far {revisions:?}"
        );
        match store
            .news(cursor, Duration::from_secs(1))
            .expect("readable")
        {
            Some(WatchNews::Events { events, .. }) => {
                revisions.extend(events.iter().map(MetaEvent::revision))
            }
            Some(WatchNews::Ended(error)) => panic!("{error}"),
            None => {}
        }
    }
    revisions
}

#[test]
fn the_clusters_pointer_leads_everybody_to_the_same_keys() {
    let Some((conf, _shared)) = crate::ceph("service metadata on Ceph: the pointer") else {
        return;
    };
    let key = format!("pointer-test/{}", std::process::id());
    let revision = MetaStore::connect(connect(&conf), "admin")
        .call(&transact(vec![], vec![put(&key, "here", 0)]))
        .expect("set")
        .0;
    let said = connect(&conf).command(
        To::Mon,
        &json!({ "prefix": "config-key get", "key": place::KEY }),
        &[],
    );
    let pointer = place::Pointer::parse(&said.expect("there is one")).expect("a pointer");
    assert!(!pointer.pool.is_empty(), "{pointer:?}");
    let mut other = MetaStore::connect(connect(&conf), "admin");
    let (pairs, _) = other.list(&prefix(&key)).expect("listed");
    assert_eq!(
        pairs
            .iter()
            .map(|pair| (pair.modified, &pair.value[..]))
            .collect::<Vec<_>>(),
        [(revision, &b"here"[..])]
    );
    let gone = MetaOp::Delete {
        span: MetaSpan::Key {
            key: key.as_str().into(),
        },
    };
    other.call(&transact(vec![], vec![gone])).expect("deleted");
}

#[test]
fn clients_that_race_lose_no_addition() {
    let Some(site) = Site::new("races") else {
        return;
    };
    let (clients, each) = (3, 40);
    set(&mut site.client(), "a/n", "0");
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut store = site.client();
                for _ in 0..each {
                    loop {
                        let old = get(&mut store, "a/n").expect("there");
                        if swap(
                            &mut store,
                            "a/n",
                            old.modified,
                            &(number(&old) + 1).to_string(),
                        ) {
                            break;
                        }
                    }
                }
            });
        }
    });
    let pair = get(&mut site.client(), "a/n").expect("there");
    assert_eq!(
        (number(&pair), pair.version),
        (clients * each, clients * each + 1)
    );
}

#[test]
fn a_transaction_moves_between_keys_and_every_reader_sees_the_sum() {
    let Some(site) = Site::new("sum") else { return };
    let both = vec![put("a/left", "500", 0), put("a/right", "500", 0)];
    site.client().call(&transact(vec![], both)).expect("set");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut store = site.client();
            let mut left = 500_u64;
            for n in 0..100 {
                left = if n % 3 == 0 { left + 7 } else { left - 5 };
                let ops = vec![
                    put("a/left", &left.to_string(), 0),
                    put("a/right", &(1000 - left).to_string(), 0),
                ];
                store.call(&transact(vec![], ops)).expect("moved");
            }
            done.store(true, Ordering::Release);
        });
        let mut store = site.client();
        let mut seen = 0;
        while !done.load(Ordering::Acquire) {
            let (pairs, _) = store.list(&prefix("a/")).expect("listed");
            assert_eq!(pairs.iter().map(number).sum::<u64>(), 1000);
            assert_eq!(pairs[0].modified, pairs[1].modified);
            seen += 1;
        }
        assert!(seen > 10, "{seen} lists");
    });
}

#[test]
fn a_watch_tells_every_revision_once_and_goes_on_with_another_client() {
    let Some(site) = Site::new("watch") else {
        return;
    };
    let (writers, each) = (2_u64, 60_u64);
    let last = writers * each + 1;
    set(&mut site.client(), "a/begin", "");
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let site = &site;
            scope.spawn(move || {
                let mut store = site.client();
                for n in 0..each {
                    set(&mut store, &format!("a/{writer}"), &n.to_string());
                }
            });
        }
        // Its connection is abandoned in the middle; another one continues where it had stopped.
        let (mut reader, mut all) = (site.client(), Vec::new());
        let mut cursor = Cursor::new(prefix("a/"), 1);
        let begun = Instant::now();
        while all.last() != Some(&last) {
            assert!(begun.elapsed() < PATIENCE, "{all:?}");
            match reader
                .news(&mut cursor, Duration::from_secs(1))
                .expect("readable")
            {
                Some(WatchNews::Events { events, .. }) => {
                    all.extend(events.iter().map(MetaEvent::revision))
                }
                Some(WatchNews::Ended(error)) => panic!("{error}"),
                None => {}
            }
            if all.len().is_multiple_of(7) {
                reader = site.client();
                cursor = Cursor::new(prefix("a/"), all.last().map_or(1, |last| last + 1));
            }
        }
        assert_eq!(all, (1..=last).collect::<Vec<_>>());
    });
}

#[test]
fn what_is_compacted_is_told() {
    let Some(site) = Site::new("compact") else {
        return;
    };
    let mut store = site.client();
    // Large changes: the log is bounded in bytes.
    let large = "x".repeat(60_000);
    let many = |n: u64| {
        transact(
            vec![],
            (0..8)
                .map(|k| put(&format!("a/{k}"), &format!("{n}{large}"), 0))
                .collect(),
        )
    };
    let last = (0..140)
        .map(|n| store.call(&many(n)).expect("set").0)
        .last()
        .expect("some");
    assert_eq!(last, 140);
    let news = store
        .news(&mut Cursor::new(prefix("a/"), 2), Duration::ZERO)
        .expect("readable");
    let Some(WatchNews::Ended(MetaError::Compacted { oldest })) = news else {
        panic!("{news:?}")
    };
    assert!(oldest > 2 && oldest <= last);
    let mut from_there = told(&mut store, &mut Cursor::new(prefix("a/"), oldest), last);
    from_there.dedup();
    assert_eq!(from_there, (oldest..=last).collect::<Vec<_>>());
}

#[test]
fn leases_go_when_their_owner_does_and_stay_while_it_lives() {
    let Some(site) = Site::new("leases") else {
        return;
    };
    let grant = |store: &mut Store| match store
        .call(&MetaCall::Grant { ttl_ms: 2_000 })
        .expect("granted")
        .1
    {
        MetaResult::Granted { lease, .. } => lease,
        other => panic!("{other:?}"),
    };
    let (mut alive, mut silent) = (site.named("alice"), site.named("bob"));
    let (kept, lost) = (grant(&mut alive), grant(&mut silent));
    let asked = Instant::now();
    alive
        .call(&transact(vec![], vec![put("a/alice", "x", kept)]))
        .expect("set");
    let at = silent
        .call(&transact(vec![], vec![put("a/bob", "x", lost)]))
        .expect("set")
        .0;
    drop(silent);
    let done = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let ended = done.clone();
        let alive = &mut alive;
        scope.spawn(move || {
            while !ended.load(Ordering::Acquire) {
                alive
                    .call(&MetaCall::KeepAlive { lease: kept })
                    .expect("it lives");
                std::thread::sleep(Duration::from_millis(300));
            }
        });
        let mut watcher = site.client();
        let gone = told(
            &mut watcher,
            &mut Cursor::new(prefix("a/bob"), at + 1),
            at + 1,
        );
        assert_eq!(gone, [at + 1]);
        assert!(
            asked.elapsed() >= Duration::from_secs(2),
            "never early: {:?}",
            asked.elapsed()
        );
        // Longer than the lease's duration, with a client that would end it.
        let _ = watcher
            .news(
                &mut Cursor::new(prefix("b/"), at + 2),
                Duration::from_secs(4),
            )
            .expect("readable");
        done.store(true, Ordering::Release);
        assert!(get(&mut watcher, "a/alice").is_some() && get(&mut watcher, "a/bob").is_none());
    });
    let late = alive.call(&MetaCall::KeepAlive { lease: lost });
    assert_eq!(
        late,
        Err(MetaFailure::Refused(MetaError::NoSuchLease { lease: lost }))
    );
}

// Fails when reads are answered from the state that was read last.
#[test]
fn a_history_of_reads_writes_and_swaps_is_linearizable() {
    let Some(site) = Site::new("history") else {
        return;
    };
    let begun = Instant::now();
    let now = move || u64::try_from(begun.elapsed().as_nanos()).expect("short");
    let mut history: Vec<Record> = Vec::new();
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..4_u64)
            .map(|client| {
                let site = &site;
                scope.spawn(move || {
                    let mut store = site.client();
                    let mut records = Vec::new();
                    for n in 0..60_u64 {
                        let key = format!("a/{}", n % 2);
                        let value = client * 1_000 + n + 1;
                        let mut record = Record {
                            client,
                            op: [Kind::Read, Kind::Write, Kind::Cas][((n + client) % 3) as usize],
                            key: key.clone(),
                            value: Some(value),
                            expect: None,
                            invoke_ns: now(),
                            return_ns: None,
                            result: None,
                            unknown: false,
                            fail: false,
                        };
                        match record.op {
                            Kind::Read => {
                                record.value = None;
                                record.result = Some(Outcome::Value(
                                    get(&mut store, &key).as_ref().map(number),
                                ));
                            }
                            Kind::Write => {
                                set(&mut store, &key, &value.to_string());
                            }
                            Kind::Cas => {
                                // The expected value was read just before, which is not part of the
                                // operation.
                                record.expect = get(&mut store, &key).as_ref().map(number);
                                record.invoke_ns = now();
                                record.result = Some(Outcome::Swapped(swap_value(
                                    &mut store,
                                    &key,
                                    record.expect,
                                    value,
                                )));
                            }
                        }
                        record.return_ns = Some(now());
                        records.push(record);
                    }
                    records
                })
            })
            .collect();
        runs.into_iter()
            .for_each(|run| history.extend(run.join().expect("no panic")));
    });
    let swapped = history
        .iter()
        .filter(|record| record.result == Some(Outcome::Swapped(true)))
        .count();
    assert!(swapped > 0, "some compare-and-set succeeded");
    if let Err(violations) = nacre_history::check(&history) {
        panic!(
            "{}",
            violations
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n")
        );
    }
}

fn swap_value(store: &mut Store, key: &str, expect: Option<u64>, value: u64) -> bool {
    let target = match expect {
        Some(old) => MetaTarget::Value {
            value: old.to_string().into(),
        },
        None => MetaTarget::Version { number: 0 },
    };
    let compare = MetaCompare {
        key: key.into(),
        target,
        relation: MetaRelation::Equal {},
    };
    let call = transact(vec![compare], vec![put(key, &value.to_string(), 0)]);
    matches!(
        store.call(&call).expect("carried out").1,
        MetaResult::Transacted {
            succeeded: true,
            ..
        }
    )
}

// Fails when a watch ends because there was no answer.
#[test]
fn a_cluster_that_stands_still_is_told_in_time_and_watches_go_on() {
    let Some((conf, _alone)) = crate::ceph_alone("service metadata on Ceph: an outage") else {
        return;
    };
    let pool = OwnPool::make(&conf, "meta-outage");
    let client = || {
        let bounds = Bounds {
            operation: Duration::from_secs(3),
            ..Bounds::default()
        };
        let rados = Rados::connect(&conf, "admin", &bounds).expect("connects");
        MetaStore::new(
            Ceph::new(rados),
            There(pool.id, ObjectId::named(place::OBJECT)),
            "admin",
        )
    };
    let (mut writer, mut reader) = (client(), client());
    let first = set(&mut writer, "a/k", "before");
    let mut cursor = Cursor::new(prefix("a/"), first);
    assert_eq!(told(&mut reader, &mut cursor, first), [first]);
    let stopped = Stopped::of(&conf, "osd.");
    let asked = Instant::now();
    let ended = writer.call(&transact(vec![], vec![put("a/k", "meanwhile", 0)]));
    let Err(MetaFailure::Refused(MetaError::Unavailable { why })) = ended else {
        panic!("{ended:?}")
    };
    assert!(why.contains("does not answer"), "{why}");
    assert_eq!(
        reader.news(&mut cursor, Duration::from_secs(1)),
        Ok(None),
        "it waits"
    );
    assert!(asked.elapsed() < PATIENCE);
    drop(stopped);
    let last = loop {
        assert!(asked.elapsed() < PATIENCE, "it does not go on");
        match writer.call(&transact(vec![], vec![put("a/k", "after", 0)])) {
            Ok((revision, _)) => break revision,
            Err(failure) => eprintln!("not yet: {failure}"),
        }
    };
    assert_eq!(
        told(&mut reader, &mut cursor, last),
        (first + 1..=last).collect::<Vec<_>>()
    );
}

#[test]
fn many_keys_list_in_pages_and_go_at_once() {
    let Some(site) = Site::new("pages") else {
        return;
    };
    let mut store = site.client();
    let odd = Name::copy(b"a/\0\x01\xff");
    for part in 0..10 {
        let ops = (0..100)
            .map(|n| put(&format!("a/{part}{n:02}"), "x", 0))
            .collect();
        store.call(&transact(vec![], ops)).expect("set");
    }
    let strange = MetaOp::Put {
        key: odd.clone(),
        value: "strange".to_owned().into(),
        lease: 0,
    };
    store.call(&transact(vec![], vec![strange])).expect("set");
    let (pairs, revision) = store.list(&prefix("a/")).expect("listed");
    assert_eq!((pairs.len(), revision), (1_001, 11));
    assert_eq!(pairs[0].key, odd, "it sorts as it does anywhere");
    assert!(pairs.is_sorted_by_key(|pair| &pair.key));
    let between = MetaSpan::Between {
        from: "a/100".into(),
        to: "a/200".into(),
    };
    let ops = vec![
        MetaOp::Delete { span: between },
        MetaOp::Get {
            span: prefix("a/1"),
            limit: 0,
            keys_only: true,
        },
    ];
    let (_, result) = store.call(&transact(vec![], ops)).expect("deleted");
    let MetaResult::Transacted { answers, .. } = result else {
        panic!("{result:?}")
    };
    assert_eq!(
        format!("{answers:?}"),
        "[Deleted { keys: 100 }, Got { pairs: [], more: false }]"
    );
    let most = u32::try_from(decide::CHANGES_MAX).expect("small");
    assert!(most > 901, "the rest goes at once");
    store
        .call(&transact(
            vec![],
            vec![MetaOp::Delete { span: prefix("a/") }],
        ))
        .expect("deleted");
    assert_eq!(store.list(&prefix("")).expect("listed").0, []);
}
