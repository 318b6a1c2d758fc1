//! Programs stopped by the leader's clock, and suspended programs.
//!
//! Instruction counts bound a program in the same way on every monitor; the host's clock bounds
//! what the counts miss. A program that is stopped by the clock again and again would block the
//! leader: it is suspended until another text is installed, another monitor leads, or its namespace
//! no longer names it. Meanwhile changes that it should judge are refused, with an error that says
//! so; changes that would trigger it pass without it.

use std::collections::BTreeMap;

/// Number of runs that the clock may stop before a program is suspended.
pub const OVERRUNS_MAX: u32 = 5;
/// Maximum number of programs remembered.
const PROGRAMS_MAX: usize = 1_000;

/// See the module head.
#[derive(Debug, Default)]
pub struct Overruns {
    /// By program: the revision of its text, and the number of stopped runs.
    by: BTreeMap<String, (u64, u32)>,
}

impl Overruns {
    /// The clock stopped a run; returns whether the program is suspended by it.
    pub fn count(&mut self, program: &str, revision: u64) -> bool {
        if self.by.len() >= PROGRAMS_MAX {
            self.by.clear();
        }
        let known = self.by.entry(program.to_owned()).or_insert((revision, 0));
        if known.0 != revision {
            *known = (revision, 0);
        }
        known.1 += 1;
        known.1 == OVERRUNS_MAX
    }

    /// Whether a program is suspended.
    #[must_use]
    pub fn suspends(&self, program: &str, revision: u64) -> bool {
        self.by
            .get(program)
            .is_some_and(|known| *known == (revision, known.1) && known.1 >= OVERRUNS_MAX)
    }

    /// The suspended programs, given the current revision of each text.
    pub fn suspended<'a>(
        &'a self,
        revision: impl Fn(&str) -> u64 + 'a,
    ) -> impl Iterator<Item = &'a str> {
        self.by
            .keys()
            .filter(move |program| self.suspends(program, revision(program)))
            .map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_suspended_until_its_text_is_another() {
        let mut overruns = Overruns::default();
        for time in 1..OVERRUNS_MAX {
            assert!(
                !overruns.count("slow", 7) && !overruns.suspends("slow", 7),
                "{time}"
            );
        }
        assert!(overruns.count("slow", 7) && overruns.suspends("slow", 7));
        assert!(!overruns.suspends("slow", 8) && !overruns.suspends("other", 7));
        assert_eq!(overruns.suspended(|_| 7).collect::<Vec<_>>(), ["slow"]);
        assert_eq!(overruns.suspended(|_| 8).count(), 0);
        assert!(!overruns.count("slow", 8), "another text begins anew");
    }
}
