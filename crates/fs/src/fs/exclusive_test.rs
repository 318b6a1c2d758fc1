//! Writes of a client that shares a file, and its turn.

use super::super::testing::{Client, INO, node};
use super::*;
use nacre_wire::msg::fs::{FsCapNews, FsCaps, FsEvicted};

const fn is_over(call: &FsCall) -> bool {
    matches!(call, FsCall::Alone { ends: true, .. })
}
const fn is_alone(call: &FsCall) -> bool {
    matches!(call, FsCall::Alone { ends: false, .. })
}
const fn is_comply(call: &FsCall) -> bool {
    matches!(call, FsCall::Comply { .. })
}
/// Writes this many bytes; objects have 4 KiB.
fn write(offset: u64, length: usize) -> Ask {
    Ask::Write {
        ino: INO,
        offset,
        data: Bytes::from(vec![7; length]),
    }
}
const fn read(offset: u64, length: u32) -> Ask {
    Ask::Read {
        ino: INO,
        offset,
        length,
    }
}

/// A client with a file open that others have open, too.
fn shared(size: u64) -> Client {
    let mut client = Client::new();
    client.objects.room = 99;
    client.fs.config.dirty_max = 1 << 20;
    let (_, opening) = client.ask(Ask::Names(FsCall::Open {
        ino: INO,
        write: true,
    }));
    client.answer(opening, node(size));
    client.ended();
    client
}
fn caps(client: &mut Client, cap: FsCap, number: u64) {
    client.turn(Some(Message::FsCaps(FsCaps {
        items: vec![FsCapNews {
            ino: INO,
            cap,
            number,
        }],
    })));
}
/// Requests a write that needs exclusive access, and gets the access.
fn write_alone(client: &mut Client, ask: Ask, size: u64) -> CallId {
    let (call, _) = client.ask(ask);
    let alone = client.asked(is_alone);
    assert!(
        alone.is_some() && client.objects.taken.is_empty(),
        "{:?}",
        client.said
    );
    client.forget_said();
    client.answer(alone, node(size));
    call
}

/// Its opening is not safe yet, so it may not write; others may not continue in that time, or they
/// would append where it writes then.
#[test]
fn a_turn_lasts_until_what_was_appended_is_written_and_told() {
    let mut client = Client::new();
    client.objects.room = 9;
    let (_, opening) = client.ask(Ask::Names(FsCall::Open {
        ino: INO,
        write: true,
    }));
    client.answer_with(opening, node(100), false);
    client.ended();
    let (_, sized) = client.ask(Ask::Append {
        ino: INO,
        data: Bytes::from_static(b"hello"),
    });
    let alone = client.asked(is_alone).or(sized);
    client.answer(alone, node(100));
    assert_eq!(
        (client.asked(is_over), client.objects.taken.len()),
        (None, 0)
    );
    client.is_safe(opening);
    client.turn(None);
    let [(_, operation)] = &client.objects.taken[..] else {
        panic!("{:?}", client.objects.taken)
    };
    assert!(matches!(
        operation.ops[..],
        [
            SubOp::Write {
                offset: 100,
                length: 5
            },
            ..
        ]
    ));
    assert_eq!(client.asked(is_over), None);
    client.all_done();
    let wrote = client.asked(|call| matches!(call, FsCall::Wrote { size: 105, .. }));
    assert!(
        wrote.is_some() && client.asked(is_over).is_none(),
        "{:?}",
        client.said
    );
    client.answer_with(wrote, node(105), false);
    assert!(
        client.asked(is_over).is_some() && client.ended().len() == 1,
        "{:?}",
        client.said
    );
}

/// CEPH-09: others see all of it or nothing. Writes within one object cost no request.
#[test]
fn a_write_to_two_objects_has_the_file_alone() {
    let mut client = shared(8192);
    let (inside, sized) = client.ask(write(4096, 4096));
    client.answer(sized, node(8192));
    client.all_done();
    assert_eq!(client.asked(is_alone), None);
    let wrote = client.asked(|call| matches!(call, FsCall::Wrote { .. }));
    client.answer(wrote, node(8192));
    assert_eq!(client.ended(), [(inside, Ok(Given::Done))]);

    let across = write_alone(&mut client, write(4000, 200), 8192);
    assert_eq!(client.objects.taken.len(), 2);
    // Its own reads wait like those of others.
    client.ask(read(0, 10));
    assert_eq!(client.objects.taken.len(), 2);
    client.objects.end_well();
    client.turn(None);
    assert!(
        client.ended().is_empty() && client.asked(is_over).is_none(),
        "half of it is written"
    );
    client.objects.end_well();
    client.turn(None);
    assert_eq!(client.ended(), [(across, Ok(Given::Done))]);
    assert!(client.asked(is_over).is_some(), "{:?}", client.said);
    let sized = client.asked(|call| matches!(call, FsCall::Stat { .. }));
    client.answer(sized, node(8192));
    assert_eq!(client.objects.taken.len(), 1, "the read goes on");
}

/// A reader that gave way at once had read the first object without another client's write, and the
/// second one with it.
#[test]
fn what_is_read_of_two_objects_is_read_before_others_write() {
    for (length, waits) in [(4096, false), (4097, true)] {
        let mut client = shared(8192);
        let (_, sized) = client.ask(read(0, length));
        client.answer(sized, node(8192));
        client.objects.end_well();
        client.forget_said();
        caps(&mut client, FsCap::Nothing {}, 5);
        assert_eq!(
            client.asked(is_comply).is_none(),
            waits,
            "{:?}",
            client.said
        );
        client.all_done();
        assert!(
            client.asked(is_comply).is_some() && client.ended().len() == 1,
            "{:?}",
            client.said
        );
    }
}

/// One part of it was cached, which is older than the rest would be.
#[test]
fn what_is_read_to_be_kept_is_read_before_others_write() {
    let mut client = shared(8192);
    client.fs.config.data_max = 1 << 20;
    caps(&mut client, FsCap::Nothing {}, 4);
    let comply = client.asked(is_comply);
    client.answer(comply, FsAnswer::Done {});
    caps(&mut client, FsCap::Cache {}, 0);
    let (_, sized) = client.ask(read(0, 10));
    client.answer(sized, node(8192));
    client.forget_said();
    caps(&mut client, FsCap::Nothing {}, 5);
    assert_eq!(client.asked(is_comply), None);
    client.all_done();
    assert!(
        client.asked(is_comply).is_some() && client.ended().len() == 1,
        "{:?}",
        client.said
    );
}

/// CEPH-09: a large write is answered once the client has the file alone, and written afterwards.
#[test]
fn a_large_write_is_answered_before_it_is_written() {
    let mut client = shared(8192);
    client.fs.config.early_above = 5000;
    let large = write_alone(&mut client, write(4000, 6000), 8192);
    let wrote = client.asked(|call| matches!(call, FsCall::Wrote { size: 10_000, .. }));
    assert!(
        wrote.is_some() && client.ended().is_empty(),
        "its server has to have room for it"
    );
    client.answer(wrote, node(10_000));
    assert_eq!(client.ended(), [(large, Ok(Given::Done))]);
    assert_eq!(
        (client.objects.taken.len(), client.asked(is_over)),
        (3, None)
    );
    // A write that overwrites it comes after it, and needs no room.
    let (second, _) = client.ask(write(4000, 5001));
    assert_eq!(client.ended(), [(second, Ok(Given::Done))]);
    // Its caller can read what it wrote, and is told later that it is safe.
    let (own, _) = client.ask(read(4000, 10));
    let (sync, _) = client.ask(Ask::Sync { ino: Some(INO) });
    client.forget_said();
    assert_eq!(client.objects.taken.len(), 3);
    let mut written = 0;
    while client.asked(is_over).is_none() {
        assert_eq!(client.ended(), [], "{written} are written");
        client.objects.end_well();
        client.turn(None);
        written += 1;
    }
    assert_eq!(written, 6, "three objects of each");
    let (telling, sized) = (
        client.asked(|call| matches!(call, FsCall::Wrote { .. })),
        client.asked(|call| matches!(call, FsCall::Stat { .. })),
    );
    client.answer(telling, node(10_000));
    client.answer(sized, node(10_000));
    client.all_done();
    let ended: BTreeSet<CallId> = client.ended().into_iter().map(|(call, _)| call).collect();
    assert!(ended.contains(&own) && ended.contains(&sync), "{ended:?}");
}

/// Answered data that cannot be written is an error of `fsync`, once; the turn ends.
#[test]
fn what_was_answered_and_is_not_written_is_an_error() {
    let mut client = shared(16_384);
    client.fs.config.early_above = 0;
    let large = write_alone(&mut client, write(4000, 200), 16_384);
    assert_eq!(client.ended(), [(large, Ok(Given::Done))]);
    client
        .objects
        .end(Err(Failure::Refused(OpFailure::Full {})));
    client.all_done();
    assert!(client.asked(is_over).is_some(), "{:?}", client.said);
    let (sync, _) = client.ask(Ask::Sync { ino: Some(INO) });
    assert_eq!(client.ended(), [(sync, Err(ENOSPC))]);
}

/// It is lost with its client's session, which is reported once.
#[test]
fn what_was_answered_and_not_written_is_lost_when_others_go_on() {
    let mut client = shared(16_384);
    client.fs.config.early_above = 0;
    let large = write_alone(&mut client, write(4000, 200), 16_384);
    let (waits, _) = client.ask(read(0, 10));
    assert_eq!(client.ended(), [(large, Ok(Given::Done))]);
    client.turn(Some(Message::FsEvicted(FsEvicted {
        instance: client.fs.acts_as(),
    })));
    let session = client.come();
    assert!(session.opens.iter().all(|open| !open.alone), "{session:?}");
    client.all_done();
    let (sync, _) = client.ask(Ask::Sync { ino: Some(INO) });
    let ended = client.ended();
    assert!(
        ended.contains(&(sync, Err(EIO))) && !ended.iter().any(|(call, _)| *call == waits),
        "{ended:?}"
    );
}

/// An impossible write ended its turn without telling the server: others waited for good.
#[test]
fn a_turn_ends_with_a_write_that_is_refused() {
    for (ask, outcome) in [
        (write(u64::MAX - 5000, 4999), Err(EFBIG)),
        (
            Ask::Append {
                ino: INO,
                data: Bytes::new(),
            },
            Ok(Given::Done),
        ),
    ] {
        let mut client = shared(8192);
        let refused = write_alone(&mut client, ask, 8192);
        assert_eq!(client.ended(), [(refused, outcome)]);
        assert!(client.asked(is_over).is_some(), "{:?}", client.said);
    }
}

/// The others closed the file while this client waited for its turn; it wrote, and also closed it
/// before it was told that it had the turn, and never ended it: a client that opened the file then
/// waited for good.
#[test]
fn a_turn_that_comes_too_late_ends() {
    let mut client = shared(8192);
    client.ask(write(4000, 200));
    let alone = client.asked(is_alone);
    caps(&mut client, FsCap::Buffer {}, 0);
    let sized = client.asked(|call| matches!(call, FsCall::Stat { .. }));
    client.answer(sized, node(8192));
    assert_eq!(client.ended().len(), 1);
    let (_, _) = client.ask(Ask::Names(FsCall::Close {
        ino: INO,
        write: true,
        size: 0,
        mtime: Stamp(0),
    }));
    client.tick(Duration::from_millis(200));
    client.all_done();
    let close = client.asked(|call| matches!(call, FsCall::Close { .. }));
    client.answer(close, FsAnswer::Done {});
    client.forget_said();
    client.answer(alone, node(8192));
    assert!(client.asked(is_over).is_some(), "{:?}", client.said);
    assert!(client.fs.files.is_empty());
}

/// Thirty-two writes, then it is others' turn; calls that waited meanwhile come before the next
/// one.
#[test]
fn a_turn_has_an_end() {
    let mut client = shared(8192);
    (0..40).for_each(|_| _ = client.fs.begin(write(4000, 200)));
    client.ask(read(0, 10));
    let alone = client.asked(is_alone);
    let sized = client.asked(|call| matches!(call, FsCall::Stat { .. }));
    client.answer(sized, node(8192));
    client.all_done();
    assert_eq!(client.ended().len(), 1, "the read: its turn has not come");
    client.forget_said();
    client.answer(alone, node(8192));
    client.fs.begin(read(0, 10));
    let mut ended = 0;
    while client.asked(is_over).is_none() {
        client.all_done();
        ended += client.ended().len();
    }
    assert_eq!(ended as u32, IN_A_ROW);
    assert!(client.asked(is_alone).is_some(), "{:?}", client.said);
    let sized = client.asked(|call| matches!(call, FsCall::Stat { .. }));
    client.answer(sized, node(8192));
    assert_eq!(client.objects.taken.len(), 1, "the read that waited");
}

/// Two alternating writers recalled a third client's grant with the same message that brought it:
/// it never read.
#[test]
fn what_waited_for_a_grant_begins_before_that_is_given_back() {
    let mut client = shared(8192);
    caps(&mut client, FsCap::Nothing {}, 5);
    client.answer(client.asked(is_comply), FsAnswer::Done {});
    let (waits, _) = client.ask(read(0, 10));
    assert!(client.said.is_empty(), "{:?}", client.said);
    let item = |cap, number| FsCapNews {
        ino: INO,
        cap,
        number,
    };
    let items = vec![item(FsCap::Sync {}, 0), item(FsCap::Nothing {}, 6)];
    client.turn(Some(Message::FsCaps(FsCaps { items })));
    assert_eq!(client.asked(is_comply), None, "{:?}", client.said);
    let (late, sized) = (
        client.fs.begin(read(0, 10)),
        client.asked(|call| matches!(call, FsCall::Stat { .. })),
    );
    client.answer(sized, node(8192));
    assert_eq!(
        (
            client.objects.taken.len(),
            client.asked(is_comply).is_some()
        ),
        (1, true),
        "{:?}",
        client.said
    );
    client.all_done();
    assert_eq!(
        client
            .ended()
            .into_iter()
            .map(|(call, _)| call)
            .collect::<Vec<_>>(),
        [waits],
        "{late:?} comes later"
    );
}
