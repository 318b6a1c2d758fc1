//! Blocking calls of librados: listings, rollbacks, registrations. A few threads wait for them, so
//! that no others have to.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

/// A job.
pub type Job = Box<dyn FnOnce() + Send>;

/// Number of threads.
const THREADS: usize = 4;
/// How long a client that leaves waits for jobs in progress.
const LEAVE_MAX: Duration = Duration::from_secs(2);

/// Threads that start with the first job, and end with the last owner.
#[derive(Default)]
pub struct Workers {
    jobs: Option<Sender<Job>>,
    /// Jobs that have not ended.
    open: Arc<AtomicUsize>,
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.jobs = None;
        // A process that ends while one of its threads is in librados crashes.
        let begun = Instant::now();
        while self.open.load(Ordering::SeqCst) > 0 && begun.elapsed() < LEAVE_MAX {
            sleep(Duration::from_millis(1));
        }
    }
}

impl Workers {
    /// Queues a job.
    pub fn run(&mut self, job: Job) {
        let jobs = self.jobs.get_or_insert_with(|| {
            let (sender, receiver) = channel::<Job>();
            let receiver = Arc::new(Mutex::new(receiver));
            for _ in 0..THREADS {
                let (receiver, open) = (receiver.clone(), self.open.clone());
                let wait = move || {
                    loop {
                        let next = receiver
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .recv();
                        match next {
                            Ok(job) => {
                                job();
                                open.fetch_sub(1, Ordering::SeqCst);
                            }
                            Err(_) => return,
                        }
                    }
                };
                // Without threads there is no cluster: the machine has run out of them, or of
                // memory.
                Builder::new()
                    .name("nacre-rados".to_owned())
                    .spawn(wait)
                    .expect("a thread can be started");
            }
            sender
        });
        self.open.fetch_add(1, Ordering::SeqCst);
        jobs.send(job)
            .expect("the threads wait as long as this lives");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_waits_for_what_is_under_way() {
        let mut workers = Workers::default();
        let ended = Arc::new(AtomicUsize::new(0));
        for _ in 0..2 * THREADS {
            let ended = ended.clone();
            workers.run(Box::new(move || {
                sleep(Duration::from_millis(20));
                ended.fetch_add(1, Ordering::SeqCst);
            }));
        }
        drop(workers);
        assert_eq!(ended.load(Ordering::SeqCst), 2 * THREADS);
    }
}
