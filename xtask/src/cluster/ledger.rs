//! Clients in the background that record what was acknowledged (`nacre bench ledger`), and the
//! verification.

use crate::bounded::{self, Killed};
use crate::cluster::{Cluster, succeeds};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// Maximum time for reading everything back.
const VERIFY_MAX: Duration = Duration::from_mins(20);

/// Clients working on one pool; killed when dropped.
pub struct Ledger {
    clients: Killed,
    file: PathBuf,
}

impl Ledger {
    /// Starts them; `how` are arguments for `bench ledger write`.
    ///
    /// # Errors
    /// When they do not start.
    pub fn begin(cluster: &Cluster, pool: &str, how: &[&str]) -> Result<Self> {
        let file = cluster.dir().join(format!("{pool}.ledger"));
        let said = file.with_extension("said");
        let said = File::create(&said).with_context(|| format!("making {}", said.display()))?;
        let mut command = cluster.command();
        command
            .args(["bench", "ledger", "write", "--pool", pool])
            .args(how)
            .arg(&file);
        command
            .stdin(Stdio::null())
            .stdout(said.try_clone().context("using a file twice")?)
            .stderr(said);
        Ok(Self {
            clients: Killed(command.spawn().context("nacre does not start")?),
            file,
        })
    }

    /// Tells them to end, and waits for that; returns the file that records what was acknowledged.
    ///
    /// # Errors
    /// When they do not end within `limit`, or received a wrong answer.
    pub fn end(mut self, limit: Duration) -> Result<PathBuf> {
        fs::write(self.file.with_extension("ledger.stop"), "")
            .context("telling the clients to stop")?;
        let status = bounded::ended(&mut self.clients.0, limit).context("the clients")?;
        let said = fs::read_to_string(self.file.with_extension("said")).unwrap_or_default();
        ensure!(status.success(), "the clients failed: {}", said.trim());
        Ok(self.file.clone())
    }
}

/// Reads back everything that was acknowledged, and lists it.
///
/// # Errors
/// What is missing or wrong.
pub fn verify(cluster: &Cluster, pool: &str, ledger: &Path) -> Result<()> {
    let mut command = cluster.command();
    succeeds(
        command
            .args(["bench", "ledger", "verify", "--pool", pool])
            .arg(ledger),
        VERIFY_MAX,
    )
    .map(drop)
}

/// Writes, calls, reads and deletes an object of every PG, each within 5 s; returns the times.
///
/// # Errors
/// When one takes longer, or all of it longer than `limit`.
pub fn probe(cluster: &Cluster, pool: &str, limit: Duration) -> Result<Value> {
    let mut command = cluster.command();
    succeeds(
        command.args([
            "bench",
            "ledger",
            "probe",
            "--pool",
            pool,
            "--bound-ms",
            "5000",
        ]),
        limit,
    )
}
