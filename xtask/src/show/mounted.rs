//! File systems of scenarios: served by a cluster of processes, or of Ceph's.
//!
//! ```text
//!  mon.0, osd.0 … osd.2, mds.0, mds.1 ─▶ fs create ─▶ a server has it ─▶ Mount::new … ─▶ Mount::end ─▶ fs check
//! ```

use super::site::Site;
use crate::ceph::Throwaway;
use crate::cluster::Cluster;
use crate::cluster::files::{self, NAME, await_server, why_not};
use anyhow::Result;
use std::time::{Duration, Instant};

/// Servers of a file system: one has it and the others are standbys.
pub const SERVERS: u32 = 2;

const HEALED_MAX: Duration = Duration::from_mins(5);

/// Whether this process may mount anything here; reports why not.
pub fn is_possible(site: &mut Site, what: &str) -> bool {
    let why = why_not();
    if let Some(why) = why {
        site.figures.skipped(what, why);
    }
    why.is_none()
}

/// Starts a cluster of a monitor, three OSDs and two servers, with a file system served by one of
/// them.
///
/// # Errors
/// When it does not come up.
pub fn serve(site: &Site) -> Result<Cluster> {
    let mut cluster = site.cluster(1, 3)?;
    for id in 0..SERVERS {
        cluster.run("mds", id)?;
    }
    cluster.ask(&["fs", "create", NAME])?;
    await_server(&cluster)?;
    cluster.await_health(HEALED_MAX)?;
    Ok(cluster)
}

/// The same on a Ceph cluster, which is removed when its value is dropped.
///
/// # Errors
/// When it does not come up.
pub fn serve_on_ceph(site: &Site) -> Result<(Throwaway, Cluster)> {
    let (ceph, mut cluster) = site.ceph(3)?;
    cluster.ask(&["fs", "create", NAME])?;
    for id in 0..SERVERS {
        cluster.run("mds", id)?;
    }
    await_server(&cluster)?;
    Ok((ceph, cluster))
}

/// Checks that the file system is consistent, with `nacre fs check`.
///
/// # Errors
/// The findings.
pub fn check(site: &mut Site, cluster: &Cluster) -> Result<()> {
    let begun = Instant::now();
    files::check(cluster)?;
    site.figures
        .note("fs check: took", begun.elapsed().as_secs_f64(), "s");
    site.figures.proved("fs check finds nothing");
    Ok(())
}
