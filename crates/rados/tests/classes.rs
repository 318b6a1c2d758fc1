//! Lua classes on Ceph: the library's portable classes satisfy the same checks as in the sandbox
//! and on Nacre's own engine (`crates/classcases`); non-portable ones are refused; versions are
//! reported, and change within the bounded time.

use crate::{OwnPool, ceph, command};
use bytes::Bytes;
use nacre_classcases::Host as _;
use nacre_classcases::over::OnCluster;
use nacre_client::{Completion, Failure, ObjectCluster as _, Operation};
use nacre_policy::{Profile, errno, library};
use nacre_rados::programs::classes::YOUNG;
use nacre_rados::{Bounds, Rados, admin};
use nacre_types::{ObjectId, Time};
use nacre_wire::map::programs::source_object;
use nacre_wire::map::{ProgramKind, SourceDigest};
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use serde_json::{Value, json};
use std::sync::RwLockReadGuard;
use std::time::Duration;

/// One in this many random cases of the sandbox is tried here: each call is a replicated write
/// there.
const RARER: u32 = 24;

/// Installs a class under a name.
fn install(rados: &Rados, name: &str, source: &str) -> Result<Value, String> {
    let ask = |request| admin::command(rados, &command(request)).map_err(|error| error.to_string());
    let pool =
        ask(json!({ "command": "program prepare", "kind": "class", "client": "admin" }))?["pool"]
            .clone();
    let pools = ask(json!({ "command": "pool ls" }))?;
    let home = pools["pools"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|known| known["name"] == pool)
        .expect("made");
    let digest = SourceDigest(*blake3::hash(source.as_bytes()).as_bytes());
    let mut client = nacre_rados::Ceph::new(rados.clone());
    let operation = Operation {
        pool: nacre_types::PoolId(home["id"].as_u64().expect("a number")),
        object: source_object(ProgramKind::Class {}, &name.into(), &digest),
        ops: vec![SubOp::WriteFull {
            length: source.len() as u64,
        }],
        payload: vec![Bytes::copy_from_slice(source.as_bytes())],
        ..Operation::default()
    };
    all(&mut client, vec![operation])
        .remove(0)
        .result
        .expect("stored");
    ask(
        json!({ "command": "program install", "kind": "class", "name": name, "source": source, "client": "admin" }),
    )
}

/// The cluster, a pool in it, and the exclusive use of both.
struct Place {
    rados: Rados,
    pool: OwnPool,
    _shared: RwLockReadGuard<'static, ()>,
}
impl Place {
    fn find(test: &str, pool: &str) -> Option<Self> {
        let (conf, shared) = ceph(test)?;
        let rados = Rados::connect(&conf, "admin", &Bounds::default()).expect("connects");
        Some(Self {
            rados,
            pool: OwnPool::make(&conf, pool),
            _shared: shared,
        })
    }
    fn client(&self) -> nacre_rados::Ceph {
        nacre_rados::Ceph::new(self.rados.clone())
    }
}

fn remove(rados: &Rados, name: &str) {
    let request =
        json!({ "command": "program rm", "kind": "class", "name": name, "client": "admin" });
    admin::command(rados, &command(request)).expect("removed");
}

/// Submits all operations at once; returns their completions in the order of submission.
fn all(client: &mut nacre_rados::Ceph, operations: Vec<Operation>) -> Vec<Completion> {
    let count = operations.len();
    for operation in operations {
        client.submit(Time::ZERO, operation).expect("taken");
    }
    let mut ended = Vec::new();
    for _ in 0..60 {
        client.turn(Duration::from_secs(1));
        nacre_client::Driven::completions(client, &mut ended);
        if ended.len() == count {
            ended.sort_by_key(|completion| completion.id);
            return ended;
        }
    }
    panic!("{} of {count} operations ended in a minute", ended.len());
}

#[test]
fn portable_classes_keep_their_promises_and_the_rest_are_refused() {
    let Some(place) = Place::find("classes of the library", "classes") else {
        return;
    };
    let rados = &place.rados;
    for class in library::classes() {
        let installed = install(rados, class.name, class.source);
        if class.profile() == Profile::Luau {
            let why = installed.expect_err("not portable");
            assert!(
                why.contains("exec_reads_own_writes") && why.contains(class.name),
                "{why}"
            );
            println!("{}: refused, as it should be: {why}", class.name);
            continue;
        }
        let activation = installed.expect("portable")["activation"]
            .as_u64()
            .expect("a number");
        let mut client = place.client();
        let mut host = OnCluster::new(&mut client, place.pool.id, class.name, RARER);
        nacre_classcases::run(&mut host, class.name);
        assert!(
            host.activations.iter().all(|ran| *ran == activation),
            "{}: {activation}",
            class.name
        );
    }
}

/// A class of this test run, removed at its end.
struct OwnClass {
    rados: Rados,
    name: String,
    activation: u64,
}
impl OwnClass {
    fn new(rados: &Rados, name: &str, source: &str) -> Self {
        let name = format!("nacre-test-{name}-{}", std::process::id());
        let mut this = Self {
            rados: rados.clone(),
            name,
            activation: 0,
        };
        this.install(source);
        this
    }
    fn install(&mut self, source: &str) {
        let source = format!("--!profile portable\n{source}");
        let reply = install(&self.rados, &self.name, &source).expect("installed");
        self.activation = reply["activation"].as_u64().expect("a number");
    }
    fn call(&self, method: &str, input: &str) -> (SubOp, Bytes) {
        let input = Bytes::copy_from_slice(input.as_bytes());
        let (class, length) = (self.name.as_str().into(), input.len() as u64);
        (
            SubOp::Call {
                class,
                method: method.into(),
                length,
            },
            input,
        )
    }
}
impl Drop for OwnClass {
    fn drop(&mut self) {
        remove(&self.rados, &self.name);
    }
}

fn operation(place: &Place, object: &str, parts: Vec<(SubOp, Bytes)>) -> Operation {
    let (ops, payload): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    let payload = payload
        .into_iter()
        .filter(|data| !data.is_empty())
        .collect();
    Operation {
        pool: place.pool.id,
        object: ObjectId::named(object),
        ops,
        payload,
        ..Operation::default()
    }
}

fn one(client: &mut nacre_rados::Ceph, operation: Operation) -> Result<Vec<SubReply>, Failure> {
    all(client, vec![operation])
        .remove(0)
        .result
        .map(|done| done.results)
}

fn called(activation: u64, status: u32, output: &str) -> Vec<SubReply> {
    vec![SubReply::Called {
        activation,
        status,
        output: Bytes::copy_from_slice(output.as_bytes()),
    }]
}

#[test]
fn a_class_behaves_as_on_our_own_engine() {
    let Some(place) = Place::find("how classes behave", "behave") else {
        return;
    };
    let rados = &place.rados;
    let class = OwnClass::new(
        rados,
        "behave",
        "function nothing(i, o) end objclass.register(nothing)\n\
         function seven(i, o) objclass.map_set_val('k', i) return 7 end objclass.register(seven)\n\
         function raises(i, o) objclass.map_set_val('k', i) error(-objclass.ESTALE) end objclass.register(raises)\n\
         function returns(i, o) objclass.map_set_val('k', i) return -17 end objclass.register(returns)\n\
         function missing(i, o) objclass.map_get_val('nokey') end objclass.register(missing)\n\
         function breaks(i, o)\n  local n = nil .. i:str()\nend objclass.register(breaks)\n\
         function rereads(i, o) objclass.map_set_val('k', i) pcall(objclass.map_get_val, 'k') end objclass.register(rereads)\n\
         function tells(i, o) objclass.map_set_val('k', i) o:append('told') end objclass.register(tells)\n\
         objclass.register('peek', function(i, o) objclass.map_set_val('k', i) end, { read_only = true })\n\
         function several(i, o) local b = bufferlist.new() b:append('v') objclass.map_set_vals({ a = b, c = b }) end objclass.register(several)\n\
         function keys(i, o) for k in pairs((objclass.map_get_keys('', 9))) do o:append(k) end end objclass.register(keys)\n\
         function long(i, o) o:append(string.rep('x', 100000)) end objclass.register(long)\n\
         function odd(i, o) return {} end objclass.register(odd)\n\
         function hidden() end",
    );
    let mut client = place.client();
    let mut call = |object: &str, method: &str| {
        one(
            &mut client,
            operation(&place, object, vec![class.call(method, "in")]),
        )
    };
    let failed = |errno: i32, why: &str| {
        let (activation, why) = (class.activation, why.replace("NAME", &class.name));
        Err(Failure::Refused(OpFailure::Method {
            index: 0,
            activation,
            errno: errno.unsigned_abs(),
            why,
        }))
    };
    let portable = "NAME: the class says it is portable, but ";
    assert_eq!(call("a", "nothing"), Ok(called(class.activation, 0, "")));
    assert_eq!(call("a", "missing"), failed(errno::ENOENT, ""));
    assert_eq!(call("a", "seven"), Ok(called(class.activation, 7, "")));
    assert_eq!(call("a", "several"), Ok(called(class.activation, 0, "")));
    let Ok(keys) = call("a", "keys") else {
        panic!("listed")
    };
    let [SubReply::Called { output, .. }] = &keys[..] else {
        panic!("{keys:?}")
    };
    let mut letters: Vec<u8> = output.to_vec();
    letters.sort_unstable();
    assert_eq!(letters, b"ack");
    assert_eq!(
        call("a", "long"),
        Ok(called(class.activation, 0, &"x".repeat(100_000)))
    );
    for (method, expected) in [
        ("raises", failed(errno::ESTALE, "")),
        ("returns", failed(errno::EEXIST, "")),
        ("peek", failed(errno::EROFS, "")),
        (
            "odd",
            failed(
                errno::EIO,
                "NAME: a method returns an integer or nothing, not a table",
            ),
        ),
        (
            "tells",
            failed(
                errno::EPERM,
                &format!("{portable}a call that wrote has output: Ceph drops it"),
            ),
        ),
        (
            "rereads",
            failed(
                errno::EPERM,
                &format!(
                    "{portable}objclass.map_get_val: it reads after a write of its own, and Ceph shows the old state; read first"
                ),
            ),
        ),
    ] {
        assert_eq!(call("b", method), expected, "{method}");
    }
    // After the profile's line, the eighth.
    let Err(Failure::Refused(OpFailure::Method { errno: 5, why, .. })) = call("b", "breaks") else {
        panic!("it breaks")
    };
    assert!(
        why.starts_with(&format!("{}:8: attempt to concatenate", class.name)),
        "{why}"
    );
    for method in ["hidden", "nowhere"] {
        let Err(Failure::Refused(OpFailure::NoSuchMethod { why })) = call("b", method) else {
            panic!("no {method}")
        };
        assert!(why.contains(method), "{why}");
    }
    // The failures left no effects.
    let mut host = OnCluster::new(&mut client, place.pool.id, "x", 1);
    assert_eq!(host.state(), None);
    let stat = operation(&place, "b", vec![(SubOp::Stat {}, Bytes::new())]);
    assert_eq!(
        one(&mut client, stat),
        Err(Failure::Refused(OpFailure::NotFound {}))
    );
}

#[test]
fn a_call_is_a_part_of_its_operation() {
    let Some(place) = Place::find("calls in compound operations", "compound") else {
        return;
    };
    let rados = &place.rados;
    let class = OwnClass::new(
        rados,
        "compound",
        "function wants(i, o) if objclass.read(0, 0):str() ~= i:str() then error(-objclass.ECANCELED) end o:append(string.rep('y', 500)) return 3 end \
         objclass.register(wants)",
    );
    let mut client = place.client();
    let write = |data: &'static str| {
        (
            SubOp::WriteFull {
                length: data.len() as u64,
            },
            Bytes::from_static(data.as_bytes()),
        )
    };
    one(&mut client, operation(&place, "a", vec![write("old")])).expect("written");
    let refused = one(
        &mut client,
        operation(
            &place,
            "a",
            vec![class.call("wants", "other"), write("new")],
        ),
    );
    let Err(Failure::Refused(OpFailure::Method {
        index: 0,
        activation,
        errno: 125,
        ..
    })) = refused
    else {
        panic!("{refused:?}")
    };
    assert_eq!(activation, class.activation);
    let held = one(
        &mut client,
        operation(&place, "a", vec![class.call("wants", "old"), write("new")]),
    )
    .expect("it holds");
    // A writing operation has no output, however long it would be.
    assert_eq!(
        held,
        [called(class.activation, 3, ""), vec![SubReply::Done {}]].concat()
    );
    let late = one(
        &mut client,
        operation(
            &place,
            "a",
            vec![write("newer"), class.call("wants", "newer")],
        ),
    );
    let Err(Failure::Refused(OpFailure::Invalid { why })) = late else {
        panic!("{late:?}")
    };
    assert!(why.contains("exec_reads_own_writes"), "{why}");
    let read = operation(
        &place,
        "a",
        vec![(
            SubOp::Read {
                offset: 0,
                length: 9,
            },
            Bytes::new(),
        )],
    );
    assert_eq!(
        all(&mut client, vec![read])
            .remove(0)
            .result
            .expect("there")
            .payload
            .concat(),
        b"new"
    );
}

/// The first call waits until the installed classes are known: later operations on its object wait
/// with it, earlier ones do not.
#[test]
fn calls_keep_their_place_among_other_operations() {
    let Some(place) = Place::find("the order of calls", "order") else {
        return;
    };
    let rados = &place.rados;
    let class = OwnClass::new(
        rados,
        "order",
        "function add(i, o) local old = objclass.read(0, 0):str() local b = bufferlist.new() b:append(old .. i:str()) objclass.write_full(b) end \
         objclass.register(add)",
    );
    let append = |data: &'static str| {
        (
            SubOp::Append { length: 1 },
            Bytes::from_static(data.as_bytes()),
        )
    };
    for round in 0..30 {
        // Each knows nothing yet.
        let mut client = place.client();
        let object = format!("o{round}");
        let parts = [
            append("a"),
            append("b"),
            class.call("add", "c"),
            append("d"),
            class.call("add", "e"),
            append("f"),
        ];
        let operations = parts
            .into_iter()
            .map(|part| operation(&place, &object, vec![part]))
            .collect();
        for completion in all(&mut client, operations) {
            completion.result.expect("nothing fails");
        }
        let read = operation(
            &place,
            &object,
            vec![(
                SubOp::Read {
                    offset: 0,
                    length: 9,
                },
                Bytes::new(),
            )],
        );
        let data = all(&mut client, vec![read])
            .remove(0)
            .result
            .expect("there")
            .payload
            .concat();
        assert_eq!(String::from_utf8_lossy(&data), "abcdef", "round {round}");
    }
}

#[test]
fn a_new_version_is_live_for_everybody_within_the_bound_and_a_client_never_goes_back() {
    let Some(place) = Place::find("versions of classes", "versions") else {
        return;
    };
    let rados = &place.rados;
    let says =
        |text: &str| format!("function say(i, o) o:append('{text}') end objclass.register(say)");
    let mut class = OwnClass::new(rados, "versions", &says("one"));
    let (mut first, mut second) = (place.client(), place.client());
    let say = |client: &mut nacre_rados::Ceph, class: &OwnClass| {
        one(client, operation(&place, "a", vec![class.call("say", "")]))
    };
    let one_is = class.activation;
    assert_eq!(say(&mut first, &class), Ok(called(one_is, 0, "one")));
    class.install(&says("two"));
    let two_is = class.activation;
    assert!(two_is > one_is);
    // A client that has not looked yet uses the new version at once; the other may use the old one
    // for a while, and then never again.
    assert_eq!(say(&mut second, &class), Ok(called(two_is, 0, "two")));
    std::thread::sleep(YOUNG);
    for _ in 0..5 {
        assert_eq!(say(&mut first, &class), Ok(called(two_is, 0, "two")));
    }
    // A rollback is a new activation of the old version.
    let request = json!({ "command": "program activate", "kind": "class", "name": class.name, "client": "admin" });
    let back = admin::command(rados, &command(request)).expect("rolled back")["activation"]
        .as_u64()
        .expect("a number");
    assert!(back > two_is);
    std::thread::sleep(YOUNG);
    assert_eq!(say(&mut first, &class), Ok(called(back, 0, "one")));
    let gone = class.name.clone();
    drop(class);
    std::thread::sleep(YOUNG);
    let call = SubOp::Call {
        class: gone.as_str().into(),
        method: "say".into(),
        length: 0,
    };
    let Err(Failure::Refused(OpFailure::NoSuchMethod { why })) = one(
        &mut first,
        operation(&place, "a", vec![(call, Bytes::new())]),
    ) else {
        panic!("it is removed")
    };
    assert!(why.contains("no such class is installed"), "{why}");
}

#[test]
fn what_the_clusters_lua_does_not_know_is_refused_with_its_line() {
    let Some(place) = Place::find("what is refused", "unused") else {
        return;
    };
    let rados = &place.rados;
    let name = format!("nacre-test-refused-{}", std::process::id());
    let refused = |source: &str| install(rados, &name, source).expect_err("refused");
    let portable = |body: &str| refused(&format!("--!profile portable\n{body}"));
    assert!(
        portable("x = 1\ny = = 2").contains(&format!("class {name} is refused: {name}:3: ")),
        "our checker"
    );
    let why = portable("function f(i, o)\n  local x = 1\n  x += 1\nend\nobjclass.register(f)");
    assert!(
        why.contains(&format!("class {name} is refused: {name}:4: ")) && why.contains("another"),
        "theirs: {why}"
    );
    let why = portable("local n = 0\nlocal t = bit32.band(1, 2)");
    assert!(
        why.contains(&format!("{name}:3: ")),
        "what it has not: {why}"
    );
    assert!(refused("x = 1").contains("exec_reads_own_writes"));
    let ls = admin::command(rados, &command(json!({ "command": "program ls" })))
        .expect("listed")
        .to_string();
    assert!(!ls.contains(&name), "nothing of it");
}

/// Concurrent installations: each gets an activation of its own.
#[test]
fn installations_at_once_do_not_lose_each_other() {
    let Some(place) = Place::find("installing at once", "unused") else {
        return;
    };
    let rados = &place.rados;
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let rados = rados.clone();
            std::thread::spawn(move || {
                OwnClass::new(&rados, &format!("many-{n}"), &format!("-- {n}"))
            })
        })
        .collect();
    let classes: Vec<OwnClass> = threads
        .into_iter()
        .map(|thread| thread.join().expect("installed"))
        .collect();
    let activations: std::collections::BTreeSet<u64> =
        classes.iter().map(|class| class.activation).collect();
    assert_eq!(activations.len(), classes.len(), "{activations:?}");
    let ls = admin::command(
        rados,
        &command(json!({ "command": "program ls", "kind": "class" })),
    )
    .expect("listed");
    for class in &classes {
        let row = ls["programs"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|row| row["name"] == class.name.as_str());
        assert_eq!(row.expect("listed")["activation"], class.activation);
    }
}

/// Classes that were not installed are Ceph's own, as before.
#[test]
fn native_classes_are_called_as_ever() {
    let Some(place) = Place::find("native classes", "native") else {
        return;
    };
    let mut client = place.client();
    let call = |method: &str, input: &'static [u8]| {
        let op = SubOp::Call {
            class: "hello".into(),
            method: method.into(),
            length: input.len() as u64,
        };
        operation(&place, "a", vec![(op, Bytes::from_static(input))])
    };
    let made = operation(
        &place,
        "a",
        vec![(SubOp::Create { exclusive: true }, Bytes::new())],
    );
    one(&mut client, made).expect("made: a method that reads needs an object");
    assert_eq!(
        one(&mut client, call("say_hello", b"Ada")),
        Ok(called(0, 0, "Hello, Ada!"))
    );
    assert!(matches!(
        one(&mut client, call("nosuch", b"")),
        Err(Failure::Refused(OpFailure::NoSuchMethod { .. }))
    ));
    let script = "function f(i, o) error('no') end objclass.register(f)";
    let eval = |handler: &str| {
        let op = SubOp::Eval {
            script: script.len() as u64,
            handler: handler.into(),
            input: 0,
        };
        operation(
            &place,
            "a",
            vec![(op, Bytes::from_static(script.as_bytes()))],
        )
    };
    let Err(Failure::Refused(OpFailure::Method {
        errno: 5,
        activation: 0,
        why,
        ..
    })) = one(&mut client, eval("f"))
    else {
        panic!("it raises")
    };
    assert!(why.contains("raised an error"), "{why}");
    let Err(Failure::Refused(OpFailure::NoSuchMethod { why })) = one(&mut client, eval("g")) else {
        panic!("no g")
    };
    assert!(why.contains("registers no such function"), "{why}");
}
