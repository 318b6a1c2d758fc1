//! Path resolution as in POSIX: links are followed, `..` is the parent directory.
//!
//! Names are bytes without `/`. A path may begin with `/` or not: both begin at the root of the
//! file system.

use super::FileSystem;
use nacre_fs::Given;
use nacre_mds::evaluate::errno::{EEXIST, ENAMETOOLONG, ENOENT, ENOTDIR};
use nacre_types::{Ino, Name};
use nacre_wire::fs::entry::NAME_MAX;
use nacre_wire::fs::{FileKind, Inode};
use nacre_wire::msg::fs::{FsAnswer, FsCall, FsNode};
use std::collections::VecDeque;

const EIO: u16 = 5;
const ELOOP: u16 = 40;
/// Maximum number of links followed, as in Linux.
const LINKS_MAX: u32 = 40;

/// The target of a path.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// The root, or `.` or `..`: a directory without a name in this path.
    Directory(Ino),
    /// A name, which may exist or not.
    Name(Ino, Name, Option<Box<Inode>>),
}

impl Place {
    /// A directory and the name to create or remove in it.
    pub fn name(self) -> Result<(Ino, Name), u16> {
        match self {
            Self::Directory(_) => Err(EEXIST),
            Self::Name(dir, name, _) => Ok((dir, name)),
        }
    }
    /// The existing inode.
    pub fn there(&self) -> Result<Ino, u16> {
        match self {
            Self::Directory(ino) => Ok(*ino),
            Self::Name(.., inode) => inode.as_ref().map(|inode| inode.ino).ok_or(ENOENT),
        }
    }
}

/// The node of an answer.
pub(super) fn node(given: Given) -> Result<FsNode, u16> {
    match given {
        Given::Answer(FsAnswer::Node { node, .. }) => Ok(node),
        _ => Err(EIO),
    }
}

fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
}

impl FileSystem {
    /// Resolves a path; `follow`: also a link at its end.
    pub(super) async fn walk(&self, path: &[u8], follow: bool) -> Result<Place, u16> {
        let mut left: VecDeque<Vec<u8>> = parts(path).map(<[u8]>::to_vec).collect();
        // A name that ends with a slash must be a directory.
        let wants_directory = path.ends_with(b"/") || path.ends_with(b"/.") || path == b".";
        let (mut dirs, mut links) = (vec![Ino::ROOT], 0);
        while let Some(part) = left.pop_front() {
            if part == b".." {
                if dirs.len() > 1 {
                    dirs.pop();
                }
                continue;
            }
            if part.len() > NAME_MAX {
                return Err(ENAMETOOLONG);
            }
            let (dir, name, is_last) = (dirs[dirs.len() - 1], Name::copy(&part), left.is_empty());
            let found = self
                .names(FsCall::Lookup {
                    dir,
                    name: name.clone(),
                })
                .await
                .and_then(node);
            let inode = match found {
                Ok(node) => node.inode,
                Err(ENOENT) if is_last => return Ok(Place::Name(dir, name, None)),
                Err(errno) => return Err(errno),
            };
            match inode.kind {
                FileKind::Symlink {} if !is_last || follow || wants_directory => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(ELOOP);
                    }
                    let target = inode
                        .rare
                        .as_ref()
                        .map(|rare| rare.target.clone())
                        .unwrap_or_default();
                    if target.starts_with(b"/") {
                        dirs.truncate(1);
                    }
                    parts(&target)
                        .rev()
                        .for_each(|part| left.push_front(part.to_vec()));
                }
                FileKind::Directory {} if !is_last => dirs.push(inode.ino),
                _ if !is_last => return Err(ENOTDIR),
                kind if wants_directory && kind != (FileKind::Directory {}) => return Err(ENOTDIR),
                _ => return Ok(Place::Name(dir, name, Some(Box::new(inode)))),
            }
        }
        Ok(Place::Directory(dirs[dirs.len() - 1]))
    }
}
