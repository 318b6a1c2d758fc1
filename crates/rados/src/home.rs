//! The pool in which Nacre stores on a Ceph cluster what its own clusters have in their map:
//! programs, service metadata.

use crate::error::{EPERM, RadosError};
use crate::handle::{Rados, To};
use nacre_types::PoolId;
use serde_json::json;

/// Its name.
pub const HOME: &str = ".nacre";
/// Number of placement groups: the pool is small, and never busy.
const GROUPS: u32 = 8;

/// The pool, if it exists. Waits for the newest map if this client's does not have it.
///
/// # Errors
/// No monitor answers.
pub fn find(cluster: &Rados) -> Result<Option<PoolId>, RadosError> {
    let found = cluster.pool(HOME)?;
    Ok(found.map(|id| PoolId(u64::try_from(id).expect("pools of Ceph have numbers from 1"))))
}

/// The pool, created if it does not exist. Two clients that create it at once create one.
///
/// # Errors
/// No monitor answers, or this client may not create pools.
pub fn make(cluster: &Rados) -> Result<PoolId, RadosError> {
    if let Some(pool) = find(cluster)? {
        return Ok(pool);
    }
    let mut make = json!({ "prefix": "osd pool create", "pool": HOME, "pool_type": "replicated", "pg_num": GROUPS, "pgp_num": GROUPS });
    let mut made = cluster.command(To::Mon, &make, &[]);
    if matches!(&made, Err(error) if error.code == EPERM) {
        // Releases after 16 require a confirmation for names that begin with a dot.
        make["yes_i_really_mean_it"] = true.into();
        made = cluster.command(To::Mon, &make, &[]);
    }
    made?;
    // A pool without an application causes a health warning.
    cluster.command(
        To::Mon,
        &json!({ "prefix": "osd pool application enable", "pool": HOME, "app": "nacre" }),
        &[],
    )?;
    cluster.wait_for_newest_map()?;
    find(cluster)?.ok_or_else(|| {
        RadosError::of(
            -crate::error::ENOENT,
            format_args!("the pool {HOME} was made, and is gone again"),
        )
    })
}
