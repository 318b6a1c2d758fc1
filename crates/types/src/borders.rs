//! [`borders!`](crate::borders): counts how often a part of Nacre reached each of its limits and
//! rare paths.
//!
//! A limit is a border between two paths through the code. A border that no test crosses separates
//! untested code: the simulator sets limits low, counts, and fails when a counter stays at zero
//! (`docs/faults.md`). Counted events are rare, so counting costs nothing noticeable.

/// Defines the struct `Borders`: a counter per border, each with a comment that describes the
/// event.
#[macro_export]
macro_rules! borders {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// How often each border was crossed since the start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Borders {
            $($(#[$doc])* pub $name: u64),+
        }

        impl Borders {
            /// All counters, by name.
            #[must_use]
            pub fn counts(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),+]
            }
            /// Adds another's counters.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
            }
        }
    };
}
