//! The guarantees of each class of the library (MAL-04), as cases that run wherever a class can be
//! called.
//!
//! ```text
//!  crates/policy/tests   sandbox, an object in memory ─┐
//!  crates/node/tests     an embedded cluster ──────────┼─▶ Host ─▶ run: every example of every comment, then each class against its model
//!  crates/rados/tests    Ceph: the portable classes ───┘
//! ```
//! If a class passes in one environment and fails in another, either the class is not portable or
//! the environment is wrong. Only the results of calls and the final object are judged, never
//! durations.
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

/// An object, without the header of its map.
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
    /// An object with data only.
    #[must_use]
    pub fn with(data: &str) -> Self {
        Self {
            data: data.as_bytes().to_vec(),
            ..Self::default()
        }
    }
}

/// A change of the object by another client.
#[derive(Clone, Debug)]
pub enum Change {
    /// Replaces the data.
    WriteFull(Vec<u8>),
    /// Writes a range.
    Write(u64, Vec<u8>),
    /// Appends to the data.
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

/// An environment in which classes can be called, on one object at a time.
pub trait Host {
    /// Switches to another object, which does not exist.
    fn fresh(&mut self);
    /// A call: its output, or the errno that the method returned. Any other failure ends the case.
    ///
    /// # Errors
    /// The method's errno.
    fn call(&mut self, class: &str, method: &str, input: &[u8]) -> Result<Vec<u8>, i32>;
    /// The object; `None` if there is none.
    fn state(&mut self) -> Option<State>;
    /// Another client changes the object.
    fn change(&mut self, change: Change);
    /// CRC-32C of a range, computed by the host.
    fn checksum(&mut self, offset: u64, length: u64) -> u32;
    /// Whether the class exists.
    fn has(&self, class: &str) -> bool;
    /// The number of random cases to try where a sandbox tries `wanted`.
    fn cases(&self, wanted: u32) -> u32;
    /// Whether callers, times and versions are those of a cluster, or constant.
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
    /// For a class, on an object that does not exist.
    pub fn new(host: &'h mut dyn Host, class: &'static str) -> Self {
        host.fresh();
        Self { host, class }
    }
    /// Calls a method.
    ///
    /// # Errors
    /// The method's errno.
    pub fn call(&mut self, method: &str, input: impl AsRef<[u8]>) -> Result<Vec<u8>, i32> {
        self.host.call(self.class, method, input.as_ref())
    }
    /// Calls a method whose output is text.
    ///
    /// # Errors
    /// The method's errno.
    pub fn say(&mut self, method: &str, input: &str) -> Result<String, i32> {
        self.call(method, input)
            .map(|output| String::from_utf8(output).expect("text"))
    }
    /// Calls a method that must succeed.
    pub fn ok(&mut self, method: &str, input: &str) -> String {
        self.say(method, input).unwrap_or_else(|errno| {
            panic!(
                "{}.{method} {input:?} failed with {:?}",
                self.class,
                errno::name(errno)
            )
        })
    }
    /// The object, which must exist.
    pub fn object(&mut self) -> State {
        self.host.state().expect("the object exists")
    }
    /// Switches to another object, with data.
    pub fn with(&mut self, data: &str) {
        self.host.fresh();
        self.host
            .change(Change::WriteFull(data.as_bytes().to_vec()));
    }
}

/// Runs random cases.
pub(crate) fn property<S: Strategy>(
    host: &mut dyn Host,
    wanted: u32,
    strategy: S,
    test: impl Fn(&mut dyn Host, S::Value) -> Result<(), TestCaseError>,
) {
    let cases = host.cases(wanted);
    // Shrinking is limited on a cluster, where every step takes longer.
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
    /// The guarantee.
    pub name: &'static str,
    /// Checks it.
    pub run: fn(&mut dyn Host),
}

/// All cases, by class.
#[must_use]
pub fn cases() -> Vec<Case> {
    cases::all()
}

/// Runs the examples and cases of a class, and prints their names.
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

/// Classes of the library with the portable profile.
pub fn portable() -> impl Iterator<Item = &'static LibraryClass> {
    library::classes()
        .iter()
        .filter(|class| class.profile() == Profile::Portable)
}
