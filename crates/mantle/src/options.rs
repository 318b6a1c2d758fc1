//! Limits of the mechanism, independent of the policy (USERS: why Mantle failed upstream, 1).

use nacre_policy::Budget;
use std::time::Duration;

/// Limits and hysteresis of one balancer. They are equal on every daemon of a service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Time between ticks. Reading a policy may take half of it. Default 10 s.
    pub tick: Duration,
    /// Instructions, memory and output of one tick's script. Default [`Budget::POLICY`].
    pub budget: Budget,
    /// Migration budget: fraction of its own load that a rank may give away per tick. The unused
    /// part accumulates, up to the whole load, so that a unit heavier than one tick's budget can
    /// still move. Default 0.5.
    pub load_fraction: f64,
    /// Migration budget: maximum number of units that move per tick. Default 64.
    pub units_max: usize,
    /// Hysteresis: a receiver's load must be below this rank's load by this fraction of it. Not
    /// applied in proxy mode or to units placed by name, where the policy wants the imbalance.
    /// Default 0.1.
    pub min_imbalance: f64,
    /// Hysteresis: number of ticks that a unit stays after it arrived. Default 3.
    pub rest_ticks: u64,
    /// Damping of ping-pong: number of ticks before a unit may return to the rank it came from;
    /// doubled for each earlier return. Default 12.
    pub return_ticks: u64,
    /// Fraction by which the chosen units may exceed what the policy asked for. Default 0.2, since
    /// Ceph's `mds_bal_need_max` is 1.2.
    pub overshoot: f64,
    /// Number of ticks that `nacre.series` covers. Default 64, at most 1024.
    pub series: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tick: Duration::from_secs(10),
            budget: Budget::POLICY,
            load_fraction: 0.5,
            units_max: 64,
            min_imbalance: 0.1,
            rest_ticks: 3,
            return_ticks: 12,
            overshoot: 0.2,
            series: 64,
        }
    }
}

impl Options {
    /// The values clamped to their bounds: an administrator may have entered anything.
    #[must_use]
    pub fn clamped(mut self) -> Self {
        let part = |value: f64, most: f64| {
            if value.is_nan() {
                0.0
            } else {
                value.clamp(0.0, most)
            }
        };
        self.load_fraction = part(self.load_fraction, 1.0);
        self.min_imbalance = part(self.min_imbalance, 1.0);
        self.overshoot = part(self.overshoot, 1.0);
        self.series = self.series.clamp(1, 1024);
        self
    }
}
