//! Progress of long work: a bar on a terminal, nothing elsewhere.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar for a number of bytes.
#[must_use]
pub fn bytes(what: &'static str, total: u64) -> ProgressBar {
    bar(
        total,
        what,
        "{msg:>10} [{bar:32}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
    )
}

/// A bar for a number of items.
#[must_use]
pub fn count(what: &'static str, total: u64) -> ProgressBar {
    bar(total, what, "{msg:>10} [{bar:32}] {pos}/{len} {eta}")
}

/// A sign of activity for work of unknown duration.
#[must_use]
pub fn waiting(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.set_message(what);
    bar
}

fn bar(total: u64, what: &'static str, template: &str) -> ProgressBar {
    // Bars are drawn on standard error, and only if that is a terminal.
    let bar = ProgressBar::new(total);
    bar.set_style(
        ProgressStyle::with_template(template)
            .expect("a constant template")
            .progress_chars("=> "),
    );
    bar.set_message(what);
    bar
}
