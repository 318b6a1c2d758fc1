//! `nacre bench call`: methods of classes at a given depth; and the cost of Lua compared with Rust,
//! beside plain operations, in one run (MAL-06, MAL-28).
//!
//! ```text
//!  --class C --method M   one method until the time is up: rate, latency, CPU, which activations answered, and that none of an object's went back
//!  otherwise              rounds of: plain omap set · tally.add in Rust · the same in Lua · tally.get in Rust · the same in Lua
//! ```
//! All operations have completed before the CPU time is read. The Lua class is installed under the
//! name `bench_tally` and stays installed.

use super::cpu::{self, Used};
use crate::cluster::{Place, Session};
use crate::objects::{Failed, operation};
use crate::out::Out;
use crate::program;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::Args;
use hdrhistogram::Histogram;
use nacre_client::Operation;
use nacre_types::{ObjectId, PoolId};
use nacre_wire::map::ProgramKind;
use nacre_wire::msg::client::{SubOp, SubReply};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The Rust class `tally` (`osd::builtin`), line for line.
const TALLY: &str = include_str!("../../../policy/benches/tally.lua");
const LUA: &str = "bench_tally";
const ROUNDS: u32 = 5;

/// Arguments of `bench call`.
#[derive(Args)]
pub struct Arguments {
    /// The class whose method is called; without it, Lua is compared with Rust.
    #[arg(long, requires = "method")]
    class: Option<String>,
    /// The method.
    #[arg(long)]
    method: Option<String>,
    /// Instead of an installed class, send the source in this file with every call.
    #[arg(
        long,
        value_name = "FILE",
        requires = "method",
        conflicts_with = "class"
    )]
    script: Option<PathBuf>,
    /// Count CPU until so many seconds after the last call: daemons put off some of their work.
    #[arg(long, default_value_t = 0.0, value_name = "SECONDS")]
    settle: f64,
    /// Its input; `{n}` is replaced by the number of the call, `{o}` by that of the object.
    #[arg(long, default_value = "k")]
    input: String,
    /// Operations in flight.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: u32,
    /// For how long, altogether.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// How many objects.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    objects: u64,
    /// The pool; it is made if it does not exist.
    #[arg(long, default_value = "bench")]
    pub pool: String,
}

/// The parsed arguments, with the source to send with every call if there is one.
struct Asked<'a> {
    arguments: &'a Arguments,
    script: Bytes,
}

/// The operation on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Plain,
    RustAdd,
    LuaAdd,
    RustGet,
    LuaGet,
    Given,
}

impl What {
    const COMPARED: [Self; 5] = [
        Self::Plain,
        Self::RustAdd,
        Self::LuaAdd,
        Self::RustGet,
        Self::LuaGet,
    ];
    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain omap set",
            Self::RustAdd => "tally.add in Rust",
            Self::LuaAdd => "tally.add in Lua",
            Self::RustGet => "tally.get in Rust",
            Self::LuaGet => "tally.get in Lua",
            Self::Given => "given",
        }
    }
}

#[derive(Default)]
struct Sum {
    micros: Vec<u64>,
    elapsed: Duration,
    used: Used,
    failed: BTreeMap<String, u64>,
    unknown: u64,
    activations: BTreeMap<u64, u64>,
    /// Calls of an object that ran an older activation than one answered before they began.
    backwards: u64,
    longest_gap: Duration,
}

/// Runs the benchmark.
///
/// # Errors
/// When the cluster refuses what is needed for it, or a compared call fails.
pub fn run(
    arguments: &Arguments,
    place: &Place,
    session: &mut dyn Session,
    pool: PoolId,
    out: &mut Out,
) -> Result<()> {
    ensure!(
        arguments.seconds > 0.0 && arguments.seconds <= 1e6,
        "--seconds must be positive"
    );
    ensure!(
        (0.0..=600.0).contains(&arguments.settle),
        "--settle must be from 0 to 600"
    );
    let given = arguments.class.is_some() || arguments.script.is_some();
    ensure!(
        given || arguments.method.is_none(),
        "--method needs --class or --script: whose is it?"
    );
    let script = arguments
        .script
        .as_deref()
        .map(program::read_source)
        .transpose()?
        .unwrap_or_default();
    let asked = Asked {
        arguments,
        script: script.into(),
    };
    let folder = place.run_folder();
    if given {
        let mut sum = Sum::default();
        measure(
            What::Given,
            &asked,
            Duration::from_secs_f64(arguments.seconds),
            session,
            pool,
            &folder,
            &mut sum,
        )?;
        return report_given(arguments, &sum, out);
    }
    program::store_and_install(
        ProgramKind::Class {},
        LUA,
        TALLY.as_bytes(),
        place.name(),
        session,
    )?;
    let mut sums: BTreeMap<What, Sum> = BTreeMap::new();
    let slice = Duration::from_secs_f64(
        arguments.seconds / f64::from(ROUNDS * What::COMPARED.len() as u32),
    );
    // One warm-up round that is not measured: objects are created, chunks are compiled.
    for round in 0..=ROUNDS {
        for what in What::COMPARED {
            let mut sum = Sum::default();
            measure(what, &asked, slice, session, pool, &folder, &mut sum)?;
            ensure!(sum.failed.is_empty(), "{}: {:?}", what.name(), sum.failed);
            if round > 0 {
                sums.entry(what).or_default().add(sum);
            }
        }
    }
    report_compared(arguments, &sums, out)
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.micros.extend(other.micros);
        self.elapsed += other.elapsed;
        for (name, us) in other.used {
            *self.used.entry(name).or_default() += us;
        }
        self.unknown += other.unknown;
        self.longest_gap = self.longest_gap.max(other.longest_gap);
    }
    fn cpu_us_per_op(&self) -> f64 {
        self.used.values().sum::<u64>() as f64 / self.micros.len().max(1) as f64
    }
    fn quantile(&self, q: f64) -> u64 {
        let mut histogram =
            Histogram::<u64>::new_with_bounds(1, 3_600_000_000, 3).expect("constant bounds");
        for us in &self.micros {
            histogram.saturating_record((*us).max(1));
        }
        histogram.value_at_quantile(q)
    }
    fn value(&self) -> Value {
        let rounded = |value: f64| (value * 100.0).round() / 100.0;
        json!({
            "ops": self.micros.len(),
            "ops_per_s": rounded(self.micros.len() as f64 / self.elapsed.as_secs_f64().max(1e-9)),
            "p50_us": self.quantile(0.5),
            "p99_us": self.quantile(0.99),
            "cpu_us_per_op": rounded(self.cpu_us_per_op()),
            "unknown": self.unknown,
        })
    }
}

fn request(what: What, asked: &Asked, pool: PoolId, object: u64, number: u64) -> Operation {
    let Asked { arguments, script } = asked;
    let name = ObjectId::named(&format!("bench-call-{object:08}"));
    let call = |class: &str, method: &str, input: String| {
        let op = SubOp::Call {
            class: class.into(),
            method: method.into(),
            length: input.len() as u64,
        };
        (
            op,
            if input.is_empty() {
                Vec::new()
            } else {
                vec![Bytes::from(input)]
            },
        )
    };
    let (op, payload) = match what {
        What::Plain => {
            let entries = vec![(Bytes::from_static(b"k"), Bytes::from(number.to_string()))];
            (SubOp::OmapSet { entries }, Vec::new())
        }
        What::RustAdd => call("tally", "add", "k".to_owned()),
        What::LuaAdd => call(LUA, "add", "k".to_owned()),
        What::RustGet => call("tally", "get", "k".to_owned()),
        What::LuaGet => call(LUA, "get", "k".to_owned()),
        What::Given => {
            let input = arguments
                .input
                .replace("{n}", &number.to_string())
                .replace("{o}", &object.to_string());
            let method = arguments.method.as_deref().expect("given");
            match arguments.class.as_deref() {
                Some(class) => call(class, method, input),
                None => {
                    let (length, input_length) = (script.len() as u64, input.len() as u64);
                    let op = SubOp::Eval {
                        script: length,
                        handler: method.into(),
                        input: input_length,
                    };
                    (
                        op,
                        [script.clone(), input.into()]
                            .into_iter()
                            .filter(|part: &Bytes| !part.is_empty())
                            .collect(),
                    )
                }
            }
        }
    };
    operation(pool, name, vec![op], payload)
}

fn measure(
    what: What,
    asked: &Asked,
    limit: Duration,
    cluster: &mut dyn Session,
    pool: PoolId,
    folder: &Path,
    sum: &mut Sum,
) -> Result<()> {
    let mut flying = BTreeMap::new();
    let arguments = asked.arguments;
    // The newest activation that answered, by object: later calls must not run an older one.
    let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
    let before = cpu::used(Some(folder))?;
    let begun = Instant::now();
    let (mut number, mut last) = (0_u64, begun);
    loop {
        if begun.elapsed() < limit && flying.len() < arguments.depth as usize {
            number += 1;
            let object = number % arguments.objects;
            let started = Instant::now();
            let id = cluster.begin(request(what, asked, pool, object, number))?;
            flying.insert(
                id,
                (object, newest.get(&object).copied().unwrap_or(0), started),
            );
            continue;
        }
        let Some((id, result)) = cluster.next()? else {
            break;
        };
        let now = Instant::now();
        let (object, at_least, started) = flying
            .remove(&id)
            .context("an operation ended that nobody began")?;
        sum.longest_gap = sum.longest_gap.max(now - last);
        last = now;
        match result {
            Ok(done) => {
                sum.micros
                    .push(u64::try_from((now - started).as_micros()).unwrap_or(u64::MAX));
                if let Some(SubReply::Called { activation, .. }) = done.results.first() {
                    *sum.activations.entry(*activation).or_default() += 1;
                    sum.backwards += u64::from(*activation < at_least);
                    let seen = newest.entry(object).or_default();
                    *seen = (*seen).max(*activation);
                }
            }
            Err(Failed::Unknown(_)) => sum.unknown += 1,
            Err(why @ (Failed::Refused(_) | Failed::Foreign(_))) => {
                *sum.failed.entry(why.to_string()).or_default() += 1
            }
        }
    }
    sum.elapsed = begun.elapsed();
    std::thread::sleep(Duration::from_secs_f64(arguments.settle));
    sum.used = cpu::between(&before, &cpu::used(Some(folder))?);
    Ok(())
}

fn report_given(arguments: &Arguments, sum: &Sum, out: &mut Out) -> Result<()> {
    let mut value = sum.value();
    value["class"] = json!(arguments.class);
    value["script"] = json!(arguments.script);
    value["method"] = json!(arguments.method);
    value["failed"] = json!(sum.failed.values().sum::<u64>());
    value["failures"] = json!(sum.failed);
    value["activations"] = json!(sum.activations);
    value["backwards"] = json!(sum.backwards);
    value["longest_gap_ms"] = json!(sum.longest_gap.as_secs_f64() * 1e3);
    if out.json() {
        return out.value(&value);
    }
    for field in [
        "ops",
        "ops_per_s",
        "p50_us",
        "p99_us",
        "cpu_us_per_op",
        "longest_gap_ms",
        "unknown",
        "failed",
        "backwards",
    ] {
        out.line(&format!("{field}: {}", value[field]))?;
    }
    for (activation, calls) in &sum.activations {
        out.line(&format!("activation {activation}: {calls} calls"))?;
    }
    for (why, calls) in &sum.failed {
        out.line(&format!("{calls} failed: {why}"))?;
    }
    Ok(())
}

fn report_compared(arguments: &Arguments, sums: &BTreeMap<What, Sum>, out: &mut Out) -> Result<()> {
    let cost = |what: What| sums[&what].cpu_us_per_op();
    let rounded = |value: f64| (value * 100.0).round() / 100.0;
    let (write, read) = (
        cost(What::LuaAdd) - cost(What::RustAdd),
        cost(What::LuaGet) - cost(What::RustGet),
    );
    let rows: BTreeMap<&str, Value> = sums
        .iter()
        .map(|(what, sum)| (what.name(), sum.value()))
        .collect();
    let value = json!({
        "depth": arguments.depth,
        "objects": arguments.objects,
        "what": rows,
        "lua_over_rust_write_us": rounded(write),
        "lua_over_rust_read_us": rounded(read),
    });
    if out.json() {
        return out.value(&value);
    }
    for what in What::COMPARED {
        let row = &value["what"][what.name()];
        out.line(&format!(
            "{:<18} {:>9} ops/s  p50 {} µs  p99 {} µs  {} µs CPU per operation",
            what.name(),
            row["ops_per_s"],
            row["p50_us"],
            row["p99_us"],
            row["cpu_us_per_op"]
        ))?;
    }
    out.line(&format!(
        "Lua over Rust: {:.1} µs of CPU per writing call, {:.1} per reading call",
        write, read
    ))
}
