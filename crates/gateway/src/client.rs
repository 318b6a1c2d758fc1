//! Whom requests are passed on to: a file system's client; in tests something smaller.

use nacre_fs::{Ask, Outcome};
use nacre_node::{FileSystem, Keeper};
use nacre_wire::msg::fs::FsNode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// See the module head.
pub trait Files: Send + Sync + 'static {
    /// Begins a call, and has `answer` called at its end, on another thread or at once.
    fn ask(&self, ask: Ask, answer: impl FnOnce(Outcome) + Send + 'static);
    /// The same for a call that the kernel did not make: it forgets what that changes.
    fn ask_beside(&self, ask: Ask, answer: impl FnOnce(Outcome) + Send + 'static) {
        self.ask(ask, answer);
    }
    /// For how long the kernel may show attributes that a call was just answered with, without
    /// asking.
    fn lend(&self, _: &FsNode) -> Duration {
        Duration::ZERO
    }
    /// Who takes back what is lent.
    fn keep_for(&self, _: Weak<dyn Keeper>) {}
}

/// The client of a mount.
#[derive(Clone)]
pub struct MountClient {
    files: FileSystem,
    /// It keeps attributes. Of two mounts of one client the first does.
    keeps: Arc<AtomicBool>,
}
impl From<FileSystem> for MountClient {
    fn from(files: FileSystem) -> Self {
        Self {
            files,
            keeps: Arc::default(),
        }
    }
}
impl MountClient {
    fn keeps(&self) -> bool {
        self.keeps.load(Ordering::Relaxed)
    }
}
impl Files for MountClient {
    fn ask(&self, ask: Ask, answer: impl FnOnce(Outcome) + Send + 'static) {
        if self.keeps() {
            self.files.ask_as_keeper(ask, answer)
        } else {
            self.files.ask(ask, answer)
        }
    }
    fn ask_beside(&self, ask: Ask, answer: impl FnOnce(Outcome) + Send + 'static) {
        self.files.ask(ask, answer);
    }
    fn lend(&self, node: &FsNode) -> Duration {
        if self.keeps() {
            self.files.lend(node)
        } else {
            Duration::ZERO
        }
    }
    fn keep_for(&self, keeper: Weak<dyn Keeper>) {
        self.keeps
            .store(self.files.keep_for(keeper), Ordering::Relaxed);
    }
}
