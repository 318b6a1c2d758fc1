//! Golden bytes of Nacre's data in a Ceph cluster: a changed format makes stored data unreadable.
//!
//! `golden.txt` has the bytes. When this fails, see `docs/formats/wire.md`, section "Golden bytes":
//! in short, add a version, never change existing lines. `docs/formats/rados-meta.md` describes the
//! records.
#![allow(missing_docs, reason = "tests")]

#[path = "../../../wire/tests/golden/check.rs"]
mod check;
#[path = "../../../wire/tests/golden/file.rs"]
mod file;
#[path = "../../../wire/tests/golden/sample.rs"]
#[allow(dead_code, reason = "objects hold no frames")]
mod sample;

use bytes::Bytes;
use nacre_rados::meta::layout;
use nacre_rados::meta::place::Pointer;
use nacre_rados::meta::record::{Head, HeldRecord, LeaseRecord, StepRecord};
use nacre_types::{Epoch, Name};
use nacre_wire::msg::meta::{MetaEvent, MetaPair};
use sample::{Sample, value};

const GOLDEN: &str = include_str!("golden.txt");

fn head() -> Head {
    Head {
        revision: 130,
        log: vec![300, 400, 50],
        last_lease: 7,
        leases: 2,
        keys: 5,
        bytes: 600,
    }
}
fn pair() -> MetaPair {
    let value = Bytes::from_static(b"v");
    MetaPair {
        key: "a/b".into(),
        value,
        created: 2,
        modified: 130,
        version: 3,
        lease: 7,
        epoch: Epoch(0),
    }
}
fn step() -> StepRecord {
    StepRecord {
        events: vec![
            MetaEvent::Put { pair: pair() },
            MetaEvent::Delete {
                key: "a/c".into(),
                revision: 130,
            },
        ],
    }
}
/// A location: only compared, never decoded.
fn place(name: &str, bytes: impl AsRef<[u8]>) -> Sample {
    let bytes = bytes.as_ref().to_vec();
    let kept = bytes.clone();
    let decode = move |found: &[u8]| {
        Ok(sample::Decoded {
            same: found == &kept[..],
            bytes: found.to_vec(),
        })
    };
    Sample {
        name: name.to_owned(),
        bytes,
        decode: Box::new(decode),
    }
}

fn all() -> Vec<Sample> {
    vec![
        place(
            "text of the pointer",
            Pointer {
                pool: "p".to_owned(),
                object: "o".to_owned(),
            }
            .text(),
        ),
        place("entry of the head", layout::HEAD),
        place("entry of a key", layout::key(&Name::copy(b"a/\0\x01\x02"))),
        place("entry of a lease", layout::lease(0xabcd)),
        place(
            "entry of a lease's key",
            layout::held(0xabcd, &"a/b".into()),
        ),
        place("entry of a revision's changes", layout::log(130)),
        value("record Head v1", head()),
        value(
            "record LeaseRecord v1",
            LeaseRecord {
                ttl_ms: 5_000,
                owner: "alice".into(),
                renewals: 3,
            },
        ),
        value("record HeldRecord v1", HeldRecord { bytes: 4 }),
        value("record StepRecord v1", step()),
        value("value of a key", pair()),
    ]
}

#[test]
fn every_record_is_written_as_it_always_was() {
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
        4,
    );
}

// The object's content may have been written by anyone with write access to the pool.
#[test]
fn every_truncation_and_changed_byte_is_an_error_or_a_value() {
    for sample in all()
        .into_iter()
        .filter(|sample| sample.name.starts_with("record") || sample.name.starts_with("value"))
    {
        for length in 0..sample.bytes.len() {
            assert!(
                (sample.decode)(&sample.bytes[..length]).is_err(),
                "{}, {length} bytes of it",
                sample.name
            );
        }
        for at in 0..sample.bytes.len() {
            for change in [1, 0x80, 0xff] {
                let mut bytes = sample.bytes.clone();
                bytes[at] ^= change;
                let _ = (sample.decode)(&bytes);
            }
        }
    }
}
