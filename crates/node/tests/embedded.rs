//! Everything in one process.

use crate::folder::{Folder, small};
use nacre_node::{Embedded, RunOptions};
use std::sync::Arc;

#[test]
fn an_object_that_was_put_is_there() {
    let folder = Folder::new("put");
    small(&folder, None);
    let embedded = Arc::new(Embedded::start(folder.path(), RunOptions::default()).expect("starts"));
    let cluster = embedded.cluster();
    let pool = cluster.create_pool("things").wait().expect("a pool");
    pool.put("a", "first").wait().expect("put");
    assert_eq!(pool.get("a").wait().expect("get"), "first");
}
