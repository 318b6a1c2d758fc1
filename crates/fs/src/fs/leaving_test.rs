//! What a client does before it leaves.

use super::super::testing::{Client, INO, buffering, node};
use super::*;
use nacre_wire::msg::fs::FsChanges;

/// Whether it has left its server.
fn has_left(client: &Client) -> bool {
    client
        .said
        .iter()
        .any(|message| matches!(message, Message::FsLeave(_)))
}
/// A requested close: what it reports about the file.
fn close(client: &Client) -> Option<(u64, u64, Stamp)> {
    client.said.iter().find_map(|message| match message {
        Message::FsRequest(request) => match request.call {
            FsCall::Close {
                write: true,
                size,
                mtime,
                ..
            } => Some((request.number, size, mtime)),
            _ => None,
        },
        _ => None,
    })
}
/// A client that has the file open for writing, and alone, and has written a little of it.
fn writing() -> Client {
    let mut client = buffering(true).0;
    client.ask(Ask::Write {
        ino: INO,
        offset: 0,
        data: Bytes::from(vec![7; 100]),
    });
    assert_eq!(client.ended().len(), 1, "it is buffered");
    client
}
fn close_call() -> Ask {
    Ask::Names(FsCall::Close {
        ino: INO,
        write: true,
        size: 0,
        mtime: Stamp::default(),
    })
}

/// An archive was unpacked, and unmounted at once: files closed within the last 0.1 s were not
/// closed yet when the client left. Its server evicted it, and the files got the time of the
/// eviction.
#[test]
fn what_lingers_is_closed_before_the_client_leaves() {
    let mut client = writing();
    let changes = FsChanges {
        mtime: Some(Some(Stamp(77))),
        ..FsChanges::default()
    };
    let (_, set) = client.ask(Ask::Names(FsCall::Set { ino: INO, changes }));
    client.answer(set, node(0));
    client.ask(close_call());
    assert!(
        close(&client).is_none() && client.objects.taken.is_empty(),
        "it is written later, with others"
    );
    client.stop();
    assert_eq!(client.objects.taken.len(), 1, "it is written now");
    assert!(client.fs.is_leaving() && !has_left(&client) && close(&client).is_none());
    client.all_done();
    let (number, size, mtime) = close(&client).expect("it is closed");
    assert_eq!(
        (size, mtime),
        (100, nacre_wire::msg::fs::FS_LARGER_ONLY),
        "the time that was set stays"
    );
    // An answer is not enough: the next holder of the rank would consider the file open.
    client.answer_with(Some(number), node(100), false);
    assert!(client.fs.is_leaving() && !has_left(&client));
    client.is_safe(Some(number));
    assert!(!client.fs.is_leaving() && has_left(&client));
}

/// The server does not know about files closed between two turns.
#[test]
fn what_was_closed_between_turns_is_closed_before_the_client_leaves() {
    let mut client = writing();
    client.ask(Ask::Sync { ino: Some(INO) });
    client.all_done();
    let told = client.asked(|call| matches!(call, FsCall::Wrote { .. }));
    client.answer(told, node(100));
    let (outcome, _) = client
        .fs
        .at_once(client.now, close_call())
        .expect("nothing of it is dirty");
    assert!(outcome.is_ok());
    client.stop();
    assert!(!has_left(&client));
    let (number, ..) = close(&client).expect("it is closed");
    client.answer(Some(number), node(100));
    assert!(has_left(&client));
}

/// A mount was removed with files open: they are not closed any more.
#[test]
fn what_is_still_open_is_closed_before_the_client_leaves() {
    let mut client = writing();
    client.stop();
    client.all_done();
    let (number, size, _) = close(&client).expect("it is closed");
    assert_eq!(size, 100);
    client.forget_said();
    client.turn(None);
    assert!(close(&client).is_none(), "once for each open");
    client.answer(Some(number), node(100));
    assert!(has_left(&client));
}

/// A server that does not answer delays nothing for ever.
#[test]
fn a_client_leaves_after_a_while_whatever_is_left() {
    let mut client = writing();
    client.stop();
    assert!(client.fs.next_deadline() <= client.now + LEAVE_MAX);
    client.tick(LEAVE_MAX);
    assert!(!client.fs.is_leaving() && has_left(&client));
}

/// Files that were only read, or are completely reported, need no time.
#[test]
fn a_client_that_owes_nothing_leaves_at_once() {
    let mut client = Client::new();
    let (_, opening) = client.ask(Ask::Names(FsCall::Open {
        ino: INO,
        write: false,
    }));
    client.answer(opening, node(0));
    client.stop();
    assert!(!client.fs.is_leaving() && has_left(&client));
}
