//! A number crosses the boundary exactly or not at all (invariant 4).

use crate::model::Caller;
use nacre_policy::*;

fn echo(value: Value) -> Result<Value, ScriptError> {
    let chunk = Chunk::new("echo", "return ...");
    let budget = Budget::POLICY;
    let ran = Vm::new(1).run(&Run {
        chunk: &chunk,
        entry: None,
        globals: &[],
        args: &[value],
        seed: 0,
        budget: &budget,
    });
    ran.result
        .map(|mut values| values.pop().expect("one value"))
}

#[test]
fn integers_are_exact_to_the_last_one_and_refused_after_it() {
    for exact in [0, 1, -1, INTEGER_MAX - 1, INTEGER_MAX, -INTEGER_MAX] {
        assert_eq!(echo(Value::Integer(exact)), Ok(Value::Integer(exact)));
    }
    for inexact in [
        INTEGER_MAX + 1,
        INTEGER_MAX + 2,
        -INTEGER_MAX - 1,
        i64::MAX,
        i64::MIN,
    ] {
        let error = echo(Value::Integer(inexact)).expect_err("refused");
        assert_eq!(error.kind, Kind::Number, "{error}");
        assert!(
            error.message.contains("nacre.u64"),
            "it says what to do: {error}"
        );
    }
    // Output: values beyond the range that a script computed.
    for text in [
        "return 2^53",
        "return 9007199254740993",
        "return -2^53 - 2",
        "return {a = {2^60}}",
    ] {
        let chunk = Chunk::new("out", text);
        let budget = Budget::POLICY;
        let ran = Vm::new(1).run(&Run {
            chunk: &chunk,
            entry: None,
            globals: &[],
            args: &[],
            seed: 0,
            budget: &budget,
        });
        assert_eq!(
            ran.result.expect_err("refused").kind,
            Kind::Number,
            "{text}"
        );
    }
}

#[test]
fn other_numbers_come_back_as_they_went() {
    for number in [0.5, -0.1, 1e-300, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(echo(Value::Number(number)), Ok(Value::Number(number)));
    }
    assert!(matches!(echo(Value::Number(f64::NAN)), Ok(Value::Number(number)) if number.is_nan()));
}

#[test]
fn sixty_four_bits_are_carried_as_eight_bytes() {
    let mut at = Caller::new();
    let max = u64::MAX.to_string();
    let text =
        |at: &mut Caller, body: &str| at.text(&format!("local u = nacre.u64 o:append({body})"));
    assert_eq!(text(&mut at, &format!("u.tostring(u.from('{max}'))")), max);
    assert_eq!(
        text(&mut at, "u.tostring(u.add(u.from('9007199254740992'), 1))"),
        "9007199254740993"
    );
    assert_eq!(
        text(
            &mut at,
            "u.tostring(u.sub(u.from('9007199254740994'), u.from(1)))"
        ),
        "9007199254740993"
    );
    assert_eq!(
        text(
            &mut at,
            "tostring(u.from(255) < u.from(256))..tostring(u.cmp(2, 1))..tostring(u.cmp(u.from(1), 1))"
        ),
        "true10"
    );
    assert_eq!(
        text(&mut at, "tostring(u.tonumber(u.from('9007199254740991')))"),
        "9007199254740991"
    );
    assert_eq!(
        text(
            &mut at,
            "u.tostring(u.unpack('xx'..u.pack(u.from('18446744073709551614')), 3))"
        ),
        "18446744073709551614"
    );
    assert_eq!(
        at.body("o:append(nacre.u64.pack(258))").output,
        &[2, 1, 0, 0, 0, 0, 0, 0][..]
    );
    for refused in [
        "u.tonumber(u.from('9007199254740992'))",
        "u.add(u.from('18446744073709551615'), 1)",
        "u.sub(1, 2)",
        "u.from('18446744073709551616')",
        "u.from('-1')",
        "u.from(-1)",
        "u.from(1.5)",
        "u.tostring('seven b')",
        "u.unpack('short')",
        "u.unpack('12345678', 2)",
    ] {
        let error = at.error(&format!("local u = nacre.u64 {refused}"));
        assert_eq!(
            (error.kind, error.line),
            (Kind::Number, Some(1)),
            "{refused}: {error}"
        );
    }
}

#[test]
fn packed_integers_are_exact_or_refused() {
    let mut at = Caller::new();
    assert_eq!(
        at.text(
            "o:append(tostring((string.unpack('<i8', string.pack('<i8', -9007199254740991)))))"
        ),
        "-9007199254740991"
    );
    // A double of any size stays a double and a string a string; only integers are limited to 2^53.
    assert_eq!(at.text("local a,b,c,d = string.unpack('<i4dz', string.pack('<i4dz', 7, 2^60, 'z')) o:append(a..' '..tostring(b == 2^60)..' '..c..d)"), "7 true z15");
    assert_eq!(
        at.text("o:append(tostring((string.unpack('<!8 xXi8 j', string.pack('<!8 xXi8 j', 5)))))"),
        "5"
    );
    for refused in [
        "string.pack('>I8', 2^53)",
        "string.pack('j', -2^60)",
        "string.unpack('>I8', '\\255\\255\\255\\255\\255\\255\\255\\255')",
        "string.pack('i2', 0/0)",
    ] {
        assert_eq!(at.error(refused).kind, Kind::Number, "{refused}");
    }
}
