//! Encodes values as bytes and decodes them without trusting the input.
//!
//! Integers are little-endian; byte strings and lists follow a 32-bit count. A *record*
//! ([`wire_record!`]) carries its version, the oldest version that can read it, and its length. An
//! older reader therefore skips fields that a newer writer appended, and a newer reader uses
//! defaults for fields that an older writer did not know:
//!
//! ```text
//! | version u8 | compat u8 | length u32 | field | field | …new fields… |
//! ```
//!
//! Invariants, checked by property tests here and golden bytes in `tests/`: decoding an encoded
//! value returns that value; decoding is total (any bytes give a value or [`Malformed`]); no count
//! or length allocates more memory than the bytes received.

use crate::measure::Measure;
use bytes::Bytes;
use nacre_types::{
    ClientId, ClusterId, Entity, Epoch, Frag, Generation, Ino, Instance, MonId, Name, ObjectId,
    OsdId, PgId, PoolId, Shard, SnapId, Version,
};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Why bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes end inside the named type.
    Truncated(&'static str),
    /// A count or length exceeds the bytes present.
    Length(&'static str),
    /// A tag that this version does not know.
    Tag(&'static str, u32),
    /// Text that is not UTF-8, a flag that is neither 0 nor 1, keys out of order.
    Value(&'static str),
    /// Written by a newer version that declares this one unable to read it: `needs` > `knows`.
    TooNew {
        /// The record's name.
        what: &'static str,
        /// The oldest version that can read it.
        needs: u8,
        /// The version this program knows.
        knows: u8,
    },
    /// Bytes are left over after a value that must fill its space.
    Trailing(&'static str),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated(what) => write!(f, "the bytes end inside a {what}"),
            Self::Length(what) => {
                write!(f, "the length of a {what} exceeds the bytes that are there")
            }
            Self::Tag(what, tag) => {
                write!(f, "unknown kind {tag} of {what}; a newer version wrote it")
            }
            Self::Value(what) => write!(f, "not a valid {what}"),
            Self::TooNew { what, needs, knows } => {
                write!(
                    f,
                    "this {what} needs version {needs}, this program knows {knows}: upgrade it"
                )
            }
            Self::Trailing(what) => write!(f, "bytes left over after a {what}"),
        }
    }
}
impl std::error::Error for Malformed {}

/// The bytes not decoded yet.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    #[must_use]
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
    /// The number of bytes left.
    #[must_use]
    #[inline]
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }
    /// The next `n` bytes.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] when there are fewer.
    #[inline]
    pub fn take(&mut self, n: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        if n > self.rest.len() {
            return Err(Malformed::Truncated(what));
        }
        let (head, rest) = self.rest.split_at(n);
        self.rest = rest;
        Ok(head)
    }
    /// Reads a count of items that take at least one byte each.
    ///
    /// # Errors
    /// [`Malformed::Length`] when the remaining bytes cannot hold that many items.
    #[inline]
    pub fn count(&mut self, what: &'static str) -> Result<usize, Malformed> {
        let n = u32::get(self)? as usize;
        if n > self.rest.len() {
            Err(Malformed::Length(what))
        } else {
            Ok(n)
        }
    }
    /// Finishes decoding.
    ///
    /// # Errors
    /// [`Malformed::Trailing`] when bytes are left.
    #[inline]
    pub const fn finish(self, what: &'static str) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed::Trailing(what))
        }
    }
}

/// A value with an encoding.
pub trait Wire: Sized {
    /// Appends the encoding to `out`.
    fn put(&self, out: &mut Vec<u8>);
    /// Decodes one value.
    ///
    /// # Errors
    /// [`Malformed`]; the reader's position is then unspecified.
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed>;
    /// Adds the length that [`Self::put`] would write, and records any part too long for
    /// [`Self::get`] to accept.
    fn measure(&self, into: &mut Measure);

    /// Encodes the value alone.
    fn to_bytes(&self) -> Vec<u8> {
        // Most records take a few hundred bytes; growing there from an empty vector would cost more
        // than the encoding.
        let mut out = Vec::with_capacity(256);
        self.put(&mut out);
        out
    }
    /// Decodes a value that must fill `bytes` exactly.
    ///
    /// # Errors
    /// [`Malformed`].
    fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let value = Self::get(&mut reader)?;
        reader.finish("value")?;
        Ok(value)
    }
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl Wire for $t {
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            #[inline]
            fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
                let bytes = from.take(size_of::<$t>(), stringify!($t))?;
                Ok(<$t>::from_le_bytes(bytes.try_into().expect("took exactly this many")))
            }
            #[inline]
            fn measure(&self, into: &mut Measure) {
                into.add(size_of::<$t>());
            }
        }
    )*};
}
integers!(u8, u16, u32, u64, u128, i32, i64);

macro_rules! wrappers {
    ($($t:ident),*) => {$(
        impl Wire for $t {
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            #[inline]
            fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
                Ok(Self(Wire::get(from)?))
            }
            #[inline]
            fn measure(&self, into: &mut Measure) {
                self.0.measure(into);
            }
        }
    )*};
}
wrappers!(
    ClientId, ClusterId, Epoch, Generation, Ino, Instance, MonId, OsdId, PoolId, Shard, SnapId
);

impl Wire for Frag {
    fn put(&self, out: &mut Vec<u8>) {
        self.parts().put(out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (bits, value) = Wire::get(from)?;
        Self::new(bits, value).ok_or(Malformed::Value("fragment"))
    }
    fn measure(&self, into: &mut Measure) {
        self.parts().measure(into);
    }
}

impl Wire for bool {
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }
    #[inline]
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        match u8::get(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Value("flag")),
        }
    }
    #[inline]
    fn measure(&self, into: &mut Measure) {
        into.add(1);
    }
}

#[inline]
fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    u32::try_from(bytes.len())
        .expect("byte strings are bounded far below 4 GiB where they enter")
        .put(out);
    out.extend_from_slice(bytes);
}

impl Wire for Bytes {
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self, out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let n = from.count("byte string")?;
        Ok(Self::copy_from_slice(from.take(n, "byte string")?))
    }
    #[inline]
    fn measure(&self, into: &mut Measure) {
        into.add(4 + self.len());
    }
}
impl Wire for Name {
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self.as_bytes(), out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let n = from.count("name")?;
        if n > Self::LEN_MAX {
            return Err(Malformed::Length("name"));
        }
        Ok(Self::copy(from.take(n, "name")?))
    }
    #[inline]
    fn measure(&self, into: &mut Measure) {
        into.bounded(self.as_bytes().len(), Self::LEN_MAX);
    }
}
impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self.as_bytes(), out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let n = from.count("text")?;
        let bytes = from.take(n, "text")?;
        std::str::from_utf8(bytes)
            .map(str::to_owned)
            .map_err(|_| Malformed::Value("text"))
    }
    #[inline]
    fn measure(&self, into: &mut Measure) {
        into.add(4 + self.len());
    }
}
impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(if bool::get(from)? {
            Some(T::get(from)?)
        } else {
            None
        })
    }
    fn measure(&self, into: &mut Measure) {
        into.add(1);
        if let Some(value) = self {
            value.measure(into);
        }
    }
}
impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        u32::try_from(self.len())
            .expect("lists are bounded far below 2^32 where they are made")
            .put(out);
        for value in self {
            value.put(out);
        }
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let n = from.count("list")?;
        // `push` does the rest of the growing: a count never reserves memory that the bytes do not
        // back.
        let mut list = Self::with_capacity(n.min(256));
        for _ in 0..n {
            list.push(T::get(from)?);
        }
        Ok(list)
    }
    fn measure(&self, into: &mut Measure) {
        into.add(4);
        self.iter().for_each(|value| value.measure(into));
    }
}
impl<K: Wire + Ord, V: Wire> Wire for BTreeMap<K, V> {
    fn put(&self, out: &mut Vec<u8>) {
        u32::try_from(self.len())
            .expect("maps are bounded far below 2^32 where they are made")
            .put(out);
        for (key, value) in self {
            key.put(out);
            value.put(out);
        }
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let n = from.count("map")?;
        let mut map = Self::new();
        for _ in 0..n {
            let key = K::get(from)?;
            // Each map has exactly one encoding: digests and replay depend on it.
            if map.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(Malformed::Value("map (keys out of order)"));
            }
            map.insert(key, V::get(from)?);
        }
        Ok(map)
    }
    fn measure(&self, into: &mut Measure) {
        into.add(4);
        for (key, value) in self {
            key.measure(into);
            value.measure(into);
        }
    }
}
/// A shared value: encoded like the value itself.
impl<T: Wire> Wire for Arc<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        T::get(from).map(Self::new)
    }
    fn measure(&self, into: &mut Measure) {
        (**self).measure(into);
    }
}
impl<T: Wire> Wire for Box<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        T::get(from).map(Self::new)
    }
    fn measure(&self, into: &mut Measure) {
        (**self).measure(into);
    }
}
impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok((A::get(from)?, B::get(from)?))
    }
    fn measure(&self, into: &mut Measure) {
        self.0.measure(into);
        self.1.measure(into);
    }
}

/// A struct whose encoding never changes (or changes only with its enclosing record): its fields in
/// order.
#[macro_export]
macro_rules! wire_fields {
    ($t:ident { $($field:ident),* $(,)? }) => {
        impl $crate::codec::Wire for $t {
            fn put(&self, out: &mut Vec<u8>) {
                $( $crate::codec::Wire::put(&self.$field, out); )*
            }
            fn get(from: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::Malformed> {
                Ok(Self { $( $field: $crate::codec::Wire::get(from)?, )* })
            }
            fn measure(&self, into: &mut $crate::measure::Measure) {
                $( into.field(stringify!($field), &self.$field); )*
            }
        }
    };
}

/// A struct that may grow: see the module head. `since N { … }` lists the fields that version N
/// added; they take their defaults when an older writer's record is read. `verify method` names a
/// method that returns what is wrong with a decoded value, if anything; such a value is refused.
#[macro_export]
macro_rules! wire_record {
    ($t:ident version $version:literal compat $compat:literal { $($field:ident),* $(,)? } $(since $n:literal { $($newer:ident),* $(,)? })* $(verify $verify:ident)?) => {
        impl $crate::codec::Wire for $t {
            fn put(&self, out: &mut Vec<u8>) {
                let at = out.len() + 2;
                out.extend_from_slice(&[$version, $compat, 0, 0, 0, 0]);
                $( $crate::codec::Wire::put(&self.$field, out); )*
                $( $( $crate::codec::Wire::put(&self.$newer, out); )* )*
                let length = u32::try_from(out.len() - at - 4).expect("records are bounded far below 4 GiB");
                out[at..at + 4].copy_from_slice(&length.to_le_bytes());
            }
            fn get(from: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::Malformed> {
                let version = <u8 as $crate::codec::Wire>::get(from)?;
                let compat = <u8 as $crate::codec::Wire>::get(from)?;
                if compat > $version {
                    return Err($crate::codec::Malformed::TooNew { what: stringify!($t), needs: compat, knows: $version });
                }
                let length = from.count(stringify!($t))?;
                let mut inner = $crate::codec::Reader::new(from.take(length, stringify!($t))?);
                let record = Self {
                    $( $field: $crate::codec::Wire::get(&mut inner)?, )*
                    $( $( $newer: if version >= $n { $crate::codec::Wire::get(&mut inner)? } else { Default::default() }, )* )*
                };
                // Left-over bytes are allowed only for a newer version: they are its new fields.
                if version <= $version {
                    inner.finish(stringify!($t))?;
                }
                $(
                    if record.$verify().is_some() {
                        return Err($crate::codec::Malformed::Value(stringify!($t)));
                    }
                )?
                Ok(record)
            }
            fn measure(&self, into: &mut $crate::measure::Measure) {
                into.add(6);
                $( into.field(stringify!($field), &self.$field); )*
                $( $( into.field(stringify!($newer), &self.$newer); )* )*
            }
        }
    };
}

/// An enum of struct-like variants, encoded behind a one-byte tag. Tags are never reused.
/// `VARIANTS` lists all variants, so that golden tests cannot miss a new one.
#[macro_export]
macro_rules! wire_enum {
    ($t:ident { $($tag:literal => $variant:ident { $($field:ident),* $(,)? }),* $(,)? }) => {
        impl $t {
            /// Each tag with its variant's name.
            pub const VARIANTS: &'static [(u8, &'static str)] = &[$( ($tag, stringify!($variant)), )*];
        }
        impl $crate::codec::Wire for $t {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $( Self::$variant { $($field),* } => {
                        out.push($tag);
                        $( $crate::codec::Wire::put($field, out); )*
                    } )*
                }
            }
            fn get(from: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::Malformed> {
                match <u8 as $crate::codec::Wire>::get(from)? {
                    $( $tag => Ok(Self::$variant { $( $field: $crate::codec::Wire::get(from)?, )* }), )*
                    tag => Err($crate::codec::Malformed::Tag(stringify!($t), u32::from(tag))),
                }
            }
            fn measure(&self, into: &mut $crate::measure::Measure) {
                match self {
                    $( Self::$variant { $($field),* } => into.within(stringify!($variant), |into| {
                        into.add(1);
                        $( into.field(stringify!($field), $field); )*
                    }), )*
                }
            }
        }
    };
}

impl Wire for Version {
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        self.interval.put(out);
        self.number.put(out);
    }
    #[inline]
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            interval: Wire::get(from)?,
            number: Wire::get(from)?,
        })
    }
    #[inline]
    fn measure(&self, into: &mut Measure) {
        self.interval.measure(into);
        self.number.measure(into);
    }
}
impl Wire for PgId {
    fn put(&self, out: &mut Vec<u8>) {
        self.pool.put(out);
        self.seed.put(out);
        self.shard.put(out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            pool: Wire::get(from)?,
            seed: Wire::get(from)?,
            shard: Wire::get(from)?,
        })
    }
    fn measure(&self, into: &mut Measure) {
        self.pool.measure(into);
        self.seed.measure(into);
        self.shard.measure(into);
    }
}
impl Wire for ObjectId {
    fn put(&self, out: &mut Vec<u8>) {
        self.namespace.put(out);
        self.key.put(out);
        self.name.put(out);
        self.snapshot.put(out);
        self.generation.put(out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            namespace: Wire::get(from)?,
            key: Wire::get(from)?,
            name: Wire::get(from)?,
            snapshot: Wire::get(from)?,
            generation: Wire::get(from)?,
        })
    }
    fn measure(&self, into: &mut Measure) {
        into.field("namespace", &self.namespace);
        into.field("key", &self.key);
        into.field("name", &self.name);
        self.snapshot.measure(into);
        self.generation.measure(into);
    }
}
impl Wire for Entity {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Mon(id) => {
                out.push(1);
                u64::from(id.0).put(out);
            }
            Self::Osd(id) => {
                out.push(2);
                u64::from(id.0).put(out);
            }
            Self::Client(id) => {
                out.push(3);
                id.0.put(out);
            }
        }
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let tag = u8::get(from)?;
        let id = u64::get(from)?;
        let small = || u32::try_from(id).map_err(|_| Malformed::Value("daemon id"));
        match tag {
            1 => Ok(Self::Mon(MonId(small()?))),
            2 => Ok(Self::Osd(OsdId(small()?))),
            3 => Ok(Self::Client(ClientId(id))),
            tag => Err(Malformed::Tag("entity", u32::from(tag))),
        }
    }
    fn measure(&self, into: &mut Measure) {
        // The entity's kind and a number.
        into.add(9);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, PartialEq)]
    struct Old {
        a: u32,
        b: Name,
    }
    wire_record!(Old version 1 compat 1 { a, b });
    #[derive(Debug, PartialEq)]
    struct New {
        a: u32,
        b: Name,
        c: Vec<u64>,
    }
    wire_record!(New version 2 compat 1 { a, b } since 2 { c });
    #[derive(Debug, PartialEq)]
    struct Breaking {
        a: u32,
    }
    wire_record!(Breaking version 3 compat 3 { a });

    #[test]
    fn old_and_new_versions_read_each_other_until_a_version_says_no() {
        let new = New {
            a: 7,
            b: "x".into(),
            c: vec![1, 2],
        };
        assert_eq!(
            Old::from_bytes(&new.to_bytes()),
            Ok(Old {
                a: 7,
                b: "x".into()
            })
        );
        let old = Old {
            a: 7,
            b: "x".into(),
        };
        assert_eq!(
            New::from_bytes(&old.to_bytes()),
            Ok(New {
                a: 7,
                b: "x".into(),
                c: vec![]
            })
        );
        let refused = Old::from_bytes(&Breaking { a: 1 }.to_bytes());
        assert_eq!(
            refused,
            Err(Malformed::TooNew {
                what: "Old",
                needs: 3,
                knows: 1
            })
        );
    }

    #[test]
    fn a_length_is_never_trusted() {
        // Announces 4 billion elements but has four bytes: must neither reserve nor panic.
        assert_eq!(
            Vec::<u64>::from_bytes(&[0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4]),
            Err(Malformed::Length("list"))
        );
        assert_eq!(
            Bytes::from_bytes(&[9, 0, 0, 0, 1]),
            Err(Malformed::Length("byte string"))
        );
    }

    proptest! {
        #[test]
        fn decoding_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = New::from_bytes(&bytes);
            let _ = ObjectId::from_bytes(&bytes);
            let _ = BTreeMap::<Name, Bytes>::from_bytes(&bytes);
        }

        #[test]
        fn what_is_written_reads_back(a: u32, b: Vec<u8>, c: Vec<u64>, map: BTreeMap<u64, Vec<u32>>) {
            let new = New { a, b: Name::copy(&b[..b.len().min(100)]), c };
            prop_assert_eq!(New::from_bytes(&new.to_bytes()), Ok(new));
            prop_assert_eq!(BTreeMap::from_bytes(&map.to_bytes()), Ok(map));
        }
    }
}
