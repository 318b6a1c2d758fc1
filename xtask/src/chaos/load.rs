//! Permanent load of clients: private objects with a ledger, shared registers and metadata keys
//! with histories.

use super::town::Town;
use crate::bounded;
use crate::cluster::succeeds;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A client gives up an operation after 30 s; then it may end.
const END_MAX: Duration = Duration::from_secs(120);
const CHECK_MAX: Duration = Duration::from_mins(10);
/// The class called in addition to the built-in one with the same behaviour.
const TALLY: &str = include_str!("../../../crates/policy/benches/tally.lua");

/// The pools, their numbers of replicas and PGs.
pub const POOLS: [(&str, &str, &str); 3] = [
    ("data", "3", "8"),
    ("small", "2", "4"),
    ("registers", "3", "4"),
];

/// The output of a load.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ledger,
    History,
}

struct Load {
    name: String,
    kind: Kind,
    child: Child,
    file: PathBuf,
    said: PathBuf,
}

impl Load {
    fn start(town: &Town, name: &str, kind: Kind, words: Vec<String>) -> Result<Self> {
        let ending = if kind == Kind::Ledger {
            "ledger"
        } else {
            "history"
        };
        let (file, said) = (
            town.dir.join(format!("{name}.{ending}")),
            town.dir.join(format!("{name}.said")),
        );
        let out = File::create(&said).with_context(|| format!("writing {}", said.display()))?;
        let mut command = town.command();
        command.arg("bench").args(words).arg(&file);
        command
            .stdin(Stdio::null())
            .stdout(out.try_clone().context("using a file twice")?)
            .stderr(out);
        let child = command.spawn().context("nacre does not start")?;
        Ok(Self {
            name: name.to_owned(),
            kind,
            child,
            file,
            said,
        })
    }
    fn tell_to_stop(&self) -> Result<()> {
        fs::write(self.file.with_extension("ledger.stop"), "").context("telling a load to stop")
    }
    /// Whether it succeeded, and its output.
    fn ended(&mut self) -> Result<(bool, String)> {
        let status = bounded::ended(&mut self.child, END_MAX)
            .with_context(|| format!("the load {}", self.name))?;
        Ok((
            status.success(),
            fs::read_to_string(&self.said).unwrap_or_default(),
        ))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A temporary pool, with a client that writes to it.
pub struct Passing {
    pool: String,
    load: Load,
}

impl Passing {
    /// Creates the pool and starts its client.
    ///
    /// # Errors
    /// When it does not start.
    pub fn begin(town: &Town, pool: String) -> Result<Self> {
        let words = format!("ledger write --pool {pool} --clients 2 --pause-ms 10 --seconds 3600");
        let load = Load::start(
            town,
            &pool,
            Kind::Ledger,
            words.split(' ').map(str::to_owned).collect(),
        )?;
        Ok(Self { pool, load })
    }
    /// Its name.
    pub fn pool(&self) -> &str {
        &self.pool
    }
    /// Tells its client to end, which must happen in every state.
    ///
    /// # Errors
    /// When it does not.
    pub fn stop(&mut self) -> Result<(bool, String)> {
        self.load.tell_to_stop()?;
        self.load.ended()
    }
    /// Whether its client has found the pool: then it writes, and regularly reports waiting
    /// operations.
    pub fn has_begun(&self) -> bool {
        self.load.file.with_extension("ledger.waiting").exists()
    }
    /// Checks that everything its client wrote is present.
    ///
    /// # Errors
    /// The missing object.
    pub fn verify(&self, town: &Town) -> Result<()> {
        let mut command = town.command();
        command
            .args(["bench", "ledger", "verify", "--pool", &self.pool])
            .arg(&self.load.file);
        succeeds(&mut command, CHECK_MAX).map(drop)
    }
}

/// All loads; killed when dropped.
pub struct Loads(Vec<Load>);

impl Loads {
    /// Creates pools and class, and starts the loads, for this many seconds of faults.
    ///
    /// # Errors
    /// When something does not start.
    pub fn begin(town: &Town, seconds: u64) -> Result<Self> {
        for (name, size, groups) in POOLS {
            town.ask(&["pool", "create", name, "--size", size, "--pg-num", groups])?;
        }
        let source = town.dir.join("tally.lua");
        fs::write(&source, TALLY).context("writing a class")?;
        town.ask(&["class", "install", "chaos_tally", &source.to_string_lossy()])?;
        let mut loads = Self(Vec::new());
        // Ledgers run until they are stopped; a history has a fixed length.
        let (long, short) = ((seconds + 3_600).to_string(), (seconds + 10).to_string());
        let ledger = |pool: &'static str, clients: &str, pause: &str| {
            let words = [
                "ledger",
                "write",
                "--pool",
                pool,
                "--clients",
                clients,
                "--pause-ms",
                pause,
            ];
            words
                .iter()
                .map(ToString::to_string)
                .chain(["--seconds".into(), long.clone()])
                .collect::<Vec<String>>()
        };
        let words = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
        loads.one(town, "data", Kind::Ledger, ledger("data", "4", "10"))?;
        loads.one(town, "small", Kind::Ledger, ledger("small", "2", "20"))?;
        let register =
            format!("register --clients 3 --keys 4 --pool registers --seconds {short} --history");
        loads.one(town, "registers", Kind::History, words(&register))?;
        let keys = format!("keys --clients 2 --watchers 2 --keys 4 --seconds {short} --history");
        loads.one(town, "keys", Kind::History, words(&keys))?;
        Ok(loads)
    }

    fn one(
        &mut self,
        town: &Town,
        name: &'static str,
        kind: Kind,
        words: Vec<String>,
    ) -> Result<()> {
        self.0.push(Load::start(town, name, kind, words)?);
        Ok(())
    }

    /// Checks that all loads still run.
    ///
    /// # Errors
    /// The load that ended, and its output.
    pub fn check(&mut self) -> Result<()> {
        for load in &mut self.0 {
            if let Some(status) = load.child.try_wait().context("waiting for a load")? {
                let said = fs::read_to_string(&load.said).unwrap_or_default();
                ensure!(
                    load.kind == Kind::History && status.success(),
                    "the load {} ended ({status}): {said}",
                    load.name
                );
            }
        }
        Ok(())
    }

    /// Ends them; returns the output of each, if all succeeded.
    ///
    /// # Errors
    /// An impossible observation of a client.
    pub fn finish(mut self, nacre: &Path) -> Result<Vec<(String, Value)>> {
        let mut found = Vec::new();
        for load in self.0.iter().filter(|load| load.kind == Kind::Ledger) {
            load.tell_to_stop()?;
        }
        for load in &mut self.0 {
            let (good, said) = load.ended()?;
            ensure!(good, "the load {} failed: {}", load.name, said.trim());
            let mut value = crate::cluster::load::first_json(&said).unwrap_or_default();
            if load.kind == Kind::History {
                let mut check = Command::new(nacre);
                // The exit code is the verdict; a history of millions takes time.
                let judged = succeeds(
                    check.args(["--json", "history", "check"]).arg(&load.file),
                    CHECK_MAX,
                )
                .with_context(|| format!("the history {}", load.name))?;
                ensure!(
                    judged["linearizable"] == true,
                    "the history {} is not linearizable: {judged}",
                    load.name
                );
                value = serde_json::json!({ "operations": judged["operations"], "unknown": value["unknown"] });
            }
            found.push((load.name.clone(), value));
        }
        Ok(found)
    }
}
