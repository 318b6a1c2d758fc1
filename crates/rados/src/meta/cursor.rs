//! A watch's position in the log: every revision once, in order, or the report that it is
//! compacted.
//!
//! ```text
//!  ──────────┬───────────────────────────┬──────────────────────┐
//!            head.oldest()               next                   head.revision
//!                        reported ◀──────┘ read now: [next, next + n)
//! ```
//! Head and log come from one read. Invariant: `next` increases by exactly what was reported.

use super::needs::Needs;
use super::state::State;
use nacre_client::WatchNews;
use nacre_wire::msg::meta::{MetaError, MetaSpan};

/// Most revisions per read.
const STEPS_MAX: u32 = 32;

/// See the module head.
#[derive(Clone, Debug)]
pub struct Cursor {
    span: MetaSpan,
    /// The first revision that is not reported yet; 0: from now on, whenever that is.
    next: u64,
    /// The newest revision seen.
    seen: u64,
    begun: bool,
    ended: bool,
}

impl Cursor {
    /// Starts at a revision; 0: from now on.
    #[must_use]
    pub const fn new(span: MetaSpan, from: u64) -> Self {
        Self {
            span,
            next: from,
            seen: 0,
            begun: false,
            ended: false,
        }
    }
    /// What to read.
    #[must_use]
    pub fn needs(&self) -> Needs {
        if self.next == 0 {
            Needs::head()
        } else {
            Needs::log(self.next, STEPS_MAX)
        }
    }
    /// Whether nothing more follows.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Handles a read. `None`: there is nothing new. The first report comes at once, even without
    /// events: it shows that the watch is established.
    pub fn heard(&mut self, state: State) -> Option<WatchNews> {
        if self.ended {
            return None;
        }
        let head = state.head;
        if head.revision < self.seen {
            // The object was deleted, or restored from a copy: later revisions do not continue
            // earlier ones.
            let why = format!(
                "the metadata went back from revision {} to {}: they were deleted or restored; read the keys, and watch again",
                self.seen, head.revision
            );
            return self.end(MetaError::Invalid { why });
        }
        self.seen = head.revision;
        if self.next == 0 {
            self.next = head.revision + 1;
        }
        if self.next <= head.revision && self.next < head.oldest() {
            return self.end(MetaError::Compacted {
                oldest: head.oldest(),
            });
        }
        let mut events = Vec::new();
        for (revision, step) in state.log.range(self.next..) {
            if *revision != self.next {
                let why = format!(
                    "the log of the metadata has no revision {}: it is damaged",
                    self.next
                );
                return self.end(MetaError::Invalid { why });
            }
            events.extend(
                step.events
                    .iter()
                    .filter(|event| self.span.has(event.key()))
                    .cloned(),
            );
            self.next += 1;
        }
        let told = !events.is_empty() || !self.begun && self.next > head.revision;
        if !told {
            return None;
        }
        self.begun = true;
        Some(WatchNews::Events {
            events,
            through: self.next - 1,
        })
    }

    fn end(&mut self, error: MetaError) -> Option<WatchNews> {
        self.ended = true;
        Some(WatchNews::Ended(error))
    }

    /// Whether the last read may have left something for another one.
    #[must_use]
    pub const fn is_behind(&self) -> bool {
        !self.ended && self.next != 0 && self.next <= self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Head, StepRecord};
    use super::*;
    use nacre_wire::msg::meta::MetaEvent;
    use std::collections::BTreeMap;

    fn cursor(from: u64) -> Cursor {
        Cursor::new(
            MetaSpan::Prefix {
                prefix: "a/".into(),
            },
            from,
        )
    }
    /// A state with revisions `1..=revision`, some of which are in the log. Even ones change `a/`.
    fn state(revision: u64, shown: std::ops::Range<u64>) -> State {
        let mut head = Head::default();
        (0..revision).for_each(|_| {
            head.advance(1);
        });
        let key = |revision: u64| {
            if revision.is_multiple_of(2) {
                "a/k"
            } else {
                "b/k"
            }
        };
        let step = |revision| {
            (
                revision,
                StepRecord {
                    events: vec![MetaEvent::Delete {
                        key: key(revision).into(),
                        revision,
                    }],
                },
            )
        };
        let log: BTreeMap<u64, StepRecord> = shown.map(step).collect();
        State {
            head,
            log,
            ..State::default()
        }
    }
    fn told(news: Option<WatchNews>) -> Option<(Vec<u64>, u64)> {
        match news? {
            WatchNews::Events { events, through } => {
                Some((events.iter().map(MetaEvent::revision).collect(), through))
            }
            WatchNews::Ended(error) => panic!("{error}"),
        }
    }

    // Fails when `next` is set to the head's revision instead of what was read.
    #[test]
    fn what_several_reads_bring_is_told_once_and_in_order() {
        let mut cursor = cursor(3);
        assert_eq!(told(cursor.heard(state(9, 3..6))), Some((vec![4], 5)));
        assert!(cursor.is_behind());
        assert_eq!(told(cursor.heard(state(12, 6..9))), Some((vec![6, 8], 8)));
        assert_eq!(
            told(cursor.heard(state(12, 9..13))),
            Some((vec![10, 12], 12))
        );
        assert!(!cursor.is_behind());
        assert_eq!(told(cursor.heard(state(12, 13..13))), None);
        assert_eq!(
            told(cursor.heard(state(13, 13..14))),
            None,
            "a revision of other keys"
        );
        assert_eq!(told(cursor.heard(state(14, 14..15))), Some((vec![14], 14)));
    }

    #[test]
    fn from_now_on_begins_behind_the_newest_and_says_so() {
        let mut cursor = cursor(0);
        assert_eq!(cursor.needs(), Needs::head());
        assert_eq!(told(cursor.heard(state(4, 0..0))), Some((vec![], 4)));
        assert_eq!(told(cursor.heard(state(6, 5..7))), Some((vec![6], 6)));
    }

    // Fails when the oldest revision is not checked.
    #[test]
    fn what_is_compacted_is_said_and_a_gap_is_damage() {
        let ended = |news: Option<WatchNews>| match news {
            Some(WatchNews::Ended(error)) => error,
            other => panic!("{other:?}"),
        };
        let oldest = state(9_000, 0..0).head.oldest();
        let mut late = cursor(5);
        assert_eq!(
            ended(late.heard(state(9_000, oldest..oldest + 3))),
            MetaError::Compacted { oldest }
        );
        assert!(late.has_ended() && late.heard(state(9_001, 0..0)).is_none());
        let mut just = cursor(oldest);
        assert!(told(just.heard(state(9_000, oldest..oldest + 3))).is_some());
        assert!(matches!(
            ended(cursor(3).heard(state(9, 4..6))),
            MetaError::Invalid { .. }
        ));
    }

    #[test]
    fn going_back_ends_the_watch_and_the_future_is_waited_for() {
        let mut cursor = cursor(7);
        assert_eq!(told(cursor.heard(state(4, 0..0))), Some((vec![], 6)));
        assert_eq!(told(cursor.heard(state(8, 7..9))), Some((vec![8], 8)));
        assert!(matches!(
            cursor.heard(state(5, 0..0)),
            Some(WatchNews::Ended(MetaError::Invalid { .. }))
        ));
    }
}
