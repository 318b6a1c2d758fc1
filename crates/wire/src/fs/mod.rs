//! What a file system consists of, as servers keep it and tell it to clients (ADR 0006).
//!
//! ```text
//!  directory ─▶ fragments ─▶ head, entries by (hash, name) ─▶ inode, or a reference to one with several names
//! ```
//! One form serves for directory objects, journals and messages ([`crate::msg::fs`]): what is
//! decoded once is never made into something else on its way.

pub mod entry;
pub mod inode;
pub mod lock;
pub mod quota;
pub mod registry;

pub use entry::{Backpointer, Entry, Head, name_hash};
pub use inode::{FileKind, Inode, Layout, Rare, Stamp, data_name};
pub use lock::{FsLock, FsLockWait, LockSpan, LockSpans};
pub use quota::{FsQuota, QuotaKind};
pub use registry::{FsHolder, FsKey, FsSettings};
