//! Networks that can be cut: as root, a network namespace for each daemon, and one for clients, on
//! one bridge.
//!
//! ```text
//!  clients 127.77.0.250 ─┐                      mounts are clients; the one that is mistreated has a network of its own
//!  mon.0   127.77.0.1 ───┤ bridge nc23000      a cut: the one that sends has a neighbour's address that nobody bears,
//!  osd.0   127.77.0.4 ───┘                      so what it sends goes nowhere, in that direction only, and nobody is told
//! ```
//! Daemons listen only on loopback addresses, so the namespaces route those (`route_localnet`).
//! Programs are started there by `nsenter`: `ip netns exec` gives each a separate mount namespace,
//! which would keep a file system that is unmounted here.
//!
//! Without root everything is on one loopback, and no cut is possible. Nor are namespaces made if
//! `--only` does not list `net`: daemons then connect over local sockets (`node/src/net.rs`), which
//! do not reach into another namespace.

use super::plan::{MONS, OSDS, SERVERS, VICTIM, Who};
use crate::bounded;
use anyhow::{Context, Result};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const COMMAND_MAX: Duration = Duration::from_secs(20);
/// A hardware address that no interface has.
const NOBODY: &str = "02:00:00:00:00:fe";
const CLIENTS: u32 = 250;

/// A cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Messages from the first do not reach the second.
    OneWay(Who, Who),
    /// Messages between the two are lost in both directions.
    Pair(Who, Who),
    /// No messages between this one and other daemons; clients can reach it, unless it is a client
    /// itself.
    Off(Who),
    /// These can reach each other and clients, but no other daemon.
    Apart(Vec<Who>),
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneWay(from, to) => write!(f, "{to} does not hear {from}"),
            Self::Pair(a, b) => write!(f, "{a} and {b} do not hear each other"),
            Self::Off(who) => write!(f, "{who} is cut off"),
            Self::Apart(these) => {
                let these: Vec<String> = these.iter().map(Who::to_string).collect();
                write!(f, "{} apart from the others", these.join(" "))
            }
        }
    }
}

/// All daemons.
fn all() -> impl Iterator<Item = Who> {
    (0..MONS)
        .map(Who::Mon)
        .chain((0..OSDS).map(Who::Osd))
        .chain((0..SERVERS).map(Who::Mds))
}

impl Cut {
    /// The processes named in the cut.
    pub fn named(&self) -> Vec<Who> {
        match self {
            Self::OneWay(a, b) | Self::Pair(a, b) => vec![*a, *b],
            Self::Off(who) => vec![*who],
            Self::Apart(these) => these.clone(),
        }
    }
    /// The cut directions: from, to.
    pub fn ways(&self) -> Vec<(Who, Who)> {
        let both = |a: Who, b: Who| [(a, b), (b, a)];
        match self {
            Self::OneWay(from, to) => vec![(*from, *to)],
            Self::Pair(a, b) => both(*a, *b).to_vec(),
            Self::Off(who) => all()
                .filter(|other| other != who)
                .flat_map(|other| both(*who, other))
                .collect(),
            Self::Apart(these) => {
                let others = || all().filter(|other| !these.contains(other));
                these
                    .iter()
                    .flat_map(|one| others().flat_map(move |other| both(*one, other)))
                    .collect()
            }
        }
    }
}

/// The networks of a run.
pub struct Net {
    base_port: u16,
    /// Why everything is on one loopback; none: it is not.
    why_not: Option<String>,
}

fn run(program: &str, words: &[&str]) -> Result<String> {
    bounded::printed(Command::new(program).args(words), COMMAND_MAX)
}
fn ip(words: &str) -> Result<()> {
    run("ip", &words.split(' ').collect::<Vec<_>>()).map(drop)
}

/// The last part of a daemon's address: in the order in which `cluster init` numbers them, then
/// servers.
fn host(who: Who) -> u32 {
    match who {
        Who::Mon(id) => 1 + id,
        Who::Osd(id) => 1 + MONS + id,
        Who::Mds(id) => 1 + MONS + OSDS + id,
        VICTIM => 1 + MONS + OSDS + SERVERS,
        Who::Mount(_) => CLIENTS,
    }
}
/// The last part of all addresses.
fn hosts() -> impl Iterator<Item = u32> {
    all().chain([VICTIM]).map(host).chain([CLIENTS])
}

impl Net {
    /// Creates the namespaces, if `cuts` are wanted; if that is not possible, records why.
    pub fn make(base_port: u16, cuts: bool) -> Self {
        let mut net = Self {
            base_port,
            why_not: (!cuts).then(|| "none is asked for".to_owned()),
        };
        net.remove();
        if !cuts {
            return net;
        }
        if let Err(why) = net.namespaces() {
            net.remove();
            net.why_not = Some(format!("{why:#}"));
        }
        net
    }

    /// The reason why nothing can be cut.
    pub fn why_not(&self) -> Option<&str> {
        self.why_not.as_deref()
    }

    /// The first daemon's address, if each has one of its own.
    pub fn first(&self) -> Option<&'static str> {
        self.why_not.is_none().then_some("127.77.0.1")
    }

    /// The address at which a daemon listens.
    pub fn address(&self, who: Who) -> String {
        let port = u32::from(self.base_port) + host(who) - 1;
        if self.why_not.is_some() {
            format!("127.0.0.1:{port}")
        } else {
            format!("127.77.0.{}:{port}", host(who))
        }
    }

    fn bridge(&self) -> String {
        format!("nc{}", self.base_port)
    }
    fn name(&self, host: u32) -> String {
        format!("nacre-{}-{host}", self.base_port)
    }

    fn namespaces(&self) -> Result<()> {
        let bridge = self.bridge();
        ip(&format!("link add {bridge} type bridge"))?;
        ip(&format!("link set {bridge} up"))?;
        for host in hosts() {
            let (name, link) = (self.name(host), format!("{bridge}-{host}"));
            ip(&format!("netns add {name}"))?;
            ip(&format!(
                "link add {link} type veth peer name e0 netns {name}"
            ))?;
            ip(&format!("link set {link} master {bridge} up"))?;
            ip(&format!("-n {name} link set lo up"))?;
            // Otherwise all of 127.0.0.0/8 would be this host's.
            ip(&format!("-n {name} addr del 127.0.0.1/8 dev lo"))?;
            ip(&format!("-n {name} addr add 127.0.0.1/32 dev lo"))?;
            ip(&format!("-n {name} addr add 127.77.0.{host}/24 dev e0"))?;
            for what in ["all", "e0"] {
                let set = format!("echo 1 > /proc/sys/net/ipv4/conf/{what}/route_localnet");
                run("ip", &["netns", "exec", &name, "sh", "-c", &set])?;
            }
            ip(&format!("-n {name} link set e0 up"))?;
        }
        Ok(())
    }

    fn remove(&self) {
        for host in hosts() {
            let _ = ip(&format!("netns del {}", self.name(host)));
        }
        let _ = ip(&format!("link del {}", self.bridge()));
    }

    fn namespace(&self, host: u32) -> Option<PathBuf> {
        let there = self.why_not.is_none();
        there.then(|| Path::new("/var/run/netns").join(self.name(host)))
    }
    /// A daemon's namespace; none: that of this process.
    pub fn of(&self, who: Who) -> Option<PathBuf> {
        self.namespace(host(who))
    }
    /// The clients' namespace.
    pub fn clients(&self) -> Option<PathBuf> {
        self.namespace(CLIENTS)
    }

    /// Cuts the network.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn cut(&self, cut: &Cut) -> Result<()> {
        for (from, to) in cut.ways().into_iter().filter(|_| self.why_not.is_none()) {
            let (name, to) = (self.name(host(from)), host(to));
            ip(&format!(
                "-n {name} neigh replace 127.77.0.{to} lladdr {NOBODY} dev e0 nud permanent"
            ))
            .with_context(|| cut.to_string())?;
        }
        Ok(())
    }
    /// Undoes a cut.
    pub fn heal(&self, cut: &Cut) {
        for (from, to) in cut.ways().into_iter().filter(|_| self.why_not.is_none()) {
            let _ = ip(&format!(
                "-n {} neigh del 127.77.0.{} dev e0",
                self.name(host(from)),
                host(to)
            ));
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        if self.why_not.is_none() {
            self.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_those_that_the_words_say() {
        let (a, b) = (Who::Osd(0), Who::Osd(1));
        assert_eq!(Cut::OneWay(a, b).ways(), [(a, b)]);
        assert_eq!(Cut::Pair(a, b).ways().len(), 2);
        assert!(
            Cut::Off(VICTIM).ways().contains(&(VICTIM, a))
                && !Cut::Off(a).ways().contains(&(a, VICTIM))
        );
        assert_eq!(
            Cut::Off(a).ways().len(),
            2 * (MONS + OSDS + SERVERS - 1) as usize
        );
        let apart = Cut::Apart(vec![a, b]).ways();
        assert!(
            !apart.contains(&(a, b))
                && apart.contains(&(a, Who::Osd(2)))
                && apart.contains(&(Who::Mon(0), b))
        );
    }
}
