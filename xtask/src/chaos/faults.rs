//! Injecting the faults of a turn, and undoing them.

use super::disks::{Small, flip};
use super::files::Files;
use super::load::LOAD_END_MAX;
use super::plan::{Fault, PoolEnd, Region, Turn, Who};
use super::town::Town;
use crate::cluster::is_clean;
use crate::cluster::ledger::Ledger;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// Size of a small disk: less than the store on it may grow to.
const SMALL: &str = "220M";
/// Maximum time until everything is healthy again.
const WELL_MAX: Duration = Duration::from_secs(150);
/// The client of a temporary pool.
const PASSING: &str = "--clients 2 --pause-ms 10 --seconds 3600";
/// Maximum number of PGs of a pool: more would test nothing new.
const GROUPS_MAX: u64 = 32;

/// See the module head.
pub struct Faults {
    /// Lines of the devices' faults, by OSD.
    lines: BTreeMap<Who, String>,
    smalls: Vec<Small>,
    snapshots: Vec<(&'static str, String)>,
    split: Vec<(&'static str, u64)>,
    passing: Vec<(PoolEnd, Ledger)>,
    /// Number of stores that were set aside as damaged.
    pub rotten: u32,
}

impl Faults {
    /// Before anything is started: creates separate disks, where possible.
    pub fn new(town: &Town) -> Self {
        let mut smalls = Vec::new();
        for (osd, image) in [(2, None), (3, Some(town.cluster.dir().join("osd.3.image")))] {
            match Small::under(&town.folder(Who::Osd(osd)), SMALL, image.as_deref()) {
                Ok(small) => smalls.push(small),
                Err(why) => println!("SKIPPED: osd.{osd} has no small disk of its own: {why:#}"),
            }
        }
        Self {
            lines: BTreeMap::new(),
            smalls,
            snapshots: Vec::new(),
            split: vec![("data", 8), ("small", 4)],
            passing: Vec::new(),
            rotten: 0,
        }
    }

    fn write_lines(&self, town: &Town) -> Result<()> {
        // Without the file, a daemon that hangs continues.
        let _ = fs::remove_file(town.cluster.faults_file());
        if self.lines.is_empty() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(30));
        let text: String = self
            .lines
            .values()
            .map(|line| format!("{line}\n"))
            .collect();
        let new = town.cluster.faults_file().with_extension("new");
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, town.cluster.faults_file()))
            .context("writing devices' faults")
    }

    /// Begins the faults of a turn.
    ///
    /// # Errors
    /// A failure of Nacre; a fault that cannot be injected now is reported only.
    pub fn begin(&mut self, town: &mut Town, turn: &Turn) -> Result<()> {
        for fault in &turn.faults {
            match fault {
                Fault::Kill(all) => {
                    for who in all {
                        if town.has(*who) {
                            town.kill(*who)?;
                        }
                    }
                }
                Fault::Stop(who) => {
                    if town.has(*who) {
                        town.signal(*who, "STOP")?;
                    }
                }
                Fault::Roll(all, gap) => {
                    for (at, who) in all.iter().enumerate() {
                        // Alternately terminated and killed.
                        if at % 2 == 0 {
                            town.end(*who)?;
                        } else {
                            town.kill(*who)?;
                        }
                        town.start(*who)?;
                        town.wait(Duration::from_millis(*gap))?;
                    }
                }
                Fault::RestartAll => {
                    let all = town.all();
                    for who in all.iter().rev() {
                        town.end(*who)?;
                    }
                    for who in all {
                        town.start(who)?;
                    }
                }
                Fault::Cut(cut) => match town.net.why_not() {
                    Some(why) => println!("      SKIPPED: no cut: {why}"),
                    None => {
                        if fault.is_of_a_mount() {
                            town.files.iter_mut().try_for_each(Files::tell_harm)?;
                        }
                        town.net.cut(cut)?;
                    }
                },
                Fault::Disk(who, call, what) => {
                    self.lines.insert(*who, format!("{who}/ {call} {what}"));
                    town.may_end.insert(*who);
                    self.write_lines(town)?;
                }
                Fault::Full(osd) => {
                    match self
                        .smalls
                        .iter()
                        .find(|small| small.has(&town.folder(Who::Osd(*osd))))
                    {
                        Some(small) => {
                            town.files
                                .iter_mut()
                                .try_for_each(|files| files.tell_full(true))?;
                            let bytes = small.fill()?;
                            println!("      {} KiB taken", bytes >> 10);
                        }
                        None => println!("      SKIPPED: osd.{osd} has no disk of its own"),
                    }
                }
                Fault::Rot(osd, region, seed) => {
                    let who = Who::Osd(*osd);
                    town.end(who)?;
                    let flipped = flip(&town.folder(who).join("store"), *region, *seed)?;
                    println!("      flipped a bit at {flipped:?}");
                    town.may_end.insert(who);
                    town.start(who)?;
                }
                Fault::Out(osd) => said(town.ask(&["osd", "out", &osd.to_string()])),
                Fault::Down(osd) => said(town.ask(&["osd", "down", &osd.to_string()])),
                Fault::Replace(mon) => {
                    let who = Who::Mon(*mon);
                    // Its remaining process ends by itself, or is terminated.
                    town.may_end.insert(who);
                    town.ask(&["mon", "rm", &mon.to_string()])?;
                    town.wait(Duration::from_millis(500))?;
                    town.end(who)?;
                    let aside = town
                        .cluster
                        .dir()
                        .join(format!("{who}.removed-{}", turn.number));
                    fs::rename(town.folder(who), aside).context("putting a store aside")?;
                }
                Fault::Snapshot(pool) => {
                    let name = format!("snap-{}", turn.number);
                    match town.ask(&["pool", "snap", "create", pool, &name]) {
                        Ok(_) => self.snapshots.push((pool, name)),
                        why => said(why),
                    }
                }
                Fault::Split(pool) => {
                    let (_, groups) = self
                        .split
                        .iter_mut()
                        .find(|(name, _)| name == pool)
                        .context("a pool of ours")?;
                    // Odd numbers too.
                    let more = *groups + 1 + *groups / 3;
                    if more <= GROUPS_MAX {
                        match town.ask(&["pool", "set", pool, "pg_num", &more.to_string()]) {
                            Ok(_) => *groups = more,
                            why => said(why),
                        }
                    }
                }
                Fault::Pool(end) => {
                    let name = format!("passing-{}-{}", turn.number, self.passing.len());
                    let draw = turn.number as usize + self.passing.len();
                    let (size, groups) = (["2", "3"][draw % 2], ["1", "4", "7"][draw % 3]);
                    match town.ask(&["pool", "create", &name, "--size", size, "--pg-num", groups]) {
                        Ok(_) => self
                            .passing
                            .push((*end, Ledger::begin(&town.cluster, &name, PASSING)?)),
                        why => said(why),
                    }
                }
            }
        }
        Ok(())
    }

    /// Undoes the faults.
    ///
    /// # Errors
    /// A failure of Nacre.
    pub fn end(&mut self, town: &mut Town, turn: &Turn) -> Result<()> {
        // Operator commands need a majority: processes, network and disks are restored first.
        // Mounting again needs a server.
        let is_later = |fault: &&Fault| {
            matches!(fault.kind(), "admin" | "pool")
                || matches!(fault, Fault::Kill(_)) && fault.is_of_a_mount()
        };
        let (later, first): (Vec<&Fault>, Vec<&Fault>) = turn.faults.iter().partition(is_later);
        for fault in first.into_iter().chain(later) {
            match fault {
                Fault::Kill(all) => all.iter().try_for_each(|who| town.start(*who))?,
                Fault::Stop(who) => town.signal(*who, "CONT")?,
                Fault::Cut(cut) => {
                    town.net.heal(cut);
                    if fault.is_of_a_mount() {
                        town.files.iter_mut().try_for_each(Files::tell_mended)?;
                    }
                }
                Fault::Disk(who, ..) => {
                    self.lines.remove(who);
                    self.write_lines(town)?;
                    // The fault may have occurred a moment ago.
                    town.wait(Duration::from_millis(1_500))?;
                    if town.ended.remove(who) {
                        town.start(*who)?;
                    }
                    town.may_end.remove(who);
                    town.healed.insert(*who, Instant::now());
                }
                Fault::Full(osd) => {
                    let folder = town.folder(Who::Osd(*osd));
                    self.smalls
                        .iter()
                        .filter(|small| small.has(&folder))
                        .for_each(Small::free);
                    town.files
                        .iter_mut()
                        .try_for_each(|files| files.tell_full(false))?;
                }
                Fault::Rot(osd, region, _) => self.replace(town, *osd, *region)?,
                Fault::Out(osd) => {
                    insist(town, &["osd", "in", &osd.to_string()])?;
                }
                Fault::Replace(mon) => {
                    let who = Who::Mon(*mon);
                    town.ended.remove(&who);
                    let address = town.net.address(who);
                    town.ask_at(who, &["mon", "add", &mon.to_string(), &address])?;
                    town.may_end.remove(&who);
                    town.start(who)?;
                }
                Fault::Snapshot(pool) => {
                    for (_, name) in self.snapshots.extract_if(.., |(of, _)| of == pool) {
                        insist(town, &["pool", "snap", "rm", pool, &name])?;
                    }
                }
                // After everything else: where data is read back, everything must be healthy.
                Fault::Roll(..)
                | Fault::RestartAll
                | Fault::Down(_)
                | Fault::Split(_)
                | Fault::Pool(_) => {}
            }
        }
        let mut passing = std::mem::take(&mut self.passing);
        passing
            .iter_mut()
            .try_for_each(|(end, pool)| pass(town, *end, pool))
    }

    /// Replaces an OSD with a damaged store as an operator would do it.
    fn replace(&mut self, town: &mut Town, osd: u32, region: Region) -> Result<()> {
        let (who, id) = (Who::Osd(osd), osd.to_string());
        town.check()?;
        if !town.runs(who) {
            println!(
                "      {who} does not run any more; {region:?}: {}",
                town.last_words(who)
            );
        } else if region == Region::Superblock {
            // The other replica serves.
            town.may_end.remove(&who);
            return Ok(());
        }
        insist(town, &["osd", "out", &id])?;
        town.wait(Duration::from_secs(2))?;
        town.until(
            &format!("everything clean without {who}"),
            WELL_MAX,
            is_clean,
        )?;
        town.end(who)?;
        town.ended.remove(&who);
        // It may not be down yet, if it hung or was killed.
        said(town.ask(&["osd", "down", &id]));
        town.wait(Duration::from_secs(1))?;
        town.ask(&["osd", "rm", &id])
            .context("nothing needs it any more")?;
        let folder = town.folder(who);
        let aside = town
            .cluster
            .dir()
            .join(format!("{who}.rotten-{}", self.rotten));
        if let Some(at) = self.smalls.iter().position(|small| small.has(&folder)) {
            // Its small disk is removed with it.
            drop(self.smalls.swap_remove(at));
        }
        fs::rename(&folder, &aside).context("putting a store aside")?;
        self.rotten += 1;
        let address = town.net.address(who);
        town.ask_at(
            who,
            &[
                "osd",
                "add",
                "--id",
                &id,
                "--address",
                &address,
                "--size",
                "512MiB",
            ],
        )?;
        town.may_end.remove(&who);
        town.start(who)?;
        Ok(())
    }
}

/// Removes a pool.
fn pass(town: &mut Town, end: PoolEnd, passing: &mut Ledger) -> Result<()> {
    let name = passing.pool().to_owned();
    if end == PoolEnd::Read {
        let good = passing.stop(LOAD_END_MAX)?;
        let said = passing.clients.said();
        // Once it has found the pool, it writes, and regularly reports waiting operations.
        if !passing.waiting().exists() && said.contains("monitor") {
            // There was no majority, which an operator would see too: it has written nothing.
            println!("      who was to write to {name}: {said}");
        } else {
            ensure!(good, "who wrote to {name} failed: {said}");
            town.until_well(WELL_MAX)
                .with_context(|| format!("before {name} is read"))?;
            passing
                .verify(&town.cluster)
                .with_context(|| format!("reading {name} back"))?;
        }
    }
    let removed = insist(town, &["pool", "rm", &name, "--yes-i-really-mean-it"]);
    // The first attempt may have succeeded, and its answer been lost.
    if removed.is_err()
        && town
            .ask(&["pool", "ls"])?
            .to_string()
            .contains(&format!("\"{name}\""))
    {
        return removed;
    }
    // A client that writes to a removed pool gets an error.
    passing.stop(LOAD_END_MAX).map(drop)
}

/// Repeats a command, like an operator, while there is no majority.
fn insist(town: &mut Town, words: &[&str]) -> Result<()> {
    let mut last = None;
    for _ in 0..20 {
        match town.ask(words) {
            Ok(_) => return Ok(()),
            Err(why) => last = Some(why),
        }
        town.wait(Duration::from_millis(500))?;
    }
    bail!(
        "{} was refused 20 times: {:#}",
        words.join(" "),
        last.expect("it was tried")
    )
}

/// A command that fails during a fault is not a finding; its message is shown.
fn said(result: Result<Value>) {
    if let Err(why) = result {
        println!("      {why:#}");
    }
}

/// Runs a turn.
///
/// # Errors
/// A failure of Nacre.
pub fn turn(town: &mut Town, faults: &mut Faults, turn: &Turn) -> Result<()> {
    town.wait(Duration::from_millis(turn.pause_ms))?;
    if turn.calm {
        let took = town
            .until_well(WELL_MAX)
            .context("before a turn that needs calm")?;
        println!("      all was well after {:.1} s", took.as_secs_f64());
    }
    faults.begin(town, turn)?;
    town.wait(Duration::from_millis(turn.lasts_ms))?;
    faults.end(town, turn)?;
    Ok(())
}
