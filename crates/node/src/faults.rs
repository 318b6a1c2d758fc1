//! Faults of a device, for tests: the behaviour of a failing disk, injected where its calls are
//! made.
//!
//! With `NACRE_DEVICE_FAULTS` a process reads that file before each call of a device. A line is
//! `STORE CALL FAULT [NUMBER]`: a part of the store's path (`osd.1/`, `mon.`); `read`, `write`,
//! `flush`, `discard`, `forget`, `space`, `job` (of the store) or `look` (of the watchdog); and
//! `hang MILLISECONDS`, `error ERRNO` or `panic`. A job and a look cannot fail: they meet no
//! errors. Without the variable, a call costs one check of a null pointer.

use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of the environment variable.
pub const VARIABLE: &str = "NACRE_DEVICE_FAULTS";

/// The fault requested by a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Hang(Duration),
    Error(Errno),
    Panic,
}

fn parse(line: &str, store: &str, call: &str) -> Option<Fault> {
    let mut words = line.split_whitespace();
    let (part, name, fault) = (words.next()?, words.next()?, words.next()?);
    let ours = store.contains(part) && call == name;
    let number: Option<u64> = words.next().and_then(|number| number.parse().ok());
    match fault {
        _ if !ours => None,
        "hang" => Some(Fault::Hang(Duration::from_millis(number?))),
        "error" => Some(Fault::Error(Errno::from_raw_os_error(
            i32::try_from(number?).ok()?,
        ))),
        "panic" => Some(Fault::Panic),
        _ => None,
    }
}

/// Location of the faults of one device.
#[derive(Debug)]
pub struct Faults {
    file: PathBuf,
    store: String,
}

impl Faults {
    /// From the environment variable; in this crate's own tests, from a file beside the store.
    pub fn of(store: &Path) -> Option<Box<Self>> {
        if cfg!(test) {
            let mut file = store.as_os_str().to_owned();
            file.push(".faults");
            return Some(Self::at(file.into(), store));
        }
        std::env::var_os(VARIABLE).map(|file| Self::at(file.into(), store))
    }

    pub fn at(file: PathBuf, store: &Path) -> Box<Self> {
        Box::new(Self {
            file,
            store: store.display().to_string(),
        })
    }

    /// Executes the fault for a call of that kind.
    pub fn meet(&self, call: &str) -> Result<(), Errno> {
        let Ok(text) = std::fs::read_to_string(&self.file) else {
            return Ok(());
        };
        match text.lines().find_map(|line| parse(line, &self.store, call)) {
            Some(Fault::Hang(time)) => self.hang(time),
            Some(Fault::Error(errno)) => return Err(errno),
            Some(Fault::Panic) => panic!("{call} panics, as a test wants it"),
            None => {}
        }
        Ok(())
    }

    /// Waits until the time is over, or until the test removes the faults.
    fn hang(&self, time: Duration) {
        let begun = crate::clock::now();
        while crate::clock::now().since(begun) < time && self.file.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_for_one_store_and_one_kind_of_call() {
        let line = "osd.1/ flush hang 60000";
        assert_eq!(
            parse(line, "/c/osd.1/store", "flush"),
            Some(Fault::Hang(Duration::from_secs(60)))
        );
        assert_eq!(parse(line, "/c/osd.1/store", "write"), None);
        assert_eq!(parse(line, "/c/osd.2/store", "flush"), None);
        assert_eq!(
            parse("osd write error 28", "/osd.0/", "write"),
            Some(Fault::Error(Errno::NOSPC))
        );
    }
}
