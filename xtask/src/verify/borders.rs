//! Checks that every counted limit and rare path is in the table of `docs/faults.md`, with the
//! seeds that cross it, and that none has the count zero.
//!
//! The limits of a store are drawn and counted by its own tests (`crates/store/tests/borders.rs`),
//! which fail on a zero. The counts of an OSD come from `./x sim --seeds 200`, which `./x test`
//! runs and which fails on a zero. This check only reads the table.

use super::report;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;

const TABLE: &str = "docs/faults.md";
const SOURCES: &[&str] = &["crates/osd/src/borders.rs", "crates/sim/src/borders.rs"];

/// The names in a list of borders: lines that consist of a name and a comma.
fn names(source: &str) -> Vec<&str> {
    let name =
        |line: &str| line.len() > 1 && line.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    source
        .lines()
        .filter_map(|line| line.trim().strip_suffix(','))
        .filter(|line| name(line))
        .collect()
}

/// Rows of the table: a name in backquotes first, a count last.
fn rows(document: &str) -> BTreeMap<&str, u64> {
    let mut found = BTreeMap::new();
    for line in document
        .lines()
        .filter(|line| line.trim().starts_with("| `"))
    {
        let mut parts = line.trim().trim_matches('|').split('|').map(str::trim);
        let (Some(name), Some(count)) = (parts.next(), parts.next_back()) else {
            continue;
        };
        if let Ok(count) = count.replace(',', "").parse() {
            found.insert(name.trim_matches('`'), count);
        }
    }
    found
}

fn compare(names: &[&str], rows: &BTreeMap<&str, u64>) -> Vec<String> {
    let missing = names
        .iter()
        .filter(|name| rows.get(**name).is_none_or(|count| *count == 0));
    let mut findings: Vec<String> = missing
        .map(|name| {
            format!("{TABLE}: no seed is said to cross `{name}`; `./x sim --seeds 200` counts")
        })
        .collect();
    let unknown = rows.keys().filter(|name| !names.contains(name));
    findings.extend(unknown.map(|name| format!("{TABLE}: `{name}` is no border")));
    findings
}

/// See the module head.
///
/// # Errors
/// Borders that are missing or never crossed.
pub fn check(workspace: &Workspace) -> Result<()> {
    let read =
        |path: &str| fs::read_to_string(workspace.root.join(path)).with_context(|| path.to_owned());
    let sources: Vec<String> = SOURCES
        .iter()
        .filter(|path| workspace.root.join(path).exists())
        .map(|path| read(path))
        .collect::<Result<_>>()?;
    let names: Vec<&str> = sources.iter().flat_map(|source| names(source)).collect();
    report(compare(&names, &rows(&read(TABLE)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_border_without_a_row_and_one_at_zero_are_findings() {
        let names =
            names("borders! {\n    /// Pages.\n    pages,\n    /// Held.\n    held,\n    gone,\n}");
        assert_eq!(names, ["pages", "held", "gone"]);
        let rows = rows(
            "| border | seeds | crossed |\n| `pages` | all | 1,204 |\n| `held` | all | 0 |\n| `other` | all | 2 |\n| prose |",
        );
        let findings = compare(&names, &rows);
        assert_eq!(findings.len(), 3, "{findings:?}");
    }
}
