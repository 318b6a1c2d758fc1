//! `nacre up`: a whole cluster in this process (DESIGN §9, "Embedded").

use super::host::{self, Running, Shape};
use super::{Commands, Place, Session, admin};
use crate::out::Out;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a cluster may take until every placement group serves.
const READY: Duration = Duration::from_secs(60);

/// Arguments of `up`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The cluster's folder; it is made if it does not exist. The default is that of --cluster.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// OSDs of a new cluster.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub osds: u32,
    /// Monitors of a new cluster.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=5))]
    pub mons: u32,
    /// Copies of every object in a new cluster's pool `data`; as many as OSDs, at most 3, without.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10))]
    pub size: Option<u32>,
}

/// A cluster that runs in this process, and a connection to it.
pub struct Up {
    /// Its daemons.
    pub daemons: Box<dyn Running>,
    /// A connection.
    pub session: Box<dyn Session>,
    /// From the start of the daemons until every placement group served.
    pub took: Duration,
}

/// Starts a cluster, making it first if there is none.
///
/// # Errors
/// When the folder cannot be used, or the cluster does not become ready.
pub fn start(dir: &Path, arguments: &Arguments) -> Result<Up> {
    let begun = Instant::now();
    let size = arguments.size.unwrap_or_else(|| arguments.osds.min(3));
    let place = Place::new(Some(dir.to_owned()));
    let new = !place.exists();
    if new {
        ensure!(
            size <= arguments.osds,
            "{size} copies need at least {size} OSDs; say --osds {size} or --size {}",
            arguments.osds
        );
        let shape = Shape { mons: arguments.mons, osds: arguments.osds, base_port: None };
        host::init(dir, &shape)?;
    }
    let daemons = host::start(dir)?;
    let mut session = place.connect()?;
    if new {
        session.command(&json!({ "command": "pool create", "name": "data", "size": size, "min_size": size.min(2) }))?;
    }
    // A cluster that is ready may still have something to say about itself, such as too few monitors.
    while !is_serving(&session.command(&json!({ "command": "status" }))?) {
        ensure!(
            begun.elapsed() < READY,
            "the cluster did not become ready in {} s; `nacre health detail` says why",
            READY.as_secs()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(Up { daemons, session, took: begun.elapsed() })
}

/// Whether every placement group serves.
fn is_serving(status: &Value) -> bool {
    let states = status["pgs"]["by_state"].as_object().into_iter().flatten();
    status["pgs"]["count"].is_u64()
        && states.map(|(state, _)| state).all(|state| state.split('+').any(|word| word == "active"))
}

/// What a cluster in one folder survives, and what not: one sentence.
#[must_use]
pub fn survives(size: u64, min_size: u64, mons: u64) -> String {
    let copies = if size == 1 { "1 copy".to_owned() } else { format!("{size} copies") };
    let spare = size.saturating_sub(min_size.max(1));
    let osds = match spare {
        0 if size == 1 => "survives nothing: an OSD that is lost takes its data with it".to_owned(),
        0 => "keeps all data when an OSD is lost, but stops until it is back".to_owned(),
        1 => "survives a daemon".to_owned(),
        more => format!("survives {more} daemons"),
    };
    let of_mons = match mons.saturating_sub(1) / 2 {
        0 => String::new(),
        lost => format!(" (of the monitors {lost})"),
    };
    format!("{copies} on 1 disk: {osds}{of_mons}, not the disk")
}

/// Prints what there is now.
///
/// # Errors
/// When the monitors do not answer.
pub fn introduce(place: &Path, up: &mut Up, out: &mut Out) -> Result<()> {
    let pools = up.session.command(&json!({ "command": "pool ls" }))?;
    let status = up.session.command(&json!({ "command": "status" }))?;
    let weakest = pools["pools"].as_array().into_iter().flatten().min_by_key(|pool| pool["size"].as_u64());
    let number = |name: &str| weakest.and_then(|pool| pool[name].as_u64());
    let sentence = match (number("size"), number("min_size")) {
        (Some(size), Some(min_size)) => survives(size, min_size, status["mons"]["count"].as_u64().unwrap_or(1)),
        _ => "there is no pool yet, so nothing to lose: `nacre pool create data`".to_owned(),
    };
    let seconds = up.took.as_secs_f64();
    if out.json() {
        out.value(
            &json!({ "dir": place.display().to_string(), "ready_s": seconds, "survives": sentence, "status": status }),
        )?;
        return out.finish();
    }
    let at = place.display();
    out.line(&format!("cluster in {at} is ready after {seconds:.2} s\n{sentence}\n\nnext, in another terminal:"))?;
    out.line(&format!("  export NACRE_CLUSTER={at}"))?;
    for (command, about) in [
        ("nacre status", "the cluster at a glance"),
        ("nacre object put data hello README.md", "store a file"),
        ("nacre object where data hello", "which OSDs hold it"),
        ("nacre object import data .", "store a directory tree"),
        ("nacre osd ok-to-stop 0", "may this OSD be stopped?"),
    ] {
        out.line(&format!("  {command:<40} {about}"))?;
    }
    out.line("\nCtrl-C stops the cluster; the data stays.")?;
    out.finish()
}

/// Runs a cluster until Ctrl-C.
///
/// # Errors
/// When it does not start or stops by itself.
pub fn run(arguments: &Arguments, place: &Place, out: &mut Out) -> Result<()> {
    let dir = arguments.dir.clone().unwrap_or_else(|| place.folder());
    let mut up = start(&dir, arguments)?;
    introduce(&dir, &mut up, out)?;
    host::wait_for_signal()?;
    drop(up.session);
    up.daemons.stop()
}

/// Waits until nothing is wrong, showing that it waits.
///
/// # Errors
/// As [`admin::wait_healthy`].
pub fn wait(cluster: &mut dyn Commands, limit: Duration) -> Result<Duration> {
    let bar = crate::progress::waiting("waiting for HEALTH_OK");
    let result = admin::wait_healthy(cluster, limit, &mut |_| bar.tick());
    bar.finish_and_clear();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_promised_is_what_the_numbers_give() {
        assert_eq!(survives(3, 2, 1), "3 copies on 1 disk: survives a daemon, not the disk");
        assert_eq!(survives(5, 2, 3), "5 copies on 1 disk: survives 3 daemons (of the monitors 1), not the disk");
        assert!(survives(2, 2, 1).contains("stops until it is back"));
        assert!(survives(1, 1, 1).contains("survives nothing"));
    }

    #[test]
    fn a_cluster_serves_when_every_group_is_active() {
        let status = |states: Value| json!({ "pgs": { "count": 64, "by_state": states } });
        assert!(is_serving(&status(json!({ "active+clean": 60, "active+degraded": 4 }))));
        assert!(!is_serving(&status(json!({ "active+clean": 60, "peering": 4 }))));
        assert!(!is_serving(&json!({})));
    }
}
