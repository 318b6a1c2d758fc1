//! The fuzz targets: one function per parser of untrusted bytes (DESIGN §11).
//!
//! ```text
//!  fuzz/fuzz_targets/NAME.rs ─┐  libFuzzer, nightly: ./x fuzz NAME
//!                             ├─▶ targets::NAME(bytes) ─▶ a panic is a finding
//!  tests/replay.rs ───────────┘  stable, in ./x test: fuzz/corpus/NAME and mutations of it
//! ```
//! Each target accepts any bytes and returns; its head lists its assertions. Each finding becomes a
//! test next to the parser, and its input a file of the corpus.
#![forbid(unsafe_code)]

mod command;
mod config_toml;
mod crush_text;
mod delta;
mod frame;
mod history_file;
mod map;
mod message;
mod mutate;
mod store_image;

pub use mutate::{Dice, mutate};

/// A target.
pub type Target = fn(&[u8]);

/// All targets, by the names of their corpora.
pub const TARGETS: &[(&str, Target)] = &[
    ("command", command::run),
    ("config_toml", config_toml::run),
    ("crush_text", crush_text::run),
    ("delta", delta::run),
    ("frame", frame::run),
    ("history_file", history_file::run),
    ("map", map::run),
    ("message", message::run),
    ("store_image", store_image::run),
];

/// Runs a target by name.
///
/// # Panics
/// When there is no such target, or the target finds something.
pub fn run(name: &str, input: &[u8]) {
    let (_, target) = TARGETS
        .iter()
        .find(|(known, _)| *known == name)
        .expect("a target of the list");
    target(input);
}
