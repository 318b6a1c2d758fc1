//! Data of objects.

use super::always;
use crate::bench::pattern;
use crate::{Bench, Case};
use nacre_types::{Name, ObjectId};
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};

pub const CASES: &[Case] = &[
    always("what is written is read, short at the end", written_is_read),
    always("a gap reads as zeros", gaps),
    always("replacing all data cuts the rest off", replaced),
    always("appending grows the object", appended),
    always("zeroes leave the size", zeroed),
    always("truncating shrinks, grows and makes objects", truncated),
    always("an empty write only makes the object", empty_writes),
    always(
        "an object is made once, and is gone with all that it had",
        made_and_gone,
    ),
    always("objects of many megabytes", large),
    always("checksums are CRC32C of what is there", checksums),
    always(
        "names of any bytes but zero, namespaces and keys tell objects apart",
        names,
    ),
];

fn read(bench: &mut Bench<'_>, object: &ObjectId, offset: u64, length: u64) -> Vec<u8> {
    let done = bench.ok(object, vec![SubOp::Read { offset, length }], b"");
    let data = done.payload.concat();
    assert_eq!(
        done.results,
        [SubReply::Data {
            length: data.len() as u64
        }]
    );
    data
}

fn written_is_read(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    assert_eq!(bench.get(&object), None);
    bench.ok(
        &object,
        vec![SubOp::Write {
            offset: 0,
            length: 10,
        }],
        b"0123456789",
    );
    assert_eq!(read(bench, &object, 0, 10), b"0123456789");
    assert_eq!(read(bench, &object, 3, 4), b"3456");
    assert_eq!(read(bench, &object, 8, 100), b"89");
    assert_eq!(read(bench, &object, 10, 5), b"");
    assert_eq!(read(bench, &object, 1000, 5), b"");
    assert_eq!(read(bench, &object, 4, 0), b"");
    bench.ok(
        &object,
        vec![SubOp::Write {
            offset: 4,
            length: 2,
        }],
        b"ab",
    );
    assert_eq!(bench.get(&object).as_deref(), Some(&b"0123ab6789"[..]));
}

fn gaps(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.ok(
        &object,
        vec![SubOp::Write {
            offset: 10_000,
            length: 3,
        }],
        b"end",
    );
    assert_eq!(bench.stat(&object).expect("there").0, 10_003);
    let mut expected = vec![0; 10_000];
    expected.extend(b"end");
    assert_eq!(bench.get(&object), Some(expected));
}

fn replaced(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.put(&object, &pattern(1, 100_000));
    bench.put(&object, b"short");
    assert_eq!(bench.get(&object).as_deref(), Some(&b"short"[..]));
    bench.put(&object, b"");
    assert_eq!(bench.get(&object).as_deref(), Some(&b""[..]));
    assert_eq!(bench.stat(&object).expect("there").0, 0);
    // Truncated data does not reappear when the object grows.
    bench.ok(&object, vec![SubOp::Truncate { size: 8 }], b"");
    assert_eq!(bench.get(&object), Some(vec![0; 8]));
}

fn appended(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    let mut expected = Vec::new();
    for index in 0..20_u64 {
        let piece = pattern(index, 1 + index as usize * 700);
        bench.ok(
            &object,
            vec![SubOp::Append {
                length: piece.len() as u64,
            }],
            &piece,
        );
        expected.extend(piece);
    }
    assert_eq!(bench.get(&object), Some(expected));
}

fn zeroed(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    let mut expected = pattern(5, 20_000);
    bench.put(&object, &expected);
    for (offset, length) in [
        (100, 50),
        (4096, 8192),
        (19_990, 10),
        (19_000, 5000),
        (20_000, 10),
        (50_000, 10),
    ] {
        bench.ok(&object, vec![SubOp::Zero { offset, length }], b"");
        let (from, to) = (
            (offset as usize).min(20_000),
            ((offset + length) as usize).min(20_000),
        );
        expected[from..to].fill(0);
        assert_eq!(
            bench.get(&object).as_deref(),
            Some(&expected[..]),
            "zeroes at {offset}, {length} of them"
        );
    }
    let none = bench.object("none");
    bench.ok(
        &none,
        vec![SubOp::Zero {
            offset: 5,
            length: 5,
        }],
        b"",
    );
    assert_eq!(
        bench.get(&none).as_deref(),
        Some(&b""[..]),
        "zeroes make the object, and no bytes"
    );
}

fn truncated(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.ok(&object, vec![SubOp::Truncate { size: 7 }], b"");
    assert_eq!(bench.get(&object), Some(vec![0; 7]));
    bench.put(&object, b"0123456789");
    bench.ok(&object, vec![SubOp::Truncate { size: 4 }], b"");
    bench.ok(&object, vec![SubOp::Truncate { size: 6 }], b"");
    assert_eq!(bench.get(&object).as_deref(), Some(&b"0123\0\0"[..]));
    bench.ok(&object, vec![SubOp::Truncate { size: 0 }], b"");
    assert_eq!(bench.get(&object).as_deref(), Some(&b""[..]));
}

fn empty_writes(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.ok(
        &object,
        vec![SubOp::Write {
            offset: 100,
            length: 0,
        }],
        b"",
    );
    assert_eq!(bench.stat(&object).expect("made").0, 0);
    bench.put(&object, b"abc");
    bench.ok(
        &object,
        vec![
            SubOp::Write {
                offset: 100,
                length: 0,
            },
            SubOp::Append { length: 0 },
        ],
        b"",
    );
    assert_eq!(bench.get(&object).as_deref(), Some(&b"abc"[..]));
}

fn made_and_gone(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    assert_eq!(
        bench.refused(&object, vec![SubOp::Delete {}], b""),
        OpFailure::NotFound {}
    );
    bench.ok(&object, vec![SubOp::Create { exclusive: true }], b"");
    assert_eq!(
        bench.refused(&object, vec![SubOp::Create { exclusive: true }], b""),
        OpFailure::AlreadyExists {}
    );
    bench.ok(&object, vec![SubOp::Create { exclusive: false }], b"");
    bench.ok(
        &object,
        vec![SubOp::SetAttr {
            name: "a".into(),
            value: "1".into(),
        }],
        b"",
    );
    bench.ok(
        &object,
        vec![
            SubOp::OmapSet {
                entries: vec![("k".into(), "v".into())],
            },
            SubOp::Append { length: 1 },
        ],
        b"x",
    );
    bench.ok(&object, vec![SubOp::Delete {}], b"");
    assert_eq!(bench.stat(&object), None);
    assert_eq!(
        bench.refused(
            &object,
            vec![SubOp::Read {
                offset: 0,
                length: 1
            }],
            b""
        ),
        OpFailure::NotFound {}
    );
    bench.ok(&object, vec![SubOp::Create { exclusive: true }], b"");
    assert_eq!(bench.get(&object).as_deref(), Some(&b""[..]));
    assert!(bench.attrs(&object).is_empty());
    assert!(bench.omap(&object, 10).is_empty());
}

fn large(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    let data = pattern(9, 4 << 20);
    bench.put(&object, &data);
    assert!(
        bench.get(&object) == Some(data.clone()),
        "4 MiB came back otherwise"
    );
    let (from, piece) = (1_234_567, pattern(10, 100_001));
    bench.ok(
        &object,
        vec![SubOp::Write {
            offset: from as u64,
            length: piece.len() as u64,
        }],
        &piece,
    );
    let mut expected = data;
    expected[from..from + piece.len()].copy_from_slice(&piece);
    assert!(
        bench.get(&object) == Some(expected),
        "a piece in the middle of it"
    );
    let most = pattern(11, 20 << 20);
    bench.put(&object, &most);
    assert!(
        bench.get(&object) == Some(most),
        "20 MiB came back otherwise"
    );
    bench.ok(&object, vec![SubOp::Delete {}], b"");
}

fn checksums(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.put(&object, b"123456789");
    let mut check = |offset, length| {
        let done = bench.ok(&object, vec![SubOp::Checksum { offset, length }], b"");
        match done.results[..] {
            [SubReply::Checksum { crc, length }] => (crc, length),
            ref other => panic!("{other:?} is no checksum"),
        }
    };
    // The published CRC of these bytes.
    assert_eq!(check(0, 9), (0xe306_9283, 9));
    assert_eq!(check(0, 1000), (0xe306_9283, 9));
    assert_eq!(check(3, 0), (0, 0));
    assert_eq!(check(9, 5), (0, 0));
    let data = pattern(3, 100_000);
    let object = bench.object("p");
    bench.put(&object, &data);
    let done = bench.ok(
        &object,
        vec![SubOp::Checksum {
            offset: 1000,
            length: 70_000,
        }],
        b"",
    );
    let crc = nacre_wire::checksum(&[data[1000..71_000].to_vec().into()]);
    assert_eq!(
        done.results,
        [SubReply::Checksum {
            crc,
            length: 70_000
        }]
    );
}

fn names(bench: &mut Bench<'_>) {
    let named = |bytes: &[u8]| ObjectId {
        name: Name::copy(bytes),
        ..ObjectId::default()
    };
    let prefix = bench.prefix().as_bytes().to_vec();
    let with = |end: &[u8]| named(&[&prefix[..], end].concat());
    let base = with(b"n");
    let long = with(&vec![b'l'; 1000]);
    let all = [
        base.clone(),
        with(b"N"),
        with(b"n/../n"),
        with(b"\xff\xfe not text \x01"),
        with("h\u{e4}\u{1f41a}".as_bytes()),
        with(b" "),
        long,
        ObjectId {
            namespace: "one".into(),
            ..base.clone()
        },
        ObjectId {
            namespace: "two".into(),
            ..base.clone()
        },
        ObjectId {
            key: "k".into(),
            ..base.clone()
        },
    ];
    for (index, object) in all.iter().enumerate() {
        bench.put(object, format!("content {index}").as_bytes());
    }
    for (index, object) in all.iter().enumerate() {
        assert_eq!(
            bench.get(object),
            Some(format!("content {index}").into_bytes()),
            "{object}"
        );
    }
    bench.ok(&all[7], vec![SubOp::Delete {}], b"");
    assert_eq!(bench.get(&all[7]), None);
    assert!(bench.get(&all[0]).is_some() && bench.get(&all[8]).is_some());
}
