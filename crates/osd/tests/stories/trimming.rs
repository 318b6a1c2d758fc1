//! Stories of removed snapshots, and of the clones that go with them: see `pg/trim.rs`.

use super::company::Company;
use super::snapshots::{everywhere, read_at, remove, snapshot};
use nacre_store::ReadReply;
use nacre_types::SnapId;
use nacre_wire::msg::client::SubOp;

/// A pass listed every name of the PG, 256 of them every half second, and restarted with each
/// removed snapshot: with a million objects none was completed (F52).
#[test]
fn trimming_looks_at_clones_and_not_at_every_name() {
    let mut company = Company::new(2, 1, 2);
    company.limit(crate::Limits {
        page_objects: 2,
        ..crate::Limits::default()
    });
    for name in 0..60 {
        company
            .write(&format!("object-{name}"), b"one")
            .expect("written");
    }
    let snaps: Vec<SnapId> = ["monday", "tuesday", "wednesday"]
        .map(|name| snapshot(&mut company, name))
        .into();
    for name in 0..6 {
        company
            .write(&format!("object-{name}"), b"two")
            .expect("written");
    }
    let primary = company.acting()[0];
    company.wait(8000);
    let pages = |company: &mut Company| company.host(primary).osd.counters().borders.trim_pages;
    let before = pages(&mut company);
    remove(&mut company, snaps[1]);
    company.wait(2000);
    assert_eq!(
        everywhere(&mut company).len(),
        66,
        "the clones are of the others too"
    );
    remove(&mut company, snaps[0]);
    remove(&mut company, snaps[2]);
    company.wait(2000);
    assert_eq!(everywhere(&mut company).len(), 60, "all clones are gone");
    let read = pages(&mut company) - before;
    assert!((3..=9).contains(&read), "{read} pages of two clones");
}

/// A snapshot was removed while clones of another one were still to be trimmed. They were forgotten
/// until the next interval, and their space was not reclaimed.
#[test]
fn a_snapshot_that_is_removed_during_a_pass_leaves_nothing_behind() {
    for first_of_an_interval in [false, true] {
        let mut company = Company::new(3, 2, 3);
        company.write("a", b"one").expect("written");
        let monday = snapshot(&mut company, "monday");
        company.write("a", b"two").expect("written");
        company.write("b", b"one").expect("written");
        let tuesday = snapshot(&mut company, "tuesday");
        company.write("b", b"two").expect("written");
        company.wait(3000);
        assert_eq!(everywhere(&mut company).len(), 4, "a clone each");
        if first_of_an_interval {
            let member = company.acting()[2];
            let host = company.kill(member);
            remove(&mut company, monday);
            company.revive(host, 2);
        } else {
            remove(&mut company, monday);
        }
        // The pass for it has begun, and has done nothing yet.
        remove(&mut company, tuesday);
        company.wait(5000);
        let mut left = everywhere(&mut company);
        left.sort();
        assert_eq!(
            left,
            ["a", "b"],
            "first of an interval: {first_of_an_interval}"
        );
    }
}

/// An object's metadata could not be read when it was to be trimmed. Its place among those in
/// progress was never released, and no snapshot of its PG was trimmed any more.
#[test]
fn what_cannot_be_read_keeps_no_place_of_the_trimmer() {
    let mut company = Company::new(1, 1, 1);
    company.write("a", b"1").expect("written");
    let monday = snapshot(&mut company, "monday");
    company.write("a", b"2").expect("written");
    company.limit(crate::Limits {
        contexts: 0,
        ..crate::Limits::default()
    });
    company
        .write("b", b"what is known of a is forgotten")
        .expect("written");
    company.wait(500);
    company.host(0).held = Some(Vec::new());
    remove(&mut company, monday);
    for _ in 0..40 {
        company.wait(50);
        for event in company.host(0).held.iter_mut().flatten() {
            if let nacre_store::Event::Read(_, reply @ Ok(ReadReply::Stat(_))) = event {
                *reply = Err(nacre_store::ReadError::Corrupt {
                    offset: 0,
                    expected: 1,
                    found: 2,
                });
            }
        }
        company.host(0).release();
    }
    company.host(0).held = None;
    company.wait(1000);
    assert_eq!(
        everywhere(&mut company).len(),
        3,
        "it could not be looked at"
    );
    let tuesday = snapshot(&mut company, "tuesday");
    company.write("a", b"3").expect("written");
    remove(&mut company, tuesday);
    company.wait(3000);
    assert_eq!(
        everywhere(&mut company).len(),
        2,
        "neither is needed any more"
    );
}

/// An object's SnapSet was lost in a rollback, unnoticed until its daemon had dropped the object's
/// context: later snapshots then showed the contents after the rollback.
#[test]
fn a_rollback_takes_no_other_snapshot_along() {
    let mut company = Company::new(3, 2, 3);
    company.write("a", b"one").expect("written");
    let monday = snapshot(&mut company, "monday");
    company.write("a", b"two").expect("written");
    let tuesday = snapshot(&mut company, "tuesday");
    company.write("a", b"three").expect("written");
    company
        .op("a", vec![SubOp::Rollback { snap: monday }], &[])
        .expect("rolled back");
    let _dead = company.kill(company.acting()[0]);
    company.wait(2000);
    assert_eq!(company.read("a"), Ok(b"one".to_vec()));
    assert_eq!(read_at(&mut company, "a", monday), Ok(b"one".to_vec()));
    assert_eq!(read_at(&mut company, "a", tuesday), Ok(b"two".to_vec()));
}
