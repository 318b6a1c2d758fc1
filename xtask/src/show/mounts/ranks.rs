//! Two mounts of a file system with two servers, which die and are suspended.

use super::stalls::{Crew, Stalls, Watchdog, Worker};
use super::{HARM, STOPPED_S, WHOLE_MAX, number, phase, tokens};
use crate::cluster::Cluster;
use crate::cluster::files::{self, Mount, NAME};
use crate::show::mounted;
use crate::show::site::Site;
use anyhow::{Context, Result};
use std::fs;
use std::sync::atomic::AtomicBool;
use std::thread::{self, sleep};
use std::time::Duration;

/// Number of servers that die, and number that are suspended.
const FAULTS: u64 = 6;
const STILL: Duration = Duration::from_secs(5);
const QUIET_S: u64 = 10;

/// Runs the scenario.
///
/// # Errors
/// When a file exists twice, or not at all, or a call hangs.
pub fn run(site: &mut Site) -> Result<()> {
    if !mounted::is_possible(site, "two ranks with faults") {
        return Ok(());
    }
    let mut cluster = mounted::serve(site)?;
    cluster.run("mds", mounted::SERVERS)?;
    cluster.ask(&["fs", "ranks", NAME, "2"])?;
    await_ranks(&cluster)?;
    let places = ["a", "b"].map(|name| site.dir.join(name));
    let (stop, stalls) = (AtomicBool::new(false), [(); 4].map(|()| Stalls::default()));
    thread::scope(|scope| -> Result<()> {
        let mounts = [
            Mount::new(&cluster, &places[0])?,
            Mount::new(&cluster, &places[1])?,
        ];
        for name in ["p0", "p1"] {
            fs::create_dir(places[0].join(name)).with_context(|| format!("making {name}"))?;
        }
        cluster.ask(&["fs", "subtree", "pin", NAME, "/p1", "1"])?;
        tokens::make(&places[0])?;
        let (stop, places) = (&stop, &places);
        let workers = stalls.iter().enumerate().map(|(at, stalls)| {
            let work = move || tokens::work(&places[at % 2], at as u64 + 1, stalls, stop);
            Worker("tokens", stalls, Some(scope.spawn(work)))
        });
        let mut crew = Crew {
            stop,
            workers: workers.collect(),
        };
        let _watched = Watchdog::begin(mounts.iter().map(Mount::pid).collect(), WHOLE_MAX);
        phase(site, &mut crew, "nothing", None, |site| {
            sleep(Duration::from_secs(site.seconds.unwrap_or(QUIET_S)));
            Ok(())
        })?;
        for fault in 0..FAULTS {
            let rank = fault % 2;
            phase(
                site,
                &mut crew,
                &format!("the server of rank {rank} killed"),
                Some(STOPPED_S),
                |_| {
                    let server = server_of(&cluster, rank)?;
                    cluster.kill(&server)?;
                    sleep(HARM);
                    cluster.run("mds", number(&server)?).map(drop)
                },
            )?;
            await_ranks(&cluster)?;
            phase(
                site,
                &mut crew,
                &format!("the server of rank {rank} stopped for 5 s"),
                Some(STOPPED_S),
                |_| {
                    let server = server_of(&cluster, rank)?;
                    cluster.signal(&server, "STOP")?;
                    sleep(STILL);
                    cluster.signal(&server, "CONT")?;
                    sleep(HARM);
                    Ok(())
                },
            )?;
            await_ranks(&cluster)?;
        }
        crew.end()?;
        for Worker(name, stalls, _) in &crew.workers {
            site.figures
                .note(&format!("calls of `{name}`"), stalls.calls() as f64, "");
        }
        places.iter().try_for_each(|place| tokens::check(place))?;
        mounts.into_iter().try_for_each(Mount::end)
    })?;
    site.figures
        .proved("two ranks: every file is there once, with its text and one name");
    mounted::check(site, &cluster)
}

/// The server of each rank, once all have one.
fn await_ranks(cluster: &Cluster) -> Result<Vec<String>> {
    files::await_ranks(cluster, 2)
}
fn server_of(cluster: &Cluster, rank: u64) -> Result<String> {
    await_ranks(cluster)?
        .into_iter()
        .nth(usize::try_from(rank).expect("two"))
        .context("a rank without a server")
}
