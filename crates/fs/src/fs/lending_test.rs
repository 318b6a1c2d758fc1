//! Attributes cached by a kernel: what is lent, and when others may rely on its being dropped.

use super::super::testing::{Client, INO, node, reply_to};
use super::*;
use nacre_wire::msg::fs::{FsChanges, FsForget, FsReply, FsStale};

const LEASE: Duration = Duration::from_secs(5);

/// With a file's attributes in memory, lent once.
fn lending() -> (Client, FsNode) {
    let mut client = Client::keeping(100);
    let shown = stat(&mut client, 8192);
    assert!(client.fs.lend(client.now, &shown) > Duration::ZERO);
    (client, shown)
}
/// Requests the file's attributes; returns what a caller is shown.
fn stat(client: &mut Client, size: u64) -> FsNode {
    let (call, number) = client.ask(Ask::Names(FsCall::Stat { ino: INO }));
    client.answer_shared(number, node(size));
    match client.ended().pop() {
        Some((ended, Ok(Given::Answer(FsAnswer::Node { node, .. })))) if ended == call => node,
        other => panic!("{other:?}"),
    }
}
fn forget(number: u64) -> Option<Message> {
    Some(Message::FsForget(FsForget {
        number,
        items: vec![FsStale::Node { ino: INO }],
    }))
}
fn forgotten(client: &Client) -> Vec<u64> {
    let number = |message: &Message| match message {
        Message::FsForgot(forgot) => Some(forgot.number),
        _ => None,
    };
    client.said.iter().filter_map(number).collect()
}
fn give_back(client: &mut Client) {
    let (owed, mut out) = (client.fs.owed(client.now), Vec::new());
    client.fs.returned(&owed, &mut out);
    client.hear(out);
}
fn set() -> Ask {
    Ask::Names(FsCall::Set {
        ino: INO,
        changes: FsChanges {
            mode: Some(0o600),
            ..FsChanges::default()
        },
    })
}

#[test]
fn what_would_be_answered_from_memory_is_lent_for_as_long_as_the_lease_lasts() {
    let (mut client, shown) = lending();
    let before = client.fs.lend(client.now, &shown);
    assert!(before <= LEASE);
    client.now = client.now + Duration::from_millis(700);
    assert_eq!(
        client.fs.lend(client.now, &shown),
        before - Duration::from_millis(700)
    );
    let mut other = shown.clone();
    other.inode.size += 1;
    assert_eq!(
        client.fs.lend(client.now, &other),
        Duration::ZERO,
        "it is so no more"
    );
    assert_eq!(
        client.fs.lend(client.now + LEASE, &shown),
        Duration::ZERO,
        "nothing is heard of the server"
    );
    client.turn(forget(1));
    assert_eq!(
        client.fs.lend(client.now, &shown),
        Duration::ZERO,
        "it is not in memory"
    );
    let mut client = Client::new();
    let shown = stat(&mut client, 8192);
    assert_eq!(
        client.fs.lend(client.now, &shown),
        Duration::ZERO,
        "this client keeps nothing"
    );
}

/// Another client's change is answered when all caches have dropped the old state, including the
/// kernel.
#[test]
fn the_server_is_told_that_it_is_forgotten_when_it_is_forgotten_above() {
    let (mut client, _) = lending();
    client.said.clear();
    client.turn(forget(1));
    assert_eq!(
        (client.fs.owed(client.now), forgotten(&client)),
        (vec![INO], vec![])
    );
    client.turn(forget(2));
    give_back(&mut client);
    assert_eq!(
        (client.fs.owed(client.now), forgotten(&client)),
        (vec![], vec![1, 2])
    );
    client.turn(forget(3));
    assert_eq!(
        forgotten(&client),
        [1, 2, 3],
        "nothing of it was lent since"
    );
}

/// If a host cannot revoke it, because the kernel does not answer, others wait only until the lease
/// ends.
#[test]
fn what_is_not_returned_is_over_with_the_lease() {
    let (mut client, _) = lending();
    client.said.clear();
    client.turn(forget(1));
    let over = client.fs.next_deadline();
    assert!(
        client.now < over && over <= client.now + LEASE,
        "it wants a turn then: {over:?}"
    );
    client.now = client.now + LEASE;
    client.turn(None);
    assert_eq!(
        (forgotten(&client), client.fs.owed(client.now)),
        (vec![1], vec![])
    );
}

/// A greeting gives all shares back: another client's change of what the kernel still shows would
/// be answered at once.
#[test]
fn a_new_server_is_greeted_when_nothing_is_kept_above() {
    let (mut client, _) = lending();
    let greets = |client: &Client| {
        client
            .said
            .iter()
            .any(|message| matches!(message, Message::FsSession(_)))
    };
    client.said.clear();
    client.lose();
    for _ in 0..4 {
        client.now = client.now + SEEK_AGAIN;
        client.turn(None);
    }
    assert_eq!(
        (client.fs.owed(client.now), greets(&client)),
        (vec![INO], false)
    );
    give_back(&mut client);
    assert!(greets(&client), "{:?}", client.said);
}

/// The kernel knows its own changes, and gets the new attributes with the answer. It does not know
/// another caller's changes.
#[test]
fn what_is_changed_from_above_is_not_taken_back() {
    let (mut client, _) = lending();
    let (_, number) = client.ask(set());
    client.reply(FsReply {
        keep: true,
        changed: vec![INO],
        ..reply_to(number, node(8192))
    });
    assert_eq!(client.fs.owed(client.now), []);
    let (mut client, _) = lending();
    client.said.clear();
    client.fs.begin_beside(set());
    client.turn(None);
    let number = client.asked(|_| true);
    client.reply(FsReply {
        keep: true,
        changed: vec![INO],
        ..reply_to(number, node(8192))
    });
    assert_eq!(client.fs.owed(client.now), [INO]);
}

/// The server's result for a written file is news for the kernel: its time of change.
#[test]
fn what_this_client_told_and_learned_by_that_is_taken_back() {
    let (mut client, _) = lending();
    let (_, number) = client.ask(Ask::Names(FsCall::Open {
        ino: INO,
        write: true,
    }));
    client.answer_shared(number, node(8192));
    assert_eq!(client.fs.owed(client.now), [], "it is as it was");
    let shown = stat_again(&mut client);
    assert!(client.fs.lend(client.now, &shown) > Duration::ZERO);
    let wrote = FsCall::Wrote {
        ino: INO,
        size: 9000,
        mtime: Stamp(5),
    };
    let mut out = Vec::new();
    client.fs.request(wrote, Purpose::Told(INO), &mut out);
    client.said.clear();
    client.hear(out);
    let number = client.asked(|_| true);
    client.answer_shared(number, node(9000));
    assert_eq!(client.fs.owed(client.now), [INO]);
}
/// The same from memory.
fn stat_again(client: &mut Client) -> FsNode {
    match client
        .fs
        .at_once(client.now, Ask::Names(FsCall::Stat { ino: INO }))
    {
        Ok((Ok(Given::Answer(FsAnswer::Node { node, .. })), _)) => node,
        other => panic!("{other:?}"),
    }
}
