//! Nearly full and full: transactions are refused before they have any effect, deletes always work,
//! and space is reclaimed.

use crate::rig::*;
use nacre_store::*;

/// Submits until the store is full; returns the number of accepted transactions.
fn fill(rig: &mut Rig, from: u64, make: impl Fn(u64) -> Transaction) -> u64 {
    let (mut number, mut refused) = (from, 0);
    loop {
        match rig.store.submit(make(number), Token(number)) {
            Ok(()) => (number, refused) = (number + 1, 0),
            Err(SubmitError::Busy) => {
                refused += 1;
                assert!(refused < 20_000, "busy for ever: {:?}", rig.store.usage());
                rig.store.request_commit();
                rig.turn();
            }
            Err(SubmitError::Full { needed, available }) => {
                assert!(needed > available, "{needed} {available}");
                // Units freed by work in progress may still become available.
                if !rig.store.is_busy() {
                    return number - from;
                }
                rig.settle();
            }
            Err(error) => panic!("{error}"),
        }
        assert!(number - from < 100_000, "never full");
    }
}

fn delete(rig: &mut Rig, from: u64, count: u64) {
    for number in 0..count {
        rig.must(
            Transaction::new().remove(key(format!("f{number}"))),
            from + number,
        );
    }
    rig.settle();
}

fn cycle(make: impl Fn(u64, u64) -> Transaction) {
    let mut rig = Rig::fresh(3);
    let before = rig.store.usage();
    let mut token = 1;
    let mut first = None;
    for _ in 0..3 {
        let start = token;
        let taken = fill(&mut rig, token, |number| make(number, number - start));
        token += taken;
        rig.settle();
        assert!(
            rig.store.usage().free < 128 << 10,
            "{:?}",
            rig.store.usage()
        );
        // Everything is still readable, and reading needs no space.
        assert!(rig.data(&key("f0")).is_ok());
        let device = rig.device.clone();
        drop(rig);
        assert_sound(&device);
        rig = Rig::open(device, &options(), token);
        delete(&mut rig, token, taken);
        token += taken;
        // Opening compacts an index that is mostly holes.
        let device = rig.device.clone();
        drop(rig);
        rig = Rig::open(device, &options(), token);
        let first = *first.get_or_insert(taken);
        assert!(
            taken * 10 >= first * 8,
            "space is lost: {taken} after {first}"
        );
        assert!(taken > 50, "{taken}");
    }
    let after = rig.store.usage();
    assert!(after.free * 10 >= before.free * 8, "{before:?} {after:?}");
    let device = rig.device.clone();
    drop(rig);
    assert_sound(&device);
}

#[test]
fn large_objects_fill_the_device_and_leave_it() {
    cycle(|number, n| {
        Transaction::new().write(key(format!("f{n}")), 0, vec![number as u8; 100_000])
    });
}

#[test]
fn block_sized_objects_fill_the_device_and_leave_it() {
    cycle(|number, n| Transaction::new().write(key(format!("f{n}")), 0, vec![number as u8; 4096]));
}

#[test]
fn tiny_objects_fill_the_index_and_leave_it() {
    cycle(|number, n| {
        Transaction::new().set_attr(key(format!("f{n}")), "a", vec![number as u8; 3000])
    });
}
