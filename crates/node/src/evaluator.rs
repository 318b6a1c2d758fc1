//! Where operations are evaluated whose methods take too long for a daemon's own thread
//! (`osd::methods`): see `lanes.rs`.
//!
//! Budgets count steps, not time. For steps that take longer than they count, there is a clock as
//! well: the operation fails without effects and may be retried. The daemon's own thread has one
//! too ([`Clock::inline`]): an operation that it stops is evaluated here.

use crate::clock;
use crate::lanes::{Lanes, Slice, Work};
use nacre_mon::meta::programs::Programs;
use nacre_mon::meta::scripts::{Clocks, Scripts};
use nacre_osd::Patience;
use nacre_role::{Done, Job, Tools};
use nacre_types::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// An operation with less processor time than this never waits behind longer ones.
pub const SLICE: Duration = Duration::from_millis(100);
/// Maximum processor time of one operation: every other long operation of this daemon waits for it.
pub const LONGEST: Duration = Duration::from_secs(3);
/// Maximum time of one operation's methods on the daemon's own thread, while everything else waits.
const INLINE: Duration = Duration::from_millis(4);
/// Maximum time of the validators of one request, or of one trigger, on the leading monitor: a
/// tenth of the time it may be silent.
const META_REQUEST: Duration = Duration::from_millis(50);
/// After this time, a turn of the leading monitor takes no further request with programs.
const META_TURN: Duration = Duration::from_millis(50);

/// See the module head.
pub type Evaluator = Lanes<Arc<dyn Job>>;

impl Patience for Slice {
    /// The lane has already begun it.
    fn begin(&self) {}
    fn is_over(&self) -> bool {
        self.make_way();
        Self::is_over(self)
    }
}

impl Work for Arc<dyn Job> {
    type Done = Done;
    type Ticket = Self;
    type Engine = Tools;
    fn engine(clock: &Arc<Slice>) -> Tools {
        Tools::with_patience(clock.clone())
    }
    fn client(&self) -> u64 {
        Job::client(&**self).0
    }
    fn ticket(&self) -> Self {
        self.clone()
    }
    fn run(self, tools: &mut Tools) -> Done {
        Job::run(&*self, tools)
    }
    fn not_done(job: Self, why: String) -> Done {
        Job::not_done(&*job, why)
    }
}

/// The clock of evaluations on a daemon's own thread. Everything else waits meanwhile.
#[derive(Debug)]
pub struct Clock {
    limit: Duration,
    begun: AtomicU64,
}

impl Clock {
    pub const fn new(limit: Duration) -> Self {
        Self {
            limit,
            begun: AtomicU64::new(0),
        }
    }
    pub const fn inline() -> Self {
        Self::new(INLINE)
    }
}
impl Patience for Clock {
    fn begin(&self) {
        self.begun.store(clock::now().0, Relaxed);
    }
    fn is_over(&self) -> bool {
        self.is_over_by(1)
    }
    fn is_over_by(&self, times: u32) -> bool {
        clock::now().since(Time(self.begun.load(Relaxed))) > self.limit * times
    }
}

/// A monitor's validators and triggers, under its host's clocks.
pub fn scripts() -> Box<dyn Programs> {
    let clock = |limit| Arc::new(Clock::new(limit)) as Arc<dyn Patience>;
    Box::new(Scripts::with_clocks(Clocks {
        request: clock(META_REQUEST),
        turn: clock(META_TURN),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F34: a turn of the leader, and each request in it, have a clock that expires. (The waits are
    /// bounded: the test is about a clock that never expires.)
    #[test]
    fn a_monitors_clocks_run_out() {
        let mut programs = scripts();
        let request = programs
            .clock()
            .expect("a clock for who runs something else in a request");
        programs.begin_turn();
        programs.begin_request();
        let late = clock::now() + Duration::from_secs(60);
        while !programs.turn_is_over() || !request.is_over() {
            assert!(
                clock::now() < late,
                "turn {}, request {}",
                programs.turn_is_over(),
                request.is_over()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
