//! What one call may use (MAL-24). Every bound is counted, none is a time: the same call stops at
//! the same point in every run.
//!
//! What a count stands for varies: a step of a loop takes 25 ns, the scripts of the zoo up to 200
//! (`cargo bench -p nacre-policy --bench zoo`). Library functions that work long in one step are
//! charged by the size of what they work on (`vm/prelude.luau`).
//!
//! Operators on strings turn them into numbers or compare them, 0.5 to 1.7 ms for each MiB (zeros;
//! `1.` with zeros), and have no safepoint. A text that has many of them may hold less, so that its
//! strings are shorter ([`Budget::operator_bytes`]); that bounds what one step takes, and hosts'
//! clocks bound all steps together: the more a step may take, the more often they are asked.
//!
//! Not charged, because nothing of ours stands before them:
//! - `next`, `pairs` or `table.clear` on a large table that was emptied: up to a millisecond per
//!   step in 16 MiB;
//! - code without a loop or a call: some nanoseconds per operation, but for functions of ours as
//!   metamethods and insertions into a full table, up to 0.2 ms each; at most [`SOURCE_MAX`] long;
//! - calls that pass on thousands of arguments: some microseconds.
//!
//! Hosts therefore also keep limits of time ([`crate::Patience`]): a call that one ends had no
//! effects, and is begun again elsewhere or may be tried again.

use crate::text::Text;

/// The bounds of one call. The defaults are an object class's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Safepoints the script may pass, plus what library and API calls charge. Luau has a
    /// safepoint at every call, return, backward jump and step of a pattern match. A million
    /// are 10 to 60 ms of usual work. API calls charge [`API_COST`] each, and a unit per KiB
    /// they move.
    pub instructions: u64,
    /// Bytes the call may hold at once, on top of what the VM held as it began: Lua's heap and the
    /// bytes of bufferlists.
    pub memory: usize,
    /// Bytes the call may allocate in total, garbage included; looked at whenever a quarter of
    /// [`Self::memory`] was allocated. Bounds the work of concatenating and copying, which passes
    /// few safepoints: a MiB takes about 0.2 ms.
    pub churn: usize,
    /// Bytes that the operators of a text could read between two safepoints: its operators times
    /// its longest string. What a call may hold shrinks until that holds; a text for which less
    /// than [`MEMORY_MIN`] would be left is refused. A GiB takes half a second to two.
    pub operator_bytes: usize,
    /// Longest text that runs, in bytes.
    pub text: usize,
    /// How deep class calls may nest (`objclass.call`); the outermost is depth 1. Lua's own
    /// recursion is bounded by Luau: 20,000 Lua frames, 200 frames that go through C (metamethods,
    /// `pcall`, `table.sort`).
    pub depth: u32,
    /// Bytes of output, all log lines together (each line counts 16 more), and of an error message
    /// with its stack.
    pub output: usize,
}

impl Budget {
    /// An object class: a million safepoints, 16 MiB at once and 1 GiB in total, 8 classes deep, 1
    /// MiB of output.
    pub const CLASS: Self = Self {
        instructions: 1_000_000,
        memory: 16 << 20,
        churn: 1 << 30,
        operator_bytes: 16 << 30,
        text: SOURCE_MAX,
        depth: 8,
        output: 1 << 20,
    };
    /// Whether a text is a class: what stands outside its methods makes functions and small tables.
    /// A leading monitor and each OSD do it on their own thread.
    pub const CHECK: Self = Self {
        instructions: 50_000,
        memory: 2 << 20,
        churn: 16 << 20,
        operator_bytes: 256 << 20,
        ..Self::CLASS
    };
    /// A policy that runs every few seconds on small tables: ten times the instructions, half the
    /// memory, 64 KiB of output.
    pub const POLICY: Self = Self {
        instructions: 10_000_000,
        memory: 8 << 20,
        churn: 512 << 20,
        operator_bytes: 8 << 30,
        text: SOURCE_MAX,
        depth: 1,
        output: 64 << 10,
    };

    /// One judgement of a change of metadata: half a millisecond to a millisecond of usual work.
    /// Room for the longest value a few times over.
    pub const VALIDATOR: Self = Self {
        instructions: 20_000,
        memory: 4 << 20,
        churn: 8 << 20,
        operator_bytes: 512 << 20,
        text: SOURCE_MAX,
        depth: 1,
        output: 264 << 10,
    };
    /// One run of a trigger of metadata. It sees all that one transaction changed.
    pub const TRIGGER: Self = Self {
        instructions: 50_000,
        memory: 8 << 20,
        churn: 24 << 20,
        output: 512 << 10,
        ..Self::VALIDATOR
    };

    /// What a call may hold that runs this text.
    ///
    /// # Errors
    /// The text is too long, or has too many operators: what to say.
    pub(crate) fn memory_for(&self, text: Text) -> Result<usize, String> {
        let Text {
            operators,
            stretch,
            length,
        } = text;
        if length > self.text {
            return Err(format!(
                "the text has {length} bytes, more than {}; split it",
                self.text
            ));
        }
        let longest = (self.operator_bytes / operators.max(1)).saturating_sub(stretch);
        match self.memory.min(longest) {
            memory if memory >= MEMORY_MIN.min(self.memory) => Ok(memory),
            _ => Err(format!(
                "the text has {operators} operators, and constants of up to {stretch} bytes; split it"
            )),
        }
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::CLASS
    }
}

/// Least that a call may hold for the sake of its text's operators, in bytes.
pub const MEMORY_MIN: usize = 64 << 10;

/// What a call of the object interface costs, in instructions: about what it costs the host in
/// time.
pub const API_COST: u64 = 20;

/// What each pair or key of a list costs, in instructions, on its way in or out.
pub const PAIR_COST: u64 = 8;

/// Longest source text that is compiled. The compiler's own memory is not metered: this bounds it,
/// the square of what meets in one place of its tables, and what a text can do without a safepoint.
pub const SOURCE_MAX: usize = 64 << 10;

/// Longest message of an error, and longest of one line of its stack.
pub const MESSAGE_MAX: usize = 2048;

/// Lines of stack that an error keeps.
pub const STACK_MAX: usize = 16;
