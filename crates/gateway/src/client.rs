//! The receiver of calls: a file system's client; in tests something simpler.

use nacre_fs::{Ask, Outcome};
use nacre_node::{FileSystem, Keeper};
use nacre_wire::msg::fs::FsNode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// See the module head.
pub trait Files: Send + Sync + 'static {
    /// Begins a call; `answer` is called at its end, on another thread or at once.
    fn ask(&self, ask: Ask, answer: impl FnOnce(Outcome) + Send + 'static);
    /// The same for a call that the kernel did not make: the kernel's cache of what it changes is
    /// dropped.
    fn ask_beside(&self, ask: Ask, answer: impl FnOnce(Outcome) + Send + 'static) {
        self.ask(ask, answer);
    }
    /// For how long the kernel may use attributes that a call has just returned, without asking.
    fn lend(&self, _: &FsNode) -> Duration {
        Duration::ZERO
    }
    /// Sets the keeper that revokes loans.
    fn keep_for(&self, _: Weak<dyn Keeper>) {}
}

/// The client of a mount.
#[derive(Clone)]
pub struct MountClient {
    files: FileSystem,
    /// Whether it lends attributes. With two mounts of one client, only the first one does.
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
