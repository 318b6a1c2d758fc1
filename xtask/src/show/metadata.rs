//! The metadata history seen by clients and watchers is linearizable while leading monitors are
//! killed and suspended (MAL-10, -11, -16).
//!
//! A monitor that is resumed still believes that it leads: until it learns otherwise it must not
//! answer reads. Some suspensions are so short that clients stay with it, others so long that they
//! change.

use super::site::Site;
use crate::cluster::Cluster;
use crate::cluster::history::History;
use anyhow::{Result, ensure};
use std::thread::sleep;
use std::time::{Duration, Instant};

const HANG: Duration = Duration::from_mins(5);
/// Duration of undisturbed work between two faults.
const CALM: Duration = Duration::from_secs(2);
/// Minimum number of operations: fewer would prove little.
const OPERATIONS_MIN: u64 = 20_000;

/// The fault of the leader.
#[derive(Clone, Copy)]
enum Fault {
    /// It is killed, and started again later.
    Killed,
    /// It is suspended for this time.
    Stopped(Duration),
}

const FAULTS: [Fault; 4] = [
    Fault::Killed,
    Fault::Stopped(Duration::from_millis(1_500)),
    Fault::Stopped(Duration::from_millis(3_000)),
    Fault::Stopped(Duration::from_millis(6_000)),
];

/// Runs the scenario.
///
/// # Errors
/// When the history is not linearizable, an answer was stale, a watcher missed an event, or
/// something hangs.
pub fn run(site: &mut Site) -> Result<()> {
    let mut cluster = site.cluster(3, 1)?;
    // Duration of the faults; the clients start before them and end after them.
    let faults_for = Duration::from_secs(site.seconds.unwrap_or(70).max(60));
    let seconds = faults_for + CALM * 5;
    let how = format!(
        "keys --clients 8 --watchers 4 --keys 4 --seconds {}",
        seconds.as_secs()
    );
    let mut history = History::begin(&cluster, "keys", &how)?;

    let mut mistreat = || -> Result<(u32, u32)> {
        let (begun, mut killed, mut stopped) = (Instant::now(), 0, 0);
        sleep(CALM);
        for fault in FAULTS.iter().cycle() {
            if begun.elapsed() >= faults_for {
                break;
            }
            let leader = leader(&cluster)?;
            let who = format!("mon.{leader}");
            match fault {
                Fault::Killed => {
                    cluster.kill(&who)?;
                    sleep(CALM);
                    cluster.run("mon", leader)?;
                    killed += 1;
                }
                Fault::Stopped(time) => {
                    cluster.signal(&who, "STOP")?;
                    sleep(*time);
                    cluster.signal(&who, "CONT")?;
                    stopped += 1;
                }
            }
            sleep(CALM);
            history.clients.must_run()?;
        }
        Ok((killed, stopped))
    };
    let (killed, stopped) = mistreat()?;
    let (found, _) = history.finish(&cluster, seconds + HANG)?;
    let operations = found["operations"].as_u64().unwrap_or(0);
    ensure!(
        operations >= OPERATIONS_MIN,
        "{operations} operations are too few to show anything: {found}"
    );
    let figure = |field: &str| found[field].as_f64().unwrap_or(f64::NAN);
    site.figures.note(
        "operations of 8 clients on 6 keys of metadata",
        figure("operations"),
        "",
    );
    site.figures
        .note("of these without an answer", figure("unknown"), "");
    site.figures
        .note("times that the leader was killed", f64::from(killed), "");
    site.figures.note(
        "times that the leader stood still for 1.5 to 6 s",
        f64::from(stopped),
        "",
    );
    site.figures
        .note("changes told to 4 watchers", figure("events"), "");
    site.figures.note(
        "times that a watcher had been away for too many changes",
        figure("compacted"),
        "",
    );
    site.figures.proved(
        "leaders killed and stopped: the history of keys is linearizable, no answer was stale, no transaction halved",
    );
    site.figures.proved(
        "every watcher was told every change once and in order, or that it was away for too long",
    );
    Ok(())
}

fn leader(cluster: &Cluster) -> Result<u32> {
    cluster.until(
        "the monitors have a leader",
        HANG,
        &["mon", "stat"],
        |stat| u32::try_from(stat["leader"].as_u64()?).ok(),
    )
}
