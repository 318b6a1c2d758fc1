//! Placement: which devices hold an object, computed by everybody alike from one small map.
//!
//! CRUSH (Weil et al., SC 2006; Ceph, OSDI 2006, §5.1 "Data Distribution with CRUSH"; CEPH-40 …
//! CEPH-43) with the results of Ceph 16, bit for bit. `tests/golden` holds that system's own
//! answers.
//!
//! ```text
//!  object name ─object─▶ hash ─▶ PG seed ─place─▶ x ─mapper─▶ devices ─upmap─▶ exceptions ─▶ up set
//!                                                      │
//!                                   map ◀─text─▶ text form         edit: add, move, remove, reweight, classes, rules
//!                                    │  ▲
//!                        choose ◀────┘  └── shadow: a tree per device class
//!                     one draw in one bucket                       balance: swaps that even out what chance left
//! ```
//! Where to start reading: [`map`] (what there is), then [`mapper`] (how a rule runs), then
//! `choose` (one draw).
//!
//! * [`object`], [`hash`], `ln`: names and numbers to random bits;
//! * [`map`], [`bucket`], [`weight`], [`shadow`]: the hierarchy;
//! * [`mapper`], `choose`: rules and draws;
//! * [`place`], [`upmap`], [`balance`]: from groups to devices;
//! * [`text`], [`edit`], [`tree`]: reading, writing, changing and showing a map.
//!
//! Nothing here trusts a text: [`text::parse`] is total, and a map that exists satisfies
//! [`CrushMap::check`]. Not implemented: primary affinity, and hashes other than rjenkins1 (Ceph
//! has none either).
#![forbid(unsafe_code)]

mod attempts;
pub mod balance;
pub mod bucket;
mod choose;
pub mod edit;
pub mod hash;
mod ln;
pub mod map;
pub mod mapper;
pub mod object;
pub mod place;
pub mod shadow;
pub mod text;
pub mod tree;
pub mod upmap;
pub mod weight;

pub use attempts::ATTEMPTS_MAX;
pub use edit::NewDevice;
pub use map::{CrushMap, ItemId};
pub use mapper::{MapError, Reweights, Scratch};
pub use weight::Weight;
