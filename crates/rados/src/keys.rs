//! Omap keys with zero bytes in them, for objects used only by Nacre's services.
//!
//! librados cuts the key after which a listing continues at its first zero byte. So a byte 0 is
//! stored as `01 01`, and a byte 1 as `01 02`, which keeps the order. Keys of other objects are not
//! changed, since classes and Ceph's own tools use them, too.

use bytes::Bytes;
use nacre_wire::msg::client::{SubOp, SubReply};
use nacre_wire::msg::snap::Whole;

/// Appends a key in its stored form.
pub fn escape(key: &[u8], into: &mut Vec<u8>) {
    for byte in key {
        match byte {
            0 => into.extend([1, 1]),
            1 => into.extend([1, 2]),
            other => into.push(*other),
        }
    }
}

/// Decodes a stored key; `None`: it is not one.
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

/// Converts the keys of an operation to their stored form.
pub fn store(ops: &mut [SubOp]) {
    for op in ops {
        op.keys_mut().into_iter().for_each(|key| *key = stored(key));
    }
}

/// Converts the keys of an answer back. Keys that another program has written stay unchanged.
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

    /// All keys of three bytes out of five, in order.
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
