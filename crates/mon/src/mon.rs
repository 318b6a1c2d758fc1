//! The role's interface for a host.
//!
//! ```text
//!            open()                    store answered                      store failed, other history,
//!  ─────────▶ Booting ──────────────────▶ Live ───────────────────────────▶ Halted    removed from the cluster
//!             reads its store             is a member                        reports why, once; then does nothing
//! ```

use nacre_role::{Input, Output, Role};
use nacre_store::{Event, Transaction};
use nacre_types::{ClusterId, Entity, Epoch, MonId, Name, OsdId, Time};
use nacre_wire::map::{Address, Change, ClusterMap, CrushSection, MonInfo};
use nacre_wire::msg::Message;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::hierarchy;
use crate::live::Live;
use crate::meta::programs::Programs;
use crate::meta::scripts::Scripts;
use crate::open::{Opening, Progress};
use crate::raft::member::Member;
use crate::raft::{founding, record::Identity};
use crate::state::State;

/// Startup settings of a monitor; everything else is in the map's configuration.
#[derive(Clone, Debug)]
pub struct MonConfig {
    /// Its number.
    pub id: MonId,
    /// Its cluster; a store of another one is refused.
    pub cluster: ClusterId,
    /// Seed for election timeouts. Any value; preferably different ones.
    pub seed: u64,
    /// Time between consensus ticks: a heartbeat every 2, an election after 10 to 19 without one.
    pub tick: Duration,
    /// The wall clock at [`Time::ZERO`], in milliseconds since 1970; 0 when unknown. Only used to
    /// stamp human-readable log lines.
    pub unix_ms_at_zero: u64,
}

impl MonConfig {
    /// With the default tick of 50 ms and no wall clock.
    #[must_use]
    pub const fn new(id: MonId, cluster: ClusterId, seed: u64) -> Self {
        Self {
            id,
            cluster,
            seed,
            tick: Duration::from_millis(50),
            unix_ms_at_zero: 0,
        }
    }
}

/// Initial state of a new cluster, the same for all its first monitors.
#[derive(Clone, Debug)]
pub struct Founding {
    /// The new cluster.
    pub cluster: ClusterId,
    /// Its first monitors.
    pub mons: BTreeMap<MonId, Address>,
    /// Further changes for the first epoch, such as options.
    pub changes: Vec<Change>,
}

/// Counters since start, for the host to export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Proposals made.
    pub proposals: u64,
    /// Epochs applied.
    pub epochs: u64,
    /// Messages sent with a map or a part of it.
    pub maps_sent: u64,
    /// Messages received, by sender (`mon`, `osd`, `client`) and name.
    pub received: BTreeMap<(&'static str, &'static str), u64>,
    /// Number of elections whose result this monitor saw.
    pub leaders_seen: u64,
    /// Commands answered.
    pub commands: u64,
    /// Requests refused, by reason.
    pub rejects: BTreeMap<&'static str, u64>,
}

enum Phase {
    Booting(Box<Opening>),
    Live(Box<Live>),
    Halted,
}

/// A monitor. See the module head.
pub struct Mon {
    config: MonConfig,
    phase: Phase,
    nothing: ClusterMap,
    programs: Option<Box<dyn Programs>>,
    /// Names of clients that connected before this monitor was a member.
    names: BTreeMap<Entity, Name>,
}

impl Role for Mon {
    fn on_turn(
        &mut self,
        now: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        out: &mut Vec<Output>,
    ) {
        for input in inputs {
            match input {
                Input::Message {
                    from,
                    epoch,
                    message,
                } => self.on_message(now, from, epoch, message, out),
                Input::Tick => self.on_tick(now, out),
                Input::Store(event) => self.on_store(now, event, out),
                Input::Gone(who) => self.on_disconnect(now, who, out),
                Input::Named(who, name) => self.on_client_name(who, name),
                Input::Absent(_)
                | Input::MonSession
                | Input::Device(_)
                | Input::Done(_)
                | Input::Stopping => {}
            }
        }
    }
    fn next_deadline(&self) -> Time {
        match &self.phase {
            Phase::Live(live) => live.next_deadline(),
            Phase::Booting(_) | Phase::Halted => Time::MAX,
        }
    }
    fn map(&self) -> Option<&ClusterMap> {
        self.is_live().then(|| Self::map(self))
    }
}

impl Mon {
    /// The transaction for a first monitor's empty store, before it is opened; the same `founding`
    /// for all of them.
    ///
    /// # Panics
    /// When `founding` does not name the monitor: a caller's mistake.
    #[must_use]
    pub fn bootstrap(id: MonId, founding_: &Founding) -> Transaction {
        assert!(
            founding_.mons.contains_key(&id),
            "{id} is one of the monitors that found the cluster"
        );
        let crush =
            CrushSection::parse(&hierarchy::initial()).expect("the initial hierarchy parses");
        let mut state = State::new(ClusterMap::empty(founding_.cluster, crush));
        let mon = |(mon, address): (&MonId, &Address)| {
            let Member { mon, store } = Member::founder(*mon);
            Change::MonSet {
                mon,
                info: MonInfo {
                    address: address.clone(),
                    store,
                    leaving: false,
                },
            }
        };
        let changes = founding_
            .mons
            .iter()
            .map(mon)
            .chain(founding_.changes.iter().cloned())
            .collect();
        state.found(changes);
        let members: Vec<Member> = founding_
            .mons
            .keys()
            .copied()
            .map(Member::founder)
            .collect();
        let Member { mon, store } = Member::founder(id);
        founding(
            Identity {
                cluster: founding_.cluster,
                mon,
                store,
            },
            &members,
            Some(state.to_image()),
        )
    }

    /// The transaction for the empty store of a monitor that will join a running cluster (`mon
    /// add`, which names the same store).
    #[must_use]
    pub fn bootstrap_joining(id: MonId, store: u64, cluster: ClusterId) -> Transaction {
        founding(
            Identity {
                cluster,
                mon: id,
                store,
            },
            &[],
            None,
        )
    }

    /// Starts, by reading its store.
    #[must_use]
    pub fn open(config: MonConfig, now: Time, out: &mut Vec<Output>) -> Self {
        Self::open_with(config, Box::new(Scripts::default()), now, out)
    }

    /// The same with another implementation of the programs that namespaces of metadata name.
    #[must_use]
    pub fn open_with(
        config: MonConfig,
        programs: Box<dyn Programs>,
        _now: Time,
        out: &mut Vec<Output>,
    ) -> Self {
        let crush =
            CrushSection::parse(&hierarchy::initial()).expect("the initial hierarchy parses");
        let nothing = ClusterMap::empty(config.cluster, crush);
        let opening = Opening::begin(config.clone(), out);
        Self {
            config,
            phase: Phase::Booting(Box::new(opening)),
            nothing,
            programs: Some(programs),
            names: BTreeMap::new(),
        }
    }

    /// A message arrived from `from`, whose map is at `epoch`.
    pub fn on_message(
        &mut self,
        now: Time,
        from: Entity,
        epoch: Epoch,
        message: Message,
        out: &mut Vec<Output>,
    ) {
        if let Phase::Live(live) = &mut self.phase {
            live.on_message(now, from, epoch, message, out);
            self.stop_if_halted(out);
        }
    }

    /// The name that a client sent when it connected, before its first message. It is not verified
    /// until authentication exists.
    pub fn on_client_name(&mut self, who: Entity, name: Name) {
        match &mut self.phase {
            Phase::Live(live) => live.on_client_name(who, name),
            Phase::Booting(_) => drop(self.names.insert(who, name)),
            Phase::Halted => {}
        }
    }

    /// A connection has ended.
    pub fn on_disconnect(&mut self, now: Time, who: Entity, out: &mut Vec<Output>) {
        self.names.remove(&who);
        if let Phase::Live(live) = &mut self.phase {
            live.on_disconnect(now, who, out);
            self.stop_if_halted(out);
        }
    }

    /// An event of the store.
    pub fn on_store(&mut self, now: Time, event: Event, out: &mut Vec<Output>) {
        if let Event::Failed(failure) = &event {
            self.halt(
                format!("the store failed ({failure}): it must not be trusted with a retry. Check the disk"),
                out,
            );
            return;
        }
        match &mut self.phase {
            Phase::Booting(opening) => match opening.on_store(event, out) {
                Progress::Reading => {}
                Progress::Failed(why) => self.halt(why, out),
                Progress::Done(state, recovered) => {
                    let programs = self.programs.take().expect("a monitor opens once");
                    match Live::new(self.config.clone(), programs, now, *state, *recovered, out) {
                        Ok(mut live) => {
                            for (who, name) in std::mem::take(&mut self.names) {
                                live.on_client_name(who, name);
                            }
                            self.phase = Phase::Live(Box::new(live));
                        }
                        Err(why) => self.halt(why, out),
                    }
                    self.stop_if_halted(out);
                }
            },
            Phase::Live(live) => {
                if let Event::Committed(token) = event {
                    live.on_committed(now, token, out);
                }
                self.stop_if_halted(out);
            }
            Phase::Halted => {}
        }
    }

    /// Time passed; call at or after [`Role::next_deadline`].
    pub fn on_tick(&mut self, now: Time, out: &mut Vec<Output>) {
        if let Phase::Live(live) = &mut self.phase {
            live.on_tick(now, out);
            self.stop_if_halted(out);
        }
    }

    fn halt(&mut self, why: String, out: &mut Vec<Output>) {
        self.phase = Phase::Halted;
        out.push(Output::Halt { why });
    }

    fn stop_if_halted(&mut self, out: &mut Vec<Output>) {
        if let Phase::Live(live) = &mut self.phase
            && let Some(why) = live.halted()
        {
            self.halt(why, out);
        }
    }

    /// The committed map as this monitor knows it.
    #[must_use]
    pub fn map(&self) -> &ClusterMap {
        match &self.phase {
            Phase::Live(live) => live.state().map(),
            Phase::Booting(_) | Phase::Halted => &self.nothing,
        }
    }
    /// Its epoch, for frames.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.map().epoch
    }
    /// Whether it is a member of consensus.
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Live(_))
    }
    /// Whether it leads and may answer.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        matches!(&self.phase, Phase::Live(live) if live.leads())
    }
    /// The OSDs that a leader keeps down because another OSD does not hear them (F31).
    #[must_use]
    pub fn kept_down(&self) -> Vec<OsdId> {
        match &self.phase {
            Phase::Live(live) if live.leads() => live.kept_down(),
            _ => Vec::new(),
        }
    }
    /// The consensus term it is in.
    #[must_use]
    pub fn term(&self) -> u64 {
        match &self.phase {
            Phase::Live(live) => live.term(),
            Phase::Booting(_) | Phase::Halted => 0,
        }
    }
    /// The leader, as far as it is known.
    #[must_use]
    pub fn leader(&self) -> Option<MonId> {
        match &self.phase {
            Phase::Live(live) => live.leader(),
            Phase::Booting(_) | Phase::Halted => None,
        }
    }
    /// The replicated state, for the simulator's comparisons.
    #[must_use]
    pub fn state(&self) -> Option<&State> {
        match &self.phase {
            Phase::Live(live) => Some(live.state()),
            Phase::Booting(_) | Phase::Halted => None,
        }
    }
    /// First and last entry of the consensus log, and the last applied.
    #[must_use]
    pub fn log_bounds(&self) -> (u64, u64, u64) {
        match &self.phase {
            Phase::Live(live) => live.log_bounds(),
            Phase::Booting(_) | Phase::Halted => (0, 0, 0),
        }
    }
    /// The voters, as applied by this monitor.
    #[must_use]
    pub fn voters(&self) -> Vec<MonId> {
        match &self.phase {
            Phase::Live(live) => live.voters(),
            Phase::Booting(_) | Phase::Halted => Vec::new(),
        }
    }
    /// Voters and learners, with their stores, as applied by this monitor.
    #[must_use]
    pub fn members(&self) -> (Vec<Member>, Vec<Member>) {
        match &self.phase {
            Phase::Live(live) => live.members(),
            Phase::Booting(_) | Phase::Halted => Default::default(),
        }
    }
    /// Counts since start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        match &self.phase {
            Phase::Live(live) => live.counters(),
            Phase::Booting(_) | Phase::Halted => Counters::default(),
        }
    }
    /// Asserts the invariants of the crate's head that one monitor can see.
    pub fn check(&self) {
        if let Phase::Live(live) = &self.phase {
            live.check();
        }
    }
}
