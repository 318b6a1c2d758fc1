//! Stories of classes: installed, called, upgraded, broken, on several daemons (MAL-02, MAL-06,
//! MAL-20 to MAL-24, MAL-26, MAL-29, MAL-70).

use crate::company::{CLIENT, Company};
use crate::key;
use crate::programs::Programs;
use crate::stories::PG;
use bytes::Bytes;
use nacre_object::methods::Complaint;
use nacre_policy::{Kind, ScriptError};
use nacre_store::{ObjectStore, Read, ReadReply, Token};
use nacre_types::{ClientId, ObjectId, PoolId, SnapId};
use nacre_wire::Message;
use nacre_wire::map::programs::{PROGRAM_POOL, source_object};
use nacre_wire::map::{Capability, Change, ProgramKind, ProgramVersion, SourceDigest};
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use std::collections::BTreeSet;

const CLASS: ProgramKind = ProgramKind::Class {};

const COUNTER: &str = r#"
function add(input, output)
  local n = 0
  local ok, value = pcall(objclass.map_get_val, "n")
  if ok then n = tonumber(value:str()) end
  n = n + 1
  local b = bufferlist.new()
  b:append(tostring(n))
  objclass.map_set_val("n", b)
  objclass.append(input)
  -- what was written just now is seen
  output:append(objclass.map_get_val("n"):str() .. "/" .. #objclass.read(0, 0))
end
function get(input, output)
  output:append(objclass.map_get_val("n"):str())
end
function fail(input, output)
  add(input, output)
  error("no luck")
end
function refuse(input, output)
  add(input, output)
  return -17
end
function spin() while true do end end
objclass.register(add)
objclass.register("get", get, "read")
objclass.register(fail)
objclass.register(refuse)
objclass.register(spin)
"#;

/// Three OSDs, one pool of one PG that also contains the sources.
fn company() -> Company {
    let mut company = Company::new(3, 2, 3);
    let mut settings = company.monitors.map.pools[&PG.pool].clone();
    settings.name = PROGRAM_POOL.into();
    company.commit(vec![Change::PoolSet {
        pool: PoolId(1),
        settings,
    }]);
    company.wait(500);
    company
}

/// Stores the source, and adds the class to the map.
fn install(company: &mut Company, name: &str, source: &str) {
    store(company, name, source);
    announce(company, name, source);
}

fn store(company: &mut Company, name: &str, source: &str) {
    let digest = SourceDigest(*blake3::hash(source.as_bytes()).as_bytes());
    let object = source_object(CLASS, &name.into(), &digest).name.to_string();
    company.write(&object, source.as_bytes()).expect("stored");
}

fn announce(company: &mut Company, name: &str, source: &str) {
    let digest = SourceDigest(*blake3::hash(source.as_bytes()).as_bytes());
    let version = ProgramVersion {
        digest,
        bytes: source.len() as u32,
        ..ProgramVersion::default()
    };
    company.commit(vec![Change::ProgramInstall {
        kind: CLASS,
        name: name.into(),
        version,
        activate: true,
    }]);
}

fn call_op(class: &str, method: &str, input: &str) -> SubOp {
    SubOp::Call {
        class: class.into(),
        method: method.into(),
        length: input.len() as u64,
    }
}

/// The output of a call, and the activation that ran.
fn call(
    company: &mut Company,
    object: &str,
    method: &str,
    input: &str,
) -> Result<(String, u64), OpFailure> {
    call_of(company, object, "counter", method, input)
}

fn call_of(
    company: &mut Company,
    object: &str,
    class: &str,
    method: &str,
    input: &str,
) -> Result<(String, u64), OpFailure> {
    let request = company.send(
        object,
        vec![call_op(class, method, input)],
        input.as_bytes(),
        0,
    );
    company.settle();
    for _ in 0..40 {
        if company.answer(&request).is_some() {
            break;
        }
        company.wait(50);
    }
    company.answer(&request).expect("an answer in time")?;
    let (reply, _) = company
        .replies
        .iter()
        .find(|(reply, _)| reply.request == request.request)
        .expect("just seen");
    let [
        SubReply::Called {
            activation, output, ..
        },
    ] = &reply.results[..]
    else {
        panic!("{:?}", reply.results)
    };
    Ok((
        String::from_utf8(output.to_vec()).expect("text"),
        *activation,
    ))
}

/// Everything that a member's store has of an object.
fn stored(company: &mut Company, osd: u32, object: &str) -> (ReadReply, ReadReply, ReadReply) {
    let place = key::store_key(PG, &ObjectId::named(object));
    let store = &mut company.host(osd).store;
    let mut ask = |read| {
        store.read(read, Token(u64::MAX));
        let mut events = Vec::new();
        store.poll(&mut events);
        let Some(nacre_store::Event::Read(_, Ok(reply))) = events.pop() else {
            panic!("osd.{osd} has no {object}")
        };
        reply
    };
    let data = ask(Read::Data {
        object: place.clone(),
        offset: 0,
        length: u64::MAX,
    });
    let stat = ask(Read::Stat(place.clone()));
    let omap = ask(Read::Omap {
        object: place,
        from: std::ops::Bound::Unbounded,
        to: None,
        limit_entries: 100,
        limit_bytes: 1 << 20,
    });
    (data, stat, omap)
}

#[test]
fn a_call_reads_its_own_writes_returns_output_and_every_copy_is_the_same() {
    let mut company = company();
    install(&mut company, "counter", COUNTER);
    assert_eq!(
        call(&mut company, "o", "add", "ab"),
        Ok(("1/2".to_owned(), 1))
    );
    assert_eq!(
        call(&mut company, "o", "add", "cde"),
        Ok(("2/5".to_owned(), 1))
    );
    assert_eq!(call(&mut company, "o", "get", ""), Ok(("2".to_owned(), 1)));
    let first = stored(&mut company, 0, "o");
    assert_eq!(first, stored(&mut company, 1, "o"));
    assert_eq!(first, stored(&mut company, 2, "o"));
    assert_eq!(company.read("o"), Ok(b"abcde".to_vec()));
}

/// Its client did not get the answer: it gets the same one, output included, and nothing is
/// executed twice.
#[test]
fn a_call_that_is_sent_again_is_answered_and_not_run_again() {
    let mut company = company();
    install(&mut company, "counter", COUNTER);
    let request = company.send("o", vec![call_op("counter", "add", "x")], b"x", 0);
    company.wait(200);
    company.resend(&request, b"x");
    company.wait(200);
    let answers: Vec<_> = company
        .replies
        .iter()
        .filter(|(reply, _)| reply.request == request.request)
        .collect();
    assert_eq!(answers.len(), 2);
    assert_eq!(
        (&answers[0].0.results, answers[0].0.version),
        (&answers[1].0.results, answers[1].0.version)
    );
    assert_eq!(call(&mut company, "o", "get", "").expect("there").0, "1");
}

#[test]
fn a_method_that_fails_leaves_nothing_and_is_complained_of_once() {
    let mut company = company();
    install(&mut company, "counter", COUNTER);
    for _ in 0..3 {
        let failed = call(&mut company, "o", "fail", "x").expect_err("it fails");
        let OpFailure::Method {
            activation: 1,
            errno: 5,
            why,
            ..
        } = &failed
        else {
            panic!("{failed:?}")
        };
        assert!(
            why.contains("counter:19") && why.contains("no luck"),
            "{why}"
        );
    }
    assert_eq!(
        call(&mut company, "o", "refuse", "x").expect_err("it refuses"),
        OpFailure::Method {
            index: 0,
            activation: 1,
            errno: 17,
            why: String::new()
        }
    );
    assert_eq!(company.read("o"), Err(OpFailure::NotFound {}));
    company.wait(3000);
    let said = company
        .log
        .iter()
        .filter(|line| line.contains("no luck"))
        .count();
    assert_eq!(said, 1, "{:?}", company.log);
}

// Failed when the key of a line was its text.
#[test]
fn a_fault_whose_message_tells_of_objects_has_one_key_on_all_daemons() {
    let complaint = |message: String, line, activation| Complaint {
        class: "teller".into(),
        activation,
        method: "fail".into(),
        error: ScriptError {
            kind: Kind::Runtime,
            script: "teller".into(),
            line: Some(line),
            message,
            raised: true,
            stack: Vec::new(),
        },
    };
    let keys: BTreeSet<String> = (0..3)
        .map(|daemon| {
            let mut programs = Programs::default();
            let met = (0..5)
                .map(|object| complaint(format!("cannot do it with o{daemon}{object}"), 1, 7))
                .collect();
            let lines = programs.lines(met);
            let [(key, text)] = &lines[..] else {
                panic!("one of each daemon: {lines:?}")
            };
            assert!(
                text.ends_with(&format!("teller:1: cannot do it with o{daemon}0")),
                "{text}"
            );
            key.clone()
        })
        .collect();
    assert_eq!(keys.len(), 1, "{keys:?}");
    let mut programs = Programs::default();
    let others = vec![
        complaint("x".into(), 1, 7),
        complaint("x".into(), 2, 7),
        complaint("x".into(), 1, 8),
    ];
    let others: BTreeSet<String> = programs
        .lines(others)
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    assert!(
        others.len() == 3 && others.is_superset(&keys),
        "another line, another version: {others:?}"
    );
}

/// The parts of one operation, and two calls in it, see the effects of earlier ones; a failure of
/// the last one undoes all.
#[test]
fn calls_and_plain_parts_make_one_transaction() {
    let mut company = company();
    install(&mut company, "counter", COUNTER);
    let ops = vec![
        SubOp::WriteFull { length: 3 },
        call_op("counter", "add", "d"),
        call_op("counter", "add", "e"),
        SubOp::Checksum {
            offset: 0,
            length: 100,
        },
    ];
    let request = company.send("o", ops.clone(), b"abcde", 0);
    company.wait(200);
    let (reply, _) = company
        .replies
        .iter()
        .find(|(reply, _)| reply.request == request.request)
        .expect("answered");
    let output = |at: usize| match &reply.results[at] {
        SubReply::Called { output, .. } => String::from_utf8(output.to_vec()).expect("text"),
        other => panic!("{other:?}"),
    };
    assert_eq!((output(1), output(2)), ("1/4".to_owned(), "2/5".to_owned()));
    let crc = nacre_wire::checksum(&[Bytes::from_static(b"abcde")]);
    assert_eq!(reply.results[3], SubReply::Checksum { crc, length: 5 });
    let mut undone = ops;
    undone.push(call_op("counter", "fail", ""));
    assert!(company.op("o", undone, b"xyzde").is_err());
    assert_eq!(company.read("o"), Ok(b"abcde".to_vec()));
}

/// MAL-02, MAL-06: nothing is restarted, no cached object is read again, and every answer names the
/// version that ran.
#[test]
fn an_upgrade_and_a_rollback_cost_no_cache_and_show_in_every_answer() {
    let mut company = company();
    install(&mut company, "counter", COUNTER);
    call(&mut company, "o", "add", "x").expect("works");
    let loaded = |company: &mut Company| {
        company
            .hosts
            .values()
            .map(|host| host.osd.counters().contexts_loaded)
            .sum::<u64>()
    };
    install(&mut company, "counter", &COUNTER.replace("\"/\"", "\"|\""));
    let before = loaded(&mut company);
    assert_eq!(
        call(&mut company, "o", "add", "y"),
        Ok(("2|2".to_owned(), 2))
    );
    company.commit(vec![Change::ProgramActivate {
        kind: CLASS,
        name: "counter".into(),
        number: 1,
    }]);
    assert_eq!(
        call(&mut company, "o", "add", "z"),
        Ok(("3/3".to_owned(), 3))
    );
    assert_eq!(
        loaded(&mut company),
        before,
        "the object was known all the time"
    );
}

/// Simulator with random classes, seeds 11, 25, 29. A method called another class, of which the map
/// named a version whose source this daemon was still fetching: it ran the previous version, or
/// found no such class, although the object's earlier calls, elsewhere, had run the new one.
#[test]
fn a_method_that_calls_a_class_whose_source_is_on_its_way_waits_for_it() {
    let outer = r#"
objclass.register("ask", function(_, output)
  objclass.append("x")
  local ok, version = pcall(objclass.call, "inner", "version", "")
  output:append(if ok then version:str() else "no class " .. tostring(version))
end)"#;
    let inner = |version: &str| {
        format!(
            "objclass.register(\"version\", function(_, output) output:append(\"{version}\") end)"
        )
    };
    let mut company = company();
    install(&mut company, "outer", outer);
    assert_eq!(
        call_of(&mut company, "o", "outer", "ask", ""),
        Ok(("no class -95".to_owned(), 1))
    );
    for version in ["one", "two"] {
        // The map is known everywhere, and the source cannot be read yet.
        announce(&mut company, "inner", &inner(version));
        let request = company.request(ClientId(99), "o", vec![call_op("outer", "ask", "")], 0);
        company.resend(&request, b"");
        company.settle();
        assert_eq!(
            company.answer(&request),
            None,
            "it has not run without the class"
        );
        store(&mut company, "inner", &inner(version));
        company.wait(3000);
        company.answer(&request).expect("it has run").expect("well");
        let results = company.results(&request);
        let [SubReply::Called { output, .. }] = &results[..] else {
            panic!("{results:?}")
        };
        assert_eq!(output, version);
    }
    assert_eq!(
        call_of(&mut company, "o", "outer", "ask", ""),
        Ok(("two".to_owned(), 1))
    );
}

/// Simulator with random classes, seed 122. A method may write the same bytes often: its own cost
/// is small, and no frame is large enough for its writes. The primary would have stopped, and with
/// it every later primary that tried.
#[test]
fn a_method_that_writes_more_than_an_operation_may_is_refused_and_stops_nobody() {
    let class = r#"
local many = bufferlist.new(string.rep("x", 1000000))
objclass.register("data", function() for i = 0, 70 do objclass.write(i, 1000000, many) end end)
objclass.register("map", function() for i = 0, 70 do objclass.map_set_val("k" .. i, many) end end)
objclass.register("few", function() for i = 0, 6 do objclass.write(i, 1000000, many) objclass.map_set_val("k", many) end end)"#;
    let mut company = company();
    install(&mut company, "writer", class);
    for method in ["data", "map"] {
        assert_eq!(
            call_of(&mut company, "o", "writer", method, ""),
            Err(OpFailure::TooLarge {})
        );
        assert_eq!(company.read("o"), Err(OpFailure::NotFound {}));
    }
    call_of(&mut company, "o", "writer", "few", "").expect("as much as a client could send");
}

/// Simulator with random classes, seeds 8, 9, 12, 26: a listing's report of more entries, and the
/// effects of a refused write.
#[test]
fn a_listing_knows_whether_there_is_more_and_a_refused_write_has_done_nothing() {
    let class = r#"
local function more(after, prefix, max) return tostring(select(2, objclass.map_get_vals(after, prefix, max))) end
objclass.register("see", function(_, output)
  for _, key in ipairs({ "a", "p", "p1", "p2", "q" }) do objclass.map_set_val(key, bufferlist.new("v")) end
  objclass.setxattr("~sum", bufferlist.new("of the data"))
  pcall(objclass.write, 2^40, 1, bufferlist.new("x"))
  output:append(table.concat({
    more("", "p", 3), more("", "p", 2), more("", "p", 0), more("p2", "p", 0), more("", "", 5), more("", "", 4),
    tostring((pcall(objclass.getxattr, "~sum"))),
  }, " "))
end)"#;
    let mut company = company();
    install(&mut company, "seer", class);
    let seen = call_of(&mut company, "o", "seer", "see", "")
        .expect("works")
        .0;
    assert_eq!(seen, "false true true false false true true");
}

/// The source is read from the current primary of its object.
#[test]
fn a_class_is_there_after_its_sources_primary_died() {
    let mut company = company();
    install(&mut company, "counter", COUNTER);
    let primary = company.acting()[0];
    let dead = company.kill(primary);
    company.wait(1500);
    assert_eq!(
        call(&mut company, "o", "add", "x"),
        Ok(("1/1".to_owned(), 1))
    );
    company.revive(dead, 2);
    company.wait(1500);
    let live: Vec<u64> = company
        .hosts
        .values()
        .flat_map(|host| host.osd.programs().live().map(|(_, n)| n))
        .collect();
    assert_eq!(live, [1, 1, 1]);
}

#[test]
fn a_source_that_is_no_class_says_so_where_people_look() {
    let mut company = company();
    install(&mut company, "counter", "function add(\n");
    let failed = call(&mut company, "o", "add", "x").expect_err("it is none");
    assert!(failed.to_string().contains("counter:"), "{failed}");
    company.wait(3000);
    assert!(
        company.was_said("class counter, activation 1, cannot be loaded"),
        "{:?}",
        company.log
    );
    install(&mut company, "counter", COUNTER);
    assert_eq!(
        call(&mut company, "o", "add", "x"),
        Ok(("1/1".to_owned(), 2))
    );
}

/// Other bytes were stored under the name of the source: they are not run.
#[test]
fn what_is_not_the_source_that_the_map_means_is_not_run() {
    let mut company = company();
    let digest = SourceDigest(*blake3::hash(b"something else").as_bytes());
    let object = source_object(CLASS, &"counter".into(), &digest)
        .name
        .to_string();
    let refused = company
        .write(&object, COUNTER.as_bytes())
        .expect_err("another digest");
    assert!(
        refused.to_string().contains("must have the digest"),
        "{refused}"
    );
    let version = ProgramVersion {
        digest,
        ..ProgramVersion::default()
    };
    company.commit(vec![Change::ProgramInstall {
        kind: CLASS,
        name: "counter".into(),
        version,
        activate: true,
    }]);
    let request = company.send("o", vec![call_op("counter", "add", "x")], b"x", 0);
    company.wait(3000);
    assert!(company.answer(&request).is_none(), "it waits");
    assert!(company.was_said("cannot be read"), "{:?}", company.log);
}

/// F63: any client could delete the source of a class, and after the next start of an OSD the class
/// was gone.
#[test]
fn nobody_takes_or_changes_the_source_of_a_program() {
    let mut company = company();
    install(&mut company, "counter", COUNTER);
    let digest = SourceDigest(*blake3::hash(COUNTER.as_bytes()).as_bytes());
    let source = source_object(CLASS, &"counter".into(), &digest)
        .name
        .to_string();
    let wrongs: [(&[u8], SubOp); 5] = [
        (b"", SubOp::Delete {}),
        (b"x", SubOp::WriteFull { length: 1 }),
        (b"x", SubOp::Append { length: 1 }),
        (b"", SubOp::Truncate { size: 0 }),
        (b"", call_op("counter", "add", "")),
    ];
    for (payload, wrong) in wrongs {
        let request = company.send(&source, vec![wrong.clone()], payload, 0);
        company.wait(3000);
        let answer = company.answer(&request).expect("it is answered");
        assert!(
            matches!(answer, Err(OpFailure::Denied { .. })),
            "{wrong:?}: {answer:?}"
        );
    }
    // The matching bytes may be stored any number of times, and read.
    company
        .write(&source, COUNTER.as_bytes())
        .expect("stored again");
    assert_eq!(
        call(&mut company, "o", "add", "x")
            .expect("still a class")
            .0,
        "1/1"
    );
}

/// A method that does not end is stopped by its budget, on another thread; the daemon serves
/// meanwhile.
#[test]
fn an_endless_method_is_stopped_and_costs_the_daemon_little() {
    let mut company = company();
    install(&mut company, "counter", COUNTER);
    for _ in 0..3 {
        let failed = call(&mut company, "o", "spin", "").expect_err("it has no end");
        assert!(failed.to_string().contains("instructions"), "{failed}");
    }
    let jobs: u64 = company
        .hosts
        .values()
        .map(|host| host.osd.programs().counters.jobs)
        .sum();
    assert_eq!(jobs, 3);
}

#[test]
fn who_may_call_what_is_the_maps_to_say() {
    let mut company = company();
    install(&mut company, "counter", COUNTER);
    let add_only = Capability::Call {
        pool: "*".into(),
        class: "counter".into(),
        method: "add".into(),
    };
    company.commit(vec![Change::ClientSet {
        name: "bob".into(),
        capabilities: vec![add_only],
    }]);
    let client = nacre_types::Entity::Client(nacre_types::ClientId(9));
    for host in company.hosts.values_mut() {
        host.name(client, "bob".into());
    }
    assert!(call(&mut company, "o", "add", "x").is_ok());
    let denied = call(&mut company, "o", "get", "").expect_err("not get");
    assert!(
        denied
            .to_string()
            .contains("client bob may not call counter.get in pool"),
        "{denied}"
    );
    let script = "function f() end objclass.register(f)";
    let ops = vec![SubOp::Eval {
        script: script.len() as u64,
        handler: "f".into(),
        input: 0,
    }];
    let denied = company
        .op("o", ops.clone(), script.as_bytes())
        .expect_err("no scripts of its own");
    assert!(matches!(denied, OpFailure::Denied { .. }));
    company.commit(vec![Change::ClientSet {
        name: "bob".into(),
        capabilities: vec![Capability::All {}],
    }]);
    assert!(company.op("o", ops, script.as_bytes()).is_ok());
}

/// The same method in Rust, called in the same way.
#[test]
fn a_class_in_rust_is_called_like_one_in_lua() {
    let mut company = company();
    for n in ["1", "2"] {
        let request = company.send("o", vec![call_op("tally", "add", "k")], b"k", 0);
        company.wait(100);
        let (reply, _) = company
            .replies
            .iter()
            .find(|(reply, _)| reply.request == request.request)
            .expect("answered");
        let called = SubReply::Called {
            activation: 0,
            status: 0,
            output: Bytes::copy_from_slice(n.as_bytes()),
        };
        assert_eq!(reply.results, [called]);
    }
    let missing = company
        .op("o", vec![call_op("tally", "shrink", "k")], b"k")
        .expect_err("no such method");
    assert!(
        matches!(missing, OpFailure::NoSuchMethod { .. }),
        "{missing:?}"
    );
    let missing = company
        .op("o", vec![call_op("nothing", "at_all", "k")], b"k")
        .expect_err("no such class");
    assert!(
        missing.to_string().contains("no class nothing"),
        "{missing}"
    );
}

/// A quoted text of an example, and the rest after it.
fn quoted(text: &str) -> (String, &str) {
    let mut out = String::new();
    let mut letters = text
        .strip_prefix('"')
        .expect("a quoted text")
        .char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (out, text[at + 2..].trim()),
            '\\' => match letters.next().expect("an escape").1 {
                'n' => out.push('\n'),
                other => out.push(other),
            },
            _ => out.push(letter),
        }
    }
    panic!("no end of {text}")
}

/// The class library as documented, on daemons instead of a model; afterwards all replicas are
/// equal (MAL-04, MAL-21).
#[test]
fn the_library_does_on_daemons_what_its_documents_say() {
    let mut company = company();
    for class in nacre_policy::library::classes() {
        install(&mut company, class.name, class.source);
        for example in class
            .documented()
            .methods
            .iter()
            .flat_map(|method| &method.examples)
        {
            let (method, rest) = example.split_once(' ').expect("a method and its input");
            if method == "setup:" {
                let data = quoted(rest.strip_prefix("write ").expect("what a setup can do")).0;
                company.write(class.name, data.as_bytes()).expect("written");
                continue;
            }
            let (mut input, rest) = quoted(rest);
            if class.name == "lock" && method == "info" {
                // It prints the model's time.
                continue;
            } else if method == "break_lock" {
                // A client other than the model's.
                let holders = call_of(&mut company, "lock", "lock", "info", "readers")
                    .expect("held")
                    .0;
                let holder = holders
                    .lines()
                    .nth(1)
                    .and_then(|line| line.split(' ').next())
                    .expect("a holder");
                assert!(holder.starts_with("client."), "{holder}");
                input = input.replace("client.17", holder);
            }
            let came = call_of(&mut company, class.name, class.name, method, &input);
            match (rest.strip_prefix('!'), rest.strip_prefix("-> "), came) {
                (Some(name), _, Err(OpFailure::Method { errno, .. })) => {
                    assert_eq!(
                        nacre_policy::errno::name(errno as i32),
                        Some(name),
                        "{}: {example}",
                        class.name
                    );
                }
                (None, expected, Ok((output, _))) => {
                    assert_eq!(
                        output,
                        expected.map_or(String::new(), |text| quoted(text).0),
                        "{}: {example}",
                        class.name
                    );
                }
                (_, _, came) => panic!("{}: {example}: {came:?}", class.name),
            }
        }
        let first = stored(&mut company, 0, class.name);
        assert_eq!(first, stored(&mut company, 1, class.name), "{}", class.name);
        assert_eq!(first, stored(&mut company, 2, class.name), "{}", class.name);
    }
}

const KEEPER: &str = r#"
function list(input, output)
  output:append(table.concat(objclass.snapshots(), " "))
end
-- Back to the snapshot, and a note of it, in one transaction.
function back(input, output)
  local to = tonumber(input:str())
  local tried = pcall(objclass.rollback, 999)
  objclass.rollback(to)
  local note = bufferlist.new()
  note:append("back to " .. to)
  objclass.setxattr("note", note)
  output:append(tostring(tried) .. " " .. objclass.stat())
end
function late(input, output)
  objclass.append(input)
  objclass.rollback(1)
end
function look(input, output)
  objclass.rollback(1)
  output:append(objclass.read(0, 0))
end
function heavy(input, output)
  local n = 0
  for i = 1, 100000 do n = n + i end
  back(input, output)
end
function hostile(input, output)
  while true do for n = 1, 100 do pcall(objclass.rollback, 100 + n) end end
end
objclass.register("list", list, "read")
objclass.register(back)
objclass.register(late)
objclass.register(look)
objclass.register(heavy)
objclass.register(hostile)
"#;

/// A rollback is an ordinary effect of a method: it is executed together with the method's other
/// effects, or not at all.
#[test]
fn a_method_lists_the_snapshots_of_its_object_and_rolls_it_back() {
    let mut company = company();
    install(&mut company, "keeper", KEEPER);
    let keep = |company: &mut Company, method: &str, input: &str| {
        call_of(company, "a", "keeper", method, input).map(|(output, _)| output)
    };
    let errno = |failure: Result<String, OpFailure>| match failure {
        Err(OpFailure::Method { errno, .. }) => errno,
        other => panic!("{other:?}"),
    };
    company.write("a", b"one").expect("written");
    company
        .op(
            "a",
            vec![SubOp::OmapSet {
                entries: vec![("k".into(), "v".into())],
            }],
            &[],
        )
        .expect("set");
    for (snap, name) in [(1, "monday"), (2, "tuesday")] {
        company.commit(vec![Change::SnapCreate {
            pool: PG.pool,
            snap: SnapId(snap),
            name: name.into(),
        }]);
        company
            .write("a", format!("after {name}").as_bytes())
            .expect("written");
    }
    company
        .op("a", vec![SubOp::OmapClear {}], &[])
        .expect("cleared");
    assert_eq!(keep(&mut company, "list", "").expect("listed"), "2 1");

    assert_eq!(
        errno(keep(&mut company, "late", "!")),
        22,
        "what was changed before would be lost"
    );
    assert_eq!(
        errno(keep(&mut company, "look", "")),
        22,
        "what is rolled back is read in another operation"
    );
    assert!(keep(&mut company, "hostile", "").is_err(), "it ends");
    assert_eq!(
        company.read("a").expect("read"),
        b"after tuesday",
        "none of them did anything"
    );

    // The note exists, and the snapshot's data; for the second, the call was evaluated on a thread
    // with more time.
    for (method, to, expected) in [("heavy", "2", &b"after monday"[..]), ("back", "1", b"one")] {
        let said = keep(&mut company, method, to).expect("rolled back");
        assert_eq!(said, format!("false {}", expected.len()));
        assert_eq!(company.read("a").expect("read"), expected);
        let note = company.op(
            "a",
            vec![SubOp::GetAttr {
                name: "note".into(),
            }],
            &[],
        );
        note.expect("set with it");
        let request = company.send(
            "a",
            vec![SubOp::OmapGet {
                keys: vec!["k".into()],
            }],
            &[],
            0,
        );
        company.await_answer(&request).expect("answered");
        let [SubReply::Entries { entries, .. }] = &company.results(&request)[..] else {
            panic!("entries")
        };
        assert_eq!(entries.len(), 1, "the omap, too");
    }
    let acting = company.acting();
    let first = stored(&mut company, acting[0], "a");
    for osd in &acting[1..] {
        assert_eq!(
            stored(&mut company, *osd, "a"),
            first,
            "members cloned what they had"
        );
    }
    company.commit(vec![Change::SnapRemove {
        pool: PG.pool,
        snap: SnapId(1),
    }]);
    assert_eq!(errno(keep(&mut company, "back", "1")), 2);
}

/// (Planted by a reviewer: it was a thousand times too slow.)
#[test]
fn a_methods_clock_is_its_clients() {
    let mut company = company();
    let source = r#"
function now(input, output) output:append(string.format("%d", nacre.now())) end
objclass.register(now)
"#;
    install(&mut company, "clock", source);
    let mut request = company.request(ClientId(9), "a", vec![call_op("clock", "now", "")], 0);
    request.unix_ms = 1_700_000_000_123;
    company.resend(&request, &[]);
    company.await_answer(&request).expect("called");
    let [SubReply::Called { output, .. }] = &company.results(&request)[..] else {
        panic!("a call")
    };
    assert_eq!(output.as_ref(), b"1700000000123", "milliseconds");
}

/// A read-only call took longer than its client's resend interval. Each resend was evaluated in
/// parallel with the first, all on the thread for long calls, and a failure as the answer to the
/// first was discarded: the call never ended, and health did not report it. Now an operation in
/// progress is not begun again, and is answered as the newest attempt.
#[test]
fn a_call_that_takes_longer_than_its_client_waits_is_evaluated_once() {
    let mut company = company();
    install(&mut company, "counter", COUNTER);
    call(&mut company, "o", "add", "x").expect("there");
    let primary = company.acting()[0];
    let spin = || {
        vec![SubOp::Call {
            class: "reader".into(),
            method: "spin".into(),
            length: 0,
        }]
    };
    install(
        &mut company,
        "reader",
        "objclass.register('spin', function() while true do end end, 'read')",
    );
    company.host(primary).jobs = Some(Vec::new());
    let mut first = company.send("o", spin(), &[], 0);
    company.settle();
    assert_eq!(
        company.host(primary).jobs.as_ref().map(Vec::len),
        Some(1),
        "it takes long"
    );
    company.host(primary).sent.clear();
    for attempt in 2..6 {
        (0..20).for_each(|_| company.host(primary).wait(100));
        first.attempt = attempt;
        company.resend(&first, &[]);
    }
    // An attempt that was in transit for longer.
    first.attempt = 3;
    company.resend(&first, &[]);
    assert_eq!(
        company.host(primary).jobs.as_ref().map(Vec::len),
        Some(1),
        "it is evaluated once"
    );
    let told = |message: &Message| match message {
        Message::OpBlocked(blocked) => blocked.reason.contains("evaluated"),
        _ => false,
    };
    assert!(
        company
            .host(primary)
            .sent
            .iter()
            .any(|(_, message)| told(message)),
        "its client is told"
    );
    let slow = |message: &Message| match message {
        Message::Beacon(beacon) => beacon
            .slow
            .iter()
            .any(|line| line.contains("its call is being evaluated")),
        _ => false,
    };
    assert!(company.host(primary).to_mon.iter().any(slow), "and health");
    company.host(primary).evaluate();
    company.settle();
    let (reply, _) = company
        .replies
        .iter()
        .find(|(reply, _)| reply.request == first.request)
        .expect("answered");
    assert_eq!(reply.attempt, 5);
    assert!(
        reply
            .failure
            .as_ref()
            .is_some_and(|failure| failure.to_string().contains("instructions")),
        "{reply:?}"
    );
}

/// An update that its client sent before a read, and resent after it had been lost, must be visible
/// to the read's newest attempt: that one waits behind the update.
#[test]
fn a_repetition_behind_an_update_of_its_client_is_not_answered_from_before_it() {
    let mut company = company();
    install(&mut company, "counter", COUNTER);
    call(&mut company, "o", "add", "x").expect("there");
    let primary = company.acting()[0];
    company.host(primary).held = Some(Vec::new());
    let write = company.request(CLIENT, "o", vec![SubOp::WriteFull { length: 1 }], 0);
    let mut read = company.request(
        CLIENT,
        "o",
        vec![SubOp::Read {
            offset: 0,
            length: 9,
        }],
        0,
    );
    read.answered_below = write.request.sequence;
    company.resend(&read, &[]);
    company.resend(&write, b"y");
    read.attempt = 2;
    company.resend(&read, &[]);
    assert_eq!(
        company.host(primary).held.as_ref().map(Vec::len),
        Some(1),
        "the update waits for the read"
    );
    company.host(primary).release();
    company.settle();
    company.host(primary).release();
    company.host(primary).held = None;
    company.settle();
    let answers: Vec<_> = company
        .replies
        .iter()
        .filter(|(reply, _)| reply.request == read.request)
        .collect();
    let found: Vec<_> = answers
        .iter()
        .map(|(reply, data)| (reply.attempt, data.concat()))
        .collect();
    assert_eq!(found, [(1, b"x".to_vec()), (2, b"y".to_vec())]);
}

/// (Review.) A holder whose call took longer than its lock's lease resent it again and again
/// without being counted as alive: it lost the lock though it had never been silent.
#[test]
fn who_asks_for_what_is_under_way_is_heard() {
    let mut company = company();
    install(&mut company, "counter", COUNTER);
    call(&mut company, "o", "add", "x").expect("there");
    let lock = |lease_ms| SubOp::Lock {
        name: "l".into(),
        cookie: 1,
        shared: false,
        lease_ms,
        description: "d".into(),
    };
    company.op("o", vec![lock(3_000)], &[]).expect("it is free");
    let primary = company.acting()[0];
    company.host(primary).jobs = Some(Vec::new());
    let mut spin = company.send("o", vec![call_op("counter", "spin", "")], &[], 0);
    for attempt in 2..6 {
        company.wait(2_000);
        spin.attempt = attempt;
        company.resend(&spin, &[]);
    }
    let bert = company.request(ClientId(10), "o", vec![lock(3_000)], 0);
    company.resend(&bert, &[]);
    company.host(primary).evaluate();
    let refused = company
        .await_answer(&bert)
        .expect_err("ANNA holds it, and was heard a moment ago");
    assert!(refused.to_string().contains("lock"), "{refused}");
}

/// (Review.) The first attempt waits, an update that must precede it arrives behind it, and then
/// the newest attempt: that one must see the update. The same holds if the first one was in
/// progress, and returns to the queue because the lease had expired meanwhile.
#[test]
fn a_repetition_joins_nothing_that_is_before_an_update_of_its_client() {
    for back in [false, true] {
        let mut company = company();
        company.write("o", b"x").expect("there");
        let primary = company.acting()[0];
        let write = company.request(CLIENT, "o", vec![SubOp::WriteFull { length: 1 }], 0);
        let mut read = company.request(
            CLIENT,
            "o",
            vec![SubOp::Read {
                offset: 0,
                length: 9,
            }],
            0,
        );
        read.answered_below = write.request.sequence;
        if back {
            company.host(primary).held = Some(Vec::new());
            company.resend(&read, &[]);
        }
        // No OSD is heard for long enough that the lease expires.
        for _ in 0..6 {
            company.host(primary).wait(100);
        }
        if !back {
            company.resend(&read, &[]);
        }
        company.resend(&write, b"y");
        read.attempt = 2;
        company.resend(&read, &[]);
        if back {
            company.host(primary).release();
            company.host(primary).held = None;
        }
        read.attempt = 3;
        company.resend(&read, &[]);
        company.wait(2_000);
        let answers: Vec<_> = company
            .replies
            .iter()
            .filter(|(reply, _)| reply.request == read.request)
            .collect();
        let found: Vec<_> = answers
            .iter()
            .map(|(reply, data)| (reply.attempt, data.concat()))
            .collect();
        assert_eq!(
            found,
            [(1, b"x".to_vec()), (3, b"y".to_vec())],
            "back: {back}"
        );
    }
}

/// (Review.) Operators on long strings take long and count little: no step checks the clock between
/// them. Classes whose calls repeatedly end late are evaluated elsewhere after a few, although they
/// succeed.
#[test]
fn who_keeps_the_daemons_thread_for_too_long_is_evaluated_elsewhere() {
    #[derive(Debug)]
    struct Late;
    impl crate::Patience for Late {
        fn begin(&self) {}
        fn is_over(&self) -> bool {
            true
        }
    }
    let mut company = company();
    install(
        &mut company,
        "short",
        "objclass.register('nothing', function() end, 'read')",
    );
    let primary = company.acting()[0];
    company.write("o", b"x").expect("there");
    company
        .host(primary)
        .osd
        .set_patience(std::sync::Arc::new(Late));
    let jobs: Vec<u64> = (0..8)
        .map(|_| {
            company
                .op("o", vec![call_op("short", "nothing", "")], &[])
                .expect("too short to ask the clock");
            company.host(primary).osd.programs().counters.jobs
        })
        .collect();
    assert!(jobs[0] == 0 && jobs[7] > 0, "{jobs:?}");
}
