//! Computes the encoded length of a value without encoding it, and finds parts that exceed what any
//! reader accepts.
//!
//! A sender checks before it sends. A reader that refuses a frame ends the connection, and with it
//! everything else in flight on it; a sender that resends unanswered requests would end it again
//! and again.
//!
//! Invariant, checked by a property test here and for every golden value in `tests/`: the length
//! equals that of [`Wire::put`]; without a fault, [`Wire::get`] accepts the bytes, provided the
//! value is consistent.

use crate::codec::Wire;
use std::fmt;

/// What is too long, and the limit it exceeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// The path of fields to it, innermost first.
    path: Vec<&'static str>,
    length: u64,
    max: u64,
}
impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, field) in self.path.iter().rev().enumerate() {
            write!(f, "{}{field}", if at == 0 { "" } else { "." })?;
        }
        write!(
            f,
            " has {} bytes, and at most {} can be sent; nothing was sent",
            self.length, self.max
        )
    }
}
impl std::error::Error for TooLong {}

/// See the module head.
#[derive(Clone, Debug, Default)]
pub struct Measure {
    length: u64,
    fault: Option<TooLong>,
}

impl Measure {
    /// Measures one value; `whole` names it in errors.
    #[must_use]
    pub fn of(name: &'static str, value: &impl Wire) -> Self {
        let mut measure = Self::default();
        measure.field(name, value);
        measure
    }
    /// Adds this many bytes.
    #[inline]
    pub const fn add(&mut self, bytes: usize) {
        self.length += bytes as u64;
    }
    /// Adds a byte string with its count; readers accept at most `max` bytes of it.
    #[inline]
    pub fn bounded(&mut self, length: usize, max: usize) {
        self.add(4 + length);
        if length > max && self.fault.is_none() {
            self.fault = Some(TooLong {
                path: Vec::new(),
                length: length as u64,
                max: max as u64,
            });
        }
    }
    /// Adds a named part.
    #[inline]
    pub fn field(&mut self, name: &'static str, value: &impl Wire) {
        self.within(name, |measure| value.measure(measure));
    }
    /// Names whatever is measured inside.
    #[inline]
    pub fn within(&mut self, name: &'static str, inside: impl FnOnce(&mut Self)) {
        let was_whole = self.fault.is_none();
        inside(self);
        if was_whole && let Some(fault) = &mut self.fault {
            fault.path.push(name);
        }
    }
    /// Checks that the whole fits into `max` bytes and that no part is too long.
    ///
    /// # Errors
    /// [`TooLong`].
    pub fn fits(self, whole: &'static str, max: usize) -> Result<(), TooLong> {
        match self.fault {
            Some(fault) => Err(fault),
            None if self.length > max as u64 => Err(TooLong {
                path: vec![whole],
                length: self.length,
                max: max as u64,
            }),
            None => Ok(()),
        }
    }
    /// Bytes measured so far.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::msg::client::SubOp;
    use crate::msg::meta::{MetaOp, MetaSpan};
    use bytes::Bytes;
    use nacre_types::{Name, ObjectId};
    use proptest::prelude::*;

    #[test]
    fn what_is_too_long_is_named_with_the_way_to_it() {
        let long = Name::copy(&[b'x'; Name::LEN_MAX + 1]);
        let call = SubOp::Call {
            class: "c".into(),
            method: long.clone(),
            length: 0,
        };
        let ops = vec![SubOp::Stat {}, call, SubOp::GetAttr { name: long }];
        let said = Measure::of("ops", &ops)
            .fits("the operation", 1 << 20)
            .expect_err("too long")
            .to_string();
        assert_eq!(
            said,
            "ops.Call.method has 2049 bytes, and at most 2048 can be sent; nothing was sent"
        );
        let set = vec![SubOp::OmapSet {
            entries: vec![(Bytes::new(), vec![0; 100].into())],
        }];
        let said = Measure::of("ops", &set)
            .fits("the operation", 100)
            .expect_err("too long")
            .to_string();
        assert_eq!(
            said,
            "the operation has 117 bytes, and at most 100 can be sent; nothing was sent"
        );
    }

    proptest! {
        #[test]
        fn it_is_as_long_as_what_is_written(
            name in proptest::collection::vec(any::<u8>(), 0..3000), values: Vec<(Vec<u8>, Vec<u8>)>, more: Option<u64>,
        ) {
            let entries = values.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
            let (name, span) = (Name::copy(&name), MetaSpan::Key { key: Name::copy(&name) });
            let object = ObjectId { name: name.clone(), ..ObjectId::default() };
            let value = (
                vec![SubOp::OmapSet { entries }, SubOp::CopyFrom { source: object }],
                (more, MetaOp::Delete { span }),
            );
            let (measure, bytes) = (Measure::of("value", &value), value.to_bytes());
            prop_assert_eq!(measure.length(), bytes.len() as u64);
            let read = <(Vec<SubOp>, (Option<u64>, MetaOp))>::from_bytes(&bytes);
            prop_assert_eq!(measure.fits("it", 1 << 20).is_ok(), read.is_ok());
        }
    }
}
