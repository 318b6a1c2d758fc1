//! Checks whether an operation is valid at all, independently of the object: every engine answers
//! the same.

use super::client::{
    ATTR_BYTES_MAX, ATTR_NAME_MAX, OBJECT_BYTES_MAX, OMAP_KEY_MAX, OMAP_VALUE_MAX, OP_BYTES_MAX,
    OpFailure, SUB_OPS_MAX, SnapContext, SubOp,
};
use super::lock::{LOCK_DESCRIPTION_MAX, LOCK_NAME_MAX};
use super::meta::MetaCall;
use super::part::{Facts, Looks, Stands};
use super::payload_len;
use super::watch::{NOTIFY_BYTES_MAX, NOTIFY_TIMEOUT_MS, WATCH_TIMEOUT_MS};
use crate::codec::Wire;
use crate::frame::{META_LEN_MAX, PAYLOAD_LEN_MAX};
use crate::measure::{Measure, TooLong};
use bytes::Bytes;
use nacre_types::ObjectId;

/// Limit on a client's bytes besides data. The rest of a frame's section is for what surrounds a
/// request: its numbers, and what a monitor adds when it forwards it.
pub const CLIENT_BYTES_MAX: usize = META_LEN_MAX - (8 << 10);

/// The error for a writing operation that also reads data.
pub const READ_OF_WRITE: &str = "an operation that writes cannot return data; read it in another";

/// Whether the data has the length that the parts announce.
///
/// # Errors
/// [`OpFailure::Invalid`].
pub fn check_payload(ops: &[SubOp], payload: &[Bytes]) -> Result<(), OpFailure> {
    if announced(ops) == payload_len(payload) as u64 {
        return Ok(());
    }
    Err(OpFailure::Invalid {
        why: "the data is longer or shorter than its parts say".to_owned(),
    })
}

fn announced(ops: &[SubOp]) -> u64 {
    ops.iter()
        .fold(0, |sum, op| sum.saturating_add(op.payload_len()))
}

/// Whether an operation can be sent at all. An OSD that cannot decode one ends the connection, and
/// one longer than a frame is never sent: in both cases it is retried until its caller gives up.
///
/// # Errors
/// [`TooLong`] names the part that is too long.
pub fn check_sendable(
    object: &ObjectId,
    ops: &Vec<SubOp>,
    snaps: &SnapContext,
    data: &[Bytes],
) -> Result<(), TooLong> {
    let mut measure = Measure::of("object", object);
    measure.field("ops", ops);
    measure.field("snaps", snaps);
    measure.fits("the operation without its data", CLIENT_BYTES_MAX)?;
    let mut measure = Measure::default();
    data.iter().for_each(|piece| measure.add(piece.len()));
    measure.fits("the operation's data", PAYLOAD_LEN_MAX)
}

/// Bytes of an operation's parts besides data: keys and values of maps, attributes, names. Like
/// data, they stay in memory as long as the operation does.
#[must_use]
pub fn inline_bytes(ops: &[SubOp]) -> u64 {
    let mut measure = Measure::default();
    ops.iter().for_each(|op| op.measure(&mut measure));
    measure.length()
}

/// The same check for a request about metadata.
///
/// # Errors
/// [`TooLong`].
pub fn check_meta_sendable(call: &MetaCall) -> Result<(), TooLong> {
    Measure::of("request", call).fits("the request", CLIENT_BYTES_MAX)
}

/// Checks that counts, lengths and names are within bounds and that the parts may be combined.
///
/// # Errors
/// [`OpFailure::Invalid`] and [`OpFailure::TooLarge`].
pub fn check_operation(ops: &[SubOp], payload: &[Bytes]) -> Result<(), OpFailure> {
    let invalid = |why: &str| {
        Err(OpFailure::Invalid {
            why: why.to_owned(),
        })
    };
    if ops.is_empty() || ops.len() > SUB_OPS_MAX {
        return invalid("an operation has between 1 and 64 parts");
    }
    if announced(ops) > OP_BYTES_MAX {
        return Err(OpFailure::TooLarge {});
    }
    check_payload(ops, payload)?;
    if ops.iter().any(SubOp::is_call) && ops.iter().any(|op| matches!(op, SubOp::Lock { .. })) {
        // A grant's token is the version that the object gets, but a call may be evaluated again
        // after other operations.
        return invalid("a lock is not taken in one operation with a call; take it first");
    }
    // Whether a call writes is not known yet.
    let writes = ops.iter().any(|op| op.is_write() && !op.is_call());
    for (at, op) in ops.iter().enumerate() {
        let facts = op.facts();
        match facts.stands {
            Stands::Alone(why) if ops.len() > 1 => return invalid(why),
            Stands::Last if at + 1 < ops.len() || ops[..at].iter().any(SubOp::is_write) => {
                return invalid(
                    "a rollback or a copy is the last part of its operation, after nothing but guards",
                );
            }
            Stands::Free | Stands::Alone(_) | Stands::Last => {}
        }
        if writes && matches!(op, SubOp::Read { .. }) {
            return invalid(READ_OF_WRITE);
        }
        if is_too_large(op, &facts) {
            return Err(OpFailure::TooLarge {});
        }
        check_claims(op, &facts)?;
    }
    Ok(())
}

fn is_too_large(op: &SubOp, facts: &Facts<'_>) -> bool {
    let value = if let SubOp::SetAttr { value, .. } | SubOp::CompareAttr { value, .. } = op {
        value.len()
    } else {
        0
    };
    let entries = if let SubOp::OmapSet { entries } = op {
        &entries[..]
    } else {
        &[]
    };
    matches!(facts.looks, Looks::Data(_, length) if length > OP_BYTES_MAX)
        || facts.end > OBJECT_BYTES_MAX
        || facts
            .attr
            .is_some_and(|name| name.as_bytes().len() > ATTR_NAME_MAX)
        || value > ATTR_BYTES_MAX
        || entries
            .iter()
            .any(|(key, value)| key.len() > OMAP_KEY_MAX || value.len() > OMAP_VALUE_MAX)
}

/// Checks names, descriptions and times of locks, watches and notifies.
fn check_claims(op: &SubOp, facts: &Facts<'_>) -> Result<(), OpFailure> {
    let invalid = |why: String| Err(OpFailure::Invalid { why });
    if facts
        .lock
        .is_some_and(|name| name.is_empty() || name.as_bytes().len() > LOCK_NAME_MAX)
    {
        return invalid(format!(
            "a lock's name has between 1 and {LOCK_NAME_MAX} bytes"
        ));
    }
    if let SubOp::Lock { description, .. } = op
        && description.len() > LOCK_DESCRIPTION_MAX
    {
        return invalid(format!(
            "a lock's description has at most {LOCK_DESCRIPTION_MAX} bytes"
        ));
    }
    if let SubOp::Notify { length, .. } = op
        && *length > NOTIFY_BYTES_MAX
    {
        return invalid(format!(
            "a notify carries at most {NOTIFY_BYTES_MAX} bytes, not {length}"
        ));
    }
    let within = |what: &str, ms: u32, (min, max): (u32, u32)| {
        if (min..=max).contains(&ms) {
            return Ok(());
        }
        invalid(format!(
            "the timeout of a {what} is between {min} and {max} milliseconds, not {ms}"
        ))
    };
    if let SubOp::Watch { timeout_ms, .. } = op {
        within("watch", *timeout_ms, WATCH_TIMEOUT_MS)?;
    }
    if let SubOp::Notify { timeout_ms, .. } = op {
        within("notify", *timeout_ms, NOTIFY_TIMEOUT_MS)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Frame;
    use crate::msg::Message;
    use crate::msg::client::OpRequest;
    use nacre_types::{Epoch, PgId, PoolId};

    #[test]
    fn what_cannot_stand_together_is_refused() {
        let refused = |ops: &[SubOp]| check_operation(ops, &[]).is_err();
        let (stat, write) = (SubOp::Stat {}, SubOp::Truncate { size: 1 });
        let copy = || SubOp::CopyFrom {
            source: ObjectId::named("a"),
        };
        assert!(!refused(&[stat.clone(), copy()]));
        assert!(
            refused(&[copy(), stat.clone()])
                && refused(&[write, copy()])
                && refused(&[copy(), copy()])
        );
        for alone in [
            SubOp::ReadWhole {},
            SubOp::ListObjects {
                after: Bytes::new(),
                limit: 1,
            },
        ] {
            assert!(!refused(std::slice::from_ref(&alone)) && refused(&[stat.clone(), alone]));
        }
        let lock = |name: &str| SubOp::Unlock {
            name: name.into(),
            cookie: 1,
        };
        assert!(
            !refused(&[lock("n")]) && refused(&[lock("")]) && refused(&[lock(&"n".repeat(201))])
        );
        let watch = |timeout_ms| SubOp::Watch {
            cookie: 1,
            timeout_ms,
        };
        assert!(!refused(&[watch(1000)]) && refused(&[watch(0)]));
    }

    /// 64 MiB of values in one operation were longer than a frame. Nothing was sent, and after 30 s
    /// the caller was told that an OSD had not answered.
    #[test]
    fn what_is_called_sendable_goes_into_a_frame() {
        let operation = |bytes: usize| {
            let value = Bytes::from(vec![0; 1 << 20]);
            let mut entries = vec![(Bytes::from_static(b"k"), value.clone()); bytes >> 20];
            entries.push((Bytes::new(), value.slice(..bytes % (1 << 20))));
            vec![SubOp::OmapSet { entries }]
        };
        let (object, snaps) = (ObjectId::named("a"), SnapContext::default());
        let sendable = |ops: &Vec<SubOp>| check_sendable(&object, ops, &snaps, &[]);
        let longest =
            (CLIENT_BYTES_MAX - 2000..).find(|bytes| sendable(&operation(*bytes)).is_err());
        let longest = longest.expect("there is a bound") - 1;
        let request = OpRequest {
            request: Default::default(),
            pg: PgId::replicated(PoolId(1), 0),
            object: object.clone(),
            ops: operation(longest),
            snaps: snaps.clone(),
            ..OpRequest::default()
        };
        let frame = Frame {
            epoch: Epoch(1),
            message: Message::OpRequest(request, vec![]),
        };
        assert!(
            frame.try_put_front(&mut Vec::new()),
            "an operation with {longest} bytes of values"
        );
        let said = sendable(&operation(longest + 1))
            .expect_err("one byte more")
            .to_string();
        let max = CLIENT_BYTES_MAX;
        assert!(
            said.contains(&format!("{} bytes, and at most {max}", max + 1)),
            "{said}"
        );
        let data = [Bytes::from(vec![0; 1 << 20])];
        let data: Vec<Bytes> = data
            .iter()
            .cycle()
            .take((PAYLOAD_LEN_MAX >> 20) + 1)
            .cloned()
            .collect();
        let said = check_sendable(&object, &vec![], &snaps, &data)
            .expect_err("data over the limit")
            .to_string();
        assert!(
            said.contains("data has 68157440 bytes, and at most 67108864"),
            "{said}"
        );
    }
}
