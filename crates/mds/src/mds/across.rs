//! Name changes across ranks ([`crate::transactions`]): those led by this rank, and its parts in
//! those of others.

use super::*;
use crate::evaluate::evaluate_part;
use crate::transactions::Part;
use nacre_wire::msg::transaction::{FsFact, FsPart, FsStep};

/// Most numbers assigned to transactions without a batch.
const SERIALS_UNTOLD: u64 = 1 << 12;

/// A part requested by another rank, before it is prepared.
#[derive(Debug)]
struct Asked {
    leader: Rank,
    transaction: Ino,
    index: u8,
    stamp: Stamp,
    part: FsPart,
}

/// The result of a part, until it may be sent.
#[derive(Debug)]
struct Ready {
    after: sharing::After,
    leader: Rank,
    transaction: Ino,
    index: u8,
    fact: FsFact,
}

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Across {
    asked: Vec<Asked>,
    ready: Vec<Ready>,
    /// Decided by their leaders, but not executed yet.
    decided: Vec<(Ino, bool)>,
}

impl Across {
    /// Names and inodes of parts to be prepared or executed.
    pub fn wanted<'a>(
        &'a self,
        transactions: &'a Transactions,
        names: &mut Vec<(Ino, &'a Name)>,
        inos: &mut Vec<Ino>,
    ) {
        let decided = self
            .decided
            .iter()
            .filter_map(|(transaction, _)| transactions.parts(*transaction));
        let parts = decided.flatten().map(|part| &part.part);
        for part in parts.chain(self.asked.iter().map(|asked| &asked.part)) {
            match part {
                FsPart::Link { ino, .. } | FsPart::Unlink { ino, .. } => inos.push(*ino),
                FsPart::Leave { dir, name } => names.push((*dir, name)),
                FsPart::Make { .. } => {}
            }
        }
    }
}

impl Mds {
    /// Handles a message from the holder of another rank.
    pub fn on_transaction(&mut self, from: Rank, transaction: Ino, step: FsStep) {
        let (mine, of_leader) = (
            self.config.rank,
            matches!(step, FsStep::Prepare { .. } | FsStep::Decide { .. }),
        );
        if !self.is_live()
            || from == mine
            || transaction.rank() != if of_leader { from } else { mine }
        {
            return;
        }
        self.try_again = true;
        match step {
            FsStep::Prepare { index, stamp, part } => {
                let is_same = |other: Ino, at: u8| (other, at) == (transaction, index);
                let is_known = self.transactions.is_over(transaction)
                    || self
                        .across
                        .asked
                        .iter()
                        .any(|asked| is_same(asked.transaction, asked.index))
                    || self
                        .across
                        .ready
                        .iter()
                        .any(|ready| is_same(ready.transaction, ready.index));
                if !is_known {
                    self.across.asked.push(Asked {
                        leader: from,
                        transaction,
                        index,
                        stamp,
                        part,
                    });
                }
            }
            FsStep::Prepared { index, fact } => {
                self.transactions
                    .on_fact(self.now, from, transaction, index, fact);
            }
            FsStep::Decide { commit } => {
                self.across
                    .asked
                    .retain(|asked| asked.transaction != transaction);
                if self.transactions.parts(transaction).is_some() {
                    if !self
                        .across
                        .decided
                        .iter()
                        .any(|(other, _)| *other == transaction)
                    {
                        self.across.decided.push((transaction, commit));
                    }
                } else if !self.transactions.is_ending(transaction) {
                    if !self.transactions.is_over(transaction) {
                        self.transactions.note_over(transaction);
                    }
                    if commit {
                        self.transactions.say(from, transaction, FsStep::Decided {});
                    }
                }
            }
            FsStep::Decided {} => {
                if let Some(progress) = self.transactions.on_decided(from, transaction) {
                    self.journal.push_progress(progress);
                }
            }
            FsStep::Inquire {} => {
                self.transactions
                    .on_inquire(from, transaction, self.journal.safe())
            }
        }
    }
    /// Whether something waits for other ranks.
    #[must_use]
    pub fn waits_for_ranks(&self) -> bool {
        !self.transactions.is_idle()
    }
    /// The holders of the other ranks are known again, and may have changed.
    pub fn on_other_holders(&mut self) {
        self.transactions.say_again();
    }
    /// Messages for the holders of other ranks: the rank, the transaction and the step.
    pub fn take_transactions(&mut self) -> Vec<(Rank, Ino, FsStep)> {
        self.transactions.take_said()
    }

    // ── requests ────────────────────────────────────────────────────────────────────────

    /// Whether a request has to wait for a transaction before it is evaluated: for another rank's
    /// that locks something it names, or for its own.
    pub(super) fn waits_for_transaction(&mut self, client: ClientId, request: &FsRequest) -> bool {
        let key = (client, request.number);
        if self.transactions.is_put_off(key, self.now) {
            return true;
        }
        let own = self
            .transactions
            .of(key)
            .map(|(transaction, _)| transaction);
        if own.is_none() && (self.transactions.locks_nothing() || self.may_see_all(&request.call)) {
            return false;
        }
        let all = &self.transactions;
        let (call, has_ino) = (&request.call, |ino| all.has_ino(ino, own));
        // What names refer to, here and elsewhere: it may be about to arrive, and not be found yet.
        let is_locked = call.inos().any(has_ino)
            || self.named_by(call).any(has_ino)
            || all.inos_of(key).any(has_ino)
            || call.names().any(|(dir, name)| all.has_name(dir, name, own))
            || matches!(call, FsCall::List { dir, .. } if all.has_name_in(*dir, own));
        self.put_off_if(is_locked, own, key)
    }
    /// The same after evaluation, when its effects are known.
    pub(super) fn rests_on_transaction(
        &mut self,
        client: ClientId,
        request: &FsRequest,
        outcome: &Outcome,
    ) -> bool {
        let key = (client, request.number);
        let own = self
            .transactions
            .of(key)
            .map(|(transaction, _)| transaction);
        if self.transactions.locks_nothing() || self.may_see_all(&request.call) {
            return false;
        }
        let all = &self.transactions;
        let has = |ino| all.has_ino(ino, own) || all.has_name_in(ino, own);
        // A directory to be removed, or that cannot be: its contents may be about to change.
        let is_locked = self.named_by(&request.call).any(has)
            || outcome.answer.nodes().any(|node| has(node.inode.ino))
            || outcome.changes.iter().any(|change| match change {
                Change::Set {
                    dir, name, entry, ..
                } => {
                    all.has_ino(*dir, own)
                        || all.has_ino(entry.ino(), own)
                        || all.has_name(*dir, name, own)
                }
                Change::Remove { dir, name, .. } => {
                    all.has_ino(*dir, own) || all.has_name(*dir, name, own)
                }
                Change::End { dir } => has(*dir),
                Change::Begin { .. } | Change::Head { .. } => false,
            });
        self.put_off_if(is_locked, own, key)
    }
    /// Whether a call only reads, and nothing here may have already happened at another rank.
    fn may_see_all(&self, call: &FsCall) -> bool {
        !call.is_change() && !self.transactions.has_others()
    }
    /// The inodes that a call's names refer to, as far as they are in memory.
    fn named_by(&self, call: &FsCall) -> impl Iterator<Item = Ino> {
        call.names()
            .filter_map(|(dir, name)| match self.tree.find(dir, name) {
                Found::Entry(entry) => Some(entry.ino()),
                Found::Nothing | Found::Unknown(..) => None,
            })
    }
    /// A transaction never waits for another one, which might wait for it.
    fn put_off_if(&mut self, is_locked: bool, own: Option<Ino>, key: (ClientId, u64)) -> bool {
        if is_locked && own.is_some() {
            self.transactions.put_off(self.now, key);
        }
        is_locked
    }

    /// A request needs something from another rank.
    pub(super) fn lead(
        &mut self,
        client: ClientId,
        request: &FsRequest,
        stamp: Stamp,
        rank: Rank,
        mut part: FsPart,
    ) {
        if let FsPart::Link { place, .. } = &mut part {
            place.clone_from(&request.place);
        }
        let key = (client, request.number);
        let transaction = match self.transactions.of(key) {
            Some((transaction, _)) => transaction,
            None => {
                let transaction = Ino::given(self.config.rank, self.journal.serial());
                self.journal.take_serial();
                if self.journal.serial().is_multiple_of(SERIALS_UNTOLD) {
                    // The next holder of the rank must know approximately how many were assigned,
                    // even if none of them is used.
                    self.journal.announce();
                }
                let mine = self.config.rank;
                let names = request.call.names().filter(|(dir, _)| dir.rank() == mine);
                let names: Vec<(Ino, Name)> =
                    names.map(|(dir, name)| (dir, name.clone())).collect();
                // The directory that moves to another rank must stay unchanged.
                let is_pin = matches!(request.call, FsCall::Pin { .. });
                let ino = self.named_by(&request.call).next().filter(|_| is_pin);
                self.transactions
                    .begin(self.now, transaction, key, stamp, names.into_iter(), ino);
                transaction
            }
        };
        self.transactions.ask(self.now, transaction, rank, part);
    }

    // ── parts of others ─────────────────────────────────────────────────────────────────

    /// Executes what was decided, and prepares what can be prepared.
    pub(super) fn take_part(&mut self) {
        for (transaction, commit) in std::mem::take(&mut self.across.decided) {
            if !self.decide(transaction, commit) {
                self.across.decided.push((transaction, commit));
            }
        }
        if self.is_quiet() || self.has_again() || self.journal.is_full() || self.is_journal_long() {
            return;
        }
        for asked in std::mem::take(&mut self.across.asked) {
            if let Some(asked) = self.prepare(asked) {
                self.across.asked.push(asked);
            }
        }
    }

    /// The result of a part, or what must be read first.
    fn evaluate_part(&self, part: &FsPart, stamp: Stamp, ino: Ino) -> Verdict {
        let setting = Setting {
            rank: self.config.rank,
            now: stamp,
            ino,
            layout: self.config.layout,
            // An inode that is about to get a name, or to lose its last one, must be kept.
            is_open: &|ino| self.caps.is_open(ino) || self.transactions.has_ino(ino, None),
            again: false,
            is_settling: &|_| false,
            facts: &[],
            rooms: self.caps.rooms(),
            room: (0, 0),
        };
        evaluate_part(&self.tree, part, &setting)
    }

    /// Prepares a part; returns it if something must be read before.
    fn prepare(&mut self, asked: Asked) -> Option<Asked> {
        let Asked {
            leader,
            transaction,
            index,
            stamp,
            part,
        } = &asked;
        let (leader, transaction, index) = (*leader, *transaction, *index);
        let inos = match part {
            FsPart::Link { ino, .. } | FsPart::Unlink { ino, .. } => BTreeSet::from([*ino]),
            FsPart::Leave { dir, name } => self
                .stands_for(*dir, name)
                .into_iter()
                .chain([*dir])
                .collect(),
            FsPart::Make { .. } => BTreeSet::new(),
        };
        if self.take_back(None, &inos) {
            // Its client still has to report what it did there.
            return Some(asked);
        }
        if self.is_taken(part, Ino::TOP, transaction) {
            // Changes that are not executed yet may be missing.
            self.transactions.say(
                leader,
                transaction,
                FsStep::Prepared {
                    index,
                    fact: FsFact::Busy {},
                },
            );
            return None;
        }
        let known = self.transactions.part(transaction, index).cloned();
        self.note_place_of(part);
        let given = Ino::given(self.config.rank, self.journal.serial());
        let ino = known.as_ref().map_or(given, |known| known.ino);
        let outcome = match self.evaluate_part(part, *stamp, ino) {
            Verdict::Done(outcome) => outcome,
            Verdict::Wants(missing) => match self.seek(missing) {
                Ok(()) => return Some(asked),
                Err(errno) => {
                    let after = sharing::After::default();
                    let fact = FsFact::Failed { errno };
                    self.across.ready.push(Ready {
                        after,
                        leader,
                        transaction,
                        index,
                        fact,
                    });
                    self.release = true;
                    return None;
                }
            },
            Verdict::Busy(_) | Verdict::Crowded(..) | Verdict::Across(..) => return Some(asked),
        };
        let made_or_changed = outcome
            .answer
            .nodes()
            .next()
            .map_or(Ino::TOP, |node| node.inode.ino);
        let fact = match outcome.answer {
            FsAnswer::Failed { errno } => FsFact::Failed { errno },
            FsAnswer::Elsewhere { ino, kind } => FsFact::Elsewhere { ino, kind },
            FsAnswer::Node { node, .. } => FsFact::Node { node },
            _ => FsFact::Failed { errno: EIO },
        };
        if self.is_taken(part, made_or_changed, transaction) {
            self.transactions.say(
                leader,
                transaction,
                FsStep::Prepared {
                    index,
                    fact: FsFact::Busy {},
                },
            );
            return None;
        }
        let named = match part {
            FsPart::Link { ino, .. } | FsPart::Unlink { ino, .. } => *ino,
            FsPart::Leave { dir, .. } => *dir,
            FsPart::Make { .. } => Ino::links(self.config.rank),
        };
        let mut after = self.rests_on_inos(None, &BTreeSet::from([named, made_or_changed]));
        let failed = matches!(fact, FsFact::Failed { .. });
        if !failed && known.is_none() {
            if outcome.took_ino {
                self.journal.take_serial();
            }
            // Clients must drop what is about to change: it is shown again after the decision.
            for change in &outcome.changes {
                self.shares
                    .on_change(None, change, &self.tree, &mut after.waits);
            }
            let batch = self.journal.number();
            let mut part = Part {
                stamp: *stamp,
                part: part.clone(),
                ino: made_or_changed,
                batch,
            };
            if let FsPart::Link { ino, place } = &mut part.part {
                // Where the next holder of the rank, which may have to execute it, can find it.
                *place = self.tree.place(*ino).map(|(dir, name)| FsPlace {
                    dir,
                    name: name.clone(),
                });
            }
            let progress = self
                .transactions
                .prepare(self.now, leader, transaction, index, part);
            after.batch = after.batch.max(Some(self.journal.push_progress(progress)));
            self.appending.hurry(&self.journal);
        }
        self.across.ready.push(Ready {
            after,
            leader,
            transaction,
            index,
            fact,
        });
        self.release = true;
        None
    }
    fn note_place_of(&mut self, part: &FsPart) {
        if let FsPart::Link {
            ino,
            place: Some(place),
        } = part
        {
            self.note_place(*ino, Some(place));
        }
    }
    /// Whether another transaction locks what a part concerns.
    fn is_taken(&self, part: &FsPart, ino: Ino, transaction: Ino) -> bool {
        let (all, own) = (&self.transactions, Some(transaction));
        match part {
            FsPart::Link { ino, .. } => all.has_ino(*ino, own),
            FsPart::Unlink { ino, .. } => all.has_ino(*ino, own) || all.has_name_in(*ino, own),
            FsPart::Leave { dir, name } => {
                all.has_ino(*dir, own) || all.has_name(*dir, name, own) || all.has_ino(ino, own)
            }
            FsPart::Make { .. } => false,
        }
    }
    /// Sends the results of parts that may be sent now.
    pub(super) fn release_ready(&mut self) {
        let safe = self.journal.safe();
        for ready in std::mem::take(&mut self.across.ready) {
            if ready.after.is_over(safe, &self.shares) {
                let Ready {
                    leader,
                    transaction,
                    index,
                    fact,
                    ..
                } = ready;
                self.transactions
                    .say(leader, transaction, FsStep::Prepared { index, fact });
            } else {
                self.across.ready.push(ready);
            }
        }
    }

    /// Executes its leader's decision; returns whether that was possible now.
    fn decide(&mut self, transaction: Ino, commit: bool) -> bool {
        let Some(parts) = self.transactions.parts(transaction) else {
            return true;
        };
        let parts: Vec<Part> = parts.cloned().collect();
        if commit && !parts.iter().all(|part| self.is_here(part)) {
            return false;
        }
        let mut batch = self
            .journal
            .push_progress(crate::journal::Progress::Ended { transaction });
        for part in parts.iter().filter(|_| commit) {
            let Verdict::Done(outcome) = self.evaluate_part(&part.part, part.stamp, part.ino)
            else {
                continue;
            };
            debug_assert!(
                !outcome.changes.is_empty(),
                "{part:?} was prepared, and is {:?}",
                outcome.answer
            );
            let mut waits = Vec::new();
            for change in &outcome.changes {
                self.shares.on_change(None, change, &self.tree, &mut waits);
            }
            batch = self.change_unasked(outcome.changes, &waits);
        }
        self.transactions.end(transaction, batch);
        self.transactions.note_over(transaction);
        self.across
            .ready
            .retain(|ready| ready.transaction != transaction);
        self.try_again = true;
        true
    }
    /// Whether everything that a part changes is in memory; if not, it is read.
    fn is_here(&mut self, part: &Part) -> bool {
        self.note_place_of(&part.part);
        match self.evaluate_part(&part.part, part.stamp, part.ino) {
            Verdict::Done(_) => true,
            Verdict::Wants(missing) => {
                // What cannot be read now stays prepared: no part is executed without the others.
                let _ = self.seek(missing);
                false
            }
            Verdict::Busy(_) | Verdict::Crowded(..) | Verdict::Across(..) => false,
        }
    }
}
