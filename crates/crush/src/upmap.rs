//! Exceptions to CRUSH: placement groups pinned to other devices, to correct the unevenness of the
//! pseudo-random placement.
//!
//! A full exception replaces the whole list, an item exception swaps single devices. As in Ceph 16:
//! an exception whose target is out is ignored, a swap is ignored if its target is already in the
//! list, and swaps apply after a full exception, in their order.

use crate::map::{DeviceId, ItemId};
use crate::mapper::Reweights;
use crate::weight::Weight;
use nacre_types::PoolId;
use std::collections::BTreeMap;

/// A placement group as the key of exceptions: pool and seed.
pub type Group = (PoolId, u32);

/// All exceptions of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upmaps {
    /// Whole lists; `None` is a hole.
    pub full: BTreeMap<Group, Vec<Option<DeviceId>>>,
    /// Swaps (from, to), applied in order.
    pub items: BTreeMap<Group, Vec<(DeviceId, DeviceId)>>,
}

impl Upmaps {
    /// Applies the exceptions of a PG to the result of CRUSH. Devices missing in `reweights` are
    /// out.
    pub fn apply(&self, group: Group, reweights: &Reweights, raw: &mut Vec<ItemId>) {
        let out = |device: &DeviceId| reweights.get(*device) == Weight::ZERO;
        if let Some(list) = self.full.get(&group) {
            if list.iter().flatten().any(out) {
                return; // with its swaps, which were meant for this list
            }
            raw.clear();
            raw.extend(
                list.iter()
                    .map(|device| device.map_or(ItemId::NONE, ItemId::from)),
            );
        }
        for (from, to) in self.items.get(&group).into_iter().flatten() {
            swap(raw, *from, *to, reweights);
        }
    }
}

/// Applies one swap, if it is in force.
pub(crate) fn swap(raw: &mut [ItemId], from: DeviceId, to: DeviceId, reweights: &Reweights) {
    if reweights.get(to) == Weight::ZERO || raw.iter().any(|item| item.device() == Some(to)) {
        return;
    }
    if let Some(item) = raw.iter_mut().find(|item| item.device() == Some(from)) {
        *item = to.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::OsdId;

    #[test]
    fn exceptions_apply_as_ceph_applies_them() {
        let mut reweights = Reweights::default();
        for id in 0..10 {
            reweights.set(OsdId(id), if id == 9 { Weight::ZERO } else { Weight::ONE });
        }
        let group = (PoolId(1), 7);
        let up = |full: Option<&[u32]>, items: &[(u32, u32)]| {
            let mut upmaps = Upmaps::default();
            if let Some(full) = full {
                upmaps
                    .full
                    .insert(group, full.iter().map(|id| Some(OsdId(*id))).collect());
            }
            upmaps.items.insert(
                group,
                items
                    .iter()
                    .map(|(from, to)| (OsdId(*from), OsdId(*to)))
                    .collect(),
            );
            let mut raw = vec![ItemId(0), ItemId(1), ItemId(2)];
            upmaps.apply(group, &reweights, &mut raw);
            raw.iter().map(|item| item.0).collect::<Vec<_>>()
        };
        assert_eq!(up(None, &[(1, 5)]), [0, 5, 2]);
        assert_eq!(up(None, &[(1, 2)]), [0, 1, 2], "already there");
        assert_eq!(up(None, &[(1, 9)]), [0, 1, 2], "out");
        assert_eq!(up(None, &[(1, 11)]), [0, 1, 2], "unknown");
        assert_eq!(up(None, &[(7, 5)]), [0, 1, 2], "nothing to swap");
        assert_eq!(up(None, &[(0, 4), (1, 0)]), [4, 0, 2], "in order");
        assert_eq!(up(Some(&[5, 6, 7]), &[(6, 8)]), [5, 8, 7]);
        assert_eq!(
            up(Some(&[5, 6, 9]), &[(1, 8)]),
            [0, 1, 2],
            "a list with an out device, and its swaps, are ignored"
        );
    }
}
