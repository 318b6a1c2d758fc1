//! The history of shared registers that clients see while OSDs die and hang is linearizable.

use super::site::Site;
use crate::cluster::history::History;
use anyhow::Result;
use std::thread::sleep;
use std::time::Duration;

const HANG: Duration = Duration::from_mins(5);
const STEP: Duration = Duration::from_secs(4);

/// Runs the scenario.
///
/// # Errors
/// When the history is not linearizable, or something hangs.
pub fn run(site: &mut Site) -> Result<()> {
    let mut cluster = site.cluster(3, 4)?;
    cluster.pools(&["registers"])?;
    let seconds = site.seconds.unwrap_or(40).max(30);
    let how = format!("register --clients 8 --keys 4 --pool registers --seconds {seconds}");
    let mut history = History::begin(&cluster, "registers", &how)?;

    sleep(STEP);
    cluster.kill("osd.0")?;
    sleep(STEP);
    cluster.run("osd", 0)?;
    cluster.await_osd(0, true, HANG)?;
    sleep(STEP);
    cluster.signal("osd.1", "STOP")?;
    sleep(STEP * 2);
    cluster.signal("osd.1", "CONT")?;
    cluster.await_osd(1, true, HANG)?;
    history.clients.must_run()?;
    let (_, judged) = history.finish(&cluster, Duration::from_secs(seconds) + HANG)?;
    site.figures.note(
        "operations of 8 clients on 4 registers",
        judged["operations"].as_f64().unwrap_or(f64::NAN),
        "",
    );
    site.figures.proved(
        "one OSD killed and started again, one stopped and resumed: the history is linearizable",
    );
    cluster.await_health(HANG)
}
