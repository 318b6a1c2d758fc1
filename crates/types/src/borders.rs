//! [`borders!`](crate::borders): how often a part of Nacre came to each of its limits and rare
//! paths.
//!
//! A limit is a border between two ways through the code. A border that no test crosses is code
//! that nothing tests: the simulator draws limits small, counts, and fails when one stays at zero
//! (`docs/faults.md`). What is counted is rare, so counting costs nothing that matters.

/// Makes the struct `Borders`: a counter per border, each with a line that says what happened.
#[macro_export]
macro_rules! borders {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// How often each border was crossed since the start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Borders {
            $($(#[$doc])* pub $name: u64),+
        }

        impl Borders {
            /// All of them, by name.
            #[must_use]
            pub fn counts(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),+]
            }
            /// Adds what another one counted.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
            }
        }
    };
}
