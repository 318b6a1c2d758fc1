//! Policies that ship with Nacre: for use, for comparison, and as a starting point for others. The
//! head of each one states its purpose.

/// A policy of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    /// Its name.
    pub name: &'static str,
    /// Its source.
    pub source: &'static str,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(Shipped { name: $name, source: include_str!(concat!("../library/policies/", $name, ".lua")) }),*]
    };
}

/// All of them: first those that balance ranks, then those that limit caches.
pub const LIBRARY: &[Shipped] = shipped![
    "greedy_spill",
    "fill_and_spill",
    "adaptable",
    "baseline",
    "proxy_half",
    "proxy_full",
    "single",
    "hash",
    "pin",
    "static_cache",
    "two_phase_cache",
    "regime_cache",
];

/// The source of a policy of the library.
#[must_use]
pub fn shipped(name: &str) -> Option<&'static str> {
    LIBRARY
        .iter()
        .find(|policy| policy.name == name)
        .map(|policy| policy.source)
}
