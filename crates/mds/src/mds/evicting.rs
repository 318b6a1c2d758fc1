//! Ending the sessions of clients that were waited for long enough: fenced first, so that nothing
//! they send can reach what others are given then.
//!
//! ```text
//!  evict ─▶ fencing ── in force ──▶ in the journal ─▶ what it wrote is found ─▶ session removed, FsEvicted said, others go on
//!   │         └─ refused for the moment, or failed: again after a second
//!   └ the engine cannot fence: the same at once
//! ```
//! Until its session is removed all that such a client has stays its own: what it has open, its
//! locks, its shares. No request of it is taken, and its greetings wait. A fence is of one instance
//! and all earlier ones. The client goes on as a later one; if that greets first, the former one's
//! session ends in the same way before it is welcomed.
//!
//! A holder that dies before its journal has that leaves the session there. The next one takes the
//! client as it comes: it learns of the fence by its first operation on an object, and goes on as a
//! later instance. Later the next one evicts it, too: what it had written may be cut off by then.
//! (It was synchronized and gone: simulated seed 535.)
//!
//! Invariant: an instance that this holder has evicted, or one before it, has no session any more.

use super::*;
use crate::journal::Fenced;
use nacre_client::Refused;
use std::time::Duration;

/// After a fence that was refused or failed.
const AGAIN: Duration = Duration::from_secs(1);

/// Whether a greeting was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeted {
    /// It is answered, or will be.
    Taken,
    /// To be said again, once there is a journal and [`Mds::is_evicting`] this client no more.
    NotYet,
}

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Evicting {
    /// The sessions that end: of which instance, and whether its fence is under way.
    open: BTreeMap<ClientId, (Instance, bool)>,
    /// The last instance of each client whose session has ended so.
    ended: BTreeMap<ClientId, Instance>,
    /// Those of them that are fenced, the batch that says so, and whether what they wrote is being
    /// looked for.
    fenced: BTreeMap<ClientId, (u64, bool)>,
    /// Fences that were refused are tried again from then on.
    again_at: Time,
}

impl Evicting {
    pub fn has(&self, client: ClientId) -> bool {
        self.open.contains_key(&client)
    }
    /// Whether this instance may not have a session any more.
    pub fn is_over(&self, client: ClientId, instance: Instance) -> bool {
        self.ended
            .get(&client)
            .is_some_and(|last| instance <= *last)
    }
    /// Clients whose sessions end, and whether the fence is under way.
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
    /// A client was waited for long enough.
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
    /// Whether a client's session is about to end.
    #[must_use]
    pub fn is_evicting(&self, client: ClientId) -> bool {
        self.evicting.has(client)
    }

    /// What is to be said to a client that greets, if it can have no session as this instance.
    pub(super) fn judge_greeting(
        &mut self,
        client: ClientId,
        instance: Instance,
        known: bool,
    ) -> Option<Greeted> {
        let now = self.sessions.get(&client).map(|session| session.instance);
        if now.is_some_and(|now| now < instance) {
            // It has given its former instance up; what that sent may still be under way.
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

    /// Begins fences, and ends sessions where there are none.
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
            // The last holder has said it.
            *begun = false;
            return;
        }
        let batch = self.journal.push_fenced(Fenced { client, instance });
        self.appending.hurry(&self.journal);
        self.evicting.fenced.insert(client, (batch, false));
    }
    /// What those had written whose fence is in the journal is looked for.
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
    /// The last holder of the rank was evicting it.
    pub(super) fn inherit_fenced(&mut self, fenced: Fenced) {
        let is_here = self
            .sessions
            .get(&fenced.client)
            .is_some_and(|session| session.instance == fenced.instance);
        if is_here {
            self.evicting
                .open
                .insert(fenced.client, (fenced.instance, false));
            // It is looked for when that instance is fenced again.
            self.evicting.fenced.insert(fenced.client, (0, true));
        }
    }
    /// A session ended, or a later one began, says the journal.
    pub(super) fn forget_fenced(&mut self, client: ClientId) {
        self.evicting.open.remove(&client);
        self.evicting.fenced.remove(&client);
    }
    /// Who is being evicted, for the journal's head: those whose batches are safe.
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

    /// Nothing of it is executed any more, and what was is known.
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
