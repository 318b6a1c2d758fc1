//! The tour's last step: a file system is mounted, and an archive is unpacked in it.
//!
//! ```text
//!  tar ─▶ mount ─▶ unpack ─▶ unmount ─▶ mount again ─▶ compare with the originals ─▶ unmount
//! ```
//! The compared data come from the OSDs: the second mount's process has read nothing before.

use crate::mount::take_off;
use crate::mount::with_up;
use anyhow::{Context as _, Result, bail, ensure};
use nacre_gateway::Unmount;
use nacre_gateway::table;
use nacre_node::locks;
use std::fs::{self, Metadata};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Result of the step.
pub enum Outcome {
    /// All files are equal.
    Equal(Figures),
    /// Not possible on this machine, with the reason.
    Skipped(String),
}

/// Figures of the step.
pub struct Figures {
    /// Files, symbolic links and empty directories.
    pub files: usize,
    /// Bytes of all files.
    pub bytes: u64,
    /// Unpacking, including the unmount that makes everything durable.
    pub unpack: Duration,
    /// Reading and comparing all, in another mount.
    pub compare: Duration,
}

/// Unpacks and compares these files of a directory; `dir` is the tour's own.
///
/// # Errors
/// Something differs, or does not work.
pub fn step(from: &Path, paths: &[PathBuf], dir: &Path, cluster: &Path) -> Result<Outcome> {
    if let Err(why) = nacre_gateway::may_mount() {
        return Ok(Outcome::Skipped(why.to_string()));
    }
    if run(Command::new("tar").arg("--version")).is_err() {
        return Ok(Outcome::Skipped("tar is not installed".to_owned()));
    }
    let archive = dir.join("tree.tar");
    pack(from, paths, &archive)?;
    let at = dir.join("mount");
    // If a later step fails, nothing stays mounted.
    let outcome = unpack_and_compare(from, paths, &archive, &at, cluster);
    if outcome.is_err() {
        let _ = take_off::all(&locks::run_folder(cluster), true);
    }
    outcome
}

fn unpack_and_compare(
    from: &Path,
    paths: &[PathBuf],
    archive: &Path,
    at: &Path,
    cluster: &Path,
) -> Result<Outcome> {
    let mount = || with_up::prepare(at, None, cluster)?.mount(cluster, nacre_node::ADMIN);
    if let Err(why) = mount() {
        return refused(why);
    }
    let begun = Instant::now();
    run(Command::new("tar")
        .args(["-x", "-p", "-f"])
        .arg(archive)
        .arg("-C")
        .arg(at))
    .context("unpacking")?;
    unmount(cluster)?;
    let unpack = begun.elapsed();

    mount()?;
    let begun = Instant::now();
    let mut bytes = 0;
    for path in paths {
        bytes += compare(&from.join(path), &at.join(path))
            .with_context(|| format!("comparing {}", path.display()))?;
    }
    let compare = begun.elapsed();
    unmount(cluster)?;
    Ok(Outcome::Equal(Figures {
        files: paths.len(),
        bytes,
        unpack,
        compare,
    }))
}

/// A missing permission of this process is not the file system's fault.
fn refused(why: anyhow::Error) -> Result<Outcome> {
    let said = format!("{why:#}");
    // The mount's own process reports it, so it arrives as text.
    match said.contains("Operation not permitted") || said.contains("Permission denied") {
        true => Ok(Outcome::Skipped(said)),
        false => Err(why),
    }
}

fn unmount(cluster: &Path) -> Result<()> {
    for one in take_off::all(&locks::run_folder(cluster), false)? {
        ensure!(one.fault.is_none(), "{}", one.line());
    }
    Ok(())
}

/// Unmounts what an earlier, killed tour has left mounted.
///
/// # Errors
/// It cannot be unmounted: removing the directory would remove the mounted files.
pub fn sweep(dir: &Path, cluster: &Path) -> Result<()> {
    let Ok(dir) = dir.canonicalize() else {
        return Ok(());
    };
    take_off::give_up(&locks::run_folder(cluster))?;
    for entry in table::mounts()
        .iter()
        .rev()
        .filter(|entry| entry.dir.starts_with(&dir))
    {
        ensure!(
            entry.is_ours(),
            "{} is mounted at {}: unmount it first",
            entry.source,
            entry.dir.display()
        );
        nacre_gateway::unmount(&entry.dir, Unmount::Detach)?;
    }
    Ok(())
}

fn pack(from: &Path, paths: &[PathBuf], archive: &Path) -> Result<()> {
    let names = archive.with_extension("names");
    let mut list =
        fs::File::create(&names).with_context(|| format!("writing {}", names.display()))?;
    for path in paths {
        // None of them looks like an option.
        list.write_all(&[b"./", path.as_os_str().as_bytes(), b"\0"].concat())
            .context("writing names")?;
    }
    let mut tar = Command::new("tar");
    tar.args(["-c", "-f"])
        .arg(archive)
        .arg("-C")
        .arg(from)
        .args(["--no-recursion", "--null", "-T"]);
    // In another directory a relative name would be another file.
    run(tar.arg(names.canonicalize().context("finding the names")?)).context("making an archive")
}

/// Runs a program that reports errors on standard error.
fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting {program}"))?;
    if output.status.success() {
        return Ok(());
    }
    bail!(
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr)
            .lines()
            .last()
            .unwrap_or("it failed")
    )
}

/// Compares two files' kind, permissions, time and content; returns the bytes of the content.
fn compare(original: &Path, unpacked: &Path) -> Result<u64> {
    let look = |path: &Path| {
        path.symlink_metadata()
            .with_context(|| format!("looking at {}", path.display()))
    };
    let (a, b) = (look(original)?, look(unpacked)?);
    ensure!(a.file_type() == b.file_type(), "it is of another kind");
    if a.is_symlink() {
        ensure!(
            fs::read_link(original)? == fs::read_link(unpacked)?,
            "it leads elsewhere"
        );
        return Ok(0);
    }
    let rights = |one: &Metadata| one.mode() & 0o7777;
    ensure!(
        rights(&a) == rights(&b),
        "its mode is {:o}, not {:o}",
        rights(&b),
        rights(&a)
    );
    if !a.is_file() {
        return Ok(0);
    }
    ensure!(
        a.mtime() == b.mtime(),
        "its time is {}, not {}",
        b.mtime(),
        a.mtime()
    );
    ensure!(
        fs::read(original)? == fs::read(unpacked)?,
        "its content differs"
    );
    Ok(a.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    /// Every possible difference of an unpacked file is detected, and an archive has none.
    #[test]
    fn what_is_packed_and_unpacked_is_equal_and_differences_are_seen() {
        let dir = std::env::temp_dir().join(format!("nacre-tour-{}", std::process::id()));
        let (a, b) = (dir.join("a"), dir.join("b"));
        fs::create_dir_all(a.join("empty")).expect("made");
        fs::create_dir_all(&b).expect("made");
        fs::write(a.join("-file\nname"), "content").expect("writable");
        symlink("-file\nname", a.join("link")).expect("made");
        let paths = ["-file\nname", "link", "empty"].map(PathBuf::from);
        let archive = dir.join("tree.tar");
        if run(Command::new("tar").arg("--version")).is_err() {
            crate::say::line("SKIPPED the tour's archive: tar is not installed");
            return;
        }
        pack(&a, &paths, &archive).expect("packed");
        run(Command::new("tar")
            .args(["-x", "-p", "-f"])
            .arg(&archive)
            .arg("-C")
            .arg(&b))
        .expect("unpacked");
        let bytes: u64 = paths
            .iter()
            .map(|path| compare(&a.join(path), &b.join(path)).expect("equal"))
            .sum();
        assert_eq!(bytes, 7);

        let file = b.join("-file\nname");
        let why = || {
            compare(&a.join("-file\nname"), &file)
                .expect_err("it differs")
                .to_string()
        };
        let time = fs::metadata(&file)
            .expect("there")
            .modified()
            .expect("a time");
        let touch = |time| {
            fs::File::options()
                .write(true)
                .open(&file)
                .expect("there")
                .set_modified(time)
                .expect("set")
        };
        fs::write(&file, "CONTENT").expect("writable");
        touch(time);
        assert_eq!(why(), "its content differs");
        touch(time - Duration::from_secs(9));
        assert!(why().starts_with("its time is"), "{}", why());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("ours");
        fs::set_permissions(a.join("-file\nname"), fs::Permissions::from_mode(0o644))
            .expect("ours");
        assert_eq!(why(), "its mode is 600, not 644");
        fs::remove_file(&file).expect("ours");
        assert!(why().starts_with("looking at"), "{}", why());
        fs::create_dir(&file).expect("made");
        assert_eq!(why(), "it is of another kind");
        fs::remove_file(b.join("link")).expect("ours");
        symlink("empty", b.join("link")).expect("made");
        assert!(compare(&a.join("link"), &b.join("link")).is_err());
        fs::remove_dir_all(dir).expect("ours");
    }

    #[test]
    fn a_kernel_that_forbids_it_skips_the_step_and_nothing_else_does() {
        let why = |text: &str| refused(anyhow::anyhow!("{text}"));
        let skipped = why("mounting on /mnt: Operation not permitted (os error 1)");
        assert!(matches!(skipped, Ok(Outcome::Skipped(said)) if said.contains("/mnt")));
        assert!(why("no server has taken the file system").is_err());
    }
}
