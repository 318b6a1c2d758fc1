//! `up --detach`: the same command again, in a process without a terminal.
//!
//! ```text
//!  nacre up --detach ──starts──▶ nacre up --in-background   output: DIR/run/up.log
//!         ▲                                │
//!         └── "ready 0.21" or the end ─────┘                over a socket, its standard input
//! ```

use super::host::open_log;
use anyhow::{Context, Result, bail};
use nacre_node::{locks, stop};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long the background process may be silent: it times out by itself before that.
const SILENCE: Duration = Duration::from_secs(150);

/// In the background process: the socket on which it reports that it is ready.
pub struct Ready(UnixStream);

/// Detaches from the terminal.
///
/// # Errors
/// When standard input is not the socket from [`start`].
pub fn begin() -> Result<Ready> {
    stop::leave_terminal();
    let input = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .context("standard input is closed")?;
    Ok(Ready(UnixStream::from(input)))
}

impl Ready {
    /// Notifies the waiting process.
    ///
    /// # Errors
    /// Never when no process waits any more: the cluster continues.
    pub fn announce(&mut self, took: Duration, missing: &[String]) -> Result<()> {
        crate::say::to_stdout(&format!(
            "{} ready after {:.2} s",
            crate::clock::now_utc(),
            took.as_secs_f64()
        ));
        for line in missing {
            let _ = writeln!(self.0, "missing {}", line.replace('\n', " "));
        }
        let _ = writeln!(self.0, "ready {}", took.as_secs_f64());
        let _ = self.0.shutdown(std::net::Shutdown::Both);
        Ok(())
    }
}

/// Starts the background process and waits until it is ready; returns the startup time of its
/// daemons.
///
/// # Errors
/// Its last error when it ended.
pub fn start(dir: &Path, processes: bool, first_pool: Option<u32>) -> Result<Duration> {
    let dir = dir
        .canonicalize()
        .with_context(|| format!("finding {}", dir.display()))?;
    let run = locks::run_folder(&dir);
    std::fs::create_dir_all(&run).with_context(|| format!("making {}", run.display()))?;
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command
        .arg("up")
        .arg("--in-background")
        .arg("--dir")
        .arg(&dir)
        .current_dir(&dir);
    if processes {
        command.arg("--processes");
    }
    if let Some(size) = first_pool {
        command.args(["--first-pool", &size.to_string()]);
    }
    wait_for(command, &run.join("up.log"), "the cluster did not start")
}

/// Starts a background process with that log, and waits until it is ready; returns its startup
/// time.
///
/// # Errors
/// Its last error when it ended.
pub fn wait_for(mut command: Command, path: &Path, failed: &str) -> Result<Duration> {
    let mut log = open_log(path)?;
    let begins = log
        .seek(SeekFrom::End(0))
        .context("reading the log's length")?;
    let (ours, theirs) = UnixStream::pair().context("making a socket")?;
    command.stdin(Stdio::from(OwnedFd::from(theirs)));
    command
        .stdout(log.try_clone().context("using the log twice")?)
        .stderr(log);
    let mut child = command.spawn().context("starting the background process")?;
    // Closes this process's end of the socket: reading then ends with the child.
    drop(command);
    ours.set_read_timeout(Some(SILENCE))
        .context("setting a time limit")?;
    let (mut line, mut ours) = (String::new(), BufReader::new(ours));
    let heard = loop {
        line.clear();
        let heard = ours.read_line(&mut line);
        let Some(missing) = line.strip_prefix("missing ") else {
            break heard;
        };
        crate::say::line(&format!("nacre: {}", missing.trim()));
    };
    if let Some(seconds) = line
        .strip_prefix("ready ")
        .and_then(|seconds| seconds.trim().parse().ok())
    {
        return Ok(Duration::from_secs_f64(seconds));
    }
    if heard.is_err() {
        let _ = child.kill();
    }
    let ended = child.wait().context("waiting for the background process")?;
    let said = last_error(path, begins);
    bail!(said.unwrap_or_else(|| format!("{failed} ({ended}); {} says more", path.display())))
}

/// The last error in the log after offset `begins`.
fn last_error(path: &Path, begins: u64) -> Option<String> {
    let mut file = std::fs::File::open(path).ok()?;
    file.seek(SeekFrom::Start(begins)).ok()?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines()
        .rev()
        .find_map(|line| line.strip_prefix("nacre: "))
        .map(str::to_owned)
}
