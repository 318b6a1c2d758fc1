//! A panic, a hang and an error at each call that a daemon's host makes for its device and its
//! store (`node/src/faults.rs`): the daemon ends with the reason and an exit code that is not 0,
//! and is 3 for a hang alone. It never continues without one of its threads.
//!
//! ```text
//!   reactor   small writes, a single writer's flush, queries of free space     worker    other writes and
//! flushes, discards, jobs and their reads
//!   main      all calls of opening a store                                     watchdog  its looks
//! ```

use super::operator::Site;
use super::scratch;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// More than fits into an index or into memory.
const LARGE: usize = 4 << 20;

/// Time limit of all waits: an unnoticed hang is not waited for.
const MOST: Duration = Duration::from_secs(60);

/// Exit code of a daemon whose disk hangs.
const HUNG: i32 = 3;

/// One monitor and one OSD, one of which meets faults.
struct Bench {
    site: Site,
    faults: PathBuf,
    other: Option<Daemon>,
}

/// A daemon whose device meets the faults in the file.
struct Daemon {
    child: Child,
    log: PathBuf,
    /// Clients with a request, which may wait for ever.
    asking: Vec<Child>,
    /// A request that is repeated: dropping the page cache is only a hint to the kernel.
    again: Option<&'static [&'static str]>,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        for child in self.asking.iter_mut().chain([&mut self.child]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
impl Drop for Bench {
    fn drop(&mut self) {
        self.other = None;
        let _ = std::fs::remove_file(&self.faults);
    }
}

impl Bench {
    fn new(name: &str, number: u16) -> Self {
        let mut site = Site::new(&format!("mistreated-{name}"), number);
        site.up(&[
            "--processes",
            "--mons",
            "1",
            "--osds",
            "1",
            "--size",
            "1",
            "--osd-size",
            "128MiB",
        ]);
        site.text(&["config", "set", "osd.device_hung_ms", "1000"]);
        site.put("old", "written before");
        let large = scratch(&format!("mistreated-{name}.large"));
        std::fs::write(&large, vec![7; LARGE]).expect("writable");
        site.text(&[
            "object",
            "put",
            "data",
            "large",
            large.to_str().expect("text"),
        ]);
        site.stop();
        let faults = scratch(&format!("mistreated-{name}.faults"));
        let _ = std::fs::remove_file(&faults);
        Self {
            site,
            faults,
            other: None,
        }
    }

    fn spawn(&self, kind: &str, faults: bool) -> Daemon {
        let log = scratch(&format!("mistreated-{kind}-{}.log", self.site.port()));
        let file = File::create(&log).expect("writable");
        let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
        command
            .args([kind, "run", "--id", "0", "--config"])
            .arg(self.site.dir().join("cluster.toml"));
        if faults {
            command.env("NACRE_DEVICE_FAULTS", &self.faults);
        }
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a copy"))
            .stderr(file);
        Daemon {
            child: command.spawn().expect("starts"),
            log,
            asking: Vec::new(),
            again: None,
        }
    }

    /// The other daemon runs normally.
    fn with(mut self, kind: &str) -> Self {
        self.other = Some(self.spawn(kind, false));
        self
    }

    fn meet(&self, line: &str) {
        std::fs::write(&self.faults, format!("{line}\n")).expect("writable");
    }

    /// From now on the OSD's store is read from the disk.
    fn forget_cached(&self) {
        let store = self.site.dir().join("osd.0/store");
        let mut dd = Command::new("dd");
        dd.args(["oflag=nocache", "conv=notrunc,fdatasync", "count=0"])
            .arg(format!("of={}", store.display()));
        let done = dd.stderr(Stdio::null()).status();
        assert!(
            done.is_ok_and(|done| done.success()),
            "dd evicts what is cached of {}",
            store.display()
        );
    }

    fn ask(&self, daemon: &mut Daemon, arguments: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
        command
            .env_remove("NACRE_CLUSTER")
            .args(self.site.arguments(arguments));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        daemon.asking.push(command.spawn().expect("starts"));
    }

    /// Waits until it has ended, with a failure, and has reported the reason.
    fn ends(&self, mut daemon: Daemon, case: &str, why: &str) {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = daemon.child.try_wait().expect("ours") {
                break status;
            }
            if let Some(arguments) = daemon.again
                && daemon
                    .asking
                    .iter_mut()
                    .all(|child| child.try_wait().expect("ours").is_some())
            {
                self.forget_cached();
                self.ask(&mut daemon, arguments);
            }
            assert!(
                begun.elapsed() < MOST,
                "{case}: it goes on, and has said: {}",
                read(&daemon.log)
            );
            std::thread::sleep(Duration::from_millis(10));
        };
        let _ = std::fs::remove_file(&self.faults);
        let said = read(&daemon.log);
        assert!(
            !status.success(),
            "{case}: ended as if all were well: {said}"
        );
        assert!(said.contains(why), "{case}: {said}");
        // F30: a supervisor can distinguish a hung disk from everything else. (No test failed when
        // it was any other number.)
        let hung = why.contains("has not ended");
        assert_eq!(
            status.code() == Some(HUNG),
            hung,
            "{case}: {status}: {said}"
        );
    }
}

fn read(log: &PathBuf) -> String {
    std::fs::read_to_string(log).expect("it is there")
}

const READ_LARGE: [&str; 5] = ["object", "get", "data", "large", "-"];

/// The cause of a daemon's call.
#[derive(Clone, Copy)]
enum By {
    /// Its start.
    Opening,
    /// A client's write.
    Writing,
    /// A client's read of data that are not in memory.
    Reading,
    /// Objects are replaced until the log is full and the next checkpoint releases space.
    Replacing,
    /// No cause: it happens by itself.
    Itself,
}

/// Checks that the OSD ends correctly in each of these cases: the cause of the call, the call, and
/// the reason it reports.
fn osd_ends(name: &str, number: u16, fault: &str, cases: &[(By, &str, &str)]) {
    let bench = Bench::new(name, number).with("mon");
    let content = scratch(&format!("mistreated-{name}.content"));
    std::fs::write(&content, vec![7; LARGE]).expect("writable");
    let put = [
        "object",
        "put",
        "data",
        "new",
        content.to_str().expect("text"),
    ];
    for (by, call, why) in cases {
        let (line, case) = (format!("osd.0/ {call} {fault}"), format!("{call} {fault}"));
        if matches!(by, By::Opening) {
            bench.meet(&line);
            bench.ends(bench.spawn("osd", true), &case, why);
            continue;
        }
        let mut osd = bench.spawn("osd", true);
        bench.site.text(&put);
        match by {
            By::Writing => {
                bench.meet(&line);
                bench.ask(&mut osd, &put);
            }
            By::Reading => {
                bench.meet(&line);
                osd.again = Some(&READ_LARGE);
            }
            By::Replacing => {
                bench.meet(&line);
                let load = [
                    "--size",
                    "100000",
                    "--objects",
                    "64",
                    "--depth",
                    "8",
                    "--seconds",
                    "60",
                    "--pool",
                    "data",
                ];
                bench.ask(
                    &mut osd,
                    &[&["bench", "object", "overwrite"][..], &load].concat(),
                );
            }
            By::Opening | By::Itself => bench.meet(&line),
        }
        bench.ends(osd, &case, why);
    }
    // And no data were lost.
    let osd = bench.spawn("osd", true);
    assert_eq!(
        bench.site.text(&["object", "get", "data", "old", "-"]),
        "written before"
    );
    drop(osd);
}

#[test]
fn an_osd_whose_thread_panics_ends() {
    let job = "a job of the store panicked";
    let io = "a read, write or flush panicked";
    osd_ends(
        "panic",
        38,
        "panic",
        &[
            (By::Opening, "read", "panics, as a test wants it"),
            (By::Opening, "forget", "panics, as a test wants it"),
            (By::Writing, "write", "panic"),
            (By::Writing, "flush", "panic"),
            (By::Reading, "job", job),
            (By::Reading, "read", io),
            (By::Replacing, "discard", io),
            (By::Itself, "space", "panics, as a test wants it"),
            (By::Itself, "look", "its watchdog ended"),
        ],
    );
}

#[test]
fn an_osd_whose_call_hangs_ends() {
    osd_ends(
        "hang",
        39,
        "hang 120000",
        &[
            (
                By::Opening,
                "forget",
                "a drop of its page cache has not ended",
            ),
            (By::Writing, "write", "a write has not ended"),
            (By::Writing, "flush", "a flush has not ended"),
            (By::Reading, "job", "a job of the store has not ended"),
            (By::Reading, "read", "a read has not ended"),
            (By::Replacing, "discard", "a discard has not ended"),
            (
                By::Itself,
                "space",
                "a look at its file system has not ended",
            ),
            (By::Itself, "look", "its watchdog hangs"),
        ],
    );
}

#[test]
fn an_osd_whose_call_fails_ends() {
    let (eio, failed) = (
        "Input/output error",
        "the store failed (a write or flush of its device: Input/output error (os error 5))",
    );
    osd_ends(
        "error",
        40,
        "error 5",
        &[
            (By::Opening, "read", eio),
            (By::Opening, "forget", eio),
            (By::Writing, "write", failed),
            (By::Writing, "flush", failed),
        ],
    );
}

/// An unreadable object is no reason to stop: other replicas have it, or its reader is told that
/// none has.
#[test]
fn who_reads_what_cannot_be_read_is_told() {
    let bench = Bench::new("unreadable", 43).with("mon");
    let mut osd = bench.spawn("osd", true);
    assert_eq!(
        bench.site.text(&["object", "get", "data", "old", "-"]),
        "written before"
    );
    bench.meet("osd.0/ read error 5");
    let mut why = String::new();
    bench.site.until("read from the disk", |site| {
        bench.forget_cached();
        let output = site.run(&READ_LARGE);
        why = String::from_utf8_lossy(&output.stderr).into_owned();
        !output.status.success()
    });
    assert!(why.contains("damaged"), "{why}");
    assert_eq!(
        bench.site.text(&["object", "get", "data", "old", "-"]),
        "written before",
        "it is in memory"
    );
    assert!(
        osd.child.try_wait().expect("ours").is_none(),
        "{}",
        read(&osd.log)
    );
}

/// Monitors have the same host.
#[test]
fn a_monitor_ends_too() {
    let bench = Bench::new("mon", 41).with("osd");
    // A new value each time: an unchanged one is not written.
    let cases = [
        ("panic", "panic", "1100"),
        ("error 5", "Input/output error", "1200"),
        ("hang 120000", "a flush has not ended", "1300"),
    ];
    for (fault, why, value) in cases {
        let mut mon = bench.spawn("mon", true);
        bench.site.text(&["status"]);
        bench.meet(&format!("mon.0/ flush {fault}"));
        bench.ask(&mut mon, &["config", "set", "osd.device_slow_ms", value]);
        bench.ends(mon, fault, why);
    }
}

/// A daemon that ends for a hung disk reports it, and the reader may hang as well: the daemon
/// stayed, neither serving nor ended.
#[test]
fn an_end_does_not_wait_for_whoever_reads_of_it() {
    let bench = Bench::new("unread", 42).with("mon");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    command
        .args(["osd", "run", "--id", "0", "--config"])
        .arg(bench.site.dir().join("cluster.toml"));
    // A pipe that is full, and stays so.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut filler = writer.try_clone().expect("a copy");
    let filling = std::thread::spawn(move || while filler.write_all(&[0; 4096]).is_ok() {});
    command
        .env("NACRE_DEVICE_FAULTS", &bench.faults)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(writer);
    let mut osd = Daemon {
        child: command.spawn().expect("starts"),
        log: PathBuf::new(),
        asking: Vec::new(),
        again: None,
    };
    bench.site.put("new", "served");
    bench.meet("osd.0/ flush hang 120000");
    let file = bench.site.dir().with_extension("content");
    bench.ask(
        &mut osd,
        &[
            "object",
            "put",
            "data",
            "more",
            file.to_str().expect("text"),
        ],
    );
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = osd.child.try_wait().expect("ours") {
            break status;
        }
        assert!(begun.elapsed() < MOST, "it goes on");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(status.code(), Some(HUNG), "{status}");
    drop(reader);
    filling.join().expect("nobody reads any more");
}
