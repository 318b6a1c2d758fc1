//! Keys of the index: one ordered key space.
//!
//! ```text
//! 01                              state: epoch, log position, next object number
//! 02 collection                   collection: object count
//! 03 group(u32)                   allocation bitmap of 4096 units
//! 04 group(u64)                   reference counts above 1 of 256 units
//! 05                              bytes of keys and values of all records but 01 and 05
//! 06 key…                         first key of a range still to be removed; value: first key kept
//! 07 number(u64)                  an omap is being copied under this number: nothing refers to it yet
//! 10 collection(u64) key…         object head: size, attributes, inline data, first shard
//! 11 number(u64) shard(u32)       blocks of one further shard (128 KiB of data)
//! 12 number(u64) key…             omap entry
//! ```
//! An object's *number* is fixed for its lifetime and never reused; a rename moves only the head.

use crate::api::{CollectionId, ObjectKey};
use bytes::Bytes;
use smallvec::SmallVec;

pub(crate) const STATE: &[u8] = &[1];
pub(crate) const TAG_COLLECTION: u8 = 2;
pub(crate) const TAG_BITMAP: u8 = 3;
pub(crate) const TAG_REFERENCES: u8 = 4;
pub(crate) const INDEX_BYTES: &[u8] = &[5];
pub(crate) const TAG_LEFTOVER: u8 = 6;
pub(crate) const TAG_FILLING: u8 = 7;
pub(crate) const TAG_HEAD: u8 = 0x10;
pub(crate) const TAG_SHARD: u8 = 0x11;
pub(crate) const TAG_OMAP: u8 = 0x12;

/// Bytes of tag and number, before the key in an omap.
pub(crate) const PREFIX: usize = 9;

/// A key in a table in memory; that of an object with a name of usual length is in place.
pub(crate) type InPlace = SmallVec<[u8; 64]>;

fn tagged(tag: u8, number: u64, rest: &[u8]) -> Bytes {
    let mut key = Vec::with_capacity(PREFIX + rest.len());
    key.push(tag);
    key.extend_from_slice(&number.to_be_bytes());
    key.extend_from_slice(rest);
    Bytes::from(key)
}

pub(crate) fn collection(id: CollectionId) -> Bytes {
    tagged(TAG_COLLECTION, id.0, &[])
}
pub(crate) fn bitmap(group: u32) -> Bytes {
    let mut key = Vec::with_capacity(5);
    key.push(TAG_BITMAP);
    key.extend_from_slice(&group.to_be_bytes());
    Bytes::from(key)
}
pub(crate) fn references(group: u64) -> Bytes {
    tagged(TAG_REFERENCES, group, &[])
}
pub(crate) fn leftover(from: &[u8]) -> Bytes {
    Bytes::from([&[TAG_LEFTOVER], from].concat())
}
pub(crate) fn filling(number: u64) -> Bytes {
    tagged(TAG_FILLING, number, &[])
}
pub(crate) fn head(object: &ObjectKey) -> Bytes {
    head_parts(object.collection, &object.key)
}
pub(crate) fn is_head(key: &[u8]) -> bool {
    key.first() == Some(&TAG_HEAD)
}
/// The same key, for one look-up.
pub(crate) fn head_on_stack(object: &ObjectKey) -> SmallVec<[u8; 96]> {
    let mut key = SmallVec::new();
    key.push(TAG_HEAD);
    key.extend_from_slice(&object.collection.0.to_be_bytes());
    key.extend_from_slice(&object.key);
    key
}
pub(crate) fn head_parts(collection: CollectionId, key: &[u8]) -> Bytes {
    tagged(TAG_HEAD, collection.0, key)
}
pub(crate) fn shard(number: u64, shard: u32) -> Bytes {
    tagged(TAG_SHARD, number, &shard.to_be_bytes())
}
pub(crate) fn omap(number: u64, key: &[u8]) -> Bytes {
    tagged(TAG_OMAP, number, key)
}
/// The first key after all that start with `tag` and `number`.
pub(crate) fn end(tag: u8, number: u64) -> Bytes {
    match number.checked_add(1) {
        Some(next) => tagged(tag, next, &[]),
        None => Bytes::copy_from_slice(&[tag + 1]),
    }
}
/// The contribution of a record to `INDEX_BYTES`.
pub(crate) fn weight(key: &[u8], value_length: usize) -> u64 {
    if key == STATE || key == INDEX_BYTES {
        0
    } else {
        (key.len() + value_length) as u64
    }
}
/// The part of a key after tag and number.
pub(crate) fn rest(key: &Bytes) -> Bytes {
    key.slice(9..)
}
/// The number after the tag.
pub(crate) fn number(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(
        key.get(1..9)?.try_into().expect("eight bytes were taken"),
    ))
}
/// The number in the key of an omap's entry.
pub(crate) fn omap_number(key: &[u8]) -> Option<u64> {
    if key.first() == Some(&TAG_OMAP) {
        number(key)
    } else {
        None
    }
}
/// The shard in a shard's key.
pub(crate) fn shard_number(key: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(
        key.get(9..13)?.try_into().expect("four bytes were taken"),
    ))
}
/// The allocation group in a bitmap's key.
pub(crate) fn bitmap_group(key: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(
        key.get(1..5)?.try_into().expect("four bytes were taken"),
    ))
}
