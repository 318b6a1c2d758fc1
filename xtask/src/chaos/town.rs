//! The daemons of a run, each a process, in its network namespace; which of them may end, and which
//! ended unexpectedly.

use super::files::Files;
use super::net::Net;
use super::plan::{MONS, OSDS, SERVERS, Who};
use crate::bounded;
use crate::cluster::{ended_well, signal, succeeds};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A command may wait for a majority that is cut off.
const COMMAND_MAX: Duration = Duration::from_secs(60);
/// Maximum time for a daemon to terminate.
const END_MAX: Duration = Duration::from_secs(40);
/// Size of an OSD's store: small, so that log and index wrap around, and a small host fills up
/// soon.
const OSD_SIZE: &str = "512MiB";

/// See the module head.
pub struct Town {
    /// The program.
    pub nacre: PathBuf,
    /// The cluster's directory.
    pub dir: PathBuf,
    /// Its networks.
    pub net: Net,
    /// Its file system, once it is mounted; where mounting is impossible, there are no servers
    /// either.
    pub files: Option<Files>,
    /// Whether it has servers.
    pub has_servers: bool,
    daemons: BTreeMap<Who, Child>,
    /// Number of daemon starts.
    starts: u64,
    /// Daemons whose disk fails: they may end, and the state of their stores is then unknown.
    pub may_end: BTreeSet<Who>,
    /// Daemons that ended when they were allowed to.
    pub ended: BTreeSet<Who>,
    /// Time at which a daemon's disk was restored: an earlier error may still end the daemon, on a
    /// busy machine.
    pub healed: BTreeMap<Who, Instant>,
}

/// A fault may still end a daemon for this long after it is over.
const HEALED: Duration = Duration::from_secs(15);

/// Error of the wall clock at this start of a daemon: a minute in either direction, and every
/// fourth time years.
fn skew_ms(start: u64) -> i64 {
    const MINUTE: i64 = 60_000;
    const YEAR: i64 = 365 * 24 * 60 * MINUTE;
    let step = i64::try_from(start % 7).expect("below 7") - 3;
    if start.is_multiple_of(4) {
        step * 3 * YEAR
    } else {
        step * MINUTE / 3
    }
}

/// The last lines of a daemon's log.
pub fn last_words(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(3).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
}

impl Town {
    /// A cluster that does not exist yet; nothing runs.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn make(nacre: &Path, dir: &Path, net: Net, base_port: u16) -> Result<Self> {
        let (mons, osds) = (MONS.to_string(), OSDS.to_string());
        let mut init = Command::new(nacre);
        init.args([
            "cluster",
            "init",
            "--mons",
            &mons,
            "--osds",
            &osds,
            "--osd-size",
            OSD_SIZE,
            "--host",
            net.first(),
        ]);
        init.args(["--base-port", &base_port.to_string(), "--dir"])
            .arg(dir);
        if net.why_not().is_some() {
            // All on one address in this case.
            init = Command::new(nacre);
            init.args([
                "cluster",
                "init",
                "--mons",
                &mons,
                "--osds",
                &osds,
                "--osd-size",
                OSD_SIZE,
            ]);
            init.args(["--base-port", &base_port.to_string(), "--dir"])
                .arg(dir);
        }
        succeeds(&mut init, COMMAND_MAX)?;
        if net.why_not().is_none() {
            // A server listens at the address of the first monitor. Each has a separate
            // configuration, in which that address is in its own network; the other monitors tell
            // it where the first one is.
            let path = dir.join("cluster.toml");
            let text =
                fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            for who in (0..SERVERS).map(Who::Mds) {
                let own = text.replace(&net.address(Who::Mon(0)), &net.address(who));
                fs::write(dir.join(format!("{who}.toml")), own)
                    .context("writing a server's configuration")?;
            }
        }
        let (nacre, dir) = (nacre.to_owned(), dir.to_owned());
        Ok(Self {
            nacre,
            dir,
            net,
            files: None,
            has_servers: false,
            daemons: BTreeMap::new(),
            starts: 0,
            may_end: BTreeSet::new(),
            ended: BTreeSet::new(),
            healed: BTreeMap::new(),
        })
    }

    /// The file that requests device faults.
    pub fn faults_file(&self) -> PathBuf {
        self.dir.join("device-faults")
    }
    /// A daemon's log.
    pub fn log(&self, who: Who) -> PathBuf {
        self.dir.join(format!("{who}.log"))
    }
    /// All daemons that should exist.
    pub fn all(&self) -> Vec<Who> {
        let servers = if self.has_servers { SERVERS } else { 0 };
        (0..MONS)
            .map(Who::Mon)
            .chain((0..OSDS).map(Who::Osd))
            .chain((0..servers).map(Who::Mds))
            .collect()
    }
    /// Whether it is available for a fault; reports if it is not.
    pub fn has(&self, who: Who) -> bool {
        let has = match who {
            Who::Mds(_) => self.has_servers,
            Who::Mount(_) => self.files.is_some(),
            Who::Mon(_) | Who::Osd(_) => true,
        };
        if !has {
            println!("      SKIPPED: there is no {who}");
        }
        has
    }
    fn config(&self, who: Who) -> PathBuf {
        let own = self.dir.join(format!("{who}.toml"));
        if own.exists() { own } else { self.dir.clone() }
    }

    /// Starts a daemon unless it is running.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(&mut self, who: Who) -> Result<()> {
        if let Who::Mount(id) = who {
            let Some(mut files) = self.files.take() else {
                return Ok(());
            };
            let mounted = files.mount(id, || self.command_of(who));
            self.files = Some(files);
            return mounted;
        }
        if self.daemons.contains_key(&who) || !self.all().contains(&who) {
            return Ok(());
        }
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log(who))
            .context("opening a log")?;
        let (kind, id) = who.parts();
        let mut command = self.net.at(who, &self.nacre);
        command
            .args([kind, "run", "--id", &id.to_string(), "--config"])
            .arg(self.config(who));
        command
            .env("NACRE_DEVICE_FAULTS", self.faults_file())
            .env("RUST_BACKTRACE", "1");
        self.starts += 1;
        command.env("NACRE_CLOCK_SKEW_MS", skew_ms(self.starts).to_string());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let child = command
            .spawn()
            .with_context(|| format!("{who} does not start"))?;
        self.daemons.insert(who, child);
        self.ended.remove(&who);
        Ok(())
    }

    /// Whether its process exists.
    pub fn runs(&self, who: Who) -> bool {
        self.daemons.contains_key(&who)
    }
    /// The processes.
    pub fn pids(&self) -> Vec<(Who, u32)> {
        let daemons = self.daemons.iter().map(|(who, child)| (*who, child.id()));
        daemons
            .chain(self.files.iter().flat_map(Files::pids))
            .collect()
    }

    /// `kill -9`; does nothing if it is not running.
    ///
    /// # Errors
    /// When a mount had ended by itself.
    pub fn kill(&mut self, who: Who) -> Result<()> {
        if let (Who::Mount(id), Some(files)) = (who, &mut self.files) {
            return files.kill(id);
        }
        if let Some(mut child) = self.daemons.remove(&who) {
            let _ = child.kill();
            let _ = child.wait();
        }
        Ok(())
    }
    /// Sends a signal; does nothing if it is not running.
    ///
    /// # Errors
    /// When the program that works on files has ended.
    pub fn signal(&mut self, who: Who, name: &str) -> Result<()> {
        if let (Who::Mount(id), Some(files)) = (who, &mut self.files) {
            return files.signal(id, name);
        }
        if let Some(child) = self.daemons.get(&who) {
            let _ = signal(child.id(), name);
        }
        Ok(())
    }
    fn has_just_healed(&self, who: Who) -> bool {
        self.healed
            .get(&who)
            .is_some_and(|since| since.elapsed() < HEALED)
    }

    /// Terminates it and waits for its end.
    ///
    /// # Errors
    /// When it does not end, or fails.
    pub fn end(&mut self, who: Who) -> Result<()> {
        let Some(mut child) = self.daemons.remove(&who) else {
            return Ok(());
        };
        let _ = signal(child.id(), "TERM");
        // A suspended process cannot receive the signal: it is resumed, as service managers do.
        let _ = signal(child.id(), "CONT");
        let status = bounded::ended(&mut child, END_MAX)
            .with_context(|| format!("{who} was told to end"))?;
        ensure!(
            ended_well(status) || self.may_end.contains(&who) || self.has_just_healed(who),
            "{who} was told to end and ended badly ({status}): {}",
            last_words(&self.log(who))
        );
        Ok(())
    }

    /// Daemons that ended without being killed, and were not allowed to.
    ///
    /// # Errors
    /// The daemon, its exit status, and its last output.
    pub fn check(&mut self) -> Result<()> {
        let mut gone: Vec<(Who, ExitStatus)> = Vec::new();
        for (who, child) in &mut self.daemons {
            if let Some(status) = child.try_wait().context("waiting for a daemon")? {
                gone.push((*who, status));
            }
        }
        for (who, status) in gone {
            self.daemons.remove(&who);
            let words = last_words(&self.log(who));
            let may_end = self.may_end.contains(&who);
            ensure!(
                may_end || self.has_just_healed(who),
                "{who} ended by itself ({status}): {words}"
            );
            ensure!(
                !words.contains("panicked"),
                "{who} panicked, and a disk's fault is no reason: {words}"
            );
            if !may_end {
                println!(
                    "      {who} ended of its disk's fault before ({status}), and starts again: {words}"
                );
                self.start(who)?;
                continue;
            }
            println!("      {who} ended, as its disk makes it ({status}): {words}");
            self.ended.insert(who);
        }
        self.files.as_mut().map_or(Ok(()), Files::check)
    }

    /// `nacre --json --cluster DIR`, as a client.
    pub fn command(&self) -> Command {
        let mut command = self.net.client(&self.nacre);
        command.args(["--json", "--cluster"]).arg(&self.dir);
        command
    }
    /// The same, in the network namespace of `who`.
    pub fn command_of(&self, who: Who) -> Command {
        let mut command = self.net.at(who, &self.nacre);
        command.args(["--json", "--cluster"]).arg(&self.dir);
        command
    }
    /// Runs a command of the cluster.
    ///
    /// # Errors
    /// Its error; also when it takes longer than a minute.
    pub fn ask(&self, words: &[&str]) -> Result<Value> {
        succeeds(self.command().args(words), COMMAND_MAX)
    }
    /// Runs a command of the cluster in a daemon's namespace, where its ports can be probed.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn ask_at(&self, who: Who, words: &[&str]) -> Result<Value> {
        succeeds(self.command_of(who).args(words), COMMAND_MAX)
    }

    /// Waits; checks meanwhile that all daemons run.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn wait(&mut self, time: Duration) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < time {
            self.check()?;
            std::thread::sleep(Duration::from_millis(50));
        }
        self.check()
    }

    /// Waits until an answer of `status` meets a condition.
    ///
    /// # Errors
    /// The last answer.
    pub fn until(
        &mut self,
        what: &str,
        limit: Duration,
        good: impl Fn(&Value) -> bool,
    ) -> Result<Duration> {
        let begun = Instant::now();
        let mut last = Value::Null;
        loop {
            self.check()?;
            // A command reports a temporary loss of the majority.
            if let Ok(status) = self.ask(&["status"]) {
                if good(&status) {
                    return Ok(begun.elapsed());
                }
                last = status;
            }
            if begun.elapsed() > limit {
                bail!(
                    "{what}: not within {} s; health is {}",
                    limit.as_secs(),
                    last["health"]
                );
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    }
    /// Waits until health is good.
    ///
    /// # Errors
    /// The remaining problem.
    pub fn until_well(&mut self, limit: Duration) -> Result<Duration> {
        self.until("HEALTH_OK", limit, |status| {
            status["health"]["status"] == "ok" && clean(status)
        })
    }
}

/// Whether all PGs are clean.
pub fn clean(status: &Value) -> bool {
    crate::cluster::all_groups(status, |state| state == "active+clean")
}

impl Drop for Town {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.faults_file());
        for child in self.daemons.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
