//! Checks every second that health explains waiting operations, and that the memory of each daemon
//! stays within its limit.
//!
//! An operation that has waited longer than the limit, all the time without anything in `health`
//! that could explain it, is a finding. (Earlier health reports count: when all OSDs were away for
//! 8 s, operations are not answered in the moment that they return.)

use crate::{bounded, machine};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum time that an operation may wait without an explanation in health.
pub const BOUND: Duration = Duration::from_secs(5);
/// Additional waiting time of a call on a mount (docs/files.md): the lease of a server that is cut
/// off or suspended, and then the time until mounts that do not answer have lost their caches.
const TAKEOVER: Duration = Duration::from_secs(3 + 6);
/// The initial state, before any fault was injected: no findings until it is known.
const UNKNOWN: Duration = Duration::from_mins(1);

/// Maximum time that a call on a mount may wait without an explanation in health, with the time
/// that faults add.
pub fn files_bound(more: Duration) -> Duration {
    BOUND + TAKEOVER + more
}
/// If health does not answer for this time, that is an explanation: there is no majority.
const HEALTH_MAX: Duration = Duration::from_secs(6);
/// Memory limit of a daemon, in KiB.
const MEMORY_MAX: u64 = 1 << 20;
/// Codes that do not explain why operations on objects wait.
const BESIDE: [&str; 9] = [
    "FLAGS_SET",
    "MON_COUNT",
    "MON_DOWN",
    "MON_JOINING",
    "OSD_LOSS_NO_ROOM",
    "OSD_NEARFULL",
    "POOL_NO_REDUNDANCY",
    "TOO_FEW_OSDS",
    "META_PROGRAM_SUSPENDED",
];
/// Codes that explain why calls on mounts wait, but not operations on objects.
const OF_FILES: [&str; 2] = ["FS_RANK_DOWN", "FS_NO_STANDBY"];

/// The results of the checks.
#[derive(Default)]
pub struct Seen {
    /// Findings.
    pub findings: Vec<String>,
    /// Peak memory, in KiB, by daemon.
    pub memory: BTreeMap<String, u64>,
    /// The longest wait of an operation, in milliseconds, and the operation.
    pub longest: (u64, String),
    /// Number of checks, and number of times that health reported no problem.
    pub looks: (u64, u64),
}

/// The thread that checks.
pub struct Eyes {
    seen: Arc<Mutex<Seen>>,
    over: Arc<AtomicBool>,
    /// Current processes, by daemon; maintained by the plan's thread.
    pub pids: Arc<Mutex<Vec<(String, u32)>>>,
    /// Current value of [`files_bound`], in milliseconds; maintained by the plan's thread.
    pub files_bound_ms: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// The operation that has waited longest.
fn oldest(files: &[PathBuf]) -> Option<(u64, String)> {
    let read = |file: &PathBuf| -> Option<(u64, String)> {
        let value: Value = serde_json::from_str(&fs::read_to_string(file).ok()?).ok()?;
        let first = value.get(0)?;
        Some((first["ms"].as_u64()?, first["what"].as_str()?.to_owned()))
    };
    files.iter().filter_map(read).max()
}

/// The codes in an answer of `health`.
fn codes(health: &Value) -> Vec<String> {
    let checks = health["checks"].as_array().into_iter().flatten();
    checks
        .filter_map(|check| check["code"].as_str())
        .map(str::to_owned)
        .collect()
}

/// Whether nothing in health could explain that an operation on objects waits, or a call on a
/// mount.
fn says_nothing(codes: &[String], of_files: bool) -> bool {
    let beside = |code: &str| BESIDE.contains(&code) || (!of_files && OF_FILES.contains(&code));
    codes.iter().all(|code| beside(code))
}

/// Since when health has explained nothing, and which operation waited at the last check.
#[derive(Default)]
struct Silence {
    since: Option<f64>,
    waited: Option<(u64, String)>,
}

impl Silence {
    /// One check, `at` in seconds; returns whether the operation that has waited longest,
    /// `oldest` milliseconds, has waited longer than the limit without an explanation.
    fn look(&mut self, at: f64, quiet: bool, oldest: &(u64, String), bound: Duration) -> bool {
        self.since = if quiet { self.since.or(Some(at)) } else { None };
        let bound = bound.as_secs_f64();
        let again = self
            .waited
            .replace(oldest.clone())
            .is_some_and(|(ms, what)| what == oldest.1 && ms < oldest.0);
        let silent = self.since.is_some_and(|since| at - since > bound);
        again && silent && oldest.0 as f64 > bound * 1e3
    }
}

/// Memory of a process, in KiB.
fn memory(pid: u32) -> Option<u64> {
    let mib = machine::resident_mib(pid).ok()?;
    Some((mib * 1024.0) as u64)
}

impl Eyes {
    /// Starts the checks; `health` is the query; the files list the waiting operations: on objects,
    /// and on mounts.
    pub fn open(mut health: Command, objects: Vec<PathBuf>, mount: PathBuf, mut log: File) -> Self {
        let (seen, over) = (
            Arc::new(Mutex::new(Seen::default())),
            Arc::new(AtomicBool::new(false)),
        );
        let pids: Arc<Mutex<Vec<(String, u32)>>> = Arc::default();
        let (shared, end, daemons) = (seen.clone(), over.clone(), pids.clone());
        let files_bound_ms = Arc::new(AtomicU64::new(
            u64::try_from(files_bound(UNKNOWN).as_millis()).expect("small"),
        ));
        let bound_ms = files_bound_ms.clone();
        let thread = std::thread::spawn(move || {
            let begun = Instant::now();
            let mut silences = [Silence::default(), Silence::default()];
            while !end.load(Ordering::Relaxed) {
                let answer = bounded::output(&mut health, HEALTH_MAX).ok();
                let answer: Option<Value> =
                    answer.and_then(|output| serde_json::from_slice(&output.stdout).ok());
                let oldest = [&objects[..], std::slice::from_ref(&mount)]
                    .map(|files| oldest(files).unwrap_or_default());
                let codes = answer.as_ref().map(codes);
                let at = begun.elapsed().as_secs_f64();
                let said = codes
                    .as_ref()
                    .map_or("no answer".to_owned(), |codes| codes.join(" "));
                let [object, call] = &oldest;
                let _ = writeln!(
                    log,
                    "{at:7.1} s  oldest {:5} ms, of files {:5} ms  {said}  {}  {}",
                    object.0, call.0, object.1, call.1
                );
                let mut seen = shared.lock().expect("nobody panics with it");
                seen.looks.0 += 1;
                seen.looks.1 += u64::from(said.is_empty());
                let kinds = [
                    (BOUND, false),
                    (
                        Duration::from_millis(bound_ms.load(Ordering::Relaxed)),
                        true,
                    ),
                ];
                for ((silence, oldest), (bound, of_files)) in
                    silences.iter_mut().zip(oldest).zip(kinds)
                {
                    let quiet = codes
                        .as_deref()
                        .is_some_and(|codes| says_nothing(codes, of_files));
                    if silence.look(at, quiet, &oldest, bound) {
                        let (ms, what) = &oldest;
                        seen.findings.push(format!(
                            "{at:.1} s: {what} waits for {ms} ms, and health says only [{said}]"
                        ));
                    }
                    seen.longest = seen.longest.clone().max(oldest);
                }
                for (who, pid) in daemons.lock().expect("nobody panics with it").iter() {
                    let Some(now) = memory(*pid) else { continue };
                    let most = seen.memory.entry(who.clone()).or_default();
                    *most = (*most).max(now);
                    if now > MEMORY_MAX {
                        seen.findings
                            .push(format!("{at:.1} s: {who} takes {now} KiB of memory"));
                    }
                }
                drop(seen);
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        Self {
            seen,
            over,
            pids,
            files_bound_ms,
            thread: Some(thread),
        }
    }

    /// The finding so far, if any.
    pub fn finding(&self) -> Option<String> {
        self.seen
            .lock()
            .expect("nobody panics with it")
            .findings
            .first()
            .cloned()
    }

    /// Ends the checks.
    pub fn close(mut self) -> Seen {
        self.end();
        std::mem::take(&mut *self.seen.lock().expect("nobody panics with it"))
    }

    fn end(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Eyes {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_explains_no_waiting_counts_as_silence() {
        let codes = codes(&json!({ "checks": [{ "code": "MON_DOWN" }, { "code": "FLAGS_SET" }] }));
        assert!(says_nothing(&codes, false) && says_nothing(&[], true));
        assert!(!says_nothing(
            &["MON_DOWN".to_owned(), "SLOW_OPS".to_owned()],
            true
        ));
        let ranks = ["FS_RANK_DOWN".to_owned()];
        assert!(
            says_nothing(&ranks, false) && !says_nothing(&ranks, true),
            "objects need no server of files"
        );
    }

    /// All OSDs were killed, health reported it until they were back, and an earlier put was
    /// reported as a finding 1.6 s later (seed 52, on a machine with a tenfold load).
    #[test]
    fn waiting_is_a_finding_once_health_has_been_silent_for_as_long() {
        let op = |ms: u64| (ms, "put".to_owned());
        let mut silence = Silence::default();
        assert!(
            !silence.look(0.0, false, &op(8_000), BOUND)
                && !silence.look(1.0, true, &op(9_000), BOUND)
        );
        assert!(
            !silence.look(2.0, true, &op(10_000), BOUND)
                && !silence.look(6.0, true, &op(14_000), BOUND)
        );
        assert!(silence.look(6.5, true, &op(14_500), BOUND));
        assert!(
            !silence.look(7.5, true, &(5_500, "another put".to_owned()), BOUND),
            "seen once"
        );
        assert!(
            !silence.look(8.5, true, &op(1_000), BOUND)
                && !silence.look(9.5, false, &op(20_000), BOUND)
        );
        assert!(
            !silence.look(10.5, true, &op(21_000), BOUND),
            "health said something in between"
        );
    }
}
