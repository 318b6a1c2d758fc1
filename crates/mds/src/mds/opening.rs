//! Taking over: the journal is read from its beginning, and nothing else.

use super::*;
use crate::journal::JournalHead;

impl Mds {
    pub(super) fn read_head(&mut self) {
        let ops = vec![SubOp::AssertExists { exists: true }, SubOp::Read { offset: 0, length: 32 << 20 }];
        let operation = self.operation(&journal::head_name(self.config.rank), ops, Vec::new());
        self.queue.push_back((operation, Purpose::ReadHead));
    }
    /// Where the journal begins; `None`: with its first batch.
    pub(super) fn on_head(&mut self, bytes: Option<&[u8]>) {
        let head = match bytes.map(JournalHead::from_bytes) {
            None => JournalHead { serial: Ino::SERIAL_MIN, ..JournalHead::default() },
            Some(Ok(head)) => head,
            Some(Err(_)) => {
                let name = journal::head_name(self.config.rank);
                self.phase = Phase::Ended(format!("its journal is damaged: object {name}"));
                return;
            }
        };
        let Phase::Reading { object, next, .. } = &mut self.phase else { return };
        (*object, *next) = (head.first, head.sequence);
        self.first = head.first;
        self.writing.gone_below = head.gone_below;
        self.head = head;
        self.read_journal(self.first);
    }

    fn read_journal(&mut self, object: u64) {
        let name = journal::object_name(self.config.rank, object);
        let ops = vec![SubOp::AssertExists { exists: true }, SubOp::Read { offset: 0, length: 32 << 20 }];
        let operation = self.operation(&name, ops, Vec::new());
        self.queue.push_back((operation, Purpose::Journal(object)));
    }

    pub(super) fn on_journal(&mut self, at: u64, bytes: &[u8]) {
        let Phase::Reading { object, next, batches } = &mut self.phase else { return };
        self.lengths.note(at, bytes.len() as u64);
        *object = at + 1;
        let before = *next;
        // An append happens as a whole or not at all: what is not whole is damaged, and what comes behind it was safe.
        if !journal::read(bytes, next, batches) || *next == before {
            let name = journal::object_name(self.config.rank, at);
            self.phase = Phase::Ended(format!("its journal is damaged: object {name}, batch {next}", next = *next));
            return;
        }
        self.read_journal(at + 1);
    }

    pub(super) fn replay(&mut self) {
        let Phase::Reading { object, next, batches } = std::mem::replace(&mut self.phase, Phase::Live) else { return };
        let JournalHead { mut serial, clients, answers, stale, writers, transactions, fenced, .. } =
            std::mem::take(&mut self.head);
        let is_new = next == 0;
        for known in clients {
            self.inherit_client(known, 0);
        }
        for writer in writers {
            self.writers.apply(writer, 0);
        }
        for answered in answers {
            self.inherit_answer(answered, 0);
        }
        for progress in transactions {
            self.transactions.inherit(progress, 0);
        }
        fenced.into_iter().for_each(|fenced| self.inherit_fenced(fenced));
        for batch in batches {
            self.writers.read(&batch);
            serial = serial.max(batch.serial);
            for known in batch.clients {
                self.inherit_client(known, batch.sequence);
            }
            for answered in batch.answers {
                self.inherit_answer(answered, batch.sequence);
            }
            batch.fenced.into_iter().for_each(|fenced| self.inherit_fenced(fenced));
            for progress in batch.transactions {
                self.transactions.inherit(progress, batch.sequence);
            }
            for change in batch.changes {
                self.removing.see(&change, self.config.rank);
                if let Change::End { .. } = &change {
                    self.dirty.note(&change);
                }
                self.overlay.apply(change);
            }
        }
        self.transactions.on_inherited();
        // Numbers that were told and are in no batch come with what is sent again.
        let serial = if is_new || mutant(Mutant::NumbersReused) { serial } else { serial + EARLY_MAX };
        self.journal = Journal::behind(next, object, serial, self.config.limits.journal_object_bytes);
        // The next holder is to see from where on this one told numbers, or both would tell the same.
        self.since = self.journal.announce();
        self.hurry();
        self.caps.number_from(self.since << 24);
        self.delegations.number_from(self.since << 24);
        self.expected = self.sessions.keys().copied().filter(|_| !mutant(Mutant::ClientsNotAwaited)).collect();
        self.quiet_until = self.now + GRACE;
        self.tells_first = true;
        self.probe_forgotten();
        self.writing.ended = self.now;
        let strays = Ino::strays(self.config.rank);
        self.wanted = std::iter::once(strays).chain(stale).map(|dir| (dir, 0)).collect();
        self.try_again = true;
    }

    fn inherit_client(&mut self, Known { client, instance, here }: Known, since: u64) {
        self.sessions.remove(&client);
        self.forget_fenced(client);
        if here {
            self.sessions.insert(client, Session { instance, since, heard: self.now, ..Session::default() });
        }
    }
    fn inherit_answer(&mut self, answered: Answered, batch: u64) {
        let Answered { client, instance, safe_below, reply } = answered;
        let session = self.sessions.get_mut(&client).filter(|session| session.instance == instance);
        let Some(session) = session.filter(|_| !mutant(Mutant::AnswersForgotten)) else { return };
        session.safe_below = session.safe_below.max(safe_below);
        let kept = Kept { reply, batch: Some(batch), after: sharing::After::default(), inherited: true };
        session.answers.insert(kept.reply.number, kept);
    }
}
