//! `nacre bench object`: operations of one size at a depth.
//!
//! ```text
//!  prefill (overwrite, read) ─▶ measured: `depth` in flight until the time is up ─▶ drained ─▶ --verify: all read back and compared
//!                                └─────────── CPU is counted from here to there ──┘
//! ```
//! What is written is derived from (run, object, sequence) in every block, so that a block of another object, of another time, or torn
//! between two writes is recognised.

use super::cpu::{self, Used};
use crate::objects::{Ended, Failed, Objects, Window, operation};
use crate::out::Out;
use crate::progress;
use crate::table::parse_bytes;
use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use nacre_node::Moved;
use nacre_types::{ObjectId, PoolId};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OP_BYTES_MAX, OpFailure, SubOp};
use serde_json::{Value, json};
use std::path::Path;
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
}

/// What came of it.
struct Measured {
    histogram: Histogram<u64>,
    elapsed: Duration,
    longest_gap: Duration,
    failed: u64,
    used: Used,
    /// Payload bytes that the daemons received and copied; none when they do not say so.
    moved: Option<Moved>,
}

/// Daemons write down what they moved once a second.
const MOVED_DELAY: Duration = Duration::from_millis(1200);

/// Every written block begins with what it is, and goes on with noise drawn from that.
const BLOCK: usize = 4096;

/// The content of an object after its write number `sequence`.
fn content(run: u64, object: u64, sequence: u64, size: u64) -> Bytes {
    let size = usize::try_from(size).expect("at most an operation's bytes");
    let mut data = BytesMut::with_capacity(size);
    let mut block = 0_u64;
    while data.len() < size {
        let mut state =
            run ^ object.rotate_left(20) ^ sequence.rotate_left(40) ^ block.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for _ in 0..BLOCK / 8 {
            // splitmix64: every bit of the state matters, and it costs next to nothing beside the operation.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            data.extend_from_slice(&(z ^ (z >> 31)).to_le_bytes());
        }
        block += 1;
    }
    data.truncate(size);
    data.freeze()
}

/// What a benchmark knows about its objects.
struct Workset {
    pool: PoolId,
    run: u64,
    size: u64,
    /// Number of the last write of each object that was begun; 0 is none.
    begun: Vec<u64>,
    /// Writes whose end is unknown: the content may be any of these besides the last certain one.
    certain: Vec<u64>,
}

impl Workset {
    fn name(&self, index: usize) -> ObjectId {
        ObjectId::named(&format!("bench-{:016x}-{index:08}", self.run))
    }
    fn write(&mut self, index: usize) -> (nacre_client::Operation, u64) {
        self.begun[index] += 1;
        let sequence = self.begun[index];
        let data = content(self.run, index as u64, sequence, self.size);
        let ops = vec![SubOp::WriteFull { length: self.size }];
        let payload = if data.is_empty() { Payload::new() } else { vec![data] };
        (operation(self.pool, self.name(index), ops, payload), sequence)
    }
    fn read(&self, index: usize) -> nacre_client::Operation {
        let ops = vec![SubOp::Read { offset: 0, length: self.size }];
        operation(self.pool, self.name(index), ops, Payload::new())
    }
    /// Whether data read is what one of the writes since the last certain one wrote.
    fn is_right(&self, index: usize, data: &Payload) -> bool {
        let data = data.concat();
        let wrote = |sequence| data == content(self.run, index as u64, sequence, self.size);
        (self.certain[index].max(1)..=self.begun[index]).any(wrote)
    }
}

fn draw(state: &mut u64) -> u64 {
    // xorshift64*; the state is never zero.
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

/// Runs the benchmark on a pool that exists. `run_folder` has the daemons' pid files.
///
/// # Errors
/// When the cluster refuses, or what is read back is not what was written.
pub fn run(
    arguments: &Arguments,
    cluster: &mut dyn Objects,
    pool: PoolId,
    run_folder: Option<&Path>,
    out: &mut Out,
) -> Result<()> {
    let Arguments { mode, size, .. } = *arguments;
    ensure!(size <= OP_BYTES_MAX, "--size may be at most {OP_BYTES_MAX} bytes: one operation carries no more");
    ensure!(arguments.objects > 0 && arguments.objects <= 100_000_000, "--objects must be from 1 to 100,000,000");
    ensure!(arguments.seconds > 0.0 && arguments.seconds <= 1e6, "--seconds must be positive");
    let run =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
    let count = usize::try_from(arguments.objects).expect("bounded above");
    let mut objects = Workset { pool, run, size, begun: vec![0; count], certain: vec![0; count] };
    if mode != Mode::Write {
        prefill(&mut objects, cluster)?;
    }
    let result = measure(arguments, &mut objects, cluster, run_folder)?;
    let wrong = if arguments.verify { Some(verify(&objects, cluster)?) } else { None };
    if !arguments.keep {
        remove(&objects, cluster)?;
    }
    report(arguments, &result, wrong.as_deref(), out)?;
    out.finish()?;
    match wrong.as_deref() {
        Some([first, ..]) => {
            bail!("{} objects are not what was written, such as {first}", wrong.as_ref().map_or(0, Vec::len))
        }
        _ => Ok(()),
    }
}

fn prefill(objects: &mut Workset, cluster: &mut dyn Objects) -> Result<()> {
    let bar = progress::count("preparing", objects.begun.len() as u64);
    let mut window = Window::new(cluster, 64, 64 << 20);
    let mut ended = |(), result: Ended| {
        bar.inc(1);
        result.map(drop).context("writing the objects that are to be there")
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

fn measure(
    arguments: &Arguments,
    objects: &mut Workset,
    cluster: &mut dyn Objects,
    run_folder: Option<&Path>,
) -> Result<Measured> {
    let mode = arguments.mode;
    let count = objects.begun.len() as u64;
    let limit = Duration::from_secs_f64(arguments.seconds);
    let mut histogram = Histogram::<u64>::new_with_bounds(1, 3_600_000_000, 3).expect("constant bounds");
    let mut flying = std::collections::BTreeMap::new();
    let (mut next_new, mut random, mut failed) = (0_u64, objects.run | 1, 0_u64);
    let bar = progress::waiting("measuring");
    let moved_before = moved(run_folder);
    let before = cpu::used(run_folder)?;
    let begun = Instant::now();
    let (mut last, mut longest_gap) = (begun, Duration::ZERO);
    // One write of an object at a time: which of two came last would not be known.
    let mut busy = std::collections::BTreeSet::new();
    loop {
        let open = begun.elapsed() < limit && (mode != Mode::Write || next_new < count);
        if open && flying.len() < arguments.depth as usize && (mode == Mode::Read || (busy.len() as u64) < count) {
            let mut index = if mode == Mode::Write { next_new } else { draw(&mut random) % count };
            next_new += u64::from(mode == Mode::Write);
            while mode != Mode::Read && !busy.insert(index) {
                index = (index + 1) % count;
            }
            let at = usize::try_from(index).expect("bounded");
            let (operation, sequence) = if mode == Mode::Read { (objects.read(at), 0) } else { objects.write(at) };
            let started = Instant::now();
            let id = cluster.begin(operation)?;
            if flying.is_empty() {
                last = started;
            }
            flying.insert(id, (at, sequence, started));
            continue;
        }
        let Some((id, result)) = cluster.next()? else { break };
        let now = Instant::now();
        let (at, sequence, started) = flying.remove(&id).context("an operation ended that nobody began")?;
        longest_gap = longest_gap.max(now - last);
        last = now;
        busy.remove(&(at as u64));
        match result {
            Ok(done) => {
                let us = u64::try_from((now - started).as_micros()).unwrap_or(u64::MAX);
                histogram.saturating_record(us.max(1));
                if mode == Mode::Read {
                    ensure!(
                        nacre_wire::msg::payload_len(&done.payload) as u64 == objects.size,
                        "{} has another size than was written",
                        objects.name(at)
                    );
                } else {
                    objects.certain[at] = sequence;
                }
                bar.tick();
            }
            // It may or may not have happened; what is read back later may show either.
            Err(Failed::Unknown(_)) => failed += 1,
            Err(why) => return Err(why).with_context(|| objects.name(at).to_string()),
        }
    }
    let elapsed = begun.elapsed();
    let used = cpu::between(&before, &cpu::used(run_folder)?);
    bar.finish_and_clear();
    let moved = moved_before.and_then(|before| Some(moved(run_folder)?.since(before)));
    Ok(Measured { histogram, elapsed, longest_gap, failed, used, moved })
}

/// What the daemons moved so far, once they have written it down.
fn moved(run_folder: Option<&Path>) -> Option<Moved> {
    Moved::of_folder(run_folder?)?;
    std::thread::sleep(MOVED_DELAY);
    Moved::of_folder(run_folder?)
}

/// Reads all that was written; gives the names of what is not right.
fn verify(objects: &Workset, cluster: &mut dyn Objects) -> Result<Vec<String>> {
    let bar = progress::count("verifying", objects.begun.len() as u64);
    let mut wrong = Vec::new();
    let mut window = Window::new(cluster, 64, 64 << 20);
    let mut ended = |index: usize, result: Ended| {
        bar.inc(1);
        let right = match result {
            Ok(done) => objects.is_right(index, &done.payload),
            // Fine if no write of it is known to have happened.
            Err(Failed::Refused(OpFailure::NotFound {})) => objects.certain[index] == 0,
            Err(why) => return Err(why).with_context(|| format!("reading {} back", objects.name(index))),
        };
        if !right {
            wrong.push(objects.name(index).to_string());
        }
        Ok(())
    };
    for index in (0..objects.begun.len()).filter(|index| objects.begun[*index] > 0) {
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
    for index in (0..objects.begun.len()).filter(|index| objects.begun[*index] > 0) {
        let remove = operation(objects.pool, objects.name(index), vec![SubOp::Delete {}], Payload::new());
        window.push(remove, (), 0, &mut ended)?;
    }
    window.drain(&mut ended)
}

fn report(arguments: &Arguments, result: &Measured, wrong: Option<&[String]>, out: &mut Out) -> Result<()> {
    let Measured { histogram, elapsed, longest_gap, failed, used, moved } = result;
    let ops = histogram.len();
    let seconds = elapsed.as_secs_f64();
    let rounded = |value: f64| (value * 100.0).round() / 100.0;
    let cpu: u64 = used.values().sum();
    let per_op = if ops == 0 { 0.0 } else { rounded(cpu as f64 / ops as f64) };
    // Of all that came in through the daemons' sockets: each copy of an object counts.
    let share = |moved: Moved| (moved.copied as f64 / moved.received as f64 * 1e4).round() / 1e4;
    let copied = moved.filter(|moved| moved.received > 0).map(share);
    let quantile = |q: f64| histogram.value_at_quantile(q);
    let mode = arguments.mode.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    let value: Value = json!({
        "mode": mode,
        "size": arguments.size,
        "depth": arguments.depth,
        "objects": arguments.objects,
        "seconds": rounded(seconds),
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
    out.line(&format!("  {} operations/s, {} MB/s", field("ops_per_s"), field("mb_per_s")))?;
    out.line(&format!(
        "  latency µs: p50 {}  p99 {}  p99.9 {}  max {}; longest without an answer {} ms",
        field("p50_us"),
        field("p99_us"),
        field("p999_us"),
        field("max_us"),
        field("longest_gap_ms")
    ))?;
    out.line(&format!("  CPU µs per operation: {per_op}, client and daemons"))?;
    for (name, us) in used {
        out.line(&format!("    {name}: {:.2}", if ops == 0 { 0.0 } else { *us as f64 / ops as f64 }))?;
    }
    if let Some(copied) = copied {
        out.line(&format!("  bytes copied in memory per payload byte between socket and disk: {copied}"))?;
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

    #[test]
    fn content_tells_objects_writes_and_blocks_apart() {
        let one = content(1, 2, 3, 10_000);
        assert_eq!(one.len(), 10_000);
        assert_eq!(one, content(1, 2, 3, 10_000));
        for other in [content(9, 2, 3, 10_000), content(1, 9, 3, 10_000), content(1, 2, 9, 10_000)] {
            for at in [0, BLOCK, 2 * BLOCK] {
                assert_ne!(one[at..at + 64], other[at..at + 64]);
            }
        }
        assert_ne!(one[..64], one[BLOCK..BLOCK + 64]);
    }

    #[test]
    fn what_was_written_last_or_may_have_been_is_right_and_nothing_else() {
        let mut objects = Workset { pool: PoolId(1), run: 5, size: 100, begun: vec![0], certain: vec![0] };
        for _ in 0..4 {
            objects.write(0);
        }
        objects.certain[0] = 3;
        let data = |sequence| vec![content(5, 0, sequence, 100)];
        assert!(objects.is_right(0, &data(3)) && objects.is_right(0, &data(4)));
        assert!(!objects.is_right(0, &data(2)) && !objects.is_right(0, &data(5)));
        let mut torn = data(4)[0][..50].to_vec();
        torn.extend_from_slice(&data(3)[0][50..]);
        assert!(!objects.is_right(0, &vec![torn.into()]));
    }
}
