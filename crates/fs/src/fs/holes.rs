//! Finds data and holes of a file, as far as its objects show them.
//!
//! ```text
//!  Seek ─▶ nothing is dirty ─▶ the lengths of the next objects ─▶ found: ended
//!                                   ▲ not found: twice as many      │
//!                                   └───────────────────────────────┘
//! ```
//! What is beyond an object's length, within its part of the file, is a hole; the whole part if the
//! object does not exist. The end of the file is a hole. Zeros in an object are data, and so is
//! what follows a hole of very many objects: the search ends there.

use super::*;
use nacre_wire::msg::client::SubReply;

const ENXIO: u16 = 6;
/// Most objects asked at a time.
const AT_ONCE: u64 = 64;
/// Most objects that one call examines for data: 1 TiB of 4 MiB objects, some seconds.
const PASSED_MAX: u64 = 1 << 18;

/// A search in progress.
#[derive(Debug)]
pub(super) struct Seeking {
    ino: Ino,
    layout: Layout,
    /// The current offset.
    at: u64,
    /// The last object of a search for data.
    last: u64,
    /// The file's end.
    end: u64,
    hole: bool,
    /// Lengths of the objects that have answered.
    lengths: BTreeMap<u64, u64>,
    /// How many objects to ask next.
    window: u64,
    /// How many have not answered.
    left: usize,
}

impl Seeking {
    fn new(ino: Ino, layout: Layout, (at, end): (u64, u64), hole: bool) -> Self {
        let last = layout.place(at).0 + PASSED_MAX;
        Self {
            ino,
            layout,
            at,
            last,
            end,
            hole,
            lengths: BTreeMap::new(),
            window: 1,
            left: 0,
        }
    }

    /// The offset found; `Err`: the number of an object that has to be asked first.
    fn find(&mut self) -> Result<Result<u64, u16>, u64> {
        while self.at < self.end {
            let (number, offset, together) = self.layout.place(self.at);
            if !self.hole && number >= self.last {
                return Ok(Ok(self.at));
            }
            let length = *self.lengths.get(&number).ok_or(number)?;
            let data = length.saturating_sub(offset).min(together);
            match self.hole {
                false if data > 0 => return Ok(Ok(self.at)),
                true if data < together => return Ok(Ok(self.end.min(self.at + data))),
                _ => self.at += together,
            }
        }
        Ok(if self.hole { Ok(self.end) } else { Err(ENXIO) })
    }
}

impl Fs {
    /// Finds data or a hole, once everything written before is in objects.
    pub(super) fn seek(
        &mut self,
        call: CallId,
        ino: Ino,
        offset: u64,
        hole: bool,
        out: &mut Vec<Output>,
    ) {
        if offset >= self.files[&ino].size {
            return self.end(call, Err(ENXIO));
        }
        if !self.is_written(ino, out) {
            return self.put_off(ino, call, Ask::Seek { ino, offset, hole });
        }
        let file = &self.files[&ino];
        let end = if hole { file.size } else { file.data_to() };
        let seeking = Seeking::new(ino, file.layout, (offset, end), hole);
        self.transfers.insert(call, Transfer::Seek(seeking));
        self.go_on_seeking(call);
    }

    fn go_on_seeking(&mut self, call: CallId) {
        let Some(Transfer::Seek(seeking)) = self.transfers.get_mut(&call) else {
            return;
        };
        // Its process may have been killed, and the file closed.
        if !self.files.contains_key(&seeking.ino) {
            return self.seek_failed(call, EBADF);
        }
        let first = match seeking.find() {
            Ok(found) => {
                self.transfers.remove(&call);
                return self.end(call, found.map(Given::Offset));
            }
            Err(number) => number,
        };
        // Lengths already passed are dropped, except for objects that are filled in turn.
        let turns = u64::from(seeking.layout.count);
        seeking.lengths = seeking.lengths.split_off(&(first - first % turns));
        let until = (first + seeking.window).min(seeking.layout.objects(seeking.end));
        let asked: Vec<u64> = (first..until)
            .filter(|number| !seeking.lengths.contains_key(number))
            .collect();
        seeking.window = (seeking.window * 2).min(AT_ONCE);
        seeking.left = asked.len();
        let ino = seeking.ino;
        for number in asked {
            let index = usize::try_from(number).expect("64 bits");
            let operation = self.operation(ino, number, vec![SubOp::Stat {}], Vec::new());
            self.operations
                .push_back((operation, For::Call(call, index)));
        }
    }

    /// An object's length has arrived.
    pub(super) fn on_sought(&mut self, call: CallId, number: usize, result: Result<Done, Failure>) {
        let Some(Transfer::Seek(seeking)) = self.transfers.get_mut(&call) else {
            return;
        };
        let length = match result.as_ref().map(|done| done.results.first()) {
            Ok(Some(SubReply::Stat { size, .. })) => *size,
            Err(Failure::Refused(OpFailure::NotFound {})) => 0,
            Ok(_) => return self.seek_failed(call, EIO),
            Err(why) => return self.seek_failed(call, errno_of(why)),
        };
        seeking.lengths.insert(number as u64, length);
        seeking.left -= 1;
        if seeking.left == 0 {
            self.go_on_seeking(call);
        }
    }

    fn seek_failed(&mut self, call: CallId, errno: u16) {
        self.transfers.remove(&call);
        self.end(call, Err(errno));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Client, INO, LAYOUT, node};
    use super::*;
    use nacre_types::PoolId;
    use nacre_wire::fs::inode::SIZE_MAX;

    /// Compares with a file in memory, for each offset.
    #[test]
    fn holes_are_what_no_object_has() {
        for (count, lengths) in [
            (1, vec![4096, 0, 8192, 100]),
            (2, vec![8192, 5000, 0, 4096]),
            (3, vec![0, 0, 4097, 8192, 1]),
        ] {
            let layout = Layout {
                pool: PoolId(1),
                unit: 4096,
                count,
                object: 8192,
            };
            let end = 30_000_u64;
            let is_data = |at: u64| {
                let (number, offset, _) = layout.place(at);
                lengths
                    .get(number as usize)
                    .is_some_and(|length| offset < *length)
            };
            for (at, hole) in (0..end)
                .step_by(61)
                .flat_map(|at| [(at, false), (at, true)])
            {
                let mut seeking = Seeking::new(Ino(1), layout, (at, end), hole);
                let found = loop {
                    match seeking.find() {
                        Ok(found) => break found,
                        Err(number) => {
                            let length = lengths.get(number as usize).copied().unwrap_or(0);
                            seeking.lengths.insert(number, length);
                        }
                    }
                };
                let expected = (at..end).find(|at| is_data(*at) != hole);
                let none = if hole { Ok(end) } else { Err(ENXIO) };
                assert_eq!(found, expected.map_or(none, Ok), "{count} {at} {hole}");
            }
        }
    }

    /// A file of 8 EiB without data has 2 billion billion possible objects.
    #[test]
    fn a_very_large_hole_ends() {
        let mut seeking = Seeking::new(Ino(1), LAYOUT, (5000, SIZE_MAX), false);
        let mut asked = 0;
        let found = loop {
            match seeking.find() {
                Ok(found) => break found,
                Err(number) => drop(seeking.lengths.insert(number, 0)),
            }
            asked += 1;
        };
        assert_eq!((found, asked), (Ok((PASSED_MAX + 1) * 4096), PASSED_MAX));
    }

    /// A process was killed during its search, its file was closed, and the answer crashed the
    /// client.
    #[test]
    fn a_file_may_be_closed_meanwhile() {
        let mut client = Client::new();
        let ino = INO;
        let (_, number) = client.ask(Ask::Names(FsCall::Open { ino, write: false }));
        client.answer(number, node(12_000));
        client.objects.room = 9;
        let (sought, number) = client.ask(Ask::Seek {
            ino,
            offset: 0,
            hole: false,
        });
        client.answer(number, node(12_000));
        let close = FsCall::Close {
            ino,
            write: false,
            size: 0,
            mtime: Stamp(0),
        };
        let (_, number) = client.ask(Ask::Names(close));
        client.answer(number, FsAnswer::Done {});
        client.ended();
        client
            .objects
            .end(Err(Failure::Refused(OpFailure::NotFound {})));
        client.turn(None);
        assert_eq!(client.ended(), [(sought, Err(EBADF))]);
    }
}
