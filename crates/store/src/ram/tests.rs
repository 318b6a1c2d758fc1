use super::*;

const C: CollectionId = CollectionId(1);

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(C, name.to_owned())
}
fn events(store: &mut RamStore) -> Vec<Event> {
    let mut events = Vec::new();
    store.poll(&mut events);
    events
}
fn ask(store: &mut RamStore, read: Read) -> Result<ReadReply, ReadError> {
    store.read(read, Token(99));
    match events(store).pop() {
        Some(Event::Read(Token(99), answer)) => answer,
        other => panic!("{other:?}"),
    }
}
fn data(store: &mut RamStore, name: &str) -> Result<Vec<u8>, ReadError> {
    match ask(
        store,
        Read::Data {
            object: key(name),
            offset: 0,
            length: u64::MAX,
        },
    )? {
        ReadReply::Data(segments) => Ok(segments.concat()),
        other => panic!("{other:?}"),
    }
}
fn with_collection(commits: Commits, capacity: u64) -> RamStore {
    let mut store = RamStore::with(commits, capacity);
    store
        .submit(Transaction::new().create_collection(C), Token(0))
        .expect("empty store");
    store.commit(1);
    events(&mut store);
    store
}

#[test]
fn applied_comes_at_submit_and_committed_when_the_test_says_so() {
    let mut store = with_collection(Commits::Manual, u64::MAX);
    for i in 1..=3 {
        store
            .submit(
                Transaction::new().write(key("a"), 0, vec![i as u8; 10]),
                Token(i),
            )
            .expect("valid");
    }
    store.request_commit();
    assert_eq!(
        events(&mut store),
        [1, 2, 3].map(|i| Event::Applied(Token(i)))
    );
    store.commit(1);
    assert_eq!(events(&mut store), [Event::Committed(Token(1))]);
    assert_eq!(data(&mut store, "a"), Ok(vec![3; 10]));
    for lucky in 0..=2 {
        let mut after = store.clone().crash(lucky);
        assert_eq!(data(&mut after, "a"), Ok(vec![1 + lucky as u8; 10]));
        assert_eq!(after.uncommitted(), 0);
    }
}

#[test]
fn data_is_what_a_file_would_hold() {
    let mut store = with_collection(Commits::AtKick, u64::MAX);
    let t = Transaction::new()
        .write(key("a"), 4090, vec![7; 10])
        .truncate(key("a"), 4095)
        .truncate(key("a"), 9000);
    store.submit(t, Token(1)).expect("valid");
    let mut want = vec![0; 9000];
    want[4090..4095].fill(7);
    assert_eq!(data(&mut store, "a"), Ok(want.clone()));
    let t = Transaction::new()
        .op(Op::CloneRange {
            from: key("a"),
            to: key("a"),
            offset: 4090,
            length: 10,
            to_offset: 3,
        })
        .zero(key("a"), 4092, 9000)
        .clone_object(key("a"), key("b"))
        .write(key("a"), 0, vec![1; 1]);
    store.submit(t, Token(2)).expect("valid");
    want.resize(13092, 0);
    want[3..8].fill(7);
    want[4092..].fill(0);
    assert_eq!(data(&mut store, "b"), Ok(want));
    let extents = ask(
        &mut store,
        Read::Extents {
            object: key("b"),
            offset: 1,
            length: u64::MAX,
        },
    );
    assert_eq!(
        extents,
        Ok(ReadReply::Extents(vec![(1, 4095)])),
        "the second block was zeroed and given back"
    );
}

#[test]
fn absent_sources_and_objects_are_defined() {
    let mut store = with_collection(Commits::AtKick, u64::MAX);
    let t = Transaction::new()
        .touch(key("b"))
        .clone_object(key("none"), key("b"))
        .touch(key("c"))
        .rename(key("none"), key("c"))
        .omap_clear(key("d"))
        .remove_attr(key("d"), "x")
        .remove(key("d"))
        .op(Op::CloneRange {
            from: key("none"),
            to: key("e"),
            offset: 0,
            length: 10,
            to_offset: 5,
        });
    store.submit(t, Token(1)).expect("valid");
    let list = Read::List {
        collection: C,
        from: Bytes::new(),
        to: None,
        limit: 10,
    };
    assert_eq!(
        ask(&mut store, list),
        Ok(ReadReply::List {
            keys: vec!["e".into()],
            more: false
        })
    );
    assert_eq!(data(&mut store, "e"), Ok(vec![]));
    assert_eq!(data(&mut store, "b"), Err(ReadError::NotFound));
}

#[test]
fn omap_pages_by_entries_and_by_bytes() {
    let mut store = with_collection(Commits::AtKick, u64::MAX);
    let t = (0..10).fold(Transaction::new(), |t, i| {
        t.omap_set(key("a"), format!("k{i}"), "vvv")
    });
    store
        .submit(
            t.omap_remove_range(key("a"), "k2", Some("k4".into())),
            Token(1),
        )
        .expect("valid");
    let page = |from, limit_entries, limit_bytes| Read::Omap {
        object: key("a"),
        from,
        to: Some("k9".into()),
        limit_entries,
        limit_bytes,
    };
    let mut keys = |read| match ask(&mut store, read) {
        Ok(ReadReply::Omap { entries, more }) => (
            entries
                .iter()
                .map(|(k, _)| String::from_utf8_lossy(k).into_owned())
                .collect::<Vec<_>>()
                .join(","),
            more,
        ),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        keys(page(Bound::Unbounded, 3, 1000)),
        ("k0,k1,k4".into(), true)
    );
    assert_eq!(
        keys(page(Bound::Excluded("k4".into()), 100, 1000)),
        ("k5,k6,k7,k8".into(), false)
    );
    assert_eq!(
        keys(page(Bound::Included("k4".into()), 100, 10)),
        ("k4,k5".into(), true)
    );
    assert_eq!(
        keys(page(Bound::Included("k8".into()), 100, 1)),
        ("k8".into(), false),
        "one entry always fits"
    );
}

#[test]
fn a_full_store_still_takes_deletes() {
    let mut store = with_collection(Commits::AtKick, 1 << 20);
    let mut count = 0;
    let refused = loop {
        let t = Transaction::new().write(key(&format!("{count}")), 0, vec![1; 64 << 10]);
        match store.submit(t, Token(count)) {
            Ok(()) => count += 1,
            Err(refused) => break refused,
        }
    };
    assert!(
        matches!(refused, SubmitError::Full { needed, available } if needed > available),
        "{refused:?}"
    );
    assert!(count >= 13, "{count}");
    for i in 0..count {
        store
            .submit(Transaction::new().remove(key(&format!("{i}"))), Token(i))
            .expect("deletes always work");
    }
    assert_eq!(store.usage().used, 0);
}

#[test]
fn misuse_is_refused_before_anything_happens() {
    let mut store = with_collection(Commits::AtKick, u64::MAX);
    let gone = CollectionId(2);
    let t = Transaction::new()
        .touch(key("a"))
        .touch(ObjectKey::new(gone, "x"));
    assert_eq!(
        store.submit(t, Token(1)),
        Err(SubmitError::NoCollection(gone))
    );
    assert_eq!(data(&mut store, "a"), Err(ReadError::NotFound));
    let t = Transaction::new()
        .touch(key("a"))
        .write(key("a"), u64::MAX, vec![1]);
    assert!(matches!(
        store.submit(t, Token(1)),
        Err(SubmitError::OutOfRange { .. })
    ));
    let t = Transaction::new().touch(ObjectKey::new(C, vec![0; 9000]));
    assert!(matches!(
        store.submit(t, Token(1)),
        Err(SubmitError::TooLong { length: 9000, .. })
    ));
    store
        .submit(
            Transaction::new().touch(key("a")).remove_collection(C),
            Token(2),
        )
        .expect("found out when applied");
    assert_eq!(
        events(&mut store).pop(),
        Some(Event::Failed(StoreFailure::CollectionNotEmpty(C)))
    );
    assert_eq!(
        store.submit(Transaction::new(), Token(3)),
        Err(SubmitError::Failed)
    );
}

#[test]
fn rot_is_an_error_until_the_block_is_written_whole() {
    let mut store = with_collection(Commits::AtKick, u64::MAX);
    store
        .submit(
            Transaction::new().write(key("a"), 0, vec![1; 8192]),
            Token(1),
        )
        .expect("valid");
    assert!(store.corrupt(&key("a"), 5000) && !store.corrupt(&key("a"), 9000));
    assert!(matches!(
        data(&mut store, "a"),
        Err(ReadError::Corrupt { offset: 4096, .. })
    ));
    store
        .submit(
            Transaction::new().write(key("a"), 4097, vec![2; 5]),
            Token(2),
        )
        .expect("valid");
    assert!(
        data(&mut store, "a").is_err(),
        "a part of the block is still unknown"
    );
    store
        .submit(
            Transaction::new().write(key("a"), 4096, vec![2; 4096]),
            Token(3),
        )
        .expect("valid");
    assert!(data(&mut store, "a").is_ok());
}
