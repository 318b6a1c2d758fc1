//! A fixed example of everything that `nacre-wire` encodes. Fields avoid their default values where
//! possible, so that a forgotten, swapped or truncated field is noticed.

use super::sample::{Sample, frame, value};
use bytes::Bytes;
use nacre_types::{
    ClientId, ClusterId, Entity, Epoch, Generation, Instance, MonId, Name, ObjectId, OsdId, PgId,
    PoolId, Shard, SnapId, Version,
};
use nacre_wire::map::programs::RegistryHead;
use nacre_wire::map::{
    Activation, Address, Capability, Change, CrushHunk, CrushSection, Digest, Fences, MonInfo,
    OsdInfo, PgRecord, Pool, PoolSnaps, Program, ProgramKind, ProgramVersion, Protocol, SnapInfo,
    SnapMode, SourceDigest, Weight,
};
use nacre_wire::msg::client::{
    Dated, OpApplied, OpBlocked, OpFailure, OpReply, OpRequest, RequestId, SnapContext, SubOp,
    SubReply,
};
use nacre_wire::msg::lock::{LockEntry, LockHolder, LockOwner, LockRecord};
use nacre_wire::msg::monitor::{
    Beacon, Boot, ClusterLog, Command, CommandReply, FailureReport, Forward, ForwardReply, Hello,
    Led, LogLine, MapAck, MapDeltas, MapFull, PgActivateRequest, PgReport, PgTemporaryRequest,
    RaftStep, Refused, SessionPing, SessionPong, Severity, Subscribe,
};
use nacre_wire::msg::replication::{
    Adopt, AdoptAck, ClientMark, Dedup, Discard, Effect, LogQuery, LogReply, Logged, Missing, Part,
    PeerInfo, PeerQuery, PgInfo, Ping, Pong, Progress, ProgressAck, Pull, Push, PushAck,
    ReplicaUpdate, Replicate, ReplicateAcks, ReplicateApplied, ScanQuery, ScanReply, Totals,
    Undone,
};
use nacre_wire::msg::snap::{CloneInfo, SnapSet, Whole};
use nacre_wire::msg::watch::{
    NotifyAck, NotifyAcked, WatchNotify, WatchPing, WatchPong, WatchRecord, Watcher, WatcherId,
};
use nacre_wire::record::{Record, RecordFields};
use nacre_wire::{ClusterMap, MapDelta, Message, Wire};
use std::collections::BTreeMap;

/// All examples.
pub fn all() -> Vec<Sample> {
    let mut all = Vec::new();
    all.extend(basics());
    all.extend(operations());
    all.extend(replication());
    all.extend(monitors());
    all.extend(super::meta::all());
    all.extend(super::fs::all());
    all.extend(first_versions());
    all.extend(map());
    all.extend(frames());
    all
}

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
fn object() -> ObjectId {
    ObjectId {
        namespace: "home".into(),
        key: "row".into(),
        name: Name::copy(b"caf\xc3\xa9 \xff"),
        snapshot: SnapId(11),
        generation: Generation(12),
    }
}
fn request() -> RequestId {
    RequestId {
        client: ClientId(0x1122_3344_5566_7788),
        instance: Instance(5),
        sequence: 6,
    }
}
fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}
fn address() -> Address {
    Address("127.0.0.1:6800".to_owned())
}

fn basics() -> Vec<Sample> {
    vec![
        value("value Version", v(7, 8)),
        value("value PgId", pg()),
        value("value ObjectId", object()),
        value("value Entity.Mon", Entity::Mon(MonId(1))),
        value("value Entity.Osd", Entity::Osd(OsdId(2))),
        value(
            "value Entity.Client",
            Entity::Client(ClientId(0x0102_0304_0506_0708)),
        ),
        value("value Address", address()),
        value("value Weight", Weight(0x8000)),
        value("value Digest", Digest(7).chain(b"nacre")),
        value("value CrushSection", crush()),
        value("fields RequestId", request()),
        value(
            "fields SnapContext",
            SnapContext {
                sequence: 9,
                snapshots: vec![SnapId(9), SnapId(4)],
            },
        ),
    ]
}

fn sub_ops() -> Vec<SubOp> {
    vec![
        SubOp::Read {
            offset: 1,
            length: 2,
        },
        SubOp::Stat {},
        SubOp::Write {
            offset: 4096,
            length: 5,
        },
        SubOp::WriteFull { length: 3 },
        SubOp::Append { length: 4 },
        SubOp::Zero {
            offset: 5,
            length: 6,
        },
        SubOp::Truncate { size: 7 },
        SubOp::Create { exclusive: true },
        SubOp::Delete {},
        SubOp::GetAttr { name: "a".into() },
        SubOp::ListAttrs {},
        SubOp::SetAttr {
            name: "b".into(),
            value: bytes("c"),
        },
        SubOp::RemoveAttr { name: "d".into() },
        SubOp::OmapGet {
            keys: vec![bytes("e"), bytes("f")],
        },
        SubOp::OmapList {
            after: bytes("g"),
            limit: 8,
        },
        SubOp::OmapSet {
            entries: vec![(bytes("h"), bytes("i"))],
        },
        SubOp::OmapRemove {
            keys: vec![bytes("j")],
        },
        SubOp::OmapClear {},
        SubOp::AssertExists { exists: true },
        SubOp::AssertVersion { version: v(9, 10) },
        SubOp::CompareData {
            offset: 11,
            length: 1,
        },
        SubOp::CompareAttr {
            name: "k".into(),
            value: bytes("l"),
        },
        SubOp::ListObjects {
            after: bytes("m"),
            limit: 12,
        },
        SubOp::Call {
            class: "zlog".into(),
            method: "write".into(),
            length: 13,
        },
        SubOp::Eval {
            script: 14,
            handler: "run".into(),
            input: 15,
        },
        SubOp::Checksum {
            offset: 16,
            length: 17,
        },
    ]
}

fn watcher() -> WatcherId {
    WatcherId {
        client: ClientId(41),
        instance: Instance(42),
        cookie: 43,
    }
}
fn watch_record() -> WatchRecord {
    WatchRecord {
        timeout_ms: 44,
        since: v(7, 8),
    }
}
fn watch_notify() -> WatchNotify {
    WatchNotify {
        pg: pg(),
        object: object(),
        watcher: watcher(),
        notify: request(),
    }
}
fn notify_ack() -> NotifyAck {
    NotifyAck {
        pg: pg(),
        object: object(),
        watcher: watcher(),
        notify: request(),
    }
}
fn watch_ping() -> WatchPing {
    WatchPing {
        pg: pg(),
        object: object(),
        watcher: watcher(),
        stamp: 45,
    }
}
fn watch_pong() -> WatchPong {
    WatchPong {
        watcher: watcher(),
        stamp: 45,
        alive: true,
    }
}
fn owner() -> LockOwner {
    LockOwner {
        client: ClientId(51),
        instance: Instance(52),
        cookie: 53,
    }
}
fn holder() -> LockHolder {
    LockHolder {
        owner: owner(),
        token: v(7, 8),
        granted: Epoch(54),
        lease_ms: 55,
        description: "d".to_owned(),
    }
}
fn lock_record() -> LockRecord {
    LockRecord {
        shared: true,
        holders: vec![holder()],
    }
}
/// Sub-operations added after an operation's golden bytes were fixed.
fn later_sub_ops() -> Vec<SubOp> {
    vec![
        SubOp::Watch {
            cookie: 1,
            timeout_ms: 2,
        },
        SubOp::Unwatch { cookie: 3 },
        SubOp::Notify {
            timeout_ms: 4,
            length: 5,
        },
        SubOp::ListWatchers {},
        SubOp::Lock {
            name: "n".into(),
            cookie: 6,
            shared: true,
            lease_ms: 7,
            description: "o".to_owned(),
        },
        SubOp::Unlock {
            name: "p".into(),
            cookie: 8,
        },
        SubOp::BreakLock {
            name: "q".into(),
            owner: owner(),
        },
        SubOp::AssertLock {
            name: "r".into(),
            cookie: 9,
            shared_ok: true,
        },
        SubOp::ListLocks {},
        SubOp::ListSnaps {},
        SubOp::Rollback { snap: SnapId(10) },
        SubOp::CopyFrom { source: object() },
        SubOp::ReadWhole {},
    ]
}
fn later_results() -> Vec<SubReply> {
    vec![
        SubReply::Notified {
            acked: vec![NotifyAcked {
                watcher: watcher(),
                length: 46,
            }],
            missed: vec![watcher()],
            from_memory: true,
        },
        SubReply::Watchers {
            watchers: vec![Watcher {
                id: watcher(),
                record: watch_record(),
            }],
        },
        SubReply::Locked {
            token: v(9, 10),
            fence: Epoch(56),
        },
        SubReply::Locks {
            locks: vec![LockEntry {
                name: "s".into(),
                record: lock_record(),
            }],
        },
        SubReply::Snaps {
            sequence: 11,
            exists: true,
            clones: vec![clone_info()],
        },
        SubReply::Whole { object: whole() },
    ]
}

fn clone_info() -> CloneInfo {
    CloneInfo {
        id: SnapId(12),
        snaps: vec![SnapId(12), SnapId(11)],
        size: 4096,
    }
}
fn snap_set() -> SnapSet {
    SnapSet {
        sequence: 13,
        clones: vec![clone_info()],
        whiteout: true,
    }
}
fn whole() -> Whole {
    let (attrs, omap) = (
        vec![("a".into(), bytes("b"))],
        vec![(bytes("c"), bytes("d"))],
    );
    Whole {
        version: v(14, 15),
        size: 5,
        attrs,
        header: bytes("h"),
        omap,
    }
}

fn failures() -> Vec<OpFailure> {
    vec![
        OpFailure::NotFound {},
        OpFailure::AlreadyExists {},
        OpFailure::Guard { index: 3 },
        OpFailure::WrongTarget {},
        OpFailure::Superseded {},
        OpFailure::Fenced {},
        OpFailure::Full {},
        OpFailure::TooLarge {},
        OpFailure::Invalid {
            why: "no".to_owned(),
        },
        OpFailure::Corrupt { offset: 4096 },
        OpFailure::Expired {},
        OpFailure::Undated { now: dated() },
        OpFailure::Denied {
            why: "client.bob may not".to_owned(),
        },
        OpFailure::NoSuchMethod {
            why: "no class zlog".to_owned(),
        },
        OpFailure::Method {
            index: 1,
            activation: 17,
            errno: 5,
            why: "zlog:3: oops".to_owned(),
        },
        OpFailure::TooMany {
            what: "t".to_owned(),
        },
        OpFailure::LockHeld {
            owner: owner(),
            description: "u".to_owned(),
        },
    ]
}

fn results() -> Vec<SubReply> {
    vec![
        SubReply::Done {},
        SubReply::Data { length: 5 },
        SubReply::Stat {
            size: 6,
            version: v(7, 8),
            modified_ms: 9,
        },
        SubReply::Value { value: bytes("n") },
        SubReply::Entries {
            entries: vec![(bytes("o"), bytes("p"))],
            more: true,
        },
        SubReply::Objects {
            objects: vec![object()],
            next: Some(bytes("q")),
        },
        SubReply::Called {
            activation: 17,
            status: 2,
            output: bytes("out"),
        },
        SubReply::Checksum {
            crc: 0x0102_0304,
            length: 5,
        },
    ]
}

fn dated() -> Dated {
    Dated {
        process: 27,
        reading: 28,
    }
}
fn op_request() -> OpRequest {
    OpRequest {
        request: request(),
        answered_below: 5,
        pg: pg(),
        object: object(),
        ops: sub_ops(),
        flags: 7,
        fence: Epoch(21),
        snaps: SnapContext {
            sequence: 9,
            snapshots: vec![SnapId(9)],
        },
        trace: 22,
        tenant: 23,
        deadline_ms: 24,
        attempt: 25,
        unix_ms: 26,
        dated: dated(),
    }
}
fn op_reply() -> OpReply {
    OpReply {
        request: request(),
        failure: Some(OpFailure::Guard { index: 1 }),
        version: v(3, 4),
        results: results(),
        attempt: 2,
    }
}
fn op_applied() -> OpApplied {
    OpApplied {
        request: request(),
        version: v(3, 4),
        attempt: 2,
    }
}
fn op_blocked() -> OpBlocked {
    OpBlocked {
        request: request(),
        reason: "waits for osd.3".to_owned(),
        since_ms: 2500,
    }
}

fn operations() -> Vec<Sample> {
    let mut all = Vec::new();
    all.extend(
        sub_ops()
            .into_iter()
            .chain(later_sub_ops())
            .zip(SubOp::VARIANTS)
            .map(|(op, (_, name))| value(&format!("variant SubOp.{name}"), op)),
    );
    all.extend(
        failures()
            .into_iter()
            .zip(OpFailure::VARIANTS)
            .map(|(op, (_, name))| value(&format!("variant OpFailure.{name}"), op)),
    );
    all.extend(
        results()
            .into_iter()
            .chain(later_results())
            .zip(SubReply::VARIANTS)
            .map(|(op, (_, name))| value(&format!("variant SubReply.{name}"), op)),
    );
    all.push(value(
        "record OpRequest v1",
        OpRequest {
            dated: Dated::default(),
            ..op_request()
        },
    ));
    all.push(value("record OpRequest v2", op_request()));
    all.push(value("fields Dated", dated()));
    all.push(value("record OpReply v1", op_reply()));
    all.push(value("record OpApplied v1", op_applied()));
    all.push(value("record OpBlocked v1", op_blocked()));
    all.push(value("fields WatcherId", watcher()));
    all.push(value(
        "fields Watcher",
        Watcher {
            id: watcher(),
            record: watch_record(),
        },
    ));
    all.push(value(
        "fields NotifyAcked",
        NotifyAcked {
            watcher: watcher(),
            length: 46,
        },
    ));
    all.push(value("record WatchRecord v1", watch_record()));
    all.push(value("record WatchNotify v1", watch_notify()));
    all.push(value("record NotifyAck v1", notify_ack()));
    all.push(value("record WatchPing v1", watch_ping()));
    all.push(value("record WatchPong v1", watch_pong()));
    all.push(value("fields LockOwner", owner()));
    all.push(value(
        "fields LockEntry",
        LockEntry {
            name: "s".into(),
            record: lock_record(),
        },
    ));
    all.push(value("record LockHolder v1", holder()));
    all.push(value("record LockRecord v1", lock_record()));
    all.push(value("fields CloneInfo", clone_info()));
    all.push(value("record SnapSet v1", snap_set()));
    all.push(value("record Whole v1", whole()));
    all
}

fn effects() -> Vec<Effect> {
    vec![
        Effect::Touch {},
        Effect::Write {
            offset: 4096,
            length: 5,
        },
        Effect::Zero {
            offset: 1,
            length: 2,
        },
        Effect::Truncate { size: 3 },
        Effect::Remove {},
        Effect::SetAttr {
            name: "a".into(),
            value: bytes("b"),
        },
        Effect::RemoveAttr { name: "c".into() },
        Effect::OmapSet {
            entries: vec![(bytes("d"), bytes("e"))],
        },
        Effect::OmapRemove {
            keys: vec![bytes("f")],
        },
        Effect::OmapClear {},
        Effect::CloneFrom {
            snapshot: SnapId::HEAD,
        },
    ]
}

fn totals() -> Totals {
    Totals {
        objects: 31,
        bytes: 32,
        estimated: true,
    }
}
fn entry() -> Record {
    Record::new(RecordFields {
        version: v(5, 6),
        prior: v(3, 4),
        deleted: true,
        object: object(),
        request: request(),
        answered_below: 5,
        results: vec![SubReply::Value { value: bytes("n") }],
        totals: totals(),
        modified_ms: 7,
    })
}
fn mark() -> ClientMark {
    ClientMark { below: request() }
}
fn dedup() -> Dedup {
    Dedup {
        records: vec![entry()],
        marks: vec![mark()],
        last: vec![v(5, 6)],
        forgot: true,
    }
}
fn missing() -> Missing {
    Missing {
        object: object(),
        need: v(5, 6),
        have: v(3, 4),
    }
}
fn replicate() -> Replicate {
    let update = ReplicaUpdate {
        pg: pg(),
        interval: Epoch(5),
        entry: entry(),
        effects: effects(),
        entry_only: false,
        payload: 16,
        committed: v(5, 4),
        trim: v(3, 2),
        tell_applied: true,
        takes: 1 << 20,
    };
    let bare = ReplicaUpdate {
        effects: Vec::new(),
        entry_only: true,
        payload: 0,
        ..update.clone()
    };
    Replicate {
        updates: vec![update, bare],
    }
}
fn replicate_applied() -> ReplicateApplied {
    ReplicateApplied {
        pg: pg(),
        interval: Epoch(5),
        version: v(5, 6),
    }
}
fn logged() -> Logged {
    Logged {
        pg: pg(),
        interval: Epoch(5),
        version: v(5, 6),
    }
}
fn replicate_acks() -> ReplicateAcks {
    ReplicateAcks {
        logged: vec![
            logged(),
            Logged {
                version: v(5, 7),
                ..logged()
            },
        ],
        nearly_full: true,
    }
}
fn info() -> PgInfo {
    PgInfo {
        exists: true,
        activated: Epoch(4),
        head: v(5, 6),
        tail: v(1, 2),
        spans: vec![v(1, 2), v(5, 6)],
        committed: v(5, 5),
        backfill: Some(bytes("cursor")),
        missing: vec![missing()],
    }
}
fn peer_info() -> PeerInfo {
    PeerInfo {
        pg: pg(),
        interval: Epoch(5),
        info: info(),
        lease_left_ns: 500_000_000,
        logged_max: 7 << 20,
    }
}
fn log_query() -> LogQuery {
    LogQuery {
        pg: pg(),
        interval: Epoch(5),
        common: v(1, 2),
    }
}
fn part() -> Part {
    Part {
        pg: pg(),
        interval: Epoch(5),
        kind: 28,
        compat: 1,
        whole: (29, 30),
        index: 31,
        count: 32,
        bytes: bytes("part"),
    }
}
fn log_reply() -> LogReply {
    LogReply {
        pg: pg(),
        interval: Epoch(5),
        from: v(3, 4),
        tail: v(1, 2),
        head: v(5, 6),
        entries: vec![entry()],
        dedup: dedup(),
        totals: totals(),
    }
}
fn adopt() -> Adopt {
    Adopt {
        pg: pg(),
        interval: Epoch(5),
        from: v(3, 4),
        tail: v(1, 2),
        head: v(5, 6),
        entries: vec![entry()],
        dedup: dedup(),
        restart: true,
        committed: v(5, 5),
        totals: totals(),
    }
}
fn adopt_ack() -> AdoptAck {
    AdoptAck {
        pg: pg(),
        interval: Epoch(5),
        head: v(5, 6),
        missing: vec![missing()],
        backfill: Some(bytes("cursor")),
        undone: vec![undone()],
    }
}
fn undone() -> Undone {
    Undone {
        object: missing().object,
        base: missing().need,
        entries: vec![entry()],
    }
}
fn pull() -> Pull {
    Pull {
        pg: pg(),
        interval: Epoch(5),
        object: object(),
        version: v(5, 6),
    }
}
fn push() -> Push {
    Push {
        pg: pg(),
        interval: Epoch(5),
        object: object(),
        version: v(5, 6),
        absent: true,
        part: 1,
        last: true,
        size: 8192,
        offset: 4096,
        attrs: vec![("a".into(), bytes("b"))],
        omap: vec![(bytes("c"), bytes("d"))],
        transfer: 77,
    }
}
fn push_ack() -> PushAck {
    PushAck {
        pg: pg(),
        interval: Epoch(5),
        object: object(),
        version: v(5, 6),
        part: 1,
        have: false,
        damaged: true,
        transfer: 77,
    }
}
fn scan_query() -> ScanQuery {
    ScanQuery {
        pg: pg(),
        interval: Epoch(5),
        from: bytes("from"),
        limit: 100,
        round: 7,
    }
}
fn scan_reply() -> ScanReply {
    ScanReply {
        pg: pg(),
        interval: Epoch(5),
        from: bytes("from"),
        to: Some(bytes("to")),
        objects: vec![(object(), v(5, 6))],
        round: 7,
    }
}
fn progress() -> Progress {
    Progress {
        pg: pg(),
        interval: Epoch(5),
        cursor: Some(bytes("cursor")),
        round: 7,
    }
}
fn progress_ack() -> ProgressAck {
    ProgressAck {
        pg: pg(),
        interval: Epoch(5),
        cursor: Some(bytes("cursor")),
        round: 7,
    }
}
fn discard() -> Discard {
    Discard {
        pg: pg(),
        interval: Epoch(5),
    }
}
fn peer_query() -> PeerQuery {
    PeerQuery {
        pg: pg(),
        interval: Epoch(5),
    }
}
fn ping() -> Ping {
    Ping { stamp: 41 }
}
fn pong() -> Pong {
    Pong {
        stamp: 41,
        lease_ns: 500_000_000,
        nearly_full: true,
        share: 1 << 30,
        most: 1 << 30,
        no_room: true,
    }
}

fn replication() -> Vec<Sample> {
    let mut all = Vec::new();
    all.extend(
        effects()
            .into_iter()
            .zip(Effect::VARIANTS)
            .map(|(effect, (_, name))| value(&format!("variant Effect.{name}"), effect)),
    );
    all.extend([
        value("record Record v1", entry()),
        value("fields Totals", totals()),
        value("fields ClientMark", mark()),
        value("fields Dedup", dedup()),
        value("fields Missing", missing()),
        value("record ReplicaUpdate v1", replicate().updates.remove(0)),
        value("fields Replicate", replicate()),
        value("record ReplicateApplied v1", replicate_applied()),
        value("fields Logged", logged()),
        value("record ReplicateAcks v1", replicate_acks()),
        value("record Ping v1", ping()),
        value("record Pong v3", pong()),
        value("fields PeerQuery", peer_query()),
        value("record PgInfo v1", info()),
        value("record PeerInfo v2", peer_info()),
        value("fields LogQuery", log_query()),
        value("record LogReply v1", log_reply()),
        value("record Part v1", part()),
        value("record Adopt v1", adopt()),
        value("record AdoptAck v1", adopt_ack()),
        value("record Undone v1", undone()),
        value("fields Pull", pull()),
        value("record Push v2", push()),
        value("record PushAck v2", push_ack()),
        value("fields ScanQuery", scan_query()),
        value("record ScanReply v2", scan_reply()),
        value("fields Progress", progress()),
        value("fields ProgressAck", progress_ack()),
        value("fields Discard", discard()),
    ]);
    all
}

fn hello() -> Hello {
    Hello {
        cluster: ClusterId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
        from: Entity::Osd(OsdId(2)),
        instance: Instance(3),
        to: Some(Entity::Mon(MonId(1))),
        supported: 7,
        required: 5,
        address: Some(address()),
        auth: bytes("proof"),
        name: "alice".into(),
    }
}
/// The first versions of messages that grew, as old programs still send them.
fn first_versions() -> Vec<Sample> {
    let hello = || Hello {
        name: Name::default(),
        ..hello()
    };
    let forward = || Forward {
        name: Name::default(),
        ..forward()
    };
    let peer_info = || PeerInfo {
        logged_max: 0,
        ..peer_info()
    };
    let second_pong = || Pong {
        no_room: false,
        ..pong()
    };
    let pong = || Pong {
        share: 0,
        most: 0,
        ..second_pong()
    };
    let op_request = || OpRequest {
        dated: Dated::default(),
        ..op_request()
    };
    let first = |name: &str, sample: Sample| Sample {
        name: name.to_owned(),
        ..sample
    };
    vec![
        value("record Hello v1", hello()),
        value("record Forward v1", forward()),
        first("frame Hello v1", frame(Epoch(77), Message::Hello(hello()))),
        first(
            "frame Forward v1",
            frame(Epoch(77), Message::Forward(forward())),
        ),
        value("record PeerInfo v1", peer_info()),
        value("record Pong v1", pong()),
        value("record Pong v2", second_pong()),
        value(
            "record ScanReply v1",
            ScanReply {
                round: 0,
                ..scan_reply()
            },
        ),
        value(
            "record Push v1",
            Push {
                transfer: 0,
                ..push()
            },
        ),
        value(
            "record PushAck v1",
            PushAck {
                transfer: 0,
                ..push_ack()
            },
        ),
        first(
            "frame Push v1",
            frame(
                Epoch(77),
                Message::Push(
                    Push {
                        transfer: 0,
                        ..push()
                    },
                    vec![bytes("hello wonderful payload")],
                ),
            ),
        ),
        first(
            "frame PushAck v1",
            frame(
                Epoch(77),
                Message::PushAck(PushAck {
                    transfer: 0,
                    ..push_ack()
                }),
            ),
        ),
        first("frame Pong v1", frame(Epoch(77), Message::Pong(pong()))),
        first(
            "frame PeerInfo v1",
            frame(Epoch(77), Message::PeerInfo(peer_info())),
        ),
        first(
            "frame OpRequest v1",
            frame(
                Epoch(77),
                Message::OpRequest(op_request(), vec![bytes("hello wonderful payload")]),
            ),
        ),
        value(
            "record Refused v1",
            Refused {
                process: 0,
                ..refused()
            },
        ),
        first(
            "frame Refused v1",
            frame(
                Epoch(77),
                Message::Refused(Refused {
                    process: 0,
                    ..refused()
                }),
            ),
        ),
    ]
}
fn refused() -> Refused {
    Refused {
        why: "another cluster".to_owned(),
        process: 0x1234,
    }
}
fn subscribe() -> Subscribe {
    Subscribe {
        have: Epoch(6),
        digest: Digest(0x77),
        once: true,
    }
}
fn boot() -> Boot {
    Boot {
        osd: OsdId(2),
        instance: Instance(3),
        address: address(),
        store: 0x1234_5678_9abc_def0_1122_3344_5566_7788,
        features: 5,
        class: "ssd".to_owned(),
        capacity: 1 << 40,
        host: "alpha".to_owned(),
        process: 0x1122_3344_5566_7788,
    }
}
fn failure_report() -> FailureReport {
    FailureReport {
        target: OsdId(2),
        instance: Instance(3),
        reporter: OsdId(1),
        silent_ms: 2500,
        alive: true,
        refused: true,
        itself: true,
        stalled: true,
    }
}
fn pg_report() -> PgReport {
    PgReport {
        pg: pg(),
        interval: Epoch(5),
        state: 0x1ff,
        objects: 1,
        bytes: 2,
        degraded: 3,
        misplaced: 4,
        unfound: 5,
        waits_for: vec![OsdId(6)],
    }
}
fn beacon() -> Beacon {
    Beacon {
        osd: OsdId(2),
        instance: Instance(3),
        total: 1 << 40,
        used: 1 << 30,
        pgs: vec![pg_report()],
        all: true,
        slow: vec!["a write waits".to_owned()],
        device: "its disk hangs".to_owned(),
        space: "its host is full".to_owned(),
        no_room: true,
    }
}
fn log_line() -> LogLine {
    LogLine {
        from: Entity::Osd(OsdId(2)),
        instance: Instance(3),
        number: 4,
        severity: Severity::Warn {},
        text: "nearly full".to_owned(),
        once: "full".to_owned(),
    }
}
fn forward() -> Forward {
    Forward {
        from: Entity::Osd(OsdId(2)),
        via: MonId(1),
        token: 4,
        kind: 57,
        compat: 1,
        meta: bytes("meta"),
        name: "alice".into(),
    }
}
fn forward_reply() -> ForwardReply {
    ForwardReply {
        token: 4,
        kind: 59,
        compat: 1,
        meta: bytes("meta"),
    }
}
fn command() -> Command {
    Command {
        token: 4,
        request: r#"{"command":"status"}"#.to_owned(),
    }
}
fn command_reply() -> CommandReply {
    CommandReply {
        token: 4,
        error: Some("no such pool".to_owned()),
        reply: "{}".to_owned(),
    }
}
fn activate() -> PgActivateRequest {
    PgActivateRequest {
        pg: pg(),
        interval: Epoch(5),
        members: vec![OsdId(1), OsdId(2)],
    }
}
fn temporary() -> PgTemporaryRequest {
    PgTemporaryRequest {
        pg: pg(),
        interval: Epoch(5),
        acting: vec![OsdId(1), OsdId(2)],
    }
}
fn map_full() -> MapFull {
    MapFull {
        map: Bytes::from(cluster_map().to_bytes()),
    }
}
fn map_deltas() -> MapDeltas {
    MapDeltas {
        deltas: vec![Bytes::from(delta().to_bytes())],
        newest: Epoch(9),
        root: Some(OsdId(2)),
    }
}
fn map_ack() -> MapAck {
    MapAck { epoch: Epoch(9) }
}
fn session_ping() -> SessionPing {
    SessionPing { number: 12 }
}
fn session_pong() -> SessionPong {
    SessionPong {
        number: 12,
        led: true,
    }
}
fn led() -> Led {
    Led {
        leader: MonId(1),
        term: 6,
    }
}
fn raft() -> RaftStep {
    RaftStep {
        message: bytes("opaque"),
    }
}
fn cluster_log() -> ClusterLog {
    ClusterLog {
        lines: vec![log_line()],
    }
}

fn monitors() -> Vec<Sample> {
    let severities = [
        Severity::Debug {},
        Severity::Info {},
        Severity::Warn {},
        Severity::Error {},
    ];
    let severities = severities.into_iter().zip(Severity::VARIANTS);
    let mut all: Vec<Sample> = severities
        .map(|(severity, (_, name))| value(&format!("variant Severity.{name}"), severity))
        .collect();
    all.extend([
        value("record Hello v2", hello()),
        value("record Refused v2", refused()),
        value("record Subscribe v1", subscribe()),
        value("fields MapFull", map_full()),
        value("fields MapDeltas", map_deltas()),
        value("fields MapAck", map_ack()),
        value("record Led v1", led()),
        value("record SessionPing v1", session_ping()),
        value("record SessionPong v1", session_pong()),
        value(
            "record Boot v1",
            Boot {
                process: 0,
                ..boot()
            },
        ),
        value("record Boot v2", boot()),
        value(
            "record FailureReport v1",
            FailureReport {
                stalled: false,
                ..failure_report()
            },
        ),
        value("record FailureReport v2", failure_report()),
        value("fields PgActivateRequest", activate()),
        value("fields PgTemporaryRequest", temporary()),
        value("record PgReport v1", pg_report()),
        value(
            "record Beacon v1",
            Beacon {
                device: String::new(),
                space: String::new(),
                no_room: false,
                ..beacon()
            },
        ),
        value(
            "record Beacon v2",
            Beacon {
                no_room: false,
                ..beacon()
            },
        ),
        value("record Beacon v3", beacon()),
        value("record Command v1", command()),
        value("record CommandReply v1", command_reply()),
        value("fields RaftStep", raft()),
        value(
            "record LogLine v1",
            LogLine {
                once: String::new(),
                ..log_line()
            },
        ),
        value("record LogLine v2", log_line()),
        value("fields ClusterLog", cluster_log()),
        value("record Forward v2", forward()),
        value("record ForwardReply v1", forward_reply()),
    ]);
    all
}

/// Two hosts, two devices, one rule: small, but enough to place two replicas.
pub const CRUSH: &str = "\
device 0 osd.0 class ssd
device 1 osd.1 class hdd
type 0 osd
type 1 host
type 2 root
host a {
 id -1
 alg straw2
 hash 0
 item osd.0 weight 1.000
}
host b {
 id -2
 alg straw2
 hash 0
 item osd.1 weight 2.000
}
root default {
 id -3
 alg straw2
 hash 0
 item a weight 1.000
 item b weight 2.000
}
rule replicated {
 id 0
 type replicated
 min_size 1
 max_size 10
 step take default
 step chooseleaf firstn 0 type host
 step emit
}
";
fn crush() -> CrushSection {
    CrushSection::parse(CRUSH).expect("a well-formed hierarchy")
}
fn hunk() -> CrushHunk {
    CrushHunk {
        keep: 2,
        drop: 1,
        lines: "# another\n".to_owned(),
    }
}
fn pool() -> Pool {
    Pool {
        name: "data".into(),
        protocol: Protocol::Log {},
        size: 2,
        min_size: 1,
        pg_num: 2,
        pgp_num: 2,
        rule: 0,
        created: Epoch(3),
        flags: 3,
        erasure: "k2m1".to_owned(),
        quota_bytes: 1 << 40,
        quota_objects: 1_000_000,
        snaps: PoolSnaps::default(),
    }
}
fn snaps() -> PoolSnaps {
    let info = SnapInfo {
        name: "monday".into(),
        created: Epoch(3),
    };
    let named = BTreeMap::from([(SnapId(4), info)]);
    let removed = vec![(SnapId(1), SnapId(2)), (SnapId(5), SnapId(5))];
    PoolSnaps {
        mode: SnapMode::Named {},
        last: SnapId(5),
        named,
        removed,
    }
}
fn snapped_pool() -> Pool {
    Pool {
        snaps: snaps(),
        ..pool()
    }
}
fn osd_info() -> OsdInfo {
    OsdInfo {
        up: true,
        weight: Weight(0x8000),
        weight_before_auto_out: Some(Weight::IN),
        instance: Instance(3),
        address: address(),
        up_from: Epoch(4),
        down_at: Epoch(2),
        store: 0x1234,
        features: 5,
        process: 77,
    }
}
fn activation() -> Activation {
    Activation {
        interval: Epoch(4),
        members: vec![OsdId(0), OsdId(1)],
        instances: vec![Instance(3), Instance(4)],
    }
}
fn pg_record() -> PgRecord {
    PgRecord {
        raw: vec![OsdId(1), OsdId(0)],
        up: vec![OsdId(0)],
        acting: vec![OsdId(0)],
        since: Epoch(4),
        temporary: vec![OsdId(0), OsdId(1)],
        activated: activation(),
    }
}
fn mon_info() -> MonInfo {
    MonInfo {
        address: address(),
        store: 0x1_2345,
        leaving: true,
    }
}
const CLASS: ProgramKind = ProgramKind::Class {};
fn program_version() -> ProgramVersion {
    let digest = SourceDigest(std::array::from_fn(|at| at as u8));
    ProgramVersion {
        number: 3,
        digest,
        bytes: 4096,
        installed_ms: 1_700_000_000_000,
        by: "bob".into(),
    }
}
fn program() -> Program {
    Program {
        activation: 17,
        active: 3,
        since: Epoch(7),
        versions: vec![program_version()],
    }
}
fn capabilities() -> Vec<Capability> {
    vec![
        Capability::All {},
        Capability::Install { kind: CLASS },
        Capability::Call {
            pool: "p".into(),
            class: "zlog".into(),
            method: "*".into(),
        },
        Capability::Eval { pool: "p".into() },
    ]
}

fn changes() -> Vec<Change> {
    vec![
        Change::MonSet {
            mon: MonId(1),
            info: mon_info(),
        },
        Change::MonRemove { mon: MonId(2) },
        Change::OsdNew {
            osd: OsdId(0),
            store: 0x1234,
        },
        Change::OsdDown {
            osd: OsdId(1),
            instance: Instance(4),
        },
        Change::OsdWeight {
            osd: OsdId(1),
            weight: Weight(0x8000),
            automatic: true,
        },
        Change::OsdRemove { osd: OsdId(7) },
        Change::PoolSet {
            pool: PoolId(3),
            settings: pool(),
        },
        Change::PoolRemove { pool: PoolId(2) },
        Change::Crush {
            text: CRUSH.to_owned(),
        },
        Change::Upmap {
            pg: PgId::replicated(PoolId(3), 1),
            items: vec![(OsdId(1), OsdId(0))],
        },
        Change::PgActivate {
            pg: PgId::replicated(PoolId(3), 1),
            interval: Epoch(4),
            members: vec![OsdId(0)],
        },
        Change::PgTemporary {
            pg: PgId::replicated(PoolId(3), 0),
            interval: Epoch(4),
            acting: vec![OsdId(0)],
        },
        Change::Fence {
            entity: Entity::Client(ClientId(9)),
            instance: Instance(8),
        },
        Change::Config {
            key: "mon.full_ratio".into(),
            value: Some("0.9".to_owned()),
        },
        Change::Flags { flags: 3 },
        Change::RequireFeatures { features: 5 },
        // Names another fence: it lifts nothing in the example history.
        Change::FenceLift {
            entity: Entity::Client(ClientId(9)),
            instance: Instance(7),
        },
        Change::ProgramInstall {
            kind: CLASS,
            name: "zlog".into(),
            version: program_version(),
            activate: true,
        },
        Change::ProgramActivate {
            kind: CLASS,
            name: "zlog".into(),
            number: 1,
        },
        Change::ProgramRemove {
            kind: ProgramKind::Policy {},
            name: "greedy".into(),
        },
        Change::ClientSet {
            name: "bob".into(),
            capabilities: capabilities(),
        },
        Change::ClientRemove { name: "eve".into() },
        Change::SnapCreate {
            pool: PoolId(3),
            snap: SnapId(1),
            name: "monday".into(),
        },
        Change::SnapRemove {
            pool: PoolId(3),
            snap: SnapId(1),
        },
        Change::OsdUp {
            osd: OsdId(0),
            instance: Instance(3),
            address: address(),
            store: 0x1234,
            features: 5,
            process: 77,
        },
        Change::CrushPatch {
            hunks: vec![hunk()],
        },
    ]
}
fn delta() -> MapDelta {
    MapDelta {
        epoch: Epoch(9),
        previous: Digest(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
        changes: changes(),
    }
}

/// The map as decoded before OSDs' processes and monitors' stores had numbers.
fn without_numbers() -> ClusterMap {
    let mut map = cluster_map();
    map.mons
        .values_mut()
        .for_each(|info| (info.store, info.leaving) = (0, false));
    map.osds.values_mut().for_each(|info| info.process = 0);
    map
}
fn cluster_map() -> ClusterMap {
    let mut map = ClusterMap::empty(ClusterId(0xabc), crush());
    map.epoch = Epoch(8);
    map.digest = Digest(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
    map.required_features = 1;
    map.flags = 2;
    map.mons = BTreeMap::from([(MonId(1), mon_info())]);
    let down = OsdInfo {
        up: false,
        ..osd_info()
    };
    map.osds = BTreeMap::from([(OsdId(0), osd_info()), (OsdId(1), down)]);
    map.pools = BTreeMap::from([(PoolId(3), pool())]);
    map.pool_last = PoolId(4);
    let record = PgRecord {
        temporary: Vec::new(),
        ..pg_record()
    };
    map.pgs = BTreeMap::from([
        (PgId::replicated(PoolId(3), 0), pg_record()),
        (PgId::replicated(PoolId(3), 1), record),
    ]);
    map.upmaps = BTreeMap::from([(PgId::replicated(PoolId(3), 1), vec![(OsdId(1), OsdId(0))])]);
    map.fences = Fences::from([(Entity::Client(ClientId(9)), Instance(8))]);
    map.config = BTreeMap::from([("mon.full_ratio".into(), "0.9".to_owned())]);
    map.check();
    map
}

fn programmed_map() -> ClusterMap {
    let mut map = cluster_map();
    map.programs = BTreeMap::from([((CLASS, "zlog".into()), program())]);
    map.program_last = 18;
    map.clients = BTreeMap::from([("bob".into(), capabilities())]);
    map
}

/// The map after several deltas applied to an empty map, placement included: every daemon of any
/// version must get exactly these bytes.
fn history() -> ClusterMap {
    let mut map = ClusterMap::empty(ClusterId(0xabc), crush());
    let up = |osd: u32| Change::OsdUp {
        osd: OsdId(osd),
        instance: Instance(1),
        address: address(),
        store: u128::from(osd) + 1,
        features: 0,
        process: u64::from(osd) + 1,
    };
    let new = |osd: u32| Change::OsdNew {
        osd: OsdId(osd),
        store: u128::from(osd) + 1,
    };
    let grown = Pool {
        pg_num: 4,
        pgp_num: 4,
        ..pool()
    };
    let steps = [
        vec![new(0), new(1), up(0), up(1)],
        vec![Change::PoolSet {
            pool: PoolId(3),
            settings: pool(),
        }],
        changes(),
        vec![Change::PoolSet {
            pool: PoolId(3),
            settings: grown,
        }],
        vec![Change::OsdDown {
            osd: OsdId(1),
            instance: Instance(1),
        }],
    ];
    for changes in steps {
        map.apply(&map.delta(changes))
            .expect("the map's own next delta applies");
        map.check();
    }
    map
}

fn map() -> Vec<Sample> {
    let mut all = Vec::new();
    all.extend(
        changes()
            .into_iter()
            .zip(Change::VARIANTS)
            .map(|(change, (_, name))| value(&format!("variant Change.{name}"), change)),
    );
    all.extend([
        value("variant Protocol.Log", Protocol::Log {}),
        value("variant Protocol.Chunk", Protocol::Chunk {}),
        value(
            "record MonInfo v1",
            MonInfo {
                store: 0,
                leaving: false,
                ..mon_info()
            },
        ),
        value("record MonInfo v2", mon_info()),
        value(
            "record OsdInfo v1",
            OsdInfo {
                process: 0,
                ..osd_info()
            },
        ),
        value("record OsdInfo v2", osd_info()),
        value("record Pool v1", pool()),
        value("record Pool v2", snapped_pool()),
        value("record PoolSnaps v1", snaps()),
        value(
            "record SnapInfo v1",
            SnapInfo {
                name: "monday".into(),
                created: Epoch(3),
            },
        ),
        value("record CrushHunk v1", hunk()),
        value("variant SnapMode.Unused", SnapMode::Unused {}),
        value("variant SnapMode.Named", SnapMode::Named {}),
        value("variant SnapMode.Own", SnapMode::Own {}),
        value("fields Activation", activation()),
        value("record PgRecord v1", pg_record()),
        value("record ClusterMap v1", without_numbers()),
        value("record ClusterMap v2", programmed_map()),
        value("record Program v1", program()),
        value("record ProgramVersion v1", program_version()),
        value(
            "record RegistryHead v1",
            RegistryHead {
                epoch: Epoch(9),
                last: 17,
            },
        ),
        value("variant ProgramKind.Class", CLASS),
        value("variant ProgramKind.Policy", ProgramKind::Policy {}),
        value("record MapDelta v1", delta()),
        value("applied history", history()),
    ]);
    let named = capabilities().into_iter().zip(Capability::VARIANTS);
    all.extend(
        named.map(|(capability, (_, name))| {
            value(&format!("variant Capability.{name}"), capability)
        }),
    );
    all
}

fn frames() -> Vec<Sample> {
    // One payload in two pieces: the encoding does not show where they meet.
    let data = || vec![bytes("hel"), bytes("lo wonderful payload")];
    [
        Message::Hello(hello()),
        Message::Refused(refused()),
        Message::OpRequest(op_request(), data()),
        Message::OpReply(op_reply(), data()),
        Message::OpApplied(op_applied()),
        Message::OpBlocked(op_blocked()),
        Message::WatchNotify(watch_notify(), data()),
        Message::NotifyAck(notify_ack(), data()),
        Message::WatchPing(watch_ping()),
        Message::WatchPong(watch_pong()),
        Message::Replicate(replicate(), data()),
        Message::ReplicateApplied(replicate_applied()),
        Message::ReplicateAcks(replicate_acks()),
        Message::Ping(ping()),
        Message::Pong(pong()),
        Message::PeerQuery(peer_query()),
        Message::PeerInfo(peer_info()),
        Message::LogQuery(log_query()),
        Message::LogReply(log_reply()),
        Message::Adopt(adopt()),
        Message::Part(part()),
        Message::AdoptAck(adopt_ack()),
        Message::Pull(pull()),
        Message::Push(push(), data()),
        Message::PushAck(push_ack()),
        Message::ScanQuery(scan_query()),
        Message::ScanReply(scan_reply()),
        Message::Progress(progress()),
        Message::ProgressAck(progress_ack()),
        Message::Discard(discard()),
        Message::Subscribe(subscribe()),
        Message::MapFull(map_full()),
        Message::MapDeltas(map_deltas()),
        Message::Boot(boot()),
        Message::FailureReport(failure_report()),
        Message::PgActivateRequest(activate()),
        Message::PgTemporaryRequest(temporary()),
        Message::Beacon(beacon()),
        Message::Command(command()),
        Message::CommandReply(command_reply()),
        Message::Raft(raft()),
        Message::ClusterLog(cluster_log()),
        Message::Forward(forward()),
        Message::ForwardReply(forward_reply()),
        Message::MapAck(map_ack()),
        Message::Led(led()),
        Message::SessionPing(session_ping()),
        Message::SessionPong(session_pong()),
    ]
    .into_iter()
    .chain(super::meta::messages())
    .chain(super::fs::messages())
    .map(|message| frame(Epoch(77), message))
    .collect()
}
