//! A file system in memory: the expected answer of every call on either of two mounts.
//!
//! Directories, files with several names, open files that outlive their names, and advisory locks.
//! A lock belongs to a mount here: one process has both mounts, so its calls there are two owners.
//! Errors are those of Linux, in the order in which it checks.

use rustix::io::Errno;
use std::collections::BTreeMap;

/// A path below the checked directory, as components; the directory itself has none.
pub type Path = Vec<String>;
/// One of the two mounts.
pub type Side = usize;
/// One of the open files.
pub type Slot = usize;

/// A call.
#[derive(Clone, Debug)]
pub enum Call {
    /// `O_CREAT | O_EXCL`.
    Create(Path),
    /// Opened, written, closed.
    Write(Path, u64, Vec<u8>),
    /// The same with `O_APPEND`.
    Append(Path, Vec<u8>),
    /// Opened, read, closed.
    Read(Path, u64, usize),
    Truncate(Path, u64),
    Stat(Path),
    List(Path),
    Mkdir(Path),
    Rmdir(Path),
    Unlink(Path),
    Rename(Path, Path),
    Link(Path, Path),
    Open(Slot, Path),
    WriteAt(Slot, u64, Vec<u8>),
    ReadAt(Slot, u64, usize),
    Sync(Slot),
    /// A lock on the whole file, exclusive or shared, without waiting.
    Lock(Slot, bool),
    Unlock(Slot),
    Close(Slot),
}

impl Call {
    /// A description without its data. It is created for every call, so it must be cheap.
    pub fn shown(&self) -> String {
        match self {
            Self::Write(path, at, data) => format!("Write({path:?}, {at}, {} bytes)", data.len()),
            Self::Append(path, data) => format!("Append({path:?}, {} bytes)", data.len()),
            Self::WriteAt(slot, at, data) => format!("WriteAt({slot}, {at}, {} bytes)", data.len()),
            other => format!("{other:?}"),
        }
    }
}

/// The answer of a call.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Data(Vec<u8>),
    Names(Vec<String>),
    File {
        size: u64,
        names: u64,
    },
    Folder,
    /// There is no such open file: no call was made.
    Nothing,
}

type Id = u64;
const ROOT: Id = 0;

#[derive(Debug)]
enum Node {
    Folder(BTreeMap<String, Id>),
    File { data: Vec<u8>, names: u64 },
}

/// See the module head.
pub struct Model {
    nodes: BTreeMap<Id, Node>,
    next: Id,
    slots: BTreeMap<Slot, (Side, Id)>,
    /// Whether a mount's lock is exclusive.
    locks: BTreeMap<(Id, Side), bool>,
}

impl Model {
    /// An empty directory.
    pub fn new() -> Self {
        let nodes = BTreeMap::from([(ROOT, Node::Folder(BTreeMap::new()))]);
        Self {
            nodes,
            next: ROOT + 1,
            slots: BTreeMap::new(),
            locks: BTreeMap::new(),
        }
    }

    /// Whether a slot holds an open file of this mount.
    pub fn is_open(&self, slot: Slot, side: Side) -> bool {
        self.slots.get(&slot).is_some_and(|(of, _)| *of == side)
    }

    /// All paths, the directory's own first.
    pub fn paths(&self) -> Vec<Path> {
        let (mut all, mut at) = (vec![Path::new()], 0);
        while at < all.len() {
            if let Ok(names) = self.find(&all[at]).and_then(|id| self.folder(id)) {
                let below = names
                    .keys()
                    .map(|name| [&all[at][..], std::slice::from_ref(name)].concat());
                let below: Vec<Path> = below.collect();
                all.extend(below);
            }
            at += 1;
        }
        all
    }

    /// Executes a call on a mount, and returns the answer.
    pub fn call(&mut self, side: Side, call: &Call) -> Result<Answer, Errno> {
        match call {
            Call::Create(path) => self.make(
                path,
                Node::File {
                    data: Vec::new(),
                    names: 1,
                },
            ),
            Call::Mkdir(path) => self.make(path, Node::Folder(BTreeMap::new())),
            Call::Write(path, at, data) => self.opened(side, path, |old| write(old, *at, data)),
            Call::Append(path, data) => self.opened(side, path, |old| old.extend(data)),
            Call::Truncate(path, to) => self.opened(side, path, |old| old.resize(usize_of(*to), 0)),
            Call::Read(path, at, count) => {
                let mut found = Vec::new();
                self.opened(side, path, |old| found = part(old, *at, *count))?;
                Ok(Answer::Data(found))
            }
            Call::Stat(path) => Ok(match &self.nodes[&self.find(path)?] {
                Node::Folder(_) => Answer::Folder,
                Node::File { data, names } => Answer::File {
                    size: data.len() as u64,
                    names: *names,
                },
            }),
            Call::List(path) => Ok(Answer::Names(
                self.folder(self.find(path)?)?.keys().cloned().collect(),
            )),
            Call::Rmdir(path) => self.rmdir(path),
            Call::Unlink(path) => self.unlink(path),
            Call::Rename(from, to) => self.rename(from, to),
            Call::Link(from, to) => self.link(from, to),
            Call::Open(slot, path) => {
                let id = self.find(path)?;
                self.file(id)?;
                self.slots.insert(*slot, (side, id));
                Ok(Answer::Done)
            }
            Call::WriteAt(slot, at, data) => self.with(*slot, |old| write(old, *at, data)),
            Call::ReadAt(slot, at, count) => {
                let mut found = None;
                self.with(*slot, |old| found = Some(part(old, *at, *count)))?;
                Ok(found.map_or(Answer::Nothing, Answer::Data))
            }
            Call::Sync(slot) => self.with(*slot, |_| {}),
            Call::Lock(slot, exclusive) => self.lock(*slot, *exclusive),
            Call::Unlock(slot) => {
                let Some((side, id)) = self.slots.get(slot) else {
                    return Ok(Answer::Nothing);
                };
                self.locks.remove(&(*id, *side));
                Ok(Answer::Done)
            }
            Call::Close(slot) => {
                let Some((side, id)) = self.slots.remove(slot) else {
                    return Ok(Answer::Nothing);
                };
                self.closed(side, id);
                Ok(Answer::Done)
            }
        }
    }

    fn folder(&self, id: Id) -> Result<&BTreeMap<String, Id>, Errno> {
        match &self.nodes[&id] {
            Node::Folder(names) => Ok(names),
            Node::File { .. } => Err(Errno::NOTDIR),
        }
    }
    fn names(&mut self, id: Id) -> &mut BTreeMap<String, Id> {
        match self.nodes.get_mut(&id) {
            Some(Node::Folder(names)) => names,
            _ => unreachable!("it was found as a folder"),
        }
    }
    fn file(&mut self, id: Id) -> Result<&mut Vec<u8>, Errno> {
        match self.nodes.get_mut(&id) {
            Some(Node::File { data, .. }) => Ok(data),
            _ => Err(Errno::ISDIR),
        }
    }
    fn is_folder(&self, id: Id) -> bool {
        matches!(self.nodes[&id], Node::Folder(_))
    }
    fn find(&self, path: &[String]) -> Result<Id, Errno> {
        path.iter().try_fold(ROOT, |id, name| {
            self.folder(id)?.get(name).copied().ok_or(Errno::NOENT)
        })
    }
    /// The directory of the last component of a path, and that component.
    fn above<'a>(&self, path: &'a [String]) -> Result<(Id, &'a String), Errno> {
        let (name, above) = path
            .split_last()
            .expect("the folder itself is never changed");
        let id = self.find(above)?;
        self.folder(id)?;
        Ok((id, name))
    }

    /// Opens a file, performs an action, closes it: this releases the process's locks on this
    /// mount.
    fn opened(
        &mut self,
        side: Side,
        path: &Path,
        change: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Answer, Errno> {
        let id = self.find(path)?;
        change(self.file(id)?);
        self.closed(side, id);
        Ok(Answer::Done)
    }
    fn closed(&mut self, side: Side, id: Id) {
        self.locks.remove(&(id, side));
        self.forget(id);
    }
    fn with(&mut self, slot: Slot, change: impl FnOnce(&mut Vec<u8>)) -> Result<Answer, Errno> {
        let Some((_, id)) = self.slots.get(&slot) else {
            return Ok(Answer::Nothing);
        };
        change(self.file(*id)?);
        Ok(Answer::Done)
    }
    fn lock(&mut self, slot: Slot, exclusive: bool) -> Result<Answer, Errno> {
        let Some((side, id)) = self.slots.get(&slot).copied() else {
            return Ok(Answer::Nothing);
        };
        let other = self.locks.get(&(id, 1 - side));
        if other.is_some_and(|theirs| *theirs || exclusive) {
            return Err(Errno::AGAIN);
        }
        self.locks.insert((id, side), exclusive);
        Ok(Answer::Done)
    }

    fn make(&mut self, path: &Path, node: Node) -> Result<Answer, Errno> {
        let (above, name) = self.above(path)?;
        if self.folder(above)?.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, node);
        self.names(above).insert(name.clone(), id);
        Ok(Answer::Done)
    }
    fn rmdir(&mut self, path: &Path) -> Result<Answer, Errno> {
        let (above, name) = self.above(path)?;
        let id = self.find(path)?;
        if !self.folder(id)?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.names(above).remove(name);
        self.nodes.remove(&id);
        Ok(Answer::Done)
    }
    fn unlink(&mut self, path: &Path) -> Result<Answer, Errno> {
        let (above, name) = self.above(path)?;
        let id = self.find(path)?;
        self.file(id)?;
        self.names(above).remove(name);
        self.lose_name(id);
        Ok(Answer::Done)
    }
    fn lose_name(&mut self, id: Id) {
        if let Some(Node::File { names, .. }) = self.nodes.get_mut(&id) {
            *names -= 1;
        }
        self.forget(id);
    }
    /// Removes a node without a name once it is not open any more.
    fn forget(&mut self, id: Id) {
        let nameless = matches!(self.nodes.get(&id), Some(Node::File { names: 0, .. }));
        if nameless && !self.slots.values().any(|(_, open)| *open == id) {
            self.nodes.remove(&id);
        }
    }
    fn link(&mut self, from: &Path, to: &Path) -> Result<Answer, Errno> {
        let id = self.find(from)?;
        let (above, name) = self.above(to)?;
        if self.folder(above)?.contains_key(name) {
            return Err(Errno::EXIST);
        }
        match self.nodes.get_mut(&id) {
            Some(Node::File { names, .. }) => *names += 1,
            _ => return Err(Errno::PERM),
        }
        self.names(above).insert(name.clone(), id);
        Ok(Answer::Done)
    }
    fn rename(&mut self, from: &Path, to: &Path) -> Result<Answer, Errno> {
        let (old_above, old_name) = self.above(from)?;
        let (new_above, new_name) = self.above(to)?;
        let id = self.find(from)?;
        let there = self.folder(new_above)?.get(new_name).copied();
        let is_above = |one: &Path, other: &Path| other.len() > one.len() && other.starts_with(one);
        if is_above(from, to) {
            return Err(Errno::INVAL);
        }
        if is_above(to, from) {
            return Err(Errno::NOTEMPTY);
        }
        if there == Some(id) {
            return Ok(Answer::Done);
        }
        if let Some(there) = there {
            match (self.is_folder(id), self.is_folder(there)) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                (true, true) if !self.folder(there)?.is_empty() => return Err(Errno::NOTEMPTY),
                (true, true) => drop(self.nodes.remove(&there)),
                (false, false) => {}
            }
        }
        self.names(old_above).remove(old_name);
        self.names(new_above).insert(new_name.clone(), id);
        if let Some(there) = there.filter(|there| self.nodes.contains_key(there)) {
            self.lose_name(there);
        }
        Ok(Answer::Done)
    }
}

fn usize_of(size: u64) -> usize {
    usize::try_from(size).expect("files of the model fit into memory")
}

fn write(old: &mut Vec<u8>, at: u64, data: &[u8]) {
    let at = usize_of(at);
    if data.is_empty() {
        return;
    }
    if old.len() < at + data.len() {
        old.resize(at + data.len(), 0);
    }
    old[at..at + data.len()].copy_from_slice(data);
}

fn part(old: &[u8], at: u64, count: usize) -> Vec<u8> {
    let from = usize_of(at).min(old.len());
    old[from..(from + count).min(old.len())].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Path {
        text.split('/').map(str::to_owned).collect()
    }
    fn done(model: &mut Model, side: Side, calls: &[Call]) {
        for call in calls {
            model
                .call(side, call)
                .unwrap_or_else(|why| panic!("{call:?}: {why}"));
        }
    }

    #[test]
    fn an_open_file_outlives_its_name_and_a_second_name_its_first() {
        let mut model = Model::new();
        let (a, b) = (path("a"), path("b"));
        done(
            &mut model,
            0,
            &[
                Call::Create(a.clone()),
                Call::Link(a.clone(), b.clone()),
                Call::Open(0, a.clone()),
            ],
        );
        done(
            &mut model,
            1,
            &[Call::Unlink(a.clone()), Call::Append(b.clone(), vec![1, 2])],
        );
        assert_eq!(
            model.call(1, &Call::Stat(b.clone())),
            Ok(Answer::File { size: 2, names: 1 })
        );
        done(&mut model, 1, &[Call::Unlink(b.clone())]);
        assert_eq!(
            model.call(0, &Call::ReadAt(0, 0, 9)),
            Ok(Answer::Data(vec![1, 2]))
        );
        done(&mut model, 0, &[Call::Close(0)]);
        assert_eq!(model.nodes.len(), 1, "nothing but the folder is left");
        assert_eq!(model.call(0, &Call::Stat(b)), Err(Errno::NOENT));
    }

    #[test]
    fn locks_are_a_mounts_and_go_with_any_close_of_the_file() {
        let mut model = Model::new();
        let a = path("a");
        done(
            &mut model,
            0,
            &[
                Call::Create(a.clone()),
                Call::Open(0, a.clone()),
                Call::Lock(0, false),
            ],
        );
        done(
            &mut model,
            1,
            &[Call::Open(1, a.clone()), Call::Lock(1, false)],
        );
        assert_eq!(model.call(1, &Call::Lock(1, true)), Err(Errno::AGAIN));
        done(&mut model, 0, &[Call::Read(a, 0, 1)]);
        assert_eq!(model.call(1, &Call::Lock(1, true)), Ok(Answer::Done));
    }

    #[test]
    fn errors_are_those_of_linux() {
        let mut model = Model::new();
        let (d, e, f) = (path("d"), path("d/e"), path("f"));
        done(
            &mut model,
            0,
            &[
                Call::Mkdir(d.clone()),
                Call::Mkdir(e.clone()),
                Call::Create(f.clone()),
            ],
        );
        for (call, why) in [
            (Call::Rename(d.clone(), path("d/e/x")), Errno::INVAL),
            (Call::Rename(e.clone(), d.clone()), Errno::NOTEMPTY),
            (Call::Rename(f.clone(), e.clone()), Errno::ISDIR),
            (Call::Rename(e.clone(), f.clone()), Errno::NOTDIR),
            (Call::Rmdir(d.clone()), Errno::NOTEMPTY),
            (Call::Rmdir(f.clone()), Errno::NOTDIR),
            (Call::Unlink(d.clone()), Errno::ISDIR),
            (Call::Stat(path("f/x")), Errno::NOTDIR),
            (Call::Create(d.clone()), Errno::EXIST),
            (Call::Link(d.clone(), path("x")), Errno::PERM),
            (Call::Read(d, 0, 1), Errno::ISDIR),
        ] {
            assert_eq!(model.call(0, &call), Err(why), "{call:?}");
        }
    }
}
