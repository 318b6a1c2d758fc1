//! Validators and triggers in Lua (MAL-13): their possible results, the handling of misbehaving
//! ones, and what is refused beforehand.

use crate::harness::World;
use crate::meta::{Clients, client, put, transact};
use nacre_mon::meta::programs::{
    Fault, Program, Programs, TriggerActions, TriggerOp, TriggerRequest, Uses, ValidateRequest,
    Verdict,
};
use nacre_mon::meta::scripts::{Scripts, TRIGGER, VALIDATOR};
use nacre_types::{Epoch, MonId};
use nacre_wire::msg::meta::{
    MetaCall, MetaError, MetaEvent, MetaOp, MetaPair, MetaResult, MetaSpan,
};
use serde_json::json;
use std::time::Duration;

fn pair(key: &str, value: &str, revision: u64) -> MetaPair {
    MetaPair {
        key: key.into(),
        value: value.to_owned().into(),
        created: 1,
        modified: revision,
        version: 1,
        lease: 0,
        epoch: Epoch(1),
    }
}
fn program(source: &str) -> Program<'_> {
    Program { name: "p", source }
}
fn request(old: Option<&str>, new: Option<&str>) -> ValidateRequest {
    ValidateRequest {
        key: "n/key".into(),
        old: old.map(|old| pair("n/key", old, 3)),
        new: new.map(|new| new.to_owned().into()),
        who: "alice".into(),
        revision: 17,
    }
}
fn judged(source: &str, old: Option<&str>, new: Option<&str>) -> Verdict {
    Scripts::default().validate(program(source), &request(old, new))
}
fn body(text: &str) -> Verdict {
    judged(
        &format!("function validate(key, old, new, who, revision)\n{text}\nend"),
        Some("1"),
        Some("2"),
    )
}
fn reject(line: u32, message: &str) -> Verdict {
    Verdict::Reject {
        line,
        message: message.to_owned(),
    }
}

#[test]
fn what_a_validator_returns_is_what_happens() {
    assert_eq!(body(""), Verdict::Accept);
    assert_eq!(body("return nil"), Verdict::Accept);
    assert_eq!(body("return true"), Verdict::Accept);
    assert_eq!(body("return new .. '!'"), Verdict::Rewrite("2!".into()));
    assert_eq!(body("return ''"), Verdict::Rewrite("".into()));
    assert_eq!(body("return false, 'no'"), reject(1, "no"));
    assert_eq!(body("return nil, 'no'"), reject(1, "no"));
    assert_eq!(body("return false"), reject(1, "it says no, and not why"));
    assert_eq!(body("\nerror('too ' .. 'small')"), reject(3, "too small"));
    assert_eq!(body("assert(new == old, 'stays')"), reject(2, "stays"));
    let all = "return table.concat({key, old, new, who, tostring(revision)}, ' ')";
    assert_eq!(body(all), Verdict::Rewrite("n/key 1 2 alice 17".into()));
    let nils = "function validate(_, old, new) return tostring(old) .. tostring(new) end";
    assert_eq!(judged(nils, None, None), Verdict::Rewrite("nilnil".into()));
    let big = "return nacre.u64.tostring(nacre.u64.add(nacre.u64.from('9007199254740993'), 1)) .. tostring(objclass)";
    assert_eq!(
        body(big),
        Verdict::Rewrite("9007199254740994nil".into()),
        "64 bits, and no object"
    );
    // Invalid results and failures of a script are no verdict.
    for (text, line) in [
        ("return 7", 1),
        ("return {}", 1),
        ("return 'a', 'b'", 1),
        ("return nil + 1", 2),
        ("return (nil)()", 2),
    ] {
        assert!(
            matches!(body(text), Verdict::Failed(Fault { line: found, .. }) if found == line),
            "{text}: {:?}",
            body(text)
        );
    }
    assert!(matches!(judged("x = 1", None, None), Verdict::Failed(_)));
}

// Each of them is slow, large or deep in its own way. Without a budget most of them never end.
#[test]
fn hostile_programs_are_stopped_and_the_next_one_runs() {
    let hostile = [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "repeat local x = 1 until x == 2",
        "xpcall(function() error('x') end, function() while true do end end) while true do end",
        "local t = setmetatable({}, {__index = function() while true do end end}) return t.x",
        "local t = {} for i = 1, 1e9 do t[i] = {i} end",
        "local s = 'x' while true do s = s .. s end",
        "return string.rep('x', 1e9)",
        "return string.rep('x', 300 * 1024)",
        "local function f() return 1 + f() end return f()",
        "local t = {} t.t = t return t",
        "return string.find(string.rep('a', 100000), string.rep('a*', 30) .. 'b')",
        "local t = {} for i = 1, 20000 do t[i] = i end table.sort(t, function() while true do end end)",
        "for i = 1, 1e9 do print(string.rep('x', 1000)) end",
        "while true do coroutine.wrap(function() while true do end end)() end",
    ];
    let mut scripts = Scripts::default();
    let honest = "n = 0 function validate() n = n + 1 return tostring(n) end";
    for text in hostile {
        let source = format!("function validate(key, old, new)\n{text}\nend");
        let before = scripts.steps();
        let verdict = scripts.validate(program(&source), &request(None, Some("x")));
        assert!(matches!(verdict, Verdict::Failed(_)), "{text}: {verdict:?}");
        let steps = scripts.steps() - before;
        // What one step may add is bounded by its operands.
        assert!(
            steps <= VALIDATOR.instructions + 10_000,
            "{text}: {steps} steps"
        );
        assert_eq!(
            verdict,
            scripts.validate(program(&source), &request(None, Some("x"))),
            "{text}: twice the same"
        );
        assert_eq!(
            scripts.validate(program(honest), &request(None, Some("x"))),
            Verdict::Rewrite("1".into()),
            "{text}"
        );
    }
    for text in [
        "while true do end",
        "local t = {} for i = 1, 1e6 do t[i] = string.rep('x', 1000) end return t",
    ] {
        let source = format!("function trigger()\n{text}\nend");
        let before = scripts.steps();
        let fault = follow(&mut scripts, &source).expect_err("stopped");
        assert!(
            fault.line > 0 && scripts.steps() - before <= TRIGGER.instructions + 10_000,
            "{fault}"
        );
    }
}

#[test]
fn what_is_no_program_is_found_out_before_it_is_stored() {
    let check = |source: &str| Scripts::default().check(program(source));
    assert_eq!(
        check("function validate() end"),
        Ok(Uses {
            validator: true,
            trigger: false
        })
    );
    assert_eq!(
        check("function trigger() end"),
        Ok(Uses {
            validator: false,
            trigger: true
        })
    );
    assert_eq!(
        check("function trigger() end validate = trigger"),
        Ok(Uses {
            validator: true,
            trigger: true
        })
    );
    let line = |source: &str| check(source).expect_err("refused").line;
    assert_eq!(line("\n\nfunction validate( end"), 3);
    assert_eq!(line("\nerror('at the top')\nfunction validate() end"), 2);
    assert_eq!(line("\nwhile true do end"), 2);
    assert!(
        check("local function validate() end")
            .expect_err("refused")
            .message
            .contains("neither")
    );
}

fn follow(scripts: &mut Scripts, source: &str) -> Result<TriggerActions, Fault> {
    let events = [
        MetaEvent::Put {
            pair: pair("n/a", "1", 17),
        },
        MetaEvent::Delete {
            key: "n/b".into(),
            revision: 17,
        },
    ];
    scripts.trigger(
        program(source),
        &TriggerRequest {
            trigger: &"n/t".into(),
            revision: 17,
            events: &events,
        },
    )
}

#[test]
fn a_trigger_is_told_all_and_says_what_to_do() {
    let acts = |text: &str| {
        let source = format!("function trigger(name, revision, events)\n{text}\nend");
        follow(&mut Scripts::default(), &source)
    };
    assert_eq!(acts(""), Ok(TriggerActions::default()));
    let line = "local s = name .. ' ' .. revision for _, e in events do s ..= ' ' .. e.what .. ' ' .. e.key .. ' ' .. tostring(e.value) end return {s}";
    assert_eq!(
        acts(line).expect("runs").lines,
        ["n/t 17 put n/a 1 delete n/b nil"]
    );
    let actions = acts(
        "return {{put = {'m/a', 'x'}, lease = 4}, 'a line', {delete = 'm/b', if_revision = 0}}",
    )
    .expect("runs");
    let delete = MetaOp::Delete {
        span: MetaSpan::Key { key: "m/b".into() },
    };
    let put = MetaOp::Put {
        key: "m/a".into(),
        value: "x".into(),
        lease: 4,
    };
    assert_eq!(
        actions.ops,
        [
            put.into(),
            TriggerOp {
                op: delete,
                if_revision: Some(0)
            }
        ]
    );
    assert_eq!(actions.lines, ["a line"]);
    for wrong in [
        "return 7",
        "return {7}",
        "return {{}}",
        "return {{put = 'm/a'}}",
        "return {{put = {'m/a', 7}}}",
        "return {{delete = 'm/a', put = {'m/a', 'x'}}}",
        "return {{delet = 'm/a'}}",
        "return {{delete = 'm/a', if_revision = -1}}",
        "local t = {} for i = 1, 129 do t[i] = {delete = 'm/a'} end return t",
        "local t = {} for i = 1, 17 do t[i] = 'line' end return t",
        "return {string.rep('x', 600 * 1024)}",
    ] {
        assert!(acts(wrong).is_err(), "{wrong}: {:?}", acts(wrong));
    }
    assert_eq!(acts("\nlocal x = nil + 1").expect_err("fails").line, 3);
}

const ADMIN: u64 = 99;

fn world(seed: u64) -> (World, Clients) {
    let mut world = World::found(3, seed);
    world.elect();
    for id in 0..3 {
        world.name(MonId(id), client(ADMIN), "admin");
    }
    (world, Clients::default())
}
fn set(world: &mut World, clients: &mut Clients, key: &str, value: &str) {
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
fn refused(world: &mut World, clients: &mut Clients, op: MetaOp) -> String {
    match clients.fails(world, client(ADMIN), MonId(2), transact(vec![op])) {
        MetaError::Invalid { why } => why,
        other => panic!("refused, but why so: {other:?}"),
    }
}
fn log(world: &mut World) -> String {
    world
        .command(MonId(0), json!({"command": "log last", "n": 1000}))
        .expect("answered")
        .to_string()
}

const EVEN: &str = "function validate(key, old, new)\n  local n = tonumber(new)\n  if n % 2 == 1 then error('odd') end\n  return tostring(n)\nend";

// Failed, a sentence at a time, when `check_programs` left out the program, the settings, the roles
// and the deletions.
#[test]
fn what_would_not_work_is_refused_when_it_is_said() {
    let (mut world, mut clients) = world(161);
    let (world, clients) = (&mut world, &mut clients);
    let del = |key: &str| MetaOp::Delete {
        span: MetaSpan::Key { key: key.into() },
    };
    let why = refused(
        world,
        clients,
        put("nacre/program/p", "\nfunction validate( end"),
    );
    assert!(why.starts_with("program p is refused: line 2: "), "{why}");
    assert!(refused(world, clients, put("nacre/program/a/b", EVEN)).contains("`a/b`"));
    let why = refused(
        world,
        clients,
        put("nacre/namespace/n", r#"{"validator": "p"}"#),
    );
    assert!(
        why.contains("namespace `n`: there is no program `p`"),
        "{why}"
    );
    let reply = clients.ask(
        world,
        client(ADMIN),
        MonId(1),
        MetaCall::Grant { ttl_ms: 10_000 },
    );
    let MetaResult::Granted { lease, .. } = reply.result else {
        panic!("{reply:?}")
    };
    let leased = MetaOp::Put {
        key: "nacre/program/p".into(),
        value: EVEN.into(),
        lease,
    };
    assert!(refused(world, clients, leased).contains("program p has no lease"));
    set(world, clients, "nacre/program/p", EVEN);
    let triggers = r#"{"triggers": [{"name": "t", "program": "p"}]}"#;
    let why = refused(world, clients, put("nacre/namespace/n", triggers));
    assert!(
        why.contains("trigger `t` of namespace `n`") && why.contains("trigger(name"),
        "{why}"
    );
    set(world, clients, "nacre/namespace/n", r#"{"validator": "p"}"#);
    for op in [
        del("nacre/program/p"),
        MetaOp::Delete {
            span: MetaSpan::Prefix {
                prefix: "nacre/".into(),
            },
        },
    ] {
        let why = refused(world, clients, op);
        assert!(
            why.contains("program p is in use: it is the validator of namespace `n`"),
            "{why}"
        );
    }
    let why = refused(
        world,
        clients,
        put("nacre/program/p", "function trigger() end"),
    );
    assert!(
        why.contains("cannot be the validator of namespace `n`"),
        "{why}"
    );
    // Both at once is one change; and an unused program may be removed.
    let both = vec![
        put("nacre/namespace/n", r#"{"validator": "q"}"#),
        put("nacre/program/q", "function validate() return 'q' end"),
    ];
    let reply = clients.ask(world, client(ADMIN), MonId(1), transact(both));
    assert!(
        matches!(reply.result, MetaResult::Transacted { .. }),
        "{reply:?}"
    );
    clients.ask(
        world,
        client(ADMIN),
        MonId(1),
        transact(vec![del("nacre/program/p"), put("n/x", "1")]),
    );
    let stored = clients.get(world, client(1), MonId(0), "n");
    assert_eq!(stored.first(), Some(&("n/x".to_owned(), "q".to_owned())));
    assert!(!stored.iter().any(|(key, _)| key == "nacre/program/p"));
}

// Failed when failures were logged like the lines of triggers.
#[test]
fn a_program_that_fails_is_in_the_log_once_for_each_version() {
    let (mut world, mut clients) = world(162);
    let (world, clients) = (&mut world, &mut clients);
    set(world, clients, "nacre/program/even", EVEN);
    set(
        world,
        clients,
        "nacre/program/bad",
        "function trigger(name, revision)\n  return {revision + {}}\nend",
    );
    let settings = r#"{"validator": "even", "triggers": [{"name": "t", "program": "bad"}]}"#;
    set(world, clients, "nacre/namespace/n", settings);
    let mut fails = |world: &mut World, value: &str| {
        clients.fails(
            world,
            client(1),
            MonId(0),
            transact(vec![put("n/a", value)]),
        )
    };
    let odd = MetaError::Rejected {
        validator: "even".into(),
        line: 3,
        message: "odd".into(),
    };
    for _ in 0..3 {
        assert_eq!(fails(world, "3"), odd, "a rejection");
        let failed = fails(world, "x");
        assert!(
            matches!(&failed, MetaError::Rejected { line: 3, message, .. } if message.starts_with("it failed: ")),
            "{failed}"
        );
    }
    for n in 0..4 {
        clients.ask(
            world,
            client(1),
            MonId(n % 3),
            transact(vec![put("n/a", "4")]),
        );
        world.run(Duration::from_millis(100));
    }
    let said = log(world);
    assert!(
        !said.contains("odd"),
        "whoever is rejected knows it: {said}"
    );
    let count = |said: &str, what: &str| said.matches(what).count();
    assert_eq!(
        count(
            &said,
            "program even (revision 1), validator of `n`, failed: line 3: "
        ),
        1,
        "{said}"
    );
    assert_eq!(
        count(
            &said,
            "program bad (revision 2), trigger n/t, failed: line 2: "
        ),
        1,
        "{said}"
    );
    assert_eq!(count(&said, "failed"), 2, "{said}");
    set(
        world,
        clients,
        "nacre/program/even",
        &format!("{EVEN} -- again"),
    );
    clients.fails(world, client(1), MonId(0), transact(vec![put("n/a", "x")]));
    assert_eq!(count(&log(world), "validator of `n`, failed"), 2);
}

// Failed when `if_revision` was not checked, and when its key was not guarded: two triggers of one
// revision are judged together.
#[test]
fn a_triggers_conditions_hold_when_its_changes_are_made() {
    let (mut world, mut clients) = world(163);
    let (world, clients) = (&mut world, &mut clients);
    let first = "function trigger(name, revision, events)\n  return {{put = {'m/first', events[1].key}, if_revision = 0}, {put = {'m/last', events[1].key}}}\nend";
    set(world, clients, "nacre/program/first", first);
    let triggers =
        r#"{"triggers": [{"name": "t", "program": "first"}, {"name": "u", "program": "first"}]}"#;
    set(world, clients, "nacre/namespace/n", triggers);
    for n in 0..6 {
        clients.send(
            world,
            client(n),
            MonId(0),
            transact(vec![put(&format!("n/{n}"), "x")]),
        );
    }
    world.run(Duration::from_secs(2));
    let history = world.mon(MonId(0)).state().expect("runs").meta().history();
    let events = history
        .since(
            1,
            &MetaSpan::Key {
                key: "m/first".into(),
            },
        )
        .expect("kept");
    assert_eq!(events.len(), 1, "{events:?}");
    let first = history
        .since(
            1,
            &MetaSpan::Prefix {
                prefix: "n/".into(),
            },
        )
        .expect("kept")[0]
        .key()
        .to_string();
    assert_eq!(
        clients.get(world, client(1), MonId(1), "m/first"),
        [("m/first".to_owned(), first)]
    );
    assert_eq!(clients.get(world, client(1), MonId(1), "m/last").len(), 1);
}

// Failed when a removal's entry did not record that it depends on the settings: they were judged
// together, both valid, and the program was removed.
#[test]
fn a_program_is_not_removed_behind_settings_that_are_judged_at_the_same_time() {
    let (mut world, mut clients) = world(164);
    let (world, clients) = (&mut world, &mut clients);
    let whose = [client(ADMIN), client(98)];
    for id in 0..3 {
        world.name(MonId(id), whose[1], "admin");
    }
    let remove = MetaOp::Delete {
        span: MetaSpan::Key {
            key: "nacre/program/p".into(),
        },
    };
    let (mut kept, mut removed) = (0, 0);
    for round in 0..24 {
        let namespace = format!("nacre/namespace/n{round}");
        set(world, clients, "nacre/program/p", EVEN);
        // Once the settings first, once the removal; or another text that no longer judges.
        let name = put(&namespace, r#"{"validator": "p"}"#);
        let other = if round % 4 < 2 {
            remove.clone()
        } else {
            put("nacre/program/p", "function trigger() end")
        };
        let mut both = [name, other];
        both.rotate_left(round % 2);
        // While this is decided, they wait, and are proposed together.
        clients.send(world, client(1), MonId(0), transact(vec![put("x/y", "z")]));
        let mut of = whose.into_iter();
        let sent = both.map(|op| {
            let who = of.next().expect("one each");
            (who, clients.send(world, who, MonId(0), transact(vec![op])))
        });
        let replies = sent.map(|(who, sequence)| {
            world.until("answered", Duration::from_secs(20), |world| {
                crate::meta::reply_to(world, who, sequence).is_some()
            });
            crate::meta::reply_to(world, who, sequence).expect("answered")
        });
        let refused: Vec<String> = replies
            .iter()
            .filter_map(|reply| match &reply.result {
                MetaResult::Failed { error } => Some(error.to_string()),
                _ => None,
            })
            .collect();
        assert_eq!(refused.len(), 1, "round {round}: one of both: {refused:?}");
        let stored = clients.get(world, client(ADMIN), MonId(0), "nacre/");
        let text = stored
            .iter()
            .find(|(key, _)| key == "nacre/program/p")
            .map(|(_, text)| text.as_str());
        if stored.iter().any(|(key, _)| *key == namespace) {
            assert_eq!(text, Some(EVEN), "round {round}");
            let what = format!("validator of namespace `n{round}`");
            assert!(refused[0].contains(&what), "round {round}: {refused:?}");
            kept += 1;
            let drop = MetaOp::Delete {
                span: MetaSpan::Key {
                    key: namespace.as_str().into(),
                },
            };
            clients.ask(world, client(ADMIN), MonId(0), transact(vec![drop]));
        } else {
            assert_ne!(text, Some(EVEN), "round {round}");
            removed += 1;
        }
    }
    assert!(
        kept > 0 && removed > 0,
        "both happened: {kept} and {removed}"
    );
}
