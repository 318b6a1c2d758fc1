//! `nacre up --mount`: a directory that is mounted and unmounted with its cluster, on the real
//! kernel. Needs root and /dev/fuse.

use super::operator::Site;
use super::scratch;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Small clusters start fast.
const SMALL: [&str; 4] = ["--osds", "1", "--osd-size", "256MiB"];

/// A directory to mount at; unmounted when dropped.
struct At(PathBuf);

impl At {
    /// `None`, with a message, where this process may not mount.
    fn new(name: &str) -> Option<Self> {
        let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        if !root
            || fs::File::options()
                .read(true)
                .write(true)
                .open("/dev/fuse")
                .is_err()
        {
            eprintln!(
                "SKIPPED nacre up --mount ({name}): it takes root, and /dev/fuse, which is not here"
            );
            return None;
        }
        let dir = scratch(&format!("mounted-{name}"));
        let at = Self(
            dir.parent()
                .expect("a parent")
                .canonicalize()
                .expect("there")
                .join(format!("mounted-{name}")),
        );
        at.clear();
        Some(at)
    }
    fn text(&self) -> &str {
        self.0.to_str().expect("readable")
    }
    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
    fn is_mounted(&self) -> bool {
        let table = fs::read_to_string("/proc/mounts").expect("readable");
        table
            .lines()
            .filter_map(|line| line.split(' ').nth(1))
            .any(|dir| Path::new(dir) == self.0)
    }
    fn clear(&self) {
        while self.is_mounted() {
            assert!(
                Command::new("umount")
                    .arg("-l")
                    .arg(&self.0)
                    .status()
                    .expect("runs")
                    .success()
            );
        }
        let _ = fs::remove_dir(&self.0);
    }
}

impl Drop for At {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A program that is in the mount.
struct Guest(Child);

impl Guest {
    fn of(at: &At) -> Self {
        Self(
            Command::new("sleep")
                .arg("600")
                .current_dir(&at.0)
                .stdout(Stdio::null())
                .spawn()
                .expect("starts"),
        )
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process of the only mount.
fn mount_process(site: &Site) -> u32 {
    let files = fs::read_dir(site.dir().join("run"))
        .expect("readable")
        .flatten()
        .map(|file| file.path());
    let mut mounts = files.filter(|path| path.extension().is_some_and(|ending| ending == "mount"));
    let one = mounts.next().expect("it is recorded");
    assert_eq!(mounts.next(), None, "there is one");
    one.file_stem()
        .and_then(|pid| pid.to_str()?.parse().ok())
        .expect("a number")
}

/// Kills it, like a crash.
fn kill(pid: u32) {
    assert!(
        Command::new("kill")
            .args(["-9", &pid.to_string()])
            .status()
            .expect("runs")
            .success()
    );
    // Its first thread may end before the others, which still hold its open files.
    let is_gone = || {
        let threads = fs::read_dir(format!("/proc/{pid}/task"))
            .map(Iterator::count)
            .unwrap_or_default();
        let ended = |stat: String| threads == 1 && stat.contains(") Z ");
        fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, ended)
    };
    let begun = Instant::now();
    while !is_gone() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "process {pid} does not end"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn write_safely(path: &Path, text: &str) {
    fs::write(path, text).expect("writable");
    fs::File::open(path)
        .expect("there")
        .sync_all()
        .expect("safe");
}

#[test]
fn a_directory_comes_and_goes_with_its_cluster() {
    let site = Site::new("up-mount", 40);
    let Some(at) = At::new("up") else { return };
    let mount = ["--mount", at.text()];
    site.up(&[&SMALL[..], &mount].concat());
    assert!(at.is_mounted(), "it was made, too");
    fs::write(at.file("first"), "not synchronized").expect("writable");

    // A second time, in both forms.
    for detach in [&["--detach"][..], &[]] {
        let said = site.text(&[&["up"], &mount[..], detach].concat());
        assert!(
            said.contains("runs already") && said.contains("is mounted at"),
            "{said}"
        );
    }
    let value = site.json(&[&["up", "--detach"], &mount[..]].concat());
    assert_eq!(
        (&value["mount"]["fs"], &value["mount"]["before"]),
        (&"home".into(), &true.into()),
        "{value}"
    );
    let why = site.fails(&[&["up", "--detach", "--fs", "other"], &mount[..]].concat());
    assert!(why.contains("has file system home, not other"), "{why}");

    // A program in it blocks `down`, which stops nothing then.
    let guest = Guest::of(&at);
    let why = site.fails(&["down"]);
    assert!(
        why.contains(&format!("process {} (sleep) is in it", guest.0.id())),
        "{why}"
    );
    fs::write(at.file("second"), "after that").expect("the cluster runs");
    // From inside, by a name that is invalid once it is unmounted.
    let name = site
        .dir()
        .file_name()
        .and_then(|name| name.to_str())
        .expect("readable");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    command
        .args(["--json", "down", "--force", "--dir", &format!("../{name}")])
        .current_dir(&at.0);
    let output = command.output().expect("starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let down: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    assert_eq!(
        (&down["unmounted"][0]["fs"], &down["unmounted"][0]["fault"]),
        (&"home".into(), &().into()),
        "{down}"
    );
    assert!(!at.is_mounted());
    assert!(
        site.fails(&["status"]).contains("nothing runs"),
        "it was stopped, too"
    );
    drop(guest);

    let value = site.json(&[&["up", "--detach"], &mount[..]].concat());
    assert_eq!(
        (&value["mount"]["made"], &value["mount"]["before"]),
        (&false.into(), &false.into()),
        "{value}"
    );
    assert_eq!(
        fs::read_to_string(at.file("first")).expect("there"),
        "not synchronized"
    );
    assert_eq!(
        fs::read_to_string(at.file("second")).expect("there"),
        "after that"
    );
    let down = site.text(&["down"]);
    assert!(
        down.contains("is unmounted; everything in it is safe"),
        "{down}"
    );
    assert_eq!(fs::read_dir(&at.0).expect("an empty directory").count(), 0);
}

#[test]
fn killed_parts_come_back() {
    let site = Site::new("up-mount-killed", 41);
    let Some(at) = At::new("killed") else { return };
    let mount = ["--mount", at.text()];
    let again = || {
        let output = site.run(&[&["up", "--detach"], &mount[..]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        said
    };
    site.up(&[&SMALL[..], &mount].concat());
    write_safely(&at.file("safe"), "safe");

    // The cluster: its mount has unwritten data, and writes them.
    fs::write(at.file("kept"), "by the mount's process").expect("writable");
    kill(site.pid("mon.0"));
    let why = site.fails(&["down"]);
    assert!(
        why.contains("is still mounted") && why.contains("brings it back"),
        "{why}"
    );
    again();
    assert_eq!(
        fs::read_to_string(at.file("kept")).expect("there"),
        "by the mount's process"
    );

    // The mount.
    kill(mount_process(&site));
    assert!(fs::metadata(at.file("safe")).is_err(), "nothing serves it");
    let said = again();
    assert!(
        said.contains("whose process was killed: taken away"),
        "{said}"
    );
    assert_eq!(fs::read_to_string(at.file("safe")).expect("there"), "safe");

    // Both.
    let pid = site.pid("mon.0");
    kill(mount_process(&site));
    kill(pid);
    again();
    assert_eq!(fs::read_to_string(at.file("safe")).expect("there"), "safe");

    // `down` reports what may not be durable, and leaves nothing behind.
    kill(mount_process(&site));
    let output = site.run(&["down"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("its last changes may be lost"),
        "{said}"
    );
    assert!(!at.is_mounted());
    assert!(
        site.fails(&["status"]).contains("nothing runs"),
        "it was stopped all the same"
    );
}

#[test]
fn in_the_foreground_ctrl_c_unmounts_first() {
    let site = Site::new("up-mount-here", 42);
    let Some(at) = At::new("here") else { return };
    let port = site.port().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    let arguments = [
        &[
            "up",
            "--processes",
            "--base-port",
            &port,
            "--mount",
            at.text(),
        ][..],
        &SMALL,
    ]
    .concat();
    command
        .args(site.arguments(&arguments))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let up = command.spawn().expect("starts");
    site.until("mounted", |site| {
        site.dir().join("run").is_dir()
            && at.is_mounted()
            && fs::write(at.file("file"), "mine").is_ok()
    });
    // The signal is watched from the start of the command.
    assert!(
        Command::new("kill")
            .args(["-INT", &up.id().to_string()])
            .status()
            .expect("runs")
            .success()
    );
    let output = up.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("is unmounted; everything in it is safe"),
        "{said}"
    );
    assert!(!at.is_mounted());
    site.up(&["--mount", at.text()]);
    assert_eq!(fs::read_to_string(at.file("file")).expect("there"), "mine");
}

/// Then nothing is created and nothing is started.
#[test]
fn a_place_that_will_not_do_is_refused_first() {
    let site = Site::new("up-mount-place", 43);
    let Some(at) = At::new("place") else { return };
    fs::create_dir(&at.0).expect("made");
    fs::write(at.file("mine"), "").expect("writable");
    let (cluster, file) = (
        site.dir().to_str().expect("readable").to_owned(),
        at.file("mine"),
    );
    let parent = site
        .dir()
        .parent()
        .expect("a parent")
        .to_str()
        .expect("readable");
    for (place, sentence) in [
        (at.text(), "is not empty (mine is in it)"),
        (file.to_str().expect("readable"), "is no directory"),
        (&cluster, "is in the cluster's own directory"),
        (parent, "would be hidden by the mount"),
        (
            &*at.file("no/such").to_string_lossy(),
            "its parent directory has to be there",
        ),
        ("/proc", "mounted already (proc)"),
    ] {
        let why = site.fails(&["up", "--detach", "--mount", place]);
        assert!(why.contains(sentence), "{place}: {why}");
    }
    let new = at.text().to_owned() + "-new";
    let why = site.fails(&["up", "--detach", "--mount", &new, "--fs", "a/b"]);
    assert!(why.contains("a/b: a file system's name has"), "{why}");
    assert!(!Path::new(&new).exists() && !site.dir().exists());
    fs::remove_file(file).expect("ours");
}

/// Each `down` affects its own cluster; one of several file systems is chosen.
#[test]
fn two_clusters_and_two_file_systems() {
    let (one, two) = (Site::new("up-mount-one", 44), Site::new("up-mount-two", 45));
    let (Some(at), Some(other)) = (At::new("one"), At::new("two")) else {
        return;
    };
    one.up(&[&SMALL[..], &["--mount", at.text()]].concat());
    let why = two.fails(&[&["up", "--detach", "--mount", at.text()], &SMALL[..]].concat());
    assert!(
        why.contains("has nacre:home mounted already") && !two.dir().exists(),
        "{why}"
    );
    two.up(&[&SMALL[..], &["--mount", other.text(), "--fs", "second"]].concat());
    fs::write(at.file("file"), "one").expect("writable");
    fs::write(other.file("file"), "two").expect("writable");
    one.text(&["down"]);
    assert!(!at.is_mounted() && other.is_mounted());
    assert_eq!(
        fs::read_to_string(other.file("file")).expect("there"),
        "two"
    );

    two.text(&["fs", "create", "third"]);
    let why = two.fails(&["up", "--detach", "--mount", at.text()]);
    assert!(
        why.contains("runs, but nothing was mounted: which file system? --fs says it"),
        "{why}"
    );
    let why = two.fails(&["up", "--detach", "--mount", at.text(), "--fs", "thrid"]);
    assert!(
        why.contains("there is no file system thrid, only second, third"),
        "{why}"
    );
    two.text(&["up", "--mount", at.text(), "--fs", "third"]);
    assert_eq!(fs::read_dir(&at.0).expect("mounted").count(), 0);

    // A mount of `nacre mount` is its user's to unmount.
    two.text(&["down"]);
    two.up(&[]);
    two.text(&["mount", "--fs", "third", at.text()]);
    let said = two.text(&["up", "--detach", "--mount", at.text()]);
    assert!(said.contains("`nacre mount` has mounted third"), "{said}");
    let output = two.run(&["down"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("its calls wait until the cluster runs again"),
        "{said}"
    );
    assert!(at.is_mounted());
}
