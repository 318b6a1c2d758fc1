//! A third mount, killed with `kill -9` while it holds locks, and once more with unwritten data.
//!
//! ```text
//!  third: locks, keeps names, fsync ─▶ killed ─▶ first: renames what it kept (6 s) ─▶ has the lock (60 s) ─▶ reads what was safe
//!  third: writes, no fsync          ─▶ killed ─▶ first: reads it (10 s): zeros, or what was written; never an error
//! ```
//! The limits are those of docs/files.md.

use crate::cluster::files::Mount;
use crate::show::site::Site;
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A call that waits for the dead mount for longer hangs.
const HANG: Duration = Duration::from_mins(3);
/// Of that, 6 s are the server's; the rest is for the call itself.
const KEPT_S: f64 = 6.5;
const FREE_S: f64 = 60.0;
/// Seconds until others continue that wait for its unwritten data, or for names in a directory
/// where it created some (docs/files.md).
pub const WANTED_S: f64 = 10.0;
/// Size of the killed mount's unwritten data.
const UNWRITTEN: usize = 200_000;
const BYTE: u8 = 0x5a;

/// The first case: locks, and cached names.
///
/// # Errors
/// When safe data is lost, or anything hangs.
pub fn with_locks(site: &mut Site, third: Mount, first: &Path) -> Result<()> {
    let (theirs, ours) = (third.dir().join("victim"), first.join("victim"));
    fs::create_dir(&theirs).context("a directory")?;
    for name in ["lock", "kept", "safe"] {
        fs::write(theirs.join(name), name).context("a file")?;
    }
    let open = |folder: &Path, name: &str| {
        File::options()
            .read(true)
            .write(true)
            .open(folder.join(name))
    };
    let held = open(&theirs, "lock").context("opening a file to lock")?;
    fcntl_lock(&held, FlockOperation::NonBlockingLockExclusive).context("locking")?;
    let mut safe = open(&theirs, "safe")?;
    safe.write_all(b"synchronized")
        .and_then(|()| safe.sync_all())
        .context("synchronizing")?;
    // It caches what it has looked up.
    for name in fs::read_dir(&theirs)?.flatten() {
        name.metadata().context("looking at what is kept")?;
    }
    let refused = fcntl_lock(
        open(&ours, "lock")?,
        FlockOperation::NonBlockingLockExclusive,
    );
    ensure!(
        refused == Err(Errno::AGAIN),
        "a lock that another mount holds: {refused:?}"
    );
    let at = third.kill()?;
    let path = ours.clone();
    within("a change of what a killed mount kept", move || {
        fs::rename(path.join("kept"), path.join("renamed")).context("renaming")
    })?;
    let what = "a mount killed: a change of what it kept is done after";
    site.figures
        .at_most(KEPT_S, what, at.elapsed().as_secs_f64(), "s");
    let wants = open(&ours, "lock")?;
    within("a lock of a killed mount", move || {
        fcntl_lock(&wants, FlockOperation::LockExclusive).context("locking")
    })?;
    site.figures.at_most(
        FREE_S,
        "a mount killed: its lock is free after",
        at.elapsed().as_secs_f64(),
        "s",
    );
    let safe = fs::read(ours.join("safe")).context("reading what was synchronized")?;
    ensure!(
        safe == b"synchronized",
        "what was synchronized reads as {:?}",
        String::from_utf8_lossy(&safe)
    );
    site.figures.proved(
        "a mount killed: what it had synchronized is there, its lock went to another mount",
    );
    drop(held);
    fs::remove_dir_all(&ours).context("removing the directory")
}

/// The second case: data that only it has.
///
/// # Errors
/// When the other mount reads data that was never written, gets an error, or hangs.
pub fn with_data(site: &mut Site, third: Mount, first: &Path) -> Result<()> {
    let (theirs, ours) = (third.dir().join("unwritten"), first.join("unwritten"));
    let mut file = File::create(&theirs).context("a file")?;
    file.write_all(b"safe")
        .and_then(|()| file.sync_all())
        .context("synchronizing")?;
    file.write_all(&[BYTE; UNWRITTEN]).context("writing")?;
    let at = third.kill()?;
    let path = ours.clone();
    let found = within("reading what a killed mount had written", move || {
        fs::read(path).context("reading")
    })?;
    let what = "a mount killed with unwritten data: another one reads the file after";
    site.figures
        .at_most(WANTED_S, what, at.elapsed().as_secs_f64(), "s");
    ensure!(
        found.starts_with(b"safe"),
        "what was synchronized is lost: {:?}",
        &found[..found.len().min(8)]
    );
    let strange = found[4..].iter().find(|byte| ![0, BYTE].contains(*byte));
    ensure!(
        strange.is_none() && found.len() <= UNWRITTEN + 4,
        "{} bytes, one of which is {strange:?}",
        found.len()
    );
    site.figures.note(
        "of its 200,000 unwritten bytes the file has",
        (found.len() - 4) as f64,
        "B",
    );
    fs::write(&ours, "again").context("writing the file again")?;
    ensure!(
        fs::read(&ours).context("reading it")? == b"again",
        "the file is not what the other mount wrote"
    );
    site.figures.proved(
        "a mount killed with unwritten data: what it had synchronized is there, others go on",
    );
    drop(file);
    fs::remove_file(&ours).context("removing the file")
}

/// Runs a call that may hang in a separate thread; a hanging one ends with its mount.
fn within<T: Send + 'static>(
    what: &str,
    run: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (done, result) = mpsc::channel();
    thread::spawn(move || drop(done.send(run())));
    let begun = Instant::now();
    match result.recv_timeout(HANG) {
        Ok(result) => result.with_context(|| what.to_owned()),
        Err(_) => bail!("{what}: not within {} s", begun.elapsed().as_secs()),
    }
}
