//! Placement: the devices that hold an object, computed identically by every client and daemon from
//! one small map.
//!
//! CRUSH (Weil et al., SC 2006; Ceph, OSDI 2006, §5.1 "Data Distribution with CRUSH"; CEPH-40 …
//! CEPH-43) with the results of Ceph 16, bit for bit. `tests/golden` holds answers computed by Ceph
//! itself.
//!
//! ```text
//!  object name ─object─▶ hash ─▶ PG seed ─place─▶ x ─mapper─▶ devices ─upmap─▶ exceptions ─▶ up set
//!                                                      │
//!                                   map ◀─text─▶ text form         edit: add, move, remove, reweight, classes, rules
//!                                    │  ▲
//!                        choose ◀────┘  └── shadow: a tree per device class
//!                     one draw in one bucket                       balance: swaps that even out what chance left
//! ```
//! Start reading at [`map`] (the data structures), then [`mapper`] (how a rule runs), then `choose`
//! (one draw).
//!
//! * [`object`], [`hash`], `ln`: names and numbers to random bits;
//! * [`map`], [`bucket`], [`weight`], [`shadow`]: the hierarchy;
//! * [`mapper`], `choose`: rules and draws;
//! * [`place`], [`upmap`], [`balance`]: from placement groups to devices;
//! * [`text`], [`edit`], [`tree`]: parsing, printing, changing and displaying a map.
//!
//! No text is trusted: [`text::parse`] never panics, and every existing map satisfies
//! [`CrushMap::check`]. Not implemented: primary affinity, and hashes other than rjenkins1 (Ceph
//! has no others either).
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
