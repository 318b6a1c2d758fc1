//! External access: a Nacre file system mounted by the kernel (FUSE; ADR 0006).
//!
//! ```text
//!  programs ─▶ kernel ─/dev/fuse─▶ gateway ──Ask──▶ FileSystem (node) ─▶ servers, objects
//!                     ◀──reply───          ◀─Outcome─
//!             one thread reads requests    the client's thread replies
//! ```
//! * [`mount()`], [`Mounted`]: from a directory to an unmounted directory; [`MountOptions`],
//!   [`MountError`];
//! * [`check`], [`may_mount`]: whether mounting is possible; [`unmount`]: for mounts of other
//!   processes;
//! * [`table`]: the mounted file systems;
//! * `gateway`: one method per request, each making one call; it decides nothing;
//! * `calls`: a request as a call; `answers`: its result; `attr`, `listing`, `xattr`, `room`: the
//!   non-trivial conversions;
//! * `client`: the receiver of calls; `kept`: attributes that the kernel caches;
//! * `locks`: owners of locks and threads that wait for one; `caller`: what the library does not
//!   tell about a thread;
//! * `following`: the processor on which requests are read.
//!
//! Invariants:
//! 1. A request's thread waits for nothing: every request that needs the cluster is answered when
//!    its call ends. (Before an owner's first lock of a whole file it examines the requesting
//!    thread: a millisecond at most.)
//! 2. A node of the kernel is an inode's number. The gateway only stores how often the kernel was
//!    given it, and which owners may have locks.
//! 3. The kernel may not use names again without asking (`gateway::ENTRY_TTL`), and attributes only
//!    for the duration of their loans, until they are revoked (`kept`).
//!
//! A host crate: it has threads and examines the machine.
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
