//! Where operations go whose methods take longer than a daemon's own thread should
//! (`osd::methods`): see `lanes.rs`.
//!
//! Budgets are counted, not timed; for what little counts less than it takes there is a clock
//! besides: the operation fails without effects and may be tried again. The daemon's own thread has
//! one too ([`Clock::inline`]): what it ends is evaluated here.

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

/// An operation that takes less of a processor's time never waits behind those that are not.
pub const SLICE: Duration = Duration::from_millis(100);
/// Longest that one operation is evaluated, of a processor's time: every other long one of this
/// daemon waits for it.
pub const LONGEST: Duration = Duration::from_secs(3);
/// Longest that one operation's methods have the daemon's own thread, with everything else waiting.
const INLINE: Duration = Duration::from_millis(4);
/// Longest that the validators of one request, or one trigger, may take of the leading monitor: a
/// tenth of what it may be silent.
const META_REQUEST: Duration = Duration::from_millis(50);
/// After so long, a turn of the leading monitor takes no further request with programs.
const META_TURN: Duration = Duration::from_millis(50);

/// See the module head.
pub type Evaluator = Lanes<Arc<dyn Job>>;

impl Patience for Slice {
    /// The lane has begun it already.
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

/// The clock of what is evaluated on a daemon's own thread. Its time is everybody's: all else
/// waits.
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

    /// F34: a turn of the leader, and each request in it, have a clock that runs out. (Bounded
    /// waits: a clock that never does is what this is about.)
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
