//! Service metadata as services may use it: consistent keys with revisions, watches (MAL-10, -11).
//!
//! Two implementations are meant to exist: [`MetaClient`] over our monitors, and an object's map
//! on Ceph.

use crate::meta::{MetaClient, MetaDone, MetaId, MetaWatchId, WatchNews};
use nacre_types::Time;
use nacre_wire::msg::meta::{MetaCall, MetaSpan};

/// A store of keys that all services share.
pub trait Metadata {
    /// Begins a request; it ends with a [`MetaDone`] of this name. `None`: as many as allowed are
    /// in flight, nothing has begun; take what is done first.
    fn submit(&mut self, now: Time, call: MetaCall) -> Option<MetaId>;
    /// Gives a request up: it ends as [`crate::MetaFailure::Unknown`], and may happen yet.
    fn abandon(&mut self, id: MetaId);
    /// Takes the requests that have ended since the last call.
    fn done(&mut self, into: &mut Vec<MetaDone>);
    /// Tells what happens to keys from a revision on; 0: from now on. Revisions are told in order,
    /// none twice, none left out, until the watch is cancelled or says that it has ended.
    fn watch(&mut self, span: MetaSpan, from: u64) -> MetaWatchId;
    /// Ends a watch: nothing is told of it any more.
    fn cancel(&mut self, watch: MetaWatchId);
    /// Takes what watches have to say since the last call.
    fn news(&mut self, into: &mut Vec<(MetaWatchId, WatchNews)>);
}

impl Metadata for MetaClient {
    fn submit(&mut self, now: Time, call: MetaCall) -> Option<MetaId> {
        Self::submit(self, now, call)
    }
    fn abandon(&mut self, id: MetaId) {
        Self::abandon(self, id);
    }
    fn done(&mut self, into: &mut Vec<MetaDone>) {
        self.take_done(into);
    }
    fn watch(&mut self, span: MetaSpan, from: u64) -> MetaWatchId {
        Self::watch(self, span, from)
    }
    fn cancel(&mut self, watch: MetaWatchId) {
        Self::cancel(self, watch);
    }
    fn news(&mut self, into: &mut Vec<(MetaWatchId, WatchNews)>) {
        self.take_news(into);
    }
}
