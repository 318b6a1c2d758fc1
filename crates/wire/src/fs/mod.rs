//! The parts of a file system, as servers store them and send them to clients (ADR 0006).
//!
//! ```text
//!  directory ─▶ fragments ─▶ head, entries by (hash, name) ─▶ inode, or a reference to one with several names
//! ```
//! One encoding serves directory objects, journals and messages ([`crate::msg::fs`]): a decoded
//! value is never converted to another form.

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
