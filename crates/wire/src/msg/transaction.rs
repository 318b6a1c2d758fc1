//! Between the holders of two ranks of a file system: a change of names of both happens at both, or
//! at neither (ADR 0006, "Across ranks").
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
//! Each may be sent again, and come again.

use crate::fs::{FileKind, Inode, Stamp};
use crate::{wire_enum, wire_record};
use nacre_types::{Ino, Name};

use super::fs::{FsNode, FsPlace};

/// One word between two ranks about one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsTransaction {
    /// Of which file system.
    pub file_system: Name,
    /// The rank whose holder says it.
    pub from: u16,
    /// The rank whose holder is to hear it.
    pub to: u16,
    /// Names the transaction: a number that the leader's rank has given, and gives to nothing
    /// else.
    pub transaction: Ino,
    /// What it is about.
    pub step: FsStep,
}
wire_record!(FsTransaction version 1 compat 1 { file_system, from, to, transaction, step });

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "there are few of them at a time")]
pub enum FsStep {
    /// The participant's part is to be prepared.
    Prepare {
        /// Which of the transaction's parts, if there are several.
        index: u8,
        /// The leader's time: when all of it happens.
        stamp: Stamp,
        /// It.
        part: FsPart,
    },
    /// What came of that.
    Prepared {
        /// Of which part.
        index: u8,
        /// It.
        fact: FsFact,
    },
    /// What the leader has decided for all parts that this participant has.
    Decide {
        /// It happens; else it does not.
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

/// What a participant is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "there are few of them at a time")]
pub enum FsPart {
    /// A file gets another name, in the leader's directory.
    Link {
        /// Which.
        ino: Ino,
        /// Where it is, as far as the client knows.
        place: Option<FsPlace>,
    },
    /// A name of an inode goes, in the leader's directory.
    Unlink {
        /// Which.
        ino: Ino,
        /// It must be an empty directory; else it must be none.
        directory: bool,
    },
    /// A name goes from the participant's directory, and comes to the leader's. The inode stays
    /// with the rank that has it.
    Leave {
        /// From which directory.
        dir: Ino,
        /// Which name.
        name: Name,
    },
    /// A new directory, empty, whose only name will be the leader's.
    Make {
        /// What it is to be like: its number does not count.
        inode: Inode,
    },
}
wire_enum!(FsPart {
    1 => Link { ino, place },
    2 => Unlink { ino, directory },
    3 => Leave { dir, name },
    4 => Make { inode },
});

/// What a participant says of its part.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "nearly all are nodes")]
pub enum FsFact {
    /// It cannot be done, for this reason of POSIX: nothing is kept of it.
    Failed {
        /// The number.
        errno: u16,
    },
    /// Another transaction has something that it needs: to be begun again a little later.
    Busy {},
    /// It can be done: the inode as it is then.
    Node {
        /// It.
        node: FsNode,
    },
    /// It can be done: a third rank has the inode.
    Elsewhere {
        /// Its number.
        ino: Ino,
        /// What it is.
        kind: FileKind,
    },
}
wire_enum!(FsFact {
    1 => Failed { errno },
    2 => Busy {},
    3 => Node { node },
    4 => Elsewhere { ino, kind },
});
