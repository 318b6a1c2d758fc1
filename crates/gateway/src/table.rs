//! The kernel's table of mounts. Reading it does not involve a file system, so it never waits for
//! one that hangs.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

const TABLE: &str = "/proc/self/mountinfo";
/// The types of Nacre's mounts in the table: those made by `fusermount3`, and those made by root,
/// which are just `fuse`.
const KINDS: [&str; 2] = ["fuse.nacre", "fuse"];
/// Prefix of the source of a Nacre mount, unless it was given another name.
pub(crate) const SOURCE: &str = "nacre:";

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Major and minor number, separated by a colon: unique for each mounted file system.
    pub device: String,
    /// The mount point.
    pub dir: PathBuf,
    /// The file system's type, such as `ext4`.
    pub kind: String,
    /// The source, as named by the file system.
    pub source: String,
}

impl MountEntry {
    /// Whether it is a Nacre file system. A mount with another name is not recognised.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        KINDS.contains(&&*self.kind) && self.source.starts_with(SOURCE)
    }
}

/// All mounts visible to this process; for several at one path the topmost comes last.
#[must_use]
pub fn mounts() -> Vec<MountEntry> {
    let text = std::fs::read(TABLE).unwrap_or_default();
    text.split(|byte| *byte == b'\n')
        .filter_map(entry)
        .collect()
}

/// The mount at an absolute path without symbolic links.
#[must_use]
pub fn mount_at(dir: &Path) -> Option<MountEntry> {
    mounts().into_iter().rfind(|entry| entry.dir == dir)
}

/// `36 35 0:54 / /mnt/my\040files rw,nosuid shared:1 - fuse.nacre nacre:home rw,…`
fn entry(line: &[u8]) -> Option<MountEntry> {
    let mut words = line.split(|byte| *byte == b' ');
    let device = words.nth(2)?;
    let dir = words.nth(1)?;
    // A variable number of optional fields ends with a dash.
    let mut rest = words.skip_while(|word| *word != b"-").skip(1);
    let text = |word: &[u8]| String::from_utf8_lossy(&unescape(word)).into_owned();
    let (kind, source) = (text(rest.next()?), text(rest.next()?));
    Some(MountEntry {
        device: text(device),
        dir: OsString::from_vec(unescape(dir)).into(),
        kind,
        source,
    })
}

/// Escapes a word for the table and for records of mounts: separators become `\` and three octal
/// digits.
#[must_use]
pub fn escape(word: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    word.iter()
        .map(|b| {
            if plain(*b) {
                char::from(*b).to_string()
            } else {
                format!("\\{b:03o}")
            }
        })
        .collect()
}

/// The bytes of such a word.
#[must_use]
pub fn unescape(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, more @ ..] = rest {
        let digits = more
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[3..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_optional_fields_and_escaped_paths() {
        let line = br"36 35 0:54 / /mnt/my\040files rw,nosuid - fuse.nacre nacre:home rw,user_id=0";
        let found = entry(line).expect("a mount");
        assert!(found.is_ours());
        assert_eq!(
            (found.dir.to_str(), &*found.device),
            (Some("/mnt/my files"), "0:54")
        );
        assert_eq!(found.source, "nacre:home");
        let by_root = br"36 35 0:54 / /mnt rw - fuse nacre:home rw,user_id=0";
        assert!(
            entry(by_root).expect("a mount").is_ours(),
            "the kernel does not show the subtype then"
        );
        let other = br"36 35 0:54 / /mnt rw - fuse.sshfs me@there: rw,user_id=0";
        assert!(!entry(other).expect("a mount").is_ours());
        let line = b"22 1 8:1 / / rw shared:1 master:2 - ext4 /dev/sda1 rw";
        let found = entry(line).expect("a mount");
        assert_eq!(
            (&*found.kind, &*found.source, found.is_ours()),
            ("ext4", "/dev/sda1", false)
        );
        assert_eq!(entry(b""), None);
        assert_eq!(
            entry(b"22 1 8:1 / / rw shared:1"),
            None,
            "a line that was cut off"
        );
    }

    #[test]
    fn every_path_comes_back() {
        let all: Vec<u8> = (1..=255).collect();
        assert_eq!(unescape(escape(&all).as_bytes()), all);
        assert!(!escape(&all).contains([' ', '\n']));
        assert_eq!(unescape(br"ends\04"), br"ends\04", "no three digits");
        assert_eq!(unescape(br"\777"), br"\777", "no byte");
    }
}
