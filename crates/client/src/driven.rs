//! A cluster whose client runs on the caller's thread.

use crate::cluster::{Completion, ObjectCluster, OpId, WatchEvent};
use nacre_types::{ClientId, Instance, PoolId, Time};
use std::time::Duration;

/// An implementation of [`ObjectCluster`] together with its driver: nothing is sent or received
/// except inside [`Self::turn`].
pub trait Driven {
    /// The cluster, to begin operations: they are sent in the next turn.
    fn objects(&mut self) -> &mut dyn ObjectCluster;
    /// The current time, by the clock that the operations' times refer to.
    fn now(&self) -> Time;
    /// The client's identity in the cluster, on engines where it can be fenced.
    fn identity(&mut self) -> Option<(ClientId, Instance)> {
        None
    }
    /// Sends what was begun, and waits at most `max` for something to happen.
    fn turn(&mut self, max: Duration);
    /// Like [`ObjectCluster::completions`]; begins nothing.
    fn completions(&mut self, into: &mut Vec<Completion>);
    /// Like [`ObjectCluster::watch_events`]; begins nothing.
    fn watch_events(&mut self, into: &mut Vec<WatchEvent>);
    /// Abandons an operation: it ends as [`crate::Failure::Unknown`], and may still be executed.
    fn abandon(&mut self, id: OpId);
    /// What each unanswered operation waits for, human-readable; empty if unknown.
    fn waits(&mut self) -> Vec<String> {
        Vec::new()
    }
    /// The number of parts of a listing of a pool ([`crate::Operation::group`]); `None` if the pool
    /// is not known here (yet). May wait for the cluster on engines that do not share their map.
    fn groups(&mut self, pool: PoolId) -> Option<u32>;
    /// Whether there is a map at all.
    fn is_connected(&mut self) -> bool;
    /// The epoch of the map; 0 if unknown.
    fn epoch(&mut self) -> u64;
    /// Why the client cannot continue, if it cannot.
    fn stopped(&mut self) -> Option<String>;
}
