//! Classes that ship with Nacre, in Lua: ready to install, and examples to read (MAL-04, MAL-21,
//! MAL-25, MAL-27, MAL-83, MAL-84, MAL-87).
//!
//! Sources are `library/classes/NAME.lua`. None is active until it is installed. The head of a
//! source states the purpose of the class; the comment before each method states its input, output
//! and errors, with examples. [`Documented`] parses these comments: the command, the API reference
//! and the tests that run every example all use its result.
//!
//! ```text
//!  --!profile portable
//!  -- One line: what it is.
//!  --
//!  -- More.
//!
//!  -- What the method does.
//!  -- input: …                          one line each
//!  -- output: …
//!  -- errors: ENAME why; ENAME why
//!  -- example: METHOD "input" -> "output"     or: METHOD "input" !ENAME
//!  function METHOD(input, output)
//! ```

use crate::{Chunk, Profile};

/// A class of the library.
#[derive(Clone, Copy, Debug)]
pub struct LibraryClass {
    /// Its name, also the default name at installation.
    pub name: &'static str,
    /// Its source.
    pub source: &'static str,
}

const CLASSES: &[LibraryClass] = &[
    LibraryClass {
        name: "checksum",
        source: include_str!("../library/classes/checksum.lua"),
    },
    LibraryClass {
        name: "lock",
        source: include_str!("../library/classes/lock.lua"),
    },
    LibraryClass {
        name: "log",
        source: include_str!("../library/classes/log.lua"),
    },
    LibraryClass {
        name: "matrix",
        source: include_str!("../library/classes/matrix.lua"),
    },
    LibraryClass {
        name: "numops",
        source: include_str!("../library/classes/numops.lua"),
    },
    LibraryClass {
        name: "queue",
        source: include_str!("../library/classes/queue.lua"),
    },
    LibraryClass {
        name: "refcount",
        source: include_str!("../library/classes/refcount.lua"),
    },
    LibraryClass {
        name: "version",
        source: include_str!("../library/classes/version.lua"),
    },
    LibraryClass {
        name: "zlog",
        source: include_str!("../library/classes/zlog.lua"),
    },
];

/// All classes, by name.
#[must_use]
pub const fn classes() -> &'static [LibraryClass] {
    CLASSES
}

/// The class with this name.
#[must_use]
pub fn class(name: &str) -> Option<&'static LibraryClass> {
    CLASSES.iter().find(|class| class.name == name)
}

impl LibraryClass {
    /// As a script.
    #[must_use]
    pub fn chunk(&self) -> Chunk {
        Chunk::new(self.name, self.source)
    }
    /// Whether it runs unchanged on Ceph.
    #[must_use]
    pub fn profile(&self) -> Profile {
        self.chunk().profile()
    }
    /// The contents of its comments.
    #[must_use]
    pub fn documented(&self) -> Documented {
        documented(self.source)
    }
}

/// The contents of a class's comments. Fields without a comment are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Documented {
    /// One line: what it is.
    pub summary: String,
    /// The rest of the head comment.
    pub text: String,
    /// Its methods, in the order of the source.
    pub methods: Vec<Method>,
}

/// The contents of the comment before a method.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Method {
    /// Its name.
    pub name: String,
    /// What it does.
    pub text: String,
    /// Its input.
    pub input: String,
    /// Its output.
    pub output: String,
    /// Its errors.
    pub errors: String,
    /// Calls and their results, in order: `METHOD "input" -> "output"`, `METHOD "input" !ENAME`; or
    /// `setup: …` for calls by another client before them.
    pub examples: Vec<String>,
}

fn documented(source: &str) -> Documented {
    let mut lines = source
        .lines()
        .filter(|line| !line.starts_with("--!"))
        .peekable();
    let mut head = comment(&mut lines);
    let summary = if head.is_empty() {
        String::new()
    } else {
        head.remove(0)
    };
    let mut methods = Vec::new();
    while lines.peek().is_some() {
        let block = comment(&mut lines);
        // The line after the comment; for an empty comment, simply the next line.
        let name = lines
            .next()
            .and_then(|line| line.strip_prefix("function ")?.split('(').next());
        if let Some(name) = name {
            methods.push(method(name, &block));
        }
    }
    Documented {
        summary,
        text: head.join("\n").trim().to_owned(),
        methods,
    }
}

/// The lines of a comment, without their dashes.
fn comment<'a>(lines: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(line) = lines.next_if(|line| line.starts_with("--")) {
        let line = line.trim_start_matches('-');
        found.push(line.strip_prefix(' ').unwrap_or(line).to_owned());
    }
    found
}

fn method(name: &str, block: &[String]) -> Method {
    let mut method = Method {
        name: name.to_owned(),
        ..Method::default()
    };
    for line in block {
        match line.split_once(": ") {
            Some(("input", rest)) => rest.clone_into(&mut method.input),
            Some(("output", rest)) => rest.clone_into(&mut method.output),
            Some(("errors", rest)) => rest.clone_into(&mut method.errors),
            Some(("example", rest)) => method.examples.push(rest.to_owned()),
            Some(("setup", _)) => method.examples.push(line.clone()),
            _ if method.text.is_empty() => method.text.clone_from(line),
            _ => {
                method.text.push(' ');
                method.text.push_str(line);
            }
        }
    }
    method
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_become_documents() {
        let source = "--!profile portable\n-- A thing.\n--\n-- More: of it.\n\n-- Not a method's.\nlocal function f() end\n\n\
                      -- Does it,\n-- and well.\n-- input: `A`\n-- output: b\n-- errors: ENOENT no\n-- example: g \"x\"\nfunction g(input)\nend\nfunction h() end";
        let found = documented(source);
        assert_eq!(
            (found.summary.as_str(), found.text.as_str()),
            ("A thing.", "More: of it.")
        );
        let names: Vec<&str> = found
            .methods
            .iter()
            .map(|method| method.name.as_str())
            .collect();
        assert_eq!(names, ["g", "h"]);
        let expected = Method {
            name: "g".into(),
            text: "Does it, and well.".into(),
            input: "`A`".into(),
            output: "b".into(),
            errors: "ENOENT no".into(),
            examples: vec!["g \"x\"".into()],
        };
        assert_eq!(found.methods[0], expected);
    }

    #[test]
    fn classes_are_in_the_order_of_their_names() {
        assert!(CLASSES.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert_eq!(class("zlog").map(|class| class.name), Some("zlog"));
        assert!(class("nosuch").is_none());
    }
}
