//! Ending the sessions of clients that were waited for long enough: fenced first, so that nothing
//! they send can reach what others are given then.
//!
//! ```text
//!  evict ─▶ fencing ── in force ──▶ what it wrote is found ─▶ session removed, FsEvicted said, others go on
//!   │         └─ refused for the moment, or failed: again after a second
//!   └ the engine cannot fence: the same at once
//! ```
//! Until its session is removed all that such a client has stays its own: what it has open, its
//! locks, its shares. No request of it is taken, and its greetings wait. A fence is of one instance
//! and all earlier ones. The client goes on as a later one; if that greets first, the former one's
//! session ends in the same way before it is welcomed.
//!
//! A holder that dies in between leaves the session in the journal. The next one fences it again,
//! or takes it as it comes: that client learns of the fence by its first operation on an object,
//! and goes on as a later instance.
//!
//! Invariant: an instance that this holder has evicted, or one before it, has no session any more.

use super::*;
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
    /// Fences that were refused are tried again from then on.
    again_at: Time,
}

impl Evicting {
    pub fn has(&self, client: ClientId) -> bool {
        self.open.contains_key(&client)
    }
    /// Whether this instance may not have a session any more.
    pub fn is_over(&self, client: ClientId, instance: Instance) -> bool {
        self.ended.get(&client).is_some_and(|last| instance <= *last)
    }
    /// Clients whose sessions end, and whether the fence is under way.
    pub const fn open(&self) -> &BTreeMap<ClientId, (Instance, bool)> {
        &self.open
    }
    pub fn next_deadline(&self) -> Time {
        if self.open.values().any(|(_, begun)| !begun) { self.again_at } else { Time::MAX }
    }
}

impl Mds {
    /// A client was waited for long enough.
    pub fn evict(&mut self, client: ClientId) {
        if let Some(session) = self.sessions.get(&client).filter(|_| !self.evicting.has(client)) {
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
    pub(super) fn judge_greeting(&mut self, client: ClientId, instance: Instance, known: bool) -> Option<Greeted> {
        let now = self.sessions.get(&client).map(|session| session.instance);
        if now.is_some_and(|now| now < instance) {
            // It has given its former instance up; what that sent may still be under way.
            self.evict(client);
        }
        if self.evicting.has(client) {
            return Some(Greeted::NotYet);
        }
        let is_old = now.is_some_and(|now| instance < now) || self.evicting.is_over(client, instance);
        if is_old || (known && now != Some(instance)) {
            self.out.push((client, Say::Evicted(FsEvicted { instance })));
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
        let due: Vec<(ClientId, Instance)> = due.map(|(client, (instance, _))| (*client, *instance)).collect();
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
                    self.begin_probing(client);
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
            self.begin_probing(client);
        } else if let Some((_, begun)) = self.evicting.open.get_mut(&client) {
            (*begun, self.evicting.again_at) = (false, self.now + AGAIN);
        }
    }

    /// Nothing of it is executed any more, and what was is known.
    pub(super) fn end_evicted(&mut self, client: ClientId) {
        let Some((instance, _)) = self.evicting.open.remove(&client) else { return };
        self.evicting.ended.insert(client, instance);
        self.out.push((client, Say::Evicted(FsEvicted { instance })));
        self.end_session(client);
        self.try_again = true;
    }
}
