//! Checks whether a source is a valid program: done at installation, before anything depends on it.

use crate::{
    Budget, Chunk, ClassVm, MethodFlags, Object, Page, Patience, ScriptError, Stat, Stop, Vm, errno,
};
use bytes::Bytes;
use std::sync::Arc;

/// Compiles a class, runs it from top to bottom and lists the methods it registers.
///
/// # Errors
/// The script and line of the error.
pub fn check_class(chunk: &Chunk) -> Result<Vec<(String, MethodFlags)>, ScriptError> {
    check_class_within(chunk, None, 1)
}

/// As [`check_class`], with a time limit of `times` times that of the host's clock.
///
/// # Errors
/// As [`check_class`]; with [`crate::Kind::Clock`] the source may still be valid.
pub fn check_class_within(
    chunk: &Chunk,
    clock: Option<Arc<dyn Patience>>,
    times: u32,
) -> Result<Vec<(String, MethodFlags)>, ScriptError> {
    let mut vm = ClassVm::<Nothing>::new(1);
    if let Some(clock) = clock {
        clock.begin();
        vm.set_patience(Arc::new(Times(clock, times)));
    }
    vm.check(chunk, &Budget::CHECK)
}

/// Compiles a script.
///
/// # Errors
/// The script and line of the error.
pub fn check_script(chunk: &Chunk) -> Result<(), ScriptError> {
    Vm::new(1).check(chunk)
}

/// A clock, and the factor applied to its limit.
struct Times(Arc<dyn Patience>, u32);

impl Patience for Times {
    fn begin(&self) {
        self.0.begin();
    }
    fn is_over(&self) -> bool {
        self.0.is_over_by(self.1)
    }
}

/// No object: a class that is only checked has none.
struct Nothing;

const NONE: Stop = Stop::Errno(errno::ENOENT);

impl Object for Nothing {
    fn exists(&mut self) -> Result<bool, Stop> {
        Ok(false)
    }
    fn stat(&mut self) -> Result<Stat, Stop> {
        Err(NONE)
    }
    fn create(&mut self, _: bool) -> Result<(), Stop> {
        Err(NONE)
    }
    fn remove(&mut self) -> Result<(), Stop> {
        Err(NONE)
    }
    fn read(&mut self, _: u64, _: u64) -> Result<Bytes, Stop> {
        Err(NONE)
    }
    fn write(&mut self, _: u64, _: Bytes) -> Result<(), Stop> {
        Err(NONE)
    }
    fn write_full(&mut self, _: Bytes) -> Result<(), Stop> {
        Err(NONE)
    }
    fn append(&mut self, _: Bytes) -> Result<(), Stop> {
        Err(NONE)
    }
    fn truncate(&mut self, _: u64) -> Result<(), Stop> {
        Err(NONE)
    }
    fn zero(&mut self, _: u64, _: u64) -> Result<(), Stop> {
        Err(NONE)
    }
    fn checksum(&mut self, _: u64, _: u64) -> Result<u32, Stop> {
        Err(NONE)
    }
    fn getxattr(&mut self, _: &[u8]) -> Result<Bytes, Stop> {
        Err(NONE)
    }
    fn getxattrs(&mut self) -> Result<Vec<(Bytes, Bytes)>, Stop> {
        Err(NONE)
    }
    fn setxattr(&mut self, _: &[u8], _: Bytes) -> Result<(), Stop> {
        Err(NONE)
    }
    fn rmxattr(&mut self, _: &[u8]) -> Result<(), Stop> {
        Err(NONE)
    }
    fn map_get_val(&mut self, _: &[u8]) -> Result<Bytes, Stop> {
        Err(NONE)
    }
    fn map_get_vals(&mut self, _: &[u8], _: &[u8], _: u64) -> Result<Page<(Bytes, Bytes)>, Stop> {
        Err(NONE)
    }
    fn map_get_keys(&mut self, _: &[u8], _: u64) -> Result<Page<Bytes>, Stop> {
        Err(NONE)
    }
    fn map_set_vals(&mut self, _: Vec<(Bytes, Bytes)>) -> Result<(), Stop> {
        Err(NONE)
    }
    fn map_remove_key(&mut self, _: &[u8]) -> Result<(), Stop> {
        Err(NONE)
    }
    fn map_clear(&mut self) -> Result<(), Stop> {
        Err(NONE)
    }
    fn map_read_header(&mut self) -> Result<Bytes, Stop> {
        Err(NONE)
    }
    fn map_write_header(&mut self, _: Bytes) -> Result<(), Stop> {
        Err(NONE)
    }
}
