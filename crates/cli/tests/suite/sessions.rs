//! Each command is one client: it opens one session with the monitors, whatever it asks of them and
//! of the OSDs. (A command that moved objects opened two, `fs create` three.)

use super::operator::Site;
use super::{nacre, scratch};
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// Stands before a monitor: passes connections on to it, and counts them.
struct Door {
    address: SocketAddr,
    /// Where each came from, in order.
    opened: Receiver<SocketAddr>,
}

impl Door {
    fn before(monitor: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let (sender, opened) = channel();
        thread::spawn(move || {
            while let Ok((client, from)) = listener.accept() {
                if sender.send(from).is_err() {
                    return;
                }
                let monitor = TcpStream::connect((Ipv4Addr::LOCALHOST, monitor)).expect("it runs");
                let ends = |one: &TcpStream, other: &TcpStream| {
                    (
                        one.try_clone().expect("open"),
                        other.try_clone().expect("open"),
                    )
                };
                for (from, to) in [ends(&client, &monitor), ends(&monitor, &client)] {
                    thread::spawn(move || {
                        let _ = io::copy(&mut &from, &mut &to);
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        });
        Self { address, opened }
    }

    /// How many were opened since the last call.
    fn count(&self) -> usize {
        // Connections are accepted in order: those before this one have been counted.
        let mine = TcpStream::connect(self.address).expect("it listens");
        let me = mine.local_addr().expect("it is connected");
        self.opened
            .iter()
            .take_while(|from: &SocketAddr| *from != me)
            .count()
    }
}

/// A directory tree with two files.
fn tree(name: &str) -> PathBuf {
    let dir = scratch(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(dir.join("below")).expect("writable");
    for file in ["a", "below/b"] {
        std::fs::write(dir.join(file), file).expect("writable");
    }
    dir
}

#[test]
fn a_command_opens_one_session() {
    let mut site = Site::new("sessions", 56);
    site.up(&["--osd-size", "256MiB"]);
    let door = Door::before(site.port());
    let text = std::fs::read_to_string(site.dir().join("cluster.toml")).expect("readable");
    let monitor = format!("127.0.0.1:{}", site.port());
    assert_eq!(text.matches(&monitor).count(), 1, "one monitor");
    let by_the_door = site.dir().join("door.toml");
    std::fs::write(
        &by_the_door,
        text.replace(&monitor, &door.address.to_string()),
    )
    .expect("writable");

    let (from, to) = (tree("sessions-tree"), scratch("sessions-out"));
    let _ = std::fs::remove_dir_all(&to);
    let file = from.join("a");
    let [by_the_door, from, to, file] =
        [&by_the_door, &from, &to, &file].map(|path| path.to_str().expect("readable"));
    let commands: &[&[&str]] = &[
        &["status"],
        &["health", "detail"],
        &["df"],
        &["osd", "tree"],
        &["pool", "create", "p"],
        &["pool", "ls"],
        &["config", "get"],
        &["object", "put", "p", "x", file],
        &["object", "get", "p", "x", "-"],
        &["object", "stat", "p", "x"],
        &["object", "where", "p", "x"],
        &["object", "ls", "p"],
        &["object", "import", "p", from],
        &["object", "export", "p", to],
        &["object", "rm", "p", "x"],
        &["pool", "snap", "create", "p", "s"],
        &["meta", "put", "a/b", "c"],
        &["meta", "get", "a/b"],
        &["meta", "ls", "a/"],
        &["class", "library", "version", "--install"],
        &["class", "ls"],
        &["policy", "ls"],
        &["client", "ls"],
        &["fs", "create", "home"],
        &["fs", "ls"],
        &["fs", "ranks", "home", "2"],
        &[
            "bench",
            "object",
            "write",
            "--size=4KiB",
            "--pool=p",
            "--seconds=0.2",
        ],
    ];
    let opens = |sessions: usize, command: &[&str]| {
        let output = nacre([&["--cluster", by_the_door][..], command].concat());
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {why}");
        assert_eq!(door.count(), sessions, "{command:?}");
    };
    commands.iter().for_each(|command| opens(1, command));
    // A client of the file system's servers is one that they know, with a session of its own.
    let is_served = |site: &Site| site.json(&["fs", "ls"])[0]["served"] == "2 of 2";
    site.until("served", is_served);
    opens(2, &["fs", "status", "home"]);
    opens(2, &["fs", "rm", "home", "--yes-i-really-mean-it"]);
    site.stop();
}
