//! Targets of backfill without space: objects that the PG no longer has are removed from them, at
//! any position (DESIGN §3, full: recovery that frees space always works).
//!
//! ```text
//!  positions   first ──── cursor ── range ── range ── range ── last
//!                            └ compared one after the other; objects that the primary lacks are removed from the target. The cursor stays
//! ```
//! Backfill towards a nearly full member stops. A member that had been away was filled with objects
//! that had been deleted meanwhile, and stayed full: only backfill would have removed them
//! (simulator, small devices, seeds 2851, 2955 and 3033). A sweep is a comparison (`backfill.rs`)
//! that pushes nothing.
//!
//! A sweep that found nothing to remove is repeated after increasing pauses: it reads every object
//! of the PG.

use super::Lead;
use super::range::Work;
use crate::shared::Shared;
use bytes::Bytes;
use nacre_types::{OsdId, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// Pauses between two sweeps of one target, in retry intervals: from about twelve seconds to about
/// twelve minutes.
const PAUSE: (u32, u32) = (25, 1600);

/// Sweeps of a PG's targets.
#[derive(Debug, Default)]
pub(super) struct Sweeps(BTreeMap<OsdId, Sweep>);

#[derive(Debug, Default)]
struct Sweep {
    /// The beginning of the next range, unless it is the target's cursor.
    at: Option<Bytes>,
    /// Something was removed since the first range.
    removed: bool,
    /// In retry intervals.
    pause: u32,
    not_before: Time,
}

impl Sweeps {
    /// The target to be swept next, of these targets with their cursors, and the position.
    pub(super) fn next(
        &self,
        mut targets: impl Iterator<Item = (OsdId, Bytes)>,
        now: Time,
    ) -> Option<(OsdId, Bytes)> {
        targets.find_map(|(osd, cursor)| match self.0.get(&osd) {
            None => Some((osd, cursor)),
            Some(sweep) if sweep.not_before > now => None,
            Some(sweep) => Some((osd, sweep.at.clone().unwrap_or_default().max(cursor))),
        })
    }

    /// A range of a sweep was compared. `end`: the position of the next range; `removed`: whether
    /// objects were removed.
    fn compared(
        &mut self,
        target: OsdId,
        end: Option<Bytes>,
        removed: bool,
        now: Time,
        retry: Duration,
    ) {
        let sweep = self.0.entry(target).or_default();
        sweep.removed |= removed;
        sweep.at = end;
        if sweep.at.is_none() {
            let found = std::mem::take(&mut sweep.removed);
            sweep.pause = if found {
                PAUSE.0
            } else {
                (sweep.pause * 2).clamp(PAUSE.0, PAUSE.1)
            };
            sweep.not_before = now + retry * sweep.pause;
        }
    }
}

impl Lead<'_> {
    /// A range of a sweep is done: everything in it that the PG no longer has is removed from the
    /// target.
    pub(super) fn end_swept_range(&mut self, sh: &mut Shared) {
        let (now, retry) = (sh.now, sh.config.timing.retry_interval);
        let primary = &mut *self.primary;
        let Some(Work {
            target,
            end,
            held,
            removed,
            ..
        }) = primary.backfill.work.take()
        else {
            return;
        };
        sh.counters.borders.swept += removed as u64;
        primary
            .backfill
            .sweeps
            .compared(target, end, removed > 0, now, retry);
        self.release_range(held, sh);
        self.start_backfill(sh);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_go_on_where_they_were_and_pause_at_the_end() {
        let (retry, mut sweeps) = (Duration::from_millis(500), Sweeps::default());
        let targets = || {
            [
                (OsdId(1), Bytes::from_static(b"b")),
                (OsdId(2), Bytes::from_static(b"a")),
            ]
            .into_iter()
        };
        let at = |ms: u64| Time(ms * 1_000_000);
        assert_eq!(
            sweeps.next(targets(), at(0)),
            Some((OsdId(1), Bytes::from_static(b"b")))
        );
        sweeps.compared(OsdId(1), Some(Bytes::from_static(b"k")), true, at(0), retry);
        assert_eq!(
            sweeps.next(targets(), at(0)),
            Some((OsdId(1), Bytes::from_static(b"k")))
        );
        sweeps.compared(OsdId(1), None, false, at(0), retry);
        assert_eq!(
            sweeps.next(targets(), at(1)),
            Some((OsdId(2), Bytes::from_static(b"a"))),
            "the other's turn"
        );
        sweeps.compared(OsdId(2), None, false, at(1), retry);
        assert_eq!(sweeps.next(targets(), at(12_000)), None);
        assert_eq!(
            sweeps.next(targets(), at(12_500)).map(|(osd, _)| osd),
            Some(OsdId(1))
        );
        for _ in 0..20 {
            sweeps.compared(OsdId(1), None, false, at(0), retry);
        }
        assert_eq!(sweeps.0[&OsdId(1)].not_before, at(800_000), "not for ever");
    }
}
