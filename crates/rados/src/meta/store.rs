//! The metadata's object, read and written: requests, watches, the end of leases.
//!
//! ```text
//!  call ─▶ admit ─▶ ┌─▶ read ─▶ decide ─▶ nothing to write ─▶ answer
//!                   │                └──▶ write, guarded by the version read ─▶ answer
//!                   └── lost the race ◀─────────┘
//! ```
//! A lost race means that somebody else's change took effect: all together always get on.
//!
//! Works over any [`Driven`] cluster of objects, and keeps time by its clock alone.

use super::cursor::Cursor;
use super::decide::{self, Changes, Decision, admit};
use super::hints::Hints;
use super::needs::{Needs, Stretch};
use super::place::{ConfigKey, Locate};
use super::silence::Silence;
use super::state::{Damaged, State};
use crate::cluster::Ceph;
use crate::error::RadosError;
use crate::handle::Rados;
use bytes::Bytes;
use nacre_client::{Completion, Done, Driven, Failure, MetaFailure, Operation, Refused, WatchNews};
use nacre_types::{Name, ObjectId, PoolId, Time, Version};
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use nacre_wire::msg::meta::{MetaCall, MetaError, MetaPair, MetaResult, MetaSpan};
use std::collections::VecDeque;
use std::time::Duration;

/// An operation ends by itself before that: librados gives up, and asks once more what became of it.
const OPERATION_MAX: Duration = Duration::from_secs(90);
/// For how long races are lost before the caller hears of it.
const REQUEST_MAX: Duration = Duration::from_secs(30);
/// Watches look so often where changes are not hinted at.
const POLL: Duration = Duration::from_millis(200);
/// Watches look so often where they are: whoever changed something may have died before its hint.
const POLL_HINTED: Duration = TEND;
/// So long, a client that goes gives its last hint.
const HINT_MAX: Duration = Duration::from_millis(100);
/// Leases are looked at so often.
const TEND: Duration = Duration::from_millis(500);
/// Listings of one read at most.
const LISTINGS_MAX: usize = 16;

/// Why something was not read, or not written for sure.
#[derive(Debug)]
enum Trouble {
    /// Somebody else's change came first.
    Lost,
    /// The cluster does not answer.
    Silent,
    /// It says no.
    Refused(String),
    /// What is there cannot be read.
    Damaged(Damaged),
}

impl Trouble {
    /// For whoever asked; nothing was done.
    fn not_done(self) -> MetaFailure {
        MetaFailure::Refused(match self {
            Self::Lost => MetaError::Unavailable {
                why: format!("others changed the metadata again and again for {} s; try again", REQUEST_MAX.as_secs()),
            },
            Self::Silent => MetaError::Unavailable { why: silent().to_owned() },
            Self::Refused(why) => MetaError::Unavailable { why },
            Self::Damaged(damaged) => {
                MetaError::Invalid { why: format!("the metadata's object is damaged, or not one: {damaged}") }
            }
        })
    }
}
const fn silent() -> &'static str {
    "the Ceph cluster does not answer: is it running, and reachable?"
}
impl From<RadosError> for Trouble {
    fn from(error: RadosError) -> Self {
        if error.code == crate::error::ETIMEDOUT { Self::Silent } else { Self::Refused(error.why) }
    }
}
impl From<Damaged> for Trouble {
    fn from(damaged: Damaged) -> Self {
        Self::Damaged(damaged)
    }
}

/// See the module head.
pub struct MetaStore<D: Driven, L> {
    objects: D,
    locate: L,
    who: Name,
    place: Option<(PoolId, ObjectId)>,
    silence: Silence,
    /// The object's version when leases were read.
    tended: Option<Version>,
    tend_at: Time,
    hints: Hints,
    /// Ended, and not asked for yet.
    ended: Vec<Completion>,
}

impl<D: Driven, L> Drop for MetaStore<D, L> {
    fn drop(&mut self) {
        let begun = self.objects.now();
        while self.hints.is_sending() && self.objects.now().since(begun) < HINT_MAX {
            self.turn(Duration::from_millis(10));
        }
    }
}

impl<D: Driven, L> MetaStore<D, L> {
    /// Waits at most so long for something to happen, and takes note of what has.
    fn turn(&mut self, max: Duration) {
        self.objects.turn(max);
        let mut ended = Vec::new();
        self.objects.completions(&mut ended);
        for completion in ended {
            if !self.hints.ended(&mut self.objects, self.place.as_ref(), &completion) {
                self.ended.push(completion);
            }
        }
        self.hints.events(&mut self.objects);
    }
}

impl MetaStore<Ceph, ConfigKey> {
    /// On a Ceph cluster, for a client that calls itself so.
    #[must_use]
    pub fn connect(rados: Rados, who: &str) -> Self {
        Self::new(Ceph::new(rados.clone()), ConfigKey::new(rados), who)
    }
}

impl<D: Driven, L: Locate> MetaStore<D, L> {
    /// Over a cluster of objects.
    pub fn new(objects: D, locate: L, who: &str) -> Self {
        Self {
            objects,
            locate,
            who: who.into(),
            place: None,
            silence: Silence::default(),
            tended: None,
            tend_at: Time::ZERO,
            hints: Hints::default(),
            ended: Vec::new(),
        }
    }

    // ── requests ──────────────────────────────────────────────────────────────────────────────────────────────

    /// Carries out a request: the store's revision, and what came of it. Waits for it, for a minute or two at most where the cluster fails.
    ///
    /// # Errors
    /// It is refused, and nothing of it was done; or its end is unknown.
    pub fn call(&mut self, call: &MetaCall) -> Result<(u64, MetaResult), MetaFailure> {
        admit(&self.who, call).map_err(MetaFailure::Refused)?;
        let (needs, until) = (Needs::of(call), self.objects.now() + REQUEST_MAX);
        loop {
            let state = self.read(&needs, until).map_err(Trouble::not_done)?;
            let Decision { revision, result, changes } =
                decide::decide(&state, &self.who, call).map_err(MetaFailure::Refused)?;
            if changes.is_empty() {
                return Ok((revision, result));
            }
            match self.write(state.version, changes) {
                Ok(()) => {
                    if revision > state.head.revision {
                        self.hint();
                    }
                    return Ok((revision, result));
                }
                Err(Trouble::Lost) if self.objects.now() < until => {}
                Err(Trouble::Silent) => {
                    return Err(MetaFailure::Unknown(Some(MetaError::Unavailable { why: silent().to_owned() })));
                }
                Err(trouble) => return Err(trouble.not_done()),
            }
        }
    }

    /// All keys of a span, and the revision that was read first. Long lists come in several reads, each as of its time; a watch from the revision
    /// on misses nothing.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn list(&mut self, span: &MetaSpan) -> Result<(Vec<MetaPair>, u64), MetaFailure> {
        let (mut all, mut revision, mut next) = (Vec::new(), None, span.clone());
        loop {
            let call = MetaCall::Range { span: next, limit: 0, keys_only: false, serializable: false };
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

    // ── watches ───────────────────────────────────────────────────────────────────────────────────────────────

    /// What a watch has to say next, waiting at most `max` for it. While the cluster does not answer, that is nothing. Leases of silent owners end
    /// meanwhile.
    ///
    /// # Errors
    /// The cluster refuses to be read.
    pub fn news(&mut self, cursor: &mut Cursor, max: Duration) -> Result<Option<WatchNews>, MetaFailure> {
        let until = self.objects.now() + max;
        while !cursor.has_ended() {
            self.tend();
            if let Some(place) = &self.place {
                self.hints.listen(&mut self.objects, place);
            }
            // What is hinted at from here on is seen by the next read, not by this one.
            self.hints.take();
            let again = self.objects.now() + REQUEST_MAX;
            match self.read(&cursor.needs(), again) {
                Ok(state) => {
                    if let Some(news) = cursor.heard(state) {
                        return Ok(Some(news));
                    }
                }
                Err(Trouble::Silent | Trouble::Lost) => {}
                Err(trouble) => return Err(trouble.not_done()),
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

    /// Waits until it is worth looking again; false: the time is over.
    fn wait(&mut self, until: Time) -> bool {
        let begun = self.objects.now();
        loop {
            let poll = if self.hints.listens() { POLL_HINTED } else { POLL };
            let now = self.objects.now();
            if now >= until {
                return false;
            }
            let left = poll.saturating_sub(now.since(begun)).min(until.since(now));
            if self.hints.take() || left.is_zero() {
                return true;
            }
            self.turn(left);
        }
    }

    /// Tells watchers to look.
    fn hint(&mut self) {
        if let Some(place) = &self.place {
            self.hints.send(&mut self.objects, place);
        }
    }

    // ── leases ────────────────────────────────────────────────────────────────────────────────────────────────

    /// Ends leases whose owners are silent. To be called at least every second by whoever lives long; watching does it.
    pub fn tend(&mut self) {
        let now = self.objects.now();
        if now < self.tend_at {
            return;
        }
        self.tend_at = now + TEND;
        // What fails is tried again next time.
        let _ = self.try_tend(now + REQUEST_MAX);
    }

    fn try_tend(&mut self, until: Time) -> Result<(), Trouble> {
        let began = self.objects.now();
        let version = self.version()?;
        if version.is_none() || version != self.tended {
            let state = self.read(&Needs::leases(), until)?;
            self.tended = state.version;
            self.silence.read(self.objects.now(), &state.leases);
        }
        for (lease, renewals) in self.silence.due(began) {
            loop {
                let state = self.read(&Needs::end_of(lease), until)?;
                let Some(Decision { changes, .. }) = decide::expire(&state, lease, renewals) else { break };
                match self.write(state.version, changes) {
                    Err(Trouble::Lost) if self.objects.now() < until => {}
                    other => {
                        other?;
                        self.hint();
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// The object's version; `None`: there is none.
    fn version(&mut self) -> Result<Option<Version>, Trouble> {
        let Some(place) = self.place()? else { return Ok(None) };
        match self.operate(place, vec![SubOp::Stat {}]) {
            Ok(done) => Ok(Some(done.version)),
            Err(Failure::Refused(OpFailure::NotFound {})) => Ok(None),
            Err(failure) => Err(self.trouble(failure)),
        }
    }

    // ── the object ────────────────────────────────────────────────────────────────────────────────────────────

    fn place(&mut self) -> Result<Option<(PoolId, ObjectId)>, Trouble> {
        if self.place.is_none() {
            self.place = self.locate.find()?;
        }
        Ok(self.place.clone())
    }

    /// Reads what is needed, all of one version of the object.
    fn read(&mut self, needs: &Needs, until: Time) -> Result<State, Trouble> {
        let Some(place) = self.place()? else { return Ok(State::default()) };
        loop {
            if let Some(state) = self.read_once(&place, needs)? {
                return Ok(state);
            }
            if self.objects.now() >= until {
                return Err(Trouble::Lost);
            }
        }
    }

    /// `None`: the object has changed between one page and another.
    fn read_once(&mut self, place: &(PoolId, ObjectId), needs: &Needs) -> Result<Option<State>, Trouble> {
        let mut state = State::default();
        let mut left: VecDeque<Stretch> = needs.stretches.clone().into();
        let mut entries: Option<Vec<Bytes>> = Some(needs.entries.iter().cloned().collect());
        while entries.is_some() || !left.is_empty() {
            let listed: Vec<Stretch> = left.drain(..left.len().min(LISTINGS_MAX)).collect();
            let gets = entries.take().map(|keys| SubOp::OmapGet { keys });
            let lists =
                listed.iter().map(|stretch| SubOp::OmapList { after: stretch.after.clone(), limit: stretch.page() });
            let ops: Vec<SubOp> = gets.into_iter().chain(lists).collect();
            let got = ops.len() - listed.len();
            let done = match self.operate(place.clone(), ops) {
                Ok(done) => done,
                Err(Failure::Refused(OpFailure::NotFound {})) => {
                    return Ok(state.version.is_none().then(State::default));
                }
                Err(failure) => return Err(self.trouble(failure)),
            };
            if state.version.is_some_and(|version| version != done.version) {
                return Ok(None);
            }
            state.version = Some(done.version);
            let mut results = done.results.into_iter().map(|result| match result {
                SubReply::Entries { entries, more } => (entries, more),
                other => unreachable!("entries were read as {other:?}"),
            });
            for (entry, value) in results.by_ref().take(got).flat_map(|(entries, _)| entries) {
                state.take(&entry, &value)?;
            }
            for (stretch, (entries, more)) in listed.into_iter().zip(results) {
                let within = entries.iter().take_while(|(entry, _)| stretch.has(entry)).count();
                for (entry, value) in &entries[..within] {
                    state.take(entry, value)?;
                }
                let Some((last, _)) = entries.last().filter(|_| more && within == entries.len()) else { continue };
                if stretch.enough.is_some() {
                    state.more = true;
                } else {
                    left.push_back(Stretch { after: last.clone(), ..stretch });
                }
            }
        }
        Ok(Some(state))
    }

    /// Writes changes if the object is still of the version that was read.
    fn write(&mut self, version: Option<Version>, changes: Changes) -> Result<(), Trouble> {
        let place = match self.place()? {
            Some(place) => place,
            None => self.locate.make()?,
        };
        self.place = Some(place.clone());
        let guard = match version {
            Some(version) => SubOp::AssertVersion { version },
            None => SubOp::AssertExists { exists: false },
        };
        let Changes { set, remove } = changes;
        let mut ops = vec![guard];
        if !remove.is_empty() {
            ops.push(SubOp::OmapRemove { keys: remove.into_iter().collect() });
        }
        if !set.is_empty() {
            ops.push(SubOp::OmapSet { entries: set.into_iter().collect() });
        }
        match self.operate(place, ops) {
            Ok(_) => Ok(()),
            Err(Failure::Refused(OpFailure::Guard { .. } | OpFailure::NotFound {} | OpFailure::AlreadyExists {})) => {
                Err(Trouble::Lost)
            }
            Err(failure) => Err(self.trouble(failure)),
        }
    }

    fn trouble(&mut self, failure: Failure) -> Trouble {
        match failure {
            Failure::Unknown => Trouble::Silent,
            Failure::NoSuchPool => {
                // Perhaps the pointer names another one meanwhile.
                self.place = None;
                Trouble::Refused("the pool of the metadata is gone".to_owned())
            }
            Failure::Refused(why) => Trouble::Refused(why.to_string()),
            Failure::Foreign { why, .. } => Trouble::Refused(why),
        }
    }

    /// One operation, to its end.
    fn operate(&mut self, (pool, object): (PoolId, ObjectId), ops: Vec<SubOp>) -> Result<Done, Failure> {
        let begun = self.objects.now();
        let operation = Operation { pool, object, ops, ..Operation::default() };
        let id = match self.objects.objects().submit(begun, operation) {
            Ok(id) => id,
            Err(Refused::NoSuchPool) => return Err(Failure::NoSuchPool),
            Err(refused) => return Err(Failure::Foreign { code: 0, why: format!("not begun: {refused:?}") }),
        };
        loop {
            self.turn(Duration::from_millis(100));
            if let Some(at) = self.ended.iter().position(|completion| completion.id == id) {
                let ended = self.ended.swap_remove(at);
                self.ended.clear();
                return ended.result;
            }
            if self.objects.now().since(begun) > OPERATION_MAX {
                return Err(Failure::Unknown);
            }
        }
    }
}
