//! What balancing promises under any policy: one binary, a module per promise.
#![allow(missing_docs, reason = "tests")]

mod adversary;
mod bench;
mod engine;
mod forms;
mod library;
mod traces;
