//! Properties of this machine that concern stores and daemons (`nacre doctor`).

use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::io::{self, Write as _};
use std::ops::RangeInclusive;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::time::Duration;

/// How daemons read and write their stores.
pub const IO_ENGINE: &str = "page cache on the daemon's thread, fdatasync and cold reads on worker threads; io_uring is not used";

/// Space of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Total.
    pub total: u64,
    /// Available to this user.
    pub available: u64,
}

/// Space of the file system that holds `path`.
///
/// # Errors
/// The operating system's.
pub fn space(path: &Path) -> io::Result<Space> {
    let found = rustix::fs::statvfs(path)?;
    Ok(Space {
        total: found.f_blocks.saturating_mul(found.f_frsize),
        available: found.f_bavail.saturating_mul(found.f_frsize),
    })
}

/// Memory available to all processes here, in bytes: the machine's, or this container's limit.
#[must_use]
pub fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    let whole = info.totalram.saturating_mul(u64::from(info.mem_unit));
    // For both versions of control groups; "max", or a number beyond all memory: no limit.
    let limits = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    let limit = |path: &&str| std::fs::read_to_string(path).ok()?.trim().parse().ok();
    limits.iter().filter_map(limit).fold(whole, u64::min)
}

/// Number of items of `bytes` bytes that fit into a part of the memory, within these bounds.
#[must_use]
pub fn fitting(part: u64, bytes: u64, bounds: RangeInclusive<usize>) -> usize {
    usize::try_from(part / bytes)
        .unwrap_or(usize::MAX)
        .clamp(*bounds.start(), *bounds.end())
}

/// How durable a file system's data are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// As durable as its disk.
    Data,
    /// Until the machine is restarted.
    UntilRestart,
    /// Until the container is removed.
    WhileContainer,
    /// Stored elsewhere, over a network or by another program, with weaker guarantees than a disk.
    Elsewhere,
}

/// Name and durability of a file system's kind.
fn kind(magic: u64) -> (&'static str, Keeps) {
    match magic {
        0x0102_1994 => ("tmpfs", Keeps::UntilRestart),
        0x8584_58f6 => ("ramfs", Keeps::UntilRestart),
        0x794c_7630 => ("overlayfs", Keeps::WhileContainer),
        0x6969 => ("NFS", Keeps::Elsewhere),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => ("SMB", Keeps::Elsewhere),
        0x0102_1997 => ("9p", Keeps::Elsewhere),
        0x6573_5546 => ("FUSE", Keeps::Elsewhere),
        0x00c3_6400 => ("CephFS", Keeps::Elsewhere),
        0xef53 => ("ext4", Keeps::Data),
        0x5846_5342 => ("XFS", Keeps::Data),
        0x9123_683e => ("Btrfs", Keeps::Data),
        0x2fc1_2fc1 => ("ZFS", Keeps::Data),
        0xf2f5_2010 => ("F2FS", Keeps::Data),
        _ => ("a local file system", Keeps::Data),
    }
}

/// The kind of file system that holds `path`.
///
/// # Errors
/// The operating system's.
pub fn file_system(path: &Path) -> io::Result<(&'static str, Keeps)> {
    // Some kinds have bit 31 set, which is sign-extended in a signed number.
    #[allow(clippy::cast_sign_loss, reason = "a magic number's bits")]
    let magic = rustix::fs::statfs(path)?.f_type as u64 & 0xffff_ffff;
    Ok(kind(magic))
}

/// Maximum number of open files of this process; `None`: unlimited.
#[must_use]
pub fn open_files_max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Length of a block device; `None` for other files.
#[must_use]
pub fn block_device_length(path: &Path) -> Option<u64> {
    use std::io::{Seek as _, SeekFrom};
    path.metadata()
        .ok()?
        .file_type()
        .is_block_device()
        .then_some(())?;
    File::open(path).ok()?.seek(SeekFrom::End(0)).ok()
}

/// Measures writes of 4 KiB with a flush in this directory: the durations of single flushes,
/// sorted, for a quarter of a second.
///
/// # Errors
/// The operating system's: the directory cannot be written.
pub fn flush_times(folder: &Path) -> io::Result<Vec<Duration>> {
    const LONGEST: Duration = Duration::from_millis(250);
    const MOST: usize = 200;
    let path = folder.join(format!(".nacre-doctor-{}", std::process::id()));
    let measure = || -> io::Result<Vec<Duration>> {
        let mut file = File::create(&path)?;
        file.write_all(&vec![0; 4096 * MOST])?;
        file.sync_all()?;
        let (mut times, begun) = (Vec::new(), std::time::Instant::now());
        // In place, as in a preallocated log.
        while times.len() < MOST && (times.is_empty() || begun.elapsed() < LONGEST) {
            let one = std::time::Instant::now();
            std::os::unix::fs::FileExt::write_all_at(&file, &[1; 4096], times.len() as u64 * 4096)?;
            file.sync_data()?;
            times.push(one.elapsed());
        }
        times.sort_unstable();
        Ok(times)
    };
    let times = measure();
    let _ = std::fs::remove_file(&path);
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_are_told_apart() {
        assert_eq!(kind(0x0102_1994).1, Keeps::UntilRestart);
        assert_eq!(kind(0x6969).1, Keeps::Elsewhere);
        assert_eq!(kind(0xef53), ("ext4", Keeps::Data));
        assert_eq!(kind(0x12345).1, Keeps::Data);
        // Every Linux has a file system in memory there.
        if Path::new("/dev/shm").is_dir() {
            assert_eq!(
                file_system(Path::new("/dev/shm")).expect("readable"),
                ("tmpfs", Keeps::UntilRestart)
            );
        }
    }

    #[test]
    fn flushes_are_measured_and_nothing_stays_behind() {
        let dir = std::env::temp_dir().join(format!("nacre-machine-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("made");
        let times = flush_times(&dir).expect("writable");
        assert!(!times.is_empty() && times.is_sorted());
        assert_eq!(std::fs::read_dir(&dir).expect("readable").count(), 0);
        let space = space(&dir).expect("readable");
        assert!(space.total >= space.available && space.total > 0);
        std::fs::remove_dir(&dir).expect("empty");
    }
}
