//! Sockets: loopback only, until there is authentication.
//!
//! ```text
//!  listen 127.0.0.1:7400 ─┬─ TCP                            other hosts, other network namespaces
//!                         └─ local socket of the same name  processes of this host: dialed first
//! ```
//! A local socket (AF_UNIX) costs half as much as TCP over loopback: no segments and no
//! acknowledgements. Its name is abstract: `nacre/` and the address. Such names belong to a network
//! namespace, so a process that finds one is on the same host and in the same network, and a daemon
//! that ends leaves none behind. Where there is none, TCP is dialed. `NACRE_TCP_ONLY=1` in a
//! process's environment restricts it to TCP (ADR 0008).
//!
//! Any user of this host may take a free name. So a dialing process asks the kernel for the
//! listener's user, and trusts only its own user and root.

use crate::error::StartError;
use nacre_wire::map::Address;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustix::process::Uid;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

/// Maximum time a daemon may leave another's data unread.
pub const UNREAD_MAX: Duration = Duration::from_secs(15);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 256;

/// Parses an address as written in the configuration or the map.
pub fn parse(address: &str) -> Option<SocketAddr> {
    address.parse().ok()
}

fn stream(family: AddressFamily) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
}

fn tcp(address: SocketAddr) -> Result<OwnedFd, Errno> {
    stream(if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    })
}

/// Whether this process does not use local sockets.
fn is_tcp_only() -> bool {
    std::env::var_os("NACRE_TCP_ONLY").is_some_and(|value| !value.is_empty() && value != "0")
}

/// A local socket, and the abstract name for an address.
fn local(address: SocketAddr) -> Result<(OwnedFd, SocketAddrUnix), Errno> {
    let name = SocketAddrUnix::new_abstract_name(format!("nacre/{address}").as_bytes())?;
    let fd = stream(AddressFamily::UNIX)?;
    Ok((fd, name))
}

/// Sockets on which a daemon accepts connections.
#[derive(Debug)]
pub struct Listener {
    tcp: OwnedFd,
    /// For processes of this host.
    local: Option<OwnedFd>,
}

impl Listener {
    /// The sockets to poll.
    pub fn sockets(&self) -> impl Iterator<Item = &OwnedFd> {
        std::iter::once(&self.tcp).chain(&self.local)
    }

    /// The next waiting connection.
    ///
    /// # Errors
    /// There is no descriptor or no memory for it, and it still waits.
    pub fn accept(&self) -> Result<Option<OwnedFd>, Errno> {
        for socket in self.sockets() {
            match rustix::net::accept_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(fd) => {
                    // Local sockets neither have nor need it.
                    let _ = sockopt::set_tcp_nodelay(&fd, true);
                    return Ok(Some(fd));
                }
                Err(why @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    return Err(why);
                }
                // None waits, or the waiting one was closed.
                Err(_) => {}
            }
        }
        Ok(None)
    }
}

fn listen_tcp(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let fd = tcp(address)?;
    // A restarted daemon reuses its port at once; a running daemon's port stays taken.
    sockopt::set_socket_reuseaddr(&fd, true)?;
    rustix::net::bind(&fd, &address)?;
    rustix::net::listen(&fd, BACKLOG)?;
    Ok(fd)
}

fn listen_locally(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let (fd, name) = local(address)?;
    rustix::net::bind(&fd, &name)?;
    rustix::net::listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// Listens on an address.
pub fn listen(who: &str, address: &str) -> Result<Listener, StartError> {
    let text = || address.to_owned();
    let parsed = parse(address).filter(|parsed| parsed.ip().is_loopback());
    let Some(parsed) = parsed else {
        return Err(StartError::NotLoopback {
            who: who.to_owned(),
            address: text(),
        });
    };
    let failed = |errno| match errno {
        Errno::ADDRINUSE => StartError::PortInUse {
            who: who.to_owned(),
            address: text(),
        },
        errno => StartError::Io {
            doing: "listen on",
            path: text().into(),
            error: errno.into(),
        },
    };
    let tcp = listen_tcp(parsed).map_err(failed)?;
    let bound = address_of(&tcp).map_err(failed)?;
    // Without it, all peers use TCP.
    let local = (!is_tcp_only())
        .then(|| listen_locally(bound).ok())
        .flatten();
    Ok(Listener { tcp, local })
}

fn address_of(fd: &OwnedFd) -> Result<SocketAddr, Errno> {
    SocketAddr::try_from(rustix::net::getsockname(fd)?).map_err(|_| Errno::AFNOSUPPORT)
}

/// Listens on a free port of this address; returns the address.
pub fn listen_anywhere(who: &str, host: IpAddr) -> Result<(Listener, Address), StartError> {
    let listener = listen(who, &SocketAddr::new(host, 0).to_string())?;
    let address = address_of(&listener.tcp).map_err(|errno| StartError::Io {
        doing: "listen on",
        path: host.to_string().into(),
        error: errno.into(),
    })?;
    Ok((listener, Address(address.to_string())))
}

/// Whether a daemon could listen there now.
///
/// # Errors
/// As for [`listen`]: in use, not loopback, or no address of this machine.
pub fn is_free(who: &str, address: &str) -> Result<(), StartError> {
    listen(who, address).map(drop)
}

/// This machine's source address for a peer, according to its routes; nothing is sent.
pub fn host_towards(peer: SocketAddr) -> Option<IpAddr> {
    let any = if peer.is_ipv4() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    } else {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Whether a process of that user may be the dialed daemon.
fn is_trusted(listens: Uid, own: Uid) -> bool {
    listens == own || listens.is_root()
}

/// Connects to a local socket. On an error, use TCP.
fn dial_locally(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let (fd, name) = local(address)?;
    rustix::net::connect(&fd, &name)?;
    let listens = sockopt::socket_peercred(&fd)?.uid;
    if is_trusted(listens, rustix::process::geteuid()) {
        Ok(fd)
    } else {
        Err(Errno::ACCESS)
    }
}

/// Begins to connect.
pub fn dial(address: SocketAddr) -> Result<OwnedFd, Errno> {
    if !address.ip().is_loopback() {
        return Err(Errno::ACCESS);
    }
    if !is_tcp_only()
        && let Ok(fd) = dial_locally(address)
    {
        return Ok(fd);
    }
    let fd = tcp(address)?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    match rustix::net::connect(&fd, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(errno) => Err(errno),
    }
}

/// Lets the kernel end a connection whose peer's machine is gone: an idle one after some 25 s, and
/// one between daemons when sent data are not acknowledged, or not read, for 15 s. (A client's may
/// stall for longer: a busy OSD does not read from it.)
///
/// The kernel always knows that a local socket's peer is gone; the reactor handles one that does
/// not read (`sessions.rs`).
pub fn watch(fd: &OwnedFd, daemons: bool) {
    // Best effort: without these the roles' own deadlines still hold, only the connection stays
    // open.
    let _ = sockopt::set_socket_keepalive(fd, true);
    let _ = sockopt::set_tcp_keepidle(fd, Duration::from_secs(10));
    let _ = sockopt::set_tcp_keepintvl(fd, Duration::from_secs(5));
    let _ = sockopt::set_tcp_keepcnt(fd, 3);
    if daemons {
        let _ = sockopt::set_tcp_user_timeout(fd, UNREAD_MAX.as_millis() as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between OSDs whose machine is gone nothing arrives any more: without these a connection
    /// stays open for hours, and with it the messages that wait on it.
    #[test]
    fn the_kernel_ends_a_connection_whose_peer_is_gone() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        for daemons in [true, false] {
            let fd = dial(address).expect("it listens");
            watch(&fd, daemons);
            assert_eq!(sockopt::socket_keepalive(&fd), Ok(true));
            let idle = sockopt::tcp_keepidle(&fd).expect("set");
            let tries =
                sockopt::tcp_keepintvl(&fd).expect("set") * sockopt::tcp_keepcnt(&fd).expect("set");
            assert!(
                idle + tries <= Duration::from_secs(25),
                "{idle:?} {tries:?}"
            );
            let unread = sockopt::tcp_user_timeout(&fd).expect("readable");
            let want = if daemons { UNREAD_MAX.as_millis() } else { 0 };
            assert_eq!(u128::from(unread), want, "a client may stand still");
        }
    }

    fn family(fd: &OwnedFd) -> AddressFamily {
        sockopt::socket_domain(fd).expect("a socket")
    }
    fn accepted(listener: &Listener) -> OwnedFd {
        loop {
            if let Some(fd) = listener.accept().expect("there are descriptors") {
                return fd;
            }
        }
    }

    #[test]
    fn processes_of_a_host_meet_on_its_local_socket_and_others_by_tcp() {
        let (listener, Address(text)) =
            listen_anywhere("test", Ipv4Addr::LOCALHOST.into()).expect("a port");
        let address = parse(&text).expect("an address");
        let local = dial(address).expect("it listens");
        assert_eq!(family(&local), AddressFamily::UNIX);
        assert_eq!(family(&accepted(&listener)), AddressFamily::UNIX);
        let far = std::net::TcpStream::connect(address).expect("it listens there, too");
        assert_eq!(family(&accepted(&listener)), AddressFamily::INET);
        drop(far);
        assert!(matches!(listener.accept(), Ok(None)));

        let Listener { tcp, local } = listener;
        drop(local);
        let dialed = dial(address).expect("it listens");
        assert_eq!(family(&dialed), AddressFamily::INET, "there is no other");
        drop(tcp);
        // With TCP a refusal may come later.
        if let Ok(fd) = dial(address) {
            assert_eq!(family(&fd), AddressFamily::INET);
        }
        listen("test", &text).expect("both are free again");
    }

    /// A name without its port: another process took it while the daemon was down. The kernel
    /// reports whether its user is root or our own.
    #[test]
    fn who_listens_under_a_free_name_is_not_trusted_unless_it_is_ours() {
        let (own, other) = (Uid::from_raw(1000), Uid::from_raw(1001));
        assert!(is_trusted(own, own) && is_trusted(Uid::ROOT, own));
        assert!(!is_trusted(other, own) && !is_trusted(other, Uid::ROOT));
    }
}
