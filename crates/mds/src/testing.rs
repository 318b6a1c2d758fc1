//! For tests: metadata that records the requests.

use nacre_client::{MetaDone, MetaId, MetaWatchId, Metadata, WatchNews};
use nacre_types::Time;
use nacre_wire::msg::meta::{MetaCall, MetaSpan};

/// The requests, and how many more are accepted.
pub struct Asked(pub Vec<MetaCall>, pub usize);
impl Metadata for Asked {
    fn submit(&mut self, _: Time, call: MetaCall) -> Option<MetaId> {
        (self.0.len() < self.1).then(|| {
            self.0.push(call);
            MetaId(self.0.len() as u64)
        })
    }
    fn abandon(&mut self, _: MetaId) {}
    fn done(&mut self, _: &mut Vec<MetaDone>) {}
    fn watch(&mut self, _: MetaSpan, _: u64) -> MetaWatchId {
        MetaWatchId(0)
    }
    fn cancel(&mut self, _: MetaWatchId) {}
    fn news(&mut self, _: &mut Vec<(MetaWatchId, WatchNews)>) {}
}
