//! The cost of a call (MAL-28): `cargo bench -p nacre-policy`, `-- small` for one scenario.
//!
//! Budget: 5 µs for a call that does nothing, including its fresh environment. The same method in
//! Rust is measured next to the one in Lua. First figures (2 shared cores): empty call 4.2 µs;
//! small method 9.2 µs, in Rust 0.2; loop of 100,000 2.5 ms; 150 lines compiled 715 µs; a VM 1.1 ms
//! and 0.74 MiB.
#![allow(
    clippy::disallowed_methods,
    missing_docs,
    reason = "a bench measures time and reads its arguments"
)]

#[path = "../tests/model.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod model;

use bytes::Bytes;
use model::Model;
use nacre_policy::*;
use std::sync::Arc;

/// CPU seconds of this thread: other load on the machine is not counted.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split(' ')
        .next()
        .and_then(|ns| ns.parse::<f64>().ok())
        .expect("nanoseconds")
        / 1e9
}

/// Best of five rounds.
fn measure(name: &str, rounds: u32, mut f: impl FnMut()) {
    if std::env::args()
        .nth(1)
        .is_some_and(|only| !only.starts_with("--") && !name.contains(&only))
    {
        return;
    }
    f();
    let best = (0..5)
        .map(|_| {
            let start = cpu();
            (0..rounds).for_each(|_| f());
            (cpu() - start) / f64::from(rounds)
        })
        .fold(f64::MAX, f64::min);
    println!("{name:<44} {:>9.2} µs", best * 1e6);
}

const SMALL: &str = "
function small(input, output)
  local n = tonumber(objclass.getxattr('count'):str())
  objclass.setxattr('count', bufferlist.new(tostring(n + 1)))
  objclass.map_set_val('last', input)
  output:append(objclass.map_get_val('last'))
end
objclass.register(small)
function nothing(input, output) end
objclass.register(nothing)
";

/// The class that `nacre bench call` compares with Rust in a cluster.
const TALLY: &str = include_str!("tally.lua");

/// A typical validator: parses a value and compares it with the old one.
const VALIDATOR: &str = "
local function fields(text)
  local found = {}
  for name, value in text:gmatch('(%w+)=(%w+)') do found[name] = tonumber(value) end
  return found
end
function validate(key, old, new, who, revision)
  if new == nil then return false, 'it stays' end
  local now = fields(new)
  if now.size == nil or now.size < 1 then error('size is a number, at least 1') end
  if old and fields(old).size > now.size then return false, who .. ' may not make ' .. key .. ' smaller' end
end
";

/// Twice the size of the processor's cache.
const COLD_BYTES: u64 = 2 << 20;

struct Small;
impl NativeClass for Small {
    fn method(&self, _: &str) -> Option<MethodFlags> {
        Some(MethodFlags::default())
    }
    fn call(&self, _: &str, input: Bytes, context: &mut Context<'_>) -> Result<(i32, Bytes), Stop> {
        let text = context.object.getxattr(b"count")?;
        let n: u64 = std::str::from_utf8(&text)
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or(Stop::Errno(errno::EIO))?;
        context
            .object
            .setxattr(b"count", Bytes::from((n + 1).to_string()))?;
        context
            .object
            .map_set_vals(vec![(Bytes::from_static(b"last"), input)])?;
        Ok((0, context.object.map_get_val(b"last")?))
    }
}

fn main() {
    let mut classes = Classes::default();
    classes.insert("lua", 1, ClassRef::Lua(Chunk::new("small", SMALL)));
    classes.insert("native", 1, ClassRef::Native(Arc::new(Small)));
    classes.insert("tally", 1, ClassRef::Lua(Chunk::new("tally", TALLY)));
    let classes = Arc::new(classes);
    let request = Request {
        client: "client.1".into(),
        object: Bytes::from_static(b"obj"),
        ..Request::default()
    };
    let budget = Budget::CLASS;
    let mut vm = ClassVm::<Model>::new(16);
    let mut object = Some(Model::with("base"));
    object
        .as_mut()
        .expect("set above")
        .setxattr(b"count", Bytes::from_static(b"0"))
        .expect("the model takes it");
    let input = Bytes::from_static(b"value");
    let mut call = |class: &str, method: &str, input: &Bytes| {
        let target = Target::Class(class);
        let call = Call {
            classes: &classes,
            target,
            method,
            input: input.clone(),
            request: &request,
            budget: &budget,
        };
        let (back, end) = vm.call(object.take().expect("given back each time"), &call);
        object = Some(back);
        let CallEnd::Done(outcome) = end else {
            panic!("nothing is absent")
        };
        assert_eq!(outcome.error, None);
    };
    measure("call, empty method, Lua", 20_000, || {
        call("lua", "nothing", &input)
    });
    measure("call, small method, Lua", 20_000, || {
        call("lua", "small", &input)
    });
    measure("call, small method, Rust", 20_000, || {
        call("native", "small", &input)
    });
    let key = Bytes::from_static(b"k");
    measure("call, tally.add, Lua", 20_000, || {
        call("tally", "add", &key)
    });
    measure("call, tally.get, Lua", 20_000, || {
        call("tally", "get", &key)
    });
    // In a daemon every call runs with cold caches: its cost there is its cost here minus the first
    // line.
    let mut others: Vec<u64> = (0..COLD_BYTES / 8).collect();
    let mut cold = || {
        others
            .iter_mut()
            .step_by(8)
            .for_each(|word| *word = word.wrapping_add(1))
    };
    measure("cold: nothing", 2_000, &mut cold);
    for (name, class, method) in [
        ("cold: small method, Rust", "native", "small"),
        ("cold: empty method, Lua", "lua", "nothing"),
        ("cold: small method, Lua", "lua", "small"),
        ("cold: tally.add, Lua", "tally", "add"),
        ("cold: tally.get, Lua", "tally", "get"),
    ] {
        measure(name, 2_000, || {
            cold();
            call(class, method, &key);
        });
    }
    let large = Bytes::from(vec![7; 1 << 20]);
    measure("call, small method, Lua, 1 MiB through", 2_000, || {
        call("lua", "small", &large)
    });

    let policy = Chunk::new(
        "p",
        "local sum = 0 for k = 1, 100000 do sum = sum + k % 7 end return sum",
    );
    let mut plain = Vm::new(4);
    let budget = Budget::POLICY;
    let run = Run {
        chunk: &policy,
        entry: None,
        globals: &[],
        args: &[],
        seed: 0,
        budget: &budget,
    };
    measure("policy, loop of 100,000", 20, || {
        assert!(plain.run(&run).result.is_ok())
    });

    let judgement = Chunk::new("v", VALIDATOR);
    let args = [
        "n/key".into(),
        "hosts=3;size=10".into(),
        "hosts=4;size=12".into(),
        "alice".into(),
        7.into(),
    ];
    let budget = Budget::VALIDATOR;
    let run = Run {
        chunk: &judgement,
        entry: Some("validate"),
        globals: &[],
        args: &args,
        seed: 0,
        budget: &budget,
    };
    measure("judgement, a validator of metadata", 20_000, || {
        assert!(plain.run(&run).result.is_ok())
    });

    let lines: String = (0..150)
        .map(|k| format!("function m{k}(a, b) local x = a + b * {k} if x > 3 then return x .. 'text' end end\n"))
        .collect();
    let mut number = 0;
    let mut compiling = Vm::new(4);
    measure("compile and load 150 lines", 200, || {
        number += 1;
        compiling
            .check(&Chunk::new(&format!("c{number}"), &lines))
            .expect("it compiles");
    });
    measure("VM for classes, made and dropped", 100, || {
        drop(ClassVm::<Model>::new(16))
    });
    println!(
        "{:<44} {:>9} KiB",
        "VM for classes holds",
        ClassVm::<Model>::new(16).stats().memory / 1024
    );
    println!(
        "{:<44} {:>9} KiB",
        "VM after these calls holds",
        vm.stats().memory / 1024
    );
}
