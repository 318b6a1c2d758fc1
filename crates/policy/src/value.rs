//! Values that go into and come out of scripts.

use bytes::Bytes;
use std::collections::BTreeMap;

/// Largest integer that Lua carries exactly and that no larger one is rounded to: 2^53 - 1. (2^53
/// is what 2^53 + 1 becomes.)
pub const INTEGER_MAX: i64 = (1 << 53) - 1;

/// A value without identity: the same bytes in every process.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    Nil,
    /// A truth value.
    Bool(bool),
    /// Exact, within ±[`INTEGER_MAX`]; beyond it is refused in both directions. A Lua number
    /// without a fraction comes out as this.
    Integer(i64),
    /// Any other number, NaN and infinities included: who wants none, checks.
    Number(f64),
    /// A string or a bufferlist.
    Bytes(Bytes),
    /// A table with keys 1 to n. An empty table comes out as an empty list.
    List(Vec<Value>),
    /// A table with string keys. Integer keys come out as their decimal text only in a table that
    /// has string keys too.
    Map(BTreeMap<Bytes, Value>),
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}
impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}
impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}
impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Bytes(Bytes::copy_from_slice(value.as_bytes()))
    }
}
