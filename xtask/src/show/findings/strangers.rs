//! Copied daemons, monitors that return, and a cluster created only in part: F22, F26, F27.

use super::{OSDS, POOL, WELL_MAX, WORK_MAX, start};
use crate::bounded;
use crate::cluster::Cluster;
use crate::cluster::client::last_lines;
use crate::cluster::ledger::probe;
use crate::show::site::Site;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// Maximum time for a copied daemon to end.
const GONE_MAX: Duration = Duration::from_mins(1);
/// Maximum number of epochs that a copied daemon may cost: 36,800 in the finding.
const EPOCHS_MAX: u64 = 20;

/// Each OSD's directory is copied and started elsewhere while the OSD runs: the copy ends, the OSD
/// stays.
pub fn copied_osd(site: &mut Site, cluster: &mut Cluster) -> Result<()> {
    let epoch = |cluster: &Cluster| -> Result<u64> {
        cluster.ask(&["status"])?["epoch"]
            .as_u64()
            .context("no epoch")
    };
    for id in 0..OSDS {
        let who = format!("osd.{id}");
        cluster.end(&who)?;
        let elsewhere = site.dir.join(format!("elsewhere-{id}"));
        fs::create_dir_all(elsewhere.join(&who)).context("a folder for the copy")?;
        let store = format!("{who}/store");
        let mut cp = Command::new("cp");
        cp.arg("--sparse=always").arg(cluster.dir().join(&store));
        bounded::printed(cp.arg(elsewhere.join(&store)), WELL_MAX)?;
        let text = fs::read_to_string(cluster.dir().join("cluster.toml"))
            .context("reading cluster.toml")?;
        fs::write(
            elsewhere.join("cluster.toml"),
            with_port(&text, id, site.base_port + 15),
        )
        .context("the copy")?;
        start(cluster, id)?;
        cluster.await_health(WELL_MAX)?;
        let before = epoch(cluster)?;
        let mut copy = Cluster::at(&site.nacre, &elsewhere);
        copy.run("osd", id)?;
        let status = bounded::until("the copy ends", GONE_MAX, || copy.ended(&who))?;
        let said = last_lines(&copy.log(&who), 1);
        ensure!(
            !status.success(),
            "the copy ended as if nothing were wrong: {said}"
        );
        ensure!(
            cluster.ended(&who)?.is_none(),
            "{who} ended, and not its copy"
        );
        probe(cluster, POOL, WORK_MAX)?;
        let cost = epoch(cluster)? - before;
        ensure!(cost <= EPOCHS_MAX, "a copy cost {cost} epochs");
        println!("  the copy of {who}: {said}");
        fs::remove_dir_all(&elsewhere).context("removing the copy")?;
    }
    Ok(())
}

/// The cluster's file, with another port for an OSD.
fn with_port(text: &str, id: u32, port: u16) -> String {
    let (mut of_osd, mut lines) = (false, Vec::new());
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with("[[") {
            inside = line == "[[osd]]";
            of_osd = false;
        } else if inside && line == format!("id = {id}") {
            of_osd = true;
        }
        let moved = of_osd && line.starts_with("address = ");
        lines.push(if moved {
            format!("address = \"127.0.0.1:{port}\"")
        } else {
            line.to_owned()
        });
    }
    lines.join("\n") + "\n"
}

/// A monitor is removed, and added under its number at another port: it counts once it runs,
/// participates again, and clients find the others meanwhile.
pub fn monitor_comes_back(site: &mut Site, cluster: &mut Cluster) -> Result<()> {
    for (id, round) in [0, 1, 2, 0].into_iter().zip(0..) {
        let (who, id_text) = (format!("mon.{id}"), id.to_string());
        cluster
            .ask(&["mon", "rm", &id_text])
            .with_context(|| format!("removing {who}"))?;
        // It may have noticed its removal.
        if cluster.ended(&who)?.is_none() {
            cluster.kill(&who)?;
        }
        let _ = fs::remove_dir_all(cluster.dir().join(&who));
        let address = format!("127.0.0.1:{}", site.base_port + 10 + round);
        cluster
            .ask(&["mon", "add", &id_text, &address])
            .with_context(|| format!("adding {who}"))?;
        let voters = cluster.ask(&["status"])?["mons"]["voters"].as_u64();
        ensure!(
            voters == Some(2),
            "{who} counts before it has run: {voters:?} voters"
        );
        cluster.run("mon", id)?;
        let what = format!("{who} takes part");
        cluster.until(&what, WELL_MAX, &["status"], |status| {
            let mons = &status["mons"];
            (mons["voters"] == 3 && mons["reachable"] == 3).then_some(())
        })?;
        probe(cluster, POOL, WORK_MAX)?;
    }
    Ok(())
}

/// `nacre up` is killed at any time while it creates a cluster: the next one creates it, with its
/// pool.
pub fn killed_while_it_is_made(site: &mut Site, _: &mut Cluster) -> Result<()> {
    let port = (site.base_port + 10).to_string();
    for wait_ms in [2, 5, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 700] {
        let folder = site.dir.join(format!("made-{wait_ms}"));
        let made = Cluster::at(&site.nacre, &folder);
        let first = made.up_attached(&["--base-port", &port])?;
        sleep(Duration::from_millis(wait_ms));
        drop(first);
        let what = || format!("after `nacre up` was killed after {wait_ms} ms");
        made.up(&["--base-port", &port]).with_context(what)?;
        made.await_health(WELL_MAX).with_context(what)?;
        let put = ["object", "put", POOL, "a"];
        made.ask_with(GONE_MAX, &put, &folder.join("cluster.toml"))
            .with_context(what)?;
        made.down()?;
        fs::remove_dir_all(&folder).with_context(what)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_osd_alone_is_moved() {
        let text = "[[mon]]\nid = 1\naddress = \"a\"\n[[osd]]\nid = 0\naddress = \"b\"\n[[osd]]\nid = 1\naddress = \"c\"\n";
        let moved = super::with_port(text, 1, 7);
        assert_eq!(moved, text.replace("\"c\"", "\"127.0.0.1:7\""));
    }
}
