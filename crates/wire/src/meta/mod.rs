//! What requests about service metadata mean, wherever the keys are kept: in the monitors' state
//! machine (`crates/mon`) or in an object of another engine (`crates/rados`).
//!
//! * [`form`]: which requests make sense at all;
//! * [`draft`]: what a transaction reads, answers and changes.
//!
//! Invariant: the same keys and the same transaction give the same answers and the same events on
//! both.

pub mod draft;
pub mod form;
