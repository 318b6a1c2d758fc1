//! For operators: what the rank's next holder would have to read, which clients it would wait for,
//! and the current load. `nacre fs status` estimates the duration of a takeover (docs/files.md,
//! "How long a takeover takes").

use super::*;
use nacre_wire::msg::fs::FsFigures;

/// The journal's objects from its beginning, with their lengths in bytes.
#[derive(Debug, Default)]
pub(super) struct Lengths(BTreeMap<u64, u64>);

impl Lengths {
    pub fn note(&mut self, object: u64, length: u64) {
        self.0.insert(object, length);
    }
    /// The journal begins there from now on.
    pub fn cut_off(&mut self, first: u64) {
        self.0 = self.0.split_off(&first);
    }
}

impl Mds {
    /// The work of the next holder.
    #[must_use]
    pub fn figures(&self) -> FsFigures {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let opens = self
            .sessions
            .keys()
            .map(|client| self.caps.count(*client).0);
        FsFigures {
            objects: count(self.lengths.0.len()),
            bytes: self.lengths.0.values().sum(),
            sessions: count(self.sessions.len()),
            opens: opens.fold(0, u32::saturating_add),
            popular: self.popular(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_directories_is_read_by_no_one() {
        let mut lengths = Lengths::default();
        for (object, length) in [(4, 10), (5, 3), (5, 9), (6, 1)] {
            lengths.note(object, length);
        }
        lengths.cut_off(5);
        assert_eq!(lengths.0, BTreeMap::from([(5, 9), (6, 1)]));
    }
}
