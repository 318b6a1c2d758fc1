//! Ways into a cluster from outside.
//!
//! ```text
//!  programs ─▶ kernel ─▶ /dev/fuse ─▶ session's thread ─▶ FileSystem (its own thread) ─▶ cluster
//!                            ▲──────────── replies ─────────────┘
//! ```
//! * `mount`: a file system becomes a directory of this machine; `fuse`: the kernel's requests;
//! * `attr`, `listing`, `xattr`: how what the file system says is told to the kernel.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this crate is a host (ADR 0001)")]

mod attr;
mod fuse;
mod listing;
mod mount;
mod xattr;

pub use mount::{MountError, MountOptions, Mounted, mount};
