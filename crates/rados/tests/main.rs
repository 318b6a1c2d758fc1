//! Against a Ceph cluster: `NACRE_TEST_CEPH` names its `ceph.conf`. Without one, each test says that it did nothing.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests of a host")]
#![allow(missing_docs, reason = "tests")]

mod classes;
mod place;
