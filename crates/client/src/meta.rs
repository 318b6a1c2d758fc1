//! The client of service metadata: requests that end exactly once, and watches that survive changes
//! of the session (MAL-10, -11).
//!
//! ```text
//!  submit ─▶ in flight ──MetaRequest──▶ the monitor of this session       resent over every new session, and periodically
//!     ◀── completions ◀──MetaReply──
//!  watch ─▶ from ──MetaWatch──▶           on a new session: from the revision after the last one received
//!     ◀── events ◀──MetaEvents── (after, through]
//! ```
//! Replies that mean "not now" (rate limit, no majority) are not passed on: the request is resent
//! until its caller gives up. Every result that a caller gets is final.
//!
//! Invariants: every request completes exactly once; a watch's events arrive in the order of
//! revisions, without duplicates or gaps.

use nacre_types::{Entity, Instance, Time};
use nacre_wire::Message;
use nacre_wire::measure::{Measure, TooLong};
use nacre_wire::msg::check::{CLIENT_BYTES_MAX, check_meta_sendable};
use nacre_wire::msg::meta::{
    META_KEY_MAX, META_WINDOW, MetaCall, MetaCancel, MetaError, MetaEvent, MetaEvents, MetaReply,
    MetaRequest, MetaResult, MetaSpan, MetaWatch, MetaWatchEnded,
};
use std::collections::BTreeMap;
use std::time::Duration;

#[cfg(feature = "mutants")]
#[path = "mutants/meta.rs"]
pub(crate) mod planted;

/// An unanswered request is resent after this.
const RETRY: Duration = Duration::from_secs(2);

/// Identifies a request; increasing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetaId(pub u64);
/// Identifies a watch; increasing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetaWatchId(pub u64);

/// The end of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct MetaDone {
    /// The request.
    pub id: MetaId,
    /// The store's revision: of a transaction's own changes, or the one that a read saw.
    pub revision: u64,
    /// The result.
    pub result: Result<MetaResult, MetaFailure>,
}

/// Why a request did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaFailure {
    /// It was not executed.
    Refused(MetaError),
    /// The caller gave up waiting: it may have been executed, or may be executed later. Contains
    /// the monitors' last reply, if any.
    Unknown(Option<MetaError>),
}
impl std::fmt::Display for MetaFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(why) => why.fmt(f),
            Self::Unknown(Some(why)) => write!(f, "{why}. It may have happened, or happen yet"),
            Self::Unknown(None) => {
                f.write_str("no monitor answered in time. It may have happened, or happen yet")
            }
        }
    }
}
impl std::error::Error for MetaFailure {}

/// News of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchNews {
    /// All events of its keys up to revision `through`; possibly none.
    Events {
        /// In order of revision.
        events: Vec<MetaEvent>,
        /// All events up to this revision have been reported.
        through: u64,
    },
    /// The watch ended.
    Ended(MetaError),
}

#[derive(Debug)]
struct InFlight {
    call: MetaCall,
    known: u64,
    sent: Option<Time>,
    /// Do not resend before this: the monitors asked to wait.
    not_before: Option<Time>,
    again: bool,
    last: Option<MetaError>,
}

#[derive(Debug)]
struct Watch {
    span: MetaSpan,
    /// The revision to start from before any events have arrived; 0: now.
    from: u64,
    through: Option<u64>,
}

/// A monitor that cannot decode a request ends the connection. The request would be resent over the
/// next session and end that too.
fn sendable(measured: Result<(), TooLong>) -> Result<(), MetaError> {
    // Monitors accept less than can be sent: report their limit, so that the caller shortens it
    // only once.
    measured.map_err(|why| MetaError::Invalid {
        why: format!("{why} (keys have at most {META_KEY_MAX} bytes)"),
    })
}

/// See the module head.
#[derive(Debug)]
pub struct MetaClient {
    instance: Instance,
    next: u64,
    next_watch: u64,
    known: u64,
    in_flight: BTreeMap<u64, InFlight>,
    watches: BTreeMap<u64, Watch>,
    session: bool,
    done: Vec<MetaDone>,
    news: Vec<(MetaWatchId, WatchNews)>,
    out: Vec<Message>,
}

impl MetaClient {
    /// For one instance of a client.
    #[must_use]
    pub const fn new(instance: Instance) -> Self {
        Self {
            instance,
            next: 1,
            next_watch: 1,
            known: 0,
            in_flight: BTreeMap::new(),
            watches: BTreeMap::new(),
            session: false,
            done: Vec::new(),
            news: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Submits a request. `None`: too many are in flight, take completions first.
    pub fn submit(&mut self, now: Time, call: MetaCall) -> Option<MetaId> {
        let low = self
            .in_flight
            .first_key_value()
            .map_or(self.next, |(id, _)| *id);
        if self.next - low >= META_WINDOW {
            return None;
        }
        let id = self.next;
        self.next += 1;
        if let Err(why) = sendable(check_meta_sendable(&call)) {
            self.done.push(MetaDone {
                id: MetaId(id),
                revision: 0,
                result: Err(MetaFailure::Refused(why)),
            });
            return Some(MetaId(id));
        }
        let one = InFlight {
            call,
            known: self.known,
            sent: None,
            not_before: None,
            again: false,
            last: None,
        };
        self.in_flight.insert(id, one);
        self.send(now, id);
        Some(MetaId(id))
    }

    /// Abandons a request: it completes as [`MetaFailure::Unknown`].
    pub fn abandon(&mut self, id: MetaId) {
        if let Some(one) = self.in_flight.remove(&id.0) {
            let result = Err(MetaFailure::Unknown(one.last));
            self.done.push(MetaDone {
                id,
                revision: 0,
                result,
            });
        }
    }

    /// Begins a watch from a revision; 0: from now on.
    pub fn watch(&mut self, span: MetaSpan, from: u64) -> MetaWatchId {
        let id = self.next_watch;
        self.next_watch += 1;
        if let Err(why) = sendable(Measure::of("span", &span).fits("the span", CLIENT_BYTES_MAX)) {
            self.news.push((MetaWatchId(id), WatchNews::Ended(why)));
            return MetaWatchId(id);
        }
        self.watches.insert(
            id,
            Watch {
                span,
                from,
                through: None,
            },
        );
        self.ask_watch(id);
        MetaWatchId(id)
    }

    /// Ends a watch.
    pub fn cancel(&mut self, id: MetaWatchId) {
        if self.watches.remove(&id.0).is_some() && self.session {
            self.out
                .push(Message::MetaCancel(MetaCancel { watch: id.0 }));
        }
    }

    /// Whether something in flight waits for a monitor's answer.
    #[must_use]
    pub fn awaits_answers(&self) -> bool {
        self.in_flight.values().any(|one| one.sent.is_some())
    }
    /// Takes the messages to send to the monitors.
    pub fn take_outputs(&mut self, into: &mut Vec<Message>) {
        into.append(&mut self.out);
    }
    /// Takes the requests that have ended since the last call.
    pub fn take_done(&mut self, into: &mut Vec<MetaDone>) {
        into.append(&mut self.done);
    }
    /// Takes the watches' news since the last call.
    pub fn take_news(&mut self, into: &mut Vec<(MetaWatchId, WatchNews)>) {
        into.append(&mut self.news);
    }

    /// Whether results are waiting to be taken.
    pub(crate) fn has_more(&self) -> bool {
        !(self.done.is_empty() && self.news.is_empty())
    }

    fn send(&mut self, now: Time, id: u64) {
        if !self.session {
            return;
        }
        let first = self.in_flight.first_key_value();
        let (&answered_below, _) = first.expect("at least this one");
        let one = self.in_flight.get_mut(&id).expect("the caller has seen it");
        let request = MetaRequest {
            instance: self.instance,
            sequence: id,
            answered_below,
            known: one.known,
            again: std::mem::replace(&mut one.again, true),
            call: one.call.clone(),
        };
        one.sent = Some(now);
        one.not_before = None;
        self.out.push(Message::MetaRequest(request));
    }

    fn ask_watch(&mut self, id: u64) {
        if !self.session {
            return;
        }
        let watch = &self.watches[&id];
        let from = watch.through.map_or(watch.from, |through| through + 1);
        self.out.push(Message::MetaWatch(MetaWatch {
            watch: id,
            span: watch.span.clone(),
            from,
        }));
    }

    /// A new session with a monitor: resends everything open.
    pub fn on_session(&mut self, now: Time) {
        self.session = true;
        for id in self.in_flight.keys().copied().collect::<Vec<_>>() {
            self.send(now, id);
        }
        for id in self.watches.keys().copied().collect::<Vec<_>>() {
            self.ask_watch(id);
        }
    }

    /// The session has ended.
    pub fn on_session_lost(&mut self) {
        self.session = false;
        for one in self.in_flight.values_mut() {
            one.sent = None;
        }
    }

    /// Handles a message; returns whether it was about metadata.
    pub fn on_message(&mut self, now: Time, from: Entity, message: &Message) -> bool {
        if !matches!(from, Entity::Mon(_)) {
            return false;
        }
        match message {
            Message::MetaReply(reply) => self.on_reply(now, reply),
            Message::MetaEvents(told, payload) => self.on_events(told, payload),
            Message::MetaWatchEnded(MetaWatchEnded { watch, error }) => {
                if self.watches.remove(watch).is_some() {
                    self.news
                        .push((MetaWatchId(*watch), WatchNews::Ended(error.clone())));
                }
            }
            _ => return false,
        }
        true
    }

    fn on_reply(&mut self, now: Time, reply: &MetaReply) {
        let Some(one) = self
            .in_flight
            .get_mut(&reply.sequence)
            .filter(|_| reply.instance == self.instance)
        else {
            return;
        };
        self.known = self.known.max(reply.revision);
        if let MetaResult::Failed { error } = &reply.result {
            let wait = match error {
                MetaError::RateLimited { retry_ms } => Some(*retry_ms),
                MetaError::Unavailable { .. } => Some(100),
                _ => None,
            };
            if let Some(wait) = wait {
                one.last = Some(error.clone());
                one.not_before = Some(now + Duration::from_millis(wait.max(1)));
                return;
            }
        }
        self.in_flight.remove(&reply.sequence);
        let result = match reply.result.clone() {
            MetaResult::Failed { error } => Err(MetaFailure::Refused(error)),
            result => Ok(result),
        };
        self.done.push(MetaDone {
            id: MetaId(reply.sequence),
            revision: reply.revision,
            result,
        });
    }

    fn on_events(&mut self, told: &MetaEvents, payload: &[bytes::Bytes]) {
        let Some(watch) = self.watches.get_mut(&told.watch) else {
            return;
        };
        let through = watch.through.unwrap_or(told.after);
        if told.through < through {
            return;
        }
        let events = if told.after > through {
            None
        } else {
            MetaEvents::decode(payload).ok()
        };
        let Some(mut events) = events else {
            // Events are missing or damaged: restart the watch after the last revision received.
            return self.ask_watch(told.watch);
        };
        // The last messages of a former session may arrive after the first ones of the new session.
        events.retain(|event| event.revision() > through);
        watch.through = Some(told.through);
        self.known = self.known.max(told.through);
        self.news.push((
            MetaWatchId(told.watch),
            WatchNews::Events {
                events,
                through: told.through,
            },
        ));
    }

    fn due(one: &InFlight) -> Option<Time> {
        one.not_before.or_else(|| one.sent.map(|at| at + RETRY))
    }

    /// Resends what is due.
    pub fn on_tick(&mut self, now: Time) {
        let due = |one: &InFlight| Self::due(one).is_some_and(|at| at <= now);
        let again: Vec<u64> = self
            .in_flight
            .iter()
            .filter(|(_, one)| due(one))
            .map(|(id, _)| *id)
            .collect();
        for id in again {
            self.send(now, id);
        }
    }

    /// When [`Self::on_tick`] must be called.
    #[must_use]
    pub fn next_deadline(&self) -> Time {
        if !self.session {
            return Time::MAX;
        }
        self.in_flight
            .values()
            .filter_map(Self::due)
            .min()
            .unwrap_or(Time::MAX)
    }
}
