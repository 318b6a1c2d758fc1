//! A cluster of processes, controlled from outside: the only way in which `./x` starts, asks,
//! kills, stops and takes down Nacre's daemons.
//!
//! ```text
//!  start: `cluster init`, mon.0 … osd.N ─┐            ┌─▶ kill, end, signal, run again
//!  up: `nacre up`, in one process or many┼─▶ Cluster ─┼─▶ ask: `nacre --json …`, until it says so
//!  at, on_ceph: one that is there        ┘      │     └─▶ clients in the background
//!                                               └─ dropped: `nacre down`, then killed
//! ```
//! * [`client`]: a command in the background; [`load`], [`ledger`], [`history`]: those that work on
//!   objects, record what was acknowledged, and record what was seen; [`files`]: mounts;
//! * [`guard`]: cleans up after any end, Ctrl-C too.
//!
//! Invariant: every wait is bounded, and no daemon outlives the value. (Ctrl-C does not drop
//! values: see [`guard`].)

mod ask;
pub mod client;
pub mod files;
pub mod guard;
pub mod history;
pub mod ledger;
pub mod load;

use crate::bounded;
use anyhow::{Context, Result, ensure};
pub use ask::{all_groups, is_clean, run_nacre, succeeds};
use client::Client;
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// No command that only queries or changes the map takes this long, even on a busy machine.
const COMMAND_MAX: Duration = Duration::from_secs(60);
/// `nacre up` waits until all daemons serve.
const UP_MAX: Duration = Duration::from_mins(4);
/// `nacre down` waits 20 s for each of its steps before it kills processes.
const DOWN_MAX: Duration = Duration::from_mins(2);

/// How a cluster differs from the usual one.
#[derive(Clone, Copy, Default)]
pub struct Setup<'a> {
    /// The first daemon's address; the others listen on the following ones. `None`: all on one.
    pub host: Option<&'a str>,
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
    /// The network namespace of clients; `None`: that of this process.
    pub clients: Option<PathBuf>,
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
    pub fn start(
        nacre: &Path,
        dir: &Path,
        base_port: u16,
        mons: u32,
        osds: u32,
        setup: &Setup<'_>,
    ) -> Result<Self> {
        let mut cluster = Self::init(nacre, dir, base_port, mons, osds, setup)?;
        cluster.run_all(mons, osds)?;
        for id in 0..osds {
            cluster.await_osd(id, true, COMMAND_MAX)?;
        }
        Ok(cluster)
    }

    /// Creates a cluster in a directory that does not exist yet; nothing runs.
    ///
    /// # Errors
    /// When the directory or the ports are in use.
    pub fn init(
        nacre: &Path,
        dir: &Path,
        base_port: u16,
        mons: u32,
        osds: u32,
        setup: &Setup<'_>,
    ) -> Result<Self> {
        let [port, mons, osds] = [base_port.into(), mons, osds].map(|number| number.to_string());
        let mut words = vec!["cluster", "init", "--mons", &mons, "--osds", &osds];
        words.extend(["--base-port", &port]);
        for (option, value) in [("--osd-size", setup.osd_size), ("--host", setup.host)] {
            words.extend(value.into_iter().flat_map(|value| [option, value]));
        }
        words.push("--dir");
        run_nacre(nacre, COMMAND_MAX, &words, dir)?;
        let mut cluster = Self::at(nacre, dir);
        cluster.faulty = setup.faulty;
        Ok(cluster)
    }

    /// Starts as many monitors and OSDs, from number 0 on.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_all(&mut self, mons: u32, osds: u32) -> Result<()> {
        let mons = (0..mons).map(|id| ("mon", id));
        let mut all = mons.chain((0..osds).map(|id| ("osd", id)));
        all.try_for_each(|(kind, id)| self.run(kind, id).map(drop))
    }

    /// An existing cluster, none of whose daemons is a child of this process.
    pub fn at(nacre: &Path, dir: &Path) -> Self {
        let (nacre, dir, place) = (nacre.to_owned(), dir.to_owned(), dir.as_os_str().to_owned());
        Self {
            nacre,
            dir,
            place,
            clients: None,
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

    /// Runs `nacre up --detach` with more options, which creates the cluster if there is none;
    /// returns its JSON output.
    ///
    /// # Errors
    /// When it does not serve.
    pub fn up(&self, more: &[&str]) -> Result<Value> {
        let words = [&["up", "--detach"], more, &["--dir"]].concat();
        run_nacre(&self.nacre, UP_MAX, &words, &self.dir)
    }
    /// Runs `nacre up` without `--detach`: a cluster in one process, which ends with the value. Its
    /// output is beside the directory.
    ///
    /// # Errors
    /// When it does not start. Whether it serves is not known yet.
    pub fn up_attached(&self, more: &[&str]) -> Result<Client> {
        let mut up = Command::new(&self.nacre);
        up.arg("up").args(more).arg("--dir").arg(&self.dir);
        Client::begin(&mut up, &self.dir.with_extension("said"))
    }
    /// Runs `nacre down`: ends everything that runs in the directory.
    ///
    /// # Errors
    /// When something does not end.
    pub fn down(&self) -> Result<()> {
        run_nacre(&self.nacre, DOWN_MAX, &["down", "--dir"], &self.dir).map(drop)
    }

    /// The program.
    pub fn nacre(&self) -> &Path {
        &self.nacre
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
        let (daemon, config) = (Command::new(&self.nacre), self.place.clone());
        self.run_with(daemon, kind, id, &config)
    }

    /// The same with the environment of a command, to which the arguments are added, and with
    /// another configuration.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_with(
        &mut self,
        mut daemon: Command,
        kind: &str,
        id: u32,
        config: &OsStr,
    ) -> Result<Instant> {
        let who = format!("{kind}.{id}");
        ensure!(!self.runs(&who), "{who} runs already");
        daemon
            .args([kind, "run", "--id", &id.to_string(), "--config"])
            .arg(config);
        daemon
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(client::appended(&self.log(&who))?);
        if self.faulty {
            daemon.env("NACRE_DEVICE_FAULTS", self.faults_file());
        }
        let begun = Instant::now();
        let child = daemon
            .spawn()
            .with_context(|| format!("{who} does not start"))?;
        self.daemons.insert(who, child);
        Ok(begun)
    }

    /// A daemon's log.
    pub fn log(&self, who: &str) -> PathBuf {
        self.dir.join(format!("{who}.log"))
    }

    /// Whether a daemon was started, and neither killed nor found to have ended.
    pub fn runs(&self, who: &str) -> bool {
        self.daemons.contains_key(who)
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

    /// The process of a daemon: one that this value started, or one of `nacre up`.
    ///
    /// # Errors
    /// When there is none.
    pub fn pid(&self, who: &str) -> Result<u32> {
        match self.daemons.get(who) {
            Some(child) => Ok(child.id()),
            None => running(&self.dir, who),
        }
    }

    /// All daemons that were started and not killed.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.daemons.values().map(Child::id)
    }

    fn must_run(&mut self, who: &str) -> Result<()> {
        ensure!(
            self.ended(who)?.is_none(),
            "{who} had ended by itself: see its log"
        );
        Ok(())
    }
    fn take(&mut self, who: &str) -> Result<Child> {
        let child = self.daemons.remove(who);
        child.with_context(|| format!("{who} was not started"))
    }

    /// Kills a daemon as a crash would (`kill -9`).
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&mut self, who: &str) -> Result<Instant> {
        self.must_run(who)?;
        let mut child = self.take(who)?;
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
        self.must_run(who)?;
        let status = self.end_anyhow(who, COMMAND_MAX)?;
        ensure!(
            ended_well(status),
            "{who} was told to end and ended badly ({status}): see its log"
        );
        Ok(Instant::now())
    }

    /// As [`Self::end`], for a daemon that may end badly or have ended: returns its exit status.
    ///
    /// # Errors
    /// When it was not started, or does not end within `limit`.
    pub fn end_anyhow(&mut self, who: &str, limit: Duration) -> Result<ExitStatus> {
        let mut child = self.take(who)?;
        terminated(&mut child, limit).with_context(|| format!("{who} was told to end"))
    }

    /// Sends a signal such as `STOP`.
    ///
    /// # Errors
    /// When the daemon does not run.
    pub fn signal(&self, who: &str, name: &str) -> Result<Instant> {
        signal(self.pid(who)?, name)?;
        Ok(Instant::now())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for pid in self.pids() {
            // A suspended process does not receive the signal.
            let _ = signal(pid, "CONT");
        }
        if !self.daemons.is_empty() && self.place == self.dir {
            let _ = self.down();
        }
        for daemon in self.daemons.values_mut() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// Terminates a process, also one that is suspended, and waits for its end.
fn terminated(child: &mut Child, limit: Duration) -> Result<ExitStatus> {
    let pid = child.id();
    if child.try_wait().context("waiting for a daemon")?.is_none() {
        signal(pid, "TERM")?;
        // A suspended process cannot receive the signal: it is resumed, as service managers do.
        let _ = signal(pid, "CONT");
    }
    bounded::ended(child, limit)
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

/// The process of a daemon according to its file in a cluster's directory: Nacre's or Ceph's.
///
/// # Errors
/// When it does not run.
pub fn running(dir: &Path, who: &str) -> Result<u32> {
    let path = dir.join("run").join(format!("{who}.pid"));
    let text = fs::read_to_string(&path)
        .with_context(|| format!("{who} does not run: {}", path.display()))?;
    let pid = text
        .trim()
        .parse()
        .with_context(|| format!("{} holds no number", path.display()))?;
    ensure!(
        guard::processes(dir).iter().any(|(one, _)| *one == pid),
        "{who} does not run: process {pid} is another"
    );
    Ok(pid)
}

/// The command that runs a program in a network namespace. The program replaces the one that enters
/// the namespace: its process id is the child's.
pub fn program_in(namespace: Option<&Path>, program: &Path) -> Command {
    let Some(namespace) = namespace else {
        return Command::new(program);
    };
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net={}", namespace.display()))
        .arg(program);
    command
}
