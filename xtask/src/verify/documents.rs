//! Checks that references in documents are valid: relative links, their anchors, and paths in
//! backticks.

use super::{report, tracked};
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// Directories whose files are named with their full path in prose, so that a reader (and this
/// check) can find them.
const ROOTS: &[&str] = &["crates/", "docs/", "xtask/", "bench/", "fuzz/"];

/// Checks every document.
///
/// # Errors
/// Every invalid reference.
pub fn check(workspace: &Workspace) -> Result<()> {
    let mut findings = Vec::new();
    let files = tracked(&workspace.root, "*.md")?;
    for file in &files {
        let text = fs::read_to_string(workspace.root.join(file))
            .with_context(|| format!("reading {}", file.display()))?;
        for (line, pointer) in pointers(&text) {
            // The plan names future files; its links must be valid all the same.
            if file == Path::new("docs/plan.md") && matches!(pointer, Pointer::Path(_)) {
                continue;
            }
            if let Some(why) = dangles(&workspace.root, file, &text, &pointer) {
                findings.push(format!("{}:{line}: {why}", file.display()));
            }
        }
    }
    println!("        {} documents", files.len());
    report(findings)
}

/// A reference in a document.
#[derive(Debug, PartialEq, Eq)]
enum Pointer {
    /// `[text](target)`.
    Link(String),
    /// A path in backticks, relative to the root.
    Path(String),
}

/// Every reference with its line, outside code blocks.
fn pointers(text: &str) -> Vec<(usize, Pointer)> {
    let (mut found, mut in_block) = (Vec::new(), false);
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
            continue;
        }
        if in_block {
            continue;
        }
        // Odd parts are between backticks: code is not a link, and prose is not a path.
        for (part, text) in line.split('`').enumerate() {
            if part % 2 == 1 {
                let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
                if ROOTS.iter().any(|root| text.starts_with(root)) && text.chars().all(plain) {
                    found.push((index + 1, Pointer::Path(text.to_owned())));
                }
            }
        }
        let prose = without_code(line);
        for (at, _) in prose.match_indices("](") {
            if let Some((target, _)) = prose[at + 2..].split_once(')') {
                found.push((index + 1, Pointer::Link(target.to_owned())));
            }
        }
    }
    found
}

/// A line with the text between backticks blanked out; link texts may be code, so the brackets stay
/// intact.
fn without_code(line: &str) -> String {
    line.split('`')
        .enumerate()
        .map(|(part, text)| if part % 2 == 1 { "x" } else { text })
        .collect()
}

fn dangles(root: &Path, file: &Path, text: &str, pointer: &Pointer) -> Option<String> {
    let target = match pointer {
        Pointer::Path(path) => {
            return (!root.join(path).exists()).then(|| format!("`{path}` does not exist"));
        }
        Pointer::Link(target) => target,
    };
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let linked = root
        .join(file)
        .parent()
        .expect("a file lies in a folder")
        .join(path);
    if !path.is_empty() && !linked.exists() {
        return Some(format!("the link to {path} leads nowhere"));
    }
    if anchor.is_empty() {
        return None;
    }
    let other;
    let text = if path.is_empty() {
        text
    } else {
        other = fs::read_to_string(&linked).unwrap_or_default();
        &other
    };
    (!headings(text).any(|heading| heading == anchor))
        .then(|| format!("{path} has no heading #{anchor}"))
}

/// Headings as link anchors: lower case, spaces as dashes, other characters removed.
fn headings(text: &str) -> impl Iterator<Item = String> + '_ {
    let titles = text.lines().filter_map(|line| {
        line.strip_prefix('#')
            .map(|rest| rest.trim_start_matches('#').trim())
    });
    titles.map(|title| {
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_');
        kept.flat_map(char::to_lowercase)
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_paths_are_found_outside_of_code_blocks() {
        let text = "See [the map](ARCHITECTURE.md) and `crates/osd/src/lib.rs`.\n```\n[no](x)\n```\n[`code`](y#z) `crates/{a,b}`\n";
        let expected = [
            (1, Pointer::Path("crates/osd/src/lib.rs".into())),
            (1, Pointer::Link("ARCHITECTURE.md".into())),
            (5, Pointer::Link("y#z".into())),
        ];
        assert_eq!(pointers(text), expected);
    }

    #[test]
    fn what_leads_nowhere_is_named() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let dangles = |pointer| dangles(root, Path::new("x.md"), "# One thing, `two`\n", &pointer);
        assert_eq!(dangles(Pointer::Link("Cargo.toml".into())), None);
        assert_eq!(dangles(Pointer::Link("https://example.org/x".into())), None);
        assert_eq!(dangles(Pointer::Link("#one-thing-two".into())), None);
        assert!(dangles(Pointer::Link("#three".into())).is_some());
        assert!(dangles(Pointer::Link("Kargo.toml".into())).is_some());
        assert!(dangles(Pointer::Path("crates/none".into())).is_some());
    }
}
