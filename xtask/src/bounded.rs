//! Bounded waits: a program that does not end, or a condition that does not occur, is an error that
//! says so.

use anyhow::{Context, Result, bail};
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// Polling interval: short compared to what is measured with it (commands of some ten
/// milliseconds).
const LOOK: Duration = Duration::from_millis(1);

/// Runs a program and captures its output; kills it when it takes longer than `limit`.
///
/// # Errors
/// When it does not start, or does not end in time.
pub fn output(command: &mut Command, limit: Duration) -> Result<Output> {
    output_with(command, Stdio::null(), limit)
}

/// As [`output`], for a program that must succeed: returns what it printed.
///
/// # Errors
/// As [`output`]; also when it fails, with its output.
pub fn printed(command: &mut Command, limit: Duration) -> Result<String> {
    let output = output(command, limit)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "`{}` failed ({}): {}",
            shown(command),
            output.status,
            said.trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// As [`output`], with an input.
///
/// # Errors
/// As [`output`].
pub fn output_with(command: &mut Command, input: Stdio, limit: Duration) -> Result<Output> {
    let shown = shown(command);
    let mut child = command
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let child = child
        .as_mut()
        .map_err(|why| anyhow::anyhow!("`{shown}` does not start: {why}"))?;
    // A full pipe would block it: both are read while it runs.
    let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let status = ended(child, limit).with_context(|| format!("`{shown}`"))?;
    let text =
        |reader: std::thread::JoinHandle<Vec<u8>>| reader.join().expect("a reader does not panic");
    Ok(Output {
        status,
        stdout: text(out),
        stderr: text(err),
    })
}

fn reader(source: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // Output before an error is still shown.
        let _ = source.map(|mut source| source.read_to_end(&mut bytes));
        bytes
    })
}

/// A program that is killed when this is dropped.
pub struct Killed(pub Child);
impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a child to end; kills it when that takes longer than `limit`.
///
/// # Errors
/// When it was killed.
pub fn ended(child: &mut Child, limit: Duration) -> Result<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context("waiting for a program")? {
            return Ok(status);
        }
        if begun.elapsed() > limit {
            let _ = child.kill();
            let _ = child.wait();
            bail!("did not end in {} s and was killed", limit.as_secs());
        }
        std::thread::sleep(LOOK);
    }
}

/// Polls `ask` every 10 ms until it returns an answer.
///
/// # Errors
/// The error of `ask`; also when there is no answer within `limit`: then `what` did not happen.
pub fn until<T>(
    what: &str,
    limit: Duration,
    mut ask: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(found) = ask()? {
            return Ok(found);
        }
        if begun.elapsed() > limit {
            bail!("{what}: not within {} s", limit.as_secs_f64());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The command line as a user would type it.
pub fn shown(command: &Command) -> String {
    let name = std::path::Path::new(command.get_program())
        .file_name()
        .unwrap_or_default();
    let words = std::iter::once(name).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_larger_than_a_pipe_arrives_and_what_hangs_is_killed() {
        let many = output(
            Command::new("head").args(["-c", "300000", "/dev/zero"]),
            Duration::from_mins(1),
        );
        assert_eq!(many.expect("runs").stdout.len(), 300_000);
        let hangs = output(Command::new("sleep").arg("600"), Duration::ZERO).expect_err("hangs");
        assert!(format!("{hangs:#}").contains("sleep 600"), "{hangs:#}");
    }

    #[test]
    fn what_ends_badly_is_an_error_with_what_it_said() {
        let mut shell = Command::new("sh");
        let printed = printed(shell.args(["-c", "echo well"]), Duration::from_mins(1));
        assert_eq!(printed.expect("runs"), "well\n");
        let mut shell = Command::new("sh");
        let why = super::printed(
            shell.args(["-c", "echo why >&2; exit 3"]),
            Duration::from_mins(1),
        );
        let why = why.expect_err("it fails").to_string();
        assert!(
            why.contains("exit 3` failed (exit status: 3): why"),
            "{why}"
        );
    }

    #[test]
    fn a_state_that_does_not_come_is_an_error_with_its_name() {
        let mut left = 3;
        let counted = until("counted", Duration::from_mins(1), || {
            left -= 1;
            Ok((left == 0).then_some("done"))
        });
        assert_eq!(counted.expect("comes"), "done");
        let never = until("rain", Duration::ZERO, || Ok(None::<()>)).expect_err("never");
        assert!(never.to_string().contains("rain"));
    }
}
