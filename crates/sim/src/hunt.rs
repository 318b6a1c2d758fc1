//! Tries planted bugs with seeds: each bug must make one seed fail (`./x mutants`).
//!
//! ```text
//!  bug ─▶ switched on ─▶ seed, seed, … ─▶ one fails: detected
//!                                     └─▶ none does: SURVIVED, which `./x mutants` looks for
//! ```

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// Which bugs are tried, with which seeds.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// Only every N-th bug, starting with the K-th, to split the work over N processes.
    pub part: Option<(usize, usize)>,
    /// Only the bug of that name.
    pub only: Option<String>,
    /// The seeds, in order.
    pub seeds: Range<u64>,
}

impl Hunt {
    /// Switches on one bug after the other, and runs seeds with each until one fails. Succeeds if
    /// all were detected, and there was at least one.
    pub fn run<B>(
        &self,
        bugs: impl IntoIterator<Item = (String, B)>,
        switch: impl Fn(Option<&B>),
        attempt: impl Fn(u64) -> Result<(), String>,
    ) -> ExitCode {
        std::panic::set_hook(Box::new(|_| {}));
        let (mut survivors, mut caught_all) = (0, 0);
        let (first, step) = self.part.unwrap_or((0, 1));
        let is_wanted = |name: &str| {
            self.only
                .as_ref()
                .is_none_or(|only| only.eq_ignore_ascii_case(name))
        };
        for (name, bug) in bugs
            .into_iter()
            .skip(first)
            .step_by(step)
            .filter(|(name, _)| is_wanted(name))
        {
            switch(Some(&bug));
            let caught = self
                .seeds
                .clone()
                .find_map(|seed| attempt(seed).err().map(|why| (seed, why)));
            match caught {
                Some((seed, why)) => {
                    caught_all += 1;
                    let line: String = why
                        .lines()
                        .next()
                        .unwrap_or_default()
                        .chars()
                        .take(160)
                        .collect();
                    println!(
                        "{name}: caught after {} seeds (seed {seed}): {line}",
                        seed - self.seeds.start + 1
                    );
                }
                None => {
                    survivors += 1;
                    println!(
                        "{name}: SURVIVED {} seeds",
                        self.seeds.end - self.seeds.start
                    );
                }
            }
        }
        switch(None);
        println!("{caught_all} passed, {survivors} failed");
        let is_good = survivors == 0 && (caught_all > 0 || self.part.is_some());
        if is_good {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// Runs `run`, turning a panic into an error.
///
/// # Errors
/// The panic's message.
pub fn attempt<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    // Its state is dropped with it.
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
            .unwrap_or_else(|| "panicked".into())
    })
}

/// `K/N`, K from 0.
#[must_use]
pub fn part(text: &str) -> Option<(usize, usize)> {
    let (k, n) = text.split_once('/')?;
    Some((k.parse().ok()?, n.parse().ok()?)).filter(|(k, n)| k < n)
}
