//! Four processes: this one is the client, three children are OSDs. Each is connected to all others
//! over loopback TCP.
//!
//! ```text
//!  OSD 0 listens, prints its port ─▶ OSD 1 --peer PORT ─▶ OSD 2 --peer PORT --peer PORT
//!                                                         └─▶ the client connects to all three
//! ```
//! A child has its data file as standard input and prints its port on standard output. It ends when
//! the client's connection closes, or at the latest with the client's process.

use crate::workload::{Row, Service};
use crate::{CLIENT, OSDS, bare, client, files, net, pieces};
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A child still running this long after its connection was closed is killed.
const END_MAX: Duration = Duration::from_secs(5);

/// Arguments of a child.
#[derive(Args, Debug)]
pub struct Osd {
    /// Which OSD this is
    #[arg(long)]
    pub id: usize,
    /// Which loop it runs
    #[arg(long, value_enum)]
    service: Service,
    /// Number of objects
    #[arg(long)]
    objects: u64,
    /// Bytes of an object
    #[arg(long)]
    size: usize,
    /// Whether objects are there from the beginning
    #[arg(long)]
    filled: bool,
    /// Port to listen on; 0: one that is free
    #[arg(long)]
    port: u16,
    /// Port of an earlier OSD, in order
    #[arg(long)]
    peer: Vec<u16>,
    /// The client's process
    #[arg(long)]
    client: i32,
}

/// Data files, used by one row after the other.
pub struct Files(Vec<File>);

impl Files {
    /// Creates files of `bytes` bytes each, below a directory.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn create(dir: &Path, bytes: u64) -> Result<Self> {
        (0..OSDS)
            .map(|id| files::unnamed(dir, id, bytes))
            .collect::<Result<_>>()
            .map(Self)
    }
}

/// The children.
struct Cluster {
    children: Vec<Child>,
    sockets: Vec<Option<TcpStream>>,
}

/// Measures a row on a new cluster.
///
/// # Errors
/// When it does not start, or the load fails.
pub fn measure(
    row: &Row,
    objects: u64,
    length: Duration,
    base_port: u16,
    files: &Files,
) -> Result<crate::measure::Outcome> {
    let mut cluster = Cluster::start(row, objects, base_port, files)?;
    let sockets = std::mem::take(&mut cluster.sockets);
    let outcome = match row.work.service() {
        Service::Small => client::run(row, objects, length, net::Net::new(sockets)?),
        Service::Pieces => pieces::run(row, length, sockets),
        Service::Bare => bare::run(row, length, sockets),
    };
    let ended = cluster.end();
    // The reason why an OSD ended is more useful than the fact.
    ended.and(outcome)
}

impl Cluster {
    fn start(row: &Row, objects: u64, base_port: u16, files: &Files) -> Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut cluster = Self {
            children: Vec::new(),
            sockets: Vec::new(),
        };
        let mut ports = Vec::new();
        for (id, file) in files.0.iter().enumerate() {
            let port = if base_port == 0 {
                0
            } else {
                base_port + u16::try_from(id).expect("three")
            };
            let service = row
                .work
                .service()
                .to_possible_value()
                .expect("every service has a name");
            let mut command = Command::new(&program);
            command.args([
                "osd",
                "--service",
                service.get_name(),
                "--id",
                &id.to_string(),
            ]);
            command.args([
                "--objects",
                &objects.to_string(),
                "--size",
                &row.size.to_string(),
            ]);
            command.args([
                "--port",
                &port.to_string(),
                "--client",
                &std::process::id().to_string(),
            ]);
            if row.work.reads() {
                command.arg("--filled");
            }
            for port in &ports {
                command.args(["--peer", &format!("{port}")]);
            }
            let file = file.try_clone().context("sharing a data file")?;
            let mut child = command
                .stdin(file)
                .stdout(Stdio::piped())
                .spawn()
                .context("starting an OSD")?;
            let output = child.stdout.take().expect("its output was asked for");
            cluster.children.push(child);
            let mut line = String::new();
            BufReader::new(output)
                .read_line(&mut line)
                .context("reading an OSD's port")?;
            // An OSD that fails prints the reason instead of a port. The others are killed when
            // this returns.
            ports.push(
                line.trim()
                    .parse::<u16>()
                    .ok()
                    .with_context(|| format!("OSD {id} does not start"))?,
            );
        }
        for port in ports {
            cluster.sockets.push(Some(connect(port, CLIENT)?));
        }
        Ok(cluster)
    }

    /// Waits for the end of all children; their connections are closed.
    fn end(&mut self) -> Result<()> {
        let limit = Instant::now() + END_MAX;
        let mut failed = Vec::new();
        for (id, child) in self.children.iter_mut().enumerate() {
            let status = loop {
                if let Some(status) = child.try_wait().context("waiting for an OSD")? {
                    break status;
                }
                if Instant::now() > limit {
                    child.kill().context("killing an OSD that does not end")?;
                }
                std::thread::sleep(Duration::from_millis(1));
            };
            if !status.success() {
                failed.push(format!("OSD {id} failed ({status})"));
            }
        }
        ensure!(failed.is_empty(), "{}", failed.join(", "));
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs an OSD.
///
/// # Errors
/// When anything fails.
pub fn osd(settings: &Osd) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("asking to end with the client")?;
    // The client may have ended before the kernel was asked for the signal.
    let parent = getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    ensure!(parent == settings.client, "the client has ended");
    let file = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map(File::from)
        .context("taking the data file")?;
    let sockets = sockets(settings)?;
    match settings.service {
        Service::Small => {
            let Osd {
                id,
                objects,
                size,
                filled,
                ..
            } = *settings;
            let settings = crate::osd::Settings {
                id,
                objects,
                size,
                filled,
            };
            crate::osd::serve(
                &settings,
                net::Net::new(sockets)?,
                crate::log::Log::open(file)?,
            )
        }
        Service::Pieces => pieces::serve(settings.id, sockets, file),
        Service::Bare => bare::serve(settings.size, sockets),
    }
}

fn sockets(settings: &Osd) -> Result<Vec<Option<TcpStream>>> {
    ensure!(
        settings.peer.len() == settings.id,
        "an OSD connects to all earlier ones"
    );
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, settings.port)).with_context(|| {
        format!(
            "listening on port {}; --base-port names others",
            settings.port
        )
    })?;
    let port = listener.local_addr().context("finding the port")?.port();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{port}")
        .and_then(|()| out.flush())
        .context("printing the port")?;
    let mut sockets: Vec<Option<TcpStream>> = (0..=CLIENT).map(|_| None).collect();
    for (peer, port) in settings.peer.iter().enumerate() {
        sockets[peer] = Some(connect(*port, settings.id)?);
    }
    // Later OSDs and the client.
    for _ in settings.id + 1..=CLIENT {
        let (mut socket, _) = listener.accept().context("accepting a connection")?;
        let mut peer = [0];
        socket
            .read_exact(&mut peer)
            .context("reading who connects")?;
        socket.set_nodelay(true).context("preparing a connection")?;
        let place = sockets
            .get_mut(usize::from(peer[0]))
            .filter(|place| place.is_none());
        *place.with_context(|| format!("peer {} connects", peer[0]))? = Some(socket);
    }
    Ok(sockets)
}

fn connect(port: u16, me: usize) -> Result<TcpStream> {
    let mut socket =
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("connecting to an OSD")?;
    socket.set_nodelay(true).context("preparing a connection")?;
    socket
        .write_all(&[u8::try_from(me).expect("a small number")])
        .context("introducing this process")?;
    Ok(socket)
}
