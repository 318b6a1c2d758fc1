//! `nacre fs popular`: recently requested directories.

use super::Shown;
use crate::cluster::Place;
use crate::table::Column;
use nacre_types::Rank;
use nacre_wire::msg::fs::FsPopular;
use serde_json::{Value, json};

/// Columns of the list.
pub const COLUMNS: &[Column] = &[
    ("RANK", "rank"),
    ("REQUESTS/S", "per_second"),
    ("DIRECTORY", "path"),
];

/// The directories of all ranks, the most requested first.
///
/// # Errors
/// The cluster's configuration cannot be used.
pub fn rows(shown: &Shown, place: &Place) -> anyhow::Result<Vec<Value>> {
    let figures = shown.figures(place)?;
    let each = figures
        .iter()
        .flat_map(|(rank, figures)| figures.popular.iter().map(move |one| (rank, one)));
    let mut all: Vec<_> = each.collect();
    all.sort_by_key(|(rank, one)| (std::cmp::Reverse(one.rate), rank.0));
    let row = |(rank, one): &(&Rank, &FsPopular)| {
        let path = String::from_utf8_lossy(&one.path).into_owned();
        let per_second = format!("{:.1}", one.rate as f64 / 1000.0);
        json!({ "rank": rank.0, "ino": one.ino.0, "path": path, "per_second": per_second, "millis_per_second": one.rate })
    };
    Ok(all.iter().map(row).collect())
}
