//! Stories of classes: installed, called, upgraded, broken, on several daemons (MAL-02, MAL-06,
//! MAL-20 to MAL-24, MAL-26, MAL-29, MAL-70).

use super::company::Company;
use super::rig::PG;
use crate::key;
use crate::programs::Programs;
use bytes::Bytes;
use nacre_object::methods::Complaint;
use nacre_policy::{Kind, ScriptError};
use nacre_store::{ObjectStore, Read, ReadReply, Token};
use nacre_types::{ObjectId, PoolId, SnapId};
use nacre_wire::map::programs::{PROGRAM_POOL, source_object};
use nacre_wire::map::{Change, ProgramKind, ProgramVersion, SourceDigest};
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use std::collections::BTreeSet;

pub(super) const CLASS: ProgramKind = ProgramKind::Class {};

pub(super) const COUNTER: &str = r#"
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
pub(super) fn company() -> Company {
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
pub(super) fn install(company: &mut Company, name: &str, source: &str) {
    store(company, name, source);
    announce(company, name, source);
}

pub(super) fn store(company: &mut Company, name: &str, source: &str) {
    let digest = SourceDigest(*blake3::hash(source.as_bytes()).as_bytes());
    let object = source_object(CLASS, &name.into(), &digest).name.to_string();
    company.write(&object, source.as_bytes()).expect("stored");
}

pub(super) fn announce(company: &mut Company, name: &str, source: &str) {
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

pub(super) fn call_op(class: &str, method: &str, input: &str) -> SubOp {
    SubOp::Call {
        class: class.into(),
        method: method.into(),
        length: input.len() as u64,
    }
}

/// The output of a call, and the activation that ran.
pub(super) fn call(
    company: &mut Company,
    object: &str,
    method: &str,
    input: &str,
) -> Result<(String, u64), OpFailure> {
    call_of(company, object, "counter", method, input)
}

pub(super) fn call_of(
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
pub(super) fn stored(
    company: &mut Company,
    osd: u32,
    object: &str,
) -> (ReadReply, ReadReply, ReadReply) {
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
