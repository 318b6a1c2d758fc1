//! What each class of the library promises (MAL-04), as cases that run wherever a class can be
//! called.
//!
//! ```text
//!  crates/policy/tests   sandbox, an object in memory ─┐
//!  crates/node/tests     an embedded cluster ──────────┼─▶ Host ─▶ run: every example of every comment, then each class against its model
//!  crates/rados/tests    Ceph: the portable classes ───┘
//! ```
//! A class that passes in one place and fails in another is not portable, or the place is wrong.
//! Judged is what calls return and what the object then is, never how long it took.
#![forbid(unsafe_code)]
#![allow(clippy::missing_panics_doc, reason = "cases of a test panic")]

mod cases;
pub mod examples;
pub mod over;

use bytes::Bytes;
use nacre_policy::library::{self, LibraryClass};
use nacre_policy::{Profile, errno};
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// An object, but for its map's header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Its bytes.
    pub data: Vec<u8>,
    /// Its attributes.
    pub attributes: BTreeMap<Bytes, Bytes>,
    /// Its map.
    pub map: BTreeMap<Bytes, Bytes>,
}

impl State {
    /// One with data alone.
    #[must_use]
    pub fn with(data: &str) -> Self {
        Self {
            data: data.as_bytes().to_vec(),
            ..Self::default()
        }
    }
}

/// What somebody else does to the object.
#[derive(Clone, Debug)]
pub enum Change {
    /// Replaces the data.
    WriteFull(Vec<u8>),
    /// Writes a range.
    Write(u64, Vec<u8>),
    /// Writes at the end.
    Append(Vec<u8>),
    /// Sets the size.
    Truncate(u64),
    /// Zeroes a range.
    Zero(u64, u64),
    /// Sets an attribute.
    SetAttr(&'static str, Vec<u8>),
    /// Sets a key of the map.
    SetKey(&'static str, Vec<u8>),
    /// Removes a key of the map.
    RemoveKey(Bytes),
}

/// Where classes can be called, on one object at a time.
pub trait Host {
    /// From now on it is about another object, which does not exist.
    fn fresh(&mut self);
    /// A call: its output, or the errno that the method chose. Anything else is the end of the
    /// case.
    ///
    /// # Errors
    /// The method's.
    fn call(&mut self, class: &str, method: &str, input: &[u8]) -> Result<Vec<u8>, i32>;
    /// The object; `None` if there is none.
    fn state(&mut self) -> Option<State>;
    /// Somebody else changes the object.
    fn change(&mut self, change: Change);
    /// CRC-32C of a range, as the host counts it.
    fn checksum(&mut self, offset: u64, length: u64) -> u32;
    /// Whether there is such a class.
    fn has(&self, class: &str) -> bool;
    /// How many random cases are tried where a sandbox tries so many.
    fn cases(&self, wanted: u32) -> u32;
    /// Whether callers, times and versions are those of a cluster, rather than always the same.
    fn is_cluster(&self) -> bool;
}

/// A host, and a class of it.
pub struct Desk<'h> {
    /// The host.
    pub host: &'h mut dyn Host,
    /// The class.
    pub class: &'static str,
}

impl<'h> Desk<'h> {
    /// At a class, on an object that does not exist.
    pub fn new(host: &'h mut dyn Host, class: &'static str) -> Self {
        host.fresh();
        Self { host, class }
    }
    /// A call.
    ///
    /// # Errors
    /// The method's.
    pub fn call(&mut self, method: &str, input: impl AsRef<[u8]>) -> Result<Vec<u8>, i32> {
        self.host.call(self.class, method, input.as_ref())
    }
    /// A call whose output is text.
    ///
    /// # Errors
    /// The method's.
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
    /// The object, which exists.
    pub fn object(&mut self) -> State {
        self.host.state().expect("the object exists")
    }
    /// Another object, with data.
    pub fn with(&mut self, data: &str) {
        self.host.fresh();
        self.host
            .change(Change::WriteFull(data.as_bytes().to_vec()));
    }
}

/// Random cases.
pub(crate) fn property<S: Strategy>(
    host: &mut dyn Host,
    wanted: u32,
    strategy: S,
    test: impl Fn(&mut dyn Host, S::Value) -> Result<(), TestCaseError>,
) {
    let cases = host.cases(wanted);
    // What a cluster has to do again and again is made smaller less eagerly.
    let max_shrink_iters = if cases < wanted { 64 } else { u32::MAX };
    let config = ProptestConfig {
        cases,
        max_shrink_iters,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let host = RefCell::new(host);
    let result =
        TestRunner::new(config).run(&strategy, |value| test(&mut **host.borrow_mut(), value));
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, value)) => panic!("{why}\nwith {value:?}"),
        Err(other) => panic!("{other}"),
    }
}

/// A case of a class.
pub struct Case {
    /// The class.
    pub class: &'static str,
    /// What it promises.
    pub name: &'static str,
    /// Sees whether it does.
    pub run: fn(&mut dyn Host),
}

/// All, by class.
#[must_use]
pub fn cases() -> Vec<Case> {
    cases::all()
}

/// Runs the examples and cases of a class, and says which.
pub fn run(host: &mut dyn Host, class: &'static str) {
    println!("{class}: every example of its comments is true");
    examples::follow_all(host, class, class);
    let mut some = false;
    for case in cases().into_iter().filter(|case| case.class == class) {
        println!("{class}: {}", case.name);
        (case.run)(host);
        some = true;
    }
    assert!(some, "{class} has no cases");
}

/// Classes of the library that say they are portable.
pub fn portable() -> impl Iterator<Item = &'static LibraryClass> {
    library::classes()
        .iter()
        .filter(|class| class.profile() == Profile::Portable)
}
