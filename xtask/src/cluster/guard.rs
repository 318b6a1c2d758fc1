//! Cleans up after a scenario, after any end: success, an error, Ctrl-C or `kill -9`.
//!
//! ```text
//!  ./x show ──pipe──▶ guard (same program, process group of its own)
//!     │ ends, in whatever way: the pipe closes
//!     ✕                 └─▶ programs of the folder: loads killed, stopped ones resumed ─▶ `nacre down` ─▶ killed ─▶ folder removed
//! ```
//! Ceph clusters in the directory are ended in the same way; `./x bench versus` and `./x test` have
//! guards too. The processes to end are found in `/proc`: they have the scenario's directory on
//! their command lines. So no list has to be maintained.

use super::{Cluster, signal};
use crate::bounded;
use crate::ceph;
use anyhow::{Context, Result};
use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Maximum time for everything.
const CLEAN_MAX: Duration = Duration::from_mins(6);
const UMOUNT_MAX: Duration = Duration::from_mins(2);

/// The cleaning process. Dropping it waits until everything is clean.
pub struct Guard(Child);

impl Guard {
    /// Starts one for a directory. Remains of an earlier run there are stopped and removed first.
    ///
    /// # Errors
    /// When they cannot be removed, or this program cannot be started again.
    pub fn start(nacre: &Path, folder: &Path) -> Result<Self> {
        clean(nacre, folder)?;
        let mut command = Command::new(std::env::current_exe().context("finding this program")?);
        command.args(["show", "--guard"]).arg(nacre).arg(folder);
        // Ctrl-C goes to the terminal's foreground process group, to which this does not belong.
        let child = command
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("starting the guard")?;
        Ok(Self(child))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = bounded::ended(&mut self.0, CLEAN_MAX);
    }
}

/// Main function of the guard: waits for the pipe to close, then cleans up.
///
/// # Errors
/// When the directory cannot be removed.
pub fn main(nacre: &Path, folder: &Path) -> Result<()> {
    // Nothing is ever sent: the read ends when the other end is closed.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    clean(nacre, folder)
}

/// Stops all processes of the directory and removes it.
///
/// # Errors
/// When it cannot be removed.
pub fn clean(nacre: &Path, folder: &Path) -> Result<()> {
    for (pid, words) in processes(folder) {
        let _ = signal(pid, if is_daemon(&words) { "CONT" } else { "KILL" });
    }
    for cluster in folders_with(folder, "cluster.toml") {
        // It is fine if nothing is running.
        let _ = Cluster::at(nacre, &cluster).down();
    }
    for cluster in folders_with(folder, "ceph.conf") {
        let _ = ceph::down(&cluster);
    }
    for (pid, _) in processes(folder) {
        let _ = signal(pid, "KILL");
    }
    for mount in mounts(folder) {
        let _ = bounded::output(Command::new("umount").arg("-l").arg(mount), UMOUNT_MAX);
    }
    match fs::remove_dir_all(folder) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
            return Err(why).with_context(|| format!("removing {}", folder.display()));
        }
        _ => {}
    }
    if let Some(above) = folder.parent() {
        // Fails while another scenario's directory is in it.
        let _ = fs::remove_dir(above);
    }
    Ok(())
}

/// Checks that as many ports from the first on can be used.
///
/// # Errors
/// The port that is taken.
pub fn free_ports(first: u16, count: u16) -> Result<()> {
    for port in first..first + count {
        TcpListener::bind(("127.0.0.1", port)).with_context(|| {
            format!("port {port} is taken; --base-port names another first of {count}")
        })?;
    }
    Ok(())
}

/// File systems mounted below a directory.
fn mounts(folder: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let places = text
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .map(PathBuf::from);
    places
        .filter(|place| place.starts_with(folder) && place != folder)
        .collect()
}

/// The directory and those below, at most two levels deep, that contain this file: a cluster's.
fn folders_with(folder: &Path, file: &str) -> Vec<PathBuf> {
    let below = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
            .collect()
    };
    let first = below(folder);
    let second = first.iter().flat_map(|folder| below(folder));
    let all = std::iter::once(folder.to_owned())
        .chain(first.iter().cloned())
        .chain(second);
    all.filter(|folder| folder.join(file).exists()).collect()
}

/// Processes with the directory on their command lines, except this one.
pub fn processes(folder: &Path) -> Vec<(u32, Vec<String>)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id())
        .filter_map(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let words: Vec<String> = line
                .split(|byte| *byte == 0)
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect();
            is_ours(&words, folder).then_some((pid, words))
        })
        .collect()
}

/// Whether a command line is that of `nacre`, a daemon of Ceph, or the script that starts those,
/// for the directory. An editor with an open file of it is not.
fn is_ours(words: &[String], folder: &Path) -> bool {
    // A copy may have another name, such as `nacre-before`, for comparison.
    let is_nacre = program_of(words).starts_with("nacre") || is_script(words);
    let inside =
        |word: &String| Path::new(word.strip_prefix("ceph:").unwrap_or(word)).starts_with(folder);
    (is_nacre || is_ceph(words)) && words.iter().skip(1).any(inside)
}

fn program_of(words: &[String]) -> &str {
    words
        .first()
        .and_then(|word| Path::new(word).file_name()?.to_str())
        .unwrap_or_default()
}

fn is_script(words: &[String]) -> bool {
    program_of(words.get(1..).unwrap_or_default()) == "ceph-cluster"
}

fn is_ceph(words: &[String]) -> bool {
    matches!(
        program_of(words),
        "ceph-mon" | "ceph-mgr" | "ceph-osd" | "ceph-mds" | "ceph-fuse"
    )
}

/// The part to which a process of [`processes`] belongs; for one that is neither a daemon nor a
/// mount, "others".
pub fn part_of(words: &[String]) -> &'static str {
    let is = |part: &&&str| {
        words.iter().any(|word| word == **part) || program_of(words) == format!("ceph-{part}")
    };
    let part = ["mount", "fuse", "mds", "osd", "mon"].iter().find(is);
    match part {
        Some(&"fuse") => "mount",
        Some(part) => part,
        None => "others",
    }
}

/// Whether it holds data and must be terminated, not killed.
fn is_daemon(words: &[String]) -> bool {
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let nacre = word(1) == "up"
        || word(2) == "run"
        || words.iter().any(|word| word == "up" || word == "tour");
    is_ceph(words) || (nacre && !is_script(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn only_nacre_in_the_very_folder_is_ours() {
        let folder = Path::new("/a/show/faults");
        for (line, ours) in [
            (
                "/x/nacre osd run --id 0 --config /a/show/faults/cluster",
                true,
            ),
            (
                "/x/nacre --json --cluster /a/show/faults/cluster bench object write",
                true,
            ),
            (
                "/x/nacre osd run --id 0 --config /a/show/faults-of-mine/cluster",
                false,
            ),
            ("/x/nacre osd run --id 0 --config /home/me", false),
            (
                "/x/nacre-before osd run --id 0 --config /a/show/faults/cluster",
                true,
            ),
            ("vi /a/show/faults/cluster/cluster.toml", false),
            ("ceph-osd -c /a/show/faults/ceph/ceph.conf -i 0", true),
            ("ceph-osd -c /b/ceph.conf -i 0", false),
            ("bash /src/tests/ceph-cluster up /a/show/faults/ceph", true),
            (
                "/x/nacre --json --cluster ceph:/a/show/faults/ceph/ceph.conf bench object write",
                true,
            ),
            ("/y/xtask show --guard /x/nacre /a/show/faults", false),
        ] {
            assert_eq!(is_ours(&words(line), folder), ours, "{line}");
        }
    }

    #[test]
    fn daemons_are_told_and_loads_are_not() {
        assert!(is_daemon(&words("nacre mon run --id 0 --config D")));
        assert!(is_daemon(&words("nacre up --in-background --dir D")));
        assert!(is_daemon(&words("ceph-mon -c D/ceph.conf -i a")));
        assert!(is_daemon(&words("nacre --json tour --stay --dir D")));
        assert!(!is_daemon(&words("bash /src/tests/ceph-cluster up D")));
        assert!(!is_daemon(&words(
            "nacre --json --cluster D bench object overwrite"
        )));
    }
}
