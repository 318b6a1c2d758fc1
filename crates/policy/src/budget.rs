//! Limits of one call (MAL-24). Every limit is a count, none is a time: the same call stops at the
//! same point in every run.
//!
//! The time per counted unit varies: a step of a loop takes 25 ns, the scripts of the zoo up to 200
//! (`cargo bench -p nacre-policy --bench zoo`). Library functions that work long in one step are
//! charged by the size of their input (`vm/prelude.luau`).
//!
//! Operators on strings convert them into numbers or compare them, which takes 0.5 to 1.7 ms per
//! MiB (zeros; `1.` with zeros), without a safepoint. A text with many operators may therefore hold
//! less memory, so that its strings are shorter ([`Budget::operator_bytes`]). That limits the time
//! of one step. The host's clock limits the sum of the steps: the more a step may take, the more
//! often the clock is read.
//!
//! Not charged, because none of our code runs before it:
//! - `next`, `pairs` or `table.clear` on a large table that was emptied: up to a millisecond per
//!   step in 16 MiB;
//! - code without a loop or a call: some nanoseconds per operation, except for our functions used
//!   as metamethods and insertions into a full table, which take up to 0.2 ms each; at most
//!   [`SOURCE_MAX`] long;
//! - calls that pass thousands of arguments: some microseconds.
//!
//! Hosts therefore also set a time limit ([`crate::Patience`]): a call stopped by it has no
//! effects, and is restarted elsewhere or may be retried.

use crate::text::Text;

/// Limits of one call. The defaults are those of an object class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Maximum number of safepoints that the script may pass, plus the charges of library and API
    /// calls. Luau has a safepoint at every call, return, backward jump and step of a pattern
    /// match. A million take 10 to 60 ms for usual code. API calls charge [`API_COST`] each, and
    /// one unit per KiB moved.
    pub instructions: u64,
    /// Bytes that the call may hold at once, in addition to what the VM held when the call began:
    /// Lua's heap and the bytes of bufferlists.
    pub memory: usize,
    /// Bytes that the call may allocate in total, including garbage; checked whenever a quarter of
    /// [`Self::memory`] has been allocated. It limits concatenating and copying, which pass few
    /// safepoints: a MiB takes about 0.2 ms.
    pub churn: usize,
    /// Bytes that the operators of a text could read between two safepoints: the number of
    /// operators times the longest string. The memory limit of a call is reduced until the product
    /// fits; a text for which less than [`MEMORY_MIN`] would remain is refused. A GiB takes half a
    /// second to two seconds.
    pub operator_bytes: usize,
    /// Maximum length of a text that runs, in bytes.
    pub text: usize,
    /// Maximum nesting of class calls (`objclass.call`); the outermost is depth 1. Luau limits
    /// Lua's own recursion: 20,000 Lua frames, 200 frames that go through C (metamethods, `pcall`,
    /// `table.sort`).
    pub depth: u32,
    /// Bytes of output, of all log lines together (each line counts 16 more), and of an error
    /// message with its stack.
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
    /// For the check whether a text is a class: the code outside its methods creates functions and
    /// small tables. The leading monitor and each OSD run it on their own thread.
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

    /// One validation of a metadata change: half a millisecond to a millisecond of usual work. The
    /// memory is several times the longest value.
    pub const VALIDATOR: Self = Self {
        instructions: 20_000,
        memory: 4 << 20,
        churn: 8 << 20,
        operator_bytes: 512 << 20,
        text: SOURCE_MAX,
        depth: 1,
        output: 264 << 10,
    };
    /// One run of a metadata trigger. It sees all changes of one transaction.
    pub const TRIGGER: Self = Self {
        instructions: 50_000,
        memory: 8 << 20,
        churn: 24 << 20,
        output: 512 << 10,
        ..Self::VALIDATOR
    };

    /// Bytes that a call may hold when it runs this text.
    ///
    /// # Errors
    /// The text is too long, or has too many operators: the message.
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

/// The minimum memory of a call after the reduction for its text's operators, in bytes.
pub const MEMORY_MIN: usize = 64 << 10;

/// Cost of a call of the object interface, in instructions: about its time on the host.
pub const API_COST: u64 = 20;

/// Cost of each pair or key of a list, in instructions, in either direction.
pub const PAIR_COST: u64 = 8;

/// Maximum length of a source text that is compiled. The compiler's own memory is not metered. This
/// limit bounds it, as well as the quadratic behaviour of its tables and the work that a text can
/// do without a safepoint.
pub const SOURCE_MAX: usize = 64 << 10;

/// Maximum length of an error message, and of one line of its stack.
pub const MESSAGE_MAX: usize = 2048;

/// Maximum number of stack lines that an error keeps.
pub const STACK_MAX: usize = 16;
