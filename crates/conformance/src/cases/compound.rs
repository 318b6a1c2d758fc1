//! Several parts in one operation: guards, atomicity, visibility between parts, versions.

use super::always;
use crate::{Bench, Case};
use bytes::Bytes;
use nacre_types::Version;
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};

pub const CASES: &[Case] = &[
    always(
        "a guard that does not hold is named, and nothing happens",
        guards,
    ),
    always("guards that hold let the rest happen", guards_hold),
    always(
        "data is compared byte by byte, and by its length",
        compared_data,
    ),
    always(
        "an absent attribute equals the empty value",
        absent_attributes,
    ),
    always(
        "guards after writes judge what the writes left",
        late_guards,
    ),
    always("a part that fails takes the others with it", all_or_nothing),
    always("parts see what parts before them did", own_writes),
    always("parts see data that parts before them changed", own_data),
    always(
        "every update has a version, and no other operation",
        versions,
    ),
    always(
        "an object that is not there has no version to assert",
        version_of_none,
    ),
    always("reads of one operation are of one version", one_version),
];

fn compare(name: &'static str, value: &'static str) -> SubOp {
    SubOp::CompareAttr {
        name: name.into(),
        value: value.into(),
    }
}
fn set(name: &'static str, value: &'static str) -> SubOp {
    SubOp::SetAttr {
        name: name.into(),
        value: value.into(),
    }
}
const fn exists(exists: bool) -> SubOp {
    SubOp::AssertExists { exists }
}
const fn guard(index: u32) -> OpFailure {
    OpFailure::Guard { index }
}

fn guards(bench: &mut Bench<'_>) {
    let (object, none) = (bench.object("o"), bench.object("none"));
    bench.put(&object, b"data");
    bench.ok(&object, vec![set("a", "1")], b"");
    let version = bench.stat(&object).expect("there").1;
    let older = Version {
        number: version.number - 1,
        ..version
    };
    let newer = Version {
        number: version.number + 1,
        ..version
    };
    let write = || SubOp::Append { length: 1 };
    let cases: Vec<(Vec<SubOp>, &[u8], u32)> = vec![
        (vec![exists(false), write()], b"x", 0),
        (vec![exists(true), exists(false), write()], b"x", 1),
        (
            vec![SubOp::AssertVersion { version: older }, write()],
            b"x",
            0,
        ),
        (
            vec![SubOp::AssertVersion { version: newer }, write()],
            b"x",
            0,
        ),
        (vec![compare("a", "2"), write()], b"x", 0),
        (
            vec![
                compare("a", "1"),
                compare("a", "2"),
                compare("b", "3"),
                write(),
            ],
            b"x",
            1,
        ),
        (vec![compare("b", "3"), write()], b"x", 0),
        (
            vec![
                SubOp::AssertVersion { version },
                compare("a", "1"),
                SubOp::CompareData {
                    offset: 0,
                    length: 4,
                },
                write(),
            ],
            b"dattx",
            2,
        ),
        // The same without a write.
        (vec![exists(true), compare("a", "2")], b"", 1),
        (
            vec![SubOp::AssertVersion { version: newer }, SubOp::Stat {}],
            b"",
            0,
        ),
        (
            vec![
                SubOp::CompareData {
                    offset: 1,
                    length: 3,
                },
                SubOp::Read {
                    offset: 0,
                    length: 4,
                },
            ],
            b"atx",
            0,
        ),
    ];
    for (ops, data, index) in cases {
        assert_eq!(
            bench.refused(&object, ops.clone(), data),
            guard(index),
            "{ops:?}"
        );
    }
    for ops in [
        vec![exists(true), write()],
        vec![compare("a", "1"), write()],
    ] {
        assert_eq!(bench.refused(&none, ops.clone(), b"x"), guard(0), "{ops:?}");
    }
    assert_eq!(bench.refused(&none, vec![exists(true)], b""), guard(0));
    assert_eq!(bench.get(&object).as_deref(), Some(&b"data"[..]));
    assert_eq!(
        bench.stat(&object).expect("there").1,
        version,
        "what is refused gives no version"
    );
    assert_eq!(bench.stat(&none), None);
}

fn guards_hold(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.ok(
        &object,
        vec![exists(false), SubOp::WriteFull { length: 3 }, set("a", "1")],
        b"abc",
    );
    let version = bench.stat(&object).expect("made").1;
    let ops = vec![
        exists(true),
        SubOp::AssertVersion { version },
        compare("a", "1"),
        SubOp::CompareData {
            offset: 1,
            length: 2,
        },
        SubOp::Append { length: 1 },
    ];
    bench.ok(&object, ops, b"bcd");
    assert_eq!(bench.get(&object).as_deref(), Some(&b"abcd"[..]));
    let now = bench.stat(&object).expect("there").1;
    bench.ok(
        &object,
        vec![SubOp::AssertVersion { version: now }, SubOp::Delete {}],
        b"",
    );
    bench.ok(&object, vec![exists(false)], b"");
}

fn compared_data(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.put(&object, b"ab\0\0");
    let compare = |offset, length| {
        vec![
            SubOp::CompareData { offset, length },
            SubOp::Create { exclusive: false },
        ]
    };
    bench.ok(&object, compare(0, 4), b"ab\0\0");
    bench.ok(&object, compare(2, 1), b"\0");
    bench.ok(&object, compare(4, 0), b"");
    // Zeroes beyond the end have no effect.
    assert_eq!(
        bench.refused(&object, compare(0, 6), b"ab\0\0\0\0"),
        guard(0)
    );
    assert_eq!(bench.refused(&object, compare(4, 1), b"\0"), guard(0));
    assert_eq!(bench.refused(&object, compare(0, 4), b"ab\0\x01"), guard(0));
    let none = bench.object("none");
    assert_eq!(bench.refused(&none, compare(0, 1), b"\0"), guard(0));
    assert_eq!(bench.stat(&none), None);
}

fn absent_attributes(bench: &mut Bench<'_>) {
    let (object, none) = (bench.object("o"), bench.object("none"));
    bench.put(&object, b"x");
    bench.ok(&object, vec![compare("a", ""), set("a", "1")], b"");
    assert_eq!(
        bench.refused(&object, vec![compare("a", ""), set("a", "2")], b""),
        guard(0)
    );
    bench.ok(&object, vec![set("e", "")], b"");
    bench.ok(&object, vec![compare("e", ""), set("a", "3")], b"");
    bench.ok(&none, vec![compare("a", ""), set("a", "first")], b"");
    assert_eq!(bench.attrs(&none)[&b"a"[..]], "first");
}

fn late_guards(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.ok(
        &object,
        vec![
            SubOp::Create { exclusive: true },
            exists(true),
            set("a", "1"),
            compare("a", "1"),
        ],
        b"",
    );
    let ops = vec![
        SubOp::Append { length: 1 },
        set("a", "2"),
        compare("a", "1"),
    ];
    assert_eq!(bench.refused(&object, ops, b"z"), guard(2));
    assert_eq!(bench.get(&object).as_deref(), Some(&b""[..]));
    assert_eq!(bench.attrs(&object)[&b"a"[..]], "1");
    bench.ok(
        &object,
        vec![
            SubOp::Delete {},
            exists(false),
            SubOp::Create { exclusive: true },
            SubOp::Append { length: 3 },
        ],
        b"new",
    );
    assert_eq!(bench.get(&object).as_deref(), Some(&b"new"[..]));
    assert!(bench.attrs(&object).is_empty());
}

fn all_or_nothing(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.put(&object, b"old");
    bench.ok(&object, vec![set("a", "1")], b"");
    let version = bench.stat(&object).expect("there").1;
    for last in [
        SubOp::Create { exclusive: true },
        SubOp::RemoveAttr {
            name: "none".into(),
        },
        SubOp::GetAttr {
            name: "none".into(),
        },
    ] {
        let entries = vec![(Bytes::from_static(b"k"), Bytes::from_static(b"v"))];
        let ops = vec![
            SubOp::WriteFull { length: 3 },
            set("a", "2"),
            set("b", "3"),
            SubOp::OmapSet { entries },
            last,
        ];
        bench.refused(&object, ops, b"new");
    }
    assert_eq!(bench.get(&object).as_deref(), Some(&b"old"[..]));
    let attrs: Vec<(Bytes, Bytes)> = bench.attrs(&object).into_iter().collect();
    assert_eq!(attrs, [("a".into(), "1".into())]);
    assert!(bench.omap(&object, 10).is_empty());
    assert_eq!(bench.stat(&object).expect("there").1, version);
}

fn own_writes(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    let key = |key: &'static str| Bytes::from_static(key.as_bytes());
    bench.ok(
        &object,
        vec![SubOp::OmapSet {
            entries: vec![(key("old"), key("1")), (key("gone"), key("2"))],
        }],
        b"",
    );
    let ops = vec![
        SubOp::Append { length: 5 },
        SubOp::Stat {},
        set("a", "1"),
        SubOp::GetAttr { name: "a".into() },
        SubOp::OmapSet {
            entries: vec![(key("new"), key("3"))],
        },
        SubOp::OmapRemove {
            keys: vec![key("gone")],
        },
        SubOp::OmapGet {
            keys: vec![key("gone"), key("new"), key("old")],
        },
    ];
    let results = bench.ok(&object, ops, b"hello").results;
    assert!(
        matches!(results[1], SubReply::Stat { size: 5, .. }),
        "{results:?}"
    );
    assert_eq!(results[3], SubReply::Value { value: "1".into() });
    assert_eq!(
        results[6],
        SubReply::Entries {
            entries: vec![(key("new"), key("3")), (key("old"), key("1"))],
            more: false
        }
    );
    let keys: Vec<Bytes> = bench
        .omap(&object, 10)
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    assert_eq!(keys, [key("new"), key("old")]);
}

/// Compares its own write.
fn compare_own() -> (Vec<SubOp>, &'static [u8]) {
    (
        vec![
            SubOp::Append { length: 2 },
            SubOp::CompareData {
                offset: 0,
                length: 4,
            },
            set("a", "1"),
        ],
        b"cdabcd",
    )
}

fn own_data(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.put(&object, b"ab");
    let (ops, data) = compare_own();
    bench.ok(&object, ops, data);
    assert_eq!(bench.get(&object).as_deref(), Some(&b"abcd"[..]));
    let entries = vec![(Bytes::from_static(b"k"), Bytes::from_static(b"v"))];
    let ops = vec![
        SubOp::OmapSet {
            entries: entries.clone(),
        },
        SubOp::OmapList {
            after: Bytes::new(),
            limit: 10,
        },
    ];
    assert_eq!(
        bench.ok(&object, ops, b"").results[1],
        SubReply::Entries {
            entries,
            more: false
        }
    );
}

fn versions(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    let mut last = Version::default();
    for round in 0..10 {
        let done = bench.ok(&object, vec![SubOp::Append { length: 1 }], b"x");
        assert!(
            done.version > last,
            "update {round}: {} after {last}",
            done.version
        );
        last = done.version;
        let (size, version) = bench.stat(&object).expect("there");
        assert_eq!((size, version), (round + 1, last));
        assert_eq!(
            bench
                .ok(
                    &object,
                    vec![SubOp::Read {
                        offset: 0,
                        length: 1
                    }],
                    b""
                )
                .version,
            last
        );
    }
    bench.ok(&object, vec![SubOp::Delete {}], b"");
    let again = bench
        .ok(&object, vec![SubOp::Create { exclusive: true }], b"")
        .version;
    assert!(
        again > last,
        "an object that is made anew does not begin its versions anew"
    );
}

fn version_of_none(bench: &mut Bench<'_>) {
    let none = bench.object("none");
    let some = bench.object("some");
    let version = bench.put(&some, b"x");
    for version in [version, Version::default()] {
        assert_eq!(
            bench.refused(
                &none,
                vec![
                    SubOp::AssertVersion { version },
                    SubOp::Create { exclusive: false }
                ],
                b""
            ),
            guard(0)
        );
    }
    assert_eq!(bench.stat(&none), None);
}

fn one_version(bench: &mut Bench<'_>) {
    // While another client changes data, an attribute and the map together, no reader sees them
    // differ.
    let object = bench.object("o");
    let name = object.clone();
    let write = move |round: u32| {
        let text = Bytes::from(format!("{round:08}"));
        let ops = vec![
            SubOp::WriteFull { length: 8 },
            SubOp::SetAttr {
                name: "round".into(),
                value: text.clone(),
            },
            SubOp::OmapSet {
                entries: vec![(Bytes::from_static(b"round"), text.clone())],
            },
        ];
        (name.clone(), ops, text)
    };
    let (target, ops, data) = write(0);
    bench.ok(&target, ops, &data);
    let prefix = bench.prefix().to_owned();
    let mut writer = bench.another();
    assert_eq!(writer.prefix(), prefix);
    let mut writing: Vec<_> = (1..60)
        .map(|round| {
            let (target, ops, data) = write(round);
            writer.begin(&target, ops, &data)
        })
        .collect();
    let mut seen = 0;
    while !writing.is_empty() {
        writer.turn();
        let ops = vec![
            SubOp::Read {
                offset: 0,
                length: 8,
            },
            SubOp::GetAttr {
                name: "round".into(),
            },
            SubOp::OmapGet {
                keys: vec![Bytes::from_static(b"round")],
            },
        ];
        let done = writer.ok(&object, ops, b"");
        let text: Bytes = done.payload.concat().into();
        let expected = [
            SubReply::Data { length: 8 },
            SubReply::Value {
                value: text.clone(),
            },
            SubReply::Entries {
                entries: vec![(Bytes::from_static(b"round"), text)],
                more: false,
            },
        ];
        assert_eq!(done.results, expected);
        seen += 1;
        if let Some(id) = writing.pop() {
            writer.end(id).expect("written");
        }
    }
    assert!(seen > 10);
}
