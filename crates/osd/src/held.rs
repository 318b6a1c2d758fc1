//! Messages that wait until we have a map, or may act on it.
//!
//! ```text
//!  message of epoch 9, ours is 7 ─▶ space? ─no─▶ its sender repeats it
//!                                     └yes──▶ held ─▶ epoch 9: received · 20 s: dropped, its sender repeats it
//! ```
//! A fence or an epoch of the far future must not fill our memory, nor take the memory of others
//! for ever: held messages are dropped after a while, one sender has at most half of the total, and
//! a quarter is reserved for peers. No message arrival scans the held ones.
//!
//! Invariant: a component that drops a client's operation notes that it was turned away. Copies of
//! later operations are held behind it, before its own later copy, and would overtake it.

use nacre_types::{Entity, Epoch, Time};
use nacre_wire::Message;
use nacre_wire::msg::payload_len;
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes of messages held, of one sender and of all. One is always accepted, regardless of its
/// size.
const BYTES_EACH: usize = 32 << 20;
const BYTES: usize = 128 << 20;
/// Senders repeat within seconds; messages that their senders have given up are not repeated.
const KEPT: Duration = Duration::from_secs(20);

#[derive(Debug)]
struct One {
    needed: Epoch,
    epoch: Epoch,
    from: Entity,
    message: Message,
    bytes: usize,
    since: Time,
}

/// Messages and their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    count: usize,
    bytes: usize,
}

/// The held messages; see the module head.
#[derive(Debug, Default)]
pub struct Held {
    messages: Vec<One>,
    bytes: usize,
    clients: usize,
    senders: BTreeMap<Entity, Load>,
}

/// The size of a message.
fn bytes_of(message: &Message) -> usize {
    payload_len(message.payload()) + message.meta_len() as usize
}

impl Held {
    /// Whether there is memory for a message, with at most `most` of all.
    #[must_use]
    pub fn has_room(&self, from: Entity, message: &Message, most: usize) -> bool {
        let more = bytes_of(message);
        let theirs = self.senders.get(&from).copied().unwrap_or_default();
        let is_peer = matches!(from, Entity::Osd(_));
        if self.messages.len() >= most || (!is_peer && self.clients >= most - most / 4) {
            return false;
        }
        if theirs.count == 0 && self.bytes + more <= BYTES * 2 {
            return true;
        }
        theirs.count < most.div_ceil(2)
            && theirs.bytes + more <= BYTES_EACH
            && self.bytes + more <= BYTES
    }

    /// Holds a message, sent with `epoch`, until we have the epoch `needed`.
    pub fn keep(&mut self, now: Time, needed: Epoch, epoch: Epoch, from: Entity, message: Message) {
        let bytes = bytes_of(&message);
        self.bytes += bytes;
        self.clients += usize::from(!matches!(from, Entity::Osd(_)));
        let theirs = self.senders.entry(from).or_default();
        (theirs.count, theirs.bytes) = (theirs.count + 1, theirs.bytes + bytes);
        self.messages.push(One {
            needed,
            epoch,
            from,
            message,
            bytes,
            since: now,
        });
    }

    /// Takes the messages that need no newer epoch than this, in their order of arrival: epoch,
    /// sender, message.
    pub fn release(&mut self, epoch: Epoch) -> Vec<(Epoch, Entity, Message)> {
        let released = self.take(|one| one.needed <= epoch);
        released
            .into_iter()
            .map(|one| (one.epoch, one.from, one.message))
            .collect()
    }

    /// Drops messages that have waited for too long, and returns them: sender and message.
    pub fn forget(&mut self, now: Time) -> Vec<(Entity, Message)> {
        // The first one has waited longest.
        let late = |one: &One| now.since(one.since) >= KEPT;
        let late = if self.messages.first().is_some_and(late) {
            self.take(late)
        } else {
            Vec::new()
        };
        late.into_iter()
            .map(|one| (one.from, one.message))
            .collect()
    }

    fn take(&mut self, which: impl Fn(&One) -> bool) -> Vec<One> {
        let (taken, left) = std::mem::take(&mut self.messages)
            .into_iter()
            .partition(which);
        self.messages = left;
        let taken: Vec<One> = taken;
        for one in &taken {
            self.bytes -= one.bytes;
            self.clients -= usize::from(!matches!(one.from, Entity::Osd(_)));
            let theirs = self
                .senders
                .get_mut(&one.from)
                .expect("it has a message here");
            (theirs.count, theirs.bytes) = (theirs.count - 1, theirs.bytes - one.bytes);
            if theirs.count == 0 {
                self.senders.remove(&one.from);
            }
        }
        taken
    }

    /// Asserts that the held messages need a newer epoch than this one, and are counted.
    pub fn check(&self, epoch: Epoch) {
        for One {
            needed,
            from,
            message,
            ..
        } in &self.messages
        {
            assert!(
                *needed > epoch,
                "a message of {from} that needed {needed} is held at {epoch}: {message:?}"
            );
        }
        let bytes: usize = self.messages.iter().map(|one| one.bytes).sum();
        let count: usize = self.senders.values().map(|load| load.count).sum();
        assert_eq!(
            (self.bytes, self.messages.len()),
            (bytes, count),
            "what is held was miscounted"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use nacre_types::{ClientId, OsdId};
    use nacre_wire::msg::client::OpRequest;
    use nacre_wire::msg::replication::Ping;

    const NOW: Time = Time(0);
    const FUTURE: Epoch = Epoch(u64::MAX);

    fn ping() -> Message {
        Message::Ping(Ping { stamp: 1 })
    }
    fn write(mib: usize) -> Message {
        Message::OpRequest(OpRequest::default(), vec![Bytes::from(vec![0; mib << 20])])
    }
    fn client(number: u64) -> Entity {
        Entity::Client(ClientId(number))
    }
    impl Held {
        /// Offers a message, as a daemon does.
        fn offer(&mut self, now: Time, from: Entity, message: Message, most: usize) -> bool {
            let room = self.has_room(from, &message, most);
            if room {
                self.keep(now, FUTURE, Epoch(1), from, message);
            }
            self.check(Epoch(1));
            room
        }
    }

    /// (Review.) Two clients with a fence of the far future took the memory for ever, and every
    /// early message of peers was dropped until the daemon restarted; each further one scanned all.
    #[test]
    fn what_is_never_due_goes_and_peers_have_room_all_the_while() {
        let mut held = Held::default();
        let of = |held: &mut Held, from| {
            (0..200)
                .filter(|_| held.offer(NOW, from, ping(), 100))
                .count()
        };
        assert_eq!(
            [
                of(&mut held, client(1)),
                of(&mut held, client(2)),
                of(&mut held, client(3))
            ],
            [50, 25, 0]
        );
        assert_eq!(of(&mut held, Entity::Osd(OsdId(1))), 25);
        let later = NOW + Duration::from_secs(19);
        assert!(held.forget(later).is_empty());
        assert_eq!(held.forget(later + Duration::from_secs(1)).len(), 100);
        held.check(Epoch(1));
        assert_eq!(of(&mut held, client(3)), 50);
    }

    #[test]
    fn what_has_come_lately_stays_when_older_ones_go() {
        let mut held = Held::default();
        let at = |seconds| NOW + Duration::from_secs(seconds);
        assert!(
            held.offer(at(0), client(1), ping(), 100) && held.offer(at(15), client(1), ping(), 100)
        );
        assert_eq!(
            [20, 34, 35].map(|seconds| held.forget(at(seconds)).len()),
            [1, 0, 1]
        );
        assert!(held.messages.is_empty());
    }

    #[test]
    fn bytes_are_bounded_of_each_and_of_all_and_one_always_fits() {
        let mut held = Held::default();
        let of = |held: &mut Held, from| {
            (0..9)
                .filter(|_| held.offer(NOW, from, write(10), 100))
                .count()
        };
        assert_eq!(of(&mut held, client(1)), 3, "32 MiB");
        assert!(!held.offer(NOW, client(1), write(3), 100));
        assert_eq!(
            [
                of(&mut held, client(2)),
                of(&mut held, client(3)),
                of(&mut held, client(4))
            ],
            [3, 3, 3]
        );
        assert!(
            held.offer(NOW, client(5), write(60), 100),
            "its first, beyond 128 MiB of all"
        );
        assert!(!held.offer(NOW, client(5), ping(), 100));
        assert!(held.offer(NOW, client(6), write(60), 100));
        assert!(
            !held.offer(NOW, client(7), write(60), 100),
            "never more than 256 MiB"
        );
    }

    #[test]
    fn what_is_due_comes_in_order_and_makes_room() {
        let mut held = Held::default();
        for (needed, epoch) in [(3, 1), (5, 2), (4, 3)] {
            held.keep(NOW, Epoch(needed), Epoch(epoch), client(1), ping());
        }
        let released = held.release(Epoch(4));
        assert_eq!(
            released
                .iter()
                .map(|(epoch, ..)| epoch.0)
                .collect::<Vec<_>>(),
            [1, 3]
        );
        held.check(Epoch(4));
        assert_eq!(held.release(Epoch(5)).len(), 1);
        assert!(held.senders.is_empty() && held.bytes == 0 && held.clients == 0);
    }
}
