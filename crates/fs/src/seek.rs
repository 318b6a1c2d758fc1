//! Which server has the rank: what the metadata say, and look at again when they change or when a server
//! does not answer.

use nacre_client::{MetaDone, MetaId, MetaWatchId, Metadata, WatchNews};
use nacre_types::{Name, Rank, Time};
use nacre_wire::Wire as _;
use nacre_wire::fs::{FsHolder, FsKey, FsSettings};
use nacre_wire::msg::meta::{MetaCall, MetaPair, MetaResult, MetaSpan};
use std::time::Duration;

/// Without news it is looked again after so long, while there is no server that answers.
const LOOK: Duration = Duration::from_secs(2);

/// See the module head.
#[derive(Debug)]
pub(crate) struct Seek {
    file_system: Name,
    watch: Option<MetaWatchId>,
    question: Option<MetaId>,
    look_at: Time,
    /// What the metadata said last; `None`: not asked yet.
    found: Option<Found>,
}

/// What the metadata say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// `None`: there is no such file system.
    pub settings: Option<FsSettings>,
    /// `None`: no server has the rank.
    pub holder: Option<FsHolder>,
}

impl Seek {
    pub fn new(file_system: Name) -> Self {
        Self { file_system, watch: None, question: None, look_at: Time::ZERO, found: None }
    }
    pub const fn found(&self) -> Option<&Found> {
        self.found.as_ref()
    }
    pub const fn next_deadline(&self) -> Time {
        if self.question.is_some() { Time::MAX } else { self.look_at }
    }
    /// The holder does not answer, or not any more: looks again at that time, or sooner.
    pub fn forget_holder(&mut self, at: Time) {
        self.look_at = self.look_at.min(at);
        if let Some(found) = &mut self.found {
            found.holder = None;
        }
    }

    /// Takes what the metadata have to say.
    pub fn on_turn(&mut self, now: Time, settled: bool, metadata: &mut dyn Metadata) {
        let span = MetaSpan::Prefix { prefix: FsKey::Settings.of(&self.file_system) };
        if self.watch.is_none() {
            self.watch = Some(metadata.watch(span.clone(), 0));
        }
        let (mut done, mut news) = (Vec::new(), Vec::new());
        metadata.done(&mut done);
        metadata.news(&mut news);
        for (watch, news) in news {
            match news {
                WatchNews::Events { events, .. } if events.is_empty() => {}
                WatchNews::Events { .. } => self.look_at = now,
                WatchNews::Ended(_) if self.watch == Some(watch) => (self.watch, self.look_at) = (None, now),
                WatchNews::Ended(_) => {}
            }
        }
        for MetaDone { id, result, .. } in done {
            if self.question == Some(id) {
                self.question = None;
                if let Ok(MetaResult::Ranged { pairs, .. }) = result {
                    self.found = Some(self.read(&pairs));
                }
                self.look_at = if settled { Time::MAX } else { now + LOOK };
            }
        }
        if self.question.is_none() && self.look_at <= now {
            let look = MetaCall::Range { span, limit: 0, keys_only: false, serializable: false };
            self.question = metadata.submit(now, look);
        }
    }

    fn read(&self, pairs: &[MetaPair]) -> Found {
        let mut found = Found::default();
        for pair in pairs {
            match FsKey::parse(&pair.key) {
                Some((name, FsKey::Settings)) if name == self.file_system => {
                    found.settings = FsSettings::from_bytes(&pair.value).ok();
                }
                Some((name, FsKey::Rank(Rank(0)))) if name == self.file_system => {
                    found.holder = FsHolder::from_bytes(&pair.value).ok();
                }
                _ => {}
            }
        }
        found
    }
}
