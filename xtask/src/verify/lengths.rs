//! Long functions, long files and wide lines become fewer, never more.
//!
//! What is longer than it should be is counted over all of the code and compared with the counts
//! below. More of it fails, and so does less: then the count here is lowered, and stays low.
//!
//! Lines that rustfmt cannot break are texts, tables of numbers and pictures.

use super::{report, tracked};
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::fs;

/// What is counted, beyond which length, and how often it may be exceeded.
const BOUNDS: [Bound; 3] = [
    Bound {
        what: "functions of more than 100 lines",
        allowed: 101,
    },
    Bound {
        what: "files of more than 700 lines",
        allowed: 62,
    },
    Bound {
        what: "lines wider than 100 characters",
        allowed: 1363,
    },
];
const FUNCTION: usize = 100;
const FILE: usize = 700;
const WIDTH: usize = 100;

struct Bound {
    what: &'static str,
    allowed: usize,
}

/// Lengths of the functions in a text that rustfmt has formatted: a function ends at the first
/// brace that stands as far to the left as it does.
fn functions(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let begins = |line: &&str| {
        let mut words = line.split_whitespace();
        let before = [
            "pub",
            "pub(crate)",
            "pub(super)",
            "const",
            "async",
            "unsafe",
            "extern",
            "\"C\"",
        ];
        words.find(|word| !before.contains(word)) == Some("fn")
    };
    let ends = |line: &&str, at: usize| indent(line) == at && line.trim_start().starts_with('}');
    let all = lines.iter().enumerate().filter(|(_, line)| begins(line));
    all.filter_map(|(first, line)| {
        if line.ends_with([';', '}']) {
            return Some(1);
        }
        let at = indent(line);
        let end = lines[first..].iter().position(|line| ends(line, at));
        end.map(|end| end + 1)
    })
    .collect()
}

/// How often each bound is exceeded in one file.
fn count(text: &str) -> [usize; 3] {
    [
        functions(text)
            .iter()
            .filter(|lines| **lines > FUNCTION)
            .count(),
        usize::from(text.lines().count() > FILE),
        text.lines()
            .filter(|line| line.chars().count() > WIDTH)
            .count(),
    ]
}

/// See the module head.
pub fn check(workspace: &Workspace) -> Result<()> {
    let mut found = [0; 3];
    for path in tracked(&workspace.root, "*.rs")? {
        let text = fs::read_to_string(workspace.root.join(&path))
            .with_context(|| format!("reading {}", path.display()))?;
        for (sum, more) in found.iter_mut().zip(count(&text)) {
            *sum += more;
        }
    }
    report(compare(found))
}

fn compare(found: [usize; 3]) -> Vec<String> {
    let differ = BOUNDS
        .iter()
        .zip(found)
        .filter(|(bound, found)| bound.allowed != *found);
    differ
        .map(|(Bound { what, allowed }, found)| {
            let todo = if found > *allowed {
                "shorten what was added"
            } else {
                "lower the count in xtask/src/verify/lengths.rs"
            };
            format!("{what}: {found}, allowed are {allowed}; {todo}")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_end_where_they_began() {
        let text = "fn one() {\n    if x {\n    }\n}\n\nimpl A {\n    pub fn two(\n        a: u8,\n    ) {\n    }\n    fn three(&self);\n}\n";
        assert_eq!(functions(text), [4, 4, 1]);
    }

    #[test]
    fn what_is_too_long_is_counted_once_each() {
        let function = format!("fn long() {{\n{}}}\n", "    work();\n".repeat(99));
        assert_eq!(count(&function), [1, 0, 0]);
        assert_eq!(count(&"// x\n".repeat(701)), [0, 1, 0]);
        assert_eq!(count(&"é".repeat(101)), [0, 0, 1]);
        assert_eq!(count(&"é".repeat(100)), [0, 0, 0]);
    }

    #[test]
    fn more_fails_and_less_asks_for_a_lower_count() {
        let allowed = BOUNDS.map(|bound| bound.allowed);
        assert!(compare(allowed).is_empty());
        let more = compare(allowed.map(|count| count + 1));
        assert!(more.len() == 3 && more.iter().all(|said| said.contains("shorten")));
        let less = compare(allowed.map(|count| count.saturating_sub(1)));
        assert!(less.iter().all(|said| said.contains("lower")));
    }
}
