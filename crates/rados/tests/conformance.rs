//! The suite that every implementation of the object cluster's trait passes.

use nacre_client::Driven;
use nacre_rados::{Bounds, Ceph, Rados, admin};
use nacre_types::PoolId;
use serde_json::json;

#[test]
fn on_ceph() {
    let Some(conf) = crate::ceph("the conformance suite on Ceph") else { return };
    let rados = Rados::connect(&conf, "admin", &Bounds::default()).expect("connects");
    let name = format!("suite-{}", std::process::id());
    let made = admin::command(&rados, &json!({ "command": "pool create", "name": name, "pg_num": 8 })).expect("made");
    let pool = PoolId(made["id"].as_u64().expect("a number"));
    // Every client has a connection of its own.
    let connect = || {
        let rados = Rados::connect(&conf, "admin", &Bounds::default()).expect("connects");
        Box::new(Ceph::new(rados)) as Box<dyn Driven>
    };
    nacre_conformance::run(&connect, pool);
    admin::command(&rados, &json!({ "command": "pool rm", "name": name })).expect("removed");
}
