//! Words → statements. Names are resolved later (`build.rs`), so that items may be used before they
//! are defined.

use super::build::build;
use super::error::{ParseError, Problem};
use super::lexer::{Word, Words, clip};
use crate::bucket::Alg;
use crate::map::{CrushMap, ItemId, Mode, RuleKind, Setting, TRIES_MAX, Tunables};
use crate::weight::Weight;

/// The statements of a text, in order, with unresolved names.
pub(super) struct Statements<'t> {
    pub tunables: Tunables,
    pub devices: Vec<DeviceLine<'t>>,
    pub types: Vec<(u16, Word<'t>)>,
    pub buckets: Vec<BucketBlock<'t>>,
    pub rules: Vec<RuleBlock<'t>>,
    pub choose_args: Vec<ArgsBlock>,
}

pub(super) struct DeviceLine<'t> {
    pub id: i32,
    pub name: Word<'t>,
    pub class: Option<Word<'t>>,
}

pub(super) struct BucketBlock<'t> {
    pub kind: Word<'t>,
    pub name: Word<'t>,
    pub id: Option<ItemId>,
    pub class_ids: Vec<(Word<'t>, ItemId)>,
    pub alg: Alg,
    pub items: Vec<ItemLine<'t>>,
}

pub(super) struct ItemLine<'t> {
    pub name: Word<'t>,
    pub weight: Option<(Weight, Word<'t>)>,
    pub position: Option<i64>,
}

pub(super) struct RuleBlock<'t> {
    pub name: Option<Word<'t>>,
    pub line: u32,
    pub id: u8,
    pub kind: RuleKind,
    pub sizes: (u8, u8),
    pub steps: Vec<StepLine<'t>>,
}

pub(super) enum StepLine<'t> {
    Take {
        item: Word<'t>,
        class: Option<Word<'t>>,
    },
    Choose {
        mode: Mode,
        count: i32,
        kind: Word<'t>,
        leaf: bool,
    },
    Set(Setting, u32),
    Emit,
}

pub(super) struct ArgsBlock {
    pub key: i64,
    pub line: u32,
    pub args: Vec<ArgBlock>,
}

pub(super) struct ArgBlock {
    pub bucket: ItemId,
    pub line: u32,
    pub weight_set: Vec<Vec<Weight>>,
    pub ids: Vec<i32>,
}

/// Parses a map from its text form. Never panics: invalid text gives an error.
pub fn parse(text: &str) -> Result<CrushMap, ParseError> {
    let mut words = Words::new(text);
    let mut said = Statements {
        tunables: Tunables::LEGACY,
        devices: Vec::new(),
        types: Vec::new(),
        buckets: Vec::new(),
        rules: Vec::new(),
        choose_args: Vec::new(),
    };
    while let Some(first) = words.next() {
        match first.text {
            "tunable" => tunable(&mut words, &mut said.tunables)?,
            "device" => said.devices.push(device(&mut words)?),
            "type" => {
                let (kind, _) = words.number("a type number", 0, i64::from(u16::MAX))?;
                said.types
                    .push((kind as u16, words.name("the name of a type")?));
            }
            "rule" => said.rules.push(rule(&mut words, first.line)?),
            "choose_args" => said.choose_args.push(choose_args(&mut words, first.line)?),
            _ => said.buckets.push(bucket(&mut words, first)?),
        }
    }
    build(said)
}

fn tunable(words: &mut Words<'_>, tunables: &mut Tunables) -> Result<(), ParseError> {
    let name = words.name("the name of a tunable")?;
    let (field, max) = match name.text {
        "choose_local_tries" => (&mut tunables.choose_local_tries, TRIES_MAX),
        "choose_local_fallback_tries" => (&mut tunables.choose_local_fallback_tries, TRIES_MAX),
        "choose_total_tries" => (&mut tunables.choose_total_tries, TRIES_MAX),
        "chooseleaf_descend_once" => (&mut tunables.chooseleaf_descend_once, 255),
        "chooseleaf_vary_r" => (&mut tunables.chooseleaf_vary_r, 255),
        "chooseleaf_stable" => (&mut tunables.chooseleaf_stable, 255),
        "straw_calc_version" => (&mut tunables.straw_calc_version, 255),
        "allowed_bucket_algs" => (&mut tunables.allowed_bucket_algs, i32::MAX as u32),
        _ => {
            return Err(name.error(Problem::UnknownTunable {
                name: clip(name.text),
            }));
        }
    };
    *field = words.number("the value of a tunable", 0, i64::from(max))?.0 as u32;
    Ok(())
}

fn device<'t>(words: &mut Words<'t>) -> Result<DeviceLine<'t>, ParseError> {
    let (id, _) = words.number("a device number", 0, i64::from(ItemId::DEVICE_END.0) - 1)?;
    let name = words.name("the name of a device")?;
    let class = if words.eat("class") {
        Some(words.name("a device class")?)
    } else {
        None
    };
    Ok(DeviceLine {
        id: id as i32,
        name,
        class,
    })
}

fn bucket<'t>(words: &mut Words<'t>, kind: Word<'t>) -> Result<BucketBlock<'t>, ParseError> {
    let statement = "`tunable`, `device`, `type`, `rule`, `choose_args` or the type of a bucket";
    if !super::lexer::is_name(kind.text) {
        return Err(kind.unexpected(statement));
    }
    let name = words.name("the name of a bucket")?;
    words.expect("{")?;
    let (mut id, mut class_ids, mut alg, mut items) = (None, Vec::new(), None, Vec::new());
    loop {
        let word = words.any("`}`")?;
        match word.text {
            "}" => break,
            "id" => {
                let (number, line) =
                    words.number("a bucket id", i64::from(ItemId::BUCKET_MIN.0), -1)?;
                let number = ItemId(number as i32);
                if words.eat("class") {
                    class_ids.push((words.name("a device class")?, number));
                } else if id.replace(number).is_some() {
                    let problem = Problem::Duplicate {
                        what: "id of bucket",
                        name: clip(name.text),
                    };
                    return Err(ParseError { line, problem });
                }
            }
            "alg" => {
                let word = words.any("a bucket algorithm")?;
                let found = Alg::ALL.into_iter().find(|alg| alg.name() == word.text);
                alg = Some(found.ok_or_else(|| {
                    word.error(Problem::UnknownAlg {
                        name: clip(word.text),
                    })
                })?);
            }
            "hash" => {
                let word = words.any("a hash")?;
                if !matches!(word.text, "0" | "rjenkins1") {
                    return Err(word.error(Problem::UnknownHash {
                        name: clip(word.text),
                    }));
                }
            }
            "item" => items.push(item(words)?),
            _ => return Err(word.unexpected("`id`, `alg`, `hash`, `item` or `}`")),
        }
    }
    let alg = alg.ok_or_else(|| {
        name.error(Problem::NoAlg {
            bucket: clip(name.text),
        })
    })?;
    Ok(BucketBlock {
        kind,
        name,
        id,
        class_ids,
        alg,
        items,
    })
}

fn item<'t>(words: &mut Words<'t>) -> Result<ItemLine<'t>, ParseError> {
    let name = words.name("the name of an item")?;
    let (mut weight, mut position) = (None, None);
    if words.eat("weight") {
        let word = words.any("a weight")?;
        let parsed = Weight::parse(word.text).filter(|weight| *weight <= Weight::BUCKET_MAX);
        weight = Some((
            parsed.ok_or_else(|| {
                word.error(Problem::BadWeight {
                    text: clip(word.text),
                })
            })?,
            word,
        ));
    }
    if words.eat("pos") {
        position = Some(words.number("a position", 0, i64::from(u32::MAX))?.0);
    }
    Ok(ItemLine {
        name,
        weight,
        position,
    })
}

fn rule<'t>(words: &mut Words<'t>, line: u32) -> Result<RuleBlock<'t>, ParseError> {
    let name = if words.peek().is_some_and(|word| word.text == "{") {
        None
    } else {
        Some(words.name("the name of a rule")?)
    };
    words.expect("{")?;
    if !words.eat("id") && !words.eat("ruleset") {
        return Err(words.any("`id`")?.unexpected("`id`"));
    }
    let id = words.number("a rule number", 0, 255)?.0 as u8;
    words.expect("type")?;
    let word = words.any("`replicated` or `erasure`")?;
    let kind = match word.text {
        "replicated" => RuleKind::Replicated,
        "erasure" => RuleKind::Erasure,
        _ => return Err(word.unexpected("`replicated` or `erasure`")),
    };
    words.expect("min_size")?;
    let min_size = words.number("a pool size", 0, 255)?.0 as u8;
    words.expect("max_size")?;
    let max_size = words.number("a pool size", 0, 255)?.0 as u8;
    let mut steps = Vec::new();
    loop {
        let word = words.any("`step` or `}`")?;
        match word.text {
            "}" => break,
            "step" => steps.extend(step(words)?),
            _ => return Err(word.unexpected("`step` or `}`")),
        }
    }
    Ok(RuleBlock {
        name,
        line,
        id,
        kind,
        sizes: (min_size, max_size),
        steps,
    })
}

/// One step; `None` for `noop`, which is dropped.
fn step<'t>(words: &mut Words<'t>) -> Result<Option<StepLine<'t>>, ParseError> {
    let wanted = "`take`, `choose`, `chooseleaf`, `emit` or a `set_…`";
    let word = words.any(wanted)?;
    Ok(Some(match word.text {
        "noop" => return Ok(None),
        "emit" => StepLine::Emit,
        "take" => {
            let item = words.name("the bucket to take")?;
            let class = if words.eat("class") {
                Some(words.name("a device class")?)
            } else {
                None
            };
            StepLine::Take { item, class }
        }
        "choose" | "chooseleaf" => {
            let leaf = word.text == "chooseleaf";
            let mode = match words.any("`firstn` or `indep`")? {
                Word { text: "firstn", .. } => Mode::Firstn,
                Word { text: "indep", .. } => Mode::Indep,
                other => return Err(other.unexpected("`firstn` or `indep`")),
            };
            let bound = i64::from(TRIES_MAX);
            let count = words.number("how many to choose", -bound, bound)?.0 as i32;
            words.expect("type")?;
            StepLine::Choose {
                mode,
                count,
                kind: words.name("a type")?,
                leaf,
            }
        }
        name => match Setting::ALL
            .into_iter()
            .find(|setting| setting.name() == name)
        {
            Some(setting) => StepLine::Set(
                setting,
                words
                    .number("the value of a setting", 0, i64::from(TRIES_MAX))?
                    .0 as u32,
            ),
            None => return Err(word.unexpected(wanted)),
        },
    }))
}

fn choose_args(words: &mut Words<'_>, line: u32) -> Result<ArgsBlock, ParseError> {
    let word = words.any("the number of a pool")?;
    // The default set's -1 is written as an unsigned number.
    let key = match word.text.parse::<u64>() {
        Ok(u64::MAX) => CrushMap::DEFAULT_CHOOSE_ARGS,
        Ok(key) if key <= i64::MAX as u64 => key as i64,
        _ if word.text == "-1" => CrushMap::DEFAULT_CHOOSE_ARGS,
        _ => return Err(word.unexpected("the number of a pool")),
    };
    words.expect("{")?;
    let mut args = Vec::new();
    loop {
        let word = words.any("`{` or `}`")?;
        match word.text {
            "}" => return Ok(ArgsBlock { key, line, args }),
            "{" => args.push(choose_arg(words)?),
            _ => return Err(word.unexpected("`{` or `}`")),
        }
    }
}

fn choose_arg(words: &mut Words<'_>) -> Result<ArgBlock, ParseError> {
    words.expect("bucket_id")?;
    let (bucket, line) = words.number("a bucket id", i64::from(ItemId::BUCKET_MIN.0), -1)?;
    let (mut weight_set, mut ids) = (Vec::new(), Vec::new());
    if words.eat("weight_set") {
        words.expect("[")?;
        while !words.eat("]") {
            words.expect("[")?;
            let mut weights = Vec::new();
            while !words.eat("]") {
                let word = words.any("a weight")?;
                let parsed = Weight::parse(word.text);
                weights.push(parsed.ok_or_else(|| {
                    word.error(Problem::BadWeight {
                        text: clip(word.text),
                    })
                })?);
            }
            weight_set.push(weights);
        }
    }
    if words.eat("ids") {
        words.expect("[")?;
        while !words.eat("]") {
            ids.push(
                words
                    .number("an id", i64::from(i32::MIN), i64::from(i32::MAX))?
                    .0 as i32,
            );
        }
    }
    words.expect("}")?;
    Ok(ArgBlock {
        bucket: ItemId(bucket as i32),
        line,
        weight_set,
        ids,
    })
}
