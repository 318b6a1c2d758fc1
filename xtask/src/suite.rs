//! `./x test` and `./x check`: many steps, each measured, all counted; a failure does not stop the
//! others.

use crate::step::{self, Tally, cargo};
use crate::workspace::Workspace;
use crate::{build, ceph, changed, chaos, install, sim, verify};
use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Maximum duration of a successful `./x test` on two cores, including the part on Ceph.
const BUDGET: Duration = Duration::from_mins(40);

/// Crates whose unit tests take seconds.
const FAST: &[&str] = &[
    "nacre-types",
    "nacre-crush",
    "nacre-wire",
    "nacre-history",
    "nacre-client",
    "nacre-floor",
    "nacre-command",
    "xtask",
];

/// Executed steps, and skipped ones.
#[derive(Default)]
struct Suite {
    tally: Tally,
    lines: Vec<String>,
    skipped: Vec<String>,
}

impl Suite {
    /// Runs a step that passes or fails as a whole.
    fn step(&mut self, name: &str, run: impl FnOnce() -> Result<()>) {
        self.counted(name, || {
            run().map(|()| {
                (
                    true,
                    Tally {
                        passed: 1,
                        ..Tally::default()
                    },
                )
            })
        });
    }

    /// Runs a step that counts its tests.
    fn counted(&mut self, name: &str, run: impl FnOnce() -> Result<(bool, Tally)>) {
        println!("\n── {name} ──");
        let begun = Instant::now();
        let mut why = String::new();
        let (good, tally) = run().unwrap_or_else(|error| {
            eprintln!("x: {name}: {error:#}");
            why = format!(": {error:#}");
            (false, Tally::default())
        });
        self.tally.passed += tally.passed;
        // A step that fails without naming a test (because it did not compile, for example) counts
        // as one failure.
        self.tally.failed += if good {
            tally.failed
        } else {
            tally.failed.max(1)
        };
        let verdict = if good && tally.failed == 0 {
            "ok"
        } else {
            "FAILED"
        };
        self.lines.push(format!(
            "{verdict:<7} {name} ({:.1} s){why}",
            begun.elapsed().as_secs_f64()
        ));
        // Often only the end of a long log is kept.
        self.lines.extend(
            tally
                .names
                .iter()
                .map(|test| format!("        {test} failed")),
        );
    }

    /// Reports that a step is skipped, and why.
    fn skip(&mut self, name: &str, why: &str) {
        println!("\n── SKIPPED: {name}: {why} ──");
        self.skipped.push(format!("SKIPPED {name}: {why}"));
    }

    fn end(self, begun: Instant) -> Result<()> {
        println!();
        for line in self.lines.iter().chain(&self.skipped) {
            println!("{line}");
        }
        let Tally { passed, failed, .. } = self.tally;
        println!("took {:.0} s", begun.elapsed().as_secs_f64());
        if begun.elapsed() > BUDGET {
            println!(
                "WARNING: that is more than the {} minutes a clean run may take",
                BUDGET.as_secs() / 60
            );
        }
        println!("{passed} passed, {failed} failed");
        if failed > 0 {
            bail!("something failed; the lines above say what");
        }
        Ok(())
    }
}

/// Runs everything; with `--ceph` only the tests on a Ceph cluster.
///
/// # Errors
/// When anything failed.
pub fn test(arguments: &[String]) -> Result<()> {
    let only_ceph = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--ceph"] => true,
        _ => bail!(
            "`{}` is no argument of test; there is --ceph",
            arguments.join(" ")
        ),
    };
    let begun = Instant::now();
    install::everything()?;
    let workspace = Workspace::load()?;
    let mut suite = Suite::default();
    if only_ceph {
        on_ceph(&mut suite, &workspace);
        return suite.end(begun);
    }
    for (name, check) in verify::CHECKS {
        suite.step(name, || check(&workspace));
    }
    suite.counted("tests", || {
        cargo(["test", "--workspace", "--locked", "--no-fail-fast"]).count()
    });
    if workspace.has("nacre-cli") {
        suite.step("release build", build);
    } else {
        suite.skip("release build", "there is no crate nacre-cli");
    }
    on_ceph(&mut suite, &workspace);
    match sim::available(&workspace) {
        Ok(()) => suite.step("sim --seeds 200", || {
            sim::run(&["--seeds".to_owned(), "200".to_owned()])
        }),
        Err(why) => suite.skip("sim --seeds 200", &why.to_string()),
    }
    match sim::mutants_available(&workspace) {
        Ok(()) => suite.step("mutants", sim::mutants),
        Err(why) => suite.skip("mutants", &why.to_string()),
    }
    // Once with a network for each daemon, so over TCP, and once over local sockets.
    for words in [
        "--seed 1 --seconds 120",
        "--seed 2 --seconds 60 --only kill,stop,restart,disk,files",
    ] {
        let name = format!("chaos {words}");
        match tour_available(&workspace) {
            Ok(()) => suite.step(&name, || chaos_with(&workspace, words)),
            Err(why) => suite.skip(&name, &why.to_string()),
        }
    }
    match tour_available(&workspace) {
        Ok(()) => suite.step("tour", || tour(&workspace, true, None)),
        Err(why) => suite.skip("tour", &why.to_string()),
    }
    suite.end(begun)
}

const ON_CEPH: &str = "tests on a Ceph cluster";
const COMMANDS_ON_CEPH: &str = "the command line on Ceph";

/// The tests that need a Ceph cluster, on a separate one. They are skipped if there is none; but a
/// machine that checks contributions (it sets `CI`) must have one, because skipped tests there
/// would go unnoticed.
fn on_ceph(suite: &mut Suite, workspace: &Workspace) {
    if let Err(why) = ceph::obtain() {
        let must = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
        match must {
            true => suite.step(ON_CEPH, || {
                Err(why.context("CI is set, so this may not be skipped"))
            }),
            false => suite.skip(ON_CEPH, &format!("{why:#}")),
        }
        return;
    }
    let mut cluster = None;
    suite.counted(ON_CEPH, || {
        println!("a cluster of Ceph {} comes up", ceph::version());
        let made = ceph::Throwaway::up(
            &workspace.binary(),
            &workspace.target.join("test-ceph"),
            &[],
        )?;
        let conf = &cluster.insert(made).conf;
        let tests = cargo([
            "test",
            "--locked",
            "--package",
            "nacre-rados",
            "--test",
            "main",
            "--",
            "--nocapture",
        ]);
        tests.env("NACRE_TEST_CEPH", conf).count()
    });
    if let Some(cluster) = &cluster {
        // The tests that would be skipped without one.
        let main = [
            "test",
            "--locked",
            "--package",
            "nacre-cli",
            "--test",
            "main",
        ];
        let those = ["--", "--nocapture", "ceph_", "engines::"];
        let tests = cargo(main.into_iter().chain(those)).env("NACRE_TEST_CEPH", &cluster.conf);
        suite.counted(COMMANDS_ON_CEPH, || tests.count());
    }
}

/// Runs the checks, and the tests of crates that take seconds or have changed, before a commit.
///
/// # Errors
/// When anything failed.
pub fn check() -> Result<()> {
    let begun = Instant::now();
    let workspace = Workspace::load()?;
    let mut suite = Suite::default();
    for (name, check) in verify::CHECKS {
        suite.step(name, || check(&workspace));
    }
    let mut packages: BTreeSet<&str> = FAST.iter().copied().collect();
    packages.extend(
        changed::crates(&workspace)?
            .iter()
            .map(|package| &package.name[..]),
    );
    packages.retain(|name| workspace.has(name));
    let names = packages
        .iter()
        .map(|name| name.trim_start_matches("nacre-"));
    let name = format!("tests of {}", names.collect::<Vec<_>>().join(" "));
    let tests = cargo(["test", "--quiet", "--locked", "--no-fail-fast"])
        .args(packages.iter().flat_map(|name| ["--package", name]));
    suite.counted(&name, || tests.count());
    suite.end(begun)?;
    changed::passed(&workspace)
}

/// Checks that the binary can run the tour.
fn tour_available(workspace: &Workspace) -> Result<()> {
    if !workspace.has("nacre-node") {
        bail!("there is no crate nacre-node, which runs clusters, yet");
    }
    if !workspace.binary().exists() {
        bail!("the release binary was not built");
    }
    Ok(())
}

fn chaos_with(workspace: &Workspace, words: &str) -> Result<()> {
    let binary = workspace.binary().to_string_lossy().into_owned();
    let words = words.split(' ').chain(["--nacre", &binary]);
    chaos::run(&words.map(str::to_owned).collect::<Vec<_>>())
}

/// Imports a tree into a fresh cluster, kills a daemon, reads everything back, unpacks an archive
/// in a mount (`nacre tour`).
///
/// # Errors
/// When the tour fails.
pub fn tour(workspace: &Workspace, once: bool, from: Option<&str>) -> Result<()> {
    tour_available(workspace)?;
    // A separate directory: the tour must not touch a user's data.
    let folder = workspace.target.join("tour");
    let mut tour = step::program(workspace.binary())
        .args(["tour", "--fresh", "--dir"])
        .args([&folder]);
    if !once {
        tour = tour.args(["--stay"]);
    }
    if let Some(from) = from {
        tour = tour.args(["--from", from]);
    }
    tour.run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_fails_before_its_tests_counts_as_a_failure() {
        let mut suite = Suite::default();
        suite.step("good", || Ok(()));
        suite.counted("broken build", || Ok((false, Tally::default())));
        suite.counted("bad tests", || {
            let names = vec!["a::b".to_owned(), "a::c".to_owned()];
            Ok((
                false,
                Tally {
                    passed: 5,
                    failed: 2,
                    names,
                },
            ))
        });
        suite.step("error", || bail!("no"));
        assert_eq!((suite.tally.passed, suite.tally.failed), (6, 4));
        // The last lines of the output must say what failed, and why.
        let said = suite.lines.join("\n");
        assert!(
            said.contains("a::c failed") && said.trim_end().ends_with(": no"),
            "{said}"
        );
        assert!(suite.end(Instant::now()).is_err());
    }
}
