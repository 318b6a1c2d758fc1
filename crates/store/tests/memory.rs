//! The memory of the offline check: it must run where the daemon ran.

use crate::meter::held;
use crate::rig::*;
use nacre_store::testing::TestDevice;
use nacre_store::*;

const MIB: usize = 1 << 20;
/// The cache of the index's pages, and everything that does not grow with the store.
const FIXED: usize = 13 * MIB;

fn checked(device: &TestDevice) -> (Report, usize) {
    let blocking = device.blocking();
    let (report, most) = held(|| check(&blocking, CheckOptions::default()).expect("readable"));
    assert!(report.is_clean(), "{:?}", report.findings);
    (report, most)
}

/// F53: the check held every object that it had seen, and a part of the index besides: with 10⁷
/// objects it was killed for its memory, although every test of its findings had passed.
#[test]
fn the_check_holds_eight_bytes_of_an_object() {
    const OBJECTS: u64 = 100_000;
    const LENGTH: u64 = 512 << 20;
    let options = OpenOptions {
        salt: 1,
        ..OpenOptions::default()
    };
    let mut rig = Rig::open(Rig::format(LENGTH), &options, 1);
    rig.must(Transaction::new().create_collection(C), 0);
    let object = |n| key(format!("object-{n}"));
    for first in (0..OBJECTS).step_by(500) {
        let add = |t: Transaction, n| t.set_attr(object(n), "a", vec![n as u8; 300]);
        rig.must(
            (first..first + 500).fold(Transaction::new(), add),
            first / 500 + 1,
        );
    }
    rig.settle();
    let device = rig.device.clone();
    drop(rig);
    // All records are in the index: the check holds records that only the log has, as documented.
    drop(Rig::open(device.clone(), &options, 1));
    let (report, most) = checked(&device);
    assert_eq!(report.objects, OBJECTS);
    println!("{most} bytes for {OBJECTS} objects");
    // A growing vector takes up to three times its size.
    let allowed = FIXED + 3 * 8 * OBJECTS as usize + (LENGTH / 4096) as usize * 5 / 4;
    assert!(most < allowed, "{most} bytes, {allowed} are allowed");
}

/// F53: counting users in ordered maps and wider numbers took gigabytes for a device of a TiB.
#[test]
fn the_check_holds_a_byte_and_a_quarter_of_a_unit() {
    const LENGTH: u64 = 64 << 30;
    let device = Rig::format(LENGTH);
    drop(Rig::open(device.clone(), &options(), 1));
    let (_, most) = checked(&device);
    println!("{most} bytes for {} units", LENGTH / 4096);
    // The index is small, and its cache does not fill.
    let allowed = 2 * MIB + (LENGTH / 4096) as usize * 5 / 4;
    assert!(most < allowed, "{most} bytes, {allowed} are allowed");
}
