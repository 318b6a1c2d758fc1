//! Examples of the parts of a file system and of its messages.

use super::meta::variants;
use super::sample::{Sample, value};
use bytes::Bytes;
use nacre_types::{Frag, Ino, Instance, Name, PoolId};
use nacre_wire::Message;
use nacre_wire::fs::{
    Backpointer, Entry, FileKind, FsHolder, FsLock, FsLockWait, FsQuota, FsSettings, Head, Inode,
    Layout, QuotaKind, Rare, Stamp,
};
use nacre_wire::map::Address;
use nacre_wire::msg::fs::{
    FsAgain, FsAnswer, FsAway, FsCall, FsCap, FsCapNews, FsCaps, FsCaughtUp, FsChanges, FsClient,
    FsElsewhere, FsEvicted, FsFigures, FsForget, FsForgot, FsGrant, FsInquire, FsLeave, FsListed,
    FsLocked, FsNode, FsOpens, FsPing, FsPlace, FsPong, FsPopular, FsReply, FsRequest, FsSafe,
    FsSession, FsStale, FsSync, FsWelcome,
};
use nacre_wire::msg::transaction::{FsFact, FsPart, FsStep, FsTransaction};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Names and tags of the enums here.
pub const ENUMS: [(&str, &[(u8, &str)]); 10] = [
    ("Entry", Entry::VARIANTS),
    ("FileKind", FileKind::VARIANTS),
    ("FsAnswer", FsAnswer::VARIANTS),
    ("FsCall", FsCall::VARIANTS),
    ("FsStale", FsStale::VARIANTS),
    ("FsCap", FsCap::VARIANTS),
    ("QuotaKind", QuotaKind::VARIANTS),
    ("FsStep", FsStep::VARIANTS),
    ("FsPart", FsPart::VARIANTS),
    ("FsFact", FsFact::VARIANTS),
];

fn name() -> Name {
    Name::copy(b"caf\xc3\xa9 \xff")
}
fn bytes() -> Bytes {
    Bytes::from_static(b"value")
}
fn ino() -> Ino {
    Ino(0x0003_0000_0010_0001)
}
fn layout() -> Layout {
    Layout {
        pool: PoolId(2),
        unit: 65_536,
        count: 3,
        object: 4 << 20,
    }
}
fn rare() -> Rare {
    Rare {
        target: Bytes::from_static(b"../there"),
        xattrs: BTreeMap::from([("user.a".into(), bytes()), ("user.b".into(), Bytes::new())]),
        device: 0x0801,
        policy: "fair".into(),
        class: "queue".into(),
        pinned: Some(4),
        bytes_max: Some(1 << 40),
        files_max: Some(1_000),
        fragments: vec![
            Frag::new(1, 0).expect("two halves"),
            Frag::new(1, 1).expect("two halves"),
        ],
        stale_to: 123_456,
        data_to: Some(99),
        time_set_at: Some(7),
    }
}
fn inode() -> Inode {
    Inode {
        ino: ino(),
        kind: FileKind::File {},
        mode: 0o4755,
        uid: 1000,
        gid: 100,
        links: 2,
        size: 5_000_000_000,
        atime: Stamp(1_700_000_000_000_000_001),
        mtime: Stamp(1_700_000_000_000_000_002),
        ctime: Stamp(1_700_000_000_000_000_003),
        btime: Stamp(-4),
        change: 9,
        layout: Some(layout()),
        rare: Some(Arc::new(rare())),
    }
}
fn head() -> Head {
    Head {
        mtime: Stamp(5),
        entries: 7,
        directories: 2,
        bytes_below: 1 << 33,
        files_below: 50,
        directories_below: 6,
        change: 8,
    }
}
fn node() -> FsNode {
    FsNode {
        inode: inode(),
        head: Some(head()),
        home: Some(Ino(1)),
    }
}
fn listed() -> FsListed {
    FsListed {
        name: name(),
        node: node(),
    }
}
fn changes() -> FsChanges {
    FsChanges {
        mode: Some(0o644),
        uid: Some(1),
        gid: Some(2),
        size: Some(3),
        atime: Some(None),
        mtime: Some(Some(Stamp(4))),
        foretold: Some(Stamp(5)),
    }
}
fn again() -> FsAgain {
    FsAgain {
        stamp: Stamp(6),
        made: ino(),
    }
}
fn make() -> FsCall {
    FsCall::Make {
        dir: Ino::ROOT,
        name: name(),
        kind: FileKind::Symlink {},
        mode: 0o777,
        umask: 0o22,
        uid: 1,
        gid: 2,
        target: bytes(),
        device: 3,
        exclusive: true,
        open: true,
        write: true,
    }
}
fn place() -> FsPlace {
    FsPlace {
        dir: Ino(0x10_0003),
        name: name(),
    }
}
fn request() -> FsRequest {
    FsRequest {
        number: 8,
        safe_below: 6,
        again: Some(again()),
        foretold: Some(again()),
        place: Some(place()),
        call: make(),
    }
}
fn reply() -> FsReply {
    let answer = FsAnswer::Node {
        node: node(),
        made: true,
    };
    FsReply {
        number: 8,
        safe: true,
        stamp: Stamp(7),
        place: Some(place()),
        keep: true,
        shares: vec![Ino(1), ino()],
        delegated: vec![ino()],
        changed: vec![ino()],
        caps: vec![FsGrant {
            ino: ino(),
            cap: FsCap::Buffer {},
        }],
        answer,
    }
}
fn stale() -> Vec<FsStale> {
    vec![
        FsStale::Name {
            dir: Ino::ROOT,
            name: name(),
        },
        FsStale::Node { ino: ino() },
        FsStale::Share {
            dir: Ino(0x10_0002),
        },
    ]
}
fn opens() -> FsOpens {
    FsOpens {
        ino: ino(),
        reads: 3,
        writes: 2,
        cap: FsCap::Sync {},
        alone: true,
        place: Some(place()),
    }
}
fn lock() -> FsLock {
    FsLock {
        ino: ino(),
        owner: 0x1122_3344_5566_7788,
        pid: 9,
        flock: false,
        start: 4,
        end: u64::MAX,
        exclusive: true,
    }
}
fn wait() -> FsLockWait {
    FsLockWait {
        number: 7,
        lock: FsLock {
            flock: true,
            start: 0,
            ..lock()
        },
    }
}
fn caps() -> FsCaps {
    FsCaps {
        items: vec![FsCapNews {
            ino: ino(),
            cap: FsCap::Sync {},
            number: 13,
        }],
    }
}
fn client() -> FsClient {
    let (client, instance) = (nacre_types::ClientId(5), Instance(3));
    FsClient {
        client,
        instance,
        about: name(),
        open: 9,
        writing: 2,
        silent_ms: 1500,
        evicting: true,
        requests: 77,
    }
}
fn session() -> FsSession {
    FsSession {
        about: "mount on a host".into(),
        file_system: "home".into(),
        rank: 3,
        instance: Instance(2),
        known: true,
        greeting: 4,
        delegable: true,
        opens: vec![opens()],
        locks: vec![lock()],
        waits: vec![wait()],
    }
}
fn settings() -> FsSettings {
    FsSettings {
        namespace: "home.1a2b".into(),
        pool: PoolId(1),
        layout: layout(),
        ranks: 2,
    }
}
fn holder() -> FsHolder {
    let address = Address("127.0.0.1:7410".into());
    FsHolder {
        client: 0x0102_0304_0506_0708,
        instance: Instance(1),
        address,
        name: "mds.0".into(),
    }
}
fn away() -> FsAway {
    FsAway {
        why: "rank 3 has another holder".to_owned(),
    }
}
fn safe() -> FsSafe {
    FsSafe {
        numbers: vec![5, 6, 8],
    }
}

/// Messages.
pub fn messages() -> Vec<Message> {
    vec![
        Message::FsSession(session()),
        Message::FsWelcome(FsWelcome {
            again: true,
            greeting: 4,
        }),
        Message::FsAway(away()),
        Message::FsCaughtUp(FsCaughtUp { next: 9 }),
        Message::FsLeave(FsLeave { next: 10 }),
        Message::FsRequest(request()),
        Message::FsReply(reply()),
        Message::FsSafe(safe()),
        Message::FsEvicted(FsEvicted {
            instance: Instance(3),
        }),
        Message::FsLocked(FsLocked {
            number: 7,
            errno: Some(35),
        }),
        Message::FsForget(FsForget {
            number: 11,
            items: stale(),
        }),
        Message::FsForgot(FsForgot { number: 11 }),
        Message::FsPing(FsPing { number: 12 }),
        Message::FsPong(FsPong { number: 12 }),
        Message::FsInquire(FsInquire { rank: 5 }),
        Message::FsFigures(figures()),
        Message::FsCaps(caps()),
        Message::FsSync(FsSync { below: 9 }),
        Message::FsTransaction(transaction()),
    ]
}

fn calls() -> Vec<FsCall> {
    let (dir, ino) = (Ino::ROOT, ino());
    vec![
        FsCall::Lookup { dir, name: name() },
        FsCall::Stat { ino },
        FsCall::List {
            dir,
            after: 0x1234_5678_9abc_def0,
            bytes_max: 65_536,
        },
        make(),
        FsCall::Link {
            ino,
            dir,
            name: name(),
        },
        FsCall::Unlink {
            dir,
            name: name(),
            directory: true,
        },
        FsCall::Rename {
            dir,
            name: name(),
            to_dir: Ino(0x10_0002),
            to_name: "b".into(),
            flags: 2,
        },
        FsCall::Set {
            ino,
            changes: changes(),
        },
        FsCall::SetXattr {
            ino,
            name: "user.a".into(),
            value: bytes(),
            fresh: Some(false),
            drop_sgid: true,
        },
        FsCall::RemoveXattr {
            ino,
            name: "user.a".into(),
        },
        FsCall::Open { ino, write: true },
        FsCall::Close {
            ino,
            write: true,
            size: 77,
            mtime: Stamp(78),
        },
        FsCall::StatFs {},
        FsCall::Wrote {
            ino,
            size: 79,
            mtime: Stamp(80),
        },
        FsCall::Lock {
            lock: lock(),
            wait: true,
        },
        FsCall::Unlock {
            ino,
            owner: 12,
            flock: true,
            start: 1,
            end: 2,
        },
        FsCall::TestLock { lock: lock() },
        FsCall::CancelLock { ino, number: 7 },
        FsCall::Flush {},
        FsCall::Comply {
            ino,
            number: 13,
            size: 81,
            mtime: Stamp(82),
            written: true,
        },
        FsCall::Alone { ino, ends: true },
        FsCall::Clients { after: 7 },
        FsCall::Evict {
            client: nacre_types::ClientId(8),
        },
        FsCall::Pin {
            dir,
            name: name(),
            rank: 3,
        },
        FsCall::Usage { ino },
        FsCall::Grow { ino, size: 83 },
        FsCall::Numbers {},
        FsCall::StatLite { ino },
    ]
}

fn figures() -> FsFigures {
    let popular = vec![FsPopular {
        ino: Ino(9),
        rate: 2500,
        path: Bytes::from_static(b"/a"),
    }];
    FsFigures {
        objects: 2,
        bytes: 18,
        sessions: 3,
        opens: 4,
        popular,
    }
}
fn quota() -> FsQuota {
    FsQuota {
        kind: QuotaKind::Files {},
        dir: ino(),
        max: 16,
        used: 17,
    }
}
fn elsewhere() -> FsElsewhere {
    FsElsewhere {
        name: name(),
        ino: ino(),
        kind: FileKind::Directory {},
    }
}
fn parts() -> Vec<FsPart> {
    vec![
        FsPart::Link {
            ino: ino(),
            place: Some(place()),
        },
        FsPart::Unlink {
            ino: ino(),
            directory: true,
        },
        FsPart::Leave {
            dir: Ino::ROOT,
            name: name(),
        },
        FsPart::Make { inode: inode() },
    ]
}
fn facts() -> Vec<FsFact> {
    vec![
        FsFact::Failed { errno: 39 },
        FsFact::Busy {},
        FsFact::Node { node: node() },
        FsFact::Elsewhere {
            ino: ino(),
            kind: FileKind::Fifo {},
        },
    ]
}
fn steps() -> Vec<FsStep> {
    let (part, fact) = (
        FsPart::Link {
            ino: ino(),
            place: Some(place()),
        },
        FsFact::Busy {},
    );
    vec![
        FsStep::Prepare {
            index: 1,
            stamp: Stamp(83),
            part,
        },
        FsStep::Prepared { index: 1, fact },
        FsStep::Decide { commit: true },
        FsStep::Decided {},
        FsStep::Inquire {},
    ]
}
fn transaction() -> FsTransaction {
    let step = FsStep::Decide { commit: true };
    FsTransaction {
        file_system: "home".into(),
        from: 3,
        to: 4,
        transaction: ino(),
        step,
    }
}

/// All examples except frames.
pub fn all() -> Vec<Sample> {
    let mut all = vec![
        value("value Stamp", Stamp(-2)),
        value("record Layout v1", layout()),
        value("record Rare v1", rare()),
        value("record Inode v1", inode()),
        value("record Head v1", head()),
        value(
            "record Backpointer v1",
            Backpointer {
                dir: Ino::ROOT,
                name: name(),
            },
        ),
        value("record FsPlace v1", place()),
        value("record FsSettings v1", settings()),
        value("record FsHolder v1", holder()),
        value("record FsLock v1", lock()),
        value("record FsLockWait v1", wait()),
        value("record FsSession v1", session()),
        value("fields FsOpens", opens()),
        value("fields FsClient", client()),
        value(
            "record FsWelcome v1",
            FsWelcome {
                again: true,
                greeting: 4,
            },
        ),
        value("record FsAway v1", away()),
        value("record FsCaughtUp v1", FsCaughtUp { next: 9 }),
        value("record FsLeave v1", FsLeave { next: 10 }),
        value("record FsRequest v1", request()),
        value("record FsAgain v1", again()),
        value("record FsChanges v1", changes()),
        value("record FsNode v1", node()),
        value("fields FsListed", listed()),
        value(
            "record FsForget v1",
            FsForget {
                number: 11,
                items: stale(),
            },
        ),
        value("record FsForgot v1", FsForgot { number: 11 }),
        value("record FsPing v1", FsPing { number: 12 }),
        value("record FsPong v1", FsPong { number: 12 }),
        value("record FsInquire v1", FsInquire { rank: 5 }),
        value("record FsFigures v1", figures()),
        value("fields FsPopular", figures().popular[0].clone()),
        value("record FsReply v1", reply()),
        value("record FsCaps v1", caps()),
        value("record FsSync v1", FsSync { below: 9 }),
        value("fields FsCapNews", caps().items[0]),
        value("fields FsGrant", reply().caps[0]),
        value("record FsSafe v1", safe()),
        value(
            "record FsEvicted v1",
            FsEvicted {
                instance: Instance(3),
            },
        ),
        value(
            "record FsLocked v1",
            FsLocked {
                number: 7,
                errno: Some(35),
            },
        ),
        value("fields FsElsewhere", elsewhere()),
        value("fields FsQuota", quota()),
        value("record FsTransaction v1", transaction()),
    ];
    let (kind, home) = (FileKind::File {}, 2);
    all.extend(variants(
        "Entry",
        Entry::VARIANTS,
        vec![
            Entry::Inode {
                inode: inode(),
                head: Some(Box::new(head())),
            },
            Entry::Reference {
                ino: ino(),
                kind,
                home,
            },
        ],
    ));
    all.extend(variants(
        "FileKind",
        FileKind::VARIANTS,
        vec![
            FileKind::File {},
            FileKind::Directory {},
            FileKind::Symlink {},
            FileKind::Fifo {},
            FileKind::Socket {},
            FileKind::CharDevice {},
            FileKind::BlockDevice {},
        ],
    ));
    let kinds = vec![QuotaKind::Bytes {}, QuotaKind::Files {}];
    all.extend(variants("QuotaKind", QuotaKind::VARIANTS, kinds));
    all.extend(variants("FsCall", FsCall::VARIANTS, calls()));
    all.extend(variants("FsStale", FsStale::VARIANTS, stale()));
    let caps = vec![
        FsCap::Nothing {},
        FsCap::Sync {},
        FsCap::Cache {},
        FsCap::Buffer {},
        FsCap::Asks {},
        FsCap::Bounded { room: 18 },
    ];
    all.extend(variants("FsCap", FsCap::VARIANTS, caps));
    all.extend(variants(
        "FsAnswer",
        FsAnswer::VARIANTS,
        vec![
            FsAnswer::Done {},
            FsAnswer::Failed { errno: 39 },
            reply().answer,
            FsAnswer::Listed {
                entries: vec![listed()],
                end: true,
            },
            FsAnswer::Room {
                bytes: 11,
                files: 12,
            },
            FsAnswer::Conflict { lock: Some(lock()) },
            FsAnswer::Waits {},
            FsAnswer::Clients {
                clients: vec![client()],
                end: true,
            },
            FsAnswer::Elsewhere {
                ino: ino(),
                kind: FileKind::Directory {},
            },
            FsAnswer::ListedPartly {
                entries: vec![listed()],
                elsewhere: vec![elsewhere()],
                end: true,
            },
            FsAnswer::Usage {
                bytes: 13,
                files: 14,
                directories: 15,
                quotas: vec![quota()],
            },
            FsAnswer::Numbers {
                first: ino(),
                count: 16,
            },
        ],
    ));
    all.extend(variants("FsStep", FsStep::VARIANTS, steps()));
    all.extend(variants("FsPart", FsPart::VARIANTS, parts()));
    all.extend(variants("FsFact", FsFact::VARIANTS, facts()));
    all
}
