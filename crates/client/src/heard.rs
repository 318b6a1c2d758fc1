//! Readings of OSDs' clocks, so that a request can state when it was first sent by the clock of the
//! receiving OSD.
//!
//! ```text
//!  OSD's clock    ── reading ────────────────────────────▶
//!                        ╲ (Undated)
//!  our clock      ── begun ── at ── begun ──────────────▶
//!                     └ reading − (at − begun), and drift  └ reading + (begun − at), less drift
//! ```
//! Invariant: [`Heard::date`] never returns a moment later than that clock's reading at `begun`.
//! The reading was taken before it arrived; transit time only makes the date earlier. An OSD that
//! has forgotten clients executes requests that are certainly newer than those
//! (`osd/src/pg/dedup.rs`). A date that is too early costs an operation its outcome; one that is
//! too late would execute it twice.
//!
//! The client's clock must continue while the machine sleeps.

use nacre_types::{OsdId, Time};
use nacre_wire::msg::client::Dated;
use std::collections::BTreeMap;
use std::time::Duration;

/// Two clocks may differ in speed by one part in this many (2,000 ppm, as leases assume).
const DRIFT_PART: u64 = 500;
/// Older readings are too inexact to be useful: 20 ms of drift.
const FRESH: Duration = Duration::from_secs(10);

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    clocks: BTreeMap<OsdId, (Dated, Time)>,
}

impl Heard {
    /// Records that an OSD's clock showed this reading at `at`.
    pub(crate) fn hear(&mut self, osd: OsdId, reading: Dated, at: Time) {
        self.clocks
            .retain(|_, (_, heard)| at.since(*heard) <= FRESH);
        self.clocks.insert(osd, (reading, at));
    }

    /// `begun` by the OSD's clock; nothing without a recent reading.
    pub(crate) fn date(&self, osd: OsdId, begun: Time, now: Time) -> Dated {
        let Some((Dated { process, reading }, at)) = self.clocks.get(&osd) else {
            return Dated::default();
        };
        if now.since(*at) > FRESH {
            return Dated::default();
        }
        let reading = if begun >= *at {
            let passed = begun.0 - at.0;
            reading.saturating_add(passed - passed.div_ceil(DRIFT_PART))
        } else {
            let passed = at.0 - begun.0;
            reading.saturating_sub(passed + passed.div_ceil(DRIFT_PART))
        };
        Dated {
            process: *process,
            reading,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With every rate within the bound and every delay of the reading, before and after, the date
    /// is never later than the truth, and not much earlier.
    #[test]
    fn a_date_is_never_later_than_the_truth() {
        const MS: u64 = 1_000_000;
        for ppm in [-2000i64, -500, 0, 500, 2000] {
            let theirs =
                |ours: u64| (ours as i64 + ours as i64 * ppm / 1_000_000) as u64 + 777 * MS;
            for delay in [0, 1, 3 * MS, 2000 * MS] {
                for begun in (0..40).map(|n| 5000 * MS + n * 100 * MS) {
                    let (read, mut heard) = (6000 * MS, Heard::default());
                    let at = Time(read + delay);
                    heard.hear(
                        OsdId(1),
                        Dated {
                            process: 5,
                            reading: theirs(read),
                        },
                        at,
                    );
                    let date = heard.date(OsdId(1), Time(begun), Time(begun.max(at.0)));
                    let truth = theirs(begun);
                    assert_eq!(date.process, 5);
                    assert!(
                        date.reading <= truth,
                        "{ppm} {delay} {begun}: {} after {truth}",
                        date.reading
                    );
                    assert!(
                        date.reading + delay + 20 * MS >= truth,
                        "{ppm} {delay} {begun}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_was_heard_long_ago_or_from_another_is_not_used() {
        let mut heard = Heard::default();
        heard.hear(
            OsdId(1),
            Dated {
                process: 5,
                reading: 100,
            },
            Time(0),
        );
        assert_eq!(heard.date(OsdId(2), Time(0), Time(0)), Dated::default());
        assert_eq!(
            heard.date(
                OsdId(1),
                Time(0),
                Time::ZERO + FRESH + Duration::from_nanos(1)
            ),
            Dated::default()
        );
    }
}
