//! One system's turn: started, loaded, restarted, tested with faults, stopped.
//!
//! ```text
//!  disk alone ─▶ up ─▶ idle memory ─▶ 4 KiB: new, overwritten, read ─▶ omap ─▶ class ─▶ 4 MiB ─▶ memory after the load
//!   ─▶ sets to be read cold written ─▶ all daemons ended, the kernel's caches dropped, started ─▶ read cold, each object once
//!   ─▶ an OSD killed under load ─▶ started again ─▶ an OSD stopped under load ─▶ calls on a mounted file system ─▶ down
//! ```
//! A failed measurement is reported, and the turn continues if possible; a cluster that does not
//! come up ends the turn.

use super::cluster::{POOL, Side, System, is_whole, timed};
use super::figures::{Figures, Line, Measure, number};
use super::rows::{self, Extent, Row};
use crate::bench::disk;
use crate::calls::{Calls, Disk, Mounted};
use crate::cluster::load::{Load, Work, overwrite};
use crate::floor::Floor;
use crate::show::costs;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// Maximum duration of a measurement, with preparation, draining and cleanup.
const MEASURE_MAX: Duration = Duration::from_mins(3);
/// Time until the memory used by a start or a load is released.
pub const IDLE: Duration = Duration::from_secs(2);
/// A load with a fault: its minimum duration, and the time before the fault. It is extended until
/// operations are answered again.
const FAULT_SECONDS: u64 = 6;
const FAULT_AFTER: Duration = Duration::from_secs(2);
/// It must last so much longer than the fault began.
const HARM: Duration = Duration::from_secs(1);
/// Maximum time until the daemons that report PGs have detected the loss of an OSD.
const NOTICED_MAX: Duration = Duration::from_secs(60);

/// The class to call: the library's, also as a source for clusters on which it cannot be installed.
const CLASS: &str = "numops";
const SOURCE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../crates/policy/library/classes/numops.lua"
);

/// See the module head.
pub struct Turn<'a> {
    /// The system.
    pub system: System,
    /// The program.
    pub nacre: &'a Path,
    /// The floor, which is measured together with Nacre's workloads.
    pub floor: Option<&'a Floor>,
    /// A separate directory that does not exist.
    pub dir: &'a Path,
    /// The first of Nacre's ports.
    pub base_port: u16,
    /// The extent.
    pub extent: &'a Extent,
    /// The results.
    pub figures: &'a mut Figures,
    /// The failures.
    pub wrong: &'a mut Vec<String>,
}

impl Turn<'_> {
    /// Runs the turn.
    ///
    /// # Errors
    /// When the cluster does not come up or does not end.
    pub fn take(&mut self) -> Result<()> {
        let above = self.dir.parent().context("the folder lies in another")?;
        let alone = disk(self.nacre, above, self.extent.disk_seconds)?;
        for (line, field) in [
            (rows::FLUSH, "flush_alone_p50_us"),
            (rows::DISK, "write_mb_per_s"),
        ] {
            let value = alone[field]
                .as_f64()
                .with_context(|| format!("`nacre bench disk` says no {field}"))?;
            self.figures.add(line, System::Nacre, value);
        }
        let (mut side, seconds) =
            timed(|| Side::up(self.system, self.nacre, self.dir, self.base_port))?;
        self.found(rows::BRING_UP, seconds);
        sleep(IDLE);
        self.found(rows::IDLE, side.resident_mib());
        self.small(&side);
        self.others(&side);
        sleep(IDLE);
        self.found(rows::LOADED, side.resident_mib());
        self.attempt("cold reads", |turn| turn.cold(&mut side));
        self.attempt("an OSD killed", |turn| turn.killed(&mut side));
        self.attempt("an OSD stopped", |turn| turn.stopped(&side));
        self.attempt("files", |turn| turn.files(&side));
        side.down()
    }

    /// Measures calls on a mounted file system; in Nacre's turn on an ext4, too.
    fn files(&mut self, side: &Side) -> Result<()> {
        side.await_clean()?;
        let above = self
            .dir
            .parent()
            .context("the folder lies in another")?
            .join("files");
        fs::create_dir(&above).context("a folder for mounts")?;
        let called = self.calls(side, &above);
        // The next turn creates it, even if this one failed.
        let removed = fs::remove_dir_all(&above).context("removing the folder for mounts");
        called.and(removed)
    }
    fn calls(&mut self, side: &Side, above: &Path) -> Result<()> {
        let archive = costs::archive(above)?;
        if self.system == System::Nacre {
            let mount = || Ok(Box::new(Disk::mount(above)?) as Box<dyn Mounted>);
            let found = Calls {
                folder: None,
                mount: &mount,
                requests: None,
                note: &mut |_, _, _| (),
            }
            .all(&archive)?;
            for (row, line, ext4) in rows::CALLS {
                self.found((*ext4, line.1), found.rows[row]);
            }
        }
        side.serve_files()?;
        let mount = || Ok(Box::new(side.mount(&above.join("mount"))?) as Box<dyn Mounted>);
        let folder = Some(self.dir);
        let found = Calls {
            folder,
            mount: &mount,
            requests: None,
            note: &mut |_, _, _| (),
        }
        .all(&archive)?;
        for (row, line, _) in rows::CALLS {
            self.found(*line, found.rows[row]);
        }
        Ok(())
    }

    fn small(&mut self, side: &Side) {
        let new = ["--size", "4KiB", "--objects", "10000000"];
        self.object(side, rows::WRITE_1, "write", &new);
        self.object(side, rows::WRITE_16, "write", &new);
        let count = self.extent.small.to_string();
        let set = [
            "--size",
            "4KiB",
            "--objects",
            &count,
            "--set",
            "warm",
            "--keep",
            "--prepared",
        ];
        self.attempt("4 KiB objects", |turn| {
            turn.prepare(side, "4KiB", "warm", turn.extent.small)
        });
        self.object(side, rows::OVERWRITE_1, "overwrite", &set);
        self.object(side, rows::OVERWRITE_16, "overwrite", &set);
        let warm = [&set[..], &["--warm-up"]].concat();
        self.object(side, rows::READ_1, "read", &warm);
        self.object(side, rows::READ_16, "read", &warm);
    }

    fn others(&mut self, side: &Side) {
        let few = self.extent.few.to_string();
        self.object(
            side,
            rows::OMAP,
            "omap",
            &["--size", "64", "--objects", &few, "--keep"],
        );
        self.call(side);
        self.object(
            side,
            rows::LARGE_WRITE,
            "write",
            &["--size", "4MiB", "--objects", "500"],
        );
        let count = self.extent.large.to_string();
        self.object(
            side,
            rows::LARGE_READ,
            "read",
            &["--size", "4MiB", "--objects", &count, "--warm-up"],
        );
    }

    /// Reads sets of objects that have not been read since all daemons started, each object once.
    fn cold(&mut self, side: &mut Side) -> Result<()> {
        let each = [
            (rows::COLD_1, "cold-1", self.extent.cold[0]),
            (rows::COLD_16, "cold-16", self.extent.cold[1]),
        ];
        for (_, set, count) in each {
            self.prepare(side, "4KiB", set, count)?;
        }
        let seconds = side.restart()?;
        self.found(rows::RESTART, seconds);
        for (row, set, count) in each {
            let count = count.to_string();
            let arguments = [
                "--size",
                "4KiB",
                "--objects",
                &count,
                "--set",
                set,
                "--keep",
                "--prepared",
                "--once",
            ];
            self.object(side, row, "read", &arguments);
        }
        Ok(())
    }

    fn killed(&mut self, side: &mut Side) -> Result<()> {
        let gap = self.under_load(side, "osd.0", "KILL")?;
        self.found(rows::KILLED, gap);
        // Reports are late: an earlier report must not be mistaken for the end.
        let what = "groups without the killed OSD are noticed";
        side.cluster
            .until(what, NOTICED_MAX, &["status"], |status| {
                (!is_whole(status)).then_some(())
            })?;
        let ((), seconds) = timed(|| {
            side.start_osd(0)?;
            side.await_clean()
        })?;
        self.found(rows::RECOVERED, seconds);
        Ok(())
    }

    fn stopped(&mut self, side: &Side) -> Result<()> {
        let gap = self.under_load(side, "osd.1", "STOP")?;
        self.found(rows::STOPPED, gap);
        side.cluster.signal("osd.1", "CONT").map(drop)
    }

    /// Overwrites at depth 16 while a daemon gets a signal; returns the longest time in which no
    /// operation was answered, in milliseconds.
    fn under_load(&self, side: &Side, who: &str, signal: &str) -> Result<f64> {
        let work = Work {
            objects: self.extent.faulty,
            keep: true,
            ..overwrite(POOL, FAULT_SECONDS)
        };
        let load = Load::begin(&side.cluster, work)?;
        sleep(FAULT_AFTER);
        side.cluster.signal(who, signal)?;
        load.must_last(HARM)?;
        let figures = load.finish()?;
        if figures["unknown"].as_u64().is_none_or(|count| count > 0) {
            println!(
                "    {} operations were given up without an answer",
                figures["unknown"]
            );
        }
        figures["longest_gap_ms"]
            .as_f64()
            .context("the load says nothing of gaps")
    }

    fn prepare(&self, side: &Side, size: &str, set: &str, count: u64) -> Result<()> {
        let count = count.to_string();
        let what = [
            "bench",
            "object",
            "prepare",
            "--pool",
            POOL,
            "--size",
            size,
            "--objects",
            &count,
            "--set",
            set,
        ];
        side.cluster.ask_for(MEASURE_MAX, &what).map(drop)
    }

    /// Runs one workload.
    fn object(&mut self, side: &Side, row: Row, mode: &str, arguments: &[&str]) {
        let reads = mode == "read";
        let (depth, seconds) = (row.depth.to_string(), self.extent.seconds.to_string());
        let settle = if reads { 0.0 } else { self.extent.settle }.to_string();
        let common = [
            "bench",
            "object",
            mode,
            "--pool",
            POOL,
            "--no-copies",
            "--depth",
            &depth,
        ];
        let timing = ["--seconds", &seconds, "--settle", &settle];
        self.workload(side, row, &[&common[..], &timing, arguments].concat());
    }

    /// Measures the floor of the last workload; only in Nacre's turn.
    fn floor(&mut self, row: Row) -> Result<()> {
        let Some((floor, name)) = self.floor.zip(row.floor) else {
            return Ok(());
        };
        let objects = if matches!(row, rows::OMAP | rows::CALL) {
            self.extent.few
        } else {
            self.extent.small
        };
        let found = floor.measure(name, objects, self.extent.floor_seconds)?;
        let rate = if row.large {
            found.mb_per_s
        } else {
            found.ops_per_s
        };
        let mut all = vec![(row.rate(), rate), (row.cpu(), found.cpu_us)];
        if row.depth == 1 {
            // At larger depths it follows from the rate.
            all.insert(1, (row.p50(), found.p50_us));
        }
        let shown: Vec<String> = all
            .iter()
            .map(|(line, value)| said((line.1, *value)))
            .collect();
        println!("  {:<6} {:<60} {}", "floor", row.name, shown.join("  "));
        all.into_iter()
            .for_each(|(line, value)| self.figures.add_floor(line, value));
        Ok(())
    }

    /// Calls the library's class: installed where that is possible, otherwise sent with every call.
    fn call(&mut self, side: &Side) {
        let row = rows::CALL;
        let (depth, seconds) = (row.depth.to_string(), self.extent.seconds.to_string());
        let (settle, objects) = (self.extent.settle.to_string(), self.extent.few.to_string());
        let common = [
            "bench",
            "call",
            "--pool",
            POOL,
            "--depth",
            &depth,
            "--seconds",
            &seconds,
        ];
        let more = [
            "--settle",
            &settle,
            "--objects",
            &objects,
            "--method",
            "add",
            "--input",
            "n 1",
        ];
        let class = match side
            .cluster
            .ask_for(MEASURE_MAX, &["class", "install", CLASS])
        {
            Ok(_) => ["--class", CLASS],
            Err(why) if self.system == System::Nacre => {
                return self.failed(row.name, &why);
            }
            Err(why) => {
                println!(
                    "    {CLASS} goes with every call, since it cannot be installed here: {why:#}"
                );
                ["--script", SOURCE]
            }
        };
        self.workload(side, row, &[&common[..], &more, &class].concat());
    }

    fn workload(&mut self, side: &Side, row: Row, arguments: &[&str]) {
        let found = side
            .cluster
            .ask_for(MEASURE_MAX, arguments)
            .and_then(|found| {
                let failed = found["failed"].as_u64().unwrap_or(0);
                ensure!(
                    failed == 0,
                    "{failed} operations failed: {}",
                    found["failures"]
                );
                ensure!(
                    found["ops"].as_u64().is_some_and(|ops| ops > 0),
                    "nothing was done"
                );
                Ok(found)
            });
        let found = match found {
            Ok(found) => found,
            Err(why) => return self.failed(row.name, &why),
        };
        let value = |field: &str| found[field].as_f64().unwrap_or(f64::NAN);
        let rate = if row.large {
            value("mb_per_s")
        } else {
            value("ops_per_s")
        };
        self.figures.add(row.rate(), self.system, rate);
        self.figures.add(row.p50(), self.system, value("p50_us"));
        self.figures
            .add(row.cpu(), self.system, value("cpu_us_per_op"));
        let all = [
            (row.rate().1, rate),
            (Measure::P50, value("p50_us")),
            (Measure::Cpu, value("cpu_us_per_op")),
        ];
        println!(
            "  {:<6} {:<60} {}",
            self.system.name(),
            row.name,
            all.map(said).join("  ")
        );
        if unanswered(&found) > 0 {
            println!(
                "    {} operations were given up without an answer",
                unanswered(&found)
            );
        }
        self.attempt("the floor", |turn| turn.floor(row));
    }

    fn found(&mut self, line: Line, value: f64) {
        self.figures.add(line, self.system, value);
        println!(
            "  {:<6} {:<60} {}",
            self.system.name(),
            line.0,
            said((line.1, value))
        );
    }

    fn attempt(&mut self, what: &str, run: impl FnOnce(&mut Self) -> Result<()>) {
        if let Err(why) = run(self) {
            self.failed(what, &why);
        }
    }

    fn failed(&mut self, what: &str, why: &anyhow::Error) {
        let line = format!("{} {what}: {why:#}", self.system.name());
        println!("  ERROR {line}");
        self.wrong.push(line);
    }
}

fn said((measure, value): (Measure, f64)) -> String {
    format!("{} {}", number(value), measure.unit())
}

fn unanswered(found: &Value) -> u64 {
    found["unknown"].as_u64().unwrap_or(0)
}
