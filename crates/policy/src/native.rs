//! Classes in Rust, for those who compile their own daemons, and to compare with the same in Lua
//! (MAL-25, MAL-28).

pub mod zlog;
