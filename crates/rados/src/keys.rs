//! Keys of ordered maps with bytes 0 in them, for objects that only Nacre's services look into.
//!
//! librados takes the key after which a listing goes on up to its first byte 0. So a byte 0 becomes
//! `01 01`, a byte 1 becomes `01 02`: that keeps the order. Other objects' keys are left as they
//! are, since classes and Ceph's own tools see them, too.

use bytes::Bytes;
use nacre_wire::msg::client::{SubOp, SubReply};
use nacre_wire::msg::snap::Whole;

/// Appends a key as it is stored.
pub fn escape(key: &[u8], into: &mut Vec<u8>) {
    for byte in key {
        match byte {
            0 => into.extend([1, 1]),
            1 => into.extend([1, 2]),
            other => into.push(*other),
        }
    }
}

/// A key that is stored so; `None`: it is not.
#[must_use]
pub fn plain(stored: &[u8]) -> Option<Vec<u8>> {
    let (mut key, mut bytes) = (Vec::with_capacity(stored.len()), stored.iter());
    while let Some(byte) = bytes.next() {
        key.push(match byte {
            0 => return None,
            1 => match bytes.next() {
                Some(1) => 0,
                Some(2) => 1,
                _ => return None,
            },
            other => *other,
        });
    }
    Some(key)
}

fn stored(key: &Bytes) -> Bytes {
    if !key.iter().any(|byte| *byte <= 1) {
        return key.clone();
    }
    let mut stored = Vec::with_capacity(key.len() + 8);
    escape(key, &mut stored);
    stored.into()
}

/// The keys of an operation, as they are stored.
pub fn store(ops: &mut [SubOp]) {
    for op in ops {
        op.keys_mut().into_iter().for_each(|key| *key = stored(key));
    }
}

/// The keys of its answer, as its caller knows them. What another program has put there stays as it
/// is.
pub fn restore(replies: &mut [SubReply]) {
    for reply in replies {
        let (SubReply::Entries { entries, .. }
        | SubReply::Whole {
            object: Whole { omap: entries, .. },
        }) = reply
        else {
            continue;
        };
        for (key, _) in entries {
            if key.contains(&1)
                && let Some(plain) = plain(key)
            {
                *key = plain.into();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All keys of three bytes out of five, in their order.
    #[test]
    fn stored_keys_have_no_byte_0_keep_their_order_and_come_back() {
        let bytes = [0_u8, 1, 2, 7, 255];
        let key =
            |n: usize| Bytes::copy_from_slice(&[bytes[n / 25], bytes[n / 5 % 5], bytes[n % 5]]);
        let keys: Vec<Bytes> = (0..125).map(key).collect();
        let entries: Vec<(Bytes, Bytes)> =
            keys.iter().map(|key| (key.clone(), Bytes::new())).collect();
        let mut ops = [
            SubOp::OmapSet { entries },
            SubOp::OmapList {
                after: keys[3].clone(),
                limit: 9,
            },
            SubOp::OmapGet { keys: keys.clone() },
        ];
        store(&mut ops);
        let [
            SubOp::OmapSet { entries },
            SubOp::OmapList { after, .. },
            SubOp::OmapGet { keys: got },
        ] = ops
        else {
            unreachable!("they are what they were")
        };
        assert!(entries.iter().map(|(key, _)| key).eq(&got) && got[3] == after);
        assert!(got.is_sorted() && got.iter().all(|key| !key.contains(&0)));
        let mut replies = [SubReply::Entries {
            entries,
            more: false,
        }];
        restore(&mut replies);
        let [SubReply::Entries { entries, .. }] = replies else {
            unreachable!("it is what it was")
        };
        assert!(entries.iter().map(|(key, _)| key).eq(&keys));
        assert_eq!(plain(&[1, 3]), None);
    }
}
