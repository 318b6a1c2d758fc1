//! Shadow trees: for every device class, a copy of the hierarchy with only that class's devices
//! (`default~ssd`).
//!
//! A rule that takes `default class ssd` starts at the copy. The ids of the copies are inputs of
//! the draws, so they are part of the map: they are written to its text and kept when the trees are
//! rebuilt. New ones are the free ids nearest to -1, assigned in the order of `crushtool` (roots
//! from the lowest id up, per root class by class, children first).

use crate::bucket::{Alg, Bucket};
use crate::map::{CrushMap, ItemId};
use crate::weight::Weight;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Ids that shadow buckets had or that a text gives: (bucket, class number) → shadow.
pub(crate) type ShadowIds = BTreeMap<(ItemId, usize), ItemId>;

/// Why the shadow trees could not all be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShadowError {
    /// A uniform bucket's shadow would need items of the weight zero; use `straw2`.
    Uniform {
        /// The bucket.
        bucket: String,
    },
    /// A shadow id given in the text belongs to another bucket.
    IdTaken {
        /// The bucket whose shadow should have had it.
        bucket: String,
        /// The id.
        id: ItemId,
    },
    /// There is no free bucket id left.
    NoFreeId,
}

impl fmt::Display for ShadowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform { bucket } => {
                write!(
                    f,
                    "uniform bucket `{bucket}` cannot be restricted to a device class; change its `alg` to straw2"
                )
            }
            Self::IdTaken { bucket, id } => {
                write!(
                    f,
                    "the id {id} that `{bucket}` gives for a device class belongs to another bucket"
                )
            }
            Self::NoFreeId => f.write_str("there is no free bucket id left"),
        }
    }
}

impl CrushMap {
    /// Removes all shadow trees and returns the ids they had. The caller must adapt rules that
    /// start in one.
    pub(crate) fn drop_shadows(&mut self) -> ShadowIds {
        for shadow in std::mem::take(&mut self.shadow_of).into_keys() {
            self.remove(shadow);
        }
        std::mem::take(&mut self.class_shadows)
    }

    /// Builds a shadow tree per root and class. Stops at the first that cannot be built; the
    /// earlier ones are kept.
    pub(crate) fn build_shadows(&mut self, old: &ShadowIds) -> Result<(), ShadowError> {
        let reserved: BTreeSet<ItemId> = old.values().copied().collect();
        let mut next = -1;
        for root in self.roots() {
            for class in 0..self.classes.len() {
                self.shadow(root, class, old, &reserved, &mut next)?;
            }
        }
        Ok(())
    }

    /// Builds the shadow of one bucket, children first. The search for free ids continues at
    /// `next`.
    fn shadow(
        &mut self,
        of: ItemId,
        class: usize,
        old: &ShadowIds,
        reserved: &BTreeSet<ItemId>,
        next: &mut i32,
    ) -> Result<ItemId, ShadowError> {
        if let Some(shadow) = self.class_shadows.get(&(of, class)) {
            return Ok(*shadow); // a bucket with two parents
        }
        let original = self
            .bucket(of)
            .expect("shadows are made of buckets that exist");
        let (name, kind, alg) = (original.name.clone(), original.kind, original.alg);
        let mut items = Vec::new();
        for (item, weight) in original.items().collect::<Vec<_>>() {
            match item.device() {
                Some(device) => {
                    if self
                        .devices
                        .get(&device)
                        .is_some_and(|device| device.class == Some(class))
                    {
                        items.push((item, weight));
                    }
                }
                None => {
                    let child = self.shadow(item, class, old, reserved, next)?;
                    items.push((
                        child,
                        self.bucket(child).map_or(Weight::ZERO, Bucket::weight),
                    ));
                }
            }
        }
        if alg == Alg::Uniform && items.iter().any(|(_, weight)| *weight != Weight::ZERO) {
            return Err(ShadowError::Uniform { bucket: name });
        }
        let id = match old.get(&(of, class)) {
            Some(id) if self.bucket(*id).is_some() => {
                return Err(ShadowError::IdTaken {
                    bucket: name,
                    id: *id,
                });
            }
            Some(id) => *id,
            None => {
                while self.bucket(ItemId(*next)).is_some() || reserved.contains(&ItemId(*next)) {
                    *next -= 1;
                }
                ItemId(*next)
            }
        };
        if id < ItemId::BUCKET_MIN {
            return Err(ShadowError::NoFreeId);
        }
        let full_name = format!("{name}~{}", self.classes[class]);
        let shadow = Bucket::new(
            id,
            full_name,
            kind,
            alg,
            items,
            self.tunables.straw_calc_version,
        )
        .expect("a part of a bucket weighs no more than the whole, which was checked");
        self.insert(shadow);
        self.class_shadows.insert((of, class), id);
        self.shadow_of.insert(id, (of, class));
        Ok(id)
    }
}
