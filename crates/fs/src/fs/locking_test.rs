//! The client and its locks; each test plays the server.

use super::super::testing::Client;
use super::*;
use nacre_wire::msg::fs::FsEvicted;

fn lock(owner: u64) -> FsLock {
    FsLock {
        ino: Ino(7),
        owner,
        pid: 1,
        flock: false,
        start: 0,
        end: 9,
        exclusive: true,
    }
}
fn wants(owner: u64) -> Ask {
    Ask::Lock {
        lock: lock(owner),
        wait: Some(owner),
    }
}

#[test]
fn a_wait_ends_when_it_is_granted_and_what_is_held_is_named() {
    let mut client = Client::new();
    let (call, number) = client.ask(wants(1));
    client.answer(number, FsAnswer::Waits {});
    assert_eq!(client.ended(), []);
    client.turn(Some(Message::FsAway(nacre_wire::msg::fs::FsAway {
        why: String::new(),
    })));
    let session = client.come();
    assert_eq!(
        (session.locks, session.waits.len()),
        (vec![], 1),
        "it waits, there too"
    );
    for _ in 0..2 {
        let locked = FsLocked {
            number: number.expect("asked"),
            errno: None,
        };
        client.turn(Some(Message::FsLocked(locked)));
    }
    assert_eq!(client.ended(), [(call, Ok(Given::Done))], "once");
    client.turn(Some(Message::FsAway(nacre_wire::msg::fs::FsAway {
        why: String::new(),
    })));
    let session = client.come();
    assert_eq!((session.locks, session.waits), (vec![lock(1)], vec![]));
    // An owner without locks costs no request.
    let (call, number) = client.ask(Ask::UnlockAll {
        ino: Ino(7),
        owner: 2,
    });
    assert_eq!(
        (number, client.ended()),
        (None, vec![(call, Ok(Given::Done))])
    );
    let (call, number) = client.ask(Ask::UnlockAll {
        ino: Ino(7),
        owner: 1,
    });
    client.answer(number, FsAnswer::Done {});
    assert_eq!(client.ended(), [(call, Ok(Given::Done))]);
    assert!(client.fs.locking.held.is_empty() && client.fs.locking.tokens.is_empty());
}

#[test]
fn a_wait_that_is_cancelled_is_interrupted_unless_it_was_granted_before() {
    for granted in [false, true] {
        let mut client = Client::new();
        let (call, number) = client.ask(wants(1));
        client.answer(number, FsAnswer::Waits {});
        let (_, cancel) = client.ask(Ask::CancelLock { wait: 1 });
        assert_eq!(
            client.ask(Ask::CancelLock { wait: 1 }).1,
            None,
            "it is asked already"
        );
        client.ended();
        if granted {
            let locked = FsLocked {
                number: number.expect("asked"),
                errno: None,
            };
            client.turn(Some(Message::FsLocked(locked)));
        }
        client.answer(cancel, FsAnswer::Done {});
        let expected = if granted { Ok(Given::Done) } else { Err(EINTR) };
        assert_eq!(client.ended(), [(call, expected)]);
        assert_eq!(client.fs.locking.held.len(), usize::from(granted));
    }
}

#[test]
fn an_evicted_client_has_lost_its_locks_and_waits_on() {
    let mut client = Client::new();
    let (_, number) = client.ask(wants(1));
    client.answer(number, FsAnswer::Done {});
    let (_, number) = client.ask(wants(2));
    client.answer(number, FsAnswer::Waits {});
    client.ended();
    client.turn(Some(Message::FsEvicted(FsEvicted {
        instance: Instance(5),
    })));
    let session = client.come();
    assert_eq!(
        (session.known, session.locks, session.waits.len()),
        (false, vec![], 1)
    );
    let read = || Ask::Read {
        ino: Ino(7),
        offset: 0,
        length: 1,
    };
    let ends: Vec<Outcome> = [read(), read()]
        .into_iter()
        .flat_map(|ask| {
            client.ask(ask);
            client.ended()
        })
        .map(|(_, outcome)| outcome)
        .collect();
    assert_eq!(
        ends,
        [Err(EIO), Err(EBADF)],
        "once; then it is a file that is not open"
    );
}
