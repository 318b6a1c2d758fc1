//! The leader's part: requests are queued here until they are judged and proposed.
//!
//! Soft state: it ends with the leadership; requests are resent to the next leader. Leases' times
//! start again there, triggers' pending runs are in the replicated state.

use super::MetaAsk;
use super::admit::Judge;
use super::leases::Leases;
use super::limiter::Limiter;
use super::overruns::Overruns;
use super::programs::{FaultLine, Program, TURN_STEPS_MAX, TriggerActions, TriggerRequest};
use super::settings::{Action, Settings};
use crate::router::Origin;
use crate::state::meta::record::{MetaAct, MetaEntry, MetaPending, MetaTerms};
use crate::state::meta::sessions::Known;
use crate::state::meta::{Meta, namespace_of_trigger};
use nacre_types::Name;
use nacre_wire::Message;
use nacre_wire::codec::Wire;
use nacre_wire::msg::meta::{MetaError, MetaEvent};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Maximum number of queued requests.
pub const QUEUE_MAX: usize = 20_000;
/// Maximum number of entries per proposal.
const ENTRIES_MAX: usize = 500;
/// Maximum bytes of one proposal's entries; a longer entry is proposed alone.
const BYTES_MAX: usize = 256 << 10;
/// Maximum bytes of one entry: a request of half a MiB with its guards. It fits into one proposal
/// together with the other parts.
pub const ENTRY_BYTES_MAX: usize = 800 << 10;
/// Maximum number of lines that a trigger of the kind `log` writes per transaction; the last one
/// counts the omitted ones.
const LOG_LINES_MAX: usize = 100;
/// Maximum bytes of such a line, and of each text in it.
pub const LOG_LINE_BYTES_MAX: usize = 2 << 10;
/// After this many failed guards a request is returned to its client.
pub const TRIES_MAX: u32 = 16;
/// Maximum number of trigger runs per proposal.
const FIRED_MAX: usize = 16;

/// The metadata part of a proposal.
#[derive(Debug, Default)]
pub struct MetaTaken {
    /// The entries.
    pub entries: Vec<MetaEntry>,
    /// The request that waits for each; `None` for the leader's own.
    pub asks: Vec<Option<MetaAsk>>,
    /// Answers without an entry: facts of the log, or that the client must retry.
    pub answers: Vec<(Origin, Message)>,
    /// Faults of programs, for the cluster log.
    pub said: Vec<FaultLine>,
    /// Programs have used their share of the leader's time: it serves others before the next turn.
    pub exhausted: bool,
}

/// See the module head.
#[derive(Debug, Default)]
pub struct MetaLead {
    queue: VecDeque<MetaAsk>,
    waiting: BTreeSet<Origin>,
    ended: VecDeque<u64>,
    /// Rate limits of clients.
    pub limiter: Limiter,
    /// Expiry of leases.
    pub leases: Leases,
    /// Programs stopped by the clock.
    pub overruns: Overruns,
}

impl MetaLead {
    /// Queues a request; false: there are too many. A request already queued is not queued again.
    pub fn push(&mut self, ask: MetaAsk) -> bool {
        if self.waiting.contains(&ask.origin) {
            return true;
        }
        if self.queue.len() >= QUEUE_MAX {
            return false;
        }
        self.waiting.insert(ask.origin);
        self.queue.push_back(ask);
        true
    }
    /// Its guards failed: it is the first of the next proposal.
    pub fn push_again(&mut self, ask: MetaAsk) {
        self.waiting.insert(ask.origin);
        self.queue.push_front(ask);
    }
    /// A lease has expired.
    pub fn end_lease(&mut self, lease: u64) {
        self.ended.push_back(lease);
    }
    /// Whether anything waits for a proposal, except triggers.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.queue.is_empty() || !self.ended.is_empty()
    }
    /// Leadership has ended.
    pub fn abdicate(&mut self) {
        *self = Self::default();
    }

    /// Whether the queue is empty, and no lease is timed.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.queue.is_empty()
            && self.waiting.is_empty()
            && self.ended.is_empty()
            && self.leases.is_blank()
    }
    /// Asserts the invariants between two steps.
    pub fn check(&self, meta: &Meta) {
        assert!(
            self.waiting.len() <= self.queue.len(),
            "{:?} wait and are not queued",
            self.waiting
        );
        self.leases.check(meta);
    }

    /// Judges queued requests and takes those that fit into one proposal.
    pub fn take(&mut self, judge: &mut Judge<'_>) -> MetaTaken {
        std::mem::swap(&mut self.overruns, &mut judge.overruns);
        judge.programs.begin_turn();
        let taken = self.take_turn(judge);
        std::mem::swap(&mut self.overruns, &mut judge.overruns);
        taken
    }

    fn take_turn(&mut self, judge: &mut Judge<'_>) -> MetaTaken {
        let (mut taken, mut bytes) = (MetaTaken::default(), 0);
        // Whether an entry fits; one that does not waits for the next proposal.
        let mut takes = |taken: &MetaTaken, entry: &MetaEntry| {
            let length = entry.to_bytes().len();
            let takes = taken.entries.is_empty()
                || (bytes + length <= BYTES_MAX && taken.entries.len() < ENTRIES_MAX);
            bytes += length;
            takes
        };
        let add = |taken: &mut MetaTaken, ask: Option<MetaAsk>, entry: MetaEntry| {
            taken.entries.push(entry);
            taken.asks.push(ask);
        };
        let begun = judge.programs.steps();
        let mut room = true;
        let spent = |judge: &Judge<'_>| {
            judge.programs.steps() - begun >= TURN_STEPS_MAX || judge.programs.turn_is_over()
        };
        while room && !spent(judge) {
            let Some(lease) = self.ended.pop_front() else {
                break;
            };
            let Ok((act, terms)) = judge.expire(lease) else {
                // Too many trigger runs are pending.
                self.leases.spare(lease);
                continue;
            };
            if matches!(act, MetaAct::Transact { .. }) {
                self.leases.part(lease);
            }
            let entry = MetaEntry {
                who: None,
                act,
                terms,
            };
            room = takes(&taken, &entry);
            if room {
                add(&mut taken, None, entry);
            } else {
                self.ended.push_front(lease);
            }
        }
        for pending in next_triggers(judge.meta.pending()) {
            if room && !spent(judge) {
                let (act, terms) = fire(judge, pending);
                let entry = fitting(MetaEntry {
                    who: None,
                    act,
                    terms,
                });
                room = takes(&taken, &entry);
                if room {
                    add(&mut taken, None, entry);
                }
            }
        }
        while room && !spent(judge) {
            let Some(ask) = self.queue.pop_front() else {
                break;
            };
            self.waiting.remove(&ask.origin);
            let who = ask.who();
            let revision = judge.meta.revision();
            let (act, terms) = match judge.meta.known(&who) {
                Known::Done(revision, result) => {
                    taken
                        .answers
                        .push((ask.origin, ask.reply(revision, result)));
                    continue;
                }
                Known::Refused(error) => {
                    taken
                        .answers
                        .push((ask.origin, ask.refuse(revision, error)));
                    continue;
                }
                Known::New => match judge.admit(&ask.name, &ask.request.call) {
                    Ok(admitted) => admitted,
                    Err(error @ MetaError::Unavailable { .. }) => {
                        taken
                            .answers
                            .push((ask.origin, ask.refuse(revision, error)));
                        continue;
                    }
                    Err(error) => (MetaAct::Refuse { error }, MetaTerms::default()),
                },
            };
            let entry = fitting(MetaEntry {
                who: Some(who),
                act,
                terms,
            });
            room = takes(&taken, &entry);
            if room {
                add(&mut taken, Some(ask), entry);
            } else {
                self.push_again(ask);
            }
        }
        taken.said = std::mem::take(&mut judge.said);
        taken.exhausted = spent(judge);
        taken
    }
}

/// The entry, or a replacement for one that no proposal can hold: validators and triggers may
/// enlarge a request.
fn fitting(entry: MetaEntry) -> MetaEntry {
    let length = entry.to_bytes().len();
    if length <= ENTRY_BYTES_MAX {
        return entry;
    }
    let act = match entry.act {
        MetaAct::Fired {
            trigger, revision, ..
        } => {
            let why = format!(
                "its changes and lines are {length} bytes, and {ENTRY_BYTES_MAX} are possible"
            );
            let lines = vec![failed(&trigger, revision, &why)];
            MetaAct::Fired {
                trigger,
                revision,
                ops: Vec::new(),
                lines,
            }
        }
        _ => {
            let what =
                "transaction with what validators made of it and what it was judged by".to_owned();
            MetaAct::Refuse {
                error: MetaError::TooLarge {
                    what,
                    limit: ENTRY_BYTES_MAX as u64,
                },
            }
        }
    };
    MetaEntry {
        who: entry.who,
        act,
        terms: MetaTerms::default(),
    }
}

fn failed(trigger: &Name, revision: u64, why: &str) -> String {
    format!("trigger {trigger} for revision {revision} failed: {why}")
}

/// A prefix of a text of at most this length, in whole characters.
pub fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// The order of trigger runs: the oldest of each namespace, then the next of each. A namespace with
/// a thousand pending runs only delays itself.
fn next_triggers(pending: &[MetaPending]) -> impl Iterator<Item = &MetaPending> {
    let mut ranks: BTreeMap<Name, usize> = BTreeMap::new();
    let mut order: Vec<(usize, usize)> = Vec::with_capacity(pending.len());
    for (at, waits) in pending.iter().enumerate() {
        let rank = ranks
            .entry(namespace_of_trigger(&waits.trigger))
            .or_default();
        order.push((*rank, at));
        *rank += 1;
    }
    order.sort_unstable();
    order.truncate(FIRED_MAX);
    order.into_iter().map(|(_, at)| &pending[at])
}

/// A trigger's entry: its program's changes, or the error. In both cases the run is finished.
fn fire(judge: &mut Judge<'_>, pending: &MetaPending) -> (MetaAct, MetaTerms) {
    let MetaPending {
        trigger,
        revision,
        depth,
        ..
    } = pending;
    let failed = |why: String| failed(trigger, *revision, &why);
    let acted = actions(judge, pending).and_then(|TriggerActions { ops, lines }| {
        let (ops, terms) = judge
            .fired(ops, *depth)
            .map_err(|why| Some(why.to_string()))?;
        Ok((ops, lines, terms))
    });
    let none = |why: Option<String>| {
        (
            Vec::new(),
            why.map(failed).into_iter().collect(),
            MetaTerms::default(),
        )
    };
    let (ops, lines, terms) = acted.unwrap_or_else(none);
    (
        MetaAct::Fired {
            trigger: trigger.clone(),
            revision: *revision,
            ops,
            lines,
        },
        terms,
    )
}

/// The trigger's actions, or why there are none. The reason is empty if the log is told elsewhere:
/// a failing program fails for every revision.
fn actions(judge: &mut Judge<'_>, pending: &MetaPending) -> Result<TriggerActions, Option<String>> {
    let text = pending.trigger.to_string();
    let (namespace, name) = text.split_once('/').unwrap_or((&text, ""));
    let settings = Settings::of(judge.meta, &namespace.into());
    let Some(trigger) = settings
        .triggers
        .into_iter()
        .find(|trigger| trigger.name == name)
    else {
        return Err(Some("it was removed meanwhile".to_owned()));
    };
    match trigger.action {
        Action::Log(text) => {
            let text = cut(&text, LOG_LINE_BYTES_MAX);
            let line = |event: &MetaEvent| {
                let what = if matches!(event, MetaEvent::Put { .. }) {
                    "set"
                } else {
                    "deleted"
                };
                let filled = text
                    .replace("{key}", &event.key().to_string())
                    .replace("{what}", what);
                cut(
                    &filled.replace("{revision}", &pending.revision.to_string()),
                    LOG_LINE_BYTES_MAX,
                )
                .to_owned()
            };
            // One deletion may affect very many keys: their lines exceeded a proposal, and the
            // leader retried for ever.
            let more = pending.events.len().saturating_sub(LOG_LINES_MAX);
            let mut lines: Vec<String> = pending
                .events
                .iter()
                .take(LOG_LINES_MAX)
                .map(line)
                .collect();
            lines.extend(
                (more > 0).then(|| format!("trigger {}: and {more} keys more", pending.trigger)),
            );
            Ok(TriggerActions {
                ops: Vec::new(),
                lines,
            })
        }
        Action::Program(program) => {
            let source = judge.program(&program).map_err(Some)?.to_owned();
            let request = TriggerRequest {
                trigger: &pending.trigger,
                revision: pending.revision,
                events: &pending.events,
            };
            let what = format!("trigger {}", pending.trigger);
            let before = judge.programs.overruns();
            judge.programs.begin_request();
            let acted = match judge.runs(&program) {
                Ok(()) => judge.programs.trigger(
                    Program {
                        name: &program,
                        source: &source,
                    },
                    &request,
                ),
                Err(fault) => Err(fault),
            };
            judge.count_overruns(before, &program, &what);
            acted.map_err(|fault| {
                judge.tell(&program, &what, &fault);
                None
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::programs::Programs;
    use crate::meta::scripts::{Scripts, VALIDATOR};
    use crate::state::meta::record::MetaImage;
    use nacre_types::{ClientId, Entity, Epoch, Instance, MonId};
    use nacre_wire::msg::meta::{MetaCall, MetaOp, MetaPair, MetaRequest};

    fn pair(key: &str, value: &'static str) -> MetaPair {
        let value = value.as_bytes().into();
        MetaPair {
            key: key.into(),
            value,
            created: 1,
            modified: 1,
            version: 1,
            lease: 0,
            epoch: Epoch(1),
        }
    }

    // Failed when `take` did not check the steps.
    #[test]
    fn one_turn_of_the_leader_does_not_judge_for_long() {
        let image = MetaImage {
            revision: 1,
            pairs: vec![
                pair("nacre/namespace/n", r#"{"validator": "slow"}"#),
                pair(
                    "nacre/program/slow",
                    "function validate() for i = 1, 5000 do end end",
                ),
            ],
            ..MetaImage::default()
        };
        let meta = Meta::of(image);
        let mut lead = MetaLead::default();
        const ASKS: usize = 200;
        for token in 0..ASKS as u64 {
            let origin = Origin {
                from: Entity::Client(ClientId(token)),
                via: MonId(0),
                token,
            };
            let put = MetaOp::Put {
                key: "n/key".into(),
                value: "x".into(),
                lease: 0,
            };
            let call = MetaCall::Transact {
                compares: vec![],
                then: vec![put],
                otherwise: vec![],
            };
            let (instance, known) = (Instance(1), 0);
            let request = MetaRequest {
                instance,
                sequence: 1,
                answered_below: 1,
                known,
                again: false,
                call,
            };
            assert!(lead.push(MetaAsk {
                origin,
                name: "".into(),
                request,
                tries: 0
            }));
        }
        let mut scripts = Scripts::default();
        let (mut all, mut turns) = (0, 0);
        while lead.has_work() {
            let before = scripts.steps();
            let mut judge = Judge::new(&meta, 1 << 20, &mut scripts);
            let taken = lead.take(&mut judge);
            let steps = scripts.steps() - before;
            assert!(
                !taken.entries.is_empty() && steps < TURN_STEPS_MAX + VALIDATOR.instructions,
                "{steps}"
            );
            all += taken.entries.len();
            turns += 1;
        }
        assert!(all == ASKS && turns >= 8, "{all} in {turns} turns");
    }
}
