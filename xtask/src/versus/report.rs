//! The table, for the terminal and for `bench/versus.md`.

use super::cluster::{GROUPS, OSDS, System};
use super::figures::{Figures, number};
use super::goals::{self, Goal};
use super::rows::Extent;
use super::turn::IDLE;
use std::fmt::Write as _;

/// The head of the report.
pub struct Head {
    /// Date in UTC.
    pub date: String,
    /// Processors and memory.
    pub machine: String,
    /// Nacre's commit.
    pub nacre: String,
    /// Ceph's version.
    pub ceph: String,
    /// Settings of the tuned system.
    pub tuning: String,
    /// Number of turns of each system.
    pub rounds: u32,
    /// Duration of the run, in seconds.
    pub seconds: u64,
    /// Number of processors kept busy by other processes, before and after.
    pub others: f64,
    /// Failures.
    pub wrong: Vec<String>,
}

/// The whole document.
pub fn markdown(head: &Head, extent: &Extent, figures: &Figures) -> String {
    let mut text = String::from("# Nacre beside Ceph\n\n");
    text += "Written by `./x bench versus --record`. Both were measured in one run, by the same client (`nacre bench …`), on one machine.\n\n";
    text += &preface(head, extent);
    text += "\n## Goals\n\n| goal | asked | found | against Ceph at its defaults | asked | found | against Ceph tuned |\n|---|---|---|---|---|---|---|\n";
    let pairs = goals::against(figures, System::Ceph)
        .into_iter()
        .zip(goals::against(figures, System::Tuned));
    for (plain, tuned) in pairs {
        let part = |goal: &Goal| format!("{} | {} | {}", goal.asked, goal.found, verdict(goal.met));
        let _ = writeln!(
            text,
            "| {} | {} | {} |",
            plain.what,
            part(&plain),
            part(&tuned)
        );
    }
    text += "\n## Figures\n\nMedian (least to most) of all rounds. A ratio says how many times better Nacre's median is: below 1, Ceph is better. \
             The floor is what the same takes when only the unavoidable is done (bench/README.md), measured beside Nacre; \
             the last column says how many times that Nacre is.\n\n";
    text += "| what | unit | Nacre | Ceph | ratio | Ceph tuned | ratio | floor | of the floor |\n|---|---|---|---|---|---|---|---|---|\n";
    for line in figures.lines() {
        let cell = |system| {
            figures.of(*line, system).map_or_else(
                || "-".to_owned(),
                |found| {
                    format!(
                        "{} ({} to {})",
                        number(found.median),
                        number(found.min),
                        number(found.max)
                    )
                },
            )
        };
        let ratio = |other| match figures.ratio(*line, other) {
            ratio if ratio.is_finite() => format!("{}×", number(ratio)),
            _ => "-".to_owned(),
        };
        let [ours, plain, tuned] = System::ALL.map(cell);
        let (of_plain, of_tuned) = (ratio(System::Ceph), ratio(System::Tuned));
        let floor = figures.floor(*line).map_or_else(|| "-".to_owned(), number);
        let times = figures
            .times_floor(*line)
            .map_or_else(|| "-".to_owned(), |times| format!("{}×", number(times)));
        let _ = writeln!(
            text,
            "| {} | {} | {ours} | {plain} | {of_plain} | {tuned} | {of_tuned} | {floor} | {times} |",
            line.0,
            line.1.unit()
        );
    }
    if !head.wrong.is_empty() {
        text += "\n## What failed\n\n";
        head.wrong
            .iter()
            .for_each(|line| text += &format!("* {line}\n"));
    }
    text
}

fn preface(head: &Head, extent: &Extent) -> String {
    let Extent {
        seconds,
        settle,
        small,
        cold: [cold_1, cold_16],
        large,
        few,
        faulty,
        ..
    } = *extent;
    let (tuning, idle) = (tuning(&head.tuning), IDLE.as_secs());
    let Head {
        date,
        machine,
        nacre,
        ceph,
        rounds,
        others,
        ..
    } = head;
    format!(
        "* {date}; {machine}; Nacre {nacre}; Ceph {ceph}, of Debian. {rounds} rounds, {} s altogether. Others kept {others:.2} processors busy before and after.\n\
         * **Ceph 16 is an old release, and both share one disk and the same processors with the client.** Nobody runs Ceph like that: its strength is many machines and\n  \
           many disks, which nothing here shows. What is compared is what one operation costs on one machine.\n\
         * Each has 1 monitor and {OSDS} OSDs, processes that talk over TCP on loopback, and a pool of {GROUPS} groups with 3 copies (2 must be there). A write is answered when all\n  \
           copies are durable. Groups are clean when the monitors say so, which Ceph's learn from its manager's reports every few seconds.\n\
         * Ceph has its manager besides, whose CPU and memory count; Nacre has the process that keeps the daemons. Checksums are on in both, nobody is authenticated in Ceph.\n\
         * The systems take turns: brought up in an empty folder, measured, removed; the next round begins with another one. The disk is measured alone before each turn.\n\
         * Each workload: {seconds} s. CPU is that of the client and all daemons, until the last operation has its answer and, where something is written, {settle} s longer (deferred writes). Memory is looked at {idle} s after a load, or after the start.\n\
         * Overwrites and warm reads: {small} objects of 4 KiB at random, all read once before the reads. 4 MiB reads: {large} objects. omap and class: {few} objects.\n\
         * Cold reads: {cold_1} objects at depth 1 and {cold_16} others at depth 16, each read once, in a random order. They are written, then all daemons end, the kernel's caches are dropped, and\n  \
           the daemons start again: nobody has read these objects since.\n\
         * Class call: `numops.add` of the library, portable Lua. Installed on Nacre; on Ceph through `cls_lua`, to which the source goes with every call.\n\
         * Faults: 16 writers overwrite {faulty} objects of 4 KiB; every group has a copy on the OSD that is killed (`kill -9`) or stopped (`SIGSTOP`). All is read back and compared. In this Ceph\n  \
           two OSDs of one host suffice to report a third (its default wants two hosts). Recovery is of the objects that changed meanwhile.\n\
         * Ceph tuned: {tuning}.\n",
        head.seconds
    )
}

/// The settings in one line: all debug levels are combined.
fn tuning(lines: &str) -> String {
    let (debug, others): (Vec<&str>, Vec<&str>) =
        lines.lines().partition(|line| line.starts_with("debug "));
    let mut all: Vec<String> = others.iter().map(|line| format!("`{line}`")).collect();
    if !debug.is_empty() {
        all.insert(0, "no debug output is gathered".to_owned());
    }
    all.join(", ")
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

/// The report for a terminal.
pub fn terminal(figures: &Figures) -> String {
    let mut text = format!(
        "{:<58} {:<10}{:>10}{:>24}{:>10}{:>8}{:>10}{:>8}{:>10}{:>8}\n",
        "median of all rounds",
        "",
        "Nacre",
        "least to most",
        "Ceph",
        "ratio",
        "tuned",
        "ratio",
        "floor",
        "times"
    );
    for line in figures.lines() {
        let ours = figures.of(*line, System::Nacre);
        let spread = ours.map_or_else(String::new, |found| {
            format!("{} … {}", number(found.min), number(found.max))
        });
        let median = |system| number(figures.median(*line, system));
        let ratio = |other| number(figures.ratio(*line, other));
        let _ = writeln!(
            text,
            "{:<58} {:<10}{:>10}{spread:>24}{:>10}{:>8}{:>10}{:>8}{:>10}{:>8}",
            line.0,
            line.1.unit(),
            median(System::Nacre),
            median(System::Ceph),
            ratio(System::Ceph),
            median(System::Tuned),
            ratio(System::Tuned),
            number(figures.floor(*line).unwrap_or(f64::NAN)),
            number(figures.times_floor(*line).unwrap_or(f64::NAN))
        );
    }
    for (other, name) in [
        (System::Ceph, "Ceph at its defaults"),
        (System::Tuned, "Ceph tuned"),
    ] {
        let _ = writeln!(text, "\nagainst {name}");
        for goal in goals::against(figures, other) {
            let Goal {
                what,
                asked,
                found,
                met,
            } = goal;
            let _ = writeln!(text, "  {:<7} {what}: {found}, asked {asked}", verdict(met));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versus::figures::Measure;
    use crate::versus::rows;

    #[test]
    fn the_document_has_every_figure_and_every_goal() {
        let mut figures = Figures::default();
        figures.add(("some row", Measure::P50), System::Nacre, 100.0);
        figures.add(("some row", Measure::P50), System::Ceph, 2_400.0);
        figures.add_floor(("some row", Measure::P50), 80.0);
        let head = Head {
            date: "today".into(),
            machine: "a machine".into(),
            nacre: "abc".into(),
            ceph: "16.2.15".into(),
            tuning: "debug osd = 0/0\ndebug ms = 0/0\nosd max backfills = 8\n".into(),
            rounds: 3,
            seconds: 900,
            others: 0.1,
            wrong: vec!["ceph: something".into()],
        };
        let text = markdown(&head, &rows::FULL, &figures);
        assert!(
            text.contains(
                "| some row | p50 µs | 100 (100 to 100) | 2,400 (2,400 to 2,400) | 24.0× | - | - | 80.0 | 1.25× |"
            ),
            "{text}"
        );
        assert_eq!(
            text.matches("MISSED").count(),
            2 * goals::against(&figures, System::Ceph).len()
        );
        assert!(
            text.contains("Ceph tuned: no debug output is gathered, `osd max backfills = 8`."),
            "{text}"
        );
        assert!(text.contains("* ceph: something"));
        assert!(!text.contains("\n\n\n"));
        assert!(terminal(&figures).contains("some row"));
    }
}
