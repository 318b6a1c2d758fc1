//! Load in the background: `nacre bench object` on a cluster during a fault.
//!
//! ```text
//!  begin ─▶ objects made ─▶ measuring ───────────────▶ drained, read back ─▶ finish: figures
//!                            ▲ begin returns here, so that what happens next is measured
//! ```

use super::Cluster;
use super::client::Client;
use crate::bounded;
use anyhow::{Result, ensure};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Maximum time of a load in addition to its seconds: draining, reading everything back.
const BESIDES_MAX: Duration = Duration::from_mins(10);
/// Maximum time for creating the objects of a load.
const BEGUN_MAX: Duration = Duration::from_mins(2);

/// Parameters of a load.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    /// `write`, `overwrite` or `read`.
    pub mode: &'a str,
    /// As for `--size`.
    pub size: &'a str,
    /// Operations in flight.
    pub depth: u32,
    /// Number of objects created first; the maximum number written.
    pub objects: u64,
    /// Duration of the measurement.
    pub seconds: u64,
    /// The pool.
    pub pool: &'a str,
    /// Whether the objects are kept.
    pub keep: bool,
}

/// 4 KiB overwritten at depth 16: the load of most scenarios.
pub fn overwrite(pool: &str, seconds: u64) -> Work<'_> {
    Work {
        mode: "overwrite",
        size: "4KiB",
        depth: 16,
        objects: 1024,
        seconds,
        pool,
        keep: false,
    }
}

/// A running load; killed when dropped.
pub struct Load {
    client: Client,
    seconds: u64,
    begun: Instant,
}

impl Load {
    /// Starts one, and waits until it measures; written data is read back and compared at the end.
    ///
    /// # Errors
    /// When it does not start, or ends before that.
    pub fn begin(cluster: &Cluster, work: Work) -> Result<Self> {
        let said = (0..)
            .map(|n| cluster.dir().join(format!("load-{n}.said")))
            .find(|path| !path.exists());
        let said = said.expect("numbers do not end");
        let measures = said.with_extension("begun");
        let [depth, objects, seconds] =
            [work.depth.into(), work.objects, work.seconds].map(|number| number.to_string());
        let mut command = cluster.command();
        command.args(["bench", "object", work.mode, "--verify", "--no-copies"]);
        command.args(["--size", work.size, "--pool", work.pool]);
        command.args([
            "--depth",
            &depth,
            "--objects",
            &objects,
            "--seconds",
            &seconds,
        ]);
        command.args(work.keep.then_some("--keep"));
        command.arg("--begun").arg(&measures);
        let mut client = Client::begin(&mut command, &said)?;
        bounded::until("the load measures", BEGUN_MAX, || {
            let there = measures.exists();
            if !there {
                client.must_run()?;
            }
            Ok(there.then_some(()))
        })?;
        Ok(Self {
            client,
            seconds: work.seconds,
            begun: Instant::now(),
        })
    }

    /// Ensures that it continues to measure for this time: a fault after its end would seem
    /// harmless.
    ///
    /// # Errors
    /// When that is not certain.
    pub fn must_last(&self, more: Duration) -> Result<()> {
        ensure!(
            self.begun.elapsed() + more <= Duration::from_secs(self.seconds),
            "this machine is too slow now: the load of {} s may end before the fault does harm",
            self.seconds
        );
        Ok(())
    }

    /// Waits for its end; returns its figures.
    ///
    /// # Errors
    /// When data read back differs from what was written, or it failed otherwise.
    pub fn finish(self) -> Result<Value> {
        let limit = Duration::from_secs(self.seconds) + BESIDES_MAX;
        let figures = self.client.finish(limit)?;
        ensure!(
            figures["verified"] == true,
            "the load's data is not what was written: {figures}"
        );
        Ok(figures)
    }
}

/// A field of a load's figures; NaN, which meets no limit, if it is missing.
pub fn field(figures: &Value, name: &str) -> f64 {
    figures[name].as_f64().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_may_have_ended_proves_nothing() {
        let said = std::env::temp_dir().join(format!("nacre-load-{}.said", std::process::id()));
        let mut load = Load {
            client: Client::begin(&mut std::process::Command::new("true"), &said).expect("starts"),
            seconds: 3600,
            begun: Instant::now(),
        };
        std::fs::remove_file(said).expect("removable");
        load.must_last(Duration::from_secs(60))
            .expect("an hour is enough");
        load.seconds = 2;
        assert!(load.must_last(Duration::from_secs(3)).is_err());
    }

    #[test]
    fn a_missing_figure_meets_no_limit() {
        assert_eq!(field(&serde_json::json!({ "a": 2 }), "a"), 2.0);
        assert!(field(&Value::Null, "a").is_nan());
    }
}
