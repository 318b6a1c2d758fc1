//! F34: resources that validators and triggers may take from everything else. One put took the
//! leader 9.8 s; ten left no majority for 70 s; eight triggers on one prefix made 20,000 keys and
//! 200,000 pending runs.

use crate::harness::{World, ms};
use crate::meta::{Clients, client, put, reply_to, transact};
use nacre_mon::meta::programs::{
    Fault, Program, Programs, TriggerActions, TriggerRequest, Uses, ValidateRequest, Verdict,
};
use nacre_mon::state::meta::record::{MetaAct, MetaEntry, MetaTerms, MetaTrigger};
use nacre_mon::state::meta::{CASCADE_MAX, DEPTH_MAX, Meta, Said};
use nacre_types::{Epoch, MonId, Name};
use nacre_wire::msg::Message;
use nacre_wire::msg::meta::{MetaError, MetaOp, MetaResult};
use serde_json::{Value, json};
use std::time::Duration;

/// `spin` is stopped by a clock, `long` takes all the time of a turn, others take none.
#[derive(Default)]
struct Slow {
    overruns: u64,
    over: bool,
}

impl Programs for Slow {
    fn check(&mut self, _: Program<'_>) -> Result<Uses, Fault> {
        Ok(Uses {
            validator: true,
            trigger: true,
        })
    }
    fn steps(&self) -> u64 {
        0
    }
    fn begin_turn(&mut self) {
        self.over = false;
    }
    fn turn_is_over(&self) -> bool {
        self.over
    }
    fn overruns(&self) -> u64 {
        self.overruns
    }
    fn validate(&mut self, program: Program<'_>, _: &ValidateRequest) -> Verdict {
        self.over |= program.source == "long";
        if program.source == "spin" {
            self.overruns += 1;
            return Verdict::Failed(Fault {
                line: 3,
                message: "it took longer than the daemon has".to_owned(),
            });
        }
        Verdict::Accept
    }
    fn trigger(&mut self, _: Program<'_>, _: &TriggerRequest<'_>) -> Result<TriggerActions, Fault> {
        Ok(TriggerActions::default())
    }
}

const ADMIN: u64 = 99;

fn world() -> (World, Clients) {
    let mut world = World::found_with(3, 7, || Box::<Slow>::default());
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
fn suspended(world: &mut World) -> bool {
    let leader = world.elect();
    let health = world
        .command(leader, json!({"command": "health detail"}))
        .expect("it answers");
    let found = health["checks"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|check| check["code"] == "META_PROGRAM_SUSPENDED");
    let is_named = |check: &Value| {
        check["detail"][0]
            .as_str()
            .is_some_and(|line| line.starts_with("program "))
    };
    assert!(
        found.is_none_or(|check| check["severity"] == "warn" && is_named(check)),
        "{found:?}"
    );
    found.is_some()
}

// Failed when `count_overruns` did nothing.
#[test]
fn a_program_that_the_clock_ends_again_and_again_is_suspended_until_it_is_another() {
    let (mut world, mut clients) = world();
    admin(&mut world, &mut clients, "nacre/program/p", "spin");
    admin(
        &mut world,
        &mut clients,
        "nacre/namespace/n",
        r#"{"validator": "p"}"#,
    );
    for time in 1..=7 {
        assert_eq!(suspended(&mut world), time > 5, "before put {time}");
        let error = clients.fails(
            &mut world,
            client(1),
            MonId(0),
            transact(vec![put("n/a", "3")]),
        );
        let MetaError::Rejected { message, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(
            message.contains("it is suspended"),
            time > 5,
            "put {time}: {message}"
        );
    }
    clients.ask(
        &mut world,
        client(1),
        MonId(0),
        transact(vec![put("other/a", "3")]),
    );
    let log = world
        .nodes
        .values()
        .flat_map(|node| &node.logged)
        .filter(|line| line.contains("is suspended"))
        .count();
    assert_eq!(log, 3, "each monitor's log says it once");
    admin(&mut world, &mut clients, "nacre/program/p", "fine");
    clients.ask(
        &mut world,
        client(1),
        MonId(0),
        transact(vec![put("n/a", "3")]),
    );
    assert!(!suspended(&mut world));
}

// Failed when the leader proposed again at once after such a turn: there was no pause.
#[test]
fn the_leader_rests_from_programs_and_does_everything_else_meanwhile() {
    let (mut world, mut clients) = world();
    admin(&mut world, &mut clients, "nacre/program/p", "long");
    admin(
        &mut world,
        &mut clients,
        "nacre/namespace/n",
        r#"{"validator": "p"}"#,
    );
    let leader = world.elect();
    let begun = world.now;
    let asked: Vec<_> = (1..=20)
        .map(|who| {
            (
                client(who),
                clients.send(
                    &mut world,
                    client(who),
                    leader,
                    transact(vec![put("n/a", "3")]),
                ),
            )
        })
        .collect();
    // Other clients' commands do not wait for twenty turns.
    world
        .command(
            leader,
            json!({"command": "config set", "key": "mon.down_out_interval_s", "value": "900"}),
        )
        .expect("done");
    assert!(
        world.now.since(begun) < ms(200),
        "a command waited {:?}",
        world.now.since(begun)
    );
    world.run(Duration::from_secs(5));
    for (who, sequence) in &asked {
        assert!(
            reply_to(&world, *who, *sequence).is_some(),
            "{who} got its turn"
        );
    }
    let last = world
        .inbox
        .iter()
        .rev()
        .find(|(_, _, _, message)| matches!(message, Message::MetaReply(_)));
    let span = last.expect("twenty").0.since(begun);
    assert!(span > ms(19 * 50), "{span:?}");
}

// Failed when `commit` did not check the number of pending runs: sixteen million runs.
#[test]
fn triggers_that_multiply_end() {
    let mut meta = Meta::default();
    let name = |text: &str| Name::from(text);
    let triggers: Vec<_> = (0..8)
        .map(|n| MetaTrigger {
            name: name(&format!("a/t{n}")),
            prefix: name("a/"),
        })
        .collect();
    let terms = |depth| MetaTerms {
        triggers: triggers.clone(),
        depth,
        ..MetaTerms::default()
    };
    let ops = |n: u64| {
        vec![MetaOp::Put {
            key: name(&format!("a/k{}", n % 100)),
            value: "x".into(),
            lease: 0,
        }]
    };
    let mut said: Vec<Said> = Vec::new();
    let act = MetaAct::Transact {
        compares: vec![],
        then: ops(0),
        otherwise: vec![],
    };
    meta.apply(
        Epoch(1),
        MetaEntry {
            who: None,
            act,
            terms: terms(0),
        },
        &mut said,
    );
    let mut runs = 0_u64;
    while let Some(pending) = meta.pending().first().cloned() {
        runs += 1;
        assert!(
            meta.pending_of(&name("a")) == meta.pending().len()
                && meta.pending().len() <= CASCADE_MAX + 8
        );
        assert!(
            runs <= CASCADE_MAX as u64 * u64::from(DEPTH_MAX),
            "they do not end"
        );
        let act = MetaAct::Fired {
            trigger: pending.trigger,
            revision: pending.revision,
            ops: ops(runs),
            lines: vec![],
        };
        meta.apply(
            Epoch(1),
            MetaEntry {
                who: None,
                act,
                terms: terms(pending.depth),
            },
            &mut said,
        );
    }
    assert_eq!(meta.pending_of(&name("a")), 0);
    let once: std::collections::BTreeSet<_> = said.iter().map(|line| &line.once).collect();
    assert!(
        said.iter().all(|line| !line.once.is_empty()) && once.len() <= 16,
        "{once:?}"
    );
}

/// A state is one transaction of a store, of at most 64 MiB, and one frame. Only the numbers of
/// leases and pending trigger runs were bounded, not the bytes of owners' names and events: some
/// hundred MiB within all limits, and every monitor stopped at its next snapshot, and again after
/// each start.
#[test]
fn leases_and_runs_that_wait_are_bounded_by_bytes() {
    use nacre_mon::state::meta::record::MetaWho;
    use nacre_mon::state::meta::{LEASES_BYTES_MAX, PENDING_BYTES_MAX};
    use nacre_wire::Wire;
    let mut meta = Meta::default();
    let name = |text: &str| Name::from(text);
    let triggers = (0..32).map(|n| MetaTrigger {
        name: name(&format!("a/t{n}")),
        prefix: name("a/"),
    });
    let terms = MetaTerms {
        triggers: triggers.collect(),
        ..MetaTerms::default()
    };
    let (mut refused, mut said) = ([0, 0], Vec::<Said>::new());
    for n in 0..4000 {
        let grant = MetaAct::Grant { ttl_ms: 1000 };
        let who = MetaWho {
            client: client(n),
            instance: nacre_types::Instance(1),
            sequence: 1,
            answered_below: 1,
            known: 0,
            again: false,
            name: Name::copy(&[b'o'; 2048]),
        };
        let entry = MetaEntry {
            who: Some(who),
            act: grant,
            terms: MetaTerms::default(),
        };
        let outcome = format!("{:?}", meta.apply(Epoch(1), entry, &mut said));
        refused[0] += usize::from(outcome.contains("QuotaExceeded"));
        if n < 40 {
            let put = MetaOp::Put {
                key: name(&format!("a/k{n}")),
                value: vec![7; 64 << 10].into(),
                lease: 0,
            };
            let act = MetaAct::Transact {
                compares: vec![],
                then: vec![put],
                otherwise: vec![],
            };
            let outcome = meta.apply(
                Epoch(1),
                MetaEntry {
                    who: None,
                    act,
                    terms: terms.clone(),
                },
                &mut said,
            );
            refused[1] += usize::from(format!("{outcome:?}").contains("QuotaExceeded"));
        }
        meta.check();
    }
    assert!(refused.iter().all(|times| *times > 0), "{refused:?}");
    meta.check_all();
    let image = meta.to_image();
    let (leases, pending) = (
        image.leases.to_bytes().len(),
        image.pending.to_bytes().len(),
    );
    assert!(
        leases <= LEASES_BYTES_MAX && pending <= PENDING_BYTES_MAX + (4 << 10),
        "{leases}, {pending}"
    );
    assert_eq!(Meta::of(image).to_image(), meta.to_image());
}
