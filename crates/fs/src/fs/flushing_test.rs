//! How far a client writes before its server knows.

use super::super::locking::client_tests::Client;
use super::*;
use nacre_types::PoolId;
use nacre_wire::fs::{FileKind, Inode, Layout};
use nacre_wire::msg::fs::{FsCapNews, FsCaps};

const INO: Ino = Ino(1 << 20);
const LAYOUT: Layout = Layout { pool: PoolId(1), unit: 4096, count: 1, object: 4096 };
const REACH: u64 = 8 * 4096;

fn node(size: u64) -> FsAnswer {
    let mut inode = Inode::new(INO, FileKind::File {}, 0o644, (1, 1), Stamp(1));
    (inode.size, inode.layout) = (size, Some(LAYOUT));
    FsAnswer::Node { node: FsNode { inode, head: None, home: None }, made: false }
}
/// What the server is told of ends.
fn told(client: &Client) -> Option<(u64, u64)> {
    client.said.iter().find_map(|message| match message {
        Message::FsRequest(request) => match request.call {
            FsCall::Wrote { size, .. } => Some((request.number, size)),
            _ => None,
        },
        _ => None,
    })
}
/// Where the operations on objects end that are under way.
fn ends(client: &Client) -> Option<u64> {
    let end = |operation: &Operation| {
        let number = u64::from_str_radix(operation.object.name.to_string().rsplit('.').next()?, 16).ok()?;
        let [SubOp::Write { offset, length }, ..] = operation.ops[..] else { return None };
        Some(number * 4096 + offset + length)
    };
    client.objects.taken.iter().filter_map(|(_, operation)| end(operation)).max()
}

/// A program writes much, and its server hears of it bit by bit; what is far from all that the server
/// knows it hears of first. Who looks for what was written, when both have died, looks so far.
#[test]
fn no_data_lies_further_than_is_looked_for() {
    let mut client = Client::new();
    client.fs.config.dirty_max = 1 << 20;
    client.objects.room = 99;
    let (_, number) = client.ask(Ask::Names(FsCall::Open { ino: INO, write: true }));
    client.answer(number, node(0));
    let news = FsCapNews { ino: INO, cap: FsCap::Buffer {}, number: 0 };
    client.turn(Some(Message::FsCaps(FsCaps { items: vec![news] })));
    let (_, number) = client.ask(Ask::Write { ino: INO, offset: 0, data: Bytes::from(vec![7; 100_000]) });
    client.said.clear();
    client.answer(number, node(0));
    assert_eq!(client.ended().len(), 2, "it is buffered");
    let (mut known, mut written) = (0, 0);
    let mut steps = Vec::new();
    while known < 100_000 {
        assert!(steps.len() < 20, "{steps:?}");
        if let Some(end) = ends(&client) {
            assert!(end <= known + REACH, "{end} is beyond what is known, {known}");
            written = end.max(written);
            while !client.objects.taken.is_empty() {
                client.objects.end(Ok(Done { version: Default::default(), results: Vec::new(), payload: Vec::new() }));
            }
            client.turn(None);
        }
        if written == 100_000 && told(&client).is_none() {
            client.ask(Ask::Sync { ino: Some(INO) });
        }
        if let Some((number, size)) = told(&client) {
            assert!(size <= written, "{size} bytes are not in objects, {written} are");
            (known, steps) = (size, [steps, vec![size]].concat());
            client.said.clear();
            client.answer(Some(number), node(size));
        }
    }
    assert_eq!((steps.first(), steps.last()), (Some(&REACH), Some(&100_000)));
    // Far away.
    client.ask(Ask::Write { ino: INO, offset: 1 << 20, data: Bytes::from(vec![7; 5000]) });
    assert_eq!((told(&client).map(|(_, size)| size), ends(&client)), (Some((1 << 20) + 5000), None));
    let (number, size) = told(&client).expect("just seen");
    client.answer(Some(number), node(size));
    assert_eq!(ends(&client), Some(size));
}
