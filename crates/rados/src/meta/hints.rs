//! Hints that something has changed: a notify to the object's watchers, so that they look at once.
//!
//! ```text
//!  writer ──change──▶ object        a change is told by the log alone: a hint that is lost costs a watcher the time until it looks by itself
//!         ──notify──▶ watchers ──▶ read head and log
//! ```
//! At most one notify of a client is under way; what changes meanwhile is one more after it,
//! however much it is. Nobody waits for them.

use nacre_client::{Completion, Driven, OpId, Operation, WatchEvent, WatchId};
use nacre_types::{ObjectId, PoolId, Time};
use nacre_wire::msg::client::SubOp;
use std::time::Duration;

/// For how long the cluster waits for watchers to acknowledge.
const TIMEOUT_MS: u32 = 1_000;
/// A watcher silent for so long is none any more.
const SILENT_MAX: Duration = Duration::from_secs(30);
/// A registration that failed is tried again after this.
const AGAIN: Duration = Duration::from_secs(2);

/// Where the listening stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ear {
    /// Not begun, or lost.
    #[default]
    Closed,
    /// The registration is under way.
    Opening(WatchId),
    /// What is notified is heard.
    Open(WatchId),
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Hints {
    ear: Ear,
    /// Not before this.
    listen_at: Time,
    /// Something was heard since it was asked for last.
    heard: bool,
    sent: Option<OpId>,
    again: bool,
}

impl Hints {
    /// Begins to listen, if it does not already and the cluster can.
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
    /// Whether something was heard since this was asked last.
    pub const fn take(&mut self) -> bool {
        std::mem::replace(&mut self.heard, false)
    }

    /// Something has changed.
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
    /// Whether a hint is under way.
    #[must_use]
    pub const fn is_sending(&self) -> bool {
        self.sent.is_some()
    }

    /// Something has ended; whether it was one of these.
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
            // What changed before it was registered was not hinted at.
            self.heard |= completion.result.is_ok();
            return true;
        }
        false
    }

    /// What watchers heard.
    pub fn events(&mut self, objects: &mut dyn Driven) {
        let mut events = Vec::new();
        objects.watch_events(&mut events);
        for event in events {
            self.heard = true;
            match event {
                WatchEvent::Notify { watch, notify, .. } => {
                    let now = objects.now();
                    // Too late, or lost: the next event says so.
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
