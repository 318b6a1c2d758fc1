//! Stories of one daemon: which log is the measure, and what members are told.

use super::rig::{Host, MON, Monitors, PG, process, weighted};
use super::scenes::{peer_info, primary_with_log, served_by_two, served_for_another};
use nacre_types::{Entity, Epoch, OsdId, Version};
use nacre_wire::map::Weight;
use nacre_wire::msg::replication::{Dedup, LogReply, PgInfo, Ping, Totals};
use nacre_wire::{Message, Record};

/// Simulator, session 1. A peer that was behind was sent the map's changes once; that message was
/// lost, and not repeated. The peer continued to send its old epoch and got no useful answer.
#[test]
fn a_peer_that_stays_behind_is_told_again() {
    let (monitors, mut host, _, member) = served_by_two();
    let (from, old) = (Entity::Osd(OsdId(member)), Epoch(monitors.map.epoch.0 - 1));
    let mut told = || {
        host.tell(from, old, Message::Ping(Ping { stamp: host.now.0 }));
        host.sent_to(member)
            .iter()
            .filter(|message| matches!(message, Message::MapDeltas(_)))
            .count()
    };
    let first = told();
    let at_once = told();
    host.wait(500);
    let mut again = || {
        host.tell(from, old, Message::Ping(Ping { stamp: host.now.0 }));
        host.sent_to(member)
            .iter()
            .filter(|message| matches!(message, Message::MapDeltas(_)))
            .count()
    };
    assert_eq!(
        (first, at_once, again()),
        (1, 0, 1),
        "once, not with every frame, and again after a while"
    );
}

/// Simulator with real monitors, seed 6. Both members of a PG were replaced at once while its log
/// was still the whole history: the new ones adopted it and requested their activation. The
/// monitors refuse that without a member of the last activated interval, for ever.
#[test]
fn members_that_are_all_replaced_are_replaced_in_two_steps() {
    let mut monitors = Monitors::all_up(4);
    monitors.pool(2);
    let old = monitors.map.pgs[&PG].acting.clone();
    monitors.activate(old.clone());
    let out = |osd: &OsdId| weighted(osd.0, Weight::OUT);
    monitors.commit(old.iter().map(out).collect());
    let new = monitors.map.pgs[&PG].acting.clone();
    assert!(
        new.len() == 2 && new.iter().all(|osd| !old.contains(osd)),
        "{old:?} {new:?}"
    );
    let mut host = Host::new(new[0].0);
    host.tell(MON, monitors.map.epoch, monitors.full());
    let (interval, epoch) = (monitors.map.pgs[&PG].since, monitors.map.epoch);
    let version = Version {
        interval: Epoch(3),
        number: 1,
    };
    for osd in old.iter().chain(&new[1..]) {
        let mut info = PgInfo::default();
        if old.contains(osd) {
            (info.exists, info.head, info.spans) = (true, version, vec![version]);
        }
        host.tell(Entity::Osd(*osd), epoch, peer_info(interval, info));
    }
    let asked: Vec<&Vec<OsdId>> = host
        .to_mon
        .iter()
        .filter_map(|message| match message {
            Message::PgTemporaryRequest(request) => Some(&request.acting),
            _ => None,
        })
        .collect();
    assert!(
        !asked.is_empty(),
        "nobody of the last interval acts: {:?}",
        host.to_mon
    );
    assert!(
        asked
            .iter()
            .all(|acting| acting[0] == new[0] && old.contains(&acting[1])),
        "{asked:?}"
    );
}

/// Simulator with real monitors, seed 268. Two members had everything, one with a shorter log than
/// the other. By the longer log the PG's new members could follow by log, by the shorter they could
/// not: each primary judged by its own log, and the two handed the PG to each other, 38,000 times.
#[test]
fn of_those_who_know_everything_the_longest_log_is_the_measure() {
    let mut monitors = Monitors::all_up(3);
    monitors.pool(3);
    let acting = monitors.map.pgs[&PG].acting.clone();
    monitors.activate(acting.clone());
    monitors.down(acting[0].0);
    monitors.up(acting[0].0, process(acting[0].0, 2));
    let (epoch, interval) = (monitors.map.epoch, monitors.map.pgs[&PG].since);
    let head = Version {
        interval: Epoch(3),
        number: 9,
    };
    let (low, high) = (acting[1].min(acting[2]), acting[1].max(acting[2]));
    for longest in [low, high] {
        let mut host = Host::start(acting[0].0, 2, Host::new(acting[0].0).store);
        host.tell(MON, epoch, monitors.full());
        for osd in [low, high] {
            let tail = if osd == longest {
                Version::NONE
            } else {
                Version { number: 5, ..head }
            };
            let info = PgInfo {
                exists: true,
                head,
                tail,
                spans: vec![head],
                ..PgInfo::default()
            };
            host.tell(Entity::Osd(osd), epoch, peer_info(interval, info));
        }
        let asked = host
            .sent_to(longest.0)
            .iter()
            .any(|message| matches!(message, Message::LogQuery(_)));
        assert!(
            asked,
            "{longest} has the longest log; to the monitors: {:?}",
            host.to_mon
        );
    }
}

/// The library's seed 74. The primary's log was longer than the authoritative one and diverged from
/// it at a position without an entry here: the other half of a split has it. From its own former
/// log, the primary could not see that a third member shares that position; peering had let that
/// member in because it shares the position with the authoritative log. The member started over in
/// the acting set, where it is never brought up to date.
#[test]
fn who_follows_by_the_authoritys_log_is_given_what_comes_after_what_he_shares_with_that() {
    let old = |number| Version {
        interval: Epoch(3),
        number,
    };
    let entry = |version| crate::pg::testing::entry("a", Version::NONE, version);
    let (mut host, after, interval, [second, third]) =
        primary_with_log(old(1), old(9), vec![entry(old(2))]);
    let (tail, new) = (
        old(5),
        Version {
            interval: Epoch(4),
            number: 10,
        },
    );
    for (osd, head, spans) in [
        (second, new, vec![tail, new]),
        (third, old(7), vec![old(7)]),
    ] {
        let info = PgInfo {
            exists: true,
            head,
            tail,
            spans,
            activated: Epoch(3),
            ..PgInfo::default()
        };
        host.tell(Entity::Osd(osd), after, peer_info(interval, info));
    }
    let asked = host
        .sent_to(second.0)
        .into_iter()
        .find_map(|message| match message {
            Message::LogQuery(query) => Some(query.common),
            _ => None,
        });
    assert_eq!(asked, Some(tail), "where the two parted");
    let (dedup, totals) = (Dedup::default(), Totals::default());
    let reply = LogReply {
        pg: PG,
        interval,
        from: tail,
        tail,
        head: new,
        entries: vec![entry(new)],
        dedup,
        totals,
    };
    host.tell(Entity::Osd(second), after, Message::LogReply(reply));
    let adopts = host
        .sent_to(third.0)
        .into_iter()
        .find_map(|message| match message {
            Message::Adopt(adopt) => Some((adopt.restart, adopt.from, adopt.entries)),
            _ => None,
        });
    assert_eq!(adopts, Some((false, tail, vec![entry(new)])));
}

/// Simulator with snapshots, seed 1486. The primary's log began later than that of another complete
/// member; the third could follow by the other's log, and was let into the acting set. But the
/// primary took from the other log only what it lacked itself, which was nothing: by the primary's
/// log the third could not follow. It started over in the acting set, where it is never brought up
/// to date.
#[test]
fn a_primary_with_a_short_log_takes_what_others_need_to_follow() {
    let number = |number| Version {
        interval: Epoch(3),
        number,
    };
    let entry = |n| crate::pg::testing::entry(&format!("object-{n}"), Version::NONE, number(n));
    let entries: Vec<Record> = (1..=9).map(entry).collect();
    let (mut host, after, interval, [second, third]) =
        primary_with_log(number(5), number(9), entries[5..].to_vec());
    for (osd, head) in [(second, 9), (third, 3)] {
        let spans = vec![number(head)];
        let info = PgInfo {
            exists: true,
            head: number(head),
            spans,
            activated: Epoch(3),
            ..PgInfo::default()
        };
        host.tell(Entity::Osd(osd), after, peer_info(interval, info));
    }
    let asked = host
        .sent_to(second.0)
        .into_iter()
        .find_map(|message| match message {
            Message::LogQuery(query) => Some(query.common),
            _ => None,
        });
    assert_eq!(asked, Some(Version::NONE), "all of it");
    // The request or its answer may be lost: the same part is requested again.
    host.sent.clear();
    host.wait(2000);
    let again = host
        .sent_to(second.0)
        .into_iter()
        .find_map(|message| match message {
            Message::LogQuery(query) => Some(query.common),
            _ => None,
        });
    assert_eq!(again, Some(Version::NONE), "all of it, again");
    let reply = LogReply {
        pg: PG,
        interval,
        from: Version::NONE,
        tail: Version::NONE,
        head: number(9),
        entries: entries.clone(),
        dedup: Dedup::default(),
        totals: Totals::default(),
    };
    host.tell(Entity::Osd(second), after, Message::LogReply(reply));
    let adopts = host
        .sent_to(third.0)
        .into_iter()
        .find_map(|message| match message {
            Message::Adopt(adopt) => Some((adopt.restart, adopt.from, adopt.entries)),
            _ => None,
        });
    assert_eq!(adopts, Some((false, number(3), entries[3..].to_vec())));
    // The trimmed entries are in the store again, and clients that resend are known.
    let host = host.restart(2);
    let local = &host
        .osd
        .pgs()
        .find(|pg| pg.id() == PG)
        .expect("it is there")
        .local;
    assert_eq!(
        (local.log.tail(), local.log.entries().len()),
        (Version::NONE, 9)
    );
    assert!(local.missing.is_empty(), "its objects were there already");
    assert!(matches!(
        local.dedup.seen(&entries[1].request()),
        crate::pg::dedup::Seen::Done(_)
    ));
}

/// Simulator with real monitors, seed 205. Backfill was done and the primary requested the end of
/// the temporary acting set from the monitors; that message was lost with the connection. No client
/// was writing to the PG, so it was not checked again: it stayed remapped for ever.
#[test]
fn the_end_of_a_temporary_set_is_asked_for_until_it_comes() {
    let (mut host, ..) = served_for_another(None);
    let asked = |host: &mut Host| {
        let ends = |message: &Message| matches!(message, Message::PgTemporaryRequest(ask) if ask.acting.is_empty());
        std::mem::take(&mut host.to_mon)
            .iter()
            .filter(|message| ends(message))
            .count()
    };
    assert_eq!(asked(&mut host), 1);
    for _ in 0..8 {
        host.wait(500);
    }
    assert!(asked(&mut host) >= 2, "although no client does anything");
}
