//! A client whose instance has ended: its begun calls, its later calls, and their instance.

use super::super::testing::{Client, INO, buffering, node};
use super::*;
use nacre_wire::msg::fs::{FsCapNews, FsCaps, FsEvicted, FsSession};

const FENCED: Result<Done, Failure> = Err(Failure::Refused(OpFailure::Fenced {}));
const FIRST: Instance = Instance(5);
const SECOND: Instance = Instance(6);

/// With a file open, in objects of 4 KiB, two of which are being written, as far as there is room.
fn writing(room: usize) -> (Client, CallId) {
    let mut client = Client::writing(100, room);
    let data = Bytes::from(vec![7; 8192]);
    let (call, number) = client.ask(Ask::Write {
        ino: INO,
        offset: 0,
        data,
    });
    client.answer(number, node(100));
    assert_eq!((client.objects.taken.len(), client.ended()), (room, vec![]));
    (client, call)
}
fn greeting(client: &Client) -> FsSession {
    let greeting = client.said.iter().rev().find_map(|message| match message {
        Message::FsSession(session) => Some(session.clone()),
        _ => None,
    });
    greeting.expect("it greets")
}
fn evicted(instance: Instance) -> Option<Message> {
    Some(Message::FsEvicted(FsEvicted { instance }))
}
/// Calls that wait for room are not begun by the next instance: others may have got the file's
/// locks.
#[test]
fn what_an_instance_has_begun_ends_once_and_the_next_one_goes_on() {
    let (mut client, call) = writing(1);
    client.turn(evicted(FIRST));
    assert_eq!(
        (client.fs.instance(), client.ended()),
        (Some(SECOND), vec![]),
        "one part is under way"
    );
    client.objects.end(Err(Failure::Unknown));
    client.turn(None);
    assert_eq!(
        (client.ended(), client.objects.taken.len()),
        (vec![(call, Err(EIO))], 0)
    );
    let session = greeting(&client);
    assert_eq!(
        (session.instance, session.known, session.opens.len()),
        (SECOND, false, 1)
    );
    client.turn(evicted(FIRST));
    assert_eq!(
        (client.fs.instance(), client.fs.evictions()),
        (Some(SECOND), 1),
        "it knows"
    );
}

/// The OSDs know of a fence before the server reports it. A server that claimed the rank meanwhile
/// does not know it at all: the client was welcomed, and each of its writes failed.
#[test]
fn an_operation_that_is_fenced_ends_its_instance() {
    let (mut client, call) = writing(2);
    client.objects.end(FENCED);
    client.turn(None);
    assert_eq!(
        (client.fs.instance(), client.fs.evictions()),
        (Some(SECOND), 1)
    );
    // It is the former instance's.
    client.objects.end(FENCED);
    client.turn(None);
    client.turn(evicted(FIRST));
    assert_eq!(
        (client.fs.instance(), client.ended()),
        (Some(SECOND), vec![(call, Err(EIO))])
    );
    assert_eq!(greeting(&client).instance, SECOND);
}

/// The server gives a client what a fenced one had. An OSD that does not know the fence must not
/// accept both.
#[test]
fn operations_rest_on_the_map_that_the_server_has() {
    let (mut client, _) = writing(1);
    let before = client.objects.rests_on;
    client.now = client.now + Duration::from_secs(1);
    client.turn(None);
    assert_eq!(client.objects.rests_on, before);
    client.turn(evicted(Instance(1)));
    assert_eq!(client.objects.rests_on, Epoch(client.now.0 / 1_000_000));
}

/// Seed 505: its server was gone when its append was in objects. The next server evicted it, and
/// removed data that it did not know. When it came back it reported that it had written that: a
/// file had zeros, and its program was told that they were its data.
#[test]
fn what_a_former_instance_wrote_is_told_by_no_later_one() {
    let (mut client, call) = writing(2);
    client.turn(Some(Message::FsAway(nacre_wire::msg::fs::FsAway {
        why: String::new(),
    })));
    client.all_done();
    assert_eq!(client.ended(), [], "the server is to be told");
    for _ in 0..4 {
        client.now = client.now + SEEK_AGAIN;
        client.turn(None);
    }
    client.turn(evicted(FIRST));
    assert_eq!(client.ended(), [(call, Err(EIO))]);
    client.come();
    assert_eq!(
        client.asked(|call| matches!(call, FsCall::Wrote { .. })),
        None,
        "{:?}",
        client.said
    );
}

/// Others have continued since: cached data of a file may be outdated, even when this client has it
/// alone again. (Of two thousand simulated evicted clients few have cached anything, and fewer get
/// the file back.)
#[test]
fn the_next_instance_reads_what_the_former_one_had_kept() {
    let (mut client, _) = buffering(true);
    client.fs.cache = crate::cache::Cache::new(1 << 20);
    let (call, number) = client.ask(Ask::Write {
        ino: INO,
        offset: 0,
        data: Bytes::from(vec![7; 4096]),
    });
    assert_eq!(
        (client.ended(), number),
        (vec![(call, Ok(Given::Done))], None)
    );
    client.ask(Ask::Sync { ino: Some(INO) });
    client.all_done();
    client.ended();
    let read = Ask::Read {
        ino: INO,
        offset: 0,
        length: 4096,
    };
    let kept = client.fs.begin(read.clone());
    client.turn(None);
    assert_eq!(
        (client.ended().len(), client.objects.taken.len()),
        (1, 0),
        "{kept:?} is answered from what is kept"
    );

    client.turn(evicted(FIRST));
    client.come();
    let news = FsCapNews {
        ino: INO,
        cap: FsCap::Buffer {},
        number: 0,
    };
    client.turn(Some(Message::FsCaps(FsCaps { items: vec![news] })));
    client.ended();
    let (_, sized) = client.ask(read);
    client.answer(sized, node(4096));
    assert_eq!(
        (client.ended().len(), client.objects.taken.len()),
        (0, 1),
        "it is read from its object"
    );
}
