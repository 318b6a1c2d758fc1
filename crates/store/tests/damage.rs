//! Bit rot, bad sectors, failing devices, wrong disks: a precise error each time, never wrong data.

use crate::rig::*;
use nacre_store::testing::{Image, TestDevice};
use nacre_store::*;
use nacre_types::{ClusterId, OsdId};

const LENGTH: u64 = 16 << 20;

/// The offsets of `pattern` on the device.
fn find(image: &Image, pattern: &[u8]) -> Vec<u64> {
    let mut bytes = vec![0; LENGTH as usize];
    image.read(0, &mut bytes);
    let starts = (0..bytes.len() - pattern.len()).filter(|&at| bytes[at] == pattern[0]);
    starts
        .filter(|&at| bytes[at..].starts_with(pattern))
        .map(|at| at as u64)
        .collect()
}

fn open(device: &TestDevice, options: &OpenOptions) -> Result<Store<TestDevice>, OpenError> {
    Store::open(device.clone(), device.blocking(), options)
}

fn findings(device: &TestDevice) -> Vec<Finding> {
    check(&device.blocking(), CheckOptions { data: true })
        .expect("readable")
        .findings
}

#[test]
fn rotten_data_is_an_error_until_the_block_is_written_whole() {
    let mut rig = Rig::fresh(1);
    let block = |seed: u64| {
        (0..4096)
            .map(|i| ((i * seed) >> 3) as u8)
            .collect::<Vec<u8>>()
    };
    let content = [block(77), block(91), block(113), block(41), block(55)].concat();
    rig.must(Transaction::new().write(key("a"), 0, content.clone()), 1);
    rig.must(Transaction::new().clone_object(key("a"), key("clone")), 2);
    rig.settle();
    let at = find(&rig.device.live(), &content[4096..8192]);
    assert_eq!(
        at.len(),
        1,
        "a large write is on the device once, and a clone shares it"
    );
    rig.device.rot(at[0] + 100, 0x10);
    for name in ["a", "clone"] {
        match rig.data(&key(name)) {
            Err(ReadError::Corrupt {
                offset: 4096,
                expected,
                found,
            }) => assert_ne!(expected, found),
            other => panic!("{other:?}"),
        }
        let read = Read::Data {
            object: key(name),
            offset: 8192,
            length: 1 << 20,
        };
        assert!(rig.ask(read).is_ok(), "the other blocks are sound");
        let read = Read::Data {
            object: key(name),
            offset: 4000,
            length: 97,
        };
        assert!(
            rig.ask(read).is_err(),
            "one byte of a rotten block is as bad as all"
        );
    }
    let finding = |name: &'static str| Finding::Data {
        collection: C,
        key: name.into(),
        offset: 4096,
    };
    assert_eq!(findings(&rig.device), [finding("a"), finding("clone")]);

    // Overwriting a part cannot repair the rest, and the owner is informed before it may read.
    rig.must(
        Transaction::new()
            .write(key("b"), 3, vec![2; 5])
            .write(key("a"), 5000, vec![9; 10]),
        3,
    );
    rig.settle();
    assert_eq!(rig.lost, [(3, key("a"))]);
    assert!(matches!(
        rig.data(&key("a")),
        Err(ReadError::Corrupt { offset: 4096, .. })
    ));
    assert_eq!(rig.store.usage().blocks_poisoned, 1);
    let device = rig.device.clone();
    drop(rig);
    let mut rig = Rig::open(device, &options(), 1);
    assert!(
        matches!(
            rig.data(&key("a")),
            Err(ReadError::Corrupt { offset: 4096, .. })
        ),
        "nor can a restart"
    );
    // Cloning a range clones the loss.
    let copy = Op::CloneRange {
        from: key("a"),
        to: key("part"),
        offset: 4090,
        length: 20,
        to_offset: 3,
    };
    rig.must(Transaction::new().op(copy), 4);
    assert!(matches!(
        rig.data(&key("part")),
        Err(ReadError::Corrupt { .. })
    ));
    assert_eq!(rig.lost, [(4, key("part"))]);

    rig.must(
        Transaction::new()
            .write(key("a"), 4096, content[4096..8192].to_vec())
            .remove(key("part")),
        5,
    );
    rig.must(Transaction::new().remove(key("clone")), 6);
    assert_eq!(rig.data(&key("a")), Ok(content));
    rig.settle();
    let device = rig.device.clone();
    drop(rig);
    assert_sound(&device);
}

#[test]
fn an_unreadable_sector_is_an_error_of_its_block_only() {
    let mut rig = Rig::fresh(1);
    let content: Vec<u8> = (0..20_480_u32)
        .map(|i| ((i * (i / 4096 + 3)) >> 4) as u8)
        .collect();
    rig.must(Transaction::new().write(key("a"), 0, content.clone()), 1);
    rig.settle();
    let at = find(&rig.device.live(), &content[8192..12288])[0];
    rig.device.make_unreadable(at);
    // The check reports it, too. (From a reviewer: it skipped blocks that it could not read.)
    let finding = Finding::Data {
        collection: C,
        key: "a".into(),
        offset: 8192,
    };
    assert_eq!(findings(&rig.device), [finding]);
    assert!(matches!(rig.data(&key("a")), Err(ReadError::Device { .. })));
    let read = Read::Data {
        object: key("a"),
        offset: 0,
        length: 8192,
    };
    assert!(rig.ask(read).is_ok());
    rig.must(Transaction::new().write(key("a"), 8200, vec![1; 8]), 2);
    rig.settle();
    let read = Read::Data {
        object: key("a"),
        offset: 8192,
        length: 10,
    };
    assert!(
        rig.ask(read).is_err(),
        "the rest of the block is still unknown"
    );
    assert_eq!(rig.lost, [(2, key("a"))]);
    // Overwriting a whole block, or blocks beside it, loses nothing.
    rig.must(
        Transaction::new()
            .write(key("a"), 8192, vec![3; 4096])
            .write(key("a"), 100, vec![1; 8]),
        3,
    );
    rig.settle();
    assert!(rig.data(&key("a")).is_ok() && rig.lost.len() == 1);
}

/// Parts of an unreadable block were overwritten, and its new content waited in memory to be
/// written to its place. The next partial overwrite took that content for intact: zeros were read
/// instead of the lost data.
#[test]
fn what_was_lost_stays_lost_when_its_block_is_overwritten_in_memory() {
    let mut rig = Rig::fresh(1);
    rig.must(Transaction::new().write(key("a"), 0, vec![1; 20_480]), 1);
    rig.settle();
    for at in rig.device.data_blocks(1 << 20) {
        rig.device.make_unreadable(at);
    }
    // One block by two transactions, another by one.
    rig.must(Transaction::new().write(key("a"), 5000, vec![2; 10]), 2);
    rig.must(Transaction::new().write(key("a"), 6000, vec![2; 10]), 3);
    rig.must(
        Transaction::new()
            .write(key("a"), 9000, vec![2; 10])
            .write(key("a"), 10_000, vec![2; 10]),
        4,
    );
    let still_lost = |rig: &mut Rig| {
        for offset in [4096, 8192] {
            let found = rig.ask(Read::Data {
                object: key("a"),
                offset,
                length: 10,
            });
            assert!(
                matches!(found, Err(ReadError::Corrupt { .. })),
                "at {offset}: {found:?}"
            );
        }
    };
    still_lost(&mut rig);
    assert_eq!(rig.lost, [(2, key("a")), (3, key("a")), (4, key("a"))]);
    // It is written to its place, where the disk can be read again now.
    rig.settle();
    rig.store.rest();
    rig.settle();
    still_lost(&mut rig);
    let device = rig.device.clone();
    drop(rig);
    still_lost(&mut Rig::open(device, &options(), 1));
}

#[test]
fn a_rotten_index_is_noticed_wherever_it_rots() {
    let mut rig = Rig::fresh(1);
    for number in 1..=200 {
        let t = Transaction::new().set_attr(
            key(format!("object-{number:03}")),
            "name",
            format!("value-{number:03}"),
        );
        rig.must(t, number);
        rig.settle();
    }
    let device = rig.device.clone();
    drop(rig);
    drop(Rig::open(device.clone(), &options(), 1)); // everything is in the index now
    let sound = device.live();
    let places = find(&sound, b"value-150");
    assert!(!places.is_empty());
    let mut noticed = 0;
    for at in places {
        let device = TestDevice::with_image(LENGTH, sound.clone());
        device.rot(at, 1);
        match findings(&device)[..] {
            [] => {} // an old page that no commit refers to
            [Finding::IndexBlock(_), ..] => {
                noticed += 1;
                // Whether the store opens depends on the position of the page; wrong data must
                // never be read.
                if let Ok(mut store) = open(&device, &options()) {
                    store.read(Read::Stat(key("object-150")), Token(1));
                    let (mut jobs, mut events) = (Vec::new(), Vec::new());
                    store.jobs(&mut jobs);
                    for job in jobs {
                        store.on_job(job.run());
                    }
                    store.poll(&mut events);
                    assert_eq!(
                        events,
                        [
                            Event::Read(Token(1), Err(ReadError::IndexCorrupt)),
                            Event::Failed(StoreFailure::IndexCorrupt)
                        ]
                    );
                }
            }
            ref other => panic!("{other:?}"),
        }
    }
    assert!(noticed >= 1);
}

#[test]
fn one_superblock_may_rot_but_not_both() {
    let rig = Rig::fresh(1);
    let device = rig.device.clone();
    drop(rig);
    let sound = device.live();
    for (slot, at) in [(0, 16), (0, 600), (1, 16), (1, 300), (0, 5000)] {
        let device = TestDevice::with_image(LENGTH, sound.clone());
        device.rot(slot * (128 << 10) + at, 0x40);
        if at < 4608 {
            assert_eq!(findings(&device), [Finding::RootCopy]);
        }
        open(&device, &options()).expect("the other copy serves");
    }
    // (Planted by a reviewer.) The page may also be unreadable.
    for bad in [&[0][..], &[128 << 10], &[0, 128 << 10]] {
        let device = TestDevice::with_image(LENGTH, sound.clone());
        bad.iter().for_each(|at| device.make_unreadable(*at));
        let failed = OpenError::Root(RootError::Device(DeviceError::Os(5)));
        assert_eq!(
            open(&device, &options()).err(),
            (bad.len() == 2).then_some(failed),
            "{bad:?}"
        );
    }
    let device = TestDevice::with_image(LENGTH, sound.clone());
    device.rot(20, 1);
    device.rot((128 << 10) + 20, 2);
    assert_eq!(
        open(&device, &options()).err(),
        Some(OpenError::Root(RootError::Damaged))
    );
    assert_eq!(findings(&device), [Finding::Root(RootError::Damaged)]);
    let empty = TestDevice::new(LENGTH);
    assert_eq!(
        open(&empty, &options()).err(),
        Some(OpenError::Root(RootError::NotAStore))
    );
    let short = TestDevice::with_image(LENGTH / 2, sound);
    let shrunk = RootError::Shrunk {
        was: LENGTH,
        is: LENGTH / 2,
    };
    assert_eq!(
        open(&short, &options()).err(),
        Some(OpenError::Root(shrunk))
    );
}

#[test]
fn a_rotten_log_is_not_taken_for_its_end() {
    let mut rig = Rig::fresh(1);
    for number in 1..=5 {
        rig.must(
            Transaction::new().set_attr(key("a"), "n", format!("log-value-{number}")),
            number,
        );
        rig.settle();
    }
    let live = rig.device.live();
    let at = find(&live, b"log-value-3")[0];
    let device = TestDevice::with_image(LENGTH, live);
    device.rot(at, 1);
    match open(&device, &options()).err() {
        Some(OpenError::LogDamaged { at: found }) => assert_eq!(found / 4096, at / 4096),
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        findings(&device)[..],
        [Finding::Open(OpenError::LogDamaged { .. })]
    ));
}

/// CRC32C a bit at a time, to make superblocks of the future.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 {
                crc >> 1 ^ 0x82f6_3b78
            } else {
                crc >> 1
            }
        })
    })
}

/// Computes a superblock's checksum.
fn seal(bytes: &mut [u8]) {
    let covered = u32::from_le_bytes(bytes[112..116].try_into().expect("four bytes")) as usize;
    bytes[12..16].fill(0);
    let crc = crc32c(&bytes[..covered]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
}

/// F6: a newer release wrote the superblock last, or continued the log. The older copy of the
/// superblock must not win, and the group must not count as the log's end: everything acknowledged
/// since would silently be lost.
#[test]
fn what_a_newer_release_wrote_is_refused() {
    let mut rig = Rig::fresh(1);
    for number in 1..=3 {
        rig.must(
            Transaction::new().set_attr(key("a"), "n", vec![number as u8]),
            number,
        );
        rig.settle();
    }
    let live = rig.device.live();
    drop(rig);
    for slot in [0, 128 << 10] {
        let mut image = live.clone();
        let mut bytes = vec![0; 128 << 10];
        image.read(slot, &mut bytes);
        bytes[8] = 4;
        let sequence = u64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes")) + 1;
        bytes[16..24].copy_from_slice(&sequence.to_le_bytes());
        seal(&mut bytes);
        image.write(slot, &bytes);
        let device = TestDevice::with_image(LENGTH, image.clone());
        let error = open(&device, &options()).err().expect("not ours");
        assert_eq!(error, OpenError::Root(RootError::UnknownVersion(4)));
        assert!(
            error.to_string().contains("made by a newer release"),
            "{error}"
        );
        assert_eq!(device.live(), image, "and nothing was written");
        // The same, torn: it is not a valid superblock, and the other one serves.
        bytes[600] ^= 1;
        image.write(slot, &bytes);
        assert!(open(&TestDevice::with_image(LENGTH, image.clone()), &options()).is_ok());
    }
    // Older releases': the first has no length of the covered part, the second has logs whose
    // groups are not records.
    for version in [1, 2] {
        let mut image = live.clone();
        for slot in [0, 128 << 10] {
            let mut bytes = vec![0; 128 << 10];
            image.read(slot, &mut bytes);
            bytes[8] = version;
            if version == 1 {
                bytes[112..116].fill(0);
            } else {
                seal(&mut bytes);
            }
            image.write(slot, &bytes);
        }
        let error = open(&TestDevice::with_image(LENGTH, image), &options())
            .err()
            .expect("not ours");
        assert_eq!(
            error,
            OpenError::Root(RootError::UnknownVersion(u32::from(version)))
        );
        assert!(
            error.to_string().contains("made by an older release"),
            "{error}"
        );
    }

    // The newest two groups of the log.
    const LOG: u64 = 256 << 10;
    let mut groups: Vec<(u64, u64)> = Vec::new();
    for at in (LOG..LOG + (1 << 20)).step_by(4096) {
        let mut block = [0; 4096];
        live.read(at, &mut block);
        if block.starts_with(b"NCWL") {
            groups.push((
                u64::from_le_bytes(block[16..24].try_into().expect("eight bytes")),
                at,
            ));
        }
    }
    groups.sort_unstable();
    for &(_, at) in groups.iter().rev().take(2) {
        let mut image = live.clone();
        image.write(at + 4, &4_u16.to_le_bytes());
        let device = TestDevice::with_image(LENGTH, image.clone());
        let error = open(&device, &options()).err().expect("not ours");
        assert_eq!(error, OpenError::ForeignLog { version: 4 });
        assert!(error.to_string().contains("another release"), "{error}");
        // With another salt it is client data, and the end of the log.
        let mut data = image.clone();
        data.write(at + 40, &[1]);
        let after = open(&TestDevice::with_image(LENGTH, data), &options());
        assert!(!matches!(after, Err(OpenError::ForeignLog { .. })));
    }
}

/// F5: a flush failed, the daemon stopped, and was started again. The page cache still had data
/// that is not on the medium, and no flush writes it any more: the store must not continue from it.
#[test]
fn what_a_failed_flush_lost_is_not_believed() {
    for fuse in 0..12 {
        let mut rig = Rig::fresh(1);
        rig.must(Transaction::new().write(key("a"), 0, vec![1; 30_000]), 1);
        rig.settle();
        let device = rig.device.clone();
        device.cache_writes();
        device.fail_after(fuse);
        rig.store
            .submit(
                Transaction::new().write(key("a"), 0, vec![2; 30_000]),
                Token(2),
            )
            .expect("taken");
        let (mut events, mut jobs) = (Vec::new(), Vec::new());
        for _ in 0..20 {
            rig.store.request_commit();
            rig.store.jobs(&mut jobs);
            jobs.drain(..).for_each(|job| rig.store.on_job(job.run()));
            rig.store.poll(&mut events);
        }
        let committed = events.contains(&Event::Committed(Token(2)));
        drop(rig);
        device.mend();
        // Once the store is open only the medium counts: the power may fail at any time.
        drop(Rig::open(device.clone(), &options(), 1));
        let _ = device.blocking().forget_cached();
        let mut rig = Rig::open(device.clone(), &options(), 1);
        let data = rig.data(&key("a")).expect("whole");
        assert!(
            data == vec![2; 30_000] || !committed && data == vec![1; 30_000],
            "fuse {fuse}"
        );
        drop(rig);
        assert_sound(&device);
    }
}

/// F25: a block of an index chunk's checksums reads as zeros. Zero meant "never written", so the
/// index's pages were read as zeros too, and redb panicked.
#[test]
fn zeroed_checksums_of_the_index_are_noticed() {
    let mut rig = Rig::fresh(1);
    for number in 1..=200 {
        rig.must(
            Transaction::new().set_attr(key(format!("object-{number:03}")), "name", vec![7; 400]),
            number,
        );
    }
    rig.settle();
    let device = rig.device.clone();
    drop(rig);
    drop(Rig::open(device.clone(), &options(), 1));
    let live = device.live();
    let mut root = vec![0; 128 << 10];
    live.read(0, &mut root);
    let chunks = u32::from_le_bytes(root[68..72].try_into().expect("four bytes")) as usize;
    let mut noticed = 0;
    for n in 0..chunks {
        let place = u64::from_le_bytes(root[4608 + 8 * n..][..8].try_into().expect("eight bytes"));
        if place == u64::MAX {
            continue;
        }
        let device = TestDevice::with_image(LENGTH, {
            let mut image = live.clone();
            image.write(place * 4096, &[0; 4096]);
            image
        });
        let found = findings(&device);
        if found.is_empty() {
            continue; // no page that a commit refers to
        }
        assert!(
            matches!(found[..], [Finding::IndexBlock(_), ..]),
            "{found:?}"
        );
        noticed += 1;
        if let Ok(mut store) = open(&device, &options()) {
            // Then some record of the index cannot be read.
            let (mut jobs, mut events) = (Vec::new(), Vec::new());
            for number in 1..=200 {
                store.read(
                    Read::Stat(key(format!("object-{number:03}"))),
                    Token(number),
                );
            }
            for _ in 0..3 {
                store.jobs(&mut jobs);
                jobs.drain(..).for_each(|job| store.on_job(job.run()));
                store.poll(&mut events);
            }
            let wrong = |e: &Event| matches!(e, Event::Read(_, Ok(ReadReply::Stat(None))));
            assert!(
                !events.iter().any(wrong),
                "an object that is there is not found"
            );
        }
    }
    assert!(noticed > 0);
}

/// Sets a feature bit in both superblocks, with valid checksums.
fn with_feature(image: &Image, field: usize) -> TestDevice {
    let mut image = image.clone();
    for slot in [0, 128 << 10] {
        let mut bytes = vec![0; 128 << 10];
        image.read(slot, &mut bytes);
        bytes[field] |= 2;
        seal(&mut bytes);
        image.write(slot, &bytes);
    }
    TestDevice::with_image(LENGTH, image)
}

#[test]
fn formats_of_the_future_and_stores_of_others_are_refused() {
    let rig = Rig::fresh(1);
    let device = rig.device.clone();
    drop(rig);
    let live = device.live();
    open(&with_feature(&live, 24), &options()).expect("a compatible feature does no harm");
    match open(&with_feature(&live, 32), &options()).err() {
        Some(OpenError::ReadOnly(features)) => assert_eq!(features.ro_compat, 2),
        other => panic!("{other:?}"),
    }
    assert!(
        findings(&with_feature(&live, 32)).is_empty(),
        "checking only reads"
    );
    match open(&with_feature(&live, 40), &options()).err() {
        Some(error @ OpenError::Root(RootError::UnknownFeatures(features))) => {
            assert_eq!(features.incompat, 2);
            assert!(error.to_string().contains("newer release"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let other = Identity {
        cluster: ClusterId(5),
        osd: OsdId(3),
    };
    let error = open(
        &device,
        &OpenOptions {
            identity: other,
            ..options()
        },
    )
    .err()
    .expect("another cluster's");
    assert_eq!(
        error,
        OpenError::WrongOwner {
            found: Identity::default(),
            wanted: other
        }
    );
    assert!(
        error
            .to_string()
            .contains("belongs to osd.0 of cluster 0000"),
        "{error}"
    );
    assert_eq!(device.live(), live, "and nothing was written");
}

/// A failed write or flush is reported once, as the last event; nothing is committed after it, and
/// nothing is retried.
#[test]
fn a_failing_device_stops_the_store() {
    for fuse in 0..40 {
        let mut rig = Rig::fresh(fuse);
        rig.device.fail_after(fuse);
        let (mut events, mut jobs, mut failed, mut taken) = (Vec::new(), Vec::new(), false, 0);
        for number in 1..=400 {
            let t = Transaction::new()
                .write(
                    key(format!("o{}", number % 5)),
                    number % 3 * 4096,
                    vec![number as u8; 20_000],
                )
                .omap_set(key("meta"), "last", number.to_be_bytes().to_vec());
            match rig.store.submit(t, Token(number)) {
                Ok(()) => taken = number,
                Err(error) => assert_eq!(error, SubmitError::Failed),
            }
            rig.store.request_commit();
            rig.store.jobs(&mut jobs);
            for job in jobs.drain(..) {
                rig.store.on_job(job.run());
            }
            rig.store.poll(&mut events);
            if let Some(at) = events.iter().position(|e| matches!(e, Event::Failed(_))) {
                assert_eq!(
                    events[at],
                    Event::Failed(StoreFailure::Device(DeviceError::Os(5)))
                );
                assert_eq!(at, events.len() - 1, "nothing comes after a failure");
                failed = true;
            }
        }
        assert!(failed, "fuse {fuse}");
        let committed = events
            .iter()
            .filter_map(|e| {
                if let Event::Committed(t) = e {
                    Some(t.0)
                } else {
                    None
                }
            })
            .max();
        let image = rig.device.live();
        let mut again = Rig::from_image(LENGTH, image);
        let last = last_transaction(&mut again);
        assert!(
            (committed.unwrap_or(0)..=taken).contains(&last),
            "fuse {fuse}: {committed:?} {last} {taken}"
        );
    }
}

/// All kinds of a store's work: log, large writes, write-back, checkpoints. Every few transactions
/// one of each.
fn busy() -> OpenOptions {
    OpenOptions {
        memtable_bytes: 6 << 10,
        deferred_bytes: 32 << 10,
        ..options()
    }
}

/// One write or flush fails, each in turn, and later ones succeed. Independent of its purpose, the
/// store reports the failure and stops: an ignored error is data that exists only in memory, once
/// the log is truncated. And everything committed is on the medium.
#[test]
fn no_write_or_flush_that_fails_is_passed_over() {
    let start = Rig::fresh(1).device.live();
    let (mut tried, mut models) = (0, Vec::new());
    for fuse in 0.. {
        let device = TestDevice::with_image(LENGTH, start.clone());
        let mut store = Store::open(device.clone(), device.blocking(), &busy()).expect("sound");
        device.cache_writes();
        device.fail_once_after(fuse);
        let mut model = RamStore::new();
        model
            .submit(
                Transaction::new().create_collection(C).create_collection(D),
                Token(0),
            )
            .expect("valid");
        let (mut rng, mut events, mut jobs) = (Rng::new(7), Vec::new(), Vec::new());
        for number in 1..=40 {
            let transaction = some_transaction(&mut rng, number);
            for _ in 0..10_000 {
                if store.submit(transaction.clone(), Token(number)) != Err(SubmitError::Busy) {
                    break;
                }
                turn(&mut store, &mut jobs, &mut events);
            }
            if fuse == 0 {
                models.push(model.clone());
                model
                    .submit(transaction, Token(number))
                    .expect("the store took it too");
                model.request_commit();
            }
            turn(&mut store, &mut jobs, &mut events);
        }
        store.rest();
        (0..50).for_each(|_| turn(&mut store, &mut jobs, &mut events));
        if fuse == 0 {
            models.push(model);
        }
        let failed = matches!(
            events.last(),
            Some(Event::Failed(StoreFailure::Device(DeviceError::Os(5))))
        );
        assert_eq!(
            failed,
            device.failures() > 0,
            "write or flush {fuse}: {:?}",
            events.last()
        );
        let committed = |event: &Event| {
            if let Event::Committed(token) = event {
                Some(token.0)
            } else {
                None
            }
        };
        let committed = events.iter().filter_map(committed).max().unwrap_or(0);
        drop(store);
        device.mend();
        device.blocking().forget_cached().expect("forgets");
        let mut rig = Rig::open(device.clone(), &options(), 1);
        let last = last_transaction(&mut rig);
        assert!(
            last >= committed,
            "write or flush {fuse}: {committed} was committed, {last} is there"
        );
        assert!(
            dump(&mut rig) == dump(&mut models[last as usize]),
            "write or flush {fuse}: {last} is not whole"
        );
        drop(rig);
        assert_sound(&device);
        if device.failures() == 0 {
            break;
        }
        tried += 1;
    }
    assert!(tried > 100, "{tried}");
}

/// One wake-up of a host.
fn turn(store: &mut Store<TestDevice>, jobs: &mut Vec<Job>, events: &mut Vec<Event>) {
    store.request_commit();
    store.jobs(jobs);
    jobs.drain(..).for_each(|job| store.on_job(job.run()));
    store.poll(events);
}

/// Reads of bad sectors fail. They end like others: units freed later become free, and nothing
/// waits for the reads.
#[test]
fn a_read_that_failed_keeps_nothing() {
    let mut rig = Rig::fresh(1);
    rig.must(
        Transaction::new()
            .write(key("a"), 0, vec![1; 200_000])
            .write(key("b"), 0, vec![2; 200_000]),
        1,
    );
    rig.settle();
    let blocks = rig.device.data_blocks(1 << 20);
    rig.device.make_unreadable(blocks[3]);
    rig.device.rot(blocks[60] + 100, 1);
    let failed = ["a", "b"].map(|name| rig.data(&key(name)).is_err());
    assert_eq!(failed, [true, true]);
    let before = rig.store.data_units();
    rig.must(Transaction::new().remove(key("a")).remove(key("b")), 2);
    rig.settle();
    assert!(
        rig.store.data_units() + 90 < before,
        "{} of {before}",
        rig.store.data_units()
    );
    drop(reopen(rig, &options()));
}

/// (Planted by a reviewer: it was ignored.) A write or flush fails while a store opens, which
/// writes back the blocks in its log and then truncates it. The store does not open; it opens with
/// everything when the device works again.
#[test]
fn no_write_that_fails_while_a_store_opens_is_passed_over() {
    let options = OpenOptions {
        memtable_bytes: 1 << 20,
        deferred_bytes: 4 << 20,
        ..options()
    };
    let mut rig = Rig::open(Rig::format(LENGTH), &options, 1);
    rig.must(Transaction::new().create_collection(C), 0);
    for n in 1..=30_u64 {
        rig.must(
            Transaction::new().write(key(format!("o{n}")), 0, vec![n as u8; 4096]),
            n,
        );
    }
    rig.settle();
    let image = rig.device.live();
    let mut tried = 0;
    for fuse in 0.. {
        let device = TestDevice::with_image(LENGTH, image.clone());
        device.cache_writes();
        device.fail_once_after(fuse);
        let opened = open(&device, &options);
        let failed = device.failures() > 0;
        assert_eq!(
            opened.err(),
            failed.then_some(OpenError::Device(DeviceError::Os(5))),
            "write or flush {fuse}"
        );
        device.mend();
        device.blocking().forget_cached().expect("forgets");
        let mut rig = Rig::open(device, &options, 1);
        for n in 1..=30_u64 {
            let data = rig.data(&key(format!("o{n}")));
            assert_eq!(
                data,
                Ok(vec![n as u8; 4096]),
                "o{n} after write or flush {fuse}"
            );
        }
        if !failed {
            break;
        }
        tried += 1;
    }
    assert!(tried > 5, "{tried}");
}

/// (Planted by a reviewer.) A page of the index that cannot be read is a device error, not damage
/// of the index: the remedies differ. And the store stops: it used to request the same page for
/// ever.
#[test]
fn an_index_that_cannot_be_read_is_the_devices_fault() {
    let mut rig = Rig::fresh(1);
    // The index must not fit in its cache.
    for number in 1..=30 {
        let named = |t: Transaction, n| {
            t.set_attr(
                key(format!("object-{n:04}")),
                "name",
                format!("value-{n:04}"),
            )
        };
        rig.must(
            (number * 100..number * 100 + 100).fold(Transaction::new(), named),
            number,
        );
        rig.settle();
    }
    let device = rig.device.clone();
    drop(rig);
    drop(Rig::open(device.clone(), &options(), 1)); // everything is in the index now
    let sound = device.live();
    let (mut noticed, small) = (
        0,
        OpenOptions {
            index_cache_bytes: 8 << 10,
            ..options()
        },
    );
    for at in find(&sound, b"value-1500") {
        let device = TestDevice::with_image(LENGTH, sound.clone());
        device.make_unreadable(at);
        assert_eq!(
            open(&device, &options()).err(),
            Some(OpenError::Device(DeviceError::Os(5))),
            "it reads all pages"
        );
        let device = TestDevice::with_image(LENGTH, sound.clone());
        let mut store = open(&device, &small).expect("sound");
        device.make_unreadable(at);
        store.read(Read::Stat(key("object-1500")), Token(1));
        let (mut jobs, mut events) = (Vec::new(), Vec::new());
        for _ in 0..20 {
            turn(&mut store, &mut jobs, &mut events);
        }
        let failed = Event::Failed(StoreFailure::Device(DeviceError::Os(5)));
        if events.contains(&failed) {
            noticed += 1;
            // Afterwards it is idle.
            store.jobs(&mut jobs);
            assert!(jobs.is_empty());
        } else {
            // An old page, or the log.
            assert!(
                matches!(
                    events[..],
                    [Event::Read(Token(1), Ok(ReadReply::Stat(Some(_))))]
                ),
                "{events:?}"
            );
        }
    }
    assert!(noticed >= 1, "at work");
}

/// (Seed 2632 of the simulator.) Former blocks of objects had become pages of the index, so that a
/// test that damaged data damaged the index: the store did not open, although it had no bug.
#[test]
fn where_the_index_lies_now_are_no_blocks_of_objects() {
    let mut rig = Rig::fresh(1);
    let mut seen = 0;
    for round in 1..40 {
        let content = vec![round as u8; 40_960];
        rig.must(
            Transaction::new().write(key("a"), 0, content.clone()),
            3 * round,
        );
        rig.must(
            Transaction::new()
                .write(key("c"), 0, content)
                .remove(key("a")),
            3 * round + 1,
        );
        let entry = format!("entry {round}");
        rig.must(
            Transaction::new().omap_set(key("b"), entry, vec![round as u8; 2000]),
            3 * round + 2,
        );
        rig.settle();
        let damaged = TestDevice::with_image(LENGTH, rig.device.live());
        let blocks = rig.device.data_blocks(1 << 20);
        blocks.iter().for_each(|at| damaged.rot(at + 7, 1));
        let found = findings(&damaged);
        assert!(
            found
                .iter()
                .all(|finding| matches!(finding, Finding::Data { .. })),
            "round {round}: {found:?}"
        );
        seen += found.len();
    }
    assert!(seen > 100, "{seen}");
}
