//! An overloaded machine: slow daemons must not be considered dead.

use super::hogs::Hogs;
use super::site::Site;
use crate::cluster::load::{Load, field, overwrite};
use crate::machine;
use anyhow::{Context, Result};
use serde_json::Value;
use std::time::Duration;

const HEALED_MAX: Duration = Duration::from_mins(2);
/// Number of cluster log lines to inspect: the monitors' maximum.
const LINES: &str = "1000";
const WRITERS: usize = 2;

/// Runs the scenario.
///
/// # Errors
/// When data differs from what was written, or something hangs.
pub fn run(site: &mut Site) -> Result<()> {
    let cluster = site.cluster(3, 4)?;
    cluster.pools(&["clients"])?;
    let seconds = site.seconds.unwrap_or(600);
    let peace = Load::begin(&cluster, overwrite("clients", 5))?.finish()?;
    let before = epoch(&cluster.ask(&["status"])?)?;
    let hogs = Hogs::start(2 * machine::processors(), WRITERS, &site.dir)?;
    let loaded = Load::begin(&cluster, overwrite("clients", seconds))?.finish()?;
    drop(hogs);
    let after = epoch(&cluster.ask(&["status"])?)?;
    let log = cluster.ask(&["log", "last", LINES])?;
    let down = called_down(&log);
    for line in &down {
        println!("    {line}");
    }
    site.figures.note(
        "for so long, with twice as many busy processes as processors",
        seconds as f64,
        "s",
    );
    site.figures
        .at_most(0.0, "OSDs called down", down.len() as f64, "times");
    site.figures
        .note("changes of the map", (after - before) as f64, "");
    site.figures.note(
        "operations per second, in peace",
        field(&peace, "ops_per_s"),
        "/s",
    );
    site.figures.note(
        "operations per second, beside the busy processes",
        field(&loaded, "ops_per_s"),
        "/s",
    );
    site.figures.note(
        "longest without an answer",
        field(&loaded, "longest_gap_ms"),
        "ms",
    );
    site.figures.proved("data read back");
    cluster.await_health(HEALED_MAX)
}

fn epoch(status: &Value) -> Result<i64> {
    status["epoch"].as_i64().context("status has no epoch")
}

/// Lines of the cluster log that mark an OSD down.
fn called_down(log: &Value) -> Vec<&str> {
    let lines = log["lines"].as_array().into_iter().flatten();
    let texts = lines.filter_map(|line| line["text"].as_str());
    texts
        .filter(|text| text.starts_with("osd.") && text.contains(" is down"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_call_an_osd_down_are_found() {
        let log = serde_json::json!({ "lines": [
            { "text": "osd.1 is down: 2 OSDs do not hear it" }, { "text": "osd.1 is up" }, { "text": "mon.0 leads" },
        ]});
        assert_eq!(called_down(&log), ["osd.1 is down: 2 OSDs do not hear it"]);
    }
}
