//! Classes in Rust, for users who compile their own daemons, and for comparison with the same class
//! in Lua (MAL-25, MAL-28).

pub mod zlog;
