//! The same directory on two mounts: alternating random calls, every answer compared with the
//! model's.
//!
//! A change made by one mount is checked through the other as soon as the call has returned: the
//! other's cache must not be stale.

use super::model::{Answer, Call, Model, Path, Side, Slot};
use super::stale;
use super::stalls::Stalls;
use crate::chaos::plan::Dice;
use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

const NAMES: u64 = 5;
const DEEPEST: u64 = 3;
const SLOTS: u64 = 8;
/// Most writes are small; some are at the boundary of an object of 4 MiB.
const SMALL: u64 = 20_000;
const BORDER: u64 = (4 << 20) - 3_000;
/// Maximum size of a file.
const FILE_MAX: u64 = 6 << 20;

/// See the module head.
pub struct Pair {
    folders: [PathBuf; 2],
    open: Vec<Option<File>>,
    model: Model,
    dice: Dice,
}

impl Pair {
    /// Two paths to one empty directory.
    pub fn new(folders: [PathBuf; 2], seed: u64) -> Self {
        let open = (0..SLOTS).map(|_| None).collect();
        Self {
            folders,
            open,
            model: Model::new(),
            dice: Dice(seed),
        }
    }

    /// Works until it is stopped; then closes everything.
    ///
    /// # Errors
    /// The first answer that differs from the model's.
    pub fn work(&mut self, stalls: &Stalls, stop: &AtomicBool) -> Result<()> {
        let mut side = 0;
        while !stop.load(Ordering::Relaxed) {
            side = 1 - side;
            let call = self.draw(side);
            self.step(side, &call, stalls)?;
            for look in looks(&call) {
                self.step(1 - side, &look, stalls)
                    .with_context(|| format!("after {} on the other", call.shown()))?;
            }
        }
        for slot in 0..self.open.len() {
            self.step(0, &Call::Close(slot), stalls)?;
        }
        Ok(())
    }

    /// Checks that a directory has exactly the content of the model.
    ///
    /// # Errors
    /// The first difference.
    pub fn compare(&mut self, folder: PathBuf) -> Result<u64> {
        let (stalls, mut count) = (Stalls::default(), 0);
        self.folders = [folder.clone(), folder];
        for path in self.model.paths() {
            count += 1;
            self.step(0, &Call::Stat(path.clone()), &stalls)?;
            let all = match self.model.call(0, &Call::Stat(path.clone())) {
                Ok(Answer::Folder) => Call::List(path),
                _ => Call::Read(path, 0, usize::try_from(FILE_MAX).expect("small") * 2),
            };
            self.step(0, &all, &stalls)?;
        }
        Ok(count)
    }

    fn step(&mut self, side: Side, call: &Call, stalls: &Stalls) -> Result<()> {
        let expected = self.model.call(side, call);
        let found = stalls.time(|| call.shown(), || stale::again(|| self.ask(side, call)));
        let found = found.map_err(|why| Errno::from_io_error(&why).unwrap_or(Errno::IO));
        ensure!(
            found == expected,
            "mount {side}: {}: {}",
            call.shown(),
            difference(&found, &expected)
        );
        Ok(())
    }

    /// Makes a call.
    fn ask(&mut self, side: Side, call: &Call) -> io::Result<Answer> {
        let at =
            |path: &Path| -> PathBuf { self.folders[side].join(path.iter().collect::<PathBuf>()) };
        let write = |path: &Path| OpenOptions::new().write(true).open(at(path));
        match call {
            Call::Create(path) => drop(
                OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .open(at(path))?,
            ),
            Call::Write(path, from, data) => write(path)?.write_all_at(data, *from)?,
            Call::Append(path, data) => OpenOptions::new()
                .append(true)
                .open(at(path))?
                .write_all(data)?,
            Call::Truncate(path, to) => write(path)?.set_len(*to)?,
            Call::Read(path, from, count) => {
                let file = File::open(at(path))?;
                // A directory can be opened, but not read.
                return read(&file, *from, *count).map(Answer::Data);
            }
            Call::Stat(path) => {
                let meta = fs::symlink_metadata(at(path))?;
                let file = Answer::File {
                    size: meta.len(),
                    names: meta.nlink(),
                };
                return Ok(if meta.is_dir() { Answer::Folder } else { file });
            }
            Call::List(path) => {
                let names = fs::read_dir(at(path))?
                    .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
                let mut names = names.collect::<io::Result<Vec<String>>>()?;
                names.sort();
                return Ok(Answer::Names(names));
            }
            Call::Mkdir(path) => fs::create_dir(at(path))?,
            Call::Rmdir(path) => fs::remove_dir(at(path))?,
            Call::Unlink(path) => fs::remove_file(at(path))?,
            Call::Rename(from, to) => fs::rename(at(from), at(to))?,
            Call::Link(from, to) => fs::hard_link(at(from), at(to))?,
            Call::Open(slot, path) => {
                let file = OpenOptions::new().read(true).write(true).open(at(path))?;
                self.open[*slot] = Some(file);
            }
            Call::WriteAt(slot, ..)
            | Call::ReadAt(slot, ..)
            | Call::Sync(slot)
            | Call::Lock(slot, _)
            | Call::Unlock(slot) => {
                let Some(file) = &self.open[*slot] else {
                    return Ok(Answer::Nothing);
                };
                match call {
                    Call::WriteAt(_, from, data) => file.write_all_at(data, *from)?,
                    Call::ReadAt(_, from, count) => {
                        return read(file, *from, *count).map(Answer::Data);
                    }
                    Call::Lock(_, true) => {
                        fcntl_lock(file, FlockOperation::NonBlockingLockExclusive)?
                    }
                    Call::Lock(_, false) => {
                        fcntl_lock(file, FlockOperation::NonBlockingLockShared)?
                    }
                    Call::Unlock(_) => fcntl_lock(file, FlockOperation::NonBlockingUnlock)?,
                    _ => file.sync_data()?,
                }
            }
            Call::Close(slot) => {
                if self.open[*slot].take().is_none() {
                    return Ok(Answer::Nothing);
                }
            }
        }
        Ok(Answer::Done)
    }

    /// Draws a random call.
    fn draw(&mut self, side: Side) -> Call {
        match self.dice.draw(100) {
            0..10 => Call::Create(self.path()),
            10..18 => {
                let (path, (at, data)) = (self.path(), self.data());
                Call::Write(path, at, data)
            }
            18..24 => {
                let (path, (_, data)) = (self.path(), self.data());
                Call::Append(path, data)
            }
            24..34 => Call::Read(self.path(), self.dice.draw(SMALL), 50_000),
            34..38 => Call::Truncate(self.path(), self.dice.draw(SMALL * 2)),
            38..44 => Call::Stat(self.path()),
            44..48 => {
                let mut path = self.path();
                path.pop();
                Call::List(path)
            }
            48..52 => Call::Mkdir(self.path()),
            52..54 => Call::Rmdir(self.path()),
            54..58 => Call::Unlink(self.path()),
            58..64 => Call::Rename(self.path(), self.path()),
            64..67 => Call::Link(self.path(), self.path()),
            67..74 => {
                let slot = self.slot();
                if self.open[slot].is_some() {
                    Call::Close(slot)
                } else {
                    Call::Open(slot, self.path())
                }
            }
            _ => {
                // A mount can only use the files that it has open itself.
                let slot = self.slot();
                if !self.model.is_open(slot, side) {
                    return Call::Stat(self.path());
                }
                match self.dice.draw(12) {
                    0..4 => {
                        let (at, data) = self.data();
                        Call::WriteAt(slot, at, data)
                    }
                    4..8 => Call::ReadAt(slot, self.dice.draw(SMALL), 50_000),
                    8 => Call::Sync(slot),
                    9 | 10 => Call::Lock(slot, self.dice.draw(2) == 0),
                    _ => Call::Unlock(slot),
                }
            }
        }
    }
    fn slot(&mut self) -> Slot {
        usize::try_from(self.dice.draw(SLOTS)).expect("small")
    }
    fn path(&mut self) -> Path {
        let depth = 1 + self.dice.draw(DEEPEST * 2) / 2;
        (0..depth.min(DEEPEST))
            .map(|_| format!("n{}", self.dice.draw(NAMES)))
            .collect()
    }
    fn data(&mut self) -> (u64, Vec<u8>) {
        let (at, length) = match self.dice.draw(40) {
            0 => (BORDER + self.dice.draw(6_000), self.dice.draw(SMALL)),
            1 => (self.dice.draw(SMALL), self.dice.draw(300_000)),
            2..10 => (4096 * self.dice.draw(5), 4096),
            _ => (self.dice.draw(SMALL), self.dice.draw(5_000)),
        };
        let first = self.dice.draw(256);
        let data = (0..length)
            .map(|n| u8::try_from((n * 31 + first) % 251).expect("small"))
            .collect();
        (at, data)
    }
}

/// The calls on the other mount that check a call.
fn looks(call: &Call) -> Vec<Call> {
    let near = |path: &Path| {
        let above = path
            .split_last()
            .map(|(_, above)| above.to_vec())
            .unwrap_or_default();
        vec![Call::Stat(path.clone()), Call::List(above)]
    };
    match call {
        Call::Create(path) | Call::Mkdir(path) | Call::Rmdir(path) | Call::Unlink(path) => {
            near(path)
        }
        Call::Rename(one, other) | Call::Link(one, other) => [near(one), near(other)].concat(),
        Call::Write(path, at, data) => vec![
            Call::Stat(path.clone()),
            Call::Read(path.clone(), *at, data.len()),
        ],
        Call::Append(path, _) => vec![Call::Stat(path.clone())],
        Call::Truncate(path, to) => {
            vec![
                Call::Stat(path.clone()),
                Call::Read(path.clone(), to.saturating_sub(100), 200),
            ]
        }
        _ => Vec::new(),
    }
}

/// Reads all available bytes, in as many calls as necessary.
fn read(file: &File, from: u64, count: usize) -> io::Result<Vec<u8>> {
    let (mut data, mut filled) = (vec![0; count], 0);
    while filled < count {
        match file.read_at(&mut data[filled..], from + filled as u64)? {
            0 => break,
            more => filled += more,
        }
    }
    // The kernel does not pass on an empty read, so a directory would not be detected.
    if count == 0 {
        file.read_at(&mut [], from)?;
    }
    data.truncate(filled);
    Ok(data)
}

fn difference(found: &Result<Answer, Errno>, expected: &Result<Answer, Errno>) -> String {
    if let (Ok(Answer::Data(found)), Ok(Answer::Data(expected))) = (found, expected) {
        let at = found
            .iter()
            .zip(expected)
            .position(|(one, other)| one != other);
        return match at {
            Some(at) => {
                let ends = |data: &[u8]| format!("{:?}", &data[at..data.len().min(at + 8)]);
                format!(
                    "byte {at} is another one: {}, not {}",
                    ends(found),
                    ends(expected)
                )
            }
            None => format!("{} bytes, not {}", found.len(), expected.len()),
        };
    }
    format!("{found:?}, not {expected:?}")
}
