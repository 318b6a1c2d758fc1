//! Third-party programs: found, installed where that is possible without interaction, and run with
//! a time limit.

use crate::bounded;
use crate::install;
use crate::workspace::Workspace;
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// Maximum number of bytes of a program's output quoted in an error.
const QUOTED: usize = 3_000;

/// Runs one; returns its output, including errors.
///
/// # Errors
/// When it does not succeed within `limit`, with the end of its output.
pub fn run(command: &mut Command, limit: Duration) -> Result<String> {
    let (status, said) = said(command, limit)?;
    if !status.success() {
        bail!(
            "`{}` failed ({status}): {}",
            bounded::shown(command),
            last(&said, QUOTED)
        );
    }
    Ok(said)
}

/// As [`run`], with any exit status.
///
/// # Errors
/// When it does not end within `limit`.
pub fn said(command: &mut Command, limit: Duration) -> Result<(ExitStatus, String)> {
    let output = bounded::output(command, limit)?;
    Ok((
        output.status,
        plain(&[output.stdout, output.stderr].concat()),
    ))
}

/// Ensures that a program of a package is installed.
///
/// # Errors
/// When it is not installed and cannot be.
pub fn package(program: &str, package: &str, why: &str) -> Result<()> {
    install::programs(&[(program, package, why)])
}

/// Ensures that a program of a crate is built, in a directory next to the build; returns its path.
///
/// # Errors
/// When it does not exist and cannot be built.
pub fn from_crate(name: &str) -> Result<PathBuf> {
    install::from_crate(name, &Workspace::load()?.target.join("tools"))
}

/// Text without colour escape sequences.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once('m').map_or(part, |(_, rest)| rest));
    }
    plain
}

/// The end of a text, from the beginning of a line if possible.
fn last(text: &str, most: usize) -> &str {
    let text = text.trim();
    let from = text.len().saturating_sub(most);
    let from = (from..text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    let tail = &text[from..];
    if from == 0 {
        tail
    } else {
        tail.split_once('\n').map_or(tail, |(_, rest)| rest)
    }
}

/// The number before a word, as in `3 failed, 382 passed`.
pub fn number_before(text: &str, word: &str) -> Option<u64> {
    let before = text
        .split(word)
        .next()
        .filter(|before| before.len() < text.len())?;
    before.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_no_text() {
        let line =
            "\u{1b}[1mSummary\u{1b}[0m: 0 \u{1b}[31mfailed\u{1b}[0m, 382 \u{1b}[32mpassed\u{1b}[0m";
        let text = plain(line.as_bytes());
        assert_eq!(text, "Summary: 0 failed, 382 passed");
        assert_eq!(
            ["failed", "passed", "lost"].map(|word| number_before(&text, word)),
            [Some(0), Some(382), None]
        );
    }

    #[test]
    fn an_error_quotes_the_end() {
        assert_eq!(last("first\nsecond\nthird", 9), "third");
        assert_eq!(last("short", 900), "short");
    }
}
