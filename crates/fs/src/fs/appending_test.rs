//! Appends of a client that is not alone with a file, and its turn.

use super::super::testing::{Client, INO, node};
use super::*;

/// Its opening is not safe yet, so it may not write; others may not go on in that time, or they would
/// append where it writes then.
#[test]
fn a_turn_lasts_until_what_was_appended_is_written_and_told() {
    let mut client = Client::new();
    client.objects.room = 9;
    let (_, opening) = client.ask(Ask::Names(FsCall::Open { ino: INO, write: true }));
    client.answer_with(opening, node(100), false);
    client.ended();
    let (_, sized) = client.ask(Ask::Append { ino: INO, data: Bytes::from_static(b"hello") });
    let alone = client.asked(|call| matches!(call, FsCall::Alone { ends: false, .. })).or(sized);
    client.answer(alone, node(100));
    let over = |call: &FsCall| matches!(call, FsCall::Alone { ends: true, .. });
    assert_eq!((client.asked(over), client.objects.taken.len()), (None, 0));
    client.is_safe(opening);
    client.turn(None);
    let [(_, operation)] = &client.objects.taken[..] else { panic!("{:?}", client.objects.taken) };
    assert!(matches!(operation.ops[..], [SubOp::Write { offset: 100, length: 5 }, ..]));
    assert_eq!(client.asked(over), None);
    client.all_done();
    let wrote = client.asked(|call| matches!(call, FsCall::Wrote { size: 105, .. }));
    assert!(wrote.is_some() && client.asked(over).is_none(), "{:?}", client.said);
    client.answer_with(wrote, node(105), false);
    assert!(client.asked(over).is_some() && client.ended().len() == 1, "{:?}", client.said);
}
