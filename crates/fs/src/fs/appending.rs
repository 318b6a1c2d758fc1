//! Appending to a file that other clients have open as well: where its end is, one client at a time
//! knows.
//!
//! ```text
//!  Append ─▶ queued ─▶ Alone: all others do nothing with the file ─▶ written at its end, one after the other
//!                                                                └─▶ none left, or others' turn: Alone has ended
//! ```
//! Who has the file alone anyhow (`Buffer`) knows where its end is. Else each append is a write of
//! all of it in one place, and what is appended by several never overlaps.

#[cfg(test)]
#[path = "appending_test.rs"]
mod tests;

use super::*;
use crate::file::Alone;

/// Appends in a row: then others have their turn.
const IN_A_ROW: u32 = 32;

impl Fs {
    /// Takes data for the end of a file that others have open, too.
    pub(super) fn queue_append(&mut self, call: CallId, ino: Ino, data: Bytes, out: &mut Vec<Output>) {
        let Some(file) = self.files.get_mut(&ino) else { return self.end(call, Err(EBADF)) };
        file.appends.push_back((call, data));
        self.go_on_appending(ino, out);
    }

    /// Does what is possible now.
    pub(super) fn go_on_appending(&mut self, ino: Ino, out: &mut Vec<Output>) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        if file.cap.buffers() {
            // The others have closed it.
            file.put_back_appends(ino, &mut self.queue);
        }
        if file.writes > 0 || file.resizing || file.recall.is_some() {
            return;
        }
        match file.alone {
            Alone::No if !file.appends.is_empty() => {
                file.alone = Alone::Asked;
                file.in_a_row = 0;
                self.request(FsCall::Alone { ino, ends: false }, Purpose::Alone(ino), out);
            }
            Alone::Yes if file.appends.is_empty() || file.in_a_row >= IN_A_ROW => {
                file.alone = Alone::No;
                self.request(FsCall::Alone { ino, ends: true }, Purpose::Said, out);
                self.go_on_appending(ino, out);
            }
            Alone::Yes if file.cap.is_shared() => {
                let (offset, Some((_, data))) = (file.size, file.appends.front()) else { return };
                if file.may_wait(offset.saturating_add(data.len() as u64)) {
                    // Put off with its place, it would be written there when it is others' turn.
                    return self.hurry(ino, out);
                }
                let Some((call, data)) = file.appends.pop_front() else { return };
                file.in_a_row += 1;
                self.write_now(call, ino, offset, data, out);
            }
            Alone::No | Alone::Asked | Alone::Yes => {}
        }
    }

    /// The server has answered that others wait, or why not.
    pub(super) fn alone(&mut self, ino: Ino, given: Result<FsAnswer, u16>, out: &mut Vec<Output>) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        match given {
            Ok(_) => file.alone = Alone::Yes,
            Err(errno) => {
                file.alone = Alone::No;
                for (call, _) in std::mem::take(&mut file.appends) {
                    self.end(call, Err(errno));
                }
            }
        }
        self.settle(ino, out);
    }
}
