//! Validators and triggers (MAL-13): a language of three words stands for the real one.

use crate::harness::{World, ms};
use crate::meta::{Clients, client, prefix, put, transact};
use nacre_mon::meta::programs::{
    Fault, NoPrograms, Program, Programs, TriggerActions, TriggerRequest, Uses, ValidateRequest,
    Verdict,
};
use nacre_types::MonId;
use nacre_wire::msg::meta::{MetaCall, MetaError, MetaEvent, MetaOp, MetaResult, MetaSpan};
use serde_json::json;
use std::time::Duration;

/// `max N`: numbers only, larger ones become N. `fill N`: N bytes, for any input. `copy`: a trigger
/// that writes each changed key's name to `log/REVISION`. `again`: a trigger that changes its own
/// namespace.
pub struct Words;

impl Programs for Words {
    fn check(&mut self, _program: Program<'_>) -> Result<Uses, Fault> {
        Ok(Uses {
            validator: true,
            trigger: true,
        })
    }
    fn steps(&self) -> u64 {
        0
    }
    fn validate(&mut self, program: Program<'_>, request: &ValidateRequest) -> Verdict {
        if program.source == "keep" {
            let reject = request.new.is_none() && request.key.as_bytes().ends_with(b"kept");
            return if reject {
                Verdict::Reject {
                    line: 1,
                    message: "it stays".to_owned(),
                }
            } else {
                Verdict::Accept
            };
        }
        if let Some(length) = program.source.strip_prefix("fill ") {
            return Verdict::Rewrite(vec![b'f'; length.parse().expect("a number")].into());
        }
        let most: u64 = program
            .source
            .strip_prefix("max ")
            .expect("the word")
            .parse()
            .expect("a number");
        let Some(new) = &request.new else {
            return Verdict::Accept;
        };
        match std::str::from_utf8(new)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
        {
            Some(number) if number > most => Verdict::Rewrite(most.to_string().into()),
            Some(_) => Verdict::Accept,
            None => Verdict::Reject {
                line: 1,
                message: format!("`{}` is no number", request.key),
            },
        }
    }
    fn trigger(
        &mut self,
        program: Program<'_>,
        request: &TriggerRequest<'_>,
    ) -> Result<TriggerActions, Fault> {
        let keys: Vec<String> = request
            .events
            .iter()
            .map(|event| event.key().to_string())
            .collect();
        match program.source {
            "copy" => {
                let ops = vec![put(&format!("log/{}", request.revision), &keys.join(",")).into()];
                Ok(TriggerActions {
                    ops,
                    lines: vec![format!("copied {}", keys.join(","))],
                })
            }
            "again" => Ok(TriggerActions {
                ops: vec![put("loop/k", "x").into()],
                lines: vec![],
            }),
            other => Err(Fault {
                line: 7,
                message: format!("what is `{other}`?"),
            }),
        }
    }
}

const ADMIN: u64 = 99;

fn world(seed: u64) -> (World, Clients) {
    let mut world = World::found_with(3, seed, || Box::new(Words));
    world.elect();
    for id in 0..3 {
        world.name(MonId(id), client(ADMIN), "admin");
    }
    (world, Clients::default())
}
fn admin(world: &mut World, clients: &mut Clients, key: &str, value: &str) {
    let reply = clients.ask(
        world,
        client(ADMIN),
        MonId(1),
        transact(vec![put(key, value)]),
    );
    assert!(
        matches!(reply.result, MetaResult::Transacted { .. }),
        "{reply:?}"
    );
}

// Failed when `validate` was not called.
#[test]
fn a_validator_rejects_and_rewrites_before_anything_is_stored() {
    let (mut world, mut clients) = world(61);
    admin(&mut world, &mut clients, "nacre/program/small", "max 10");
    admin(
        &mut world,
        &mut clients,
        "nacre/namespace/n",
        r#"{"validator": "small"}"#,
    );
    let who = client(1);
    let error = clients.fails(
        &mut world,
        who,
        MonId(0),
        transact(vec![put("n/a", "3"), put("n/b", "three")]),
    );
    let expected = MetaError::Rejected {
        validator: "small".into(),
        line: 1,
        message: "`n/b` is no number".into(),
    };
    assert_eq!(error, expected);
    assert!(
        clients.get(&mut world, who, MonId(1), "n/").is_empty(),
        "nothing of it"
    );
    clients.ask(
        &mut world,
        who,
        MonId(0),
        transact(vec![put("n/a", "3"), put("n/b", "30")]),
    );
    let stored = clients.get(&mut world, who, MonId(2), "n/");
    assert_eq!(
        stored,
        [
            ("n/a".to_owned(), "3".to_owned()),
            ("n/b".to_owned(), "10".to_owned())
        ]
    );
    let span = MetaSpan::Prefix {
        prefix: "n/".into(),
    };
    let error = clients.fails(
        &mut world,
        who,
        MonId(0),
        transact(vec![MetaOp::Delete { span }]),
    );
    assert!(matches!(error, MetaError::Invalid { .. }), "{error}");
    // A missing program causes a refusal, not an acceptance. (Only a transaction that does both
    // gets there.)
    let span = MetaSpan::Key {
        key: "nacre/program/gone".into(),
    };
    admin(&mut world, &mut clients, "nacre/program/gone", "max 1");
    let both = vec![
        put("nacre/namespace/n", r#"{"validator": "gone"}"#),
        MetaOp::Delete { span },
    ];
    let reply = clients.ask(&mut world, client(ADMIN), MonId(1), transact(both));
    assert!(
        matches!(reply.result, MetaResult::Transacted { .. }),
        "{reply:?}"
    );
    let error = clients.fails(&mut world, who, MonId(0), transact(vec![put("n/a", "3")]));
    assert!(
        matches!(error, MetaError::Rejected { line: 0, .. }),
        "{error}"
    );
}

// Failed when the guards were left out: a value that the new validator forbids was stored after it.
#[test]
fn what_a_validator_allowed_is_judged_again_when_the_rules_have_moved() {
    let (mut world, mut clients) = world(62);
    admin(&mut world, &mut clients, "nacre/program/small", "max 10");
    admin(
        &mut world,
        &mut clients,
        "nacre/namespace/n",
        r#"{"validator": "small"}"#,
    );
    // Rules and writes concurrently, in one proposal and in neighbouring ones.
    for round in 0..20 {
        let most = if round % 2 == 0 { 5 } else { 10 };
        let rule = format!("max {most}");
        let mut sent = Vec::new();
        for n in 0..3 {
            sent.push((
                client(n),
                clients.send(
                    &mut world,
                    client(n),
                    MonId(0),
                    transact(vec![put(&format!("n/{n}"), "99")]),
                ),
            ));
        }
        let rules = clients.send(
            &mut world,
            client(ADMIN),
            MonId(0),
            transact(vec![put("nacre/program/small", &rule)]),
        );
        for n in 3..6 {
            sent.push((
                client(n),
                clients.send(
                    &mut world,
                    client(n),
                    MonId(0),
                    transact(vec![put(&format!("n/{n}"), "99")]),
                ),
            ));
        }
        sent.push((client(ADMIN), rules));
        for (who, sequence) in sent {
            world.until("answered", Duration::from_secs(20), |world| {
                crate::meta::reply_to(world, who, sequence).is_some()
            });
        }
        world.run(ms(20));
    }
    // The history has all revisions: each value is the result of the rules of its time.
    let meta = world.mon(MonId(0)).state().expect("runs").meta();
    let (mut most, mut values) = ("10".to_owned(), 0);
    for event in meta.history().since(1, &prefix("")).expect("kept") {
        let MetaEvent::Put { pair } = event else {
            continue;
        };
        let value = String::from_utf8(pair.value.to_vec()).expect("text");
        if pair.key == "nacre/program/small".into() {
            most = value.strip_prefix("max ").expect("the word").to_owned();
        } else if pair.key.as_bytes().starts_with(b"n/") {
            assert_eq!(value, most, "revision {}", pair.modified);
            values += 1;
        }
    }
    assert_eq!(values, 120);
}

/// A transaction whose compares did not hold when it was judged, and whose other branch has nothing
/// to judge, had no guards: an earlier entry in the same proposal made them hold, and a value
/// without validation was stored. (Found by reading the code.)
#[test]
fn a_branch_that_is_chosen_later_is_judged_all_the_same() {
    let (mut world, mut clients) = world(64);
    admin(&mut world, &mut clients, "nacre/program/small", "max 10");
    admin(
        &mut world,
        &mut clients,
        "nacre/namespace/n",
        r#"{"validator": "small"}"#,
    );
    let mut carried_out = 0;
    for round in 0..20 {
        let open = format!("free/{round}");
        // Some before and some after it, in one proposal and in neighbouring ones.
        let mut sent = Vec::new();
        for n in 0..8 {
            let call = match n {
                3 => transact(vec![put(&open, "x")]),
                _ => MetaCall::Transact {
                    compares: vec![crate::meta::version_is(&open, 1)],
                    then: vec![put(&format!("n/{round}.{n}"), "99")],
                    otherwise: vec![],
                },
            };
            sent.push((
                client(n),
                clients.send(&mut world, client(n), MonId(0), call),
            ));
        }
        for (who, sequence) in sent {
            world.until("answered", Duration::from_secs(20), |world| {
                crate::meta::reply_to(world, who, sequence).is_some()
            });
        }
        for (key, value) in clients.get(&mut world, client(1), MonId(0), &format!("n/{round}.")) {
            assert_eq!(value, "10", "{key}");
            carried_out += 1;
        }
    }
    assert!(
        carried_out > 0,
        "the compares never held: nothing was tried"
    );
}

// Failed when `take` did not check the pending runs.
#[test]
fn triggers_run_after_commit_once_also_when_the_leader_dies() {
    let (mut world, mut clients) = world(63);
    admin(&mut world, &mut clients, "nacre/program/copy", "copy");
    let triggers = r#"{"triggers": [{"name": "c", "prefix": "n/x", "program": "copy"}, {"name": "t", "prefix": "n/", "log": "{key} {what} in {revision}"}]}"#;
    admin(&mut world, &mut clients, "nacre/namespace/n", triggers);
    let mut made = Vec::new();
    for n in 0..12_u32 {
        let via = world.elect();
        let reply = clients.ask(
            &mut world,
            client(1),
            via,
            transact(vec![put(&format!("n/x{n}"), "1")]),
        );
        made.push((format!("log/{}", reply.revision), format!("n/x{n}")));
        if n % 3 == 0 {
            // Just answered: the trigger's run may be at any stage.
            world.crash(via);
            world.run(Duration::from_micros(u64::from(n) * 300));
            let successor = world.elect();
            world.restart(via, 0);
            assert_ne!(successor, via);
        }
    }
    world.run(Duration::from_secs(2));
    made.sort();
    assert_eq!(clients.get(&mut world, client(1), MonId(0), "log/"), made);
    let lines = world
        .command(MonId(0), json!({"command": "log last", "n": 1000}))
        .expect("answered");
    let text = lines.to_string();
    for (_, key) in &made {
        assert_eq!(
            text.matches(&format!("copied {key}\"")).count(),
            1,
            "{key}: {text}"
        );
        assert_eq!(text.matches(&format!("{key} set in ")).count(), 1, "{key}");
    }
    let leader = world.elect();
    assert!(
        world
            .mon(leader)
            .state()
            .expect("runs")
            .meta()
            .pending()
            .is_empty()
    );
}

#[test]
fn a_trigger_that_sets_itself_off_ends_and_one_that_fails_says_so() {
    let (mut world, mut clients) = world(64);
    admin(&mut world, &mut clients, "nacre/program/again", "again");
    admin(&mut world, &mut clients, "nacre/program/bad", "nonsense");
    let triggers = r#"{"triggers": [{"name": "a", "program": "again"}, {"name": "b", "prefix": "loop/z", "program": "bad"}]}"#;
    admin(&mut world, &mut clients, "nacre/namespace/loop", triggers);
    let before = world.mon(MonId(0)).state().expect("runs").meta().revision();
    clients.ask(
        &mut world,
        client(1),
        MonId(0),
        transact(vec![put("loop/z", "1")]),
    );
    world.run(Duration::from_secs(2));
    assert_eq!(
        world.mon(MonId(0)).state().expect("runs").meta().revision(),
        before + 9,
        "one and eight after it"
    );
    let lines = world
        .command(MonId(0), json!({"command": "log last", "n": 50}))
        .expect("answered")
        .to_string();
    assert!(
        lines.contains("is not run") && lines.contains("what is `nonsense`?"),
        "{lines}"
    );
}

#[test]
fn a_lease_that_ends_sets_triggers_off_too() {
    let (mut world, mut clients) = world(65);
    admin(
        &mut world,
        &mut clients,
        "nacre/namespace/n",
        r#"{"triggers": [{"name": "t", "log": "{key} {what}"}]}"#,
    );
    let granted = clients.ask(
        &mut world,
        client(1),
        MonId(0),
        MetaCall::Grant { ttl_ms: 500 },
    );
    let MetaResult::Granted { lease, .. } = granted.result else {
        panic!("{granted:?}")
    };
    clients.ask(
        &mut world,
        client(1),
        MonId(0),
        transact(vec![MetaOp::Put {
            key: "n/k".into(),
            value: "x".into(),
            lease,
        }]),
    );
    world.run(Duration::from_secs(2));
    let lines = world
        .command(MonId(0), json!({"command": "log last", "n": 50}))
        .expect("answered")
        .to_string();
    assert!(
        lines.contains("n/k set") && lines.contains("n/k deleted"),
        "{lines}"
    );
}

// A monitor without a language refuses requests that need one.
#[test]
fn without_programs_a_validator_refuses_everything() {
    let mut world = World::found_with(1, 66, || Box::new(NoPrograms));
    world.elect();
    world.name(MonId(0), client(ADMIN), "admin");
    let mut clients = Clients::default();
    let ask = |key: &str, value: &str| transact(vec![put(key, value)]);
    clients.ask(
        &mut world,
        client(ADMIN),
        MonId(0),
        ask("nacre/program/p", "max 10"),
    );
    clients.ask(
        &mut world,
        client(ADMIN),
        MonId(0),
        ask("nacre/namespace/n", r#"{"validator": "p"}"#),
    );
    let error = clients.fails(&mut world, client(1), MonId(0), ask("n/a", "1"));
    assert!(
        matches!(&error, MetaError::Rejected { message, .. } if message.contains("run no programs")),
        "{error}"
    );
}

// F63: a lease's end deleted keys whose deletion a validator rejects. Failed when `ending` called
// no validator.
#[test]
fn a_lease_that_ends_takes_no_key_that_a_validator_keeps() {
    let (mut world, mut clients) = world(67);
    admin(&mut world, &mut clients, "nacre/program/keep", "keep");
    admin(
        &mut world,
        &mut clients,
        "nacre/namespace/n",
        r#"{"validator": "keep"}"#,
    );
    let who = client(1);
    let MetaResult::Granted { lease, .. } = clients
        .ask(&mut world, who, MonId(0), MetaCall::Grant { ttl_ms: 2_000 })
        .result
    else {
        panic!("granted");
    };
    let put = |key: &str| MetaOp::Put {
        key: key.into(),
        value: "1".into(),
        lease,
    };
    clients.ask(
        &mut world,
        who,
        MonId(0),
        transact(vec![put("n/kept"), put("n/free"), put("m/other")]),
    );
    // Its owner's revocation is refused, as the deletion would be.
    let error = clients.fails(&mut world, who, MonId(0), MetaCall::Revoke { lease });
    assert!(
        matches!(&error, MetaError::Rejected { message, .. } if message.contains("stays")),
        "{error}"
    );
    world.run(Duration::from_secs(6));
    let left = |world: &mut World, clients: &mut Clients, prefix: &str| {
        clients.get(world, who, MonId(2), prefix).len()
    };
    assert_eq!(
        clients.get(&mut world, who, MonId(2), "n/"),
        [("n/kept".to_owned(), "1".to_owned())]
    );
    assert_eq!(
        left(&mut world, &mut clients, "m/"),
        0,
        "what has no validator goes"
    );
    let MetaResult::Leases { leases } = clients
        .ask(&mut world, who, MonId(0), MetaCall::Leases {})
        .result
    else {
        panic!("leases");
    };
    assert!(leases.is_empty(), "{leases:?}");
    let said = |world: &World| {
        let lines = world.nodes.values().flat_map(|node| &node.logged);
        lines
            .filter(|line| line.contains("`n/kept` stays without it"))
            .count()
    };
    assert_eq!(said(&world), 3, "each monitor's log says it once");
}

/// The text that one deletion makes of thousands of keys exceeded a proposal. The leader discarded
/// and built it again, for ever, and so did its successors and all of them after a restart. (Found
/// by reading the code.)
#[test]
fn a_trigger_that_has_much_to_say_says_as_much_as_there_is_room_for() {
    let (mut world, mut clients) = world(68);
    let triggers = r#"{"triggers": [{"name": "tell", "prefix": "n/", "log": "{key} {key} {key} was {what} in {revision}"}]}"#;
    admin(&mut world, &mut clients, "nacre/namespace/n", triggers);
    let who = client(1);
    let key = |n: u32| format!("n/{n:04}-{}", "k".repeat(900));
    for n in 0..20 {
        let ops = (0..50).map(|at| put(&key(n * 50 + at), "1")).collect();
        clients.ask(&mut world, who, MonId(0), transact(ops));
    }
    world.run(Duration::from_secs(2));
    let all = MetaOp::Delete { span: prefix("n/") };
    let reply = clients.ask(&mut world, who, MonId(0), transact(vec![all]));
    assert!(
        matches!(reply.result, MetaResult::Transacted { .. }),
        "{reply:?}"
    );
    world.run(Duration::from_secs(2));
    // It continues, and nothing is pending any more.
    clients.ask(
        &mut world,
        who,
        MonId(0),
        transact(vec![put("m/after", "1")]),
    );
    let leader = world.elect();
    assert!(
        world
            .mon(leader)
            .state()
            .expect("runs")
            .meta()
            .pending()
            .is_empty()
    );
    let said = |text: &str| {
        world
            .nodes
            .values()
            .flat_map(|node| &node.logged)
            .filter(|line| line.contains(text))
            .count()
    };
    assert_eq!(
        said("and 900 keys more"),
        3,
        "each monitor's log says it once"
    );
}

/// A validator may enlarge a value: an entry that no proposal can hold is refused. It was discarded
/// and judged again for ever. (Found by reading the code.)
#[test]
fn what_a_validator_makes_too_large_is_refused() {
    let (mut world, mut clients) = world(69);
    admin(&mut world, &mut clients, "nacre/program/fill", "fill 12000");
    admin(
        &mut world,
        &mut clients,
        "nacre/namespace/n",
        r#"{"validator": "fill"}"#,
    );
    let who = client(1);
    let some = |count: u32| transact((0..count).map(|n| put(&format!("n/{n}"), "1")).collect());
    let error = clients.fails(&mut world, who, MonId(0), some(120));
    assert!(matches!(error, MetaError::TooLarge { .. }), "{error}");
    clients.ask(&mut world, who, MonId(0), some(60));
    assert_eq!(clients.get(&mut world, who, MonId(0), "n/").len(), 60);
    clients.ask(
        &mut world,
        who,
        MonId(0),
        transact(vec![put("m/after", "1")]),
    );
}

/// A lease with large keys whose deletion a validator rejects: detaching them exceeded a proposal,
/// and it never ended. (Found by reading the code.)
#[test]
fn a_lease_that_ends_sets_large_keys_free_in_portions() {
    let (mut world, mut clients) = world(70);
    admin(&mut world, &mut clients, "nacre/program/keep", "keep");
    admin(
        &mut world,
        &mut clients,
        "nacre/namespace/n",
        r#"{"validator": "keep"}"#,
    );
    let who = client(1);
    let MetaResult::Granted { lease, .. } = clients
        .ask(&mut world, who, MonId(0), MetaCall::Grant { ttl_ms: 2_000 })
        .result
    else {
        panic!("granted");
    };
    for n in 0..30 {
        let put = MetaOp::Put {
            key: format!("n/{n}.kept").as_str().into(),
            value: vec![7; 60_000].into(),
            lease,
        };
        clients.ask(&mut world, who, MonId(0), transact(vec![put]));
    }
    world.run(Duration::from_secs(20));
    let MetaResult::Leases { leases } = clients
        .ask(&mut world, who, MonId(0), MetaCall::Leases {})
        .result
    else {
        panic!("leases");
    };
    assert!(leases.is_empty(), "{leases:?}");
    let count = clients.ask(
        &mut world,
        who,
        MonId(0),
        transact(vec![put("m/after", "1")]),
    );
    assert!(matches!(count.result, MetaResult::Transacted { .. }));
    let leader = world.elect();
    let kept = world
        .mon(leader)
        .state()
        .expect("runs")
        .meta()
        .within(&prefix("n/"))
        .count();
    assert_eq!(kept, 30, "none of them went");
}
