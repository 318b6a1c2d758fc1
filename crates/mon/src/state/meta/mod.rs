//! Service metadata: the replicated part (Malacology §4.1; MAL-10, -11, -13).
//!
//! ```text
//!  MetaEntry ─▶ executed before? ────▶ guards hold? ─▶ compares ─▶ draft of one branch ─▶ limits? ─▶ revision + 1
//!                   │ yes: its answer       │ no: Moved     (nothing of it on any error)          ├▶ pairs, leases' keys
//!                   ▼                       ▼ leader judges again                                  ├▶ history ─▶ watches
//!                                                                                                  └▶ pending ─▶ triggers
//! ```
//! Applying is total and the same everywhere: it reads no settings and no clock. The leader copies
//! what it needs of the settings into the entry.
//!
//! Invariants (checked by [`Meta::check_all`], the cheap ones also by [`Meta::check`]):
//! 1. A revision changes at least one key, and its events are exactly those changes; `history` is
//!    dense and ends at `revision`.
//! 2. `created ≤ modified ≤ revision` and `version ≥ 1` for every key.
//! 3. A key with a lease is one of that lease's keys, and the lease exists; usage is the sum over
//!    the keys.

pub mod history;
pub mod record;
pub mod sessions;

use history::History;
use nacre_types::{Epoch, Name};
use nacre_wire::meta::draft::{Draft, bytes_of, holds, within};
use nacre_wire::meta::form::namespace_of;
use nacre_wire::msg::meta::{
    MetaError, MetaEvent, MetaLease, MetaOp, MetaPair, MetaResult, MetaSpan,
};
use record::{
    MetaAct, MetaEntry, MetaHolding, MetaImage, MetaPending, MetaQuiet, MetaTerms, MetaTrigger,
    MetaWho,
};
use sessions::{Known, Sessions};
use std::collections::{BTreeMap, BTreeSet};

#[cfg(feature = "mutants")]
#[path = "../../mutants/leases.rs"]
mod planted;

/// Maximum depth of triggers that trigger each other.
pub const DEPTH_MAX: u32 = 8;
/// Maximum number of pending trigger runs of a namespace: further runs caused by triggers
/// themselves are dropped. Otherwise eight triggers that each write where all eight look would turn
/// one change into sixteen million runs.
pub const CASCADE_MAX: usize = 1_000;

/// The namespace of a trigger, whose name is `namespace/name`.
#[must_use]
pub fn namespace_of_trigger(name: &Name) -> Name {
    let text = name.as_bytes();
    Name::copy(text.split(|byte| *byte == b'/').next().unwrap_or_default())
}

/// A line for the cluster log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The key by which the log holds it once; empty: it is logged each time.
    pub once: String,
    /// The line.
    pub text: String,
}
impl From<String> for Said {
    fn from(text: String) -> Self {
        Self {
            once: String::new(),
            text,
        }
    }
}
/// Maximum number of leases.
pub const LEASES_MAX: usize = 100_000;
/// Maximum bytes of leases in an image.
pub const LEASES_BYTES_MAX: usize = 4 << 20;
/// Maximum bytes of pending trigger runs in an image.
pub const PENDING_BYTES_MAX: usize = 4 << 20;

/// The outcome of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was executed, or refused for good; answer the requester.
    Done {
        /// The revision that it made, or the newest.
        revision: u64,
        /// The answer.
        result: MetaResult,
    },
    /// A guard of the leader's judgement failed: nothing was done.
    Moved,
}

/// Usage of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Number of keys.
    pub keys: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Lease {
    holding: MetaHolding,
    keys: BTreeSet<Name>,
}

/// See the module head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    revision: u64,
    entries: u64,
    pairs: BTreeMap<Name, MetaPair>,
    history: History,
    leases: BTreeMap<u64, Lease>,
    last_lease: u64,
    /// Incremented whenever a lease is created or ended.
    leases_changed: u64,
    sessions: Sessions,
    pending: Vec<MetaPending>,
    /// Number of pending runs, by namespace.
    pending_of: BTreeMap<Name, usize>,
    /// Bytes of `pending` and of `leases`, as an image has them.
    pending_bytes: usize,
    leases_bytes: usize,
    usage: BTreeMap<Name, Usage>,
}

/// Size of a lease in an image.
fn bytes_of_lease(holding: &MetaHolding) -> usize {
    32 + holding.owner.as_bytes().len()
}

/// Size of a trigger run in an image.
fn bytes_of_run<'a>(trigger: &Name, events: impl Iterator<Item = &'a MetaEvent>) -> usize {
    let told = |event: &MetaEvent| match event {
        MetaEvent::Put { pair } => 64 + bytes_of(pair) as usize,
        MetaEvent::Delete { key, .. } => 32 + key.as_bytes().len(),
    };
    64 + trigger.as_bytes().len() + events.map(told).sum::<usize>()
}

/// The part of these events that concerns a trigger.
fn told_to<'a>(
    trigger: &'a MetaTrigger,
    events: &'a [MetaEvent],
) -> impl Iterator<Item = &'a MetaEvent> {
    events.iter().filter(|event| {
        event
            .key()
            .as_bytes()
            .starts_with(trigger.prefix.as_bytes())
    })
}

impl Meta {
    /// From an image.
    #[must_use]
    pub fn of(image: MetaImage) -> Self {
        let mut meta = Self {
            revision: image.revision,
            entries: image.entries,
            history: History::of(image.revision, image.history),
            last_lease: image.last_lease,
            leases_changed: 1,
            sessions: Sessions::of(image.sessions, image.forgotten),
            pending: image.pending,
            ..Self::default()
        };
        let lease = |(id, holding)| {
            (
                id,
                Lease {
                    holding,
                    keys: BTreeSet::new(),
                },
            )
        };
        meta.leases = image.leases.into_iter().map(lease).collect();
        meta.leases_bytes = meta
            .leases
            .values()
            .map(|lease| bytes_of_lease(&lease.holding))
            .sum();
        for pair in image.pairs {
            meta.put(pair);
        }
        for pending in &meta.pending {
            *meta
                .pending_of
                .entry(namespace_of_trigger(&pending.trigger))
                .or_default() += 1;
            meta.pending_bytes += bytes_of_run(&pending.trigger, pending.events.iter());
        }
        meta
    }
    /// For an image.
    #[must_use]
    pub fn to_image(&self) -> MetaImage {
        let (sessions, forgotten) = self.sessions.to_image();
        MetaImage {
            revision: self.revision,
            entries: self.entries,
            pairs: self.pairs.values().cloned().collect(),
            history: self.history.to_image(),
            leases: self
                .leases
                .iter()
                .map(|(id, lease)| (*id, lease.holding.clone()))
                .collect(),
            last_lease: self.last_lease,
            sessions,
            forgotten,
            pending: self.pending.clone(),
        }
    }

    /// The newest revision.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }
    /// A key.
    #[must_use]
    pub fn get(&self, key: &Name) -> Option<&MetaPair> {
        self.pairs.get(key)
    }
    /// The revision of a key's last change; 0 when it does not exist.
    #[must_use]
    pub fn modified(&self, key: &Name) -> u64 {
        self.pairs.get(key).map_or(0, |pair| pair.modified)
    }
    /// The keys of a span.
    pub fn within<'a>(&'a self, span: &'a MetaSpan) -> impl Iterator<Item = &'a MetaPair> {
        within(&self.pairs, span)
    }
    /// Whether all compares hold.
    #[must_use]
    pub fn all_hold(&self, compares: &[nacre_wire::msg::meta::MetaCompare]) -> bool {
        compares.iter().all(|compare| holds(&self.pairs, compare))
    }
    /// The newest revisions' events.
    #[must_use]
    pub const fn history(&self) -> &History {
        &self.history
    }
    /// Pending trigger runs, oldest first.
    #[must_use]
    pub fn pending(&self) -> &[MetaPending] {
        &self.pending
    }
    /// Number of pending runs of a namespace.
    #[must_use]
    pub fn pending_of(&self, namespace: &Name) -> usize {
        self.pending_of.get(namespace).copied().unwrap_or_default()
    }
    /// Usage of a namespace; the empty one stands for all together.
    #[must_use]
    pub fn usage(&self, namespace: &Name) -> Usage {
        self.usage.get(namespace).copied().unwrap_or_default()
    }
    /// Looks up a request in the sessions.
    #[must_use]
    pub fn known(&self, who: &MetaWho) -> Known {
        self.sessions.look(who)
    }
    /// A lease's time in milliseconds and owner.
    #[must_use]
    pub fn lease(&self, lease: u64) -> Option<&MetaHolding> {
        self.leases.get(&lease).map(|lease| &lease.holding)
    }
    /// A lease's keys.
    pub fn keys_of_lease(&self, lease: u64) -> impl Iterator<Item = &Name> {
        self.leases
            .get(&lease)
            .into_iter()
            .flat_map(|lease| &lease.keys)
    }
    /// All leases.
    pub fn leases(&self) -> impl Iterator<Item = MetaLease> {
        self.leases.iter().map(|(id, lease)| MetaLease {
            lease: *id,
            ttl_ms: lease.holding.ttl_ms,
            owner: lease.holding.owner.clone(),
            keys: lease.keys.len() as u64,
        })
    }
    /// Incremented whenever a lease is created or ended.
    #[must_use]
    pub const fn leases_changed(&self) -> u64 {
        self.leases_changed
    }

    /// Executes one entry at the map's `epoch`; lines for the cluster log go to `said`.
    pub fn apply(&mut self, epoch: Epoch, entry: MetaEntry, said: &mut Vec<Said>) -> Outcome {
        self.entries += 1;
        let MetaEntry { who, act, terms } = entry;
        if let Some(who) = &who {
            match self.sessions.look(who) {
                Known::New => {}
                Known::Done(revision, result) => return Outcome::Done { revision, result },
                Known::Refused(error) => return self.done(MetaResult::Failed { error }),
            }
        }
        let written = |quiet: &MetaQuiet| {
            self.within(&quiet.span)
                .any(|pair| pair.modified > quiet.since)
        };
        if terms
            .guards
            .iter()
            .any(|guard| self.modified(&guard.key) != guard.modified)
            || terms.quiet.iter().any(written)
        {
            return Outcome::Moved;
        }
        let owner = who.as_ref().map(|who| who.name.clone()).unwrap_or_default();
        let remembered = who.filter(|_| !act.only_reads());
        let result = self
            .act(epoch, act, &terms, owner, said)
            .unwrap_or_else(|error| MetaResult::Failed { error });
        if let Some(who) = &remembered {
            self.sessions
                .remember(who, self.entries, self.revision, result.clone());
        }
        self.done(result)
    }

    const fn done(&self, result: MetaResult) -> Outcome {
        Outcome::Done {
            revision: self.revision,
            result,
        }
    }

    fn act(
        &mut self,
        epoch: Epoch,
        act: MetaAct,
        terms: &MetaTerms,
        owner: Name,
        said: &mut Vec<Said>,
    ) -> Result<MetaResult, MetaError> {
        match act {
            MetaAct::Transact {
                compares,
                then,
                otherwise,
            } => {
                let succeeded = self.all_hold(&compares);
                let answers = self.run(
                    epoch,
                    if succeeded { &then } else { &otherwise },
                    terms,
                    said,
                )?;
                Ok(MetaResult::Transacted { succeeded, answers })
            }
            MetaAct::Grant { ttl_ms } => {
                let holding = MetaHolding { ttl_ms, owner };
                let exceeded = |what: &str, limit: usize| {
                    let (namespace, what) = (Name::default(), what.to_owned());
                    Err(MetaError::QuotaExceeded {
                        namespace,
                        what,
                        limit: limit as u64,
                    })
                };
                if self.leases.len() >= LEASES_MAX {
                    return exceeded("leases", LEASES_MAX);
                }
                if self.leases_bytes + bytes_of_lease(&holding) > LEASES_BYTES_MAX {
                    return exceeded("bytes of leases and their owners' names", LEASES_BYTES_MAX);
                }
                self.leases_bytes += bytes_of_lease(&holding);
                let lease = self.next_lease();
                self.last_lease = lease;
                self.leases_changed += 1;
                let keys = BTreeSet::new();
                self.leases.insert(lease, Lease { holding, keys });
                Ok(MetaResult::Granted { lease, ttl_ms })
            }
            MetaAct::Revoke { lease } => {
                let keys = self
                    .leases
                    .get(&lease)
                    .ok_or(MetaError::NoSuchLease { lease })?
                    .keys
                    .clone();
                let revision = self.revision + 1;
                let gone = keys.len() as u64;
                let events = keys
                    .into_iter()
                    .map(|key| MetaEvent::Delete { key, revision })
                    .collect();
                self.commit(events, terms, said);
                if let Some(gone) = self.leases.remove(&lease) {
                    self.leases_bytes -= bytes_of_lease(&gone.holding);
                }
                self.leases_changed += 1;
                Ok(MetaResult::Revoked { keys: gone })
            }
            MetaAct::Refuse { error } => Err(error),
            MetaAct::Fired {
                trigger,
                revision,
                ops,
                lines,
            } => {
                let is = |pending: &MetaPending| {
                    pending.trigger == trigger && pending.revision == revision
                };
                // Proposed twice, by two leaders: the first one has been applied.
                let Some(at) = self.pending.iter().position(is) else {
                    return Ok(MetaResult::Transacted {
                        succeeded: false,
                        answers: Vec::new(),
                    });
                };
                // Also when its changes are refused: they would be refused for ever.
                let run = self.pending.remove(at);
                self.pending_bytes -= bytes_of_run(&run.trigger, run.events.iter());
                let namespace = namespace_of_trigger(&trigger);
                if let Some(count) = self.pending_of.get_mut(&namespace) {
                    *count -= 1;
                    if *count == 0 {
                        self.pending_of.remove(&namespace);
                    }
                }
                match self.run(epoch, &ops, terms, said) {
                    Ok(answers) => {
                        said.extend(lines.into_iter().map(Said::from));
                        Ok(MetaResult::Transacted {
                            succeeded: true,
                            answers,
                        })
                    }
                    Err(error) => {
                        said.push(
                            format!("trigger {trigger} for revision {revision} failed: {error}")
                                .into(),
                        );
                        Err(error)
                    }
                }
            }
        }
    }

    /// Numbers of leases are never used again.
    #[nacre_types::planted]
    fn next_lease(&self) -> u64 {
        self.last_lease + 1
    }

    fn run(
        &mut self,
        epoch: Epoch,
        ops: &[MetaOp],
        terms: &MetaTerms,
        said: &mut Vec<Said>,
    ) -> Result<Vec<nacre_wire::msg::meta::MetaAnswer>, MetaError> {
        let mut draft = Draft::new(&self.pairs, self.revision + 1, epoch);
        let mut answers = Vec::with_capacity(ops.len());
        for op in ops {
            answers.push(draft.run(op, |lease| self.leases.contains_key(&lease))?);
        }
        let events = draft.events();
        self.within_limits(&events, terms)?;
        self.triggers_have_room(&events, terms)?;
        self.commit(events, terms, said);
        Ok(answers)
    }

    fn within_limits(&self, events: &[MetaEvent], terms: &MetaTerms) -> Result<(), MetaError> {
        for limit in &terms.limits {
            let all = limit.namespace.is_empty();
            let here = |key: &Name| all || namespace_of(key).as_ref() == Some(&limit.namespace);
            let (mut bytes, mut keys) = ((0, 0), (0, 0));
            for event in events.iter().filter(|event| here(event.key())) {
                if let Some(old) = self.pairs.get(event.key()) {
                    bytes.0 += bytes_of(old);
                    keys.0 += 1;
                }
                if let MetaEvent::Put { pair } = event {
                    bytes.1 += bytes_of(pair);
                    keys.1 += 1;
                }
            }
            let usage = self.usage(&limit.namespace);
            // A change that reduces the usage is allowed, even if the limit was lowered below it.
            let over = |used: u64, (old, new): (u64, u64), limit: u64| {
                new > old && used - old + new > limit
            };
            let exceeded = |what: &str, limit_: u64| MetaError::QuotaExceeded {
                namespace: limit.namespace.clone(),
                what: what.to_owned(),
                limit: limit_,
            };
            if over(usage.bytes, bytes, limit.bytes) {
                return Err(exceeded("bytes", limit.bytes));
            }
            if over(usage.keys, keys, limit.keys) {
                return Err(exceeded("keys", limit.keys));
            }
        }
        Ok(())
    }

    /// Whether the trigger runs of a client's change are within bounds. Leaders refuse changes when
    /// half of the bound is pending; runs of other changes are dropped instead (`commit`).
    fn triggers_have_room(&self, events: &[MetaEvent], terms: &MetaTerms) -> Result<(), MetaError> {
        let runs = terms
            .triggers
            .iter()
            .map(|trigger| bytes_of_run(&trigger.name, told_to(trigger, events)));
        if terms.depth == 0 && self.pending_bytes + runs.sum::<usize>() > PENDING_BYTES_MAX {
            let (namespace, what) = (
                Name::default(),
                "bytes of what triggers are to be told".to_owned(),
            );
            return Err(MetaError::QuotaExceeded {
                namespace,
                what,
                limit: PENDING_BYTES_MAX as u64,
            });
        }
        Ok(())
    }

    fn commit(&mut self, events: Vec<MetaEvent>, terms: &MetaTerms, said: &mut Vec<Said>) {
        if events.is_empty() {
            return;
        }
        self.revision += 1;
        for event in &events {
            match event {
                MetaEvent::Put { pair } => self.put(pair.clone()),
                MetaEvent::Delete { key, .. } => self.delete(key),
            }
        }
        for trigger in &terms.triggers {
            if told_to(trigger, &events).next().is_none() {
                continue;
            }
            let bytes = bytes_of_run(&trigger.name, told_to(trigger, &events));
            let depth = terms.depth + 1;
            let (name, revision) = (&trigger.name, self.revision);
            let namespace = namespace_of_trigger(name);
            let left_out = if depth > DEPTH_MAX {
                Some(format!("{DEPTH_MAX} triggers led to it"))
            } else if depth > 1 && self.pending_of(&namespace) >= CASCADE_MAX {
                Some(format!(
                    "a trigger led to it, and {CASCADE_MAX} runs of `{namespace}` wait already"
                ))
            } else if self.pending_bytes + bytes > PENDING_BYTES_MAX {
                Some(format!(
                    "{} bytes of what triggers are to be told wait already",
                    self.pending_bytes
                ))
            } else {
                None
            };
            if let Some(why) = left_out {
                // Logged once: it may concern thousands of runs.
                let once = format!("trigger {name} is not run: {why}");
                said.push(Said {
                    once,
                    text: format!("trigger {name} is not run for revision {revision}: {why}"),
                });
                continue;
            }
            *self.pending_of.entry(namespace).or_default() += 1;
            self.pending_bytes += bytes;
            self.pending.push(MetaPending {
                trigger: trigger.name.clone(),
                revision: self.revision,
                depth,
                events: told_to(trigger, &events).cloned().collect(),
            });
        }
        self.history.push(events);
    }

    fn count(&mut self, pair: &MetaPair, add: bool) {
        let bytes = bytes_of(pair);
        let namespace = namespace_of(&pair.key).unwrap_or_else(|| pair.key.clone());
        for name in [Name::default(), namespace] {
            let usage = self.usage.entry(name.clone()).or_default();
            if add {
                (usage.bytes, usage.keys) = (usage.bytes + bytes, usage.keys + 1);
            } else {
                (usage.bytes, usage.keys) = (usage.bytes - bytes, usage.keys - 1);
            }
            if usage.keys == 0 {
                self.usage.remove(&name);
            }
        }
    }

    fn put(&mut self, pair: MetaPair) {
        self.delete(&pair.key.clone());
        if let Some(lease) = self.leases.get_mut(&pair.lease) {
            lease.keys.insert(pair.key.clone());
        }
        self.count(&pair, true);
        self.pairs.insert(pair.key.clone(), pair);
    }

    fn delete(&mut self, key: &Name) {
        let Some(old) = self.pairs.remove(key) else {
            return;
        };
        if let Some(lease) = self.leases.get_mut(&old.lease) {
            lease.keys.remove(key);
        }
        self.count(&old, false);
    }

    /// The count of lease changes is each monitor's own.
    pub(super) const fn count_leases_like(&mut self, other: &Self) {
        self.leases_changed = other.leases_changed;
    }
    /// Whether half of the bound for trigger runs is pending.
    #[must_use]
    pub const fn triggers_are_behind(&self) -> bool {
        self.pending_bytes > PENDING_BYTES_MAX / 2
    }
    /// Number of leases.
    #[must_use]
    pub fn leases_held(&self) -> usize {
        self.leases.len()
    }

    /// Asserts the invariants of the module head.
    pub fn check(&self) {
        self.history.check(self.revision);
        let all = self.usage(&Name::default());
        assert_eq!(all.keys, self.pairs.len() as u64, "usage counts every key");
        assert!(
            self.leases_bytes <= LEASES_BYTES_MAX && self.pending_bytes <= PENDING_BYTES_MAX,
            "the image is bounded"
        );
    }

    /// The same, key by key: too slow for every step.
    pub fn check_all(&self) {
        self.check();
        self.history.check_all();
        let mut bytes = 0;
        for (key, pair) in &self.pairs {
            assert_eq!(key, &pair.key);
            assert!(
                pair.created <= pair.modified
                    && pair.modified <= self.revision
                    && pair.version >= 1,
                "{pair:?}"
            );
            let held = self
                .leases
                .get(&pair.lease)
                .is_some_and(|lease| lease.keys.contains(key));
            assert!(
                pair.lease == 0 || held,
                "{key} goes with a lease that knows it"
            );
            bytes += bytes_of(pair);
        }
        assert_eq!(
            self.usage(&Name::default()).bytes,
            bytes,
            "usage is the sum over the keys"
        );
        let runs = self
            .pending
            .iter()
            .map(|run| bytes_of_run(&run.trigger, run.events.iter()));
        assert_eq!(
            runs.sum::<usize>(),
            self.pending_bytes,
            "bytes of what triggers are to be told"
        );
        let leases = self
            .leases
            .values()
            .map(|lease| bytes_of_lease(&lease.holding));
        assert_eq!(leases.sum::<usize>(), self.leases_bytes, "bytes of leases");
        let held: usize = self.leases.values().map(|lease| lease.keys.len()).sum();
        assert_eq!(
            held,
            self.pairs.values().filter(|pair| pair.lease != 0).count(),
            "leases know only their keys"
        );
    }
}
