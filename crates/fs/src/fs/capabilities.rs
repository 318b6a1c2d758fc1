//! Capabilities for files' data, granted and recalled by the server (CEPH-03, -08, -15).
//!
//! ```text
//!  FsCaps 6, smaller ─▶ dirty data is written, writes and copies in progress end, and so do reads of several operations
//!                  ─▶ the cache is dropped ─▶ Comply 6 with the size
//!  FsCaps 7, the same ─▶ Comply 7
//!  FsCaps 0, larger; or an answer ─▶ waiting calls continue
//! ```
//! Several clients may want a file alone one after another (`exclusive`), and a grant would be
//! recalled by the message that brings it: a caller that only reads would wait for ever. So calls
//! that waited when a capability was granted begin first.
//!
//! Invariant: a greeting reports all capabilities: an answer or message from before it grants
//! nothing.

use super::*;
use crate::file::Alone;
use nacre_wire::msg::fs::{FsCaps, FsGrant};

impl Fs {
    pub(super) fn on_caps(&mut self, rank: Rank, caps: FsCaps, out: &mut Vec<Output>) {
        for news in caps.items {
            if news.number == 0 {
                // A greeting gives back what was granted before it.
                if self.sessions.is_open(rank) {
                    self.grant(news.ino, news.cap, false, out);
                }
                continue;
            }
            match self.files.get_mut(&news.ino) {
                Some(file) if news.cap < file.cap => {
                    let (number, cap) = file.recall.unwrap_or((news.number, news.cap));
                    file.recall = Some((number.max(news.number), cap.min(news.cap)));
                    self.settle(news.ino, out);
                }
                Some(file) if file.recall.is_some_and(|(number, _)| number < news.number) => {
                    file.recall = file.recall.map(|(_, cap)| (news.number, cap));
                }
                Some(file) => {
                    // Unwritten data is reported once more when it is written.
                    let (size, mtime) = file.say().unwrap_or_default();
                    let comply = FsCall::Comply {
                        ino: news.ino,
                        number: news.number,
                        size,
                        mtime,
                        written: false,
                    };
                    self.request(comply, Purpose::Said, out);
                }
                None => {
                    // For a directory: as before each request, all changes made here are sent
                    // first.
                    self.names.undelegate(news.ino);
                    self.comply(news.ino, news.number, out);
                }
            }
        }
    }
    /// Answers contain the capabilities for what they open.
    pub(super) fn on_grants(&mut self, grants: &[FsGrant], fresh: bool, out: &mut Vec<Output>) {
        for FsGrant { ino, cap } in grants {
            self.grant(*ino, *cap, fresh, out);
        }
    }
    fn grant(&mut self, ino: Ino, cap: FsCap, fresh: bool, out: &mut Vec<Output>) {
        let Some(file) = self.files.get_mut(&ino) else {
            return;
        };
        if file.grant(cap, fresh, self.sessions.next()) && std::mem::take(&mut file.keeps_lazily) {
            // Others may have written it since it was read.
            self.cache.drop_clean(ino);
        }
        self.settle(ino, out);
    }

    fn comply(&mut self, ino: Ino, number: u64, out: &mut Vec<Output>) {
        let (mut size, mut mtime) = (0, Stamp::default());
        if let Some(file) = self.files.get_mut(&ino) {
            (size, mtime) = file.tell(None).unwrap_or_default();
            file.begin_telling();
        }
        self.request(
            FsCall::Comply {
                ino,
                number,
                size,
                mtime,
                written: true,
            },
            Purpose::Told(ino),
            out,
        );
    }

    /// Performs deferred actions for a file if possible now: gives back what the server recalled,
    /// and continues calls.
    pub(super) fn settle(&mut self, ino: Ino, out: &mut Vec<Output>) {
        let Some(file) = self.files.get(&ino) else {
            return;
        };
        if let Some((number, cap)) = file.recall
            && self.is_unused(ino, out)
        {
            self.comply(ino, number, out);
            let file = self.files.get_mut(&ino).expect("just seen");
            file.recall = None;
            // Its earlier reports of writes do not count any more, even if it continues.
            file.closes(self.sessions.next());
            file.lower(cap);
            if cap < (FsCap::Cache {}) {
                self.drop_data(ino);
            }
        }
        self.go_on_exclusive(ino, out);
        self.go_on(ino);
    }

    /// Whether no call uses the file, and everything written is in objects.
    #[nacre_types::planted]
    fn is_unused(&mut self, ino: Ino, out: &mut Vec<Output>) -> bool {
        let file = &self.files[&ino];
        file.first.is_empty()
            && file.writes == 0
            && file.copies == 0
            && file.reads == 0
            && self.is_written(ino, out)
    }
    /// Others may write: what is cached is not current any more.
    #[nacre_types::planted]
    fn drop_data(&mut self, ino: Ino) {
        let file = self.files.get_mut(&ino).expect("just seen");
        file.keeps_lazily = false;
        self.cache.drop_clean(ino);
    }

    /// The same for all files of a rank, whose lease is valid again.
    pub(super) fn settle_all(&mut self, rank: Rank, out: &mut Vec<Output>) {
        let all: Vec<Ino> = self
            .files
            .keys()
            .copied()
            .filter(|ino| rank_of(*ino) == rank)
            .collect();
        all.into_iter().for_each(|ino| self.settle(ino, out));
    }

    /// Others went on without this client: its cache is outdated, and its unwritten data is lost.
    pub(super) fn lose_data(&mut self) {
        for (ino, file) in &mut self.files {
            // The server finds what is in objects, if the journal records that this client is
            // writing.
            let is_untold = file.dirty.is_some() && !file.is_known();
            if is_untold || self.cache.dirty_of(*ino) > 0 {
                self.losses.lost(*ino);
            }
            file.abandon();
            file.session_ended(self.sessions.next());
            file.recall = None;
            file.growing = false;
            file.first.clear();
            file.lower(FsCap::Nothing {});
            // Calls that have not begun are executed in the new session.
            file.alone = Alone::No;
            file.put_back_exclusive(*ino, &mut self.queue);
            file.keeps_lazily = false;
            self.cache.forget(*ino);
        }
    }
}
