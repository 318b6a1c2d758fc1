//! The cluster log: few lines, from all daemons, in one order (MAL-56).
//!
//! Senders number their lines densely per instance and resend those that may have been lost; a line
//! is added once. Of lines with the same key (`once`), from any sender, only the first is added, as
//! long as that one is kept.
//!
//! Invariants, checked by [`ClusterLog::check`]: numbers of kept lines are dense; at most
//! [`LINES_MAX`] lines and [`SENDERS_MAX`] senders are kept; `keys` are those of the kept lines
//! that have one, and no two of these are equal.

use nacre_types::{Entity, Instance};
use nacre_wire::msg::monitor::LogLine;
use nacre_wire::{wire_fields, wire_record};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Maximum number of lines kept.
pub const LINES_MAX: usize = 10_000;
/// Senders remembered for dropping repetitions; the one silent for longest is dropped first.
pub const SENDERS_MAX: usize = 4_096;
/// Maximum bytes of the lines kept: their size in the image.
pub const LINES_BYTES_MAX: usize = 4 << 20;
/// Longest text, in bytes; longer ones are truncated.
pub const TEXT_LEN_MAX: usize = 2_048;

/// A line with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// Dense over the lifetime of the cluster, from 1.
    pub number: u64,
    /// Wall clock of the leader that added it, for display; 0 when unknown.
    pub unix_ms: u64,
    /// The line.
    pub line: LogLine,
}
wire_record!(Numbered version 1 compat 1 { number, unix_ms, line });

/// A sender's last line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Its instance.
    pub instance: Instance,
    /// Its highest line number.
    pub number: u64,
    /// The number of that line in the log: determines which sender is dropped.
    pub at: u64,
}
wire_fields!(Heard {
    instance,
    number,
    at
});

/// The log as bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogImage {
    /// The number of the last line ever.
    pub last: u64,
    /// The lines kept.
    pub lines: Vec<Numbered>,
    /// The last line of each sender.
    pub heard: BTreeMap<Entity, Heard>,
}
wire_record!(LogImage version 1 compat 1 { last, lines, heard });

/// The cluster log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterLog {
    last: u64,
    lines: VecDeque<Numbered>,
    heard: BTreeMap<Entity, Heard>,
    /// Digests of the keys of kept lines: derived from `lines`, so not part of an image.
    keys: BTreeSet<KeyDigest>,
    /// Bytes of `lines`.
    bytes: usize,
}

/// Size of a line in an image: its texts and their encoding.
fn image_bytes(kept: &Numbered) -> usize {
    64 + kept.line.text.len() + kept.line.once.len()
}

/// If two keys had one digest the second's line would be lost: it is long enough that such keys
/// cannot be found.
type KeyDigest = [u8; 16];

fn digest(line: &LogLine) -> KeyDigest {
    *blake3::hash(line.once.as_bytes())
        .as_bytes()
        .first_chunk()
        .expect("a hash has 32 bytes")
}

impl ClusterLog {
    pub(super) fn from_image(image: LogImage) -> Self {
        let keys = image
            .lines
            .iter()
            .filter(|kept| !kept.line.once.is_empty())
            .map(|kept| digest(&kept.line))
            .collect();
        let bytes = image.lines.iter().map(image_bytes).sum();
        Self {
            last: image.last,
            lines: image.lines.into(),
            heard: image.heard,
            keys,
            bytes,
        }
    }
    pub(super) fn to_image(&self) -> LogImage {
        LogImage {
            last: self.last,
            lines: self.lines.iter().cloned().collect(),
            heard: self.heard.clone(),
        }
    }

    /// Whether this line was added before, or another one makes it redundant.
    #[must_use]
    pub fn knows(&self, line: &LogLine) -> bool {
        self.was_heard(line)
            || !line.once.is_empty()
                && line.once.len() <= TEXT_LEN_MAX
                && self.keys.contains(&digest(line))
    }
    fn was_heard(&self, line: &LogLine) -> bool {
        self.heard
            .get(&line.from)
            .is_some_and(|heard| (line.instance, line.number) <= (heard.instance, heard.number))
    }

    /// Adds the new lines; returns their number.
    pub fn append(&mut self, lines: Vec<LogLine>, unix_ms: u64) -> usize {
        let before = self.last;
        for mut line in lines {
            if self.was_heard(&line) {
                continue;
            }
            cut_line(&mut line);
            if !line.once.is_empty() && !self.keys.insert(digest(&line)) {
                continue;
            }
            self.last += 1;
            let heard = Heard {
                instance: line.instance,
                number: line.number,
                at: self.last,
            };
            self.heard.insert(line.from, heard);
            let kept = Numbered {
                number: self.last,
                unix_ms,
                line,
            };
            self.bytes += image_bytes(&kept);
            self.lines.push_back(kept);
            while self.lines.len() > LINES_MAX || self.bytes > LINES_BYTES_MAX {
                let gone = self
                    .lines
                    .pop_front()
                    .expect("one line is far below the bounds");
                self.bytes -= image_bytes(&gone);
                if !gone.line.once.is_empty() {
                    self.keys.remove(&digest(&gone.line));
                }
            }
            if self.heard.len() > SENDERS_MAX {
                let silent = self
                    .heard
                    .iter()
                    .min_by_key(|(_, heard)| heard.at)
                    .map(|(from, _)| *from);
                self.heard.remove(&silent.expect("there are many"));
            }
        }
        usize::try_from(self.last - before).expect("few lines")
    }

    /// The number of the last line.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }
    /// The lines kept, oldest first.
    pub fn lines(&self) -> impl DoubleEndedIterator<Item = &Numbered> {
        self.lines.iter()
    }

    pub(super) fn check(&self) {
        assert!(
            self.lines.len() <= LINES_MAX && self.heard.len() <= SENDERS_MAX,
            "the log is bounded"
        );
        assert!(
            self.bytes <= LINES_BYTES_MAX,
            "{} bytes of lines",
            self.bytes
        );
        for (back, line) in self.lines.iter().rev().enumerate() {
            assert_eq!(line.number, self.last - back as u64, "lines are dense");
        }
        let once = self.lines.iter().filter(|kept| !kept.line.once.is_empty());
        assert_eq!(
            once.count(),
            self.keys.len(),
            "keys are those of the kept lines that nobody is to repeat"
        );
    }
}

/// Truncates a line as the log would when adding it: proposed in full, it would displace others
/// from its proposal.
pub fn cut_line(line: &mut LogLine) {
    cut(&mut line.text);
    cut(&mut line.once);
}

fn cut(text: &mut String) {
    if text.len() > TEXT_LEN_MAX {
        let end = (0..=TEXT_LEN_MAX)
            .rev()
            .find(|at| text.is_char_boundary(*at))
            .unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::OsdId;
    use nacre_wire::msg::monitor::Severity;

    fn line(osd: u32, instance: u64, number: u64) -> LogLine {
        let from = Entity::Osd(OsdId(osd));
        let text = "é".repeat(2000);
        LogLine {
            from,
            instance: Instance(instance),
            number,
            severity: Severity::Info {},
            text,
            once: String::new(),
        }
    }
    /// Its text is unique, its key may be shared.
    fn once(osd: u32, number: u64, key: &str) -> LogLine {
        LogLine {
            once: key.to_owned(),
            text: format!("{key} of {osd}/{number}"),
            ..line(osd, 1, number)
        }
    }

    // Failed when `keys` was not checked, when it was not derived from an image, and when it was
    // not removed with the lines.
    #[test]
    fn what_many_say_stands_once_as_long_as_it_stands() {
        let mut log = ClusterLog::default();
        assert_eq!(
            log.append(
                vec![
                    once(1, 1, "a"),
                    once(2, 1, "a"),
                    once(2, 2, "b"),
                    once(1, 2, "a")
                ],
                0
            ),
            2
        );
        log.check();
        let mut log = ClusterLog::from_image(log.to_image());
        assert!(log.knows(&once(3, 1, "a")) && !log.knows(&once(3, 1, "c")));
        assert_eq!(
            log.append(vec![once(3, 1, "b"), line(3, 1, 2), line(3, 1, 3)], 0),
            2,
            "others are not held together"
        );
        let long = "é".repeat(TEXT_LEN_MAX);
        assert_eq!(
            log.append(vec![once(3, 4, &long), once(4, 1, &long)], 0),
            1,
            "also when they are cut"
        );
        log.append(
            (10..10 + LINES_MAX as u64)
                .map(|number| line(5, 1, number))
                .collect(),
            0,
        );
        log.check();
        assert_eq!(
            log.append(vec![once(6, 1, "a"), once(7, 1, "a")], 0),
            1,
            "the first is no longer kept"
        );
    }

    #[test]
    fn repetitions_are_dropped_by_instance_and_number() {
        let mut log = ClusterLog::default();
        assert_eq!(
            log.append(vec![line(1, 1, 1), line(1, 1, 2), line(1, 1, 1)], 0),
            2
        );
        assert_eq!(log.append(vec![line(1, 1, 2), line(2, 1, 1)], 0), 1);
        assert_eq!(
            log.append(vec![line(1, 2, 1)], 0),
            1,
            "a new life counts from the start"
        );
        assert_eq!(
            log.append(vec![line(1, 1, 9)], 0),
            0,
            "an earlier life has nothing to say any more"
        );
        assert!(
            log.lines
                .iter()
                .all(|numbered| numbered.line.text.len() <= TEXT_LEN_MAX + 3)
        );
        log.check();
    }

    #[test]
    fn the_log_is_bounded() {
        let mut log = ClusterLog::default();
        for number in 0..6_000 {
            let short = |from| LogLine {
                text: "short".into(),
                ..line(from, 1, u64::from(number) + 1)
            };
            log.append(vec![short(number % 5_000), short(9_999)], 0);
        }
        log.check();
        assert_eq!((log.last(), log.lines().count()), (12_000, LINES_MAX));
        // Long lines, with keys as long: 41 MB of an image that has to fit into one transaction.
        for number in 6_000..10_000 {
            let once = format!("{number} {}", "k".repeat(TEXT_LEN_MAX - 10));
            log.append(
                vec![LogLine {
                    once,
                    ..line(9_999, 1, number)
                }],
                0,
            );
        }
        log.check();
        let bytes = nacre_wire::Wire::to_bytes(&log.to_image()).len();
        assert!(
            bytes <= LINES_BYTES_MAX + (SENDERS_MAX << 6),
            "{bytes} bytes"
        );
        assert_eq!(ClusterLog::from_image(log.to_image()), log);
    }
}
