//! A cluster whose client lives on the caller's thread.

use crate::cluster::{Completion, ObjectCluster, OpId, WatchEvent};
use nacre_types::{ClientId, Instance, PoolId, Time};
use std::time::Duration;

/// An implementation of [`ObjectCluster`] together with what makes it go: nothing is sent and
/// nothing comes in but inside [`Self::turn`].
pub trait Driven {
    /// To begin something: it leaves with the next turn.
    fn objects(&mut self) -> &mut dyn ObjectCluster;
    /// Now, by the clock that the operations' times are of.
    fn now(&self) -> Time;
    /// Who this client is for the cluster, where that can be fenced.
    fn identity(&mut self) -> Option<(ClientId, Instance)> {
        None
    }
    /// Sends what was begun, and waits at most so long for something to happen.
    fn turn(&mut self, max: Duration);
    /// As [`ObjectCluster::completions`]: begins nothing.
    fn completions(&mut self, into: &mut Vec<Completion>);
    /// As [`ObjectCluster::watch_events`]: begins nothing.
    fn watch_events(&mut self, into: &mut Vec<WatchEvent>);
    /// Gives an operation up: it ends as [`crate::Failure::Unknown`], and may happen yet.
    fn abandon(&mut self, id: OpId);
    /// What each operation without an answer waits for, for people; empty where nobody knows.
    fn waits(&mut self) -> Vec<String> {
        Vec::new()
    }
    /// Into how many parts a listing of a pool is cut ([`crate::Operation::group`]); `None` if the
    /// pool is not known here (yet). Asking may wait for the cluster where that keeps its map for
    /// itself.
    fn groups(&mut self, pool: PoolId) -> Option<u32>;
    /// Whether there is a map at all.
    fn is_connected(&mut self) -> bool;
    /// The epoch of the map; 0 where nobody says.
    fn epoch(&mut self) -> u64;
    /// Why this can go on no longer, if it cannot.
    fn stopped(&mut self) -> Option<String>;
}
