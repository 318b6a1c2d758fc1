//! Little, fragmented space, and everything at once: reads in flight while units are freed,
//! discarded and reused; checkpoints and openings on a device that is full and fragmented; more
//! blocks to write back than are written at once, replaced meanwhile; a log of few groups that
//! wraps; the process killed from time to time.
//!
//! A discarded block reads as garbage, so a unit that is released too early is detected at once.

use crate::crash::first_difference;
use crate::rig::*;
use nacre_store::testing::Completion;
use nacre_store::*;
use std::collections::BTreeMap;

const LENGTH: u64 = 9 << 20;

fn tight(seed: u64) -> OpenOptions {
    OpenOptions {
        memtable_bytes: 6 << 10,
        memtable_records: Some(40),
        deferred_bytes: 200 << 10,
        deferred_transaction_max: Some(256 << 10),
        write_back_depth: 1 + seed as usize % 4,
        write_back_run_blocks: 3,
        beside_run_blocks: 5,
        index_batch_max: 12,
        removals_max: 3,
        clone_slice_bytes: 90,
        discard_bytes_min: 4096,
        discard_bytes_max: 12 << 10,
        ..options()
    }
}

/// Submits, waiting while the store is busy; `false`: it is full.
fn submit(rig: &mut Rig, transaction: &Transaction, number: u64) -> bool {
    for _ in 0..20_000 {
        match rig.store.submit(transaction.clone(), Token(number)) {
            Ok(()) => return true,
            Err(SubmitError::Full { .. }) => return false,
            Err(SubmitError::Busy) => {
                rig.store.request_commit();
                rig.turn();
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("busy for ever");
}

fn some_read(rng: &mut Rng) -> Read {
    let object = ObjectKey::new(
        if rng.chance(80) { C } else { D },
        format!("o{}", rng.below(8)),
    );
    match rng.below(3) {
        0 => Read::Data {
            object,
            offset: rng.below(100_000),
            length: 1 + rng.below(60_000),
        },
        1 => Read::Data {
            object,
            offset: 0,
            length: u64::MAX,
        },
        _ => Read::Omap {
            object,
            from: std::ops::Bound::Unbounded,
            to: None,
            limit_entries: 100,
            limit_bytes: 1 << 20,
        },
    }
}

fn flat(answer: Result<ReadReply, ReadError>) -> Result<ReadReply, ReadError> {
    answer.map(|reply| match reply {
        ReadReply::Data(segments) => ReadReply::Data(vec![segments.concat().into()]),
        other => other,
    })
}

fn brief(answer: &Result<ReadReply, ReadError>) -> String {
    match answer {
        Ok(ReadReply::Data(data)) => format!("{} bytes", data[0].len()),
        Ok(ReadReply::Omap { entries, .. }) => {
            format!(
                "{:?}",
                entries
                    .iter()
                    .map(|(k, v)| (k, v.first()))
                    .collect::<Vec<_>>()
            )
        }
        other => format!("{other:?}"),
    }
}

pub fn life(seed: u64, borders: &mut Borders) -> (u64, u64) {
    let completion = |n: u64| {
        if seed.is_multiple_of(2) {
            Completion::Shuffled(n)
        } else {
            Completion::Uneven(n)
        }
    };
    let device = nacre_store::testing::TestDevice::new(LENGTH);
    let format_options = FormatOptions {
        wal_bytes: Some(512 << 10),
        ..FormatOptions::default()
    };
    format(&device.blocking(), &format_options).expect("a healthy device");
    let mut rig = Rig::open(device, &tight(seed), seed);
    let mut model = RamStore::new();
    let first = Transaction::new().create_collection(C).create_collection(D);
    assert!(submit(&mut rig, &first, 0));
    model.submit(first, Token(0)).expect("valid");
    // Ballast with holes: only single blocks are free.
    let mut number = 0;
    let mut models: BTreeMap<u64, RamStore> = BTreeMap::new();
    let step = |rig: &mut Rig,
                model: &mut RamStore,
                models: &mut BTreeMap<u64, RamStore>,
                t: Transaction,
                number: &mut u64| {
        let t = t.omap_set(key("meta"), "last", (*number + 1).to_be_bytes().to_vec());
        if !submit(rig, &t, *number + 1) {
            return false;
        }
        *number += 1;
        model
            .submit(t, Token(*number))
            .expect("the store took it too");
        model.request_commit();
        let mut events = Vec::new();
        model.poll(&mut events);
        models.insert(*number, model.clone());
        while models.len() > 200 {
            models.pop_first();
        }
        true
    };
    for n in 0.. {
        let t = Transaction::new().write(
            ObjectKey::new(D, format!("ballast{n}")),
            0,
            vec![n as u8; 128 << 10],
        );
        if !step(&mut rig, &mut model, &mut models, t, &mut number) {
            break;
        }
        rig.settle();
    }
    for n in 0..6 {
        let object = ObjectKey::new(D, format!("ballast{n}"));
        let holes = (0..16).fold(Transaction::new(), |t, at| {
            t.zero(object.clone(), at * 8192 + 4096 * (n % 2), 4096)
        });
        if !step(&mut rig, &mut model, &mut models, holes, &mut number) {
            assert!(
                step(
                    &mut rig,
                    &mut model,
                    &mut models,
                    Transaction::new().remove(object),
                    &mut number
                ),
                "full for removals"
            );
        }
    }
    rig.settle();
    rig.device.set_completion(completion(seed));
    let mut rng = Rng::new(seed ^ 0xface);
    let (mut full, mut kills) = (0, 0);
    let mut asked: BTreeMap<Token, (u64, Read)> = BTreeMap::new();
    for round in 0..500_u64 {
        let t = if rng.chance(10) {
            // Many blocks, far from each other, in place.
            (0..40).fold(Transaction::new(), |t, n| {
                t.write(key("wide"), n * 8192 + 5, vec![round as u8; 60])
            })
        } else {
            Transaction {
                ops: (0..1 + rng.below(4)).map(|_| some_op(&mut rng)).collect(),
            }
        };
        if !step(&mut rig, &mut model, &mut models, t, &mut number) {
            full += 1;
            let object = ObjectKey::new(C, format!("o{}", rng.below(8)));
            // It only removes, except for the number that it writes: that may be too much, the
            // removal alone never is.
            if !step(
                &mut rig,
                &mut model,
                &mut models,
                Transaction::new().remove(object.clone()),
                &mut number,
            ) {
                number += 1;
                let t = Transaction::new().remove(object);
                assert!(submit(&mut rig, &t, number), "full for a removal");
                model.submit(t, Token(number)).expect("valid");
                models.clear();
                rig.settle();
            }
        }
        for _ in 0..rng.below(4) {
            let (read, token) = (
                some_read(&mut rng),
                Token(1 << 40 | round << 8 | asked.len() as u64),
            );
            rig.store.read(read.clone(), token);
            asked.insert(token, (number, read));
        }
        if rng.chance(50) {
            rig.store.request_commit();
        }
        if rng.chance(70) {
            rig.turn();
        }
        if round % 100 == 99 && !models.is_empty() {
            // The process is killed: everything that it wrote is there.
            kills += 1;
            let committed = rig.committed;
            borders.add(&rig.store.usage().borders);
            let image = rig.device.live();
            drop(rig);
            let device = nacre_store::testing::TestDevice::with_image(LENGTH, image);
            rig = Rig::open(device, &tight(seed), seed + round);
            let last = last_transaction(&mut rig);
            assert!(
                last >= committed && last <= number,
                "{committed} {last} {number}"
            );
            model = models
                .get(&last)
                .unwrap_or_else(|| panic!("{last} of {number}"))
                .clone();
            number = last;
            (rig.applied, rig.committed) = (0, 0);
            asked.clear();
            let (found, want) = (dump(&mut rig), dump(&mut model));
            assert!(
                found == want,
                "seed {seed}, round {round}, {committed} {last} {}",
                first_difference(&found, &want)
            );
            rig.device.set_completion(completion(seed + round));
        }
        for (token, (since, read)) in std::mem::take(&mut asked) {
            match rig.answers.remove(&token) {
                Some(found) => {
                    // It sees at least the transactions submitted before it, completely.
                    let found = flat(found);
                    let known = models
                        .first_key_value()
                        .is_some_and(|(&first, _)| first <= since);
                    let right = models
                        .range_mut(since..)
                        .any(|(_, model)| flat(model.answer(read.clone())) == found);
                    if !right && known {
                        for (n, model) in models.range_mut(since..) {
                            eprintln!("{n}: {:?}", brief(&flat(model.answer(read.clone()))));
                        }
                        eprintln!("found {:?}", brief(&found));
                    }
                    assert!(
                        right || !known,
                        "seed {seed}, round {round}: {read:?} saw what never was"
                    );
                }
                None => drop(asked.insert(token, (since, read))),
            }
        }
    }
    rig.settle();
    assert!(dump(&mut rig) == dump(&mut model), "seed {seed}");
    borders.add(&rig.store.usage().borders);
    rig.device.set_completion(Completion::AtOnce);
    let mut rig = reopen(rig, &tight(seed));
    assert!(
        dump(&mut rig) == dump(&mut model),
        "seed {seed}, opened again"
    );
    (full, kills)
}

#[test]
fn a_full_fragmented_store_serves_reads_while_everything_moves() {
    let mut sum = (0, 0);
    for seed in [0, 1, 2, 4] {
        let (full, kills) = life(seed, &mut Borders::default());
        sum = (sum.0 + full, sum.1 + kills);
    }
    println!("full {} times, killed {} times", sum.0, sum.1);
    assert!(
        sum.0 > 20 && sum.1 > 6,
        "{sum:?}: the point is a full store"
    );
}
