//! `nacre bench object`: operations of one size at a given depth.
//!
//! ```text
//!  prefill, --warm-up ─▶ measured: `depth` in flight until the time is up ─▶ drained ─▶ --settle ─▶ --verify: all read back and compared
//!                        └──────────────── CPU is counted from here to there ─────────────────┘
//! ```
//! A named set of objects (`--set`, `--keep`, `--prepared`) serves several runs: objects read cold
//! were written before the daemons started.

use super::cpu::{self, Used};
use super::workset::{Part, Workset, draw, shuffled};
use crate::objects::{Ended, Failed, Objects, Window};
use crate::out::Out;
use crate::progress;
use crate::table::parse_bytes;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use nacre_node::Moved;
use nacre_types::PoolId;
use nacre_wire::msg::client::{OP_BYTES_MAX, OpFailure};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// New objects.
    Write,
    /// Objects that exist, replaced at random.
    Overwrite,
    /// Objects that exist, read at random.
    Read,
    /// One key of the omap of objects that exist, set at random; --size is that of the value.
    Omap,
    /// Nothing but making the objects of --set, for later runs with --prepared.
    Prepare,
}

impl Mode {
    fn reads(self) -> bool {
        self == Self::Read
    }
    fn part(self) -> Part {
        if self == Self::Omap {
            Part::Omap
        } else {
            Part::Data
        }
    }
}

/// Arguments of `bench object`.
#[derive(Args)]
pub struct Arguments {
    /// What to do.
    mode: Mode,
    /// Bytes of an object.
    #[arg(long, value_parser = parse_bytes)]
    pub size: u64,
    /// Operations in flight.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depth: u32,
    /// For how long.
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// How many objects are overwritten or read; the most that are written.
    #[arg(long, default_value_t = 1024)]
    pub objects: u64,
    /// Read everything back afterwards and compare it with what was written.
    #[arg(long)]
    pub verify: bool,
    /// The pool; it is made if it does not exist.
    #[arg(long, default_value = "bench")]
    pub pool: String,
    /// Leave the objects there.
    #[arg(long)]
    pub keep: bool,
    /// What the set of objects is called; every run has one of its own without.
    #[arg(long, value_name = "NAME")]
    set: Option<String>,
    /// The set is there, of so many objects of that size; it is not written first.
    #[arg(long, requires = "set", conflicts_with = "verify")]
    prepared: bool,
    /// Read all objects once before measuring, so that what keeps what was read has it.
    #[arg(long)]
    warm_up: bool,
    /// Read each object once, in a random order, and end with the last one or when the time is up.
    #[arg(long)]
    once: bool,
    /// Count CPU until so many seconds after the last operation: daemons put off some of their
    /// work.
    #[arg(long, default_value_t = 0.0, value_name = "SECONDS")]
    settle: f64,
    /// Make this file when measuring begins.
    #[arg(long, value_name = "FILE")]
    begun: Option<PathBuf>,
    /// Do not ask how many bytes the daemons copied, which takes two seconds.
    #[arg(long)]
    no_copies: bool,
}

impl Arguments {
    fn check(&self) -> Result<()> {
        let Self { size, mode, .. } = *self;
        ensure!(
            size <= OP_BYTES_MAX,
            "--size may be at most {OP_BYTES_MAX} bytes: one operation carries no more"
        );
        ensure!(
            self.objects > 0 && self.objects <= 100_000_000,
            "--objects must be from 1 to 100,000,000"
        );
        ensure!(
            self.seconds > 0.0 && self.seconds <= 1e6,
            "--seconds must be positive"
        );
        ensure!(
            (0.0..=600.0).contains(&self.settle),
            "--settle must be from 0 to 600"
        );
        ensure!(
            mode != Mode::Prepare || self.set.is_some(),
            "prepare needs --set: nobody would find the objects again"
        );
        ensure!(
            !self.prepared || !matches!(mode, Mode::Write | Mode::Prepare),
            "--prepared is for objects that exist"
        );
        ensure!(!self.once || mode.reads(), "--once is for reading");
        ensure!(
            !self.warm_up || !matches!(mode, Mode::Write | Mode::Prepare),
            "--warm-up is for objects that exist"
        );
        Ok(())
    }
    /// The number in the names of the set's objects.
    fn run(&self) -> u64 {
        let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        match &self.set {
            Some(name) => {
                let hash = blake3::hash(name.as_bytes());
                u64::from_le_bytes(hash.as_bytes()[..8].try_into().expect("eight bytes"))
            }
            None => now().map_or(1, |since| since.as_nanos() as u64),
        }
    }
}

/// Results of a run.
struct Measured {
    histogram: Histogram<u64>,
    elapsed: Duration,
    longest_gap: Duration,
    failed: u64,
    used: Used,
    /// Payload bytes that the daemons received and copied; `None` when they do not report it.
    moved: Option<Moved>,
}

/// After an operation was given up the benchmark continues for at most this long until one is
/// answered again: otherwise the length of the outage is unknown.
const STUCK_MAX: Duration = Duration::from_mins(2);

/// Longer than the interval, one second, at which daemons record the bytes that they moved.
const MOVED_DELAY: Duration = Duration::from_millis(1200);

/// Runs the benchmark on an existing pool. `run_folder` has the daemons' pid files.
///
/// # Errors
/// When the cluster refuses, or data read back are not what was written.
pub fn run(
    arguments: &Arguments,
    cluster: &mut dyn Objects,
    pool: PoolId,
    run_folder: Option<&Path>,
    out: &mut Out,
) -> Result<()> {
    arguments.check()?;
    let mut objects = workset(arguments, pool);
    make_ready(arguments, &mut objects, cluster)?;
    if arguments.mode == Mode::Prepare {
        let count = objects.begun.len();
        return if out.json() {
            out.value(&json!({ "prepared": count }))
        } else {
            out.line(&format!("{count} objects are there"))
        };
    }
    let result = measure(arguments, &mut objects, cluster, run_folder)?;
    let wrong = if arguments.verify {
        Some(verify(&objects, cluster)?)
    } else {
        None
    };
    if !arguments.keep {
        remove(&objects, cluster)?;
    }
    report(arguments, &result, wrong.as_deref(), out)?;
    out.finish()?;
    match wrong.as_deref() {
        Some([first, ..]) => {
            bail!(
                "{} objects are not what was written, such as {first}",
                wrong.as_ref().map_or(0, Vec::len)
            )
        }
        _ => Ok(()),
    }
}

fn workset(arguments: &Arguments, pool: PoolId) -> Workset {
    let count = usize::try_from(arguments.objects).expect("bounded by the check");
    let written = u64::from(arguments.prepared);
    Workset {
        pool,
        run: arguments.run(),
        size: arguments.size,
        part: arguments.mode.part(),
        begun: vec![written; count],
        certain: vec![written; count],
    }
}

/// Prepares the measurement.
fn make_ready(
    arguments: &Arguments,
    objects: &mut Workset,
    cluster: &mut dyn Objects,
) -> Result<()> {
    if arguments.mode != Mode::Write && !arguments.prepared {
        prefill(objects, cluster)?;
    }
    if arguments.warm_up {
        warm_up(objects, cluster)?;
    }
    Ok(())
}

fn prefill(objects: &mut Workset, cluster: &mut dyn Objects) -> Result<()> {
    let bar = progress::count("preparing", objects.begun.len() as u64);
    let mut window = Window::new(cluster, 64, 64 << 20);
    let mut ended = |(), result: Ended| {
        bar.inc(1);
        result
            .map(drop)
            .context("writing the objects that are to be there")
    };
    for index in 0..objects.begun.len() {
        let (write, _) = objects.write(index);
        window.push(write, (), objects.size, &mut ended)?;
        objects.certain[index] = 1;
    }
    window.drain(&mut ended)?;
    bar.finish_and_clear();
    Ok(())
}

fn warm_up(objects: &Workset, cluster: &mut dyn Objects) -> Result<()> {
    let bar = progress::count("warming up", objects.begun.len() as u64);
    let mut window = Window::new(cluster, 64, 64 << 20);
    let mut ended = |index: usize, result: Ended| {
        bar.inc(1);
        result
            .map(drop)
            .with_context(|| format!("reading {}", objects.name(index)))
    };
    for index in objects.touched() {
        window.push(objects.read(index), index, objects.size, &mut ended)?;
    }
    window.drain(&mut ended)?;
    bar.finish_and_clear();
    Ok(())
}

fn measure(
    arguments: &Arguments,
    objects: &mut Workset,
    cluster: &mut dyn Objects,
    run_folder: Option<&Path>,
) -> Result<Measured> {
    let mode = arguments.mode;
    let count = objects.begun.len() as u64;
    let limit = Duration::from_secs_f64(arguments.seconds);
    let mut histogram =
        Histogram::<u64>::new_with_bounds(1, 3_600_000_000, 3).expect("constant bounds");
    let mut flying = std::collections::BTreeMap::new();
    let (mut next_new, mut random, mut failed) = (0_u64, objects.run | 1, 0_u64);
    let once = if arguments.once {
        shuffled(count, &mut random)
    } else {
        Vec::new()
    };
    let in_turn = mode == Mode::Write || arguments.once;
    let bar = progress::waiting("measuring");
    let moves = |folder| {
        if arguments.no_copies {
            None
        } else {
            moved(folder)
        }
    };
    let moved_before = moves(run_folder);
    if let Some(path) = &arguments.begun {
        std::fs::write(path, "").with_context(|| format!("making {}", path.display()))?;
    }
    let before = cpu::used(run_folder)?;
    let begun = Instant::now();
    let (mut last, mut longest_gap) = (begun, Duration::ZERO);
    // The last operation was given up: that is no answer.
    let mut stuck = false;
    // One write of an object at a time: otherwise the order of two would be unknown.
    let mut busy = std::collections::BTreeSet::new();
    loop {
        let may_last = if stuck { limit + STUCK_MAX } else { limit };
        let open = begun.elapsed() < may_last && (!in_turn || next_new < count);
        if open
            && flying.len() < arguments.depth as usize
            && (mode.reads() || (busy.len() as u64) < count)
        {
            let mut index = if in_turn {
                next_new
            } else {
                draw(&mut random) % count
            };
            next_new += u64::from(in_turn);
            while !mode.reads() && !busy.insert(index) {
                index = (index + 1) % count;
            }
            let index = if arguments.once {
                once[usize::try_from(index).expect("bounded")]
            } else {
                index
            };
            let at = usize::try_from(index).expect("bounded");
            let (operation, sequence) = if mode.reads() {
                (objects.read(at), 0)
            } else {
                objects.write(at)
            };
            let started = Instant::now();
            let id = cluster.begin(operation)?;
            if flying.is_empty() && !stuck {
                last = started;
            }
            flying.insert(id, (at, sequence, started));
            continue;
        }
        let Some((id, result)) = cluster.next()? else {
            break;
        };
        let now = Instant::now();
        let (at, sequence, started) = flying
            .remove(&id)
            .context("an operation ended that nobody began")?;
        busy.remove(&(at as u64));
        match result {
            Ok(done) => {
                longest_gap = longest_gap.max(now - last);
                (last, stuck) = (now, false);
                let us = u64::try_from((now - started).as_micros()).unwrap_or(u64::MAX);
                histogram.saturating_record(us.max(1));
                if mode.reads() {
                    ensure!(
                        objects.found_len(&done) == objects.size,
                        "{} has another size than was written",
                        objects.name(at)
                    );
                } else {
                    objects.certain[at] = sequence;
                }
                bar.tick();
            }
            // It may or may not have been executed; a later read may show either.
            Err(Failed::Unknown(_)) => (failed, stuck) = (failed + 1, true),
            Err(why) => return Err(why).with_context(|| objects.name(at).to_string()),
        }
    }
    let elapsed = begun.elapsed();
    if stuck {
        longest_gap = longest_gap.max(last.elapsed());
    }
    std::thread::sleep(Duration::from_secs_f64(arguments.settle));
    let used = cpu::between(&before, &cpu::used(run_folder)?);
    bar.finish_and_clear();
    let moved = moved_before.and_then(|before| Some(moves(run_folder)?.since(before)));
    Ok(Measured {
        histogram,
        elapsed,
        longest_gap,
        failed,
        used,
        moved,
    })
}

/// Bytes moved by the daemons so far, once they have recorded them.
fn moved(run_folder: Option<&Path>) -> Option<Moved> {
    Moved::of_folder(run_folder?)?;
    std::thread::sleep(MOVED_DELAY);
    Moved::of_folder(run_folder?)
}

/// Reads all written objects; returns the names of wrong ones.
fn verify(objects: &Workset, cluster: &mut dyn Objects) -> Result<Vec<String>> {
    let bar = progress::count("verifying", objects.begun.len() as u64);
    let mut wrong = Vec::new();
    let mut window = Window::new(cluster, 64, 64 << 20);
    let mut ended = |index: usize, result: Ended| {
        bar.inc(1);
        let right = match result {
            Ok(done) => objects.is_right(index, &done),
            // Valid if no write of it is known to have been executed.
            Err(Failed::Refused(OpFailure::NotFound {})) => objects.certain[index] == 0,
            Err(why) => {
                return Err(why).with_context(|| format!("reading {} back", objects.name(index)));
            }
        };
        if !right {
            wrong.push(objects.name(index).to_string());
        }
        Ok(())
    };
    for index in objects.touched() {
        window.push(objects.read(index), index, objects.size, &mut ended)?;
    }
    window.drain(&mut ended)?;
    bar.finish_and_clear();
    Ok(wrong)
}

fn remove(objects: &Workset, cluster: &mut dyn Objects) -> Result<()> {
    let mut window = Window::new(cluster, 64, u64::MAX);
    let mut ended = |(), result: Ended| match result {
        Ok(_) | Err(Failed::Refused(OpFailure::NotFound {})) => Ok(()),
        Err(why) => Err(why).context("removing the benchmark's objects"),
    };
    for index in objects.touched() {
        window.push(objects.remove(index), (), 0, &mut ended)?;
    }
    window.drain(&mut ended)
}

fn report(
    arguments: &Arguments,
    result: &Measured,
    wrong: Option<&[String]>,
    out: &mut Out,
) -> Result<()> {
    let Measured {
        histogram,
        elapsed,
        longest_gap,
        failed,
        used,
        moved,
    } = result;
    let ops = histogram.len();
    let seconds = elapsed.as_secs_f64();
    let rounded = |value: f64| (value * 100.0).round() / 100.0;
    let cpu: u64 = used.values().sum();
    let per_op = if ops == 0 {
        0.0
    } else {
        rounded(cpu as f64 / ops as f64)
    };
    // Of all bytes received through the daemons' sockets: each replica of an object counts.
    let share = |moved: Moved| (moved.copied as f64 / moved.received as f64 * 1e4).round() / 1e4;
    let copied = moved.filter(|moved| moved.received > 0).map(share);
    let quantile = |q: f64| histogram.value_at_quantile(q);
    let mode = arguments
        .mode
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned());
    let value: Value = json!({
        "mode": mode,
        "size": arguments.size,
        "depth": arguments.depth,
        "objects": arguments.objects,
        "seconds": rounded(seconds),
        "settle_s": arguments.settle,
        "ops": ops,
        "unknown": failed,
        "ops_per_s": rounded(ops as f64 / seconds),
        "mb_per_s": rounded(ops as f64 * arguments.size as f64 / seconds / 1e6),
        "p50_us": quantile(0.5),
        "p99_us": quantile(0.99),
        "p999_us": quantile(0.999),
        "max_us": if ops == 0 { 0 } else { histogram.max() },
        "longest_gap_ms": rounded(longest_gap.as_secs_f64() * 1e3),
        "cpu_us_per_op": per_op,
        "cpu_us": used,
        "bytes_copied": moved.map(|moved| moved.copied),
        "bytes_copied_per_byte": copied,
        "verified": wrong.map(|wrong| wrong.is_empty()),
    });
    if out.json() {
        return out.value(&value);
    }
    let field = |name: &str| value[name].to_string();
    out.line(&format!(
        "{mode} {} bytes at depth {}: {} operations in {} s",
        arguments.size,
        arguments.depth,
        ops,
        field("seconds")
    ))?;
    out.line(&format!(
        "  {} operations/s, {} MB/s",
        field("ops_per_s"),
        field("mb_per_s")
    ))?;
    out.line(&format!(
        "  latency µs: p50 {}  p99 {}  p99.9 {}  max {}; longest without an answer {} ms",
        field("p50_us"),
        field("p99_us"),
        field("p999_us"),
        field("max_us"),
        field("longest_gap_ms")
    ))?;
    out.line(&format!(
        "  CPU µs per operation: {per_op}, client and daemons"
    ))?;
    for (name, us) in used {
        out.line(&format!(
            "    {name}: {:.2}",
            if ops == 0 {
                0.0
            } else {
                *us as f64 / ops as f64
            }
        ))?;
    }
    if let Some(copied) = copied {
        out.line(&format!(
            "  bytes copied in memory per payload byte between socket and disk: {copied}"
        ))?;
    }
    if *failed > 0 {
        out.line(&format!("  {failed} operations ended without an answer"))?;
    }
    if let Some(wrong) = wrong {
        out.line(if wrong.is_empty() {
            "  everything read back is what was written"
        } else {
            "  VERIFICATION FAILED"
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::memory::Memory;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn arguments(line: &str) -> Arguments {
        <Line as clap::Parser>::try_parse_from(format!("bench {line}").split(' '))
            .expect("well-formed")
            .arguments
    }

    /// Runs it on a cluster; returns the number of measured operations.
    fn ops(line: &str, cluster: &mut Memory) -> Result<u64> {
        let arguments = arguments(line);
        arguments.check()?;
        let mut objects = workset(&arguments, PoolId(1));
        make_ready(&arguments, &mut objects, cluster)?;
        if arguments.mode == Mode::Prepare {
            return Ok(0);
        }
        let measured = measure(&arguments, &mut objects, cluster, None)?;
        if arguments.verify {
            ensure!(
                verify(&objects, cluster)?.is_empty(),
                "not what was written"
            );
        }
        Ok(measured.histogram.len())
    }

    #[test]
    fn a_set_is_made_by_one_run_and_read_once_by_another() {
        let once =
            "read --size 100 --objects 50 --set a --prepared --keep --once --depth 7 --seconds 60";
        assert!(
            ops(once, &mut Memory::default()).is_err(),
            "nobody made it yet"
        );
        let made = || {
            let mut cluster = Memory::default();
            assert_eq!(
                ops("prepare --size 100 --objects 50 --set a", &mut cluster).expect("made"),
                0
            );
            assert_eq!(cluster.names().len(), 50);
            cluster
        };
        assert!(
            ops(&once.replace("--set a", "--set b"), &mut made()).is_err(),
            "another set"
        );
        assert!(
            ops(&once.replace("--size 100", "--size 101"), &mut made()).is_err(),
            "shorter ones were made"
        );
        let mut cluster = made();
        assert_eq!(
            ops(once, &mut cluster).expect("read"),
            50,
            "each object once, long before the time is up"
        );
        let names = cluster.names();
        ops(
            "overwrite --size 100 --objects 50 --set a --prepared --keep --seconds 0.01",
            &mut cluster,
        )
        .expect("fine");
        assert_eq!(cluster.names(), names, "the same objects");
    }

    #[test]
    fn keys_are_set_and_verified() {
        let mut cluster = Memory::default();
        let line = "omap --size 64 --objects 20 --depth 4 --seconds 0.05 --verify --keep";
        assert!(ops(line, &mut cluster).expect("right") > 0);
    }

    #[test]
    fn what_is_given_up_is_no_answer_and_one_is_waited_for() {
        let mut cluster = Memory::default();
        ops("prepare --size 100 --objects 50 --set a", &mut cluster).expect("made");
        cluster.unanswered = 40;
        let line = "read --size 100 --objects 50 --set a --prepared --depth 4 --seconds 0.000001";
        assert!(
            ops(line, &mut cluster).expect("answered in the end") > 0,
            "long after the time was up"
        );
        assert_eq!(cluster.unanswered, 0);
    }

    #[test]
    fn what_makes_no_sense_together_is_refused() {
        for (line, why) in [
            ("prepare --size 4KiB", "needs --set"),
            ("write --size 4KiB --set a --prepared", "--prepared is for"),
            ("overwrite --size 4KiB --once", "--once is for"),
            ("write --size 4KiB --warm-up", "--warm-up is for"),
            ("read --size 4KiB --settle 1000", "from 0 to 600"),
        ] {
            let error = arguments(line).check().expect_err(line).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
