//! `nacre mount`: a file system as a directory of this machine.
//!
//! ```text
//!  nacre mount ──starts──▶ nacre mount --in-background      its log: mount.NAME.log (directory: `logs`)
//!       ▲── "ready", or why not ──┘       serves until it is unmounted, or told to stop
//! ```
//! `with_up` is `nacre up --mount`, `place` checks its directory; `record` lists the mounts,
//! `take_off` unmounts those of `up`, `users` finds the programs that use one.

mod place;
pub mod record;
pub mod take_off;
mod users;
pub mod with_up;

use crate::cluster::host::{self, Ending};
use crate::cluster::{Place, background};
use crate::out::Out;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use nacre_gateway::{MountError, MountOptions, Mounted, table};
use record::{Kept, Record};
use rustix::fs::Access;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long programs may continue to use their open files after a signal.
const GRACE: Duration = Duration::from_secs(5);
/// Interval of checks for a signal.
const LOOK: Duration = Duration::from_millis(100);

/// Arguments of `mount`.
#[derive(Args)]
pub struct Arguments {
    /// Which file system [default: the only one].
    #[arg(long, value_name = "NAME")]
    fs: Option<String>,
    /// Stay in the foreground, and unmount with Ctrl-C.
    #[arg(long, short)]
    foreground: bool,
    /// Options, separated by commas: allow_other (others than you may use it), ro, rw, fsname=TEXT
    /// (what df shows).
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// The directory.
    dir: PathBuf,
    /// What the background process is started with: where it says that it is ready is its standard
    /// input.
    #[arg(long, hide = true)]
    in_background: bool,
    /// `nacre up --mount` starts it, and `nacre down` unmounts it.
    #[arg(long, hide = true)]
    by_up: bool,
}

/// A mount served by a separate process.
pub struct Background<'a> {
    /// The file system.
    pub fs: &'a str,
    /// Its directory: an absolute path.
    pub dir: &'a Path,
    /// Options as after `-o`.
    pub options: &'a [String],
    /// Whether it belongs to `nacre up --mount`.
    pub by_up: bool,
}

impl Background<'_> {
    /// Starts it; returns when it serves.
    ///
    /// # Errors
    /// It was not mounted: the error of its process.
    pub fn start(&self, place: &Place) -> Result<()> {
        let Self {
            fs,
            dir,
            options,
            by_up,
        } = self;
        let cluster = place.absolute()?;
        let run = logs(place)?;
        let mut command = Command::new(std::env::current_exe().context("finding this program")?);
        command.arg("--cluster").arg(&cluster).args([
            "--as",
            place.name(),
            "mount",
            "--in-background",
            "--fs",
            fs,
        ]);
        for text in *options {
            command.args(["-o", text]);
        }
        if *by_up {
            command.arg("--by-up");
        }
        // The current directory of this command must stay unmountable and removable.
        command.arg("--").arg(dir).current_dir("/");
        let log = run.join(format!("mount.{fs}.log"));
        background::wait_for(command, &log, &format!("{} was not mounted", dir.display()))?;
        Ok(())
    }
}

/// Runs the command.
///
/// # Errors
/// It cannot be mounted: the reason, and the recommended action.
pub fn run(arguments: &Arguments, place: &Place, out: &mut Out) -> Result<()> {
    let name = match &arguments.fs {
        Some(name) => name.clone(),
        None => crate::files::only_one(place)?,
    };
    let options = options(&name, arguments)?;
    if arguments.foreground || arguments.in_background {
        return serve(arguments, place, &name, &options);
    }
    // Detect local problems before asking the cluster.
    let dir = nacre_gateway::check(&arguments.dir)?;
    Background {
        fs: &name,
        dir: &dir,
        options: &arguments.options,
        by_up: false,
    }
    .start(place)?;
    if out.json() {
        return out.value(&serde_json::json!({ "fs": name, "dir": dir.display().to_string() }));
    }
    out.line(&format!(
        "mounted {name} at {0}; `umount {0}` unmounts it",
        dir.display()
    ))
}

fn options(name: &str, arguments: &Arguments) -> Result<MountOptions> {
    let mut options = MountOptions::of(name);
    for text in &arguments.options {
        options.take(text)?;
    }
    Ok(options)
}

/// Directory for the log of the background process: `run` in the cluster's directory, or beside a
/// Ceph cluster's configuration; if the user may not write there, one of the user's own
/// directories.
fn logs(place: &Place) -> Result<PathBuf> {
    let own = |variable: &str, below: &str| {
        let folder = std::env::var_os(variable).filter(|folder| !folder.is_empty())?;
        place.ceph().map(|_| PathBuf::from(folder).join(below))
    };
    let all = [
        Some(place.run_folder()),
        own("XDG_RUNTIME_DIR", "nacre"),
        own("HOME", ".cache/nacre"),
    ];
    let mut failed = None;
    for folder in all.into_iter().flatten() {
        let made = std::fs::create_dir_all(&folder)
            .and_then(|()| rustix::fs::access(&folder, Access::WRITE_OK).map_err(Into::into));
        match made {
            Ok(()) => return Ok(folder),
            Err(why) => {
                failed = failed.or(Some(anyhow!(
                    "making {} for the mount's log: {why}",
                    folder.display()
                )))
            }
        }
    }
    Err(failed.expect("the cluster's folder was tried"))
}

/// Name of this machine.
fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Serves it until it is unmounted externally, or by a signal.
fn serve(arguments: &Arguments, place: &Place, name: &str, options: &MountOptions) -> Result<()> {
    let begun = Instant::now();
    let mut ready = arguments
        .in_background
        .then(background::begin)
        .transpose()?;
    let mut ending = Ending::watch()?;
    let about = format!(
        "{} on {}, process {}",
        arguments.dir.display(),
        host(),
        std::process::id()
    );
    let files = host::file_system(place, name, &about)?;
    let mounted: Mounted = nacre_gateway::mount(files, &arguments.dir, options)?;
    let kept = keep(place, name, mounted.dir(), arguments.by_up);
    if let Some(ready) = &mut ready {
        ready.announce(begun.elapsed(), &[])?;
    }
    let mut unmounted = Ok(());
    while !mounted.wait_for(LOOK) {
        if ending.has_come() {
            unmounted = mounted.unmount();
            // Open files keep it mounted; they end with this process.
            if unmounted.is_ok() {
                let _ = mounted.wait_for(GRACE);
            }
            break;
        }
    }
    let ended = mounted.finish();
    if let Some(kept) = kept {
        let fault = ended.as_ref().err().or(unmounted.as_ref().err());
        kept.end(fault.map(reason).as_deref());
    }
    unmounted?;
    Ok(ended?)
}

/// Why some changes are not durable, without repeating that they are not.
fn reason(why: &MountError) -> String {
    match why {
        MountError::NotSafe {
            errno: Some(errno), ..
        } => std::io::Error::from_raw_os_error(i32::from(*errno)).to_string(),
        MountError::NotSafe {
            errno: None,
            waited,
        } => {
            format!("the cluster did not answer within {} s", waited.as_secs())
        }
        other => other.to_string(),
    }
}

/// Records the mount, for commands that look for it. Without a record it is served all the same.
fn keep(place: &Place, name: &str, dir: &Path, by_up: bool) -> Option<Kept> {
    // On another engine there is no directory of the cluster.
    if place.ceph().is_some() {
        return None;
    }
    let device = table::mount_at(dir)?.device;
    let record = Record {
        dir: dir.to_owned(),
        fs: name.to_owned(),
        device,
        by_up,
    };
    let kept = Kept::begin(&place.run_folder(), &record);
    if let Err(why) = &kept {
        crate::say::line(&format!(
            "nacre: `nacre down` will not find this mount: {why:#}"
        ));
    }
    kept.ok()
}
