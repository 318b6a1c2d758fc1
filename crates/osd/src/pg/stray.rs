//! An OSD that the map does not name for the PG: it reports that data is here, or erases it.

use super::Interval;
use super::erase::Erasing;
use super::local::Local;
use crate::purpose::{Purpose, StoreOutcome};
use crate::shared::Shared;
use nacre_types::Time;

/// The state of an OSD that the map does not name.
#[derive(Debug)]
pub struct Stray {
    /// When to report to the primary next that data is here.
    pub(super) notify_at: Time,
    pub(super) erasing: Erasing,
}

impl Stray {
    pub(super) const fn new(notify_at: Time) -> Self {
        Self {
            notify_at,
            erasing: Erasing::No,
        }
    }

    /// Erases the next page, or reports to the primary that data is here.
    pub(super) fn on_tick(&mut self, local: &Local, at: &Interval, sh: &mut Shared) {
        if self.erasing != Erasing::No {
            self.erasing.tick(local, at, sh);
        } else if self.notify_at <= sh.now && local.exists {
            self.notify_at = sh.now + sh.config.timing.beacon_interval * 2;
            if let Some(primary) = at.primary().filter(|osd| *osd != sh.me()) {
                at.submit(sh, Vec::new(), Purpose::InfoBarrier(primary));
            }
        }
    }

    pub(super) fn on_store(
        &mut self,
        purpose: Purpose,
        outcome: StoreOutcome,
        local: &mut Local,
        at: &Interval,
        sh: &mut Shared,
    ) {
        match (purpose, outcome) {
            (Purpose::Erased, _) => self.erasing.on_erased(at, sh),
            (Purpose::EraseList, StoreOutcome::Read(reply)) => {
                self.erasing.on_list(reply, local, at, sh);
            }
            // Of our role before the PG was to be erased.
            _ => {}
        }
    }
}
