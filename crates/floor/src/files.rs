//! Files without a name: the kernel removes them when the program ends, even if it is killed.

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// Creates a file of `bytes` bytes below `dir` and unlinks it.
///
/// # Errors
/// When there is no space, or no such directory.
pub fn unnamed(dir: &Path, id: usize, bytes: u64) -> Result<File> {
    let path = dir.join(format!("nacre-floor.{}.{id}", std::process::id()));
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path);
    let mut file = file.with_context(|| format!("creating {}", path.display()))?;
    fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
    // Written, not only allocated: a first write into allocated space changes metadata.
    let block = vec![1; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let part = left.min(block.len() as u64);
        file.write_all(&block[..usize::try_from(part).expect("a block")])
            .with_context(|| format!("writing {bytes} bytes below {}", dir.display()))?;
        left -= part;
    }
    file.sync_all()
        .with_context(|| format!("flushing a file below {}", dir.display()))?;
    Ok(file)
}

/// The same file, bypassing the page cache; with `durable`, writes are flushed at once. `None`
/// where the file system does not support it.
pub fn direct(file: &File, durable: bool) -> Option<File> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flush = if durable {
        OFlags::DSYNC
    } else {
        OFlags::empty()
    };
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::DIRECT | flush;
    rustix::fs::open(path, flags, Mode::empty())
        .ok()
        .map(File::from)
}
