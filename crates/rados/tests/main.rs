//! Against a real Ceph cluster: the one whose `ceph.conf` the variable `NACRE_TEST_CEPH` names. `./x test` brings one up.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests of a host")]

use bytes::Bytes;
use nacre_client::{Done, Driven, Failure, Operation};
use nacre_rados::{Bounds, Ceph, Rados, admin};
use nacre_types::{ObjectId, PoolId};
use nacre_wire::msg::client::SubOp;
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

fn call(cluster: &mut Ceph, operation: Operation) -> Result<Done, Failure> {
    let now = cluster.now();
    let id = cluster.objects().submit(now, operation).expect("there is room");
    let (deadline, mut ended) = (Instant::now() + Duration::from_mins(1), Vec::new());
    while ended.is_empty() {
        assert!(Instant::now() < deadline, "no answer in a minute");
        Driven::turn(cluster, Duration::from_millis(100));
        Driven::completions(cluster, &mut ended);
    }
    assert_eq!((ended.len(), ended[0].id), (1, id));
    ended.remove(0).result
}

#[test]
fn what_was_written_is_read() {
    let Some(conf) = std::env::var_os("NACRE_TEST_CEPH").map(PathBuf::from) else {
        eprintln!(
            "SKIPPED: NACRE_TEST_CEPH names no ceph.conf (`./x test` brings a Ceph cluster up where its packages are)"
        );
        return;
    };
    let rados = Rados::connect(&conf, "admin", &Bounds::default()).expect("the cluster is up");
    let made = admin::command(&rados, &json!({ "command": "pool create", "name": "first" })).expect("a new cluster");
    let pool = PoolId(made["id"].as_u64().expect("pools are numbered"));
    let mut cluster = Ceph::new(rados);
    let on = |ops: Vec<SubOp>, payload: Vec<Bytes>| Operation {
        pool,
        object: ObjectId::named("one"),
        ops,
        payload,
        ..Operation::default()
    };
    let data = Bytes::from_static(b"what was written");
    let size = data.len() as u64;
    call(&mut cluster, on(vec![SubOp::WriteFull { length: size }], vec![data.clone()])).expect("written");
    let read = call(&mut cluster, on(vec![SubOp::Read { offset: 0, length: size }], Vec::new())).expect("read");
    assert_eq!(read.payload.concat(), data);
}
