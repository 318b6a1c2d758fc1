//! Frames: a header of 40 bytes, a body of the same size as Nacre's, and a payload.
//!
//! ```text
//!  0       4      6      8          12            16     20            24      32         36
//!  │ magic │ kind │ zero │ body len │ payload len │ zero │ payload crc │ epoch │ body crc │ head crc
//!  body: request │ object │ version │ group, 8 bytes each │ name, 40 │ zeros up to the usual size
//! ```
//! Everything is little-endian. Three checksums: of the header (without the checksum itself), of
//! the body, and of the payload. The sender of a payload computes its checksum once; a primary
//! forwards it.

use anyhow::{Result, ensure};
use crc_fast::crc32_iscsi;

/// Size of a header in bytes.
pub const HEAD: usize = 40;
/// Bytes of an object's name, zeros at the end included.
pub const NAME: usize = 40;
/// Bytes of the longest body.
pub const BODY_MAX: usize = 230;
/// Bytes of fields and name in a body.
const FIELDS: usize = 32;
const MAGIC: u32 = u32::from_le_bytes(*b"FLR1");
/// Every frame of Nacre carries the epoch of its map.
const EPOCH: u64 = 7;

/// The name of an object.
pub type Name = [u8; NAME];

/// CRC-32C.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
}

/// Type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A client's update; its payload is the data.
    Write,
    /// A client's update that runs a method first.
    Call,
    /// The same update, sent to a replica.
    Replicate,
    /// The replica has everything up to `version` durable.
    Acknowledge,
    /// Every replica has this update durable.
    Reply,
    /// A client requests an object.
    Read,
    /// The object; its payload is the data.
    Data,
    /// A client requests the resources that the process has used so far.
    Usage,
    /// `version`: nanoseconds of CPU time; `object`: flushes; `group`: updates in them.
    Used,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Write,
        Self::Call,
        Self::Replicate,
        Self::Acknowledge,
        Self::Reply,
        Self::Read,
        Self::Data,
        Self::Usage,
        Self::Used,
    ];

    /// Length of the body: that of Nacre's message of this kind.
    pub const fn body_len(self) -> usize {
        match self {
            Self::Write | Self::Call => 150,
            Self::Replicate => BODY_MAX,
            Self::Read => 120,
            Self::Reply | Self::Data => 70,
            Self::Acknowledge | Self::Usage | Self::Used => 48,
        }
    }

    const fn has_name(self) -> bool {
        self.body_len() >= FIELDS + NAME
    }

    fn of(number: u16) -> Option<Self> {
        Self::ALL.into_iter().nth(usize::from(number))
    }
}

/// Contents of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Type of the frame.
    pub kind: Kind,
    /// Bytes of its payload.
    pub payload_len: usize,
    /// Checksum of the payload; 0 without a payload.
    pub payload_crc: u32,
    body_crc: u32,
}

/// Contents of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body {
    /// Number of the client's request.
    pub request: u64,
    /// Number of the object.
    pub object: u64,
    /// Position of the update in its primary's order.
    pub version: u64,
    /// Placement group.
    pub group: u64,
    /// Name of the object; zeros if the kind has none.
    pub name: Name,
}

impl Body {
    /// A body without a name.
    pub const fn of(request: u64, object: u64, version: u64, group: u64) -> Self {
        Self {
            request,
            object,
            version,
            group,
            name: [0; NAME],
        }
    }
}

/// Appends header and body; returns their length. The payload follows them on the wire.
pub fn encode(out: &mut Vec<u8>, kind: Kind, body: &Body, payload_len: usize, crc: u32) -> usize {
    let mut bytes = [0; HEAD + BODY_MAX];
    let end = HEAD + kind.body_len();
    let fields = [body.request, body.object, body.version, body.group];
    for (to, field) in bytes[HEAD..HEAD + FIELDS].chunks_exact_mut(8).zip(fields) {
        to.copy_from_slice(&field.to_le_bytes());
    }
    if kind.has_name() {
        bytes[HEAD + FIELDS..HEAD + FIELDS + NAME].copy_from_slice(&body.name);
    }
    let body_crc = checksum(&bytes[HEAD..end]);
    bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[4..6].copy_from_slice(&(kind as u16).to_le_bytes());
    bytes[8..12].copy_from_slice(&len_u32(kind.body_len()).to_le_bytes());
    bytes[12..16].copy_from_slice(&len_u32(payload_len).to_le_bytes());
    bytes[20..24].copy_from_slice(&crc.to_le_bytes());
    bytes[24..32].copy_from_slice(&EPOCH.to_le_bytes());
    bytes[32..36].copy_from_slice(&body_crc.to_le_bytes());
    let head_crc = checksum(&bytes[..HEAD - 4]);
    bytes[36..40].copy_from_slice(&head_crc.to_le_bytes());
    out.extend_from_slice(&bytes[..end]);
    end
}

/// Parses a header from `bytes`, which holds all [`HEAD`] bytes.
///
/// # Errors
/// When it is not a valid header.
pub fn parse_head(bytes: &[u8]) -> Result<Head> {
    ensure!(
        u32_at(bytes, 0) == MAGIC,
        "a frame without the magic number"
    );
    ensure!(
        checksum(&bytes[..HEAD - 4]) == u32_at(bytes, 36),
        "checksum mismatch in a head"
    );
    let number = u16::from_le_bytes([bytes[4], bytes[5]]);
    let Some(kind) = Kind::of(number) else {
        anyhow::bail!("a frame of the unknown kind {number}")
    };
    ensure!(
        u32_at(bytes, 8) as usize == kind.body_len(),
        "a body of another size"
    );
    Ok(Head {
        kind,
        payload_len: u32_at(bytes, 12) as usize,
        payload_crc: u32_at(bytes, 20),
        body_crc: u32_at(bytes, 32),
    })
}

/// Parses the body of a frame from `bytes`, which holds all of it.
///
/// # Errors
/// When its checksum does not match.
pub fn parse_body(head: &Head, bytes: &[u8]) -> Result<Body> {
    ensure!(
        checksum(bytes) == head.body_crc,
        "checksum mismatch in a body"
    );
    let field = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let mut body = Body::of(field(0), field(8), field(16), field(24));
    if head.kind.has_name() {
        body.name.copy_from_slice(&bytes[FIELDS..FIELDS + NAME]);
    }
    Ok(body)
}

/// Compares a payload with the checksum in its header.
///
/// # Errors
/// When it does not match.
pub fn verify_payload(head: &Head, payload: &[u8]) -> Result<()> {
    ensure!(
        payload.is_empty() || checksum(payload) == head.payload_crc,
        "payload checksum mismatch"
    );
    Ok(())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn len_u32(len: usize) -> u32 {
    u32::try_from(len).expect("frames are small")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(kind: Kind) -> (Vec<u8>, Body) {
        let mut name = [0; NAME];
        if kind.has_name() {
            name[..5].copy_from_slice(b"a.one");
        }
        let body = Body {
            name,
            ..Body::of(1, 2, 3, 4)
        };
        let mut bytes = Vec::new();
        assert_eq!(
            encode(&mut bytes, kind, &body, 5, checksum(b"hello")),
            bytes.len()
        );
        (bytes, body)
    }

    #[test]
    fn what_is_encoded_is_parsed() {
        for kind in Kind::ALL {
            let (bytes, body) = example(kind);
            let head = parse_head(&bytes[..HEAD]).expect("a head");
            assert_eq!((head.kind, head.payload_len), (kind, 5));
            assert_eq!(parse_body(&head, &bytes[HEAD..]).expect("a body"), body);
            verify_payload(&head, b"hello").expect("the payload");
            assert!(verify_payload(&head, b"hallo").is_err());
        }
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let (bytes, _) = example(Kind::Replicate);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let parsed =
                parse_head(&changed[..HEAD]).and_then(|head| parse_body(&head, &changed[HEAD..]));
            assert!(parsed.is_err(), "byte {at}");
        }
    }
}
