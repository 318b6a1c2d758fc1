//! Permanent load of clients: private objects with a ledger, shared registers and metadata keys
//! with histories.

use super::town::Town;
use crate::cluster::history::History;
use crate::cluster::ledger::Ledger;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// A client gives up an operation after 30 s; then it may end.
pub const LOAD_END_MAX: Duration = Duration::from_secs(120);
/// The class called in addition to the built-in one with the same behaviour.
const TALLY: &str = include_str!("../../../crates/policy/benches/tally.lua");

/// The pools, their numbers of replicas and PGs.
pub const POOLS: [(&str, &str, &str); 3] = [
    ("data", "3", "8"),
    ("small", "2", "4"),
    ("registers", "3", "4"),
];

/// All loads; killed when dropped.
pub struct Loads {
    ledgers: [Ledger; 2],
    histories: [(&'static str, History); 2],
}

impl Loads {
    /// Creates pools and class, and starts the loads, for this many seconds of faults.
    ///
    /// # Errors
    /// When something does not start.
    pub fn begin(town: &Town, seconds: u64) -> Result<Self> {
        let cluster = &town.cluster;
        for (name, size, groups) in POOLS {
            cluster.ask(&["pool", "create", name, "--size", size, "--pg-num", groups])?;
        }
        let source = cluster.dir().join("tally.lua");
        fs::write(&source, TALLY).context("writing a class")?;
        cluster.ask(&["class", "install", "chaos_tally", &source.to_string_lossy()])?;
        // Ledgers run until they are stopped; a history has a fixed length.
        let (long, short) = (seconds + 3_600, seconds + 10);
        let ledger =
            |pool, how: &str| Ledger::begin(cluster, pool, &format!("{how} --seconds {long}"));
        let history = |name, how: &str| {
            let how = format!("{how} --seconds {short}");
            Ok::<_, anyhow::Error>((name, History::begin(cluster, name, &how)?))
        };
        Ok(Self {
            ledgers: [
                ledger("data", "--clients 4 --pause-ms 10")?,
                ledger("small", "--clients 2 --pause-ms 20")?,
            ],
            histories: [
                history(
                    "registers",
                    "register --clients 3 --keys 4 --pool registers",
                )?,
                history("keys", "keys --clients 2 --watchers 2 --keys 4")?,
            ],
        })
    }

    /// The files in which the ledgers' clients report what waits.
    pub fn waiting(&self) -> Vec<PathBuf> {
        self.ledgers.iter().map(Ledger::waiting).collect()
    }

    /// Checks that all loads still run.
    ///
    /// # Errors
    /// The load that ended, and its output.
    pub fn check(&mut self) -> Result<()> {
        for ledger in &mut self.ledgers {
            ledger.clients.must_run()?;
        }
        for (name, History { clients, .. }) in &mut self.histories {
            if let Some(status) = clients.ended()? {
                let good = status.success();
                ensure!(good, "the load {name} ended ({status}): {}", clients.said());
            }
        }
        Ok(())
    }

    /// Ends them; returns the output of each, if all succeeded.
    ///
    /// # Errors
    /// An impossible observation of a client.
    pub fn finish(self, town: &Town) -> Result<Vec<(String, Value)>> {
        let mut found = Vec::new();
        self.ledgers.iter().try_for_each(Ledger::tell_to_stop)?;
        for mut ledger in self.ledgers {
            let said = ledger.end(LOAD_END_MAX)?;
            found.push((ledger.pool().to_owned(), said));
        }
        for (name, history) in self.histories {
            let (said, judged) = history.finish(&town.cluster, LOAD_END_MAX)?;
            let value = json!({ "operations": judged["operations"], "unknown": said["unknown"] });
            found.push((name.to_owned(), value));
        }
        Ok(found)
    }
}
