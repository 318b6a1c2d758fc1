//! A Ceph cluster that is paused while in use: everything ends in bounded time, reports why, and
//! continues when the cluster does.

use crate::OwnPool;
use nacre_client::{Completion, Failure, ObjectCluster, OpId, Operation};
use nacre_rados::{Bounds, Ceph, Rados, To};
use nacre_types::{ObjectId, PoolId, Time};
use nacre_wire::Payload;
use nacre_wire::msg::client::SubOp;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest wait of a test, whatever the bounds say.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// The daemons' paused processes; they continue when this is dropped.
pub struct Stopped(Vec<String>);
impl Stopped {
    /// The processes whose pid files have this prefix.
    pub fn of(conf: &Path, which: &str) -> Self {
        let run = conf.parent().expect("in a folder").join("run");
        let files =
            std::fs::read_dir(&run).unwrap_or_else(|error| panic!("{}: {error}", run.display()));
        let names = files.flatten().map(|file| file.path());
        let mine = |path: &std::path::PathBuf| {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            name.starts_with(which) && name.ends_with(".pid")
        };
        let pid = |path: std::path::PathBuf| {
            std::fs::read_to_string(path)
                .expect("readable")
                .trim()
                .to_owned()
        };
        let pids: Vec<String> = names.filter(mine).map(pid).collect();
        assert!(
            !pids.is_empty(),
            "no daemon {which}* has a pid file in {}",
            run.display()
        );
        let stopped = Self(pids);
        stopped.signal("-STOP");
        stopped
    }
    fn signal(&self, signal: &str) {
        assert!(
            Command::new("kill")
                .arg(signal)
                .args(&self.0)
                .status()
                .expect("kill runs")
                .success()
        );
    }
}
impl Drop for Stopped {
    fn drop(&mut self) {
        self.signal("-CONT");
    }
}

fn write(ceph: &mut Ceph, pool: PoolId, number: u32) -> OpId {
    let payload: Payload = vec![number.to_le_bytes().to_vec().into()];
    let object = ObjectId::named(&format!("o{}", number % 40));
    let operation = Operation {
        pool,
        object,
        ops: vec![SubOp::WriteFull { length: 4 }],
        payload,
        ..Operation::default()
    };
    ceph.submit(Time::ZERO, operation).expect("there is room")
}

fn all(ceph: &mut Ceph, mut left: usize) -> BTreeMap<OpId, Result<(), Failure>> {
    let (begun, mut ended, mut results) = (Instant::now(), Vec::new(), BTreeMap::new());
    while left > 0 {
        ceph.turn(Duration::from_millis(100));
        ceph.completions(&mut ended);
        for Completion { id, result } in ended.drain(..) {
            left -= 1;
            results.insert(id, result.map(drop));
        }
        assert!(begun.elapsed() < WAIT_MAX, "{left} operations never end");
    }
    results
}

#[test]
fn osds_that_stand_still_bound_operations_and_go_on() {
    let Some((conf, _alone)) = crate::ceph_alone("an outage of Ceph's OSDs") else {
        return;
    };
    let pool = OwnPool::make(&conf, "outage");
    let bounds = Bounds {
        operation: Duration::from_secs(3),
        ..Bounds::default()
    };
    let mut ceph = Ceph::new(Rados::connect(&conf, "admin", &bounds).expect("connects"));
    for number in 0..40 {
        write(&mut ceph, pool.id, number);
    }
    assert!(all(&mut ceph, 40).values().all(Result::is_ok));
    let stopped = Stopped::of(&conf, "osd.");
    for number in 0..40 {
        write(&mut ceph, pool.id, number);
    }
    // Operations of several stages, too.
    let staged = Operation {
        pool: pool.id,
        object: ObjectId::named("z"),
        ops: vec![SubOp::Zero {
            offset: 0,
            length: 1,
        }],
        ..Operation::default()
    };
    ceph.submit(Time::ZERO, staged).expect("there is room");
    let results = all(&mut ceph, 41);
    assert!(
        results
            .values()
            .all(|result| *result == Err(Failure::Unknown)),
        "{results:?}"
    );
    drop(stopped);
    let begun = Instant::now();
    loop {
        // The same client, unchanged.
        write(&mut ceph, pool.id, 7);
        match all(&mut ceph, 1).into_values().next() {
            Some(Ok(())) => break,
            Some(Err(Failure::Unknown)) => {}
            other => panic!("{other:?}"),
        }
        assert!(begun.elapsed() < WAIT_MAX, "it does not come back");
    }
}

#[test]
fn monitors_that_stand_still_bound_connecting_and_commands() {
    let Some((conf, _alone)) = crate::ceph_alone("an outage of Ceph's monitors") else {
        return;
    };
    let bounds = Bounds {
        connect: Duration::from_secs(2),
        command: Duration::from_secs(2),
        ..Bounds::default()
    };
    let before = Rados::connect(&conf, "admin", &bounds).expect("connects");
    {
        let _stopped = Stopped::of(&conf, "mon.");
        let begun = Instant::now();
        let why = Rados::connect(&conf, "admin", &bounds)
            .err()
            .expect("nobody answers")
            .to_string();
        assert!(
            why.contains("no answer in time") && why.contains(&conf.display().to_string()),
            "{why}"
        );
        let why = before
            .ask(To::Mon, json!({ "prefix": "status" }))
            .expect_err("nobody answers")
            .to_string();
        assert!(why.contains("no answer in time"), "{why}");
        assert!(begun.elapsed() < WAIT_MAX);
    }
    let begun = Instant::now();
    while before.ask(To::Mon, json!({ "prefix": "status" })).is_err() {
        assert!(begun.elapsed() < WAIT_MAX, "it does not come back");
    }
}

#[test]
fn what_is_not_there_is_said_so() {
    let Some((conf, _shared)) = crate::ceph("errors of connecting to Ceph") else {
        return;
    };
    let refused = |conf: &Path, name: &str| {
        let bounds = Bounds {
            connect: Duration::from_secs(2),
            ..Bounds::default()
        };
        Rados::connect(conf, name, &bounds)
            .err()
            .expect("it cannot")
            .to_string()
    };
    let none = Path::new("/nonexistent/ceph.conf");
    assert!(
        refused(none, "admin").contains("/nonexistent/ceph.conf"),
        "{}",
        refused(none, "admin")
    );
    let folder = std::env::temp_dir().join(format!("nacre-ceph-conf-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("made");
    let nobody = folder.join("ceph.conf");
    std::fs::write(
        &nobody,
        "[global]\nmon host = [v2:127.0.0.1:1,v1:127.0.0.1:2]\nauth client required = none\n",
    )
    .expect("written");
    let why = refused(&nobody, "admin");
    assert!(
        why.contains("librados error") && why.contains("connecting"),
        "{why}"
    );
    std::fs::remove_dir_all(&folder).expect("removed");
    drop(conf);
}
