//! The replicated state machine: the map with its recent history, and the cluster log.
//!
//! ```text
//!   Proposal (one log entry) ──apply──▶ map: next epoch ──▶ history: (epoch, digest, delta bytes) ──▶ subscribers
//!                              ├──────▶ cluster log: new lines
//!                              └──────▶ metadata: each entry at most one revision ──▶ watches
//! ```
//! Service metadata (generic keys, DESIGN §4) is a separate state machine beside the map: [`meta`].
//!
//! Invariants (checked by [`State::check`]):
//! 1. Applying is total and the same everywhere: a proposal based on another epoch than the map's
//!    changes only the log.
//! 2. `history` is dense and ends at the map's epoch with the map's digest.

pub mod cluster_log;
pub mod meta;

use bytes::Bytes;
use cluster_log::{ClusterLog, LogImage};
use meta::record::{MetaEntry, MetaImage};
use meta::{Meta, Outcome, Said};
use nacre_types::{ClientId, Entity, Epoch, Instance, MonId};
use nacre_wire::codec::{Malformed, Wire};
use nacre_wire::map::{ApplyError, Change, ClusterMap, Digest, MapDelta};
use nacre_wire::msg::monitor::{LogLine, Severity};
use nacre_wire::wire_record;
use std::collections::{BTreeMap, VecDeque};

#[cfg(feature = "mutants")]
#[path = "../mutants/state.rs"]
mod planted;

/// Minimum number of deltas kept, however clean the cluster is: daemons that were away briefly need
/// no full map.
pub const HISTORY_EPOCHS_MIN: u64 = 500;
/// Maximum number of deltas kept.
pub const HISTORY_EPOCHS_MAX: u64 = 10_000;
/// Maximum bytes of deltas kept (a new hierarchy is a large delta).
pub const HISTORY_BYTES_MAX: usize = 8 << 20;

/// A leader's proposal: one entry of the consensus log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The epoch on which the leader checked the preconditions of `changes`.
    pub base: Epoch,
    /// They make one new epoch; no epoch when empty.
    pub changes: Vec<Change>,
    /// Lines for the cluster log.
    pub lines: Vec<LogLine>,
    /// Deltas up to this epoch are no longer needed for any interval that is not clean.
    pub clean_to: Epoch,
    /// Commands executed by these changes, with their replies.
    pub commands: Vec<CommandDone>,
    /// The leader's wall clock in milliseconds since 1970, or 0: for display only, nothing depends
    /// on it.
    pub unix_ms: u64,
    /// Changes of service metadata, in order. They do not depend on `base`: they contain their own
    /// preconditions.
    pub meta: Vec<MetaEntry>,
}
// A monitor that ignored the metadata would have another state than the rest: it must stop instead.
wire_record!(Proposal version 2 compat 2 { base, changes, lines, clean_to, commands, unix_ms } since 2 { meta });

/// An executed command: when it is resent (its monitor lost the leader it had sent it to), it is
/// answered, not executed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandDone {
    /// The monitor that forwarded it.
    pub via: MonId,
    /// That monitor's number for it, unique over its instances.
    pub token: u64,
    /// JSON.
    pub reply: String,
}
wire_record!(CommandDone version 1 compat 1 { via, token, reply });

/// Maximum number of commands remembered. A command is resent within seconds or never; if so many
/// came in these seconds that it may have been forgotten, it is refused
/// ([`State::may_be_forgotten`]).
pub const COMMANDS_MAX: usize = 1_000;

/// A past change of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The map's digest after it.
    pub digest: Digest,
    /// The encoded delta.
    pub delta: Bytes,
}
wire_record!(Step version 1 compat 1 { digest, delta });

/// The state machine, encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The map.
    pub map: ClusterMap,
    /// Recent changes by the epoch that they made.
    pub history: BTreeMap<Epoch, Step>,
    /// The cluster log.
    pub log: LogImage,
    /// Recently executed commands, oldest first, with the epoch of each.
    pub commands: Vec<(Epoch, CommandDone)>,
    /// Service metadata.
    pub meta: MetaImage,
    /// Per forwarding monitor, its number for the last forgotten command.
    pub commands_forgotten: BTreeMap<MonId, u64>,
}
wire_record!(Image version 3 compat 2 { map, history, log, commands } since 2 { meta } since 3 { commands_forgotten });

/// The effects of applying an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The changes that made a new epoch.
    pub changes: Option<Vec<Change>>,
    /// Whether the changes were made on another epoch and therefore dropped.
    pub stale: bool,
    /// New lines in the cluster log.
    pub lines: usize,
    /// The outcomes of the metadata's entries.
    pub meta: Vec<Outcome>,
}

/// The state machine.
#[derive(Clone, Debug)]
pub struct State {
    map: ClusterMap,
    history: BTreeMap<Epoch, Step>,
    history_bytes: usize,
    log: ClusterLog,
    commands: VecDeque<(Epoch, CommandDone)>,
    commands_forgotten: BTreeMap<MonId, u64>,
    meta: Meta,
}

/// Sender of log lines of the metadata's triggers: no client draws this number.
const META_VOICE: Entity = Entity::Client(ClientId(0));

impl State {
    /// Starts with a map that has history (the founding deltas).
    #[must_use]
    pub fn new(map: ClusterMap) -> Self {
        Self {
            map,
            history: BTreeMap::new(),
            history_bytes: 0,
            log: ClusterLog::default(),
            commands: VecDeque::new(),
            commands_forgotten: BTreeMap::new(),
            meta: Meta::default(),
        }
    }

    /// Reads an image.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn from_image(bytes: &[u8]) -> Result<Self, Malformed> {
        let image = Image::from_bytes(bytes)?;
        let history_bytes = image.history.values().map(|step| step.delta.len()).sum();
        Ok(Self {
            map: image.map,
            history: image.history,
            history_bytes,
            log: ClusterLog::from_image(image.log),
            commands: image.commands.into(),
            commands_forgotten: image.commands_forgotten,
            meta: Meta::of(image.meta),
        })
    }

    /// Encodes everything.
    #[must_use]
    pub fn to_image(&self) -> Bytes {
        encoded(Image {
            map: self.map.clone(),
            history: self.history.clone(),
            log: self.log.to_image(),
            commands: self.commands.iter().cloned().collect(),
            meta: self.meta.to_image(),
            commands_forgotten: self.commands_forgotten.clone(),
        })
    }

    /// The map.
    #[must_use]
    pub fn map(&self) -> &ClusterMap {
        &self.map
    }
    /// The cluster log.
    #[must_use]
    pub fn log(&self) -> &ClusterLog {
        &self.log
    }
    /// Service metadata.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }
    /// The reply of a command that was executed before, with its epoch.
    #[must_use]
    pub fn command_done(&self, via: MonId, token: u64) -> Option<(Epoch, &str)> {
        let is = |(_, done): &&(Epoch, CommandDone)| done.via == via && done.token == token;
        self.commands
            .iter()
            .rev()
            .find(is)
            .map(|(epoch, done)| (*epoch, done.reply.as_str()))
    }
    /// Whether a command that is not known may have been executed and forgotten. A monitor numbers
    /// its commands upwards; the high half of the numbers identifies its instance.
    #[must_use]
    pub fn may_be_forgotten(&self, via: MonId, token: u64) -> bool {
        let forgotten = self.commands_forgotten.get(&via);
        forgotten.is_some_and(|forgotten| forgotten >> 32 == token >> 32 && token <= *forgotten)
    }
    /// The epoch before the oldest delta kept.
    #[must_use]
    pub fn history_after(&self) -> Epoch {
        self.history
            .first_key_value()
            .map_or(self.map.epoch, |(epoch, _)| Epoch(epoch.0 - 1))
    }
    /// The digest of a past or the present map, if it is still known.
    #[must_use]
    pub fn digest_at(&self, epoch: Epoch) -> Option<Digest> {
        if epoch == self.map.epoch {
            return Some(self.map.digest);
        }
        self.history.get(&epoch).map(|step| step.digest)
    }
    /// The encoded deltas after `have`, if all of them are kept.
    #[must_use]
    pub fn deltas_after(&self, have: Epoch) -> Option<Vec<Bytes>> {
        (have >= self.history_after() && have <= self.map.epoch).then(|| {
            self.history
                .range(have.next()..)
                .map(|(_, step)| step.delta.clone())
                .collect()
        })
    }

    /// Applies one entry's data.
    ///
    /// # Errors
    /// The map's own refusal, or bytes of a newer version: this monitor must stop, as it can no
    /// longer follow.
    pub fn apply(&mut self, data: &[u8]) -> Result<Applied, Unfollowable> {
        let proposal = Proposal::from_bytes(data).map_err(Unfollowable::Malformed)?;
        let mut applied = Applied::default();
        if !proposal.changes.is_empty() {
            // The leader's preconditions were checked on `base`. A leader that was replaced
            // meanwhile must not change a later map.
            if proposal.base == self.map.epoch {
                self.advance(proposal.changes, proposal.clean_to, &mut applied)
                    .map_err(Unfollowable::Apply)?;
                self.commands.extend(
                    proposal
                        .commands
                        .into_iter()
                        .map(|done| (self.map.epoch, done)),
                );
                while self.commands.len() > COMMANDS_MAX
                    && let Some((_, CommandDone { via, token, .. })) = self.commands.pop_front()
                {
                    self.commands_forgotten.insert(via, token);
                }
            } else {
                applied.stale = true;
            }
        }
        let mut said = Vec::new();
        let epoch = self.map.epoch;
        applied.meta = proposal
            .meta
            .into_iter()
            .map(|entry| self.meta.apply(epoch, entry, &mut said))
            .collect();
        let mut lines = proposal.lines;
        lines.extend(
            (self.log.last() + 1..)
                .zip(said)
                .map(|(number, Said { once, text })| LogLine {
                    from: META_VOICE,
                    // Numbers only have to grow: these lines are made here and never resent.
                    instance: Instance(1),
                    number,
                    severity: Severity::Info {},
                    text,
                    once,
                }),
        );
        applied.lines = self.log.append(lines, proposal.unix_ms);
        Ok(applied)
    }

    fn advance(
        &mut self,
        changes: Vec<Change>,
        clean_to: Epoch,
        applied: &mut Applied,
    ) -> Result<(), ApplyError> {
        let delta = self.map.delta(changes);
        self.map.apply(&delta)?;
        let bytes = Bytes::from(delta.to_bytes());
        self.history_bytes += bytes.len();
        self.history.insert(
            delta.epoch,
            Step {
                digest: self.map.digest,
                delta: bytes,
            },
        );
        self.trim(clean_to);
        applied.changes = Some(delta.changes);
        Ok(())
    }

    /// Makes an epoch outside consensus: only for the founding map.
    pub(crate) fn found(&mut self, changes: Vec<Change>) {
        let mut applied = Applied::default();
        self.advance(changes, Epoch::NONE, &mut applied)
            .expect("a delta made from this very map applies to it");
    }

    fn trim(&mut self, clean_to: Epoch) {
        let newest = self.map.epoch.0;
        while let Some((epoch, step)) = self.history.first_key_value() {
            let recent = epoch.0 + HISTORY_EPOCHS_MIN > newest || *epoch > clean_to;
            let bounded =
                epoch.0 + HISTORY_EPOCHS_MAX > newest && self.history_bytes <= HISTORY_BYTES_MAX;
            if recent && bounded || self.history.len() == 1 {
                break;
            }
            self.history_bytes -= step.delta.len();
            self.history.pop_first();
        }
    }

    /// Asserts the invariants of the module head.
    pub fn check(&self) {
        self.map.check();
        if let Some((last, step)) = self.history.last_key_value() {
            assert_eq!(
                (*last, step.digest),
                (self.map.epoch, self.map.digest),
                "the history ends at the map"
            );
            let first = self.history.first_key_value().expect("it has a last").0;
            assert_eq!(
                last.0 - first.0 + 1,
                self.history.len() as u64,
                "the history is dense"
            );
        }
        self.log.check();
        self.meta.check();
    }

    /// A monitor that gets this state as a snapshot has the same, including all derived counters
    /// and indexes. Checks everything.
    pub fn check_image(&self) {
        let mut other = Self::from_image(&self.to_image()).expect("a state reads its own image");
        other.meta.count_leases_like(&self.meta);
        assert_eq!(other.map, self.map, "the map of a snapshot");
        assert_eq!(
            (other.history, other.history_bytes),
            (self.history.clone(), self.history_bytes),
            "its history"
        );
        assert_eq!(other.log, self.log, "the cluster log of a snapshot");
        assert_eq!(other.commands, self.commands, "the commands of a snapshot");
        assert_eq!(
            other.commands_forgotten, self.commands_forgotten,
            "the forgotten ones"
        );
        assert_eq!(other.meta, self.meta, "the metadata of a snapshot");
    }
}

/// Why a monitor cannot apply a committed entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfollowable {
    /// Written by a newer monitor: upgrade this one.
    Malformed(Malformed),
    /// The map refuses it.
    Apply(ApplyError),
}
impl std::fmt::Display for Unfollowable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed(why) => {
                write!(
                    f,
                    "the monitors committed what this program cannot read ({why}); upgrade it"
                )
            }
            Self::Apply(why) => {
                write!(
                    f,
                    "the monitors committed a change that does not fit this monitor's map: {why}"
                )
            }
        }
    }
}

/// The delta of a step, decoded.
#[must_use]
pub fn decode_delta(bytes: &[u8]) -> Option<MapDelta> {
    MapDelta::from_bytes(bytes).ok()
}

/// The bytes of a snapshot.
#[nacre_types::planted]
fn encoded(image: Image) -> Bytes {
    image.to_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::ClusterId;
    use nacre_wire::map::CrushSection;

    fn state() -> State {
        State::new(ClusterMap::empty(
            ClusterId(1),
            CrushSection::parse("").expect("empty text"),
        ))
    }
    fn flags(base: u64, flags: u64, clean_to: u64) -> Vec<u8> {
        let changes = vec![Change::Flags { flags }];
        Proposal {
            base: Epoch(base),
            changes,
            lines: Vec::new(),
            clean_to: Epoch(clean_to),
            commands: Vec::new(),
            unix_ms: 0,
            meta: Vec::new(),
        }
        .to_bytes()
    }

    // Failed when `advance` ignored `base`.
    #[test]
    fn a_replaced_leaders_proposal_changes_nothing() {
        let mut state = state();
        assert!(
            state
                .apply(&flags(0, 1, 0))
                .expect("applies")
                .changes
                .is_some()
        );
        let late = state.apply(&flags(0, 2, 0)).expect("applies");
        assert!(late.stale && late.changes.is_none());
        assert_eq!((state.map().epoch, state.map().flags), (Epoch(1), 1));
    }

    #[test]
    fn an_image_is_the_whole_state() {
        let mut state = state();
        for epoch in 0..20 {
            state.apply(&flags(epoch, epoch % 4, 0)).expect("applies");
        }
        let mut copy = State::from_image(&state.to_image()).expect("decodes");
        assert_eq!(copy.to_image(), state.to_image());
        for s in [&mut state, &mut copy] {
            s.apply(&flags(20, 3, 0)).expect("applies");
            s.check();
        }
        assert_eq!(copy.map().digest, state.map().digest);
    }

    #[test]
    fn history_is_kept_back_to_what_is_not_clean_and_bounded() {
        let mut state = state();
        for epoch in 0..HISTORY_EPOCHS_MIN + 300 {
            state.apply(&flags(epoch, epoch % 4, 100)).expect("applies");
        }
        assert_eq!(
            state.history_after(),
            Epoch(100),
            "epochs after 100 are still needed"
        );
        for epoch in HISTORY_EPOCHS_MIN + 300..HISTORY_EPOCHS_MAX + 1000 {
            state.apply(&flags(epoch, epoch % 4, 100)).expect("applies");
        }
        assert_eq!(
            state.history_after(),
            Epoch(1000),
            "but no more than the bound"
        );
        state.check();
        assert!(state.deltas_after(Epoch(999)).is_none());
        assert_eq!(state.deltas_after(Epoch(10_990)).expect("kept").len(), 10);
        assert_eq!(
            state.digest_at(Epoch(10_995)),
            Some(state.history[&Epoch(10_995)].digest)
        );
    }

    /// (Planted by a reviewer: the newest was forgotten.) Of executed commands the newest are
    /// remembered, so that one resent after its leader's death is not executed twice.
    #[test]
    fn of_commands_that_were_done_the_oldest_are_forgotten() {
        let mut state = state();
        for n in 0..COMMANDS_MAX as u64 + 10 {
            let mut proposal = Proposal::from_bytes(&flags(n, n % 4, 0)).expect("just made");
            proposal.commands = vec![CommandDone {
                via: MonId(1),
                token: n,
                reply: "{}".to_owned(),
            }];
            state.apply(&proposal.to_bytes()).expect("applies");
            assert!(state.command_done(MonId(1), n).is_some(), "{n}");
        }
        let known = |n| state.command_done(MonId(1), n).is_some();
        assert_eq!([9, 10].map(known), [false, true]);
        // A forgotten command is not taken for a new one; the monitor's next instance starts at
        // other numbers.
        let forgotten = |n| state.may_be_forgotten(MonId(1), n);
        assert_eq!([9, 10, (1 << 32) | 9].map(forgotten), [true, false, false]);
        assert!(!state.may_be_forgotten(MonId(2), 9));
        state.check_image();
    }
}
