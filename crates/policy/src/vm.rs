//! Luau behind our own types: the only files that name mlua.

use crate::{Budget, Call, CallEnd, Chunk, Object, ScriptError, Severity, Value};
use std::marker::PhantomData;

/// What a VM has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmStats {
    /// Calls whose chunk was compiled and loaded already.
    pub cache_hits: u64,
    /// Calls that compiled.
    pub cache_misses: u64,
    /// Bytes that Luau holds now.
    pub memory: usize,
}

/// One run of a script that is not a class.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// The script. It is run from top to bottom in a fresh environment.
    pub chunk: &'a Chunk,
    /// Global function to call then. `None`: the chunk itself gets the arguments (`...`), and its results count.
    pub entry: Option<&'a str>,
    /// Set before it runs. Tables are the script's own copies.
    pub globals: &'a [(&'a str, Value)],
    /// Arguments.
    pub args: &'a [Value],
    /// Of `math.random`.
    pub seed: u64,
    /// Bounds.
    pub budget: &'a Budget,
}

/// What a run gave back.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// Results, or why there are none.
    pub result: Result<Vec<Value>, ScriptError>,
    /// Lines of `print`.
    pub log: Vec<(Severity, String)>,
    /// Instructions used.
    pub instructions: u64,
    /// Most bytes held at once: a measure, not a result.
    pub memory_peak: usize,
}

/// A VM for policies, validators and balancers. Runs one script at a time, any number after each other.
#[derive(Debug)]
pub struct Vm {}

impl Vm {
    /// A VM that keeps up to `cache` compiled chunks.
    #[must_use]
    pub fn new(_cache: usize) -> Self {
        todo!()
    }
    /// Runs a script.
    pub fn run(&mut self, _run: &Run<'_>) -> Ran {
        todo!()
    }
    /// Whether a script compiles: what an installation checks first.
    ///
    /// # Errors
    /// Where it does not.
    pub fn check(&mut self, _chunk: &Chunk) -> Result<(), ScriptError> {
        todo!()
    }
    /// Counters.
    #[must_use]
    pub fn stats(&self) -> VmStats {
        todo!()
    }
}

/// A VM for object classes, over the host's type of object.
#[derive(Debug)]
pub struct ClassVm<O> {
    object: PhantomData<O>,
}

impl<O: Object + Send + 'static> ClassVm<O> {
    /// A VM that keeps up to `cache` compiled chunks.
    #[must_use]
    pub fn new(_cache: usize) -> Self {
        todo!()
    }
    /// Runs a method on an object, and gives the object back.
    pub fn call(&mut self, _object: O, _call: &Call<'_>) -> (O, CallEnd) {
        todo!()
    }
    /// Whether a class compiles and runs from top to bottom, and the methods it registers with their flags: what an installation checks first.
    ///
    /// # Errors
    /// Why not.
    pub fn check(
        &mut self,
        _chunk: &Chunk,
        _budget: &Budget,
    ) -> Result<Vec<(String, crate::MethodFlags)>, ScriptError> {
        todo!()
    }
    /// Counters.
    #[must_use]
    pub fn stats(&self) -> VmStats {
        todo!()
    }
}
