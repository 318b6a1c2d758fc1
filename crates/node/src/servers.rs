//! Servers of file systems in their host: there is always a standby.
//!
//! ```text
//!  standby ── takes a rank ──▶ holder          and the next standby is created
//!     ▲── halted (fenced, lease ended) ◀──┘    removed; a new one with a new identity becomes the standby
//! ```
//! Each is a separate client of the cluster, so that it can be fenced without the others; with an
//! external engine as well as with ours.

use crate::any_role::AnyRole;
use crate::clock;
use crate::config::Config;
use crate::daemon::{self, LATE};
use crate::directory;
use crate::error::StartError;
use crate::locks::Lock;
use crate::machine;
use crate::net;
use crate::reactor::{NodeParts, Reactor};
use nacre_client::{Beside, ClientConfig, Engines, Placed, Served};
use nacre_mds::mds::MdsLimits;
use nacre_mds::server::{Server, ServerConfig};
use nacre_types::{ClientId, Entity, Time};
use nacre_wire::fs::FsHolder;
use nacre_wire::map::Address;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Maximum number of servers per process.
const SERVERS_MAX: usize = 64;
/// Delay, per rank that a process has, before it takes a vacant rank: others go first.
const DELAY: Duration = Duration::from_millis(500);
/// Delay before a new server after one has halted: the cause may persist.
const PAUSE: Duration = Duration::from_secs(1);
/// Memory of a cached entry with its inode, in bytes; measured.
const ENTRY_BYTES: u64 = 400;
/// Bounds of the number of cached entries of a server (40 MB and 1.6 GB).
const ENTRIES_LEAST: usize = 100_000;
const ENTRIES_MOST: usize = 4_000_000;

/// See the module head.
pub struct Servers {
    /// Name of the servers as clients.
    name: String,
    /// Their listening address, with one port each; `None`: only callers of this process reach
    /// them.
    host: Option<IpAddr>,
    /// Their engine, if it is not ours.
    engines: Option<Arc<dyn Engines>>,
    all: Vec<Entity>,
    not_before: Time,
}

/// Limits of a server's cache: an eighth of the machine's memory.
fn limits(memory: u64) -> MdsLimits {
    let entries_max = machine::fitting(memory / 8, ENTRY_BYTES, ENTRIES_LEAST..=ENTRIES_MOST);
    MdsLimits {
        entries_max,
        ..MdsLimits::default()
    }
}

/// Default listening address of the servers of a process: from `cluster.toml`, or the address from
/// which this host reaches the monitors. Monitors reached over loopback are on this host, and their
/// address is used.
fn host_of(config: &Config, id: u32) -> Option<IpAddr> {
    let first = || {
        config
            .mons
            .values()
            .find_map(|entry| net::parse(&entry.address))
    };
    let towards = |mon: SocketAddr| match mon.ip() {
        own if own.is_loopback() => own,
        other => net::host_towards(mon).unwrap_or(other),
    };
    config
        .servers
        .get(&id)
        .copied()
        .or_else(|| first().map(towards))
}

impl Servers {
    /// `host`: their listening address; `None`: only callers of this process reach them.
    fn new(name: String, host: Option<IpAddr>) -> Self {
        Self {
            name,
            host,
            engines: None,
            all: Vec::new(),
            not_before: Time::ZERO,
        }
    }
    /// The servers of an embedded cluster.
    pub fn embedded(config: &Config, listen: bool) -> Self {
        Self::new("mds.0".to_owned(), host_of(config, 0).filter(|_| listen))
    }
    /// The servers of an external engine.
    fn beside(engines: Arc<dyn Engines>, name: String, host: Option<IpAddr>) -> Self {
        // Without authentication we only listen on loopback addresses.
        let found = || engines.host().parse().ok().filter(IpAddr::is_loopback);
        let host = host
            .or_else(found)
            .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        Self {
            engines: Some(engines),
            ..Self::new(name, Some(host))
        }
    }

    /// Ensures that there is a standby, and removes halted servers.
    ///
    /// # Errors
    /// The operating system's: no port, for example.
    pub fn look(&mut self, reactor: &mut Reactor) -> Result<(), StartError> {
        let halted = reactor.halted();
        self.all.retain(|who| {
            let gone = halted.iter().any(|(halted, _)| halted == who);
            if gone {
                reactor.kill(*who);
                self.not_before = clock::now() + PAUSE;
            }
            !gone
        });
        let has_rank = |who: &&Entity| match reactor.node(**who).map(|node| &node.role) {
            Some(AnyRole::Mds(server)) => server.service().rank().is_some(),
            _ => false,
        };
        let holders = self.all.iter().filter(has_rank).count();
        if holders == self.all.len() && holders < SERVERS_MAX && self.not_before <= clock::now() {
            // The missing condition may be met later.
            self.not_before = clock::now() + PAUSE;
            self.add(reactor, holders)?;
        }
        Ok(())
    }

    fn add(&mut self, reactor: &mut Reactor, holders: usize) -> Result<(), StartError> {
        let id = ClientId(directory::random_u128() as u64);
        let unix_ms_at_zero = clock::unix_ms_at_zero();
        let config = ClientConfig {
            unix_ms_at_zero,
            ..ClientConfig::new(id)
        };
        let listener = self
            .host
            .map(|host| net::listen_anywhere(&self.name, host))
            .transpose()?;
        let address = listener
            .as_ref()
            .map_or_else(Address::default, |(_, address)| address.clone());
        let me = FsHolder {
            client: id.0,
            instance: config.instance,
            address,
            name: self.name.as_str().into(),
        };
        let delay = DELAY * u32::try_from(holders).unwrap_or(u32::MAX);
        let server = Server::new(ServerConfig {
            me,
            delay,
            unix_ms_at_zero,
            limits: limits(machine::memory()),
        });
        let role = match &self.engines {
            None => Placed::Ours(Served::new(server, config, clock::now())),
            Some(engines) => {
                let engine = engines.open(id, config.instance, reactor.waker().on_other_threads());
                Placed::Other(Beside::new(server, engine))
            }
        };
        let role = AnyRole::Mds(Box::new(role));
        let entity = Entity::Client(id);
        let name = crate::cluster::ADMIN.into();
        reactor.add(NodeParts {
            entity,
            role,
            begun: Vec::new(),
            name,
            store: None,
            listener,
        })?;
        self.all.push(entity);
        Ok(())
    }

    /// Makes them release their ranks, so that others need not wait for the leases.
    pub fn shut_down(&mut self, reactor: &mut Reactor) {
        for who in self.all.drain(..) {
            reactor.shut_down(who);
        }
    }
}

/// Runs servers of file systems until SIGTERM or SIGINT; they listen on ports of that address of
/// this host. Human-readable lines go to `say`.
///
/// # Errors
/// [`StartError`].
pub fn run_mds(
    config: &Config,
    id: u32,
    address: Option<IpAddr>,
    say: &mut dyn FnMut(&str),
) -> Result<(), StartError> {
    let name = format!("mds.{id}");
    let _lock = Lock::daemon(config, &name)?;
    let reactor = daemon::reactor(config, daemon::waker()?, 0)?;
    run(
        reactor,
        Servers::new(name, address.or_else(|| host_of(config, id))),
        say,
    )
}

/// The same on another engine: without a directory there is no lock against a second process of the
/// same name, and none is needed.
///
/// # Errors
/// [`StartError`].
pub fn run_mds_on(
    engines: Arc<dyn Engines>,
    id: u32,
    address: Option<IpAddr>,
    say: &mut dyn FnMut(&str),
) -> Result<(), StartError> {
    let reactor = Reactor::new(engines.cluster(), BTreeMap::new(), daemon::waker()?, 0)?;
    run(
        reactor,
        Servers::beside(engines, format!("mds.{id}"), address),
        say,
    )
}

fn run(
    mut reactor: Reactor,
    mut servers: Servers,
    say: &mut dyn FnMut(&str),
) -> Result<(), StartError> {
    let told = Arc::new(AtomicBool::new(false));
    reactor.watch_signal(daemon::signals(&told)?)?;
    reactor.end_within(told, LATE, |why| daemon::end_process(why, 0));
    while !reactor.is_signalled() {
        servers.look(&mut reactor)?;
        reactor.turn(Duration::from_secs(1));
        for line in reactor.take_said() {
            say(&line);
        }
    }
    servers.shut_down(&mut reactor);
    daemon::drain(&mut reactor);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Servers listened at the first monitor's address, which is impossible on any other host.
    #[test]
    fn servers_listen_where_they_are_told_or_where_they_reach_the_monitors_from() {
        let text = |mon: &str, mds: &str| {
            format!("cluster = \"abc\"\n[[mon]]\nid = 0\naddress = \"{mon}\"\n{mds}")
        };
        let host = |mon: &str, mds: &str, id| {
            host_of(
                &Config::parse(&text(mon, mds), std::path::Path::new("/c")).expect("well-formed"),
                id,
            )
        };
        let of = |text: &str| Some(text.parse::<IpAddr>().expect("an address"));
        let mds = "[[mds]]\nid = 1\naddress = \"127.0.0.9\"\n";
        assert_eq!(
            (host("127.0.0.5:7", mds, 1), host("127.0.0.5:7", mds, 0)),
            (of("127.0.0.9"), of("127.0.0.5"))
        );
        assert_eq!(
            host("", "", 0),
            None,
            "an embedded cluster without addresses"
        );
        assert_eq!(
            net::host_towards("127.0.0.1:7".parse().expect("an address")),
            of("127.0.0.1")
        );
        // Addresses for documentation: no host has them. If there is a route, its local address is
        // another one.
        let elsewhere = "192.0.2.1:7";
        let own = net::host_towards(elsewhere.parse().expect("an address"));
        assert_eq!(host(elsewhere, "", 0), own.or(of("192.0.2.1")));
        assert_ne!(own, of("192.0.2.1"));
    }

    /// A directory of a million entries was repeatedly read in parts, on a machine with much
    /// memory.
    #[test]
    fn a_server_keeps_what_the_machine_has_room_for() {
        let kept = |gib: u64| limits(gib << 30).entries_max;
        assert_eq!((kept(0), kept(1 << 20)), (ENTRIES_LEAST, ENTRIES_MOST));
        assert!((1_300_000..1_400_000).contains(&kept(4)), "{}", kept(4));
        assert!(machine::memory() > 64 << 20);
    }
}
