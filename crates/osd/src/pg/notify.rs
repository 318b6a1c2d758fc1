//! Notifies: messages from a client to all watchers of an object (the picture is in `watch.rs`).

use super::dedup::Seen;
use super::local::Local;
use super::pending::Pending;
use super::primary::Primary;
use super::update::Answer;
use super::watch::{Own, Watching};
use super::{Interval, Lead};
use crate::shared::Shared;
use nacre_object::Context;
use nacre_object::claims::watch_attr;
use nacre_object::evaluate::Update;
use nacre_types::{Entity, PgId, Time, Version};
use nacre_wire::msg::client::{OpFailure, RequestId, SubOp, SubReply};
use nacre_wire::msg::payload_len;
use nacre_wire::msg::replication::Effect;
use nacre_wire::msg::watch::{
    NOTIFIES_MAX, NOTIFY_REPLY_MAX, NotifyAck, NotifyAcked, WatchNotify, WatcherId,
};
use nacre_wire::{Message, Payload};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[cfg(feature = "mutants")]
#[path = "../mutants/notify.rs"]
mod planted;

/// A notify that waits for watchers.
#[derive(Debug)]
pub(super) struct Notify {
    pub(super) op: Box<Pending>,
    /// The object's version when its watchers were listed.
    pub(super) version: Version,
    pub(super) ends: Time,
    pub(super) sent: Time,
    pub(super) waiting: BTreeSet<WatcherId>,
    pub(super) acked: BTreeMap<WatcherId, Payload>,
    pub(super) missed: BTreeSet<WatcherId>,
}

impl Watching {
    /// Sends a notify to the watchers that have not acknowledged it.
    pub(super) fn tell(
        &mut self,
        pg: PgId,
        id: &RequestId,
        only: Option<WatcherId>,
        sh: &mut Shared,
    ) {
        let Some(notify) = self.notifies.get_mut(id) else {
            return;
        };
        if only.is_none() {
            notify.sent = sh.now;
        }
        for watcher in notify
            .waiting
            .iter()
            .copied()
            .filter(|watcher| only.is_none_or(|only| only == *watcher))
        {
            let message = WatchNotify {
                pg,
                object: notify.op.request.object.clone(),
                watcher,
                notify: *id,
            };
            let message = Message::WatchNotify(message, notify.op.payload.clone());
            sh.reply(Entity::Client(watcher.client), message, None);
        }
    }

    /// A watcher has received a notify. Returns whether that is news.
    fn on_ack(&mut self, message: &NotifyAck, payload: Payload, now: Time) -> bool {
        self.hear_watcher(&message.object, &message.watcher, now);
        let Some(notify) = self.notifies.get_mut(&message.notify) else {
            return false;
        };
        let news =
            notify.op.request.object == message.object && notify.waiting.remove(&message.watcher);
        if news {
            notify.acked.insert(message.watcher, payload);
        }
        news
    }
}

impl Primary {
    /// A client's operation notifies the watchers of its object. Returns whether it waits for them
    /// now.
    fn begin_notify(
        &mut self,
        mut op: Box<Pending>,
        context: &Context,
        (local, at): (&Local, &Interval),
        sh: &mut Shared,
    ) -> bool {
        let id = op.request.request;
        if let Some(under_way) = self.watching.notifies.get_mut(&id) {
            // A resend: one answer, to the last attempt.
            under_way.op.comes_again(op.from, op.request.attempt);
            op.release(sh);
            return false;
        }
        // Only updates are remembered: for a notify, only if a watcher missed it. Other notifies
        // are unknown, even if their client is unknown or has written since: watchers may be
        // notified twice.
        let is_remembered = matches!(local.dedup.seen(&id), Seen::Done(_) | Seen::Superseded);
        if is_remembered && self.replies(local).answered_from_memory(&op, sh) {
            return false;
        }
        let [SubOp::Notify { timeout_ms, .. }] = op.request.ops[..] else {
            unreachable!("asked before it is called")
        };
        let of_object = |notify: &&Notify| notify.op.request.object == op.request.object;
        let watching = &self.watching;
        let full = watching.notifies.values().filter(of_object).count() >= NOTIFIES_MAX;
        let failure = match context.exists {
            false => Some(OpFailure::NotFound {}),
            true if full => Some(OpFailure::TooMany {
                what: format!("{NOTIFIES_MAX} notifies of the object wait already"),
            }),
            true if op.finds_too_many_set_aside(sh) => Some(OpFailure::TooMany {
                what: "notifies wait at this daemon already".to_owned(),
            }),
            true => None,
        };
        if failure.is_some() {
            let lease = at.lease_until(sh);
            let answer = Answer::new(op, context.version, Vec::new()).with_failure(failure);
            self.replies(local).answer(answer, Some(lease), sh);
            return false;
        }
        let map = sh.map.as_ref().expect("who serves has a map");
        let fenced = |id: &WatcherId| map.is_fenced(Entity::Client(id.client), id.instance);
        let (missed, waiting) = context.claims.watches.keys().copied().partition(fenced);
        let ends = sh.now + Duration::from_millis(u64::from(timeout_ms));
        let acked = BTreeMap::new();
        op.set_aside(sh);
        let notify = Notify {
            op,
            version: context.version,
            ends,
            sent: sh.now,
            waiting,
            acked,
            missed,
        };
        self.watching.notifies.insert(id, notify);
        sh.wake_at(ends);
        self.watching.tell(at.pg, &id, None, sh);
        true
    }
}

impl Lead<'_> {
    /// A client's operation notifies the watchers of its object.
    pub(super) fn notify(&mut self, op: Box<Pending>, context: &Context, sh: &mut Shared) {
        let (id, here) = (op.request.request, (&*self.local, self.interval));
        if self.primary.begin_notify(op, context, here, sh) {
            self.conclude_if_over(&id, sh);
        }
    }

    /// Ends a notify if all watchers have acknowledged it or its time has expired.
    #[nacre_types::planted]
    pub(super) fn conclude_if_over(&mut self, id: &RequestId, sh: &mut Shared) {
        let now = sh.now;
        let watching = &mut self.primary.watching;
        let over = |notify: &Notify| notify.waiting.is_empty() || notify.ends <= now;
        if !watching.notifies.get(id).is_some_and(over) {
            return;
        }
        let Notify {
            mut op,
            version,
            waiting,
            acked,
            mut missed,
            ..
        } = watching.notifies.remove(id).expect("just seen");
        op.take_back(sh);
        missed.extend(waiting);
        if missed.is_empty() {
            let (results, payload) = told(&acked, &missed);
            let answer = Answer {
                payload,
                ..Answer::new(op, version, results)
            };
            self.replies().answer(answer, None, sh);
            return;
        }
        let object = op.request.object.clone();
        op.own = Some(Own::Drop {
            watchers: missed,
            acked,
        });
        self.primary.objects.push(&object, op);
        self.process_object(&object, sh);
    }

    /// The update that removes watches. With a notify, it belongs to that operation: a resend of it
    /// is answered from memory by any later primary.
    pub(super) fn drop_watches(
        &mut self,
        op: Box<Pending>,
        watchers: &BTreeSet<WatcherId>,
        acked: &BTreeMap<WatcherId, Payload>,
        before: Context,
        sh: &mut Shared,
    ) {
        let mut context = before.clone();
        let removed = watchers
            .iter()
            .filter(|id| context.claims.watches.remove(id).is_some());
        let effects: Vec<Effect> = removed
            .map(|id| Effect::RemoveAttr {
                name: watch_attr(id),
            })
            .collect();
        let (results, payload) = if op.is_clients() {
            told(acked, watchers)
        } else {
            Default::default()
        };
        if effects.is_empty() {
            // The watches were removed in the meantime.
            let answer = Answer {
                payload,
                ..Answer::new(op, before.version, results)
            };
            let head = self.local.log.head();
            self.replies().answer_when_committed(head, answer, sh);
            return;
        }
        let kept = if op.is_clients() {
            remembered(acked, watchers)
        } else {
            Vec::new()
        };
        self.begin_update(
            op,
            before,
            Update {
                effects,
                payload: Payload::new(),
                context,
                results: kept,
            },
            sh,
        );
        let update = self.primary.in_flight.back_mut().expect("just begun");
        let answer = update
            .answers
            .first_mut()
            .expect("an update answers its client first");
        (answer.reply.results, answer.payload) = (results, payload);
    }

    /// A watcher has received a notify. The acknowledgement is valid from any interval.
    pub(crate) fn on_notify_ack(&mut self, message: &NotifyAck, payload: Payload, sh: &mut Shared) {
        if payload_len(&payload) <= NOTIFY_REPLY_MAX
            && self.primary.watching.on_ack(message, payload, sh.now)
        {
            self.conclude_if_over(&message.notify, sh);
        }
    }
}

/// The answer to a notifier, with the replies.
fn told(
    acked: &BTreeMap<WatcherId, Payload>,
    missed: &BTreeSet<WatcherId>,
) -> (Vec<SubReply>, Payload) {
    let length = |reply: &Payload| u32::try_from(payload_len(reply)).expect("replies are short");
    let list = acked.iter().map(|(watcher, reply)| NotifyAcked {
        watcher: *watcher,
        length: length(reply),
    });
    let missed = missed.iter().copied().collect();
    let result = SubReply::Notified {
        acked: list.collect(),
        missed,
        from_memory: false,
    };
    (vec![result], acked.values().flatten().cloned().collect())
}

/// The answer in its remembered form.
fn remembered(acked: &BTreeMap<WatcherId, Payload>, missed: &BTreeSet<WatcherId>) -> Vec<SubReply> {
    let acked = acked
        .keys()
        .map(|watcher| NotifyAcked {
            watcher: *watcher,
            length: 0,
        })
        .collect();
    vec![SubReply::Notified {
        acked,
        missed: missed.iter().copied().collect(),
        from_memory: true,
    }]
}
