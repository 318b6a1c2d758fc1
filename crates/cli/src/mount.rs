//! `nacre mount`: a file system as a directory of this machine.
//!
//! ```text
//!  nacre mount ──starts──▶ nacre mount --in-background      its log: DIR/run/mount.NAME.log of the cluster's folder
//!       ▲── "ready", or why not ──┘       serves until it is unmounted, or told to end
//! ```

use crate::cluster::host::Ending;
use crate::cluster::{Place, background};
use crate::out::Out;
use anyhow::{Context, Result, bail};
use clap::Args;
use nacre_gateway::{MountOptions, mount};
use nacre_node::FileSystem;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Arguments of `mount`.
#[derive(Args)]
pub struct Arguments {
    /// Which file system [default: the only one].
    #[arg(long, value_name = "NAME")]
    fs: Option<String>,
    /// Stay in the foreground, and unmount with Ctrl-C.
    #[arg(long, short)]
    foreground: bool,
    /// Options, separated by commas: allow_other (others than you may use it), ro, rw, fsname=TEXT (what df shows).
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,
    /// The directory.
    dir: PathBuf,
    /// What the background process is started with: where it says that it is ready is its standard input.
    #[arg(long, hide = true)]
    in_background: bool,
}

/// Runs the command.
///
/// # Errors
/// It cannot be mounted: why, and what to do.
pub fn run(arguments: &Arguments, place: &Place, out: &mut Out) -> Result<()> {
    let name = match &arguments.fs {
        Some(name) => name.clone(),
        None => crate::files::only_one(place)?,
    };
    let options = options(&name, &arguments.options)?;
    if arguments.foreground || arguments.in_background {
        return serve(arguments, place, &name, &options);
    }
    let dir = arguments.dir.canonicalize().unwrap_or_else(|_| arguments.dir.clone());
    let cluster = place.path().canonicalize().with_context(|| format!("finding {}", place.path().display()))?;
    let run = place.run_folder();
    std::fs::create_dir_all(&run).with_context(|| format!("making {}", run.display()))?;
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.arg("--cluster").arg(&cluster).args(["--as", place.name(), "mount", "--in-background", "--fs", &name]);
    if !arguments.options.is_empty() {
        command.args(["-o", &arguments.options.join(",")]);
    }
    command.arg(&dir).current_dir("/");
    let log = run.join(format!("mount.{name}.log"));
    background::wait_for(command, &log, &format!("{} was not mounted", dir.display()))?;
    if out.json() {
        return out.value(&serde_json::json!({ "fs": name, "dir": dir.display().to_string() }));
    }
    out.line(&format!("mounted {name} at {0}; `umount {0}` unmounts it", dir.display()))
}

fn options(name: &str, given: &[String]) -> Result<MountOptions> {
    let mut options = MountOptions { source: name.to_owned(), ..MountOptions::default() };
    for option in given {
        match option.split_once('=').unwrap_or((option, "")) {
            ("allow_other", "") => options.allow_other = true,
            ("ro", "") => options.read_only = true,
            ("rw", "") => options.read_only = false,
            ("fsname", source) if !source.is_empty() => source.clone_into(&mut options.source),
            _ => bail!("there is no mount option {option}; there are allow_other, ro, rw, fsname=TEXT"),
        }
    }
    Ok(options)
}

fn serve(arguments: &Arguments, place: &Place, name: &str, options: &MountOptions) -> Result<()> {
    let begun = Instant::now();
    let mut ready = arguments.in_background.then(background::begin).transpose()?;
    let mut ending = Ending::watch()?;
    let dir: &Path = &arguments.dir;
    let files = FileSystem::connect(place.config_of_running()?.dir, place.name(), name)?;
    let mounted = mount(files, dir, options)?;
    if let Some(ready) = &mut ready {
        ready.announce(begun.elapsed(), &[])?;
    }
    while !mounted.has_ended() {
        if ending.has_come() {
            return Ok(mounted.unmount()?);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(mounted.join()?)
}
