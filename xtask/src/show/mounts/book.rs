//! A ledger in files: one line per record, each synchronized; acknowledged records must persist.

use super::stalls::Stalls;
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of records per file.
const OF_A_FILE: usize = 500;

/// See the module head.
pub struct Book {
    folder: PathBuf,
    /// Number of acknowledged records.
    pub acknowledged: usize,
}

impl Book {
    /// An empty one.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            acknowledged: 0,
        }
    }

    /// Writes until it is stopped.
    ///
    /// # Errors
    /// When a call fails.
    pub fn work(&mut self, stalls: &Stalls, stop: &AtomicBool) -> Result<()> {
        let mut file = None;
        while !stop.load(Ordering::Relaxed) {
            let number = self.acknowledged;
            if number.is_multiple_of(OF_A_FILE) {
                file = Some(
                    File::create(self.folder.join(name(number)))
                        .context("making a ledger's file")?,
                );
            }
            let file = file.as_mut().expect("made with the first record");
            stalls.time(
                || format!("record {number}"),
                || {
                    file.write_all(&line(number))
                        .and_then(|()| file.sync_data())
                },
            )?;
            self.acknowledged += 1;
        }
        Ok(())
    }

    /// Checks that everything is present in a directory; the last record may be present
    /// unacknowledged.
    ///
    /// # Errors
    /// The missing record.
    pub fn verify(&self, folder: &Path) -> Result<()> {
        for first in (0..self.acknowledged).step_by(OF_A_FILE) {
            let numbers = first..self.acknowledged.min(first + OF_A_FILE);
            let expected: Vec<u8> = numbers.clone().flat_map(line).collect();
            let path = folder.join(name(first));
            let found = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            ensure!(
                found.starts_with(&expected),
                "records {numbers:?} of the ledger are not what was acknowledged"
            );
        }
        Ok(())
    }
}

fn name(number: usize) -> String {
    format!("ledger-{}", number / OF_A_FILE)
}

fn line(number: usize) -> Vec<u8> {
    format!("{number:08} {}\n", "x".repeat(number * 37 % 900)).into_bytes()
}
