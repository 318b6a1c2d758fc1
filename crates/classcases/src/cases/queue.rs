//! `queue`: bounded, first in, first out.

use super::Promise;
use super::log::entries;
use crate::{Desk, Host, property};
use nacre_policy::errno;
use proptest::prelude::*;
use std::collections::VecDeque;

const ENOSPC: i32 = 28;

pub const CASES: &[Promise] = &[
    ("it is a bounded queue", it_is_a_bounded_queue),
    (
        "many and long entries come and go in parts",
        many_and_long_entries_come_and_go_in_parts,
    ),
    (
        "a queue is made once and only by `init`",
        a_queue_is_made_once_and_only_by_init,
    ),
];

fn it_is_a_bounded_queue(host: &mut dyn Host) {
    let step = (
        0..7_u8,
        0..9_u64,
        proptest::collection::vec(any::<u8>(), 0..9),
    );
    let steps = proptest::collection::vec(step, 1..50);
    property(
        host,
        64,
        (1..6_usize, 1..30_usize, steps),
        |host, (entries_max, bytes_max, steps)| {
            let mut desk = Desk::new(host, "queue");
            desk.ok("init", &format!("{entries_max} {bytes_max}"));
            let (mut model, mut head) = (VecDeque::<Vec<u8>>::new(), 0_u64);
            for (what, n, data) in steps {
                let bytes: usize = model.iter().map(Vec::len).sum();
                match what {
                    0..3 => {
                        let full = model.len() == entries_max || bytes + data.len() > bytes_max;
                        let position = (head + model.len() as u64).to_string().into_bytes();
                        prop_assert_eq!(
                            desk.call("enqueue", &data),
                            if full { Err(ENOSPC) } else { Ok(position) }
                        );
                        if !full {
                            model.push_back(data);
                        }
                    }
                    3 => {
                        prop_assert_eq!(
                            desk.call("peek", ""),
                            model.front().cloned().ok_or(errno::ENODATA)
                        );
                        prop_assert_eq!(
                            desk.call("dequeue", ""),
                            model.front().cloned().ok_or(errno::ENODATA)
                        );
                        head += u64::from(model.pop_front().is_some());
                    }
                    4 => {
                        let to = head.saturating_sub(2) + n;
                        let tail = head + model.len() as u64;
                        let count = to.saturating_sub(head);
                        let expected = if to > tail {
                            Err(errno::ERANGE)
                        } else {
                            Ok(format!("{count} done"))
                        };
                        prop_assert_eq!(desk.say("remove_to", &to.to_string()), expected);
                        if to <= tail {
                            model.drain(..count as usize);
                            head += count;
                        }
                    }
                    _ => {
                        let (from, count) = (head.saturating_sub(2) + n, data.len() + 1);
                        let output = desk
                            .call("list", format!("{from} {count}"))
                            .expect("listed");
                        let (word, found) = entries(&output);
                        let skipped = from.saturating_sub(head) as usize;
                        let numbered = model
                            .iter()
                            .enumerate()
                            .map(|(at, data)| ((head + at as u64).to_string(), data.clone()));
                        let expected: Vec<_> = numbered.skip(skipped).take(count).collect();
                        prop_assert_eq!(
                            word,
                            if skipped + expected.len() < model.len() {
                                "more"
                            } else {
                                "end"
                            }
                        );
                        prop_assert_eq!(found, expected);
                    }
                }
                let bytes: usize = model.iter().map(Vec::len).sum();
                let info = format!(
                    "{head} {} {bytes} {entries_max} {bytes_max}",
                    head + model.len() as u64
                );
                prop_assert_eq!(desk.ok("info", ""), info);
                prop_assert_eq!(desk.object().map.len(), model.len());
            }
            Ok(())
        },
    );
}

fn many_and_long_entries_come_and_go_in_parts(host: &mut dyn Host) {
    let mut desk = Desk::new(host, "queue");
    desk.ok("init", "2000 100000000");
    for n in 0..1_201 {
        desk.ok("enqueue", &n.to_string());
    }
    let (word, found) = entries(&desk.call("list", "0 1000").expect("listed"));
    assert_eq!((word.as_str(), found.len()), ("more", 1000));
    for said in ["500 more", "500 more", "200 done", "0 done"] {
        assert_eq!(desk.ok("remove_to", "1200"), said);
    }
    assert_eq!(desk.ok("dequeue", ""), "1200");
    for _ in 0..5 {
        desk.ok("enqueue", &"x".repeat(200_000));
    }
    let (word, found) = entries(&desk.call("list", "0 1000").expect("listed"));
    assert_eq!((word.as_str(), found.len()), ("more", 2));
}

fn a_queue_is_made_once_and_only_by_init(host: &mut dyn Host) {
    let mut desk = Desk::new(host, "queue");
    for method in ["enqueue", "dequeue", "peek", "info", "urgent", "set_urgent"] {
        assert_eq!(desk.say(method, ""), Err(errno::ENOENT), "{method}");
    }
    for input in ["", "1", "0 1", "1 0", "x 1", "1 x", "9007199254740992 1"] {
        assert_eq!(desk.say("init", input), Err(errno::EINVAL), "{input}");
    }
    assert_eq!(
        desk.say("init", &format!("1 1\n{}", "u".repeat(4097))),
        Err(27)
    );
    desk.with("somebody's data");
    assert_eq!(desk.say("init", "1 1"), Err(errno::EEXIST));
    assert_eq!(
        desk.say("enqueue", "x"),
        Err(errno::ENOENT),
        "an object that is no queue"
    );
    desk.host.fresh();
    // Urgent data may be any bytes, including newlines and texts that look like a head.
    let any: Vec<u8> = (0..=255).chain(*b"\n1 2 3 4 5\n").collect();
    desk.call("init", [b"1 1\n", &any[..]].concat())
        .expect("made");
    assert_eq!(desk.call("urgent", ""), Ok(any));
    assert_eq!(desk.call("set_urgent", "u".repeat(4097)), Err(27));
    desk.ok("set_urgent", "");
    assert_eq!(
        (desk.ok("urgent", ""), desk.ok("info", "")),
        (String::new(), "0 0 0 1 1".into())
    );
}
