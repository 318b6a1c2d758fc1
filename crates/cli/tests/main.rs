//! The built binary as used by users and scripts: its output, streams and exit codes.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // tests of a host crate

#[path = "suite/ceph_files.rs"]
mod ceph_files;
#[path = "suite/ceph_metadata.rs"]
mod ceph_metadata;
#[path = "suite/claims.rs"]
mod claims;
#[path = "suite/cluster.rs"]
mod cluster;
#[path = "suite/cookbook.rs"]
mod cookbook;
#[path = "suite/crush.rs"]
mod crush;
#[path = "suite/durability.rs"]
mod durability;
#[path = "suite/engines.rs"]
mod engines;
#[path = "suite/errors.rs"]
mod errors;
#[path = "suite/files.rs"]
mod files;
#[path = "suite/history.rs"]
mod history;
#[path = "suite/hosts.rs"]
mod hosts;
#[path = "suite/metadata.rs"]
mod metadata;
#[path = "suite/mistreated.rs"]
mod mistreated;
#[path = "suite/operator.rs"]
mod operator;
#[path = "suite/policies.rs"]
mod policies;
#[path = "suite/programs.rs"]
mod programs;
#[path = "suite/sessions.rs"]
mod sessions;
#[path = "suite/snapshots.rs"]
mod snapshots;
#[path = "suite/up_mount.rs"]
mod up_mount;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// No command of these tests takes longer, on the slowest machine; one that should have failed may
/// never end.
const MOST: Duration = Duration::from_secs(180);

/// Runs `nacre` with arguments, without any existing cluster.
fn nacre<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(arguments: I) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    command
        .env_remove("NACRE_CLUSTER")
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .args(arguments);
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let child = child.expect("the binary starts");
    let (pid, (sender, receiver)) = (child.id().to_string(), std::sync::mpsc::channel());
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match receiver.recv_timeout(MOST) {
        Ok(output) => output.expect("it ends"),
        Err(_) => {
            let _ = Command::new("kill").args(["-9", &pid]).status();
            panic!("{command:?} did not end in {MOST:?}");
        }
    }
}

/// Output of a run that must succeed.
fn prints<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(arguments: I) -> String {
    let output = nacre(arguments);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

/// Ceph's own answers.
fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../crush/tests/golden")
}

/// Golden files with an extension, at least `least` of them: an empty directory must not pass.
fn golden_files(ending: &str, least: usize) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(golden()).expect("the golden files are there");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("readable").path())
        .collect();
    files.retain(|file| file.extension().is_some_and(|found| found == ending));
    files.sort();
    assert!(
        files.len() >= least,
        "{} .{ending} files, of at least {least}",
        files.len()
    );
    files
}

/// A file for a test to write; tests use distinct names.
fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}
