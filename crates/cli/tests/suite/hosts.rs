//! Daemons on faulty machines: disks that hang or are full, logs that cannot be written, processes
//! that end in between.

use super::operator::Site;
use super::{nacre, scratch};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Starts a cluster of processes whose devices meet the faults in the file.
fn up_with_faults(site: &Site, faults: &Path) {
    let _ = std::fs::remove_file(faults);
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    command
        .env_remove("NACRE_CLUSTER")
        .env("NACRE_DEVICE_FAULTS", faults);
    command
        .args(["up", "--processes", "--detach", "--dir"])
        .arg(site.dir());
    let port = site.port().to_string();
    let output = command
        .args(["--base-port", &port])
        .stdin(Stdio::null())
        .output()
        .expect("runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn log(site: &Site, who: &str) -> String {
    std::fs::read_to_string(site.dir().join(format!("run/{who}.log"))).expect("a log")
}

/// F30: a flush that hung for 60 s was never noticed: 25 s without an answer, HEALTH_OK. Now the
/// OSD steps down, the others serve, health names the disk, and the daemon ends.
#[test]
fn a_disk_that_hangs_is_named_and_its_osd_steps_down() {
    let (site, faults) = (Site::new("hang", 30), scratch("operator-hang.faults"));
    up_with_faults(&site, &faults);
    site.put("a", "before");
    site.text(&["config", "set", "osd.device_hung_ms", "5000"]);
    std::fs::write(&faults, "osd.1/ flush hang 60000\n").expect("writable");
    // Every PG has all three OSDs: this waits for the hung one until it is down.
    site.put("b", "while it hangs");
    let health = |site: &Site| site.text(&["health", "detail"]);
    site.until("named", |site| {
        let _ = site.run(&["object", "put", "data", "c", file!()]);
        health(site).contains("osd.1/store: a flush has not ended")
    });
    site.until("ended", |site| {
        log(site, "osd.1").contains("osd.1 ends: device")
    });
    assert_eq!(
        site.text(&["object", "get", "data", "b", "-"]),
        "while it hangs"
    );
    let _ = std::fs::remove_file(faults);
}

/// F15's worst case: a device without any space, not even the reserve. The daemon stops, and its
/// message recommends nothing destructive.
#[test]
fn a_daemon_without_any_space_says_that_nothing_is_lost() {
    let (site, faults) = (
        Site::new("no-space", 31),
        scratch("operator-no-space.faults"),
    );
    up_with_faults(&site, &faults);
    std::fs::write(&faults, "osd.2/ write error 28\n").expect("writable");
    site.put("a", "two replicas are enough");
    site.until("stopped", |site| {
        log(site, "osd.2").contains("osd.2 stopped")
    });
    let said = log(&site, "osd.2");
    assert!(
        said.contains("free space there")
            && said.contains("Nothing is lost")
            && !said.contains("osd rm"),
        "{said}"
    );
    std::fs::remove_file(&faults).expect("ours");
}

/// A small file system in memory. Unmounted when dropped.
struct Mounted(PathBuf);
impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// `None`, with a message: this user may not mount.
fn mount(dir: &Path, size: &str) -> Option<Mounted> {
    std::fs::create_dir_all(dir).expect("made");
    let options = format!("size={size}");
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", &options, "nacre-test"])
        .arg(dir)
        .output();
    if !mount.is_ok_and(|mount| mount.status.success()) {
        eprintln!("SKIPPED: this user may not mount a file system");
        return None;
    }
    Some(Mounted(dir.to_owned()))
}

/// F15: stores without a given size were 10 GiB each, on any disk. No test failed when that was
/// reintroduced, since their files are sparse: each started, and reported space that did not exist.
#[test]
fn new_stores_get_a_size_that_the_disk_has() {
    const DISK: u64 = 1 << 30;
    let dir = scratch("operator-default-size");
    let Some(_mounted) = mount(&dir, &DISK.to_string()) else {
        return;
    };
    let cluster = dir.join("cluster");
    let arguments = [
        "cluster",
        "init",
        "--mons",
        "1",
        "--osds",
        "3",
        "--base-port",
        "7400",
        "--dir",
    ];
    let output = nacre([&arguments[..], &[cluster.to_str().expect("text")]].concat());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let size = |id: u32| {
        cluster
            .join(format!("osd.{id}/store"))
            .metadata()
            .expect("a store")
            .len()
    };
    let sizes = [0, 1, 2].map(size);
    assert!(
        sizes.iter().sum::<u64>() < DISK && sizes[0] >= DISK / 5,
        "{sizes:?}"
    );
}

/// F15 for real, where the test may mount: three OSDs report more space than their file system has,
/// and another program takes the rest.
#[test]
fn a_full_host_refuses_growth_and_everything_else_goes_on() {
    let mut site = Site::new("full", 32);
    let Some(_mounted) = mount(site.dir(), "200M") else {
        return;
    };
    site.up(&["--processes", "--osd-size", "512MiB"]);
    let content = "x".repeat(2 << 20);
    let file = scratch("operator-full.content");
    std::fs::write(&file, content).expect("writable");
    let put = |site: &Site, name: &str| {
        site.run(&["object", "put", "data", name, file.to_str().expect("text")])
    };
    let refused = |site: &Site| (0..100).find(|n| !put(site, &format!("f{n}")).status.success());
    let first = refused(&site).expect("200 MiB do not hold 600");
    assert!(first > 2, "{first}");
    // Another program takes the remaining space, to the last byte.
    let hog = site.dir().join("hog");
    // (Refused space is released a moment later: take it, too.)
    let more = |n: u32| {
        let hog = format!("of={}", hog.display());
        let _ = Command::new("dd")
            .args([
                "if=/dev/zero",
                "bs=4k",
                "oflag=append",
                "conv=notrunc",
                &hog,
            ])
            .output();
        let put = put(&site, &format!("more{n}"));
        (!put.status.success()).then(|| String::from_utf8_lossy(&put.stderr).into_owned())
    };
    let why = (0..20).find_map(more).expect("there is nothing left");
    assert!(why.contains("no space left"), "{why}");
    site.text(&["object", "rm", "data", "f0"]);
    site.stop();
    site.up(&["--processes"]);
    site.text(&["object", "rm", "data", "f1"]);
    assert!(
        site.text(&["object", "get", "data", "f2", "-"]).len() == 2 << 20,
        "nothing is lost"
    );
    std::fs::remove_file(hog).expect("ours");
    for n in 2..first {
        site.text(&["object", "rm", "data", &format!("f{n}")]);
    }
    site.until_clean();
    site.until("writable", |site| put(site, "again").status.success());
    site.stop();
}

/// F23: a monitor whose output could not be written ended at its first line, exit code 101; all of
/// a machine's at once.
// Printing itself must not fail.
#[test]
fn a_daemon_whose_output_cannot_be_written_goes_on() {
    let mut site = Site::new("mute", 33);
    site.up(&[]);
    site.stop();
    // Its lines at the start.
    std::fs::set_permissions(site.dir(), std::fs::Permissions::from_mode(0o755)).expect("ours");
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .expect("Linux");
    let config = site.dir().join("cluster.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    command
        .args(["mon", "run", "--id", "0", "--config"])
        .arg(&config)
        .stdin(Stdio::null());
    let mut mon = command
        .stdout(full.try_clone().expect("a copy"))
        .stderr(full)
        .spawn()
        .expect("starts");
    site.until("answering", |site| {
        assert!(mon.try_wait().expect("ours").is_none(), "it ended");
        site.run(&["status"]).status.success()
    });
    site.text(&["down"]);
    assert!(mon.wait().expect("ours").success());
}

/// F40: a command waited 30 s for monitors that, as the locks know, do not run.
#[test]
fn where_nothing_runs_a_command_says_so() {
    let mut site = Site::new("nothing", 34);
    site.up(&[]);
    site.stop();
    let begun = std::time::Instant::now();
    for command in [
        &["status"][..],
        &["object", "ls", "data"],
        &["meta", "get", "a/b"],
    ] {
        let why = site.fails(command);
        assert!(
            why.contains("nothing runs in") && why.contains("nacre up"),
            "{why}"
        );
    }
    assert!(begun.elapsed().as_secs() < 25, "three times 30 s otherwise");
}

/// F40: `up --detach` reported only that it was ready when an OSD did not start.
#[test]
fn up_in_the_background_names_what_does_not_run() {
    let mut site = Site::new("missing", 35);
    site.up(&["--processes"]);
    site.stop();
    std::fs::write(site.dir().join("osd.1/store"), "not a store").expect("ours");
    let port = site.port().to_string();
    let output = nacre(site.arguments(&["up", "--detach", "--processes", "--base-port", &port]));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("osd.1"), "{said}");
}

/// F42: 30 s and "no monitor has answered" for a key that was too long for any monitor.
#[test]
fn a_key_that_is_too_long_is_refused_at_once() {
    let site = Site::new("long-key", 36);
    site.up(&[]);
    let key = format!("app/{}", "x".repeat(2060));
    let why = site.fails(&["meta", "put", &key, "v"]);
    assert!(why.contains("at most 1024 bytes"), "{why}");
}

/// F60: no other user may read a cluster's directory.
#[test]
fn a_clusters_directory_is_its_owners_alone() {
    let site = Site::new("private", 37);
    site.up(&["--processes"]);
    for name in [
        "",
        "run",
        "cluster.toml",
        "osd.0",
        "osd.0/store",
        "mon.0/store",
    ] {
        let mode = site
            .dir()
            .join(name)
            .metadata()
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o077, 0, "{name} has mode {mode:o}");
    }
}
