//! Tests of [`super`]. Names with equal hashes cannot be found by trying: entries are built here
//! with given hashes, and groups consist of one name twice.

use super::*;
use nacre_types::Name;
use nacre_wire::fs::{FileKind, Inode, Stamp};
use nacre_wire::msg::fs::FsNode;

fn entry(name: &str, ino: u64) -> FsListed {
    let inode = Inode::new(Ino(ino), FileKind::File {}, 0o644, (0, 0), Stamp(1));
    FsListed {
        name: Name::from(name),
        node: FsNode {
            inode,
            head: None,
            home: None,
        },
    }
}

/// `count` names in order of their hashes.
fn names(count: u64) -> Vec<FsListed> {
    let mut all: Vec<FsListed> = (0..count)
        .map(|n| entry(&format!("name {n}"), 100 + n))
        .collect();
    all.sort_by_key(|entry| name_hash(&entry.name));
    all
}

/// A kernel that reads a directory through a buffer of this size from a server with pages of this
/// many entries: returns the numbers that it sees, in order.
fn read(entries: &[FsListed], form: Form, buffer: usize, page: usize) -> Vec<u64> {
    let (mut offset, mut seen) = (0, Vec::new());
    for _round in 0..10_000 {
        let Some(FsCall::List { after, .. }) = call(Ino(9), offset, 1) else {
            panic!("there is a question")
        };
        let left: Vec<FsListed> = entries
            .iter()
            .filter(|entry| name_hash(&entry.name) > after)
            .cloned()
            .collect();
        let mut ends = page.min(left.len());
        while ends > 0 && ends < left.len() && left[ends].name == left[ends - 1].name {
            ends += 1;
        }
        let (mut used, before) = (0, seen.len());
        fill(
            Ino(9),
            offset,
            (&left[..ends], ends == left.len()),
            form,
            |line| {
                if used + form.bytes(line.name) > buffer {
                    return true;
                }
                used += form.bytes(line.name);
                seen.push(line.attr.ino.0);
                offset = line.offset;
                false
            },
        );
        if seen.len() == before {
            return seen;
        }
    }
    panic!("a listing that does not end");
}

fn numbers(entries: &[FsListed]) -> Vec<u64> {
    [9, NO_INO.0]
        .into_iter()
        .chain(entries.iter().map(|entry| entry.node.inode.ino.0))
        .collect()
}

#[test]
fn every_name_is_seen_once_through_buffers_and_pages_of_any_size() {
    for count in [0, 1, 2, 50, 300] {
        let entries = names(count);
        for form in [Form::Plain, Form::Plus] {
            for (buffer, page) in [
                (4096, 1),
                (4096, 7),
                (4096, 1000),
                (32 << 10, 1000),
                (200, 1000),
            ] {
                assert_eq!(
                    read(&entries, form, buffer, page),
                    numbers(&entries),
                    "{count} {form:?} {buffer} {page}"
                );
            }
        }
    }
}

/// A kernel's buffer never splits a group, wherever it is in the listing.
#[test]
fn names_of_one_hash_stay_together() {
    for at in 0..60 {
        let mut entries = names(60);
        let twin = entries[at].clone();
        for n in 0..4 {
            let mut next = twin.clone();
            next.node.inode.ino = Ino(1000 + n);
            entries.insert(at + 1, next);
        }
        for form in [Form::Plain, Form::Plus] {
            for (buffer, page) in [
                (4096, 1),
                (4096, 7),
                (4096, 1000),
                (5000, 1000),
                (32 << 10, 1000),
            ] {
                assert_eq!(
                    read(&entries, form, buffer, page),
                    numbers(&entries),
                    "{at} {form:?} {buffer} {page}"
                );
            }
        }
    }
}

/// A reader with a buffer of its own may stop within a group: its next request begins with the
/// group.
#[test]
fn who_stops_within_a_group_gets_it_again() {
    let mut entries = names(3);
    entries.insert(2, entries[1].clone());
    let hash = name_hash(&entries[1].name);
    let mut offsets = Vec::new();
    fill(Ino(9), 2, (&entries, true), Form::Plain, |line| {
        offsets.push(line.offset);
        false
    });
    assert_eq!(offsets[1..3], [hash - 1, hash]);
}

/// Names constructed to have equal hashes must not make a reader loop for ever.
#[test]
fn a_group_larger_than_a_buffer_ends() {
    let mut entries = names(3);
    let twin = entry(
        std::str::from_utf8(entries[1].name.as_bytes()).expect("a text"),
        7,
    );
    entries.splice(1..2, std::iter::repeat_n(twin, 500));
    let seen = read(&entries, Form::Plus, 4096, 1000);
    let last = entries.last().expect("three").node.inode.ino.0;
    assert!(seen.contains(&7) && seen.last() == Some(&last), "{seen:?}");
}

#[test]
fn dots_come_first_and_the_root_is_its_own_parent() {
    let lines = |dir, offset| {
        let mut lines = Vec::new();
        fill(dir, offset, (&[], true), Form::Plain, |line| {
            lines.push((line.name.to_vec(), line.offset, line.attr.ino.0));
            false
        });
        lines
    };
    assert_eq!(
        lines(Ino::ROOT, 0),
        [(b".".to_vec(), 1, 1), (b"..".to_vec(), 2, 1)]
    );
    assert_eq!(lines(Ino(9), 1), [(b"..".to_vec(), 2, NO_INO.0)]);
    assert_eq!(lines(Ino(9), 2), []);
}

#[test]
fn a_place_beyond_all_names_has_nothing_behind_it() {
    assert_eq!(
        call(Ino(9), 2, 5),
        Some(FsCall::List {
            dir: Ino(9),
            after: 0,
            bytes_max: 5
        })
    );
    assert_eq!(
        call(Ino(9), 3, 5),
        Some(FsCall::List {
            dir: Ino(9),
            after: 3,
            bytes_max: 5
        })
    );
    assert_eq!(
        call(Ino(9), HASH_END - 2, 5),
        Some(FsCall::List {
            dir: Ino(9),
            after: HASH_END - 2,
            bytes_max: 5
        })
    );
    assert_eq!(call(Ino(9), i64::MAX.cast_unsigned(), 5), None);
    assert_eq!(call(Ino(9), u64::MAX, 5), None);
}

#[test]
fn what_is_asked_for_follows_what_a_kernel_takes() {
    let next = |taken, of, end, asked| Filled { taken, of, end }.next_ask(asked);
    assert_eq!(next(50, 50, false, ASK_FIRST), 2 * ASK_FIRST);
    assert_eq!(next(50, 50, true, ASK_FIRST), ASK_FIRST);
    assert_eq!(next(0, 0, true, ASK_FIRST), ASK_FIRST);
    assert_eq!(next(24, 100, false, 64 << 10), 20 << 10);
    assert_eq!(next(1, 5000, false, FS_LIST_MAX), ASK_FIRST / 2);
    assert_eq!(next(9, 9, false, FS_LIST_MAX), FS_LIST_MAX);
}
