//! The host's clocks. The only place in Nacre that reads one.

use nacre_types::Time;
use rustix::time::{ClockId, clock_gettime};

fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    // Neither field is negative for these clocks, and 584 years fit.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The boot-time clock: it also advances while the machine sleeps, and no administrator sets it.
/// Read it after receiving the input to be processed.
#[must_use]
pub fn now() -> Time {
    Time(nanoseconds(ClockId::Boottime))
}

/// Processor time of the process since its start: user and system, all threads, in nanoseconds.
#[must_use]
pub fn cpu_ns() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

/// Processor time of the calling thread since its start, in nanoseconds. A system call: some 200
/// ns, ten times [`now`].
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// For tests: the error of a process's wall clock, in milliseconds. The clock is read only once, at
/// its start.
const SKEW: &str = "NACRE_CLOCK_SKEW_MS";

/// The wall clock at [`Time::ZERO`], in milliseconds since 1970. Used only to stamp human-readable
/// lines.
#[must_use]
pub fn unix_ms_at_zero() -> u64 {
    let wall = nanoseconds(ClockId::Realtime).saturating_sub(now().0) / 1_000_000;
    let skew = std::env::var(SKEW).ok().and_then(|skew| skew.parse().ok());
    wall.saturating_add_signed(skew.unwrap_or(0))
}
