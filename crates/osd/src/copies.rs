//! Sources of copies that this daemon has requested (`pg/copy.rs`), and the queue for requests.

use nacre_object::Source;
use nacre_types::{Epoch, Instance, ObjectId, PgId, Time};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, OpReply, RequestId, SubReply};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Sources that one daemon requests at one time: each may be as large as an operation.
const COPIES_MAX: usize = 8;
/// A request that was not repeated for this number of retries is considered abandoned.
const FORGOTTEN_AFTER: u32 = 64;
/// This bit of their numbers distinguishes copies' requests from those for classes.
const NUMBER_BIT: u64 = 1 << 63;

/// The operation that requested a source.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) pg: PgId,
    pub(crate) interval: Epoch,
    pub(crate) target: ObjectId,
    pub(crate) request: RequestId,
    pub(crate) at: Time,
    pub(crate) attempt: u32,
}

/// Requested sources, by number.
#[derive(Debug, Default)]
pub struct Copies {
    asked: BTreeMap<u64, Asked>,
    next: u64,
    /// Requests beyond the limit: since when each has waited for its turn, and when it was last
    /// repeated.
    turned_away: BTreeMap<(PgId, RequestId), (Time, Time)>,
}

/// A source that has arrived, or the failure.
#[derive(Debug)]
pub struct Copied {
    /// The target's PG.
    pub pg: PgId,
    /// The interval in which it was requested.
    pub interval: Epoch,
    pub(crate) target: ObjectId,
    pub(crate) request: RequestId,
    pub(crate) source: Result<Arc<Source>, OpFailure>,
}

impl Copies {
    /// A reply to one of the requests, if it is one. A request sent with an old map is repeated.
    /// Numbers begin again with each `instance`: a request of an earlier one belongs to another
    /// copy.
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

    /// The number and the attempt of a request that may be sent now, unless it was sent a short
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
        // A repeated request keeps its number: it does not wait twice at the source.
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
        // A source that does not answer leaves its place to others meanwhile, and is requested
        // again in its turn: places go to the requests that have waited longest.
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

    /// The request with this number is sent.
    pub(crate) fn ask(&mut self, number: u64, asked: Asked) {
        self.asked.insert(number, asked);
    }

    /// Whether the number is that of a copy's request.
    #[must_use]
    pub const fn is_ours(number: u64) -> bool {
        number & NUMBER_BIT != 0
    }
}
