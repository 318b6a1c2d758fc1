//! The CRUSH map: devices, the hierarchy of buckets above them, rules, tunables.
//!
//! ```text
//!  names ──▶ ItemId ≥ 0  device ──▶ class
//!        └─▶ ItemId < 0  bucket ──▶ items (ItemId), weights
//!                          │ one shadow per device class (`default~ssd`): the same bucket with only that class below
//!                          ▼
//!  rules: take bucket [class] → choose … → emit
//! ```
//! Invariants, established by [`crate::text::parse`] and every edit through `CrushMap::seal`:
//! 1. Every item of a bucket exists; a bucket lists another at most once; nothing contains itself;
//!    nesting is at most [`DEPTH_MAX`].
//! 2. Ids are in [`ItemId::BUCKET_MIN`]`..`[`ItemId::DEVICE_END`]; types of buckets are above zero
//!    and have a name.
//! 3. `class_shadows` and the shadow buckets refer to each other.
//! 4. Every item that a rule takes exists.

use crate::bucket::Bucket;
use crate::weight::Weight;
use nacre_types::OsdId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A device, identified by the number of its OSD.
pub type DeviceId = OsdId;

/// Maximum nesting of buckets.
pub const DEPTH_MAX: usize = 64;
/// Maximum number of results of one mapping.
pub const REPLICAS_MAX: usize = 1024;
/// Maximum value of any `tries` setting: a map must not be able to stall its readers.
pub const TRIES_MAX: u32 = 100_000;

/// A node of the hierarchy: devices count from 0 up, buckets from -1 down. [`ItemId::NONE`] is a
/// hole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId(pub i32);

impl ItemId {
    /// No item was found for this position.
    pub const NONE: Self = Self(0x7fff_ffff);
    /// Position not yet decided (inside the mapper only).
    pub(crate) const UNDECIDED: Self = Self(0x7fff_fffe);
    /// The lowest accepted bucket number; an index is allocated up to it.
    pub const BUCKET_MIN: Self = Self(-(1 << 20));
    /// Device numbers are below this.
    pub const DEVICE_END: Self = Self(1 << 20);

    /// The device, if it is one.
    #[must_use]
    pub fn device(self) -> Option<DeviceId> {
        (self.0 >= 0 && self < Self::DEVICE_END).then_some(OsdId(self.0 as u32))
    }

    /// The bucket's slot in the index; `None` for devices and holes.
    pub(crate) fn bucket_index(self) -> Option<usize> {
        (self.0 < 0).then_some(!self.0 as usize)
    }
}

impl From<DeviceId> for ItemId {
    /// # Panics
    /// When the number is past [`ItemId::DEVICE_END`]; map edits refuse such numbers earlier.
    fn from(id: DeviceId) -> Self {
        assert!(
            id.0 < Self::DEVICE_END.0 as u32,
            "{id} is past the largest device number"
        );
        Self(id.0 as i32)
    }
}
/// The number; `-` for a hole.
impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            f.write_str("-")
        } else {
            self.0.fmt(f)
        }
    }
}
impl fmt::Debug for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Parameters of the descent. All of them affect placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// Retries in the same bucket after a collision.
    pub choose_local_tries: u32,
    /// Number of tries by permutation of that bucket after those.
    pub choose_local_fallback_tries: u32,
    /// Retries of a whole descent.
    pub choose_total_tries: u32,
    /// Whether the leaf below a chosen bucket gets only one try, and a failure retries the outer
    /// choice.
    pub chooseleaf_descend_once: u32,
    /// How strongly the outer attempt number varies the leaf's draw: 0: not; 1: by the full number;
    /// n: by the number shifted right by n - 1.
    pub chooseleaf_vary_r: u32,
    /// Whether a replica's leaf draw is independent of the number of preceding replicas.
    pub chooseleaf_stable: u32,
    /// Version of the length computation of `straw` buckets, 0 or 1.
    pub straw_calc_version: u32,
    /// Bit n allows [`crate::bucket::Alg::ALL`]`[n - 1]` in new buckets. Not used by mappings.
    pub allowed_bucket_algs: u32,
}

impl Tunables {
    /// The values of a text that sets none (Ceph's "argonaut").
    pub const LEGACY: Self = Self {
        choose_local_tries: 2,
        choose_local_fallback_tries: 5,
        choose_total_tries: 19,
        chooseleaf_descend_once: 0,
        chooseleaf_vary_r: 0,
        chooseleaf_stable: 0,
        straw_calc_version: 0,
        allowed_bucket_algs: 22,
    };
    /// The values of new maps (Ceph's "jewel", the default since).
    pub const CURRENT: Self = Self {
        choose_local_tries: 0,
        choose_local_fallback_tries: 0,
        choose_total_tries: 50,
        chooseleaf_descend_once: 1,
        chooseleaf_vary_r: 1,
        chooseleaf_stable: 1,
        straw_calc_version: 1,
        allowed_bucket_algs: 54,
    };
}

/// A device: its name and, if it has one, its class.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Device {
    pub name: String,
    pub class: Option<usize>,
}

/// The kind of pool that a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleKind {
    /// Whole replicas; positions shift when one is missing.
    Replicated,
    /// Shards; positions are fixed and missing ones are holes.
    Erasure,
}

/// How the results of a choose step are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The first items that work, up to the number asked for; fewer if there are no more.
    Firstn,
    /// Each position independently; a hole where none works.
    Indep,
}

/// A setting that a rule overrides for its own steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Tries of a whole descent.
    ChooseTries,
    /// Tries for the leaf below a chosen bucket.
    ChooseleafTries,
    /// As [`Tunables::choose_local_tries`].
    ChooseLocalTries,
    /// As [`Tunables::choose_local_fallback_tries`].
    ChooseLocalFallbackTries,
    /// As [`Tunables::chooseleaf_vary_r`].
    ChooseleafVaryR,
    /// As [`Tunables::chooseleaf_stable`].
    ChooseleafStable,
}

impl Setting {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ChooseTries,
        Self::ChooseleafTries,
        Self::ChooseLocalTries,
        Self::ChooseLocalFallbackTries,
        Self::ChooseleafVaryR,
        Self::ChooseleafStable,
    ];
    /// The keyword in the text form.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ChooseTries => "set_choose_tries",
            Self::ChooseleafTries => "set_chooseleaf_tries",
            Self::ChooseLocalTries => "set_choose_local_tries",
            Self::ChooseLocalFallbackTries => "set_choose_local_fallback_tries",
            Self::ChooseleafVaryR => "set_chooseleaf_vary_r",
            Self::ChooseleafStable => "set_chooseleaf_stable",
        }
    }
}

/// One step of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Start below this bucket (a shadow bucket, if the rule is limited to a class).
    Take(ItemId),
    /// From each item so far, choose items of a type.
    Choose {
        /// Order of the results.
        mode: Mode,
        /// How many from each; zero: as many as requested; below zero: that many fewer.
        count: i32,
        /// The type, 0 for devices.
        kind: u16,
        /// Whether to descend to one device below each.
        leaf: bool,
    },
    /// Override a setting from here on.
    Set(Setting, u32),
    /// Append what was chosen to the result.
    Emit,
}

/// A rule: how the PGs of a pool are distributed.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its number, which pools refer to.
    pub id: u8,
    /// Its name; may be empty in old maps.
    pub name: String,
    /// The kind of pool it is for.
    pub kind: RuleKind,
    /// The smallest pool size it is meant for.
    pub min_size: u8,
    /// The largest pool size it is meant for.
    pub max_size: u8,
    /// Its steps, in order.
    pub steps: Vec<Step>,
}

/// Replacement weights or ids for the draws in one straw2 bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChooseArg {
    /// Per position of the result (the last one counts for all further ones), a weight per item.
    pub weight_set: Vec<Vec<Weight>>,
    /// An id per item that is hashed in place of its own; empty: the items' own.
    pub ids: Vec<i32>,
}

/// A set of overrides; a pool uses the one with its number, or the default (-1).
pub type ChooseArgs = BTreeMap<ItemId, ChooseArg>;

/// The CRUSH map. See the module's head for its invariants.
#[derive(Clone, Debug, PartialEq)]
pub struct CrushMap {
    pub(crate) tunables: Tunables,
    pub(crate) devices: BTreeMap<DeviceId, Device>,
    pub(crate) types: BTreeMap<u16, String>,
    pub(crate) classes: Vec<String>,
    /// Slot of bucket -1-i at i; `NO_SLOT` where there is none.
    pub(crate) index: Vec<u32>,
    pub(crate) buckets: Vec<Bucket>,
    pub(crate) names: BTreeMap<String, ItemId>,
    pub(crate) rules: BTreeMap<u8, Rule>,
    /// (bucket, class) → shadow bucket.
    pub(crate) class_shadows: BTreeMap<(ItemId, usize), ItemId>,
    /// Shadow bucket → (bucket, class).
    pub(crate) shadow_of: BTreeMap<ItemId, (ItemId, usize)>,
    pub(crate) choose_args: BTreeMap<i64, ChooseArgs>,
    /// One more than the largest device in any bucket.
    pub(crate) device_end: i32,
}

const NO_SLOT: u32 = u32::MAX;

impl CrushMap {
    /// A map without devices, buckets, rules and types.
    pub(crate) fn bare(tunables: Tunables) -> Self {
        Self {
            tunables,
            devices: BTreeMap::new(),
            types: BTreeMap::new(),
            classes: Vec::new(),
            index: Vec::new(),
            buckets: Vec::new(),
            names: BTreeMap::new(),
            rules: BTreeMap::new(),
            class_shadows: BTreeMap::new(),
            shadow_of: BTreeMap::new(),
            choose_args: BTreeMap::new(),
            device_end: 0,
        }
    }

    /// The tunables.
    #[must_use]
    pub fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    /// The bucket with this id.
    #[must_use]
    pub fn bucket(&self, id: ItemId) -> Option<&Bucket> {
        let slot = *self.index.get(id.bucket_index()?)?;
        self.buckets.get(slot as usize)
    }

    pub(crate) fn bucket_mut(&mut self, id: ItemId) -> Option<&mut Bucket> {
        let slot = *self.index.get(id.bucket_index()?)?;
        self.buckets.get_mut(slot as usize)
    }

    /// Every bucket, shadows included, from -1 down.
    pub fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.index
            .iter()
            .filter_map(|slot| self.buckets.get(*slot as usize))
    }

    /// Every bucket that is not a shadow, from -1 down.
    pub fn real_buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.buckets().filter(|bucket| !self.is_shadow(bucket.id))
    }

    /// Whether a bucket is a shadow: another bucket restricted to a class.
    #[must_use]
    pub fn is_shadow(&self, id: ItemId) -> bool {
        self.shadow_of.contains_key(&id)
    }

    /// Adds a bucket whose id and name are free.
    pub(crate) fn insert(&mut self, bucket: Bucket) {
        let at = bucket.id.bucket_index().expect("bucket ids are below zero");
        assert!(
            bucket.id >= ItemId::BUCKET_MIN,
            "bucket id {} is out of range",
            bucket.id
        );
        if self.index.len() <= at {
            self.index.resize(at + 1, NO_SLOT);
        }
        assert!(
            self.index[at] == NO_SLOT,
            "bucket id {} is taken",
            bucket.id
        );
        self.index[at] = u32::try_from(self.buckets.len()).expect("there are at most 2^20 buckets");
        let before = self.names.insert(bucket.name.clone(), bucket.id);
        assert!(before.is_none(), "the name {} is taken", bucket.name);
        self.buckets.push(bucket);
    }

    /// Removes a bucket and its name. The caller has ensured that nothing refers to it.
    pub(crate) fn remove(&mut self, id: ItemId) {
        let at = id.bucket_index().expect("bucket ids are below zero");
        let slot = std::mem::replace(&mut self.index[at], NO_SLOT);
        let gone = self.buckets.swap_remove(slot as usize);
        self.names.remove(&gone.name);
        if let Some(moved) = self.buckets.get(slot as usize) {
            self.index[moved.id.bucket_index().expect("bucket ids are below zero")] = slot;
        }
        while self.index.last() == Some(&NO_SLOT) {
            self.index.pop();
        }
    }

    /// The device or bucket with this name (`name~class` for a shadow).
    #[must_use]
    pub fn item(&self, name: &str) -> Option<ItemId> {
        self.names.get(name).copied()
    }

    /// The name of a device or bucket.
    #[must_use]
    pub fn item_name(&self, id: ItemId) -> Option<&str> {
        match id.device() {
            Some(device) => self.devices.get(&device).map(|device| device.name.as_str()),
            None => self.bucket(id).map(|bucket| bucket.name.as_str()),
        }
    }

    /// The type number of an item: 0 for a device.
    #[must_use]
    pub fn item_kind(&self, id: ItemId) -> Option<u16> {
        if id.0 >= 0 {
            id.device().map(|_| 0)
        } else {
            self.bucket(id).map(|bucket| bucket.kind)
        }
    }

    /// The name of a type.
    #[must_use]
    pub fn type_name(&self, kind: u16) -> Option<&str> {
        self.types.get(&kind).map(String::as_str)
    }

    /// The type with this name.
    #[must_use]
    pub fn type_by_name(&self, name: &str) -> Option<u16> {
        self.types
            .iter()
            .find(|(_, known)| *known == name)
            .map(|(kind, _)| *kind)
    }

    /// Every type, lowest first.
    pub fn types(&self) -> impl Iterator<Item = (u16, &str)> {
        self.types.iter().map(|(kind, name)| (*kind, name.as_str()))
    }

    /// Every device in the map, in order; it need not be in a bucket.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> {
        self.devices.keys().copied()
    }

    /// The class of a device.
    #[must_use]
    pub fn device_class(&self, id: DeviceId) -> Option<&str> {
        self.devices
            .get(&id)?
            .class
            .map(|class| self.classes[class].as_str())
    }

    /// Every class that a device has or that has a shadow tree.
    #[must_use]
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The rule with this number.
    #[must_use]
    pub fn rule(&self, id: u8) -> Option<&Rule> {
        self.rules.get(&id)
    }

    /// The rule with this name, or, if there is none, with this number.
    #[must_use]
    pub fn rule_by_name(&self, name: &str) -> Option<&Rule> {
        self.rules
            .values()
            .find(|rule| rule.name == name)
            .or_else(|| self.rules.get(&name.parse().ok()?))
    }

    /// Every rule, by number.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.values()
    }

    /// The weight overrides that a pool uses: its own, or the default set; `None` if there is
    /// neither.
    #[must_use]
    pub fn choose_args_of_pool(&self, pool: u64) -> Option<&ChooseArgs> {
        let own = i64::try_from(pool)
            .ok()
            .and_then(|pool| self.choose_args.get(&pool));
        own.or_else(|| self.choose_args.get(&Self::DEFAULT_CHOOSE_ARGS))
    }

    /// The key of the weight overrides of pools that have none of their own.
    pub const DEFAULT_CHOOSE_ARGS: i64 = -1;

    /// Per bucket and device, the buckets that list it, without shadows.
    pub(crate) fn parents(&self) -> BTreeMap<ItemId, Vec<ItemId>> {
        let mut parents: BTreeMap<ItemId, Vec<ItemId>> = BTreeMap::new();
        for bucket in self.real_buckets() {
            for item in &bucket.items {
                parents.entry(*item).or_default().push(bucket.id);
            }
        }
        parents
    }

    /// The buckets that list one item, once per occurrence.
    pub(crate) fn parents_of(&self, item: ItemId) -> Vec<ItemId> {
        let times =
            |bucket: &'_ Bucket| bucket.items.iter().filter(|found| **found == item).count();
        self.real_buckets()
            .flat_map(|bucket| std::iter::repeat_n(bucket.id, times(bucket)))
            .collect()
    }

    /// Real buckets that are in no other bucket, in ascending order of id.
    #[must_use]
    pub fn roots(&self) -> Vec<ItemId> {
        let parents = self.parents();
        let mut roots: Vec<_> = self
            .real_buckets()
            .map(|bucket| bucket.id)
            .filter(|id| !parents.contains_key(id))
            .collect();
        roots.sort();
        roots
    }

    /// Every device below an item (which may itself be a device), in order of id, without
    /// duplicates.
    #[must_use]
    pub fn devices_below(&self, id: ItemId) -> Vec<DeviceId> {
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            match id.device() {
                Some(device) => found.push(device),
                None => open.extend(
                    self.bucket(id)
                        .into_iter()
                        .flat_map(|bucket| bucket.items.iter().copied()),
                ),
            }
        }
        found.sort();
        found
    }

    /// Updates all derived data, and checks the invariants in the module's head.
    pub(crate) fn seal(&mut self) {
        let shadowed = self.class_shadows.keys().map(|(_, class)| *class).collect();
        self.order_classes(&shadowed);
        self.order_buckets();
        self.find_device_end();
        if cfg!(debug_assertions) {
            self.check();
        }
    }

    /// Orders the buckets by id, so that equal maps compare equal and neighbours in the tree are
    /// mostly adjacent in memory.
    fn order_buckets(&mut self) {
        self.buckets
            .sort_by_key(|bucket| std::cmp::Reverse(bucket.id));
        for (slot, bucket) in self.buckets.iter().enumerate() {
            self.index[bucket.id.bucket_index().expect("bucket ids are below zero")] = slot as u32;
        }
    }

    pub(crate) fn find_device_end(&mut self) {
        let end = self
            .buckets
            .iter()
            .flat_map(|bucket| &bucket.items)
            .map(|item| item.0 + 1)
            .max();
        self.device_end = end.unwrap_or(0).max(0);
    }

    /// Asserts the invariants in the module's head.
    ///
    /// # Panics
    /// When one does not hold, which is a bug of this crate.
    pub fn check(&self) {
        for bucket in self.buckets() {
            assert!(
                bucket.kind > 0 && self.types.contains_key(&bucket.kind),
                "{} has no type",
                bucket.name
            );
            assert!(
                self.names.get(&bucket.name) == Some(&bucket.id),
                "{} is not in the index of names",
                bucket.name
            );
            assert!(
                bucket.items.len() == bucket.weights.len(),
                "{} has unequal columns",
                bucket.name
            );
            for item in &bucket.items {
                assert!(
                    self.item_name(*item).is_some(),
                    "{} contains {item}, which does not exist",
                    bucket.name
                );
            }
        }
        assert!(
            self.class_shadows.len() == self.shadow_of.len(),
            "shadow indexes differ"
        );
        for (key, shadow) in &self.class_shadows {
            assert!(
                self.shadow_of.get(shadow) == Some(key),
                "shadow {shadow} is not indexed both ways"
            );
            assert!(
                self.bucket(*shadow).is_some() && self.bucket(key.0).is_some(),
                "shadow {shadow} dangles"
            );
        }
        for rule in self.rules.values() {
            for step in &rule.steps {
                if let Step::Take(item) = step {
                    assert!(
                        self.item_name(*item).is_some(),
                        "rule {} takes {item}, which does not exist",
                        rule.name
                    );
                }
            }
        }
    }

    /// Renumbers classes by first use (devices by id, then those in `others` in their order) and
    /// removes the rest: printing and parsing a map must not change it. Returns the new number per
    /// old one, `usize::MAX` for removed ones.
    pub(crate) fn order_classes(&mut self, others: &BTreeSet<usize>) -> Vec<usize> {
        let mut new = vec![usize::MAX; self.classes.len()];
        let mut order = Vec::new();
        let used = self.devices.values().filter_map(|device| device.class);
        for class in used.chain(others.iter().copied()) {
            if new[class] == usize::MAX {
                new[class] = order.len();
                order.push(class);
            }
        }
        self.classes = order
            .iter()
            .map(|class| self.classes[*class].clone())
            .collect();
        for device in self.devices.values_mut() {
            device.class = device.class.map(|class| new[class]);
        }
        for of in self.shadow_of.values_mut() {
            of.1 = new[of.1];
        }
        self.class_shadows = self
            .shadow_of
            .iter()
            .map(|(shadow, of)| (*of, *shadow))
            .collect();
        new
    }
}
