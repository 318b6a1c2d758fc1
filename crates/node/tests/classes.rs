//! The library's classes on our own engine: the same cases as in the sandbox, and as on Ceph
//! (`crates/classcases`).

use crate::folder::{Folder, free_ports, small};
use nacre_classcases::over::OnCluster;
use nacre_client::Driven as _;
use nacre_command::{Command, Program, ProgramInstall};
use nacre_node::{Cluster, Embedded, Pipelined, RunOptions};
use nacre_policy::library;
use nacre_wire::map::programs::{PROGRAM_POOL, source_object};
use nacre_wire::map::{ProgramKind, SourceDigest};
use std::sync::Arc;
use std::time::Duration;

/// One of this many of the sandbox's random cases is tried here.
const RARER: u32 = 8;

/// Installs a class; returns the map's epoch with it.
fn install(cluster: &Cluster, name: &str, source: &str) -> u64 {
    let client = Some("admin".to_owned());
    cluster
        .command(&Command::ProgramPrepare {
            kind: Program::Class,
            client: client.clone(),
        })
        .wait()
        .expect("a pool");
    let digest = SourceDigest(*blake3::hash(source.as_bytes()).as_bytes());
    let object = source_object(ProgramKind::Class {}, &name.into(), &digest);
    let pool = cluster
        .pool(PROGRAM_POOL)
        .wait()
        .expect("the pool of sources");
    pool.put(object, source.to_owned()).wait().expect("stored");
    let install = Command::ProgramInstall(ProgramInstall {
        kind: Program::Class,
        name: name.to_owned(),
        source: source.to_owned(),
        activate: None,
        unix_ms: None,
        client,
    });
    cluster.command(&install).wait().expect("installed")["epoch"]
        .as_u64()
        .expect("a number")
}

#[test]
fn every_class_of_the_library_keeps_its_promises_on_a_cluster() {
    let folder = Folder::new("classes");
    small(&folder, Some(free_ports(4)));
    let embedded = Arc::new(Embedded::start(folder.path(), RunOptions::default()).expect("starts"));
    let cluster = embedded.cluster();
    let pool = cluster.create_pool("objects").wait().expect("a pool").id();
    let mut epoch = 0;
    for class in library::classes() {
        epoch = install(&cluster, class.name, class.source);
    }
    let mut client = Pipelined::connect(folder.path()).expect("a client");
    for _ in 0..600 {
        if client.epoch() >= epoch {
            break;
        }
        client.turn(Duration::from_millis(100));
    }
    assert!(
        client.epoch() >= epoch,
        "the map with the classes has not come in a minute"
    );
    for (at, class) in (1_u64..).zip(library::classes()) {
        let mut host = OnCluster::new(&mut client, pool, class.name, RARER);
        nacre_classcases::run(&mut host, class.name);
        assert!(
            !host.activations.is_empty() && host.activations.iter().all(|ran| *ran == at),
            "{}",
            class.name
        );
    }
}
