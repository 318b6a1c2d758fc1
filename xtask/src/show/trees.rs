//! Reproducible trees of files, and their comparison.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Sizes that files take in turn: empty, within a block, at its boundaries, some blocks.
const SIZES: [usize; 8] = [0, 1, 300, 4096, 4097, 20_000, 60_000, 100_000];
/// Once per this many files there is a link, and an empty directory.
const SPECIAL: usize = 100;
const IN_FOLDER: usize = 50;

/// Creates a tree of `small` files of mixed sizes and `large` ones of 16 MiB, which are stored in
/// pieces; returns the number of files and bytes.
///
/// # Errors
/// When it cannot be written.
pub fn make(root: &Path, small: usize, large: usize) -> Result<(usize, u64)> {
    let (mut bytes, mut count) = (0, 0);
    let sizes = (0..small)
        .map(|n| SIZES[n % SIZES.len()] + n / SIZES.len() % 97)
        .chain((0..large).map(|_| 16 << 20));
    for (n, size) in sizes.enumerate() {
        let folder = root.join(format!(
            "folder {}/ünter-{}",
            n / (IN_FOLDER * 20),
            n / IN_FOLDER
        ));
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let path = folder.join(format!("file-{n}"));
        let write = || -> std::io::Result<()> {
            let mut file = BufWriter::new(File::create(&path)?);
            noise(n as u64, size, &mut file)?;
            file.flush()?;
            if n % 7 == 0 {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o750))?;
            }
            if n % SPECIAL == 0 {
                symlink(format!("file-{n}"), folder.join(format!("link-{n}")))?;
                fs::create_dir(folder.join(format!("empty-{n}")))?;
            }
            Ok(())
        };
        write().with_context(|| format!("writing {}", path.display()))?;
        (count, bytes) = (count + 1, bytes + size as u64);
    }
    Ok((count, bytes))
}

/// Writes `size` bytes that depend on `seed` alone.
fn noise(seed: u64, size: usize, to: &mut impl Write) -> std::io::Result<()> {
    let (mut left, mut state) = (size, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    while left > 0 {
        // splitmix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let word = (z ^ (z >> 31)).to_le_bytes();
        let take = left.min(word.len());
        to.write_all(&word[..take])?;
        left -= take;
    }
    Ok(())
}

/// The node at a path.
#[derive(Debug, PartialEq)]
enum Kind {
    Folder,
    Link(PathBuf),
    File { mode: u32, length: u64 },
}

fn walk(root: &Path) -> Result<BTreeMap<PathBuf, Kind>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        let at = root.join(&folder);
        for entry in fs::read_dir(&at).with_context(|| format!("reading {}", at.display()))? {
            let path = folder.join(entry.context("reading a folder")?.file_name());
            let at = root.join(&path);
            let meta = at
                .symlink_metadata()
                .with_context(|| format!("looking at {}", at.display()))?;
            let kind = if meta.is_dir() {
                folders.push(path.clone());
                Kind::Folder
            } else if meta.is_symlink() {
                Kind::Link(fs::read_link(&at).context("reading a link")?)
            } else {
                Kind::File {
                    mode: meta.permissions().mode() & 0o777,
                    length: meta.len(),
                }
            };
            found.insert(path, kind);
        }
    }
    Ok(found)
}

/// Checks that two trees are equal in names, kinds, modes, links and every byte; returns the number
/// of entries.
///
/// # Errors
/// The first difference.
pub fn same(one: &Path, other: &Path) -> Result<usize> {
    let (left, right) = (walk(one)?, walk(other)?);
    let lost = left.keys().find(|path| !right.contains_key(*path));
    ensure!(
        lost.is_none(),
        "{} is lost",
        lost.expect("just seen").display()
    );
    let more = right.keys().find(|path| !left.contains_key(*path));
    ensure!(
        more.is_none(),
        "{} was never there",
        more.expect("just seen").display()
    );
    for (path, kind) in &left {
        ensure!(
            right.get(path) == Some(kind),
            "{} was {kind:?} and is {:?}",
            path.display(),
            right.get(path)
        );
        if matches!(kind, Kind::File { .. }) {
            let read = |root: &Path| -> Result<Vec<u8>> {
                let mut content = Vec::new();
                let file =
                    File::open(root.join(path)).and_then(|mut file| file.read_to_end(&mut content));
                file.with_context(|| format!("reading {}", root.join(path).display()))?;
                Ok(content)
            };
            ensure!(
                read(one)? == read(other)?,
                "{} has another content",
                path.display()
            );
        }
    }
    Ok(left.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_come_out_the_same_and_every_difference_is_seen() {
        let dir = std::env::temp_dir().join(format!("nacre-show-files-{}", std::process::id()));
        let (one, other) = (dir.join("one"), dir.join("other"));
        let made = make(&one, 120, 0).expect("writable");
        assert_eq!(made, make(&other, 120, 0).expect("writable"));
        assert!(same(&one, &other).expect("the same") > 120);
        let differs = |why: &str| {
            let error = format!("{:#}", same(&one, &other).expect_err("they differ"));
            assert!(error.contains(why), "{error}");
        };
        let folder = other.join("folder 0/ünter-1");
        let whole = fs::read(folder.join("file-63")).expect("there");
        let mut torn = whole.clone();
        *torn.last_mut().expect("not empty") ^= 1;
        fs::write(folder.join("file-63"), torn).expect("writable");
        differs("another content");
        fs::write(folder.join("file-63"), whole).expect("writable");
        fs::set_permissions(folder.join("file-63"), fs::Permissions::from_mode(0o600))
            .expect("ours");
        differs("file-63 was");
        fs::remove_file(folder.join("file-63")).expect("ours");
        differs("is lost");
        fs::write(one.join("folder 0/ünter-1/file-63"), "").expect("writable");
        fs::remove_file(one.join("folder 0/ünter-1/file-63")).expect("ours");
        fs::write(folder.join("stray"), "").expect("writable");
        differs("was never there");
        fs::remove_dir_all(&dir).expect("removable");
    }
}
