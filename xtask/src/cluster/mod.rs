//! A cluster of processes over loopback TCP, controlled from outside: used by `./x bench` and `./x
//! show`.
//!
//! ```text
//!  init ─▶ start (mon.0 … osd.N) ─▶ ask: `nacre --json …` ─▶ kill, stop, resume, start again ─▶ dropped: `nacre down`, then killed
//! ```
//! Invariant: every wait is bounded, and no daemon outlives the value. (Ctrl-C does not drop
//! values: see [`guard`].)

pub mod guard;
pub mod ledger;
pub mod load;

use crate::bounded;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// No command that only queries or changes the map takes this long, even on a busy machine.
const COMMAND_MAX: Duration = Duration::from_secs(60);
/// `nacre down` waits 20 s for each of its steps before it kills processes.
const DOWN_MAX: Duration = Duration::from_mins(2);

/// The disks of a cluster's OSDs.
#[derive(Clone, Copy, Default)]
pub struct Disks<'a> {
    /// Size of each store, as for `--osd-size`; `None`: the space of the disk.
    pub osd_size: Option<&'a str>,
    /// Whether device faults may be requested ([`Cluster::faults_file`]).
    pub faulty: bool,
}

/// Daemons, each a process.
pub struct Cluster {
    nacre: PathBuf,
    dir: PathBuf,
    /// The value of `--cluster` for commands.
    place: OsString,
    daemons: BTreeMap<String, Child>,
    /// Whether daemons look for faults of their devices in [`Self::faults_file`].
    faulty: bool,
    /// Number of requested map changes.
    changes: Cell<u32>,
}

impl Cluster {
    /// Creates a cluster in a directory that does not exist yet and starts all its daemons. They
    /// are up afterwards, and there are no pools.
    ///
    /// # Errors
    /// When the directory or the ports are in use, or an OSD does not come up.
    pub fn start(nacre: &Path, dir: &Path, base_port: u16, mons: u32, osds: u32) -> Result<Self> {
        Self::start_with(nacre, dir, base_port, mons, osds, &Disks::default())
    }

    /// As [`Self::start`], with the given disks.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(
        nacre: &Path,
        dir: &Path,
        base_port: u16,
        mons: u32,
        osds: u32,
        disks: &Disks<'_>,
    ) -> Result<Self> {
        let mut init = Command::new(nacre);
        init.args([
            "cluster",
            "init",
            "--mons",
            &mons.to_string(),
            "--osds",
            &osds.to_string(),
        ]);
        init.args(["--base-port", &base_port.to_string(), "--dir"])
            .arg(dir);
        if let Some(size) = disks.osd_size {
            init.args(["--osd-size", size]);
        }
        succeeds(&mut init, COMMAND_MAX)?;
        let mut cluster = Self::at(nacre, dir);
        cluster.faulty = disks.faulty;
        for id in 0..mons {
            cluster.run("mon", id)?;
        }
        for id in 0..osds {
            cluster.run("osd", id)?;
        }
        for id in 0..osds {
            cluster.await_osd(id, true, COMMAND_MAX)?;
        }
        Ok(cluster)
    }

    /// An existing cluster, none of whose daemons is a child of this process.
    pub fn at(nacre: &Path, dir: &Path) -> Self {
        let (nacre, dir, place) = (nacre.to_owned(), dir.to_owned(), dir.as_os_str().to_owned());
        Self {
            nacre,
            dir,
            place,
            daemons: BTreeMap::new(),
            faulty: false,
            changes: Cell::new(0),
        }
    }
    /// An existing Ceph cluster, given by its configuration; servers of file systems have their
    /// logs in the directory.
    pub fn on_ceph(nacre: &Path, dir: &Path, conf: &Path) -> Self {
        let mut cluster = Self::at(nacre, dir);
        cluster.place = OsString::from("ceph:");
        cluster.place.push(conf);
        cluster
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts a daemon, whose output goes to a log in the directory; returns the time of the start.
    ///
    /// # Errors
    /// When it does not start. Whether it keeps running is not known yet.
    pub fn run(&mut self, kind: &str, id: u32) -> Result<Instant> {
        let who = format!("{kind}.{id}");
        let path = self.dir.join(format!("{who}.log"));
        let log = File::options().create(true).append(true).open(&path);
        let log = log.with_context(|| format!("opening {}", path.display()))?;
        let mut daemon = Command::new(&self.nacre);
        daemon
            .args([kind, "run", "--id", &id.to_string(), "--config"])
            .arg(&self.place);
        daemon
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        if self.faulty {
            daemon.env("NACRE_DEVICE_FAULTS", self.faults_file());
        }
        let begun = Instant::now();
        let child = daemon
            .spawn()
            .with_context(|| format!("{who} does not start"))?;
        ensure!(
            self.daemons.insert(who.clone(), child).is_none(),
            "{who} runs already"
        );
        Ok(begun)
    }

    /// The file that daemons with faulty devices read before each call of a device
    /// (`node/src/faults.rs`); without it there are no faults.
    pub fn faults_file(&self) -> PathBuf {
        self.dir.join("device-faults")
    }

    /// Exit status of a daemon that ended by itself; none while it runs. It may be started again
    /// afterwards.
    ///
    /// # Errors
    /// When it was not started.
    pub fn ended(&mut self, who: &str) -> Result<Option<ExitStatus>> {
        let child = self
            .daemons
            .get_mut(who)
            .with_context(|| format!("{who} was not started"))?;
        let status = child.try_wait().context("waiting for a daemon")?;
        if status.is_some() {
            self.daemons.remove(who);
        }
        Ok(status)
    }

    /// The process of a daemon that this value started.
    ///
    /// # Errors
    /// When there is none.
    pub fn pid(&self, who: &str) -> Result<u32> {
        Ok(self
            .daemons
            .get(who)
            .with_context(|| format!("{who} was not started"))?
            .id())
    }

    /// All daemons that were started and not killed.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.daemons.values().map(Child::id)
    }

    /// Kills a daemon as a crash would (`kill -9`).
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&mut self, who: &str) -> Result<Instant> {
        let mut child = self
            .daemons
            .remove(who)
            .with_context(|| format!("{who} was not started"))?;
        ensure!(
            child.try_wait().context("waiting for a daemon")?.is_none(),
            "{who} had ended by itself: see its log"
        );
        child.kill().with_context(|| format!("killing {who}"))?;
        let killed = Instant::now();
        child.wait().with_context(|| format!("waiting for {who}"))?;
        Ok(killed)
    }

    /// Terminates a daemon, and waits for its end.
    ///
    /// # Errors
    /// When it is not running, does not end, or fails.
    pub fn end(&mut self, who: &str) -> Result<Instant> {
        let mut child = self
            .daemons
            .remove(who)
            .with_context(|| format!("{who} was not started"))?;
        ensure!(
            child.try_wait().context("waiting for a daemon")?.is_none(),
            "{who} had ended by itself: see its log"
        );
        signal(child.id(), "TERM")?;
        let status = bounded::ended(&mut child, COMMAND_MAX)
            .with_context(|| format!("{who} was told to end"))?;
        ensure!(
            ended_well(status),
            "{who} was told to end and ended badly ({status}): see its log"
        );
        Ok(Instant::now())
    }

    /// Sends a signal such as `STOP`.
    ///
    /// # Errors
    /// When the daemon does not run.
    pub fn signal(&self, who: &str, name: &str) -> Result<Instant> {
        signal(self.pid(who)?, name)?;
        Ok(Instant::now())
    }

    /// `nacre --json --cluster DIR`; the caller adds arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.nacre);
        command.args(["--json", "--cluster"]).arg(&self.place);
        command
    }

    /// Runs a command of the cluster; returns its JSON output.
    ///
    /// # Errors
    /// Its error; also when it takes longer than a minute.
    pub fn ask(&self, arguments: &[&str]) -> Result<Value> {
        self.ask_for(COMMAND_MAX, arguments)
    }

    /// As [`Self::ask`], with another limit.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn ask_for(&self, limit: Duration, arguments: &[&str]) -> Result<Value> {
        succeeds(self.command().args(arguments), limit)
    }

    /// Waits until an OSD is up or down; returns the time at which this was observed.
    ///
    /// # Errors
    /// When that does not happen within `limit`, or the OSD ended by itself.
    pub fn await_osd(&mut self, id: u32, up: bool, limit: Duration) -> Result<Instant> {
        let who = format!("osd.{id}");
        let word = if up { "up" } else { "down" };
        bounded::until(&format!("{who} is {word}"), limit, || {
            if let Some(child) = self.daemons.get_mut(&who)
                && let Some(status) = child.try_wait().context("waiting for a daemon")?
            {
                bail!("{who} ended by itself ({status}): see its log");
            }
            let tree = self.ask(&["osd", "tree"])?;
            Ok((is_up(&tree, id) == Some(up)).then(Instant::now))
        })
    }

    /// Commits a map change without further effect; returns its epoch.
    ///
    /// # Errors
    /// When the monitors do not commit it.
    pub fn change_map(&self) -> Result<u64> {
        // A different value each time, and never the default: setting the current value is not a
        // change.
        self.changes.set(self.changes.get() + 1);
        let value = (2_001 + self.changes.get() % 500).to_string();
        let reply = self.ask(&["config", "set", "osd.complain_after_ms", &value])?;
        reply["epoch"]
            .as_u64()
            .context("nothing was changed: another cluster value has changed the map before")
    }

    /// Waits until health is good.
    ///
    /// # Errors
    /// The remaining problem after `limit`.
    pub fn await_health(&self, limit: Duration) -> Result<()> {
        let seconds = limit.as_secs().to_string();
        self.ask_for(
            limit + COMMAND_MAX,
            &["wait", "health-ok", "--timeout", &seconds],
        )
        .map(drop)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for pid in self.pids() {
            // A suspended process does not receive the signal.
            let _ = signal(pid, "CONT");
        }
        if !self.daemons.is_empty() && self.place == self.dir {
            let _ = bounded::output(
                Command::new(&self.nacre)
                    .args(["down", "--dir"])
                    .arg(&self.dir),
                DOWN_MAX,
            );
        }
        for daemon in self.daemons.values_mut() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// Whether a terminated daemon ended correctly. A daemon that had only just started does not handle
/// the signal yet, and is ended by it as well.
pub fn ended_well(status: ExitStatus) -> bool {
    status.success() || status.signal() == Some(15)
}

/// Sends a signal to a process.
///
/// # Errors
/// When there is no such process.
pub fn signal(pid: u32, name: &str) -> Result<()> {
    bounded::printed(
        Command::new("kill").args([&format!("-{name}"), &pid.to_string()]),
        COMMAND_MAX,
    )
    .map(drop)
}

/// Runs `nacre …`; returns its JSON output, or nothing if there is none.
///
/// # Errors
/// When it does not succeed within `limit`, with its output.
pub fn succeeds(command: &mut Command, limit: Duration) -> Result<Value> {
    let printed = bounded::printed(command, limit)?;
    Ok(serde_json::from_str(&printed).unwrap_or(Value::Null))
}

/// Whether there are PGs, and the states of all of them satisfy `so`.
pub fn all_groups(status: &Value, so: impl Fn(&str) -> bool) -> bool {
    let states = status["pgs"]["by_state"].as_object();
    states.is_some_and(|states| !states.is_empty() && states.keys().all(|state| so(state)))
}

fn is_up(tree: &Value, id: u32) -> Option<bool> {
    let of_hosts = tree["hosts"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|host| host["osds"].as_array())
        .flatten();
    let strays = tree["without_a_place"].as_array().into_iter().flatten();
    of_hosts
        .chain(strays)
        .find(|osd| osd["id"].as_u64() == Some(id.into()))?["up"]
        .as_bool()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_osd_is_found_with_and_without_a_place() {
        let tree = json!({
            "hosts": [{ "host": "a", "osds": [{ "id": 0, "up": true }] }, { "host": "b", "osds": [{ "id": 1, "up": false }] }],
            "without_a_place": [{ "id": 7, "up": true }],
        });
        assert_eq!(
            [0, 1, 7, 8].map(|id| is_up(&tree, id)),
            [Some(true), Some(false), Some(true), None]
        );
    }
}
