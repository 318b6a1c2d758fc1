//! The host's clocks. The only place in Nacre that reads one.

use nacre_types::Time;
use rustix::time::{ClockId, clock_gettime};

fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    // Neither field is negative for these clocks, and 584 years fit.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The boot-time clock: goes on while the machine sleeps, and no administrator sets it. To be read
/// after the input in hand was received.
#[must_use]
pub fn now() -> Time {
    Time(nanoseconds(ClockId::Boottime))
}

/// Processor time of the whole process since it began, user and system, all threads, in
/// nanoseconds.
#[must_use]
pub fn cpu_ns() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

/// Processor time of the calling thread since it began, in nanoseconds. A system call: some 200 ns,
/// ten times [`now`].
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// For tests: by how many milliseconds a process's wall clock is wrong. The clock is read at its
/// start and never again.
const SKEW: &str = "NACRE_CLOCK_SKEW_MS";

/// The wall clock at [`Time::ZERO`], in milliseconds since 1970. Only stamps lines for people.
#[must_use]
pub fn unix_ms_at_zero() -> u64 {
    let wall = nanoseconds(ClockId::Realtime).saturating_sub(now().0) / 1_000_000;
    let skew = std::env::var(SKEW).ok().and_then(|skew| skew.parse().ok());
    wall.saturating_add_signed(skew.unwrap_or(0))
}
