//! The role's watches.

use super::rig::{ME, Rig, TIMEOUT, config};
use bytes::Bytes;
use nacre_client::{ClientConfig, ObjectCluster, OpId, Refused, WatchError, WatchEvent};
use nacre_role::Role as _;
use nacre_types::{Entity, Instance, Name, ObjectId, OsdId, PgId, PoolId};
use nacre_wire::Message;
use nacre_wire::map::Change;
use nacre_wire::msg::client::{OpFailure, RequestId, SubOp, SubReply};
use nacre_wire::msg::watch::{WatchNotify, WatchPong, WatcherId};

pub fn a_watch_is_kept_alive_by_pings_and_says_until_when_it_is_known() {
    let (mut rig, watch) = Rig::watching();
    assert_eq!(rig.role.watch_confirmed(watch), Some(rig.now));
    let due = rig.role.next_deadline();
    assert_eq!(due.since(rig.now), TIMEOUT / 4);
    let before = rig.now;
    rig.now = due;
    rig.role.on_tick(due);
    assert_eq!(rig.pings().len(), 1);
    assert_eq!(
        rig.role.watch_confirmed(watch),
        Some(before),
        "not answered yet"
    );
    rig.pong(watch, due.0, true);
    rig.pong(watch, before.0, true);
    assert_eq!(
        rig.role.watch_confirmed(watch),
        Some(due),
        "and an old answer takes nothing back"
    );
    rig.pong(watch, 0, false);
    assert_eq!(rig.events(), [WatchEvent::Lost { watch, since: due }]);
    assert_eq!(rig.role.watch_confirmed(watch), None);
    rig.pong(watch, 0, false);
    assert!(rig.events().is_empty(), "once");
}

pub fn a_registration_that_fails_leaves_no_watch_and_one_under_way_is_not_lost() {
    let mut rig = Rig::new();
    let (watch, request) = rig.begin();
    rig.pong(watch, 0, false);
    assert!(rig.events().is_empty(), "its answer is still to come");
    rig.answer(&request, Some(OpFailure::NotFound {}), vec![]);
    let mut ended = Vec::new();
    rig.role.completions(&mut ended);
    assert_eq!(
        (ended[0].id, ended[0].result.is_err()),
        (OpId(watch.0), true)
    );
    rig.notify(watch, 1);
    assert!(rig.events().is_empty() && rig.role.unwatch(rig.now, watch) == Ok(None));
}

/// The watch of an object whose name no OSD could decode was not refused: the OSD closed the
/// connection at each attempt to register it.
pub fn a_watch_that_no_osd_could_read_is_refused_and_leaves_nothing() {
    let mut rig = Rig::new();
    let object = ObjectId {
        name: Name::copy(&[b'x'; Name::LEN_MAX + 1]),
        ..ObjectId::default()
    };
    let watch = rig
        .role
        .watch(rig.now, PoolId(1), object, TIMEOUT)
        .expect("taken");
    assert_eq!(
        (rig.sent().len(), rig.ended()),
        (0, vec![(OpId(watch.0), false)])
    );
    assert_eq!(rig.role.unwatch(rig.now, watch), Ok(None), "there is none");
}

/// The primary repeats a notify until it is acknowledged; acknowledgements are lost, and a new
/// primary repeats it, too.
pub fn a_repeated_notify_is_told_once_and_acknowledged_as_often_as_it_comes() {
    let (mut rig, watch) = Rig::watching();
    let notify = rig.notify(watch, 1);
    rig.notify(watch, 1);
    let told = WatchEvent::Notify {
        watch,
        notify,
        payload: vec![Bytes::from_static(b"new")],
    };
    assert_eq!(rig.events(), [told]);
    assert!(rig.sent().is_empty(), "the service has not acknowledged it");
    let long = Bytes::from(vec![0; 4097]);
    assert_eq!(
        rig.role.ack_notify(rig.now, watch, notify, long),
        Err(WatchError::ReplyTooLarge)
    );
    rig.role
        .ack_notify(rig.now, watch, notify, Bytes::from_static(b"ok"))
        .expect("it was told");
    let first = rig.sent();
    assert!(
        matches!(&first[..], [(_, Message::NotifyAck(ack, _))] if ack.notify == notify),
        "{first:?}"
    );
    rig.notify(watch, 1);
    assert!(rig.events().is_empty());
    assert_eq!(rig.sent(), first, "the same again");
    assert_eq!(
        rig.role.ack_notify(rig.now, watch, notify, Bytes::new()),
        Err(WatchError::NoSuchNotify)
    );
    rig.notify(watch, 2);
    assert_eq!(rig.events().len(), 1, "another one");
}

pub fn a_new_primary_is_pinged_at_once_and_a_broken_connection_too() {
    let (mut rig, _) = Rig::watching();
    let before = rig.primary();
    rig.role.on_peer_reset(rig.now, before);
    assert_eq!(rig.pings(), [before]);
    rig.commit(Change::OsdDown {
        osd: before,
        instance: Instance(1),
    });
    assert_ne!(rig.primary(), before);
    assert_eq!(rig.pings(), [rig.primary()]);
    rig.commit(Change::Flags { flags: 1 });
    assert!(rig.pings().is_empty(), "nothing moved");
}

pub fn a_fence_and_a_removed_pool_end_watches() {
    let (mut rig, watch) = Rig::watching();
    rig.commit(Change::Fence {
        entity: Entity::Client(ME),
        instance: Instance(1),
    });
    assert!(matches!(rig.events()[..], [WatchEvent::Lost { watch: lost, .. }] if lost == watch));
    let (mut rig, watch) = Rig::watching();
    rig.commit(Change::PoolRemove { pool: PoolId(1) });
    assert!(matches!(rig.events()[..], [WatchEvent::Lost { watch: lost, .. }] if lost == watch));
}

pub fn an_ended_watch_says_nothing_more() {
    let (mut rig, watch) = Rig::watching();
    assert!(rig.role.unwatch(rig.now, watch).expect("taken").is_some());
    assert_eq!(rig.request().ops, [SubOp::Unwatch { cookie: watch.0 }]);
    rig.pong(watch, 0, false);
    rig.notify(watch, 1);
    assert!(rig.events().is_empty());
}

/// The removal of a watch may be refused for lack of space. The caller is told that the watch
/// continues, so it must.
pub fn a_watch_whose_removal_is_refused_goes_on() {
    let mut rig = Rig::with(ClientConfig {
        ops_max: 1,
        ..config()
    });
    let (watch, request) = rig.begin();
    rig.answer(&request, None, vec![SubReply::Done {}]);
    rig.sent();
    rig.submit();
    let other = rig.request();
    assert_eq!(rig.role.unwatch(rig.now, watch), Err(Refused::Busy));
    rig.notify(watch, 1);
    assert_eq!(rig.events().len(), 1, "it hears");
    rig.answer(&other, None, vec![SubReply::Done {}]);
    assert!(
        rig.role
            .unwatch(rig.now, watch)
            .expect("there is room")
            .is_some()
    );
    assert_eq!(
        rig.request().ops,
        [SubOp::Unwatch { cookie: watch.0 }],
        "nobody waits for it"
    );
}

/// The host calls for the watch that is due first; a broken connection to another OSD does not
/// affect either.
pub fn the_first_of_several_pings_says_when() {
    let (mut rig, _) = Rig::watching();
    let long = TIMEOUT * 10;
    rig.role
        .watch(rig.now, PoolId(1), ObjectId::named("b"), long)
        .expect("taken");
    let request = rig.request();
    rig.answer(&request, None, vec![SubReply::Done {}]);
    rig.sent();
    assert_eq!(rig.role.next_deadline().since(rig.now), TIMEOUT / 4);
    let other = nacre_types::OsdId(1 - rig.primary().0);
    rig.role.on_peer_reset(rig.now, other);
    assert!(rig.pings().is_empty());
}

/// The time in which a watcher may have missed something starts when the watch last existed for
/// certain: an answer confirms its own ping, not a later one.
pub fn a_lost_watch_says_until_when_it_was_certainly_there() {
    let (mut rig, watch) = Rig::watching();
    let begun = rig.now;
    let mut pinged = Vec::new();
    for _ in 0..3 {
        rig.now = rig.role.next_deadline();
        rig.role.on_tick(rig.now);
        assert_eq!(rig.pings().len(), 1);
        pinged.push(rig.now);
    }
    assert_eq!(rig.role.watch_confirmed(watch), Some(begun));
    rig.pong(watch, pinged[0].0, true);
    assert_eq!(rig.role.watch_confirmed(watch), Some(pinged[0]));
    rig.pong(watch, pinged[2].0, false);
    assert_eq!(
        rig.events(),
        [WatchEvent::Lost {
            watch,
            since: pinged[0]
        }]
    );
}

/// Unacknowledged notifies are bounded: those beyond the bound count as missed, and the primary
/// removes the watch.
pub fn notifies_that_are_not_acknowledged_are_bounded() {
    let (mut rig, watch) = Rig::watching();
    for number in 1..=100 {
        rig.notify(watch, number);
    }
    assert_eq!(rig.events().len(), 64);
}

/// A notify for another instance of this client is ignored.
pub fn a_notify_and_a_pong_for_another_instance_are_not_heard() {
    let (mut rig, watch) = Rig::watching();
    let watcher = WatcherId {
        client: ME,
        instance: Instance(2),
        cookie: watch.0,
    };
    rig.tell(Message::WatchPong(WatchPong {
        watcher,
        stamp: 0,
        alive: false,
    }));
    let notify = RequestId {
        client: ME,
        instance: Instance(1),
        sequence: 1,
    };
    let (pg, object) = (PgId::replicated(PoolId(1), 0), ObjectId::named("a"));
    rig.tell(Message::WatchNotify(
        WatchNotify {
            pg,
            object,
            watcher,
            notify,
        },
        vec![],
    ));
    assert!(rig.events().is_empty());
}

/// (Planted by a reviewer.) The caller that gave up a registration was told that it failed: it gets
/// no events, and the watch is not kept alive.
pub fn a_registration_that_is_given_up_leaves_no_watch() {
    let mut rig = Rig::new();
    let (watch, request) = rig.begin();
    rig.role.abandon(OpId(watch.0));
    assert_eq!(rig.ended(), [(OpId(watch.0), false)]);
    rig.answer(&request, None, vec![SubReply::Done {}]);
    rig.notify(watch, 1);
    assert!(rig.events().is_empty() && rig.pings().is_empty());
    assert_eq!(rig.role.unwatch(rig.now, watch), Ok(None), "there is none");
}

/// (Planted by a reviewer: the newest was forgotten.) The primary repeats the newest notify until
/// it has the acknowledgement.
pub fn of_what_was_acknowledged_the_newest_is_remembered() {
    let (mut rig, watch) = Rig::watching();
    for number in 1..=66 {
        let notify = rig.notify(watch, number);
        assert_eq!(rig.events().len(), 1);
        rig.role
            .ack_notify(rig.now, watch, notify, Bytes::new())
            .expect("it was told");
        assert_eq!(rig.sent().len(), 1);
        rig.notify(watch, number);
        assert!(rig.events().is_empty(), "it was told notify {number}");
        assert!(matches!(rig.sent()[..], [(_, Message::NotifyAck(..))]));
    }
}

/// (Planted by a reviewer: it was forgotten.) A notify acknowledged while there is no primary is
/// not reported again.
pub fn what_is_acknowledged_while_nobody_serves_is_not_told_again() {
    let (mut rig, watch) = Rig::watching();
    let notify = rig.notify(watch, 1);
    assert_eq!(rig.events().len(), 1);
    for osd in 0..2 {
        rig.commit(Change::OsdDown {
            osd: OsdId(osd),
            instance: Instance(1),
        });
    }
    rig.role
        .ack_notify(rig.now, watch, notify, Bytes::new())
        .expect("it was told");
    let address = nacre_wire::map::Address("o".into());
    let up = Change::OsdUp {
        osd: OsdId(1),
        instance: Instance(2),
        address,
        store: 2,
        features: 0,
        process: 2,
    };
    rig.commit(up);
    rig.sent();
    rig.notify(watch, 1);
    assert!(rig.events().is_empty());
    assert!(matches!(rig.sent()[..], [(_, Message::NotifyAck(..))]));
}
