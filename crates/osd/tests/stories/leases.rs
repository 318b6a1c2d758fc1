//! Stories of one daemon: reads, leases, and what waits for them.

use super::rig::{Host, MON, Monitors, PG, ask, read, write};
use super::scenes::{
    adopted, append, first_of_a, grants_a_lease, makes_durable, read_by_appender, served_alone,
    served_by_two,
};
use bytes::Bytes;
use nacre_role::Role as _;
use nacre_types::{ClientId, Entity, Epoch, OsdId, PoolId, Version};
use nacre_wire::Message;
use nacre_wire::map::{Change, Pool};
use nacre_wire::msg::client::SubOp;
use nacre_wire::msg::replication::{Dedup, LogReply, PeerInfo, PgInfo, Ping, Totals};
use std::time::Duration;

/// Simulator, session 1. A read that lacked a lease was checked, put back and checked again without
/// an end, in one wake-up; and later once per microsecond, since the next deadline was always now.
#[test]
fn a_read_without_a_lease_waits_for_one() {
    let (_, mut host, epoch, member) = served_by_two();
    let from = Entity::Osd(OsdId(member));
    write(1, epoch, &mut host);
    makes_durable(&mut host, from, epoch);
    host.sent.clear();
    read(2, epoch, &mut host);
    assert!(
        host.sent
            .iter()
            .all(|(to, _)| *to != Entity::Client(ClientId(9))),
        "nobody granted a lease: {:?}",
        host.sent
    );
    let answered = |host: &Host| {
        host.sent
            .iter()
            .any(|(_, message)| matches!(message, Message::OpReply(..)))
    };
    for _ in 0..20 {
        let next = host.osd.next_deadline();
        assert!(
            next.since(host.now) >= Duration::from_millis(1),
            "the next look is not at once"
        );
        host.wait(3);
        assert!(!answered(&host));
    }
    grants_a_lease(&mut host, from, epoch);
    assert!(
        answered(&host),
        "and when there is one it is answered: {:?}",
        host.sent
    );
}

/// Simulator, seed 202. A compare-and-set failed on an update that was not committed; its answer
/// waited. The same request arrived again and was answered from memory at once; the update was then
/// lost in a crash, and the failure had revealed a state that never existed.
#[test]
fn a_repeated_failure_waits_like_the_first_until_what_it_saw_is_committed() {
    let (_, mut host, epoch, member) = served_by_two();
    let from = Entity::Osd(OsdId(member));
    grants_a_lease(&mut host, from, epoch);
    write(1, epoch, &mut host);
    let guard = |attempt: u32, host: &mut Host| {
        let ops = vec![
            SubOp::AssertExists { exists: false },
            SubOp::WriteFull { length: 1 },
        ];
        ask(
            10,
            1,
            attempt,
            ops,
            vec![Bytes::from_static(b"x")],
            epoch,
            host,
        );
    };
    let answers = |host: &Host| {
        let to_client = |(to, message): &&(Entity, Message)| {
            *to == Entity::Client(ClientId(10))
                && matches!(message, Message::OpReply(reply, _) if reply.failure.is_some() && reply.attempt == 2)
        };
        host.sent.iter().filter(to_client).count()
    };
    guard(1, &mut host);
    assert_eq!(
        answers(&host),
        0,
        "the write it saw is not on the member yet"
    );
    guard(2, &mut host);
    assert_eq!(answers(&host), 0, "nor does asking again change that");
    makes_durable(&mut host, from, epoch);
    assert_eq!(
        answers(&host),
        1,
        "when it is, the last attempt is answered"
    );
}

/// Simulator with real monitors, seed 445. A primary was cut off with leases that were still valid.
/// The next interval was activated and waited for them; before they expired it ended, and the one
/// after it waited only for the leases of *its* primary. It served at once, and the first primary,
/// still within its lease, answered with overwritten data. So an interval requests its activation
/// only when the earlier leases have expired.
#[test]
fn an_activation_waits_for_the_old_primarys_leases() {
    let mut monitors = Monitors::all_up(3);
    monitors.pool_that_needs(2, 3);
    let acting = monitors.map.pgs[&PG].acting.clone();
    monitors.activate(acting.clone());
    monitors.down(acting[0].0);
    let mut host = Host::new(acting[1].0);
    let (epoch, interval) = (monitors.map.epoch, monitors.map.pgs[&PG].since);
    // A member starts with the state that makes the PG exist, and as if it had just granted a
    // lease.
    host.tell(MON, epoch, monitors.full());
    let from = Entity::Osd(acting[2]);
    let head = Version {
        interval: Epoch(3),
        number: 1,
    };
    let info = PgInfo {
        exists: true,
        head,
        spans: vec![head],
        ..PgInfo::default()
    };
    host.tell(
        from,
        epoch,
        Message::PeerInfo(PeerInfo {
            pg: PG,
            interval,
            info,
            lease_left_ns: 300_000_000,
            logged_max: 0,
        }),
    );
    let log = LogReply {
        pg: PG,
        interval,
        from: Version::NONE,
        tail: Version::NONE,
        head,
        entries: vec![first_of_a(head)],
        dedup: Dedup::default(),
        totals: Totals::default(),
    };
    host.tell(from, epoch, Message::LogReply(log));
    host.tell(from, epoch, adopted(interval, head));
    let asks = |host: &Host| {
        host.to_mon
            .iter()
            .any(|message| matches!(message, Message::PgActivateRequest(_)))
    };
    for _ in 0..5 {
        host.wait(50);
        assert!(!asks(&host), "the old primary may still answer reads");
    }
    host.wait(60);
    assert!(asks(&host), "its leases are over: {:?}", host.to_mon);
}

/// (Review.) Messages that wait for a map are dropped after 20 s. A client's operations and their
/// later duplicates are held in turn, and the first one that was dropped let the next one overtake
/// its duplicate.
#[test]
fn what_was_held_for_too_long_is_not_overtaken_by_what_came_after_it() {
    let (mut monitors, mut host, old) = served_alone();
    let settings = Pool::replicated("another".into(), 1, 1, 1);
    let new = monitors.commit(vec![Change::PoolSet {
        pool: PoolId(2),
        settings,
    }]);
    for attempt in 1..=11 {
        append(3, attempt, new, &mut host);
        host.wait(1_000);
        append(4, attempt, new, &mut host);
        host.wait(1_000);
        if attempt == 10 {
            // The first copy of 3 is dropped, and that of 4 not yet.
            host.wait(500);
            host.tell(MON, new, monitors.since(old));
            host.wait(100);
        }
    }
    for sequence in [3, 4] {
        append(sequence, 20, new, &mut host);
    }
    host.wait(100);
    let data = read_by_appender(new, &mut host);
    let data = data.map(|data| String::from_utf8_lossy(&data).into_owned());
    assert!(
        data.as_ref().is_some_and(|data| data.ends_with("de")),
        "{data:?}"
    );
}

/// (Planted by a reviewer: each option took effect one change late.)
#[test]
fn an_option_counts_for_leases_as_soon_as_it_is_heard() {
    let (mut monitors, mut host, epoch) = served_alone();
    let lease = |host: &mut Host, epoch| {
        host.sent.clear();
        host.tell(
            Entity::Osd(OsdId(5)),
            epoch,
            Message::Ping(Ping { stamp: 1 }),
        );
        let pong = host
            .sent_to(5)
            .into_iter()
            .find_map(|message| match message {
                Message::Pong(pong) => Some(pong.lease_ns),
                _ => None,
            });
        pong.expect("it answers")
    };
    let before = lease(&mut host, epoch);
    let mut set = |host: &mut Host, value: Option<&str>| {
        let since = monitors.map.epoch;
        let change = Change::Config {
            key: "osd.lease_ms".into(),
            value: value.map(Into::into),
        };
        let epoch = monitors.commit(vec![change]);
        host.tell(MON, epoch, monitors.since(since));
        epoch
    };
    let epoch = set(&mut host, Some("100"));
    assert_eq!(lease(&mut host, epoch), 100_000_000);
    let epoch = set(&mut host, None);
    assert_eq!(lease(&mut host, epoch), before);
    assert_ne!(before, 100_000_000);
}
