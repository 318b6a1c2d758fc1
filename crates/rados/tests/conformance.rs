//! The suite that every implementation of the object cluster's trait must pass.

use crate::OwnPool;
use nacre_client::Driven;
use nacre_rados::{Bounds, Ceph, Rados};

#[test]
fn on_ceph() {
    let Some((conf, _shared)) = crate::ceph("the conformance suite on Ceph") else {
        return;
    };
    let pool = OwnPool::make(&conf, "suite");
    // Every client has a connection of its own.
    let connect = || {
        let rados = Rados::connect(&conf, "admin", &Bounds::default()).expect("connects");
        Box::new(Ceph::new(rados)) as Box<dyn Driven>
    };
    nacre_conformance::run(&connect, pool.id);
}
