//! [`Value`]: the value of an index key in memory.
//!
//! ```text
//!  index, log ──bytes──▶ Value::Bytes ──first use──▶ Value::Head ──encoded──▶ log record, checkpoint
//! ```
//! Heads are kept decoded: an overwrite of a warm object changes a few fields of one. They are
//! encoded only for the log, and once per checkpoint for the index.

use super::codec::Put as _;
use super::object::Head;
use bytes::Bytes;
use std::borrow::Cow;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// Encoded as in the index.
    Bytes(Bytes),
    /// The head of an object, and the bytes of its encoding: they are asked for by everything that
    /// keeps or replaces a value.
    Head { head: Arc<Head>, length: usize },
}

impl From<Arc<Head>> for Value {
    fn from(head: Arc<Head>) -> Self {
        let length = head.encoded_len();
        Self::Head { head, length }
    }
}
impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

/// Values are equal if their encodings in the index are.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.encoded() == other.encoded()
    }
}
impl Eq for Value {}

impl Value {
    /// Bytes of its encoding.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Head { length, .. } => *length,
        }
    }

    /// Its encoding in the index.
    pub(crate) fn encoded(&self) -> Cow<'_, Bytes> {
        match self {
            Self::Bytes(bytes) => Cow::Borrowed(bytes),
            Self::Head { head, .. } => Cow::Owned(head.encode()),
        }
    }

    /// Appends its length and its encoding.
    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        match self {
            Self::Bytes(bytes) => out.bytes(bytes),
            Self::Head { head, length } => {
                out.u32(*length as u32);
                let begin = out.len();
                head.encode_into(out);
                debug_assert_eq!(out.len() - begin, *length);
            }
        }
    }

    /// The value of a key that is not a head's.
    pub(crate) fn bytes(&self) -> &Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Head { .. } => panic!("a head under a key of something else"),
        }
    }
}
