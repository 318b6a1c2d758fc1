//! POSIX semantics of calls (pjdfstest), and of the data of one file under random operations (fsx).

use super::{Ground, tools};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

const PJDFSTEST_MAX: Duration = Duration::from_mins(10);
const FSX_MAX: Duration = Duration::from_mins(10);
/// Number of fsx operations for each mix.
const OPERATIONS: u32 = 30_000;
/// Minimum number of tests: fewer would be a different suite.
const TESTS: u64 = 350;

/// Users that exist on every Linux; times have nanoseconds, and the kernel's clock advances in
/// steps of milliseconds.
const PJDFSTEST: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// Names, and the operations of a mix in addition to reading, writing, both through maps, and
/// truncating.
const MIXES: [(&str, &str, &str); 12] = [
    ("as it comes", "", ""),
    ("reopened", "close_open = 5\ninvalidate = 5", ""),
    ("synchronized", "fsync = 2\nfdatasync = 2", ""),
    ("holes", "punch_hole = 10", ""),
    ("allocated", "posix_fallocate = 10\npunch_hole = 5", ""),
    ("copied", "copy_file_range = 10", ""),
    (
        "sent",
        "sendfile = 10\nposix_fadvise = 5\nclose_open = 1",
        "",
    ),
    (
        "without maps",
        "mapread = 0\nmapwrite = 0\npunch_hole = 5\ncopy_file_range = 5\nclose_open = 2",
        "",
    ),
    (
        "without truncation",
        "truncate = 0\npunch_hole = 10\nposix_fallocate = 5\nfsync = 1",
        "",
    ),
    (
        "blocks",
        "punch_hole = 5\ncopy_file_range = 5\nclose_open = 1",
        "[opsize]\nmin = 512\nmax = 16384\nalign = 512",
    ),
    ("several objects", ALL, "[opsize]\nmax = 262144"),
    ("everything", ALL, ""),
];
const ALL: &str =
    "close_open = 2\ninvalidate = 2\nfsync = 1\nfdatasync = 1\nposix_fallocate = 5\npunch_hole = 5
sendfile = 5\nposix_fadvise = 2\ncopy_file_range = 5";

/// 400 tests of single calls.
pub fn pjdfstest(ground: &mut Ground) -> Result<()> {
    let Some(program) = ground.needs("pjdfstest", tools::from_crate("pjdfstest")) else {
        return Ok(());
    };
    let config = ground.aside.join("pjdfstest.toml");
    fs::write(&config, PJDFSTEST).context("writing a configuration")?;
    // Socket addresses have space for 107 bytes, and tests create some below: the path must be
    // short.
    let short = std::env::temp_dir().join(format!("nacre-show-{}", std::process::id()));
    symlink(&ground.dir, &short).context("a short path")?;
    let mut command = Command::new(program);
    command
        .arg("-c")
        .arg(&config)
        .arg("-p")
        .arg(&short)
        .env("RUST_BACKTRACE", "0");
    let ran = tools::said(&mut command, PJDFSTEST_MAX);
    fs::remove_file(&short).context("removing the short path")?;
    let said = ran?.1;
    fs::write(ground.aside.join("pjdfstest.said"), &said).context("keeping what it says")?;
    let summary = said
        .lines()
        .rfind(|line| line.starts_with("Summary"))
        .context("it prints no summary")?;
    let count = |word| {
        tools::number_before(summary, word).with_context(|| format!("no {word} in: {summary}"))
    };
    let [passed, failed, skipped] = [count(" passed")?, count(" failed")?, count(" skipped")?];
    ensure!(
        failed == 0 && passed + skipped >= TESTS,
        "{summary}\n{}",
        failures(&said)
    );
    ground
        .site
        .figures
        .note("pjdfstest: tests that passed", passed as f64, "");
    ground.site.figures.note(
        "pjdfstest: that it skips (remounting, a second file system, most links)",
        skipped as f64,
        "",
    );
    ground.site.figures.proved("pjdfstest: none failed");
    Ok(())
}

/// Failed tests, each with its output.
fn failures(said: &str) -> String {
    let mut failed = false;
    let kept = said.lines().filter(|line| {
        let ends = |word| line.ends_with(word) && !line.starts_with('\t');
        failed = ends("FAILED")
            || (failed && !ends(" ok") && !ends(" skipped") && !line.starts_with("Summary"));
        failed
    });
    kept.take(60).collect::<Vec<_>>().join("\n")
}

/// Random operations on one file, each read compared.
pub fn fsx(ground: &mut Ground) -> Result<()> {
    let Some(program) = ground.needs("fsx", tools::from_crate("fsx")) else {
        return Ok(());
    };
    let (config, operations) = (ground.aside.join("fsx.toml"), OPERATIONS.to_string());
    for (at, (name, weights, sizes)) in MIXES.into_iter().enumerate() {
        let length = if sizes.contains("262144") {
            9 << 20
        } else {
            256 << 10
        };
        let text = format!("flen = {length}\n{sizes}\n[weights]\n{weights}\n");
        fs::write(&config, text).context("writing a configuration")?;
        let (file, seed) = (ground.dir.join(format!("file-{at}")), (at + 1).to_string());
        let mut command = Command::new(&program);
        command
            .arg("-f")
            .arg(&config)
            .args(["-N", &operations, "-S", &seed, "-P"])
            .arg(&ground.aside)
            .arg(&file);
        tools::run(&mut command, FSX_MAX).with_context(|| format!("mix `{name}`, seed {seed}"))?;
        fs::remove_file(&file).context("removing fsx's file")?;
    }
    ground
        .site
        .figures
        .note("fsx: mixes of 30,000 operations", MIXES.len() as f64, "");
    ground.site.figures.proved("fsx: every read as expected");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_failed_are_told_with_what_they_say() {
        let said = "a::b       ok\nc::d     FAILED\n\tabout it\n\tleft != right\ne::f    skipped\n\twhy\n\nSummary: 1 failed";
        assert_eq!(
            failures(said),
            "c::d     FAILED\n\tabout it\n\tleft != right"
        );
    }
}
