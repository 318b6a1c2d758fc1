//! Tests with a real Ceph cluster: the one whose `ceph.conf` is in the variable `NACRE_TEST_CEPH`.
//! `./x test` starts one.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests of a host"
)]

mod classes;
mod conformance;
mod engine;
mod meta;
mod outage;

use nacre_command::Command;
use nacre_rados::{Bounds, Rados, admin};
use nacre_types::PoolId;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Tests share the cluster; a test that stops it has it alone.
static USERS: RwLock<()> = RwLock::new(());

fn conf(test: &str) -> Option<PathBuf> {
    let conf = std::env::var_os("NACRE_TEST_CEPH").map(PathBuf::from);
    if conf.is_none() {
        eprintln!(
            "SKIPPED {test}: NACRE_TEST_CEPH names no ceph.conf (`./x test` brings a Ceph cluster up where its packages are)"
        );
    }
    conf
}

/// The cluster's configuration, shared; without one, reports that nothing was tested.
pub fn ceph(test: &str) -> Option<(PathBuf, RwLockReadGuard<'static, ()>)> {
    Some((
        conf(test)?,
        USERS.read().unwrap_or_else(PoisonError::into_inner),
    ))
}

/// The same, exclusively.
pub fn ceph_alone(test: &str) -> Option<(PathBuf, RwLockWriteGuard<'static, ()>)> {
    Some((
        conf(test)?,
        USERS.write().unwrap_or_else(PoisonError::into_inner),
    ))
}

/// A request as a command.
pub fn command(request: Value) -> Command {
    Command::parse(&request.to_string()).expect("a command")
}

/// A pool of a test; it goes with this.
pub struct OwnPool {
    rados: Rados,
    name: String,
    /// Its id.
    pub id: PoolId,
}
impl OwnPool {
    /// Creates one.
    pub fn make(conf: &std::path::Path, name: &str) -> Self {
        let rados = Rados::connect(conf, "admin", &Bounds::default()).expect("connects");
        let name = format!("{name}-{}", std::process::id());
        let made = command(json!({ "command": "pool create", "name": name, "pg_num": 8 }));
        let made = admin::command(&rados, &made).expect("made");
        Self {
            rados,
            name,
            id: PoolId(made["id"].as_u64().expect("a number")),
        }
    }
}
impl Drop for OwnPool {
    fn drop(&mut self) {
        // After a failed test it is kept for inspection.
        if !std::thread::panicking() {
            admin::command(
                &self.rados,
                &Command::PoolRm {
                    name: self.name.clone(),
                    yes_i_really_mean_it: true,
                },
            )
            .expect("removed");
        }
    }
}
