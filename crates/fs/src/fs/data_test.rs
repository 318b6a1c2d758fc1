//! How a file is read from its objects, ahead of its reader.

use super::super::testing::{Client, INO, LAYOUT, node};
use super::*;
use crate::cache::Cache;
use nacre_wire::fs::Layout;
use nacre_wire::msg::fs::{FsCapNews, FsCaps};

const MIB: u64 = 1 << 20;
const OBJECT: u64 = 4 * MIB;
const SIZE: u64 = 96 * MIB;

/// A client with a cache of this size that reads the file, which is in objects of 4 MiB.
fn reading(bytes_max: u64) -> Client {
    let mut client = Client::new();
    client.fs.cache = Cache::new(usize::try_from(bytes_max).expect("small"));
    client.objects.room = 99;
    let FsAnswer::Node {
        node: mut found, ..
    } = node(SIZE)
    else {
        unreachable!("a node")
    };
    found.inode.layout = Some(Layout {
        unit: OBJECT as u32,
        object: OBJECT as u32,
        ..LAYOUT
    });
    let found = FsAnswer::Node {
        node: found,
        made: false,
    };
    let (_, opening) = client.ask(Ask::Names(FsCall::Open {
        ino: INO,
        write: false,
    }));
    client.answer(opening, found.clone());
    let news = FsCapNews {
        ino: INO,
        cap: FsCap::Cache {},
        number: 0,
    };
    client.turn(Some(Message::FsCaps(FsCaps { items: vec![news] })));
    // The size.
    let (_, number) = client.ask(Ask::Read {
        ino: INO,
        offset: SIZE,
        length: 1,
    });
    client.answer(number, found);
    client.ended();
    client
}
/// Completes the oldest operation; its data is the object's number, repeated.
fn bring(client: &mut Client) -> u64 {
    let operation = &client.objects.taken[0].1;
    let name = operation.object.name.to_string();
    let number =
        u64::from_str_radix(name.rsplit('.').next().expect("the last part"), 16).expect("a number");
    let [SubOp::Read { length, .. }] = operation.ops[..] else {
        panic!("it reads")
    };
    let payload = vec![Bytes::from(vec![
        number as u8 + 1;
        usize::try_from(length).expect("small")
    ])];
    client.objects.end(Ok(Done {
        version: Default::default(),
        results: Vec::new(),
        payload,
    }));
    client.turn(None);
    length
}

/// Reading ahead requested 16 MiB at a time, and a reader got nothing before everything had
/// arrived: OSDs waited for the reader, then the reader for OSDs, and large reads reached a third
/// of the objects' rate.
#[test]
fn a_reader_waits_for_one_piece_and_no_osd_for_the_reader() {
    let mut client = reading(1024 * MIB);
    let mut brought = 0;
    for at in (0..SIZE).step_by(MIB as usize) {
        let (call, _) = client.ask(Ask::Read {
            ino: INO,
            offset: at,
            length: MIB as u32,
        });
        let before = brought;
        let data = loop {
            match client.ended().pop() {
                Some((ended, outcome)) => {
                    assert_eq!(ended, call);
                    break outcome;
                }
                None => brought += bring(&mut client),
            }
        };
        let Ok(Given::Data(data)) = data else {
            panic!("{data:?}")
        };
        let right =
            |byte: Option<&u8>| byte.is_some_and(|byte| u64::from(*byte) == at / OBJECT + 1);
        assert!(
            data.iter()
                .all(|part| right(part.first()) && right(part.last())),
            "from {at}"
        );
        assert_eq!(data.iter().map(Bytes::len).sum::<usize>(), MIB as usize);
        assert!(
            brought - before <= CHUNK,
            "it waited for {} bytes at {at}",
            brought - before
        );
        let (left, asked) = (SIZE - at - MIB, client.objects.taken.len() as u64 * CHUNK);
        if at >= *AHEAD.end() {
            let least = left.saturating_sub(CHUNK).min(AHEAD.end() - 2 * CHUNK);
            assert!(asked >= least, "{asked} bytes are on their way at {at}");
        }
    }
    assert_eq!(brought, SIZE, "each byte comes once");
}

/// Reads a MiB; returns how many bytes were fetched meanwhile.
fn read(client: &mut Client, at: u64) -> u64 {
    let (now, ask) = (
        client.now,
        Ask::Read {
            ino: INO,
            offset: at,
            length: MIB as u32,
        },
    );
    let mut brought = 0;
    let data = match client.fs.at_once(now, ask) {
        Ok((outcome, _)) => outcome,
        Err(ask) => {
            let (call, _) = client.ask(ask);
            loop {
                match client.ended().pop() {
                    Some((ended, outcome)) if ended == call => break outcome,
                    _ => brought += bring(client),
                }
            }
        }
    };
    client.turn(None);
    let Ok(Given::Data(data)) = data else {
        panic!("{data:?}")
    };
    assert_eq!(
        data.iter().map(Bytes::len).sum::<usize>(),
        MIB as usize,
        "at {at}"
    );
    let right = |byte: &u8| u64::from(*byte) == at / OBJECT + 1;
    let are_right =
        |part: &Bytes| part.first().is_some_and(right) && part.last().is_some_and(right);
    assert!(data.iter().all(are_right), "at {at}");
    brought
}

/// Each read of cached data went through a turn of the reactor, which also receives, and was
/// assembled from sixteen pieces: large cached reads reached half of the objects' rate.
#[test]
fn what_was_read_ahead_is_answered_at_once_and_in_one_piece() {
    let mut client = reading(1024 * MIB);
    (0..4).for_each(|at| _ = read(&mut client, at * MIB));
    while !client.objects.taken.is_empty() {
        bring(&mut client);
    }
    let (ask, now) = (
        |at| Ask::Read {
            ino: INO,
            offset: at,
            length: MIB as u32,
        },
        client.now,
    );
    let (outcome, wakes) = client.fs.at_once(now, ask(4 * MIB)).expect("it is there");
    assert!(
        wakes && client.objects.taken.is_empty(),
        "more is to be read ahead"
    );
    client.turn(None);
    assert!(!client.objects.taken.is_empty());
    let Ok(Given::Data(data)) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        data.iter().map(Bytes::len).collect::<Vec<_>>(),
        [MIB as usize]
    );
}

/// A file that was read once evicted all others, and each of its bytes took new memory.
#[test]
fn a_reader_that_goes_through_a_file_leaves_most_of_it_behind() {
    let kept_max = 48 * MIB;
    let mut client = reading(STREAM_KEPT * kept_max);
    // What is cached of it, what is read ahead, and what is being read.
    let most = kept_max + AHEAD.end() + 2 * CHUNK;
    for at in (0..SIZE).step_by(MIB as usize) {
        read(&mut client, at);
        let kept = client.fs.cache.bytes() as u64;
        assert!(kept < most + most / 64, "{kept} bytes at {at}");
    }
    let again: Vec<u64> = (0..SIZE)
        .step_by(MIB as usize)
        .map(|at| read(&mut client, at))
        .collect();
    assert_eq!(
        again[..48].iter().sum::<u64>(),
        48 * MIB - kept_max,
        "the beginning is kept"
    );
    assert!(again.iter().sum::<u64>() > 0);
    let third = (0..SIZE)
        .step_by(MIB as usize)
        .map(|at| read(&mut client, at));
    assert_eq!(third.sum::<u64>(), 0, "what is read again is kept");
}

/// A file was being closed when its client greeted, so it was not claimed; it was reopened before
/// the close had ended and granted again, with cached data from before that others may have
/// overwritten since. (Found by reading.)
#[test]
fn what_is_being_closed_when_its_client_greets_is_kept_no_more() {
    let mut client = reading(1024 * MIB);
    read(&mut client, 0);
    while !client.objects.taken.is_empty() {
        bring(&mut client);
    }
    assert!(client.fs.cache.bytes() > 0);
    let close = FsCall::Close {
        ino: INO,
        write: false,
        size: 0,
        mtime: Stamp::default(),
    };
    client.ask(Ask::Names(close));
    client.lose();
    let greeting = client.come();
    assert_eq!(greeting.opens[0].cap, FsCap::Nothing {});
    assert_eq!(client.fs.cache.bytes(), 0);
}
