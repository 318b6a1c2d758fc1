//! `./x`: build, check and test verbs.
fn main() {}
