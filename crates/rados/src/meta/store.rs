//! Requests, watches, and the end of leases: the interface for clients.
//!
//! ```text
//!  call ─▶ admit ─▶ ┌─▶ read ─▶ decide ─▶ nothing to write ─▶ answer
//!                   │                └──▶ write, guarded by the version read ─▶ answer
//!                   └── lost the race ◀─────────┘
//! ```
//! A lost race means that another client's change took effect: the clients together always make
//! progress.

use super::cursor::Cursor;
use super::decide::{self, Decision, admit};
use super::needs::Needs;
use super::object::{Object, Trouble};
use super::place::{ConfigKey, Locate};
use super::silence::Silence;
use crate::cluster::Ceph;
use crate::handle::Rados;
use nacre_client::{Driven, MetaFailure, WatchNews};
use nacre_types::{Name, Time, Version};
use nacre_wire::msg::meta::{MetaCall, MetaError, MetaPair, MetaResult, MetaSpan};
use std::time::Duration;

/// How long races may be lost before the caller gets an error.
const REQUEST_MAX: Duration = Duration::from_secs(30);
/// Interval of watches' looks without hints.
const POLL: Duration = Duration::from_millis(200);
/// The same with hints: a client that changed something may have died before its hint.
const POLL_HINTED: Duration = TEND;
/// Interval of checking leases.
const TEND: Duration = Duration::from_millis(500);

/// The error for the caller; nothing was executed.
fn not_done(trouble: Trouble) -> MetaFailure {
    MetaFailure::Refused(match trouble {
        Trouble::Lost => MetaError::Unavailable {
            why: format!(
                "others changed the metadata again and again for {} s; try again",
                REQUEST_MAX.as_secs()
            ),
        },
        Trouble::Silent => MetaError::Unavailable {
            why: silent().to_owned(),
        },
        Trouble::Refused(why) => MetaError::Unavailable { why },
        Trouble::Damaged(damaged) => MetaError::Invalid {
            why: format!("the metadata's object is damaged, or not one: {damaged}"),
        },
    })
}
const fn silent() -> &'static str {
    "the Ceph cluster does not answer: is it running, and reachable?"
}
/// See the module head.
pub struct MetaStore<D: Driven, L> {
    object: Object<D, L>,
    who: Name,
    silence: Silence,
    /// The object's version when leases were read.
    tended: Option<Version>,
    tend_at: Time,
}

impl MetaStore<Ceph, ConfigKey> {
    /// On a Ceph cluster, for a client with this name.
    #[must_use]
    pub fn connect(rados: Rados, who: &str) -> Self {
        Self::new(Ceph::new(rados.clone()), ConfigKey::new(rados), who)
    }
}

impl<D: Driven, L: Locate> MetaStore<D, L> {
    /// On an object cluster.
    pub fn new(objects: D, locate: L, who: &str) -> Self {
        Self {
            object: Object::new(objects, locate),
            who: who.into(),
            silence: Silence::default(),
            tended: None,
            tend_at: Time::ZERO,
        }
    }

    /// Without hints: watchers find its changes when they look by themselves. For keys that no
    /// client watches.
    #[must_use]
    pub fn quiet(mut self) -> Self {
        self.object.quiet();
        self
    }

    // ── requests ────────────────────────────────────────────────────────────────────────

    /// Executes a request; returns the store's revision and the result. Waits for it, at most a
    /// minute or two if the cluster fails.
    ///
    /// # Errors
    /// It is refused without effect; or its outcome is unknown.
    pub fn call(&mut self, call: &MetaCall) -> Result<(u64, MetaResult), MetaFailure> {
        admit(&self.who, call).map_err(MetaFailure::Refused)?;
        let (needs, until) = (Needs::of(call), self.object.now() + REQUEST_MAX);
        let mut lost = 0;
        loop {
            let state = self.object.read(&needs, until).map_err(not_done)?;
            let Decision {
                revision,
                result,
                changes,
            } = decide::decide(&state, &self.who, call).map_err(MetaFailure::Refused)?;
            if changes.is_empty() {
                return Ok((revision, result));
            }
            match self.object.write(state.version, changes) {
                Ok(()) => {
                    if revision > state.head.revision {
                        self.object.hint();
                    }
                    return Ok((revision, result));
                }
                Err(Trouble::Lost) if self.object.now() < until => {
                    lost += 1;
                    self.object.make_way(lost);
                }
                Err(Trouble::Silent) => {
                    return Err(MetaFailure::Unknown(Some(MetaError::Unavailable {
                        why: silent().to_owned(),
                    })));
                }
                Err(trouble) => return Err(not_done(trouble)),
            }
        }
    }

    /// All keys of a span, and the revision that was read first. Long lists take several reads,
    /// each at its own time; a watch from that revision on misses nothing.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn list(&mut self, span: &MetaSpan) -> Result<(Vec<MetaPair>, u64), MetaFailure> {
        let (mut all, mut revision, mut next) = (Vec::new(), None, span.clone());
        loop {
            let call = MetaCall::Range {
                span: next,
                limit: 0,
                keys_only: false,
                serializable: false,
            };
            let (at, MetaResult::Ranged { pairs, more }) = self.call(&call)? else {
                unreachable!("a list was asked for")
            };
            let revision = *revision.get_or_insert(at);
            all.extend(pairs);
            match all.last().filter(|_| more) {
                Some(MetaPair { key, .. }) => next = span.behind(key),
                None => return Ok((all, revision)),
            }
        }
    }

    // ── watches ─────────────────────────────────────────────────────────────────────────

    /// A watch's next report, waiting at most `max` for it. While the cluster does not answer,
    /// there is none. Meanwhile leases of silent owners are ended.
    ///
    /// # Errors
    /// The cluster refuses the read.
    pub fn news(
        &mut self,
        cursor: &mut Cursor,
        max: Duration,
    ) -> Result<Option<WatchNews>, MetaFailure> {
        let until = self.object.now() + max;
        while !cursor.has_ended() {
            self.tend();
            self.object.listen();
            let again = self.object.now() + REQUEST_MAX;
            match self.object.read(&cursor.needs(), again) {
                Ok(state) => {
                    if let Some(news) = cursor.heard(state) {
                        return Ok(Some(news));
                    }
                }
                Err(Trouble::Silent | Trouble::Lost) => {}
                Err(trouble) => return Err(not_done(trouble)),
            }
            if cursor.is_behind() {
                continue;
            }
            if !self.wait(until) {
                break;
            }
        }
        Ok(None)
    }

    /// Whether there was a hint of a change since [`Self::news`] last looked.
    pub fn was_hinted(&mut self) -> bool {
        self.object.turn(Duration::ZERO);
        self.object.was_hinted()
    }
    /// When to look again without a hint.
    #[must_use]
    pub const fn look_again(&self) -> Duration {
        if self.object.listens() {
            POLL_HINTED
        } else {
            POLL
        }
    }

    /// Waits until it is time to look again; returns false when the time is over.
    fn wait(&mut self, until: Time) -> bool {
        let begun = self.object.now();
        loop {
            let poll = self.look_again();
            let now = self.object.now();
            if now >= until {
                return false;
            }
            let left = poll.saturating_sub(now.since(begun)).min(until.since(now));
            if self.object.was_hinted() || left.is_zero() {
                return true;
            }
            self.object.turn(left);
        }
    }

    // ── leases ──────────────────────────────────────────────────────────────────────────

    /// Ends leases with silent owners. To be called at least every second by long-running clients;
    /// watching does it.
    pub fn tend(&mut self) {
        let now = self.object.now();
        if now < self.tend_at {
            return;
        }
        self.tend_at = now + TEND;
        // What fails is retried the next time.
        let _ = self.try_tend(now + REQUEST_MAX);
    }

    fn try_tend(&mut self, until: Time) -> Result<(), Trouble> {
        let began = self.object.now();
        let version = self.object.version()?;
        if version.is_none() || version != self.tended {
            let state = self.object.read(&Needs::leases(), until)?;
            self.tended = state.version;
            self.silence.read(self.object.now(), &state.leases);
        }
        for (lease, renewals) in self.silence.due(began) {
            loop {
                let state = self.object.read(&Needs::end_of(lease), until)?;
                let Some(Decision { changes, .. }) = decide::expire(&state, lease, renewals) else {
                    break;
                };
                match self.object.write(state.version, changes) {
                    Err(Trouble::Lost) if self.object.now() < until => {}
                    other => {
                        other?;
                        self.object.hint();
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}
