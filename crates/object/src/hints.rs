//! What a method is likely to read first: what it read first the last times.
//!
//! A method that finds its data not at hand is begun again when it is (`fetched.rs`). Most methods
//! begin with the same reads at every call, or with the omap key that is their input. Twice the
//! same is enough to read it before the method runs at all. A wrong guess costs a read and changes
//! nothing.

use crate::fetched::Want;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Methods that are remembered.
const METHODS_MAX: usize = 1024;
/// Reads of one method that are remembered.
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
    /// So many times in a row.
    times: u32,
}

/// See the module head. Methods are known by activation and name.
#[derive(Debug, Default)]
pub struct Hints(BTreeMap<(u64, String), Habit>);

impl Hints {
    /// What to read before the method is run; empty if nobody knows.
    #[must_use]
    pub fn wants(&self, activation: u64, method: &str, input: &Bytes) -> Vec<Want> {
        // A lookup without making the name a `String` would need another table; a call costs a
        // hundred times as much.
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

    /// The method was run without a guess and wanted these first.
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
