//! `nacre bench fill`: writes new objects until there is no space for more, and removes a part of
//! them.
//!
//! ```text
//!  write:  objects 0, 1, 2, … ─▶ --refusals reached, or --objects written ─▶ the longest refusal, the longest write
//!  thin:   all but each --keep-every'th are removed, which frees space in many small pieces
//!  verify: possible objects are read ─▶ how many exist; each has its written content
//! ```
//! A set (`--set`) connects the runs: its objects' names and contents are derived from it.

use super::workset::{Part, Workset};
use crate::objects::{Ended, Failed, Objects, Window};
use crate::out::Out;
use crate::progress;
use crate::table::parse_bytes;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use nacre_types::PoolId;
use nacre_wire::msg::client::{OP_BYTES_MAX, OpFailure};
use serde_json::json;
use std::time::{Duration, Instant};

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// New objects.
    Write,
    /// Objects are removed.
    Thin,
    /// Objects are read back and compared.
    Verify,
}

/// Arguments of `bench fill`.
#[derive(Args)]
pub struct Arguments {
    /// What to do.
    mode: Mode,
    /// What the set of objects is called.
    #[arg(long, value_name = "NAME")]
    set: String,
    /// Bytes of an object.
    #[arg(long, value_parser = parse_bytes)]
    size: u64,
    /// The most that are written, from the first; how many there are to thin and to verify.
    #[arg(long, default_value_t = 1_000_000)]
    objects: u64,
    /// Operations in flight.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: u32,
    /// Writing ends when so many were refused for want of space.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    refusals: u64,
    /// Each object whose number is a multiple of this stays; without it none does.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    keep_every: Option<u64>,
    /// The pool; it is made if it does not exist.
    #[arg(long, default_value = "bench")]
    pub pool: String,
}

/// Results of a run.
#[derive(Default)]
struct Came {
    done: u64,
    refused: u64,
    absent: u64,
    unknown: u64,
    wrong: Vec<String>,
    longest: Duration,
    longest_refusal: Duration,
}

/// Maximum number of wrong objects shown.
const SHOWN: usize = 20;

/// Runs it on an existing pool.
///
/// # Errors
/// When the cluster cannot be reached, refuses for another reason than lack of space, or an object
/// is not what was written.
pub fn run(
    arguments: &Arguments,
    cluster: &mut dyn Objects,
    pool: PoolId,
    out: &mut Out,
) -> Result<()> {
    let Arguments {
        mode,
        size,
        objects,
        ..
    } = *arguments;
    ensure!(
        size <= OP_BYTES_MAX,
        "--size may be at most {OP_BYTES_MAX} bytes: one operation carries no more"
    );
    ensure!(
        (1..=100_000_000).contains(&objects),
        "--objects must be from 1 to 100,000,000"
    );
    let mut set = workset(arguments, pool);
    let begun = Instant::now();
    let bar = progress::count("filling", objects);
    let mut came = Came::default();
    let mut window = Window::new(cluster, arguments.depth as usize, 64 << 20);
    for index in 0..set.begun.len() {
        if mode == Mode::Write && came.refused >= arguments.refusals {
            break;
        }
        if mode == Mode::Thin
            && arguments
                .keep_every
                .is_some_and(|every| (index as u64).is_multiple_of(every))
        {
            continue;
        }
        let operation = match mode {
            Mode::Write => set.write(index).0,
            Mode::Thin => set.remove(index),
            Mode::Verify => set.read(index),
        };
        let bytes = if mode == Mode::Thin { 0 } else { size };
        let ended = &mut |what, ended| take(&mut came, &set, mode, what, ended);
        window.push(operation, (index, Instant::now()), bytes, ended)?;
        bar.inc(1);
    }
    window.drain(&mut |what, ended| take(&mut came, &set, mode, what, ended))?;
    bar.finish_and_clear();
    report(&came, begun.elapsed(), out)
}

fn workset(arguments: &Arguments, pool: PoolId) -> Workset {
    let hash = blake3::hash(arguments.set.as_bytes());
    let run = u64::from_le_bytes(hash.as_bytes()[..8].try_into().expect("eight bytes"));
    let count = usize::try_from(arguments.objects).expect("bounded by the check");
    // Each object is written once: its first write is what is read back.
    let written = u64::from(arguments.mode == Mode::Verify);
    Workset {
        pool,
        run,
        size: arguments.size,
        part: Part::Data,
        begun: vec![written; count],
        certain: vec![written; count],
    }
}

/// Records the result of an operation.
fn take(
    came: &mut Came,
    set: &Workset,
    mode: Mode,
    (index, begun): (usize, Instant),
    ended: Ended,
) -> Result<()> {
    let took = begun.elapsed();
    match ended {
        Ok(done) if mode == Mode::Verify && !set.is_right(index, &done) => {
            came.wrong.push(set.name(index).to_string());
        }
        Ok(_) => (came.done, came.longest) = (came.done + 1, came.longest.max(took)),
        Err(Failed::Refused(OpFailure::Full {})) if mode == Mode::Write => {
            (came.refused, came.longest_refusal) =
                (came.refused + 1, came.longest_refusal.max(took));
        }
        Err(Failed::Refused(OpFailure::NotFound {})) if mode != Mode::Write => came.absent += 1,
        Err(Failed::Unknown(_)) => {
            (came.unknown, came.longest) = (came.unknown + 1, came.longest.max(took))
        }
        Err(why) => return Err(why).with_context(|| set.name(index).to_string()),
    }
    Ok(())
}

fn report(came: &Came, took: Duration, out: &mut Out) -> Result<()> {
    let ms = |time: Duration| (time.as_secs_f64() * 1e4).round() / 10.0;
    let Came {
        done,
        refused,
        absent,
        unknown,
        wrong,
        longest,
        longest_refusal,
    } = came;
    if out.json() {
        out.value(&json!({
            "done": done, "refused": refused, "absent": absent, "unknown": unknown,
            "wrong": wrong.len(), "first": wrong.iter().take(SHOWN).collect::<Vec<_>>(),
            "seconds": ms(took) / 1e3, "longest_ms": ms(*longest), "longest_refusal_ms": ms(*longest_refusal),
        }))?;
    } else {
        out.line(&format!(
            "{done} done in {:.1} s, {refused} refused for want of space, {absent} are not there, {unknown} unknown",
            took.as_secs_f64()
        ))?;
        out.line(&format!(
            "  longest: {} ms; longest refusal: {} ms",
            ms(*longest),
            ms(*longest_refusal)
        ))?;
    }
    match wrong.first() {
        Some(first) => bail!(
            "{} objects are not what was written, such as {first}",
            wrong.len()
        ),
        None => Ok(()),
    }
}
