//! Predicts what a method reads first from what it read first in recent calls.
//!
//! A method whose data is not in memory is restarted when the data has arrived (`fetched.rs`). Most
//! methods start with the same reads in every call, or with the omap key that is their input. After
//! two equal calls, these reads are done before the method runs at all. A wrong prediction costs a
//! read and changes nothing else.

use crate::fetched::Want;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Most methods remembered.
const METHODS_MAX: usize = 1024;
/// Most reads remembered per method.
const WANTS_MAX: usize = 4;

#[derive(Clone, Debug, PartialEq)]
enum Guess {
    Same(Want),
    /// The value of the omap key that is the input.
    KeyIsInput,
}

impl Guess {
    fn of(want: &Want, input: &Bytes) -> Self {
        match want {
            Want::Keys(keys) if keys.len() == 1 && keys[0] == *input => Self::KeyIsInput,
            want => Self::Same(want.clone()),
        }
    }
    fn want(&self, input: &Bytes) -> Want {
        match self {
            Self::Same(want) => want.clone(),
            Self::KeyIsInput => Want::Keys(vec![input.clone()]),
        }
    }
}

#[derive(Debug)]
struct Habit {
    guesses: Vec<Guess>,
    /// How many times in a row.
    times: u32,
}

/// See the module head. Methods are identified by activation and name.
#[derive(Debug, Default)]
pub struct Hints(BTreeMap<(u64, String), Habit>);

impl Hints {
    /// What to read before the method runs; empty without a prediction.
    #[must_use]
    pub fn wants(&self, activation: u64, method: &str, input: &Bytes) -> Vec<Want> {
        // A lookup that avoids making a `String` of the name would need another table; a call costs
        // a hundred times as much.
        let habit = self
            .0
            .get(&(activation, method.to_owned()))
            .filter(|habit| habit.times >= 2);
        habit
            .map(|habit| {
                habit
                    .guesses
                    .iter()
                    .map(|guess| guess.want(input))
                    .collect()
            })
            .unwrap_or_default()
    }

    /// Records that the method ran without a prediction and wanted these reads first.
    pub fn learn(&mut self, activation: u64, method: &str, input: &Bytes, wants: &[Want]) {
        let key = (activation, method.to_owned());
        let guesses: Vec<Guess> = wants
            .iter()
            .take(WANTS_MAX)
            .map(|want| Guess::of(want, input))
            .collect();
        match self.0.get_mut(&key) {
            Some(habit) if habit.guesses == guesses => habit.times += 1,
            Some(habit) => *habit = Habit { guesses, times: 1 },
            None => {
                if self.0.len() >= METHODS_MAX {
                    self.0.clear();
                }
                self.0.insert(key, Habit { guesses, times: 1 });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_same_is_a_habit_and_a_change_ends_it() {
        let (mut hints, a, b) = (
            Hints::default(),
            Bytes::from_static(b"a"),
            Bytes::from_static(b"b"),
        );
        let key = |key: &Bytes| Want::Keys(vec![key.clone()]);
        hints.learn(7, "get", &a, &[key(&a)]);
        assert!(hints.wants(7, "get", &b).is_empty());
        hints.learn(7, "get", &b, &[key(&b)]);
        assert_eq!(hints.wants(7, "get", &a), [key(&a)], "the key is the input");
        assert!(hints.wants(8, "get", &a).is_empty() && hints.wants(7, "put", &a).is_empty());
        let range = Want::Data {
            offset: 0,
            length: 10,
        };
        hints.learn(7, "get", &a, std::slice::from_ref(&range));
        assert!(hints.wants(7, "get", &a).is_empty());
        hints.learn(7, "get", &b, std::slice::from_ref(&range));
        assert_eq!(hints.wants(7, "get", &a), [range]);
    }
}
