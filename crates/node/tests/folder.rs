//! Directories for clusters.

use nacre_node::{Config, InitOptions, init};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that is removed when the test has passed; it stays for inspection if the test fails.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("nacre-node-{}-{number}-{name}", std::process::id()));
        Self(path)
    }
    pub fn path(&self) -> &Path {
        &self.0
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// A small cluster's directory: one monitor, three OSDs of 64 MiB.
pub fn small(folder: &Folder, base_port: Option<u16>) -> Config {
    let options = InitOptions {
        base_port,
        osd_bytes: 64 << 20,
        mon_bytes: 128 << 20,
        ..InitOptions::default()
    };
    init(folder.path(), &options).expect("an empty folder becomes a cluster")
}

/// First of `count` consecutive free ports. Below the range that the kernel uses for outgoing
/// connections: tests make hundreds of them.
pub fn free_ports(count: u16) -> u16 {
    // Ports given to one test are not given to another of this process, whatever the counts.
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    for _ in 0..1000 {
        let at = std::process::id() % 12_000 + TAKEN.fetch_add(u32::from(count), Ordering::Relaxed);
        let from = 20_000 + (at % 12_000) as u16;
        let listeners: Vec<_> = (from..from + count)
            .filter_map(|port| std::net::TcpListener::bind(("127.0.0.1", port)).ok())
            .collect();
        if listeners.len() == usize::from(count) {
            return from;
        }
    }
    panic!("no {count} free ports in a row between 20000 and 32000");
}
