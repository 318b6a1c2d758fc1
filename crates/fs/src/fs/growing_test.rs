//! Writes below a quota: what is requested before they are accepted, and what is cached of a
//! refused one.

use super::super::testing::{Client, INO, node, reply_to};
use super::*;
use nacre_wire::msg::fs::{FsGrant, FsReply};

/// A file open with this capability.
fn open(cap: FsCap) -> Client {
    let mut client = Client::new();
    client.objects.room = 9;
    let (_, number) = client.ask(Ask::Names(FsCall::Open {
        ino: INO,
        write: true,
    }));
    let caps = vec![FsGrant { ino: INO, cap }];
    client.reply(FsReply {
        caps,
        ..reply_to(number, node(0))
    });
    client.ended();
    client
}
fn write(length: usize) -> Ask {
    Ask::Write {
        ino: INO,
        offset: 0,
        data: Bytes::from(vec![7; length]),
    }
}

#[test]
fn a_write_beyond_the_room_is_taken_when_there_is_more() {
    let mut client = open(FsCap::Bounded { room: 10 });
    let (_, sized) = client.ask(write(10));
    client.reply(reply_to(sized, node(0)));
    assert_eq!(client.ended().len(), 1, "there is room for it");
    let (second, _) = client.ask(write(20));
    // Dirty data is written first: there is little memory for it here.
    client.all_done();
    let asked = client.asked(|call| *call == FsCall::Grow { ino: INO, size: 20 });
    let (third, other) = client.ask(write(15));
    assert_eq!(other, None, "one question at a time");
    client.reply(reply_to(asked, FsAnswer::Failed { errno: EDQUOT }));
    assert_eq!(client.ended(), [(second, Err(EDQUOT))]);
    let asked = client.asked(|call| *call == FsCall::Grow { ino: INO, size: 15 });
    let caps = vec![FsGrant {
        ino: INO,
        cap: FsCap::Bounded { room: 16 },
    }];
    client.reply(FsReply {
        caps,
        ..reply_to(asked, FsAnswer::Done {})
    });
    assert_eq!(client.ended(), [(third, Ok(Given::Done))]);
    assert_eq!(
        client.fs.files[&INO].size, 15,
        "nothing of the one that was refused"
    );
}

#[test]
fn a_file_that_others_write_becomes_larger_before_its_data_is_written() {
    let mut client = open(FsCap::Asks {});
    let (call, sized) = client.ask(write(10));
    client.reply(reply_to(sized, node(0)));
    let told = client.asked(|call| matches!(call, FsCall::Wrote { size: 10, .. }));
    assert!(told.is_some() && client.objects.taken.is_empty());
    client.reply(reply_to(told, FsAnswer::Failed { errno: EDQUOT }));
    assert_eq!(client.ended(), [(call, Err(EDQUOT))]);
    assert!(
        client.objects.taken.is_empty(),
        "no data without a file that it belongs to"
    );
}
