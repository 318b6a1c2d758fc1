//! Service metadata as it stands in the consensus log and in snapshots. `docs/formats/mon.md`.

use nacre_types::{Entity, Instance, Name};
use nacre_wire::msg::meta::{
    MetaCompare, MetaError, MetaEvent, MetaOp, MetaPair, MetaResult, MetaSpan,
};
use nacre_wire::{wire_enum, wire_record};
use std::collections::BTreeMap;

/// Who asked for an entry, so that it is carried out once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaWho {
    /// The client.
    pub client: Entity,
    /// Which life of it.
    pub instance: Instance,
    /// Its number for the request.
    pub sequence: u64,
    /// Below, it needs no answer remembered.
    pub answered_below: u64,
    /// The newest revision it knew when it first asked.
    pub known: u64,
    /// Whether it asked before.
    pub again: bool,
    /// Its name: the owner of the leases it takes.
    pub name: Name,
}
wire_record!(MetaWho version 1 compat 1 { client, instance, sequence, answered_below, known, again, name });

/// The leader's judgement rests on this key not having changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaGuard {
    /// Which.
    pub key: Name,
    /// Its revision then; 0: it did not exist.
    pub modified: u64,
}
wire_record!(MetaGuard version 1 compat 1 { key, modified });

/// The leader's judgement rests on nothing of this span having been written since; deletions do not
/// matter to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaQuiet {
    /// Which keys, those that did not exist among them.
    pub span: MetaSpan,
    /// The store's revision then.
    pub since: u64,
}
wire_record!(MetaQuiet version 1 compat 1 { span, since });

/// What a namespace may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaLimit {
    /// Which; empty: all together.
    pub namespace: Name,
    /// Most bytes of keys and values.
    pub bytes: u64,
    /// Most keys.
    pub keys: u64,
}
wire_record!(MetaLimit version 1 compat 1 { namespace, bytes, keys });

/// Changes of these keys are to be followed by something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaTrigger {
    /// `namespace/name`.
    pub name: Name,
    /// Keys that begin so.
    pub prefix: Name,
}
wire_record!(MetaTrigger version 1 compat 1 { name, prefix });

/// What the leader found in the namespaces' settings. It stands in the entry, so that applying
/// never reads settings, whose form may grow: monitors of two versions apply alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaTerms {
    /// If one does not hold, the entry does nothing, and the leader judges again.
    pub guards: Vec<MetaGuard>,
    /// Of the namespaces that are written.
    pub limits: Vec<MetaLimit>,
    /// Of the namespaces that are written.
    pub triggers: Vec<MetaTrigger>,
    /// How many triggers led to this one after another.
    pub depth: u32,
    /// As `guards`, for what the leader looked for and did not find.
    pub quiet: Vec<MetaQuiet>,
}
// Compat 2: a monitor that left it out would apply what others do not.
wire_record!(MetaTerms version 2 compat 2 { guards, limits, triggers, depth } since 2 { quiet });

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaAct {
    /// A transaction.
    Transact {
        /// All must hold.
        compares: Vec<MetaCompare>,
        /// If they do.
        then: Vec<MetaOp>,
        /// If they do not.
        otherwise: Vec<MetaOp>,
    },
    /// A new lease.
    Grant {
        /// In milliseconds.
        ttl_ms: u64,
    },
    /// A lease ends: its owner says so, or the leader has not heard of it for its time.
    Revoke {
        /// Which.
        lease: u64,
    },
    /// What a trigger did; its event is done with.
    Fired {
        /// Which trigger.
        trigger: Name,
        /// For which revision.
        revision: u64,
        /// The changes.
        ops: Vec<MetaOp>,
        /// For the cluster log.
        lines: Vec<String>,
    },
    /// Nothing: the request was judged and refused. It stands in the log so that no late copy of it
    /// is carried out after its client was told.
    Refuse {
        /// Why.
        error: MetaError,
    },
}
impl MetaAct {
    /// Whether it changes nothing, whatever its compares choose: carried out twice, it did no more
    /// than once.
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
    /// Nobody: the leader itself.
    pub who: Option<MetaWho>,
    /// What.
    pub act: MetaAct,
    /// What the leader found in the settings.
    pub terms: MetaTerms,
}
wire_record!(MetaEntry version 1 compat 1 { who, act, terms });

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaHolding {
    /// In milliseconds.
    pub ttl_ms: u64,
    /// Whose.
    pub owner: Name,
}
wire_record!(MetaHolding version 1 compat 1 { ttl_ms, owner });

/// A client's latest answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaSession {
    /// Which life of the client.
    pub instance: Instance,
    /// Requests below are answered and forgotten.
    pub low: u64,
    /// The store's revision when it was last heard of.
    pub revision: u64,
    /// Counts entries: whoever was heard of least lately goes first.
    pub touched: u64,
    /// By sequence: the revision and the result.
    pub results: BTreeMap<u64, (u64, MetaResult)>,
}
wire_record!(MetaSession version 1 compat 1 { instance, low, revision, touched, results });

/// A trigger's work that is not done yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaPending {
    /// `namespace/name`.
    pub trigger: Name,
    /// The revision that set it off.
    pub revision: u64,
    /// How many triggers led to it one after another, itself included.
    pub depth: u32,
    /// What of its keys that revision changed.
    pub events: Vec<MetaEvent>,
}
wire_record!(MetaPending version 1 compat 1 { trigger, revision, depth, events });

/// Everything, as bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaImage {
    /// The newest revision.
    pub revision: u64,
    /// Entries so far.
    pub entries: u64,
    /// By key.
    pub pairs: Vec<MetaPair>,
    /// The newest revisions' events.
    pub history: Vec<Vec<MetaEvent>>,
    /// Leases.
    pub leases: BTreeMap<u64, MetaHolding>,
    /// The newest lease's number.
    pub last_lease: u64,
    /// Who asked what lately.
    pub sessions: BTreeMap<Entity, MetaSession>,
    /// Sessions forgotten were last heard of at this revision at the latest; none were when none.
    pub forgotten: Option<u64>,
    /// What triggers have yet to do.
    pub pending: Vec<MetaPending>,
}
wire_record!(MetaImage version 1 compat 1 {
    revision, entries, pairs, history, leases, last_lease, sessions, forgotten, pending,
});
