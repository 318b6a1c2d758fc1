//! Files that a mount caches and has open while its server dies: as many as on a large machine.
//!
//! ```text
//!  second mount: 100,000 files made, 10,000 kept open, all looked at ─▶ the server dies ─▶ each open one is
//!  written ─▶ the first mount reads what was written
//! ```

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Number of directories, and of files in each.
const FOLDERS: usize = 100;
const FILES: usize = 1_000;
/// Number of open files per directory.
const OPEN: usize = 100;

/// See the module head.
pub struct Many {
    folder: PathBuf,
    open: Vec<File>,
}

impl Many {
    /// Creates them below a mount.
    ///
    /// # Errors
    /// When a call fails.
    pub fn make(folder: PathBuf) -> Result<Self> {
        let most = getrlimit(Resource::Nofile).maximum;
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: most,
                maximum: most,
            },
        )
        .context("opening many files")?;
        fs::create_dir(&folder).context("a folder")?;
        let mut open = Vec::new();
        for dir in 0..FOLDERS {
            fs::create_dir(folder.join(dir.to_string())).context("a folder")?;
            for number in 0..FILES {
                let file = File::create_new(path(&folder, dir, number)).context("a file")?;
                if number < OPEN {
                    open.push(file);
                }
            }
        }
        let many = Self { folder, open };
        many.look()?;
        Ok(many)
    }
    /// Number of files, and of open ones.
    pub fn counts(&self) -> (usize, usize) {
        (FOLDERS * FILES, self.open.len())
    }
    /// Looks up all of them.
    fn look(&self) -> Result<()> {
        for dir in 0..FOLDERS {
            let entries = fs::read_dir(self.folder.join(dir.to_string())).context("listing")?;
            let count = entries
                .map(|entry| entry?.metadata())
                .filter(Result::is_ok)
                .count();
            ensure!(
                count == FILES,
                "{count} of {FILES} files of folder {dir} can be looked at"
            );
        }
        Ok(())
    }
    /// Writes to the open ones, and closes them; reads them through another mount.
    ///
    /// # Errors
    /// When data is lost.
    pub fn end(self, other: &Path) -> Result<()> {
        for (at, mut file) in self.open.iter().enumerate() {
            write!(file, "{at}").with_context(|| format!("writing open file {at}"))?;
        }
        drop(self.open);
        for at in 0..FOLDERS * OPEN {
            let path = path(other, at / OPEN, at % OPEN);
            let text =
                fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            ensure!(text == at.to_string(), "{}: {text}", path.display());
        }
        Ok(())
    }
}

fn path(folder: &Path, dir: usize, number: usize) -> PathBuf {
    folder.join(dir.to_string()).join(format!("file{number}"))
}
