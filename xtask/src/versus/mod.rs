//! `./x bench versus`: Nacre and Ceph on the same machine, alternating, in one run, measured by the
//! same client.
//!
//! ```text
//!  round 1   nacre ─▶ ceph ─▶ tuned      each turn (turn.rs): up ─▶ workloads ─▶ faults ─▶ down
//!  round 2   ceph ─▶ tuned ─▶ nacre
//!  round 3   tuned ─▶ nacre ─▶ ceph      ─▶ figures ─▶ goals ─▶ table; with --record bench/versus.md
//! ```
//! * [`cluster`]: the systems, with one interface; [`rows`]: the measurements, and their extent;
//!   [`turn`]: one system's turn;
//! * [`figures`]: samples; [`goals`]: requirements; [`report`]: the table.
//!
//! A missed goal is a line of the table. A failed measurement is an error, reported at once and
//! again at the end.

mod cluster;
mod figures;
mod goals;
mod report;
mod rows;
mod turn;

use crate::cluster::guard::{self, Guard};
use crate::floor::Floor;
use crate::workspace::Workspace;
use crate::{ceph, machine};
use anyhow::{Context, Result, bail, ensure};
use cluster::System;
use figures::Figures;
use rows::Extent;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use turn::Turn;

/// Maximum duration of a run. A round that would end later is not started.
const LIMIT: Duration = Duration::from_mins(35);
/// Number of Nacre's ports, from the first.
const PORTS: u16 = 4;

/// The arguments.
#[derive(Debug, PartialEq)]
struct Wish {
    extent: Extent,
    systems: Vec<System>,
    dir: Option<PathBuf>,
    base_port: u16,
    nacre: Option<PathBuf>,
    record: bool,
}

impl Wish {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut wish = Self {
            extent: rows::FULL,
            systems: Vec::new(),
            dir: None,
            base_port: 17_800,
            nacre: None,
            record: false,
        };
        let (mut rounds, mut rest) = (None, arguments.iter());
        while let Some(argument) = rest.next() {
            let mut next = || {
                rest.next()
                    .with_context(|| format!("{argument} needs a value"))
            };
            match argument.as_str() {
                "--quick" => wish.extent = rows::QUICK,
                "--rounds" => {
                    let count = next()?.parse().context("--rounds takes a whole number")?;
                    ensure!((1..=20).contains(&count), "--rounds must be from 1 to 20");
                    rounds = Some(count);
                }
                "--only" => {
                    let name = next()?;
                    let system = System::ALL.into_iter().find(|system| system.name() == name);
                    wish.systems.push(system.with_context(|| {
                        format!("--only takes nacre, ceph or tuned, not `{name}`")
                    })?);
                }
                "--dir" => wish.dir = Some(PathBuf::from(next()?)),
                "--nacre" => wish.nacre = Some(PathBuf::from(next()?)),
                "--base-port" => {
                    wish.base_port = next()?.parse().context("--base-port takes a port number")?
                }
                "--record" => wish.record = true,
                other => bail!(
                    "`{other}` is no argument of bench versus; there are --quick, --rounds N, --only SYSTEM, --dir DIR, --nacre FILE, --base-port PORT and --record"
                ),
            }
        }
        wish.extent.rounds = rounds.unwrap_or(wish.extent.rounds);
        ensure!(
            wish.base_port <= 65_000,
            "--base-port must be at most 65,000: daemons take the following ones"
        );
        let whole = wish.systems.is_empty()
            && wish.extent.seconds == rows::FULL.seconds
            && wish.extent.rounds >= 3;
        ensure!(
            !wish.record || whole,
            "--record is for the whole: without --quick and --only, in at least 3 rounds"
        );
        if wish.systems.is_empty() {
            wish.systems = System::ALL.to_vec();
        }
        Ok(wish)
    }
}

/// Runs the comparison.
///
/// # Errors
/// When there is no Ceph, a cluster does not come up, or a measurement fails. A missed goal is not
/// an error.
pub fn run(arguments: &[String]) -> Result<()> {
    let Wish {
        extent,
        systems,
        dir,
        base_port,
        nacre,
        record,
    } = Wish::parse(arguments)?;
    if systems.iter().any(|system| *system != System::Nacre) {
        ceph::obtain_files().context("there is nothing to compare with")?;
    }
    let workspace = Workspace::load()?;
    let nacre = crate::nacre(nacre.as_deref())?;
    // A directory given by the user may hold data: a subdirectory is created in it.
    let dir = std::path::absolute(dir.unwrap_or_else(|| workspace.target.clone()))
        .context("finding the folder")?;
    let dir = dir.join("versus");
    // After any end of this program, everything below the directory is ended too.
    let guard = Guard::start(&nacre, &dir)?;
    guard::free_ports(base_port, PORTS)?;
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let floor = systems
        .contains(&System::Nacre)
        .then(|| Floor::built(&workspace, &dir))
        .transpose()?;
    let free = free_gib(&dir);
    let needed = extent.space_gib;
    ensure!(
        free.is_none_or(|free| free >= needed),
        "{} has {} GiB left, and {needed} are needed; --dir names another folder",
        dir.display(),
        free.unwrap_or(0)
    );

    let (begun, others_before) = (Instant::now(), machine::others_load()?);
    let (mut figures, mut wrong) = (Figures::default(), Vec::new());
    let mut rounds = 0;
    let mut longest = Duration::ZERO;
    while rounds < extent.rounds {
        if begun.elapsed() + longest > LIMIT {
            println!(
                "\n── no more rounds: the next would end after more than {} minutes ──",
                LIMIT.as_secs() / 60
            );
            break;
        }
        let round = Instant::now();
        for at in 0..systems.len() {
            let system = systems[(at + rounds as usize) % systems.len()];
            println!(
                "\n── round {} of {}: {} ──",
                rounds + 1,
                extent.rounds,
                system.name()
            );
            let turn = Instant::now();
            let place = dir.join(system.name());
            let (figures, wrong) = (&mut figures, &mut wrong);
            let floor = floor.as_ref().filter(|_| system == System::Nacre);
            Turn {
                system,
                nacre: &nacre,
                floor,
                dir: &place,
                base_port,
                extent: &extent,
                figures,
                wrong,
            }
            .take()
            .with_context(|| format!("the turn of {}", system.name()))?;
            // Some programs are still ending, and must not run during the next turn.
            guard::clean(&nacre, &place)?;
            fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
            println!("  took {} s", turn.elapsed().as_secs());
        }
        rounds += 1;
        longest = longest.max(round.elapsed());
    }
    let stamp = machine::stamp();
    let text = |field: &str| stamp[field].as_str().unwrap_or("?").to_owned();
    let head = report::Head {
        date: text("date"),
        machine: text("machine"),
        nacre: text("commit"),
        ceph: ceph::version(),
        tuning: ceph::tuning(),
        rounds,
        seconds: begun.elapsed().as_secs(),
        others: f64::midpoint(others_before, machine::others_load()?),
        wrong,
    };
    drop(guard);
    println!(
        "\n{}\n{rounds} rounds took {} s",
        report::terminal(&figures),
        head.seconds
    );
    if record {
        ensure!(
            rounds >= 3,
            "only {rounds} rounds: that is not recorded; run it when the machine has nothing else to do"
        );
        let path = workspace.root.join("bench/versus.md");
        fs::write(&path, report::markdown(&head, &extent, &figures))
            .context("writing bench/versus.md")?;
        println!("written to bench/versus.md");
    }
    ensure!(
        head.wrong.is_empty(),
        "{} measurements failed:\n{}",
        head.wrong.len(),
        head.wrong.join("\n")
    );
    Ok(())
}

/// Free space according to `df`, in GiB; none if its output cannot be parsed.
fn free_gib(dir: &std::path::Path) -> Option<u64> {
    let said = machine::text_of(
        "df",
        &[
            "--output=avail",
            "--block-size=1G",
            &dir.display().to_string(),
        ],
    );
    said.lines().nth(1)?.trim().parse().ok()
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
    fn options_come_in_any_order() {
        let wish = parse(&[
            "--rounds",
            "2",
            "--quick",
            "--only",
            "tuned",
            "--base-port",
            "18000",
        ])
        .expect("fine");
        assert_eq!(
            (wish.extent.rounds, wish.extent.small),
            (2, rows::QUICK.small)
        );
        assert_eq!(
            (wish.systems, wish.base_port, wish.record),
            (vec![System::Tuned], 18_000, false)
        );
        let wish = parse(&["--record"]).expect("fine");
        assert_eq!(
            (wish.extent, wish.systems, wish.record),
            (rows::FULL, System::ALL.to_vec(), true)
        );
    }

    #[test]
    fn mistakes_and_halves_of_a_record_are_refused_before_anything_runs() {
        for (words, why) in [
            (&["--rounds"][..], "--rounds needs a value"),
            (&["--rounds", "0"], "from 1 to 20"),
            (&["--only", "swift"], "not `swift`"),
            (&["--record", "--quick"], "for the whole"),
            (&["--record", "--only", "ceph"], "for the whole"),
            (&["--record", "--rounds", "2"], "for the whole"),
            (&["--fast"], "no argument of bench versus"),
        ] {
            let error = format!("{:#}", parse(words).expect_err("a mistake"));
            assert!(error.contains(why), "{error}");
        }
    }
}
