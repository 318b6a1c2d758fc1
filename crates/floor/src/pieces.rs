//! An OSD for large writes, and their client. A write is split into pieces; a primary forwards each
//! as it arrives, and every OSD writes it from the memory into which it was received.
//!
//! ```text
//!  client ──pieces──▶ primary ──pieces──▶ two replicas       written by all: past the page cache,
//!  client ◀──reply once the last piece is durable everywhere──  one flush for what is there
//! ```

use crate::acks::Progress;
use crate::disk::Disk;
use crate::frame::{Body, Kind, checksum};
use crate::log::Marks;
use crate::measure::{Clock, Counters, Outcome, Phase, SILENCE_MAX};
use crate::memory::Aligned;
use crate::poll::{Poll, Ready};
use crate::random::Random;
use crate::stream::{Arrival, PIECE, Piece, Pool, Stream};
use crate::workload::Row;
use crate::{CLIENT, OSDS, usage};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs::File;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections of a process, by peer.
struct Peers {
    poll: Poll,
    streams: Vec<Option<Stream>>,
    pool: Pool,
}

impl Peers {
    fn new(sockets: Vec<Option<TcpStream>>) -> Result<Self> {
        let poll = Poll::new()?;
        let stream = |(peer, socket): (usize, Option<TcpStream>)| {
            socket
                .map(|socket| Stream::new(socket, peer, &poll))
                .transpose()
        };
        let streams = sockets
            .into_iter()
            .enumerate()
            .map(stream)
            .collect::<Result<_>>()?;
        Ok(Self {
            poll,
            streams,
            pool: Pool::default(),
        })
    }

    fn send(
        &mut self,
        to: usize,
        kind: Kind,
        body: &Body,
        payload: Option<Arc<Aligned>>,
        crc: u32,
    ) -> Result<()> {
        let stream = self.streams[to]
            .as_mut()
            .context("no connection to a peer")?;
        stream.send(kind, body, payload, crc, &self.poll)
    }

    /// The next frame of a ready peer; `None` if there is none now.
    fn next(&mut self, peer: usize) -> Result<Arrival> {
        self.streams[peer]
            .as_mut()
            .context("no connection to a peer")?
            .receive(&mut self.pool)
    }

    /// Waits, and sends what the sockets accept.
    fn wait(&mut self, until: Option<Instant>) -> Result<Ready> {
        let mut ready = Ready::default();
        self.poll.wait(until, &mut ready)?;
        for peer in ready.peers() {
            self.streams[peer]
                .as_mut()
                .context("no connection to a peer")?
                .drain(&self.poll)?;
        }
        Ok(ready)
    }
}

struct Osd {
    me: usize,
    peers: Peers,
    disk: Disk,
    progress: Progress,
    durable: Marks,
    told: Marks,
    groups: u64,
    pieces: u64,
}

/// Serves until the client has closed its connection.
///
/// # Errors
/// When anything fails.
pub fn serve(me: usize, sockets: Vec<Option<TcpStream>>, file: File) -> Result<()> {
    let (peers, disk) = (Peers::new(sockets)?, Disk::start(file)?);
    peers.poll.add_event(disk.event())?;
    let progress = Progress::new(me);
    let mut osd = Osd {
        me,
        peers,
        disk,
        progress,
        durable: [0; OSDS],
        told: [0; OSDS],
        groups: 0,
        pieces: 0,
    };
    loop {
        let ready = osd.peers.wait(None)?;
        for peer in ready.peers() {
            loop {
                match osd.peers.next(peer)? {
                    Arrival::Whole(piece) => osd.take(peer, piece)?,
                    Arrival::Later => break,
                    Arrival::Ended => return Ok(()),
                }
            }
        }
        osd.tell()?;
    }
}

impl Osd {
    fn take(&mut self, peer: usize, piece: Piece) -> Result<()> {
        match piece.kind {
            Kind::Write => {
                let data = piece.payload.context("a write without data")?;
                let version = self.progress.submit(piece.body.request);
                let body = Body {
                    version,
                    ..piece.body
                };
                for replica in (0..OSDS).filter(|replica| *replica != self.me) {
                    self.peers.send(
                        replica,
                        Kind::Replicate,
                        &body,
                        Some(data.clone()),
                        piece.crc,
                    )?;
                }
                self.disk.write(data, (self.me, version))
            }
            Kind::Replicate => {
                let data = piece.payload.context("a write without data")?;
                self.disk.write(data, (peer, piece.body.version))
            }
            Kind::Acknowledge => self.progress.acknowledged(peer, piece.body.version),
            Kind::Usage => {
                let body = Body::of(0, self.groups, usage::cpu_ns(), self.pieces);
                self.peers.send(peer, Kind::Used, &body, None, 0)
            }
            kind => bail!("{kind:?} is not for OSDs of large writes"),
        }
    }

    fn tell(&mut self) -> Result<()> {
        let (durable, pieces) = (&mut self.durable, &mut self.pieces);
        self.groups += self.disk.durable(|origin, version| {
            durable[origin] = version;
            *pieces += 1;
        })? as u64;
        for primary in (0..OSDS).filter(|primary| *primary != self.me) {
            let version = self.durable[primary];
            if version > self.told[primary] {
                self.told[primary] = version;
                self.peers.send(
                    primary,
                    Kind::Acknowledge,
                    &Body::of(0, 0, version, 0),
                    None,
                    0,
                )?;
            }
        }
        self.progress.logged(self.durable[self.me]);
        let mut replies = Vec::new();
        self.progress.release(|request, version| {
            // Only the last piece of a write carries the number of its request.
            if request != 0 {
                replies.push(Body::of(request, 0, version, 0));
            }
        });
        replies
            .iter()
            .try_for_each(|body| self.peers.send(CLIENT, Kind::Reply, body, None, 0))
    }
}

/// Runs the load.
///
/// # Errors
/// When an OSD ends or stops responding.
pub fn run(row: &Row, length: Duration, sockets: Vec<Option<TcpStream>>) -> Result<Outcome> {
    ensure!(
        row.size > 0 && row.size.is_multiple_of(PIECE),
        "--size of large writes is a multiple of {PIECE}"
    );
    let data = (0..row.size / PIECE).map(|_| {
        let mut piece = Aligned::zeroed(PIECE);
        piece.bytes_mut().fill(0x5a);
        Arc::new(piece)
    });
    let data: Vec<Arc<Aligned>> = data.collect();
    let (mut peers, mut random, mut clock) =
        (Peers::new(sockets)?, Random::new(), Clock::new(length));
    let (mut requests, mut sent) = (0, BTreeMap::new());
    let (mut used, mut now, mut asked) = (Vec::new(), Instant::now(), Phase::Load);
    loop {
        let phase = clock.phase(now);
        if asked == Phase::Load && phase != Phase::Load {
            for osd in 0..OSDS {
                peers.send(osd, Kind::Usage, &Body::of(0, 0, 0, 0), None, 0)?;
            }
            asked = phase;
        }
        while sent.len() < row.depth {
            requests += 1;
            let primary = random.below(OSDS as u64) as usize;
            sent.insert(requests, Instant::now());
            for (at, piece) in data.iter().enumerate() {
                let request = if at + 1 == data.len() { requests } else { 0 };
                let crc = checksum(piece.bytes());
                peers.send(
                    primary,
                    Kind::Write,
                    &Body::of(request, 0, 0, 0),
                    Some(piece.clone()),
                    crc,
                )?;
            }
        }
        let ready = peers.wait(Some(Instant::now() + SILENCE_MAX))?;
        now = Instant::now();
        for peer in ready.peers() {
            loop {
                match peers.next(peer)? {
                    Arrival::Whole(piece) if piece.kind == Kind::Used => {
                        used.push((peer, piece.body))
                    }
                    Arrival::Whole(piece) => {
                        let begun = sent
                            .remove(&piece.body.request)
                            .context("a reply to no request")?;
                        clock.done(now - begun);
                    }
                    Arrival::Later => break,
                    Arrival::Ended => bail!("an OSD has ended"),
                }
            }
        }
        let silent = sent
            .values()
            .next()
            .is_some_and(|oldest| now.duration_since(*oldest) > SILENCE_MAX);
        ensure!(
            !silent,
            "a write had no reply in {} s",
            SILENCE_MAX.as_secs()
        );
        if used.len() == OSDS {
            used.sort_by_key(|(osd, _)| *osd);
            let bodies: Vec<Body> = used.drain(..).map(|(_, body)| body).collect();
            let counters = Counters::of(&bodies);
            if asked == Phase::End {
                return Ok(clock.end(&counters));
            }
            clock.start(counters);
            asked = Phase::Load;
        }
    }
}
