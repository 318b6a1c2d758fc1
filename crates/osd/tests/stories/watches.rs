//! Stories of watchers, notifiers and the primary between them: no watcher misses a notify without
//! learning of it.

use super::company::Company;
use nacre_types::{ClientId, Entity, Instance, ObjectId};
use nacre_wire::Message;
use nacre_wire::map::Change;
use nacre_wire::msg::client::{OpFailure, OpRequest, SubOp, SubReply};
use nacre_wire::msg::watch::{NOTIFIES_MAX, NotifyAck, WATCHERS_MAX, WatchPing, WatcherId};
use std::time::Duration;

const ANNA: ClientId = ClientId(21);

const BERT: ClientId = ClientId(22);

const NOTIFIER: ClientId = ClientId(30);

fn watch_of(client: ClientId) -> WatcherId {
    WatcherId {
        client,
        instance: Instance(1),
        cookie: 5,
    }
}

impl Company {
    fn watch(&mut self, client: ClientId, timeout_ms: u32) -> Result<(), OpFailure> {
        let request = self.request(
            client,
            "a",
            vec![SubOp::Watch {
                cookie: 5,
                timeout_ms,
            }],
            0,
        );
        self.resend(&request, &[]);
        self.await_answer(&request).map(|_| ())
    }
    fn notify(&mut self, timeout_ms: u32, text: &str) -> OpRequest {
        let ops = vec![SubOp::Notify {
            timeout_ms,
            length: text.len() as u64,
        }];
        let request = self.request(NOTIFIER, "a", ops, 0);
        self.resend(&request, text.as_bytes());
        self.settle();
        request
    }
    /// The notifies that a client received and has not taken yet.
    fn heard(&mut self, client: ClientId) -> Vec<(Message, String)> {
        let (mine, others) = std::mem::take(&mut self.told)
            .into_iter()
            .partition(|(to, _)| *to == client);
        self.told = others;
        let mine: Vec<(ClientId, Message)> = mine;
        let text = |message: &Message| {
            message
                .payload()
                .iter()
                .flatten()
                .map(|byte| char::from(*byte))
                .collect()
        };
        mine.into_iter()
            .map(|(_, message)| (message.clone(), text(&message)))
            .collect()
    }
    fn texts(&mut self, client: ClientId) -> Vec<String> {
        let notify = |(message, text): (Message, String)| {
            matches!(message, Message::WatchNotify(..)).then_some(text)
        };
        self.heard(client).into_iter().filter_map(notify).collect()
    }
    fn ack(&mut self, client: ClientId, notify: &OpRequest, reply: &'static str) {
        let (pg, object) = (self.group("a"), ObjectId::named("a"));
        let message = NotifyAck {
            pg,
            object,
            watcher: watch_of(client),
            notify: notify.request,
        };
        self.say(client, "a", Message::NotifyAck(message, vec![reply.into()]));
        self.settle();
    }
    fn ping(&mut self, client: ClientId) {
        let (pg, object) = (self.group("a"), ObjectId::named("a"));
        let message = WatchPing {
            pg,
            object,
            watcher: watch_of(client),
            stamp: 77,
        };
        self.say(client, "a", Message::WatchPing(message));
        self.settle();
    }
    /// The reports on its watch that a client received: the stamp, and whether the watch exists.
    fn pongs(&mut self, client: ClientId) -> Vec<(u64, bool)> {
        let pong = |(message, _): (Message, String)| match message {
            Message::WatchPong(pong) if pong.watcher == watch_of(client) => {
                Some((pong.stamp, pong.alive))
            }
            _ => None,
        };
        self.heard(client).into_iter().filter_map(pong).collect()
    }
    fn watchers(&mut self) -> Vec<ClientId> {
        let request = self.send("a", vec![SubOp::ListWatchers {}], &[], 0);
        self.await_answer(&request).expect("the object is there");
        let [SubReply::Watchers { watchers }] = &self.results(&request)[..] else {
            panic!("a list was asked for")
        };
        watchers.iter().map(|watcher| watcher.id.client).collect()
    }
    /// The watchers that acknowledged it, those that missed it, and whether the answer comes from
    /// memory.
    fn outcome(&self, notify: &OpRequest) -> (Vec<ClientId>, Vec<ClientId>, bool) {
        let [
            SubReply::Notified {
                acked,
                missed,
                from_memory,
            },
        ] = &self.results(notify)[..]
        else {
            panic!("{:?}", self.results(notify))
        };
        let missed = missed.iter().map(|id| id.client).collect();
        (
            acked.iter().map(|acked| acked.watcher.client).collect(),
            missed,
            *from_memory,
        )
    }
}

fn watched(size: u8) -> Company {
    let mut company = Company::new(u32::from(size), 2.min(size), size);
    company.write("a", b"hello").expect("written");
    company.watch(ANNA, 60_000).expect("watched");
    company.watch(BERT, 60_000).expect("watched");
    company
}

#[test]
fn a_notify_is_answered_when_everyone_has_it_with_everyones_reply() {
    let mut company = watched(3);
    assert_eq!(company.watchers(), [ANNA, BERT]);
    let notify = company.notify(5000, "new");
    assert_eq!(
        (company.texts(ANNA), company.texts(BERT)),
        (vec!["new".to_owned()], vec!["new".to_owned()])
    );
    company.ack(BERT, &notify, "b!");
    company.ack(BERT, &notify, "again");
    assert!(
        company.answer(&notify).is_none(),
        "one is still to acknowledge"
    );
    company.ack(ANNA, &notify, "a!!");
    let (_, replies) = company.answer(&notify).expect("answered").expect("told");
    assert_eq!(replies, b"a!!b!");
    assert_eq!(company.outcome(&notify), (vec![ANNA, BERT], vec![], false));
    assert_eq!(company.watchers(), [ANNA, BERT], "nobody lost anything");
}

/// The central guarantee: a watcher that missed the notify is no watcher any more when the notifier
/// learns of it, regardless of failures.
#[test]
fn who_missed_it_has_durably_lost_his_watch_before_the_notifier_hears() {
    let mut company = watched(3);
    let notify = company.notify(1000, "new");
    company.ack(ANNA, &notify, "");
    company.lose = |message| matches!(message, Message::ReplicateAcks(_));
    company.wait(1500);
    assert!(
        company.answer(&notify).is_none(),
        "the removal is not durable yet"
    );
    assert!(company.pongs(BERT).is_empty(), "nor has he lost anything");
    company.lose = |_| false;
    company.wait(1500);
    assert_eq!(company.outcome(&notify), (vec![ANNA], vec![BERT], false));
    assert_eq!(company.pongs(BERT), [(0, false)], "he is told");
    let dead = company.kill(company.acting()[0]);
    company.wait(2000);
    assert_eq!(company.watchers(), [ANNA]);
    company.ping(BERT);
    assert_eq!(company.pongs(BERT), [(77, false)], "and whenever he asks");
    // The answer was lost, and the notifier resends: it gets the list of those that missed it from
    // the new primary too.
    company.replies.clear();
    company.resend(&notify, b"new");
    company.settle();
    assert_eq!(company.outcome(&notify), (vec![ANNA], vec![BERT], true));
    drop(dead);
}

#[test]
fn watches_survive_the_primary_and_a_resent_notify_reaches_them_under_the_same_name() {
    let mut company = watched(3);
    let notify = company.notify(20_000, "new");
    company.ack(ANNA, &notify, "");
    let first = company.heard(BERT);
    let _dead = company.kill(company.acting()[0]);
    company.wait(2000);
    company.ping(BERT);
    assert_eq!(company.pongs(BERT), [(77, true)]);
    company.resend(&notify, b"new");
    company.settle();
    assert_eq!(company.heard(BERT), first, "just as before");
    company.ack(BERT, &notify, "");
    assert!(
        company.answer(&notify).is_none(),
        "the new primary does not know that Anna has it: she is told again"
    );
    assert_eq!(company.texts(ANNA).last().map(String::as_str), Some("new"));
    company.ack(ANNA, &notify, "");
    assert_eq!(company.outcome(&notify), (vec![ANNA, BERT], vec![], false));
}

#[test]
fn who_is_silent_for_his_timeout_loses_his_watch_and_who_pings_does_not() {
    let mut company = watched(2);
    company.watch(ANNA, 1000).expect("a shorter timeout");
    company.watch(BERT, 1000).expect("a shorter timeout");
    for _ in 0..8 {
        company.ping(BERT);
        company.wait(300);
    }
    assert_eq!(company.watchers(), [BERT]);
    assert_eq!(company.pongs(ANNA), [(0, false)]);
    assert!(company.pongs(BERT).iter().all(|pong| *pong == (77, true)));
}

/// A stalled primary heard no watchers: that is not the watchers' fault.
#[test]
fn what_the_primary_slept_through_does_not_count() {
    let mut company = watched(2);
    company.watch(ANNA, 1000).expect("a shorter timeout");
    let notify = company.notify(1000, "new");
    for host in company.hosts.values_mut() {
        host.now = host.now + Duration::from_secs(30);
    }
    company.wait(100);
    assert_eq!(company.watchers(), [ANNA, BERT]);
    assert!(
        company.answer(&notify).is_none(),
        "the notify did not run out either"
    );
    company.wait(1500);
    assert_eq!(company.outcome(&notify), (vec![], vec![ANNA, BERT], false));
}

#[test]
fn a_new_primary_gives_everybody_a_full_timeout() {
    let mut company = watched(3);
    company.watch(ANNA, 4000).expect("a shorter timeout");
    company.wait(3000);
    let _dead = company.kill(company.acting()[0]);
    company.wait(1000);
    company.watchers();
    company.wait(3500);
    assert_eq!(company.watchers(), [ANNA, BERT]);
    company.wait(1000);
    assert_eq!(company.watchers(), [BERT]);
}

#[test]
fn deleting_the_object_breaks_its_watches() {
    let mut company = watched(3);
    let waiting = company.notify(1000, "new");
    company
        .op("a", vec![SubOp::Delete {}], &[])
        .expect("deleted");
    assert_eq!(
        (company.pongs(ANNA), company.pongs(BERT)),
        (vec![(0, false)], vec![(0, false)])
    );
    company.wait(1500);
    assert_eq!(
        company.outcome(&waiting),
        (vec![], vec![ANNA, BERT], false),
        "they are named as having missed it"
    );
    company.write("a", b"another").expect("written");
    assert!(company.watchers().is_empty());
    company.ping(ANNA);
    assert_eq!(company.pongs(ANNA), [(77, false)]);
    let gone = company.request(
        ANNA,
        "b",
        vec![SubOp::Watch {
            cookie: 1,
            timeout_ms: 1000,
        }],
        0,
    );
    company.resend(&gone, &[]);
    assert_eq!(
        company.await_answer(&gone),
        Err(OpFailure::NotFound {}),
        "there is nothing to watch"
    );
}

#[test]
fn a_fenced_clients_watches_go_at_once() {
    let mut company = watched(3);
    let notify = company.notify(60_000, "new");
    company.ack(BERT, &notify, "");
    company.commit(vec![Change::Fence {
        entity: Entity::Client(ANNA),
        instance: Instance(1),
    }]);
    company.wait(100);
    assert_eq!(
        company.outcome(&notify),
        (vec![BERT], vec![ANNA], false),
        "nobody waits for her"
    );
    assert_eq!(company.watchers(), [BERT]);
    company.ping(ANNA);
    assert!(company.pongs(ANNA).contains(&(77, false)));
    assert_eq!(company.watch(ANNA, 1000), Err(OpFailure::Fenced {}));
}

#[test]
fn a_notify_comes_after_the_updates_before_it_and_stands_in_nobodys_way() {
    let mut company = watched(3);
    company.lose = |message| matches!(message, Message::ReplicateAcks(_));
    let write = company.send("a", vec![SubOp::WriteFull { length: 3 }], b"new", 0);
    let notify = company.notify(5000, "look");
    assert!(
        company.texts(ANNA).is_empty(),
        "what it is about may still be lost"
    );
    company.lose = |_| false;
    company.wait(1000);
    assert!(matches!(company.answer(&write), Some(Ok(_))));
    assert_eq!(company.texts(ANNA)[0], "look");
    company
        .write("a", b"newer")
        .expect("written while the notify waits");
    assert_eq!(company.read("a").expect("read"), b"newer");
    assert!(company.answer(&notify).is_none());
}

#[test]
fn a_notify_that_waits_is_told_again_and_a_resend_of_it_is_no_second_one() {
    let mut company = watched(2);
    let notify = company.notify(60_000, "new");
    company.resend(&notify, b"new");
    company.settle();
    assert_eq!(company.texts(ANNA).len(), 1);
    company.ping(ANNA);
    assert_eq!(
        company.texts(ANNA).len(),
        1,
        "who shows up is told at once: he may not have been here when it began"
    );
    company.wait(1000);
    assert!(
        company.texts(ANNA).len() > 1,
        "the first may have been lost"
    );
    company.ack(ANNA, &notify, "");
    company.ack(BERT, &notify, "");
    assert_eq!(
        company
            .replies
            .iter()
            .filter(|(reply, _)| reply.request == notify.request)
            .count(),
        1
    );
}

#[test]
fn there_are_bounds_and_they_are_said() {
    let mut company = watched(1);
    for number in 2..WATCHERS_MAX as u64 {
        company.watch(ClientId(100 + number), 60_000).expect("room");
    }
    let Err(OpFailure::TooMany { what }) = company.watch(ClientId(99), 60_000) else {
        panic!("too many")
    };
    assert!(what.contains("100"), "{what}");
    company
        .watch(ANNA, 50_000)
        .expect("whoever is there already may renew");
    assert!(matches!(
        company.watch(ANNA, 1),
        Err(OpFailure::Invalid { .. })
    ));
    let mut waiting = Vec::new();
    for _ in 0..NOTIFIES_MAX {
        waiting.push(company.notify(60_000, "new"));
    }
    let one_more = company.notify(60_000, "new");
    assert!(matches!(
        company.answer(&one_more),
        Some(Err(OpFailure::TooMany { .. }))
    ));
    assert!(waiting.iter().all(|notify| {
        !company
            .replies
            .iter()
            .any(|(reply, _)| reply.request == notify.request)
    }));
    let long = "x".repeat((64 << 10) + 1);
    let refused = company.notify(60_000, &long);
    assert!(matches!(
        company.answer(&refused),
        Some(Err(OpFailure::Invalid { .. }))
    ));
    let unwatch = company.request(ANNA, "a", vec![SubOp::Unwatch { cookie: 5 }], 0);
    company.resend(&unwatch, &[]);
    company.await_answer(&unwatch).expect("it was there");
    company.watch(ClientId(99), 60_000).expect("room again");
}

/// (Planted by a reviewer: it was the PG's.)
#[test]
fn the_bound_on_notifies_is_the_objects() {
    let mut company = watched(1);
    for _ in 0..NOTIFIES_MAX {
        company.notify(60_000, "new");
    }
    company.write("b", b"hello").expect("written");
    let watch = company.request(
        BERT,
        "b",
        vec![SubOp::Watch {
            cookie: 5,
            timeout_ms: 60_000,
        }],
        0,
    );
    company.resend(&watch, &[]);
    company.await_answer(&watch).expect("watched");
    let notify = company.request(
        NOTIFIER,
        "b",
        vec![SubOp::Notify {
            timeout_ms: 60_000,
            length: 0,
        }],
        0,
    );
    company.resend(&notify, &[]);
    company.wait(200);
    assert_eq!(company.answer(&notify), None, "it waits for Bert");
}

/// (Planted by a reviewer.) A client that watches an object and holds a leased lock on it keeps
/// both with its pings.
#[test]
fn pings_keep_the_watchers_lock() {
    let mut company = watched(3);
    let lock = |company: &mut Company, client| {
        let (name, description) = ("n".into(), String::new());
        let op = SubOp::Lock {
            name,
            cookie: 1,
            shared: false,
            lease_ms: 1000,
            description,
        };
        let request = company.request(client, "a", vec![op], 0);
        company.resend(&request, &[]);
        company.await_answer(&request).map(|_| ())
    };
    lock(&mut company, ANNA).expect("free");
    for _ in 0..10 {
        company.ping(ANNA);
        company.wait(300);
    }
    assert!(matches!(
        lock(&mut company, BERT),
        Err(OpFailure::LockHeld { .. })
    ));
    company.wait(1500);
    lock(&mut company, BERT).expect("she is silent");
}

/// (Review, and planted by a reviewer.) An object cannot be written for a while, since a member
/// lacks it. Its silent watcher was dropped once more after each timeout, in operations that count
/// like clients': with a short timeout there were thousands, and the daemon received nothing any
/// more.
#[test]
fn a_silent_watcher_of_what_cannot_be_written_is_dropped_once() {
    let mut company = watched(3);
    company.watch(ANNA, 1_500).expect("watched");
    let away = company.acting()[2];
    let host = company.kill(away);
    company.write("a", b"new").expect("two are enough");
    company.lose = |message| matches!(message, Message::Push(..));
    company.revive(host, 2);
    // The primary loads it, with its watchers.
    company.wait(1000);
    assert_eq!(company.watchers(), [ANNA, BERT]);
    company.wait(12_000);
    let primary = company.acting()[0];
    assert_eq!(company.host(primary).osd.client_load().0, 1);
    company.lose = |_| false;
    company.wait(4000);
    assert_eq!(company.watchers(), [BERT]);
    assert_eq!(company.host(primary).osd.client_load().0, 0);
}

/// (Review.) A notify that a watcher missed ends with an update, which removes the watch: that
/// changed the object's modification time.
#[test]
fn a_notify_modifies_nothing() {
    let mut company = watched(3);
    let stat = |company: &mut Company| {
        let request = company.send("a", vec![SubOp::Stat {}], &[], 0);
        company.await_answer(&request).expect("it is there");
        let [SubReply::Stat { modified_ms, .. }] = company.results(&request)[..] else {
            panic!("a stat")
        };
        modified_ms
    };
    let mut write = company.request(NOTIFIER, "a", vec![SubOp::WriteFull { length: 1 }], 0);
    write.unix_ms = 1_000;
    company.resend(&write, b"x");
    company.await_answer(&write).expect("written");
    assert_eq!(stat(&mut company), 1_000);
    let mut notify = company.request(
        NOTIFIER,
        "a",
        vec![SubOp::Notify {
            timeout_ms: 500,
            length: 0,
        }],
        0,
    );
    notify.unix_ms = 2_000;
    company.resend(&notify, &[]);
    company.wait(2000);
    assert_eq!(company.outcome(&notify).1, [ANNA, BERT], "both missed it");
    assert_eq!(stat(&mut company), 1_000);
}

/// (Review.) A notify is resent while its client continues to write the object, or renews its lock
/// there: the resend was refused as overtaken, although the notify was in progress.
#[test]
fn a_notify_goes_on_though_its_client_writes_meanwhile() {
    let mut company = watched(3);
    let notify = company.notify(20_000, "new");
    company.ack(ANNA, &notify, "");
    let mut write = company.request(NOTIFIER, "a", vec![SubOp::WriteFull { length: 1 }], 0);
    write.answered_below = notify.answered_below;
    company.resend(&write, b"x");
    company.await_answer(&write).expect("written");
    company.resend(
        &OpRequest {
            attempt: 2,
            ..notify.clone()
        },
        b"new",
    );
    company.settle();
    assert!(
        company.answer(&notify).is_none(),
        "Bert is still to acknowledge"
    );
    company.ack(BERT, &notify, "");
    assert_eq!(company.outcome(&notify).0, [ANNA, BERT]);
}

/// (Review; F17.) Waiting notifies counted like other operations of clients. When there were so
/// many that the daemon received no more, it did not receive either the messages that would have
/// ended them: all of them timed out, and watchers that had acknowledged lost their watches.
#[test]
fn notifies_that_wait_keep_nobody_from_being_heard() {
    let mut company = watched(3);
    company.limit(crate::Limits {
        client_ops: 16,
        ..crate::Limits::default()
    });
    let primary = company.acting()[0];
    let waiting: Vec<OpRequest> = (0..6).map(|_| company.notify(60_000, "new")).collect();
    assert_eq!(
        company.host(primary).osd.client_load(),
        (0, 0),
        "they wait aside"
    );
    for notify in &waiting[4..] {
        assert!(
            matches!(company.answer(notify), Some(Err(OpFailure::TooMany { .. }))),
            "a quarter of the room is theirs"
        );
    }
    for notify in &waiting[..4] {
        company.ack(ANNA, notify, "");
        company.ack(BERT, notify, "");
        assert_eq!(company.outcome(notify).0, [ANNA, BERT]);
    }
    assert_eq!(company.host(primary).osd.client_load(), (0, 0));
}
