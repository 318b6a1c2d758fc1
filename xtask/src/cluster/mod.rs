//! A cluster of processes, controlled from outside: the only way in which `./x` starts, asks, kills,
//! stops and takes down Nacre's daemons.
//!
//! ```text
//!  start: `cluster init`, mon.0 … osd.N ─┐                 ┌─▶ kill, end, signal, run again
//!  up: `nacre up`, embedded or processes ┼─▶ Cluster ──────┼─▶ ask: `nacre --json …`, until its answer is the wanted one
//!  at, on_ceph: one that is there        ┘    │            └─▶ clients in the background
//!                                             └─ dropped: `nacre down`, then killed
//! ```
//! * [`client`]: a command in the background; [`load`], [`ledger`], [`history`]: those that work on
//!   objects, record what was acknowledged, and record what was seen;
//! * [`guard`]: cleans up after any end, Ctrl-C too.
//!
//! Invariant: every wait is bounded, and no daemon outlives the value. (Ctrl-C does not drop
//! values: see [`guard`].)

pub mod client;
pub mod guard;
pub mod history;
pub mod ledger;
pub mod load;

use crate::bounded;
use anyhow::{Context, Result, bail, ensure};
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
/// Maximum time until health is good after something was created.
const HEALTHY_MAX: Duration = Duration::from_mins(5);
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

    /// `nacre --json --cluster DIR`, as a client; the caller adds arguments.
    pub fn command(&self) -> Command {
        self.command_in(self.clients.as_deref())
    }

    /// The same in another network namespace.
    pub fn command_in(&self, namespace: Option<&Path>) -> Command {
        let mut command = program_in(namespace, &self.nacre);
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

    /// As [`Self::ask_for`], with a path as the last argument.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn ask_with(&self, limit: Duration, arguments: &[&str], path: &Path) -> Result<Value> {
        succeeds(self.command().args(arguments).arg(path), limit)
    }

    /// Asks until something is `found` in the answer.
    ///
    /// # Errors
    /// That of a command that fails; also when nothing is found within `limit`: then `what` did not
    /// happen.
    pub fn until<T>(
        &self,
        what: &str,
        limit: Duration,
        arguments: &[&str],
        found: impl Fn(&Value) -> Option<T>,
    ) -> Result<T> {
        bounded::until(what, limit, || Ok(found(&self.ask(arguments)?)))
    }

    /// Waits until an OSD is up or down; returns the time at which this was observed.
    ///
    /// # Errors
    /// When that does not happen within `limit`, or the OSD ended by itself.
    pub fn await_osd(&mut self, id: u32, up: bool, limit: Duration) -> Result<Instant> {
        let who = format!("osd.{id}");
        let word = if up { "up" } else { "down" };
        bounded::until(&format!("{who} is {word}"), limit, || {
            if self.runs(&who)
                && let Some(status) = self.ended(&who)?
            {
                bail!("{who} ended by itself ({status}): see its log");
            }
            let tree = self.ask(&["osd", "tree"])?;
            Ok((is_up(&tree, id) == Some(up)).then(Instant::now))
        })
    }

    /// Creates pools of three replicas and 32 PGs, and waits until health is good.
    ///
    /// # Errors
    /// The remaining problem.
    pub fn pools(&self, names: &[&str]) -> Result<()> {
        for pool in names {
            self.ask(&["pool", "create", pool, "--size", "3", "--pg-num", "32"])?;
        }
        self.await_health(HEALTHY_MAX)
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

    /// The same as soon as the monitors commit it: refusals without a leader are expected.
    ///
    /// # Errors
    /// When they do not within `limit`.
    pub fn await_change(&self, limit: Duration) -> Result<u64> {
        bounded::until("the map can be changed", limit, || {
            Ok(self.change_map().ok())
        })
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

    /// What the cluster says of its state, for a finding.
    pub fn describe(&self) -> String {
        let queries = [
            &["health", "detail"][..],
            &["status"],
            &["pg", "ls"],
            &["osd", "tree"],
            &["log", "last", "200"],
        ];
        let said = |words: &[&str]| match self.ask(words) {
            Ok(answer) => format!("── {}\n{answer:#}\n", words.join(" ")),
            Err(why) => format!("── {}\n{why:#}\n", words.join(" ")),
        };
        queries.map(said).concat()
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

/// Runs `nacre --json …` without a cluster, with a path as the last argument; returns its output.
///
/// # Errors
/// As [`succeeds`].
pub fn run_nacre(nacre: &Path, limit: Duration, words: &[&str], path: &Path) -> Result<Value> {
    let mut command = Command::new(nacre);
    succeeds(command.arg("--json").args(words).arg(path), limit)
}

/// Runs a program; returns its JSON output, or nothing if there is none.
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

/// Whether all PGs are clean.
pub fn is_clean(status: &Value) -> bool {
    all_groups(status, |state| state == "active+clean")
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
    fn clean_is_all_groups_and_nothing_else() {
        let status = |states| json!({ "pgs": { "by_state": states } });
        assert!(is_clean(&status(json!({ "active+clean": 3 }))));
        assert!(!is_clean(&status(
            json!({ "active+clean": 3, "active+degraded": 1 })
        )));
        assert!(!is_clean(&status(json!({}))));
    }

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
