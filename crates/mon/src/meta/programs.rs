//! Programs that namespaces name: validators and triggers (MAL-13). The leader's interface to them,
//! independent of the language; `scripts.rs` runs Lua.

use bytes::Bytes;
use nacre_policy::Patience;
use nacre_types::Name;
use nacre_wire::msg::meta::{MetaEvent, MetaOp, MetaPair};
use std::fmt;
use std::sync::Arc;

/// A program, as stored in the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program<'a> {
    /// `NAME` of `nacre/program/NAME`.
    pub name: &'a str,
    /// Its text.
    pub source: &'a str,
}

/// Possible uses of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uses {
    /// It can judge changes.
    pub validator: bool,
    /// It can follow changes.
    pub trigger: bool,
}

/// An unintended failure of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The line of the program; 0: unknown.
    pub line: u32,
    /// The error.
    pub message: String,
}
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        f.write_str(&self.message)
    }
}

/// A fault for the cluster log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultLine {
    /// Program, revision, use and line: the key by which the log holds it once. The message is no
    /// key, since it may contain keys and values, and varies without bound.
    pub key: String,
    /// The line.
    pub text: String,
}

/// Input of a validator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidateRequest {
    /// The key.
    pub key: Name,
    /// Its current pair.
    pub old: Option<MetaPair>,
    /// Its new value; `None`: it is to be deleted.
    pub new: Option<Bytes>,
    /// The requesting client; empty: one without a name.
    pub who: Name,
    /// The store's revision.
    pub revision: u64,
}

/// Output of a validator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The change is accepted.
    Accept,
    /// This value is written instead.
    Rewrite(Bytes),
    /// The change is rejected.
    Reject {
        /// The line of the program that rejected it; 0: unknown.
        line: u32,
        /// The reason.
        message: String,
    },
    /// It could not judge: the change is refused as well, with a line in the cluster log.
    Failed(Fault),
}

/// Input of a trigger's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerRequest<'a> {
    /// `namespace/name`.
    pub trigger: &'a Name,
    /// The revision that triggered it.
    pub revision: u64,
    /// The changes of that revision to its keys.
    pub events: &'a [MetaEvent],
}

/// A change requested by a trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerOp {
    /// A put, or the deletion of one key.
    pub op: MetaOp,
    /// Condition: the revision of the key's last change; 0: the key does not exist. If it does not
    /// hold, this change is left out.
    pub if_revision: Option<u64>,
}
impl From<MetaOp> for TriggerOp {
    fn from(op: MetaOp) -> Self {
        Self {
            op,
            if_revision: None,
        }
    }
}

/// Output of a trigger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TriggerActions {
    /// Changes, as one transaction.
    pub ops: Vec<TriggerOp>,
    /// Lines for the cluster log.
    pub lines: Vec<String>,
}

/// Runs programs. Only the leader calls them, and their output is replicated: a program need not be
/// deterministic.
pub trait Programs: Send {
    /// Checks a text, and returns its possible uses: called before it is stored, and before a
    /// namespace names it.
    ///
    /// # Errors
    /// Why it is not a program.
    fn check(&mut self, program: Program<'_>) -> Result<Uses, Fault>;
    /// Judges a change.
    fn validate(&mut self, program: Program<'_>, request: &ValidateRequest) -> Verdict;
    /// Runs a trigger's program.
    ///
    /// # Errors
    /// The fault, for the cluster log. The trigger is not run again for this revision.
    fn trigger(
        &mut self,
        program: Program<'_>,
        request: &TriggerRequest<'_>,
    ) -> Result<TriggerActions, Fault>;
    /// Steps executed so far, to bound one turn of the leader; [`TURN_STEPS_MAX`] of them take some
    /// milliseconds, whatever the unit.
    fn steps(&self) -> u64;
    /// Begins a turn of the leader, for a host's clock. Steps are bounded in the same way
    /// everywhere; a clock, only on the leader, bounds steps that take longer than expected.
    fn begin_turn(&mut self) {}
    /// Begins a request or a trigger's run, within the turn.
    fn begin_request(&mut self) {}
    /// Whether the turn has used up its time: pending requests wait for the next one.
    fn turn_is_over(&self) -> bool {
        false
    }
    /// Number of runs that the clock has stopped so far.
    fn overruns(&self) -> u64 {
        0
    }
    /// The host's clock for one request, for other code that runs in it.
    fn clock(&self) -> Option<Arc<dyn Patience>> {
        None
    }
}

/// Steps of programs after which a proposal takes no further request: the leader has others to
/// serve.
pub const TURN_STEPS_MAX: u64 = 100_000;
/// Maximum steps of all validators of one transaction together.
pub const TRANSACTION_STEPS_MAX: u64 = 200_000;

/// A monitor without a language: requests that need a program are refused, never accepted
/// unchecked.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPrograms;

const NONE: &str = "these monitors run no programs; start them with a version that does, or remove it from the namespace's settings";

fn none() -> Fault {
    Fault {
        line: 0,
        message: NONE.to_owned(),
    }
}

impl Programs for NoPrograms {
    fn check(&mut self, _program: Program<'_>) -> Result<Uses, Fault> {
        Ok(Uses {
            validator: true,
            trigger: true,
        })
    }
    fn validate(&mut self, _program: Program<'_>, _request: &ValidateRequest) -> Verdict {
        Verdict::Failed(none())
    }
    fn trigger(
        &mut self,
        _program: Program<'_>,
        _request: &TriggerRequest<'_>,
    ) -> Result<TriggerActions, Fault> {
        Err(none())
    }
    fn steps(&self) -> u64 {
        0
    }
}
