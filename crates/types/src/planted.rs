//! [`planted_bugs!`](crate::planted_bugs): switches for plausible bugs of a crate that its tests
//! must detect; [`prove`] checks that they do. [`planted`](macro@crate::planted) is the attribute
//! of a decision that they spoil (ADR 0010).
//!
//! A crate's `tests/mutants.rs` names a story for each bug: a test that passes without the bug and
//! fails with it.

use std::fmt::Debug;
use std::panic::catch_unwind;
use std::process::ExitCode;

/// Runs the story of each planted bug without and with the bug, and prints what was detected. A
/// story shared by several bugs runs once without them.
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

/// Defines the enum `Mutant` of a crate's planted bugs. With the crate's feature `mutants` it also
/// defines `set_mutant` and its readers `active` and `mutant`; without it `mutant` is a constant
/// `false`. At most one bug is on, for the whole process.
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
            /// All planted bugs.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];
        }

        #[cfg(feature = "mutants")]
        static ACTIVE: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(u8::MAX);

        /// Switches one bug on, or all off.
        #[cfg(feature = "mutants")]
        pub fn set_mutant(mutant: Option<Mutant>) {
            ACTIVE.store(mutant.map_or(u8::MAX, |m| m as u8), std::sync::atomic::Ordering::Relaxed);
        }

        /// The bug that is on.
        #[cfg(feature = "mutants")]
        #[must_use]
        pub fn active() -> Option<Mutant> {
            let active = ACTIVE.load(std::sync::atomic::Ordering::Relaxed);
            Mutant::ALL.get(usize::from(active)).copied()
        }

        /// Whether this bug is on.
        #[cfg(feature = "mutants")]
        #[must_use]
        pub fn mutant(mutant: Mutant) -> bool {
            active() == Some(mutant)
        }

        /// Always `false`.
        #[cfg(not(feature = "mutants"))]
        #[must_use]
        pub const fn mutant(_: Mutant) -> bool {
            false
        }
    };
}
