//! What clients do all the time: own objects with a ledger, shared registers and keys of metadata
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

/// A client gives an operation up after 30 s; then it may end.
const END_MAX: Duration = Duration::from_secs(120);
const CHECK_MAX: Duration = Duration::from_mins(10);
/// The class whose methods are called beside the built-in one of the same behaviour.
const TALLY: &str = include_str!("../../../crates/policy/benches/tally.lua");

/// The pools, their replicas and their groups.
pub const POOLS: [(&str, &str, &str); 3] = [
    ("data", "3", "8"),
    ("small", "2", "4"),
    ("registers", "3", "4"),
];

/// What a load leaves.
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
    /// Whether it ended well, and what it said.
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

/// A pool that comes and goes, with a client that writes to it.
pub struct Passing {
    pool: String,
    load: Load,
}

impl Passing {
    /// The pool is there, its client begins.
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
    /// What it is called.
    pub fn pool(&self) -> &str {
        &self.pool
    }
    /// Its client is told to end, and has to, whatever it met.
    ///
    /// # Errors
    /// When it does not.
    pub fn stop(&mut self) -> Result<(bool, String)> {
        self.load.tell_to_stop()?;
        self.load.ended()
    }
    /// Whether its client found the pool: then it writes, and says from time to time what waits.
    pub fn has_begun(&self) -> bool {
        self.load.file.with_extension("ledger.waiting").exists()
    }
    /// What its client wrote is there.
    ///
    /// # Errors
    /// What is not.
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
    /// Makes pools and class, and starts the loads, for so many seconds of faults.
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
        // Ledgers go on until they are told to stop; a history has a length.
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

    /// Whether all go on that should.
    ///
    /// # Errors
    /// Who ended, and what it said.
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

    /// Ends them; gives what each said, if all went well for each.
    ///
    /// # Errors
    /// What a client saw that cannot be.
    pub fn finish(mut self, nacre: &Path) -> Result<Vec<(String, Value)>> {
        let mut found = Vec::new();
        for load in self.0.iter().filter(|load| load.kind == Kind::Ledger) {
            load.tell_to_stop()?;
        }
        for load in &mut self.0 {
            let (good, said) = load.ended()?;
            ensure!(good, "the load {} failed: {}", load.name, said.trim());
            let mut value = crate::show::load::first_json(&said).unwrap_or_default();
            if load.kind == Kind::History {
                let mut check = Command::new(nacre);
                // Its code says whether it is; a history of millions takes its time.
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
