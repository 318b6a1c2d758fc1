//! `nacre bench scripts`: scripts run on objects one after the other without a pause, as a hostile
//! client would send them (MAL-24).
//!
//! ```text
//!  FOLDER/*.lua ─▶ Eval on object 0, 1, … 7, 0, … ─▶ how each ended, and after how long ─▶ again from the first until the time is up
//! ```
//! The results of the scripts are not checked here: their author knows what to expect.

use crate::cluster::Session;
use crate::objects::{call, operation};
use crate::out::Out;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::Args;
use nacre_types::{ObjectId, PoolId};
use nacre_wire::msg::client::SubOp;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Arguments of `bench scripts`.
#[derive(Args)]
pub struct Arguments {
    /// A folder of Lua files; the function that each registers as `f` is run.
    folder: PathBuf,
    /// For how long; every script is run once, however long that takes.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// The input of every run.
    #[arg(long, default_value = "in")]
    input: String,
    /// How many objects.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    objects: u64,
    /// The pool; it is made if it does not exist.
    #[arg(long, default_value = "bench")]
    pub pool: String,
}

/// One script, over all its runs.
struct Script {
    name: String,
    text: Bytes,
    runs: u64,
    longest: Duration,
    /// Error of the last failed run.
    failure: Option<String>,
}

fn scripts(arguments: &Arguments) -> Result<Vec<Script>> {
    let folder = &arguments.folder;
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "lua" || extension == "luau")
        {
            let text = Bytes::from(
                fs::read(&path).with_context(|| format!("reading {}", path.display()))?,
            );
            let name = path
                .file_stem()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            all.push(Script {
                name,
                text,
                runs: 0,
                longest: Duration::ZERO,
                failure: None,
            });
        }
    }
    ensure!(
        !all.is_empty(),
        "there is no file *.lua or *.luau in {}",
        folder.display()
    );
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// Runs the benchmark.
///
/// # Errors
/// When there are no scripts, or the cluster cannot be reached. A script that fails is a result.
pub fn run(
    arguments: &Arguments,
    session: &mut dyn Session,
    pool: PoolId,
    out: &mut Out,
) -> Result<()> {
    ensure!(
        arguments.seconds > 0.0 && arguments.seconds <= 1e6,
        "--seconds must be positive"
    );
    let mut scripts = scripts(arguments)?;
    let begun = Instant::now();
    let mut sent = 0_u64;
    'all: for round in 0.. {
        for script in &mut scripts {
            if round > 0 && begun.elapsed().as_secs_f64() > arguments.seconds {
                break 'all;
            }
            let op = SubOp::Eval {
                script: script.text.len() as u64,
                handler: "f".into(),
                input: arguments.input.len() as u64,
            };
            let object = ObjectId::named(&format!("bench-scripts-{}", sent % arguments.objects));
            let payload = [script.text.clone(), Bytes::from(arguments.input.clone())];
            let payload = payload
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect();
            let asked = Instant::now();
            let ended = call(session, operation(pool, object, vec![op], payload))?;
            script.longest = script.longest.max(asked.elapsed());
            script.runs += 1;
            script.failure = ended.err().map(|failed| failed.to_string());
            sent += 1;
        }
    }
    report(&scripts, sent, out)
}

fn report(scripts: &[Script], sent: u64, out: &mut Out) -> Result<()> {
    let rows: Vec<Value> = scripts
        .iter()
        .map(|script| {
            json!({
                "script": script.name,
                "runs": script.runs,
                "longest_ms": (script.longest.as_secs_f64() * 1e4).round() / 10.0,
                "failure": script.failure,
            })
        })
        .collect();
    if out.json() {
        return out.value(&json!({ "sent": sent, "scripts": rows }));
    }
    for script in scripts {
        let end = script.failure.as_deref().unwrap_or("ended well");
        out.line(&format!(
            "{:<44} {:>8.1} ms  {end}",
            script.name,
            script.longest.as_secs_f64() * 1e3
        ))?;
    }
    out.line(&format!("{sent} sent"))
}
