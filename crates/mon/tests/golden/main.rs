//! Golden bytes of what a monitor keeps in its store: a format that changes makes stores unreadable, and two versions of one monitor different.
//!
//! `golden.txt` has the bytes. What to do when this fails says `docs/formats/wire.md`, section "Golden bytes": in short, add a version,
//! never renew lines. What the records are is in `docs/formats/mon.md`.
#![allow(missing_docs, reason = "tests")]

#[path = "../../../wire/tests/golden/check.rs"]
mod check;
#[path = "../../../wire/tests/golden/file.rs"]
mod file;
#[path = "../../../wire/tests/golden/sample.rs"]
#[allow(dead_code, reason = "stores hold no frames")]
mod sample;

use bytes::Bytes;
use nacre_mon::hierarchy;
use nacre_mon::raft::record::{
    EntryRecord, HARD_KEY, HardRecord, Identity, Members, SnapshotRecord, WHO_KEY, entry_key, identity_object,
    raft_object, snapshot_object,
};
use nacre_mon::state::cluster_log::{Heard, LogImage, Numbered};
use nacre_mon::state::{CommandDone, Image, Proposal, Step};
use nacre_types::{ClusterId, Entity, Epoch, Instance, MonId, OsdId};
use nacre_wire::map::{Change, ClusterMap, CrushSection, Digest};
use nacre_wire::msg::monitor::{LogLine, Severity};
use protobuf::Message as _;
use raft::eraftpb::{ConfChange, ConfChangeType};
use sample::{Sample, value};
use std::collections::BTreeMap;

const GOLDEN: &str = include_str!("golden.txt");

fn line() -> LogLine {
    let from = Entity::Osd(OsdId(3));
    LogLine { from, instance: Instance(4), number: 5, severity: Severity::Warn {}, text: "caf\u{e9}".to_owned() }
}
fn members() -> Members {
    Members { voters: vec![1, 2, 4], learners: vec![3], voters_outgoing: vec![], learners_next: vec![] }
}
fn done() -> CommandDone {
    CommandDone { via: MonId(2), token: 0x0102_0304_0506_0708, reply: r#"{"id":1}"#.to_owned() }
}
fn step() -> Step {
    Step { digest: Digest(0x0102), delta: Bytes::from_static(b"delta") }
}
fn numbered() -> Numbered {
    Numbered { number: 7, unix_ms: 8, line: line() }
}
fn heard() -> Heard {
    Heard { instance: Instance(4), number: 5, at: 7 }
}
fn log() -> LogImage {
    LogImage { last: 7, lines: vec![numbered()], heard: BTreeMap::from([(Entity::Osd(OsdId(3)), heard())]) }
}
fn proposal() -> Proposal {
    let changes = vec![Change::OsdDown { osd: OsdId(3), instance: Instance(4) }];
    Proposal { base: Epoch(9), changes, lines: vec![line()], clean_to: Epoch(6), commands: vec![done()], unix_ms: 10 }
}
/// A map's own golden bytes are those of `crates/wire`; this one is small.
fn image() -> Image {
    let crush = CrushSection::parse("type 0 osd\n").expect("well-formed");
    let map = ClusterMap::empty(ClusterId(7), crush);
    Image { map, history: BTreeMap::from([(Epoch(9), step())]), log: log(), commands: vec![(Epoch(9), done())] }
}
fn snapshot() -> SnapshotRecord {
    let state = Bytes::from_static(b"image");
    SnapshotRecord { index: 20, term: 3, members: members(), trimmed_index: 11, trimmed_term: 2, state }
}
/// The consensus library's own form of "monitor 3 is to learn".
fn change_of_members() -> Bytes {
    let mut change = ConfChange { node_id: 4, ..ConfChange::default() };
    change.set_change_type(ConfChangeType::AddLearnerNode);
    change.write_to_bytes().expect("encodes").into()
}
fn entry(kind: u8, data: Bytes) -> EntryRecord {
    EntryRecord { index: 12, term: 3, kind, data, context: Bytes::new() }
}
/// A place in the store: only compared, nothing reads it back.
fn place(name: &str, bytes: impl Into<Bytes>) -> Sample {
    let bytes: Bytes = bytes.into();
    let kept = bytes.to_vec();
    let decode = move |found: &[u8]| Ok(sample::Decoded { same: found == &kept[..], bytes: found.to_vec() });
    Sample { name: name.to_owned(), bytes: bytes.to_vec(), decode: Box::new(decode) }
}

fn all() -> Vec<Sample> {
    vec![
        place("place identity", identity_object().key),
        place("place raft", raft_object().key),
        place("place snapshot", snapshot_object().key),
        // A new cluster's first bytes: monitors of two versions must found the same one.
        place("text of the initial hierarchy", hierarchy::initial().into_bytes()),
        place("key who", WHO_KEY),
        place("key hard state", HARD_KEY),
        place("key entry 258", entry_key(258)),
        value("record Identity v1", Identity { cluster: ClusterId(0x0102), mon: MonId(3) }),
        value("record HardRecord v1", HardRecord { term: 5, vote: 2, commit: 9 }),
        value("record EntryRecord v1", entry(0, Bytes::from_static(b"proposal"))),
        value("entry of a change of members", entry(1, change_of_members())),
        value("record Members v1", members()),
        value("record SnapshotRecord v1", snapshot()),
        value("record Proposal v1", proposal()),
        value("record CommandDone v1", done()),
        value("record Step v1", step()),
        value("record Image v1", image()),
        value("record Numbered v1", numbered()),
        value("fields Heard", heard()),
        value("record LogImage v1", log()),
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
    check::nothing_is_without(GOLDEN, &check::wanted(&check::sources(env!("CARGO_MANIFEST_DIR"))), 12);
}

// Its bytes are the library's, not ours: another version of it must read what this one wrote.
#[test]
fn the_consensus_library_reads_a_stored_change_of_members() {
    let golden = file::parse(GOLDEN);
    let record: EntryRecord = nacre_wire::Wire::from_bytes(&golden["entry of a change of members"]).expect("a record");
    let mut change = ConfChange::default();
    change.merge_from_bytes(&record.data).expect("the library's own");
    assert_eq!((change.get_change_type(), change.node_id), (ConfChangeType::AddLearnerNode, 4));
}
