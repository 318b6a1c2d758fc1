//! Input and output values of scripts.

use bytes::Bytes;
use std::collections::BTreeMap;

/// The largest integer that Lua represents exactly and to which no larger one is rounded: 2^53 - 1.
/// (2^53 + 1 is rounded to 2^53.)
pub const INTEGER_MAX: i64 = (1 << 53) - 1;

/// A value without identity: the same bytes in every process.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    Nil,
    /// A Boolean.
    Bool(bool),
    /// Exact, within ±[`INTEGER_MAX`]; beyond it is refused in both directions. A Lua number
    /// without a fraction is returned as this.
    Integer(i64),
    /// Any other number, including NaN and infinities: callers that cannot use them must check.
    Number(f64),
    /// A string or a bufferlist.
    Bytes(Bytes),
    /// A table with keys 1 to n. An empty table is returned as an empty list.
    List(Vec<Value>),
    /// A table with string keys. Integer keys are returned as their decimal text, only in a table
    /// that also has string keys.
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
