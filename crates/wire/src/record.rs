//! The record of an update in a placement group's log, encoded once by the primary.
//!
//! ```text
//!  0   length of all of it        u32     64  lowest number the client lacks an answer to  u64
//!  4   version                    u8      72  the group's objects after it                 u64
//!  5   compat                     u8      80  the group's bytes after it                   u64
//!  6   flags                      u16     88  the object's time of modification            u64
//!  8   version {interval, number} u64 ×2  96  the object's snapshot                        u64
//!  24  version before             u64 ×2  104 the object's generation                      u64
//!  40  client, instance, number   u64 ×3  112 bytes of namespace, key, name, results       u32 ×4
//!  128 namespace, key, name, results; then what later versions append
//! ```
//! The same bytes go to the replicas, into their logs, and into the memory from which resends are
//! answered (`docs/formats/record.md`). Fields are read in place: a field costs a load, not the
//! decoding of the whole record. Only the object's name is kept separately, because it is needed
//! everywhere.
//!
//! Invariant: a record's bytes were validated when it was made, so no accessor can fail.

use crate::codec::{Malformed, Reader, Wire};
use crate::measure::Measure;
use crate::msg::client::{RequestId, SubReply};
use crate::msg::replication::Totals;
use nacre_types::{ClientId, Epoch, Generation, Instance, Name, ObjectId, SnapId, Version};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// Bytes before the names.
const HEAD: usize = 128;
const VERSION: u8 = 1;
const DELETED: u16 = 1;
const ESTIMATED: u16 = 2;

/// A record's fields, before encoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordFields {
    /// Its position in the log, and the object's version after the update.
    pub version: Version,
    /// The object's version before it; [`Version::NONE`] when it did not exist.
    pub prior: Version,
    /// Whether the update deleted the object.
    pub deleted: bool,
    /// The object.
    pub object: ObjectId,
    /// The operation.
    pub request: RequestId,
    /// The client's lowest unanswered sequence number at that time.
    pub answered_below: u64,
    /// The operation's results, bounded by [`crate::msg::client::OUTPUT_BYTES_MAX`].
    pub results: Vec<SubReply>,
    /// The PG's objects and bytes after the update.
    pub totals: Totals,
    /// The object's modification time by its client's clock, in milliseconds since 1970; 0 for a
    /// deleted object.
    pub modified_ms: u64,
}

/// See the module head. Cheap to clone.
#[derive(Clone)]
pub struct Record(Arc<Whole>);

/// A valid record where its bytes lie: in a log of many.
#[derive(Clone, Copy)]
pub struct RecordView<'a>(&'a [u8]);

#[derive(PartialEq, Eq)]
struct Whole {
    object: ObjectId,
    /// Most records need no memory of their own.
    bytes: Inline,
}

/// A record's bytes with a name of usual length and no output.
type Inline = SmallVec<[u8; 256]>;

/// The fields of a record, read in place.
macro_rules! fields_in_place {
    ($record:ty) => {
        impl $record {
            fn u64(&self, at: usize) -> u64 {
                u64_at(self.as_bytes(), at)
            }
            fn flag(&self, which: u16) -> bool {
                u16::from_le_bytes([self.as_bytes()[6], self.as_bytes()[7]]) & which != 0
            }
            fn version_at(&self, at: usize) -> Version {
                Version {
                    interval: Epoch(self.u64(at)),
                    number: self.u64(at + 8),
                }
            }

            /// See [`RecordFields::version`].
            #[must_use]
            pub fn version(&self) -> Version {
                self.version_at(8)
            }
            /// See [`RecordFields::prior`].
            #[must_use]
            pub fn prior(&self) -> Version {
                self.version_at(24)
            }
            /// See [`RecordFields::deleted`].
            #[must_use]
            pub fn deleted(&self) -> bool {
                self.flag(DELETED)
            }
            /// See [`RecordFields::request`].
            #[must_use]
            pub fn request(&self) -> RequestId {
                let [client, instance, sequence] = [40, 48, 56].map(|at| self.u64(at));
                RequestId {
                    client: ClientId(client),
                    instance: Instance(instance),
                    sequence,
                }
            }
            /// See [`RecordFields::answered_below`].
            #[must_use]
            pub fn answered_below(&self) -> u64 {
                self.u64(64)
            }
            /// See [`RecordFields::totals`].
            #[must_use]
            pub fn totals(&self) -> Totals {
                Totals {
                    objects: self.u64(72),
                    bytes: self.u64(80),
                    estimated: self.flag(ESTIMATED),
                }
            }
            /// See [`RecordFields::modified_ms`].
            #[must_use]
            pub fn modified_ms(&self) -> u64 {
                self.u64(88)
            }
            /// See [`RecordFields::results`]. Decoded on each call: only resends need them.
            #[must_use]
            pub fn results(&self) -> Vec<SubReply> {
                let names: usize = [112, 116, 120]
                    .map(|at| u32_at(self.as_bytes(), at) as usize)
                    .iter()
                    .sum();
                let results = &self.as_bytes()[HEAD + names..][..self.results_len()];
                Wire::from_bytes(results).expect("decoded once when the record was made")
            }
            /// Length of the encoded results in bytes.
            #[must_use]
            pub fn results_len(&self) -> usize {
                u32_at(self.as_bytes(), HEAD - 4) as usize
            }
        }
    };
}
fields_in_place!(Record);
fields_in_place!(RecordView<'_>);

impl Record {
    /// Encodes a record.
    #[must_use]
    pub fn new(fields: RecordFields) -> Self {
        let RecordFields {
            version,
            prior,
            deleted,
            object,
            request,
            answered_below,
            results,
            totals,
            modified_ms,
        } = fields;
        let names = [&object.namespace, &object.key, &object.name].map(Name::as_bytes);
        let mut out =
            Vec::with_capacity(HEAD + names.iter().map(|name| name.len()).sum::<usize>() + 16);
        let flags =
            if deleted { DELETED } else { 0 } | if totals.estimated { ESTIMATED } else { 0 };
        out.extend_from_slice(&[0, 0, 0, 0, VERSION, VERSION]);
        out.extend_from_slice(&flags.to_le_bytes());
        for number in [
            version.interval.0,
            version.number,
            prior.interval.0,
            prior.number,
            request.client.0,
            request.instance.0,
            request.sequence,
            answered_below,
            totals.objects,
            totals.bytes,
            modified_ms,
            object.snapshot.0,
            object.generation.0,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        names.iter().for_each(|name| put_u32(&mut out, name.len()));
        put_u32(&mut out, 0);
        names.iter().for_each(|name| out.extend_from_slice(name));
        let start = out.len();
        results.put(&mut out);
        let end = out.len();
        set_u32(&mut out, HEAD - 4, end - start);
        set_u32(&mut out, 0, end);
        Self(Arc::new(Whole {
            object,
            bytes: Inline::from_slice(&out),
        }))
    }

    /// Decodes a record that must fill `bytes` exactly.
    ///
    /// # Errors
    /// [`Malformed`], also when a field's value is.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() < HEAD {
            return Err(Malformed::Truncated("record"));
        }
        let [length, namespace, key, name, results] =
            [0, 112, 116, 120, 124].map(|at| u32_at(bytes, at) as usize);
        if length != bytes.len() {
            return Err(Malformed::Length("record"));
        }
        if bytes[5] > VERSION {
            return Err(Malformed::TooNew {
                what: "record",
                needs: bytes[5],
                knows: VERSION,
            });
        }
        if u16::from_le_bytes([bytes[6], bytes[7]]) & !(DELETED | ESTIMATED) != 0
            && bytes[4] == VERSION
        {
            return Err(Malformed::Value("record's flags"));
        }
        let mut rest = Reader::new(&bytes[HEAD..]);
        let mut named = |length: usize| match rest.take(length, "record's names")? {
            name if name.len() <= Name::LEN_MAX => Ok(Name::copy(name)),
            _ => Err(Malformed::Length("name")),
        };
        let (namespace, key, name) = (named(namespace)?, named(key)?, named(name)?);
        check_results(rest.take(results, "record's results")?)?;
        if bytes[4] == VERSION {
            rest.finish("record")?;
        }
        let (snapshot, generation) = (SnapId(u64_at(bytes, 96)), Generation(u64_at(bytes, 104)));
        let object = ObjectId {
            namespace,
            key,
            name,
            snapshot,
            generation,
        };
        Ok(Self(Arc::new(Whole {
            object,
            bytes: Inline::from_slice(bytes),
        })))
    }

    /// The whole encoding.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0.bytes
    }
    /// The same, without the object's name beside the bytes.
    #[must_use]
    pub fn view(&self) -> RecordView<'_> {
        RecordView(&self.0.bytes)
    }
    /// See [`RecordFields::object`].
    #[must_use]
    pub fn object(&self) -> &ObjectId {
        &self.0.object
    }

    /// The record's fields.
    #[must_use]
    pub fn fields(&self) -> RecordFields {
        RecordFields {
            version: self.version(),
            prior: self.prior(),
            deleted: self.deleted(),
            object: self.object().clone(),
            request: self.request(),
            answered_below: self.answered_below(),
            results: self.results(),
            totals: self.totals(),
            modified_ms: self.modified_ms(),
        }
    }
}

impl<'a> RecordView<'a> {
    /// The record of these bytes.
    ///
    /// # Panics
    /// Later, if they are not those of a [`Record`].
    #[must_use]
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
    /// The whole encoding.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
    /// The record by itself, in memory of its own.
    #[must_use]
    pub fn to_record(self) -> Record {
        Record::parse(self.0).expect("validated when the record was made")
    }
    /// Whether it is about this object.
    #[must_use]
    pub fn is_about(self, object: &ObjectId) -> bool {
        let names = [&object.namespace, &object.key, &object.name].map(Name::as_bytes);
        let mut rest = &self.0[HEAD..];
        u64_at(self.0, 96) == object.snapshot.0
            && u64_at(self.0, 104) == object.generation.0
            && names.iter().zip([112, 116, 120]).all(|(name, at)| {
                let (its, behind) = rest.split_at(u32_at(self.0, at) as usize);
                rest = behind;
                its == *name
            })
    }
    /// Changes the totals in the bytes of a valid record.
    pub fn set_totals(bytes: &mut [u8], totals: Totals) {
        bytes[72..80].copy_from_slice(&totals.objects.to_le_bytes());
        bytes[80..88].copy_from_slice(&totals.bytes.to_le_bytes());
        let flags = u16::from_le_bytes([bytes[6], bytes[7]]) & !ESTIMATED;
        let flags = flags | if totals.estimated { ESTIMATED } else { 0 };
        bytes[6..8].copy_from_slice(&flags.to_le_bytes());
    }
}

impl From<RecordFields> for Record {
    fn from(fields: RecordFields) -> Self {
        Self::new(fields)
    }
}
impl AsRef<[u8]> for Record {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}
impl Eq for Record {}
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fields().fmt(f)
    }
}

impl Wire for Record {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.bytes);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut ahead = *from;
        let length = u32::get(&mut ahead)? as usize;
        Self::parse(from.take(length, "record")?)
    }
    fn measure(&self, into: &mut Measure) {
        into.add(self.0.bytes.len());
    }
}

/// Decodes them one after the other: a list of them would be memory for nothing.
fn check_results(bytes: &[u8]) -> Result<(), Malformed> {
    let mut results = Reader::new(bytes);
    for _ in 0..u32::get(&mut results)? {
        SubReply::get(&mut results)?;
    }
    results.finish("record's results")
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
fn put_u32(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(
        &u32::try_from(number)
            .expect("a record is shorter than a frame")
            .to_le_bytes(),
    );
}
fn set_u32(out: &mut [u8], at: usize, number: usize) {
    let number = u32::try_from(number).expect("a record is shorter than a frame");
    out[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;

    fn fields() -> impl Strategy<Value = RecordFields> {
        let names = ("[a-z]{0,3}", "[a-z]{0,3}", "[a-z]{0,40}");
        let results = proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..3);
        (any::<[u64; 13]>(), any::<[bool; 2]>(), names, results).prop_map(
            |(n, [deleted, estimated], names, results)| RecordFields {
                version: Version {
                    interval: Epoch(n[0]),
                    number: n[1],
                },
                prior: Version {
                    interval: Epoch(n[2]),
                    number: n[3],
                },
                deleted,
                object: ObjectId {
                    namespace: (&*names.0).into(),
                    key: (&*names.1).into(),
                    name: (&*names.2).into(),
                    snapshot: SnapId(n[4]),
                    generation: Generation(n[5]),
                },
                request: RequestId {
                    client: ClientId(n[6]),
                    instance: Instance(n[7]),
                    sequence: n[8],
                },
                answered_below: n[9],
                results: results
                    .into_iter()
                    .map(|value| SubReply::Value {
                        value: Bytes::from(value),
                    })
                    .collect(),
                totals: Totals {
                    objects: n[10],
                    bytes: n[11],
                    estimated,
                },
                modified_ms: n[12],
            },
        )
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_and_nothing_shorter(fields in fields(), cut in any::<prop::sample::Index>()) {
            let record = Record::new(fields.clone());
            prop_assert_eq!(record.fields(), fields);
            let bytes = record.to_bytes();
            prop_assert_eq!(&Record::from_bytes(&bytes), &Ok(record.clone()));
            prop_assert!(Record::from_bytes(&bytes[..cut.index(bytes.len())]).is_err());
            prop_assert_eq!(record.results_len(), record.results().to_bytes().len());
            let mut other = record.object().clone();
            other.name = Name::copy(&[other.name.as_bytes(), b"x"].concat());
            prop_assert!(record.view().is_about(record.object()));
            prop_assert!(!record.view().is_about(&other));
        }

        #[test]
        fn other_totals_change_nothing_else(fields in fields(), objects in any::<u64>(), estimated in any::<bool>()) {
            let totals = Totals { objects, bytes: 7, estimated };
            let mut bytes = Record::new(fields.clone()).to_bytes();
            RecordView::set_totals(&mut bytes, totals);
            let changed = RecordView::of(&bytes).to_record();
            prop_assert!(RecordView::of(&bytes).is_about(&fields.object));
            prop_assert_eq!(changed.fields(), RecordFields { totals, ..fields });
        }

        #[test]
        fn no_bytes_make_a_record_whose_fields_cannot_be_read(
            fields in fields(), changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)
        ) {
            let mut bytes = Record::new(fields).to_bytes();
            for (at, to) in changes {
                let at = at.index(bytes.len());
                bytes[at] = to;
            }
            if let Ok(record) = Record::from_bytes(&bytes) {
                prop_assert_eq!(record.fields().results.to_bytes().len(), record.results_len());
            }
        }
    }

    /// A newer writer may append fields; one that uses a flag unknown to this version raises the
    /// compat version.
    #[test]
    fn what_a_later_version_appends_is_skipped_and_what_it_forbids_is_refused() {
        let record = Record::new(RecordFields {
            object: ObjectId::named("a"),
            ..RecordFields::default()
        });
        let mut newer = record.to_bytes();
        newer.extend_from_slice(&[9; 8]);
        let length = newer.len();
        set_u32(&mut newer, 0, length);
        assert_eq!(
            Record::from_bytes(&newer),
            Err(Malformed::Trailing("record")),
            "this version appends nothing"
        );
        newer[4] = VERSION + 1;
        assert_eq!(
            Record::from_bytes(&newer).map(|read| read.fields()),
            Ok(record.fields())
        );
        newer[5] = VERSION + 1;
        let refused = Malformed::TooNew {
            what: "record",
            needs: VERSION + 1,
            knows: VERSION,
        };
        assert_eq!(Record::from_bytes(&newer), Err(refused));
    }
}
