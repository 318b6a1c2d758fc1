//! Clients in the background that record what was acknowledged (`nacre bench ledger`), and the
//! verification.

use super::Cluster;
use super::client::Client;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Maximum time for reading everything back.
const VERIFY_MAX: Duration = Duration::from_mins(20);

/// Clients working on one pool; killed when dropped.
pub struct Ledger {
    /// The clients.
    pub clients: Client,
    pool: String,
    file: PathBuf,
}

impl Ledger {
    /// Starts them; `how` are arguments for `bench ledger write`.
    ///
    /// # Errors
    /// When they do not start.
    pub fn begin(cluster: &Cluster, pool: &str, how: &str) -> Result<Self> {
        let file = cluster.dir().join(format!("{pool}.ledger"));
        let mut command = cluster.command();
        command
            .args(["bench", "ledger", "write", "--pool", pool])
            .args(how.split(' '))
            .arg(&file);
        let clients = Client::begin(&mut command, &file.with_extension("said"))?;
        let pool = pool.to_owned();
        Ok(Self {
            clients,
            pool,
            file,
        })
    }

    /// The pool.
    pub fn pool(&self) -> &str {
        &self.pool
    }
    /// The file in which they report the operation that waits longest.
    pub fn waiting(&self) -> PathBuf {
        self.file.with_extension("ledger.waiting")
    }

    /// Tells them to end.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn tell_to_stop(&self) -> Result<()> {
        fs::write(self.file.with_extension("ledger.stop"), "").context("telling clients to stop")
    }
    /// Tells them to end, and waits for that; returns whether they succeeded.
    ///
    /// # Errors
    /// When they do not end within `limit`.
    pub fn stop(&mut self, limit: Duration) -> Result<bool> {
        self.tell_to_stop()?;
        Ok(self.clients.wait(limit)?.success())
    }
    /// The same for clients that must succeed; returns what they reported.
    ///
    /// # Errors
    /// As [`Self::stop`]; also when they received a wrong answer.
    pub fn end(&mut self, limit: Duration) -> Result<Value> {
        let good = self.stop(limit)?;
        let said = || format!("clients of {} failed: {}", self.pool, self.clients.said());
        ensure!(good, said());
        Ok(self.clients.answer().unwrap_or_default())
    }

    /// Reads back everything that was acknowledged, and lists it.
    ///
    /// # Errors
    /// What is missing or wrong.
    pub fn verify(&self, cluster: &Cluster) -> Result<()> {
        let words = ["bench", "ledger", "verify", "--pool", &self.pool];
        cluster.ask_with(VERIFY_MAX, &words, &self.file).map(drop)
    }
}

/// Writes, calls, reads and deletes an object of every PG, each within 5 s; returns the times.
///
/// # Errors
/// When one takes longer, or all of it longer than `limit`.
pub fn probe(cluster: &Cluster, pool: &str, limit: Duration) -> Result<Value> {
    let words = ["bench", "ledger", "probe", "--bound-ms", "5000", "--pool"];
    cluster.ask_for(limit, &[&words[..], &[pool]].concat())
}
