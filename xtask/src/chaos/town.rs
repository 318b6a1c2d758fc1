//! The daemons of a run, each a process, in its network namespace; which of them may end, and which
//! ended unexpectedly.

use super::files::Files;
use super::net::Net;
use super::plan::{MONS, OSDS, SERVERS, Who};
use crate::cluster::client::last_lines;
use crate::cluster::{self, Cluster, Setup, ended_well, is_clean, succeeds};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
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
    /// Its processes.
    pub cluster: Cluster,
    /// Its networks.
    pub net: Net,
    /// Its file system, once it is mounted; where mounting is impossible, there are no servers
    /// either.
    pub files: Option<Files>,
    /// Whether it has servers.
    pub has_servers: bool,
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

impl Town {
    /// A cluster that does not exist yet; nothing runs.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn make(nacre: &Path, dir: &Path, net: Net, base_port: u16) -> Result<Self> {
        let setup = Setup {
            host: net.first(),
            osd_size: Some(OSD_SIZE),
            faulty: true,
        };
        let mut cluster = Cluster::init(nacre, dir, base_port, MONS, OSDS, &setup)?;
        cluster.clients = net.clients();
        if net.first().is_some() {
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
        Ok(Self {
            cluster,
            net,
            files: None,
            has_servers: false,
            starts: 0,
            may_end: BTreeSet::new(),
            ended: BTreeSet::new(),
            healed: BTreeMap::new(),
        })
    }

    /// A daemon's folder.
    pub fn folder(&self, who: Who) -> PathBuf {
        self.cluster.dir().join(who.to_string())
    }
    /// The last lines of a daemon's log.
    pub fn last_words(&self, who: Who) -> String {
        last_words(&self.cluster.log(&who.to_string()))
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
        let own = self.cluster.dir().join(format!("{who}.toml"));
        if own.exists() {
            own
        } else {
            self.cluster.dir().to_owned()
        }
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
        if self.runs(who) || !self.all().contains(&who) {
            return Ok(());
        }
        let mut daemon = cluster::program_in(self.net.of(who).as_deref(), self.cluster.nacre());
        self.starts += 1;
        daemon
            .env("RUST_BACKTRACE", "1")
            .env("NACRE_CLOCK_SKEW_MS", skew_ms(self.starts).to_string());
        let ((kind, id), config) = (who.parts(), self.config(who));
        self.cluster
            .run_with(daemon, kind, id, config.as_os_str())?;
        self.ended.remove(&who);
        Ok(())
    }

    /// Whether its process exists.
    pub fn runs(&self, who: Who) -> bool {
        self.cluster.runs(&who.to_string())
    }
    /// The processes.
    pub fn pids(&self) -> Vec<(Who, u32)> {
        let daemons = self.all().into_iter().filter(|who| self.runs(*who));
        daemons
            .filter_map(|who| Some((who, self.cluster.pid(&who.to_string()).ok()?)))
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
        if self.runs(who) {
            // It may have ended by itself.
            let _ = self.cluster.kill(&who.to_string());
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
        if self.runs(who) {
            let _ = self.cluster.signal(&who.to_string(), name);
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
        if !self.runs(who) {
            return Ok(());
        }
        let status = self.cluster.end_anyhow(&who.to_string(), END_MAX)?;
        ensure!(
            ended_well(status) || self.may_end.contains(&who) || self.has_just_healed(who),
            "{who} was told to end and ended badly ({status}): {}",
            self.last_words(who)
        );
        Ok(())
    }

    /// Daemons that ended without being killed, and were not allowed to.
    ///
    /// # Errors
    /// The daemon, its exit status, and its last output.
    pub fn check(&mut self) -> Result<()> {
        for who in self.all() {
            if !self.runs(who) {
                continue;
            }
            let Some(status) = self.cluster.ended(&who.to_string())? else {
                continue;
            };
            let words = self.last_words(who);
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

    /// `nacre --json --cluster DIR`, in the network namespace of `who`.
    pub fn command_of(&self, who: Who) -> Command {
        self.cluster.command_in(self.net.of(who).as_deref())
    }
    /// Runs a command of the cluster.
    ///
    /// # Errors
    /// Its error; also when it takes longer than a minute.
    pub fn ask(&self, words: &[&str]) -> Result<Value> {
        self.cluster.ask(words)
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
            status["health"]["status"] == "ok" && is_clean(status)
        })
    }
}

/// The last lines of a log.
pub fn last_words(log: &Path) -> String {
    last_lines(log, 3).replace('\n', " | ")
}

impl Drop for Town {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.cluster.faults_file());
        // What a finding leaves on the disks is what it found there: nothing is told to end.
        for who in self.all() {
            let _ = self.kill(who);
        }
    }
}
