//! Subscribers to the map, what they have, and what they are sent (CEPH-44, MAL-11, MAL-12,
//! MAL-73).
//!
//! ```text
//!  Subscribe{have, digest} ─▶ same history? ─no─▶ Refused
//!                                 │ yes (or no longer known)
//!                                 ├─ close behind ─▶ MapDeltas ─┐
//!                                 └─ far behind ───▶ MapFull ───┴─▶ then every new epoch
//! ```
//! A new epoch is sent at once to the clients that subscribed, to the OSDs concerned, and to two
//! others, the roots of trees by which OSDs forward it (`osd::spread`): the cost of a change does
//! not grow with the number of OSDs. Every frame carries an epoch, so OSDs that the trees missed
//! are detected; [`Subscribers::sweep`] updates those without traffic.
//!
//! Invariant: per subscriber `known ≤ sent`, and each message continues the previous one without a
//! gap.

use bytes::Bytes;
use nacre_types::{Entity, Epoch, OsdId};
use nacre_wire::codec::Wire;
use nacre_wire::map::{Change, Digest};
use nacre_wire::msg::Message;
use nacre_wire::msg::monitor::{MapDeltas, MapFull, Refused, Subscribe};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::state::State;

/// Maximum number of deltas per message.
const DELTAS_MAX: usize = 200;
/// Maximum bytes of deltas per message.
const DELTA_BYTES_MAX: usize = 1 << 20;
/// A subscriber further behind gets a full map.
const BEHIND_MAX: usize = 2_000;
/// Number of sweeps for which an OSD may be behind: its beacons, which arrive every few seconds,
/// carry its epoch.
const SWEEPS_BEHIND: usize = 6;
/// Maximum number of OSDs updated per sweep.
const SWEEP_MAX: usize = 64;

#[derive(Clone, Debug)]
struct Subscriber {
    /// Everything up to here was sent.
    sent: Epoch,
    /// It has reported this epoch itself.
    known: Epoch,
    /// A digest to be compared once this monitor reaches the epoch.
    claim: Option<(Epoch, Digest)>,
}

/// See the module head.
#[derive(Clone, Debug, Default)]
pub struct Subscribers {
    all: BTreeMap<Entity, Subscriber>,
    /// Full map of one epoch, encoded once for all.
    full: Option<(Epoch, Bytes)>,
    /// The newest epoch at each of the last sweeps, oldest first.
    swept: VecDeque<Epoch>,
}

/// Messages to be sent.
pub type Outgoing = Vec<(Entity, Message)>;

fn other_history(epoch: Epoch) -> Message {
    Message::Refused(Refused {
        why: format!(
            "your cluster map differs from the monitors' at {epoch}: your directory was copied, or a monitor was restored from an old \
             copy. Stop; do not write anything. If the monitors are right, wipe this daemon's store and let it be filled again"
        ),
        process: 0,
    })
}

impl Subscribers {
    /// A subscription begins, or is requested again.
    pub fn subscribe(
        &mut self,
        state: &State,
        from: Entity,
        ask: &Subscribe,
        outgoing: &mut Outgoing,
    ) {
        let have = if ask.have == Epoch::NONE {
            None
        } else {
            Some(ask.have)
        };
        if let Some(epoch) = have
            && state
                .digest_at(epoch)
                .is_some_and(|digest| digest != ask.digest)
        {
            self.all.remove(&from);
            outgoing.push((from, other_history(epoch)));
            return;
        }
        let claim = have
            .filter(|epoch| *epoch > state.map().epoch)
            .map(|epoch| (epoch, ask.digest));
        let mut subscriber = Subscriber {
            sent: ask.have,
            known: ask.have,
            claim,
        };
        self.send(state, from, &mut subscriber, outgoing);
        if !ask.once {
            self.all.insert(from, subscriber);
        }
    }

    /// A frame carried its sender's epoch.
    pub fn on_epoch(&mut self, from: Entity, epoch: Epoch) {
        if let Some(subscriber) = self.all.get_mut(&from) {
            subscriber.known = subscriber.known.max(epoch);
            subscriber.sent = subscriber.sent.max(epoch);
        }
    }

    /// The OSDs among them.
    pub fn osds(&self) -> impl Iterator<Item = Entity> + '_ {
        self.all
            .keys()
            .copied()
            .filter(|who| matches!(who, Entity::Osd(_)))
    }

    /// A connection has ended.
    pub fn remove(&mut self, who: Entity) {
        self.all.remove(&who);
    }

    /// The map was advanced by these changes.
    pub fn publish(
        &mut self,
        state: &State,
        changes: &[Change],
        fanout: usize,
        outgoing: &mut Outgoing,
    ) {
        self.compare_claims(state, outgoing);
        let concerned = concerned(state, changes);
        // The same ones each time, since they have connections; only OSDs that are part of the
        // trees.
        let is_root = |who: Entity| match who {
            Entity::Osd(osd) => state.map().up_osd(osd).map(|_| osd),
            _ => None,
        };
        let roots: Vec<OsdId> = self
            .all
            .keys()
            .copied()
            .filter_map(is_root)
            .take(fanout)
            .collect();
        for osd in roots {
            let subscriber = self.all.get_mut(&Entity::Osd(osd)).expect("just seen");
            let deltas = if subscriber.sent == Epoch::NONE {
                None
            } else {
                state.deltas_after(subscriber.sent)
            };
            // An OSD that is far behind is no useful root; it is updated like any other.
            if let Some(deltas) = deltas.filter(|deltas| deltas.len() <= DELTAS_MAX) {
                subscriber.sent = state.map().epoch;
                let news = MapDeltas {
                    deltas,
                    newest: state.map().epoch,
                    root: Some(osd),
                };
                outgoing.push((Entity::Osd(osd), Message::MapDeltas(news)));
            } else {
                self.send_all(state, &[Entity::Osd(osd)], outgoing);
            }
        }
        let receivers: Vec<Entity> = self
            .all
            .keys()
            .filter(|who| match who {
                Entity::Osd(osd) => concerned.contains(osd),
                Entity::Client(_) | Entity::Mon(_) => true,
            })
            .copied()
            .collect();
        self.send_all(state, &receivers, outgoing);
    }

    /// Updates OSDs that have been behind for some seconds. Called about once a second.
    pub fn sweep(&mut self, state: &State, outgoing: &mut Outgoing) {
        self.swept.push_back(state.map().epoch);
        let newest = self.swept[0];
        if self.swept.len() > SWEEPS_BEHIND {
            self.swept.pop_front();
        }
        let behind: Vec<Entity> = self
            .all
            .iter()
            .filter(|(_, s)| s.sent < newest && s.claim.is_none())
            .map(|(who, _)| *who)
            .take(SWEEP_MAX)
            .collect();
        self.send_all(state, &behind, outgoing);
    }

    /// The whole state was replaced by a snapshot: all waiting subscribers may be sent something.
    pub fn on_restore(&mut self, state: &State, outgoing: &mut Outgoing) {
        self.compare_claims(state, outgoing);
        let everybody: Vec<Entity> = self.all.keys().copied().collect();
        self.send_all(state, &everybody, outgoing);
    }

    fn compare_claims(&mut self, state: &State, outgoing: &mut Outgoing) {
        let mut refused = Vec::new();
        for (who, subscriber) in &mut self.all {
            let Some((epoch, digest)) = subscriber.claim else {
                continue;
            };
            match state.digest_at(epoch) {
                Some(ours) if ours != digest => refused.push((*who, epoch)),
                Some(_) => subscriber.claim = None,
                None if epoch < state.map().epoch => subscriber.claim = None,
                None => {}
            }
        }
        for (who, epoch) in refused {
            self.all.remove(&who);
            outgoing.push((who, other_history(epoch)));
        }
    }

    fn send_all(&mut self, state: &State, receivers: &[Entity], outgoing: &mut Outgoing) {
        for who in receivers {
            if let Some(mut subscriber) = self.all.remove(who) {
                self.send(state, *who, &mut subscriber, outgoing);
                self.all.insert(*who, subscriber);
            }
        }
    }

    fn send(
        &mut self,
        state: &State,
        to: Entity,
        subscriber: &mut Subscriber,
        outgoing: &mut Outgoing,
    ) {
        let newest = state.map().epoch;
        if subscriber.sent >= newest {
            return;
        }
        let deltas = if subscriber.sent == Epoch::NONE {
            None
        } else {
            state.deltas_after(subscriber.sent)
        };
        match deltas.filter(|deltas| deltas.len() <= BEHIND_MAX) {
            Some(deltas) => {
                let mut message = Vec::new();
                let mut bytes = 0;
                for delta in deltas {
                    if !message.is_empty()
                        && (message.len() >= DELTAS_MAX || bytes + delta.len() > DELTA_BYTES_MAX)
                    {
                        let deltas = std::mem::take(&mut message);
                        outgoing.push((
                            to,
                            Message::MapDeltas(MapDeltas {
                                deltas,
                                newest,
                                root: None,
                            }),
                        ));
                        bytes = 0;
                    }
                    bytes += delta.len();
                    message.push(delta);
                }
                outgoing.push((
                    to,
                    Message::MapDeltas(MapDeltas {
                        deltas: message,
                        newest,
                        root: None,
                    }),
                ));
            }
            None => {
                let map = match &self.full {
                    Some((epoch, map)) if *epoch == newest => map.clone(),
                    _ => {
                        let map = Bytes::from(state.map().to_bytes());
                        self.full = Some((newest, map.clone()));
                        map
                    }
                };
                outgoing.push((to, Message::MapFull(MapFull { map })));
            }
        }
        subscriber.sent = newest;
    }

    /// Frees the encoded map.
    pub fn tidy(&mut self) {
        self.full = None;
    }
}

/// OSDs that wait for these very changes: they came up, or requested them.
fn concerned(state: &State, changes: &[Change]) -> BTreeSet<OsdId> {
    let mut osds = BTreeSet::new();
    for change in changes {
        match change {
            Change::OsdUp { osd, .. } | Change::OsdDown { osd, .. } => {
                osds.insert(*osd);
            }
            Change::PgActivate { pg, .. } | Change::PgTemporary { pg, .. } => {
                if let Some(record) = state.map().pgs.get(pg) {
                    osds.extend(&record.acting);
                }
            }
            _ => {}
        }
    }
    osds
}
