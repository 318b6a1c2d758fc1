//! `nacre bench disk`: the disk's own performance, for comparison in the same run (DESIGN §10).
//!
//! * Three log appends at once: three files, preallocated like a store's log, each 4 KiB and a
//!   flush; a replicated write has to wait for the last of the three.
//! * The same with one file: the time of a write and a flush on an otherwise idle disk.
//! * Sequential writes of 4 MiB bypassing the page cache, a few in flight, and a flush at the end.

use crate::out::Out;
use anyhow::{Context, Result, ensure};
use clap::Args;
use hdrhistogram::Histogram;
use rustix::fs::{Mode, OFlags};
use serde_json::json;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Replicas of an object, and so logs that are flushed at once.
const LOGS: usize = 3;
/// Size of a log in bytes; used as a ring.
const LOG_BYTES: u64 = 16 << 20;
const APPEND: usize = 4096;
/// Bytes of a large write, writes in flight, and bytes of their file.
const LARGE: usize = 4 << 20;
const IN_FLIGHT: usize = 4;
const FILE_BYTES: u64 = 1 << 30;
/// Alignment of unbuffered writes.
const ALIGN: usize = 4096;

/// Arguments of `bench disk`.
#[derive(Args)]
pub struct Arguments {
    /// A folder on the disk to be measured; files are made there and removed.
    #[arg(long)]
    dir: PathBuf,
    /// For how long, each of the three.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

/// Files that are removed when this is dropped.
struct Scratch(Vec<PathBuf>);
impl Drop for Scratch {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Runs the benchmark.
///
/// # Errors
/// When the disk fails, or the directory's file system does not support it.
pub fn run(arguments: &Arguments, out: &mut Out) -> Result<()> {
    ensure!(
        arguments.seconds > 0.0 && arguments.seconds <= 600.0,
        "--seconds must be from 0 to 600"
    );
    let limit = Duration::from_secs_f64(arguments.seconds);
    let (one, all) = flushes(&arguments.dir, limit, LOGS)?;
    let (alone, _) = flushes(&arguments.dir, limit, 1)?;
    let (mb_per_s, unbuffered) = bandwidth(&arguments.dir, limit)?;
    let value = json!({
        "flush_alone_p50_us": alone,
        "one_flush_p50_us": one,
        "three_flushes_p50_us": all,
        "write_mb_per_s": (mb_per_s * 10.0).round() / 10.0,
        "unbuffered": unbuffered,
    });
    if !out.json() {
        out.line(&format!("log append and flush, 3 at once: p50 {one} µs each, {all} µs until all three are durable"))?;
        out.line(&format!("log append and flush, alone: p50 {alone} µs"))?;
        let how = if unbuffered {
            "past the page cache"
        } else {
            "through the page cache: no O_DIRECT here"
        };
        out.line(&format!(
            "sequential writes of 4 MiB, {how}: {mb_per_s:.1} MB/s"
        ))?;
        return out.finish();
    }
    out.value(&value)
}

/// Medians in microseconds, for `count` logs: of one append, and until all that began together are
/// durable.
fn flushes(dir: &Path, limit: Duration, count: usize) -> Result<(u64, u64)> {
    let paths: Vec<PathBuf> = (0..count)
        .map(|log| dir.join(format!("bench-log-{log}")))
        .collect();
    let _scratch = Scratch(paths.clone());
    let mut logs = Vec::new();
    for path in &paths {
        let log = File::create(path).with_context(|| format!("making {}", path.display()))?;
        // Written, not only reserved: a first write would change the file system's metadata too.
        for at in (0..LOG_BYTES).step_by(1 << 20) {
            log.write_all_at(&vec![1; 1 << 20], at)
                .context("filling a log")?;
        }
        log.sync_all().context("filling a log")?;
        logs.push(log);
    }
    let begun = Instant::now();
    let start = Barrier::new(count);
    let end = std::sync::atomic::AtomicBool::new(false);
    let append = |log: &File, leads: bool| -> std::io::Result<Vec<u64>> {
        let (mut times, mut at) = (Vec::new(), 0);
        let mut result = Ok(());
        loop {
            if leads && begun.elapsed() > limit {
                end.store(true, std::sync::atomic::Ordering::SeqCst);
            }
            // Between the two barriers `end` does not change: all threads see the same value and
            // leave in the same round.
            start.wait();
            let ends = end.load(std::sync::atomic::Ordering::SeqCst);
            start.wait();
            if ends {
                return result.map(|()| times);
            }
            let asked = Instant::now();
            if result.is_ok() {
                result = log
                    .write_all_at(&[7; APPEND], at)
                    .and_then(|()| log.sync_data());
            }
            times.push(u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX));
            at = (at + APPEND as u64) % LOG_BYTES;
        }
    };
    let append = &append;
    let each = std::thread::scope(|scope| {
        let threads: Vec<_> = logs
            .iter()
            .enumerate()
            .map(|(number, log)| scope.spawn(move || append(log, number == 0)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("it does not panic"))
            .collect::<std::io::Result<Vec<_>>>()
    });
    let each = each.context("flushing a log")?;
    let rounds = each[0].len();
    let slowest = (0..rounds).map(|round| {
        each.iter()
            .map(|times| times[round])
            .max()
            .expect("there are logs")
    });
    Ok((median(each.iter().flatten().copied()), median(slowest)))
}

fn median(times_us: impl Iterator<Item = u64>) -> u64 {
    // Bounds are needed: a histogram that resizes itself saturates at its current range.
    let mut histogram =
        Histogram::<u64>::new_with_bounds(1, 3_600_000_000, 3).expect("constant bounds");
    times_us.for_each(|us| histogram.saturating_record(us));
    histogram.value_at_quantile(0.5)
}

/// MB/s, and whether the page cache was really bypassed.
fn bandwidth(dir: &Path, limit: Duration) -> Result<(f64, bool)> {
    let path = dir.join("bench-large");
    let _scratch = Scratch(vec![path.clone()]);
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC;
    let open = |flags| rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600));
    let (file, unbuffered) = match open(flags | OFlags::DIRECT) {
        Ok(file) => (file, true),
        Err(_) => (
            open(flags).with_context(|| format!("making {}", path.display()))?,
            false,
        ),
    };
    let file = File::from(file);
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, FILE_BYTES)
        .context("reserving 1 GiB")?;
    let next = std::sync::atomic::AtomicU64::new(0);
    let begun = Instant::now();
    let written: u64 = std::thread::scope(|scope| {
        let write = || -> std::io::Result<u64> {
            let room = vec![9; LARGE + ALIGN];
            let skip = room.as_ptr().align_offset(ALIGN);
            let mut written = 0;
            while begun.elapsed() < limit {
                let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                file.write_all_at(
                    &room[skip..skip + LARGE],
                    number * LARGE as u64 % FILE_BYTES,
                )?;
                written += LARGE as u64;
            }
            Ok(written)
        };
        let threads: Vec<_> = (0..IN_FLIGHT).map(|_| scope.spawn(write)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("it does not panic"))
            .sum::<std::io::Result<u64>>()
    })
    .context("writing 4 MiB at a time")?;
    file.sync_data().context("flushing")?;
    Ok((
        written as f64 / begun.elapsed().as_secs_f64() / 1e6,
        unbuffered,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_removed() {
        let dir = std::env::temp_dir().join(format!("nacre-disk-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        flushes(&dir, Duration::from_millis(50), LOGS).expect("a disk");
        assert_eq!(std::fs::read_dir(&dir).expect("readable").count(), 0);
        std::fs::remove_dir_all(&dir).expect("removed");
        assert!(
            flushes(&dir, Duration::from_millis(1), 1).is_err(),
            "a folder that is not there"
        );
    }

    /// Every median was 2 µs: the histogram had no bounds, and clamped everything to its first two
    /// values.
    #[test]
    fn a_median_is_the_one_in_the_middle() {
        assert_eq!(median([5, 900, 900, 900, 1_000_000].into_iter()), 900);
    }
}
