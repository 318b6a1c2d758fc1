//! A store as a daemon's host keeps it: submissions in order, also when the store is busy; jobs on the workers.
//!
//! Invariant: the store sees submissions and reads in the order in which the role made them. When it says *busy*, that one and everything
//! after it waits here and is offered again after commits.

use crate::workers::{Mailbox, Task, WorkersHandle};
use nacre_store::{Event, Job, ObjectStore, Read, SubmitError, Token, Transaction, Usage};
use std::collections::VecDeque;
use std::sync::Arc;

/// Below this many bytes handed over and not committed the store is never busy (its own bound is megabytes), so the transaction
/// need not be kept for a second try.
const SURELY_TAKEN: usize = 256 << 10;

enum Waiting {
    Submit(Transaction, Token),
    Read(Read, Token),
}

/// See the module head.
pub struct Hosted {
    store: Box<dyn ObjectStore>,
    mailbox: Arc<Mailbox>,
    workers: WorkersHandle,
    waiting: VecDeque<Waiting>,
    /// Sizes of what was handed over and has not been committed, in order.
    handed: VecDeque<usize>,
    handed_bytes: usize,
    touched: bool,
    unkicked: bool,
    jobs: Vec<Job>,
    jobs_out: usize,
    jobs_done: Vec<nacre_store::JobDone>,
}

impl Hosted {
    pub fn new(store: Box<dyn ObjectStore>, mailbox: Arc<Mailbox>, workers: WorkersHandle) -> Self {
        Self {
            store,
            mailbox,
            workers,
            waiting: VecDeque::new(),
            handed: VecDeque::new(),
            handed_bytes: 0,
            touched: false,
            unkicked: false,
            jobs: Vec::new(),
            jobs_out: 0,
            jobs_done: Vec::new(),
        }
    }

    /// Takes a transaction.
    ///
    /// # Errors
    /// Why the daemon must stop.
    pub fn submit(&mut self, transaction: Transaction, token: Token) -> Result<(), SubmitError> {
        if self.waiting.is_empty() {
            self.offer(transaction, token)
        } else {
            self.waiting.push_back(Waiting::Submit(transaction, token));
            Ok(())
        }
    }

    pub fn read(&mut self, read: Read, token: Token) {
        if self.waiting.is_empty() {
            self.store.read(read, token);
            self.touched = true;
        } else {
            self.waiting.push_back(Waiting::Read(read, token));
        }
    }

    fn offer(&mut self, transaction: Transaction, token: Token) -> Result<(), SubmitError> {
        let size = transaction.size();
        let spare = (self.handed_bytes + size > SURELY_TAKEN).then(|| transaction.clone());
        match (self.store.submit(transaction, token), spare) {
            (Ok(()), _) => {
                self.handed.push_back(size);
                self.handed_bytes += size;
                self.touched = true;
                self.unkicked = true;
                Ok(())
            }
            (Err(SubmitError::Busy), Some(transaction)) => {
                self.waiting.push_front(Waiting::Submit(transaction, token));
                Ok(())
            }
            (Err(SubmitError::Busy), None) => {
                panic!("the store is busy with {} bytes in hand; it promises room for more", self.handed_bytes)
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Offers again what waits.
    fn offer_waiting(&mut self) -> Result<(), SubmitError> {
        while let Some(first) = self.waiting.pop_front() {
            match first {
                Waiting::Read(read, token) => {
                    self.store.read(read, token);
                    self.touched = true;
                }
                Waiting::Submit(transaction, token) => {
                    let before = self.waiting.len();
                    self.offer(transaction, token)?;
                    if self.waiting.len() > before {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether [`Self::poll`] may find something.
    pub fn is_ready(&self) -> bool {
        self.touched || self.mailbox.is_ready()
    }
    /// Whether it has nothing to do and nothing in flight.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.handed.is_empty() && !self.is_ready()
    }

    /// Appends what happened; to be called in every round of a wake-up.
    ///
    /// # Errors
    /// Why the daemon must stop.
    pub fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), SubmitError> {
        if !self.is_ready() {
            return Ok(());
        }
        let start = events.len();
        self.touched = false;
        loop {
            if self.mailbox.take_ready() && self.jobs_out > 0 {
                self.mailbox.take_jobs(&mut self.jobs_done);
                for done in self.jobs_done.drain(..) {
                    self.jobs_out -= 1;
                    self.store.on_job(done);
                }
            }
            self.store.poll(events);
            if !self.mailbox.is_ready() {
                break;
            }
        }
        let mut freed = false;
        for event in &events[start..] {
            if let Event::Committed(_) = event {
                // Commits come in order of submission.
                self.handed_bytes -= self.handed.pop_front().expect("what commits was handed over");
                freed = true;
            }
        }
        if freed && !self.waiting.is_empty() {
            self.offer_waiting()?;
        }
        self.begin_jobs();
        Ok(())
    }

    fn begin_jobs(&mut self) {
        self.store.jobs(&mut self.jobs);
        for job in self.jobs.drain(..) {
            self.jobs_out += 1;
            self.workers.begin(Task::Job { job, to: self.mailbox.clone() });
        }
    }

    /// One log write and one flush for everything submitted in this wake-up.
    pub fn kick(&mut self) {
        if !std::mem::take(&mut self.unkicked) {
            return;
        }
        self.store.kick();
        self.begin_jobs();
        self.touched = true;
    }

    pub fn usage(&self) -> Usage {
        self.store.usage()
    }

    /// Runs until `until` finds its event, blocking; for starting, before there is a reactor.
    pub fn run_until<T>(&mut self, mut until: impl FnMut(Event) -> Option<T>) -> Result<T, SubmitError> {
        let mut events = Vec::new();
        loop {
            self.kick();
            self.poll(&mut events)?;
            for event in events.drain(..) {
                if let Some(found) = until(event) {
                    return Ok(found);
                }
            }
            if !self.is_ready() {
                self.mailbox.wait();
            }
        }
    }
}
