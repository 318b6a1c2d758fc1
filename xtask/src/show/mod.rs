//! `./x show`: Nacre's claims, tested on clusters of processes, with the measured figures.
//!
//! ```text
//!  ./x show NAME… ─▶ for each: site (folder, ports, guard) ─▶ scenario ─▶ figures: what, found, limit, met or MISSED
//!                                 │                            │              facts: proved, or the scenario is an error
//!                                 └── cluster/guard.rs: a process that cleans up however this one ends
//! ```
//! A missed limit is a line, since machines differ. Wrong data, an impossible history, a refusal or
//! a hang is an error: exit code 1.
//!
//! * [`site`]: the environment of a scenario; [`figures`]: its results; [`trees`]: trees to import;
//!   [`hogs`]: competing processes; [`crate::cluster`]: daemons, clients, the cleanup;
//! * [`mounted`]: file systems, served and mounted;
//! * the others: a scenario each.

pub mod costs;
mod degraded;
mod entries;
mod faults;
mod figures;
mod files;
mod findings;
mod full;
mod growth;
mod hogs;
mod hostile;
mod hung;
mod metadata;
mod million;
mod mounted;
pub mod mounts;
mod moves;
mod programs;
mod register;
mod rolling;
mod saturate;
mod site;
mod tree;
mod trees;

use crate::cluster::guard;
use crate::machine;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use figures::Figures;
use site::Site;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

/// A scenario.
struct Scenario {
    name: &'static str,
    about: &'static str,
    run: fn(&mut Site) -> Result<()>,
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "faults",
        about: "an OSD killed, two stopped, the leader killed under load: how long clients wait, nothing lost",
        run: faults::run,
    },
    Scenario {
        name: "register",
        about: "8 clients on shared registers while OSDs die and hang: the history is linearizable",
        run: register::run,
    },
    Scenario {
        name: "metadata",
        about: "8 clients and 4 watchers of metadata while leaders die and hang: linearizable, nothing missed",
        run: metadata::run,
    },
    Scenario {
        name: "degraded",
        about: "50,000 objects written while an OSD is dead: it comes back by its log, under load",
        run: degraded::run,
    },
    Scenario {
        name: "saturate",
        about: "all processors and the disk kept busy by others (--seconds, 600 without): no OSD is called down",
        run: saturate::run,
    },
    Scenario {
        name: "million",
        about: "1,000,000 objects on one OSD: it starts again in seconds, and needs no memory for them",
        run: million::run,
    },
    Scenario {
        name: "moves",
        about: "embedded and processes, 1 and 3 monitors, split groups, OSDs out, in and added: data follows",
        run: moves::run,
    },
    Scenario {
        name: "programs",
        about: "a class installed, upgraded and rolled back under load: no restart, no lost cache, no failed call",
        run: programs::run,
    },
    Scenario {
        name: "hostile",
        about: "every hostile script of the zoo against a cluster that serves others: each stopped, nobody disturbed",
        run: hostile::run,
    },
    Scenario {
        name: "hung",
        about: "a flush of a minute in one of three OSDs: clients wait for a moment, health names the disk",
        run: hung::run,
    },
    Scenario {
        name: "full",
        about: "stores, a fragmented one and a host filled to the last byte under load: refused at once, deleting works",
        run: full::run,
    },
    Scenario {
        name: "growth",
        about: "213,000 clients, a group of 1,000,000 objects with snapshots removed: nothing adds up (half an hour)",
        run: growth::run,
    },
    Scenario {
        name: "ten-million",
        about: "as `million`, with 10,000,000 objects (half an hour, 50 GB of disk)",
        run: million::run_ten,
    },
    Scenario {
        name: "rolling",
        about: "fresh clusters under load, members restarted in any order (--rounds, 500 without): every group is written within 5 s",
        run: rolling::run,
    },
    Scenario {
        name: "findings",
        about: "what once broke Nacre, done again on processes, each on a cluster of its own (a quarter of an hour)",
        run: findings::run,
    },
    Scenario {
        name: "files",
        about: "suites of others on one mount: pjdfstest, fsx, fio, stress-ng, git, rsync, cargo, databases (root, /dev/fuse)",
        run: files::run,
    },
    Scenario {
        name: "files-on-ceph",
        about: "as `files`, with a Ceph cluster as its engine (root, /dev/fuse, Ceph)",
        run: files::run_on_ceph,
    },
    Scenario {
        name: "mounts",
        about: "two mounts, each answer compared with a model, while servers, an OSD and a third mount die (root, /dev/fuse)",
        run: mounts::run,
    },
    Scenario {
        name: "ranks",
        about: "files that move between the parts of two servers on two mounts, while those die and stand still (root, /dev/fuse)",
        run: mounts::ranks::run,
    },
    Scenario {
        name: "mounts-on-ceph",
        about: "as `mounts`, with a Ceph cluster as their engine (root, /dev/fuse, Ceph)",
        run: mounts::run_on_ceph,
    },
    Scenario {
        name: "entries",
        about: "1,000,000 entries in one directory: made, listed, looked up, removed, each call as cheap as of 100,000",
        run: entries::run,
    },
    Scenario {
        name: "ten-million-files",
        about: "10,000,000 files: memory and takeover as with few (half an hour, 20 GB of disk)",
        run: entries::run_ten,
    },
    Scenario {
        name: "costs",
        about: "CPU of a file system's calls, beside CephFS with ceph-fuse in the same run (root, /dev/fuse; --only nacre)",
        run: costs::run,
    },
    Scenario {
        name: "tree",
        about: "10,000 files and 500 MB through the tour: every hash equal, and how much memory is needed",
        run: tree::run,
    },
];

/// The arguments.
#[derive(Debug, PartialEq)]
struct Wish {
    names: Vec<String>,
    dir: Option<PathBuf>,
    base_port: u16,
    seconds: Option<u64>,
    rounds: Option<u64>,
    nacre: Option<PathBuf>,
    only: Vec<String>,
    record: bool,
}

impl Wish {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut wish = Self {
            names: Vec::new(),
            dir: None,
            base_port: 17_500,
            seconds: None,
            rounds: None,
            nacre: None,
            only: Vec::new(),
            record: false,
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut next = || {
                rest.next()
                    .with_context(|| format!("{argument} needs a value"))
            };
            match argument.as_str() {
                "--dir" => wish.dir = Some(PathBuf::from(next()?)),
                "--nacre" => wish.nacre = Some(PathBuf::from(next()?)),
                "--base-port" => {
                    wish.base_port = next()?.parse().context("--base-port takes a port number")?
                }
                "--seconds" => {
                    let seconds = next()?.parse().context("--seconds takes a whole number")?;
                    ensure!(
                        (10..=86_400).contains(&seconds),
                        "--seconds must be from 10 to 86,400"
                    );
                    wish.seconds = Some(seconds);
                }
                "--rounds" => {
                    wish.rounds = Some(next()?.parse().context("--rounds takes a whole number")?)
                }
                "--only" => wish.only = next()?.split(',').map(str::to_owned).collect(),
                "--record" => wish.record = true,
                "all" => wish
                    .names
                    .extend(SCENARIOS.iter().map(|scenario| scenario.name.to_owned())),
                name if SCENARIOS.iter().any(|scenario| scenario.name == name) => {
                    wish.names.push(name.to_owned())
                }
                other => bail!("there is no scenario `{other}`; ./x show lists them"),
            }
        }
        ensure!(
            wish.base_port <= 65_000,
            "--base-port must be at most 65,000: daemons take the following ones"
        );
        Ok(wish)
    }
}

/// Runs the requested scenarios.
///
/// # Errors
/// When a scenario fails. A missed limit is not an error.
pub fn run(arguments: &[String]) -> Result<()> {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        // Child processes of this program.
        ["--guard", nacre, folder] => return guard::main(nacre.as_ref(), folder.as_ref()),
        ["--hog", ref what @ ..] => return hogs::main(what),
        _ => {}
    }
    let wish = Wish::parse(arguments)?;
    if wish.names.is_empty() {
        println!("./x show NAME…, or `all`:\n");
        for Scenario { name, about, .. } in SCENARIOS {
            println!("  {name:<10} {about}");
        }
        return Ok(());
    }
    let workspace = Workspace::load()?;
    let nacre = crate::nacre(wish.nacre.as_deref())?;
    let above = match &wish.dir {
        Some(dir) => std::path::absolute(dir).context("finding --dir")?,
        None => workspace.target.clone(),
    };
    let (mut all, mut wrong) = (Figures::default(), Vec::new());
    for scenario in SCENARIOS
        .iter()
        .filter(|scenario| wish.names.iter().any(|name| name == scenario.name))
    {
        println!("\n── {}: {} ──", scenario.name, scenario.about);
        let begun = Instant::now();
        let mut site = Site::new(scenario.name, &nacre, &above, wish.base_port, wish.seconds)?;
        (site.rounds, site.only) = (wish.rounds, wish.only.clone());
        let result = (scenario.run)(&mut site);
        if let Err(why) = &result {
            eprintln!("  ERROR {why:#}");
            site.keep_logs();
            wrong.push(scenario.name);
        }
        let figures = site.close();
        if wish.record {
            let mut line = machine::stamp();
            line["scenario"] = scenario.name.into();
            line["seconds"] = begun.elapsed().as_secs().into();
            figures.record(&mut line);
            line["error"] = result.err().map(|why| format!("{why:#}")).into();
            let path = workspace.root.join("bench/shown.ndjson");
            let mut file = fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(path)
                .context("opening the record")?;
            writeln!(file, "{line}").context("writing to the record")?;
        }
        println!("  took {} s", begun.elapsed().as_secs());
        all.extend(figures);
    }
    println!("\n{}, {} wrong", all.summary(), wrong.len());
    ensure!(
        wrong.is_empty(),
        "{}: not as claimed; the lines above say what",
        wrong.join(", ")
    );
    Ok(())
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
    fn names_and_options_come_in_any_order() {
        let wish = parse(&[
            "--seconds",
            "60",
            "tree",
            "--base-port",
            "18000",
            "faults",
            "--record",
        ])
        .expect("fine");
        assert_eq!(wish.names, ["tree", "faults"]);
        assert_eq!(
            (wish.seconds, wish.base_port, wish.record),
            (Some(60), 18_000, true)
        );
        assert_eq!(parse(&["all"]).expect("fine").names.len(), SCENARIOS.len());
        assert!(parse(&[]).expect("the list").names.is_empty());
    }

    #[test]
    fn mistakes_are_said_before_anything_runs() {
        for (words, why) in [
            (&["fault"][..], "there is no scenario `fault`"),
            (&["--seconds"], "--seconds needs a value"),
            (&["all", "--seconds", "1"], "from 10"),
            (&["all", "--base-port", "65530"], "at most 65,000"),
        ] {
            let error = format!("{:#}", parse(words).expect_err("a mistake"));
            assert!(error.contains(why), "{error}");
        }
    }
}
