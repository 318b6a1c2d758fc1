//! Properties of operations' parts that do not depend on the object: one table with every part in
//! it.
//!
//! What depends on the object is decided in the crate `object` alone; engines and clients use this
//! table.

use super::client::{OP_BYTES_MAX, SubOp};
use super::snap::COPY_SMALL_BYTES_MAX;
use bytes::Bytes;
use nacre_types::{Name, ObjectId};

/// The kind of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads the object's data, attributes or omap.
    Reads,
    /// Changes data, attributes or omap.
    Writes,
    /// A condition on data, attributes or omap.
    Guards,
    /// Runs a method; only its class decides whether it writes.
    Calls,
    /// Changes watches and locks, which only the live object has.
    Claims,
    /// Reads watches, locks, clones, or something that belongs to no object; not possible on a
    /// snapshot.
    Asks,
}

/// What a part reads besides the object's existence, size and version. An engine that has to fetch
/// it does so before the operation is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looks<'a> {
    /// Nothing, or nothing known in advance.
    Nothing,
    /// Attributes.
    Attrs,
    /// Data: first byte and length.
    Data(u64, u64),
    /// Values of omap keys.
    Keys(&'a [Bytes]),
    /// Omap entries: after this key, at most this many.
    Entries(&'a Bytes, u32),
    /// Attributes, data and omap.
    All,
}

/// Which other parts may be in the same operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stands {
    /// Any.
    Free,
    /// None; the text is the error otherwise.
    Alone(&'static str),
    /// It must be the last part, and parts before it must not write.
    Last,
}

/// See the module head.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Bytes of the operation's payload that belong to it.
    pub payload: u64,
    /// Bytes that its answer may have; counted only where that can be many.
    pub reply: u64,
    /// End of the range that it writes or compares, excluded.
    pub end: u64,
    /// The client attribute that it names.
    pub attr: Option<&'a Name>,
    /// The lock that it names.
    pub lock: Option<&'a Name>,
    /// What it reads.
    pub looks: Looks<'a>,
    /// What it may be combined with.
    pub stands: Stands,
}

/// Assumed size of a page of an omap.
const OMAP_REPLY: u64 = 1 << 20;

const fn plain<'a>(kind: Kind) -> Facts<'a> {
    let (looks, stands) = (Looks::Nothing, Stands::Free);
    Facts {
        kind,
        payload: 0,
        reply: 0,
        end: 0,
        attr: None,
        lock: None,
        looks,
        stands,
    }
}

impl SubOp {
    /// The table.
    #[inline]
    #[must_use]
    pub fn facts(&self) -> Facts<'_> {
        use Kind::{Asks, Calls, Claims, Guards, Reads, Writes};
        match self {
            Self::Read { offset, length } => {
                let reply = if *length < OP_BYTES_MAX {
                    *length
                } else {
                    OP_BYTES_MAX
                };
                Facts {
                    reply,
                    looks: Looks::Data(*offset, *length),
                    ..plain(Reads)
                }
            }
            Self::Checksum { offset, length } => Facts {
                looks: Looks::Data(*offset, *length),
                ..plain(Reads)
            },
            Self::Stat {} => plain(Reads),
            Self::GetAttr { name } => Facts {
                attr: Some(name),
                looks: Looks::Attrs,
                ..plain(Reads)
            },
            Self::ListAttrs {} => Facts {
                looks: Looks::Attrs,
                ..plain(Reads)
            },
            Self::OmapGet { keys } => Facts {
                reply: OMAP_REPLY,
                looks: Looks::Keys(keys),
                ..plain(Reads)
            },
            Self::OmapList { after, limit } => Facts {
                reply: OMAP_REPLY,
                looks: Looks::Entries(after, *limit),
                ..plain(Reads)
            },
            Self::ReadWhole {} => {
                let (reply, stands) = (
                    OP_BYTES_MAX + COPY_SMALL_BYTES_MAX as u64,
                    "reading a whole object stands alone",
                );
                Facts {
                    reply,
                    looks: Looks::All,
                    stands: Stands::Alone(stands),
                    ..plain(Reads)
                }
            }
            Self::Write { offset, length } => Facts {
                payload: *length,
                end: offset.saturating_add(*length),
                ..plain(Writes)
            },
            Self::WriteFull { length } | Self::Append { length } => Facts {
                payload: *length,
                ..plain(Writes)
            },
            Self::Zero { offset, length } => Facts {
                end: offset.saturating_add(*length),
                ..plain(Writes)
            },
            Self::Truncate { size } => Facts {
                end: *size,
                ..plain(Writes)
            },
            Self::Create { .. } | Self::Delete {} => plain(Writes),
            Self::SetAttr { name, .. } => Facts {
                attr: Some(name),
                ..plain(Writes)
            },
            Self::RemoveAttr { name } => Facts {
                attr: Some(name),
                looks: Looks::Attrs,
                ..plain(Writes)
            },
            Self::OmapSet { .. } | Self::OmapRemove { .. } | Self::OmapClear {} => plain(Writes),
            Self::Rollback { .. } | Self::CopyFrom { .. } => Facts {
                looks: Looks::Attrs,
                stands: Stands::Last,
                ..plain(Writes)
            },
            Self::AssertExists { .. } | Self::AssertVersion { .. } => plain(Guards),
            Self::CompareData { offset, length } => {
                let (end, looks) = (
                    offset.saturating_add(*length),
                    Looks::Data(*offset, *length),
                );
                Facts {
                    payload: *length,
                    end,
                    looks,
                    ..plain(Guards)
                }
            }
            Self::CompareAttr { name, .. } => Facts {
                attr: Some(name),
                looks: Looks::Attrs,
                ..plain(Guards)
            },
            Self::Call { length, .. } => Facts {
                payload: *length,
                ..plain(Calls)
            },
            Self::Eval { script, input, .. } => Facts {
                payload: script.saturating_add(*input),
                ..plain(Calls)
            },
            Self::Watch { .. } | Self::Unwatch { .. } => plain(Claims),
            Self::Lock { name, .. } | Self::Unlock { name, .. } | Self::BreakLock { name, .. } => {
                Facts {
                    lock: Some(name),
                    ..plain(Claims)
                }
            }
            Self::AssertLock { name, .. } => Facts {
                lock: Some(name),
                ..plain(Asks)
            },
            Self::ListLocks {} | Self::ListWatchers {} | Self::ListSnaps {} => plain(Asks),
            Self::ListObjects { .. } => Facts {
                stands: Stands::Alone("a listing stands alone"),
                ..plain(Asks)
            },
            Self::Notify { length, .. } => {
                let stands = Stands::Alone("a notify stands alone in its operation");
                Facts {
                    payload: *length,
                    stands,
                    ..plain(Asks)
                }
            }
        }
    }

    /// Whether it changes the object, or may: for a call, only the class knows.
    #[inline]
    #[must_use]
    pub fn is_write(&self) -> bool {
        match self.facts().kind {
            Kind::Writes | Kind::Calls | Kind::Claims => true,
            Kind::Reads | Kind::Guards | Kind::Asks => false,
        }
    }

    /// Whether it runs a method or a script.
    #[must_use]
    pub fn is_call(&self) -> bool {
        self.facts().kind == Kind::Calls
    }

    /// Bytes of the operation's payload that belong to this part.
    #[inline]
    #[must_use]
    pub fn payload_len(&self) -> u64 {
        self.facts().payload
    }

    /// The omap keys that it names.
    pub fn keys_mut(&mut self) -> Vec<&mut Bytes> {
        match self {
            Self::OmapGet { keys } | Self::OmapRemove { keys } => keys.iter_mut().collect(),
            Self::OmapList { after, .. } => vec![after],
            Self::OmapSet { entries } => entries.iter_mut().map(|(key, _)| key).collect(),
            Self::Read { .. } | Self::Checksum { .. } | Self::Stat {} | Self::ReadWhole {} => {
                Vec::new()
            }
            Self::Write { .. }
            | Self::WriteFull { .. }
            | Self::Append { .. }
            | Self::Zero { .. } => Vec::new(),
            Self::Truncate { .. } | Self::Create { .. } | Self::Delete {} | Self::OmapClear {} => {
                Vec::new()
            }
            Self::GetAttr { .. }
            | Self::ListAttrs {}
            | Self::SetAttr { .. }
            | Self::RemoveAttr { .. } => Vec::new(),
            Self::AssertExists { .. } | Self::AssertVersion { .. } | Self::CompareData { .. } => {
                Vec::new()
            }
            Self::CompareAttr { .. }
            | Self::Call { .. }
            | Self::Eval { .. }
            | Self::ListObjects { .. } => Vec::new(),
            Self::Watch { .. }
            | Self::Unwatch { .. }
            | Self::Notify { .. }
            | Self::ListWatchers {} => Vec::new(),
            Self::Lock { .. }
            | Self::Unlock { .. }
            | Self::BreakLock { .. }
            | Self::AssertLock { .. } => Vec::new(),
            Self::ListLocks {}
            | Self::ListSnaps {}
            | Self::Rollback { .. }
            | Self::CopyFrom { .. } => Vec::new(),
        }
    }

    /// The source object of a copy.
    #[must_use]
    pub const fn source(&self) -> Option<&ObjectId> {
        if let Self::CopyFrom { source } = self {
            Some(source)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A range without an end is not a small one.
    #[test]
    fn ranges_do_not_wrap() {
        let ends = |op: SubOp| op.facts().end;
        assert_eq!(
            ends(SubOp::Write {
                offset: u64::MAX,
                length: 2
            }),
            u64::MAX
        );
        assert_eq!(
            ends(SubOp::CompareData {
                offset: 3,
                length: 4
            }),
            7
        );
        assert_eq!(
            SubOp::Eval {
                script: u64::MAX,
                handler: Name::default(),
                input: 9
            }
            .payload_len(),
            u64::MAX
        );
    }
}
