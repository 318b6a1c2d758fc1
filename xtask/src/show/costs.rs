//! What a file system's calls cost: microseconds of all processes' CPU, beside CephFS with ceph-fuse in the same run.
//!
//! ```text
//!  Nacre: mon, 3 OSDs, server, standby ─▶ mount ─┐
//!  Ceph: mon, mgr, 3 OSDs, MDS ─▶ ceph-fuse ─────┴▶ one program, the same calls ─▶ rows ─▶ ratios against the goals
//! ```
//! What large reads and writes attain is beside the same in objects, without a file system; what a listing asks of
//! the server is counted there. CPU is that of daemons, mount and this program, from `/proc`, counted until the system is at rest.
//! Without Ceph (`--only nacre`, or where it is not to be had) there are rows and no ratios.

use super::mounted::{self, Mount};
use super::site::Site;
use super::{guard, trees};
use crate::cluster::Cluster;
use crate::{bounded, ceph, machine};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Files that are made, looked at and removed one by one; entries of a large directory; files of an archive.
const FILES: usize = 3_000;
const ENTRIES: usize = 10_000;
const ARCHIVED: usize = 3_000;
const SYNCED: usize = 500;
const BLOCK: usize = 4096;
const LARGE: usize = 256;
const MIB: usize = 1 << 20;
/// What is done a little later is done for what was measured.
const SETTLED: Duration = Duration::from_millis(1500);
const STEP_MAX: Duration = Duration::from_mins(5);
/// Large files are written and read at 80 % of the rate of objects of 4 MiB, at least: those at most so much faster.
const OBJECTS_FASTER: f64 = 125.0;
/// Objects of 4 MiB in flight: as much as a mount has of one file.
const OBJECTS_DEPTH: &str = "4";
/// `ls -l` of a directory asks the server so often, at most, however many entries it has: pages, and the way there.
const REQUESTS_MAX: f64 = 40.0;

const WRITES: &str = "1 MiB writes in order, and fsync";
const READS: &str = "1 MiB reads in order, cold";

/// Rows of which something is asked beside Ceph: so many times fewer.
const GOALS: &[(&str, f64)] = &[
    ("create", 10.0),
    ("cold stat", 10.0),
    ("4 KiB write + fsync", 15.0),
    ("unlink", 10.0),
    ("ls -l of 10,000 entries", 4.0),
    ("untar of 3,000 files", 6.0),
    ("untar of 3,000 files + sync", 6.0),
];

/// What is compared of each row: CPU of an operation in µs, seconds, or MB/s.
type Rows = BTreeMap<&'static str, f64>;
/// Seconds of CPU of each part of a system.
type Cpu = BTreeMap<&'static str, f64>;

/// Shows it.
///
/// # Errors
/// When a call fails or a system does not come up. A goal that is missed is a line.
pub fn run(site: &mut Site) -> Result<()> {
    if !mounted::is_possible(site, "what calls cost") {
        return Ok(());
    }
    let archive = archive(site)?;
    let ours = nacre(site, &archive)?;
    if site.only == ["nacre"] {
        site.figures.skipped("beside Ceph", "only Nacre was asked for");
        return Ok(());
    }
    if let Err(why) = ceph::obtain_files() {
        site.figures.skipped("beside Ceph", &format!("{why:#}"));
        return Ok(());
    }
    let theirs = cephfs(site, &archive)?;
    for (row, goal) in GOALS {
        let ratio = ours[row] / theirs[row];
        let what = format!("{row}: of what CephFS takes, Nacre takes (goal: {goal} times less)");
        site.figures.at_most(100.0 / goal, &what, ratio * 100.0, "%");
    }
    Ok(())
}

fn archive(site: &Site) -> Result<PathBuf> {
    let (tree, archive) = (site.dir.join("tree"), site.dir.join("tree.tar"));
    trees::make(&tree, ARCHIVED, 0)?;
    let mut tar = Command::new("tar");
    bounded::printed(tar.arg("cf").arg(&archive).arg("-C").arg(&tree).arg("."), STEP_MAX)?;
    Ok(archive)
}

fn nacre(site: &mut Site, archive: &Path) -> Result<Rows> {
    let cluster = mounted::serve(site)?;
    let place = site.dir.join("mount");
    let folder = site.dir.clone();
    let requests = || {
        let clients = cluster.ask(&["fs", "clients", mounted::NAME])?;
        let each = clients.as_array().into_iter().flatten().map(|client| client["requests"].as_f64().unwrap_or(0.0));
        Ok(each.sum())
    };
    let mount = || Mount::new(&cluster, &place);
    let mut bench = Bench { name: "Nacre", site, folder, rows: Rows::new(), mount: &mount, requests: Some(&requests) };
    bench.all(archive)?;
    let rows = bench.rows;
    objects(site, &cluster, &rows)?;
    mounted::check(site, &cluster)?;
    Ok(rows)
}

/// Large reads and writes beside those of objects.
fn objects(site: &mut Site, cluster: &Cluster, rows: &Rows) -> Result<()> {
    for (mode, row) in [("write", WRITES), ("read", READS)] {
        let how = ["bench", "object", mode, "--size", "4MiB", "--depth", OBJECTS_DEPTH, "--objects", "64"];
        let done = cluster.ask_for(STEP_MAX, &[&how[..], &["--seconds", "5", "--no-copies"]].concat())?;
        let rate = done["mb_per_s"].as_f64().context("a rate")?;
        site.figures.note(&format!("bench object {mode}, 4 MiB, {OBJECTS_DEPTH} in flight"), rate, "MB/s");
        let what = format!("{row}: of its rate, objects of 4 MiB have");
        site.figures.at_most(OBJECTS_FASTER, &what, rate / rows[row] * 100.0, "%");
    }
    Ok(())
}

fn cephfs(site: &mut Site, archive: &Path) -> Result<Rows> {
    let (dir, place) = (site.dir.join("ceph"), site.dir.join("fuse"));
    let conf = ceph::up(&dir, &[])?;
    ceph::serve_files(&conf)?;
    fs::create_dir_all(&place).context("a folder to mount at")?;
    let mount = || {
        let log = dir.join("fuse.log");
        let said = File::create(&log).context("a log")?;
        let mut command = Command::new("ceph-fuse");
        command.args(["-f", "-c"]).arg(&conf).arg(&place).stdin(Stdio::null());
        command.stdout(said.try_clone().context("using a file twice")?).stderr(said);
        Mount::await_mounted(command.spawn().context("ceph-fuse does not start")?, &place, &log)
    };
    let folder = site.dir.clone();
    let mut bench = Bench { name: "CephFS", site, folder, rows: Rows::new(), mount: &mount, requests: None };
    bench.all(archive)?;
    let rows = bench.rows;
    ceph::down(&dir)?;
    Ok(rows)
}

/// One system's turn.
struct Bench<'a> {
    name: &'static str,
    site: &'a mut Site,
    /// Processes that have it on their command lines are the system's.
    folder: PathBuf,
    rows: Rows,
    mount: &'a dyn Fn() -> Result<Mount>,
    /// How many requests its server has taken of mounts.
    requests: Option<&'a dyn Fn() -> Result<f64>>,
}

impl Bench<'_> {
    fn all(&mut self, archive: &Path) -> Result<()> {
        let mount = (self.mount)()?;
        let at = |name: &str| mount.dir().join(name);
        fs::create_dir(at("files")).context("a directory")?;
        let files: Vec<PathBuf> = (0..FILES).map(|n| at("files").join(format!("file{n:06}"))).collect();
        self.each("create", FILES, |n| File::create(&files[n]).map(drop).context("creating"))?;
        self.each("warm stat", FILES, |n| fs::metadata(&files[n]).map(drop).context("looking"))?;
        let file = File::create(at("synced")).context("a file")?;
        self.each("4 KiB write + fsync", SYNCED, |n| {
            let to = (n * 7919 % 4096 * BLOCK) as u64;
            file.write_all_at(&[7; BLOCK], to).and_then(|()| file.sync_all()).context("synchronizing")
        })?;
        drop(file);
        let block = vec![9; MIB];
        let mut file = File::create(at("large")).context("a file")?;
        self.rate(WRITES, || {
            (0..LARGE).try_for_each(|_| file.write_all(&block))?;
            file.sync_all()
        })?;
        drop(file);
        fs::create_dir(at("many")).context("a directory")?;
        for n in 0..ENTRIES {
            File::create(at("many").join(format!("entry{n:06}"))).context("an entry")?;
        }
        for (row, sync) in [("untar of 3,000 files", false), ("untar of 3,000 files + sync", true)] {
            let to = at(row);
            fs::create_dir(&to).context("a directory")?;
            self.time(row, || {
                bounded::printed(Command::new("tar").arg("xf").arg(archive).arg("-C").arg(&to), STEP_MAX)?;
                if sync {
                    bounded::printed(Command::new("sync").arg("-f").arg(&to), STEP_MAX)?;
                }
                Ok(())
            })?;
        }
        // Another mount has nothing of all this in memory.
        mount.end()?;
        let mount = (self.mount)()?;
        self.each("cold stat", FILES, |n| fs::metadata(&files[n * 1009 % FILES]).map(drop).context("looking"))?;
        let before = self.requests.map(|count| count()).transpose()?;
        self.time("ls -l of 10,000 entries", || {
            let mut count = 0;
            for entry in fs::read_dir(mount.dir().join("many")).context("listing")? {
                entry?.metadata().context("looking")?;
                count += 1;
            }
            ensure!(count == ENTRIES, "{count} entries are listed");
            Ok(())
        })?;
        if let (Some(count), Some(before)) = (self.requests, before) {
            let asked = count()? - before;
            self.site.figures.at_most(
                REQUESTS_MAX,
                "Nacre: ls -l of 10,000 entries: requests to the server",
                asked,
                "",
            );
        }
        let mut file = File::open(mount.dir().join("large")).context("opening")?;
        let mut block = vec![0; MIB];
        self.rate(READS, || (0..LARGE).try_for_each(|_| file.read_exact(&mut block)))?;
        drop(file);
        self.each("unlink", FILES, |n| fs::remove_file(&files[n]).context("removing"))?;
        mount.end()
    }

    /// CPU that every process of the system and this one have used, in seconds.
    fn cpu(&self) -> Result<Cpu> {
        let mut cpu = Cpu::from([("program", machine::cpu_seconds(std::process::id())?)]);
        for (pid, words) in guard::processes(&self.folder) {
            *cpu.entry(guard::part_of(&words)).or_default() += machine::cpu_seconds(pid).unwrap_or_default();
        }
        // A figure without them was once shown, and was a tenth of what is true.
        ensure!(cpu.contains_key("osd") && cpu.contains_key("mount"), "its daemons are not found: {cpu:?}");
        Ok(cpu)
    }
    /// What all have used since; beside it a line of who.
    fn used_since(&mut self, row: &str, before: &Cpu, of: (f64, &'static str)) -> Result<f64> {
        let now = self.cpu()?;
        let used = now.iter().map(|(part, cpu)| (part, (cpu - before.get(part).unwrap_or(&0.0)) * of.0));
        let parts: Vec<(&&str, f64)> = used.collect();
        let said: Vec<String> = parts.iter().map(|(part, used)| format!("{part} {used:.2}")).collect();
        let sum = parts.iter().map(|(_, used)| used).sum();
        let what = format!("{}: {row}: CPU of all processes ({})", self.name, said.join(", "));
        self.site.figures.note(&what, sum, of.1);
        Ok(sum)
    }
    fn each(&mut self, row: &'static str, count: usize, call: impl FnMut(usize) -> Result<()>) -> Result<()> {
        let (cpu, begun) = (self.cpu()?, Instant::now());
        (0..count).try_for_each(call).with_context(|| format!("{}: {row}", self.name))?;
        let took = begun.elapsed().as_secs_f64();
        sleep(SETTLED);
        let each = 1e6 / count as f64;
        let used = self.used_since(row, &cpu, (each, "µs"))?;
        self.rows.insert(row, used);
        self.site.figures.note(&format!("{}: {row}: time", self.name), took * each, "µs");
        Ok(())
    }
    fn time(&mut self, row: &'static str, call: impl FnOnce() -> Result<()>) -> Result<()> {
        let (cpu, begun) = (self.cpu()?, Instant::now());
        call().with_context(|| format!("{}: {row}", self.name))?;
        let took = begun.elapsed().as_secs_f64();
        sleep(SETTLED);
        self.used_since(row, &cpu, (1.0, "s"))?;
        self.rows.insert(row, took);
        self.site.figures.note(&format!("{}: {row}: time", self.name), took, "s");
        Ok(())
    }
    fn rate(&mut self, row: &'static str, call: impl FnOnce() -> std::io::Result<()>) -> Result<()> {
        let begun = Instant::now();
        call().with_context(|| format!("{}: {row}", self.name))?;
        let rate = (LARGE * MIB) as f64 / 1e6 / begun.elapsed().as_secs_f64();
        self.rows.insert(row, rate);
        self.site.figures.note(&format!("{}: {row}", self.name), rate, "MB/s");
        Ok(())
    }
}
