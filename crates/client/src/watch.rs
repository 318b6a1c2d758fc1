//! The client's watches: kept alive by pings, informed of notifies, and told whenever one was
//! missed (CHECKLIST CEPH-09).
//!
//! ```text
//!  watch ─▶ Registering ──answered──▶ Active ──the primary says it is gone · fenced · no such pool──▶ Lost{since}
//!              │ refused: the completion says so    │ ping: every quarter of the timeout, at once in a new interval
//!              ▼                                    ▼ unwatch
//!            (gone)                               (gone)
//! ```
//! If a watcher misses a notify, the primary removes its watch before it answers the notifier. So
//! the ping's answer is reliable: while it says that the watch exists, no notifier has been told
//! that this client missed anything. After [`WatchEvent::Lost`] the watcher reads the watched
//! object again and creates a new watch.
//!
//! A notify may arrive twice, after the primary changed or an acknowledgement was lost. The role
//! repeats an acknowledgement with the same reply; the service sees each notify once, as long as
//! the role remembers it: the last [`REMEMBERED`] of a watch.

use crate::cluster::{OpId, WatchError, WatchEvent, WatchId};
use bytes::Bytes;
use nacre_types::{ClientId, Epoch, Instance, ObjectId, OsdId, PgId, PoolId, Time};
use nacre_wire::msg::client::RequestId;
use nacre_wire::msg::watch::{
    NOTIFY_REPLY_MAX, NotifyAck, WatchNotify, WatchPing, WatchPong, WatcherId,
};
use nacre_wire::{Message, Payload};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

#[cfg(feature = "mutants")]
#[path = "mutants/watch.rs"]
pub(crate) mod planted;

/// Acknowledged notifies per watch that are recognised when they are repeated.
pub const REMEMBERED: usize = 64;
/// Most notifies of a watch that the service has not acknowledged; further ones are dropped, count
/// as missed, and the watch is lost.
const UNACKNOWLEDGED_MAX: usize = 64;

/// Where an object is served: PG, interval, primary.
pub type Target = (PgId, Epoch, OsdId);

#[derive(Debug, PartialEq)]
enum Stage {
    /// Waiting for the answer to its registration.
    Registering,
    /// Registered, as far as is known.
    Active,
}

#[derive(Debug)]
struct Watch {
    pool: PoolId,
    object: ObjectId,
    timeout: Duration,
    stage: Stage,
    target: Option<Target>,
    /// When the watch last existed for certain.
    confirmed: Time,
    pinged: Time,
    /// Reported to the service but not acknowledged yet.
    told: BTreeSet<RequestId>,
    /// Acknowledged, with the reply, oldest first.
    acknowledged: VecDeque<(RequestId, Bytes)>,
}

impl Watch {
    /// Four pings per timeout: three may be lost.
    fn due(&self) -> Time {
        self.pinged + self.timeout / 4
    }
}

/// See the module head.
#[derive(Debug)]
pub struct Watches {
    client: ClientId,
    instance: Instance,
    watches: BTreeMap<u64, Watch>,
    events: Vec<WatchEvent>,
}

impl Watches {
    /// No watches yet.
    pub const fn new(client: ClientId, instance: Instance) -> Self {
        Self {
            client,
            instance,
            watches: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    /// The client continues as a later instance: watches belong to one instance.
    pub fn begin_again(&mut self, instance: Instance) {
        let all: Vec<u64> = self.watches.keys().copied().collect();
        all.into_iter().for_each(|cookie| self.lose(cookie));
        self.instance = instance;
    }

    /// The operation that registers a watch has been submitted.
    pub fn begin(
        &mut self,
        now: Time,
        cookie: u64,
        pool: PoolId,
        object: ObjectId,
        timeout: Duration,
    ) {
        let watch = Watch {
            pool,
            object,
            timeout,
            stage: Stage::Registering,
            target: None,
            confirmed: now,
            pinged: now,
            told: BTreeSet::new(),
            acknowledged: VecDeque::new(),
        };
        self.watches.insert(cookie, watch);
    }

    /// The watched object.
    pub fn place(&self, watch: WatchId) -> Option<(PoolId, ObjectId)> {
        self.watches
            .get(&watch.0)
            .map(|watch| (watch.pool, watch.object.clone()))
    }

    /// The service ends the watch.
    pub fn end(&mut self, watch: WatchId) {
        self.watches.remove(&watch.0);
    }

    /// When the watch last existed for certain.
    pub fn confirmed(&self, watch: WatchId) -> Option<Time> {
        let watch = self
            .watches
            .get(&watch.0)
            .filter(|watch| watch.stage == Stage::Active)?;
        Some(watch.confirmed)
    }

    /// An operation ended; it may have registered a watch.
    pub fn on_finished(&mut self, id: OpId, good: bool) {
        match self.watches.get_mut(&id.0) {
            Some(watch) if good => watch.stage = Stage::Active,
            // Its completion has the reason; if the watch was recorded nevertheless, it times out.
            Some(_) => {
                self.watches.remove(&id.0);
            }
            None => {}
        }
    }

    /// Takes the events for the service.
    pub fn take_events(&mut self, into: &mut Vec<WatchEvent>) {
        into.append(&mut self.events);
    }

    /// When the next ping is due.
    pub fn next_deadline(&self) -> Time {
        let active = self
            .watches
            .values()
            .filter(|watch| watch.stage == Stage::Active && watch.target.is_some());
        active.map(Watch::due).min().unwrap_or(Time::MAX)
    }

    /// Updates where all watched objects are served, and pings watches that have moved or are due.
    /// `fenced`: this client instance has ended.
    pub fn look(
        &mut self,
        now: Time,
        fenced: bool,
        place: impl Fn(PoolId, &ObjectId) -> Option<Option<Target>>,
        out: &mut Vec<(OsdId, Message)>,
    ) {
        let mut lost = Vec::new();
        for (cookie, watch) in self
            .watches
            .iter_mut()
            .filter(|(_, watch)| watch.stage == Stage::Active)
        {
            match place(watch.pool, &watch.object) {
                Some(target) if !fenced => {
                    let moved = watch.target != target;
                    watch.target = target;
                    let Some((pg, _, osd)) = target else { continue };
                    if moved || watch.due() <= now {
                        watch.pinged = now;
                        let watcher = WatcherId {
                            client: self.client,
                            instance: self.instance,
                            cookie: *cookie,
                        };
                        let ping = WatchPing {
                            pg,
                            object: watch.object.clone(),
                            watcher,
                            stamp: now.0,
                        };
                        out.push((osd, Message::WatchPing(ping)));
                    }
                }
                _ => lost.push(*cookie),
            }
        }
        for cookie in lost {
            self.lose(cookie);
        }
    }

    /// The connection to an OSD broke: its watches may have moved, or a ping may be lost.
    pub fn on_peer_reset(&mut self, osd: OsdId) {
        for watch in self
            .watches
            .values_mut()
            .filter(|watch| watch.target.is_some_and(|(_, _, at)| at == osd))
        {
            // The next look finds that it has moved.
            watch.target = None;
        }
    }

    fn lose(&mut self, cookie: u64) {
        if let Some(watch) = self.watches.remove(&cookie) {
            self.events.push(WatchEvent::Lost {
                watch: WatchId(cookie),
                since: watch.confirmed,
            });
        }
    }

    /// Handles the answer to a ping.
    pub fn on_pong(&mut self, pong: &WatchPong) {
        if (pong.watcher.client, pong.watcher.instance) != (self.client, self.instance) {
            return;
        }
        let Some(watch) = self.watches.get_mut(&pong.watcher.cookie) else {
            return;
        };
        // Before its registration is answered, wait for the next ping after that.
        match (&watch.stage, pong.alive) {
            (Stage::Active, true) => watch.confirmed = watch.confirmed.max(Time(pong.stamp)),
            (Stage::Active, false) => self.lose(pong.watcher.cookie),
            (Stage::Registering, _) => {}
        }
    }

    /// Handles a notify. Returns a message to send to the OSD at once if the notify was
    /// acknowledged before.
    pub fn on_notify(&mut self, message: WatchNotify, payload: Payload) -> Option<Message> {
        let WatchNotify {
            pg,
            object,
            watcher,
            notify,
        } = message;
        if (watcher.client, watcher.instance) != (self.client, self.instance) {
            return None;
        }
        let watch = self.watches.get_mut(&watcher.cookie)?;
        if let Some((_, reply)) = watch.acknowledged.iter().find(|(id, _)| *id == notify) {
            let ack = NotifyAck {
                pg,
                object,
                watcher,
                notify,
            };
            return Some(Message::NotifyAck(ack, vec![reply.clone()]));
        }
        let room = watch.told.len() < UNACKNOWLEDGED_MAX;
        if room && watch.told.insert(notify) {
            self.events.push(WatchEvent::Notify {
                watch: WatchId(watcher.cookie),
                notify,
                payload,
            });
        }
        None
    }

    /// The service acknowledges a notify. Returns the message for the object's current primary;
    /// without a primary, the notify will be repeated.
    pub fn ack(
        &mut self,
        id: WatchId,
        notify: RequestId,
        reply: Bytes,
        place: impl Fn(PoolId, &ObjectId) -> Option<Option<Target>>,
    ) -> Result<Option<(OsdId, Message)>, WatchError> {
        if reply.len() > NOTIFY_REPLY_MAX {
            return Err(WatchError::ReplyTooLarge);
        }
        let watch = self.watches.get_mut(&id.0).ok_or(WatchError::NoSuchWatch)?;
        if !watch.told.remove(&notify) {
            return Err(WatchError::NoSuchNotify);
        }
        watch.acknowledged.push_back((notify, reply.clone()));
        if watch.acknowledged.len() > REMEMBERED {
            watch.acknowledged.pop_front();
        }
        let watcher = WatcherId {
            client: self.client,
            instance: self.instance,
            cookie: id.0,
        };
        let Some(Some((pg, _, osd))) = place(watch.pool, &watch.object) else {
            return Ok(None);
        };
        let ack = NotifyAck {
            pg,
            object: watch.object.clone(),
            watcher,
            notify,
        };
        Ok(Some((osd, Message::NotifyAck(ack, vec![reply]))))
    }
}
