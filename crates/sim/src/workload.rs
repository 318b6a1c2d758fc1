//! What clients do, one module per kind of work, and what all clients record of it.
//!
//! ```text
//!  Plan ─▶ SimClient: its role and its Works
//!            │ results
//!            ▼
//!          Records, one for all clients ─▶ checked at the end, counted in the Report
//! ```
//! A new kind of work is a module that implements [`Workload`], and a line in the list below. When
//! a seed has it is a field of the [`Plan`]. What [`crate::verdict`] finds on the disks, and what
//! the operator orders for a kind of work, is not part of the trait: that is not done by clients.

use crate::borders::Borders;
use crate::claims::Chores;
use crate::fencing::Fencer;
use crate::filling::Filler;
use crate::ledger::Ledger;
use crate::plan::{MS, Plan};
use crate::programs::Calls;
use crate::programs::library::Patron;
use crate::programs::random::caller::Caller;
use crate::registers::RegisterWork;
use crate::rng::Rng;
use crate::snapshots::Snapper;
use crate::spanning::Spanner;
use crate::streams::Streamer;
use nacre_client::{Client, ClientConfig, Completion, ObjectCluster, OpId, Operation};
use nacre_types::{ClientId, Instance, ObjectId, PoolId, Time};
use nacre_wire::Payload;
use nacre_wire::msg::client::SubOp;
use std::fmt;
use std::time::Duration;

/// One kind of work of one client. Its methods are called with what all clients record of it.
pub trait Workload: Sized {
    /// What all clients record.
    type Records: Default;
    /// Counters for the report; an empty text if there are none.
    type Counts: fmt::Display;

    /// For a client, if it does such work.
    fn new(plan: &Plan, place: &Place) -> Option<Self>;
    /// What is recorded before the first operation.
    fn records(_: &Plan) -> Self::Records {
        Self::Records::default()
    }
    /// When it next has something to do, in virtual nanoseconds.
    fn next_at(&self, finished: bool) -> u64;
    /// Whether nothing is in flight, and nothing is left to do once the client is finished.
    fn is_settled(&self, role: &Client, records: &Self::Records) -> bool;
    /// Objects whose answers must arrive in time when there are no faults, and since when it waits.
    fn waits_for(&self, _: &Self::Records) -> Vec<(ObjectId, u64)> {
        Vec::new()
    }
    /// Handles the end of an operation. Returns whether it was one of its own.
    ///
    /// # Panics
    /// When a check fails: that is the finding.
    fn on_completion(
        &mut self,
        ended: &Completion,
        turn: &mut Turn<'_>,
        records: &mut Self::Records,
    ) -> bool;
    /// Abandons what takes too long, and begins what is due.
    fn advance(&mut self, turn: &mut Turn<'_>, records: &mut Self::Records);
    /// The counters.
    fn counts(records: &Self::Records) -> Self::Counts;
    /// The simulator's own rare paths that it took.
    fn rare(_: &Self::Records) -> Borders {
        Borders::default()
    }
    /// Checks at the end what all clients recorded.
    ///
    /// # Panics
    /// When a check fails: that is the finding.
    fn check(_: &Self::Records, _: &Ledger) {}
}

/// The pool of the registers, which is used by all kinds of work.
pub const POOL: PoolId = PoolId(1);

/// An operation on an object of that pool.
#[must_use]
pub fn operation(object: ObjectId, ops: Vec<SubOp>, payload: Payload) -> Operation {
    Operation {
        pool: POOL,
        object,
        ops,
        payload,
        ..Operation::default()
    }
}

/// What a client is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Everything that the plan has.
    All,
    /// Only registers: it is short-lived, and locks, watches and operations in flight belong to an
    /// instance; or it is slow.
    Registers,
    /// Only to be fenced.
    Fenced,
}

/// A client's place among all clients.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its number, from 0.
    pub index: u64,
    /// What it is there for.
    pub duty: Duty,
    /// Whether it ends after an operation or two and restarts as the next instance.
    pub is_short_lived: bool,
    /// Longest pause between two operations on registers, in nanoseconds.
    pub think_ns: u64,
}

impl Place {
    fn new(plan: &Plan, index: u64, rng: &mut Rng) -> Self {
        let is_short_lived = plan.lives && index % 2 == 1;
        // A slow client reports for a long time that nothing newer was answered, so a late
        // duplicate cannot be distinguished from a first request by that.
        let slow = plan.contend && !index.is_multiple_of(4);
        let (least, most) = if slow {
            (MS * 100, MS * 1000)
        } else {
            (MS / 10, MS * 20)
        };
        let duty = if index == plan.clients {
            Duty::Fenced
        } else if is_short_lived || slow {
            Duty::Registers
        } else {
            Duty::All
        };
        let think_ns = rng.between(least, most);
        Self {
            index,
            duty,
            is_short_lived,
            think_ns,
        }
    }
    /// Whether it does everything, where the plan has this.
    #[must_use]
    pub fn does(&self, planned: bool) -> bool {
        planned && self.duty == Duty::All
    }
}

/// What a kind of work needs from its client to act.
#[derive(Debug)]
pub struct Turn<'a> {
    /// Virtual time in nanoseconds.
    pub now: u64,
    /// The client's clock.
    pub local: Time,
    /// Whether to begin no new work.
    pub finished: bool,
    /// All faults have ended: frequent operations find nothing more.
    pub calm: bool,
    /// The role.
    pub role: &'a mut Client,
    config: &'a mut ClientConfig,
    /// All random decisions.
    pub rng: &'a mut Rng,
}

impl Turn<'_> {
    /// Begins an operation, unless the role has too many in flight.
    pub fn submit(&mut self, operation: Operation) -> Option<OpId> {
        self.role.submit(self.local, operation).ok()
    }
    /// The client ends and restarts as the next instance.
    pub fn restart(&mut self) {
        self.config.instance = Instance(self.config.instance.0 + 1);
        *self.role = Client::new(*self.config, self.local);
    }
}

macro_rules! workloads {
    ($($(#[$doc:meta])* $name:ident: $kind:ty,)+) => {
        /// Everything that one client does.
        #[derive(Debug)]
        pub struct Works {
            $($(#[$doc])* pub $name: Option<$kind>,)+
        }

        impl Works {
            fn new(plan: &Plan, place: &Place) -> Self {
                Self { $($name: <$kind as Workload>::new(plan, place),)+ }
            }
            fn next_at(&self, finished: bool) -> u64 {
                let all = [$(self.$name.as_ref().map(|work| work.next_at(finished)),)+];
                all.into_iter().flatten().min().unwrap_or(u64::MAX)
            }
            fn is_settled(&self, role: &Client, records: &Records) -> bool {
                $(self.$name.as_ref().is_none_or(|work| work.is_settled(role, &records.$name)))&&+
            }
            fn waits_for(&self, records: &Records) -> Vec<(ObjectId, u64)> {
                let mut all = Vec::new();
                $(all.extend(self.$name.iter().flat_map(|work| work.waits_for(&records.$name)));)+
                all
            }
            /// The end of an operation that was abandoned concerns none.
            fn on_completion(&mut self, end: &Completion, turn: &mut Turn<'_>, all: &mut Records) {
                let _ = $(self
                    .$name
                    .as_mut()
                    .is_some_and(|work| work.on_completion(end, turn, &mut all.$name)))||+;
            }
            fn advance(&mut self, turn: &mut Turn<'_>, records: &mut Records) {
                $(if let Some(work) = &mut self.$name {
                    work.advance(turn, &mut records.$name);
                })+
            }
        }

        /// What all clients record.
        #[derive(Debug)]
        pub struct Records {
            $($(#[$doc])* pub $name: <$kind as Workload>::Records,)+
        }

        impl Records {
            /// Before the first operation.
            #[must_use]
            pub fn new(plan: &Plan) -> Self {
                Self { $($name: <$kind as Workload>::records(plan),)+ }
            }
            /// Checks it at the end.
            ///
            /// # Panics
            /// When a check fails: that is the finding.
            pub fn check(&self, ledger: &Ledger) {
                $(<$kind as Workload>::check(&self.$name, ledger);)+
            }
            /// A report with all counters, and nothing else.
            #[must_use]
            pub fn report(&self) -> Report {
                let mut report = Report {
                    $($name: <$kind as Workload>::counts(&self.$name),)+
                    ..Report::default()
                };
                $(report.rare.add(&<$kind as Workload>::rare(&self.$name));)+
                report
            }
        }

        /// The results of a run.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Report {
            /// Digest over every event in order.
            pub digest: u128,
            /// Number of events.
            pub events: u64,
            /// Number of operations begun.
            pub operations: usize,
            /// Operations with unknown outcome.
            pub unknown: usize,
            /// The last epoch.
            pub epochs: u64,
            /// Number of crashes.
            pub crashes: u64,
            /// Number of disks lost permanently.
            pub disks: u32,
            /// 1 if an object needs an operator's decision in the end, because the only replica of
            /// a version that was never acknowledged is corrupt.
            pub reverts: u32,
            /// Number of monitors that came back with a new store.
            pub mons: u32,
            $($(#[$doc])* pub $name: <$kind as Workload>::Counts,)+
            /// The OSDs' limits and rare paths.
            pub borders: nacre_osd::borders::Borders,
            /// The simulator's own rare paths.
            pub rare: Borders,
            /// Duration in virtual nanoseconds.
            pub simulated_ns: u64,
            /// Comparisons of a member with its primary during the faults.
            pub surveyed: u64,
        }

        impl Report {
            fn counts(&self) -> Vec<String> {
                vec![$(self.$name.to_string(),)+]
            }
        }
    };
}

// A client's works advance in this order. Each draws from the same generator: another order is
// another history of every seed.
workloads! {
    /// Snapshots, rollbacks and copies.
    snaps: Snapper,
    /// Watches, notifies and locks.
    claims: Chores,
    /// Calls of methods.
    programs: Calls,
    /// Calls of random classes.
    randoms: Caller,
    /// Calls of the library's classes.
    library: Patron,
    /// Writes of several objects.
    spans: Spanner,
    /// Several operations in flight on one object.
    streams: Streamer,
    /// Writes that fill devices.
    filling: Filler,
    /// Fenced clients.
    fencing: Fencer,
    /// Registers.
    registers: RegisterWork,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            digest,
            events,
            operations,
            unknown,
            epochs,
            crashes,
            disks,
            mons,
            ..
        } = self;
        write!(
            f,
            "{digest:032x} {events} events, {operations} operations ({unknown} unknown), {epochs} epochs, {crashes} crashes, {disks} disks lost, {mons} monitors moved"
        )?;
        let counts = self.counts().into_iter();
        counts
            .filter(|counts| !counts.is_empty())
            .try_for_each(|counts| write!(f, "; {counts}"))?;
        self.rare
            .counts()
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .try_for_each(|(name, count)| write!(f, "; {name} {count}"))
    }
}

/// One client.
#[derive(Debug)]
pub struct SimClient {
    /// The role.
    pub role: Client,
    config: ClientConfig,
    /// What it does.
    pub works: Works,
    /// Whether to begin no new work.
    pub finished: bool,
}

impl SimClient {
    /// A new client.
    #[must_use]
    pub fn new(plan: &Plan, index: u64, rng: &mut Rng) -> Self {
        let mut config = ClientConfig::new(ClientId(1000 + index));
        config.retry_interval = Duration::from_millis(rng.between(300, 1500));
        config.ops_max = plan.client_ops;
        Self {
            role: Client::new(config, Time(0)),
            config,
            works: Works::new(plan, &Place::new(plan, index, rng)),
            finished: false,
        }
    }

    /// When it next has something to do, in virtual nanoseconds.
    #[must_use]
    pub fn next_at(&self) -> u64 {
        self.works.next_at(self.finished)
    }
    /// Objects it is waiting for, and since when.
    #[must_use]
    pub fn waits_for(&self, records: &Records) -> Vec<(ObjectId, u64)> {
        self.works.waits_for(records)
    }
    /// Whether nothing is in flight or left to do.
    #[must_use]
    pub fn is_settled(&self, records: &Records) -> bool {
        self.works.is_settled(&self.role, records)
    }

    /// Takes results; abandons what takes too long; begins something new. `now` is virtual, `local`
    /// the client's clock.
    pub fn advance(
        &mut self,
        now: u64,
        local: Time,
        calm: bool,
        records: &mut Records,
        rng: &mut Rng,
    ) {
        let mut ended = Vec::new();
        self.role.completions(&mut ended);
        let mut turn = Turn {
            now,
            local,
            finished: self.finished,
            calm,
            role: &mut self.role,
            config: &mut self.config,
            rng,
        };
        for ended in &ended {
            self.works.on_completion(ended, &mut turn, records);
        }
        self.works.advance(&mut turn, records);
    }
}
