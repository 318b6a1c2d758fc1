//! Extended attributes as the kernel asks for them.

use nacre_wire::fs::Inode;

const ENODATA: i32 = 61;
const ERANGE: i32 = 34;
const EOPNOTSUPP: i32 = 95;
/// Fail if it is there; if it is not.
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

/// What the kernel is told: how long it is, if it asked for that, or it.
#[derive(Debug, PartialEq, Eq)]
pub enum Told {
    Size(u32),
    Data(Vec<u8>),
}

fn told(value: Vec<u8>, room: u32) -> Result<Told, i32> {
    let size = u32::try_from(value.len()).map_err(|_| ERANGE)?;
    match room {
        0 => Ok(Told::Size(size)),
        room if size > room => Err(ERANGE),
        _ => Ok(Told::Data(value)),
    }
}

/// The value of one, for a buffer of so many bytes; 0 asks for its size.
pub fn value(inode: &Inode, name: &[u8], room: u32) -> Result<Told, i32> {
    let rare = inode.rare.as_ref().ok_or(ENODATA)?;
    let (_, value) = rare.xattrs.iter().find(|(known, _)| known.as_bytes() == name).ok_or(ENODATA)?;
    told(value.to_vec(), room)
}
/// All names, each with a zero behind it.
pub fn names(inode: &Inode, room: u32) -> Result<Told, i32> {
    let names = inode.rare.iter().flat_map(|rare| rare.xattrs.keys());
    told(names.flat_map(|name| name.as_bytes().iter().copied().chain([0])).collect(), room)
}
/// Whether there may be one of this name: what the kernel itself gives a meaning is not among them yet.
pub fn may_be(name: &[u8]) -> Result<(), i32> {
    if name.starts_with(b"system.") { Err(EOPNOTSUPP) } else { Ok(()) }
}
/// What the flags of `setxattr` say of one that is there already.
pub const fn fresh(flags: i32) -> Option<bool> {
    match flags {
        XATTR_CREATE => Some(true),
        XATTR_REPLACE => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use nacre_types::Ino;
    use nacre_wire::fs::{FileKind, Rare, Stamp};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    #[test]
    fn a_value_is_told_with_its_size_first() {
        let mut inode = Inode::new(Ino(9), FileKind::File {}, 0o644, (0, 0), Stamp(1));
        assert_eq!((value(&inode, b"user.a", 10), names(&inode, 0)), (Err(ENODATA), Ok(Told::Size(0))));
        let xattrs =
            BTreeMap::from([("user.a".into(), Bytes::from_static(b"value")), ("user.empty".into(), Bytes::new())]);
        inode.rare = Some(Arc::new(Rare { xattrs, ..Rare::default() }));
        assert_eq!(value(&inode, b"user.a", 0), Ok(Told::Size(5)));
        assert_eq!(value(&inode, b"user.a", 4), Err(ERANGE));
        assert_eq!(value(&inode, b"user.a", 5), Ok(Told::Data(b"value".to_vec())));
        assert_eq!(value(&inode, b"user.empty", 5), Ok(Told::Data(Vec::new())));
        assert_eq!(value(&inode, b"user.b", 5), Err(ENODATA));
        assert_eq!(names(&inode, 100), Ok(Told::Data(b"user.a\0user.empty\0".to_vec())));
        assert_eq!(names(&inode, 3), Err(ERANGE));
    }
}
