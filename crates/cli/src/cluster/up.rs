//! `nacre up`: a whole cluster (DESIGN §9), in this process or with one process per daemon, in the
//! foreground or background.
//!
//! ```text
//!          directory empty? make it
//!                     │
//!   up                ├─▶ daemons here ──────────────┐
//!   up --processes    ├─▶ a process each (processes) ┼─▶ ready: introduce ─▶ Ctrl-C ─▶ stop in order
//!   up --detach       └─▶ one of the two, in a separate process (background); returns when that is ready
//! ```
//! The same directory may be started in either way each time. `--mount` mounts a file system once
//! the cluster is ready, also on a running cluster (`crate::mount::with_up`); it is unmounted
//! before the cluster stops.

use super::host::{self, Ending, Running, Shape};
use super::processes::Keeper;
use super::{Commands, Place, Session, admin, background};
use crate::mount::take_off;
use crate::mount::with_up::{self, MountedAt, Wanted};
use crate::object::pools;
use crate::out::Out;
use anyhow::{Context as _, Result, bail, ensure};
use nacre_command::{Command, PoolCreate};
use nacre_node::{Config, creating, locks};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time limit until every placement group serves.
pub const READY: Duration = Duration::from_secs(60);

/// What a new cluster is made of.
#[derive(Clone, Debug, clap::Args)]
pub struct NewCluster {
    /// Number of OSDs in a new cluster [default: 3].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub osds: Option<u32>,
    /// Number of monitors in a new cluster [default: 1].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=5))]
    pub mons: Option<u32>,
    /// First port of 127.0.0.1 in a new cluster, whose daemons take the following ones [default:
    /// the first free ones from 7400 on].
    #[arg(long)]
    pub base_port: Option<u16>,
    /// Size of each OSD's store in a new cluster, such as 10GiB [default: what fits on the disk,
    /// at most 10GiB].
    #[arg(long, value_parser = super::members::size)]
    pub osd_size: Option<u64>,
    /// Replicas of every object in a new cluster's pool `data` [default: as many as OSDs, at most
    /// 3].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10))]
    pub size: Option<u32>,
}

/// Arguments of `up`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The cluster's folder; it is made if it does not exist. The default is that of --cluster.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub new: NewCluster,
    /// Run every daemon as a process of its own, instead of all in one.
    #[arg(long)]
    pub processes: bool,
    /// Start in the background and return when the cluster is ready; `nacre down` stops it.
    #[arg(long)]
    pub detach: bool,
    /// Mount a file system at this directory, which is made if its parent exists; `nacre down` and
    /// Ctrl-C unmount it. The file system is the only one, or a new one named `home`. If the
    /// cluster runs already, it is mounted and this command ends.
    #[arg(long, value_name = "MOUNTPOINT")]
    pub mount: Option<PathBuf>,
    /// Which file system --mount mounts, if there are several, or the name of the first one.
    #[arg(long, value_name = "NAME", requires = "mount")]
    pub fs: Option<String>,
    /// What the background process is started with: where it says that it is ready is its standard
    /// input.
    #[arg(long, hide = true)]
    in_background: bool,
    /// Copies in the first pool, if it is still to be made.
    #[arg(long, hide = true)]
    first_pool: Option<u32>,
}

/// A running cluster with a connection.
pub struct Up {
    /// Its daemons.
    pub daemons: Box<dyn Running>,
    /// A connection.
    pub session: Box<dyn Session>,
    /// From the start of the daemons until every placement group served.
    pub took: Duration,
}

/// Creates the directory's cluster if there is none. Returns the number of replicas of its first
/// pool, if that is still to be created.
///
/// # Errors
/// When the directory cannot be used, or the options are invalid.
pub fn make(dir: &Path, new: &NewCluster) -> Result<Option<u32>> {
    let place = Place::new(Some(dir.to_owned()));
    if !place.exists() {
        let osds = new.osds.unwrap_or(3);
        let size = new.size.unwrap_or_else(|| osds.min(3));
        ensure!(
            size <= osds,
            "{size} copies need at least {size} OSDs; say --osds {size} or --size {osds}"
        );
        let (mons, base_port, osd_bytes) = (new.mons.unwrap_or(1), new.base_port, new.osd_size);
        match host::init(
            dir,
            &Shape {
                mons,
                osds,
                base_port,
                host: None,
                osd_bytes,
                first_pool: Some(size),
            },
        ) {
            Ok(()) => return Ok(Some(size)),
            // Another `up` has created one meanwhile: treat it as existing.
            Err(why) if host::is_there_already(&why) => {}
            Err(why) => return Err(why),
        }
    }
    let config = Config::load(dir)?;
    let differs = |given: Option<u32>, has: usize| given.is_some_and(|given| given as usize != has);
    if differs(new.osds, config.osds.len()) || differs(new.mons, config.mons.len()) {
        crate::say::line(&format!(
            "nacre: {} holds a cluster of {} monitors and {} OSDs already, and keeps them: `nacre osd add` and `nacre mon add` add more",
            dir.display(),
            config.mons.len(),
            config.osds.len()
        ));
    }
    if let Some(port) = new.base_port
        && !config
            .mons
            .values()
            .any(|entry| entry.address.ends_with(&format!(":{port}")))
    {
        bail!(
            "{} holds a cluster already; its ports are in {}/cluster.toml: change them there",
            dir.display(),
            dir.display()
        );
    }
    // A creation that ended before its pool was created.
    Ok(creating::first_pool(dir))
}

/// Starts a cluster's daemons in this process and waits until they serve.
///
/// # Errors
/// When the directory cannot be used, or the cluster does not become ready.
pub fn start(dir: &Path, first_pool: Option<u32>) -> Result<Up> {
    let begun = Instant::now();
    serve(dir, begun, host::start(dir)?, first_pool, &mut || false)
}

/// Waits until every placement group serves, creating the first pool if required.
fn serve(
    dir: &Path,
    begun: Instant,
    mut daemons: Box<dyn Running>,
    first_pool: Option<u32>,
    is_ended: &mut dyn FnMut() -> bool,
) -> Result<Up> {
    let ready = await_serving(dir, begun, &mut *daemons, first_pool, is_ended);
    match ready.and_then(|()| host::connect(dir, nacre_node::ADMIN)) {
        Ok(session) => Ok(Up {
            daemons,
            session,
            took: begun.elapsed(),
        }),
        Err(why) => {
            // Do not leave daemons running; report why it is not ready, not how it stopped.
            let _ = daemons.stop();
            Err(why)
        }
    }
}

fn await_serving(
    dir: &Path,
    begun: Instant,
    daemons: &mut dyn Running,
    mut first_pool: Option<u32>,
    is_ended: &mut dyn FnMut() -> bool,
) -> Result<()> {
    let mut cluster = host::ask_patiently(dir, Duration::from_secs(2))?;
    loop {
        ensure!(!is_ended(), "stopped before it was ready");
        for line in daemons.news() {
            crate::say::line(&format!("nacre: {}", crate::shown::shown(&line)));
        }
        if let Some(why) = daemons.hopeless() {
            bail!(why);
        }
        let seen = match cluster.command(&Command::Status {}) {
            Ok(status) => {
                // Not the OSDs that were up in an earlier run's map: those that have reported in
                // this run.
                let all_up =
                    status["osds"]["reporting"].as_u64().unwrap_or(0) as usize >= daemons.osds();
                if let (true, Some(size)) = (all_up, first_pool) {
                    let pool = PoolCreate::replicated("data", size.into(), size.min(2).into());
                    if !pools(&mut *cluster)?.iter().any(|(name, _)| name == "data") {
                        cluster.command(&Command::PoolCreate(pool))?;
                    }
                    creating::has_first_pool(dir);
                    first_pool = None;
                    continue;
                }
                // A ready cluster may still have findings, such as too few monitors.
                if all_up && is_serving(&status) {
                    return Ok(());
                }
                format!(
                    "`nacre health detail` says why ({})",
                    status["pgs"]["by_state"]
                )
            }
            Err(why) => format!("its monitors do not answer: {why:#}"),
        };
        ensure!(
            begun.elapsed() < READY,
            "the cluster did not become ready in {} s: {seen}",
            READY.as_secs()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether every placement group serves.
fn is_serving(status: &Value) -> bool {
    let states = status["pgs"]["by_state"].as_object().into_iter().flatten();
    status["pgs"]["count"].is_u64()
        && states
            .map(|(state, _)| state)
            .all(|state| state.split('+').any(|word| word == "active"))
}

/// One sentence about the failures that a cluster in one directory survives.
#[must_use]
pub fn survives(size: u64, min_size: u64, mons: u64) -> String {
    let copies = if size == 1 {
        "1 copy".to_owned()
    } else {
        format!("{size} copies")
    };
    let spare = size.saturating_sub(min_size.max(1));
    let osds = match spare {
        0 => "keeps all data when an OSD is lost, but stops until it is back".to_owned(),
        1 => "survives a daemon".to_owned(),
        more => format!("survives {more} daemons"),
    };
    let of_mons = match mons.saturating_sub(1) / 2 {
        0 => String::new(),
        lost => format!(" (of the monitors {lost})"),
    };
    if size == 1 {
        return "one replica: losing its OSD or disk loses data".to_owned();
    }
    format!("{copies} on 1 disk: {osds}{of_mons}, not the disk")
}

/// Quotes a text as a word of a shell command.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Prints a summary of the cluster.
///
/// # Errors
/// When the monitors do not answer.
pub fn introduce(
    place: &Path,
    cluster: &mut dyn Commands,
    took: Duration,
    detached: bool,
    mounted: Option<&MountedAt>,
    out: &mut Out,
) -> Result<()> {
    let pools = cluster.command(&Command::PoolLs {})?;
    let status = cluster.command(&Command::Status {})?;
    let weakest = pools["pools"]
        .as_array()
        .into_iter()
        .flatten()
        .min_by_key(|pool| pool["size"].as_u64());
    let number = |name: &str| weakest.and_then(|pool| pool[name].as_u64());
    let sentence = match (number("size"), number("min_size")) {
        (Some(size), Some(min_size)) => survives(
            size,
            min_size,
            status["mons"]["count"].as_u64().unwrap_or(1),
        ),
        _ => "there is no pool yet, so nothing to lose: `nacre pool create data`".to_owned(),
    };
    let seconds = took.as_secs_f64();
    if out.json() {
        let dir = place.display().to_string();
        out.value(&json!({
            "dir": dir, "ready_s": seconds, "survives": sentence, "detached": detached, "status": status,
            "mount": mounted.map(MountedAt::value),
        }))?;
        return out.finish();
    }
    // For another terminal, in any directory.
    let place = place.canonicalize().unwrap_or_else(|_| place.to_owned());
    let at = shell_word(&place.display().to_string());
    let where_ = if detached {
        "next:"
    } else {
        "next, in another terminal:"
    };
    out.line(&format!(
        "cluster in {at} is ready after {seconds:.2} s\n{sentence}"
    ))?;
    if let Some(mounted) = mounted {
        out.line(&mounted.line())?;
    }
    out.line(&format!("\n{where_}"))?;
    out.line(&format!("  export NACRE_CLUSTER={at}"))?;
    for (command, about) in [
        ("nacre status", "the cluster at a glance"),
        ("nacre object put data hello README.md", "store a file"),
        ("nacre object where data hello", "which OSDs hold it"),
        ("nacre object import data .", "store a directory tree"),
        ("nacre osd ok-to-stop 0", "may this OSD be stopped?"),
    ] {
        out.line(&format!("  {command:<40} {about}"))?;
    }
    let how = if detached { "`nacre down`" } else { "Ctrl-C" };
    let first = if mounted.is_some() {
        "unmounts the file system and "
    } else {
        ""
    };
    out.line(&format!(
        "\n{how} {first}stops the cluster; the data stays."
    ))?;
    out.finish()
}

/// Runs a cluster until Ctrl-C, or ensures that it runs.
///
/// # Errors
/// When it does not start or stops by itself.
pub fn run(arguments: &Arguments, place: &Place, out: &mut Out) -> Result<()> {
    let dir = arguments.dir.clone().unwrap_or_else(|| place.folder());
    let mut ready = arguments
        .in_background
        .then(background::begin)
        .transpose()?;
    let mut ending = Ending::watch()?;
    // Before the directory is touched: invalid or repeated requests change nothing.
    let mut wanted = arguments
        .mount
        .as_deref()
        .map(|at| with_up::prepare(at, arguments.fs.as_deref(), &dir))
        .transpose()?;
    if let Some(holder) = running(&dir)? {
        let Some(wanted) = &mut wanted else {
            let dir = dir.display();
            bail!(
                "{dir} is in use by {holder}: talk to it with --cluster {dir}, or stop it with `nacre down` first"
            );
        };
        make(&dir, &arguments.new)?;
        match mount_on_running(&dir, &holder, wanted, place, out) {
            // The running cluster was just ending: start it.
            Err(_) if running(&dir)?.is_none() => {}
            result => return result,
        }
    }
    let first_pool = match arguments.first_pool {
        None => make(&dir, &arguments.new)?,
        given => given,
    };
    let mut mount = || {
        wanted
            .as_mut()
            .map(|wanted| wanted.mount(&dir, place.name()))
            .transpose()
    };
    if arguments.detach && !arguments.in_background {
        let took = match background::start(&dir, arguments.processes, first_pool) {
            Ok(took) => took,
            Err(why) => match (&mut wanted, running(&dir)?) {
                // Another `up` was faster.
                (Some(wanted), Some(holder)) => {
                    return mount_on_running(&dir, &holder, wanted, place, out);
                }
                _ => return Err(why),
            },
        };
        let mounted = mount().with_context(|| but_not_mounted(&dir))?;
        return introduce(
            &dir,
            &mut *host::connect(&dir, nacre_node::ADMIN)?,
            took,
            true,
            mounted.as_ref(),
            out,
        );
    }
    let mut up = if arguments.processes {
        let begun = Instant::now();
        let keeper = Keeper::start(&dir)?;
        serve(&dir, begun, Box::new(keeper), first_pool, &mut || {
            ending.has_come()
        })?
    } else {
        start(&dir, first_pool)?
    };
    let mounted = match mount() {
        Ok(mounted) => mounted,
        Err(why) => {
            drop(up.session);
            end(&dir, up.daemons)?;
            return Err(why.context(format!(
                "the cluster in {} was stopped again",
                dir.display()
            )));
        }
    };
    match &mut ready {
        Some(ready) => ready.announce(up.took, &up.daemons.missing())?,
        None => introduce(
            &dir,
            &mut *up.session,
            up.took,
            false,
            mounted.as_ref(),
            out,
        )?,
    }
    drop(up.session);
    ending.wait(&mut *up.daemons);
    end(&dir, up.daemons)
}

/// The process running in a directory, for a message.
fn running(dir: &Path) -> Result<Option<String>> {
    let sentence = |holder: &locks::Holder| {
        let pid = holder
            .pid
            .map_or_else(String::new, |pid| format!(" (process {pid})"));
        format!("{}{pid}", holder.part)
    };
    Ok(locks::holders(dir)?.first().map(sentence))
}

/// `--mount` on a running cluster.
fn mount_on_running(
    dir: &Path,
    holder: &str,
    wanted: &mut Wanted,
    place: &Place,
    out: &mut Out,
) -> Result<()> {
    let mounted = wanted
        .mount(dir, place.name())
        .with_context(|| but_not_mounted(dir))?;
    if out.json() {
        let dir = dir.display().to_string();
        return out.value(&json!({ "dir": dir, "running": holder, "mount": mounted.value() }));
    }
    out.line(&format!(
        "the cluster in {} runs already: {holder}",
        dir.display()
    ))?;
    out.line(&mounted.line())
}

fn but_not_mounted(dir: &Path) -> String {
    format!(
        "the cluster in {} runs, but nothing was mounted",
        dir.display()
    )
}

/// Unmounts what `--mount` mounted, then stops the daemons.
///
/// # Errors
/// As [`Running::stop`]; data in a mount may be lost.
pub fn end(dir: &Path, daemons: Box<dyn Running>) -> Result<()> {
    // Failures here must not keep the daemons running.
    let unmounted = take_off::all(&locks::run_folder(dir), true);
    let all = unmounted.as_deref().unwrap_or_default();
    for one in all.iter().filter(|one| one.fault.is_none()) {
        crate::say::line(&format!("nacre: {}", one.line()));
    }
    daemons.stop()?;
    take_off::all_safe(&unmounted?)
}

/// Waits until health is OK, with a progress display.
///
/// # Errors
/// As [`admin::wait_healthy`].
pub fn wait(cluster: &mut dyn Commands, osds: usize, limit: Duration) -> Result<Duration> {
    let bar = crate::progress::waiting("waiting for HEALTH_OK");
    let result = admin::wait_healthy(cluster, osds, limit, &mut |_| bar.tick());
    bar.finish_and_clear();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_promised_is_what_the_numbers_give() {
        assert_eq!(
            survives(3, 2, 1),
            "3 copies on 1 disk: survives a daemon, not the disk"
        );
        assert_eq!(
            survives(5, 2, 3),
            "5 copies on 1 disk: survives 3 daemons (of the monitors 1), not the disk"
        );
        assert!(survives(2, 2, 1).contains("stops until it is back"));
        assert!(survives(1, 1, 1).contains("loses data"));
    }

    #[test]
    fn what_is_to_be_exported_is_one_word() {
        assert_eq!(shell_word("/home/me/nacre-data"), "/home/me/nacre-data");
        assert_eq!(shell_word("/my disk/it's"), r"'/my disk/it'\''s'");
    }

    #[test]
    fn a_cluster_serves_when_every_group_is_active() {
        let status = |states: Value| json!({ "pgs": { "count": 64, "by_state": states } });
        assert!(is_serving(&status(
            json!({ "active+clean": 60, "active+degraded": 4 })
        )));
        assert!(!is_serving(&status(
            json!({ "active+clean": 60, "peering": 4 })
        )));
        assert!(!is_serving(&json!({})));
    }
}
