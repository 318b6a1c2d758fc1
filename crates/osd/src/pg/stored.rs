//! The stored metadata of a placement group, in its metadata object: names and values (the picture
//! is in `local.rs`).

use crate::key;
use bytes::Bytes;
use nacre_types::{Epoch, ObjectId, Version};
use nacre_wire::msg::client::RequestId;
use nacre_wire::msg::replication::{ClientMark, Dedup, Totals};
use nacre_wire::{Malformed, Record, Wire, wire_fields, wire_record};

pub(super) const INFO_ATTR: &[u8] = b"info";

/// The fixed part of a PG's stored metadata.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PgMeta {
    /// The interval whose log this member last adopted.
    pub activated: Epoch,
    /// The log's tail.
    pub tail: Version,
    /// The log's head at the time of writing; later entries advance it.
    pub head: Version,
    /// Objects before this position are here; `None`: all are.
    pub backfill: Option<Bytes>,
    /// The pool's `pg_num` for which this is one PG: a larger one means pending splits.
    pub pg_num: u32,
    /// The PG's totals at the tail.
    pub totals: Totals,
    /// Clients have been forgotten: a client without a mark may have been known before.
    pub forgot: bool,
    /// All clones here are in the index ([`crate::clones`]).
    pub clones_known: bool,
}
wire_record!(PgMeta version 3 compat 1 { activated, tail, head, backfill, pg_num, totals } since 2 { forgot } since 3 { clones_known });

/// The stored mark of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMark {
    /// Its lowest unconfirmed sequence number.
    pub mark: ClientMark,
    /// Its last update.
    pub last: Version,
}
wire_fields!(StoredMark { mark, last });

impl StoredMark {
    /// The format from before clients were forgotten: without the last update.
    pub(super) fn read(value: &[u8]) -> Result<(ClientMark, Version), Malformed> {
        if let Ok(mark) = ClientMark::from_bytes(value) {
            return Ok((mark, Version::NONE));
        }
        Self::from_bytes(value).map(|stored| (stored.mark, stored.last))
    }
}

/// A record as it is stored: its own bytes, not a copy of them.
pub(super) fn stored(record: &Record) -> Bytes {
    Bytes::from_owner(record.clone())
}
pub(super) fn log_key(version: Version) -> Bytes {
    let mut key = Vec::with_capacity(17);
    key.push(b'l');
    key.extend_from_slice(&version.interval.0.to_be_bytes());
    key.extend_from_slice(&version.number.to_be_bytes());
    key.into()
}
/// The omap key of an object's note under `tag`.
pub(super) fn object_key(tag: u8, object: &ObjectId) -> Bytes {
    [&[tag], &key::position(object)[..]].concat().into()
}
pub(super) fn missing_key(object: &ObjectId) -> Bytes {
    object_key(b'm', object)
}
pub(super) fn lost_key(object: &ObjectId) -> Bytes {
    object_key(b'x', object)
}
pub(super) fn undone_key(object: &ObjectId) -> Bytes {
    object_key(b'u', object)
}
pub(super) fn dedup_key(tag: u8, request: &RequestId, with_sequence: bool) -> Bytes {
    let mut key = Vec::with_capacity(25);
    key.push(tag);
    key.extend_from_slice(&request.client.0.to_be_bytes());
    key.extend_from_slice(&request.instance.0.to_be_bytes());
    if with_sequence {
        key.extend_from_slice(&request.sequence.to_be_bytes());
    }
    key.into()
}

/// The stored form of the memory beyond the log.
pub(super) fn dedup_entries(dedup: &Dedup) -> Vec<(Bytes, Bytes)> {
    let record = |record: &Record| (dedup_key(b'd', &record.request(), true), stored(record));
    let last = dedup
        .last
        .iter()
        .copied()
        .chain(std::iter::repeat(Version::NONE));
    let mark = |(mark, last): (&ClientMark, Version)| {
        (
            dedup_key(b'c', &mark.below, false),
            StoredMark {
                mark: mark.clone(),
                last,
            }
            .to_bytes()
            .into(),
        )
    };
    dedup
        .records
        .iter()
        .map(record)
        .chain(dedup.marks.iter().zip(last).map(mark))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{ClientId, Instance};

    #[test]
    fn marks_from_before_clients_were_forgotten_are_read() {
        let below = RequestId {
            client: ClientId(1),
            instance: Instance(2),
            sequence: 3,
        };
        let mark = ClientMark { below };
        assert_eq!(
            StoredMark::read(&mark.to_bytes()),
            Ok((mark.clone(), Version::NONE))
        );
        let last = Version {
            interval: Epoch(4),
            number: 5,
        };
        assert_eq!(
            StoredMark::read(
                &StoredMark {
                    mark: mark.clone(),
                    last
                }
                .to_bytes()
            ),
            Ok((mark, last))
        );
    }
}
