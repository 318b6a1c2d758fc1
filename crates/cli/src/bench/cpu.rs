//! CPU time of this process and of the daemons, as accounted by the kernel.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// Microseconds by process: user and system time, all threads.
pub type Used = BTreeMap<String, u64>;

/// A clock tick of `/proc`, in microseconds: Linux reports 100 ticks a second to programs on every
/// machine Rust runs on.
const TICK_US: u64 = 10_000;

/// CPU time so far of this process (`client`) and of every process with a pid file below `run`.
/// Daemons that share a process are one entry.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn used(run: Option<&Path>) -> Result<Used> {
    let me = std::process::id();
    let program = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm"));
    let ours = program("self").context("reading /proc")?;
    let mut pids: BTreeMap<u32, Vec<String>> = BTreeMap::from([(me, vec!["client".to_owned()])]);
    for entry in run.map(std::fs::read_dir).into_iter().flatten().flatten() {
        let path = entry.context("reading the folder of pid files")?.path();
        let Some(name) = path
            .file_stem()
            .map(|name| name.to_string_lossy().into_owned())
        else {
            continue;
        };
        // A daemon that is just stopping removes its file.
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        // Daemons are named by their pid files, the keeper of `up --processes` only by its lock.
        let pid = match path.extension().and_then(|ending| ending.to_str()) {
            Some("pid") => text.trim().parse().ok(),
            Some("lock") if name == "up" => signed(&text),
            _ => None,
        };
        // Files outlive a crash, and the number may then belong to another program.
        let daemon = |name: &str| name == ours || name.starts_with("ceph-");
        let pid = pid.filter(|pid: &u32| program(&pid.to_string()).is_ok_and(|name| daemon(&name)));
        if let Some(pid) = pid {
            pids.entry(pid).or_default().push(name);
        }
    }
    let mut used = Used::new();
    for (pid, mut names) in pids {
        names.sort();
        names.dedup();
        if let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            used.insert(
                names.join("+"),
                ticks(&stat).with_context(|| format!("/proc/{pid}/stat"))? * TICK_US,
            );
        }
    }
    Ok(used)
}

/// The process in a lock file's text: `osd.2 (process 4257)`.
fn signed(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("(process ")?;
    rest.split_once(')')?.0.parse().ok()
}

/// The usage in between; a process that started later counts from its start.
#[must_use]
pub fn between(before: &Used, after: &Used) -> Used {
    after
        .iter()
        .map(|(name, us)| {
            (
                name.clone(),
                us.saturating_sub(before.get(name).copied().unwrap_or(0)),
            )
        })
        .collect()
}

/// User and system time in a line of `/proc/PID/stat`. The name in it may contain spaces and
/// brackets.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let stat = "42 (a ) b) R 1 2 3 4 5 6 7 8 9 10 300 40 0 0 20 0 1 0 5";
        assert_eq!(ticks(stat), Some(340));
        assert_eq!(ticks("nonsense"), None);
    }

    #[test]
    fn this_process_has_used_some() {
        let mut sum = 0_u64;
        while used(None).expect("readable")["client"] == 0 {
            sum = sum.wrapping_add((0..1_000_000_u64).sum::<u64>());
        }
        let now = used(None).expect("readable");
        assert!(between(&now, &now).values().all(|us| *us == 0), "{sum}");
    }
}
