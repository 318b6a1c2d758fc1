//! A `nacre` command in the background: a load, a mount, a cluster in one process. What it prints
//! goes to a file.

use super::{ended_well, terminated};
use crate::bounded::{self, Killed};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Lines of the output that an error repeats.
const LAST: usize = 40;

/// See the module head. Killed when dropped.
pub struct Client {
    child: Killed,
    said: PathBuf,
}

impl Client {
    /// Starts a command; appends its output to a file, whose name is the client's name in errors.
    ///
    /// # Errors
    /// When it does not start.
    pub fn begin(command: &mut Command, said: &Path) -> Result<Self> {
        let out = appended(said)?;
        command
            .stdin(Stdio::null())
            .stdout(out.try_clone().context("using a file twice")?)
            .stderr(out);
        let child = command
            .spawn()
            .with_context(|| format!("`{}` does not start", bounded::shown(command)))?;
        Ok(Self {
            child: Killed(child),
            said: said.to_owned(),
        })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }
    /// The last lines that it printed.
    pub fn said(&self) -> String {
        last_lines(&self.said, LAST)
    }
    /// The first JSON value that it printed.
    pub fn answer(&self) -> Option<Value> {
        first_json(&fs::read_to_string(&self.said).ok()?)
    }

    fn name(&self) -> String {
        let name = self.said.file_stem().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.0.try_wait().context("waiting for a client")
    }
    /// Checks that it is running.
    ///
    /// # Errors
    /// When it has ended, with its output.
    pub fn must_run(&mut self) -> Result<()> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => bail!(
                "{} ended by itself ({status}): {}",
                self.name(),
                self.said()
            ),
        }
    }

    /// Kills it, as a crash would, if it has not ended; returns the time.
    pub fn kill(&mut self) -> Instant {
        let _ = self.child.0.kill();
        let killed = Instant::now();
        let _ = self.child.0.wait();
        killed
    }
    /// Waits for its end; kills it when that takes longer than `limit`.
    ///
    /// # Errors
    /// When it was killed.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        bounded::ended(&mut self.child.0, limit).with_context(|| self.name())
    }
    /// As [`Self::wait`], for one that must succeed: returns its answer, or nothing if there is
    /// none.
    ///
    /// # Errors
    /// As [`Self::wait`]; also when it fails, with its output.
    pub fn finish(mut self, limit: Duration) -> Result<Value> {
        let status = self.wait(limit)?;
        ensure!(
            status.success(),
            "{} failed ({status}): {}",
            self.name(),
            self.said()
        );
        Ok(self.answer().unwrap_or_default())
    }
    /// Terminates it, and waits for its end.
    ///
    /// # Errors
    /// When it does not end in time, or fails.
    pub fn end(mut self, limit: Duration) -> Result<()> {
        let status = terminated(&mut self.child.0, limit).with_context(|| self.name())?;
        ensure!(
            ended_well(status),
            "{} ended badly ({status}): {}",
            self.name(),
            self.said()
        );
        Ok(())
    }
}

/// Opens a log.
///
/// # Errors
/// When it cannot be created.
pub fn appended(path: &Path) -> Result<File> {
    let log = File::options().create(true).append(true).open(path);
    log.with_context(|| format!("opening {}", path.display()))
}

/// The last lines of a text file; none if there is no file.
pub fn last_lines(path: &Path, count: usize) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.trim().lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// A text that is JSON; otherwise the first JSON object in it, ignoring text before and after it.
fn first_json(text: &str) -> Option<Value> {
    if let Ok(whole) = serde_json::from_str(text) {
        return Some(whole);
    }
    let begins = text.find('{')?;
    serde_json::Deserializer::from_str(&text[begins..])
        .into_iter::<Value>()
        .next()?
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_among_other_output() {
        let text = "nacre: a warning\n{\n \"ops\": 3\n}\n{\"second\": 1}\n";
        assert_eq!(first_json(text).expect("found")["ops"], 3);
        assert!(first_json("nothing").is_none() && first_json("{ broken").is_none());
        assert_eq!(first_json("[{ \"a\": 1 }]").expect("found")[0]["a"], 1);
    }

    #[test]
    fn a_client_that_fails_is_an_error_with_its_output() {
        let said = std::env::temp_dir().join(format!("nacre-client-{}.said", std::process::id()));
        let mut shell = Command::new("sh");
        let begin = |shell: &mut Command| Client::begin(shell, &said).expect("starts");
        let client = begin(shell.args(["-c", "echo '{ \"a\": 1 }'"]));
        assert_eq!(client.finish(Duration::from_mins(1)).expect("ends")["a"], 1);
        let mut shell = Command::new("sh");
        let client = begin(shell.args(["-c", "echo why >&2; exit 3"]));
        let why = client.finish(Duration::from_mins(1)).expect_err("it fails");
        assert!(why.to_string().contains("failed (exit status: 3)"), "{why}");
        assert!(why.to_string().ends_with("why"), "{why}");
        let client = begin(Command::new("sleep").arg("600"));
        client.end(Duration::from_mins(1)).expect("it is told to");
        fs::remove_file(&said).expect("removable");
    }
}
