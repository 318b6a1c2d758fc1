//! How long calls took: the longest of all that work, since it was asked last.

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread::{self, JoinHandle, ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

/// Until every worker has gone on after a fault.
const HANG: Duration = Duration::from_mins(2);
/// Calls of each worker that show that it goes on.
const GOES_ON: u64 = 20;

/// One worker's.
#[derive(Default)]
pub struct Stalls {
    calls: AtomicU64,
    longest: Mutex<(Duration, String)>,
    /// Calls that have not returned, by number.
    under_way: Mutex<BTreeMap<u64, (Instant, String)>>,
    begun: AtomicU64,
}

impl Stalls {
    /// Times a call.
    pub fn time<T>(&self, what: impl FnOnce() -> String, call: impl FnOnce() -> T) -> T {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let begun = Instant::now();
        self.under_way
            .lock()
            .expect("nothing panics while it is held")
            .insert(number, (begun, what()));
        let result = call();
        let took = begun.elapsed();
        let ended = self
            .under_way
            .lock()
            .expect("nothing panics while it is held")
            .remove(&number);
        let mut longest = self
            .longest
            .lock()
            .expect("nothing panics while it is held");
        if took > longest.0 {
            *longest = (took, ended.expect("it was noted above").1);
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        result
    }
    /// The longest call since this was asked last, and forgets it.
    pub fn take(&self) -> (Duration, String) {
        std::mem::take(
            &mut *self
                .longest
                .lock()
                .expect("nothing panics while it is held"),
        )
    }
    /// The call that has not returned for longest, and for how long.
    pub fn waiting(&self) -> Option<(Duration, String)> {
        let under_way = self
            .under_way
            .lock()
            .expect("nothing panics while it is held");
        // They are numbered as they began.
        under_way
            .first_key_value()
            .map(|(_, (begun, what))| (begun.elapsed(), what.clone()))
    }
    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

/// Kills mounts when everything takes too long: that ends every call.
///
/// A program that this process starts closes files of the mounts as it begins, each of which is a
/// request: starting one waits as long as the mounts do, and no bound of its own helps.
pub struct Watchdog(mpsc::Sender<()>, Option<JoinHandle<()>>);

impl Watchdog {
    /// Watches until it is dropped, which must be before the mounts are.
    pub fn begin(pids: Vec<u32>, limit: Duration) -> Self {
        let (end, ended) = mpsc::channel();
        let thread = thread::spawn(move || {
            if ended.recv_timeout(limit) != Err(mpsc::RecvTimeoutError::Timeout) {
                return;
            }
            eprintln!("  not done in {} s: the mounts are killed", limit.as_secs());
            for pid in pids
                .iter()
                .filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?))
            {
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        Self(end, Some(thread))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let _ = self.0.send(());
        let _ = self.1.take().map(JoinHandle::join);
    }
}

/// What one does, how long its calls take, and its thread until that has ended.
pub struct Worker<'scope>(
    pub &'static str,
    pub &'scope Stalls,
    pub Option<ScopedJoinHandle<'scope, Result<()>>>,
);

/// All that work in the background.
pub struct Crew<'scope> {
    /// Tells them to end.
    pub stop: &'scope AtomicBool,
    /// Who.
    pub workers: Vec<Worker<'scope>>,
}

impl Crew<'_> {
    /// Forgets what took long before.
    ///
    /// # Errors
    /// What a worker found that ended.
    pub fn begin(&mut self) -> Result<()> {
        self.alive()?;
        for Worker(_, stalls, _) in &self.workers {
            stalls.take();
        }
        Ok(())
    }
    /// Waits until each has gone on; gives the longest that any call took since `begin`, and which.
    ///
    /// # Errors
    /// When one does not go on, or found something wrong.
    pub fn longest(&mut self) -> Result<(Duration, String)> {
        let from: Vec<u64> = self
            .workers
            .iter()
            .map(|Worker(_, stalls, _)| stalls.calls())
            .collect();
        let begun = Instant::now();
        loop {
            self.alive()?;
            let waits = self
                .workers
                .iter()
                .zip(&from)
                .find(|(Worker(_, stalls, _), from)| stalls.calls() < *from + GOES_ON);
            let Some((Worker(name, ..), _)) = waits else {
                break;
            };
            if begun.elapsed() > HANG {
                bail!("{name} does not go on for {} s", HANG.as_secs());
            }
            sleep(Duration::from_millis(10));
        }
        let all = self
            .workers
            .iter()
            .map(|Worker(name, stalls, _)| (stalls.take(), name));
        let (longest, name) = all.max().expect("there are workers");
        Ok((longest.0, format!("{name}: {}", longest.1)))
    }
    /// Tells what a worker found that ended.
    fn alive(&mut self) -> Result<()> {
        for Worker(name, _, thread) in &mut self.workers {
            if thread.as_ref().is_some_and(ScopedJoinHandle::is_finished) {
                thread
                    .take()
                    .expect("just seen")
                    .join()
                    .expect("a worker does not panic")?;
                bail!("{name} ended early");
            }
        }
        Ok(())
    }
    /// Ends all.
    ///
    /// # Errors
    /// What one of them found, or that it does not end.
    pub fn end(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        for Worker(name, _, thread) in &mut self.workers {
            while thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
                if begun.elapsed() > HANG {
                    bail!("{name} does not end");
                }
                sleep(Duration::from_millis(10));
            }
            if let Some(thread) = thread.take() {
                thread.join().expect("a worker does not panic")?;
            }
        }
        Ok(())
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
