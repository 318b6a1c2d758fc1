//! `fs check`: histories leave no faults; each kind of damage is found, and repaired without
//! changing anything else.

use crate::crash::World;
use crate::objects::{Objects, config, small};
use crate::rig::make_call;
use bytes::Bytes;
use nacre_client::{Failure, Operation};
use nacre_conformance::memory::{Memory, Object};
use nacre_mds::check::{Check, CheckConfig, Kind, Next, Report, Trouble};
use nacre_mds::mds::{
    Mds, MdsConfig, MdsLimits, Say, first_objects, first_objects_owned, fragment_name,
};
use nacre_types::{ClientId, Frag, Ino, Instance, Name, ObjectId, PoolId, Time};
use nacre_wire::Wire as _;
use nacre_wire::fs::entry::{entry_key, entry_name};
use nacre_wire::fs::{Backpointer, Entry, FileKind, Head, Inode, Stamp, data_name};
use nacre_wire::msg::client::OpFailure;
use nacre_wire::msg::fs::{FsAnswer, FsCall, FsRequest};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const META: PoolId = PoolId(1);
const DATA: PoolId = PoolId(2);

fn check_config() -> CheckConfig {
    let MdsConfig {
        namespace,
        pool,
        layout,
        ..
    } = config();
    CheckConfig {
        namespace,
        pool,
        layout,
        ranks: 1,
        quick: false,
        journals: true,
        rebuild: false,
        dump: false,
        now: Stamp(77),
    }
}

/// Runs a check, with several operations in flight that end out of order. Reading `unreadable`
/// fails.
fn drive(memory: &Memory, mut check: Check, unreadable: &str) -> Report {
    let mut memory = memory.clone();
    let all: Vec<(PoolId, ObjectId)> = memory.all.keys().cloned().collect();
    let mut flying = Vec::new();
    let mut end_one = |check: &mut Check, flying: &mut Vec<(_, Operation)>| {
        let (token, operation) = flying.swap_remove(flying.len() / 2);
        let result = match memory.perform(&operation) {
            _ if operation.object.name == Name::from(unreadable) => {
                Err(Trouble::Other("a broken disk".to_owned()))
            }
            Ok(done) => Ok(done),
            Err(Failure::Refused(OpFailure::NotFound {})) => Err(Trouble::NotFound),
            Err(why) => Err(Trouble::Other(why.to_string())),
        };
        check.on_done(token, result);
    };
    loop {
        match check.wants() {
            Next::Operation(token, operation) => {
                flying.push((token, operation));
                if flying.len() >= 8 {
                    end_one(&mut check, &mut flying);
                }
            }
            Next::Wait => end_one(&mut check, &mut flying),
            Next::List(pool) => {
                all.iter()
                    .filter(|(of, _)| *of == pool)
                    .for_each(|(_, object)| check.on_object(pool, object));
            }
            Next::Done => return check.report(),
        }
    }
}
/// The faults of a file system with this many ranks.
pub fn check_ranks(memory: &Memory, ranks: u16) -> Report {
    drive(
        memory,
        Check::new(CheckConfig {
            ranks,
            ..check_config()
        }),
        "",
    )
}
/// Repairs it.
pub fn repair_ranks(memory: &mut Memory, ranks: u16) -> Report {
    repair_with(
        memory,
        &CheckConfig {
            ranks,
            ..check_config()
        },
    )
}
fn check(memory: &Memory) -> Report {
    drive(memory, Check::new(check_config()), "")
}
pub fn shown(report: &Report) -> Vec<String> {
    report
        .faults()
        .map(|fault| format!("{}: {}: {}", fault.kind.name(), fault.place, fault.what))
        .collect()
}

/// Repairs until a repair can do nothing more; returns what is left.
pub fn repair(memory: &mut Memory) -> Report {
    repair_with(memory, &check_config())
}
fn repair_with(memory: &mut Memory, config: &CheckConfig) -> Report {
    let mut report = drive(memory, Check::new(config.clone()), "");
    for _ in 0..12 {
        let Some(plan) = report.plan() else {
            return report;
        };
        for operation in plan.steps.iter().flatten() {
            match memory.perform(operation) {
                Ok(_) | Err(Failure::Refused(OpFailure::NotFound {})) => {}
                Err(why) => panic!("{operation:?}: {why}"),
            }
        }
        report = drive(memory, Check::after(config.clone(), &report), "");
    }
    panic!("it goes on for ever: {:?}", shown(&report));
}

/// After any history, with servers that died on the way, the final state has no faults.
#[test]
fn histories_leave_nothing_to_be_found() {
    let (mut journaled, mut files) = (0, 0);
    for seed in 0..60 {
        let config = if seed % 2 == 0 {
            config()
        } else {
            small(seed / 2)
        };
        let mut world = World::with(seed, 2, config);
        world.run(300, [20, 50, 1_000][seed as usize % 3]);
        let report = check(&world.objects.memory);
        assert_eq!(shown(&report), Vec::<String>::new(), "seed {seed}");
        assert!(
            report.findings.is_empty() && report.plan().is_none(),
            "seed {seed}: {:?}",
            report.findings
        );
        journaled += report.counts.batches;
        files += report.counts.files;
    }
    assert!(journaled > 1_000 && files > 100, "{journaled} {files}");
}

/// The same at any moment: a check reads what servers had written when they died.
#[test]
fn a_server_that_died_leaves_nothing_to_be_found() {
    for seed in 0..60 {
        let mut world = World::with(seed, 1, small(seed));
        world.run_unfinished(100 + seed as usize * 7);
        world.objects.crash(seed as usize % 9);
        let report = check(&world.objects.memory);
        // A client has written data of a file whose size it has not reported.
        let faults: Vec<String> = shown(&report)
            .into_iter()
            .filter(|fault| !fault.starts_with("data-"))
            .collect();
        assert_eq!(faults, Vec::<String>::new(), "seed {seed}");
    }
}

/// A namespace with every feature, all of it written to directories.
struct Site {
    memory: Memory,
    inos: BTreeMap<&'static str, Ino>,
}

struct Served {
    objects: Objects,
    mds: Mds,
    now: Time,
    number: u64,
}
impl Served {
    fn open(objects: Objects) -> Self {
        let limits = MdsLimits {
            journal_object_bytes: 1,
            write_after: Duration::from_millis(5),
            ..MdsLimits::default()
        };
        let mds = Mds::open(MdsConfig { limits, ..config() });
        let mut served = Self {
            objects,
            mds,
            now: Time(1),
            number: 0,
        };
        served.settle();
        served
    }
    fn turn(&mut self, said: &mut Vec<(ClientId, Say)>) {
        self.now = self.now + Duration::from_millis(1);
        self.mds.on_turn(self.now, &mut self.objects, said);
        self.objects.work(100);
    }
    fn settle(&mut self) {
        for _ in 0..100 {
            self.turn(&mut Vec::new());
        }
    }
    fn ask(&mut self, call: FsCall) -> FsAnswer {
        self.number += 1;
        let number = self.number;
        self.mds.on_request(
            ClientId(1),
            FsRequest {
                number,
                safe_below: number,
                again: None,
                foretold: None,
                place: None,
                call,
            },
        );
        let mut said = Vec::new();
        for _ in 0..100 {
            self.turn(&mut said);
            for (_, say) in said.drain(..) {
                match say {
                    Say::Reply(reply) if reply.number == number => return reply.answer,
                    _ => {}
                }
            }
        }
        panic!("no answer: {:?}", self.mds)
    }
    fn make(&mut self, dir: Ino, name: &str, kind: FileKind) -> Ino {
        match self.ask(make_call(dir, name, kind, 0o755)) {
            FsAnswer::Node { node, .. } => node.inode.ino,
            other => panic!("{other:?}"),
        }
    }
    fn resize(&mut self, ino: Ino, size: u64) {
        self.ask(FsCall::Wrote {
            ino,
            size,
            mtime: Stamp(1),
        });
        for number in 0..size.div_ceil(4096) {
            let data = vec![7; 4096.min(size - number * 4096) as usize];
            self.objects.memory.all.insert(
                data_key(ino, number),
                Object {
                    data,
                    ..Object::default()
                },
            );
        }
    }
}

impl Site {
    fn new() -> Self {
        let mut objects = Objects::new();
        first_objects(&config(), Stamp(1))
            .iter()
            .for_each(|operation| objects.run(operation));
        let mut served = Served::open(objects);
        served
            .mds
            .on_session(ClientId(1), Instance(1), (false, 0), &[]);
        served.settle();
        served.mds.on_caught_up(ClientId(1));
        let mut inos = BTreeMap::from([("/", Ino::ROOT)]);
        let (directory, file) = (FileKind::Directory {}, FileKind::File {});
        for (path, dir, name, kind) in [
            ("/dir", "/", "dir", directory),
            ("/dir/sub", "/dir", "sub", directory),
            ("/dir/empty", "/dir", "empty", directory),
            ("/dir/sub/file", "/dir/sub", "file", file),
            ("/dir/one", "/dir", "one", file),
            ("/dir/linked", "/dir", "linked", file),
            ("/pipe", "/", "pipe", FileKind::Fifo {}),
        ] {
            let ino = served.make(inos[dir], name, kind);
            inos.insert(path, ino);
        }
        served.resize(inos["/dir/sub/file"], 5_000);
        served.resize(inos["/dir/linked"], 100);
        served.ask(FsCall::Link {
            ino: inos["/dir/linked"],
            dir: Ino::ROOT,
            name: Name::from("other"),
        });
        served.settle();
        // The next holder's journal records only the holder itself.
        let mut served = Served::open(served.objects);
        served.settle();
        Self {
            memory: served.objects.memory,
            inos,
        }
    }
    fn ino(&self, path: &str) -> Ino {
        self.inos[path]
    }
    fn meta(&mut self, name: &str) -> &mut Object {
        self.memory
            .all
            .get_mut(&key(META, name))
            .expect("there is this object")
    }
    fn dir(&mut self, ino: Ino) -> &mut Object {
        self.meta(&fragment_name(ino, Frag::WHOLE))
    }
    fn entry(&mut self, dir: Ino, name: &str) -> Entry {
        Entry::from_bytes(&self.dir(dir).omap[&omap_key(name)]).expect("an entry")
    }
    fn set(&mut self, dir: Ino, name: &str, entry: &Entry) {
        self.dir(dir)
            .omap
            .insert(omap_key(name), entry.to_bytes().into());
    }
    fn unset(&mut self, dir: Ino, name: &str) -> Bytes {
        self.dir(dir)
            .omap
            .remove(&omap_key(name))
            .expect("there is this entry")
    }
    fn change_inode(
        &mut self,
        dir: Ino,
        name: &str,
        change: impl FnOnce(&mut Inode, &mut Option<Box<Head>>),
    ) {
        let Entry::Inode {
            mut inode,
            mut head,
        } = self.entry(dir, name)
        else {
            panic!("an inode")
        };
        change(&mut inode, &mut head);
        self.set(dir, name, &Entry::Inode { inode, head });
    }
    fn change_head(&mut self, dir: Ino, change: impl FnOnce(&mut Head)) {
        let mut head = Head::from_bytes(&self.dir(dir).attrs[&b"head"[..]]).expect("a head");
        change(&mut head);
        self.dir(dir)
            .attrs
            .insert("head".into(), head.to_bytes().into());
    }
}
fn omap_key(name: &str) -> Bytes {
    Bytes::copy_from_slice(entry_key(&Name::from(name)).as_bytes())
}
fn key(pool: PoolId, name: &str) -> (PoolId, ObjectId) {
    (
        pool,
        ObjectId {
            name: Name::from(name),
            namespace: Name::from("fs"),
            ..ObjectId::default()
        },
    )
}
fn data_key(ino: Ino, number: u64) -> (PoolId, ObjectId) {
    key(DATA, &data_name(ino, number))
}

/// All paths with their contents, as programs see them.
fn paths(memory: &Memory) -> BTreeMap<String, String> {
    fn walk(
        memory: &Memory,
        dir: Ino,
        path: &str,
        depth: u32,
        into: &mut BTreeMap<String, String>,
    ) {
        let Some(object) = memory.all.get(&key(META, &fragment_name(dir, Frag::WHOLE))) else {
            return;
        };
        for (name, value) in &object.omap {
            let Some(name) = entry_name(&Name::copy(name)) else {
                continue;
            };
            let Ok(mut entry) = Entry::from_bytes(value) else {
                continue;
            };
            let path = format!("{path}/{name}");
            if let Some((home, name)) = entry.home() {
                let home = memory
                    .all
                    .get(&key(META, &fragment_name(home, Frag::WHOLE)));
                let value = home.and_then(|home| home.omap.get(&omap_key(&name.to_string())));
                let Some(value) = value else { continue };
                entry = Entry::from_bytes(value).expect("an inode");
            }
            let Entry::Inode { inode, .. } = entry else {
                continue;
            };
            let Inode {
                ino,
                kind,
                mode,
                uid,
                links,
                size,
                ..
            } = inode;
            let data: Vec<usize> = (0..8)
                .filter_map(|number| {
                    memory
                        .all
                        .get(&data_key(ino, number))
                        .map(|object| object.data.len())
                })
                .collect();
            into.insert(
                path.clone(),
                format!("{ino} {kind:?} {mode:o} {uid} {links} {size} {data:?}"),
            );
            if inode.is_directory() && depth < 10 {
                walk(memory, ino, &path, depth + 1, into);
            }
        }
    }
    let mut all = BTreeMap::new();
    walk(memory, Ino::ROOT, "", 0, &mut all);
    all
}
/// What is removed (`-`), new (`+`) or different (`~`).
fn differences(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let all: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let of = |path: &&String| match (before.get(*path), after.get(*path)) {
        (Some(_), None) => Some(format!("-{path}")),
        (None, Some(_)) => Some(format!("+{path}")),
        (Some(before), Some(after)) if before != after => Some(format!("~{path}")),
        _ => None,
    };
    all.iter().filter_map(of).collect()
}

type Plant = fn(&mut Site);
/// A kind of damage: how to cause it, all findings, and what differs after the repair.
struct Damage {
    what: &'static str,
    plant: Plant,
    found: &'static [Kind],
    /// `NUMBER` stands for the number of the second.
    after: (&'static [&'static str], &'static str),
}

const fn damage(
    what: &'static str,
    plant: Plant,
    found: &'static [Kind],
    after: &'static [&'static str],
    number: &'static str,
) -> Damage {
    Damage {
        what,
        plant,
        found,
        after: (after, number),
    }
}

const ALL: &[Damage] = &[
    damage(
        "a journal's head",
        |site| site.meta("journal.0").data = vec![1, 2, 3],
        &[Kind::JournalHead],
        &[],
        "",
    ),
    damage(
        "a journal's batch",
        |site| {
            let last = site
                .memory
                .all
                .keys()
                .rfind(|key| key.1.name.to_string().starts_with("journal.0."));
            let last = last.expect("a journal").clone();
            *site
                .memory
                .all
                .get_mut(&last)
                .expect("it")
                .data
                .last_mut()
                .expect("bytes") ^= 1;
        },
        &[Kind::JournalDamaged],
        &[],
        "",
    ),
    damage(
        "a hidden directory without an object",
        |site| {
            drop(
                site.memory
                    .all
                    .remove(&key(META, &fragment_name(Ino(0x2_0000), Frag::WHOLE))),
            )
        },
        &[Kind::Missing],
        &[],
        "",
    ),
    damage(
        "no root",
        |site| drop(site.unset(Ino::TOP, "root")),
        &[Kind::Missing, Kind::Count, Kind::Sum],
        &[],
        "",
    ),
    damage(
        "a key of another hash",
        |site| {
            let dir = site.ino("/dir");
            let value = site.unset(dir, "one");
            let mut key = omap_key("one").to_vec();
            key[3] ^= 1;
            site.dir(dir).omap.insert(key.into(), value);
        },
        &[Kind::BadKey, Kind::Count, Kind::Sum],
        &[],
        "",
    ),
    damage(
        "an entry that cannot be decoded",
        |site| {
            drop(
                site.dir(Ino::ROOT)
                    .omap
                    .insert(omap_key("dir"), Bytes::from_static(b"xx")),
            )
        },
        &[
            Kind::BadEntry,
            Kind::DirectoryOrphan,
            Kind::Count,
            Kind::Sum,
        ],
        &["dir"],
        "/dir",
    ),
    damage(
        "a number that no rank gives",
        |site| {
            let Entry::Inode { inode, .. } = site.entry(Ino::ROOT, "pipe") else {
                panic!("an inode")
            };
            let inode = Inode {
                ino: Ino(99),
                ..inode
            };
            site.set(Ino::ROOT, "bad", &Entry::Inode { inode, head: None });
        },
        &[Kind::BadEntry],
        &[],
        "",
    ),
    damage(
        "a hidden name",
        |site| {
            let (links, ino) = (Ino(0x1_0000), site.ino("/dir/linked"));
            let value = site.unset(links, &ino.to_string());
            site.dir(links).omap.insert(omap_key("name"), value);
        },
        &[Kind::HiddenName],
        &[],
        "",
    ),
    damage(
        "no head",
        |site| {
            let dir = site.ino("/dir/sub");
            site.dir(dir).attrs.remove(&b"head"[..]);
        },
        &[Kind::BadHead],
        &[],
        "",
    ),
    damage(
        "one file twice",
        |site| {
            let dir = site.ino("/dir");
            let Entry::Inode { inode, .. } = site.entry(dir, "one") else {
                panic!("an inode")
            };
            let older = Inode {
                change: inode.change - 1,
                ..inode
            };
            site.set(
                Ino::ROOT,
                "two",
                &Entry::Inode {
                    inode: older,
                    head: None,
                },
            );
        },
        &[Kind::NumberTwice, Kind::Count, Kind::Sum],
        &[],
        "",
    ),
    damage(
        "a name with the inode of a file that has several",
        |site| {
            let ino = site.ino("/dir/linked");
            let inode = site.entry(Ino(0x1_0000), &ino.to_string());
            site.set(Ino::ROOT, "other", &inode);
        },
        &[Kind::NumberTwice, Kind::Links, Kind::Sum],
        &[],
        "",
    ),
    damage(
        "a number that was not given",
        |site| site.change_inode(Ino::ROOT, "pipe", |inode, _| inode.ino = Ino(1 << 40)),
        &[Kind::NumberNotGiven],
        &["~/pipe"],
        "",
    ),
    damage(
        "one directory twice",
        |site| {
            let dir = site.ino("/dir");
            let sub = site.entry(dir, "sub");
            site.set(Ino::ROOT, "again", &sub);
        },
        &[Kind::DirectoryTwice, Kind::Count],
        &[],
        "",
    ),
    damage(
        "a circle",
        |site| {
            let sub = site.ino("/dir/sub");
            let value = site.unset(Ino::ROOT, "dir");
            site.dir(sub).omap.insert(omap_key("loop"), value);
        },
        &[
            Kind::DirectoryLoop,
            Kind::Backpointer,
            Kind::Count,
            Kind::Sum,
        ],
        &["dir"],
        "/dir",
    ),
    damage(
        "a directory without an entry",
        |site| drop(site.unset(Ino::ROOT, "dir")),
        &[Kind::DirectoryOrphan, Kind::Count, Kind::Sum],
        &["dir"],
        "/dir",
    ),
    damage(
        "a directory without an object",
        |site| {
            let dir = site.ino("/dir/empty");
            site.memory
                .all
                .remove(&key(META, &fragment_name(dir, Frag::WHOLE)));
        },
        &[Kind::DirectoryWithoutObject],
        &[],
        "",
    ),
    damage(
        "a directory without an object, and with files",
        |site| {
            let dir = site.ino("/dir/sub");
            site.memory
                .all
                .remove(&key(META, &fragment_name(dir, Frag::WHOLE)));
        },
        &[Kind::DirectoryWithoutObject, Kind::Sum, Kind::DataOrphan],
        &["+/lost+found", "+/lost+found/NUMBER", "-/dir/sub/file"],
        "/dir/sub/file",
    ),
    damage(
        "references without an inode",
        |site| {
            let ino = site.ino("/dir/linked");
            site.unset(Ino(0x1_0000), &ino.to_string());
        },
        &[Kind::Dangling, Kind::Count, Kind::Sum],
        &["~/dir/linked", "~/other"],
        "",
    ),
    damage(
        "a file with several names in a directory",
        |site| {
            let (ino, dir) = (site.ino("/dir/linked"), site.ino("/dir"));
            let value = site.unset(Ino(0x1_0000), &ino.to_string());
            site.dir(dir).omap.insert(omap_key("linked"), value);
        },
        &[Kind::Dangling, Kind::Links, Kind::Count, Kind::Sum],
        &[],
        "",
    ),
    damage(
        "an inode without references",
        |site| {
            let dir = site.ino("/dir");
            site.unset(dir, "linked");
            site.unset(Ino::ROOT, "other");
        },
        &[Kind::Unreferenced, Kind::Count, Kind::Sum],
        &[
            "+/lost+found",
            "+/lost+found/NUMBER",
            "-/dir/linked",
            "-/other",
        ],
        "/dir/linked",
    ),
    damage(
        "a reference of another kind",
        |site| {
            let Entry::Reference { ino, home, .. } = site.entry(Ino::ROOT, "other") else {
                panic!("a reference")
            };
            site.set(
                Ino::ROOT,
                "other",
                &Entry::Reference {
                    ino,
                    home,
                    kind: FileKind::Symlink {},
                },
            );
        },
        &[Kind::ReferenceKind],
        &[],
        "",
    ),
    damage(
        "a link count of several",
        |site| {
            let name = site.ino("/dir/linked").to_string();
            site.change_inode(Ino(0x1_0000), &name, |inode, _| inode.links = 7);
        },
        &[Kind::Links],
        &[],
        "",
    ),
    damage(
        "a link count of one",
        |site| site.change_inode(Ino::ROOT, "pipe", |inode, _| inode.links = 0),
        &[Kind::Links],
        &[],
        "",
    ),
    damage(
        "a backpointer",
        |site| {
            let (dir, name) = (site.ino("/dir"), Name::from("else"));
            let sub = site.ino("/dir/sub");
            let at = Backpointer { dir, name }.to_bytes();
            site.dir(sub).attrs.insert("parent".into(), at.into());
        },
        &[Kind::Backpointer],
        &[],
        "",
    ),
    damage(
        "a count",
        |site| {
            let dir = site.ino("/dir");
            site.change_head(dir, |head| head.entries += 1);
        },
        &[Kind::Count],
        &[],
        "",
    ),
    damage(
        "a sum",
        |site| {
            let dir = site.ino("/dir");
            site.change_head(dir, |head| head.bytes_below -= 1);
        },
        &[Kind::Sum],
        &[],
        "",
    ),
    damage(
        "a copy",
        |site| site.change_inode(Ino::ROOT, "dir", |_, head| *head = None),
        &[Kind::Copy],
        &[],
        "",
    ),
    damage(
        "data without an inode",
        |site| {
            let dir = site.ino("/dir/sub");
            site.unset(dir, "file");
        },
        &[Kind::DataOrphan, Kind::Count, Kind::Sum],
        &["+/lost+found", "+/lost+found/NUMBER", "-/dir/sub/file"],
        "/dir/sub/file",
    ),
    damage(
        "an object beyond a file's end",
        |site| {
            let ino = site.ino("/dir/one");
            site.memory.all.insert(
                data_key(ino, 9),
                Object {
                    data: vec![1],
                    ..Object::default()
                },
            );
        },
        &[Kind::DataBeyond],
        &[],
        "",
    ),
    damage(
        "bytes beyond a file's end",
        |site| {
            let ino = site.ino("/dir/sub/file");
            let object = site
                .memory
                .all
                .get_mut(&data_key(ino, 1))
                .expect("its last object");
            object.data.push(8);
        },
        &[Kind::DataBeyond],
        &[],
        "",
    ),
];

/// Each kind of damage is found, completely and without other findings; it is repaired; and nothing
/// else changes.
#[test]
fn every_kind_of_damage_is_found_and_repaired() {
    let site = Site::new();
    let report = check(&site.memory);
    assert_eq!(shown(&report), Vec::<String>::new());
    assert!(
        report.findings.is_empty() && report.counts.files >= 4 && report.counts.objects == 3,
        "{:?}",
        report.counts
    );
    let mut seen: BTreeSet<Kind> =
        BTreeSet::from([Kind::Unreadable, Kind::Fragment, Kind::Unknown]);
    // With several ranks: `across.rs`.
    seen.extend([Kind::Unfinished, Kind::OtherRank]);
    let mut wrong = Vec::new();
    for Damage {
        what,
        plant,
        found,
        after,
    } in ALL
    {
        let mut site = Site {
            memory: site.memory.clone(),
            inos: site.inos.clone(),
        };
        let before = paths(&site.memory);
        plant(&mut site);
        let report = check(&site.memory);
        let kinds: BTreeSet<Kind> = report.faults().map(|fault| fault.kind).collect();
        if kinds != found.iter().copied().collect() {
            wrong.push(format!("{what}: found {:#?}", shown(&report)));
        }
        seen.extend(kinds);
        let left = repair(&mut site.memory);
        if !left.is_clean() {
            wrong.push(format!("{what}: left {:#?}", shown(&left)));
        }
        let again = check(&site.memory);
        assert!(again.findings.is_empty(), "{what}: {:?}", again.findings);
        let mut differs = differences(&before, &paths(&site.memory));
        // A whole tree has moved.
        let (expected, number) = after;
        let moved = *expected == ["dir"];
        let number = site
            .inos
            .get(number)
            .map(Ino::to_string)
            .unwrap_or_default();
        let expected: Vec<String> = match moved {
            true => {
                let there = before.keys().filter(|path| path.starts_with("/dir"));
                let gone = there.clone().map(|path| format!("-{path}"));
                let new = there.map(|path| {
                    format!(
                        "+{}",
                        path.replacen("/dir", &format!("/lost+found/{number}"), 1)
                    )
                });
                new.chain(gone).chain(["+/lost+found".to_owned()]).collect()
            }
            false => expected
                .iter()
                .map(|path| path.replace("NUMBER", &number))
                .collect(),
        };
        let mut expected = expected;
        expected.sort();
        differs.sort();
        if differs != expected {
            wrong.push(format!("{what}: changed {differs:?}, and not {expected:?}"));
        }
        // A server takes it over, and everything can be read.
        let mut objects = Objects::new();
        objects.memory = site.memory.clone();
        let mut served = Served::open(objects);
        assert!(served.mds.is_live(), "{what}: {:?}", served.mds.ended());
        served
            .mds
            .on_session(ClientId(2), Instance(1), (false, 0), &[]);
        served.settle();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let all: BTreeSet<Kind> = Kind::ALL.iter().copied().collect();
    assert_eq!(
        all.difference(&seen).collect::<Vec<_>>(),
        Vec::<&Kind>::new(),
        "no damage shows these"
    );
}

/// What is in an unreadable directory is not taken for lost, and nothing is repaired meanwhile.
#[test]
fn what_cannot_be_read_is_not_lost() {
    let site = Site::new();
    let object = fragment_name(site.ino("/dir"), Frag::WHOLE);
    let report = drive(&site.memory, Check::new(check_config()), &object);
    let kinds: Vec<Kind> = report.faults().map(|fault| fault.kind).collect();
    assert_eq!(kinds, [Kind::Unreadable], "{:?}", shown(&report));
    assert!(report.plan().is_none() && report.why_not().is_some());
}

/// Objects unknown to this program are reported and left alone.
#[test]
fn what_is_not_known_is_named_and_left_alone() {
    let mut site = Site::new();
    site.memory
        .all
        .insert(key(DATA, "notes"), Object::default());
    let report = check(&site.memory);
    assert_eq!(
        shown(&report),
        ["unknown-object: notes: no part of a file's data has this name"]
    );
    assert!(report.plan().is_none());
    let fragment = Frag::new(1, 0).expect("a half");
    site.memory.all.insert(
        key(META, &fragment_name(Ino::ROOT, fragment)),
        Object::default(),
    );
    let report = check(&site.memory);
    assert!(report.faults().any(|fault| fault.kind == Kind::Fragment));
    assert!(report.plan().is_none() && report.why_not().is_some());
}

/// A repair that is interrupted anywhere is finished by the next one.
#[test]
fn a_repair_that_was_cut_off_is_finished_by_the_next() {
    for Damage { what, plant, .. } in ALL {
        let mut site = Site::new();
        plant(&mut site);
        let mut whole = site.memory.clone();
        repair(&mut whole);
        let expected = paths(&whole);
        for cut in 0..40 {
            let mut memory = site.memory.clone();
            let mut done = 0;
            let mut report = check(&memory);
            'repair: while let Some(plan) = report.plan() {
                for operation in plan.steps.iter().flatten() {
                    if done == cut {
                        break 'repair;
                    }
                    done += 1;
                    let _ = memory.perform(operation);
                }
                report = drive(&memory, Check::after(check_config(), &report), "");
            }
            repair(&mut memory);
            assert!(
                check(&memory).findings.is_empty(),
                "{what}, cut off after {cut}"
            );
            let mut differs = differences(&expected, &paths(&memory));
            // It may have another number.
            differs.retain(|path| path != "~/lost+found");
            assert!(
                differs.is_empty(),
                "{what}, cut off after {cut}: {differs:?}"
            );
            if done < cut {
                break;
            }
        }
    }
}

/// The metadata pool is lost: files with data come back, under their names where their first
/// objects contain them.
#[test]
fn a_lost_namespace_is_made_again_from_data() {
    let mut site = Site::new();
    let (one, sub) = (site.ino("/dir/one"), site.ino("/dir/sub"));
    let at = |dir: Ino, name: &str| {
        let at = Backpointer {
            dir,
            name: Name::from(name),
        }
        .to_bytes();
        BTreeMap::from([(Name::from("parent"), Bytes::from(at))])
    };
    let top = Object {
        data: vec![1; 9],
        attrs: at(Ino::ROOT, "top"),
        ..Object::default()
    };
    site.memory.all.insert(data_key(one, 0), top);
    let file = site.ino("/dir/sub/file");
    site.memory
        .all
        .get_mut(&data_key(file, 0))
        .expect("its data")
        .attrs = at(sub, "file");
    site.memory.all.retain(|(pool, _), _| *pool == DATA);
    let config = CheckConfig {
        rebuild: true,
        ..check_config()
    };
    let left = repair_with(&mut site.memory, &config);
    assert!(left.findings.is_empty(), "{:?}", left.findings);
    let linked = site.ino("/dir/linked");
    let found: Vec<String> = paths(&site.memory).into_keys().collect();
    let expected = [
        "/lost+found".to_owned(),
        format!("/lost+found/{sub}"),
        format!("/lost+found/{sub}/file"),
        format!("/lost+found/{linked}"),
        "/top".to_owned(),
    ];
    let mut expected = expected.to_vec();
    expected.sort();
    assert_eq!(found, expected);
    let mut objects = Objects::new();
    objects.memory = site.memory;
    let served = Served::open(objects);
    assert!(served.mds.is_live());
}

/// Directories' objects exist, but the entry of one is missing: it comes back to where its object
/// says that it was.
#[test]
fn a_rebuild_puts_directories_back() {
    let site = Site::new();
    let before = paths(&site.memory);
    let mut lost = Site {
        memory: site.memory.clone(),
        inos: site.inos.clone(),
    };
    lost.unset(Ino::ROOT, "dir");
    let config = CheckConfig {
        rebuild: true,
        ..check_config()
    };
    let left = repair_with(&mut lost.memory, &config);
    assert!(left.findings.is_empty(), "{:?}", left.findings);
    assert_eq!(
        differences(&before, &paths(&lost.memory)),
        ["~/dir"],
        "its mode is lost"
    );
    // Its name has been taken by another one.
    let mut lost = Site {
        memory: site.memory.clone(),
        inos: site.inos.clone(),
    };
    lost.unset(Ino::ROOT, "dir");
    let pipe = lost.entry(Ino::ROOT, "pipe");
    lost.unset(Ino::ROOT, "pipe");
    lost.set(Ino::ROOT, "dir", &pipe);
    let left = repair_with(&mut lost.memory, &config);
    assert!(left.findings.is_empty(), "{:?}", left.findings);
    let there = format!("/lost+found/{}/sub/file", site.ino("/dir"));
    assert!(paths(&lost.memory).contains_key(&there));
}

/// A client that requests it is answered when directories contain its earlier changes.
#[test]
fn a_flush_is_answered_when_everything_is_written() {
    let mut objects = Objects::new();
    first_objects(&config(), Stamp(1))
        .iter()
        .for_each(|operation| objects.run(operation));
    // Nothing is written automatically for an hour.
    let limits = MdsLimits {
        write_after: Duration::from_secs(3_600),
        ..MdsLimits::default()
    };
    let mds = Mds::open(MdsConfig { limits, ..config() });
    let mut served = Served {
        objects,
        mds,
        now: Time(1),
        number: 0,
    };
    served.settle();
    served
        .mds
        .on_session(ClientId(1), Instance(1), (false, 0), &[]);
    served.settle();
    served.mds.on_caught_up(ClientId(1));
    let without = CheckConfig {
        journals: false,
        ..check_config()
    };
    for turn in 0..3 {
        let name = format!("file{turn}");
        served.make(Ino::ROOT, &name, FileKind::File {});
        let report = drive(&served.objects.memory, Check::new(without.clone()), "");
        assert_eq!(report.counts.files, turn, "{:?}", shown(&report));
        assert_eq!(served.ask(FsCall::Flush {}), FsAnswer::Done {});
        let report = drive(&served.objects.memory, Check::new(without.clone()), "");
        assert_eq!(report.counts.files, turn + 1, "{:?}", shown(&report));
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

/// A user who created a file system could write nothing in it: its root belonged to root.
#[test]
fn the_root_belongs_to_who_makes_the_file_system() {
    let mut objects = Objects::new();
    let first = first_objects_owned(&config(), Stamp(1), (65_534, 7));
    first.iter().for_each(|operation| objects.run(operation));
    assert!(check(&objects.memory).findings.is_empty());
    let mut served = Served::open(objects);
    served
        .mds
        .on_session(ClientId(1), Instance(1), (false, 0), &[]);
    served.settle();
    served.mds.on_caught_up(ClientId(1));
    let FsAnswer::Node { node, .. } = served.ask(FsCall::Stat { ino: Ino::ROOT }) else {
        panic!("it is there")
    };
    assert_eq!(
        (node.inode.uid, node.inode.gid, node.inode.mode),
        (65_534, 7, 0o755)
    );
}

/// First objects get their files' places, once.
#[test]
fn first_objects_say_where_their_files_are() {
    let mut site = Site::new();
    let file = site.ino("/dir/sub/file");
    let report = check(&site.memory);
    assert_eq!(
        (report.counts.silent, report.counts.placed),
        (1, 0),
        "{:?}",
        report.counts
    );
    report
        .places()
        .iter()
        .for_each(|operation| drop(site.memory.perform(operation).expect("it is there")));
    let report = check(&site.memory);
    assert_eq!(
        (
            report.counts.silent,
            report.counts.placed,
            report.places().len()
        ),
        (0, 1, 0)
    );
    // It is moved.
    let sub = site.ino("/dir/sub");
    let value = site.unset(sub, "file");
    site.dir(sub).omap.insert(omap_key("moved"), value);
    let report = check(&site.memory);
    assert_eq!(
        (shown(&report).len(), report.counts.misplaced),
        (0, 1),
        "{:?}",
        shown(&report)
    );
    report
        .places()
        .iter()
        .for_each(|operation| drop(site.memory.perform(operation).expect("it is there")));
    let said = &site.memory.all[&data_key(file, 0)].attrs[&b"parent"[..]];
    assert_eq!(
        Backpointer::from_bytes(said),
        Ok(Backpointer {
            dir: sub,
            name: Name::from("moved")
        })
    );
}
