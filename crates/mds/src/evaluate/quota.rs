//! Sets, removes and shows directory quotas (ADR 0006, "Quotas").
//! [`Draft::room_for`](crate::draft::Draft::room_for) enforces them.
//!
//! Clients decide who may set a quota, as with all permissions.

use super::{EEXIST, EINVAL, ENODATA, ENOTDIR, EOPNOTSUPP, Run, Step, Stop, rare_of};
use nacre_types::Ino;
use nacre_wire::fs::quota::{DirAttr, parse_bound};
use nacre_wire::fs::{FsQuota, Inode, QuotaKind, Rare};
use nacre_wire::msg::fs::FsAnswer;

/// A client is given this fraction of what is left beyond its request, and at most this many bytes.
const SHARE: u64 = 8;
const AHEAD_MAX: u64 = 64 << 20;

const KINDS: [QuotaKind; 2] = [QuotaKind::Bytes {}, QuotaKind::Files {}];

/// The quota that an attribute's name refers to, if it can be set.
fn kind_of(name: &[u8]) -> Step<QuotaKind> {
    match DirAttr::parse(name) {
        Some(DirAttr::Max(kind)) => Ok(kind),
        Some(DirAttr::Bytes | DirAttr::Files | DirAttr::Directories) => Err(Stop::Fail(EINVAL)),
        None => Err(Stop::Fail(EOPNOTSUPP)),
    }
}

impl Run<'_> {
    /// Sets one of Nacre's own attributes.
    pub(super) fn set_own(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        fresh: Option<bool>,
    ) -> Step<FsAnswer> {
        let kind = kind_of(name)?;
        let max = parse_bound(value).map_err(|_| Stop::Fail(EINVAL))?;
        let inode = self.inode(ino)?;
        if !inode.is_directory() {
            return Err(Stop::Fail(ENOTDIR));
        }
        match (fresh, bound(&inode, kind).is_some()) {
            (Some(true), true) => return Err(Stop::Fail(EEXIST)),
            (Some(false), false) => return Err(Stop::Fail(ENODATA)),
            _ => {}
        }
        self.set_bound(inode, kind, max)
    }
    /// Removes one of them.
    pub(super) fn remove_own(&mut self, ino: Ino, name: &[u8]) -> Step<FsAnswer> {
        let kind = kind_of(name)?;
        let inode = self.inode(ino)?;
        if bound(&inode, kind).is_none() {
            return Err(Stop::Fail(ENODATA));
        }
        self.set_bound(inode, kind, None)
    }
    fn set_bound(&mut self, mut inode: Inode, kind: QuotaKind, max: Option<u64>) -> Step<FsAnswer> {
        *kind.of_mut(rare_of(&mut inode)) = max;
        if inode.rare.as_deref() == Some(&Rare::default()) {
            inode.rare = None;
        }
        self.changed(inode)
    }

    /// A client wants to make a file this large; returns how large it may become.
    pub(super) fn give_room(&mut self, ino: Ino, size: u64) -> Step<FsAnswer> {
        let inode = self.inode(ino)?;
        if !inode.is_file() {
            return Err(Stop::Fail(EINVAL));
        }
        self.room_to_grow(&inode, size, self.setting.room.0)?;
        let left = self
            .tree
            .place(ino)
            .and_then(|(dir, _)| self.draft.room_left(ino, dir));
        self.room = Some(left.map_or(u64::MAX, |left| {
            // A part of what is left beyond its request, so that it need not ask for each write.
            let behind = left.saturating_sub(size.saturating_sub(inode.size));
            size.saturating_add((behind / SHARE).min(AHEAD_MAX))
        }));
        Ok(FsAnswer::Done {})
    }

    /// The usage below a directory, and the quotas that apply to an inode.
    pub(super) fn usage(&self, ino: Ino) -> Step<FsAnswer> {
        let inode = self.inode(ino)?;
        let sum = if inode.is_directory() {
            self.draft.sum(ino)
        } else {
            nacre_wire::fs::Head::default()
        };
        let mut quotas = Vec::new();
        for dir in self.tree.upwards(ino) {
            let Some(inode) = self.tree.inode(dir).filter(|inode| inode.is_directory()) else {
                continue;
            };
            let head = self.draft.sum(dir);
            let quota = |kind: QuotaKind| {
                let max = bound(inode, kind)?;
                Some(FsQuota {
                    kind,
                    dir,
                    max,
                    used: kind.used(&head),
                })
            };
            quotas.extend(KINDS.into_iter().filter_map(quota));
        }
        let (bytes, files, directories) = (sum.bytes_below, sum.files_below, sum.directories_below);
        Ok(FsAnswer::Usage {
            bytes,
            files,
            directories,
            quotas,
        })
    }
}

fn bound(inode: &Inode, kind: QuotaKind) -> Option<u64> {
    inode.rare.as_ref().and_then(|rare| kind.of(rare))
}
