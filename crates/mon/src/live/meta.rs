//! Service metadata in a monitor's step: requests, their judgement, application, and watches.

use super::Live;
use crate::leader::PendingRead;
use crate::meta::admit::Judge;
use crate::meta::lead::TRIES_MAX;
use crate::meta::programs::Programs;
use crate::meta::watchers::Watchers;
use crate::meta::{MetaAsk, reply, unavailable};
use crate::options;
use crate::router::Origin;
use crate::state::State;
use crate::state::meta::{Meta, Outcome};
use crate::subscribers::Outgoing;
use nacre_role::Output;
use nacre_types::{Entity, Name, Time};
use nacre_wire::Message;
use nacre_wire::meta::draft::page;
use nacre_wire::msg::meta::{MetaCall, MetaError, MetaRequest, MetaResult, MetaWatch};
use std::time::Duration;

/// Whether any monitor may answer it alone.
pub fn is_local(request: &MetaRequest) -> bool {
    matches!(
        request.call,
        MetaCall::Range {
            serializable: true,
            ..
        }
    )
}

/// A judge of requests on this state.
pub fn judge<'a>(state: &'a State, programs: &'a mut dyn Programs) -> Judge<'a> {
    let total_bytes_max = options::number(state.map(), "meta.total_bytes_max");
    Judge::new(state.meta(), total_bytes_max, programs)
}

impl Live {
    pub fn on_client_name(&mut self, who: Entity, name: Name) {
        if name.is_empty() {
            self.names.remove(&who);
        } else {
            self.names.insert(who, name);
        }
    }
    pub(super) fn name_of(&self, who: Entity) -> Name {
        self.names.get(&who).cloned().unwrap_or_default()
    }

    // ── requests ────────────────────────────────────────────────────────────────────────

    /// A request has reached the leader.
    pub(super) fn lead_meta(&mut self, now: Time, ask: MetaAsk, out: &mut Vec<Output>) {
        let map = self.state.map();
        let (each, all) = (
            options::number(map, "meta.client_rate"),
            options::number(map, "meta.rate"),
        );
        if let Err(retry_ms) = self.leader.meta.limiter.take(now, &ask.name, each, all) {
            self.leader.reject("meta_rate");
            let answer = ask.refuse(
                self.state.meta().revision(),
                MetaError::RateLimited { retry_ms },
            );
            return self.send_back(ask.origin, answer, out);
        }
        match ask.request.call {
            MetaCall::Range { .. } | MetaCall::KeepAlive { .. } | MetaCall::Leases {} => {
                self.leader.fresh.push(PendingRead::Meta(ask));
            }
            MetaCall::Transact { .. } | MetaCall::Grant { .. } | MetaCall::Revoke { .. } => {
                let origin = ask.origin;
                let busy = unavailable(
                    &ask.request,
                    "the monitors have too many requests; try again in a moment",
                );
                if self.leader.meta.push(ask) {
                    let due = now + options::duration(self.state.map(), "meta.propose_interval_ms");
                    self.leader.propose_at =
                        Some(self.leader.propose_at.map_or(due, |at| at.min(due)));
                } else {
                    self.leader.reject("meta_queue_full");
                    self.send_back(origin, busy, out);
                }
            }
        }
    }

    fn range(&self, name: &Name, call: &MetaCall) -> Result<MetaResult, MetaError> {
        let MetaCall::Range {
            span,
            limit,
            keys_only,
            ..
        } = call
        else {
            unreachable!("only ranges come here")
        };
        let meta = self.state.meta();
        crate::meta::access::may_read(meta, name, span)?;
        let (pairs, more) = page(meta.within(span), *limit, *keys_only);
        Ok(MetaResult::Ranged { pairs, more })
    }

    /// A read that may return old data.
    pub(super) fn read_here(&mut self, from: Entity, request: &MetaRequest, out: &mut Vec<Output>) {
        let result = self.range(&self.name_of(from), &request.call);
        let result = result.unwrap_or_else(|error| MetaResult::Failed { error });
        out.push(Output::send(
            from,
            reply(request, self.state.meta().revision(), result),
        ));
    }

    /// This monitor led when the request had arrived: its applied state is as new as any answer
    /// given before.
    pub(super) fn read_proven(&mut self, ask: &MetaAsk, out: &mut Vec<Output>) {
        let meta = self.state.meta();
        let result = match &ask.request.call {
            MetaCall::KeepAlive { lease } => {
                let owned = judge(&self.state, self.programs.as_mut()).owns(&ask.name, *lease);
                owned.and_then(|ttl_ms| {
                    let ttl = Duration::from_millis(ttl_ms);
                    if self.leader.meta.leases.keep(self.awake, *lease, ttl) {
                        Ok(MetaResult::Alive {
                            lease: *lease,
                            ttl_ms,
                        })
                    } else {
                        Err(MetaError::Unavailable {
                            why: format!("lease {lease} is about to end"),
                        })
                    }
                })
            }
            MetaCall::Leases {} => Ok(MetaResult::Leases {
                leases: meta.leases().collect(),
            }),
            call => self.range(&ask.name, call),
        };
        let revision = self.state.meta().revision();
        let answer = ask.reply(
            revision,
            result.unwrap_or_else(|error| MetaResult::Failed { error }),
        );
        self.send_back(ask.origin, answer, out);
    }

    // ── applied ─────────────────────────────────────────────────────────────────────────

    /// Entries were applied; `before` was the newest revision until then.
    pub(super) fn on_meta(&mut self, before: u64, out: &mut Vec<Output>) {
        if self.consensus.is_leader() {
            self.leader
                .meta
                .leases
                .follow(self.awake, self.state.meta());
        }
        self.tell_watchers(
            |watchers, meta, outgoing| watchers.publish(meta, before, outgoing),
            out,
        );
    }

    /// Answers the requests of entries that were just applied, or has them judged again.
    pub(super) fn answer_meta(
        &mut self,
        now: Time,
        asks: Vec<Option<MetaAsk>>,
        outcomes: Vec<Outcome>,
        out: &mut Vec<Output>,
    ) {
        for (ask, outcome) in asks.into_iter().zip(outcomes).rev() {
            let Some(mut ask) = ask else { continue };
            match outcome {
                Outcome::Done { revision, result } => {
                    let (origin, answer): (Origin, Message) =
                        (ask.origin, ask.reply(revision, result));
                    self.send_back(origin, answer, out);
                }
                Outcome::Moved if ask.tries < TRIES_MAX => {
                    ask.tries += 1;
                    if self.consensus.is_leader() {
                        self.leader.meta.push_again(ask);
                        self.leader.propose_at = Some(now);
                    }
                }
                Outcome::Moved => {
                    let why = "the keys or settings that this rests on change too often; try again in a moment";
                    self.send_back(ask.origin, unavailable(&ask.request, why), out);
                }
            }
        }
    }

    /// Whether this monitor must run triggers. Checked after every entry: a new leader's first one,
    /// the line that it leads, resumes its predecessor's triggers.
    pub(super) fn triggers_wait(&self) -> bool {
        self.consensus.is_leader() && !self.state.meta().pending().is_empty()
    }

    /// Proposes to revoke expired leases.
    pub(super) fn end_leases(&mut self, now: Time) {
        if !self.consensus.may_propose() {
            return;
        }
        // Also for leases granted by a predecessor: their time starts again here.
        self.leader
            .meta
            .leases
            .follow(self.awake, self.state.meta());
        for lease in self.leader.meta.leases.ran_out(self.awake) {
            self.leader.meta.end_lease(lease);
            self.leader.propose_at = Some(now);
        }
    }

    // ── watches ─────────────────────────────────────────────────────────────────────────

    pub(super) fn watch(&mut self, from: Entity, ask: MetaWatch, out: &mut Vec<Output>) {
        let name = self.name_of(from);
        self.tell_watchers(
            |watchers, meta, outgoing| watchers.watch(meta, from, &name, ask, outgoing),
            out,
        );
    }

    pub(super) fn tell_watchers(
        &mut self,
        tell: impl FnOnce(&mut Watchers, &Meta, &mut Outgoing),
        out: &mut Vec<Output>,
    ) {
        let mut outgoing = Outgoing::new();
        tell(&mut self.watchers, self.state.meta(), &mut outgoing);
        out.extend(
            outgoing
                .into_iter()
                .map(|(to, message)| Output::send(to, message)),
        );
    }
}
