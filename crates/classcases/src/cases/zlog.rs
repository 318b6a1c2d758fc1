//! `zlog` in Lua and in Rust, with the same calls (MAL-83, MAL-84, MAL-87).

use super::Promise;
use crate::{Desk, Host, property};
use bytes::Bytes;
use nacre_policy::errno;
use proptest::prelude::*;
use std::collections::BTreeMap;

pub const CASES: &[Promise] = &[
    (
        "a position is written once and says what it is",
        a_position_is_written_once_and_says_what_it_is,
    ),
    (
        "a seal shuts out the stale and only them",
        a_seal_shuts_out_the_stale_and_only_them,
    ),
    ("numbers are exact or refused", numbers_are_exact_or_refused),
    ("trimming frees space", trimming_frees_space),
    ("it is its model", it_is_its_model),
];

/// The implementations that must not differ.
fn versions(host: &dyn Host) -> Vec<&'static str> {
    ["zlog", "zlog_native"]
        .into_iter()
        .filter(|class| host.has(class))
        .collect()
}

fn each(host: &mut dyn Host, test: impl Fn(&mut Desk<'_>)) {
    for class in versions(host) {
        test(&mut Desk::new(host, class));
    }
}

const ESTALE: i32 = errno::ESTALE;
const EEXIST: i32 = errno::EEXIST;

fn a_position_is_written_once_and_says_what_it_is(host: &mut dyn Host) {
    each(host, |desk| {
        assert_eq!(desk.say("read", "0 0"), Err(errno::ENOENT));
        assert_eq!(desk.say("max_position", "0"), Ok("-1".into()));
        // Every byte, and a text that looks like a head.
        let all: Vec<u8> = (0..=255).chain(*b"\n1 2\n").collect();
        desk.call("write", [b"0 7\n", &all[..]].concat())
            .expect("free");
        assert_eq!(desk.call("read", "0 7"), Ok(all));
        assert_eq!(desk.call("write", "0 6\n"), Ok(vec![]));
        assert_eq!(
            desk.call("read", "0 6"),
            Ok(vec![]),
            "an entry may be empty"
        );
        desk.ok("fill", "0 3");
        desk.ok("fill", "0 3");
        desk.ok("trim", "0 7");
        desk.ok("trim", "0 9");
        for (pos, write, read, fill) in [
            (
                3,
                Err(errno::ENODATA),
                Err(errno::ENODATA),
                Ok(String::new()),
            ),
            (6, Err(EEXIST), Ok(String::new()), Err(EEXIST)),
            (7, Err(errno::EIDRM), Err(errno::EIDRM), Err(errno::EIDRM)),
            (9, Err(errno::EIDRM), Err(errno::EIDRM), Err(errno::EIDRM)),
        ] {
            assert_eq!(desk.say("write", &format!("0 {pos}\nx")), write, "{pos}");
            assert_eq!(desk.say("read", &format!("0 {pos}")), read, "{pos}");
            assert_eq!(desk.say("fill", &format!("0 {pos}")), fill, "{pos}");
        }
        assert_eq!(desk.ok("max_position", "0"), "9");
    });
}

fn a_seal_shuts_out_the_stale_and_only_them(host: &mut dyn Host) {
    each(host, |desk| {
        desk.ok("write", "0 0\na");
        assert_eq!(desk.ok("seal", "5"), "0");
        for (method, input) in [
            ("write", "4 1\nb"),
            ("read", "4 0"),
            ("fill", "4 1"),
            ("trim", "4 0"),
            ("trim_to", "4 1"),
            ("max_position", "4"),
            ("seal", "4"),
            ("seal", "5"),
        ] {
            assert_eq!(desk.say(method, input), Err(ESTALE), "{method}");
        }
        assert_eq!(desk.ok("read", "5 0"), "a");
        // A view newer than the seal is not stale.
        desk.ok("write", "6 1\nb");
        assert_eq!(desk.ok("max_position", "5"), "1");
        // An object that was never written can be sealed.
        desk.host.fresh();
        assert_eq!(desk.ok("seal", "1"), "-1");
        assert_eq!(desk.say("write", "0 0\nx"), Err(ESTALE));
    });
}

fn numbers_are_exact_or_refused(host: &mut dyn Host) {
    each(host, |desk| {
        desk.ok("write", "9007199254740991 9007199254740991\nlast");
        assert_eq!(desk.ok("read", "0 9007199254740991"), "last");
        assert_eq!(desk.say("read", "0 9007199254740990"), Err(errno::ENOENT));
        assert_eq!(desk.ok("seal", "9007199254740991"), "9007199254740991");
        for input in [
            "",
            "1",
            "x 1",
            "1 x",
            "-1 1",
            "1 -1",
            "1 1.5",
            "1 0x10",
            "1 9007199254740992",
            "9007199254740992 1",
            "1  1",
            "1 99999999999999999999999",
        ] {
            for method in ["read", "fill", "trim", "trim_to"] {
                assert_eq!(
                    desk.say(method, input),
                    Err(errno::EINVAL),
                    "{method} {input}"
                );
            }
            assert_eq!(
                desk.say("write", &format!("{input}\nx")),
                Err(errno::EINVAL),
                "{input}"
            );
        }
        for input in ["", "x", "1 2", "-1", "9007199254740992"] {
            assert_eq!(desk.say("seal", input), Err(errno::EINVAL), "{input}");
            assert_eq!(
                desk.say("max_position", input),
                Err(errno::EINVAL),
                "{input}"
            );
        }
        // A write without its newline has no entry, which differs from an empty entry.
        assert_eq!(desk.say("write", "9007199254740991 5"), Err(errno::EINVAL));
    });
}

fn trimming_frees_space(host: &mut dyn Host) {
    each(host, |desk| {
        for pos in 0..1_200 {
            desk.ok("write", &format!("1 {pos}\n{}", "x".repeat(100)));
        }
        let bytes = |desk: &mut Desk<'_>| desk.object().map.values().map(Bytes::len).sum::<usize>();
        desk.ok("trim", "1 1100");
        assert_eq!(bytes(desk), 1_199 * 101 + 1);
        // All are trimmed at once, and freed in steps.
        assert_eq!(desk.ok("trim_to", "1 1101"), "500 more");
        assert_eq!(desk.say("read", "1 1099"), Err(errno::EIDRM));
        assert_eq!(desk.ok("read", "1 1101"), "x".repeat(100));
        assert_eq!(desk.ok("trim_to", "1 1101"), "500 more");
        assert_eq!(desk.ok("trim_to", "1 1101"), "101 done");
        assert_eq!((desk.object().map.len(), bytes(desk)), (99, 99 * 101));
        // Beyond the end: nothing below can be written any more, and a caller that seals learns it.
        assert_eq!(desk.ok("trim_to", "1 5000"), "99 done");
        assert_eq!(desk.say("write", "1 4999\nx"), Err(errno::EIDRM));
        assert_eq!(desk.ok("seal", "2"), "4999");
        assert_eq!(desk.object().map.len(), 0);
        // Lower than before: nothing reappears.
        assert_eq!(desk.ok("trim_to", "2 10"), "0 done");
        assert_eq!(desk.say("read", "2 4999"), Err(errno::EIDRM));
    });
}

#[derive(Clone, Debug, PartialEq)]
enum Entry {
    Data(Vec<u8>),
    Filled,
    Trimmed,
}

/// A model of the class according to its documentation, as a map.
#[derive(Default)]
struct Naive {
    epoch: u64,
    entries: BTreeMap<u64, Entry>,
    low: u64,
}

type Said = Result<Vec<u8>, i32>;

impl Naive {
    fn at(&self, pos: u64) -> Option<Entry> {
        if pos < self.low {
            Some(Entry::Trimmed)
        } else {
            self.entries.get(&pos).cloned()
        }
    }
    fn max(&self) -> Vec<u8> {
        let last = self
            .entries
            .keys()
            .next_back()
            .map_or(-1, |pos| *pos as i64);
        last.max(self.low as i64 - 1).to_string().into_bytes()
    }
    fn refuse(entry: &Entry) -> Said {
        Err(match entry {
            Entry::Data(_) => EEXIST,
            Entry::Filled => errno::ENODATA,
            Entry::Trimmed => errno::EIDRM,
        })
    }
    fn call(&mut self, method: &str, epoch: u64, pos: u64, data: &[u8]) -> Said {
        if epoch < self.epoch || method == "seal" && epoch == self.epoch {
            return Err(ESTALE);
        }
        match (method, self.at(pos)) {
            ("seal", _) => {
                self.epoch = epoch;
                Ok(self.max())
            }
            ("max_position", _) => Ok(self.max()),
            ("write", None) => self.put(pos, Entry::Data(data.to_vec())),
            ("read", None) => Err(errno::ENOENT),
            ("read", Some(Entry::Data(data))) => Ok(data),
            ("fill", None) => self.put(pos, Entry::Filled),
            ("fill", Some(Entry::Filled)) => Ok(vec![]),
            ("trim", _) if pos >= self.low => self.put(pos, Entry::Trimmed),
            ("trim", _) => Ok(vec![]),
            ("trim_to", _) => {
                self.low = self.low.max(pos);
                let before = self.entries.len();
                self.entries.retain(|at, _| *at >= self.low);
                Ok(format!("{} done", before - self.entries.len()).into_bytes())
            }
            (_, Some(entry)) => Self::refuse(&entry),
            _ => panic!("{method}"),
        }
    }
    fn put(&mut self, pos: u64, entry: Entry) -> Said {
        self.entries.insert(pos, entry);
        Ok(vec![])
    }
}

fn step() -> impl Strategy<Value = (&'static str, u64, u64, Vec<u8>)> {
    let method = proptest::sample::select(vec![
        "write",
        "write",
        "write",
        "read",
        "read",
        "fill",
        "trim",
        "trim_to",
        "seal",
        "max_position",
    ]);
    (
        method,
        0..6_u64,
        0..12_u64,
        proptest::collection::vec(any::<u8>(), 0..6),
    )
}

fn it_is_its_model(host: &mut dyn Host) {
    property(
        host,
        64,
        proptest::collection::vec(step(), 1..60),
        |host, steps| {
            let mut stored = Vec::new();
            for class in versions(host) {
                let mut desk = Desk::new(host, class);
                let mut model = Naive::default();
                for (method, epoch, pos, data) in &steps {
                    // A new epoch is rare: otherwise most calls would be refused as stale.
                    let epoch = if *method == "seal" {
                        epoch / 2
                    } else {
                        epoch / 2 + 1
                    };
                    let input = match *method {
                        "write" => [format!("{epoch} {pos}\n").as_bytes(), data].concat(),
                        "seal" | "max_position" => epoch.to_string().into_bytes(),
                        _ => format!("{epoch} {pos}").into_bytes(),
                    };
                    prop_assert_eq!(
                        desk.call(method, &input),
                        model.call(method, epoch, *pos, data),
                        "{} {:?}",
                        method,
                        input
                    );
                }
                stored.push(desk.host.state());
            }
            // Each implementation can continue from the state written by the other.
            prop_assert!(stored.iter().all(|state| *state == stored[0]));
            Ok(())
        },
    );
}
