//! Threads for blocking work: writes, flushes, reads that miss the page cache, and the stores'
//! jobs.
//!
//! Results go to the store's [`Mailbox`], which wakes the reactor once per batch. A panic is
//! reported there too: the store would wait for that result for ever and is in an unknown state, so
//! its daemon stops, and reports the panic.

use crate::device::Blocks;
use crate::wake::Waker;
use nacre_store::{Io, IoDone, Job, JobDone};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;

/// Finished work of one store.
#[derive(Debug)]
pub struct Mailbox {
    ready: AtomicBool,
    /// The next flush is for a single writer: see `device.rs`.
    lone: AtomicBool,
    done: Mutex<Done>,
    arrived: Condvar,
    /// Message of a worker's panic.
    broken: OnceLock<String>,
    waker: Arc<Waker>,
}

#[derive(Debug, Default)]
pub struct Done {
    ios: Vec<IoDone>,
    jobs: Vec<JobDone>,
    /// Whether a thread blocks until work is finished.
    awaited: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|_| {
        panic!("a thread panicked while it held work in hand; nothing can be trusted")
    })
}

impl Mailbox {
    pub fn new(waker: Arc<Waker>) -> Arc<Self> {
        Arc::new(Self {
            ready: AtomicBool::new(false),
            lone: AtomicBool::new(false),
            done: Mutex::default(),
            arrived: Condvar::new(),
            broken: OnceLock::new(),
            waker,
        })
    }

    fn put(&self, add: impl FnOnce(&mut Done)) {
        let mut done = lock(&self.done);
        add(&mut done);
        self.ready.store(true, Ordering::SeqCst);
        let awaited = done.awaited;
        drop(done);
        // Notifying a condition is a system call even without waiters.
        if awaited {
            self.arrived.notify_one();
        }
        self.waker.wake();
    }

    /// Sets whether only a single writer waits for the next flush.
    pub fn set_lone(&self, lone: bool) {
        self.lone.store(lone, Ordering::Relaxed);
    }
    /// Takes the last such setting, once.
    pub fn take_lone(&self) -> bool {
        self.lone.load(Ordering::Relaxed) && self.lone.swap(false, Ordering::Relaxed)
    }
    /// Notes that something finished without a worker: the store must be polled.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::SeqCst);
    }
    /// Whether something has finished since the last call.
    pub fn take_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed) && self.ready.swap(false, Ordering::SeqCst)
    }
    /// As [`Self::take_ready`], without taking.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::SeqCst)
    }
    pub fn take_ios(&self, into: &mut Vec<IoDone>) {
        into.append(&mut lock(&self.done).ios);
    }
    pub fn take_jobs(&self, into: &mut Vec<JobDone>) {
        into.append(&mut lock(&self.done).jobs);
    }
    /// The reason why the store's daemon must stop, if a worker panicked in its work.
    pub fn broken(&self) -> Option<String> {
        self.broken.get().cloned()
    }
    /// Blocks until something has finished; for opening a store, before there is a reactor.
    pub fn wait(&self) {
        let mut done = lock(&self.done);
        done.awaited = true;
        // A concurrent poll may have taken the flag; a worker's panic stays recorded.
        while done.ios.is_empty()
            && done.jobs.is_empty()
            && !self.is_ready()
            && self.broken.get().is_none()
        {
            done = self
                .arrived
                .wait(done)
                .unwrap_or_else(|_| panic!("a worker panicked"));
        }
        done.awaited = false;
        if let Some(why) = self.broken.get() {
            panic!("{why}");
        }
    }
}

/// One piece of blocking work.
pub enum Task {
    Io {
        blocks: Arc<Blocks>,
        io: Io,
        to: Arc<Mailbox>,
    },
    /// `blocks`: the device of the job's store.
    Job {
        job: Job,
        blocks: Option<Arc<Blocks>>,
        to: Arc<Mailbox>,
    },
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    idle: usize,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
}

/// See the module head. Dropping it ends the threads after the work already begun.
pub struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    pub fn new(count: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let spawn = |number: usize| {
            let shared = shared.clone();
            std::thread::Builder::new()
                .name(format!("nacre-io-{number}"))
                .spawn(move || run(&shared))
        };
        let threads = (0..count).map(spawn).collect::<Result<_, _>>()?;
        Ok(Self { shared, threads })
    }

    /// A handle that can submit tasks.
    pub fn handle(&self) -> WorkersHandle {
        WorkersHandle {
            shared: self.shared.clone(),
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        queue.closed = true;
        queue.tasks.clear();
        drop(queue);
        self.shared.more.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Submits tasks to [`Workers`].
#[derive(Clone)]
pub struct WorkersHandle {
    shared: Arc<Shared>,
}
impl WorkersHandle {
    pub fn begin(&self, task: Task) {
        let mut queue = lock(&self.shared.queue);
        if queue.closed {
            return;
        }
        queue.tasks.push_back(task);
        let wake = queue.idle > 0;
        drop(queue);
        if wake {
            self.shared.more.notify_one();
        }
    }
}

/// Executes a task and delivers its result.
pub fn deliver<T>(
    to: &Mailbox,
    what: &str,
    work: impl FnOnce() -> T,
    put: impl FnOnce(&mut Done, T),
) {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => to.put(|all| put(all, result)),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let said = text
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            let why = format!(
                "{what} panicked ({said}): the store cannot be trusted as it is in memory; start the daemon again"
            );
            let _ = to.broken.set(why);
            to.put(|_| {});
        }
    }
}

fn run(shared: &Shared) {
    let mut queue = lock(&shared.queue);
    loop {
        if let Some(task) = queue.tasks.pop_front() {
            drop(queue);
            match task {
                Task::Io { blocks, io, to } => {
                    let id = io.id;
                    deliver(
                        &to,
                        "a read, write or flush",
                        || blocks.run(io.kind),
                        |all, result| {
                            all.ios.push(IoDone { id, result });
                        },
                    );
                }
                Task::Job { job, blocks, to } => {
                    let work = || match &blocks {
                        Some(blocks) => blocks.work(|| job.run()),
                        None => job.run(),
                    };
                    deliver(&to, "a job of the store", work, |all, done| {
                        all.jobs.push(done)
                    });
                }
            }
            queue = lock(&shared.queue);
        } else if queue.closed {
            return;
        } else {
            queue.idle += 1;
            queue = shared
                .more
                .wait(queue)
                .unwrap_or_else(|_| panic!("a worker panicked"));
            queue.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Without `catch_unwind` the thread dies, and its result is waited for for ever.
    #[test]
    fn a_panic_over_a_stores_work_is_said_to_its_daemon() {
        let to = Mailbox::new(Arc::new(Waker::new().expect("an event counter")));
        let mut put = 0;
        deliver(&to, "a job of the store", || 7, |_, result| put = result);
        assert_eq!((put, to.broken()), (7, None));
        deliver(
            &to,
            "a job of the store",
            || panic!("injected {}", 1),
            |_, ()| {},
        );
        assert!(to.take_ready(), "its daemon looks at it");
        let why = to.broken().expect("it panicked");
        assert!(
            why.contains("a job of the store panicked (injected 1)")
                && why.contains("start the daemon again"),
            "{why}"
        );
        // The flag was taken by a poll that ran when the worker panicked. Waiting for the flag was
        // waiting for ever.
        assert!(!to.is_ready());
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            sender.send(catch_unwind(AssertUnwindSafe(|| to.wait())).is_err())
        });
        let ended = receiver.recv_timeout(std::time::Duration::from_secs(60));
        assert_eq!(ended, Ok(true), "who opens a store does not wait for ever");
    }
}
