//! The cost of calls on a file system: the same program on each system, and the CPU time of all its
//! processes.
//!
//! ```text
//!  mounted ─▶ create ─▶ warm stat ─▶ 4 KiB + fsync ─▶ large write ─▶ untar, untar + sync
//!          ─▶ mounted again: nothing is kept ─▶ cold stat ─▶ ls -l ─▶ large read ─▶ unlink
//!          ─▶ mounted again ─▶ large read of what the system's daemons have just read
//! ```
//! The CPU time is that of daemons, mount and this program, from `/proc`, counted until the system
//! is idle. Used by `./x show costs` and `./x bench versus`.

use crate::cluster::files::{Mount, unmount};
use crate::cluster::guard;
use crate::{bounded, machine};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Number of files that are created, looked up and removed one by one; entries of a large
/// directory.
const FILES: usize = 3_000;
const ENTRIES: usize = 10_000;
/// Files of the archive that is unpacked.
pub const ARCHIVED: usize = 3_000;
const SYNCED: usize = 500;
const BLOCK: usize = 4096;
const LARGE: usize = 256;
const MIB: usize = 1 << 20;
/// Deferred work of the system is included in the measurement up to this time.
const SETTLED: Duration = Duration::from_millis(1500);
const STEP_MAX: Duration = Duration::from_mins(5);

/// Rows in microseconds of CPU time per call.
pub const CREATE: &str = "create";
/// Repeated, in the mount that created the files.
pub const WARM_STAT: &str = "warm stat";
/// At random offsets of one file.
pub const FSYNC: &str = "4 KiB write + fsync";
/// In a mount with an empty cache.
pub const COLD_STAT: &str = "cold stat";
/// By the mount that looked them up.
pub const UNLINK: &str = "unlink";
/// Rows in seconds.
pub const LIST: &str = "ls -l of 10,000 entries";
/// Without `sync`.
pub const UNTAR: &str = "untar of 3,000 files";
/// With `sync`.
pub const UNTAR_SYNC: &str = "untar of 3,000 files + sync";
/// Rows in megabytes per second.
pub const WRITES: &str = "1 MiB writes in order, and fsync";
/// In a mount with an empty cache, when the system has cached nothing of the file.
pub const READS: &str = "1 MiB reads in order, cold";
/// In a mount with an empty cache; the machine's page cache for the system's daemons is warm, as in
/// a benchmark that reads the same objects for seconds.
pub const READS_AGAIN: &str = "1 MiB reads in order, by another mount";

/// The result of each row.
pub type Rows = BTreeMap<&'static str, f64>;
/// Seconds of CPU time of each part of a system.
type Cpu = BTreeMap<&'static str, f64>;

/// A file system that this machine has mounted.
pub trait Mounted {
    /// The mount point.
    fn dir(&self) -> &Path;
    /// Unmounts it; written data is safe afterwards.
    ///
    /// # Errors
    /// When it fails.
    fn end(self: Box<Self>) -> Result<()>;
}

impl Mounted for Mount {
    fn dir(&self) -> &Path {
        Self::dir(self)
    }
    fn end(self: Box<Self>) -> Result<()> {
        Self::end(*self)
    }
}

/// The lower limit: an ext4 in a file, on this machine's disk. CPU time of the kernel's own threads
/// is not counted.
pub struct Disk {
    dir: PathBuf,
}

impl Disk {
    /// Creates one of some GiB in a directory, or mounts the existing one.
    ///
    /// # Errors
    /// When this user cannot.
    pub fn mount(folder: &Path) -> Result<Self> {
        let (image, dir) = (folder.join("ext4.image"), folder.join("ext4"));
        if !image.exists() {
            fs::create_dir_all(&dir).context("a folder to mount at")?;
            File::create(&image)
                .and_then(|file| file.set_len(3 << 30))
                .context("a file for an ext4")?;
            bounded::printed(
                Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image),
                STEP_MAX,
            )?;
        }
        bounded::printed(
            Command::new("mount")
                .args(["-o", "loop"])
                .arg(&image)
                .arg(&dir),
            STEP_MAX,
        )?;
        Ok(Self { dir })
    }
}

impl Mounted for Disk {
    fn dir(&self) -> &Path {
        &self.dir
    }
    fn end(self: Box<Self>) -> Result<()> {
        unmount(&self.dir)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = bounded::output(Command::new("umount").arg("-lq").arg(&self.dir), STEP_MAX);
    }
}

/// The measurement of one system.
pub struct Calls<'a> {
    /// Processes with this directory on their command lines belong to the system; `None`: the
    /// system has no processes.
    pub folder: Option<&'a Path>,
    /// Mounts it.
    pub mount: &'a dyn Fn() -> Result<Box<dyn Mounted>>,
    /// Number of requests from mounts that its server has processed, if available.
    pub requests: Option<&'a dyn Fn() -> Result<f64>>,
    /// Receives each figure: name, value, unit.
    pub note: &'a mut dyn FnMut(&str, f64, &'static str),
}

/// The results of all measurements.
#[derive(Default)]
pub struct Found {
    /// By name.
    pub rows: Rows,
    /// Number of requests that `ls -l` made.
    pub list_requests: Option<f64>,
}

impl Calls<'_> {
    /// Runs all measurements; an archive of [`ARCHIVED`] files is unpacked.
    ///
    /// # Errors
    /// When one fails.
    pub fn all(&mut self, archive: &Path) -> Result<Found> {
        let mut found = Found::default();
        let mount = (self.mount)()?;
        let at = |name: &str| mount.dir().join(name);
        fs::create_dir(at("files")).context("a directory")?;
        let files: Vec<PathBuf> = (0..FILES)
            .map(|n| at("files").join(format!("file{n:06}")))
            .collect();
        let rows = &mut found.rows;
        self.each(rows, CREATE, FILES, |n| {
            File::create(&files[n]).map(drop).context("creating")
        })?;
        self.each(rows, WARM_STAT, FILES, |n| {
            fs::metadata(&files[n]).map(drop).context("looking")
        })?;
        let file = File::create(at("synced")).context("a file")?;
        self.each(rows, FSYNC, SYNCED, |n| {
            let to = (n * 7919 % 4096 * BLOCK) as u64;
            file.write_all_at(&[7; BLOCK], to)
                .and_then(|()| file.sync_all())
                .context("synchronizing")
        })?;
        drop(file);
        let block = vec![9; MIB];
        let mut file = File::create(at("large")).context("a file")?;
        self.rate(rows, WRITES, || {
            (0..LARGE).try_for_each(|_| file.write_all(&block))?;
            file.sync_all()
        })?;
        drop(file);
        fs::create_dir(at("many")).context("a directory")?;
        for n in 0..ENTRIES {
            File::create(at("many").join(format!("entry{n:06}"))).context("an entry")?;
        }
        for (row, sync) in [(UNTAR, false), (UNTAR_SYNC, true)] {
            let to = at(row);
            fs::create_dir(&to).context("a directory")?;
            self.time(rows, row, || {
                bounded::printed(
                    Command::new("tar")
                        .arg("xf")
                        .arg(archive)
                        .arg("-C")
                        .arg(&to),
                    STEP_MAX,
                )?;
                if sync {
                    bounded::printed(Command::new("sync").arg("-f").arg(&to), STEP_MAX)?;
                }
                Ok(())
            })?;
        }
        // Another mount starts with an empty cache.
        mount.end()?;
        let mount = (self.mount)()?;
        self.each(rows, COLD_STAT, FILES, |n| {
            fs::metadata(&files[n * 1009 % FILES])
                .map(drop)
                .context("looking")
        })?;
        let before = self.requests.map(|count| count()).transpose()?;
        self.time(rows, LIST, || {
            let mut count = 0;
            for entry in fs::read_dir(mount.dir().join("many")).context("listing")? {
                entry?.metadata().context("looking")?;
                count += 1;
            }
            ensure!(count == ENTRIES, "{count} entries are listed");
            Ok(())
        })?;
        if let (Some(count), Some(before)) = (self.requests, before) {
            found.list_requests = Some(count()? - before);
        }
        self.read(rows, READS, mount.dir())?;
        self.each(rows, UNLINK, FILES, |n| {
            fs::remove_file(&files[n]).context("removing")
        })?;
        mount.end()?;
        let mount = (self.mount)()?;
        self.read(rows, READS_AGAIN, mount.dir())?;
        mount.end()?;
        Ok(found)
    }
    fn read(&mut self, rows: &mut Rows, row: &'static str, dir: &Path) -> Result<()> {
        let mut file = File::open(dir.join("large")).context("opening")?;
        let mut block = vec![0; MIB];
        self.rate(rows, row, || {
            (0..LARGE).try_for_each(|_| file.read_exact(&mut block))
        })
    }

    /// CPU time of every process of the system and of this one, in seconds.
    fn cpu(&self) -> Result<Cpu> {
        let mut cpu = Cpu::from([("program", machine::cpu_seconds(std::process::id())?)]);
        let Some(folder) = self.folder else {
            return Ok(cpu);
        };
        for (pid, words) in guard::processes(folder) {
            *cpu.entry(guard::part_of(&words)).or_default() +=
                machine::cpu_seconds(pid).unwrap_or_default();
        }
        // A figure without them was once reported, and was a tenth of the true value.
        ensure!(
            cpu.contains_key("osd") && cpu.contains_key("mount"),
            "its daemons are not found: {cpu:?}"
        );
        Ok(cpu)
    }
    /// Waits for deferred work, which belongs to the measurement; if no other process is involved,
    /// there is none.
    fn settle(&self) {
        if self.folder.is_some() {
            sleep(SETTLED);
        }
    }
    /// Records the CPU time used since `before`, with a line per part.
    fn used_since(&mut self, row: &str, before: &Cpu, of: (f64, &'static str)) -> Result<f64> {
        let now = self.cpu()?;
        let used = now
            .iter()
            .map(|(part, cpu)| (part, (cpu - before.get(part).unwrap_or(&0.0)) * of.0));
        let parts: Vec<(&&str, f64)> = used.collect();
        let said: Vec<String> = parts
            .iter()
            .map(|(part, used)| format!("{part} {used:.2}"))
            .collect();
        let sum = parts.iter().map(|(_, used)| used).sum();
        (self.note)(
            &format!("{row}: CPU of all processes ({})", said.join(", ")),
            sum,
            of.1,
        );
        Ok(sum)
    }
    fn each(
        &mut self,
        rows: &mut Rows,
        row: &'static str,
        count: usize,
        call: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let (cpu, begun) = (self.cpu()?, Instant::now());
        (0..count).try_for_each(call).context(row)?;
        let took = begun.elapsed().as_secs_f64();
        self.settle();
        let each = 1e6 / count as f64;
        rows.insert(row, self.used_since(row, &cpu, (each, "µs"))?);
        (self.note)(&format!("{row}: time"), took * each, "µs");
        Ok(())
    }
    fn time(
        &mut self,
        rows: &mut Rows,
        row: &'static str,
        call: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let (cpu, begun) = (self.cpu()?, Instant::now());
        call().context(row)?;
        let took = begun.elapsed().as_secs_f64();
        self.settle();
        self.used_since(row, &cpu, (1.0, "s"))?;
        rows.insert(row, took);
        (self.note)(&format!("{row}: time"), took, "s");
        Ok(())
    }
    fn rate(
        &mut self,
        rows: &mut Rows,
        row: &'static str,
        call: impl FnOnce() -> std::io::Result<()>,
    ) -> Result<()> {
        let (cpu, begun) = (self.cpu()?, Instant::now());
        call().context(row)?;
        let rate = (LARGE * MIB) as f64 / 1e6 / begun.elapsed().as_secs_f64();
        self.settle();
        self.used_since(row, &cpu, (1e3 / LARGE as f64, "ms/MiB"))?;
        rows.insert(row, rate);
        (self.note)(row, rate, "MB/s");
        Ok(())
    }
}
