//! How scripts are sent to `cls_lua`: with every call, which compiles them again.
//!
//! A caller's own script is sent unchanged. An installed class is wrapped in another script,
//! `prelude.lua`, which provides what a class finds on Nacre's own engine, and reports where it
//! failed.

use bytes::{BufMut as _, Bytes, BytesMut};
use std::fmt::Write as _;
use std::sync::LazyLock;

/// The text before an installed class; its comments are removed.
static PRELUDE: LazyLock<String> = LazyLock::new(|| {
    let lines = include_str!("prelude.lua")
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("--"));
    lines.map(|line| format!("{line}\n")).collect()
});
/// The function registered by the prelude.
pub const HANDLER: &str = "nacre";
/// Marks the output of a failed call: the class ran, and the reason follows.
pub const RAN: u8 = b'!';
/// Marks the output of a failed call: the class has no such method.
pub const MISSING: u8 = b'?';

/// Input of `lua.eval_bufferlist`: script, handler and input, in Ceph's encoding, version 1.
#[must_use]
pub fn input(script: &[u8], handler: &[u8], data: &[u8]) -> Bytes {
    let length = 12 + script.len() + handler.len() + data.len();
    let mut out = BytesMut::with_capacity(6 + length);
    out.put_slice(&[1, 1]);
    out.put_u32_le(u32::try_from(length).expect("bounded by an operation's size"));
    for part in [script, handler, data] {
        out.put_u32_le(part.len() as u32);
        out.put_slice(part);
    }
    out.freeze()
}

/// The script that calls a method of an installed class; without a method, one that only checks
/// whether the class loads, and outputs the error.
#[must_use]
pub fn installed(class: &[u8], method: Option<&[u8]>, source: &[u8]) -> Bytes {
    let mut head = String::from("local CLASS, METHOD, SOURCE = ");
    literal(&mut head, class);
    head.push_str(", ");
    match method {
        Some(method) => literal(&mut head, method),
        None => head.push_str("nil"),
    }
    // A long string ends with as many equals signs as it began with.
    let signs = (1..).map(|count| "=".repeat(count));
    let free = |signs: &String| !contains(source, format!("]{signs}]").as_bytes());
    let signs = signs.into_iter().find(free).expect("a source has an end");
    let _ = writeln!(head, ", [{signs}[");
    let tail = format!("\n]{signs}]\n");
    Bytes::from([head.as_bytes(), source, tail.as_bytes(), PRELUDE.as_bytes()].concat())
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Arbitrary bytes as a Lua string.
fn literal(out: &mut String, bytes: &[u8]) {
    out.push('"');
    for byte in bytes {
        let _ = write!(out, "\\{byte:03}");
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_that_ceph_expects() {
        let expected = [
            &[1, 1, 18, 0, 0, 0][..],
            &[2, 0, 0, 0],
            b"ab",
            &[1, 0, 0, 0],
            b"h",
            &[3, 0, 0, 0],
            b"xyz",
        ]
        .concat();
        assert_eq!(input(b"ab", b"h", b"xyz"), expected);
    }

    #[test]
    fn a_source_stays_inside_its_quotes() {
        let script = installed(b"c", Some(b"a\"\n"), b"x = [=[ ]=] ]==]");
        let text = std::str::from_utf8(&script).expect("text");
        let begin = "local CLASS, METHOD, SOURCE = \"\\099\", \"\\097\\034\\010\", [===[\nx = [=[ ]=] ]==]\n]===]\n";
        assert!(text.starts_with(begin), "{text}");
        assert!(
            text.ends_with("register(nacre)\n") && !text.contains("\n--"),
            "comments stay at home: {text}"
        );
        assert!(
            installed(b"c", None, b"")
                .starts_with(b"local CLASS, METHOD, SOURCE = \"\\099\", nil, [=[\n")
        );
    }

    /// Constants of Nacre's interface that Ceph's lacks (seen in 16.2): a class may use them.
    #[test]
    fn every_errno_of_ours_is_known_there() {
        for (name, number) in nacre_policy::errno::NAMES
            .into_iter()
            .filter(|(_, number)| *number > 34)
        {
            assert!(PRELUDE.contains(&format!("{name} = {number}")), "{name}");
        }
    }
}
