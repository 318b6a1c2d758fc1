//! Ways in from outside: a file system of Nacre, mounted by the kernel (FUSE; ADR 0006).
//!
//! ```text
//!  programs ─▶ kernel ─/dev/fuse─▶ gateway ──Ask──▶ FileSystem (node) ─▶ servers, objects
//!                     ◀──reply───          ◀─Outcome─
//!             one thread reads requests    the client's thread replies
//! ```
//! * [`mount()`], [`Mounted`]: from a folder to an unmounted folder; [`MountOptions`], [`MountError`];
//! * `gateway`: one method per request, each one call; it decides nothing;
//! * `calls`: a request as a call; `answers`: what came of it; `attr`, `listing`, `xattr`: what of them takes thought;
//! * `locks`: owners of locks and threads that wait for one; `caller`: what the library does not say of a thread.
//!
//! Invariants:
//! 1. A request's thread waits for nothing: every request that asks the cluster is replied to from the call's end.
//!    (Before an owner's first lock of a whole file it looks at the thread that asks: a millisecond at most.)
//! 2. A node of the kernel is an inode's number. The gateway keeps nothing per inode, so that forgetting is nothing;
//!    of owners of locks it keeps that they may have some.
//! 3. What the kernel caches of names and attributes it may not use again without asking (`gateway::ENTRY_TTL`).
//!
//! A host crate: it has threads and looks at the machine.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this crate is a host (ADR 0001)")]

mod answers;
mod attr;
mod caller;
mod calls;
mod error;
mod gateway;
#[cfg(test)]
mod kernel_test;
mod listing;
mod locks;
mod mount;
mod options;
mod xattr;

pub use error::MountError;
pub use mount::{Mounted, check, mount};
pub use options::{MountOptions, UnknownOption};
