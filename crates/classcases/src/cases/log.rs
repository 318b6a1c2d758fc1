//! `log`: entries in the order of their times.

use super::Promise;
use crate::{Desk, Host, property};
use nacre_policy::errno;
use proptest::prelude::*;
use std::collections::BTreeMap;

pub const CASES: &[Promise] = &[
    ("it is an ordered map", it_is_an_ordered_map),
    (
        "entries without an ID do not meet",
        entries_without_an_id_do_not_meet,
    ),
    (
        "long entries come in several pages and many are trimmed in several calls",
        long_entries_come_in_several_pages_and_many_are_trimmed_in_several_calls,
    ),
    (
        "what makes no sense is refused",
        what_makes_no_sense_is_refused,
    ),
];

/// The output of a `list`: its first line, then names and bytes.
pub fn entries(output: &[u8]) -> (String, Vec<(String, Vec<u8>)>) {
    fn line(output: &[u8]) -> (String, &[u8]) {
        let end = output
            .iter()
            .position(|byte| *byte == b'\n')
            .expect("a whole line");
        (
            String::from_utf8(output[..end].to_vec()).expect("text"),
            &output[end + 1..],
        )
    }
    let (head, mut rest) = line(output);
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (text, after) = line(rest);
        let (name, length) = text.split_once(' ').expect("a name and a length");
        let (data, after) = after.split_at(length.parse().expect("a length"));
        found.push((name.to_owned(), data.to_vec()));
        rest = after
            .strip_prefix(b"\n")
            .expect("a newline after the bytes");
    }
    (head, found)
}

/// A whole range, in pages of `count`.
fn all(desk: &mut Desk<'_>, from: u64, to: u64, count: usize) -> Vec<(String, Vec<u8>)> {
    let (mut found, mut marker) = (Vec::new(), String::new());
    for _ in 0..10_000 {
        let output = desk
            .call("list", format!("{from} {to} {count}{marker}"))
            .expect("listed");
        let (head, page) = entries(&output);
        assert!(page.len() <= count);
        let (more, last) = head.split_once(' ').expect("two words");
        assert_eq!(last, page.last().map_or("-", |(name, _)| name));
        marker = format!(" {last}");
        found.extend(page);
        if more == "end" {
            return found;
        }
        assert_eq!(more, "more");
    }
    panic!("it never ends");
}

fn it_is_an_ordered_map(host: &mut dyn Host) {
    let data = proptest::collection::vec(any::<u8>(), 0..9);
    let steps =
        proptest::collection::vec((any::<bool>(), 0..20_u64, 0..20_u64, 0..3_u8, data), 1..40);
    property(host, 64, (steps, 1..6_usize), |host, (steps, count)| {
        let (mut desk, mut model, mut largest) =
            (Desk::new(host, "log"), BTreeMap::new(), String::new());
        for (add, a, b, id, data) in steps {
            if add || b % 2 == 0 {
                let marker = format!("{a:016}_i{id}");
                desk.call("add", [format!("{a} i{id}\n").as_bytes(), &data].concat())
                    .expect("added");
                largest = largest.max(marker.clone());
                model.insert(marker, data);
            } else {
                let before = model.len();
                model.retain(|marker: &String, _| {
                    !(format!("{a:016}")..format!("{b:016}")).contains(marker)
                });
                let expected = if model.len() < before {
                    Ok(String::new())
                } else {
                    Err(errno::ENODATA)
                };
                prop_assert_eq!(desk.say("trim", &format!("{a} {b}")), expected);
            }
            let inside = |from: u64, to: u64| -> Vec<(String, Vec<u8>)> {
                let (from, to) = (format!("{from:016}"), format!("{to:016}"));
                let all = model
                    .iter()
                    .filter(|(marker, _)| **marker >= from && **marker < to);
                all.map(|(marker, data)| (marker.clone(), data.clone()))
                    .collect()
            };
            for (from, to) in [(0, 99), (a, b), (b, 99)] {
                prop_assert_eq!(all(&mut desk, from, to, count), inside(from, to));
            }
            prop_assert_eq!(desk.ok("info", ""), largest.clone());
        }
        Ok(())
    });
}

/// Each name is the object's version at the time of adding: in a sandbox there is only one version.
fn entries_without_an_id_do_not_meet(host: &mut dyn Host) {
    if !host.is_cluster() {
        return;
    }
    let mut desk = Desk::new(host, "log");
    for text in ["a", "b", "c"] {
        desk.ok("add", &format!("5\n{text}"));
    }
    let found = all(&mut desk, 5, 6, 10);
    let texts: Vec<&[u8]> = found.iter().map(|(_, data)| &data[..]).collect();
    assert_eq!(texts, [b"a", b"b", b"c"], "in the order in which they came");
}

fn long_entries_come_in_several_pages_and_many_are_trimmed_in_several_calls(host: &mut dyn Host) {
    let mut desk = Desk::new(host, "log");
    for n in 0..9 {
        desk.ok("add", &format!("{n} x\n{}", "y".repeat(200_000)));
    }
    let (head, page) = entries(&desk.call("list", "0 99 9").expect("listed"));
    assert_eq!((head.as_str(), page.len()), ("more 0000000000000001_x", 2));
    assert_eq!(all(&mut desk, 0, 99, 9).len(), 9);
    for n in 0..600 {
        desk.ok("add", &format!("{} x\nz", 100 + n));
    }
    desk.ok("trim", "100 9007199254740991");
    assert_eq!(desk.object().map.len(), 109);
    desk.ok("trim", "100 9007199254740991");
    assert_eq!(
        desk.say("trim", "100 9007199254740991"),
        Err(errno::ENODATA)
    );
    assert_eq!(desk.object().map.len(), 9);
}

fn what_makes_no_sense_is_refused(host: &mut dyn Host) {
    let mut desk = Desk::new(host, "log");
    assert_eq!(
        (desk.ok("info", ""), desk.ok("list", "0 9 9")),
        (String::new(), "end -\n".into())
    );
    assert_eq!(desk.say("trim", "0 9"), Err(errno::ENODATA));
    for input in [
        "",
        "\n",
        "x\ny",
        "5",
        "5 a b\nx",
        "-1\nx",
        "9007199254740992\nx",
    ] {
        assert_eq!(desk.say("add", input), Err(errno::EINVAL), "{input}");
    }
    for input in [
        "",
        "0 9",
        "0 9 0",
        "0 9 1001",
        "a 9 1",
        "0 9007199254740992 1",
    ] {
        assert_eq!(desk.say("list", input), Err(errno::EINVAL), "{input}");
    }
    for input in ["", "0", "0 x", "0 1 2"] {
        assert_eq!(desk.say("trim", input), Err(errno::EINVAL), "{input}");
    }
}
