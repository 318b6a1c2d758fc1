//! `nacre doctor`: examines the machine and the cluster's directory, and reports problems with
//! recommended actions.
//!
//! ```text
//!  machine  open files, I/O engine, clock          stores   present? ours? space, file system, flushes
//!                                                  run      locks, left-over pid files, ports
//!                                                  cluster  if it runs: health, the monitors' clock
//! ```
//! It changes nothing; the flush measurement writes a small file beside the stores and removes it.

mod disks;

use crate::clock::{now_unix_ms, utc};
use crate::cluster::{Commands, Place, host};
use crate::out::Out;
use anyhow::Result;
use nacre_command::{Command, LogLast, Whole};
use nacre_node::{Config, locks, machine, port_is_free};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// No problem.
    Ok,
    /// It works, but an operator should know.
    Warn,
    /// It does not work, or data are at risk.
    Error,
}
impl Severity {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// Its subject, one word.
    pub about: &'static str,
    /// The finding.
    pub text: String,
    /// Recommended action; empty if none.
    pub what_to_do: String,
}

fn ok(about: &'static str, text: impl Into<String>) -> Finding {
    Finding {
        severity: Severity::Ok,
        about,
        text: text.into(),
        what_to_do: String::new(),
    }
}
fn warn(about: &'static str, text: impl Into<String>, what_to_do: impl Into<String>) -> Finding {
    Finding {
        severity: Severity::Warn,
        about,
        text: text.into(),
        what_to_do: what_to_do.into(),
    }
}
fn error(about: &'static str, text: impl Into<String>, what_to_do: impl Into<String>) -> Finding {
    Finding {
        severity: Severity::Error,
        about,
        text: text.into(),
        what_to_do: what_to_do.into(),
    }
}

/// Minimum number of open files for a daemon: stores, sockets of a few dozen clients and peers.
const OPEN_FILES_LEAST: u64 = 256;
const OPEN_FILES_GOOD: u64 = 4096;

fn open_files(max: Option<u64>) -> Finding {
    let advice = "raise it: `ulimit -n 65536`, or LimitNOFILE=65536 in the service's unit";
    match max {
        None => ok("files", "any number of files may be open"),
        Some(max) if max < OPEN_FILES_LEAST => error(
            "files",
            format!("only {max} files may be open at once"),
            advice,
        ),
        Some(max) if max < OPEN_FILES_GOOD => warn(
            "files",
            format!("{max} files may be open at once; every client of a daemon takes one"),
            advice,
        ),
        Some(max) => ok("files", format!("{max} files may be open at once")),
    }
}

fn engine() -> Finding {
    let uring = match std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled") {
        Ok(text) if text.trim() == "0" => "the kernel offers it",
        Ok(_) => "the kernel has it switched off",
        Err(_) => "the kernel does not say whether it offers it",
    };
    ok("engine", format!("{} ({uring})", machine::IO_ENGINE))
}

/// 2024-01-01: before this program existed.
const NOT_BEFORE_MS: u64 = 1_704_067_200_000;
/// Smaller differences are not reported.
const CLOCK_SLACK_MS: u64 = 2_000;

/// `seen`: times recorded by others, with their sources.
fn clock(now_ms: u64, seen: &[(String, u64)]) -> Finding {
    let advice = "set it, and keep it with NTP; leases do not depend on it, but logs and people do";
    if now_ms < NOT_BEFORE_MS {
        return error(
            "clock",
            format!("this machine believes it is {}", utc(now_ms)),
            advice,
        );
    }
    match seen
        .iter()
        .filter(|(_, ms)| *ms > now_ms + CLOCK_SLACK_MS)
        .max_by_key(|(_, ms)| *ms)
    {
        Some((what, ms)) => {
            let text = format!(
                "{what} is of {}, but here it is {}: one of the clocks is wrong",
                utc(*ms),
                utc(now_ms)
            );
            warn("clock", text, advice)
        }
        None => ok(
            "clock",
            format!("{}, and nothing is from the future", utc(now_ms)),
        ),
    }
}

fn permissions(path: &Path) -> Option<Finding> {
    let mode = path.metadata().ok()?.permissions().mode();
    (mode & 0o002 != 0).then(|| {
        let at = path.display();
        warn(
            "rights",
            format!("everybody on this machine may write to {at}"),
            format!("chmod o-w {at}"),
        )
    })
}

fn what_runs(config: &Config, findings: &mut Vec<Finding>) -> Result<Vec<String>> {
    let holders = locks::holders(&config.dir)?;
    let mut running = Vec::new();
    for holder in &holders {
        if let locks::Part::Daemon(who) = &holder.part {
            running.push(who.clone());
        }
    }
    if holders
        .iter()
        .any(|holder| holder.part == locks::Part::Embedded)
    {
        running.extend(config.mons.keys().map(ToString::to_string));
        running.extend(config.osds.keys().map(ToString::to_string));
    }
    let all = config.mons.len() + config.osds.len();
    findings.push(match holders.first() {
        None => ok("running", "nothing runs in this folder"),
        Some(first) if first.part == locks::Part::Embedded => ok("running", "all daemons, in one process"),
        Some(_) if running.len() >= all => ok("running", format!("all {all} daemons, each in its process")),
        Some(_) => {
            let missing =
                config.mons.keys().map(ToString::to_string).chain(config.osds.keys().map(ToString::to_string));
            let missing: Vec<String> = missing.filter(|who| !running.contains(who)).collect();
            let how = "start each with `nacre osd run` or `nacre mon run`; DIR/run/NAME.log says why it ended";
            warn("running", format!("{} do not run, the others do", missing.join(", ")), how)
        }
    });
    let stale = locks::stale_pids(&config.dir)?;
    if !stale.is_empty() {
        let names: Vec<String> = stale
            .iter()
            .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .collect();
        let text = format!(
            "{} are left over by a crash: no such daemon runs",
            names.join(", ")
        );
        findings.push(warn(
            "running",
            text,
            "nothing: the next `nacre up` or `nacre down` removes them",
        ));
    }
    Ok(running)
}

fn ports(config: &Config, running: &[String], findings: &mut Vec<Finding>) {
    let mut free = 0;
    for (who, address) in config
        .addresses()
        .filter(|(who, address)| !running.contains(who) && !address.is_empty())
    {
        match port_is_free(&who, address) {
            Ok(()) => free += 1,
            Err(why) => {
                let advice = format!(
                    "`ss -ltnp 'sport = :{}'` shows who has it",
                    address.rsplit(':').next().unwrap_or("")
                );
                findings.push(error("ports", why.to_string(), advice));
            }
        }
    }
    if free > 0 {
        findings.push(ok(
            "ports",
            format!("the ports of {free} daemons that do not run are free"),
        ));
    }
}

/// Queries the running cluster.
fn ask(cluster: &mut dyn Commands, findings: &mut Vec<Finding>, times: &mut Vec<(String, u64)>) {
    match cluster.command(&Command::HealthDetail {}) {
        Ok(reply) => {
            for check in reply["checks"].as_array().into_iter().flatten() {
                let word = |name: &str| check[name].as_str().unwrap_or_default().to_owned();
                let make = if check["severity"] == "error" {
                    error
                } else {
                    warn
                };
                findings.push(make(
                    "health",
                    format!("{}: {}", word("code"), word("summary")),
                    word("what_to_do"),
                ));
            }
            if reply["status"] == "ok" {
                findings.push(ok("health", "HEALTH_OK"));
            }
        }
        Err(why) => {
            let advice = "see that the monitors run (`nacre mon stat`) and their ports are right in cluster.toml";
            findings.push(error(
                "health",
                format!("the monitors do not answer: {why:#}"),
                advice,
            ));
        }
    }
    if let Ok(reply) = cluster.command(&Command::LogLast(LogLast {
        n: Some(Whole(1)),
        severity: None,
    })) {
        for line in reply["lines"].as_array().into_iter().flatten() {
            if let Some(ms) = line["unix_ms"].as_u64() {
                times.push(("the cluster log's last line".to_owned(), ms));
            }
        }
    }
}

/// All checks, the worst findings last.
fn examine(place: &Place) -> Result<Vec<Finding>> {
    let mut findings = vec![open_files(machine::open_files_max()), engine()];
    let mut times: Vec<(String, u64)> = Vec::new();
    let folder = place.folder();
    if !place.exists() {
        findings.push(ok(
            "cluster",
            format!(
                "{} holds no cluster; only the machine was looked at",
                folder.display()
            ),
        ));
        let near = folder
            .ancestors()
            .find(|path| path.is_dir())
            .map_or_else(|| PathBuf::from("."), Path::to_path_buf);
        disks::look(&[(None, near)], &mut findings);
        findings.push(clock(now_unix_ms(), &times));
        return Ok(findings);
    }
    let config = match place.config() {
        Ok(config) => config,
        Err(why) => {
            let advice = "correct the file; docs/formats/config.md explains every key";
            findings.push(error("config", format!("{why:#}"), advice));
            return Ok(findings);
        }
    };
    let (mons, osds) = (config.mons.len(), config.osds.len());
    findings.push(ok(
        "config",
        format!(
            "cluster {} of {mons} monitors and {osds} OSDs",
            config.cluster
        ),
    ));
    let file = config.dir.join(nacre_node::config::FILE_NAME);
    findings.extend(permissions(&file));
    let run = locks::run_folder(&config.dir);
    if run.exists() && tempfile_fails(&run) {
        let advice = format!(
            "chown or chmod {} so that the daemons' user may write to it",
            run.display()
        );
        findings.push(error(
            "rights",
            format!("{} cannot be written: no daemon can lock it", run.display()),
            advice,
        ));
    }
    match what_runs(&config, &mut findings) {
        Ok(running) => {
            ports(&config, &running, &mut findings);
            let mons = config
                .mons
                .iter()
                .map(|(id, entry)| (Some((id.to_string(), entry.size)), entry.path.clone()));
            let osds = config
                .osds
                .iter()
                .map(|(id, entry)| (Some((id.to_string(), entry.size)), entry.path.clone()));
            let stores: Vec<_> = mons.chain(osds).collect();
            disks::look(&stores, &mut findings);
            times.extend(stores.iter().filter_map(|(_, path)| {
                Some((format!("the store {}", path.display()), changed_ms(path)?))
            }));
            if !running.is_empty() {
                ask(
                    &mut *host::ask_patiently(&config.dir, Duration::from_secs(5))?,
                    &mut findings,
                    &mut times,
                );
            }
        }
        Err(why) => findings.push(error(
            "rights",
            format!("{why:#}"),
            "run this as the user that runs the daemons",
        )),
    }
    findings.push(clock(now_unix_ms(), &times));
    Ok(findings)
}

fn changed_ms(path: &Path) -> Option<u64> {
    let since = path
        .metadata()
        .ok()?
        .modified()
        .ok()?
        .duration_since(std::time::UNIX_EPOCH)
        .ok()?;
    u64::try_from(since.as_millis()).ok()
}

fn tempfile_fails(folder: &Path) -> bool {
    let path = folder.join(format!(".nacre-doctor-{}", std::process::id()));
    let failed = std::fs::write(&path, "").is_err();
    let _ = std::fs::remove_file(&path);
    failed
}

fn as_json(finding: &Finding) -> Value {
    json!({
        "severity": finding.severity.word(),
        "about": finding.about,
        "text": finding.text,
        "what_to_do": finding.what_to_do,
    })
}

/// Runs all checks, and reports. The exit code is 1 if something is an error.
///
/// # Errors
/// When standard output is closed.
pub fn run(place: &Place, out: &mut Out) -> Result<ExitCode> {
    let mut findings = examine(place)?;
    findings.sort_by_key(|finding| finding.severity);
    let worst = findings
        .last()
        .map_or(Severity::Ok, |finding| finding.severity);
    if out.json() {
        out.value(&json!({ "worst": worst.word(), "findings": findings.iter().map(as_json).collect::<Vec<_>>() }))?;
    } else {
        for finding in &findings {
            out.line(&format!(
                "{:<5} {:<7} {}",
                finding.severity.word(),
                finding.about,
                finding.text
            ))?;
            if !finding.what_to_do.is_empty() {
                out.line(&format!("              → {}", finding.what_to_do))?;
            }
        }
    }
    Ok(if worst == Severity::Error {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_open_files_are_said() {
        assert_eq!(open_files(Some(100)).severity, Severity::Error);
        assert_eq!(open_files(Some(1024)).severity, Severity::Warn);
        assert_eq!(open_files(Some(1 << 20)).severity, Severity::Ok);
        assert_eq!(open_files(None).severity, Severity::Ok);
    }

    #[test]
    fn clocks_that_cannot_be_right_are_said() {
        let now = NOT_BEFORE_MS + 1_000_000;
        assert_eq!(clock(1_000, &[]).severity, Severity::Error);
        assert_eq!(
            clock(now, &[("a".into(), now + 1_000), ("b".into(), 0)]).severity,
            Severity::Ok
        );
        let found = clock(now, &[("a".into(), now), ("the log".into(), now + 60_000)]);
        assert!(
            found.severity == Severity::Warn && found.text.starts_with("the log is of"),
            "{found:?}"
        );
    }
}
