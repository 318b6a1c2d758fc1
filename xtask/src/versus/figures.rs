//! Measurements: samples by row, measure and system; their medians and ranges, and their ratios.

use super::cluster::System;
use std::collections::BTreeMap;

/// The measure of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Operations per second.
    Rate,
    /// Megabytes per second.
    Bandwidth,
    /// Median latency, in microseconds.
    P50,
    /// Microseconds of CPU time per operation, of the client and all daemons.
    Cpu,
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
    /// Memory.
    MiB,
}

impl Measure {
    /// The unit.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Rate => "ops/s",
            Self::Bandwidth => "MB/s",
            Self::P50 => "p50 µs",
            Self::Cpu => "CPU µs/op",
            Self::Seconds => "s",
            Self::Millis => "ms",
            Self::MiB => "MiB",
        }
    }
    const fn more_is_better(self) -> bool {
        matches!(self, Self::Rate | Self::Bandwidth)
    }
    /// How many times better the first is.
    pub fn ratio(self, ours: f64, theirs: f64) -> f64 {
        if self.more_is_better() {
            ours / theirs
        } else {
            theirs / ours
        }
    }
}

/// A line of the table.
pub type Line = (&'static str, Measure);

/// Median, minimum and maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The median.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

/// All samples.
#[derive(Default)]
pub struct Figures {
    samples: BTreeMap<(Line, System), Vec<f64>>,
    /// The floor's results, measured together with Nacre.
    floor: BTreeMap<Line, Vec<f64>>,
    /// In the order of their first sample.
    lines: Vec<Line>,
}

impl Figures {
    /// Adds a sample.
    pub fn add(&mut self, line: Line, system: System, value: f64) {
        if !self.lines.contains(&line) {
            self.lines.push(line);
        }
        self.samples.entry((line, system)).or_default().push(value);
    }
    /// Adds a sample of the floor.
    pub fn add_floor(&mut self, line: Line, value: f64) {
        self.floor.entry(line).or_default().push(value);
    }
    /// The floor's median, if measured.
    pub fn floor(&self, line: Line) -> Option<f64> {
        summary(self.floor.get(&line)?).map(|found| found.median)
    }
    /// Nacre's median relative to the floor: 1 is equal, 2 is half as good.
    pub fn times_floor(&self, line: Line) -> Option<f64> {
        let times = line
            .1
            .ratio(self.floor(line)?, self.median(line, System::Nacre));
        times.is_finite().then_some(times)
    }
    /// All lines.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }
    /// The summary, if there are samples.
    pub fn of(&self, line: Line, system: System) -> Option<Summary> {
        summary(self.samples.get(&(line, system))?)
    }
    /// The median; NaN, which meets no goal, without samples.
    pub fn median(&self, line: Line, system: System) -> f64 {
        self.of(line, system)
            .map_or(f64::NAN, |summary| summary.median)
    }
    /// How many times better Nacre's median is.
    pub fn ratio(&self, line: Line, other: System) -> f64 {
        line.1
            .ratio(self.median(line, System::Nacre), self.median(line, other))
    }
}

fn summary(samples: &[f64]) -> Option<Summary> {
    let mut all = samples.to_vec();
    all.sort_by(f64::total_cmp);
    let (min, max) = (*all.first()?, *all.last()?);
    let middle = all.len() / 2;
    let median = if all.len() % 2 == 1 {
        all[middle]
    } else {
        f64::midpoint(all[middle - 1], all[middle])
    };
    Some(Summary { median, min, max })
}

/// Three significant digits.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        value if !value.is_finite() => return "-".to_owned(),
        value if value >= 100.0 || value == 0.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    // Thousands are separated: readers compare such numbers by their length.
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut out = String::new();
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_lie_in_the_middle_and_nothing_has_none() {
        let line = ("any", Measure::P50);
        let mut figures = Figures::default();
        assert!(
            figures.of(line, System::Nacre).is_none()
                && figures.median(line, System::Nacre).is_nan()
        );
        for value in [30.0, 10.0, 20.0] {
            figures.add(line, System::Nacre, value);
        }
        let summary = Summary {
            median: 20.0,
            min: 10.0,
            max: 30.0,
        };
        assert_eq!(figures.of(line, System::Nacre), Some(summary));
        figures.add(line, System::Nacre, 40.0);
        assert_eq!(figures.median(line, System::Nacre), 25.0);
        assert!(figures.ratio(line, System::Ceph).is_nan());
        figures.add(line, System::Ceph, 100.0);
        assert_eq!(figures.ratio(line, System::Ceph), 4.0, "less is better");
        assert_eq!(figures.lines(), [line]);
    }

    #[test]
    fn the_floor_is_below_whatever_the_measure() {
        let (cpu, rate) = (("any", Measure::Cpu), ("any", Measure::Rate));
        let mut figures = Figures::default();
        figures.add(cpu, System::Nacre, 120.0);
        assert_eq!((figures.floor(cpu), figures.times_floor(cpu)), (None, None));
        figures.add_floor(cpu, 40.0);
        figures.add_floor(rate, 20_000.0);
        assert_eq!(
            (figures.floor(cpu), figures.times_floor(cpu)),
            (Some(40.0), Some(3.0))
        );
        assert_eq!(figures.times_floor(rate), None, "Nacre has no figure");
        figures.add(rate, System::Nacre, 5_000.0);
        assert_eq!(figures.times_floor(rate), Some(4.0));
    }

    #[test]
    fn more_operations_and_less_of_everything_else_are_better() {
        assert_eq!(Measure::Rate.ratio(10.0, 5.0), 2.0);
        assert_eq!(Measure::Bandwidth.ratio(10.0, 5.0), 2.0);
        for less in [
            Measure::P50,
            Measure::Cpu,
            Measure::Seconds,
            Measure::Millis,
            Measure::MiB,
        ] {
            assert_eq!(less.ratio(5.0, 10.0), 2.0);
        }
    }

    #[test]
    fn numbers_are_readable() {
        let shown = [0.0, 0.123, 12.34, 999.6, 1234.5, 1_234_567.0, f64::NAN].map(number);
        assert_eq!(
            shown,
            ["0", "0.12", "12.3", "1,000", "1,234", "1,234,567", "-"]
        );
    }
}
