//! Hints about changes: a notify to the object's watchers, so that they look at once.
//!
//! ```text
//!  writer ──change──▶ object        only the log reports changes: a lost hint delays a watcher until it looks by itself
//!         ──notify──▶ watchers ──▶ read head and log
//! ```
//! At most one notify of a client is in flight; all changes made meanwhile cause a single one after
//! it. No caller waits for them.

use nacre_client::{Completion, Driven, OpId, Operation, WatchEvent, WatchId};
use nacre_types::{ObjectId, PoolId, Time};
use nacre_wire::msg::client::SubOp;
use std::time::Duration;

/// How long the cluster waits for watchers' acknowledgements.
const TIMEOUT_MS: u32 = 1_000;
/// A watcher silent for this long is dropped.
const SILENT_MAX: Duration = Duration::from_secs(30);
/// Delay after a failed registration.
const AGAIN: Duration = Duration::from_secs(2);

/// The state of listening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ear {
    /// Not begun, or lost.
    #[default]
    Closed,
    /// The registration is in flight.
    Opening(WatchId),
    /// Notifies are received.
    Open(WatchId),
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Hints {
    ear: Ear,
    /// Not before this.
    listen_at: Time,
    /// Whether a hint has arrived since the last check.
    heard: bool,
    sent: Option<OpId>,
    again: bool,
}

impl Hints {
    /// Begins to listen, unless it already does or the cluster cannot.
    pub fn listen(&mut self, objects: &mut dyn Driven, (pool, object): &(PoolId, ObjectId)) {
        let now = objects.now();
        if self.ear != Ear::Closed
            || now < self.listen_at
            || !objects.objects().capabilities().watch
        {
            return;
        }
        self.listen_at = now + AGAIN;
        if let Ok(watch) = objects
            .objects()
            .watch(now, *pool, object.clone(), SILENT_MAX)
        {
            self.ear = Ear::Opening(watch);
        }
    }
    /// Whether changes are hinted at, as far as is known.
    #[must_use]
    pub const fn listens(&self) -> bool {
        matches!(self.ear, Ear::Open(_))
    }
    /// Whether a hint has arrived since the last call.
    pub const fn take(&mut self) -> bool {
        std::mem::replace(&mut self.heard, false)
    }

    /// Something has changed: sends a hint.
    pub fn send(&mut self, objects: &mut dyn Driven, (pool, object): &(PoolId, ObjectId)) {
        if !objects.objects().capabilities().watch {
            return;
        }
        if self.sent.is_some() {
            self.again = true;
            return;
        }
        let ops = vec![SubOp::Notify {
            timeout_ms: TIMEOUT_MS,
            length: 0,
        }];
        let operation = Operation {
            pool: *pool,
            object: object.clone(),
            ops,
            ..Operation::default()
        };
        let now = objects.now();
        self.sent = objects.objects().submit(now, operation).ok();
    }
    /// Whether a hint is in flight.
    #[must_use]
    pub const fn is_sending(&self) -> bool {
        self.sent.is_some()
    }

    /// Handles the end of an operation; returns whether it was one of these.
    pub fn ended(
        &mut self,
        objects: &mut dyn Driven,
        place: Option<&(PoolId, ObjectId)>,
        completion: &Completion,
    ) -> bool {
        if self.sent == Some(completion.id) {
            self.sent = None;
            if let Some(place) = place.filter(|_| std::mem::take(&mut self.again)) {
                self.send(objects, place);
            }
            return true;
        }
        if let Ear::Opening(watch) = self.ear
            && OpId(watch.0) == completion.id
        {
            self.ear = if completion.result.is_ok() {
                Ear::Open(watch)
            } else {
                Ear::Closed
            };
            // Changes before the registration were not hinted at.
            self.heard |= completion.result.is_ok();
            return true;
        }
        false
    }

    /// Takes the watchers' events.
    pub fn events(&mut self, objects: &mut dyn Driven) {
        let mut events = Vec::new();
        objects.watch_events(&mut events);
        for event in events {
            self.heard = true;
            match event {
                WatchEvent::Notify { watch, notify, .. } => {
                    let now = objects.now();
                    // Too late, or lost: the next event will tell.
                    let _ = objects
                        .objects()
                        .ack_notify(now, watch, notify, bytes::Bytes::new());
                }
                WatchEvent::Lost { watch, .. } => {
                    if self.ear == Ear::Open(watch) || self.ear == Ear::Opening(watch) {
                        self.ear = Ear::Closed;
                    }
                }
            }
        }
    }
}
