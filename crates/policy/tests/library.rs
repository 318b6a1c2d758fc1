//! The class library: every example of every comment, and each class against its documentation
//! (MAL-04).

use crate::model::{Caller, Model};
use nacre_classcases::examples::{follow, follow_all, number_of, quoted};
use nacre_classcases::{Change, Host, State};
use nacre_policy::library::{self, LibraryClass};
use nacre_policy::*;
use std::collections::BTreeSet;
use std::sync::Arc;

mod checksum;
mod lock;
mod log;
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
        classes.insert(
            "zlog_native",
            0,
            ClassRef::Native(Arc::new(native::zlog::Zlog)),
        );
        at.classes = Arc::new(classes);
        Self {
            at,
            object: Model::default(),
            class,
        }
    }

    /// A call: its output, or its errno. An error that is not an errno, or a failed call that left
    /// something behind, is a fault of the class.
    pub fn call(&mut self, method: &str, input: impl AsRef<[u8]>) -> Result<Vec<u8>, i32> {
        self.call_of(self.class, method, input.as_ref())
    }

    fn call_of(&mut self, class: &str, method: &str, input: &[u8]) -> Result<Vec<u8>, i32> {
        let before = self.object.clone();
        let end = self
            .at
            .end(&mut self.object, Target::Class(class), method, input);
        let CallEnd::Done(outcome) = end else {
            panic!("the model has everything at hand")
        };
        if outcome.status >= 0 {
            return Ok(outcome.output.to_vec());
        }
        let error = outcome.error.expect("a failure says why");
        assert!(
            matches!(error.kind, Kind::Errno(_)),
            "{class}.{method}: {error}"
        );
        assert_eq!(self.object, before, "a failed call leaves nothing");
        Err(-outcome.status)
    }

    /// A call whose output is text.
    pub fn say(&mut self, method: &str, input: &str) -> Result<String, i32> {
        self.call(method, input)
            .map(|output| String::from_utf8(output).expect("text"))
    }

    /// A call that must succeed.
    pub fn ok(&mut self, method: &str, input: &str) -> String {
        self.say(method, input).unwrap_or_else(|errno| {
            panic!(
                "{}.{method} {input:?} failed with {:?}",
                self.class,
                errno::name(errno)
            )
        })
    }
}

/// The cases that clusters run as well.
impl Host for Desk {
    fn fresh(&mut self) {
        self.object = Model::default();
    }
    fn call(&mut self, class: &str, method: &str, input: &[u8]) -> Result<Vec<u8>, i32> {
        self.call_of(class, method, input)
    }
    fn state(&mut self) -> Option<State> {
        let Model {
            data,
            attributes,
            map,
            ..
        } = self.object.clone();
        Some(State {
            data: data?,
            attributes,
            map,
        })
    }
    fn change(&mut self, change: Change) {
        let object = &mut self.object;
        match change {
            Change::WriteFull(data) => object.write_full(data.into()),
            Change::Write(offset, data) => object.write(offset, data.into()),
            Change::Append(data) => object.append(data.into()),
            Change::Truncate(size) => object.truncate(size),
            Change::Zero(offset, length) => object.zero(offset, length),
            Change::SetAttr(name, value) => object.setxattr(name.as_bytes(), value.into()),
            Change::SetKey(key, value) => object.map_set_vals(vec![(key.into(), value.into())]),
            Change::RemoveKey(key) => object.map_remove_key(&key),
        }
        .expect("the model takes it");
    }
    fn checksum(&mut self, offset: u64, length: u64) -> u32 {
        self.object.checksum(offset, length).expect("there")
    }
    fn has(&self, class: &str) -> bool {
        self.at.classes.get(class).is_some()
    }
    fn cases(&self, wanted: u32) -> u32 {
        wanted
    }
    fn is_cluster(&self) -> bool {
        false
    }
}

macro_rules! classes {
    ($($class:ident)*) => {
        $(#[test]
        fn $class() {
            nacre_classcases::run(&mut Desk::new(stringify!($class)), stringify!($class));
        })*
        /// Fails when a class of the library has no test.
        #[test]
        fn every_class_has_its_cases() {
            let names: Vec<&str> = library::classes().iter().map(|class| class.name).collect();
            assert_eq!(names, [$(stringify!($class)),*]);
        }
    };
}
mod classes {
    use super::*;
    classes! { checksum lock log matrix numops queue refcount version zlog }

    #[test]
    fn zlog_native() {
        follow_all(&mut Desk::new("zlog_native"), "zlog", "zlog_native");
    }
}

#[test]
fn every_method_is_documented_and_has_an_example() {
    for class in library::classes() {
        let found = class.documented();
        assert!(
            found.summary.ends_with('.') && !found.text.is_empty(),
            "{}: {found:?}",
            class.name
        );
        let registered: BTreeSet<String> = check_class(&class.chunk())
            .expect(class.name)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let written: BTreeSet<String> = found
            .methods
            .iter()
            .map(|method| method.name.clone())
            .collect();
        assert_eq!(written, registered, "{}", class.name);
        let all: Vec<String> = found
            .methods
            .iter()
            .flat_map(|method| method.examples.clone())
            .collect();
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
                all.iter()
                    .any(|example| example.starts_with(&format!("{} ", method.name))),
                "{name} has no example"
            );
            // Every documented error has a name that scripts know.
            for word in method
                .errors
                .split(|c: char| !c.is_ascii_alphanumeric())
                .filter(|word| {
                    word.len() > 3 && word.starts_with('E') && word.to_uppercase() == **word
                })
            {
                assert!(number_of(word) > 0, "{name}: {word}");
            }
        }
    }
}

/// All error constants that Ceph's classes have (seen in 16.2).
const CEPH_NAMES: [&str; 32] = [
    "EPERM", "ENOENT", "ESRCH", "EINTR", "EIO", "ENXIO", "E2BIG", "ENOEXEC", "EBADF", "ECHILD",
    "EAGAIN", "ENOMEM", "EACCES", "EFAULT", "EBUSY", "EEXIST", "EXDEV", "ENODEV", "ENOTDIR",
    "EISDIR", "EINVAL", "ENFILE", "EMFILE", "ENOTTY", "EFBIG", "ENOSPC", "ESPIPE", "EROFS",
    "EMLINK", "EPIPE", "EDOM", "ERANGE",
];

fn portable(class: &LibraryClass) -> bool {
    class.profile() == Profile::Portable
}

/// The runtime refuses what behaves differently on Ceph; the examples of a portable class cover all
/// of it.
#[test]
fn portable_classes_are_what_they_say() {
    let names: Vec<&str> = library::classes()
        .iter()
        .filter(|class| portable(class))
        .map(|class| class.name)
        .collect();
    assert_eq!(names, ["log", "matrix", "numops", "refcount", "version"]);
    for class in library::classes() {
        assert!(class.source.starts_with("--!profile "), "{}", class.name);
        // Luau's own syntax, and strings where Ceph takes bufferlists, do not load or run on Ceph.
        if portable(class) {
            for line in class
                .source
                .lines()
                .filter(|line| !line.trim_start().starts_with("--"))
            {
                for foreign in [
                    "nacre.",
                    "+=",
                    "-=",
                    "..=",
                    "continue",
                    "if not then",
                    "local type ",
                    "= if ",
                    "(if ",
                    "`",
                ] {
                    assert!(!line.contains(foreign), "{}: {line}", class.name);
                }
                for (at, _) in line.match_indices("objclass.E") {
                    let name = line[at + 9..]
                        .split(|c: char| !c.is_ascii_alphanumeric())
                        .next()
                        .expect("a word");
                    assert!(
                        CEPH_NAMES.contains(&name),
                        "{}: Ceph has no objclass.{name}",
                        class.name
                    );
                }
            }
        }
    }
    // Not portable, and the runtime detects it: the same source with the other head.
    for class in library::classes().iter().filter(|class| !portable(class)) {
        let source = class
            .source
            .replace("--!profile luau", "--!profile portable");
        let mut desk = Desk::new(class.name);
        let mut classes = Classes::clone(&desk.at.classes);
        classes.insert(
            class.name,
            99,
            ClassRef::Lua(Chunk::new(class.name, source)),
        );
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

/// Methods documented as read-only are read-only, and no others: all examples except those that
/// fail.
#[test]
fn only_methods_that_write_are_not_read_only() {
    for class in library::classes() {
        let flags = check_class(&class.chunk()).expect(class.name);
        let mut wrote = BTreeSet::new();
        let mut desk = Desk::new(class.name);
        for example in class
            .documented()
            .methods
            .iter()
            .flat_map(|method| &method.examples)
        {
            let before = desk.object.clone();
            follow(
                &mut nacre_classcases::Desk {
                    host: &mut desk,
                    class: class.name,
                },
                example,
            );
            if desk.object != before && !example.starts_with("setup") {
                wrote.insert(example.split(' ').next().expect("a method").to_owned());
            }
        }
        let expected: BTreeSet<String> = flags
            .into_iter()
            .filter(|(_, flags)| !flags.read_only)
            .map(|(name, _)| name)
            .collect();
        assert_eq!(wrote, expected, "{}", class.name);
    }
}
