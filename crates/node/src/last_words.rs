//! What a daemon would say if its thread did not hang in its disk: said for it by the watchdog, on a connection of its own.
//!
//! ```text
//!   watchdog ── Hello (as the OSD) · Beacon (what hangs) · FailureReport (mark me down) ──▶ a monitor
//! ```
//! To the monitor it is a new session of the OSD, which ends the one before; the OSD, should it go on, begins another. Everything is bounded by short timeouts.

use nacre_types::{Entity, Epoch, MonId};
use nacre_wire::msg::monitor::{Beacon, FailureReport, Hello};
use nacre_wire::{Frame, Message};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// A monitor on a busy machine takes its time to accept; a connection that ends before it has read is reset, and what was said with it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Prepared while all is well.
#[derive(Clone, Debug)]
pub struct LastWords {
    pub mons: Vec<(MonId, String)>,
    pub epoch: Epoch,
    pub hello: Hello,
    pub beacon: Beacon,
    pub report: FailureReport,
}

/// Says them to the first monitor that listens; `stalled`: asks to be marked down, too. On a thread of its own, since the watchdog has to go on.
pub fn speak(words: LastWords, text: &str, stalled: bool) {
    let text = text.to_owned();
    let speak = move || {
        for (mon, address) in words.mons.clone() {
            if say(&words, mon, &address, &text, stalled).is_ok() {
                return;
            }
        }
    };
    // Without a thread it stays unsaid: the OSD's peers will miss it.
    let _ = std::thread::Builder::new().name("nacre-last-words".to_owned()).spawn(speak);
}

fn say(words: &LastWords, mon: MonId, address: &str, text: &str, stalled: bool) -> std::io::Result<()> {
    let address = address.parse().map_err(|_| std::io::Error::from(std::io::ErrorKind::InvalidInput))?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut send = |epoch: Epoch, message: Message| stream.write_all(&Frame { epoch, message }.to_bytes());
    send(Epoch::NONE, Message::Hello(Hello { to: Some(Entity::Mon(mon)), ..words.hello.clone() }))?;
    send(words.epoch, Message::Beacon(Beacon { device: text.to_owned(), ..words.beacon.clone() }))?;
    if stalled {
        send(words.epoch, Message::FailureReport(words.report.clone()))?;
    }
    // Until its answer has come it may not have read ours; a connection closed with bytes unread would be reset.
    let mut answer = [0; 4096];
    while stream.read(&mut answer)? > 0 {}
    Ok(())
}
