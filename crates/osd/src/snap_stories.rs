//! Stories of snapshots, rollback, trimming and copying on whole daemons: see `pg/snapshots.rs`,
//! `pg/trim.rs`, `pg/copy.rs`.

use crate::company::Company;
use crate::key;
use crate::stories::PG;
use nacre_object::snaps;
use nacre_store::{ObjectStore, Read, ReadReply};
use nacre_types::{ClientId, Name, ObjectId, SnapId};
use nacre_wire::Message;
use nacre_wire::map::{Change, Pool, SnapMode};
use nacre_wire::msg::client::{OpFailure, OpRequest, SnapContext, SubOp, SubReply};
use nacre_wire::msg::replication::Effect;

type Attrs = Vec<(bytes::Bytes, bytes::Bytes)>;
type Answer = Result<Vec<u8>, OpFailure>;

const NOT_FOUND: Answer = Err(OpFailure::NotFound {});

pub(crate) fn snapshot(company: &mut Company, name: &str) -> SnapId {
    let snap = SnapId(company.monitors.map.pools[&PG.pool].snaps.last.0 + 1);
    company.commit(vec![Change::SnapCreate {
        pool: PG.pool,
        snap,
        name: name.into(),
    }]);
    snap
}
pub(crate) fn remove(company: &mut Company, snap: SnapId) {
    company.commit(vec![Change::SnapRemove {
        pool: PG.pool,
        snap,
    }]);
}
fn ask(company: &mut Company, object: &str, snap: SnapId, ops: Vec<SubOp>) -> OpRequest {
    let mut request = company.request(ClientId(9), object, ops, 0);
    request.object.snapshot = snap;
    company.resend(&request, &[]);
    request
}
fn read_at(company: &mut Company, object: &str, snap: SnapId) -> Answer {
    let request = ask(
        company,
        object,
        snap,
        vec![SubOp::Read {
            offset: 0,
            length: 1 << 16,
        }],
    );
    company.await_answer(&request).map(|(_, data)| data)
}
fn listed(company: &mut Company) -> Vec<String> {
    listed_by(company, 1000)
}
/// The complete listing, in pages of `limit` names.
fn listed_by(company: &mut Company, limit: u32) -> Vec<String> {
    let (mut all, mut next) = (Vec::new(), Some(Default::default()));
    while let Some(after) = next {
        let request = company.send("", vec![SubOp::ListObjects { after, limit }], &[], 0);
        company.await_answer(&request).expect("answered");
        let [
            SubReply::Objects {
                objects,
                next: more,
            },
        ] = &company.results(&request)[..]
        else {
            panic!("a listing")
        };
        all.extend(objects.iter().map(ToString::to_string));
        next = more.clone();
    }
    all
}
fn lock() -> SubOp {
    SubOp::Lock {
        name: "l".into(),
        cookie: 1,
        shared: false,
        lease_ms: 0,
        description: String::new(),
    }
}
fn eight_groups(company: &mut Company) {
    let pool = Pool {
        pg_num: 8,
        pgp_num: 8,
        ..company.monitors.map.pools[&PG.pool].clone()
    };
    company.commit(vec![Change::PoolSet {
        pool: PG.pool,
        settings: pool,
    }]);
    company.wait(3000);
}
fn read_store(company: &mut Company, osd: u32, read: Read) -> ReadReply {
    let host = company.host(osd);
    host.store.read(read, nacre_store::Token(u64::MAX));
    let mut events = Vec::new();
    host.store.poll(&mut events);
    match events.pop() {
        Some(nacre_store::Event::Read(_, Ok(reply))) => reply,
        other => panic!("{other:?}"),
    }
}
/// Names, attributes and data of all objects of the PG at a daemon.
fn stored(company: &mut Company, osd: u32) -> Vec<(String, Attrs, Vec<u8>)> {
    let (from, to) = key::range(0, 1);
    let collection = key::collection(PG.pool, PG.shard);
    let ReadReply::List { keys, .. } = read_store(
        company,
        osd,
        Read::List {
            collection,
            from,
            to,
            limit: 1000,
        },
    ) else {
        panic!("a listing")
    };
    let one = |position: bytes::Bytes| {
        let object = nacre_store::ObjectKey::new(collection, position.clone());
        let ReadReply::Stat(Some(stat)) = read_store(company, osd, Read::Stat(object.clone()))
        else {
            panic!("listed")
        };
        let ReadReply::Data(data) = read_store(
            company,
            osd,
            Read::Data {
                object,
                offset: 0,
                length: stat.size,
            },
        ) else {
            panic!("data")
        };
        let name = key::object_at(&position).expect("a position").to_string();
        (name, stat.attrs.into_iter().collect(), data.concat())
    };
    keys.into_iter().map(one).collect()
}
/// The clones in a daemon's index.
fn indexed(company: &mut Company, osd: u32) -> Vec<String> {
    let object = key::clones_key(key::collection(PG.pool, PG.shard));
    let (from, to) = (std::ops::Bound::Unbounded, None);
    let read = Read::Omap {
        object,
        from,
        to,
        limit_entries: 1000,
        limit_bytes: 1 << 20,
    };
    match company.host(osd).store.peek(&read) {
        Ok(ReadReply::Omap { entries, .. }) => entries
            .iter()
            .map(|(key, _)| key::object_at(key).expect("a position").to_string())
            .collect(),
        Err(nacre_store::ReadError::NotFound) => Vec::new(),
        other => panic!("{other:?}"),
    }
}
/// The objects of all members, which are equal; their indexes contain exactly the clones among
/// them.
fn everywhere(company: &mut Company) -> Vec<String> {
    let acting = company.acting();
    let first = stored(company, acting[0]);
    for osd in &acting[1..] {
        assert_eq!(
            stored(company, *osd),
            first,
            "osd.{osd} has something else than osd.{}",
            acting[0]
        );
    }
    let names: Vec<String> = first.into_iter().map(|(name, ..)| name).collect();
    let clones: Vec<String> = names
        .iter()
        .filter(|name| name.contains(':'))
        .cloned()
        .collect();
    for osd in acting {
        assert_eq!(indexed(company, osd), clones, "osd.{osd}");
    }
    names
}

#[test]
fn a_snapshot_is_the_object_before_the_first_write_that_knew_it() {
    let mut company = Company::new(3, 2, 3);
    company.write("a", b"one").expect("written");
    company
        .op(
            "a",
            vec![SubOp::SetAttr {
                name: "x".into(),
                value: "1".into(),
            }],
            &[],
        )
        .expect("set");
    let monday = snapshot(&mut company, "monday");
    assert_eq!(
        read_at(&mut company, "a", monday),
        Ok(b"one".to_vec()),
        "nothing was written since"
    );
    let tuesday = snapshot(&mut company, "tuesday");
    company.write("a", b"two").expect("written");
    company
        .op("a", vec![SubOp::Append { length: 1 }], b"!")
        .expect("appended");
    company.write("b", b"new").expect("written");
    let wednesday = snapshot(&mut company, "wednesday");
    company
        .op("a", vec![SubOp::RemoveAttr { name: "x".into() }], &[])
        .expect("removed");
    for (snap, a, b) in [
        (monday, &b"one"[..], NOT_FOUND),
        (tuesday, b"one", NOT_FOUND),
        (wednesday, b"two!", Ok(b"new".to_vec())),
        (SnapId::HEAD, b"two!", Ok(b"new".to_vec())),
    ] {
        assert_eq!(read_at(&mut company, "a", snap), Ok(a.to_vec()), "{snap:?}");
        assert_eq!(read_at(&mut company, "b", snap), b, "{snap:?}");
        let attr = ask(
            &mut company,
            "a",
            snap,
            vec![SubOp::GetAttr { name: "x".into() }],
        );
        assert_eq!(
            company.await_answer(&attr).is_ok(),
            snap != SnapId::HEAD,
            "{snap:?}"
        );
    }
    // One clone for both snapshots, because nothing was written between them.
    assert_eq!(everywhere(&mut company), ["a:2", "a:3", "a", "b"]);
    assert_eq!(listed(&mut company), ["a", "b"]);
    let all = company.send("a", vec![SubOp::ListSnaps {}], &[], 0);
    company.await_answer(&all).expect("answered");
    let [
        SubReply::Snaps {
            sequence: 3,
            exists: true,
            clones,
        },
    ] = &company.results(&all)[..]
    else {
        panic!("snapshots")
    };
    let clones: Vec<_> = clones
        .iter()
        .map(|clone| (clone.id.0, clone.snaps.len(), clone.size))
        .collect();
    assert_eq!(clones, [(2, 2, 3), (3, 1, 4)]);
    let nothing = read_at(&mut company, "a", SnapId(9));
    assert!(
        matches!(&nothing, Err(OpFailure::Invalid { why }) if why.contains("no snapshot 9")),
        "{nothing:?}"
    );
    let write = ask(&mut company, "a", monday, vec![SubOp::Delete {}]);
    assert!(
        matches!(company.await_answer(&write), Err(OpFailure::Invalid { .. })),
        "snapshots are read only"
    );
}

#[test]
fn what_is_deleted_stays_for_its_snapshots_and_goes_with_the_last() {
    let mut company = Company::new(3, 2, 3);
    company.write("a", b"one").expect("written");
    let monday = snapshot(&mut company, "monday");
    company
        .op("a", vec![SubOp::Delete {}], &[])
        .expect("deleted");
    assert_eq!(company.read("a"), NOT_FOUND);
    assert_eq!(
        company.op("a", vec![SubOp::Delete {}], &[]),
        NOT_FOUND,
        "it is gone already"
    );
    assert_eq!(
        company.op(
            "a",
            vec![SubOp::AssertExists { exists: false }, SubOp::Stat {}],
            &[]
        ),
        NOT_FOUND
    );
    assert_eq!(
        (listed(&mut company), everywhere(&mut company)),
        (vec![], vec!["a:1".to_owned(), "a".to_owned()])
    );
    assert_eq!(read_at(&mut company, "a", monday), Ok(b"one".to_vec()));
    let tuesday = snapshot(&mut company, "tuesday");
    company
        .op("a", vec![SubOp::Create { exclusive: true }], &[])
        .expect("created anew");
    company.write("a", b"two").expect("written");
    assert_eq!(
        read_at(&mut company, "a", tuesday),
        NOT_FOUND,
        "it was not there on tuesday"
    );
    let wednesday = snapshot(&mut company, "wednesday");
    company
        .op("a", vec![SubOp::Delete {}], &[])
        .expect("deleted");
    // A new primary reads the stored state.
    let primary = company.acting()[0];
    let host = company.kill(primary);
    company.wait(1500);
    for (snap, expected) in [
        (monday, Ok(b"one".to_vec())),
        (tuesday, NOT_FOUND),
        (wednesday, Ok(b"two".to_vec())),
    ] {
        assert_eq!(read_at(&mut company, "a", snap), expected, "{snap:?}");
    }
    assert_eq!(
        (listed(&mut company), company.read("a")),
        (vec![], NOT_FOUND)
    );
    company.revive(host, 2);
    company.wait(3000);
    assert_eq!(everywhere(&mut company), ["a:1", "a:3", "a"]);
    remove(&mut company, monday);
    company.wait(3000);
    assert_eq!(everywhere(&mut company), ["a:3", "a"]);
    remove(&mut company, wednesday);
    company.wait(3000);
    assert_eq!(
        everywhere(&mut company),
        [""; 0],
        "nothing preserves anything any more"
    );
    let totals = company
        .hosts
        .values()
        .find_map(|host| host.osd.pgs().find(|pg| pg.id() == PG))
        .map(|pg| pg.totals());
    assert_eq!(
        totals.map(|totals| (totals.objects, totals.bytes)),
        Some((0, 0)),
        "and it is counted so"
    );
}

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

/// The members had the clone and not the write when the primary died.
#[test]
fn an_orphan_is_nobodys_snapshot_and_is_replaced_or_removed() {
    for replaced in [false, true] {
        let mut company = Company::new(3, 2, 3);
        company.write("a", b"one").expect("written");
        let monday = snapshot(&mut company, "monday");
        company.lose = |message| match message {
            Message::Replicate(update, _) => !update.updates[0]
                .effects
                .iter()
                .any(|e| matches!(e, Effect::CloneFrom { .. })),
            _ => false,
        };
        let lost = company.request(ClientId(8), "a", vec![SubOp::WriteFull { length: 3 }], 0);
        company.resend(&lost, b"two");
        company.settle();
        let primary = company.acting()[0];
        let host = company.kill(primary);
        company.lose = |_| false;
        company.wait(1500);
        assert!(company.answer(&lost).is_none(), "nobody was told");
        assert_eq!(everywhere(&mut company), ["a:1", "a"]);
        assert_eq!(read_at(&mut company, "a", monday), Ok(b"one".to_vec()));
        company.write("b", b"other").expect("written");
        let serves = company.acting()[0];
        let before = stored(&mut company, serves);
        if replaced {
            // The client resends it: executed once, with a clone over the orphan.
            company.resend(&lost, b"two");
            company.await_answer(&lost).expect("written");
            company.resend(&lost, b"two");
            company.settle();
            assert_ne!(stored(&mut company, serves), before);
            assert_eq!(company.read("a"), Ok(b"two".to_vec()));
            assert_eq!(read_at(&mut company, "a", monday), Ok(b"one".to_vec()));
        }
        company.revive(host, 2);
        company.wait(4000);
        let expected: &[&str] = if replaced {
            &["a:1", "a", "b"]
        } else {
            &["a", "b"]
        };
        assert_eq!(
            everywhere(&mut company),
            expected,
            "an orphan is removed, snapshots or not"
        );
        assert_eq!(read_at(&mut company, "a", monday), Ok(b"one".to_vec()));
        let entries = company
            .host(serves)
            .osd
            .pgs()
            .find(|pg| pg.id() == PG)
            .expect("it has it")
            .totals();
        assert_eq!(entries.objects, expected.len() as u64);
    }
}

/// One listing has fewer objects than a name has clones: the range must grow until it ends between
/// names.
#[test]
fn a_member_that_is_backfilled_gets_clones_and_the_updates_that_make_them() {
    let mut company = Company::new(4, 1, 2);
    company.commit(vec![Change::Config {
        key: "osd.log_entries_min".into(),
        value: Some("16".into()),
    }]);
    for round in 0..6 {
        for object in ["a", "b", "c"] {
            company
                .write(object, format!("{object}{round}").as_bytes())
                .expect("written");
        }
        snapshot(&mut company, &format!("s{round}"));
    }
    for object in ["a", "b", "c"] {
        company.write(object, b"end").expect("written");
    }
    let acting = company.acting();
    let host = company.kill(acting[1]);
    let down = nacre_types::OsdId(acting[1]);
    company.commit(vec![Change::OsdWeight {
        osd: down,
        weight: nacre_wire::map::Weight::OUT,
        automatic: false,
    }]);
    for step in 0..400 {
        if step % 10 == 0 && step < 60 {
            let snap = snapshot(&mut company, &format!("t{step}"));
            for object in ["a", "b", "c"] {
                company
                    .write(object, format!("{object} {step}").as_bytes())
                    .expect("written meanwhile");
                company
                    .op(object, vec![SubOp::Rollback { snap }], &[])
                    .expect("rolled back meanwhile");
            }
        }
        company.wait(50);
    }
    drop(host);
    assert_eq!(company.acting().len(), 2);
    let names = everywhere(&mut company);
    assert_eq!(names.len(), 3 * 13, "{names:?}");
    for object in ["a", "b", "c"] {
        for round in 0..6 {
            let expected = format!("{object}{round}").into_bytes();
            assert_eq!(
                read_at(&mut company, object, SnapId(round + 1)),
                Ok(expected)
            );
        }
        for step in 6..12 {
            assert_eq!(
                read_at(&mut company, object, SnapId(step + 1)),
                Ok(b"end".to_vec())
            );
        }
    }
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

/// The first name of a page was not checked. A deleted object that is kept for its clones was
/// listed when a page ended between them and it.
#[test]
fn a_listing_in_pages_is_the_same_as_one_in_one_piece() {
    let mut company = Company::new(3, 2, 3);
    for name in ["a", "b", "c", "d"] {
        company.write(name, b"one").expect("written");
    }
    snapshot(&mut company, "monday");
    for name in ["a", "b"] {
        company
            .op(name, vec![SubOp::Delete {}], &[])
            .expect("deleted");
    }
    company.write("c", b"two").expect("written");
    let mut all = listed(&mut company);
    for limit in 1..8 {
        assert_eq!(listed_by(&mut company, limit), all, "{limit} at a time");
    }
    all.sort();
    assert_eq!(all, ["c", "d"]);
}

/// Objects that the primary lacked were added to each page of a listing, also to pages that end
/// before them: names were listed twice, and out of order.
#[test]
fn a_listing_in_pages_has_what_the_primary_lacks_in_its_place() {
    let mut company = Company::new(3, 2, 3);
    let mut names: Vec<String> = (0..9).map(|n| format!("object-{n}")).collect();
    names.sort_by_key(|name| key::position(&ObjectId::named(name)));
    // The lacked object is between two others: the first object of a page would be recovered at
    // once.
    let (lacked, known): (Vec<_>, Vec<_>) =
        names.iter().enumerate().partition(|(at, _)| *at % 3 == 1);
    for (_, name) in known {
        company.write(name, b"old").expect("all are there");
    }
    let primary = company.acting()[0];
    let host = company.kill(primary);
    company.wait(1000);
    for (_, name) in &lacked {
        company.write(name, b"new").expect("two are enough");
    }
    company.lose = |message| matches!(message, Message::Push(..));
    company.revive(host, 2);
    company.wait(1000);
    assert_eq!(company.acting()[0], primary);
    assert_eq!(listed(&mut company), names);
    assert_eq!(listed_by(&mut company, 2), names);
    assert_eq!(
        crate::room_stories::is_missed_by(&mut company, primary).len(),
        lacked.len()
    );
}

#[test]
fn clients_may_have_snapshots_of_their_own() {
    let mut company = Company::new(3, 2, 3);
    let context = |sequence: u64, snaps: &[u64]| SnapContext {
        sequence,
        snapshots: snaps.iter().map(|snap| SnapId(*snap)).collect(),
    };
    let write = |company: &mut Company, data: &[u8], snaps: SnapContext| {
        let ops = vec![SubOp::WriteFull {
            length: data.len() as u64,
        }];
        let request = OpRequest {
            snaps,
            ..company.request(ClientId(9), "a", ops, 0)
        };
        company.resend(&request, data);
        company.await_answer(&request).map(|_| ())
    };
    let refused = |answer: Result<(), OpFailure>| matches!(answer, Err(OpFailure::Invalid { .. }));
    assert!(
        refused(write(&mut company, b"0", context(1, &[1]))),
        "nobody allocated it"
    );
    for _ in 0..4 {
        snapshot(&mut company, "");
    }
    assert_eq!(
        company.monitors.map.pools[&PG.pool].snaps.mode,
        SnapMode::Own {}
    );
    write(&mut company, b"1", context(0, &[])).expect("written");
    assert!(
        refused(write(&mut company, b"0", context(2, &[1, 2]))),
        "newest first"
    );
    assert!(
        refused(write(&mut company, b"0", context(1, &[2]))),
        "within its sequence"
    );
    assert!(
        refused(write(&mut company, b"0", context(5, &[]))),
        "not allocated"
    );
    write(&mut company, b"2", context(2, &[2, 1])).expect("written");
    write(&mut company, b"3", context(1, &[1])).expect("an older context preserves nothing new");
    remove(&mut company, SnapId(3));
    write(&mut company, b"4", context(4, &[4, 3, 2, 1])).expect("a removed one is passed over");
    let seen: Vec<_> = (1..=4)
        .map(|snap| read_at(&mut company, "a", SnapId(snap)).map_err(drop))
        .collect();
    assert_eq!(
        seen,
        [
            Ok(b"1".to_vec()),
            Ok(b"1".to_vec()),
            Err(()),
            Ok(b"3".to_vec())
        ]
    );
    assert_eq!(everywhere(&mut company), ["a:2", "a:4", "a"]);
}

fn copy(company: &mut Company, from: &str, to: &str, snap: SnapId) -> OpRequest {
    let source = snaps::at(&ObjectId::named(from), snap);
    let request = company.request(ClientId(9), to, vec![SubOp::CopyFrom { source }], 0);
    company.resend(&request, &[]);
    request
}

#[test]
fn a_copy_is_all_of_the_source_at_one_time() {
    let mut company = Company::new(3, 2, 3);
    eight_groups(&mut company);
    let entries = |n: u8| {
        vec![SubOp::OmapSet {
            entries: vec![(vec![n].into(), vec![n].into())],
        }]
    };
    company.write("a", b"one").expect("written");
    company
        .op(
            "a",
            vec![SubOp::SetAttr {
                name: "x".into(),
                value: "1".into(),
            }],
            &[],
        )
        .expect("set");
    company.op("a", entries(1), &[]).expect("set");
    let monday = snapshot(&mut company, "monday");
    company.write("a", b"two").expect("written");
    // Into objects of other PGs, with other primaries among them; these have contents that must be
    // removed.
    let targets: Vec<String> = (0..12).map(|n| format!("target-{n}")).collect();
    let primaries: std::collections::BTreeSet<_> = targets
        .iter()
        .map(|name| company.monitors.map.pgs[&company.group(name)].acting[0])
        .collect();
    assert_eq!(primaries.len(), 3, "all three serve one");
    for name in &targets {
        company.write(name, b"something longer").expect("written");
        company.op(name, entries(9), &[]).expect("set");
        company
            .op(
                name,
                vec![SubOp::SetAttr {
                    name: "y".into(),
                    value: "2".into(),
                }],
                &[],
            )
            .expect("set");
        let (snap, expected) = if name.ends_with('3') {
            (monday, b"one")
        } else {
            (SnapId::HEAD, b"two")
        };
        let request = copy(&mut company, "a", name, snap);
        company.await_answer(&request).expect("copied");
        company.resend(&request, &[]);
        company.settle();
        let ops = vec![
            SubOp::Read {
                offset: 0,
                length: 100,
            },
            SubOp::ListAttrs {},
            SubOp::OmapList {
                after: Default::default(),
                limit: 10,
            },
        ];
        let all = company.send(name, ops, &[], 0);
        assert_eq!(
            company.await_answer(&all).map(|(_, data)| data),
            Ok(expected.to_vec())
        );
        let results = company.results(&all);
        let [
            _,
            SubReply::Entries { entries: attrs, .. },
            SubReply::Entries { entries: omap, .. },
        ] = &results[..]
        else {
            panic!("{results:?}")
        };
        assert_eq!(
            (&attrs[..], &omap[..]),
            (
                &[("x".into(), "1".into())][..],
                &[(vec![1].into(), vec![1].into())][..]
            )
        );
    }
    let absent = copy(&mut company, "nothing", "target-1", SnapId::HEAD);
    assert_eq!(company.await_answer(&absent), Err(OpFailure::NotFound {}));
    let same = copy(&mut company, "a", "a", monday);
    company.await_answer(&same).expect("copied");
    assert_eq!(company.read("a"), Ok(b"one".to_vec()));
    let same = copy(&mut company, "a", "a", SnapId::HEAD);
    company.await_answer(&same).expect("copied");
    assert_eq!(company.read("a"), Ok(b"one".to_vec()));
}

#[test]
fn copies_of_each_other_do_not_wait_for_each_other() {
    let mut company = Company::new(3, 2, 3);
    for (name, data) in [("a", b"one"), ("b", b"two")] {
        company.write(name, data).expect("written");
    }
    // The requests are delayed until both wait.
    let asks: Vec<OpRequest> = [("a", "b"), ("b", "a")]
        .map(|(from, to)| copy(&mut company, from, to, SnapId::HEAD))
        .into();
    for request in &asks {
        company.await_answer(request).expect("copied");
    }
    let both = (
        company.read("a").expect("read"),
        company.read("b").expect("read"),
    );
    assert!(
        [
            (b"one".to_vec(), b"one".to_vec()),
            (b"two".to_vec(), b"two".to_vec()),
            (b"two".to_vec(), b"one".to_vec())
        ]
        .contains(&both)
    );
}

/// The request for a copy's source was lost, or the answer. It counted as in progress for ever, and
/// the copy hung, with all operations behind it.
#[test]
fn a_copy_whose_question_or_answer_is_lost_is_made_all_the_same() {
    let question: fn(&Message) -> bool = |message| matches!(message, Message::OpRequest(..));
    let answer: fn(&Message) -> bool = |message| matches!(message, Message::OpReply(..));
    for lost in [question, answer] {
        let mut company = Company::new(3, 2, 3);
        eight_groups(&mut company);
        company.write("a", b"one").expect("written");
        let primary = |name: &str| company.monitors.map.pgs[&company.group(name)].acting[0];
        let target = (0..)
            .map(|n| format!("target-{n}"))
            .find(|name| primary(name) != primary("a"));
        let target = target.expect("three of them serve");
        company.lose = lost;
        let request = copy(&mut company, "a", &target, SnapId::HEAD);
        let behind = company.request(ClientId(10), &target, vec![SubOp::Append { length: 1 }], 0);
        company.resend(&behind, b"!");
        company.wait(300);
        company.lose = |_| false;
        company.wait(300);
        assert_eq!(company.answer(&request), None, "it was lost");
        company.await_answer(&request).expect("asked again");
        company.await_answer(&behind).expect("and then what waited");
        assert_eq!(company.read(&target), Ok(b"one!".to_vec()));
    }
}

#[test]
fn what_is_too_large_is_not_copied_and_says_so() {
    let mut company = Company::new(1, 1, 1);
    company
        .op(
            "a",
            vec![SubOp::Truncate {
                size: (32 << 20) + 1,
            }],
            &[],
        )
        .expect("made");
    let large = copy(&mut company, "a", "b", SnapId::HEAD);
    let answer = company.await_answer(&large);
    assert!(
        matches!(&answer, Err(OpFailure::Invalid { why }) if why.contains("at most 33554432")),
        "{answer:?}"
    );
    company.write("a", b"x").expect("written");
    for n in 0..5_u8 {
        let entries = vec![(vec![n].into(), vec![0; 1 << 20].into())];
        company
            .op("a", vec![SubOp::OmapSet { entries }], &[])
            .expect("set");
    }
    let large = copy(&mut company, "a", "b", SnapId::HEAD);
    let answer = company.await_answer(&large);
    assert!(
        matches!(&answer, Err(OpFailure::Invalid { why }) if why.contains("omap")),
        "{answer:?}"
    );
    assert_eq!(company.read("b"), NOT_FOUND);
}

/// The clone that an undone update made is the only remaining data that the snapshot preserves, if
/// no member has the previous version of the object (simulator, seed 3656).
#[test]
fn a_clone_that_was_made_by_undone_updates_is_kept_with_them() {
    for places in [[2, 0, 1], [0, 1, 2]] {
        let mut company = Company::new(3, 2, 3);
        let (_, third) = crate::repair_stories::left_with_an_undone_append(&mut company, places);
        let before = company.monitors.map.pools[&PG.pool].snaps.last;
        assert_eq!(company.read("a").expect("it is there"), b"onetwo");
        assert_eq!(read_at(&mut company, "a", before), Ok(b"one".to_vec()));
        company.revive(third, 2);
        company.wait(8000);
        assert_eq!(everywhere(&mut company).len(), 3, "a, its clone, b");
        remove(&mut company, before);
        company.wait(8000);
        assert_eq!(everywhere(&mut company), ["a", "b"]);
    }
}

/// Simulator, seed 1704: a primary was sent a replica with undone updates on it, to execute them
/// again; the clone had arrived and the object had not, when an OSD came back that had the previous
/// version of the object. That one was used, and the clone stayed in its place at the primary
/// alone, as an orphan.
#[test]
fn a_copy_with_undone_updates_comes_whole_or_not_at_all() {
    let mut fetched = 0;
    for places in [[2, 0, 1], [0, 1, 2]] {
        let mut company = Company::new(3, 2, 3);
        let members = company.acting();
        let lose = |message: &Message| matches!(message, Message::Push(push, _) if push.object.snapshot == SnapId::HEAD);
        let (_, third) = crate::repair_stories::left_with_an_undone_append_and_losing(
            &mut company,
            places,
            lose,
        );
        let holder = members[places[1]];
        if company.acting()[0] == holder {
            continue; // it executes its own again, and is sent nothing
        }
        fetched += 1;
        let dead = company.kill(holder);
        company.lose = |_| false;
        company.revive(third, 2);
        company.wait(3000);
        assert_eq!(company.read("a").expect("it is there"), b"one");
        assert_eq!(everywhere(&mut company), ["a", "b"]);
        company.revive(dead, 4);
        company.wait(8000);
        assert_eq!(everywhere(&mut company), ["a", "b"]);
    }
    assert!(fetched > 0);
}

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

/// Copies whose sources did not answer sent requests again and again, before the others had their
/// turn: any other copy of the daemon waited as long as they did.
#[test]
fn copies_of_what_does_not_answer_leave_room_for_others() {
    let mut company = Company::new(3, 2, 3);
    eight_groups(&mut company);
    company.write("a", b"one").expect("written");
    let primary =
        |company: &Company, name: &str| company.monitors.map.pgs[&company.group(name)].acting[0];
    let maker = primary(&company, "target-0");
    let of = |company: &Company, prefix: &str, makers: bool| -> Vec<String> {
        let all = (0..).map(|n| format!("{prefix}-{n}"));
        all.filter(|name| (primary(company, name) == maker) == makers)
            .take(12)
            .collect()
    };
    let (sources, targets) = (of(&company, "stuck", false), of(&company, "target", true));
    company.lose = |message| match message {
        Message::OpRequest(request, _) => request.object.name.as_bytes().starts_with(b"stuck"),
        _ => false,
    };
    for (source, target) in sources.iter().zip(&targets) {
        copy(&mut company, source, target, SnapId::HEAD);
    }
    // It comes after all of them in the daemon's order.
    let groups = company
        .monitors
        .map
        .pgs
        .iter()
        .filter(|(_, record)| record.acting[0] == maker)
        .map(|(pg, _)| *pg);
    let group = groups.max().expect("it serves some");
    let last = (0..)
        .map(|n| format!("last-{n}"))
        .find(|name| company.group(name) == group)
        .expect("some are in it");
    let request = copy(&mut company, "a", &last, SnapId::HEAD);
    company.await_answer(&request).expect("it has its turn");
    assert_eq!(company.read(&last), Ok(b"one".to_vec()));
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

/// (Planted by a reviewer.) A deleted object still has its snapshots: they are needed most then.
#[test]
fn what_was_deleted_has_its_snapshots_listed() {
    let mut company = Company::new(3, 2, 3);
    company.write("a", b"one").expect("written");
    snapshot(&mut company, "monday");
    company
        .op("a", vec![SubOp::Delete {}], &[])
        .expect("deleted");
    let request = company.send("a", vec![SubOp::ListSnaps {}], &[], 0);
    company.await_answer(&request).expect("listed");
    let [
        SubReply::Snaps {
            exists: false,
            clones,
            ..
        },
    ] = &company.results(&request)[..]
    else {
        panic!("{:?}", company.results(&request))
    };
    assert_eq!(clones.len(), 1);
    assert_eq!(
        company.op("never", vec![SubOp::ListSnaps {}], &[]),
        NOT_FOUND.map(|_| Vec::new())
    );
}

/// (Planted by a reviewer.) A copy repeats its request for the source while that cannot be read.
/// Each request waited there, one more every second and a half, until that daemon received no
/// requests any more.
#[test]
fn a_copy_that_waits_for_its_source_has_one_question_there() {
    let mut company = Company::new(3, 2, 3);
    eight_groups(&mut company);
    let primary =
        |company: &Company, name: &str| company.monitors.map.pgs[&company.group(name)].acting[0].0;
    company.write("a", b"old").expect("written");
    let source = primary(&company, "a");
    let host = company.kill(source);
    company.wait(2000);
    company.write("a", b"new").expect("two are enough");
    company.lose = |message| matches!(message, Message::Push(..));
    company.revive(host, 2);
    company.wait(2000);
    assert_eq!(primary(&company, "a"), source);
    let target = (0..)
        .map(|n| format!("target-{n}"))
        .find(|name| primary(&company, name) != source)
        .expect("three");
    let request = copy(&mut company, "a", &target, SnapId::HEAD);
    company.wait(20_000);
    assert_eq!(company.host(source).osd.client_load().0, 1);
    company.lose = |_| false;
    company.wait(4000);
    company.await_answer(&request).expect("copied");
    assert_eq!(company.read(&target), Ok(b"new".to_vec()));
}

/// (Planted by a reviewer.) A clone keeps the modification time of the preserved object.
#[test]
fn a_clone_says_when_it_was_modified() {
    let mut company = Company::new(3, 2, 3);
    let write = |company: &mut Company, unix_ms| {
        let mut request =
            company.request(ClientId(9), "a", vec![SubOp::WriteFull { length: 1 }], 0);
        request.unix_ms = unix_ms;
        company.resend(&request, b"x");
        company.await_answer(&request).expect("written");
    };
    write(&mut company, 1_000);
    let monday = snapshot(&mut company, "monday");
    write(&mut company, 2_000);
    for again in [false, true] {
        if again {
            company.kill(company.acting()[0]);
            company.wait(2000);
        }
        let mut times = Vec::new();
        for snap in [monday, SnapId::HEAD] {
            let request = ask(&mut company, "a", snap, vec![SubOp::Stat {}]);
            company.await_answer(&request).expect("it is there");
            let [SubReply::Stat { modified_ms, .. }] = company.results(&request)[..] else {
                panic!("a stat")
            };
            times.push(modified_ms);
        }
        assert_eq!(times, [1_000, 2_000]);
    }
}

/// (Review.) An answer was matched by the request's number alone, and numbers restart with each
/// instance: an answer to an earlier instance arrived late, was taken for the source of another
/// copy, and that copy was acknowledged.
#[test]
fn what_an_earlier_life_asked_for_is_no_source() {
    use nacre_types::{Entity, Instance, OsdId, Version};
    use nacre_wire::msg::client::{OpReply, RequestId};
    use nacre_wire::msg::snap::Whole;
    let mut company = Company::new(3, 2, 3);
    eight_groups(&mut company);
    company.write("a", b"right").expect("written");
    let primary = |name: &str| company.monitors.map.pgs[&company.group(name)].acting[0].0;
    let target = (0..)
        .map(|n| format!("target-{n}"))
        .find(|name| primary(name) != primary("a"))
        .expect("three serve");
    let (asks, asked) = (primary(&target), primary("a"));
    company.lose = |message| matches!(message, Message::OpRequest(..));
    let request = copy(&mut company, "a", &target, SnapId::HEAD);
    company.settle();
    let client = ClientId(u64::MAX - u64::from(asks));
    let instance = Instance(company.host(asks).osd.instance().0 - 1);
    let object = Whole {
        size: 5,
        ..Whole::default()
    };
    for number in 1..5 {
        let late = OpReply {
            request: RequestId {
                client,
                instance,
                sequence: 1 << 63 | number,
            },
            failure: None,
            version: Version::NONE,
            results: vec![SubReply::Whole {
                object: object.clone(),
            }],
            attempt: 1,
        };
        let epoch = company.monitors.map.epoch;
        let message = Message::OpReply(late, vec![bytes::Bytes::from_static(b"wrong")]);
        company
            .host(asks)
            .tell(Entity::Osd(OsdId(asked)), epoch, message);
    }
    company.settle();
    company.lose = |_| false;
    company.await_answer(&request).expect("copied");
    assert_eq!(company.read(&target), Ok(b"right".to_vec()));
}
