//! An OSD that the map does not name for the group: it tells that something is here, or erases it.

use super::Interval;
use super::erase::Erasing;
use super::local::Local;
use crate::awaited::{Awaited, StoreOutcome};
use crate::shared::Shared;
use nacre_types::Time;

/// The state of an OSD that the map does not name.
#[derive(Debug)]
pub struct Stray {
    /// When to tell the primary next that there is something here.
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

    /// Takes the next page of what is to go, or tells the primary that something is here.
    pub(super) fn on_tick(&mut self, local: &Local, at: &Interval, sh: &mut Shared) {
        if self.erasing != Erasing::No {
            self.erasing.tick(local, at, sh);
        } else if self.notify_at <= sh.now && local.exists {
            self.notify_at = sh.now + sh.config.timing.beacon_interval * 2;
            if let Some(primary) = at.primary().filter(|osd| *osd != sh.me()) {
                at.submit(sh, Vec::new(), Awaited::InfoBarrier(primary));
            }
        }
    }

    pub(super) fn on_store(
        &mut self,
        awaited: Awaited,
        outcome: StoreOutcome,
        local: &mut Local,
        at: &Interval,
        sh: &mut Shared,
    ) {
        match (awaited, outcome) {
            (Awaited::Erased, _) => self.erasing.on_erased(at, sh),
            (Awaited::EraseList, StoreOutcome::Read(reply)) => {
                self.erasing.on_list(reply, local, at, sh);
            }
            // Of what we were before the group was to be erased.
            _ => {}
        }
    }
}
