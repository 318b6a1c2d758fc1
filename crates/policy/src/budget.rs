//! What one call may use (MAL-24). Every bound is counted, none is a time: the same call stops at
//! the same point in every run.
//!
//! What a count stands for varies: a step of a loop takes 25 ns, the scripts of the zoo up to 200
//! (`cargo bench -p nacre-policy --bench zoo`). Library functions that work long in one step are
//! charged by the size of what they work on (`vm/prelude.luau`).
//!
//! Not charged, because nothing of ours stands before them:
//! - comparing long strings with `<`, and `next`, `pairs` or `table.clear` on a large table that
//!   was emptied: up to a millisecond per step in 16 MiB;
//! - code without a loop or a call: some nanoseconds per operation, at most [`SOURCE_MAX`] long;
//! - calls that pass on thousands of arguments: some microseconds.
//!
//! Hosts therefore also keep limits of time ([`crate::Patience`]): a call that one ends had no
//! effects, and is begun again elsewhere or may be tried again.

/// The bounds of one call. The defaults are an object class's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Safepoints the script may pass, plus what library and API calls charge. Luau has a safepoint
    /// at every call, return, backward jump and step of a pattern match. A million are 10 to 60 ms
    /// of usual work. API calls charge [`API_COST`] each, and a unit per KiB they move.
    pub instructions: u64,
    /// Bytes the call may hold at once, on top of what the VM held as it began: Lua's heap and the
    /// bytes of bufferlists.
    pub memory: usize,
    /// Bytes the call may allocate in total, garbage included; looked at whenever a quarter of
    /// [`Self::memory`] was allocated. Bounds the work of concatenating and copying, which passes
    /// few safepoints: a MiB takes about 0.2 ms.
    pub churn: usize,
    /// How deep class calls may nest (`objclass.call`); the outermost is depth 1. Lua's own
    /// recursion is bounded by Luau: 20,000 Lua frames, 200 frames that go through C (metamethods,
    /// `pcall`, `table.sort`).
    pub depth: u32,
    /// Bytes of output, all log lines together (each line counts 16 more), and of an error message with its stack.
    pub output: usize,
}

impl Budget {
    /// An object class: a million safepoints, 16 MiB at once and 1 GiB in total, 8 classes deep, 1 MiB of output.
    pub const CLASS: Self =
        Self { instructions: 1_000_000, memory: 16 << 20, churn: 1 << 30, depth: 8, output: 1 << 20 };
    /// Whether a text is a class: what stands outside its methods makes functions and small tables.
    /// A leading monitor and each OSD do it on their own thread, and no clock may decide.
    pub const CHECK: Self = Self { instructions: 50_000, memory: 2 << 20, churn: 16 << 20, ..Self::CLASS };
    /// A policy that runs every few seconds on small tables: ten times the instructions, half the
    /// memory, 64 KiB of output.
    pub const POLICY: Self =
        Self { instructions: 10_000_000, memory: 8 << 20, churn: 512 << 20, depth: 1, output: 64 << 10 };
}

impl Default for Budget {
    fn default() -> Self {
        Self::CLASS
    }
}

/// What a call of the object interface costs, in instructions: about what it costs the host in time.
pub const API_COST: u64 = 20;

/// What each pair or key of a list costs, in instructions, on its way in or out.
pub const PAIR_COST: u64 = 8;

/// Longest source text that is compiled. The compiler's own memory is not metered: this bounds it.
pub const SOURCE_MAX: usize = 256 << 10;

/// Longest message of an error, and longest of one line of its stack.
pub const MESSAGE_MAX: usize = 2048;

/// Lines of stack that an error keeps.
pub const STACK_MAX: usize = 16;
