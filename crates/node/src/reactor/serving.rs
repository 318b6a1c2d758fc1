//! The roles' turns: inputs in order of arrival, a turn's outputs performed before the role's next
//! turn.
//!
//! An OSD gets all available inputs at once, so that its messages to each peer go in one frame; an
//! input with a map is a turn by itself. A monitor gets one input at a time: a committed change may
//! change its map with any of them.

use super::{Node, Reactor, Waiting, submit_failure};
use crate::any_role::AnyRole;
use crate::clock;
use crate::device::Blocks;
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
use std::cell::Cell;
use std::collections::VecDeque;

/// Clients' operations per turn: between two turns the role is asked whether it accepts more.
const CLIENT_TURN: usize = 64;

impl Reactor {
    /// Gives every role its pending inputs. Returns whether there were any.
    pub(super) fn round(&mut self) -> bool {
        let mut any = false;
        for at in 0..self.nodes.len() {
            let Some(mut node) = self.nodes[at].take() else {
                continue;
            };
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
        // After all pending inputs were received, never before: leases are counted from it.
        let now = clock::now();
        if let Some(call) = node.device.as_ref().and_then(|news| news.take()) {
            any = true;
            self.on_device(node, now, call, &mut outputs);
            self.perform(node, at, &mut outputs);
        }
        if let Some(blocks) = node.store.as_ref().and_then(Hosted::blocks) {
            events
                .iter_mut()
                .for_each(|event| say_as_the_disk_did(event, blocks));
        }
        let mut ended = Vec::new();
        if let Some(evaluator) = &node.evaluator {
            evaluator.take(&mut ended);
        }
        let mut is_told = !events.is_empty() || !ended.is_empty();
        let mut told = events
            .drain(..)
            .map(Input::Store)
            .chain(ended.into_iter().map(Input::Done));
        self.seek_monitor(node, at, now);
        // Only the current inputs: answers to them are delivered in the next round, after the other
        // daemons' turns.
        let mut inbox = std::mem::take(&mut node.inbox);
        let late = Cell::new(0);
        loop {
            let count = turn_length(is_told, &inbox);
            if !is_told && count == 0 {
                break;
            }
            is_told = false;
            self.given += count;
            any = true;
            let arrived = inbox
                .drain(..count)
                .filter_map(|waiting| waiting.in_time(&late));
            self.take_turn(
                node,
                at,
                now,
                &mut told.by_ref().chain(arrived),
                &mut outputs,
            );
        }
        drop(told);
        self.store_events = events;
        give_back(&mut node.inbox, inbox);
        let mut left = node.client_inbox.len();
        while left > 0 && node.role.wants_client_work() && node.halted.is_none() {
            any = true;
            // From here on, messages for a client's watch count as owed to it.
            let watch = node.client_inbox.front().and_then(Waiting::watch);
            let count = if node.role.takes_many() {
                left.min(CLIENT_TURN)
            } else {
                1
            };
            left -= count;
            self.given += count;
            let mut inbox = std::mem::take(&mut node.client_inbox);
            let mut arrived = inbox
                .drain(..count)
                .filter_map(|waiting| waiting.in_time(&late));
            self.take_turn(node, at, now, &mut arrived, &mut outputs);
            drop(arrived);
            give_back(&mut node.client_inbox, inbox);
            if let Some((from, watch)) = watch
                && let Some(conn) = node.links.conn(from).and_then(|id| self.conns[id].as_mut())
            {
                conn.note_watched(watch);
            }
        }
        self.traffic.late_dropped += late.get();
        self.given -= late.get() as usize;
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

    /// The watchdog has reported a change of a store's device.
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
        let hangs = call
            .as_ref()
            .filter(|call| !call.ended && call.age >= limit)
            .map(DeviceCall::to_text);
        node.role.on_input(now, Input::Device(call), outputs);
        if let Some(call) = hangs {
            let why = watchdog::hung(node.entity, &call);
            self.say(why.clone());
            node.halt(why);
        }
    }

    /// A turn of the role with all of these, or one with each ([`AnyRole::takes_many`]).
    fn take_turn(
        &mut self,
        node: &mut Node,
        at: usize,
        now: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        outputs: &mut Vec<Output>,
    ) {
        if !node.role.takes_many() {
            for input in inputs {
                if node.halted.is_none() {
                    node.role.on_input(now, input, outputs);
                    self.perform(node, at, outputs);
                }
            }
        } else if node.halted.is_none() {
            node.role.on_turn(now, inputs, outputs);
            self.perform(node, at, outputs);
        }
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
                Output::Send {
                    to,
                    message,
                    before,
                } => self.send(node, at, to, epoch, message, before),
                Output::Meet { peer, address } => node.links.meet(peer, address),
                Output::SendMon { message } => {
                    if let Some(mon) = node.links.mon.current() {
                        self.send(node, at, Entity::Mon(mon), epoch, message, None);
                    } else {
                        self.traffic.unsent_dropped += 1;
                    }
                }
                Output::Submit { transaction, token } => {
                    let store = node
                        .store
                        .as_mut()
                        .expect("only daemons with a store submit");
                    if let Err(error) = store.submit(transaction, token) {
                        node.halt(submit_failure(node.entity, error));
                    }
                }
                Output::Read { read, token } => {
                    node.store
                        .as_mut()
                        .expect("only daemons with a store read")
                        .read(read, token);
                }
                Output::Run(job) => {
                    let waker = &self.waker;
                    let make =
                        || Evaluator::new(waker.clone(), evaluator::SLICE, evaluator::LONGEST);
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

/// Number of pending inputs that form one turn, together with reports of the role's own threads if
/// `is_told`: an input with a map is a turn by itself.
fn turn_length(is_told: bool, inbox: &VecDeque<Waiting>) -> usize {
    match inbox.iter().position(|waiting| waiting.input.is_map()) {
        Some(0) => usize::from(!is_told),
        Some(before) => before,
        None => inbox.len(),
    }
}

/// Puts the rest of an inbox before inputs that have arrived meanwhile; its memory is kept.
fn give_back(inbox: &mut VecDeque<Waiting>, mut left: VecDeque<Waiting>) {
    left.append(inbox);
    *inbox = left;
}

/// Reports that a device ran out of space, whatever error the store reported.
fn say_as_the_disk_did(event: &mut Event, blocks: &Blocks) {
    if let Event::Failed(failure) = event
        && blocks.ran_out()
    {
        *failure = StoreFailure::Device(DeviceError::Os(Errno::NOSPC.raw_os_error()));
    }
}

impl Waiting {
    /// Its input, unless the lease on which it depends has expired.
    fn in_time(self, late: &Cell<u64>) -> Option<Input> {
        if self.before.is_some_and(|before| clock::now() >= before) {
            late.set(late.get() + 1);
            return None;
        }
        Some(self.input)
    }

    /// The metadata watch that it requests, with its client.
    fn watch(&self) -> Option<(Entity, u64)> {
        match &self.input {
            Input::Message {
                from,
                message: Message::MetaWatch(ask),
                ..
            } => Some((*from, ask.watch)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{Epoch, MonId};
    use nacre_wire::msg::monitor::MapFull;

    /// (Found by the command line's tests.) A turn began with the store's events and continued with
    /// a map change: frames of the former would have carried the epoch of the latter.
    #[test]
    fn what_brings_a_map_is_a_turn_by_itself() {
        let map = || Input::Message {
            from: Entity::Mon(MonId(0)),
            epoch: Epoch(1),
            message: Message::MapFull(MapFull {
                map: Default::default(),
            }),
        };
        let turns = |is_told, inputs: Vec<Input>| -> Vec<usize> {
            let (mut is_told, mut turns) = (is_told, Vec::new());
            let mut inbox: VecDeque<Waiting> = inputs.into_iter().map(Waiting::from).collect();
            while !inbox.is_empty() {
                turns.push(turn_length(std::mem::take(&mut is_told), &inbox));
                inbox.drain(..turns[turns.len() - 1]);
            }
            turns
        };
        assert_eq!(turns(false, vec![map(), map(), Input::Tick]), [1, 1, 1]);
        assert_eq!(
            turns(true, vec![map(), Input::Tick, Input::Tick, map()]),
            [0, 1, 2, 1]
        );
        assert_eq!(turns(true, vec![Input::Tick, map()]), [1, 1]);
        assert_eq!(turns(true, vec![Input::Tick, Input::MonSession]), [2]);
    }
}
