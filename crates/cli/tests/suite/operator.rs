//! A cluster's lifetime through the command line: up and down in all forms, members added and
//! removed, damage, mistakes.
//!
//! Each test has its directory and its ports; all its processes are stopped at its end, also when
//! it fails.

use super::errors::fails;
use super::{nacre, scratch};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A cluster's directory. When dropped, everything that runs there is stopped.
pub struct Site {
    dir: PathBuf,
    port: u16,
    by_hand: Vec<Child>,
}

impl Site {
    /// `number`: unique per test, for its ports.
    pub fn new(name: &str, number: u16) -> Self {
        let dir = scratch(&format!("operator-{name}"));
        // From an earlier run that was killed.
        let _ = nacre(["down", "--dir", dir.to_str().expect("readable")]);
        let _ = std::fs::remove_dir_all(&dir);
        // Tests of several checkouts may run at once.
        let port = 21_000 + number * 40 + (std::process::id() % 2) as u16 * 20;
        let is_free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
        let port = (0..20)
            .map(|n| port + n * 1_000)
            .find(|base| (*base..base + 12).all(is_free))
            .expect("free ports");
        Self {
            dir,
            port,
            by_hand: Vec::new(),
        }
    }
    pub fn arguments<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [
            &["--cluster", self.dir.to_str().expect("readable")][..],
            more,
        ]
        .concat()
    }
    pub fn run(&self, more: &[&str]) -> Output {
        nacre(self.arguments(more))
    }
    /// Output of a command that must succeed.
    pub fn text(&self, more: &[&str]) -> String {
        let output = self.run(more);
        assert!(
            output.status.success(),
            "{more:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("text")
    }
    pub fn json(&self, more: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[&["--json"], more].concat()))
            .expect("JSON and nothing else")
    }
    pub fn fails(&self, more: &[&str]) -> String {
        fails(&self.arguments(more)).0
    }
    /// First of this test's ports.
    pub const fn port(&self) -> u16 {
        self.port
    }
    /// The cluster's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
    pub fn up(&self, more: &[&str]) {
        let port = self.port.to_string();
        self.text(&[&["up", "--detach", "--base-port", &port], more].concat());
    }
    pub fn pid(&self, who: &str) -> u32 {
        let text =
            std::fs::read_to_string(self.dir.join(format!("run/{who}.pid"))).expect("a pid file");
        text.trim().parse().expect("a number")
    }
    pub fn kill(&self, who: &str) {
        let pid = self.pid(who).to_string();
        assert!(
            Command::new("kill")
                .args(["-9", &pid])
                .status()
                .expect("runs")
                .success()
        );
    }
    pub fn start_by_hand(&mut self, kind: &str, id: &str) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
        command
            .args([kind, "run", "--id", id, "--config"])
            .arg(self.dir.join("cluster.toml"));
        self.by_hand.push(
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("starts"),
        );
    }
    /// Stops everything, including daemons started manually.
    pub fn stop(&mut self) {
        self.text(&["down"]);
        for child in &mut self.by_hand {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.by_hand.clear();
    }
    pub fn until(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "not {what} after a minute"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    /// Waits until health is OK; panics with the findings if that takes too long.
    pub fn until_clean(&self) {
        let begun = Instant::now();
        loop {
            // Its exit code reports an error, which may be temporary.
            let output = self.run(&["--json", "health", "detail"]);
            let health: Value =
                serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
            if health["status"] == "ok" {
                return;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "after a minute: {health:#}\n{}",
                self.text(&["pg", "ls"])
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    pub fn put(&self, name: &str, content: &str) {
        self.put_into("data", name, content);
    }
    pub fn put_into(&self, pool: &str, name: &str, content: &str) {
        let file = self.dir.with_extension("content");
        std::fs::write(&file, content).expect("writable");
        self.text(&[
            "object",
            "put",
            pool,
            name,
            file.to_str().expect("readable"),
        ]);
    }
    fn get(&self, name: &str) -> String {
        self.text(&["object", "get", "data", name, "-"])
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.run(&["down"]);
        for child in &mut self.by_hand {
            let _ = child.kill();
            let _ = child.wait();
        }
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.dir);
            let _ = std::fs::remove_file(self.dir.with_extension("content"));
        }
    }
}

fn pid_files(dir: &Path) -> usize {
    let files = std::fs::read_dir(dir.join("run"))
        .expect("readable")
        .flatten();
    files
        .filter(|file| {
            file.path()
                .extension()
                .is_some_and(|ending| ending == "pid")
        })
        .count()
}

#[test]
fn one_folder_runs_in_one_process_and_in_many() {
    let mut site = Site::new("forms", 0);
    site.up(&[]);
    site.put("a", "written to an embedded cluster");
    assert_eq!(pid_files(&site.dir), 4);
    let pid = site.pid("osd.2");
    assert_eq!(site.pid("mon.0"), pid, "one process is all of them");
    let error = site.fails(&["up"]);
    assert!(
        error.contains(&format!("in use by an embedded cluster (process {pid})")),
        "{error}"
    );
    assert!(
        site.fails(&[
            "osd",
            "run",
            "--config",
            site.dir.to_str().expect("readable"),
            "--id",
            "0"
        ])
        .contains("in use")
    );
    let stopped = site.json(&["down"]);
    assert_eq!(stopped["stopped"][0]["pid"], pid);
    assert_eq!(pid_files(&site.dir), 0);
    assert!(site.fails(&["down"]).contains("nothing runs"));

    site.up(&["--processes"]);
    assert_eq!(site.get("a"), "written to an embedded cluster");
    site.put("b", "written to processes");
    assert!(site.fails(&["up", "--processes"]).contains("is in use by"));
    let killed = site.pid("osd.1");
    site.kill("osd.1");
    assert_eq!(site.get("b"), "written to processes", "the others go on");
    site.put("c", "written while one is dead");
    let log = site.dir.join("run/up.log");
    let said = format!("osd.1 (process {killed}) was killed by signal 9; the others go on");
    site.until("said", |_| {
        std::fs::read_to_string(&log)
            .expect("a log")
            .contains(&said)
    });
    site.start_by_hand("osd", "1");
    site.until("up again", |site| site.json(&["status"])["osds"]["up"] == 3);
    site.text(&["wait", "health-ok", "--timeout", "60"]);
    let stopped = site.json(&["down"]);
    assert_eq!(
        stopped["stopped"].as_array().map(Vec::len),
        Some(7),
        "the keeper, four daemons, two servers: {stopped}"
    );
    assert!(
        stopped["stopped"]
            .as_array()
            .expect("list")
            .iter()
            .all(|one| one["killed"] == false),
        "{stopped}"
    );
    assert_eq!(pid_files(&site.dir), 0);

    site.up(&[]);
    for (name, content) in [
        ("b", "written to processes"),
        ("c", "written while one is dead"),
    ] {
        assert_eq!(site.get(name), content);
    }
    // A crash leaves pid files; they mislead no command.
    let pid = site.pid("mon.0").to_string();
    assert!(
        Command::new("kill")
            .args(["-9", &pid])
            .status()
            .expect("runs")
            .success()
    );
    site.until("dead", |site| {
        // While the process is ending its monitors do not answer, which is an error; only the
        // findings count here.
        String::from_utf8_lossy(&site.run(&["doctor"]).stdout).contains("left over by a crash")
    });
    assert!(site.fails(&["down"]).contains("nothing runs"));
    assert_eq!(pid_files(&site.dir), 0);
    site.up(&[]);
    assert_eq!(site.get("c"), "written while one is dead");
}

#[test]
fn members_come_and_go_while_the_cluster_runs() {
    let mut site = Site::new("members", 1);
    site.up(&["--processes"]);
    site.put("a", "kept through everything");
    // 1 monitor becomes 3.
    for id in ["1", "2"] {
        let added = site.json(&["mon", "add", id]);
        assert!(
            added["next"]
                .as_str()
                .expect("text")
                .contains("nacre mon run --config"),
            "{added}"
        );
        site.start_by_hand("mon", id);
        site.until("a voter", |site| {
            let mons = site.json(&["mon", "stat"])["mons"].clone();
            mons.as_array()
                .expect("list")
                .iter()
                .all(|mon| mon["role"] == "follower" || mon["role"] == "leader")
        });
    }
    assert_eq!(site.json(&["mon", "stat"])["majority"], 2);
    assert!(site.fails(&["mon", "add", "2"]).contains("already"));
    // In a smaller store its first large transaction would stop it, again after each start.
    assert!(
        site.fails(&["mon", "add", "3", "--size", "32MiB"])
            .contains("at least 128 MiB")
    );
    // The first one may die now: the others have all data.
    site.kill("mon.0");
    assert_eq!(site.get("a"), "kept through everything");
    site.until("a leader", |site| {
        site.run(&["osd", "reweight", "0", "1"]).status.success()
    });
    site.start_by_hand("mon", "0");

    let added = site.json(&["osd", "add", "--size", "64MiB"]);
    assert_eq!(added["id"], 3, "the lowest free number");
    assert!(site.fails(&["osd", "add", "--id", "3"]).contains("already"));
    assert!(
        site.fails(&["osd", "add", "--host", "a b"])
            .contains("letters")
    );
    assert!(
        site.fails(&["osd", "add", "--size", "1KiB"])
            .contains("at least 16 MiB")
    );
    assert!(
        site.fails(&["osd", "add", "--size", "many"])
            .contains("write it like 10GiB")
    );
    let taken = format!("127.0.0.1:{}", site.port + 1);
    assert!(
        site.fails(&["osd", "add", "--address", &taken])
            .contains("cannot listen")
    );
    let own = site.dir.join("cluster.toml");
    assert!(
        site.fails(&["osd", "add", "--path", own.to_str().expect("readable")])
            .contains("will not be overwritten")
    );
    assert!(
        std::fs::read_to_string(&own)
            .expect("still there")
            .contains("cluster =")
    );
    let used = site.dir.join("osd.0/store");
    assert!(
        site.fails(&["osd", "add", "--path", used.to_str().expect("readable")])
            .contains("in use")
    );
    site.start_by_hand("osd", "3");
    site.until("up", |site| site.json(&["status"])["osds"]["up"] == 4);
    let epoch = |site: &Site| site.json(&["status"])["epoch"].as_u64().expect("a number");
    site.text(&["wait", "health-ok", "--timeout", "60"]);
    let before = epoch(&site);
    let dry = site.json(&["osd", "balance", "--dry-run"]);
    assert_eq!(epoch(&site), before, "a dry run changes nothing");
    let done = site.json(&["osd", "balance"]);
    assert_eq!(done["worst_before"], dry["worst_before"]);
    assert!(
        done["worst_after"].as_f64() <= done["worst_before"].as_f64(),
        "{done}"
    );

    // It is removed again: not while it is up, not while it is in, not while it is needed.
    assert!(site.fails(&["osd", "rm", "3"]).contains("stop it first"));
    site.text(&["osd", "out", "3"]);
    site.text(&["wait", "health-ok", "--timeout", "60"]);
    site.kill("osd.3");
    // It shares no PG with other OSDs any more, so only the operator knows that it was killed.
    site.text(&["osd", "down", "3"]);
    let gone = site.json(&["osd", "rm", "3"]);
    assert_eq!(gone["lost_groups"], 0, "{gone}");
    assert!(
        !std::fs::read_to_string(&own)
            .expect("readable")
            .contains("id = 3")
    );
    // Its store is still there and is not overwritten; without it the number can be reused, and its
    // new instance is not fenced.
    assert!(site.fails(&["osd", "add"]).contains("the store of osd.3"));
    std::fs::remove_file(site.dir.join("osd.3/store")).expect("there");
    assert_eq!(site.json(&["osd", "add", "--size", "64MiB"])["id"], 3);
    site.start_by_hand("osd", "3");
    site.until("up", |site| site.json(&["status"])["osds"]["up"] == 4);
    // If the answer is lost, repeating the command removes the entry, too.
    let before = std::fs::read_to_string(&own).expect("readable");
    site.json(&["mon", "rm", "2"]);
    std::fs::write(&own, &before).expect("writable");
    assert_eq!(site.json(&["mon", "rm", "2"])["left"], 2);
    assert!(
        before.contains("mon.2/")
            && !std::fs::read_to_string(&own)
                .expect("readable")
                .contains("mon.2/")
    );
    assert_eq!(
        site.json(&["mon", "stat"])["mons"].as_array().map(Vec::len),
        Some(2)
    );
    assert_eq!(site.get("a"), "kept through everything");
    site.text(&["down"]);
    site.up(&[]);
    assert_eq!(site.get("a"), "kept through everything");
}

#[test]
fn damage_is_found_named_and_survived() {
    let site = Site::new("damage", 2);
    site.up(&[]);
    site.put("a", &"many bytes ".repeat(10_000));
    let store = site.dir.join("osd.1/store");
    let path = store.to_str().expect("readable");
    assert!(site.fails(&["store", "check", path]).contains("in use"));
    site.text(&["down"]);
    let whole = site.json(&["store", "check", site.dir.to_str().expect("readable")]);
    assert_eq!(
        (&whole["sound"], whole["stores"].as_array().map(Vec::len)),
        (&Value::Bool(true), Some(4)),
        "{whole}"
    );
    let mut bytes = std::fs::read(&store).expect("readable");
    let at = bytes
        .windows(22)
        .position(|part| part == b"many bytes many bytes ")
        .expect("the data is there as it is");
    bytes[at + 3] ^= 1;
    // Writes only the changed bytes: the rest of the file stays sparse.
    let patch = |at: usize, with: &[u8]| {
        let file = std::fs::File::options()
            .write(true)
            .open(&store)
            .expect("writable");
        std::os::unix::fs::FileExt::write_all_at(&file, with, at as u64).expect("written");
    };
    patch(at, &bytes[at..at + 4]);
    let found = site.run(&["--json", "store", "check", path]);
    assert_eq!(found.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&found.stdout).expect("JSON");
    assert!(
        found["stores"][0]["findings"]
            .to_string()
            .contains("is damaged at byte"),
        "{found}"
    );
    assert!(
        site.run(&["store", "check", "--quick", path])
            .status
            .success(),
        "index and log are sound"
    );

    // Both superblocks: that OSD does not start, the others do.
    patch(0, &[0xff; 3 << 20]);
    let error = site.run(&["store", "check", path]);
    assert!(!error.status.success());
    site.up(&[]);
    assert_eq!(site.get("a"), "many bytes ".repeat(10_000));
    let log = std::fs::read_to_string(site.dir.join("run/up.log")).expect("a log");
    assert!(
        log.contains("osd.1 does not run, the others go on: the store"),
        "{log}"
    );
    assert!(site.json(&["health"]).to_string().contains("OSD_DOWN"));
    site.run(&["down"]);
    assert!(
        site.fails(&["store", "check", "/no/such/store"])
            .contains("/no/such/store")
    );
    let toml = site.dir.join("cluster.toml");
    let report = site.run(&["store", "check", toml.to_str().expect("readable")]);
    assert_eq!(report.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&report.stdout).contains("no Nacre store"));
}

/// A script that started its daemons and waited for HEALTH_OK got it as soon as the first OSD was
/// up, and could then not create a pool.
#[test]
fn a_cluster_is_not_healthy_before_its_osds_have_reported() {
    let mut site = Site::new("reported", 9);
    let (dir, port) = (
        site.dir.to_str().expect("readable").to_owned(),
        site.port.to_string(),
    );
    site.text(&[
        "cluster",
        "init",
        "--dir",
        &dir,
        "--mons",
        "1",
        "--osds",
        "3",
        "--base-port",
        &port,
    ]);
    site.start_by_hand("mon", "0");
    site.start_by_hand("osd", "1");
    site.until("up", |site| site.json(&["status"])["osds"]["up"] == 1);
    let error = site.fails(&["wait", "health-ok", "--timeout", "1"]);
    assert!(
        error.contains("2 of the 3 OSDs in the configuration never reported"),
        "{error}"
    );
    site.start_by_hand("osd", "0");
    site.start_by_hand("osd", "2");
    site.text(&["wait", "health-ok", "--timeout", "60"]);
    site.text(&["pool", "create", "data"]);
    site.put("a", "stored");
    assert_eq!(site.get("a"), "stored");
}

#[test]
fn mistakes_are_one_line_and_change_nothing() {
    let site = Site::new("mistakes", 3);
    site.up(&[]);
    site.put("a", "unharmed");
    let error = site.fails(&["object", "get", "dta", "a", "-"]);
    assert!(error.contains("dta") && error.contains("data"), "{error}");
    let error = site.fails(&["config", "set", "mon.full_rtio", "0.9"]);
    assert!(error.contains("mon.full_ratio"), "{error}");
    assert!(
        site.fails(&["config", "set", "mon.full_ratio", "2"])
            .contains("from 0 to 1")
    );
    assert!(
        site.fails(&["object", "get", "data", "nothing", "-"])
            .contains("nothing")
    );
    let options = site.json(&["config", "help"]);
    let options = options["options"].as_array().expect("list");
    assert!(
        options.len() < 60
            && options
                .iter()
                .all(|option| option["doc"].as_str().is_some_and(|doc| doc.len() > 20))
    );
    site.text(&["down"]);

    // A port in use.
    let taken = std::net::TcpListener::bind(("127.0.0.1", site.port + 2)).expect("free");
    for form in [
        &["up"][..],
        &["up", "--detach"],
        &["up", "--processes"],
        &["up", "--detach", "--processes"],
    ] {
        let error = site.fails(form);
        assert!(
            error.contains(&format!(
                "osd.1 cannot listen on 127.0.0.1:{}",
                site.port + 2
            )),
            "{form:?}: {error}"
        );
    }
    let doctor = site.run(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(1), "an error is an error");
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("osd.1 cannot listen on"));
    drop(taken);

    // cluster.toml: cut off, a wrong key, nonsense.
    let toml = site.dir.join("cluster.toml");
    let good = std::fs::read_to_string(&toml).expect("readable");
    let cut = good.len() - 30;
    let wrong = [
        (good[..cut].to_owned(), "cluster.toml"),
        (good.replace("address", "adress"), "did you mean `address`?"),
        ("\u{1}\u{2}".to_owned(), "cluster.toml"),
        (String::new(), "`cluster` (the cluster's id) is missing"),
    ];
    for (text, expected) in &wrong {
        std::fs::write(&toml, text).expect("writable");
        for command in [&["up"][..], &["up", "--detach", "--processes"], &["status"]] {
            let error = site.fails(command);
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(site.run(&["doctor"]).status.code(), Some(1));
    }
    std::fs::write(&toml, &good).expect("writable");

    // A store of another cluster's OSD: refused, and not modified.
    let other = Site::new("mistakes-other", 4);
    let port = other.port.to_string();
    other.text(&[
        "cluster",
        "init",
        "--dir",
        other.dir.to_str().expect("readable"),
        "--mons",
        "1",
        "--base-port",
        &port,
    ]);
    let (mine, theirs) = (site.dir.join("osd.1/store"), other.dir.join("osd.1/store"));
    let kept = mine.with_extension("kept");
    std::fs::rename(&mine, &kept).expect("moved");
    std::fs::rename(&theirs, &mine).expect("moved");
    for form in [&["up"][..], &["up", "--detach"]] {
        let error = site.fails(form);
        assert!(
            error.contains("is the store of osd.1 of cluster")
                && error.contains("nothing was changed"),
            "{error}"
        );
    }
    let config = toml.to_str().expect("readable");
    assert!(
        fails(&["osd", "run", "--config", config, "--id", "1"])
            .0
            .contains("is the store of osd.1 of cluster")
    );
    assert!(
        fails(&["osd", "run", "--config", config, "--id", "9"])
            .0
            .contains("cluster.toml names no osd.9")
    );
    std::fs::rename(&mine, &theirs).expect("moved");
    std::fs::rename(&kept, &mine).expect("moved");
    assert!(
        other
            .text(&["store", "check", theirs.to_str().expect("readable")])
            .contains("sound")
    );

    // A directory with other contents, and invalid numbers.
    let foreign = scratch("operator-foreign");
    std::fs::create_dir_all(foreign.join("photos")).expect("made");
    let foreign = foreign.to_str().expect("readable");
    assert!(
        fails(&["up", "--dir", foreign])
            .0
            .contains("holds no cluster (it has `photos`)")
    );
    let new = scratch("operator-never-made");
    let new = new.to_str().expect("readable");
    assert!(
        fails(&["up", "--dir", new, "--osds", "2", "--size", "3"])
            .0
            .contains("at least 3 OSDs")
    );
    assert!(
        fails(&["up", "--dir", new, "--osds", "0"])
            .0
            .contains("0 is not in 1")
    );
    assert!(
        fails(&["down", "--dir", new])
            .0
            .contains("holds no cluster")
    );
    assert!(!Path::new(new).exists());

    site.up(&[]);
    assert_eq!(site.get("a"), "unharmed");
}
