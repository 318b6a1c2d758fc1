//! A slow device: callers that do not need the busy part do not wait for it.
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "one thread waits in the device, another must not"
)]

use crate::rig::*;
use nacre_store::testing::TestDevice;
use nacre_store::*;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Far longer than anything here takes.
const BOUND: Duration = Duration::from_secs(20);

/// A device whose flushes, requested by jobs, wait at a gate.
#[derive(Debug)]
struct Gated {
    device: TestDevice,
    /// Whether it is closed, and how many flushes wait.
    gate: Mutex<(bool, u32)>,
    changed: Condvar,
}

impl Gated {
    fn set(&self, closed: bool) {
        self.gate.lock().expect("no panic here").0 = closed;
        self.changed.notify_all();
    }
    fn until_one_waits(&self) {
        let gate = self.gate.lock().expect("no panic here");
        let (gate, _) = self
            .changed
            .wait_timeout_while(gate, BOUND, |gate| gate.1 == 0)
            .expect("no panic here");
        assert!(gate.1 > 0, "the checkpoint has not come to its flush");
    }
}

impl BlockingDevice for Gated {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read_at(offset, out)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.device.write_at(offset, data)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        let mut gate = self.gate.lock().expect("no panic here");
        gate.1 += 1;
        self.changed.notify_all();
        gate = self
            .changed
            .wait_while(gate, |gate| gate.0)
            .expect("no panic here");
        gate.1 -= 1;
        drop(gate);
        self.device.flush()
    }
    fn length(&self) -> u64 {
        BlockingDevice::length(&self.device)
    }
}

/// F36: one lock of the index was held while a checkpoint flushed: every cold read of the store
/// waited for it.
#[test]
fn a_checkpoint_that_flushes_holds_up_nobody() {
    let mut rig = Rig::open(Rig::format(32 << 20), &options(), 1);
    rig.must(Transaction::new().create_collection(C), 0);
    for number in 1..=500 {
        rig.must(
            Transaction::new().set_attr(key(format!("o{number}")), "a", vec![number as u8; 300]),
            number,
        );
    }
    rig.settle();
    let device = rig.device.clone();
    drop(rig);
    let gated = Arc::new(Gated {
        device: device.clone(),
        gate: Mutex::default(),
        changed: Condvar::new(),
    });
    // The index has almost no cache: cold records are read from the device.
    let options = OpenOptions {
        index_cache_bytes: 8 << 10,
        ..options()
    };
    let mut store = Store::open(device, gated.clone(), &options).expect("sound");
    let (mut jobs, mut events, mut token) = (Vec::new(), Vec::new(), 1000);
    let checkpoint = loop {
        token += 1;
        assert!(token < 3000, "no checkpoint");
        // Absent objects of a cold store are looked up, too.
        let t = Transaction::new().set_attr(key(format!("n{}", token % 40)), "a", vec![1; 2000]);
        store.submit(t, Token(token)).expect("room");
        store.request_commit();
        store.poll(&mut events);
        store.jobs(&mut jobs);
        if let Some(at) = jobs.iter().position(|job| job.name() == "checkpoint") {
            break jobs.swap_remove(at);
        }
        jobs.drain(..).for_each(|job| store.on_job(job.run()));
        store.poll(&mut events);
    };
    jobs.drain(..).for_each(|job| store.on_job(job.run()));
    gated.set(true);
    let flushing = std::thread::spawn(move || checkpoint.run());
    gated.until_one_waits();

    for number in [1, 100, 250, 400] {
        events.clear();
        store.read(Read::Stat(key(format!("o{number}"))), Token(number));
        store.jobs(&mut jobs);
        assert!(jobs.iter().any(|job| job.name() == "lookup"), "cold");
        let (done, answers) = channel();
        for job in jobs.drain(..) {
            let done = done.clone();
            std::thread::spawn(move || done.send(job.run()));
        }
        drop(done);
        while let Ok(done) = answers.recv_timeout(BOUND) {
            store.on_job(done);
        }
        store.poll(&mut events);
        assert!(
            events
                .iter()
                .any(|e| matches!(e, Event::Read(Token(found), Ok(ReadReply::Stat(Some(_)))) if *found == number)),
            "a cold read waits for the checkpoint's flush: {events:?}"
        );
    }
    events.clear();
    store
        .submit(
            Transaction::new().set_attr(key("o1"), "b", "x"),
            Token(5000),
        )
        .expect("room");
    store.request_commit();
    (0..10).for_each(|_| store.poll(&mut events));
    assert!(
        events.contains(&Event::Committed(Token(5000))),
        "a commit waits for the checkpoint's flush: {events:?}"
    );

    gated.set(false);
    store.on_job(flushing.join().expect("no panic"));
    assert!(store.usage().checkpoints > 0);
}
