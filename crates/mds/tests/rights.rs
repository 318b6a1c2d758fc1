//! Access control lists: what new inodes inherit from their directory, and the relation to modes.

use crate::rig::{Rig, and_open, done, ino, make_call};
use bytes::Bytes;
use nacre_mds::acl::{ACCESS, BYTES_MAX, DEFAULT};
use nacre_types::{Ino, Name};
use nacre_wire::fs::{FileKind, Inode};
use nacre_wire::msg::fs::{FsCall, FsChanges};

const NO: u32 = u32::MAX;

/// In Linux' format: tag, permissions, id.
fn list(entries: &[(u16, u16, u32)]) -> Bytes {
    let entries = entries.iter().flat_map(|(tag, rights, id)| {
        let (tag, rights) = (tag.to_le_bytes(), rights.to_le_bytes());
        [&tag[..], &rights, &id.to_le_bytes()].concat()
    });
    2_u32.to_le_bytes().into_iter().chain(entries).collect()
}
/// With one additional named user.
fn with_user(owner: u16, user: u16, group: u16, mask: u16, others: u16) -> Bytes {
    list(&[
        (1, owner, NO),
        (2, user, 1000),
        (4, group, NO),
        (16, mask, NO),
        (32, others, NO),
    ])
}
fn set(rig: &mut Rig, ino: Ino, name: &[u8], value: Bytes) -> Result<(), u16> {
    let name = Name::copy(name);
    done(rig.ask(&FsCall::SetXattr {
        ino,
        name,
        value,
        fresh: None,
        drop_sgid: false,
    }))
}
fn inode(rig: &mut Rig, ino: Ino) -> Inode {
    rig.stat(ino).expect("there").inode
}
fn get(rig: &mut Rig, ino: Ino, name: &[u8]) -> Option<Bytes> {
    inode(rig, ino)
        .rare
        .and_then(|rare| rare.xattrs.get(&Name::copy(name)).cloned())
}
/// Created with a umask of 027.
fn make(rig: &mut Rig, dir: Ino, name: &str, kind: FileKind, mode: u16) -> Ino {
    let mut call = make_call(dir, name, kind, mode);
    if let FsCall::Make { umask, .. } = &mut call {
        *umask = 0o27;
    }
    ino(rig.ask(&if name.is_empty() {
        and_open(call)
    } else {
        call
    }))
    .expect("made")
}

#[test]
fn a_mask_counts_where_the_directory_gives_no_rights() {
    let mut rig = Rig::new();
    let dir = make(&mut rig, Ino::ROOT, "d", FileKind::Directory {}, 0o777);
    assert_eq!(inode(&mut rig, dir).mode, 0o750);
    for name in ["f", ""] {
        let file = make(&mut rig, dir, name, FileKind::File {}, 0o4666);
        assert_eq!(
            (inode(&mut rig, file).mode, inode(&mut rig, file).rare),
            (0o4640, None),
            "{name}"
        );
    }
    let link = make(&mut rig, dir, "l", FileKind::Symlink {}, 0o777);
    assert_eq!(inode(&mut rig, link).mode, 0o777, "a link has all rights");
}

#[test]
fn what_is_made_gets_the_rights_that_the_directory_gives() {
    let mut rig = Rig::new();
    let dir = make(&mut rig, Ino::ROOT, "d", FileKind::Directory {}, 0o755);
    let given = with_user(7, 6, 5, 7, 1);
    set(&mut rig, dir, DEFAULT, given.clone()).expect("a directory");
    assert_eq!(
        (inode(&mut rig, dir).mode, get(&mut rig, dir, ACCESS)),
        (0o750, None),
        "it is for others"
    );
    for name in ["f", ""] {
        let file = make(&mut rig, dir, name, FileKind::File {}, 0o666);
        assert_eq!(
            inode(&mut rig, file).mode,
            0o660,
            "{name}: no mask is taken off"
        );
        assert_eq!(
            get(&mut rig, file, ACCESS),
            Some(with_user(6, 6, 5, 6, 0)),
            "{name}"
        );
        assert_eq!(get(&mut rig, file, DEFAULT), None);
    }
    let below = make(&mut rig, dir, "below", FileKind::Directory {}, 0o777);
    assert_eq!(
        (inode(&mut rig, below).mode, get(&mut rig, below, DEFAULT)),
        (0o771, Some(given))
    );
    let fifo = make(&mut rig, below, "fifo", FileKind::Fifo {}, 0o600);
    assert_eq!(
        get(&mut rig, fifo, ACCESS),
        Some(with_user(6, 6, 5, 0, 0)),
        "handed on and on"
    );
    let link = make(&mut rig, below, "l", FileKind::Symlink {}, 0o777);
    assert_eq!(
        (inode(&mut rig, link).mode, get(&mut rig, link, ACCESS)),
        (0o777, None)
    );
    // A list that a mode can represent is not stored as a list.
    set(
        &mut rig,
        dir,
        DEFAULT,
        list(&[(1, 6, NO), (4, 4, NO), (32, 4, NO)]),
    )
    .expect("a directory");
    let file = make(&mut rig, dir, "plain", FileKind::File {}, 0o666);
    assert_eq!(
        (inode(&mut rig, file).mode, get(&mut rig, file, ACCESS)),
        (0o644, None)
    );
    rig.check();
}

#[test]
fn a_list_and_a_mode_follow_each_other() {
    let mut rig = Rig::new();
    let file = make(&mut rig, Ino::ROOT, "f", FileKind::File {}, 0o2644);
    set(&mut rig, file, ACCESS, with_user(6, 7, 4, 5, 0)).expect("a file");
    assert_eq!(
        inode(&mut rig, file).mode,
        0o2650,
        "the group's bits are the mask"
    );
    let chmod = |mode| FsCall::Set {
        ino: file,
        changes: FsChanges {
            mode: Some(mode),
            ..FsChanges::default()
        },
    };
    done(rig.ask(&chmod(0o2604))).expect("set");
    assert_eq!(
        get(&mut rig, file, ACCESS),
        Some(with_user(6, 7, 4, 0, 4)),
        "users' and groups' own rights stay"
    );
    let name = Name::copy(ACCESS);
    let value = with_user(6, 7, 4, 7, 4);
    let call = FsCall::SetXattr {
        ino: file,
        name: name.clone(),
        value,
        fresh: None,
        drop_sgid: true,
    };
    done(rig.ask(&call)).expect("set");
    assert_eq!(
        inode(&mut rig, file).mode,
        0o674,
        "its caller is not of the group"
    );
    // After its removal the mode stays; removing it again has no effect.
    let remove = FsCall::RemoveXattr { ino: file, name };
    assert_eq!(
        (done(rig.ask(&remove)), get(&mut rig, file, ACCESS)),
        (Ok(()), None)
    );
    let before = inode(&mut rig, file);
    assert_eq!((before.mode, done(rig.ask(&remove))), (0o674, Ok(())));
    assert_eq!(inode(&mut rig, file), before);
    // A list that a mode can represent is only the mode; so is an empty list.
    set(&mut rig, file, ACCESS, with_user(7, 7, 7, 7, 7)).expect("a file");
    set(
        &mut rig,
        file,
        ACCESS,
        list(&[(1, 6, NO), (4, 0, NO), (32, 1, NO)]),
    )
    .expect("a file");
    assert_eq!(
        (inode(&mut rig, file).mode, get(&mut rig, file, ACCESS)),
        (0o601, None)
    );
    set(&mut rig, file, ACCESS, with_user(7, 7, 7, 7, 7)).expect("a file");
    set(&mut rig, file, ACCESS, list(&[])).expect("a file");
    assert_eq!(
        (inode(&mut rig, file).mode, get(&mut rig, file, ACCESS)),
        (0o777, None)
    );
    done(rig.ask(&chmod(0o640))).expect("set");
    assert_eq!(
        (inode(&mut rig, file).mode, get(&mut rig, file, ACCESS)),
        (0o640, None)
    );
}

#[test]
fn what_is_no_list_or_not_for_this_is_refused() {
    let mut rig = Rig::new();
    let file = make(&mut rig, Ino::ROOT, "f", FileKind::File {}, 0o644);
    let link = make(&mut rig, Ino::ROOT, "l", FileKind::Symlink {}, 0o777);
    let good = with_user(6, 7, 4, 5, 0);
    let no_mask = list(&[(1, 6, NO), (2, 6, 1000), (4, 4, NO), (32, 4, NO)]);
    assert_eq!(set(&mut rig, file, ACCESS, no_mask), Err(22));
    assert_eq!(
        set(&mut rig, file, DEFAULT, good.clone()),
        Err(13),
        "only a directory gives rights"
    );
    assert_eq!(
        set(&mut rig, file, DEFAULT, Bytes::new()),
        Ok(()),
        "that there are none is so"
    );
    assert_eq!(set(&mut rig, link, ACCESS, good), Err(95));
    let users = |count: u32| {
        let named = (0..count).map(|user| (2, 6, user));
        let all: Vec<_> = [(1, 7, NO)].into_iter().chain(named).collect();
        list(&[&all[..], &[(4, 4, NO), (16, 7, NO), (32, 4, NO)]].concat())
    };
    let most = u32::try_from((BYTES_MAX - 4) / 8 - 4).expect("small");
    assert_eq!(set(&mut rig, file, ACCESS, users(most)), Ok(()));
    assert_eq!(set(&mut rig, file, ACCESS, users(most + 1)), Err(7));
}
