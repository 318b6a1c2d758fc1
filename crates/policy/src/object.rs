//! The operations of a class on its object (MAL-21). The host implements them; effects go into the
//! host's transaction.

use crate::error::errno;
use bytes::Bytes;
use nacre_types::Version;

/// Why an operation on the object was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It failed with this errno (positive). A script sees the error value `-errno`, as in Ceph:
    /// `pcall` gives `false, -2`.
    Errno(i32),
    /// The host does not have the data in memory. The call is abandoned, no `pcall` can catch it,
    /// and its effects are dropped; the host fetches the data and runs the call again from its
    /// beginning.
    Wait,
}

/// Size and version of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Bytes of data.
    pub size: u64,
    /// Version before this operation.
    pub version: Version,
    /// Time of the last change, in nanoseconds since 1970, as given by the operation that made it.
    pub modified_ns: u64,
}

/// The class a log line belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// `print`, and levels above 20 of `objclass.log`.
    Debug,
    /// Levels 6 to 20.
    Info,
    /// Levels 1 to 5.
    Warn,
    /// Level 0 and below.
    Error,
}

/// First byte of the names of attributes that describe the data and are removed when it changes.
pub const DERIVED: u8 = b'~';

/// Some pairs of the map, and whether more follow.
pub type Page<T> = (Vec<T>, bool);

/// One object during one call. Reads see the call's own writes, unless the host cannot provide
/// that. A method that fails has changed nothing.
///
/// A missing object is `ENOENT` for `stat`, `read` and `remove`; writes create it. A missing
/// attribute is `ENODATA`, a missing key `ENOENT`.
///
/// An attribute whose name begins with [`DERIVED`] describes the data: every change of the data
/// removes it before the change becomes visible. A class may therefore cache what it computed from
/// the data (`library/classes/checksum.lua`).
pub trait Object {
    /// Whether it exists.
    fn exists(&mut self) -> Result<bool, Stop>;
    /// Size, version and time.
    fn stat(&mut self) -> Result<Stat, Stop>;
    /// Creates it; `EEXIST` if it exists and `exclusive` is set.
    fn create(&mut self, exclusive: bool) -> Result<(), Stop>;
    /// Removes it with its attributes and map.
    fn remove(&mut self) -> Result<(), Stop>;

    /// At most `length` bytes from `offset`; length 0 means up to the end. Short at the end, empty
    /// beyond it.
    fn read(&mut self, offset: u64, length: u64) -> Result<Bytes, Stop>;
    /// Overwrites a range; a gap before `offset` reads as zeros.
    fn write(&mut self, offset: u64, data: Bytes) -> Result<(), Stop>;
    /// Replaces the data.
    fn write_full(&mut self, data: Bytes) -> Result<(), Stop>;
    /// Appends to the data.
    fn append(&mut self, data: Bytes) -> Result<(), Stop>;
    /// Truncates, or extends with zeros.
    fn truncate(&mut self, size: u64) -> Result<(), Stop>;
    /// Writes zeros to a range; never extends the object.
    fn zero(&mut self, offset: u64, length: u64) -> Result<(), Stop>;
    /// CRC32C of a range (seed 0, as RFC 3720 prints it); length 0 means up to the end (MAL-27).
    fn checksum(&mut self, offset: u64, length: u64) -> Result<u32, Stop>;

    /// One attribute.
    fn getxattr(&mut self, name: &[u8]) -> Result<Bytes, Stop>;
    /// All attributes, by name.
    fn getxattrs(&mut self) -> Result<Vec<(Bytes, Bytes)>, Stop>;
    /// Sets an attribute.
    fn setxattr(&mut self, name: &[u8], value: Bytes) -> Result<(), Stop>;
    /// Removes an attribute.
    fn rmxattr(&mut self, name: &[u8]) -> Result<(), Stop>;

    /// One value of the map.
    fn map_get_val(&mut self, key: &[u8]) -> Result<Bytes, Stop>;
    /// At most `max` pairs with keys after `after` that begin with `prefix`, in order.
    fn map_get_vals(
        &mut self,
        after: &[u8],
        prefix: &[u8],
        max: u64,
    ) -> Result<Page<(Bytes, Bytes)>, Stop>;
    /// At most `max` keys after `after`, in order.
    fn map_get_keys(&mut self, after: &[u8], max: u64) -> Result<Page<Bytes>, Stop>;
    /// Sets pairs.
    fn map_set_vals(&mut self, pairs: Vec<(Bytes, Bytes)>) -> Result<(), Stop>;
    /// Removes a key; a missing key is not an error, as in Ceph.
    fn map_remove_key(&mut self, key: &[u8]) -> Result<(), Stop>;
    /// Removes all pairs and the header.
    fn map_clear(&mut self) -> Result<(), Stop>;
    /// The header stored with the map; empty if never written.
    fn map_read_header(&mut self) -> Result<Bytes, Stop>;
    /// Writes the map's header.
    fn map_write_header(&mut self, data: Bytes) -> Result<(), Stop>;

    /// Snapshots of the object, newest first. Unsupported unless the host implements it.
    fn snapshots(&mut self) -> Result<Vec<u64>, Stop> {
        Err(Stop::Errno(errno::EOPNOTSUPP))
    }
    /// Restores the object's content as of a snapshot. Unsupported unless the host implements it.
    fn rollback(&mut self, _snapshot: u64) -> Result<(), Stop> {
        Err(Stop::Errno(errno::EOPNOTSUPP))
    }
}
