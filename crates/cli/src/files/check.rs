//! `nacre fs check`, `nacre fs dump`: examines a file system's objects without its servers.
//!
//! ```text
//!  the cluster is stopped ─▶ its daemons run in this process, without servers of file systems ─┐
//!  it runs, no server has the rank ────────────────────────────────────────────────────────────┴▶ Claim ─▶ offline
//!  a server has the rank ─▶ it writes everything (Flush) ─▶ check ─▶ Flush ─▶ errors found both times: online
//!                            └ errors found, to be repaired ─▶ Wanted: it releases the rank ─▶ Claim ─▶ offline
//! ```
//! Invariant: objects are only written under a claim, and with `--repair`.

use super::claim::{self, Claim, Wanted};
use super::{FsKey, FsSettings, PoolId, Shown, one};
use crate::cluster::{Metadata, Place, Session, host};
use crate::object::{list, pool_id};
use crate::objects::{Ended, Failed};
use crate::out::Out;
use crate::progress;
use anyhow::{Context, Result, anyhow, bail, ensure};
use nacre_client::{OpId, Operation};
use nacre_mds::check::{Check, CheckConfig, Counts, Finding, Next, Report, Row, Token, Trouble};
use nacre_node::FileSystem;
use nacre_types::Time;
use nacre_wire::Wire as _;
use nacre_wire::fs::{Entry, Stamp};
use nacre_wire::msg::client::{OpFailure, SubOp};
use nacre_wire::msg::fs::FS_LEASE_MS;
use nacre_wire::msg::meta::{MetaOp, MetaTarget};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Operations in flight.
const AT_ONCE: usize = 32;
/// A server silent for this long has lost its rank: somewhat more than its lease.
const LEASE_MAX: Duration = Duration::from_millis(3_700);
/// Leases of dead servers have expired after this time.
const LEASES_MAX: Duration = Duration::from_secs(20);
/// Maximum number of steps of a repair: each examines everything again.
const STEPS_MAX: usize = 12;
/// Clients may show cached data for this long after their server has ended.
const SHOWN_MAX: Duration = Duration::from_millis(FS_LEASE_MS);
/// Maximum number of passes over a changing file system, until no earlier finding is found again.
const LOOKS_MAX: usize = 4;

/// Information that data objects do not hold.
const LOST: &str = "data objects do not say, so this is lost where an inode was: owners and modes, times, extended \
attributes, second names, empty files, symbolic links, names of directories";

/// Mode of a check.
#[derive(Clone, Debug, Default)]
pub struct How {
    /// Repair.
    pub repair: bool,
    /// Check only the names of data objects.
    pub quick: bool,
    /// Use backpointers.
    pub rebuild: bool,
    /// The new pool of directories and journals.
    pub new_pool: Option<String>,
}

/// `fs check` and `fs rebuild`. The exit code reports the result.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(name: &str, how: &How, place: &Place, out: &mut Out) -> Result<ExitCode> {
    match check(name, how, place, out) {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        Err(why) => {
            out.finish()?;
            crate::failure::report(&why);
            Ok(ExitCode::from(2))
        }
    }
}

/// A cluster that this process runs as long as this value exists.
struct Own(Option<Box<dyn host::Running>>);
impl Own {
    /// Starts the cluster's daemons, if none runs.
    fn start(place: &Place) -> Result<Self> {
        if place.ceph().is_some() {
            return Ok(Self(None));
        }
        let config = place.config()?;
        let stopped = nacre_node::locks::nothing_runs(&config);
        Ok(Self(
            stopped
                .then(|| host::start_without_servers(&config.dir))
                .transpose()?,
        ))
    }
    /// Looks up a file system. On a cluster that was just started, leases of dead servers expire
    /// first.
    fn one(&self, name: &str, place: &Place, metadata: &mut dyn Metadata) -> Result<Shown> {
        let begun = Instant::now();
        if place.ceph().is_some() && !one(name, metadata)?.holders.is_empty() {
            // Its server may be dead, and no other server may be there to notice.
            metadata.settle(LEASE_MAX)?;
        }
        loop {
            let shown = one(name, metadata)?;
            if self.0.is_none() || shown.holders.is_empty() || begun.elapsed() > LEASES_MAX {
                return Ok(shown);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    fn stop(mut self) -> Result<()> {
        self.0.take().map_or(Ok(()), host::Running::stop)
    }
}
impl Drop for Own {
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            // The reason for an early stop has been reported already.
            let _ = running.stop();
        }
    }
}

/// Whether no error was found, or all were repaired.
fn check(name: &str, how: &How, place: &Place, out: &mut Out) -> Result<bool> {
    let own = Own::start(place)?;
    let mut session = place.connect_for_files()?;
    let shown = own.one(name, place, &mut *session.metadata()?)?;
    let clean = match shown.holders.values().next() {
        Some(holder) => {
            ensure!(
                !how.rebuild,
                "server {} has file system {name}, and a rebuild wants it for itself: `nacre down` stops the cluster, and this command starts what it needs",
                holder.name
            );
            served(name, how, shown, &mut *session, place, out)?
        }
        None => offline(name, how, shown, None, &mut *session, out)?,
    };
    drop(session);
    own.stop()?;
    Ok(clean)
}

/// The same for a file system with servers: they release it for a repair, if there is something to
/// repair.
fn served(
    name: &str,
    how: &How,
    shown: Shown,
    session: &mut dyn Session,
    place: &Place,
    out: &mut Out,
) -> Result<bool> {
    let (counts, faults) = online(name, session, &config_of(&shown, how.quick), place)?;
    if faults.is_empty() || !how.repair {
        say_online(name, &counts, &faults, out)?;
        return Ok(faults.is_empty());
    }
    let wanted = Wanted::ask(name, session)?;
    offline(name, how, shown, Some(wanted), session, out)
}

/// The same for a file system without a server.
fn offline(
    name: &str,
    how: &How,
    mut shown: Shown,
    wanted: Option<Wanted>,
    session: &mut dyn Session,
    out: &mut Out,
) -> Result<bool> {
    if let Some(pool) = &how.new_pool {
        shown.settings.pool = new_pool(name, pool, session)?;
    }
    let config = CheckConfig {
        rebuild: how.rebuild,
        ..config_of(&shown, how.quick)
    };
    let claim = Claim::take(name, &shown.settings, session)?;
    let served_until = wanted.is_some().then(Instant::now);
    // This command holds the ranks: servers need not be kept away any more.
    drop(wanted);
    let mut offline = Offline {
        session,
        claim,
        config,
        served_until,
    };
    let done = offline.check(name, how, out);
    match &done {
        Ok(_) => offline.claim.give_back()?,
        // Its operations may still be executed.
        Err(_) => offline.claim.leave(),
    }
    done
}

/// Directories and journals are in another pool from now on; none of them exist there yet.
fn new_pool(name: &str, pool: &str, session: &mut dyn Session) -> Result<PoolId> {
    let pool = pool_id(session, pool)?;
    let mut metadata = session.metadata()?;
    let key = FsKey::Settings.of(&name.into());
    let before = metadata
        .get(&key.to_string())?
        .context("its settings have just been removed")?;
    let settings = FsSettings::from_bytes(&before.value)
        .map_err(|_| anyhow!("its settings cannot be decoded"))?;
    let target = MetaTarget::Modified {
        number: before.modified,
    };
    let compares = vec![claim::is(key.clone(), target)];
    let value = FsSettings { pool, ..settings }.to_bytes().into();
    let then = vec![MetaOp::Put {
        key,
        value,
        lease: 0,
    }];
    ensure!(
        metadata.transact(compares, then)?,
        "another command has just changed file system {name}; try again"
    );
    Ok(pool)
}

fn config_of(shown: &Shown, quick: bool) -> CheckConfig {
    let settings = &shown.settings;
    CheckConfig {
        namespace: settings.namespace.clone(),
        pool: settings.pool,
        layout: settings.layout,
        ranks: settings.ranks,
        quick,
        journals: true,
        rebuild: false,
        dump: false,
        now: Stamp::at(crate::clock::now_unix_ms(), Time::ZERO),
    }
}

/// A file system without a server.
struct Offline<'a> {
    session: &'a mut dyn Session,
    claim: Claim,
    config: CheckConfig,
    /// When servers released it, with everything written: their clients wait for this command.
    served_until: Option<Instant>,
}

impl Offline<'_> {
    fn check(&mut self, name: &str, how: &How, out: &mut Out) -> Result<bool> {
        let repair = how.repair;
        let first = self.look(Check::new(self.config.clone()))?;
        let (counts, faults) = (first.counts, first.faults().cloned().collect::<Vec<_>>());
        ensure!(
            self.served_until.is_none() || counts.batches == 0,
            "a server of file system {name} gave up its rank before it had written its journal; nothing is changed: try again"
        );
        let mut said = Vec::new();
        let mut left = Vec::new();
        let mut why_not = None;
        if repair {
            // A hint for a rebuild: nothing depends on it.
            self.apply(&[first.places()])?;
        }
        if repair && !faults.is_empty() {
            let report = self.repair(first, &mut said)?;
            why_not = report.why_not();
            left = report.faults().cloned().collect();
        } else if !repair {
            left.clone_from(&faults);
        }
        let clean = left.is_empty();
        if out.json() {
            let repairs = said
                .iter()
                .map(|(kind, place, what)| json!({ "kind": kind, "place": place, "what": what }));
            out.value(&json!({
                "name": name, "clean": clean, "online": false, "counts": counts_json(&counts),
                "findings": faults.iter().map(finding_json).collect::<Vec<_>>(),
                "repairs": repairs.collect::<Vec<_>>(),
                "left": left.iter().map(finding_json).collect::<Vec<_>>(),
            }))?;
            return Ok(clean);
        }
        for fault in &faults {
            out.line(&line_of(fault))?;
        }
        for (kind, place, what) in &said {
            out.line(&format!("repaired {kind}: {place}: {what}"))?;
        }
        if repair && !clean {
            for fault in &left {
                out.line(&format!("left {}", line_of(fault)))?;
            }
        }
        if how.rebuild && !faults.is_empty() {
            out.line(LOST)?;
        }
        if let Some(why) = why_not {
            out.line(&format!("nothing is repaired: {why}"))?;
        }
        let verdict = match (faults.is_empty(), repair, clean) {
            (true, ..) => "nothing is wrong".to_owned(),
            (false, true, true) => format!("{} findings, all repaired", faults.len()),
            (false, true, false) => format!("{} findings, {} left", faults.len(), left.len()),
            (false, false, _) => format!(
                "{} findings; `nacre fs check {name} --repair` repairs",
                faults.len()
            ),
        };
        out.line(&format!("{name}: {verdict}; {}", counts_text(&counts)))?;
        Ok(clean)
    }

    fn look(&mut self, check: Check) -> Result<Report> {
        let Self { session, claim, .. } = self;
        drive(*session, check, &mut || claim.keep(), &mut |_| Ok(()))
    }
    /// Repairs step by step; returns the remaining errors.
    fn repair(
        &mut self,
        mut report: Report,
        said: &mut Vec<(String, String, String)>,
    ) -> Result<Report> {
        for _ in 0..STEPS_MAX {
            let Some(plan) = report.plan() else {
                return Ok(report);
            };
            self.apply(&plan.steps)?;
            let what = plan
                .said
                .into_iter()
                .map(|(kind, place, what)| (kind.name().to_owned(), place, what));
            said.extend(what);
            report = self.look(Check::after(self.config.clone(), &report))?;
        }
        Ok(report)
    }
    fn apply(&mut self, steps: &[Vec<Operation>]) -> Result<()> {
        let left = |until: Instant| (until + SHOWN_MAX).checked_duration_since(Instant::now());
        while let Some(left) = self.served_until.and_then(left) {
            self.claim.keep()?;
            std::thread::sleep(left.min(Duration::from_secs(1)));
        }
        for step in steps {
            let mut guarded: BTreeMap<OpId, bool> = BTreeMap::new();
            let end = |ended: Option<(OpId, Ended)>,
                       guarded: &mut BTreeMap<OpId, bool>|
             -> Result<()> {
                let (id, result) = ended.context("operations in flight are lost")?;
                let may_fail = guarded
                    .remove(&id)
                    .context("an operation ended that was not begun")?;
                match result {
                    Ok(_) => Ok(()),
                    Err(Failed::Refused(OpFailure::NotFound {} | OpFailure::Guard { .. }))
                        if may_fail =>
                    {
                        Ok(())
                    }
                    Err(why) => bail!("the repair stopped, and the next one finishes it: {why}"),
                }
            };
            for operation in step {
                self.claim.keep()?;
                while guarded.len() >= AT_ONCE {
                    end(self.session.next()?, &mut guarded)?;
                }
                let is_guarded = matches!(operation.ops.first(), Some(SubOp::AssertExists { .. }));
                guarded.insert(self.session.begin(operation.clone())?, is_guarded);
            }
            while !guarded.is_empty() {
                end(self.session.next()?, &mut guarded)?;
            }
        }
        Ok(())
    }
}

/// Checks a file system while its server runs: errors that are found, and found again after the
/// server has written everything once more.
fn online(
    name: &str,
    session: &mut dyn Session,
    config: &CheckConfig,
    place: &Place,
) -> Result<(Counts, Vec<Finding>)> {
    let files = host::file_system(place, name, &super::about())?;
    let config = CheckConfig {
        journals: false,
        ..config.clone()
    };
    let mut look = || -> Result<Report> {
        flush(&files, name)?;
        drive(
            session,
            Check::new(config.clone()),
            &mut || Ok(()),
            &mut |_| Ok(()),
        )
    };
    let first = look()?;
    let counts = first.counts;
    let mut faults: Vec<Finding> = first.faults().cloned().collect();
    for _ in 1..LOOKS_MAX {
        if faults.is_empty() {
            break;
        }
        // Concurrent changes may have repaired or changed it.
        let again = look()?;
        faults.retain(|fault| again.faults().any(|other| other.is_same(fault)));
    }
    Ok((counts, faults))
}
fn say_online(name: &str, counts: &Counts, faults: &[Finding], out: &mut Out) -> Result<()> {
    if out.json() {
        return out.value(&json!({
            "name": name, "clean": faults.is_empty(), "online": true, "counts": counts_json(counts),
            "findings": faults.iter().map(finding_json).collect::<Vec<_>>(),
        }));
    }
    for fault in faults {
        out.line(&line_of(fault))?;
    }
    let verdict = match faults.len() {
        0 => "nothing is wrong".to_owned(),
        n => format!(
            "{n} findings; `nacre fs check {name} --repair` repairs; clients wait meanwhile"
        ),
    };
    out.line(&format!("{name}: {verdict}; {}", counts_text(counts)))
}

/// Makes the server write the changes in its journal.
fn flush(files: &FileSystem, name: &str) -> Result<()> {
    let failed = |errno: u16| {
        let why = std::io::Error::from_raw_os_error(errno.into());
        anyhow!("the server of file system {name} did not write its directories: {why}")
    };
    files.flush().map_err(failed)
}

/// Executes the requests of a check.
fn drive(
    session: &mut dyn Session,
    mut check: Check,
    keep: &mut dyn FnMut() -> Result<()>,
    rows: &mut dyn FnMut(Row) -> Result<()>,
) -> Result<Report> {
    let bar = progress::waiting("checking");
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    let mut flying: BTreeMap<OpId, Token> = BTreeMap::new();
    loop {
        keep()?;
        check.take_rows().into_iter().try_for_each(&mut *rows)?;
        match check.wants() {
            Next::Operation(token, operation) => {
                while flying.len() >= AT_ONCE {
                    end_one(session, &mut check, &mut flying)?;
                }
                flying.insert(session.begin(operation)?, token);
            }
            Next::Wait => end_one(session, &mut check, &mut flying)?,
            Next::List(pool) => list::objects(session, pool, &mut |object| {
                check.on_object(pool, &object);
                keep()
            })?,
            Next::Done => break,
        }
    }
    bar.finish_and_clear();
    Ok(check.report())
}
fn end_one(
    session: &mut dyn Session,
    check: &mut Check,
    flying: &mut BTreeMap<OpId, Token>,
) -> Result<()> {
    let (id, result) = session.next()?.context("operations in flight are lost")?;
    let token = flying
        .remove(&id)
        .context("an operation ended that was not begun")?;
    let result = result.map_err(|why| match why {
        Failed::Refused(OpFailure::NotFound {} | OpFailure::Guard { .. }) => Trouble::NotFound,
        why => Trouble::Other(why.to_string()),
    });
    check.on_done(token, result);
    Ok(())
}

fn line_of(fault: &Finding) -> String {
    format!("{}: {}: {}", fault.kind.name(), fault.place, fault.what)
}
fn finding_json(fault: &Finding) -> Value {
    json!({ "kind": fault.kind.name(), "place": fault.place, "what": fault.what, "repair": fault.repair })
}
fn counts_json(counts: &Counts) -> Value {
    let Counts {
        batches,
        directories,
        files,
        bytes,
        objects,
        placed,
        misplaced,
        silent,
    } = *counts;
    json!({
        "batches": batches, "directories": directories, "files": files, "bytes": bytes, "objects": objects,
        "backpointers": placed, "old_backpointers": misplaced, "without_backpointer": silent,
    })
}
fn counts_text(counts: &Counts) -> String {
    let Counts {
        batches,
        directories,
        files,
        bytes,
        objects,
        ..
    } = *counts;
    let bytes = crate::table::bytes(bytes);
    format!(
        "{directories} directories, {files} files of {bytes} in {objects} objects, {batches} batches in journals"
    )
}

/// `fs dump`: every entry, one JSON object a line.
///
/// # Errors
/// Objects cannot be read, or standard output cannot be written.
pub fn dump(name: &str, place: &Place, out: &mut Out) -> Result<()> {
    let own = Own::start(place)?;
    let mut session = place.connect_for_files()?;
    let shown = own.one(name, place, &mut *session.metadata()?)?;
    let is_served = !shown.holders.is_empty();
    if is_served {
        flush(&host::file_system(place, name, &super::about())?, name)?;
    }
    let config = CheckConfig {
        dump: true,
        journals: !is_served,
        ..config_of(&shown, true)
    };
    drive(
        &mut *session,
        Check::new(config),
        &mut || Ok(()),
        &mut |row| {
            let mut text = row_json(&row).to_string();
            text.push('\n');
            out.bytes(text.as_bytes())
        },
    )?;
    drop(session);
    own.stop()
}
fn row_json(row: &Row) -> Value {
    let Row { dir, name, entry } = row;
    let (dir, name) = (dir.to_string(), name.to_string());
    match entry {
        Entry::Reference { ino, kind, home } => json!({
            "dir": dir, "name": name, "ino": ino.to_string(), "kind": format!("{kind:?}").to_lowercase(),
            "reference": home,
        }),
        Entry::Inode { inode, head } => json!({
            "dir": dir, "name": name, "ino": inode.ino.to_string(),
            "kind": format!("{:?}", inode.kind).to_lowercase(), "mode": format!("{:o}", inode.mode),
            "uid": inode.uid, "gid": inode.gid, "links": inode.links, "size": inode.size,
            "mtime_ns": inode.mtime.0, "ctime_ns": inode.ctime.0, "change": inode.change,
            "entries": head.as_ref().map(|head| head.entries), "bytes_below": head.as_ref().map(|head| head.bytes_below),
            "target": inode.rare.as_ref().map(|rare| String::from_utf8_lossy(&rare.target).into_owned())
                .filter(|target| !target.is_empty()),
            "xattrs": inode.rare.as_ref().map_or(0, |rare| rare.xattrs.len()),
        }),
    }
}
