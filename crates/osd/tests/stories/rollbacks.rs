//! Stories of rollbacks, and of locks on objects with snapshots.

use super::company::Company;
use super::snapshots::{NOT_FOUND, everywhere, listed, lock, read_at, remove, snapshot, stored};
use nacre_types::{ClientId, Name};
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};

#[test]
fn a_rollback_is_a_write_of_what_was() {
    let mut company = Company::new(3, 2, 3);
    let back = |company: &mut Company, snap| company.op("a", vec![SubOp::Rollback { snap }], &[]);
    let nothing = snapshot(&mut company, "nothing");
    company.write("a", b"one").expect("written");
    let attr = |value: &'static str| {
        vec![SubOp::SetAttr {
            name: "x".into(),
            value: value.into(),
        }]
    };
    company.op("a", attr("1"), &[]).expect("set");
    company
        .op(
            "a",
            vec![SubOp::OmapSet {
                entries: vec![("k".into(), "1".into())],
            }],
            &[],
        )
        .expect("set");
    company
        .op(
            "a",
            vec![SubOp::Watch {
                cookie: 7,
                timeout_ms: 60_000,
            }],
            &[],
        )
        .expect("watched");
    let one = snapshot(&mut company, "one");
    assert_eq!(back(&mut company, one), Ok(vec![]), "it is still that");
    assert_eq!(
        everywhere(&mut company),
        ["a:2", "a"],
        "an update all the same"
    );
    company.write("a", b"longer two").expect("written");
    company.op("a", attr("2"), &[]).expect("set");
    company
        .op("a", vec![SubOp::OmapClear {}], &[])
        .expect("cleared");
    let two = snapshot(&mut company, "two");
    assert_eq!(back(&mut company, one), Ok(vec![]));
    let is_one = |company: &mut Company| {
        assert_eq!(company.read("a"), Ok(b"one".to_vec()));
        let ops = vec![
            SubOp::GetAttr { name: "x".into() },
            SubOp::OmapGet {
                keys: vec!["k".into()],
            },
            SubOp::ListWatchers {},
        ];
        let all = company.send("a", ops, &[], 0);
        company.await_answer(&all).expect("answered");
        let results = company.results(&all);
        let [
            SubReply::Value { value },
            SubReply::Entries { entries, .. },
            SubReply::Watchers { watchers },
        ] = &results[..]
        else {
            panic!("{results:?}")
        };
        assert_eq!(
            (&value[..], entries.len(), watchers.len()),
            (&b"1"[..], 1, 1),
            "watches are the live object's"
        );
    };
    is_one(&mut company);
    assert_eq!(
        read_at(&mut company, "a", two),
        Ok(b"longer two".to_vec()),
        "what was rolled back is in its snapshot"
    );
    assert_eq!(back(&mut company, two), Ok(vec![]));
    assert_eq!(company.read("a"), Ok(b"longer two".to_vec()));
    assert_eq!(back(&mut company, one), Ok(vec![]));
    is_one(&mut company);
    // A guard may precede it, and stops it.
    let guarded = vec![
        SubOp::CompareData {
            offset: 0,
            length: 3,
        },
        SubOp::Rollback { snap: two },
    ];
    assert_eq!(
        company.op("a", guarded.clone(), b"xxx"),
        Err(OpFailure::Guard { index: 0 })
    );
    assert_eq!(company.op("a", guarded, b"one"), Ok(vec![]));
    assert_eq!(back(&mut company, nothing), Ok(vec![]), "it was not there");
    assert_eq!(
        (company.read("a"), listed(&mut company)),
        (NOT_FOUND, vec![])
    );
    assert_eq!(
        back(&mut company, nothing),
        NOT_FOUND,
        "it is not there now, either"
    );
    assert_eq!(
        back(&mut company, two),
        Ok(vec![]),
        "a deleted object comes back"
    );
    assert_eq!(company.read("a"), Ok(b"longer two".to_vec()));
    assert_eq!(everywhere(&mut company), ["a:2", "a:3", "a"]);
    let last = company.send("a", vec![SubOp::Rollback { snap: two }], &[], 0);
    company.await_answer(&last).expect("rolled back");
    remove(&mut company, two);
    company.replies.clear();
    company.resend(&last, &[]);
    company
        .await_answer(&last)
        .expect("it has happened, whatever was removed since");
    assert!(matches!(
        back(&mut company, two),
        Err(OpFailure::Invalid { .. })
    ));
    let mixed = vec![SubOp::Rollback { snap: one }, SubOp::Append { length: 1 }];
    assert!(matches!(
        company.op("a", mixed, b"x"),
        Err(OpFailure::Invalid { .. })
    ));
}

#[test]
fn a_lock_taken_with_a_write_that_clones_has_the_objects_version_as_its_token() {
    let mut company = Company::new(3, 2, 3);
    company.write("a", b"one").expect("written");
    let monday = snapshot(&mut company, "monday");
    let both = company.send("a", vec![lock(), SubOp::WriteFull { length: 3 }], b"two", 0);
    let (version, _) = company.await_answer(&both).expect("granted");
    assert!(
        matches!(company.results(&both)[0], SubReply::Locked { token, .. } if token == version)
    );
    assert_eq!(read_at(&mut company, "a", monday), Ok(b"one".to_vec()));
    // A lock alone is no change that a snapshot preserves.
    snapshot(&mut company, "tuesday");
    company
        .op(
            "a",
            vec![SubOp::Unlock {
                name: "l".into(),
                cookie: 1,
            }],
            &[],
        )
        .expect("unlocked");
    company.op("a", vec![lock()], &[]).expect("locked");
    assert_eq!(everywhere(&mut company), ["a:1", "a"]);
    let clone = stored(&mut company, 0).swap_remove(0);
    let names: Vec<Name> = clone.1.iter().map(|(name, _)| Name::copy(name)).collect();
    assert_eq!(
        names,
        [Name::from("_")],
        "claims and snapshots are the live object's"
    );
}

/// An object created by a lock alone did not record which snapshots it is newer than. A read at one
/// of those found it, and a rollback to that left it there.
#[test]
fn an_object_that_a_lock_makes_was_not_there_before() {
    let mut company = Company::new(3, 2, 3);
    let monday = snapshot(&mut company, "monday");
    company.op("a", vec![lock()], &[]).expect("locked");
    assert_eq!(company.read("a"), Ok(vec![]), "it is there now");
    assert_eq!(
        read_at(&mut company, "a", monday),
        NOT_FOUND,
        "it was not there on monday"
    );
    company
        .op("a", vec![SubOp::Rollback { snap: monday }], &[])
        .expect("rolled back");
    assert_eq!(
        (company.read("a"), listed(&mut company)),
        (NOT_FOUND, vec![])
    );
}

/// A rollback kept locks and watches in memory and lost them in the store. The next primary granted
/// a lock that was held, and did not inform watchers.
#[test]
fn locks_and_watches_outlive_a_rollback_and_the_primary() {
    let mut company = Company::new(3, 2, 3);
    company.write("a", b"one").expect("written");
    company.op("a", vec![lock()], &[]).expect("locked");
    company
        .op(
            "a",
            vec![SubOp::Watch {
                cookie: 7,
                timeout_ms: 60_000,
            }],
            &[],
        )
        .expect("watched");
    let monday = snapshot(&mut company, "monday");
    company.write("a", b"two").expect("written");
    company
        .op("a", vec![SubOp::Rollback { snap: monday }], &[])
        .expect("rolled back");
    let _dead = company.kill(company.acting()[0]);
    company.wait(2000);
    assert_eq!(company.read("a"), Ok(b"one".to_vec()));
    let other = company.request(ClientId(10), "a", vec![lock()], 0);
    company.resend(&other, &[]);
    let answer = company.await_answer(&other);
    assert!(
        matches!(&answer, Err(OpFailure::LockHeld { owner, .. }) if owner.client == ClientId(9)),
        "{answer:?}"
    );
    let all = company.send("a", vec![SubOp::ListWatchers {}], &[], 0);
    company.await_answer(&all).expect("answered");
    let [SubReply::Watchers { watchers }] = &company.results(&all)[..] else {
        panic!("watchers")
    };
    assert_eq!(watchers.len(), 1);
}
