//! Changes that involve names or inodes of other ranks (ADR 0006, "Across ranks").
//!
//! ```text
//!  leader: evaluate ─▶ Across: that rank must prepare this part ─▶ evaluate, with the result ─▶ … ─▶ Done
//!  participant: evaluate_part, to prepare it: determines the answer, and what would change
//!               evaluate_part, once more, after the decision: makes the change
//! ```
//! An inode stays with its rank for ever. An inode that gets a name in another rank's directory
//! moves to the hidden directory for inodes with several names, and the name is a reference.
//!
//! A renamed directory stays within its subtree, that is below the same directory that another
//! rank's reference refers to, or below the root: only within one subtree it is known whether it
//! would end up below itself. (Programs that get `EXDEV` copy.)

use super::{
    EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY, EXDEV, Run, Setting, Step, Stop, Verdict,
    evaluate_with, stray_name,
};
use crate::tree::Tree;
use nacre_types::{Ino, Name, Rank};
use nacre_wire::fs::{Entry, FileKind, Head, Inode};
use nacre_wire::msg::fs::{FsAnswer, FsNode, rename_flag};
use nacre_wire::msg::transaction::{FsFact, FsPart};

/// Evaluates a part of another rank's transaction. The answer is a node, or refers elsewhere.
#[must_use]
pub fn evaluate_part(tree: &Tree, part: &FsPart, setting: &Setting<'_>) -> Verdict {
    evaluate_with(tree, setting, setting.again, |run| run.part(part))
}

impl Run<'_> {
    /// Whether another rank has the inode of an entry.
    pub(super) fn is_elsewhere(&self, entry: &Entry) -> bool {
        matches!(entry, Entry::Reference { home, .. } if Rank(*home) != self.setting.rank)
    }
    /// The result of a part, if it was prepared.
    fn fact(&self, rank: Rank, part: FsPart) -> Step<&FsFact> {
        match self
            .setting
            .facts
            .iter()
            .find(|(asked, _)| is_same(asked, &part))
        {
            None => Err(Stop::Across(rank, part)),
            Some((_, FsFact::Failed { errno })) => Err(Stop::Fail(*errno)),
            Some((_, fact)) => Ok(fact),
        }
    }
    /// The same for a part that returns an inode.
    fn node(&self, rank: Rank, part: FsPart) -> Step<FsNode> {
        match self.fact(rank, part)? {
            FsFact::Node { node } => Ok(FsNode {
                home: None,
                ..node.clone()
            }),
            _ => Err(Stop::Fail(EINVAL)),
        }
    }

    // ── as the leader ───────────────────────────────────────────────────────────────────

    pub(super) fn link_elsewhere(&mut self, ino: Ino, dir: Ino, name: &Name) -> Step<FsAnswer> {
        self.directory(dir)?;
        // If there are several reasons for a failure, the same one is returned as within a rank:
        // the linked inode is checked first.
        let node = self.node(ino.rank(), FsPart::Link { ino, place: None })?;
        if self.find(dir, name)?.is_some() {
            return Err(Stop::Fail(EEXIST));
        }
        self.draft.room_for(dir, 0, 1)?;
        let (kind, home) = (node.inode.kind, ino.rank().0);
        self.draft
            .set(dir, name, Entry::Reference { ino, kind, home }, None);
        Ok(FsAnswer::Node { node, made: false })
    }
    pub(super) fn unname_elsewhere(&self, entry: &Entry) -> Step<FsNode> {
        let (ino, directory) = (entry.ino(), entry.is_directory());
        self.node(ino.rank(), FsPart::Unlink { ino, directory })
    }
    /// Renames from another rank's directory to one of this rank.
    pub(super) fn rename_from_elsewhere(
        &mut self,
        from: (Ino, &Name),
        to: (Ino, &Name),
        flags: u8,
    ) -> Step<FsAnswer> {
        self.directory(to.0)?;
        let target = self.find(to.0, to.1)?;
        if flags & rename_flag::EXCHANGE != 0 {
            return Err(Stop::Fail(if target.is_none() { ENOENT } else { EXDEV }));
        }
        let left = self.fact(
            from.0.rank(),
            FsPart::Leave {
                dir: from.0,
                name: from.1.clone(),
            },
        )?;
        let (ino, kind) = match left {
            FsFact::Node { node } => (node.inode.ino, node.inode.kind),
            FsFact::Elsewhere { ino, kind } => (*ino, *kind),
            FsFact::Failed { .. } | FsFact::Busy {} => return Err(Stop::Fail(EINVAL)),
        };
        if flags & rename_flag::NO_REPLACE != 0 && target.is_some() {
            return Err(Stop::Fail(EEXIST));
        }
        if let Some(target) = &target {
            if target.ino() == ino {
                // Two names of one file: both stay.
                return Ok(FsAnswer::Done {});
            }
            if target.is_directory() {
                return Err(Stop::Fail(EISDIR));
            }
            self.unname(target)?;
        }
        self.draft.room_for(to.0, 0, u64::from(target.is_none()))?;
        let reference = Entry::Reference {
            ino,
            kind,
            home: ino.rank().0,
        };
        let entry = self.moved(&reference)?;
        self.draft.set(to.0, to.1, entry, target.as_ref());
        Ok(FsAnswer::Done {})
    }
    /// Moves an empty directory to another rank.
    pub(super) fn pin(&mut self, dir: Ino, name: &Name, rank: Rank) -> Step<FsAnswer> {
        self.directory(dir)?;
        let entry = self.entry(dir, name)?;
        if !entry.is_directory() {
            return Err(Stop::Fail(ENOTDIR));
        }
        let Entry::Inode { inode, .. } = &entry else {
            // Its own rank would have to move it.
            let is_there = entry.ino().rank() == rank;
            return if is_there {
                Ok(FsAnswer::Done {})
            } else {
                Err(Stop::Fail(EXDEV))
            };
        };
        if rank == self.setting.rank {
            return Ok(FsAnswer::Done {});
        }
        if self.draft.sum(inode.ino).entries > 0 {
            return Err(Stop::Fail(ENOTEMPTY));
        }
        let node = self.node(
            rank,
            FsPart::Make {
                inode: Inode {
                    ino: Ino::TOP,
                    ..inode.clone()
                },
            },
        )?;
        let (ino, kind) = (node.inode.ino, node.inode.kind);
        self.draft.set(
            dir,
            name,
            Entry::Reference {
                ino,
                kind,
                home: rank.0,
            },
            Some(&entry),
        );
        self.draft.end_directory(inode.ino);
        Ok(FsAnswer::Node { node, made: true })
    }

    // ── as a participant ────────────────────────────────────────────────────────────────

    fn part(&mut self, part: &FsPart) -> Step<FsAnswer> {
        match part {
            FsPart::Link { ino, .. } => {
                let inode = self.one_more_name(*ino)?;
                self.move_home(&inode)?;
                Ok(self.shown(inode, false))
            }
            FsPart::Unlink { ino, directory } => {
                let inode = self.inode(*ino)?;
                match (inode.is_directory(), directory) {
                    (true, false) => return Err(Stop::Fail(EISDIR)),
                    (false, true) => return Err(Stop::Fail(ENOTDIR)),
                    _ => {}
                }
                let entry = Entry::Reference {
                    ino: *ino,
                    kind: inode.kind,
                    home: self.setting.rank.0,
                };
                let node = self.unname(&entry)?;
                Ok(FsAnswer::Node { node, made: false })
            }
            FsPart::Leave { dir, name } => self.leave(*dir, name),
            FsPart::Make { inode } => self.make_top(inode),
        }
    }
    fn leave(&mut self, dir: Ino, name: &Name) -> Step<FsAnswer> {
        self.directory(dir)?;
        let entry = self.entry(dir, name)?;
        if entry.is_directory() {
            return Err(Stop::Fail(EXDEV));
        }
        if self.is_elsewhere(&entry) {
            self.draft.remove(dir, name, &entry);
            return Ok(FsAnswer::Elsewhere {
                ino: entry.ino(),
                kind: entry.kind(),
            });
        }
        let mut inode = self.resolve(&entry)?;
        self.touch(&mut inode);
        if entry.home().is_some() {
            self.draft.put(inode.clone())?;
        } else {
            self.set_hidden(Ino::links(self.setting.rank), &inode)?;
        }
        self.draft.remove(dir, name, &entry);
        Ok(self.shown(inode, false))
    }
    /// Creates a directory whose name another rank has.
    fn make_top(&mut self, like: &Inode) -> Step<FsAnswer> {
        if !matches!(like.kind, FileKind::Directory {}) {
            return Err(Stop::Fail(EINVAL));
        }
        let ino = self.setting.ino;
        self.took_ino = true;
        let (home, key) = (Ino::links(self.setting.rank), stray_name(ino));
        self.find(home, &key)?;
        let inode = Inode {
            ino,
            ..like.clone()
        };
        let head = Some(Head::default());
        self.draft.set(
            home,
            &key,
            Entry::Inode {
                inode: inode.clone(),
                head: head.map(Box::new),
            },
            None,
        );
        self.draft.begin_directory(ino);
        Ok(FsAnswer::Node {
            node: FsNode {
                inode,
                head,
                home: None,
            },
            made: true,
        })
    }
}

/// Whether two evaluations ask for the same part: the template of a new directory may have changed
/// in between.
fn is_same(asked: &FsPart, part: &FsPart) -> bool {
    match (asked, part) {
        (FsPart::Make { .. }, FsPart::Make { .. }) => true,
        (FsPart::Link { ino, .. }, FsPart::Link { ino: other, .. }) => ino == other,
        _ => asked == part,
    }
}
