//! Programs that namespaces name: validators and triggers (MAL-13). The monitor knows no language; its host brings one.

use bytes::Bytes;
use nacre_types::Name;
use nacre_wire::msg::meta::{MetaEvent, MetaOp, MetaPair};

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
    /// No. Also what a program's own failure is.
    Reject {
        /// The line of the program that said so; 0: unknown.
        line: u32,
        /// Why.
        message: String,
    },
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

/// What a trigger does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TriggerActions {
    /// Changes, as one transaction.
    pub ops: Vec<MetaOp>,
    /// For the cluster log.
    pub lines: Vec<String>,
}

/// Runs programs. Only the leader asks, and what comes out is what is replicated: a program need not give the same twice.
pub trait Programs: Send {
    /// Judges a change by a validator's source.
    fn validate(&mut self, source: &str, request: &ValidateRequest) -> Verdict;
    /// Runs a trigger's source.
    ///
    /// # Errors
    /// What went wrong, for the cluster log. The trigger is not run again for this revision.
    fn trigger(&mut self, source: &str, request: &TriggerRequest<'_>) -> Result<TriggerActions, String>;
}

/// A monitor without a language: what needs a program is refused, never waved through.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPrograms;

const NONE: &str =
    "these monitors run no programs; start them with a version that does, or remove it from the namespace's settings";

impl Programs for NoPrograms {
    fn validate(&mut self, _source: &str, _request: &ValidateRequest) -> Verdict {
        Verdict::Reject { line: 0, message: NONE.to_owned() }
    }
    fn trigger(&mut self, _source: &str, _request: &TriggerRequest<'_>) -> Result<TriggerActions, String> {
        Err(NONE.to_owned())
    }
}
