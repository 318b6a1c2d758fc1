//! The file system of a run: three mounts, and a separate program that works on them.
//!
//! ```text
//!  chaos ── "harm", "mended", "full", "room", "stop", "compare PATH" ──▶ work (this program again) ──▶ mount.0, mount.1: never mistreated
//!    │   ◀──────────────────── a line when that is heard or done ─────────────┘                   └──▶ mount.2: the victim
//!    └─ kills, stops, mounts again: mount.2
//! ```
//! * [`work`]: the program; [`worlds`]: calls on both intact mounts, with a model, at each rank and
//!   across; [`guest`]: a ledger on the victim that another mount reads; [`number`]: counting under
//!   a lock; [`excuses`]: calls that may fail, and when.
//!
//! Reason for the separate program: while a mount does not answer, a process with open files on it
//! cannot start another one, since closing them in the child are calls too. Chaos has to start the
//! process for which the mount waits.

mod excuses;
mod guest;
mod number;
pub mod work;
mod worlds;

use super::plan::{RANKS, VICTIM, Who};
use super::town::{Town, last_words};
use crate::cluster::files::{self, Mount};
use crate::cluster::{Cluster, signal};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

/// Maximum time for the program to read a command: it may be writing to a busy disk.
const HEARD_MAX: Duration = Duration::from_mins(1);
/// Maximum time for all calls in flight to end.
const STOP_MAX: Duration = Duration::from_mins(4);
const COMPARE_MAX: Duration = Duration::from_mins(5);
/// Number of attempts to mount: an attempt gives up after 30 s without a server, and a fault may
/// last longer.
const TRIES: u32 = 3;
/// Final message of a mount whose changes were not all safe: its session was ended, or there was no
/// space.
const LOST: &str = "the last changes may be lost: Input/output error";
const NO_ROOM: &str = "the last changes may be lost: No space left on device";
/// The mount with an empty cache.
pub const FRESH: u32 = 3;
/// Directories, and their ranks.
const FOLDERS: [(&str, u32); 4] = [("p0", 0), ("p1", 1), ("zero", 0), ("one", 1)];

/// See the module head. Mounts are dropped first: that ends calls of the program.
pub struct Files {
    mounts: BTreeMap<u32, Mount>,
    work: Work,
    dir: PathBuf,
    /// Whether a disk was full.
    was_full: bool,
}

/// The mount point of a mount.
pub fn place(dir: &Path, id: u32) -> PathBuf {
    dir.join(Who::Mount(id).to_string())
}
/// The file in which the program reports its longest waiting call, as loads on objects do.
pub fn waiting(dir: &Path) -> PathBuf {
    dir.join("files.waiting")
}

impl Files {
    /// Creates the file system, mounts it, and starts the program; the servers run already.
    ///
    /// # Errors
    /// When one of these fails.
    pub fn begin(town: &Town, seed: u64) -> Result<Self> {
        town.ask(&["fs", "create", files::NAME, "--ranks", &RANKS.to_string()])?;
        files::await_ranks(&town.cluster, RANKS as usize)?;
        let mut mounts = BTreeMap::new();
        for who in (0..=VICTIM.parts().1).map(Who::Mount) {
            mounts.insert(
                who.parts().1,
                mount(town.command_of(who), town.cluster.dir(), who.parts().1)?,
            );
        }
        for (folder, rank) in FOLDERS {
            fs::create_dir(place(town.cluster.dir(), 0).join(folder))
                .with_context(|| format!("making {folder}"))?;
            if rank > 0 {
                let (path, rank) = (format!("/{folder}"), rank.to_string());
                town.ask(&["fs", "subtree", "pin", files::NAME, &path, &rank])?;
            }
        }
        Ok(Self {
            mounts,
            work: Work::begin(town.cluster.dir(), seed)?,
            dir: town.cluster.dir().to_owned(),
            was_full: false,
        })
    }

    /// Mounts it again, with a command of the cluster; does nothing if it is mounted.
    ///
    /// # Errors
    /// When it is not mounted in time.
    pub fn mount(&mut self, id: u32, command: impl Fn() -> Command) -> Result<()> {
        if !self.mounts.contains_key(&id) {
            let mut tried = mount(command(), &self.dir, id);
            for _ in 1..TRIES {
                if let Err(why) = &tried {
                    println!("      {}: {why:#}", Who::Mount(id));
                    tried = mount(command(), &self.dir, id);
                }
            }
            self.mounts.insert(id, tried?);
        }
        self.work.tell("mended")
    }
    /// `kill -9`, and removes the mount; does nothing if it is not mounted.
    ///
    /// # Errors
    /// When the mount, or the program, had ended by itself.
    pub fn kill(&mut self, id: u32) -> Result<()> {
        let Some(mount) = self.mounts.remove(&id) else {
            return Ok(());
        };
        self.work.tell("harm")?;
        mount.kill().map(drop)
    }
    /// Sends SIGSTOP or SIGCONT; does nothing if it is not mounted.
    ///
    /// # Errors
    /// When the program has ended.
    pub fn signal(&mut self, id: u32, name: &str) -> Result<()> {
        let Some(mount) = self.mounts.get(&id) else {
            return Ok(());
        };
        if name == "STOP" {
            self.work.tell("harm")?;
        }
        let _ = signal(mount.pid(), name);
        if name == "CONT" {
            self.work.tell("mended")?;
        }
        Ok(())
    }
    /// Processes of the mounts.
    pub fn pids(&self) -> Vec<(Who, u32)> {
        self.mounts
            .iter()
            .map(|(id, mount)| (Who::Mount(*id), mount.pid()))
            .collect()
    }
    /// Reports that the victim is cut off.
    ///
    /// # Errors
    /// When the program has ended.
    pub fn tell_harm(&mut self) -> Result<()> {
        self.work.tell("harm")
    }
    /// Reports that it is not any more.
    ///
    /// # Errors
    /// When the program has ended.
    pub fn tell_mended(&mut self) -> Result<()> {
        self.work.tell("mended")
    }
    /// Reports that a disk is full, or is not any more.
    ///
    /// # Errors
    /// When the program has ended.
    pub fn tell_full(&mut self, full: bool) -> Result<()> {
        self.was_full |= full;
        self.work.tell(if full { "full" } else { "room" })
    }

    /// Checks that mounts and program run.
    ///
    /// # Errors
    /// What ended, and the program's finding.
    pub fn check(&mut self) -> Result<()> {
        self.work.check()?;
        self.mounts
            .iter_mut()
            .try_for_each(|(id, mount)| mount.must_run().with_context(|| format!("mount.{id}")))
    }

    /// Ends the program's calls and unmounts; returns its report.
    ///
    /// # Errors
    /// When a call does not end, or a mount does not end well.
    pub fn finish(&mut self) -> Result<String> {
        let said = self.work.ask("stop", STOP_MAX)?;
        while let Some((id, mount)) = self.mounts.pop_first() {
            let ended = mount.end().with_context(|| format!("mount.{id}"));
            let words = last_words(&self.dir.join(format!("mount.{id}.log")));
            // Data that was closed and never synchronized may have been lost with the victim's
            // session, or found no space on a full disk, without having been reported yet.
            let is_victim = Who::Mount(id) == VICTIM && words.contains(LOST);
            if is_victim || (self.was_full && (words.contains(LOST) || words.contains(NO_ROOM))) {
                println!("  {}: {words}", Who::Mount(id));
            } else {
                ended?;
            }
        }
        Ok(said)
    }

    /// Checks that the file system is consistent, and matches the program's models, as a new mount
    /// sees it.
    ///
    /// # Errors
    /// The inconsistency.
    pub fn judge(&mut self, cluster: &Cluster) -> Result<String> {
        files::check(cluster)?;
        let fresh = mount(cluster.command(), &self.dir, FRESH)?;
        let compared = self
            .work
            .ask(&format!("compare {}", fresh.dir().display()), COMPARE_MAX)?;
        fresh.end().context("the mount that was compared")?;
        Ok(compared)
    }
}

fn mount(command: Command, dir: &Path, id: u32) -> Result<Mount> {
    Mount::with(
        command,
        &place(dir, id),
        &dir.join(format!("{}.log", Who::Mount(id))),
    )
}

/// The program; it ends when its input is closed.
struct Work {
    child: Child,
    words: ChildStdin,
    answers: Receiver<String>,
    said: PathBuf,
}

impl Work {
    fn begin(dir: &Path, seed: u64) -> Result<Self> {
        let said = dir.join("files.said");
        let err = File::create(&said).with_context(|| format!("writing {}", said.display()))?;
        let mut command = Command::new(std::env::current_exe().context("finding this program")?);
        command
            .args(["chaos", "--work"])
            .arg(dir)
            .args(["--seed", &seed.to_string()]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(err);
        let mut child = command
            .spawn()
            .context("starting the program that works on files")?;
        let (words, lines) = (
            child.stdin.take().context("piped")?,
            child.stdout.take().context("piped")?,
        );
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || {
            BufReader::new(lines)
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Ok(Self {
            child,
            words,
            answers,
            said,
        })
    }
    /// Returns when the program has read the command: a call fails a moment after its mount was
    /// killed, and is excused by then.
    fn tell(&mut self, word: &str) -> Result<()> {
        self.ask(word, HEARD_MAX).map(drop)
    }
    fn ask(&mut self, word: &str, limit: Duration) -> Result<String> {
        // When it has ended, there is no answer either.
        let _ = writeln!(self.words, "{word}");
        match self.answers.recv_timeout(limit) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => {
                bail!("files: no answer to `{word}` for {} s", limit.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => bail!("files: {}", self.found()),
        }
    }
    fn found(&self) -> String {
        fs::read_to_string(&self.said)
            .unwrap_or_default()
            .trim()
            .to_owned()
    }
    fn check(&mut self) -> Result<()> {
        if let Some(status) = self
            .child
            .try_wait()
            .context("waiting for the program that works on files")?
        {
            bail!("files ({status}): {}", self.found());
        }
        Ok(())
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
