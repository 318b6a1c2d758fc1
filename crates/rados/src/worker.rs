//! What librados can only do while one waits: listings, rollbacks, registrations. A few threads
//! wait, so that nobody else has to.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

/// A piece of work.
pub type Job = Box<dyn FnOnce() + Send>;

/// So many wait at a time.
const THREADS: usize = 4;

/// Threads that are started with the first job, and end with the last owner.
#[derive(Default)]
pub struct Workers {
    jobs: Option<Sender<Job>>,
}

impl Workers {
    /// Runs a job when its turn comes.
    pub fn run(&mut self, job: Job) {
        let jobs = self.jobs.get_or_insert_with(|| {
            let (sender, receiver) = channel::<Job>();
            let receiver = Arc::new(Mutex::new(receiver));
            for _ in 0..THREADS {
                let receiver = receiver.clone();
                let wait = move || {
                    loop {
                        let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
                        match next {
                            Ok(job) => job(),
                            Err(_) => return,
                        }
                    }
                };
                // Without threads there is no cluster: the machine is out of them, or of memory.
                Builder::new().name("nacre-rados".to_owned()).spawn(wait).expect("a thread can be started");
            }
            sender
        });
        jobs.send(job).expect("the threads wait as long as this lives");
    }
}
