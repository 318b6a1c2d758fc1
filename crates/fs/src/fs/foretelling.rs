//! Changes of a file's attributes whose result this client can predict: answered locally, and sent
//! a moment later, with others.
//!
//! ```text
//!  utimensat, fchown, fchmod ─▶ had alone, its attributes known ─▶ answered ─▶ sent, with the time ─▶ the server's answer
//!                                        └ no: the server is asked                          shown until then, on top of
//!                                                                                           the server's state
//! ```
//! A program that unpacks an archive sets owner, mode and times of each file that it has just
//! written, and used to wait for the server three times.
//!
//! Invariants: a client foretells only while it may delay writes of the file ([`FsCap::buffers`])
//! and its cached attributes are valid. Another client's look at the file, or change of it, waits
//! until that client has reported what it knows, which comes after everything foretold. A caller
//! that synchronizes waits until the change is safe; if the server refuses it, that is an error of
//! the next such call.

#[cfg(test)]
#[path = "foretelling_test.rs"]
mod tests;

use super::*;
use nacre_wire::fs::inode::ACL_ACCESS;
use nacre_wire::msg::fs::{FsAgain, FsChanges};

/// Most unsent changes; half as many cause sending.
pub(super) const UNSENT_MAX: usize = 256;
/// They are sent after this if nothing else is: each message costs a server and this client more
/// than its content.
const AFTER: Duration = Duration::from_millis(100);

/// What was answered between two turns, and not sent.
#[derive(Debug)]
pub(super) enum Unsent {
    /// An attribute change.
    Set(Ino, Foretold),
    /// A name created or removed: when, and what was created.
    Name(FsCall, FsAgain),
}

impl Fs {
    /// The result of a change, if it can be predicted: from then on it is visible to all local
    /// callers.
    pub(super) fn foretell(&mut self, ino: Ino, changes: &FsChanges) -> Option<Outcome> {
        let file = self.kept(ino, FsCap::Bounded { room: 0 })?;
        let tells = file.is_telling() || file.growing;
        if changes.size.is_some()
            || (changes.mtime.is_some() && tells)
            || !self.sessions.is_free(rank_of(ino))
        {
            return None;
        }
        if self.foretold.len() >= UNSENT_MAX {
            return None;
        }
        let Some(Ok(Given::Answer(FsAnswer::Node { node, .. }))) =
            self.names_at_once(&FsCall::Stat { ino })
        else {
            return None;
        };
        // An access control list changes with the mode.
        let rights = node
            .inode
            .rare
            .as_ref()
            .and_then(|rare| rare.xattrs.get(&Name::copy(ACL_ACCESS)));
        if rights.is_some() {
            return None;
        }
        let (number, at) = (self.next_number(), self.stamp());
        // Everything sent from now on comes after it.
        let next = self.sessions.next();
        let file = self.files.get_mut(&ino)?;
        if changes.mtime.is_some() {
            file.times_set(next);
        }
        let foretold = Foretold {
            number,
            changes: FsChanges {
                foretold: Some(at),
                ..*changes
            },
            at,
        };
        file.foretold.push(foretold.clone());
        self.note_unsent(Unsent::Set(ino, foretold));
        self.names_at_once(&FsCall::Stat { ino })
    }
    pub(super) fn note_unsent(&mut self, unsent: Unsent) {
        self.foretold.push(unsent);
        self.send_later(self.foretold.len());
    }
    /// This many are to be sent, and may wait for others.
    pub(super) fn send_later(&mut self, count: usize) {
        let at = if count < UNSENT_MAX / 2 {
            self.now + AFTER
        } else {
            self.now
        };
        self.send_at = self.send_at.min(at);
    }
    /// Sends them: before any request or report of this client.
    pub(super) fn send_foretold(&mut self, out: &mut Vec<Output>) {
        self.send_at = Time::MAX;
        for unsent in std::mem::take(&mut self.foretold) {
            match unsent {
                Unsent::Set(
                    ino,
                    Foretold {
                        number, changes, ..
                    },
                ) => {
                    self.request(
                        FsCall::Set { ino, changes },
                        Purpose::Foretold(ino, number),
                        out,
                    );
                }
                Unsent::Name(call, done) => self.send_done_here(call, done, out),
            }
        }
    }
    /// The answer to one has arrived. The cache above was lent the foretold state; if that is not
    /// cached here any more, nothing would revoke it there.
    pub(super) fn take_back_foretold(&mut self, number: u64) {
        if let Some(Purpose::Foretold(ino, _)) = self.purposes.get(&number)
            && !self.knows(*ino)
        {
            self.lent.take_back(self.now, *ino);
        }
    }
    /// The server has answered one.
    pub(super) fn foretold(&mut self, ino: Ino, number: u64, given: Result<FsAnswer, u16>) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.foretold.retain(|foretold| foretold.number != number);
            if let Err(errno) = given {
                self.losses.failed(ino, errno);
                self.lent.take_back(self.now, ino);
            }
        } else if given.is_err() {
            self.losses.lost(ino);
        }
    }
}
