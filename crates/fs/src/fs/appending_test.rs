//! Appends of a client that is not alone with a file, and its turn.

use super::super::locking::client_tests::Client;
use super::*;
use nacre_types::PoolId;
use nacre_wire::fs::{FileKind, Inode, Layout};

const INO: Ino = Ino(1 << 20);

fn node(size: u64) -> FsAnswer {
    let mut inode = Inode::new(INO, FileKind::File {}, 0o644, (1, 1), Stamp(1));
    let layout = Layout { pool: PoolId(1), unit: 4096, count: 1, object: 4096 };
    (inode.size, inode.layout) = (size, Some(layout));
    FsAnswer::Node { node: FsNode { inode, head: None, home: None }, made: false }
}
fn asked(client: &Client, is_it: impl Fn(&FsCall) -> bool) -> Option<u64> {
    client.said.iter().find_map(|message| match message {
        Message::FsRequest(request) => is_it(&request.call).then_some(request.number),
        _ => None,
    })
}

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
    let alone = asked(&client, |call| matches!(call, FsCall::Alone { ends: false, .. })).or(sized);
    client.answer(alone, node(100));
    let over = |call: &FsCall| matches!(call, FsCall::Alone { ends: true, .. });
    assert_eq!((asked(&client, over), client.objects.taken.len()), (None, 0));
    client.is_safe(opening);
    client.turn(None);
    let [(_, operation)] = &client.objects.taken[..] else { panic!("{:?}", client.objects.taken) };
    assert!(matches!(operation.ops[..], [SubOp::Write { offset: 100, length: 5 }, ..]));
    assert_eq!(asked(&client, over), None);
    let done = Done { version: Default::default(), results: Vec::new(), payload: Vec::new() };
    client.objects.end(Ok(done));
    client.turn(None);
    let wrote = asked(&client, |call| matches!(call, FsCall::Wrote { size: 105, .. }));
    assert!(wrote.is_some() && asked(&client, over).is_none(), "{:?}", client.said);
    client.answer_with(wrote, node(105), false);
    assert!(asked(&client, over).is_some() && client.ended().len() == 1, "{:?}", client.said);
}
