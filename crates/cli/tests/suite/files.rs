//! File systems through the command line: checked and repaired while they are served and on a
//! stopped cluster; their clients listed and evicted.

use super::operator::Site;
use bytes::Bytes;
use nacre_fs::{Ask, Given};
use nacre_node::{Cluster, FileSystem};
use nacre_types::{Ino, Name, Rank};
use nacre_wire::Wire as _;
use nacre_wire::fs::{FileKind, FsKey, FsSettings};
use nacre_wire::msg::fs::{FsAnswer, FsCall};
use serde_json::Value;

/// Creates a file, open, or a directory.
pub fn make(fs: &FileSystem, dir: Ino, name: &str, kind: FileKind) -> Ino {
    let open = matches!(kind, FileKind::File {});
    let (name, target) = (Name::from(name), Bytes::new());
    let call = FsCall::Make {
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
    };
    match fs.call(Ask::Names(call)) {
        Ok(Given::Answer(FsAnswer::Node { node, .. })) => node.inode.ino,
        other => panic!("{other:?}"),
    }
}
/// Its number and size.
pub fn lookup(fs: &FileSystem, dir: Ino, name: &str) -> Option<(Ino, u64)> {
    match fs.call(Ask::Names(FsCall::Lookup {
        dir,
        name: Name::from(name),
    })) {
        Ok(Given::Answer(FsAnswer::Node { node, .. })) => Some((node.inode.ino, node.inode.size)),
        _ => None,
    }
}
/// A check's exit code, and its output.
fn check(site: &Site, more: &[&str]) -> (Option<i32>, Value) {
    let output = site.run(&[&["--json", "fs", "check", "home"], more].concat());
    let said = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code(), said)
}
fn kinds(said: &Value) -> Vec<&str> {
    let findings = said["findings"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    findings
        .iter()
        .map(|finding| finding["kind"].as_str().expect("a kind"))
        .collect()
}

/// A client that an operator evicts is told, and continues.
#[test]
fn clients_are_shown_and_evicted() {
    let site = Site::new("clients", 17);
    site.up(&["--mons", "1", "--osds", "1"]);
    site.text(&["fs", "create", "home"]);
    let fs =
        FileSystem::connect_for(site.dir(), "admin", "home", "a program").expect("it is served");
    let file = make(&fs, Ino::ROOT, "file", FileKind::File {});
    let shown: Value =
        serde_json::from_str(&site.text(&["--json", "fs", "clients", "home"])).expect("JSON");
    let [client] = &shown.as_array().expect("a list")[..] else {
        panic!("{shown:#}")
    };
    assert_eq!(
        (&client["about"], &client["open"], &client["writing"]),
        (&"a program".into(), &1.into(), &1.into())
    );
    assert_eq!(client["client"], fs.id().to_string());
    assert!(
        !site
            .run(&["fs", "evict", "home", "client.0"])
            .status
            .success(),
        "there is none"
    );
    site.text(&["fs", "evict", "home", &fs.id().to_string()]);
    // It begins a new session before it answers.
    let write = |text: &'static str| {
        fs.call(Ask::Write {
            ino: file,
            offset: 0,
            data: Bytes::from(text),
        })
    };
    let begun = std::time::Instant::now();
    while write("more").is_err() || fs.call(Ask::Sync { ino: Some(file) }).is_err() {
        assert!(
            begun.elapsed() < std::time::Duration::from_secs(60),
            "it does not come back"
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let read = fs.call(Ask::Read {
        ino: file,
        offset: 0,
        length: 9,
    });
    assert_eq!(read, Ok(Given::Data(vec![Bytes::from("more")])));
}

/// A quota applies at once to a program that has the file open already, and ends when it is
/// removed.
#[test]
fn quotas_are_set_shown_and_removed() {
    let site = Site::new("quotas", 40);
    site.up(&["--mons", "1", "--osds", "1"]);
    site.text(&["fs", "create", "home"]);
    let fs =
        FileSystem::connect_for(site.dir(), "admin", "home", "a program").expect("it is served");
    let dir = make(&fs, Ino::ROOT, "dir", FileKind::Directory {});
    let file = make(&fs, dir, "file", FileKind::File {});
    let write = |length| {
        fs.call(Ask::Write {
            ino: file,
            offset: 0,
            data: Bytes::from(vec![7; length]),
        })
    };
    assert_eq!(write(5000), Ok(Given::Done));
    assert!(
        !site
            .run(&["fs", "quota", "set", "home", "/dir"])
            .status
            .success(),
        "of what?"
    );
    assert!(
        !site
            .run(&["fs", "quota", "set", "home", "/none", "--files", "1"])
            .status
            .success(),
        "there is none"
    );
    site.text(&[
        "fs", "quota", "set", "home", "/dir", "--bytes", "8KiB", "--files", "1",
    ]);
    assert_eq!((write(8193), write(8192)), (Err(122), Ok(Given::Done)));
    assert_eq!(fs.call(Ask::Sync { ino: Some(file) }), Ok(Given::Done));
    let shown: Value =
        serde_json::from_str(&site.text(&["--json", "fs", "quota", "get", "home", "dir"]))
            .expect("JSON");
    assert_eq!(
        shown["bytes"],
        serde_json::json!({ "max": 8192, "used": 8192, "left": 0 }),
        "{shown:#}"
    );
    assert_eq!(shown["files"]["left"], 0);
    let shown = site.text(&["fs", "quota", "rm", "home", "/dir", "--bytes"]);
    assert!(
        shown.contains("files") && !shown.contains("bytes"),
        "{shown}"
    );
    assert_eq!(write(8193), Ok(Given::Done));
}

/// Its own pools are removed with it, and from another pool its own objects; a new file system of
/// its name is empty.
#[test]
fn a_file_system_is_removed_with_what_it_had() {
    let site = Site::new("removed", 38);
    site.up(&["--mons", "1", "--osds", "1"]);
    site.put("mine", "stays");
    site.text(&["fs", "create", "home"]);
    site.text(&[
        "fs",
        "create",
        "other",
        "--metadata-pool",
        "data",
        "--data-pool",
        "data",
    ]);
    let write = |name: &str| {
        let fs = FileSystem::connect(site.dir(), "admin", name).expect("it is served");
        let file = make(&fs, Ino::ROOT, "file", FileKind::File {});
        assert_eq!(
            fs.call(Ask::Write {
                ino: file,
                offset: 0,
                data: Bytes::from_static(b"x")
            }),
            Ok(Given::Done)
        );
        assert_eq!(fs.call(Ask::Sync { ino: None }), Ok(Given::Done));
        fs
    };
    let fs = write("home");
    assert!(
        site.fails(&["fs", "rm", "home"])
            .contains("--yes-i-really-mean-it")
    );
    let used = site.fails(&["fs", "rm", "home", "--yes-i-really-mean-it"]);
    assert!(used.contains(&fs.id().to_string()), "{used}");
    drop(fs);
    site.text(&["fs", "rm", "home", "--yes-i-really-mean-it"]);
    assert!(
        site.fails(&["fs", "status", "home"])
            .contains("there is no file system home")
    );
    assert!(
        site.fails(&["fs", "rm", "home", "--yes-i-really-mean-it"])
            .contains("there is no file system home")
    );
    let pools = site.text(&["pool", "ls"]);
    assert!(
        !pools.contains("home.") && pools.contains("data"),
        "{pools}"
    );

    drop(write("other"));
    let removed = site.json(&["fs", "rm", "other", "--yes-i-really-mean-it"]);
    assert!(
        removed["objects"].as_u64() > Some(5) && removed["pools"] == Value::Array(Vec::new()),
        "{removed}"
    );
    let left = site.text(&["object", "ls", "data"]);
    assert_eq!(
        left.lines()
            .filter(|line| line.contains("dir.") || line.contains("journal."))
            .count(),
        0,
        "{left}"
    );
    assert!(left.contains("mine"), "{left}");
    assert_eq!(site.json(&["fs", "ls"]), Value::Array(Vec::new()));

    site.text(&["fs", "create", "home"]);
    let fs = FileSystem::connect(site.dir(), "admin", "home").expect("it is served");
    assert_eq!(lookup(&fs, Ino::ROOT, "file"), None);
    drop(fs);

    // A pool named after it may hold other objects: `fs rm` removed them all.
    drop(write("home"));
    site.put_into("home.data", "others", "stays");
    let removed = site.json(&["fs", "rm", "home", "--yes-i-really-mean-it"]);
    assert_eq!(
        removed["pools"],
        serde_json::json!(["home.meta"]),
        "{removed}"
    );
    assert_eq!(site.text(&["object", "ls", "home.data"]).lines().count(), 1);
    assert_eq!(
        site.text(&["object", "get", "home.data", "others", "-"]),
        "stays"
    );

    // A namespace with the same prefix is not its own, either.
    site.text(&["object", "rm", "home.data", "others"]);
    site.text(&[
        "object",
        "omap",
        "set",
        "home.data",
        "others",
        "key",
        "value",
        "--namespace",
        "home.backup",
    ]);
    site.text(&["fs", "create", "home"]);
    let removed = site.json(&["fs", "rm", "home", "--yes-i-really-mean-it"]);
    assert_eq!(
        removed["pools"],
        serde_json::json!(["home.meta"]),
        "{removed}"
    );
}

/// Another rank's server serves the contents of its directory; names move between them, and all are
/// there after a restart.
#[test]
fn several_servers_share_a_file_system() {
    let site = Site::new("ranks", 39);
    site.up(&["--mons", "1", "--osds", "1"]);
    site.text(&["fs", "create", "home", "--ranks", "2"]);
    let served = |ranks: usize| {
        let begun = std::time::Instant::now();
        loop {
            let all = site.json(&["fs", "status", "home"]);
            let states = all
                .as_array()
                .expect("a list")
                .iter()
                .filter(|rank| rank["state"] == "served");
            if states.count() == ranks {
                return;
            }
            assert!(
                begun.elapsed() < std::time::Duration::from_secs(60),
                "{all:#}"
            );
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    };
    served(2);
    let fs = FileSystem::connect(site.dir(), "admin", "home").expect("it is served");
    make(&fs, Ino::ROOT, "there", FileKind::Directory {});
    let here = make(&fs, Ino::ROOT, "here", FileKind::Directory {});
    make(&fs, here, "something", FileKind::File {});
    for (path, rank, why) in [
        ("/", "1", "the root stays"),
        ("/nowhere", "1", "there is no directory"),
        ("/here", "1", "there is something in /here"),
        ("/here/something", "1", "is no directory"),
        ("/there", "2", "nacre fs ranks home N"),
    ] {
        let said = site.fails(&["fs", "subtree", "pin", "home", path, rank]);
        assert!(said.contains(why), "{path}: {said}");
    }
    site.text(&["fs", "subtree", "pin", "home", "/there", "1"]);
    let (there, _) = lookup(&fs, Ino::ROOT, "there").expect("it is another one");
    assert_eq!(there.rank(), Rank(1));
    let file = make(&fs, there, "file", FileKind::File {});
    assert_eq!(file.rank(), Rank(1));
    let text = Bytes::from_static(b"of the second rank");
    assert_eq!(
        fs.call(Ask::Write {
            ino: file,
            offset: 0,
            data: text.clone()
        }),
        Ok(Given::Done)
    );
    let names = |call: FsCall| fs.call(Ask::Names(call)).map(drop);
    let (name, to_name) = (Name::from("file"), Name::from("moved"));
    assert_eq!(
        names(FsCall::Rename {
            dir: there,
            name,
            to_dir: here,
            to_name,
            flags: 0
        }),
        Ok(())
    );
    assert_eq!(
        names(FsCall::Link {
            ino: file,
            dir: there,
            name: "linked".into()
        }),
        Ok(())
    );
    let directory = FsCall::Rename {
        dir: Ino::ROOT,
        name: "here".into(),
        to_dir: there,
        to_name: "here".into(),
        flags: 0,
    };
    assert_eq!(names(directory), Err(18), "a directory stays in its part");
    assert_eq!(lookup(&fs, there, "file"), None);
    assert_eq!(lookup(&fs, here, "moved").map(|(ino, _)| ino), Some(file));
    assert_eq!(fs.call(Ask::Sync { ino: None }), Ok(Given::Done));
    assert_eq!(check(&site, &[]).0, Some(0));

    assert!(
        site.fails(&["fs", "ranks", "home", "1"])
            .contains("cannot have fewer")
    );
    site.text(&["fs", "ranks", "home", "3"]);
    served(3);
    site.text(&["fs", "subtree", "pin", "home", "/there", "1"]);
    // The first rank's server knew of two ranks.
    make(&fs, Ino::ROOT, "third", FileKind::Directory {});
    site.text(&["fs", "subtree", "pin", "home", "/third", "2"]);
    assert_eq!(
        lookup(&fs, Ino::ROOT, "third").map(|(ino, _)| ino.rank()),
        Some(Rank(2))
    );
    drop(fs);
    site.text(&["down"]);
    let (code, said) = check(&site, &[]);
    assert_eq!((code, kinds(&said)), (Some(0), vec![]), "{said:#}");
    site.up(&[]);
    let fs = FileSystem::connect(site.dir(), "admin", "home").expect("it is served");
    assert_eq!(
        lookup(&fs, there, "linked"),
        Some((file, text.len() as u64))
    );
    let open = FsCall::Open {
        ino: file,
        write: false,
    };
    assert!(fs.call(Ask::Names(open)).is_ok());
    assert_eq!(
        fs.call(Ask::Read {
            ino: file,
            offset: 0,
            length: 99
        }),
        Ok(Given::Data(vec![text]))
    );
}

#[test]
fn a_file_system_is_checked_and_repaired_while_it_is_served_and_when_it_is_not() {
    let site = Site::new("files", 11);
    site.up(&["--mons", "1", "--osds", "1"]);
    site.text(&["fs", "create", "home"]);
    let open = || FileSystem::connect(site.dir(), "admin", "home").expect("it is served");
    let fs = open();
    let dir = make(&fs, Ino::ROOT, "dir", FileKind::Directory {});
    let file = make(&fs, dir, "file", FileKind::File {});
    let data = Bytes::from_static(b"some data");
    assert_eq!(
        fs.call(Ask::Write {
            ino: file,
            offset: 0,
            data
        }),
        Ok(Given::Done)
    );
    assert_eq!(fs.call(Ask::Sync { ino: None }), Ok(Given::Done));

    // It is only in the server's memory and journal, and written for the check.
    let (code, said) = check(&site, &[]);
    assert_eq!(
        (code, &said["online"], kinds(&said).len()),
        (Some(0), &Value::Bool(true), 0),
        "{said:#}"
    );
    let counts = &said["counts"];
    assert_eq!(
        (&counts["directories"], &counts["files"], &counts["bytes"]),
        (&2.into(), &1.into(), &9.into())
    );
    // Its first object holds its backpointer.
    assert_eq!(counts["backpointers"], 1, "{said:#}");
    let dump = site.text(&["fs", "dump", "home"]);
    let rows: Vec<Value> = dump
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let row = rows
        .iter()
        .find(|row| row["name"] == "file")
        .expect("it is there");
    assert_eq!((&row["size"], &row["mode"]), (&9.into(), &"755".into()));

    // Data that belong to no file.
    let cluster = Cluster::connect(site.dir()).expect("a configuration");
    let settings = cluster
        .meta_get(FsKey::Settings.of(&"home".into()))
        .wait()
        .expect("an answer")
        .expect("a key");
    let settings = FsSettings::from_bytes(&settings.value).expect("settings");
    let content = site.dir().join("content");
    std::fs::write(&content, "lost").expect("writable");
    let namespace = settings.namespace.to_string();
    let content = content.to_str().expect("readable");
    let lose = |name: &str| {
        site.text(&[
            "object",
            "put",
            "home.data",
            name,
            content,
            "--namespace",
            &namespace,
        ])
    };
    lose("fffff00000.00000000");
    let (code, said) = check(&site, &[]);
    assert_eq!(
        (code, kinds(&said)),
        (Some(1), vec!["data-orphan"]),
        "{said:#}"
    );

    // A repair needs it exclusively: its server releases it for a while, and clients continue.
    let data = Bytes::from_static(b"other data, kept by its client");
    assert_eq!(
        fs.call(Ask::Write {
            ino: file,
            offset: 0,
            data: data.clone()
        }),
        Ok(Given::Done)
    );
    let (code, said) = check(&site, &["--repair"]);
    assert_eq!(
        (code, &said["clean"], &said["online"]),
        (Some(0), &true.into(), &false.into()),
        "{said:#}"
    );
    assert_eq!(fs.call(Ask::Sync { ino: Some(file) }), Ok(Given::Done));
    assert_eq!(
        fs.call(Ask::Read {
            ino: file,
            offset: 0,
            length: 99
        }),
        Ok(Given::Data(vec![data]))
    );
    let (lost, _) = lookup(&fs, Ino::ROOT, "lost+found").expect("it was made");
    assert_eq!(
        lookup(&fs, lost, "fffff00000"),
        Some((Ino(0xff_fff0_0000), 4))
    );
    let (code, said) = check(&site, &["--repair"]);
    assert_eq!(
        (code, &said["online"]),
        (Some(0), &true.into()),
        "nothing is to be done: {said:#}"
    );

    assert_eq!(site.run(&["fs", "check", "nowhere"]).status.code(), Some(2));
    assert_eq!(
        site.run(&["fs", "rebuild", "home"]).status.code(),
        Some(2),
        "not while it is served"
    );
    lose("fffff00001.00000000");
    drop((fs, cluster));
    site.text(&["down"]);
    let (code, said) = check(&site, &[]);
    assert_eq!(
        (code, &said["online"], kinds(&said)),
        (Some(1), &Value::Bool(false), vec!["data-orphan"]),
        "{said:#}"
    );
    let (code, said) = check(&site, &["--repair"]);
    assert_eq!(
        (code, &said["clean"]),
        (Some(0), &Value::Bool(true)),
        "{said:#}"
    );
    let (code, said) = check(&site, &[]);
    assert_eq!((code, kinds(&said).len()), (Some(0), 0), "{said:#}");

    site.up(&[]);
    let fs = open();
    assert_eq!(
        lookup(&fs, lost, "fffff00001"),
        Some((Ino(0xff_fff0_0001), 4))
    );
    assert_eq!(lookup(&fs, dir, "file"), Some((file, 30)));
    make(&fs, Ino::ROOT, "new", FileKind::Directory {});
    drop(fs);
    let (code, said) = check(&site, &[]);
    assert_eq!(code, Some(0), "{said:#}");
}
