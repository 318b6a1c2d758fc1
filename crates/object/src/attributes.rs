//! The attributes in which a store keeps an object's metadata (`docs/formats/osd.md`).
//!
//! ```text
//!  _   version and time      u…  clients' attributes     h   header of the omap, for methods
//!  s   snapshots (snaps.rs)  w…  watches (claims)        l…  locks (claims)
//! ```

use bytes::Bytes;
use nacre_types::{Name, Version};
use nacre_wire::Wire;

/// Prefix of stored client attributes.
pub const USER_ATTR: &[u8] = b"u";
/// The attribute with the object's version.
pub const VERSION_ATTR: &[u8] = b"_";
/// The header that class methods keep in addition to an object's omap.
pub const HEADER_ATTR: &[u8] = b"h";

/// The value of [`VERSION_ATTR`]: the version of the last update, and its time by its client's
/// clock, in milliseconds since 1970.
#[must_use]
pub fn version_value(version: Version, modified_ms: u64) -> Bytes {
    [&version.to_bytes()[..], &modified_ms.to_le_bytes()]
        .concat()
        .into()
}

/// Decodes a value of [`VERSION_ATTR`]; `None` if it is none.
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

/// The client's name for a stored attribute, if it is a client's.
#[must_use]
pub fn user_attr(stored: &[u8]) -> Option<Name> {
    stored.strip_prefix(USER_ATTR).map(Name::copy)
}
