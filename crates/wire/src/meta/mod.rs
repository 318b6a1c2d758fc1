//! Semantics of requests about service metadata, wherever the keys are stored: in the monitors'
//! state machine (`crates/mon`) or in an object of another engine (`crates/rados`).
//!
//! * [`form`]: which requests are valid at all;
//! * [`draft`]: what a transaction reads, answers and changes.
//!
//! Invariant: the same keys and the same transaction give the same answers and the same events on
//! both.

pub mod draft;
pub mod form;
