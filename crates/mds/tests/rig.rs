//! A tree with a root, and requests that are evaluated and applied at once.

use nacre_mds::change::Change;
use nacre_mds::evaluate::{Missing, Opened, Setting, Verdict, evaluate};
use nacre_mds::tree::{Found, Tree};
use nacre_types::{Frag, Ino, Name, PoolId, Rank};
use nacre_wire::fs::{Entry, FileKind, Head, Inode, Layout, Stamp};
use nacre_wire::msg::fs::{FsAnswer, FsCall, FsChanges, FsNode};
use std::collections::BTreeMap;

pub const RANK: Rank = Rank(0);
pub const LAYOUT: Layout = Layout {
    pool: PoolId(2),
    unit: 4 << 20,
    count: 1,
    object: 4 << 20,
};

/// Numbers that look random, the same each time.
pub struct Dice(pub u64);
impl Dice {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// A request to create something new.
pub fn make_call(dir: Ino, name: &str, kind: FileKind, mode: u16) -> FsCall {
    FsCall::Make {
        dir,
        name: Name::from(name),
        kind,
        mode,
        umask: 0,
        uid: 7,
        gid: 8,
        target: bytes::Bytes::new(),
        device: 0,
        exclusive: true,
        open: false,
        write: false,
    }
}

/// The same; the file is also opened for writing.
pub fn and_open(mut call: FsCall) -> FsCall {
    if let FsCall::Make { open, write, .. } = &mut call {
        (*open, *write) = (true, true);
    }
    call
}

pub struct Rig {
    pub tree: Tree,
    pub opens: BTreeMap<Ino, u32>,
    pub serial: u64,
    pub now: i64,
    /// All changes, in order.
    pub journal: Vec<Change>,
}

impl Rig {
    pub fn new() -> Self {
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
        for dir in [Ino::ROOT, Ino::links(RANK), Ino::strays(RANK)] {
            tree.load(dir, Frag::WHOLE, Head::default(), Vec::new());
        }
        Self {
            tree,
            opens: BTreeMap::new(),
            serial: Ino::SERIAL_MIN,
            now: 100,
            journal: Vec::new(),
        }
    }

    pub fn ask(&mut self, call: &FsCall) -> FsAnswer {
        self.now += 1;
        let is_open = |ino| self.opens.contains_key(&ino);
        let setting = Setting {
            rank: RANK,
            now: Stamp(self.now),
            ino: Ino::given(RANK, self.serial),
            layout: LAYOUT,
            is_open: &is_open,
            again: false,
            is_settling: &|_| false,
            facts: &[],
            rooms: &nacre_mds::rooms::Rooms::default(),
            room: (0, 0),
        };
        let outcome = match evaluate(&self.tree, call, &setting) {
            Verdict::Done(outcome) => outcome,
            // Everything is in memory here: an unknown number does not exist any more.
            Verdict::Wants(Missing::Inode(_)) => return FsAnswer::Failed { errno: 2 },
            Verdict::Wants(Missing::Slice(dir, ..) | Missing::Page(dir, ..))
                if self.tree.inode(dir).is_none() =>
            {
                return FsAnswer::Failed { errno: 2 };
            }
            other => panic!("{call:?}: {other:?}"),
        };
        let failed = matches!(outcome.answer, FsAnswer::Failed { .. });
        assert!(
            !failed || (outcome.changes.is_empty() && outcome.opened.is_none()),
            "{call:?}: it failed and changed"
        );
        assert!(
            call.is_change() || outcome.changes.is_empty(),
            "{call:?} changed something"
        );
        self.serial += u64::from(outcome.took_ino);
        for change in outcome.changes {
            self.journal.push(change.clone());
            self.tree.apply(change);
        }
        // The same for an inode whose data is still to be removed.
        if outcome.answer == (FsAnswer::Failed { errno: 116 }) {
            return FsAnswer::Failed { errno: 2 };
        }
        match outcome.opened {
            Some(Opened {
                ino, closed: false, ..
            }) => *self.opens.entry(ino).or_default() += 1,
            Some(Opened { ino, .. }) => {
                let left = self.opens.get_mut(&ino).map_or(0, |opens| {
                    *opens -= 1;
                    *opens
                });
                if left == 0 {
                    self.opens.remove(&ino);
                }
            }
            None => {}
        }
        outcome.answer
    }

    // ── requests in short ───────────────────────────────────────────────────────────────

    pub fn make(&mut self, dir: Ino, name: &str, kind: FileKind) -> Result<Ino, u16> {
        self.make_with(dir, name, kind, 0o644)
    }
    pub fn make_with(
        &mut self,
        dir: Ino,
        name: &str,
        kind: FileKind,
        mode: u16,
    ) -> Result<Ino, u16> {
        ino(self.ask(&make_call(dir, name, kind, mode)))
    }
    /// An open file without a name.
    pub fn unnamed(&mut self, dir: Ino) -> Result<Ino, u16> {
        ino(self.ask(&and_open(make_call(dir, "", FileKind::File {}, 0o644))))
    }
    pub fn file(&mut self, dir: Ino, name: &str) -> Ino {
        self.make(dir, name, FileKind::File {})
            .expect("a file is made")
    }
    pub fn directory(&mut self, dir: Ino, name: &str) -> Ino {
        self.make(dir, name, FileKind::Directory {})
            .expect("a directory is made")
    }
    pub fn link(&mut self, ino: Ino, dir: Ino, name: &str) -> Result<(), u16> {
        done(self.ask(&FsCall::Link {
            ino,
            dir,
            name: Name::from(name),
        }))
    }
    pub fn unlink(&mut self, dir: Ino, name: &str) -> Result<(), u16> {
        done(self.ask(&FsCall::Unlink {
            dir,
            name: Name::from(name),
            directory: false,
        }))
    }
    pub fn rmdir(&mut self, dir: Ino, name: &str) -> Result<(), u16> {
        done(self.ask(&FsCall::Unlink {
            dir,
            name: Name::from(name),
            directory: true,
        }))
    }
    pub fn rename(&mut self, from: (Ino, &str), to: (Ino, &str), flags: u8) -> Result<(), u16> {
        let (name, to_name) = (Name::from(from.1), Name::from(to.1));
        done(self.ask(&FsCall::Rename {
            dir: from.0,
            name,
            to_dir: to.0,
            to_name,
            flags,
        }))
    }
    pub fn resize(&mut self, ino: Ino, size: u64) -> Result<(), u16> {
        done(self.ask(&FsCall::Set {
            ino,
            changes: FsChanges {
                size: Some(size),
                ..FsChanges::default()
            },
        }))
    }
    /// Sets a quota.
    pub fn bound(&mut self, ino: Ino, kind: &str, value: &str) -> Result<(), u16> {
        let (name, value) = (
            Name::from(&*format!("nacre.quota.{kind}")),
            value.to_owned().into(),
        );
        done(self.ask(&FsCall::SetXattr {
            ino,
            name,
            value,
            fresh: None,
            drop_sgid: false,
        }))
    }
    /// Writes data up to there.
    pub fn write_to(&mut self, ino: Ino, size: u64) -> Result<(), u16> {
        done(self.ask(&FsCall::Wrote {
            ino,
            size,
            mtime: Stamp(1),
        }))
    }
    pub fn open(&mut self, ino: Ino) -> Result<(), u16> {
        done(self.ask(&FsCall::Open { ino, write: true }))
    }
    pub fn close(&mut self, ino: Ino) -> Result<(), u16> {
        done(self.ask(&FsCall::Close {
            ino,
            write: true,
            size: 0,
            mtime: Stamp::default(),
        }))
    }
    pub fn lookup(&mut self, dir: Ino, name: &str) -> Result<FsNode, u16> {
        node(self.ask(&FsCall::Lookup {
            dir,
            name: Name::from(name),
        }))
    }
    pub fn stat(&mut self, ino: Ino) -> Result<FsNode, u16> {
        node(self.ask(&FsCall::Stat { ino }))
    }
    /// All entries, in pages of that many bytes.
    pub fn list(&mut self, dir: Ino, bytes_max: u32) -> Vec<(String, FsNode)> {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let FsAnswer::Listed { entries, end } = self.ask(&FsCall::List {
                dir,
                after,
                bytes_max,
            }) else {
                panic!("{dir} is a directory")
            };
            assert!(end || !entries.is_empty(), "a page without an entry");
            all.extend(entries.into_iter().map(|listed| {
                after = after.max(nacre_wire::fs::name_hash(&listed.name));
                (listed.name.to_string(), listed.node)
            }));
            if end {
                return all;
            }
        }
    }

    /// Asserts the tree's invariants, and that each head's sums match what is below it.
    pub fn check(&mut self) {
        self.tree.check();
        for dir in [Ino::TOP, Ino::links(RANK), Ino::strays(RANK)] {
            self.sums(dir);
        }
    }
    fn sums(&self, dir: Ino) -> (u64, u64, u64) {
        let mut sum = (0, 0, 0);
        for (_, name, entry) in self.tree.list(dir, Frag::WHOLE, 0).expect("it is here").0 {
            let (bytes, files, directories) = match entry {
                Entry::Inode { inode, .. } if inode.is_directory() => {
                    let (bytes, files, directories) = self.sums(inode.ino);
                    (bytes, files, directories + 1)
                }
                Entry::Inode { inode, .. } => (inode.size, 1, 0),
                Entry::Reference { .. } => (0, 1, 0),
            };
            assert!(matches!(self.tree.find(dir, name), Found::Entry(_)));
            sum = (sum.0 + bytes, sum.1 + files, sum.2 + directories);
        }
        let head = self.tree.head(dir, Frag::WHOLE).expect("it is here");
        assert_eq!(
            (head.bytes_below, head.files_below, head.directories_below),
            sum,
            "below {dir}"
        );
        sum
    }
}

pub fn node(answer: FsAnswer) -> Result<FsNode, u16> {
    match answer {
        FsAnswer::Node { node, .. } => Ok(node),
        FsAnswer::Failed { errno } => Err(errno),
        other => panic!("{other:?}"),
    }
}
pub fn ino(answer: FsAnswer) -> Result<Ino, u16> {
    node(answer).map(|node| node.inode.ino)
}
pub fn done(answer: FsAnswer) -> Result<(), u16> {
    match answer {
        FsAnswer::Done {} | FsAnswer::Node { .. } => Ok(()),
        FsAnswer::Failed { errno } => Err(errno),
        other => panic!("{other:?}"),
    }
}
