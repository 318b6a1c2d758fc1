//! Files below quotas may only grow as far as their servers have room (ADR 0006, "Quotas").
//!
//! ```text
//!  Bounded, write beyond the room ─▶ Grow ─▶ more room: written like others
//!                                         └▶ EDQUOT: the write fails; none of its data was cached
//!  Asks, write beyond the end ─▶ Wrote, before it is written (`data`)
//! ```
//! Invariant: the quota has room for everything that a caller was told is written.

#[cfg(test)]
#[path = "growing_test.rs"]
mod tests;

use super::*;

impl Fs {
    /// Whether a call would make a file larger than it may become.
    pub(super) fn lacks_room(&self, ino: Ino, ask: &Ask) -> bool {
        let Some(file) = self.files.get(&ino) else {
            return false;
        };
        let end = match ask {
            Ask::Write { offset, data, .. } => offset.saturating_add(data.len() as u64),
            Ask::Append { data, .. } => file.size.saturating_add(data.len() as u64),
            _ => return false,
        };
        // A size too large for any file is another error.
        file.lacks_room(end) && end <= file.layout.data_max()
    }
    /// Requests room for a call, which waits.
    pub(super) fn ask_for_room(&mut self, call: CallId, ino: Ino, ask: Ask, out: &mut Vec<Output>) {
        let file = self.files.get_mut(&ino).expect("it is open");
        if file.asks_room {
            return file.waiting.push_back((call, ask));
        }
        file.asks_room = true;
        let size = match &ask {
            Ask::Write { offset, data, .. } => offset + data.len() as u64,
            Ask::Append { data, .. } => file.size + data.len() as u64,
            _ => unreachable!("only what writes wants room"),
        };
        self.request(FsCall::Grow { ino, size }, Purpose::Room(call, ask), out);
    }
    /// The server has answered. The allowed size is in the capability that follows.
    pub(super) fn on_room(
        &mut self,
        call: CallId,
        ask: Ask,
        given: Result<FsAnswer, u16>,
        out: &mut Vec<Output>,
    ) {
        let Some((ino, _)) = ask.of_data() else {
            return;
        };
        let Some(file) = self.files.get_mut(&ino) else {
            return self.end(call, Err(EBADF));
        };
        file.asks_room = false;
        match given {
            // Before later calls.
            Ok(_) => file.waiting.push_front((call, ask)),
            Err(errno) => self.end(call, Err(errno)),
        }
        self.settle(ino, out);
    }
}
