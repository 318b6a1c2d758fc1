//! Clients that watch, notify and lock, in addition to their register operations, and checks of the
//! results.
//!
//! The times of requests and answers are recorded in virtual time. Checked at the end
//! ([`Notices::check`]):
//! 1. a watcher reported as having acknowledged a notify was told of it;
//! 2. a watch that was registered before a notify was begun, and known to exist after it was
//!    answered, was told of it;
//! 3. a watcher reported as having missed a notify was not known to have a watch after that report:
//!    it lost the watch and was told so;
//! 4. every write under a lock carries the token of the lock's last grant before it: no two
//!    holders' writes overlap;
//! 5. whatever was begun ends after the faults have ended.

use crate::ledger::Ledger;
use crate::plan::{MS, Plan};
use crate::workload::{POOL, Place, Turn, Workload, operation};
use bytes::Bytes;
use nacre_client::{Client, Completion, Done, Failure, ObjectCluster, OpId, WatchEvent, WatchId};
use nacre_types::{ClientId, ObjectId, Version};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, RequestId, SubOp, SubReply};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// Number of objects of each kind.
const OBJECTS: u64 = 2;

fn notice(object: u64) -> ObjectId {
    ObjectId::named(&format!("notice-{object}"))
}
fn locked(object: u64) -> ObjectId {
    ObjectId::named(&format!("locked-{object}"))
}

/// One watch, as its client sees it.
#[derive(Debug, Default)]
struct Watch {
    object: u64,
    /// When its registration was answered.
    registered: Option<u64>,
    /// When it was last known to exist.
    known: u64,
    told: BTreeSet<u64>,
    lost: bool,
}

/// A notify's result, as reported to its notifier.
#[derive(Debug)]
struct Told {
    at: u64,
    acked: Vec<(ClientId, u64)>,
    missed: Vec<(ClientId, u64)>,
}

#[derive(Debug)]
struct Notify {
    object: u64,
    begun: u64,
    told: Option<Told>,
}

/// Counters of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Notifies that were answered.
    pub notifies: usize,
    /// Acknowledgements in these answers.
    pub acked: usize,
    /// Watchers that missed them.
    pub missed: usize,
    /// Watches that were lost.
    pub lost: usize,
    /// Locks granted.
    pub grants: usize,
    /// Of these, taken from a silent holder.
    pub takeovers: usize,
    /// Writes under locks.
    pub writes: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            notifies,
            acked,
            missed,
            lost,
            grants,
            takeovers,
            writes,
        } = self;
        write!(
            f,
            "{notifies} notifies ({acked} acknowledged, {missed} missed), {lost} watches lost, "
        )?;
        write!(
            f,
            "{grants} locks ({takeovers} taken over), {writes} writes under them"
        )
    }
}

/// What all clients record.
#[derive(Debug, Default)]
pub struct Notices {
    watches: BTreeMap<(ClientId, u64), Watch>,
    notifies: Vec<Notify>,
    /// Grants by object and token.
    grants: BTreeMap<(u64, Version), ClientId>,
    /// For each write: object, version, and the token it used.
    writes: Vec<(u64, Version, Version)>,
    /// Locks that may have been granted without anyone having received the answer.
    unsure: BTreeSet<u64>,
    takeovers: usize,
    /// When the last notify was answered.
    last_answer: u64,
}

impl Notices {
    /// The counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let answers = || {
            self.notifies
                .iter()
                .filter_map(|notify| notify.told.as_ref())
        };
        Counts {
            notifies: answers().count(),
            acked: answers().map(|told| told.acked.len()).sum(),
            missed: answers().map(|told| told.missed.len()).sum(),
            lost: self.watches.values().filter(|watch| watch.lost).count(),
            grants: self.grants.len(),
            takeovers: self.takeovers,
            writes: self.writes.len(),
        }
    }

    /// See the module head.
    ///
    /// # Panics
    /// When a check fails: that is the finding.
    pub fn check(&self) {
        for (number, notify) in self.notifies.iter().enumerate() {
            let Some(told) = &notify.told else { continue };
            let number = number as u64;
            for who in &told.acked {
                let watch = self
                    .watches
                    .get(who)
                    .unwrap_or_else(|| panic!("{who:?} acknowledged and never watched"));
                assert!(
                    watch.told.contains(&number),
                    "{who:?} is said to have notify {number}, and was not told of it"
                );
            }
            for who in &told.missed {
                let watch = self
                    .watches
                    .get(who)
                    .unwrap_or_else(|| panic!("{who:?} missed it and never watched"));
                assert!(
                    watch.known <= told.at,
                    "{who:?} missed notify {number}, as was said at {}, and was told at {} that his watch is there",
                    told.at,
                    watch.known
                );
            }
            for (who, watch) in self
                .watches
                .iter()
                .filter(|(_, watch)| watch.object == notify.object)
            {
                let before = watch.registered.is_some_and(|at| at < notify.begun);
                if before && watch.known > told.at {
                    assert!(
                        watch.told.contains(&number),
                        "{who:?} watched all the time and missed notify {number}"
                    );
                }
            }
        }
        for (object, version, token) in self
            .writes
            .iter()
            .filter(|(object, ..)| !self.unsure.contains(object))
        {
            let last = self
                .grants
                .range((*object, Version::NONE)..(*object, *version))
                .next_back();
            let ((_, last), holder) = last.expect("a write under a lock follows a grant");
            assert!(
                last == token,
                "{object}: {version} was written under {token}, and {holder:?} had got {last}"
            );
        }
    }
}

#[derive(Debug)]
enum Asked {
    Create,
    Watch(WatchId),
    Notify(u64),
    Lock(u64),
    Write(u64, Version),
    Rest,
}

/// What one client does in addition to registers.
#[derive(Debug, Default)]
pub struct Chores {
    asked: BTreeMap<OpId, Asked>,
    watch: Option<WatchId>,
    /// Notifies to acknowledge, and when.
    acks: Vec<(u64, WatchId, RequestId)>,
    /// Locks held, as far as is known.
    held: BTreeMap<u64, Version>,
    next_at: u64,
}

impl Workload for Chores {
    type Records = Notices;
    type Counts = Counts;

    fn new(plan: &Plan, place: &Place) -> Option<Self> {
        place.does(plan.claims).then(Self::default)
    }
    fn next_at(&self, finished: bool) -> u64 {
        let next = if finished { u64::MAX } else { self.next_at };
        let acks = self.acks.iter().map(|(at, ..)| *at);
        acks.fold(next, u64::min)
    }
    /// Everything has ended, and the watch is known to exist since the last notify was answered.
    fn is_settled(&self, role: &Client, notices: &Notices) -> bool {
        let known = self.watch.and_then(|watch| role.watch_confirmed(watch));
        let watched = self.watch.is_none() || known.is_some_and(|at| at.0 > notices.last_answer);
        self.asked.is_empty() && self.acks.is_empty() && watched
    }
    fn counts(notices: &Notices) -> Counts {
        notices.counts()
    }
    fn check(notices: &Notices, _: &Ledger) {
        notices.check();
    }

    fn advance(&mut self, turn: &mut Turn<'_>, notices: &mut Notices) {
        let mut events = Vec::new();
        turn.role.watch_events(&mut events);
        for event in events {
            match event {
                WatchEvent::Notify {
                    watch,
                    notify,
                    payload,
                } => {
                    let log = notices
                        .watches
                        .get_mut(&(turn.role.id(), watch.0))
                        .expect("it watches");
                    log.told.insert(number_in(&payload));
                    // Occasionally the service hangs.
                    if !turn.rng.one_in(25) {
                        let wait = if turn.rng.one_in(8) {
                            turn.rng.between(100 * MS, 2000 * MS)
                        } else {
                            turn.rng.below(20 * MS)
                        };
                        self.acks.push((turn.now + wait, watch, notify));
                    }
                }
                WatchEvent::Lost { watch, since } => {
                    let log = notices
                        .watches
                        .get_mut(&(turn.role.id(), watch.0))
                        .expect("it watches");
                    (log.known, log.lost) = (since.0, true);
                    self.watch.take_if(|current| *current == watch);
                    self.acks.retain(|(_, of, _)| *of != watch);
                }
            }
        }
        self.know(turn.role, notices);
        for (_, watch, notify) in self.acks.extract_if(.., |(at, ..)| *at <= turn.now) {
            turn.role
                .ack_notify(turn.local, watch, notify, Bytes::from_static(b"here"))
                .expect("it was told, and not yet acknowledged");
        }
        if !turn.finished && self.next_at <= turn.now {
            self.next_at = turn.now + turn.rng.between(5 * MS, 250 * MS);
            self.act(turn, notices);
        }
    }

    fn on_completion(
        &mut self,
        ended: &Completion,
        turn: &mut Turn<'_>,
        notices: &mut Notices,
    ) -> bool {
        let (now, me) = (turn.now, turn.role.id());
        let Some(asked) = self.asked.remove(&ended.id) else {
            return false;
        };
        match (asked, &ended.result) {
            (Asked::Watch(watch), result) => {
                let log = notices.watches.get_mut(&(me, watch.0)).expect("it watches");
                // The answer may concern a watch that is already gone: only a ping's answer shows
                // that it exists.
                match result {
                    Ok(_) => log.registered = Some(now),
                    // It is unknown whether the watch was registered: notifies received meanwhile
                    // are not acknowledged.
                    Err(_) => {
                        self.watch = None;
                        self.acks.retain(|(_, of, _)| *of != watch);
                    }
                }
            }
            (Asked::Notify(number), Ok(done)) => {
                let Some(SubReply::Notified { acked, missed, .. }) = done.results.first() else {
                    panic!("a notify says who has it")
                };
                let acked = acked.iter().map(|acked| &acked.watcher);
                notices.notifies[number as usize].told = Some(Told {
                    at: now,
                    acked: acked.map(|id| (id.client, id.cookie)).collect(),
                    missed: missed.iter().map(|id| (id.client, id.cookie)).collect(),
                });
                notices.last_answer = now;
            }
            (Asked::Lock(object), Ok(Done { results, .. })) => {
                let [SubReply::Locked { token, .. }] = results[..] else {
                    panic!("a grant has a token")
                };
                let before = notices.grants.insert((object, token), me);
                assert!(
                    before.is_none_or(|before| before == me),
                    "{token} was granted to {before:?} and {me}"
                );
                self.held.insert(object, token);
            }
            (Asked::Lock(_), Err(Failure::Refused(OpFailure::LockHeld { .. }))) => {}
            (Asked::Lock(object), Err(_)) => {
                notices.unsure.insert(object);
            }
            (Asked::Write(object, token), Ok(done)) => {
                notices.writes.push((object, done.version, token))
            }
            (Asked::Write(object, _), Err(Failure::Refused(OpFailure::Guard { .. }))) => {
                self.held.remove(&object);
                notices.takeovers += 1;
            }
            // The object does not exist or is damaged, or the store is full: nothing was granted.
            (_, Err(Failure::Refused(_) | Failure::Doubtful(_)))
            | (Asked::Create | Asked::Rest, Ok(_)) => {}
            (asked, result) => panic!("{asked:?} ended as {result:?}"),
        }
        true
    }
}

impl Chores {
    /// Records what the role knows about the watch.
    fn know(&self, role: &Client, notices: &mut Notices) {
        let Some(watch) = self.watch else { return };
        if let (Some(known), Some(log)) = (
            role.watch_confirmed(watch),
            notices.watches.get_mut(&(role.id(), watch.0)),
        ) {
            log.known = known.0;
        }
    }

    fn act(&mut self, turn: &mut Turn<'_>, notices: &mut Notices) {
        let object = turn.rng.below(OBJECTS);
        // One operation at a time, except for notifies, which wait for others.
        let busy = self
            .asked
            .values()
            .filter(|asked| !matches!(asked, Asked::Notify(_)))
            .count();
        match turn.rng.below(10) {
            0..=2 if self.asked.len() < busy + 3 => {
                let number = notices.notifies.len() as u64;
                let timeout_ms = u32::try_from(turn.rng.between(100, 3000)).expect("short");
                let operation = operation(
                    notice(object),
                    vec![SubOp::Notify {
                        timeout_ms,
                        length: 8,
                    }],
                    vec![Bytes::copy_from_slice(&number.to_le_bytes())],
                );
                if let Some(id) = turn.submit(operation) {
                    notices.notifies.push(Notify {
                        object,
                        begun: turn.now,
                        told: None,
                    });
                    self.asked.insert(id, Asked::Notify(number));
                }
            }
            _ if busy > 0 => {}
            3..=5 => match self.watch {
                None => {
                    let timeout = Duration::from_millis(turn.rng.between(300, 4000));
                    let watch = turn.role.watch(turn.local, POOL, notice(object), timeout);
                    if let Ok(watch) = watch {
                        let log = Watch {
                            object,
                            known: turn.now,
                            ..Watch::default()
                        };
                        notices.watches.insert((turn.role.id(), watch.0), log);
                        self.watch = Some(watch);
                        self.asked.insert(OpId(watch.0), Asked::Watch(watch));
                    }
                }
                Some(watch) if turn.rng.one_in(6) => {
                    if let Ok(Some(id)) = turn.role.unwatch(turn.local, watch) {
                        self.watch = None;
                        self.acks.retain(|(_, of, _)| *of != watch);
                        self.asked.insert(id, Asked::Rest);
                    }
                }
                Some(_) => {}
            },
            6 if turn.rng.one_in(5) => {
                let ops = vec![SubOp::Create { exclusive: false }, SubOp::Delete {}];
                if let Some(id) = turn.submit(operation(notice(object), ops, Payload::new())) {
                    self.asked.insert(id, Asked::Rest);
                }
            }
            6 => {
                let ops = vec![SubOp::Create { exclusive: false }];
                if let Some(id) = turn.submit(operation(notice(object), ops, Payload::new())) {
                    self.asked.insert(id, Asked::Create);
                }
            }
            _ => self.use_lock(object, turn),
        }
    }

    fn use_lock(&mut self, object: u64, turn: &mut Turn<'_>) {
        let name = || "lock".into();
        let (op, asked, payload) = match self.held.get(&object).copied() {
            None => {
                let lease_ms = u32::try_from(turn.rng.between(100, 2000)).expect("short");
                let description = format!("{}", turn.role.id());
                let op = SubOp::Lock {
                    name: name(),
                    cookie: 1,
                    shared: false,
                    lease_ms,
                    description,
                };
                (vec![op], Asked::Lock(object), Payload::new())
            }
            Some(_) if turn.rng.one_in(4) => {
                self.held.remove(&object);
                (
                    vec![SubOp::Unlock {
                        name: name(),
                        cookie: 1,
                    }],
                    Asked::Rest,
                    Payload::new(),
                )
            }
            Some(token) => {
                let guard = SubOp::AssertLock {
                    name: name(),
                    cookie: 1,
                    shared_ok: false,
                };
                let ops = vec![guard, SubOp::WriteFull { length: 8 }];
                let data = Bytes::copy_from_slice(&token.number.to_le_bytes());
                (ops, Asked::Write(object, token), vec![data])
            }
        };
        if let Some(id) = turn.submit(operation(locked(object), op, payload)) {
            self.asked.insert(id, asked);
        }
    }
}

fn number_in(payload: &[Bytes]) -> u64 {
    let bytes: Vec<u8> = payload.iter().flatten().copied().collect();
    u64::from_le_bytes(bytes[..].try_into().expect("a number was sent"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::Epoch;

    const WHO: (ClientId, u64) = (ClientId(1), 2);

    /// A watch registered at 10, known at `known`, that was told of `told`; and a notify begun at
    /// 20 and answered at 30.
    fn notices(known: u64, told: &[u64], acked: bool) -> Notices {
        let mut notices = Notices::default();
        let told = told.iter().copied().collect();
        notices.watches.insert(
            WHO,
            Watch {
                object: 0,
                registered: Some(10),
                known,
                told,
                lost: false,
            },
        );
        let (acked, missed) = if acked {
            (vec![WHO], vec![])
        } else {
            (vec![], vec![WHO])
        };
        notices.notifies.push(Notify {
            object: 0,
            begun: 20,
            told: Some(Told {
                at: 30,
                acked,
                missed,
            }),
        });
        notices
    }
    fn finds(notices: &Notices, what: &str) -> bool {
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| notices.check()));
        found.is_err_and(|why| {
            why.downcast_ref::<String>()
                .is_some_and(|why| why.contains(what))
        })
    }

    #[test]
    fn what_is_well_passes_and_what_is_not_is_found() {
        notices(40, &[0], true).check();
        notices(25, &[], false).check();
        assert!(finds(&notices(40, &[], true), "was not told of it"));
        assert!(finds(&notices(40, &[0], false), "that his watch is there"));
        let mut silent = notices(40, &[], true);
        silent.notifies[0]
            .told
            .as_mut()
            .expect("answered")
            .acked
            .clear();
        assert!(finds(&silent, "missed notify 0"));
        silent
            .watches
            .get_mut(&WHO)
            .expect("it is there")
            .registered = Some(21);
        silent.check();
    }

    #[test]
    fn a_write_under_an_older_grant_than_the_last_is_found() {
        let version = |number| Version {
            interval: Epoch(1),
            number,
        };
        let mut notices = Notices::default();
        notices.grants.extend([
            ((0, version(1)), ClientId(1)),
            ((0, version(5)), ClientId(2)),
        ]);
        notices.grants.insert((1, version(6)), ClientId(3));
        notices
            .writes
            .extend([(0, version(3), version(1)), (0, version(7), version(5))]);
        notices.check();
        notices.writes.push((0, version(8), version(1)));
        assert!(finds(&notices, "was written under"));
    }
}
