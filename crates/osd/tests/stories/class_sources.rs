//! Stories of classes: their sources, versions, rights, and the library.

use super::classes::{
    CLASS, COUNTER, announce, call, call_of, call_op, company, install, store, stored,
};
use super::company::Company;
use bytes::Bytes;
use nacre_types::ClientId;
use nacre_wire::map::programs::source_object;
use nacre_wire::map::{Capability, Change, ProgramVersion, SourceDigest};
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};

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
fn no_client_takes_or_changes_the_source_of_a_program() {
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
