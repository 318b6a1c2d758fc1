//! Guarantees of balancing under any policy: one binary, a module per guarantee.
#![allow(missing_docs, reason = "tests")]

mod adversary;
mod bench;
mod engine;
mod forms;
mod library;
mod traces;
