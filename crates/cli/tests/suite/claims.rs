//! Watches and locks through the command line, over a real cluster.

use super::operator::Site;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A command that runs beside the test; killed when dropped.
struct Beside(Child);
impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn watch(site: &Site, more: &[&str]) -> Beside {
    let arguments = [&["object", "watch", "data", "a"][..], more].concat();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    command
        .args(site.arguments(&arguments))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = Beside(command.spawn().expect("starts"));
    site.until("watched", |site| {
        site.json(&["object", "watchers", "data", "a"])
            .as_array()
            .is_some_and(|all| !all.is_empty())
    });
    child
}

fn signal(child: &Beside, name: &str) {
    assert!(
        Command::new("kill")
            .args([name, &child.0.id().to_string()])
            .status()
            .expect("runs")
            .success()
    );
}

/// Everything received until the pipe is closed, within a minute.
fn rest(mut pipe: impl Read + Send + 'static) -> String {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = pipe.read_to_string(&mut text).map(|_| text);
        sender.send(read)
    });
    receiver
        .recv_timeout(Duration::from_secs(60))
        .expect("it ends within a minute")
        .expect("text")
}

/// A stopped command misses a notify: the notifier is told which watcher missed it, and the
/// watcher, when it continues, that it may have missed notifies.
#[test]
fn watchers_hear_notifies_and_whoever_missed_one_ends_with_an_error() {
    let site = Site::new("watch", 8);
    site.up(&[]);
    site.put("a", "content");
    assert!(
        site.fails(&["object", "watch", "data", "nothing"])
            .contains("nothing")
    );
    let told = site.json(&["object", "notify", "data", "a", "nobody"]);
    assert_eq!(
        (
            told["acknowledged"].as_array().map(Vec::len),
            told["missed"].as_array().map(Vec::len)
        ),
        (Some(0), Some(0))
    );

    let mut one = watch(&site, &["--count", "1"]);
    let told = site.json(&["object", "notify", "data", "a", "first"]);
    assert_eq!(
        (
            told["acknowledged"].as_array().map(Vec::len),
            told["missed"].as_array().map(Vec::len)
        ),
        (Some(1), Some(0))
    );
    let text = rest(one.0.stdout.take().expect("piped"));
    assert!(text.ends_with("first\n"), "{text}");
    assert!(one.0.wait().expect("ends").success());
    assert_eq!(
        site.json(&["object", "watchers", "data", "a"])
            .as_array()
            .map(Vec::len),
        Some(0),
        "it ended its watch"
    );

    let mut other = watch(&site, &[]);
    let mut lines = BufReader::new(other.0.stdout.take().expect("piped")).lines();
    site.json(&["object", "notify", "data", "a", "second"]);
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        lines
            .by_ref()
            .map_while(Result::ok)
            .try_for_each(|line| sender.send(line))
    });
    // Printed on arrival, not when the command ends.
    let printed = || {
        receiver
            .recv_timeout(Duration::from_secs(60))
            .expect("it prints what it hears")
    };
    while printed() != "second" {}
    signal(&other, "-STOP");
    let told = site.json(&["object", "notify", "data", "a", "third", "--timeout", "0.5"]);
    assert_eq!(
        (
            told["acknowledged"].as_array().map(Vec::len),
            told["missed"].as_array().map(Vec::len)
        ),
        (Some(0), Some(1))
    );
    signal(&other, "-CONT");
    let error = rest(other.0.stderr.take().expect("piped"));
    assert!(!other.0.wait().expect("ends").success());
    assert!(error.contains("is lost"), "{error}");
}

#[test]
fn locks_are_taken_listed_given_back_and_broken() {
    let site = Site::new("lock", 9);
    site.up(&[]);
    let taken = site.json(&[
        "object",
        "lock",
        "data",
        "a",
        "mine",
        "--description",
        "backup",
    ]);
    let owner = taken["owner"].as_str().expect("an owner").to_owned();
    let error = site.fails(&["object", "lock", "data", "a", "mine"]);
    assert!(error.contains("holds the lock (backup)"), "{error}");
    let listed = site.json(&["object", "locks", "data", "a"]);
    assert_eq!(
        (&listed[0]["owner"], &listed[0]["kind"]),
        (&taken["owner"], &"exclusive".into())
    );
    assert!(
        site.fails(&["object", "unlock", "data", "a", "mine", "client.1/1/1"])
            .contains(&owner)
    );
    assert!(
        site.fails(&["object", "unlock", "data", "a", "yours"])
            .contains("held are mine")
    );
    site.text(&["object", "unlock", "data", "a", "mine", &owner]);
    assert_eq!(
        site.json(&["object", "locks", "data", "a"])
            .as_array()
            .map(Vec::len),
        Some(0)
    );
    let first = site.json(&["object", "lock", "data", "a", "mine", "--shared"]);
    let second = site.json(&["object", "lock", "data", "a", "mine", "--shared"]);
    assert_ne!(first["token"], second["token"]);
    let broken = site.json(&["object", "break-lock", "data", "a", "mine", "--fence"]);
    assert_eq!(broken["broken"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        site.json(&["fence", "ls"])["fences"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );
    site.text(&["object", "lock", "data", "a", "mine"]);
}
