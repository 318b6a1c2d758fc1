//! Against a real Ceph cluster: the one whose `ceph.conf` the variable `NACRE_TEST_CEPH` names. `./x test` brings one up.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests of a host")]

mod conformance;
mod meta;

use std::path::PathBuf;

/// The cluster's configuration; without one, says that nothing was tested.
pub fn ceph(test: &str) -> Option<PathBuf> {
    let conf = std::env::var_os("NACRE_TEST_CEPH").map(PathBuf::from);
    if conf.is_none() {
        eprintln!(
            "SKIPPED {test}: NACRE_TEST_CEPH names no ceph.conf (`./x test` brings a Ceph cluster up where its packages are)"
        );
    }
    conf
}
