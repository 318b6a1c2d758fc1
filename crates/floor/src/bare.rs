//! Large reads over three plain sockets: one byte requests an object, and its bytes are sent from
//! memory, without a header and a checksum. The rate of `nacre` is stated as a fraction of this.

use crate::measure::{Clock, Counters, Outcome, Phase, SILENCE_MAX};
use crate::poll::{Poll, Ready};
use crate::workload::Row;
use crate::{CLIENT, OSDS, usage};
use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Requests an object.
const OBJECT: u8 = 1;
/// Requests the CPU time used: 8 bytes, after all objects requested before.
const USAGE: u8 = 2;
/// Maximum number of bytes received with one call.
const RECEIVED_MAX: usize = 1 << 20;

/// Serves until the client has closed its connection.
///
/// # Errors
/// When the connection fails.
pub fn serve(size: usize, mut sockets: Vec<Option<TcpStream>>) -> Result<()> {
    let mut client = sockets[CLIENT]
        .take()
        .context("no connection to the client")?;
    let (data, mut request) = (vec![1; size], [0]);
    loop {
        match client.read(&mut request) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(why) if why.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(why) => return Err(why).context("receiving a request"),
        }
        let sent = if request == [OBJECT] {
            client.write_all(&data)
        } else {
            client.write_all(&usage::cpu_ns().to_le_bytes())
        };
        match sent {
            Err(why)
                if matches!(
                    why.kind(),
                    ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                ) =>
            {
                return Ok(());
            }
            sent => sent.context("sending")?,
        }
    }
}

/// The next item on a connection.
enum Expected {
    Object(Instant),
    Usage,
}

struct Link {
    socket: TcpStream,
    expected: VecDeque<Expected>,
    /// Number of bytes of the next item received so far.
    filled: usize,
    used: [u8; 8],
}

/// Runs the load.
///
/// # Errors
/// When an OSD ends or stops responding.
pub fn run(row: &Row, length: Duration, sockets: Vec<Option<TcpStream>>) -> Result<Outcome> {
    ensure!(row.size > 0, "--size of large reads is at least 1");
    let poll = Poll::new()?;
    let mut links = Vec::new();
    for (osd, socket) in sockets.into_iter().flatten().enumerate() {
        poll.add(&socket, osd)?;
        links.push(Link {
            socket,
            expected: VecDeque::new(),
            filled: 0,
            used: [0; 8],
        });
    }
    let mut memory = vec![0; row.size.max(8)];
    let mut clock = Clock::new(length);
    for at in 0..row.depth {
        links[at % OSDS].ask(OBJECT)?;
    }
    let (mut asked, mut told) = (Phase::Load, 0);
    loop {
        let phase = clock.phase(Instant::now());
        if asked == Phase::Load && phase != Phase::Load {
            links.iter_mut().try_for_each(|link| link.ask(USAGE))?;
            asked = phase;
        }
        let mut ready = Ready::default();
        poll.wait(Some(Instant::now() + SILENCE_MAX), &mut ready)?;
        ensure!(
            ready.peers().next().is_some(),
            "no OSD has sent anything in {} s",
            SILENCE_MAX.as_secs()
        );
        for osd in ready.peers() {
            match links[osd].receive(&mut memory, row.size)? {
                Some(Expected::Object(begun)) => {
                    clock.done(begun.elapsed());
                    links[osd].ask(OBJECT)?;
                }
                Some(Expected::Usage) => told += 1,
                None => {}
            }
        }
        if told == OSDS {
            told = 0;
            let osds_ns = links
                .iter()
                .map(|link| u64::from_le_bytes(link.used))
                .collect();
            let counters = Counters {
                osds_ns,
                groups: [0; 2],
            };
            if asked == Phase::End {
                return Ok(clock.end(&counters));
            }
            clock.start(counters);
            asked = Phase::Load;
        }
    }
}

impl Link {
    fn ask(&mut self, what: u8) -> Result<()> {
        let expected = if what == OBJECT {
            Expected::Object(Instant::now())
        } else {
            Expected::Usage
        };
        self.expected.push_back(expected);
        self.socket.write_all(&[what]).context("sending a request")
    }

    /// Receives bytes; returns the item that they complete.
    fn receive(&mut self, memory: &mut [u8], size: usize) -> Result<Option<Expected>> {
        let whole = if matches!(self.expected.front(), Some(Expected::Usage)) {
            8
        } else {
            size
        };
        let room = if whole == 8 {
            &mut self.used[self.filled..]
        } else {
            &mut memory[self.filled..size]
        };
        let most = room.len().min(RECEIVED_MAX);
        let count = match recv(&self.socket, &mut room[..most], RecvFlags::DONTWAIT) {
            Ok((count, _)) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(why) => return Err(why).context("receiving"),
        };
        ensure!(count > 0, "an OSD has ended");
        self.filled += count;
        if self.filled < whole {
            return Ok(None);
        }
        self.filled = 0;
        Ok(self.expected.pop_front())
    }
}
