//! The initial directories of file systems with several ranks: one per rank, named in the first
//! rank's root.

use super::world::METADATA;
use nacre_client::Operation;
use nacre_conformance::memory::Memory;
use nacre_mds::journal::{JournalHead, head_name};
use nacre_mds::mds::{HEAD_ATTR, PARENT_ATTR, fragment_name};
use nacre_types::{Frag, Ino, Name, ObjectId, Rank};
use nacre_wire::Wire as _;
use nacre_wire::fs::entry::entry_key;
use nacre_wire::fs::{Backpointer, Entry, FileKind, Head, Inode, Stamp};
use nacre_wire::msg::client::SubOp;
use std::sync::Arc;

/// A directory that exists from beginning to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Top {
    pub ino: Ino,
    /// Its name in the root; empty for the root itself.
    pub name: String,
}

impl Top {
    /// The path of a name in it.
    pub fn path(&self, name: &Name) -> String {
        if self.name.is_empty() {
            format!("/{name}")
        } else {
            format!("/{}/{name}", self.name)
        }
    }
}

/// Creates them like their servers would; the root is the first.
pub fn make(memory: &mut Memory, namespace: &Name, ranks: u16) -> Arc<[Top]> {
    let mut tops = vec![Top {
        ino: Ino::ROOT,
        name: String::new(),
    }];
    let mut run = |name: &str, ops: Vec<SubOp>, payload: Vec<bytes::Bytes>| {
        let object = ObjectId {
            name: Name::from(name),
            namespace: namespace.clone(),
            ..ObjectId::default()
        };
        let operation = Operation {
            pool: METADATA,
            object,
            ops,
            payload,
            ..Operation::default()
        };
        memory.perform(&operation).expect("it is new");
    };
    let head = |head: Head| SubOp::SetAttr {
        name: HEAD_ATTR.into(),
        value: head.to_bytes().into(),
    };
    let set = |name: &Name, entry: &Entry| {
        let key = bytes::Bytes::copy_from_slice(entry_key(name).as_bytes());
        SubOp::OmapSet {
            entries: vec![(key, entry.to_bytes().into())],
        }
    };
    let empty = Head {
        mtime: Stamp(1),
        ..Head::default()
    };
    let one = Head {
        entries: 1,
        directories: 1,
        directories_below: 1,
        ..empty
    };
    for rank in (1..ranks).map(Rank) {
        let (ino, name) = (Ino::given(rank, Ino::SERIAL_MIN), format!("top.{}", rank.0));
        let (links, key) = (Ino::links(rank), Name::from(&*ino.to_string()));
        let kind = FileKind::Directory {};
        let entry = Entry::Inode {
            inode: Inode::new(ino, kind, 0o755, (1, 1), Stamp(1)),
            head: Some(Box::new(empty)),
        };
        run(
            &fragment_name(links, Frag::WHOLE),
            vec![set(&key, &entry), head(one)],
            Vec::new(),
        );
        let parent = Backpointer {
            dir: links,
            name: key,
        };
        let parent = SubOp::SetAttr {
            name: PARENT_ATTR.into(),
            value: parent.to_bytes().into(),
        };
        run(
            &fragment_name(ino, Frag::WHOLE),
            vec![SubOp::Create { exclusive: true }, head(empty), parent],
            Vec::new(),
        );
        let journal = JournalHead {
            serial: Ino::SERIAL_MIN + 1,
            ..JournalHead::default()
        }
        .to_bytes();
        let write = SubOp::WriteFull {
            length: journal.len() as u64,
        };
        run(&head_name(rank), vec![write], vec![journal.into()]);
        let reference = Entry::Reference {
            ino,
            kind,
            home: rank.0,
        };
        let root = set(&Name::from(&*name), &reference);
        run(
            &fragment_name(Ino::ROOT, Frag::WHOLE),
            vec![root],
            Vec::new(),
        );
        tops.push(Top { ino, name });
    }
    let others = u64::from(ranks - 1);
    let root = Head {
        entries: others,
        directories: others,
        directories_below: others,
        ..empty
    };
    run(
        &fragment_name(Ino::ROOT, Frag::WHOLE),
        vec![head(root)],
        Vec::new(),
    );
    let entry = Entry::Inode {
        inode: Inode::root(Stamp(1)),
        head: Some(Box::new(root)),
    };
    let top = Head {
        entries: 1,
        directories: 1,
        directories_below: 1 + others,
        ..empty
    };
    run(
        &fragment_name(Ino::TOP, Frag::WHOLE),
        vec![set(&Name::from("root"), &entry), head(top)],
        Vec::new(),
    );
    tops.into()
}
