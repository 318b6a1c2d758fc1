//! Results of a scenario: figures with limits, and facts.
//!
//! A figure worse than its limit is reported and counted. A fact that does not hold is not recorded
//! here: it is an error of the scenario.

use serde_json::{Value, json};

struct Figure {
    what: String,
    found: f64,
    unit: &'static str,
    /// The maximum, if there is a limit.
    limit: Option<f64>,
}

impl Figure {
    /// Whether it meets the limit, if there is one. A missing figure (NaN) does not.
    fn is_met(&self) -> Option<bool> {
        self.limit.map(|limit| self.found <= limit)
    }

    fn row(&self) -> String {
        let limit = self
            .limit
            .map_or_else(String::new, |limit| format!("≤ {}", number(limit)));
        let verdict = match self.is_met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        };
        let row = format!(
            "  {:<66} {:>9} {:<10} {limit:<10} {verdict}",
            self.what,
            number(self.found),
            self.unit
        );
        row.trim_end().to_owned()
    }
}

/// Three significant digits; more only for integers.
fn number(value: f64) -> String {
    if value.fract() == 0.0 || value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// All results, printed as they are recorded.
#[derive(Default)]
pub struct Figures {
    figures: Vec<Figure>,
    facts: Vec<String>,
    skipped: Vec<String>,
}

impl Figures {
    fn add(&mut self, what: &str, found: f64, unit: &'static str, limit: Option<f64>) {
        let figure = Figure {
            what: what.to_owned(),
            found,
            unit,
            limit,
        };
        println!("{}", figure.row());
        self.figures.push(figure);
    }
    /// A figure that should be at most `limit`.
    pub fn at_most(&mut self, limit: f64, what: &str, found: f64, unit: &'static str) {
        self.add(what, found, unit, Some(limit));
    }
    /// A figure without a limit.
    pub fn note(&mut self, what: &str, found: f64, unit: &'static str) {
        self.add(what, found, unit, None);
    }
    /// A fact that was checked and holds.
    pub fn proved(&mut self, what: &str) {
        println!("  {what}: right");
        self.facts.push(what.to_owned());
    }
    /// A check that is not possible on this machine. It is neither an error nor a success.
    pub fn skipped(&mut self, what: &str, why: &str) {
        println!("  {what}: SKIPPED: {why}");
        self.skipped.push(format!("{what}: {why}"));
    }
    /// Adds another scenario's results.
    pub fn extend(&mut self, other: Self) {
        self.figures.extend(other.figures);
        self.facts.extend(other.facts);
        self.skipped.extend(other.skipped);
    }
    /// One line.
    pub fn summary(&self) -> String {
        let promised: Vec<bool> = self.figures.iter().filter_map(Figure::is_met).collect();
        let missed = promised.iter().filter(|met| !**met).count();
        let met = promised.len() - missed;
        let skipped = match self.skipped.len() {
            0 => String::new(),
            count => format!("; {count} SKIPPED"),
        };
        format!(
            "{met} figures met, {missed} MISSED; {} facts right{skipped}",
            self.facts.len()
        )
    }
    /// Adds them to a line of the record.
    pub fn record(&self, line: &mut Value) {
        let figure = |figure: &Figure| {
            let found = (figure.found * 100.0).round() / 100.0;
            json!({ "what": figure.what, "found": found, "unit": figure.unit, "limit": figure.limit, "met": figure.is_met() })
        };
        line["figures"] = self.figures.iter().map(figure).collect();
        line["facts"] = self.facts.clone().into();
        line["skipped"] = self.skipped.clone().into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_may_be_reached_and_no_figure_is_no_success() {
        let met = |limit, found| {
            Figure {
                what: String::new(),
                found,
                unit: "",
                limit,
            }
            .is_met()
        };
        assert_eq!(met(Some(10.0), 10.0), Some(true));
        assert_eq!(met(Some(10.0), 10.1), Some(false));
        assert_eq!(met(Some(10.0), f64::NAN), Some(false));
        assert_eq!(met(None, 1.0), None);
    }

    #[test]
    fn the_last_line_counts_what_was_promised() {
        let mut figures = Figures::default();
        figures.at_most(1.0, "late", 2.0, "s");
        figures.at_most(1.0, "early", 0.5, "s");
        figures.note("some", 3.0, "");
        figures.proved("data");
        assert_eq!(figures.summary(), "1 figures met, 1 MISSED; 1 facts right");
        let mut line = json!({ "scenario": "any" });
        figures.record(&mut line);
        assert_eq!(line["figures"][0]["met"], false);
        assert_eq!(line["figures"][0]["limit"], 1.0);
        assert_eq!(line["facts"][0], "data");
        figures.skipped("mounting", "no kernel");
        assert!(figures.summary().ends_with("1 facts right; 1 SKIPPED"));
    }

    #[test]
    fn figures_are_shown_with_the_digits_that_count() {
        assert_eq!(
            [0.123, 12.34, 1234.5, 3.0].map(number),
            ["0.12", "12.3", "1234", "3"]
        );
    }
}
