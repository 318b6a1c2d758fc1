//! The whole program, for a fraction of a second: every row, its errors, and its end. Times are not
//! asserted.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test of a host"
)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than any step takes on a busy machine.
const LIMIT: Duration = Duration::from_mins(2);

fn dir(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a directory for tests");
    dir
}

fn floor(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre-floor"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

fn ended(mut child: Child) -> Output {
    let begun = Instant::now();
    while child.try_wait().expect("it is a child").is_none() {
        if begun.elapsed() > LIMIT {
            let _ = child.kill();
            panic!("it did not end in {} s", LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("it has ended")
}

/// The number after `"name":` in a line of JSON.
fn figure(line: &str, name: &str) -> f64 {
    let (_, rest) = line
        .split_once(&format!("\"{name}\":"))
        .unwrap_or_else(|| panic!("no {name} in {line}"));
    let end = rest.find([',', '}']).expect("more follows");
    rest[..end]
        .parse()
        .unwrap_or_else(|_| panic!("{name} is no number in {line}"))
}

#[test]
fn every_row_has_its_figures_and_nothing_is_left() {
    let dir = dir("rows");
    let place = dir.to_str().expect("a readable path");
    let small = [
        "--seconds",
        "0.1",
        "--objects",
        "300",
        "--file-mib",
        "8",
        "--dir",
        place,
    ];
    let output = ended(floor(&small));
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{err}");
    let rows: Vec<&str> = out.lines().collect();
    assert_eq!(rows.len(), 11, "{out}");
    for row in rows {
        for name in [
            "ops",
            "ops_per_s",
            "p50_us",
            "p99_us",
            "cpu_us_per_op",
            "osds_us_per_op",
        ] {
            assert!(figure(row, name) > 0.0, "{name} of {row}");
        }
        assert!(figure(row, "p50_us") <= figure(row, "p99_us"), "{row}");
        assert!(figure(row, "mb_per_s") >= 0.0, "{row}");
        let small_write = !row.contains("read") && figure(row, "size") <= 4096.0;
        if small_write {
            // Each update is written by three OSDs, in a group of one or more. Counters are read
            // while updates are in flight, and are rounded.
            assert!(figure(row, "updates_per_flush") >= 1.0, "{row}");
            let (ops, depth) = (figure(row, "ops"), figure(row, "depth"));
            let records = ops * figure(row, "flushes_per_op") * figure(row, "updates_per_flush");
            assert!(
                (records - 3.0 * ops).abs() < 0.6 * ops + 6.0 * depth,
                "{records} records: {row}"
            );
        }
    }
    assert!(
        err.contains("4 KiB overwrite, depth 16"),
        "the human-readable table: {err}"
    );
    assert_eq!(
        fs::read_dir(&dir).expect("it is there").count(),
        0,
        "data files are removed"
    );
}

#[test]
fn mistakes_are_refused_with_the_reason() {
    let dir = dir("mistakes");
    let place = dir.to_str().expect("a readable path");
    for (arguments, why) in [
        (
            &["--only", "no-such-row"][..],
            "there is no row `no-such-row`",
        ),
        (
            &["--only", "read", "--depth", "0"],
            "--depth must be from 1 to 512",
        ),
        (
            &["--only", "overwrite", "--size", "1000000", "--dir", place],
            "depth × size must be at most",
        ),
        (
            &["--only", "large-write", "--size", "1000", "--dir", place],
            "is a multiple of",
        ),
        (
            &["--only", "read", "--dir", "/there/is/no/such/directory"],
            "creating /there/is/no/such",
        ),
    ] {
        let output = ended(floor(
            &[arguments, &["--file-mib", "4", "--seconds", "0.1"]].concat(),
        ));
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && err.contains(why), "{err}");
        assert!(output.stdout.is_empty());
    }
}

/// The processes of its OSDs, once all three have started.
fn osds(client: &Child) -> Vec<u32> {
    let (begun, id) = (Instant::now(), client.id());
    loop {
        let found =
            fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        let found: Vec<u32> = found
            .split_whitespace()
            .map(|id| id.parse().expect("a number"))
            .collect();
        if found.len() == 3 {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "no three OSDs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn osds_end_when_the_client_is_killed() {
    let dir = dir("killed");
    let place = dir.to_str().expect("a readable path");
    let mut child = floor(&[
        "--seconds",
        "600",
        "--only",
        "overwrite",
        "--file-mib",
        "4",
        "--dir",
        place,
    ]);
    let children = osds(&child);
    child.kill().expect("it runs");
    child.wait().expect("it was killed");
    // An OSD that still runs holds the other end of this pipe.
    let mut err = child.stderr.take().expect("asked for");
    let (told, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || told.send(err.read_to_end(&mut Vec::new()).is_ok()));
    assert_eq!(
        heard.recv_timeout(LIMIT),
        Ok(true),
        "OSDs {children:?} still run"
    );
}

#[test]
fn an_osd_that_is_killed_is_an_error() {
    for row in ["overwrite", "large-write", "large-read"] {
        let dir = dir(row);
        let place = dir.to_str().expect("a readable path");
        let child = floor(&[
            "--seconds",
            "600",
            "--only",
            row,
            "--file-mib",
            "4",
            "--dir",
            place,
        ]);
        let victim = osds(&child)[1].to_string();
        // Some load first; it does not affect what is checked.
        std::thread::sleep(Duration::from_millis(200));
        assert!(
            Command::new("kill")
                .args(["-9", &victim])
                .status()
                .expect("kill runs")
                .success()
        );
        let output = ended(child);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && err.contains("OSD 1 failed (signal: 9"),
            "{row}: {err}"
        );
    }
}

#[test]
fn an_osd_that_does_not_start_is_an_error() {
    let dir = dir("taken");
    let place = dir.to_str().expect("a readable path");
    // The second OSD's port is taken.
    let taken = (20_000..40_000)
        .step_by(7)
        .find_map(|port| std::net::TcpListener::bind(("127.0.0.1", port)).ok());
    let taken = taken.expect("some port is free");
    let port = (taken.local_addr().expect("it is bound").port() - 1).to_string();
    let mut child = floor(&[
        "--only",
        "read",
        "--file-mib",
        "4",
        "--dir",
        place,
        "--base-port",
        &port,
    ]);
    let err = child.stderr.take().expect("asked for");
    let status = ended(child).status;
    let lines: Vec<String> = BufReader::new(err).lines().map_while(Result::ok).collect();
    assert!(!status.success(), "{lines:?}");
    for why in ["OSD 1: listening on port", "OSD 1 does not start"] {
        assert!(lines.iter().any(|line| line.contains(why)), "{lines:?}");
    }
}
