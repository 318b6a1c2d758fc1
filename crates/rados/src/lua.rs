//! How scripts travel to `cls_lua`: with every call, which compiles them anew.

use bytes::{BufMut as _, Bytes, BytesMut};

/// Input of `lua.eval_bufferlist`: script, handler and input, in Ceph's encoding of version 1.
#[must_use]
pub fn input(script: &[u8], handler: &[u8], data: &[u8]) -> Bytes {
    let length = 12 + script.len() + handler.len() + data.len();
    let mut out = BytesMut::with_capacity(6 + length);
    out.put_slice(&[1, 1]);
    out.put_u32_le(u32::try_from(length).expect("bounded by an operation's size"));
    for part in [script, handler, data] {
        out.put_u32_le(part.len() as u32);
        out.put_slice(part);
    }
    out.freeze()
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_are_those_that_ceph_expects() {
        let expected =
            [&[1, 1, 18, 0, 0, 0][..], &[2, 0, 0, 0], b"ab", &[1, 0, 0, 0], b"h", &[3, 0, 0, 0], b"xyz"].concat();
        assert_eq!(super::input(b"ab", b"h", b"xyz"), expected);
    }
}
