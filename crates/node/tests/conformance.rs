//! The suite that every implementation of the object cluster's trait passes, in this process and
//! over the network. `crates/rados` runs it on Ceph.

use crate::embedded::wait_clean;
use crate::folder::{Folder, free_ports};
use nacre_client::Driven;
use nacre_node::{Embedded, InProcess, InitOptions, Pipelined, RunOptions, init};
use std::sync::Arc;

/// Three OSDs with space for the largest objects of the suite.
fn options(base_port: Option<u16>) -> InitOptions {
    InitOptions {
        base_port,
        osd_bytes: 512 << 20,
        mon_bytes: 128 << 20,
        ..InitOptions::default()
    }
}

#[test]
fn in_this_process() {
    let folder = Folder::new("conformance-in-process");
    init(folder.path(), &options(None)).expect("made");
    let embedded = Arc::new(Embedded::start(folder.path(), RunOptions::default()).expect("starts"));
    let cluster = embedded.cluster();
    let pool = cluster.create_pool("suite").wait().expect("made").id();
    wait_clean(&cluster);
    nacre_conformance::run(
        &|| Box::new(InProcess::new(cluster.clone())) as Box<dyn Driven>,
        pool,
    );
}

#[test]
fn over_the_network() {
    let folder = Folder::new("conformance-network");
    init(folder.path(), &options(Some(free_ports(4)))).expect("made");
    let embedded = Arc::new(Embedded::start(folder.path(), RunOptions::default()).expect("starts"));
    let cluster = embedded.cluster();
    let pool = cluster.create_pool("suite").wait().expect("made").id();
    wait_clean(&cluster);
    let connect =
        || Box::new(Pipelined::connect(folder.path()).expect("connects")) as Box<dyn Driven>;
    nacre_conformance::run(&connect, pool);
}
