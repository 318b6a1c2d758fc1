//! Stories of one daemon: objects and ranges that it gives and takes.

use super::rig::{Host, MON, Monitors, PG, ask, process, read, write};
use super::scenes::{
    adopted, append, compared, copy_of_a, first_of_a, grants_a_lease, has_nothing, makes_durable,
    one_object_to_give, peer_info, pushes, read_by_appender, served_alone,
    served_by_monitors_for_another, served_by_two, served_for_another,
};
use crate::config::Limits;
use bytes::Bytes;
use nacre_types::{Entity, Epoch, ObjectId, OsdId, Version};
use nacre_wire::Message;
use nacre_wire::map::Change;
use nacre_wire::msg::client::SubOp;
use nacre_wire::msg::replication::{
    Dedup, LogReply, PgInfo, ProgressAck, Push, PushAck, ScanReply, Totals,
};

/// Simulator with the real store, seed 439. The acknowledgement of an object's last part was lost.
/// The receiver had put the object into its place and forgotten the transfer; it ignored the last
/// part, which was resent again and again; the backfill made no progress any more.
#[test]
fn an_object_whose_last_acknowledgement_is_lost_is_sent_from_the_beginning() {
    let (mut host, epoch, interval, member, version) = one_object_to_give();
    let sent = host.sent_to(member);
    let Some(transfer) = sent.iter().find_map(|message| match message {
        Message::Push(push, _) if (push.part, push.last) == (0, false) => Some(push.transfer),
        _ => None,
    }) else {
        panic!("{sent:?}")
    };
    let ack = PushAck {
        pg: PG,
        interval,
        object: ObjectId::named("a"),
        version,
        part: 0,
        have: true,
        damaged: false,
        transfer,
    };
    host.tell(Entity::Osd(OsdId(member)), epoch, Message::PushAck(ack));
    assert_eq!(pushes(&mut host, member), [(1, true)]);
    let mut again = Vec::new();
    for _ in 0..6 {
        host.wait(500);
        again.extend(pushes(&mut host, member));
    }
    assert_eq!(again[..3], [(1, true), (1, true), (0, false)], "{again:?}");
}

/// A receiver whose store takes three seconds for a part: the transfer restarted before the first
/// part was acknowledged, each time, and the acknowledgement then belonged to an ended transfer.
#[test]
fn a_slow_receiver_has_the_whole_object_in_the_end() {
    let (mut host, epoch, interval, member, version) = one_object_to_give();
    let mut stored: Vec<(u64, Push)> = Vec::new();
    for step in 0..240 {
        let parts = host
            .sent_to(member)
            .into_iter()
            .filter_map(|message| match message {
                Message::Push(push, _) => Some((step, push)),
                _ => None,
            });
        stored.extend(parts);
        if stored.iter().any(|(_, push)| push.last) {
            return;
        }
        let late = stored.iter().filter(|(at, _)| step - at == 6);
        for (
            _,
            Push {
                object,
                part,
                transfer,
                ..
            },
        ) in late.cloned().collect::<Vec<_>>()
        {
            let ack = PushAck {
                pg: PG,
                interval,
                object,
                version,
                part,
                have: true,
                damaged: false,
                transfer,
            };
            host.tell(Entity::Osd(OsdId(member)), epoch, Message::PushAck(ack));
        }
        host.wait(500);
    }
    panic!("two minutes, and the second part was not sent");
}

/// Simulator with the real store, seed 738. A primary received an object that it missed, and began
/// to read it for a client while it was being made durable. When it was durable, the object's
/// context was dropped; the read returned and found none, and the daemon died of an assertion.
#[test]
fn an_object_may_be_read_while_it_is_made_durable() {
    let mut monitors = Monitors::all_up(2);
    monitors.pool(2);
    let acting = monitors.map.pgs[&PG].acting.clone();
    monitors.activate(acting.clone());
    monitors.down(acting[0].0);
    monitors.up(acting[0].0, process(acting[0].0, 2));
    let mut host = Host::start(acting[0].0, 2, Host::new(acting[0].0).store);
    let (from, epoch, interval) = (
        Entity::Osd(acting[1]),
        monitors.map.epoch,
        monitors.map.pgs[&PG].since,
    );
    host.tell(MON, epoch, monitors.full());
    // The other member has one object, of which we have nothing.
    let version = Version {
        interval: Epoch(3),
        number: 1,
    };
    let has = PgInfo {
        exists: true,
        head: version,
        spans: vec![version],
        ..PgInfo::default()
    };
    host.tell(from, epoch, peer_info(interval, has));
    let entries = vec![first_of_a(version)];
    let log = LogReply {
        pg: PG,
        interval,
        from: Version::NONE,
        tail: Version::NONE,
        head: version,
        entries,
        dedup: Dedup::default(),
        totals: Totals::default(),
    };
    host.tell(from, epoch, Message::LogReply(log));
    host.tell(from, epoch, adopted(interval, version));
    let members = monitors.map.pgs[&PG].acting.clone();
    let after = monitors.activate(members);
    host.tell(MON, after, monitors.since(epoch));
    host.wait(1000);
    grants_a_lease(&mut host, from, after);
    assert!(
        host.sent_to(acting[1].0)
            .iter()
            .any(|message| matches!(message, Message::Pull(_))),
        "it asks for the object"
    );
    // The object arrives; the store takes its time to make it durable.
    host.commits = false;
    host.tell(from, after, copy_of_a(interval, version, b"x"));
    host.held = Some(Vec::new());
    read(2, after, &mut host);
    // The object's attributes arrive; its data is read.
    host.release();
    assert_eq!(host.held.as_ref().map(Vec::len), Some(1));
    // Now the object is durable, and then the data arrives.
    host.commits = true;
    host.wait(50);
    host.release();
    let answered = |(_, message): &(Entity, Message)| matches!(message, Message::OpReply(reply, _) if reply.failure.is_none());
    assert!(host.sent.iter().any(answered), "{:?}", host.sent);
}

/// Simulator with the real store, seed 439. A compare-and-set was reading the data to compare when
/// backfill held its object's range to compare it with the target's. The update was ordered after
/// the comparison: the object to push was no longer the compared one, the push was given up, and
/// the backfill made no progress any more.
#[test]
fn a_range_is_not_compared_while_an_update_in_it_is_still_reading() {
    let (mut host, after, interval, target) = served_for_another(Some(Bytes::new()));
    write(1, after, &mut host);
    assert!(
        host.sent_to(target.0)
            .iter()
            .any(|message| matches!(message, Message::ScanQuery(_)))
    );
    // The compare-and-set waits for its data.
    host.held = Some(Vec::new());
    let swap = vec![
        SubOp::CompareData {
            offset: 0,
            length: 3,
        },
        SubOp::WriteFull { length: 3 },
    ];
    ask(
        10,
        1,
        1,
        swap,
        vec![Bytes::from_static(b"abc"), Bytes::from_static(b"xyz")],
        after,
        &mut host,
    );
    let waiting = host.held.take().expect("set above");
    assert_eq!(waiting.len(), 1);
    // The range is listed, here and there.
    has_nothing(&mut host, (after, interval), target);
    assert_eq!(
        pushes(&mut host, target.0),
        [],
        "not yet: the object is about to change"
    );
    host.held = Some(waiting);
    host.release();
    host.held = None;
    host.wait(1000);
    let versions: Vec<Version> = host
        .sent_to(target.0)
        .iter()
        .filter_map(|message| match message {
            Message::Push(push, _) => Some(push.version),
            _ => None,
        })
        .collect();
    assert!(
        versions.iter().any(|version| version.number == 2),
        "the object as it is now: {versions:?}"
    );
}

/// Simulator with snapshots, seed 1018. As above, and the update made a clone of its object, which
/// was in no listing: the target never got it, and its cursor passed the position. A member without
/// the clone became primary later, and trimmed only clones that it had itself: the clone stayed on
/// one of the others for ever.
#[test]
fn a_range_has_what_came_into_being_after_it_was_listed() {
    let (mut monitors, mut host, epoch, interval, target) =
        served_by_monitors_for_another(Some(Bytes::new()));
    write(1, epoch, &mut host);
    let snap = nacre_types::SnapId(1);
    let after = monitors.commit(vec![Change::SnapCreate {
        pool: PG.pool,
        snap,
        name: "monday".into(),
    }]);
    host.tell(MON, after, monitors.since(epoch));
    host.sent_to(target.0);
    host.held = Some(Vec::new());
    let swap = vec![
        SubOp::CompareData {
            offset: 0,
            length: 3,
        },
        SubOp::WriteFull { length: 3 },
    ];
    ask(
        10,
        1,
        1,
        swap,
        vec![Bytes::from_static(b"abc"), Bytes::from_static(b"xyz")],
        after,
        &mut host,
    );
    // The object in the clone's place is known, and the clone's size, and the data is being read.
    host.release();
    host.release();
    let waiting = host.held.take().expect("set above");
    assert_eq!(waiting.len(), 1);
    has_nothing(&mut host, (after, interval), target);
    host.held = Some(waiting);
    host.release();
    host.held = None;
    host.wait(1000);
    let pushed = |message| match message {
        Message::Push(push, _) => Some((push.object.to_string(), push.version.number)),
        _ => None,
    };
    let pushed: std::collections::BTreeSet<_> = host
        .sent_to(target.0)
        .into_iter()
        .filter_map(pushed)
        .collect();
    assert_eq!(pushed, [("a:1".into(), 2), ("a".into(), 3)].into());
}

/// A range was done while backfill was forbidden, and no client was writing to the PG: when
/// backfill was allowed again, the PG was not checked.
#[test]
fn backfill_goes_on_when_it_is_allowed_again() {
    let (mut monitors, mut host, epoch, interval, target) =
        served_by_monitors_for_another(Some(Bytes::new()));
    let from = Entity::Osd(target);
    let asks = |host: &mut Host| {
        let sent = host.sent_to(target.0);
        sent.iter()
            .filter(|message| matches!(message, Message::ScanQuery(_)))
            .count()
    };
    assert_eq!(asks(&mut host), 1);
    let stopped = monitors.commit(vec![Change::Flags {
        flags: nacre_wire::map::flag::NO_BACKFILL,
    }]);
    host.tell(MON, stopped, monitors.since(epoch));
    // The range in progress ends; the next one waits.
    let to = Some(Bytes::from_static(&[0x80]));
    let round = compared(&host);
    let reply = ScanReply {
        pg: PG,
        interval,
        from: Bytes::new(),
        to: to.clone(),
        objects: Vec::new(),
        round,
    };
    host.tell(from, stopped, Message::ScanReply(reply));
    host.wait(1000);
    host.tell(
        from,
        stopped,
        Message::ProgressAck(ProgressAck {
            pg: PG,
            interval,
            cursor: to,
            round,
        }),
    );
    for _ in 0..8 {
        host.wait(500);
    }
    assert_eq!(asks(&mut host), 0, "it is forbidden");
    let goes_on = monitors.commit(vec![Change::Flags { flags: 0 }]);
    host.tell(MON, goes_on, monitors.since(stopped));
    for _ in 0..4 {
        host.wait(500);
    }
    assert!(asks(&mut host) > 0, "it is allowed");
}

/// A block of the primary's replica is corrupt. The reader does not get that error: the operation
/// waits, another member's replica replaces the damaged one, and the answer is from that.
#[test]
fn a_damaged_copy_is_healed_from_another_member() {
    let (_, mut host, epoch, member) = served_by_two();
    let from = Entity::Osd(OsdId(member));
    write(1, epoch, &mut host);
    let (interval, version) = makes_durable(&mut host, from, epoch);
    grants_a_lease(&mut host, from, epoch);
    assert!(
        host.store
            .corrupt(&crate::key::store_key(PG, &ObjectId::named("a")), 0)
    );
    host.sent.clear();
    read(2, epoch, &mut host);
    let pulls =
        |message: &Message| matches!(message, Message::Pull(pull) if pull.version == version);
    assert!(
        host.sent_to(member).iter().any(pulls),
        "it asks for the other copy"
    );
    assert!(
        host.sent.is_empty(),
        "nobody is told anything yet: {:?}",
        host.sent
    );
    host.tell(from, epoch, copy_of_a(interval, version, b"abc"));
    let good = |(_, message): &(Entity, Message)| matches!(message, Message::OpReply(reply, data) if reply.failure.is_none() && data.concat() == b"abc");
    assert!(host.sent.iter().any(good), "{:?}", host.sent);
}

/// Simulator, seed 2051. A daemon that waited for a map held a client's operations of an older
/// interval, and had no memory for the same ones when they were resent under the new one. Then it
/// received the held ones: the old duplicates were refused, and with them the note was removed that
/// the new ones were still to come. Operations that the client had sent after them were executed
/// first.
#[test]
fn a_copy_of_an_older_interval_does_not_stand_for_one_that_found_no_room() {
    let (mut monitors, mut host, old) = served_alone();
    host.osd.set_limits(Limits {
        held_messages: 4,
        ..Limits::default()
    });
    monitors.down(0);
    monitors.up(0, process(0, 1));
    host.commits = false;
    host.tell(MON, monitors.map.epoch, monitors.since(old));
    let new = monitors.map.epoch;
    assert!(!host.osd.is_live(), "its instance is not durable yet");
    for (attempt, epoch) in [(1, old), (2, new)] {
        append(3, attempt, epoch, &mut host);
        append(4, attempt, epoch, &mut host);
    }
    host.commits = true;
    host.wait(1);
    assert!(host.osd.is_live());
    append(5, 2, new, &mut host);
    let active = monitors.activate(vec![OsdId(0)]);
    host.tell(MON, active, monitors.since(new));
    host.wait(10_000);
    for sequence in 3..6 {
        append(sequence, 3, active, &mut host);
    }
    host.wait(100);
    let data = read_by_appender(active, &mut host);
    assert_eq!(data.as_deref(), Some(&b"abcdef"[..]));
}
