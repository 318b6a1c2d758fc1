//! `up --processes`: every daemon as a separate process; this one starts, monitors and stops them.
//!
//! ```text
//!  keeper ──starts──▶ nacre mon run, nacre osd run, nacre mds run     output: DIR/run/osd.2.log
//!     │◀── one ends: reported, the others continue; `nacre osd run` starts it again
//!     └─── Ctrl-C, `nacre down`: TERM to all daemons of the directory, monitors last
//! ```
//! The daemons have their own process groups, so that Ctrl-C only reaches the keeper and they are
//! stopped in order. They do not depend on it: when it is killed they continue, and `nacre down`
//! finds them by their locks.

use super::host::{Running, open_log};
use anyhow::{Context, Result, bail};
use nacre_node::config::FILE_NAME;
use nacre_node::locks::{self, Lock};
use nacre_node::{Config, port_is_free, stop};
use nacre_types::OsdId;
use std::collections::BTreeMap;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// How long daemons may take to stop; each finishes its work in flight for two seconds at most.
pub const STOP: Duration = Duration::from_secs(20);

/// Servers of file systems: one active, and one standby.
const SERVERS: u32 = 2;

/// The daemons' processes, and the exclusive right to start them.
pub struct Keeper {
    dir: PathBuf,
    mons: usize,
    running: BTreeMap<String, Child>,
    ended: BTreeMap<String, String>,
    untold: Vec<String>,
    _lock: Lock,
}

impl Keeper {
    /// Starts all daemons of a directory.
    ///
    /// # Errors
    /// When something runs there already, or a port is in use.
    pub fn start(dir: &Path) -> Result<Self> {
        let config = Config::load(dir)?;
        let lock = Lock::keeper(&config)?;
        let all: Vec<(String, &str)> = config.addresses().collect();
        for (who, address) in &all {
            if address.is_empty() {
                bail!(
                    "{who} has no address in {}: daemons in processes of their own need one each; write it like 127.0.0.1:7400",
                    config.dir.join(FILE_NAME).display()
                );
            }
            port_is_free(who, address)?;
        }
        let mut keeper = Self {
            dir: config.dir.clone(),
            mons: config.mons.len(),
            running: BTreeMap::new(),
            ended: BTreeMap::new(),
            untold: Vec::new(),
            _lock: lock,
        };
        let servers = (0..SERVERS).map(|id| format!("mds.{id}"));
        for who in all.into_iter().map(|(who, _)| who).chain(servers) {
            if let Err(why) = keeper.spawn(&who) {
                let _ = keeper.end();
                return Err(why);
            }
        }
        Ok(keeper)
    }

    fn log_of(&self, who: &str) -> PathBuf {
        locks::run_folder(&self.dir).join(format!("{who}.log"))
    }

    fn spawn(&mut self, who: &str) -> Result<()> {
        let (kind, id) = who.split_once('.').expect("mon.0, osd.0 or mds.0");
        let log = open_log(&self.log_of(who))?;
        let mut command = Command::new(std::env::current_exe().context("finding this program")?);
        command
            .args([kind, "run", "--id", id, "--config"])
            .arg(self.dir.join(FILE_NAME));
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("using the log twice")?)
            .stderr(log);
        let child = command
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {who}"))?;
        self.ended.remove(who);
        self.running.insert(who.to_owned(), child);
        Ok(())
    }

    /// Detects ended processes.
    fn look(&mut self) {
        let mut gone = Vec::new();
        for (who, child) in &mut self.running {
            match child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => gone.push((who.clone(), child.id(), how(status))),
                Err(why) => gone.push((who.clone(), child.id(), why.to_string())),
            }
        }
        for (who, pid, how) in gone {
            self.running.remove(&who);
            let said =
                last_line(&self.log_of(&who)).map_or_else(String::new, |line| format!(": {line}"));
            let (kind, id) = who.split_once('.').expect("mon.0 or osd.0");
            let line = format!("{who} (process {pid}) {how}{said}");
            let file = self.dir.join(FILE_NAME);
            self.untold.push(format!(
                "{line}; the others go on. `nacre {kind} run --config {} --id {id}` starts it again",
                file.display()
            ));
            self.ended.insert(who, line);
        }
    }

    /// Stops every daemon of the directory, including those started manually.
    fn end(&mut self) -> Result<Vec<stop::Stopped>> {
        // A child that has not taken its lock yet is not found there.
        let stopped = stop::stop_daemons(&self.dir, STOP);
        for child in self.running.values_mut() {
            let ended = matches!(child.try_wait(), Ok(Some(_)));
            if !ended && stopped.is_ok() {
                let _ = child.kill();
            }
            let _ = child.wait();
        }
        self.running.clear();
        Ok(stopped?)
    }
}

fn how(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, Some(0)) => "has ended".to_owned(),
        (None, code) => format!("ended with exit code {}", code.unwrap_or(-1)),
    }
}

/// The last line of a log, without the program's name.
fn last_line(path: &Path) -> Option<String> {
    let text = std::fs::read(path).ok()?;
    let tail = &text[text.len().saturating_sub(4096)..];
    let tail = String::from_utf8_lossy(tail);
    let line = tail.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(line.trim().trim_start_matches("nacre: ").to_owned())
}

impl Running for Keeper {
    fn kill_osd(&mut self, osd: u32) -> Result<()> {
        let who = OsdId(osd).to_string();
        let Some(mut child) = self.running.remove(&who) else {
            bail!("{who} does not run here")
        };
        child.kill().with_context(|| format!("killing {who}"))?;
        child.wait().with_context(|| format!("waiting for {who}"))?;
        Ok(())
    }
    fn start_osd(&mut self, osd: u32) -> Result<()> {
        self.spawn(&OsdId(osd).to_string())
    }
    fn recovered(&mut self, _: u32) -> Option<u64> {
        // Its own process handles that.
        None
    }
    fn news(&mut self) -> Vec<String> {
        self.look();
        std::mem::take(&mut self.untold)
    }
    fn osds(&mut self) -> usize {
        self.running
            .keys()
            .filter(|who| who.starts_with("osd."))
            .count()
    }
    fn missing(&mut self) -> Vec<String> {
        self.look();
        self.ended.values().cloned().collect()
    }
    fn hopeless(&mut self) -> Option<String> {
        self.look();
        let mons = self
            .running
            .keys()
            .filter(|who| who.starts_with("mon."))
            .count();
        let osds = self.osds();
        let first = |kind: &str| {
            self.ended
                .iter()
                .find(|(who, _)| who.starts_with(kind))
                .map(|(_, line)| line.clone())
        };
        if mons * 2 <= self.mons {
            return first("mon.");
        }
        if osds == 0 { first("osd.") } else { None }
    }
    fn stop(mut self: Box<Self>) -> Result<()> {
        let stopped = self.end()?;
        match stopped.iter().find(|one| one.killed) {
            Some(one) => bail!(
                "{} (process {}) did not end in {} s when asked and was killed; nothing that was answered is lost",
                one.part,
                one.pid,
                STOP.as_secs()
            ),
            None => Ok(()),
        }
    }
}
