//! What the store costs in CPU, space and time to open, over a device in memory.
//!
//! `cargo bench -p nacre-store` runs everything; `-- overwrite` runs one scenario, also under
//! callgrind: `valgrind --tool=callgrind --toggle-collect='*::overwrite_loop' <bench binary>
//! overwrite`. Budget (see the module head of `store`): 5 µs per warm 4 KiB overwrite, 0 payload
//! bytes copied. The device's own work (copying pages) is measured by itself and taken off.
#![allow(
    clippy::disallowed_methods,
    missing_docs,
    reason = "a bench measures time and reads its arguments"
)]
#![allow(clippy::disallowed_types, reason = "the device has two faces")]

use bytes::Bytes;
use nacre_store::*;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// CPU seconds of this thread: other load on the machine does not count.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split(' ')
        .next()
        .and_then(|ns| ns.parse::<f64>().ok())
        .expect("nanoseconds")
        / 1e9
}

/// A device that is only memory.
#[derive(Clone, Debug)]
struct Ram {
    bytes: Arc<Mutex<Vec<u8>>>,
    done: Arc<Mutex<Vec<IoDone>>>,
}
impl Ram {
    fn new(length: usize) -> Self {
        Self {
            bytes: Arc::new(Mutex::new(vec![0; length])),
            done: Arc::default(),
        }
    }
}
fn copy(bytes: &mut [u8], offset: u64, data: &[Bytes]) -> Bytes {
    let mut at = offset as usize;
    for segment in data {
        bytes[at..at + segment.len()].copy_from_slice(segment);
        at += segment.len();
    }
    Bytes::new()
}
impl Device for Ram {
    fn submit(&mut self, io: Io) {
        let mut bytes = self.bytes.lock().expect("one thread");
        let result = match io.kind {
            IoKind::Read { offset, length } => {
                Bytes::copy_from_slice(&bytes[offset as usize..][..length])
            }
            IoKind::Write { offset, data } => copy(&mut bytes, offset, &data),
            IoKind::Commit { writes } => {
                for run in writes {
                    copy(&mut bytes, run.offset, &run.data);
                }
                Bytes::new()
            }
            IoKind::Flush | IoKind::Discard { .. } => Bytes::new(),
        };
        self.done.lock().expect("one thread").push(IoDone {
            id: io.id,
            result: Ok(result),
        });
    }
    fn poll(&mut self, done: &mut Vec<IoDone>) {
        done.append(&mut self.done.lock().expect("one thread"));
    }
    fn length(&self) -> u64 {
        self.bytes.lock().expect("one thread").len() as u64
    }
}
impl BlockingDevice for Ram {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        out.copy_from_slice(
            &self.bytes.lock().expect("one thread")[offset as usize..][..out.len()],
        );
        Ok(())
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.bytes.lock().expect("one thread")[offset as usize..][..data.len()]
            .copy_from_slice(data);
        Ok(())
    }
    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
    fn length(&self) -> u64 {
        Device::length(self)
    }
}

const C: CollectionId = CollectionId(1);

fn key(n: u64) -> ObjectKey {
    ObjectKey::new(C, format!("rbd_data.8f3a2b.{n:016x}"))
}

fn open(device: &Ram) -> Store<Ram> {
    Store::open(
        device.clone(),
        Arc::new(device.clone()),
        &OpenOptions::default(),
    )
    .expect("a sound store")
}

/// Time spent in jobs, which a host runs on another thread.
fn pump(store: &mut Store<Ram>, events: &mut Vec<Event>) -> f64 {
    let mut jobs = Vec::new();
    let mut seconds = 0.0;
    store.poll(events);
    store.jobs(&mut jobs);
    for job in jobs {
        let start = cpu();
        let done = job.run();
        seconds += cpu() - start;
        store.on_job(done);
    }
    store.poll(events);
    if let Some(Event::Failed(failure)) = events.iter().find(|e| matches!(e, Event::Failed(_))) {
        panic!("{failure:?}");
    }
    events.clear();
    seconds
}

fn settle(store: &mut Store<Ram>) {
    let mut events = Vec::new();
    while store.is_busy() {
        store.request_commit();
        pump(store, &mut events);
    }
}

fn submit(store: &mut Store<Ram>, transaction: &Transaction, token: u64, events: &mut Vec<Event>) {
    while let Err(error) = store.submit(transaction.clone(), Token(token)) {
        assert_eq!(error, SubmitError::Busy, "{error}");
        store.request_commit();
        pump(store, events);
    }
}

fn load(length: usize, objects: u64, size: usize) -> Ram {
    let device = Ram::new(length);
    let blocking: Arc<dyn BlockingDevice> = Arc::new(device.clone());
    format(&blocking, &FormatOptions::default()).expect("large enough");
    let mut store = open(&device);
    let mut events = Vec::new();
    submit(
        &mut store,
        &Transaction::new().create_collection(C),
        0,
        &mut events,
    );
    let data = Bytes::from(vec![0x5a; size]);
    let start = cpu();
    for n in 0..objects {
        let t =
            Transaction::new()
                .write(key(n), 0, data.clone())
                .set_attr(key(n), "_", vec![1; 100]);
        submit(&mut store, &t, n, &mut events);
        if n % 16 == 15 {
            store.request_commit();
            pump(&mut store, &mut events);
        }
    }
    settle(&mut store);
    let us = (cpu() - start) * 1e6 / objects as f64;
    println!("load       {objects} objects of {size} B: {us:.1} us of CPU each, jobs included");
    device
}

fn random(seed: &mut u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

#[inline(never)]
fn overwrite_loop(store: &mut Store<Ram>, objects: u64, count: u64) -> f64 {
    let data = Bytes::from(vec![0xa5; 4096]);
    let (mut seed, mut events, mut jobs) = (1, Vec::new(), 0.0);
    for n in 0..count {
        let object = key(random(&mut seed) % objects);
        let t = Transaction {
            ops: vec![
                Op::Write {
                    object: object.clone(),
                    offset: 0,
                    data: vec![data.clone()],
                },
                Op::SetAttr {
                    object,
                    name: Bytes::from_static(b"_"),
                    value: data.slice(..100),
                },
            ],
        };
        while let Err(error) = store.submit(t.clone(), Token(n)) {
            assert_eq!(error, SubmitError::Busy, "{error}");
            store.request_commit();
            jobs += pump(store, &mut events);
        }
        if n % 16 == 15 {
            store.request_commit();
            jobs += pump(store, &mut events);
        }
    }
    jobs
}

#[inline(never)]
fn read_loop(store: &mut Store<Ram>, objects: u64, count: u64) {
    let (mut seed, mut events) = (7, Vec::new());
    for n in 0..count {
        let object = key(random(&mut seed) % objects);
        store.read(
            Read::Data {
                object,
                offset: 0,
                length: 4096,
            },
            Token(n),
        );
        if n % 16 == 15 {
            pump(store, &mut events);
        }
    }
}

fn warm(objects: u64) {
    let device = load(1 << 30, objects, 4096);
    let mut store = open(&device);
    read_loop(&mut store, objects, objects * 8);
    settle(&mut store);
    let before = store.usage();
    let count = 400_000;
    let start = cpu();
    let jobs = overwrite_loop(&mut store, objects, count);
    let total = cpu() - start;
    let after = store.usage();
    // The device copies each byte it is given: measure the same copies alone.
    let written = (after.wal_bytes - before.wal_bytes)
        + (after.beside_bytes - before.beside_bytes)
        + 4096 * (after.blocks_written_back - before.blocks_written_back);
    let start = cpu();
    let mut copy = device.clone();
    let piece = Bytes::from(vec![1; 4096]);
    for n in 0..written / 4096 {
        let at = (1 << 28) + (n * 40_503 % 100_000) * 4096;
        copy.submit(Io {
            id: IoId(n),
            kind: IoKind::Write {
                offset: at,
                data: vec![piece.clone()],
            },
        });
        if n % 16 == 0 {
            copy.poll(&mut Vec::new());
        }
    }
    let device_time = cpu() - start;
    let us = |seconds: f64| seconds * 1e6 / count as f64;
    println!(
        "overwrite  {objects} warm objects, 4 KiB + attribute, depth 16: {:.2} us each in the store (limit 5), {:.2} us in \
         the device, {:.2} us in checkpoint jobs",
        us(total - jobs - device_time),
        us(device_time),
        us(jobs)
    );
    println!(
        "           log {:.0} B, beside it {:.2} blocks, written back {:.2}, cancelled {:.2}, copied {} B, lookups {} in all, checkpoints {}",
        (after.wal_bytes - before.wal_bytes) as f64 / count as f64,
        (after.beside_bytes - before.beside_bytes) as f64 / 4096.0 / count as f64,
        (after.blocks_written_back - before.blocks_written_back) as f64 / count as f64,
        (after.blocks_cancelled - before.blocks_cancelled) as f64 / count as f64,
        after.payload_bytes_copied,
        after.index_misses - before.index_misses,
        after.checkpoints - before.checkpoints
    );
    settle(&mut store);
    let start = cpu();
    read_loop(&mut store, objects, count);
    println!(
        "read       warm 4 KiB: {:.2} us each, one copy by the device included",
        us(cpu() - start)
    );
    println!("           memory {} MiB", store.usage().memory >> 20);
}

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok())
        .unwrap_or(0)
        * 4096
}

fn reopen(objects: u64) {
    let device = load(3 << 30, objects, 100);
    let mut store = open(&device);
    overwrite_loop(&mut store, objects, 20_000);
    std::mem::forget(store); // as kill -9 would leave it
    let (begin, before) = (Instant::now(), resident());
    let store = open(&device);
    println!(
        "open       {objects} objects after a kill: {:.2} s (limit 3), {:+.1} MiB resident (limit 20); index {} MiB",
        begin.elapsed().as_secs_f64(),
        (resident() as f64 - before as f64) / f64::from(1 << 20),
        store.usage().used >> 20
    );
}

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    if is_wanted("overwrite") {
        warm(5_000);
        warm(100_000);
    }
    if is_wanted("open") {
        reopen(1_000_000);
    }
}
