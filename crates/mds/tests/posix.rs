//! Histories of random requests, and regressions.

use crate::rig::{Dice, Rig};
use nacre_history::posix::{Kind, Model};
use nacre_types::{Ino, Name};
use nacre_wire::fs::{Entry, FileKind, Stamp};
use nacre_wire::msg::fs::{FsAnswer, FsCall, FsChanges, rename_flag};

/// Compares a history with the model: every answer, and occasionally the whole state.
fn history(seed: u64, steps: usize) {
    let (mut rig, mut model, mut dice) = (Rig::new(), Model::new(), Dice(seed));
    let mut inos = vec![Ino::ROOT];
    let names = ["a", "b", "c", "d", "e", "f"];
    for step in 0..steps {
        // Usually existing nodes: removed ones are seldom requested.
        let pick = |model: &Model, dice: &mut Dice| loop {
            let id = dice.below(model.nodes.len());
            if !model.nodes[id].gone || dice.below(20) == 0 {
                return id;
            }
        };
        let pick_dir = |model: &Model, dice: &mut Dice| loop {
            let id = pick(model, dice);
            if model.nodes[id].kind == Kind::Directory || dice.below(20) == 0 {
                return id;
            }
        };
        let (one, other) = (pick_dir(&model, &mut dice), pick_dir(&model, &mut dice));
        let any = dice.below(model.nodes.len());
        let (name, to) = (names[dice.below(6)], names[dice.below(6)]);
        let what = dice.below(100);
        let at = format!("seed {seed}, step {step}, {what}: {one} {name}, {other} {to}, {any}");
        match what {
            0..30 => {
                let (kind, theirs) = [
                    (FileKind::File {}, Kind::File),
                    (FileKind::Directory {}, Kind::Directory),
                    (FileKind::Directory {}, Kind::Directory),
                    (FileKind::Symlink {}, Kind::Symlink),
                ][dice.below(4)];
                let made = rig.make(inos[one], name, kind);
                let expected = model.make(one, name, theirs);
                assert_eq!(made.map(|_| ()), expected.map(|_| ()), "{at}");
                inos.extend(made.ok());
            }
            30..42 => assert_eq!(
                rig.link(inos[any], inos[other], to),
                model.link(any, other, to),
                "{at}"
            ),
            42..55 => assert_eq!(rig.unlink(inos[one], name), model.unlink(one, name), "{at}"),
            55..65 => assert_eq!(rig.rmdir(inos[one], name), model.rmdir(one, name), "{at}"),
            65..86 => {
                let flags =
                    [0, 0, 0, rename_flag::NO_REPLACE, rename_flag::EXCHANGE][dice.below(5)];
                let found = rig.rename((inos[one], name), (inos[other], to), flags);
                let (no_replace, exchange) = (
                    flags == rename_flag::NO_REPLACE,
                    flags == rename_flag::EXCHANGE,
                );
                assert_eq!(
                    found,
                    model.rename((one, name), (other, to), no_replace, exchange),
                    "{at}"
                );
            }
            86..88 => {
                let made = rig.unnamed(inos[one]);
                assert_eq!(
                    made.map(|_| ()),
                    model.make_unnamed(one).map(|_| ()),
                    "{at}"
                );
                inos.extend(made.ok());
            }
            88..92 => assert_eq!(rig.open(inos[any]), model.open(any), "{at}"),
            92..95 => {
                if model.nodes[any].opens > 0 {
                    let node = &mut model.nodes[any];
                    node.opens -= 1;
                    node.gone = node.names == 0 && node.opens == 0;
                    assert_eq!(rig.close(inos[any]), Ok(()), "{at}");
                }
            }
            _ => {
                // Growing after shrinking waits for the removal of data, which does not happen
                // here.
                let size = model.nodes[any].size + dice.below(10_000) as u64;
                assert_eq!(rig.resize(inos[any], size), model.resize(any, size), "{at}");
            }
        }
        if step % 50 == 0 || step + 1 == steps {
            rig.check();
            compare(&mut rig, &model, &inos, &at);
        }
    }
}

fn compare(rig: &mut Rig, model: &Model, inos: &[Ino], at: &str) {
    for (id, node) in model.nodes.iter().enumerate() {
        if node.gone {
            continue;
        }
        let shown = rig.stat(inos[id]);
        let shown =
            shown.unwrap_or_else(|errno| panic!("{at}: {id} ({}) is not there: {errno}", inos[id]));
        if node.kind != Kind::Directory {
            assert_eq!(
                (shown.inode.links, shown.inode.size),
                (node.names, node.size),
                "{at}: {id}"
            );
            continue;
        }
        let head = shown.head.expect("a directory has one");
        let directories = node
            .entries
            .values()
            .filter(|id| model.nodes[**id].kind == Kind::Directory)
            .count();
        assert_eq!(
            (head.entries, head.directories),
            (node.entries.len() as u64, directories as u64),
            "{at}: {id}"
        );
        for bytes_max in [1, 400, 1 << 20] {
            let mut listed: Vec<_> = rig
                .list(inos[id], bytes_max)
                .into_iter()
                .map(|(name, node)| (name, node.inode.ino))
                .collect();
            listed.sort();
            let expected: Vec<_> = node
                .entries
                .iter()
                .map(|(name, id)| (name.clone(), inos[*id]))
                .collect();
            assert_eq!(listed, expected, "{at}: {id}");
        }
    }
}

#[test]
fn histories_are_what_posix_says() {
    for seed in 0..60 {
        history(seed, 1_500);
    }
}

/// Replaying the journal gives the original state, and replaying it twice gives it again.
#[test]
fn the_journal_gives_the_tree_back() {
    let mut rig = Rig::new();
    let mut again = Rig::new();
    let mut dice = Dice(11);
    let mut dirs = vec![Ino::ROOT];
    for n in 0..2_000 {
        let dir = dirs[dice.below(dirs.len())];
        let (name, to) = (
            format!("n{}", dice.below(30)),
            format!("n{}", dice.below(30)),
        );
        let other = dirs[dice.below(dirs.len())];
        match dice.below(6) {
            0 => dirs.extend(
                rig.make(dir, &name, FileKind::Directory {})
                    .ok()
                    .filter(|_| n < 300),
            ),
            1 | 2 => drop(rig.make(dir, &name, FileKind::File {})),
            3 => drop(rig.unlink(dir, &name)),
            4 => drop(rig.rename((dir, &name), (other, &to), 0)),
            _ => {
                if let Ok(node) = rig.lookup(dir, &name) {
                    let _ = rig.link(node.inode.ino, other, &to);
                }
            }
        }
    }
    rig.check();
    for round in 0..2 {
        for change in rig.journal.clone() {
            again.tree.apply(change);
        }
        if round == 0 {
            again.check();
        }
        assert_eq!(again.tree.len(), rig.tree.len(), "round {round}");
    }
    for dir in dirs {
        let here = rig.stat(dir).is_ok();
        assert_eq!(again.stat(dir).is_ok(), here);
        if here {
            assert_eq!(again.list(dir, 1 << 20), rig.list(dir, 1 << 20));
        }
    }
}

/// A file with two names is one file, whichever name is removed first; adding or removing a name
/// changes the time of that name's directory only.
#[test]
fn a_file_with_two_names_is_one_file() {
    let mut rig = Rig::new();
    let (one, other) = (
        rig.directory(Ino::ROOT, "one"),
        rig.directory(Ino::ROOT, "other"),
    );
    let file = rig.file(one, "f");
    rig.write_to(file, 100).expect("a file has a size");
    let before = rig
        .stat(one)
        .expect("there")
        .head
        .expect("a directory")
        .mtime;
    rig.link(file, other, "g").expect("a second name");
    assert_eq!(
        rig.stat(one)
            .expect("there")
            .head
            .expect("a directory")
            .mtime,
        before,
        "its entry stands for the same"
    );
    for (dir, name) in [(one, "f"), (other, "g")] {
        let node = rig.lookup(dir, name).expect("there");
        assert_eq!(
            (node.inode.ino, node.inode.links, node.inode.size),
            (file, 2, 100)
        );
    }
    rig.unlink(one, "f").expect("a name goes");
    let node = rig.lookup(other, "g").expect("there");
    assert_eq!((node.inode.ino, node.inode.links), (file, 1));
    rig.unlink(other, "g").expect("the last name goes");
    let key = Name::from(&*file.to_string());
    let stray = rig
        .tree
        .list(Ino::strays(crate::rig::RANK), nacre_types::Frag::WHOLE, 0)
        .expect("here")
        .0
        .next();
    assert!(
        matches!(stray, Some((_, name, Entry::Inode { .. })) if *name == key),
        "its data is to be removed"
    );
    rig.check();
}

/// A file that was created without a name is nowhere until it has one; then it is like any other.
#[test]
fn a_file_without_a_name_is_given_one_or_goes() {
    let mut rig = Rig::new();
    let strays = |rig: &Rig| rig.tree.sum(Ino::strays(crate::rig::RANK)).entries;
    let dir = rig
        .make_with(Ino::ROOT, "d", FileKind::Directory {}, 0o2775)
        .expect("made");
    let before = rig.stat(dir).expect("there").head;
    let file = rig.unnamed(dir).expect("made");
    assert_eq!(
        (rig.stat(dir).expect("there").head, strays(&rig)),
        (before, 1)
    );
    let inode = rig.stat(file).expect("it is open").inode;
    assert_eq!(
        (inode.links, inode.gid),
        (0, 8),
        "its group is that of the directory"
    );
    rig.write_to(file, 700).expect("larger");
    rig.link(file, dir, "f").expect("a name");
    let found = rig.lookup(dir, "f").expect("there").inode;
    assert_eq!(
        (found.ino, found.links, found.size, strays(&rig)),
        (file, 1, 700, 0)
    );
    rig.close(file).expect("open");
    assert_eq!(rig.stat(file).expect("it has a name").inode.size, 700);
    rig.check();
    // Closed before that, it is removed.
    let other = rig.unnamed(dir).expect("made");
    rig.close(other).expect("open");
    assert_eq!(
        (rig.stat(other).err(), rig.link(other, dir, "g").err()),
        (Some(2), Some(2))
    );
    // Only files, and only open ones.
    assert_eq!(rig.make(dir, "", FileKind::File {}), Err(22));
    assert_eq!(rig.make(dir, "", FileKind::Directory {}), Err(22));
    rig.check();
}

/// Truncated data must not come back when a file grows again.
#[test]
fn a_file_that_was_truncated_grows_when_its_data_is_gone() {
    use nacre_mds::evaluate::{Setting, Verdict, evaluate};
    use nacre_wire::msg::fs::{FsCall, FsChanges};
    let mut rig = Rig::new();
    let file = rig.file(Ino::ROOT, "f");
    rig.write_to(file, 10_000).expect("larger");
    rig.resize(file, 10).expect("smaller");
    let inode = rig.stat(file).expect("there").inode;
    assert_eq!((inode.size, inode.stale_to()), (10, 10_000));
    let call = FsCall::Set {
        ino: file,
        changes: FsChanges {
            size: Some(11),
            ..FsChanges::default()
        },
    };
    let setting = Setting {
        rank: crate::rig::RANK,
        now: nacre_wire::fs::Stamp(1),
        ino: Ino::given(crate::rig::RANK, rig.serial),
        layout: crate::rig::LAYOUT,
        is_open: &|_| true,
        again: false,
        is_settling: &|_| false,
        facts: &[],
        rooms: &nacre_mds::rooms::Rooms::default(),
        room: (0, 0),
    };
    assert_eq!(evaluate(&rig.tree, &call, &setting), Verdict::Busy(file));
    rig.resize(file, 5).expect("still smaller");
    assert_eq!(
        rig.stat(file).expect("there").inode.stale_to(),
        10_000,
        "the whole of it"
    );
}

/// A directory's limits cover everything below it, and moving into it counts as adding.
#[test]
fn a_directory_with_a_bound_takes_no_more() {
    let mut rig = Rig::new();
    let dir = rig.directory(Ino::ROOT, "bounded");
    let below = rig.directory(dir, "below");
    assert_eq!(
        (
            rig.bound(dir, "max_files", "3"),
            rig.bound(dir, "max_bytes", "1000")
        ),
        (Ok(()), Ok(()))
    );
    let file = rig.file(below, "1");
    rig.file(below, "2");
    assert_eq!(rig.make(below, "3", FileKind::File {}), Err(122));
    assert_eq!(
        rig.make(Ino::ROOT, "3", FileKind::File {}).map(|_| ()),
        Ok(())
    );
    assert_eq!(
        (rig.resize(file, 1_000), rig.resize(file, 1_001)),
        (Ok(()), Err(122))
    );
    assert_eq!(
        rig.rename((Ino::ROOT, "3"), (below, "3"), 0),
        Err(122),
        "moving in is adding"
    );
    rig.unlink(below, "2").expect("there");
    let unnamed = rig.unnamed(below).expect("it is nowhere yet");
    rig.write_to(unnamed, 1).expect("the same");
    assert_eq!(
        rig.link(unnamed, below, "2"),
        Err(122),
        "what it has counts with its name"
    );
    assert_eq!(rig.rename((Ino::ROOT, "3"), (below, "3"), 0), Ok(()));
    rig.check();
}

/// A quota is set as an attribute but is none: a program that copies attributes does not copy it.
#[test]
fn a_quota_is_a_number_of_a_directory() {
    let mut rig = Rig::new();
    let dir = rig.directory(Ino::ROOT, "d");
    let file = rig.file(dir, "f");
    let (bytes, files) = ("max_bytes", "max_files");
    for bad in ["", "-1", "1k", "99999999999999999999", "1 "] {
        assert_eq!(rig.bound(dir, bytes, bad), Err(22), "{bad:?}");
    }
    assert_eq!(
        (rig.bound(dir, "max", "1"), rig.bound(file, bytes, "1")),
        (Err(95), Err(20))
    );
    assert_eq!(rig.bound(dir, bytes, "0"), Ok(()), "none");
    assert_eq!(rig.stat(dir).expect("there").inode.rare, None);
    rig.resize(file, 70).expect("there is no bound");
    assert_eq!(
        (rig.bound(dir, bytes, "50"), rig.bound(dir, files, "1")),
        (Ok(()), Ok(())),
        "less than there is"
    );
    assert_eq!(
        (
            rig.resize(file, 71),
            rig.resize(file, 60),
            rig.resize(file, 61)
        ),
        (Err(122), Ok(()), Err(122))
    );
    let FsAnswer::Usage {
        bytes: used,
        quotas,
        ..
    } = rig.ask(&FsCall::Usage { ino: file })
    else {
        panic!("asked")
    };
    let shown: Vec<(Ino, u64, u64)> = quotas
        .iter()
        .map(|quota| (quota.dir, quota.max, quota.used))
        .collect();
    assert_eq!((used, shown), (0, vec![(dir, 50, 60), (dir, 1, 1)]));
    let remove = FsCall::RemoveXattr {
        ino: dir,
        name: "nacre.quota.max_bytes".into(),
    };
    assert!(matches!(rig.ask(&remove), FsAnswer::Node { .. }));
    assert_eq!(rig.ask(&remove), FsAnswer::Failed { errno: 61 });
    assert_eq!(rig.resize(file, 1 << 40), Ok(()));
    rig.check();
}

/// What is moved into a directory counts with everything below it, and what is removed frees room
/// at once.
#[test]
fn a_subtree_counts_where_it_moves_to() {
    let mut rig = Rig::new();
    let [small, from] = ["small", "from"].map(|name| rig.directory(Ino::ROOT, name));
    let moved = rig.directory(from, "moved");
    let file = rig.file(moved, "f");
    rig.resize(file, 100).expect("there is no bound");
    rig.bound(small, "max_bytes", "150")
        .expect("it is a directory");
    rig.rename((from, "moved"), (small, "a"), 0)
        .expect("there is room");
    let more = rig.file(from, "more");
    rig.resize(more, 60).expect("there is no bound");
    assert_eq!(rig.rename((from, "more"), (small, "more"), 0), Err(122));
    rig.rename((small, "a"), (small, "b"), 0)
        .expect("within the directory nothing is added");
    let less = rig.file(small, "less");
    rig.resize(less, 50).expect("there is room");
    assert_eq!(
        rig.rename((small, "less"), (from, "more"), 2),
        Err(122),
        "exchanged, ten too much"
    );
    rig.resize(more, 50).expect("it becomes smaller");
    rig.rename((small, "less"), (from, "more"), 2)
        .expect("exchanged for as much");
    rig.unlink(moved, "f").expect("there");
    rig.resize(less, 149).expect("nothing bounds it now");
    assert_eq!(rig.rename((from, "more"), (small, "again"), 0), Err(122));
    rig.resize(less, 100).expect("it becomes smaller");
    rig.rename((from, "more"), (small, "again"), 0)
        .expect("what went has made room");
    rig.check();
}

/// A directory passes on its group, and to subdirectories the bit that says so.
#[test]
fn a_directory_with_the_bit_gives_its_group() {
    let mut rig = Rig::new();
    let dir = rig
        .make_with(Ino::ROOT, "d", FileKind::Directory {}, 0o2775)
        .expect("made");
    assert_eq!(rig.stat(dir).expect("there").inode.gid, 8);
    let parent = nacre_wire::msg::fs::FsChanges {
        gid: Some(99),
        ..Default::default()
    };
    rig.ask(&nacre_wire::msg::fs::FsCall::Set {
        ino: dir,
        changes: parent,
    });
    let below = rig.directory(dir, "below");
    let file = rig.file(below, "f");
    let (below, file) = (
        rig.stat(below).expect("there").inode,
        rig.stat(file).expect("there").inode,
    );
    assert_eq!(
        (below.gid, below.mode & 0o2000, file.gid, file.mode),
        (99, 0o2000, 99, 0o644)
    );
}

/// A client that requests a page of 4 GiB gets one of a megabyte: an answer longer than a frame
/// would end its connection, and one of several megabytes would delay all others.
#[test]
fn a_page_of_a_listing_is_bounded_whatever_is_asked_for() {
    use nacre_wire::Wire as _;
    use nacre_wire::msg::fs::{FS_LIST_MAX, FsAnswer, FsCall};
    let mut rig = Rig::new();
    let dir = rig.directory(Ino::ROOT, "d");
    for n in 0..6_000 {
        rig.file(dir, &format!("{n:0>240}"));
    }
    let ask = FsCall::List {
        dir,
        after: 0,
        bytes_max: u32::MAX,
    };
    let answer = rig.ask(&ask);
    let bytes = answer.to_bytes().len();
    assert!(bytes < 2 * FS_LIST_MAX as usize, "{bytes}");
    let FsAnswer::Listed { entries, end } = answer else {
        panic!("{answer:?}")
    };
    assert!(!end && entries.len() > 1_000, "{} entries", entries.len());
    assert_eq!(rig.list(dir, u32::MAX).len(), 6_000);
}

/// A file was made very large without data, and truncated: it waited until a billion objects had
/// been looked for before it grew again. stress-ng's fsize stressor hung on a mount.
#[test]
fn where_nothing_was_written_nothing_is_removed() {
    let mut rig = Rig::new();
    let file = rig.file(Ino::ROOT, "f");
    let mut inode = |step: &dyn Fn(&mut Rig) -> Result<(), u16>| {
        step(&mut rig).expect("done");
        let inode = rig.stat(file).expect("there").inode;
        (inode.size, inode.data_to(), inode.stale_to())
    };
    let large = i64::MAX as u64;
    assert_eq!(inode(&|rig| rig.resize(file, large)), (large, 0, 0));
    assert_eq!(inode(&|rig| rig.resize(file, 9)), (9, 0, 0));
    assert_eq!(inode(&|rig| rig.resize(file, large)), (large, 0, 0));
    assert_eq!(
        inode(&|rig| rig.write_to(file, 5_000)),
        (large, 5_000, 0),
        "data in the midst"
    );
    assert_eq!(inode(&|rig| rig.write_to(file, 300)), (large, 5_000, 0));
    assert_eq!(inode(&|rig| rig.resize(file, 6_000)), (6_000, 5_000, 0));
    assert_eq!(inode(&|rig| rig.write_to(file, 6_001)), (6_001, 6_001, 0));
    assert_eq!(
        inode(&|rig| rig.resize(file, 100)),
        (100, 100, 6_001),
        "that is removed"
    );
    // Each object with data is looked for: their number is limited.
    let max = crate::rig::LAYOUT.data_max();
    let other = rig.file(Ino::ROOT, "g");
    assert_eq!(
        (rig.write_to(other, max), rig.write_to(other, max + 1)),
        (Ok(()), Err(27))
    );
}

/// `rsync -a` creates a directory, fills it and sets its time back: that time stays until an entry
/// is added or removed.
#[test]
fn a_directorys_time_is_what_was_set_until_its_entries_change() {
    let mut rig = Rig::new();
    let dir = rig.directory(Ino::ROOT, "dir");
    rig.file(dir, "one");
    let set = |rig: &mut Rig, changes| drop(rig.ask(&FsCall::Set { ino: dir, changes }));
    let time = |rig: &mut Rig| rig.stat(dir).expect("it is there").mtime();
    set(
        &mut rig,
        FsChanges {
            mtime: Some(Some(Stamp(7))),
            ..FsChanges::default()
        },
    );
    assert_eq!(time(&mut rig), Stamp(7));
    set(
        &mut rig,
        FsChanges {
            mode: Some(0o700),
            ..FsChanges::default()
        },
    );
    assert_eq!(time(&mut rig), Stamp(7));
    rig.file(dir, "two");
    assert_eq!(time(&mut rig), Stamp(rig.now - 1));
    // The same for a time in the future.
    set(
        &mut rig,
        FsChanges {
            mtime: Some(Some(Stamp(1 << 40))),
            ..FsChanges::default()
        },
    );
    assert_eq!(time(&mut rig), Stamp(1 << 40));
    rig.unlink(dir, "two").expect("it is there");
    assert_eq!(time(&mut rig), Stamp(rig.now - 1));
}
