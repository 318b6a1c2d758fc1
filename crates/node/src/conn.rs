//! One connection: a socket, a receive buffer from which frames are cut, and a queue of outgoing
//! frames.
//!
//! ```text
//!  dial ──▶ Connecting ──connected──▶ Greeting ──Hello──▶ Open ──error, end, replaced──▶ (gone)
//!  accept ─────────────────────────▶ Greeting ──Hello──▶ Open
//!                                       └──Refused──▶ Closing ──written──▶ (gone)
//! ```
//! Sending: headers and meta sections of all queued frames are in one buffer, payloads stay in the
//! buffers they arrived in or were read into; one `sendmsg` takes as many of both as fit.
//! Receiving: usually one `recv` per wake-up and connection; payloads share the buffer.
//!
//! Invariants: before the peer has identified itself, no message of the role is sent and next to
//! nothing is reserved; a frame whose deadline has passed is dropped if none of its bytes has been
//! sent; the queue's bytes are bounded by [`QUEUE_BYTES_MAX`].

use crate::owed::Owed;
use bytes::BufMut;
use nacre_types::{Entity, Epoch, Instance, Time};
use nacre_wire::msg::client::{OpFailure, OpReply};
use nacre_wire::msg::payload_len;
use nacre_wire::{Frame, FrameError, FrameReader, Message};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::Duration;

/// Buffer of encoded headers that is kept for reuse once they are sent.
const FRONTS_KEPT: usize = 256 << 10;
/// Maximum bytes received per connection and wake-up, so that one peer cannot starve the others.
const RECEIVE_TURN: usize = 2 << 20;
/// A connection whose queue grows beyond this is closed: its peer does not read. The protocols
/// resend what is lost.
pub const QUEUE_BYTES_MAX: usize = 192 << 20;
/// Bytes queued for a client beyond which no more work is taken from it.
const QUEUE_BYTES_PAUSE: usize = 8 << 20;
/// Frames and bytes queued for a peer that has not answered the handshake yet; more are dropped. It
/// is a client's maximum in flight: a dropped message waits until it is resent, which takes
/// seconds.
const UNOPENED_MAX: (usize, usize) = (4096, 129 << 20);
const SLICES_MAX: usize = 512;
/// Bytes of answers owed to one client: beyond, no more requests are taken until some are answered.
/// One request is always taken.
const OWED_MAX: u64 = 64 << 20;
/// A pause longer than this with an empty queue means that answers were lost; their reads no longer
/// count.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// [`Conn::check`] walks queues up to this length.
const CHECKED_MAX: usize = 256;

/// See the module head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Waits for the kernel.
    Connecting,
    /// Waits for the peer's Hello.
    Greeting,
    /// Carries messages.
    Open,
    /// Waits until the refusal is written.
    Closing,
}

/// Result of a receive.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing more to receive for now.
    Drained,
    /// There may be more: this turn's share is used up.
    More,
    /// The peer closed, or the socket failed.
    Ended(String),
}

struct Queued {
    /// Range in the front buffer, counted from the connection's first byte.
    start: u64,
    end: u64,
    message: Message,
    payload_len: usize,
    before: Option<Time>,
}

/// Work done by connections, for benchmarks and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames received.
    pub frames_in: u64,
    /// Frames sent.
    pub frames_out: u64,
    /// `recv` calls.
    pub receives: u64,
    /// `sendmsg` calls.
    pub sends: u64,
    /// Payload bytes received.
    pub payload_in: u64,
    /// Bytes moved in memory between receiving and the frame ([`FrameReader::take_copied`]).
    pub bytes_copied: u64,
    /// Replies dropped because their lease had expired when they were due to be sent.
    pub late_dropped: u64,
    /// Messages dropped because there was no connection.
    pub unsent_dropped: u64,
}

/// When a frame last made progress, and the bytes received until then.
struct Progress {
    received: u64,
    frames: u64,
    at: Time,
}

/// Divisor of a frame's size that counts as progress: of 64 MiB 64 KiB, which slow networks receive
/// in a second.
const PROGRESS: u64 = 1024;

/// See the module head.
pub struct Conn {
    pub fd: OwnedFd,
    pub owner: usize,
    pub state: State,
    /// The peer that was dialed.
    pub dialed: Option<Entity>,
    /// The peer's identity, once it has sent it.
    pub peer: Option<(Entity, Instance)>,
    pub since: Time,
    pub paused: bool,
    pub paused_at: Time,
    /// As registered with epoll: wants to read, wants to write.
    pub interest: (bool, bool),
    /// Whether it is in the reactor's list of connections to be written.
    pub dirty: bool,
    reader: FrameReader,
    /// Bytes received, and frames received completely.
    received: u64,
    frames: u64,
    progress: Progress,
    preamble: VecDeque<u8>,
    fronts: Vec<u8>,
    fronts_base: u64,
    queue: VecDeque<Queued>,
    queue_bytes: usize,
    /// Bytes of the first queued frame that have been sent.
    sent: usize,
    /// Since when the socket has accepted nothing.
    blocked: Option<Time>,
    owed: Owed,
}

impl Conn {
    pub fn new(
        fd: OwnedFd,
        owner: usize,
        state: State,
        dialed: Option<Entity>,
        since: Time,
    ) -> Self {
        Self {
            fd,
            owner,
            state,
            dialed,
            peer: None,
            since,
            paused: false,
            paused_at: Time::ZERO,
            interest: (true, false),
            dirty: false,
            reader: FrameReader::of_stranger(),
            received: 0,
            frames: 0,
            progress: Progress {
                received: 0,
                frames: 0,
                at: since,
            },
            preamble: VecDeque::new(),
            fronts: Vec::new(),
            fronts_base: 0,
            queue: VecDeque::new(),
            queue_bytes: 0,
            sent: 0,
            blocked: None,
            owed: Owed::default(),
        }
    }

    /// The peer has identified itself.
    pub fn opened(&mut self, peer: Entity, instance: Instance) {
        self.state = State::Open;
        self.peer = Some((peer, instance));
        self.reader.trust();
    }

    /// The actual or expected peer.
    pub fn who(&self) -> Option<Entity> {
        self.peer.map(|(entity, _)| entity).or(self.dialed)
    }
    pub fn queue_bytes(&self) -> usize {
        self.queue_bytes
    }
    pub fn has_output(&self) -> bool {
        !self.preamble.is_empty() || (self.state == State::Open && !self.queue.is_empty())
    }
    /// Asserts that the counters match the queue; long queues are not walked.
    pub fn check(&self) {
        self.owed.check();
        if self.queue.len() <= CHECKED_MAX {
            let queued = self
                .queue
                .iter()
                .map(|frame| (frame.end - frame.start) as usize + frame.payload_len);
            assert_eq!(
                self.queue_bytes,
                queued.sum::<usize>(),
                "bytes queued for {:?}",
                self.who()
            );
        }
        assert!(
            self.sent == 0 || !self.queue.is_empty(),
            "{} bytes of no frame have left",
            self.sent
        );
    }

    /// Queues a frame of the handshake ahead of everything else.
    pub fn greet(&mut self, message: Message) {
        self.preamble.extend(
            Frame {
                epoch: Epoch::NONE,
                message,
            }
            .to_bytes(),
        );
    }

    /// Whether more work of this client may be taken: the answers owed to it stay bounded, even if
    /// it never reads.
    pub fn takes_work(&self) -> bool {
        self.queue_bytes < QUEUE_BYTES_PAUSE && self.owed.bytes() < OWED_MAX
    }
    /// Whether it is below half of the limits that begin a pause.
    pub fn is_owed_little(&self) -> bool {
        self.queue_bytes < QUEUE_BYTES_PAUSE / 2 && self.owed.bytes() < OWED_MAX / 2
    }
    /// Whether a pause may end.
    pub fn takes_work_again(&mut self, now: Time) -> bool {
        if self.queue.is_empty() && now.since(self.paused_at) > PAUSE_MAX {
            self.owed.forget();
        }
        self.is_owed_little()
    }
    /// Notes that a client's request was passed to the role.
    pub fn note_request(&mut self, message: &Message) {
        self.owed.note_request(message);
    }
    /// Notes that the role has accepted a client's watch of metadata.
    pub fn note_watched(&mut self, watch: u64) {
        self.owed.note_watched(watch);
    }

    /// Queues a frame. False: it was dropped, since the peer has not answered the handshake and the
    /// limit for that is reached.
    pub fn push(&mut self, epoch: Epoch, message: Message, before: Option<Time>) -> bool {
        if self.state != State::Open
            && (self.queue.len() >= UNOPENED_MAX.0 || self.queue_bytes >= UNOPENED_MAX.1)
        {
            return false;
        }
        self.owed.note_answer(&message);
        let start = self.fronts_base + self.fronts.len() as u64;
        let mut frame = Frame { epoch, message };
        if !frame.try_put_front(&mut self.fronts) {
            // The role did not bound its message. The daemon must not stop for that: the next one
            // that is asked would stop, too.
            let Message::OpReply(reply, _) = frame.message else {
                return false;
            };
            let refusal = OpReply {
                failure: Some(OpFailure::TooLarge {}),
                results: Vec::new(),
                ..reply
            };
            frame.message = Message::OpReply(refusal, Vec::new());
            frame.put_front(&mut self.fronts);
        }
        let end = self.fronts_base + self.fronts.len() as u64;
        let message = frame.message;
        let payload_len = payload_len(message.payload());
        self.queue_bytes += (end - start) as usize + payload_len;
        self.queue.push_back(Queued {
            start,
            end,
            message,
            payload_len,
            before,
        });
        true
    }

    /// Takes over the frames that waited for the handshake of another connection to the same peer.
    /// Nothing has been queued here yet.
    pub fn inherit(&mut self, other: Self) {
        assert!(
            self.queue.is_empty() && other.sent == 0,
            "neither has sent anything"
        );
        (self.fronts, self.fronts_base) = (other.fronts, other.fronts_base);
        (self.queue, self.queue_bytes) = (other.queue, other.queue_bytes);
    }

    /// Writes as much as the socket accepts. Returns whether everything has been written. `now` is
    /// called again before each call of the socket.
    pub fn flush(&mut self, traffic: &mut Traffic, now: impl Fn() -> Time) -> Result<bool, Errno> {
        while !self.preamble.is_empty() {
            let (head, _) = self.preamble.as_slices();
            match rustix::net::send(&self.fd, head, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(count) => drop(self.preamble.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(errno),
            }
        }
        if self.state != State::Open {
            return Ok(true);
        }
        while !self.queue.is_empty() {
            if !self.flush_once(traffic, &now)? {
                return Ok(false);
            }
        }
        if self.fronts.capacity() > FRONTS_KEPT {
            self.fronts = Vec::new();
        }
        self.fronts_base += self.fronts.len() as u64;
        self.fronts.clear();
        Ok(true)
    }

    fn drop_late(&mut self, traffic: &mut Traffic, now: impl Fn() -> Time) {
        if !self.queue.iter().any(|frame| frame.before.is_some()) {
            return;
        }
        // Read the clock here, as the frames are passed to the socket: their leases may have
        // expired in the queue.
        let now = now();
        let (mut at, partly, mut dropped_bytes) = (0, self.sent > 0, 0);
        self.queue.retain(|frame| {
            let keep = (at == 0 && partly) || frame.before.is_none_or(|before| now < before);
            at += 1;
            if !keep {
                traffic.late_dropped += 1;
                dropped_bytes += (frame.end - frame.start) as usize + frame.payload_len;
            }
            keep
        });
        self.queue_bytes -= dropped_bytes;
    }

    fn flush_once(&mut self, traffic: &mut Traffic, now: impl Fn() -> Time) -> Result<bool, Errno> {
        self.drop_late(traffic, &now);
        let mut slices: Vec<IoSlice<'_>> =
            Vec::with_capacity((self.queue.len() * 2).min(SLICES_MAX));
        let mut skip = self.sent;
        // Consecutive headers without a payload between them form one slice.
        let mut run: Option<(u64, u64)> = None;
        let front = |(start, end): (u64, u64)| {
            IoSlice::new(
                &self.fronts
                    [(start - self.fronts_base) as usize..(end - self.fronts_base) as usize],
            )
        };
        for frame in &self.queue {
            if slices.len() + 2 + frame.message.payload().len() > SLICES_MAX && !slices.is_empty() {
                break;
            }
            let length = (frame.end - frame.start) as usize;
            let start = frame.start + skip.min(length) as u64;
            skip -= skip.min(length);
            run = match run {
                Some((from, to)) if to == start => Some((from, frame.end)),
                other => {
                    slices.extend(other.map(front));
                    Some((start, frame.end))
                }
            };
            if frame.payload_len > 0 {
                slices.extend(run.take().filter(|(start, end)| start < end).map(front));
                for piece in frame.message.payload() {
                    let past = skip.min(piece.len());
                    skip -= past;
                    if past < piece.len() {
                        slices.push(IoSlice::new(&piece[past..]));
                    }
                }
            }
        }
        slices.extend(run.filter(|(start, end)| start < end).map(front));
        if slices.is_empty() {
            assert!(
                self.queue.is_empty(),
                "{} bytes of the first frame are sent, which is all of it",
                self.sent
            );
            self.blocked = None;
            return Ok(true);
        }
        slices.truncate(1024);
        traffic.sends += 1;
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let result = rustix::net::sendmsg(
            &self.fd,
            &slices,
            &mut SendAncillaryBuffer::default(),
            flags,
        );
        let mut count = match result {
            Ok(count) => count + self.sent,
            Err(Errno::INTR) => return Ok(true),
            Err(Errno::AGAIN) => {
                self.blocked.get_or_insert_with(now);
                return Ok(false);
            }
            Err(errno) => return Err(errno),
        };
        while let Some(first) = self.queue.front() {
            let length = (first.end - first.start) as usize + first.payload_len;
            if count < length {
                break;
            }
            count -= length;
            self.queue_bytes -= length;
            self.queue.pop_front();
            traffic.frames_out += 1;
        }
        self.sent = count;
        self.blocked = None;
        self.trim_fronts();
        Ok(true)
    }

    /// Frees sent headers while the queue never becomes empty.
    fn trim_fronts(&mut self) {
        let first = self
            .queue
            .front()
            .map_or(self.fronts_base + self.fronts.len() as u64, |frame| {
                frame.start
            });
        let gone = (first - self.fronts_base) as usize;
        // The rest is moved: no more bytes than are freed, or a long queue would be moved again and
        // again.
        if gone > FRONTS_KEPT.max(self.fronts.len() - gone) {
            self.fronts.drain(..gone);
            self.fronts_base = first;
        }
    }

    /// The next complete frame.
    pub fn next_frame(&mut self, traffic: &mut Traffic) -> Result<Option<Frame>, FrameError> {
        let frame = self.reader.poll()?;
        traffic.bytes_copied += self.reader.take_copied();
        if let Some(frame) = &frame {
            self.frames += 1;
            traffic.frames_in += 1;
            traffic.payload_in += payload_len(frame.message.payload()) as u64;
        }
        Ok(frame)
    }

    /// Receives once. `taken` counts this wake-up's bytes.
    pub fn receive(&mut self, taken: &mut usize, traffic: &mut Traffic) -> Received {
        let (buffer, most) = self.reader.room();
        let room = buffer.spare_capacity_mut();
        let room_len = room.len().min(most);
        let room = &mut room[..room_len];
        traffic.receives += 1;
        match rustix::net::recv(&self.fd, room, RecvFlags::DONTWAIT) {
            Ok((([], _), _)) => Received::Ended("the peer closed the connection".to_owned()),
            Ok(((filled, _), _)) => {
                let count = filled.len();
                // SAFETY: `recv` reports that it has initialized these bytes of the spare capacity.
                unsafe { buffer.advance_mut(count) };
                *taken += count;
                self.received += count as u64;
                if count < room_len {
                    Received::Drained
                } else {
                    Received::More
                }
            }
            Err(Errno::AGAIN) => Received::Drained,
            Err(Errno::INTR) => Received::More,
            Err(errno) => Received::Ended(errno.to_string()),
        }
    }

    /// How long a frame has made hardly any progress, and the memory reserved for it. Call it
    /// periodically. A peer that sends a byte now and then holds the whole frame's memory: progress
    /// is therefore a fraction of the frame.
    pub fn stalled(&mut self, now: Time) -> (Duration, usize) {
        let unfinished = self.reader.unfinished();
        let moved = self.received - self.progress.received >= (unfinished as u64 / PROGRESS).max(1);
        // A paused connection waits for us; a completed frame restarts the measurement.
        if moved || self.progress.frames != self.frames || unfinished == 0 || self.paused {
            self.progress = Progress {
                received: self.received,
                frames: self.frames,
                at: now,
            };
        }
        (now.since(self.progress.at), unfinished)
    }

    /// How long the peer has read nothing of the pending frames.
    pub fn unread_for(&self, now: Time) -> Duration {
        self.blocked
            .map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Whether this wake-up's share is used up.
    pub fn is_served(taken: usize) -> bool {
        taken >= RECEIVE_TURN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use nacre_types::Version;

    /// TCP has a kernel timeout for this, local sockets have none.
    #[test]
    fn a_peer_that_reads_nothing_is_noticed_and_one_that_reads_slowly_is_not() {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let mut conn = Conn::new(ours.into(), 0, State::Greeting, None, Time::ZERO);
        conn.opened(Entity::Osd(nacre_types::OsdId(1)), Instance(1));
        let reply = OpReply {
            request: Default::default(),
            failure: None,
            version: Version::NONE,
            results: Vec::new(),
            attempt: 1,
        };
        let payload = Bytes::from(vec![0; 4 << 20]);
        conn.push(Epoch::NONE, Message::OpReply(reply, vec![payload]), None);
        let (mut traffic, s) = (Traffic::default(), Duration::from_secs);
        let mut flush = |conn: &mut Conn, at: u64| {
            let done = conn.flush(&mut traffic, || Time::ZERO + s(at));
            done.expect("it is connected")
        };
        assert!(!flush(&mut conn, 1), "4 MiB do not fit");
        assert!(!flush(&mut conn, 9));
        assert_eq!(conn.unread_for(Time::ZERO + s(10)), s(9));
        let mut read = vec![0; 1 << 20];
        std::io::Read::read_exact(&mut theirs, &mut read[..200_000]).expect("it waits there");
        assert!(!flush(&mut conn, 10));
        assert_eq!(conn.unread_for(Time::ZERO + s(11)), s(1), "it reads");
        let reader = std::thread::spawn(move || std::io::copy(&mut theirs, &mut std::io::sink()));
        while !flush(&mut conn, 12) {
            std::thread::yield_now();
        }
        assert_eq!(conn.unread_for(Time::ZERO + s(99)), s(0), "nothing waits");
        drop(conn);
        assert!(reader.join().expect("it reads on").is_ok());
    }

    /// A client began with 16 writes of 4 MiB: those beyond 16 MiB per OSD were dropped, and took
    /// 2.5 s where others took 80 ms.
    #[test]
    fn what_a_client_may_have_in_flight_waits_for_the_handshake() {
        let fd =
            rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("a descriptor");
        let mut conn = Conn::new(fd, 0, State::Connecting, None, Time::ZERO);
        let payload = Bytes::from(vec![0; 16 << 20]);
        let mut push = || {
            let reply = OpReply {
                request: Default::default(),
                failure: None,
                version: Version::NONE,
                results: Vec::new(),
                attempt: 1,
            };
            conn.push(
                Epoch::NONE,
                Message::OpReply(reply, vec![payload.clone()]),
                None,
            )
        };
        assert!((0..8).all(|_| push()), "128 MiB");
        assert!((0..8).any(|_| !push()), "and not for ever more");
    }

    /// (Found by reading the code.) A byte now and then held the memory of a whole frame for hours,
    /// on each of any number of connections.
    #[test]
    fn a_byte_now_and_then_is_no_progress() {
        use std::io::Write as _;
        let (ours, theirs) = pair();
        let mut theirs = std::os::unix::net::UnixStream::from(theirs);
        let mut conn = Conn::new(ours, 0, State::Greeting, None, Time::ZERO);
        conn.opened(Entity::Client(nacre_types::ClientId(1)), Instance(1));
        let payload = Bytes::from(vec![0; 8 << 20]);
        let message =
            Message::OpRequest(nacre_wire::msg::client::OpRequest::default(), vec![payload]);
        let bytes = nacre_wire::Frame {
            epoch: Epoch::NONE,
            message,
        }
        .to_bytes();
        let mut sent = 0;
        let mut come = |conn: &mut Conn, count: usize, seconds: u64| {
            let mut traffic = Traffic::default();
            for part in bytes[sent..sent + count].chunks(4096) {
                theirs.write_all(part).expect("it is read at once");
                while conn.receive(&mut 0, &mut traffic) == Received::More {}
                let _ = conn.next_frame(&mut traffic).expect("a good frame");
            }
            sent += count;
            let (time, reserved) = conn.stalled(Time(seconds * 1_000_000_000));
            (time.as_secs(), reserved >> 20)
        };
        assert_eq!(come(&mut conn, 200_000, 1), (0, 8));
        assert_eq!(come(&mut conn, 1, 2), (1, 8));
        assert_eq!(come(&mut conn, 1, 9), (8, 8));
        assert_eq!(
            come(&mut conn, 200_000, 10),
            (0, 8),
            "more than a part of it"
        );
        assert_eq!(
            come(&mut conn, bytes.len() - 400_002, 20),
            (0, 0),
            "it is whole"
        );
    }

    /// Three reads of 32 MiB in one operation stopped the daemon that answered, and each one that
    /// the client asked after it.
    #[test]
    fn what_does_not_fit_into_a_frame_is_refused_and_ends_nothing() {
        let (ours, _theirs) = pair();
        let mut conn = Conn::new(ours, 0, State::Greeting, None, Time::ZERO);
        conn.opened(Entity::Client(nacre_types::ClientId(1)), Instance(1));
        let payload = vec![Bytes::from(vec![0; 32 << 20]); 3];
        let (results, request) = (Vec::new(), Default::default());
        let reply = OpReply {
            request,
            failure: None,
            version: Version::NONE,
            results,
            attempt: 1,
        };
        assert!(conn.push(Epoch(3), Message::OpReply(reply, payload.clone()), None));
        let refused = |queued: &Queued| match &queued.message {
            Message::OpReply(reply, payload) => {
                reply.failure == Some(OpFailure::TooLarge {}) && payload.is_empty()
            }
            _ => false,
        };
        assert!(conn.queue.iter().all(refused) && conn.queue.len() == 1);
        let update = nacre_wire::msg::replication::Ping { stamp: 1 };
        assert!(
            conn.push(Epoch(3), Message::Ping(update), None),
            "and it goes on"
        );
    }

    fn pair() -> (OwnedFd, OwnedFd) {
        use rustix::net::{AddressFamily, SocketFlags, SocketType};
        rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("two sockets")
    }

    /// Two daemons that started together dialed each other, and the first messages of one were
    /// dropped with its connection: its PGs waited 0.4 or 0.8 s until they were resent, in every
    /// seventh start of a cluster.
    #[test]
    fn what_waits_on_the_connection_that_gives_way_leaves_on_the_other() {
        let (mut traffic, peer) = (Traffic::default(), Entity::Osd(nacre_types::OsdId(1)));
        let ping = |stamp| Message::Ping(nacre_wire::msg::replication::Ping { stamp });
        let mut dialed = Conn::new(pair().0, 0, State::Connecting, Some(peer), Time::ZERO);
        assert!(dialed.push(Epoch(3), ping(7), None) && dialed.push(Epoch(3), ping(8), None));
        let (ours, theirs) = pair();
        let mut taken = Conn::new(ours, 0, State::Greeting, None, Time::ZERO);
        taken.inherit(dialed);
        taken.opened(peer, Instance(1));
        assert!(taken.push(Epoch(3), ping(9), None));
        assert_eq!(taken.flush(&mut traffic, || Time::ZERO), Ok(true));
        let (mut reader, mut bytes) = (nacre_wire::FrameReader::default(), [0; 1024]);
        let count = rustix::io::read(&theirs, &mut bytes).expect("readable");
        reader.push(&bytes[..count]);
        for stamp in [7, 8, 9] {
            assert_eq!(
                reader
                    .poll()
                    .expect("well-formed")
                    .map(|frame| frame.message),
                Some(ping(stamp))
            );
        }
        assert_eq!((taken.queue_bytes(), traffic.frames_out), (0, 3));
    }

    /// A frame with a deadline depends on a lease: once the lease has expired the frame must not be
    /// sent. A partly sent frame must continue, or the following bytes would be read as its rest.
    /// The test sets the clock: with 20 ms of a real one a slow machine was late before anything
    /// was sent.
    #[test]
    fn what_is_late_does_not_leave_unless_it_has_begun_to() {
        let (mut traffic, peer) = (Traffic::default(), Entity::Osd(nacre_types::OsdId(1)));
        let ping = |stamp| Message::Ping(nacre_wire::msg::replication::Ping { stamp });
        let (ours, theirs) = pair();
        let mut conn = Conn::new(ours, 0, State::Greeting, None, Time::ZERO);
        conn.opened(peer, Instance(1));
        let early = Time::ZERO + Duration::from_secs(1);
        conn.push(Epoch(3), ping(1), Some(early));
        conn.push(Epoch(3), ping(2), None);
        // More than a socket accepts: a part is sent, and the rest is late.
        let (results, request) = (Vec::new(), Default::default());
        let reply = OpReply {
            request,
            failure: None,
            version: Version::NONE,
            results,
            attempt: 1,
        };
        let large = Message::OpReply(reply, vec![Bytes::from(vec![5; 8 << 20])]);
        let late = early + Duration::from_millis(20);
        conn.push(Epoch(3), large.clone(), Some(late));
        conn.push(Epoch(3), ping(3), Some(late));
        conn.push(Epoch(3), ping(4), Some(late + Duration::from_secs(1)));
        // The clock is read before each call of the socket, as long as a frame has a deadline.
        let asked = std::cell::Cell::new(0);
        let at = |time: Time| {
            asked.set(asked.get() + 1);
            assert!(asked.get() < 10_000, "the flush never ends");
            time
        };
        assert_eq!(conn.flush(&mut traffic, || at(early)), Ok(false));
        let (mut reader, mut seen) = (nacre_wire::FrameReader::default(), Vec::new());
        let mut bytes = vec![0; 1 << 20];
        while seen.len() < 3 {
            let whole = conn
                .flush(&mut traffic, || at(late))
                .expect("its peer reads");
            let received = rustix::net::recv(&theirs, &mut bytes[..], RecvFlags::DONTWAIT);
            let (_, count) = received.expect("there is more of it");
            reader.push(&bytes[..count]);
            while let Some(frame) = reader.poll().expect("well-formed") {
                seen.push(frame.message);
            }
            assert!(!whole || conn.queue_bytes() == 0);
        }
        assert!(seen == [ping(2), large, ping(4)], "{} frames", seen.len());
        assert_eq!(traffic.late_dropped, 2);
    }

    /// Replies whose lease had expired were dropped, but their payload stayed counted as owed.
    /// After 8 MiB of them nothing was ever taken from that client again.
    #[test]
    fn replies_that_are_dropped_as_late_are_not_owed_any_more() {
        let (mut traffic, lease) = (Traffic::default(), Time::ZERO + Duration::from_secs(1));
        let (ours, _theirs) = pair();
        let mut conn = Conn::new(ours, 0, State::Greeting, None, Time::ZERO);
        conn.opened(Entity::Client(nacre_types::ClientId(1)), Instance(1));
        let payload = Bytes::from(vec![5; QUEUE_BYTES_PAUSE]);
        let (results, request) = (Vec::new(), Default::default());
        let reply = OpReply {
            request,
            failure: None,
            version: Version::NONE,
            results,
            attempt: 1,
        };
        conn.push(
            Epoch(3),
            Message::OpReply(reply, vec![payload]),
            Some(lease),
        );
        assert!(!conn.takes_work(), "so much is owed");
        assert_eq!(conn.flush(&mut traffic, || lease), Ok(true));
        assert_eq!((traffic.late_dropped, traffic.frames_out), (1, 0));
        assert!(
            conn.takes_work() && conn.takes_work_again(lease),
            "nothing is owed"
        );
    }

    /// A read of 8 MiB.
    fn ask(sequence: u64) -> Message {
        use nacre_wire::msg::client::{OpRequest, RequestId, SubOp};
        let request = RequestId {
            sequence,
            ..RequestId::default()
        };
        let ops = vec![SubOp::Read {
            offset: 0,
            length: 8 << 20,
        }];
        let (pg, object) = (
            nacre_types::PgId::replicated(nacre_types::PoolId(1), 0),
            nacre_types::ObjectId::default(),
        );
        let (snaps, dated) = Default::default();
        let request = OpRequest {
            request,
            answered_below: 1,
            pg,
            object,
            ops,
            snaps,
            attempt: 1,
            dated,
            ..OpRequest::default()
        };
        Message::OpRequest(request, Vec::new())
    }

    fn of_client() -> Conn {
        let mut conn = Conn::new(pair().0, 0, State::Greeting, None, Time::ZERO);
        conn.opened(Entity::Client(nacre_types::ClientId(1)), Instance(1));
        conn
    }

    /// A client resends unanswered requests: the answer is owed only once. It was counted each time
    /// but subtracted once, so that the client's requests were no longer read after a while.
    #[test]
    fn a_read_that_is_sent_again_is_owed_once() {
        let mut conn = of_client();
        (0..100).for_each(|_| conn.note_request(&ask(1)));
        assert!(
            conn.takes_work() && conn.owed.bytes() == 8 << 20,
            "{} bytes are owed",
            conn.owed.bytes()
        );
    }

    /// Answers may be lost (with a lease, or refused for an old map): after a while unanswered
    /// requests do not count, or the client would never be read from again. They do count as long
    /// as frames are queued here for the client to read.
    #[test]
    fn answers_that_never_come_do_not_end_a_client() {
        let mut conn = of_client();
        (0..OWED_MAX >> 23).for_each(|n| conn.note_request(&ask(n)));
        conn.paused_at = Time::ZERO + Duration::from_secs(100);
        let later = conn.paused_at + PAUSE_MAX + Duration::from_millis(1);
        assert!(!conn.takes_work() && !conn.takes_work_again(conn.paused_at + PAUSE_MAX));
        conn.push(
            Epoch(1),
            Message::Ping(nacre_wire::msg::replication::Ping { stamp: 1 }),
            None,
        );
        assert!(
            !conn.takes_work_again(later),
            "it has not read what lies here"
        );
        assert_eq!(
            conn.queue.pop_front().map(|frame| frame.payload_len),
            Some(0)
        );
        assert!(conn.takes_work_again(later) && conn.owed.bytes() == 0);
    }

    /// A peer that is always a little behind: the queue never becomes empty. Its sent headers were
    /// kept until it did.
    #[test]
    fn what_has_left_is_not_kept_while_the_queue_is_never_empty() {
        let (ours, theirs) = pair();
        let (mut traffic, mut conn) = (
            Traffic::default(),
            Conn::new(ours, 0, State::Greeting, None, Time::ZERO),
        );
        conn.opened(Entity::Osd(nacre_types::OsdId(1)), Instance(1));
        let (mut reader, mut bytes, mut said, mut seen) =
            (nacre_wire::FrameReader::default(), [0; 4096], 0, 0);
        let say = |conn: &mut Conn, stamp: u64| {
            conn.push(
                Epoch(3),
                Message::Ping(nacre_wire::msg::replication::Ping { stamp }),
                None,
            )
        };
        let mut all = true;
        while all {
            (0..1000).for_each(|n| assert!(say(&mut conn, said + n)));
            said += 1000;
            all = conn
                .flush(&mut traffic, || Time::ZERO)
                .expect("it is there");
        }
        for _ in 0..300 {
            let count = rustix::io::read(&theirs, &mut bytes).expect("readable");
            reader.push(&bytes[..count]);
            while let Some(frame) = reader.poll().expect("well-formed") {
                assert_eq!(
                    frame.message,
                    Message::Ping(nacre_wire::msg::replication::Ping { stamp: seen })
                );
                seen += 1;
            }
            while said < seen + 10_000 {
                assert!(say(&mut conn, said));
                said += 1;
            }
            assert_eq!(
                conn.flush(&mut traffic, || Time::ZERO),
                Ok(false),
                "it never has all"
            );
            let waiting: u64 = conn.queue.iter().map(|frame| frame.end - frame.start).sum();
            assert!(
                conn.fronts.len() <= 2 * waiting as usize + 2 * FRONTS_KEPT,
                "{} of {waiting}",
                conn.fronts.len()
            );
            assert_eq!(conn.queue_bytes(), waiting as usize);
        }
    }

    /// A client may request much more than it reads: the answers owed to it are bounded, and count
    /// until they are sent.
    #[test]
    fn reads_that_are_owed_are_bounded() {
        use nacre_wire::msg::client::RequestId;
        let mut conn = of_client();
        let asked = (1..100)
            .take_while(|sequence| {
                conn.takes_work() && {
                    conn.note_request(&ask(*sequence));
                    true
                }
            })
            .count() as u64;
        assert_eq!(asked, OWED_MAX >> 23);
        conn.note_request(&ask(1));
        for sequence in 1..=asked {
            assert!(!conn.takes_work_again(Time::ZERO) || sequence > asked / 2);
            let request = RequestId {
                sequence,
                ..RequestId::default()
            };
            let reply = OpReply {
                request,
                failure: None,
                version: Version::NONE,
                results: Vec::new(),
                attempt: 1,
            };
            conn.push(Epoch::NONE, Message::OpReply(reply, Vec::new()), None);
        }
        assert!(conn.takes_work() && conn.owed.bytes() == 0);
    }

    /// (Planted by a reviewer.) The kernel takes 1,024 pieces at once. A read of unwritten space is
    /// one piece per block: with more pieces the connection broke, and again with every repetition.
    #[test]
    fn an_answer_of_many_pieces_goes_out() {
        let (ours, theirs) = pair();
        let mut traffic = Traffic::default();
        let mut conn = Conn::new(ours, 0, State::Greeting, None, Time::ZERO);
        conn.opened(Entity::Client(nacre_types::ClientId(1)), Instance(1));
        let payload = vec![Bytes::from_static(&[7; 4096]); 3000];
        let (results, request) = (Vec::new(), Default::default());
        let reply = OpReply {
            request,
            failure: None,
            version: Version::NONE,
            results,
            attempt: 1,
        };
        assert!(conn.push(Epoch(3), Message::OpReply(reply, payload), None));
        rustix::io::ioctl_fionbio(&theirs, true).expect("a socket");
        let (mut reader, mut bytes) = (nacre_wire::FrameReader::default(), vec![0; 1 << 20]);
        for _ in 0..10_000 {
            conn.flush(&mut traffic, || Time::ZERO).expect("it goes");
            if let Ok(count) = rustix::io::read(&theirs, &mut bytes[..]) {
                reader.push(&bytes[..count]);
            }
            if let Some(frame) = reader.poll().expect("well-formed") {
                let length: usize = frame.message.payload().iter().map(Bytes::len).sum();
                assert_eq!(length, 3000 * 4096);
                return;
            }
        }
        panic!("it does not arrive");
    }
}
