//! Programs of others: found, got where that is possible without asking, and run with a bound.

use crate::bounded;
use crate::install;
use crate::workspace::Workspace;
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// What of a program's output an error quotes.
const QUOTED: usize = 3_000;

/// Runs one; gives what it printed, errors included.
///
/// # Errors
/// When it does not end well within `limit`, with the end of what it said.
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

/// As [`run`], however it ends.
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

/// Makes sure of a program that a package has.
///
/// # Errors
/// When it is not there and does not come.
pub fn package(program: &str, package: &str, why: &str) -> Result<()> {
    install::programs(&[(program, package, why)])
}

/// Makes sure of a program that a crate has, in a folder beside what is built; its path.
///
/// # Errors
/// When it is not there and cannot be built.
pub fn from_crate(name: &str) -> Result<PathBuf> {
    install::from_crate(name, &Workspace::load()?.target.join("tools"))
}

/// Text without the sequences that colour it.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once('m').map_or(part, |(_, rest)| rest));
    }
    plain
}

/// The end of a text, from a line's beginning if there is one.
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
