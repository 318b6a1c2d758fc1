//! The history of shared registers that clients see while OSDs die and hang is linearizable.

use super::site::Site;
use crate::{bounded, cluster};
use anyhow::{Context, Result, ensure};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

const HANG: Duration = Duration::from_mins(5);
const CHECK_MAX: Duration = Duration::from_mins(10);
const STEP: Duration = Duration::from_secs(4);

/// Runs the scenario.
///
/// # Errors
/// When the history is not linearizable, or something hangs.
pub fn run(site: &mut Site) -> Result<()> {
    let mut cluster = site.cluster(3, 4)?;
    cluster.ask(&[
        "pool",
        "create",
        "registers",
        "--size",
        "3",
        "--pg-num",
        "32",
    ])?;
    cluster.await_health(HANG)?;
    let seconds = site.seconds.unwrap_or(40).max(30);
    let file = site.dir.join("clients.history");
    let mut command = cluster.command();
    command.args([
        "bench",
        "register",
        "--clients",
        "8",
        "--keys",
        "4",
        "--pool",
        "registers",
    ]);
    command
        .args(["--seconds", &seconds.to_string(), "--history"])
        .arg(&file);
    let mut clients = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("nacre does not start")?;

    let mut mistreat = || -> Result<()> {
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
        ensure!(
            clients
                .try_wait()
                .context("waiting for the clients")?
                .is_none(),
            "the clients ended before the faults did"
        );
        Ok(())
    };
    let mistreated = mistreat();
    if mistreated.is_err() {
        let _ = clients.kill();
    }
    let status =
        bounded::ended(&mut clients, Duration::from_secs(seconds) + HANG).context("the clients");
    mistreated?;
    ensure!(status?.success(), "a client could not go on");

    let mut check = Command::new(&site.nacre);
    let judged = cluster::succeeds(
        check.args(["--json", "history", "check"]).arg(&file),
        CHECK_MAX,
    )?;
    ensure!(
        judged["linearizable"] == true,
        "the history is not linearizable: {judged}"
    );
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
