//! `nacre crush …`: placement maps without a cluster. Results are those of Ceph 16's crushtool, bit
//! for bit.
//!
//! Stable formats for external tools: `crush test` prints a line of OSD ids per input and nothing
//! else; `crush hash` prints `raw HASH pg PG`, both in hexadecimal as `ceph osd map` shows them
//! (`docs/formats/crush-text.md` has the map's text form).

use crate::out::Out;
use anyhow::{Context, Result, bail};
use clap::Args;
use nacre_crush::balance::{BalanceLimits, balance};
use nacre_crush::map::{CrushMap, Rule};
use nacre_crush::place::PoolPlacement;
use nacre_crush::upmap::Upmaps;
use nacre_crush::{ItemId, Reweights, Scratch, Weight, object, text};
use nacre_types::{OsdId, PoolId};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Placement maps.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Run a rule over a range of inputs: per input a line of OSD ids, `-` for a hole.
    Test(Test),
    /// An object's hash and placement group, in hexadecimal: `raw 214c62cc pg 4`.
    Hash(Hash),
    /// Check a map's text and write it with everything explicit: all ids, and a tree per device
    /// class.
    Compile(Convert),
    /// The text of a compiled map.
    Decompile(Convert),
    /// The hierarchy.
    Tree(Tree),
    /// What balancing would change, and how even it would become.
    BalancePreview(Preview),
}

/// Arguments of `crush test`.
#[derive(Args)]
pub struct Test {
    /// The map, in crushtool's text form.
    #[arg(long, value_name = "FILE")]
    map: PathBuf,
    /// The rule, by name or number.
    #[arg(long)]
    rule: String,
    /// How many OSDs to ask for.
    #[arg(long, value_name = "N")]
    replicas: usize,
    /// The first input.
    #[arg(long, value_name = "A", default_value_t = 0)]
    min_x: u32,
    /// The last input.
    #[arg(long, value_name = "B", default_value_t = 1023)]
    max_x: u32,
    /// An OSD that takes only this part of its share, from 0 (out) to 1; may be given many times.
    #[arg(long, value_name = "OSD:W", value_parser = reweight)]
    reweight: Vec<(OsdId, Weight)>,
}

/// Arguments of `crush hash`.
#[derive(Args)]
pub struct Hash {
    /// How many placement groups the pool has.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pg_num: u32,
    /// The object's namespace.
    #[arg(long, value_name = "NS", default_value = "")]
    namespace: OsString,
    /// The object's name; any bytes. Write `--` before it if it begins with a dash.
    name: OsString,
}

/// Arguments of `crush compile` and `crush decompile`.
#[derive(Args)]
pub struct Convert {
    /// The map.
    file: PathBuf,
    /// Where to write it; standard output without.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Arguments of `crush tree`.
#[derive(Args)]
pub struct Tree {
    /// The map.
    file: PathBuf,
    /// Also the trees per device class.
    #[arg(long)]
    shadow: bool,
}

/// Arguments of `crush balance-preview`.
#[derive(Args)]
pub struct Preview {
    /// The map.
    #[arg(long, value_name = "FILE")]
    map: PathBuf,
    /// The rule, by name or number.
    #[arg(long)]
    rule: String,
    /// Copies or shards per group.
    #[arg(long, value_name = "N")]
    replicas: usize,
    /// Placement groups.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pg_num: u32,
    /// The pool's number, which is part of the hash.
    #[arg(long, value_name = "ID", default_value_t = 1)]
    pool: u64,
    /// An OSD that takes only a part of its share; may be given many times.
    #[arg(long, value_name = "OSD:W", value_parser = reweight)]
    reweight: Vec<(OsdId, Weight)>,
}

/// Runs a command.
///
/// # Errors
/// When a file is not a map, or the map has no such rule.
pub fn run(command: Command, out: &mut Out) -> Result<()> {
    match command {
        Command::Test(arguments) => test(&arguments, out),
        Command::Hash(arguments) => hash(&arguments, out),
        Command::Compile(arguments) | Command::Decompile(arguments) => convert(&arguments, out),
        Command::Tree(arguments) => tree(&arguments, out),
        Command::BalancePreview(arguments) => preview(&arguments, out),
    }
}

fn read(file: &Path) -> Result<CrushMap> {
    let bytes =
        std::fs::read(file).with_context(|| format!("reading the map {}", file.display()))?;
    let Ok(text) = String::from_utf8(bytes) else {
        bail!(
            "{} is not text; `crushtool -d FILE` gives the text of a map in Ceph's binary form",
            file.display()
        );
    };
    let map = text::parse(&text).with_context(|| file.display().to_string())?;
    // A map cut off between two sections would still be valid, for a smaller cluster or without a
    // rule.
    let has = |line: &str| text.lines().any(|found| found.trim() == line);
    if has("# begin crush map") && !has("# end crush map") {
        bail!(
            "{} is cut off: it begins with `# begin crush map`, but `# end crush map` is missing",
            file.display()
        );
    }
    Ok(map)
}

fn find_rule<'m>(map: &'m CrushMap, name: &str) -> Result<&'m Rule> {
    let by_number = || name.parse().ok().and_then(|id| map.rule(id));
    if let Some(rule) = map.rule_by_name(name).or_else(by_number) {
        return Ok(rule);
    }
    let known: Vec<String> = map
        .rules()
        .map(|rule| format!("{} ({})", rule.name, rule.id))
        .collect();
    bail!(
        "the map has no rule {name}; it has {}",
        if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        }
    )
}

/// `OSD:W`, as in `3:0.5` or `osd.3:0.5`.
fn reweight(text: &str) -> Result<(OsdId, Weight), String> {
    let parse = || {
        let (osd, weight) = text.split_once(':')?;
        let osd = osd.strip_prefix("osd.").unwrap_or(osd).parse().ok()?;
        let weight = Weight::parse(weight).filter(|weight| *weight <= Weight::ONE)?;
        Some((OsdId(osd), weight))
    };
    parse().ok_or_else(|| "write OSD:W with W from 0 to 1, such as 3:0.5".to_owned())
}

fn reweights(map: &CrushMap, given: &[(OsdId, Weight)]) -> Result<Reweights> {
    let mut reweights = Reweights::all_in(map);
    for (osd, weight) in given {
        if !map.devices().any(|device| device == *osd) {
            bail!("the map has no {osd} to reweight; `nacre crush tree` lists its OSDs");
        }
        reweights.set(*osd, *weight);
    }
    Ok(reweights)
}

fn test(arguments: &Test, out: &mut Out) -> Result<()> {
    let Test {
        min_x,
        max_x,
        replicas,
        ..
    } = *arguments;
    if min_x > max_x {
        bail!("--min-x {min_x} is larger than --max-x {max_x}");
    }
    let map = read(&arguments.map)?;
    let rule = find_rule(&map, &arguments.rule)?;
    let reweights = reweights(&map, &arguments.reweight)?;
    // As in crushtool: the weight sets for pools without their own.
    let sets = map.choose_args_of_pool(0);
    let (mut scratch, mut mappings) = (Scratch::default(), Vec::new());
    for x in min_x..=max_x {
        let found = map.map_with(rule.id, x, replicas, &reweights, sets, &mut scratch)?;
        if out.json() {
            let osds: Vec<Value> = found
                .iter()
                .map(|item| {
                    if *item == ItemId::NONE {
                        Value::Null
                    } else {
                        json!(item.0)
                    }
                })
                .collect();
            mappings.push(json!({ "x": x, "osds": osds }));
        } else {
            let ids: Vec<String> = found.iter().map(ItemId::to_string).collect();
            out.line(&ids.join(" "))?;
        }
    }
    if out.json() {
        out.value(&json!({ "rule": rule.name, "rule_id": rule.id, "replicas": replicas, "mappings": mappings }))?;
    }
    Ok(())
}

fn hash(arguments: &Hash, out: &mut Out) -> Result<()> {
    let raw = object::object_hash(
        arguments.namespace.as_bytes(),
        b"",
        arguments.name.as_bytes(),
    );
    let pg = object::pg_seed(raw, arguments.pg_num);
    if out.json() {
        return out.value(
            &json!({ "raw": format!("{raw:x}"), "pg": format!("{pg:x}"), "pg_number": pg }),
        );
    }
    out.line(&format!("raw {raw:x} pg {pg:x}"))
}

fn convert(arguments: &Convert, out: &mut Out) -> Result<()> {
    let text = text::print(&read(&arguments.file)?);
    if let Some(file) = &arguments.output {
        return std::fs::write(file, text).with_context(|| format!("writing {}", file.display()));
    }
    if out.json() {
        out.value(&json!({ "text": text }))
    } else {
        out.bytes(text.as_bytes())
    }
}

fn tree(arguments: &Tree, out: &mut Out) -> Result<()> {
    let map = read(&arguments.file)?;
    if !out.json() {
        return out.bytes(map.tree_table(arguments.shadow).as_bytes());
    }
    let rows = map.tree(arguments.shadow).into_iter().map(|row| {
        json!({
            "depth": row.depth, "id": row.id.0, "type": row.kind, "name": row.name, "class": row.class,
            "weight": row.weight.as_f64(),
        })
    });
    out.value(&Value::Array(rows.collect()))
}

fn preview(arguments: &Preview, out: &mut Out) -> Result<()> {
    let map = read(&arguments.map)?;
    let rule = find_rule(&map, &arguments.rule)?;
    let Preview {
        pg_num,
        replicas,
        pool,
        ..
    } = *arguments;
    let placement = PoolPlacement {
        pool: PoolId(pool),
        pg_num,
        pgp_num: pg_num,
        rule: rule.id,
        size: replicas,
        kind: rule.kind,
    };
    let reweights = reweights(&map, &arguments.reweight)?;
    let found = balance(
        &map,
        &[placement],
        &reweights,
        &Upmaps::default(),
        &BalanceLimits::default(),
    )?;
    let (before, after) = found.worst;
    if out.json() {
        let changes: BTreeMap<String, Vec<(u32, u32)>> = found
            .changes
            .iter()
            .map(|((pool, seed), swaps)| {
                (
                    format!("{}.{seed:x}", pool.0),
                    swaps.iter().map(|(from, to)| (from.0, to.0)).collect(),
                )
            })
            .collect();
        return out.value(&json!({
            "swaps": found.swaps, "worst_deviation_before_pgs": before, "worst_deviation_after_pgs": after, "upmaps": changes,
        }));
    }
    for ((pool, seed), swaps) in &found.changes {
        let swaps: Vec<String> = swaps
            .iter()
            .map(|(from, to)| format!("{from} to {to}"))
            .collect();
        out.line(&format!("{}.{seed:x}: {}", pool.0, swaps.join(", ")))?;
    }
    out.line(&format!(
        "{} swaps; the OSD farthest from its share is {before:.1} groups off before, {after:.1} after",
        found.swaps
    ))
}
