//! Stories of full members that lack something: which OSDs act and lead without them, and what the
//! others get meanwhile.

use super::company::Company;
use super::rig::{Host, PG};
use super::room::{FULL, ROOMY, comes_back_full, is_missed_by, is_the_same_everywhere};
use super::snapshots::{remove, snapshot};
use crate::Limits;
use nacre_types::{ObjectId, SnapId};
use nacre_wire::Message;
use nacre_wire::map::Weight;
use nacre_wire::msg::client::{OpFailure, OpRequest, SubOp, op_flag};

/// The objects "a" and "b" were written before the acting member at `place` died. Then a snapshot
/// was taken, so writes make clones that the dead member lacks.
fn with_a_snapshot_it_missed(company: &mut Company, place: usize) -> (Host, SnapId) {
    for name in ["a", "b"] {
        company.write(name, b"old").expect("all are there");
    }
    let member = company.acting()[place];
    let host = company.kill(member);
    company.wait(1000);
    (host, snapshot(company, "monday"))
}

/// The number of changes of the PG's interval within these milliseconds, while a client resends
/// again and again.
fn changes_within(company: &mut Company, ms: u64, request: &OpRequest) -> usize {
    let (mut changes, mut since) = (0, company.monitors.map.pgs[&PG].since);
    for step in 0..ms / 50 {
        if step % 10 == 0 {
            company.resend(request, &[]);
        }
        company.wait(50);
        let now = company.monitors.map.pgs[&PG].since;
        changes += usize::from(now != since);
        since = now;
    }
    changes
}

/// Pushes to a full member took all places of recovery of the PG and of the daemon: another member
/// that came back was not recovered for as long as the first had no space.
#[test]
fn a_full_member_keeps_nobody_else_from_being_recovered() {
    for (first, second) in [(1, 2), (2, 1), (3, 1)] {
        let mut company = Company::new(4, 2, 4);
        let limits = Limits {
            recovery_objects: 2,
            recovery_objects_total: 2,
            ..Limits::default()
        };
        company.limit(limits);
        let (full, other) = (company.acting()[first], company.acting()[second]);
        let (full_host, other_host) = (company.kill(full), company.kill(other));
        company.wait(1000);
        for n in 0..8 {
            company
                .write(&format!("object-{n}"), b"new")
                .expect("two are enough");
        }
        comes_back_full(&mut company, full_host, first - usize::from(second < first));
        company.wait(2000);
        company.revive(other_host, 2);
        company.limit(limits);
        company.wait(8000);
        assert_eq!(is_missed_by(&mut company, other), [""; 0], "it has room");
        assert!(!is_missed_by(&mut company, full).is_empty(), "it has none");
        company.host(full).osd.on_usage(ROOMY.0, ROOMY.1);
        company.wait(10_000);
        assert_eq!(is_missed_by(&mut company, full), [""; 0]);
    }
}

/// One of two replicas is full and lacks an object. The other acknowledged alone until an operator
/// intervened: only its disk had the data written meanwhile. Then both acted, and the deletion,
/// which leaves a clone, waited for the operator (simulator, small devices, seed 3761). Now the
/// deletion does not wait for the object that the full member lacks, and removes the old version
/// there.
#[test]
fn nobody_is_left_alone_for_want_of_room_and_deletions_go_on() {
    for case in 0..4 {
        let (place, loses) = (case & 1, case & 2 != 0);
        let mut company = Company::new(2, 1, 2);
        let (host, monday) = with_a_snapshot_it_missed(&mut company, place);
        let member = host.osd.id().0;
        company.write("a", b"new").expect("one is enough");
        comes_back_full(&mut company, host, place);
        let tuesday = snapshot(&mut company, "tuesday");
        // Duplicate entries that arrive after parts of the objects that they declare missing.
        company.lose = if loses {
            |message| matches!(message, Message::Replicate(..))
        } else {
            |_| false
        };
        let delete = company.send("a", vec![SubOp::Delete {}], &[], 0);
        for _ in 0..4 {
            company.wait(1000);
            company.resend(&delete, &[]);
        }
        company.lose = |_| false;
        company.wait(1000);
        assert_eq!(company.acting().len(), 2, "both act");
        assert_eq!(company.monitors.map.pgs[&PG].activated.members.len(), 2);
        company.resend(&delete, &[]);
        company.await_answer(&delete).expect("deletes always work");
        assert!(company.has(member, "a"), "that it is deleted");
        assert_eq!(
            is_missed_by(&mut company, member).len(),
            2,
            "{case}: it has room for neither clone"
        );
        company.host(member).osd.on_usage(ROOMY.0, ROOMY.1);
        company.wait(8000);
        assert_eq!(is_missed_by(&mut company, member), [""; 0], "{case}");
        for snapshot in [monday, tuesday] {
            is_the_same_everywhere(
                &mut company,
                &ObjectId {
                    snapshot,
                    ..ObjectId::named("a")
                },
            );
        }
    }
}

/// One of three members is away, and a second is full: an object that only the third was known to
/// have would have been deleted on its acknowledgement alone, although the absent member had it,
/// too. (Review, before the fix.)
#[test]
fn what_a_member_that_is_away_may_have_is_not_left_with_one() {
    let mut company = Company::new(3, 2, 3);
    let (host, _) = with_a_snapshot_it_missed(&mut company, 2);
    company.write("a", b"new").expect("two are enough");
    let other = company.acting()[1];
    comes_back_full(&mut company, host, 2);
    let away = company.kill(other);
    company.wait(3000);
    let delete = company.send("a", vec![SubOp::Delete {}], &[], 0);
    company.wait(5000);
    company.resend(&delete, &[]);
    assert!(company.answer(&delete).is_none(), "only one has it");
    company.revive(away, 2);
    company.wait(3000);
    company.resend(&delete, &[]);
    company.await_answer(&delete).expect("two have it");
}

/// A member that is out covers for one that is being filled and is full, or covers for a full one.
/// The primary that requested a set without the full member, and the one that peered next, decided
/// on different sets: each interval requested the next, for ever.
#[test]
fn who_asks_for_a_set_and_who_peers_want_the_same() {
    for out_is_full in [true, false] {
        let mut company = Company::new(4, 2, 3);
        company.limit(Limits {
            log_entries_min: 2,
            log_entries_max: 4,
            ..Limits::default()
        });
        for n in 0..12 {
            company
                .write(&format!("object-{n}"), b"old")
                .expect("all are there");
        }
        let place = 2;
        let (member, other) = (company.acting()[place], company.acting()[1]);
        let host = company.kill(member);
        company.wait(1000);
        snapshot(&mut company, "monday");
        company.write("object-1", b"new").expect("two are enough");
        comes_back_full(&mut company, host, place);
        // Another replaces one of them, and is not filled yet.
        company.lose = |message| matches!(message, Message::Push(push, _) if push.object.name.as_bytes() != b"object-1");
        company.weigh(if out_is_full { member } else { other }, Weight::OUT);
        company.wait(2000);
        let delete = company.send("object-1", vec![SubOp::Delete {}], &[], 0);
        let changes = changes_within(&mut company, 15_000, &delete);
        assert!(
            changes <= 4,
            "{changes} intervals, and nothing happened; out and full: {out_is_full}"
        );
        company.lose = |_| false;
        company.host(member).osd.on_usage(ROOMY.0, ROOMY.1);
        company.wait(10_000);
        company.resend(&delete, &[]);
        company.await_answer(&delete).expect("there is room");
        assert!(changes_within(&mut company, 5_000, &delete) <= 1);
    }
}

/// A member that stood aside fell behind the log, and had to start over. Pushes to it continued and
/// held their objects: clients could not even delete them.
#[test]
fn who_starts_over_holds_nothing() {
    let mut company = Company::new(3, 2, 3);
    let short = Limits {
        log_entries_min: 2,
        log_entries_max: 4,
        ..Limits::default()
    };
    company.limit(short);
    let (host, monday) = with_a_snapshot_it_missed(&mut company, 2);
    let member = host.osd.id().0;
    company.write("a", b"new").expect("two are enough");
    comes_back_full(&mut company, host, 2);
    company.limit(short);
    let write = company.send(
        "a",
        vec![SubOp::WriteFull { length: 1 }],
        b"x",
        op_flag::FULL_OK,
    );
    company.wait(3000);
    assert!(!company.acting().contains(&member), "it stands aside");
    company.resend(&write, b"x");
    let refused = company.await_answer(&write);
    assert!(
        matches!(refused, Err(OpFailure::Full {})),
        "it had waited for room: {refused:?}"
    );
    // It gets no messages until the log no longer contains what it missed.
    company.lose =
        |message| matches!(message, Message::Replicate(update, _) if update.updates[0].entry_only);
    for _ in 0..20 {
        let write = company.send(
            "b",
            vec![SubOp::WriteFull { length: 1 }],
            b"y",
            op_flag::FULL_OK,
        );
        company.await_answer(&write).expect("two are enough");
    }
    company.wait(4000);
    company.lose = |_| false;
    remove(&mut company, monday);
    let delete = company.send("a", vec![SubOp::Delete {}], &[], 0);
    company
        .await_answer(&delete)
        .expect("deletions always work");
    assert_eq!(company.read("a"), Err(OpFailure::NotFound {}));
}

/// Only removed snapshots take the space, and no client waits: the full member lacks an object of
/// every name, and nothing was trimmed.
#[test]
fn trimming_alone_lets_a_full_member_stand_aside() {
    let mut company = Company::new(3, 2, 3);
    let (host, monday) = with_a_snapshot_it_missed(&mut company, 2);
    for name in ["a", "b"] {
        company.write(name, b"new").expect("two are enough");
    }
    comes_back_full(&mut company, host, 2);
    remove(&mut company, monday);
    company.wait(12_000);
    let primary = company.acting()[0];
    for name in ["a", "b"] {
        let clone = nacre_store::Read::Stat(crate::key::store_key(
            PG,
            &ObjectId {
                snapshot: monday,
                ..ObjectId::named(name)
            },
        ));
        assert_eq!(
            company.host(primary).store.peek(&clone),
            Ok(nacre_store::ReadReply::Stat(None)),
            "{name} is trimmed"
        );
    }
}

/// A full member led, lacked an object, and could not stand aside, since too few would be left: the
/// OSD that was to be filled as a replacement of a third one stayed empty.
#[test]
fn a_full_member_does_not_lead_while_it_keeps_others_from_being_filled() {
    let mut company = Company::new(4, 2, 3);
    company.limit(Limits {
        log_entries_min: 2,
        log_entries_max: 4,
        ..Limits::default()
    });
    for n in 0..12 {
        company
            .write(&format!("object-{n}"), b"old")
            .expect("all are there");
    }
    let [full, _, dead] = company.acting()[..] else {
        panic!("three")
    };
    let host = company.kill(full);
    company.wait(1000);
    company.write("object-1", b"new").expect("two are enough");
    comes_back_full(&mut company, host, 0);
    company.kill(dead);
    company.weigh(dead, Weight::OUT);
    company.host(full).osd.on_usage(FULL.0, FULL.1);
    company.wait(25_000);
    let acting = company.acting();
    assert!(
        !acting.contains(&full) && acting.len() == 2,
        "the one that was filled acts in its place: {acting:?}"
    );
    for osd in acting {
        assert_eq!(is_missed_by(&mut company, osd), [""; 0]);
    }
    company.host(full).osd.on_usage(ROOMY.0, ROOMY.1);
    company.wait(10_000);
    assert_eq!(company.acting().len(), 3);
    assert_eq!(is_missed_by(&mut company, full), [""; 0]);
}
