//! Rolling restarts of fresh clusters under load: every member in a random order, terminated or
//! killed, with `osd down` in between. Then every PG of the pool is written, called, read and
//! deleted within 5 s, and acknowledged data is present (F29).

use super::site::Site;
use crate::chaos::plan::Dice;
use crate::cluster::ledger::{self, Ledger};
use crate::cluster::{Cluster, Setup};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

const ROUNDS: u64 = 500;
const OSDS: u32 = 3;
/// Number of concurrent rounds: each has its own ports.
const LANES: u16 = 4;
const PORTS: u16 = 4;
const BOUND_MS: f64 = 5_000.0;
const UP_MAX: Duration = Duration::from_mins(1);
const END_MAX: Duration = Duration::from_mins(2);

/// The results of the rounds.
#[derive(Default)]
struct Found {
    worst_ms: f64,
    worst: String,
    rounds: u64,
    wrong: Vec<String>,
}

/// Runs the scenario.
///
/// # Errors
/// When a round's PGs are not written in time, or acknowledged data is missing.
pub fn run(site: &mut Site) -> Result<()> {
    let rounds = site.rounds.unwrap_or(ROUNDS);
    let until = site
        .seconds
        .map(|seconds| Instant::now() + Duration::from_secs(seconds));
    // Concurrent runs have other ports, and so other seeds.
    let (next, found) = (AtomicU64::new(0), Mutex::new(Found::default()));
    let first = u64::from(site.base_port) << 20;
    let (site_ref, next_ref, found_ref) = (&*site, &next, &found);
    std::thread::scope(|scope| {
        for lane in 0..LANES {
            scope.spawn(move || {
                loop {
                    let round = next_ref.fetch_add(1, Ordering::Relaxed);
                    if round >= rounds || until.is_some_and(|until| Instant::now() > until) {
                        return;
                    }
                    let seed = first + round;
                    let port = site_ref.base_port + lane * PORTS;
                    let dir = site_ref.dir.join(format!("round-{round}"));
                    let result = one(&site_ref.nacre, &dir, port, seed);
                    let mut found = found_ref.lock().expect("nobody panics with it");
                    found.rounds += 1;
                    match result {
                        Ok((ms, what)) => {
                            if ms > found.worst_ms {
                                (found.worst_ms, found.worst) =
                                    (ms, format!("round {round}: {what}"));
                            }
                            let _ = fs::remove_dir_all(&dir);
                        }
                        Err(why) => {
                            println!("  round {round} (seed {seed}): {why:#}");
                            found.wrong.push(format!("round {round}: {why:#}"));
                        }
                    }
                    if found.rounds.is_multiple_of(20) {
                        println!(
                            "  {} rounds, {} wrong, worst {} ms",
                            found.rounds,
                            found.wrong.len(),
                            found.worst_ms
                        );
                    }
                }
            });
        }
    });
    let found = found.into_inner().expect("nobody panics with it");
    site.figures.note(
        "clusters restarted member by member under load",
        found.rounds as f64,
        "",
    );
    site.figures.at_most(
        BOUND_MS,
        "the slowest operation of all groups afterwards",
        found.worst_ms,
        "ms",
    );
    println!("  the slowest: {}", found.worst);
    if let Some(first) = found.wrong.first() {
        bail!(
            "{} of {} rounds are wrong; the first: {first}",
            found.wrong.len(),
            found.rounds
        );
    }
    site.figures.proved("every group is written, called, read and deleted afterwards; what was acknowledged is there");
    Ok(())
}

/// Runs one cluster; returns the duration of the slowest operation afterwards, and the operation.
fn one(nacre: &Path, dir: &Path, port: u16, seed: u64) -> Result<(f64, String)> {
    let mut dice = Dice(seed);
    let mut cluster = Cluster::start(nacre, dir, port, 1, OSDS, &Setup::default())?;
    cluster.ask(&["pool", "create", "data", "--size", "3", "--pg-num", "32"])?;
    let mut load = Ledger::begin(&cluster, "data", "--clients 4 --seconds 600")?;
    sleep(Duration::from_millis(500 + dice.draw(1_000)));
    let mut did = Vec::new();
    for _ in 0..1 + dice.draw(2) {
        let mut order: Vec<u32> = (0..OSDS).collect();
        for at in (1..order.len()).rev() {
            let other = usize::try_from(dice.draw(at as u64 + 1)).expect("small");
            order.swap(at, other);
        }
        for id in order {
            let who = format!("osd.{id}");
            let killed = dice.draw(3) == 0;
            did.push(format!("{} {who}", if killed { "kill" } else { "end" }));
            if killed {
                cluster.kill(&who)?
            } else {
                cluster.end(&who)?
            };
            if dice.draw(4) == 0 {
                sleep(Duration::from_millis(dice.draw(300)));
            }
            cluster.run("osd", id)?;
            if dice.draw(3) == 0 {
                let other = dice.draw(OSDS.into()).to_string();
                did.push(format!("down {other}"));
                // It may be down already.
                let _ = cluster.ask(&["osd", "down", &other]);
            }
            sleep(Duration::from_millis(dice.draw(1_500)));
        }
    }
    let did = did.join(", ");
    // A busy machine starts programs slowly; the time of the PGs is counted from when all are up.
    for id in 0..OSDS {
        cluster
            .await_osd(id, true, UP_MAX)
            .with_context(|| format!("after {did}"))?;
    }
    // The load continues: an operation that hangs here would hang for other clients too.
    let probe = ledger::probe(&cluster, "data", END_MAX);
    let probe = probe
        .with_context(|| format!("after {did}"))
        .inspect_err(|_| drop(fs::write(dir.join("finding.log"), cluster.describe())))?;
    load.end(END_MAX)
        .and_then(|_| load.verify(&cluster))
        .with_context(|| format!("after {did}"))?;
    for id in 0..OSDS {
        cluster.kill(&format!("osd.{id}"))?;
    }
    cluster.kill("mon.0")?;
    Ok((
        probe["worst_ms"].as_f64().unwrap_or(f64::NAN),
        format!("{} after {did}", probe["worst"].as_str().unwrap_or("?")),
    ))
}
