//! Everything in one process.

use crate::folder::{Folder, small};
use nacre_client::{WatchError, WatchEvent};
use nacre_node::{Cluster, Embedded, Error, Notified, Pool, RunOptions, StartError};
use nacre_types::{Entity, ObjectId, OsdId, SnapId};
use nacre_wire::msg::client::{OpFailure, SnapContext, SubOp};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn start(folder: &Folder) -> Arc<Embedded> {
    Arc::new(Embedded::start(folder.path(), RunOptions::default()).expect("starts"))
}

/// Waits until every placement group has all its copies where they belong.
pub fn wait_clean(cluster: &Cluster) {
    let begun = Instant::now();
    loop {
        let status = cluster.command(json!({ "command": "status" })).wait().expect("the monitors answer");
        let groups = status["pgs"]["count"].as_u64().expect("a number");
        if status["pgs"]["by_state"]["active+clean"].as_u64() == Some(groups) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "not clean after a minute: {status}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn name(n: u32) -> String {
    format!("object-{n}")
}
fn content(n: u32) -> Vec<u8> {
    (0..n * 37 % 9000).map(|i| (i * 7 + n) as u8).collect()
}
fn fill(pool: &Pool, numbers: std::ops::Range<u32>) {
    for n in numbers {
        pool.put(&name(n), content(n)).wait().expect("put");
    }
}
fn verify(pool: &Pool, numbers: std::ops::Range<u32>) {
    for n in numbers {
        assert_eq!(pool.get(&name(n)).wait().expect("get"), content(n), "object {n}");
    }
}

/// A service that has snapshots of some objects only: it allocates the ids, and says itself what a write preserves.
#[test]
fn a_pools_writes_preserve_the_snapshots_that_its_handle_says() {
    let folder = Folder::new("preserving");
    small(&folder, None);
    let embedded = start(&folder);
    let cluster = embedded.cluster();
    let pool = cluster.create_pool("things").wait().expect("a pool");
    pool.put("a", "first").wait().expect("put");
    pool.put("b", "first").wait().expect("put");
    let create = json!({ "command": "pool snap create", "pool": "things" });
    let id = cluster.command(create).wait().expect("allocated")["id"].as_u64().expect("a number");
    let context = SnapContext { sequence: id, snapshots: vec![SnapId(id)] };
    // Until the OSD's map has it, a context with it is refused.
    let begun = Instant::now();
    let careful = pool.preserving(context);
    while let Err(error) = careful.put("a", "second").wait() {
        assert!(matches!(error, Error::Refused(OpFailure::Invalid { .. })), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{error}");
    }
    pool.put("b", "second").wait().expect("put");
    let then = |name: &str| ObjectId { snapshot: SnapId(id), ..ObjectId::named(name) };
    assert_eq!(pool.get(then("a")).wait().expect("preserved"), "first");
    assert_eq!(pool.get("a").wait().expect("get"), "second");
    assert_eq!(pool.get(then("b")).wait().expect("nobody asked for more"), "second");
}

#[test]
fn what_the_facade_offers_works() {
    let folder = Folder::new("facade");
    small(&folder, None);
    let embedded = start(&folder);
    let cluster = embedded.cluster();
    let pool = cluster.create_pool("things").wait().expect("a pool");
    assert_eq!(cluster.pools().wait().expect("pools")[0].name, "things");
    assert_eq!(cluster.pool("things").wait().expect("found").id(), pool.id());
    assert!(matches!(cluster.pool("nothing").wait(), Err(Error::NoSuchPool { .. })));

    let first = pool.put("a", "first").wait().expect("put");
    pool.append("a", " and second").wait().expect("append");
    pool.write("a", 0, "F").wait().expect("write");
    assert_eq!(pool.get("a").wait().expect("get"), "First and second");
    assert_eq!(pool.read("a", 6, 3).wait().expect("read"), "and");
    let stat = pool.stat("a").wait().expect("stat").expect("there");
    assert_eq!(stat.size, 16);
    assert_eq!(pool.stat("b").wait().expect("stat"), None);

    // Compare and set: only the version that was read may be replaced.
    let stale = pool.put_if("a", first, "lost").wait();
    assert!(matches!(stale, Err(Error::Refused(OpFailure::Guard { index: 0 }))), "{stale:?}");
    pool.put_if("a", stat.version, "won").wait().expect("the version is current");
    assert_eq!(pool.get("a").wait().expect("get"), "won");

    pool.set_attr("a", "colour", "red").wait().expect("set");
    assert_eq!(pool.attr("a", "colour").wait().expect("attribute"), "red");
    assert_eq!(pool.attrs("a").wait().expect("attributes").len(), 1);
    pool.remove_attr("a", "colour").wait().expect("removed");
    assert!(matches!(pool.attr("a", "colour").wait(), Err(Error::Refused(OpFailure::NotFound {}))));

    let entry = |n: u8| (vec![n].into(), vec![n; 3].into());
    pool.omap_set("a", (1..=5).map(entry).collect()).wait().expect("set");
    pool.omap_remove("a", vec![vec![2].into()]).wait().expect("removed");
    assert_eq!(pool.omap_get("a", vec![vec![2].into(), vec![3].into()]).wait().expect("get"), vec![entry(3)]);
    let (page, more) = pool.omap_list("a", vec![1], 2).wait().expect("list");
    assert_eq!((page, more), (vec![entry(3), entry(4)], true));

    fill(&pool, 0..50);
    let mut listed: Vec<ObjectId> = Vec::new();
    let mut from = None;
    loop {
        let page = pool.list(from, 7).wait().expect("list");
        assert!(page.objects.len() <= 7);
        listed.extend(page.objects);
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    listed.sort();
    let mut expected: Vec<ObjectId> = (0..50).map(|n| ObjectId::named(&name(n))).collect();
    expected.push(ObjectId::named("a"));
    expected.sort();
    assert_eq!(listed, expected);

    // Larger than one operation's bound is an error before anything is sent; several parts are one.
    let large = pool.put("large", vec![0; (32 << 20) + 1]).wait();
    assert!(matches!(large, Err(Error::TooLarge { .. })));
    let parts = vec![SubOp::Write { offset: 0, length: 2 }, SubOp::SetAttr { name: "x".into(), value: "y".into() }];
    pool.operate("multi", parts, vec!["ab".into()]).wait().expect("both");
    assert_eq!(pool.attr("multi", "x").wait().expect("attribute"), "y");
    pool.remove("multi").wait().expect("removed");
    assert_eq!(pool.stat("multi").wait().expect("stat"), None);

    let wrong = cluster.command(json!({ "command": "statsu" })).wait();
    assert!(matches!(&wrong, Err(Error::Command(why)) if why.contains("status")), "{wrong:?}");
    assert!(embedded.halted().is_empty());
    cluster.stop();
    assert!(matches!(pool.get("a").wait(), Err(Error::Stopped { .. })));
}

#[test]
fn a_cluster_that_was_stopped_goes_on_where_it_was() {
    let folder = Folder::new("restart");
    small(&folder, None);
    for round in 0..3 {
        let embedded = start(&folder);
        let cluster = embedded.cluster();
        let pool = match round {
            0 => cluster.create_pool("things").wait().expect("a pool"),
            _ => cluster.pool("things").wait().expect("still there"),
        };
        verify(&pool, 0..round * 20);
        fill(&pool, round * 20..(round + 1) * 20);
        cluster.stop();
    }
}

#[test]
fn a_killed_osd_costs_nothing_and_comes_back() {
    let folder = Folder::new("kill");
    small(&folder, None);
    let embedded = start(&folder);
    let cluster = embedded.cluster();
    let pool = cluster.create_pool("things").wait().expect("a pool");
    fill(&pool, 0..60);
    wait_clean(&cluster);
    assert!(embedded.kill_osd(OsdId(1)));
    assert!(!embedded.running().contains(&Entity::Osd(OsdId(1))));
    verify(&pool, 0..60);
    fill(&pool, 30..90);
    embedded.start_osd(OsdId(1)).expect("starts again");
    wait_clean(&cluster);
    // Now it holds what it missed: the others may go, one at a time.
    for gone in [0, 2] {
        assert!(embedded.kill_osd(OsdId(gone)));
        verify(&pool, 0..90);
        embedded.start_osd(OsdId(gone)).expect("starts again");
        wait_clean(&cluster);
    }
    assert!(embedded.halted().is_empty(), "{:?}", embedded.halted());
}

#[test]
fn a_folder_is_used_once_and_only_if_it_is_a_clusters() {
    let folder = Folder::new("lock");
    let config = small(&folder, None);
    let embedded = start(&folder);
    let second = Embedded::start(folder.path(), RunOptions::default());
    assert!(matches!(&second, Err(StartError::Locked { by, .. }) if by.contains("an embedded cluster")));
    let process = nacre_node::run_osd(&config, OsdId(0), &RunOptions::default(), &mut |_| {});
    assert!(matches!(&process, Err(StartError::Locked { .. })), "{process:?}");
    embedded.stop();
    drop(start(&folder));

    let again = nacre_node::init(folder.path(), &nacre_node::InitOptions::default());
    assert!(matches!(again, Err(StartError::Exists { .. })));
    let foreign = Folder::new("foreign");
    std::fs::create_dir_all(foreign.path().join("photos")).expect("a folder");
    let refused = nacre_node::init(foreign.path(), &nacre_node::InitOptions::default());
    assert!(matches!(&refused, Err(StartError::Foreign { found, .. }) if found == "photos"), "{refused:?}");
}

#[test]
fn nobody_can_read_or_write_without_enough_copies_and_is_told_why() {
    let folder = Folder::new("blocked");
    small(&folder, None);
    let embedded = start(&folder);
    let cluster = embedded.cluster().with_timeout(Duration::from_millis(700));
    let pool = cluster.create_pool("things").wait().expect("a pool");
    pool.put("a", "kept").wait().expect("put");
    embedded.kill_osd(OsdId(0));
    embedded.kill_osd(OsdId(1));
    let waiting = pool.put("a", "never").wait();
    let Err(Error::TimedOut { waits_for, waited }) = waiting else { panic!("{waiting:?}") };
    assert!(!waits_for.is_empty() && waited >= Duration::from_millis(700), "{waits_for} for {waited:?}");
    embedded.start_osd(OsdId(0)).expect("starts again");
    embedded.start_osd(OsdId(1)).expect("starts again");
    let patient = embedded.cluster();
    let pool = patient.pool("things").wait().expect("a pool");
    let found = pool.get("a").wait().expect("readable again");
    assert!(found == "kept" || found == "never", "an operation that timed out may have happened: {found:?}");
}

#[test]
fn watchers_hear_notifies_through_the_facade_until_they_lose_their_watch() {
    let folder = Folder::new("watch");
    small(&folder, None);
    let embedded = start(&folder);
    let (watching, notifying) = (embedded.cluster(), embedded.cluster());
    let pool = watching.create_pool("things").wait().expect("a pool");
    let other = notifying.pool("things").wait().expect("found");
    assert!(matches!(
        pool.watch("a", Duration::from_secs(10)).wait().map(|_| ()),
        Err(Error::Refused(OpFailure::NotFound {}))
    ));
    pool.put("a", "content").wait().expect("put");
    let watcher = pool.watch("a", Duration::from_secs(10)).wait().expect("watched");
    let told = std::thread::scope(|scope| {
        let told = scope.spawn(|| other.notify("a", "news", Duration::from_secs(20)).wait());
        let WatchEvent::Notify { notify, payload, .. } = watcher.next().wait().expect("heard") else {
            panic!("nothing is lost")
        };
        assert_eq!(payload.concat(), b"news");
        watcher.ack(notify, "thanks").wait().expect("it was told");
        assert!(matches!(watcher.ack(notify, "again").wait(), Err(Error::Watch(WatchError::NoSuchNotify))));
        told.join().expect("no panic").expect("answered")
    });
    assert_eq!(told.acked.iter().map(|(_, reply)| &reply[..]).collect::<Vec<_>>(), [b"thanks"]);
    assert!(told.missed.is_empty());

    let told = other.notify("a", "unheard", Duration::from_millis(100)).wait().expect("answered");
    assert_eq!((told.acked.len(), told.missed.len()), (0, 1));
    assert!(matches!(watcher.next().wait().expect("heard"), WatchEvent::Notify { .. }));
    assert!(matches!(watcher.next().wait().expect("heard"), WatchEvent::Lost { .. }));
    assert!(matches!(watcher.next().wait(), Err(Error::Watch(WatchError::NoSuchWatch))));
    // A watcher that is dropped is nobody's to wait for.
    drop(pool.watch("a", Duration::from_secs(10)).wait().expect("watched"));
    let begun = Instant::now();
    while other.notify("a", "gone", Duration::from_millis(10)).wait().expect("answered") != Notified::default() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the watch of a dropped watcher stays");
    }
}
