//! `nacre fs popular`: which directories were asked for of late.

use super::Shown;
use crate::cluster::{Place, host};
use crate::table::Column;
use nacre_types::Rank;
use serde_json::{Value, json};
use std::time::Duration;

/// A server that does not answer within that time is left out.
const WAIT: Duration = Duration::from_secs(2);

/// What is shown of each.
pub const COLUMNS: &[Column] = &[("RANK", "rank"), ("REQUESTS/S", "per_second"), ("DIRECTORY", "path")];

/// The directories of all ranks, the one of which most was asked first.
///
/// # Errors
/// The cluster's configuration cannot be used.
pub fn rows(shown: &Shown, place: &Place) -> anyhow::Result<Vec<Value>> {
    let holders = shown.holders.iter().map(|(rank, holder)| (Rank(*rank), holder.clone())).collect();
    let figures = host::figures(place, holders, WAIT)?;
    let each = figures.iter().flat_map(|(rank, figures)| figures.popular.iter().map(move |one| (rank, one)));
    let mut all: Vec<_> = each.collect();
    all.sort_by_key(|(rank, one)| (std::cmp::Reverse(one.rate), rank.0));
    let row = |(rank, one): &(&Rank, &nacre_wire::msg::fs::FsPopular)| {
        let path = String::from_utf8_lossy(&one.path).into_owned();
        let per_second = format!("{:.1}", one.rate as f64 / 1000.0);
        json!({ "rank": rank.0, "ino": one.ino.0, "path": path, "per_second": per_second, "millis_per_second": one.rate })
    };
    Ok(all.iter().map(row).collect())
}
