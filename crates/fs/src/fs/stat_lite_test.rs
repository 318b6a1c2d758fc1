//! `statlite`: what a server knows without asking writers is shown, and used for nothing else.

use super::testing::{Client, INO, buffering, node};
use super::*;

fn lite() -> Ask {
    Ask::Names(FsCall::StatLite { ino: INO })
}
fn size(outcome: Option<&(CallId, Outcome)>) -> u64 {
    match outcome {
        Some((_, Ok(Given::Answer(FsAnswer::Node { node, .. })))) => node.inode.size,
        other => panic!("{other:?}"),
    }
}

/// A file that another client writes is larger than its server reports: cached as its attributes,
/// the old size would be shown to all local callers from then on.
#[test]
fn its_answer_is_not_kept() {
    let mut client = Client::keeping(100);
    let (_, number) = client.ask(lite());
    client.answer_shared(number, node(10));
    assert_eq!(size(client.ended().last()), 10);
    let (_, number) = client.ask(Ask::Names(FsCall::Stat { ino: INO }));
    client.answer_shared(number, node(5000));
    assert_eq!(size(client.ended().last()), 5000, "the server was asked");
    let (_, number) = client.ask(lite());
    assert_eq!(
        (number, size(client.ended().last())),
        (None, 5000),
        "what is true is good enough"
    );
}

/// A reader next to a writer reads up to the reported size.
#[test]
fn it_says_nothing_of_how_far_an_open_file_can_be_read() {
    let mut client = Client::new();
    let (_, opening) = client.ask(Ask::Names(FsCall::Open {
        ino: INO,
        write: false,
    }));
    client.answer(opening, node(5000));
    let (_, number) = client.ask(lite());
    client.answer(number, node(10));
    assert_eq!(client.fs.files[&INO].size, 5000);
}

#[test]
fn who_writes_it_alone_is_told_what_that_client_knows() {
    let (mut client, _) = buffering(true);
    client.ask(Ask::Write {
        ino: INO,
        offset: 0,
        data: Bytes::from_static(b"seven b"),
    });
    client.ended();
    let (_, number) = client.ask(lite());
    client.answer(number, node(0));
    assert_eq!(size(client.ended().last()), 7);
}
