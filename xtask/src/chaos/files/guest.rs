//! A ledger that the victim's mount writes, while another mount reads it.
//!
//! ```text
//!  victim: ledger-7: record, fsync, record, fsync … ─▶ killed, or away too long ─▶ ledger-8 …      neighbour: reads any of them
//! ```
//! A ledger ends with the first call that fails. Everything that `fsync` had confirmed before is in
//! it, for every reader, from the moment at which `fsync` returned; of the unconfirmed rest, only a
//! prefix may be there.

use super::excuses::{Excuses, Outcome};
use super::number::Number;
use crate::chaos::plan::Dice;
use crate::show::mounts::stalls::Stalls;
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

/// Its directory, which exists only in the file system: where that is not mounted nothing can be
/// created.
pub const FOLDER: &str = "guest";
const SCRATCH: &str = "scratch";
/// Number of records of a ledger.
const OF_ONE: usize = 400;
/// Number of bytes that are never synchronized, all of them equal.
const UNSAFE: usize = 100_000;
const BYTE: u8 = 0x5a;
/// Pause between two records, and before the next ledger after a failure.
const GAP: Duration = Duration::from_millis(5);
const AGAIN: Duration = Duration::from_millis(200);

/// Number of confirmed records of each ledger.
#[derive(Default)]
pub struct Ledgers {
    all: Mutex<Vec<usize>>,
    /// A disk was full: the part for which there was no space reads as zeros, since the file keeps
    /// its size.
    was_full: AtomicBool,
}

impl Ledgers {
    /// Records that a disk is full from now on.
    pub fn note_full(&self) {
        self.was_full.store(true, Ordering::Relaxed);
    }
    fn begin(&self) -> usize {
        let mut all = self.all.lock().expect("nothing panics while it is held");
        all.push(0);
        all.len() - 1
    }
    fn confirm(&self, ledger: usize) {
        self.all.lock().expect("nothing panics while it is held")[ledger] += 1;
    }
    fn confirmed(&self) -> Vec<usize> {
        self.all
            .lock()
            .expect("nothing panics while it is held")
            .clone()
    }
    fn may_have_zeros(&self) -> bool {
        self.was_full.load(Ordering::Relaxed)
    }
    /// Checks that all of them are in a directory; returns the number of records.
    ///
    /// # Errors
    /// The missing record.
    pub fn verify(&self, folder: &Path) -> Result<u64> {
        let all = self.confirmed();
        for (ledger, confirmed) in all
            .iter()
            .enumerate()
            .filter(|(_, confirmed)| **confirmed > 0)
        {
            look(folder, ledger, *confirmed, self.may_have_zeros())?;
        }
        Ok(all.iter().sum::<usize>() as u64)
    }
}

fn name(ledger: usize) -> String {
    format!("ledger-{ledger}")
}
fn record(ledger: usize, number: usize) -> Vec<u8> {
    format!(
        "{ledger} {number:06} {}\n",
        "x".repeat((number * 37 + ledger) % 900)
    )
    .into_bytes()
}

/// Compares a ledger with what was confirmed before it is read. `zeros`: zeros are allowed at its
/// end.
fn look(folder: &Path, ledger: usize, confirmed: usize, zeros: bool) -> Result<()> {
    let path = folder.join(name(ledger));
    let found = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let safe: Vec<u8> = (0..confirmed)
        .flat_map(|number| record(ledger, number))
        .collect();
    let at = found
        .iter()
        .zip(&safe)
        .position(|(one, other)| one != other);
    ensure!(
        at.is_none() && found.len() >= safe.len(),
        "{}: {confirmed} records ({} bytes) were synchronized; there are {} bytes, and byte {at:?} is another one",
        name(ledger),
        safe.len(),
        found.len()
    );
    let mut rest = &found[safe.len()..];
    while let (true, [first @ .., 0]) = (zeros, rest) {
        rest = first;
    }
    for number in confirmed.. {
        let next = record(ledger, number);
        if rest.len() <= next.len() {
            ensure!(
                next.starts_with(rest),
                "{}: behind record {number} is what was never written: {rest:?}",
                name(ledger)
            );
            return Ok(());
        }
        ensure!(
            rest.starts_with(&next),
            "{}: record {number} is torn, and something is behind it",
            name(ledger)
        );
        rest = &rest[next.len()..];
    }
    unreachable!("numbers do not end before a file does")
}

/// The victim's thread.
pub struct Guest {
    /// The victim's mount.
    pub root: PathBuf,
    /// The confirmed records.
    pub ledgers: Arc<Ledgers>,
    /// The number that it increments.
    pub number: Arc<Number>,
    /// Calls that may fail.
    pub excuses: Arc<Excuses>,
    /// Tells the thread to end.
    pub stop: Arc<AtomicBool>,
    /// Number of ledgers that ended early.
    pub breaks: u64,
}

impl Guest {
    /// Works until it is stopped.
    ///
    /// # Errors
    /// When a call fails without an excuse, or something confirmed is missing.
    pub fn work(&mut self, stalls: &Stalls) -> Result<()> {
        while !self.stop.load(Ordering::Relaxed) {
            let ledger = self.ledgers.begin();
            match self.one(ledger, stalls)? {
                Outcome::Done => {}
                Outcome::Failed(doing, why)
                    if self.excuses.harm.holds() || self.excuses.full.holds() =>
                {
                    eprintln!("the victim's {} ends: {doing}: {why}", name(ledger));
                    self.breaks += 1;
                    sleep(AGAIN);
                }
                Outcome::Failed(doing, why) => {
                    bail!(
                        "nothing was done to this mount: {}: {doing}: {why}",
                        name(ledger)
                    )
                }
            }
        }
        Ok(())
    }

    fn one(&self, ledger: usize, stalls: &Stalls) -> Result<Outcome> {
        let folder = self.root.join(FOLDER);
        let path = folder.join(name(ledger));
        let made = stalls.time(|| "a new ledger".to_owned(), || File::create_new(&path));
        let mut file = match made {
            Ok(file) => file,
            Err(why) => return Ok(Outcome::Failed("making it", why)),
        };
        for at in 0..OF_ONE {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let what = || format!("record {at} of {}", name(ledger));
            let written = stalls.time(what, || {
                file.write_all(&record(ledger, at))
                    .and_then(|()| file.sync_data())
            });
            if let Err(why) = written {
                return Ok(Outcome::Failed("a record", why));
            }
            self.ledgers.confirm(ledger);
            match self.beside(at, stalls)? {
                Outcome::Done => sleep(GAP),
                failed @ Outcome::Failed(..) => return Ok(failed),
            }
        }
        Ok(Outcome::Done)
    }

    /// The work between two records: other mounts wait for it when this one is away.
    fn beside(&self, at: usize, stalls: &Stalls) -> Result<Outcome> {
        let folder = self.root.join(FOLDER);
        let (doing, done) = match at % 16 {
            3 => (
                "looking around",
                stalls.time(|| "looking around".to_owned(), || look_around(&self.root)),
            ),
            7 => {
                let scratch = || fs::write(folder.join(SCRATCH), [BYTE; UNSAFE]);
                ("scratch", stalls.time(|| "scratch".to_owned(), scratch))
            }
            11 => return self.number.add(&folder, stalls),
            _ => return Ok(Outcome::Done),
        };
        Ok(done.map_or_else(|why| Outcome::Failed(doing, why), |()| Outcome::Done))
    }
}

/// Reads everything that others work on, so that this mount is notified of their changes, and opens
/// some files.
fn look_around(root: &Path) -> io::Result<()> {
    // Others remove and move files concurrently.
    let gone = |why: &io::Error| {
        matches!(
            why.kind(),
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::StaleNetworkFileHandle
        )
    };
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Err(why) if gone(&why) => continue,
            entries => entries?,
        };
        let mut read = false;
        for entry in entries {
            let entry = match entry {
                Err(why) if gone(&why) => break,
                entry => entry?,
            };
            let meta = match entry.metadata() {
                Err(why) if gone(&why) => continue,
                meta => meta?,
            };
            if meta.is_dir() {
                folders.push(entry.path());
            } else if !read {
                read = true;
                match fs::read(entry.path()) {
                    Err(why) if !gone(&why) => return Err(why),
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

/// Reads what the guest confirmed, on another mount, which causes its unsynchronized data to be
/// written.
///
/// # Errors
/// What is missing, or unexpected.
pub fn watch(
    root: &Path,
    ledgers: &Ledgers,
    seed: u64,
    stalls: &Stalls,
    stop: &AtomicBool,
) -> Result<()> {
    let (folder, mut dice) = (root.join(FOLDER), Dice(seed));
    while !stop.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(dice.draw(1_500)));
        let all = ledgers.confirmed();
        let ones: Vec<(usize, usize)> = all
            .into_iter()
            .enumerate()
            .filter(|(_, confirmed)| *confirmed > 0)
            .collect();
        let Some(last) = ones.last() else { continue };
        let any = ones[usize::try_from(dice.draw(ones.len() as u64)).expect("small")];
        for (ledger, confirmed) in [*last, any] {
            stalls.time(
                || format!("reading {}", name(ledger)),
                || look(&folder, ledger, confirmed, ledgers.may_have_zeros()),
            )?;
        }
        if dice.draw(3) == 0 {
            let found = stalls.time(
                || "reading scratch".to_owned(),
                || fs::read(folder.join(SCRATCH)),
            );
            match found {
                Err(why) if why.kind() == ErrorKind::NotFound => {}
                found => {
                    let found = found.context("reading scratch")?;
                    let strange = found.iter().find(|byte| ![0, BYTE].contains(*byte));
                    ensure!(
                        strange.is_none() && found.len() <= UNSAFE,
                        "{} bytes, one of which is {strange:?}",
                        found.len()
                    );
                }
            }
        }
    }
    Ok(())
}

/// Increments the number together with the guest, on another mount.
///
/// # Errors
/// When a call fails without an excuse, or something confirmed is missing.
pub fn count(
    root: &Path,
    number: &Number,
    excuses: &Excuses,
    stalls: &Stalls,
    stop: &AtomicBool,
) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        match number.add(&root.join(FOLDER), stalls)? {
            Outcome::Done => sleep(GAP * 20),
            Outcome::Failed(..) if excuses.full.holds() => sleep(AGAIN),
            Outcome::Failed(doing, why) => bail!("{doing}: {why}"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_confirmed_must_be_there_and_only_a_beginning_of_the_rest() {
        let folder = std::env::temp_dir().join(format!("nacre-chaos-guest-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let records = |count: usize| {
            (0..count)
                .flat_map(|number| record(0, number))
                .collect::<Vec<u8>>()
        };
        let is_right = |bytes: &[u8]| {
            fs::write(folder.join(name(0)), bytes).expect("written");
            look(&folder, 0, 3, false).is_ok()
        };
        assert!(is_right(&records(3)) && is_right(&records(5)));
        assert!(is_right(&records(5)[..records(5).len() - 4]));
        assert!(!is_right(&records(2)) && !is_right(&[records(3), vec![0; 9]].concat()));
        assert!(!is_right(&[records(4), vec![0; 2_000]].concat()));
        let mut torn = records(3);
        torn[1] ^= 1;
        assert!(!is_right(&torn));
        // If a disk was full there may be zeros after the confirmed data, and nothing else.
        for (bytes, right) in [
            ([records(4), vec![0; 2_000]].concat(), true),
            ([records(2), vec![0; 2_000]].concat(), false),
            ([records(3), vec![0; 9], b"x".to_vec()].concat(), false),
        ] {
            fs::write(folder.join(name(0)), bytes).expect("written");
            assert_eq!(look(&folder, 0, 3, true).is_ok(), right);
        }
        fs::remove_dir_all(&folder).expect("removed");
    }
}
