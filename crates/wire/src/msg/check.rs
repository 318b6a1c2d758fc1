//! Whether an operation is one at all: what every engine answers, whatever the object.

use super::client::{
    ATTR_BYTES_MAX, ATTR_NAME_MAX, OBJECT_BYTES_MAX, OMAP_KEY_MAX, OMAP_VALUE_MAX, OP_BYTES_MAX, OpFailure,
    SUB_OPS_MAX, SubOp,
};
use super::payload_len;
use bytes::Bytes;

/// What an operation that writes is told when it also reads data.
pub const READ_OF_WRITE: &str = "an operation that writes cannot return data; read it in another";

/// Whether the data is as long as the parts say.
///
/// # Errors
/// [`OpFailure::Invalid`].
pub fn check_payload(ops: &[SubOp], payload: &[Bytes]) -> Result<(), OpFailure> {
    if announced(ops) == payload_len(payload) as u64 {
        return Ok(());
    }
    Err(OpFailure::Invalid { why: "the data is longer or shorter than its parts say".to_owned() })
}

fn announced(ops: &[SubOp]) -> u64 {
    ops.iter().fold(0, |sum, op| sum.saturating_add(op.payload_len()))
}

/// Counts, lengths and names within bounds, parts that can stand together.
///
/// # Errors
/// [`OpFailure::Invalid`] and [`OpFailure::TooLarge`].
pub fn check_operation(ops: &[SubOp], payload: &[Bytes]) -> Result<(), OpFailure> {
    let invalid = |why: &str| Err(OpFailure::Invalid { why: why.to_owned() });
    if ops.is_empty() || ops.len() > SUB_OPS_MAX {
        return invalid("an operation has between 1 and 64 parts");
    }
    if announced(ops) > OP_BYTES_MAX {
        return Err(OpFailure::TooLarge {});
    }
    check_payload(ops, payload)?;
    let calls = ops.iter().any(|op| matches!(op, SubOp::Call { .. } | SubOp::Eval { .. }));
    if calls && ops.iter().any(|op| matches!(op, SubOp::Lock { .. })) {
        // A grant's token is the version that the object gets; a call may be evaluated when others have come before it.
        return invalid("a lock is not taken in one operation with a call; take it first");
    }
    // Of a call nobody knows yet whether it writes.
    let writes = ops.iter().any(|op| op.is_write() && !matches!(op, SubOp::Call { .. } | SubOp::Eval { .. }));
    for op in ops {
        match op {
            SubOp::Read { .. } if writes => return invalid(READ_OF_WRITE),
            SubOp::ListObjects { .. } if ops.len() > 1 => return invalid("a listing stands alone"),
            op if is_too_large(op) => return Err(OpFailure::TooLarge {}),
            _ => {}
        }
    }
    Ok(())
}

fn is_too_large(op: &SubOp) -> bool {
    let range = |offset: u64, length: u64| offset.checked_add(length).is_none_or(|end| end > OBJECT_BYTES_MAX);
    match op {
        SubOp::Read { length, .. } | SubOp::Checksum { length, .. } => *length > OP_BYTES_MAX,
        SubOp::Write { offset, length } | SubOp::Zero { offset, length } | SubOp::CompareData { offset, length } => {
            range(*offset, *length)
        }
        SubOp::Truncate { size } => range(0, *size),
        SubOp::GetAttr { name } | SubOp::RemoveAttr { name } => name.as_bytes().len() > ATTR_NAME_MAX,
        SubOp::SetAttr { name, value } | SubOp::CompareAttr { name, value } => {
            name.as_bytes().len() > ATTR_NAME_MAX || value.len() > ATTR_BYTES_MAX
        }
        SubOp::OmapSet { entries } => {
            entries.iter().any(|(key, value)| key.len() > OMAP_KEY_MAX || value.len() > OMAP_VALUE_MAX)
        }
        _ => false,
    }
}
