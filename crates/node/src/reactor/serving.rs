//! The roles' turn: inputs in order of arrival, each role's actions performed before its next input.

use super::{Node, Reactor, submit_failure};
use crate::clock;
use crate::evaluator::{self, Evaluator};
use crate::hosted::Hosted;
use crate::role::{Action, Input, Role};
use crate::watchdog;
use nacre_osd::{DeviceCall, Timing};
use nacre_store::{DeviceError, Event, StoreFailure};
use nacre_types::{Entity, Time};
use nacre_wire::Message;
use rustix::io::Errno;

impl Reactor {
    /// Gives every role what is in hand. Returns whether anything happened.
    pub(super) fn round(&mut self) -> bool {
        let mut any = false;
        for at in 0..self.nodes.len() {
            let Some(mut node) = self.nodes[at].take() else { continue };
            if node.halted.is_none() {
                any |= self.serve(&mut node, at);
            }
            self.nodes[at] = Some(node);
        }
        any
    }

    pub(super) fn serve(&mut self, node: &mut Node, at: usize) -> bool {
        let mut any = false;
        let mut actions = std::mem::take(&mut self.actions);
        let mut events = std::mem::take(&mut self.store_events);
        if let Some(why) = node.store.as_ref().and_then(Hosted::broken) {
            self.say(format!("{} stops: {why}", node.entity));
            node.halt(why);
            return true;
        }
        if let Some(store) = &mut node.store
            && let Err(error) = store.poll(&mut events)
        {
            node.halt(submit_failure(node.entity, error));
        }
        // After everything in hand was received, never before: leases are counted from it.
        let now = clock::now();
        if let Some(call) = node.device.as_ref().and_then(|news| news.take()) {
            any = true;
            self.on_device(node, now, call.as_ref(), &mut actions);
            self.perform(node, at, &mut actions);
        }
        for mut event in events.drain(..) {
            any = true;
            if let (Event::Failed(failure), Some(blocks)) = (&mut event, node.store.as_ref().and_then(Hosted::blocks))
                && blocks.ran_out()
            {
                // Whatever the store made of it.
                *failure = StoreFailure::Device(DeviceError::Os(Errno::NOSPC.raw_os_error()));
            }
            node.role.on_store(now, event, &mut actions);
            self.perform(node, at, &mut actions);
        }
        self.store_events = events;
        if let Some(evaluator) = &node.evaluator {
            let mut evaluated = Vec::new();
            evaluator.take(&mut evaluated);
            for evaluated in evaluated {
                any = true;
                node.role.on_evaluated(now, evaluated, &mut actions);
                self.perform(node, at, &mut actions);
            }
        }
        self.seek_monitor(node, at, now);
        // Only what is here now: answers to it come in the next round, after the other daemons had their turn.
        for _ in 0..node.inbox.len() {
            let Some(input) = node.inbox.pop_front() else { break };
            any |= self.give(node, at, now, input, &mut actions);
        }
        for _ in 0..node.client_inbox.len() {
            if !node.role.wants_client_work() {
                break;
            }
            let Some(input) = node.client_inbox.pop_front() else { break };
            let watch = match &input {
                Input::Message { from, message: Message::MetaWatch(ask), .. } => Some((*from, ask.watch)),
                _ => None,
            };
            any |= self.give(node, at, now, input, &mut actions);
            if let Some((from, watch)) = watch
                && let Some(conn) = node.links.conn(from).and_then(|id| self.conns[id].as_mut())
            {
                conn.note_watched(watch);
            }
        }
        if let Role::Client(access) = &mut node.role {
            any |= access.take_calls(now);
            node.role.take_actions(now, &mut actions);
            any |= !actions.is_empty();
            self.perform(node, at, &mut actions);
        }
        if node.halted.is_none() && node.role.next_deadline() <= now {
            any = true;
            node.role.on_tick(now, &mut actions);
            self.perform(node, at, &mut actions);
        }
        self.actions = actions;
        any
    }

    /// The watchdog has seen something about a store's device.
    pub(super) fn on_device(
        &mut self,
        node: &mut Node,
        now: Time,
        call: Option<&DeviceCall>,
        actions: &mut Vec<Action>,
    ) {
        let limit = match &node.role {
            Role::Osd(osd, _) => osd.timing().device_hung,
            _ => Timing::default().device_hung,
        };
        node.role.on_device(now, call, actions);
        if let Some(call) = call.filter(|call| !call.ended && call.age >= limit) {
            let why = watchdog::hung(node.entity, &call.to_text());
            self.say(why.clone());
            node.halt(why);
        }
    }

    pub(super) fn give(
        &mut self,
        node: &mut Node,
        at: usize,
        now: Time,
        input: Input,
        actions: &mut Vec<Action>,
    ) -> bool {
        if node.halted.is_some() {
            return false;
        }
        if let Input::Message { before: Some(before), .. } = &input
            && clock::now() >= *before
        {
            self.traffic.late_dropped += 1;
            return true;
        }
        self.given += 1;
        node.role.on_input(now, input, actions);
        self.perform(node, at, actions);
        true
    }

    /// Performs actions in order.
    pub(super) fn perform(&mut self, node: &mut Node, at: usize, actions: &mut Vec<Action>) {
        if actions.is_empty() {
            return;
        }
        let epoch = node.role.epoch();
        for action in actions.drain(..) {
            match action {
                Action::Send { to, message, before } => self.send(node, at, to, epoch, message, before),
                Action::SendMon { message } => {
                    if let Some(mon) = node.links.mon.current() {
                        self.send(node, at, Entity::Mon(mon), epoch, message, None);
                    } else {
                        self.traffic.unsent_dropped += 1;
                    }
                }
                Action::Submit { transaction, token } => {
                    let store = node.store.as_mut().expect("only daemons with a store submit");
                    if let Err(error) = store.submit(transaction, token) {
                        node.halt(submit_failure(node.entity, error));
                    }
                }
                Action::Read { read, token } => {
                    node.store.as_mut().expect("only daemons with a store read").read(read, token);
                }
                Action::Evaluate(job) => {
                    let waker = &self.waker;
                    let make = || Evaluator::new(waker.clone(), evaluator::SLICE, evaluator::LONGEST);
                    node.evaluator.get_or_insert_with(make).begin(job);
                }
                Action::Say(text) => {
                    let line = format!("{}: {text}", node.entity);
                    self.say(line);
                }
                Action::Halt(why) => {
                    self.say(format!("{} stops: {why}", node.entity));
                    node.halt(why);
                }
            }
        }
    }
}
