//! Stories for planted bugs ([`nacre_store::Mutant`]) that random workloads would take long to
//! find: each story passes, and fails with its bug (`mutants.rs`).

use crate::rig::*;
use nacre_store::testing::{Completion, Image, PowerCuts, TestDevice};
use nacre_store::*;

/// The store after a crash at this moment.
fn crashed(rig: &Rig) -> TestDevice {
    TestDevice::with_image(Device::length(&rig.device), rig.device.live())
}

/// Enough transactions for one checkpoint.
fn checkpoint(rig: &mut Rig, first: u64) {
    let before = rig.store.usage().checkpoints;
    for number in first..first + 20 {
        rig.must(
            Transaction::new().set_attr(key(format!("x{number}")), "a", vec![1; 3000]),
            number,
        );
        rig.settle();
    }
    assert!(rig.store.usage().checkpoints > before);
}

/// Runs of units that extend over several groups of the allocator are taken and freed in all of
/// them: in checkpoints and by replay.
pub fn runs_go_over_the_borders_of_allocation_groups() {
    // In the log only.
    let late = OpenOptions {
        memtable_bytes: 1 << 20,
        ..options()
    };
    let mut rig = Rig::open(Rig::format(64 << 20), &late, 1);
    rig.must(Transaction::new().create_collection(C), 0);
    rig.must(Transaction::new().write(key("a"), 0, vec![7; 20 << 20]), 1);
    rig.settle();
    assert_eq!(rig.store.usage().checkpoints, 0);
    let device = crashed(&rig);
    drop(Rig::open(device.clone(), &options(), 1));
    assert_sound(&device);
    // In checkpoints.
    let mut rig = Rig::open(Rig::format(64 << 20), &options(), 1);
    rig.must(Transaction::new().create_collection(C), 0);
    rig.must(Transaction::new().write(key("a"), 0, vec![7; 40 << 20]), 1);
    rig.settle();
    checkpoint(&mut rig, 2);
    assert_sound(&crashed(&rig));
    rig.must(Transaction::new().remove(key("a")), 22);
    rig.settle();
    let device = crashed(&rig);
    drop(Rig::open(device.clone(), &options(), 1));
    assert_sound(&device);
    checkpoint(&mut rig, 23);
    assert_sound(&crashed(&rig));
}

/// CEPH-57: a block that is freed before it was written back never is.
pub fn what_was_freed_is_not_written_back() {
    let options = OpenOptions {
        deferred_bytes: 1 << 20,
        ..in_place()
    };
    let mut rig = Rig::open(Rig::format(16 << 20), &options, 1);
    rig.must(Transaction::new().create_collection(C), 0);
    for number in 1..=20 {
        rig.must(
            Transaction::new().write(
                key(format!("o{}", number % 10)),
                0,
                vec![number as u8; 4096],
            ),
            number,
        );
    }
    rig.settle();
    for number in 0..10 {
        rig.must(
            Transaction::new().remove(key(format!("o{number}"))),
            21 + number,
        );
    }
    rig.settle();
    rig.store.rest();
    rig.settle();
    let usage = rig.store.usage();
    assert_eq!(
        (usage.blocks_written_back, usage.blocks_cancelled),
        (0, 10),
        "{usage:?}"
    );
}

/// A checkpoint that does not end limits the transactions accepted and applied meanwhile: memory is
/// finite.
pub fn a_checkpoint_that_lasts_bounds_what_is_in_memory() {
    let mut rig = Rig::open(Rig::format(64 << 20), &options(), 1);
    rig.must(Transaction::new().create_collection(C), 0);
    rig.settle();
    let (mut events, mut jobs, mut held, mut token) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let mut refused = 0;
    while refused < 100 {
        let t = Transaction::new().set_attr(
            key(format!("o{}", token % 500)),
            "a",
            vec![token as u8; 2000],
        );
        match rig.store.submit(t, Token(token)) {
            Ok(()) => (refused, token) = (0, token + 1),
            Err(SubmitError::Busy) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(token < 1500, "no bound: {:?}", rig.store.usage());
        rig.store.request_commit();
        rig.store.poll(&mut events);
        rig.store.jobs(&mut jobs);
        for job in jobs.drain(..) {
            // Checkpoints never end.
            if job.name() == "checkpoint" {
                held.push(job)
            } else {
                rig.store.on_job(job.run())
            }
        }
    }
    let applied = events
        .iter()
        .filter(|event| matches!(event, Event::Applied(_)))
        .count();
    let limits = options();
    assert!(
        applied * 2000 < 8 * limits.memtable_bytes,
        "{applied} applied ahead of a checkpoint"
    );
    assert!(
        (token as usize - applied) * 2000 <= limits.queue_bytes_max,
        "{token} taken, {applied} applied"
    );
}

/// The size of an omap is asked again after a checkpoint: a clone without space is refused, and
/// nothing fails.
pub fn a_clone_without_room_is_refused() {
    let mut rig = Rig::open(Rig::format(32 << 20), &options(), 1);
    rig.must(
        Transaction::new()
            .create_collection(C)
            .omap_set(key("a"), "k", "v"),
        0,
    );
    rig.settle();
    rig.must(Transaction::new().clone_object(key("a"), key("b")), 1);
    let mut token = 1;
    for n in 0..60_u64 {
        token += 1;
        rig.must(
            Transaction::new().omap_set(key("a"), format!("k{n}"), vec![n as u8; 60_000]),
            token,
        );
        rig.settle();
        if n == 30 {
            // Weighed while memory has some of it.
            token += 1;
            rig.must(Transaction::new().clone_object(key("a"), key("b")), token);
            rig.settle();
        }
    }
    // Its copy may cost the index twice as much.
    let omap = 60 * 60_000 * 5 / 3;
    let mut filler = 0;
    while rig.store.usage().free > omap {
        (token, filler) = (token + 1, filler + 1);
        rig.must(
            Transaction::new().write(key(format!("f{filler}")), 0, vec![1; 200_000]),
            token,
        );
        rig.settle();
    }
    let clone = Transaction::new().clone_object(key("a"), key("c"));
    for _ in 0..10_000 {
        match rig.store.submit(clone.clone(), Token(token + 1)) {
            Err(SubmitError::Busy) => {
                rig.store.request_commit();
                rig.turn();
            }
            Err(SubmitError::Full { .. }) => return,
            other => panic!("{other:?} with {:?}", rig.store.usage()),
        }
    }
    panic!("busy for ever");
}

/// Values that each take many pages of the index, until there is no space: no accepted one fails
/// the store.
pub fn large_values_fill_the_index() {
    let mut rig = Rig::open(
        Rig::format(48 << 20),
        &OpenOptions {
            salt: 1,
            ..OpenOptions::default()
        },
        1,
    );
    rig.must(Transaction::new().create_collection(C), 0);
    let mut token = 0;
    for life in 0..3 {
        let mut full = 0;
        for n in 0.. {
            let t = Transaction::new().omap_set(key(format!("o{n}")), "k", vec![life; 150_000]);
            match rig.store.submit(t, Token(token + 1)) {
                Ok(()) => token += 1,
                Err(SubmitError::Busy) => {}
                Err(SubmitError::Full { .. }) if rig.store.is_busy() => {}
                Err(SubmitError::Full { .. }) => full += 1,
                Err(error) => panic!("{error}"),
            }
            if full > 20 {
                break;
            }
            assert!(n < 5000, "never full");
            rig.store.request_commit();
            rig.turn();
        }
        rig.settle();
        let device = rig.device.clone();
        drop(rig);
        assert_sound(&device);
        rig = Rig::open(
            device,
            &OpenOptions {
                salt: 2,
                ..OpenOptions::default()
            },
            1,
        );
        for n in 0..5000 {
            rig.must(Transaction::new().remove(key(format!("o{n}"))), n + 1);
            token = n + 1;
        }
        rig.settle();
    }
}

/// Completes all operations in flight on the device except its first three, which are reads, until
/// nothing more happens.
fn all_but_the_reads(rig: &mut Rig) {
    for _ in 0..200 {
        rig.store.request_commit();
        rig.turn();
        while rig.device.in_flight() > 3 {
            rig.device.complete(3);
        }
        rig.turn();
    }
}

/// The blocks of a read in flight stay unchanged: they are not overwritten in place, not reused,
/// not discarded.
pub fn a_read_under_way_keeps_its_blocks() {
    let options = OpenOptions {
        deferred_bytes: 0,
        discard_bytes_min: 4096,
        ..in_place()
    };
    for removed in [false, true] {
        let mut rig = Rig::open(Rig::format(16 << 20), &options, 1);
        rig.must(Transaction::new().create_collection(C), 0);
        // Two separate runs of blocks.
        for (number, name, offset) in [(1, "a", 0), (2, "b", 0), (3, "a", 4096)] {
            rig.must(
                Transaction::new().write(key(name), offset, vec![number as u8; 4096]),
                number,
            );
            rig.settle();
        }
        rig.device.set_completion(Completion::Held);
        let (first, second) = (Token(1 << 40), Token(2 << 40));
        rig.store.read(
            Read::Data {
                object: key("a"),
                offset: 0,
                length: 8192,
            },
            first,
        );
        let t = match removed {
            true => Transaction::new().remove(key("a")),
            false => Transaction::new().write(key("a"), 4096, vec![9; 4096]),
        };
        rig.must(t, 4);
        // It begins later, and reads something else.
        rig.store.read(
            Read::Data {
                object: key("b"),
                offset: 0,
                length: 4096,
            },
            second,
        );
        assert_eq!(rig.device.in_flight(), 3, "two parts of one, and another");
        for number in 5..60 {
            // Enough for checkpoints, and for a demand for freed units; until one of them waits for
            // the read.
            if !step_beside_the_read(&mut rig, number) {
                break;
            }
        }
        all_but_the_reads(&mut rig);
        let borders = rig.store.usage().borders;
        assert!(borders.write_back_after_read > 0 || removed, "{borders:?}");
        assert!(borders.freed_after_read > 0 || !removed, "{borders:?}");
        assert!(!rig.answers.contains_key(&first), "it has not ended");
        rig.device.complete(0);
        rig.device.set_completion(Completion::AtOnce);
        rig.settle();
        match rig.answers.remove(&first) {
            Some(Ok(ReadReply::Data(data))) => {
                assert_eq!(data.concat(), [[1; 4096], [3; 4096]].concat())
            }
            other => panic!("removed: {removed}: {other:?}"),
        }
        let want = if removed {
            Err(ReadError::NotFound)
        } else {
            Ok([[1; 4096], [9; 4096]].concat())
        };
        assert_eq!(rig.data(&key("a")), want);
    }
}

/// A transaction during two long reads; `false`: the store is busy.
fn step_beside_the_read(rig: &mut Rig, number: u64) -> bool {
    let t = Transaction::new().set_attr(key("x"), "a", vec![number as u8; 1500]);
    let t = t.write(key(format!("n{number}")), 0, vec![number as u8; 20_000]);
    if rig.store.submit(t, Token(number)).is_err() {
        return false;
    }
    for _ in 0..6 {
        rig.store.request_commit();
        rig.turn();
        while rig.device.in_flight() > 3 {
            rig.device.complete(3);
        }
    }
    true
}

const LOG: u64 = 256 << 10;

/// Position and offset in the ring of each group of the log's last epoch, in order.
fn groups(image: &Image, ring: u64) -> Vec<(u64, u64)> {
    let number = |block: &[u8], at: usize| {
        u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"))
    };
    let mut all = Vec::new();
    for at in (0..ring).step_by(4096) {
        let mut block = [0; 4096];
        image.read(LOG + at, &mut block);
        if block.starts_with(b"NCWL") && number(&block, 16) % ring == at {
            all.push((number(&block, 8), number(&block, 16)));
        }
    }
    let epoch = all.iter().map(|(epoch, _)| *epoch).max();
    let mut all: Vec<u64> = all
        .into_iter()
        .filter(|(e, _)| Some(*e) == epoch)
        .map(|(_, at)| at)
        .collect();
    all.sort_unstable();
    all.into_iter()
        .map(|position| (position, position % ring))
        .collect()
}

fn opens(length: u64, image: Image, options: &OpenOptions) -> Result<(), OpenError> {
    let device = TestDevice::with_image(length, image);
    Store::open(device.clone(), device.blocking(), options).map(drop)
}

/// A log that has wrapped: the last group before the ring's end is damaged, and those after it, at
/// the ring's beginning, prove that it was acknowledged.
pub fn damage_just_before_the_wrap_is_no_end_of_the_log() {
    let options = OpenOptions {
        memtable_bytes: 1 << 20,
        memtable_records: Some(256),
        ..options()
    };
    let device = TestDevice::new(16 << 20);
    let ring = 256 << 10;
    format(
        &device.blocking(),
        &FormatOptions {
            wal_bytes: Some(ring),
            ..FormatOptions::default()
        },
    )
    .expect("healthy");
    let mut rig = Rig::open(device, &options, 1);
    rig.must(Transaction::new().create_collection(C), 0);
    let (mut tried, mut since) = (0, (0, 0));
    for number in 1..2000 {
        rig.must(
            Transaction::new().set_attr(key("a"), "n", number.to_string()),
            number,
        );
        rig.settle();
        let checkpoints = rig.store.usage().checkpoints;
        since = if since.0 == checkpoints {
            (checkpoints, since.1 + 1)
        } else {
            (checkpoints, 0)
        };
        let live = rig.device.live();
        let all = groups(&live, ring);
        let wrapped = all
            .iter()
            .rev()
            .take_while(|(_, at)| *at < ring / 2)
            .count();
        if wrapped != 3 || since.1 < 8 {
            continue;
        }
        let (_, at) = all[all.len() - 1 - wrapped];
        assert!(at > ring / 2, "the last one before the wrap");
        let mut image = live;
        image.write(LOG + at + 100, &[0xee; 8]);
        let opened = opens(16 << 20, image, &options);
        assert_eq!(opened, Err(OpenError::LogDamaged { at: LOG + at }));
        tried += 1;
        if tried == 2 {
            return;
        }
    }
    panic!("{tried} wraps");
}

/// A damaged group that is longer than the part read at once: later ones still prove that it was
/// acknowledged.
pub fn damage_of_a_long_group_is_no_end_of_the_log() {
    let options = OpenOptions {
        deferred_write_max: 64 << 10,
        deferred_transaction_max: Some(1 << 20),
        deferred_bytes: 4 << 20,
        memtable_bytes: 1 << 20,
        ..in_place()
    };
    let device = TestDevice::new(32 << 20);
    let ring = 8 << 20;
    format(
        &device.blocking(),
        &FormatOptions {
            wal_bytes: Some(ring),
            ..FormatOptions::default()
        },
    )
    .expect("healthy");
    let mut rig = Rig::open(device, &options, 1);
    rig.must(Transaction::new().create_collection(C), 0);
    rig.settle();
    // Existing blocks are overwritten in place.
    let long = (0..6).fold(Transaction::new(), |t, n| {
        t.write(key(format!("{n}")), 0, vec![n; 60_000])
    });
    for number in 1..=2 {
        rig.must(long.clone(), number);
        rig.settle();
    }
    rig.must(Transaction::new().touch(key("behind")), 3);
    rig.settle();
    let mut image = rig.device.live();
    let all = groups(&image, ring);
    let [.., (long, at), (behind, _)] = all[..] else {
        panic!("{all:?}")
    };
    assert!(behind - long > 300 << 10, "{all:?}");
    image.write(LOG + at + 8, &[0xee; 8]);
    assert_eq!(
        opens(32 << 20, image, &options),
        Err(OpenError::LogDamaged { at: LOG + at })
    );
}

/// If the last group of a log, or a block beside it, was damaged, the group was taken for one that
/// had never been acknowledged: committed data was silently lost. In an idle store this is detected
/// as damage: of a record when the store is opened, of a block when it is read.
pub fn damage_at_the_end_of_a_log_at_rest_is_damage() {
    for stops in [false, true] {
        damage_at_the_end(stops);
    }
}

fn damage_at_the_end(stops: bool) {
    let mut rig = Rig::fresh(1);
    for number in 1..=3 {
        rig.must(
            Transaction::new().write(key("a"), 0, vec![number as u8; 4096]),
            number,
        );
        rig.settle();
    }
    if stops {
        assert!(!rig.store.mark_end(), "it is on its way");
    } else {
        rig.store.rest();
    }
    rig.settle();
    let flushes = rig.store.usage().flushes;
    rig.store.rest();
    assert!(rig.store.mark_end());
    rig.settle();
    assert_eq!(rig.store.usage().flushes, flushes, "once");
    let live = rig.device.live();
    let all = groups(&live, 1 << 20);
    let [.., (_, last), _] = all[..] else {
        panic!("{all:?}")
    };
    let mut image = live.clone();
    image.write(LOG + last + 70, &[0xee; 8]);
    assert_eq!(
        opens(16 << 20, image, &options()),
        Err(OpenError::LogDamaged { at: LOG + last })
    );
    let mut image = live.clone();
    let blocks = (0..4096).map(|unit| unit * 4096).filter(|&at| {
        let mut block = vec![0; 4096];
        live.read(at, &mut block);
        block == [3; 4096]
    });
    for at in blocks {
        image.write(at + 7, &[9]);
    }
    let mut after = Rig::from_image(16 << 20, image);
    let found = after.data(&key("a"));
    assert!(
        matches!(found, Err(ReadError::Corrupt { .. })),
        "it was committed, and is damaged: {found:?} ({stops})"
    );
}

/// An unreadable block is partly overwritten: the owner of the object is informed before any read,
/// of that object only.
pub fn what_an_overwrite_loses_is_told() {
    let mut rig = Rig::fresh(1);
    rig.must(
        Transaction::new()
            .write(key("a"), 0, vec![1; 20_000])
            .write(key("b"), 0, vec![2; 20_000]),
        1,
    );
    rig.settle();
    for at in rig.device.data_blocks(1 << 20) {
        rig.device.make_unreadable(at);
    }
    rig.must(
        Transaction::new()
            .write(key("a"), 5000, vec![3; 10])
            .write(key("b"), 4096, vec![3; 4096]),
        2,
    );
    rig.settle();
    assert_eq!(rig.lost, [(2, key("a"))]);
}

/// A transaction with many blocks writes them before its group, whose record is short. A group that
/// the device commits in one operation makes only its own writes durable: this one must be flushed.
pub fn blocks_written_before_their_group_are_flushed_with_it() {
    let mut rig = Rig::fresh(1);
    let mut cuts = PowerCuts::new(rig.device.record());
    rig.must(
        Transaction::new().write(key("large"), 0, vec![7; 20 * 4096]),
        1,
    );
    while rig.committed == 0 {
        rig.store.request_commit();
        rig.turn();
    }
    for step in rig.device.steps() {
        cuts.step(&step);
    }
    let mut after = Rig::from_image(16 << 20, cuts.image(|_, _| false));
    assert_eq!(after.data(&key("large")), Ok(vec![7; 20 * 4096]));
}

mod tests {
    #[test]
    fn blocks_written_before_their_group_are_flushed_with_it() {
        super::blocks_written_before_their_group_are_flushed_with_it();
    }
    #[test]
    fn damage_at_the_end_of_a_log_at_rest_is_damage() {
        super::damage_at_the_end_of_a_log_at_rest_is_damage();
    }
    #[test]
    fn what_an_overwrite_loses_is_told() {
        super::what_an_overwrite_loses_is_told();
    }
    #[test]
    fn runs_go_over_the_borders_of_allocation_groups() {
        super::runs_go_over_the_borders_of_allocation_groups();
    }
    #[test]
    fn what_was_freed_is_not_written_back() {
        super::what_was_freed_is_not_written_back();
    }
    #[test]
    fn a_checkpoint_that_lasts_bounds_what_is_in_memory() {
        super::a_checkpoint_that_lasts_bounds_what_is_in_memory();
    }
    #[test]
    fn a_clone_without_room_is_refused() {
        super::a_clone_without_room_is_refused();
    }
    #[test]
    fn large_values_fill_the_index() {
        super::large_values_fill_the_index();
    }
    #[test]
    fn a_read_under_way_keeps_its_blocks() {
        super::a_read_under_way_keeps_its_blocks();
    }
    #[test]
    fn damage_just_before_the_wrap_is_no_end_of_the_log() {
        super::damage_just_before_the_wrap_is_no_end_of_the_log();
    }
    #[test]
    fn damage_of_a_long_group_is_no_end_of_the_log() {
        super::damage_of_a_long_group_is_no_end_of_the_log();
    }
}
