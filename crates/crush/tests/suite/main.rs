//! Tests against the outside.
mod golden;
