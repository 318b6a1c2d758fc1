//! A server as a service of the cluster: it finds a rank without a holder, claims it, and serves
//! that rank's clients while its lease lasts.
//!
//! ```text
//!  standby ── Claim ──▶ holder: Lease, Mds          one rank at most; its host starts another standby
//!                        │
//!  client ──FsSession────┤ of this rank? ── no, or not yet ──▶ FsAway
//!  other ranks ──FsTransaction──▶ Mds ──▶ Peers ──▶ their holders
//!         ──FsRequest────┤ while the lease is valid ──▶ Mds ──Say──▶ client, before the lease is over
//!                        ├ lease ended, fenced, journal damaged ──▶ Halt
//!                        └ a repair wants the file system ─▶ no more from clients ─▶ Mds writes all ─▶ rank given back, Halt
//! ```
//! Invariants: no answer can leave after the lease has ended; messages that arrive while the lease
//! cannot be renewed wait.

use crate::claim::{Claim, Vacancy};
use crate::evaluate::errno::EINVAL;
use crate::follow::{self, Follow};
use crate::lease::Lease;
use crate::mds::{Greeted, Mds, MdsConfig, MdsLimits, Say};
use crate::peers::Peers;
use crate::standby::Standby;
use nacre_client::{MetaDone, MetaWatchId, Metadata, ObjectCluster, Service, WatchNews};
use nacre_role::{Input, Output};
use nacre_types::{ClientId, Entity, Name, Rank, Time};
use nacre_wire::Message;
use nacre_wire::Wire as _;
use nacre_wire::fs::registry::PREFIX;
use nacre_wire::fs::{FsHolder, FsKey};
use nacre_wire::map::Address;
use nacre_wire::msg::fs::{FsAway, FsPing, FsPong, FsSession, FsWelcome};
use nacre_wire::msg::meta::{
    MetaCall, MetaCompare, MetaEvent, MetaOp, MetaRelation, MetaSpan, MetaTarget,
};
use nacre_wire::msg::transaction::{FsFact, FsStep, FsTransaction};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long a client without a connection is waited for.
const CLIENT_GONE: Duration = Duration::from_secs(60);

/// How long after a repair's request the rank is given back at the latest, even if not everything
/// is written.
const RETIRE_MAX: Duration = Duration::from_secs(20);

/// Messages of other ranks that may wait until the holders of these are known.
const STRANGE_MAX: usize = 1_000;

/// Interval at which a holder whose connection broke is pinged.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// The same for a holder that was never reached.
const ASK_FIRST: Duration = Duration::from_secs(1);

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Its identity and address.
    pub me: FsHolder,
    /// How long ranks without a holder are left to less loaded servers.
    pub delay: Duration,
    /// The wall clock at [`Time::ZERO`], in milliseconds since 1970.
    pub unix_ms_at_zero: u64,
    /// Its limits.
    pub limits: MdsLimits,
}

/// An event from a client. A holder whose lease is in doubt handles it later, in order: handling a
/// greeting after the end of its connection used to turn a dead client into a live one for good,
/// with everything it had open. (Simulated.)
#[allow(clippy::large_enum_variant, reason = "nearly all are messages")]
enum Heard {
    Said(Message),
    /// Its connection is gone since then.
    Gone(Time),
}

/// Its state as the holder of a rank.
struct Tenure {
    me: FsHolder,
    file_system: Name,
    rank: Rank,
    lease: Lease,
    mds: Mds,
    /// Whether the lease was valid in the last turn.
    serves: bool,
    /// Since when clients have had no connection.
    gone: BTreeMap<ClientId, Time>,
    /// Greetings that wait until the journal has been read, or until the former session has ended.
    greeted: BTreeMap<ClientId, FsSession>,
    /// Events that have arrived but are not handled yet.
    inbox: VecDeque<(ClientId, Heard)>,
    peers: Peers,
    /// Messages in the name of other ranks from clients that are not known to hold them.
    strange: VecDeque<(ClientId, FsTransaction)>,
    /// A repair claims the file system since then.
    retiring: Option<Time>,
}

#[allow(clippy::large_enum_variant, reason = "there is one of it")]
enum Stage {
    Standby(Claim),
    Holder(Box<Tenure>),
    Ended,
}

/// A holder that a standby watches.
struct Met {
    address: Address,
    /// It has answered: if it stops answering, something has happened to it.
    heard: bool,
    /// When it is pinged next.
    ask_at: Time,
}

/// See the module head.
pub struct Server {
    config: ServerConfig,
    stage: Stage,
    /// Its registration while it has no rank, and the journals that it follows.
    standby: Standby,
    follow: Follow,
    watch: Option<MetaWatchId>,
    /// Holders of ranks that a standby has a connection to, or is about to have.
    met: BTreeMap<ClientId, Met>,
    now: Time,
}

impl Server {
    /// A standby.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        let stage = Stage::Standby(Claim::new(config.me.clone(), config.delay));
        let (standby, follow) = (
            Standby::new(config.me.clone()),
            Follow::new(follow::BYTES_MAX),
        );
        Self {
            config,
            stage,
            standby,
            follow,
            watch: None,
            met: BTreeMap::new(),
            now: Time::ZERO,
        }
    }
    /// Its rank and file system.
    #[must_use]
    pub fn rank(&self) -> Option<(&Name, Rank)> {
        match &self.stage {
            Stage::Holder(tenure) => Some((&tenure.file_system, tenure.rank)),
            Stage::Standby(_) | Stage::Ended => None,
        }
    }

    fn on_input(&mut self, input: Input, metadata: &mut dyn Metadata, out: &mut Vec<Output>) {
        match input {
            Input::Message {
                from: Entity::Client(client),
                message: Message::FsPong(_),
                ..
            } => {
                if let Some(met) = self.met.get_mut(&client) {
                    (met.heard, met.ask_at) = (true, Time::MAX);
                }
            }
            Input::Message {
                from: Entity::Client(client),
                message,
                ..
            } => match &mut self.stage {
                Stage::Holder(tenure) => tenure.inbox.push_back((client, Heard::Said(message))),
                Stage::Standby(_) | Stage::Ended if matches!(message, Message::FsSession(_)) => {
                    out.push(away(client, "this server has no rank"));
                }
                Stage::Standby(_) | Stage::Ended => {}
            },
            Input::Gone(Entity::Client(client)) => match &mut self.stage {
                // Its earlier messages still count, and come first: they were in flight.
                Stage::Holder(tenure) => {
                    tenure.inbox.push_back((client, Heard::Gone(self.now)));
                    tenure.peers.on_gone(client);
                }
                Stage::Standby(_) | Stage::Ended => {
                    if let Some(met) = self.met.get_mut(&client) {
                        met.ask_at = self.now;
                    }
                }
            },
            Input::Absent(Entity::Client(client)) => {
                if let Stage::Holder(tenure) = &mut self.stage {
                    tenure.peers.on_gone(client);
                }
                // A holder that was never reached may be reachable for others.
                if let Some(met) = self.met.get_mut(&client)
                    && std::mem::take(&mut met.heard)
                    && let Stage::Standby(claim) = &mut self.stage
                {
                    claim.on_absent(client);
                }
            }
            Input::Stopping => {
                self.standby.leave(self.now, metadata);
                if let Stage::Holder(tenure) = &self.stage {
                    tenure.give_back(self.now, metadata);
                    self.stage = Stage::Ended;
                }
            }
            _ => {}
        }
    }

    fn take(&mut self, vacancy: Vacancy, lease: Lease, out: &mut Vec<Output>) {
        let followed = self.follow.take(&vacancy.source()).unwrap_or_default();
        // A holder does not follow others' journals.
        self.follow.set(&[]);
        let Vacancy {
            file_system,
            rank,
            settings,
            ..
        } = vacancy;
        out.push(Output::Say(format!(
            "takes rank {} of file system {file_system}",
            rank.0
        )));
        let config = MdsConfig {
            rank,
            namespace: settings.namespace,
            pool: settings.pool,
            layout: settings.layout,
            unix_ms_at_zero: self.config.unix_ms_at_zero,
            limits: self.config.limits,
        };
        self.stage = Stage::Holder(Box::new(Tenure {
            me: self.config.me.clone(),
            peers: Peers::new(file_system.clone()),
            file_system,
            rank,
            lease,
            mds: Mds::open_after(config, followed),
            serves: true,
            gone: BTreeMap::new(),
            greeted: BTreeMap::new(),
            inbox: VecDeque::new(),
            strange: VecDeque::new(),
            retiring: None,
        }));
    }

    /// A standby has a connection to each holder; a holder has none to others.
    fn meet_holders(&mut self, out: &mut Vec<Output>) {
        let holders: BTreeMap<ClientId, Address> = match &self.stage {
            // A holder without an address is in this process.
            Stage::Standby(claim) => {
                let elsewhere = claim
                    .holders()
                    .filter(|holder| !holder.address.0.is_empty());
                elsewhere
                    .map(|holder| (holder.client(), holder.address.clone()))
                    .collect()
            }
            Stage::Holder(_) | Stage::Ended => BTreeMap::new(),
        };
        self.met.retain(|client, met| {
            let stays = holders.get(client) == Some(&met.address);
            if !stays {
                out.push(Output::Meet {
                    peer: Entity::Client(*client),
                    address: Address::default(),
                });
            }
            stays
        });
        for (client, address) in holders {
            self.met.entry(client).or_insert_with(|| {
                out.push(Output::Meet {
                    peer: Entity::Client(client),
                    address: address.clone(),
                });
                Met {
                    address,
                    heard: false,
                    ask_at: self.now,
                }
            });
        }
        // A process that is about to end may accept a connection that it never answers: it is
        // pinged until it answers, or until nothing listens there.
        for (client, met) in self
            .met
            .iter_mut()
            .filter(|(_, met)| met.ask_at <= self.now)
        {
            met.ask_at = self.now + if met.heard { ASK_AGAIN } else { ASK_FIRST };
            out.push(ping(*client));
        }
    }

    fn end(&mut self, why: String, out: &mut Vec<Output>) {
        self.stage = Stage::Ended;
        out.push(Output::Halt { why });
    }
}

/// Shows what it is waiting for, for debugging.
impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.stage {
            Stage::Standby(claim) => write!(f, "{claim:?}"),
            Stage::Holder(tenure) => write!(
                f,
                "{:?}, {} wait, {:?}",
                tenure.lease,
                tenure.inbox.len(),
                tenure.mds
            ),
            Stage::Ended => f.write_str("ended"),
        }
    }
}

impl Service for Server {
    fn on_turn(
        &mut self,
        now: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        objects: &mut dyn ObjectCluster,
        metadata: &mut dyn Metadata,
        out: &mut Vec<Output>,
    ) {
        self.now = now;
        if self.watch.is_none() {
            self.watch = Some(metadata.watch(
                MetaSpan::Prefix {
                    prefix: PREFIX.into(),
                },
                0,
            ));
        }
        for input in inputs {
            self.on_input(input, metadata, out);
        }
        let (mut news, mut done) = (Vec::new(), Vec::new());
        metadata.news(&mut news);
        metadata.done(&mut done);
        if news
            .iter()
            .any(|(_, news)| matches!(news, WatchNews::Ended(_)))
        {
            self.watch = None;
        }
        if let Stage::Standby(claim) = &mut self.stage {
            let mut ended = Vec::new();
            objects.completions(&mut ended);
            for completion in &ended {
                claim.on_completion(now, completion);
                self.follow.on_completion(now, completion);
            }
            if !news.is_empty() {
                claim.on_news();
            }
            let mut taken = None;
            for done in done.drain(..) {
                self.standby.on_done(now, &done);
                taken = claim.on_done(now, done, metadata).or(taken);
            }
            claim.on_turn(now, objects, metadata);
            self.standby
                .on_turn(now, claim.has_file_systems(), metadata);
            self.follow.set(claim.to_follow());
            self.follow.on_turn(now, objects);
            if taken.is_some() {
                self.standby.leave(now, metadata);
            }
            if let Some((vacancy, lease)) = taken {
                self.take(vacancy, lease, out);
            }
        }
        self.meet_holders(out);
        if let Stage::Holder(tenure) = &mut self.stage
            && !news.is_empty()
        {
            tenure.peers.on_news(tenure.mds.waits_for_ranks());
            tenure.look_for_repair(now, &news);
        }
        if let Stage::Holder(tenure) = &mut self.stage
            && let Err(why) = tenure.on_turn(now, &done, objects, metadata, out)
        {
            self.end(why, out);
        }
    }

    fn next_deadline(&self) -> Time {
        match &self.stage {
            Stage::Standby(claim) => {
                let ask = self
                    .met
                    .values()
                    .map(|met| met.ask_at)
                    .min()
                    .unwrap_or(Time::MAX);
                let standby = self.standby.next_deadline(claim.has_file_systems());
                claim
                    .next_deadline()
                    .min(ask)
                    .min(standby)
                    .min(self.follow.next_deadline())
            }
            Stage::Holder(tenure) => tenure.next_deadline(),
            Stage::Ended => Time::MAX,
        }
    }
}

impl Tenure {
    /// Makes the rank look as if it never had a holder.
    fn forget(&self) -> MetaCall {
        let (rank, last) = (
            FsKey::Rank(self.rank).of(&self.file_system),
            FsKey::Last(self.rank).of(&self.file_system),
        );
        let target = MetaTarget::Value {
            value: self.me.to_bytes().into(),
        };
        let delete = |key: Name| MetaOp::Delete {
            span: MetaSpan::Key { key },
        };
        MetaCall::Transact {
            compares: vec![MetaCompare {
                key: last.clone(),
                target,
                relation: MetaRelation::Equal {},
            }],
            then: vec![delete(rank), delete(last)],
            otherwise: Vec::new(),
        }
    }
    /// Handles a turn; returns why it has ended, if it has.
    fn on_turn(
        &mut self,
        now: Time,
        done: &[MetaDone],
        objects: &mut dyn ObjectCluster,
        metadata: &mut dyn Metadata,
        out: &mut Vec<Output>,
    ) -> Result<(), String> {
        let Self {
            file_system, rank, ..
        } = self;
        let name = format!("rank {} of file system {file_system}", rank.0);
        if done
            .iter()
            .fold(false, |ended, done| self.lease.on_done(done) | ended)
        {
            return Err(format!(
                "the lease of {name} has ended: the monitors did not hear from this server in time"
            ));
        }
        if done
            .iter()
            .fold(false, |known, done| self.peers.on_done(done) | known)
        {
            self.mds.on_other_holders();
            // A sender that is not a holder by then is none, or is a former one whose successor
            // will repeat the message.
            for (client, said) in std::mem::take(&mut self.strange) {
                self.on_transaction(client, said);
            }
            self.strange.clear();
        }
        self.lease.renew(now, metadata);
        self.serves = self.lease.is_valid(now);
        if self.serves {
            while let Some((client, heard)) = self.inbox.pop_front() {
                match heard {
                    // The next holder will get it, since it was not answered.
                    Heard::Said(message) if self.retiring.is_some() && !is_of_ranks(&message) => {}
                    Heard::Said(message) => self.on_message(now, client, message, out),
                    Heard::Gone(at) => drop(self.gone.insert(client, at)),
                }
            }
            for (client, session) in std::mem::take(&mut self.greeted) {
                self.begin(now, client, session);
            }
            let mut said = Vec::new();
            self.mds.on_turn(now, objects, &mut said);
            let before = Some(self.lease.until());
            out.extend(said.into_iter().map(|(client, say)| {
                let message = match say {
                    Say::Welcome { again, greeting } => {
                        Message::FsWelcome(FsWelcome { again, greeting })
                    }
                    Say::Reply(reply) => Message::FsReply(reply),
                    Say::Safe(safe) => Message::FsSafe(safe),
                    Say::Evicted(evicted) => Message::FsEvicted(evicted),
                    Say::Forget(forget) => Message::FsForget(forget),
                    Say::Locked(locked) => Message::FsLocked(locked),
                    Say::Caps(caps) => Message::FsCaps(caps),
                };
                Output::Send {
                    to: Entity::Client(client),
                    message,
                    before,
                }
            }));
            self.say_to_peers(out);
            let long_gone = |_: &ClientId, since: &mut Time| now.since(*since) >= CLIENT_GONE;
            for (client, _) in self.gone.extract_if(.., long_gone) {
                self.mds.evict(client);
            }
        }
        self.peers.on_turn(now, metadata);
        if let Some(why) = self.mds.ended() {
            return Err(format!("{name} cannot be served: {why}"));
        }
        if let Some(since) = self.retiring
            && (self.mds.is_retired() || now.since(since) >= RETIRE_MAX)
        {
            self.give_back(now, metadata);
            return Err(format!(
                "{name} is given back: a repair wants it for itself"
            ));
        }
        Ok(())
    }

    /// Whether a repair claims the file system: then nothing new is executed, and everything is
    /// written.
    fn look_for_repair(&mut self, now: Time, news: &[(MetaWatchId, WatchNews)]) {
        let key = FsKey::Repair.of(&self.file_system);
        let is_put =
            |event: &MetaEvent| matches!(event, MetaEvent::Put { pair } if pair.key == key);
        let is_wanted = |(_, news): &(MetaWatchId, WatchNews)| match news {
            WatchNews::Events { events, .. } => events.iter().any(is_put),
            WatchNews::Ended(_) => false,
        };
        if self.retiring.is_none() && news.iter().any(is_wanted) {
            self.retiring = Some(now);
            self.mds.retire();
        }
    }
    /// The next holder need not wait for the lease; this one sends nothing more.
    fn give_back(&self, now: Time, metadata: &mut dyn Metadata) {
        if self.mds.is_idle() {
            // It has nothing in flight: it need not be fenced.
            let _ = metadata.submit(now, self.forget());
        }
        self.lease.revoke(now, metadata);
    }

    /// Only the holder of a rank may speak for it.
    fn on_transaction(&mut self, client: ClientId, said: FsTransaction) {
        if said.file_system != self.file_system || said.to != self.rank.0 {
            return;
        }
        if self.peers.is_holder(Rank(said.from), client) {
            self.mds
                .on_transaction(Rank(said.from), said.transaction, said.step);
        } else if self.strange.len() < STRANGE_MAX {
            self.strange.push_back((client, said));
        }
    }
    /// Messages of this rank to others.
    fn say_to_peers(&mut self, out: &mut Vec<Output>) {
        for (to, transaction, step) in self.mds.take_transactions() {
            if let (Some(false), FsStep::Prepare { index, .. }) = (self.peers.has(to), &step) {
                // There is no such rank.
                let fact = FsFact::Failed { errno: EINVAL };
                self.mds.on_transaction(
                    to,
                    transaction,
                    FsStep::Prepared {
                        index: *index,
                        fact,
                    },
                );
                continue;
            }
            let (from, file_system) = (self.rank.0, self.file_system.clone());
            let said = FsTransaction {
                file_system,
                from,
                to: to.0,
                transaction,
                step,
            };
            self.peers.say(said, self.lease.until(), out);
        }
    }

    fn on_message(&mut self, now: Time, client: ClientId, message: Message, out: &mut Vec<Output>) {
        self.mds.on_heard(now, client);
        match message {
            Message::FsSession(session) => {
                if session.file_system != self.file_system || session.rank != self.rank.0 {
                    return out.push(away(client, "this server has another rank"));
                }
                self.gone.remove(&client);
                self.begin(now, client, session);
            }
            Message::FsRequest(request) => self.mds.on_request(client, request),
            Message::FsTransaction(said) => self.on_transaction(client, said),
            Message::FsForgot(forgot) => self.mds.on_forgot(client, forgot),
            // What it requested came before it.
            Message::FsSync(_) => self.mds.hurry(),
            // It would keep its cache for longer.
            Message::FsPing(_) if self.mds.is_evicting(client) => {}
            Message::FsPing(FsPing { number }) => {
                let (to, before) = (Entity::Client(client), Some(self.lease.until()));
                out.push(Output::Send {
                    to,
                    message: Message::FsPong(FsPong { number }),
                    before,
                });
            }
            Message::FsInquire(asked) if asked.rank == self.rank.0 => {
                let (to, before) = (Entity::Client(client), Some(self.lease.until()));
                out.push(Output::Send {
                    to,
                    message: Message::FsFigures(self.mds.figures()),
                    before,
                });
            }
            Message::FsCaughtUp(_) => self.mds.on_caught_up(client),
            Message::FsLeave(_) => {
                self.gone.remove(&client);
                self.greeted.remove(&client);
                self.mds.on_leave(client);
            }
            _ => {}
        }
    }

    fn begin(&mut self, now: Time, client: ClientId, session: FsSession) {
        let known = (session.known, session.greeting);
        let locks = (&*session.locks, &*session.waits);
        match self
            .mds
            .on_session_with(client, session.instance, known, &session.opens, locks)
        {
            Greeted::Taken => {
                self.mds.on_heard(now, client);
                self.mds.on_about(client, &session.about);
                self.mds.on_delegable(client, session.delegable);
            }
            Greeted::NotYet => drop(self.greeted.insert(client, session)),
        }
    }

    fn next_deadline(&self) -> Time {
        if !self.serves {
            // Until the monitors have answered.
            return self.lease.next_deadline();
        }
        let gone = self
            .gone
            .values()
            .min()
            .map_or(Time::MAX, |since| *since + CLIENT_GONE);
        let may_begin = |client: &ClientId| self.mds.is_live() && !self.mds.is_evicting(*client);
        let mds = if self.greeted.keys().any(may_begin) {
            Time::ZERO
        } else {
            self.mds.next_deadline()
        };
        let retired = self.retiring.map_or(Time::MAX, |since| since + RETIRE_MAX);
        self.lease
            .next_deadline()
            .min(gone)
            .min(mds)
            .min(self.peers.next_deadline())
            .min(retired)
    }
}

/// Whether a message is handled even while nothing new is executed.
const fn is_of_ranks(message: &Message) -> bool {
    matches!(message, Message::FsTransaction(_))
}
fn away(client: ClientId, why: &str) -> Output {
    Output::send(
        Entity::Client(client),
        Message::FsAway(FsAway {
            why: why.to_owned(),
        }),
    )
}
fn ping(client: ClientId) -> Output {
    Output::send(
        Entity::Client(client),
        Message::FsPing(FsPing { number: 0 }),
    )
}
