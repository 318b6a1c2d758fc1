//! What a mapping costs.
fn main() {}
