//! Caching and delayed writes of shared files, and when they are off.

use super::super::testing::{Client, INO, node};
use super::*;
use crate::cache::Cache;
use nacre_wire::msg::fs::{FsCapNews, FsCaps};

/// A client with a file of 4 KiB that others have open, too; its one open is lazy.
fn lazily() -> Client {
    let mut client = Client::new();
    client.fs.cache = Cache::new(1 << 20);
    client.fs.config.dirty_max = 1 << 20;
    client.objects.room = 99;
    let (_, opening) = client.ask(Ask::Names(FsCall::Open {
        ino: INO,
        write: true,
    }));
    client.answer(opening, node(4096));
    client.ask(Ask::Lazy {
        ino: INO,
        lazy: true,
    });
    client.ended();
    client
}
/// Begins a read; the server reports the file's size if it is asked.
fn read(client: &mut Client, offset: u64, length: u32) -> CallId {
    let (call, number) = client.ask(Ask::Read {
        ino: INO,
        offset,
        length,
    });
    if number.is_some() {
        client.answer(number, node(4096));
    }
    call
}
/// Whether a read needs objects, which contain only this byte.
fn reads(client: &mut Client, offset: u64, length: u32, byte: u8) -> (bool, Vec<u8>) {
    let call = read(client, offset, length);
    let asks = !client.objects.taken.is_empty();
    bring(client, byte);
    (asks, given(client, call))
}
fn given(client: &mut Client, call: CallId) -> Vec<u8> {
    match client.ended().into_iter().find(|(ended, _)| *ended == call) {
        Some((_, Ok(Given::Data(parts)))) => parts.concat(),
        other => panic!("{other:?}"),
    }
}
/// Ends all operations in flight: reads return only this byte. Returns what was written, and where.
fn bring(client: &mut Client, byte: u8) -> Vec<(u64, Vec<u8>)> {
    let mut written = Vec::new();
    while let Some((_, operation)) = client.objects.taken.first().cloned() {
        let mut payload = Vec::new();
        for op in &operation.ops {
            match op {
                SubOp::Read { length, .. } => {
                    payload.push(Bytes::from(vec![byte; *length as usize]))
                }
                SubOp::Write { offset, .. } => written.push((*offset, operation.payload.concat())),
                _ => {}
            }
        }
        client.objects.end(Ok(Done {
            version: Default::default(),
            results: Vec::new(),
            payload,
        }));
    }
    client.turn(None);
    written
}
fn write(client: &mut Client, offset: u64, data: &'static [u8]) {
    let (call, number) = client.ask(Ask::Write {
        ino: INO,
        offset,
        data: Bytes::from_static(data),
    });
    if number.is_some() {
        client.answer(number, node(4096));
    }
    assert_eq!(client.ended(), [(call, Ok(Given::Done))]);
    assert!(client.objects.taken.is_empty(), "it is written later");
}
fn told(client: &mut Client, cap: FsCap, number: u64) {
    client.forget_said();
    client.turn(Some(Message::FsCaps(FsCaps {
        items: vec![FsCapNews {
            ino: INO,
            cap,
            number,
        }],
    })));
}
fn synchronize(client: &mut Client) {
    let (call, _) = client.ask(Ask::Synchronize {
        ino: INO,
        offset: 0,
        length: u64::MAX,
    });
    assert_eq!(
        client.ended(),
        [(call, Ok(Given::Done))],
        "nothing is dirty"
    );
}
const fn is_wrote(call: &FsCall) -> bool {
    matches!(call, FsCall::Wrote { .. })
}
const fn is_comply(call: &FsCall) -> bool {
    matches!(call, FsCall::Comply { .. })
}

#[test]
fn what_was_read_is_shown_until_it_is_synchronized() {
    let mut client = lazily();
    assert_eq!(reads(&mut client, 0, 2, 1), (true, vec![1; 2]));
    let again = client.fs.at_once(
        client.now,
        Ask::Read {
            ino: INO,
            offset: 8,
            length: 1,
        },
    );
    assert_eq!(
        again,
        Ok((Ok(Given::Data(vec![Bytes::from_static(&[1])])), false)),
        "others may have written it"
    );
    synchronize(&mut client);
    assert_eq!(reads(&mut client, 0, 2, 2), (true, vec![2; 2]));
}

/// It had read the object before another client propagated, and its answer arrived after.
#[test]
fn a_read_under_way_keeps_nothing_of_before() {
    let mut client = lazily();
    let early = read(&mut client, 0, 2);
    let (call, _) = client.ask(Ask::Synchronize {
        ino: INO,
        offset: 0,
        length: 4096,
    });
    assert_eq!(client.ended(), [(call, Ok(Given::Done))]);
    let late = read(&mut client, 0, 2);
    let (first, second) = client.objects.taken.split_at(1);
    assert_eq!(
        (first.len(), second.len()),
        (1, 1),
        "what began before is not waited for"
    );
    bring(&mut client, 1);
    let all: BTreeMap<CallId, Outcome> = client.ended().into_iter().collect();
    assert!(all.contains_key(&early) && all.contains_key(&late));
    let mut client = lazily();
    read(&mut client, 0, 2);
    synchronize(&mut client);
    bring(&mut client, 1);
    assert_eq!(reads(&mut client, 0, 2, 2), (true, vec![2; 2]));
}

/// Two clients that write different bytes of one block would undo each other's writes.
#[test]
fn only_bytes_that_were_written_go_to_objects() {
    let mut client = lazily();
    write(&mut client, 10, b"abc");
    assert_eq!(reads(&mut client, 9, 5, 1), (true, b"\x01abc\x01".to_vec()));
    write(&mut client, 100, b"de");
    let (call, none) = client.ask(Ask::Propagate {
        ino: INO,
        offset: 0,
        length: u64::MAX,
    });
    assert_eq!(none, None, "the server hears of it when it is in objects");
    assert_eq!(
        bring(&mut client, 0),
        [(10, b"abc".to_vec()), (100, b"de".to_vec())]
    );
    let wrote = client.asked(is_wrote);
    assert_eq!(client.ended(), [], "it does not know yet");
    client.answer(wrote, node(4096));
    assert_eq!(client.ended(), [(call, Ok(Given::Done))]);
    assert_eq!(
        reads(&mut client, 9, 5, 2),
        (false, b"\x01abc\x01".to_vec()),
        "as it was"
    );
    synchronize(&mut client);
    assert_eq!(
        reads(&mut client, 9, 5, 2),
        (true, vec![2; 5]),
        "others may have written there since"
    );
}

#[test]
fn what_the_server_does_not_take_is_an_error_of_the_caller_that_propagates() {
    let mut client = lazily();
    write(&mut client, 5000, b"larger");
    let (call, _) = client.ask(Ask::Propagate {
        ino: INO,
        offset: 0,
        length: u64::MAX,
    });
    bring(&mut client, 0);
    let wrote = client.asked(is_wrote);
    client.answer(wrote, FsAnswer::Failed { errno: ENOSPC });
    assert_eq!(client.ended(), [(call, Err(ENOSPC))]);
    let (call, _) = client.ask(Ask::Failed { ino: INO });
    assert_eq!(client.ended(), [(call, Ok(Given::Done))], "told once");
}

/// Another client truncates the file.
#[test]
fn it_is_written_and_forgotten_before_it_is_given_back() {
    let mut client = lazily();
    reads(&mut client, 0, 2, 1);
    write(&mut client, 5000, b"abc");
    told(&mut client, FsCap::Nothing {}, 6);
    assert_eq!(client.asked(is_comply), None);
    assert_eq!(bring(&mut client, 0), [(904, b"abc".to_vec())]);
    let comply = client
        .asks(0)
        .into_iter()
        .find(|request| is_comply(&request.call))
        .expect("it complies");
    let FsCall::Comply { size, written, .. } = comply.call else {
        unreachable!()
    };
    assert_eq!((size, written), (5003, true));
    client.answer(Some(comply.number), node(5003));
    told(&mut client, FsCap::Sync {}, 0);
    let (call, number) = client.ask(Ask::Read {
        ino: INO,
        offset: 0,
        length: 2,
    });
    assert!(number.is_some(), "it may be shorter now");
    client.answer(number, node(1));
    bring(&mut client, 2);
    assert_eq!(given(&mut client, call), [2], "of then");
}

/// A program without lazy I/O reads what others have written, and others read what it writes.
#[test]
fn one_open_that_is_not_lazy_ends_it() {
    let mut client = lazily();
    reads(&mut client, 0, 2, 1);
    write(&mut client, 10, b"abc");
    let (_, opening) = client.ask(Ask::Names(FsCall::Open {
        ino: INO,
        write: false,
    }));
    client.answer(opening, node(4096));
    client.ended();
    let (call, number) = client.ask(Ask::Read {
        ino: INO,
        offset: 0,
        length: 2,
    });
    assert_eq!(
        (number, client.objects.taken.len()),
        (None, 1),
        "what is dirty comes first"
    );
    assert_eq!(bring(&mut client, 0), [(10, b"abc".to_vec())]);
    let sized = client.asked(|call| matches!(call, FsCall::Stat { .. }));
    client.answer(sized, node(4096));
    bring(&mut client, 2);
    assert_eq!(given(&mut client, call), [2; 2]);
    client.ask(Ask::Lazy {
        ino: INO,
        lazy: true,
    });
    client.ended();
    assert_eq!(
        reads(&mut client, 0, 2, 3),
        (true, vec![3; 2]),
        "both are lazy now"
    );
    assert_eq!(reads(&mut client, 0, 2, 4), (false, vec![3; 2]));
}

/// The others close the file: from then on this client's cache must be current.
#[test]
fn who_has_it_alone_then_keeps_nothing_of_before() {
    let mut client = lazily();
    reads(&mut client, 0, 2, 1);
    write(&mut client, 5000, b"abc");
    told(&mut client, FsCap::Buffer {}, 0);
    let (call, number) = client.ask(Ask::Read {
        ino: INO,
        offset: 4999,
        length: 99,
    });
    client.answer(number, node(4096));
    bring(&mut client, 2);
    assert_eq!(
        given(&mut client, call),
        [2, b'a', b'b', b'c'],
        "what it wrote is not lost, nor how far"
    );
    assert_eq!(reads(&mut client, 0, 2, 2), (false, vec![2; 2]));
}

/// A file that another program appends to: the known end is not reliable.
#[test]
fn a_read_beyond_the_known_end_asks_for_it() {
    let mut client = lazily();
    reads(&mut client, 0, 2, 1);
    let (call, number) = client.ask(Ask::Read {
        ino: INO,
        offset: 4000,
        length: 1000,
    });
    assert!(number.is_some());
    client.answer(number, node(4500));
    bring(&mut client, 1);
    assert_eq!(given(&mut client, call).len(), 500);
}
