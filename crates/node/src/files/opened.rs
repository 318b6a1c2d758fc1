//! An open file: reads and writes at offsets, blocking or asynchronous.

use super::FileSystem;
use super::paths::failed;
use super::walk::node;
use crate::cluster::{Call, call};
use bytes::Bytes;
use nacre_fs::{Ask, Given};
use nacre_mds::evaluate::errno::EXDEV;
use nacre_types::Ino;
use nacre_wire::fs::{Inode, Stamp};
use nacre_wire::msg::fs::{FsCall, FsChanges};
use std::future::Future;

/// The file is open for reading only.
const EBADF: u16 = 9;

/// A file that is open until it is closed or dropped. Written data stay in this client for at most
/// a second; [`Self::sync_all`] makes them durable.
pub struct OpenFile {
    files: FileSystem,
    ino: Ino,
    write: bool,
    is_lazy: bool,
    is_closed: bool,
}

impl OpenFile {
    pub(super) const fn new(files: FileSystem, ino: Ino, write: bool) -> Self {
        Self {
            files,
            ino,
            write,
            is_lazy: false,
            is_closed: false,
        }
    }
    pub(super) async fn become_lazy(&mut self) -> Result<(), u16> {
        self.files
            .asked(Ask::Lazy {
                ino: self.ino,
                lazy: true,
            })
            .await?;
        self.is_lazy = true;
        Ok(())
    }
    /// Its inode number, unique in the file system for ever.
    #[must_use]
    pub const fn ino(&self) -> Ino {
        self.ino
    }

    /// Bytes from an offset: fewer at the end of the file, none beyond it. Holes read as zeros.
    pub fn read_at(&self, offset: u64, length: u32) -> Call<'_, Bytes> {
        self.called("read", self.read_part(offset, length))
    }
    pub(super) async fn read_part(&self, offset: u64, length: u32) -> Result<Bytes, u16> {
        match self
            .files
            .asked(Ask::Read {
                ino: self.ino,
                offset,
                length,
            })
            .await?
        {
            Given::Data(mut parts) if parts.len() == 1 => Ok(parts.remove(0)),
            Given::Data(parts) => Ok(parts.concat().into()),
            _ => Err(super::ENDED),
        }
    }
    /// Writes all of it at an offset; a gap after the end of the file reads as zeros.
    pub fn write_at(&self, offset: u64, data: impl Into<Bytes>) -> Call<'_, ()> {
        self.called("write", self.write_all(offset, data.into()))
    }
    pub(super) async fn write_all(&self, offset: u64, data: Bytes) -> Result<(), u16> {
        self.files
            .asked(Ask::Write {
                ino: self.ino,
                offset,
                data,
            })
            .await
            .map(drop)
    }
    /// Writes all of it at the current end of the file, atomically with respect to other clients'
    /// appends.
    pub fn append(&self, data: impl Into<Bytes>) -> Call<'_, ()> {
        let ask = Ask::Append {
            ino: self.ino,
            data: data.into(),
        };
        self.called(
            "append to",
            async move { self.files.asked(ask).await.map(drop) },
        )
    }
    /// Copies a range of another open file, or of this one, to an offset of this one; returns the
    /// number of bytes copied. As with `copy_file_range` it may be fewer than requested, and the
    /// caller repeats the call for the rest; 0: the source ends there. Whole objects (of 4 MiB, if
    /// nothing else was set) are copied inside the cluster if `offset` and `at` have the same
    /// alignment in them, this client is the only one to have both files open except for other
    /// readers of the source, and both have one layout; the rest passes through this client.
    /// Overlapping ranges of one file are an error (`EINVAL`), and so are files of different
    /// clients (`EXDEV`).
    pub fn copy_from<'a>(
        &'a self,
        source: &'a Self,
        offset: u64,
        at: u64,
        length: u64,
    ) -> Call<'a, u64> {
        self.called("copy to", async move {
            if !self.write {
                return Err(EBADF);
            }
            if !self.files.is_same(&source.files) {
                return Err(EXDEV);
            }
            match self
                .files
                .asked(Ask::Copy {
                    from: source.ino,
                    offset,
                    to: self.ino,
                    at,
                    length,
                })
                .await?
            {
                Given::Copied(copied) => Ok(copied),
                _ => Err(super::ENDED),
            }
        })
    }
    /// Sets its length: data beyond are removed, new bytes are zeros.
    pub fn set_len(&self, size: u64) -> Call<'_, ()> {
        self.called("resize", self.resize(size))
    }
    pub(super) async fn resize(&self, size: u64) -> Result<(), u16> {
        let changes = FsChanges {
            size: Some(size),
            ..FsChanges::default()
        };
        self.files
            .names(FsCall::Set {
                ino: self.ino,
                changes,
            })
            .await
            .and_then(node)
            .map(drop)
    }
    /// Waits until all changes to it are durable; reports an earlier failed write, once.
    pub fn sync_all(&self) -> Call<'_, ()> {
        self.called("synchronize", async move {
            self.files
                .asked(Ask::Sync {
                    ino: Some(self.ino),
                })
                .await
                .map(drop)
        })
    }
    /// Waits until all that this client wrote in the range is in the objects, and the server knows
    /// the file's size: another client's first read after that, or a read after its
    /// [`Self::synchronize`], sees it. Unlike with [`Self::sync_all`], the size may not be in the
    /// server's journal yet. Reports an earlier failed write, once.
    ///
    /// It is useful where the file is open lazily ([`super::OpenOptions::lazy`]); without that,
    /// others see each write when it has returned. Data outside of the range may be written, too.
    /// Clients that write different bytes of one block do not disturb each other.
    pub fn propagate(&self, offset: u64, length: u64) -> Call<'_, ()> {
        let ask = Ask::Propagate {
            ino: self.ino,
            offset,
            length,
        };
        self.called(
            "propagate",
            async move { self.files.asked(ask).await.map(drop) },
        )
    }
    /// [Propagates](Self::propagate), and drops this client's cache of the range: each read that
    /// begins later sees what others had propagated when this was called. Reports an earlier failed
    /// write; the next [`Self::propagate`] or [`Self::sync_all`] reports it as well.
    pub fn synchronize(&self, offset: u64, length: u64) -> Call<'_, ()> {
        let ask = Ask::Synchronize {
            ino: self.ino,
            offset,
            length,
        };
        self.called("synchronize", async move {
            self.files.asked(ask).await.map(drop)
        })
    }
    /// Its attributes.
    pub fn metadata(&self) -> Call<'_, Inode> {
        self.called("look at", async move {
            Ok(self
                .files
                .names(FsCall::Stat { ino: self.ino })
                .await
                .and_then(node)?
                .inode)
        })
    }
    /// Its attributes, without asking its writers (`statlite`): size and times may be as old as the
    /// last report of a writer. Everything else is as in [`Self::metadata`], except for changes
    /// within the last 0.1 s by a writer that has the file alone. No writer is interrupted, nor
    /// waited for if it does not answer.
    pub fn metadata_lite(&self) -> Call<'_, Inode> {
        self.called("look at", async move {
            Ok(self
                .files
                .names(FsCall::StatLite { ino: self.ino })
                .await
                .and_then(node)?
                .inode)
        })
    }
    /// Closes it, and reports earlier failures.
    pub fn close(self) -> Call<'static, ()> {
        let ino = self.ino;
        call(async move {
            self.end()
                .await
                .map_err(failed("close", ino.to_string().as_bytes()))
        })
    }
    pub(super) async fn end(mut self) -> Result<(), u16> {
        self.is_closed = true;
        let failed = self.files.asked(Ask::Failed { ino: self.ino }).await;
        self.end_lazily();
        self.files.asked(self.closing()).await.and(failed).map(drop)
    }
    /// Before the close: other users of the open file may not be lazy.
    fn end_lazily(&self) {
        if self.is_lazy {
            self.files.ask(
                Ask::Lazy {
                    ino: self.ino,
                    lazy: false,
                },
                |_| (),
            );
        }
    }

    fn closing(&self) -> Ask {
        Ask::Names(FsCall::Close {
            ino: self.ino,
            write: self.write,
            size: 0,
            mtime: Stamp::default(),
        })
    }
    fn called<'a, T: 'a>(
        &'a self,
        doing: &'static str,
        what: impl Future<Output = Result<T, u16>> + Send + 'a,
    ) -> Call<'a, T> {
        call(async move {
            what.await
                .map_err(failed(doing, self.ino.to_string().as_bytes()))
        })
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if !self.is_closed {
            self.end_lazily();
            self.files.ask(self.closing(), |_| ());
        }
    }
}
