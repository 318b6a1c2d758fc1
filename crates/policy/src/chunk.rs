//! The source text of a script, its name and its fingerprint.

use crate::text::{self, Text};
use std::sync::Arc;

/// The Lua dialect a class is written for (DESIGN §4): declared in its head, never guessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// `--!profile luau`, or no declaration: everything that the runtime offers.
    #[default]
    Luau,
    /// `--!profile portable`: runs unchanged as a Lua 5.3 class of Ceph. Calls that behave
    /// differently on Ceph are refused at run time: reading after an own write, output of a writing
    /// call, functions that are not in Ceph's interface.
    Portable,
}

/// A script: cheap to clone, compared by text.
#[derive(Clone, Debug)]
pub struct Chunk {
    name: Arc<str>,
    text: Arc<[u8]>,
    fingerprint: u64,
    profile: Profile,
    counts: Text,
}

impl Chunk {
    /// A script called `name` in messages. Nothing is compiled yet.
    #[must_use]
    pub fn new(name: &str, text: impl AsRef<[u8]>) -> Self {
        let text: Arc<[u8]> = text.as_ref().into();
        let (fingerprint, profile) = (fingerprint(name.as_bytes(), &text), profile(&text));
        Self {
            name: name.into(),
            fingerprint,
            profile,
            counts: text::scan(&text),
            text,
        }
    }
    /// A chunk with a forged fingerprint: a collision without the search for one.
    #[cfg(test)]
    pub(crate) fn colliding(self, with: &Self) -> Self {
        Self {
            fingerprint: with.fingerprint,
            ..self
        }
    }
    /// Name in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Source text.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }
    /// FNV-1a of name and text: the key of the compiled form, and a short version identifier for
    /// people. An attacker could construct a collision, so equality is always decided by the text.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
    /// The work that it could do between two safepoints.
    pub(crate) const fn counts(&self) -> Text {
        self.counts
    }
    /// The profile declared in its head.
    #[must_use]
    pub const fn profile(&self) -> Profile {
        self.profile
    }
}

impl PartialEq for Chunk {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && (Arc::ptr_eq(&self.text, &other.text) || self.text == other.text)
    }
}
impl Eq for Chunk {}

fn fingerprint(name: &[u8], text: &[u8]) -> u64 {
    // A zero byte between them: names contain none.
    name.iter()
        .chain([&0])
        .chain(text)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
}

/// Looks for `--!profile NAME` in the comments and empty lines at the head.
fn profile(text: &[u8]) -> Profile {
    text.split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .take_while(|line| line.is_empty() || line.starts_with(b"--"))
        .find_map(|line| line.strip_prefix(b"--!profile"))
        .map_or(Profile::Luau, |name| {
            if name.trim_ascii() == b"portable" {
                Profile::Portable
            } else {
                Profile::Luau
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_is_said_in_the_head_and_only_there() {
        assert_eq!(
            Chunk::new("a", "-- a class\n\n--!profile portable\nx = 1").profile(),
            Profile::Portable
        );
        assert_eq!(
            Chunk::new("a", "--!profile luau\n--!profile portable").profile(),
            Profile::Luau
        );
        assert_eq!(
            Chunk::new("a", "x = 1\n--!profile portable").profile(),
            Profile::Luau
        );
    }

    #[test]
    fn chunks_with_one_text_and_two_names_are_two() {
        assert_ne!(
            Chunk::new("a", "x").fingerprint(),
            Chunk::new("b", "x").fingerprint()
        );
        assert_ne!(Chunk::new("a", "x"), Chunk::new("b", "x"));
        assert_eq!(Chunk::new("a", "x"), Chunk::new("a", "x"));
    }
}
