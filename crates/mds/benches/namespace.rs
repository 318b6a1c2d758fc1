//! A server's memory and processor use per file (CEPH-20; ADR 0006), as one JSON line. Goals: 400 B
//! of memory per entry with its inode, and for the namespace a tenth of a create's 50 µs.
#![allow(clippy::disallowed_methods)] // measuring needs a clock; nothing here decides anything

use nacre_mds::evaluate::{Setting, Verdict, evaluate};
use nacre_mds::journal::{Answered, Journal, OBJECT_BYTES};
use nacre_mds::tree::Tree;
use nacre_types::{ClientId, Frag, Ino, Instance, Name, PoolId, Rank};
use nacre_wire::fs::{Entry, FileKind, Head, Inode, Layout, Stamp};
use nacre_wire::msg::fs::{FsAnswer, FsCall, FsReply};
use std::time::Instant;

const DIRECTORIES: u64 = 1_000;
const FILES: u64 = 1_000_000;

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("Linux says it");
    let pages: u64 = status
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .expect("a number");
    pages * 4096
}

fn main() {
    let layout = Layout {
        pool: PoolId(2),
        unit: 4 << 20,
        count: 1,
        object: 4 << 20,
    };
    let mut tree = Tree::default();
    let top = Head {
        entries: 1,
        directories: 1,
        directories_below: 1,
        ..Head::default()
    };
    let entry = Entry::Inode {
        inode: Inode::root(Stamp(1)),
        head: Some(Box::default()),
    };
    tree.load(
        Ino::TOP,
        Frag::WHOLE,
        top,
        vec![(Name::from("root"), entry)],
    );
    tree.load(Ino::ROOT, Frag::WHOLE, Head::default(), Vec::new());

    let mut journal = Journal::behind(0, 0, Ino::SERIAL_MIN, OBJECT_BYTES);
    let (mut journal_bytes, mut number) = (0, 0);
    let mut ask = |tree: &mut Tree, call: &FsCall| {
        let ino = Ino::given(Rank(0), journal.serial());
        let setting = Setting {
            rank: Rank(0),
            now: Stamp(2),
            ino,
            layout,
            is_open: &|_| false,
            again: false,
            is_settling: &|_| false,
            facts: &[],
            rooms: &nacre_mds::rooms::Rooms::default(),
            room: (0, 0),
        };
        let Verdict::Done(outcome) = evaluate(tree, call, &setting) else {
            panic!("all is in memory")
        };
        if outcome.took_ino {
            journal.take_serial();
        }
        number += 1;
        if !outcome.changes.is_empty() {
            let reply = FsReply {
                number,
                safe: true,
                stamp: Stamp(2),
                place: None,
                keep: false,
                shares: Vec::new(),
                delegated: Vec::new(),
                changed: Vec::new(),
                caps: Vec::new(),
                answer: outcome.answer.clone(),
            };
            let answered = Answered {
                client: ClientId(1),
                instance: Instance(1),
                safe_below: number,
                reply,
            };
            journal.push(&outcome.changes, Some(answered));
            outcome
                .changes
                .into_iter()
                .for_each(|change| tree.apply(change));
        }
        // As with many clients: a few hundred requests share an append.
        if number % 100 == 0
            && let Some((_, bytes)) = journal.next_append()
        {
            journal_bytes += bytes.len();
            journal.on_appended();
        }
        outcome.answer
    };
    let make = |dir: Ino, name: String, kind: FileKind| FsCall::Make {
        dir,
        name: Name::from(&*name),
        kind,
        mode: 0o644,
        umask: 0,
        uid: 1,
        gid: 1,
        target: bytes::Bytes::new(),
        device: 0,
        exclusive: true,
        open: false,
        write: false,
    };
    let dirs: Vec<Ino> = (0..DIRECTORIES)
        .map(|n| {
            match ask(
                &mut tree,
                &make(
                    Ino::ROOT,
                    format!("directory-{n:04}"),
                    FileKind::Directory {},
                ),
            ) {
                FsAnswer::Node { node, .. } => node.inode.ino,
                other => panic!("{other:?}"),
            }
        })
        .collect();
    let before = resident();
    let begun = Instant::now();
    for n in 0..FILES {
        let dir = dirs[(n % DIRECTORIES) as usize];
        ask(
            &mut tree,
            &make(dir, format!("file-{n:012}.dat"), FileKind::File {}),
        );
    }
    let create_ns = begun.elapsed().as_nanos() / u128::from(FILES);
    let bytes_per_entry = (resident() - before) / FILES;
    let begun = Instant::now();
    for n in 0..FILES {
        let n = n * 7_919 % FILES;
        let dir = dirs[(n % DIRECTORIES) as usize];
        let answer = ask(
            &mut tree,
            &FsCall::Lookup {
                dir,
                name: Name::from(&*format!("file-{n:012}.dat")),
            },
        );
        assert!(matches!(answer, FsAnswer::Node { .. }));
    }
    let lookup_ns = begun.elapsed().as_nanos() / u128::from(FILES);
    let begun = Instant::now();
    let mut listed = 0;
    for dir in dirs {
        let FsAnswer::Listed { entries, end: true } = ask(
            &mut tree,
            &FsCall::List {
                dir,
                after: 0,
                bytes_max: 1 << 20,
            },
        ) else {
            panic!("a page has it all")
        };
        listed += entries.len() as u64;
    }
    assert_eq!(listed, FILES);
    let list_ns = begun.elapsed().as_nanos() / u128::from(FILES);
    println!(
        "{{\"bench\":\"namespace\",\"files\":{FILES},\"bytes_per_entry\":{bytes_per_entry},\"create_ns\":{create_ns},\
         \"lookup_ns\":{lookup_ns},\"list_ns\":{list_ns},\"journal_bytes_per_create\":{}}}",
        journal_bytes as u64 / FILES
    );
}
