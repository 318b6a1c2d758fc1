//! Load in the background: `nacre bench object` on a cluster during a fault.
//!
//! ```text
//!  begin ─▶ objects made (seen in `df`) ─▶ measuring ───────────────▶ drained, read back ─▶ finish: figures
//!                                             ▲ begin returns here, so that what happens next is measured
//! ```

use crate::bounded;
use crate::cluster::Cluster;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Maximum time of a load in addition to its seconds: creating the objects, draining, reading
/// everything back.
const BESIDES_MAX: Duration = Duration::from_mins(10);
/// Maximum time until the pool's totals show a load's objects: OSDs report every two seconds.
const SHOWN_MAX: Duration = Duration::from_mins(2);
/// Between creating objects and measuring, the client waits a little over a second for the daemons'
/// counters.
const SETTLED: Duration = Duration::from_secs(2);

/// Maximum time for which it may have been measuring when its objects were seen: reports are late,
/// and then there is the pause.
const SEEN_LATE: Duration = Duration::from_secs(3);

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
    /// A pool without other load.
    pub pool: &'a str,
    /// Number of objects already in the pool.
    pub kept: u64,
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
        kept: 0,
        keep: false,
    }
}

/// A running load; killed when dropped.
pub struct Load {
    child: Child,
    said: PathBuf,
    seconds: u64,
    ready: Instant,
}

impl Load {
    /// Starts one; written data is read back and compared at the end.
    ///
    /// # Errors
    /// When it does not start, or its objects do not appear.
    pub fn begin(cluster: &Cluster, work: Work) -> Result<Self> {
        // The previous load may have removed its objects a moment ago, and they still count: they
        // must not be mistaken for ours.
        let there = || {
            objects(cluster, work.pool)?.with_context(|| format!("there is no pool {}", work.pool))
        };
        bounded::until(
            "the pool has what it had before the load",
            SHOWN_MAX,
            || Ok((there()? == work.kept).then_some(())),
        )?;
        let said = (0..)
            .map(|n| cluster.dir().join(format!("load-{n}.said")))
            .find(|path| !path.exists());
        let said = said.expect("numbers do not end");
        let file = File::create(&said).with_context(|| format!("writing {}", said.display()))?;
        let mut command = cluster.command();
        command.args([
            "bench", "object", work.mode, "--verify", "--size", work.size, "--pool", work.pool,
        ]);
        command.args([
            "--depth",
            &work.depth.to_string(),
            "--objects",
            &work.objects.to_string(),
        ]);
        command.args(["--seconds", &work.seconds.to_string()]);
        if work.keep {
            command.arg("--keep");
        }
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone().context("using a file twice")?)
            .stderr(file);
        let child = command.spawn().context("nacre does not start")?;
        let mut load = Self {
            child,
            said,
            seconds: work.seconds,
            ready: Instant::now(),
        };
        if work.mode != "write" {
            bounded::until("the load's objects are there", SHOWN_MAX, || {
                ensure!(
                    load.is_running()?,
                    "the load ended before it began: {}",
                    load.text()
                );
                Ok((there()? >= work.kept + work.objects).then_some(()))
            })?;
            std::thread::sleep(SETTLED);
        }
        load.ready = Instant::now();
        Ok(load)
    }

    fn is_running(&mut self) -> Result<bool> {
        Ok(self
            .child
            .try_wait()
            .context("waiting for a load")?
            .is_none())
    }

    /// Ensures that it continues to measure for this time: a fault after its end would seem
    /// harmless.
    ///
    /// # Errors
    /// When that is not certain.
    pub fn must_last(&self, more: Duration) -> Result<()> {
        let over = self.ready.elapsed() + SEEN_LATE + more;
        let enough = over <= Duration::from_secs(self.seconds);
        ensure!(
            enough,
            "this machine is too slow now: the load of {} s may end before the fault does harm",
            self.seconds
        );
        Ok(())
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.said)
            .unwrap_or_default()
            .trim()
            .to_owned()
    }

    /// Waits for its end; returns its figures.
    ///
    /// # Errors
    /// When data read back differs from what was written, or it failed otherwise.
    pub fn finish(mut self) -> Result<Value> {
        let limit = Duration::from_secs(self.seconds) + BESIDES_MAX;
        let status = bounded::ended(&mut self.child, limit).context("the load")?;
        ensure!(status.success(), "the load failed: {}", self.text());
        let text = self.text();
        let figures: Value = text
            .lines()
            .last()
            .and_then(|_| first_json(&text))
            .context("the load printed no JSON")?;
        match figures["verified"].as_bool() {
            Some(true) => Ok(figures),
            _ => bail!("the load's data is not what was written: {figures}"),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first JSON object in a text, ignoring text before and after it.
pub fn first_json(text: &str) -> Option<Value> {
    let begins = text.find('{')?;
    serde_json::Deserializer::from_str(&text[begins..])
        .into_iter::<Value>()
        .next()?
        .ok()
}

/// Number of objects in a pool, as last reported by the OSDs; none if there is no such pool.
///
/// # Errors
/// When the monitors do not answer.
pub fn objects(cluster: &Cluster, pool: &str) -> Result<Option<u64>> {
    let df = cluster.ask(&["df"])?;
    let pools = df["pools"].as_array().context("df has no pools")?;
    Ok(pools
        .iter()
        .find(|one| one["name"] == pool)
        .map(|pool| pool["objects"].as_u64().unwrap_or(0)))
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
        let child = std::process::Command::new("true").spawn().expect("starts");
        let mut load = Load {
            child,
            said: PathBuf::new(),
            seconds: 3600,
            ready: Instant::now(),
        };
        load.must_last(Duration::from_secs(60))
            .expect("an hour is enough");
        load.seconds = 5;
        assert!(load.must_last(Duration::from_secs(3)).is_err());
    }

    #[test]
    fn figures_are_found_among_other_output() {
        let text = "nacre: a warning\n{\n \"ops\": 3\n}\n{\"second\": 1}\n";
        assert_eq!(first_json(text).expect("found")["ops"], 3);
        assert!(first_json("nothing").is_none() && first_json("{ broken").is_none());
        assert_eq!(field(&serde_json::json!({ "a": 2 }), "a"), 2.0);
        assert!(field(&Value::Null, "a").is_nan());
    }
}
