//! Places of files that this client has seen: a server that takes over, or has evicted them from
//! memory, knows them only by their names.
//!
//! A file's name may be in another rank's directory. That place is useless to the file's own rank:
//! there such a file is in the hidden directory for files with names elsewhere.
//!
//! Two generations: files seen while the younger one fills up are kept, others are dropped.

use crate::routes::rank_of;
use nacre_types::{Ino, Name};
use nacre_wire::fs::FileKind;
use nacre_wire::msg::fs::{FsAnswer, FsCall, FsListed, FsPlace, rename_flag};
use std::collections::BTreeMap;

/// Files per generation.
const FILES_MAX: usize = 16_384;

#[derive(Debug, Default)]
struct Generation {
    places: BTreeMap<Ino, (Ino, Name)>,
    inos: BTreeMap<(Ino, Name), Ino>,
}

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Places {
    young: Generation,
    old: Generation,
}

impl Places {
    /// Where a file was last seen.
    pub fn get(&self, ino: Ino) -> Option<FsPlace> {
        let place = self
            .young
            .places
            .get(&ino)
            .or_else(|| self.old.places.get(&ino));
        place.map(|(dir, name)| hint(ino, *dir, name))
    }

    /// Learns from the server's answers; returns the files with new names, and their places.
    pub fn learn(&mut self, call: &FsCall, answer: &FsAnswer) -> Vec<(Ino, FsPlace)> {
        match (call, answer) {
            (call, FsAnswer::Node { node, .. }) if call.is_unnamed() => {
                let ino = node.inode.ino;
                self.note(ino, Ino::strays(ino.rank()), &Name::from(&*ino.to_string()));
            }
            (
                FsCall::Lookup { dir, name } | FsCall::Make { dir, name, .. },
                FsAnswer::Node { node, .. },
            ) if !node.inode.is_directory() => {
                self.note(node.inode.ino, *dir, name);
            }
            (FsCall::Link { ino, dir, name }, FsAnswer::Node { .. }) => {
                self.note(*ino, *dir, name);
                // It may have had no name before.
                return vec![(*ino, hint(*ino, *dir, name))];
            }
            (
                FsCall::Lookup { dir, name } | FsCall::Make { dir, name, .. },
                FsAnswer::Elsewhere { ino, kind },
            ) if !matches!(kind, FileKind::Directory {}) => {
                self.note(*ino, *dir, name);
            }
            (FsCall::List { dir, .. }, FsAnswer::Listed { entries, .. }) => {
                self.note_listed(*dir, entries)
            }
            (
                FsCall::List { dir, .. },
                FsAnswer::ListedPartly {
                    entries, elsewhere, ..
                },
            ) => {
                self.note_listed(*dir, entries);
                for other in elsewhere
                    .iter()
                    .filter(|other| !matches!(other.kind, FileKind::Directory {}))
                {
                    self.note(other.ino, *dir, &other.name);
                }
            }
            (
                FsCall::Rename {
                    dir,
                    name,
                    to_dir,
                    to_name,
                    flags,
                },
                FsAnswer::Done {} | FsAnswer::Node { .. },
            ) => {
                let (from, to) = ((*dir, name.clone()), (*to_dir, to_name.clone()));
                let (moved, other) = (self.at(&from), self.at(&to));
                let mut renamed = Vec::new();
                if let Some(moved) = moved {
                    self.note(moved, to.0, &to.1);
                    renamed.push((moved, hint(moved, to.0, &to.1)));
                }
                if *flags & rename_flag::EXCHANGE != 0
                    && let Some(other) = other
                {
                    self.note(other, from.0, &from.1);
                    renamed.push((other, hint(other, from.0, &from.1)));
                }
                return renamed;
            }
            _ => {}
        }
        Vec::new()
    }

    fn note_listed(&mut self, dir: Ino, entries: &[FsListed]) {
        for listed in entries
            .iter()
            .filter(|listed| !listed.node.inode.is_directory())
        {
            self.note(listed.node.inode.ino, dir, &listed.name);
        }
    }
    fn at(&self, name: &(Ino, Name)) -> Option<Ino> {
        self.young
            .inos
            .get(name)
            .or_else(|| self.old.inos.get(name))
            .copied()
    }
    fn note(&mut self, ino: Ino, dir: Ino, name: &Name) {
        if self.young.places.len() >= FILES_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        let place = (dir, name.clone());
        if let Some(before) = self.young.places.insert(ino, place.clone()) {
            self.young.inos.remove(&before);
        }
        self.young.inos.insert(place, ino);
    }
}

/// The place to report to a file's rank for a file with this name.
fn hint(ino: Ino, dir: Ino, name: &Name) -> FsPlace {
    let rank = rank_of(ino);
    if rank_of(dir) == rank {
        FsPlace {
            dir,
            name: name.clone(),
        }
    } else {
        FsPlace {
            dir: Ino::links(rank),
            name: Name::from(&*ino.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_wire::fs::{Inode, Stamp};
    use nacre_wire::msg::fs::FsNode;

    fn lookup(places: &mut Places, ino: u64, name: &str) {
        let inode = Inode::new(Ino(ino), FileKind::File {}, 0o644, (0, 0), Stamp(1));
        let node = FsNode {
            inode,
            head: None,
            home: None,
        };
        places.learn(
            &FsCall::Lookup {
                dir: Ino(1),
                name: name.into(),
            },
            &FsAnswer::Node { node, made: false },
        );
    }
    fn rename(places: &mut Places, from: &str, to: &str, flags: u8) -> Vec<(Ino, FsPlace)> {
        let call = FsCall::Rename {
            dir: Ino(1),
            name: from.into(),
            to_dir: Ino(2),
            to_name: to.into(),
            flags,
        };
        places.learn(&call, &FsAnswer::Done {})
    }
    fn place(dir: u64, name: &str) -> FsPlace {
        FsPlace {
            dir: Ino(dir),
            name: name.into(),
        }
    }

    #[test]
    fn a_file_is_where_it_was_renamed_to() {
        let mut places = Places::default();
        lookup(&mut places, 10, "a");
        assert_eq!(rename(&mut places, "a", "b", 0), [(Ino(10), place(2, "b"))]);
        assert_eq!(places.get(Ino(10)), Some(place(2, "b")));
        assert_eq!(
            rename(&mut places, "a", "c", 0),
            [],
            "there is nothing of that name any more"
        );
        lookup(&mut places, 11, "x");
        assert_eq!(
            rename(&mut places, "x", "b", rename_flag::EXCHANGE).len(),
            2
        );
        assert_eq!(
            (places.get(Ino(10)), places.get(Ino(11))),
            (Some(place(1, "x")), Some(place(2, "b")))
        );
    }

    /// A file's rank does not know another rank's directory.
    #[test]
    fn a_file_with_a_name_of_another_rank_is_where_its_own_one_has_it() {
        let mut places = Places::default();
        let (dir, ino) = (Ino(1 << 48 | 1 << 20), Ino(1 << 48 | 2 << 20));
        let there = FsPlace {
            dir: Ino::links(rank_of(ino)),
            name: "1000000200000".into(),
        };
        let led = FsAnswer::Elsewhere {
            ino,
            kind: FileKind::File {},
        };
        places.learn(
            &FsCall::Lookup {
                dir: Ino(1),
                name: "a".into(),
            },
            &led,
        );
        assert_eq!(places.get(ino), Some(there.clone()));
        let rename = |dir, name: &str, to_dir, to_name: &str| FsCall::Rename {
            dir,
            name: name.into(),
            to_dir,
            to_name: to_name.into(),
            flags: 0,
        };
        let home = FsPlace {
            dir,
            name: "b".into(),
        };
        let renamed = places.learn(&rename(Ino(1), "a", dir, "b"), &FsAnswer::Done {});
        assert_eq!(
            (renamed, places.get(ino)),
            (vec![(ino, home.clone())], Some(home))
        );
        let renamed = places.learn(&rename(dir, "b", Ino(2), "c"), &FsAnswer::Done {});
        assert_eq!(
            (renamed, places.get(ino)),
            (vec![(ino, there.clone())], Some(there))
        );
    }

    #[test]
    fn what_was_seen_last_is_kept() {
        let mut places = Places::default();
        for ino in 0..3 * FILES_MAX as u64 {
            lookup(&mut places, 100 + ino, &ino.to_string());
            lookup(&mut places, 7, "seven");
        }
        assert!(places.get(Ino(100)).is_none() && places.get(Ino(7)).is_some());
        let kept = (0..3 * FILES_MAX as u64)
            .filter(|ino| places.get(Ino(100 + ino)).is_some())
            .count();
        assert!((FILES_MAX..2 * FILES_MAX).contains(&kept), "{kept}");
    }
}
