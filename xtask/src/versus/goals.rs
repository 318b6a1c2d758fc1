//! Nacre's goals relative to Ceph, as ratios within one run.

use super::cluster::System;
use super::figures::{Figures, Line, number};
use super::rows;

/// A goal, judged against one system.
pub struct Goal {
    /// Its subject.
    pub what: &'static str,
    /// The required value.
    pub asked: String,
    /// The measured value.
    pub found: String,
    /// Whether the goal is met. A missing figure never meets it.
    pub met: bool,
}

/// The requirement.
#[derive(Clone, Copy)]
enum Least {
    /// This many times better than the other.
    Times(f64),
    /// At most the larger of an eighth of the other's latency and twice that of the disk's write
    /// and flush.
    Latency,
    /// At least the smaller of three times the other's bandwidth and 70 % of a third of the disk's.
    Bandwidth,
    /// At least 80 % of the value of Nacre's own objects.
    OfObjects(Line),
}

const GOALS: &[(&str, Line, Least)] = &[
    (
        "4 KiB overwrites at depth 16, operations per CPU-second",
        rows::OVERWRITE_16.cpu(),
        Least::Times(20.0),
    ),
    (
        "4 KiB overwrites at depth 16, rate",
        rows::OVERWRITE_16.rate(),
        Least::Times(10.0),
    ),
    (
        "4 KiB overwrites at depth 1, p50: the larger of Ceph ÷ 8 and 2 × the disk's write + fdatasync",
        rows::OVERWRITE_1.p50(),
        Least::Latency,
    ),
    (
        "4 KiB warm reads at depth 16, operations per CPU-second",
        rows::READ_16.cpu(),
        Least::Times(8.0),
    ),
    (
        "4 KiB warm reads at depth 16, rate",
        rows::READ_16.rate(),
        Least::Times(5.0),
    ),
    (
        "4 MiB writes: the smaller of 3 × Ceph and 70 % of the disk ÷ 3",
        rows::LARGE_WRITE.rate(),
        Least::Bandwidth,
    ),
    (
        "4 MiB warm reads, rate",
        rows::LARGE_READ.rate(),
        Least::Times(3.0),
    ),
    (
        "omap sets at depth 16, operations per CPU-second",
        rows::OMAP.cpu(),
        Least::Times(20.0),
    ),
    (
        "Lua class calls at depth 16, operations per CPU-second",
        rows::CALL.cpu(),
        Least::Times(20.0),
    ),
    ("bring-up", rows::BRING_UP, Least::Times(20.0)),
    ("memory after the load", rows::LOADED, Least::Times(8.0)),
    ("files: create, CPU", rows::CREATE, Least::Times(10.0)),
    ("files: cold stat, CPU", rows::COLD_STAT, Least::Times(10.0)),
    (
        "files: 4 KiB write + fsync, CPU",
        rows::FSYNC,
        Least::Times(15.0),
    ),
    ("files: unlink, CPU", rows::UNLINK, Least::Times(10.0)),
    (
        "files: ls -l of 10,000 entries",
        rows::LIST,
        Least::Times(4.0),
    ),
    (
        "files: untar of 3,000 files",
        rows::UNTAR,
        Least::Times(6.0),
    ),
    (
        "files: untar of 3,000 files + sync",
        rows::UNTAR_SYNC,
        Least::Times(6.0),
    ),
    (
        "files: large writes: 80 % of Nacre's 4 MiB objects",
        rows::FILE_WRITES,
        Least::OfObjects(rows::LARGE_WRITE.rate()),
    ),
    (
        "files: large reads: 80 % of Nacre's 4 MiB objects",
        rows::FILE_READS_AGAIN,
        Least::OfObjects(rows::LARGE_READ.rate()),
    ),
];

/// All goals, against Ceph at its defaults or tuned.
pub fn against(figures: &Figures, other: System) -> Vec<Goal> {
    let judge = |(what, line, least): &(&'static str, Line, Least)| {
        let (ours, theirs) = (
            figures.median(*line, System::Nacre),
            figures.median(*line, other),
        );
        let alone = |line: Line| figures.median(line, System::Nacre);
        let (asked, found, met) = match least {
            Least::Times(least) => {
                let ratio = figures.ratio(*line, other);
                (
                    format!("≥ {least}×"),
                    format!("{}×", number(ratio)),
                    ratio >= *least,
                )
            }
            // `max` and `min` return the other number if one is missing: that does not meet the
            // goal.
            Least::Latency => {
                let most = (theirs / 8.0).max(2.0 * alone(rows::FLUSH));
                (
                    format!("≤ {} µs", number(most)),
                    format!("{} µs", number(ours)),
                    theirs.is_finite() && ours <= most,
                )
            }
            Least::Bandwidth => {
                let least = (theirs * 3.0).min(alone(rows::DISK) * 0.7 / 3.0);
                let met = theirs.is_finite() && ours >= least;
                (
                    format!("≥ {} MB/s", number(least)),
                    format!("{} MB/s", number(ours)),
                    met,
                )
            }
            Least::OfObjects(objects) => {
                let least = alone(*objects) * 0.8;
                (
                    format!("≥ {} MB/s", number(least)),
                    format!("{} MB/s", number(ours)),
                    theirs.is_finite() && ours >= least,
                )
            }
        };
        Goal {
            what,
            asked,
            found,
            met,
        }
    };
    GOALS.iter().map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The inputs of goals with limits of their own.
    #[derive(Clone, Copy)]
    struct Limits {
        p50: [f64; 2],
        flush: f64,
        large: [f64; 2],
        disk: f64,
    }
    const EASY: Limits = Limits {
        p50: [500.0, 4000.0],
        flush: 100.0,
        large: [600.0, 200.0],
        disk: 10_000.0,
    };

    /// Every figure that goals use, with Nacre `better` times better.
    fn figures(better: f64, limits: Limits) -> Figures {
        let mut figures = Figures::default();
        for (_, line, _) in GOALS
            .iter()
            .filter(|(_, _, least)| matches!(least, Least::Times(_)))
        {
            let more = line.1.ratio(2.0, 1.0) > 1.0;
            figures.add(*line, System::Nacre, 100.0 * better);
            figures.add(
                *line,
                System::Ceph,
                if more { 100.0 } else { 100.0 * better * better },
            );
        }
        for (line, [ours, theirs]) in [
            (rows::OVERWRITE_1.p50(), limits.p50),
            (rows::LARGE_WRITE.rate(), limits.large),
        ] {
            figures.add(line, System::Nacre, ours);
            figures.add(line, System::Ceph, theirs);
        }
        // Exactly the required value.
        for (line, objects) in [
            (
                rows::FILE_WRITES,
                figures.median(rows::LARGE_WRITE.rate(), System::Nacre),
            ),
            (
                rows::FILE_READS_AGAIN,
                figures.median(rows::LARGE_READ.rate(), System::Nacre),
            ),
        ] {
            figures.add(line, System::Nacre, objects * 0.8);
            figures.add(line, System::Ceph, 1.0);
        }
        figures.add(rows::FLUSH, System::Nacre, limits.flush);
        figures.add(rows::DISK, System::Nacre, limits.disk);
        figures
    }

    #[test]
    fn goals_are_met_from_their_limit_on() {
        assert!(
            against(&figures(20.0, EASY), System::Ceph)
                .iter()
                .all(|goal| goal.met)
        );
        let missed = against(&figures(19.0, EASY), System::Ceph);
        let missed: Vec<&str> = missed
            .iter()
            .filter(|goal| !goal.met)
            .map(|goal| goal.what)
            .collect();
        assert_eq!(missed.len(), 4, "those of 20 times: {missed:?}");
    }

    #[test]
    fn limits_of_the_disk_count_where_ceph_is_slow_or_fast() {
        let met = |limits: Limits, what: &str| {
            let goals = against(&figures(20.0, limits), System::Ceph);
            goals
                .into_iter()
                .find(|goal| goal.what.starts_with(what))
                .expect("a goal")
                .met
        };
        let depth_1 = "4 KiB overwrites at depth 1,";
        assert!(
            !met(
                Limits {
                    p50: [600.0, 4000.0],
                    ..EASY
                },
                depth_1
            ),
            "600 µs, and Ceph ÷ 8 is 500"
        );
        assert!(
            met(
                Limits {
                    p50: [600.0, 4000.0],
                    flush: 300.0,
                    ..EASY
                },
                depth_1
            ),
            "but the disk alone takes 300"
        );
        let large = "4 MiB writes";
        assert!(
            !met(
                Limits {
                    large: [600.0, 500.0],
                    ..EASY
                },
                large
            ),
            "600 MB/s are not 3 × 500"
        );
        assert!(
            met(
                Limits {
                    large: [600.0, 500.0],
                    disk: 2_000.0,
                    ..EASY
                },
                large
            ),
            "but 70 % of a third of 2,000"
        );
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        assert!(
            against(&Figures::default(), System::Ceph)
                .iter()
                .all(|goal| !goal.met)
        );
        assert!(
            against(&figures(20.0, EASY), System::Tuned)
                .iter()
                .all(|goal| !goal.met)
        );
    }
}
