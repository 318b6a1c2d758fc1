//! A transaction can be refused when it is submitted; an accepted one never fails the store.
//! Devices here are small, full or fragmented, and transactions are larger than the log, or need
//! more space than their size.

use crate::rig::*;
use bytes::Bytes;
use nacre_store::*;

fn omap_length(rig: &mut Rig, object: &ObjectKey) -> usize {
    let (mut from, mut length) = (std::ops::Bound::Unbounded, 0);
    loop {
        let read = Read::Omap {
            object: object.clone(),
            from,
            to: None,
            limit_entries: 5000,
            limit_bytes: 1 << 20,
        };
        match rig.ask(read) {
            Ok(ReadReply::Omap { entries, more }) => {
                length += entries.len();
                match entries.last() {
                    Some((last, _)) if more => from = std::ops::Bound::Excluded(last.clone()),
                    _ => return length,
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// An object with an omap of `count` entries of some 150 bytes.
fn with_omap(rig: &mut Rig, object: &ObjectKey, count: u64, token: &mut u64) {
    for from in (0..count).step_by(500) {
        let entry = |n: u64| {
            (
                Bytes::from(format!("key-{n:08}")),
                Bytes::from(vec![n as u8; 120]),
            )
        };
        let entries = (from..count.min(from + 500)).map(entry).collect();
        *token += 1;
        rig.must(
            Transaction::new().op(Op::OmapSet {
                object: object.clone(),
                entries,
            }),
            *token,
        );
    }
    rig.settle();
}

/// F12: 4,000 single bytes carry 100 KB and change 16 MiB of blocks. The store chose the log for
/// them by their size, and stopped because its log of 1 MiB cannot hold 16.
#[test]
fn scattered_bytes_are_counted_as_the_blocks_they_change() {
    let mut rig = Rig::open(Rig::format(96 << 20), &options(), 1);
    rig.must(Transaction::new().create_collection(C), 0);
    rig.must(Transaction::new().write(key("a"), 0, vec![1; 16 << 20]), 1);
    rig.settle();
    let mut t = Transaction::new();
    for n in 0..4000_u64 {
        t = t.write(key("a"), n * 4096 + 7, vec![2; 1]);
    }
    rig.must(t, 2);
    rig.settle();
    let mut rig = reopen(rig, &options());
    let data = rig.data(&key("a")).expect("readable");
    assert!((0..4000).all(|n| data[n * 4096 + 7] == 2 && data[n * 4096 + 8] == 1));
}

/// F11: four metadata transactions of 455 KB, the size that monitors make by default.
#[test]
fn large_values_fit_the_index_of_a_nearly_empty_store() {
    for (length, size, count) in [
        (256 << 20, 455_000, 4),
        (128 << 20, 1_000_000, 10),
        (64 << 20, 1_000_000, 20),
    ] {
        let device = nacre_store::testing::TestDevice::new(length);
        format(&device.blocking(), &FormatOptions::default()).expect("a healthy device");
        let mut rig = Rig::open(device, &OpenOptions::default(), 1);
        rig.must(Transaction::new().create_collection(C), 0);
        rig.settle();
        let mut token = 0;
        for round in 0..6_u8 {
            for n in 0..count {
                token += 1;
                rig.must(
                    Transaction::new().omap_set(key("meta"), format!("{n}"), vec![round; size]),
                    token,
                );
            }
            rig.settle();
            rig = reopen(rig, &OpenOptions::default());
            (rig.applied, rig.committed) = (token, token);
        }
        assert_eq!(omap_length(&mut rig, &key("meta")), count as usize);
    }
}

/// F13: every second block is free, so no contiguous chunk of the index is: the store reported
/// full, and in worse cases did not open.
#[test]
fn a_fragmented_store_takes_data_and_opens() {
    let mut rig = Rig::open(Rig::format(32 << 20), &options(), 3);
    rig.must(Transaction::new().create_collection(C), 0);
    let mut token = 0;
    let mut count = 0;
    while rig.store.usage().free > 3 << 20 {
        (count, token) = (count + 1, token + 1);
        rig.must(
            Transaction::new().write(key(format!("f{count}")), 0, vec![1; 1 << 20]),
            token,
        );
        rig.settle();
    }
    for n in 1..=count {
        let holes = (0..128).fold(Transaction::new(), |t, at| {
            t.zero(key(format!("f{n}")), at * 8192, 4096)
        });
        token += 1;
        rig.must(holes, token);
        rig.settle();
    }
    // Data takes every remaining contiguous chunk: what is left are single blocks.
    let (mut scattered, mut before) = (0, u64::MAX);
    for life in 0..4 {
        rig = reopen(rig, &options());
        let free = rig.store.usage().free;
        // The index gives chunks back when the end of its file is free, which may be in the next
        // life.
        let most = free.max(std::mem::replace(&mut before, free));
        assert!(most > 9 << 20 && free > 5 << 20, "life {life}: {free} free");
        let (mut taken, mut token) = (0_u64, 0);
        while taken * 3000 < free / 3 {
            (taken, token) = (taken + 1, token + 1);
            rig.must(
                Transaction::new().set_attr(key(format!("g{life}-{taken}")), "a", vec![3; 3000]),
                token,
            );
        }
        token += 1;
        rig.must(
            Transaction::new().write(key("large"), 0, vec![life as u8; 1_000_000]),
            token,
        );
        rig.settle();
        scattered += rig.store.usage().borders.scattered_chunks;
        rig = reopen(rig, &options());
        assert_eq!(rig.data(&key("large")), Ok(vec![life as u8; 1_000_000]));
        for n in 1..=taken {
            rig.must(Transaction::new().remove(key(format!("g{life}-{n}"))), n);
        }
        rig.settle();
    }
    assert!(scattered > 0, "the index has chunks in pieces");
}

/// F10: one write after a snapshot cloned an omap larger than the log, and every replica stopped.
#[test]
fn an_omap_larger_than_the_log_is_cloned_and_removed() {
    let mut rig = Rig::open(Rig::format(64 << 20), &options(), 1);
    rig.must(Transaction::new().create_collection(C), 0);
    let mut token = 0;
    with_omap(&mut rig, &key("a"), 20_000, &mut token);
    let before = rig.store.usage().used;
    token += 1;
    rig.must(
        Transaction::new()
            .clone_object(key("a"), key("b"))
            .write(key("a"), 0, "12345"),
        token,
    );
    token += 1;
    rig.must(
        Transaction::new()
            .omap_remove(key("a"), "key-00000001")
            .omap_set(key("a"), "z", "new"),
        token,
    );
    rig.settle();
    let mut rig = reopen(rig, &options());
    assert_eq!(omap_length(&mut rig, &key("b")), 20_000);
    assert_eq!(omap_length(&mut rig, &key("a")), 20_000);
    let get = |rig: &mut Rig, name: &'static str| match rig.ask(Read::OmapGet {
        object: key(name),
        keys: vec!["key-00000001".into()],
    }) {
        Ok(ReadReply::Omap { entries, .. }) => entries.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!((get(&mut rig, "a"), get(&mut rig, "b")), (0, 1));
    rig.must(
        Transaction::new()
            .omap_remove_range(key("b"), "key-00000010", None)
            .remove(key("a")),
        0,
    );
    rig.settle();
    assert_eq!(omap_length(&mut rig, &key("b")), 10);
    let mut rig = reopen(rig, &options());
    assert_eq!(omap_length(&mut rig, &key("b")), 10);
    rig.must(Transaction::new().remove(key("b")), 0);
    rig.settle();
    let mut rig = reopen(rig, &options());
    rig.settle();
    assert!(
        rig.store.usage().used <= before,
        "{before} {:?}",
        rig.store.usage()
    );
}

/// A large omap is copied in slices, and each counts as a transaction before the one that clones.
/// The cloning one was to be committed when it was the last, and its own slices moved it behind
/// that. A host asks once for a commit and waits for it: it must come.
#[test]
fn one_request_commits_a_clone_in_slices() {
    let options = OpenOptions {
        memtable_bytes: 1 << 20,
        clone_slice_bytes: 500,
        ..options()
    };
    let mut rig = Rig::open(Rig::format(32 << 20), &options, 1);
    rig.must(Transaction::new().create_collection(C), 0);
    with_omap(&mut rig, &key("a"), 60, &mut 0);
    // Entries that only memory has are not copied in slices.
    let mut rig = reopen(rig, &options);
    rig.must(Transaction::new().clone_object(key("a"), key("b")), 1);
    rig.store.request_commit();
    for _ in 0..10_000 {
        rig.turn();
    }
    assert!(
        rig.store.usage().borders.clone_slices > 3,
        "{:?}",
        rig.store.usage()
    );
    assert_eq!((rig.applied, rig.committed), (1, 1), "no second request");
    assert_eq!(omap_length(&mut rig, &key("b")), 60);
}

/// One transaction may remove or clone objects whose records exceed the log.
#[test]
fn records_larger_than_the_log_are_taken() {
    let mut rig = Rig::open(Rig::format(64 << 20), &options(), 1);
    rig.must(Transaction::new().create_collection(C), 0);
    for n in 0..50 {
        let t = (0..6).fold(Transaction::new(), |t, a| {
            t.set_attr(key(format!("{n}")), format!("a{a}"), vec![7; 10_000])
        });
        rig.must(t, n + 1);
    }
    rig.settle();
    // Each head is 60 KB, and a small change to it logs all of it.
    let t = (0..50).fold(Transaction::new(), |t, n| {
        t.set_attr(key(format!("{n}")), "b", "x")
    });
    rig.must(t.write(key("data"), 0, vec![5; 5000]), 51);
    rig.must(Transaction::new().touch(key("after")), 52);
    rig.settle();
    let mut rig = reopen(rig, &options());
    for n in 0..50 {
        match rig.ask(Read::Stat(key(format!("{n}")))) {
            Ok(ReadReply::Stat(Some(stat))) => assert_eq!(stat.attrs.len(), 7),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(rig.data(&key("data")), Ok(vec![5; 5000]));
    assert!(matches!(
        rig.ask(Read::Stat(key("after"))),
        Ok(ReadReply::Stat(Some(_)))
    ));
}

/// F38: removing a large omap was one checkpoint of as many transactions of the index as necessary;
/// the log was not truncated meanwhile, and all clients waited. Now each checkpoint removes a
/// slice, and other transactions continue.
#[test]
fn a_large_omap_is_removed_in_slices() {
    let options = OpenOptions {
        removals_max: 200,
        ..options()
    };
    let mut rig = Rig::open(Rig::format(64 << 20), &options, 1);
    rig.must(Transaction::new().create_collection(C), 0);
    let mut token = 0;
    with_omap(&mut rig, &key("a"), 10_000, &mut token);
    with_omap(&mut rig, &key("b"), 3_000, &mut token);
    with_omap(&mut rig, &key("c"), 3_000, &mut token);
    let before = rig.store.usage().checkpoints;
    let t = Transaction::new().remove(key("a")).omap_clear(key("b"));
    rig.must(
        t.omap_remove_range(key("c"), "key-00000100", Some("key-00002900".into())),
        token + 1,
    );
    token += 1;
    // Removed entries are gone at once, although the index still has them, and can be set again.
    rig.must(
        Transaction::new()
            .omap_set(key("a"), "new", "1")
            .omap_set(key("c"), "key-00000500", "2"),
        token + 1,
    );
    token += 1;
    rig.store.request_commit();
    for _ in 0..3 {
        rig.turn();
        assert_eq!(omap_length(&mut rig, &key("a")), 1);
        assert_eq!(omap_length(&mut rig, &key("b")), 0);
        assert_eq!(omap_length(&mut rig, &key("c")), 201);
    }
    // Other transactions are committed while it continues.
    for n in 0..40 {
        token += 1;
        rig.must(
            Transaction::new().write(key(format!("other-{n}")), 0, vec![n as u8; 5000]),
            token,
        );
        for _ in 0..1000 {
            if rig.committed == token {
                break;
            }
            rig.store.request_commit();
            rig.turn();
        }
        assert_eq!(rig.committed, token);
    }
    // Crashes in the middle, several times.
    for life in 0..4 {
        let device = rig.device.clone();
        drop(rig);
        rig = Rig::open(device, &options, life);
        assert_eq!(omap_length(&mut rig, &key("a")), 1);
        assert_eq!(omap_length(&mut rig, &key("b")), 0);
        assert_eq!(omap_length(&mut rig, &key("c")), 201);
        rig.turn();
    }
    rig.must(Transaction::new().omap_set(key("b"), "new", "3"), 0);
    rig.settle();
    assert_eq!(omap_length(&mut rig, &key("b")), 1);
    assert!(
        rig.store.usage().checkpoints > 3,
        "{before} {:?}",
        rig.store.usage()
    );
    let device = rig.device.clone();
    drop(rig);
    assert_sound(&device);
    let report = check(&device.blocking(), CheckOptions::default()).expect("readable");
    assert_eq!(report.omap_entries, 203);
}

/// F54: deleted space is discarded, and nothing is written there meanwhile. A host that does not
/// reclaim it does not prevent its reuse.
#[test]
fn freed_space_goes_back_to_the_host() {
    for refused in [false, true] {
        give_back(refused);
    }
}

fn give_back(refused: bool) {
    let options = OpenOptions {
        discard_bytes_min: 16 << 10,
        discard_bytes_max: 256 << 10,
        ..options()
    };
    let mut rig = Rig::open(Rig::format(32 << 20), &options, 1).shuffled(3);
    rig.must(Transaction::new().create_collection(C), 0);
    for n in 1..=20 {
        rig.must(
            Transaction::new().write(key(format!("o{n}")), 0, vec![n as u8; 700_000]),
            n,
        );
    }
    rig.settle();
    assert_eq!(rig.device.discarded(), 0);
    if refused {
        rig.device.keep_space();
    }
    let full = rig.store.usage();
    for n in 1..=20 {
        rig.must(Transaction::new().remove(key(format!("o{n}"))), 20 + n);
    }
    rig.settle();
    rig.must(Transaction::new().touch(key("last")), 41);
    rig.settle();
    rig.store.rest();
    for n in 42..300 {
        // Enough for a checkpoint, and writes into freed space.
        rig.must(
            Transaction::new()
                .set_attr(key("x"), "a", vec![n as u8; 2000])
                .write(key("y"), n * 4096, vec![n as u8; 14_000]),
            n,
        );
        rig.store.request_commit();
        rig.turn();
    }
    rig.settle();
    let usage = rig.store.usage();
    assert_eq!(
        rig.device.discarded(),
        if refused { 0 } else { usage.discarded_bytes }
    );
    assert!(usage.discarded_bytes > 9 << 20, "{usage:?}");
    assert!(usage.used < full.used / 2, "{usage:?}");
    assert_eq!(
        rig.data(&key("y")).expect("readable")[299 * 4096],
        299_u64 as u8
    );
    // Discarded space is not discarded again and again.
    for n in 300..350 {
        if n == 320 {
            // Everything freed before is in a checkpoint.
            rig.settle();
        }
        let before = rig.store.usage();
        rig.must(
            Transaction::new().set_attr(key(format!("x{n}")), "a", vec![n as u8; 2000]),
            n,
        );
        rig.settle();
        assert!(
            n <= 320 || rig.store.usage().discarded_bytes == before.discarded_bytes,
            "nothing was freed"
        );
    }
    assert!(rig.store.usage().checkpoints > usage.checkpoints + 1);
    drop(reopen(rig, &options));
}

/// A primary asks for the space of a clone before it orders one: an ordered update cannot be
/// refused any more. The answer covers the space that the store takes for it, wherever the omap is
/// (memory, index, both), and at least as many bytes remain as computed.
#[test]
fn what_a_clone_takes_is_known_before() {
    let mut rig = Rig::open(Rig::format(96 << 20), &options(), 1).shuffled(5);
    rig.must(Transaction::new().create_collection(C), 0);
    let mut token = 0;
    let weight = |rig: &mut Rig, name: &str| match rig.ask(Read::Weight(key(name))) {
        Ok(ReadReply::Weight(bytes)) => bytes,
        other => panic!("{other:?}"),
    };
    assert_eq!(weight(&mut rig, "absent"), 0);
    let sizes = [("none", 0), ("small", 10), ("large", 4000)];
    for (name, count) in sizes {
        with_omap(&mut rig, &key(name), count, &mut token);
        token += 1;
        rig.must(
            Transaction::new().write(key(name), 5 << 20, vec![1; 1 << 20]),
            token,
        );
    }
    for round in 0..3 {
        for (name, count) in sizes {
            // The newest entries are in memory, those of earlier rounds in the index.
            token += 1;
            rig.must(
                Transaction::new().omap_set(key(name), format!("new-{round}"), vec![3; 900]),
                token,
            );
            let bytes = weight(&mut rig, name);
            assert!(
                bytes > count * 120 && bytes < 100_000 + 4 * count * 200,
                "{name}: {bytes}"
            );
            rig.settle();
            let before = rig.store.usage().free;
            token += 1;
            rig.must(
                Transaction::new().clone_object(key(name), key(format!("{name}-{round}"))),
                token,
            );
            rig.settle();
            let taken = before.saturating_sub(rig.store.usage().free);
            // In addition to the fixed cost of every transaction, for which updates have 16 KiB.
            assert!(
                taken <= bytes + (16 << 10),
                "{name}: {taken} bytes were taken, {bytes} were said"
            );
        }
        rig = reopen(rig, &options()).shuffled(round);
        (rig.applied, rig.committed) = (token, token);
    }
}

/// (Planted by a reviewer.) An OSD orders updates up to the maximum object size: a store that
/// refused them would stop every replica.
#[test]
fn an_object_may_be_as_large_as_it_is_said() {
    let max = nacre_store::api::OBJECT_SIZE_MAX;
    let mut rig = Rig::fresh(1);
    let all = Transaction::new()
        .truncate(key("a"), max)
        .write(key("b"), max - 1, vec![1; 1])
        .zero(key("c"), 0, max);
    rig.must(all, 1);
    rig.settle();
    for name in ["a", "b", "c"] {
        let stat = rig.ask(Read::Stat(key(name)));
        assert!(
            matches!(&stat, Ok(ReadReply::Stat(Some(stat))) if stat.size == max),
            "{name}: {stat:?}"
        );
    }
    let more = rig
        .store
        .submit(Transaction::new().truncate(key("a"), max + 1), Token(2));
    assert!(
        matches!(more, Err(SubmitError::OutOfRange { .. })),
        "{more:?}"
    );
}

/// (Planted by a reviewer.) The numbers of some thousand objects' omaps are remembered: beyond
/// that, an object that was created again kept its old number, and entries written to its omap were
/// lost.
#[test]
fn numbers_of_omaps_are_right_beyond_those_that_are_remembered() {
    const OBJECTS: u64 = 4_200;
    let mut rig = Rig::open(Rig::format(64 << 20), &options(), 1);
    rig.must(Transaction::new().create_collection(C), 0);
    for first in (0..OBJECTS).step_by(100) {
        let set = |t: Transaction, n| t.omap_set(key(format!("o{n}")), "k", "old");
        rig.must(
            (first..first + 100).fold(Transaction::new(), set),
            first / 100 + 1,
        );
    }
    let next = OBJECTS / 100 + 1;
    for (number, object) in (next..).step_by(2).zip(["o1", "o4199"].map(key)) {
        rig.must(
            Transaction::new()
                .remove(object.clone())
                .omap_set(object.clone(), "k", "new"),
            number,
        );
        rig.must(
            Transaction::new().omap_set(object.clone(), "k2", "x"),
            number + 1,
        );
        assert_eq!(omap_length(&mut rig, &object), 2);
    }
    rig.settle();
    let mut rig = reopen(rig, &options());
    assert_eq!(
        ["o0", "o1", "o4199"].map(|name| omap_length(&mut rig, &key(name))),
        [1, 2, 2]
    );
}
