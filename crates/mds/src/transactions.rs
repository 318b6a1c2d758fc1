//! Name changes across ranks: what is prepared, decided and locked (ADR 0006, "Across ranks").
//!
//! ```text
//!  leader       Leading ── facts of all parts ─▶ evaluated ─▶ Committed, in the batch with its own changes
//!                  │ one is Busy, or fails                       └ sent until all have it: Told
//!                  └▶ aborted: the others are told "no"
//!  participant  Prepared: names and inodes locked ── decided ─▶ changed: Ended ── safe ─▶ Decided is sent
//!                  └ no message arrives: Inquire
//! ```
//! No other request sees or changes what a transaction locks until it is decided: neither the old
//! state, which another rank may have answered as changed, nor the new one. Two transactions that
//! need the same thing do not wait for each other: the second one is aborted and restarted a little
//! later, after a delay that differs by rank.
//!
//! Invariants: each lock belongs to one transaction; a transaction that is not committed in its
//! leader's journal has not happened, and never will, once its leader no longer knows it.

use crate::journal::Progress;
use nacre_types::{ClientId, Ino, Name, Rank, Time};
use nacre_wire::fs::Stamp;
use nacre_wire::msg::transaction::{FsFact, FsPart, FsStep};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Unanswered messages are resent after this.
const AGAIN: Duration = Duration::from_millis(500);
/// A participant without a decision asks this long after preparing its part.
const INQUIRE: Duration = Duration::from_secs(1);
/// An aborted transaction is restarted after this; the delay grows with each attempt and with the
/// rank.
const BUSY: Duration = Duration::from_millis(5);

/// A transaction unanswered by a participant for this long is aborted, so that others get what it
/// locks, and restarted.
const UNANSWERED: Duration = Duration::from_secs(3);
/// Ended transactions of other ranks that are remembered.
const OVER_MAX: usize = 1_000;

/// A part, and its rank's answer.
#[derive(Clone, Debug)]
struct Asked {
    rank: Rank,
    part: FsPart,
    fact: Option<FsFact>,
    /// When it is asked again.
    at: Time,
}

/// A request with parts elsewhere that is not decided.
#[derive(Debug)]
struct Leading {
    request: (ClientId, u64),
    begun: Time,
    stamp: Stamp,
    parts: Vec<Asked>,
}

/// A committed transaction, with the ranks that have not confirmed that it is in their journals.
#[derive(Debug)]
struct Commitment {
    /// The batch with the commit.
    batch: u64,
    ranks: BTreeSet<Rank>,
    tell_at: Time,
}

/// A part of another rank's transaction, as in the journal.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub stamp: Stamp,
    pub part: FsPart,
    /// The inode that it creates or changes; [`Ino::TOP`]: another rank has it.
    pub ino: Ino,
    /// The batch that records that it is prepared.
    pub batch: u64,
}

/// Another rank's transaction.
#[derive(Debug)]
struct Prepared {
    leader: Rank,
    parts: BTreeMap<u8, Part>,
    /// The batch that records its end.
    ended: Option<u64>,
    inquire_at: Time,
}

/// The names and inodes that a transaction locks.
#[derive(Debug, Default)]
struct Locks {
    names: BTreeMap<(Ino, Name), Ino>,
    inos: BTreeMap<Ino, Ino>,
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct Transactions {
    rank: Rank,
    leading: BTreeMap<Ino, Leading>,
    by_request: BTreeMap<(ClientId, u64), Ino>,
    /// Requests to be restarted, with the number of attempts and the time.
    put_off: BTreeMap<(ClientId, u64), (u32, Time)>,
    commitments: BTreeMap<Ino, Commitment>,
    prepared: BTreeMap<Ino, Prepared>,
    /// Other ranks' transactions that have ended here: late messages for them are ignored. Only the
    /// most recent ones.
    over: VecDeque<Ino>,
    locks: Locks,
    /// Something was unlocked: requests that wait for it can continue.
    unlocked: bool,
    out: Vec<(Rank, Ino, FsStep)>,
}

impl Transactions {
    pub fn new(rank: Rank) -> Self {
        Self {
            rank,
            leading: BTreeMap::new(),
            by_request: BTreeMap::new(),
            put_off: BTreeMap::new(),
            commitments: BTreeMap::new(),
            prepared: BTreeMap::new(),
            over: VecDeque::new(),
            locks: Locks::default(),
            unlocked: false,
            out: Vec::new(),
        }
    }
    /// Queues a message for a rank.
    pub fn say(&mut self, rank: Rank, transaction: Ino, step: FsStep) {
        self.out.push((rank, transaction, step));
    }
    pub fn take_said(&mut self) -> Vec<(Rank, Ino, FsStep)> {
        std::mem::take(&mut self.out)
    }

    // ── locks ───────────────────────────────────────────────────────────────────────────

    /// Whether something was unlocked since the last call.
    pub fn was_unlocked(&mut self) -> bool {
        std::mem::take(&mut self.unlocked)
    }
    /// Whether nothing is locked.
    pub fn locks_nothing(&self) -> bool {
        self.locks.names.is_empty() && self.locks.inos.is_empty()
    }
    /// Whether another transaction than `own` locks this inode.
    pub fn has_ino(&self, ino: Ino, own: Option<Ino>) -> bool {
        self.locks.inos.get(&ino).is_some_and(|of| Some(*of) != own)
    }
    /// Whether transactions led by other ranks lock anything: they may be decided already. An
    /// undecided transaction led by this rank has not happened anywhere.
    pub fn has_others(&self) -> bool {
        self.prepared.values().any(|of| of.ended.is_none())
    }
    pub fn has_name(&self, dir: Ino, name: &Name, own: Option<Ino>) -> bool {
        !self.locks.names.is_empty()
            && self
                .locks
                .names
                .get(&(dir, name.clone()))
                .is_some_and(|of| Some(*of) != own)
    }
    /// The same for any name in a directory.
    pub fn has_name_in(&self, dir: Ino, own: Option<Ino>) -> bool {
        let from = (dir, Name::default());
        let mut all = self
            .locks
            .names
            .range(from..)
            .take_while(|((of, _), _)| *of == dir);
        all.any(|(_, of)| Some(*of) != own)
    }
    /// Takes locks that were checked before: no other transaction has them.
    fn lock(
        &mut self,
        transaction: Ino,
        names: impl Iterator<Item = (Ino, Name)>,
        ino: Option<Ino>,
    ) {
        for name in names {
            let before = self.locks.names.insert(name, transaction);
            debug_assert!(
                before.is_none_or(|before| before == transaction),
                "{transaction} takes a name of {before:?}"
            );
        }
        if let Some(ino) = ino {
            let before = self.locks.inos.insert(ino, transaction);
            debug_assert!(
                before.is_none_or(|before| before == transaction),
                "{transaction} takes {ino} of {before:?}"
            );
        }
    }
    fn unlock(&mut self, transaction: Ino) {
        self.unlocked = true;
        self.locks.names.retain(|_, of| *of != transaction);
        self.locks.inos.retain(|_, of| *of != transaction);
    }

    // ── as the leader ───────────────────────────────────────────────────────────────────

    /// The transaction of a request, and its time.
    pub fn of(&self, request: (ClientId, u64)) -> Option<(Ino, Stamp)> {
        let transaction = self.by_request.get(&request)?;
        Some((*transaction, self.leading[transaction].stamp))
    }
    /// What is known for a request: nothing before everything requested is answered.
    pub fn facts(&self, request: (ClientId, u64)) -> Result<Vec<(FsPart, FsFact)>, ()> {
        let Some(transaction) = self.by_request.get(&request) else {
            return Ok(Vec::new());
        };
        let facts = self.leading[transaction].parts.iter();
        facts
            .map(|asked| Some((asked.part.clone(), asked.fact.clone()?)))
            .collect::<Option<_>>()
            .ok_or(())
    }
    /// The inodes that its names refer to, according to other ranks.
    pub fn inos_of(&self, request: (ClientId, u64)) -> impl Iterator<Item = Ino> {
        let leading = self
            .by_request
            .get(&request)
            .and_then(|transaction| self.leading.get(transaction));
        let facts = leading
            .into_iter()
            .flat_map(|leading| &leading.parts)
            .filter_map(|asked| asked.fact.as_ref());
        facts.filter_map(|fact| match fact {
            FsFact::Elsewhere { ino, .. } => Some(*ino),
            FsFact::Node { node } => Some(node.inode.ino),
            FsFact::Failed { .. } | FsFact::Busy {} => None,
        })
    }
    /// Whether a request is to be restarted, but not yet.
    pub fn is_put_off(&self, request: (ClientId, u64), now: Time) -> bool {
        self.put_off
            .get(&request)
            .is_some_and(|(_, until)| now < *until)
    }
    /// A request becomes a transaction that locks these names and this inode of its own rank.
    pub fn begin(
        &mut self,
        now: Time,
        transaction: Ino,
        request: (ClientId, u64),
        stamp: Stamp,
        names: impl Iterator<Item = (Ino, Name)>,
        ino: Option<Ino>,
    ) {
        self.leading.insert(
            transaction,
            Leading {
                request,
                begun: now,
                stamp,
                parts: Vec::new(),
            },
        );
        self.by_request.insert(request, transaction);
        self.lock(transaction, names, ino);
    }
    /// It needs this part from another rank.
    pub fn ask(&mut self, now: Time, transaction: Ino, rank: Rank, part: FsPart) {
        let leading = self.leading.get_mut(&transaction).expect("it was begun");
        let (index, stamp) = (
            u8::try_from(leading.parts.len()).expect("three at most"),
            leading.stamp,
        );
        leading.parts.push(Asked {
            rank,
            part: part.clone(),
            fact: None,
            at: now + AGAIN,
        });
        self.say(rank, transaction, FsStep::Prepare { index, stamp, part });
    }
    /// Handles a participant's answer.
    pub fn on_fact(&mut self, now: Time, rank: Rank, transaction: Ino, index: u8, fact: FsFact) {
        let Some(leading) = self.leading.get_mut(&transaction) else {
            // It was aborted while it was being prepared.
            if !self.commitments.contains_key(&transaction)
                && matches!(fact, FsFact::Node { .. } | FsFact::Elsewhere { .. })
            {
                self.say(rank, transaction, FsStep::Decide { commit: false });
            }
            return;
        };
        let Some(asked) = leading
            .parts
            .get_mut(usize::from(index))
            .filter(|asked| asked.rank == rank)
        else {
            return;
        };
        if asked.fact.is_some() {
            return;
        }
        if matches!(fact, FsFact::Busy {}) {
            let request = leading.request;
            asked.fact = Some(fact);
            self.put_off(now, request);
            return;
        }
        asked.fact = Some(fact);
    }
    /// Another transaction locks something that a request needs: it is restarted a little later.
    pub fn put_off(&mut self, now: Time, request: (ClientId, u64)) {
        let times = self.put_off.get(&request).map_or(0, |(times, _)| *times) + 1;
        let wait = BUSY * (1 + u32::from(self.rank.0)) * times.min(20);
        self.put_off.insert(request, (times, now + wait));
        self.give_up(request);
    }
    /// A request has ended without having changed anything, or its client is gone: aborts it.
    pub fn give_up(&mut self, request: (ClientId, u64)) {
        let Some(transaction) = self.by_request.remove(&request) else {
            return;
        };
        let leading = self.leading.remove(&transaction).expect("both know it");
        self.unlock(transaction);
        let is_kept =
            |asked: &&Asked| !matches!(asked.fact, Some(FsFact::Failed { .. } | FsFact::Busy {}));
        let ranks: BTreeSet<Rank> = leading
            .parts
            .iter()
            .filter(is_kept)
            .map(|asked| asked.rank)
            .collect();
        for rank in ranks {
            self.say(rank, transaction, FsStep::Decide { commit: false });
        }
    }
    /// Drops a client's requests.
    pub fn give_up_all(&mut self, client: ClientId) {
        let requests: Vec<_> = self
            .by_request
            .range((client, 0)..=(client, u64::MAX))
            .map(|(request, _)| *request)
            .collect();
        requests
            .into_iter()
            .for_each(|request| self.give_up(request));
        self.put_off.retain(|(of, _), _| *of != client);
    }
    /// A request was answered: it is not restarted.
    pub fn end_request(&mut self, request: (ClientId, u64)) {
        self.put_off.remove(&request);
    }
    /// A request is complete, in batch `batch`: returns the ranks to tell, if it was a transaction.
    pub fn commit(&mut self, request: (ClientId, u64), batch: u64) -> Option<Progress> {
        let transaction = self.by_request.remove(&request)?;
        let leading = self.leading.remove(&transaction).expect("both know it");
        self.unlock(transaction);
        let ranks: BTreeSet<Rank> = leading.parts.iter().map(|asked| asked.rank).collect();
        let progress = committed(transaction, &ranks);
        self.commitments.insert(
            transaction,
            Commitment {
                batch,
                ranks,
                tell_at: Time::ZERO,
            },
        );
        Some(progress)
    }
    /// A participant has it in its journal; returns what to journal if all have.
    pub fn on_decided(&mut self, rank: Rank, transaction: Ino) -> Option<Progress> {
        let commitment = self.commitments.get_mut(&transaction)?;
        commitment.ranks.remove(&rank);
        if !commitment.ranks.is_empty() {
            return None;
        }
        self.commitments.remove(&transaction);
        Some(Progress::Told { transaction })
    }
    /// A participant asks for the decision.
    pub fn on_inquire(&mut self, rank: Rank, transaction: Ino, safe: u64) {
        if self.leading.contains_key(&transaction) {
            return;
        }
        match self.commitments.get(&transaction) {
            Some(commitment) if commitment.batch < safe => {
                self.say(rank, transaction, FsStep::Decide { commit: true });
            }
            // It is told when the commit is safe.
            Some(_) => {}
            None => self.say(rank, transaction, FsStep::Decide { commit: false }),
        }
    }

    // ── as a participant ────────────────────────────────────────────────────────────────

    /// A part that was prepared before.
    pub fn part(&self, transaction: Ino, index: u8) -> Option<&Part> {
        self.prepared.get(&transaction)?.parts.get(&index)
    }
    /// Prepares a part: locks what it concerns.
    pub fn prepare(
        &mut self,
        now: Time,
        leader: Rank,
        transaction: Ino,
        index: u8,
        part: Part,
    ) -> Progress {
        let progress = prepared(transaction, leader, index, &part);
        self.lock_part(transaction, &part);
        let of = self
            .prepared
            .entry(transaction)
            .or_insert_with(|| Prepared {
                leader,
                parts: BTreeMap::new(),
                ended: None,
                inquire_at: now + INQUIRE,
            });
        of.parts.insert(index, part);
        progress
    }
    fn lock_part(&mut self, transaction: Ino, part: &Part) {
        let name = match &part.part {
            FsPart::Leave { dir, name } => Some((*dir, name.clone())),
            FsPart::Link { .. } | FsPart::Unlink { .. } | FsPart::Make { .. } => None,
        };
        self.lock(
            transaction,
            name.into_iter(),
            Some(part.ino).filter(|ino| *ino != Ino::TOP),
        );
    }
    /// The parts of a transaction to decide; `None`: it was decided before, or never prepared.
    pub fn parts(&self, transaction: Ino) -> Option<impl Iterator<Item = &Part>> {
        Some(
            self.prepared
                .get(&transaction)
                .filter(|of| of.ended.is_none())?
                .parts
                .values(),
        )
    }
    /// It is decided: batch `batch` records that, with its changes.
    pub fn end(&mut self, transaction: Ino, batch: u64) {
        if let Some(of) = self.prepared.get_mut(&transaction) {
            of.ended = Some(batch);
        }
        self.unlock(transaction);
    }
    /// It is decided, or its leader has aborted it: a late part of it is not prepared.
    pub fn note_over(&mut self, transaction: Ino) {
        if self.over.len() >= OVER_MAX {
            self.over.pop_front();
        }
        self.over.push_back(transaction);
    }
    pub fn is_over(&self, transaction: Ino) -> bool {
        self.over.contains(&transaction)
    }
    /// Whether it has ended here but is not safe yet.
    pub fn is_ending(&self, transaction: Ino) -> bool {
        self.prepared
            .get(&transaction)
            .is_some_and(|of| of.ended.is_some())
    }

    // ── journal and time ────────────────────────────────────────────────────────────────

    /// Takes over the journal's records, in order.
    pub fn inherit(&mut self, progress: Progress, batch: u64) {
        match progress {
            Progress::Prepared {
                transaction,
                leader,
                index,
                stamp,
                part,
                ino,
            } => {
                let of = self
                    .prepared
                    .entry(transaction)
                    .or_insert_with(|| Prepared {
                        leader: Rank(leader),
                        parts: BTreeMap::new(),
                        ended: None,
                        inquire_at: Time::ZERO,
                    });
                of.parts.insert(
                    index,
                    Part {
                        stamp,
                        part,
                        ino,
                        batch,
                    },
                );
            }
            Progress::Ended { transaction } => drop(self.prepared.remove(&transaction)),
            Progress::Committed { transaction, ranks } => {
                let ranks = ranks.into_iter().map(Rank).collect();
                self.commitments.insert(
                    transaction,
                    Commitment {
                        batch,
                        ranks,
                        tell_at: Time::ZERO,
                    },
                );
            }
            Progress::Told { transaction } => drop(self.commitments.remove(&transaction)),
        }
    }
    /// Other ranks' transactions that are prepared and not decided here.
    pub fn undecided(&self) -> impl Iterator<Item = (Ino, Rank)> {
        self.prepared
            .iter()
            .map(|(transaction, of)| (*transaction, of.leader))
    }
    /// Whether this rank has committed its own transaction, and not all others know it yet.
    pub fn has_committed(&self, transaction: Ino) -> bool {
        self.commitments.contains_key(&transaction)
    }
    /// The whole journal was read: what is still prepared is locked.
    pub fn on_inherited(&mut self) {
        let parts = self.prepared.iter().flat_map(|(transaction, of)| {
            of.parts.values().map(|part| (*transaction, part.clone()))
        });
        let parts: Vec<(Ino, Part)> = parts.collect();
        parts
            .iter()
            .for_each(|(transaction, part)| self.lock_part(*transaction, part));
    }
    /// The records for the journal's head, as far as lower batches are safe: if this holder dies,
    /// what is not safe was never prepared or committed, and what has ended is only over when that
    /// is safe.
    pub fn all(&self, safe: u64) -> Vec<Progress> {
        let parts = self.prepared.iter().flat_map(|(transaction, of)| {
            let safe = of.parts.iter().filter(|(_, part)| part.batch < safe);
            safe.map(|(index, part)| prepared(*transaction, of.leader, *index, part))
        });
        let commitments = self
            .commitments
            .iter()
            .filter(|(_, commitment)| commitment.batch < safe);
        parts
            .chain(commitments.map(|(transaction, of)| committed(*transaction, &of.ranks)))
            .collect()
    }
    /// Queues the messages that are due; batches below `safe` are safe.
    pub fn on_turn(&mut self, now: Time, safe: u64) {
        let times = |request: &(ClientId, u64)| {
            self.put_off
                .get(request)
                .map_or(0, |(times, _)| *times)
                .min(9)
        };
        let is_late = |leading: &&Leading| {
            let most = UNANSWERED * (1 + times(&leading.request));
            now.since(leading.begun) >= most
                && leading.parts.iter().any(|asked| asked.fact.is_none())
        };
        let late: Vec<_> = self
            .leading
            .values()
            .filter(is_late)
            .map(|leading| leading.request)
            .collect();
        for request in late {
            self.put_off(now, request);
            // Its rank may have no server: others continue for a while with what it locked.
            if let Some((_, until)) = self.put_off.get_mut(&request) {
                *until = now + AGAIN;
            }
        }
        let out = &mut self.out;
        for (transaction, leading) in &mut self.leading {
            for (index, asked) in (0..).zip(&mut leading.parts) {
                if asked.fact.is_none() && asked.at <= now {
                    asked.at = now + AGAIN;
                    let step = FsStep::Prepare {
                        index,
                        stamp: leading.stamp,
                        part: asked.part.clone(),
                    };
                    out.push((asked.rank, *transaction, step));
                }
            }
        }
        for (transaction, commitment) in &mut self.commitments {
            if commitment.batch < safe && commitment.tell_at <= now {
                commitment.tell_at = now + AGAIN;
                let step = FsStep::Decide { commit: true };
                out.extend(
                    commitment
                        .ranks
                        .iter()
                        .map(|rank| (*rank, *transaction, step.clone())),
                );
            }
        }
        self.prepared.retain(|transaction, of| match of.ended {
            Some(batch) if batch < safe => {
                out.push((of.leader, *transaction, FsStep::Decided {}));
                false
            }
            Some(_) => true,
            None => {
                if of.inquire_at <= now {
                    of.inquire_at = now + INQUIRE;
                    out.push((of.leader, *transaction, FsStep::Inquire {}));
                }
                true
            }
        });
    }
    /// Whether nothing is undecided, or decided but unknown to some.
    pub fn is_idle(&self) -> bool {
        self.leading.is_empty() && self.commitments.is_empty() && self.prepared.is_empty()
    }
    /// Other ranks may have other holders now: resends everything that waits for them.
    pub fn say_again(&mut self) {
        let asked = self
            .leading
            .values_mut()
            .flat_map(|leading| &mut leading.parts);
        asked.for_each(|asked| asked.at = Time::ZERO);
        self.commitments
            .values_mut()
            .for_each(|commitment| commitment.tell_at = Time::ZERO);
        self.prepared
            .values_mut()
            .for_each(|of| of.inquire_at = Time::ZERO);
    }
    /// Whether a request is to be restarted.
    pub fn has_put_off(&self) -> bool {
        !self.put_off.is_empty()
    }
    /// When it wants a turn.
    pub fn next_deadline(&self, now: Time, safe: u64) -> Time {
        let asked = self
            .leading
            .values()
            .flat_map(|leading| &leading.parts)
            .filter(|asked| asked.fact.is_none());
        let told = self
            .commitments
            .values()
            .filter(|commitment| commitment.batch < safe);
        let inquired = self
            .prepared
            .values()
            .filter(|of| of.ended.is_none())
            .map(|of| of.inquire_at);
        let put_off = self
            .put_off
            .values()
            .map(|(_, until)| *until)
            .filter(|until| now < *until);
        let all = asked
            .map(|asked| asked.at)
            .chain(told.map(|told| told.tell_at))
            .chain(inquired);
        all.chain(put_off).min().unwrap_or(Time::MAX)
    }
}

fn prepared(transaction: Ino, leader: Rank, index: u8, part: &Part) -> Progress {
    let Part {
        stamp,
        part,
        ino,
        batch: _,
    } = part.clone();
    Progress::Prepared {
        transaction,
        leader: leader.0,
        index,
        stamp,
        part,
        ino,
    }
}
fn committed(transaction: Ino, ranks: &BTreeSet<Rank>) -> Progress {
    Progress::Committed {
        transaction,
        ranks: ranks.iter().map(|rank| rank.0).collect(),
    }
}
