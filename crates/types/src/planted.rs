//! [`planted_bugs!`](crate::planted_bugs): the switch of a crate for plausible bugs that its tests must notice.

/// Makes the enum `Mutant` of a crate's planted bugs, and the functions `mutant` (whether one is switched on) and, with the feature
/// `mutants` of that crate, `set_mutant`. Without the feature `mutant` is a constant `false`. One at a time, for the whole process.
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
