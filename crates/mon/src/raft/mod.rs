//! Consensus: raft-rs behind a narrow interface.
//!
//! Implements the requirements of Weil et al. (OSDI 2006 §5.2, "Failure Detection") for monitors —
//! elections, peer monitoring, short leases, two-phase commits (CEPH-49) — with Raft: pre-vote,
//! check-quorum, read-index (never leases), learners before voters. The library is a state machine.
//! This module gives it a log in memory, mirrors that in the store, and overrides its only
//! nondeterminism, the random election timeout ([`timeout`]).
//!
//! ```text
//!  step, tick, propose ──▶ RawNode ──Ready──▶ ┬ messages of a leader ───────────────────────────▶ out at once
//!                             ▲               ├ entries, vote, term ─▶ one transaction ─▶ store
//!                             │               └ messages of the others ─▶ held ─┐            │
//!                             └────────────── on_persist_ready ◀───────────── Committed ◀───┘──▶ out
//! ```
//! Invariants (checked by [`Consensus::check`] after every step in tests and simulation):
//! 1. A vote or an acknowledged append is sent only after the store committed it; a leader counts
//!    its own only then (`held` is in order).
//! 2. Applied ≤ committed ≤ last; everything after `trimmed` is in memory and, once committed
//!    there, in the store.
//! 3. A monitor whose store does not answer does not tick: it neither stands for election nor sends
//!    heartbeats.

mod log;
pub mod member;
#[cfg(test)]
mod probe_test;
pub mod record;
pub(crate) mod timeout;

use bytes::Bytes;
use log::LogMemory;
use member::Member;
use nacre_store::{Op, Transaction};
use nacre_types::{MonId, Time};
use protobuf::Message as _;
use raft::eraftpb::{
    ConfChange, ConfChangeType, ConfChangeV2, ConfState, Entry, EntryType, HardState, Message,
    MessageType, Snapshot,
};
use raft::{ProgressState, RawNode, SnapshotStatus, StateRole};
use record::{Members, SnapshotRecord};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Ticks between heartbeats.
const HEARTBEAT_TICKS: usize = 2;
/// Check-quorum's lease in ticks; shorter than the first election timeout, so that a candidate
/// finds no voter in lease.
const LEASE_TICKS: usize = 8;
/// Number of entries kept before a snapshot for followers that lag a little.
const TRIM_MARGIN: u64 = 256;
/// Maximum bytes of them.
const TRIM_MARGIN_BYTES: usize = 4 << 20;
/// Bytes of log, besides the margin, that justify a snapshot however few the entries; or the size
/// of the last image, up to [`LOG_BYTES_MAX`].
const LOG_BYTES: usize = 8 << 20;
const LOG_BYTES_MAX: usize = 16 << 20;
/// A snapshot unacknowledged for this many ticks counts as lost.
const SNAPSHOT_TICKS: u32 = 60;

/// Decisions of the library; handled in order.
#[derive(Debug)]
pub enum Decision {
    /// Send to another monitor.
    Send(MonId, Bytes),
    /// Write, and report when it is committed.
    Submit(Transaction, u64),
    /// An entry is committed; empty data are the library's own.
    Apply {
        /// Its index.
        index: u64,
        /// The term of its proposal.
        term: u64,
        /// An encoded proposal.
        data: Bytes,
    },
    /// Replace the state machine.
    Restore {
        /// The last entry it contains.
        index: u64,
        /// An encoded image.
        state: Bytes,
    },
    /// Everything committed before `read(ctx)` was called is in the log at or below `index`.
    ReadReady {
        /// Apply up to here first.
        index: u64,
        /// The caller's context.
        context: u64,
    },
}

/// Why a monitor must stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amnesia {
    /// Human-readable reason.
    pub why: String,
}

/// A Ready that waits for the store.
struct Held {
    number: u64,
    /// The transaction it waits for; `None` when it only waits for earlier ones.
    token: Option<u64>,
    messages: Vec<Message>,
    has_entries: bool,
    since: Time,
}

/// State read from the store at start.
pub struct Recovered {
    /// The member that owns the store.
    pub member: Member,
    /// Raft's hard state.
    pub hard: HardState,
    /// The snapshot; `state` may have been taken out.
    pub snapshot: SnapshotRecord,
    /// The log after `trimmed`.
    pub entries: Vec<Entry>,
}

/// One monitor's consensus instance.
pub struct Consensus {
    node: RawNode<LogMemory>,
    id: u64,
    seed: u64,
    hard: HardState,
    held: VecDeque<Held>,
    attempts: u64,
    attempts_term: u64,
    applied: u64,
    snapshot_index: u64,
    snapshots_sent: BTreeMap<u64, u32>,
    /// Index after which entries were sent in this tick, per member whose log is not known yet.
    probed: BTreeMap<u64, u64>,
    election: Duration,
    conf: ConfState,
}

impl Consensus {
    /// Continues from the stored state. `tick` is the time between calls of [`Self::tick`].
    ///
    /// # Errors
    /// Text: the log and snapshot do not match.
    pub fn new(seed: u64, tick: Duration, recovered: Recovered) -> Result<Self, String> {
        let Recovered {
            member,
            mut hard,
            snapshot,
            entries,
        } = recovered;
        let id = member.raft_id();
        let conf = ConfState::from(&snapshot.members);
        let trimmed = (snapshot.trimmed_index, snapshot.trimmed_term);
        hard.commit = hard.commit.min(trimmed.0 + entries.len() as u64);
        let log = LogMemory::new(hard.clone(), conf.clone(), trimmed, entries.into());
        log.check();
        if snapshot.index < trimmed.0 || snapshot.index > log.last() {
            return Err(format!(
                "the snapshot at {} is outside its log {}..{}",
                snapshot.index,
                trimmed.0,
                log.last()
            ));
        }
        if hard.commit < snapshot.index && hard != HardState::default() {
            return Err(format!(
                "the snapshot at {} is ahead of the committed {}",
                snapshot.index, hard.commit
            ));
        }
        let config = raft::Config {
            id,
            election_tick: LEASE_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            min_election_tick: timeout::FIRST,
            max_election_tick: timeout::LIMIT,
            applied: snapshot.index,
            max_size_per_msg: 1 << 20,
            max_inflight_msgs: 64,
            check_quorum: true,
            pre_vote: true,
            ..raft::Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, log, &logger).map_err(|error| error.to_string())?;
        let mut consensus = Self {
            node,
            id,
            seed,
            hard,
            held: VecDeque::new(),
            attempts: 0,
            attempts_term: 0,
            applied: snapshot.index,
            snapshot_index: snapshot.index,
            snapshots_sent: BTreeMap::new(),
            probed: BTreeMap::new(),
            election: tick * u32::try_from(LEASE_TICKS).expect("a small constant"),
            conf,
        };
        consensus.set_timeout();
        Ok(consensus)
    }

    // ── facts in ────────────────────────────────────────────────────────────────────────

    /// A message of another monitor.
    ///
    /// # Errors
    /// [`Amnesia`]: the others rely on data that this store has lost.
    pub fn step(&mut self, from: MonId, bytes: &[u8]) -> Result<(), Amnesia> {
        let Ok(message) = Message::parse_from_bytes(bytes) else {
            return Ok(());
        };
        // Proposals are never forwarded inside the library: the leader checks preconditions.
        let ours = Member::of(message.from).mon == from && message.to == self.id;
        if !ours
            || matches!(
                message.get_msg_type(),
                MessageType::MsgPropose | MessageType::MsgReadIndex
            )
        {
            return Ok(());
        }
        self.notice_amnesia(&message)?;
        // Errors concern peers that are not members any more; ignore them.
        let _ = self.node.step(message);
        self.set_timeout();
        Ok(())
    }

    /// raft-rs panics when a leader's knowledge contradicts our log below what we acknowledged. It
    /// means that this store is an older copy, or lost what it reported committed; continuing could
    /// lose committed entries of the cluster.
    fn notice_amnesia(&self, message: &Message) -> Result<(), Amnesia> {
        let raft = &self.node.raft;
        if message.term < raft.term {
            return Ok(());
        }
        let last = raft.raft_log.last_index();
        let lost = |index: u64| Amnesia {
            why: format!(
                "the leading monitor knows that this one had entry {index}, but its log ends at {last}: its store was restored from an \
                 older copy or lost writes. Remove this monitor (`mon rm`), wipe its store and add it again."
            ),
        };
        match message.get_msg_type() {
            MessageType::MsgHeartbeat if message.commit > last => Err(lost(message.commit)),
            MessageType::MsgAppend => {
                let committed = raft.raft_log.committed;
                for entry in message.get_entries() {
                    if entry.index <= committed
                        && raft
                            .raft_log
                            .term(entry.index)
                            .is_ok_and(|t| t != 0 && t != entry.term)
                    {
                        return Err(Amnesia {
                            why: format!(
                                "entry {} was committed here in another term than the leading monitor has it: two clusters' \
                                 histories were mixed. Remove this monitor, wipe its store and add it again.",
                                entry.index
                            ),
                        });
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Advances the clock. At most one tick per call however late it is: a starved monitor must not
    /// suspect the leader.
    pub fn tick(&mut self, now: Time) {
        self.probed.clear();
        let stuck = self.held.iter().any(|held| {
            // A follower must complete its append before it may stand for election (the library
            // relies on it); a leader gets one lease.
            held.token.is_some()
                && (now.since(held.since) > self.election
                    || (!self.is_leader() && held.has_entries))
        });
        if stuck {
            return;
        }
        let leading = self.is_leader();
        let stood = self.node.tick() && !leading && !self.is_leader();
        if self.attempts_term != self.node.raft.term {
            self.attempts_term = self.node.raft.term;
            self.attempts = 0;
        }
        if stood {
            self.attempts += 1;
        }
        let lost: Vec<u64> = self
            .snapshots_sent
            .iter_mut()
            .filter_map(|(id, ticks)| {
                *ticks += 1;
                (*ticks > SNAPSHOT_TICKS).then_some(*id)
            })
            .collect();
        for id in lost {
            self.snapshots_sent.remove(&id);
            if self.progress_state(id) == Some(ProgressState::Snapshot) {
                self.node.report_snapshot(id, SnapshotStatus::Failure);
            }
        }
        self.set_timeout();
    }

    /// Stands for election at once if it is the only voter.
    pub fn campaign_if_alone(&mut self) {
        if self.conf.voters == [self.id] && !self.is_leader() && self.held.is_empty() {
            let _ = self.node.campaign();
            self.set_timeout();
        }
    }

    /// A transaction of [`Decision::Submit`] is committed.
    pub fn on_committed(&mut self, token: u64, out: &mut Vec<Decision>) {
        let Some(at) = self.held.iter().position(|held| held.token == Some(token)) else {
            return;
        };
        // The store commits in order: earlier ones without their own transaction are released with
        // it.
        for held in self.held.drain(..=at).collect::<Vec<_>>() {
            self.release(held, out);
        }
        while self.held.front().is_some_and(|held| held.token.is_none()) {
            let held = self.held.pop_front().expect("looked at it");
            self.release(held, out);
        }
    }

    fn release(&mut self, held: Held, out: &mut Vec<Decision>) {
        self.node.on_persist_ready(held.number);
        // The library is told only now that a snapshot is applied: it does not accept that before
        // the snapshot is durable. Otherwise it reads supposedly unapplied entries when it
        // campaigns, which are trimmed. (Chaos, seed 141: a monitor that had been added again
        // panicked when the others were stopped.)
        let log = &self.node.raft.raft_log;
        if log.applied < self.snapshot_index
            && log.persisted.min(log.committed) >= self.snapshot_index
        {
            self.node.advance_apply_to(self.snapshot_index);
        }
        for message in held.messages {
            self.send(message, out);
        }
        self.set_timeout();
    }

    /// A monitor's connection has ended.
    pub fn on_disconnect(&mut self, mon: MonId) {
        let member = self.members().find(|member| member.mon == mon);
        let Some(id) = member.filter(|_| self.is_leader()).map(Member::raft_id) else {
            return;
        };
        self.node.report_unreachable(id);
        if self.snapshots_sent.remove(&id).is_some()
            && self.progress_state(id) == Some(ProgressState::Snapshot)
        {
            self.node.report_snapshot(id, SnapshotStatus::Failure);
        }
    }

    /// Proposes; returns its index and term in the log. `None` when this monitor does not lead (any
    /// more).
    pub fn propose(&mut self, data: Vec<u8>) -> Option<(u64, u64)> {
        if !self.may_propose() {
            return None;
        }
        self.node.propose(Vec::new(), data).ok()?;
        Some((self.node.raft.raft_log.last_index(), self.node.raft.term))
    }

    /// Requests [`Decision::ReadReady`]; `false` when this monitor cannot (yet).
    pub fn read(&mut self, context: u64) -> bool {
        if !self.may_propose() {
            return false;
        }
        self.node.read_index(context.to_le_bytes().to_vec());
        true
    }

    /// Proposes one change of members, if none is in flight.
    pub fn propose_member(&mut self, member: Member, change: ConfChangeType) -> bool {
        if !self.may_propose() || self.node.raft.has_pending_conf() {
            return false;
        }
        let mut conf = ConfChange {
            node_id: member.raft_id(),
            ..ConfChange::default()
        };
        conf.set_change_type(change);
        self.node.propose_conf_change(Vec::new(), conf).is_ok()
    }

    /// Transfers leadership to `member`.
    pub fn transfer(&mut self, member: Member) {
        if self.is_leader() {
            self.node.transfer_leader(member.raft_id());
            self.set_timeout();
        }
    }

    // ── decisions out ───────────────────────────────────────────────────────────────────

    /// Takes the library's decisions. Handle all of them, then call [`Self::offer_snapshot`] if
    /// [`Self::wants_snapshot`].
    pub fn poll(&mut self, now: Time, out: &mut Vec<Decision>) {
        while self.node.has_ready() {
            let mut ready = self.node.ready();
            let mut messages = ready.take_messages();
            // The library iterates over hash sets; sort by receiver for determinism.
            messages.sort_by_key(|message| message.to);
            for message in messages {
                self.send(message, out);
            }
            for read in ready.take_read_states() {
                let context = read
                    .request_ctx
                    .as_slice()
                    .try_into()
                    .map(u64::from_le_bytes);
                let context = context.expect("contexts are made by `read`");
                out.push(Decision::ReadReady {
                    index: read.index,
                    context,
                });
            }
            let mut transaction = Transaction::new();
            if let Some(hard) = ready.hs() {
                self.hard = hard.clone();
            }
            if !ready.snapshot().is_empty() {
                self.take_snapshot(ready.snapshot().clone(), &mut transaction, out);
            }
            let committed = ready.take_committed_entries();
            let applied = committed.last().map(|entry| entry.index);
            for entry in committed {
                self.apply(&entry, out);
            }
            let entries = ready.take_entries();
            self.node.mut_store().append(&entries);
            record::put_entries(&mut transaction, &entries);
            let messages = ready.take_persisted_messages();
            let number = ready.number();
            // A commit index alone does not justify a write: it is included in the next one, and
            // the leader sends it again after a restart.
            let token = ready.must_sync().then(|| {
                record::put_hard(&mut transaction, &self.hard);
                number
            });
            self.held.push_back(Held {
                number,
                token,
                messages,
                has_entries: !entries.is_empty(),
                since: now,
            });
            self.node.advance_append_async(ready);
            if let Some(applied) = applied {
                self.node.advance_apply_to(applied);
            }
            if let Some(token) = token {
                out.push(Decision::Submit(transaction, token));
            } else if self.held.len() == 1 {
                let held = self.held.pop_front().expect("the one just made");
                self.release(held, out);
            }
        }
        self.set_timeout();
    }

    fn take_snapshot(
        &mut self,
        mut snapshot: Snapshot,
        transaction: &mut Transaction,
        out: &mut Vec<Decision>,
    ) {
        let metadata = snapshot.take_metadata();
        let (index, term) = (metadata.index, metadata.term);
        let state = snapshot.take_data();
        let members = Members::from(metadata.get_conf_state());
        self.conf = ConfState::from(&members);
        self.node.mut_store().restart(index, term);
        self.applied = index;
        self.snapshot_index = index;
        record::trim_entries(transaction, u64::MAX - 1);
        let state_copy = state.clone();
        let record = SnapshotRecord {
            index,
            term,
            members,
            trimmed_index: index,
            trimmed_term: term,
            state: state_copy,
        };
        record::put_snapshot(transaction, &record);
        out.push(Decision::Restore { index, state });
    }

    fn apply(&mut self, entry: &Entry, out: &mut Vec<Decision>) {
        self.applied = entry.index;
        let change = match entry.get_entry_type() {
            EntryType::EntryNormal => {
                out.push(Decision::Apply {
                    index: entry.index,
                    term: entry.term,
                    data: entry.data.clone(),
                });
                return;
            }
            EntryType::EntryConfChange => ConfChange::parse_from_bytes(&entry.data)
                .ok()
                .map(|c| self.node.apply_conf_change(&c)),
            EntryType::EntryConfChangeV2 => ConfChangeV2::parse_from_bytes(&entry.data)
                .ok()
                .map(|c| self.node.apply_conf_change(&c)),
        };
        // An invalid change (a second removal) is ignored in the same way everywhere.
        if let Some(Ok(conf)) = change {
            self.conf = ConfState::from(&Members::from(&conf));
        }
        out.push(Decision::Apply {
            index: entry.index,
            term: entry.term,
            data: Bytes::new(),
        });
    }

    fn send(&mut self, message: Message, out: &mut Vec<Decision>) {
        if message.get_msg_type() == MessageType::MsgSnapshot {
            self.snapshots_sent.insert(message.to, 0);
        }
        if message.get_msg_type() == MessageType::MsgAppend && self.is_probed_again(&message) {
            return;
        }
        let to = Member::of(message.to).mon;
        let bytes = message
            .write_to_bytes()
            .expect("messages are far below the codec's limit of 2 GiB");
        out.push(Decision::Send(to, bytes.into()));
    }

    /// Whether entries would be sent to a member twice within a tick, before its log is known. The
    /// library sends them with every answer to a heartbeat, up to a MiB, and each client's read is
    /// a heartbeat: a member that was away for a second answered hundreds at once. (An hour of
    /// chaos, seeds 153 and 182: a leader that took 413 MiB. 20,000 answers in one turn would have
    /// been 20 GiB.)
    fn is_probed_again(&mut self, message: &Message) -> bool {
        let probes = !message.entries.is_empty()
            && self.progress_state(message.to) == Some(ProgressState::Probe);
        probes && self.probed.insert(message.to, message.index) == Some(message.index)
    }

    /// Whether a follower needs a complete snapshot.
    #[must_use]
    pub fn wants_snapshot(&self) -> bool {
        self.node.store().wants_snapshot()
    }

    /// Gives the library a snapshot of the state machine after entry `self.applied()`.
    pub fn offer_snapshot(&mut self, state: Bytes) {
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        metadata.index = self.applied;
        metadata.term = self
            .node
            .store()
            .term_at(self.applied)
            .expect("the applied entry is still in the log");
        metadata.set_conf_state(self.conf.clone());
        snapshot.data = state;
        self.node.mut_store().offer(snapshot);
    }

    /// Whether the log justifies a snapshot: it is longer than `entries`, and larger than the last
    /// image was; or it is large. (Entries of half a MiB filled the monitors' stores before they
    /// were a thousand, all at the same entry.)
    #[must_use]
    pub fn should_compact(&self, entries: u64, image_bytes: usize) -> bool {
        let (fresh, bytes) = (
            self.applied.saturating_sub(self.snapshot_index),
            self.node.store().bytes(),
        );
        let image = image_bytes.min(LOG_BYTES_MAX);
        (fresh >= entries && bytes >= image)
            || (fresh > 0 && bytes >= TRIM_MARGIN_BYTES + image.max(LOG_BYTES))
    }

    /// Makes the state machine after the applied entry the new start of the log. Submit the
    /// transaction to the store like any other.
    pub fn compact(&mut self, state: Bytes) -> Transaction {
        let log = self.node.mut_store();
        let term = log
            .term_at(self.applied)
            .expect("the applied entry is still in the log");
        log.trim(log.margin(self.applied, TRIM_MARGIN, TRIM_MARGIN_BYTES));
        let trimmed = log.trimmed();
        self.snapshot_index = self.applied;
        let mut transaction = Transaction::new();
        let record = SnapshotRecord {
            index: self.applied,
            term,
            members: Members::from(&self.conf),
            trimmed_index: trimmed.0,
            trimmed_term: trimmed.1,
            state,
        };
        record::put_snapshot(&mut transaction, &record);
        // The restored commit index must not be below the snapshot; the vote and term are those of
        // the last write or newer ones that were submitted before this transaction.
        self.hard.commit = self.hard.commit.max(self.applied);
        record::put_hard(&mut transaction, &self.hard);
        record::trim_entries(&mut transaction, trimmed.0);
        transaction
    }

    // ── views ───────────────────────────────────────────────────────────────────────────

    /// Whether this monitor leads, as far as it knows.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }
    /// Whether it leads and has applied everything that earlier leaders committed: only then are
    /// preconditions checked.
    #[must_use]
    pub fn may_propose(&self) -> bool {
        self.is_leader()
            && self.node.raft.apply_to_current_term()
            && self.node.raft.lead_transferee.is_none()
    }
    /// The leader, as far as it is known.
    #[must_use]
    pub fn leader(&self) -> Option<MonId> {
        let id = self.node.raft.leader_id;
        (id != 0).then(|| Member::of(id).mon)
    }
    /// The current term.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.node.raft.term
    }
    /// The last entry delivered by [`Decision::Apply`] or [`Decision::Restore`].
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.applied
    }
    /// The last entry of the log.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.node.raft.raft_log.last_index()
    }
    /// First entry still in the log.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.node.store().first()
    }
    /// This monitor, with its store.
    #[must_use]
    pub fn me(&self) -> Member {
        Member::of(self.id)
    }
    /// The voters.
    pub fn voters(&self) -> impl Iterator<Item = Member> + '_ {
        self.conf.voters.iter().map(|id| Member::of(*id))
    }
    /// The learners.
    pub fn learners(&self) -> impl Iterator<Item = Member> + '_ {
        self.conf.learners.iter().map(|id| Member::of(*id))
    }
    /// Voters and learners.
    pub fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.voters().chain(self.learners())
    }
    fn progress_state(&self, id: u64) -> Option<ProgressState> {
        self.node.raft.prs().get(id).map(|progress| progress.state)
    }
    /// On the leader: the last entry that `member` is known to have.
    #[must_use]
    pub fn matched(&self, member: Member) -> Option<u64> {
        self.node
            .raft
            .prs()
            .get(member.raft_id())
            .map(|progress| progress.matched)
    }
    /// Frees the snapshot kept for followers, when none is being sent.
    pub fn tidy(&mut self) {
        let sending = self
            .node
            .raft
            .prs()
            .iter()
            .any(|(_, progress)| progress.state == ProgressState::Snapshot);
        if !sending {
            self.node.mut_store().withdraw_offer();
        }
    }

    /// Overwrites the timeout that the library may just have drawn.
    fn set_timeout(&mut self) {
        let term = self.node.raft.term;
        let attempts = if self.attempts_term == term {
            self.attempts
        } else {
            0
        };
        let rank = self
            .conf
            .voters
            .iter()
            .position(|id| *id == self.id)
            .unwrap_or(0);
        let ticks = timeout::ticks(self.seed, rank, self.conf.voters.len(), term, attempts);
        self.node.raft.set_randomized_election_timeout(ticks);
    }

    /// Asserts the invariants of the module head.
    pub fn check(&self) {
        let (log, trimmed) = (&self.node.raft.raft_log, self.node.store().trimmed().0);
        // A candidate reads everything after the library's applied index.
        assert!(
            !self.held.is_empty() || log.applied >= trimmed,
            "{} of {trimmed} trimmed are known as applied",
            log.applied
        );
        self.node.store().check();
        let log = &self.node.raft.raft_log;
        assert!(
            self.applied <= log.committed,
            "applied {} beyond committed {}",
            self.applied,
            log.committed
        );
        assert!(
            log.committed <= log.last_index(),
            "committed {} beyond the log",
            log.committed
        );
        assert!(
            self.node.store().trimmed().0 <= self.applied,
            "trimmed beyond what is applied"
        );
        let mut numbers = self.held.iter().map(|held| held.number);
        assert!(
            numbers
                .clone()
                .zip(numbers.by_ref().skip(1))
                .all(|(a, b)| a < b),
            "held in order"
        );
        if self.is_leader() {
            assert_eq!(self.node.raft.leader_id, self.id, "a leader knows itself");
        }
    }
}

/// Initial contents of a new monitor's store.
///
/// `members` are the first voters, the same list for each of them with the same `state`. A monitor
/// that will join a running cluster (`mon add`) starts without members and state.
#[must_use]
pub fn founding(who: record::Identity, members: &[Member], state: Option<Bytes>) -> Transaction {
    let first = if state.is_some() { 1 } else { 0 };
    let record = SnapshotRecord {
        index: first,
        term: first,
        members: Members {
            voters: members.iter().map(|member| member.raft_id()).collect(),
            ..Members::default()
        },
        trimmed_index: first,
        trimmed_term: first,
        state: state.unwrap_or_default(),
    };
    let mut transaction = Transaction::new();
    transaction
        .ops
        .push(Op::CreateCollection(record::COLLECTION));
    let entry = (
        Bytes::from_static(record::WHO_KEY),
        nacre_wire::Wire::to_bytes(&who).into(),
    );
    transaction.ops.push(Op::OmapSet {
        object: record::identity_object(),
        entries: vec![entry],
    });
    record::put_snapshot(&mut transaction, &record);
    if first > 0 {
        record::put_hard(
            &mut transaction,
            &HardState {
                term: first,
                vote: 0,
                commit: first,
                ..HardState::default()
            },
        );
    }
    transaction
}
