//! Messages behind their frames' checksums: one that decodes encodes to the same bytes, and
//! splitting its payload among an operation's parts does not panic.
//!
//! Input: the message's type number (taken modulo the number of types), the length of the payload
//! (both one byte), meta section, payload.

use bytes::Bytes;
use nacre_wire::Message;
use nacre_wire::msg::PayloadCursor;

pub fn run(input: &[u8]) {
    let [kind, payload_len, rest @ ..] = input else {
        return;
    };
    let named = Message::KINDS
        .iter()
        .find(|(number, ..)| *number == u16::from(*kind));
    let (kind, _, _, compat) =
        *named.unwrap_or(&Message::KINDS[usize::from(*kind) % Message::KINDS.len()]);
    let payload_len = usize::from(*payload_len).min(rest.len());
    let (meta, payload) = rest.split_at(rest.len() - payload_len);
    let payload = if payload.is_empty() {
        Vec::new()
    } else {
        vec![Bytes::copy_from_slice(payload)]
    };
    let Ok(message) = Message::decode(kind, compat, meta, payload) else {
        return;
    };
    let mut written = Vec::new();
    message.put_meta(&mut written);
    let again = Message::decode(kind, compat, &written, message.payload().to_vec())
        .expect("reads what it wrote");
    assert_eq!(message, again, "written and read back");
    if let Message::OpRequest(request, payload) = message {
        let mut cursor = PayloadCursor::new(payload);
        for op in &request.ops {
            let length = usize::try_from(op.payload_len()).unwrap_or(usize::MAX);
            if cursor.take(length).is_err() {
                break;
            }
        }
    }
}
