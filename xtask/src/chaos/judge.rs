//! Final checks after the faults: everything is healthy, answers in time, returns what was
//! acknowledged, from every member alone, and every store is intact.

use super::files::FRESH;
use super::load::POOLS;
use super::plan::{OSDS, Who};
use super::town::Town;
use crate::cluster::ledger::probe;
use crate::cluster::{is_clean, run_nacre};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// Maximum time until everything is healthy after the last fault.
const WELL_MAX: Duration = Duration::from_secs(180);
const VERIFY_MAX: Duration = Duration::from_mins(5);
/// Maximum time until PGs serve with one member: leases expire, and several intervals are
/// activated.
const ALONE_MAX: Duration = Duration::from_secs(60);
const CHECK_MAX: Duration = Duration::from_mins(10);

fn ledgers() -> [&'static str; 2] {
    ["data", "small"]
}

/// Checks that all PGs answer.
///
/// # Errors
/// The PG that does not.
pub fn serves(town: &Town) -> Result<u64> {
    let mut worst = 0;
    for (pool, ..) in POOLS {
        let found =
            probe(&town.cluster, pool, VERIFY_MAX).with_context(|| format!("groups of {pool}"))?;
        worst = worst.max(found["worst_ms"].as_u64().unwrap_or(u64::MAX));
    }
    Ok(worst)
}

/// Checks that acknowledged data is present; with `groups`, only in those.
fn there(town: &Town, groups: Option<&BTreeMap<String, Vec<String>>>) -> Result<u64> {
    let mut objects = 0;
    for pool in ledgers() {
        let mut words = vec!["bench", "ledger", "verify", "--pool", pool];
        let these;
        if let Some(groups) = groups {
            let Some(some) = groups.get(pool) else {
                continue;
            };
            these = some.join(",");
            words.extend(["--groups", &these]);
        }
        let ledger = town.cluster.dir().join(format!("{pool}.ledger"));
        let found = town.cluster.ask_with(VERIFY_MAX, &words, &ledger)?;
        objects += found["objects"].as_u64().unwrap_or(0);
    }
    Ok(objects)
}

/// PGs of an OSD, as hexadecimal numbers, by pool.
fn groups_of(town: &Town, osd: u32) -> Result<BTreeMap<String, Vec<String>>> {
    let mut all = BTreeMap::new();
    for pool in ledgers() {
        let listed = town.ask(&["pg", "ls", "--pool", pool])?;
        let groups = listed["pgs"].as_array().context("pg ls has no pgs")?.iter();
        let has = |group: &&serde_json::Value| {
            group["acting"]
                .as_array()
                .is_some_and(|acting| acting.iter().any(|id| id.as_u64() == Some(osd.into())))
        };
        let name =
            |group: &serde_json::Value| Some(group["pg"].as_str()?.split_once('.')?.1.to_owned());
        let these: Vec<String> = groups.filter(has).filter_map(name).collect();
        if !these.is_empty() {
            all.insert(pool.to_owned(), these);
        }
    }
    Ok(all)
}

/// Each OSD alone returns everything in its PGs, including listings.
fn alone(town: &mut Town) -> Result<u64> {
    for (pool, ..) in POOLS {
        town.ask(&["pool", "set", pool, "min_size", "1"])?;
    }
    town.ask(&["flag", "set", "noout"])?;
    let mut objects = 0;
    for osd in 0..OSDS {
        town.until(
            &format!("all groups clean before osd.{osd} is alone"),
            WELL_MAX,
            is_clean,
        )?;
        let groups = groups_of(town, osd)?;
        let others: Vec<Who> = (0..OSDS).filter(|id| *id != osd).map(Who::Osd).collect();
        for other in &others {
            town.end(*other)?;
            // No OSD may be stopped while the remaining ones have not agreed on the members.
            town.wait(Duration::from_millis(1_500))?;
        }
        let begun = std::time::Instant::now();
        let mut read = there(town, Some(&groups));
        while read.is_err() && begun.elapsed() < ALONE_MAX {
            // Refused or late answers may still arrive; wrong ones stay wrong.
            if read
                .as_ref()
                .is_err_and(|why| !format!("{why:#}").contains("no answer for"))
            {
                break;
            }
            read = there(town, Some(&groups));
        }
        objects += read.with_context(|| format!("osd.{osd} alone"))?;
        for other in others {
            town.start(other)?;
        }
    }
    town.ask(&["flag", "unset", "noout"])?;
    Ok(objects)
}

/// The file system is consistent, and has everything that was synchronized.
fn files(town: &mut Town) -> Result<()> {
    let Some(mut files) = town.files.take() else {
        return Ok(());
    };
    let compared = files.judge(&town.cluster);
    town.files = Some(files);
    println!(
        "  `fs check` finds nothing; a new mount has all that should be there: {}",
        compared?
    );
    Ok(())
}

/// All checks of a cluster whose faults are over and whose loads have ended.
///
/// # Errors
/// The failed check.
pub fn judge(town: &mut Town) -> Result<()> {
    let took = town.until_well(WELL_MAX).context("after the last fault")?;
    println!("  HEALTH_OK after {:.1} s", took.as_secs_f64());
    println!(
        "  every group of every pool answers: {} ms at most",
        serves(town)?
    );
    println!("  {} objects are as acknowledged", there(town, None)?);
    files(town)?;
    println!(
        "  {} objects are as acknowledged, read from each member alone",
        alone(town)?
    );
    town.until_well(WELL_MAX)
        .context("after each OSD was alone")?;
    files(town).context("after each OSD was alone")?;
    let all = town.all();
    for who in all.iter().rev() {
        town.end(*who)?;
    }
    let (nacre, words) = (town.cluster.nacre(), ["store", "check"]);
    let report = run_nacre(nacre, CHECK_MAX, &words, town.cluster.dir()).context("store check")?;
    ensure!(
        report["sound"] == true,
        "a store is damaged that nobody damaged: {report}"
    );
    println!("  all stores are whole");
    for who in all.into_iter().chain((0..=FRESH).map(Who::Mount)) {
        let log = fs::read_to_string(town.cluster.log(&who.to_string())).unwrap_or_default();
        if let Some(line) = log.lines().find(|line| line.contains("panicked")) {
            bail!("{who} panicked: {line} … {}", town.last_words(who));
        }
    }
    Ok(())
}
