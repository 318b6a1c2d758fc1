//! Disk faults: small file systems where root can mount, and flipped bits in a store that is not in
//! use.

use super::plan::{Dice, Region};
use crate::bounded;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const MOUNT_MAX: Duration = Duration::from_secs(30);
/// A small file system below a daemon's directory; unmounted when dropped.
pub struct Small {
    at: PathBuf,
    /// It is in memory: its contents are lost with it.
    memory: bool,
}

/// A path with a suffix appended to the name: `osd.2` is not a name with an extension.
fn beside(path: &Path, more: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(more);
    name.into()
}

fn run(program: &str, words: &[&str], path: &Path) -> Result<()> {
    bounded::printed(Command::new(program).args(words).arg(path), MOUNT_MAX).map(drop)
}

impl Small {
    /// Moves a daemon's directory onto a file system of that size (`220M`): a tmpfs, or with
    /// `image` an ext4 in a file.
    ///
    /// # Errors
    /// When this user cannot mount.
    pub fn under(folder: &Path, size: &str, image: Option<&Path>) -> Result<Self> {
        let aside = beside(folder, "aside");
        fs::rename(folder, &aside).context("moving a folder")?;
        fs::create_dir(folder).context("making a folder")?;
        let mounted = match image {
            None => run(
                "mount",
                &["-t", "tmpfs", "-o", &format!("size={size}"), "none"],
                folder,
            ),
            Some(image) => {
                let name = image.to_string_lossy();
                run("truncate", &["-s", size], image)
                    .and_then(|()| run("mkfs.ext4", &["-q", "-F", "-m", "0"], image))
                    .and_then(|()| run("mount", &["-o", "loop", &name], folder))
            }
        };
        if let Err(why) = mounted {
            fs::remove_dir(folder)
                .and_then(|()| fs::rename(&aside, folder))
                .context("moving a folder back")?;
            return Err(why);
        }
        let small = Self {
            at: folder.to_owned(),
            memory: image.is_none(),
        };
        run(
            "cp",
            &["-a", "--sparse=always", &format!("{}/.", aside.display())],
            folder,
        )?;
        fs::remove_dir_all(&aside).context("removing what was moved")?;
        Ok(small)
    }

    /// Whether a directory is on it.
    pub fn has(&self, folder: &Path) -> bool {
        self.at == folder
    }
    /// The file that fills it.
    pub fn hog(&self) -> PathBuf {
        self.at.join("hog")
    }
    /// Fills all remaining space with an unrelated file.
    ///
    /// # Errors
    /// When writing fails for another reason than lack of space.
    pub fn fill(&self) -> Result<u64> {
        let mut hog = File::create(self.hog()).context("making a file")?;
        let (block, mut written) = (vec![0x5a_u8; 256 << 10], 0);
        loop {
            match hog.write(&block) {
                Ok(0) => return Ok(written),
                Ok(count) => written += count as u64,
                Err(why) if why.kind() == std::io::ErrorKind::StorageFull => return Ok(written),
                Err(why) => return Err(why).context("filling a disk"),
            }
        }
    }
    /// Frees the space again.
    pub fn free(&self) {
        let _ = fs::remove_file(self.hog());
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        if self.memory {
            // The store of a finding is kept for analysis.
            let kept = beside(&self.at, "kept");
            let _ = run(
                "cp",
                &["-a", "--sparse=always", "-T", &self.at.to_string_lossy()],
                &kept,
            );
        }
        let _ = run("umount", &["-l"], &self.at);
    }
}

/// Start of the units: after two superblocks and the log, whose length is in the superblock.
fn units_begin(store: &mut File) -> Result<u64> {
    let mut root = [0_u8; 96];
    store
        .seek(SeekFrom::Start(0))
        .and_then(|_| store.read_exact(&mut root))
        .context("reading a superblock")?;
    let at = |at: usize| u64::from_le_bytes(root[at..at + 8].try_into().expect("eight bytes"));
    Ok(at(80) + at(88))
}

/// Flips a bit in each of up to 24 non-empty blocks of a region; returns their offsets.
///
/// # Errors
/// When the store cannot be read or written.
pub fn flip(store: &Path, region: Region, seed: u64) -> Result<Vec<u64>> {
    const BLOCK: u64 = 4096;
    let mut file = File::options()
        .read(true)
        .write(true)
        .open(store)
        .with_context(|| format!("opening {}", store.display()))?;
    let units = units_begin(&mut file)?;
    let length = file.metadata().context("its length")?.len();
    let mut dice = Dice(seed);
    let (from, to, count) = match region {
        Region::Superblock => {
            let copy = dice.draw(2) * (128 << 10);
            (copy, copy + BLOCK, 1)
        }
        Region::Log => (256 << 10, units.min(length), 24),
        Region::Units => (units, length, 24),
    };
    // Sparse files are long: non-empty blocks are searched first.
    let (mut used, mut block) = (Vec::new(), vec![0_u8; 1 << 20]);
    let mut at = from;
    while at < to {
        file.seek(SeekFrom::Start(at)).context("seeking")?;
        let wanted = usize::try_from((to - at).min(1 << 20)).expect("small");
        let got = file.read(&mut block[..wanted]).context("reading a store")?;
        if got == 0 {
            break;
        }
        let blocks = block[..got].chunks(4096).enumerate();
        used.extend(
            blocks
                .filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0))
                .map(|(n, _)| at + n as u64 * BLOCK),
        );
        at += got as u64;
    }
    let mut flipped = Vec::new();
    for _ in 0..count.min(used.len()) {
        let block = used[usize::try_from(dice.draw(used.len() as u64)).expect("small")];
        let byte = block
            + if region == Region::Superblock {
                dice.draw(512)
            } else {
                dice.draw(BLOCK)
            };
        let mut one = [0_u8];
        file.seek(SeekFrom::Start(byte))
            .and_then(|_| file.read_exact(&mut one))
            .context("reading a byte")?;
        one[0] ^= 1 << dice.draw(8);
        file.seek(SeekFrom::Start(byte))
            .and_then(|_| file.write_all(&one))
            .context("writing a byte")?;
        flipped.push(byte);
    }
    file.sync_all().context("flushing")?;
    Ok(flipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_flipped_where_they_should_be() {
        let path = std::env::temp_dir().join(format!("nacre-chaos-flip-{}", std::process::id()));
        let mut bytes = vec![0_u8; 2 << 20];
        bytes[80..88].copy_from_slice(&(256_u64 << 10).to_le_bytes());
        bytes[88..96].copy_from_slice(&(512_u64 << 10).to_le_bytes());
        bytes[900 << 10..910 << 10].fill(7);
        fs::write(&path, &bytes).expect("writable");
        let flipped = flip(&path, Region::Units, 3).expect("flips");
        assert!(
            !flipped.is_empty() && flipped.iter().all(|at| (900 << 10..912 << 10).contains(at)),
            "{flipped:?}"
        );
        assert_ne!(fs::read(&path).expect("there"), bytes);
        assert!(
            flip(&path, Region::Log, 3)
                .expect("nothing there")
                .is_empty()
        );
        fs::remove_file(&path).expect("removable");
    }
}
