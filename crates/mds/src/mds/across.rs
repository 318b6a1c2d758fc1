//! Changes of names of several ranks ([`crate::transactions`]): what this rank leads, and its part
//! in those of others.

use super::*;
use crate::evaluate::evaluate_part;
use crate::transactions::Part;
use nacre_wire::msg::transaction::{FsFact, FsPart, FsStep};

/// So many numbers are given to transactions, at most, without a batch.
const SERIALS_UNTOLD: u64 = 1 << 12;

/// A part that another rank asks for, before it is prepared.
#[derive(Debug)]
struct Asked {
    leader: Rank,
    transaction: Ino,
    index: u8,
    stamp: Stamp,
    part: FsPart,
}

/// What came of a part, until that may be said.
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
    /// Decided by their leaders, and not done yet.
    decided: Vec<(Ino, bool)>,
}

impl Across {
    /// Names and inodes of parts that are to be prepared or done.
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
    /// The holder of another rank says something.
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
    /// Who holds the other ranks is known again, and may be others.
    pub fn on_other_holders(&mut self) {
        self.transactions.say_again();
    }
    /// What is to be said to the holders of other ranks: to which, about which transaction.
    pub fn take_transactions(&mut self) -> Vec<(Rank, Ino, FsStep)> {
        self.transactions.take_said()
    }

    // ── requests ────────────────────────────────────────────────────────────────────────

    /// Whether a request has to wait for a transaction, before it is looked at: for others' that
    /// have what it names, or for its own.
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
        // What names stand for, here and elsewhere: it may be about to come, and not be found.
        let is_locked = call.inos().any(has_ino)
            || self.named_by(call).any(has_ino)
            || all.inos_of(key).any(has_ino)
            || call.names().any(|(dir, name)| all.has_name(dir, name, own))
            || matches!(call, FsCall::List { dir, .. } if all.has_name_in(*dir, own));
        self.put_off_if(is_locked, own, key)
    }
    /// The same, now that it is known what would come of it.
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
        // A directory that is to go, or cannot: what is in it may be about to change.
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
    /// Whether a call only looks, and nothing here may have happened already at another rank.
    fn may_see_all(&self, call: &FsCall) -> bool {
        !call.is_change() && !self.transactions.has_others()
    }
    /// What the names that a call is about stand for, as far as that is in memory.
    fn named_by(&self, call: &FsCall) -> impl Iterator<Item = Ino> {
        call.names()
            .filter_map(|(dir, name)| match self.tree.find(dir, name) {
                Found::Entry(entry) => Some(entry.ino()),
                Found::Nothing | Found::Unknown(..) => None,
            })
    }
    /// No transaction waits for another one: that might wait for it.
    fn put_off_if(&mut self, is_locked: bool, own: Option<Ino>, key: (ClientId, u64)) -> bool {
        if is_locked && own.is_some() {
            self.transactions.put_off(self.now, key);
        }
        is_locked
    }

    /// A request needs something of another rank.
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
                    // The next holder of the rank is to know about how many were given, also if
                    // none of them comes to anything.
                    self.journal.announce();
                }
                let mine = self.config.rank;
                let names = request.call.names().filter(|(dir, _)| dir.rank() == mine);
                let names: Vec<(Ino, Name)> =
                    names.map(|(dir, name)| (dir, name.clone())).collect();
                // The directory that becomes another rank's is to stay as it is.
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

    /// Does what was decided, and prepares what can be.
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

    /// What a part comes to, or what has to be read first.
    fn evaluate_part(&self, part: &FsPart, stamp: Stamp, ino: Ino) -> Verdict {
        let setting = Setting {
            rank: self.config.rank,
            now: stamp,
            ino,
            layout: self.config.layout,
            // One that is about to be given a name, or to lose its last one, is there.
            is_open: &|ino| self.caps.is_open(ino) || self.transactions.has_ino(ino, None),
            again: false,
            is_settling: &|_| false,
            facts: &[],
            rooms: self.caps.rooms(),
            room: (0, 0),
        };
        evaluate_part(&self.tree, part, &setting)
    }

    /// Prepares a part; it comes back if something has to be read before.
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
            // Its client has yet to say what it did there.
            return Some(asked);
        }
        if self.is_taken(part, Ino::TOP, transaction) {
            // What is not done yet may not be found.
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
            // No one keeps what is about to change: it is shown again when it is decided.
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
                // Where it is found by the next holder of the rank, which may have to do it.
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
    /// Whether another transaction has what a part is about.
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
    /// Says what came of parts, if that may be said now.
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

    /// Does what its leader has decided; whether that could be done now.
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
    /// Whether all that a part changes is in memory; else it is read.
    fn is_here(&mut self, part: &Part) -> bool {
        self.note_place_of(&part.part);
        match self.evaluate_part(&part.part, part.stamp, part.ino) {
            Verdict::Done(_) => true,
            Verdict::Wants(missing) => {
                // What cannot be read now stays prepared: no part is done without the others.
                let _ = self.seek(missing);
                false
            }
            Verdict::Busy(_) | Verdict::Crowded(..) | Verdict::Across(..) => false,
        }
    }
}
