//! Unmounting the mounts of `nacre up --mount`: `nacre down`, and the end of `nacre up`.
//!
//! ```text
//!  down          ──umount──▶ its process makes everything durable, and ends
//!                  └─ busy: its users are reported, and nothing is stopped
//!  down --force  ─┐
//!  up ends       ─┴─TERM──▶ its process detaches it, serves open files for 5 s, makes all durable,
//!                           and ends
//! ```
//! With force a process that does not end in 45 s is killed. A mount whose process was killed is
//! unmounted, too: it would never answer again.

use super::record::{self, Found, Server};
use super::users::users;
use anyhow::{Context as _, Result, bail};
use nacre_gateway::{MountError, Unmount, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The kernel releases a file a moment after its last `close`.
const BUSY_MAX: Duration = Duration::from_secs(2);
/// A mount's process gives open files 5 s, and the cluster 30 s to make everything durable.
const END_MAX: Duration = Duration::from_secs(45);
const LOOK: Duration = Duration::from_millis(20);

/// A mount that was unmounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenOff {
    /// Its directory.
    pub dir: PathBuf,
    /// The file system.
    pub fs: String,
    /// Data that may be lost, with the reason.
    pub fault: Option<String>,
}

impl TakenOff {
    /// As a sentence.
    #[must_use]
    pub fn line(&self) -> String {
        let what = format!("{} ({})", self.dir.display(), self.fs);
        match &self.fault {
            None => format!("{what} is unmounted; everything in it is safe"),
            Some(why) => format!("{what} is unmounted, but its last changes may be lost: {why}"),
        }
    }
}

/// Checks that all changes in these are durable.
///
/// # Errors
/// The ones where they are not, with the reasons.
pub fn all_safe(these: &[TakenOff]) -> Result<()> {
    let lost: Vec<String> = these
        .iter()
        .filter(|one| one.fault.is_some())
        .map(TakenOff::line)
        .collect();
    match &lost[..] {
        [] => Ok(()),
        lost => bail!("{}", lost.join("; ")),
    }
}

/// Unmounts all mounts of `nacre up --mount`; without `force` none that a program uses.
///
/// # Errors
/// A program uses one of them, or one cannot be unmounted: the recommended action. With `force` the
/// others are unmounted all the same.
pub fn all(run: &Path, force: bool) -> Result<Vec<TakenOff>> {
    let (found, by_hand): (Vec<Found>, Vec<Found>) = record::all(run)?
        .into_iter()
        .partition(|one| one.record.by_up);
    // Manual mounts are not this command's; of killed ones only the file is left.
    by_hand
        .iter()
        .filter(|one| !one.runs())
        .for_each(Found::forget);
    // Detect mounts in use before unmounting the first one.
    if !force {
        for one in found
            .iter()
            .filter(|one| one.runs() && one.record.entry().is_some())
        {
            if let Some(users) = settled_users(&one.record.dir) {
                return Err(in_use(one, Some(users)));
            }
        }
    }
    let (mut done, mut failed) = (Vec::new(), None);
    for one in &found {
        match one_of(one, force) {
            Ok(taken) => done.push(taken),
            Err(why) => failed = failed.or(Some(why)),
        }
        if failed.is_some() && !force {
            break;
        }
    }
    match (failed, all_safe(&done)) {
        (None, _) => Ok(done),
        (Some(why), Ok(())) => Err(why),
        // Report it here: its record has been removed.
        (Some(why), Err(lost)) => bail!("{why:#}; {lost}"),
    }
}

fn one_of(one: &Found, force: bool) -> Result<TakenOff> {
    if one.runs() {
        if force || one.record.entry().is_none() {
            signal(one, Signal::TERM)?;
        } else {
            unmount_unused(one)?;
        }
        return await_end(one, force);
    }
    remove_dead(one)
}

/// The programs that use it, and do not end within a moment.
fn settled_users(dir: &Path) -> Option<String> {
    let begun = Instant::now();
    loop {
        let users = users(dir)?;
        if begun.elapsed() > BUSY_MAX {
            return Some(users);
        }
        std::thread::sleep(LOOK);
    }
}

fn unmount_unused(one: &Found) -> Result<()> {
    let begun = Instant::now();
    loop {
        match unmount(&one.record.dir, Unmount::Unused) {
            Err(MountError::Busy { .. }) if begun.elapsed() < BUSY_MAX => std::thread::sleep(LOOK),
            Err(MountError::Busy { .. }) => return Err(in_use(one, users(&one.record.dir))),
            other => return Ok(other?),
        }
    }
}

fn in_use(one: &Found, users: Option<String>) -> anyhow::Error {
    let dir = one.record.dir.display();
    let users = users.unwrap_or_else(|| "programs that this user may not see".to_owned());
    anyhow::anyhow!(
        "{dir} is in use: {users}; so nothing was stopped. End them and say it again, or take it away from them \
         with `nacre down --force`: what they have written is safe then, and their next calls fail"
    )
}

/// Unmounts everything without making changes durable: the cluster is being discarded. Programs in
/// a mount end or get errors, including those that wait for an answer.
///
/// # Errors
/// One cannot be unmounted.
pub fn give_up(run: &Path) -> Result<()> {
    for one in record::all(run)? {
        signal(&one, Signal::KILL)?;
        if one.record.entry().is_some() {
            unmount(&one.record.dir, Unmount::Detach)?;
        }
    }
    Ok(())
}

/// Signals a mount's process. It has its record open and locked, so the process id is valid.
fn signal(one: &Found, signal: Signal) -> Result<()> {
    let Server::Runs(pid) = one.server else {
        return Ok(());
    };
    let pid = pid
        .and_then(|pid| i32::try_from(pid).ok())
        .and_then(Pid::from_raw);
    let pid = pid.with_context(|| {
        format!(
            "the process of {} cannot be found",
            one.record.dir.display()
        )
    })?;
    match kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(why) => bail!(
            "ending the mount {} (process {}): {why}",
            one.record.dir.display(),
            pid.as_raw_nonzero()
        ),
    }
}

/// Waits until its process has ended; returns how. With `force` a process that does not end is
/// killed.
fn await_end(one: &Found, force: bool) -> Result<TakenOff> {
    let (mut begun, mut killed) = (Instant::now(), false);
    loop {
        let Some(now) = one.again()? else {
            return Ok(TakenOff {
                dir: one.record.dir.clone(),
                fs: one.record.fs.clone(),
                fault: None,
            });
        };
        if !now.runs() {
            return remove_dead(&now);
        }
        if begun.elapsed() > END_MAX && force && !killed {
            signal(one, Signal::KILL)?;
            (begun, killed) = (Instant::now(), true);
        }
        if begun.elapsed() > END_MAX {
            bail!(
                "{} is unmounted, but its process{} does not end, so nothing was stopped: what it has to write may not \
                 be safe yet; `nacre down --force` kills it",
                one.record.dir.display(),
                now.process()
            );
        }
        std::thread::sleep(LOOK);
    }
}

/// Removes the rest of a process that was killed, or that has not made everything durable.
fn remove_dead(one: &Found) -> Result<TakenOff> {
    if one.record.entry().is_some() {
        unmount(&one.record.dir, Unmount::Detach)?;
    }
    one.forget();
    let fault = match &one.server {
        Server::Unsafe(why) => why.clone(),
        _ => "its process was killed".to_owned(),
    };
    Ok(TakenOff {
        dir: one.record.dir.clone(),
        fs: one.record.fs.clone(),
        fault: Some(fault),
    })
}

/// Mounted and served ones: their calls wait while the cluster does not run.
///
/// # Errors
/// The records cannot be read.
pub fn waiting(run: &Path) -> Result<Vec<Found>> {
    Ok(record::all(run)?
        .into_iter()
        .filter(|one| one.runs() && one.record.entry().is_some())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::record::{Kept, Record};

    fn run(name: &str) -> PathBuf {
        let run =
            std::env::temp_dir().join(format!("nacre-take-off-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&run).expect("a folder");
        run
    }

    /// The end of each process is reported for its mount, once; and only for mounts of `up`.
    #[test]
    fn what_ended_processes_have_left_is_said_and_forgotten() {
        let run = run("ended");
        let keep = |by_up: bool, fault: Option<&str>| {
            let record = Record {
                dir: "/nowhere".into(),
                fs: "home".into(),
                device: "0:9999".into(),
                by_up,
            };
            let kept = Kept::begin(&run, &record).expect("writable");
            match fault {
                Some("killed") => drop(kept),
                fault => kept.end(fault),
            }
            all(&run, false).expect("nothing is mounted")
        };
        assert_eq!(keep(true, None), []);
        for (fault, said) in [
            ("no space", "no space"),
            ("killed", "its process was killed"),
        ] {
            let taken = keep(true, Some(fault));
            let why = all_safe(&taken)
                .expect_err("something may be lost")
                .to_string();
            assert_eq!(
                why,
                format!("/nowhere (home) is unmounted, but its last changes may be lost: {said}")
            );
            assert_eq!(
                all(&run, false).expect("nothing is mounted"),
                [],
                "said once"
            );
        }
        assert_eq!(keep(false, Some("killed")), [], "another's");
        assert_eq!(
            record::all(&run).expect("readable"),
            [],
            "its file is gone all the same"
        );
        all_safe(&[]).expect("nothing is lost");
        std::fs::remove_dir_all(run).expect("ours");
    }
}
