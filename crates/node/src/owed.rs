//! Upper bound on the bytes of answers owed to one client.
//!
//! A request of some bytes may ask for megabytes, and a thousand of them arrive in one turn. A
//! request counts from the time it is passed to the role until its answer is queued: no more
//! requests are taken from a client that is owed much. Of a watch only its initial events count.
//! Requests are counted by their kind and number, so a resent one counts once.
//!
//! Invariant: `bytes` is the sum of `asked`.

use nacre_wire::Message;
use nacre_wire::msg::meta::{
    META_ANSWER_BYTES_MAX, META_VALUE_BYTES_MAX, MetaCall, MetaOp, MetaSpan,
};
use std::collections::BTreeMap;

/// Maximum size of a metadata key with its value.
const PAIR: u64 = META_VALUE_BYTES_MAX + (4 << 10);
/// Maximum size of an answer to a metadata request.
const META_REPLY: u64 = META_ANSWER_BYTES_MAX as u64;
/// Initial events of a watch that begins in the past: all changes that monitors remember.
const META_HISTORY: u64 = 4 << 20;
/// Assumed size of the answer to a command: there are longer ones, in large clusters.
const COMMAND_REPLY: u64 = 1 << 20;

/// A request, as identified by its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Request {
    Operation(u64),
    Metadata(u64),
    Watch(u64),
    Command(u64),
}

impl Request {
    /// The request, and the maximum size of its answer; 0: small.
    fn of(message: &Message) -> Option<(Self, u64)> {
        Some(match message {
            Message::OpRequest(request, _) => {
                let reply = request.ops.iter().map(|op| op.facts().reply).sum();
                (Self::Operation(request.request.sequence), reply)
            }
            Message::MetaRequest(request) => {
                (Self::Metadata(request.sequence), meta_reply(&request.call))
            }
            Message::MetaWatch(ask) => (
                Self::Watch(ask.watch),
                if ask.from == 0 { 0 } else { META_HISTORY },
            ),
            Message::Command(command) => (Self::Command(command.token), COMMAND_REPLY),
            _ => return None,
        })
    }

    /// The request that an answer belongs to.
    fn answered_by(message: &Message) -> Option<Self> {
        Some(match message {
            Message::OpReply(reply, _) => Self::Operation(reply.request.sequence),
            Message::MetaReply(reply) => Self::Metadata(reply.sequence),
            Message::MetaEvents(events, _) => Self::Watch(events.watch),
            Message::MetaWatchEnded(ended) => Self::Watch(ended.watch),
            Message::CommandReply(reply) => Self::Command(reply.token),
            _ => return None,
        })
    }
}

fn meta_reply(call: &MetaCall) -> u64 {
    let range = |span: &MetaSpan, limit: u32| match (span, limit) {
        (MetaSpan::Key { .. }, _) => PAIR,
        (_, 0) => META_REPLY,
        (_, limit) => PAIR * u64::from(limit),
    };
    let bytes = match call {
        MetaCall::Range { span, limit, .. } => range(span, *limit),
        MetaCall::Transact {
            then, otherwise, ..
        } => {
            let read = |op: &MetaOp| match op {
                MetaOp::Get { span, limit, .. } => range(span, *limit),
                _ => 0,
            };
            then.iter().chain(otherwise).map(read).sum()
        }
        MetaCall::Leases {} => META_REPLY,
        _ => 0,
    };
    bytes.min(META_REPLY)
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Owed {
    asked: BTreeMap<Request, u64>,
    bytes: u64,
}

impl Owed {
    /// Maximum number of bytes owed.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    /// A client's request is passed to the role.
    pub fn note_request(&mut self, message: &Message) {
        let Some((request, bytes)) = Request::of(message).filter(|(_, bytes)| *bytes > 0) else {
            return;
        };
        let former = self.asked.insert(request, bytes).unwrap_or(0);
        self.bytes = self.bytes + bytes - former;
    }
    /// The role has sent a message to the client.
    pub fn note_answer(&mut self, message: &Message) {
        if !self.asked.is_empty()
            && let Some(request) = Request::answered_by(message)
            && let Some(bytes) = self.asked.remove(&request)
        {
            self.bytes -= bytes;
        }
    }
    /// The role has accepted a watch: its initial events are queued. A watch that begins after what
    /// this monitor has applied gets no events until that revision is applied.
    pub fn note_watched(&mut self, watch: u64) {
        self.bytes -= self.asked.remove(&Request::Watch(watch)).unwrap_or(0);
    }
    /// Answers were lost: outstanding requests no longer count.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
    /// Asserts the invariant.
    pub fn check(&self) {
        let sum: u64 = self.asked.values().sum();
        assert_eq!(
            self.bytes,
            sum,
            "bytes that are owed for {} requests",
            self.asked.len()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{Instance, Name};
    use nacre_wire::msg::meta::{
        MetaError, MetaEvents, MetaReply, MetaRequest, MetaResult, MetaWatch, MetaWatchEnded,
    };
    use nacre_wire::msg::monitor::{Command, CommandReply};

    const MIB: u64 = 1 << 20;

    fn call(sequence: u64, call: MetaCall) -> Message {
        let instance = Instance(1);
        Message::MetaRequest(MetaRequest {
            instance,
            sequence,
            answered_below: 0,
            known: 0,
            again: false,
            call,
        })
    }
    fn range(span: MetaSpan, limit: u32) -> MetaCall {
        MetaCall::Range {
            span,
            limit,
            keys_only: false,
            serializable: true,
        }
    }
    fn answer(sequence: u64) -> Message {
        let result = MetaResult::Leases { leases: Vec::new() };
        Message::MetaReply(MetaReply {
            instance: Instance(1),
            sequence,
            revision: 1,
            result,
        })
    }
    fn all() -> MetaSpan {
        MetaSpan::Prefix {
            prefix: Name::default(),
        }
    }
    fn key() -> MetaSpan {
        MetaSpan::Key {
            key: Name::from("a/b"),
        }
    }

    /// (Found by reading the code.) A client asked for 1,024 ranges of metadata, or as many watches
    /// from the oldest revision, and the monitor assembled one to four GiB in a turn: only reads of
    /// objects were counted.
    #[test]
    fn what_asks_for_much_counts_until_it_is_answered() {
        let watch = |from| {
            Message::MetaWatch(MetaWatch {
                watch: 7,
                span: all(),
                from,
            })
        };
        let get = |span: MetaSpan| MetaOp::Get {
            span,
            limit: 0,
            keys_only: false,
        };
        let transact = |then| MetaCall::Transact {
            compares: Vec::new(),
            then,
            otherwise: vec![get(all())],
        };
        let command = Message::Command(Command {
            token: 7,
            request: String::new(),
        });
        let told = Message::MetaEvents(
            MetaEvents {
                watch: 7,
                after: 1,
                through: 2,
            },
            Vec::new(),
        );
        let ended = Message::MetaWatchEnded(MetaWatchEnded {
            watch: 7,
            error: MetaError::Compacted { oldest: 1 },
        });
        let reply = Message::CommandReply(CommandReply {
            token: 7,
            error: None,
            reply: String::new(),
        });
        for (request, answer, bytes) in [
            (call(7, range(all(), 0)), answer(7), MIB),
            (call(7, range(all(), 2)), answer(7), 2 * PAIR),
            (call(7, range(all(), u32::MAX)), answer(7), MIB),
            (call(7, range(key(), 0)), answer(7), PAIR),
            (call(7, transact(vec![get(key()); 100])), answer(7), MIB),
            (call(7, MetaCall::Leases {}), answer(7), MIB),
            (watch(1), told, 4 * MIB),
            (watch(1), ended, 4 * MIB),
            (command, reply, MIB),
        ] {
            let mut owed = Owed::default();
            owed.note_request(&request);
            owed.note_request(&request);
            owed.check();
            assert_eq!(owed.bytes(), bytes, "{request:?}, and it is owed once");
            owed.note_answer(&call(7, MetaCall::Leases {}));
            assert_eq!(owed.bytes(), bytes, "that was no answer");
            owed.note_answer(&answer);
            assert_eq!(owed.bytes(), 0, "{request:?}");
        }
        let mut owed = Owed::default();
        owed.note_request(&watch(0));
        owed.note_request(&call(1, MetaCall::KeepAlive { lease: 1 }));
        assert_eq!(owed.bytes(), 0, "little is not counted");
    }

    /// Watches that begin after what their monitor has applied counted until their first event: a
    /// client with more than sixteen was not read from for five seconds, again and again.
    #[test]
    fn a_watch_that_waits_is_owed_nothing() {
        let mut owed = Owed::default();
        for watch in 0..1000 {
            owed.note_request(&Message::MetaWatch(MetaWatch {
                watch,
                span: all(),
                from: 1 << 40,
            }));
            assert_eq!(owed.bytes(), 4 * MIB);
            owed.note_watched(watch);
        }
        owed.check();
        assert_eq!(owed.bytes(), 0);
    }

    /// Operations, requests, watches and commands are numbered separately.
    #[test]
    fn an_answer_of_another_kind_is_another() {
        let mut owed = Owed::default();
        owed.note_request(&call(3, range(all(), 0)));
        owed.note_request(&Message::MetaWatch(MetaWatch {
            watch: 3,
            span: all(),
            from: 1,
        }));
        owed.note_request(&Message::Command(Command {
            token: 3,
            request: String::new(),
        }));
        assert_eq!(owed.bytes(), 6 * MIB);
        owed.note_answer(&answer(3));
        assert_eq!(owed.bytes(), 5 * MIB);
        owed.forget();
        assert_eq!(owed.bytes(), 0);
        owed.check();
    }
}
