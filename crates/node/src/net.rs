//! Sockets: loopback only, until there is authentication.

use crate::error::StartError;
use nacre_wire::map::Address;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

/// For so long a daemon may leave unread what another sends it, in milliseconds.
const UNREAD_MAX_MS: u32 = 15_000;

/// What an address as written in the configuration or the map means.
pub fn parse(address: &str) -> Option<SocketAddr> {
    address.parse().ok()
}

fn stream(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
}

/// Listens.
pub fn listen(who: &str, address: &str) -> Result<OwnedFd, StartError> {
    let text = || address.to_owned();
    let parsed = parse(address).filter(|parsed| parsed.ip().is_loopback());
    let Some(parsed) = parsed else {
        return Err(StartError::NotLoopback {
            who: who.to_owned(),
            address: text(),
        });
    };
    let listen = || -> Result<OwnedFd, Errno> {
        let fd = stream(parsed)?;
        // A restarted daemon takes its port again at once; a living one's stays its own.
        sockopt::set_socket_reuseaddr(&fd, true)?;
        rustix::net::bind(&fd, &parsed)?;
        rustix::net::listen(&fd, 256)?;
        Ok(fd)
    };
    listen().map_err(|errno| match errno {
        Errno::ADDRINUSE => StartError::PortInUse {
            who: who.to_owned(),
            address: text(),
        },
        errno => StartError::Io {
            doing: "listen on",
            path: text().into(),
            error: errno.into(),
        },
    })
}

/// Listens on a port that is free, of this address; says which.
pub fn listen_anywhere(who: &str, host: IpAddr) -> Result<(OwnedFd, Address), StartError> {
    let fd = listen(who, &SocketAddr::new(host, 0).to_string())?;
    let failed = |errno: Errno| StartError::Io {
        doing: "listen on",
        path: host.to_string().into(),
        error: errno.into(),
    };
    let bound = rustix::net::getsockname(&fd).map_err(failed)?;
    let address = SocketAddr::try_from(bound).map_err(|_| failed(Errno::AFNOSUPPORT))?;
    Ok((fd, Address(address.to_string())))
}

/// Whether a daemon could listen there now.
///
/// # Errors
/// As when it does: taken, not loopback, or no address of this machine.
pub fn is_free(who: &str, address: &str) -> Result<(), StartError> {
    listen(who, address).map(drop)
}

/// The address of this machine by which it reaches that one, as its routes say; nothing is sent.
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

/// Begins to connect.
pub fn dial(address: SocketAddr) -> Result<OwnedFd, Errno> {
    if !address.ip().is_loopback() {
        return Err(Errno::ACCESS);
    }
    let fd = stream(address)?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    match rustix::net::connect(&fd, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(errno) => Err(errno),
    }
}

/// Lets the kernel end a connection whose peer's machine is gone: an idle one after some 25 s, and
/// one between daemons when what was sent is not acknowledged, or not read, for 15 s. (A client's
/// may stand still for longer: an OSD that has enough to do does not read from it.)
pub fn watch(fd: &OwnedFd, daemons: bool) {
    // Best effort: without these the roles' own deadlines still hold, only the connection lives on.
    let _ = sockopt::set_socket_keepalive(fd, true);
    let _ = sockopt::set_tcp_keepidle(fd, Duration::from_secs(10));
    let _ = sockopt::set_tcp_keepintvl(fd, Duration::from_secs(5));
    let _ = sockopt::set_tcp_keepcnt(fd, 3);
    if daemons {
        let _ = sockopt::set_tcp_user_timeout(fd, UNREAD_MAX_MS);
    }
}

/// The next connection, if somebody waits.
///
/// # Errors
/// There is no descriptor or no memory for it, and it still waits.
pub fn accept(listener: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    match rustix::net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
        Ok(fd) => {
            let _ = sockopt::set_tcp_nodelay(&fd, true);
            Ok(Some(fd))
        }
        Err(why @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => Err(why),
        // Nobody waits, or who waited has gone.
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between OSDs whose machine is gone nothing comes back: without these a connection lives for
    /// hours, and what waits on it, too.
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
            assert_eq!(
                unread,
                if daemons { UNREAD_MAX_MS } else { 0 },
                "a client may stand still"
            );
        }
    }
}
