//! Ways in from outside: a file system of Nacre, mounted by the kernel (FUSE; ADR 0006).
//!
//! ```text
//!  programs ─▶ kernel ─/dev/fuse─▶ gateway ──Ask──▶ FileSystem (node) ─▶ servers, objects
//!                     ◀──reply───          ◀─Outcome─
//!             one thread reads requests    the client's thread replies
//! ```
//! * [`mount()`], [`Mounted`]: from a folder to an unmounted folder; [`MountOptions`],
//!   [`MountError`];
//! * [`check`], [`may_mount`]: whether that can be; [`unmount`]: for mounts of other processes;
//! * [`table`]: what is mounted;
//! * `gateway`: one method per request, each one call; it decides nothing;
//! * `calls`: a request as a call; `answers`: what came of it; `attr`, `listing`, `xattr`, `room`:
//!   what of them takes thought;
//! * `client`: whom requests are passed on to; `kept`: attributes that the kernel keeps;
//! * `locks`: owners of locks and threads that wait for one; `caller`: what the library does not
//!   say of a thread;
//! * `following`: on which processor requests are read.
//!
//! Invariants:
//! 1. A request's thread waits for nothing: every request that asks the cluster is replied to from
//!    the call's end. (Before an owner's first lock of a whole file it looks at the thread that
//!    asks: a millisecond at most.)
//! 2. A node of the kernel is an inode's number. The gateway keeps of it how often the kernel was
//!    given it; of owners of locks that they may have some.
//! 3. Names the kernel may not use again without asking (`gateway::ENTRY_TTL`); attributes for as
//!    long as they are lent, and until they are taken back (`kept`).
//!
//! A host crate: it has threads and looks at the machine.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this crate is a host (ADR 0001)"
)]

mod answers;
mod attr;
mod caller;
mod calls;
mod client;
mod error;
mod following;
mod gateway;
mod kept;
#[cfg(test)]
mod kernel_test;
mod lazy;
mod listing;
mod locks;
mod mount;
mod options;
mod permission;
mod room;
mod set_ids;
pub mod table;
mod xattr;

pub use client::MountClient;
pub use error::MountError;
pub use mount::{Mounted, Unmount, check, mount, unmount};
pub use options::{MountOptions, UnknownOption};
pub use permission::may_mount;
