//! Service metadata as encoded in the consensus log and in snapshots. `docs/formats/mon.md`.

use nacre_types::{Entity, Instance, Name};
use nacre_wire::msg::meta::{
    MetaCompare, MetaError, MetaEvent, MetaOp, MetaPair, MetaResult, MetaSpan,
};
use nacre_wire::{wire_enum, wire_record};
use std::collections::BTreeMap;

/// The requester of an entry, so that it is executed once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaWho {
    /// The client.
    pub client: Entity,
    /// Its instance.
    pub instance: Instance,
    /// Its number for the request.
    pub sequence: u64,
    /// Requests below this number need no remembered answer.
    pub answered_below: u64,
    /// The newest revision that it knew when it first sent the request.
    pub known: u64,
    /// Whether the request was sent before.
    pub again: bool,
    /// Its name: the owner of the leases that it takes.
    pub name: Name,
}
wire_record!(MetaWho version 1 compat 1 { client, instance, sequence, answered_below, known, again, name });

/// The leader's judgement requires that this key has not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaGuard {
    /// The key.
    pub key: Name,
    /// Its revision then; 0: it did not exist.
    pub modified: u64,
}
wire_record!(MetaGuard version 1 compat 1 { key, modified });

/// The leader's judgement requires that no key of this span was written since; deletions do not
/// matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaQuiet {
    /// The keys, including those that did not exist.
    pub span: MetaSpan,
    /// The store's revision then.
    pub since: u64,
}
wire_record!(MetaQuiet version 1 compat 1 { span, since });

/// Limits of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaLimit {
    /// The namespace; empty: all together.
    pub namespace: Name,
    /// Maximum bytes of keys and values.
    pub bytes: u64,
    /// Maximum number of keys.
    pub keys: u64,
}
wire_record!(MetaLimit version 1 compat 1 { namespace, bytes, keys });

/// A trigger on changes of these keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaTrigger {
    /// `namespace/name`.
    pub name: Name,
    /// Prefix of its keys.
    pub prefix: Name,
}
wire_record!(MetaTrigger version 1 compat 1 { name, prefix });

/// What the leader read in the namespaces' settings. The entry contains it, so that applying never
/// reads settings, whose format may be extended: monitors of two versions apply alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaTerms {
    /// If one does not hold, the entry does nothing, and the leader judges again.
    pub guards: Vec<MetaGuard>,
    /// Limits of the written namespaces.
    pub limits: Vec<MetaLimit>,
    /// Triggers of the written namespaces.
    pub triggers: Vec<MetaTrigger>,
    /// Number of triggers that led to this one after another.
    pub depth: u32,
    /// As `guards`, for keys that the leader looked for and did not find.
    pub quiet: Vec<MetaQuiet>,
}
// Compat 2: a monitor that ignored it would apply what others do not.
wire_record!(MetaTerms version 2 compat 2 { guards, limits, triggers, depth } since 2 { quiet });

/// The operation of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaAct {
    /// A transaction.
    Transact {
        /// All must hold to choose `then`.
        compares: Vec<MetaCompare>,
        /// Executed if they hold.
        then: Vec<MetaOp>,
        /// Executed if they do not.
        otherwise: Vec<MetaOp>,
    },
    /// A new lease.
    Grant {
        /// In milliseconds.
        ttl_ms: u64,
    },
    /// Ends a lease: its owner requests it, or it has expired at the leader.
    Revoke {
        /// The lease.
        lease: u64,
    },
    /// Result of a trigger run; its event is done.
    Fired {
        /// The trigger.
        trigger: Name,
        /// The revision of its event.
        revision: u64,
        /// The changes.
        ops: Vec<MetaOp>,
        /// For the cluster log.
        lines: Vec<String>,
    },
    /// Nothing: the request was judged and refused. The entry ensures that no late copy of the
    /// request is executed after its client was told.
    Refuse {
        /// The reason.
        error: MetaError,
    },
}
impl MetaAct {
    /// Whether it changes nothing in either branch: executing it twice is harmless.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        let reads = |ops: &[MetaOp]| ops.iter().all(|op| matches!(op, MetaOp::Get { .. }));
        matches!(self, Self::Transact { then, otherwise, .. } if reads(then) && reads(otherwise))
    }
}
wire_enum!(MetaAct {
    1 => Transact { compares, then, otherwise },
    2 => Grant { ttl_ms },
    3 => Revoke { lease },
    4 => Fired { trigger, revision, ops, lines },
    5 => Refuse { error },
});

/// One entry: at most one new revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaEntry {
    /// The requester; `None`: the leader itself.
    pub who: Option<MetaWho>,
    /// The operation.
    pub act: MetaAct,
    /// What the leader read in the settings.
    pub terms: MetaTerms,
}
wire_record!(MetaEntry version 1 compat 1 { who, act, terms });

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaHolding {
    /// In milliseconds.
    pub ttl_ms: u64,
    /// Its owner.
    pub owner: Name,
}
wire_record!(MetaHolding version 1 compat 1 { ttl_ms, owner });

/// A client's latest answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaSession {
    /// The client's instance.
    pub instance: Instance,
    /// Requests below are answered and forgotten.
    pub low: u64,
    /// The store's revision at its last request.
    pub revision: u64,
    /// Count of entries at its last request: the session with the lowest is dropped first.
    pub touched: u64,
    /// By sequence: the revision and the result.
    pub results: BTreeMap<u64, (u64, MetaResult)>,
}
wire_record!(MetaSession version 1 compat 1 { instance, low, revision, touched, results });

/// A pending trigger run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaPending {
    /// `namespace/name`.
    pub trigger: Name,
    /// The revision that triggered it.
    pub revision: u64,
    /// Number of triggers that led to it one after another, itself included.
    pub depth: u32,
    /// The changes of that revision to its keys.
    pub events: Vec<MetaEvent>,
}
wire_record!(MetaPending version 1 compat 1 { trigger, revision, depth, events });

/// The complete state, as bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaImage {
    /// The newest revision.
    pub revision: u64,
    /// Number of entries so far.
    pub entries: u64,
    /// By key.
    pub pairs: Vec<MetaPair>,
    /// The newest revisions' events.
    pub history: Vec<Vec<MetaEvent>>,
    /// Leases.
    pub leases: BTreeMap<u64, MetaHolding>,
    /// The newest lease's number.
    pub last_lease: u64,
    /// Recent requests by client.
    pub sessions: BTreeMap<Entity, MetaSession>,
    /// All forgotten sessions were last used at this revision or before; `None` if none was
    /// forgotten.
    pub forgotten: Option<u64>,
    /// Pending trigger runs.
    pub pending: Vec<MetaPending>,
}
wire_record!(MetaImage version 1 compat 1 {
    revision, entries, pairs, history, leases, last_lease, sessions, forgotten, pending,
});
