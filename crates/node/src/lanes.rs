//! Threads for long jobs, scheduled fairly among clients.
//!
//! ```text
//!  begin ─▶ short: client with the least usage first ──▶ a slice each ──done──▶ take
//!                                                              └─over─▶ long: the same, with the full time limit ──▶ take
//! ```
//! One thread for each of the two lanes: short jobs never wait behind long ones, and many jobs of
//! one client do not delay a job of another. The number of jobs that a client may queue is bounded;
//! beyond it, jobs are answered with an error that says so.
//!
//! Time is processor time: on a machine that is busy with other things a job gets a tenth of it or
//! less, and would be stopped before it had done anything, however often it is retried. But others
//! wait for it: after [`STARVED`] times as much wall-clock time it is stopped, too.
//!
//! No job can take down a thread unnoticed. A job that panics is answered as one that may be
//! retried, and its engine is discarded. A job that hangs where its clock cannot stop it is
//! answered in the same way, and its thread is abandoned; while more than [`LOST_MAX`] hang, jobs
//! are refused. The daemon continues: if scripts could stop daemons, they would stop one after the
//! other. A job that checks its clock does not hang, however long it takes. After the machine slept
//! every job seems to hang for a moment: a thread that comes back no longer counts as lost.

use crate::clock;
use crate::wake::Waker;
use nacre_types::Time;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of waiting jobs per client.
const QUEUED_MAX: usize = 128;
/// Maximum number of abandoned threads.
const LOST_MAX: usize = 4;
/// A job that has neither ended nor checked its clock for its limit plus this time counts as hung.
const HUNG: Duration = Duration::from_secs(10);
/// Longest time a job keeps its processor from waiting threads.
const YIELD_EVERY: Duration = Duration::from_micros(100);
/// A job is stopped after this many times its limit of wall-clock time.
const STARVED: u32 = 20;
/// After this time a job's share of the processor is known.
const SHARE_KNOWN: Duration = Duration::from_millis(5);
/// Nice value of these threads: the daemons' threads have priority.
const NICE: i32 = 10;
/// Maximum number of clients remembered without a queued job.
const REMEMBERED_MAX: usize = 4096;

/// A kind of job.
pub trait Work: Clone + Send + 'static {
    /// Its result.
    type Done: Send;
    /// Identifies the job.
    type Ticket: Clone + Send;
    /// Executes it; created on its thread.
    type Engine;
    /// Makes an engine that checks `clock` for whether to continue.
    fn engine(clock: &Arc<Slice>) -> Self::Engine;
    fn client(&self) -> u64;
    fn ticket(&self) -> Self::Ticket;
    fn run(self, engine: &mut Self::Engine) -> Self::Done;
    /// The result of a job that was not executed and had no effect.
    fn not_done(ticket: Self::Ticket, why: String) -> Self::Done;
}

/// The clock of a lane: the time limit of the current job. Started and checked on the job's thread.
#[derive(Debug)]
pub struct Slice {
    /// Limit of processor time.
    limit: Duration,
    begun: AtomicU64,
    /// The thread's processor time at the start of the job, in nanoseconds.
    cpu_begun: AtomicU64,
    /// When its thread last yielded.
    yielded: AtomicU64,
    /// Whether a check has found the limit exceeded.
    ended: AtomicBool,
    /// When a check last found the limit not exceeded.
    asked: AtomicU64,
}

impl Slice {
    pub const fn new(limit: Duration) -> Self {
        const fn zero() -> AtomicU64 {
            AtomicU64::new(0)
        }
        Self {
            limit,
            begun: zero(),
            cpu_begun: zero(),
            yielded: zero(),
            ended: AtomicBool::new(false),
            asked: zero(),
        }
    }
    /// Starts the clock for a job.
    pub fn start(&self) {
        let now = clock::now().0;
        self.begun.store(now, Relaxed);
        self.asked.store(now, Relaxed);
        self.cpu_begun.store(clock::thread_cpu_ns(), Relaxed);
        self.ended.store(false, Relaxed);
    }
    /// Processor time of the job.
    fn cpu_used(&self) -> Duration {
        Duration::from_nanos(clock::thread_cpu_ns().saturating_sub(self.cpu_begun.load(Relaxed)))
    }
    /// Yields to other threads of the machine periodically. Priority alone does not: a running
    /// thread may keep its processor for some milliseconds while a daemon's thread has been woken.
    /// Where the job gets next to nothing anyway, others do not wait for it; since each yield costs
    /// it its turn, it would not make progress at all.
    pub fn make_way(&self) {
        let now = clock::now();
        if now.since(Time(self.yielded.load(Relaxed))) <= YIELD_EVERY {
            return;
        }
        let taken = now.since(Time(self.begun.load(Relaxed)));
        if taken < SHARE_KNOWN || gets_its_share(self.cpu_used(), taken) {
            std::thread::yield_now();
        }
        self.yielded.store(clock::now().0, Relaxed);
    }
    /// Whether the job has used up its time.
    pub fn is_over(&self) -> bool {
        let now = clock::now();
        let over = is_enough(
            self.limit,
            now.since(Time(self.begun.load(Relaxed))),
            || self.cpu_used(),
        );
        if over {
            self.ended.store(true, Relaxed);
        } else {
            self.asked.store(now.0, Relaxed);
        }
        over
    }
    /// When the job last checked the clock within its limit.
    fn asked(&self) -> Time {
        Time(self.asked.load(Relaxed))
    }
}

/// Whether a job that began `taken` ago is over its limit. Reading the processor clock is ten times
/// as expensive.
fn is_enough(limit: Duration, taken: Duration, used: impl Fn() -> Duration) -> bool {
    taken > limit && (taken > limit * STARVED || used() > limit)
}

/// Whether a job has had so large a share of the processor that others may wait for it: next to a
/// thread that is always busy, [`NICE`] leaves it a tenth.
fn gets_its_share(used: Duration, taken: Duration) -> bool {
    used * 16 >= taken
}

// ── who is next ─────────────────────────────────────────────────────────────────────────

/// Jobs by client: the next job is that of the client with the least usage.
struct Fair<J> {
    shares: BTreeMap<u64, Share<J>>,
    /// Usage of the last client served: absent clients accumulate no credit.
    floor: u64,
}
struct Share<J> {
    jobs: VecDeque<J>,
    used: u64,
}

impl<J> Default for Fair<J> {
    fn default() -> Self {
        Self {
            shares: BTreeMap::new(),
            floor: 0,
        }
    }
}

impl<J> Fair<J> {
    /// Queues a job; returns it if the client's queue is full.
    fn push(&mut self, client: u64, job: J) -> Result<(), J> {
        let floor = self.floor;
        let share = self.shares.entry(client).or_insert_with(|| Share {
            jobs: VecDeque::new(),
            used: floor,
        });
        if share.jobs.len() >= QUEUED_MAX {
            return Err(job);
        }
        share.used = share.used.max(floor);
        share.jobs.push_back(job);
        Ok(())
    }

    fn pop(&mut self) -> Option<(u64, J)> {
        let waiting = self
            .shares
            .iter_mut()
            .filter(|(_, share)| !share.jobs.is_empty());
        let (client, share) = waiting.min_by_key(|(_, share)| share.used)?;
        self.floor = self.floor.max(share.used);
        Some((*client, share.jobs.pop_front().expect("it waits")))
    }

    fn has_jobs(&self) -> bool {
        self.shares.values().any(|share| !share.jobs.is_empty())
    }

    /// Charges a client for a job, in nanoseconds.
    fn charge(&mut self, client: u64, used: u64) {
        let floor = self.floor;
        if let Some(share) = self.shares.get_mut(&client) {
            share.used += used;
        }
        self.shares
            .retain(|_, share| !share.jobs.is_empty() || share.used > floor);
        if self.shares.len() > REMEMBERED_MAX {
            self.shares.retain(|_, share| !share.jobs.is_empty());
        }
    }

    fn clear(&mut self) {
        self.shares.clear();
    }
}

// ── lanes ───────────────────────────────────────────────────────────────────────────────

struct Running<J: Work> {
    /// Number of the job in this lane.
    number: u64,
    ticket: J::Ticket,
    clock: Arc<Slice>,
}

struct Lane<J: Work> {
    limit: Duration,
    queue: Fair<J>,
    running: Option<Running<J>>,
    begun: u64,
    /// Whether a thread serves it; the first job starts one.
    served: bool,
}

struct State<J: Work> {
    lanes: [Lane<J>; 2],
    done: Vec<J::Done>,
    lost: usize,
    closed: bool,
}

struct Shared<J: Work> {
    state: Mutex<State<J>>,
    more: Condvar,
    waker: Arc<Waker>,
}

const NO_THREAD: &str = "this daemon has no thread for long calls (the system gives it none, or calls hang in too many); nothing happened, it may be tried again";

impl<J: Work> Shared<J> {
    /// Whether a thread serves the lane; starts one if needed.
    fn serve_with(self: &Arc<Self>, state: &mut State<J>, at: usize) -> bool {
        let lane = &mut state.lanes[at];
        lane.served = lane.served || (state.lost <= LOST_MAX && spawn(self, at));
        lane.served
    }
    /// Code that may panic does not run under this lock.
    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module head. When it is dropped, the threads end by themselves after the current job.
pub struct Lanes<J: Work> {
    shared: Arc<Shared<J>>,
}

impl<J: Work> Lanes<J> {
    /// `short` is the limit of the short lane, `long` the maximum time of a job. `waker` is woken
    /// when a job is done.
    pub fn new(waker: Arc<Waker>, short: Duration, long: Duration) -> Self {
        let lane = |limit| Lane {
            limit,
            queue: Fair::default(),
            running: None,
            begun: 0,
            served: false,
        };
        let state = State {
            lanes: [lane(short), lane(long)],
            done: Vec::new(),
            lost: 0,
            closed: false,
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                more: Condvar::new(),
                waker,
            }),
        }
    }

    /// Queues a job.
    pub fn begin(&self, job: J) {
        let mut state = self.shared.lock();
        let (client, ticket) = (job.client(), job.ticket());
        let refused = if !self.shared.serve_with(&mut state, 0) {
            NO_THREAD
        } else if state.lanes[0].queue.push(client, job).is_err() {
            "too many of this client's long calls wait here already; nothing happened, it may be tried again"
        } else {
            drop(state);
            self.shared.more.notify_all();
            return;
        };
        state.done.push(J::not_done(ticket, refused.to_owned()));
        drop(state);
        self.shared.waker.wake();
    }

    /// Takes the results.
    pub fn take(&self, into: &mut Vec<J::Done>) {
        into.append(&mut self.shared.lock().done);
    }

    /// Abandons hanging threads; call it periodically. Returns a human-readable line when that
    /// begins.
    pub fn watch(&self, now: Time) -> Option<String> {
        let mut state = self.shared.lock();
        let lost = state.lost;
        for at in 0..state.lanes.len() {
            let lane = &mut state.lanes[at];
            let late = lane.limit + HUNG;
            if let Some(hung) = lane
                .running
                .take_if(|running| now.since(running.clock.asked()) > late)
            {
                lane.served = false;
                let why =
                    "it hung where no clock could end it; nothing happened, it may be tried again"
                        .to_owned();
                state.done.push(J::not_done(hung.ticket, why));
                state.lost += 1;
                self.shared.waker.wake();
            }
            if state.lanes[at].queue.has_jobs() && !self.shared.serve_with(&mut state, at) {
                while let Some((_, job)) = state.lanes[at].queue.pop() {
                    state
                        .done
                        .push(J::not_done(job.ticket(), NO_THREAD.to_owned()));
                }
                self.shared.waker.wake();
            }
        }
        let begins = lost <= LOST_MAX && state.lost > LOST_MAX;
        begins.then(|| {
            let hang = state.lost;
            format!("{hang} calls hang in its threads and cannot be ended: it refuses long calls until one ends, or it is started again")
        })
    }
}

impl<J: Work> Drop for Lanes<J> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        state.lanes.iter_mut().for_each(|lane| lane.queue.clear());
        drop(state);
        self.shared.more.notify_all();
    }
}

fn spawn<J: Work>(shared: &Arc<Shared<J>>, at: usize) -> bool {
    let theirs = shared.clone();
    let name = ["nacre-evaluate", "nacre-long"][at].to_owned();
    std::thread::Builder::new()
        .name(name)
        .spawn(move || serve(&theirs, at))
        .is_ok()
}

fn serve<J: Work>(shared: &Arc<Shared<J>>, at: usize) {
    // Linux keeps priorities per thread. If it is refused, the thread keeps its normal priority.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
    let slice = Arc::new(Slice::new(shared.lock().lanes[at].limit));
    let mut engine = None;
    let mut state = shared.lock();
    loop {
        if state.closed {
            return;
        }
        let Some((client, job)) = state.lanes[at].queue.pop() else {
            state = shared
                .more
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let ticket = job.ticket();
        let lane = &mut state.lanes[at];
        lane.begun += 1;
        let number = lane.begun;
        slice.start();
        lane.running = Some(Running {
            number,
            ticket: ticket.clone(),
            clock: slice.clone(),
        });
        drop(state);

        let again = (at == 0).then(|| job.clone());
        let result = catch_unwind(AssertUnwindSafe(|| {
            job.run(engine.get_or_insert_with(|| J::engine(&slice)))
        }));
        if result.is_err() {
            // The engine may be in an inconsistent state.
            engine = None;
        }

        state = shared.lock();
        if state.lanes[at]
            .running
            .take_if(|running| running.number == number)
            .is_none()
        {
            // It was answered meanwhile, and another thread serves the lane.
            state.lost -= 1;
            return;
        }
        state.lanes[at]
            .queue
            .charge(client, slice.cpu_used().as_nanos() as u64);
        let done = match (result, again) {
            (Err(_), _) => {
                let why = "a fault of this daemon's own ended it (its log says where); nothing happened, it may be tried again";
                J::not_done(ticket, why.to_owned())
            }
            (Ok(_), Some(job)) if slice.ended.load(Relaxed) => {
                if shared.serve_with(&mut state, 1) {
                    match state.lanes[1].queue.push(client, job) {
                        Ok(()) => {
                            shared.more.notify_all();
                            continue;
                        }
                        Err(_) => {
                            let why = "too many of this client's long calls wait here already; nothing happened, it may be tried again";
                            J::not_done(ticket, why.to_owned())
                        }
                    }
                } else {
                    J::not_done(ticket, NO_THREAD.to_owned())
                }
            }
            (Ok(done), _) => done,
        };
        state.done.push(done);
        shared.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::mpsc::{Receiver, Sender, channel};

    #[derive(Clone)]
    enum Do {
        Fine,
        /// Fails on an engine that was used before.
        First,
        Panic,
        Fail,
        /// Runs until its clock stops it.
        Spin,
        /// Hangs without checking the clock, until the test releases it.
        Hang(Arc<Mutex<Receiver<()>>>),
        /// Counts its executions.
        Count(Arc<AtomicU64>),
    }
    #[derive(Clone)]
    struct Job {
        client: u64,
        number: u32,
        what: Do,
    }
    type Said = (u32, Result<&'static str, String>);
    impl Work for Job {
        type Done = Said;
        type Ticket = u32;
        type Engine = (Arc<Slice>, u32);
        fn engine(clock: &Arc<Slice>) -> Self::Engine {
            (clock.clone(), 0)
        }
        fn client(&self) -> u64 {
            self.client
        }
        fn ticket(&self) -> u32 {
            self.number
        }
        fn run(self, engine: &mut Self::Engine) -> Said {
            engine.1 += 1;
            let result = match self.what {
                Do::Fine => Ok("done"),
                Do::First => {
                    if engine.1 == 1 {
                        Ok("first")
                    } else {
                        Err("not the first".to_owned())
                    }
                }
                Do::Fail => Err("its own error".to_owned()),
                Do::Panic => panic!("injected"),
                Do::Spin => {
                    while !engine.0.is_over() {}
                    Err("out of time".to_owned())
                }
                Do::Hang(until) => {
                    let _ = until.lock().expect("the test's own").recv();
                    Ok("woke up")
                }
                Do::Count(runs) => {
                    runs.fetch_add(1, Relaxed);
                    Ok("counted")
                }
            };
            (self.number, result)
        }
        fn not_done(ticket: u32, why: String) -> Said {
            (ticket, Err(why))
        }
    }

    fn lanes() -> Lanes<Job> {
        let waker = Arc::new(Waker::new().expect("an event counter"));
        Lanes::new(waker, Duration::from_millis(20), Duration::from_millis(200))
    }
    /// Waits for that many answers.
    fn answers(lanes: &Lanes<Job>, count: usize) -> Vec<Said> {
        let begun = clock::now();
        let mut all = Vec::new();
        while all.len() < count {
            assert!(
                clock::now().since(begun) < Duration::from_secs(60),
                "{all:?}"
            );
            lanes.take(&mut all);
            std::thread::sleep(Duration::from_millis(1));
        }
        all
    }
    fn await_running(lanes: &Lanes<Job>) {
        let begun = clock::now();
        while lanes.shared.lock().lanes[0].running.is_none() {
            assert!(
                clock::now().since(begun) < Duration::from_secs(60),
                "no thread takes the job"
            );
            std::thread::yield_now();
        }
    }
    fn job(client: u64, number: u32, what: Do) -> Job {
        Job {
            client,
            number,
            what,
        }
    }

    // Without `catch_unwind` the second answer never comes.
    #[test]
    fn a_job_that_panics_fails_or_spins_is_answered_and_the_next_is_done() {
        let lanes = lanes();
        for (number, what) in [
            (1, Do::Panic),
            (2, Do::Fail),
            (3, Do::Spin),
            (4, Do::Panic),
            (5, Do::Fine),
        ] {
            lanes.begin(job(1, number, what));
        }
        let mut all = answers(&lanes, 5);
        all.sort();
        let texts: Vec<_> = all
            .iter()
            .map(|(_, said)| said.as_ref().copied().unwrap_or_else(String::as_str))
            .collect();
        assert!(
            texts[0].contains("may be tried again") && texts[3].contains("may be tried again"),
            "{texts:?}"
        );
        assert_eq!(
            (texts[1], texts[2], texts[4]),
            ("its own error", "out of time", "done")
        );
    }

    /// Beside three busy processes on two processors a call got a fiftieth of the time, was stopped
    /// after three seconds, retried, and stopped again, for minutes: it was answered only when the
    /// other processes had ended. The time of a job is its processor time.
    #[test]
    fn a_job_that_is_kept_waiting_is_not_ended_for_it() {
        let ms = Duration::from_millis;
        let enough = |taken, used| is_enough(ms(20), ms(taken), || ms(used));
        assert!(!enough(19, 19) && enough(21, 21) && !enough(300, 19) && enough(300, 21));
        assert!(
            enough(401, 5),
            "what waits for it has waited for long enough"
        );
        // It does not yield to others that are scheduled before it anyway.
        assert!(gets_its_share(ms(5), ms(10)) && !gets_its_share(ms(1), ms(20)));
        // The clock counts this thread's time: sleeping costs nothing.
        let slice = Slice::new(ms(1_000));
        slice.start();
        std::thread::sleep(ms(1_100));
        assert!(!slice.is_over() && slice.cpu_used() < ms(1_000));
    }

    /// A panic leaves inconsistent state in its engine: a client's method would see another
    /// client's partial state.
    #[test]
    fn an_engine_on_which_a_job_panicked_is_not_used_again() {
        let lanes = lanes();
        for (what, said) in [
            (Do::Fine, "done"),
            (Do::First, "not the first"),
            (Do::Panic, ""),
            (Do::First, "first"),
        ] {
            lanes.begin(job(1, 1, what));
            let answer = answers(&lanes, 1).remove(0).1;
            let text = answer.as_ref().copied().unwrap_or_else(String::as_str);
            assert!(text == said || said.is_empty(), "{text}");
        }
    }

    /// The thread for long jobs waited for the next one and was not notified: a second long job
    /// waited until another one was queued.
    #[test]
    fn a_long_job_is_done_however_long_its_lane_was_idle() {
        let lanes = lanes();
        for number in 0..3 {
            lanes.begin(job(1, number, Do::Spin));
            assert_eq!(
                answers(&lanes, 1),
                [(number, Err("out of time".to_owned()))]
            );
        }
    }

    /// One client's call was stopped by the clock, and from then on each short call of any client
    /// was run a second time, behind the long ones.
    #[test]
    fn after_a_long_job_short_ones_are_run_once() {
        let (lanes, runs) = (lanes(), Arc::<AtomicU64>::default());
        for number in 0..4 {
            let what = if number == 1 {
                Do::Spin
            } else {
                Do::Count(runs.clone())
            };
            lanes.begin(job(1, number, what));
            assert_eq!(answers(&lanes, 1)[0].0, number);
        }
        assert_eq!(runs.load(Relaxed), 3);
    }

    #[test]
    fn a_job_that_hangs_is_answered_and_its_thread_left_behind() {
        let lanes = lanes();
        let (wake, until): (Sender<()>, _) = channel();
        lanes.begin(job(1, 1, Do::Hang(Arc::new(Mutex::new(until)))));
        lanes.begin(job(1, 2, Do::Fine));
        await_running(&lanes);
        let late = clock::now() + HUNG + Duration::from_secs(1);
        assert_eq!(lanes.watch(late), None);
        let all = answers(&lanes, 2);
        assert!(
            all[0].1.as_ref().is_err_and(|why| why.contains("hung")),
            "{all:?}"
        );
        assert_eq!(all[1], (2, Ok("done")));
        // Late, without a recipient: it is not answered twice.
        wake.send(()).expect("it hangs there");
        lanes.begin(job(1, 3, Do::Fine));
        assert_eq!(answers(&lanes, 1), [(3, Ok("done"))]);
    }

    /// On a busy machine three seconds of processor time take a minute: a job that checks its clock
    /// can be stopped, so it does not hang.
    #[test]
    fn a_job_that_asks_its_clock_does_not_hang() {
        let lanes = lanes();
        let (wake, until): (Sender<()>, _) = channel();
        lanes.begin(job(1, 1, Do::Hang(Arc::new(Mutex::new(until)))));
        await_running(&lanes);
        let clock = lanes.shared.lock().lanes[0]
            .running
            .as_ref()
            .expect("it runs")
            .clock
            .clone();
        let (begun, late) = (clock.asked(), Duration::from_millis(20) + HUNG);
        // It checks ten seconds later.
        clock
            .asked
            .store((begun + Duration::from_secs(10)).0, Relaxed);
        assert_eq!(lanes.watch(begun + late + Duration::from_secs(5)), None);
        assert!(
            lanes.shared.lock().lanes[0].running.is_some(),
            "it asked since it began"
        );
        assert_eq!(lanes.watch(begun + late + Duration::from_secs(11)), None);
        assert!(
            lanes.shared.lock().lanes[0].running.is_none(),
            "and not since then"
        );
        wake.send(()).expect("it hangs there");
    }

    /// There was no thread to replace a hung one: jobs in its lane waited until another long job
    /// was queued.
    #[test]
    fn a_lane_without_a_thread_gets_one_later() {
        let lanes = lanes();
        assert!(
            lanes.shared.lock().lanes[0]
                .queue
                .push(1, job(1, 7, Do::Fine))
                .is_ok()
        );
        assert_eq!(lanes.watch(clock::now()), None);
        assert_eq!(answers(&lanes, 1), [(7, Ok("done"))]);
    }

    /// A job counted as hung because the machine had slept, and ended a moment later. It was
    /// counted for ever: with the fifth one the OSD stopped.
    #[test]
    fn a_thread_that_comes_back_is_not_lost() {
        let lanes = lanes();
        for number in 0..=LOST_MAX as u32 {
            let (wake, until) = channel();
            lanes.begin(job(1, number, Do::Hang(Arc::new(Mutex::new(until)))));
            await_running(&lanes);
            let late = clock::now() + HUNG + Duration::from_secs(1);
            assert_eq!(lanes.watch(late), None, "{number} came back");
            wake.send(()).expect("it waits");
            // Its thread has ended when only the lane's current one is left.
            let begun = clock::now();
            while Arc::strong_count(&lanes.shared) > 2 {
                assert!(
                    clock::now().since(begun) < Duration::from_secs(60),
                    "it does not end"
                );
                std::thread::yield_now();
            }
        }
    }

    /// (Found by reading the code.) The fifth call that hung stopped the daemon, and its client
    /// went on to the next one.
    #[test]
    fn a_daemon_in_which_everything_hangs_refuses_long_calls_until_one_ends() {
        let lanes = lanes();
        let mut wakes = Vec::new();
        for number in 0..=LOST_MAX as u32 {
            let (wake, until) = channel();
            wakes.push(wake);
            lanes.begin(job(1, number, Do::Hang(Arc::new(Mutex::new(until)))));
            await_running(&lanes);
            if number == LOST_MAX as u32 {
                lanes.begin(job(2, 50, Do::Fine));
            }
            let late = clock::now() + HUNG + Duration::from_secs(1);
            assert_eq!(lanes.watch(late).is_some(), number == LOST_MAX as u32);
        }
        lanes.begin(job(2, 51, Do::Fine));
        let refused = |said: &Said| {
            said.0 >= 50 && said.1.as_ref().is_err_and(|why| why.contains("no thread"))
        };
        assert_eq!(
            answers(&lanes, LOST_MAX + 3)
                .iter()
                .filter(|said| refused(said))
                .count(),
            2
        );
        assert_eq!(lanes.watch(clock::now()), None, "it is said once");
        wakes.remove(0).send(()).expect("it waits");
        let begun = clock::now();
        while lanes.shared.lock().lost > LOST_MAX {
            assert!(
                clock::now().since(begun) < Duration::from_secs(60),
                "it does not come back"
            );
            std::thread::yield_now();
        }
        lanes.begin(job(2, 52, Do::Fine));
        assert_eq!(answers(&lanes, 1), [(52, Ok("done"))]);
    }

    // In order of arrival it would be 0, 1, 2, 10.
    #[test]
    fn who_has_used_least_is_next_and_nobody_saves_up() {
        let mut fair = Fair::default();
        for number in 0..3 {
            fair.push(1, number).expect("room");
        }
        fair.push(2, 10).expect("room");
        let mut order = Vec::new();
        while let Some((client, number)) = fair.pop() {
            order.push(number);
            fair.charge(client, 100);
        }
        assert_eq!(order, [0, 10, 1, 2]);
        // A client that was away begins at the others' usage.
        fair.push(1, 3).expect("room");
        fair.push(3, 20).expect("room");
        fair.push(3, 21).expect("room");
        let (first, _) = fair.pop().expect("three wait");
        fair.charge(first, 250);
        let (second, _) = fair.pop().expect("two wait");
        assert_ne!(first, second);
    }

    #[test]
    fn what_a_client_may_queue_is_bounded() {
        let mut fair = Fair::default();
        for number in 0..QUEUED_MAX {
            fair.push(1, number).expect("room");
        }
        assert_eq!(fair.push(1, 1_000), Err(1_000));
        assert_eq!(fair.push(2, 1_000), Ok(()));
    }

    // One client's long job exceeds a slice; another client's short ones are done meanwhile.
    #[test]
    fn a_short_job_does_not_wait_for_long_ones() {
        let lanes = lanes();
        for number in 0..20 {
            lanes.begin(job(1, number, Do::Spin));
        }
        lanes.begin(job(2, 100, Do::Fine));
        let first = answers(&lanes, 1);
        assert_eq!(
            first[0],
            (100, Ok("done")),
            "all of the other client's jobs take longer than a slice"
        );
    }

    /// (Planted by a reviewer: waiting jobs were dropped.) Each of many clients gets its turn, and
    /// idle clients are forgotten.
    #[test]
    fn of_many_clients_each_has_its_turn_and_none_is_remembered_for_ever() {
        let mut fair = Fair::default();
        for client in 0..5_000 {
            assert!(fair.push(client, client).is_ok());
        }
        let mut done = BTreeSet::new();
        while let Some((client, job)) = fair.pop() {
            assert!(client == job && done.insert(client));
            fair.charge(client, 100);
        }
        assert_eq!(done.len(), 5_000);
        for client in 5_000..15_000 {
            assert!(fair.push(client, client).is_ok());
            fair.pop().expect("it waits");
            fair.charge(client, 100);
            assert!(
                fair.shares.len() <= REMEMBERED_MAX + 1,
                "{}",
                fair.shares.len()
            );
        }
    }
}
