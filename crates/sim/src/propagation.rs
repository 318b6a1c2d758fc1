//! Measures how long it takes until a new version of a program is active on every OSD (Malacology,
//! EuroSys 2017, §6.1.2, Fig. 8; MAL-E8, MAL-73).
//!
//! The real roles run on a simulated network without faults. The model: a message takes 20 to 200
//! µs one way (round trip 0.04 to 0.4 ms, mean 0.22), a daemon is busy for [`SERVICE_NS`] with
//! every input, a flush takes 0.05 to 2 ms. The latency of an update at an OSD lasts from the
//! moment the first monitor has applied the commit until the OSD can run the new version: the map
//! has come through other OSDs, and the source was read from its object's primary, checked and
//! compiled. The proposal is excluded, as in the paper, and reported separately.

use crate::plan::{MS, Plan, SECOND};
use crate::process::Daemon;
use crate::world::{Event, World};
use bytes::Bytes;
use nacre_client::{ObjectCluster, Operation};
use nacre_types::{Entity, Name, Time};
use nacre_wire::map::programs::{PROGRAM_POOL, source_object};
use nacre_wire::map::{ProgramKind, SourceDigest};
use nacre_wire::msg::client::SubOp;
use serde_json::json;

/// How long a daemon is busy with one input.
pub const SERVICE_NS: u64 = 30_000;
const CLASS: ProgramKind = ProgramKind::Class {};
const NAME: &str = "updated";

/// The measurements.
#[derive(Clone, Debug, Default)]
pub struct Propagation {
    /// Nanoseconds from commit to live, one for each update and OSD, sorted.
    pub live_ns: Vec<u64>,
    /// Nanoseconds from the order to its commit, one for each update, sorted.
    pub commit_ns: Vec<u64>,
    /// Messages from monitors to OSDs per update, from the order until all were active.
    pub mon_messages: f64,
}

/// The parameters.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// OSDs of the cluster.
    pub osds: u32,
    /// Monitors of the cluster.
    pub mons: u32,
    /// Updates of one class, one after another.
    pub updates: u64,
    /// Duration of a flush in milliseconds, minimum and maximum, instead of 0.05 to 2.
    pub flush_ms: Option<(u64, u64)>,
    /// Milliseconds for which the monitors gather changes before they propose them, instead of the
    /// default.
    pub propose_interval_ms: Option<u64>,
}

impl Setup {
    /// The model of the module head.
    #[must_use]
    pub const fn of(osds: u32, mons: u32, updates: u64) -> Self {
        Self {
            osds,
            mons,
            updates,
            flush_ms: None,
            propose_interval_ms: None,
        }
    }
}

/// Measures this many updates of one class.
///
/// # Panics
/// When an update does not become active within minutes of virtual time.
#[must_use]
pub fn measure(setup: &Setup, seed: u64) -> Propagation {
    let Setup {
        osds,
        mons,
        updates,
        ..
    } = *setup;
    let plan = Plan {
        osds,
        mons,
        ..Plan::quiet(seed)
    };
    let mut world = World::new(plan, false);
    world.service_ns = SERVICE_NS;
    if let Some((least, most)) = setup.flush_ms {
        world.flush_ns = (least * MS, most * MS);
    }
    world.faults = false;
    world
        .clients
        .iter_mut()
        .for_each(|client| client.finished = true);
    world.run_while(120 * SECOND, &mut |world| !world.is_clean());
    if let Some(ms) = setup.propose_interval_ms {
        world.order(&json!({"command": "config set", "key": "mon.propose_interval_ms", "value": ms.to_string()}));
    }
    world.order(&json!({"command": "program prepare", "kind": "class", "client": "admin"}));
    let pool = |world: &World| {
        world.clients[0]
            .role
            .map()?
            .pool_named(&PROGRAM_POOL.into())
            .map(|(id, _)| id)
    };
    world.run_while(60 * SECOND, &mut |world| {
        pool(world).is_none() || !world.is_clean()
    });
    let pool = pool(&world).expect("just seen");
    let mut out = Propagation::default();
    let mut messages = 0;
    for number in 1..=updates {
        let source = format!(
            "-- {number}\nfunction get(input, output) output:append(\"{number}\") end\nobjclass.register(get)\n"
        );
        let digest = SourceDigest(*blake3::hash(source.as_bytes()).as_bytes());
        let operation = Operation {
            pool,
            object: source_object(CLASS, &NAME.into(), &digest),
            ops: vec![SubOp::WriteFull {
                length: source.len() as u64,
            }],
            payload: vec![Bytes::from(source.clone())],
            ..Operation::default()
        };
        let now = Time(world.now());
        world.clients[0]
            .role
            .submit(now, operation)
            .expect("nothing else is in flight");
        world.flush_client(0);
        world.run_while(60 * SECOND, &mut |world| {
            world.clients[0].role.in_flight() > 0
        });
        let (ordered, sent) = (world.now(), world.mon_to_osd);
        world.order(&json!({
            "command": "program install", "kind": "class", "name": NAME, "source": source, "client": "admin",
        }));
        let id = (CLASS, Name::from(NAME));
        let committed = |world: &World| {
            let program = world.ledger.map().and_then(|map| map.programs.get(&id));
            program.is_some_and(|program| program.activation >= number)
        };
        world.run_while(60 * SECOND, &mut |world| !committed(world));
        let commit = world.now();
        out.commit_ns.push(commit - ordered);
        let mut live = vec![false; osds as usize];
        world.run_while(60 * SECOND, &mut |world| {
            // Only a daemon that has just handled an event can have become active.
            let Some(Entity::Osd(osd)) = world.last else {
                return true;
            };
            let at = osd.0 as usize;
            if !live[at] && is_live(world, osd.0, number) {
                live[at] = true;
                out.live_ns.push(world.now() - commit);
            }
            live.iter().any(|live| !live)
        });
        messages += world.mon_to_osd - sent;
        // The next update must not overlap with the rest of this one.
        let until = world.now() + world.rng.between(5 * MS, 50 * MS);
        world.run_while(SECOND, &mut |world| world.now() < until);
    }
    out.live_ns.sort_unstable();
    out.commit_ns.sort_unstable();
    out.mon_messages = messages as f64 / updates as f64;
    out
}

fn is_live(world: &World, osd: u32, activation: u64) -> bool {
    let who = Entity::Osd(nacre_types::OsdId(osd));
    let Some(Daemon::Osd(osd)) = world
        .processes
        .get(&who)
        .and_then(|process| process.role.as_ref())
    else {
        return false;
    };
    osd.programs().live().any(|(_, live)| live >= activation)
}

impl World {
    /// Handles events while a condition holds; bounded in virtual time.
    fn run_while(&mut self, most: u64, holds: &mut dyn FnMut(&Self) -> bool) {
        let end = self.now() + most;
        self.last = None;
        while holds(self) {
            let (_, event) = self.schedule.pop().expect("somebody always wants a tick");
            self.last = match &event {
                Event::Input { who, .. } | Event::Disk { who, .. } => Some(*who),
                _ => None,
            };
            self.handle(event);
            assert!(
                self.now() < end,
                "it does not come to that: {}",
                self.unclean()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MAL-E8 and MAL-73 on a small scale, in virtual time: the full measurement is a command of
    /// its own.
    #[test]
    fn updates_are_live_soon_and_the_monitors_hardly_notice_how_many_there_are() {
        let few = measure(&Setup::of(6, 1, 10), 1);
        let many = measure(&Setup::of(30, 1, 10), 1);
        assert_eq!((few.live_ns.len(), many.live_ns.len()), (60, 300));
        // Two roots, and occasionally a session; not five times as many.
        assert!(
            many.mon_messages <= few.mon_messages + 2.5,
            "{} and {}",
            few.mon_messages,
            many.mon_messages
        );
        assert!(many.live_ns[299] < 80 * MS, "{} ms", many.live_ns[299] / MS);
    }

    /// MAL-17: the interval is observed, and it dominates the duration of a commit, not the disk.
    /// The paper's monitors on hard disks took at least 222 ms on average.
    #[test]
    fn a_commit_takes_two_flushes_and_the_interval() {
        let disks = Setup {
            flush_ms: Some((8, 25)),
            ..Setup::of(3, 3, 20)
        };
        let soon = measure(&disks, 1);
        let late = measure(
            &Setup {
                propose_interval_ms: Some(1000),
                ..disks
            },
            1,
        );
        let mean = |all: &[u64]| all.iter().sum::<u64>() / all.len() as u64 / MS;
        assert!(mean(&soon.commit_ns) < 111, "{} ms", mean(&soon.commit_ns));
        assert!(
            (1000..1111).contains(&mean(&late.commit_ns)),
            "{} ms",
            mean(&late.commit_ns)
        );
    }
}
