//! For all operations, and any order of completion of jobs and I/O, the store answers like the
//! model.
use crate::rig::*;
use nacre_store::*;

fn run(seed: u64, transactions: u64) {
    let mut rig = Rig::small(seed).shuffled(seed);
    let mut model = RamStore::new();
    // Reads in flight, and their allowed answers: the object's state at any moment since.
    let mut open: Vec<(Token, Read, Vec<Flat>)> = Vec::new();
    let start = Transaction::new().create_collection(C).create_collection(D);
    model.submit(start, Token(0)).expect("valid");
    let mut rng = Rng::new(seed ^ 0xabcd);
    for number in 1..=transactions {
        let transaction = some_transaction(&mut rng, number);
        rig.must(transaction.clone(), number);
        model
            .submit(transaction, Token(number))
            .expect("the store took it too");
        for (_, read, may_be) in &mut open {
            may_be.push(flat(model.answer(read.clone())));
        }
        if open.len() < 6 {
            let object = key(format!("o{}", rng.below(8)));
            let read = Read::Data {
                object,
                offset: rng.below(9000),
                length: 1 + rng.below(200_000),
            };
            open.push((
                Token(number << 20),
                read.clone(),
                vec![flat(model.answer(read.clone()))],
            ));
            rig.store.read(read, Token(number << 20));
        }
        open.retain(|(token, read, may_be)| match rig.answers.remove(token) {
            Some(answer) => {
                assert!(
                    may_be.contains(&flat(answer)),
                    "seed {seed}, after {number}: {read:?}"
                );
                false
            }
            None => true,
        });
        if rng.chance(30) {
            rig.store.request_commit();
        }
        if rng.chance(60) {
            rig.turn();
        }
        if rng.chance(3) {
            rig.store.rest();
        }
        if rng.chance(10) {
            let object = key(format!("o{}", rng.below(8)));
            let (offset, length) = (rng.below(30_000), rng.below(60_000));
            let read = Read::Data {
                object,
                offset,
                length,
            };
            assert_eq!(
                flat(rig.ask(read.clone())),
                flat(model.answer(read)),
                "seed {seed}, after {number}"
            );
        }
        if number % 50 == 0 {
            assert_eq!(
                dump(&mut rig),
                dump(&mut model),
                "seed {seed}, after {number}"
            );
            extents_cover_all_but_zeros(&mut rig, &mut model);
        }
    }
    rig.settle();
    let usage = rig.store.usage();
    assert!(
        usage.checkpoints > 0 && usage.blocks_cancelled > 0 && usage.beside_bytes > 0,
        "{usage:?}"
    );
    assert_eq!(last_transaction(&mut rig), transactions);
    rig.device
        .set_completion(nacre_store::testing::Completion::AtOnce);
    let mut again = reopen(rig, &options());
    assert_eq!(
        dump(&mut again),
        dump(&mut model),
        "seed {seed}, after opening again"
    );
}

type Flat = Result<Vec<u8>, ReadError>;

fn flat(answer: Result<ReadReply, ReadError>) -> Flat {
    match answer {
        Ok(ReadReply::Data(segments)) => Ok(segments.concat()),
        Err(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

fn extents_cover_all_but_zeros(rig: &mut Rig, model: &mut RamStore) {
    for i in 0..8 {
        let object = key(format!("o{i}"));
        let read = Read::Extents {
            object: object.clone(),
            offset: 100,
            length: 1 << 30,
        };
        let Ok(ReadReply::Extents(extents)) = rig.ask(read) else {
            continue;
        };
        let data = match model.answer(Read::Data {
            object,
            offset: 0,
            length: u64::MAX,
        }) {
            Ok(ReadReply::Data(segments)) => segments.concat(),
            other => panic!("{other:?}"),
        };
        assert!(
            extents.windows(2).all(|w| w[0].0 + w[0].1 < w[1].0),
            "in order, not adjacent: {extents:?}"
        );
        let mut covered = vec![false; data.len()];
        extents
            .iter()
            .for_each(|&(at, length)| covered[at as usize..][..length as usize].fill(true));
        assert!((100..data.len()).all(|i| covered[i] || data[i] == 0));
    }
}

#[test]
fn the_store_is_the_model() {
    for seed in 0..12 {
        run(seed, 400);
    }
}

/// Same inputs, same completions: same bytes on the device.
#[test]
fn the_store_is_deterministic() {
    let image = |seed| {
        let mut rig = Rig::fresh(seed).shuffled(seed);
        let mut rng = Rng::new(seed);
        for number in 1..=200 {
            rig.must(some_transaction(&mut rng, number), number);
            rig.store.request_commit();
            rig.turn();
        }
        rig.settle();
        rig.device.live()
    };
    assert!(image(3) == image(3));
    assert!(image(3) != image(4));
}
