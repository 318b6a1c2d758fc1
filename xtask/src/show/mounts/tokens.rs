//! Files that move between directories of two ranks on both mounts: each must exist exactly once,
//! whatever server dies meanwhile.
//!
//! ```text
//!  p0 (rank 0) ◀── rename, link, rename over another ──▶ p1 (rank 1)        t0 … t59, each with its own text
//! ```
//! A rename across ranks that was executed by only one of them would leave a file twice, or
//! nowhere.

use super::stalls::Stalls;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const FILES: u64 = 60;
const DIRS: [&str; 2] = ["p0", "p1"];

/// Pseudo-random numbers with a fixed seed.
struct Dice(u64);
impl Dice {
    const fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn text(token: u64) -> String {
    format!("token {token}")
}

/// Creates them, on one mount.
///
/// # Errors
/// When that fails.
pub fn make(root: &Path) -> Result<()> {
    for token in 0..FILES {
        let place = root
            .join(DIRS[token as usize % 2])
            .join(format!("t{token}"));
        fs::write(&place, text(token)).with_context(|| format!("making {}", place.display()))?;
    }
    Ok(())
}

/// Moves them until it is stopped.
///
/// # Errors
/// A result that is not allowed.
pub fn work(root: &Path, seed: u64, stalls: &Stalls, stop: &AtomicBool) -> Result<()> {
    let mut dice = Dice(seed);
    while !stop.load(Ordering::Relaxed) {
        match step(root, seed, &mut dice, stalls) {
            // Another worker has moved it.
            Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => {}
            result => result.with_context(|| format!("worker {seed}"))?,
        }
    }
    Ok(())
}

fn step(root: &Path, seed: u64, dice: &mut Dice, stalls: &Stalls) -> io::Result<()> {
    let token = dice.below(FILES);
    let from = dice.below(2) as usize;
    let to = if dice.below(5) > 0 { 1 - from } else { from };
    let name = format!("t{token}");
    let (here, there) = (root.join(DIRS[from]), root.join(DIRS[to]));
    match dice.below(20) {
        0..12 => stalls.time(
            || "rename".to_owned(),
            || fs::rename(here.join(&name), there.join(&name)),
        ),
        12..15 => {
            let other = there.join(format!("l{token}.{seed}"));
            stalls.time(
                || "link".to_owned(),
                || fs::hard_link(here.join(&name), &other),
            )?;
            expect(&other, &text(token))?;
            stalls.time(|| "unlink".to_owned(), || fs::remove_file(&other))
        }
        15..18 => {
            let (new, over) = (
                here.join(format!("n{seed}")),
                there.join(format!("o{seed}")),
            );
            fs::write(&new, "new")?;
            stalls.time(
                || "rename over another".to_owned(),
                || fs::rename(&new, &over),
            )?;
            expect(&over, "new")?;
            let links = fs::metadata(&over)?.nlink();
            if links == 1 {
                Ok(())
            } else {
                Err(io::Error::other(format!("{links} links, and one name")))
            }
        }
        _ => expect(&here.join(&name), &text(token)),
    }
}

/// Removes what a worker may have left when a call failed.
pub fn tidy(root: &Path, seed: u64) {
    for (dir, token) in DIRS
        .iter()
        .flat_map(|dir| (0..FILES).map(move |token| (dir, token)))
    {
        let _ = fs::remove_file(root.join(dir).join(format!("l{token}.{seed}")));
    }
}

fn expect(place: &Path, text: &str) -> io::Result<()> {
    let found = fs::read_to_string(place)?;
    if found == text {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{} has `{found}`, and not `{text}`",
        place.display()
    )))
}

/// Checks that each of them exists once, with its text and one name, and nothing else.
///
/// # Errors
/// The violation.
pub fn check(root: &Path) -> Result<()> {
    let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
    for dir in DIRS {
        for entry in fs::read_dir(root.join(dir)).with_context(|| format!("listing {dir}"))? {
            let entry = entry.with_context(|| format!("listing {dir}"))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            ensure!(
                !name.starts_with('l'),
                "a second name is left: {dir}/{name}"
            );
            if name.starts_with('t') {
                let before = found.insert(name.clone(), entry.path());
                ensure!(before.is_none(), "{name} is in both directories");
            }
        }
    }
    for token in 0..FILES {
        let place = found
            .get(&format!("t{token}"))
            .with_context(|| format!("t{token} is nowhere"))?;
        expect(place, &text(token)).context("reading")?;
        let links = fs::metadata(place).context("looking")?.nlink();
        ensure!(links == 1, "{} has {links} links", place.display());
    }
    ensure!(
        found.len() as u64 == FILES,
        "there are {} files",
        found.len()
    );
    Ok(())
}
