//! Programs that namespaces name: validators and triggers (MAL-13). What the leader asks of them,
//! whatever they are written in; `scripts.rs` runs Lua.

use bytes::Bytes;
use nacre_policy::Patience;
use nacre_types::Name;
use nacre_wire::msg::meta::{MetaEvent, MetaOp, MetaPair};
use std::fmt;
use std::sync::Arc;

/// A program, as the metadata has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program<'a> {
    /// `nacre/program/NAME` without what is before the name.
    pub name: &'a str,
    /// Its text.
    pub source: &'a str,
}

/// What a program can be used as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uses {
    /// It can judge changes.
    pub validator: bool,
    /// It can follow changes.
    pub trigger: bool,
}

/// A program does not do what it should, and did not mean to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The line of the program; 0: unknown.
    pub line: u32,
    /// What is wrong.
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
    /// Program, revision, use and line: what the log has once. The message may tell of keys and
    /// values, of which there is no end.
    pub key: String,
    /// The line.
    pub text: String,
}

/// What a validator is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidateRequest {
    /// Which key.
    pub key: Name,
    /// What it is.
    pub old: Option<MetaPair>,
    /// What it is to be; none: it is to be deleted.
    pub new: Option<Bytes>,
    /// Who wants it; empty: a client without a name.
    pub who: Name,
    /// The store's revision.
    pub revision: u64,
}

/// What a validator says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Fine.
    Accept,
    /// This value instead.
    Rewrite(Bytes),
    /// No.
    Reject {
        /// The line of the program that said so; 0: unknown.
        line: u32,
        /// Why.
        message: String,
    },
    /// It could not judge: the change is refused as well, and the cluster log says so.
    Failed(Fault),
}

/// What a trigger's program is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerRequest<'a> {
    /// `namespace/name`.
    pub trigger: &'a Name,
    /// The revision that set it off.
    pub revision: u64,
    /// What that revision did to its keys.
    pub events: &'a [MetaEvent],
}

/// A change that a trigger wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerOp {
    /// A put, or the deletion of one key.
    pub op: MetaOp,
    /// Only if the revision that changed the key last is this; 0: only if it does not exist.
    /// Otherwise this change is left out.
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

/// What a trigger does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TriggerActions {
    /// Changes, as one transaction.
    pub ops: Vec<TriggerOp>,
    /// For the cluster log.
    pub lines: Vec<String>,
}

/// Runs programs. Only the leader asks, and what comes out is what is replicated: a program need
/// not give the same twice.
pub trait Programs: Send {
    /// Whether a text is a program, and what for: asked before it is stored, and before a namespace
    /// names it.
    ///
    /// # Errors
    /// Why it is none.
    fn check(&mut self, program: Program<'_>) -> Result<Uses, Fault>;
    /// Judges a change.
    fn validate(&mut self, program: Program<'_>, request: &ValidateRequest) -> Verdict;
    /// Follows a change.
    ///
    /// # Errors
    /// What went wrong, for the cluster log. The trigger is not run again for this revision.
    fn trigger(
        &mut self,
        program: Program<'_>,
        request: &TriggerRequest<'_>,
    ) -> Result<TriggerActions, Fault>;
    /// Steps done so far, to bound what one turn of the leader does; whatever a step is,
    /// [`TURN_STEPS_MAX`] take some milliseconds.
    fn steps(&self) -> u64;
    /// A turn of the leader begins: for a host's clock. Steps bound the same everywhere; a clock,
    /// only on the leader, what takes longer than its steps say.
    fn begin_turn(&mut self) {}
    /// A request or a trigger's run begins, within the turn.
    fn begin_request(&mut self) {}
    /// Whether the turn has had its time: what waits is for the next one.
    fn turn_is_over(&self) -> bool {
        false
    }
    /// Runs that the clock has ended so far.
    fn overruns(&self) -> u64 {
        0
    }
    /// The host's clock for one request, for who runs something else in it.
    fn clock(&self) -> Option<Arc<dyn Patience>> {
        None
    }
}

/// Steps of programs after which a proposal takes no further request in: the leader has others to
/// serve.
pub const TURN_STEPS_MAX: u64 = 100_000;
/// Steps of all validators of one transaction together.
pub const TRANSACTION_STEPS_MAX: u64 = 200_000;

/// A monitor without a language: what needs a program is refused, never waved through.
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
