//! CPU use of processes, and of other processes on the machine.

use rustix::time::{ClockId, clock_gettime};
use std::fs;

/// Nanoseconds of CPU time that this process has used, all threads, user and system.
pub fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Total busy time of all processors since the machine started, in seconds.
pub fn machine_busy_s() -> f64 {
    fs::read_to_string("/proc/stat")
        .ok()
        .and_then(|stat| busy_ticks(&stat))
        .unwrap_or(0) as f64
        / 100.0
}

/// User, nice, system, interrupts.
fn busy_ticks(stat: &str) -> Option<u64> {
    let ticks: Vec<u64> = stat
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .map_while(|tick| tick.parse().ok())
        .collect();
    let [user, nice, system, _idle, _waiting, interrupts, soft, ..] = ticks[..] else {
        return None;
    };
    Some(user + nice + system + interrupts + soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_processors_are_not_busy() {
        assert_eq!(
            busy_ticks("cpu  10 1 5 1000 500 2 3 4 0 0\ncpu0 1 1 1 1\n"),
            Some(21)
        );
        assert_eq!(busy_ticks("nonsense"), None);
    }

    #[test]
    fn work_uses_cpu() {
        let before = cpu_ns();
        while cpu_ns() == before {
            std::hint::spin_loop();
        }
    }
}
