//! The results of calls, as replies need them. An answer of another kind than the request's is a
//! bug below: the caller gets an input/output error.

use bytes::Bytes;
use fuser::Errno;
use nacre_fs::{Given, Outcome};
use nacre_wire::fs::{FsLock, FsQuota};
use nacre_wire::msg::fs::{FsAnswer, FsListed, FsNode};
use std::cell::RefCell;

/// The answer to a call about names or attributes.
fn answer(outcome: Outcome) -> Result<FsAnswer, Errno> {
    match outcome {
        Ok(Given::Answer(FsAnswer::Failed { errno })) | Err(errno) => {
            Err(Errno::from_i32(i32::from(errno)))
        }
        Ok(Given::Answer(answer)) => Ok(answer),
        Ok(Given::Data(_) | Given::Offset(_) | Given::Copied(_) | Given::Room(_) | Given::Done) => {
            Err(Errno::EIO)
        }
    }
}

/// An inode in the answer.
pub fn node(outcome: Outcome) -> Result<FsNode, Errno> {
    if let FsAnswer::Node { node, .. } = answer(outcome)? {
        Ok(node)
    } else {
        Err(Errno::EIO)
    }
}

/// Only whether the call succeeded.
pub fn done(outcome: Outcome) -> Result<(), Errno> {
    match outcome {
        Ok(Given::Done) => Ok(()),
        other => answer(other).map(|_| ()),
    }
}

/// A page of a listing, and whether it is the last one.
pub fn listed(outcome: Outcome) -> Result<(Vec<FsListed>, bool), Errno> {
    if let FsAnswer::Listed { entries, end } = answer(outcome)? {
        Ok((entries, end))
    } else {
        Err(Errno::EIO)
    }
}

/// Used bytes and number of files.
pub fn room(outcome: Outcome) -> Result<(u64, u64), Errno> {
    if let FsAnswer::Room { bytes, files } = answer(outcome)? {
        Ok((bytes, files))
    } else {
        Err(Errno::EIO)
    }
}

/// The cluster's free bytes, if reported.
pub fn free(outcome: Outcome) -> Option<u64> {
    if let Ok(Given::Room(free)) = outcome {
        free
    } else {
        None
    }
}

/// The usage below a directory, and the quotas that apply to an inode.
#[derive(Debug)]
pub struct Usage {
    pub bytes: u64,
    pub files: u64,
    pub directories: u64,
    pub quotas: Vec<FsQuota>,
}

/// The usage in the answer.
pub fn usage(outcome: Outcome) -> Result<Usage, Errno> {
    match answer(outcome)? {
        FsAnswer::Usage {
            bytes,
            files,
            directories,
            quotas,
        } => Ok(Usage {
            bytes,
            files,
            directories,
            quotas,
        }),
        _ => Err(Errno::EIO),
    }
}

/// A conflicting lock, if any.
pub fn conflict(outcome: Outcome) -> Result<Option<FsLock>, Errno> {
    if let FsAnswer::Conflict { lock } = answer(outcome)? {
        Ok(lock)
    } else {
        Err(Errno::EIO)
    }
}

/// The data read, in one piece, as the kernel needs it.
pub fn data(outcome: Outcome) -> Result<Bytes, Errno> {
    match outcome {
        Ok(Given::Data(mut pieces)) if pieces.len() == 1 => Ok(pieces.swap_remove(0)),
        Ok(Given::Data(pieces)) => Ok(pieces.concat().into()),
        Ok(_) => Err(Errno::EIO),
        Err(errno) => Err(Errno::from_i32(i32::from(errno))),
    }
}

thread_local! {
    /// Reused: new memory for each read would cost more than the copying, because the kernel clears
    /// it page by page.
    static WHOLE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The same for `take`, in reused memory.
pub fn with_data(outcome: Outcome, take: impl FnOnce(Result<&[u8], Errno>)) {
    match outcome {
        Ok(Given::Data(pieces)) if pieces.len() > 1 => WHOLE.with_borrow_mut(|whole| {
            whole.clear();
            pieces
                .iter()
                .for_each(|piece| whole.extend_from_slice(piece));
            take(Ok(whole));
        }),
        outcome => take(data(outcome).as_deref().map_err(|why| *why)),
    }
}

/// The number of bytes copied: the client copies less in one call than a reply can report.
pub fn copied(outcome: Outcome) -> Result<u32, Errno> {
    match outcome {
        Ok(Given::Copied(copied)) => u32::try_from(copied).map_err(|_| Errno::EOVERFLOW),
        other => answer(other).and(Err(Errno::EIO)),
    }
}

/// The offset found.
pub fn offset(outcome: Outcome) -> Result<i64, Errno> {
    match outcome {
        Ok(Given::Offset(offset)) => i64::try_from(offset).map_err(|_| Errno::EOVERFLOW),
        other => answer(other).and(Err(Errno::EIO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_wire::fs::{Inode, Stamp};

    #[test]
    fn an_error_number_is_passed_on_and_an_answer_to_another_question_is_none() {
        let found = FsNode {
            inode: Inode::root(Stamp(3)),
            head: None,
            home: None,
        };
        let right = || {
            Ok(Given::Answer(FsAnswer::Node {
                node: found.clone(),
                made: false,
            }))
        };
        assert_eq!(node(right()), Ok(found.clone()));
        assert_eq!(node(Err(2)), Err(Errno::ENOENT));
        assert_eq!(node(Ok(Given::Done)), Err(Errno::EIO));
        assert_eq!(listed(right()).unwrap_err(), Errno::EIO);
        assert_eq!(
            (done(right()), done(Ok(Given::Done)), done(Err(39))),
            (Ok(()), Ok(()), Err(Errno::ENOTEMPTY))
        );
        assert_eq!(
            room(Ok(Given::Answer(FsAnswer::Room { bytes: 5, files: 6 }))),
            Ok((5, 6))
        );
    }

    #[test]
    fn pieces_of_data_become_one() {
        for (pieces, all) in [
            (vec![], ""),
            (vec!["ab".into()], "ab"),
            (vec!["ab".into(), "c".into()], "abc"),
        ] {
            with_data(Ok(Given::Data(pieces)), |data| {
                assert_eq!(data, Ok(all.as_bytes()))
            });
        }
        with_data(Err(5), |data| assert_eq!(data, Err(Errno::EIO)));
        assert_eq!(data(Ok(Given::Data(vec![]))), Ok(Bytes::new()));
        assert_eq!(data(Ok(Given::Data(vec!["ab".into()]))), Ok("ab".into()));
        assert_eq!(
            data(Ok(Given::Data(vec!["ab".into(), "".into(), "c".into()]))),
            Ok("abc".into())
        );
    }
}
