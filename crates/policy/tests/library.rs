//! The class library: every example of every comment, and each class against what it promises (MAL-04).

use crate::model::{Caller, Model};
use bytes::Bytes;
use nacre_policy::library::{self, LibraryClass};
use nacre_policy::*;
use std::collections::BTreeSet;
use std::sync::Arc;

mod checksum;
mod lock;
mod log;
mod matrix;
mod numops;
mod queue;
mod refcount;
mod version;
mod zlog;

/// A cluster with the whole library, and one object.
pub struct Desk {
    pub at: Caller,
    pub object: Model,
    pub class: &'static str,
}

impl Desk {
    /// At a class of the library, on an object that does not exist.
    pub fn new(class: &'static str) -> Self {
        let mut at = Caller::new();
        let mut classes = Classes::default();
        for (number, class) in library::classes().iter().enumerate() {
            classes.insert(class.name, number as u64 + 1, ClassRef::Lua(class.chunk()));
        }
        classes.insert("zlog_native", 0, ClassRef::Native(Arc::new(native::zlog::Zlog)));
        at.classes = Arc::new(classes);
        Self { at, object: Model::default(), class }
    }

    /// A call: its output, or its errno. An error that is no errno, or a failed call that left something, is a fault of the class.
    pub fn call(&mut self, method: &str, input: impl AsRef<[u8]>) -> Result<Vec<u8>, i32> {
        let before = self.object.clone();
        let end = self.at.end(&mut self.object, Target::Class(self.class), method, input.as_ref());
        let CallEnd::Done(outcome) = end else { panic!("the model has everything at hand") };
        if outcome.status >= 0 {
            return Ok(outcome.output.to_vec());
        }
        let error = outcome.error.expect("a failure says why");
        assert!(matches!(error.kind, Kind::Errno(_)), "{}.{method}: {error}", self.class);
        assert_eq!(self.object, before, "a failed call leaves nothing");
        Err(-outcome.status)
    }

    /// A call whose output is text.
    pub fn say(&mut self, method: &str, input: &str) -> Result<String, i32> {
        self.call(method, input).map(|output| String::from_utf8(output).expect("text"))
    }

    /// A call that must succeed.
    pub fn ok(&mut self, method: &str, input: &str) -> String {
        self.say(method, input)
            .unwrap_or_else(|errno| panic!("{}.{method} {input:?} failed with {:?}", self.class, errno::name(errno)))
    }
}

fn number_of(name: &str) -> i32 {
    errno::NAMES.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no errno {name}")).1
}

/// A quoted text with \n, \", \\ and \xNN, and what follows it.
fn quoted(text: &str) -> (Vec<u8>, &str) {
    let mut rest = text.strip_prefix('"').unwrap_or_else(|| panic!("a quoted text, not {text}")).char_indices();
    let mut bytes = Vec::new();
    let text = &text[1..];
    while let Some((at, letter)) = rest.next() {
        match letter {
            '"' => return (bytes, text[at + 1..].trim()),
            '\\' => match rest.next().expect("an escape").1 {
                'n' => bytes.push(b'\n'),
                'x' => {
                    bytes.push(u8::from_str_radix(&text[at + 2..at + 4], 16).expect("two hexadecimal digits"));
                    rest.nth(1);
                }
                other => bytes.push(other as u8),
            },
            _ => bytes.extend(letter.to_string().as_bytes()),
        }
    }
    panic!("no end of {text}")
}

/// Does what an example says, and checks what it says.
fn follow(desk: &mut Desk, example: &str) {
    let (setup, line) = match example.strip_prefix("setup: ") {
        Some(line) => (true, line),
        None => (false, example),
    };
    let (method, rest) = line.split_once(' ').expect("a method and its input");
    let (input, rest) = quoted(rest);
    if setup {
        assert_eq!(method, "write", "what a setup can do");
        return desk.object.write_full(Bytes::from(input)).expect("the model takes it");
    }
    let shown = format!("{}: {example}", desk.class);
    let came = desk.call(method, input);
    if let Some(name) = rest.strip_prefix('!') {
        assert_eq!(came, Err(number_of(name)), "{shown}");
    } else if let Some(output) = rest.strip_prefix("-> ") {
        assert_eq!(
            came.map(|output| String::from_utf8_lossy(&output).into_owned()),
            Ok(String::from_utf8_lossy(&quoted(output).0).into_owned()),
            "{shown}"
        );
    } else {
        assert_eq!((rest, came), ("", Ok(Vec::new())), "{shown}");
    }
}

#[test]
fn every_example_of_every_comment_is_true() {
    for class in library::classes() {
        let mut desk = Desk::new(class.name);
        for method in class.documented().methods {
            method.examples.iter().for_each(|example| follow(&mut desk, example));
        }
    }
    let mut desk = Desk::new("zlog_native");
    for method in library::class("zlog").expect("there").documented().methods {
        method.examples.iter().for_each(|example| follow(&mut desk, example));
    }
}

#[test]
fn every_method_is_documented_and_has_an_example() {
    for class in library::classes() {
        let found = class.documented();
        assert!(found.summary.ends_with('.') && !found.text.is_empty(), "{}: {found:?}", class.name);
        let registered: BTreeSet<String> =
            check_class(&class.chunk()).expect(class.name).into_iter().map(|(name, _)| name).collect();
        let written: BTreeSet<String> = found.methods.iter().map(|method| method.name.clone()).collect();
        assert_eq!(written, registered, "{}", class.name);
        let all: Vec<String> = found.methods.iter().flat_map(|method| method.examples.clone()).collect();
        for method in &found.methods {
            let name = format!("{}.{}", class.name, method.name);
            for (what, text) in [
                ("text", &method.text),
                ("input", &method.input),
                ("output", &method.output),
                ("errors", &method.errors),
            ] {
                assert!(!text.is_empty(), "{name} has no {what}");
            }
            assert!(
                all.iter().any(|example| example.starts_with(&format!("{} ", method.name))),
                "{name} has no example"
            );
            // What is documented as an error has a name that scripts know.
            for word in method
                .errors
                .split(|c: char| !c.is_ascii_alphanumeric())
                .filter(|word| word.len() > 3 && word.starts_with('E') && word.to_uppercase() == **word)
            {
                assert!(number_of(word) > 0, "{name}: {word}");
            }
        }
    }
}

/// All error constants that Ceph's classes have (seen in 16.2).
const CEPH_NAMES: [&str; 32] = [
    "EPERM", "ENOENT", "ESRCH", "EINTR", "EIO", "ENXIO", "E2BIG", "ENOEXEC", "EBADF", "ECHILD", "EAGAIN", "ENOMEM",
    "EACCES", "EFAULT", "EBUSY", "EEXIST", "EXDEV", "ENODEV", "ENOTDIR", "EISDIR", "EINVAL", "ENFILE", "EMFILE",
    "ENOTTY", "EFBIG", "ENOSPC", "ESPIPE", "EROFS", "EMLINK", "EPIPE", "EDOM", "ERANGE",
];

fn portable(class: &LibraryClass) -> bool {
    class.profile() == Profile::Portable
}

/// The runtime refuses what Ceph would answer otherwise; the examples of a portable class call all of it.
#[test]
fn portable_classes_are_what_they_say() {
    let names: Vec<&str> = library::classes().iter().filter(|class| portable(class)).map(|class| class.name).collect();
    assert_eq!(names, ["log", "matrix", "numops", "refcount", "version"]);
    for class in library::classes() {
        assert!(class.source.starts_with("--!profile "), "{}", class.name);
        // Luau's own syntax, and strings where Ceph takes bufferlists, do not load or run elsewhere.
        if portable(class) {
            for line in class.source.lines().filter(|line| !line.trim_start().starts_with("--")) {
                for foreign in
                    ["nacre.", "+=", "-=", "..=", "continue", "if not then", "local type ", "= if ", "(if ", "`"]
                {
                    assert!(!line.contains(foreign), "{}: {line}", class.name);
                }
                for (at, _) in line.match_indices("objclass.E") {
                    let name = line[at + 9..].split(|c: char| !c.is_ascii_alphanumeric()).next().expect("a word");
                    assert!(CEPH_NAMES.contains(&name), "{}: Ceph has no objclass.{name}", class.name);
                }
            }
        }
    }
    // Not portable, and the runtime knows: the same source with the other head.
    for class in library::classes().iter().filter(|class| !portable(class)) {
        let source = class.source.replace("--!profile luau", "--!profile portable");
        let mut desk = Desk::new(class.name);
        let mut classes = Classes::clone(&desk.at.classes);
        classes.insert(class.name, 99, ClassRef::Lua(Chunk::new(class.name, source)));
        desk.at.classes = Arc::new(classes);
        let refused = class.documented().methods.iter().flat_map(|method| &method.examples).any(|example| {
            let Some((method, rest)) = example.split_once(' ').filter(|(method, _)| *method != "setup:") else {
                desk.object = Model::with("123456789");
                return false;
            };
            let end = desk.at.end(&mut desk.object, Target::Class(class.name), method, &quoted(rest).0);
            matches!(end, CallEnd::Done(outcome) if outcome.error.as_ref().is_some_and(|error| error.kind == Kind::Profile))
        });
        assert!(refused, "{} could be portable", class.name);
    }
}

/// What a method calls read-only is, and what it does not is not called so: all examples but those that fail.
#[test]
fn only_methods_that_write_are_not_read_only() {
    for class in library::classes() {
        let flags = check_class(&class.chunk()).expect(class.name);
        let mut wrote = BTreeSet::new();
        let mut desk = Desk::new(class.name);
        for example in class.documented().methods.iter().flat_map(|method| &method.examples) {
            let before = desk.object.clone();
            follow(&mut desk, example);
            if desk.object != before && !example.starts_with("setup") {
                wrote.insert(example.split(' ').next().expect("a method").to_owned());
            }
        }
        let expected: BTreeSet<String> =
            flags.into_iter().filter(|(_, flags)| !flags.read_only).map(|(name, _)| name).collect();
        assert_eq!(wrote, expected, "{}", class.name);
    }
}
