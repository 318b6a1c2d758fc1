//! The roles' turn: inputs in order of arrival, each role's outputs performed before its next input.

use super::{Node, Reactor, Waiting, submit_failure};
use crate::any_role::AnyRole;
use crate::clock;
use crate::evaluator::{self, Evaluator};
use crate::hosted::Hosted;
use crate::watchdog;
use nacre_osd::Timing;
use nacre_role::DeviceCall;
use nacre_role::{Input, Output, Role as _};
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
        let mut outputs = std::mem::take(&mut self.outputs);
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
            self.on_device(node, now, call, &mut outputs);
            self.perform(node, at, &mut outputs);
        }
        for mut event in events.drain(..) {
            any = true;
            if let (Event::Failed(failure), Some(blocks)) = (&mut event, node.store.as_ref().and_then(Hosted::blocks))
                && blocks.ran_out()
            {
                // Whatever the store made of it.
                *failure = StoreFailure::Device(DeviceError::Os(Errno::NOSPC.raw_os_error()));
            }
            node.role.on_input(now, Input::Store(event), &mut outputs);
            self.perform(node, at, &mut outputs);
        }
        self.store_events = events;
        if let Some(evaluator) = &node.evaluator {
            let mut ended = Vec::new();
            evaluator.take(&mut ended);
            for done in ended {
                any = true;
                node.role.on_input(now, Input::Done(done), &mut outputs);
                self.perform(node, at, &mut outputs);
            }
        }
        self.seek_monitor(node, at, now);
        // Only what is here now: answers to it come in the next round, after the other daemons had their turn.
        for _ in 0..node.inbox.len() {
            let Some(waiting) = node.inbox.pop_front() else { break };
            any |= self.give(node, at, now, waiting, &mut outputs);
        }
        for _ in 0..node.client_inbox.len() {
            if !node.role.wants_client_work() {
                break;
            }
            let Some(waiting) = node.client_inbox.pop_front() else { break };
            let watch = match &waiting.input {
                Input::Message { from, message: Message::MetaWatch(ask), .. } => Some((*from, ask.watch)),
                _ => None,
            };
            any |= self.give(node, at, now, waiting, &mut outputs);
            if let Some((from, watch)) = watch
                && let Some(conn) = node.links.conn(from).and_then(|id| self.conns[id].as_mut())
            {
                conn.note_watched(watch);
            }
        }
        if let AnyRole::Client(access) = &mut node.role {
            any |= access.take_calls(now);
            node.role.take_outputs(now, &mut outputs);
            any |= !outputs.is_empty();
            self.perform(node, at, &mut outputs);
        }
        if node.role.has_calls() {
            any = true;
            node.role.take_outputs(now, &mut outputs);
            self.perform(node, at, &mut outputs);
        }
        if node.halted.is_none() && node.role.next_deadline() <= now {
            any = true;
            node.role.on_input(now, Input::Tick, &mut outputs);
            self.perform(node, at, &mut outputs);
        }
        self.outputs = outputs;
        any
    }

    /// The watchdog has seen something about a store's device.
    pub(super) fn on_device(
        &mut self,
        node: &mut Node,
        now: Time,
        call: Option<DeviceCall>,
        outputs: &mut Vec<Output>,
    ) {
        let limit = match &node.role {
            AnyRole::Osd(osd) => osd.timing().device_hung,
            _ => Timing::default().device_hung,
        };
        let hangs = call.as_ref().filter(|call| !call.ended && call.age >= limit).map(DeviceCall::to_text);
        node.role.on_input(now, Input::Device(call), outputs);
        if let Some(call) = hangs {
            let why = watchdog::hung(node.entity, &call);
            self.say(why.clone());
            node.halt(why);
        }
    }

    pub(super) fn give(
        &mut self,
        node: &mut Node,
        at: usize,
        now: Time,
        waiting: Waiting,
        outputs: &mut Vec<Output>,
    ) -> bool {
        if node.halted.is_some() {
            return false;
        }
        if waiting.before.is_some_and(|before| clock::now() >= before) {
            self.traffic.late_dropped += 1;
            return true;
        }
        self.given += 1;
        node.role.on_input(now, waiting.input, outputs);
        self.perform(node, at, outputs);
        true
    }

    /// Performs outputs in order.
    pub(super) fn perform(&mut self, node: &mut Node, at: usize, outputs: &mut Vec<Output>) {
        self.look_at_instance(node, at);
        if outputs.is_empty() {
            return;
        }
        let epoch = node.role.epoch();
        for output in outputs.drain(..) {
            match output {
                Output::Send { to, message, before } => self.send(node, at, to, epoch, message, before),
                Output::Meet { peer, address } => node.links.meet(peer, address),
                Output::SendMon { message } => {
                    if let Some(mon) = node.links.mon.current() {
                        self.send(node, at, Entity::Mon(mon), epoch, message, None);
                    } else {
                        self.traffic.unsent_dropped += 1;
                    }
                }
                Output::Submit { transaction, token } => {
                    let store = node.store.as_mut().expect("only daemons with a store submit");
                    if let Err(error) = store.submit(transaction, token) {
                        node.halt(submit_failure(node.entity, error));
                    }
                }
                Output::Read { read, token } => {
                    node.store.as_mut().expect("only daemons with a store read").read(read, token);
                }
                Output::Run(job) => {
                    let waker = &self.waker;
                    let make = || Evaluator::new(waker.clone(), evaluator::SLICE, evaluator::LONGEST);
                    node.evaluator.get_or_insert_with(make).begin(job);
                }
                Output::Say(text) => {
                    let line = format!("{}: {text}", node.entity);
                    self.say(line);
                }
                Output::Halt { why } => {
                    self.say(format!("{} stops: {why}", node.entity));
                    node.halt(why);
                }
            }
        }
    }
}
