//! `./x chaos`: a cluster of processes under load, with faults injected according to a seed.
//! Afterwards it checks that nothing was lost, stale, incomplete or unreported.
//!
//! ```text
//!  seed ─▶ plan ─▶ faults ─▶ town (daemons, mounts) · net (namespaces) · disks   finding: the folder stays, exit code 1
//!          loads (ledgers, histories, files) ─▶ eyes (health against who waits) ─▶ judge (all read back, from each member alone)
//! ```
//! * [`plan`]: pure: the faults and their times; [`faults`]: injecting and undoing them; [`net`],
//!   [`disks`], [`town`]: their targets;
//! * [`load`]: the load of clients; [`files`]: the load on mounts, where this user can mount;
//!   [`eyes`]: health during the run; [`judge`]: the final checks.

pub mod disks;
mod eyes;
mod faults;
mod files;
mod judge;
mod load;
mod net;
pub mod plan;
mod town;

use crate::cluster::files::why_not;
use crate::cluster::guard::Guard;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use eyes::Eyes;
use faults::Faults;
use files::Files;
use load::Loads;
use net::Net;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use town::Town;

const UP_MAX: Duration = Duration::from_secs(90);

/// The arguments.
#[derive(Debug, PartialEq)]
struct Wish {
    seconds: u64,
    seed: u64,
    dir: Option<PathBuf>,
    base_port: u16,
    nacre: Option<PathBuf>,
    only: Vec<String>,
    plan: bool,
    /// The directory of a run whose files are worked on: passed by chaos to itself.
    work: Option<PathBuf>,
}

impl Wish {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut wish = Self {
            seconds: 120,
            seed: 1,
            dir: None,
            base_port: 18_500,
            nacre: None,
            only: Vec::new(),
            plan: false,
            work: None,
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut next = || {
                rest.next()
                    .with_context(|| format!("{argument} needs a value"))
            };
            match argument.as_str() {
                "--seconds" => {
                    wish.seconds = next()?.parse().context("--seconds takes a whole number")?
                }
                "--seed" => wish.seed = next()?.parse().context("--seed takes a whole number")?,
                "--dir" => wish.dir = Some(PathBuf::from(next()?)),
                "--base-port" => {
                    wish.base_port = next()?.parse().context("--base-port takes a port number")?
                }
                "--nacre" => wish.nacre = Some(PathBuf::from(next()?)),
                "--plan" => wish.plan = true,
                "--work" => wish.work = Some(PathBuf::from(next()?)),
                "--only" => {
                    for kind in next()?.split(',') {
                        ensure!(
                            plan::KINDS.contains(&kind),
                            "--only takes some of {}",
                            plan::KINDS.join(",")
                        );
                        wish.only.push(kind.to_owned());
                    }
                }
                other => bail!("`{other}` is no argument of chaos; ./x help lists them"),
            }
        }
        ensure!(
            (5..=86_400).contains(&wish.seconds),
            "--seconds must be from 5 to 86,400"
        );
        ensure!(
            wish.base_port <= 65_000,
            "--base-port must be at most 65,000: daemons take the following ones"
        );
        Ok(wish)
    }
}

/// Runs chaos.
///
/// # Errors
/// The first finding.
pub fn run(arguments: &[String]) -> Result<()> {
    let wish = Wish::parse(arguments)?;
    if wish.plan {
        for number in 0..wish.seconds / 8 + 1 {
            println!("{}", plan::turn(wish.seed, number, &wish.only));
        }
        return Ok(());
    }
    if let Some(dir) = &wish.work {
        return files::work::main(dir, wish.seed);
    }
    // Not evaluated if everything is given: cargo may belong to another user.
    let nacre = crate::nacre(wish.nacre.as_deref())?;
    let above = match &wish.dir {
        Some(dir) => std::path::absolute(dir).context("finding --dir")?,
        None => Workspace::load()?.target.join("nacre-chaos"),
    };
    let dir = above.join(format!("seed-{}", wish.seed));
    let guard = Guard::start(&nacre, &dir)?;
    fs::create_dir_all(&above).with_context(|| format!("making {}", above.display()))?;
    println!(
        "chaos: seed {}, {} s, in {}",
        wish.seed,
        wish.seconds,
        dir.display()
    );
    let begun = Instant::now();
    let result = mistreat(&wish, &nacre, &dir);
    if let Err(why) = &result {
        // The guard removes the directory: it is moved away first.
        let kept = above.join(format!("finding-seed-{}-{}", wish.seed, std::process::id()));
        fs::rename(&dir, &kept).context("keeping the folder")?;
        println!(
            "FINDING with seed {} after {:.0} s: {why:#}",
            wish.seed,
            begun.elapsed().as_secs_f64()
        );
        println!(
            "  look at {0}/*.log, {0}/eyes.log, {0}/*.said; --only KIND,… makes the plan smaller",
            kept.display()
        );
        println!(
            "  again: ./x chaos --seed {} --seconds {}",
            wish.seed, wish.seconds
        );
    }
    drop(guard);
    result.with_context(|| format!("seed {}", wish.seed))?;
    println!(
        "seed {}: nothing found; took {:.0} s",
        wish.seed,
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

fn mistreat(wish: &Wish, nacre: &Path, dir: &Path) -> Result<()> {
    let cuts = wish.only.is_empty() || wish.only.iter().any(|kind| kind == "net");
    let net = Net::make(wish.base_port, cuts);
    if let Some(why) = net.why_not() {
        let loud = if cuts { "SKIPPED: " } else { "" };
        println!("{loud}cuts of the network: all daemons are on one loopback: {why}");
    }
    let mut town = Town::make(nacre, dir, net, wish.base_port)?;
    let why_no_files = why_not();
    if let Some(why) = why_no_files {
        println!("SKIPPED: the file system, its servers and its mounts: {why}");
    }
    town.has_servers = why_no_files.is_none();
    let mut faults = Faults::new(&town);
    for who in town.all() {
        town.start(who)?;
    }
    town.until("all OSDs are up", UP_MAX, |status| {
        status["osds"]["up"].as_u64() == Some(plan::OSDS.into())
    })?;
    let mut loads = Loads::begin(&town, wish.seconds)?;
    if town.has_servers {
        town.files = Some(Files::begin(&town, wish.seed)?);
    }
    let log = fs::File::create(dir.join("eyes.log")).context("writing what is seen")?;
    // Asked by a separate command for every check: it is a client like any other.
    let mut health = town.cluster.command();
    health.arg("health");
    let eyes = Eyes::open(health, loads.waiting(), files::waiting(dir), log);
    let result = turns(wish, &mut town, &mut faults, &mut loads, &eyes);
    if result.is_err() {
        say(&town);
    }
    result?;
    town.wait(Duration::from_secs(6))?;
    let found = loads.finish(&town)?;
    let of_files = town.files.as_mut().map(Files::finish).transpose()?;
    let seen = eyes.close();
    if let Some(finding) = seen.findings.first() {
        bail!("{finding}");
    }
    for (name, value) in found {
        println!("  {name}: {value}");
    }
    if let Some(said) = of_files {
        println!("  files: {said}");
    }
    println!(
        "  looked {} times, {} times all was well; the longest wait that was seen: {} ms ({})",
        seen.looks.0, seen.looks.1, seen.longest.0, seen.longest.1
    );
    println!(
        "  memory at most, MiB: {}",
        seen.memory
            .iter()
            .map(|(who, kib)| format!("{who} {}", kib >> 10))
            .collect::<Vec<_>>()
            .join(", ")
    );
    judge::judge(&mut town).inspect_err(|_| say(&town))
}

/// Executes turns until the time is up.
fn turns(
    wish: &Wish,
    town: &mut Town,
    faults: &mut Faults,
    loads: &mut Loads,
    eyes: &Eyes,
) -> Result<()> {
    let begun = Instant::now();
    // Recent turns: the end of each, and how long it may delay calls on mounts.
    let mut late: Vec<(Instant, Duration)> = Vec::new();
    for number in 0.. {
        if begun.elapsed() >= Duration::from_secs(wish.seconds) {
            break;
        }
        let turn = plan::turn(wish.seed, number, &wish.only);
        println!("  {:6.1} s  {turn}", begun.elapsed().as_secs_f64());
        let pids = town
            .pids()
            .into_iter()
            .map(|(who, pid)| (who.to_string(), pid))
            .collect();
        *eyes.pids.lock().expect("nobody panics with it") = pids;
        // An operation that waits because of one turn may continue to wait because of the next one
        // or two.
        late.retain(|(ended, more)| ended.elapsed() < eyes::files_bound(*more));
        let before = late.iter().map(|(_, more)| *more).max().unwrap_or_default();
        let bound = eyes::files_bound(turn.holds_files_up() + before);
        eyes.files_bound_ms.store(
            u64::try_from(bound.as_millis()).expect("small"),
            Ordering::Relaxed,
        );
        faults::turn(town, faults, &turn).with_context(|| format!("in {turn}"))?;
        late.push((Instant::now(), turn.holds_files_up()));
        loads.check().with_context(|| format!("in {turn}"))?;
        if let Some(finding) = eyes.finding() {
            bail!("{finding} (in or before {turn})");
        }
    }
    Ok(())
}

/// Writes the cluster's state at a finding.
fn say(town: &Town) {
    let path = town.cluster.dir().join("said-at-the-finding");
    let _ = fs::write(path, town.cluster.describe());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Wish> {
        Wish::parse(
            &words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn arguments_are_read_and_mistakes_are_said() {
        let wish = parse(&["--seed", "7", "--seconds", "60", "--only", "kill,net"]).expect("fine");
        assert_eq!(
            (wish.seed, wish.seconds, wish.only),
            (7, 60, vec!["kill".to_owned(), "net".to_owned()])
        );
        for (words, why) in [
            (&["--only", "fire"][..], "--only takes some of kill"),
            (&["--seconds", "1"], "from 5"),
            (&["--seed"], "needs a value"),
            (&["seed"], "is no argument"),
        ] {
            let error = format!("{:#}", parse(words).expect_err("a mistake"));
            assert!(error.contains(why), "{error}");
        }
    }
}
