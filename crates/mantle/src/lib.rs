//! Mantle: load balancing as a policy that users write (Malacology, Sevilla et al., EuroSys 2017,
//! §5.1 and §6.2; Sevilla et al., SC 2015; "Towards Dynamic Load Balancing Policies in
//! Software-Defined Storage", §5 and §6; MAL-07, MAL-50 to MAL-62, PAR-07 to PAR-15).
//!
//! ```text
//!   map, source, tick(metrics) ─▶ Engine ─▶ script: facts to Lua, answer back      (script.rs, driver.luau, in the sandbox of `policy`)
//!                                   │          │
//!                                   │          ▼
//!                                   │        plan: judge the answer, choose units    (plan.rs, no Lua)
//!                                   ▼
//!             Decided(moves | keep | held), Log, Save, ReadPolicy
//!
//!   trace ─▶ Model: an Engine per rank over units that move ─▶ report: decisions, imbalance, ping-pong   (nacre policy test)
//! ```
//! The policy decides when, where and how much. Budget, hysteresis and prohibitions belong to the
//! mechanism. A policy can fail; then the position is held.
//!
//! Start reading at [`engine`], then [`plan`].
#![forbid(unsafe_code)]

pub mod decision;
pub mod engine;
pub mod generate;
pub mod library;
pub mod metrics;
pub mod model;
pub mod options;
pub mod plan;
pub mod script;
pub mod state;
pub mod trace;

pub use decision::{Decision, Held, Mode, Move};
pub use engine::{Engine, Input, Output, ProgramRef};
pub use generate::{SHAPES, Shape, generate};
pub use library::{LIBRARY, shipped};
pub use metrics::{Arrival, CacheMetrics, Facts, Metrics, Rank, RankMetrics, Series, Unit};
pub use model::{Model, Step, Summary, TickReport};
pub use options::Options;
pub use trace::{BadTrace, Trace};
