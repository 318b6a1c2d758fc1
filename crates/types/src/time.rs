//! The host's clock as plain values. Pure crates never read a clock; they get the time as an
//! argument.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A reading of one host's boot-time clock in nanoseconds. The clock continues while the machine
/// sleeps, and administrators cannot set it. Readings of different hosts are not comparable; only
/// distances on one host are meaningful.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The earliest reading.
    pub const ZERO: Self = Self(0);
    /// Later than every reading: "never".
    pub const MAX: Self = Self(u64::MAX);

    /// The time since `earlier`; zero if `earlier` is in the future.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;
    /// Saturates at [`Time::MAX`].
    fn add(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl Sub<Duration> for Time {
    type Output = Self;
    /// Saturates at [`Time::ZERO`].
    fn sub(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:09}",
            self.0 / 1_000_000_000,
            self.0 % 1_000_000_000
        )
    }
}
