//! Stopping all processes of a directory, from outside (`nacre down`).
//!
//! ```text
//!  embedded ──TERM──▶ gone          keeper ──TERM──▶ it stops all daemons ──▶ gone
//!                                   daemons without one: OSDs, then monitors, so that an OSD can still report its end
//!            not gone in time ──KILL──▶ gone: acknowledged data are on disk, so nothing is lost
//! ```

use crate::error::StartError;
use crate::locks::{self, Holder, Part};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::time::Duration;

const LOOK: Duration = Duration::from_millis(10);

/// A process that was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Its role.
    pub part: Part,
    /// Its process id.
    pub pid: u32,
    /// Whether it did not end when asked, and was killed.
    pub killed: bool,
}

fn signal(dir: &Path, holder: &Holder, signal: Signal) -> Result<u32, StartError> {
    let not_ours = || StartError::NotOurs {
        who: holder.part.to_string(),
        dir: dir.to_owned(),
    };
    let pid = holder.pid.ok_or_else(not_ours)?;
    let target = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(not_ours)?;
    match kill_process(target, signal) {
        // It has just ended by itself.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(pid),
        Err(_) => Err(not_ours()),
    }
}

/// Waits until these have ended; returns those that still run.
fn await_gone(dir: &Path, these: &[Holder], max: Duration) -> Result<Vec<Holder>, StartError> {
    let begun = crate::clock::now();
    loop {
        let now = locks::holders(dir)?;
        let left: Vec<Holder> = these
            .iter()
            .filter(|one| now.contains(one))
            .cloned()
            .collect();
        if left.is_empty() || crate::clock::now().since(begun) > max {
            return Ok(left);
        }
        std::thread::sleep(LOOK);
    }
}

/// Asks these to end, all at once; kills those still running after `max`.
fn end(
    dir: &Path,
    these: &[Holder],
    max: Duration,
    stopped: &mut Vec<Stopped>,
) -> Result<(), StartError> {
    let mut asked = Vec::new();
    for holder in these {
        asked.push((holder, signal(dir, holder, Signal::TERM)?));
    }
    let late = await_gone(dir, these, max)?;
    for holder in &late {
        signal(dir, holder, Signal::KILL)?;
    }
    if let Some(left) = await_gone(dir, &late, max)?.first() {
        return Err(StartError::NotOurs {
            who: left.part.to_string(),
            dir: dir.to_owned(),
        });
    }
    stopped.extend(asked.into_iter().map(|(holder, pid)| Stopped {
        part: holder.part.clone(),
        pid,
        killed: late.contains(holder),
    }));
    Ok(())
}

/// Stops the daemons' processes of a directory: servers of file systems, OSDs, monitors. None
/// running is no error.
///
/// # Errors
/// [`StartError`].
pub fn stop_daemons(dir: &Path, max: Duration) -> Result<Vec<Stopped>, StartError> {
    let mut stopped = Vec::new();
    let is_a = |holder: &Holder, kind: &str| matches!(&holder.part, Part::Daemon(who) if who.starts_with(kind));
    let all = locks::holders(dir)?;
    let daemons: Vec<Holder> = all
        .into_iter()
        .filter(|holder| matches!(holder.part, Part::Daemon(_)))
        .collect();
    let (servers, others): (Vec<Holder>, Vec<Holder>) =
        daemons.into_iter().partition(|one| is_a(one, "mds."));
    let (mons, osds): (Vec<Holder>, Vec<Holder>) =
        others.into_iter().partition(|one| is_a(one, "mon."));
    end(dir, &servers, max, &mut stopped)?;
    end(dir, &osds, max, &mut stopped)?;
    end(dir, &mons, max, &mut stopped)?;
    Ok(stopped)
}

/// Stops all processes of a directory, waiting at most `max` for each step; removes stale pid
/// files.
///
/// # Errors
/// [`StartError::NotRunning`]; [`StartError::NotOurs`] when a process may not be signalled.
pub fn stop(dir: &Path, max: Duration) -> Result<Vec<Stopped>, StartError> {
    let holders = locks::holders(dir)?;
    if holders.is_empty() {
        locks::clear_stale(dir)?;
        return Err(StartError::NotRunning {
            dir: dir.to_owned(),
        });
    }
    let mut stopped = Vec::new();
    let whole: Vec<Holder> = holders
        .iter()
        .filter(|holder| holder.part == Part::Embedded)
        .cloned()
        .collect();
    end(dir, &whole, max, &mut stopped)?;
    let keeper: Vec<Holder> = holders
        .iter()
        .filter(|holder| holder.part == Part::Keeper)
        .cloned()
        .collect();
    // It has two steps of its own, each with this limit.
    end(dir, &keeper, max * 3, &mut stopped)?;
    let gone: Vec<Holder> = holders
        .into_iter()
        .filter(|holder| matches!(holder.part, Part::Daemon(_)))
        .collect();
    let by_keeper = !keeper.is_empty();
    let rest = stop_daemons(dir, max)?;
    if by_keeper {
        for holder in gone
            .iter()
            .filter(|holder| rest.iter().all(|one| one.part != holder.part))
        {
            let pid = holder.pid.unwrap_or_default();
            stopped.push(Stopped {
                part: holder.part.clone(),
                pid,
                killed: false,
            });
        }
    }
    stopped.extend(rest);
    locks::clear_stale(dir)?;
    Ok(stopped)
}

/// Leaves the terminal's session, so that closing the terminal does not end this process.
pub fn leave_terminal() {
    // Fails only for the leader of a process group, which then keeps its session.
    let _ = rustix::process::setsid();
}
