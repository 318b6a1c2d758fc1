//! The client of small operations: a fixed number in flight, each sent to the primary of its
//! object.

use crate::frame::{Body, Kind, checksum};
use crate::measure::{Clock, Counters, Outcome, Phase, SILENCE_MAX};
use crate::net::{Net, Payload};
use crate::state::GROUPS;
use crate::workload::{Row, Work, name_of};
use crate::{OSDS, random::Random};
use anyhow::{Result, bail, ensure};
use std::time::{Duration, Instant};

/// Bytes that a connection buffers while nothing is received: more in flight could block both ends.
const IN_FLIGHT_MAX: usize = 512 << 10;

struct Client<'a> {
    row: &'a Row,
    objects: u64,
    net: Net,
    payload: Vec<u8>,
    random: Random,
    requests: u64,
    /// Send time of each request in flight, by number.
    sent: Vec<Instant>,
    in_flight: usize,
    /// When the last frame from an OSD arrived.
    heard: Instant,
}

/// Runs the load.
///
/// # Errors
/// When an OSD ends or stops responding.
pub fn run(row: &Row, objects: u64, length: Duration, net: Net) -> Result<Outcome> {
    ensure!(
        row.depth * row.size <= IN_FLIGHT_MAX,
        "depth × size must be at most {} KiB",
        IN_FLIGHT_MAX >> 10
    );
    let payload = vec![0x5a; row.size];
    let sent = vec![Instant::now(); row.depth.next_power_of_two() * 4096];
    let random = Random::new();
    let mut now = Instant::now();
    let mut client = Client {
        row,
        objects,
        net,
        payload,
        random,
        requests: 0,
        sent,
        in_flight: 0,
        heard: now,
    };
    let mut clock = Clock::new(length);
    loop {
        match clock.phase(now) {
            Phase::Load => {}
            Phase::Start => {
                let counters = client.counters(&mut clock)?;
                clock.start(counters);
            }
            Phase::End => {
                let counters = client.counters(&mut clock)?;
                return Ok(clock.end(&counters));
            }
        }
        client.send(now)?;
        now = client.receive(&mut clock, None)?;
    }
}

impl Client<'_> {
    fn send(&mut self, now: Instant) -> Result<()> {
        while self.in_flight < self.row.depth {
            self.requests += 1;
            let request = self.requests;
            let object = match self.row.work {
                Work::New => request,
                _ => self.random.below(self.objects),
            };
            let slot = request as usize % self.sent.len();
            self.sent[slot] = now;
            let body = Body {
                name: name_of(object),
                ..Body::of(request, object, 0, object % GROUPS)
            };
            let primary = (object % OSDS as u64) as usize;
            if self.row.work.reads() {
                self.net.push(primary, Kind::Read, &body, Payload::None, 0);
            } else {
                let kind = if self.row.work == Work::Call {
                    Kind::Call
                } else {
                    Kind::Write
                };
                let crc = checksum(&self.payload);
                self.net.push(
                    primary,
                    kind,
                    &body,
                    Payload::Memory(0..self.payload.len()),
                    crc,
                );
            }
            self.in_flight += 1;
        }
        self.net.flush(&self.payload)
    }

    /// Waits for replies and processes them; returns the time of their arrival.
    fn receive(
        &mut self,
        clock: &mut Clock,
        mut counters: Option<&mut Vec<Body>>,
    ) -> Result<Instant> {
        self.net.wait(Some(Instant::now() + SILENCE_MAX))?;
        ensure!(!self.net.has_ended(), "an OSD has ended");
        let now = Instant::now();
        for osd in 0..OSDS {
            while let Some(frame) = self.net.next(osd)? {
                self.heard = now;
                match (frame.kind, &mut counters) {
                    (Kind::Reply | Kind::Data, _) => {
                        let slot = frame.body.request as usize % self.sent.len();
                        clock.done(now - self.sent[slot]);
                        self.in_flight -= 1;
                    }
                    // Such a frame belongs to no request: its request field holds the OSD.
                    (Kind::Used, Some(all)) => all.push(Body {
                        request: osd as u64,
                        ..frame.body
                    }),
                    (kind, _) => bail!("{kind:?} is not for clients"),
                }
            }
        }
        ensure!(
            now < self.heard + SILENCE_MAX,
            "no OSD has replied in {} s",
            SILENCE_MAX.as_secs()
        );
        self.net.forget();
        Ok(now)
    }

    /// Requests the counters of every OSD.
    fn counters(&mut self, clock: &mut Clock) -> Result<Counters> {
        for osd in 0..OSDS {
            self.net
                .push(osd, Kind::Usage, &Body::of(0, 0, 0, 0), Payload::None, 0);
        }
        self.net.flush(&[])?;
        let mut all = Vec::new();
        while all.len() < OSDS {
            // The load continues meanwhile.
            let now = self.receive(clock, Some(&mut all))?;
            self.send(now)?;
        }
        all.sort_by_key(|body| body.request);
        Ok(Counters::of(&all))
    }
}
