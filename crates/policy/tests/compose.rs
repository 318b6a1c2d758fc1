//! Classes that call classes (MAL-26): in Lua and in Rust, called in the same way.

use crate::model::{Caller, Model};
use bytes::Bytes;
use nacre_policy::*;
use std::sync::Arc;

/// A counter in the map, in Rust.
struct Counter;
impl NativeClass for Counter {
    fn method(&self, name: &str) -> Option<MethodFlags> {
        match name {
            "add" | "add_then_fail" | "twice" | "careless" => Some(MethodFlags::default()),
            "get" | "sneak" => Some(MethodFlags { read_only: true }),
            _ => None,
        }
    }
    fn call(
        &self,
        method: &str,
        input: Bytes,
        context: &mut Context<'_>,
    ) -> Result<(i32, Bytes), Stop> {
        if method == "twice" {
            context.call("counter", "add", input.clone())?;
            return context.call("counter", "add", input);
        }
        if method == "careless" {
            // Hides every answer, including `Stop::Wait`.
            let _ = context.object.getxattr(b"a");
            return Ok((0, input));
        }
        let now = match context.object.map_get_val(b"count") {
            Ok(text) => String::from_utf8_lossy(&text)
                .parse::<u64>()
                .map_err(|_| Stop::Errno(errno::EIO))?,
            Err(Stop::Errno(errno::ENOENT)) => 0,
            Err(stop) => return Err(stop),
        };
        if method == "get" {
            return Ok((0, Bytes::from(now.to_string())));
        }
        let by = String::from_utf8_lossy(&input)
            .parse::<u64>()
            .map_err(|_| Stop::Errno(errno::EINVAL))?;
        let next = Bytes::from((now + by).to_string());
        context
            .object
            .map_set_vals(vec![(Bytes::from_static(b"count"), next.clone())])?;
        context.log.push((
            Severity::Info,
            format!("{} counts to {}", context.request.client, now + by),
        ));
        if method == "add_then_fail" {
            Ok((-errno::EIO, next))
        } else {
            Ok((0, next))
        }
    }
}

/// The same in Lua.
const COUNTER: &str = "
local function count() local ok, v = pcall(objclass.map_get_val, 'count') return ok and tonumber(v:str()) or 0 end
function get(i, o) o:append(tostring(count())) end
objclass.register(get, {read_only = true})
function sneak(i, o) objclass.map_set_val('count', i) end
objclass.register(sneak, {read_only = true})
function add(i, o)
  local by = tonumber(i:str())
  if not by then return -objclass.EINVAL end
  local next = bufferlist.new(tostring(count() + by))
  objclass.map_set_val('count', next)
  objclass.log(10, nacre.client() .. ' counts to ' .. next:str())
  o:append(next)
end
objclass.register(add)
function add_then_fail(i, o) add(i, o) return -objclass.EIO end
objclass.register(add_then_fail)
function twice(i, o) objclass.call('counter', 'add', i) local out = objclass.call('counter', 'add', i) o:append(out) end
objclass.register(twice)
";

const USER: &str = "
function run(i, o) o:append(objclass.call('counter', i:str(), '5')) end objclass.register(run)
function try(i, o) local ok, e = pcall(objclass.call, 'counter', i:str(), 'five') o:append(tostring(ok)..tostring(e)) end objclass.register(try)
function try_failing(i, o) local ok, e = pcall(objclass.call, 'counter', 'add_then_fail', '5') o:append('caught') return 0 end
objclass.register(try_failing)
function peek(i, o) objclass.call('counter', 'add', '5') end objclass.register(peek, {read_only = true})
function forever(i, o) return objclass.call('user', 'forever') end objclass.register(forever)
function own(i, o) leak = 1 objclass.call('other', 'look') o:append(tostring(leak)..tostring(load('return leak')())) end objclass.register(own)
function after(i, o) objclass.call('counter', 'get') objclass.map_set_val('after', i) end objclass.register(after)
function loops(i, o) while true do pcall(objclass.call, 'other', 'loop') end end objclass.register(loops)
";
const OTHER: &str =
    "function look(i, o) if leak then error('seen') end leak = 2 end objclass.register(look)
function loop() while true do end end objclass.register(loop)";

fn callers() -> [(&'static str, Caller); 2] {
    let code = [
        ClassRef::Lua(Chunk::new("counter", COUNTER)),
        ClassRef::Native(Arc::new(Counter)),
    ];
    ["lua", "native"]
        .into_iter()
        .zip(code)
        .map(|(name, code)| {
            let mut at = Caller::new();
            let mut classes = Classes::default();
            classes.insert("counter", 4, code);
            classes.insert("user", 9, ClassRef::Lua(Chunk::new("user", USER)));
            classes.insert("other", 2, ClassRef::Lua(Chunk::new("other", OTHER)));
            at.classes = Arc::new(classes);
            (name, at)
        })
        .collect::<Vec<_>>()
        .try_into()
        .ok()
        .expect("two")
}

fn call(
    at: &mut Caller,
    object: &mut Model,
    class: &str,
    method: &str,
    input: &str,
) -> CallOutcome {
    match at.end(object, Target::Class(class), method, input.as_bytes()) {
        CallEnd::Done(outcome) => outcome,
        CallEnd::Wait => panic!("the model has everything at hand"),
    }
}

#[test]
fn a_class_in_rust_and_one_in_lua_cannot_be_told_apart() {
    for (name, mut at) in callers() {
        let mut object = Model::with("");
        let mut short = |method: &str, input: &str| {
            let outcome = call(&mut at, &mut object, "counter", method, input);
            (
                outcome.status,
                String::from_utf8_lossy(&outcome.output).into_owned(),
                outcome.wrote,
                outcome.activation,
                outcome.log,
            )
        };
        let line = |text: &str| vec![(Severity::Info, text.to_owned())];
        assert_eq!(
            short("add", "5"),
            (0, "5".into(), true, 4, line("client.17 counts to 5")),
            "{name}"
        );
        assert_eq!(
            short("get", ""),
            (0, "5".into(), false, 4, vec![]),
            "{name}"
        );
        assert_eq!(short("twice", "2").1, "9", "{name}");
        assert_eq!(short("add", "x").0, -errno::EINVAL, "{name}");
        assert_eq!(short("sneak", "1").0, -errno::EROFS, "{name}");
        assert_eq!(short("add_then_fail", "1").0, -errno::EIO, "{name}");
        assert_eq!(short("nosuch", "").0, -errno::EOPNOTSUPP, "{name}");
        assert_eq!(
            short("get", "").1,
            "9",
            "{name}: the failed calls left nothing"
        );
    }
    let (_, mut at) = callers().into_iter().next().expect("two");
    assert_eq!(
        call(&mut at, &mut Model::default(), "nosuch", "f", "").status,
        -errno::EOPNOTSUPP
    );
}

#[test]
fn classes_call_classes() {
    for (name, mut at) in callers() {
        let mut object = Model::with("");
        assert_eq!(
            call(&mut at, &mut object, "user", "run", "add").output,
            "5",
            "{name}"
        );
        let twice = call(&mut at, &mut object, "user", "run", "twice");
        assert_eq!(
            (&twice.output[..], twice.activation),
            (&b"15"[..], 9),
            "{name}: {:?}",
            twice.error
        );
        // A callee's failure is an error value like any other of the interface.
        assert_eq!(
            call(&mut at, &mut object, "user", "try", "add").output,
            "false-22",
            "{name}"
        );
        assert_eq!(
            call(&mut at, &mut object, "user", "run", "sneak").status,
            -errno::EROFS,
            "{name}"
        );
        // A callee's read-only flag binds the callee alone; a caller's binds both.
        assert_eq!(
            call(&mut at, &mut object, "user", "after", "x").status,
            0,
            "{name}"
        );
        assert_eq!(
            call(&mut at, &mut object, "user", "peek", "").status,
            -errno::EROFS,
            "{name}"
        );
        assert_eq!(&object.map[&b"count"[..]][..], b"15", "{name}");
    }
}

#[test]
fn a_callee_that_failed_after_it_wrote_takes_the_call_with_it() {
    for (name, mut at) in callers() {
        let mut object = Model::with("");
        let outcome = call(&mut at, &mut object, "user", "try_failing", "");
        assert_eq!(
            (outcome.status, outcome.wrote),
            (-errno::EIO, true),
            "{name}"
        );
        assert!(
            outcome
                .error
                .expect("failed")
                .message
                .contains("after it wrote"),
            "{name}"
        );
        assert!(object.map.is_empty(), "{name}");
    }
}

#[test]
fn classes_that_call_each_other_end() {
    let (_, mut at) = callers().into_iter().next().expect("two");
    let mut object = Model::with("");
    let deep = call(&mut at, &mut object, "user", "forever", "");
    assert_eq!(
        (deep.status, deep.error.expect("failed").kind),
        (-errno::ELOOP, Kind::Depth)
    );
    assert_eq!(
        call(&mut at, &mut object, "user", "loops", "")
            .error
            .expect("failed")
            .kind,
        Kind::Instructions
    );
    // Each class has its own globals.
    assert_eq!(call(&mut at, &mut object, "user", "own", "").output, "11");
}

#[test]
fn a_check_lists_methods_before_anything_is_installed() {
    let mut at = Caller::new();
    let methods = at
        .vm
        .check(&Chunk::new("counter", COUNTER), &Budget::CLASS)
        .expect("it is well");
    let named: Vec<_> = methods
        .iter()
        .map(|(name, flags)| (name.as_str(), flags.read_only))
        .collect();
    assert_eq!(
        named,
        [
            ("add", false),
            ("add_then_fail", false),
            ("get", true),
            ("sneak", true),
            ("twice", false)
        ]
    );
    let syntax = at
        .vm
        .check(&Chunk::new("bad", "x = 1\nfunction (\n"), &Budget::CLASS)
        .expect_err("it is not");
    assert_eq!(
        (syntax.kind, syntax.line, syntax.script.as_str()),
        (Kind::Syntax, Some(2), "bad")
    );
    let loops = at
        .vm
        .check(&Chunk::new("bad", "while true do end"), &Budget::CLASS)
        .expect_err("it is not");
    assert_eq!(loops.kind, Kind::Instructions);
    let object = at
        .vm
        .check(&Chunk::new("bad", "objclass.stat()"), &Budget::CLASS)
        .expect_err("it is not");
    assert!(object.message.contains("no object"), "{object}");
}

#[test]
fn a_native_class_cannot_swallow_a_wait() {
    let (_, mut at) = callers().into_iter().nth(1).expect("two");
    let mut object = Model {
        absent: vec!["getxattr"],
        ..Model::with("")
    };
    assert_eq!(
        at.end(&mut object, Target::Class("counter"), "careless", b""),
        CallEnd::Wait
    );
    assert_eq!(
        at.end(&mut object, Target::Class("user"), "run", b"careless"),
        CallEnd::Wait
    );
    object.absent.clear();
    assert_eq!(
        call(&mut at, &mut object, "user", "run", "careless").output,
        "5"
    );
}

/// When wrappers of natives lost an intermediate function, the place of a refused call was one of
/// the sandbox's own lines, and so was not shown.
#[test]
fn a_refused_call_of_another_class_is_told_at_the_scripts_line() {
    let mut at = Caller::new();
    let said = at.text(
        "\nlocal _, why = pcall(function()\n  objclass.call({}, 'method')\nend)\no:append(why)",
    );
    let refused =
        at.text("\nlocal _, why = pcall(function()\n  objclass.getxattr({})\nend)\no:append(why)");
    let exact =
        at.text("\nlocal _, why = pcall(function()\n  nacre.u64.from({})\nend)\no:append(why)");
    for (said, what) in [(&said, "class"), (&refused, "name"), (&exact, "u64")] {
        assert!(said.contains(&format!(":3: {what}: ")), "{said}");
    }
}
