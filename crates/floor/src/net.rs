//! Connections of one process: available bytes are received, frames are parsed in place, and all
//! frames of a turn are sent with one call per peer.
//!
//! ```text
//!  wait ─▶ receive ─▶ next frame … ─▶ push … ─▶ flush ─▶ forget what was parsed ─▶ wait
//! ```
//! Payloads are not copied: an outgoing frame refers to the bytes that another connection received.
//! They stay in place until [`Net::forget`].

use crate::frame::{self, BODY_MAX, Body, HEAD, Head, Kind};
use crate::poll::{Poll, Ready};
use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io::{self, ErrorKind, IoSlice, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Maximum number of received and unparsed bytes of a connection; more than is ever in flight.
const RECEIVED_MAX: usize = 1 << 20;
/// Maximum number of frames and payloads sent with one call.
const PIECES: usize = 128;

/// Bytes that a connection received.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    peer: usize,
    at: usize,
    /// Number of bytes.
    pub len: usize,
}

/// A complete frame with valid checksums.
pub struct Frame {
    /// Its type.
    pub kind: Kind,
    /// Its body.
    pub body: Body,
    /// The encoded body.
    pub body_bytes: Received,
    /// Its payload.
    pub payload: Received,
    /// The payload's checksum.
    pub payload_crc: u32,
}

/// Location of the payload of an outgoing frame.
pub enum Payload {
    /// No payload.
    None,
    /// Received by another connection.
    Received(Received),
    /// In the memory passed to [`Net::flush`].
    Memory(Range<usize>),
}

enum Piece {
    Encoded(Range<usize>),
    Payload(Payload),
}

/// Receive buffer of a connection.
struct Inbox {
    bytes: Vec<u8>,
    filled: usize,
    parsed: usize,
}

/// Send queue of a connection.
#[derive(Default)]
struct Outbox {
    encoded: Vec<u8>,
    pieces: Vec<Piece>,
}

/// A connection.
struct Link {
    socket: TcpStream,
    inbox: Inbox,
    outbox: Outbox,
}

/// See the module head.
pub struct Net {
    poll: Poll,
    links: Vec<Option<Link>>,
    ended: bool,
}

impl Net {
    /// Creates it from connections, by peer.
    ///
    /// # Errors
    /// When the kernel cannot poll them.
    pub fn new(sockets: Vec<Option<TcpStream>>) -> Result<Self> {
        let poll = Poll::new()?;
        let mut links = Vec::new();
        for (peer, socket) in sockets.into_iter().enumerate() {
            let Some(socket) = socket else {
                links.push(None);
                continue;
            };
            poll.add(&socket, peer)?;
            let inbox = Inbox {
                bytes: vec![0; RECEIVED_MAX],
                filled: 0,
                parsed: 0,
            };
            links.push(Some(Link {
                socket,
                inbox,
                outbox: Outbox::default(),
            }));
        }
        Ok(Self {
            poll,
            links,
            ended: false,
        })
    }

    /// Polls this event too: see [`Self::wait`].
    ///
    /// # Errors
    /// When the kernel cannot.
    pub fn watch(&self, event: &OwnedFd) -> Result<()> {
        self.poll.add_event(event)
    }

    /// Waits until something happens, and receives available bytes. Returns whether the event
    /// fired.
    ///
    /// # Errors
    /// When a connection fails.
    pub fn wait(&mut self, until: Option<Instant>) -> Result<bool> {
        // Other processes run first: their frames then arrive together.
        rustix::thread::sched_yield();
        let mut ready = Ready::default();
        self.poll.wait(until, &mut ready)?;
        for peer in ready.peers() {
            let link = self.links[peer]
                .as_mut()
                .expect("only connections are watched");
            self.ended |= !receive(link).with_context(|| format!("receiving from peer {peer}"))?;
        }
        Ok(ready.event)
    }

    /// Whether a peer has closed its connection.
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// The next complete frame from a peer, if there is one.
    ///
    /// # Errors
    /// When a checksum does not match.
    pub fn next(&mut self, peer: usize) -> Result<Option<Frame>> {
        let Some(link) = self.links[peer].as_mut() else {
            return Ok(None);
        };
        let start = link.inbox.parsed;
        let bytes = &link.inbox.bytes[start..link.inbox.filled];
        if bytes.len() < HEAD {
            return Ok(None);
        }
        let head = frame::parse_head(&bytes[..HEAD])?;
        let body_len = head.kind.body_len();
        let whole = HEAD + body_len + head.payload_len;
        ensure!(whole <= RECEIVED_MAX, "a frame of {whole} bytes");
        if bytes.len() < whole {
            return Ok(None);
        }
        let body = frame::parse_body(&head, &bytes[HEAD..HEAD + body_len])?;
        frame::verify_payload(&head, &bytes[HEAD + body_len..whole])?;
        link.inbox.parsed += whole;
        Ok(Some(place(peer, start, &head, body)))
    }

    /// Received bytes.
    pub fn bytes(&self, received: Received) -> &[u8] {
        let link = self.links[received.peer]
            .as_ref()
            .expect("it received them");
        &link.inbox.bytes[received.at..received.at + received.len]
    }

    /// Queues a frame for a peer, until the next [`Self::flush`].
    pub fn push(&mut self, to: usize, kind: Kind, body: &Body, payload: Payload, crc: u32) {
        let link = self.links[to]
            .as_mut()
            .expect("every peer has a connection");
        let outbox = &mut link.outbox;
        let start = outbox.encoded.len();
        let payload_len = match &payload {
            Payload::None => 0,
            Payload::Received(received) => received.len,
            Payload::Memory(range) => range.len(),
        };
        let end = start + frame::encode(&mut outbox.encoded, kind, body, payload_len, crc);
        match outbox.pieces.last_mut() {
            Some(Piece::Encoded(range)) => range.end = end,
            _ => outbox.pieces.push(Piece::Encoded(start..end)),
        }
        if payload_len > 0 {
            outbox.pieces.push(Piece::Payload(payload));
        }
    }

    /// Sends all queued frames.
    ///
    /// # Errors
    /// When a connection fails.
    pub fn flush(&mut self, memory: &[u8]) -> Result<()> {
        for peer in 0..self.links.len() {
            let Some(link) = self.links[peer]
                .as_ref()
                .filter(|link| !link.outbox.pieces.is_empty())
            else {
                continue;
            };
            let sent = self.send(link, memory);
            match sent {
                // The next turn detects the closed connection.
                Err(why)
                    if matches!(
                        why.kind(),
                        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
                    ) =>
                {
                    self.ended = true
                }
                sent => sent.with_context(|| format!("sending to peer {peer}"))?,
            }
            let outbox = &mut self.links[peer].as_mut().expect("looked at above").outbox;
            outbox.encoded.clear();
            outbox.pieces.clear();
        }
        Ok(())
    }

    fn send(&self, link: &Link, memory: &[u8]) -> io::Result<()> {
        for pieces in link.outbox.pieces.chunks(PIECES) {
            let mut slices = [IoSlice::new(&[]); PIECES];
            for (slice, piece) in slices.iter_mut().zip(pieces) {
                *slice = IoSlice::new(match piece {
                    Piece::Encoded(range) => &link.outbox.encoded[range.clone()],
                    Piece::Payload(Payload::Received(received)) => self.bytes(*received),
                    Piece::Payload(Payload::Memory(range)) => &memory[range.clone()],
                    Piece::Payload(Payload::None) => &[],
                });
            }
            let mut left = &mut slices[..pieces.len()];
            while !left.is_empty() {
                let sent = (&link.socket).write_vectored(left)?;
                IoSlice::advance_slices(&mut left, sent);
            }
        }
        Ok(())
    }

    /// Releases the memory of parsed frames.
    pub fn forget(&mut self) {
        for link in self.links.iter_mut().flatten() {
            let inbox = &mut link.inbox;
            inbox.bytes.copy_within(inbox.parsed..inbox.filled, 0);
            inbox.filled -= inbox.parsed;
            inbox.parsed = 0;
        }
    }
}

fn place(peer: usize, start: usize, head: &Head, body: Body) -> Frame {
    let body_len = head.kind.body_len();
    debug_assert!(body_len <= BODY_MAX);
    Frame {
        kind: head.kind,
        body,
        body_bytes: Received {
            peer,
            at: start + HEAD,
            len: body_len,
        },
        payload: Received {
            peer,
            at: start + HEAD + body_len,
            len: head.payload_len,
        },
        payload_crc: head.payload_crc,
    }
}

/// Receives available bytes; false: the peer has closed the connection.
fn receive(link: &mut Link) -> Result<bool> {
    let room = &mut link.inbox.bytes[link.inbox.filled..];
    ensure!(
        !room.is_empty(),
        "more than {RECEIVED_MAX} bytes were received and not parsed"
    );
    match recv(&link.socket, room, RecvFlags::DONTWAIT) {
        Ok((0, _)) | Err(Errno::CONNRESET) => Ok(false),
        Ok((count, _)) => {
            link.inbox.filled += count;
            Ok(true)
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(true),
        Err(why) => bail!(why),
    }
}
