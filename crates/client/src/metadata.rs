//! Service metadata for services: consistent keys with revisions, and watches (MAL-10, -11).
//!
//! Two implementations are planned: [`MetaClient`] on Nacre's monitors, and an object's omap on
//! Ceph.

use crate::meta::{MetaClient, MetaDone, MetaId, MetaWatchId, WatchNews};
use nacre_types::Time;
use nacre_wire::msg::meta::{MetaCall, MetaSpan};

/// A store of keys that all services share.
pub trait Metadata {
    /// Submits a request; it ends with a [`MetaDone`] with this id. `None`: the limit of requests
    /// in flight is reached and nothing was begun; take the results first.
    fn submit(&mut self, now: Time, call: MetaCall) -> Option<MetaId>;
    /// Abandons a request: it ends as [`crate::MetaFailure::Unknown`], and may still be executed.
    fn abandon(&mut self, id: MetaId);
    /// Takes the requests that have ended since the last call.
    fn done(&mut self, into: &mut Vec<MetaDone>);
    /// Reports events of keys from a revision on; 0: from now on. Revisions are reported in order,
    /// without duplicates or gaps, until the watch is cancelled or reports its end.
    fn watch(&mut self, span: MetaSpan, from: u64) -> MetaWatchId;
    /// Ends a watch: nothing more is reported for it.
    fn cancel(&mut self, watch: MetaWatchId);
    /// Takes the watches' news since the last call.
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
