//! `./x bench floor`, and the floor in other benchmarks: the cost of an operation when only the
//! unavoidable work is done (`crates/floor`), measured in the same run on the same disk.
//!
//! ```text
//!  a row of Nacre ─▶ `nacre-floor --only ROW` beside it ─▶ Times: CPU, p50 at depth 1, rate
//! ```

use crate::cluster::succeeds;
use crate::profile;
use crate::step::program;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Maximum duration of a measurement, including the preparation of its files.
const MEASURE_MAX: Duration = Duration::from_mins(3);
/// MiB of each of three data files. They are created for each measurement.
const FILE_MIB: u32 = 64;

/// The program, and the directory of its files while it runs.
pub struct Floor {
    program: PathBuf,
    dir: PathBuf,
}

/// Figures of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Operations per second.
    pub ops_per_s: f64,
    /// Megabytes per second.
    pub mb_per_s: f64,
    /// Median latency.
    pub p50_us: f64,
    /// CPU time of client and OSDs, per operation.
    pub cpu_us: f64,
}

/// A measurement relative to the floor: 1 is equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// CPU per operation.
    pub cpu: f64,
    /// Median latency; only at depth 1, because at larger depths it follows from the rate.
    pub p50: Option<f64>,
    /// Rate of the floor divided by the measured rate.
    pub rate: f64,
}

/// `./x bench floor`: builds the program and runs it with these arguments.
///
/// # Errors
/// When it does not build or fails.
pub fn run(arguments: &[String]) -> Result<()> {
    let workspace = Workspace::load()?;
    let mut all: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    if !arguments
        .iter()
        .any(|word| word == "--dir" || word.starts_with("--dir="))
    {
        all.extend(["--dir".into(), workspace.target.clone().into_os_string()]);
    }
    program(build(&workspace)?).args(all).run()
}

/// Builds the program; returns its path.
fn build(workspace: &Workspace) -> Result<PathBuf> {
    let arguments = ["build", "--release", "--locked", "--package", "nacre-floor"];
    profile::cargo(workspace, arguments)?.run()?;
    Ok(workspace.target.join("release/nacre-floor"))
}

impl Floor {
    /// Builds the program, with its files below `dir`.
    ///
    /// # Errors
    /// When it does not build.
    pub fn built(workspace: &Workspace, dir: &Path) -> Result<Self> {
        Ok(Self {
            program: build(workspace)?,
            dir: dir.to_owned(),
        })
    }

    /// Measures a row.
    ///
    /// # Errors
    /// When the program fails.
    pub fn measure(&self, row: &str, objects: u64, seconds: f64) -> Result<Figures> {
        let mut command = Command::new(&self.program);
        command.args([
            "--only",
            row,
            "--objects",
            &objects.to_string(),
            "--seconds",
            &seconds.to_string(),
        ]);
        command
            .args(["--file-mib", &FILE_MIB.to_string(), "--dir"])
            .arg(&self.dir);
        let found = succeeds(&mut command, MEASURE_MAX)?;
        ensure!(found["row"] == row, "`nacre-floor` says nothing of {row}");
        Figures::of(&found)
    }
}

impl Figures {
    /// Parses the output of `nacre bench object` or `nacre-floor`.
    ///
    /// # Errors
    /// When a figure is missing.
    pub fn of(found: &Value) -> Result<Self> {
        let figure = |name: &str| {
            found[name]
                .as_f64()
                .with_context(|| format!("there is no figure {name}"))
        };
        let (ops_per_s, mb_per_s) = (figure("ops_per_s")?, figure("mb_per_s")?);
        Ok(Self {
            ops_per_s,
            mb_per_s,
            p50_us: figure("p50_us")?,
            cpu_us: figure("cpu_us_per_op")?,
        })
    }

    /// Mean of two measurements.
    pub fn mean(self, other: Self) -> Self {
        Self {
            ops_per_s: f64::midpoint(self.ops_per_s, other.ops_per_s),
            mb_per_s: f64::midpoint(self.mb_per_s, other.mb_per_s),
            p50_us: f64::midpoint(self.p50_us, other.p50_us),
            cpu_us: f64::midpoint(self.cpu_us, other.cpu_us),
        }
    }

    /// `ours` relative to this floor.
    pub fn times(self, ours: Self, depth: u32) -> Times {
        Times {
            cpu: ours.cpu_us / self.cpu_us,
            p50: (depth == 1).then_some(ours.p50_us / self.p50_us),
            rate: self.ops_per_s / ours.ops_per_s,
        }
    }

    /// For a line of the history.
    pub fn json(self, row: &str, times: Times) -> Value {
        let rounded = |value: f64| (value * 100.0).round() / 100.0;
        json!({
            "row": row,
            "ops_per_s": rounded(self.ops_per_s),
            "mb_per_s": rounded(self.mb_per_s),
            "p50_us": rounded(self.p50_us),
            "cpu_us_per_op": rounded(self.cpu_us),
            "times": { "cpu": rounded(times.cpu), "p50": times.p50.map(rounded), "rate": rounded(times.rate) },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_the_floor_is_more_cpu_more_latency_and_fewer_operations() {
        let floor = Figures {
            ops_per_s: 20_000.0,
            mb_per_s: 80.0,
            p50_us: 200.0,
            cpu_us: 40.0,
        };
        let ours = Figures {
            ops_per_s: 10_000.0,
            mb_per_s: 40.0,
            p50_us: 500.0,
            cpu_us: 130.0,
        };
        let times = floor.times(ours, 1);
        assert_eq!(
            times,
            Times {
                cpu: 3.25,
                p50: Some(2.5),
                rate: 2.0
            }
        );
        assert_eq!(floor.times(ours, 16).p50, None);
        assert_eq!(floor.json("any", times)["times"]["rate"], 2.0);
        assert_eq!(floor.mean(ours).cpu_us, 85.0);
    }

    #[test]
    fn a_missing_figure_is_an_error() {
        let whole = json!({ "ops_per_s": 1.0, "mb_per_s": 2, "p50_us": 3.5, "cpu_us_per_op": 4.0 });
        assert_eq!(Figures::of(&whole).expect("whole").p50_us, 3.5);
        assert!(Figures::of(&json!({ "ops_per_s": 1.0 })).is_err());
    }
}
