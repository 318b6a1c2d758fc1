//! Commands of a cluster and their answers, and what is awaited in them.

use super::{COMMAND_MAX, Cluster, program_in};
use crate::bounded;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Maximum time until health is good after something was created.
const HEALTHY_MAX: Duration = Duration::from_mins(5);

impl Cluster {
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
