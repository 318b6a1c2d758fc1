//! Concurrent operations, one on each mount: appends, exclusive creations, renames, locks. Each
//! round ends with a check.

use super::stale;
use super::stalls::Stalls;
use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, fcntl_lock};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Number of records that each mount appends in a round; a file has several rounds.
const RECORDS: u64 = 10;
const ROUNDS_OF_A_FILE: u64 = 20;
/// Number of times that each mount adds one to a number.
const ADDED: u64 = 5;

/// Works until it is stopped.
///
/// # Errors
/// A result that is not allowed.
pub fn work(folders: &[PathBuf; 2], stalls: &Stalls, stop: &AtomicBool) -> Result<()> {
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        appends(folders, round, stalls).context("appending")?;
        one_creates(folders, round, stalls).context("creating exclusively")?;
        one_renames(folders, stalls).context("renaming one file")?;
        one_target(folders, stalls).context("renaming to one name")?;
        no_loop(folders, stalls).context("renaming directories into each other")?;
        counted(folders, stalls).context("counting under a lock")?;
    }
    Ok(())
}

/// The same on both mounts at once.
fn both<T: Send>(
    folders: &[PathBuf; 2],
    stalls: &Stalls,
    what: &'static str,
    run: impl Fn(usize, &Path) -> io::Result<T> + Sync,
) -> [io::Result<T>; 2] {
    let one = |side: usize| stalls.time(|| what.to_owned(), || run(side, &folders[side]));
    thread::scope(|scope| {
        let other = scope.spawn(|| one(1));
        [one(0), other.join().expect("a racer does not panic")]
    })
}

fn won(results: &[io::Result<()>; 2], others: &[ErrorKind]) -> Result<usize> {
    let winners: Vec<usize> = (0..2).filter(|side| results[*side].is_ok()).collect();
    let losers = results.iter().filter_map(|result| result.as_ref().err());
    let fair = losers.clone().all(|why| others.contains(&why.kind()));
    ensure!(
        winners.len() == 1 && fair,
        "one should have won: {results:?}"
    );
    Ok(winners[0])
}

fn record(side: usize, number: u64) -> Vec<u8> {
    let length = usize::try_from(40 + (number * 977 + side as u64 * 313) % 4000).expect("small");
    let mut text = format!("{side} {number} {length} ").into_bytes();
    text.resize(length - 1, b'a' + u8::try_from(number % 26).expect("small"));
    text.push(b'\n');
    text
}

/// Every record is complete, each mount's records are in order, none is lost.
fn appends(folders: &[PathBuf; 2], round: u64, stalls: &Stalls) -> Result<()> {
    let (name, first) = ("appended", round % ROUNDS_OF_A_FILE * RECORDS);
    if first == 0 {
        fs::write(folders[0].join(name), "").context("an empty file")?;
    }
    let results = both(folders, stalls, "ten appends", |side, folder| {
        let mut file = OpenOptions::new().append(true).open(folder.join(name))?;
        (first..first + RECORDS).try_for_each(|number| file.write_all(&record(side, number)))
    });
    results.into_iter().collect::<io::Result<Vec<()>>>()?;
    for folder in folders {
        let text = fs::read(folder.join(name)).context("reading what was appended")?;
        let (mut rest, mut next) = (&text[..], [0; 2]);
        while !rest.is_empty() {
            let side = usize::from(rest[0] == b'1');
            let expected = record(side, next[side]);
            let at = text.len() - rest.len();
            ensure!(
                rest.starts_with(&expected),
                "at {at} of {}: record {} of mount {side} is not there, or torn",
                text.len(),
                next[side]
            );
            rest = &rest[expected.len()..];
            next[side] += 1;
        }
        ensure!(
            next == [first + RECORDS; 2],
            "{next:?} records are there, and each appended {}",
            first + RECORDS
        );
    }
    Ok(())
}

fn one_creates(folders: &[PathBuf; 2], round: u64, stalls: &Stalls) -> Result<()> {
    let name = format!("one-{round}");
    let results = both(folders, stalls, "O_EXCL", |side, folder| {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(folder.join(&name))?;
        file.write_all(&[b'0' + u8::from(side == 1)])
    });
    let winner = won(&results, &[ErrorKind::AlreadyExists])?;
    for folder in folders {
        let text = fs::read_to_string(folder.join(&name)).context("reading the winner's file")?;
        ensure!(
            text == winner.to_string(),
            "mount {winner} made the file, and it says {text:?}"
        );
    }
    fs::remove_file(folders[1 - winner].join(&name)).context("removing it")
}

fn one_renames(folders: &[PathBuf; 2], stalls: &Stalls) -> Result<()> {
    fs::write(folders[1].join("from"), "").context("a file to rename")?;
    let results = both(folders, stalls, "rename", |side, folder| {
        fs::rename(folder.join("from"), folder.join(format!("to-{side}")))
    });
    let winner = won(&results, &[ErrorKind::NotFound])?;
    let name = |side: usize| format!("to-{side}");
    for folder in folders {
        let there = [0, 1].map(|side| folder.join(name(side)).exists());
        ensure!(
            there[winner] && !there[1 - winner],
            "mount {winner} renamed it; which are there: {there:?}"
        );
    }
    fs::remove_file(folders[1 - winner].join(name(winner))).context("removing it")
}

fn one_target(folders: &[PathBuf; 2], stalls: &Stalls) -> Result<()> {
    let name = |side: usize| format!("mine-{side}");
    for side in [0, 1] {
        fs::write(folders[side].join(name(side)), name(side)).context("a file to rename")?;
    }
    let results = both(folders, stalls, "rename", |side, folder| {
        fs::rename(folder.join(name(side)), folder.join("target"))
    });
    results.into_iter().collect::<io::Result<Vec<()>>>()?;
    let texts = [0, 1].map(|side| fs::read_to_string(folders[side].join("target")));
    let [one, other] = texts.map(|text| text.unwrap_or_else(|why| why.to_string()));
    ensure!(
        one == other && (one == name(0) || one == name(1)),
        "the mounts see {one:?} and {other:?}"
    );
    ensure!(
        [0, 1]
            .iter()
            .all(|side| !folders[1 - side].join(name(*side)).exists()),
        "an old name is left"
    );
    fs::remove_file(folders[0].join("target")).context("removing it")
}

/// `a` into `b` and `b` into `a`: if both succeeded, both would be lost.
fn no_loop(folders: &[PathBuf; 2], stalls: &Stalls) -> Result<()> {
    let pair = ["loop-0", "loop-1"];
    for (side, name) in pair.iter().enumerate() {
        fs::create_dir(folders[1 - side].join(name)).context("a directory")?;
    }
    let results = both(folders, stalls, "rename", |side, folder| {
        fs::rename(
            folder.join(pair[side]),
            folder.join(pair[1 - side]).join("inside"),
        )
    });
    let winner = won(
        &results,
        &[
            ErrorKind::NotFound,
            ErrorKind::InvalidInput,
            ErrorKind::NotADirectory,
        ],
    )?;
    let outer = folders[1 - winner].join(pair[1 - winner]);
    let remove = |path: &Path| stale::again(|| fs::remove_dir(path));
    remove(&outer.join("inside"))
        .and_then(|()| remove(&outer))
        .context("removing both")
}

/// A number in a file that is protected by the lock only.
fn counted(folders: &[PathBuf; 2], stalls: &Stalls) -> Result<()> {
    fs::write(folders[0].join("number"), "0").context("a number")?;
    let results = both(folders, stalls, "five times locked", |_, folder| {
        let mut file = File::options()
            .read(true)
            .write(true)
            .open(folder.join("number"))?;
        for _ in 0..ADDED {
            fcntl_lock(&file, FlockOperation::LockExclusive)?;
            let mut text = String::new();
            file.seek(SeekFrom::Start(0))?;
            file.read_to_string(&mut text)?;
            let number: u64 = text.trim().parse().map_err(io::Error::other)?;
            file.seek(SeekFrom::Start(0))?;
            write!(file, "{}", number + 1)?;
            fcntl_lock(&file, FlockOperation::Unlock)?;
        }
        Ok(())
    });
    results.into_iter().collect::<io::Result<Vec<()>>>()?;
    for folder in folders {
        let text = fs::read_to_string(folder.join("number")).context("reading the number")?;
        ensure!(
            text == (2 * ADDED).to_string(),
            "twice {ADDED} were added, and it is {text}"
        );
    }
    Ok(())
}
