//! The short ways of what nearly all operations are: one part that reads data already present, or
//! that replaces or overwrites data.
//!
//! Invariant: the outcome is that of the evaluation part by part (`evaluate.rs`), which is slower
//! because it keeps what each part sees of the ones before. The tests compare both.

use crate::context::Context;
use crate::evaluate::{Outcome, Setting, Update, bounded};
use crate::fetched::{Fetched, Want};
use nacre_policy::DERIVED;
use nacre_wire::Payload;
use nacre_wire::msg::client::{OBJECT_BYTES_MAX, OP_BYTES_MAX, OpRequest, SubOp, SubReply};
use nacre_wire::msg::payload_len;
use nacre_wire::msg::replication::Effect;

/// One part that reads data, or what must be read first; `None` for all other operations.
pub(crate) fn read(
    request: &OpRequest,
    context: &Context,
    fetched: &Fetched,
) -> Option<Result<Outcome, Want>> {
    let [SubOp::Read { offset, length }] = request.ops[..] else {
        return None;
    };
    let end = offset.saturating_add(length).min(context.size);
    if !context.exists || length > OP_BYTES_MAX || offset >= end {
        return None;
    }
    let Some(pieces) = fetched.data(offset, end) else {
        return Some(Err(fetched.want(offset, end, context.size)));
    };
    let length = payload_len(&pieces) as u64;
    Some(Ok(Outcome::Answer {
        failure: None,
        results: vec![SubReply::Data { length }],
        payload: pieces,
    }))
}

/// One part that writes data; `None` for all other operations, and where a write has further
/// effects.
pub(crate) fn write(
    request: &OpRequest,
    payload: &Payload,
    context: &Context,
    setting: &Setting<'_>,
) -> Option<Outcome> {
    let (offset, length, replaces) = match request.ops[..] {
        [SubOp::Write { offset, length }] => (offset, length, false),
        [SubOp::WriteFull { length }] => (0, length, true),
        _ => return None,
    };
    let end = offset.checked_add(length)?;
    // Attributes that describe the data go when it changes.
    let last = context.attrs.last_key_value();
    let is_described = last.is_some_and(|(name, _)| name.as_bytes() >= &[DERIVED][..]);
    if length == 0 || end > OBJECT_BYTES_MAX || context.damaged || is_described {
        return None;
    }
    let shorter = replaces && length < context.size;
    let mut effects = Vec::with_capacity(1 + usize::from(shorter));
    effects.push(Effect::Write { offset, length });
    if shorter {
        effects.push(Effect::Truncate { size: length });
    }
    let size = if replaces { end } else { end.max(context.size) };
    let update = Update {
        effects,
        payload: payload
            .iter()
            .filter(|piece| !piece.is_empty())
            .cloned()
            .collect(),
        context: Context {
            exists: true,
            size,
            ..context.clone()
        },
        results: vec![SubReply::Done {}],
    };
    Some(bounded(update, true, request, setting))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Scene;
    use crate::evaluate::{Brought, NoMethods, evaluate, evaluate_parts};
    use bytes::Bytes;
    use nacre_types::Name;
    use nacre_wire::msg::client::{ATTR_BYTES_MAX, op_flag};
    use nacre_wire::msg::snap::SnapSet;

    fn request(op: SubOp, flags: u32) -> OpRequest {
        OpRequest {
            ops: vec![op],
            flags,
            ..OpRequest::default()
        }
    }

    fn existing(size: u64) -> Context {
        Context {
            exists: true,
            size,
            ..Context::default()
        }
    }

    /// Compares both evaluations; returns what they agree on.
    fn both(
        request: &OpRequest,
        payload: &Payload,
        context: &Context,
        fetched: &Fetched,
        (full, may_write): (bool, bool),
    ) -> String {
        let (scene, brought) = (Scene::default(), Brought::default());
        let setting = Setting {
            full,
            may_write,
            scene: &scene,
            brought: &brought,
        };
        let of = |whole: bool| {
            let how = if whole { evaluate_parts } else { evaluate };
            let fetched = fetched.clone();
            let outcome = how(request, payload, context, fetched, &setting, &mut NoMethods);
            format!("{outcome:?}")
        };
        assert_eq!(of(false), of(true), "{:?} of {context:?}", request.ops);
        of(false)
    }

    #[test]
    fn a_plain_read_is_what_it_is_part_by_part() {
        let data = Bytes::from_static(b"0123456789");
        let fetched = |from: u64, length: u64| {
            let mut fetched = Fetched::default();
            let pieces = vec![data.slice(from as usize..(from + length) as usize)];
            fetched.take(
                Want::Data {
                    offset: from,
                    length,
                },
                Some(nacre_store::ReadReply::Data(pieces)),
            );
            fetched.end_round();
            fetched
        };
        for context in [&existing(10), &existing(0), &Context::default()] {
            for (offset, length) in [
                (0, 10),
                (2, 3),
                (8, 4),
                (9, 0),
                (10, 1),
                (u64::MAX, 1),
                (0, OP_BYTES_MAX + 1),
            ] {
                for fetched in [
                    Fetched::default(),
                    fetched(0, 10),
                    fetched(2, 4),
                    fetched(8, 2),
                ] {
                    let request = request(SubOp::Read { offset, length }, 0);
                    both(&request, &Payload::new(), context, &fetched, (false, false));
                }
            }
        }
    }

    #[test]
    fn a_plain_write_is_what_it_is_part_by_part() {
        let attr = |name: &[u8], length: usize| Context {
            attrs: [(Name::copy(name), Bytes::from(vec![1; length]))].into(),
            ..existing(10)
        };
        let contexts = [
            Context::default(),
            existing(0),
            existing(3),
            existing(10),
            existing(OBJECT_BYTES_MAX),
            attr(b"a", 5),
            attr(b"~", 5),
            attr(b"~sum", 5),
            attr(b"\x7f", 5),
            attr(b"a", ATTR_BYTES_MAX + 1),
            Context {
                damaged: true,
                ..existing(10)
            },
            Context {
                exists: false,
                snaps: SnapSet {
                    whiteout: true,
                    ..SnapSet::default()
                },
                ..Context::default()
            },
        ];
        let pieces = |lengths: &[usize]| -> Payload {
            let piece = |length: &usize| Bytes::from(vec![7; *length]);
            lengths.iter().map(piece).collect()
        };
        let mut short = 0;
        for context in &contexts {
            for lengths in [&[][..], &[3], &[1, 0, 2], &[OP_BYTES_MAX as usize + 1]] {
                let (payload, length) = (pieces(lengths), lengths.iter().sum::<usize>() as u64);
                let write = |offset| SubOp::Write { offset, length };
                let offsets = [
                    0,
                    2,
                    10,
                    20,
                    OBJECT_BYTES_MAX - 3,
                    OBJECT_BYTES_MAX,
                    u64::MAX,
                ];
                let ops = offsets.map(write).into_iter();
                for op in ops.chain([SubOp::WriteFull { length }]) {
                    for (flags, full) in [(0, false), (0, true), (op_flag::FULL_OK, true)] {
                        let request = request(op.clone(), flags);
                        let fetched = Fetched::default();
                        let outcome = both(&request, &payload, context, &fetched, (full, true));
                        short += usize::from(outcome.starts_with("Update"));
                    }
                }
            }
        }
        assert!(short > 100, "{short} of them change something");
    }
}
