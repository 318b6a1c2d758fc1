//! Lua in a sandbox: object classes (Malacology, Sevilla et al., EuroSys 2017, §4.2 "Data I/O";
//! MAL-20 to MAL-29) and, on the same machine, policies, validators and balancers (MAL-07, MAL-24,
//! UNI-01).
//!
//! ```text
//!            call: class, method, input, budget           effects, as they happen
//!   host ────────────────────────────────────▶ ClassVm ───────────────────────────▶ O: Object (the host's, moved in)
//!        ◀──────────────────────────────────── │     │
//!          (O, Done(status, output) | Wait)    │     └─ vm/prelude.luau: the environment a script sees
//!                                              └─ vm/: Luau, through mlua; named nowhere else
//! ```
//!
//! A program can fail, but it cannot do damage. Every call has a budget of instructions and memory
//! and a separate environment. It cannot reach a clock, a file, or the state of another call. Its
//! changes to the object are the host's transaction, committed or dropped as a whole.
//!
//! Invariants (tests/):
//! 1. Same chunk, input, object, request, seed and budget: same status, output, log, effects and
//!    instructions, in every process and regardless of what ran in the VM before.
//! 2. A call whose budget is spent ends; no `pcall`, metamethod or error handler keeps it running.
//! 3. The only trace that a call leaves for the next one is its change of the object.
//! 4. A number crosses the boundary between Rust and Lua exactly or not at all.
//!
//! Start reading at [`object`] (what a class can do), [`class`] (what a call is), `vm/prelude.luau`
//! (what a script sees), [`vm`].
#![forbid(unsafe_code)]

pub mod budget;
mod check;
pub mod chunk;
pub mod class;
pub mod error;
mod guard;
pub mod library;
pub mod native;
pub mod object;
pub mod regimes;
mod text;
pub mod value;
pub mod vm;

pub use budget::Budget;
pub use check::{check_class, check_class_within, check_script};
pub use chunk::{Chunk, Profile};
pub use class::{
    Call, CallEnd, CallOutcome, Class, ClassRef, Classes, Context, MethodFlags, NativeClass,
    Request, Target,
};
pub use error::{Kind, ScriptError, errno};
pub use object::{DERIVED, Object, Page, Severity, Stat, Stop};
pub use value::{INTEGER_MAX, Value};
pub use vm::{ClassVm, Patience, Ran, Run, Vm, VmStats};
