//! A cluster with full stores: writes are refused with a reason, reads and deletions work, and
//! freed space can be reused.

use crate::folder::{Folder, free_ports, small};
use nacre_node::{Cluster, Embedded, Error, RunOptions};
use nacre_wire::msg::client::OpFailure;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Found by filling one: a store without much space may report that it is busy without work in
/// flight, until a checkpoint shows its real needs. The host took that for a bug, and the process
/// panicked, with all daemons of an embedded cluster in it. It also checked fullness only twice a
/// second, while a fast writer fills the rest in between.
#[test]
fn a_full_cluster_refuses_to_grow_and_goes_on_otherwise() {
    let folder = Folder::new("full");
    small(&folder, Some(free_ports(4)));
    let embedded = Arc::new(Embedded::start(folder.path(), RunOptions::default()).expect("starts"));
    let cluster = embedded.cluster();
    let pool = cluster.create_pool("things").wait().expect("a pool");
    let content = |n: u32| vec![n as u8; 100_000 + n as usize];
    let mut stored = 0;
    let refused = loop {
        assert!(stored < 1000, "64 MiB hold no 100 MB");
        match pool.put(&format!("o{stored}"), content(stored)).wait() {
            Ok(_) => stored += 1,
            Err(why) => break why,
        }
    };
    assert!(
        matches!(&refused, Error::Refused(OpFailure::Full {})),
        "{refused}"
    );
    assert!(
        refused
            .to_string()
            .contains("no space left (deleting still works)"),
        "{refused}"
    );
    assert!(stored > 200, "only {stored} objects fitted");
    for n in 0..stored {
        assert_eq!(
            pool.get(&format!("o{n}")).wait().expect("readable"),
            content(n),
            "object {n}"
        );
    }
    assert!(embedded.halted().is_empty(), "{:?}", embedded.halted());
    for n in 0..stored / 2 {
        pool.remove(&format!("o{n}")).wait().expect("deletable");
    }
    // The stores return space at their next checkpoint, and the monitors clear the flag on the next
    // report.
    let begun = Instant::now();
    while let Err(why) = pool.put("again", content(7)).wait() {
        assert!(matches!(why, Error::Refused(OpFailure::Full {})), "{why}");
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "still full after half of it was deleted"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(
        pool.get(&format!("o{}", stored - 1))
            .wait()
            .expect("readable"),
        content(stored - 1)
    );
    assert!(embedded.halted().is_empty(), "{:?}", embedded.halted());
    // And it starts again.
    drop(cluster);
    embedded.stop().expect("it stops");
    let embedded =
        Arc::new(Embedded::start(folder.path(), RunOptions::default()).expect("starts again"));
    let pool = embedded
        .cluster()
        .pool("things")
        .wait()
        .expect("still there");
    assert_eq!(pool.get("again").wait().expect("readable"), content(7));
}

/// F15: a cluster created by the first `open` of its directory had OSDs of 10 GiB, on any disk. No
/// test failed when that was reintroduced: the files are sparse, and everything started.
#[test]
fn a_cluster_that_nobody_described_fits_on_its_disk() {
    const DISK: u64 = 1 << 30;
    struct Mounted<'a>(&'a Folder);
    impl Drop for Mounted<'_> {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
        }
    }
    let folder = Folder::new("default-size");
    std::fs::create_dir_all(folder.path()).expect("made");
    let size = format!("size={DISK}");
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", &size, "nacre-test"])
        .arg(folder.path())
        .output();
    if !mount.is_ok_and(|mount| mount.status.success()) {
        eprintln!("SKIPPED: this user may not mount a file system");
        return;
    }
    let _mounted = Mounted(&folder);
    let cluster = Cluster::open(folder.path()).expect("an empty folder becomes a cluster");
    let size = |id: u32| {
        folder
            .path()
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
    drop(cluster);
}
