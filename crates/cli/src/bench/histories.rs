//! Common parts of runs that write a history: a clock, unique values, numbers of clients, random
//! numbers, and the file (`docs/formats/history.md`).

use anyhow::{Context, Result, ensure};
use nacre_history::Record;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One run.
pub struct Run {
    /// Identifies this run: its objects have unique names.
    pub id: u64,
    begun: Instant,
    limit: Duration,
    value: AtomicU64,
    client: AtomicU64,
}

impl Run {
    /// Begins a run of `seconds`.
    ///
    /// # Errors
    /// When that is not a valid duration.
    pub fn begin(seconds: f64) -> Result<Self> {
        ensure!(
            seconds > 0.0 && seconds <= 1e6,
            "--seconds must be positive"
        );
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Ok(Self {
            id: since.map_or(1, |since| since.as_nanos() as u64),
            begun: Instant::now(),
            limit: Duration::from_secs_f64(seconds),
            value: AtomicU64::new(1),
            client: AtomicU64::new(1),
        })
    }
    /// Whether its time is up.
    pub fn is_over(&self) -> bool {
        self.begun.elapsed() >= self.limit
    }
    /// Nanoseconds since it began.
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).expect("centuries")
    }
    /// A value that no other operation of the run writes.
    pub fn next_value(&self) -> u64 {
        self.value.fetch_add(1, Ordering::Relaxed)
    }
    /// A number that no other client of the run has had.
    pub fn next_client(&self) -> u64 {
        self.client.fetch_add(1, Ordering::Relaxed)
    }
    /// A client's random numbers, each below the argument.
    pub fn dice(&self, seed: u64) -> impl FnMut(u64) -> u64 + use<> {
        let mut random = (self.id ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1;
        move |below: u64| {
            random ^= random >> 12;
            random ^= random << 25;
            random ^= random >> 27;
            (random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % below
        }
    }
}

/// Writes a history; returns the number of operations, and of those without an answer.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, records: &[Record]) -> Result<(u64, u64)> {
    let failed = || format!("writing {}", path.display());
    let mut sink = BufWriter::new(File::create(path).with_context(failed)?);
    for record in records {
        let line = serde_json::to_string(record).expect("a record has a text");
        writeln!(sink, "{line}").with_context(failed)?;
    }
    sink.flush().with_context(failed)?;
    Ok((
        records.len() as u64,
        records.iter().filter(|record| record.unknown).count() as u64,
    ))
}
