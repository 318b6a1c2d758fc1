//! Recent requests by client: a resent request is answered, not executed again.
//!
//! ```text
//!   forgotten       low                       low + window
//!  ──────────────────┼─────────────────────────────┼──────────▶ sequence
//!    refused          remembered or executed         refused
//! ```
//! A client that sends nothing for long may be forgotten when there are many, or when their answers
//! are large. Its resends are then refused as *superseded*: they may have been executed. A new
//! client is distinguished from it by the revision that it knew when it first sent the request.
//!
//! Invariant: the answers are at most [`BYTES_MAX`], or one answer. (Sixty clients that requested a
//! MiB each and then disconnected made the monitors' image larger than a store's transaction: all
//! of them stopped. Found by reading the code.) Read-only requests are not remembered: they may be
//! executed again.

use super::record::{MetaSession, MetaWho};
use nacre_types::Entity;
use nacre_wire::codec::Wire;
use nacre_wire::msg::meta::{META_WINDOW, MetaError, MetaResult};
use std::collections::BTreeMap;

/// Maximum number of clients remembered.
pub const SESSIONS_MAX: usize = 4_096;

/// Maximum bytes of all answers.
pub const BYTES_MAX: usize = 8 << 20;

/// Result of looking up a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It must be executed.
    New,
    /// It was executed: its revision and result.
    Done(u64, MetaResult),
    /// It must not be executed.
    Refused(MetaError),
}

/// See the module head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sessions {
    by_client: BTreeMap<Entity, MetaSession>,
    forgotten: Option<u64>,
    /// Bytes of all answers.
    bytes: usize,
}

fn size(result: &MetaResult) -> usize {
    result.to_bytes().len()
}

fn size_of(session: &MetaSession) -> usize {
    session
        .results
        .values()
        .map(|(_, result)| size(result))
        .sum()
}

impl Sessions {
    /// From an image.
    #[must_use]
    pub fn of(by_client: BTreeMap<Entity, MetaSession>, forgotten: Option<u64>) -> Self {
        let bytes = by_client.values().map(size_of).sum();
        Self {
            by_client,
            forgotten,
            bytes,
        }
    }
    /// For an image.
    #[must_use]
    pub fn to_image(&self) -> (BTreeMap<Entity, MetaSession>, Option<u64>) {
        (self.by_client.clone(), self.forgotten)
    }

    /// Looks up a request.
    #[must_use]
    pub fn look(&self, who: &MetaWho) -> Known {
        if who.sequence >= who.answered_below.saturating_add(META_WINDOW)
            || who.sequence < who.answered_below
        {
            let why = format!(
                "request {} is outside its client's window of {META_WINDOW}",
                who.sequence
            );
            return Known::Refused(MetaError::Invalid { why });
        }
        match self.by_client.get(&who.client) {
            Some(session) if session.instance == who.instance => {
                match session.results.get(&who.sequence) {
                    Some((revision, result)) => Known::Done(*revision, result.clone()),
                    None if who.sequence < session.low => Known::Refused(MetaError::Superseded {}),
                    None => Known::New,
                }
            }
            Some(session) if session.instance > who.instance => {
                Known::Refused(MetaError::Superseded {})
            }
            _ if who.again && self.forgotten.is_some_and(|at| who.known <= at) => {
                Known::Refused(MetaError::Superseded {})
            }
            _ => Known::New,
        }
    }

    /// It was executed.
    pub fn remember(&mut self, who: &MetaWho, entry: u64, revision: u64, result: MetaResult) {
        let fresh = || MetaSession {
            instance: who.instance,
            low: 0,
            revision,
            touched: entry,
            results: BTreeMap::new(),
        };
        let session = self.by_client.entry(who.client).or_insert_with(fresh);
        if session.instance != who.instance {
            self.bytes -= size_of(session);
            *session = fresh();
        }
        session.low = session.low.max(who.answered_below);
        let kept = session.results.split_off(&session.low);
        let gone = std::mem::replace(&mut session.results, kept);
        self.bytes -= gone.values().map(|(_, result)| size(result)).sum::<usize>();
        self.bytes += size(&result);
        session.results.insert(who.sequence, (revision, result));
        (session.touched, session.revision) = (entry, revision);
        while self.by_client.len() > SESSIONS_MAX
            || (self.bytes > BYTES_MAX && self.by_client.len() > 1)
        {
            let oldest = self
                .by_client
                .iter()
                .min_by_key(|(_, session)| session.touched);
            let oldest = *oldest.expect("there are many").0;
            let gone = self.by_client.remove(&oldest).expect("just found");
            self.bytes -= size_of(&gone);
            self.forgotten = self.forgotten.max(Some(gone.revision));
        }
        // All bytes are this client's: the oldest of its own answers are dropped.
        let session = self
            .by_client
            .get_mut(&who.client)
            .expect("it was heard of last");
        while self.bytes > BYTES_MAX && session.results.len() > 1 {
            let (sequence, (_, result)) = session.results.pop_first().expect("there are several");
            self.bytes -= size(&result);
            session.low = session.low.max(sequence + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{ClientId, Instance};

    fn who(sequence: u64, answered_below: u64) -> MetaWho {
        MetaWho {
            client: Entity::Client(ClientId(7)),
            instance: Instance(1),
            sequence,
            answered_below,
            known: 0,
            again: true,
            name: "seven".into(),
        }
    }

    fn result() -> MetaResult {
        MetaResult::Leases { leases: Vec::new() }
    }

    /// A copy in flight through a monitor that was cut off arrives after its answer was forgotten,
    /// at every position of the window.
    #[test]
    fn what_is_forgotten_is_refused_up_to_the_very_mark() {
        let mut sessions = Sessions::default();
        for sequence in 1..=3 {
            sessions.remember(&who(sequence, sequence), sequence, sequence, result());
        }
        // The third one confirms the first two answers.
        for (sequence, expected) in [
            (0, Known::Refused(MetaError::Superseded {})),
            (1, Known::Refused(MetaError::Superseded {})),
            (2, Known::Refused(MetaError::Superseded {})),
            (3, Known::Done(3, result())),
            (4, Known::New),
        ] {
            assert_eq!(
                sessions.look(&who(sequence, 0)),
                expected,
                "request {sequence}"
            );
        }
        for sequence in [META_WINDOW, META_WINDOW + 1] {
            assert!(matches!(
                sessions.look(&who(sequence, 0)),
                Known::Refused(MetaError::Invalid { .. })
            ));
        }
        assert_eq!(sessions.look(&who(META_WINDOW - 1, 0)), Known::New);
    }
    /// Each restart of a client left the answers of the previous instance counted: after many, no
    /// answer was remembered long enough to be found when its request was resent. With clients that
    /// start and stop, and confirm or do not: the counters match the contents, as in a snapshot.
    #[test]
    fn what_is_counted_is_what_is_kept() {
        let (mut sessions, mut dice) = (Sessions::default(), 1_u64);
        let (mut instances, mut sequences) = ([1_u64; 5], [0_u64; 5]);
        for entry in 0..2_000 {
            dice = crate::raft::timeout::mix(dice);
            let at = (dice % 5) as usize;
            if dice / 5 % 9 == 0 {
                (instances[at], sequences[at]) = (instances[at] + 1, 0);
            }
            sequences[at] += 1;
            let (sequence, confirmed) = (sequences[at], dice / 45 % (sequences[at] + 1));
            let who = MetaWho {
                client: Entity::Client(ClientId(at as u64)),
                instance: Instance(instances[at]),
                ..who(
                    sequence,
                    confirmed.max(sequence.saturating_sub(META_WINDOW - 1)),
                )
            };
            let why = "x".repeat((dice / 1_000 % (200 << 10)) as usize);
            sessions.remember(
                &who,
                entry,
                entry,
                MetaResult::Failed {
                    error: MetaError::Invalid { why },
                },
            );
            if entry % 50 == 0 || entry > 1_990 {
                let (by_client, forgotten) = sessions.to_image();
                assert_eq!(
                    Sessions::of(by_client, forgotten).bytes,
                    sessions.bytes,
                    "after {entry}"
                );
            }
        }
    }
    /// Answers of a MiB, of clients that send one request and of one that confirms none.
    #[test]
    fn large_answers_are_forgotten_before_the_image_is_too_large() {
        let large = || MetaResult::Failed {
            error: MetaError::Invalid {
                why: "x".repeat(1 << 20),
            },
        };
        let mut sessions = Sessions::default();
        for n in 0..64 {
            let stranger = MetaWho {
                client: Entity::Client(ClientId(100 + n)),
                ..who(1, 0)
            };
            sessions.remember(&stranger, n, n, large());
            assert!(
                sessions.bytes <= BYTES_MAX && sessions.by_client.contains_key(&stranger.client)
            );
        }
        let gone = MetaWho {
            client: Entity::Client(ClientId(100)),
            ..who(1, 0)
        };
        assert_eq!(
            sessions.look(&gone),
            Known::Refused(MetaError::Superseded {}),
            "it may have been carried out"
        );
        for sequence in 1..=64 {
            sessions.remember(&who(sequence, 0), 64 + sequence, 64 + sequence, large());
            assert!(sessions.bytes <= BYTES_MAX);
            assert!(
                matches!(sessions.look(&who(sequence, 0)), Known::Done(..)),
                "the last one is remembered"
            );
        }
        assert_eq!(
            sessions.look(&who(1, 0)),
            Known::Refused(MetaError::Superseded {})
        );
        let (by_client, forgotten) = sessions.to_image();
        assert_eq!(Sessions::of(by_client, forgotten).bytes, sessions.bytes);
    }
}
