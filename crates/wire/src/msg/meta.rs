//! Service metadata: small keys replicated by the monitors (Malacology, EuroSys 2017, §4.1 "Service
//! Metadata Interface": MAL-10..-17).
//!
//! ```text
//!  client ──MetaRequest──▶ any monitor ──Forward──▶ leader        one reply per request, whoever it was sent to
//!         ◀──MetaReply────
//!         ──MetaWatch───▶ any monitor                             served from what that monitor has applied
//!         ◀──MetaEvents── (after, through] with all events in it  no revision twice, none left out
//!         ◀──MetaWatchEnded── the watch cannot go on
//! ```
//! Terms follow etcd's third version: a *revision* counts the transactions that changed something;
//! a key has the revisions that created it and last changed it, and a version that counts its own
//! changes.

use crate::codec::{Malformed, Wire};
use crate::{wire_enum, wire_record};
use bytes::Bytes;
use nacre_types::{Epoch, Instance, Name};
use std::fmt;

/// Longest key in bytes.
pub const META_KEY_MAX: usize = 1024;
/// Most compares and operations of one transaction, each branch counted.
pub const META_OPS_MAX: usize = 128;
/// Largest encoded transaction in bytes, whatever size of values its namespace allows.
pub const META_TRANSACTION_BYTES_MAX: usize = 512 << 10;
/// Most bytes in one answer to a read; a longer answer is cut and says that there is more.
pub const META_ANSWER_BYTES_MAX: usize = 1 << 20;
/// A client's requests may be at most this far ahead of its lowest one without an answer.
pub const META_WINDOW: u64 = 256;
/// Most bytes of a value, unless the namespace sets another limit.
pub const META_VALUE_BYTES_MAX: u64 = 64 << 10;
/// The namespace with the settings of all others; only [`META_ADMIN`] writes it.
pub const META_SETTINGS: &str = "nacre";
/// The name of the client that may do everything.
pub const META_ADMIN: &str = "admin";

/// A key with its value and bookkeeping.
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
    /// The lease it is attached to; 0 is none.
    pub lease: u64,
    /// The cluster map's epoch when it was changed last (MAL-11).
    pub epoch: Epoch,
}
wire_record!(MetaPair version 1 compat 1 { key, value, created, modified, version, lease, epoch });

/// A set of keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetaSpan {
    /// One key.
    Key {
        /// The key.
        key: Name,
    },
    /// All keys with this prefix; all keys if it is empty.
    Prefix {
        /// The prefix.
        prefix: Name,
    },
    /// All keys from `from` to `to`, excluding `to`.
    Between {
        /// First key.
        from: Name,
        /// The end, excluded.
        to: Name,
    },
}
wire_enum!(MetaSpan { 1 => Key { key }, 2 => Prefix { prefix }, 3 => Between { from, to } });

impl MetaSpan {
    /// Whether the span contains the key.
    #[must_use]
    pub fn has(&self, name: &Name) -> bool {
        match self {
            Self::Key { key } => key == name,
            Self::Prefix { prefix } => name.as_bytes().starts_with(prefix.as_bytes()),
            Self::Between { from, to } => from <= name && name < to,
        }
    }
    /// Where an iteration over the span starts.
    #[must_use]
    pub const fn first(&self) -> &Name {
        match self {
            Self::Key { key } => key,
            Self::Prefix { prefix } => prefix,
            Self::Between { from, .. } => from,
        }
    }
    /// The part of the span after this key: where a paged list continues.
    #[must_use]
    pub fn behind(&self, key: &Name) -> Self {
        let from = Name::copy(&[key.as_bytes(), &[0]].concat());
        let to = match self {
            Self::Between { to, .. } => to.clone(),
            // One key has no further page.
            Self::Key { .. } => from.clone(),
            Self::Prefix { prefix } => {
                let mut end = prefix.as_bytes().to_vec();
                while end.pop_if(|last| *last == 0xff).is_some() {}
                match end.last_mut() {
                    Some(last) => *last += 1,
                    // Every possible key is below this.
                    None => end = vec![0xff; META_KEY_MAX + 1],
                }
                Name::copy(&end)
            }
        };
        Self::Between { from, to }
    }
}

/// A relation between two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaRelation {
    /// The same.
    Equal {},
    /// Not the same.
    NotEqual {},
    /// The key's value is smaller.
    Less {},
    /// The key's value is larger.
    Greater {},
}
wire_enum!(MetaRelation { 1 => Equal {}, 2 => NotEqual {}, 3 => Less {}, 4 => Greater {} });

impl MetaRelation {
    /// Whether the relation holds.
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

/// What is compared, and with what. For a key that does not exist all numbers are 0; comparing its
/// value fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaTarget {
    /// The value, byte by byte.
    Value {
        /// The value to compare with.
        value: Bytes,
    },
    /// [`MetaPair::version`]; 0 if the key does not exist.
    Version {
        /// The number to compare with.
        number: u64,
    },
    /// [`MetaPair::created`].
    Created {
        /// The number to compare with.
        number: u64,
    },
    /// [`MetaPair::modified`].
    Modified {
        /// The number to compare with.
        number: u64,
    },
    /// [`MetaPair::lease`].
    Lease {
        /// The number to compare with.
        number: u64,
    },
}
wire_enum!(MetaTarget {
    1 => Value { value }, 2 => Version { number }, 3 => Created { number }, 4 => Modified { number }, 5 => Lease { number },
});

/// A precondition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaCompare {
    /// The key.
    pub key: Name,
    /// What is compared.
    pub target: MetaTarget,
    /// The relation that must hold.
    pub relation: MetaRelation,
}
wire_record!(MetaCompare version 1 compat 1 { key, target, relation });

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaOp {
    /// Reads keys; sees the effects of earlier operations of the transaction.
    Get {
        /// The keys.
        span: MetaSpan,
        /// At most this many; 0: as many as an answer holds.
        limit: u32,
        /// Whether to leave out the values.
        keys_only: bool,
    },
    /// Sets a key.
    Put {
        /// The key.
        key: Name,
        /// Its new value.
        value: Bytes,
        /// The key is deleted when this lease ends; 0: none.
        lease: u64,
    },
    /// Deletes keys.
    Delete {
        /// The keys.
        span: MetaSpan,
    },
}
wire_enum!(MetaOp { 1 => Get { span, limit, keys_only }, 2 => Put { key, value, lease }, 3 => Delete { span } });

/// The result of one operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaAnswer {
    /// Answers [`MetaOp::Get`].
    Got {
        /// Ordered by key.
        pairs: Vec<MetaPair>,
        /// Whether more follow.
        more: bool,
    },
    /// Answers [`MetaOp::Put`].
    Put {
        /// The revision that last changed the key before this one; 0: it did not exist.
        before: u64,
    },
    /// Answers [`MetaOp::Delete`].
    Deleted {
        /// Number of keys deleted.
        keys: u64,
    },
}
wire_enum!(MetaAnswer { 1 => Got { pairs, more }, 2 => Put { before }, 3 => Deleted { keys } });

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaCall {
    /// Executes one of two lists of operations atomically.
    Transact {
        /// The conditions.
        compares: Vec<MetaCompare>,
        /// Executed if all conditions hold.
        then: Vec<MetaOp>,
        /// Executed otherwise.
        otherwise: Vec<MetaOp>,
    },
    /// Reads keys.
    Range {
        /// The keys.
        span: MetaSpan,
        /// At most this many; 0: as many as an answer holds.
        limit: u32,
        /// Whether to leave out the values.
        keys_only: bool,
        /// Read what the contacted monitor has applied, which may be outdated; otherwise the read
        /// is linearizable.
        serializable: bool,
    },
    /// Creates a lease.
    Grant {
        /// Its duration in milliseconds unless renewed by [`Self::KeepAlive`].
        ttl_ms: u64,
    },
    /// Renews a lease.
    KeepAlive {
        /// The lease.
        lease: u64,
    },
    /// Ends a lease and deletes its keys.
    Revoke {
        /// The lease.
        lease: u64,
    },
    /// Lists all leases.
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

/// A request. A resend to any monitor has the same numbers and is executed once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaRequest {
    /// The client's instance.
    pub instance: Instance,
    /// Counts the instance's requests.
    pub sequence: u64,
    /// All requests below this number have been answered.
    pub answered_below: u64,
    /// The newest revision the client knew when it first sent this.
    pub known: u64,
    /// Whether this is a resend.
    pub again: bool,
    /// The call.
    pub call: MetaCall,
}
wire_record!(MetaRequest version 1 compat 1 { instance, sequence, answered_below, known, again, call });

/// A lease, as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaLease {
    /// Its number.
    pub lease: u64,
    /// Its duration in milliseconds unless renewed.
    pub ttl_ms: u64,
    /// Its owner's name.
    pub owner: Name,
    /// Number of keys attached to it.
    pub keys: u64,
}
wire_record!(MetaLease version 1 compat 1 { lease, ttl_ms, owner, keys });

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaResult {
    /// Answers [`MetaCall::Transact`].
    Transacted {
        /// Whether all compares held.
        succeeded: bool,
        /// One answer for each executed operation.
        answers: Vec<MetaAnswer>,
    },
    /// Answers [`MetaCall::Range`].
    Ranged {
        /// Ordered by key.
        pairs: Vec<MetaPair>,
        /// Whether more follow.
        more: bool,
    },
    /// Answers [`MetaCall::Grant`].
    Granted {
        /// The new lease.
        lease: u64,
        /// Its duration in milliseconds from when it was requested.
        ttl_ms: u64,
    },
    /// Answers [`MetaCall::KeepAlive`].
    Alive {
        /// The lease.
        lease: u64,
        /// Its duration in milliseconds from when the renewal was requested.
        ttl_ms: u64,
    },
    /// Answers [`MetaCall::Revoke`].
    Revoked {
        /// Number of keys deleted with it.
        keys: u64,
    },
    /// Answers [`MetaCall::Leases`].
    Leases {
        /// Ordered by number.
        leases: Vec<MetaLease>,
    },
    /// The call failed.
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

/// Why a call failed. It had no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaError {
    /// The namespace's settings do not allow it to this client.
    Denied {
        /// The client.
        who: Name,
        /// What it may not do, as in "write keys of `classes`".
        what: String,
    },
    /// Something is too long.
    TooLarge {
        /// What.
        what: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// The client's rate limit is exceeded.
    RateLimited {
        /// Retry after this many milliseconds.
        retry_ms: u64,
    },
    /// The namespace's quota is used up.
    QuotaExceeded {
        /// The namespace; empty: all metadata together.
        namespace: Name,
        /// `bytes` or `keys`.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// A validator rejects the transaction.
    Rejected {
        /// The program.
        validator: String,
        /// The line that rejected it; 0: unknown.
        line: u32,
        /// The validator's message.
        message: String,
    },
    /// The requested events are no longer kept.
    Compacted {
        /// The oldest revision whose events are kept.
        oldest: u64,
    },
    /// The lease has ended or never existed.
    NoSuchLease {
        /// The lease.
        lease: u64,
    },
    /// The request is invalid.
    Invalid {
        /// What is wrong with it and what would be valid.
        why: String,
    },
    /// A resend that arrived too late: it was not executed, and whether the original was is no
    /// longer known.
    Superseded {},
    /// There is no quorum of monitors, or they are overloaded. The client retries.
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

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaReply {
    /// The request's.
    pub instance: Instance,
    /// The request's.
    pub sequence: u64,
    /// The store's revision: the one that the transaction created, or the one that the read saw.
    pub revision: u64,
    /// The result.
    pub result: MetaResult,
}
wire_record!(MetaReply version 1 compat 1 { instance, sequence, revision, result });

/// Watches keys for changes. Using a number again moves that watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaWatch {
    /// The client's number for the watch.
    pub watch: u64,
    /// The keys.
    pub span: MetaSpan,
    /// The first revision to report; 0: from now on.
    pub from: u64,
}
wire_record!(MetaWatch version 1 compat 1 { watch, span, from });

/// Ends a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaCancel {
    /// The watch.
    pub watch: u64,
}
wire_record!(MetaCancel version 1 compat 1 { watch });

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaEvent {
    /// The key was set.
    Put {
        /// The key after the change.
        pair: MetaPair,
    },
    /// The key was deleted, or its lease ended.
    Delete {
        /// The key.
        key: Name,
        /// The revision that deleted it.
        revision: u64,
    },
}
wire_enum!(MetaEvent { 1 => Put { pair }, 2 => Delete { key, revision } });

impl MetaEvent {
    /// The key.
    #[must_use]
    pub const fn key(&self) -> &Name {
        match self {
            Self::Put { pair } => &pair.key,
            Self::Delete { key, .. } => key,
        }
    }
    /// The revision.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        match self {
            Self::Put { pair } => pair.modified,
            Self::Delete { revision, .. } => *revision,
        }
    }
}

/// All events of a watch's keys after one revision up to another. The payload is a list of
/// [`MetaEvent`]s in order of revision, encoded once for all watches of the same keys;
/// [`MetaEvents::decode`] reads it. An empty payload means no events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaEvents {
    /// The watch.
    pub watch: u64,
    /// Events up to this revision were sent before.
    pub after: u64,
    /// All events up to and including this revision are included.
    pub through: u64,
}
wire_record!(MetaEvents version 1 compat 1 { watch, after, through });

impl MetaEvents {
    /// Encodes events as a payload.
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
    /// Decodes a payload.
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

/// The monitor ends a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaWatchEnded {
    /// The watch.
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
