//! Ending the sessions of clients whose timeout has expired: they are fenced first, so that nothing
//! they send can reach what others are given afterwards.
//!
//! ```text
//!  evict ─▶ fencing ── in force ──▶ in the journal ─▶ its writes are found ─▶ session removed, FsEvicted sent, others continue
//!   │         └─ temporarily refused, or failed: retried after a second
//!   └ the engine cannot fence: the same at once
//! ```
//! Until its session is removed, such a client keeps everything: its open files, its locks, its
//! shares. None of its requests is accepted, and its greetings wait. A fence covers one instance
//! and all earlier ones. The client continues as a later instance; if that one greets first, the
//! former one's session ends in the same way before the new one is welcomed.
//!
//! If a holder dies before its journal has the eviction, the session remains. The next holder
//! accepts the client when it comes: the client learns of the fence from its first operation on an
//! object, and continues as a later instance. Once the journal has the eviction, the next holder
//! evicts it, too, because what it had written may already be truncated. (Synchronized data was
//! lost: simulated seed 535.)
//!
//! Invariant: an instance evicted by this holder, or by an earlier one, has no session any more.

use super::*;
use crate::journal::Fenced;
use nacre_client::Refused;
use std::time::Duration;

/// Delay after a fence that was refused or failed.
const AGAIN: Duration = Duration::from_secs(1);

/// Whether a greeting was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeted {
    /// It is answered, or will be.
    Taken,
    /// To be repeated, once there is a journal and [`Mds::is_evicting`] is no longer true for this
    /// client.
    NotYet,
}

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Evicting {
    /// The sessions being ended: the instance, and whether its fence is in flight.
    open: BTreeMap<ClientId, (Instance, bool)>,
    /// The last evicted instance of each client.
    ended: BTreeMap<ClientId, Instance>,
    /// Fenced clients, each with the batch that records it and whether its writes are being looked
    /// for.
    fenced: BTreeMap<ClientId, (u64, bool)>,
    /// When refused fences are retried.
    again_at: Time,
}

impl Evicting {
    pub fn has(&self, client: ClientId) -> bool {
        self.open.contains_key(&client)
    }
    /// Whether this instance may no longer have a session.
    pub fn is_over(&self, client: ClientId, instance: Instance) -> bool {
        self.ended
            .get(&client)
            .is_some_and(|last| instance <= *last)
    }
    /// Clients whose sessions are being ended, and whether the fence is in flight.
    pub const fn open(&self) -> &BTreeMap<ClientId, (Instance, bool)> {
        &self.open
    }
    pub fn next_deadline(&self) -> Time {
        if self.open.values().any(|(_, begun)| !begun) {
            self.again_at
        } else {
            Time::MAX
        }
    }
}

impl Mds {
    /// A client's timeout has expired.
    pub fn evict(&mut self, client: ClientId) {
        if let Some(session) = self
            .sessions
            .get(&client)
            .filter(|_| !self.evicting.has(client))
        {
            self.evicting.open.insert(client, (session.instance, false));
            self.forget_requests(client);
        }
    }
    /// Whether a client's session is being ended.
    #[must_use]
    pub fn is_evicting(&self, client: ClientId) -> bool {
        self.evicting.has(client)
    }

    /// The answer to a greeting if this instance of the client can have no session.
    pub(super) fn judge_greeting(
        &mut self,
        client: ClientId,
        instance: Instance,
        known: bool,
    ) -> Option<Greeted> {
        let now = self.sessions.get(&client).map(|session| session.instance);
        if now.is_some_and(|now| now < instance) {
            // It has given its former instance up; messages of that one may still be in flight.
            self.evict(client);
        }
        if self.evicting.has(client) {
            return Some(Greeted::NotYet);
        }
        let is_old =
            now.is_some_and(|now| instance < now) || self.evicting.is_over(client, instance);
        if is_old || (known && now != Some(instance)) {
            self.out
                .push((client, Say::Evicted(FsEvicted { instance })));
            return Some(Greeted::Taken);
        }
        None
    }

    /// Begins fences, and ends sessions where fencing is not possible.
    pub(super) fn fence_evicted(&mut self, objects: &mut dyn ObjectCluster) {
        if self.evicting.next_deadline() > self.now {
            return;
        }
        let due = self.evicting.open.iter().filter(|(_, (_, begun))| !begun);
        let due: Vec<(ClientId, Instance)> = due
            .map(|(client, (instance, _))| (*client, *instance))
            .collect();
        for (client, instance) in due {
            let fence = if objects.capabilities().fence {
                objects.fence(self.now, client, instance)
            } else {
                Err(Refused::Unsupported)
            };
            match fence {
                Ok(id) => {
                    self.under_way.insert(id, Purpose::Fence(client));
                    self.evicting.open.insert(client, (instance, true));
                }
                Err(Refused::Unsupported) => {
                    self.evicting.open.insert(client, (instance, true));
                    self.note_fenced(client);
                }
                Err(Refused::Busy | Refused::NotConnected | Refused::NoSuchPool) => {
                    self.evicting.again_at = self.now + AGAIN;
                    return;
                }
            }
        }
    }
    pub(super) fn on_fenced(&mut self, client: ClientId, well: bool) {
        if well {
            // There is room for another one.
            self.evicting.again_at = self.now;
            self.note_fenced(client);
        } else if let Some((_, begun)) = self.evicting.open.get_mut(&client) {
            (*begun, self.evicting.again_at) = (false, self.now + AGAIN);
        }
    }

    fn note_fenced(&mut self, client: ClientId) {
        let Some((instance, _)) = self.evicting.open.get(&client).copied() else {
            return;
        };
        if let Some((_, begun)) = self.evicting.fenced.get_mut(&client) {
            // The last holder has recorded it.
            *begun = false;
            return;
        }
        let batch = self.journal.push_fenced(Fenced { client, instance });
        self.appending.hurry(&self.journal);
        self.evicting.fenced.insert(client, (batch, false));
    }
    /// Looks for the writes of clients whose fence is in the journal.
    pub(super) fn look_at_fenced(&mut self) {
        let safe = self.journal.safe();
        let due = self
            .evicting
            .fenced
            .iter_mut()
            .filter(|(_, (batch, begun))| *batch < safe && !begun);
        let due: Vec<ClientId> = due
            .map(|(client, (_, begun))| (*begun = true, *client).1)
            .collect();
        due.into_iter()
            .for_each(|client| self.begin_probing(client));
    }
    /// The last holder of the rank was evicting this client.
    pub(super) fn inherit_fenced(&mut self, fenced: Fenced) {
        let is_here = self
            .sessions
            .get(&fenced.client)
            .is_some_and(|session| session.instance == fenced.instance);
        if is_here {
            self.evicting
                .open
                .insert(fenced.client, (fenced.instance, false));
            // Its writes are looked for when that instance is fenced again.
            self.evicting.fenced.insert(fenced.client, (0, true));
        }
    }
    /// The journal says that a session ended, or that a later one began.
    pub(super) fn forget_fenced(&mut self, client: ClientId) {
        self.evicting.open.remove(&client);
        self.evicting.fenced.remove(&client);
    }
    /// Clients being evicted, for the journal's head: those whose batches are safe.
    pub(super) fn all_fenced(&self) -> Vec<Fenced> {
        let safe = self.journal.safe();
        let fenced = self
            .evicting
            .fenced
            .iter()
            .filter(|(_, (batch, _))| *batch < safe);
        let instance = |client: &ClientId| {
            self.evicting
                .open
                .get(client)
                .map(|(instance, _)| *instance)
        };
        fenced
            .filter_map(|(client, _)| {
                Some(Fenced {
                    client: *client,
                    instance: instance(client)?,
                })
            })
            .collect()
    }

    /// None of its operations is executed any more, and those that were are known.
    pub(super) fn end_evicted(&mut self, client: ClientId) {
        let Some((instance, _)) = self.evicting.open.remove(&client) else {
            return;
        };
        self.evicting.fenced.remove(&client);
        self.evicting.ended.insert(client, instance);
        self.out
            .push((client, Say::Evicted(FsEvicted { instance })));
        self.end_session(client);
        self.try_again = true;
    }
}
