//! Clients that call methods of a class while its version changes, and checks of the results
//! (MAL-06, MAL-21, MAL-22, MAL-29, MAL-70).
//!
//! On each call the class (`scribe.lua`) checks whether its object's data, omap, attribute and
//! header agree. Also checked:
//! 1. no two acknowledged steps of an object got the same number; every look sees at least the
//!    steps acknowledged before it began, and at most those begun before it ended;
//! 2. a step that failed on purpose changed nothing (otherwise the next look and the numbers show
//!    it);
//! 3. of two calls on an object, one answered before the other began, the later one ran no older
//!    activation (MAL-06), and the text that each returned belongs to the version of its
//!    activation;
//! 4. whatever was begun ends after the faults have ended. That all replicas are identical is
//!    checked for all objects alike.

pub mod library;
pub mod random;

use crate::ledger::Ledger;
use crate::plan::{MS, Plan};
use crate::rng::Rng;
use crate::workload::{Place, Turn, Workload, operation};
use bytes::Bytes;
use nacre_client::{Client, Completion, Done, Failure, OpId, Operation};
use nacre_types::ObjectId;
use nacre_wire::map::programs::{PROGRAM_POOL, source_object};
use nacre_wire::map::{ProgramKind, SourceDigest};
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use nacre_wire::{ClusterMap, Payload};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Number of objects with the class's data.
const OBJECTS: u64 = 3;
const ONE: &str = include_str!("scribe.lua");
const CLASS: ProgramKind = ProgramKind::Class {};

/// The class's name.
pub const NAME: &str = "scribe";

/// The source of a version, 1 or 2.
#[must_use]
pub fn source(version: u32) -> String {
    if version == 1 {
        ONE.to_owned()
    } else {
        ONE.replace("VERSION = \"one\"", "VERSION = \"two\"")
    }
}

fn digest(version: u32) -> SourceDigest {
    SourceDigest(*blake3::hash(source(version).as_bytes()).as_bytes())
}

fn scribe(object: u64) -> ObjectId {
    ObjectId::named(&format!("scribe-{object}"))
}

#[derive(Debug)]
struct Call {
    begun: u64,
    ended: u64,
    activation: u64,
}

#[derive(Debug, Default)]
struct Object {
    calls: Vec<Call>,
    /// Acknowledged steps by number: begun and ended.
    steps: BTreeMap<u64, (u64, u64)>,
    /// When steps with unknown outcome were begun.
    unknown: Vec<u64>,
    /// For each: begun, ended, number seen.
    looks: Vec<(u64, u64, u64)>,
}

/// Counters of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Steps that were acknowledged.
    pub steps: usize,
    /// Steps that failed on purpose.
    pub failed: usize,
    /// Activations that ran.
    pub activations: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} steps of programs ({} failed on purpose, {} activations)",
            self.steps, self.failed, self.activations
        )
    }
}

/// What all clients record.
#[derive(Debug, Default)]
pub struct Book {
    /// Versions whose sources are stored.
    stored: BTreeSet<u32>,
    objects: BTreeMap<u64, Object>,
    failed: usize,
    /// The text returned by each activation.
    spoke: BTreeMap<u64, String>,
}

impl Book {
    /// Whether all sources are stored: the class can be installed.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        self.stored.len() == 2
    }
    /// The counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let steps = self.objects.values().map(|object| object.steps.len()).sum();
        Counts {
            steps,
            failed: self.failed,
            activations: self.spoke.len(),
        }
    }

    /// See the module head.
    ///
    /// # Panics
    /// When a check fails: that is the finding.
    pub fn check(&self) {
        for (number, object) in &self.objects {
            let mut latest: Vec<(u64, u64)> = object
                .calls
                .iter()
                .map(|call| (call.ended, call.activation))
                .collect();
            latest.sort_unstable();
            for call in &object.calls {
                let before = latest.iter().take_while(|(ended, _)| *ended < call.begun);
                let newest = before.map(|(_, activation)| *activation).max().unwrap_or(0);
                assert!(
                    call.activation >= newest,
                    "a call of scribe-{number} ran activation {} after one that ran {newest}",
                    call.activation
                );
            }
            let begun = || {
                object
                    .steps
                    .values()
                    .map(|(begun, _)| begun)
                    .chain(&object.unknown)
            };
            for (from, to, saw) in &object.looks {
                let least = object
                    .steps
                    .values()
                    .filter(|(_, ended)| ended < from)
                    .count() as u64;
                let most = begun().filter(|begun| *begun <= to).count() as u64;
                assert!(
                    (least..=most).contains(saw),
                    "a look at scribe-{number} from {from} to {to} saw {saw} steps; {least} had been answered, {most} begun"
                );
            }
        }
        for (activation, spoke) in &self.spoke {
            assert!(
                ["one", "two"].contains(&spoke.as_str()),
                "activation {activation} called itself {spoke}"
            );
        }
    }

    fn spoke(
        &mut self,
        object: u64,
        begun: u64,
        ended: u64,
        activation: u64,
        output: &[u8],
    ) -> u64 {
        let text = String::from_utf8_lossy(output).into_owned();
        let (version, sum) = text
            .split_once(' ')
            .unwrap_or_else(|| panic!("scribe-{object} returned {text:?}"));
        let before = self
            .spoke
            .entry(activation)
            .or_insert_with(|| version.to_owned());
        assert_eq!(before, version, "activation {activation} ran two versions");
        self.objects.entry(object).or_default().calls.push(Call {
            begun,
            ended,
            activation,
        });
        sum.parse()
            .unwrap_or_else(|_| panic!("scribe-{object} returned {text:?}"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Store(u32),
    Step(u64, bool),
    Get(u64, bool),
}

/// One client's calls.
#[derive(Debug, Default)]
pub struct Calls {
    /// This client stores the sources.
    stores: bool,
    current: Option<(OpId, Doing, u64, u64)>,
    next_at: u64,
    /// Objects that have had their last look.
    looked: u64,
}

impl Workload for Calls {
    type Records = Book;
    type Counts = Counts;

    fn new(plan: &Plan, place: &Place) -> Option<Self> {
        place.does(plan.programs).then(|| Self {
            stores: place.index == 0,
            ..Self::default()
        })
    }
    fn next_at(&self, finished: bool) -> u64 {
        match &self.current {
            Some((.., give_up)) => *give_up,
            None if finished && self.has_looked() => u64::MAX,
            None => self.next_at,
        }
    }
    fn is_settled(&self, _: &Client, _: &Book) -> bool {
        self.current.is_none() && self.has_looked()
    }
    fn counts(book: &Book) -> Counts {
        book.counts()
    }
    fn check(book: &Book, _: &Ledger) {
        book.check();
    }

    fn on_completion(&mut self, ended: &Completion, turn: &mut Turn<'_>, book: &mut Book) -> bool {
        let now = turn.now;
        let Some((_, doing, begun, _)) = self.current.take_if(|(id, ..)| *id == ended.id) else {
            return false;
        };
        match (doing, &ended.result) {
            (Doing::Store(version), Ok(_)) => {
                book.stored.insert(version);
            }
            (Doing::Store(_), Err(_)) => {}
            (Doing::Step(object, _) | Doing::Get(object, _), Ok(Done { results, .. })) => {
                let [
                    SubReply::Called {
                        activation, output, ..
                    },
                ] = &results[..]
                else {
                    panic!("{results:?}")
                };
                let sum = book.spoke(object, begun, now, *activation, output);
                if let Doing::Step(_, fails) = doing {
                    assert!(!fails, "a step that was to fail was answered {sum}");
                    let twin = book
                        .objects
                        .entry(object)
                        .or_default()
                        .steps
                        .insert(sum, (begun, now));
                    assert!(twin.is_none(), "two steps of scribe-{object} made it {sum}");
                } else {
                    if doing == Doing::Get(object, true) {
                        self.looked += 1;
                    }
                    book.objects
                        .entry(object)
                        .or_default()
                        .looks
                        .push((begun, now, sum));
                }
            }
            (
                Doing::Step(object, fails),
                Err(Failure::Refused(OpFailure::Method { errno, why, .. })),
            ) => {
                assert!(
                    fails && (*errno == 17 || why.contains("on purpose")),
                    "scribe-{object}: {why} (error {errno})"
                );
                book.failed += 1;
            }
            (
                Doing::Get(object, _),
                Err(Failure::Refused(OpFailure::Method { errno, why, .. })),
            ) => {
                panic!("scribe-{object}: {why} (error {errno})");
            }
            (
                _,
                Err(Failure::Refused(OpFailure::NoSuchMethod { why } | OpFailure::Invalid { why })),
            ) => panic!("{why}"),
            (_, Err(Failure::Refused(OpFailure::Full {} | OpFailure::Expired {})))
            | (Doing::Get(..), Err(_)) => {}
            (Doing::Step(object, _), Err(_)) => {
                book.objects.entry(object).or_default().unknown.push(begun)
            }
        }
        true
    }

    fn advance(&mut self, turn: &mut Turn<'_>, book: &mut Book) {
        let now = turn.now;
        if let Some((id, .., give_up)) = &self.current
            && *give_up <= now
        {
            // Its completion will report an unknown outcome.
            turn.role.abandon(*id);
        }
        if self.current.is_some() || self.next_at(turn.finished) > now {
            return;
        }
        self.next_at = now + turn.rng.between(5 * MS, 120 * MS);
        let Some((doing, operation)) = turn
            .role
            .map()
            .and_then(|map| self.choose(map, turn.finished, book, turn.rng))
        else {
            return;
        };
        if let Some(id) = turn.submit(operation) {
            let give_up = now + turn.rng.between(2_000 * MS, 12_000 * MS);
            self.current = Some((id, doing, now, give_up));
        }
    }
}

impl Calls {
    /// The client that looks at everything in the end has done so.
    const fn has_looked(&self) -> bool {
        !self.stores || self.looked >= OBJECTS
    }

    fn choose(
        &self,
        map: &ClusterMap,
        finished: bool,
        book: &Book,
        rng: &mut Rng,
    ) -> Option<(Doing, Operation)> {
        if let Some(version) = [1, 2]
            .into_iter()
            .find(|version| !book.stored.contains(version))
        {
            let (pool, _) = map
                .pool_named(&PROGRAM_POOL.into())
                .filter(|_| self.stores)?;
            let object = source_object(CLASS, &NAME.into(), &digest(version));
            let source = Bytes::from(source(version));
            let ops = vec![SubOp::WriteFull {
                length: source.len() as u64,
            }];
            let operation = Operation {
                pool,
                ..operation(object, ops, vec![source])
            };
            return Some((Doing::Store(version), operation));
        }
        map.programs
            .get(&(CLASS, NAME.into()))
            .filter(|program| program.active > 0)?;
        let object = if finished {
            self.looked
        } else {
            rng.below(OBJECTS)
        };
        let (doing, method, input) = if finished || rng.one_in(4) {
            (Doing::Get(object, finished), "get", "")
        } else {
            let input = *rng.pick(&["", "", "", "heavy", "fail", "refuse"]);
            (
                Doing::Step(object, matches!(input, "fail" | "refuse")),
                "step",
                input,
            )
        };
        let op = SubOp::Call {
            class: NAME.into(),
            method: method.into(),
            length: input.len() as u64,
        };
        let payload = if input.is_empty() {
            Payload::new()
        } else {
            vec![Bytes::from_static(input.as_bytes())]
        };
        Some((doing, operation(scribe(object), vec![op], payload)))
    }
}
