//! What POSIX says of names, as simply as it can be said: nodes with counts of names, directories
//! as maps.
//!
//! It is what a file system's answers are judged by, so it shares nothing with any.

use std::collections::BTreeMap;

/// What a node is.
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
    /// What it is.
    pub kind: Kind,
    /// Names that it has.
    pub names: u32,
    /// How often it is open.
    pub opens: u32,
    /// Bytes.
    pub size: u64,
    /// Of a directory: what its names stand for.
    pub entries: BTreeMap<String, usize>,
    /// Of a directory: where it is.
    pub parent: usize,
    /// Nothing leads to it any more.
    pub gone: bool,
}

/// Nodes by number; 0 is the root. A node that is gone stays in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// See above.
    pub nodes: Vec<Node>,
}

/// What POSIX says: done, or an error number (Linux').
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
    /// A root with nothing in it.
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
    /// A directory that can be used: one that was removed has nothing in it and takes nothing.
    fn dir(&self, dir: usize) -> Said<()> {
        let node = &self.nodes[dir];
        match (node.gone, node.kind) {
            (true, _) => Err(ENOENT),
            (false, Kind::Directory) => Ok(()),
            _ => Err(ENOTDIR),
        }
    }
    /// What a name stands for.
    ///
    /// # Errors
    /// What POSIX says.
    pub fn lookup(&self, dir: usize, name: &str) -> Said<usize> {
        self.dir(dir)?;
        self.nodes[dir].entries.get(name).copied().ok_or(ENOENT)
    }
    /// Something new.
    ///
    /// # Errors
    /// What POSIX says.
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
    /// A file without a name, which is open.
    ///
    /// # Errors
    /// What POSIX says of making something there.
    pub fn make_unnamed(&mut self, dir: usize) -> Said<usize> {
        self.dir(dir)?;
        self.nodes.push(Node {
            names: 0,
            opens: 1,
            ..Self::node(Kind::File, dir)
        });
        Ok(self.nodes.len() - 1)
    }
    /// Another name for a file.
    ///
    /// # Errors
    /// What POSIX says.
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
    /// A name of a node went: is the node gone, too?
    fn unname(&mut self, id: usize) {
        let node = &mut self.nodes[id];
        node.names -= 1;
        node.gone = node.names == 0 && node.opens == 0;
    }
    /// Takes a name of a file away.
    ///
    /// # Errors
    /// What POSIX says.
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
    /// What POSIX says.
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
    /// Gives something another name, or each of two the other's.
    ///
    /// # Errors
    /// What POSIX says.
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
    /// What POSIX says.
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
    /// What POSIX says.
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
