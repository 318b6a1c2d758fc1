//! Planted bugs of watches: what they are told, remember and say is spoiled around the client's
//! steps (`role.rs`).

use super::{Stage, UNACKNOWLEDGED_MAX, Watches};
use crate::cluster::{WatchEvent, WatchId};
use crate::mutants::{Mutant, mutant};
use nacre_role::Output;
use nacre_types::Time;
use nacre_wire::Message;
use nacre_wire::msg::client::RequestId;
use std::collections::{BTreeMap, BTreeSet};

/// When each watch was pinged before a step, and whether it was due.
pub(crate) type Pinged = BTreeMap<u64, (Time, bool)>;
/// Notifies of a watch that it does not count during a step.
pub(crate) type Aside = Option<(u64, BTreeSet<RequestId>)>;

impl Watches {
    pub(crate) fn before(&self, now: Time) -> Pinged {
        let all = self.watches.iter();
        all.map(|(cookie, watch)| (*cookie, (watch.pinged, watch.due() <= now)))
            .collect()
    }

    pub(crate) fn after(&mut self, before: Pinged, out: &mut Vec<Output>) {
        if mutant(Mutant::LostSilently) {
            self.events
                .retain(|event| !matches!(event, WatchEvent::Lost { .. }));
        }
        for event in &mut self.events {
            if let WatchEvent::Lost { watch, since } = event
                && let Some((pinged, _)) = before.get(&watch.0)
                && mutant(Mutant::LostSinceLastPing)
            {
                *since = *pinged;
            }
        }
        if mutant(Mutant::MovedWatchUnpinged) {
            let early: Pinged = before.into_iter().filter(|(_, (_, due))| !due).collect();
            out.retain(|output| match output {
                Output::Send {
                    message: Message::WatchPing(ping),
                    ..
                } => !early.contains_key(&ping.watcher.cookie),
                _ => true,
            });
            for (cookie, (pinged, _)) in early {
                if let Some(watch) = self.watches.get_mut(&cookie) {
                    watch.pinged = pinged;
                }
            }
        }
    }

    pub(crate) fn spoil_message(&mut self, message: &mut Message) -> Aside {
        match message {
            Message::WatchPong(pong) => {
                let watch = self.watches.get_mut(&pong.watcher.cookie)?;
                if pong.alive && mutant(Mutant::OldPongConfirms) {
                    pong.stamp = watch.pinged.0;
                }
                if !pong.alive && mutant(Mutant::LostBeforeRegistered) {
                    watch.stage = Stage::Active;
                }
            }
            Message::WatchNotify(notify, _) => {
                let watch = self.watches.get_mut(&notify.watcher.cookie)?;
                if mutant(Mutant::NotifyToldTwice) {
                    watch.told.remove(&notify.notify);
                }
                if mutant(Mutant::NotifiesUnbounded)
                    && watch.told.len() >= UNACKNOWLEDGED_MAX
                    && !watch.told.contains(&notify.notify)
                {
                    return Some((notify.watcher.cookie, std::mem::take(&mut watch.told)));
                }
            }
            _ => {}
        }
        None
    }
    pub(crate) fn put_back(&mut self, aside: Aside) {
        if let Some((cookie, told)) = aside
            && let Some(watch) = self.watches.get_mut(&cookie)
        {
            watch.told.extend(told);
        }
    }

    pub(crate) fn spoil_begun(&mut self, watch: WatchId) {
        if let Some(watch) = self.watches.get_mut(&watch.0)
            && mutant(Mutant::PingedTooLate)
        {
            watch.timeout *= 4;
        }
    }
    pub(crate) fn spoil_acknowledged(&mut self, watch: WatchId) {
        if let Some(watch) = self.watches.get_mut(&watch.0)
            && mutant(Mutant::AcknowledgedForgotten)
        {
            watch.acknowledged.pop_back();
        }
    }
}
