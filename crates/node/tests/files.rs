//! File systems on a cluster of processes, through the library: two clients, and servers that are
//! killed.

use crate::folder::{Folder, free_ports, small};
use crate::network::Daemon;
use bytes::Bytes;
use nacre_command::{Command, FenceAdd};
use nacre_fs::{Ask, Given};
use nacre_mds::mds::{MdsConfig, MdsLimits, first_objects};
use nacre_node::{Cluster, Config, Error, FileSystem, OpenOptions, inquire};
use nacre_types::{Ino, Instance, Name, Rank};
use nacre_wire::Wire as _;
use nacre_wire::fs::{FileKind, FsHolder, FsKey, FsSettings, Layout, Stamp, name_hash};
use nacre_wire::msg::fs::{FsAnswer, FsCall, FsChanges, FsNode};
use std::collections::BTreeSet;
use std::future::Future as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Listening address of the second process of servers.
const OTHER_HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));

/// A cluster in processes, with a file system `home` in objects of 64 KiB.
struct Home {
    folder: Folder,
    cluster: Cluster,
    servers: Vec<Daemon>,
    _others: Vec<Daemon>,
}

impl Home {
    fn new(name: &str, servers: u32) -> Self {
        let folder = Folder::new(name);
        let mut config = small(&folder, Some(free_ports(4)));
        // As on another host.
        config.servers.insert(1, OTHER_HOST);
        config.save().expect("the folder is ours");
        let mut others = vec![Daemon::start("mon", 0, folder.path())];
        others.extend((0..3).map(|id| Daemon::start("osd", id, folder.path())));
        let servers = (0..servers)
            .map(|id| Daemon::start("mds", id, folder.path()))
            .collect();
        let cluster = Cluster::connect(folder.path()).expect("a configuration");
        // A pool needs hosts for its replicas: an OSD that is not up has no host in the hierarchy
        // yet.
        let begun = Instant::now();
        while cluster
            .map()
            .wait()
            .expect("a monitor answers")
            .osds
            .values()
            .filter(|osd| osd.up)
            .count()
            < 3
        {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "three OSDs come up"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        let pool = cluster.create_pool("files").wait().expect("a pool");
        let layout = Layout {
            pool: pool.id(),
            unit: 65_536,
            count: 1,
            object: 65_536,
        };
        let namespace = Name::from("home.1");
        let config = MdsConfig {
            rank: Rank(0),
            namespace: namespace.clone(),
            pool: pool.id(),
            layout,
            unix_ms_at_zero: 0,
            limits: MdsLimits::default(),
        };
        for operation in first_objects(&config, Stamp(1)) {
            cluster.operate(operation).wait().expect("it is new");
        }
        let settings = FsSettings {
            namespace,
            pool: pool.id(),
            layout,
            ranks: 1,
        };
        let key = FsKey::Settings.of(&"home".into());
        cluster
            .meta_put(key, settings.to_bytes())
            .wait()
            .expect("a key");
        Self {
            folder,
            cluster,
            servers,
            _others: others,
        }
    }
    /// The registered holder of the first rank.
    fn registered(&self) -> FsHolder {
        self.holder();
        let key = FsKey::Rank(Rank(0)).of(&"home".into());
        let pair = self
            .cluster
            .meta_get(key)
            .wait()
            .expect("the monitors answer")
            .expect("it has a server");
        FsHolder::from_bytes(&pair.value).expect("a holder")
    }
    fn client(&self) -> FileSystem {
        FileSystem::connect(self.folder.path(), "admin", "home").expect("it is served")
    }
    /// Index of the server that has the rank.
    fn holder(&self) -> usize {
        let key = FsKey::Rank(Rank(0)).of(&"home".into());
        let begun = Instant::now();
        loop {
            if let Some(pair) = self
                .cluster
                .meta_get(key.clone())
                .wait()
                .expect("the monitors answer")
            {
                let holder = FsHolder::from_bytes(&pair.value).expect("a holder");
                return holder
                    .name
                    .to_string()
                    .strip_prefix("mds.")
                    .expect("its name")
                    .parse()
                    .expect("a number");
            }
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "no server takes the rank"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn ask(fs: &FileSystem, call: FsCall) -> Result<FsAnswer, u16> {
    fs.call(Ask::Names(call)).map(|given| match given {
        Given::Answer(answer) => answer,
        other => panic!("{other:?}"),
    })
}
fn node(answer: Result<FsAnswer, u16>) -> Result<FsNode, u16> {
    answer.map(|answer| match answer {
        FsAnswer::Node { node, .. } => node,
        other => panic!("{other:?}"),
    })
}
fn make_call(dir: Ino, name: &str, kind: FileKind) -> FsCall {
    let open = matches!(kind, FileKind::File {});
    let (name, target) = (Name::from(name), Bytes::new());
    FsCall::Make {
        dir,
        name,
        kind,
        mode: 0o755,
        umask: 0,
        uid: 1,
        gid: 2,
        target,
        device: 0,
        exclusive: true,
        open,
        write: open,
    }
}
fn make(fs: &FileSystem, dir: Ino, name: &str, kind: FileKind) -> Ino {
    node(ask(fs, make_call(dir, name, kind)))
        .expect("it is made")
        .inode
        .ino
}
fn lookup(fs: &FileSystem, dir: Ino, name: &str) -> Result<FsNode, u16> {
    node(ask(
        fs,
        FsCall::Lookup {
            dir,
            name: Name::from(name),
        },
    ))
}
fn write(fs: &FileSystem, ino: Ino, offset: u64, data: &[u8]) -> Result<Given, u16> {
    fs.call(Ask::Write {
        ino,
        offset,
        data: Bytes::copy_from_slice(data),
    })
}
fn read(fs: &FileSystem, ino: Ino, offset: u64, length: u32) -> Vec<u8> {
    match fs
        .call(Ask::Read {
            ino,
            offset,
            length,
        })
        .expect("it is read")
    {
        Given::Data(parts) => parts.concat(),
        other => panic!("{other:?}"),
    }
}
fn sync(fs: &FileSystem) {
    assert_eq!(fs.call(Ask::Sync { ino: None }), Ok(Given::Done));
}
fn names(fs: &FileSystem, dir: Ino) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let Ok(FsAnswer::Listed { entries, end }) = ask(
            fs,
            FsCall::List {
                dir,
                after,
                bytes_max: 4000,
            },
        ) else {
            panic!("it is a directory")
        };
        after = entries.last().map_or(after, |last| name_hash(&last.name));
        all.extend(entries.into_iter().map(|listed| listed.name.to_string()));
        if end {
            return all;
        }
    }
}

/// One client reads another's writes, in any object of the file; a truncated file reads as zeros
/// where it grows again; an unlinked open file still exists.
#[test]
fn two_clients_share_a_file_system() {
    let home = Home::new("files", 1);
    let (one, other) = (home.client(), home.client());
    let dir = make(&one, Ino::ROOT, "dir", FileKind::Directory {});
    let file = make(&one, dir, "file", FileKind::File {});
    let data: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    write(&one, file, 0, &data).expect("it is written");
    write(&one, file, 500_000, b"the end").expect("it is written");
    sync(&one);

    let found = lookup(&other, dir, "file").expect("it is there");
    assert_eq!((found.inode.ino, found.inode.size), (file, 500_007));
    assert_eq!(write(&other, file, 0, b"x"), Err(9), "it is not open there");
    ask(
        &other,
        FsCall::Open {
            ino: file,
            write: true,
        },
    )
    .expect("it opens");
    assert!(
        read(&other, file, 0, 300_000) == data,
        "it is read as it was written"
    );
    assert_eq!(
        read(&other, file, 299_990, 20),
        [&data[299_990..], &[0; 10]].concat(),
        "a hole has zeros"
    );
    assert_eq!(
        read(&other, file, 499_999, 100),
        b"\0the end",
        "reading ends where the file does"
    );
    assert_eq!(read(&other, file, 600_000, 100), b"");

    let size = |size| FsCall::Set {
        ino: file,
        changes: FsChanges {
            size: Some(size),
            ..FsChanges::default()
        },
    };
    ask(&one, size(70_000)).expect("it is cut off");
    write(&one, file, 140_000, b"again").expect("it is written");
    let zeros = |range: std::ops::Range<usize>| range.map(|_| 0).collect::<Vec<u8>>();
    assert!(
        read(&one, file, 0, 1 << 20)
            == [&data[..70_000], &zeros(70_000..140_000), b"again"].concat()
    );

    ask(
        &one,
        FsCall::Unlink {
            dir,
            name: "file".into(),
            directory: false,
        },
    )
    .expect("it has a name");
    assert_eq!(lookup(&other, dir, "file"), Err(2));
    ask(
        &one,
        FsCall::Close {
            ino: file,
            write: true,
            size: 0,
            mtime: Stamp::default(),
        },
    )
    .expect("it is open");
    // Without capabilities a client learns of another one's changes only by asking.
    ask(&other, FsCall::Stat { ino: file }).expect("it is open");
    assert_eq!(
        read(&other, file, 140_000, 100),
        b"again",
        "the other one has it open"
    );
    assert_eq!(names(&other, Ino::ROOT), ["dir"]);
    assert!(
        matches!(FileSystem::connect(home.folder.path(), "admin", "away"), Err(Error::Command(why))
        if why.contains("there is no file system away"))
    );
}

/// The server is killed while files are created: each call is answered once, and every acknowledged
/// file exists.
#[test]
fn a_server_that_is_killed_is_followed_by_another_one() {
    let mut home = Home::new("takeover", 2);
    let (one, other) = (home.client(), home.client());
    let dir = make(&one, Ino::ROOT, "dir", FileKind::Directory {});
    sync(&one);
    // An operator's query; the next holder does not wait for the querying client.
    let config = Config::load(home.folder.path()).expect("a configuration");
    let told = inquire(
        &config,
        "admin",
        vec![(Rank(0), home.registered())],
        Duration::from_secs(60),
    )
    .expect("it can");
    assert!(
        matches!(told.get(&Rank(0)), Some(figures) if figures.sessions == 2 && figures.bytes > 0),
        "{told:?}"
    );
    let elsewhere = inquire(
        &config,
        "admin",
        vec![(Rank(1), home.registered())],
        Duration::from_millis(300),
    );
    assert!(elsewhere.expect("it can").is_empty(), "it has another rank");
    let open = make(&other, dir, "open", FileKind::File {});
    write(&other, open, 0, b"kept").expect("it is written");
    ask(
        &other,
        FsCall::Unlink {
            dir,
            name: "open".into(),
            directory: false,
        },
    )
    .expect("it has a name");
    sync(&other);
    for round in 0..2 {
        let mut expected: BTreeSet<String> = names(&one, dir).into_iter().collect();
        let (sender, receiver) = std::sync::mpsc::channel();
        for n in 0..400 {
            let name = format!("{round}.{n}");
            let sender = sender.clone();
            let call = make_call(dir, &name, FileKind::Symlink {});
            if n == 200 {
                let holder = home.holder();
                let host = home
                    .registered()
                    .address
                    .0
                    .parse::<SocketAddr>()
                    .expect("an address")
                    .ip();
                assert_eq!(
                    host == OTHER_HOST,
                    holder == 1,
                    "mds.{holder} listens at {host}"
                );
                home.servers[holder].kill();
                home.servers[holder] = Daemon::start("mds", holder as u32, home.folder.path());
            }
            one.ask(Ask::Names(call), move |outcome| {
                drop(sender.send((name, outcome)))
            });
        }
        drop(sender);
        for _ in 0..400 {
            let (name, outcome) = receiver
                .recv_timeout(Duration::from_secs(120))
                .expect("each is answered");
            assert!(outcome.is_ok(), "{name}: {outcome:?}");
            expected.insert(name);
        }
        sync(&one);
        let there = names(&other, dir);
        assert_eq!(there.len(), expected.len(), "none is there twice");
        assert!(there.into_iter().collect::<BTreeSet<_>>() == expected);
        assert_eq!(
            read(&other, open, 0, 100),
            b"kept",
            "what has no name is there while it is open"
        );
    }
}

/// A file is created without a name, written, and linked, while servers are killed; another one is
/// closed without a link, and is removed.
#[test]
fn a_file_without_a_name_outlives_its_server() {
    let mut home = Home::new("unnamed", 2);
    let (one, other) = (home.client(), home.client());
    let dir = make(&one, Ino::ROOT, "dir", FileKind::Directory {});
    let close = |ino| FsCall::Close {
        ino,
        write: true,
        size: 0,
        mtime: Stamp::default(),
    };
    for round in 0..3 {
        let (file, gone) = (
            make(&one, dir, "", FileKind::File {}),
            make(&one, dir, "", FileKind::File {}),
        );
        let data = vec![round + 1; 150_000];
        write(&one, file, 0, &data).expect("it is written");
        // It may be in the journal or not.
        if round > 0 {
            sync(&one);
        }
        let holder = home.holder();
        home.servers[holder].kill();
        home.servers[holder] = Daemon::start("mds", holder as u32, home.folder.path());
        assert_eq!(
            node(ask(&one, FsCall::Stat { ino: file })).map(|node| node.inode.links),
            Ok(0)
        );
        let name = Name::from(&*format!("named.{round}"));
        let named = node(ask(
            &one,
            FsCall::Link {
                ino: file,
                dir,
                name: name.clone(),
            },
        ))
        .expect("it is open");
        assert_eq!((named.inode.links, named.inode.size), (1, 150_000));
        ask(&one, close(file)).expect("it is open");
        if round == 2 {
            let holder = home.holder();
            home.servers[holder].kill();
            home.servers[holder] = Daemon::start("mds", holder as u32, home.folder.path());
        }
        ask(&one, close(gone)).expect("it is open");
        let found = node(ask(&other, FsCall::Lookup { dir, name })).expect("it is there");
        assert_eq!(found.inode.ino, file);
        ask(
            &other,
            FsCall::Open {
                ino: file,
                write: false,
            },
        )
        .expect("it opens");
        assert!(read(&other, file, 0, 1 << 20) == data);
        // A close is sent a moment later, and before the next request.
        sync(&one);
        assert_eq!(
            ask(
                &other,
                FsCall::Open {
                    ino: gone,
                    write: false
                }
            ),
            Err(116),
            "no name leads to it"
        );
    }
    assert_eq!(names(&other, dir).len(), 3);
}

/// Its pending calls fail, and then it continues as its next instance: for the OSDs, the monitors
/// and the server.
#[test]
fn a_client_that_is_fenced_goes_on() {
    let home = Home::new("fenced", 1);
    let (one, other) = (home.client(), home.client());
    let file = make(&one, Ino::ROOT, "file", FileKind::File {});
    ask(
        &other,
        FsCall::Open {
            ino: file,
            write: true,
        },
    )
    .expect("it opens");
    for instance in 1..3 {
        write(&one, file, 0, b"before").expect("it is written");
        sync(&one);
        let fence = Command::FenceAdd(FenceAdd::of(one.id(), Instance(instance)));
        home.cluster.command(&fence).wait().expect("it is fenced");
        // An OSD may not have the map yet.
        let begun = Instant::now();
        while write(&one, file, 0, b"lost??") != Err(5) {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "it is not refused"
            );
        }
        write(&one, file, 0, b"behind").expect("as the next instance");
        sync(&one);
        ask(&other, FsCall::Stat { ino: file }).expect("it is open");
        assert_eq!(read(&other, file, 0, 100), b"behind");
        let name = format!("more.{instance}");
        make(&one, Ino::ROOT, &name, FileKind::Directory {});
        assert!(lookup(&other, Ino::ROOT, &name).is_ok());
    }
}

/// Paths with links and `..`, reads and writes at offsets, and errors that name the failed
/// operation.
#[test]
fn programs_use_paths_as_in_the_standard_library() {
    let home = Home::new("paths", 1);
    let open = || FileSystem::open(home.folder.path(), "home").expect("it is served");
    let (one, other) = (open(), open());
    let errno = |why: Error| match why {
        Error::File { errno, .. } => errno,
        why => panic!("{why}"),
    };
    one.create_dir("/a").wait().expect("it is new");
    one.create_dir("a/b").wait().expect("it is new");
    one.write("a/b/file", vec![7; 3 << 20])
        .wait()
        .expect("there is room");
    one.symlink("b/../b", "a/link").wait().expect("it is new");
    one.symlink("/a/link/file", "absolute")
        .wait()
        .expect("it is new");
    one.symlink("loop", "loop").wait().expect("it is new");
    assert_eq!(one.read_link("a/link").wait().expect("a link"), "b/../b");

    // The other client sees it, by either path.
    for path in [
        "a/b/file",
        "/a//b/./file",
        "a/link/file",
        "a/b/../link/file",
        "absolute",
        "../a/b/file",
    ] {
        assert_eq!(
            other.metadata(path).wait().expect(path).size,
            3 << 20,
            "{path}"
        );
        assert!(
            other.read(path).wait().expect(path) == vec![7; 3 << 20],
            "{path}"
        );
    }
    assert_eq!(
        other
            .symlink_metadata("absolute")
            .wait()
            .expect("a link")
            .kind,
        FileKind::Symlink {}
    );
    for (path, expected) in [
        ("a/none", 2),
        ("none/file", 2),
        ("a/b/file/more", 20),
        ("a/b/file/", 20),
        ("loop", 40),
    ] {
        assert_eq!(
            other.metadata(path).wait().map_err(errno),
            Err(expected),
            "{path}"
        );
    }
    assert_eq!(
        errno(
            other
                .create_dir("x".repeat(256))
                .wait()
                .expect_err("too long")
        ),
        36
    );
    let why = other
        .open_file("a/none")
        .wait()
        .map(drop)
        .expect_err("there is none")
        .to_string();
    assert!(why.starts_with("cannot open a/none: No such file"), "{why}");

    let exclusive = OpenOptions {
        write: true,
        create: true,
        exclusive: true,
        ..OpenOptions::default()
    };
    assert_eq!(
        one.open_with("absolute", exclusive)
            .wait()
            .map(drop)
            .map_err(errno),
        Err(17),
        "a link is there"
    );
    let file = one.open_with("a/new", exclusive).wait().expect("it is new");
    file.write_at(5, "world").wait().expect("there is room");
    file.append("!").wait().expect("there is room");
    assert_eq!(
        file.read_at(0, 100).wait().expect("it is open"),
        "\0\0\0\0\0world!"
    );
    file.set_len(8).wait().expect("it is open");
    file.sync_all().wait().expect("it is safe");
    let both = other.open_file("a/new").wait().expect("it is there");
    assert_eq!(both.read_at(4, 100).wait().expect("it is open"), "\0wor");
    assert_eq!(file.metadata().wait().expect("it is open").size, 8);
    let copy = |offset, at, length| {
        file.copy_from(&file, offset, at, length)
            .wait()
            .map_err(errno)
    };
    assert_eq!(
        (copy(5, 0, 3), copy(8, 0, 9), copy(1, 2, 3)),
        (Ok(3), Ok(0), Err(22))
    );
    assert_eq!(
        both.copy_from(&both, 0, 9, 1).wait().map_err(errno),
        Err(9),
        "it is open for reading"
    );
    assert_eq!(
        file.copy_from(&both, 0, 9, 1).wait().map_err(errno),
        Err(18),
        "another client's"
    );
    assert_eq!(
        both.read_at(0, 100).wait().expect("it is open"),
        "wor\0\0wor"
    );
    file.write_at(0, "\0\0\0").wait().expect("there is room");
    file.close().wait().expect("nothing has failed");

    other.hard_link("a/new", "twice").wait().expect("it is new");
    other
        .rename("twice", "a/b/moved")
        .wait()
        .expect("it is there");
    one.remove_file("a/new").wait().expect("it is there");
    assert_eq!(
        one.metadata("a/b/moved")
            .wait()
            .expect("one name is left")
            .links,
        1
    );
    let mut listed: Vec<(String, u64)> = one
        .read_dir("a/b")
        .wait()
        .expect("a directory")
        .into_iter()
        .map(|entry| (entry.name.to_string(), entry.inode.size))
        .collect();
    listed.sort();
    assert_eq!(
        listed,
        [("file".to_owned(), 3 << 20), ("moved".to_owned(), 8)]
    );
    assert_eq!(
        errno(one.remove_dir("a/b").wait().expect_err("two are in it")),
        39
    );

    // Objects are copied inside the cluster: holes of the source are holes of the target.
    let source = one
        .open_with("a/holes", exclusive)
        .wait()
        .expect("it is new");
    let target = one
        .open_with("a/copy", exclusive)
        .wait()
        .expect("it is new");
    let end = (10 << 16) + 100_000;
    let mut all = vec![0; end];
    all[..100_000].fill(7);
    all[10 << 16..].fill(8);
    for from in [0, 10 << 16] {
        source
            .write_at(from as u64, all[from..from + 100_000].to_vec())
            .wait()
            .expect("room");
    }
    target
        .write_at(0, vec![9; 1 << 20])
        .wait()
        .expect("there is room");
    all.resize(1 << 20, 9);
    let mut at = 0;
    loop {
        match target
            .copy_from(&source, at, at, 1 << 30)
            .wait()
            .expect("there is room")
        {
            0 => break,
            copied => at += copied,
        }
    }
    assert_eq!(at, end as u64);
    let seek = |hole| {
        one.call(Ask::Seek {
            ino: target.ino(),
            offset: 70_000,
            hole,
        })
    };
    assert_eq!(
        seek(true),
        Ok(Given::Offset(100_000)),
        "what passes a client is data"
    );
    let seek = |offset| {
        one.call(Ask::Seek {
            ino: target.ino(),
            offset,
            hole: false,
        })
    };
    assert_eq!(seek(100_001), Ok(Given::Offset(10 << 16)));
    assert!(other.read("a/copy").wait().expect("it is there") == all);
    source.close().wait().expect("nothing has failed");
    target.close().wait().expect("nothing has failed");

    // Both are in flight at once, without an executor.
    let mut both = [
        Box::pin(one.read("a/b/moved")),
        Box::pin(one.read("absolute")),
    ];
    let mut lengths = [None; 2];
    let begun = Instant::now();
    while lengths.contains(&None) {
        assert!(begun.elapsed() < Duration::from_secs(60), "both are read");
        for (call, length) in both
            .iter_mut()
            .zip(&mut lengths)
            .filter(|(_, length)| length.is_none())
        {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            if let std::task::Poll::Ready(data) = call.as_mut().poll(&mut context) {
                *length = Some(data.expect("it is there").len());
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(lengths, [Some(8), Some(3 << 20)]);
    one.sync_all().wait().expect("all is safe");
}

/// CEPH-11: programs that share a file and order their accesses themselves keep their caches and
/// delayed writes, though several write it.
#[test]
fn who_writes_a_file_lazily_says_when_others_are_to_see_it() {
    const ALL: u64 = u64::MAX;
    let home = Home::new("files-lazy", 1);
    let (one, other) = (home.client(), home.client());
    let options = OpenOptions {
        write: true,
        create: true,
        lazy: true,
        ..OpenOptions::default()
    };
    let open = |fs: &FileSystem| {
        fs.open_with("shared", options)
            .wait()
            .expect("it is opened")
    };
    let (a, b) = (open(&one), open(&other));
    a.write_at(0, vec![1; 8192]).wait().expect("it is kept");
    a.propagate(0, ALL).wait().expect("others may see it");
    assert_eq!(b.read_at(0, 9000).wait().expect("it reads"), vec![1; 8192]);
    a.write_at(0, vec![2; 100]).wait().expect("it is kept");
    a.propagate(0, 100).wait().expect("others may see it");
    assert_eq!(
        b.read_at(0, 100).wait().expect("it reads"),
        vec![1; 100],
        "it has that already"
    );
    b.synchronize(0, 4096).wait().expect("it forgets that");
    assert_eq!(
        b.read_at(0, 200).wait().expect("it reads"),
        [vec![2; 100], vec![1; 100]].concat()
    );
    // Different bytes of one block.
    a.write_at(200, vec![3; 10]).wait().expect("it is kept");
    b.write_at(210, vec![4; 10]).wait().expect("it is kept");
    assert_eq!(
        b.read_at(200, 20).wait().expect("it reads"),
        [vec![1; 10], vec![4; 10]].concat(),
        "its own at once"
    );
    a.propagate(200, 10).wait().expect("others may see it");
    b.synchronize(200, 20).wait().expect("both");
    a.synchronize(200, 20).wait().expect("both");
    for file in [&a, &b] {
        assert_eq!(
            file.read_at(199, 21).wait().expect("it reads"),
            [vec![1], vec![3; 10], vec![4; 10]].concat()
        );
    }
    // The size of the file.
    b.write_at(20_000, vec![5; 10]).wait().expect("it is kept");
    assert_eq!(
        b.metadata().wait().expect("its attributes").size,
        20_010,
        "it knows what it wrote"
    );
    b.propagate(20_000, 10).wait().expect("others may see it");
    assert_eq!(a.metadata().wait().expect("its attributes").size, 20_010);
    assert_eq!(
        a.metadata_lite().wait().expect("its attributes").size,
        20_010
    );
    assert_eq!(
        one.metadata_lite("shared")
            .wait()
            .expect("its attributes")
            .size,
        20_010
    );
    assert_eq!(a.read_at(20_000, 99).wait().expect("it reads"), vec![5; 10]);
    // A user without the lazy flag ends it for its client.
    a.write_at(0, vec![6; 10]).wait().expect("it is kept");
    b.synchronize(0, ALL).wait().expect("it forgets all");
    b.read_at(0, 10).wait().expect("it reads");
    let strict = one.open_file("shared").wait().expect("it is opened");
    assert_eq!(strict.read_at(210, 1).wait().expect("it reads"), vec![4]);
    b.synchronize(0, ALL).wait().expect("it forgets all");
    assert_eq!(
        b.read_at(0, 11).wait().expect("it reads"),
        [vec![6; 10], vec![2]].concat(),
        "it was written for that"
    );
    b.write_at(1, vec![7]).wait().expect("it is kept");
    b.close().wait().expect("all is written");
    assert_eq!(
        strict.read_at(0, 3).wait().expect("it reads"),
        vec![6, 7, 6]
    );
}
