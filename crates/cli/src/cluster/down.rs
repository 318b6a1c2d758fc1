//! `nacre down`: stops whatever runs in a folder, embedded or as processes.

use super::Place;
use super::processes::STOP;
use crate::out::Out;
use anyhow::{Result, bail};
use nacre_node::stop;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `down`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The cluster's folder. The default is that of --cluster.
    #[arg(long)]
    pub dir: Option<PathBuf>,
}

/// Stops it, and says what it did.
///
/// # Errors
/// When nothing runs there, or it may not be stopped.
pub fn run(arguments: &Arguments, place: &Place, out: &mut Out) -> Result<()> {
    let named = arguments.dir.clone().map(|dir| Place::new(Some(dir)));
    let place = named.as_ref().unwrap_or(place);
    let dir = place.folder();
    if !place.exists() {
        bail!("{} holds no cluster; --dir, --cluster or $NACRE_CLUSTER names another folder", dir.display());
    }
    let bar = crate::progress::waiting("stopping");
    let stopped = stop::stop(&dir, STOP);
    bar.finish_and_clear();
    let stopped = stopped?;
    if out.json() {
        let one = |one: &stop::Stopped| json!({ "what": one.part.to_string(), "pid": one.pid, "killed": one.killed });
        return out.value(&json!({ "stopped": stopped.iter().map(one).collect::<Vec<_>>() }));
    }
    for one in &stopped {
        let how = if one.killed { "did not end when asked and was killed" } else { "stopped" };
        out.line(&format!("{} (process {}) {how}", one.part, one.pid))?;
    }
    out.line(&format!("nothing runs in {} any more; the data stays", dir.display()))
}
