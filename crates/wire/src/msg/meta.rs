//! Service metadata: small keys that the monitors agree on (Malacology, EuroSys 2017, §4.1 "Service
//! Metadata Interface": MAL-10..-17).
//!
//! ```text
//!  client ──MetaRequest──▶ any monitor ──Forward──▶ leader        one reply per request, whoever it was sent to
//!         ◀──MetaReply────
//!         ──MetaWatch───▶ any monitor                             served from what that monitor has applied
//!         ◀──MetaEvents── (after, through] with all events in it  no revision twice, none left out
//!         ◀──MetaWatchEnded── the watch cannot go on
//! ```
//! Names are those of etcd's third version: a *revision* counts the transactions that changed
//! something; a key has the revisions that created it and changed it last, and a version that
//! counts its own changes.

use crate::codec::{Malformed, Wire};
use crate::{wire_enum, wire_record};
use bytes::Bytes;
use nacre_types::{Epoch, Instance, Name};
use std::fmt;

/// Longest key in bytes.
pub const META_KEY_MAX: usize = 1024;
/// Most compares and operations of one transaction, each branch counted.
pub const META_OPS_MAX: usize = 128;
/// Largest encoded transaction in bytes, whatever its namespace allows for a value.
pub const META_TRANSACTION_BYTES_MAX: usize = 512 << 10;
/// Most bytes that one answer to a read carries; a longer one says that there is more.
pub const META_ANSWER_BYTES_MAX: usize = 1 << 20;
/// A client's requests differ by less than this from the lowest one without an answer.
pub const META_WINDOW: u64 = 256;
/// Most bytes of a value where the namespace says nothing else.
pub const META_VALUE_BYTES_MAX: u64 = 64 << 10;
/// The namespace of the settings of all others; only [`META_ADMIN`] writes it.
pub const META_SETTINGS: &str = "nacre";
/// The name of the client that may do everything.
pub const META_ADMIN: &str = "admin";

/// A key with everything that is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaPair {
    /// The key: `namespace/rest`.
    pub key: Name,
    /// Its value.
    pub value: Bytes,
    /// The revision that created it.
    pub created: u64,
    /// The revision that changed it last.
    pub modified: u64,
    /// How often it was set since it was created, from 1.
    pub version: u64,
    /// The lease it goes with; 0 is none.
    pub lease: u64,
    /// The cluster map's epoch when it was changed last (MAL-11).
    pub epoch: Epoch,
}
wire_record!(MetaPair version 1 compat 1 { key, value, created, modified, version, lease, epoch });

/// Which keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetaSpan {
    /// One.
    Key {
        /// It.
        key: Name,
    },
    /// All that begin so; all there are when empty.
    Prefix {
        /// The beginning.
        prefix: Name,
    },
    /// All from `from` up to `to`, without `to`.
    Between {
        /// First.
        from: Name,
        /// First that is not meant.
        to: Name,
    },
}
wire_enum!(MetaSpan { 1 => Key { key }, 2 => Prefix { prefix }, 3 => Between { from, to } });

impl MetaSpan {
    /// Whether it has the key.
    #[must_use]
    pub fn has(&self, name: &Name) -> bool {
        match self {
            Self::Key { key } => key == name,
            Self::Prefix { prefix } => name.as_bytes().starts_with(prefix.as_bytes()),
            Self::Between { from, to } => from <= name && name < to,
        }
    }
    /// Where to begin to look.
    #[must_use]
    pub const fn first(&self) -> &Name {
        match self {
            Self::Key { key } => key,
            Self::Prefix { prefix } => prefix,
            Self::Between { from, .. } => from,
        }
    }
    /// Its keys behind one of them: where a list that comes in pages goes on.
    #[must_use]
    pub fn behind(&self, key: &Name) -> Self {
        let from = Name::copy(&[key.as_bytes(), &[0]].concat());
        let to = match self {
            Self::Between { to, .. } => to.clone(),
            // One key has no page behind it.
            Self::Key { .. } => from.clone(),
            Self::Prefix { prefix } => {
                let mut end = prefix.as_bytes().to_vec();
                while end.pop_if(|last| *last == 0xff).is_some() {}
                match end.last_mut() {
                    Some(last) => *last += 1,
                    // Every key there is, is below.
                    None => end = vec![0xff; META_KEY_MAX + 1],
                }
                Name::copy(&end)
            }
        };
        Self::Between { from, to }
    }
}

/// How two values are to be related.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaRelation {
    /// The same.
    Equal {},
    /// Not the same.
    NotEqual {},
    /// The key's is smaller.
    Less {},
    /// The key's is larger.
    Greater {},
}
wire_enum!(MetaRelation { 1 => Equal {}, 2 => NotEqual {}, 3 => Less {}, 4 => Greater {} });

impl MetaRelation {
    /// Whether they are.
    #[must_use]
    pub fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal {} => order.is_eq(),
            Self::NotEqual {} => order.is_ne(),
            Self::Less {} => order.is_lt(),
            Self::Greater {} => order.is_gt(),
        }
    }
}

/// What of a key is compared with what. A key that does not exist has all numbers 0, and no value:
/// a comparison of its value fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaTarget {
    /// The value, byte by byte.
    Value {
        /// With this.
        value: Bytes,
    },
    /// [`MetaPair::version`]; 0 says that the key does not exist.
    Version {
        /// With this.
        number: u64,
    },
    /// [`MetaPair::created`].
    Created {
        /// With this.
        number: u64,
    },
    /// [`MetaPair::modified`].
    Modified {
        /// With this.
        number: u64,
    },
    /// [`MetaPair::lease`].
    Lease {
        /// With this.
        number: u64,
    },
}
wire_enum!(MetaTarget {
    1 => Value { value }, 2 => Version { number }, 3 => Created { number }, 4 => Modified { number }, 5 => Lease { number },
});

/// A precondition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaCompare {
    /// Of which key.
    pub key: Name,
    /// What.
    pub target: MetaTarget,
    /// How.
    pub relation: MetaRelation,
}
wire_record!(MetaCompare version 1 compat 1 { key, target, relation });

/// A part of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaOp {
    /// Reads, and sees what earlier parts of the transaction did.
    Get {
        /// Which keys.
        span: MetaSpan,
        /// At most so many; 0: as many as an answer takes.
        limit: u32,
        /// Without values.
        keys_only: bool,
    },
    /// Sets a key.
    Put {
        /// Which.
        key: Name,
        /// To what.
        value: Bytes,
        /// The key goes when this lease does; 0: it stays.
        lease: u64,
    },
    /// Deletes keys.
    Delete {
        /// Which.
        span: MetaSpan,
    },
}
wire_enum!(MetaOp { 1 => Get { span, limit, keys_only }, 2 => Put { key, value, lease }, 3 => Delete { span } });

/// What a part of a transaction returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaAnswer {
    /// To a [`MetaOp::Get`].
    Got {
        /// By key.
        pairs: Vec<MetaPair>,
        /// Whether there are more behind the last.
        more: bool,
    },
    /// To a [`MetaOp::Put`].
    Put {
        /// The revision that changed the key last before this; 0: it did not exist.
        before: u64,
    },
    /// To a [`MetaOp::Delete`].
    Deleted {
        /// How many keys went.
        keys: u64,
    },
}
wire_enum!(MetaAnswer { 1 => Got { pairs, more }, 2 => Put { before }, 3 => Deleted { keys } });

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaCall {
    /// One of two lists of operations, as a whole.
    Transact {
        /// All must hold.
        compares: Vec<MetaCompare>,
        /// If they do.
        then: Vec<MetaOp>,
        /// If they do not.
        otherwise: Vec<MetaOp>,
    },
    /// Reads.
    Range {
        /// Which keys.
        span: MetaSpan,
        /// At most so many; 0: as many as an answer takes.
        limit: u32,
        /// Without values.
        keys_only: bool,
        /// From what the monitor that is asked has applied, which may be old; without, the answer
        /// is linearizable.
        serializable: bool,
    },
    /// A new lease.
    Grant {
        /// How long it lasts without [`Self::KeepAlive`], in milliseconds.
        ttl_ms: u64,
    },
    /// The lease's owner lives.
    KeepAlive {
        /// Which.
        lease: u64,
    },
    /// The lease ends, and its keys with it.
    Revoke {
        /// Which.
        lease: u64,
    },
    /// All leases.
    Leases {},
}
wire_enum!(MetaCall {
    1 => Transact { compares, then, otherwise },
    2 => Range { span, limit, keys_only, serializable },
    3 => Grant { ttl_ms },
    4 => KeepAlive { lease },
    5 => Revoke { lease },
    6 => Leases {},
});

/// A request. Sent again, to whichever monitor, it has the same numbers, and is carried out once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaRequest {
    /// Which life of the client.
    pub instance: Instance,
    /// Counts its requests.
    pub sequence: u64,
    /// All below have been answered.
    pub answered_below: u64,
    /// The newest revision the client knew when it first sent this.
    pub known: u64,
    /// Whether it was sent before.
    pub again: bool,
    /// What is wanted.
    pub call: MetaCall,
}
wire_record!(MetaRequest version 1 compat 1 { instance, sequence, answered_below, known, again, call });

/// A lease, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaLease {
    /// Its number.
    pub lease: u64,
    /// How long it lasts without a sign of life, in milliseconds.
    pub ttl_ms: u64,
    /// Whose it is.
    pub owner: Name,
    /// How many keys go with it.
    pub keys: u64,
}
wire_record!(MetaLease version 1 compat 1 { lease, ttl_ms, owner, keys });

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaResult {
    /// Of [`MetaCall::Transact`].
    Transacted {
        /// Whether all compares held.
        succeeded: bool,
        /// One for each operation of the list that was carried out.
        answers: Vec<MetaAnswer>,
    },
    /// Of [`MetaCall::Range`].
    Ranged {
        /// By key.
        pairs: Vec<MetaPair>,
        /// Whether there are more behind the last.
        more: bool,
    },
    /// Of [`MetaCall::Grant`].
    Granted {
        /// The new lease.
        lease: u64,
        /// How long it lasts, in milliseconds from when it was asked for.
        ttl_ms: u64,
    },
    /// Of [`MetaCall::KeepAlive`].
    Alive {
        /// Which.
        lease: u64,
        /// How long it lasts, in milliseconds from when it was asked for.
        ttl_ms: u64,
    },
    /// Of [`MetaCall::Revoke`].
    Revoked {
        /// How many keys went with it.
        keys: u64,
    },
    /// Of [`MetaCall::Leases`].
    Leases {
        /// By number.
        leases: Vec<MetaLease>,
    },
    /// It was not done.
    Failed {
        /// Why.
        error: MetaError,
    },
}
wire_enum!(MetaResult {
    1 => Transacted { succeeded, answers },
    2 => Ranged { pairs, more },
    3 => Granted { lease, ttl_ms },
    4 => Alive { lease, ttl_ms },
    5 => Revoked { keys },
    6 => Leases { leases },
    7 => Failed { error },
});

/// Why something was not done. Nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaError {
    /// The namespace's settings do not name this client.
    Denied {
        /// Who asked.
        who: Name,
        /// What it may not, as in "write keys of `classes`".
        what: String,
    },
    /// Too long.
    TooLarge {
        /// What.
        what: String,
        /// Most bytes.
        limit: u64,
    },
    /// Too often.
    RateLimited {
        /// Try again after so many milliseconds.
        retry_ms: u64,
    },
    /// The namespace is full.
    QuotaExceeded {
        /// Which; empty: all metadata together.
        namespace: Name,
        /// `bytes` or `keys`.
        what: String,
        /// At most so many.
        limit: u64,
    },
    /// A validator says no.
    Rejected {
        /// Which program.
        validator: String,
        /// The line of it that said so; 0: unknown.
        line: u32,
        /// What it said.
        message: String,
    },
    /// The events asked for are no longer kept.
    Compacted {
        /// The oldest revision whose events are.
        oldest: u64,
    },
    /// The lease ended, or never was.
    NoSuchLease {
        /// Which.
        lease: u64,
    },
    /// The request makes no sense.
    Invalid {
        /// What is wrong with it and what would be right.
        why: String,
    },
    /// A resend that came too late: whether the first was carried out is no longer known here, and
    /// this one was not.
    Superseded {},
    /// There is no majority of monitors, or they are busy. The client tries again.
    Unavailable {
        /// What is missing.
        why: String,
    },
}
wire_enum!(MetaError {
    1 => Denied { who, what },
    2 => TooLarge { what, limit },
    3 => RateLimited { retry_ms },
    4 => QuotaExceeded { namespace, what, limit },
    5 => Rejected { validator, line, message },
    6 => Compacted { oldest },
    7 => NoSuchLease { lease },
    8 => Invalid { why },
    9 => Superseded {},
    10 => Unavailable { why },
});

impl fmt::Display for MetaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied { who, what } => {
                let who = if who.is_empty() { "a client without a name".to_owned() } else { format!("client `{who}`") };
                write!(f, "{who} may not {what}; `nacre meta namespace` shows who may, and `admin` may change it")
            }
            Self::TooLarge { what, limit } => {
                write!(
                    f,
                    "the {what} is longer than {limit} bytes; metadata is for small values, objects for large ones"
                )
            }
            Self::RateLimited { retry_ms } => {
                write!(f, "too many metadata requests; try again in {retry_ms} ms (meta.client_rate, meta.rate)")
            }
            Self::QuotaExceeded { namespace, what, limit } if namespace.is_empty() => {
                write!(f, "all metadata together would be more than {limit} {what}; delete some, or raise the limit")
            }
            Self::QuotaExceeded { namespace, what, limit } => {
                write!(
                    f,
                    "namespace `{namespace}` would have more than its {limit} {what}; delete some, or raise its quota"
                )
            }
            Self::Rejected { validator, line: 0, message } => write!(f, "validator {validator} rejects it: {message}"),
            Self::Rejected { validator, line, message } => {
                write!(f, "validator {validator}, line {line}, rejects it: {message}")
            }
            Self::Compacted { oldest } => {
                write!(
                    f,
                    "compacted: events before revision {oldest} are no longer kept; read the keys, then watch from there"
                )
            }
            Self::NoSuchLease { lease } => {
                write!(f, "there is no lease {lease}: it ran out, was revoked, or never was")
            }
            Self::Invalid { why } => f.write_str(why),
            Self::Superseded {} => f.write_str(
                "the answer came too late to be remembered: it may or may not have happened. Look, then repeat it",
            ),
            Self::Unavailable { why } => f.write_str(why),
        }
    }
}
impl std::error::Error for MetaError {}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaReply {
    /// The request's.
    pub instance: Instance,
    /// The request's.
    pub sequence: u64,
    /// The store's revision: of the transaction's own changes, or what the read saw.
    pub revision: u64,
    /// What came of it.
    pub result: MetaResult,
}
wire_record!(MetaReply version 1 compat 1 { instance, sequence, revision, result });

/// Tell me of changes. The same number again moves the watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaWatch {
    /// The client's number for it.
    pub watch: u64,
    /// Of which keys.
    pub span: MetaSpan,
    /// From this revision on; 0: from now on.
    pub from: u64,
}
wire_record!(MetaWatch version 1 compat 1 { watch, span, from });

/// No more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaCancel {
    /// Which.
    pub watch: u64,
}
wire_record!(MetaCancel version 1 compat 1 { watch });

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaEvent {
    /// It was set.
    Put {
        /// As it is now.
        pair: MetaPair,
    },
    /// It was deleted, or its lease ended.
    Delete {
        /// Which.
        key: Name,
        /// By which revision.
        revision: u64,
    },
}
wire_enum!(MetaEvent { 1 => Put { pair }, 2 => Delete { key, revision } });

impl MetaEvent {
    /// Which key.
    #[must_use]
    pub const fn key(&self) -> &Name {
        match self {
            Self::Put { pair } => &pair.key,
            Self::Delete { key, .. } => key,
        }
    }
    /// Which revision.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        match self {
            Self::Put { pair } => pair.modified,
            Self::Delete { revision, .. } => *revision,
        }
    }
}

/// All that happened to a watch's keys after one revision up to another. The payload is a list of
/// [`MetaEvent`]s by revision, encoded once for all who watch the same keys; [`MetaEvents::decode`]
/// reads it. Without payload: nothing happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaEvents {
    /// Which watch.
    pub watch: u64,
    /// Events up to this revision were told before.
    pub after: u64,
    /// Events up to this one are in here, and those of it complete.
    pub through: u64,
}
wire_record!(MetaEvents version 1 compat 1 { watch, after, through });

impl MetaEvents {
    /// Puts the events into a payload.
    #[must_use]
    pub fn encode(events: &[MetaEvent]) -> Bytes {
        let mut out = Vec::new();
        u32::try_from(events.len())
            .expect("bounded by the history")
            .put(&mut out);
        for event in events {
            event.put(&mut out);
        }
        out.into()
    }
    /// Reads a payload.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(payload: &[Bytes]) -> Result<Vec<MetaEvent>, Malformed> {
        match payload {
            [] => Ok(Vec::new()),
            [one] => Vec::from_bytes(one),
            pieces => Vec::from_bytes(&pieces.concat()),
        }
    }
}

/// The watch ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaWatchEnded {
    /// Which.
    pub watch: u64,
    /// Why.
    pub error: MetaError,
}
wire_record!(MetaWatchEnded version 1 compat 1 { watch, error });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_begins_behind_the_last_key_and_ends_where_the_span_does() {
        let prefix = |bytes: &[u8]| MetaSpan::Prefix {
            prefix: Name::copy(bytes),
        };
        for span in [
            prefix(b"a/"),
            prefix(b"a/\xff"),
            prefix(b"\xff\xff"),
            prefix(b""),
        ] {
            let rest = span.behind(&Name::copy(b"a/k"));
            assert!(!rest.has(&Name::copy(b"a/k")));
            for key in [&b"a/k\0"[..], b"a/\xff1", b"a/z", b"b/", b"\xff\xff\xff"] {
                let key = Name::copy(key);
                let behind = key > Name::copy(b"a/k");
                if span.has(&key) && behind {
                    assert!(rest.has(&key), "{span:?} {key}");
                }
            }
        }
    }
}
