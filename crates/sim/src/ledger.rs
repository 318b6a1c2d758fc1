//! A record, outside the cluster, of everything that was ever committed: maps and activations.
//!
//! Invariants, checked at every epoch that any daemon shows:
//! 1. there are never two different maps of one epoch, in any daemon or incarnation;
//! 2. the deltas give the maps: applied here in order, they give the same digests;
//! 3. an interval is activated once; a second activation of it only adds members;
//! 4. of two successive activations of a PG, the later one has a member of the earlier one, which
//!    knows every acknowledged write.

use nacre_mon::Mon;
use nacre_types::{Entity, Epoch, Name, PgId};
use nacre_wire::map::{Activation, Digest, Fences, MapDelta, ProgramKind, SourceDigest};
use nacre_wire::{ClusterMap, Wire};
use std::collections::BTreeMap;

/// See the module head.
#[derive(Debug, Default)]
pub struct Ledger {
    digests: BTreeMap<Epoch, Digest>,
    newest: Option<ClusterMap>,
    activations: BTreeMap<PgId, Activation>,
    /// Activations not taken yet.
    fresh: Vec<(PgId, Activation)>,
    /// When each epoch was first seen.
    seen: BTreeMap<Epoch, u64>,
    /// Fences by the epochs that changed them; those not taken yet.
    fences: Vec<(Epoch, Fences)>,
    /// Activations of each class, in order: number and source.
    classes: BTreeMap<Name, Vec<(u64, SourceDigest)>>,
    /// A monitor has ended by itself: other monitors will show the last map that it reported.
    ended: bool,
    /// Maps that a daemon has and no monitor has shown yet.
    claimed: BTreeMap<Epoch, Digest>,
}

impl Ledger {
    /// The newest committed map shown by any monitor.
    #[must_use]
    pub const fn map(&self) -> Option<&ClusterMap> {
        self.newest.as_ref()
    }
    /// The epoch of that map.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.newest.as_ref().map_or(Epoch::NONE, |map| map.epoch)
    }

    /// When an epoch was first seen, in virtual nanoseconds.
    #[must_use]
    pub fn seen_at(&self, epoch: Epoch) -> Option<u64> {
        self.seen.get(&epoch).copied()
    }

    /// Activations committed since the last call.
    pub fn take_activations(&mut self) -> Vec<(PgId, Activation)> {
        std::mem::take(&mut self.fresh)
    }

    /// Changes of fences committed since the last call.
    pub fn take_fences(&mut self) -> Vec<(Epoch, Fences)> {
        std::mem::take(&mut self.fences)
    }

    /// Each activation of a class that was ever committed, in order: its number and its source.
    #[must_use]
    pub fn activations_of(&self, class: &Name) -> &[(u64, SourceDigest)] {
        self.classes.get(class).map_or(&[], Vec::as_slice)
    }

    /// A monitor has ended in the middle of a turn (it was removed, or its disk failed), and no
    /// longer shows what it reported in that turn.
    pub fn one_has_ended(&mut self) {
        self.ended = true;
    }

    /// Every map that any daemon had was committed.
    ///
    /// # Panics
    /// When one was not.
    pub fn all_was_shown(&self) {
        assert!(
            self.claimed.is_empty(),
            "maps that no monitor has shown: {:?}",
            self.claimed
        );
    }

    /// A daemon or client shows a map.
    pub fn see(&mut self, who: Entity, map: &ClusterMap) {
        if self.ended && map.epoch > self.epoch() {
            let claimed = *self.claimed.entry(map.epoch).or_insert(map.digest);
            assert!(
                claimed == map.digest,
                "{who} has another map of {}",
                map.epoch
            );
            return;
        }
        let known = self.digests.get(&map.epoch);
        assert!(
            known.is_some() || map.epoch == Epoch::NONE,
            "{who} has {}, which no monitor has shown",
            map.epoch
        );
        assert!(
            known.is_none_or(|known| *known == map.digest),
            "{who} has another map of {}",
            map.epoch
        );
    }

    /// A monitor shows what it has applied.
    pub fn see_monitor(&mut self, now: u64, who: Entity, mon: &Mon) {
        let map = mon.map();
        let Some(newest) = &mut self.newest else {
            self.digests.insert(map.epoch, map.digest);
            self.newest = Some(map.clone());
            note_classes(&mut self.classes, map);
            return;
        };
        if map.epoch > newest.epoch {
            let deltas = mon
                .state()
                .and_then(|state| state.deltas_after(newest.epoch));
            let deltas =
                deltas.unwrap_or_else(|| panic!("{who} forgot what followed {}", newest.epoch));
            for bytes in deltas {
                let delta = MapDelta::from_bytes(&bytes).expect("a committed delta decodes");
                let fenced = newest.fences.clone();
                newest
                    .apply(&delta)
                    .unwrap_or_else(|why| panic!("{who}: {}: {why}", delta.epoch));
                if newest.fences != fenced {
                    self.fences.push((newest.epoch, newest.fences.clone()));
                }
                self.digests.insert(newest.epoch, newest.digest);
                if let Some(claimed) = self.claimed.remove(&newest.epoch) {
                    assert!(
                        claimed == newest.digest,
                        "somebody has had another map of {}",
                        newest.epoch
                    );
                }
                self.seen.insert(newest.epoch, now);
                note_activations(&mut self.activations, newest, &mut self.fresh);
                note_classes(&mut self.classes, newest);
            }
            newest.check();
        }
        self.see(who, map);
    }
}

fn note_classes(known: &mut BTreeMap<Name, Vec<(u64, SourceDigest)>>, map: &ClusterMap) {
    for ((kind, name), program) in &map.programs {
        let Some(current) = program.current().filter(|_| *kind == ProgramKind::Class {}) else {
            continue;
        };
        let list = known.entry(name.clone()).or_default();
        let last = list.last().map_or(0, |(activation, _)| *activation);
        assert!(
            last <= program.activation,
            "{name}: activation {} after {last}",
            program.activation
        );
        if last < program.activation {
            list.push((program.activation, current.digest));
        }
    }
}

fn note_activations(
    known: &mut BTreeMap<PgId, Activation>,
    map: &ClusterMap,
    fresh: &mut Vec<(PgId, Activation)>,
) {
    known.retain(|pg, _| map.pgs.contains_key(pg));
    for (pg, record) in &map.pgs {
        let now = &record.activated;
        if now.interval == Epoch::NONE {
            continue;
        }
        let Some(before) = known.get(pg) else {
            known.insert(*pg, now.clone());
            fresh.push((*pg, now.clone()));
            continue;
        };
        let (same, stays) = (before.interval == now.interval, |osd| {
            now.members.contains(osd)
        });
        assert!(
            before.interval <= now.interval,
            "{pg}: activated {} after {}",
            now.interval,
            before.interval
        );
        assert!(
            !same || before.members.iter().all(stays),
            "{pg}: {} lost members: {before:?} {now:?}",
            now.interval
        );
        assert!(
            same || before.members.iter().any(stays),
            "{pg}: nobody of {before:?} is in {now:?}"
        );
        if before != now {
            known.insert(*pg, now.clone());
            fresh.push((*pg, now.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{ClientId, ClusterId};
    use nacre_wire::map::CrushSection;

    const CLIENT: Entity = Entity::Client(ClientId(1));

    fn map(epoch: u64) -> ClusterMap {
        let crush = CrushSection::parse("").expect("empty text");
        ClusterMap {
            epoch: Epoch(epoch),
            ..ClusterMap::empty(ClusterId(7), crush)
        }
    }

    /// A leader got a majority for a map, reported it to a client, and in the same turn learned
    /// that its own disk had failed (seed 1894): no monitor had shown the map yet, and the client
    /// was considered wrong.
    #[test]
    fn what_a_monitor_told_as_it_ended_others_have_to_show() {
        let told = || {
            let mut ledger = Ledger::default();
            ledger.one_has_ended();
            ledger.see(CLIENT, &map(55));
            ledger
        };
        told();
        let unproven = std::panic::catch_unwind(|| told().all_was_shown());
        assert!(unproven.is_err(), "no monitor has it");
        let never = std::panic::catch_unwind(|| Ledger::default().see(CLIENT, &map(55)));
        assert!(never.is_err(), "no monitor has ended");
    }
}
