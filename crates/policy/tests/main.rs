//! What scripts can and cannot do: one binary, a module per guarantee.
#![allow(missing_docs, reason = "tests")]

mod border;
mod ceph;
mod clock;
mod compose;
mod isolation;
mod library;
mod model;
mod numbers;
mod operators;
mod policy;
mod reference;
mod regimes;
mod replay;
mod zoo;
