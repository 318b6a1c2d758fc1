//! Object names.

use bytes::Bytes;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A byte string that names something: an object, a namespace, an attribute. Usually UTF-8, but not
/// required to be: file names are not. Cloning shares the bytes. At most [`Name::LEN_MAX`] bytes,
/// checked where names enter.
///
/// Servers keep millions of names, so a name is two words and an allocation of exactly its length.
/// A slice of the message that contained the name would be four words and keep the whole message in
/// memory.
#[derive(Clone, Default)]
pub struct Name(Option<Arc<[u8]>>);

/// Compares the bytes. Most names of an object are empty, and empty ones are not passed to
/// `memcmp`: they have no mapped address, and with AVX-512 `memcmp` reads there under an all-zero
/// mask, which processors handle in microcode. That took a sixth of a small read.
impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => one == other,
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}
impl Eq for Name {}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => one.cmp(other),
            (one, other) => one.is_some().cmp(&other.is_some()),
        }
    }
}
impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Equal, ordered and hashed like its bytes, so that maps by name can be searched by bytes.
impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl Name {
    /// Longest object name, locator key, namespace or attribute name, in bytes.
    pub const LEN_MAX: usize = 2048;

    /// Copies `bytes`.
    #[must_use]
    pub fn copy(bytes: &[u8]) -> Self {
        // The empty name allocates nothing and has a single representation.
        Self((!bytes.is_empty()).then(|| bytes.into()))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Whether it is the empty name.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self::copy(text.as_bytes())
    }
}
impl From<Bytes> for Name {
    fn from(bytes: Bytes) -> Self {
        Self::copy(&bytes)
    }
}

/// Prints readable text; bytes that are not printable UTF-8 as `\xNN`, a backslash as `\\`.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.as_bytes().utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\\' => f.write_str("\\\\")?,
                    c if c.is_control() => {
                        let mut buffer = [0; 4];
                        for byte in c.encode_utf8(&mut buffer).bytes() {
                            write!(f, "\\x{byte:02x}")?;
                        }
                    }
                    c => write!(f, "{c}")?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}
impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// A snapshot of an object; [`SnapId::HEAD`] is the live object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapId(pub u64);

impl SnapId {
    /// The live object.
    pub const HEAD: Self = Self(u64::MAX);
}
impl Default for SnapId {
    fn default() -> Self {
        Self::HEAD
    }
}

/// Distinguishes successive objects with one name where both must exist for a while (erasure coding
/// rolls back to the older one).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

impl Generation {
    /// The only generation in use.
    pub const NONE: Self = Self(u64::MAX);
}
impl Default for Generation {
    fn default() -> Self {
        Self::NONE
    }
}

/// The full name of an object (DESIGN §3). Pool and shard come from the placement group through
/// which it is addressed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// A part of the pool with its own object names; empty is the default namespace.
    pub namespace: Name,
    /// Placement key: hashed instead of `name` when not empty, so that objects can be placed
    /// together.
    pub key: Name,
    /// The name.
    pub name: Name,
    /// The snapshot.
    pub snapshot: SnapId,
    /// The generation.
    pub generation: Generation,
}

impl ObjectId {
    /// The live object `name` in the default namespace.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            name: Name::from(name),
            ..Self::default()
        }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        self.name.fmt(f)?;
        if !self.key.is_empty() {
            write!(f, "@{}", self.key)?;
        }
        if self.snapshot != SnapId::HEAD {
            write!(f, ":{}", self.snapshot.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_compare_as_their_bytes_do() {
        let all: [&[u8]; 8] = [b"", b"\0", b"a", b"a\0", b"aa", b"b", b"\xff", b"\xff\xff"];
        for a in all {
            for b in all {
                let (x, y) = (Name::copy(a), Name::from(Bytes::copy_from_slice(b)));
                assert_eq!(x == y, a == b, "{a:?} {b:?}");
                assert_eq!(x.cmp(&y), a.cmp(b), "{a:?} {b:?}");
                assert_eq!(x.partial_cmp(&y), a.partial_cmp(b), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn names_that_are_not_text_print_unambiguously() {
        let name = Name::copy(b"caf\xc3\xa9 \xff\\x\n");
        assert_eq!(name.to_string(), "café \\xff\\\\x\\x0a");
    }
}
