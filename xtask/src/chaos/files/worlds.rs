//! Calls on the two mounts without faults: every answer must match a model.
//!
//! A full disk refuses calls that the model allows. The model does not know the state afterwards:
//! the directory is abandoned, and work continues in a new one. Synchronized data stays in the
//! book.

use super::excuses::Excuses;
use crate::show::mounts::book::Book;
use crate::show::mounts::pair::Pair;
use crate::show::mounts::races;
use crate::show::mounts::stalls::Stalls;
use crate::show::mounts::tokens;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// Pause before another directory is tried on a full disk.
const PAUSE: Duration = Duration::from_secs(1);

/// The environment of a worker thread.
#[derive(Clone)]
pub struct Worlds {
    /// The mounts.
    pub places: [PathBuf; 2],
    /// Name of its directories.
    pub name: String,
    /// Measures the duration of calls.
    pub stalls: Arc<Stalls>,
    /// Tells the thread to end.
    pub stop: Arc<AtomicBool>,
    /// Calls that may fail.
    pub excuses: Arc<Excuses>,
    /// Number of directories abandoned by all threads.
    pub left: Arc<AtomicU64>,
}

impl Worlds {
    /// Works in one directory after the other, until one run completes.
    fn through(&self, mut run: impl FnMut(u64, [PathBuf; 2]) -> Result<()>) -> Result<()> {
        for number in 0.. {
            let name = format!("{}-{number}", self.name);
            let folders = self.places.clone().map(|place| place.join(&name));
            let made = fs::create_dir(&folders[0]).with_context(|| format!("making {name}"));
            match made.and_then(|()| run(number, folders)) {
                Ok(()) => break,
                Err(why) if self.excuses.full.holds() => {
                    eprintln!("a disk is full, and {name} is left: {why:#}");
                    self.left.fetch_add(1, Ordering::Relaxed);
                    sleep(PAUSE);
                }
                Err(why) => return Err(why).context(name),
            }
        }
        Ok(())
    }

    /// Random calls; returns the model, for its directory on another mount.
    ///
    /// # Errors
    /// The first answer that differs from the model's.
    pub fn pair(&self, seed: u64) -> Result<Compared> {
        let mut last = None;
        self.through(|number, folders| {
            let mut pair = Pair::new(folders, seed + number * 1_000);
            pair.work(&self.stalls, &self.stop)?;
            last = Some(Compared::Pair(
                format!("{}-{number}", self.name),
                Box::new(pair),
            ));
            Ok(())
        })?;
        last.context("the last folder was worked in to the end")
    }

    /// Concurrent operations.
    ///
    /// # Errors
    /// A result that is not allowed.
    pub fn races(&self) -> Result<Compared> {
        self.through(|_, folders| races::work(&folders, &self.stalls, &self.stop))?;
        Ok(Compared::Nothing)
    }

    /// Files that move between directories of two ranks, on one of the mounts.
    ///
    /// # Errors
    /// A result that is not allowed.
    pub fn tokens(&self, seed: u64) -> Result<Compared> {
        let root = &self.places[usize::from(seed.is_multiple_of(2))];
        while let Err(why) = tokens::work(root, seed, &self.stalls, &self.stop) {
            if !self.excuses.full.holds() {
                return Err(why);
            }
            eprintln!("a disk is full: {why:#}");
            sleep(PAUSE);
            // A second name that was about to be removed.
            tokens::tidy(root, seed);
        }
        Ok(Compared::Tokens)
    }

    /// Synchronized records, on the second mount.
    ///
    /// # Errors
    /// When a call fails.
    pub fn book(&self) -> Result<Compared> {
        let mut books = Vec::new();
        self.through(|number, [_, folder]| {
            let mut book = Book::new(folder);
            let result = book.work(&self.stalls, &self.stop);
            books.push((format!("{}-{number}", self.name), book));
            result
        })?;
        Ok(Compared::Books(books))
    }
}

/// The states to compare at the end, by the name of the directory.
pub enum Compared {
    /// The state of a model.
    Pair(String, Box<Pair>),
    /// Records that were acknowledged.
    Books(Vec<(String, Book)>),
    /// Files that moved.
    Tokens,
    /// Nothing: everything was checked during the run.
    Nothing,
}

impl Compared {
    /// Compares it with the view of another mount; returns the number of items.
    ///
    /// # Errors
    /// The first difference.
    pub fn compare(&mut self, root: &Path) -> Result<u64> {
        match self {
            Self::Pair(name, pair) => pair
                .compare(root.join(&*name))
                .with_context(|| name.clone()),
            Self::Books(books) => books.iter().try_fold(0, |sum, (name, book)| {
                book.verify(&root.join(name))
                    .with_context(|| name.clone())?;
                Ok(sum + book.acknowledged as u64)
            }),
            Self::Tokens => tokens::check(root).map(|()| 0),
            Self::Nothing => Ok(0),
        }
    }
}
