//! Invalid requests and missing objects: refused at once, with a reason and without effects.

use super::always;
use crate::bench::WAIT_MAX;
use crate::{Bench, Case};
use bytes::Bytes;
use nacre_client::{Failure, Operation, Refused};
use nacre_types::{Name, ObjectId, PoolId};
use nacre_wire::msg::client::{OP_BYTES_MAX, OpFailure, SubOp};
use std::time::Instant;

pub const CASES: &[Case] = &[
    always("a pool that is not there", no_pool),
    always("operations that make no sense", nonsense),
    always("operations that are too large", too_large),
    Case {
        name: "an object's name with a zero byte",
        needs: |can| can.zero_bytes,
        with: zero_names,
        without: Some(no_zero_names),
    },
    always("an operation that is given up ends", given_up),
];

fn no_pool(bench: &mut Bench<'_>) {
    // A map is present, since this one is answered.
    let object = bench.object("o");
    bench.put(&object, b"x");
    let operation = Operation {
        pool: PoolId(987_654),
        object,
        ops: vec![SubOp::Stat {}],
        ..Operation::default()
    };
    let now = bench.driven().now();
    match bench.driven().objects().submit(now, operation) {
        Err(Refused::NoSuchPool) => {}
        Ok(id) => assert_eq!(bench.end(id), Err(Failure::NoSuchPool)),
        Err(other) => panic!("{other:?}"),
    }
}

fn nonsense(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.put(&object, b"as it was");
    let invalid = |bench: &mut Bench<'_>, ops: Vec<SubOp>, data: &[u8]| match bench.refused(
        &object,
        ops.clone(),
        data,
    ) {
        OpFailure::Invalid { why } => assert!(why.len() > 10, "{why:?} says little"),
        other => panic!("{ops:?}: {other:?}"),
    };
    invalid(bench, vec![], b"");
    invalid(bench, vec![SubOp::Stat {}; 65], b"");
    invalid(bench, vec![SubOp::WriteFull { length: 5 }], b"four");
    invalid(bench, vec![SubOp::WriteFull { length: 3 }], b"four");
    invalid(
        bench,
        vec![
            SubOp::Append { length: 1 },
            SubOp::Read {
                offset: 0,
                length: 1,
            },
        ],
        b"x",
    );
    invalid(
        bench,
        vec![
            SubOp::ListObjects {
                after: Bytes::new(),
                limit: 1,
            },
            SubOp::Stat {},
        ],
        b"",
    );
    assert_eq!(bench.get(&object).as_deref(), Some(&b"as it was"[..]));
}

fn too_large(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    bench.put(&object, b"as it was");
    let refused = |bench: &mut Bench<'_>, op: SubOp, data: &[u8]| {
        assert_eq!(
            bench.refused(&object, vec![op.clone()], data),
            OpFailure::TooLarge {},
            "{op:?}"
        );
    };
    refused(
        bench,
        SubOp::Write {
            offset: u64::MAX - 1,
            length: 1,
        },
        b"x",
    );
    refused(
        bench,
        SubOp::Write {
            offset: 1 << 40,
            length: 1,
        },
        b"x",
    );
    refused(bench, SubOp::Truncate { size: 1 << 40 }, b"");
    refused(
        bench,
        SubOp::Zero {
            offset: 1 << 40,
            length: 1 << 20,
        },
        b"",
    );
    refused(
        bench,
        SubOp::Read {
            offset: 0,
            length: OP_BYTES_MAX + 1,
        },
        b"",
    );
    refused(
        bench,
        SubOp::SetAttr {
            name: Name::copy(&[b'n'; 300]),
            value: Bytes::new(),
        },
        b"",
    );
    assert_eq!(bench.get(&object).as_deref(), Some(&b"as it was"[..]));
}

fn zero_byte(bench: &Bench<'_>) -> ObjectId {
    let name = [bench.prefix().as_bytes(), b"a\0b"].concat();
    ObjectId {
        name: Name::copy(&name),
        ..ObjectId::default()
    }
}

fn zero_names(bench: &mut Bench<'_>) {
    let object = zero_byte(bench);
    bench.put(&object, b"x");
    assert_eq!(bench.get(&object).as_deref(), Some(&b"x"[..]));
}

fn no_zero_names(bench: &mut Bench<'_>) {
    let object = zero_byte(bench);
    let why = bench
        .refused(&object, vec![SubOp::WriteFull { length: 1 }], b"x")
        .to_string();
    assert!(why.contains("zero_bytes"), "{why}");
    // Nor is it changed into another name.
    let cut = bench.object("");
    let cut = ObjectId {
        name: Name::copy(&[bench.prefix().as_bytes(), b"a"].concat()),
        ..cut
    };
    assert_eq!(bench.get(&cut), None);
}

fn given_up(bench: &mut Bench<'_>) {
    let object = bench.object("o");
    let ids: Vec<_> = (0..50_u32)
        .map(|n| bench.begin(&object, vec![SubOp::Append { length: 4 }], &n.to_le_bytes()))
        .collect();
    for id in &ids {
        bench.driven().abandon(*id);
    }
    let begun = Instant::now();
    for id in ids {
        match bench.end(id) {
            Ok(_) | Err(Failure::Unknown | Failure::Doubtful(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(begun.elapsed() < WAIT_MAX);
    // The client remains usable.
    let object = bench.object("p");
    bench.put(&object, b"x");
}
