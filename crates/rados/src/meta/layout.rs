//! Names of the omap's entries.
//!
//! They are human-readable in listings (`rados listomapkeys`), sort like what they name, and
//! contain no zero byte: see [`crate::keys`].

use crate::keys::escape;
use bytes::Bytes;
use nacre_types::Name;

/// The entry that is read first.
pub const HEAD: &[u8] = b"head";
/// Keys: `key/NAMESPACE/NAME`.
pub const KEYS: &[u8] = b"key/";
/// Leases: `lease/` and 16 hexadecimal digits.
pub const LEASES: &[u8] = b"lease/";
/// Keys attached to leases: `held/`, 16 hexadecimal digits, `/` and the key.
pub const HELD: &[u8] = b"held/";
/// Changes: `log/` and 16 hexadecimal digits.
pub const LOG: &[u8] = b"log/";

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// [`HEAD`].
    Head,
    /// A key.
    Key(Name),
    /// A lease.
    Lease(u64),
    /// A key attached to a lease.
    Held(u64, Name),
    /// A revision's changes.
    Log(u64),
}

fn plain(stored: &[u8]) -> Option<Name> {
    crate::keys::plain(stored).map(|name| Name::copy(&name))
}

fn number(digits: &[u8]) -> Option<u64> {
    let lower = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let digits = std::str::from_utf8(digits)
        .ok()
        .filter(|text| text.len() == 16 && text.bytes().all(|b| lower(&b)))?;
    u64::from_str_radix(digits, 16).ok()
}

/// The entry of a key.
#[must_use]
pub fn key(name: &Name) -> Bytes {
    let mut entry = KEYS.to_vec();
    escape(name.as_bytes(), &mut entry);
    entry.into()
}
/// The entry of a lease.
#[must_use]
pub fn lease(lease: u64) -> Bytes {
    [LEASES, format!("{lease:016x}").as_bytes()].concat().into()
}
/// The prefix of the entries of a lease's keys.
#[must_use]
pub fn all_held(lease: u64) -> Bytes {
    [HELD, format!("{lease:016x}/").as_bytes()].concat().into()
}
/// The entry of a lease's key.
#[must_use]
pub fn held(lease: u64, name: &Name) -> Bytes {
    let mut entry = all_held(lease).to_vec();
    escape(name.as_bytes(), &mut entry);
    entry.into()
}
/// The entry of a revision's changes.
#[must_use]
pub fn log(revision: u64) -> Bytes {
    [LOG, format!("{revision:016x}").as_bytes()].concat().into()
}

/// Parses an entry's name; `None`: it is none of ours.
#[must_use]
pub fn place(entry: &[u8]) -> Option<Place> {
    if entry == HEAD {
        return Some(Place::Head);
    }
    if let Some(name) = entry.strip_prefix(KEYS) {
        return plain(name).map(Place::Key);
    }
    if let Some(digits) = entry.strip_prefix(LEASES) {
        return number(digits).map(Place::Lease);
    }
    if let Some(digits) = entry.strip_prefix(LOG) {
        return number(digits).map(Place::Log);
    }
    let (digits, name) = entry.strip_prefix(HELD)?.split_at_checked(16)?;
    Some(Place::Held(
        number(digits)?,
        plain(name.strip_prefix(b"/")?)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Fails without the escape of byte 1: `a\x01` and `a\0\x01` would change places.
    #[test]
    fn entries_sort_as_what_they_name_and_read_back() {
        let names: Vec<Name> = [
            &b"a"[..],
            b"a\0",
            b"a\0\0",
            b"a\0\x01",
            b"a\0\x02",
            b"a\0b",
            b"a\x01",
            b"a\x01\0",
            b"a\x01\x01",
            b"a\x01\x02",
            b"a\x02",
            b"a/b",
            b"ab",
            b"\xff\xff",
        ]
        .iter()
        .map(|name| Name::copy(name))
        .collect();
        for two in names.windows(2) {
            assert!(
                two[0] < two[1] && key(&two[0]) < key(&two[1]),
                "{} {}",
                two[0],
                two[1]
            );
            assert!(held(7, &two[0]) < held(7, &two[1]));
        }
        for name in names {
            assert!(!key(&name).contains(&0));
            assert_eq!(place(&key(&name)), Some(Place::Key(name.clone())));
            assert_eq!(place(&held(9, &name)), Some(Place::Held(9, name)));
        }
        assert!(log(9) < log(10) && log(255) < log(256) && lease(15) < lease(16));
        assert_eq!(place(&log(0xabcd)), Some(Place::Log(0xabcd)));
        assert_eq!(place(&lease(u64::MAX)), Some(Place::Lease(u64::MAX)));
        assert_eq!(place(HEAD), Some(Place::Head));
    }

    #[test]
    fn what_is_not_ours_is_nothing() {
        for foreign in [
            &b""[..],
            b"header",
            b"key/\x01",
            b"key/a\x01\x03",
            b"key/a\0",
            b"log/1",
            b"log/00000000000000AB",
            b"held/00",
            b"lease/",
        ] {
            assert_eq!(place(foreign), None, "{foreign:?}");
        }
    }
}
