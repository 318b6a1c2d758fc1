//! A Ceph cluster to test on, and pools of a test's own in it.

use nacre_rados::{Bounds, Ceph, Rados, admin};
use nacre_types::PoolId;
use serde_json::json;
use std::path::PathBuf;

/// A connection to the cluster, if there is one.
pub fn ceph(test: &str) -> Option<Rados> {
    let Some(conf) = std::env::var_os("NACRE_TEST_CEPH") else {
        println!("NOT TESTED: {test}: NACRE_TEST_CEPH names no ceph.conf");
        eprintln!("NOT TESTED: {test}: NACRE_TEST_CEPH names no ceph.conf");
        return None;
    };
    Some(
        Rados::connect(&PathBuf::from(conf), "admin", &Bounds::default())
            .expect("the cluster of NACRE_TEST_CEPH answers"),
    )
}

/// A pool that goes when the test has passed.
pub struct OwnPool {
    pub rados: Rados,
    pub id: PoolId,
    pub name: String,
}

impl OwnPool {
    pub fn new(rados: &Rados, name: &str) -> Self {
        let name = format!("nacre-test-{name}-{}", std::process::id());
        let made = admin::command(rados, &json!({ "command": "pool create", "name": name, "pg_num": 8 }));
        let id = made.expect("a pool")["id"].as_u64().expect("a number");
        Self { rados: rados.clone(), id: PoolId(id), name }
    }
    pub fn client(&self) -> Ceph {
        Ceph::new(self.rados.clone())
    }
}
impl Drop for OwnPool {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = admin::command(&self.rados, &json!({ "command": "pool rm", "name": self.name }));
        }
    }
}
