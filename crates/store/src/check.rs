//! The offline check: proves a store's integrity without writing a byte.
//!
//! It opens index and log as recovery would, in memory, then walks all records and counts
//! references itself.
//!
//! * [`walk`]: the records; [`units`]: what they use.

mod units;
mod walk;

use crate::alloc::Allocator;
use crate::api::CollectionId;
use crate::device::{BlockingDevice, DeviceError};
use crate::format::root::{Identity, Root, RootError};
use crate::index::backend::Backend;
use crate::index::space::Space;
use crate::index::{Index, IndexError, Merge};
use crate::open::{Loaded, OpenError, leftovers, load, take_chunks};
use crate::replay::replay;
use bytes::Bytes;
use std::sync::Arc;
use units::Units;
use walk::{Source, Walk};

/// An inconsistency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The superblock cannot be used; nothing more was checked.
    Root(RootError),
    /// One copy of the superblock is damaged or behind; the other serves.
    RootCopy,
    /// Index or log cannot be opened; nothing more was checked.
    Open(OpenError),
    /// This block of the index fails its checksum; not everything was checked.
    IndexBlock(u64),
    /// The index's tree is inconsistent.
    IndexTree,
    /// A record under this index key is damaged or contradicts others.
    Record(Bytes),
    /// A unit is used by objects but not marked as taken: it may be overwritten.
    Unmarked(u64),
    /// A unit is marked as taken but unused: lost space.
    Leaked(u64),
    /// A unit has a number of users other than its reference count.
    References {
        /// The unit.
        unit: u64,
        /// Users found.
        found: u32,
        /// Count recorded.
        recorded: u32,
    },
    /// A collection's object count is wrong.
    Count(CollectionId),
    /// Data fails its checksum, or cannot be read.
    Data {
        /// Collection of the object.
        collection: CollectionId,
        /// Key of the object.
        key: Bytes,
        /// First byte in the object of the block.
        offset: u64,
    },
}

/// The results of the check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The store's owner, if it could be read.
    pub identity: Option<Identity>,
    /// Objects walked.
    pub objects: u64,
    /// Blocks of objects' data.
    pub blocks: u64,
    /// Omap entries.
    pub omap_entries: u64,
    /// Transactions found in the log, not yet in the index.
    pub replayed: u64,
    /// Empty if the store is consistent. At most [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
}

/// The maximum number of listed findings.
pub const FINDINGS_MAX: usize = 1000;

impl Report {
    /// Whether nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
    fn add(&mut self, finding: Finding) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// Options of the check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckOptions {
    /// Also read all data and verify its checksums.
    pub data: bool,
}

/// Checks the store on a device that is not open. Memory: a byte and a quarter per unit of the
/// device (320 MiB per TiB), eight bytes per object, and the changes that the log and the ranges
/// still to be removed make in the index.
/// removed change in the index.
///
/// # Errors
/// The device failed. Damage is in the report, not here.
pub fn check(
    device: &Arc<dyn BlockingDevice>,
    options: CheckOptions,
) -> Result<Report, DeviceError> {
    let mut report = Report::default();
    let root = match Root::read(&**device) {
        Ok(root) => root,
        Err(RootError::Device(error)) => return Err(error),
        Err(error) => {
            report.add(Finding::Root(error));
            return Ok(report);
        }
    };
    report.identity = Some(root.identity);
    if !root.copies_agree(&**device)? {
        report.add(Finding::RootCopy);
    }
    // Opening writes a little, in memory only; chunks for it are past the device's end.
    let units = root.layout.units();
    let beyond = Space::new(Allocator::new(
        units + 4096 * root.layout.chunk_units(),
        units,
    ));
    let walked = Backend::new(device.clone(), root.clone(), beyond, true)
        .map_err(OpenError::from)
        .and_then(|backend| {
            let walked = walk(device, &root, &backend, options, &mut report);
            if let Some(block) = backend.bad_block() {
                report.add(Finding::IndexBlock(block));
            }
            walked
        });
    match walked {
        Ok(()) => Ok(report),
        Err(OpenError::Device(error)) => Err(error),
        Err(error) => {
            report.add(Finding::Open(error));
            Ok(report)
        }
    }
}

fn walk(
    device: &Arc<dyn BlockingDevice>,
    root: &Root,
    backend: &Backend,
    options: CheckOptions,
    report: &mut Report,
) -> Result<(), OpenError> {
    let layout = root.layout;
    let index = Index::open(backend.clone(), 8 << 20)?;
    let Loaded {
        state,
        mut allocator,
    } = load(&index, &layout)?;
    let mut replay = replay(&**device, &layout, state, &mut allocator)?;
    report.replayed = replay.state.transactions - state.transactions;
    let units = Units::new(layout.units(), &allocator);
    take_chunks(&mut allocator, &index)?;
    drop(allocator);
    let leftovers = leftovers(&index, &mut replay.changes)?;
    replay.changes.settle();
    index.commit(&Merge {
        leftovers: &leftovers,
        ..Merge::all(&replay.changes, &[])
    })?;
    let source = Source {
        index: &index,
        device: &**device,
        layout,
        replay: &replay,
    };
    Walk::new(source, options, units, report).run()?;
    match index.verify() {
        Ok(true) => {}
        Ok(false) | Err(IndexError::Corrupt | IndexError::Full) => report.add(Finding::IndexTree),
        Err(IndexError::Device(error)) => return Err(OpenError::Device(error)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::keys;
    use crate::format::object::References;
    use crate::memtable::MemTable;
    use crate::testing::TestDevice;
    use crate::{
        Event, FormatOptions, ObjectKey, ObjectStore, OpenOptions, Store, Token, Transaction,
        format,
    };
    use std::collections::BTreeMap;

    const C: CollectionId = CollectionId(1);

    fn key(name: &'static str) -> ObjectKey {
        ObjectKey::new(C, name)
    }

    /// A store with a clone, an omap and shards, all in the index.
    fn sound() -> TestDevice {
        let device = TestDevice::new(16 << 20);
        format(&device.blocking(), &FormatOptions::default()).expect("healthy");
        let mut store =
            Store::open(device.clone(), device.blocking(), &OpenOptions::default()).expect("sound");
        let t = Transaction::new()
            .create_collection(C)
            .write(key("a"), 0, vec![1; 300_000]);
        let t = t
            .omap_set(key("a"), "k", "v")
            .clone_object(key("a"), key("b"))
            .write(key("c"), 0, vec![2; 5000]);
        store.submit(t, Token(1)).expect("valid");
        let (mut events, mut jobs) = (Vec::new(), Vec::new());
        while !events.contains(&Event::Committed(Token(1))) {
            store.request_commit();
            store.jobs(&mut jobs);
            jobs.drain(..).for_each(|job| store.on_job(job.run()));
            store.poll(&mut events);
        }
        drop(store);
        drop(
            Store::open(device.clone(), device.blocking(), &OpenOptions::default()).expect("sound"),
        );
        device
    }

    /// The findings after `change` was applied to the records of the index.
    fn after(
        change: impl FnOnce(&BTreeMap<Bytes, Bytes>) -> Vec<(Bytes, Option<Bytes>)>,
    ) -> Vec<Finding> {
        let device = sound();
        let root = Root::read(&device).expect("sound");
        let space = Space::new(Allocator::new(0, 0));
        let backend =
            Backend::new(device.blocking(), root.clone(), space.clone(), false).expect("sound");
        let index = Index::open(backend.clone(), 1 << 20).expect("sound");
        let mut allocator = load(&index, &root.layout).expect("sound").allocator;
        take_chunks(&mut allocator, &index).expect("sound");
        *space.lock() = allocator;
        let records = index
            .scan(&[0], &[0xff], usize::MAX, usize::MAX)
            .expect("sound")
            .entries
            .into_iter()
            .collect();
        index
            .commit(&Merge::all(&MemTable::default(), &change(&records)))
            .expect("healthy");
        drop((index, backend));
        check(&device.blocking(), CheckOptions { data: true })
            .expect("healthy")
            .findings
    }

    fn first(records: &BTreeMap<Bytes, Bytes>, tag: u8) -> (Bytes, Bytes) {
        let (key, value) = records
            .iter()
            .find(|(key, _)| key[0] == tag)
            .expect("there is one of each kind");
        (key.clone(), value.clone())
    }

    #[test]
    fn every_contradiction_between_records_is_found() {
        assert_eq!(after(|_| Vec::new()), []);
        // The bit of a used unit cleared, and one of an unused unit set.
        let flip = |bit: fn(&[u8]) -> usize| {
            after(move |records| {
                let (key, value) = first(records, keys::TAG_BITMAP);
                let (mut value, at) = (value.to_vec(), bit(&value));
                value[at / 8] ^= 1 << (at % 8);
                vec![(key, Some(value.into()))]
            })
        };
        let used = flip(|value| {
            (0..4096)
                .find(|&at| value[at / 8] & (1 << (at % 8)) != 0)
                .expect("data")
        });
        assert!(matches!(used[..], [Finding::Unmarked(_)]), "{used:?}");
        let unused = flip(|_| 4000);
        assert_eq!(unused, [Finding::Leaked(4000)]);

        let found = after(|records| vec![(first(records, keys::TAG_REFERENCES).0, None)]);
        assert!(
            matches!(
                found[..],
                [
                    Finding::References {
                        found: 2,
                        recorded: 1,
                        ..
                    },
                    ..
                ]
            ),
            "{found:?}"
        );
        let found = after(|records| {
            let (key, value) = first(records, keys::TAG_REFERENCES);
            let mut references = References::decode(&value).expect("sound");
            *references.0.values_mut().next().expect("shared units") += 1;
            vec![(key, Some(references.encode()))]
        });
        assert!(
            matches!(
                found[..],
                [Finding::References {
                    found: 2,
                    recorded: 3,
                    ..
                }]
            ),
            "{found:?}"
        );

        let found = after(|records| {
            vec![(
                first(records, keys::TAG_COLLECTION).0,
                Some(vec![9, 0, 0, 0, 0, 0, 0, 0].into()),
            )]
        });
        assert_eq!(found, [Finding::Count(C)]);
        let found = after(|records| vec![(first(records, keys::TAG_SHARD).0, None)]);
        assert!(
            matches!(found[..], [Finding::Record(_), ..]),
            "a head names a shard that is gone: {found:?}"
        );
        for tag in [keys::TAG_HEAD, keys::TAG_SHARD, keys::TAG_REFERENCES] {
            let found = after(|records| {
                let (key, value) = first(records, tag);
                let mut value = value.to_vec();
                value[3] ^= 1;
                vec![(key, Some(value.into()))]
            });
            assert!(
                matches!(found[..], [Finding::Record(_), ..]),
                "tag {tag}: {found:?}"
            );
        }
        // A missing object leaves its units, shards, omap and count behind.
        let found = after(|records| vec![(first(records, keys::TAG_HEAD).0, None)]);
        assert!(
            found.iter().any(|f| matches!(f, Finding::Count(_))),
            "{found:?}"
        );
        assert!(
            found.iter().any(|f| matches!(
                f,
                Finding::References {
                    found: 1,
                    recorded: 2,
                    ..
                }
            )),
            "{found:?}"
        );
        let orphan = Bytes::from_static(&[keys::TAG_OMAP, 0, 0, 0, 0, 0, 0, 1, 0, 7]);
        let found = after(|_| vec![(orphan, Some("v".into()))]);
        assert!(matches!(found[..], [Finding::Record(_), ..]), "{found:?}");

        // A shard that no head names, under the number of an object that has others and under an
        // unused number.
        for number in [None, Some(7)] {
            let mut added = Bytes::new();
            let found = after(|records| {
                let (key, shard) = first(records, keys::TAG_SHARD);
                added = keys::shard(
                    number.unwrap_or_else(|| keys::number(&key).expect("a shard's key")),
                    99,
                );
                vec![(added.clone(), Some(shard))]
            });
            assert_eq!(found, [Finding::Record(added)]);
        }
        // The same object under two names.
        let found = after(|records| {
            let (key, head) = first(records, keys::TAG_HEAD);
            vec![([&key[..], b"2"].concat().into(), Some(head))]
        });
        assert!(
            found.contains(&Finding::Record(Bytes::from_static(keys::STATE))),
            "{found:?}"
        );
    }
}
