//! The metadata's object: read at one version, written if that has not changed, and watched.
//!
//! Works on any [`Driven`] object cluster, and uses only its clock.

use super::decide::Changes;
use super::hints::Hints;
use super::needs::{Needs, Stretch};
use super::place::Locate;
use super::state::{Damaged, State};
use crate::error::RadosError;
use bytes::Bytes;
use nacre_client::{Completion, Done, Driven, Failure, Operation, Refused};
use nacre_types::{ObjectId, PoolId, Time, Version, random::mix};
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use std::collections::VecDeque;
use std::time::Duration;

/// An operation ends by itself before that: librados gives up, and its outcome is requested once
/// more.
const OPERATION_MAX: Duration = Duration::from_secs(90);
/// Most listings per read.
const LISTINGS_MAX: usize = 16;
/// Approximate duration of a write.
const WRITE: Duration = Duration::from_millis(2);
/// Most doublings of that after lost races.
const BACKOFFS_MAX: u32 = 5;
/// How long a client that leaves waits for its last hint.
const HINT_MAX: Duration = Duration::from_millis(100);

/// Why something was not read, or may not have been written.
#[derive(Debug)]
pub enum Trouble {
    /// Another client's change came first.
    Lost,
    /// The cluster does not answer.
    Silent,
    /// The cluster refuses.
    Refused(String),
    /// The stored data cannot be decoded.
    Damaged(Damaged),
}

impl From<RadosError> for Trouble {
    fn from(error: RadosError) -> Self {
        if error.code == crate::error::ETIMEDOUT {
            Self::Silent
        } else {
            Self::Refused(error.why)
        }
    }
}
impl From<Damaged> for Trouble {
    fn from(damaged: Damaged) -> Self {
        Self::Damaged(damaged)
    }
}

/// See the module head.
pub struct Object<D: Driven, L> {
    objects: D,
    locate: L,
    place: Option<(PoolId, ObjectId)>,
    hints: Hints,
    /// No hints are sent: no client watches what is changed here.
    quiet: bool,
    /// Completions that were not taken yet.
    ended: Vec<Completion>,
}

impl<D: Driven, L> Drop for Object<D, L> {
    fn drop(&mut self) {
        let begun = self.objects.now();
        while self.hints.is_sending() && self.objects.now().since(begun) < HINT_MAX {
            self.turn(Duration::from_millis(10));
        }
    }
}

impl<D: Driven, L> Object<D, L> {
    /// Waits at most `max` for an event, and handles it.
    pub fn turn(&mut self, max: Duration) {
        self.objects.turn(max);
        let mut ended = Vec::new();
        self.objects.completions(&mut ended);
        for completion in ended {
            if !self
                .hints
                .ended(&mut self.objects, self.place.as_ref(), &completion)
            {
                self.ended.push(completion);
            }
        }
        self.hints.events(&mut self.objects);
    }
}

impl<D: Driven, L: Locate> Object<D, L> {
    /// Uses an object cluster.
    pub fn new(objects: D, locate: L) -> Self {
        Self {
            objects,
            locate,
            place: None,
            hints: Hints::default(),
            quiet: false,
            ended: Vec::new(),
        }
    }

    /// The current time by the cluster's clock.
    pub fn now(&self) -> Time {
        self.objects.now()
    }

    /// Waits a little after this many lost races: a write with a failed guard takes as long as a
    /// successful one, and of all clients that read at the same moment, all but one will fail. The
    /// wait is practically random: it is derived from the clock's lowest digits.
    pub fn make_way(&mut self, lost: u32) {
        let begun = self.objects.now();
        let most = WRITE.saturating_mul(1 << lost.min(BACKOFFS_MAX)).as_nanos() as u64;
        let drawn = mix(begun.0 ^ u64::from(lost));
        let wait = Duration::from_nanos(drawn % most);
        loop {
            let left = wait.saturating_sub(self.objects.now().since(begun));
            if left.is_zero() {
                return;
            }
            self.turn(left);
        }
    }

    /// No hints are sent from now on.
    pub const fn quiet(&mut self) {
        self.quiet = true;
    }
    /// Sends a hint to watchers.
    pub fn hint(&mut self) {
        if let Some(place) = self.place.as_ref().filter(|_| !self.quiet) {
            self.hints.send(&mut self.objects, place);
        }
    }

    /// Begins to listen to hints, if possible and not done yet. Hints from here on count as news.
    pub fn listen(&mut self) {
        if let Some(place) = &self.place {
            self.hints.listen(&mut self.objects, place);
        }
        self.hints.take();
    }
    /// Whether hints are listened to.
    pub const fn listens(&self) -> bool {
        self.hints.listens()
    }
    /// Whether a hint has arrived since the last call.
    pub const fn was_hinted(&mut self) -> bool {
        self.hints.take()
    }

    /// The object's version; `None`: it does not exist.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn version(&mut self) -> Result<Option<Version>, Trouble> {
        let Some(place) = self.place()? else {
            return Ok(None);
        };
        match self.operate(place, vec![SubOp::Stat {}]) {
            Ok(done) => Ok(Some(done.version)),
            Err(Failure::Refused(OpFailure::NotFound {})) => Ok(None),
            Err(failure) => Err(self.trouble(failure)),
        }
    }

    fn place(&mut self) -> Result<Option<(PoolId, ObjectId)>, Trouble> {
        if self.place.is_none() {
            self.place = self.locate.find()?;
        }
        Ok(self.place.clone())
    }

    /// Reads what is needed, all of one version of the object; without an object, the empty state.
    ///
    /// # Errors
    /// It cannot be read, or keeps changing until `until`.
    pub fn read(&mut self, needs: &Needs, until: Time) -> Result<State, Trouble> {
        let Some(place) = self.place()? else {
            return Ok(State::default());
        };
        loop {
            if let Some(state) = self.read_once(&place, needs)? {
                return Ok(state);
            }
            if self.objects.now() >= until {
                return Err(Trouble::Lost);
            }
        }
    }

    /// `None`: the object has changed between two pages.
    fn read_once(
        &mut self,
        place: &(PoolId, ObjectId),
        needs: &Needs,
    ) -> Result<Option<State>, Trouble> {
        let mut state = State::default();
        let mut left: VecDeque<Stretch> = needs.stretches.clone().into();
        let mut entries: Option<Vec<Bytes>> = Some(needs.entries.iter().cloned().collect());
        while entries.is_some() || !left.is_empty() {
            let listed: Vec<Stretch> = left.drain(..left.len().min(LISTINGS_MAX)).collect();
            let gets = entries.take().map(|keys| SubOp::OmapGet { keys });
            let lists = listed.iter().map(|stretch| SubOp::OmapList {
                after: stretch.after.clone(),
                limit: stretch.page(),
            });
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
                let within = entries
                    .iter()
                    .take_while(|(entry, _)| stretch.has(entry))
                    .count();
                for (entry, value) in &entries[..within] {
                    state.take(entry, value)?;
                }
                let Some((last, _)) = entries.last().filter(|_| more && within == entries.len())
                else {
                    continue;
                };
                if stretch.enough.is_some() {
                    state.more = true;
                } else {
                    left.push_back(Stretch {
                        after: last.clone(),
                        ..stretch
                    });
                }
            }
        }
        Ok(Some(state))
    }

    /// Writes changes if the object still has the version that was read.
    ///
    /// # Errors
    /// It does not, or it cannot be written; [`Trouble::Silent`]: it may have been written, or may
    /// be later.
    pub fn write(&mut self, version: Option<Version>, changes: Changes) -> Result<(), Trouble> {
        let place = match self.place()? {
            Some(place) => place,
            // Nothing was written yet, whatever happened to the pool.
            None => self
                .locate
                .make()
                .map_err(|error| Trouble::Refused(error.why))?,
        };
        self.place = Some(place.clone());
        let guard = match version {
            Some(version) => SubOp::AssertVersion { version },
            None => SubOp::AssertExists { exists: false },
        };
        let Changes { set, remove } = changes;
        let mut ops = vec![guard];
        if !remove.is_empty() {
            ops.push(SubOp::OmapRemove {
                keys: remove.into_iter().collect(),
            });
        }
        if !set.is_empty() {
            ops.push(SubOp::OmapSet {
                entries: set.into_iter().collect(),
            });
        }
        match self.operate(place, ops) {
            Ok(_) => Ok(()),
            Err(Failure::Refused(
                OpFailure::Guard { .. } | OpFailure::NotFound {} | OpFailure::AlreadyExists {},
            )) => Err(Trouble::Lost),
            Err(failure) => Err(self.trouble(failure)),
        }
    }

    fn trouble(&mut self, failure: Failure) -> Trouble {
        match failure {
            Failure::Unknown | Failure::Doubtful(_) => Trouble::Silent,
            Failure::NoSuchPool => {
                // The pointer may name another object meanwhile.
                self.place = None;
                Trouble::Refused("the pool of the metadata is gone".to_owned())
            }
            Failure::Refused(why) => Trouble::Refused(format!("the metadata's object: {why}")),
            Failure::Foreign { why, .. } => {
                Trouble::Refused(format!("the metadata's object: {why}"))
            }
        }
    }

    /// Executes one operation to its end.
    fn operate(
        &mut self,
        (pool, object): (PoolId, ObjectId),
        ops: Vec<SubOp>,
    ) -> Result<Done, Failure> {
        let begun = self.objects.now();
        let operation = Operation {
            pool,
            object,
            ops,
            ..Operation::default()
        };
        let id = match self.objects.objects().submit(begun, operation) {
            Ok(id) => id,
            Err(Refused::NoSuchPool) => return Err(Failure::NoSuchPool),
            Err(refused) => {
                return Err(Failure::Foreign {
                    code: 0,
                    why: format!("not begun: {refused:?}"),
                });
            }
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
