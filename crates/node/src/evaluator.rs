//! A thread for operations whose methods take longer than a daemon's own thread should (`osd::methods`).
//!
//! One per OSD, made with the first such operation, at a lower priority than what serves. Operations wait in order; a method that uses its whole
//! budget delays those behind it, never the daemon. Budgets are counted, not timed; for what little counts less than it takes there is a clock besides
//! ([`Evaluator::watch`]): the operation fails without effects and may be tried again.

use crate::clock;
use crate::wake::Waker;
use nacre_osd::{EvaluateJob, Evaluated, Runtime};
use nacre_types::Time;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest that one operation is evaluated: every other one of this daemon that takes long waits for it.
const LONGEST: Duration = Duration::from_secs(3);
/// How much less than the daemons' threads the thread gets when all want to run.
const NICE: i32 = 10;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Box<EvaluateJob>>,
    done: Vec<Evaluated>,
    /// When the operation in hand was begun.
    begun: Option<Time>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
}

fn lock(shared: &Shared) -> MutexGuard<'_, Queue> {
    shared
        .queue
        .lock()
        .unwrap_or_else(|_| panic!("an evaluator panicked; its operations cannot be trusted to be undone"))
}

/// See the module head. Dropping it ends the thread after the operation in hand.
pub struct Evaluator {
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Evaluator {
    /// Starts the thread; `waker` is called when something is done.
    pub fn new(waker: Arc<Waker>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let mut runtime = Runtime::patient();
        let stop = runtime.stop_switch();
        let name = "nacre-evaluate".to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(move || run(&theirs, &waker, &mut runtime))?;
        Ok(Self { shared, stop, thread: Some(thread) })
    }

    pub fn begin(&self, job: Box<EvaluateJob>) {
        lock(&self.shared).jobs.push_back(job);
        self.shared.more.notify_one();
    }
    /// Ends what takes too long; to be called now and then.
    pub fn watch(&self, now: Time) {
        if lock(&self.shared).begun.is_some_and(|begun| now.since(begun) > LONGEST) {
            // A call begins with it cleared: at worst the next operation is told to try again.
            self.stop.store(true, Ordering::Relaxed);
        }
    }
    /// Takes what is done.
    pub fn take(&self, into: &mut Vec<Evaluated>) {
        into.append(&mut lock(&self.shared).done);
    }
}

impl Drop for Evaluator {
    fn drop(&mut self) {
        let mut queue = lock(&self.shared);
        queue.closed = true;
        queue.jobs.clear();
        drop(queue);
        self.shared.more.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, waker: &Waker, runtime: &mut Runtime) {
    // Linux keeps priorities per thread. If it is refused, the thread is merely not polite.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
    let mut queue = lock(shared);
    loop {
        if let Some(job) = queue.jobs.pop_front() {
            queue.begun = Some(clock::now());
            drop(queue);
            let evaluated = job.run(runtime);
            queue = lock(shared);
            queue.begun = None;
            queue.done.push(evaluated);
            waker.wake();
        } else if queue.closed {
            return;
        } else {
            queue = shared.more.wait(queue).unwrap_or_else(|_| panic!("a daemon panicked"));
        }
    }
}
