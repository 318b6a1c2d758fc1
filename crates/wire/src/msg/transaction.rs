//! Transactions between the holders of two ranks of a file system: a change that involves names of
//! both happens at both, or at neither (ADR 0006, "Across ranks").
//!
//! ```text
//!  leader: has the name that is made or removed       participant: has the inode, or the old name
//!    ──Prepare──▶                                       looks, locks, journals it, has its clients forget what changes
//!    ◀─Prepared Node──                                  or Failed, or Busy: another transaction has something of it
//!    its own changes and the decision in one batch
//!    ──Decide commit──▶                                 changes it, and has that in its journal
//!    ◀─Decided──                                        the leader forgets the transaction
//!    ◀─Inquire──                                        it has heard nothing for a while
//!    ──Decide──▶                                        no decision is known here: it never happened
//! ```
//! Each message may be sent and received more than once.

use crate::fs::{FileKind, Inode, Stamp};
use crate::{wire_enum, wire_record};
use nacre_types::{Ino, Name};

use super::fs::{FsNode, FsPlace};

/// A message between two ranks about one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsTransaction {
    /// The file system.
    pub file_system: Name,
    /// The sending rank.
    pub from: u16,
    /// The receiving rank.
    pub to: u16,
    /// Identifies the transaction: a number allocated by the leader's rank and used for nothing
    /// else.
    pub transaction: Ino,
    /// The step.
    pub step: FsStep,
}
wire_record!(FsTransaction version 1 compat 1 { file_system, from, to, transaction, step });

/// A step of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "there are few of them at a time")]
pub enum FsStep {
    /// Asks the participant to prepare its part.
    Prepare {
        /// Index of the part, if the transaction has several.
        index: u8,
        /// The leader's time, at which the whole transaction happens.
        stamp: Stamp,
        /// The part.
        part: FsPart,
    },
    /// The result of preparing.
    Prepared {
        /// Index of the part.
        index: u8,
        /// The result.
        fact: FsFact,
    },
    /// The leader's decision for all parts of this participant.
    Decide {
        /// Whether to commit; otherwise abort.
        commit: bool,
    },
    /// The decision is in the participant's journal.
    Decided {},
    /// The participant asks for the decision.
    Inquire {},
}
wire_enum!(FsStep {
    1 => Prepare { index, stamp, part },
    2 => Prepared { index, fact },
    3 => Decide { commit },
    4 => Decided {},
    5 => Inquire {},
});

/// A participant's part of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "there are few of them at a time")]
pub enum FsPart {
    /// A file gets another name, in the leader's directory.
    Link {
        /// The file.
        ino: Ino,
        /// Where the file is, as far as the client knows.
        place: Option<FsPlace>,
    },
    /// An inode loses a name in the leader's directory.
    Unlink {
        /// The inode.
        ino: Ino,
        /// Whether it must be an empty directory; otherwise it must not be a directory.
        directory: bool,
    },
    /// A name moves from the participant's directory to the leader's. The inode stays with its
    /// rank.
    Leave {
        /// The participant's directory.
        dir: Ino,
        /// The name.
        name: Name,
    },
    /// Creates an empty directory whose only name will be in the leader's directory.
    Make {
        /// The inode to create; its number is ignored.
        inode: Inode,
    },
}
wire_enum!(FsPart {
    1 => Link { ino, place },
    2 => Unlink { ino, directory },
    3 => Leave { dir, name },
    4 => Make { inode },
});

/// A participant's answer about its part.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "nearly all are nodes")]
pub enum FsFact {
    /// It cannot be done, with a POSIX error: the participant keeps nothing of it.
    Failed {
        /// The error number.
        errno: u16,
    },
    /// Another transaction uses something that it needs: retry a little later.
    Busy {},
    /// It can be done; the inode as it will be then.
    Node {
        /// The inode.
        node: FsNode,
    },
    /// It can be done; a third rank has the inode.
    Elsewhere {
        /// The inode's number.
        ino: Ino,
        /// Its kind.
        kind: FileKind,
    },
}
wire_enum!(FsFact {
    1 => Failed { errno },
    2 => Busy {},
    3 => Node { node },
    4 => Elsewhere { ino, kind },
});
