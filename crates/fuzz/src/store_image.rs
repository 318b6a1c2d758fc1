//! Store images: a store on a damaged device is refused, or opened. Every read ends with an answer
//! or an error; a transaction ends with a commit or a stop of the store. A store that passes the
//! check reads without an error.
//!
//! Input: patches of a small store's image. Each consists of a page in use (u16, modulo their
//! number), the offset in the page (u16), a length (u8, modulo 16) and the bytes. Under libFuzzer
//! the checksums of log, records and data are constant (`cfg(fuzzing)` in
//! `crates/store/src/format/checksum.rs`), so that patches pass them; replays on stable use the
//! real ones.

use bytes::Bytes;
use nacre_store::testing::{Image, TestDevice};
use nacre_store::{
    CheckOptions, CollectionId, Event, FormatOptions, Job, ObjectKey, ObjectStore, OpenOptions,
    Read, ReadError, ReadReply, Store, SubmitError, Token, Transaction, check, format,
};
use std::ops::Bound;
use std::sync::OnceLock;

const LENGTH: u64 = 10 << 20;
const PAGE: usize = 4096;
const COLLECTION: CollectionId = CollectionId(7);
/// Longer reads are shortened: a damaged size may have any value.
const READ_MAX: u64 = 1 << 20;
const OBJECTS_MAX: usize = 64;

fn options() -> OpenOptions {
    OpenOptions {
        deferred_write_max: 12 << 10,
        cache_bytes: 16 << 10,
        index_cache_bytes: 1 << 20,
        memtable_bytes: 24 << 10,
        deferred_bytes: 96 << 10,
        queue_bytes_max: 512 << 10,
        ..OpenOptions::default()
    }
}

/// A store, driven until it is idle or stops.
struct Driver {
    store: Store<TestDevice>,
    jobs: Vec<Job>,
    events: Vec<Event>,
    next: u64,
}

impl Driver {
    fn open(device: &TestDevice) -> Option<Self> {
        let store = Store::open(device.clone(), device.blocking(), &options()).ok()?;
        Some(Self {
            store,
            jobs: Vec::new(),
            events: Vec::new(),
            next: 1,
        })
    }

    /// Executes waiting jobs.
    fn turn(&mut self) {
        self.store.request_commit();
        self.store.jobs(&mut self.jobs);
        for job in std::mem::take(&mut self.jobs) {
            let done = job.run();
            self.store.on_job(done);
        }
    }

    /// Runs turns until `done` finds its event; `None` if the store stopped.
    fn until<T>(&mut self, what: &str, mut done: impl FnMut(&Event) -> Option<T>) -> Option<T> {
        for _ in 0..10_000 {
            self.turn();
            self.store.poll(&mut self.events);
            let events = std::mem::take(&mut self.events);
            if let Some(found) = events.iter().find_map(&mut done) {
                return Some(found);
            }
            if events.iter().any(|event| matches!(event, Event::Failed(_))) {
                return None;
            }
        }
        panic!("{what} does not end");
    }

    fn ask(&mut self, read: Read) -> Option<Result<ReadReply, ReadError>> {
        let token = Token(self.next);
        self.next += 1;
        let what = format!("{read:?}");
        self.store.read(read, token);
        self.until(&what, |event| match event {
            Event::Read(of, answer) if *of == token => Some(answer.clone()),
            _ => None,
        })
    }

    /// Commits a transaction; `None` if the store stopped or refused it.
    fn commit(&mut self, transaction: Transaction) -> Option<()> {
        let token = Token(self.next);
        self.next += 1;
        // A job computes the size of a clone before it is accepted: until then the store is busy.
        for _ in 0..1000 {
            match self.store.submit(transaction.clone(), token) {
                Ok(()) => break,
                Err(SubmitError::Busy) => self.turn(),
                Err(_) => return None,
            }
        }
        self.until("a transaction", |event| {
            matches!(event, Event::Committed(of) if *of == token).then_some(())
        })
    }
}

fn key(number: u64) -> ObjectKey {
    ObjectKey::new(COLLECTION, format!("object-{number:02}"))
}

/// An intact store whose index, log and data are all in use, and its pages in use.
fn base() -> &'static (Image, Vec<u64>) {
    static BASE: OnceLock<(Image, Vec<u64>)> = OnceLock::new();
    BASE.get_or_init(|| {
        let device = TestDevice::new(LENGTH);
        format(
            &device.blocking(),
            &FormatOptions {
                wal_bytes: Some(1 << 20),
                ..FormatOptions::default()
            },
        )
        .expect("a healthy device");
        let mut store = Driver::open(&device).expect("a sound store");
        store
            .commit(Transaction::new().create_collection(COLLECTION))
            .expect("a healthy device");
        for number in 0..24 {
            let content = vec![
                number as u8 + 1;
                700 * (number as usize % 5)
                    + (40 << 10) * usize::from(number % 8 == 3)
            ];
            let mut transaction =
                Transaction::new()
                    .touch(key(number))
                    .write(key(number), number * 100, content);
            transaction = transaction.set_attr(key(number), "attribute", vec![7; 30]);
            for entry in 0..number {
                transaction =
                    transaction.omap_set(key(number), format!("key-{entry:03}"), vec![3; 40]);
            }
            store.commit(transaction).expect("a healthy device");
            if number == 15 {
                // The updates so far go into the index when the store is opened; the rest stays in
                // the log.
                drop(store);
                store = Driver::open(&device).expect("a sound store");
            }
        }
        store
            .commit(
                Transaction::new()
                    .clone_object(key(3), key(40))
                    .remove(key(4)),
            )
            .expect("a healthy device");
        let image = device.live();
        let used = (0..LENGTH / PAGE as u64).filter(|page| {
            let mut bytes = [0; PAGE];
            image.read(page * PAGE as u64, &mut bytes);
            bytes.iter().any(|byte| *byte != 0)
        });
        let used = used.collect();
        (image, used)
    })
}

fn patch(image: &mut Image, used: &[u64], mut input: &[u8]) {
    while let [page_low, page_high, at_low, at_high, length, rest @ ..] = input {
        let page = used[usize::from(u16::from_le_bytes([*page_low, *page_high])) % used.len()];
        let at = usize::from(u16::from_le_bytes([*at_low, *at_high])) % PAGE;
        let length = usize::from(*length % 16).min(rest.len()).min(PAGE - at);
        image.write(page * PAGE as u64 + at as u64, &rest[..length]);
        input = &rest[length..];
    }
}

pub fn run(input: &[u8]) {
    let (image, used) = base();
    let mut image = image.clone();
    patch(&mut image, used, input);
    let device = TestDevice::with_image(LENGTH, image);
    let report =
        check(&device.blocking(), CheckOptions { data: true }).expect("the device is healthy");
    let clean = report.is_clean();
    let Some(mut store) = Driver::open(&device) else {
        assert!(
            !clean,
            "the check finds nothing, and the store does not open"
        );
        return;
    };
    let good = read_all(&mut store);
    assert!(
        good != Some(false) || !clean,
        "the check finds nothing, and reads fail"
    );
    let write = Transaction::new()
        .write(key(50), 0, Bytes::from_static(&[9; 5000]))
        .omap_set(key(50), "k", "v");
    let _ = store.commit(write);
}

/// Whether every read succeeded; `None` if the store stopped.
fn read_all(store: &mut Driver) -> Option<bool> {
    let list = Read::List {
        collection: COLLECTION,
        from: Bytes::new(),
        to: None,
        limit: OBJECTS_MAX,
    };
    let keys = match store.ask(list)? {
        Ok(ReadReply::List { keys, .. }) => keys,
        Ok(other) => panic!("a list is answered with {other:?}"),
        Err(_) => return Some(false),
    };
    let mut good = true;
    for name in keys {
        let object = ObjectKey::new(COLLECTION, name);
        let omap = Read::Omap {
            object: object.clone(),
            from: Bound::Unbounded,
            to: None,
            limit_entries: 1000,
            limit_bytes: 1 << 20,
        };
        good &= store.ask(Read::Stat(object.clone()))?.is_ok();
        good &= store
            .ask(Read::Data {
                object: object.clone(),
                offset: 0,
                length: READ_MAX,
            })?
            .is_ok();
        good &= store
            .ask(Read::Extents {
                object,
                offset: 0,
                length: READ_MAX,
            })?
            .is_ok();
        good &= store.ask(omap)?.is_ok();
    }
    Some(good)
}
