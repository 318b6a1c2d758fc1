//! Sources of copies that this daemon has asked for (`pg/copy.rs`), and whose turn it is.

use nacre_object::Source;
use nacre_types::{Epoch, Instance, ObjectId, PgId, Time};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, OpReply, RequestId, SubReply};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Sources that one daemon asks for at one time: each may be as large as an operation.
const COPIES_MAX: usize = 8;
/// A question that was not asked again for so many retries is nobody's any more.
const FORGOTTEN_AFTER: u32 = 64;
/// Copies' questions are told from programs' by this bit of their numbers.
const NUMBER_BIT: u64 = 1 << 63;

/// Who asked for a source.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) pg: PgId,
    pub(crate) interval: Epoch,
    pub(crate) target: ObjectId,
    pub(crate) request: RequestId,
    pub(crate) at: Time,
    pub(crate) attempt: u32,
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
    pub(crate) target: ObjectId,
    pub(crate) request: RequestId,
    pub(crate) source: Result<Arc<Source>, OpFailure>,
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

    /// The number and the attempt of a question that may be asked now, unless it was asked a short
    /// while ago.
    pub(crate) fn turn(
        &mut self,
        (pg, interval): (PgId, Epoch),
        request: RequestId,
        now: Time,
        retry: Duration,
    ) -> Option<(u64, u32)> {
        self.asked
            .retain(|_, asked| now.since(asked.at) < retry * FORGOTTEN_AFTER);
        // The same question keeps its number: where it waits already it does not wait twice.
        let ours =
            |asked: &Asked| (asked.pg, asked.interval, asked.request) == (pg, interval, request);
        let before = self
            .asked
            .iter()
            .find(|(_, asked)| ours(asked))
            .map(|(number, asked)| (*number, asked.clone()));
        let waits = |asked: &Asked| now.since(asked.at) < retry * 4;
        if before.as_ref().is_some_and(|(_, asked)| waits(asked)) {
            return None;
        }
        // A source that does not answer leaves its place to others meanwhile, and asks again when
        // it is its turn: places go to those who have waited longest.
        self.turned_away
            .retain(|_, (_, seen)| now.since(*seen) < retry * 2);
        let waited = self
            .turned_away
            .get(&(pg, request))
            .map(|(since, _)| *since);
        let since = before
            .as_ref()
            .map(|(_, asked)| asked.at)
            .or(waited)
            .unwrap_or(now);
        let room =
            COPIES_MAX.saturating_sub(self.asked.values().filter(|asked| waits(asked)).count());
        let again = before.is_some();
        let sooner = |at: Time| at < since || (again && at == since);
        let others = self
            .turned_away
            .iter()
            .filter(|(who, _)| **who != (pg, request));
        let sooner = others.filter(|(_, (at, _))| sooner(*at)).count();
        if sooner >= room {
            self.turned_away.insert((pg, request), (since, now));
            return None;
        }
        self.turned_away.remove(&(pg, request));
        Some(match before {
            Some((number, asked)) => (number, asked.attempt + 1),
            None => {
                self.next += 1;
                (self.next | NUMBER_BIT, 1)
            }
        })
    }

    /// The question of this number is asked.
    pub(crate) fn ask(&mut self, number: u64, asked: Asked) {
        self.asked.insert(number, asked);
    }

    /// Whether the number is of a copy's question.
    #[must_use]
    pub const fn is_ours(number: u64) -> bool {
        number & NUMBER_BIT != 0
    }
}
