//! Attribute changes that a client answers itself.

use super::super::testing::{Client, INO, node, reply_to};
use super::*;
use nacre_wire::fs::Inode;
use nacre_wire::msg::fs::{FsCapNews, FsCaps, FsReply};

fn set(changes: FsChanges) -> Ask {
    Ask::Names(FsCall::Set { ino: INO, changes })
}
fn mode(mode: u16) -> FsChanges {
    FsChanges {
        mode: Some(mode),
        ..FsChanges::default()
    }
}
fn owner(uid: u32) -> FsChanges {
    FsChanges {
        uid: Some(uid),
        ..FsChanges::default()
    }
}
/// A client that has the file open for writing, alone, and caches its attributes.
fn alone() -> Client {
    let mut client = Client::keeping(100);
    client.fs.config.dirty_max = 1 << 20;
    let (_, opening) = client.ask(Ask::Names(FsCall::Open {
        ino: INO,
        write: true,
    }));
    client.answer(opening, node(0));
    let news = FsCapNews {
        ino: INO,
        cap: FsCap::Buffer {},
        number: 0,
    };
    client.turn(Some(Message::FsCaps(FsCaps { items: vec![news] })));
    let (_, looks) = client.ask(Ask::Names(FsCall::Stat { ino: INO }));
    client.answer_shared(looks, node(0));
    let (_, sizes) = client.ask(Ask::Read {
        ino: INO,
        offset: 0,
        length: 1,
    });
    if sizes.is_some() {
        client.answer_shared(sizes, node(0));
    }
    client.ended();
    client.forget_said();
    client
}
/// A caller's answer between two turns.
fn at_once(client: &mut Client, ask: Ask) -> Option<Inode> {
    match client.fs.at_once(client.now, ask) {
        Ok((Ok(Given::Answer(FsAnswer::Node { node, .. })), _)) => Some(node.inode),
        _ => None,
    }
}
fn look(client: &mut Client) -> Inode {
    at_once(client, Ask::Names(FsCall::Stat { ino: INO })).expect("it is kept")
}
/// The changes that were sent, with their numbers.
fn sent(client: &Client) -> Vec<(u64, FsChanges)> {
    let change = |message: &Message| match message {
        Message::FsRequest(request) => match request.call {
            FsCall::Set { changes, .. } => Some((request.number, changes)),
            _ => None,
        },
        _ => None,
    };
    client.said.iter().filter_map(change).collect()
}
/// The server's result for the first changes that were sent.
fn done(changes: &[(u64, FsChanges)]) -> FsAnswer {
    let FsAnswer::Node { mut node, made } = node(0) else {
        unreachable!("a node")
    };
    for (_, changes) in changes {
        node.inode.mode = changes.mode.unwrap_or(node.inode.mode);
        node.inode.uid = changes.uid.unwrap_or(node.inode.uid);
        node.inode.ctime = node
            .inode
            .ctime
            .max(changes.foretold.expect("it says when"));
        node.inode.change += 1;
    }
    FsAnswer::Node { node, made }
}

/// A program that unpacks an archive waited for the server three times for each file that it had
/// just written.
#[test]
fn who_has_a_file_alone_waits_for_no_server_to_change_its_attributes() {
    let mut client = alone();
    let first = at_once(&mut client, set(owner(7))).expect("answered where it was made");
    let second = at_once(&mut client, set(mode(0o755))).expect("this, too");
    assert_eq!((first.uid, second.uid, second.mode), (7, 7, 0o755));
    assert!(second.ctime >= first.ctime && first.ctime > Stamp(1));
    assert_eq!(look(&mut client), second);
    client.tick(Duration::from_millis(100));
    let sent = sent(&client);
    let wanted = [owner(7), mode(0o755)];
    assert!(
        sent.iter()
            .zip(&wanted)
            .all(|((_, is), wanted)| (is.mode, is.uid) == (wanted.mode, wanted.uid))
    );
    // Between the two answers it is shown as foretold.
    for known in 1..=2 {
        client.answer_shared(Some(sent[known - 1].0), done(&sent[..known]));
        let shown = look(&mut client);
        assert_eq!(
            (shown.uid, shown.mode, shown.ctime),
            (7, 0o755, second.ctime),
            "after {known} answers"
        );
    }
}

/// Another client looks: the server gets everything foretold before this client's confirmation.
#[test]
fn what_was_foretold_is_said_before_another_one_is_answered() {
    let mut client = alone();
    at_once(&mut client, set(mode(0o600))).expect("answered");
    let news = FsCapNews {
        ino: INO,
        cap: FsCap::Sync {},
        number: 5,
    };
    client.turn(Some(Message::FsCaps(FsCaps { items: vec![news] })));
    let calls = client.said.iter().filter_map(|message| match message {
        Message::FsRequest(request) => Some(&request.call),
        _ => None,
    });
    let order: Vec<bool> = calls
        .map(|call| matches!(call, FsCall::Set { .. }))
        .collect();
    assert_eq!(
        (order.first(), order.len() > 1),
        (Some(&true), true),
        "{:?}",
        client.said
    );
    assert!(
        at_once(&mut client, set(mode(0o644))).is_none(),
        "it is not its own any more"
    );
}

#[test]
fn who_synchronizes_waits_until_it_is_safe_and_hears_what_was_not_taken() {
    let mut client = alone();
    at_once(&mut client, set(mode(0o600))).expect("answered");
    let (sync, _) = client.ask(Ask::Sync { ino: Some(INO) });
    let number = sent(&client)[0].0;
    assert!(client.ended().is_empty(), "it is only on its way");
    let mut answer = done(&sent(&client));
    answer
        .nodes_mut()
        .for_each(|node| node.home = Some(Ino::ROOT));
    client.reply(FsReply {
        safe: false,
        keep: true,
        shares: vec![Ino::ROOT],
        ..reply_to(Some(number), answer)
    });
    assert!(client.ended().is_empty(), "it is not safe");
    client.is_safe(Some(number));
    assert_eq!(client.ended(), [(sync, Ok(Given::Done))]);

    at_once(&mut client, set(mode(0o644))).expect("answered");
    client.tick(Duration::from_millis(100));
    let number = sent(&client).last().expect("sent").0;
    client.answer(Some(number), FsAnswer::Failed { errno: EIO });
    let (sync, _) = client.ask(Ask::Sync { ino: Some(INO) });
    client.turn(None);
    assert_eq!(client.ended(), [(sync, Err(EIO))]);
}

#[test]
fn what_is_not_certain_the_server_is_asked() {
    let mut client = alone();
    let sized = FsChanges {
        size: Some(9),
        ..FsChanges::default()
    };
    assert!(
        at_once(&mut client, set(sized)).is_none(),
        "data is to be removed"
    );
    let mut rights = done(&[]);
    for node in rights.nodes_mut() {
        let mut rare = nacre_wire::fs::inode::Rare::default();
        rare.xattrs
            .insert(Name::copy(ACL_ACCESS), Bytes::from_static(b"some"));
        node.inode.rare = Some(std::sync::Arc::new(rare));
        node.inode.change += 1;
    }
    // Another client gave it an access control list.
    let (_, asked) = client.ask(Ask::Names(FsCall::Set {
        ino: INO,
        changes: sized,
    }));
    client.answer_shared(asked, rights);
    assert!(
        at_once(&mut client, set(mode(0o600))).is_none(),
        "a list of rights changes with the mode"
    );
    // Its lease has ended.
    let mut client = alone();
    client.now = client.now + Duration::from_mins(1);
    assert!(
        at_once(&mut client, set(mode(0o600))).is_none(),
        "others may have gone on"
    );
}

/// The kernel was lent the foretold state. The server's answer was not cacheable, since another
/// client had requested a change meanwhile; the kernel never learned of that one, and showed the
/// old mode until the lease ended.
#[test]
fn what_was_lent_is_taken_back_when_the_answer_is_not_kept() {
    for keep in [true, false] {
        let mut client = alone();
        let inode = at_once(&mut client, set(mode(0o600))).expect("answered");
        let shown = FsNode {
            inode,
            head: None,
            home: Some(Ino::ROOT),
        };
        assert!(client.fs.lend(client.now, &shown) > Duration::ZERO);
        client.tick(Duration::from_millis(100));
        let (number, mut answer) = (Some(sent(&client)[0].0), done(&sent(&client)));
        answer
            .nodes_mut()
            .for_each(|node| node.home = Some(Ino::ROOT));
        let reply = FsReply {
            keep,
            changed: vec![INO],
            ..reply_to(number, answer)
        };
        client.reply(FsReply {
            shares: vec![Ino::ROOT],
            ..reply
        });
        let owed: Vec<Ino> = client.fs.owed(client.now);
        assert_eq!(owed, if keep { vec![] } else { vec![INO] }, "kept: {keep}");
    }
}
