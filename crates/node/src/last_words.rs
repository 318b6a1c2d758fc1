//! The last report of a daemon whose thread hangs in its disk: sent by the watchdog, on a separate
//! connection.
//!
//! ```text
//!   watchdog ── Hello (as the OSD) · Beacon (hanging call) · FailureReport (mark me down) ──▶ a monitor
//! ```
//! To the monitor it is a new session of the OSD, which ends the one before; if the OSD continues,
//! it begins another. All steps are bounded by short timeouts.

use nacre_types::{Entity, Epoch, MonId};
use nacre_wire::msg::monitor::{Beacon, FailureReport, Hello};
use nacre_wire::{Frame, Message};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// A monitor on a busy machine accepts late. A connection that is closed before the monitor has
/// read it is reset, and its messages are lost.
const PATIENCE: Duration = Duration::from_secs(2);

/// Prepared while the daemon works.
#[derive(Clone, Debug)]
pub struct LastWords {
    pub mons: Vec<(MonId, String)>,
    pub epoch: Epoch,
    pub hello: Hello,
    pub beacon: Beacon,
    pub report: FailureReport,
}

/// Sends the report to the first monitor that listens; `stalled`: also asks to be marked down. Runs
/// on a separate thread, since the watchdog must continue.
pub fn speak(words: LastWords, text: &str, stalled: bool) {
    let text = text.to_owned();
    let speak = move || {
        for (mon, address) in words.mons.clone() {
            if say(&words, mon, &address, &text, stalled).is_ok() {
                return;
            }
        }
    };
    // Without a thread it is not sent: the OSD's peers will detect the failure.
    let _ = std::thread::Builder::new()
        .name("nacre-last-words".to_owned())
        .spawn(speak);
}

fn say(
    words: &LastWords,
    mon: MonId,
    address: &str,
    text: &str,
    stalled: bool,
) -> std::io::Result<()> {
    let address = address
        .parse()
        .map_err(|_| std::io::Error::from(std::io::ErrorKind::InvalidInput))?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut send =
        |epoch: Epoch, message: Message| stream.write_all(&Frame { epoch, message }.to_bytes());
    send(
        Epoch::NONE,
        Message::Hello(Hello {
            to: Some(Entity::Mon(mon)),
            ..words.hello.clone()
        }),
    )?;
    send(
        words.epoch,
        Message::Beacon(Beacon {
            device: text.to_owned(),
            ..words.beacon.clone()
        }),
    )?;
    if stalled {
        send(words.epoch, Message::FailureReport(words.report.clone()))?;
    }
    // Until its answer has arrived the monitor may not have read ours; a connection closed with
    // unread bytes would be reset. A monitor that keeps the session and then stays silent has
    // received the report.
    let (mut answer, mut heard) = ([0; 4096], false);
    loop {
        match stream.read(&mut answer) {
            Ok(0) => return Ok(()),
            Ok(_) => heard = true,
            Err(why) if heard && why.kind() != ErrorKind::ConnectionReset => return Ok(()),
            Err(why) => return Err(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{ClientId, ClusterId, Instance, Name, OsdId};
    use std::net::TcpListener;

    /// One of three monitors is down, when a disk may hang as well: the next monitor is told.
    #[test]
    fn who_does_not_listen_is_passed_over() {
        let closed = TcpListener::bind("127.0.0.1:0")
            .expect("a port")
            .local_addr()
            .expect("bound")
            .to_string();
        let mon = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (osd, instance, address, auth) = (OsdId(0), Instance(1), None, bytes::Bytes::new());
        let (from, name, to) = (Entity::Client(ClientId(1)), Name::default(), None);
        let hello = Hello {
            cluster: ClusterId(1),
            from,
            instance,
            to,
            supported: 0,
            required: 0,
            address,
            auth,
            name,
        };
        let (pgs, slow, device, space) = (Vec::new(), Vec::new(), String::new(), String::new());
        let beacon = Beacon {
            osd,
            instance,
            total: 1,
            used: 0,
            pgs,
            all: true,
            slow,
            device,
            space,
            no_room: false,
        };
        let (silent_ms, alive, refused, itself, stalled) = (0, true, false, true, false);
        let report = FailureReport {
            target: osd,
            instance,
            reporter: osd,
            silent_ms,
            alive,
            refused,
            itself,
            stalled,
        };
        let there = mon.local_addr().expect("bound").to_string();
        let mons = vec![
            (MonId(0), closed),
            (MonId(1), "nonsense".to_owned()),
            (MonId(2), there),
        ];
        mon.set_nonblocking(true).expect("a socket");
        speak(
            LastWords {
                mons,
                epoch: Epoch(1),
                hello,
                beacon,
                report,
            },
            "a flush hangs",
            true,
        );
        let begun = crate::clock::now();
        let mut stream = loop {
            match mon.accept() {
                Ok((stream, _)) => break stream,
                Err(_) => assert!(
                    crate::clock::now().since(begun) < Duration::from_secs(60),
                    "nobody is told"
                ),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        stream.set_nonblocking(false).expect("a socket");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a limit");
        let (mut reader, mut said, mut bytes) =
            (nacre_wire::FrameReader::default(), Vec::new(), [0; 4096]);
        while said.len() < 3 {
            let count = stream.read(&mut bytes).expect("it speaks");
            assert!(count > 0, "it said {said:?}");
            reader.push(&bytes[..count]);
            while let Some(frame) = reader.poll().expect("well-formed") {
                said.push(frame.message);
            }
        }
        assert!(
            matches!(&said[0], Message::Hello(hello) if hello.to == Some(Entity::Mon(MonId(2)))),
            "{said:?}"
        );
        assert!(
            matches!(&said[1], Message::Beacon(beacon) if beacon.device == "a flush hangs"),
            "{said:?}"
        );
        assert!(
            matches!(&said[2], Message::FailureReport(report) if report.itself),
            "{said:?}"
        );
    }
}
