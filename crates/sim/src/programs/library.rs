//! Clients that use four classes of the shipped library, `matrix`, `zlog`, `queue` and `refcount`,
//! under all faults (MAL-21, MAL-25, MAL-29).
//!
//! The sources are sent with the calls ([`SubOp::Eval`]), so what runs is what is shipped. Checked
//! with every answer:
//! 1. a matrix and its index agree, according to its own `verify` and to an operation without
//!    programs;
//! 2. a position of a zlog is written once: every reader gets, for ever, the entry whose write was
//!    acknowledged, and never a refused one;
//! 3. an entry that was enqueued is dequeued once, in order, and a queue is empty only if others
//!    may have taken everything;
//! 4. acknowledged references exist until they are released, and no longer.

use crate::plan::{MS, Plan};
use crate::rng::Rng;
use crate::workload::{Place, Turn, Workload, operation};
use bytes::Bytes;
use nacre_client::{Client, Completion, Done, Failure, OpId, Operation};
use nacre_policy::{errno, library};
use nacre_types::ObjectId;
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Number of rows and of columns.
const SIDE: u64 = 6;
const ENOSPC: u32 = 28;

/// Counters of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Cells set.
    pub cells: usize,
    /// Reads of matrices.
    pub looks: usize,
    /// Positions of zlogs whose entry is known.
    pub entries: usize,
    /// Entries taken from queues.
    pub dequeued: usize,
    /// References released.
    pub released: usize,
    /// Calls with unknown outcome.
    pub unknown: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cells,
            looks,
            entries,
            dequeued,
            released,
            unknown,
        } = self;
        write!(
            f,
            "{cells} cells set, {looks} looks at matrices, {entries} log entries, {dequeued} dequeued, "
        )?;
        write!(
            f,
            "{released} references given back, {unknown} calls of unknown end"
        )
    }
}

/// What all clients know.
#[derive(Debug, Default)]
pub struct Shelf {
    numbers: u64,
    cells: usize,
    /// When a cell was first set.
    made: Option<u64>,
    looks: usize,
    released: usize,
    unknown: usize,
    /// The entries of the log's positions, and since when each is known.
    log: BTreeMap<u64, (String, u64)>,
    /// Texts by what a client tried to do with them.
    tried: BTreeSet<String>,
    refused: BTreeSet<String>,
    /// Positions of the queue, and when they were acknowledged.
    queued: BTreeMap<String, (u64, u64)>,
    positions: BTreeSet<u64>,
    /// Attempts to dequeue that may have taken an entry.
    takes: usize,
    taken: BTreeSet<String>,
    /// For each: begun, ended, position.
    order: Vec<(u64, u64, u64)>,
    /// Since when each is held.
    held: BTreeMap<String, u64>,
    gone: BTreeMap<String, u64>,
}

impl Shelf {
    /// The counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let Self {
            cells,
            looks,
            released,
            unknown,
            ..
        } = *self;
        Counts {
            cells,
            looks,
            entries: self.log.len(),
            dequeued: self.taken.len(),
            released,
            unknown,
        }
    }

    fn text(&mut self) -> String {
        self.numbers += 1;
        let text = format!("text-{}", self.numbers);
        self.tried.insert(text.clone());
        text
    }

    /// Records the entry of a position of the log.
    fn logged(&mut self, position: u64, text: &str, now: u64) {
        assert!(
            self.tried.contains(text),
            "position {position} of the log holds {text:?}, which nobody wrote"
        );
        assert!(
            !self.refused.contains(text),
            "position {position} of the log holds {text:?}, which was refused"
        );
        let (before, _) = self
            .log
            .entry(position)
            .or_insert_with(|| (text.to_owned(), now));
        assert_eq!(before, text, "position {position} of the log was another");
    }

    fn taken(&mut self, text: String, begun: u64, now: u64) {
        assert!(
            self.tried.contains(&text),
            "the queue gave {text:?}, which nobody put there"
        );
        assert!(
            !self.refused.contains(&text),
            "the queue gave {text:?}, which was refused"
        );
        if let Some((position, _)) = self.queued.get(&text) {
            let later = self
                .order
                .iter()
                .find(|(_, ended, other)| *ended < begun && other > position);
            assert!(
                later.is_none(),
                "the queue gave {text:?} at {position} after {later:?}"
            );
            self.order.push((begun, now, *position));
        }
        assert!(
            self.taken.insert(text.clone()),
            "the queue gave {text:?} twice"
        );
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Doing {
    /// Creates an object; it may already exist.
    Make,
    Set,
    Verify,
    Look,
    Write(u64, String),
    Read(u64),
    Enqueue(String),
    /// This many entries certainly existed when it began.
    Dequeue(usize),
    Take(String),
    Give(String),
    List,
}

/// One client's calls.
#[derive(Debug, Default)]
pub struct Patron {
    current: Option<(OpId, Doing, u64, u64)>,
    /// References of its own.
    own: Vec<String>,
    next_at: u64,
}

fn object(class: &str) -> ObjectId {
    ObjectId::named(&format!("library-{class}"))
}

fn eval(class: &str, method: &str, input: String) -> Operation {
    let script = Bytes::from_static(
        library::class(class)
            .expect("a class of the library")
            .source
            .as_bytes(),
    );
    let input = Bytes::from(input);
    let op = SubOp::Eval {
        script: script.len() as u64,
        handler: method.into(),
        input: input.len() as u64,
    };
    let payload = [script, input]
        .into_iter()
        .filter(|piece| !piece.is_empty())
        .collect();
    operation(object(class), vec![op], payload)
}

impl Workload for Patron {
    type Records = Shelf;
    type Counts = Counts;

    fn new(plan: &Plan, place: &Place) -> Option<Self> {
        place.does(plan.library).then(Self::default)
    }
    fn next_at(&self, finished: bool) -> u64 {
        match &self.current {
            Some((.., give_up)) => *give_up,
            None if finished => u64::MAX,
            None => self.next_at,
        }
    }
    fn is_settled(&self, _: &Client, _: &Shelf) -> bool {
        self.current.is_none()
    }
    fn counts(shelf: &Shelf) -> Counts {
        shelf.counts()
    }

    fn advance(&mut self, turn: &mut Turn<'_>, shelf: &mut Shelf) {
        let now = turn.now;
        if self.next_at(turn.finished) > now {
            return;
        }
        if let Some((id, ..)) = &self.current {
            // Its completion will report an unknown outcome.
            turn.role.abandon(*id);
            return;
        }
        self.next_at = now + turn.rng.between(5 * MS, 120 * MS);
        let (doing, operation) = self.choose(now, shelf, turn.rng);
        if let Some(id) = turn.submit(operation) {
            match &doing {
                Doing::Dequeue(_) => shelf.takes += 1,
                // From now on it may be gone.
                Doing::Give(tag) => {
                    self.own.retain(|own| own != tag);
                    shelf.held.remove(tag);
                }
                _ => {}
            }
            let give_up = now + turn.rng.between(2_000 * MS, 12_000 * MS);
            self.current = Some((id, doing, now, give_up));
        }
    }

    fn on_completion(
        &mut self,
        ended: &Completion,
        turn: &mut Turn<'_>,
        shelf: &mut Shelf,
    ) -> bool {
        let Some((_, doing, begun, _)) = self.current.take_if(|(id, ..)| *id == ended.id) else {
            return false;
        };
        match &ended.result {
            Ok(Done {
                results, payload, ..
            }) => match &results[..] {
                [SubReply::Called { output, .. }] => {
                    let output = String::from_utf8(output.to_vec()).expect("it puts out text");
                    self.done(doing, output, begun, turn.now, shelf);
                }
                [SubReply::Data { .. }, SubReply::Entries { entries, .. }] => {
                    shelf.looks += 1;
                    agree(&payload.concat(), entries);
                }
                _ => assert_eq!(doing, Doing::Make, "{results:?}"),
            },
            Err(Failure::Refused(OpFailure::Method { errno, why, .. })) => {
                assert!(why.is_empty(), "{doing:?}: {why}");
                refused(&doing, *errno, begun, shelf);
                if matches!(doing, Doing::Dequeue(_)) {
                    shelf.takes -= 1;
                }
            }
            Err(Failure::Refused(OpFailure::Full {} | OpFailure::Expired {})) => match doing {
                Doing::Dequeue(_) => shelf.takes -= 1,
                Doing::Write(_, text) | Doing::Enqueue(text) | Doing::Take(text) => {
                    shelf.refused.insert(text);
                }
                _ => {}
            },
            Err(Failure::Refused(OpFailure::NotFound {})) if doing == Doing::Look => {}
            Err(failure) if failure.may_have_happened() => shelf.unknown += 1,
            Err(failure) => panic!("{doing:?}: {failure}"),
        }
        true
    }
}

impl Patron {
    fn choose(&self, now: u64, shelf: &mut Shelf, rng: &mut Rng) -> (Doing, Operation) {
        match rng.below(22) {
            0 => (
                Doing::Make,
                eval("matrix", "create", format!("{SIDE} {SIDE}")),
            ),
            1 => (Doing::Make, eval("queue", "init", "1000 100000".to_owned())),
            2 => (
                Doing::Make,
                operation(
                    object("refcount"),
                    vec![SubOp::Create { exclusive: false }],
                    vec![],
                ),
            ),
            3..=6 => {
                // Few values, so that index entries move within one.
                let cell = (rng.below(SIDE), rng.below(SIDE), rng.below(4) as i64 - 1);
                (
                    Doing::Set,
                    eval("matrix", "set", format!("{} {} {}", cell.0, cell.1, cell.2)),
                )
            }
            7 => (Doing::Verify, eval("matrix", "verify", String::new())),
            8 => {
                let omap = SubOp::OmapList {
                    after: Bytes::new(),
                    limit: 1000,
                };
                let ops = vec![
                    SubOp::Read {
                        offset: 0,
                        length: 1 << 20,
                    },
                    omap,
                ];
                (Doing::Look, operation(object("matrix"), ops, vec![]))
            }
            9..=11 => {
                let (position, text) = (rng.below(60), shelf.text());
                let input = format!("1 {position}\n{text}");
                (Doing::Write(position, text), eval("zlog", "write", input))
            }
            12 | 13 => {
                let position = rng.below(60);
                (
                    Doing::Read(position),
                    eval("zlog", "read", format!("1 {position}")),
                )
            }
            14 | 15 => {
                let text = shelf.text();
                (Doing::Enqueue(text.clone()), eval("queue", "enqueue", text))
            }
            16 | 17 => {
                let there = shelf
                    .queued
                    .values()
                    .filter(|(_, ended)| *ended < now)
                    .count();
                (
                    Doing::Dequeue(there),
                    eval("queue", "dequeue", String::new()),
                )
            }
            18 | 19 => {
                let tag = shelf.text();
                (Doing::Take(tag.clone()), eval("refcount", "get", tag))
            }
            20 if !self.own.is_empty() => {
                let tag = rng.pick(&self.own).clone();
                (Doing::Give(tag.clone()), eval("refcount", "put", tag))
            }
            _ => (Doing::List, eval("refcount", "read", String::new())),
        }
    }

    fn done(&mut self, doing: Doing, output: String, begun: u64, now: u64, shelf: &mut Shelf) {
        match doing {
            Doing::Make => {}
            Doing::Set => {
                shelf.cells += 1;
                shelf.made.get_or_insert(now);
            }
            Doing::Verify => shelf.looks += 1,
            Doing::Look => panic!("a look calls nothing"),
            Doing::Write(position, text) => {
                assert!(
                    shelf
                        .log
                        .get(&position)
                        .is_none_or(|(known, _)| *known == text),
                    "{text:?} was written to position {position} of the log, which holds {:?}",
                    shelf.log[&position]
                );
                shelf.logged(position, &text, now);
            }
            Doing::Read(position) => shelf.logged(position, &output, now),
            Doing::Enqueue(text) => {
                let position = output
                    .trim()
                    .parse()
                    .unwrap_or_else(|_| panic!("{output:?} is no position"));
                assert!(
                    shelf.positions.insert(position),
                    "two entries of the queue got {position}"
                );
                shelf.queued.insert(text, (position, now));
            }
            Doing::Dequeue(_) => shelf.taken(output, begun, now),
            Doing::Take(tag) => {
                shelf.held.insert(tag.clone(), now);
                self.own.push(tag);
            }
            Doing::Give(tag) => {
                shelf.released += 1;
                shelf.gone.insert(tag, now);
            }
            Doing::List => {
                let tags: BTreeSet<&str> = output.lines().collect();
                let lost = shelf
                    .held
                    .iter()
                    .find(|(tag, since)| **since < begun && !tags.contains(tag.as_str()));
                assert!(
                    lost.is_none(),
                    "reference {lost:?} is not there: {output:?}"
                );
                let back = shelf
                    .gone
                    .iter()
                    .find(|(tag, since)| **since < begun && tags.contains(tag.as_str()));
                assert!(
                    back.is_none(),
                    "reference {back:?} is there again: {output:?}"
                );
            }
        }
    }
}

/// Checks whether a method was allowed to refuse.
fn refused(doing: &Doing, number: u32, begun: u64, shelf: &mut Shelf) {
    let is = |name: i32| number == name.unsigned_abs();
    // A queue may be missing only if no enqueue had been acknowledged.
    let none = shelf.queued.values().all(|(_, ended)| *ended >= begun);
    let may = match doing {
        Doing::Make => is(errno::EEXIST),
        Doing::Set | Doing::Verify => {
            is(errno::ENOENT) && shelf.made.is_none_or(|made| made >= begun)
        }
        Doing::Write(_, text) => {
            shelf.refused.insert(text.clone());
            is(errno::EEXIST)
        }
        Doing::Read(position) => {
            is(errno::ENOENT)
                && shelf
                    .log
                    .get(position)
                    .is_none_or(|(_, since)| *since >= begun)
        }
        Doing::Enqueue(text) => {
            shelf.refused.insert(text.clone());
            (is(errno::ENOENT) && none) || number == ENOSPC
        }
        // Other clients took, or may have taken, no more than there were.
        Doing::Dequeue(there) => {
            (is(errno::ENODATA) && *there < shelf.takes) || (is(errno::ENOENT) && none)
        }
        Doing::Take(tag) => {
            shelf.refused.insert(tag.clone());
            is(errno::ENOENT) && shelf.held.values().all(|since| *since >= begun)
        }
        Doing::List => is(errno::ENOENT) && shelf.held.values().all(|since| *since >= begun),
        Doing::Give(_) | Doing::Look => false,
    };
    assert!(
        may,
        "{doing:?} was refused with error {number}, begun at {begun}"
    );
}

/// The index has a key for every cell that is not zero, and no other.
fn agree(data: &[u8], index: &[(Bytes, Bytes)]) {
    assert_eq!(
        data.len() as u64,
        SIDE * SIDE * 8,
        "a matrix has all its cells"
    );
    let cells = data
        .chunks_exact(8)
        .map(|cell| i64::from_le_bytes(cell.try_into().expect("eight bytes")));
    let key = |(at, value): (usize, i64)| {
        let (row, column) = (at as u64 / SIDE, at as u64 % SIDE);
        let sign = if value < 0 { '-' } else { '+' };
        (value != 0).then(|| format!("{sign}{:016}/{row:05}/{column:05}", value.unsigned_abs()))
    };
    let expected: BTreeSet<Bytes> = cells.enumerate().filter_map(key).map(Bytes::from).collect();
    let found: BTreeSet<Bytes> = index.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(found, expected, "a matrix and its index disagree");
}
