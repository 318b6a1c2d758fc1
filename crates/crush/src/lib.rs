//! Placement.
#![forbid(unsafe_code)]

pub mod bucket;
mod choose;
pub mod hash;
mod ln;
pub mod map;
pub mod mapper;
pub mod object;
pub mod shadow;
pub mod text;
pub mod weight;

pub use map::{CrushMap, ItemId};
pub use mapper::{MapError, Reweights, Scratch};
pub use weight::Weight;
