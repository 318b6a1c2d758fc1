//! Work and space: writes once, sharing, savings, caching.

use crate::rig::*;
use nacre_store::*;

/// CEPH-57: writes superseded before they are written back never are.
#[test]
fn overwrites_are_written_back_once() {
    let usage = usage_of_overwrites(&in_place());
    assert!(usage.blocks_cancelled > 800, "{usage:?}");
    assert!(usage.blocks_written_back + usage.blocks_cancelled <= 1000);
    assert_eq!(usage.payload_bytes_copied, 0);
}

/// A thousand writes of a block to ten objects.
fn usage_of_overwrites(options: &OpenOptions) -> Usage {
    let mut rig = Rig::open(Rig::format(16 << 20), options, 1);
    rig.must(Transaction::new().create_collection(C), 0);
    for number in 1..=1000 {
        let object = key(format!("o{}", number % 10));
        rig.must(
            Transaction::new().write(object, 0, vec![number as u8; 4096]),
            number,
        );
        rig.store.request_commit();
        rig.turn();
    }
    rig.settle();
    rig.store.usage()
}

/// Whole blocks of small objects are written once, with only their records in the log, and their
/// old units are reused: old contents are not spread over the device.
#[test]
fn whole_blocks_of_small_objects_are_written_once() {
    let usage = usage_of_overwrites(&options());
    assert_eq!(
        (
            usage.beside_bytes,
            usage.blocks_written_back,
            usage.blocks_cancelled
        ),
        (1000 * 4096, 0, 0)
    );
    assert!(
        usage.wal_bytes <= (usage.wal_groups + 1) * 4096,
        "{usage:?}"
    );
}

#[test]
fn payload_is_written_once_and_never_copied() {
    let mut rig = Rig::fresh(1);
    let before = rig.store.usage();
    for number in 1..=20 {
        rig.must(
            Transaction::new().write(key(format!("o{number}")), 0, vec![number as u8; 200_000]),
            number,
        );
    }
    rig.settle();
    let usage = rig.store.usage();
    assert_eq!(usage.beside_bytes, 20 * 200_000_u64.next_multiple_of(4096));
    assert_eq!(usage.payload_bytes_copied, 0);
    assert!(
        usage.wal_bytes - before.wal_bytes < 200_000,
        "the log only refers to large writes: {usage:?}"
    );
}

#[test]
fn clones_share_space_until_they_differ() {
    let mut rig = Rig::fresh(1);
    rig.must(Transaction::new().write(key("a"), 0, vec![7; 1 << 20]), 1);
    rig.settle();
    let one = rig.store.usage().used;
    for number in 2..=20 {
        rig.must(
            Transaction::new().clone_object(key("a"), key(format!("c{number}"))),
            number,
        );
    }
    rig.settle();
    let cloned = rig.store.usage().used;
    assert!(
        cloned - one < 256 << 10,
        "19 clones of 1 MiB took {}",
        cloned - one
    );
    rig.must(
        Transaction::new()
            .write(key("c2"), 8192, vec![1; 4096])
            .remove(key("a")),
        21,
    );
    let mut want = vec![7; 1 << 20];
    assert_eq!(rig.data(&key("c3")), Ok(want.clone()));
    want[8192..12288].fill(1);
    assert_eq!(rig.data(&key("c2")), Ok(want));
    for number in 2..=20 {
        rig.must(
            Transaction::new().remove(key(format!("c{number}"))),
            20 + number,
        );
    }
    rig.settle();
    assert!(rig.store.usage().used < one, "all space came back");
    let device = rig.device.clone();
    drop(rig);
    assert_sound(&device);
}

/// Log entries (omap entries set and trimmed again) never reach the index one by one.
#[test]
fn a_trimmed_log_stays_out_of_the_index() {
    let mut rig = Rig::fresh(1);
    let warm = rig.store.usage();
    for number in 1..=2000_u64 {
        let entry = |n: u64| n.to_be_bytes().to_vec();
        let t = Transaction::new().omap_set(key("pglog"), entry(number), vec![1; 100]);
        let t = t.omap_remove_range(
            key("pglog"),
            entry(0),
            Some(entry(number.saturating_sub(20)).into()),
        );
        rig.must(t, number);
        rig.store.request_commit();
        rig.turn();
    }
    rig.settle();
    let usage = rig.store.usage();
    assert!(usage.index_misses - warm.index_misses < 5, "{usage:?}");
    let device = rig.device.clone();
    drop(rig);
    let report = check(&device.blocking(), CheckOptions::default()).expect("readable");
    assert!(report.is_clean() && report.omap_entries == 21, "{report:?}");
}

/// A warm object needs no job, neither to read nor to overwrite.
#[test]
fn warm_objects_need_no_jobs() {
    let device = Rig::format(64 << 20);
    let mut rig = Rig::open(device.clone(), &OpenOptions::default(), 1);
    rig.must(Transaction::new().create_collection(C), 0);
    for number in 1..=5000 {
        rig.must(
            Transaction::new().write(key(format!("o{number}")), 0, vec![number as u8; 4096]),
            number,
        );
    }
    rig.settle();
    drop(rig);
    let mut rig = Rig::open(device, &OpenOptions::default(), 1);
    for number in 1..=5000_u64 {
        assert_eq!(
            rig.data(&key(format!("o{number}"))),
            Ok(vec![number as u8; 4096])
        );
    }
    let warm = rig.store.usage();
    let mut rng = Rng::new(1);
    for number in 1..=5000 {
        let object = key(format!("o{}", 1 + rng.below(5000)));
        let t = Transaction::new()
            .write(object.clone(), 0, vec![3; 4096])
            .set_attr(object.clone(), "_", "version");
        rig.must(t, number);
        rig.store.request_commit();
        assert!(rig.data(&object).is_ok());
    }
    assert_eq!(rig.store.usage().index_misses, warm.index_misses);
}

/// A lookup that began before a checkpoint and returns after it must not bring back a value that
/// memory has dropped.
#[test]
fn a_late_lookup_does_not_bring_back_the_past() {
    let mut rig = Rig::fresh(1);
    rig.must(Transaction::new().omap_set(key("a"), "k", "old"), 1);
    rig.settle();
    let device = rig.device.clone();
    drop(rig);
    let mut rig = Rig::open(device, &options(), 1);
    let get = || Read::OmapGet {
        object: key("a"),
        keys: vec!["k".into()],
    };
    assert!(rig.ask(Read::Stat(key("a"))).is_ok());
    rig.store.read(get(), Token(7));
    let mut jobs = Vec::new();
    rig.store.jobs(&mut jobs);
    assert_eq!((jobs.len(), jobs[0].name()), (1, "lookup"));
    let late = jobs.remove(0).run();
    rig.keeps_job = true;
    rig.must(Transaction::new().omap_set(key("a"), "k", "new"), 2);
    // Enough for several checkpoints.
    for number in 3..200 {
        rig.must(
            Transaction::new()
                .set_attr(key("b"), "x", vec![1; 2000])
                .touch(key(format!("{number}"))),
            number,
        );
        rig.store.request_commit();
        rig.turn();
    }
    rig.settle();
    assert!(rig.store.usage().checkpoints > 0);
    rig.store.on_job(late);
    assert_eq!(
        rig.ask(get()),
        Ok(ReadReply::Omap {
            entries: vec![("k".into(), "new".into())],
            more: false
        })
    );
}

/// The area for small pieces keeps its space. When the objects are deleted nearly all of it is
/// returned to the host.
#[test]
fn room_of_small_objects_that_are_gone_goes_back_to_the_host() {
    const OBJECTS: u64 = 10_000;
    let mut rig = Rig::open(
        Rig::format(128 << 20),
        &OpenOptions {
            discard_bytes_min: 4096,
            ..options()
        },
        1,
    );
    rig.must(Transaction::new().create_collection(C), 0);
    let mut token = 0;
    let mut all = |rig: &mut Rig, one: &dyn Fn(Transaction, ObjectKey) -> Transaction| {
        for first in (0..OBJECTS).step_by(100) {
            token += 1;
            let some = (first..first + 100).map(|n| key(format!("o{n}")));
            rig.must(some.fold(Transaction::new(), one), token);
            rig.settle();
        }
    };
    for round in 0..3 {
        all(&mut rig, &|t, object| t.write(object, 0, vec![round; 4096]));
    }
    assert_eq!(
        rig.store.usage().discarded_bytes,
        0,
        "what is free there is used again"
    );
    all(&mut rig, &|t, object| t.remove(object));
    for n in 0..40 {
        rig.must(
            Transaction::new().set_attr(key("last"), "a", vec![n; 3000]),
            4 * OBJECTS / 100 + 1 + u64::from(n),
        );
        rig.settle();
    }
    let usage = rig.store.usage();
    assert!(usage.discarded_bytes > OBJECTS * 4096 / 4 * 3, "{usage:?}");
}

/// A lone writer waits for one write: the block is in the log. Writes of more than four blocks, and
/// concurrent writes, are not.
#[test]
fn a_lone_writers_block_goes_through_the_log() {
    let options = OpenOptions {
        beside_group_min: 3,
        deferred_write_max: 64 << 10,
        ..options()
    };
    let mut rig = Rig::open(Rig::format(16 << 20), &options, 1);
    rig.must(Transaction::new().create_collection(C), 0);
    let mut token = 0;
    let mut beside = |rig: &mut Rig, writers: u64, blocks: usize| {
        let before = rig.store.usage().beside_bytes;
        for n in 0..writers {
            token += 1;
            rig.must(
                Transaction::new().write(key(format!("o{n}")), 0, vec![token as u8; blocks * 4096]),
                token,
            );
        }
        rig.settle();
        (rig.store.usage().beside_bytes - before) / 4096
    };
    // So that none must be looked up.
    beside(&mut rig, 10, 1);
    beside(&mut rig, 1, 1);
    assert_eq!(beside(&mut rig, 1, 4), 0);
    assert_eq!(beside(&mut rig, 1, 5), 5);
    assert_eq!(
        beside(&mut rig, 10, 1),
        7,
        "of a first group of many three are not known to be"
    );
    assert_eq!(beside(&mut rig, 10, 1), 10);
    assert_eq!(beside(&mut rig, 1, 1), 1, "the last of many");
    assert_eq!(beside(&mut rig, 1, 1), 0);
}

/// (Planted by a reviewer: nothing was written.) When the store is idle, blocks are written to
/// their place, and free the memory that they hold.
#[test]
fn at_rest_blocks_are_written_back() {
    let options = OpenOptions {
        deferred_bytes: 1 << 20,
        memtable_bytes: 1 << 20,
        ..in_place()
    };
    let mut rig = Rig::open(Rig::format(16 << 20), &options, 1);
    rig.must(Transaction::new().create_collection(C), 0);
    for n in 1..=80 {
        rig.must(
            Transaction::new().write(key(format!("o{}", n % 40)), 0, vec![n as u8; 4096]),
            n,
        );
    }
    rig.settle();
    let before = rig.store.usage();
    assert_eq!(before.blocks_written_back, 0);
    rig.store.rest();
    rig.settle();
    let usage = rig.store.usage();
    assert_eq!(
        (usage.blocks_written_back, usage.checkpoints),
        (40, before.checkpoints)
    );
}
