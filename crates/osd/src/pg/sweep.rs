//! Targets of backfill that have no room: what the group no longer has is removed from them,
//! wherever it lies (DESIGN §3, full: recovery that frees space always works).
//!
//! ```text
//!  positions   first ──── cursor ── range ── range ── range ── last
//!                            └ compared one after the other; what the primary has not is removed from the target. The cursor stays
//! ```
//! Backfill towards a nearly full member stops. One that had been away, and had objects that were
//! deleted meanwhile, was full of them and stayed so: only backfill would have removed them
//! (simulator, small devices, seeds 2851, 2955 and 3033). A sweep is a comparison (`backfill.rs`)
//! that pushes nothing.
//!
//! A sweep that found nothing to remove is repeated after longer and longer pauses: it looks at
//! every object of the group.

use super::Lead;
use super::range::Work;
use crate::shared::Shared;
use bytes::Bytes;
use nacre_types::{OsdId, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// Pauses between two sweeps of one target, in retry intervals: some twelve seconds, up to some
/// twelve minutes.
const PAUSE: (u32, u32) = (25, 1600);

/// Sweeps of a group's targets.
#[derive(Debug, Default)]
pub(super) struct Sweeps(BTreeMap<OsdId, Sweep>);

#[derive(Debug, Default)]
struct Sweep {
    /// Where the next range begins, if not at the target's cursor.
    at: Option<Bytes>,
    /// Something was removed since the first.
    removed: bool,
    /// In retry intervals.
    pause: u32,
    not_before: Time,
}

impl Sweeps {
    /// Of these targets, with their cursors, which is to be swept now, and from where.
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

    /// A range of a sweep was compared, and so much removed.
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
    /// A range of a sweep is done: everything in it that the group has not is gone from the target.
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
