//! The states of an update: a change without a position in the log, an ordered one, one in flight;
//! and its store operations.

use super::local::Ops;
use super::pending::Pending;
use crate::key;
use crate::room::UPDATE_BESIDE;
use nacre_object::{Context, VERSION_ATTR, version_value};
use nacre_store::{ObjectKey, Op};
use nacre_types::{Entity, ObjectId, OsdId, PgId, Time, Version};
use nacre_wire::msg::PayloadCursor;
use nacre_wire::msg::client::{OpFailure, OpReply, RequestId, SubReply};
use nacre_wire::msg::replication::Effect;
use nacre_wire::{Payload, Record};
use smallvec::SmallVec;

/// A reply, ready to be sent.
#[derive(Debug)]
pub struct Answer {
    /// The receiver.
    pub to: Entity,
    /// The reply.
    pub reply: OpReply,
    /// Its data.
    pub payload: Payload,
    /// The operation, still counted as in flight.
    pub op: Option<Box<Pending>>,
}

impl Answer {
    /// The answer of an executed operation: its result is of `version`.
    pub(super) fn new(op: Box<Pending>, version: Version, results: Vec<SubReply>) -> Self {
        let reply = OpReply {
            request: op.request.request,
            failure: None,
            version,
            results,
            attempt: op.request.attempt,
        };
        Self {
            to: op.from,
            reply,
            payload: Payload::new(),
            op: Some(op),
        }
    }
    /// The same operation has failed, regardless of its results.
    pub(super) fn with_failure(mut self, failure: Option<OpFailure>) -> Self {
        self.reply.failure = failure;
        self
    }

    /// Whether the other one answers the same operation of a client.
    pub(super) fn is_for(&self, other: &Self) -> bool {
        self.reply.request == other.reply.request && self.reply.request.sequence != 0
    }
}

/// An update that is not committed yet.
#[derive(Debug)]
pub struct InFlight {
    /// Its version.
    pub version: Version,
    /// Its object.
    pub object: ObjectId,
    /// The answers to send when it is committed.
    pub answers: Vec<Answer>,
    /// Kept for resending.
    pub entry: Record,
    /// Kept for resending.
    pub effects: Vec<Effect>,
    /// All other members get the entry only.
    pub entry_only: bool,
    /// Kept for resending.
    pub payload: Payload,
    /// Members that get it without data: they lacked the object when it was ordered. It is resent
    /// in the same form, even if they have the object by then.
    pub without: Vec<OsdId>,
    /// When it was last sent.
    pub sent: Time,
    /// Its client requested a message when it is applied in memory everywhere, and has not got it
    /// yet.
    pub early: bool,
    /// The members' space that it takes, in bytes ([`crate::room`]).
    pub room: u64,
}

/// A change of an object that has no position in the log yet.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) object: ObjectId,
    pub(super) before: Context,
    /// The object's context afterwards, except for its version.
    pub(super) context: Context,
    /// In order, without the version attribute.
    pub(super) effects: Vec<Effect>,
    pub(super) payload: Payload,
    pub(super) request: RequestId,
    pub(super) answered_below: u64,
    pub(super) results: Vec<SubReply>,
}

/// Changes that are ordered, stored and sent together: nearly always one, whose kilobyte needs no
/// memory of its own.
pub(super) type OrderedTogether = SmallVec<[Ordered; 1]>;

/// A change with its position in the log.
#[derive(Debug)]
pub(super) struct Ordered {
    pub(super) update: InFlight,
    pub(super) context: Context,
    pub(super) watch_change: super::watch::Change,
}

impl Ordered {
    /// An update whose result is here already, and reaches the others by recovery.
    pub(super) fn without_data(update: InFlight, context: &Context) -> Self {
        let version = if update.entry.deleted() {
            Version::NONE
        } else {
            update.version
        };
        Self {
            update,
            context: Context {
                version,
                ..context.clone()
            },
            watch_change: Default::default(),
        }
    }
}

impl InFlight {
    /// An update without answers.
    pub(super) fn new(entry: Record, effects: Vec<Effect>, payload: Payload, now: Time) -> Self {
        Self {
            version: entry.version(),
            object: entry.object().clone(),
            answers: Vec::new(),
            room: room_of(&effects, &payload),
            entry_only: entry.deleted() && effects.is_empty(),
            entry,
            effects,
            payload,
            without: Vec::new(),
            sent: now,
            early: false,
        }
    }

    /// An update whose result is here, and of which the others get only the entry.
    pub(super) fn without_data(entry: Record, now: Time) -> Self {
        Self {
            entry_only: true,
            ..Self::new(entry, Vec::new(), Payload::new(), now)
        }
    }

    /// Whether the member has the correct object after this update, even if it lacked it. (For
    /// members that do not act, recovery brings the object.)
    pub(super) fn is_anew_at(&self, osd: OsdId, acting: &[OsdId]) -> bool {
        wipes(&self.effects) && acting.contains(&osd)
    }

    /// The origin of the clone that it makes.
    pub(super) fn clone_source(&self) -> Option<ObjectId> {
        clone_source(&self.object, &self.effects)
    }
}

/// The origin of the clone that these effects make.
pub(super) fn clone_source(object: &ObjectId, effects: &[Effect]) -> Option<ObjectId> {
    let clone = |effect: &Effect| {
        if let Effect::CloneFrom { snapshot } = effect {
            Some(*snapshot)
        } else {
            None
        }
    };
    effects
        .iter()
        .find_map(clone)
        .map(|snapshot| nacre_object::snaps::at(object, snapshot))
}

/// Whether these effects replace the object completely: members that lack it need nothing else.
pub(super) fn wipes(effects: &[Effect]) -> bool {
    let clones = |effect: &Effect| matches!(effect, Effect::CloneFrom { .. });
    matches!(effects.first(), Some(Effect::Remove {})) && !effects.iter().any(clones)
}

/// The approximate bytes of a store that an update takes: at least what the store counts, for usual
/// ones. Attributes and omap entries are records of its index, which take more than their own
/// bytes.
pub(super) fn room_of(effects: &[Effect], payload: &Payload) -> u64 {
    let records = nacre_store::INDEX_COST * nacre_object::evaluate::small_bytes(effects) as u64;
    nacre_wire::msg::payload_len(payload) as u64 + records + UPDATE_BESIDE
}

/// The operations that set an object's version to that of its last update, and the time.
pub(super) fn version_attr(object: ObjectKey, entry: &Record) -> Op {
    let value = version_value(entry.version(), entry.modified_ms());
    Op::SetAttr {
        object,
        name: bytes::Bytes::from_static(VERSION_ATTR),
        value,
    }
}

/// An update as store operations.
pub(super) fn apply_update(
    pg: PgId,
    entry: &Record,
    effects: &[Effect],
    payload: Payload,
    ops: &mut Ops,
) -> Option<()> {
    let mut data = PayloadCursor::new(payload);
    // Computed once: it hashes a name.
    let key = key::store_key(pg, entry.object());
    let object = || key.clone();
    for effect in effects {
        ops.push(match effect {
            Effect::Touch {} => Op::Touch(object()),
            Effect::Write { offset, length } => Op::Write {
                object: object(),
                offset: *offset,
                data: data.take(usize::try_from(*length).ok()?).ok()?,
            },
            Effect::Zero { offset, length } => Op::Zero {
                object: object(),
                offset: *offset,
                length: *length,
            },
            Effect::Truncate { size } => Op::Truncate {
                object: object(),
                size: *size,
            },
            Effect::Remove {} => Op::Remove(object()),
            Effect::SetAttr { name, value } => {
                let name = bytes::Bytes::copy_from_slice(name.as_bytes());
                Op::SetAttr {
                    object: object(),
                    name,
                    value: value.clone(),
                }
            }
            Effect::RemoveAttr { name } => Op::RemoveAttr {
                object: object(),
                name: bytes::Bytes::copy_from_slice(name.as_bytes()),
            },
            Effect::OmapSet { entries } => Op::OmapSet {
                object: object(),
                entries: entries.clone(),
            },
            Effect::OmapRemove { keys } => Op::OmapRemove {
                object: object(),
                keys: keys.clone(),
            },
            Effect::OmapClear {} => Op::OmapClear(object()),
            Effect::CloneFrom { snapshot } => Op::Clone {
                from: key::store_key(pg, &nacre_object::snaps::at(entry.object(), *snapshot)),
                to: object(),
            },
        });
    }
    if !entry.deleted() {
        ops.push(version_attr(key, entry));
    }
    Some(())
}
