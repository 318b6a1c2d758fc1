//! Frames: messages on a byte stream.
//!
//! ```text
//!  0    magic "NCR1"        u32     24   payload CRC32C       u32
//!  4    type                u16     28   tag (authentication) u32   0 until it exists
//!  6    version             u8      32   meta CRC32C          u32
//!  7    compat              u8      36   header CRC32C        u32   over bytes 0..36
//!  8    meta length         u32     40   meta section
//! 12    payload length      u32          payload
//! 16    sender's map epoch  u64
//! ```
//!
//! A frame is written as its header and meta section (one small buffer, encoded here), followed by
//! the payload's pieces unchanged. It is read by splitting both sections off the receive buffer
//! without copying the payload; a large payload is received into memory of its own
//! ([`FrameReader`]). Lengths are checked against bounds before memory is reserved. Each section
//! has its own checksum, so a flipped bit is an error of one connection, never wrong data.

use crate::codec::Malformed;
use crate::msg::{Message, Payload, payload_len};
use bytes::{Buf, Bytes, BytesMut};
use nacre_types::Epoch;
use std::fmt;

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 40;
/// Longest meta section: large enough for the full map of a large cluster.
pub const META_LEN_MAX: usize = 64 << 20;
/// Longest payload: the largest operation and its framing.
pub const PAYLOAD_LEN_MAX: usize = 64 << 20;
/// Longest frame, without its header, accepted from a peer that has not identified itself: a
/// [`Hello`](crate::msg::monitor::Hello) or a refusal takes a few hundred bytes.
pub const STRANGER_LEN_MAX: usize = 4 << 10;
const MAGIC: u32 = u32::from_le_bytes(*b"NCR1");

/// A message with its sender's epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// The epoch of the sender's map.
    pub epoch: Epoch,
    /// The message.
    pub message: Message,
}

/// Why a byte stream cannot be split into frames. The connection must be closed, because the start
/// of the next frame is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The stream does not start with a frame: the peer speaks another protocol.
    Magic {
        /// The magic number found.
        found: u32,
    },
    /// A checksum does not match.
    Checksum {
        /// "header", "meta" or "payload".
        section: &'static str,
        /// The checksum in the frame.
        expected: u32,
        /// The checksum computed from the bytes.
        found: u32,
    },
    /// A section exceeds its bound.
    TooLong {
        /// "meta" or "payload".
        section: &'static str,
        /// The length announced.
        length: usize,
    },
    /// The sections are intact but do not decode as a message.
    Malformed(Malformed),
}
impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic { found } => {
                write!(
                    f,
                    "not a Nacre frame (begins with {found:#010x}); is this the right port?"
                )
            }
            Self::Checksum {
                section,
                expected,
                found,
            } => {
                write!(
                    f,
                    "{section} checksum is {found:08x}, the frame says {expected:08x}: damaged on the way"
                )
            }
            Self::TooLong { section, length } => {
                write!(
                    f,
                    "a {section} section of {length} bytes is more than allowed"
                )
            }
            Self::Malformed(why) => write!(f, "malformed message: {why}"),
        }
    }
}
impl std::error::Error for FrameError {}
impl From<Malformed> for FrameError {
    fn from(why: Malformed) -> Self {
        Self::Malformed(why)
    }
}

/// CRC32C (Castagnoli).
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    // The library's checksums are 64 bits wide; this one fills the low half.
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC32C of several pieces as if they were one.
#[must_use]
pub fn checksum(payload: &[Bytes]) -> u32 {
    match payload {
        [] => 0,
        [one] => crc32c(one),
        many => {
            let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
            for piece in many {
                digest.update(piece);
            }
            digest.finalize() as u32
        }
    }
}

impl Frame {
    /// Appends header and meta section; the caller then writes the payload's pieces.
    ///
    /// # Panics
    /// When a section exceeds its bound: the caller failed to limit the message.
    pub fn put_front(&self, out: &mut Vec<u8>) {
        assert!(
            self.try_put_front(out),
            "{} is too long",
            self.message.name()
        );
    }

    /// Like [`Self::put_front`]; when a section exceeds its bound, returns `false` and appends
    /// nothing.
    #[must_use]
    pub fn try_put_front(&self, out: &mut Vec<u8>) -> bool {
        let payload = self.message.payload();
        let start = out.len();
        out.resize(start + HEADER_LEN, 0);
        self.message.put_meta(out);
        let meta_len = out.len() - start - HEADER_LEN;
        let payload_len = payload_len(payload);
        if meta_len > META_LEN_MAX || payload_len > PAYLOAD_LEN_MAX {
            out.truncate(start);
            return false;
        }
        let (kind, version, compat) = self.message.kind();
        let meta_crc = crc32c(&out[start + HEADER_LEN..]);
        let header = &mut out[start..start + HEADER_LEN];
        header[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        header[4..6].copy_from_slice(&kind.to_le_bytes());
        header[6] = version;
        header[7] = compat;
        header[8..12].copy_from_slice(&(meta_len as u32).to_le_bytes());
        header[12..16].copy_from_slice(&(payload_len as u32).to_le_bytes());
        header[16..24].copy_from_slice(&self.epoch.0.to_le_bytes());
        header[24..28].copy_from_slice(&checksum(payload).to_le_bytes());
        header[32..36].copy_from_slice(&meta_crc.to_le_bytes());
        let header_crc = crc32c(&header[..36]);
        header[36..40].copy_from_slice(&header_crc.to_le_bytes());
        true
    }

    /// The frame as one byte string, for tests and small messages.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put_front(&mut out);
        for piece in self.message.payload() {
            out.extend_from_slice(piece);
        }
        out
    }
}

/// The contents of a header.
#[derive(Clone, Copy, Debug)]
struct Header {
    kind: u16,
    compat: u8,
    meta_len: usize,
    payload_len: usize,
    epoch: Epoch,
    payload_crc: u32,
    meta_crc: u32,
}

impl Header {
    fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Self, FrameError> {
        let word =
            |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if word(0) != MAGIC {
            return Err(FrameError::Magic { found: word(0) });
        }
        let (expected, found) = (word(36), crc32c(&bytes[..36]));
        if expected != found {
            return Err(FrameError::Checksum {
                section: "header",
                expected,
                found,
            });
        }
        let header = Self {
            kind: u16::from_le_bytes([bytes[4], bytes[5]]),
            compat: bytes[7],
            meta_len: word(8) as usize,
            payload_len: word(12) as usize,
            epoch: Epoch(u64::from(word(16)) | u64::from(word(20)) << 32),
            payload_crc: word(24),
            meta_crc: word(32),
        };
        if header.meta_len > META_LEN_MAX {
            return Err(FrameError::TooLong {
                section: "meta",
                length: header.meta_len,
            });
        }
        if header.payload_len > PAYLOAD_LEN_MAX {
            return Err(FrameError::TooLong {
                section: "payload",
                length: header.payload_len,
            });
        }
        Ok(header)
    }

    fn check_of_stranger(&self) -> Result<(), FrameError> {
        let too_long = |section, length| Err(FrameError::TooLong { section, length });
        if self.meta_len > STRANGER_LEN_MAX {
            return too_long("meta", self.meta_len);
        }
        // The message that opens a connection has no payload.
        if self.payload_len > 0 {
            too_long("payload", self.payload_len)
        } else {
            Ok(())
        }
    }
}

/// A payload of at least this many bytes is received straight into memory of its own, aligned for
/// disks.
const LARGE_MIN: usize = 64 << 10;
/// Alignment of large payloads in memory: disks require it for direct I/O.
pub const PAYLOAD_ALIGN: usize = 4096;
/// Size of the receive buffer's extensions.
const CHUNK: usize = 256 << 10;
/// When less than this is left of a chunk, a read into it is not worth a system call.
const CHUNK_REST_MIN: usize = 16 << 10;
/// After a large frame another is likely. Its header and meta section fit into this many bytes,
/// with little of its payload.
const PROBE: usize = 512;

/// A frame whose payload is being received.
#[derive(Debug)]
struct Large {
    header: Header,
    meta: BytesMut,
    payload: BytesMut,
}

/// Splits received bytes into frames.
///
/// ```text
///  small frames   │ frame │ frame │ fra…      many per call, cut out of one buffer
///  large payload  │ header, meta │            then its own aligned memory, filled to the byte
/// ```
#[derive(Debug, Default)]
pub struct FrameReader {
    buffer: BytesMut,
    header: Option<Header>,
    /// Frames are short until [`Self::trust`].
    stranger: bool,
    large: Option<Large>,
    /// The last frame had a large payload.
    after_large: bool,
    copied: u64,
}

fn verify(section: &'static str, bytes: &[u8], expected: u32) -> Result<(), FrameError> {
    let found = crc32c(bytes);
    if found == expected {
        Ok(())
    } else {
        Err(FrameError::Checksum {
            section,
            expected,
            found,
        })
    }
}

fn aligned(length: usize) -> BytesMut {
    let mut memory = BytesMut::with_capacity(length + PAYLOAD_ALIGN);
    let skip = memory.as_ptr().align_offset(PAYLOAD_ALIGN);
    memory.resize(skip, 0);
    memory.advance(skip);
    memory
}

impl FrameReader {
    /// A reader for an unauthenticated peer: a frame longer than [`STRANGER_LEN_MAX`] is refused
    /// from its header alone, before memory is reserved for it.
    #[must_use]
    pub fn of_stranger() -> Self {
        Self {
            stranger: true,
            ..Self::default()
        }
    }

    /// The handshake is complete: from now on the normal length bounds apply.
    pub fn trust(&mut self) {
        self.stranger = false;
    }

    /// Takes the next whole frame; `None` when more bytes are needed. Payloads share the memory
    /// that they were received into.
    ///
    /// # Errors
    /// [`FrameError`]: close the connection.
    pub fn poll(&mut self) -> Result<Option<Frame>, FrameError> {
        if let Some(large) = &self.large {
            if large.payload.len() < large.header.payload_len {
                return Ok(None);
            }
            let Large {
                header,
                meta,
                payload,
            } = self.large.take().expect("just seen");
            return whole(header, &meta, payload).map(Some);
        }
        let header = match self.header {
            Some(header) => header,
            None => {
                let Some(bytes) = self.buffer.first_chunk::<HEADER_LEN>() else {
                    return Ok(None);
                };
                let header = Header::parse(bytes)?;
                if self.stranger {
                    header.check_of_stranger()?;
                }
                self.buffer.advance(HEADER_LEN);
                *self.header.insert(header)
            }
        };
        let is_large = header.payload_len >= LARGE_MIN;
        if self.buffer.len() >= header.meta_len + header.payload_len {
            (self.header, self.after_large) = (None, is_large);
            let meta = self.buffer.split_to(header.meta_len);
            let payload = self.buffer.split_to(header.payload_len);
            return whole(header, &meta, payload).map(Some);
        }
        if is_large && self.buffer.len() >= header.meta_len {
            (self.header, self.after_large) = (None, true);
            let meta = self.buffer.split_to(header.meta_len);
            let mut payload = aligned(header.payload_len);
            payload.extend_from_slice(&self.buffer);
            self.copied += self.buffer.len() as u64;
            self.buffer.clear();
            self.large = Some(Large {
                header,
                meta,
                payload,
            });
        }
        Ok(None)
    }

    /// The buffer to receive into and the most bytes to receive; there is always room for at least
    /// one byte.
    pub fn room(&mut self) -> (&mut BytesMut, usize) {
        if let Some(Large {
            header, payload, ..
        }) = &mut self.large
            && payload.len() < header.payload_len
        {
            let missing = header.payload_len - payload.len();
            return (payload, missing);
        }
        let buffered = self.buffer.len();
        let (wants, most) = match self.header {
            None if self.after_large => (HEADER_LEN, PROBE),
            None => (HEADER_LEN, usize::MAX),
            // Receive only the rest of the header and meta section, so that the payload's first
            // byte already arrives in its final place.
            Some(header) if header.payload_len >= LARGE_MIN && buffered < header.meta_len => {
                (header.meta_len, header.meta_len - buffered)
            }
            Some(header) => (header.meta_len + header.payload_len, usize::MAX),
        };
        let wants = wants.saturating_sub(buffered);
        if self.buffer.capacity() - buffered < wants.max(CHUNK_REST_MIN) {
            let before = self.buffer.as_ptr();
            // A peer in the handshake sends one short frame.
            let chunk = if self.stranger { CHUNK_REST_MIN } else { CHUNK };
            self.buffer.reserve(wants.max(chunk));
            if self.buffer.as_ptr() != before {
                self.copied += buffered as u64;
            }
        }
        (&mut self.buffer, most)
    }

    /// Adds bytes that were received elsewhere.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (room, most) = self.room();
            let (now, later) = bytes.split_at(most.min(bytes.len()));
            room.extend_from_slice(now);
            bytes = later;
        }
    }

    /// Bytes received of incomplete frames, headers not counted.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buffer.len() + self.large.as_ref().map_or(0, |large| large.payload.len())
    }

    /// Bytes reserved for an incomplete frame; 0 when no frame has started.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        let head = self.header.map_or(0, |header| {
            HEADER_LEN + header.meta_len + header.payload_len
        });
        self.large
            .as_ref()
            .map_or(head, |large| large.payload.capacity())
            .max(self.buffer.len())
    }

    /// Bytes that had to be moved in memory since the last call: frames that began at a buffer's
    /// end, and the beginnings of large payloads.
    pub fn take_copied(&mut self) -> u64 {
        std::mem::take(&mut self.copied)
    }
}

fn whole(header: Header, meta: &[u8], payload: BytesMut) -> Result<Frame, FrameError> {
    verify("meta", meta, header.meta_crc)?;
    let payload = if payload.is_empty() {
        Payload::new()
    } else {
        verify("payload", &payload, header.payload_crc)?;
        vec![payload.freeze()]
    };
    let message = Message::decode(header.kind, header.compat, meta, payload)?;
    Ok(Frame {
        epoch: header.epoch,
        message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::msg::replication::{Logged, Ping, ReplicateAcks};
    use nacre_types::{PgId, PoolId, Version};

    fn samples() -> Vec<Frame> {
        vec![
            Frame {
                epoch: Epoch(7),
                message: Message::Ping(Ping { stamp: 42 }),
            },
            Frame {
                epoch: Epoch(8),
                message: Message::ReplicateAcks(ReplicateAcks {
                    logged: vec![Logged {
                        pg: PgId::replicated(PoolId(1), 3),
                        interval: Epoch(5),
                        version: Version {
                            interval: Epoch(5),
                            number: 9,
                        },
                    }],
                    nearly_full: false,
                }),
            },
        ]
    }

    #[test]
    fn frames_come_out_as_they_went_in_whatever_the_pieces() {
        let bytes: Vec<u8> = samples().iter().flat_map(Frame::to_bytes).collect();
        for chunk in [1, 7, 39, 40, 41, bytes.len()] {
            let (mut reader, mut seen) = (FrameReader::default(), Vec::new());
            for piece in bytes.chunks(chunk) {
                reader.push(piece);
                while let Some(frame) = reader.poll().expect("well-formed") {
                    seen.push(frame);
                }
            }
            assert_eq!(seen, samples(), "in pieces of {chunk}");
            assert_eq!(reader.buffered(), 0);
        }
    }

    fn with_payload(length: usize) -> Frame {
        let payload: Vec<u8> = (0..length).map(|n| (n * 7 + length) as u8).collect();
        let reply = crate::msg::client::OpReply {
            request: Default::default(),
            failure: None,
            version: Version::NONE,
            results: vec![],
            attempt: 1,
        };
        Frame {
            epoch: Epoch(9),
            message: Message::OpReply(reply, vec![payload.into()]),
        }
    }

    /// A socket returns at most what is asked for, often less. Four mebibytes used to be received
    /// into whatever buffer there was, and a third of them were moved once more when it was full.
    #[test]
    fn large_payloads_are_received_to_aligned_memory_of_their_own() {
        let sizes = [
            100,
            4 << 20,
            70_000,
            1,
            1 << 20,
            1 << 20,
            1 << 20,
            300_000,
            LARGE_MIN,
            LARGE_MIN - 1,
            50,
        ];
        let frames: Vec<Frame> = sizes.into_iter().map(with_payload).collect();
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::to_bytes).collect();
        for gives in [333, 4096, 100_000, usize::MAX] {
            let (mut reader, mut rest, mut seen, mut copied) =
                (FrameReader::default(), &bytes[..], Vec::new(), 0);
            while !rest.is_empty() {
                let (room, most) = reader.room();
                let spare = room.capacity() - room.len();
                assert!(most > 0 && spare > 0, "there is always room");
                let (now, later) = rest.split_at(gives.min(most).min(spare).min(rest.len()));
                room.extend_from_slice(now);
                rest = later;
                while let Some(frame) = reader.poll().expect("well-formed") {
                    seen.push(frame);
                }
                copied += reader.take_copied();
            }
            assert!(seen == frames, "gives {gives}");
            let aligned = |frame: &Frame| {
                frame.message.payload()[0]
                    .as_ptr()
                    .addr()
                    .is_multiple_of(PAYLOAD_ALIGN)
            };
            // Frames that follow a large one and were incomplete when their header was read.
            for at in [4, 5, 6, 7] {
                assert!(aligned(&seen[at]), "frame {at}, gives {gives}");
            }
            // The first large frame follows a small one: up to a buffer full of it had arrived
            // before its header was read.
            assert!(
                copied < (CHUNK + 12 * PROBE) as u64,
                "{copied} bytes moved, gives {gives}"
            );
        }
    }

    /// A header that announces these lengths; nothing follows it.
    fn announcing(meta_len: usize, payload_len: usize) -> Vec<u8> {
        let mut bytes = samples()[0].to_bytes()[..HEADER_LEN].to_vec();
        bytes[8..12].copy_from_slice(&u32::try_from(meta_len).expect("small").to_le_bytes());
        bytes[12..16].copy_from_slice(&u32::try_from(payload_len).expect("small").to_le_bytes());
        let sum = crc32c(&bytes[..36]);
        bytes[36..40].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    // 40 bytes from an unauthenticated peer made a daemon reserve 128 MiB.
    #[test]
    fn a_strangers_header_reserves_next_to_nothing() {
        let read = |reader: &mut FrameReader, bytes: &[u8]| {
            reader.push(bytes);
            let outcome = reader.poll().map(|frame| frame.is_some());
            let (room, _) = reader.room();
            (outcome, room.capacity())
        };
        for (meta, payload) in [
            (STRANGER_LEN_MAX + 1, 0),
            (META_LEN_MAX, PAYLOAD_LEN_MAX),
            (0, 1),
            (8, PAYLOAD_LEN_MAX),
        ] {
            let bytes = announcing(meta, payload);
            let (outcome, reserved) = read(&mut FrameReader::of_stranger(), &bytes);
            assert!(
                matches!(outcome, Err(FrameError::TooLong { .. })),
                "{meta} and {payload}: {outcome:?}"
            );
            assert!(
                reserved <= 2 * CHUNK_REST_MIN,
                "{reserved} bytes reserved for {meta} and {payload}"
            );
            let mut trusted = FrameReader::of_stranger();
            trusted.trust();
            let (outcome, reserved) = read(&mut trusted, &bytes);
            assert!(
                outcome == Ok(false) && reserved >= meta,
                "{reserved} for {meta} and {payload}"
            );
        }
        let (outcome, reserved) = read(
            &mut FrameReader::of_stranger(),
            &announcing(STRANGER_LEN_MAX, 0),
        );
        assert!(
            outcome == Ok(false) && reserved <= 2 * CHUNK_REST_MIN,
            "{reserved} bytes reserved"
        );
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = samples()[1].to_bytes();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            // The header's checksum covers the tag (28..32) as it does everything else.
            let mut reader = FrameReader::default();
            reader.push(&damaged);
            let outcome = reader.poll();
            assert!(outcome.is_err(), "bit {bit}: {outcome:?}");
        }
    }
}
