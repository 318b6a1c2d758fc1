//! Two mounts of one file system while servers, an OSD and a third mount die: no stale read,
//! nothing lost, no error.
//!
//! ```text
//!             ┌─ pair: random calls on either, compared with a model ─┐
//!  two mounts ┼─ races: two at once                                   ┼─ through every fault; the longest call of each phase
//!             └─ book: synchronized records                           ┘
//!  ─▶ compared in whole ─▶ umount, fs check ─▶ every daemon restarted ─▶ a new mount: compared again
//! ```
//! * [`model`]: the expected answers; [`pair`]: calls; [`races`]; [`book`]: a ledger;
//! * [`ranks`]: the same with two servers that share a file system, with [`tokens`];
//! * [`many`]: cached and open files; [`stalls`]: durations of calls; [`stale`]: repeated calls;
//!   [`victim`]: the third mount.

pub mod book;
mod many;
mod model;
pub mod pair;
pub mod races;
pub mod ranks;
pub mod stale;
pub mod stalls;
pub mod tokens;
mod victim;

use super::mounted::{self, SERVERS};
use super::site::Site;
use crate::ceph;
use crate::cluster::Cluster;
use crate::cluster::files::{Mount, await_server};
use anyhow::{Context, Result};
use book::Book;
use many::Many;
use pair::Pair;
use stalls::{Crew, Stalls, Watchdog, Worker};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread::{self, sleep};
use std::time::Duration;

/// Default duration of the phase without a fault.
const QUIET_S: u64 = 20;
/// Duration for which a server is suspended, or an OSD is down.
const STOPPED: Duration = Duration::from_secs(8);
const GONE: Duration = Duration::from_secs(4);
/// Time after which the immediate effects of a fault are over.
const HARM: Duration = Duration::from_secs(4);
const HEALED_MAX: Duration = Duration::from_mins(5);
/// Maximum duration of any call (docs/files.md has lower limits for some).
const KILLED_S: f64 = 2.0;
const STOPPED_S: f64 = 4.0;
/// The time that others wait for a dead mount, 6 s (docs/files.md), plus the waits of calls before
/// theirs.
const SHARED_S: f64 = 8.0;
const SEED: u64 = 20;
/// Maximum duration of all phases, on a slow machine.
const WHOLE_MAX: Duration = Duration::from_mins(20);

/// Runs the scenario.
///
/// # Errors
/// When an answer is wrong, data is lost, or a call hangs.
pub fn run(site: &mut Site) -> Result<()> {
    if !mounted::is_possible(site, "two mounts with faults") {
        return Ok(());
    }
    let mut cluster = mounted::serve(site)?;
    mounts(site, &mut cluster, None)
}

/// The same on a Ceph cluster.
///
/// # Errors
/// As [`run`].
pub fn run_on_ceph(site: &mut Site) -> Result<()> {
    if !mounted::is_possible(site, "two mounts with faults") {
        return Ok(());
    }
    if let Err(why) = ceph::obtain() {
        site.figures
            .skipped("two mounts with faults", &format!("{why:#}"));
        return Ok(());
    }
    let (ceph, mut cluster) = mounted::serve_on_ceph(site)?;
    mounts(site, &mut cluster, ceph.conf.parent())
}

/// Runs it on a cluster with its own monitors and OSDs, or with those of the Ceph cluster in a
/// directory.
fn mounts(site: &mut Site, cluster: &mut Cluster, ceph: Option<&Path>) -> Result<()> {
    let places = ["a", "b"].map(|name| site.dir.join(name));
    let (stop, stalls) = (AtomicBool::new(false), [(); 3].map(|()| Stalls::default()));
    let folder = |name: &str| places.clone().map(|place| place.join(name));
    let (mut pair, mut book) = (
        Pair::new(folder("pair"), SEED),
        Book::new(folder("book")[0].clone()),
    );
    let [first, second, third] = &stalls;
    thread::scope(|scope| -> Result<()> {
        // Dropped here on an error: waiting calls then fail, and the threads end.
        let mounts = [
            Mount::new(cluster, &places[0])?,
            Mount::new(cluster, &places[1])?,
        ];
        for name in ["pair", "races", "book"] {
            fs::create_dir(places[0].join(name)).with_context(|| format!("making {name}"))?;
        }
        let races = folder("races");
        let (pair, book, stop) = (&mut pair, &mut book, &stop);
        let mut crew = Crew {
            stop,
            workers: vec![
                Worker(
                    "pair",
                    first,
                    Some(scope.spawn(move || pair.work(first, stop))),
                ),
                Worker(
                    "races",
                    second,
                    Some(scope.spawn(move || races::work(&races, second, stop))),
                ),
                Worker(
                    "book",
                    third,
                    Some(scope.spawn(move || book.work(third, stop))),
                ),
            ],
        };
        let _watched = Watchdog::begin(mounts.iter().map(Mount::pid).collect(), WHOLE_MAX);
        through(site, cluster, ceph, &mut crew, &places[0])?;
        if ceph.is_none() {
            with_many(site, cluster, &mut crew, &folder("many"))?;
        }
        crew.end()?;
        for Worker(name, stalls, _) in &crew.workers {
            site.figures
                .note(&format!("calls of `{name}`"), stalls.calls() as f64, "");
        }
        mounts.into_iter().try_for_each(Mount::end)
    })?;
    site.figures.proved(
        "two mounts: every answer as in the model, no append lost or torn, one winner of each race",
    );
    mounted::check(site, cluster)?;
    again(site, cluster, ceph, &mut pair, &book)
}

/// The sequence of faults.
fn through(
    site: &mut Site,
    cluster: &mut Cluster,
    ceph: Option<&Path>,
    crew: &mut Crew,
    first: &Path,
) -> Result<()> {
    phase(site, crew, "nothing", None, |site| {
        sleep(Duration::from_secs(site.seconds.unwrap_or(QUIET_S)));
        Ok(())
    })?;
    for what in ["the active server killed", "the next one killed, too"] {
        phase(site, crew, what, Some(KILLED_S), |_| kill_server(cluster))?;
    }
    phase(
        site,
        crew,
        "the active server stopped for 8 s",
        Some(STOPPED_S),
        |_| stop_server(cluster),
    )?;
    // With Ceph, the time until an OSD is marked down is not ours.
    let ours = ceph.is_none().then_some(KILLED_S);
    phase(site, crew, "an OSD killed", ours, |_| {
        match ceph {
            Some(dir) => ceph::kill(dir, "osd.1")?,
            None => cluster.kill("osd.1").map(drop)?,
        }
        sleep(GONE);
        Ok(())
    })?;
    phase(
        site,
        crew,
        "the OSD started again, until all is healthy",
        ours,
        |_| {
            if let Some(dir) = ceph {
                return ceph::up(dir, &[]).map(drop);
            }
            cluster.run("osd", 1)?;
            cluster.await_osd(1, true, HEALED_MAX)?;
            cluster.await_health(HEALED_MAX)
        },
    )?;
    let place = first.with_file_name("third");
    phase(
        site,
        crew,
        "a third mount killed with locks",
        Some(SHARED_S),
        |site| victim::with_locks(site, Mount::new(cluster, &place)?, first),
    )?;
    // It has just created a name in the directory in which all paths begin.
    phase(
        site,
        crew,
        "a third mount killed with data",
        Some(victim::WANTED_S),
        |site| victim::with_data(site, Mount::new(cluster, &place)?, first),
    )
}

fn kill_server(cluster: &mut Cluster) -> Result<()> {
    let active = await_server(cluster)?;
    cluster.kill(&active)?;
    sleep(HARM);
    cluster.run("mds", number(&active)?).map(drop)
}

fn stop_server(cluster: &Cluster) -> Result<()> {
    let active = await_server(cluster)?;
    cluster.signal(&active, "STOP")?;
    sleep(STOPPED);
    cluster.signal(&active, "CONT")?;
    sleep(HARM);
    Ok(())
}

/// The server dies, and is suspended, while a mount caches many files and has many open.
fn with_many(
    site: &mut Site,
    cluster: &mut Cluster,
    crew: &mut Crew,
    folders: &[PathBuf; 2],
) -> Result<()> {
    let mut many = None;
    phase(site, crew, "many files being made", None, |_| {
        many = Some(Many::make(folders[1].clone())?);
        Ok(())
    })?;
    let many = many.context("they were made")?;
    let (known, open) = many.counts();
    let with = format!("{known} files known and {open} open");
    phase(
        site,
        crew,
        &format!("the active server killed, {with}"),
        Some(KILLED_S),
        |_| kill_server(cluster),
    )?;
    phase(
        site,
        crew,
        &format!("the active server stopped for 8 s, {with}"),
        Some(STOPPED_S),
        |_| stop_server(cluster),
    )?;
    many.end(&folders[0])?;
    site.figures.proved(&format!(
        "{with}: every open one was written after two takeovers, and read on the other mount"
    ));
    Ok(())
}

/// A phase with an event, and the longest call that began or ended in it.
fn phase(
    site: &mut Site,
    crew: &mut Crew,
    what: &str,
    limit: Option<f64>,
    happens: impl FnOnce(&mut Site) -> Result<()>,
) -> Result<()> {
    crew.begin()?;
    happens(site).with_context(|| what.to_owned())?;
    let (longest, call) = crew.longest().with_context(|| what.to_owned())?;
    let (text, longest) = (
        format!("{what}: longest call of two mounts"),
        longest.as_secs_f64(),
    );
    match limit {
        Some(limit) => site.figures.at_most(limit, &text, longest, "s"),
        None => site.figures.note(&text, longest, "s"),
    }
    if longest > KILLED_S {
        println!("    that was {call}");
    }
    Ok(())
}

fn number(who: &str) -> Result<u32> {
    let number = who
        .split_once('.')
        .and_then(|(_, number)| number.parse().ok());
    number.with_context(|| format!("{who} has no number"))
}

/// All daemons are stopped and started again; a new mount must see the same content.
fn again(
    site: &mut Site,
    cluster: &mut Cluster,
    ceph: Option<&Path>,
    pair: &mut Pair,
    book: &Book,
) -> Result<()> {
    for id in 0..SERVERS {
        cluster.end(&format!("mds.{id}"))?;
    }
    match ceph {
        Some(dir) => {
            ceph::down(dir)?;
            ceph::up(dir, &[])?;
        }
        None => {
            for who in ["osd.0", "osd.1", "osd.2", "mon.0"] {
                cluster.end(who)?;
            }
            cluster.run_all(1, 3)?;
        }
    }
    for id in 0..SERVERS {
        cluster.run("mds", id)?;
    }
    if ceph.is_none() {
        cluster.await_health(HEALED_MAX)?;
    }
    await_server(cluster)?;
    let mount = Mount::new(cluster, &site.dir.join("after"))?;
    let entries = pair
        .compare(mount.dir().join("pair"))
        .context("after a restart of every daemon")?;
    book.verify(&mount.dir().join("book"))
        .context("after a restart of every daemon")?;
    mount.end()?;
    site.figures.note(
        "ledger: records that were acknowledged",
        book.acknowledged as f64,
        "",
    );
    site.figures
        .note("entries compared with the model", entries as f64, "");
    site.figures.proved(
        "every daemon restarted: a new mount sees what the model has, and the whole ledger",
    );
    mounted::check(site, cluster)
}
