//! fio, which verifies what it wrote, and stress-ng, which exercises unusual calls.

use super::{Ground, tools};
use crate::bounded;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

const FIO_MAX: Duration = Duration::from_mins(5);
/// Maximum time for a stressor of some seconds, with preparation and cleanup.
const STRESSOR_MAX: Duration = Duration::from_mins(2);

/// Jobs of fio; all verify what they wrote.
const JOBS: [(&str, &[&str]); 4] = [
    (
        "unaligned",
        &[
            "--ioengine=psync",
            "--rw=randwrite",
            "--bsrange=512-64k",
            "--size=48m",
            "--fsync=64",
        ],
    ),
    (
        "direct",
        &[
            "--ioengine=libaio",
            "--direct=1",
            "--iodepth=16",
            "--rw=randwrite",
            "--bs=4k",
            "--size=48m",
        ],
    ),
    (
        "mapped",
        &[
            "--ioengine=mmap",
            "--rw=randwrite",
            "--bs=4k",
            "--size=32m",
            "--fsync=256",
        ],
    ),
    (
        "four",
        &[
            "--ioengine=psync",
            "--rw=write",
            "--bs=1m",
            "--size=64m",
            "--numjobs=4",
        ],
    ),
];

/// The stressors of stress-ng that concern files, except those that mount or need devices.
const STRESSORS: &[&str] = &[
    "access",
    "aio",
    "aiol",
    "chattr",
    "chdir",
    "chmod",
    "chown",
    "copy-file",
    "dentry",
    "dir",
    "dirdeep",
    "dirmany",
    "dnotify",
    "dup",
    "fallocate",
    "fanotify",
    "fcntl",
    "fiemap",
    "file-ioctl",
    "filename",
    "flock",
    "fpunch",
    "fsize",
    "fstat",
    "getdent",
    "handle",
    "hdd",
    "inode-flags",
    "inotify",
    "io",
    "io-uring",
    "iomix",
    "ioprio",
    "lease",
    "link",
    "locka",
    "lockf",
    "lockofd",
    "metamix",
    "mknod",
    "mmap",
    "mmapfork",
    "mmaphuge",
    "msync",
    "open",
    "pipe",
    "readahead",
    "rename",
    "revio",
    "seek",
    "sendfile",
    "splice",
    "symlink",
    "sync-file",
    "tee",
    "touch",
    "unlink",
    "utime",
    "verity",
    "xattr",
];
/// Exit codes of stress-ng: success, and a failed verification. Others: it could not run, or was
/// skipped.
const WELL: i32 = 0;
const WRONG: i32 = 2;
const CANNOT: [i32; 2] = [3, 4];
/// It considers its own figures unreliable; they are not used here.
const UNTRUSTED: i32 = 7;

/// Data written by fio and read back by it.
pub fn fio(ground: &mut Ground) -> Result<()> {
    if !ground.has("fio", "fio") {
        return Ok(());
    }
    for (name, how) in JOBS {
        let mut command = Command::new("fio");
        command.args([
            "--verify=crc32c",
            "--verify_fatal=1",
            "--do_verify=1",
            "--end_fsync=1",
            "--randseed=7",
        ]);
        command
            .arg(format!("--name={name}"))
            .arg(format!("--directory={}", ground.dir.display()))
            .args(how);
        command.current_dir(&ground.aside);
        tools::run(&mut command, FIO_MAX).with_context(|| format!("job `{name}`"))?;
    }
    for entry in fs::read_dir(&ground.dir).context("listing fio's files")? {
        fs::remove_file(entry?.path()).context("removing fio's files")?;
    }
    ground
        .site
        .figures
        .proved("fio: unaligned, direct, mapped and from four jobs: all data verified");
    Ok(())
}

/// Two instances of each for some seconds.
pub fn stress_ng(ground: &mut Ground) -> Result<()> {
    if !ground.has("stress-ng", "stress-ng") {
        return Ok(());
    }
    let known = tools::run(Command::new("stress-ng").arg("--stressors"), STRESSOR_MAX)?;
    let known: Vec<&str> = known.split_whitespace().collect();
    let (mut well, mut wrong, mut cannot, mut odd) = (0, Vec::new(), Vec::new(), Vec::new());
    for name in STRESSORS {
        if !known.contains(name) {
            cannot.push(*name);
            continue;
        }
        let output = match stressor(name, &ground.dir, &ground.aside) {
            Ok(output) => output,
            Err(why) => {
                wrong.push(format!("{name}: {why:#}"));
                continue;
            }
        };
        match output.status.code() {
            Some(WELL | UNTRUSTED) => well += 1,
            Some(code) if CANNOT.contains(&code) => cannot.push(*name),
            // A verification that also fails on this machine's own disk is not a fault of the
            // mount.
            Some(WRONG)
                if stressor(name, &ground.aside, &ground.aside)?.status.code() == Some(WRONG) =>
            {
                odd.push(*name)
            }
            code => {
                let said =
                    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
                let lines: Vec<&str> = said
                    .lines()
                    .filter(|line| line.contains("fail"))
                    .take(4)
                    .collect();
                wrong.push(format!("{name} ({code:?}): {}", lines.join(" | ")));
            }
        }
    }
    ground.site.figures.note(
        "stress-ng: stressors, two of each for 4 s, that found nothing",
        f64::from(well),
        "",
    );
    if !cannot.is_empty() {
        ground.site.figures.skipped(
            "stress-ng's own",
            &format!("{}: unknown, or not for here", cannot.join(", ")),
        );
    }
    if !odd.is_empty() {
        ground.site.figures.skipped(
            "stress-ng's",
            &format!("{}: wrong on this machine's own disk, too", odd.join(", ")),
        );
    }
    if !wrong.is_empty() {
        bail!("{} stressors: {}", wrong.len(), wrong.join("; "));
    }
    ensure!(well > 0, "none of its stressors ran");
    ground.site.figures.proved("stress-ng: nothing wrong");
    Ok(())
}

fn stressor(name: &str, folder: &Path, aside: &Path) -> Result<Output> {
    let mut command = Command::new("stress-ng");
    command
        .args([
            &format!("--{name}"),
            "2",
            "--timeout",
            "4",
            "--verify",
            "--temp-path",
        ])
        .arg(folder);
    bounded::output(command.current_dir(aside), STRESSOR_MAX)
}
