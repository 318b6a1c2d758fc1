//! Taking over: reads the journal from its beginning, and nothing else.
//!
//! For what a standby has followed ([`crate::follow`]), the checksum of each object is read, and
//! what was appended later. If a checksum differs, or an object is missing, everything is read as
//! if nothing had been followed, which finds any damage.

use super::*;
use crate::followed::Held;
use crate::journal::{JournalHead, READ_MAX};

/// Objects of the journal that are read at a time.
const READ_AT_ONCE: u64 = 4;

/// How far the journal has been read.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// What a standby holds of it and is not used yet.
    followed: Followed,
    /// The next object, and its first batch.
    object: u64,
    next: u64,
    batches: Vec<Batch>,
    /// All lower objects have been requested.
    asked: u64,
    /// Objects that arrived early, or are missing.
    arrived: BTreeMap<u64, Option<Done>>,
}

enum Read {
    All,
    Partly,
}
enum Unfit {
    /// What was followed differs from what is stored.
    Followed,
    /// This object is damaged where the next batch should be.
    Damaged(u64),
}

impl Reading {
    pub fn after(followed: Followed) -> Self {
        Self {
            followed,
            ..Self::default()
        }
    }

    /// Takes the objects that have arrived, in order.
    fn go_on(&mut self, lengths: &mut takeover::Lengths) -> Result<Read, Unfit> {
        while let Some(arrived) = self.arrived.remove(&self.object) {
            let Some(Done {
                results, payload, ..
            }) = arrived
            else {
                if self.followed.has_from(self.object) {
                    return Err(Unfit::Followed);
                }
                return Ok(Read::All);
            };
            let (at, before, bytes) = (self.object, self.next, payload.concat());
            if let Some(held) = self.followed.remove(at) {
                lengths.note(at, held.length() + bytes.len() as u64);
                let is_same = |reply: &SubReply| match reply {
                    SubReply::Checksum { crc, length } => held.is_same(*crc, *length),
                    _ => false,
                };
                if !results.iter().any(is_same)
                    || !held.go_on(&bytes, &mut self.next, &mut self.batches)
                {
                    return Err(Unfit::Followed);
                }
            } else {
                lengths.note(at, bytes.len() as u64);
                // An append is all or nothing: what is incomplete is damaged, and what follows it
                // was safe.
                if !journal::read(&bytes, &mut self.next, &mut self.batches) || self.next == before
                {
                    return Err(Unfit::Damaged(at));
                }
            }
            self.object += 1;
        }
        Ok(Read::Partly)
    }
}

/// Numbers that clients were told but that are in no batch come back with their resent requests.
#[nacre_types::planted]
fn first_serial(is_new: bool, serial: u64) -> u64 {
    if is_new { serial } else { serial + EARLY_MAX }
}

impl Mds {
    pub(super) fn read_head(&mut self) {
        let ops = vec![
            SubOp::AssertExists { exists: true },
            SubOp::Read {
                offset: 0,
                length: READ_MAX,
            },
        ];
        let operation = self.operation(&journal::head_name(self.config.rank), ops, Vec::new());
        self.queue.push_back((operation, Purpose::ReadHead));
    }
    /// The journal's beginning; `None`: its first batch.
    pub(super) fn on_head(&mut self, bytes: Option<&[u8]>) {
        let head = match bytes.map(JournalHead::from_bytes) {
            None => JournalHead {
                serial: Ino::SERIAL_MIN,
                ..JournalHead::default()
            },
            Some(Ok(head)) => head,
            Some(Err(_)) => {
                let name = journal::head_name(self.config.rank);
                self.phase = Phase::Ended(format!("its journal is damaged: object {name}"));
                return;
            }
        };
        self.first = head.first;
        self.writing.gone_below = head.gone_below;
        self.head = head;
        let Phase::Reading(reading) = &mut self.phase else {
            return;
        };
        reading
            .followed
            .cut_off(self.head.first, self.head.sequence);
        self.begin_reading();
    }

    fn begin_reading(&mut self) {
        let Phase::Reading(reading) = &mut self.phase else {
            return;
        };
        let (first, sequence) = (self.head.first, self.head.sequence);
        let followed = std::mem::take(&mut reading.followed);
        *reading = Reading {
            object: first,
            asked: first,
            next: sequence,
            ..Reading::after(followed)
        };
        self.read_journal();
    }
    /// What a standby followed differs from what is stored: everything is read.
    fn read_all(&mut self) {
        let Phase::Reading(reading) = &mut self.phase else {
            return;
        };
        reading.followed = Followed::default();
        self.read_no_more();
        self.begin_reading();
    }
    /// Outstanding reads of the journal are void: they were for less, or are after its end.
    fn read_no_more(&mut self) {
        self.under_way
            .retain(|_, purpose| !matches!(purpose, Purpose::Journal(_)));
        self.queue
            .retain(|(_, purpose)| !matches!(purpose, Purpose::Journal(_)));
    }

    /// Reads several objects at a time: the end is known when the first one is missing.
    fn read_journal(&mut self) {
        let Phase::Reading(reading) = &self.phase else {
            return;
        };
        if reading.arrived.values().any(Option::is_none) {
            return;
        }
        for number in reading.asked..reading.object + READ_AT_ONCE {
            let Phase::Reading(reading) = &mut self.phase else {
                return;
            };
            reading.asked = number + 1;
            let held = reading.followed.get(number).map(Held::length);
            let name = journal::object_name(self.config.rank, number);
            let mut ops = vec![SubOp::AssertExists { exists: true }];
            ops.extend(held.map(|length| SubOp::Checksum { offset: 0, length }));
            ops.push(SubOp::Read {
                offset: held.unwrap_or(0),
                length: READ_MAX,
            });
            let operation = self.operation(&name, ops, Vec::new());
            self.queue.push_back((operation, Purpose::Journal(number)));
        }
    }

    /// Handles an object of the journal that was read or is missing.
    pub(super) fn on_journal(&mut self, at: u64, there: Option<Done>) {
        let Phase::Reading(reading) = &mut self.phase else {
            return;
        };
        reading.arrived.insert(at, there);
        match reading.go_on(&mut self.lengths) {
            Ok(Read::Partly) => self.read_journal(),
            Ok(Read::All) => {
                self.read_no_more();
                self.replay();
            }
            Err(Unfit::Followed) => self.read_all(),
            Err(Unfit::Damaged(object)) => {
                let (name, next) = (journal::object_name(self.config.rank, object), reading.next);
                self.phase = Phase::Ended(format!(
                    "its journal is damaged: object {name}, batch {next}"
                ));
            }
        }
    }

    pub(super) fn replay(&mut self) {
        let Phase::Reading(reading) = std::mem::replace(&mut self.phase, Phase::Live) else {
            return;
        };
        let Reading {
            object,
            next,
            batches,
            ..
        } = reading;
        let JournalHead {
            mut serial,
            clients,
            answers,
            stale,
            writers,
            transactions,
            fenced,
            ..
        } = std::mem::take(&mut self.head);
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
        fenced
            .into_iter()
            .for_each(|fenced| self.inherit_fenced(fenced));
        for batch in batches {
            self.writers.read(&batch);
            serial = serial.max(batch.serial);
            for known in batch.clients {
                self.inherit_client(known, batch.sequence);
            }
            for answered in batch.answers {
                self.inherit_answer(answered, batch.sequence);
            }
            batch
                .fenced
                .into_iter()
                .for_each(|fenced| self.inherit_fenced(fenced));
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
        let serial = first_serial(is_new, serial);
        self.journal = Journal::behind(
            next,
            object,
            serial,
            self.config.limits.journal_object_bytes,
        );
        // The next holder must see from where on this one assigned numbers, or both would assign
        // the same.
        self.since = self.journal.announce();
        self.hurry();
        self.caps.number_from(self.since << 24);
        self.delegations.number_from(self.since << 24);
        self.expected = self.clients_to_await();
        self.quiet_until = self.now + GRACE;
        self.tells_first = true;
        self.probe_forgotten();
        self.writing.ended = self.now;
        let strays = Ino::strays(self.config.rank);
        self.wanted = std::iter::once(strays)
            .chain(stale)
            .map(|dir| (dir, 0))
            .collect();
        self.try_again = true;
    }

    fn inherit_client(
        &mut self,
        Known {
            client,
            instance,
            here,
        }: Known,
        since: u64,
    ) {
        self.sessions.remove(&client);
        self.forget_fenced(client);
        if here {
            self.sessions.insert(
                client,
                Session {
                    instance,
                    since,
                    heard: self.now,
                    ..Session::default()
                },
            );
        }
    }
    /// Those whose resent requests must be executed before others'.
    #[nacre_types::planted]
    fn clients_to_await(&self) -> BTreeSet<ClientId> {
        self.sessions.keys().copied().collect()
    }
    #[nacre_types::planted]
    fn inherit_answer(&mut self, answered: Answered, batch: u64) {
        let Answered {
            client,
            instance,
            safe_below,
            reply,
        } = answered;
        let Some(session) = self
            .sessions
            .get_mut(&client)
            .filter(|session| session.instance == instance)
        else {
            return;
        };
        session.safe_below = session.safe_below.max(safe_below);
        let kept = Kept {
            reply,
            batch: Some(batch),
            after: sharing::After::default(),
            inherited: true,
        };
        session.answers.insert(kept.reply.number, kept);
    }
}
