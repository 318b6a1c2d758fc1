//! The expected content of an object: a model in memory, changed like the object in the cluster.

use crate::objects::{Ended, Failed, operation};
use anyhow::{Result, bail};
use bytes::Bytes;
use nacre_client::Operation;
use nacre_types::{Name, ObjectId, PoolId, SplitMix64};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use std::collections::BTreeMap;

/// Maximum size of an object of a ledger.
pub const SIZE_MAX: u64 = 1 << 20;
/// Keys of an object's omap, besides the counter.
const KEYS: u64 = 8;
/// The key of the counter of the class `tally`.
const COUNTER: &[u8] = b"counter";
const ATTR: &str = "mark";

/// An object's content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Its data.
    pub data: Vec<u8>,
    /// Its omap.
    pub omap: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Its attribute.
    pub attr: Vec<u8>,
}

/// An object; `None`: there is none.
pub type State = Option<Content>;

/// The entry in a ledger for a state.
pub fn digest(state: &State) -> String {
    let Some(content) = state else {
        return "absent".to_owned();
    };
    let mut hasher = blake3::Hasher::new();
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    part(&content.data);
    part(&content.attr);
    for (key, value) in &content.omap {
        part(key);
        part(value);
    }
    hasher.finalize().to_hex()[..24].to_owned()
}

/// A change: the operation, and the state afterwards.
pub struct Change {
    /// Human-readable description.
    pub what: String,
    /// The operation's parts.
    pub ops: Vec<SubOp>,
    /// Its bytes.
    pub payload: Payload,
    /// The object afterwards.
    pub after: State,
    /// The expected output of a class call.
    pub output: Option<Bytes>,
}

/// Unique bytes, of a length that is mostly small, and sometimes many blocks.
fn bytes(draw: &mut impl FnMut(u64) -> u64) -> Vec<u8> {
    let length = match draw(16) {
        0 => 0,
        1..=7 => 1 + draw(300),
        8..=12 => 1 + draw(9_000),
        13..=14 => 1 + draw(70_000),
        _ => 1 + draw(400_000),
    };
    let mut random = SplitMix64(draw(u64::MAX >> 12));
    let mut out = Vec::with_capacity(usize::try_from(length).expect("small"));
    while (out.len() as u64) < length {
        let word = random.draw();
        let left = usize::try_from(length).expect("small") - out.len();
        out.extend_from_slice(&word.to_le_bytes()[..left.min(8)]);
    }
    out
}

fn length(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}

/// Draws a random change of an object.
pub fn change(state: &State, draw: &mut impl FnMut(u64) -> u64) -> Change {
    let Some(content) = state else {
        return put(state, draw);
    };
    let mut after = content.clone();
    let size = length(&after.data);
    let kind = draw(20);
    let (what, ops, payload, output) = match kind {
        0..=4 => return put(state, draw),
        5 | 6 => {
            let data = bytes(draw);
            let offset = draw(size + 5_000).min(SIZE_MAX - length(&data));
            let end = usize::try_from(offset).expect("small") + data.len();
            if !data.is_empty() {
                after.data.resize(after.data.len().max(end), 0);
                after.data[end - data.len()..end].copy_from_slice(&data);
            }
            (
                format!("write {offset}~{}", data.len()),
                vec![SubOp::Write {
                    offset,
                    length: length(&data),
                }],
                data,
                None,
            )
        }
        7 | 8 if size < SIZE_MAX / 2 => {
            let data = bytes(draw);
            after.data.extend_from_slice(&data);
            (
                format!("append {}", data.len()),
                vec![SubOp::Append {
                    length: length(&data),
                }],
                data,
                None,
            )
        }
        9 => {
            let to = draw(size + 5_000);
            after.data.resize(usize::try_from(to).expect("small"), 0);
            (
                format!("truncate {to}"),
                vec![SubOp::Truncate { size: to }],
                Vec::new(),
                None,
            )
        }
        10 => {
            let value = bytes(draw);
            after.attr = value[..value.len().min(200)].to_vec();
            let value = Bytes::from(after.attr.clone());
            (
                "setattr".to_owned(),
                vec![SubOp::SetAttr {
                    name: Name::from(ATTR),
                    value,
                }],
                Vec::new(),
                None,
            )
        }
        11 | 12 => {
            let (key, value) = (format!("k{}", draw(KEYS)).into_bytes(), bytes(draw));
            let value = value[..value.len().min(9_000)].to_vec();
            after.omap.insert(key.clone(), value.clone());
            let entries = vec![(Bytes::from(key), Bytes::from(value))];
            (
                "omap set".to_owned(),
                vec![SubOp::OmapSet { entries }],
                Vec::new(),
                None,
            )
        }
        13 => {
            let key = format!("k{}", draw(KEYS)).into_bytes();
            after.omap.remove(&key);
            (
                "omap rm".to_owned(),
                vec![SubOp::OmapRemove {
                    keys: vec![Bytes::from(key)],
                }],
                Vec::new(),
                None,
            )
        }
        14..=17 => {
            // Executed twice it would count twice: its output and later reads show it.
            let class = if draw(2) == 0 { "tally" } else { "chaos_tally" };
            let before = after
                .omap
                .get(COUNTER)
                .and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
            let value = (before.unwrap_or(0_u64) + 1).to_string().into_bytes();
            after.omap.insert(COUNTER.to_vec(), value.clone());
            let call = SubOp::Call {
                class: class.into(),
                method: "add".into(),
                length: length(COUNTER),
            };
            (
                format!("{class}.add"),
                vec![call],
                COUNTER.to_vec(),
                Some(Bytes::from(value)),
            )
        }
        _ => {
            let what = "delete".to_owned();
            return Change {
                what,
                ops: vec![SubOp::Delete {}],
                payload: Payload::new(),
                after: None,
                output: None,
            };
        }
    };
    let payload = if payload.is_empty() {
        Payload::new()
    } else {
        [Bytes::from(payload)].into_iter().collect()
    };
    Change {
        what,
        ops,
        payload,
        after: Some(after),
        output,
    }
}

fn put(state: &State, draw: &mut impl FnMut(u64) -> u64) -> Change {
    let data = bytes(draw);
    let mut after = state.clone().unwrap_or_default();
    after.data.clone_from(&data);
    let ops = vec![SubOp::WriteFull {
        length: length(&data),
    }];
    let payload = if data.is_empty() {
        Payload::new()
    } else {
        [Bytes::from(data)].into_iter().collect()
    };
    Change {
        what: format!("put {}", after.data.len()),
        ops,
        payload,
        after: Some(after),
        output: None,
    }
}

/// Reads a whole object in one operation.
pub fn read(pool: PoolId, object: ObjectId) -> Operation {
    let omap = SubOp::OmapList {
        after: Bytes::new(),
        limit: 1000,
    };
    let ops = vec![
        SubOp::Read {
            offset: 0,
            length: SIZE_MAX * 2,
        },
        SubOp::ListAttrs {},
        omap,
    ];
    operation(pool, object, ops, Payload::new())
}

/// The state found by [`read`].
///
/// # Errors
/// When the answer has an unexpected form.
pub fn state_of(ended: Ended) -> Result<Result<State, Failed>> {
    let done = match ended {
        Ok(done) => done,
        Err(Failed::Refused(OpFailure::NotFound {})) => return Ok(Ok(None)),
        Err(why) => return Ok(Err(why)),
    };
    let [
        _,
        SubReply::Entries { entries: attrs, .. },
        SubReply::Entries { entries: omap, .. },
    ] = &done.results[..]
    else {
        bail!(
            "a read has an unexpected answer {:?}: is a daemon of another version?",
            done.results
        );
    };
    let attr = attrs
        .iter()
        .find(|(name, _)| name == ATTR.as_bytes())
        .map(|(_, value)| value.to_vec());
    Ok(Ok(Some(Content {
        data: done.payload.iter().flatten().copied().collect(),
        omap: omap
            .iter()
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
            .collect(),
        attr: attr.unwrap_or_default(),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_announces_as_many_bytes_as_it_carries_and_stays_within_its_bound() {
        let (mut state, mut seed) = (None, 7_u64);
        let mut draw = move |below: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..3_000 {
            let change = change(&state, &mut draw);
            let announced: u64 = change.ops.iter().map(SubOp::payload_len).sum();
            assert_eq!(
                announced,
                nacre_wire::msg::payload_len(&change.payload) as u64,
                "{}",
                change.what
            );
            state = change.after;
            assert!(
                state
                    .as_ref()
                    .is_none_or(|content| length(&content.data) <= SIZE_MAX),
                "{}",
                change.what
            );
            seen.insert(change.what.split(' ').next().expect("a word").to_owned());
        }
        assert_eq!(seen.len(), 9, "{seen:?}");
        assert_ne!(digest(&None), digest(&Some(Content::default())));
    }
}
