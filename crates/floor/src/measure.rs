//! Measuring: the counters are read after the warm-up, and again at the end.

use crate::frame::Body;
use crate::usage;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Warm-up before the measurement, if the measurement is at least as long.
const WARM_UP: Duration = Duration::from_millis(300);
/// A load without progress for this long hangs.
pub const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Result of a load while it was measured.
#[derive(Debug)]
pub struct Outcome {
    /// Operations that ended.
    pub ops: u64,
    /// Duration of the measurement.
    pub seconds: f64,
    /// Latency of each operation, in tenths of microseconds; sorted.
    pub latencies: Vec<u32>,
    /// CPU time of the client and each OSD, in microseconds.
    pub cpu_us: Vec<f64>,
    /// Number of processors that other processes kept busy.
    pub others_cpus: f64,
    /// Number of groups of all logs, and of updates in them.
    pub groups: [u64; 2],
}

/// Counters of all processes at one time.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Nanoseconds of CPU time of each OSD.
    pub osds_ns: Vec<u64>,
    /// Number of groups of all logs, and of updates in them.
    pub groups: [u64; 2],
}

impl Counters {
    /// Computes them from the replies of the OSDs, in their order.
    pub fn of(used: &[Body]) -> Self {
        Self {
            osds_ns: used.iter().map(|body| body.version).collect(),
            groups: [
                used.iter().map(|body| body.object).sum(),
                used.iter().map(|body| body.group).sum(),
            ],
        }
    }
}

struct Mark {
    at: Instant,
    client_ns: u64,
    busy_s: f64,
    counters: Counters,
}

/// Schedule and counters of a measurement.
pub struct Clock {
    begun: Instant,
    length: Duration,
    first: Option<Mark>,
    ops: u64,
    latencies: Vec<u32>,
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Continue the load.
    Load,
    /// Continue, and read the counters: [`Clock::start`].
    Start,
    /// End: [`Clock::end`].
    End,
}

impl Clock {
    /// Measures for `length`.
    pub fn new(length: Duration) -> Self {
        Self {
            begun: Instant::now(),
            length,
            first: None,
            ops: 0,
            latencies: Vec::new(),
        }
    }

    /// The action at `now`.
    pub fn phase(&self, now: Instant) -> Phase {
        match &self.first {
            None if now >= self.begun + WARM_UP.min(self.length) => Phase::Start,
            // Without an operation there would be no figures.
            Some(first) if now >= first.at + self.length && self.ops > 0 => Phase::End,
            _ => Phase::Load,
        }
    }

    /// Everything counts from here on.
    pub fn start(&mut self, counters: Counters) {
        let (client_ns, busy_s) = (usage::cpu_ns(), usage::machine_busy_s());
        self.first = Some(Mark {
            at: Instant::now(),
            client_ns,
            busy_s,
            counters,
        });
    }

    /// An operation ended.
    pub fn done(&mut self, latency: Duration) {
        if self.first.is_some() {
            self.ops += 1;
            self.latencies
                .push(u32::try_from(latency.as_nanos() / 100).unwrap_or(u32::MAX));
        }
    }

    /// Result of the measurement.
    pub fn end(mut self, counters: &Counters) -> Outcome {
        let (now, client_ns, busy_s) = (Instant::now(), usage::cpu_ns(), usage::machine_busy_s());
        let first = self.first.expect("the end follows the start");
        let us = |now: u64, then: u64| (now - then) as f64 / 1e3;
        let mut cpu_us = vec![us(client_ns, first.client_ns)];
        cpu_us.extend(
            counters
                .osds_ns
                .iter()
                .zip(&first.counters.osds_ns)
                .map(|(now, then)| us(*now, *then)),
        );
        let seconds = (now - first.at).as_secs_f64();
        let ours_s = cpu_us.iter().sum::<f64>() / 1e6;
        self.latencies.sort_unstable();
        Outcome {
            ops: self.ops,
            seconds,
            latencies: self.latencies,
            others_cpus: ((busy_s - first.busy_s - ours_s) / seconds).max(0.0),
            cpu_us,
            groups: [0, 1].map(|at| counters.groups[at] - first.counters.groups[at]),
        }
    }
}

impl Outcome {
    /// The figures as JSON.
    pub fn json(&self, size: usize) -> Value {
        let ops = self.ops.max(1) as f64;
        let all_us: f64 = self.cpu_us.iter().sum();
        let per_s = self.ops as f64 / self.seconds;
        json!({
            "ops": self.ops,
            "seconds": rounded(self.seconds),
            "ops_per_s": rounded(per_s),
            "mb_per_s": rounded(per_s * size as f64 / 1e6),
            "p50_us": self.percentile(50),
            "p99_us": self.percentile(99),
            "cpu_us_per_op": rounded(all_us / ops),
            "client_us_per_op": rounded(self.cpu_us[0] / ops),
            "osds_us_per_op": rounded((all_us - self.cpu_us[0]) / ops),
            "flushes_per_op": rounded(self.groups[0] as f64 / ops),
            "updates_per_flush": rounded(self.groups[1] as f64 / self.groups[0].max(1) as f64),
            "others_cpus": rounded(self.others_cpus),
        })
    }

    /// Latency percentile in microseconds; `None` without operations.
    fn percentile(&self, percent: usize) -> Option<f64> {
        let last = self.latencies.len().checked_sub(1)?;
        Some(f64::from(self.latencies[(self.latencies.len() * percent / 100).min(last)]) / 10.0)
    }
}

fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_per_operation_and_of_what_was_measured_alone() {
        let mut clock = Clock::new(Duration::ZERO);
        clock.done(Duration::from_secs(9));
        assert_eq!(clock.phase(clock.begun), Phase::Start);
        clock.length = WARM_UP * 9;
        assert_eq!(clock.phase(clock.begun), Phase::Load);
        assert_eq!(clock.phase(clock.begun + WARM_UP), Phase::Start);
        clock.length = Duration::ZERO;
        clock.start(Counters {
            osds_ns: vec![1_000, 0, 0],
            groups: [1, 1],
        });
        assert_eq!(
            clock.phase(Instant::now()),
            Phase::Load,
            "nothing has ended yet"
        );
        for micros in [30, 10, 20, 40] {
            clock.done(Duration::from_micros(micros));
        }
        assert_eq!(clock.phase(Instant::now()), Phase::End);
        let outcome = clock.end(&Counters {
            osds_ns: vec![41_000, 0, 40_000],
            groups: [3, 9],
        });
        let json = outcome.json(4096);
        let field = |name: &str| json[name].as_f64().expect(name);
        assert_eq!(
            (field("ops"), field("p50_us"), field("p99_us")),
            (4.0, 30.0, 40.0)
        );
        assert_eq!(
            (
                field("osds_us_per_op"),
                field("flushes_per_op"),
                field("updates_per_flush")
            ),
            (20.0, 0.5, 4.0)
        );
        assert!(outcome.cpu_us[0] >= 0.0);
    }
}
