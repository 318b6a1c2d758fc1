//! Many operations in flight, and several clients.

use super::always;
use crate::bench::WAIT_MAX;
use crate::{Bench, Case};
use bytes::Bytes;
use nacre_client::{Failure, Operation, Refused};
use nacre_types::ObjectId;
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use std::collections::BTreeSet;
use std::time::Instant;

pub const CASES: &[Case] = &[
    always(
        "operations on one object happen in the order of submission",
        in_order,
    ),
    always("also those that need several steps", in_order_of_all_kinds),
    always(
        "reads in flight see the writes before them and none after",
        reads_between,
    ),
    always(
        "every operation ends once, and what is too much is refused, not lost",
        bounded,
    ),
    always("two clients that compare and set lose nothing", two_clients),
    always("what one client has written another reads", seen_by_others),
];

fn in_order(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    let ids: Vec<_> = (0..200_u32)
        .map(|n| bench.begin(&object, vec![SubOp::Append { length: 4 }], &n.to_le_bytes()))
        .collect();
    for id in ids {
        bench.end(id).expect("appended");
    }
    let expected: Vec<u8> = (0..200_u32).flat_map(u32::to_le_bytes).collect();
    assert_eq!(bench.get(&object), Some(expected));
}

fn in_order_of_all_kinds(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    let mut expected = vec![];
    let mut ids = vec![bench.begin(
        &object,
        vec![SubOp::SetAttr {
            name: "a".into(),
            value: Bytes::new(),
        }],
        b"",
    )];
    for n in 0..120_u8 {
        let (ops, data): (Vec<SubOp>, Vec<u8>) = match n % 4 {
            // Operations that every engine must prepare by a read, between operations that need
            // none.
            0 => (
                vec![
                    SubOp::Zero {
                        offset: 0,
                        length: 1,
                    },
                    SubOp::Append { length: 1 },
                ],
                vec![n],
            ),
            1 => (vec![SubOp::Append { length: 1 }, SubOp::Stat {}], vec![n]),
            2 => (
                vec![
                    SubOp::CompareAttr {
                        name: "none".into(),
                        value: Bytes::new(),
                    },
                    SubOp::Append { length: 1 },
                ],
                vec![n],
            ),
            _ => (vec![SubOp::Append { length: 1 }], vec![n]),
        };
        expected.push(n);
        ids.push(bench.begin(&object, ops, &data));
    }
    for (n, id) in ids.into_iter().enumerate() {
        let done = bench
            .end(id)
            .unwrap_or_else(|why| panic!("operation {n}: {why}"));
        if n > 0 && (n - 1) % 4 == 1 {
            assert!(
                matches!(done.results[1], SubReply::Stat { size, .. } if size == n as u64),
                "operation {n}: {done:?}"
            );
        }
    }
    assert_eq!(bench.get(&object), Some(expected));
}

fn reads_between(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    let mut ids = Vec::new();
    for n in 0..100_u32 {
        bench.begin(
            &object,
            vec![SubOp::WriteFull { length: 4 }],
            &n.to_le_bytes(),
        );
        ids.push((
            n,
            bench.begin(
                &object,
                vec![SubOp::Read {
                    offset: 0,
                    length: 4,
                }],
                b"",
            ),
        ));
    }
    for (n, id) in ids {
        assert_eq!(
            bench.end(id).expect("read").payload.concat(),
            n.to_le_bytes()
        );
    }
}

fn bounded(bench: &mut Bench<'_>) {
    const ALL: usize = 5000;
    let prefix = bench.prefix().to_owned();
    let pool = bench.pool;
    let object = |n: usize| ObjectId::named(&format!("{prefix}-{}", n % 500));
    let (mut flying, mut ended, mut refused) = (BTreeSet::new(), 0, 0);
    let begun = Instant::now();
    let mut n = 0;
    while n < ALL || !flying.is_empty() {
        let now = bench.driven().now();
        if n < ALL {
            let payload = vec![Bytes::from(vec![n as u8; 1000])];
            let operation = Operation {
                pool,
                object: object(n),
                ops: vec![SubOp::WriteFull { length: 1000 }],
                payload,
                ..Operation::default()
            };
            match bench.driven().objects().submit(now, operation) {
                Ok(id) => {
                    assert!(flying.insert(id), "{id:?} is given twice");
                    n += 1;
                    continue;
                }
                Err(Refused::Busy) => refused += 1,
                Err(Refused::NotConnected | Refused::NoSuchPool) => {
                    bench.turn();
                    continue;
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        let (id, result) = bench.end_any();
        result.expect("written");
        assert!(flying.remove(&id), "{id:?} ended, and nobody began it");
        ended += 1;
        assert!(begun.elapsed() < WAIT_MAX, "it takes for ever");
    }
    assert_eq!(ended, ALL);
    assert!(refused > 0, "it takes any number: where are they kept?");
}

fn counter(bench: &mut Bench<'_>, object: &ObjectId) -> (Bytes, u32) {
    let value = bench.attrs(object)[&b"n"[..]].clone();
    let number = std::str::from_utf8(&value)
        .expect("text")
        .parse()
        .expect("a number");
    (value, number)
}

fn two_clients(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.ok(
        &object,
        vec![SubOp::SetAttr {
            name: "n".into(),
            value: "0".into(),
        }],
        b"",
    );
    let target = object.clone();
    // One guards with the value, the other with the version; each keeps one attempt in flight at
    // all times.
    let by_value = |bench: &mut Bench<'_>| {
        let (value, number) = counter(bench, &target);
        let next = SubOp::SetAttr {
            name: "n".into(),
            value: (number + 1).to_string().into(),
        };
        bench.begin(
            &target,
            vec![
                SubOp::CompareAttr {
                    name: "n".into(),
                    value,
                },
                next,
            ],
            b"",
        )
    };
    let by_version = |bench: &mut Bench<'_>| {
        let done = bench.ok(&target, vec![SubOp::GetAttr { name: "n".into() }], b"");
        let [SubReply::Value { value }] = &done.results[..] else {
            panic!("{done:?}")
        };
        let number: u32 = std::str::from_utf8(value)
            .expect("text")
            .parse()
            .expect("a number");
        let next = SubOp::SetAttr {
            name: "n".into(),
            value: (number + 1).to_string().into(),
        };
        bench.begin(
            &target,
            vec![
                SubOp::AssertVersion {
                    version: done.version,
                },
                next,
            ],
            b"",
        )
    };
    let mut sum = 0;
    {
        let mut second = bench.another();
        for _ in 0..60 {
            // Both read before either writes.
            let one = by_value(&mut second);
            let two = by_version(&mut second);
            for id in [one, two] {
                match second.end(id) {
                    Ok(_) => sum += 1,
                    Err(Failure::Refused(OpFailure::Guard { index: 0 })) => {}
                    Err(other) => panic!("{other:?}"),
                }
            }
        }
    }
    assert!(sum >= 60, "one of two always wins");
    assert_eq!(counter(bench, &object).1, sum);
}

fn seen_by_others(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    for round in 0..20_u8 {
        bench.put(&object, &[round; 100]);
        let mut other = bench.another();
        assert_eq!(other.get(&object), Some(vec![round; 100]));
        if round == 3 {
            break;
        }
    }
}
