//! Changes of a map: adding, moving and removing devices, changing weights and classes, creating
//! rules.
//!
//! ```text
//!  edit ──▶ copy of the map ──change──▶ weights up to the roots ──▶ shadow trees, old ids kept ──▶ checked map
//!                 └── an error leaves the map as it was
//! ```
//! Only ancestors of the changed items are updated. Elsewhere a weight that differs from the sum
//! below it, as the text form's rounding causes, stays as it is, and so does the data.

use crate::bucket::{Alg, Bucket};
use crate::map::{
    CrushMap, DEPTH_MAX, Device, DeviceId, ItemId, Mode, Rule, RuleKind, Setting, Step, Tunables,
};
use crate::shadow::{ShadowError, ShadowIds};
use crate::text::is_name;
use crate::weight::Weight;
use std::collections::BTreeSet;
use std::fmt;

/// The types of a new map, by number.
const TYPES: [&str; 12] = [
    "osd",
    "host",
    "chassis",
    "rack",
    "row",
    "pdu",
    "pod",
    "room",
    "datacenter",
    "zone",
    "region",
    "root",
];

/// Why a map cannot be changed as requested.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the messages below say what each is
pub enum EditError {
    BadName {
        name: String,
    },
    UnknownType {
        name: String,
    },
    UnknownItem {
        name: String,
    },
    UnknownDevice {
        id: DeviceId,
    },
    DeviceId {
        id: DeviceId,
    },
    NotABucket {
        name: String,
    },
    NameTaken {
        name: String,
    },
    EmptyPath,
    WrongType {
        name: String,
        is: String,
        asked: String,
    },
    Order {
        above: String,
        below: String,
    },
    DeviceWeight {
        weight: Weight,
    },
    BucketWeight {
        bucket: String,
    },
    UniformWeight {
        bucket: String,
    },
    NotEmpty {
        bucket: String,
        items: usize,
    },
    InUse {
        item: String,
        rule: String,
    },
    Cycle {
        bucket: String,
    },
    TooDeep,
    NoClass {
        class: String,
    },
    RuleExists {
        name: String,
    },
    NoSuchRule {
        name: String,
    },
    RulesFull,
    Shadow(ShadowError),
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName { name } => {
                write!(
                    f,
                    "`{name}` is not a CRUSH name; use letters, digits, `-`, `_` and `.`"
                )
            }
            Self::UnknownType { name } => write!(f, "the CRUSH map has no type `{name}`"),
            Self::UnknownItem { name } => {
                write!(f, "the CRUSH map has no bucket or device `{name}`")
            }
            Self::UnknownDevice { id } => write!(f, "{id} is not in the CRUSH map"),
            Self::DeviceId { id } => write!(
                f,
                "{id} is past the largest device number, {}",
                ItemId::DEVICE_END.0 - 1
            ),
            Self::NotABucket { name } => write!(f, "`{name}` is a device; a bucket is needed"),
            Self::NameTaken { name } => write!(f, "the CRUSH map already has a `{name}`"),
            Self::EmptyPath => {
                f.write_str("name at least one bucket to put it in, such as host=NAME")
            }
            Self::WrongType { name, is, asked } => write!(f, "`{name}` is a {is}, not a {asked}"),
            Self::Order { above, below } => {
                write!(
                    f,
                    "a {below} cannot contain a {above}; give the path from the root down"
                )
            }
            Self::DeviceWeight { weight } => {
                write!(
                    f,
                    "{} is too large a weight; a device weighs at most 100.0",
                    weight.rounded()
                )
            }
            Self::BucketWeight { bucket } => write!(f, "`{bucket}` would weigh more than 65535"),
            Self::UniformWeight { bucket } => {
                write!(
                    f,
                    "`{bucket}` is a uniform bucket; all its items must weigh the same"
                )
            }
            Self::NotEmpty { bucket, items } => {
                write!(
                    f,
                    "`{bucket}` still contains {items} items; move or remove them first"
                )
            }
            Self::InUse { item, rule } => write!(
                f,
                "rule `{rule}` takes `{item}`; remove or change the rule first"
            ),
            Self::Cycle { bucket } => write!(f, "`{bucket}` would contain itself"),
            Self::TooDeep => write!(f, "buckets may be nested at most {DEPTH_MAX} deep"),
            Self::NoClass { class } => write!(f, "no device has the class `{class}`"),
            Self::RuleExists { name } => write!(f, "there already is a rule `{name}`"),
            Self::NoSuchRule { name } => write!(f, "there is no rule `{name}`"),
            Self::RulesFull => f.write_str("all 256 rule numbers are in use; remove a rule first"),
            Self::Shadow(error) => error.fmt(f),
        }
    }
}
impl std::error::Error for EditError {}

/// A location in the hierarchy, from the root down: `[("root", "default"), ("rack", "r1"), ("host",
/// "h7")]`.
pub type Path<'a> = [(&'a str, &'a str)];

impl Default for CrushMap {
    fn default() -> Self {
        Self::new()
    }
}

/// A device and its location: see [`CrushMap::add_device`].
#[derive(Clone, Debug)]
pub struct NewDevice<'a> {
    /// Its number.
    pub id: DeviceId,
    /// Its weight.
    pub weight: Weight,
    /// Its class.
    pub class: Option<&'a str>,
    /// Its location: types and names of buckets, from the root.
    pub path: Vec<(&'a str, &'a str)>,
}

impl CrushMap {
    /// A map with the usual types, current tunables, and an empty root `default`.
    #[must_use]
    pub fn new() -> Self {
        let mut map = Self::bare(Tunables::CURRENT);
        map.types = TYPES
            .iter()
            .enumerate()
            .map(|(kind, name)| (kind as u16, (*name).to_owned()))
            .collect();
        let root = TYPES.len() as u16 - 1;
        let root = Bucket::new(
            ItemId(-1),
            "default".to_owned(),
            root,
            Alg::Straw2,
            Vec::new(),
            1,
        );
        map.insert(root.expect("an empty bucket weighs nothing"));
        map
    }

    /// Applies a change to a copy, completes it, and adopts the copy if there was no error.
    fn edit<T>(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<T, EditError>,
    ) -> Result<T, EditError> {
        let mut copy = self.clone();
        let done = change(&mut copy)?;
        copy.rebuild_shadows()?;
        copy.seal();
        // Overrides have a column per item; those of a bucket that gained or lost an item are no
        // longer valid.
        let Self {
            choose_args,
            index,
            buckets,
            ..
        } = &mut copy;
        for args in choose_args.values_mut() {
            args.retain(|id, arg| {
                let slot = id.bucket_index().and_then(|at| index.get(at));
                let size = slot
                    .and_then(|slot| buckets.get(*slot as usize))
                    .map(|bucket| bucket.items.len());
                let columns = arg
                    .weight_set
                    .iter()
                    .map(Vec::len)
                    .chain((!arg.ids.is_empty()).then_some(arg.ids.len()));
                columns.into_iter().all(|columns| Some(columns) == size)
            });
        }
        *self = copy;
        Ok(done)
    }

    fn rebuild_shadows(&mut self) -> Result<(), EditError> {
        let taken: Vec<ItemId> = self.taken().collect();
        let wanted: BTreeSet<usize> = taken
            .iter()
            .filter_map(|id| Some(self.shadow_of.get(id)?.1))
            .collect();
        let old = self.drop_shadows();
        let new = self.order_classes(&wanted);
        let old: ShadowIds = old
            .into_iter()
            .filter(|((of, class), _)| new[*class] != usize::MAX && self.bucket(*of).is_some())
            .map(|((of, class), shadow)| ((of, new[class]), shadow))
            .collect();
        let built = self.build_shadows(&old);
        // A shadow tree that no rule takes may be missing.
        match built {
            Err(error) if taken.iter().any(|id| self.item_name(*id).is_none()) => {
                Err(EditError::Shadow(error))
            }
            Err(error @ ShadowError::NoFreeId) => Err(EditError::Shadow(error)),
            _ => Ok(()),
        }
    }

    fn taken(&self) -> impl Iterator<Item = ItemId> {
        self.rules
            .values()
            .flat_map(|rule| &rule.steps)
            .filter_map(|step| match step {
                Step::Take(id) => Some(*id),
                _ => None,
            })
    }

    /// Puts a device under the last bucket of `path`, with a weight and, if given, a class. Buckets
    /// of the path that do not exist are created; existing ones are not moved. A device that is
    /// elsewhere is moved.
    pub fn add_device(
        &mut self,
        id: DeviceId,
        weight: Weight,
        class: Option<&str>,
        path: &Path<'_>,
    ) -> Result<(), EditError> {
        self.add_devices(&[NewDevice {
            id,
            weight,
            class,
            path: path.to_vec(),
        }])
    }

    /// [`Self::add_device`] for many devices, all or none: the map is copied and checked once.
    pub fn add_devices(&mut self, all: &[NewDevice<'_>]) -> Result<(), EditError> {
        for NewDevice { id, weight, .. } in all {
            if id.0 >= ItemId::DEVICE_END.0 as u32 {
                return Err(EditError::DeviceId { id: *id });
            }
            if *weight > Weight::DEVICE_MAX {
                return Err(EditError::DeviceWeight { weight: *weight });
            }
        }
        self.edit(|map| {
            for NewDevice {
                id,
                weight,
                class,
                path,
            } in all
            {
                let (id, weight) = (*id, *weight);
                let parent = map.path(path)?;
                if !map.devices.contains_key(&id) {
                    let name = id.to_string();
                    if map.names.insert(name.clone(), id.into()).is_some() {
                        return Err(EditError::NameTaken { name });
                    }
                    map.devices.insert(id, Device { name, class: None });
                }
                if class.is_some() {
                    map.classify(id, *class)?;
                }
                map.detach(id.into())?;
                map.attach(parent, id.into(), weight)?;
            }
            Ok(())
        })
    }

    /// Removes a device from the map.
    pub fn remove_device(&mut self, id: DeviceId) -> Result<(), EditError> {
        self.edit(|map| {
            let gone = map
                .devices
                .remove(&id)
                .ok_or(EditError::UnknownDevice { id })?;
            map.unused(id.into(), &gone.name)?;
            map.names.remove(&gone.name);
            map.detach(id.into())
        })
    }

    /// Sets the weight of a device wherever it is listed, and updates the weights above it.
    pub fn reweight(&mut self, id: DeviceId, weight: Weight) -> Result<(), EditError> {
        if weight > Weight::DEVICE_MAX {
            return Err(EditError::DeviceWeight { weight });
        }
        self.edit(|map| {
            if !map.devices.contains_key(&id) {
                return Err(EditError::UnknownDevice { id });
            }
            map.set_weight(id.into(), weight)
        })
    }

    /// Sets or removes the class of a device; the shadow trees of the class are updated.
    pub fn set_device_class(&mut self, id: DeviceId, class: Option<&str>) -> Result<(), EditError> {
        self.edit(|map| map.classify(id, class))
    }

    /// Creates the buckets of `path` that do not exist yet.
    pub fn add_bucket(&mut self, path: &Path<'_>) -> Result<ItemId, EditError> {
        self.edit(|map| map.path(path))
    }

    /// Moves a bucket, with its contents, under the last bucket of `path`.
    pub fn move_bucket(&mut self, name: &str, path: &Path<'_>) -> Result<(), EditError> {
        self.edit(|map| {
            let id = map.real_bucket(name)?;
            let parent = map.path(path)?;
            let (below, above) = (map.kind_of(id), map.kind_of(parent));
            if below >= above {
                let [above, below] = [below, above].map(|kind| map.types[&kind].clone());
                return Err(EditError::Order { above, below });
            }
            let weight = map.bucket(id).map_or(Weight::ZERO, Bucket::weight);
            map.detach(id)?;
            map.attach(parent, id, weight)?;
            map.depth_below(id, 0).and_then(|_| {
                map.roots()
                    .iter()
                    .try_fold(0, |_, root| map.depth_below(*root, 0))
            })?;
            Ok(())
        })
    }

    /// Removes an empty bucket that no rule takes.
    pub fn remove_bucket(&mut self, name: &str) -> Result<(), EditError> {
        self.edit(|map| {
            let id = map.real_bucket(name)?;
            let items = map.bucket(id).map_or(0, |bucket| bucket.items.len());
            if items > 0 {
                return Err(EditError::NotEmpty {
                    bucket: name.to_owned(),
                    items,
                });
            }
            map.unused(id, name)?;
            for class in 0..map.classes.len() {
                if let Some(shadow) = map.class_shadows.get(&(id, class)) {
                    map.unused(*shadow, name)?;
                }
            }
            map.detach(id)?;
            map.remove(id);
            Ok(())
        })
    }

    /// Creates a rule that puts each replica into a different `domain` (the name of a type) below
    /// `root`, on devices of `class` only, if given. Returns its number.
    pub fn create_replicated_rule(
        &mut self,
        name: &str,
        root: &str,
        domain: &str,
        class: Option<&str>,
    ) -> Result<u8, EditError> {
        self.create_rule(name, root, domain, class, RuleKind::Replicated)
    }

    /// Creates a rule that puts each shard into a different `domain` below `root`, on devices of
    /// `class` only, if given.
    pub fn create_erasure_rule(
        &mut self,
        name: &str,
        root: &str,
        domain: &str,
        class: Option<&str>,
    ) -> Result<u8, EditError> {
        self.create_rule(name, root, domain, class, RuleKind::Erasure)
    }

    fn create_rule(
        &mut self,
        name: &str,
        root: &str,
        domain: &str,
        class: Option<&str>,
        kind: RuleKind,
    ) -> Result<u8, EditError> {
        if !is_name(name) {
            return Err(EditError::BadName {
                name: name.to_owned(),
            });
        }
        self.edit(|map| {
            if map.rules.values().any(|rule| rule.name == name) {
                return Err(EditError::RuleExists {
                    name: name.to_owned(),
                });
            }
            let id = (0..=u8::MAX)
                .find(|id| !map.rules.contains_key(id))
                .ok_or(EditError::RulesFull)?;
            let domain = map
                .type_by_name(domain)
                .ok_or_else(|| EditError::UnknownType {
                    name: domain.to_owned(),
                })?;
            let mut top = map.real_bucket(root)?;
            if let Some(class) = class {
                // A text without rules has no shadow trees yet.
                map.rebuild_shadows()?;
                let number = map.classes.iter().position(|known| known == class);
                let shadow = number.and_then(|number| map.class_shadows.get(&(top, number)));
                top = *shadow.ok_or_else(|| EditError::NoClass {
                    class: class.to_owned(),
                })?;
            }
            let mode = if kind == RuleKind::Erasure {
                Mode::Indep
            } else {
                Mode::Firstn
            };
            let mut steps = Vec::new();
            if kind == RuleKind::Erasure {
                // A hole costs a shard's redundancy: more tries before giving up.
                steps.extend([
                    Step::Set(Setting::ChooseleafTries, 5),
                    Step::Set(Setting::ChooseTries, 100),
                ]);
            }
            steps.extend([
                Step::Take(top),
                Step::Choose {
                    mode,
                    count: 0,
                    kind: domain,
                    leaf: domain != 0,
                },
                Step::Emit,
            ]);
            let (min_size, max_size) = if kind == RuleKind::Erasure {
                (3, 20)
            } else {
                (1, 10)
            };
            map.rules.insert(
                id,
                Rule {
                    id,
                    name: name.to_owned(),
                    kind,
                    min_size,
                    max_size,
                    steps,
                },
            );
            Ok(id)
        })
    }

    /// Removes a rule. The caller must ensure that no pool uses it.
    pub fn remove_rule(&mut self, name: &str) -> Result<(), EditError> {
        self.edit(|map| {
            let id = map
                .rules
                .values()
                .find(|rule| rule.name == name)
                .map(|rule| rule.id);
            let id = id.ok_or_else(|| EditError::NoSuchRule {
                name: name.to_owned(),
            })?;
            map.rules.remove(&id);
            Ok(())
        })
    }

    fn kind_of(&self, id: ItemId) -> u16 {
        self.item_kind(id).expect("asked of items that exist")
    }

    fn real_bucket(&self, name: &str) -> Result<ItemId, EditError> {
        let id = self.item(name).filter(|id| !self.is_shadow(*id));
        let id = id.ok_or_else(|| EditError::UnknownItem {
            name: name.to_owned(),
        })?;
        if id.0 < 0 {
            Ok(id)
        } else {
            Err(EditError::NotABucket {
                name: name.to_owned(),
            })
        }
    }

    fn unused(&self, id: ItemId, name: &str) -> Result<(), EditError> {
        let takes = |rule: &&Rule| rule.steps.contains(&Step::Take(id));
        match self.rules.values().find(takes) {
            None => Ok(()),
            Some(rule) => Err(EditError::InUse {
                item: name.to_owned(),
                rule: rule.name.clone(),
            }),
        }
    }

    /// The last bucket of a path; creates the buckets that do not exist.
    fn path(&mut self, path: &Path<'_>) -> Result<ItemId, EditError> {
        let mut above: Option<ItemId> = None;
        for (kind_name, name) in path {
            let kind = self.type_by_name(kind_name).filter(|kind| *kind > 0);
            let kind = kind.ok_or_else(|| EditError::UnknownType {
                name: (*kind_name).to_owned(),
            })?;
            if let Some(above) = above
                && self.kind_of(above) <= kind
            {
                let below = self.types[&self.kind_of(above)].clone();
                return Err(EditError::Order {
                    above: (*kind_name).to_owned(),
                    below,
                });
            }
            above = Some(match self.item(name) {
                Some(_) => {
                    let id = self.real_bucket(name)?;
                    if self.kind_of(id) != kind {
                        let is = self.types[&self.kind_of(id)].clone();
                        let (name, asked) = ((*name).to_owned(), (*kind_name).to_owned());
                        return Err(EditError::WrongType { name, is, asked });
                    }
                    id
                }
                None => {
                    if !is_name(name) {
                        return Err(EditError::BadName {
                            name: (*name).to_owned(),
                        });
                    }
                    let free = (1..)
                        .map(|n| ItemId(-n))
                        .find(|id| self.bucket(*id).is_none());
                    let id = free.filter(|id| *id >= ItemId::BUCKET_MIN);
                    let id = id.ok_or(EditError::Shadow(ShadowError::NoFreeId))?;
                    let new = Bucket::new(id, (*name).to_owned(), kind, Alg::Straw2, Vec::new(), 1);
                    self.insert(new.expect("an empty bucket weighs nothing"));
                    if let Some(above) = above {
                        self.attach(above, id, Weight::ZERO)?;
                    }
                    id
                }
            });
        }
        above.ok_or(EditError::EmptyPath)
    }

    fn classify(&mut self, id: DeviceId, class: Option<&str>) -> Result<(), EditError> {
        if !self.devices.contains_key(&id) {
            return Err(EditError::UnknownDevice { id });
        }
        let number = match class {
            None => None,
            Some(class) if !is_name(class) => {
                return Err(EditError::BadName {
                    name: class.to_owned(),
                });
            }
            Some(class) => Some(
                self.classes
                    .iter()
                    .position(|known| known == class)
                    .unwrap_or_else(|| {
                        self.classes.push(class.to_owned());
                        self.classes.len() - 1
                    }),
            ),
        };
        self.devices.get_mut(&id).expect("looked up above").class = number;
        Ok(())
    }

    /// Removes an item from every bucket that lists it.
    fn detach(&mut self, item: ItemId) -> Result<(), EditError> {
        for parent in self.parents_of(item) {
            self.change(parent, |bucket| {
                let at = bucket
                    .items
                    .iter()
                    .position(|found| *found == item)
                    .expect("a parent lists its children");
                bucket.items.remove(at);
                bucket.weights.remove(at);
            })?;
        }
        Ok(())
    }

    fn attach(&mut self, parent: ItemId, item: ItemId, weight: Weight) -> Result<(), EditError> {
        if self.reaches(item, parent) {
            return Err(EditError::Cycle {
                bucket: self.item_name(item).unwrap_or_default().to_owned(),
            });
        }
        self.change(parent, |bucket| {
            bucket.items.push(item);
            bucket.weights.push(weight);
        })
    }

    /// Whether `to` is `from` or below it.
    fn reaches(&self, from: ItemId, to: ItemId) -> bool {
        let mut open = vec![from];
        while let Some(id) = open.pop() {
            if id == to {
                return true;
            }
            open.extend(
                self.bucket(id)
                    .into_iter()
                    .flat_map(|bucket| bucket.items.iter().copied()),
            );
        }
        false
    }

    fn depth_below(&self, id: ItemId, depth: usize) -> Result<usize, EditError> {
        if depth > DEPTH_MAX {
            return Err(EditError::TooDeep);
        }
        let Some(bucket) = self.bucket(id) else {
            return Ok(depth);
        };
        bucket.items.iter().try_fold(depth, |most, item| {
            Ok(most.max(self.depth_below(*item, depth + 1)?))
        })
    }

    /// Changes the items of a bucket, then its weight wherever it is listed, up to the roots.
    fn change(&mut self, id: ItemId, change: impl FnOnce(&mut Bucket)) -> Result<(), EditError> {
        let version = self.tunables.straw_calc_version;
        let bucket = self
            .bucket_mut(id)
            .expect("changes are made to buckets that exist");
        change(bucket);
        if bucket.alg == Alg::Uniform && bucket.weights.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err(EditError::UniformWeight {
                bucket: bucket.name.clone(),
            });
        }
        bucket
            .rebuild(version)
            .map_err(|_| EditError::BucketWeight {
                bucket: bucket.name.clone(),
            })?;
        let weight = bucket.weight;
        self.set_weight(id, weight)
    }

    fn set_weight(&mut self, item: ItemId, weight: Weight) -> Result<(), EditError> {
        for parent in self.parents_of(item) {
            self.change(parent, |bucket| {
                for (found, old) in bucket.items.iter().zip(&mut bucket.weights) {
                    if *found == item {
                        *old = weight;
                    }
                }
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;
    use nacre_types::OsdId;

    fn sample() -> CrushMap {
        let mut map = CrushMap::new();
        for id in 0..12 {
            let (rack, host) = (format!("r{}", id / 6), format!("h{}", id / 2));
            let class = if id % 2 == 0 { "ssd" } else { "hdd" };
            let path = [
                ("root", "default"),
                ("rack", rack.as_str()),
                ("host", host.as_str()),
            ];
            map.add_device(OsdId(id), Weight(0x1_0000 + id * 777), Some(class), &path)
                .expect("a legal device");
        }
        map
    }

    fn reads_back(map: &CrushMap) {
        map.check();
        let text = text::print(map);
        assert!(text::parse(&text).as_ref() == Ok(map), "{text}");
    }

    #[test]
    fn weights_reach_the_root_and_every_edit_reads_back() {
        let mut map = sample();
        reads_back(&map);
        let total = |map: &CrushMap| map.bucket(ItemId(-1)).expect("the root").weight;
        let before = total(&map);
        map.reweight(OsdId(3), Weight(5 << 16))
            .expect("a legal weight");
        assert_eq!(total(&map).0, before.0 - (0x1_0000 + 3 * 777) + (5 << 16));
        reads_back(&map);
        map.remove_device(OsdId(3)).expect("it is there");
        assert_eq!(total(&map).0, before.0 - (0x1_0000 + 3 * 777));
        assert_eq!(map.item("osd.3"), None);
        map.move_bucket("h0", &[("root", "default"), ("rack", "r1")])
            .expect("a legal move");
        assert_eq!(
            total(&map).0,
            before.0 - (0x1_0000 + 3 * 777),
            "moving within the root keeps its weight"
        );
        map.remove_device(OsdId(0))
            .and_then(|()| map.remove_device(OsdId(1)))
            .expect("they are there");
        map.remove_bucket("h0").expect("it is empty");
        reads_back(&map);
    }

    #[test]
    fn shadow_ids_survive_edits_and_classes_follow() {
        let mut map = sample();
        let rule = map
            .create_replicated_rule("fast", "default", "host", Some("ssd"))
            .expect("a legal rule");
        let shadow = map.item("default~ssd").expect("a class tree");
        map.add_device(
            OsdId(50),
            Weight::ONE,
            Some("nvme"),
            &[("root", "default"), ("host", "new")],
        )
        .expect("legal");
        map.set_device_class(OsdId(1), Some("ssd")).expect("legal");
        assert_eq!(map.item("default~ssd"), Some(shadow));
        assert_eq!(map.rule(rule).expect("kept").steps[0], Step::Take(shadow));
        assert!(map.devices_below(shadow).contains(&OsdId(1)));
        reads_back(&map);
        // The last device of a class removes the class too, unless a rule needs it.
        map.set_device_class(OsdId(50), None).expect("legal");
        assert_eq!(map.item("default~nvme"), None);
        for id in (0..12).step_by(2).chain([1]) {
            map.set_device_class(OsdId(id), Some("hdd")).expect("legal");
        }
        assert_eq!(map.devices_below(shadow), []);
        reads_back(&map);
    }

    #[test]
    fn what_cannot_be_is_refused_and_changes_nothing() {
        let mut map = sample();
        map.create_erasure_rule("ec", "r1", "host", None)
            .expect("a legal rule");
        let before = map.clone();
        let path = [("root", "default"), ("rack", "r0"), ("host", "h0")];
        let big = Weight(101 << 16);
        assert_eq!(
            map.add_device(OsdId(9), big, None, &path),
            Err(EditError::DeviceWeight { weight: big })
        );
        assert!(matches!(
            map.add_device(OsdId(1 << 20), Weight::ONE, None, &path),
            Err(EditError::DeviceId { .. })
        ));
        assert_eq!(
            map.add_device(OsdId(9), Weight::ONE, None, &[]),
            Err(EditError::EmptyPath)
        );
        let upside_down = [("host", "h0"), ("rack", "r0")];
        assert!(matches!(
            map.add_bucket(&upside_down),
            Err(EditError::Order { .. })
        ));
        assert!(matches!(
            map.add_bucket(&[("rack", "h0")]),
            Err(EditError::WrongType { .. })
        ));
        assert!(matches!(
            map.add_bucket(&[("host", "a b")]),
            Err(EditError::BadName { .. })
        ));
        assert!(matches!(
            map.move_bucket("r0", &[("host", "h0")]),
            Err(EditError::Order { .. })
        ));
        assert!(matches!(
            map.remove_bucket("h0"),
            Err(EditError::NotEmpty { items: 2, .. })
        ));
        assert!(matches!(
            map.remove_bucket("osd.1"),
            Err(EditError::NotABucket { .. })
        ));
        assert!(matches!(
            map.create_replicated_rule("x", "default", "host", Some("no")),
            Err(EditError::NoClass { .. })
        ));
        assert!(matches!(
            map.create_replicated_rule("ec", "default", "host", None),
            Err(EditError::RuleExists { .. })
        ));
        assert_eq!(map, before);
    }
}
