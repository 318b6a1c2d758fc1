//! `nacre down`: stops all processes of a directory, embedded or separate.
//!
//! Mounts of `nacre up --mount` are unmounted first: their changes can only be made durable while
//! the cluster runs.

use super::Place;
use super::host;
use super::processes::STOP;
use crate::mount::take_off::{self, TakenOff};
use crate::out::Out;
use anyhow::{Context as _, Result, anyhow, bail};
use nacre_command::Command;
use nacre_node::{locks, stop};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the cluster may take to answer before unmounting.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Arguments of `down`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The cluster's folder. The default is that of --cluster.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Unmount what `nacre up --mount` mounted also while programs use it, or while the cluster
    /// does not answer; without, nothing is stopped then.
    #[arg(long)]
    pub force: bool,
}

/// Stops it, and reports the stopped processes.
///
/// # Errors
/// When nothing runs there, or it may not be stopped.
pub fn run(arguments: &Arguments, place: &Place, out: &mut Out) -> Result<()> {
    let named = arguments.dir.clone().map(|dir| Place::new(Some(dir)));
    let place = named.as_ref().unwrap_or(place);
    let dir = place.folder();
    if !place.exists() {
        bail!(
            "{} holds no cluster; --dir, --cluster or $NACRE_CLUSTER names another folder",
            dir.display()
        );
    }
    // This command may itself run in the mount: a relative name is invalid once it is unmounted.
    let whole = dir
        .canonicalize()
        .with_context(|| format!("finding {}", dir.display()))?;
    let bar = crate::progress::waiting("stopping");
    let unmounted = unmount(place, &whole, arguments.force);
    let stopped = unmounted.map(|unmounted| (unmounted, stop::stop(&whole, STOP)));
    bar.finish_and_clear();
    let (unmounted, stopped) = stopped?;
    let stopped = match (stopped, take_off::all_safe(&unmounted)) {
        // Possible data loss is reported in any case.
        (Err(why), Err(lost)) => bail!("{lost}; {why}"),
        (stopped, _) => stopped?,
    };
    for found in take_off::waiting(&locks::run_folder(&whole))? {
        let (at, process) = (found.record.dir.display(), found.process());
        crate::say::line(&format!(
            "nacre: {at} is still mounted{process}: its calls wait until the cluster runs again"
        ));
    }
    if out.json() {
        let mount = |one: &TakenOff| json!({ "fs": one.fs, "dir": one.dir.display().to_string(), "fault": one.fault });
        let one = |one: &stop::Stopped| json!({ "what": one.part.to_string(), "pid": one.pid, "killed": one.killed });
        let mounts: Vec<_> = unmounted.iter().map(mount).collect();
        out.value(
            &json!({ "stopped": stopped.iter().map(one).collect::<Vec<_>>(), "unmounted": mounts }),
        )?;
        return take_off::all_safe(&unmounted);
    }
    for one in unmounted.iter().filter(|one| one.fault.is_none()) {
        out.line(&one.line())?;
    }
    for one in &stopped {
        let how = if one.killed {
            "did not end when asked and was killed"
        } else {
            "stopped"
        };
        out.line(&format!("{} (process {}) {how}", one.part, one.pid))?;
    }
    out.line(&format!(
        "nothing runs in {} any more; the data stays",
        dir.display()
    ))?;
    take_off::all_safe(&unmounted)
}

/// Unmounts what `nacre up --mount` mounted, if the cluster can make the changes durable.
fn unmount(place: &Place, dir: &Path, force: bool) -> Result<Vec<TakenOff>> {
    let run = locks::run_folder(dir);
    let waiting: Vec<_> = take_off::waiting(&run)?
        .into_iter()
        .filter(|found| found.record.by_up)
        .collect();
    let Some(first) = waiting.first() else {
        return take_off::all(&run, force);
    };
    let (at, process) = (first.record.dir.display(), first.process());
    let cluster = dir.display();
    if locks::holders(dir)?.is_empty() {
        if force {
            return take_off::all(&run, force);
        }
        bail!(
            "nothing runs in {cluster}, and {at} is still mounted{process}: `nacre up --dir {cluster}` brings it back with \
             what it has not written yet, `nacre down --force` gives that up"
        );
    }
    let answer = host::ask_patiently(place.path(), ANSWER_MAX).and_then(|mut cluster| {
        // It only matters that there is a leader, not the state of the cluster.
        cluster.command(&Command::Status {})
    });
    match answer {
        Err(why) if !force => Err(anyhow!(
            "the cluster does not answer ({why:#}), so what was written to {at}{process} cannot be made safe; nothing was \
             stopped. `nacre health detail` says what is wrong, `nacre down --force` gives up what is not written yet"
        )),
        _ => take_off::all(&run, force),
    }
}
