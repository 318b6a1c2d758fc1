//! Findings in which data was lost or hidden: F1, F2, F4.

use super::{OSDS, POOL, WELL_MAX, WORK_MAX, kill, start};
use crate::bounded;
use crate::cluster::Cluster;
use crate::cluster::client::Client;
use crate::cluster::ledger::{Ledger, probe};
use crate::show::site::Site;
use anyhow::{Context, Result, ensure};
use std::thread::sleep;
use std::time::Duration;

/// Clients that run until they are stopped.
const EIGHT: &str = "--clients 8 --seconds 1800 --objects";
/// Duration of a stop during which a request is made; others detect it after some seconds.
const WHILE_STOPPED: Duration = Duration::from_millis(1_500);

/// Each OSD is marked down while it is alive, returns by itself, is killed and started: it must get
/// a new instance. Then every one of them alone has everything.
pub fn marked_down_alive(_: &mut Site, cluster: &mut Cluster) -> Result<()> {
    let mut ledger = Ledger::begin(cluster, POOL, &format!("{EIGHT} 64"))?;
    for id in 0..OSDS {
        cluster.ask(&["osd", "down", &id.to_string()])?;
        // It does not wait: its progress when it is killed differs each time.
        sleep(Duration::from_millis(u64::from(id) * 400));
        cluster.kill(&format!("osd.{id}"))?;
        start(cluster, id)?;
        probe(cluster, POOL, WORK_MAX).with_context(|| format!("after osd.{id}"))?;
    }
    ledger.end(WELL_MAX)?;
    cluster.await_health(WELL_MAX)?;
    ledger.verify(cluster)?;
    cluster.ask(&["pool", "set", POOL, "min_size", "1"])?;
    for left in 0..OSDS {
        let others: Vec<u32> = (0..OSDS).filter(|id| *id != left).collect();
        for id in &others {
            kill(cluster, *id)?;
            // The remaining OSDs must have agreed before the next one is stopped.
            sleep(Duration::from_secs(2));
        }
        ledger
            .verify(cluster)
            .with_context(|| format!("osd.{left} alone"))?;
        for id in others {
            start(cluster, id)?;
        }
        cluster.await_health(WELL_MAX)?;
    }
    Ok(())
}

/// Objects of an OSD that is out are erased page by page. It is marked in meanwhile, and then the
/// others die: it must have everything that it claims to have.
pub fn in_while_erasing(_: &mut Site, cluster: &mut Cluster) -> Result<()> {
    cluster.ask(&[
        "pool",
        "create",
        "wide",
        "--size",
        "2",
        "--min-size",
        "1",
        "--pg-num",
        "1",
    ])?;
    cluster.await_health(WELL_MAX)?;
    let mut ledger = Ledger::begin(cluster, "wide", &format!("{EIGHT} 3000"))?;
    sleep(Duration::from_secs(20));
    ledger.end(WELL_MAX)?;
    for (wait_ms, id) in [0, 200, 1_000].into_iter().zip(0..OSDS) {
        let id_text = id.to_string();
        cluster.ask(&["osd", "reweight", &id_text, "0"])?;
        cluster.await_health(WELL_MAX)?;
        sleep(Duration::from_millis(wait_ms));
        cluster.ask(&["osd", "reweight", &id_text, "1"])?;
        cluster.await_health(WELL_MAX)?;
        for victim in 0..OSDS {
            kill(cluster, victim)?;
            ledger
                .verify(cluster)
                .with_context(|| format!("osd.{id} in again, osd.{victim} dead"))?;
            start(cluster, victim)?;
            cluster.await_health(WELL_MAX)?;
        }
    }
    Ok(())
}

/// A replica is suspended, so an update cannot be committed: a listing may wait, but must neither
/// show an update that may still be lost, nor hide an object that may still exist.
pub fn listed_while_it_hangs(_: &mut Site, cluster: &mut Cluster) -> Result<()> {
    cluster.ask(&["pool", "create", "one", "--size", "3", "--pg-num", "1"])?;
    cluster.await_health(WELL_MAX)?;
    let said = cluster.ask(&["object", "where", "one", "a"])?;
    let acting = said["places"][0]["acting"]
        .as_array()
        .context("no acting set")?
        .clone();
    let replicas: Vec<String> = acting[1..].iter().map(|osd| format!("osd.{osd}")).collect();
    let mut listed = 0;
    for (round, word) in (0..8).zip(["put", "rm"].into_iter().cycle()) {
        let name = format!("object-{}", round / 2);
        let who = &replicas[round / 2 % replicas.len()];
        cluster.signal(who, "STOP")?;
        let mut change = begin(cluster, word, &name)?;
        sleep(Duration::from_millis(200));
        let list = bounded::output(
            cluster.command().args(["object", "ls", "one"]),
            WHILE_STOPPED,
        );
        let done = change.ended()?.is_some();
        cluster.signal(who, "CONT")?;
        if let Ok(list) = list
            && list.status.success()
            && !done
        {
            listed += 1;
            let shown = String::from_utf8_lossy(&list.stdout).contains(&name);
            ensure!(
                shown == (word == "rm"),
                "{word} {name} hangs, and the listing shows it: {shown}"
            );
        }
        change.finish(WELL_MAX)?;
        let shown = cluster
            .ask(&["object", "ls", "one"])?
            .to_string()
            .contains(&name);
        ensure!(
            shown == (word == "put"),
            "{word} {name} is done, and the listing shows it: {shown}"
        );
    }
    println!("  {listed} of 8 listings did not wait");
    cluster.await_health(WELL_MAX)
}

fn begin(cluster: &Cluster, word: &str, name: &str) -> Result<Client> {
    let mut command = cluster.command();
    command.args(["object", word, "one", name]);
    if word == "put" {
        command.arg(cluster.dir().join("cluster.toml"));
    }
    Client::begin(
        &mut command,
        &cluster.dir().join(format!("{word}-{name}.said")),
    )
}
