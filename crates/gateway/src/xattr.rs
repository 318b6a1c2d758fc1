//! Extended attributes: valid names, and how callers learn sizes.

use crate::answers::Usage;
use bytes::Bytes;
use fuser::Errno;
use nacre_types::{Ino, Name};
use nacre_wire::fs::FsQuota;
use nacre_wire::fs::inode::{ACL_ACCESS, ACL_DEFAULT};
use nacre_wire::fs::quota::DirAttr;
use nacre_wire::msg::fs::FsNode;

/// Flag of `setxattr`: the attribute must not exist.
const CREATE: i32 = 1;
/// Flag of `setxattr`: the attribute must exist.
const REPLACE: i32 = 2;

/// The result for a caller.
#[derive(Debug, PartialEq, Eq)]
pub enum Given {
    /// The size: the caller has passed no buffer.
    Size(u32),
    /// The data.
    Data(Bytes),
}

/// Whether a name may be used: of the kernel's own names (`system.`) only access control lists; of
/// Nacre's own names, which the kernel passes on like any other, only those of directories.
pub fn check(name: &[u8]) -> Result<(), Errno> {
    let allowed: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let is_rights = [ACL_ACCESS, ACL_DEFAULT].contains(&name);
    let is_allowed = is_rights
        || DirAttr::parse(name).is_some()
        || allowed.iter().any(|prefix| name.starts_with(prefix));
    if is_allowed {
        Ok(())
    } else {
        Err(Errno::EOPNOTSUPP)
    }
}

/// Whether it must not exist (`Some(true)`) or must exist (`Some(false)`).
pub fn fresh(flags: i32) -> Result<Option<bool>, Errno> {
    match flags {
        0 => Ok(None),
        CREATE => Ok(Some(true)),
        REPLACE => Ok(Some(false)),
        _ => Err(Errno::EINVAL),
    }
}

/// One attribute's value, for a buffer of this size.
pub fn get(node: &FsNode, name: &Name, room: u32) -> Result<Given, Errno> {
    let value = node
        .inode
        .rare
        .as_ref()
        .and_then(|rare| rare.xattrs.get(name));
    give(value.ok_or(Errno::ENODATA)?.clone(), room)
}

/// Whether this user may set or remove an attribute, as far as the name decides: only root may set
/// quotas, otherwise a directory's owner could raise its quota.
pub fn check_owner(name: &[u8], uid: u32) -> Result<(), Errno> {
    if DirAttr::parse(name).is_some() && uid != 0 {
        Err(Errno::EPERM)
    } else {
        Ok(())
    }
}

/// The value of one of a directory's Nacre attributes, for a buffer of this size.
pub fn get_own(ino: Ino, attr: DirAttr, usage: &Usage, room: u32) -> Result<Given, Errno> {
    let value = match attr {
        DirAttr::Bytes => Some(usage.bytes),
        DirAttr::Files => Some(usage.files),
        DirAttr::Directories => Some(usage.directories),
        DirAttr::Max(kind) => {
            let own = |quota: &&FsQuota| quota.kind == kind && quota.dir == ino;
            usage.quotas.iter().find(own).map(|quota| quota.max)
        }
    };
    give(value.ok_or(Errno::ENODATA)?.to_string().into(), room)
}

/// All names, each terminated by a zero byte, for a buffer of this size.
pub fn list(node: &FsNode, room: u32) -> Result<Given, Errno> {
    let mut names = Vec::new();
    for name in node.inode.rare.iter().flat_map(|rare| rare.xattrs.keys()) {
        names.extend_from_slice(name.as_bytes());
        names.push(0);
    }
    give(names.into(), room)
}

fn give(value: Bytes, room: u32) -> Result<Given, Errno> {
    let length = u32::try_from(value.len()).map_err(|_| Errno::E2BIG)?;
    match room {
        0 => Ok(Given::Size(length)),
        room if room < length => Err(Errno::ERANGE),
        _ => Ok(Given::Data(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::Ino;
    use nacre_wire::fs::{Inode, QuotaKind, Rare, Stamp};
    use std::sync::Arc;

    fn node(xattrs: &[(&str, &'static str)]) -> FsNode {
        let mut inode = Inode::root(Stamp(1));
        inode.ino = Ino(9);
        let xattrs = xattrs
            .iter()
            .map(|(name, value)| (Name::from(*name), Bytes::from(*value)))
            .collect();
        inode.rare = Some(Arc::new(Rare {
            xattrs,
            ..Rare::default()
        }));
        FsNode {
            inode,
            head: None,
            home: None,
        }
    }

    #[test]
    fn a_value_is_given_if_the_buffer_has_room_and_its_size_if_there_is_none() {
        let node = node(&[("user.a", "four"), ("user.b", "")]);
        let get = |name: &str, room| get(&node, &Name::from(name), room);
        assert_eq!(get("user.a", 0), Ok(Given::Size(4)));
        assert_eq!(get("user.a", 3), Err(Errno::ERANGE));
        assert_eq!(get("user.a", 4), Ok(Given::Data("four".into())));
        assert_eq!(get("user.b", 9), Ok(Given::Data(Bytes::new())));
        assert_eq!(get("user.c", 0), Err(Errno::ENODATA));
    }

    #[test]
    fn names_are_listed_with_zeros_between_them() {
        let some = node(&[("user.a", "four"), ("trusted.b", "")]);
        assert_eq!(list(&some, 0), Ok(Given::Size(17)));
        assert_eq!(list(&some, 16), Err(Errno::ERANGE));
        assert_eq!(
            list(&some, 17),
            Ok(Given::Data("trusted.b\0user.a\0".into()))
        );
        let none = FsNode {
            inode: Inode::root(Stamp(1)),
            head: None,
            home: None,
        };
        assert_eq!(list(&none, 0), Ok(Given::Size(0)));
        assert_eq!(list(&none, 100), Ok(Given::Data(Bytes::new())));
        assert_eq!(get(&none, &Name::from("user.a"), 0), Err(Errno::ENODATA));
    }

    #[test]
    fn names_of_the_system_are_not_ours_but_for_lists_of_rights() {
        assert_eq!(
            check(b"user.x")
                .and(check(b"security.capability"))
                .and(check(b"trusted.overlay.opaque")),
            Ok(())
        );
        assert_eq!(
            check(b"system.posix_acl_access").and(check(b"system.posix_acl_default")),
            Ok(())
        );
        assert_eq!(check(b"system.posix_acl"), Err(Errno::EOPNOTSUPP));
        assert_eq!(check(b"other"), Err(Errno::EOPNOTSUPP));
        assert_eq!(
            (check(b"nacre.quota.max_bytes"), check(b"nacre.quota.x")),
            (Ok(()), Err(Errno::EOPNOTSUPP))
        );
    }

    #[test]
    fn quotas_are_roots_and_shown_where_they_are() {
        assert_eq!(
            (
                check_owner(b"nacre.quota.max_files", 0),
                check_owner(b"user.a", 7)
            ),
            (Ok(()), Ok(()))
        );
        assert_eq!(check_owner(b"nacre.quota.max_files", 7), Err(Errno::EPERM));
        let above = FsQuota {
            kind: QuotaKind::Bytes {},
            dir: Ino(1),
            max: 50,
            used: 3,
        };
        let own = FsQuota {
            dir: Ino(2),
            max: 40,
            ..above
        };
        let usage = Usage {
            bytes: 3,
            files: 4,
            directories: 5,
            quotas: vec![own, above],
        };
        let get = |ino, attr| get_own(Ino(ino), attr, &usage, 9);
        assert_eq!(
            get(2, DirAttr::Max(QuotaKind::Bytes {})),
            Ok(Given::Data("40".into()))
        );
        assert_eq!(
            get(2, DirAttr::Max(QuotaKind::Files {})),
            Err(Errno::ENODATA)
        );
        assert_eq!(
            get(3, DirAttr::Max(QuotaKind::Bytes {})),
            Err(Errno::ENODATA),
            "it is only below one"
        );
        assert_eq!(get(3, DirAttr::Directories), Ok(Given::Data("5".into())));
    }

    #[test]
    fn a_caller_may_want_it_new_or_there() {
        assert_eq!(
            [fresh(0), fresh(1), fresh(2), fresh(3)],
            [
                Ok(None),
                Ok(Some(true)),
                Ok(Some(false)),
                Err(Errno::EINVAL)
            ]
        );
    }
}
