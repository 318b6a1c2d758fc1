//! The monitors, as far as OSDs and clients can tell: one party that commits map changes, a while after they were asked for.
//!
//! It checks what monitors check (intervals, members, `min_size`) and it errs where monitors may err: it can be told to mark living OSDs down, to
//! reweight, to split. The real monitors have a simulation of their own (`mon`), and one together with these roles.

use nacre_types::{Epoch, Instance, OsdId, PgId};
use nacre_wire::map::{Change, ClusterMap, CrushSection, Pool, Protocol};
use nacre_wire::msg::monitor::{
    Boot, FailureReport, MapDeltas, MapFull, PgActivateRequest, PgTemporaryRequest, Subscribe,
};
use nacre_wire::{Message, Wire};
use std::collections::VecDeque;

/// See the module head.
#[derive(Debug)]
pub struct Oracle {
    /// The committed map.
    pub map: ClusterMap,
    deltas: VecDeque<(Epoch, bytes::Bytes)>,
    pending: Vec<Change>,
    full: bytes::Bytes,
}

impl Oracle {
    /// A map with so many OSDs, each on a host of its own, and one pool.
    #[must_use]
    pub fn new(osds: u32, size: u8, min_size: u8, pg_num: u32) -> Self {
        let mut crush = nacre_crush::CrushMap::new();
        for osd in 0..osds {
            let host = format!("host{osd}");
            let path = [("root", "default"), ("host", host.as_str())];
            crush.add_device(OsdId(osd), nacre_crush::Weight::ONE, None, &path).expect("a new device under a new host");
        }
        let rule = crush.create_replicated_rule("replicated", "default", "host", None).expect("the first rule");
        let text = nacre_crush::text::print(&crush);
        let section = CrushSection::parse(&text).expect("what was printed parses");
        let cluster = nacre_types::ClusterId(1);
        let mut map = ClusterMap::empty(cluster, section);
        let mut changes: Vec<Change> =
            (0..osds).map(|osd| Change::OsdNew { osd: OsdId(osd), store: u128::from(osd) + 1 }).collect();
        let settings = Pool {
            name: "registers".into(),
            protocol: Protocol::Log {},
            size,
            min_size,
            pg_num,
            pgp_num: pg_num,
            rule: u32::from(rule),
            created: Epoch::NONE,
            flags: 0,
            erasure: String::new(),
            quota_bytes: 0,
            quota_objects: 0,
        };
        changes.push(Change::PoolSet { pool: nacre_types::PoolId(1), settings });
        map.apply(&map.delta(changes)).expect("the first delta");
        let full = map.to_bytes().into();
        Self { map, deltas: VecDeque::new(), pending: Vec::new(), full }
    }

    /// A change decided elsewhere.
    pub fn propose(&mut self, change: Change) {
        self.pending.push(change);
    }

    /// Whether something waits for a commit.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Commits what waits; the message for everybody.
    pub fn commit(&mut self) -> Option<Message> {
        let changes: Vec<Change> =
            std::mem::take(&mut self.pending).into_iter().filter(|change| self.is_valid(change)).collect();
        if changes.is_empty() {
            return None;
        }
        let delta = self.map.delta(changes);
        self.map.apply(&delta).expect("made from this map");
        self.map.check();
        let bytes: bytes::Bytes = delta.to_bytes().into();
        self.deltas.push_back((delta.epoch, bytes.clone()));
        self.full = self.map.to_bytes().into();
        Some(Message::MapDeltas(MapDeltas { deltas: vec![bytes], newest: self.map.epoch }))
    }

    fn is_valid(&self, change: &Change) -> bool {
        match change {
            Change::PgActivate { pg, interval, members } => {
                let Some(record) = self.map.pgs.get(pg) else { return false };
                let enough = members.len() >= usize::from(self.map.pools[&pg.pool].min_size);
                // At least one member of the last activated interval must be among the new ones, or have been asked by them;
                // the primary knows. Here: whoever asks is believed, as long as it is the present interval and its acting set.
                record.since == *interval && record.acting == *members && enough && !record.is_activated()
            }
            Change::PgTemporary { pg, interval, acting } => {
                let Some(record) = self.map.pgs.get(pg) else { return false };
                record.since == *interval
                    && record.temporary != *acting
                    && acting.iter().all(|osd| self.map.up_osd(*osd).is_some())
            }
            Change::OsdUp { osd, instance, .. } => self.map.osds.get(osd).is_some_and(|info| *instance > info.instance),
            Change::OsdDown { osd, instance } => {
                self.map.osds.get(osd).is_some_and(|info| info.up && info.instance == *instance)
            }
            _ => true,
        }
    }

    /// A request; its answer, if it has one at once.
    pub fn on_message(&mut self, message: &Message) -> Option<Message> {
        match message {
            Message::Subscribe(subscribe) => return Some(self.catch_up(subscribe)),
            Message::Boot(boot) => self.on_boot(boot),
            Message::FailureReport(report) => self.on_failure(report),
            Message::PgActivateRequest(PgActivateRequest { pg, interval, members }) => {
                self.pending.push(Change::PgActivate { pg: *pg, interval: *interval, members: members.clone() });
            }
            Message::PgTemporaryRequest(PgTemporaryRequest { pg, interval, acting }) => {
                self.pending.push(Change::PgTemporary { pg: *pg, interval: *interval, acting: acting.clone() });
            }
            _ => {}
        }
        None
    }

    fn catch_up(&self, subscribe: &Subscribe) -> Message {
        let have = subscribe.have;
        let known = self.deltas.front().is_some_and(|(first, _)| first.0 <= have.0 + 1);
        if have != Epoch::NONE && (known || have == self.map.epoch) {
            let deltas =
                self.deltas.iter().filter(|(epoch, _)| *epoch > have).map(|(_, bytes)| bytes.clone()).collect();
            Message::MapDeltas(MapDeltas { deltas, newest: self.map.epoch })
        } else {
            Message::MapFull(MapFull { map: self.full.clone() })
        }
    }

    fn on_boot(&mut self, boot: &Boot) {
        self.pending.push(Change::OsdUp {
            osd: boot.osd,
            instance: boot.instance,
            address: boot.address.clone(),
            store: boot.store,
            features: boot.features,
        });
    }

    fn on_failure(&mut self, report: &FailureReport) {
        if !report.alive {
            self.pending.push(Change::OsdDown { osd: report.target, instance: report.instance });
        }
    }

    /// Marks a living OSD down, for no reason.
    pub fn accuse(&mut self, osd: OsdId) {
        let instance = self.map.osds.get(&osd).map_or(Instance(0), |info| info.instance);
        self.pending.push(Change::OsdDown { osd, instance });
    }

    /// Doubles the pool's groups.
    pub fn split(&mut self) {
        for (pool, settings) in &self.map.pools {
            let mut settings = settings.clone();
            settings.pg_num *= 2;
            settings.pgp_num = settings.pg_num;
            self.pending.push(Change::PoolSet { pool: *pool, settings });
        }
    }

    /// All groups.
    pub fn groups(&self) -> impl Iterator<Item = PgId> + '_ {
        self.map.pgs.keys().copied()
    }
}
