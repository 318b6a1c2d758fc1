//! Watches of one monitor's clients: every revision of their keys once, in order, without gaps
//! (MAL-11).
//!
//! ```text
//!            history (10,000 revisions)                      applied now
//!  ──────────┬──────────────────────────────────────────────────┤
//!            oldest      told                              revision
//!                         └── the watch's next message covers (told, revision]
//! ```
//! Watches of the same keys form a group: a change's events are encoded once for all of them, and
//! each costs one small message. The groups concerned by a key are looked up: the key itself, its
//! prefixes, and the few groups with two ends.
//!
//! Invariant: all events after `told` that concern a watch are in the history, or the watch ended;
//! events up to `told` are not resent. The first revision of a watch may be ahead of this monitor:
//! a client comes from one that was ahead, and waits until this one has caught up.

use super::access::may_read;
use crate::state::meta::Meta;
use crate::subscribers::Outgoing;
use bytes::Bytes;
use nacre_types::{Entity, Name};
use nacre_wire::Message;
use nacre_wire::msg::meta::{
    META_SETTINGS, MetaError, MetaEvent, MetaEvents, MetaSpan, MetaWatch, MetaWatchEnded,
};
use std::collections::{BTreeMap, BTreeSet};

#[cfg(feature = "mutants")]
#[path = "../mutants/watchers.rs"]
mod planted;

/// Maximum number of watches per client.
pub const WATCHES_MAX: usize = 20_000;

/// Maximum bytes of events that a monitor encodes at once for its watches, each group's counted
/// once. A deletion of all keys is some MiB, and may concern a thousand groups: of every prefix of
/// one long key.
const TOLD_BYTES_MAX: usize = 64 << 20;

/// Up to this number, tests check every watch at each step.
const CHECKED_MAX: usize = 64;

/// The client, with its own number of the watch.
type Who = (Entity, u64);

/// See the module head.
#[derive(Clone, Debug, Default)]
pub struct Watchers {
    /// By keys and watch: the last revision that was sent completely.
    groups: BTreeMap<MetaSpan, BTreeMap<Who, u64>>,
    /// Groups with two ends: checked for each key.
    between: BTreeSet<MetaSpan>,
    by_client: BTreeMap<Entity, BTreeMap<u64, MetaSpan>>,
    names: BTreeMap<Entity, Name>,
}

fn ended(who: Who, error: MetaError) -> (Entity, Message) {
    (
        who.0,
        Message::MetaWatchEnded(MetaWatchEnded {
            watch: who.1,
            error,
        }),
    )
}
fn told(who: Who, after: u64, through: u64, payload: Option<Bytes>) -> (Entity, Message) {
    (
        who.0,
        Message::MetaEvents(
            MetaEvents {
                watch: who.1,
                after,
                through,
            },
            payload.into_iter().collect(),
        ),
    )
}

/// Indexes of the keys in a span, among `by_key`, which is sorted.
fn within<'a>(
    by_key: &'a [(&Name, usize)],
    span: &'a MetaSpan,
) -> impl Iterator<Item = usize> + 'a {
    let from = by_key.partition_point(|(key, _)| *key < span.first());
    by_key[from..]
        .iter()
        .take_while(|(key, _)| span.has(key))
        .map(|(_, place)| *place)
}

impl Watchers {
    /// A client begins a watch, or moves it.
    pub fn watch(
        &mut self,
        meta: &Meta,
        client: Entity,
        name: &Name,
        ask: MetaWatch,
        outgoing: &mut Outgoing,
    ) {
        self.cancel(client, ask.watch);
        let who = (client, ask.watch);
        if let Err(error) = may_read(meta, name, &ask.span) {
            outgoing.push(ended(who, error));
            return;
        }
        let mine = self.by_client.entry(client).or_default();
        if mine.len() >= WATCHES_MAX {
            let why = format!("a client has at most {WATCHES_MAX} watches");
            outgoing.push(ended(who, MetaError::Invalid { why }));
            return;
        }
        mine.insert(ask.watch, ask.span.clone());
        self.names.insert(client, name.clone());
        if matches!(ask.span, MetaSpan::Between { .. }) {
            self.between.insert(ask.span.clone());
        }
        let from = if ask.from == 0 {
            meta.revision() + 1
        } else {
            ask.from
        };
        let group = self.groups.entry(ask.span.clone()).or_default();
        group.insert(who, from - 1);
        if from > meta.revision() + 1 {
            // This monitor is behind: it sends events once it has caught up.
            return;
        }
        self.catch_up(meta, &ask.span, who, true, outgoing);
    }

    /// Sends one watch the events that it missed, from the history.
    fn catch_up(
        &mut self,
        meta: &Meta,
        span: &MetaSpan,
        who: Who,
        always: bool,
        outgoing: &mut Outgoing,
    ) {
        let Some(at) = self
            .groups
            .get_mut(span)
            .and_then(|group| group.get_mut(&who))
        else {
            return;
        };
        let Some(events) = meta.history().since(*at + 1, span) else {
            let oldest = meta.history().oldest();
            self.cancel(who.0, who.1);
            outgoing.push(ended(who, MetaError::Compacted { oldest }));
            return;
        };
        if always || !events.is_empty() {
            let payload = (!events.is_empty()).then(|| MetaEvents::encode(&events));
            outgoing.push(told(who, *at, meta.revision(), payload));
            *at = meta.revision();
        }
    }

    /// A client ends a watch.
    pub fn cancel(&mut self, client: Entity, watch: u64) {
        let Some(mine) = self.by_client.get_mut(&client) else {
            return;
        };
        if let Some(span) = mine.remove(&watch) {
            if mine.is_empty() {
                self.by_client.remove(&client);
                self.names.remove(&client);
            }
            if let Some(group) = self.groups.get_mut(&span) {
                group.remove(&(client, watch));
                if group.is_empty() {
                    self.groups.remove(&span);
                    self.between.remove(&span);
                }
            }
        }
    }

    /// A client has disconnected.
    pub fn remove(&mut self, client: Entity) {
        let watches: Vec<u64> = self
            .by_client
            .get(&client)
            .into_iter()
            .flatten()
            .map(|(watch, _)| *watch)
            .collect();
        for watch in watches {
            self.cancel(client, watch);
        }
    }

    /// Groups that concern one of these keys, which are sorted. The groups of a key are looked up,
    /// and so are the keys of a group with two ends: the cost is proportional to the events to
    /// send.
    fn concerned(&self, by_key: &[(&Name, usize)]) -> BTreeSet<MetaSpan> {
        let mut spans = BTreeSet::new();
        for (key, _) in by_key {
            let bytes = key.as_bytes();
            let prefixes = (0..=bytes.len()).map(|length| MetaSpan::Prefix {
                prefix: Name::copy(&bytes[..length]),
            });
            let all = prefixes.chain([MetaSpan::Key {
                key: (*key).clone(),
            }]);
            spans.extend(all.filter(|span| self.groups.contains_key(span)));
        }
        spans.extend(
            self.between
                .iter()
                .filter(|span| within(by_key, span).next().is_some())
                .cloned(),
        );
        spans
    }

    /// Revisions after `before` were applied.
    pub fn publish(&mut self, meta: &Meta, before: u64, outgoing: &mut Outgoing) {
        let now = meta.revision();
        if self.groups.is_empty() || now == before {
            return;
        }
        if meta.history().oldest() > before + 1 {
            // More than the history holds.
            return self.on_restore(meta, outgoing);
        }
        let events = events_after(meta, before);
        if events
            .iter()
            .any(|event| event.key().as_bytes().starts_with(META_SETTINGS.as_bytes()))
        {
            // First: a watch that has lost its right must not get the events that come with the
            // loss.
            self.recheck(meta, outgoing);
        }
        let mut by_key: Vec<(&Name, usize)> =
            events.iter().map(|event| event.key()).zip(0..).collect();
        by_key.sort_unstable();
        let mut told_bytes = 0;
        for span in self.concerned(&by_key) {
            if told_bytes > TOLD_BYTES_MAX {
                self.overrun(&span, now, outgoing);
                continue;
            }
            let mut places: Vec<usize> = within(&by_key, &span).collect();
            places.sort_unstable();
            let mine: Vec<MetaEvent> = places
                .into_iter()
                .map(|place| events[place].clone())
                .collect();
            let shared = MetaEvents::encode(&mine);
            told_bytes += shared.len();
            if told_bytes > TOLD_BYTES_MAX {
                self.overrun(&span, now, outgoing);
                continue;
            }
            let Some(group) = self.groups.get_mut(&span) else {
                continue;
            };
            let mut apart = Vec::new();
            for (who, at) in group.iter_mut().filter(|(_, at)| **at < now) {
                // No event between `told` and `before` concerned it, or it would have been sent.
                if *at <= before {
                    outgoing.push(told(*who, *at, now, Some(shared.clone())));
                    *at = now;
                } else {
                    apart.push(*who);
                }
            }
            for who in apart {
                self.catch_up(meta, &span, who, false, outgoing);
            }
        }
    }

    /// There are more events than may be sent at once: the watchers of `span` read its keys again,
    /// as if the history did not reach back far enough.
    fn overrun(&mut self, span: &MetaSpan, now: u64, outgoing: &mut Outgoing) {
        let behind = self
            .groups
            .get(span)
            .into_iter()
            .flatten()
            .filter(|(_, at)| **at < now)
            .map(|(who, _)| *who);
        for who in behind.collect::<Vec<Who>>() {
            self.cancel(who.0, who.1);
            outgoing.push(ended(who, MetaError::Compacted { oldest: now + 1 }));
        }
    }

    /// Rights changed: ends the watches of clients that may no longer read.
    fn recheck(&mut self, meta: &Meta, outgoing: &mut Outgoing) {
        let mut lost = Vec::new();
        for (span, group) in &self.groups {
            for who in group.keys() {
                let name = self.names.get(&who.0).cloned().unwrap_or_default();
                if let Err(error) = may_read(meta, &name, span) {
                    lost.push((*who, error));
                }
            }
        }
        for (who, error) in lost {
            self.cancel(who.0, who.1);
            outgoing.push(ended(who, error));
        }
    }

    /// The state was replaced by a newer one.
    pub fn on_restore(&mut self, meta: &Meta, outgoing: &mut Outgoing) {
        // First: a client that may not read any more gets none of the newer events.
        self.recheck(meta, outgoing);
        let all: Vec<(MetaSpan, Who)> = self
            .groups
            .iter()
            .flat_map(|(span, group)| group.iter().map(move |(who, at)| (span, who, at)))
            .filter(|(_, _, at)| **at < meta.revision())
            .map(|(span, who, _)| (span.clone(), *who))
            .collect();
        for (span, who) in all {
            self.catch_up(meta, &span, who, false, outgoing);
        }
    }

    /// Tells idle watches the current revision, so that they need not read old events when they
    /// continue elsewhere.
    pub fn progress(&mut self, meta: &Meta, outgoing: &mut Outgoing) {
        let now = meta.revision();
        for group in self.groups.values_mut() {
            for (who, at) in group.iter_mut().filter(|(_, at)| **at < now) {
                outgoing.push(told(*who, *at, now, None));
                *at = now;
            }
        }
    }

    /// Asserts the invariants between two steps: every watch is indexed by its keys and by its
    /// client, and no client watches what it may not read.
    pub fn check(&self, meta: &Meta) {
        let by_keys: usize = self.groups.values().map(BTreeMap::len).sum();
        let by_client: usize = self.by_client.values().map(BTreeMap::len).sum();
        assert_eq!(by_keys, by_client, "watches by keys and by client");
        assert!(
            self.names.keys().eq(self.by_client.keys()),
            "names are those of clients that watch"
        );
        assert!(
            self.between
                .iter()
                .all(|span| self.groups.contains_key(span)),
            "groups with two ends are groups"
        );
        if by_keys > CHECKED_MAX {
            return;
        }
        for (span, group) in &self.groups {
            for ((client, watch), at) in group {
                assert_eq!(
                    self.by_client[client].get(watch),
                    Some(span),
                    "{client}'s watch {watch}"
                );
                let may = may_read(meta, &self.names[client], span);
                assert!(
                    may.is_ok(),
                    "{client} watches {span:?}, told up to {at}, and may not: {may:?}"
                );
            }
        }
    }
}

#[cfg(test)]
#[path = "watchers_test.rs"]
mod tests;

/// The events of all revisions after this one.
#[nacre_types::planted]
fn events_after(meta: &Meta, before: u64) -> Vec<&MetaEvent> {
    (before + 1..=meta.revision())
        .filter_map(|revision| meta.history().at(revision))
        .flatten()
        .collect()
}
