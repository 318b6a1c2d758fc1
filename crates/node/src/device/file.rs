//! The asynchronous interface to a file or block device: what is done here, on the reactor's
//! thread, and what on a worker.

use super::waits::Waits;
use super::{Blocks, Call, INLINE_WRITE_MAX, On, sync};
use crate::clock;
use crate::workers::{Mailbox, Task, WorkersHandle};
use bytes::{Bytes, BytesMut};
use nacre_store::{Device, DeviceError, Io, IoDone, IoKind};
use std::sync::Arc;

/// With more bytes than this to write, a flush takes long enough to be worth a worker.
const INLINE_FLUSH_MAX: usize = 256 << 10;

/// The asynchronous interface to [`Blocks`].
pub struct FileDevice {
    blocks: Arc<Blocks>,
    workers: WorkersHandle,
    mailbox: Arc<Mailbox>,
    done: Vec<IoDone>,
    /// Bytes written since the last flush began.
    unflushed: usize,
    waits: Waits,
}

impl FileDevice {
    pub fn new(blocks: Arc<Blocks>, workers: WorkersHandle, mailbox: Arc<Mailbox>) -> Self {
        Self {
            blocks,
            workers,
            mailbox,
            done: Vec::new(),
            unflushed: 0,
            waits: Waits::default(),
        }
    }

    /// Whether a single writer waits, and the disk is fast enough to wait for it here.
    fn may_wait(&mut self) -> bool {
        self.mailbox.take_lone() && self.waits.may()
    }

    /// Waits for the disk on the reactor's thread, and remembers if it was slow.
    fn timed<T>(&mut self, wait: impl FnOnce(&Blocks) -> T) -> T {
        let begun = clock::now();
        let result = wait(&self.blocks);
        self.waits.took(clock::now().since(begun));
        result
    }

    fn flush_at_once(&mut self) -> Option<Result<Bytes, DeviceError>> {
        let much = std::mem::take(&mut self.unflushed) > INLINE_FLUSH_MAX;
        if !self.may_wait() || much {
            return None;
        }
        let result =
            self.timed(|blocks| blocks.call(Call::Flush, On::Reactor, || sync(&blocks.file)));
        Some(result.map(|()| Bytes::new()))
    }

    fn commit_at_once(&mut self, kind: &mut IoKind) -> Option<Result<Bytes, DeviceError>> {
        let IoKind::Commit { writes } = kind else {
            return None;
        };
        if let [run] = &writes[..]
            && self.blocks.direct_file().is_some()
        {
            let result = self
                .may_wait()
                .then(|| self.timed(|blocks| blocks.commit_past_cache(run, On::Reactor)))??;
            return Some(result.map(|()| Bytes::new()));
        }
        // This processor has just received the data: another one would have to fetch it.
        for run in &*writes {
            if let Err(error) = self.blocks.write_now(run.offset, &run.data)? {
                return Some(Err(error));
            }
            self.unflushed += run.length();
        }
        *kind = IoKind::Flush;
        self.flush_at_once()
    }

    /// What can be done here; what is left of it goes to a worker.
    pub(super) fn at_once(&mut self, kind: &mut IoKind) -> Option<Result<Bytes, DeviceError>> {
        match kind {
            IoKind::Read { offset, length } => {
                let mut out = BytesMut::zeroed(*length);
                self.blocks
                    .read_cached(*offset, &mut out)
                    .then(|| Ok(out.freeze()))
            }
            IoKind::Write { offset, data } => {
                let length = data.iter().map(Bytes::len).sum::<usize>();
                self.unflushed += length;
                if length > INLINE_WRITE_MAX {
                    return None;
                }
                self.blocks
                    .write_now(*offset, data)
                    .map(|result| result.map(|()| Bytes::new()))
            }
            IoKind::Flush => self.flush_at_once(),
            IoKind::Commit { .. } => self.commit_at_once(kind),
            IoKind::Discard { .. } => None,
        }
    }
}

impl Device for FileDevice {
    fn submit(&mut self, mut io: Io) {
        if let Some(result) = self.at_once(&mut io.kind) {
            self.done.push(IoDone { id: io.id, result });
            self.mailbox.set_ready();
        } else {
            self.workers.begin(Task::Io {
                blocks: self.blocks.clone(),
                io,
                to: self.mailbox.clone(),
            });
        }
    }
    fn poll(&mut self, done: &mut Vec<IoDone>) {
        done.append(&mut self.done);
        self.mailbox.take_ios(done);
    }
    fn length(&self) -> u64 {
        self.blocks.length
    }
}

#[cfg(test)]
mod tests {
    use super::super::failed;
    use super::super::tests::{Folder, meet, run};
    use super::*;
    use rustix::io::Errno;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    /// Flushes on the reactor's thread: only a single writer's, never with much to write, and not
    /// on a slow disk.
    #[test]
    fn a_lone_writers_flush_is_made_at_once() {
        let folder = Folder::new("lone");
        let blocks =
            Arc::new(Blocks::open(&folder.0.join("blocks"), Some(4 << 20)).expect("opens"));
        let workers = crate::workers::Workers::new(1).expect("threads");
        let mailbox = Mailbox::new(Arc::new(
            crate::wake::Waker::new().expect("an event descriptor"),
        ));
        let mut device = FileDevice::new(blocks, workers.handle(), mailbox.clone());
        let write = |length: usize| IoKind::Write {
            offset: 0,
            data: vec![Bytes::from(vec![1; length])],
        };
        assert!(
            device.at_once(&mut IoKind::Flush).is_none(),
            "nobody said that the writer is alone"
        );
        for (length, slow, here) in [
            (4096, false, true),
            (INLINE_FLUSH_MAX + 1, false, false),
            (4096, true, false),
            (4096, false, true),
        ] {
            device.waits = Waits::default();
            if slow {
                device.waits.took(Duration::from_secs(1));
            }
            device.at_once(&mut write(length));
            mailbox.set_lone(true);
            assert_eq!(
                device.at_once(&mut IoKind::Flush).is_some(),
                here,
                "{length} bytes, slow {slow}"
            );
            assert!(
                device.at_once(&mut IoKind::Flush).is_none(),
                "said once, true once"
            );
        }
    }

    /// The commit of a single writer is made on the reactor's thread, on a slow disk it is not; of
    /// one of several runs the flush is left. Whichever way, an error of its write or its flush is
    /// its error; one for want of space is tried in the other way, which has the reserve.
    #[test]
    fn a_lone_writers_commit_is_made_at_once_and_its_errors_are_told() {
        let folder = Folder::new("lone-commit");
        let blocks = Blocks::open(&folder.0.join("blocks"), Some(4 << 20)).expect("opens");
        let blocks = Arc::new(blocks);
        let workers = crate::workers::Workers::new(1).expect("threads");
        let mailbox = Mailbox::new(Arc::new(
            crate::wake::Waker::new().expect("an event descriptor"),
        ));
        let mut device = FileDevice::new(blocks.clone(), workers.handle(), mailbox.clone());
        let one = IoKind::Commit {
            writes: vec![run(0, 1, 4096)],
        };
        let two = IoKind::Commit {
            writes: vec![run(0, 1, 4096), run(8192, 1, 4096)],
        };
        assert!(device.at_once(&mut one.clone()).is_none(), "many writers");
        mailbox.set_lone(true);
        let mut left = two.clone();
        assert_eq!(device.at_once(&mut left), Some(Ok(Bytes::new())));
        let mut left = two.clone();
        assert!(device.at_once(&mut left).is_none(), "many writers");
        assert!(matches!(left, IoKind::Flush), "it is written");
        let here = blocks
            .commit_past_cache(&run(0, 1, 4096), On::Other)
            .is_some();
        if !here {
            eprintln!("SKIPPED: {} takes no direct writes", folder.0.display());
        }
        for refused in [!here, true] {
            blocks.direct_refused.store(refused, Ordering::Relaxed);
            mailbox.set_lone(true);
            let done = device.at_once(&mut one.clone());
            assert_eq!(done, Some(Ok(Bytes::new())), "refused {refused}");
        }
        blocks.direct_refused.store(!here, Ordering::Relaxed);
        device.waits.took(Duration::from_secs(1));
        mailbox.set_lone(true);
        assert!(device.at_once(&mut one.clone()).is_none(), "a slow disk");
        device.waits = Waits::default();
        for call in ["write", "flush"] {
            meet(&folder, &format!("blocks {call} error 5"));
            for commit in [&one, &two] {
                assert_eq!(
                    blocks.run(commit.clone()),
                    Err(failed(Errno::IO)),
                    "{call} {commit:?}"
                );
            }
            mailbox.set_lone(true);
            let at_once = device.at_once(&mut one.clone());
            assert_eq!(at_once, Some(Err(failed(Errno::IO))), "{call}");
        }
        if !here {
            return;
        }
        meet(&folder, "blocks write error 28");
        mailbox.set_lone(true);
        assert_eq!(
            device.at_once(&mut one.clone()),
            None,
            "a worker may take of the reserve"
        );
        assert!(!blocks.uses_reserve() && !blocks.ran_out());
        assert_eq!(blocks.run(one), Err(failed(Errno::NOSPC)));
        assert!(blocks.uses_reserve() && blocks.ran_out());
    }
}
