//! Copies: the primary of the target reads the source from the source's primary, as a client would,
//! and makes it one update (CHECKLIST CEPH-09).
//!
//! ```text
//!  target's queue   CopyFrom: waits ──▶ ReadWhole ──▶ source's queue, at its front ──▶ OpReply ──▶ one update of the target
//! ```
//! One read brings all of the source, so all of it is of one version. It goes to the front of the
//! source's queue: it waits for updates that have their place in the log, and for nothing that
//! waits itself. So two objects can be copied into each other, and an object into itself. What is
//! copied is what the source was at some time between the copy's beginning and its end.

use super::Lead;
use crate::key;
use crate::shared::Shared;
use nacre_object::Source;
use nacre_types::{ClientId, Epoch, Instance, ObjectId, PgId, Time};
use nacre_wire::msg::client::{OpFailure, OpReply, OpRequest, RequestId, SubOp, SubReply};
use nacre_wire::{Message, Payload};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Sources that one daemon asks for at one time: each may be as large as an operation.
const COPIES_MAX: usize = 8;
/// A question that was not asked again for so many retries is nobody's any more.
const FORGOTTEN_AFTER: u32 = 64;
/// Copies' questions are told from programs' by this bit of their numbers.
const NUMBER_BIT: u64 = 1 << 63;

/// Who asked for a source.
#[derive(Clone, Debug)]
struct Asked {
    pg: PgId,
    interval: Epoch,
    target: ObjectId,
    request: RequestId,
    at: Time,
    attempt: u32,
}

/// Sources that were asked for, by number.
#[derive(Debug, Default)]
pub struct Copies {
    asked: BTreeMap<u64, Asked>,
    next: u64,
    /// Who found no room: since when it has waited for its turn, and when it was last seen to.
    turned_away: BTreeMap<(PgId, RequestId), (Time, Time)>,
}

/// A source that has come, or why it does not.
#[derive(Debug)]
pub struct Copied {
    /// The target's group.
    pub pg: PgId,
    /// In which interval it was asked for.
    pub interval: Epoch,
    target: ObjectId,
    request: RequestId,
    source: Result<Arc<Source>, OpFailure>,
}

impl Copies {
    /// An answer to one of the questions, if it is one. Whoever is asked with an old map is asked
    /// again. Numbers begin again with each `instance`: what an earlier one asked for is
    /// another copy's.
    pub fn on_answer(
        &mut self,
        instance: Instance,
        reply: OpReply,
        payload: Payload,
    ) -> Option<Copied> {
        if reply.request.instance != instance {
            return None;
        }
        let Asked {
            pg,
            interval,
            target,
            request,
            ..
        } = self.asked.remove(&reply.request.sequence)?;
        let source = match (reply.failure, reply.results.into_iter().next()) {
            (None, Some(SubReply::Whole { object })) => Ok(Arc::new(Source {
                object,
                data: payload,
            })),
            (Some(OpFailure::WrongTarget {}), _) | (None, _) => return None,
            (Some(failure), _) => Err(failure),
        };
        Some(Copied {
            pg,
            interval,
            target,
            request,
            source,
        })
    }

    /// Whether the number is of a copy's question.
    #[must_use]
    pub const fn is_ours(number: u64) -> bool {
        number & NUMBER_BIT != 0
    }
}

impl Lead<'_> {
    /// Asks for what the front of the queue copies, unless it was asked for a short while ago.
    pub(super) fn ask_source(&mut self, target: &ObjectId, sh: &mut Shared) {
        let (pg, interval, now) = (self.id(), self.interval.since, sh.now);
        let retry = sh.config.timing.retry_interval;
        let front = self
            .primary
            .objects
            .peek(target)
            .and_then(|state| state.front());
        let Some(front) = front else { return };
        let source = front.request.ops.iter().find_map(SubOp::source).cloned();
        let (Some(source), request) = (source, front.request.request) else {
            return;
        };
        let copies = &mut sh.copies;
        copies
            .asked
            .retain(|_, asked| now.since(asked.at) < retry * FORGOTTEN_AFTER);
        // The same question keeps its number: where it waits already it does not wait twice.
        let ours =
            |asked: &Asked| (asked.pg, asked.interval, asked.request) == (pg, interval, request);
        let before = copies
            .asked
            .iter()
            .find(|(_, asked)| ours(asked))
            .map(|(number, asked)| (*number, asked.clone()));
        let waits = |asked: &Asked| now.since(asked.at) < retry * 4;
        if before.as_ref().is_some_and(|(_, asked)| waits(asked)) {
            return;
        }
        // A source that does not answer leaves its place to others meanwhile, and asks again when
        // it is its turn: places go to those who have waited longest.
        copies
            .turned_away
            .retain(|_, (_, seen)| now.since(*seen) < retry * 2);
        let waited = copies
            .turned_away
            .get(&(pg, request))
            .map(|(since, _)| *since);
        let since = before
            .as_ref()
            .map(|(_, asked)| asked.at)
            .or(waited)
            .unwrap_or(now);
        let room =
            COPIES_MAX.saturating_sub(copies.asked.values().filter(|asked| waits(asked)).count());
        let again = before.is_some();
        let sooner = |at: Time| at < since || (again && at == since);
        let others = copies
            .turned_away
            .iter()
            .filter(|(who, _)| **who != (pg, request));
        let sooner = others.filter(|(_, (at, _))| sooner(*at)).count();
        if sooner >= room {
            copies.turned_away.insert((pg, request), (since, now));
            return;
        }
        copies.turned_away.remove(&(pg, request));
        let (sequence, attempt) = match before {
            Some((number, asked)) => (number, asked.attempt + 1),
            None => {
                copies.next += 1;
                (copies.next | NUMBER_BIT, 1)
            }
        };
        let Some(map) = &sh.map else { return };
        let Some(pool) = map.pools.get(&pg.pool) else {
            return;
        };
        let place = PgId {
            seed: key::seed(key::hash(&source), pool.pg_num),
            ..pg
        };
        let Some(to) = map.pgs.get(&place).and_then(|record| record.primary()) else {
            return;
        };
        copies.asked.insert(
            sequence,
            Asked {
                pg,
                interval,
                target: target.clone(),
                request,
                at: now,
                attempt,
            },
        );
        let question = OpRequest {
            request: RequestId {
                client: ClientId(u64::MAX - u64::from(sh.config.id.0)),
                instance: sh.instance,
                sequence,
            },
            pg: place,
            object: source,
            ops: vec![SubOp::ReadWhole {}],
            attempt,
            ..OpRequest::default()
        };
        let message = Message::OpRequest(question, Payload::new());
        if to == sh.config.id {
            sh.loopback.push_back(message);
        } else {
            sh.send(to, message);
        }
    }

    /// A source has come: its copy can go on.
    pub(crate) fn on_copied(&mut self, copied: Copied, sh: &mut Shared) {
        let Copied {
            target,
            request,
            source,
            ..
        } = copied;
        let primary = &mut *self.primary;
        let Some(op) = primary.objects.queued_mut(&target, &request) else {
            return;
        };
        op.source = Some(source);
        self.process_object(&target, sh);
    }
}
