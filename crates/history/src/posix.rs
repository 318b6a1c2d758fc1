//! A minimal model of POSIX names: nodes with link counts, directories as maps.
//!
//! File systems are checked against it, so it shares no code with any.

use std::collections::BTreeMap;

/// Type of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// A file, directory or link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its type.
    pub kind: Kind,
    /// Number of names (link count).
    pub names: u32,
    /// Number of open handles.
    pub opens: u32,
    /// Size in bytes.
    pub size: u64,
    /// For a directory: the nodes of its entries.
    pub entries: BTreeMap<String, usize>,
    /// For a directory: its parent.
    pub parent: usize,
    /// It has no names and no open handles any more.
    pub gone: bool,
}

/// Nodes by number; 0 is the root. A node that is gone stays in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The nodes, by number.
    pub nodes: Vec<Node>,
}

/// The result according to POSIX: success, or an error number (Linux's).
pub type Said<T> = Result<T, u16>;
const ENOENT: u16 = 2;
const EPERM: u16 = 1;
const EEXIST: u16 = 17;
const ENOTDIR: u16 = 20;
const EISDIR: u16 = 21;
const EINVAL: u16 = 22;
const ENOTEMPTY: u16 = 39;

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    /// An empty root.
    #[must_use]
    pub fn new() -> Self {
        Self {
            nodes: vec![Self::node(Kind::Directory, 0)],
        }
    }
    fn node(kind: Kind, parent: usize) -> Node {
        Node {
            kind,
            names: 1,
            opens: 0,
            size: 0,
            entries: BTreeMap::new(),
            parent,
            gone: false,
        }
    }
    /// Checks that a directory can be used: a removed one is empty and accepts nothing.
    fn dir(&self, dir: usize) -> Said<()> {
        let node = &self.nodes[dir];
        match (node.gone, node.kind) {
            (true, _) => Err(ENOENT),
            (false, Kind::Directory) => Ok(()),
            _ => Err(ENOTDIR),
        }
    }
    /// The node of a name.
    ///
    /// # Errors
    /// The error that POSIX requires.
    pub fn lookup(&self, dir: usize, name: &str) -> Said<usize> {
        self.dir(dir)?;
        self.nodes[dir].entries.get(name).copied().ok_or(ENOENT)
    }
    /// Creates a node.
    ///
    /// # Errors
    /// The error that POSIX requires.
    pub fn make(&mut self, dir: usize, name: &str, kind: Kind) -> Said<usize> {
        self.dir(dir)?;
        if self.nodes[dir].entries.contains_key(name) {
            return Err(EEXIST);
        }
        self.nodes.push(Self::node(kind, dir));
        let id = self.nodes.len() - 1;
        self.nodes[dir].entries.insert(name.to_owned(), id);
        Ok(id)
    }
    /// Creates an open file without a name.
    ///
    /// # Errors
    /// The error that POSIX requires for creating something there.
    pub fn make_unnamed(&mut self, dir: usize) -> Said<usize> {
        self.dir(dir)?;
        self.nodes.push(Node {
            names: 0,
            opens: 1,
            ..Self::node(Kind::File, dir)
        });
        Ok(self.nodes.len() - 1)
    }
    /// Adds a name to a file.
    ///
    /// # Errors
    /// The error that POSIX requires.
    pub fn link(&mut self, id: usize, dir: usize, name: &str) -> Said<()> {
        if self.nodes[id].gone {
            return Err(ENOENT);
        }
        if self.nodes[id].kind == Kind::Directory {
            return Err(EPERM);
        }
        self.dir(dir)?;
        if self.nodes[dir].entries.contains_key(name) {
            return Err(EEXIST);
        }
        self.nodes[dir].entries.insert(name.to_owned(), id);
        self.nodes[id].names += 1;
        Ok(())
    }
    /// Called when a node lost a name: marks it gone if that was its last use.
    fn unname(&mut self, id: usize) {
        let node = &mut self.nodes[id];
        node.names -= 1;
        node.gone = node.names == 0 && node.opens == 0;
    }
    /// Removes a name of a file.
    ///
    /// # Errors
    /// The error that POSIX requires.
    pub fn unlink(&mut self, dir: usize, name: &str) -> Said<()> {
        let id = self.lookup(dir, name)?;
        if self.nodes[id].kind == Kind::Directory {
            return Err(EISDIR);
        }
        self.nodes[dir].entries.remove(name);
        self.unname(id);
        Ok(())
    }
    /// Removes an empty directory.
    ///
    /// # Errors
    /// The error that POSIX requires.
    pub fn rmdir(&mut self, dir: usize, name: &str) -> Said<()> {
        let id = self.lookup(dir, name)?;
        if self.nodes[id].kind != Kind::Directory {
            return Err(ENOTDIR);
        }
        if !self.nodes[id].entries.is_empty() {
            return Err(ENOTEMPTY);
        }
        self.nodes[dir].entries.remove(name);
        self.unname(id);
        Ok(())
    }
    fn is_below(&self, mut below: usize, above: usize) -> bool {
        loop {
            if below == above {
                return true;
            }
            if below == 0 {
                return false;
            }
            below = self.nodes[below].parent;
        }
    }
    /// Renames a node, or exchanges two names.
    ///
    /// # Errors
    /// The error that POSIX requires.
    pub fn rename(
        &mut self,
        from: (usize, &str),
        to: (usize, &str),
        no_replace: bool,
        exchange: bool,
    ) -> Said<()> {
        self.dir(from.0)?;
        self.dir(to.0)?;
        let source = self.lookup(from.0, from.1)?;
        let target = self.lookup(to.0, to.1).ok();
        if no_replace && target.is_some() {
            return Err(EEXIST);
        }
        if exchange && target.is_none() {
            return Err(ENOENT);
        }
        let is_dir = |id: usize| self.nodes[id].kind == Kind::Directory;
        if is_dir(source) && self.is_below(to.0, source) {
            return Err(EINVAL);
        }
        if target == Some(source) {
            return Ok(());
        }
        if let Some(target) = target {
            if exchange {
                if is_dir(target) && self.is_below(from.0, target) {
                    return Err(EINVAL);
                }
                self.nodes[to.0].entries.insert(to.1.to_owned(), source);
                self.nodes[from.0].entries.insert(from.1.to_owned(), target);
                (self.nodes[source].parent, self.nodes[target].parent) = (to.0, from.0);
                return Ok(());
            }
            match (is_dir(source), is_dir(target)) {
                (true, false) => return Err(ENOTDIR),
                (false, true) => return Err(EISDIR),
                (true, true) if !self.nodes[target].entries.is_empty() => return Err(ENOTEMPTY),
                _ => {}
            }
            self.unname(target);
        }
        self.nodes[from.0].entries.remove(from.1);
        self.nodes[to.0].entries.insert(to.1.to_owned(), source);
        self.nodes[source].parent = to.0;
        Ok(())
    }
    /// Opens a file.
    ///
    /// # Errors
    /// The error that POSIX requires.
    pub fn open(&mut self, id: usize) -> Said<()> {
        let node = &mut self.nodes[id];
        match (node.gone, node.kind) {
            (true, _) => Err(ENOENT),
            (false, Kind::File) => {
                node.opens += 1;
                Ok(())
            }
            _ => Err(EINVAL),
        }
    }
    /// Sets a file's size.
    ///
    /// # Errors
    /// The error that POSIX requires.
    pub fn resize(&mut self, id: usize, size: u64) -> Said<()> {
        let node = &mut self.nodes[id];
        match (node.gone, node.kind) {
            (true, _) => Err(ENOENT),
            (false, Kind::File) => {
                node.size = size;
                Ok(())
            }
            (false, Kind::Directory) => Err(EISDIR),
            _ => Err(EINVAL),
        }
    }
}
