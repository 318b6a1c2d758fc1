//! The metadata's object: read in one version, written if it still has it, listened to.
//!
//! Works over any [`Driven`] cluster of objects, and keeps time by its clock alone.

use super::decide::Changes;
use super::hints::Hints;
use super::needs::{Needs, Stretch};
use super::place::Locate;
use super::state::{Damaged, State};
use crate::error::RadosError;
use bytes::Bytes;
use nacre_client::{Completion, Done, Driven, Failure, Operation, Refused};
use nacre_types::{ObjectId, PoolId, Time, Version};
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use std::collections::VecDeque;
use std::time::Duration;

/// An operation ends by itself before that: librados gives up, and asks once more what became of
/// it.
const OPERATION_MAX: Duration = Duration::from_secs(90);
/// Listings of one read at most.
const LISTINGS_MAX: usize = 16;
/// About as long as a write takes there.
const WRITE: Duration = Duration::from_millis(2);
/// Doublings of that between races at most.
const BACKOFFS_MAX: u32 = 5;
/// So long, a client that goes gives its last hint.
const HINT_MAX: Duration = Duration::from_millis(100);

/// Why something was not read, or not written for sure.
#[derive(Debug)]
pub enum Trouble {
    /// Somebody else's change came first.
    Lost,
    /// The cluster does not answer.
    Silent,
    /// It says no.
    Refused(String),
    /// What is there cannot be read.
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
    /// No watcher is told to look: what is changed here is watched by none.
    quiet: bool,
    /// Ended, and not asked for yet.
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
    /// Waits at most so long for something to happen, and takes note of what has.
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
    /// Over a cluster of objects.
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

    /// Now, by the cluster's clock.
    pub fn now(&self) -> Time {
        self.objects.now()
    }

    /// Waits a little after so many lost races: a write that fails its guard takes as long as one
    /// that does not, and all who read at the same moment but one will fail. Who waits for how long
    /// is as good as drawn: it comes from the clock's smallest digits.
    pub fn make_way(&mut self, lost: u32) {
        let begun = self.objects.now();
        let most = WRITE.saturating_mul(1 << lost.min(BACKOFFS_MAX)).as_nanos() as u64;
        // SplitMix64's finisher.
        let mut drawn = begun.0 ^ u64::from(lost);
        drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let wait = Duration::from_nanos((drawn ^ (drawn >> 31)) % most);
        loop {
            let left = wait.saturating_sub(self.objects.now().since(begun));
            if left.is_zero() {
                return;
            }
            self.turn(left);
        }
    }

    /// From now on no watcher is told to look.
    pub const fn quiet(&mut self) {
        self.quiet = true;
    }
    /// Tells watchers to look.
    pub fn hint(&mut self) {
        if let Some(place) = self.place.as_ref().filter(|_| !self.quiet) {
            self.hints.send(&mut self.objects, place);
        }
    }

    /// Begins to listen to hints, if it can and does not yet. What is hinted at from here on is
    /// news.
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
    /// Whether there was one since this was asked last.
    pub const fn was_hinted(&mut self) -> bool {
        self.hints.take()
    }

    /// The object's version; `None`: there is none.
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

    /// Reads what is needed, all of one version of the object; of none, the state of nothing.
    ///
    /// # Errors
    /// It cannot be read, or changes all the time until then.
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

    /// `None`: the object has changed between one page and another.
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

    /// Writes changes if the object is still of the version that was read.
    ///
    /// # Errors
    /// It is not, or it cannot be written; [`Trouble::Silent`]: it may have been, or be yet.
    pub fn write(&mut self, version: Option<Version>, changes: Changes) -> Result<(), Trouble> {
        let place = match self.place()? {
            Some(place) => place,
            // Nothing was written yet, whatever became of the pool.
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
                // Perhaps the pointer names another one meanwhile.
                self.place = None;
                Trouble::Refused("the pool of the metadata is gone".to_owned())
            }
            Failure::Refused(why) => Trouble::Refused(format!("the metadata's object: {why}")),
            Failure::Foreign { why, .. } => {
                Trouble::Refused(format!("the metadata's object: {why}"))
            }
        }
    }

    /// One operation, to its end.
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
