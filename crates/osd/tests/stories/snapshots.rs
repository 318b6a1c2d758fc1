//! Stories of snapshots, rollback, trimming and copying on whole daemons: see `pg/snapshots.rs`,
//! `pg/trim.rs`, `pg/copy.rs`.

use super::company::Company;
use super::rig::PG;
use crate::key;
use nacre_store::{ObjectStore, Read, ReadReply};
use nacre_types::{ClientId, ObjectId, SnapId};
use nacre_wire::Message;
use nacre_wire::map::{Change, Pool, SnapMode, Weight};
use nacre_wire::msg::client::{OpFailure, OpRequest, SnapContext, SubOp, SubReply};
use nacre_wire::msg::replication::Effect;

type Attrs = Vec<(bytes::Bytes, bytes::Bytes)>;

type Answer = Result<Vec<u8>, OpFailure>;

pub(super) const NOT_FOUND: Answer = Err(OpFailure::NotFound {});

pub(super) fn snapshot(company: &mut Company, name: &str) -> SnapId {
    let snap = SnapId(company.monitors.map.pools[&PG.pool].snaps.last.0 + 1);
    company.commit(vec![Change::SnapCreate {
        pool: PG.pool,
        snap,
        name: name.into(),
    }]);
    snap
}

pub(super) fn remove(company: &mut Company, snap: SnapId) {
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

pub(super) fn read_at(company: &mut Company, object: &str, snap: SnapId) -> Answer {
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

pub(super) fn listed(company: &mut Company) -> Vec<String> {
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

pub(super) fn lock() -> SubOp {
    SubOp::Lock {
        name: "l".into(),
        cookie: 1,
        shared: false,
        lease_ms: 0,
        description: String::new(),
    }
}

pub(super) fn eight_groups(company: &mut Company) {
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
pub(super) fn stored(company: &mut Company, osd: u32) -> Vec<(String, Attrs, Vec<u8>)> {
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
pub(super) fn everywhere(company: &mut Company) -> Vec<String> {
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

/// The members had the clone and not the write when the primary died.
#[test]
fn an_orphan_belongs_to_no_snapshot_and_is_replaced_or_removed() {
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
    company.set("osd.log_entries_min", "16");
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
    company.weigh(acting[1], Weight::OUT);
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
        super::room::is_missed_by(&mut company, primary).len(),
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

/// The clone that an undone update made is the only remaining data that the snapshot preserves, if
/// no member has the previous version of the object (simulator, seed 3656).
#[test]
fn a_clone_that_was_made_by_undone_updates_is_kept_with_them() {
    for places in [[2, 0, 1], [0, 1, 2]] {
        let mut company = Company::new(3, 2, 3);
        let (_, third) = super::undone::left_with_an_undone_append(&mut company, places);
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
