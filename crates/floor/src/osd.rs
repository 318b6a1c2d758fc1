//! An OSD for small operations: primary of a third of the objects, replica of the others.
//!
//! ```text
//!  wait ─▶ take in all frames ─▶ send ─▶ write a group of the log ─▶ acknowledge, reply ─▶ send
//! ```
//! Updates are sent to the replicas before they are written to the own log. One acknowledgement per
//! turn reports to a primary everything that has become durable.

use crate::acks::Progress;
use crate::frame::{Body, Kind, checksum};
use crate::log::{Log, Marks};
use crate::net::{Frame, Net, Payload};
use crate::state::State;
use crate::usage;
use crate::workload::name_of;
use crate::{CLIENT, OSDS};
use anyhow::{Context, Result, bail};
use std::hint::black_box;

/// Dependent multiplications in place of an interpreter: some 8 µs.
const CALL_WORK: u64 = 6_500;

/// Startup settings of an OSD.
pub struct Settings {
    /// Its number.
    pub id: usize,
    /// Expected number of objects.
    pub objects: u64,
    /// Size of an object that is read, in bytes.
    pub size: usize,
    /// Whether the objects exist from the beginning, to be read.
    pub filled: bool,
}

struct Osd {
    me: usize,
    size: usize,
    net: Net,
    log: Log,
    state: State,
    progress: Progress,
    /// The durable versions already acknowledged to other primaries.
    told: Marks,
    /// Data of objects for reads.
    memory: Vec<u8>,
}

/// Serves until the client has closed its connection.
///
/// # Errors
/// When anything fails.
pub fn serve(settings: &Settings, net: Net, log: Log) -> Result<()> {
    net.watch(log.event())?;
    let mut osd = Osd {
        me: settings.id,
        size: settings.size,
        net,
        log,
        state: State::new(usize::try_from(settings.objects).context("too many objects")?),
        progress: Progress::new(settings.id),
        told: [0; OSDS],
        memory: Vec::new(),
    };
    if settings.filled {
        osd.fill(settings.objects)?;
    }
    let mut again = None;
    loop {
        if osd.net.wait(again)? {
            osd.log.flushed()?;
        }
        if osd.net.has_ended() {
            return Ok(());
        }
        again = osd.turn()?;
    }
}

impl Osd {
    /// Creates the objects of which this OSD is the primary.
    fn fill(&mut self, objects: u64) -> Result<()> {
        for (index, object) in (self.me as u64..objects).step_by(OSDS).enumerate() {
            let body = Body {
                name: name_of(object),
                ..Body::of(object + 1, object, 1, object)
            };
            self.state
                .apply(&body, &[], self.size, 0, (index * self.size) as u64)?;
        }
        self.memory = vec![1; objects.div_ceil(OSDS as u64) as usize * self.size];
        Ok(())
    }

    fn turn(&mut self) -> Result<Option<std::time::Instant>> {
        for peer in 0..=CLIENT {
            while let Some(frame) = self.net.next(peer)? {
                self.take(peer, &frame)?;
            }
        }
        self.net.flush(&self.memory)?;
        let again = self.log.advance(&self.net)?;
        self.tell()?;
        self.net.flush(&self.memory)?;
        self.net.forget();
        Ok(again)
    }

    fn take(&mut self, peer: usize, frame: &Frame) -> Result<()> {
        match frame.kind {
            Kind::Write => self.update(frame),
            Kind::Call => {
                interpret();
                self.update(frame)
            }
            Kind::Replicate => {
                self.apply(frame, &frame.body)?;
                self.log.add(&self.net, frame, peer, frame.body.version)
            }
            Kind::Acknowledge => self.progress.acknowledged(peer, frame.body.version),
            Kind::Read => self.read(frame),
            Kind::Usage => {
                let body = Body::of(0, self.log.groups, usage::cpu_ns(), self.log.updates);
                self.net.push(peer, Kind::Used, &body, Payload::None, 0);
                Ok(())
            }
            kind @ (Kind::Reply | Kind::Data | Kind::Used) => bail!("{kind:?} is not for OSDs"),
        }
    }

    fn update(&mut self, frame: &Frame) -> Result<()> {
        let version = self.progress.submit(frame.body.request);
        let body = Body {
            version,
            ..frame.body
        };
        self.apply(frame, &body)?;
        for replica in (0..OSDS).filter(|replica| *replica != self.me) {
            let payload = Payload::Received(frame.payload);
            self.net
                .push(replica, Kind::Replicate, &body, payload, frame.payload_crc);
        }
        self.log.add(&self.net, frame, self.me, version)
    }

    fn apply(&mut self, frame: &Frame, body: &Body) -> Result<()> {
        let (record, place) = (self.net.bytes(frame.body_bytes), self.log.position());
        self.state
            .apply(body, record, frame.payload.len, frame.payload_crc, place)
    }

    fn read(&mut self, frame: &Frame) -> Result<()> {
        let slot = self
            .state
            .objects
            .find(&frame.body.name)
            .context("a read of an object that is not there")?;
        let place = usize::try_from(slot.place).context("a place beyond memory")?;
        let data = place..place + self.size;
        let crc = checksum(&self.memory[data.clone()]);
        let body = Body::of(
            frame.body.request,
            frame.body.object,
            slot.version,
            frame.body.group,
        );
        self.net
            .push(CLIENT, Kind::Data, &body, Payload::Memory(data), crc);
        Ok(())
    }

    /// Sends acknowledgements to primaries, and replies to the client, for updates that have become
    /// durable.
    fn tell(&mut self) -> Result<()> {
        let durable = self.log.durable();
        for primary in (0..OSDS).filter(|primary| *primary != self.me) {
            if durable[primary] > self.told[primary] {
                self.told[primary] = durable[primary];
                let body = Body::of(0, 0, durable[primary], 0);
                self.net
                    .push(primary, Kind::Acknowledge, &body, Payload::None, 0);
            }
        }
        self.progress.logged(durable[self.me]);
        let net = &mut self.net;
        self.progress.release(|request, version| {
            net.push(
                CLIENT,
                Kind::Reply,
                &Body::of(request, 0, version, 0),
                Payload::None,
                0,
            );
        });
        Ok(())
    }
}

fn interpret() {
    let mut number = black_box(1_u64);
    for _ in 0..CALL_WORK {
        number = black_box(number.wrapping_mul(6_364_136_223_846_793_005))
            .wrapping_add(1_442_695_040_888_963_407);
    }
    black_box(number);
}
