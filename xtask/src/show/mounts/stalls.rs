//! Durations of calls: the longest of all workers since the last query.

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread::{self, JoinHandle, ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

/// Maximum time until every worker has made progress after a fault.
const HANG: Duration = Duration::from_mins(2);
/// Number of calls of each worker that prove progress.
const GOES_ON: u64 = 20;

/// The calls of one worker.
#[derive(Default)]
pub struct Stalls {
    calls: AtomicU64,
    longest: Mutex<(Duration, String)>,
    /// Calls in flight, by number.
    under_way: Mutex<BTreeMap<u64, (Instant, String)>>,
    begun: AtomicU64,
}

impl Stalls {
    /// Measures a call.
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
    /// Returns the longest call since the last query, and resets it.
    pub fn take(&self) -> (Duration, String) {
        std::mem::take(
            &mut *self
                .longest
                .lock()
                .expect("nothing panics while it is held"),
        )
    }
    /// The longest call in flight, and its duration so far.
    pub fn waiting(&self) -> Option<(Duration, String)> {
        let under_way = self
            .under_way
            .lock()
            .expect("nothing panics while it is held");
        // They are numbered in the order in which they began.
        under_way
            .first_key_value()
            .map(|(_, (begun, what))| (begun.elapsed(), what.clone()))
    }
    /// Number of calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

/// Kills mounts when everything takes too long: that ends every call.
///
/// A program started by this process begins by closing files of the mounts, each of which is a
/// request: starting one waits as long as the mounts do, and a limit of its own does not help.
pub struct Watchdog(mpsc::Sender<()>, Option<JoinHandle<()>>);

impl Watchdog {
    /// Watches until it is dropped, which must happen before the mounts are dropped.
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

/// The name of a worker, the durations of its calls, and its thread until that has ended.
pub struct Worker<'scope>(
    pub &'static str,
    pub &'scope Stalls,
    pub Option<ScopedJoinHandle<'scope, Result<()>>>,
);

/// All workers in the background.
pub struct Crew<'scope> {
    /// Tells them to end.
    pub stop: &'scope AtomicBool,
    /// Who.
    pub workers: Vec<Worker<'scope>>,
}

impl Crew<'_> {
    /// Discards earlier durations.
    ///
    /// # Errors
    /// The error of a worker that ended.
    pub fn begin(&mut self) -> Result<()> {
        self.alive()?;
        for Worker(_, stalls, _) in &self.workers {
            stalls.take();
        }
        Ok(())
    }
    /// Waits until each has made progress; returns the longest duration of a call since `begin`,
    /// and the call.
    ///
    /// # Errors
    /// When one makes no progress, or has failed.
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
    /// Returns the error of a worker that ended.
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
    /// The error of one of them, or that it does not end.
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
