//! Golden bytes of what an OSD keeps in its store besides objects: a group's metadata object after
//! a short history, the daemon's record, the keys.
//!
//! `golden.txt` has the bytes. What to do when this fails says `docs/formats/wire.md`, section
//! "Golden bytes": in short, add a version, never renew lines. What they are is in
//! `docs/formats/osd.md`; the records inside that also travel between daemons have golden bytes in
//! `crates/wire` too.
#![allow(missing_docs, reason = "tests")]

#[path = "../../../wire/tests/golden/check.rs"]
mod check;
#[path = "../../../wire/tests/golden/file.rs"]
mod file;
#[path = "../../../wire/tests/golden/sample.rs"]
#[allow(dead_code, reason = "stores hold no frames")]
mod sample;

use bytes::Bytes;
use nacre_object::VERSION_ATTR;
use nacre_osd::pg::local::{Local, PgMeta, StoredMark};
use nacre_osd::{DaemonRecord, key};
use nacre_store::Op;
use nacre_types::{
    ClientId, ClusterId, Epoch, Generation, Instance, Name, ObjectId, OsdId, PgId, PoolId, Shard,
    SnapId, Time, Version,
};
use nacre_wire::msg::client::RequestId;
use nacre_wire::msg::replication::{ClientMark, PgInfo, Totals};
use nacre_wire::{Record, RecordFields, Wire};
use sample::{Decoded, Sample, value};
use std::collections::BTreeMap;

const GOLDEN: &str = include_str!("golden.txt");

fn v(interval: u64, number: u64) -> Version {
    Version {
        interval: Epoch(interval),
        number,
    }
}
fn pg() -> PgId {
    PgId {
        pool: PoolId(3),
        seed: 0x2f,
        shard: Shard(4),
    }
}
fn object(name: &str) -> ObjectId {
    let (snapshot, generation) = (SnapId(11), Generation(12));
    ObjectId {
        namespace: "home".into(),
        key: Name::copy(b"r\0w"),
        name: name.into(),
        snapshot,
        generation,
    }
}
/// Update `number` of `interval`: client 9's operation of the same number, on an object of its own.
fn entry(interval: u64, number: u64) -> Record {
    Record::new(RecordFields {
        version: v(interval, number),
        object: object(&format!("o{number}")),
        prior: v(1, 1),
        deleted: number == 6,
        request: RequestId {
            client: ClientId(9),
            instance: Instance(2),
            sequence: number,
        },
        answered_below: 3,
        totals: Totals {
            objects: number,
            bytes: 100 * number,
            estimated: false,
        },
        results: Vec::new(),
        modified_ms: 7,
    })
}

/// A metadata object: its attributes and omap.
#[derive(Default)]
struct Kept {
    attrs: BTreeMap<Bytes, Bytes>,
    omap: BTreeMap<Bytes, Bytes>,
}
impl Kept {
    fn apply(&mut self, ops: Vec<Op>) {
        for op in ops {
            match op {
                Op::SetAttr { name, value, .. } => drop(self.attrs.insert(name, value)),
                Op::OmapSet { entries, .. } => self.omap.extend(entries),
                Op::OmapRemove { keys, .. } => self.omap.retain(|key, _| !keys.contains(key)),
                Op::OmapRemoveRange { from, to, .. } => {
                    self.omap
                        .retain(|key, _| *key < from || to.as_ref().is_some_and(|to| key >= to));
                }
                Op::OmapClear(_) => self.omap.clear(),
                // An object that is gone: the group's own business, not its metadata's.
                Op::Remove(_) => {}
                other => panic!("a metadata object is not made by {other:?}"),
            }
        }
    }
}

/// Five updates, of which the first two are trimmed and remembered; then another primary's log from
/// the fourth on, so that objects are missing.
fn history() -> (Local, Kept) {
    let (mut local, mut kept, mut ops) = (Local::new(pg(), 64), Kept::default(), Vec::new());
    for number in 3..=7 {
        local.append(entry(5, number), Time(number), &mut ops);
    }
    local.trim(v(5, 4), &mut ops);
    let theirs = vec![entry(8, 7), entry(8, 8)];
    let memory = local.dedup.beyond(v(5, 4));
    local.adopt(
        v(5, 6),
        theirs,
        v(8, 8),
        &memory,
        (Epoch(8), Time(9)),
        &mut ops,
    );
    local.set_cursor(Some(Bytes::from_static(b"\xff\xff")), &mut ops);
    kept.apply(ops);
    (local, kept)
}

fn metadata() -> Vec<Sample> {
    let (_, kept) = history();
    let mut all = Vec::new();
    let parts = kept
        .attrs
        .into_iter()
        .map(|part| ("attr", part))
        .chain(kept.omap.into_iter().map(|part| ("omap", part)));
    for (at, (kind, (key, value))) in parts.enumerate() {
        all.push(bytes(&format!("group {at} {kind} key"), key));
        all.push(bytes(&format!("group {at} {kind} value"), value));
    }
    all
}

/// Bytes that only are compared here.
fn bytes(name: &str, bytes: impl Into<Bytes>) -> Sample {
    let bytes: Bytes = bytes.into();
    let kept = bytes.to_vec();
    let decode = move |found: &[u8]| {
        Ok(Decoded {
            same: found == &kept[..],
            bytes: found.to_vec(),
        })
    };
    Sample {
        name: name.to_owned(),
        bytes: bytes.to_vec(),
        decode: Box::new(decode),
    }
}

fn all() -> Vec<Sample> {
    let meta = PgMeta {
        activated: Epoch(8),
        tail: v(5, 4),
        head: v(8, 8),
        backfill: Some(Bytes::from_static(b"cursor")),
        pg_num: 64,
        totals: Totals {
            objects: 4,
            bytes: 400,
            estimated: true,
        },
        forgot: true,
        clones_known: true,
    };
    let older = PgMeta {
        forgot: false,
        clones_known: false,
        ..meta.clone()
    };
    let old = PgMeta {
        clones_known: false,
        ..meta.clone()
    };
    let request = RequestId {
        client: ClientId(1),
        instance: Instance(2),
        sequence: 3,
    };
    let stored = StoredMark {
        mark: ClientMark { below: request },
        last: v(5, 6),
    };
    let daemon = DaemonRecord {
        cluster: ClusterId(0x0102),
        osd: OsdId(3),
        instance: Instance(17),
    };
    let collection = key::collection(PoolId(3), Shard(4)).0;
    let mut all = vec![
        bytes(
            "collection of pool 3 shard 4",
            collection.to_be_bytes().to_vec(),
        ),
        bytes("key of the daemon", key::daemon_key().key),
        bytes("key of a group", key::meta_key(pg()).key),
        bytes("key of an object", key::store_key(pg(), &object("o1")).key),
        bytes(
            "key of the clones' index",
            key::clones_key(key::collection(PoolId(3), Shard(4))).key,
        ),
        bytes(
            "key of an object on its way in",
            key::incoming_key(pg(), &object("o1")).key,
        ),
        bytes("attr of an object's version", VERSION_ATTR),
        value("record DaemonRecord v1", daemon),
        value("record PgMeta v1", older),
        value("record PgMeta v2", old),
        value("record PgMeta v3", meta),
        value("fields StoredMark", stored),
    ];
    all.extend(metadata());
    all
}

#[test]
fn everything_is_written_as_it_always_was() {
    check::written_as_ever(GOLDEN, &all());
}

#[test]
fn every_golden_byte_string_still_reads_as_it_did() {
    check::read_as_ever(GOLDEN, all());
}

#[test]
fn no_record_is_without_golden_bytes() {
    check::nothing_is_without(
        GOLDEN,
        &check::wanted(&check::sources(env!("CARGO_MANIFEST_DIR"))),
        2,
    );
}

// Whatever the version that starts: a store of this one becomes the same group.
#[test]
fn a_stored_group_becomes_what_it_was() {
    let golden = file::parse(GOLDEN);
    let part = |at: usize, kind: &str, what: &str| {
        golden.get(&format!("group {at} {kind} {what}")).cloned()
    };
    let info = part(0, "attr", "value").expect("the fixed part");
    let pair = |at: usize| {
        Some((
            part(at, "omap", "key")?.into(),
            part(at, "omap", "value")?.into(),
        ))
    };
    let omap: Vec<(Bytes, Bytes)> = (1..).map_while(pair).collect();
    for tag in [b'l', b'm', b'd', b'c'] {
        assert!(
            omap.iter().any(|(key, _)| key[0] == tag),
            "the history has no key `{}`",
            char::from(tag)
        );
    }
    let restored = Local::restore(pg(), &info, &omap, Time(9)).expect("reads");
    restored.check();
    let (local, _) = history();
    let seen = |local: &Local| -> (PgInfo, Totals, Totals) {
        (local.info(v(5, 6)), local.totals(), local.base_totals())
    };
    assert_eq!(seen(&restored), seen(&local));
    assert_eq!(restored.log, local.log);
    assert_eq!((restored.pg_num, restored.activated), (64, Epoch(8)));
    // And the objects' positions read back.
    assert_eq!(
        key::object_at(&golden["key of an object"]),
        Some(object("o1"))
    );
    assert_eq!(key::pg_of_meta_key(&golden["key of a group"]), Some(pg()));
    let daemon: DaemonRecord = Wire::from_bytes(&golden["record DaemonRecord v1"]).expect("reads");
    assert_eq!(daemon.instance, Instance(17));
}
