//! `nacre tour`: a real tree, a killed daemon, every byte compared (`./x run`).
//!
//! ```text
//!  start ─▶ import ─▶ where is it? ─▶ kill an OSD ─▶ read all, compare ─▶ overwrite some, add some
//!                                                                              │
//!        read all, compare ◀─ kill another one ◀─ HEALTH_OK ◀─ start it again ─┘
//!           └─▶ mount a file system, unpack an archive of the tree, compare (`mounted`)
//! ```
//! The last reading of objects is without another OSD, so that the recovered replicas of the first
//! one are among those that are read.

mod mounted;

use crate::cluster::Session;
use crate::cluster::host::Ending;
use crate::cluster::up::{self, NewCluster};
use crate::object::tree::{self, Hashes};
use crate::object::{locate, pool_id};
use crate::out::Out;
use crate::progress;
use crate::table::bytes;
use anyhow::{Context, Result, bail, ensure};
use mounted::{Figures, Outcome};
use nacre_types::{Name, ObjectId, PoolId};
use serde_json::json;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Time limit of recovery.
const RECOVERY: Duration = Duration::from_mins(10);
const POOL: &str = "data";

/// Arguments of `tour`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The folder to import: its git-tracked files, or everything if it is no git checkout.
    #[arg(long, default_value = ".")]
    from: PathBuf,
    /// The cluster's folder.
    #[arg(long, default_value = "nacre-tour")]
    dir: PathBuf,
    /// Remove the tour's earlier cluster from the folder first.
    #[arg(long)]
    fresh: bool,
    /// Keep the cluster up afterwards, until Ctrl-C. Without, it is stopped and its folder
    /// removed.
    #[arg(long)]
    stay: bool,
}

/// A file in the tour's directory, so that `--fresh` never removes anything else.
const MARK: &str = "this-is-a-nacre-tour";

/// Runs the tour.
///
/// # Errors
/// When anything is wrong: above all when a byte read back differs.
pub fn run(arguments: &Arguments, out: &mut Out) -> Result<()> {
    let dir = &arguments.dir;
    prepare(dir, arguments.fresh)?;
    let cluster = dir.join("cluster");
    let paths = files(&arguments.from)?;
    ensure!(
        !paths.is_empty(),
        "{} has nothing to import; --from names another folder",
        arguments.from.display()
    );
    let new = NewCluster {
        osds: Some(3),
        mons: Some(1),
        base_port: None,
        size: Some(3),
        osd_size: None,
    };
    let first_pool = up::make(&cluster, &new)?;
    let mut up = up::start(&cluster, first_pool)?;
    let mut timings = vec![("ready", up.took)];
    out.say(&format!(
        "1. A cluster of 3 OSDs is ready after {:.2} s.",
        up.took.as_secs_f64()
    ))?;
    out.finish()?;

    let pool = pool_id(&mut *up.session, POOL)?;
    let (mut hashes, size) = import(arguments, &paths, pool, &mut *up.session, &mut timings, out)?;
    show_places(&hashes, &mut *up.session, out)?;

    up.daemons.kill_osd(1)?;
    let took = read_all(&hashes, size, pool, &mut *up.session)?;
    timings.push(("read_with_one_osd_dead", took));
    out.say(&format!(
        "4. osd.1 was killed; all {} objects were read without it and are what was stored ({:.2} s).",
        hashes.len(),
        took.as_secs_f64()
    ))?;
    out.finish()?;

    let begun = Instant::now();
    let (changed, added) = write_meanwhile(&mut hashes, pool, &mut *up.session)?;
    timings.push(("write_with_one_osd_dead", begun.elapsed()));
    out.say(&format!(
        "5. Without it, {changed} of them were overwritten and {added} more were stored ({:.2} s).",
        begun.elapsed().as_secs_f64()
    ))?;
    out.finish()?;

    up.daemons.start_osd(1)?;
    let took = up::wait(&mut *up.session, 3, RECOVERY)?;
    timings.push(("recovery", took));
    let recovered = up.daemons.recovered(1).unwrap_or(0);
    ensure!(
        recovered >= (changed + added) as u64,
        "osd.1 missed {} objects and was brought {recovered}: HEALTH_OK came too early",
        changed + added
    );
    out.say(&format!(
        "6. osd.1 is back; it was brought the {recovered} objects that it had missed; HEALTH_OK after {:.2} s.",
        took.as_secs_f64()
    ))?;
    out.finish()?;
    up.daemons.kill_osd(2)?;
    let took = read_all(&hashes, size, pool, &mut *up.session)?;
    timings.push(("read_after_recovery", took));
    out.say(&format!(
        "7. osd.2 was killed in its place; all {} objects are what was stored last ({:.2} s).",
        hashes.len(),
        took.as_secs_f64()
    ))?;
    out.finish()?;
    up.daemons.start_osd(2)?;
    up::wait(&mut *up.session, 3, RECOVERY)?;
    let in_mount = mount(arguments, &paths, &cluster, &mut timings, out)?;
    if out.json() {
        let seconds: serde_json::Map<_, _> = timings
            .iter()
            .map(|(name, took)| ((*name).to_owned(), json!(took.as_secs_f64())))
            .collect();
        out.value(&json!({
            "objects": hashes.len(), "bytes": size, "equal": true, "overwritten": changed, "added": added,
            "recovered": recovered, "mounted": in_mount, "seconds": seconds,
        }))?;
    }
    out.finish()?;

    if arguments.stay {
        up::introduce(&cluster, &mut *up.session, up.took, false, None, out)?;
        Ending::watch()?.wait(&mut *up.daemons);
    }
    drop(up.session);
    up::end(&cluster, up.daemons)?;
    std::fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))
}

fn prepare(dir: &Path, fresh: bool) -> Result<()> {
    if dir.exists() {
        ensure!(
            fresh && dir.join(MARK).exists(),
            "{} exists; name another folder with --dir{}",
            dir.display(),
            if dir.join(MARK).exists() {
                ", or remove this earlier tour with --fresh"
            } else {
                ""
            }
        );
        mounted::sweep(dir, &dir.join("cluster"))?;
        std::fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    std::fs::write(
        dir.join(MARK),
        "`nacre tour --fresh` may remove this folder.\n",
    )
    .with_context(|| format!("writing to {}", dir.display()))
}

/// The files tracked by git, or all files.
fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let git = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z"])
        .output();
    let tracked = git
        .ok()
        .filter(|output| output.status.success() && !output.stdout.is_empty());
    let Some(tracked) = tracked else {
        return tree::walk(root);
    };
    let names = tracked
        .stdout
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    let mut paths: Vec<PathBuf> = names
        .map(|name| PathBuf::from(OsStr::from_bytes(name)))
        .collect();
    // Tracked and deleted, or a submodule's directory.
    paths.retain(|path| {
        root.join(path)
            .symlink_metadata()
            .is_ok_and(|meta| !meta.is_dir())
    });
    Ok(paths)
}

fn import(
    arguments: &Arguments,
    paths: &[PathBuf],
    pool: PoolId,
    session: &mut dyn Session,
    timings: &mut Vec<(&'static str, Duration)>,
    out: &mut Out,
) -> Result<(Hashes, u64)> {
    let sizes = paths
        .iter()
        .filter_map(|path| arguments.from.join(path).symlink_metadata().ok());
    let bar = progress::bytes("importing", sizes.map(|meta| meta.len()).sum());
    let begun = Instant::now();
    let result = tree::import(session, pool, &arguments.from, paths, &mut |bytes| {
        bar.inc(bytes)
    });
    bar.finish_and_clear();
    let (moved, hashes) = result?;
    moved.complete("imported")?;
    let took = begun.elapsed();
    timings.push(("import", took));
    let from = arguments.from.display();
    out.say(&format!(
        "2. {} objects ({}) were imported from {from} in {:.2} s, each on 3 OSDs before it was answered.",
        moved.objects,
        bytes(moved.bytes),
        took.as_secs_f64()
    ))?;
    out.finish()?;
    Ok((hashes, moved.bytes))
}

fn show_places(hashes: &Hashes, session: &mut dyn Session, out: &mut Out) -> Result<()> {
    out.say("3. Where some of them are:")?;
    let step = (hashes.len() / 4).max(1);
    for name in hashes
        .keys()
        .filter(|name| std::str::from_utf8(name.as_bytes()).is_ok())
        .step_by(step)
        .take(4)
    {
        let object = ObjectId {
            name: name.clone(),
            ..ObjectId::default()
        };
        let place = locate(session, POOL, &object)?;
        let word = |field: &str| crate::table::show(field, &place[field]);
        out.say(&format!(
            "     {name}: group {} on OSDs {}, primary {}",
            word("pg"),
            word("acting"),
            word("primary")
        ))?;
    }
    out.finish()
}

/// The step with a file system; returns its result as JSON.
fn mount(
    arguments: &Arguments,
    paths: &[PathBuf],
    cluster: &Path,
    timings: &mut Vec<(&'static str, Duration)>,
    out: &mut Out,
) -> Result<serde_json::Value> {
    let bar = progress::waiting("unpacking an archive in a mounted file system");
    let outcome = mounted::step(&arguments.from, paths, &arguments.dir, cluster);
    bar.finish_and_clear();
    let figures = match outcome? {
        Outcome::Equal(figures) => figures,
        Outcome::Skipped(why) => {
            out.say(&format!(
                "8. SKIPPED: no file system was mounted and nothing unpacked: {why}"
            ))?;
            out.finish()?;
            return Ok(json!({ "skipped": why }));
        }
    };
    let Figures {
        files,
        bytes: size,
        unpack,
        compare,
    } = figures;
    timings.extend([("unpack", unpack), ("compare_mounted", compare)]);
    out.say(&format!(
        "8. A file system was mounted, and an archive of {files} files ({}) unpacked in it ({:.2} s); unmounted and \
         mounted again, all are what they were ({:.2} s).",
        bytes(size),
        unpack.as_secs_f64(),
        compare.as_secs_f64()
    ))?;
    out.finish()?;
    Ok(json!({ "files": files, "bytes": size, "equal": true }))
}

/// Maximum number of objects that are overwritten, and that are added, while an OSD is dead.
const MEANWHILE_MAX: usize = 200;

/// Overwrites every few objects and adds as many; returns both numbers.
fn write_meanwhile(
    hashes: &mut Hashes,
    pool: PoolId,
    session: &mut dyn Session,
) -> Result<(usize, usize)> {
    let count = hashes.len().div_ceil(4).min(MEANWHILE_MAX);
    let step = hashes.len() / count;
    let overwritten: Vec<Name> = hashes.keys().step_by(step).take(count).cloned().collect();
    let added = (0..count).map(|n| Name::from(format!("{MEANWHILE}/new-{n}").as_str()));
    // Lengths from a few bytes to some blocks.
    let content = |(n, name): (usize, Name)| {
        let text = format!("written to {name} while osd.1 was dead\n").repeat(1 + n * n % 577);
        (name, text.into_bytes())
    };
    let all: Vec<(Name, Vec<u8>)> = overwritten
        .into_iter()
        .chain(added)
        .enumerate()
        .map(content)
        .collect();
    tree::write(session, pool, all, hashes)?;
    Ok((count, count))
}
/// Directory of the added objects.
const MEANWHILE: &str = "written-while-an-osd-was-dead";

fn read_all(
    hashes: &Hashes,
    size: u64,
    pool: PoolId,
    session: &mut dyn Session,
) -> Result<Duration> {
    let bar = progress::bytes("reading", size);
    let begun = Instant::now();
    let result = tree::verify(session, pool, hashes, &mut |bytes| bar.inc(bytes));
    bar.finish_and_clear();
    match &result?[..] {
        [] => Ok(begun.elapsed()),
        wrong => bail!(
            "{} objects are not what was stored: {}",
            wrong.len(),
            wrong[..wrong.len().min(3)].join("; ")
        ),
    }
}
