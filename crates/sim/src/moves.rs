//! Monitors that are removed and added again under the same id, with a new store, while everything
//! else continues.
//!
//! ```text
//!  mon rm ─▶ the map no longer has it ─▶ it ends, if it has not yet; its store is gone ─▶ mon add ─▶ the map has it ─▶ a new store starts, and joins
//! ```
//! A late order may remove it again: a monitor missing from the map is added again.

use crate::plan::MS;
use crate::world::{CLUSTER, Event, World};
use nacre_mon::Mon;
use nacre_types::{Entity, MonId};
use serde_json::json;
use std::collections::BTreeMap;

/// Most monitors moved in one run, not counting those that come back from a late order.
const MOVES_MAX: u32 = 4;

#[derive(Clone, Copy, Debug)]
enum Step {
    Leaving,
    Coming,
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Moves {
    now: Option<(MonId, Step)>,
    /// The stores of monitors that came back.
    stores: BTreeMap<MonId, u64>,
    /// How many came back, or are about to.
    pub count: u32,
}

impl World {
    /// Whether no move is in progress and every monitor is in the map.
    pub(crate) fn is_every_monitor_in(&self) -> bool {
        self.moves.now.is_none() && self.missing_monitor().is_none()
    }

    fn missing_monitor(&self) -> Option<MonId> {
        let map = self.ledger.map()?;
        (0..self.plan.mons)
            .map(MonId)
            .find(|mon| !map.mons.contains_key(mon))
    }

    /// Begins to remove and re-add a monitor.
    pub(crate) fn move_monitor(&mut self, mon: Entity) {
        let Entity::Mon(id) = mon else { return };
        if self.plan.mons < 3 || self.moves.now.is_some() || self.moves.count >= MOVES_MAX {
            return;
        }
        self.note(|| format!("{mon} is to go, and to come back with a new store"));
        self.moves.now = Some((id, Step::Leaving));
    }

    /// The operator's next step.
    pub(crate) fn move_monitors(&mut self) {
        let Some(map) = self.ledger.map().filter(|_| self.plan.moves) else {
            return;
        };
        let missing = self.missing_monitor().map(|mon| (mon, Step::Leaving));
        let Some((mon, step)) = self.moves.now.or(missing) else {
            return;
        };
        let known = map.mons.get(&mon).map(|info| info.store);
        let made = self.moves.stores.get(&mon).copied().unwrap_or(0);
        match (known, step) {
            (Some(store), Step::Leaving) => {
                self.order(
                    &json!({"command": "mon rm", "id": mon.0, "store": format!("{store:x}")}),
                );
            }
            (None, Step::Leaving) => {
                self.moves.now = Some((mon, Step::Coming));
                self.moves.count += 1;
                self.moves.stores.insert(mon, u64::from(self.moves.count));
                self.empty_monitor(mon, u64::from(self.moves.count));
            }
            (None, Step::Coming) => {
                let (address, store) = (format!("sim:mon{}", mon.0), format!("{made:x}"));
                self.order(
                    &json!({"command": "mon add", "id": mon.0, "address": address, "store": store}),
                );
            }
            // A late order admitted its former store.
            (Some(store), Step::Coming) if store != made => {
                self.moves.now = Some((mon, Step::Leaving))
            }
            (Some(_), Step::Coming) => {
                self.note(|| format!("{mon} comes with a new store"));
                self.moves.now = None;
                self.process(Entity::Mon(mon)).gone = false;
                self.after(50 * MS, Event::Restart(Entity::Mon(mon)));
            }
        }
    }

    /// It ends and gets an empty store.
    fn empty_monitor(&mut self, mon: MonId, store: u64) {
        let who = Entity::Mon(mon);
        self.crash(who);
        self.take_disk(who, Mon::bootstrap_joining(mon, store, CLUSTER));
    }
}
