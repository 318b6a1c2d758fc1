//! Listing objects.

use super::always;
use crate::bench::WAIT_MAX;
use crate::{Bench, Case};
use bytes::Bytes;
use nacre_client::Operation;
use nacre_types::ObjectId;
use nacre_wire::msg::client::{SubOp, SubReply};
use std::collections::BTreeMap;
use std::time::Instant;

pub const CASES: &[Case] = &[
    always("a listing has every object once, in pages", every_object),
    always(
        "a listing while others write has what is there all the time",
        while_written,
    ),
];

/// Every object of the pool with the case's prefix, and how often it was listed.
fn list(
    bench: &mut Bench<'_>,
    limit: u32,
    between: &mut dyn FnMut(&mut Bench<'_>),
) -> BTreeMap<ObjectId, u32> {
    let pool = bench.pool;
    let begun = Instant::now();
    let groups = loop {
        if let Some(groups) = bench.driven().groups(pool) {
            break groups;
        }
        assert!(begun.elapsed() < WAIT_MAX, "the pool is never known");
        bench.turn();
    };
    let mut all = BTreeMap::new();
    for group in 0..groups {
        let mut after = Bytes::new();
        loop {
            let ops = vec![SubOp::ListObjects { after, limit }];
            let id = bench.begin_operation(Operation {
                pool,
                ops,
                group: Some(group),
                ..Operation::default()
            });
            let done = bench.end(id).expect("listed");
            let Some(SubReply::Objects { objects, next }) = done.results.into_iter().next() else {
                panic!("no listing")
            };
            assert!(objects.len() <= limit as usize);
            for object in objects {
                if object
                    .name
                    .as_bytes()
                    .starts_with(bench.prefix().as_bytes())
                {
                    *all.entry(object).or_default() += 1;
                }
            }
            between(bench);
            match next {
                Some(next) => after = next,
                None => break,
            }
        }
    }
    all
}

fn every_object(bench: &mut Bench<'_>) {
    let mut expected: Vec<ObjectId> = (0..300).map(|n| bench.object(&format!("{n}"))).collect();
    expected.extend((0..20).map(|n| ObjectId {
        namespace: "space".into(),
        ..bench.object(&format!("{n}"))
    }));
    expected.push(ObjectId {
        key: "key".into(),
        ..bench.object("keyed")
    });
    let ids: Vec<_> = expected
        .iter()
        .map(|object| bench.begin(object, vec![SubOp::Create { exclusive: true }], b""))
        .collect();
    for id in ids {
        bench.end(id).expect("made");
    }
    expected.sort();
    for limit in [7, 1000] {
        let listed = list(bench, limit, &mut |_| {});
        let twice: Vec<&ObjectId> = listed
            .iter()
            .filter(|(_, times)| **times > 1)
            .map(|(object, _)| object)
            .collect();
        assert!(twice.is_empty(), "listed twice: {twice:?}");
        assert_eq!(
            listed.into_keys().collect::<Vec<_>>(),
            expected,
            "in pages of {limit}"
        );
    }
    for object in &expected {
        bench.ok(object, vec![SubOp::Delete {}], b"");
    }
    assert!(list(bench, 1000, &mut |_| {}).is_empty());
}

fn while_written(bench: &mut Bench<'_>) {
    let there: Vec<ObjectId> = (0..150)
        .map(|n| bench.object(&format!("there-{n}")))
        .collect();
    for object in &there {
        bench.begin(object, vec![SubOp::Create { exclusive: true }], b"");
    }
    for _ in &there {
        bench.end_any().1.expect("made");
    }
    let mut round = 0;
    let listed = list(bench, 5, &mut |bench| {
        round += 1;
        let object = bench.object(&format!("new-{}", round / 2));
        let op = if round % 2 == 0 {
            SubOp::Create { exclusive: false }
        } else {
            SubOp::WriteFull { length: 1 }
        };
        let data: &[u8] = if round % 2 == 0 { b"" } else { b"x" };
        bench.ok(&object, vec![op], data);
    });
    let missing: Vec<&ObjectId> = there
        .iter()
        .filter(|object| !listed.contains_key(object))
        .collect();
    assert!(missing.is_empty(), "not listed: {missing:?}");
}
