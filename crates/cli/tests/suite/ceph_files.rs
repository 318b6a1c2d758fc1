//! File systems on a Ceph cluster: the one whose `ceph.conf` the variable `NACRE_TEST_CEPH` names.

use super::files::{lookup, make};
use super::{nacre, prints};
use bytes::Bytes;
use nacre_fs::{Ask, Given};
use nacre_node::FileSystem;
use nacre_rados::CephEngines;
use nacre_types::Ino;
use nacre_wire::fs::FileKind;
use nacre_wire::msg::fs::FsCall;
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const WAIT_MAX: Duration = Duration::from_secs(60);

/// A server's process; killed when dropped.
struct Server(Child);
impl Server {
    fn start(cluster: &str, id: u32) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
        command.args(["--cluster", cluster, "mds", "run", "--id", &id.to_string()]);
        command
            .env_remove("NACRE_CLUSTER")
            .current_dir(env!("CARGO_TARGET_TMPDIR"));
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.expect("the binary starts"))
    }
}
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The cluster, and a file system's name; its pools and keys are removed when dropped.
struct Site {
    cluster: String,
    name: String,
}
impl Site {
    fn text(&self, words: &[&str]) -> String {
        prints(["--cluster", &self.cluster].iter().chain(words))
    }
    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[&["--json"], words].concat())).expect("JSON")
    }
    fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = found() {
                return found;
            }
            assert!(begun.elapsed() < WAIT_MAX, "{what} never comes");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    /// The holder of the rank, such as `mds.1`.
    fn holder(&self) -> Option<String> {
        self.json(&["fs", "status", &self.name])[0]["server"]
            .as_str()
            .map(str::to_owned)
    }
    fn open(&self, conf: &Path) -> FileSystem {
        let engines = Arc::new(CephEngines::find(conf, "admin").expect("there is a cluster"));
        FileSystem::connect_on(engines, "admin", &self.name, "a program").expect("it is served")
    }
}
impl Drop for Site {
    fn drop(&mut self) {
        let (keys, sure) = (format!("fs/{}", self.name), "--yes-i-really-mean-it");
        nacre(["--cluster", &self.cluster, "meta", "rm", "--prefix", &keys]);
        for kind in ["meta", "data"] {
            nacre([
                "--cluster",
                &self.cluster,
                "pool",
                "rm",
                &format!("{}.{kind}", self.name),
                sure,
            ]);
        }
    }
}

fn write(fs: &FileSystem, ino: Ino, text: &'static str) -> Result<Given, u16> {
    fs.call(Ask::Write {
        ino,
        offset: 0,
        data: Bytes::from(text),
    })
}
fn read(fs: &FileSystem, ino: Ino) -> Vec<u8> {
    match fs.call(Ask::Read {
        ino,
        offset: 0,
        length: 100,
    }) {
        Ok(Given::Data(data)) => data.concat(),
        other => panic!("{other:?}"),
    }
}

/// Two servers, one of which dies; a client that is evicted and goes on; a check with a server and
/// without.
#[test]
fn a_file_system_on_ceph_outlives_its_server_and_ends_its_clients() {
    let Some(conf) = std::env::var_os("NACRE_TEST_CEPH") else {
        eprintln!("SKIPPED file systems on Ceph: NACRE_TEST_CEPH names no ceph.conf");
        return;
    };
    let conf = Path::new(&conf);
    let site = Site {
        cluster: format!("ceph:{}", conf.to_str().expect("readable")),
        name: format!("files-{}", std::process::id()),
    };
    let name = &*site.name;
    assert!(
        site.text(&["fs", "create", name])
            .starts_with("made file system")
    );
    let mut servers = [0, 1].map(|id| Some(Server::start(&site.cluster, id)));
    let first = Site::until("a holder", || site.holder());

    let one = site.open(conf);
    let dir = make(&one, Ino::ROOT, "dir", FileKind::Directory {});
    // Among this many names some have hashes with bytes 0 in them.
    let files: Vec<Ino> = (0..100)
        .map(|n| make(&one, dir, &format!("f{n}"), FileKind::File {}))
        .collect();
    write(&one, files[7], "written").expect("written");
    one.call(Ask::Sync { ino: None }).expect("safe");

    // The other server takes over within moments, and the client does not notice.
    let at = usize::from(first == "mds.1");
    drop(servers[at].take());
    write(&one, files[8], "later").expect("written");
    one.call(Ask::Sync { ino: None }).expect("safe");
    let second = site.holder().expect("one has answered");
    assert_ne!(first, second);
    let other = site.open(conf);
    for (n, ino) in files.iter().enumerate() {
        assert_eq!(
            lookup(&other, dir, &format!("f{n}")).map(|found| found.0),
            Some(*ino),
            "f{n}"
        );
    }
    for ino in [files[7], files[8]] {
        other
            .call(Ask::Names(FsCall::Open { ino, write: false }))
            .expect("opened");
    }
    assert_eq!(
        (read(&other, files[7]), read(&other, files[8])),
        (b"written".to_vec(), b"later".to_vec())
    );

    // Operations in flight of an evicted client are not executed; it continues as its next
    // instance.
    let shown = site.json(&["fs", "clients", name]);
    assert!(
        shown
            .as_array()
            .expect("a list")
            .iter()
            .any(|client| client["client"] == one.id().to_string())
    );
    site.text(&["fs", "evict", name, &one.id().to_string()]);
    Site::until("the next instance", || {
        let well = write(&one, files[7], "again").is_ok()
            && one
                .call(Ask::Sync {
                    ino: Some(files[7]),
                })
                .is_ok();
        well.then_some(())
    });
    assert_eq!(read(&other, files[7]), b"againen");
    let check = |words: &[&str]| site.json(&[&["fs", "check", name], words].concat());
    let online = check(&[]);
    assert_eq!(
        (&online["clean"], &online["online"]),
        (&true.into(), &true.into()),
        "{online:#}"
    );
    drop((one, other));

    // A check without a server fences the last one: it was killed.
    drop(servers);
    let offline = check(&["--repair"]);
    assert_eq!(
        (&offline["clean"], &offline["online"]),
        (&true.into(), &false.into()),
        "{offline:#}"
    );
    let dump = site.text(&["fs", "dump", name]);
    assert_eq!(
        dump.lines()
            .filter(|line| line.contains("\"kind\":\"file\""))
            .count(),
        100,
        "{dump}"
    );
}
