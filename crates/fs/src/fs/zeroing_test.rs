//! Which objects are zeroed, deleted, truncated or left alone, and what waits meanwhile.

use super::super::testing::{Client, INO, LAYOUT, node};
use super::*;
use nacre_types::PoolId;

/// Compares with a file in memory: the operations on its objects zero exactly the range, and create
/// no object.
#[test]
fn what_is_done_to_objects_makes_the_range_zeros() {
    for (unit, count, units) in [(4096, 1, 1), (4096, 3, 2), (8192, 2, 4)] {
        let layout = Layout {
            pool: PoolId(1),
            unit,
            count,
            object: unit * units,
        };
        let size = 100_000_u64;
        for (from, to) in [
            (0, size),
            (0, 4096),
            (1, 4097),
            (5000, 70_000),
            (16_384, size),
            (99_000, size),
        ] {
            for alone in [false, true] {
                let end = alone.then_some(size);
                let zeroing = Zeroing {
                    ino: INO,
                    range: (from, to),
                    end,
                    next: 0,
                    left: 0,
                    failed: None,
                    grant: 0,
                };
                let mut data = BTreeMap::new();
                for number in 0..layout.objects(size) {
                    let mut object = vec![7; layout.length_of(number, size) as usize];
                    match zeroing.ops(&layout, number).as_deref() {
                        None => {}
                        Some([SubOp::Delete {}]) => {
                            assert_ne!(number, 0, "it says where its file is");
                            object.clear();
                        }
                        Some(
                            [
                                SubOp::AssertExists { exists: true },
                                SubOp::Truncate { size: 0 },
                            ],
                        ) => object.clear(),
                        Some(
                            [
                                SubOp::AssertExists { exists: true },
                                SubOp::Zero { offset, length },
                            ],
                        ) => {
                            object[*offset as usize..(offset + length) as usize].fill(0);
                        }
                        Some(other) => panic!("{other:?}"),
                    }
                    assert!(
                        !object.iter().all(|byte| *byte == 0) || !alone || object.is_empty(),
                        "room is left"
                    );
                    data.insert(number, object);
                }
                for at in 0..size {
                    let (number, offset, _) = layout.place(at);
                    let byte = data[&number].get(offset as usize).copied().unwrap_or(0);
                    assert_eq!(
                        byte == 0,
                        (from..to).contains(&at),
                        "{layout:?} {from} {to} {at}"
                    );
                }
            }
        }
    }
}

/// Others may extend the file: the object with its end is not deleted.
#[test]
fn others_data_behind_the_end_stays() {
    let ops = |end| {
        Zeroing {
            ino: INO,
            range: (0, 5000),
            end,
            next: 0,
            left: 0,
            failed: None,
            grant: 0,
        }
        .ops(&LAYOUT, 1)
    };
    assert_eq!(ops(Some(5000)), Some(vec![SubOp::Delete {}]));
    let zero = SubOp::Zero {
        offset: 0,
        length: 904,
    };
    assert_eq!(
        ops(None),
        Some(vec![SubOp::AssertExists { exists: true }, zero])
    );
}

/// Holes are no errors; later calls wait, and the time is reported afterwards.
#[test]
fn what_reads_and_writes_waits_until_all_is_zero() {
    let mut client = Client::writing(12_000, 9);
    let (zeroed, number) = client.ask(Ask::Zero {
        ino: INO,
        offset: 4000,
        length: 1 << 40,
    });
    client.answer(number, node(12_000));
    let ops = |client: &Client| {
        client
            .objects
            .taken
            .iter()
            .map(|(_, one)| one.ops.clone())
            .collect::<Vec<_>>()
    };
    let zero = |offset, length| {
        vec![
            SubOp::AssertExists { exists: true },
            SubOp::Zero { offset, length },
        ]
    };
    assert_eq!(
        ops(&client),
        [
            zero(4000, 96),
            vec![SubOp::Delete {}],
            zero(0, 12_000 - 8192)
        ]
    );
    let (read, number) = client.ask(Ask::Read {
        ino: INO,
        offset: 0,
        length: 10,
    });
    assert_eq!((number, client.objects.taken.len()), (None, 3), "it waits");
    client
        .objects
        .end(Err(Failure::Refused(OpFailure::Guard { index: 0 })));
    client
        .objects
        .end(Err(Failure::Refused(OpFailure::NotFound {})));
    client.turn(None);
    assert_eq!(client.ended(), []);
    client.said.clear();
    client.all_done();
    assert_eq!(client.ended(), [(zeroed, Ok(Given::Done))]);
    let sized = client.asked(|_| true);
    client.answer(sized, node(12_000));
    assert_eq!(client.objects.taken.len(), 1, "{read:?} goes on");
    let (_, told) = client.ask(Ask::Sync { ino: Some(INO) });
    let wrote = client.asked(|call| matches!(call, FsCall::Wrote { size: 0, .. }));
    assert!(told.is_some() && wrote.is_some(), "the time is told");
}

/// Sixteen objects had been zeroed when the client's session ended; it learned of that only
/// afterwards, and continued with the next sixteen as its next instance, in a file that others may
/// have had. (Found by reading.)
#[test]
fn an_evicted_client_zeroes_nothing_more() {
    let mut client = Client::writing(80_000, 99);
    let (call, number) = client.ask(Ask::Zero {
        ino: INO,
        offset: 0,
        length: 80_000,
    });
    client.answer(number, node(80_000));
    assert_eq!(client.objects.taken.len(), AT_ONCE);
    let evicted = nacre_wire::msg::fs::FsEvicted {
        instance: Instance(5),
    };
    client.turn(Some(Message::FsEvicted(evicted)));
    (0..AT_ONCE).for_each(|_| client.objects.end_well());
    client.turn(None);
    assert_eq!(
        (client.objects.taken.len(), client.ended()),
        (0, vec![(call, Err(EIO))])
    );
}
