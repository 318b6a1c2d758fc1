//! Stores with corrupted bytes: a daemon refuses to start, or answers an error for damaged objects,
//! or is not affected. It never answers wrong bytes.

use crate::embedded::wait_clean;
use crate::folder::{Folder, free_ports, small};
use nacre_command::{Command, Flag};
use nacre_node::{Config, Embedded, Error, InitOptions, RunOptions, init};
use nacre_types::{Entity, MonId, OsdId};
use nacre_wire::msg::client::OpFailure;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn name(n: u32) -> String {
    format!("object-{n}")
}
/// From inside the index (below 1 KiB) to several blocks.
fn content(n: u32) -> Vec<u8> {
    (0..n * 997 % 40_000).map(|i| (i * 7 + n) as u8).collect()
}
const OBJECTS: u32 = 40;

/// A stopped cluster that has stored [`OBJECTS`].
fn filled(folder: &Folder, osds: u32, size: u8) -> Config {
    let options = InitOptions {
        osds,
        base_port: Some(free_ports(osds as u16 + 1)),
        osd_bytes: 32 << 20,
        mon_bytes: 128 << 20,
        pool_size: Some(size),
        ..InitOptions::default()
    };
    let config = init(folder.path(), &options).expect("an empty folder");
    let embedded = Arc::new(Embedded::start(folder.path(), RunOptions::default()).expect("starts"));
    let pool = embedded
        .cluster()
        .create_pool("things")
        .wait()
        .expect("a pool");
    for n in 0..OBJECTS {
        pool.put(&name(n), content(n)).wait().expect("put");
    }
    embedded.stop().expect("it stops");
    config
}

/// Allocated parts of a file: `(offset, length)` of blocks.
fn written(path: &Path) -> Vec<u64> {
    const BLOCK: usize = 4096;
    let file = File::open(path).expect("readable");
    let blocks = file.metadata().expect("readable").len() / BLOCK as u64;
    let mut block = [0; BLOCK];
    let holds = |at: &u64| {
        file.read_exact_at(&mut block, at * BLOCK as u64)
            .expect("readable");
        block.iter().any(|byte| *byte != 0)
    };
    (0..blocks)
        .filter(holds)
        .map(|at| at * BLOCK as u64)
        .collect()
}

fn read_at(path: &Path, at: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    File::open(path)
        .expect("readable")
        .read_exact_at(&mut bytes, at)
        .expect("readable");
    bytes
}
fn write_at(path: &Path, at: u64, bytes: &[u8]) {
    File::options()
        .write(true)
        .open(path)
        .expect("writable")
        .write_all_at(bytes, at)
        .expect("written");
}

/// Results of reading everything after each of some blocks of one store was corrupted in turn.
#[derive(Debug, Default)]
struct Seen {
    refused: u32,
    answered: u32,
    errors: u32,
    missing: u32,
}

fn rot_some_blocks(folder: &Folder, config: &Config, rounds: usize) -> Seen {
    let copies = config.osds.len();
    let stores: Vec<_> = config
        .mons
        .values()
        .map(|mon| &mon.path)
        .chain(config.osds.values().map(|osd| &osd.path))
        .collect();
    let store = &config.osds[&OsdId(0)].path;
    let all: Vec<Vec<u8>> = stores
        .iter()
        .map(|path| std::fs::read(path).expect("readable"))
        .collect();
    let blocks = written(store);
    assert!(blocks.len() > 40, "{} blocks hold something", blocks.len());
    let mut seen = Seen::default();
    // Spread over superblock, log, index and data.
    let step = blocks.len().div_ceil(rounds);
    for at in blocks.iter().copied().step_by(step) {
        // The daemons of an earlier round may have written anywhere.
        for (path, bytes) in stores.iter().zip(&all) {
            std::fs::write(path, bytes).expect("writable");
        }
        let mut block = read_at(store, at, 4096);
        for byte in block.iter_mut().skip(64).step_by(509) {
            *byte ^= 0x40;
        }
        write_at(store, at, &block);
        let Ok(embedded) = Embedded::start(folder.path(), RunOptions::default()) else {
            seen.refused += 1;
            continue;
        };
        let embedded = Arc::new(embedded);
        let cluster = embedded.cluster().with_timeout(Duration::from_secs(2));
        let pool = cluster.pool("things").wait().expect("the monitors know it");
        for n in 0..OBJECTS {
            match pool.get(&name(n)).wait() {
                Ok(bytes) => {
                    assert_eq!(bytes, content(n), "{} after block {at:#x} rotted", name(n));
                    seen.answered += 1;
                }
                // The end of the log: a single replica cannot distinguish corruption there from an
                // unacknowledged write torn by a power cut.
                Err(Error::Refused(OpFailure::NotFound {})) if n == OBJECTS - 1 && copies == 1 => {
                    seen.missing += 1
                }
                Err(Error::Refused(OpFailure::NotFound {})) => {
                    panic!(
                        "{} is gone without a word after block {at:#x} rotted",
                        name(n)
                    )
                }
                Err(_) => seen.errors += 1,
            }
            if copies == 1 && !embedded.halted().is_empty() {
                break;
            }
        }
        embedded.stop().expect("it stops");
    }
    seen
}

/// One replica, so repair is impossible: for any corrupted block of the only store, each object
/// reads as it was stored or as an error.
#[test]
fn a_rotten_block_is_an_error_and_never_other_bytes() {
    let folder = Folder::new("rot");
    let config = filled(&folder, 1, 1);
    let seen = rot_some_blocks(&folder, &config, 30);
    assert!(
        seen.refused + seen.errors > 0,
        "nothing that matters was hit: {seen:?}"
    );
    assert!(
        seen.answered > 0 && seen.missing < 5,
        "one block is not everything: {seen:?}"
    );
}

/// Three replicas: state that one store alone could not know is right, too, since the others know
/// it.
#[test]
fn a_rotten_block_of_one_copy_of_three_loses_nothing() {
    let folder = Folder::new("rot-of-three");
    let config = filled(&folder, 3, 3);
    let seen = rot_some_blocks(&folder, &config, 8);
    assert_eq!(seen.refused, 0, "two sound stores are a cluster: {seen:?}");
    assert!(seen.answered >= 8 * OBJECTS * 9 / 10, "{seen:?}");
}

/// A store that was truncated, emptied, or is missing: its OSD is left out and named, the others
/// serve.
#[test]
fn one_broken_store_is_named_and_the_others_go_on() {
    let folder = Folder::new("broken");
    let config = filled(&folder, 3, 3);
    let store = &config.osds[&OsdId(1)].path;
    let kept = store.with_extension("kept");
    std::fs::rename(store, &kept).expect("moved");
    let cut = |length: u64| {
        std::fs::copy(&kept, store).expect("copied");
        File::options()
            .write(true)
            .open(store)
            .expect("writable")
            .set_len(length)
            .expect("cut");
    };
    type Break<'a> = Box<dyn Fn() + 'a>;
    let break_it: [(&str, Break<'_>); 4] = [
        ("has shrunk", Box::new(|| cut(20 << 20))),
        ("not a Nacre store", Box::new(|| cut(0))),
        (
            "not a Nacre store",
            Box::new(|| std::fs::write(store, vec![7; 1 << 20]).expect("written")),
        ),
        (
            "it is not there",
            Box::new(|| std::fs::remove_file(store).expect("removed")),
        ),
    ];
    for (expected, break_it) in break_it {
        break_it();
        let embedded = Arc::new(
            Embedded::start(folder.path(), RunOptions::default()).expect("two of three are enough"),
        );
        let halted = embedded.halted();
        assert!(
            matches!(&halted[..], [(Entity::Osd(OsdId(1)), why)] if why.contains(expected) || why.contains("shrank")),
            "{halted:?}"
        );
        assert!(
            !folder.path().join("run/osd.1.pid").exists(),
            "it does not run"
        );
        let pool = embedded.cluster().pool("things").wait().expect("known");
        for n in 0..OBJECTS {
            assert_eq!(pool.get(&name(n)).wait().expect("readable"), content(n));
        }
        pool.put("more", "is stored").wait().expect("writable");
        embedded.stop().expect("it stops");
    }
    // With its own store it rejoins.
    std::fs::rename(&kept, store).expect("moved");
    let embedded = Arc::new(Embedded::start(folder.path(), RunOptions::default()).expect("starts"));
    assert!(embedded.halted().is_empty());
    wait_clean(&embedded.cluster());
}

/// The only monitor's store: the cluster refuses to start, in one line. One of three: it is left
/// out.
#[test]
fn a_broken_monitors_store_stops_one_and_is_survived_by_three() {
    let folder = Folder::new("mon-broken");
    let config = small(&folder, Some(free_ports(4)));
    let store = &config.mons[&MonId(0)].path;
    write_at(store, 0, &vec![0xff; 3 << 20]);
    let refused = Embedded::start(folder.path(), RunOptions::default())
        .err()
        .expect("no monitor, no cluster");
    let text = refused.to_string();
    assert!(
        text.contains("mon.0") && text.contains("store check") && text.lines().count() == 1,
        "{text}"
    );

    let folder = Folder::new("mon-of-three");
    let ports = Some(free_ports(6));
    let options = InitOptions {
        mons: 3,
        base_port: ports,
        osd_bytes: 32 << 20,
        mon_bytes: 128 << 20,
        ..InitOptions::default()
    };
    let config = init(folder.path(), &options).expect("an empty folder");
    write_at(&config.mons[&MonId(2)].path, 0, &vec![0xff; 3 << 20]);
    let embedded = Arc::new(
        Embedded::start(folder.path(), RunOptions::default()).expect("two of three are enough"),
    );
    assert!(
        matches!(&embedded.halted()[..], [(Entity::Mon(MonId(2)), _)]),
        "{:?}",
        embedded.halted()
    );
    embedded
        .cluster()
        .command(&Command::FlagSet { flag: Flag::Noout })
        .wait()
        .expect("a majority decides");
}
