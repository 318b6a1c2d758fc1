//! A number in a file that two mounts increment under a lock. One of them is killed or suspended
//! while it holds the lock.
//!
//! Invariant: the holder of the lock reads at least the last confirmed value. A mount that lost the
//! lock with its session, continues, and writes what it had read before would violate it.

use super::excuses::Outcome;
use crate::show::mounts::stalls::Stalls;
use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, fcntl_lock};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// Its name, in the guest's directory.
pub const NAME: &str = "number";
const DIGITS: usize = 10;
/// The lock is held for this time, so that faults may occur meanwhile.
const KEPT: Duration = Duration::from_millis(20);

/// See the module head.
#[derive(Default)]
pub struct Number {
    confirmed: AtomicU64,
}

impl Number {
    /// An empty one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn make(folder: &Path) -> Result<()> {
        let file = File::create(folder.join(NAME)).context("making the number")?;
        file.write_all_at(&text(0), 0)
            .and_then(|()| file.sync_all())
            .context("writing the number")
    }

    /// Adds one, and synchronizes it. If a call fails, it is unknown whether it was added.
    ///
    /// # Errors
    /// The violation: something confirmed was lost.
    pub fn add(&self, folder: &Path, stalls: &Stalls) -> Result<Outcome> {
        let found = stalls.time(|| "locking the number".to_owned(), || locked(folder));
        let file = match found {
            Ok(file) => file,
            Err(why) => return Ok(Outcome::Failed("locking the number", why)),
        };
        match stalls.time(|| "adding to the number".to_owned(), || self.add_to(&file)) {
            Ok(()) => Ok(Outcome::Done),
            Err(why) if why.get_ref().is_some_and(|inner| inner.is::<Lost>()) => {
                bail!("under a lock: {why}")
            }
            Err(why) => Ok(Outcome::Failed("adding to the number", why)),
        }
    }

    fn add_to(&self, file: &File) -> io::Result<()> {
        // Before it is read: no other mount can confirm anything while this one holds the lock.
        let confirmed = self.confirmed.load(Ordering::SeqCst);
        let mut bytes = [0; DIGITS];
        file.read_exact_at(&mut bytes, 0)?;
        let found = String::from_utf8_lossy(&bytes).into_owned();
        let number = found.parse::<u64>().unwrap_or(0);
        if number < confirmed {
            return Err(io::Error::other(Lost { found, confirmed }));
        }
        sleep(KEPT);
        file.write_all_at(&text(number + 1), 0)?;
        file.sync_data()?;
        self.confirmed.fetch_max(number + 1, Ordering::SeqCst);
        fcntl_lock(file, FlockOperation::Unlock)?;
        Ok(())
    }

    /// Reads it when nothing changes any more.
    ///
    /// # Errors
    /// When something confirmed was lost.
    pub fn verify(&self, folder: &Path) -> Result<u64> {
        let text = std::fs::read_to_string(folder.join(NAME)).context("reading the number")?;
        let (number, confirmed) = (
            text.parse::<u64>().unwrap_or(0),
            self.confirmed.load(Ordering::SeqCst),
        );
        if number < confirmed {
            bail!("the number is {text:?}, and {confirmed} was confirmed");
        }
        Ok(number)
    }
}

fn locked(folder: &Path) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .write(true)
        .open(folder.join(NAME))?;
    fcntl_lock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}
fn text(number: u64) -> Vec<u8> {
    format!("{number:0DIGITS$}").into_bytes()
}

/// See the invariant.
#[derive(Debug)]
struct Lost {
    found: String,
    confirmed: u64,
}
impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the number is {:?}, and {} was confirmed",
            self.found, self.confirmed
        )
    }
}
impl std::error::Error for Lost {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_goes_back_is_noticed() {
        let folder =
            std::env::temp_dir().join(format!("nacre-chaos-number-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (number, stalls) = (Number::default(), Stalls::default());
        Number::make(&folder).expect("made");
        for _ in 0..3 {
            assert!(matches!(number.add(&folder, &stalls), Ok(Outcome::Done)));
        }
        assert_eq!(number.verify(&folder).expect("three"), 3);
        std::fs::write(folder.join(NAME), text(2)).expect("set back");
        let why = number
            .add(&folder, &stalls)
            .err()
            .expect("noticed")
            .to_string();
        assert!(
            why.contains("3 was confirmed") && number.verify(&folder).is_err(),
            "{why}"
        );
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
