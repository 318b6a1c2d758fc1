//! What clients record about random calls, and the checks:
//! 1. an object's history contains no call twice, and none that was answered as failed or refused
//!    or that was for another object; it only ever grows;
//! 2. the calls of one operation are adjacent: all of them, or none;
//! 3. its order agrees with time: a call begun after another's answer comes after it, and looks see
//!    what was answered before them;
//! 4. along it, a class's activations never decrease (MAL-06): the versions that ran, and the
//!    activations named in answers, are in the order of the monitors' maps;
//! 5. replayed on a [`Plain`] object, every call gives the output that was answered, every failed
//!    one fails with the same message, and every look sees the same object, byte for byte.

use super::author;
use super::plain::Plain;
use super::{Counts, OBJECTS};
use crate::ledger::Ledger;
use bytes::Bytes;
use nacre_policy::{Budget, Call, CallEnd, Chunk, ClassRef, ClassVm, Classes, Request, Target};
use nacre_wire::map::SourceDigest;
use nacre_wire::msg::client::WHY_BYTES_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The attribute that contains an object's history.
const HISTORY: &[u8] = b"history";

/// One call of a method.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Unique number of the call.
    pub id: u64,
    /// The class.
    pub class: usize,
    /// The method.
    pub method: String,
    /// The whole input.
    pub input: Bytes,
}

/// How an operation ended.
#[derive(Clone, Debug)]
pub enum Fate {
    /// Unknown whether it was executed.
    Unknown,
    /// It had no effect.
    Nothing,
    /// Succeeded: activation and output of each call.
    Done(Vec<(u64, Bytes)>),
    /// This call failed.
    Failed {
        /// Index of the call.
        index: usize,
        /// Error number.
        errno: u32,
        /// Human-readable reason.
        why: String,
    },
}

/// An operation of one or two calls.
#[derive(Clone, Debug)]
pub struct Act {
    /// The object.
    pub object: u64,
    /// The calls, in order.
    pub calls: Vec<Asked>,
    /// When it was begun.
    pub begun: u64,
    /// When it was answered.
    pub ended: u64,
    /// Its outcome.
    pub fate: Fate,
}

/// The result of a look.
#[derive(Clone, Debug)]
pub enum Saw {
    /// Data, attributes and omap, by an operation without programs.
    Whole(Plain),
    /// Position in the history and digest, from a method.
    Told(Bytes),
}

/// A look at an object.
#[derive(Clone, Debug)]
pub struct Look {
    /// The object.
    pub object: u64,
    /// When it was begun.
    pub begun: u64,
    /// When it was answered.
    pub ended: u64,
    /// What it saw.
    pub saw: Saw,
}

/// Versions of all classes used in one call; 0 means not installed.
type Cast = Vec<usize>;

/// The activations of each class in commit order: number and version. The first entry means none.
type Activations = Vec<Vec<(u64, usize)>>;

/// The earliest activation, from index `from` on, with that version, and with the activation number
/// named in the answer, if any.
///
/// The operator's orders may be executed more than once and late, because unanswered ones are
/// repeated: versions may recur and need not increase. Taking the earliest match is sufficient: if
/// the versions of a history occur in the order of `list` at all, this finds them.
fn next_of(
    list: &[(u64, usize)],
    from: usize,
    version: usize,
    named: Option<u64>,
) -> Option<usize> {
    let fits = |(activation, of): &(u64, usize)| {
        *of == version && named.is_none_or(|named| named == *activation)
    };
    list.iter()
        .skip(from)
        .position(fits)
        .map(|place| from + place)
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Diary {
    /// Sources by class and version.
    pub sources: Vec<Vec<String>>,
    /// Stored sources: (class, version).
    pub stored: BTreeSet<(usize, usize)>,
    /// All operations.
    pub acts: Vec<Act>,
    /// All looks.
    pub looks: Vec<Look>,
    /// Operations whose end is not known yet: the last look waits for them.
    pub under_way: usize,
    ids: u64,
}

fn history_of(object: &Plain) -> Vec<(u64, Cast)> {
    let text = object
        .attributes
        .get(HISTORY)
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let entry = |entry: &str| {
        let (id, cast) = entry.split_once(':')?;
        Some((
            id.parse().ok()?,
            cast.split('.')
                .map(|version| version.parse().ok())
                .collect::<Option<Cast>>()?,
        ))
    };
    let text = text.unwrap_or_default();
    let entries = text.split_terminator(',');
    entries
        .map(|text| entry(text).unwrap_or_else(|| panic!("{text:?} is no entry of a history")))
        .collect()
}

/// Replays calls on plain objects.
struct Player<'a> {
    diary: &'a Diary,
    vm: ClassVm<Plain>,
    casts: BTreeMap<Cast, Arc<Classes>>,
}

impl<'a> Player<'a> {
    fn new(diary: &'a Diary) -> Self {
        Self {
            diary,
            vm: ClassVm::new(64),
            casts: BTreeMap::new(),
        }
    }

    /// Returns the output, or the error number and message; and the object afterwards.
    fn play(
        &mut self,
        object: &Plain,
        cast: &Cast,
        asked: &Asked,
    ) -> (Plain, Result<Bytes, (u32, String)>) {
        let sources = &self.diary.sources;
        let classes = self.casts.entry(cast.clone()).or_insert_with(|| {
            let mut classes = Classes::default();
            for (class, version) in cast.iter().enumerate().filter(|(_, version)| **version > 0) {
                let name = author::name(class);
                let chunk = Chunk::new(&name, &sources[class][version - 1]);
                classes.insert(&name, *version as u64, ClassRef::Lua(chunk));
            }
            Arc::new(classes)
        });
        let name = author::name(asked.class);
        let call = Call {
            classes,
            target: Target::Class(&name),
            method: &asked.method,
            input: asked.input.clone(),
            request: &Request::default(),
            budget: &Budget::CLASS,
        };
        let (after, end) = self.vm.call(object.clone(), &call);
        let CallEnd::Done(outcome) = end else {
            panic!("a plain object has everything at hand")
        };
        match outcome.error.filter(|_| outcome.status < 0) {
            None => (after, Ok(outcome.output)),
            Some(error) => {
                let mut why = error.to_string();
                why.truncate(why.floor_char_boundary(WHY_BYTES_MAX));
                (object.clone(), Err((outcome.status.unsigned_abs(), why)))
            }
        }
    }
}

/// One object's calls in the order in which they took effect.
struct Play {
    object: u64,
    history: Vec<(u64, Cast)>,
    /// The states before the first call, and after each call.
    states: Vec<Plain>,
}

impl Diary {
    /// For the run with that seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            sources: author::sources(seed),
            ..Self::default()
        }
    }

    /// A new call number.
    pub const fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts {
            looks: self.looks.len(),
            ..Counts::default()
        };
        let mut heard = BTreeSet::new();
        for act in &self.acts {
            match &act.fate {
                Fate::Done(outputs) => {
                    counts.calls += outputs.len();
                    heard.extend(act.calls.iter().map(|call| call.id));
                }
                Fate::Failed { why, .. } => {
                    counts.failed += 1;
                    counts.killed += usize::from(place(why).is_none());
                }
                Fate::Unknown | Fate::Nothing => {}
            }
        }
        let entries: Vec<(u64, Cast)> = (0..OBJECTS)
            .flat_map(|object| history_of(&self.last(object)))
            .collect();
        counts.unheard = entries.iter().filter(|(id, _)| !heard.contains(id)).count();
        counts.casts = entries
            .into_iter()
            .map(|(_, cast)| cast)
            .collect::<BTreeSet<Cast>>()
            .len();
        counts
    }

    /// The object when it was last seen as a whole.
    fn last(&self, object: u64) -> Plain {
        let whole = |look: &Look| match &look.saw {
            Saw::Whole(seen) if look.object == object => Some(seen.clone()),
            _ => None,
        };
        self.looks.iter().rev().find_map(whole).unwrap_or_default()
    }

    /// See the module head.
    ///
    /// # Panics
    /// When a check fails: that is the finding.
    pub fn check(&self, ledger: &Ledger) {
        let mut player = Player::new(self);
        let activations = self.activations(ledger);
        for object in 0..OBJECTS {
            let history = history_of(&self.last(object));
            self.check_order(object, &history, &activations);
            let play = self.replay(object, history, &mut player);
            self.check_failures(&play, &mut player);
            self.check_looks(&play, &mut player);
        }
    }

    fn activations(&self, ledger: &Ledger) -> Activations {
        let of = |(class, sources): (usize, &Vec<String>)| {
            let digest =
                |source: &String| SourceDigest(*blake3::hash(source.as_bytes()).as_bytes());
            let digests: Vec<SourceDigest> = sources.iter().map(digest).collect();
            let version = |digest| {
                1 + digests
                    .iter()
                    .position(|known| known == digest)
                    .expect("one of its sources")
            };
            let list = ledger.activations_of(&author::name(class).as_str().into());
            std::iter::once((0, 0))
                .chain(
                    list.iter()
                        .map(|(number, digest)| (*number, version(digest))),
                )
                .collect()
        };
        self.sources.iter().enumerate().map(of).collect()
    }

    fn check_order(&self, object: u64, history: &[(u64, Cast)], activations: &Activations) {
        let acts: BTreeMap<u64, &Act> = self
            .acts
            .iter()
            .flat_map(|act| act.calls.iter().map(move |call| (call.id, act)))
            .collect();
        let mut found = BTreeSet::new();
        let (mut latest, mut reached) = (0, [0; author::CLASSES]);
        for (at, (id, cast)) in history.iter().enumerate() {
            assert!(
                found.insert(*id),
                "random-{object}: call {id} happened twice"
            );
            let act = acts
                .get(id)
                .unwrap_or_else(|| panic!("random-{object}: nobody asked for call {id}"));
            assert!(
                act.object == object,
                "random-{object}: call {id} was one of random-{}",
                act.object
            );
            let fate = &act.fate;
            assert!(
                matches!(fate, Fate::Done(_) | Fate::Unknown),
                "random-{object}: call {id} happened, and ended as {fate:?}"
            );
            let place = act
                .calls
                .iter()
                .position(|call| call.id == *id)
                .expect("it is one of its act's");
            let beside = act
                .calls
                .iter()
                .zip(history.iter().skip(at - place.min(at)));
            let together = at >= place
                && beside.clone().count() == act.calls.len()
                && beside.clone().all(|(call, (id, _))| call.id == *id);
            assert!(
                together,
                "random-{object}: of an operation's calls only some happened: {:?}",
                act.calls
            );
            if matches!(fate, Fate::Done(_)) {
                assert!(
                    latest <= act.ended,
                    "random-{object}: call {id}, answered at {}, happened after one that began at {latest}",
                    act.ended
                );
            }
            latest = latest.max(act.begun);
            for (class, (list, version)) in activations.iter().zip(cast).enumerate() {
                let named = match fate {
                    Fate::Done(outputs) if act.calls[place].class == class => {
                        Some(outputs[place].0)
                    }
                    _ => None,
                };
                let from = reached[class];
                reached[class] = next_of(list, from, *version, named).unwrap_or_else(|| {
                    panic!(
                        "random-{object}: call {id} ran version {version} of random{class}, activation {named:?}; from \
                         the call before it on the activations were {:?}",
                        &list[from..]
                    )
                });
            }
        }
        for act in self
            .acts
            .iter()
            .filter(|act| act.object == object && matches!(act.fate, Fate::Done(_)))
        {
            let lost = act.calls.iter().find(|call| !found.contains(&call.id));
            assert!(
                lost.is_none(),
                "random-{object}: {lost:?} was answered and is not there"
            );
        }
    }

    fn replay(&self, object: u64, history: Vec<(u64, Cast)>, player: &mut Player<'_>) -> Play {
        let mut states = vec![Plain::default()];
        let all: BTreeMap<u64, (&Act, usize)> = self
            .acts
            .iter()
            .flat_map(|act| {
                act.calls
                    .iter()
                    .enumerate()
                    .map(move |(place, call)| (call.id, (act, place)))
            })
            .collect();
        for (id, cast) in &history {
            let (act, place) = all[id];
            let asked = &act.calls[place];
            let (after, result) = player.play(states.last().expect("one at least"), cast, asked);
            let output = result.unwrap_or_else(|why| {
                panic!("random-{object}: call {id} happened; on a plain object it fails: {why:?}")
            });
            if let Fate::Done(outputs) = &act.fate {
                let (_, answered) = &outputs[place];
                assert!(
                    *answered == output,
                    "random-{object}: call {id} {asked:?} of {cast:?} was answered {answered:?}; a plain object gives {output:?}"
                );
            }
            states.push(after);
        }
        Play {
            object,
            history,
            states,
        }
    }

    /// A call that failed in the method saw some state, names it, and fails there on a plain object
    /// too.
    fn check_failures(&self, play: &Play, player: &mut Player<'_>) {
        let object = play.object;
        for act in self.acts.iter().filter(|act| act.object == object) {
            let Fate::Failed { index, errno, why } = &act.fate else {
                continue;
            };
            let asked = &act.calls[*index];
            let Some((count, cast)) = place(why) else {
                let kind = asked.input.split(|byte| *byte == b' ').nth(1);
                // A called class failed after it had written, which cannot be caught.
                let half_done = why.is_empty() || why.contains("after it wrote");
                // Methods that process much may exhaust the budget, because sizes count.
                let spent = why.contains("out of instructions");
                let wanted = matches!(kind, Some(b"l" | b"g")) || half_done || spent;
                assert!(
                    wanted,
                    "random-{object}: {asked:?} ended as nobody wanted it: {why}"
                );
                continue;
            };
            let base = count
                .checked_sub(*index)
                .filter(|base| *base < play.states.len());
            let base = base.unwrap_or_else(|| {
                panic!(
                    "random-{object}: {asked:?} says it was {why}, of {}",
                    play.states.len() - 1
                )
            });
            self.check_time(play, base, act.begun, act.ended, "a failed call");
            let mut state = play.states[base].clone();
            for before in &act.calls[..*index] {
                let (after, result) = player.play(&state, &cast, before);
                assert!(
                    result.is_ok(),
                    "random-{object}: {before:?} went well and was undone; on a plain object: {result:?}"
                );
                state = after;
            }
            let (_, result) = player.play(&state, &cast, asked);
            assert!(
                result
                    .as_ref()
                    .is_err_and(|(number, words)| number == errno && words == why),
                "random-{object}: {asked:?} failed with {why} ({errno}); on a plain object {result:?}"
            );
        }
    }

    fn check_looks(&self, play: &Play, player: &mut Player<'_>) {
        let object = play.object;
        for look in self.looks.iter().filter(|look| look.object == object) {
            let count = match &look.saw {
                Saw::Whole(seen) => {
                    let history = history_of(seen);
                    let count = history.len();
                    assert!(
                        play.history.starts_with(&history),
                        "random-{object}: its history was {history:?} once"
                    );
                    let expected = Plain {
                        header: Bytes::new(),
                        ..play.states[count].clone()
                    };
                    assert!(
                        *seen == expected,
                        "random-{object} after {count} calls is {seen:?}, a plain object {expected:?}"
                    );
                    count
                }
                Saw::Told(output) => {
                    let count = String::from_utf8_lossy(output)
                        .split(' ')
                        .next()
                        .and_then(|count| count.parse().ok());
                    let count = count.filter(|count| *count < play.states.len());
                    let count = count.unwrap_or_else(|| {
                        panic!(
                            "random-{object} was told as {output:?} of {}",
                            play.states.len() - 1
                        )
                    });
                    let long = if output.len() > 20_000 { "0 o" } else { "0 -" };
                    let asked = Asked {
                        id: 0,
                        class: 0,
                        method: "look".to_owned(),
                        input: long.into(),
                    };
                    // All versions of all classes have the same look method.
                    let (_, result) =
                        player.play(&play.states[count], &vec![1; author::CLASSES], &asked);
                    assert!(
                        result.as_ref() == Ok(output),
                        "random-{object} after {count} calls was told as {output:?}, a plain object as {result:?}"
                    );
                    count
                }
            };
            self.check_time(play, count, look.begun, look.ended, "a look");
        }
    }

    /// A look from `begun` to `ended` that saw this many calls saw all that were answered before,
    /// and none that began later.
    fn check_time(&self, play: &Play, count: usize, begun: u64, ended: u64, who: &str) {
        let place: BTreeMap<u64, usize> = play
            .history
            .iter()
            .enumerate()
            .map(|(at, (id, _))| (*id, at + 1))
            .collect();
        for act in &self.acts {
            let Some(at) = act
                .calls
                .iter()
                .filter_map(|call| place.get(&call.id))
                .max()
            else {
                continue;
            };
            let missed = matches!(act.fate, Fate::Done(_)) && act.ended < begun && *at > count;
            assert!(
                !missed,
                "random-{}: {who} saw {count} calls and not {:?}, answered at {} before it began at {begun}",
                play.object, act.calls, act.ended
            );
            assert!(
                *at > count || act.begun <= ended,
                "random-{}: {who} saw {count} calls before {:?} began",
                play.object,
                act.calls
            );
        }
    }
}

/// `at COUNT CAST: …`: the state that a method reports having seen when it failed.
fn place(why: &str) -> Option<(usize, Cast)> {
    let (_, rest) = why.split_once(": at ")?;
    let (count, rest) = rest.split_once(' ')?;
    let (cast, _) = rest.split_once(": ")?;
    Some((
        count.parse().ok()?,
        cast.split('.')
            .map(|version| version.parse().ok())
            .collect::<Option<Cast>>()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::next_of;

    /// Seed 3491: `install` of version 2 was sent twice, and executed late a second time, after
    /// version 3. Versions were required to increase, and the call that ran the second activation
    /// of version 2 was reported as a finding.
    #[test]
    fn a_version_that_was_activated_again_may_run_again() {
        let list = [(0, 0), (7, 1), (8, 2), (9, 3), (12, 2)];
        let walk = |ran: &[(usize, Option<u64>)]| {
            ran.iter().try_fold(0, |from, (version, named)| {
                next_of(&list, from, *version, *named)
            })
        };
        assert_eq!(
            walk(&[(0, None), (1, None), (3, Some(9)), (2, None), (2, Some(12))]),
            Some(4)
        );
        assert_eq!(
            walk(&[(2, None), (2, Some(12))]),
            Some(4),
            "a call of either"
        );
        assert_eq!(walk(&[(3, None), (1, None)]), None, "it went back");
        assert_eq!(
            walk(&[(3, None), (2, Some(8))]),
            None,
            "it went back, and says so"
        );
        assert_eq!(
            walk(&[(1, Some(8))]),
            None,
            "activation 8 was another version"
        );
        assert_eq!(walk(&[(1, None), (0, None)]), None, "it was there already");
    }
}
