//! Statements → map: resolves names, assigns omitted ids, and checks the invariants of the map.

use super::error::{ParseError, Problem};
use super::lexer::{Word, clip};
use super::parse::{ArgsBlock, BucketBlock, RuleBlock, Statements, StepLine};
use crate::bucket::{Alg, Bucket};
use crate::map::{ChooseArg, ChooseArgs, CrushMap, DEPTH_MAX, Device, ItemId, Rule, Step};
use crate::shadow::{ShadowError, ShadowIds};
use crate::weight::Weight;
use nacre_types::OsdId;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn build(said: Statements<'_>) -> Result<CrushMap, ParseError> {
    let mut map = CrushMap::bare(said.tunables);
    types(&mut map, &said)?;
    devices(&mut map, &said)?;
    let mut classes: BTreeMap<String, usize> = map
        .classes
        .iter()
        .enumerate()
        .map(|(number, name)| (name.clone(), number))
        .collect();

    let plan = Plan::of(&map, &said.buckets)?;
    let mut old = ShadowIds::new();
    for at in &plan.order {
        let block = &said.buckets[*at];
        let bucket = bucket(&map, block, plan.ids[*at], &plan)?;
        for (class, id) in &block.class_ids {
            let next = map.classes.len();
            let number = *classes.entry(class.text.to_owned()).or_insert(next);
            if number == next {
                map.classes.push(class.text.to_owned());
            }
            if old.insert((bucket.id, number), *id).is_some() {
                return Err(duplicate("id for class", *class));
            }
        }
        map.insert(bucket);
    }
    // Like the original, this keeps the class trees that can be built; only taking a missing one is
    // an error. Also like the original, a text without rules gets none: nothing could take them.
    let wanted = !said.rules.is_empty() || !old.is_empty();
    let shadows = if wanted {
        map.build_shadows(&old)
    } else {
        Ok(())
    };
    if let Err(error @ (ShadowError::IdTaken { .. } | ShadowError::NoFreeId)) = shadows {
        return Err(ParseError {
            line: 1,
            problem: Problem::Shadow(error),
        });
    }
    let unbuilt = shadows.err();
    map.find_device_end();
    let mut rule_names = BTreeSet::new();
    for block in &said.rules {
        let rule = rule(&map, block, &classes, unbuilt.as_ref())?;
        if map.rules.contains_key(&rule.id)
            || (block.name.is_some() && !rule_names.insert(rule.name.clone()))
        {
            let name = if rule.name.is_empty() {
                rule.id.to_string()
            } else {
                rule.name
            };
            return Err(ParseError {
                line: block.line,
                problem: Problem::Duplicate { what: "rule", name },
            });
        }
        map.rules.insert(rule.id, rule);
    }
    for block in said.choose_args {
        let (key, line) = (block.key, block.line);
        let args = choose_args(&map, block)?;
        if map.choose_args.insert(key, args).is_some() {
            let problem = Problem::Duplicate {
                what: "choose_args set",
                name: key.to_string(),
            };
            return Err(ParseError { line, problem });
        }
    }
    map.seal();
    Ok(map)
}

fn duplicate(what: &'static str, name: Word<'_>) -> ParseError {
    name.error(Problem::Duplicate {
        what,
        name: clip(name.text),
    })
}

fn types(map: &mut CrushMap, said: &Statements<'_>) -> Result<(), ParseError> {
    let mut names = BTreeSet::new();
    for (kind, name) in &said.types {
        if !names.insert(name.text) || map.types.insert(*kind, name.text.to_owned()).is_some() {
            return Err(duplicate("type", *name));
        }
    }
    // Devices need a type; a text may omit it.
    if !names.contains("osd") {
        map.types.entry(0).or_insert_with(|| "osd".to_owned());
    }
    map.types.entry(0).or_insert_with(|| "device".to_owned());
    Ok(())
}

fn devices(map: &mut CrushMap, said: &Statements<'_>) -> Result<(), ParseError> {
    let mut classes: BTreeMap<&str, usize> = BTreeMap::new();
    for line in &said.devices {
        let class = line.class.map(|class| {
            let next = classes.len();
            let number = *classes.entry(class.text).or_insert(next);
            if number == next {
                map.classes.push(class.text.to_owned());
            }
            number
        });
        let device = Device {
            name: line.name.text.to_owned(),
            class,
        };
        if map
            .names
            .insert(line.name.text.to_owned(), ItemId(line.id))
            .is_some()
            || map.devices.insert(OsdId(line.id as u32), device).is_some()
        {
            return Err(duplicate("device", line.name));
        }
    }
    Ok(())
}

/// Names, order and ids of the buckets, before any is built.
struct Plan<'t> {
    /// Index of the block that defines a name.
    by_name: BTreeMap<&'t str, usize>,
    /// Block indexes, every bucket after its contents, otherwise in the order of the text.
    order: Vec<usize>,
    /// Id per block.
    ids: Vec<ItemId>,
}

impl<'t> Plan<'t> {
    fn of(map: &CrushMap, blocks: &[BucketBlock<'t>]) -> Result<Self, ParseError> {
        let mut by_name = BTreeMap::new();
        for (at, block) in blocks.iter().enumerate() {
            if map.names.contains_key(block.name.text)
                || by_name.insert(block.name.text, at).is_some()
            {
                return Err(duplicate("bucket or device", block.name));
            }
        }
        let order = order(blocks, &by_name)?;
        let ids = ids(blocks, &order)?;
        Ok(Self {
            by_name,
            order,
            ids,
        })
    }
}

/// Children before parents; refuses cycles and depths beyond [`DEPTH_MAX`]. It uses an explicit
/// stack, because the nesting comes from an untrusted text.
fn order<'t>(
    blocks: &[BucketBlock<'t>],
    by_name: &BTreeMap<&'t str, usize>,
) -> Result<Vec<usize>, ParseError> {
    let mut order = Vec::with_capacity(blocks.len());
    // Levels of buckets at and below a finished block; 0 while it is open.
    let mut depth: Vec<Option<usize>> = vec![None; blocks.len()];
    for root in 0..blocks.len() {
        if depth[root].is_some() {
            continue;
        }
        depth[root] = Some(0);
        let mut stack = vec![(root, 0)];
        while let Some((at, next)) = stack.last_mut() {
            let block = &blocks[*at];
            let Some(item) = block.items.get(*next) else {
                let children = block
                    .items
                    .iter()
                    .filter_map(|item| depth[*by_name.get(item.name.text)?]);
                let levels = 1 + children.max().unwrap_or(0);
                if levels > DEPTH_MAX {
                    return Err(block.name.error(Problem::TooDeep {
                        bucket: clip(block.name.text),
                    }));
                }
                depth[*at] = Some(levels);
                order.push(*at);
                stack.pop();
                continue;
            };
            *next += 1;
            let Some(child) = by_name.get(item.name.text).copied() else {
                continue;
            };
            match depth[child] {
                None => {
                    depth[child] = Some(0);
                    stack.push((child, 0));
                }
                Some(0) => {
                    return Err(item.name.error(Problem::Cycle {
                        bucket: clip(item.name.text),
                    }));
                }
                Some(_) => {}
            }
        }
    }
    Ok(order)
}

/// The ids given in the text, and the free ones nearest to -1 for buckets without.
fn ids(blocks: &[BucketBlock<'_>], order: &[usize]) -> Result<Vec<ItemId>, ParseError> {
    let mut taken = BTreeSet::new();
    for block in blocks {
        for id in block
            .id
            .iter()
            .chain(block.class_ids.iter().map(|(_, id)| id))
        {
            if !taken.insert(*id) {
                let problem = Problem::Duplicate {
                    what: "bucket id",
                    name: id.to_string(),
                };
                return Err(block.name.error(problem));
            }
        }
    }
    let mut ids = vec![ItemId::NONE; blocks.len()];
    let mut next = ItemId(-1);
    for at in order {
        ids[*at] = match blocks[*at].id {
            Some(id) => id,
            None => {
                while taken.contains(&next) {
                    next.0 -= 1;
                }
                if next < ItemId::BUCKET_MIN {
                    return Err(blocks[*at].name.error(Problem::NoFreeId));
                }
                taken.insert(next);
                next
            }
        };
    }
    Ok(ids)
}

fn bucket(
    map: &CrushMap,
    block: &BucketBlock<'_>,
    id: ItemId,
    plan: &Plan<'_>,
) -> Result<Bucket, ParseError> {
    let name = block.name;
    let kind = map.type_by_name(block.kind.text).ok_or_else(|| {
        block.kind.error(Problem::UnknownType {
            name: clip(block.kind.text),
        })
    })?;
    if kind == 0 {
        return Err(name.error(Problem::DeviceType {
            bucket: clip(name.text),
        }));
    }
    let size = block.items.len();
    let mut places: Vec<Option<(ItemId, Weight)>> = vec![None; size];
    let mut reserved = vec![false; size];
    for line in &block.items {
        let Some(position) = line.position else {
            continue;
        };
        let item = clip(line.name.text);
        match usize::try_from(position)
            .ok()
            .and_then(|position| reserved.get_mut(position))
        {
            None => {
                return Err(line.name.error(Problem::BadPosition {
                    item,
                    position,
                    size,
                }));
            }
            Some(true) => return Err(line.name.error(Problem::PositionTaken { item, position })),
            Some(free) => *free = true,
        }
    }
    let (mut seen, mut free) = (BTreeSet::new(), 0);
    let mut uniform = None;
    for line in &block.items {
        let text = line.name.text;
        let item = match plan.by_name.get(text) {
            Some(at) => plan.ids[*at],
            None => map.item(text).ok_or_else(|| {
                line.name.error(Problem::UnknownItem {
                    name: clip(text),
                    within: clip(name.text),
                })
            })?,
        };
        if !seen.insert(item) {
            return Err(line.name.error(Problem::ItemTwice {
                item: clip(text),
                bucket: clip(name.text),
            }));
        }
        let weight = match (line.weight, map.bucket(item)) {
            (Some((weight, word)), None) if weight > Weight::DEVICE_MAX => {
                return Err(word.error(Problem::DeviceWeight {
                    item: clip(text),
                    text: clip(word.text),
                }));
            }
            (Some((weight, _)), _) => weight,
            (None, Some(child)) => child.weight,
            (None, None) => Weight::ONE,
        };
        if block.alg == Alg::Uniform && *uniform.get_or_insert(weight) != weight {
            return Err(line.name.error(Problem::UniformWeights {
                item: clip(text),
                bucket: clip(name.text),
            }));
        }
        let place = match line.position {
            Some(position) => position as usize, // checked above
            None => {
                while reserved[free] {
                    free += 1;
                }
                free += 1;
                free - 1
            }
        };
        places[place] = Some((item, weight));
    }
    let items = places
        .into_iter()
        .map(|place| place.expect("as many places as items, each used once"))
        .collect();
    Bucket::new(
        id,
        name.text.to_owned(),
        kind,
        block.alg,
        items,
        map.tunables.straw_calc_version,
    )
    .map_err(|_| {
        name.error(Problem::BucketWeight {
            bucket: clip(name.text),
        })
    })
}

fn rule(
    map: &CrushMap,
    block: &RuleBlock<'_>,
    classes: &BTreeMap<String, usize>,
    unbuilt: Option<&ShadowError>,
) -> Result<Rule, ParseError> {
    let name = block.name.map_or("", |name| name.text);
    let mut steps = Vec::with_capacity(block.steps.len());
    for step in &block.steps {
        steps.push(match step {
            StepLine::Emit => Step::Emit,
            StepLine::Set(setting, value) => Step::Set(*setting, *value),
            StepLine::Choose {
                mode,
                count,
                kind,
                leaf,
            } => {
                let number = map.type_by_name(kind.text);
                let kind = number.ok_or_else(|| {
                    kind.error(Problem::UnknownType {
                        name: clip(kind.text),
                    })
                })?;
                Step::Choose {
                    mode: *mode,
                    count: *count,
                    kind,
                    leaf: *leaf,
                }
            }
            StepLine::Take { item, class } => {
                let id = map.item(item.text).ok_or_else(|| {
                    item.error(Problem::UnknownItem {
                        name: clip(item.text),
                        within: format!("rule {}", clip(name)),
                    })
                })?;
                Step::Take(match class {
                    None => id,
                    Some(class) => {
                        let number = classes.get(class.text);
                        let shadow =
                            number.and_then(|number| map.class_shadows.get(&(id, *number)));
                        *shadow.ok_or_else(|| {
                            let (item, name) = (clip(item.text), clip(class.text));
                            class.error(Problem::NoClassTree {
                                item,
                                class: name,
                                why: unbuilt.cloned(),
                            })
                        })?
                    }
                })
            }
        });
    }
    let (min_size, max_size) = block.sizes;
    Ok(Rule {
        id: block.id,
        name: name.to_owned(),
        kind: block.kind,
        min_size,
        max_size,
        steps,
    })
}

fn choose_args(map: &CrushMap, block: ArgsBlock) -> Result<ChooseArgs, ParseError> {
    let mut args = ChooseArgs::new();
    for arg in block.args {
        let error = |problem| ParseError {
            line: arg.line,
            problem,
        };
        let bucket = map
            .bucket(arg.bucket)
            .ok_or_else(|| error(Problem::UnknownBucketId { id: arg.bucket }))?;
        let size = bucket.items.len();
        if bucket.alg != Alg::Straw2 {
            return Err(error(Problem::NotStraw2 { id: arg.bucket }));
        }
        for weights in &arg.weight_set {
            if weights.len() != size {
                return Err(error(Problem::WrongCount {
                    what: "weights",
                    found: weights.len(),
                    size,
                }));
            }
        }
        if !arg.ids.is_empty() && arg.ids.len() != size {
            return Err(error(Problem::WrongCount {
                what: "ids",
                found: arg.ids.len(),
                size,
            }));
        }
        let value = ChooseArg {
            weight_set: arg.weight_set,
            ids: arg.ids,
        };
        if args.insert(arg.bucket, value).is_some() {
            return Err(error(Problem::Duplicate {
                what: "choose_args bucket",
                name: arg.bucket.to_string(),
            }));
        }
    }
    Ok(args)
}
