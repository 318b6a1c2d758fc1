//! Map → text, byte for byte as `crushtool -d` prints it, except that a weight gets more than three
//! decimals if three would be read back as a different weight.

use crate::bucket::{Alg, Bucket};
use crate::map::{CrushMap, ItemId, Mode, Rule, RuleKind, Step, Tunables};
use std::collections::BTreeSet;
use std::fmt::{self, Write};

/// The text form of a map; [`super::parse`] returns the same map.
#[must_use]
pub fn print(map: &CrushMap) -> String {
    // Approximate size of a device, its item line and its share of buckets.
    let mut text = String::with_capacity(1024 + 80 * map.devices.len());
    write(map, &mut text).expect("writing to a string does not fail");
    text
}

fn write(map: &CrushMap, out: &mut String) -> fmt::Result {
    out.push_str("# begin crush map\n");
    tunables(&map.tunables, out)?;
    out.push_str("\n# devices\n");
    for (id, device) in &map.devices {
        write!(out, "device {} {}", id.0, device.name)?;
        if let Some(class) = map.device_class(*id) {
            write!(out, " class {class}")?;
        }
        out.push('\n');
    }
    out.push_str("\n# types\n");
    for (kind, name) in &map.types {
        writeln!(out, "type {kind} {name}")?;
    }
    out.push_str("\n# buckets\n");
    let mut done = BTreeSet::new();
    for bucket in map.real_buckets() {
        bucket_after_children(map, bucket, &mut done, out)?;
    }
    out.push_str("\n# rules\n");
    for rule in map.rules.values() {
        self::rule(map, rule, out)?;
    }
    if !map.choose_args.is_empty() {
        choose_args(map, out)?;
    }
    out.push_str("\n# end crush map\n");
    Ok(())
}

/// Tunables that differ from the values of a text that sets none.
fn tunables(tunables: &Tunables, out: &mut String) -> fmt::Result {
    let silence = Tunables::LEGACY;
    for (name, value, default) in [
        (
            "choose_local_tries",
            tunables.choose_local_tries,
            silence.choose_local_tries,
        ),
        (
            "choose_local_fallback_tries",
            tunables.choose_local_fallback_tries,
            silence.choose_local_fallback_tries,
        ),
        (
            "choose_total_tries",
            tunables.choose_total_tries,
            silence.choose_total_tries,
        ),
        (
            "chooseleaf_descend_once",
            tunables.chooseleaf_descend_once,
            silence.chooseleaf_descend_once,
        ),
        (
            "chooseleaf_vary_r",
            tunables.chooseleaf_vary_r,
            silence.chooseleaf_vary_r,
        ),
        (
            "chooseleaf_stable",
            tunables.chooseleaf_stable,
            silence.chooseleaf_stable,
        ),
        (
            "straw_calc_version",
            tunables.straw_calc_version,
            silence.straw_calc_version,
        ),
        (
            "allowed_bucket_algs",
            tunables.allowed_bucket_algs,
            silence.allowed_bucket_algs,
        ),
    ] {
        if value != default {
            writeln!(out, "tunable {name} {value}")?;
        }
    }
    Ok(())
}

/// The recursion is bounded by the depth that is checked for every map.
fn bucket_after_children(
    map: &CrushMap,
    bucket: &Bucket,
    done: &mut BTreeSet<ItemId>,
    out: &mut String,
) -> fmt::Result {
    if !done.insert(bucket.id) {
        return Ok(());
    }
    for child in bucket.items.iter().filter_map(|item| map.bucket(*item)) {
        bucket_after_children(map, child, done, out)?;
    }
    let kind = map
        .type_name(bucket.kind)
        .expect("the type of every bucket is named");
    writeln!(out, "{kind} {} {{", bucket.name)?;
    writeln!(out, "\tid {}\t\t# do not change unnecessarily", bucket.id)?;
    let classes = (bucket.id, 0)..=(bucket.id, usize::MAX);
    for ((_, class), shadow) in map.class_shadows.range(classes) {
        writeln!(
            out,
            "\tid {shadow} class {}\t\t# do not change unnecessarily",
            map.classes[*class]
        )?;
    }
    writeln!(out, "\t# weight {}", bucket.weight.rounded())?;
    write!(out, "\talg {}", bucket.alg.name())?;
    match bucket.alg {
        Alg::Uniform => write!(
            out,
            "\t# do not change bucket size ({}) unnecessarily",
            bucket.items.len()
        )?,
        Alg::List => {
            out.push_str("\t# add new items at the end; do not change order unnecessarily")
        }
        Alg::Tree => out.push_str("\t# do not change pos for existing items unnecessarily"),
        Alg::Straw | Alg::Straw2 => {}
    }
    out.push_str("\n\thash 0\t# rjenkins1\n");
    for (position, (item, weight)) in bucket.items().enumerate() {
        let name = map.item_name(item).expect("every item of a bucket exists");
        write!(out, "\titem {name} weight {weight}")?;
        if matches!(bucket.alg, Alg::Uniform | Alg::Tree) {
            write!(out, " pos {position}")?;
        }
        out.push('\n');
    }
    out.push_str("}\n");
    Ok(())
}

fn rule(map: &CrushMap, rule: &Rule, out: &mut String) -> fmt::Result {
    let kind = match rule.kind {
        RuleKind::Replicated => "replicated",
        RuleKind::Erasure => "erasure",
    };
    writeln!(
        out,
        "rule {} {{\n\tid {}\n\ttype {kind}",
        rule.name, rule.id
    )?;
    writeln!(
        out,
        "\tmin_size {}\n\tmax_size {}",
        rule.min_size, rule.max_size
    )?;
    for step in &rule.steps {
        match *step {
            Step::Take(item) => {
                let (item, class) = match map.shadow_of.get(&item) {
                    Some((original, class)) => (*original, Some(&map.classes[*class])),
                    None => (item, None),
                };
                write!(
                    out,
                    "\tstep take {}",
                    map.item_name(item).expect("what a rule takes exists")
                )?;
                if let Some(class) = class {
                    write!(out, " class {class}")?;
                }
                out.push('\n');
            }
            Step::Set(setting, value) => writeln!(out, "\tstep {} {value}", setting.name())?,
            Step::Choose {
                mode,
                count,
                kind,
                leaf,
            } => {
                let verb = if leaf { "chooseleaf" } else { "choose" };
                let mode = match mode {
                    Mode::Firstn => "firstn",
                    Mode::Indep => "indep",
                };
                let kind = map.type_name(kind).expect("types in rules are named");
                writeln!(out, "\tstep {verb} {mode} {count} type {kind}")?;
            }
            Step::Emit => out.push_str("\tstep emit\n"),
        }
    }
    out.push_str("}\n");
    Ok(())
}

fn choose_args(map: &CrushMap, out: &mut String) -> fmt::Result {
    out.push_str("\n# choose_args\n");
    // Keys are printed as unsigned numbers, and in that order.
    let mut sets: Vec<_> = map
        .choose_args
        .iter()
        .map(|(key, args)| (*key as u64, args))
        .collect();
    sets.sort_by_key(|(key, _)| *key);
    for (key, args) in sets {
        writeln!(out, "choose_args {key} {{")?;
        for (bucket, arg) in args.iter().rev() {
            if arg.weight_set.is_empty() && arg.ids.is_empty() {
                continue;
            }
            writeln!(out, "  {{\n    bucket_id {bucket}")?;
            if !arg.weight_set.is_empty() {
                out.push_str("    weight_set [\n");
                for weights in &arg.weight_set {
                    out.push_str("      [ ");
                    for weight in weights {
                        write!(out, "{weight} ")?;
                    }
                    out.push_str("]\n");
                }
                out.push_str("    ]\n");
            }
            if !arg.ids.is_empty() {
                out.push_str("    ids [ ");
                for id in &arg.ids {
                    write!(out, "{id} ")?;
                }
                out.push_str("]\n");
            }
            out.push_str("  }\n");
        }
        out.push_str("}\n");
    }
    Ok(())
}
