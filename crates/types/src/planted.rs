//! [`planted_bugs!`](crate::planted_bugs): the switch of a crate for plausible bugs that its tests
//! must notice; [`prove`]: that they do.
//!
//! A crate's `tests/mutants.rs` names a story for each of its bugs: a test that passes without the
//! bug and fails with it.

use std::fmt::Debug;
use std::panic::catch_unwind;
use std::process::ExitCode;

/// Runs the story of each planted bug without it and with it, and prints what was caught. A story
/// of several bugs runs once without them.
///
/// # Panics
/// A bug has no story, or a story fails without its bug.
#[must_use]
pub fn prove<M: Copy + Debug + PartialEq>(
    all: &[M],
    stories: &[(M, fn())],
    set: fn(Option<M>),
) -> ExitCode {
    for mutant in all {
        assert!(
            stories.iter().any(|(at, _)| at == mutant),
            "{mutant:?} has no story"
        );
    }
    std::panic::set_hook(Box::new(|_| {}));
    let (mut survived, mut fine): (Vec<M>, Vec<fn()>) = (Vec::new(), Vec::new());
    for &(mutant, story) in stories {
        set(None);
        if !fine.iter().any(|known| std::ptr::fn_addr_eq(*known, story)) {
            assert!(
                catch_unwind(story).is_ok(),
                "the story of {mutant:?} fails without it"
            );
            fine.push(story);
        }
        set(Some(mutant));
        let caught = catch_unwind(story).is_err();
        println!("{mutant:?}: {}", if caught { "caught" } else { "SURVIVED" });
        if !caught {
            survived.push(mutant);
        }
    }
    if survived.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("not caught: {survived:?}");
    ExitCode::FAILURE
}

/// Makes the enum `Mutant` of a crate's planted bugs, and the functions `mutant` (whether one is
/// switched on) and, with the feature
/// `mutants` of that crate, `set_mutant`. Without the feature `mutant` is a constant `false`. One
/// at a time, for the whole process.
#[macro_export]
macro_rules! planted_bugs {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// A plausible bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Mutant {
            $($(#[$doc])* $name),+
        }

        impl Mutant {
            /// All.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];
        }

        #[cfg(feature = "mutants")]
        static ACTIVE: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(u8::MAX);

        /// Switches one on, or all off.
        #[cfg(feature = "mutants")]
        pub fn set_mutant(mutant: Option<Mutant>) {
            ACTIVE.store(mutant.map_or(u8::MAX, |m| m as u8), std::sync::atomic::Ordering::Relaxed);
        }

        /// Whether this one is on.
        #[cfg(feature = "mutants")]
        #[must_use]
        pub fn mutant(mutant: Mutant) -> bool {
            ACTIVE.load(std::sync::atomic::Ordering::Relaxed) == mutant as u8
        }

        /// Never.
        #[cfg(not(feature = "mutants"))]
        #[must_use]
        pub const fn mutant(_: Mutant) -> bool {
            false
        }
    };
}
