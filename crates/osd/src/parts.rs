//! Messages whose size grows with a PG's log, memory or objects are sent in parts: a frame has a
//! maximum size, and a long one delays heartbeats.
//!
//! ```text
//!  Adopt, 40 MiB ─▶ its bytes ─▶ Part 0 … Part 39 ──(lost, duplicated, in any order)──▶ all there, checksum right ─▶ Adopt
//! ```
//! Nothing is acknowledged here: a sender that waits for an answer resends the message. If the
//! content is unchanged, parts of either attempt complete it: a part is identified by the length
//! and checksum of the complete message.
//!
//! Invariant: the parts collected here belong to their PG's current interval, and take at most
//! [`BYTES_MAX`].

use bytes::Bytes;
use nacre_types::{Epoch, OsdId, PgId};
use nacre_wire::msg::replication::Part;
use nacre_wire::{Message, Payload, frame};
use std::collections::BTreeMap;

/// The bytes of all collected parts; parts beyond that are dropped, and resent.
const BYTES_MAX: usize = 256 << 20;

/// The parts of a message of a kind that may be long, if it is longer than `most` bytes.
pub(crate) fn split(message: &Message, most: usize) -> Option<Vec<Part>> {
    let (pg, interval) = match message {
        Message::PeerInfo(m) => (m.pg, m.interval),
        Message::LogReply(m) => (m.pg, m.interval),
        Message::Adopt(m) => (m.pg, m.interval),
        Message::AdoptAck(m) => (m.pg, m.interval),
        _ => return None,
    };
    let mut meta = Vec::new();
    message.put_meta(&mut meta);
    if meta.len() <= most {
        return None;
    }
    let meta = Bytes::from(meta);
    let (kind, _, compat) = message.kind();
    let length =
        u32::try_from(meta.len()).expect("a group's log and memory are bounded far below 4 GiB");
    let whole = (length, frame::crc32c(&meta));
    let count = u32::try_from(meta.len().div_ceil(most)).expect("fewer than bytes");
    let part = |index: u32| {
        let from = index as usize * most;
        let bytes = meta.slice(from..meta.len().min(from + most));
        Part {
            pg,
            interval,
            kind,
            compat,
            whole,
            index,
            count,
            bytes,
        }
    };
    Some((0..count).map(part).collect())
}

#[derive(Debug)]
struct Whole {
    interval: Epoch,
    name: (u32, u32),
    count: u32,
    parts: BTreeMap<u32, Bytes>,
}

/// Messages being received in parts.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    wholes: BTreeMap<(OsdId, PgId, u16), Whole>,
    bytes: usize,
}

impl Parts {
    /// A part arrived; returns the message that it completes.
    pub(crate) fn take(&mut self, from: OsdId, part: Part) -> Option<Message> {
        let id = (from, part.pg, part.kind);
        let same = |whole: &Whole| {
            (whole.interval, whole.name, whole.count) == (part.interval, part.whole, part.count)
        };
        if self.wholes.get(&id).is_none_or(|whole| !same(whole)) {
            self.drop_whole(&id);
            let (interval, name, count) = (part.interval, part.whole, part.count);
            self.wholes.insert(
                id,
                Whole {
                    interval,
                    name,
                    count,
                    parts: BTreeMap::new(),
                },
            );
        }
        let whole = self.wholes.get_mut(&id).expect("just made");
        if part.index >= part.count || self.bytes + part.bytes.len() > BYTES_MAX {
            return None;
        }
        let size = part.bytes.len();
        if whole.parts.insert(part.index, part.bytes).is_none() {
            self.bytes += size;
        }
        if whole.parts.len() < whole.count as usize {
            return None;
        }
        let meta: Vec<u8> = whole.parts.values().flatten().copied().collect();
        self.drop_whole(&id);
        let right =
            (meta.len() as u64, frame::crc32c(&meta)) == (u64::from(part.whole.0), part.whole.1);
        // A sender of a malformed message may resend it; it was not used.
        right
            .then(|| Message::decode(part.kind, part.compat, &meta, Payload::new()).ok())
            .flatten()
    }

    fn drop_whole(&mut self, id: &(OsdId, PgId, u16)) {
        if let Some(whole) = self.wholes.remove(id) {
            self.bytes -= whole.parts.values().map(Bytes::len).sum::<usize>();
        }
    }

    /// The map changed: drops parts of other intervals.
    pub(crate) fn keep(&mut self, current: impl Fn(PgId, Epoch) -> bool) {
        let gone: Vec<_> = self
            .wholes
            .iter()
            .filter(|((_, pg, _), whole)| !current(*pg, whole.interval))
            .map(|(id, _)| *id)
            .collect();
        gone.iter().for_each(|id| self.drop_whole(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::Version;
    use nacre_wire::msg::replication::{AdoptAck, Missing};

    fn ack(objects: u64) -> Message {
        let object = |n| nacre_types::ObjectId::named(&format!("object-{n}"));
        let version = Version {
            interval: Epoch(1),
            number: 1,
        };
        let missing = |n| Missing {
            object: object(n),
            need: version,
            have: Version::NONE,
        };
        let missing = (0..objects).map(missing).collect();
        Message::AdoptAck(AdoptAck {
            pg: PgId::default(),
            interval: Epoch(1),
            head: version,
            missing,
            backfill: None,
            undone: vec![],
        })
    }

    #[test]
    fn a_long_message_arrives_whatever_happens_to_its_parts() {
        let message = ack(50);
        assert!(split(&ack(0), 200).is_none(), "short ones go as they are");
        let parts = split(&message, 200).expect("long");
        assert!(parts.len() > 5 && parts.iter().all(|part| part.bytes.len() <= 200));
        let mut arriving = Parts::default();
        // The second half of one attempt, duplicated and in reverse order; then all of another.
        let (first, second) = parts.split_at(3);
        for part in second.iter().rev().chain(second) {
            assert_eq!(arriving.take(OsdId(1), part.clone()), None);
        }
        let done: Vec<Message> = first
            .iter()
            .filter_map(|part| arriving.take(OsdId(1), part.clone()))
            .collect();
        assert_eq!(done, [message]);
        assert_eq!((arriving.bytes, arriving.wholes.len()), (0, 0));
    }

    #[test]
    fn parts_of_different_messages_are_not_put_together() {
        let (old, new) = (
            split(&ack(50), 200).expect("long"),
            split(&ack(51), 200).expect("long"),
        );
        let mut arriving = Parts::default();
        for part in &old[..old.len() - 1] {
            assert_eq!(arriving.take(OsdId(1), part.clone()), None);
        }
        assert_eq!(
            arriving.take(OsdId(1), new.last().expect("some").clone()),
            None
        );
        assert_eq!(
            arriving.take(OsdId(2), old.last().expect("some").clone()),
            None
        );
        arriving.keep(|_, interval| interval == Epoch(2));
        assert_eq!((arriving.bytes, arriving.wholes.len()), (0, 0));
    }
}
