//! Encoding of a script's saved state: what `WRstate` and `nacre.state` keep across restarts
//! (MAL-51, MAL-62).
//!
//! ```text
//!   value   0 nil · 1 false · 2 true · 3 integer i64 · 4 number f64 · 5 bytes u32+… · 6 list u32+values · 7 map u32+(bytes, value)
//!   saved   version 1 · name u32+… · value          little-endian
//! ```
//! Decoding never panics: the bytes come from a disk.

use bytes::Bytes;
use nacre_policy::Value;
use std::collections::BTreeMap;

/// Maximum size of the stored state, in bytes.
pub const STATE_BYTES_MAX: usize = 64 << 10;
const DEPTH_MAX: u32 = 64;
const VERSION: u8 = 1;

/// Encodes the state of the policy called `program`.
#[must_use]
pub fn encode(program: &str, state: &Value) -> Vec<u8> {
    let mut out = vec![VERSION];
    put_bytes(program.as_bytes(), &mut out);
    put(state, &mut out);
    out
}

/// Policy and state. `None`: these bytes are not a state.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<(String, Value)> {
    let mut rest = bytes.strip_prefix(&[VERSION])?;
    let program = String::from_utf8(get_bytes(&mut rest)?.to_vec()).ok()?;
    let state = get(&mut rest, 0)?;
    rest.is_empty().then_some((program, state))
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_length(bytes.len(), out);
    out.extend_from_slice(bytes);
}
fn put_length(length: usize, out: &mut Vec<u8>) {
    let length = u32::try_from(length).expect("a script's output is bounded far below");
    out.extend_from_slice(&length.to_le_bytes());
}

fn put(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Nil => out.push(0),
        Value::Bool(value) => out.push(1 + u8::from(*value)),
        Value::Integer(number) => {
            out.push(3);
            out.extend_from_slice(&number.to_le_bytes());
        }
        Value::Number(number) => {
            out.push(4);
            out.extend_from_slice(&number.to_le_bytes());
        }
        Value::Bytes(bytes) => {
            out.push(5);
            put_bytes(bytes, out);
        }
        Value::List(list) => {
            out.push(6);
            put_length(list.len(), out);
            list.iter().for_each(|item| put(item, out));
        }
        Value::Map(map) => {
            out.push(7);
            put_length(map.len(), out);
            for (key, item) in map {
                put_bytes(key, out);
                put(item, out);
            }
        }
    }
}

fn take<'a>(from: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(taken)
}
fn get_length(from: &mut &[u8]) -> Option<usize> {
    Some(u32::from_le_bytes(take(from, 4)?.try_into().ok()?) as usize)
}
fn get_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = get_length(from)?;
    take(from, length)
}

fn get(from: &mut &[u8], depth: u32) -> Option<Value> {
    if depth == DEPTH_MAX {
        return None;
    }
    Some(match take(from, 1)?[0] {
        0 => Value::Nil,
        1 => Value::Bool(false),
        2 => Value::Bool(true),
        3 => Value::Integer(i64::from_le_bytes(take(from, 8)?.try_into().ok()?)),
        4 => Value::Number(f64::from_le_bytes(take(from, 8)?.try_into().ok()?)),
        5 => Value::Bytes(Bytes::copy_from_slice(get_bytes(from)?)),
        6 => {
            // No memory is reserved for an unchecked length.
            let length = get_length(from)?;
            let mut list = Vec::new();
            for _ in 0..length {
                list.push(get(from, depth + 1)?);
            }
            Value::List(list)
        }
        7 => {
            let length = get_length(from)?;
            let mut map = BTreeMap::new();
            for _ in 0..length {
                let key = Bytes::copy_from_slice(get_bytes(from)?);
                map.insert(key, get(from, depth + 1)?);
            }
            Value::Map(map)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_survive_and_other_bytes_are_none() {
        let state = Value::Map(BTreeMap::from([
            (Bytes::from("wait"), Value::Integer(-2)),
            (
                Bytes::from("list"),
                Value::List(vec![
                    Value::Nil,
                    Value::Bool(true),
                    Value::Number(0.5),
                    "x".into(),
                ]),
            ),
        ]));
        let bytes = encode("greedy", &state);
        assert_eq!(decode(&bytes), Some(("greedy".to_owned(), state)));
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), None, "cut at {end}");
        }
        assert_eq!(
            decode(&[bytes.clone(), vec![0]].concat()),
            None,
            "more than a state"
        );
        // A list that claims four thousand million entries, and endlessly nested lists.
        assert_eq!(decode(&[1, 0, 0, 0, 0, 6, 255, 255, 255, 255]), None);
        let deep: Vec<u8> = [vec![1, 0, 0, 0, 0], [6, 1, 0, 0, 0].repeat(100_000)].concat();
        assert_eq!(decode(&deep), None);
    }
}
