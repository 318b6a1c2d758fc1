//! Service metadata while leaders crash, hang and are cut off (MAL-10, -13): every key is a
//! linearizable register, every watch gets every revision once, and acknowledged changes are not
//! lost.
//!
//! ```text
//!  4 clients: set, get, compare-and-set over any monitor ─▶ history ─▶ nacre-history
//!  3 watchers that change monitors ─▶ their events == the leader's history
//!  a validator and a trigger in Lua ─▶ no forbidden value ever exists; every revision is recorded once
//! ```

use crate::harness::{World, ms};
use crate::meta::{Clients, client, prefix, put, range, reply_to, transact};
use nacre_client::{MetaClient, MetaDone, MetaFailure, MetaId, WatchNews};
use nacre_history::record::Outcome;
use nacre_history::{Kind, Record, check};
use nacre_mon::state::meta::Meta;
use nacre_types::{Entity, Epoch, Instance, MonId, Name, Time};
use nacre_wire::msg::meta::{
    MetaCall, MetaCompare, MetaError, MetaEvent, MetaOp, MetaRelation, MetaResult, MetaSpan,
    MetaTarget,
};
use std::collections::BTreeMap;
use std::time::Duration;

struct Someone {
    who: Entity,
    role: MetaClient,
    session: MonId,
    /// In flight: the request, and its record in the history.
    open: Option<(MetaId, Record)>,
    number: u64,
    told: Vec<MetaEvent>,
    through: u64,
}

impl Someone {
    fn new(n: u64) -> Self {
        Self {
            who: client(n),
            role: MetaClient::new(Instance(1)),
            session: MonId(0),
            open: None,
            number: n,
            told: Vec::new(),
            through: 0,
        }
    }
    fn connect(&mut self, world: &mut World, to: MonId) {
        if world.nodes[&self.session].up {
            world.disconnect(self.session, self.who);
        }
        self.role.on_session_lost();
        self.session = to;
        self.role.on_session(world.now);
        self.post(world);
    }
    fn post(&mut self, world: &mut World) {
        let mut out = Vec::new();
        self.role.take_outputs(&mut out);
        for message in out {
            world.say(self.who, self.session, Epoch::NONE, message);
        }
    }
}

const KEYS: u64 = 3;

fn key(n: u64) -> String {
    format!("reg/{n}")
}

/// Lua of the registers' namespace: values only grow, and every revision is recorded. A judgement
/// on the state at the time of application makes that hold for every value that is ever read; a
/// judgement on an older state would let some shrink.
const GROWS: &str = "function validate(key, old, new)
  if old ~= nil and tonumber(new) <= tonumber(old) then error('it does not grow') end
end";
const NOTES: &str = "function trigger(name, revision, events)
  return {{put = {'log/' .. revision, events[1].key}}}
end";

fn rules(world: &mut World, mons: u32) {
    let who = client(99);
    let mut admin = Clients::default();
    (0..mons).for_each(|id| world.name(MonId(id), who, "admin"));
    let settings = r#"{"validator": "grows", "triggers": [{"name": "t", "program": "notes"}]}"#;
    for (key, value) in [
        ("nacre/program/grows", GROWS),
        ("nacre/program/notes", NOTES),
        ("nacre/namespace/reg", settings),
    ] {
        let reply = admin.ask(world, who, MonId(0), transact(vec![put(key, value)]));
        assert!(
            matches!(reply.result, MetaResult::Transacted { .. }),
            "{reply:?}"
        );
    }
    let granted = admin.ask(world, who, MonId(0), MetaCall::Grant { ttl_ms: 1_000 });
    let MetaResult::Granted { lease, .. } = granted.result else {
        panic!("{granted:?}")
    };
    admin.ask(
        world,
        who,
        MonId(0),
        transact(vec![MetaOp::Put {
            key: "held/k".into(),
            value: "x".into(),
            lease,
        }]),
    );
}

/// The guarantees of validator, trigger and lease, over all revisions.
fn check_rules(meta: &Meta, truth: &[MetaEvent]) {
    let mut newest: BTreeMap<Name, u64> = BTreeMap::new();
    for event in truth {
        let MetaEvent::Put { pair } = event else {
            panic!("nobody deletes: {event:?}")
        };
        let value = std::str::from_utf8(&pair.value)
            .expect("digits")
            .parse()
            .expect("a number");
        let before = newest.insert(pair.key.clone(), value);
        assert!(
            before.is_none_or(|before| before < value),
            "{} went from {before:?} to {value}",
            pair.key
        );
        let note = meta
            .get(&format!("log/{}", pair.modified).as_str().into())
            .expect("its trigger ran");
        assert!(
            note.version == 1 && note.value == pair.key.as_bytes(),
            "once, for this: {note:?}"
        );
    }
    let span = prefix("log/");
    assert_eq!(meta.within(&span).count(), truth.len(), "for nothing else");
    assert!(
        meta.pending().is_empty()
            && meta.get(&"held/k".into()).is_none()
            && meta.leases().count() == 0
    );
}

/// The next action of a client.
fn next_call(world: &mut World, someone: &Someone, value: u64) -> (MetaCall, Record) {
    let key = key(world.dice.below(KEYS));
    let span = MetaSpan::Key {
        key: key.as_str().into(),
    };
    let put = MetaOp::Put {
        key: key.as_str().into(),
        value: value.to_string().into(),
        lease: 0,
    };
    let mut record = Record {
        client: someone.number,
        op: Kind::Write,
        key: key.clone(),
        value: Some(value),
        expect: None,
        invoke_ns: world.now.0,
        return_ns: None,
        result: None,
        unknown: false,
        fail: false,
    };
    match world.dice.below(3) {
        0 => (
            MetaCall::Transact {
                compares: vec![],
                then: vec![put],
                otherwise: vec![],
            },
            record,
        ),
        1 => {
            (record.op, record.value) = (Kind::Read, None);
            (
                MetaCall::Range {
                    span,
                    limit: 0,
                    keys_only: false,
                    serializable: false,
                },
                record,
            )
        }
        _ => {
            // Some recently written value: it matches occasionally.
            let expect = value.saturating_sub(1 + world.dice.below(6)).max(1);
            (record.op, record.expect) = (Kind::Cas, Some(expect));
            let target = MetaTarget::Value {
                value: expect.to_string().into(),
            };
            let compares = vec![MetaCompare {
                key: key.as_str().into(),
                target,
                relation: MetaRelation::Equal {},
            }];
            (
                MetaCall::Transact {
                    compares,
                    then: vec![put],
                    otherwise: vec![],
                },
                record,
            )
        }
    }
}

fn finish(done: MetaDone, now: Time, mut record: Record) -> Record {
    record.return_ns = Some(now.0);
    match (done.result, record.op) {
        (Ok(MetaResult::Ranged { pairs, .. }), Kind::Read) => {
            let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse().ok();
            record.result = Some(Outcome::Value(
                pairs.first().and_then(|pair| number(&pair.value)),
            ));
        }
        (Ok(MetaResult::Transacted { succeeded, .. }), Kind::Cas) => {
            record.result = Some(Outcome::Swapped(succeeded));
        }
        (Ok(MetaResult::Transacted { .. }), Kind::Write) => {}
        (Err(MetaFailure::Unknown(_)), _) => {
            record.unknown = true;
            record.return_ns = None;
        }
        (
            Err(MetaFailure::Refused(MetaError::Rejected { message, .. })),
            Kind::Write | Kind::Cas,
        ) => {
            assert_eq!(message, "it does not grow");
            record.fail = true;
        }
        (other, _) => panic!("{record:?} ended with {other:?}"),
    }
    record
}

/// Causes a fault, or ends all of them.
fn disturb(world: &mut World, mons: u32) {
    let down: Vec<MonId> = world
        .nodes
        .iter()
        .filter(|(_, node)| !node.up)
        .map(|(id, _)| *id)
        .collect();
    let paused: Vec<MonId> = world
        .nodes
        .iter()
        .filter(|(_, node)| node.paused)
        .map(|(id, _)| *id)
        .collect();
    for id in down {
        let lucky = usize::try_from(world.dice.below(3)).expect("small");
        world.restart(id, lucky);
    }
    for id in paused {
        world.resume(id);
    }
    world.heal();
    let victim = world.leader().unwrap_or(MonId(
        u32::try_from(world.dice.below(u64::from(mons))).expect("small"),
    ));
    match world.dice.below(6) {
        0 => world.crash(victim),
        1 => world.isolate(victim),
        2 => world.pause(victim),
        3 => (world.loss, world.repeats) = (20, 20),
        4 => world.delay = (ms(0), ms(40)),
        _ => {}
    }
}

fn run(seed: u64, mons: u32, disturbances: u32) {
    let mut world = World::found(mons, seed);
    world.elect();
    rules(&mut world, mons);
    let mut clients: Vec<Someone> = (0..4).map(Someone::new).collect();
    let mut watchers: Vec<Someone> = (10..13).map(Someone::new).collect();
    for (n, someone) in clients.iter_mut().chain(&mut watchers).enumerate() {
        someone.connect(&mut world, MonId(u32::try_from(n).expect("few") % mons));
    }
    for watcher in &mut watchers {
        watcher.role.watch(prefix("reg/"), 1);
        watcher.post(&mut world);
    }
    let (mut history, mut value, mut read) = (Vec::new(), 0, world.inbox.len());
    let mut next_disturbance = world.now + ms(500);
    let mut left = disturbances;
    let mut quiet_since = None;
    loop {
        world.run(ms(2));
        let now = world.now;
        let arrived: Vec<_> = world.inbox[read..].to_vec();
        read = world.inbox.len();
        for (_, from, to, message) in arrived {
            let everybody = clients.iter_mut().chain(&mut watchers);
            // A connection that was given up delivers no more answers; what is left of a watch's
            // events may arrive.
            if let Some(someone) = everybody.into_iter().find(|someone| someone.who == to)
                && from == Entity::Mon(someone.session)
            {
                someone.role.on_message(now, from, &message);
            }
        }
        for someone in clients.iter_mut().chain(&mut watchers) {
            let lost = !world.nodes[&someone.session].up;
            if lost || world.dice.chance(1) && world.dice.chance(20) {
                let to = MonId(u32::try_from(world.dice.below(u64::from(mons))).expect("small"));
                if world.nodes[&to].up {
                    someone.connect(&mut world, to);
                }
            }
            someone.role.on_tick(now);
        }
        for someone in &mut clients {
            if let Some((id, record)) = &someone.open
                && now.0 - record.invoke_ns > Duration::from_secs(8).as_nanos() as u64
            {
                someone.role.abandon(*id);
            }
            let mut done = Vec::new();
            someone.role.take_done(&mut done);
            for done in done {
                let (id, record) = someone.open.take().expect("one is open");
                assert_eq!(id, done.id);
                let record = finish(done, now, record);
                if record.unknown {
                    someone.number += 100;
                }
                history.push(record);
            }
            if someone.open.is_none() && left > 0 {
                value += 1;
                let (call, record) = next_call(&mut world, someone, value);
                let id = someone.role.submit(now, call).expect("room");
                someone.open = Some((id, record));
            }
            someone.post(&mut world);
        }
        for watcher in &mut watchers {
            let mut news = Vec::new();
            watcher.role.take_news(&mut news);
            for (_, news) in news {
                let WatchNews::Events { events, through } = news else {
                    panic!("a watch ended: {news:?}")
                };
                assert!(through >= watcher.through);
                watcher.through = through;
                watcher.told.extend(events);
            }
            watcher.post(&mut world);
        }
        if left > 0 && now >= next_disturbance {
            left -= 1;
            next_disturbance = now + ms(300 + world.dice.below(1_500));
            disturb(&mut world, mons);
            if left == 0 {
                // End the previous faults.
                let broken: Vec<MonId> = world
                    .nodes
                    .iter()
                    .filter(|(_, node)| !node.up)
                    .map(|(id, _)| *id)
                    .collect();
                broken.into_iter().for_each(|id| world.restart(id, 0));
                let paused: Vec<MonId> = world.nodes.keys().copied().collect();
                paused.into_iter().for_each(|id| world.resume(id));
                world.heal();
                quiet_since = Some(now);
            }
        }
        if quiet_since.is_some_and(|since| now.since(since) > Duration::from_secs(16)) {
            break;
        }
    }
    assert!(
        clients.iter().all(|someone| someone.open.is_none()),
        "everything has ended"
    );
    let leader = world.elect();
    let meta = world.mon(leader).state().expect("runs").meta();
    meta.check_all();
    let truth = meta
        .history()
        .since(1, &prefix("reg/"))
        .expect("all is kept");
    assert!(truth.len() > 50, "{} changes", truth.len());
    check_rules(meta, &truth);
    let rejected = history.iter().filter(|record| record.fail).count();
    assert!(
        rejected > 5,
        "the validator had something to do: {rejected}"
    );
    for watcher in &watchers {
        assert_eq!(
            watcher.through,
            meta.revision(),
            "{} has seen all",
            watcher.who
        );
        assert!(
            watcher.told == truth,
            "seed {seed}: {} was told something else",
            watcher.who
        );
    }
    let ended = history.iter().filter(|record| !record.unknown).count();
    assert!(ended > 100, "{ended} operations ended");
    if let Err(violations) = check(&history) {
        panic!("seed {seed}: {}", violations[0]);
    }
}

// Random faults rarely hit the moment in which a deposed leader does not know it; here it is
// forced. Failed when reads were answered without proof of leadership.
#[test]
fn a_leader_that_was_deposed_while_it_hung_answers_no_read_with_old_values() {
    let mut world = World::found(3, 71);
    let old = world.elect();
    let mut clients = Clients::default();
    clients.ask(
        &mut world,
        client(1),
        old,
        transact(vec![put("a/k", "old")]),
    );
    world.isolate(old);
    world.pause(old);
    world.until("a successor", Duration::from_secs(10), |world| {
        world.leader().is_some_and(|leader| leader != old)
    });
    let successor = world.elect();
    clients.ask(
        &mut world,
        client(1),
        successor,
        transact(vec![put("a/k", "new")]),
    );
    world.resume(old);
    assert!(world.mon(old).is_leader(), "it believes so still");
    let read = clients.send(&mut world, client(2), old, range("a/"));
    world.run(ms(100));
    assert!(
        reply_to(&world, client(2), read).is_none(),
        "cut off, it can prove nothing"
    );
    world.heal();
    world.until("an answer", Duration::from_secs(10), |world| {
        reply_to(world, client(2), read).is_some()
    });
    let MetaResult::Ranged { pairs, .. } =
        reply_to(&world, client(2), read).expect("just seen").result
    else {
        panic!("a read")
    };
    assert_eq!(pairs[0].value, "new");
}

// Failed when `Sessions::look` returned `New` for resent requests.
#[test]
fn keys_are_linearizable_and_watches_gapless_while_leaders_fail() {
    for seed in 1..=6 {
        run(seed, 3, 12);
    }
}

#[test]
fn also_with_five_monitors() {
    for seed in 101..=102 {
        run(seed, 5, 12);
    }
}
