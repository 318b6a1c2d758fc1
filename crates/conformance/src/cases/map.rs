//! Attributes and the ordered map.

use super::always;
use crate::{Bench, Case};
use bytes::Bytes;
use nacre_types::Name;
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};

pub const CASES: &[Case] = &[
    always("attributes are set, listed and removed", attributes),
    always("attributes hold any bytes", attributes_of_bytes),
    always("the map is ordered by bytes", ordered),
    always("the map is listed in pages, whole", pages),
    always("keys are read by name, those that are there", by_name),
    always("keys are removed, all or some", removed),
    always("a map entry of a zero-length key or value", empty_entries),
    Case {
        name: "keys with a zero byte",
        needs: |can| can.zero_bytes,
        with: zero_bytes,
        without: Some(no_zero_bytes),
    },
];

fn set(name: &'static [u8], value: &'static [u8]) -> SubOp {
    SubOp::SetAttr {
        name: Name::copy(name),
        value: Bytes::from_static(value),
    }
}
fn entries(pairs: &[(&'static [u8], &'static [u8])]) -> SubOp {
    SubOp::OmapSet {
        entries: pairs
            .iter()
            .map(|(key, value)| (Bytes::from_static(key), Bytes::from_static(value)))
            .collect(),
    }
}

fn attributes(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    let get = |name: &'static str| SubOp::GetAttr { name: name.into() };
    assert_eq!(
        bench.refused(&object, vec![get("a")], b""),
        OpFailure::NotFound {}
    );
    assert_eq!(
        bench.refused(&object, vec![SubOp::ListAttrs {}], b""),
        OpFailure::NotFound {}
    );
    bench.ok(&object, vec![set(b"a", b"1"), set(b"b", b"2")], b"");
    assert_eq!(
        bench.stat(&object).expect("setting one makes the object").0,
        0
    );
    assert_eq!(
        bench.ok(&object, vec![get("a")], b"").results,
        [SubReply::Value { value: "1".into() }]
    );
    assert_eq!(
        bench.refused(&object, vec![get("c")], b""),
        OpFailure::NotFound {}
    );
    bench.ok(
        &object,
        vec![
            set(b"a", b"3"),
            set(b"c", b"4"),
            SubOp::RemoveAttr { name: "b".into() },
        ],
        b"",
    );
    let all: Vec<(Bytes, Bytes)> = bench.attrs(&object).into_iter().collect();
    assert_eq!(all, [("a".into(), "3".into()), ("c".into(), "4".into())]);
    assert_eq!(
        bench.refused(&object, vec![SubOp::RemoveAttr { name: "b".into() }], b""),
        OpFailure::NotFound {}
    );
}

fn attributes_of_bytes(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.ok(
        &object,
        vec![
            set(b"\xff\x01 name", b"a\0b"),
            set(b"empty", b""),
            set(b"_user.x", b"y"),
        ],
        b"",
    );
    let all: Vec<(Bytes, Bytes)> = bench.attrs(&object).into_iter().collect();
    let expected: [(&[u8], &[u8]); 3] = [
        (b"_user.x", b"y"),
        (b"empty", b""),
        (b"\xff\x01 name", b"a\0b"),
    ];
    assert_eq!(
        all,
        expected.map(|(name, value)| (Bytes::from_static(name), Bytes::from_static(value)))
    );
    let big = vec![7_u8; 40_000];
    bench.ok(
        &object,
        vec![SubOp::SetAttr {
            name: "big".into(),
            value: big.clone().into(),
        }],
        b"",
    );
    assert_eq!(bench.attrs(&object)[&b"big"[..]], big);
}

fn ordered(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.ok(
        &object,
        vec![entries(&[
            (b"b", b"2"),
            (b"\xff", b"9"),
            (b"a", b"1"),
            (b"aa", b"11"),
            (b"\x01", b"0"),
            (b"B", b"-1"),
        ])],
        b"",
    );
    let keys: Vec<Bytes> = bench
        .omap(&object, 100)
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    let expected: [&[u8]; 6] = [b"\x01", b"B", b"a", b"aa", b"b", b"\xff"];
    assert_eq!(keys, expected.map(Bytes::from_static));
    let after = bench.ok(
        &object,
        vec![SubOp::OmapList {
            after: "a".into(),
            limit: 2,
        }],
        b"",
    );
    let page = vec![("aa".into(), "11".into()), ("b".into(), "2".into())];
    assert_eq!(
        after.results,
        [SubReply::Entries {
            entries: page,
            more: true
        }]
    );
    let after = bench.ok(
        &object,
        vec![SubOp::OmapList {
            after: "b".into(),
            limit: 10,
        }],
        b"",
    );
    assert_eq!(
        after.results,
        [SubReply::Entries {
            entries: vec![(Bytes::from_static(b"\xff"), "9".into())],
            more: false
        }]
    );
}

fn pages(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    let all: Vec<(Bytes, Bytes)> = (0..2500)
        .map(|n| (format!("key-{n:06}").into(), format!("value of {n}").into()))
        .collect();
    for part in all.chunks(500) {
        bench.ok(
            &object,
            vec![SubOp::OmapSet {
                entries: part.to_vec(),
            }],
            b"",
        );
    }
    for limit in [700, 10_000] {
        assert!(bench.omap(&object, limit) == all, "in pages of {limit}");
    }
    assert_eq!(bench.omap(&object, 1)[..3], all[..3]);
}

fn by_name(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    let get = |keys: &[&'static str]| SubOp::OmapGet {
        keys: keys
            .iter()
            .map(|key| Bytes::from_static(key.as_bytes()))
            .collect(),
    };
    assert_eq!(
        bench.refused(&object, vec![get(&["a"])], b""),
        OpFailure::NotFound {}
    );
    bench.ok(
        &object,
        vec![entries(&[(b"a", b"1"), (b"b", b"two\0"), (b"c", b"3")])],
        b"",
    );
    let done = bench.ok(&object, vec![get(&["c", "x", "b"])], b"");
    let expected = vec![
        ("b".into(), Bytes::from_static(b"two\0")),
        ("c".into(), "3".into()),
    ];
    assert_eq!(
        done.results,
        [SubReply::Entries {
            entries: expected,
            more: false
        }]
    );
    let done = bench.ok(&object, vec![get(&["x"])], b"");
    assert_eq!(
        done.results,
        [SubReply::Entries {
            entries: vec![],
            more: false
        }]
    );
}

fn removed(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    let remove = |keys: &[&'static str]| SubOp::OmapRemove {
        keys: keys
            .iter()
            .map(|key| Bytes::from_static(key.as_bytes()))
            .collect(),
    };
    assert_eq!(
        bench.refused(&object, vec![remove(&["a"])], b""),
        OpFailure::NotFound {}
    );
    assert_eq!(
        bench.refused(&object, vec![SubOp::OmapClear {}], b""),
        OpFailure::NotFound {}
    );
    bench.ok(
        &object,
        vec![entries(&[(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])],
        b"",
    );
    bench.ok(&object, vec![remove(&["a", "not there", "c"])], b"");
    assert_eq!(bench.omap(&object, 10), [("b".into(), "2".into())]);
    bench.ok(
        &object,
        vec![SubOp::OmapClear {}, entries(&[(b"new", b"n")])],
        b"",
    );
    assert_eq!(bench.omap(&object, 10), [("new".into(), "n".into())]);
    bench.ok(&object, vec![SubOp::OmapClear {}], b"");
    assert!(bench.omap(&object, 10).is_empty());
    assert!(bench.stat(&object).is_some());
}

fn empty_entries(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.ok(&object, vec![entries(&[(b"k", b"")])], b"");
    assert_eq!(bench.omap(&object, 10), [("k".into(), Bytes::new())]);
    bench.ok(&object, vec![SubOp::OmapSet { entries: vec![] }], b"");
    assert_eq!(bench.omap(&object, 10).len(), 1);
}

fn zero_bytes(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.ok(
        &object,
        vec![entries(&[(b"a\0b", b"1"), (b"a", b"0"), (b"a\0", b"2")])],
        b"",
    );
    let keys: Vec<Bytes> = bench
        .omap(&object, 1)
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    let expected: [&[u8]; 3] = [b"a", b"a\0", b"a\0b"];
    assert_eq!(keys, expected.map(Bytes::from_static));
}

fn no_zero_bytes(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.put(&object, b"as it was");
    for op in [
        entries(&[(b"good", b"1"), (b"a\0b", b"1")]),
        set(b"a\0b", b"1"),
    ] {
        let why = bench
            .refused(&object, vec![op, SubOp::WriteFull { length: 1 }], b"x")
            .to_string();
        assert!(why.contains("zero_bytes"), "{why}");
    }
    assert_eq!(bench.get(&object).as_deref(), Some(&b"as it was"[..]));
    assert!(bench.omap(&object, 10).is_empty() && bench.attrs(&object).is_empty());
}
