//! Clients in the background that record what they saw (`nacre bench register`, `keys`), and the
//! verdict on that: whether it is linearizable.

use super::client::Client;
use super::{Cluster, run_nacre};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Maximum time of the check: a history of millions takes time.
const CHECK_MAX: Duration = Duration::from_mins(10);

/// See the module head. Killed when dropped.
pub struct History {
    /// The clients.
    pub clients: Client,
    file: PathBuf,
}

impl History {
    /// Starts clients, for a fixed time; `how` are arguments for `bench`.
    ///
    /// # Errors
    /// When they do not start.
    pub fn begin(cluster: &Cluster, name: &str, how: &str) -> Result<Self> {
        let file = cluster.dir().join(format!("{name}.history"));
        let mut command = cluster.command();
        command.arg("bench").args(how.split(' '));
        command.arg("--history").arg(&file);
        let clients = Client::begin(&mut command, &file.with_extension("said"))?;
        Ok(Self { clients, file })
    }

    /// Waits for their end; returns what they reported, and the verdict.
    ///
    /// # Errors
    /// When they do not end within `limit`, one could not continue or received an impossible
    /// answer, or the history is not linearizable.
    pub fn finish(self, cluster: &Cluster, limit: Duration) -> Result<(Value, Value)> {
        let said = self.clients.finish(limit)?;
        let words = ["history", "check"];
        let judged = run_nacre(cluster.nacre(), CHECK_MAX, &words, &self.file)
            .with_context(|| format!("the history {}", self.file.display()))?;
        ensure!(
            judged["linearizable"] == true,
            "the history {} is not linearizable: {judged}",
            self.file.display()
        );
        Ok((said, judged))
    }
}
