//! Changes of names of several ranks: what is prepared, decided and locked (ADR 0006, "Across
//! ranks").
//!
//! ```text
//!  leader       Leading ── facts of all parts ─▶ evaluated ─▶ Committed, in the batch with its own changes
//!                  │ one is Busy, or fails                       └ told until all have it: Told
//!                  └▶ given up: the others hear "no"
//!  participant  Prepared: names and inodes locked ── decided ─▶ changed: Ended ── safe ─▶ Decided is said
//!                  └ nothing is heard: Inquire
//! ```
//! What a transaction locks no other request sees or changes until it is decided: neither what was
//! before, which may have been answered as changed by another rank, nor what will be. Two
//! transactions that want the same do not wait for each other: the second one is given up, and
//! begun again a little later, by each rank after another time.
//!
//! Invariants: what is locked belongs to one transaction; a transaction that is not in its leader's
//! journal as committed has not happened, and never will, once its leader does not know it any
//! more.

use crate::journal::Progress;
use nacre_types::{ClientId, Ino, Name, Rank, Time};
use nacre_wire::fs::Stamp;
use nacre_wire::msg::transaction::{FsFact, FsPart, FsStep};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// What was not answered is said again after so long.
const AGAIN: Duration = Duration::from_millis(500);
/// A participant that has heard nothing since it prepared its part asks after so long.
const INQUIRE: Duration = Duration::from_secs(1);
/// One that was given up because others had something of it is begun again after so long; later
/// each time, and with each rank.
const BUSY: Duration = Duration::from_millis(5);

/// One that a participant has not answered for so long is given up, so that others have what it
/// holds, and begun again.
const UNANSWERED: Duration = Duration::from_secs(3);
/// Others' transactions that have ended and are remembered.
const OVER_MAX: usize = 1_000;

/// A part, and what its rank has said of it.
#[derive(Clone, Debug)]
struct Asked {
    rank: Rank,
    part: FsPart,
    fact: Option<FsFact>,
    /// When it is asked again.
    at: Time,
}

/// A request that has parts elsewhere and is not decided.
#[derive(Debug)]
struct Leading {
    request: (ClientId, u64),
    begun: Time,
    stamp: Stamp,
    parts: Vec<Asked>,
}

/// One that happens: who has not said that it has that in its journal.
#[derive(Debug)]
struct Commitment {
    /// The batch that says so.
    batch: u64,
    ranks: BTreeSet<Rank>,
    tell_at: Time,
}

/// A part of another rank's, as it is in the journal.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub stamp: Stamp,
    pub part: FsPart,
    /// The inode that it makes or changes; [`Ino::TOP`]: another rank has that.
    pub ino: Ino,
    /// The batch that says that it is prepared.
    pub batch: u64,
}

/// Another rank's transaction.
#[derive(Debug)]
struct Prepared {
    leader: Rank,
    parts: BTreeMap<u8, Part>,
    /// The batch that says that it has ended.
    ended: Option<u64>,
    inquire_at: Time,
}

/// Which names and inodes a transaction has.
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
    /// Requests that are begun again, how often that was, and when.
    put_off: BTreeMap<(ClientId, u64), (u32, Time)>,
    commitments: BTreeMap<Ino, Commitment>,
    prepared: BTreeMap<Ino, Prepared>,
    /// Others' that have ended here: what comes of them late does not count. The last ones only.
    over: VecDeque<Ino>,
    locks: Locks,
    /// Something was unlocked: what waits for it can go on.
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
    /// What is to be said, and to whom.
    pub fn say(&mut self, rank: Rank, transaction: Ino, step: FsStep) {
        self.out.push((rank, transaction, step));
    }
    pub fn take_said(&mut self) -> Vec<(Rank, Ino, FsStep)> {
        std::mem::take(&mut self.out)
    }

    // ── locks ───────────────────────────────────────────────────────────────────────────

    /// Whether something was unlocked since this was asked last.
    pub fn was_unlocked(&mut self) -> bool {
        std::mem::take(&mut self.unlocked)
    }
    /// Whether nothing is locked.
    pub fn locks_nothing(&self) -> bool {
        self.locks.names.is_empty() && self.locks.inos.is_empty()
    }
    /// Whether another transaction than `own` has this inode.
    pub fn has_ino(&self, ino: Ino, own: Option<Ino>) -> bool {
        self.locks.inos.get(&ino).is_some_and(|of| Some(*of) != own)
    }
    /// Whether transactions that other ranks lead have anything: they may have decided them. What
    /// this rank leads and has not decided has happened for no one.
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
    /// The same of any name in a directory.
    pub fn has_name_in(&self, dir: Ino, own: Option<Ino>) -> bool {
        let from = (dir, Name::default());
        let mut all = self
            .locks
            .names
            .range(from..)
            .take_while(|((of, _), _)| *of == dir);
        all.any(|(_, of)| Some(*of) != own)
    }
    /// Locks that were looked at before: no other transaction has them.
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

    /// The transaction of a request, and when all of it happens.
    pub fn of(&self, request: (ClientId, u64)) -> Option<(Ino, Stamp)> {
        let transaction = self.by_request.get(&request)?;
        Some((*transaction, self.leading[transaction].stamp))
    }
    /// What is known for a request: nothing before all that was asked for is answered.
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
    /// What others have said that its names stand for.
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
    /// Whether a request is to be begun again, but not yet.
    pub fn is_put_off(&self, request: (ClientId, u64), now: Time) -> bool {
        self.put_off
            .get(&request)
            .is_some_and(|(_, until)| now < *until)
    }
    /// A request becomes a transaction, which has these names and this inode of its own rank.
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
    /// It needs this of another rank.
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
    /// A participant has answered.
    pub fn on_fact(&mut self, now: Time, rank: Rank, transaction: Ino, index: u8, fact: FsFact) {
        let Some(leading) = self.leading.get_mut(&transaction) else {
            // One that was given up while it was being prepared.
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
    /// Another transaction has something that a request needs: it is begun again a little later.
    pub fn put_off(&mut self, now: Time, request: (ClientId, u64)) {
        let times = self.put_off.get(&request).map_or(0, |(times, _)| *times) + 1;
        let wait = BUSY * (1 + u32::from(self.rank.0)) * times.min(20);
        self.put_off.insert(request, (times, now + wait));
        self.give_up(request);
    }
    /// A request has ended without having changed anything, or its client has gone: nothing of it
    /// happens.
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
    /// A client's requests are forgotten.
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
    /// A request was answered: it is not begun again.
    pub fn end_request(&mut self, request: (ClientId, u64)) {
        self.put_off.remove(&request);
    }
    /// A request is done, in batch `batch`: whom to tell, if it was a transaction.
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
    /// A participant has it in its journal; what to journal, if all have.
    pub fn on_decided(&mut self, rank: Rank, transaction: Ino) -> Option<Progress> {
        let commitment = self.commitments.get_mut(&transaction)?;
        commitment.ranks.remove(&rank);
        if !commitment.ranks.is_empty() {
            return None;
        }
        self.commitments.remove(&transaction);
        Some(Progress::Told { transaction })
    }
    /// A participant asks what became of it.
    pub fn on_inquire(&mut self, rank: Rank, transaction: Ino, safe: u64) {
        if self.leading.contains_key(&transaction) {
            return;
        }
        match self.commitments.get(&transaction) {
            Some(commitment) if commitment.batch < safe => {
                self.say(rank, transaction, FsStep::Decide { commit: true });
            }
            // It is told when that is safe.
            Some(_) => {}
            None => self.say(rank, transaction, FsStep::Decide { commit: false }),
        }
    }

    // ── as a participant ────────────────────────────────────────────────────────────────

    /// A part that was prepared before.
    pub fn part(&self, transaction: Ino, index: u8) -> Option<&Part> {
        self.prepared.get(&transaction)?.parts.get(&index)
    }
    /// A part is prepared from now on: what it is about is locked.
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
    /// The parts of a transaction that is to be decided; `None`: that was done, or it was never
    /// prepared.
    pub fn parts(&self, transaction: Ino) -> Option<impl Iterator<Item = &Part>> {
        Some(
            self.prepared
                .get(&transaction)
                .filter(|of| of.ended.is_none())?
                .parts
                .values(),
        )
    }
    /// It is decided: batch `batch` says so, with what it changes.
    pub fn end(&mut self, transaction: Ino, batch: u64) {
        if let Some(of) = self.prepared.get_mut(&transaction) {
            of.ended = Some(batch);
        }
        self.unlock(transaction);
    }
    /// It is decided, or its leader has given it up: a part of it that comes late is not prepared.
    pub fn note_over(&mut self, transaction: Ino) {
        if self.over.len() >= OVER_MAX {
            self.over.pop_front();
        }
        self.over.push_back(transaction);
    }
    pub fn is_over(&self, transaction: Ino) -> bool {
        self.over.contains(&transaction)
    }
    /// Whether it has ended here, which is not safe yet.
    pub fn is_ending(&self, transaction: Ino) -> bool {
        self.prepared
            .get(&transaction)
            .is_some_and(|of| of.ended.is_some())
    }

    // ── journal and time ────────────────────────────────────────────────────────────────

    /// What the journal says, in order.
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
    /// Others' that are prepared and not decided here.
    pub fn undecided(&self) -> impl Iterator<Item = (Ino, Rank)> {
        self.prepared
            .iter()
            .map(|(transaction, of)| (*transaction, of.leader))
    }
    /// Whether this rank has decided that its own transaction happens, and others have not all
    /// heard of it.
    pub fn has_committed(&self, transaction: Ino) -> bool {
        self.commitments.contains_key(&transaction)
    }
    /// All of the journal was said: what is prepared still is locked.
    pub fn on_inherited(&mut self) {
        let parts = self.prepared.iter().flat_map(|(transaction, of)| {
            of.parts.values().map(|part| (*transaction, part.clone()))
        });
        let parts: Vec<(Ino, Part)> = parts.collect();
        parts
            .iter()
            .for_each(|(transaction, part)| self.lock_part(*transaction, part));
    }
    /// What the journal's head is to say, as far as batches below are safe: what is not was never
    /// prepared or committed, if this holder dies; what has ended is only over when that is
    /// safe.
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
    /// Says what is due: batches below `safe` are safe.
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
            // Its rank may have no server: others go on for a while with what it held.
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
    /// Whether nothing is undecided, or decided and not known to all.
    pub fn is_idle(&self) -> bool {
        self.leading.is_empty() && self.commitments.is_empty() && self.prepared.is_empty()
    }
    /// Other ranks may have other holders now: all that waits for them is said again.
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
    /// Whether a request is to be begun again.
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
