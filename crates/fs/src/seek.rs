//! Which server holds which rank, according to the metadata; read again when they change or when a
//! server does not answer.
//!
//! An instance of a server holds one rank at most. If two ranks name the same server, one of them
//! was held by an earlier instance.

use nacre_client::{MetaDone, MetaId, MetaWatchId, Metadata, WatchNews};
use nacre_types::{Instance, Name, Rank, Time};
use nacre_wire::Wire as _;
use nacre_wire::fs::{FsHolder, FsKey, FsSettings, Layout};
use nacre_wire::msg::meta::{MetaCall, MetaPair, MetaResult, MetaSpan};
use std::collections::BTreeMap;
use std::time::Duration;

/// Without news, it looks again after this while a server does not answer.
const LOOK: Duration = Duration::from_secs(2);

/// See the module head.
#[derive(Debug)]
pub(crate) struct Seek {
    file_system: Name,
    watch: Option<MetaWatchId>,
    question: Option<MetaId>,
    look_at: Time,
    /// The last state of the metadata; `None`: not read yet.
    found: Option<Found>,
}

/// The state of the metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// `None`: there is no such file system.
    pub settings: Option<FsSettings>,
    /// The holder of each rank that has one.
    pub holders: BTreeMap<Rank, FsHolder>,
}

impl Seek {
    pub fn new(file_system: Name) -> Self {
        Self {
            file_system,
            watch: None,
            question: None,
            look_at: Time::ZERO,
            found: None,
        }
    }
    pub const fn found(&self) -> Option<&Found> {
        self.found.as_ref()
    }
    pub const fn next_deadline(&self) -> Time {
        if self.question.is_some() {
            Time::MAX
        } else {
            self.look_at
        }
    }
    /// Layout of new files, if known.
    pub fn layout(&self) -> Option<Layout> {
        Some(self.found.as_ref()?.settings.as_ref()?.layout)
    }
    /// Number of ranks, if known.
    pub fn ranks(&self) -> Option<u16> {
        Some(self.found.as_ref()?.settings.as_ref()?.ranks)
    }
    /// The holder of a rank.
    pub fn holder(&self, rank: Rank) -> Option<&FsHolder> {
        self.found.as_ref()?.holders.get(&rank)
    }
    /// A rank's holder does not answer, or no longer does: looks again at that time, or sooner.
    pub fn forget_holder(&mut self, rank: Rank, at: Time) {
        self.look_again(at);
        if let Some(found) = &mut self.found {
            found.holders.remove(&rank);
        }
    }
    /// The same for all ranks.
    pub fn forget_holders(&mut self, at: Time) {
        self.look_again(at);
        if let Some(found) = &mut self.found {
            found.holders.clear();
        }
    }
    /// The state may have changed.
    pub fn look_again(&mut self, at: Time) {
        self.look_at = self.look_at.min(at);
    }

    /// Takes the metadata's news.
    pub fn on_turn(&mut self, now: Time, settled: bool, metadata: &mut dyn Metadata) {
        let span = MetaSpan::Prefix {
            prefix: FsKey::Settings.of(&self.file_system),
        };
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
                WatchNews::Ended(_) if self.watch == Some(watch) => {
                    (self.watch, self.look_at) = (None, now)
                }
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
            let look = MetaCall::Range {
                span,
                limit: 0,
                keys_only: false,
                serializable: false,
            };
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
                Some((name, FsKey::Rank(rank))) if name == self.file_system => {
                    found.holders.extend(
                        FsHolder::from_bytes(&pair.value)
                            .ok()
                            .map(|holder| (rank, holder)),
                    );
                }
                _ => {}
            }
        }
        let mut newest: BTreeMap<u64, Instance> = BTreeMap::new();
        for holder in found.holders.values() {
            let instance = newest.entry(holder.client).or_insert(holder.instance);
            *instance = holder.instance.max(*instance);
        }
        found
            .holders
            .retain(|_, holder| holder.instance == newest[&holder.client]);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::Epoch;
    use nacre_wire::map::Address;

    /// A server that held a rank holds another one as its next instance; its old key stays in the
    /// registry until the rank is claimed.
    #[test]
    fn what_an_earlier_instance_of_a_server_had_it_has_no_more() {
        let pair = |rank, client, instance| {
            let address = Address("a".into());
            let holder = FsHolder {
                client,
                instance: Instance(instance),
                address,
                name: "mds".into(),
            };
            MetaPair {
                key: FsKey::Rank(Rank(rank)).of(&"home".into()),
                value: holder.to_bytes().into(),
                created: 1,
                modified: 1,
                version: 1,
                lease: 0,
                epoch: Epoch::default(),
            }
        };
        let found = Seek::new("home".into()).read(&[pair(0, 9, 1), pair(1, 8, 3), pair(2, 9, 2)]);
        let ranks: Vec<u16> = found.holders.keys().map(|rank| rank.0).collect();
        assert_eq!(ranks, [1, 2]);
    }
}
