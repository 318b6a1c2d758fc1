//! Golden bytes of a monitor's store: a changed format makes stores unreadable, and two versions of
//! one monitor differ.
//!
//! `golden.txt` has the bytes. For the procedure when this fails see `docs/formats/wire.md`,
//! section "Golden bytes": in short, add a version, never renew lines. The records are described in
//! `docs/formats/mon.md`.
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
    EntryRecord, HARD_KEY, HardRecord, Identity, Members, SnapshotRecord, WHO_KEY, entry_key,
    identity_object, raft_object, snapshot_object,
};
use nacre_mon::state::cluster_log::{Heard, LogImage, Numbered};
use nacre_mon::state::meta::record::{
    MetaAct, MetaEntry, MetaGuard, MetaHolding, MetaImage, MetaLimit, MetaPending, MetaQuiet,
    MetaSession, MetaTerms, MetaTrigger, MetaWho,
};
use nacre_mon::state::{CommandDone, Image, Proposal, Step};
use nacre_types::{ClientId, ClusterId, Entity, Epoch, Instance, MonId, OsdId};
use nacre_wire::map::{Change, ClusterMap, CrushSection, Digest};
use nacre_wire::msg::meta::{
    MetaCompare, MetaError, MetaEvent, MetaOp, MetaPair, MetaRelation, MetaResult, MetaSpan,
    MetaTarget,
};
use nacre_wire::msg::monitor::{LogLine, Severity};
use protobuf::Message as _;
use raft::eraftpb::{ConfChange, ConfChangeType};
use sample::{Sample, value};
use std::collections::BTreeMap;

const GOLDEN: &str = include_str!("golden.txt");

fn line() -> LogLine {
    let from = Entity::Osd(OsdId(3));
    LogLine {
        from,
        instance: Instance(4),
        number: 5,
        severity: Severity::Warn {},
        text: "caf\u{e9}".to_owned(),
        once: "key".to_owned(),
    }
}
/// A line from before lines had keys.
fn old_line() -> LogLine {
    LogLine {
        once: String::new(),
        ..line()
    }
}
fn old_log() -> LogImage {
    LogImage {
        lines: vec![Numbered {
            line: old_line(),
            ..numbered()
        }],
        ..log()
    }
}
fn members() -> Members {
    Members {
        voters: vec![1, 2, 4],
        learners: vec![3],
        voters_outgoing: vec![],
        learners_next: vec![],
    }
}
fn done() -> CommandDone {
    CommandDone {
        via: MonId(2),
        token: 0x0102_0304_0506_0708,
        reply: r#"{"id":1}"#.to_owned(),
    }
}
fn step() -> Step {
    Step {
        digest: Digest(0x0102),
        delta: Bytes::from_static(b"delta"),
    }
}
fn numbered() -> Numbered {
    Numbered {
        number: 7,
        unix_ms: 8,
        line: line(),
    }
}
fn heard() -> Heard {
    Heard {
        instance: Instance(4),
        number: 5,
        at: 7,
    }
}
fn log() -> LogImage {
    LogImage {
        last: 7,
        lines: vec![numbered()],
        heard: BTreeMap::from([(Entity::Osd(OsdId(3)), heard())]),
    }
}
fn proposal() -> Proposal {
    let changes = vec![Change::OsdDown {
        osd: OsdId(3),
        instance: Instance(4),
    }];
    Proposal {
        base: Epoch(9),
        changes,
        lines: vec![line()],
        clean_to: Epoch(6),
        commands: vec![done()],
        unix_ms: 10,
        meta: vec![entry_of_metadata()],
    }
}
/// A map's own golden bytes are those of `crates/wire`; this one is small.
fn image() -> Image {
    let crush = CrushSection::parse("type 0 osd\n").expect("well-formed");
    let map = ClusterMap::empty(ClusterId(7), crush);
    Image {
        map,
        history: BTreeMap::from([(Epoch(9), step())]),
        log: log(),
        commands: vec![(Epoch(9), done())],
        meta: metadata(),
        commands_forgotten: BTreeMap::from([(MonId(1), 0x0102_0304_0000_0007)]),
    }
}
/// An image from before images recorded forgotten commands.
fn old_image() -> Image {
    Image {
        commands_forgotten: BTreeMap::new(),
        ..image()
    }
}
fn who() -> MetaWho {
    let client = Entity::Client(ClientId(0x0102));
    MetaWho {
        client,
        instance: Instance(4),
        sequence: 8,
        answered_below: 6,
        known: 5,
        again: true,
        name: "alice".into(),
    }
}
fn pair() -> MetaPair {
    let value = Bytes::from_static(b"v");
    MetaPair {
        key: "a/b".into(),
        value,
        created: 2,
        modified: 5,
        version: 3,
        lease: 7,
        epoch: Epoch(9),
    }
}
fn event() -> MetaEvent {
    MetaEvent::Put { pair: pair() }
}
fn guard() -> MetaGuard {
    MetaGuard {
        key: "nacre/namespace/a".into(),
        modified: 3,
    }
}
fn limit() -> MetaLimit {
    MetaLimit {
        namespace: "a".into(),
        bytes: 100,
        keys: 10,
    }
}
fn trigger() -> MetaTrigger {
    MetaTrigger {
        name: "a/t".into(),
        prefix: "a/b".into(),
    }
}
fn terms() -> MetaTerms {
    MetaTerms {
        guards: vec![guard()],
        limits: vec![limit()],
        triggers: vec![trigger()],
        depth: 2,
        quiet: vec![quiet()],
    }
}
fn quiet() -> MetaQuiet {
    MetaQuiet {
        span: MetaSpan::Prefix {
            prefix: "nacre/namespace/".into(),
        },
        since: 6,
    }
}
fn put() -> MetaOp {
    MetaOp::Put {
        key: "a/b".into(),
        value: Bytes::from_static(b"v"),
        lease: 7,
    }
}
fn transact() -> MetaAct {
    let target = MetaTarget::Version { number: 3 };
    let compares = vec![MetaCompare {
        key: "a/b".into(),
        target,
        relation: MetaRelation::Equal {},
    }];
    MetaAct::Transact {
        compares,
        then: vec![put()],
        otherwise: vec![],
    }
}
fn entry_of_metadata() -> MetaEntry {
    MetaEntry {
        who: Some(who()),
        act: transact(),
        terms: terms(),
    }
}
fn holding() -> MetaHolding {
    MetaHolding {
        ttl_ms: 5_000,
        owner: "alice".into(),
    }
}
fn session() -> MetaSession {
    let results = BTreeMap::from([(8, (5, MetaResult::Revoked { keys: 2 }))]);
    MetaSession {
        instance: Instance(4),
        low: 6,
        revision: 5,
        touched: 12,
        results,
    }
}
fn pending() -> MetaPending {
    MetaPending {
        trigger: "a/t".into(),
        revision: 5,
        depth: 1,
        events: vec![event()],
    }
}
fn metadata() -> MetaImage {
    MetaImage {
        revision: 5,
        entries: 12,
        pairs: vec![pair()],
        history: vec![vec![event()]],
        leases: BTreeMap::from([(7, holding())]),
        last_lease: 7,
        sessions: BTreeMap::from([(Entity::Client(ClientId(0x0102)), session())]),
        forgotten: Some(4),
        pending: vec![pending()],
    }
}
fn acts() -> Vec<MetaAct> {
    let fired = MetaAct::Fired {
        trigger: "a/t".into(),
        revision: 5,
        ops: vec![put()],
        lines: vec!["said".to_owned()],
    };
    let refuse = MetaAct::Refuse {
        error: MetaError::NoSuchLease { lease: 7 },
    };
    vec![
        transact(),
        MetaAct::Grant { ttl_ms: 5_000 },
        MetaAct::Revoke { lease: 7 },
        fired,
        refuse,
    ]
}
fn snapshot() -> SnapshotRecord {
    let state = Bytes::from_static(b"image");
    SnapshotRecord {
        index: 20,
        term: 3,
        members: members(),
        trimmed_index: 11,
        trimmed_term: 2,
        state,
    }
}
/// The consensus library's encoding of "monitor 3 becomes a learner".
fn change_of_members() -> Bytes {
    let mut change = ConfChange {
        node_id: 4,
        ..ConfChange::default()
    };
    change.set_change_type(ConfChangeType::AddLearnerNode);
    change.write_to_bytes().expect("encodes").into()
}
fn entry(kind: u8, data: Bytes) -> EntryRecord {
    EntryRecord {
        index: 12,
        term: 3,
        kind,
        data,
        context: Bytes::new(),
    }
}
/// A key in the store: only compared, never read back.
fn place(name: &str, bytes: impl Into<Bytes>) -> Sample {
    let bytes: Bytes = bytes.into();
    let kept = bytes.to_vec();
    let decode = move |found: &[u8]| {
        Ok(sample::Decoded {
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
    let acts = acts().into_iter().zip(MetaAct::VARIANTS);
    let mut all: Vec<Sample> = acts
        .map(|(act, (_, name))| value(&format!("variant MetaAct.{name}"), act))
        .collect();
    all.extend(records());
    all
}

fn records() -> Vec<Sample> {
    vec![
        place("place identity", identity_object().key),
        place("place raft", raft_object().key),
        place("place snapshot", snapshot_object().key),
        // A new cluster's first bytes: monitors of two versions must found the same one.
        place(
            "text of the initial hierarchy",
            hierarchy::initial().into_bytes(),
        ),
        place("key who", WHO_KEY),
        place("key hard state", HARD_KEY),
        place("key entry 258", entry_key(258)),
        value(
            "record Identity v1",
            Identity {
                cluster: ClusterId(0x0102),
                mon: MonId(3),
                store: 0,
            },
        ),
        value(
            "record Identity v2",
            Identity {
                cluster: ClusterId(0x0102),
                mon: MonId(3),
                store: 0x1_2345,
            },
        ),
        value(
            "record HardRecord v1",
            HardRecord {
                term: 5,
                vote: 2,
                commit: 9,
            },
        ),
        value(
            "record EntryRecord v1",
            entry(0, Bytes::from_static(b"proposal")),
        ),
        value(
            "entry of a change of members",
            entry(1, change_of_members()),
        ),
        value("record Members v1", members()),
        value("record SnapshotRecord v1", snapshot()),
        value(
            "record Proposal v1",
            Proposal {
                meta: Vec::new(),
                lines: vec![old_line()],
                ..proposal()
            },
        ),
        value("record Proposal v2", proposal()),
        value("record CommandDone v1", done()),
        value("record Step v1", step()),
        value(
            "record Image v1",
            Image {
                meta: MetaImage::default(),
                log: old_log(),
                ..old_image()
            },
        ),
        value("record Image v2", old_image()),
        value("record Image v3", image()),
        value("record MetaWho v1", who()),
        value("record MetaGuard v1", guard()),
        value("record MetaLimit v1", limit()),
        value("record MetaTrigger v1", trigger()),
        value(
            "record MetaTerms v1",
            MetaTerms {
                quiet: Vec::new(),
                ..terms()
            },
        ),
        value("record MetaTerms v2", terms()),
        value("record MetaQuiet v1", quiet()),
        value("record MetaEntry v1", entry_of_metadata()),
        value("record MetaHolding v1", holding()),
        value("record MetaSession v1", session()),
        value("record MetaPending v1", pending()),
        value("record MetaImage v1", metadata()),
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
    check::nothing_is_without(
        GOLDEN,
        &check::wanted(&check::sources(env!("CARGO_MANIFEST_DIR"))),
        24,
    );
}

// Its bytes are the library's, not ours: another version of it must read what this one wrote.
#[test]
fn the_consensus_library_reads_a_stored_change_of_members() {
    let golden = file::parse(GOLDEN);
    let record: EntryRecord =
        nacre_wire::Wire::from_bytes(&golden["entry of a change of members"]).expect("a record");
    let mut change = ConfChange::default();
    change
        .merge_from_bytes(&record.data)
        .expect("the library's own");
    assert_eq!(
        (change.get_change_type(), change.node_id),
        (ConfChangeType::AddLearnerNode, 4)
    );
}
