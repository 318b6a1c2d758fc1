//! Power cuts at every step of a workload, inside checkpoint jobs too.
//!
//! One run is recorded; at every step that changes the possible results of a cut, the medium is the
//! durable state plus some of the other writes, in sectors. Each image is opened and must contain a
//! prefix of the transactions, each complete, at least up to the last one reported committed; the
//! offline check must be clean; and the store must continue to work.
//!
//! Tried on purpose, one broken line at a time, and detected here: the flush before the
//! acknowledgement skipped; freed units reused before the freeing transaction is durable; a torn
//! log group trusted; the epoch not checked; a checkpoint that does not wait for its group; one
//! that does not wait for `needs`; the flush before a group with large writes skipped; the index's
//! checksums not flushed before its superblock; the mirror superblock not written; replay writing
//! blocks that were freed later; waiting units counted as taken in a checkpoint; clones not marked
//! as shared in their source. Skipping only the flush after write-back is not detected: the index's
//! own first flush covers it.

use crate::rig::*;
use nacre_store::testing::{Completion, Image, PowerCuts, Step, TestDevice};
use nacre_store::*;
use std::collections::BTreeMap;

const LENGTH: u64 = 16 << 20;

/// Checkpoints every dozen transactions. Every second instance keeps blocks of small objects in
/// place, too.
fn small(seed: u64) -> OpenOptions {
    OpenOptions {
        small_object_max: if seed.is_multiple_of(2) { 64 << 10 } else { 0 },
        beside_group_min: if seed.is_multiple_of(3) { 2 } else { 0 },
        memtable_bytes: 6 << 10,
        deferred_bytes: 48 << 10,
        index_batch_max: 12,
        // A slice of an omap is two or three entries; a checkpoint leaves most of a range; freed
        // blocks are discarded one by one.
        clone_slice_bytes: 60,
        removals_max: 2,
        write_back_depth: 2,
        // Groups in one operation of the device: none, without blocks of their own, most, all.
        commit_bytes_max: [0, 4096, 24 << 10, 256 << 10][(seed / 2 % 4) as usize],
        discard_bytes_min: 4096,
        discard_bytes_max: 16 << 10,
        ..options()
    }
}

/// A recorded run of a store.
struct Recording {
    start: Image,
    steps: Vec<Step>,
    /// The model after each transaction.
    models: Vec<RamStore>,
}

fn record(seed: u64, transactions: u64) -> Recording {
    let device = Rig::fresh(seed).device;
    let mut rig = Rig::open(device, &small(seed), seed);
    let start = rig.device.record();
    rig.device.set_completion(Completion::Shuffled(seed));
    let mut model = RamStore::new();
    model
        .submit(
            Transaction::new().create_collection(C).create_collection(D),
            Token(0),
        )
        .expect("valid");
    let mut models = vec![model.clone()];
    let mut rng = Rng::new(seed ^ 0x5eed);
    for number in 1..=transactions {
        let transaction = some_transaction(&mut rng, number);
        rig.device.mark(number << 1);
        rig.must(transaction.clone(), number);
        model
            .submit(transaction, Token(number))
            .expect("the store took it too");
        model.request_commit();
        models.push(model.clone());
        if rng.chance(40) {
            rig.store.request_commit();
        }
        if rng.chance(70) {
            rig.turn();
        }
        if rng.chance(3) {
            rig.store.rest();
        }
    }
    rig.settle();
    assert!(
        rig.store.usage().checkpoints > 1,
        "cuts inside checkpoints are the point: {:?}",
        rig.store.usage()
    );
    let steps = rig.device.steps();
    Recording {
        start,
        steps,
        models,
    }
}

/// Opens an image and checks everything. Returns the number of its last transaction.
fn survive(
    recording: &Recording,
    dumps: &mut BTreeMap<u64, Dump>,
    image: Image,
    committed: u64,
    submitted: u64,
    go_on: bool,
    what: &str,
) {
    let device = TestDevice::with_image(LENGTH, image);
    let mut rig = Rig::open(device.clone(), &options(), committed);
    let last = last_transaction(&mut rig);
    assert!(
        last >= committed,
        "{what}: transaction {committed} was committed, but the last one there is {last}"
    );
    assert!(
        last <= submitted,
        "{what}: transaction {last} was never submitted"
    );
    let want = dumps
        .entry(last)
        .or_insert_with(|| dump(&mut recording.models[last as usize].clone()));
    let found = dump(&mut rig);
    assert!(
        found == *want,
        "{what}: transaction {last} is not whole: {:?}",
        first_difference(&found, want)
    );
    if go_on {
        let mut model = recording.models[last as usize].clone();
        let mut rng = Rng::new(last);
        for number in last + 1..last + 8 {
            let transaction = some_transaction(&mut rng, number);
            rig.must(transaction.clone(), number);
            model
                .submit(transaction, Token(number))
                .expect("the store took it too");
        }
        rig.settle();
        let mut rig = reopen(rig, &options());
        assert!(dump(&mut rig) == dump(&mut model), "{what}: after going on");
    } else {
        drop(rig);
        assert_sound(&device);
    }
}

pub fn first_difference(found: &Dump, want: &Dump) -> String {
    for key in found.keys().chain(want.keys()) {
        if found.get(key) != want.get(key) {
            return format!(
                "{key:?}: found {:?}, want {:?}",
                brief(found.get(key)),
                brief(want.get(key))
            );
        }
    }
    String::new()
}

fn brief(dump: Option<&ObjectDump>) -> String {
    dump.map_or("nothing".into(), |d| d.brief())
}

/// Cuts the power at every step, keeping random parts of the loose writes.
pub fn cut_everywhere(seed: u64, transactions: u64, images_per_cut: u64) -> usize {
    let recording = record(seed, transactions);
    let mut rng = Rng::new(seed ^ 0xdead);
    let mut cuts = PowerCuts::new(recording.start.clone());
    let mut dumps = BTreeMap::new();
    let (mut committed, mut submitted, mut boundaries) = (0, 0, 0);
    for (at, step) in recording.steps.iter().enumerate() {
        if let Step::Mark(mark) = step {
            match mark & 1 {
                1 => committed = mark >> 1,
                _ => submitted = mark >> 1,
            }
        }
        if !cuts.step(step) {
            continue;
        }
        boundaries += 1;
        let loose = cuts.loose();
        for n in 0..images_per_cut {
            // All, none, some complete, or some torn.
            let (mode, subset, torn) = (
                rng.below(8),
                rng.below(1 << loose.min(30)),
                rng.below(loose.max(1) as u64),
            );
            let mut sectors = Rng::new(rng.below(1 << 40));
            let image = cuts.image(|write, _| match mode {
                0 => true,
                1 => false,
                2 => write + 1 < loose,
                3 => write + 1 == loose,
                _ if write as u64 == torn && mode > 5 => sectors.chance(50),
                _ => subset >> (write % 30) & 1 == 1,
            });
            let what = format!(
                "seed {seed}, step {at} ({} loose), image {n}, mode {mode}",
                loose
            );
            let go_on = boundaries % 16 == 0;
            survive(
                &recording, &mut dumps, image, committed, submitted, go_on, &what,
            );
        }
    }
    boundaries
}

#[test]
fn every_power_cut_leaves_a_prefix_of_whole_transactions() {
    let mut boundaries = 0;
    for seed in 0..3 {
        boundaries += cut_everywhere(seed, 150, 1);
    }
    println!("{boundaries} boundaries");
    assert!(boundaries >= 2000, "only {boundaries} boundaries");
}

/// At some cuts, every subset of the loose writes.
#[test]
fn every_subset_of_loose_writes_survives() {
    let recording = record(77, 200);
    let mut cuts = PowerCuts::new(recording.start.clone());
    let mut dumps = BTreeMap::new();
    let (mut committed, mut submitted, mut exhausted) = (0, 0, 0);
    for (at, step) in recording.steps.iter().enumerate() {
        if let Step::Mark(mark) = step {
            match mark & 1 {
                1 => committed = mark >> 1,
                _ => submitted = mark >> 1,
            }
        }
        if !cuts.step(step) || !(3..=8).contains(&cuts.loose()) || at % 11 != 0 {
            continue;
        }
        exhausted += 1;
        for subset in 0..1_u32 << cuts.loose() {
            let image = cuts.image(|write, _| subset >> write & 1 == 1);
            let what = format!("step {at}, subset {subset:b}");
            survive(
                &recording, &mut dumps, image, committed, submitted, false, &what,
            );
        }
    }
    assert!(exhausted >= 5, "{exhausted}");
}

/// A power cut while recovering from a power cut, at every boundary of the recovery.
#[test]
fn recovery_survives_power_cuts() {
    let recording = record(5, 150);
    let mut cuts = PowerCuts::new(recording.start.clone());
    let (mut committed, mut submitted) = (0, 0);
    let mut dumps = BTreeMap::new();
    for (at, step) in recording.steps.iter().enumerate() {
        if let Step::Mark(mark) = step {
            match mark & 1 {
                1 => committed = mark >> 1,
                _ => submitted = mark >> 1,
            }
        }
        if !cuts.step(step) || at % 97 != 0 {
            continue;
        }
        let image = cuts.image(|_, _| true);
        let device = TestDevice::with_image(LENGTH, image.clone());
        let start = device.record();
        let mut rig = Rig::open(device.clone(), &options(), 0);
        let found = last_transaction(&mut rig);
        assert!((committed..=submitted).contains(&found));
        drop(rig);
        let mut again = PowerCuts::new(start);
        let mut rng = Rng::new(at as u64);
        for (n, step) in device.steps().iter().enumerate() {
            if again.step(step) {
                let image = again.image(|_, sector| {
                    if n % 3 == 0 {
                        rng.chance(50)
                    } else {
                        sector % 2 == n % 2
                    }
                });
                // The first recovery read everything from the medium: the second must find at least
                // as much.
                survive(
                    &recording,
                    &mut dumps,
                    image,
                    found,
                    found,
                    false,
                    &format!("step {at}, recovery step {n}"),
                );
            }
        }
    }
}

/// An intact group of an earlier instance, just after the new instance's last one, must not be
/// taken for its successor.
#[test]
fn the_log_of_an_earlier_life_is_never_replayed() {
    an_earlier_life();
}

pub fn an_earlier_life() {
    const LOG: u64 = 256 << 10;
    let life = |image: Image, transactions: u64| {
        let mut rig = Rig::from_image(LENGTH, image);
        for number in 1..=transactions {
            rig.must(
                Transaction::new().set_attr(key("a"), "n", vec![number as u8]),
                number,
            );
            rig.settle();
        }
        rig.device.live()
    };
    let before = Rig::fresh(1).device.live();
    let group = |image: &Image, at: u64| {
        let mut block = vec![0; 4096];
        image.read(LOG + at, &mut block);
        block
    };
    let earlier = life(before.clone(), 2);
    let mut later = life(life(before, 0), 1);
    let at = (0..1 << 20)
        .step_by(4096)
        .find(|&at| group(&earlier, at) != group(&later, at))
        .expect("epochs differ");
    assert_eq!(
        group(&earlier, at + 4096)[..4],
        *b"NCWL",
        "the second group of the earlier life"
    );
    later.write(LOG + at + 4096, &group(&earlier, at + 4096));
    let mut rig = Rig::from_image(LENGTH, later);
    match rig.ask(Read::Stat(key("a"))) {
        Ok(ReadReply::Stat(Some(stat))) => assert_eq!(stat.attrs[&b"n"[..]], vec![1_u8]),
        other => panic!("{other:?}"),
    }
}
