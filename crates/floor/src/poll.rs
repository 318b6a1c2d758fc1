//! Waiting for connections and one event.

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Identifies the event; peers have small numbers.
const EVENT: u64 = u64::MAX;
const EVENTS: usize = 8;

/// The poll set.
pub struct Poll {
    epoll: OwnedFd,
    event: std::cell::OnceCell<OwnedFd>,
    found: std::cell::RefCell<Vec<epoll::Event>>,
}

/// What happened.
#[derive(Default)]
pub struct Ready {
    /// Ready peers, one bit each.
    peers: u64,
    /// Whether the event fired.
    pub event: bool,
}

impl Ready {
    /// Peers whose connections have bytes to receive, or space to send.
    pub fn peers(&self) -> impl Iterator<Item = usize> + use<> {
        let peers = self.peers;
        (0..64)
            .take_while(move |peer| peers >> peer != 0)
            .filter(move |peer| peers >> peer & 1 != 0)
    }
}

impl Poll {
    /// An empty poll set.
    ///
    /// # Errors
    /// When the kernel lacks the resources.
    pub fn new() -> Result<Self> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).context("creating an epoll instance")?;
        Ok(Self {
            epoll,
            event: std::cell::OnceCell::new(),
            found: Vec::with_capacity(EVENTS).into(),
        })
    }

    /// Watches a connection.
    ///
    /// # Errors
    /// When the kernel lacks the resources.
    pub fn add(&self, socket: impl AsFd, peer: usize) -> Result<()> {
        let data = epoll::EventData::new_u64(peer as u64);
        epoll::add(&self.epoll, socket, data, epoll::EventFlags::IN)
            .context("watching a connection")
    }

    /// Enables or disables waiting for space to send.
    ///
    /// # Errors
    /// When the connection is not in the poll set.
    pub fn watch_room(&self, socket: impl AsFd, peer: usize, room: bool) -> Result<()> {
        let data = epoll::EventData::new_u64(peer as u64);
        let room = if room {
            epoll::EventFlags::OUT
        } else {
            epoll::EventFlags::empty()
        };
        epoll::modify(&self.epoll, socket, data, epoll::EventFlags::IN | room)
            .context("watching a connection")
    }

    /// Watches the event.
    ///
    /// # Errors
    /// When the kernel lacks the resources.
    pub fn add_event(&self, event: &OwnedFd) -> Result<()> {
        let data = epoll::EventData::new_u64(EVENT);
        epoll::add(&self.epoll, event, data, epoll::EventFlags::IN).context("watching an event")?;
        let event = event.try_clone().context("watching an event")?;
        self.event.set(event).ok().context("one event is watched")
    }

    /// Waits until something happens or `until` is reached.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn wait(&self, until: Option<Instant>, ready: &mut Ready) -> Result<()> {
        let timeout = until.map(|until| timespec(until.saturating_duration_since(Instant::now())));
        let mut found = self.found.borrow_mut();
        found.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut found), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(why) => return Err(why).context("waiting for events"),
        }
        for event in found.iter() {
            match event.data.u64() {
                EVENT => {
                    let event = self.event.get().expect("it was added");
                    rustix::io::read(event, &mut [0; 8][..]).context("reading an event")?;
                    ready.event = true;
                }
                peer => ready.peers |= 1 << peer,
            }
        }
        Ok(())
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec::try_from(duration).expect("waits are short")
}
