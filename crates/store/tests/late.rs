//! Late results: the store has changed since they were requested.

use crate::rig::*;
use bytes::Bytes;
use nacre_store::testing::Completion;
use nacre_store::*;

/// Lets a checkpoint begin and end, regardless of other work.
fn checkpoint(rig: &mut Rig) {
    let before = rig.store.usage().checkpoints;
    rig.store.rest();
    for _ in 0..10_000 {
        rig.turn();
        if rig.store.usage().checkpoints > before {
            return;
        }
    }
    panic!("no checkpoint");
}

/// Scans read the index, then a checkpoint moved memory's newest records into it, then the scans
/// returned. Those records were neither in them nor in memory: keys committed long before were
/// missing from answers.
#[test]
fn a_scan_from_before_a_checkpoint_hides_nothing() {
    let mut rig = Rig::fresh(1);
    rig.must(
        Transaction::new().omap_set(key("o0"), "k0", vec![0; 5000]),
        1,
    );
    rig.settle();
    checkpoint(&mut rig);
    for n in 1..=5_u64 {
        let t = Transaction::new().touch(key(format!("o{n}"))).omap_set(
            key("o0"),
            format!("k{n}"),
            vec![1; 1000],
        );
        rig.must(t, n + 1);
    }
    rig.settle();
    let (list, omap) = (Token(1 << 40), Token(2 << 40));
    rig.store.read(
        Read::List {
            collection: C,
            from: "o".into(),
            to: None,
            limit: 100,
        },
        list,
    );
    let from = std::ops::Bound::Unbounded;
    let read = Read::Omap {
        object: key("o0"),
        from,
        to: None,
        limit_entries: 100,
        limit_bytes: 1 << 20,
    };
    rig.store.read(read, omap);
    let mut jobs = Vec::new();
    rig.store.jobs(&mut jobs);
    assert_eq!(
        jobs.iter().map(Job::name).collect::<Vec<_>>(),
        ["scan", "scan"]
    );
    let late: Vec<JobDone> = jobs.into_iter().map(Job::run).collect();
    checkpoint(&mut rig);
    late.into_iter().for_each(|done| rig.store.on_job(done));
    rig.settle();
    let mut answer = |token| match rig.answers.remove(&token) {
        Some(Ok(ReadReply::List { keys, more: false })) => keys,
        Some(Ok(ReadReply::Omap {
            entries,
            more: false,
        })) => entries.into_iter().map(|(key, _)| key).collect(),
        other => panic!("{other:?}"),
    };
    let all = |letter| {
        (0..=5)
            .map(|n| Bytes::from(format!("{letter}{n}")))
            .collect::<Vec<_>>()
    };
    assert_eq!((answer(list), answer(omap)), (all('o'), all('k')));
}

/// A block waited in a checkpoint to be written back, and was overwritten before that. The new
/// content went to its place, though no log had it yet; the checkpoint then truncated the old one
/// from the log. After a power cut the block was neither: its checksum failed, and committed data
/// was lost.
#[test]
fn a_block_that_was_overwritten_before_its_turn_keeps_what_was_committed() {
    const LENGTH: u64 = 16 << 20;
    // One block at a time.
    let options = OpenOptions {
        write_back_depth: 1,
        write_back_run_blocks: 1,
        ..in_place()
    };
    let mut rig = Rig::open(Rig::format(LENGTH), &options, 1);
    rig.must(
        Transaction::new()
            .create_collection(C)
            .write(key("a"), 0, vec![0; 3 * 4096]),
        0,
    );
    rig.must(
        Transaction::new()
            .write(key("a"), 0, vec![1; 3 * 4096])
            .set_attr(key("b"), "x", vec![0; 5000]),
        1,
    );
    rig.settle();
    rig.device.set_completion(Completion::Held);
    rig.store.rest();
    assert_eq!(
        rig.device.in_flight(),
        2,
        "the first of three blocks is on its way to its place; the log's end is marked"
    );
    rig.must(
        Transaction::new().write(key("a"), 2 * 4096, vec![2; 4096]),
        2,
    );
    // Without a `request_commit`: nothing logs it.
    for _ in 0..100 {
        while rig.device.in_flight() > 0 {
            rig.device.complete(0);
        }
        rig.turn();
    }
    assert_eq!((rig.applied, rig.committed), (2, 1));
    let mut after = Rig::from_image(LENGTH, rig.device.live());
    assert_eq!(after.data(&key("a")), Ok(vec![1; 3 * 4096]));
    rig.device.set_completion(Completion::AtOnce);
    rig.settle();
    assert!(rig.store.usage().checkpoints > 0 && rig.store.usage().borders.replaced_in_cycle > 0);
    assert_eq!(
        rig.data(&key("a")),
        Ok([vec![1; 2 * 4096], vec![2; 4096]].concat())
    );
}

/// Looked-up records stayed as long as any read waited: with two jobs always running, as with many
/// concurrent reads, all records ever read stayed. A daemon whose clients only read grew without
/// limit.
#[test]
fn what_was_looked_up_for_reads_is_bounded_though_some_read_always_waits() {
    const OBJECTS: u64 = 30_000;
    let mut rig = Rig::open(
        Rig::format(64 << 20),
        &OpenOptions {
            cache_bytes: 2 << 10,
            ..options()
        },
        1,
    );
    rig.must(Transaction::new().create_collection(C), 0);
    for first in (0..OBJECTS).step_by(100) {
        let touch = |t: Transaction, n| t.set_attr(key(format!("o{n}")), "x", vec![0; 100]);
        rig.must(
            (first..first + 100).fold(Transaction::new(), touch),
            first / 100 + 1,
        );
    }
    rig.settle();
    rig.store.rest();
    rig.settle();
    let before = rig.store.usage().memory;
    let (mut out, mut most): (Vec<Job>, u64) = (Vec::new(), 0);
    for n in 0..OBJECTS {
        rig.store
            .read(Read::Stat(key(format!("o{n}"))), Token(1 << 40 | n));
        let earlier = std::mem::take(&mut out);
        rig.store.jobs(&mut out);
        assert!(!out.is_empty(), "its record is in the index");
        earlier
            .into_iter()
            .for_each(|job| rig.store.on_job(job.run()));
        most = most.max(rig.store.usage().memory);
    }
    out.into_iter().for_each(|job| rig.store.on_job(job.run()));
    rig.settle();
    assert!(most - before < 3 << 20, "{} bytes", most - before);
    let found = (0..OBJECTS).filter(|n| {
        matches!(
            rig.answers.get(&Token(1 << 40 | n)),
            Some(Ok(ReadReply::Stat(Some(_))))
        )
    });
    assert_eq!(found.count() as u64, OBJECTS, "each is answered");
}

/// (Planted by a reviewer.) An entry was written while a lookup of it was running; the index's
/// value was put into the cache, which is read before memory: reads found the overwritten value.
#[test]
fn an_entry_that_was_written_during_its_lookup_is_not_replaced_by_what_the_index_had() {
    let mut rig = Rig::fresh(1);
    rig.must(
        Transaction::new()
            .omap_set(key("o"), "k0", vec![1; 5000])
            .omap_set(key("o"), "k1", vec![1; 100]),
        1,
    );
    rig.settle();
    checkpoint(&mut rig);
    let mut rig = reopen(rig, &options());
    let read = |keys: &[&'static str]| {
        let keys = keys.iter().map(|key| Bytes::from(*key)).collect();
        Read::OmapGet {
            object: key("o"),
            keys,
        }
    };
    // The head and the number of the omap are looked up first, in jobs of their own.
    rig.store.read(read(&["none"]), Token(1 << 40));
    rig.settle();
    rig.store.read(read(&["k0", "k1"]), Token(2 << 40));
    let mut jobs = Vec::new();
    rig.store.jobs(&mut jobs);
    assert_eq!(jobs.iter().map(Job::name).collect::<Vec<_>>(), ["lookup"]);
    let late: Vec<JobDone> = jobs.into_iter().map(Job::run).collect();
    rig.must(
        Transaction::new()
            .omap_set(key("o"), "k0", vec![2; 100])
            .omap_remove(key("o"), "k1"),
        2,
    );
    late.into_iter().for_each(|done| rig.store.on_job(done));
    rig.settle();
    rig.store.read(read(&["k0", "k1"]), Token(3 << 40));
    rig.settle();
    for token in [2 << 40, 3 << 40] {
        let answer = rig.answers.remove(&Token(token));
        let Some(Ok(ReadReply::Omap { entries, .. })) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(
            entries,
            [(Bytes::from("k0"), Bytes::from(vec![2; 100]))],
            "{token:#x}"
        );
    }
}

/// Weighing an omap of 10⁷ entries takes longer than the interval between checkpoints beside a
/// large removal. Results from before a checkpoint were discarded and requested again: a clone, and
/// each write behind it, waited as long as the checkpoints continued.
#[test]
fn a_weight_from_before_a_checkpoint_counts_with_what_came_since() {
    let mut rig = Rig::fresh(1);
    rig.keeps_job = true;
    rig.must(
        Transaction::new().omap_set(key("o"), "k0", vec![0; 5000]),
        1,
    );
    rig.settle();
    checkpoint(&mut rig);
    rig.store.read(Read::Weight(key("o")), Token(1 << 40));
    let mut jobs = Vec::new();
    rig.store.jobs(&mut jobs);
    assert_eq!(jobs.iter().map(Job::name).collect::<Vec<_>>(), ["weigh"]);
    let late: Vec<JobDone> = jobs.drain(..).map(Job::run).collect();
    for n in 1..=2_u64 {
        rig.must(
            Transaction::new().omap_set(key("o"), format!("k{n}"), vec![1; 5000]),
            n + 1,
        );
        rig.store.request_commit();
        (0..50).for_each(|_| rig.turn());
        checkpoint(&mut rig);
    }
    rig.must(
        Transaction::new().omap_set(key("o"), "k3", vec![1; 3000]),
        4,
    );
    late.into_iter().for_each(|done| rig.store.on_job(done));
    rig.store.jobs(&mut jobs);
    assert!(jobs.iter().all(|job| job.name() != "weigh"), "it is known");
    rig.settle();
    let answer = rig.answers.remove(&Token(1 << 40));
    let Some(Ok(ReadReply::Weight(weight))) = answer else {
        panic!("{answer:?}")
    };
    assert!(weight > 16_000, "{weight} bytes");
    assert_eq!(
        rig.ask(Read::Weight(key("o"))),
        Ok(ReadReply::Weight(weight)),
        "as if it had been asked for now"
    );
}
