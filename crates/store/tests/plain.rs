//! The short way of plain overwrites beside the general way: the same history in both gives the
//! same writes to the device, byte for byte and in the same order, and the same content.
//!
//! Equal content alone would not do: what is written shows that the allocator, the space of the log
//! and the tables are used alike, so that no later transaction meets another state.

use crate::rig::*;
use bytes::Bytes;
use nacre_store::testing::{Completion, Step};
use nacre_store::*;

/// Options that make transactions leave the short way in different places.
fn drawn(rng: &mut Rng) -> OpenOptions {
    let mut pick = |values: &[u64]| values[rng.below(values.len() as u64) as usize] as usize;
    OpenOptions {
        deferred_write_max: pick(&[0, 4096, 12 << 10, 64 << 10]),
        small_object_max: pick(&[0, 8192, 64 << 10]) as u64,
        beside_group_min: pick(&[0, 2, 3]),
        cache_bytes: pick(&[2 << 10, 16 << 10, 1 << 20]),
        memtable_bytes: pick(&[6 << 10, 24 << 10]),
        deferred_bytes: pick(&[8 << 10, 48 << 10]),
        deferred_transaction_max: [None, Some(0), Some(12 << 10)][pick(&[0, 0, 0, 1, 2])],
        commit_bytes_max: pick(&[0, 256 << 10]),
        discard_bytes_min: 4096,
        discard_bytes_max: 16 << 10,
        ..options()
    }
}

/// Whole blocks of small objects with an attribute and entries of a log, and what interrupts them.
fn next(rng: &mut Rng, number: u64) -> Transaction {
    let object = match rng.below(4) {
        // Each seldom, so that it is found where it was made.
        0 => key(format!("p{}", rng.below(60))),
        _ => key(format!("o{}", rng.below(6))),
    };
    let block = [0, 0, 0, 1, 2, 7, 31, 32][rng.below(8) as usize];
    let content = vec![number as u8; 4096];
    let mut t = Transaction::new();
    match rng.below(40) {
        0 => return t.write(object, 4096 * block + 100, vec![number as u8; 50]),
        1 => return t.clone_object(object, key(format!("c{}", rng.below(3)))),
        2 => return t.remove(object),
        3 => return t.truncate(object, rng.below(3) * 4096 + rng.below(2) * 77),
        4 => return t.omap_set(key("o5"), "k", vec![number as u8]),
        5 => return t.write(object, 0, vec![number as u8; 300]),
        6 => return t.write(object, 0, vec![number as u8; 3 * 4096]),
        _ => {}
    }
    let segments = match rng.below(4) {
        // As from a network.
        0 => [&content[..96], &[], &content[96..]]
            .map(Bytes::copy_from_slice)
            .to_vec(),
        _ => vec![content.into()],
    };
    t.ops.push(Op::Write {
        object: object.clone(),
        offset: 4096 * block,
        data: segments,
    });
    for name in 0..rng.below(3) {
        t = t.set_attr(object.clone(), format!("a{name}"), vec![number as u8; 40]);
    }
    let log = key(format!("log{}", rng.below(2)));
    let entry = |n: u64| (format!("{n:05}"), vec![number as u8; 80]);
    let (name, value) = entry(number);
    t = t.omap_set(log.clone(), name, value);
    if rng.chance(30) {
        // Again, and an earlier one; some are removed, sometimes more than the short way takes.
        for n in [number, number / 2] {
            let (name, value) = entry(n);
            t = t.omap_set(log.clone(), name, value);
        }
        for n in 0..rng.below(9) {
            t = t.omap_remove(log.clone(), entry(number.saturating_sub(n)).0);
        }
    }
    t
}

struct Seen {
    steps: Vec<String>,
    dump: Dump,
    plain: u64,
}

/// A store for this seed: with space in one allocation group, with objects in several, or with
/// little space.
fn begin(seed: u64, options: &OpenOptions) -> Rig {
    let (length, filler) = [(16, 0), (64, 20), (16, 11)][seed as usize % 3];
    let device = Rig::format(length << 20);
    let mut rig = Rig::open(device, options, seed);
    let mut t = Transaction::new().create_collection(C);
    // Large writes, elsewhere than small ones go later.
    for n in 0..6 {
        t = t.write(key(format!("o{n}")), 0, vec![2; 17 * 4096]);
    }
    if length == 64 {
        for n in 0..60 {
            let one = key(format!("p{n}"));
            t = t
                .write(one.clone(), 0, vec![3; 17 * 4096])
                .truncate(one, 4096);
        }
    }
    // In pieces, so that the first allocation group is full.
    for n in 0..filler {
        t = t.write(key("filler"), n << 20, vec![1; 1 << 20]);
    }
    rig.must(t, 0);
    rig.settle();
    (rig.committed, rig.applied) = (0, 0);
    rig
}

fn run(seed: u64, plain: bool) -> Seen {
    let mut rng = Rng::new(seed);
    let options = OpenOptions {
        plain,
        ..drawn(&mut rng)
    };
    let mut rig = begin(seed, &options);
    rig.device.set_completion(Completion::Shuffled(seed));
    drop(rig.device.record());
    for number in 1..=400 {
        rig.must(next(&mut rng, number), number);
        if rng.chance(40) {
            rig.store.request_commit();
        }
        if rng.chance(60) {
            rig.turn();
        }
    }
    rig.settle();
    let show = |step: &Step| format!("{step:?}");
    Seen {
        steps: rig.device.steps().iter().map(show).collect(),
        plain: rig.store.usage().borders.plain_overwrites,
        dump: dump(&mut rig),
    }
}

#[test]
fn the_short_way_writes_what_the_general_way_does() {
    let mut all = 0;
    for seed in 0..24 {
        let (short, general) = (run(seed, true), run(seed, false));
        let differs = short
            .steps
            .iter()
            .zip(&general.steps)
            .position(|(a, b)| a != b);
        assert_eq!(
            (differs, short.steps.len()),
            (None, general.steps.len()),
            "seed {seed}: the first other step"
        );
        assert!(short.dump == general.dump, "seed {seed}");
        assert_eq!(general.plain, 0);
        all += short.plain;
    }
    assert!(all > 1500, "only {all} took the short way");
}
