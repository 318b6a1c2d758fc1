//! How many payload bytes a daemon's process has received, and how many of them it copied in memory
//! on their way to disk (ADR 0004): `DIR/run/<who>.moved`, for benchmarks; and what its OSDs had to
//! read again.
//!
//! ```text
//!  socket ─recv─▶ receive buffer ─shared─▶ role ─shared─▶ store ─shared─▶ pwritev
//!           └ a frame's beginning is moved when      └ data kept in the index (objects below 1 KiB) is copied
//!             its buffer ends (`Traffic::bytes_copied`)   (`Usage::payload_bytes_copied`)
//! ```
//! Rewritten in place, once a second at most and only after a change. Only users and benchmarks
//! read it.

use crate::clock;
use crate::config::Config;
use nacre_types::Time;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// Time between two writings.
const EVERY: Duration = Duration::from_secs(1);
/// Fixed length, so that it is one write in place.
const LENGTH: usize = 128;

/// Bytes since the start of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Payload bytes received from sockets.
    pub received: u64,
    /// Payload bytes copied in memory between socket and disk.
    pub copied: u64,
    /// Objects whose attributes the OSDs here did not have in memory: shows a restart or a lost
    /// cache.
    pub contexts: u64,
    /// Sources of programs that they fetched.
    pub programs: u64,
}

impl Moved {
    fn to_text(self) -> String {
        let Self {
            received,
            copied,
            contexts,
            programs,
        } = self;
        format!("received {received}\ncopied {copied}\ncontexts {contexts}\nprograms {programs}\n")
    }

    /// The sum over the daemons of a cluster's directory `run`; `None` when there are no such files
    /// (an embedded cluster has no sockets).
    #[must_use]
    pub fn of_folder(run: &Path) -> Option<Self> {
        let mut sum: Option<Self> = None;
        for entry in std::fs::read_dir(run).ok()?.flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|ending| ending != "moved") {
                continue;
            }
            let Ok(text) = std::fs::read_to_string(&path) else {
                continue;
            };
            let field = |name: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(name));
                line.and_then(|number| number.trim().parse::<u64>().ok())
                    .unwrap_or(0)
            };
            let sum = sum.get_or_insert_default();
            sum.received += field("received ");
            sum.copied += field("copied ");
            sum.contexts += field("contexts ");
            sum.programs += field("programs ");
        }
        sum
    }

    /// The difference to `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            received: self.received.saturating_sub(before.received),
            copied: self.copied.saturating_sub(before.copied),
            contexts: self.contexts.saturating_sub(before.contexts),
            programs: self.programs.saturating_sub(before.programs),
        }
    }
}

/// The file of one process.
pub struct MovedFile {
    /// `None`: it could not be created. The daemon runs without the figures.
    file: Option<File>,
    next: Time,
    last: Moved,
}

impl MovedFile {
    pub fn new(config: &Config, who: &str) -> Self {
        let made = File::create(config.dir.join("run").join(format!("{who}.moved")));
        let made = made.and_then(|mut file| file.write_all(&[b' '; LENGTH]).map(|()| file));
        Self {
            file: made.ok(),
            next: Time::ZERO,
            last: Moved::default(),
        }
    }

    /// Writes if it is due and something has changed. `moved` is only called then.
    pub fn note(&mut self, moved: impl FnOnce() -> Moved) {
        let now = clock::now();
        if now < self.next {
            return;
        }
        self.next = now + EVERY;
        let moved = moved();
        let Some(file) = self.file.as_ref().filter(|_| moved != self.last) else {
            return;
        };
        self.last = moved;
        // The store detects a disk that accepts no more bytes.
        let _ = file.write_all_at(format!("{:<LENGTH$}", moved.to_text()).as_bytes(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_are_summed_and_differences_taken() {
        let run = std::env::temp_dir().join(format!("nacre-moved-{}", std::process::id()));
        std::fs::create_dir_all(&run).expect("a folder");
        assert_eq!(Moved::of_folder(&run), None);
        for (name, received) in [("osd.0.moved", 100), ("osd.1.moved", 20), ("osd.1.pid", 7)] {
            let text = Moved {
                received,
                copied: 3,
                ..Moved::default()
            }
            .to_text();
            std::fs::write(run.join(name), format!("{text:<LENGTH$}")).expect("written");
        }
        let sum = Moved::of_folder(&run).expect("there are files");
        std::fs::remove_dir_all(&run).expect("removed");
        assert_eq!(
            sum,
            Moved {
                received: 120,
                copied: 6,
                ..Moved::default()
            }
        );
        assert_eq!(
            sum.since(Moved {
                received: 20,
                copied: 7,
                ..Moved::default()
            }),
            Moved {
                received: 100,
                ..Moved::default()
            }
        );
    }
}
