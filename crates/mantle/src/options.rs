//! What the mechanism allows, whatever the policy says (USERS: why Mantle failed upstream, 1).

use nacre_policy::Budget;
use std::time::Duration;

/// Bounds and hysteresis of one balancer. Every daemon of a service has the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Time between ticks. Reading a policy may take half of it. Default 10 s.
    pub tick: Duration,
    /// Instructions, memory and output of one tick's script. Default [`Budget::POLICY`].
    pub budget: Budget,
    /// Migration budget: part of its own load that a rank may give away per tick. What a tick does
    /// not use is kept, up to the whole load, so that a unit heavier than one tick's budget can
    /// still go. Default 0.5.
    pub load_fraction: f64,
    /// Migration budget: most units that go per tick. Default 64.
    pub units_max: usize,
    /// Hysteresis: who gets load must have less than ours by this part of ours. Not asked in proxy
    /// mode, nor of placed units: there imbalance is what the policy wants. Default 0.1.
    pub min_imbalance: f64,
    /// Hysteresis: ticks that a unit stays after it came. Default 3.
    pub rest_ticks: u64,
    /// Damping of ping-pong: ticks before a unit may go back to where it came from; doubled for
    /// each time it did so before. Default 12.
    pub return_ticks: u64,
    /// Part by which the chosen units may exceed what the policy asked for. Default 0.2, as Ceph's
    /// `mds_bal_need_max` is 1.2.
    pub overshoot: f64,
    /// Ticks that `nacre.series` looks back. Default 64, at most 1024.
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
    /// Values within their bounds: what an administrator typed may be anything.
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
