//! The events of the newest revisions, for watches that begin in the past. Bounded by count and
//! bytes; older revisions are *compacted*.

use nacre_wire::msg::meta::{MetaEvent, MetaSpan};
use std::collections::VecDeque;

/// Maximum number of revisions kept.
pub const REVISIONS_MAX: usize = 10_000;
/// Maximum bytes of events kept: the history is in every snapshot.
pub const BYTES_MAX: usize = 4 << 20;

/// See the module head. Dense: one list of events per revision, the last is the store's newest
/// revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    steps: VecDeque<Vec<MetaEvent>>,
    newest: u64,
    bytes: usize,
}

fn weight(events: &[MetaEvent]) -> usize {
    let one = |event: &MetaEvent| match event {
        MetaEvent::Put { pair } => 96 + pair.key.as_bytes().len() + pair.value.len(),
        MetaEvent::Delete { key, .. } => 64 + key.as_bytes().len(),
    };
    32 + events.iter().map(one).sum::<usize>()
}

impl History {
    /// From an image: the last list is revision `newest`'s.
    #[must_use]
    pub fn of(newest: u64, steps: Vec<Vec<MetaEvent>>) -> Self {
        let bytes = steps.iter().map(|step| weight(step)).sum();
        Self {
            steps: steps.into(),
            newest,
            bytes,
        }
    }
    /// For an image.
    #[must_use]
    pub fn to_image(&self) -> Vec<Vec<MetaEvent>> {
        self.steps.iter().cloned().collect()
    }
    /// The next revision's events.
    pub fn push(&mut self, events: Vec<MetaEvent>) {
        self.newest += 1;
        self.bytes += weight(&events);
        self.steps.push_back(events);
        while self.steps.len() > REVISIONS_MAX || self.bytes > BYTES_MAX && self.steps.len() > 1 {
            let gone = self.steps.pop_front().expect("more than one is there");
            self.bytes -= weight(&gone);
        }
    }
    /// The oldest revision whose events are kept; the next revision when none are.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        self.newest + 1 - self.steps.len() as u64
    }
    /// The events of keys in `span` from revision `from` on, by revision. `None`: compacted.
    #[must_use]
    pub fn since(&self, from: u64, span: &MetaSpan) -> Option<Vec<MetaEvent>> {
        let skip =
            usize::try_from(from.checked_sub(self.oldest())?).expect("a history fits in memory");
        let events = self.steps.iter().skip(skip).flatten();
        Some(
            events
                .filter(|event| span.has(event.key()))
                .cloned()
                .collect(),
        )
    }
    /// One revision's events.
    #[must_use]
    pub fn at(&self, revision: u64) -> Option<&Vec<MetaEvent>> {
        self.steps
            .get(usize::try_from(revision.checked_sub(self.oldest())?).ok()?)
    }
    /// Asserts that it ends at this revision.
    pub fn check(&self, revision: u64) {
        assert_eq!(
            self.newest, revision,
            "the history ends at the store's revision"
        );
    }
    /// Asserts density, revision by revision.
    pub fn check_all(&self) {
        let numbers = self.steps.iter().zip(self.oldest()..);
        for (events, revision) in numbers {
            assert!(!events.is_empty(), "a revision changed something");
            assert!(
                events.iter().all(|event| event.revision() == revision),
                "events are those of their revision"
            );
        }
    }
}
