//! The attributes under which an object's store keeps what is known of the object
//! (`docs/formats/osd.md`).
//!
//! ```text
//!  _   version and time      u…  clients' attributes     h   header of the omap, for methods
//!  s   snapshots (snaps.rs)  w…  watches (claims)        l…  locks (claims)
//! ```

use bytes::Bytes;
use nacre_types::{Name, Version};
use nacre_wire::Wire;

/// Clients' attributes are stored behind this prefix.
pub const USER_ATTR: &[u8] = b"u";
/// The object attribute that holds the object's version.
pub const VERSION_ATTR: &[u8] = b"_";
/// What methods of classes keep beside an object's omap.
pub const HEADER_ATTR: &[u8] = b"h";

/// The value of [`VERSION_ATTR`]: the version of the last update, and when that was by its client's
/// clock, in milliseconds since 1970.
#[must_use]
pub fn version_value(version: Version, modified_ms: u64) -> Bytes {
    [&version.to_bytes()[..], &modified_ms.to_le_bytes()]
        .concat()
        .into()
}

/// What a value of [`VERSION_ATTR`] says; nothing if it is none.
#[must_use]
pub fn version_of(value: &[u8]) -> (Version, u64) {
    let Some((version, modified)) = value.split_last_chunk::<8>() else {
        return Default::default();
    };
    (
        Version::from_bytes(version).unwrap_or_default(),
        u64::from_le_bytes(*modified),
    )
}

/// The stored name of a client's attribute.
pub(crate) fn stored_attr(name: &Name) -> Name {
    Name::copy(&[USER_ATTR, name.as_bytes()].concat())
}

/// The client's attribute that is stored under this name, if it is one.
#[must_use]
pub fn user_attr(stored: &[u8]) -> Option<Name> {
    stored.strip_prefix(USER_ATTR).map(Name::copy)
}
