//! What this client knows of a file that is open.

use crate::ask::{Ask, CallId};
use nacre_wire::Wire as _;
use nacre_wire::fs::{Backpointer, Inode, Layout, Stamp};
use nacre_wire::msg::client::SubOp;
use nacre_wire::msg::fs::{FsNode, FsPlace};
use std::collections::VecDeque;

/// See the module head.
#[derive(Debug)]
pub(crate) struct File {
    /// How often it is open: as many closes have to come.
    pub opens: u32,
    pub layout: Layout,
    /// Bytes, as the server said last.
    pub size: u64,
    /// Up to where data beyond that may still be there, from before it was truncated.
    stale_to: u64,
    /// Which of the server's answers that was.
    change: u64,
    /// Where it was seen last.
    pub place: Option<FsPlace>,
    /// It was written then, and the server has not been told.
    pub dirty: Option<Stamp>,
    /// Writes under way.
    pub writes: usize,
    /// A change of its size is under way: what writes waits.
    pub resizing: bool,
    /// What waits for that, or for the writes.
    pub waiting: VecDeque<(CallId, Ask)>,
}

impl File {
    /// One that the server has just opened.
    pub fn new(inode: &Inode) -> Option<Self> {
        let layout = inode.layout?;
        let mut file = Self {
            opens: 0,
            layout,
            size: 0,
            stale_to: 0,
            change: 0,
            place: None,
            dirty: None,
            writes: 0,
            resizing: false,
            waiting: VecDeque::new(),
        };
        file.learn(inode);
        Some(file)
    }
    /// The server has said what it is like. Answers may come in another order than the changes were made.
    pub fn learn(&mut self, inode: &Inode) {
        if inode.change >= self.change {
            self.change = inode.change;
            self.size = inode.size;
            self.stale_to = inode.rare.as_ref().map_or(0, |rare| rare.stale_to);
        }
    }
    /// What its first object is to say with its first data: where the file is.
    pub fn parent(&self) -> Option<SubOp> {
        let FsPlace { dir, name } = self.place.clone().filter(|_| self.size == 0)?;
        let value = Backpointer { dir, name }.to_bytes().into();
        Some(SubOp::SetAttr { name: Backpointer::ATTR.into(), value })
    }
    /// Whether data that is written there now would be removed with what was cut off.
    pub const fn is_stale_at(&self, end: u64) -> bool {
        end > self.size && self.stale_to > self.size
    }
    /// An inode as callers are to see it: with what the server has not been told.
    pub fn show(&self, node: &mut FsNode) {
        if let Some(dirty) = self.dirty {
            node.inode.mtime = node.inode.mtime.max(dirty);
            node.inode.ctime = node.inode.ctime.max(dirty);
        }
    }
}
