//! Methods and scripts that run at the object.

use crate::{Bench, Case};
use bytes::Bytes;
use nacre_client::{Capabilities, Done, Failure};
use nacre_types::ObjectId;
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};

const fn exec(can: &Capabilities) -> bool {
    can.exec
}

pub const CASES: &[Case] = &[
    Case {
        name: "a script reads the object and answers",
        needs: exec,
        with: reading,
        without: None,
    },
    Case {
        name: "a script changes the object, or nothing if it fails",
        needs: exec,
        with: writing,
        without: None,
    },
    Case {
        name: "a script's error numbers are kept",
        needs: exec,
        with: numbers,
        without: None,
    },
    Case {
        name: "a class that is not there",
        needs: exec,
        with: no_class,
        without: None,
    },
    Case {
        name: "a script sees what it wrote",
        needs: |can| can.exec && can.exec_reads_own_writes,
        with: own_writes,
        without: Some(no_own_writes),
    },
    Case {
        name: "a guard before a script",
        needs: exec,
        with: guarded,
        without: None,
    },
];

/// Plain Lua that both interpreters accept.
const SCRIPT: &str = r#"
function size(input, output)
  local bytes = objclass.stat()
  output:append("size " .. string.format("%d", bytes) .. " input " .. input:str())
end
objclass.register(size)

function add(input, output)
  objclass.map_set_val("last", input)
  local bl = bufferlist.new()
  bl:append(input:str())
  objclass.write(0, #bl, bl)
end
objclass.register(add)

function half(input, output)
  objclass.map_set_val("last", input)
  error("not today")
end
objclass.register(half)

function code(input, output)
  return -objclass.EEXIST
end
objclass.register(code)

function missing(input, output)
  return objclass.map_get_val("no such key"):str()
end
objclass.register(missing)

function back(input, output)
  objclass.map_set_val("seen", input)
  output:append(objclass.map_get_val("seen"):str())
end
objclass.register(back)
"#;

fn eval(
    bench: &mut Bench<'_>,
    object: &ObjectId,
    handler: &'static str,
    input: &str,
) -> Result<Done, Failure> {
    let op = SubOp::Eval {
        script: SCRIPT.len() as u64,
        handler: handler.into(),
        input: input.len() as u64,
    };
    bench.run(object, vec![op], format!("{SCRIPT}{input}").as_bytes())
}

fn output(done: &Done) -> &Bytes {
    match &done.results[..] {
        [SubReply::Called { output, .. }] => output,
        other => panic!("{other:?} is no answer to a call"),
    }
}

fn reading(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.put(&object, b"hello");
    let done = eval(bench, &object, "size", "in").expect("it runs");
    assert_eq!(output(&done), "size 5 input in");
    assert_eq!(bench.get(&object).as_deref(), Some(&b"hello"[..]));
}

fn writing(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    eval(bench, &object, "add", "one").expect("it runs");
    assert_eq!(bench.get(&object).as_deref(), Some(&b"one"[..]));
    assert_eq!(bench.omap(&object, 10), [("last".into(), "one".into())]);
    let (_, version) = bench.stat(&object).expect("there");
    match eval(bench, &object, "half", "two") {
        Err(Failure::Refused(OpFailure::Method {
            index: 0, errno, ..
        })) => assert_ne!(errno, 0),
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.omap(&object, 10), [("last".into(), "one".into())]);
    assert_eq!(bench.stat(&object).expect("there").1, version);
    let (big, other) = ("x".repeat(100_000), bench.object("big"));
    eval(bench, &other, "add", &big).expect("it runs");
    assert_eq!(bench.get(&other), Some(big.into_bytes()));
}

fn numbers(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.put(&object, b"x");
    for (handler, expected) in [("code", 17), ("missing", 2)] {
        match eval(bench, &object, handler, "") {
            Err(Failure::Refused(OpFailure::Method {
                index: 0, errno, ..
            })) => {
                assert_eq!(errno, expected, "{handler}")
            }
            other => panic!("{handler}: {other:?}"),
        }
    }
    match eval(bench, &object, "nobody", "") {
        Err(Failure::Refused(OpFailure::Method { .. } | OpFailure::NoSuchMethod { .. })) => {}
        other => panic!("{other:?}"),
    }
}

fn no_class(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.put(&object, b"x");
    let call = SubOp::Call {
        class: "no_such_class".into(),
        method: "m".into(),
        length: 0,
    };
    match bench.refused(&object, vec![call], b"") {
        OpFailure::NoSuchMethod { why } => assert!(!why.is_empty()),
        other => panic!("{other:?}"),
    }
}

fn own_writes(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.put(&object, b"x");
    assert_eq!(
        output(&eval(bench, &object, "back", "now").expect("it runs")),
        "now"
    );
    let script = SubOp::Eval {
        script: SCRIPT.len() as u64,
        handler: "size".into(),
        input: 0,
    };
    let done = bench.ok(
        &object,
        vec![SubOp::Append { length: 4 }, script],
        format!("more{SCRIPT}").as_bytes(),
    );
    assert!(
        matches!(&done.results[1], SubReply::Called { output, .. } if output == "size 5 input "),
        "{done:?}"
    );
}

fn no_own_writes(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.put(&object, b"x");
    let script = SubOp::Eval {
        script: SCRIPT.len() as u64,
        handler: "size".into(),
        input: 0,
    };
    let why = bench
        .refused(
            &object,
            vec![SubOp::Append { length: 4 }, script],
            format!("more{SCRIPT}").as_bytes(),
        )
        .to_string();
    assert!(why.contains("exec_reads_own_writes"), "{why}");
    assert_eq!(bench.get(&object).as_deref(), Some(&b"x"[..]));
}

fn guarded(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.ok(
        &object,
        vec![SubOp::SetAttr {
            name: "a".into(),
            value: "1".into(),
        }],
        b"",
    );
    let script = |value: &'static str| {
        let guard = SubOp::CompareAttr {
            name: "a".into(),
            value: value.into(),
        };
        vec![
            guard,
            SubOp::Eval {
                script: SCRIPT.len() as u64,
                handler: "add".into(),
                input: 3,
            },
        ]
    };
    let data = format!("{SCRIPT}yes");
    assert_eq!(
        bench.refused(&object, script("2"), data.as_bytes()),
        OpFailure::Guard { index: 0 }
    );
    assert_eq!(bench.get(&object).as_deref(), Some(&b""[..]));
    bench.ok(&object, script("1"), data.as_bytes());
    assert_eq!(bench.get(&object).as_deref(), Some(&b"yes"[..]));
}
