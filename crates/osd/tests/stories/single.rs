//! Unit tests of the daemon's role: one OSD with a store in memory, in a cluster of one.

use crate::config::{Limits, OsdConfig, Timing};
use crate::osd::Osd;
use nacre_role::{Input, Output, Role as _};
use nacre_store::{Event, ObjectStore, RamStore};
use nacre_types::{ClientId, ClusterId, Entity, Instance, MonId, OsdId, PoolId, Time};
use nacre_wire::map::{Address, Change, CrushSection, Pool};
use nacre_wire::msg::monitor::{Beacon, Led, MapDeltas, MapFull, Refused};
use nacre_wire::{ClusterMap, Message, Wire};
use std::time::Duration;

const HIERARCHY: &str = "\
device 0 osd.0
type 0 osd
type 1 root
root default { id -1 alg straw2 item osd.0 weight 1 }
rule replicated { id 0 type replicated min_size 1 max_size 10 step take default step choose firstn 0 type osd step emit }
";
const ME: OsdId = OsdId(0);
const MON: Entity = Entity::Mon(MonId(0));

/// A host for the only OSD of a cluster.
struct Rig {
    osd: Osd,
    store: RamStore,
    map: ClusterMap,
    now: Time,
    beacons: Vec<(Time, Beacon)>,
    halted: Option<String>,
}

impl Rig {
    /// Up, with two PGs of which it is primary, and clean.
    fn live() -> Self {
        let mut store = RamStore::new();
        store
            .submit(
                crate::format(ClusterId(1), ME),
                nacre_store::Token(u64::MAX),
            )
            .expect("an empty store");
        store.request_commit();
        let mut map = ClusterMap::empty(
            ClusterId(1),
            CrushSection::parse(HIERARCHY).expect("well-formed"),
        );
        let address = Address("here:1".to_owned());
        let settings = Pool::replicated("data".into(), 1, 1, 2);
        let up = Change::OsdUp {
            osd: ME,
            instance: Instance(1),
            address: address.clone(),
            store: 1,
            features: 0,
            process: 1,
        };
        let changes = vec![
            Change::OsdNew { osd: ME, store: 1 },
            up,
            Change::PoolSet {
                pool: PoolId(1),
                settings,
            },
        ];
        map.apply(&map.delta(changes)).expect("the next delta");
        let config = OsdConfig {
            id: ME,
            process: 1,
            store: 1,
            address,
            class: String::new(),
            host: "here".to_owned(),
            capacity: 1 << 40,
            timing: Timing::default(),
            limits: Limits::default(),
        };
        let now = Time(1_000_000_000);
        let mut out = Vec::new();
        let osd = Osd::open(config, now, &mut out);
        let mut rig = Self {
            osd,
            store,
            map,
            now,
            beacons: Vec::new(),
            halted: None,
        };
        rig.perform(out);
        let full = Message::MapFull(MapFull {
            map: rig.map.to_bytes().into(),
        });
        rig.hear(MON, full);
        rig.run(Duration::from_secs(3));
        assert!(rig.osd.is_live());
        rig
    }

    fn perform(&mut self, out: Vec<Output>) {
        let mut next = out;
        for _ in 0..1000 {
            for output in std::mem::take(&mut next) {
                match output {
                    Output::Submit { transaction, token } => {
                        self.store.submit(transaction, token).expect("room")
                    }
                    Output::Read { read, token } => self.store.read(read, token),
                    Output::SendMon {
                        message: Message::Beacon(beacon),
                    } => self.beacons.push((self.now, beacon)),
                    Output::SendMon {
                        message: Message::PgActivateRequest(ask),
                    } => {
                        let activate = Change::PgActivate {
                            pg: ask.pg,
                            interval: ask.interval,
                            members: ask.members,
                        };
                        let delta = self.commit(vec![activate]);
                        let input = Input::Message {
                            from: MON,
                            epoch: self.map.epoch,
                            message: delta,
                        };
                        self.osd.on_input(self.now, input, &mut next);
                    }
                    Output::Halt { why } => self.halted = Some(why),
                    Output::SendMon { .. }
                    | Output::Send { .. }
                    | Output::Meet { .. }
                    | Output::Run(_)
                    | Output::Say(_) => {}
                }
            }
            self.store.request_commit();
            let mut events: Vec<Event> = Vec::new();
            self.store.poll(&mut events);
            for event in events {
                self.osd.on_input(self.now, Input::Store(event), &mut next);
            }
            if next.is_empty() {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    /// The monitors commit a change; returns the message that distributes it.
    fn commit(&mut self, changes: Vec<Change>) -> Message {
        let delta = self.map.delta(changes);
        self.map.apply(&delta).expect("the next delta");
        Message::MapDeltas(MapDeltas {
            deltas: vec![delta.to_bytes().into()],
            newest: self.map.epoch,
            root: None,
        })
    }

    fn hear(&mut self, from: Entity, message: Message) {
        let mut out = Vec::new();
        self.osd.on_input(
            self.now,
            Input::Message {
                from,
                epoch: self.map.epoch,
                message,
            },
            &mut out,
        );
        self.perform(out);
    }

    /// Lets time pass.
    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let next = self
                .osd
                .next_deadline()
                .max(self.now + Duration::from_micros(1));
            if next > end {
                self.now = end;
                return;
            }
            self.now = next;
            let mut out = Vec::new();
            self.osd.on_input(self.now, Input::Tick, &mut out);
            self.perform(out);
        }
    }

    fn set(&mut self, key: &str, value: Option<&str>) {
        let change = Change::Config {
            key: key.into(),
            value: value.map(str::to_owned),
        };
        let delta = self.commit(vec![change]);
        self.hear(MON, delta);
    }

    fn beacons_in(&mut self, span: Duration) -> usize {
        self.beacons.clear();
        self.run(span);
        self.beacons.len()
    }
}

#[test]
fn an_option_takes_effect_without_a_restart_and_ends_as_it_began() {
    let mut rig = Rig::live();
    let span = Duration::from_secs(10);
    let by_default = rig.beacons_in(span);
    assert!(
        (4..=7).contains(&by_default),
        "one in two seconds: {by_default}"
    );
    rig.set("osd.beacon_interval_ms", Some("200"));
    let often = rig.beacons_in(span);
    // It reads its clock every 150 ms or so.
    assert!((30..=50).contains(&often), "several a second: {often}");
    rig.set("osd.beacon_interval_ms", None);
    rig.run(Duration::from_secs(2));
    let again = rig.beacons_in(span);
    assert!((4..=7).contains(&again), "{again}");
}

#[test]
fn a_new_leader_of_the_monitors_is_told_everything_once() {
    let mut rig = Rig::live();
    let led = |leader, term| {
        Message::Led(Led {
            leader: MonId(leader),
            term,
        })
    };
    rig.hear(MON, led(0, 4));
    rig.run(Duration::from_secs(3));
    rig.beacons.clear();
    rig.run(Duration::from_secs(5));
    assert!(
        rig.beacons
            .iter()
            .all(|(_, beacon)| !beacon.all && beacon.pgs.is_empty()),
        "nothing has changed"
    );
    for message in [led(1, 5), led(1, 6)] {
        rig.beacons.clear();
        let heard = rig.now;
        rig.hear(MON, message.clone());
        rig.run(Duration::from_secs(3));
        let (at, first) = &rig.beacons[0];
        assert!(
            at.since(heard) < Duration::from_millis(200),
            "at once: {:?}",
            at.since(heard)
        );
        assert!(first.all && first.pgs.len() == 2, "{first:?}");
        assert!(
            rig.beacons[1..].iter().all(|(_, beacon)| !beacon.all),
            "once"
        );
        // The same map again, from another monitor: it is known.
        rig.beacons.clear();
        rig.hear(Entity::Mon(MonId(2)), message);
        rig.run(Duration::from_secs(3));
        assert!(rig.beacons.iter().all(|(_, beacon)| !beacon.all));
    }
}

/// A beacon that was lost between two monitors left the leader without a PG's state until it
/// changed.
#[test]
fn everything_is_reported_again_now_and_then() {
    let mut rig = Rig::live();
    rig.beacons.clear();
    rig.run(Duration::from_secs(70));
    let full = rig
        .beacons
        .iter()
        .filter(|(_, beacon)| beacon.all && beacon.pgs.len() == 2)
        .count();
    assert!((2..=3).contains(&full), "every half minute: {full}");
}

/// Any client could stop an OSD with a refusal, or send it a map.
#[test]
fn only_monitors_stop_an_osd_and_no_client_gives_it_a_map() {
    let mut rig = Rig::live();
    let client = Entity::Client(ClientId(7));
    rig.hear(
        client,
        Message::Refused(Refused {
            why: "go away".to_owned(),
            process: 0,
        }),
    );
    assert_eq!(rig.halted, None);
    let before = rig.osd.epoch();
    let delta = rig.commit(vec![Change::Flags { flags: 1 }]);
    for message in [
        delta,
        Message::MapFull(MapFull {
            map: rig.map.to_bytes().into(),
        }),
    ] {
        let input = Input::Message {
            from: client,
            epoch: before,
            message,
        };
        rig.osd.on_input(rig.now, input, &mut Vec::new());
    }
    assert_eq!(rig.osd.epoch(), before);
    rig.hear(
        MON,
        Message::Refused(Refused {
            why: "another store".to_owned(),
            process: 777,
        }),
    );
    assert_eq!(rig.halted, None, "that was the process before this one");
    rig.hear(
        MON,
        Message::Refused(Refused {
            why: "another history".to_owned(),
            process: 0,
        }),
    );
    assert_eq!(rig.halted.as_deref(), Some("another history"));
}
