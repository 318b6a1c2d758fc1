//! Runs one program: prints its command line, measures the time, and counts its tests.

use crate::bounded::shown;
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// A program about to run.
pub struct Step(Command);

/// The test counts that a program reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Passed tests.
    pub passed: u64,
    /// Failed tests.
    pub failed: u64,
    /// Names of the failed tests.
    pub names: Vec<String>,
}

/// Cargo, from the toolchain that built this program.
pub fn cargo<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(arguments: I) -> Step {
    program(env!("CARGO")).args(arguments)
}

/// Any program.
pub fn program(name: impl AsRef<OsStr>) -> Step {
    Step(Command::new(name))
}

impl Step {
    /// Adds arguments.
    pub fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, arguments: I) -> Self {
        self.0.args(arguments);
        self
    }
    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    /// Runs it in this terminal.
    ///
    /// # Errors
    /// When it does not start or fails.
    pub fn run(mut self) -> Result<()> {
        let shown = shown(&self.0);
        println!("$ {shown}");
        let status = self
            .0
            .status()
            .with_context(|| format!("`{shown}` does not start"))?;
        if !status.success() {
            bail!("`{shown}` failed ({status})");
        }
        Ok(())
    }

    /// Whether it runs successfully; its output is not shown.
    #[must_use]
    pub fn succeeds(mut self) -> bool {
        self.0
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }

    /// Runs it, shows its output, and counts the tests it reports.
    ///
    /// # Errors
    /// When it does not start.
    pub fn count(mut self) -> Result<(bool, Tally)> {
        let shown = shown(&self.0);
        println!("$ {shown}");
        let mut child = self
            .0
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("`{shown}` does not start"))?;
        let mut tally = Tally::default();
        let lines =
            BufReader::new(child.stdout.take().expect("its output was asked for")).split(b'\n');
        for line in lines {
            let line = line.with_context(|| format!("reading from `{shown}`"))?;
            tally.add(&String::from_utf8_lossy(&line));
            let mut out = std::io::stdout().lock();
            out.write_all(&line)
                .and_then(|()| out.write_all(b"\n"))
                .context("writing to the terminal")?;
        }
        Ok((
            child
                .wait()
                .with_context(|| format!("waiting for `{shown}`"))?
                .success(),
            tally,
        ))
    }
}

impl Tally {
    /// Parses a line such as `test result: ok. 3 passed; 0 failed; 0 ignored; …`, or `test a::b ...
    /// FAILED`.
    fn add(&mut self, line: &str) {
        if let Some(name) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.names.push(name.to_owned());
        }
        let Some((_, counts)) = line.split_once("test result: ") else {
            return;
        };
        let counts = counts.split_once(". ").map_or(counts, |(_, counts)| counts);
        for part in counts.split(';') {
            match part.trim().split_once(' ') {
                Some((number, "passed")) => self.passed += number.parse().unwrap_or(0),
                Some((number, "failed")) => self.failed += number.parse().unwrap_or(0),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_tests_are_counted() {
        let mut tally = Tally::default();
        tally.add("test result: ok. 17 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.04s");
        tally.add("test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out");
        tally.add("test nonsense ... ok");
        tally.add("test a::b ... FAILED");
        assert_eq!(
            tally,
            Tally {
                passed: 19,
                failed: 3,
                names: vec!["a::b".to_owned()]
            }
        );
    }

    #[test]
    fn a_program_that_fails_is_an_error_and_one_that_is_missing_too() {
        assert!(program("true").run().is_ok());
        assert!(program("false").run().is_err());
        assert!(program("there-is-no-such-program").run().is_err());
        assert!(program("true").succeeds() && !program("false").succeeds());
    }
}
