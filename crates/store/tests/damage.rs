//! Rot, bad sectors, failing devices, wrong disks: a precise error each time, never wrong data.

use crate::rig::*;
use nacre_store::testing::{Image, TestDevice};
use nacre_store::*;
use nacre_types::{ClusterId, OsdId};

const LENGTH: u64 = 16 << 20;

/// Where `pattern` lies on the device.
fn find(image: &Image, pattern: &[u8]) -> Vec<u64> {
    let mut bytes = vec![0; LENGTH as usize];
    image.read(0, &mut bytes);
    let starts = (0..bytes.len() - pattern.len()).filter(|&at| bytes[at] == pattern[0]);
    starts.filter(|&at| bytes[at..].starts_with(pattern)).map(|at| at as u64).collect()
}

fn open(device: &TestDevice, options: &OpenOptions) -> Result<Store<TestDevice>, OpenError> {
    Store::open(device.clone(), device.blocking(), options)
}

fn findings(device: &TestDevice) -> Vec<Finding> {
    check(&device.blocking(), CheckOptions { data: true }).expect("readable").findings
}

#[test]
fn rotten_data_is_an_error_until_the_block_is_written_whole() {
    let mut rig = Rig::fresh(1);
    let block = |seed: u64| (0..4096).map(|i| ((i * seed) >> 3) as u8).collect::<Vec<u8>>();
    let content = [block(77), block(91), block(113), block(41), block(55)].concat();
    rig.must(Transaction::new().write(key("a"), 0, content.clone()), 1);
    rig.must(Transaction::new().clone_object(key("a"), key("clone")), 2);
    rig.settle();
    let at = find(&rig.device.live(), &content[4096..8192]);
    assert_eq!(at.len(), 1, "a large write is on the device once, and a clone shares it");
    rig.device.rot(at[0] + 100, 0x10);
    for name in ["a", "clone"] {
        match rig.data(&key(name)) {
            Err(ReadError::Corrupt { offset: 4096, expected, found }) => assert_ne!(expected, found),
            other => panic!("{other:?}"),
        }
        let read = Read::Data { object: key(name), offset: 8192, length: 1 << 20 };
        assert!(rig.ask(read).is_ok(), "the other blocks are sound");
        let read = Read::Data { object: key(name), offset: 4000, length: 97 };
        assert!(rig.ask(read).is_err(), "one byte of a rotten block is as bad as all");
    }
    let finding = |name: &'static str| Finding::Data { collection: C, key: name.into(), offset: 4096 };
    assert_eq!(findings(&rig.device), [finding("a"), finding("clone")]);

    // Overwriting a part cannot make the rest right.
    rig.must(Transaction::new().write(key("a"), 5000, vec![9; 10]), 3);
    rig.settle();
    assert!(matches!(rig.data(&key("a")), Err(ReadError::Corrupt { offset: 4096, .. })));
    assert_eq!(rig.store.usage().blocks_poisoned, 1);
    let device = rig.device.clone();
    drop(rig);
    let mut rig = Rig::open(device, &options(), 1);
    assert!(matches!(rig.data(&key("a")), Err(ReadError::Corrupt { offset: 4096, .. })), "nor can a restart");
    // Copying a part carries the loss along.
    let copy = Op::CloneRange { from: key("a"), to: key("part"), offset: 4090, length: 20, to_offset: 3 };
    rig.must(Transaction::new().op(copy), 4);
    assert!(matches!(rig.data(&key("part")), Err(ReadError::Corrupt { .. })));

    rig.must(Transaction::new().write(key("a"), 4096, content[4096..8192].to_vec()).remove(key("part")), 5);
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
    let content: Vec<u8> = (0..20_480_u32).map(|i| ((i * (i / 4096 + 3)) >> 4) as u8).collect();
    rig.must(Transaction::new().write(key("a"), 0, content.clone()), 1);
    rig.settle();
    let at = find(&rig.device.live(), &content[8192..12288])[0];
    rig.device.make_unreadable(at);
    assert!(matches!(rig.data(&key("a")), Err(ReadError::Device { .. })));
    let read = Read::Data { object: key("a"), offset: 0, length: 8192 };
    assert!(rig.ask(read).is_ok());
    rig.must(Transaction::new().write(key("a"), 8200, vec![1; 8]), 2);
    rig.settle();
    let read = Read::Data { object: key("a"), offset: 8192, length: 10 };
    assert!(rig.ask(read).is_err(), "the rest of the block is still unknown");
}

#[test]
fn a_rotten_index_is_noticed_wherever_it_rots() {
    let mut rig = Rig::fresh(1);
    for number in 1..=200 {
        let t = Transaction::new().set_attr(key(format!("object-{number:03}")), "name", format!("value-{number:03}"));
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
                // Whether it opens depends on where the page is; the object must never be read wrongly.
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
    let device = TestDevice::with_image(LENGTH, sound.clone());
    device.rot(20, 1);
    device.rot((128 << 10) + 20, 2);
    assert_eq!(open(&device, &options()).err(), Some(OpenError::Root(RootError::Damaged)));
    assert_eq!(findings(&device), [Finding::Root(RootError::Damaged)]);
    let empty = TestDevice::new(LENGTH);
    assert_eq!(open(&empty, &options()).err(), Some(OpenError::Root(RootError::NotAStore)));
    let short = TestDevice::with_image(LENGTH / 2, sound);
    let shrunk = RootError::Shrunk { was: LENGTH, is: LENGTH / 2 };
    assert_eq!(open(&short, &options()).err(), Some(OpenError::Root(shrunk)));
}

#[test]
fn a_rotten_log_is_not_taken_for_its_end() {
    let mut rig = Rig::fresh(1);
    for number in 1..=5 {
        rig.must(Transaction::new().set_attr(key("a"), "n", format!("log-value-{number}")), number);
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
    assert!(matches!(findings(&device)[..], [Finding::Open(OpenError::LogDamaged { .. })]));
}

/// CRC32C a bit at a time, to make superblocks of the future.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 })
    })
}

/// Sets a feature bit in both superblocks, validly.
fn with_feature(image: &Image, field: usize) -> TestDevice {
    let mut image = image.clone();
    for slot in [0, 128 << 10] {
        let mut bytes = vec![0; 128 << 10];
        image.read(slot, &mut bytes);
        let chunks = u32::from_le_bytes(bytes[68..72].try_into().expect("four bytes")) as usize;
        bytes[field] |= 2;
        bytes[12..16].fill(0);
        let crc = crc32c(&bytes[..4608 + chunks * 4]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
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
    assert!(findings(&with_feature(&live, 32)).is_empty(), "checking only reads");
    match open(&with_feature(&live, 40), &options()).err() {
        Some(error @ OpenError::Root(RootError::UnknownFeatures(features))) => {
            assert_eq!(features.incompat, 2);
            assert!(error.to_string().contains("newer release"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let other = Identity { cluster: ClusterId(5), osd: OsdId(3) };
    let error = open(&device, &OpenOptions { identity: other, ..options() }).err().expect("another cluster's");
    assert_eq!(error, OpenError::WrongOwner { found: Identity::default(), wanted: other });
    assert!(error.to_string().contains("belongs to osd.0 of cluster 0000"), "{error}");
    assert_eq!(device.live(), live, "and nothing was written");
}

/// A failed write or flush is reported once, last; nothing is committed after it, and nothing is retried.
#[test]
fn a_failing_device_stops_the_store() {
    for fuse in 0..40 {
        let mut rig = Rig::fresh(fuse);
        rig.device.fail_after(fuse);
        let (mut events, mut jobs, mut failed, mut taken) = (Vec::new(), Vec::new(), false, 0);
        for number in 1..=400 {
            let t = Transaction::new()
                .write(key(format!("o{}", number % 5)), number % 3 * 4096, vec![number as u8; 20_000])
                .omap_set(key("meta"), "last", number.to_be_bytes().to_vec());
            match rig.store.submit(t, Token(number)) {
                Ok(()) => taken = number,
                Err(error) => assert_eq!(error, SubmitError::Failed),
            }
            rig.store.kick();
            rig.store.jobs(&mut jobs);
            for job in jobs.drain(..) {
                rig.store.on_job(job.run());
            }
            rig.store.poll(&mut events);
            if let Some(at) = events.iter().position(|e| matches!(e, Event::Failed(_))) {
                assert_eq!(events[at], Event::Failed(StoreFailure::Device(DeviceError::Os(5))));
                assert_eq!(at, events.len() - 1, "nothing comes after a failure");
                failed = true;
            }
        }
        assert!(failed, "fuse {fuse}");
        let committed = events.iter().filter_map(|e| if let Event::Committed(t) = e { Some(t.0) } else { None }).max();
        let image = rig.device.live();
        let mut again = Rig::from_image(LENGTH, image);
        let last = last_transaction(&mut again);
        assert!((committed.unwrap_or(0)..=taken).contains(&last), "fuse {fuse}: {committed:?} {last} {taken}");
    }
}
