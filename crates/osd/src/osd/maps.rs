//! Maps: receiving them, their consequences for this daemon and its PGs, and messages that wait for
//! newer ones.
//!
//! Invariant: PGs see one map after the other, and none before this instance is stored.

use super::{Osd, Phase};
use crate::key;
use crate::pg::Pg;
use crate::pg::local::Local;
use nacre_role::Output;
use nacre_store::Op;
use nacre_types::{Entity, Epoch, Instance, OsdId, PgId, PoolId};
use nacre_wire::map::{ApplyError, MapDelta};
use nacre_wire::msg::client::{OpFailure, OpRequest};
use nacre_wire::msg::monitor::{MapDeltas, Subscribe};
use nacre_wire::{ClusterMap, Message, Wire};
use std::collections::BTreeSet;

/// Peers and clients that were recently sent a map, before older ones are forgotten.
const TOLD_MAX: usize = 1024;
/// The number of PGs of which refused operations are noted.
const GROUPS_NOTED_MAX: usize = 4_096;

impl Osd {
    pub(super) fn subscribe(&mut self) {
        let (have, digest) = self
            .sh
            .map
            .as_ref()
            .map_or_else(Default::default, |map| (map.epoch, map.digest));
        self.map_asked = self.sh.now;
        self.sh.out.push(Output::SendMon {
            message: Message::Subscribe(Subscribe {
                have,
                digest,
                once: false,
            }),
        });
    }

    pub(super) fn on_full_map(&mut self, bytes: &[u8]) {
        let map = match ClusterMap::from_bytes(bytes) {
            Ok(map) => map,
            Err(why) => {
                self.halt(format!(
                    "{}: the cluster map cannot be read: {why}",
                    self.id()
                ));
                return;
            }
        };
        if let Some(ours) = &self.sh.map {
            if map.cluster != ours.cluster {
                self.halt(format!(
                    "{}: this store belongs to cluster {}, the monitors to {}",
                    self.id(),
                    ours.cluster,
                    map.cluster
                ));
                return;
            }
            if map.epoch == ours.epoch && map.digest != ours.digest {
                self.halt(ApplyError::OtherHistory { epoch: map.epoch }.to_string());
                return;
            }
            if map.epoch <= ours.epoch {
                return;
            }
        }
        self.deltas.clear();
        self.sh.map = Some(map);
        self.after_map();
    }

    pub(super) fn on_deltas(&mut self, message: &MapDeltas) {
        let mut changed = false;
        for bytes in &message.deltas {
            let Ok(delta) = MapDelta::from_bytes(bytes) else {
                return;
            };
            let Some(map) = &mut self.sh.map else { return };
            if delta.epoch <= map.epoch {
                continue;
            }
            match map.apply(&delta) {
                Ok(()) => {
                    changed = true;
                    self.deltas.push_back((delta.epoch, bytes.clone()));
                    if self.deltas.len() > self.sh.config.limits.deltas_kept {
                        self.deltas.pop_front();
                    }
                }
                Err(ApplyError::Gap { .. }) => {
                    self.subscribe();
                    break;
                }
                Err(error @ ApplyError::OtherHistory { .. }) => {
                    self.halt(error.to_string());
                    return;
                }
            }
        }
        if let Some(root) = message.root {
            self.pass_on(root, message);
        }
        if changed {
            self.after_map();
        }
    }

    /// A map change is passed on before anything else: others are waiting for it.
    pub(super) fn pass_on(&mut self, root: OsdId, message: &MapDeltas) {
        let Some(map) = &self.sh.map else { return };
        for osd in crate::spread::children(map, root, self.id()) {
            self.sh.send(osd, Message::MapDeltas(message.clone()));
        }
    }

    pub(super) fn halt(&mut self, why: String) {
        self.sh.out.push(Output::Halt { why });
    }

    pub(super) fn after_map(&mut self) {
        self.sh.take_options();
        let me = self.id();
        let map = self.sh.map.as_ref().expect("there is a new map");
        let entry = map.osds.get(&me).cloned();
        let fenced = map.is_fenced(Entity::Osd(me), self.instance());
        let ours =
            |info: &&nacre_wire::map::OsdInfo| info.up && info.process == self.sh.config.process;
        let granted = entry.as_ref().filter(ours).map(|info| info.instance);
        self.sh.instance_known = self
            .sh
            .instance_known
            .max(entry.as_ref().map_or(Instance(0), |info| info.instance));
        match (&self.phase, granted) {
            (Phase::Loading(_), _) => return,
            (Phase::Live, Some(instance)) if instance == self.instance() => {}
            (Phase::Live, _) if fenced => {
                self.halt(match entry {
                    Some(_) => format!("{me}: this instance was fenced; start it again"),
                    None => format!("{me} was removed from the cluster; what is on its store does not count any more"),
                });
                return;
            }
            (Phase::Taking { instance }, Some(granted)) if *instance == granted => return,
            // A number that the store has had before was granted by monitors that have lost state:
            // the next boot tells them.
            (_, Some(instance)) if instance > self.instance() => {
                self.leave_live();
                let ops = self.sh.record_of(instance).save().ops;
                self.taking = Some(self.sh.submit(
                    PgId::default(),
                    Epoch::NONE,
                    ops,
                    crate::purpose::Purpose::Nothing,
                ));
                self.phase = Phase::Taking { instance };
                return;
            }
            (Phase::Live | Phase::Taking { .. }, _) => {
                // The cluster ended this instance. All its commitments are void; request another.
                self.leave_live();
                self.phase = Phase::Waiting { at: self.sh.now };
            }
            (Phase::Waiting { .. }, _) => {}
        }
        self.use_map();
    }

    /// The commitments of an instance end with it.
    pub(super) fn leave_live(&mut self) {
        if self.is_live() {
            self.sh.peers.start(self.sh.now);
            self.reported.clear();
            for pg in self.pgs.values_mut() {
                pg.stand_down(&mut self.sh);
            }
            self.find_busy();
        }
    }

    /// The granted instance is stored: begins to act as it, unless the map has changed since.
    pub(super) fn take_instance(&mut self) {
        let Phase::Taking { instance } = self.phase else {
            return;
        };
        self.sh.instance = instance;
        self.phase = Phase::Live;
        self.beacon_at = self.sh.now;
        self.after_map();
    }

    /// PGs, peers and classes follow the newest map.
    pub(super) fn use_map(&mut self) {
        self.make_collections();
        self.split_groups();
        self.make_groups();
        for pg in self.pgs.values_mut() {
            pg.on_map(&mut self.sh);
        }
        self.pgs.retain(|_, pg| !pg.is_gone());
        self.parts.keep(|pg, interval| {
            self.pgs
                .get(&pg)
                .is_some_and(|pg| pg.interval.since == interval)
        });
        self.find_busy();
        self.watch_peers();
        if let Phase::Waiting { .. } = self.phase {
            self.announce();
        }
        let map = self.sh.map.as_ref().expect("called with a map");
        self.sh.programs.on_map(map);
        self.fetch_sources();
        self.release_held();
        self.beacon_at = self
            .beacon_at
            .min(self.sh.now + self.sh.config.timing.ping_interval);
        self.sh.wake_at(self.beacon_at);
    }

    /// Creates a collection in the store for every pool that has a PG here.
    pub(super) fn make_collections(&mut self) {
        let map = self.sh.map.as_ref().expect("called with a map");
        let fresh: Vec<PoolId> = map
            .pools
            .keys()
            .copied()
            .filter(|pool| !self.collections.contains(pool))
            .collect();
        for pool in fresh {
            self.collections.insert(pool);
            let op = Op::CreateCollection(key::collection(pool, nacre_types::Shard::NONE));
            self.sh.submit(
                PgId::default(),
                Epoch::NONE,
                vec![op],
                crate::purpose::Purpose::Nothing,
            );
        }
    }

    /// PGs of pools that have grown split.
    pub(super) fn split_groups(&mut self) {
        let map = self.sh.map.as_ref().expect("called with a map");
        let due: Vec<(PgId, u32)> = self
            .pgs
            .iter()
            .filter(|(_, pg)| pg.local.exists)
            .filter_map(|(id, pg)| {
                map.pools
                    .get(&id.pool)
                    .map(|pool| (*id, pool.pg_num, pg.local.pg_num))
            })
            .filter(|(_, new, old)| new > old)
            .map(|(id, new, _)| (id, new))
            .collect();
        for (id, pg_num) in due {
            let parent = self.pgs.get_mut(&id).expect("just listed");
            let old = parent.local.pg_num;
            self.sh.counters.borders.splits += 1;
            self.sh.counters.borders.splits_in_backfill +=
                u64::from(parent.local.backfill.is_some());
            let mut ops = Vec::new();
            let seeds = (old..pg_num).filter(|seed| key::seed(*seed, old) == id.seed);
            let children: Vec<Local> = seeds
                .map(|seed| {
                    parent
                        .local
                        .split_off(PgId { seed, ..id }, pg_num, &mut ops)
                })
                .collect();
            parent.local.finish_split(pg_num, &mut ops);
            self.pgs.extend(
                children
                    .into_iter()
                    .map(|child| (child.pg(), Pg::new(child))),
            );
            self.sh
                .submit(id, Epoch::NONE, ops, crate::purpose::Purpose::Nothing);
        }
    }

    /// Creates the PGs that the map assigns to us and that we do not have yet.
    pub(super) fn make_groups(&mut self) {
        let me = self.id();
        let map = self.sh.map.as_ref().expect("called with a map");
        let ours = map
            .pgs
            .iter()
            .filter(|(_, record)| record.acting.contains(&me) || record.up.contains(&me));
        let fresh: Vec<(PgId, u32)> = ours
            .filter(|(id, _)| !self.pgs.contains_key(id))
            .map(|(id, _)| (*id, map.pools[&id.pool].pg_num))
            .collect();
        for (id, pg_num) in fresh {
            self.pgs.insert(id, Pg::new(Local::new(id, pg_num)));
        }
        // An empty PG needs no split to follow its pool.
        let map = self.sh.map.as_ref().expect("called with a map");
        for (id, pg) in self.pgs.iter_mut().filter(|(_, pg)| !pg.local.exists) {
            if let Some(pool) = map.pools.get(&id.pool) {
                pg.local.pg_num = pool.pg_num;
            }
        }
    }

    pub(super) fn watch_peers(&mut self) {
        let me = self.id();
        let map = self.sh.map.as_ref().expect("called with a map");
        let ours = map
            .pgs
            .values()
            .filter(|record| record.acting.contains(&me) || record.up.contains(&me));
        let mut peers: BTreeSet<OsdId> = BTreeSet::new();
        for record in ours {
            peers.extend(
                record
                    .acting
                    .iter()
                    .chain(&record.up)
                    .chain(&record.activated.members),
            );
        }
        peers.remove(&me);
        let up = peers
            .into_iter()
            .filter_map(|osd| map.up_osd(osd).map(|info| (osd, info.instance)));
        let up: Vec<(OsdId, Instance)> = up.collect();
        self.sh
            .under_way
            .keep(|osd| osd == me || up.iter().any(|(up, _)| *up == osd));
        self.sh.peers.watch(self.sh.now, up.into_iter());
    }

    /// Keeps a message until we have a map and may act on it, if there is memory; otherwise its
    /// sender repeats it.
    pub(super) fn hold(&mut self, needed: Epoch, epoch: Epoch, from: Entity, message: Message) {
        let room = self
            .held
            .has_room(from, &message, self.sh.config.limits.held_messages);
        // A client's operations keep their order, including refused ones.
        if let (Message::OpRequest(request, _), Entity::Client(_)) = (&message, from)
            && !self.may_be_held(from, request, room)
        {
            return;
        }
        if room {
            self.sh.counters.borders.held += 1;
            self.held.keep(self.sh.now, needed, epoch, from, message);
        }
    }

    /// Whether a client's operation may be held, considering earlier ones. If not, it is noted and
    /// refused.
    fn may_be_held(&mut self, from: Entity, request: &OpRequest, room: bool) -> bool {
        // The PG is named by the client, and need not exist: operations are noted for a bounded
        // number of PGs, in case a client invents them.
        let noted =
            self.turned_away.len() < GROUPS_NOTED_MAX || self.turned_away.contains_key(&request.pg);
        let held = noted && {
            let away = self.turned_away.entry(request.pg).or_default();
            let held = away.admit(self.sh.now, request, room);
            if away.is_empty() {
                self.turned_away.remove(&request.pg);
            }
            held
        };
        if !held {
            self.sh.counters.borders.held_refused += u64::from(noted);
            self.sh.refuse(
                from,
                request.request,
                request.attempt,
                OpFailure::WrongTarget {},
            );
        }
        held
    }

    pub(super) fn release_held(&mut self) {
        for (theirs, from, message) in self.held.release(self.epoch()) {
            self.receive(from, theirs, message);
        }
    }

    /// Drops messages that waited here for too long, and notes on clients that are gone.
    pub(super) fn forget_late(&mut self) {
        let now = self.sh.now;
        for (from, message) in self.held.forget(now) {
            if let (Message::OpRequest(request, _), Entity::Client(_)) = (&message, from) {
                self.may_be_held(from, request, false);
            }
        }
        if self.turned_away.len() >= GROUPS_NOTED_MAX / 4 {
            self.turned_away.retain(|_, away| away.is_heard(now));
        }
    }

    /// Sends a peer the changes that it lacks.
    pub(super) fn bring_up_to_date(&mut self, who: Entity, theirs: Epoch) {
        let ours = self.epoch();
        // Once, and again after a while: the first message may have been lost.
        let (now, again) = (self.sh.now, self.sh.config.timing.retry_interval);
        if theirs >= ours
            || self
                .told
                .get(&who)
                .is_some_and(|(told, at)| *told >= ours && now.since(*at) < again)
        {
            return;
        }
        if self.told.len() >= TOLD_MAX {
            // Those informed earlier are informed again anyway.
            self.told.retain(|_, (_, at)| now.since(*at) < again);
        }
        self.told.insert(who, (ours, now));
        let known = self
            .deltas
            .front()
            .is_some_and(|(first, _)| first.0 <= theirs.0 + 1);
        let message = if known && theirs != Epoch::NONE {
            let deltas = self
                .deltas
                .iter()
                .filter(|(epoch, _)| *epoch > theirs)
                .map(|(_, bytes)| bytes.clone())
                .collect();
            Message::MapDeltas(MapDeltas {
                deltas,
                newest: ours,
                root: None,
            })
        } else {
            self.sh.counters.borders.full_maps_sent += 1;
            let map = self
                .sh
                .map
                .as_ref()
                .expect("we have an epoch")
                .to_bytes()
                .into();
            Message::MapFull(nacre_wire::msg::monitor::MapFull { map })
        };
        self.sh.reply(who, message, None);
    }
}
